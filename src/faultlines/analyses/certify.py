"""Certificates: that no group is farther than a gap from the overall, from a reference, or from another.

Two statements, each with an error of its own at most α. That *all* groups are within the gap is an intersection-union
test: if one group is farther away, already its own one-sided test says otherwise with probability 1 − α, so that none
of the tests needs a correction for their number, and the largest of the one-sided bounds bounds the farthest of all
groups. What is said of single groups, that one is within the gap or differs by more, holds for all of them together: by
intervals that are simultaneous under the true correlation of the comparisons.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from scipy.special import ndtr, ndtri

from faultlines import checks
from faultlines.analyses.contrasts import (
    BestTails,
    Distances,
    Interval,
    OneEffect,
    against_best,
    at_most_below_best,
    best_tails,
    correlation_of,
    critical_alone,
    critical_of,
    distances,
    effects_of,
    farthest,
    natural_errors,
)
from faultlines.analyses.groups import Groups, groups_from, with_value_in_all_rows
from faultlines.analyses.missing import (
    PossibleRates,
    PossibleShifts,
    Reference,
    farthest_from_groups,
    farthest_from_overall,
    farthest_from_value,
    is_boundable,
    plain_mean,
    possible_by_group,
    possible_rates,
    possible_shifts,
    unknown_counts,
    unknown_keys,
)
from faultlines.core.distributions import shrink_scales
from faultlines.core.normal import as_comparison
from faultlines.errors import InputError, NoGroupsError, did_you_mean
from faultlines.estimates.estimates import Estimates, Excluded, plain
from faultlines.estimates.labels import Label, Margin, key_of, labels_of, margins_of, match, name_of, naming
from faultlines.estimates.scales import LogRatio
from faultlines.formats import members
from faultlines.metrics.base import Metric
from faultlines.metrics.names import Traits, traits_by_effect
from faultlines.metrics.readout import Readout
from faultlines.metrics.table import Adverse
from faultlines.metrics.variances import is_binary
from faultlines.results.certificate import (
    ALL_PAIRS,
    DIRECTIONS,
    HIGHEST,
    LOWEST,
    OVERALL,
    Certificate,
    CertifiedGroup,
    MismatchChoice,
    MissingChoice,
    MissingTreatment,
    Status,
    UnknownChoice,
    Verdict,
)
from faultlines.results.clustering import Clustering, counted
from faultlines.results.collection import Collection
from faultlines.rows.keys import By
from faultlines.types import BoolArray, FloatArray, IntArray

_LISTED = 56  # characters of a list of groups
_MOST_IN_PAIRS = 5_000  # groups that are compared with each other
_NAMED = (OVERALL, HIGHEST, LOWEST, ALL_PAIRS)
DEFAULT_BEST: dict[Adverse | None, str] = {None: HIGHEST, "low": HIGHEST, "high": LOWEST}
AUTO = "auto"
_HALF = 0.5  # a gap above it is meant as a ratio: 0.8 is the four-fifths rule
ANY = "any"  # stands for all levels of an attribute that a margin does not have


def certify(
    data: object,
    by: By | None = None,
    metric: Metric | None = None,
    *,
    gap: float | Sequence[float],
    against: Label | None = None,
    ratio: bool = False,
    adverse: Adverse | Literal["auto"] | Sequence[Adverse | None] | None = "auto",
    margins: bool = False,
    alpha: float = 0.05,
    min_size: float | None = None,
    missing: MissingChoice = "bounds",
    unknown: UnknownChoice | None = None,
    mismatch: MismatchChoice = "inconclusive",
    seed: int = 0,
) -> Certificate:
    """Certify that no group is farther than a gap from the overall, the best group, or another reference?

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
        against: ``"overall"`` (the default); ``"highest"`` or ``"lowest"``: the best group, whichever that is in truth
            (the default with ``ratio=True``); ``"all pairs"``: every group with every other; the label of a reference
            group; or a number, a fixed value. ``against=0`` asks of an experiment, or of two models compared by
            `fl.paired`, that no group loses more than the gap (non-inferiority); ``gap=0`` asks for harm itself. A
            group whose label is a number is named by its text: ``against="0"``.
        ratio: Compare ratios, not differences: effects must be above zero. Without `against` that is with the highest
            group, as the four-fifths rule has it, or with the lowest where high values are harmful.
        adverse: ``"low"`` where only groups below the reference count, ``"high"`` for those above, None for both;
            several effects can have one each. ``"auto"``: as the metric has it: low selection, true positive and true
            negative rates, accuracy, precision, F1 and AUC are harmful, and high false positive, false negative and
            error rates, losses and errors; of a change between two models likewise. It is both for what is neutral or
            not known to be harmful: means, calibration, differences and lifts of experiments, plain estimates.
        margins: For groups by two or more attributes: certify the levels of each attribute, of their combinations and
            the cells at once, "no sex, no race and no combination". Cells within the gap have margins within it, so
            that passing says the same without; but a margin can be shown to be beyond the gap where no cell can.
            Margins of rows are measured anew, one scan for each.
        alpha: The accepted probability of passing wrongly, and that of failing wrongly.
        min_size: As for `fl.cluster`.
        missing: ``"bounds"``: it passes only if it would whatever the missing values are. That is computed for rates
            (true positive rates and the like too), and for other metrics that have a lowest and a highest value (F1,
            AUC, the change of a rate). Missing values of means, differences and lifts are taken to lie between the
            lowest and the highest value at hand. These, and what cannot be bounded at all, do not pass where more than
            5% of all rows, or more than 20% of a group and at least five, lack a value. ``"ignore"``: rows with
            missing values are taken to be like the others, and the result says so.
        unknown: What becomes of rows with a missing attribute. ``"bounds"``: they may belong to any group that has
            their other attributes (rates only; the default there, unless ``missing="ignore"``). ``"category"``: they
            are a group of their own; without having been asked for, that does not pass where more than 5% of all rows
            lack an attribute. ``"exclude"``: they are excluded, and counted.
        mismatch: Of experiments with a sample ratio mismatch. ``"inconclusive"``: nothing passes beside one, for lost
            units may be unlike the others. ``"ignore"``: it is said, and the verdict goes by effects alone.
        seed: Of the draws behind the simultaneous intervals.

    Returns:
        The verdict, the gap that can be certified, and where every group is.

    Raises:
        InputError: If something given cannot be used; the message names the parameter, the value and the remedy.

    Example:
        >>> import faultlines as fl
        >>> rates = fl.binomial([480, 500, 510], 1000, ["DE", "FR", "IT"])
        >>> certificate = fl.certify(rates, gap=0.06)
        >>> certificate.verdict, round(certificate.certifiable, 3)
        ('passed', 0.038)
        >>> fl.certify(rates, gap=0.8, ratio=True).against
        'highest'
        >>> lifts = fl.Estimates([0.010, 0.004, 0.020], [0.004, 0.003, 0.006], ["DE", "FR", "IT"])
        >>> fl.certify(lifts, gap=0.01, against=0, adverse="low").verdict
        'passed'
    """
    missing, unknown, mismatch = checked_missing(missing), checked_unknown(unknown), checked_mismatch(mismatch)
    alpha, seed, ratio = checks.alpha(alpha), checks.seed(seed), checks.flag("ratio", ratio)
    checked_adverse(adverse)
    groups = _groups(data, by, metric, min_size)
    treat = partial(_treat_missing, data=data, metric=metric, missing=missing, unknown=unknown)
    ask = partial(_certify, gap=gap, against=against, ratio=ratio, adverse=adverse, alpha=alpha, seed=seed)
    stops = mismatch == "inconclusive" and _has_mismatch(groups)
    if not checks.flag("margins", margins):
        return _stopped(ask(*treat(groups)), stops=stops)
    listed = _margins(groups, against)
    certificates = [
        ask(*treat(_of_margin(data, groups, margin, metric, min_size)), level=alpha * margin.share) for margin in listed
    ]
    return _stopped(_together(certificates, listed, groups.comparison.attributes), stops=stops)


def _certify(
    groups: Groups,
    absent: _Absent,
    *,
    gap: Any,
    against: Any,
    ratio: bool,
    adverse: Any,
    alpha: float,
    seed: int,
    level: float | None = None,
) -> Certificate:
    """The certificate of some groups; what is said of single ones has the probability `level` of being wrong."""
    estimates = groups.comparison.estimates
    if estimates is None:
        raise InputError.unsupported("data", "is a comparison without estimates", "Give Similarity(…, estimate=…).")
    extents = extents_of(estimates, groups.readout)
    gaps = _gaps(gap, estimates, extents, ratio=ratio)
    question = _question(against, adverse, estimates, groups.excluded, gaps, alpha, ratio=ratio)
    if len(estimates) < 2 and not isinstance(question.against, float):
        raise _one_group_error(groups)
    share, by_precision = shares_of(estimates, groups.readout)
    if isinstance(question.against, Place):
        share = np.zeros(share.shape)
        share[question.against.place] = 1.0
    effects = effects_of(estimates, share, groups.readout)
    if ratio:
        _check_ratio(effects, question)
    _check_question(question, estimates)
    _check_unit(question, effects)
    _check_room(question, effects, extents, absent)
    tails = _tails(estimates, question, share, alpha if level is None else level, seed)
    contrasts = [question.contrast(effect, i, tails) for i, effect in enumerate(effects)]
    widened = [_widen(c, i, question, absent, tails.within) for i, c in enumerate(contrasts)]
    reference = [question.reference_value(effect) for effect in effects]
    critical = float(-ndtri(tails.beyond))
    absent = absent._replace(certifiable=_certifiable(question, contrasts))
    return _certificate(
        groups, estimates, question, widened, critical, seed, reference, absent, by_precision=by_precision
    )


# ------------------------------------------------------------------------------------------------------ what is given


def _groups(data: object, by: By | None, metric: Metric | None, min_size: float | None) -> Groups:
    """The groups that are compared, with what was excluded."""
    if isinstance(data, Collection):
        problem = "holds several results"
        remedy = "Use audit.certify(…) of an audit, or certify(audit[NAME], …)."
        raise InputError.wrong_type("data", problem, remedy)
    if isinstance(data, Clustering):
        if by is not None or metric is not None or min_size is not None:
            raise InputError.conflict("by, metric, min_size", "apply to rows, not to results", "Leave them out.")
        return Groups(data.groups, (), data.excluded, data.dropped, data.by, data.readout)
    groups = groups_from(data, by, [] if metric is None else [metric], min_size=min_size)[0]
    return groups if metric is None else with_value_in_all_rows(groups, data, metric)


def checked_adverse(adverse: Any) -> None:
    """Refuse what is no direction, nor one for each effect."""
    remedy = "Use 'low' where low values are harmful, 'high', or 'auto' for what the metric says."
    if isinstance(adverse, list | tuple):
        for side in adverse:
            if side is not None:
                checks.choice("adverse", side, ("low", "high"), "Use 'low', 'high' or None for each effect.")
    elif adverse is not None:
        checks.choice("adverse", adverse, (AUTO, "low", "high"), remedy)


def _traits(estimates: Estimates) -> tuple[Traits, ...]:
    """What is known of each effect."""
    return traits_by_effect(estimates.recipe, estimates.dims)


def _sides(adverse: Any, estimates: Estimates) -> tuple[Adverse | None, ...]:
    """The harmful direction of each effect: as given, or as the metric has it."""
    dims, names = estimates.dims, estimates.parts or (estimates.metric,)
    directions = tuple(traits.adverse for traits in _traits(estimates))
    if adverse == AUTO:
        return directions
    if isinstance(adverse, list | tuple):
        if len(adverse) != dims:
            effects = f"there {'is one effect' if dims == 1 else f'are {dims} effects'}"
            raise InputError.mismatch("adverse", effects, "Give one direction for each.", adverse, form="clause")
        return tuple(adverse)
    # One direction for several effects that harm in different ones would call a high error rate harmless.
    other = [name for name, side in zip(names, directions, strict=True) if side not in (None, adverse)]
    if dims > 1 and adverse is not None and other:
        problem = f"is not the harmful direction of {other[0]}"
        remedy = "Leave it out, and each metric has its own; or give one for each effect."
        raise InputError.conflict("adverse", problem, remedy, adverse)
    return (adverse,) * dims


def check_shared_direction(adverse: Any, several: Sequence[Estimates], against: Any = None) -> None:
    """Refuse one direction for several metrics that harm in different ones: a high error rate would count as harmless.

    A single metric may be asked about in the other direction: that is a choice, not an oversight. Likewise the highest
    group is the best by some metrics, and the worst by others.
    """
    if len({estimates.metric for estimates in several}) < 2:
        return
    known = {traits.adverse for estimates in several for traits in _traits(estimates)} - {None}
    if adverse == AUTO and against in (HIGHEST, LOWEST) and len(known) > 1:
        problem = "is the best group by some of the metrics, and the worst by others"
        raise InputError.conflict("against", problem, "Certify these metrics separately.", against)
    if adverse not in ("low", "high"):
        return
    for estimates in several:
        if any(traits.adverse not in (None, adverse) for traits in _traits(estimates)):
            problem = f"is not the harmful direction of {estimates.metric}"
            raise InputError.conflict("adverse", problem, "Leave it out, and each metric has its own.", adverse)


def checked_gap(name: str, gap: Any, *, ratio: bool) -> float:
    """A gap that can be asked about."""
    if ratio:
        problem, remedy = (
            "must be a ratio between 0 and 1",
            "0.8 is the four-fifths rule: no group below 0.8 × the highest.",
        )
        return checks.number(name, gap, problem, remedy, low=0, high=1, ends="()")
    remedy = "Give it in the units of the metric: 0.02 is two points of a rate."
    return checks.number(name, gap, "must be a number, 0 or more", remedy, low=0)


def _gaps(gap: Any, estimates: Estimates, extents: Sequence[tuple[float, float]], *, ratio: bool) -> tuple[float, ...]:
    """The gap of each effect."""
    dims = estimates.dims
    several = isinstance(gap, list | tuple) or (isinstance(gap, np.ndarray) and gap.ndim == 1)
    if several and len(gap) != dims:
        effects = f"there {'is one effect' if dims == 1 else f'are {dims} effects'}"
        raise InputError.mismatch("gap", effects, "Give one gap for each.", gap, form="clause")
    same_unit = len(set(estimates.scales)) == 1 and estimates.scales[0].is_percent
    if not several and dims > 1 and not same_unit and not ratio:
        problem = f"cannot mean the same for {' and '.join(estimates.parts)}"
        raise InputError.mismatch("gap", problem, f"Give {dims} gaps, one for each.", gap)
    gaps = [checked_gap("gap", size, ratio=ratio) for size in (list(gap) if several else [gap] * dims)]
    for size, (low, high) in zip(gaps, extents, strict=True):
        if not ratio and size >= high:  # of a difference of two rates that is 1, too: nobody means more by a gap
            raise _too_wide(size, "", high if low < 0 else high - low)
    return tuple(gaps)


def _too_wide(gap: float, where: str, room: float) -> InputError:
    """A gap that nothing can exceed: meant in per cent, or as a ratio."""
    remedy, settings = f"Give a gap below {room:.3g}.", dict[str, object]()
    if gap >= 1:
        remedy, settings = _in_points(gap)
    elif gap > _HALF:
        remedy, settings = f"For a ratio of at least {gap:g}, add {{ratio}}; two points are 0.02.", {"ratio": True}
    problem = f"cannot be exceeded: a group is at most {room:.3g} away{where}"
    return InputError.out_of_range("gap", problem, remedy, gap, settings=settings)


def _in_points(gap: float) -> tuple[str, dict[str, object]]:
    """The remedy for a gap in per cent, and what it sets."""
    return f"For {gap:g} {'point' if gap == 1 else 'points'}, use {{gap}}.", {"gap": round(gap / 100, 12)}


def extents_of(estimates: Estimates, readout: Readout | None) -> list[tuple[float, float]]:
    """The lowest and the highest value that each effect can have; infinite where it has none."""
    return [
        (0.0, 1.0)
        if (scale.is_share and scale.is_percent) or _is_mean_of_binary(readout)
        else (-1.0, 1.0)
        if scale.is_points
        else traits.extent
        for scale, traits in zip(estimates.scales, _traits(estimates), strict=True)
    ]


def _is_mean_of_binary(readout: Readout | None) -> bool:
    """Whether a mean is one of values that are 0 or 1."""
    if readout is None or readout.metric.recipe is None or readout.metric.recipe.name != "mean":
        return False
    moments, plain = readout.moments, readout.metric.unit is None and "w" not in readout.metric.inputs
    return plain and is_binary(moments.n[..., 0], moments.mean[..., 0], moments.cov[..., 0, 0])


def _check_unit(question: _Question, effects: Sequence[OneEffect]) -> None:
    """Refuse a gap of 100 points or more where no lift is near 100%: it was meant in per cent, and anything passes."""
    for effect, gap in zip(effects, question.gaps, strict=True):
        if effect.scale.is_percent and not question.ratio and gap >= 1 and np.abs(effect.shown).max() < 1:
            remedy, settings = _in_points(gap)
            problem = f"is {100 * gap:g} points, and no effect is beyond ±100%"
            raise InputError.out_of_range("gap", problem, remedy, gap, settings=settings)


def _check_room(
    question: _Question, effects: Sequence[OneEffect], extents: Sequence[tuple[float, float]], absent: _Absent
) -> None:
    """Refuse a gap that reaches from the reference to the end of what is possible: every group would be within it."""
    if question.ratio or question.is_pairs:
        return
    against = str(question.against)
    asked = zip(effects, question.gaps, question.adverse, extents, strict=True)
    for part, (effect, gap, side, (low, high)) in enumerate(asked):
        reference = question.reference_value(effect)
        least, most = _possible_reference(question, reference, part, absent)
        room = {"low": most - low, "high": high - least, None: max(most - low, high - least)}
        harmful = DIRECTIONS.get(against, side)
        if low != 0 or not gap or gap < room[harmful]:
            continue
        if room[harmful] <= 0:
            where = "below" if harmful == "low" else "above"
            problem = f"cannot be exceeded: the reference is {reference:.3g}, and no group can be {where} it"
            remedy = "Check which label counts as 1, and which rows have values."
            raise InputError.out_of_range("gap", problem, remedy, gap)
        missing = ", whatever is missing" if least < most else ""
        raise _too_wide(gap, f" from the reference, {reference:.3g}{missing}", room[harmful])


def _possible_reference(question: _Question, reference: float, part: int, absent: _Absent) -> tuple[float, float]:
    """The lowest and the highest value that what groups are compared with can have, whatever is missing."""
    if isinstance(question.against, float):
        return reference, reference
    if absent.rates is not None:
        if question.against == OVERALL:
            return absent.rates.overall(part)
        low, high = absent.rates.rates
        return float(np.nanmin(low[:, part])), float(np.nanmax(high[:, part]))
    if absent.shifts is not None:
        return reference - float(absent.shifts.down_overall[part]), reference + float(absent.shifts.up_overall[part])
    return reference, reference


class Place(NamedTuple):
    """A reference group, by its place."""

    place: int


def _question(
    against: Any,
    adverse: Any,
    estimates: Estimates,
    excluded: Sequence[Excluded],
    gaps: tuple[float, ...],
    alpha: float,
    *,
    ratio: bool,
) -> _Question:
    """What is asked, with what was left to the metric filled in."""
    sides = _sides(adverse, estimates)
    if against is None and ratio and len({DEFAULT_BEST[side] for side in sides}) > 1:
        problem = "must be given: the best is the highest of some effects and the lowest of others"
        raise InputError.missing("against", problem, "Use for example against='overall', or certify each on its own.")
    if against is None:
        against = DEFAULT_BEST[sides[0]] if ratio else OVERALL
    compared = _compared_with(against, estimates, excluded)
    if adverse == AUTO and compared == ALL_PAIRS:
        sides = (None,) * len(sides)
    if adverse == AUTO and isinstance(compared, str) and compared in DIRECTIONS:
        _check_end(compared, sides)
        sides = tuple(side if side == DIRECTIONS[compared] else None for side in sides)
    return _Question(compared, gaps, ratio, sides, alpha)


def _check_end(against: str, sides: Sequence[Adverse | None]) -> None:
    """Refuse to compare with the end that is worst, where it is known which values harm: all better ones would fail."""
    if all(side in (None, DIRECTIONS[against]) for side in sides):
        return
    other = LOWEST if against == HIGHEST else HIGHEST
    remedy, settings = "Use {against}, the best group.", {"against": other}
    if any(side == DIRECTIONS[against] for side in sides):
        remedy, settings = "Use {against}, or certify each effect on its own.", {"against": OVERALL}
    problem = f"is the worst group, not the best: {'high' if against == HIGHEST else 'low'} values are harmful"
    raise InputError.conflict("against", problem, remedy, against, settings=settings)


def _compared_with(against: Any, estimates: Estimates, excluded: Sequence[Excluded]) -> Place | float | str:
    """What groups are compared with: one of the named, a fixed value, or a reference group."""
    if isinstance(against, str) and against in _NAMED:
        return against
    names = [name_of(key) for key in estimates.keys]
    if isinstance(against, int | float | np.number) and not isinstance(against, bool):
        value = checks.number("against", against, "must be a finite number", "Use for example against=0.")
        is_label = match([key_of(against)], estimates.keys, "against")[0] >= 0
        # Labels are numbers by default, and zero is a value that effects are compared with; of rates it is not.
        if is_label and (value != 0 or any(scale.is_share for scale in estimates.scales)):
            remedy = f'Use against="{name_of(key_of(against))}" for the group.'
            raise InputError.ambiguous("against", "is a number, and the label of a group", remedy, against)
        return value
    place = match([key_of(against)], estimates.keys, "against")[0] if _can_be_label(against) else -1
    if place < 0 and isinstance(against, str) and names.count(against) == 1:
        place = names.index(against)
    if place < 0:
        for group in excluded:
            if group.label == against or name_of(group.label) == against:
                problem = f"was excluded ({group.reason})"
                raise InputError.not_found(
                    "against", problem, "Name another group, or give {min_size}.", against, settings={"min_size": ...}
                )
        remedy = did_you_mean(against, [*_NAMED, *names])
        problem = f"is neither a group nor one of {', '.join(map(repr, _NAMED))}"
        raise InputError.not_found("against", problem, remedy, against)
    return Place(place)


def _can_be_label(label: Any) -> bool:
    """Whether it can be compared with labels: an object of the user's may not even have a text."""
    try:
        hash(label)
        str(label)
    except Exception:
        return False
    return True


