"""Jolliffe (1975): single linkage of means, their distances the Student–Newman–Keuls probabilities of their ranges."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import chdtri, ndtr

from experiments.baselines.fit import Fit, pooled
from faultlines.types import FloatArray


def range_probability(distance: FloatArray, size: FloatArray, dof: float = math.inf) -> FloatArray:
    """Probability that the range of `size` standard normal numbers, over their estimated scale, is below `distance`."""
    z, step = np.linspace(-8.0, 8.0, 401, retstep=True)
    density = step * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    # Where the scale is estimated, the mean over its law, at the middles of slices of equal chance.
    scales = [1.0] if math.isinf(dof) else np.sqrt(chdtri(dof, (np.arange(80) + 0.5) / 80) / dof)
    chance = np.zeros(np.broadcast(distance, size).shape)
    for scale in scales:
        within = ndtr(z) - ndtr(z - scale * np.asarray(distance)[..., None])
        chance += (np.asarray(size)[..., None] * density * within ** (np.asarray(size)[..., None] - 1)).sum(axis=-1)
    return chance / len(scales)


@cache
def critical_ranges(groups: int, alpha: float, dof: float = math.inf) -> FloatArray:
    """The largest range of 2, 3, … K neighbours that is no sign of a difference; by bisection."""
    sizes = np.arange(2.0, groups + 1)
    low, high = np.zeros(sizes.size), np.full(sizes.size, 50.0)
    for _ in range(26):
        middle = (low + high) / 2
        below = range_probability(middle, sizes, dof) < 1 - alpha
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


def jolliffe(theta: FloatArray, se: FloatArray, *, alpha: float = 0.05, dof: float = math.inf) -> Fit:
    """Means are joined while some pair across has a range, among the means it spans, that is not significant."""
    order = np.argsort(theta, kind="stable")
    x = theta[order] / math.sqrt(float(np.mean(se**2)))
    span = np.abs(np.subtract.outer(np.arange(x.size), np.arange(x.size)))
    allowed = np.concatenate([[0.0], critical_ranges(x.size, alpha, dof)])[span]
    labels = np.empty(x.size, dtype=np.int64)
    labels[order] = connected_components(np.abs(np.subtract.outer(x, x)) <= allowed, directed=False)[1]
    return pooled(labels, theta, se)
