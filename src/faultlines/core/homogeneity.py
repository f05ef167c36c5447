"""Do given clusters, or given groups, have the same effect? Tests for partitions fixed beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import chdtri, chndtr, fdtrc, fdtri

from faultlines.core.comparison import AS_GOOD_AS_KNOWN, BLOCK, generator
from faultlines.core.distributions import draw_covariances, log_chi_square_tail, log_t_tail, shrink_roots
from faultlines.core.line import CorrelatedNoise

if TYPE_CHECKING:
    from faultlines.core.comparison import PooledEffects
    from faultlines.estimates.estimates import Estimates
    from faultlines.estimates.scales import FloatArray

_DRAWS = 999
_ROOM = 20_000_000  # numbers that draws may take together
_FEW_GROUPS, _MANY_DEGREES = 5, 30.0  # within these Welch's test keeps its level (measured; docs/confirm.md)


class HomogeneityTest(NamedTuple):
    """How far apart effects are, and what that is compared with.

    Attributes:
        square: The sum of their squared distances from the common effect, each in its own precision (Cochran's Q).
        effects: Degrees of freedom of the effects.
        errors: Degrees of freedom behind their standard errors; infinite where these are known.
        stretch: What the square is divided by, beside `effects`, to follow an F distribution.
    """

    square: float
    effects: float
    errors: float
    stretch: float

    @property
    def log_pvalue(self) -> float:
        """Log p of "all effects are equal"."""
        if not np.isfinite(self.errors):
            return float(log_chi_square_tail(np.array([self.square]), self.effects)[0])
        if self.effects == 1:
            return float(log_t_tail(np.array([np.sqrt(self.square)]), self.errors)[0]) if self.square > 0 else 0.0
        return float(np.log(max(fdtrc(self.effects, self.errors, self.square / self.stretch), 5e-324)))

    def power(self, square: float, alpha: float) -> float:
        """The probability of a p below α where the true effects have this sum of squared distances."""
        if np.isfinite(self.errors):
            critical = self.stretch * float(fdtri(self.effects, self.errors, 1 - alpha))
        else:
            critical = float(chdtri(self.effects, alpha))
        return float(1 - chndtr(critical, self.effects, square)) if square > 0 else alpha


def compare_means(values: FloatArray, covariances: FloatArray, dof: FloatArray | None) -> HomogeneityTest:
    """Whether m effects of d parts each are equal.

    The test of Johansen (1980), which is Welch's (1951) for one part, Welch's t for two effects, and the χ² test where
    covariances are known.

    Args:
        values: The effects, (m, d).
        covariances: Their covariances, (m, d, d).
        dof: Degrees of freedom behind these, (m,); None where they are known.
    """
    count, dims = values.shape
    unit = float(np.sqrt(np.diagonal(covariances, axis1=1, axis2=2).min()))
    precision = np.asarray(np.linalg.inv(covariances / unit**2), dtype=np.float64)
    total, square = precision.sum(axis=0), float(_squares((values - values[0]) / unit, precision))
    effects = float(dims * (count - 1))
    if dof is None:
        return HomogeneityTest(square, effects, np.inf, effects)
    left = np.eye(dims) - np.linalg.solve(total, precision)
    trace, squares = np.trace(left, axis1=1, axis2=2), np.trace(left @ left, axis1=1, axis2=2)
    excess = float(np.sum((squares + trace**2) / np.minimum(dof, AS_GOOD_AS_KNOWN))) / 2
    errors = effects * (effects + 2) / (3 * max(excess, 1e-300))
    return HomogeneityTest(square, effects, errors, effects + 2 * excess - 6 * excess / (effects + 2))


def compare_correlated_means(values: FloatArray, covariance: FloatArray, dof: FloatArray | None) -> HomogeneityTest:
    """Whether effects (m,) that share data are equal: F, by the least degrees of freedom behind their errors."""
    square = float(CorrelatedNoise.from_differences(covariance).heterogeneity((values - values[0])[None])[0])
    freedom = float(values.size - 1)
    return HomogeneityTest(square, freedom, np.inf if dof is None else float(dof.min()), freedom)


def compare_pooled(pooled: PooledEffects) -> HomogeneityTest:
    """Whether the effects of given clusters are equal."""
    if pooled.covariance_between is not None:
        return compare_correlated_means(pooled.values[:, 0], pooled.covariance_between, pooled.dof)
    return compare_means(pooled.values, pooled.covariances, pooled.dof)


def log_pvalue_equal(estimates: Estimates, seed: int) -> float:
    """Log p of "these groups have the same effect" (Cochran's Q); 0 for a single group.

    With many groups and few degrees of freedom Welch's test rejects too often, and Q is compared with draws instead.

    Args:
        estimates: The groups.
        seed: Of the draws.
    """
    if len(estimates) < 2:
        return 0.0
    if estimates.covariance is not None:
        return compare_correlated_means(estimates.values[:, 0], estimates.covariance, estimates.dof).log_pvalue
    test = compare_means(estimates.values, estimates.covariances, estimates.dof)
    if estimates.dof is None or len(estimates) <= _FEW_GROUPS or estimates.dof.min() >= _MANY_DEGREES:
        return test.log_pvalue
    root, rng = shrink_roots(estimates), generator(seed, 0)
    dof = np.minimum(estimates.dof, AS_GOOD_AS_KNOWN)
    draws = int(np.clip(_ROOM // (len(estimates) * estimates.dims**2), 99, _DRAWS))
    at_least_as_far, block = 0, max(1, BLOCK // len(estimates))
    for start in range(0, draws, block):
        rows = min(block, draws - start)
        drawn = np.einsum("kij,rkj->rki", root, rng.standard_normal((rows, *estimates.values.shape)))
        precision = np.asarray(np.linalg.inv(_drawn_covariances(root, dof, estimates, rows, rng)), dtype=np.float64)
        at_least_as_far += int(np.sum(_squares(drawn, precision) >= test.square))
    return float(np.log((1 + at_least_as_far) / (1 + draws)))


def _squares(values: FloatArray, precision: FloatArray) -> FloatArray:
    """Cochran's Q of effects, (…, m, d), with these precision matrices, (…, m, d, d)."""
    moment = np.einsum("...kij,...kj->...i", precision, values)
    common = np.linalg.solve(precision.sum(axis=-3), moment[..., None])[..., 0]
    distance = values - common[..., None, :]
    return np.asarray(np.einsum("...ki,...kij,...kj->...", distance, precision, distance))


def _drawn_covariances(
    root: FloatArray, dof: FloatArray, estimates: Estimates, rows: int, rng: np.random.Generator
) -> FloatArray:
    """Covariances of groups estimated anew, (rows, K, d, d); effects that are independent are so here, too."""
    if estimates.effect_covariance is not None:
        return draw_covariances(root, dof, rows, rng)
    half = dof[:, None] / 2
    spread = rng.standard_gamma(half, size=(rows, *estimates.values.shape)) / half
    return np.asarray(spread[..., None] * (root @ np.swapaxes(root, -1, -2)))
