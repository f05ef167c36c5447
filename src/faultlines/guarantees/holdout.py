"""The paper's two-part split, several times over: one part of the data makes the tree, the other says what to believe.

One split is a matter of luck: with another seed the same data may be claimed to differ or not. Each of S random splits
gives a p that is valid on its own, and they are combined into one that is valid whatever their dependence:

    p = (S/k) · p_(k),    the k-th smallest of the S p, k = ⌈γ S⌉,

the quantile rule of Meinshausen, Meier and Bühlmann (2009) with γ fixed at 1/10. Proof: where p < α, k splits or more
have a p below kα/S. On average at most S · kα/S = kα splits have so small a p although nothing differs, so by Markov
the probability of k of them or more is at most α. This holds for m = 2, 3, … clusters at once, because each split
tests them in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from faultlines import checks
from faultlines.core import kernels
from faultlines.core.distributions import log_chi_square_1_tail
from faultlines.core.tree import build_tree, cut_tree
from faultlines.guarantees.base import (
    LOG_HALF,
    Facts,
    GuaranteeDefaults,
    GuaranteedPath,
    describe_split,
    split_generator,
)
from faultlines.progress import progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faultlines.core.comparison import Comparison
    from faultlines.core.line import Line
    from faultlines.core.plane import Plane
    from faultlines.core.tree import Hierarchy
    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.labels import Key
    from faultlines.estimates.scales import FloatArray
    from faultlines.guarantees.base import Detector

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
    """The paper's two-part split: one part of the data makes the tree, the other says how far to believe it.

    On the held-out part, "all pairs of clusters differ" is tested for m = 2, 3, … clusters in that order, each at full
    α, until one fails; the adjusted p of a level is the largest up to it. The order is fixed beforehand, so the chance
    of any false rejection is α. This is done for several random splits: p is ten times the 10% quantile of theirs,
    which is valid however they depend on each other, and depends far less on the seed.

    The partition, its estimates and its intervals are those of one split: of the half with middling p, the one whose
    clusters agree best with those of all splits. Its estimates come from its held-out part, which did not choose the
    members, and to take neither the luckiest nor the unluckiest split leaves them without bias.

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
        parts = (
            f"Clusters from {1 - held:.0%} of the data, tested and estimated on the other {held:.0%}; split by {how}"
        )
        if "splits" not in facts:
            return [f"{parts}, seed {facts['seed']}."]
        splits = int(facts["splits"])
        return [
            f"{parts} {splits} times, seed {facts['seed']}. p combines all {splits} splits; clusters and intervals are "
            "those of one split with a middling p that agrees best with all."
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
    """The split to show: of the half with middling p, the one whose clusters agree best with those of all splits."""
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
