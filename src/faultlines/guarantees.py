"""What makes a split believable: a guarantee turns groups into a tree and one adjusted p for every merge in it.

Everything to the right reads those p and nothing else. They are kept as logarithms, because a split in a large
experiment easily has a p far below the smallest double.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from faultlines.calibration import calibrated, draws_for
from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.hierarchy import Hierarchy, agglomerate, grown, partition, refined_line
from faultlines.progress import progress
from faultlines.similarity import Gaussian

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates import FloatArray
    from faultlines.similarity import IntArray, Notion

_FOR_BORDERS = 0.75  # of the level; the rest is kept back for groups that no border puts where they belong
_EVEN = np.log(0.5)  # nobody asks for a level above one half: p beyond it are not told apart
_MOST_NUMBERS = 10_000_000  # that folds of estimates may take


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a guarantee says about one tree.

    Attributes:
        log_pvalues: Natural logarithm of the adjusted p of the merge that closes each gap, in the order of the gaps.
        facts: How it was found, for the reader of a result: draws, seed and the like.
    """

    log_pvalues: FloatArray
    facts: dict[str, int | float | str]

    def __post_init__(self) -> None:
        self.log_pvalues.setflags(write=False)


class Judged(NamedTuple):
    """A tree, its p-values, the groups it was built from, and those that are reported: others where data are split."""

    hierarchy: Hierarchy
    judgement: Judgement
    explored: Notion
    reported: Notion


