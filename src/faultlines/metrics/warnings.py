"""What a reader must know about the rows behind a result: few events, one dominating group, sample ratios.

Counts of arms are compared in every margin of the groups (by country; by country × browser; the cells), every level
and as a whole, so that a loss in one country shows where groups are crossed with browsers too. Expected shares are
those that were planned; where none are given, those of all other levels, and only heterogeneity is tested.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, log_ndtr, ndtr, xlogy

from faultlines import formats
from faultlines.errors import InputError, shorten
from faultlines.estimates.labels import Key, Margin, labels_of, margins_of, match, name_of, part_of
from faultlines.estimates.reasons import RowWarning
from faultlines.metrics.base import Metric
from faultlines.metrics.forms import covariate_place
from faultlines.metrics.moments import describe_noise
from faultlines.metrics.readout import ALARM, Readout, SampleRatio
from faultlines.rows.request import Arms, Grouped, Moments
from faultlines.types import FloatArray

_FEW = 2.0  # skewness² of an arm's mean above which, in some 25 groups, a normal distribution is far from it
_FEW_GROUPS = 25  # groups up to which that is so; the largest of K values is at √(2 log K), where tails matter more
_MANY = 0.05  # share of the groups for which that must be so
_UNCORRECTED = 0.25  # of the terms of an Edgeworth series that estimated shapes leave: a quarter of each
_LARGEST_FLOOR, _SMALLEST_FLOOR = 1e-3, 1e-10  # p that is printed as "less than this"; smaller ones all read < 1e-10
_MUCH_CAPPED = 0.9  # share of the sum of capped values that are cut ones, above which a cap below 1 is a slip
_DOMINATES = 0.9  # share of all weight that one group may have


def warnings(
    metric: Metric, grouped: Grouped, compared: npt.NDArray[np.bool_], errors: FloatArray
) -> Iterator[RowWarning]:
    """Everything a reader should be warned of.

    Args:
        metric: What was measured.
        grouped: All groups, excluded ones too.
        compared: Which of them are compared.
        errors: Their standard errors, of the first effect.
    """
    moments = grouped.moments
    if grouped.repeated is not None:
        column, each = grouped.repeated
        text = (
            f"Rows are taken as independent, but {column} repeats. If rows of one {column} depend on "
            "each other, name it as unit."
        )
        yield RowWarning("no unit", text, {"column": column, "rows_each": each})
    elif metric.arms is not None and metric.aggregated is None and metric.unit is None:
        text = "Rows are taken as independent. If users have several rows, name the column of users as unit."
        yield RowWarning("no unit", text)
    if not metric.parts and moments.skewness is not None:
        yield from _few_events(moments.of_groups(np.flatnonzero(compared)), metric)
    weight = errors**-2.0 / np.sum(errors**-2.0)
    if weight.size > 2 and weight.max() > _DOMINATES:
        name = name_of(labels_of(grouped.keys)[int(np.flatnonzero(compared)[weight.argmax()])])
        share = float(weight.max())
        text = f"{name} has {formats.share(share)} of all weight and dominates the overall effect."
        yield RowWarning("dominating group", text, {"group": name, "share": share})
    yield from _imputed(metric, grouped)
    yield from _capped(metric, grouped)


def _few_events(m: Moments, metric: Metric) -> Iterator[RowWarning]:
    """Groups whose means are so skewed, by their own figures, that no correction can be relied on."""
    if not metric.needs_covariance:
        return  # rates are compared by the scores of their own law
    few = np.any(describe_noise(m).of_arms ** 2 > few_events_limit(len(m.n)), axis=1)
    if few.mean() >= _MANY:
        where = " in an arm" if metric.arms else ""
        text = (
            f"{formats.count(int(few.sum()))} of {formats.count(few.size)} groups have too few {metric.size_unit} or "
            f"events{where} for such skewed values. False positives can exceed α. Use coarser groups or a cap, or run "
            "a self-check."
        )
        yield RowWarning("few events", text, {"groups": int(few.sum()), "of": int(few.size)})


def few_events_limit(groups: int) -> float:
    """The squared skewness of an arm's mean from which it counts as one of few events, given the number of groups.

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
    shapes = [np.abs(part[np.isfinite(part)]) for part in (noise.skewness, noise.excess)]
    skewness, excess = (float(np.median(part)) if part.size else 0.0 for part in shapes)
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


