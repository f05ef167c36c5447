"""Before an experiment: what will it be able to see? After one that found nothing: what would it have seen?"""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from faultlines import checks
from faultlines.comparison.choose import equal_effects
from faultlines.comparison.correlated import Correlated
from faultlines.errors import InputError, shorten
from faultlines.estimates.estimates import Estimates, plain
from faultlines.estimates.given import numbers
from faultlines.estimates.labels import Range, name_of
from faultlines.guarantees.calibrated import Calibrated
from faultlines.guarantees.choose import guarantee_of
from faultlines.progress import progress
from faultlines.result.clusters import numbered
from faultlines.result.finding import Finding, measured
from faultlines.tree.path import clusters_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from faultlines.comparison.line import Line
    from faultlines.comparison.plane import Plane
    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.labels import Label
    from faultlines.estimates.scales import FloatArray
    from faultlines.guarantees.base import Guarantee
    from faultlines.metrics.base import Metric
    from faultlines.result.finding import By

_FOLLOWED = 200  # experiments that are followed to their clusters
_HALVINGS = 12
_DOUBLINGS = 40
_ROUGHLY = 0.03  # of a gap: precise enough for a sentence

Direction = Literal["lower", "higher"]
_SIGNS: dict[Direction, float] = {"lower": -1.0, "higher": 1.0}  # harm first


@dataclass(frozen=True, slots=True)
class Reach:
    """What can be seen of one effect in one direction.

    Attributes:
        direction: Whether the groups that differ are lower or higher than the others.
        detected: The chance that the gap asked about is detected; None if none was.
        recovered: The chance that the clusters found are exactly the planned ones.
        smallest: The smallest difference that is detected with the target chance.
        part: The effect that differs, where several are measured together; the others are alike.

    Example:
        >>> import faultlines as fl
        >>> seen = fl.power([5000] * 20, spread=1.2, gap=0.1, runs=200)
        >>> [(one.direction, one.detected) for one in seen.directions]
        [('lower', 1.0), ('higher', 1.0)]
    """

    direction: Direction
    detected: float | None
    recovered: float | None
    smallest: float
    part: str = ""


@dataclass(frozen=True, slots=True)
class Power:
    """What an experiment can see, by simulation.

    Rates and lifts have more room on one side than on the other, so a drop is not seen as easily as a rise of the same
    size. `detected`, `recovered` and `smallest` hold in both directions: they are those of the harder one. Of several
    effects measured together one differs at a time: the two chances are those of the hardest, and `smallest` has a
    number for each.

    Attributes:
        gap: The difference that was asked about; None if only the smallest was wanted.
        detected: The chance that it is detected: that "all groups are alike" is rejected.
        recovered: The chance that the clusters found are exactly the planned ones.
        smallest: The smallest difference detected with chance `target`; a tuple for several effects.
        target: That chance.
        alpha: Level of significance.
        guarantee: What the claims rest on.
        planned: How many groups are planned at each level, the lowest first.
        runs: Simulated experiments behind each figure.
        directions: The same figures for groups that are lower and for groups that are higher, in this order; for each
            of several effects.

    Example:
        >>> import faultlines as fl
        >>> seen = fl.power([5000] * 20, spread=1.2, gap=0.1, runs=200)
        >>> seen.detected, seen.smallest < 0.1, seen.error < 0.04, seen.to_dict()["target"]
        (1.0, True, True, 0.8)
    """

    gap: float | None
    detected: float | None
    recovered: float | None
    smallest: Any
    target: float
    alpha: float
    guarantee: str
    planned: tuple[int, ...]
    runs: int
    directions: tuple[Reach, ...]

    @property
    def error(self) -> float:
        """Standard error of the two chances at most, from the number of runs."""
        return 0.5 / float(np.sqrt(self.runs))

    def to_dict(self) -> dict[str, Any]:
        """Plain data.

        Returns:
            Plain data.
        """
        return asdict(self) | {"planned": list(self.planned)}

    def __str__(self) -> str:
        total = sum(self.planned)
        groups = " and ".join(map(str, self.planned)) + f" of {total} groups"
        basis = f"{self.guarantee}, α = {self.alpha:g}, {self.runs:,} simulated experiments"
        lines = []
        if self.gap is not None and self.detected is not None and self.recovered is not None:
            steps = "A gap" if len(self.planned) == 2 else "Steps"
            lines.append(
                f"{steps} of {self.gap:.4g} between {groups}: detected with chance {self.detected:.2f}, "
                f"recovered exactly with chance {self.recovered:.2f}."
            )
        for part in dict.fromkeys(reach.part for reach in self.directions):
            several = [reach for reach in self.directions if reach.part == part]
            smallest, of_part = max(reach.smallest for reach in several), f" in {part}" if part else ""
            lines.append(
                f"Smallest gap{of_part} detected with chance {self.target:.0%}, between {groups}: {smallest:.3g}."
            )
            if len({reach.smallest for reach in several}) > 1:
                each = ", ".join(f"{reach.smallest:.3g} where they are {reach.direction}" for reach in several)
                lines.append(f"By direction of the groups that differ: {each}.")
        return "\n".join([*lines, f"({basis})"])


