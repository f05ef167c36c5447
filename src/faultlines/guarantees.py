"""What makes a split believable: a guarantee turns groups into a tree and one adjusted p for every merge in it.

Everything to the right reads those p and nothing else. They are kept as logarithms, because a split in a large
experiment easily has a p far below the smallest double.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from faultlines.calibration import calibrated, draws_for
from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.hierarchy import Hierarchy, agglomerate, grown, partition
from faultlines.progress import progress
from faultlines.similarity import Gaussian

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates import FloatArray
    from faultlines.similarity import Notion

_EVEN = np.log(0.5)  # nobody asks for a level above one half: p beyond it are not told apart
_MOST_NUMBERS = 50_000_000  # that folds of estimates may take


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

    def shares(self, groups: int) -> tuple[float, ...]:
        """All data are used at once."""
        return ()

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
        stepdown: Once a split stands, judge each side against the null of its own groups, k of the K, at level
            α (k − 1)/(K − 1): finer structure is found where there is a coarse one.
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

    def shares(self, groups: int) -> tuple[float, ...]:
        """All data are used at once."""
        return ()

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
        """From the root downwards: the top merge of each side against the null of the groups of that side alone.

        Within a side the tree is the one those groups would have had alone, for every merge in it was the best of all.
        """
        groups, heights = len(hierarchy), hierarchy.gap_heights
        closes = np.empty(groups - 1, dtype=np.int64)
        closes[hierarchy.closing()] = np.arange(groups - 1)
        log_p, most = np.zeros(groups - 1), 0
        sides = [(0, groups, -np.inf)]
        while sides:
            start, stop, above = sides.pop()
            if stop - start < 2:
                continue
            gap = start + int(np.argmax(closes[start : stop - 1]))
            keep = np.zeros(groups, dtype=bool)
            keep[hierarchy.order[start:stop]] = True
            side = notion if stop - start == groups else notion.subset(keep)
            found = calibrated(side, heights[gap : gap + 1], draws, seed, cores=cores)
            most = max(most, found.draws)
            adjusted = max(above, float(found.log_p[0]) + np.log((groups - 1) / (stop - start - 1)))
            if adjusted >= _EVEN:
                continue
            log_p[gap] = adjusted
            sides += [(start, gap + 1, adjusted), (gap + 1, stop, adjusted)]
        return log_p, most


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
        if self.n is None:
            return
        if isinstance(self.n, bool) or not isinstance(self.n, int | np.integer) or self.n < 2:
            raise InputError(f"n={shorten(self.n)}", "must be a whole number from 2 on", "Use for example n=10.")

    def shares(self, groups: int) -> tuple[float, ...]:
        """Equal ones."""
        folds = max(2, self.n or groups)
        return (1 / folds,) * folds

    def check(self, alpha: float) -> None:
        """Any level can be asked of this guarantee."""

    def judge(self, notion: Notion, seed: int, *, refine: bool, parts: Sequence[Notion] = ()) -> Judged:
        """Adjusted p of the partition before step b = the number of folds times the least p of the steps up to b."""
        groups, shares = len(notion), self.shares(len(notion))
        folds, thinned = len(shares), not parts
        if isinstance(notion, Gaussian) and notion.n is not None and folds > notion.n.min():
            raise InputError(
                f"n={folds} folds", f"are more than the {notion.n.min():g} units of the smallest group", "Use fewer."
            )
        if thinned and folds * groups > _MOST_NUMBERS:
            raise InputError(f"n={folds} folds", f"of {groups:,} groups do not fit", "Use for example fl.Folds(n=20).")
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
            fold, other = testing[step - untested], parts[step - untested - 1]
            if isinstance(fold, Gaussian) and isinstance(other, Gaussian):
                fold = fold.weighted_by(other)
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
    last = np.arange(groups)
    for step, pair in enumerate(merges.tolist()):
        last[np.isin(last, pair)] = groups + step
    return np.array([last[np.argmax(clusters == c)] for c in range(int(clusters.max()) + 1)])


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