@dataclass(frozen=True, slots=True)
class Bonferroni:
    """The paper's Algorithm 2: a merge is a split when its p, as if chosen beforehand, is below α/K².

    Provided for comparison. It does not hold what it promises: merging sorts the noise first, and with 50 groups of
    pure noise and equal standard errors it claims clusters in 98 of 100 data sets at α = 0.05.
    """

    name: ClassVar[str] = "bonferroni"

    def check(self, alpha: float) -> None:
        """Any level can be asked of this guarantee."""

    def judge(self, notion: Notion, seed: int, *, refine: bool, parts: Sequence[Notion] = ()) -> Judged:
        """Adjusted p = K² times the p of the pair."""
        hierarchy = agglomerate(notion)
        log_p = notion.log_pointwise(hierarchy.gap_heights) + 2 * np.log(len(notion))
        return Judged(hierarchy, Judgement(np.minimum(log_p, 0.0), {}), notion, notion)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The chance that groups without any difference would show a merge as high as this one somewhere in their tree.

    Groups that are all alike are drawn again and again with the standard errors at hand, and each draw is
    agglomerated. A draw has a direction (its pattern of noise) and a length (Cochran's Q); the two are independent, the
    height of the top merge is proportional to the squared length, and the law of that length is known to be χ² on
    K − 1 degrees of freedom. So only directions need drawing: p is the average over directions, the data's own
    included, of the chance that the length reaches the height. Under the null that p is exactly uniform, whatever the
    number of draws and however small the p, and it needs no fitted tail. See docs/method.md.

    With `dof` the standard errors are estimates themselves. Draws then carry estimated variances as well, around true
    ones that are spread as widely as the data's, less the spread that estimation adds. For a `Similarity` draws are
    counted, so p does not fall below 1/(draws + 1).

    Args:
        draws: How many draws at most. Default: 10,000, fewer for very many groups (300 for a million). They are cut
            short after a tenth when p is clearly large (above 0.2), which keeps p valid.
        stepdown: Once a split stands, judge each cluster against the null of its own groups, k of the K, at level
            ¾ α (k − 1)/(K − 1): finer structure is found where there is a coarse one. For one effect on a line.
    """

    draws: int | None = None
    stepdown: bool = False
    name: ClassVar[str] = "calibrated"

    def __post_init__(self) -> None:
        if not isinstance(self.stepdown, bool | np.bool_):
            raise InputError(f"stepdown={shorten(self.stepdown)}", "must be true or false", "Use stepdown=True.")
        if self.draws is None:
            return
        if isinstance(self.draws, bool) or not isinstance(self.draws, int | np.integer) or self.draws < 1:
            raise InputError(f"draws={shorten(self.draws)}", "must be a whole number above 0", "Use draws=10_000.")

    def check(self, alpha: float) -> None:
        """Refuse a number of draws, if one was asked for, of which less than one is expected beyond alpha."""
        if self.draws is not None and (self.draws + 1) * alpha < 1:
            raise InputError(
                f"draws={self.draws}",
                f"too few for alpha={alpha:g}",
                f"Use at least draws={int(np.ceil(1 / alpha)) - 1}, or leave draws out.",
            )

    def judge(
        self, notion: Notion, seed: int, *, refine: bool, parts: Sequence[Notion] = (), cores: int | None = None
    ) -> Judged:
        """Adjusted p = P(top merge of groups that are all alike ≥ height)."""
        hierarchy = agglomerate(notion)
        draws = self.draws or draws_for(notion)
        if self.stepdown:
            log_p, draws = self._step_down(notion, hierarchy, draws, seed, cores)
        else:
            log_p, draws = calibrated(notion, hierarchy.gap_heights, draws, seed, cores=cores)
        facts: dict[str, int | float | str] = {"draws": draws, "seed": seed}
        return Judged(hierarchy, Judgement(log_p, facts | ({"stepdown": 1} if self.stepdown else {})), notion, notion)

    def _step_down(
        self, notion: Notion, hierarchy: Hierarchy, draws: int, seed: int, cores: int | None
    ) -> tuple[FloatArray, int]:
        """How many clusters does it take until each could be one? Against the null of its own groups.

        m clusters are not enough when one of them, k of the K groups, splits at level ¾ α (k − 1)/(K − 1). So that some
        groups on the wrong side of a border are not taken for a split of their own, there are several ways to make m
        clusters: by splitting where it was needed and by cutting the tree, each with its borders moved to the nearest
        estimate, or with regard to the sizes of the clusters. When all is well in one of them, m are enough.
        """
        if not isinstance(notion, Gaussian) or notion.estimates.dims > 1:
            raise InputError(
                "stepdown=True", "works with one effect on a line", "Leave it out, or cluster the effects one by one."
            )
        groups, order = len(hierarchy), hierarchy.order
        theta, se = notion.estimates.theta[order], notion.estimates.se[order]
        closes = hierarchy.closes()
        log_p, is_open, most = np.zeros(groups - 1), np.zeros(groups - 1, dtype=bool), 0
        known: dict[tuple[int, int], float] = {}

        def split(start: int, stop: int) -> float:
            """Adjusted log p of a split of the groups at these places."""
            nonlocal most
            if stop - start < 2:
                return 0.0
            if (start, stop) not in known:
                keep = np.zeros(groups, dtype=bool)
                keep[order[start:stop]] = True
                side = notion if stop - start == groups else notion.subset(keep)
                found = calibrated(side, agglomerate(side).heights[-1:], draws, seed, cores=cores)
                most = max(most, found.draws)
                rest = 0.0 if stop - start == groups else -np.log(_FOR_BORDERS)
                known[start, stop] = min(float(found.log_p[0]) + np.log((groups - 1) / (stop - start - 1)) + rest, 0.0)
            return known[start, stop]

        reached = -np.inf
        with progress("judging clusters by their own groups", groups - 1) as advance:
            for clusters in range(1, groups):
                starts = hierarchy.places(is_open)
                ways = []
                for cut in (starts, hierarchy.places(closes >= groups - clusters)):
                    near = refined_line(notion.estimates, order, cut)
                    ways += [near, _by_size(theta, se, near)]
                judged = [np.array([split(a, b) for a, b in pairwise([*way.tolist(), groups])]) for way in ways]
                likeliest = max(judged, key=np.min)
                reached = max(reached, float(likeliest.min()))
                if reached >= _EVEN:
                    break
                # The cluster that is least like one gives way, at its top merge.
                ends = [*starts[1:].tolist(), groups]
                divisible = [c for c in np.argsort(likeliest).tolist() if ends[c] - starts[c] > 1]
                start, stop = int(starts[divisible[0]]), ends[divisible[0]]
                gap = start + int(np.argmax(closes[start : stop - 1]))
                is_open[gap] = True
                log_p[gap] = reached
                advance(1)
        return log_p, most


def _by_size(theta: FloatArray, se: FloatArray, starts: IntArray) -> IntArray:
    """Borders moved until each group is where it is most likely from, large clusters being more likely than small."""
    for _ in range(100):
        sizes = np.diff(starts, append=theta.size)
        weight = se**-2.0
        means = np.add.reduceat(weight * theta, starts) / np.add.reduceat(weight, starts)
        distance = ((theta[:, None] - means) / se[:, None]) ** 2 - 2 * np.log(sizes / theta.size)
        side = np.argmin(distance, axis=1)
        # Precise groups are told apart sooner than others, so clusters need not be runs; borders go where most agree.
        moved = np.concatenate(([0], np.cumsum(np.bincount(side, minlength=starts.size))[:-1]))
        if np.array_equal(moved, starts) or np.any(np.diff(moved, append=theta.size) <= 0):
            break
        starts = moved
    return starts


def _check_unit(unit: object) -> None:
    if unit is not None and (not isinstance(unit, str) or not unit):
        raise InputError(f"unit={shorten(unit)}", "is not the name of a column", "Give a column by its name.")


def splitter(seed: int) -> np.random.Generator:
    """The random numbers that split data.

    A stream of its own: simulated data made with NumPy's plain generator and the same seed would otherwise be thinned
    with the very noise they were made of.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x5917,)))


