"""What a reader must know about the rows behind a result: few events, one dominating group, arms out of proportion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc

from faultlines import text
from faultlines.estimates.labels import labels_of, name_of
from faultlines.metrics.variances import Cumulants, steady

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from faultlines.estimates.labels import Key
    from faultlines.metrics.base import FloatArray, Metric
    from faultlines.rows.request import Grouped, Moments

_FEW = 2.0  # skewness² of an arm's mean above which a normal distribution is far from it
_MANY = 0.05  # share of the groups for which that must be so
_DOMINATES = 0.9  # share of all weight that one group may have
_MISMATCH = 1e-3  # chance of arms so much out of proportion
_USUAL = (1 / 2, 1 / 3, 2 / 3, 1 / 4, 3 / 4, 0.1, 0.9, 0.2, 0.8, 0.05, 0.95, 0.01, 0.99, 0.3, 0.7, 0.4, 0.6)
_NEAR = 0.02  # a share farther from a usual one than this was meant to be what it is


def warnings(metric: Metric, grouped: Grouped, kept: npt.NDArray[np.bool_], errors: FloatArray) -> Iterator[str]:
    """Everything a reader should be warned of.

    Args:
        metric: What was measured.
        grouped: All groups, those left out too.
        kept: Those that are compared.
        errors: Their standard errors, of the first effect.
    """
    moments = grouped.moments
    if metric.arms is not None and metric.aggregated is None and metric.unit is None:
        yield (
            "Rows were taken as independent, because no unit was given: if people have several rows, name the column "
            "of people as unit."
        )
    if not metric.parts and moments.skewness is not None:
        yield from _few_events(moments.of_groups(np.flatnonzero(kept)), metric)
    weight = errors**-2.0 / np.sum(errors**-2.0)
    if weight.size > 2 and weight.max() > _DOMINATES:
        name = name_of(labels_of(grouped.keys)[int(np.flatnonzero(kept)[weight.argmax()])])
        yield (
            f"{name} holds {text.share(float(weight.max()))} of all weight: pooled effects are nearly its own, and the "
            "others are compared with it."
        )
    if metric.arms is not None:
        yield from _mismatch(moments.n[:, :, 0], grouped.keys, metric.size_unit)
    yield from _lost(metric, grouped)


def _few_events(m: Moments, metric: Metric) -> Iterator[str]:
    """Groups whose means are so skewed that no correction can be relied on."""
    if m.skewness is None:
        return
    n = m.n[..., 0]
    with np.errstate(all="ignore"):
        shape = Cumulants.of(m, 0)
        # In units of the variances the groups share: within a group of n values no skewness exceeds √n.
        skewness = [
            steady(
                n[:, arm], m.mean[:, arm, 0], shape.variance[:, arm], Cumulants(*(c[:, arm] for c in shape))
            ).skewness
            for arm in range(n.shape[1])
        ]
        few = np.any(np.array(skewness) ** 2 / n > _FEW, axis=1)
    if few.mean() >= _MANY:
        where = " in an arm" if metric.arms else ""
        yield (
            f"{text.count(int(few.sum()))} of {text.count(few.size)} groups have too few {metric.size_unit} or events"
            f"{where} for values this skewed: false claims can exceed α. Use coarser groups or a larger min_size; "
            "a self-check (--self-check, fl.self_check) shows how often it happens on these rows."
        )


def _mismatch(sizes: FloatArray, keys: Sequence[Key], unit: str) -> Iterator[str]:
    """Sample-ratio mismatch: of all rows against the usual share nearby, and of the worst group against all rows."""
    total = sizes.sum(axis=0)
    if not np.all(total > 0):
        return
    share = total[1] / total.sum()
    meant = min(_USUAL, key=lambda usual: abs(usual - share))
    statistic = (share - meant) ** 2 / (meant * (1 - meant)) * total.sum()
    chance = float(chdtrc(1, statistic))
    if abs(share - meant) < _NEAR and chance < _MISMATCH:
        yield (
            f"{text.share(share, 2)} of {unit} are in treatment. If {text.share(meant, 1)} was meant, this is a "
            f"sample-ratio mismatch ({_p(chance)}): find its cause before you trust any effect."
        )
    of_groups = sizes.sum(axis=1)
    with np.errstate(all="ignore"):
        each = (sizes[:, 1] / of_groups - share) ** 2 / (share * (1 - share)) * of_groups
        chances = chdtrc(1, np.nan_to_num(each)) * max(np.count_nonzero(of_groups), 1)
    worst = int(np.argmin(chances))
    if chances[worst] < _MISMATCH:
        name, here = name_of(labels_of(keys)[worst]), text.share(sizes[worst, 1] / of_groups[worst], 1)
        yield (
            f"Arms are out of proportion in {name}: {here} of {unit} in treatment, {text.share(share, 1)} in all "
            f"({_p(float(chances[worst]))} for the worst of all groups). Something other than chance put them there."
        )


def _lost(metric: Metric, grouped: Grouped) -> Iterator[str]:
    """Whose rows were left out for want of a covariate, where that happened."""
    lost, rows = grouped.lost, grouped.rows
    covariate = next((one.column for one in metric.inputs.values() if one.parameter == "covariate"), None)
    if lost is None or rows is None or covariate is None or not lost.sum():
        return
    told = [
        f"{text.share(lost[:, i].sum() / rows[:, i].sum(), 1)} of {arm}"
        for i, arm in enumerate(("control", "treatment"))
        if rows[:, i].sum()
    ]
    with np.errstate(all="ignore"):
        shares = np.nan_to_num(lost.sum(axis=1) / rows.sum(axis=1))
    worst = int(np.argmax(shares))
    name, here = name_of(labels_of(grouped.keys)[worst]), text.share(shares[worst], 1)
    yield (
        f"Rows without a value, of the covariate {covariate} or another input, are left out: {' and '.join(told)}, "
        f"most in {name} ({here}). The effect is that on the others."
    )


def _p(chance: float) -> str:
    return text.p_is(float(np.log(max(chance, 1e-300))))