def _check_question(question: _Question, estimates: Estimates) -> None:
    """Refuse a harmful direction that has no meaning, and more groups than can be compared with each other."""
    against = question.against
    adverse = next((side for side in question.adverse if side is not None), None)
    if question.is_pairs and adverse is not None:
        raise InputError.conflict(
            "adverse", "of two groups either is the lower one", "Leave it out.", adverse, form="clause"
        )
    if isinstance(against, str) and against in DIRECTIONS and adverse not in (None, DIRECTIONS[against]):
        other = LOWEST if against == HIGHEST else HIGHEST
        problem = f"no group is {'above the highest' if against == HIGHEST else 'below the lowest'}"
        raise InputError.conflict("adverse", problem, f"Use against={other!r}.", adverse, form="clause")
    if (question.is_pairs or question.is_best) and len(estimates) > _MOST_IN_PAIRS:
        problem = f"of {len(estimates):,} groups are too many"
        raise InputError.unsupported("against", problem, "Compare with the overall.", against, form="clause")
    if isinstance(against, float):
        _check_value(against, question, estimates)


def _check_value(value: float, question: _Question, estimates: Estimates) -> None:
    """Refuse a value that no effect can have or be too far away from, and ratios to what is not above zero."""
    for low, high in extents_of(estimates, None):
        if not low <= value <= high:
            problem = f"is not possible: values are between {low:g} and {high:g}"
            remedy, settings = ("For {value}%, use {against}.", {"against": value / 100}) if value > 1 else ("", {})
            remedy = remedy.replace("{value}", f"{value:g}") or "Give a value between them."
            raise InputError.out_of_range("against", problem, remedy, value, settings=settings)
    if question.ratio and value <= 0:
        raise InputError.out_of_range("against", "must be above zero for ratios", "Leave ratio out.", value)
    for scale, gap, side in zip(estimates.scales, question.gaps, question.adverse, strict=True):
        low, high = (gap * value, value / gap) if question.ratio else (value - gap, value + gap)
        below, above = scale.is_share and low <= 0, scale.is_share and scale.is_percent and high >= 1
        if {"low": below, "high": above, None: below and above}[side]:
            problem = f"no rate is {'below' if side == 'low' else 'above' if side else 'beyond'} that by the gap"
            remedy = "Name a group by its text, or compare with 'overall' or 'highest'."
            raise InputError.out_of_range("against", problem, remedy, value, form="clause")