@dataclass(frozen=True, slots=True)
class Holdout:
    """The paper's two-part split: one part of the data makes the tree, the other says how far to believe it.

    On the held-out part, "all pairs of clusters differ" is tested for m = 2, 3, … clusters in that order, each at full
    α, until one fails; the adjusted p of a level is the largest up to it. The order is fixed beforehand, so the chance
    of any false rejection is α. Estimates and intervals of the clusters come from the held-out part, which did not
    choose their members, and are honest.

    Rows are split by a hash of their unit, inside the engine; estimates, and rows without a unit, by Gaussian
    thinning: to each estimate noise is added in one part and taken away in the other, so that the parts are
    independent.

    Args:
        fraction: The share that is held out.
        unit: For rows: the column whose values are kept together; that of the metric by default.
    """

    fraction: float = 0.5
    unit: str | None = None
    name: ClassVar[str] = "holdout"

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        number = isinstance(self.fraction, int | float | np.number) and not isinstance(self.fraction, bool)
        if not number or not 0 < self.fraction < 1:
            raise InputError(
                f"fraction={shorten(self.fraction)}", "must lie strictly between 0 and 1", "Use fraction=0.5."
            )

    def shares(self, groups: int) -> tuple[float, ...]:
        """What explores, and what is held out."""
        return (1 - float(self.fraction), float(self.fraction))

    def check(self, alpha: float) -> None:
        """Any level can be asked of this guarantee."""

    def judge(self, notion: Notion, seed: int, *, refine: bool, parts: Sequence[Notion] = ()) -> Judged:
        """Adjusted p of m clusters = the largest, over 2 … m, of the p of their most similar pair."""
        thinned = not parts
        explored, held = parts or notion.divided(self.shares(len(notion)), splitter(seed))
        if isinstance(held, Gaussian) and isinstance(explored, Gaussian):
            held = held.weighted_by(explored)
        hierarchy = agglomerate(explored)
        opening = hierarchy.closing()[::-1]
        log_p, is_open = np.zeros(opening.size), np.zeros(opening.size, dtype=bool)
        reached = -np.inf
        with progress("judging on held-out data", opening.size) as advance:
            for gap in opening.tolist():
                is_open[gap] = True
                clusters = partition(explored, hierarchy, is_open, refine=refine)
                reached = max(reached, held.most_similar(clusters - 1).log_p)
                if reached >= _EVEN:
                    break
                log_p[gap] = reached
                advance(1)
        facts = {"fraction": float(self.fraction), "split": "thinning" if thinned else "units", "seed": seed}
        return Judged(hierarchy, Judgement(log_p, facts), explored, held)