def _imputed(metric: Metric, grouped: Grouped) -> Iterator[RowWarning]:
    """Who has no covariate, where some have none."""
    covariate = next((source.column for source in metric.inputs.values() if source.parameter == "covariate"), None)
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
    text = (
        f"The covariate {covariate} is missing for {' and '.join(by_arm)}, most in {name} ({here}). These "
        f"{metric.size_unit} are kept, with the mean of their group and an indicator."
    )
    yield RowWarning("missing covariate", text, {"column": covariate, "rows": float(lacking.sum())})


def _capped(metric: Metric, grouped: Grouped) -> Iterator[RowWarning]:
    """Whose largest values were cut, and where."""
    if grouped.capped is None:
        return
    of_all, count = grouped.moments.n[:, :, 0], grouped.capped.above
    at = grouped.capped.at
    fields = {"column": grouped.capped.column, "at": at}
    total = float(np.nansum(of_all * grouped.moments.mean[:, :, 0]))
    if 0 < at < 1 and at * float(count.sum()) > _MUCH_CAPPED * total > 0:
        column = grouped.capped.column
        text = f"{column} is capped at {at:,.6g}, which cuts most values above zero. Did you mean {100 * at:.6g}%?"
        yield RowWarning("capped", text, fields | {"share": at * float(count.sum()) / total})
        return
    if not count.any():
        text = f"{grouped.capped.column} is capped at {grouped.capped.at:,.6g} in all groups: nothing was above."
        yield RowWarning("capped", text, fields)
        return
    arms = ("control", "treatment") if metric.arms else ("all",)
    of_arms = [
        f"{formats.share(count[:, i].sum() / max(of_all[:, i].sum(), 1), 2)} of {arm}" for i, arm in enumerate(arms)
    ]
    shares = count.sum(axis=1) / np.maximum(of_all.sum(axis=1), 1)
    worst = int(np.argmax(shares))
    text = (
        f"{grouped.capped.column} is capped at {grouped.capped.at:,.6g} in all groups: {' and '.join(of_arms)} "
        f"{metric.size_unit} were above, most in {name_of(labels_of(grouped.keys)[worst])} "
        f"({formats.share(shares[worst], 2)})."
    )
    yield RowWarning("capped", text, fields)


# ------------------------------------------------------------------------------------------------------- sample ratios


_LEAST = 5.0  # units expected in every arm of a level, from which on it is tested by itself
_TOTAL = 0.5  # of the significance level, for all units together, where planned shares are given
_SPREAD = 0.5  # of the level of a margin, for all of its levels together; the rest is for the worst of them
_TINY = 1e-300


def sample_ratio(metric: Metric, grouped: Grouped, attributes: Sequence[str]) -> SampleRatio | None:
    """The test of the arms of a metric; None where it has none, or too few units to test.

    Args:
        metric: What was measured; its arms have the planned shares.
        grouped: All groups with all arms, excluded ones too.
        attributes: The attributes of the groups.
    """
    if metric.arms is None or not grouped.treatments:
        return None
    treatments = metric.arms.treatments if metric.arms.treatments not in {(), ("*",)} else grouped.treatments
    arms = (part_of(metric.arms.control), *map(part_of, treatments))
    shares = planned_shares(metric.arms, arms)
    counts = grouped.moments.n[:, :, 0]
    unit, distinct = metric.size_unit, grouped.distinct if metric.overlap != "error" else None
    return compare_arms(counts, arms, grouped.keys, attributes, shares=shares, unit=unit, distinct=distinct)


def planned_shares(arms: Arms, compared: Sequence[Hashable]) -> tuple[float, ...] | None:
    """The planned shares of the arms that are compared, which add up to 1; None where none were given."""
    if arms.shares is None:
        return None
    places = match([(arm,) for arm in compared], [(part_of(arm),) for arm, _ in arms.shares], "shares")
    for place, arm in zip(places, compared, strict=True):
        if place < 0:
            names = ", ".join(shorten(name) for name, _ in arms.shares)
            problem = f"have no share of the variant {shorten(arm)}"
            raise InputError.missing("shares", problem, f"Add it; there are shares of {names}.")
    chosen = np.array([arms.shares[place][1] for place in places])
    return tuple((chosen / chosen.sum()).tolist())