def _check_ratio(effects: Sequence[OneEffect], question: _Question) -> None:
    """Refuse ratios of effects that are not clearly above zero."""
    remedy = "Leave ratio out: differences need no such thing."
    for effect in effects:
        if isinstance(effect.scale, LogRatio):
            problem = "a lift is a ratio already, and one of lifts means nothing near zero"
            raise InputError.unsupported("ratio", problem, remedy, True, form="clause")
        lowest = float(effect.shown.min())
        if lowest < 0 or (lowest == 0 and not effect.scale.is_share):
            raise InputError.unsupported(
                "ratio", f"needs effects above zero, and the lowest is {lowest:g}", remedy, True
            )
        if question.is_pairs or question.against == LOWEST or isinstance(question.against, float):
            continue
        least = effect.of_all(question.alpha / 2).lower[0]
        if question.against == HIGHEST:
            least = effect.side(question.alpha / 2).lower.max()
        if not least > 0:
            named = question.against if isinstance(question.against, str) else "reference"
            what = f"the {named}"
            problem = f"{what}, {question.reference_value(effect):g}, is not clearly above zero"
            raise InputError.unsupported("ratio", problem, remedy, True, form="clause")


def shares_of(estimates: Estimates, readout: Readout | None) -> tuple[FloatArray, bool]:
    """The share of each group in the overall, (K, d), and whether it is that of its precision for want of sizes."""
    columns, by_precision = [], False
    masses = None if readout is None or readout.mass is None else readout.mass.reshape(len(estimates), -1)
    for i, scale in enumerate(estimates.scales):
        errors = estimates.errors[:, i]
        mass = None if masses is None else masses[:, i]
        if mass is None or not np.all(np.isfinite(mass) & (mass > 0)):  # denominators can be negative
            mass = scale.mass(errors) if scale.is_share else estimates.n
        if mass is None:
            own, dof = estimates.own[:, i], estimates.own_dof
            mass, by_precision = (own.min() / shrink_scales(own, dof)) ** 2, True
        columns.append(mass / mass.sum())
    return np.column_stack(columns), by_precision


