"""Clusters of numbers on a line: the optimal partition, k-means, and merging as CHAID does it."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.cluster.hierarchy import fcluster
from scipy.special import chdtri, stirling2

import faultlines as fl
from experiments.baselines.fit import MOST, Fit, pooled
from faultlines.core.distributions import log_chi_square_tail
from faultlines.types import FloatArray, IntArray


def optimal_partitions(theta: FloatArray, weight: FloatArray, most: int = MOST) -> tuple[list[IntArray], FloatArray]:
    """The least weighted sum of squares with 1, 2, … clusters, exactly: dynamic programming over the sorted line.

    Returns the labels (0 … m − 1 by rising estimate) and the cost of each number of clusters.
    """
    order = np.argsort(theta, kind="stable")
    x, w = theta[order] - np.average(theta, weights=weight), weight[order]
    sums = np.concatenate([np.zeros((3, 1)), np.cumsum([w, w * x, w * x * x], axis=1)], axis=1)
    total, first, second = sums[:, None, :] - sums[:, :, None]  # [start, end): of every run of neighbours
    groups = x.size
    runs = np.tri(groups + 1, k=-1, dtype=bool).T
    cost = np.full((groups + 1, groups + 1), np.inf)
    cost[runs] = np.maximum(second[runs] - first[runs] ** 2 / total[runs], 0.0)
    reached, starts = cost[0], []
    costs = [float(reached[groups])]
    for _ in range(2, min(most, groups) + 1):
        through = reached[:, None] + cost
        starts.append(through.argmin(axis=0))
        reached = through.min(axis=0)
        costs.append(float(reached[groups]))
    partitions = []
    for clusters in range(1, len(costs) + 1):
        labels, end = np.empty(groups, dtype=np.int64), groups
        for number in range(clusters - 1, -1, -1):
            start = int(starts[number - 1][end]) if number else 0
            labels[order[start:end]] = number
            end = start
        partitions.append(labels)
    return partitions, np.array(costs)


def optimal_partition(theta: FloatArray, se: FloatArray) -> Fit:
    """The best partition of the line, the number of clusters by BIC with a mean and a border for each."""
    labels, costs = optimal_partitions(theta, 1 / se**2)
    price = math.log(theta.size) * (2 * np.arange(1, costs.size + 1) - 1)
    return pooled(labels[int(np.argmin(costs + price))], theta, se)


def kmeans(theta: FloatArray, se: FloatArray) -> Fit:
    """k-means on the estimates alone, solved exactly, k by the silhouette, which knows no k = 1."""
    from sklearn.metrics import silhouette_score

    labels, _ = optimal_partitions(theta, np.ones(theta.size))
    candidates = [partition for partition in labels[1:] if np.unique(partition).size < theta.size]
    scores = [silhouette_score(theta[:, None], candidate) for candidate in candidates]
    return pooled(candidates[int(np.argmax(scores))], theta, se)


def merge_levels(theta: FloatArray, se: FloatArray, alpha: float = 0.05) -> tuple[Fit, float]:
    """CHAID's handling of one nominal predictor: merge while p > α, then one χ² test of what is left.

    That test pays, as CHAID does, for the number of ways to merge K categories into m (Stirling's number). Returns the
    merged categories and the logarithm of the adjusted p.
    """
    heights = fl.agglomerate(fl.Estimates(theta, se)).to_linkage()
    merged = pooled(fcluster(heights, float(chdtri(1, alpha)), criterion="distance"), theta, se)
    weight = 1 / se**2
    between = float(np.sum(weight * (merged.effects - np.average(theta, weights=weight)) ** 2))
    if merged.n_clusters == 1:
        return merged, 0.0
    log_p = float(log_chi_square_tail(np.array([between]), merged.n_clusters - 1)[0])
    return merged, log_p + _log_ways(theta.size, merged.n_clusters)


@cache
def _log_ways(categories: int, clusters: int) -> float:
    """The logarithm of the number of ways to merge so many categories into so many."""
    return math.log(stirling2(categories, clusters, exact=True))


def chaid(theta: FloatArray, se: FloatArray, alpha: float = 0.05) -> Fit:
    """Levels merged as CHAID does, or all in one where its adjusted test does not reject."""
    merged, log_p = merge_levels(theta, se, alpha)
    return merged if log_p < math.log(alpha) else pooled(np.ones(theta.size), theta, se)
