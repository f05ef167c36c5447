"""The paper's own procedures: two-part split, K-part split (at once or while data come in), and p < α/K².

The two-part split is made several times over: one part of the data makes the tree, the other tests it.

One split is a matter of luck: with another seed a difference may be reported or not. Each of S random splits
gives a p that is valid on its own, and they are combined into one that is valid whatever their dependence:

    p = (S/k) · p_(k),    the k-th smallest of the S p, k = ⌈γ S⌉,

the quantile rule of Meinshausen, Meier and Bühlmann (2009) with γ fixed at 1/10. Proof: where p < α, k splits or more
have a p below kα/S. On average at most S · kα/S = kα splits have so small a p although nothing differs, so by Markov
the probability of k of them or more is at most α. This holds for m = 2, 3, … clusters at once, because each split
tests them in that order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.special import chdtri

from faultlines import checks
from faultlines.core import kernels
from faultlines.core.comparison import Comparison
from faultlines.core.custom import Similarity
from faultlines.core.distributions import log_chi_square_1_tail
from faultlines.core.normal import Line, Plane, as_comparison
from faultlines.core.tree import Hierarchy, build_tree, cut_tree
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import Key, Label, labels_of, name_of
from faultlines.guarantees.base import (
    LOG_HALF,
    Detector,
    Facts,
    GuaranteeDefaults,
    GuaranteedPath,
    describe_split,
    split_generator,
)
from faultlines.guarantees.state import check_counts, check_number, check_type, label_key, plain_label, read_labels
from faultlines.progress import progress
from faultlines.types import BoolArray, FloatArray, IntArray

# ---------- The held-out test of two clusters for many rows of effects at once: what simulations of a holdout need.


_ROUNDS = 1000


def held_out_log_pvalues(
    theta: FloatArray, se: FloatArray, fraction: float, rng: np.random.Generator, *, refine: bool = True
) -> FloatArray:
    """Log p of "all groups have the same effect" in every row: two clusters of one part, compared on the other.

    Args:
        theta: Effects, (r, K), with K of two or more.
        se: Their standard errors, common, (K,).
        fraction: The share that is held out.
        rng: Of the noise that divides every row (Gaussian thinning).
        refine: Whether groups at the border are moved to the nearer cluster.
    """
    noise, ratio = se * rng.standard_normal(theta.shape), np.sqrt(fraction / (1 - fraction))
    explored, held = theta + ratio * noise, theta - noise / ratio
    order = np.argsort(explored, axis=1)
    weight = ((se.min() / se) ** 2)[order]
    explored, held = (np.take_along_axis(part, order, axis=1) for part in (explored, held))
    explored = explored - explored[:, :1]
    first = _count_below_top(explored / se.min(), weight)
    if refine:
        first = _move_borders(explored, weight, first)
    mass, means = _two_means(held - held[:, :1], weight, first)
    ratio_of_means = (means[:, 1] - means[:, 0]) ** 2 * fraction / (se.min() ** 2 * (1 / mass[:, 0] + 1 / mass[:, 1]))
    return log_chi_square_1_tail(ratio_of_means)


def _count_below_top(theta: FloatArray, weight: FloatArray) -> IntArray:
    """How many groups are below the last merge of every sorted row."""
    heights, cut = np.empty(theta.shape[1] - 1), np.empty(len(theta), dtype=np.int64)
    for i, (values, weights) in enumerate(zip(theta, weight.copy(), strict=True)):
        kernels.merge_line(values, weights, heights)
        cut[i] = int(np.argmax(heights)) + 1
    return cut


def _two_means(theta: FloatArray, weight: FloatArray, first: IntArray) -> tuple[FloatArray, FloatArray]:
    """Masses and weighted means, (r, 2), of the first groups of every row and of the others."""
    is_first = np.arange(theta.shape[1]) < first[:, None]
    parts = [np.where(side, weight, 0.0) for side in (is_first, ~is_first)]
    mass = np.stack([part.sum(axis=1) for part in parts], axis=1)
    return mass, np.stack([(part * theta).sum(axis=1) for part in parts], axis=1) / mass


def _move_borders(theta: FloatArray, weight: FloatArray, first: IntArray) -> IntArray:
    """Borders moved to the middle of the two means until none moves; a move that would empty a side is not made."""
    for _ in range(_ROUNDS):
        means = _two_means(theta, weight, first)[1]
        moved = np.sum(theta < means.mean(axis=1)[:, None], axis=1)
        moved = np.where((moved == 0) | (moved == theta.shape[1]), first, moved)
        if np.array_equal(moved, first):
            break
        first = moved
    return first


# --------------------


SPLITS = 25
_AGREEING = 0.1  # share of the splits whose p counts; measured beside others in docs/guarantees.md
_USUAL = 0.05  # the level of the clusters by which splits are compared
_MOST_SPLITS = 10_000
_CHUNK = 50_000  # groups at a time


@dataclass(frozen=True, slots=True)
class Holdout(GuaranteeDefaults):
    """The paper's two-part split: one part of the data makes the tree, the other tests it.

    On the held-out part, "all pairs of clusters differ" is tested for m = 2, 3, … clusters in that order, each at full
    α, until one fails; the adjusted p of a level is the largest up to it. The order is fixed beforehand, so the
    probability of any false rejection is α. This is done for several random splits: p is ten times the 10% quantile of
    theirs, which is valid however they depend on each other, and depends far less on the seed.

    The partition, its estimates and its intervals are those of one split: of the half with p nearest to the median, the
    one whose clusters agree best with those of all splits. Its estimates come from its held-out part, which did not
    choose the members, and to take neither the luckiest nor the unluckiest split leaves them without bias.

    Rows are split by a hash of their unit, inside the engine; estimates, and rows without a unit, by Gaussian
    thinning: to each estimate noise is added in one part and taken away in the other, so that the parts are
    independent.

    Args:
        fraction: The share that is held out.
        unit: For rows: the column whose values are kept together; that of the metric by default.
        splits: How many random splits are combined; 1 is the paper's single split.

    Raises:
        InputError: If the fraction does not lie between 0 and 1, or there is no split.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]), guarantee=fl.Holdout(fraction=0.3)).n_clusters
        2
    """

    fraction: float = 0.5
    unit: str | None = None
    splits: int = SPLITS
    name: ClassVar[str] = "holdout"
    explanation: ClassVar[str] = "holdout: clusters found on one part of the data, tested and estimated on the other"
    intervals_hold: ClassVar[bool] = True
    reports_all_data: ClassVar[bool] = False
    holds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.unit is not None:
            checks.column("unit", self.unit)
        problem = "must lie strictly between 0 and 1"
        checks.number(
            "fraction", self.fraction, problem, "Use {fraction}.", low=1e-12, high=1 - 1e-12, settings={"fraction": 0.5}
        )
        problem = f"must be a whole number from 1 to {_MOST_SPLITS:,}"
        remedy, example = "Use for example {splits}.", {"splits": SPLITS}
        checks.number("splits", self.splits, problem, remedy, low=1, high=_MOST_SPLITS, whole=True, settings=example)

    def shares(self, groups: int) -> tuple[float, ...]:
        """The part that explores, and the part that is held out."""
        return (1 - float(self.fraction), float(self.fraction))

    def find_path(
        self,
        comparison: Comparison,
        seed: int,
        *,
        refine: bool,
        parts: Sequence[Comparison] = (),
        cores: int | None = None,
        margins: bool = False,
    ) -> GuaranteedPath:
        """Adjusted p of m clusters = the largest, over 2 … m, of the p of their most similar pair; then combined."""
        splits = len(parts) // 2 or int(self.splits)

        def split_of(number: int) -> Sequence[Comparison]:
            if parts:
                return parts[2 * number : 2 * number + 2]
            return comparison.split(self.shares(len(comparison)), split_generator(seed, number))

        log_pvalues, clusters = [], []
        with progress("testing on held-out data", splits) as advance:
            for number in range(splits):
                result = _test_split(*split_of(number), refine=refine)
                log_pvalues.append(result.log_pvalues)
                clusters.append(result.clusters)
                advance(1)
        if parts:
            clusters = _restrict_to_common([part_of_split.keys for part_of_split in parts[::2]], clusters)
        place = _choose_representative(log_pvalues, clusters)
        if splits > 1:  # splits of a million groups are not kept, but made again
            result = _test_split(*split_of(place), refine=refine)
        opening, combined = result.hierarchy.merge_order()[::-1], _combine(log_pvalues)
        combined = _limit_to_shown(combined, result.log_pvalues)
        log_p, common = np.zeros(opening.size), min(opening.size, combined.size)
        log_p[opening[:common]] = combined[:common]
        facts: Facts = {"fraction": float(self.fraction), "split": "units" if parts else "thinning", "seed": seed}
        facts |= {"splits": splits, "shown split": place + 1} if splits > 1 else {}
        path = cut_tree(result.explored, result.hierarchy, log_p, refine=refine)
        part = 2 * place + 1 if parts else None
        return GuaranteedPath(path, result.hierarchy, result.held, result.explored, facts, comparison.height_name, part)

    def make_detector(self, groups: Line | Plane, alpha: float, seed: int) -> Detector | None:
        """Every split of all effects at once, where standard errors are common and there is no tolerance."""
        estimates = groups.estimates
        if not groups.can_scan or estimates.dof is not None or estimates.covariance is not None or len(groups) < 2:
            return None
        se, k = estimates.errors[:, 0], _order_statistic(self.splits)

        def detects(effects: FloatArray, _: FloatArray | None) -> BoolArray:
            small = np.zeros(len(effects), dtype=np.int64)
            for number in range(self.splits):
                log_p = held_out_log_pvalues(effects[..., 0], se, self.fraction, split_generator(seed, number))
                small += log_p < np.log(alpha * k / self.splits)
            return small >= k

        return detects

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """Which part did what."""
        held = float(facts["fraction"])
        how = describe_split(facts, comparison)
        parts = f"Method: clusters from {1 - held:.0%} of the data, tested and estimated on the other {held:.0%}"
        if "splits" not in facts:
            return [f"{parts} (split by {how}, seed {facts['seed']})."]
        return [
            f"{parts} (split by {how}, seed {facts['seed']}). The p-value combines {int(facts['splits'])} random "
            "splits. Of those with p near the median, clusters and intervals come from the one that agrees best with "
            "the others."
        ]


class _SplitResult(NamedTuple):
    """One split.

    Attributes:
        explored: The part that makes the tree.
        held: The part that is held out.
        hierarchy: The tree.
        log_pvalues: Log p of 2, 3, … clusters on the held-out part, while p is below one half.
        clusters: Its clusters at the usual level by itself, from 0 on; two, where it has none.
    """

    explored: Comparison
    held: Comparison
    hierarchy: Hierarchy
    log_pvalues: list[float]
    clusters: IntArray


def _test_split(explored: Comparison, held: Comparison, *, refine: bool) -> _SplitResult:
    held = held.with_weights_of(explored)
    hierarchy = build_tree(explored)
    opening = hierarchy.merge_order()[::-1]
    is_open, log_pvalues = np.zeros(opening.size, dtype=bool), [-np.inf]
    own = np.zeros(len(explored), dtype=np.int64)
    for gap in opening.tolist():
        is_open[gap] = True
        clusters = hierarchy.labels(hierarchy.starts(is_open)) - 1
        clusters = explored.refine(clusters) if refine else clusters
        log_p = max(log_pvalues[-1], held.most_similar_pair(clusters).log_p)
        if log_p < np.log(_USUAL) or len(log_pvalues) == 1:
            own = clusters
        if log_p >= LOG_HALF:
            break
        log_pvalues.append(log_p)
    return _SplitResult(explored, held, hierarchy, log_pvalues[1:], own)


def _restrict_to_common(keys: Sequence[Sequence[Key]], clusters: Sequence[IntArray]) -> list[IntArray]:
    """Clusters of the groups that are in every split: of rows, a group can be too small in some."""
    common = set(keys[0]).intersection(*keys[1:])
    return [
        labels[[key in common for key in own]] if len(own) > len(common) else labels
        for own, labels in zip(keys, clusters, strict=True)
    ]


def _choose_representative(log_pvalues: Sequence[Sequence[float]], clusters: Sequence[IntArray]) -> int:
    """The split to show: of the half with p nearest to the median, the one that agrees best with all splits."""
    first = np.array([log_p[0] if log_p else 0.0 for log_p in log_pvalues])
    by_p, splits = np.argsort(first, kind="stable"), len(log_pvalues)
    middle = by_p[splits // 4 : splits - splits // 4]
    # From the median outwards, so that of several that agree equally well it is the one nearest to the median.
    middle = middle[np.argsort(np.abs(2 * np.arange(middle.size) - middle.size + 1), kind="stable")]
    return int(middle[np.argmax(rand_agreement(clusters)[middle].sum(axis=1))])


def rand_agreement(clusters: Sequence[IntArray]) -> FloatArray:
    """The adjusted Rand index of every two partitions of the same groups, by one product of their indicators."""
    sizes = [int(labels.max(initial=0)) + 1 for labels in clusters]
    starts, groups = np.concatenate(([0], np.cumsum(sizes)[:-1])), clusters[0].size
    common = np.zeros((sum(sizes), sum(sizes)))
    for chunk in range(0, groups, _CHUNK):
        part = np.stack([labels[chunk : chunk + _CHUNK] for labels in clusters], axis=1) + starts
        is_in = np.zeros((len(part), sum(sizes)))
        np.put_along_axis(is_in, part, 1.0, axis=1)
        common += is_in.T @ is_in
    squares = np.add.reduceat(np.add.reduceat(common**2, starts, axis=0), starts, axis=1)
    pairs = (squares - groups) / 2  # of groups that are together in both
    own, every = np.diag(pairs), max(groups * (groups - 1) / 2, 1.0)
    expected, most = own[:, None] * own / every, (own[:, None] + own) / 2
    is_trivial = most - expected < 1e-12 * every  # all in one cluster, or each in its own, in both
    return np.asarray(np.where(is_trivial, 1.0, (pairs - expected) / np.where(is_trivial, 1.0, most - expected)))


def _order_statistic(splits: int) -> int:
    """How many of the smallest p the rule above looks at."""
    return ceil(_AGREEING * splits)


def _combine(log_pvalues: Sequence[Sequence[float]]) -> FloatArray:
    """Log p of 2, 3, … clusters from those of all splits: the quantile rule above."""
    splits, levels = len(log_pvalues), max(map(len, log_pvalues))
    table = np.zeros((splits, levels))
    for row, log_p in zip(table, log_pvalues, strict=True):
        row[: len(log_p)] = log_p
    k = _order_statistic(splits)
    return np.asarray(np.minimum(np.sort(table, axis=0)[k - 1] + np.log(splits / k), 0.0))


def _limit_to_shown(combined: FloatArray, shown: Sequence[float]) -> FloatArray:
    """Log p of 2, 3, … clusters, from three on no smaller than those of the split whose clusters are shown.

    "Three clusters" means other clusters in every split: mixed ones, which do differ, in some, and halves of one true
    cluster in another. All splits together reject what the shown one need not: two true clusters 8 se apart had equal
    clusters among the shown ones in 12% of 150 data sets, with this limit in none. Three clusters 6 se apart are
    reported as three in 97% of 75 data sets, without it in 66%.
    """
    own = np.zeros(combined.size)
    own[: len(shown)] = shown[: combined.size]
    own[:1] = -np.inf  # whether anything differs is asked of all splits
    return np.asarray(np.maximum(combined, own))


# ----------------------------------------------------------------------------------------------------- the K-part split

# The paper's K-part split: every step of the algorithm uses a fold of the data of its own.


_MOST_NUMBERS = 10_000_000  # that folds of estimates may take


@dataclass(frozen=True, slots=True)
class Folds(GuaranteeDefaults):
    """The paper's K-part split: every step of the algorithm, test and merge, uses a fold of the data of its own.

    Step b tests on fold b alone whether all clusters differ from each other, each at level α/K; if not, it merges the
    two that look most similar there. Each p is independent of the merges before it, which is what the paper's theorem
    asks for, at the price of most of the power: it detects 1% of the splits of which the default detects 80%. To look
    while data come in, use `fl.Monitor`.

    Args:
        n: How many folds; as many as there are groups by default, as in the paper. With fewer, the first one merges
            down to n clusters without testing, and the others test.
        unit: For rows: the column whose values are kept together; that of the metric by default.

    Raises:
        InputError: If there are fewer than two folds.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.Estimates([0.0, 99.0], [1.0, 1.0]), guarantee=fl.Folds()).n_clusters
        2
    """

    n: int | None = None
    unit: str | None = None
    name: ClassVar[str] = "folds"
    explanation: ClassVar[str] = "folds: every step on a part of the data of its own"
    intervals_hold: ClassVar[bool] = False
    holds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.unit is not None:
            checks.column("unit", self.unit)
        if self.n is not None:
            problem = "must be a whole number from 2 on"
            checks.number("n", self.n, problem, "Use for example {n}.", low=2, whole=True, settings={"n": 10})

    def shares(self, groups: int) -> tuple[float, ...]:
        """Equal ones."""
        folds = max(2, self.n or groups)
        if folds * max(groups, 1) > _MOST_NUMBERS:
            raise InputError.out_of_range(
                "n", f"are too many folds for {groups:,} groups", "Use for example fl.Folds(n=20).", folds
            )
        return (1 / folds,) * folds

    def find_path(
        self,
        comparison: Comparison,
        seed: int,
        *,
        refine: bool,
        parts: Sequence[Comparison] = (),
        cores: int | None = None,
        margins: bool = False,
    ) -> GuaranteedPath:
        """Adjusted p of the partition before step b = the number of folds times the least p of the steps up to b."""
        groups = len(comparison)
        split = "units" if parts else "thinning"
        shares = tuple(1 / len(parts) for _ in parts) or self.shares(groups)
        folds = len(shares)
        if not comparison.draws_are_counted and comparison.n is not None and folds > comparison.n.min():
            smallest = f"are more than the {comparison.n.min():g} units of the smallest group"
            raise InputError.out_of_range("n", smallest, "Use fewer.", folds)
        merges, log_p = _steps(list(parts or comparison.split(shares, split_generator(seed))), groups, folds)
        hierarchy = Hierarchy.from_linkage(merges, -log_p)
        by_gap = np.zeros(groups - 1)
        by_gap[hierarchy.merge_order()] = log_p
        facts: Facts = {"folds": folds, "split": split, "seed": seed}
        path = cut_tree(comparison, hierarchy, by_gap, refine=refine)
        return GuaranteedPath(path, hierarchy, comparison, comparison, facts, "root of −log p at the merge")

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """How many folds, and how they were made."""
        how = describe_split(facts, comparison)
        return [f"Method: every step on one of {facts['folds']} folds (split by {how}, seed {facts['seed']})."]


def _steps(parts: list[Comparison], groups: int, folds: int) -> tuple[IntArray, FloatArray]:
    """Merges in scipy's numbering, and the adjusted log p of the partition before each."""
    number, clusters = np.arange(groups), np.arange(groups)
    merges, log_p = np.empty((groups - 1, 2), dtype=np.int64), np.zeros(groups - 1)
    untested = max(0, groups - folds)
    if untested:
        first = build_tree(parts[0])
        merges[:untested] = first.merges[:untested]
        is_open = np.ones(groups - 1, dtype=bool)
        is_open[first.merge_order()[:untested]] = False
        clusters = first.labels(first.starts(is_open)) - 1
        number = _numbers(merges[:untested], clusters, groups)
    least = 0.0
    for step in range(untested, groups - 1):
        place = step - untested + (1 if untested else 0)
        fold = parts[place].with_weights_of(parts[place - 1]) if place > 0 else parts[place]
        pair = fold.most_similar_pair(clusters)
        least = min(least, pair.log_p + np.log(folds))
        log_p[step] = least
        a, b = sorted((pair.a, pair.b))
        merges[step] = sorted((number[a], number[b]))
        number = np.delete(number, b)
        number[a] = groups + step
        clusters = np.where(clusters == b, a, clusters - (clusters > b))
    return merges, log_p


