"""Tests of "all groups are alike" that give no clusters: Cochran's Q, and each group against the rest with Holm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc, ndtr

if TYPE_CHECKING:
    from experiments.baselines.fit import FloatArray


def cochran_q(theta: FloatArray, se: FloatArray) -> FloatArray:
    """p of Cochran's Q, the χ² test of homogeneity; one data set in each row."""
    weight = 1 / se**2
    centred = theta - np.average(theta, axis=-1, weights=weight, keepdims=True)
    return np.asarray(chdtrc(theta.shape[-1] - 1, np.sum(weight * centred**2, axis=-1)))


def one_against_the_rest(theta: FloatArray, se: FloatArray) -> FloatArray:
    """The smallest p of any group against all others together, adjusted by Holm; one data set in each row.

    Holm's smallest is Bonferroni's: K times the smallest two-sided p.
    """
    weight = 1 / se**2
    others = weight.sum(axis=-1, keepdims=True) - weight
    rest = (np.sum(weight * theta, axis=-1, keepdims=True) - weight * theta) / others
    z = np.abs(theta - rest) / np.sqrt(se**2 + 1 / others)
    return np.asarray(np.minimum(theta.shape[-1] * 2 * ndtr(-z.max(axis=-1)), 1.0))
