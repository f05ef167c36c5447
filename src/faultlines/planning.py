"""Before an experiment: what will it be able to see? After one that found nothing: what would it have seen?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.calibration import critical_height, draws_for, line_tops
from faultlines.clustering import Clustering, checked_alpha, checked_seed, cluster
from faultlines.errors import InputError, shorten
from faultlines.estimates import ANSCOMBE, IDENTITY, Estimates, name_of
from faultlines.guarantees import Calibrated, Holdout, guarantee_of
from faultlines.hierarchy import agglomerate, partition
from faultlines.progress import progress
from faultlines.similarity import WITHIN_RATES, Gaussian, checked_tolerance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from faultlines.estimates import FloatArray, Label
    from faultlines.guarantees import Guarantee

_HALVINGS = 12


@dataclass(frozen=True, slots=True)
class Power:
    """What an experiment can see, by simulation.

    Attributes:
        gap: The difference that was asked about; None if only the smallest was wanted.
        detected: The chance that it is detected: that "all groups are alike" is rejected.
        recovered: The chance that the clusters found are exactly the planned ones.
        smallest: The smallest difference detected with chance `target`.
        target: That chance.
        alpha: Level of significance.
        guarantee: What the claims rest on.
        planned: How many groups are planned at each level, the lowest first.
        runs: Simulated experiments behind each figure.
    """

    gap: float | None
    detected: float | None
    recovered: float | None
    smallest: float
    target: float
    alpha: float
    guarantee: str
    planned: tuple[int, ...]
    runs: int

    @property
    def error(self) -> float:
        """Standard error of the two chances at most, from the number of runs."""
        return 0.5 / float(np.sqrt(self.runs))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {name: getattr(self, name) for name in self.__slots__} | {"planned": list(self.planned)}

    def __str__(self) -> str:
        total = sum(self.planned)
        who = " and ".join(map(str, self.planned)) + f" of {total} groups"
        basis = f"{self.guarantee}, α = {self.alpha:g}, {self.runs:,} simulated experiments"
        lines = []
        if self.gap is not None and self.detected is not None and self.recovered is not None:
            steps = "A gap" if len(self.planned) == 2 else "Steps"
            lines.append(
                f"{steps} of {self.gap:.4g} between {who}: detected with chance {self.detected:.2f}, "
                f"recovered exactly with chance {self.recovered:.2f}."
            )
        lines.append(f"Smallest gap detected with chance {self.target:.0%}, between {who}: {self.smallest:.3g}.")
        return "\n".join([*lines, f"({basis})"])


def power(
    data: Estimates | Clustering | npt.ArrayLike,
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
    seed: int = 0,
) -> Power:
    """The chance of detecting a planned split and of recovering it exactly, and the smallest gap one would detect.

    Args:
        data: Standard errors of the groups; with `spread`, sizes of the groups. Or the estimates, or the result, of an
            experiment that is over: their standard errors count (with `spread`, their sizes).
        gap: The difference asked about, in the units of the metric. Left out, only the smallest detectable is found.
        split: Who differs: the share of the groups that are higher by `gap`, chosen anew in every simulated experiment;
            or the labels of those groups; or one number a group, the planned effect in units of the gap (0, 0, 1, 2).
        spread: Standard deviation of the metric between units; the standard errors are then spread·√(arms²/size).
        arms: With `spread`: 2 for an experiment whose sizes are shared evenly by two arms, 1 for a plain mean.
        alpha: Level of significance.
        guarantee: See `fl.cluster`.
        tolerance: See `fl.cluster`.
        target: The chance with which the smallest gap shall be detected.
        runs: Simulated experiments behind each figure.
        seed: Of the simulation.
    """
    alpha, seed, chosen = checked_alpha(alpha), checked_seed(seed), guarantee_of(guarantee)
    chosen.check(alpha)
    estimates = _planned_estimates(data, spread, arms)
    tolerance = checked_tolerance(tolerance, estimates)
    if isinstance(runs, bool) or not isinstance(runs, int | np.integer) or runs < 20:
        raise InputError(f"runs={shorten(runs)}", "must be a whole number from 20 on", "Use runs=1000.")
    if isinstance(target, bool) or not isinstance(target, float | np.floating) or not alpha < target < 1:
        likely = (1 + alpha) / 2 if alpha >= 0.8 else 0.8
        raise InputError(
            f"target={shorten(target)}", f"must lie between alpha={alpha:g} and 1", f"Use target={likely:g}."
        )
    if gap is not None and (
        isinstance(gap, bool) or not isinstance(gap, int | float | np.number) or not 0 < gap < np.inf
    ):
        raise InputError(f"gap={shorten(gap)}", "must be a number above zero", "Give it in the units of the metric.")
    if gap is not None and estimates.scale is ANSCOMBE and gap >= 1:
        raise InputError(f"gap={gap:g}", "rates differ by less than 1 in any case", "0.01 is one point.")
    pattern, planned = _pattern(split, estimates)
    trial = _Trial(estimates, pattern, chosen, alpha, tolerance, seed)
    with progress("simulating experiments", (_HALVINGS + 8) * int(runs)) as advance:
        detected, recovered = trial.run(float(gap), int(runs), advance) if gap is not None else (None, None)
        smallest = _smallest(lambda size: trial.chance(size, int(runs), advance), estimates, tolerance, target)
    return Power(
        None if gap is None else float(gap),
        detected,
        recovered,
        smallest,
        target,
        alpha,
        chosen.name,
        planned,
        int(runs),
    )


def _planned_estimates(data: Any, spread: float | None, arms: int) -> Estimates:
    """Standard errors to plan with, as estimates whose effects do not matter."""
    if isinstance(data, Clustering):
        # A part held out is less precise than all of the data, which the next experiment will use.
        share = data.guarantee.fraction if isinstance(data.guarantee, Holdout) else 1.0
        data = data.estimates.replaced(data.estimates.theta, spread=float(np.sqrt(share)))
    known = data if isinstance(data, Estimates) else None
    try:
        flat = known is not None or np.ndim(data) == 1
    except ValueError:
        flat = False
    if not flat:
        raise InputError(f"data={shorten(data)}", "is not one number a group", "Give standard errors or estimates.")
    if known is not None and known.dims > 1:
        raise InputError(f"{known.dims} effects at once", "cannot be planned", "Plan each of them on its own.")
    if known is not None and spread is not None and known.n is None:
        raise InputError(f"spread={shorten(spread)}", "goes with sizes, and these have none", "Give n as well.")
    if known is not None and spread is None:
        planned = known
    elif spread is None:
        planned = Estimates(np.zeros(np.shape(data)), data)
    else:
        number = isinstance(spread, int | float | np.number) and not isinstance(spread, bool)
        if not number or not 0 < spread < np.inf:
            raise InputError(f"spread={shorten(spread)}", "must be a number above zero", "Give a standard deviation.")
        if arms not in (1, 2) or isinstance(arms, bool):
            raise InputError(f"arms={shorten(arms)}", "must be 1 or 2", "2 for an experiment, 1 for a plain mean.")
        if known is None:
            known = Estimates(np.zeros(np.shape(data)), np.ones(np.shape(data)), n=data)
        planned = Estimates(np.zeros(len(known)), spread * arms / np.sqrt(np.asarray(known.n)), known.labels, known.n)
    if len(planned) < 2:
        raise InputError("data", "has one group", "A split needs two groups.")
    return planned


def _pattern(split: Any, estimates: Estimates) -> tuple[Callable[[np.random.Generator], FloatArray], tuple[int, ...]]:
    """From the plan to effects in units of the gap, and how many groups there are at each level."""
    groups = len(estimates)
    if isinstance(split, int | float | np.number) and not isinstance(split, bool | np.bool_):
        if not 0 < split < 1:
            raise InputError(f"split={split}", "must lie strictly between 0 and 1", "0.3 plans three groups in ten.")
        higher = int(np.clip(round(float(split) * groups), 1, groups - 1))

        def anew(rng: np.random.Generator) -> FloatArray:
            levels = np.zeros(groups)
            levels[rng.permutation(groups)[:higher]] = 1.0
            return levels

        return anew, (groups - higher, higher)
    if not isinstance(split, list | tuple | np.ndarray):
        raise InputError(
            f"split={shorten(split)}", "is no plan", "Give a share, names of groups, or one number a group."
        )
    listed = split.tolist() if isinstance(split, np.ndarray) else list(split)
    names = {name_of(label): i for i, label in enumerate(estimates.labels)}
    wanted = [name_of(tuple(label) if isinstance(label, list) else label) for label in listed]
    are_numbers = all(isinstance(value, int | float) for value in listed)
    if len(listed) == groups and are_numbers:
        levels = np.array(listed, dtype=float)
    elif listed and all(name in names for name in wanted):
        levels = np.zeros(groups)
        levels[[names[name] for name in wanted]] = 1.0
    else:
        unknown = [name for name in wanted if name not in names]
        problem = f"no such group {unknown[0]!r}" if unknown else "plans nothing"
        raise InputError(f"split={shorten(split)}", problem, "Give a share, names of groups, or one number a group.")
    if not np.isfinite(levels).all() or np.unique(levels).size < 2:
        raise InputError(f"split={shorten(split)}", "plans the same effect everywhere", "Let some groups differ.")
    levels -= levels.min()
    counts = tuple(np.unique(levels, return_counts=True)[1].tolist())
    return lambda _: levels, counts


class _Trial:
    """Simulated experiments with the same standard errors and, for every gap, the same noise: chances rise with it."""

    def __init__(
        self,
        estimates: Estimates,
        pattern: Callable[[np.random.Generator], FloatArray],
        guarantee: Guarantee,
        alpha: float,
        tolerance: float,
        seed: int,
    ) -> None:
        self.estimates, self.pattern, self.guarantee = estimates, pattern, guarantee
        self.alpha, self.tolerance, self.seed = alpha, tolerance, seed
        self.centre = float(np.average(estimates.theta, weights=(estimates.se.min() / estimates.se) ** 2))
        self.critical: float | None = None
        if isinstance(guarantee, Calibrated) and not guarantee.stepdown and estimates.dof is None:
            # One threshold for all of them: the null depends on the standard errors alone.
            notion = Gaussian(estimates, tolerance)
            self.critical = critical_height(notion, alpha, guarantee.draws or draws_for(notion), seed)

    def chance(self, gap: float, runs: int, advance: Callable[[int], None]) -> float:
        """Share of experiments in which the split is detected."""
        if self.critical is None:
            return self.run(gap, runs, advance)[0]
        notion, detected = Gaussian(self.estimates, self.tolerance), 0
        weight = np.square(1 / self.estimates.se)
        for levels, noise, _ in self._plans(runs):
            theta = self._truth(gap * levels) + self.estimates.se * noise
            theta -= 0.0 if notion.line_kernel == WITHIN_RATES else self.centre
            tops = line_tops(theta, weight, notion.line_kernel, self.tolerance)
            detected += int(np.sum(tops > self.critical))
            advance(len(levels))
        return detected / runs

    def run(self, gap: float, runs: int, advance: Callable[[int], None]) -> tuple[float, float]:
        """Shares of experiments in which the split is detected, and recovered exactly."""
        detected = recovered = number = 0
        dof, se = self.estimates.dof, self.estimates.se
        known = None if dof is None else np.minimum(dof, 1e9)
        for all_levels, all_noise, rng in self._plans(runs):
            for levels, noise in zip(all_levels, all_noise, strict=True):
                seen = se if known is None else se * np.sqrt(rng.chisquare(known) / known)
                theta = self._truth(gap * levels) + se * noise
                labels = self._clustered(Estimates(theta, seen, dof=dof, scale=self.estimates.scale), number)
                if labels is not None:
                    detected += 1
                    recovered += np.array_equal(labels, np.unique(levels, return_inverse=True)[1] + 1)
                number += 1
                advance(1)
        return detected / runs, recovered / runs

    def _plans(self, runs: int) -> Iterator[tuple[FloatArray, FloatArray, np.random.Generator]]:
        """Levels and noise of the simulated experiments, some at a time; every time the same."""
        rng = np.random.default_rng(self.seed)
        some = max(1, min(runs, 2**20 // len(self.estimates)))
        for start in range(0, runs, some):
            count = min(some, runs - start)
            levels = np.stack([self.pattern(rng) for _ in range(count)])
            yield levels, rng.standard_normal(levels.shape), rng

    def _truth(self, effects: FloatArray) -> FloatArray:
        """True values on the scale that is compared on."""
        if self.estimates.scale is IDENTITY:
            return self.centre + effects
        rate = float(self.estimates.scale.natural(np.array([self.centre]))[0])
        if self.estimates.scale is ANSCOMBE:
            rate = min(rate, max(1 - float(effects.max()), 0.0))  # there is room above it for the gap
        return self.estimates.scale.place(rate + effects)

    def _clustered(self, estimates: Estimates, number: int) -> Any:
        """Cluster numbers from the lowest to the highest effect; None when nothing is claimed."""
        if self.critical is None:
            guarantee = self.guarantee
            if isinstance(guarantee, Calibrated) and guarantee.draws is None:
                guarantee = Calibrated(draws=max(499, int(5 / self.alpha)), stepdown=guarantee.stepdown)
            found = cluster(
                estimates, alpha=self.alpha, guarantee=guarantee, tolerance=self.tolerance, seed=self.seed + number
            )
            return found.labels if found.rejected else None
        notion = Gaussian(estimates, self.tolerance)
        tree = agglomerate(notion)
        is_open = tree.gap_heights > self.critical
        return partition(notion, tree, is_open, refine=True) if is_open.any() else None


def _smallest(chance: Callable[[float], float], estimates: Estimates, tolerance: float, target: float) -> float:
    """The gap at which the chance of detection reaches the target: doubled until it does, then halved in."""
    natural = estimates.se * estimates.scale.slope(estimates.theta)
    low, high = tolerance, tolerance + float(np.median(natural if natural.min() > 0 else estimates.se))
    is_rate = estimates.scale is ANSCOMBE
    for _ in range(40):
        high = min(high, (low + 1) / 2) if is_rate else high
        if chance(high) >= target:
            break
        low, high = high, high * 2
    else:
        raise InputError(
            f"target={target:g}",
            "is not reached by any gap, however large",
            "Plan more groups that differ, or larger ones.",
        )
    for _ in range(_HALVINGS):
        if high - low < 0.01 * high:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if chance(middle) >= target else (middle, high)
    return high
