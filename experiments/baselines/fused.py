"""Penalised fixed effects, which are drawn together until some are equal."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import isotonic_regression

from experiments.baselines.fit import Fit, pooled
from faultlines.types import FloatArray


def fused(theta: FloatArray, weight: FloatArray, penalty: float, *, adaptive: bool = True) -> FloatArray:
    """Effects β that minimise ½ Σ w_i (θ_i − β_i)² + λ Σ_{i<j} a_ij |β_i − β_j| and keep the order of the estimates.

    All pairs are drawn together, as in CAS-ANOVA; a_ij = 1/|θ_i − θ_j| when adaptive, else 1. While the order stands,
    the penalty is linear in β, so that the minimum is an isotonic regression of shifted estimates. (Drawing together
    only neighbours on the sorted line would penalise nothing but the range: it clips both ends and merges nothing.)
    """
    order = np.argsort(theta, kind="stable")
    x, w = theta[order], weight[order]
    fitted = np.empty_like(x)
    fitted[order] = isotonic_regression(x - penalty * _pull(x, adaptive) / w, weights=w).x
    return fitted


def _pull(x: FloatArray, adaptive: bool) -> FloatArray:
    """Derivative of the penalty with respect to each effect while they are in the order of x."""
    apart = x[:, None] - x
    near = np.maximum(np.abs(apart), 1e-9 * max(float(np.ptp(x)), 1e-300))
    signs = np.tri(x.size, k=-1) - np.tri(x.size, k=-1).T
    return np.asarray((signs / near if adaptive else signs).sum(axis=1))


def fused_effects(theta: FloatArray, se: FloatArray, *, adaptive: bool = True, penalties: int = 60) -> Fit:
    """Penalised fixed effects, λ by BIC of the clusters it makes, their means estimated anew."""
    weight = 1 / se**2
    # The penalty at which the two halves of any cut of the line are drawn together: beyond it, all is one.
    order = np.argsort(theta, kind="stable")
    moment = np.cumsum(weight[order] * (np.average(theta, weights=weight) - theta[order]))[:-1]
    highest = float(np.max(moment / -np.cumsum(_pull(theta[order], adaptive))[:-1]))
    best, chosen = math.inf, pooled(np.ones(theta.size), theta, se)
    for penalty in highest * np.geomspace(1.0, 1e-4, penalties):
        fit = pooled(np.round(fused(theta, weight, penalty, adaptive=adaptive), 12), theta, se)
        score = float(np.sum(weight * (theta - fit.effects) ** 2)) + math.log(theta.size) * (2 * fit.n_clusters - 1)
        if score < best:
            best, chosen = score, fit
    return chosen
