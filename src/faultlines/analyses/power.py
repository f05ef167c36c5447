"""`fl.power`: what an experiment will be able to detect, or would have detected, by simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from faultlines import checks
from faultlines.analyses.certify import shares_of
from faultlines.analyses.contrasts import critical_of, effects_of
from faultlines.analyses.groups import groups_from
from faultlines.core.normal import CorrelatedNoise, Line, Plane, compare_effects
from faultlines.core.tree import count_clusters
from faultlines.errors import InputError, shorten
from faultlines.estimates.estimates import Estimates, plain
from faultlines.estimates.labels import Label, Range, labels_of, margins_of, match, name_of, part_of
from faultlines.estimates.scales import ANSCOMBE, IDENTITY, POINTS
from faultlines.estimates.validation import numbers
from faultlines.guarantees import resolve_guarantee
from faultlines.guarantees.base import Guarantee
from faultlines.guarantees.calibrated import Calibrated
from faultlines.guarantees.joint_test import JointTest, extract_effects
from faultlines.guarantees.margins import aggregate_effects
from faultlines.metrics.base import Metric
from faultlines.progress import progress
from faultlines.results.clustering import Clustering, numbered
from faultlines.results.power import DetectableDifference, DetectionLimit, Direction, Power
from faultlines.rows.keys import By
from faultlines.types import FloatArray, IntArray

_FOLLOWED = 200  # experiments that are followed to their clusters
_FOLLOWED_ALONG_MARGINS = 40  # of crossed attributes, where each takes some 0.1 s
_STEPS = 2  # in which the units needed are found where the scale is not straight
_HALVINGS = 12
_DOUBLINGS = 40
_DRAWN_AT_ONCE = 2**20  # random numbers of simulated experiments, 8 MB
_ROUGHLY = 0.03  # of a gap: precise enough for a sentence

_SIGNS: dict[Direction, float] = {"lower": -1.0, "higher": 1.0}  # harm first


def power(
    data: object,
    by: By | None = None,
    metric: Metric | None = None,
    *,
    gap: float | None = None,
    split: float | Sequence[Label] | npt.ArrayLike = 0.5,
    along: str | None = None,
    spread: float | None = None,
    baseline: float | None = None,
    arms: int = 2,
    shares: Sequence[float] | Mapping[Any, float] | None = None,
    control: object = None,
    treatment: object = None,
    per_day: float | None = None,
    margins: bool = True,
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    tolerance: float = 0.0,
    target: float = 0.8,
    runs: int = 1000,
    min_size: float | None = None,
    seed: int = 0,
) -> Power:
    """The probability of detecting a planned difference, the smallest one that is detected, and the users it takes.

    Args:
        data: Standard errors of the groups; with `spread` or `baseline`, sizes of the groups. Or the estimates, or the
            result, of an experiment that is over: their standard errors count (with `spread`, their sizes). Or its
            rows, as for `fl.cluster`, with `by` and `metric`.
        by: For rows: as for `fl.cluster`.
        metric: For rows: as for `fl.cluster`.
        gap: The difference asked about, in the units of the metric; below zero, for groups that are lower alone. Left
            out, only the smallest detectable is found. Of several effects, in each of them on its own.
        split: Which groups differ: the share of the groups that are apart by `gap`, chosen anew in every simulated
            experiment; or the labels of those groups; or one number per group, the planned effect in units of the gap
            (0, 0, 1, 2). With `along`, the share of the levels of that attribute, or their names.
        along: Of crossed attributes, the one along which groups differ: all groups of a level do.
        spread: Standard deviation of the metric between units; the standard errors then follow from the sizes.
        baseline: Or, for a rate, the rate that is expected: its spread follows from it.
        arms: With `spread` or `baseline`: 2 for an experiment, 1 for a plain mean or rate.
        shares: The shares of control and treatment, such as ``(0.9, 0.1)``, or of all arms by name, such as
            ``{"A": 0.5, "B": 0.3, "C": 0.2}``: sizes are then those of all of them. Default: one half each.
        control: Of arms by name, the control. Default: the first.
        treatment: Of arms by name, the one to be compared with it. Default: of two arms, the second.
        per_day: Units that come in on a day, in all groups together: `days` is then how long the experiment takes.
        margins: Of crossed attributes, test every margin, as `fl.cluster` does.
        alpha: Significance level.
        guarantee: See `fl.cluster`.
        tolerance: See `fl.cluster`.
        target: The probability with which the smallest gap shall be detected.
        runs: Simulated experiments behind each figure.
        min_size: For rows: as for `fl.cluster`.
        seed: Of the simulation.

    Returns:
        The figures, for groups that are lower and for groups that are higher.

    Raises:
        InputError: If the plan cannot be used, or no gap reaches the target.

    Example:
        >>> import faultlines as fl
        >>> 2 < fl.power([1.0] * 10, runs=200).minimum_detectable < 4
        True
        >>> plan = fl.power([5000] * 10, baseline=0.05, gap=0.01, per_day=4000, runs=200)
        >>> plan.verdict, plan.needed > 50_000, plan.days == plan.needed / 4000
        ('not enough', True, True)
    """
    alpha, seed, error_control = checks.alpha(alpha), checks.seed(seed), resolve_guarantee(guarantee)
    spread_of_arms = _Spread.checked(spread, baseline, arms, _two_shares(shares, control, treatment))
    estimates = _planned_estimates(_measure(data, by, metric, min_size), spread_of_arms)
    groups = compare_effects(estimates, tolerance)
    error_control.check(alpha, groups)
    runs = checks.runs(runs, 20, 1000)
    likely = (1 + alpha) / 2 if alpha >= 0.8 else 0.8
    problem = f"must lie between alpha={alpha:g} and 1"
    target = checks.number(
        "target", target, problem, "Use {target}.", low=alpha, high=1, ends="()", settings={"target": likely}
    )
    gap = None if gap is None else _checked_gap(gap, estimates)
    per_day = None if per_day is None else _checked_per_day(per_day, gap, estimates)
    pattern, planned = _pattern(split, estimates) if along is None else _pattern_along(along, split, estimates)
    trial = Trial(groups, pattern, error_control, alpha, tolerance, seed, margins=checks.flag("margins", margins))
    steps = sum(1 if scale.is_straight else 2 for scale in estimates.scales)
    worth = partial(spread_of_arms.units_worth, share=1 - planned[0] / sum(planned))
    with progress("simulating experiments", steps * (_HALVINGS + 8) * runs) as advance:
        pairs = [_detectable(trial, part, gap, runs, target, worth, advance) for part in range(estimates.dims)]
        needed = _units_needed(trial, gap, pairs, runs, target, advance)
    directions = tuple(row for pair in pairs for row in pair)
    return Power(
        gap=gap,
        detected=None if gap is None else min(row.detected or 0.0 for row in directions),
        recovered=None if gap is None else min(row.recovered or 0.0 for row in directions),
        minimum_detectable=plain([max(row.minimum_detectable for row in pair) for pair in pairs]),
        target=target,
        alpha=alpha,
        guarantee=error_control.name,
        planned=planned,
        runs=runs,
        directions=directions,
        along=along,
        followed=trial.followed_runs(runs),
        n=None if estimates.n is None else float(np.sum(estimates.n)),
        needed=needed,
        days=None if needed is None or per_day is None else needed / per_day,
        in_points=tuple(scale.is_percent for scale in estimates.scales),
    )


def _checked_gap(gap: float, estimates: Estimates) -> float:
    remedy = "Give it in the units of the metric."
    gap = checks.number("gap", gap, "must lie within ±1e60", remedy, low=-1e60, high=1e60)
    if abs(gap) < 1e-60:  # as of estimates: squares beyond leave a double's range
        raise InputError.out_of_range("gap", "must not be zero", remedy, gap, form="must")
    largest = min(scale.largest_gap(upwards=gap > 0) for scale in estimates.scales)
    if abs(gap) >= largest:
        problem = "rates differ by less than 1 in any case" if gap > 0 else "effects cannot fall so far"
        raise InputError.out_of_range("gap", problem, "0.01 is one point.", gap, form="clause")
    return gap


def _checked_per_day(per_day: float, gap: float | None, estimates: Estimates) -> float:
    per_day = checks.number(
        "per_day", per_day, "must be a number above zero", "Give the units of a day.", low=0, ends="()"
    )
    if gap is None or estimates.n is None:
        problem = "needs a gap" if gap is None else "needs the sizes of the groups"
        raise InputError.missing("per_day", problem, "Give {gap} and sizes.", per_day, settings={"gap": 0.01})
    return per_day


def _units_needed(
    trial: Trial,
    gap: float | None,
    pairs: Sequence[Sequence[DetectableDifference]],
    runs: int,
    target: float,
    advance: Callable[[int], None],
) -> float | None:
    """Units in all groups with which the gap is detected with the target probability; None where that is not known.

    Standard errors fall with the root of the size, and with them the smallest gap: exactly on a straight scale, and
    nearly on others, where it is found again at the size that follows.
    """
    n = trial.estimates.n
    if gap is None or n is None or trial.estimates.dims > 1:
        return None
    factor = (max(row.minimum_detectable for row in pairs[0]) / abs(gap)) ** 2
    if not trial.estimates.scales[0].is_straight:
        for _ in range(_STEPS):
            resized = trial.resized(factor)
            ways = [row.direction == "higher" for row in pairs[0]]
            sizes = [smallest_gap(resized, 0, runs, target, upwards=way, advance=advance) for way in ways]
            if any(size is None for size in sizes):
                return None
            factor *= (max(size for size in sizes if size is not None) / abs(gap)) ** 2
    return float(np.ceil(factor * np.sum(n)))


def _detectable(
    trial: Trial,
    part: int,
    gap: float | None,
    runs: int,
    target: float,
    worth: Callable[[float], float | None],
    advance: Callable[[int], None],
) -> list[DetectableDifference]:
    """What can be detected of one effect, lower and higher; `worth` is how far a gap changes what units are worth."""
    # On a straight scale a drop is a rise seen in a mirror, unless the variance changes with the gap.
    straight = trial.estimates.scales[part].is_straight and (gap is None or worth(gap) == 1)
    name = trial.estimates.parts[part] if trial.estimates.parts else ""
    rows = []
    directions: list[Direction] = ["higher"] if straight else ["lower", "higher"]
    is_drop = gap is not None and gap < 0
    if is_drop:
        directions = ["lower"]
    for direction in directions:
        sign = _SIGNS[direction]
        factor = 1.0 if gap is None else worth(sign * abs(gap))
        if factor is None:
            continue  # no rate can fall or rise so far
        planned = trial if factor == 1 else trial.resized(factor)
        detected, recovered = (None, None) if gap is None else planned.run(part, sign * abs(gap), runs, advance)
        smallest = smallest_gap(planned, part, runs, target, upwards=sign > 0, advance=advance)
        if smallest is None:
            raise InputError.out_of_range(
                "target",
                "is not reached by any gap, however large",
                "Plan more groups that differ, or larger ones.",
                target,
            )
        rows.append(DetectableDifference(direction, detected, recovered, smallest, name))
    if not rows:
        problem = "takes the rate below 0 or above 1"
        raise InputError.out_of_range("gap", problem, "0.01 is one point.", gap)
    return [replace(rows[0], direction="lower"), *rows] if straight and not is_drop else rows


# ------------------------------------------------------------------------------------------------------- the plan


def _measure(data: object, by: By | None, metric: Metric | None, min_size: float | None) -> object:
    """The estimates of rows; anything else as it is."""
    if by is None and metric is None:
        if min_size is not None:
            raise InputError.conflict(
                "min_size",
                "applies to rows only",
                "Leave it out, or give {by} and {metric}.",
                min_size,
                settings={"by": ..., "metric": ...},
            )
        return data
    return groups_from(data, by, [] if metric is None else [metric], min_size=min_size)[0].comparison.estimates


class _Spread(NamedTuple):
    """How standard errors follow from sizes: se = factor/√n; for a plain rate, on the scale of rates.

    Attributes:
        factor: The factor; None where standard errors are given.
        rate: The rate, for a plain rate of one arm.
        parameter: What was given, for errors.
        baseline: The rate of the control, for a rate in two arms.
        treated: The share of units in the treatment, of two arms.
    """

    factor: float | None
    rate: float | None = None
    parameter: str = "spread"
    baseline: float | None = None
    treated: float = 0.5

    def units_worth(self, gap: float, share: float) -> float | None:
        """By how much a gap changes what units are worth: the variance of a rate is another where the rate is.

        Args:
            gap: The difference of the groups that differ, with its sign.
            share: Their share of all groups.

        Returns:
            The variance that was planned as a multiple of that with the gap, 1 where it is none of a rate; None for
            rates below 0 or above 1.
        """
        if self.baseline is None:
            return 1.0
        usual, other = (rate * (1 - rate) for rate in (self.baseline, self.baseline + gap))
        if other <= 0:
            return None
        treated = (1 - share) * usual + share * other
        parts = (1 - self.treated, self.treated)
        return (usual / parts[0] + usual / parts[1]) / (usual / parts[0] + treated / parts[1])

    @classmethod
    def checked(
        cls,
        spread: float | None,
        baseline: float | None,
        arms: int,
        shares: tuple[float, float] | None,
    ) -> _Spread:
        """The spread between units and how they are shared out between arms, refused where they do not fit."""
        arms = int(
            checks.number(
                "arms", arms, "must be 1 or 2", "2 for an experiment, 1 for a plain mean.", low=1, high=2, whole=True
            )
        )
        if spread is not None and baseline is not None:
            raise InputError.conflict("spread, baseline", "both set how units vary", "Give only one of them.")
        if spread is None and baseline is None:
            if shares is not None:
                raise InputError.conflict("shares", "applies to sizes with a spread only", "Leave it out.")
            return cls(None)
        if spread is not None:
            spread = checks.number(
                "spread", spread, "must be a number above zero", "Give a standard deviation.", low=0, ends="()"
            )
        rate = None
        if baseline is not None:
            rate = checks.number(
                "baseline",
                baseline,
                "must lie between 0 and 1",
                "For 5%, use {baseline}.",
                low=0,
                high=1,
                ends="()",
                settings={"baseline": 0.05},
            )
        size = float(np.sqrt(rate * (1 - rate))) if rate is not None else float(spread or 0.0)
        parameter = "spread" if baseline is None else "baseline"
        if arms == 1:
            if shares is not None:
                raise InputError.conflict("shares", "means nothing without arms", "Leave it out, or plan two arms.")
            return cls(size, rate, parameter)
        parts = np.array([0.5, 0.5] if shares is None else shares)
        treated = float(parts[1] / parts.sum())
        return cls(size * float(np.sqrt(np.sum(1 / parts))), None, parameter, rate, treated)


_TWO_SHARES: Any = {"remedy": "Use for example {shares}.", "settings": {"shares": {"A": 0.9, "B": 0.1}}}


def _two_shares(shares: Any, control: object, treatment: object) -> tuple[float, float] | None:
    """The shares of control and treatment among all arms, whose shares add up to 1; None where none are given."""
    if not isinstance(shares, Mapping):
        for name, arm in (("control", control), ("treatment", treatment)):
            if arm is not None:
                problem = "names an arm, and shares have no names"
                raise InputError.conflict(name, problem, value=arm, form="clause", **_TWO_SHARES)
        if shares is None:
            return None
    values = list(shares.values()) if isinstance(shares, Mapping) else shares
    if not isinstance(values, list | tuple | np.ndarray) or np.shape(values) == () or len(values) < 2:
        raise InputError.wrong_type("shares", "is not two shares", value=shares, **_TWO_SHARES)
    if not isinstance(shares, Mapping) and len(values) > 2:
        raise InputError.wrong_type("shares", "is not two shares", value=shares, **_TWO_SHARES)
    units = [checks.number("shares", value, "must be numbers above zero", low=0, ends="()", **_TWO_SHARES)
             for value in values]  # fmt: skip
    first, second = _two_arms(shares, control, treatment) if isinstance(shares, Mapping) else (0, 1)
    return units[first] / sum(units), units[second] / sum(units)


def _two_arms(shares: Mapping[Any, float], control: object, treatment: object) -> list[int]:
    """The places of control and treatment among arms by name."""
    arms = list(shares)
    named = {"control": arms[0] if control is None else control, "treatment": treatment}
    if treatment is None:
        others = [arm for arm in arms if str(arm) != str(named["control"])]
        if len(others) > 1:
            names = ", ".join(shorten(arm) for arm in others)
            remedy = f"Name the one to plan for, out of {names}: {{treatment}}."
            problem = f"have {len(arms)} arms"
            raise InputError.ambiguous("shares", problem, remedy, settings={"treatment": others[0]})
        named["treatment"] = others[0]
    places = match([(part_of(arm),) for arm in named.values()], [(part_of(arm),) for arm in arms], "shares")
    for place, (name, arm) in zip(places, named.items(), strict=True):
        if place < 0:
            names = ", ".join(shorten(other) for other in arms)
            raise InputError.not_found(name, "has no planned share", f"There are shares of {names}.", arm)
    if places[0] == places[1]:
        raise InputError.duplicate("treatment", "is the control as well", "Name two different arms.", treatment)
    return places


def _planned_estimates(data: Any, spread: _Spread) -> Estimates:
    """Standard errors to plan with, as estimates whose effects do not matter."""
    if isinstance(data, Clustering):
        # A part held out is less precise than all of the data, which the next experiment will use.
        share = float(data.judged.facts.get("fraction", 1.0))
        data = data.estimates.replaced(data.estimates.values, spread=float(np.sqrt(share)))
    estimates = data if isinstance(data, Estimates) else None
    try:
        flat = estimates is not None or np.ndim(data) == 1
    except ValueError:
        flat = False
    if not flat:
        raise InputError.wrong_type("data", "is not one number per group", "Give standard errors or estimates.", data)
    if spread.factor is not None:
        planned = _from_sizes(estimates, data, spread)
    else:
        planned = _estimates(np.ones(np.shape(data)), se=data) if estimates is None else estimates
    if len(planned) < 2:
        raise InputError.too_few("data", "has one group", "A split needs two groups.")
    return planned


def _from_sizes(estimates: Estimates | None, data: Any, spread: _Spread) -> Estimates:
    """Standard errors that follow from group sizes."""
    if estimates is not None and estimates.n is None:
        raise InputError.conflict(spread.parameter, "needs group sizes", "Give n as well.")
    if estimates is not None and estimates.dims > 1:
        problem = f"does not apply to {estimates.dims} effects at once"
        raise InputError.unsupported(spread.parameter, problem, "Leave it out: their standard errors count.")
    if estimates is None:
        estimates = _estimates(np.ones(np.shape(data)), n=data)
    size, attributes = np.asarray(estimates.n), estimates.attributes
    if spread.rate is not None:
        rates = np.full(len(estimates), spread.rate)
        angles = ANSCOMBE.place(rates)
        return Estimates(
            angles,
            0.5 / np.sqrt(size),
            estimates.labels,
            estimates.n,
            attributes=attributes,
            natural=rates,
            scale=ANSCOMBE,
        )
    errors = (spread.factor or 0.0) / np.sqrt(size)
    scale = IDENTITY if spread.baseline is None else POINTS
    zeros = np.zeros(len(estimates))
    return Estimates(zeros, errors, estimates.labels, estimates.n, attributes=attributes, scale=scale)


def _estimates(ones: FloatArray, **arguments: Any) -> Estimates:
    """Estimates of zero with what was given as `data`, which is what errors shall name."""
    try:
        return Estimates(0 * ones, arguments.pop("se", ones), **arguments)
    except InputError as error:
        raise error.within("data") from error


def _pattern(split: Any, estimates: Estimates) -> tuple[Callable[[np.random.Generator], FloatArray], tuple[int, ...]]:
    """From the plan to effects in units of the gap, and how many groups there are at each level."""
    groups = len(estimates)
    if isinstance(split, int | float | np.number) and not isinstance(split, bool | np.bool_):
        if not 0 < split < 1:
            raise InputError.out_of_range(
                "split", "must lie strictly between 0 and 1", "0.3 plans three groups in ten.", split, form="must"
            )
        apart = int(np.clip(round(float(split) * groups), 1, groups - 1))

        def draw_pattern(rng: np.random.Generator) -> FloatArray:
            levels = np.zeros(groups)
            levels[rng.permutation(groups)[:apart]] = 1.0
            return levels

        return draw_pattern, (groups - apart, apart)
    levels = _levels(split, estimates)
    levels -= levels.min()
    counts = tuple(np.unique(levels, return_counts=True)[1].tolist())
    return lambda _: levels, counts


def _pattern_along(
    along: str, split: Any, estimates: Estimates
) -> tuple[Callable[[np.random.Generator], FloatArray], tuple[int, ...]]:
    """The same where all groups of some levels of one attribute differ; counts are those of levels."""
    names = estimates.attributes
    if not isinstance(along, str) or along not in names or len(names) < 2:
        problem = "is not one of several attributes"
        raise InputError.not_found("along", problem, f"There are: {', '.join(names)}.", along)
    column = [name_of(key[names.index(along)]) for key in estimates.keys]
    levels, codes = np.unique(np.array(column, dtype=object).astype(str), return_inverse=True)
    if levels.size < 2:
        raise InputError.too_few("along", "has one level", "Name an attribute with several.", along)
    of_levels = _estimates(np.ones(levels.size), labels=levels.tolist())
    pattern, counts = _pattern(split, of_levels)
    return lambda rng: pattern(rng)[codes], counts


def _levels(split: Any, estimates: Estimates) -> FloatArray:
    """The planned effect of every group, from names of groups or one number per group."""
    remedy = "Give a share, names of groups, or one number per group."
    if not isinstance(split, list | tuple | np.ndarray):
        raise InputError.wrong_type("split", "is not a valid split", remedy, split)
    listed = split.tolist() if isinstance(split, np.ndarray) else list(split)
    names = {name_of(key): i for i, key in enumerate(estimates.keys)}
    if not all(isinstance(label, str | int | float | tuple | list | Range) for label in listed):
        raise InputError.wrong_type("split", "is not a valid split", remedy, split)
    wanted = [name_of(tuple(label) if isinstance(label, list) else label) for label in listed]
    if len(listed) == len(estimates) and all(isinstance(value, int | float) for value in listed):
        levels = numbers("split", listed)
    elif listed and all(name in names for name in wanted):
        levels = np.zeros(len(estimates))
        levels[[names[name] for name in wanted]] = 1.0
    else:
        unknown = [name for name in wanted if name not in names]
        problem = f"no such group {unknown[0]!r}" if unknown else "plans nothing"
        raise InputError.not_found("split", problem, remedy, split, form="clause")
    if not np.isfinite(levels).all() or np.abs(levels).max() > 1e12 or np.unique(levels).size < 2:
        raise InputError.invalid("split", "plans the same effect everywhere", "Let some groups differ.", split)
    return levels


# ------------------------------------------------------------------------------------------------- the simulation


def with_draws(guarantee: Guarantee, draws: int) -> Guarantee:
    """The same error control with a given number of draws, where it draws and no number was asked for."""
    if isinstance(guarantee, Calibrated) and guarantee.draws is None:
        return replace(guarantee, draws=draws)
    return guarantee


class _SimulatedRuns(NamedTuple):
    """Some simulated experiments, but for the gap."""

    levels: FloatArray  # (r, K), in units of the gap
    noise: FloatArray  # (r, K, d)
    seen: FloatArray | None  # standard errors as seen over the true ones, (r, K, 1), where they are estimated


class Trial:
    """Simulated experiments with the same standard errors and, for every gap, the same noise: power rises with it."""

    def __init__(
        self,
        groups: Line | Plane,
        pattern: Callable[[np.random.Generator], FloatArray],
        guarantee: Guarantee,
        alpha: float,
        tolerance: float,
        seed: int,
        *,
        margins: bool = False,
    ) -> None:
        self.pattern, self.guarantee = pattern, guarantee
        self.alpha, self.tolerance, self.seed = alpha, tolerance, seed
        self.estimates = groups.estimates
        own, between = self.estimates.own, self.estimates.covariance
        weights = (own.min(axis=0) / own) ** 2
        self.centre = np.sum(weights * self.estimates.values, axis=0) / np.sum(weights, axis=0)
        self.root = (
            None if self.estimates.effect_covariance is None else np.linalg.cholesky(self.estimates.effect_covariance)
        )
        self.shared = None if between is None else CorrelatedNoise.from_covariance(between)
        self.detects = guarantee.make_detector(groups, alpha, seed)
        self.drawn: dict[int, _SimulatedRuns] = {}  # by the number of experiments
        self.margins = False
        if margins and tests_margins(groups, guarantee):
            self.detects, self.margins = MarginDetector(groups, alpha, seed), True

    def followed_runs(self, runs: int) -> int:
        """How many of the experiments are followed to their clusters."""
        if self.detects is None:
            return runs
        return min(runs, _FOLLOWED_ALONG_MARGINS if self.margins else _FOLLOWED)

    def resized(self, factor: float) -> Trial:
        """The same experiments with the number of units multiplied by a factor."""
        estimates = self.estimates.replaced(self.estimates.values, spread=float(1 / np.sqrt(factor)))
        groups = compare_effects(estimates, self.tolerance)
        return Trial(groups, self.pattern, self.guarantee, self.alpha, self.tolerance, self.seed, margins=self.margins)

    def with_share(self, share: float) -> Trial:
        """The same experiments where another share of the groups differs, any of them."""
        trial = copy(self)
        trial.pattern, trial.drawn = _pattern(share, self.estimates)[0], {}
        return trial

    def smallest(self, part: int, runs: int, target: float) -> float | None:
        """The smallest gap of an effect that is detected with the target power, roughly; None where none is."""
        ways = [True] if self.estimates.scales[part].is_straight else [False, True]
        sizes = []
        for upwards in ways:
            size = smallest_gap(self, part, runs, target, upwards=upwards, advance=lambda _: None, precise=_ROUGHLY)
            if size is None:
                return None
            sizes.append(size)
        return max(sizes)

    def reaches(self, part: int, gap: float, runs: int, target: float, advance: Callable[[int], None]) -> bool:
        """Whether the power is the target or more."""
        if self.detects is not None:
            return self.estimate_power(part, gap, runs, advance) >= target
        detected = 0
        for number, labels in enumerate(self._clusterings(part, gap, runs, advance), start=1):
            detected += labels is not None
            if detected / runs >= target or (detected + runs - number) / runs < target:  # the others change nothing
                break
        return detected / runs >= target

    def estimate_power(self, part: int, gap: float, runs: int, advance: Callable[[int], None]) -> float:
        """Share of experiments in which the split of one effect is detected."""
        if self.detects is None:
            return self.run(part, gap, runs, advance)[0]
        detected = 0
        for levels, noise, seen in self._plans(runs):
            errors = None if seen is None else seen * self.estimates.own
            detected += int(np.sum(self.detects(self._effects(part, gap * levels, noise), errors)))
            advance(len(levels))
        return detected / runs

    def run(self, part: int, gap: float, runs: int, advance: Callable[[int], None]) -> tuple[float, float]:
        """Shares of experiments in which the split is detected, and recovered exactly; this from the first ones."""
        if self.detects is None:
            return self._followed(part, gap, runs, advance)
        detected = self.estimate_power(part, gap, runs, advance)
        followed, recovered = self._followed(part, gap, self.followed_runs(runs), advance)
        # Fewer are followed than counted: what they say is how many of those that are detected are recovered.
        return detected, detected * recovered / followed if followed else 0.0

    def _followed(self, part: int, gap: float, runs: int, advance: Callable[[int], None]) -> tuple[float, float]:
        """The same, every experiment followed to its clusters."""
        levels = [row for plan in self._plans(runs) for row in plan.levels]
        detected = recovered = 0
        for true_levels, labels in zip(levels, self._clusterings(part, gap, runs, advance), strict=True):
            if labels is not None:
                detected += 1
                recovered += _same_partition(labels, np.unique(true_levels, return_inverse=True)[1])
        return detected / runs, recovered / runs

    def _clusterings(
        self, part: int, gap: float, runs: int, advance: Callable[[int], None]
    ) -> Iterator[IntArray | None]:
        """The clusters of every experiment; None where no difference is reported."""
        number = 0
        cov, errors, between = self.estimates.effect_covariance, self.estimates.errors, self.estimates.covariance
        for all_levels, noise, all_seen in self._plans(runs):
            effects = self._effects(part, gap * all_levels, noise)
            for i, levels in enumerate(all_levels):
                seen = np.ones((len(levels), 1)) if all_seen is None else all_seen[i]
                errors_of: dict[str, Any] = (
                    {"se": errors * seen} if cov is None else {"effect_covariance": cov * seen[:, :, None] ** 2}
                )
                if between is not None:
                    errors_of = {"covariance": between * seen * seen.T}
                yield self._clustered(self.estimates.replaced(effects[i], **errors_of), number)
                number += 1
                advance(1)

    def _plans(self, runs: int) -> Iterable[_SimulatedRuns]:
        """Some experiments at a time; every time the same, so that few are drawn only once for all gaps."""
        if runs in self.drawn:
            return [self.drawn[runs]]
        plans = self._draw_plans(runs)
        if runs * self.estimates.values.size > _DRAWN_AT_ONCE:
            return plans
        (self.drawn[runs],) = plans
        return [self.drawn[runs]]

    def _draw_plans(self, runs: int) -> Iterator[_SimulatedRuns]:
        rng, (groups, dims), dof = np.random.default_rng(self.seed), self.estimates.values.shape, self.estimates.dof
        some = max(1, min(runs, _DRAWN_AT_ONCE // (groups * dims)))
        for start in range(0, runs, some):
            count = min(some, runs - start)
            levels = np.stack([self.pattern(rng) for _ in range(count)])
            noise, seen = rng.standard_normal((count, groups, dims)), None
            if dof is not None:
                finite_dof = np.minimum(dof, 1e9)
                seen = np.sqrt(rng.chisquare(finite_dof, size=(count, groups)) / finite_dof)[:, :, None]
                if np.isfinite(self.estimates.dof_of_all):  # one factor for the whole covariance
                    seen = np.broadcast_to(seen[:, :1], seen.shape)
                if np.isfinite(shared := self.estimates.covariance_dof):  # by which Hotelling's T² is off
                    factor = np.sqrt(rng.chisquare(shared - groups + 2, size=(count, 1, 1)) / shared)
                    seen = np.broadcast_to(factor, seen.shape)
            yield _SimulatedRuns(levels, noise, seen)

    def _effects(self, part: int, gaps: FloatArray, noise: FloatArray) -> FloatArray:
        """Simulated estimates, (r, K, d): all at their centre but for the one effect that differs."""
        if self.shared is not None:
            effects = self.shared.noise(noise[:, :, 0])[:, :, None]
        elif self.root is not None:
            effects = np.einsum("kij,rkj->rki", self.root, noise)
        else:
            effects = noise * self.estimates.errors
        for i, scale in enumerate(self.estimates.scales):
            natural = float(scale.natural(np.array([self.centre[i]]))[0])
            away = gaps if i == part else np.zeros(1)
            room = scale.room(natural, float(away.min()), float(away.max()))
            effects[:, :, i] += scale.place(room + away)
        return np.asarray(effects)

    def _clustered(self, estimates: Estimates, number: int) -> IntArray | None:
        """Cluster numbers from the lowest to the highest effect; None where no difference is reported."""
        # A simulation needs no more draws than distinguish p from α.
        guarantee = with_draws(self.guarantee, max(499, int(5 / self.alpha)))
        # The draws are the same for all: what they show follows from the standard errors, and is learnt once.
        is_common = self.detects is not None and not guarantee.shares(1)
        seed = self.seed if is_common else self.seed + number
        compared = compare_effects(estimates, self.tolerance)
        judged = guarantee.find_path(compared, seed, refine=True, margins=self.margins)
        if self.margins:
            result = Clustering.of(judged, guarantee, self.alpha, True)
            return result.labels if result.rejected else None
        clusters = count_clusters(judged.path, float(np.log(self.alpha)))
        return numbered(judged.reported, judged.path.labels(clusters)) if clusters > 1 else None


def tests_margins(groups: Line | Plane, guarantee: Guarantee) -> bool:
    """Whether `fl.cluster` would test the margins of these groups."""
    estimates = groups.estimates
    is_plain = estimates.dims == 1 and estimates.covariance is None and not groups.tolerance
    return len(estimates.attributes) > 1 and is_plain and isinstance(guarantee, Calibrated) and guarantee.scan


class MarginDetector:
    """Whether some margin of crossed attributes differs, each tested at its share of α (Bonferroni).

    `fl.cluster` calibrates the smallest p over all margins, which detects a little more.
    """

    def __init__(self, groups: Line | Plane, alpha: float, seed: int) -> None:
        estimates, effects = groups.estimates, extract_effects(groups)
        columns = np.array([[name_of(part) for part in key] for key in estimates.keys], dtype=object).astype(str)
        codes = np.stack([np.unique(column, return_inverse=True)[1] for column in columns.T], axis=1)
        weight = estimates.own[:, 0] ** -2.0
        self.tests: list[tuple[FloatArray, Any]] = []
        for margin in margins_of(codes.astype(np.int64)):
            levels = aggregate_effects(effects, margin.codes)
            member = np.zeros((len(estimates), margin.levels))
            member[np.arange(len(estimates)), margin.codes] = weight
            total = member.sum(axis=0)
            detects = JointTest(levels, None, seed).make_detector(alpha * margin.share, total**-0.5)
            self.tests.append((member / total, detects))

    def __call__(self, effects: FloatArray, errors: FloatArray | None) -> npt.NDArray[np.bool_]:
        """Rows of effects, (r, K, 1), and the standard errors observed with them, to whether a margin differs."""
        detected = np.zeros(len(effects), dtype=bool)
        for mean, detects in self.tests:
            levels = (effects[:, :, 0] @ mean)[:, :, None]
            of_levels = None if errors is None else np.sqrt(errors[:, :, 0] ** 2 @ mean**2)[:, :, None]
            detected |= np.asarray(detects(levels, of_levels), dtype=bool)
        return detected


def _same_partition(labels: IntArray, other: IntArray) -> bool:
    """Whether two labellings put the same groups together."""
    pairs = len(set(zip(labels.tolist(), other.tolist(), strict=True)))
    return pairs == np.unique(labels).size == np.unique(other).size


def smallest_gap(
    trial: Trial,
    part: int,
    runs: int,
    target: float,
    *,
    upwards: bool,
    advance: Callable[[int], None],
    precise: float = 0.01,
) -> float | None:
    """The gap at which the power reaches the target: doubled until it does, then halved in."""
    estimates, scale = trial.estimates, trial.estimates.scales[part]

    def reaches(size: float) -> bool:
        return trial.reaches(part, size if upwards else -size, runs, target, advance)

    natural = estimates.readable_errors(estimates.given, estimates.errors)[:, part]
    most = scale.largest_gap(upwards)
    low = trial.tolerance
    high = low + float(np.median(natural if natural.min() > 0 else estimates.errors[:, part]))
    for _ in range(_DOUBLINGS):
        high = min(high, (low + most) / 2)
        if reaches(high):
            break
        low, high = high, high * 2
    else:
        return None
    for _ in range(_HALVINGS):
        if high - low < precise * high:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high


# ----------------------------------------------------------------------------------------------------- detection limits
# Detection limits of a result without clusters: computed when asked for, in a second or so at most.

_TARGET = 0.8
_MOST = 2_000  # groups of which experiments are simulated
_MOST_FOLLOWED = 120  # groups in all parts of the data, where every experiment is followed to its clusters
_WORK, _RUNS, _FEWEST = 100_000, 200, 60  # groups in all simulated experiments; experiments
_RUNS_FOLLOWED = 40
_DRAWS = 2**18  # numbers in the draws behind a threshold
_MOST_DRAWS = 500


def detection_limits(c: Clustering) -> tuple[DetectionLimit, ...]:
    """What a result leaves possible, effect by effect; nothing where clusters differ or there is nothing to compare."""
    estimates = c.groups.estimates
    if c.rejected or estimates is None or len(estimates) < 2:
        return ()
    share = shares_of(estimates, c.readout)[0]
    tail = float(ndtr(-critical_of(estimates, share, c.alpha, _seed(c), sides=2)))
    try:
        simulated = _simulate(c, estimates)
    except InputError:  # gaps that would be detected lie beyond what estimates can be
        simulated = None
    halves, one_group = ([None] * estimates.dims,) * 2 if simulated is None else simulated
    limits = []
    for i, effect in enumerate(effects_of(estimates, share, c.readout)):
        interval = effect.against_overall(tail, as_ratio=False)
        alone = effect.against_overall(c.alpha, as_ratio=False)
        ends = np.maximum(-alone.lower, alone.upper)
        if not np.isfinite([ends, interval.lower, interval.upper]).all():
            continue  # at so tiny a level nothing is ruled out
        place = int(np.argmax(ends))
        limits.append(
            DetectionLimit(
                estimates.parts[i] if estimates.parts else "",
                labels_of(estimates.keys)[place],
                float(ends[place]),
                bool(alone.upper[place] >= -alone.lower[place]),
                interval.lower,
                interval.upper,
                halves[i],
                one_group[i],
                _TARGET,
                c.alpha,
                simulated is not None,
            )
        )
    return tuple(limits)


def _seed(c: Clustering) -> int:
    return int(c.judged.facts.get("seed", 0))


def _simulate(c: Clustering, estimates: Estimates) -> tuple[list[float | None], list[float | None]] | None:
    """The smallest gaps of each effect that would be detected, of halves and of one group; None if not simulated."""
    groups = len(estimates)
    if groups > _MOST:
        return None
    # A threshold needs fewer draws than a p-value.
    guarantee = c.guarantee.for_power(c.groups, int(np.clip(_DRAWS // groups, 50, _MOST_DRAWS)))
    compared = compare_effects(estimates, c.tolerance)
    trial = Trial(compared, lambda _: np.zeros(groups), guarantee, c.alpha, c.tolerance, _seed(c))
    followed = groups * max(len(guarantee.shares(groups)), 1) * guarantee.splits
    if trial.detects is None and (followed > _MOST_FOLLOWED or estimates.dims > 1):
        return None  # to follow every experiment to its clusters would take longer than the result itself
    runs = _RUNS_FOLLOWED if trial.detects is None else int(np.clip(_WORK // groups, _FEWEST, _RUNS))
    halves, one_group = (
        [trial.with_share(share).smallest(part, runs, _TARGET) for part in range(estimates.dims)]
        for share in (0.5, 1 / groups)
    )
    return halves, one_group
