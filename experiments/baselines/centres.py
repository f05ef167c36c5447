"""Clusters-of-Centres: blocks are merged while Cochran's test of all their members is not significant."""

from __future__ import annotations

import numpy as np
from scipy.special import chdtrc

from experiments.baselines.fit import Fit, pooled
from faultlines.types import FloatArray


def clusters_of_centres(theta: FloatArray, se: FloatArray, *, alpha: float = 0.05) -> Fit:
    """One round on the summaries: merge the two blocks whose union fits best, by the p of its Q, while p ≥ α.

    With one number per centre the best union is one of neighbours. The bootstrap rounds of the method, which vote on
    the merges, are left out: from summaries alone they only add noise to them.
    """
    order = np.argsort(theta, kind="stable")
    x, w = theta[order] - np.average(theta, weights=1 / se**2), 1 / se[order] ** 2
    sums = np.array([np.ones(x.size), w, w * x, w * x * x])  # of each block: members, weight, and two moments
    ends = list(range(1, x.size + 1))
    while len(ends) > 1:
        both = sums[:, :-1] + sums[:, 1:]
        p = chdtrc(both[0] - 1, np.maximum(both[3] - both[2] ** 2 / both[1], 0.0))
        best = int(np.argmax(p))
        if p[best] < alpha:
            break
        sums = np.delete(sums, best, axis=1)
        sums[:, best] = both[:, best]
        del ends[best]
    labels = np.empty(x.size, dtype=np.int64)
    labels[order] = np.searchsorted(ends, np.arange(x.size), side="right")
    return pooled(labels, theta, se)