# -------------------------------------------------------------------------------------------------- what is missing


class _Absent(NamedTuple):
    """How missing values and unknown attributes are treated, and what follows.

    Attributes:
        treatment: What was done about missing values.
        unknown: What was done about unknown attributes.
        rates: What rates could be, where that matters.
        blocks: Whether too much is missing for any pass.
        shifts: How far other effects could move.
        certifiable: The gap that could be certified if nothing were missing.
        needs_rows: Whether it could be bounded what is missing if the rows were given.
    """

    treatment: MissingTreatment
    unknown: UnknownChoice | None
    rates: PossibleRates | None
    blocks: bool
    shifts: PossibleShifts | None = None
    certifiable: Any = None
    needs_rows: bool = False


def checked_missing(missing: Any) -> MissingChoice:
    """What is to be done about missing values."""
    remedy = "Use 'bounds', or 'ignore' to take rows with missing values to be like the others."
    return cast("MissingChoice", checks.choice("missing", missing, ("bounds", "ignore"), remedy))


def checked_unknown(unknown: Any) -> UnknownChoice | None:
    """What is to be done about unknown attributes, if that was said."""
    if unknown is None:
        return None
    remedy = "Use 'bounds', 'category' or 'exclude'."
    return cast("UnknownChoice", checks.choice("unknown", unknown, ("exclude", "category", "bounds"), remedy))