@dataclass(frozen=True, slots=True)
class Folds:
    """The paper's K-part split: every step of the algorithm, test and merge, uses a fold of the data of its own.

    Step b tests on fold b alone whether all clusters differ from each other, each at level α/K; if not, it merges the
    two that look most similar there. Each p is independent of the merges before it, which is what the paper's theorem
    asks for, at the price of most of the power.

    Args:
        n: How many folds; as many as there are groups by default, as in the paper. With fewer, the first one merges
            down to n clusters without testing, and the others test.
        unit: For rows: the column whose values are kept together; that of the metric by default.
    """

    n: int | None = None
    unit: str | None = None
    name: ClassVar[str] = "folds"

    def __post_init__(self) -> None:
        _check_unit(self.unit)
        if self.n is None:
            return
        if isinstance(self.n, bool) or not isinstance(self.n, int | np.integer) or self.n < 2:
            raise InputError(f"n={shorten(self.n)}", "must be a whole number from 2 on", "Use for example n=10.")

    def shares(self, groups: int) -> tuple[float, ...]:
        """Equal ones."""
        folds = max(2, self.n or groups)
        if folds * max(groups, 1) > _MOST_NUMBERS:
            raise InputError(f"n={folds} folds", f"of {groups:,} groups do not fit", "Use for example fl.Folds(n=20).")
        return (1 / folds,) * folds

    def check(self, alpha: float) -> None:
        """Any level can be asked of this guarantee."""

    def judge(self, notion: Notion, seed: int, *, refine: bool, parts: Sequence[Notion] = ()) -> Judged:
        """Adjusted p of the partition before step b = the number of folds times the least p of the steps up to b."""
        groups = len(notion)
        shares = tuple(1 / len(parts) for _ in parts) or self.shares(groups)
        folds, thinned = len(shares), not parts
        if isinstance(notion, Gaussian) and notion.n is not None and folds > notion.n.min():
            raise InputError(
                f"n={folds} folds", f"are more than the {notion.n.min():g} units of the smallest group", "Use fewer."
            )
        parts = parts or notion.divided(shares, splitter(seed))
        number, clusters = np.arange(groups), np.arange(groups)
        merges, log_p = np.empty((groups - 1, 2), dtype=np.int64), np.zeros(groups - 1)
        testing = list(parts)
        untested = max(0, groups - folds)
        least = 0.0
        if untested:
            first = agglomerate(testing.pop(0))
            merges[:untested] = first.merges[:untested]
            is_open = np.ones(groups - 1, dtype=bool)
            is_open[first.closing()[:untested]] = False
            clusters = first.labels(first.places(is_open)) - 1
            number = _numbers(merges[:untested], clusters, groups)
        for step in range(untested, groups - 1):
            place = step - untested + (len(parts) - len(testing))
            fold, before = parts[place], parts[place - 1]
            if place > 0 and isinstance(fold, Gaussian) and isinstance(before, Gaussian):
                fold = fold.weighted_by(before)
            pair = fold.most_similar(clusters)
            least = min(least, pair.log_p + np.log(folds))
            log_p[step] = least
            a, b = sorted((pair.a, pair.b))
            merges[step] = sorted((number[a], number[b]))
            number = np.delete(number, b)
            number[a] = groups + step
            clusters = np.where(clusters == b, a, clusters - (clusters > b))
        hierarchy = grown(merges, -log_p)
        at_gap = np.zeros(groups - 1)
        at_gap[hierarchy.closing()] = log_p
        facts: dict[str, int | float | str] = {
            "folds": folds,
            "split": "thinning" if thinned else "units",
            "seed": seed,
        }
        return Judged(hierarchy, Judgement(at_gap, facts), notion, notion)


def _numbers(merges: np.ndarray, clusters: np.ndarray, groups: int) -> np.ndarray:
    """The number, in scipy's way, of each cluster that the first merges have left."""
    whole = np.arange(groups + len(merges))  # the last cluster that each has become part of
    for step in range(len(merges) - 1, -1, -1):
        whole[merges[step]] = whole[groups + step]
    numbers = np.empty(int(clusters.max()) + 1, dtype=np.int64)
    numbers[clusters] = whole[:groups]
    return numbers


Guarantee = Bonferroni | Calibrated | Holdout | Folds
_BY_NAME: dict[str, type[Guarantee]] = {
    "calibrated": Calibrated,
    "bonferroni": Bonferroni,
    "holdout": Holdout,
    "folds": Folds,
}


def guarantee_of(value: str | Guarantee) -> Guarantee:
    """A guarantee given by its name or as itself."""
    if isinstance(value, Bonferroni | Calibrated | Holdout | Folds):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]()
    raise InputError(f"guarantee={shorten(value)}", "is not known", did_you_mean(str(value), _BY_NAME))
