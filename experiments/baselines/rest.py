"""Each group against all others together, as experiment platforms flag segments: by Holm, or by Benjamini–Hochberg."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.special import stdtr

from experiments.baselines.fit import Fit, pooled
from faultlines.types import FloatArray

Correction = Literal["holm", "bh"]


def against_the_rest(theta: FloatArray, se: FloatArray, dof: float | FloatArray = math.inf) -> FloatArray:
    """Two-sided p of each group against the others' weighted mean (Welch's t where `dof` tells of estimated errors)."""
    weight = 1 / se**2
    others = weight.sum(axis=-1, keepdims=True) - weight
    rest = (np.sum(weight * theta, axis=-1, keepdims=True) - weight * theta) / others
    own, theirs = se**2, 1 / others
    freedom = (own + theirs) ** 2 / (own**2 / dof + theirs**2 / (np.mean(dof) * (theta.shape[-1] - 1)) + 1e-300)
    return np.asarray(2 * stdtr(freedom, -np.abs(theta - rest) / np.sqrt(own + theirs)))


def adjusted(pvalues: FloatArray, correction: Correction) -> FloatArray:
    """Adjusted p-values, one data set in each row."""
    count = pvalues.shape[-1]
    order = np.argsort(pvalues, axis=-1, kind="stable")
    p = np.take_along_axis(pvalues, order, axis=-1)
    if correction == "holm":
        p = np.maximum.accumulate((count - np.arange(count)) * p, axis=-1)
    else:
        p = np.minimum.accumulate((count / np.arange(1, count + 1) * p)[..., ::-1], axis=-1)[..., ::-1]
    adjusted_p = np.empty_like(p)
    np.put_along_axis(adjusted_p, order, np.minimum(p, 1.0), axis=-1)
    return adjusted_p


def set_apart(
    theta: FloatArray,
    se: FloatArray,
    correction: Correction,
    *,
    alpha: float = 0.05,
    dof: float | FloatArray = math.inf,
) -> Fit:
    """As clusters: those significantly below the rest, those significantly above, and everyone else."""
    flagged = adjusted(against_the_rest(theta, se, dof), correction) <= alpha
    side = np.sign(theta - np.average(theta, weights=1 / se**2))
    return pooled(np.where(flagged, side, 0.0), theta, se)