def checked_mismatch(mismatch: Any) -> MismatchChoice:
    """What becomes of a pass beside a sample ratio mismatch."""
    remedy = "Use 'inconclusive', or 'ignore' to go by effects alone."
    return cast("MismatchChoice", checks.choice("mismatch", mismatch, ("inconclusive", "ignore"), remedy))


def _has_mismatch(groups: Groups) -> bool:
    """Whether arms are not divided as expected."""
    ratio = None if groups.readout is None else groups.readout.sample_ratio
    return ratio is not None and ratio.is_mismatch


def _stopped(certificate: Certificate, *, stops: bool) -> Certificate:
    """A certificate that does not pass beside a sample ratio mismatch; harm that is shown is still shown."""
    if not stops:
        return certificate
    verdict: Verdict = "failed" if certificate.verdict == "failed" else "inconclusive"
    return replace(certificate, verdict=verdict, mismatch=True)


def _treat_missing(
    groups: Groups, data: object, metric: Metric | None, missing: MissingChoice, unknown: UnknownChoice | None
) -> tuple[Groups, _Absent]:
    """The groups that are compared, and what missing values and unknown attributes may change."""
    estimates, readout = groups.comparison.estimates, groups.readout
    counts = None if readout is None else readout.missing
    rates = estimates is not None and is_boundable(estimates) and counts is not None
    is_unknown = unknown_keys(groups.comparison.keys)
    if unknown == "bounds" and not rates:
        problem = "needs rates from rows: other metrics could be anything"
        raise InputError.unsupported("unknown", problem, "Use 'category' or 'exclude'.", unknown)
    choice = unknown or ("bounds" if rates and missing == "bounds" else "category")
    treated = choice if is_unknown.any() else None
    rows = None if isinstance(data, Clustering) else data
    outside = None
    if treated in ("bounds", "exclude"):
        if (~is_unknown).sum() < 2:
            raise NoGroupsError("by", "fewer than two groups have all attributes", "Use unknown='category'.")
        if treated == "bounds":
            outside = unknown_counts(groups, rows, metric, is_unknown)
        readout = None if readout is None else readout.subset(~is_unknown)
        groups = groups._replace(comparison=groups.comparison.subset(~is_unknown), readout=readout)
    lacking = counts is not None and bool(counts.dropped.any())
    # Rows of unknown groups count against a pass as missing values do, unless the user said what becomes of them.
    unsaid = treated == "category" and unknown is None and missing == "bounds"
    blocks = unsaid and counts is not None and counts.lacks_many_groups
    if missing == "ignore" or not (lacking or outside):
        possible = possible_rates(groups, rows, metric, outside, lacking=False) if outside else None
        return groups, _Absent("ignore" if lacking else "none", treated, possible, blocks)
    possible = possible_rates(groups, rows, metric, outside, lacking=lacking)
    if possible is None:
        shifts = possible_shifts(groups, rows, metric) if lacking else None
        is_large = counts is not None and counts.is_large
        if shifts is not None and shifts.complete:
            by_values = shifts.values is not None
            treatment: MissingTreatment = "range" if by_values else "bounds"
            return groups, _Absent(treatment, treated, None, blocks or (by_values and is_large), shifts)
        needs_rows = rows is None and readout is not None and plain_mean(readout.metric) is not None
        return groups, _Absent("share", treated, None, blocks or is_large or needs_rows, shifts, needs_rows=needs_rows)
    return groups, _Absent("bounds" if lacking else "none", treated, possible, False)


