"""How many clusters does it take until each could be one? Every cluster against the null of its own groups."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from faultlines.comparison.line import refined_starts
from faultlines.guarantees.base import EVEN
from faultlines.guarantees.null import calibrated
from faultlines.progress import progress
from faultlines.tree.hierarchy import tree_of

if TYPE_CHECKING:
    from faultlines.comparison.base import Comparison
    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.tree.hierarchy import Hierarchy

_FOR_BORDERS = 0.75  # of the level; the rest is kept back for groups that no border puts where they belong


class _Judge:
    """Adjusted log p of a split of neighbouring groups, each run of them judged once."""

    def __init__(self, comparison: Comparison, hierarchy: Hierarchy, draws: int, seed: int, cores: int | None) -> None:
        self.comparison, self.order = comparison, hierarchy.order
        self.draws, self.seed, self.cores = draws, seed, cores
        self.most_draws = 0
        self.known: dict[tuple[int, int], float] = {}

    def split(self, start: int, stop: int) -> float:
        """Adjusted log p of a split of the groups at these places."""
        groups, size = len(self.comparison), stop - start
        if size < 2:
            return 0.0
        if (start, stop) not in self.known:
            keep = np.zeros(groups, dtype=bool)
            keep[self.order[start:stop]] = True
            side = self.comparison if size == groups else self.comparison.subset(keep)
            found = calibrated(side, tree_of(side).heights[-1:], self.draws, self.seed, cores=self.cores)
            self.most_draws = max(self.most_draws, found.draws)
            rest = 0.0 if size == groups else -np.log(_FOR_BORDERS)
            adjusted = float(found.log_p[0]) + np.log((groups - 1) / (size - 1)) + rest
            self.known[start, stop] = min(adjusted, 0.0)
        return self.known[start, stop]


def step_down(
    comparison: Comparison, hierarchy: Hierarchy, draws: int, seed: int, cores: int | None
) -> tuple[FloatArray, int]:
    """Adjusted log p by gap, and the number of draws.

    m clusters are not enough when one of them, k of the K groups, splits at level ¾ α (k − 1)/(K − 1). So that some
    groups on the wrong side of a border are not taken for a split of their own, there are several ways to make m
    clusters: by splitting where it was needed and by cutting the tree, each with its borders moved to the nearest
    estimate, or with regard to the sizes of the clusters. When all is well in one of them, m are enough.
    """
    estimates = comparison.estimates
    if estimates is None:
        raise TypeError("step-down needs estimates")
    groups, order = len(hierarchy), hierarchy.order
    theta, se = estimates.values[order, 0], estimates.errors[order, 0]
    rank = hierarchy.merge_rank()
    log_p, is_open = np.zeros(groups - 1), np.zeros(groups - 1, dtype=bool)
    judge = _Judge(comparison, hierarchy, draws, seed, cores)
    reached = -np.inf
    with progress("judging clusters by their own groups", groups - 1) as advance:
        for clusters in range(1, groups):
            starts = hierarchy.starts(is_open)
            ways = []
            for cut in (starts, hierarchy.starts(rank >= groups - clusters)):
                near = refined_starts(theta, se, cut)
                ways += [near, _by_size(theta, se, near)]
            judged = [np.array([judge.split(a, b) for a, b in pairwise([*way.tolist(), groups])]) for way in ways]
            likeliest = max(judged, key=np.min)
            reached = max(reached, float(likeliest.min()))
            if reached >= EVEN:
                break
            # The cluster that is least like one gives way, at its top merge.
            ends = [*starts[1:].tolist(), groups]
            divisible = [c for c in np.argsort(likeliest).tolist() if ends[c] - starts[c] > 1]
            start, stop = int(starts[divisible[0]]), ends[divisible[0]]
            gap = start + int(np.argmax(rank[start : stop - 1]))
            is_open[gap] = True
            log_p[gap] = reached
            advance(1)
    return log_p, judge.most_draws


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
