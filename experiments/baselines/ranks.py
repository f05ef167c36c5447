"""Simultaneous confidence sets of ranks, as in csranks (Mogstad, Romano, Shaikh and Wilhelm), read as clusters."""

from __future__ import annotations

import numpy as np

from experiments.baselines.fit import Fit, pooled
from faultlines.types import FloatArray, IntArray


def rank_sets(
    theta: FloatArray, se: FloatArray, *, alpha: float = 0.05, draws: int = 199, seed: int = 0
) -> tuple[IntArray, IntArray]:
    """The lowest and the highest rank that each group can have, all at once with chance 1 − α.

    All pairs are compared, against the largest |z| of any pair in draws with the same errors; pairs that differ are
    then left out of the largest, and the rest is judged anew, until no more are found.
    """
    first, second = np.triu_indices(theta.size, 1)
    scale = np.sqrt(se[first] ** 2 + se[second] ** 2)
    z = (theta[first] - theta[second]) / scale
    drawn = (se * np.random.default_rng(seed).standard_normal((draws, theta.size))).astype(np.float32)
    noise = np.abs(drawn[:, first] - drawn[:, second]) / scale.astype(np.float32)
    differs = np.zeros(z.size, dtype=bool)
    while not differs.all():
        # The draw that is exceeded with chance α at most, the data counted among the draws.
        place = min(int(np.ceil((draws + 1) * (1 - alpha))), draws) - 1
        critical = np.partition(noise[:, ~differs].max(axis=1), place)[place]
        different = np.abs(z) > critical
        if not (different & ~differs).any():
            break
        differs |= different
    above, below = np.where(z > 0, first, second)[differs], np.where(z > 0, second, first)[differs]
    lowest = 1 + np.bincount(above, minlength=theta.size)
    return lowest, theta.size - np.bincount(below, minlength=theta.size)


def grouped_by_ranks(theta: FloatArray, se: FloatArray, *, alpha: float = 0.05, seed: int = 0) -> Fit:
    """Groups whose sets of ranks overlap, directly or through others, are one cluster."""
    lowest, highest = rank_sets(theta, se, alpha=alpha, seed=seed)
    order = np.lexsort((highest, lowest))
    reached = np.maximum.accumulate(highest[order])
    labels = np.empty(theta.size, dtype=np.int64)
    labels[order] = np.concatenate([[0], np.cumsum(lowest[order][1:] > reached[:-1])])
    return pooled(labels, theta, se)