def _widen(contrast: _Contrast, part: int, question: _Question, absent: _Absent, tail: float) -> _Contrast:
    """The same where missing values and unknown attributes could be anything."""
    rates = absent.rates
    if rates is None:
        return contrast if absent.shifts is None else _shift(contrast, part, question, absent.shifts)
    alone, together = (_farthest_possible(question, rates, part, level) for level in (question.alpha, tail))
    within = contrast.within & (together <= question.limit(part))
    return contrast._replace(bound=np.maximum(contrast.bound, alone), within=within)


def _shift(contrast: _Contrast, part: int, question: _Question, shifts: PossibleShifts) -> _Contrast:
    """The same where missing values could move effects that are not rates."""
    against, adverse = question.against, question.adverse[part]
    reference: Reference = "overall" if against == OVERALL else "any group"
    if isinstance(against, float | Place):
        reference = None if isinstance(against, float) else against.place
    if isinstance(against, str) and against in DIRECTIONS:
        adverse = DIRECTIONS[against]
    if question.ratio and shifts.down[:, part].any():  # of ratios only that they could be anything
        far = np.full(contrast.far.shape, np.inf)
        return contrast._replace(bound=far, far=far, within=np.zeros(far.shape, dtype=bool))
    bound, far = (shifts.widen(ends, part, adverse, reference) for ends in (contrast.bound, contrast.far))
    return contrast._replace(bound=bound, far=far, within=far <= question.limit(part))


def _farthest_possible(question: _Question, rates: PossibleRates, part: int, tail: float) -> FloatArray:
    """How far each group may be at most from what it is compared with."""
    against, adverse = question.against, question.adverse[part]
    if isinstance(against, float):
        return farthest_from_value(rates, part, tail, adverse, against, as_ratio=question.ratio)
    if against == OVERALL:
        return farthest_from_overall(rates, part, tail, adverse, as_ratio=question.ratio)
    others = np.array([against.place]) if isinstance(against, Place) else np.arange(rates.fewest.shape[0])
    if isinstance(against, str) and against in DIRECTIONS:
        adverse = DIRECTIONS[against]
    return farthest_from_groups(rates, part, tail, adverse, others, as_ratio=question.ratio)


def _certifiable(question: _Question, contrasts: Sequence[_Contrast]) -> Any:
    """The gap that can be certified, of every effect."""
    reference = question.against.place if isinstance(question.against, Place) else None
    places = [i for i in range(contrasts[0].bound.size) if i != reference]
    bounds = np.array([contrast.bound[places].max() for contrast in contrasts])
    return plain(question.as_gaps(bounds).tolist())


# ------------------------------------------------------------------------------------------------------------ margins


def _one_group_error(groups: Groups) -> NoGroupsError:
    """The error of a single group; where others were excluded, these are what is missing."""
    if not groups.excluded:
        return NoGroupsError("data", "has one group, and nothing to compare it with", "Name finer groups.")
    names = members([group.label for group in groups.excluded], naming(groups.comparison.attributes), _LISTED)
    reason = groups.excluded[0].reason if len({group.reason for group in groups.excluded}) == 1 else ""
    remedy = f"Use coarser groups, or complete the data of the excluded ones ({reason or 'several reasons'}): {names}."
    return NoGroupsError("data", "has only one group that can be measured, and nothing to compare it with", remedy)


def _margins(groups: Groups, against: Any) -> tuple[Margin, ...]:
    """The margins of some cells, the cells last."""
    attributes = groups.comparison.attributes
    if len(attributes) < 2:
        raise InputError.unsupported(
            "margins", "needs two attributes or more", "Name more attributes, or leave it out.", True
        )
    if against is not None and not (isinstance(against, int | float) or against in _NAMED):
        remedy = "Compare with 'overall', 'highest', 'lowest' or 'all pairs', or leave margins out."
        raise InputError.conflict("against", "is a group of one margin only", remedy, against)
    if len(groups.comparison) < 2:
        raise _one_group_error(groups)
    columns = [[name_of((level,)) for level in column] for column in zip(*groups.comparison.keys, strict=True)]
    for attribute, column in zip(attributes, columns, strict=True):
        if ANY in column:
            problem = f"stands for all levels of an attribute, and is a level of {attribute!r}"
            raise InputError.ambiguous("margins", problem, "Rename that level.", ANY)
    codes = [np.unique(column, return_inverse=True)[1] for column in columns]
    return margins_of(np.stack(codes, axis=1))


