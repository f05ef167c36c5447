"""What may be signed off: that no group is farther than a gap from the overall, from a reference, or from another.

Two claims, each with an error of its own at most α. That *all* groups are within the gap is an intersection-union test:
if one group is farther away, already its own one-sided test says otherwise with chance 1 − α, so that none of the tests
needs a correction for their number, and the largest of the one-sided bounds bounds the farthest of all groups. What is
said of single groups, that one is within the gap or differs by more, holds for all of them together: by intervals that
are simultaneous under the true correlation of the comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from faultlines import checks
from faultlines.comparison.precision import true_scales
from faultlines.decide.certificate import ALL_PAIRS, OVERALL, Certificate, Standing
from faultlines.decide.contrasts import Distances, critical_of, distances, effects_of, farthest
from faultlines.errors import InputError, NoGroupsError, did_you_mean, shorten
from faultlines.estimates.estimates import plain
from faultlines.estimates.labels import key_of, labels_of, match, name_of
from faultlines.estimates.scales import LogRatio
from faultlines.guarantees.calibrated import Calibrated
from faultlines.result.finding import Finding, Groups, groups_of, is_rows, measured
from faultlines.result.leftout import left_out_words
from faultlines.result.summary import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faultlines.decide.certificate import Status, Verdict
    from faultlines.decide.contrasts import Adverse, Interval, OneEffect
    from faultlines.estimates.estimates import BoolArray, Estimates, Excluded, IntArray
    from faultlines.estimates.labels import Label
    from faultlines.estimates.scales import FloatArray
    from faultlines.metrics.base import Metric
    from faultlines.metrics.readout import Readout
    from faultlines.result.finding import By

_MOST_IN_PAIRS = 5_000  # groups that are compared with each other


def certify(
    data: object,
    by: By | None = None,
    metric: Metric | None = None,
    *,
    gap: float | Sequence[float],
    against: Label = OVERALL,
    ratio: bool = False,
    adverse: Adverse | None = None,
    alpha: float = 0.05,
    min_size: float | None = None,
    seed: int = 0,
) -> Certificate:
    """Can it be signed off that no group is farther than a gap from the overall, from a reference, or from another?

    The overall is the effect on all people: the mean of the groups' effects weighted by their rows (by the sums of
    their weights or denominators, where the metric has those; of a lift, by what the control makes). For means, rates
    and ratios that is the plain value in all rows. Estimates without sizes are weighted by their precision, and a note
    says so. The groups' sizes are taken as given.

    Args:
        data: As for `fl.cluster`; or what it returned.
        by: As for `fl.cluster`.
        metric: As for `fl.cluster`.
        gap: How far is too far, in the units of the metric: 0.02 is two points of a rate. With ``ratio=True`` a ratio
            below 1: 0.8 is the four-fifths rule. For several effects one for each, or one for all of several rates.
        against: ``"overall"``; ``"all pairs"``: every group with every other; or the label of a reference group.
        ratio: Compare ratios, not differences: effects must be above zero.
        adverse: ``"low"`` where only groups below the overall (the reference) count, ``"high"`` for those above.
        alpha: The accepted chance of a wrong certificate, and that of a wrong "differs".
        min_size: As for `fl.cluster`.
        seed: Of the draws behind the simultaneous intervals.

    Returns:
        The verdict, the smallest gap that can be certified, and where every group stands.

    Raises:
        InputError: If something given cannot be used; the message names the parameter, the value and the remedy.

    Example:
        >>> import faultlines as fl
        >>> rates = fl.binomial([480, 500, 510], 1000, ["DE", "FR", "IT"])
        >>> certificate = fl.certify(rates, gap=0.06)
        >>> certificate.verdict, round(certificate.smallest, 3)
        ('certified', 0.038)
    """
    alpha, seed, ratio = checks.alpha(alpha), checks.seed(seed), checks.flag("ratio", ratio)
    adverse = checked_adverse(adverse)
    groups = _groups(data, by, metric, min_size)
    estimates = groups.comparison.estimates
    if estimates is None:
        raise InputError("data", "is a comparison without estimates", "Give Similarity(…, estimate=…).")
    gaps = _gaps(gap, estimates, ratio=ratio)
    if len(estimates) < 2:
        raise NoGroupsError("data", "has one group, and nothing to compare it with", "Name finer groups.")
    how = _Question(_place(against, estimates, groups.excluded), gaps, ratio, adverse, alpha)
    share, is_precision = shares_of(estimates, groups.readout)
    if how.reference is not None:
        share = np.zeros(share.shape)
        share[how.reference] = 1.0
    effects = effects_of(estimates, share)
    if ratio:
        _check_ratio(effects, how)
    if how.is_pairs and adverse is not None:
        raise InputError(f"adverse={adverse!r}", "of two groups either is the lower one", "Leave it out.")
    if how.is_pairs and len(estimates) > _MOST_IN_PAIRS:
        problem = f"of {len(estimates):,} groups are too many"
        raise InputError(f"against={ALL_PAIRS!r}", problem, "Compare with the overall.")
    sides = 1 if adverse is not None else 2
    critical = critical_of(estimates, None if how.is_pairs else share, alpha, seed, sides=sides)
    found = [how.compared(effect, i, float(ndtr(-critical))) for i, effect in enumerate(effects)]
    level = [effect.overall for effect in effects]
    return _certificate(groups, estimates, how, found, critical, seed, level, is_precision=is_precision)


# ------------------------------------------------------------------------------------------------------ what is given


def _groups(data: object, by: By | None, metric: Metric | None, min_size: float | None) -> Groups:
    """The groups that are compared, with what was left out."""
    if isinstance(data, Finding):
        if by is not None or metric is not None or min_size is not None:
            raise InputError("by, metric, min_size", "go with rows, but a result was given", "Leave them out.")
        return Groups(data.groups, (), data.excluded, data.dropped, data.by, data.readout)
    if is_rows(data):
        return measured(data, by, [] if metric is None else [metric], min_size, Calibrated(), 0.0, 0)[0]
    return groups_of(data, by, metric, min_size, Calibrated(), 0.0)


def checked_adverse(adverse: Any) -> Adverse | None:
    """The harmful direction, if one was given."""
    if adverse is None:
        return None
    made: Adverse = checks.choice(  # type: ignore[assignment]
        "adverse", adverse, ("low", "high"), "Use 'low' where low values are harmful, or 'high'."
    )
    return made


def checked_gap(name: str, gap: Any, *, ratio: bool) -> float:
    """A gap that can be asked about."""
    if ratio:
        problem, remedy = "must be a ratio between 0 and 1", "0.8 is the four-fifths rule; above the overall, 1/0.8."
        return checks.number(name, gap, problem, remedy, low=0, high=1, ends="()")
    remedy = "Give it in the units of the metric: 0.02 is two points of a rate."
    return checks.number(name, gap, "must be a number, 0 or more", remedy, low=0)


def _gaps(gap: Any, estimates: Estimates, *, ratio: bool) -> tuple[float, ...]:
    """The gap of each effect."""
    dims = estimates.dims
    several = isinstance(gap, list | tuple) or (isinstance(gap, np.ndarray) and gap.ndim == 1)
    if several and len(gap) != dims:
        effects = f"there {'is one effect' if dims == 1 else f'are {dims} effects'}"
        raise InputError(f"gap={shorten(gap)}", effects, "Give one gap for each.")
    alike = len(set(estimates.scales)) == 1 and estimates.scales[0].is_percent
    if not several and dims > 1 and not alike and not ratio:
        problem = f"cannot mean the same for {' and '.join(estimates.parts)}"
        raise InputError(f"gap={shorten(gap)}", problem, f"Give {dims} gaps, one for each.")
    made = [checked_gap("gap", one, ratio=ratio) for one in (list(gap) if several else [gap] * dims)]
    for one, scale in zip(made, estimates.scales, strict=True):
        if one >= scale.largest_gap(upwards=True):
            raise InputError(f"gap={one:g}", "rates differ by less than 1 in any case", "0.02 is two points.")
    return tuple(made)


def _place(against: Label, estimates: Estimates, excluded: Sequence[Excluded]) -> int | str:
    """What groups are compared with: "overall", "all pairs", or the place of a reference group."""
    if isinstance(against, str) and against in (OVERALL, ALL_PAIRS):
        return against
    names = [name_of(key) for key in estimates.keys]
    place = -1
    if isinstance(against, str | int | float | tuple) or hasattr(against, "lower"):
        place = match([key_of(against)], estimates.keys, "against")[0]
    if place < 0 and isinstance(against, str) and names.count(against) == 1:
        place = names.index(against)
    if place < 0:
        for left in excluded:
            if left.label == against or name_of(left.label) == against:
                problem = f"was left out ({left.reason})"
                raise InputError(f"against={shorten(against)}", problem, "Name another group, or give min_size.")
        remedy = did_you_mean(against, [OVERALL, ALL_PAIRS, *names])
        raise InputError(f"against={shorten(against)}", "is no group, nor 'overall' or 'all pairs'", remedy)
    return place


def _check_ratio(effects: Sequence[OneEffect], how: _Question) -> None:
    """Refuse ratios of effects that are not clearly above zero."""
    remedy = "Leave ratio out: differences need no such thing."
    for effect in effects:
        if isinstance(effect.scale, LogRatio):
            problem = "a lift is a ratio already, and one of lifts means nothing near zero"
            raise InputError("ratio=True", problem, remedy)
        lowest = float(effect.shown.min())
        if lowest < 0 or (lowest == 0 and not effect.scale.is_share):
            raise InputError("ratio=True", f"needs effects above zero, and the lowest is {lowest:g}", remedy)
        if how.is_pairs:
            continue
        least = effect.of_all(how.alpha / 2).lower[0]
        if not least > 0:
            what = "the overall" if how.reference is None else "the reference"
            problem = f"{what}, {effect.overall:g}, is not clearly above zero"
            raise InputError("ratio=True", problem, remedy)


def shares_of(estimates: Estimates, readout: Readout | None) -> tuple[FloatArray, bool]:
    """The share of each group in the overall, (K, d), and whether it is that of its precision for want of sizes."""
    columns, is_precision = [], False
    given = None if readout is None or readout.mass is None else readout.mass.reshape(len(estimates), -1)
    for i, scale in enumerate(estimates.scales):
        errors = estimates.errors[:, i]
        mass = None if given is None else given[:, i]
        if mass is None or not np.all(np.isfinite(mass) & (mass > 0)):  # denominators can be negative
            mass = scale.mass(errors) if scale.is_share else estimates.n
        if mass is None:
            own, dof = estimates.own[:, i], estimates.own_dof
            mass, is_precision = (own.min() / true_scales(own, dof)) ** 2, True
        columns.append(mass / mass.sum())
    return np.column_stack(columns), is_precision


# ----------------------------------------------------------------------------------------------------- what is asked


class _Compared(NamedTuple):
    """One effect of the groups: distances with simultaneous intervals, one-sided bounds, and what follows."""

    interval: Interval
    bound: FloatArray
    within: BoolArray
    differs: BoolArray
    other: IntArray | None


class _Question(NamedTuple):
    """What is asked of the groups."""

    against: int | str
    gaps: tuple[float, ...]
    ratio: bool
    adverse: Adverse | None
    alpha: float

    @property
    def reference(self) -> int | None:
        """The place of the reference group, if there is one."""
        return self.against if isinstance(self.against, int) else None

    @property
    def is_pairs(self) -> bool:
        """Whether all pairs are compared."""
        return self.against == ALL_PAIRS

    def limit(self, part: int) -> float:
        """The gap of an effect as a distance, which ratios count from 1 up."""
        return 1 / self.gaps[part] if self.ratio else self.gaps[part]

    def compared(self, effect: OneEffect, part: int, tail: float) -> _Compared:
        """One effect of the groups, with the chance `tail` beyond each end of the simultaneous intervals."""
        limit, other = self.limit(part), None
        if self.is_pairs:
            together = farthest(effect, tail, limit, as_ratio=self.ratio)
            interval, apart, other = together
            alone = farthest(effect, self.alpha, limit, as_ratio=self.ratio).distances
        else:
            interval, apart = self._against(effect, tail)
            alone = self._against(effect, self.alpha)[1]
        return _Compared(interval, alone.far, apart.far <= limit, apart.near > limit, other)

    def _against(self, effect: OneEffect, tail: float) -> tuple[Interval, Distances]:
        if self.reference is None:
            interval = effect.against_overall(tail, as_ratio=self.ratio)
        else:
            interval = effect.against_group(self.reference, tail, as_ratio=self.ratio)
        return interval, distances(interval, self.adverse, as_ratio=self.ratio)

    def shown(self, distance: FloatArray) -> FloatArray:
        """Distances as gaps: of ratios the one below 1."""
        return np.asarray(1 / np.maximum(distance, 1.0) if self.ratio else np.maximum(distance, 0.0))


def _certificate(
    groups: Groups,
    estimates: Estimates,
    how: _Question,
    found: Sequence[_Compared],
    critical: float,
    seed: int,
    level: Sequence[float],
    *,
    is_precision: bool,
) -> Certificate:
    """The certificate that follows from the comparisons of every effect."""
    labels = labels_of(estimates.keys)
    places = np.array([i for i in range(len(estimates)) if i != how.reference])
    ends = [int(places[np.argmax(one.bound[places])]) for one in found]
    bounds = [float(one.bound[place]) for one, place in zip(found, ends, strict=True)]
    all_within = all(bound <= how.limit(i) for i, bound in enumerate(bounds))
    standings = tuple(_standings(estimates, how, found, places, all_within=all_within))
    verdict: Verdict = "certified" if all_within and not groups.excluded else "cannot tell"
    if any(one.status == "differs" for one in standings):
        verdict = "differs"
    return Certificate(
        verdict,
        plain(how.gaps),
        plain(how.shown(np.array(bounds)).tolist()),
        plain([labels[place] for place in ends]),
        how.against if isinstance(how.against, str) else name_of(labels[how.against]),
        None if how.is_pairs else plain(level),
        how.ratio,
        how.adverse,
        how.alpha,
        critical,
        standings,
        groups.excluded,
        tuple(_notes(groups, how, is_precision=is_precision)),
        estimates.measure,
        estimates.attributes,
        estimates.parts,
        tuple(scale.is_percent for scale in estimates.scales),
        seed,
    )


def _standings(
    estimates: Estimates, how: _Question, found: Sequence[_Compared], places: IntArray, *, all_within: bool
) -> Iterator[Standing]:
    """Where each group stands."""
    labels = labels_of(estimates.keys)
    differs = np.any([one.differs for one in found], axis=0)[places]
    within = np.all([one.within for one in found], axis=0)[places] | all_within
    words: list[Status] = ["cannot tell", "within", "differs"]
    status = [words[i] for i in np.where(differs, 2, np.where(within, 1, 0)).tolist()]
    bounds = [how.shown(one.bound) for one in found]
    columns = [list(estimates.shown.T), *([one.interval[i] for one in found] for i in range(3)), bounds]
    numbers = [_plain_rows(several, places) for several in columns]
    others: list[Any] = [None] * places.size
    if how.is_pairs:
        partners = [[labels[i] for i in one.other[places].tolist()] for one in found if one.other is not None]
        others = [plain(row) for row in zip(*partners, strict=True)]
    for place, *values in zip(places.tolist(), *numbers, status, others, strict=True):
        yield Standing(labels[place], *values)


def _plain_rows(columns: Sequence[FloatArray], places: IntArray) -> list[Any]:
    """A number for each of some groups, or a tuple of several effects."""
    if len(columns) == 1:
        numbers: list[Any] = columns[0][places].tolist()
        return numbers
    return list(zip(*(column[places].tolist() for column in columns), strict=True))


def _notes(groups: Groups, how: _Question, *, is_precision: bool) -> Iterator[str]:
    """What a reader must know beside the table."""
    yield (
        "The claim about all groups rests on the farthest one's own bound, which needs no correction for their number; "
        "intervals and claims about single groups hold for all groups together."
    )
    if is_precision and how.against == OVERALL:
        yield "Sizes of the groups are not known: the overall weighs them by their precision."
    if groups.readout is not None:
        yield from groups.readout.warnings
    for reason, count in groups.dropped.items():
        yield f"Left out: {count:,} {reason}."
    unit = counted(groups.comparison, groups.readout)
    yield from left_out_words(groups.comparison, groups.excluded, unit)
