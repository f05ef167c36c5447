"""What a reader must know about the rows behind a result: few events, one dominating group, arms out of proportion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtr

from faultlines import formats
from faultlines.estimates.labels import labels_of, name_of
from faultlines.metrics.forms import covariate_place
from faultlines.metrics.moments import describe_noise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from faultlines.estimates.labels import Key
    from faultlines.metrics.base import FloatArray, Metric
    from faultlines.metrics.readout import Readout
    from faultlines.rows.request import Grouped, Moments

_FEW = 2.0  # skewness² of an arm's mean above which, in some 25 groups, a normal distribution is far from it
_FEW_GROUPS = 25  # groups up to which that is so; the largest of K values is at √(2 log K), where tails matter more
_MANY = 0.05  # share of the groups for which that must be so
_UNCORRECTED = 0.25  # of the terms of an Edgeworth series that estimated shapes leave: a quarter of each
_LARGEST_FLOOR, _SMALLEST_FLOOR = 1e-3, 1e-10  # p that is printed as "less than this"; smaller ones all read < 1e-10
_DOMINATES = 0.9  # share of all weight that one group may have
_MISMATCH = 1e-3  # chance of arms so much out of proportion
_USUAL = (1 / 2, 1 / 3, 2 / 3, 1 / 4, 3 / 4, 0.1, 0.9, 0.2, 0.8, 0.05, 0.95, 0.01, 0.99, 0.3, 0.7, 0.4, 0.6)
_NEAR = 0.02  # a share farther from a usual one than this was meant to be what it is


def warnings(metric: Metric, grouped: Grouped, compared: npt.NDArray[np.bool_], errors: FloatArray) -> Iterator[str]:
    """Everything a reader should be warned of.

    Args:
        metric: What was measured.
        grouped: All groups, those left out too.
        compared: Which of them are compared.
        errors: Their standard errors, of the first effect.
    """
    moments = grouped.moments
    if grouped.repeated is not None:
        column, each = grouped.repeated
        yield (
            f"Rows were taken as independent, because no unit was given, but {column} has {each:.1f} rows per value in "
            f"the first rows: if rows of a {column} go together, name it as unit."
        )
    elif metric.arms is not None and metric.aggregated is None and metric.unit is None:
        yield (
            "Rows were taken as independent, because no unit was given: if people have several rows, name the column "
            "of people as unit."
        )
    if not metric.parts and moments.skewness is not None:
        yield from _few_events(moments.of_groups(np.flatnonzero(compared)), metric)
    weight = errors**-2.0 / np.sum(errors**-2.0)
    if weight.size > 2 and weight.max() > _DOMINATES:
        name = name_of(labels_of(grouped.keys)[int(np.flatnonzero(compared)[weight.argmax()])])
        yield (
            f"{name} holds {formats.share(float(weight.max()))} of all weight: pooled effects are nearly its own, "
            "and the "
            "others are compared with it."
        )
    if metric.arms is not None:
        yield from _mismatch(moments.n[:, :, 0], grouped.keys, metric.size_unit)
    yield from _imputed(metric, grouped)
    yield from _capped(metric, grouped)


def _few_events(m: Moments, metric: Metric) -> Iterator[str]:
    """Groups whose means are so skewed, by their own figures, that no correction can be relied on."""
    if not metric.needs_covariance:
        return  # rates are compared by the scores of their own law
    few = np.any(describe_noise(m).of_arms ** 2 > few_events_limit(len(m.n)), axis=1)
    if few.mean() >= _MANY:
        where = " in an arm" if metric.arms else ""
        yield (
            f"{formats.count(int(few.sum()))} of {formats.count(few.size)} groups have too few "
            f"{metric.size_unit} or events"
            f"{where} for values this skewed: false claims can exceed α. Use coarser groups or a larger min_size; "
            "a self-check (--self-check, fl.self_check) shows how often it happens on these rows."
        )


def few_events_limit(groups: int) -> float:
    """The squared skewness of an arm's mean from which it counts as one of few events, among so many groups.

    Args:
        groups: How many groups are compared.

    Returns:
        2 for up to 25 groups, and less as the largest of them all lies farther out.
    """
    return float(_FEW / (1 + max(0.0, np.log(groups / _FEW_GROUPS))))


def pvalue_floor(readout: Readout, dof: FloatArray | None) -> PValueFloor | None:
    """The smallest p that measured rows support, at most .001; None where nothing limits it above 1e-10.

    Rates are compared by the scores of their own law and have exact tails. Where even .001 is not supported, a warning
    says so.

    Args:
        readout: The moments behind the estimates.
        dof: Degrees of freedom of their standard errors; None where these are known.
    """
    metric = readout.metric
    if metric.parts or not metric.needs_covariance or readout.moments.skewness is None:
        return None
    floor = smallest_supported_pvalue(readout.moments, dof)
    if floor.pvalue <= _SMALLEST_FLOOR:
        return None
    power_of_ten = float(f"1e{int(np.ceil(np.log10(floor.pvalue)))}")  # it is known to a factor, not to a digit
    return floor._replace(pvalue=min(power_of_ten, _LARGEST_FLOOR))


class PValueFloor(NamedTuple):
    """The smallest p that rows support.

    Attributes:
        pvalue: The p below which a test says no more than "less than this".
        reason: What limits it: skewed means of few events, heavy tails, or few degrees of freedom.
    """

    pvalue: float
    reason: Literal["few events", "heavy tails", "few degrees of freedom"]


def smallest_supported_pvalue(m: Moments, dof: FloatArray | None = None) -> PValueFloor:
    """The smallest p that the shape of the noise and the degrees of freedom support, for a typical group.

    At a distance of z standard errors the tail of a mean of skewness γ and excess kurtosis κ is that of a normal times
    exp(γ z³/6 + κ z⁴/24), and that of Student's t times exp(z⁴/(4 dof)), to first order. Estimated shapes correct most
    of it, and leave some quarter. The floor is where that makes a factor of e.

    Args:
        m: The moments of the groups that are compared.
        dof: Degrees of freedom of their standard errors; None where these are known.

    Returns:
        The floor, and what it comes from.
    """
    noise = describe_noise(m)
    skewness, excess = (float(np.median(np.abs(part[np.isfinite(part)]))) for part in (noise.skewness, noise.excess))
    inverse = 0.0 if dof is None else float(np.median(1 / dof))
    terms = {
        "few events": (skewness / 6, 3),
        "heavy tails": (excess / 24, 4),
        "few degrees of freedom": (inverse / 4, 4),
    }
    z = np.linspace(0.5, 37.0, 3651)
    sizes = {reason: _UNCORRECTED * factor * z**power for reason, (factor, power) in terms.items()}
    place = int(np.searchsorted(np.sum(list(sizes.values()), axis=0), 1.0))
    place = min(place, z.size - 1)
    reason = max(sizes, key=lambda name: float(sizes[name][place]))
    return PValueFloor(float(2 * ndtr(-z[place])), reason)  # type: ignore[arg-type]


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
            f"{formats.share(share, 2)} of {unit} are in treatment. If {formats.share(meant, 1)} was meant, this is a "
            f"sample-ratio mismatch ({_p(chance)}): find its cause before you trust any effect."
        )
    of_groups = sizes.sum(axis=1)
    with np.errstate(all="ignore"):
        each = (sizes[:, 1] / of_groups - share) ** 2 / (share * (1 - share)) * of_groups
        chances = chdtrc(1, np.nan_to_num(each)) * max(np.count_nonzero(of_groups), 1)
    worst = int(np.argmin(chances))
    if chances[worst] < _MISMATCH:
        name, here = name_of(labels_of(keys)[worst]), formats.share(sizes[worst, 1] / of_groups[worst], 1)
        yield (
            f"Arms are out of proportion in {name}: {here} of {unit} in treatment, {formats.share(share, 1)} in all "
            f"({_p(float(chances[worst]))} for the worst of all groups). Something other than chance put them there."
        )


def _imputed(metric: Metric, grouped: Grouped) -> Iterator[str]:
    """Who has no covariate, where some have none."""
    covariate = next((one.column for one in metric.inputs.values() if one.parameter == "covariate"), None)
    if covariate is None:
        return
    of_all = grouped.moments.n[:, :, 0]
    lacking = of_all - grouped.moments.n[:, :, covariate_place(metric.inputs)]
    if not lacking.sum():
        return
    by_arm = [
        f"{formats.share(lacking[:, i].sum() / of_all[:, i].sum(), 1)} of {arm}"
        for i, arm in enumerate(("control", "treatment"))
        if of_all[:, i].sum()
    ]
    with np.errstate(all="ignore"):
        shares = np.nan_to_num(lacking.sum(axis=1) / of_all.sum(axis=1))
    worst = int(np.argmax(shares))
    name, here = name_of(labels_of(grouped.keys)[worst]), formats.share(shares[worst], 1)
    yield (
        f"The covariate {covariate} is missing for {' and '.join(by_arm)}, most in {name} ({here}). These "
        f"{metric.size_unit} are kept: they have the mean of their group, and an indicator of their own."
    )


def _capped(metric: Metric, grouped: Grouped) -> Iterator[str]:
    """Whose largest values were cut, and where."""
    if grouped.capped is None:
        return
    of_all, count = grouped.moments.n[:, :, 0], grouped.capped.above
    arms = ("control", "treatment") if metric.arms else ("all",)
    of_arms = [
        f"{formats.share(count[:, i].sum() / max(of_all[:, i].sum(), 1), 2)} of {arm}" for i, arm in enumerate(arms)
    ]
    shares = count.sum(axis=1) / np.maximum(of_all.sum(axis=1), 1)
    worst = int(np.argmax(shares))
    yield (
        f"{grouped.capped.column} is capped at {grouped.capped.at:,.6g} in all groups: {' and '.join(of_arms)} "
        f"{metric.size_unit} were above, most in {name_of(labels_of(grouped.keys)[worst])} "
        f"({formats.share(shares[worst], 2)})."
    )


def _p(chance: float) -> str:
    return formats.p_is(float(np.log(max(chance, 1e-300))))