def _of_margin(data: object, groups: Groups, margin: Margin, metric: Metric | None, min_size: float | None) -> Groups:
    """The levels of a margin as groups: of rows measured anew, of estimates as means of their cells."""
    if margin.is_cells:
        return groups
    if metric is not None:
        by = [groups.by[a] for a in margin.attributes]
        return groups_from(data, by, [metric], min_size=min_size)[0]
    estimates = groups.comparison.estimates
    if estimates is None or estimates.dims > 1:
        raise InputError.unsupported("margins", "needs one effect for each group, or rows", "Leave it out.", True)
    return Groups(as_comparison(_pooled(groups, estimates, margin)), (), (), {}, groups.by)


def _pooled(groups: Groups, estimates: Estimates, margin: Margin) -> Estimates:
    """The levels of a margin as means of their cells, weighted as in the overall."""
    share = shares_of(estimates, groups.readout)[0][:, 0]
    weight = (margin.codes == np.arange(margin.levels)[:, None]) * share
    weight = weight / weight.sum(axis=1, keepdims=True)
    errors, scale = natural_errors(estimates)[:, 0], estimates.scales[0]
    together = correlation_of(estimates)
    covariance = np.diag(errors**2) if together is None else together * errors * errors[:, None]
    covariance = weight @ covariance @ weight.T
    means, variance = weight @ estimates.shown[:, 0], np.diagonal(covariance)
    natural = np.clip(means, 1e-9, 1 - 1e-9) if scale.is_share and scale.is_percent else np.maximum(means, 1e-300)
    on_scale = scale.place(means)
    se = scale.effective(natural, variance) if scale.is_share else np.sqrt(variance) / scale.slope(on_scale)
    first = [int(np.argmax(margin.codes == level)) for level in range(margin.levels)]
    labels = [tuple(estimates.keys[place][a] for a in margin.attributes) for place in first]
    n = None if estimates.n is None else np.bincount(margin.codes, estimates.n)
    return Estimates(
        on_scale,
        se if together is None else None,
        labels if len(margin.attributes) > 1 else [label[0] for label in labels],
        n,
        attributes=[groups.comparison.attributes[a] for a in margin.attributes],
        natural=means,
        scale=scale,
        metric=estimates.metric,
        recipe=estimates.recipe,
        covariance=None if together is None else covariance / np.outer(scale.slope(on_scale), scale.slope(on_scale)),
    )


def _together(certificates: Sequence[Certificate], margins: Sequence[Margin], names: Sequence[str]) -> Certificate:
    """One certificate of all margins: it passes where each does; single groups share the significance level."""
    cells = certificates[-1]
    several, groups = bool(cells.parts), list[CertifiedGroup]()
    for certificate, margin in zip(certificates, margins, strict=True):

        def whole(label: Any, margin: Margin = margin) -> Any:
            key = key_of(label)  # that of a cell is whole, also where fewer attributes make the cells
            levels = dict(zip(margin.attributes, key, strict=True)) if len(key) < len(names) else dict(enumerate(key))
            return tuple(levels.get(a, ANY) for a in range(len(names)))

        for group in certificate.groups:
            other = group.other
            if other is not None:
                other = tuple(map(whole, other)) if several else whole(other)
            groups.append(replace(group, label=whole(group.label), other=other))
    verdicts = {certificate.verdict for certificate in certificates}
    verdict: Verdict = "failed" if "failed" in verdicts else "passed" if verdicts == {"passed"} else "inconclusive"
    pick = min if cells.ratio else max
    parts = range(len(cells.units))
    farthest = [pick(groups, key=lambda group, i=i: group.bound[i] if several else group.bound) for i in parts]  # type: ignore[misc]
    return replace(
        cells,
        verdict=verdict,
        groups=tuple(groups),
        excluded=cells.excluded,  # a level too small for a margin has cells that are too small
        certifiable=plain([group.bound[i] if several else group.bound for i, group in enumerate(farthest)]),
        farthest=plain([group.label for group in farthest]),
        critical=max(certificate.critical for certificate in certificates),
        margins=tuple(" × ".join(names[a] for a in margin.attributes) for margin in margins),
    )


# ----------------------------------------------------------------------------------------------------- what is asked


class _Contrast(NamedTuple):
    """One effect of the groups: distances with simultaneous intervals, one-sided bounds, and what follows."""

    interval: Interval
    bound: FloatArray
    far: FloatArray
    within: BoolArray
    beyond: BoolArray
    other: IntArray | None


class _Question(NamedTuple):
    """What is asked of the groups."""

    against: Place | float | str
    gaps: tuple[float, ...]
    ratio: bool
    adverse: tuple[Adverse | None, ...]
    alpha: float

    @property
    def is_pairs(self) -> bool:
        """Whether all pairs are compared."""
        return self.against == ALL_PAIRS

    @property
    def is_best(self) -> bool:
        """Whether groups are compared with the best of them, which the data choose."""
        return self.against in (HIGHEST, LOWEST)

    @property
    def sides(self) -> int:
        """2 where the intervals of some effect have two ends that must hold together."""
        return 1 if all(self.adverse) else 2

    def reference_value(self, effect: OneEffect) -> float:
        """What groups are compared with, in these data."""
        if isinstance(self.against, float):
            return self.against
        if self.is_best:
            return float(effect.shown.max() if self.against == HIGHEST else effect.shown.min())
        return effect.overall

    def limit(self, part: int) -> float:
        """The gap of an effect as a distance, which ratios count from 1 up."""
        return 1 / self.gaps[part] if self.ratio else self.gaps[part]

    def contrast(self, effect: OneEffect, part: int, tails: BestTails) -> _Contrast:
        """One effect of the groups, with these probabilities beyond each end of the simultaneous intervals."""
        limit, other, as_ratio = self.limit(part), None, self.ratio
        if self.is_best:
            highest = self.against == HIGHEST
            interval, _, other, _ = against_best(effect, tails, highest=highest, as_ratio=as_ratio)
            apart = distances(interval, DIRECTIONS[str(self.against)], as_ratio=as_ratio)
            bound = at_most_below_best(effect, self.alpha, highest=highest, as_ratio=as_ratio)
        elif self.is_pairs:
            interval, apart, other = farthest(effect, tails.beyond, limit, as_ratio=as_ratio)
            bound = farthest(effect, self.alpha, limit, as_ratio=as_ratio).distances.far
        else:
            interval, apart = self._against(effect, part, tails.beyond)
            bound = self._against(effect, part, self.alpha)[1].far
        return _Contrast(interval, bound, apart.far, apart.far <= limit, apart.near > limit, other)

    def _against(self, effect: OneEffect, part: int, tail: float) -> tuple[Interval, Distances]:
        if isinstance(self.against, float):
            interval = effect.against_value(self.against, tail, as_ratio=self.ratio)
        elif isinstance(self.against, Place):
            interval = effect.against_group(self.against.place, tail, as_ratio=self.ratio)
        else:
            interval = effect.against_overall(tail, as_ratio=self.ratio)
        return interval, distances(interval, self.adverse[part], as_ratio=self.ratio)

    def as_gaps(self, distance: FloatArray) -> FloatArray:
        """Distances as gaps: of ratios the one below 1."""
        return np.asarray(1 / np.maximum(distance, 1.0) if self.ratio else np.maximum(distance, 0.0))