def _numbers(merges: IntArray, clusters: IntArray, groups: int) -> IntArray:
    """The number, in scipy's way, of each cluster that the first merges have left."""
    last_number = np.arange(groups + len(merges))  # the last cluster that each has become part of
    for step in range(len(merges) - 1, -1, -1):
        last_number[merges[step]] = last_number[groups + step]
    numbers = np.empty(int(clusters.max()) + 1, dtype=np.int64)
    numbers[clusters] = last_number[:groups]
    return numbers


# ---------------------------------------------------------------------------------- the K-part split while data come in

# The paper's procedure while data come in: every batch takes one step, test all clusters or merge the nearest two.
#
# Each step tests at α/K on data that no earlier step has used, so the probability of ever reporting a difference where
# there is none is at most α (the paper's theorem). This is `fl.Folds` in time.


Treatment = Literal["error", "ignore"]
_SMALLEST = 5e-324  # the smallest p that a double can hold


class FoldStep(NamedTuple):
    """One batch.

    Attributes:
        pvalue: p of "all clusters differ" on it, times the number of groups; at most 1.
        merged: The two clusters that were merged; None where the step rejects.
    """

    pvalue: float
    merged: tuple[tuple[Label, ...], tuple[Label, ...]] | None

    def to_plain(self) -> dict[str, Any]:
        """The step as JSON has it."""
        merged = self.merged and [[plain_label(label) for label in cluster] for cluster in self.merged]
        return {"pvalue": self.pvalue, "merged": merged}

    @classmethod
    def from_plain(cls, value: Any) -> FoldStep:
        """The step from what JSON had."""
        pvalue = check_number(value["pvalue"], _SMALLEST, 1)
        if value["merged"] is None:
            return cls(pvalue, None)
        first, second = (read_labels(cluster) for cluster in check_type(value["merged"], list))
        if not first or not second:
            raise ValueError("a step merges nothing")
        return cls(pvalue, (first, second))