def power(
    data: object,
    by: By | None = None,
    metric: Metric | None = None,
    *,
    gap: float | None = None,
    split: float | Sequence[Label] | npt.ArrayLike = 0.5,
    spread: float | None = None,
    arms: int = 2,
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    tolerance: float = 0.0,
    target: float = 0.8,
    runs: int = 1000,
    min_size: float | None = None,
    seed: int = 0,
) -> Power:
    """The chance of detecting a planned split and of recovering it exactly, and the smallest gap one would detect.

    Args:
        data: Standard errors of the groups; with `spread`, sizes of the groups. Or the estimates, or the result, of an
            experiment that is over: their standard errors count (with `spread`, their sizes). Or its rows, as for
            `fl.cluster`, with `by` and `metric`.
        by: For rows: as for `fl.cluster`.
        metric: For rows: as for `fl.cluster`.
        gap: The difference asked about, in the units of the metric. Left out, only the smallest detectable is found.
            Of several effects, in each of them on its own.
        split: Which groups differ: the share of the groups that are apart by `gap`, chosen anew in every simulated
            experiment; or the labels of those groups; or one number per group, the planned effect in units of the gap
            (0, 0, 1, 2).
        spread: Standard deviation of the metric between units; the standard errors are then spread·√(arms²/size).
        arms: With `spread`: 2 for an experiment whose sizes are shared evenly by two arms, 1 for a plain mean.
        alpha: Level of significance.
        guarantee: See `fl.cluster`.
        tolerance: See `fl.cluster`.
        target: The chance with which the smallest gap shall be detected.
        runs: Simulated experiments behind each figure.
        min_size: For rows: as for `fl.cluster`.
        seed: Of the simulation.

    Returns:
        The figures, for groups that are lower and for groups that are higher.

    Raises:
        InputError: If the plan cannot be used, or no gap reaches the target.

    Example:
        >>> import faultlines as fl
        >>> 2 < fl.power([1.0] * 10, runs=200).smallest < 4
        True
    """
    alpha, seed, chosen = checks.alpha(alpha), checks.seed(seed), guarantee_of(guarantee)
    estimates = _planned_estimates(_measured(data, by, metric, min_size), spread, arms)
    groups = equal_effects(estimates, tolerance)
    chosen.check(alpha, groups)
    runs = checks.runs(runs, 20, 1000)
    likely = (1 + alpha) / 2 if alpha >= 0.8 else 0.8
    problem = f"must lie between alpha={alpha:g} and 1"
    target = checks.number("target", target, problem, f"Use target={likely:g}.", low=alpha, high=1, ends="()")
    if gap is not None:
        problem = "must be a number above zero"
        gap = checks.number("gap", gap, problem, "Give it in the units of the metric.", low=0, ends="()")
        if gap >= min(scale.largest_gap(upwards=True) for scale in estimates.scales):
            raise InputError(f"gap={gap:g}", "rates differ by less than 1 in any case", "0.01 is one point.")
    pattern, planned = _pattern(split, estimates)
    trial = Trial(groups, pattern, chosen, alpha, tolerance, seed)
    steps = sum(1 if scale.is_straight else 2 for scale in estimates.scales)
    with progress("simulating experiments", steps * (_HALVINGS + 8) * runs) as advance:
        reaches = [one for part in range(estimates.dims) for one in _reaches(trial, part, gap, runs, target, advance)]
    return Power(
        gap,
        None if gap is None else min(reach.detected or 0.0 for reach in reaches),
        None if gap is None else min(reach.recovered or 0.0 for reach in reaches),
        plain([max(low.smallest, high.smallest) for low, high in zip(reaches[::2], reaches[1::2], strict=True)]),
        target,
        alpha,
        chosen.name,
        planned,
        runs,
        tuple(reaches),
    )