def _tails(estimates: Estimates, question: _Question, share: FloatArray, alpha: float, seed: int) -> BestTails:
    """The probability beyond each end of an interval, with which all of them hold together."""
    sides = question.sides
    if question.is_best:
        return best_tails(estimates, alpha, seed, sides=sides)
    if isinstance(question.against, float):
        critical = critical_alone(estimates, alpha, seed, sides=sides)
    else:
        signs = np.array([-1.0 if side == "low" else 1.0 for side in question.adverse]) if sides == 1 else None
        critical = critical_of(estimates, None if question.is_pairs else share, alpha, seed, sides=sides, signs=signs)
    return BestTails(*[float(ndtr(-critical))] * 2)


def _certificate(
    groups: Groups,
    estimates: Estimates,
    question: _Question,
    contrasts: Sequence[_Contrast],
    critical: float,
    seed: int,
    reference: Sequence[float],
    absent: _Absent,
    *,
    by_precision: bool,
) -> Certificate:
    """The certificate that follows from the comparisons of every effect."""
    labels = labels_of(estimates.keys)
    reference_place = question.against.place if isinstance(question.against, Place) else None
    places = np.array([i for i in range(len(estimates)) if i != reference_place])
    ends = [int(places[np.argmax(contrast.bound[places])]) for contrast in contrasts]
    bounds = [float(contrast.bound[place]) for contrast, place in zip(contrasts, ends, strict=True)]
    all_within = all(bound <= question.limit(i) for i, bound in enumerate(bounds))
    certified = tuple(_certified_groups(estimates, question, contrasts, places, all_within=all_within))
    verdict: Verdict = "passed" if all_within and not groups.excluded and not absent.blocks else "inconclusive"
    if any(group.status == "beyond" for group in certified):
        verdict = "failed"
    return Certificate(
        verdict=verdict,
        gap=plain(question.gaps),
        certifiable=plain(question.as_gaps(np.array(bounds)).tolist()),
        farthest=plain([labels[place] for place in ends]),
        against=_named(question.against, labels),
        reference_value=None if question.is_pairs else plain(reference),
        ratio=question.ratio,
        adverse=plain(question.adverse),
        alpha=question.alpha,
        critical=critical,
        groups=certified,
        comparison=groups.comparison,
        excluded=groups.excluded,
        units=tuple(scale.unit for scale in estimates.scales),
        seed=seed,
        dropped=groups.dropped,
        missing_values=None if groups.readout is None else groups.readout.missing,
        missing=absent.treatment,
        unknown=absent.unknown,
        certifiable_ignoring=absent.certifiable,
        possible=None if absent.rates is None else possible_by_group(absent.rates),
        needs_rows=absent.needs_rows,
        missing_range=None if absent.shifts is None else absent.shifts.values,
        warnings=() if groups.readout is None else tuple(groups.readout.warnings),
        counted=counted(groups.comparison, groups.readout),
        by_precision=by_precision,
        averaged=not all(traits.averages for traits in _traits(estimates)),
        in_all_rows=_in_all_rows(groups.readout),
    )


def _in_all_rows(readout: Readout | None) -> Any:
    """The metric in all rows at once, where that is not the mean of the groups' values."""
    if readout is None or readout.in_all_rows is None:
        return None
    return plain(readout.in_all_rows.tolist())


def _named(against: Place | float | str, labels: Sequence[Label]) -> str | float:
    """What groups are compared with, as it was given; a group by its name."""
    return name_of(labels[against.place]) if isinstance(against, Place) else against


def _certified_groups(
    estimates: Estimates, question: _Question, contrasts: Sequence[_Contrast], places: IntArray, *, all_within: bool
) -> Iterator[CertifiedGroup]:
    """Where each group is."""
    labels = labels_of(estimates.keys)
    beyond = np.any([contrast.beyond for contrast in contrasts], axis=0)[places]
    within = np.all([contrast.within for contrast in contrasts], axis=0)[places] | all_within
    codes: list[Status] = ["inconclusive", "within", "beyond"]
    status = [codes[i] for i in np.where(beyond, 2, np.where(within, 1, 0)).tolist()]
    bounds = [question.as_gaps(contrast.bound) for contrast in contrasts]
    columns = [list(estimates.shown.T), *([contrast.interval[i] for contrast in contrasts] for i in range(3)), bounds]
    numbers = [_plain_rows(several, places) for several in columns]
    others: list[Any] = [None] * places.size
    if question.is_pairs or question.is_best:
        partners = [[labels[i] for i in c.other[places].tolist()] for c in contrasts if c.other is not None]
        others = [plain(row) for row in zip(*partners, strict=True)]
    for place, *values in zip(places.tolist(), *numbers, status, others, strict=True):
        yield CertifiedGroup(labels[place], *values)


def _plain_rows(columns: Sequence[FloatArray], places: IntArray) -> list[Any]:
    """A number for each of some groups, or a tuple of several effects."""
    if len(columns) == 1:
        numbers: list[Any] = columns[0][places].tolist()
        return numbers
    return list(zip(*(column[places].tolist() for column in columns), strict=True))
