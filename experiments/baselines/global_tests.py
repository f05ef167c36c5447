"""Tests of "all groups are equal": Cochran's Q, and each group against the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc

from experiments.baselines.rest import adjusted, against_the_rest
from faultlines.types import FloatArray

if TYPE_CHECKING:
    from experiments.baselines.rest import Correction


def cochran_q(theta: FloatArray, se: FloatArray) -> FloatArray:
    """p of Cochran's Q, the χ² test of homogeneity; one data set in each row."""
    weight = 1 / se**2
    centred = theta - np.average(theta, axis=-1, weights=weight, keepdims=True)
    return np.asarray(chdtrc(theta.shape[-1] - 1, np.sum(weight * centred**2, axis=-1)))


def one_against_the_rest(theta: FloatArray, se: FloatArray, correction: Correction = "holm") -> FloatArray:
    """The smallest p of any group against all others together, adjusted; one data set in each row.

    Holm's smallest is Bonferroni's: K times the smallest p. That of Benjamini and Hochberg is Simes'.
    """
    return np.asarray(adjusted(against_the_rest(theta, se), correction).min(axis=-1))
