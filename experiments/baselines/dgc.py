"""Di Rienzo, Guzmán and Casanoves (2002): a tree of means by average linkage, cut at a quantile of its null root."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from experiments.baselines.fit import Fit, pooled
from faultlines.types import FloatArray


@cache
def root_distances(groups: int, dof: float = math.inf, draws: int = 0) -> FloatArray:
    """Sorted root distances of trees of equal means in units of their estimated standard error."""
    rng = np.random.default_rng([groups, draws])
    draws = draws or (4000 if groups < 150 else 800)  # a tree of many takes longer
    means = rng.standard_normal((draws, groups, 1))
    scale = np.ones(draws) if math.isinf(dof) else np.sqrt(rng.chisquare(dof, draws) / dof)
    return np.sort([linkage(mean, "average")[-1, 2] for mean in means] / scale)


def dgc_pvalue(theta: FloatArray, se: FloatArray, dof: float = math.inf) -> float:
    """p of the root of the tree: that anything differs."""
    root = linkage(theta[:, None], "average")[-1, 2] / math.sqrt(float(np.mean(se**2)))
    null = root_distances(theta.size, dof)
    return float(1 + null.size - np.searchsorted(null, root)) / (null.size + 1)


def dgc(theta: FloatArray, se: FloatArray, *, alpha: float = 0.05, dof: float = math.inf) -> Fit:
    """Groups that join above the null root's 1 − α quantile differ; one variance for all, as with the harmonic n."""
    cut = float(np.quantile(root_distances(theta.size, dof), 1 - alpha)) * math.sqrt(float(np.mean(se**2)))
    return pooled(fcluster(linkage(theta[:, None], "average"), cut, criterion="distance"), theta, se)