def _reaches(
    trial: Trial, part: int, gap: float | None, runs: int, target: float, advance: Callable[[int], None]
) -> list[Reach]:
    """What can be seen of one effect, lower and higher."""
    # On a straight scale a drop is a rise seen in a mirror.
    straight = trial.estimates.scales[part].is_straight
    name = trial.estimates.parts[part] if trial.estimates.parts else ""
    made = []
    directions: list[Direction] = ["higher"] if straight else ["lower", "higher"]
    for direction in directions:
        sign = _SIGNS[direction]
        detected, recovered = (None, None) if gap is None else trial.run(part, sign * gap, runs, advance)
        smallest = smallest_gap(trial, part, runs, target, upwards=sign > 0, advance=advance)
        if smallest is None:
            raise InputError(
                f"target={target:g}",
                "is not reached by any gap, however large",
                "Plan more groups that differ, or larger ones.",
            )
        made.append(Reach(direction, detected, recovered, smallest, name))
    return [replace(made[0], direction="lower"), *made] if straight else made


# ------------------------------------------------------------------------------------------------------- the plan


def _measured(data: object, by: By | None, metric: Metric | None, min_size: float | None) -> object:
    """What rows are measured to be; anything else as it is."""
    if by is None and metric is None:
        if min_size is not None:
            raise InputError(f"min_size={shorten(min_size)}", "goes with rows", "Leave it out, or give by and metric.")
        return data
    return measured(data, by, [] if metric is None else [metric], min_size, Calibrated(), 0.0, 0)[
        0
    ].comparison.estimates


def _planned_estimates(data: Any, spread: float | None, arms: int) -> Estimates:
    """Standard errors to plan with, as estimates whose effects do not matter."""
    if isinstance(data, Finding):
        # A part held out is less precise than all of the data, which the next experiment will use.
        share = float(data.judged.facts.get("fraction", 1.0))
        data = data.estimates.replaced(data.estimates.values, spread=float(np.sqrt(share)))
    known = data if isinstance(data, Estimates) else None
    try:
        flat = known is not None or np.ndim(data) == 1
    except ValueError:
        flat = False
    if not flat:
        raise InputError(f"data={shorten(data)}", "is not one number per group", "Give standard errors or estimates.")
    if spread is not None:
        planned = _from_sizes(known, data, spread, arms)
    else:
        planned = _estimates(np.ones(np.shape(data)), se=data) if known is None else known
    if len(planned) < 2:
        raise InputError("data", "has one group", "A split needs two groups.")
    return planned


def _from_sizes(known: Estimates | None, data: Any, spread: float, arms: int) -> Estimates:
    """Standard errors that follow from group sizes."""
    if known is not None and known.n is None:
        raise InputError(f"spread={shorten(spread)}", "goes with sizes, and these have none", "Give n as well.")
    if known is not None and known.dims > 1:
        problem = f"means nothing for {known.dims} effects at once"
        raise InputError(f"spread={shorten(spread)}", problem, "Leave it out: their standard errors count.")
    problem = "must be a number above zero"
    spread = checks.number("spread", spread, problem, "Give a standard deviation.", low=0, ends="()")
    arms = int(
        checks.number(
            "arms", arms, "must be 1 or 2", "2 for an experiment, 1 for a plain mean.", low=1, high=2, whole=True
        )
    )
    if known is None:
        known = _estimates(np.ones(np.shape(data)), n=data)
    return Estimates(np.zeros(len(known)), spread * arms / np.sqrt(np.asarray(known.n)), known.labels, known.n)


def _estimates(ones: FloatArray, **given: Any) -> Estimates:
    """Estimates of zero with what was given as `data`, which is what errors shall name."""
    try:
        return Estimates(0 * ones, given.pop("se", ones), **given)
    except InputError as error:
        raise InputError(f"data: {error.parameter}", error.problem, error.remedy) from error