@dataclass(frozen=True, eq=False)
class SequentialFolds:
    """The state of the procedure after some batches; a step gives a new one.

    Attributes:
        alpha: The significance level.
        tolerance: How far apart effects may be and still count as similar.
        labels: The groups of the first batch.
        steps: What every batch did.
        ignored: Groups of the last batch that were not used, by code: ``"missing"``, ``"new"``.
    """

    alpha: float
    tolerance: float = 0.0
    labels: tuple[Label, ...] = ()
    steps: tuple[FoldStep, ...] = ()
    ignored: dict[str, int] = field(default_factory=dict)

    @cached_property
    def assignment(self) -> list[int]:
        """The cluster of each label after the steps, from single groups on.

        Raises:
            ValueError: If the steps do not follow from each other.
        """
        places = {label_key(label): i for i, label in enumerate(self.labels)}
        if len(places) != len(self.labels) or len(places) == 1:
            raise ValueError("labels are not those of different groups")
        assignment = list(range(len(places)))
        members = [[i] for i in assignment]
        for number, step in enumerate(self.steps):
            if (step.merged is None) != (step.pvalue < self.alpha):
                raise ValueError("a step merges although it rejects, or does neither")
            if step.merged is None:
                if number < len(self.steps) - 1 or not assignment:
                    raise ValueError("a step after the end, or without groups")
                continue
            first, second = ([places[label_key(label)] for label in cluster] for cluster in step.merged)
            a, b = assignment[first[0]], assignment[second[0]]
            if not a < b or members[a] != first or members[b] != second:
                raise ValueError("a step merges what are not two clusters")
            members[a] = sorted(members[a] + members.pop(b))
            assignment = [a if c == b else c - (c > b) for c in assignment]
        return assignment

    @property
    def clusters(self) -> tuple[tuple[Label, ...], ...]:
        """The clusters so far."""
        count = max(self.assignment, default=-1) + 1
        pairs = list(zip(self.labels, self.assignment, strict=True))
        return tuple(tuple(label for label, c in pairs if c == cluster) for cluster in range(count))

    @property
    def pvalue(self) -> float:
        """The smallest p of the steps, each times the number of groups."""
        return min([1.0, *(step.pvalue for step in self.steps)])

    @property
    def rejected(self) -> bool:
        """Whether a step has rejected: then the clusters differ."""
        return self.pvalue < self.alpha

    @property
    def finished(self) -> bool:
        """Whether it is over: rejected, or everything merged into one cluster."""
        return self.rejected or (bool(self.steps) and len(self.clusters) == 1)

    def take(
        self, batch: Estimates | Similarity, *, missing: Treatment = "error", new: Treatment = "error"
    ) -> SequentialFolds:
        """The state after one more batch.

        Args:
            batch: The groups, from data that no earlier batch has used.
            missing: What to do where groups of the first batch are missing.
            new: What to do with groups the first batch did not have.

        Returns:
            The next state; the same where the procedure is over.

        Raises:
            InputError: If the groups are not those of the first batch, and nothing was said about it.
        """
        groups = as_comparison(batch, self.tolerance)
        state = self
        if not self.labels:
            if len(groups) < 2:
                raise InputError.too_few("estimates", "has one group", "There is nothing to compare.")
            groups.most_similar_pair(np.arange(len(groups)))  # a batch that cannot be used does not fix the groups
            state = replace(self, labels=tuple(labels_of(groups.keys)))
        if state.finished:
            return state
        groups, assignment, ignored = state._align(groups, missing, new)
        present = np.unique(assignment)
        if present.size < 2:
            raise InputError.too_few(
                "estimates", "has data of one cluster only", "Give a batch with more of the groups."
            )
        pair = groups.most_similar_pair(np.searchsorted(present, assignment))
        # A cluster without data cannot be distinguished from the rest: such a batch cannot reject.
        has_all = present.size == max(state.assignment) + 1
        pvalue = min(1.0, float(np.exp(pair.log_p)) * len(state.labels)) if has_all else 1.0
        a, b = sorted((int(present[pair.a]), int(present[pair.b])))
        merged = (state.clusters[a], state.clusters[b]) if pvalue >= self.alpha else None
        step = FoldStep(max(pvalue, _SMALLEST), merged)
        return replace(state, steps=(*state.steps, step), ignored=ignored)

    def _align(
        self, groups: Comparison, missing: Treatment, new: Treatment
    ) -> tuple[Comparison, IntArray, dict[str, int]]:
        """The batch narrowed to the groups of the first one, the cluster of each, and what was ignored."""
        cluster_of = {label_key(label): cluster for label, cluster in zip(self.labels, self.assignment, strict=True)}
        labels = labels_of(groups.keys)
        keys = [label_key(label) for label in labels]
        present = set(keys)
        unknown = [name_of(label) for label, key in zip(labels, keys, strict=True) if key not in cluster_of]
        absent = [name_of(label) for label in self.labels if label_key(label) not in present]
        for names, treatment, what in ((absent, missing, "missing"), (unknown, new, "new")):
            if names and treatment == "error":
                listed = ", ".join(repr(name) for name in names[:3]) + (", …" if len(names) > 3 else "")
                raise InputError.mismatch(
                    "estimates",
                    "the groups are not those of the first batch",
                    f"Correct the batch, or use {{{what}}}.",
                    settings={what: "ignore"},
                    place=f"with {len(names)} {what} groups: {listed}",
                    form="clause",
                )
        ignored = {code: len(names) for names, code in ((absent, "missing"), (unknown, "new")) if names}
        used = np.array([key in cluster_of for key in keys])
        if not used.any():
            raise InputError.not_found("estimates", "has none of the known groups", "Give a batch of the same groups.")
        assignment = np.array([cluster_of[key] for key in keys if key in cluster_of])
        return groups if used.all() else groups.subset(used), assignment, ignored

    def to_plain(self) -> dict[str, Any]:
        """The state as JSON has it, without level and tolerance."""
        return {
            "labels": [plain_label(label) for label in self.labels],
            "steps": [step.to_plain() for step in self.steps],
            "ignored": self.ignored,
        }

    @classmethod
    def from_plain(cls, value: Any, alpha: float, tolerance: float) -> SequentialFolds:
        """The state from what JSON had, refused where its parts do not follow from each other."""
        steps = tuple(FoldStep.from_plain(step) for step in check_type(value["steps"], list))
        ignored = check_counts(value["ignored"], ("missing", "new"))
        state = cls(alpha, tolerance, read_labels(value["labels"]), steps, ignored)
        if bool(state.labels) != bool(steps) or len(state.assignment) != len(state.labels):
            raise ValueError("steps do not fit the labels")
        return state


