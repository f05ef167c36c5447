"""How far effects spread between groups, and whether they look like a continuum rather than like clusters.

Estimates θ_i = μ_i + noise of variance v_i. The spread τ is the standard deviation of the true effects μ_i. Cochran's Q
with the variances v_i + τ² is χ² on K − 1 degrees of freedom and falls as τ grows: τ is estimated where Q equals its
mean (Paule and Mandel), and the interval has the τ at which Q is no extreme value (Viechtbauer 2007, Q-profile). Noise
is taken off, so the figure compares over time and between experiments of different sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri, chndtr, fdtrc, fdtri, gammaincinv, log_ndtr

from faultlines.core.comparison import AS_GOOD_AS_KNOWN, BLOCK, PooledEffects, generator
from faultlines.core.distributions import draw_covariances, log_chi_square_tail, log_t_tail, shrink_roots
from faultlines.core.normal import CorrelatedNoise
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.types import FloatArray, IntArray

_HALVINGS = 60
_NODES = 64  # quantiles of an estimated variance that moments of 1/variance are averaged over
_AMPLE_DOF = 1e4  # degrees of freedom from which on a variance counts as known
_ROUNDS, _ENOUGH = 100, 1e-6  # of EM; BIC differences of interest are above 0.1
_REFINEMENTS, _SIDE = 9, 5  # grids of 5 × 5 around the likeliest place and scale, each half as wide as the last


@dataclass(frozen=True, slots=True)
class Spread:
    """The standard deviation of the effects between groups.

    Attributes:
        estimate: The estimate without the noise; 0 where the estimates vary no more than noise does.
        lower: Lower end of its interval; 0 where equal effects are possible.
        upper: Upper end.
    """

    estimate: float
    lower: float
    upper: float


def between_spread(
    theta: FloatArray,
    variance: FloatArray,
    alpha: float = 0.05,
    *,
    dof: FloatArray | float | None = None,
    covariance: FloatArray | None = None,
) -> Spread:
    """Estimate the standard deviation of the effects between groups.

    Where the estimates vary even less than noise does, the upper end is that of estimates that vary as noise does on
    average: less scatter than noise has is luck and no evidence for a smaller spread (a power-constrained limit).

    The interval takes effects for independent of the variances. It covered .925–1.00 for normal effects and two
    clusters (K = 5–300, equal and Zipf variances, 400 runs each), for the groups at hand and for those they are drawn
    from; less, .56–.84, where a single outlier of 100 groups or more is all there is and variances differ 100-fold.

    Args:
        theta: Estimates of K groups.
        variance: Their squared standard errors, each group's own; not used where there is a covariance.
        alpha: The interval has the level 1 − α.
        dof: Degrees of freedom behind each variance, where these are estimated.
        covariance: Of the estimates, (K, K), where groups share data.

    Returns:
        The standard deviation in the units of `theta`, with its interval.

    Raises:
        InputError: If there are fewer than two groups.

    Example:
        >>> import numpy as np
        >>> from faultlines.core.spread import between_spread
        >>> rng = np.random.default_rng(0)
        >>> spread = between_spread(3 * rng.standard_normal(200) + rng.standard_normal(200), np.ones(200))
        >>> bool(spread.lower < 3 < spread.upper), round(spread.estimate, 1)
        (True, 2.8)
    """
    theta, variance = np.asarray(theta, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    if theta.size < 2:
        raise InputError.too_few("theta", "has fewer than two groups", "A spread needs at least two.")
    unit = float(np.median(variance if covariance is None else np.diagonal(covariance)))
    values, noise = (theta - np.median(theta)) / np.sqrt(unit), variance / unit
    profile: Callable[[float], _Heterogeneity]
    if covariance is not None:
        profile = _correlated(values, np.asarray(covariance, dtype=np.float64) / unit)
    else:
        degrees = None if dof is None else np.array(np.broadcast_to(np.asarray(dof, dtype=np.float64), theta.shape))
        profile = _independent(values, noise, None if degrees is None or degrees.min() > _AMPLE_DOF else degrees)
    return _profiled(profile, float(np.sqrt(unit)), float(np.ptp(values)), alpha)


class _Heterogeneity(NamedTuple):
    """Cochran's Q at some τ², and the χ² law, stretched by `factor`, that it has if that is the truth."""

    square: float
    factor: float
    dof: float