def _pattern(split: Any, estimates: Estimates) -> tuple[Callable[[np.random.Generator], FloatArray], tuple[int, ...]]:
    """From the plan to effects in units of the gap, and how many groups there are at each level."""
    groups = len(estimates)
    if isinstance(split, int | float | np.number) and not isinstance(split, bool | np.bool_):
        if not 0 < split < 1:
            raise InputError(f"split={split}", "must lie strictly between 0 and 1", "0.3 plans three groups in ten.")
        apart = int(np.clip(round(float(split) * groups), 1, groups - 1))

        def anew(rng: np.random.Generator) -> FloatArray:
            levels = np.zeros(groups)
            levels[rng.permutation(groups)[:apart]] = 1.0
            return levels

        return anew, (groups - apart, apart)
    levels = _levels(split, estimates)
    levels -= levels.min()
    counts = tuple(np.unique(levels, return_counts=True)[1].tolist())
    return lambda _: levels, counts


def _levels(split: Any, estimates: Estimates) -> FloatArray:
    """The planned effect of every group, from names of groups or one number per group."""
    remedy = "Give a share, names of groups, or one number per group."
    if not isinstance(split, list | tuple | np.ndarray):
        raise InputError(f"split={shorten(split)}", "is not a valid split", remedy)
    listed = split.tolist() if isinstance(split, np.ndarray) else list(split)
    names = {name_of(key): i for i, key in enumerate(estimates.keys)}
    if not all(isinstance(label, str | int | float | tuple | list | Range) for label in listed):
        raise InputError(f"split={shorten(split)}", "is not a valid split", remedy)
    wanted = [name_of(tuple(label) if isinstance(label, list) else label) for label in listed]
    if len(listed) == len(estimates) and all(isinstance(value, int | float) for value in listed):
        levels = numbers("split", listed)
    elif listed and all(name in names for name in wanted):
        levels = np.zeros(len(estimates))
        levels[[names[name] for name in wanted]] = 1.0
    else:
        unknown = [name for name in wanted if name not in names]
        problem = f"no such group {unknown[0]!r}" if unknown else "plans nothing"
        raise InputError(f"split={shorten(split)}", problem, remedy)
    if not np.isfinite(levels).all() or np.abs(levels).max() > 1e12 or np.unique(levels).size < 2:
        raise InputError(f"split={shorten(split)}", "plans the same effect everywhere", "Let some groups differ.")
    return levels


# ------------------------------------------------------------------------------------------------- the simulation


