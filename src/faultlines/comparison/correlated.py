"""Noise of groups that share data: drawn with their covariance matrix, and its length once a common shift is off.

With Σ = L Lᵀ, noise is L z for standard normals z. What no shift of all groups can take away of it has the squared
length |z|² − (z·u)², u being L⁻¹1 of length 1: Cochran's Q with the covariances, χ² on K − 1 degrees of freedom and
independent of the noise's direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular

if TYPE_CHECKING:
    from faultlines.estimates.scales import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Correlated:
    """The covariance of K groups, for draws.

    Attributes:
        covariance: The matrix.
        root: Its lower triangular root.
        shift: The direction, among standard normals, of a shift of all groups.
    """

    covariance: FloatArray
    root: FloatArray
    shift: FloatArray

    @classmethod
    def of(cls, covariance: FloatArray) -> Correlated:
        """Of a positive definite matrix."""
        return cls._rooted(covariance)

    @classmethod
    def of_differences(cls, covariance: FloatArray) -> Correlated:
        """The same for what depends on differences alone: draws do not change with what all groups have in common."""
        centred = covariance - covariance.mean(axis=0)
        centred = centred - centred.mean(axis=1)[:, None]
        return cls._rooted(centred + np.trace(centred) / len(centred) ** 2)

    @classmethod
    def _rooted(cls, covariance: FloatArray) -> Correlated:
        root = np.asarray(np.linalg.cholesky(covariance))
        shift = solve_triangular(root, np.ones(len(root)), lower=True)
        return cls(covariance, root, np.asarray(shift / np.linalg.norm(shift)))

    def noise(self, normal: FloatArray) -> FloatArray:
        """Rows of standard normals as noise of the groups."""
        return np.asarray(normal @ self.root.T)

    def squared_lengths(self, normal: FloatArray) -> FloatArray:
        """What no shift takes away of the noise of rows of standard normals."""
        squares = np.einsum("rk,rk->r", normal, normal) - (normal @ self.shift) ** 2
        return np.asarray(np.maximum(squares, np.finfo(float).tiny))

    def heterogeneity(self, values: FloatArray) -> FloatArray:
        """Cochran's Q of rows of effects, with the covariances."""
        return self.squared_lengths(solve_triangular(self.root, values.T, lower=True).T)