def _profiled(profile: Callable[[float], _Heterogeneity], unit: float, widest: float, alpha: float) -> Spread:
    """Estimate and interval from Q as a function of τ²."""

    def solve(quantile: Callable[[float], float], stretch: float = 1.0) -> float:
        """The τ² at which Q is at its mean, or at a quantile."""

        def excess(between: float) -> float:
            square, factor, dof = profile(between)
            return square * stretch - factor * quantile(dof)

        if excess(0.0) <= 0:
            return 0.0
        low, high = 0.0, widest**2 + 1e-12
        while excess(high) > 0:
            low, high = high, 4 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) > 0 else (low, middle)
        return (low + high) / 2

    at_zero = profile(0.0)
    scatter = at_zero.square / (at_zero.factor * at_zero.dof)
    stretch = 1.0 if scatter >= 1 else 1.0 / max(scatter, 1e-12)
    # By the tail that is small: 1 − α/2 is 1 for small α. Below 1e-100, τ² is larger than any that is in use.
    ends = (
        solve(lambda dof: dof),
        solve(lambda dof: float(chdtri(dof, alpha / 2))),
        solve(lambda dof: max(2 * float(gammaincinv(dof / 2, alpha / 2)), 1e-100), stretch),
    )
    estimate, lower, upper = (float(np.sqrt(end)) * unit for end in ends)
    return Spread(estimate, lower, max(upper, estimate))


def _independent(theta: FloatArray, variance: FloatArray, dof: FloatArray | None) -> Callable[[float], _Heterogeneity]:
    """Q of groups whose noise is their own."""
    size = theta.size
    nodes = None if dof is None else _chi_square_nodes(dof)

    def profile(between: float) -> _Heterogeneity:
        weight = 1 / (variance + between)
        share = weight / weight.sum()
        square = float(np.sum(weight * (theta - share @ theta) ** 2))
        if nodes is None:
            return _Heterogeneity(square, 1.0, size - 1.0)
        # A term z²(v + τ²)/(v̂ + τ²) has the moments E x and 3 E x² with x = 1/(1 − ρ + ρ v̂/v), ρ = v/(v + τ²); the
        # mean takes off about a share of each. A stretched χ² with the same mean and variance stands for their sum.
        ratio = (variance * weight)[:, None]
        stretched = 1 / (1 - ratio + ratio * nodes)
        first, second = stretched.mean(axis=1), (stretched**2).mean(axis=1)
        mean = float(np.sum((1 - share) * first))
        spread = float(np.sum((1 - share) * (3 * second - first**2)))
        return _Heterogeneity(square, spread / (2 * mean), 2 * mean**2 / spread)

    return profile


def _chi_square_nodes(dof: FloatArray) -> FloatArray:
    """Quantiles of χ²_d/d for every group, (K, nodes); their extremes bound moments that few degrees do not have."""
    levels = (np.arange(_NODES) + 0.5) / _NODES
    unique, place = np.unique(np.minimum(dof, _AMPLE_DOF), return_inverse=True)
    return np.asarray((2 * gammaincinv(unique[:, None] / 2, levels) / unique[:, None])[place])


def _correlated(theta: FloatArray, covariance: FloatArray) -> Callable[[float], _Heterogeneity]:
    """Q of groups that share data: on K − 1 orthonormal contrasts, which have the covariance CΣCᵀ + τ²."""
    size = theta.size
    # Householder: the reflection that takes the direction of a common shift to the first axis, without that axis.
    normal = np.full(size, 1 / np.sqrt(size))
    normal[0] += 1.0
    contrasts = (np.eye(size) - np.outer(normal, normal) * (2 / (normal @ normal)))[1:]
    values, vectors = np.linalg.eigh(contrasts @ covariance @ contrasts.T)
    variance, squares = np.maximum(values, 1e-300), (vectors.T @ (contrasts @ theta)) ** 2

    def profile(between: float) -> _Heterogeneity:
        return _Heterogeneity(float(np.sum(squares / (variance + between))), 1.0, size - 1.0)

    return profile


# ---------------------------------------------------------------------------------------------- clusters or a continuum


def prefers_continuum(theta: FloatArray, variance: FloatArray, labels: IntArray) -> tuple[bool, float]:
    """Whether a smooth distribution of effects describes the estimates better than the reported clusters do, by BIC.

    The clusters are a mixture of m points, 2m − 1 parameters. A continuum is a normal distribution of effects, two
    parameters, or a uniform or exponential one (skewed to either side), whose shape counts as a third.

    Args:
        theta: Estimates of K groups.
        variance: Their squared standard errors.
        labels: The reported cluster of each group, any integers.

    Returns:
        Whether the continuum is preferred, and the BIC of the clusters less that of the best continuum. Of a single
        cluster nothing is preferred, (False, 0.0).

    Example:
        >>> import numpy as np
        >>> from faultlines.core.spread import prefers_continuum
        >>> rng = np.random.default_rng(0)
        >>> smooth = 2 * rng.standard_normal(100) + rng.standard_normal(100)
        >>> prefers_continuum(smooth, np.ones(100), (smooth > 0).astype(int))[0]
        True
        >>> halves = np.repeat([0.0, 6.0], 50) + rng.standard_normal(100)
        >>> prefers_continuum(halves, np.ones(100), np.repeat([0, 1], 50))[0]
        False
    """
    _, places = np.unique(labels, return_inverse=True)
    count, size = int(places.max()) + 1, theta.size
    if count == 1:
        return False, 0.0
    unit = float(np.sqrt(np.median(variance)))
    values, noise = (theta - np.median(theta)) / unit, variance / unit**2
    clusters = (2 * count - 1) * np.log(size) - 2 * _mixture_likelihood(values, noise, places, count)
    continuum = _smooth_bic(values.tobytes(), noise.tobytes())
    return bool(continuum < clusters), float(clusters - continuum)