class Trial:
    """Simulated experiments with the same standard errors and, for every gap, the same noise: chances rise with it."""

    def __init__(
        self,
        groups: Line | Plane,
        pattern: Callable[[np.random.Generator], FloatArray],
        guarantee: Guarantee,
        alpha: float,
        tolerance: float,
        seed: int,
    ) -> None:
        self.pattern, self.guarantee = pattern, guarantee
        self.alpha, self.tolerance, self.seed = alpha, tolerance, seed
        self.estimates = groups.estimates
        own, between = self.estimates.own, self.estimates.covariance
        weights = (own.min(axis=0) / own) ** 2
        self.centre = np.sum(weights * self.estimates.values, axis=0) / np.sum(weights, axis=0)
        self.root = None if self.estimates.cov is None else np.linalg.cholesky(self.estimates.cov)
        self.shared = None if between is None else Correlated.of(between)
        self.detects = guarantee.detector(groups, alpha, seed)

    def with_share(self, share: float) -> Trial:
        """The same experiments where another share of the groups differs, any of them."""
        made = copy(self)
        made.pattern = _pattern(share, self.estimates)[0]
        return made

    def smallest(self, part: int, runs: int, target: float) -> float | None:
        """The smallest gap of an effect that is detected with the target chance, roughly; None where none is."""
        ways = [True] if self.estimates.scales[part].is_straight else [False, True]
        found = [
            smallest_gap(self, part, runs, target, upwards=upwards, advance=lambda _: None, precise=_ROUGHLY)
            for upwards in ways
        ]
        known = [one for one in found if one is not None]
        return max(known) if len(known) == len(ways) else None

    def chance(self, part: int, gap: float, runs: int, advance: Callable[[int], None]) -> float:
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
        return self.chance(part, gap, runs, advance), self._followed(part, gap, min(runs, _FOLLOWED), advance)[1]

    def _followed(self, part: int, gap: float, runs: int, advance: Callable[[int], None]) -> tuple[float, float]:
        """The same, every experiment followed to its clusters."""
        detected = recovered = number = 0
        cov, errors, between = self.estimates.cov, self.estimates.errors, self.estimates.covariance
        for all_levels, noise, all_seen in self._plans(runs):
            effects = self._effects(part, gap * all_levels, noise)
            for i, levels in enumerate(all_levels):
                seen = np.ones((len(levels), 1)) if all_seen is None else all_seen[i]
                errors_of: dict[str, Any] = (
                    {"se": errors * seen} if cov is None else {"cov": cov * seen[:, :, None] ** 2}
                )
                if between is not None:
                    errors_of = {"covariance": between * seen * seen.T}
                labels = self._clustered(self.estimates.replaced(effects[i], **errors_of), number)
                if labels is not None:
                    detected += 1
                    recovered += _same_partition(labels, np.unique(levels, return_inverse=True)[1])
                number += 1
                advance(1)
        return detected / runs, recovered / runs

    def _plans(self, runs: int) -> Iterator[tuple[FloatArray, FloatArray, FloatArray | None]]:
        """Levels (r, K), noise (r, K, d) and standard errors as seen over the true ones, (r, K, 1), where estimated.

        Some experiments at a time; every time the same.
        """
        rng, (groups, dims), dof = np.random.default_rng(self.seed), self.estimates.values.shape, self.estimates.dof
        some = max(1, min(runs, 2**20 // (groups * dims)))
        for start in range(0, runs, some):
            count = min(some, runs - start)
            levels = np.stack([self.pattern(rng) for _ in range(count)])
            noise, seen = rng.standard_normal((count, groups, dims)), None
            if dof is not None:
                known = np.minimum(dof, 1e9)
                seen = np.sqrt(rng.chisquare(known, size=(count, groups)) / known)[:, :, None]
                if np.isfinite(self.estimates.dof_of_all):  # one factor for the whole covariance
                    seen = np.broadcast_to(seen[:, :1], seen.shape)
                if np.isfinite(whole := self.estimates.covariance_dof):  # by which Hotelling's T² is off
                    factor = np.sqrt(rng.chisquare(whole - groups + 2, size=(count, 1, 1)) / whole)
                    seen = np.broadcast_to(factor, seen.shape)
            yield levels, noise, seen

    def _effects(self, part: int, gaps: FloatArray, noise: FloatArray) -> FloatArray:
        """Simulated estimates, (r, K, d): all at their centre but for the one effect that differs."""
        if self.shared is not None:
            effects = self.shared.noise(noise[:, :, 0])[:, :, None]
        elif self.root is not None:
            effects = np.einsum("kij,rkj->rki", self.root, noise)
        else:
            effects = noise * self.estimates.errors
        for i, scale in enumerate(self.estimates.scales):
            shown = float(scale.natural(np.array([self.centre[i]]))[0])
            away = gaps if i == part else np.zeros(1)
            room = scale.room(shown, float(away.min()), float(away.max()))
            effects[:, :, i] += scale.place(room + away)
        return np.asarray(effects)

    def _clustered(self, estimates: Estimates, number: int) -> IntArray | None:
        """Cluster numbers from the lowest to the highest effect; None when nothing is claimed."""
        guarantee = self.guarantee
        if getattr(guarantee, "draws", 0) is None:  # a simulation needs no more than tell p from α
            guarantee = replace(guarantee, draws=max(499, int(5 / self.alpha)))  # type: ignore[type-var]
        # The draws are the same for all: what they show follows from the standard errors, and is learnt once.
        is_common = self.detects is not None and not guarantee.shares(1)
        seed = self.seed if is_common else self.seed + number
        judged = guarantee.judge(equal_effects(estimates, self.tolerance), seed, refine=True)
        clusters = clusters_at(judged.path, float(np.log(self.alpha)))
        return numbered(judged.reported, judged.path.labels(clusters)) if clusters > 1 else None


def _same_partition(one: IntArray, other: IntArray) -> bool:
    """Whether two labellings put the same groups together."""
    pairs = len(set(zip(one.tolist(), other.tolist(), strict=True)))
    return pairs == np.unique(one).size == np.unique(other).size


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
    """The gap at which the chance of detection reaches the target: doubled until it does, then halved in."""
    estimates, scale = trial.estimates, trial.estimates.scales[part]

    def reaches(size: float) -> bool:
        return trial.chance(part, size if upwards else -size, runs, advance) >= target

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