class _Worst(NamedTuple):
    """The worst deviation of a margin: log p at the margin's own level, and where it is."""

    log_p: float
    level: int
    arm: int
    share: float
    expected: float
    n: float


def compare_arms(
    counts: FloatArray,
    arms: Sequence[Hashable],
    keys: Sequence[Key],
    attributes: Sequence[str],
    *,
    shares: Sequence[float] | None,
    unit: str,
    distinct: FloatArray | None = None,
) -> SampleRatio | None:
    """Test the shares of arms over all margins of some cells.

    Half of the significance level is for all units together, where shares were planned; margins share the rest as they
    do in the test of effects. Within a margin one half is for its levels as a whole (Pearson's χ²), the other for the
    worst of them (likelihood ratio of its counts, Bonferroni). Levels with fewer than 5 expected units in an arm are
    taken together.

    Args:
        counts: Units of every cell and arm, (K, A).
        arms: The arms, the control first.
        keys: The levels of every cell.
        attributes: The attributes; none where all units are one group, whose test has all of the significance level.
        shares: Planned shares, which add up to 1; None: those of all other levels are expected.
        unit: What was counted.
        distinct: Units of each arm in all cells together, each counted once, where they are in several cells: then
            cells alone are compared, one by one.

    Returns:
        The test; None where nothing can be tested.
    """
    total = counts.sum(axis=0) if distinct is None else distinct
    if counts.shape[1] < 2 or not np.all(total > 0):
        return None
    everyone = total.sum()
    expected = total / everyone if shares is None else np.asarray(shares)
    candidates: list[tuple[float, Margin | None, _Worst]] = []
    if shares is not None and everyone * expected.min() >= _LEAST:
        log_p = _log_p_of_all(total, expected)
        arm = int(np.argmax(np.abs(total / everyone - expected) / np.sqrt(expected * (1 - expected))))
        worst = _Worst(log_p, 0, arm, float(total[arm] / everyone), float(expected[arm]), float(everyone))
        candidates.append((log_p - np.log(_TOTAL if attributes else 1.0), None, worst))
    left = 1.0 if shares is None else 1 - _TOTAL
    margins = margins_of(_codes(keys, len(attributes))) if attributes else ()
    if distinct is not None:
        margins = tuple(margin for margin in margins if margin.is_cells)
        left /= sum(margin.share for margin in margins) or 1.0
    for margin in margins:
        alone = distinct is not None
        worst_of_margin = _worst_level(counts, margin, expected, planned=shares is not None, cells_alone=alone)
        if worst_of_margin is not None:
            candidates.append((worst_of_margin.log_p - np.log(margin.share * left), margin, worst_of_margin))
    if not candidates:
        return None
    log_p, chosen, worst = min(candidates, key=lambda candidate: candidate[0])
    if (
        chosen is not None
        and distinct is None
        and candidates[0][1] is None
        and candidates[0][0] < np.log(ALARM)
        and _is_everywhere(counts, chosen, expected)
    ):
        _, chosen, worst = candidates[0]
    where: tuple[tuple[str, Hashable], ...] = ()
    there = total
    if chosen is not None:
        there = counts[chosen.codes == worst.level].sum(axis=0)
        key = keys[int(np.flatnonzero(chosen.codes == worst.level)[0])]
        where = tuple((attributes[a], key[a]) for a in chosen.attributes)
    return SampleRatio(
        min(float(log_p), 0.0),
        where,
        arms[worst.arm],
        worst.share,
        worst.expected,
        shares is not None,
        worst.n,
        unit,
        tuple(arms),
        tuple(total.tolist()),
        None if shares is None else tuple(expected.tolist()),
        tuple(there.tolist()),
    )


def _is_everywhere(counts: FloatArray, margin: Margin, expected: FloatArray) -> bool:
    """Whether planned shares are missed by levels with most of the units, or by those together that seem to have them.

    A mismatch of all units together is then no matter of the level where it is worst.
    """
    levels = np.zeros((margin.levels, counts.shape[1]))
    np.add.at(levels, margin.codes, counts)
    deviates = np.array([_log_p_of_all(level, expected) for level in levels]) < np.log(ALARM / len(levels))
    others = levels[~deviates]
    return bool(2 * others.sum() < levels.sum() or _log_p_of_all(others.sum(axis=0), expected) < np.log(ALARM))