def _mixture_likelihood(theta: FloatArray, variance: FloatArray, places: IntArray, count: int) -> float:
    """The log-likelihood, without −½ log 2π of each group, of the clusters as a mixture of points, by EM."""
    weight = 1 / variance
    membership = np.zeros((theta.size, count))
    membership[np.arange(theta.size), places] = 1.0
    constant, reached = -0.5 * float(np.sum(np.log(variance))), -np.inf
    for _ in range(_ROUNDS):
        mass = np.maximum(weight @ membership, 1e-300)
        levels = ((weight * theta) @ membership) / mass
        shares = np.maximum(membership.mean(axis=0), 1e-300)
        log = np.log(shares) - 0.5 * weight[:, None] * (theta[:, None] - levels) ** 2
        most = log.max(axis=1)
        membership = np.exp(log - most[:, None])
        total = membership.sum(axis=1)
        membership /= total[:, None]
        likelihood = float(np.sum(most + np.log(total)))
        if likelihood - reached < _ENOUGH:
            break
        reached = likelihood
    return likelihood + constant


@lru_cache(maxsize=4)  # the same for every partition of the groups: a page asks for all of them
def _smooth_bic(estimates: bytes, variances: bytes) -> float:
    """The lowest BIC of the smooth distributions, without the log 2π of each group.

    A shape other than the normal counts as a parameter: without that, halves 4 standard errors apart (K = 40) were
    taken for a continuum in 15% of 40 data sets, with it in 5%; exponential effects are still seen as smooth in
    72–100%, where the normal alone sees 0–50%.
    """
    theta, variance = np.frombuffer(estimates), np.frombuffer(variances)
    se, size = np.sqrt(variance), theta.size
    spread = max(between_spread(theta, variance).estimate, 0.1 * float(se.min()))
    middle = float(np.average(theta, weights=1 / (variance + spread**2)))
    normal = 2 * np.log(size) - 2 * _likeliest(_normal, theta, se, middle, spread)
    shapes = (_uniform, _exponential, lambda x, s, c, h: _exponential(-x, s, -c, h))
    others = max(_likeliest(shape, theta, se, middle, spread) for shape in shapes)
    return float(min(normal, 3 * np.log(size) - 2 * others))


def _likeliest(
    density: Callable[[FloatArray, FloatArray, float, float], FloatArray],
    theta: FloatArray,
    se: FloatArray,
    middle: float,
    spread: float,
) -> float:
    """The highest log-likelihood over mean and standard deviation of the effects, by grids that close in."""
    mean, scale, best = middle, np.log(spread), -np.inf
    wide = np.array([max(spread, float(np.median(se))), 0.7])
    steps = np.linspace(-1, 1, _SIDE)
    for _ in range(_REFINEMENTS):
        at = mean, scale
        for i in steps:
            for j in steps:
                where = at[0] + i * wide[0], at[1] + j * wide[1]
                value = float(np.sum(density(theta, se, where[0], float(np.exp(where[1])))))
                if value > best:
                    best, mean, scale = value, *where
        wide = wide / 2
    return best


def _normal(theta: FloatArray, se: FloatArray, mean: float, spread: float) -> FloatArray:
    """Log density of estimates where effects are normal."""
    total = se**2 + spread**2
    return np.asarray(-0.5 * ((theta - mean) ** 2 / total + np.log(total)))


def _uniform(theta: FloatArray, se: FloatArray, mean: float, spread: float) -> FloatArray:
    """Log density of estimates where effects are uniform: a difference of normal tails, on the side where both last."""
    half = np.sqrt(3.0) * spread
    away = np.abs(theta - mean)
    near, far = log_ndtr((half - away) / se), log_ndtr((-half - away) / se)
    inside = near + np.log(-np.expm1(np.minimum(far - near, -1e-12)))
    return np.asarray(inside - np.log(2 * half) + 0.5 * np.log(2 * np.pi))


def _exponential(theta: FloatArray, se: FloatArray, mean: float, spread: float) -> FloatArray:
    """Log density of estimates where effects are exponential with a tail to the right."""
    above = (theta - mean + spread) / spread  # from where the effects begin, in units of their mean distance from it
    noise = se / spread
    log = -above + 0.5 * noise**2 + log_ndtr(above / noise - noise)
    return np.asarray(log - np.log(spread) + 0.5 * np.log(2 * np.pi))


# ---------------------------------------------------------------------------------------------------------- homogeneity
# Do given clusters, or given groups, have the same effect? Tests for partitions fixed beforehand.

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
        if square <= 0:
            return alpha
        missed = float(chndtr(critical, self.effects, square))
        return 1 - missed if np.isfinite(missed) else float(square > critical)  # NaN far beyond its tables


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