# ------------------------------------------------------------------------------------------------------------- p < α/K²

# The paper's own rule, p < α/K², for comparison.


@dataclass(frozen=True, slots=True)
class Bonferroni(GuaranteeDefaults):
    """The paper's Algorithm 2: a merge is a split when its p, as if chosen beforehand, is below α/K².

    Provided for comparison. It does not control the error: merging sorts the noise first, and with 50 groups of
    pure noise and equal standard errors it reports clusters in 98 of 100 data sets at α = 0.05.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]), guarantee=fl.Bonferroni()).n_clusters
        2
    """

    name: ClassVar[str] = "bonferroni"
    explanation: ClassVar[str] = "bonferroni: the rule p < α/K², which rejects too often; for comparison only"
    intervals_hold: ClassVar[bool] = False
    holds: ClassVar[bool] = False
    unit: ClassVar[None] = None

    def find_path(
        self,
        comparison: Comparison,
        seed: int,
        *,
        refine: bool,
        parts: Sequence[Comparison] = (),
        cores: int | None = None,
        margins: bool = False,
    ) -> GuaranteedPath:
        """Adjusted p = K² times the p of the pair."""
        hierarchy = build_tree(comparison)
        log_p = comparison.log_pointwise(hierarchy.gap_heights) + 2 * np.log(len(comparison))
        path = cut_tree(comparison, hierarchy, np.minimum(log_p, 0.0), refine=refine)
        return GuaranteedPath(path, hierarchy, comparison, comparison, Facts(), comparison.height_name)

    def make_detector(self, groups: Line | Plane, alpha: float, seed: int) -> Detector | None:
        """The height of a merge whose p is α/K², where standard errors are known."""
        estimates, least = groups.estimates, alpha / len(groups) ** 2
        if len(groups) < 2 or estimates.dof is not None or not least > 0:
            return None
        height = float(chdtri(estimates.dims, least))
        return lambda effects, _: groups.tops(effects) > height

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """That it does not hold, where that was measured, and that it does not know about estimated errors."""
        notes = []
        if len(comparison) > 20:  # measured from 21 groups on
            notes.append("The α/K² rule reports clusters in pure noise far more often than α; see docs/guarantees.md.")
        if comparison.estimates is not None and comparison.estimates.covariance is not None:
            notes.append("The α/K² rule takes groups as independent; what they share is not used.")
        has_known_errors = comparison.estimates is None or comparison.estimates.dof is None
        if not comparison.draws_are_counted and not has_known_errors:
            notes.append("The α/K² rule takes standard errors as known; dof is not used.")
        return notes