def _log_p_of_all(total: FloatArray, expected: FloatArray) -> float:
    """Log p of "units are in the arms with these shares" (Pearson's χ²); 0 where they are too few to test."""
    means = total.sum() * expected
    if means.min() < _LEAST:
        return 0.0
    square = float(np.sum((total - means) ** 2 / means))
    return float(np.log(max(chdtrc(expected.size - 1, square), _TINY)))


def _codes(keys: Sequence[Key], attributes: int) -> Any:
    codes = np.empty((len(keys), attributes), dtype=np.int64)
    for a in range(attributes):
        numbers: dict[str, int] = {}
        codes[:, a] = [numbers.setdefault(name_of(key[a]), len(numbers)) for key in keys]
    return codes


def _worst_level(
    counts: FloatArray, margin: Margin, expected: FloatArray, *, planned: bool, cells_alone: bool
) -> _Worst | None:
    """How far the levels of a margin deviate, together and the worst of them; None where none is large enough."""
    levels = np.zeros((margin.levels, counts.shape[1]))
    np.add.at(levels, margin.codes, counts)
    sizes, everyone = levels.sum(axis=1), levels.sum()
    least = float(expected.min())
    is_tested = sizes * least >= _LEAST
    if not planned:  # what a level is compared with must be large enough as well
        is_tested &= (everyone - sizes) * least >= _LEAST
    places = np.flatnonzero(is_tested)
    if not places.size:
        return None
    total = levels.sum(axis=0)
    roots = np.stack([_roots(levels[places, a], sizes[places], total[a], everyone, expected[a], planned=planned)
                      for a in range(expected.size)], axis=1)  # fmt: skip
    tests = places.size * (1 if expected.size == 2 else expected.size)
    row, arm = (int(place) for place in np.unravel_index(np.argmax(np.abs(roots)), roots.shape))
    log_p = float(np.log(2 * tests) + log_ndtr(-abs(roots[row, arm])))
    if not cells_alone:
        pooled = np.vstack([levels[places], levels[~is_tested].sum(axis=0)])
        pooled = pooled[pooled.sum(axis=1) * least >= _LEAST]
        if not planned:
            expected = pooled.sum(axis=0) / pooled.sum()
        means = pooled.sum(axis=1)[:, None] * expected
        freedom = (len(pooled) - (0 if planned else 1)) * (expected.size - 1)
        if freedom > 0:
            square = float(np.sum((pooled - means) ** 2 / means))
            log_q = float(np.log(max(chdtrc(freedom, square), _TINY))) - np.log(_SPREAD)
            log_p = min(log_p - np.log(1 - _SPREAD), log_q)
    level = int(places[row])
    size, own = float(sizes[level]), float(levels[level, arm])
    share_of_rest = float((total[arm] - own) / (everyone - size)) if everyone > size else float(expected[arm])
    wanted = float(expected[arm]) if planned else share_of_rest
    return _Worst(log_p, level, arm, own / size, wanted, size)


def _roots(
    own: FloatArray, sizes: FloatArray, of_arm: float, everyone: float, share: float, *, planned: bool
) -> FloatArray:
    """Signed roots of likelihood ratios of an arm's counts by level, about normal where the arm's share is as expected.

    The count is moved by half a unit towards what is expected (continuity). Against a planned share it is binomial;
    else it is that of a table of two by two, the level and the rest.
    """
    shift = np.clip(sizes * share - own, -0.5, 0.5)
    moved = own + shift
    deviance = _deviance(moved, sizes * share) + _deviance(sizes - moved, sizes * (1 - share))
    if not planned:
        rest, of_rest = everyone - sizes, of_arm - moved
        deviance = deviance + _deviance(of_rest, rest * share) + _deviance(rest - of_rest, rest * (1 - share))
    return np.asarray(np.sign(moved - sizes * share) * np.sqrt(np.maximum(deviance, 0.0)))


def _deviance(counts: FloatArray, means: FloatArray) -> FloatArray:
    return np.asarray(2 * (xlogy(counts, counts / means) - (counts - means)))
