"""Groups that share data: what of their noise is each group's own, and what several have in common.

Noise that all groups have in common moves none of them against the others. So of a covariance matrix Σ only what is
left of it after sums a_i + a_j have been taken off says how groups differ: the variances that are left on the diagonal
are the groups' own, and often (a shared control, equal correlations) nothing is left beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultlines.errors import InputError
from faultlines.estimates.labels import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.labels import Key
    from faultlines.estimates.scales import FloatArray

_LEAST = 0.05  # of the variance against all others: no group's own variance is taken for less
_NOTHING = 1e-9  # of the own variances: what is left beside them counts as rounding
_DEFINITE = 1e-10  # of a correlation matrix: the smallest eigenvalue with which differences have a variance


def checked_covariance(covariance: FloatArray, keys: Sequence[Key]) -> FloatArray:
    """A covariance matrix of K groups as it can be used: symmetric and positive definite."""
    size, remedy = len(keys), "Leave out what is determined by the rest, or correct it."
    if covariance.shape != (size, size):
        raise InputError(
            "covariance", f"has shape {covariance.shape}, but there are {size} groups", f"Give ({size}, {size})."
        )
    variance = np.diagonal(covariance)
    if not np.isfinite(covariance).all() or variance.min() <= 0:
        worst = int(np.argmin(np.where(np.isfinite(covariance).all(axis=1), variance, -np.inf)))
        problem = "must be finite, with variances above zero"
        raise InputError(f"covariance of group {name_of(keys[worst])!r}", problem, remedy)
    scale = np.sqrt(variance)
    correlation = covariance / scale[:, None] / scale
    uneven = np.abs(correlation - correlation.T)
    if uneven.max() > 1e-8:
        one, other = (name_of(keys[int(i)]) for i in np.unravel_index(int(uneven.argmax()), uneven.shape))
        problem = f"is not symmetric: that of {one!r} with {other!r} is not that of {other!r} with {one!r}"
        raise InputError("covariance", problem, "Give the covariance matrix of the estimates, in the order of labels.")
    if float(np.linalg.eigvalsh((correlation + correlation.T) / 2)[0]) < _DEFINITE:
        problem = "is not positive definite: some groups are determined by the others"
        raise InputError("covariance", problem, remedy)
    return np.asarray((covariance + covariance.T) / 2)


def own_variances(covariance: FloatArray) -> FloatArray:
    """The variance of each group that it shares with no other, (K,).

    The sums a_i + a_j that come nearest to the covariances of all pairs are taken off. Of two groups only the variance
    of their difference is known, and each gets its part.
    """
    size, variance = len(covariance), np.array(np.diagonal(covariance))
    if size == 1:
        return variance
    if size == 2:
        apart = variance.sum() - 2 * covariance[0, 1]
        return np.asarray(variance * (apart / variance.sum()))
    beside = covariance.sum(axis=1) - variance
    common = (beside - beside.sum() / (2 * (size - 1))) / (size - 2)
    total = covariance.sum()
    rest = (total - 2 * covariance.sum(axis=1) + variance) / (size - 1) ** 2
    against_rest = variance + rest - 2 * beside / (size - 1)
    return np.asarray(np.maximum(variance - 2 * common, _LEAST * against_rest))


def is_independent(covariance: FloatArray, own: FloatArray) -> bool:
    """Whether the groups' own variances say all of how they differ."""
    if len(own) <= 2:
        return True
    left = covariance - np.diag(own)
    # Sums a_i + a_j have a_i = left_ii / 2.
    half = np.diagonal(left) / 2
    return bool(np.abs(left - half[:, None] - half).max() <= _NOTHING * own.min())
