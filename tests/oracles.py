"""Slow and obvious: what the fast code must agree with. Nothing here is shared with the library."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Partition = frozenset[frozenset[int]]


class Step(NamedTuple):
    """One merge of the literal algorithm: the partition it starts from and the smallest likelihood ratio in it."""

    before: Partition
    height: float


def likelihood_ratio(a: tuple[float, float], b: tuple[float, float]) -> float:
    """LR of two clusters given as (mean, weight)."""
    (mean_a, weight_a), (mean_b, weight_b) = a, b
    return (mean_a - mean_b) ** 2 * weight_a * weight_b / (weight_a + weight_b)


def pooled(members: frozenset[int], theta: Sequence[float], weight: Sequence[float]) -> tuple[float, float]:
    """Weighted mean and total weight of a cluster, from its members alone."""
    total = math.fsum(weight[i] for i in members)
    centre = theta[min(members)]
    return centre + math.fsum(weight[i] * (theta[i] - centre) for i in members) / total, total


def literal_algorithm_2(theta: Sequence[float], se: Sequence[float]) -> list[Step]:
    """Every step of Algorithm 2 with its stopping rule taken out: all pairs, all the time. O(K³)."""
    weight = [1 / error**2 for error in se]
    place = sorted(range(len(theta)), key=lambda i: theta[i])
    clusters = [frozenset([i]) for i in place]  # kept in θ-order so that ties go to the leftmost pair
    steps = []
    while len(clusters) > 1:
        stats = [pooled(members, theta, weight) for members in clusters]
        pairs = itertools.combinations(range(len(clusters)), 2)
        height, i, j = min((likelihood_ratio(stats[i], stats[j]), i, j) for i, j in pairs)
        steps.append(Step(frozenset(clusters), height))
        clusters[i] |= clusters[j]
        del clusters[j]
    return steps


def stopped_at(steps: list[Step], groups: int, alpha: float) -> Partition:
    """Where Algorithm 2 stops: at the first step at which even the most similar pair has p < α/K²."""
    for step in steps:
        if math.erfc(math.sqrt(step.height / 2)) < alpha / groups**2:
            return step.before
    return frozenset([frozenset(range(groups))])


def literal_algorithm_1(
    clusters: Sequence[Sequence[float]],
    log_p: Callable[[Sequence[float], Sequence[float]], float],
    merged: Callable[[Sequence[float], Sequence[float]], Sequence[float]],
) -> list[tuple[frozenset[int], float]]:
    """Algorithm 1 with its stopping rule taken out: of all pairs the one with the largest p, again and again."""
    left = [(frozenset([i]), list(cluster)) for i, cluster in enumerate(clusters)]
    steps = []
    while len(left) > 1:
        pairs = itertools.combinations(range(len(left)), 2)
        best, i, j = max((log_p(left[i][1], left[j][1]), -i, -j) for i, j in pairs)
        a, b = left[-i], left[-j]
        steps.append((a[0] | b[0], best))
        left = [cluster for cluster in left if cluster is not a and cluster is not b]
        left.append((a[0] | b[0], list(merged(a[1], b[1]))))
    return steps


def exact_heights(theta: Sequence[int], weight: Sequence[int]) -> tuple[list[Fraction], bool]:
    """Merge heights in exact arithmetic, for whole numbers; the leftmost of equal pairs goes first.

    And whether some pairs are equal in numbers that doubles do not hold exactly: rounding decides which goes first.
    """
    clusters = [(Fraction(t), Fraction(w)) for t, w in sorted(zip(theta, weight, strict=True))]
    heights, by_rounding = [], False
    while len(clusters) > 1:
        gaps = [
            ((clusters[g + 1][0] - clusters[g][0]) ** 2 * clusters[g][1] * clusters[g + 1][1])
            / (clusters[g][1] + clusters[g + 1][1])
            for g in range(len(clusters) - 1)
        ]
        g = gaps.index(min(gaps))
        tied = [i for i, gap in enumerate(gaps) if gap == gaps[g]]
        numbers = [number for i in tied for number in (gaps[i], clusters[i][0], clusters[i + 1][0])]
        by_rounding |= len(tied) > 1 and any(n.denominator & (n.denominator - 1) for n in numbers)
        (mean_a, weight_a), (mean_b, weight_b) = clusters[g : g + 2]
        total = weight_a + weight_b
        heights.append(gaps[g])
        clusters[g : g + 2] = [((weight_a * mean_a + weight_b * mean_b) / total, total)]
    return heights, by_rounding


def partition_of(labels: Sequence[int]) -> Partition:
    """The partition behind cluster labels."""
    return frozenset(frozenset(i for i, other in enumerate(labels) if other == label) for label in set(labels))
