"""Bautista, Smith and Steiner (1997): join the closest means while groups differ and their members do not."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtrc, fdtrc

from experiments.baselines.fit import Fit, pooled
from faultlines.types import FloatArray


def bautista(theta: FloatArray, se: FloatArray, *, alpha: float = 0.05, dof: float = math.inf) -> Fit:
    """After an F test of all means, each step joins two and splits the sum of squares into among and within groups.

    The last partition counts before groups no longer differ, or before the members of some do.
    """
    weight = 1 / se**2
    grand = float(np.average(theta, weights=weight))
    total = float(np.sum(weight * (theta - grand) ** 2))
    order = np.argsort(theta, kind="stable")
    if _p(total, theta.size - 1, dof) > alpha:
        return pooled(np.ones(theta.size), theta, se)
    ends = list(range(1, theta.size + 1))  # of the groups, in the order of the means
    sums = np.array([weight[order], weight[order] * theta[order]])
    while len(ends) > 1:
        closest = int(np.argmin(np.diff(sums[1] / sums[0])))
        joined = np.delete(sums, closest, axis=1)
        joined[:, closest] = sums[:, closest] + sums[:, closest + 1]
        among = float(np.sum(joined[0] * (joined[1] / joined[0] - grand) ** 2))
        groups = len(ends) - 1
        if groups == 1 or _p(among, groups - 1, dof) >= alpha or _p(total - among, theta.size - groups, dof) <= alpha:
            break
        del ends[closest]
        sums = joined
    labels = np.empty(theta.size, dtype=np.int64)
    labels[order] = np.searchsorted(ends, np.arange(theta.size), side="right")
    return pooled(labels, theta, se)


def _p(squares: float, freedom: int, dof: float) -> float:
    """p of a weighted sum of squares: of F where the error is estimated, of χ² where it is known."""
    squares = max(squares, 0.0)
    return float(chdtrc(freedom, squares) if math.isinf(dof) else fdtrc(freedom, dof, squares / freedom))
