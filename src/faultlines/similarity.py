"""What "similar" means: how clusters pool, how likely a pair as different as this one is when it is alike.

`Gaussian` is the notion behind estimates: equal effects (the paper's section 5.1.2), or effects at most a tolerance
apart. `Similarity` is any other: statistics that add up when groups are merged and a test of two clusters (the paper's
Algorithm 1). Both can pool clusters, find their most similar pair, be divided into independent parts, and be narrowed
to some of the groups. They know nothing of trees and guarantees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import numpy as np
from scipy.special import digamma, fdtrc, polygamma, stdtrit, xlog1py

from faultlines.errors import InputError, shorten
from faultlines.estimates import ANSCOMBE, COUNTS, IDENTITY, LOG_RATIO, Estimates
from faultlines.tails import log_chi_square_1_tail, log_chi_square_tail, log_t_tail

if TYPE_CHECKING:
    import numpy.typing as npt

    from faultlines.estimates import FloatArray, Label

    IntArray = npt.NDArray[np.int64]

# Kernels of _walk.pyx: on a line, and beyond it.
NORMAL, WITHIN, WITHIN_RATES, BINOMIAL, POISSON = range(5)
PLANE, CORRELATED, WELCH = range(3)
AS_GOOD_AS_KNOWN = 1e12  # degrees of freedom

Test = Callable[["FloatArray", "FloatArray"], "FloatArray"]
Null = Callable[["FloatArray", np.random.Generator], "FloatArray"]
Divide = Callable[["FloatArray", Sequence[float], np.random.Generator], Sequence["FloatArray"]]


class Pair(NamedTuple):
    """Two clusters, by their numbers, and the log of the p with which they are alike."""

    a: int
    b: int
    log_p: float


class Notion(Protocol):
    """Groups together with what makes clusters of them similar."""

    @property
    def labels(self) -> Sequence[Label]:
        """Names of the groups."""

    @property
    def n(self) -> FloatArray | None:
        """Their sizes, where known."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """What the labels are values of."""

    @property
    def measure(self) -> str:
        """What is compared."""

    @property
    def estimates(self) -> Estimates | None:
        """Estimates for people to read, where there are some."""

    def __len__(self) -> int: ...

    def most_similar(self, clusters: IntArray) -> Pair:
        """The pair of clusters with the largest p; `clusters` numbers the cluster of every group from 0."""

    def log_pointwise(self, heights: FloatArray) -> FloatArray:
        """Log p of merges of these heights, as if each had been chosen beforehand."""

    def divided(self, shares: Sequence[float], rng: np.random.Generator) -> list[Self]:
        """Independent parts that hold the given shares of the information."""

    def subset(self, keep: npt.NDArray[np.bool_]) -> Self:
        """The same for some of the groups."""


# ----------------------------------------------------------------------------------------------------- normal estimates


@dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """Similar means equal effects; or, with a tolerance, effects at most that far apart in the metric's own units.

    The likelihood ratio of two clusters is Δᵀ(V_a + V_b)⁻¹Δ; with a tolerance, what of Δ is beyond it counts.

    Groups pool with weights 1/se². Where standard errors are estimates and data are split, `weights` from another part
    stand in their place: weights that do not depend on the estimates they weigh leave no bias in the variance.
    """

    estimates: Estimates
    tolerance: float = 0.0
    weights: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def labels(self) -> Sequence[Label]:
        """Names of the groups."""
        return self.estimates.labels

    @property
    def n(self) -> FloatArray | None:
        """Sizes of the groups."""
        return self.estimates.n

    @property
    def attributes(self) -> tuple[str, ...]:
        """What the labels are values of."""
        return self.estimates.attributes

    @property
    def measure(self) -> str:
        """What was measured."""
        return self.estimates.measure

    @property
    def line_kernel(self) -> int:
        """How neighbours on the line are compared."""
        if self.tolerance == 0:
            return NORMAL
        return WITHIN_RATES if self.estimates.scale is ANSCOMBE else WITHIN

    def subset(self, keep: npt.NDArray[np.bool_]) -> Gaussian:
        """The same for some of the groups."""
        return Gaussian(
            self.estimates.subset(keep), self.tolerance, None if self.weights is None else self.weights[keep]
        )

    def weighted_by(self, other: Gaussian) -> Gaussian:
        """The same with the weights of another part of the data, where they are estimates."""
        if other.estimates.dof is None:
            return self
        return Gaussian(self.estimates, self.tolerance, _true_scales(other.estimates) ** -2.0)

    def log_pointwise(self, heights: FloatArray) -> FloatArray:
        """χ² with as many degrees of freedom as there are dimensions."""
        dims = self.estimates.dims
        return log_chi_square_1_tail(heights) if dims == 1 else log_chi_square_tail(heights, dims)

    def divided(self, shares: Sequence[float], rng: np.random.Generator) -> list[Gaussian]:
        """Gaussian thinning: θ_b = θ + se·(z_b/√q_b − Σ √q_c z_c) has variance se²/q_b, and the parts are independent.

        Where the standard errors are estimates, with `dof`, their information is divided along: see `_thinned`.
        """
        estimates, root = self.estimates, np.sqrt(np.asarray(shares, dtype=float))
        # In an order of their own, so that the order of the groups does not decide who gets which noise.
        keys = (*np.atleast_2d(estimates.se.T), *np.atleast_2d(estimates.theta.T))
        order = np.lexsort(keys)
        if estimates.dof is not None:
            made = _thinned(estimates, order, shares, rng)
            return [Gaussian(part, self.tolerance) for part in made]
        normal = np.empty((len(root), *estimates.theta.shape))
        normal[:, order] = rng.standard_normal(normal.shape)
        if estimates.cov is None:
            noise = normal * estimates.se
        else:
            noise = np.einsum("kij,bkj->bki", np.linalg.cholesky(estimates.cov), normal)
        common = np.tensordot(root, noise, axes=1)
        return [
            Gaussian(
                estimates.replaced(estimates.theta + noise[b] / root[b] - common, spread=1 / root[b]), self.tolerance
            )
            for b in range(len(root))
        ]

    def pooled(self, clusters: IntArray) -> tuple[FloatArray, FloatArray]:
        """Estimates (less a common centre) and covariances of the clusters: (m,), (m,) or (m, d), (m, d, d)."""
        estimates, count = self.estimates, int(clusters.max()) + 1
        centre = estimates.theta[len(estimates) // 2]
        theta, smallest = estimates.theta - centre, float(estimates.se.min())
        if estimates.dims == 1:
            weight = self._weight()
            mass = np.bincount(clusters, weight, count)
            variance = np.bincount(clusters, (weight * (estimates.se / smallest)) ** 2, count) * smallest**2 / mass**2
            return np.bincount(clusters, weight * theta, count) / mass, variance
        if estimates.dof is not None:
            return self._pooled_with_fixed_weights(clusters, theta)
        if estimates.cov is None:
            weight = (smallest / estimates.se) ** 2
            masses, moments = np.zeros((count, estimates.dims)), np.zeros((count, estimates.dims))
            np.add.at(masses, clusters, weight)
            np.add.at(moments, clusters, weight * theta)
            return moments / masses, (smallest**2 / masses)[:, :, None] * np.eye(estimates.dims)
        precision = np.asarray(np.linalg.inv(estimates.cov / smallest**2), dtype=np.float64)
        total, moments = np.zeros((count, *precision.shape[1:])), np.zeros((count, estimates.dims))
        np.add.at(total, clusters, precision)
        np.add.at(moments, clusters, np.einsum("kij,kj->ki", precision, theta))
        cov = np.linalg.inv(total)
        return np.einsum("kij,kj->ki", cov, moments), cov * smallest**2

    def _pooled_with_fixed_weights(self, clusters: IntArray, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Several effects whose covariances are estimates: each weighs on its own, which hardly depends on them."""
        estimates, count = self.estimates, int(clusters.max()) + 1
        weight = self._weight()
        cov = estimates.cov if estimates.cov is not None else estimates.se[:, :, None] ** 2 * np.eye(estimates.dims)
        mass, moment = np.zeros((count, estimates.dims)), np.zeros((count, estimates.dims))
        total = np.zeros((count, estimates.dims, estimates.dims))
        np.add.at(mass, clusters, weight)
        np.add.at(moment, clusters, weight * theta)
        np.add.at(total, clusters, weight[:, :, None] * weight[:, None, :] * cov)
        return moment / mass, total / (mass[:, :, None] * mass[:, None, :])

    def freedom_of_several(self, clusters: IntArray) -> FloatArray:
        """Degrees of freedom behind each cluster's covariance: Satterthwaite's, those of the least known effect."""
        estimates, count = self.estimates, int(clusters.max()) + 1
        spread = (self._weight() * (estimates.se / estimates.se.min(axis=0))) ** 2
        known = np.minimum(np.asarray(estimates.dof), AS_GOOD_AS_KNOWN)[:, None]
        total, squares = np.zeros((count, estimates.dims)), np.zeros((count, estimates.dims))
        np.add.at(total, clusters, spread)
        np.add.at(squares, clusters, spread**2 / known)
        return np.asarray((total**2 / squares).min(axis=1))

    def most_similar(self, clusters: IntArray) -> Pair:
        """On a line only neighbours need comparing, else all pairs."""
        theta, cov = self.pooled(clusters)
        if self.estimates.dims == 1:
            order = np.lexsort((cov, theta))
            low, high = order[:-1], order[1:]
            beyond, plain = self._beyond(theta[low], theta[high]), theta[high] - theta[low]
            freedom, cov = self.freedom(clusters, cov)
            log_p = _two_sided(beyond, cov[low], cov[high], freedom, low, high)
            nearest = int(np.lexsort((plain**2 / (cov[low] + cov[high]), -log_p))[0])
            found = Pair(int(low[nearest]), int(high[nearest]), float(log_p[nearest]))
            return found if freedom is None else self._farther(found, order, theta, cov, freedom)

        def ratio(a: IntArray, b: IntArray) -> FloatArray:
            gap = theta[a] - theta[b]
            return np.asarray(np.einsum("bi,bi->b", gap, np.linalg.solve(cov[a] + cov[b], gap[:, :, None])[:, :, 0]))

        if self.estimates.dof is None:
            a, b, least = _largest(lambda a, b: -ratio(a, b), len(theta))
            return Pair(a, b, float(log_chi_square_tail(np.array([-least]), self.estimates.dims)[0]))
        freedom = self.freedom_of_several(clusters)
        return _largest(lambda a, b: _log_hotelling(ratio(a, b), cov[a], cov[b], freedom[a], freedom[b]), len(theta))

    def _farther(
        self, found: Pair, order: IntArray, theta: FloatArray, variance: FloatArray, freedom: FloatArray
    ) -> Pair:
        """A pair that are not neighbours but more similar: fewer degrees of freedom can make up for more distance."""
        farthest = -float(stdtrit(freedom.min(), max(np.exp(found.log_p), 1e-300) / 2))
        for place, a in enumerate(order[:-2].tolist()):
            others = order[place + 2 :]
            gap = self._beyond(np.broadcast_to(theta[a], others.shape), theta[others])
            near = gap <= farthest * np.sqrt(variance[a] + variance[others])
            if near.any():
                b = others[near]
                log_p = _two_sided(gap[near], variance[a], variance[b], freedom, np.full(b.size, a), b)
                at = int(np.argmax(log_p))
                if log_p[at] > found.log_p:
                    found = Pair(a, int(b[at]), float(log_p[at]))
        return found

    def freedom(self, clusters: IntArray, variance: FloatArray) -> tuple[FloatArray | None, FloatArray]:
        """Degrees of freedom of each cluster's standard error (Welch–Satterthwaite), and its variance as in `welch`."""
        dof, se = self.estimates.dof, self.estimates.se
        if dof is None:
            return None, variance
        known = np.minimum(dof, AS_GOOD_AS_KNOWN)
        terms = _welch_statistics(self._weight(), np.zeros(se.size), se / se.min(), known, self.weights is not None)
        total, _, spread, squares, *added = (
            np.asarray(np.bincount(clusters, term, variance.size), dtype=float) for term in terms.T
        )
        return np.asarray(spread**2 / squares), np.asarray(variance * (1 + meier(total, *added)))

    def _weight(self) -> FloatArray:
        """Weights of the groups, at most 1; for several effects whose covariances are estimates, of each effect."""
        if self.weights is None and self.estimates.dims == 1:
            return np.asarray((self.estimates.se.min() / self.estimates.se) ** 2)
        weight = _true_scales(self.estimates) ** -2.0 if self.weights is None else self.weights
        return np.asarray(weight / weight.max(axis=0))

    def _beyond(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """The same for estimates less their centre, which comes back where the scale bends."""
        centre = self.estimates.theta[len(self) // 2] if self.line_kernel == WITHIN_RATES else 0.0
        return self.beyond(low + centre, high + centre)

    def beyond(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """What of the distance of two effects is beyond the tolerance, on the scale that is compared on.

        For rates it is how far the higher one is from the farthest rate that the lower one allows, or the other way
        round: the smaller of the two.
        """
        if self.tolerance == 0:
            return high - low
        if self.line_kernel == WITHIN:
            return np.maximum(high - low - self.tolerance, 0.0)
        reach = np.sin(np.clip(low, 0, np.pi / 2)) ** 2 + self.tolerance
        floor = np.sin(np.clip(high, 0, np.pi / 2)) ** 2 - self.tolerance
        up = np.where(reach < 1, high - np.arcsin(np.sqrt(np.clip(reach, 0, 1))), 0.0)
        down = np.where(floor > 0, np.arcsin(np.sqrt(np.clip(floor, 0, 1))) - low, 0.0)
        return np.maximum(np.minimum(up, down), 0.0)


def _thinned(
    estimates: Estimates, order: IntArray, shares: Sequence[float], rng: np.random.Generator
) -> list[Estimates]:
    """Parts of estimates that are independent although the variances are not known.

    Mean and covariance of normal observations say all there is to know of their law, so observations drawn given both
    are as good as the real ones; and those can be divided. Of the squared deviations a share falls between the parts,
    which moves their means apart, and the rest within them, which gives each part a covariance of its own. Written for
    d × d matrices; with independent effects (no `cov`) each effect is a case of its own with d = 1.
    """
    size, several = len(estimates), estimates.theta.ndim > 1
    theta = estimates.theta if several else estimates.theta[:, None]
    if estimates.cov is None:
        cases = (estimates.se if several else estimates.se[:, None])[:, :, None, None] ** 2  # (K, effects, 1, 1)
    else:
        cases = estimates.cov[:, None]  # (K, 1, d, d)
    effects, dims = cases.shape[1], cases.shape[2]
    q = np.asarray(shares, dtype=float)[:, None]
    known = np.minimum(np.asarray(estimates.dof), 1e9)[order]
    left = q * (known + 1) - 1
    if left.min() < dims:
        least = float(known.min())
        most = int((least + 1) // (dims + 1))
        raise InputError(
            f"{len(shares)} parts",
            f"leave too little to estimate a standard error from: some rest on {least:g} degrees of freedom",
            f"Use at most {most} parts, or leave such groups out." if most > 1 else "Leave such groups out.",
        )
    share = q[:, :, None, None]
    normal = rng.standard_normal((len(q), size, effects, dims))
    between = normal / np.sqrt(share) - np.sum(np.sqrt(share) * normal, axis=0)
    within = _wishart(np.broadcast_to(left[:, :, None], (len(q), size, effects)), dims, rng)
    whole = np.sum(share[..., None] * between[..., :, None] * between[..., None, :], axis=0) + np.sum(within, axis=0)
    scaled = np.linalg.cholesky(cases[order] * known[:, None, None, None]) @ np.linalg.inv(np.linalg.cholesky(whole))
    moved = np.einsum("keij,bkej->bkei", scaled, between).reshape(len(q), size, -1)
    spread = scaled @ within @ np.swapaxes(scaled, -1, -2) / (left[:, :, None, None, None] * share[..., None])
    back = np.argsort(order)
    parts = []
    for b in range(len(q)):
        means, cov = theta + moved[b][back], spread[b][back]
        errors = np.sqrt(cov[:, :, 0, 0]) if estimates.cov is None else None
        parts.append(
            estimates.replaced(
                means if several else means[:, 0],
                se=errors if several or errors is None else errors[:, 0],
                dof=left[b][back],
                cov=None if estimates.cov is None else cov[:, 0],
            )
        )
    return parts


def _wishart(dof: FloatArray, dims: int, rng: np.random.Generator) -> FloatArray:
    """Wishart matrices with the identity as their scale, by Bartlett's factor; any real degrees of freedom."""
    factor = np.zeros((*dof.shape, dims, dims))
    for i in range(dims):
        factor[..., i, i] = np.sqrt(rng.chisquare(dof - i))
        factor[..., i, :i] = rng.standard_normal((*dof.shape, i))
    return np.asarray(factor @ np.swapaxes(factor, -1, -2))


def wishart_around(root: FloatArray, dof: FloatArray, rows: int, rng: np.random.Generator) -> FloatArray:
    """Estimated covariances, (rows, K, d, d), of groups whose true ones are root · rootᵀ."""
    drawn = _wishart(np.broadcast_to(dof, (rows, *dof.shape)), root.shape[-1], rng)
    return np.asarray(root @ drawn @ np.swapaxes(root, -1, -2) / dof[:, None, None])


def _log_hotelling(
    square: FloatArray, cov_a: FloatArray, cov_b: FloatArray, freedom_a: FloatArray, freedom_b: FloatArray
) -> FloatArray:
    """Log p of Hotelling's T² for two samples with covariances of their own (Krishnamoorthy and Yu, 2004)."""
    dims = cov_a.shape[-1]
    inverse = np.linalg.inv(cov_a + cov_b)
    total = np.zeros(len(square))
    for cov, freedom in ((cov_a, freedom_a), (cov_b, freedom_b)):
        share = cov @ inverse
        trace = np.trace(share, axis1=1, axis2=2)
        total += (np.trace(share @ share, axis1=1, axis2=2) + trace**2) / freedom
    dof = np.maximum((dims + dims**2) / total, dims)
    tail = fdtrc(dims, dof - dims + 1, square * (dof - dims + 1) / (dof * dims))
    return np.asarray(np.log(np.maximum(tail, 5e-324)))


def _largest(value: Callable[[IntArray, IntArray], FloatArray], count: int) -> Pair:
    """The pair a < b of `count` clusters with the largest value, looking at some hundred thousand pairs at a time."""
    best = Pair(0, 1, -np.inf)
    rows = max(1, 200_000 // count)
    for start in range(0, count - 1, rows):
        a, b = np.triu_indices(min(rows, count - start), 1, count - start)
        a, b = a + start, b + start
        values = value(a, b)
        at = int(np.argmax(values))
        if start == 0 or values[at] > best.log_p:
            best = Pair(int(a[at]), int(b[at]), float(values[at]))
    return best


def _two_sided(
    gap: FloatArray, var_a: FloatArray | float, var_b: FloatArray, freedom: FloatArray | None, a: IntArray, b: IntArray
) -> FloatArray:
    """Log p of a difference: normal, or Welch's t where the degrees of freedom are known."""
    total = var_a + var_b
    if freedom is None:
        return log_chi_square_1_tail(gap**2 / total)
    dof = total**2 / (var_a**2 / freedom[a] + var_b**2 / freedom[b])
    return np.asarray(np.where(gap == 0, 0.0, log_t_tail(gap / np.sqrt(total), dof)))


def true_scales(se: FloatArray, dof: FloatArray | None) -> FloatArray:
    """Standard errors to draw with: as spread out as the true ones, not as their estimates.

    An estimated variance scatters around the true one, so log se² is more spread out than log σ² by trigamma(dof/2).
    Drawing with the estimates as they are doubles that scatter and makes the null too tame: false claims at α = 0.05
    become about 0.25 at K = 500, dof = 5 and equal variances. Each log variance is therefore
    pulled towards the mean until the spread that remains is the one the true variances have, less one standard error
    of that spread: variances taken as too unequal make false claims, taken as too equal only a little caution.
    """
    if dof is None or se.size < 2:
        return np.array(se)
    half = np.minimum(dof, AS_GOOD_AS_KNOWN) / 2
    noise = polygamma(1, half)
    log_variance = 2 * np.log(se) - (digamma(half) - np.log(half))
    centre = log_variance.mean()
    # The variance of log χ² has a standard error by its own second and fourth cumulants.
    slack = np.sqrt(2 * noise.mean() ** 2 / (half.size - 1) + polygamma(3, half).mean() / half.size)
    spread = max(0.0, float(log_variance.var(ddof=1) - noise.mean() - slack))
    kept = np.where(dof < AS_GOOD_AS_KNOWN, np.sqrt(spread / (spread + noise)), 1.0)
    return np.asarray(np.exp((centre + kept * (log_variance - centre)) / 2))


def _true_scales(estimates: Estimates) -> FloatArray:
    """The same for estimates: (K,), or (K, d) with each effect on its own."""
    if estimates.dims == 1:
        return true_scales(estimates.se, estimates.dof)
    return np.column_stack([true_scales(estimates.se[:, i], estimates.dof) for i in range(estimates.dims)])


def true_roots(estimates: Estimates) -> FloatArray:
    """Roots of covariances to draw with, (K, d, d): scales as in `true_scales`, correlations pulled together likewise.

    An estimated correlation scatters by about 1/√dof on Fisher's scale. Taken as they come, such correlations make the
    groups look more unlike in shape than they are, and the null too tame.
    """
    scale = _true_scales(estimates)
    if estimates.cov is None:
        return np.asarray(scale[:, :, None] * np.eye(estimates.dims))
    correlation = estimates.cov / (estimates.se[:, :, None] * estimates.se[:, None, :])
    if estimates.dof is not None and len(estimates) > 1:
        above = np.triu_indices(estimates.dims, 1)
        fisher = np.arctanh(np.clip(correlation[:, above[0], above[1]], -0.999999, 0.999999))
        noise = 1 / np.maximum(np.minimum(estimates.dof, AS_GOOD_AS_KNOWN) - 2, 0.5)
        slack = noise.mean() * np.sqrt(2 / (len(estimates) - 1))
        spread = max(0.0, float(fisher.var(axis=0, ddof=1).mean() - noise.mean() - slack))
        kept = np.sqrt(spread / (spread + noise))[:, None, None]
        correlation = kept * correlation + (1 - kept) * correlation.mean(axis=0)
    return np.asarray(scale[:, :, None] * np.linalg.cholesky(correlation))


def checked_tolerance(tolerance: float, estimates: Estimates) -> float:
    """A tolerance as it can be used with these estimates."""
    number = isinstance(tolerance, int | float | np.number) and not isinstance(tolerance, bool | np.bool_)
    if not number or not 0 <= tolerance < np.inf:
        raise InputError(
            f"tolerance={shorten(tolerance)}",
            "must be a number, 0 or more",
            "Give it in the units of the metric: 0.01 is one point of a rate.",
        )
    if tolerance == 0:
        return 0.0
    if estimates.dims > 1:
        raise InputError(
            f"tolerance={tolerance:g}",
            f"has no meaning for {estimates.dims} things at once ({estimates.measure})",
            "Cluster each of them on its own.",
        )
    if estimates.scale not in (IDENTITY, LOG_RATIO, ANSCOMBE):
        raise InputError(
            f"tolerance={tolerance:g}", f"has no meaning on the {estimates.scale.name} scale", "Leave it out."
        )
    if estimates.scale is LOG_RATIO:  # lifts are as far apart as their ratios
        return float(np.log1p(tolerance))
    if estimates.scale is ANSCOMBE and tolerance >= 1:
        raise InputError(f"tolerance={tolerance:g}", "rates differ by less than 1 in any case", "Use for example 0.01.")
    return float(tolerance)


# ----------------------------------------------------------------------------------------------------- any other notion


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class Similarity:
    """Any notion of similarity: statistics that add up when groups merge, and a test that two clusters are alike.

    Args:
        statistics: (K, m) numbers; those of a merged cluster are the sums over its groups.
        pvalue: The test. Takes two arrays of statistics, (r, m) each, and returns r p-values of "these two are alike".
            Those of clusters have to be right too, not only those of groups: see `fl.check_merge_invariance`.
        labels: K names, or K tuples with one value for each attribute.
        log: Whether `pvalue` returns natural logarithms, which keep apart what lies below the smallest double.
        null: For `calibrated`: takes the statistics and a random generator and returns statistics as groups that are
            all alike would have them.
        divide: For `holdout` and `folds`: takes the statistics, shares that sum to 1 and a random generator, and
            returns the statistics of independent parts, one for each share.
        estimate: From statistics to `Estimates`, for people to read.
        n: Sizes of the groups.
        attributes: What the labels are values of.
        measure: What is compared.
    """

    statistics: FloatArray
    pvalue: Test
    labels: Sequence[Label]
    log: bool
    null: Null | None
    divide: Divide | None
    estimate: Callable[[FloatArray], Estimates] | None
    n: FloatArray | None
    attributes: tuple[str, ...]
    measure: str
    estimates: Estimates | None
    kernel: int | None  # compiled, for the notions that come along

    def __init__(
        self,
        statistics: npt.ArrayLike,
        pvalue: Test,
        labels: Sequence[Label] | None = None,
        *,
        log: bool = False,
        null: Null | None = None,
        divide: Divide | None = None,
        estimate: Callable[[FloatArray], Estimates] | None = None,
        n: npt.ArrayLike | None = None,
        attributes: Sequence[str] | None = None,
        measure: str = "effect",
        _kernel: int | None = None,
    ) -> None:
        table = _statistics(statistics)
        for name, given in (("pvalue", pvalue), ("null", null), ("divide", divide), ("estimate", estimate)):
            if not callable(given) and (given is not None or name == "pvalue"):
                raise InputError(f"{name}={shorten(given)}", "is not a function", "Give a function of statistics.")
        # Names and sizes are checked where those of estimates are.
        checked = Estimates(np.zeros(len(table)), np.ones(len(table)), labels, n, attributes=attributes)
        shown = None
        if estimate is not None:
            made = estimate(table)
            if not isinstance(made, Estimates) or len(made) != len(table):
                raise InputError(f"estimate → {shorten(made)}", "is not one Estimates row a group", "Return Estimates.")
            shown = made.changed(
                labels=checked.labels,
                n=made.n if checked.n is None else checked.n,
                attributes=checked.attributes,
                measure=measure,
            )
        for name, value in (
            ("statistics", table),
            ("pvalue", pvalue),
            ("labels", checked.labels),
            ("log", bool(log)),
            ("null", null),
            ("divide", divide),
            ("estimate", estimate),
            ("n", checked.n),
            ("attributes", checked.attributes),
            ("measure", measure),
            ("estimates", shown),
            ("kernel", _kernel),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.statistics)

    def __repr__(self) -> str:
        return f"Similarity({len(self)} groups by {' × '.join(self.attributes)}, {self.statistics.shape[1]} statistics)"

    def with_statistics(self, statistics: FloatArray, keep: npt.NDArray[np.bool_] | None = None) -> Similarity:
        """The same notion on other statistics of the same groups, or of some of them."""
        kept = np.arange(len(self)) if keep is None else np.flatnonzero(keep)
        return Similarity(
            statistics,
            self.pvalue,
            [self.labels[i] for i in kept.tolist()],
            log=self.log,
            null=self.null,
            divide=self.divide,
            estimate=self.estimate,
            n=None if self.n is None else self.n[kept],
            attributes=self.attributes,
            measure=self.measure,
            _kernel=self.kernel,
        )

    def subset(self, keep: npt.NDArray[np.bool_]) -> Similarity:
        """The same for some of the groups."""
        return self.with_statistics(self.statistics[keep], keep)

    def log_pointwise(self, heights: FloatArray) -> FloatArray:
        """The height of a merge is −log p already."""
        return -heights

    def log_pvalues(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Log p of pairs of rows of statistics, once they are known to be p-values."""
        a, b = np.broadcast_arrays(np.atleast_2d(a), np.atleast_2d(b))
        with np.errstate(divide="ignore"):
            given = self.pvalue(a.copy(), b.copy())
        try:
            raw = np.asarray(given)
        except ValueError:
            raw = np.empty(0)
        if raw.shape != (len(a),) or raw.dtype.kind not in "fiu":
            raise InputError(
                f"pvalue of {len(a)} pairs",
                f"returned {raw.dtype} of shape {raw.shape}",
                f"Return one p-value a pair: floating-point numbers of shape ({len(a)},).",
            )
        values = raw.astype(np.float64)
        # A hair beyond the end is rounding.
        good = values <= 1e-9 if self.log else (values >= 0) & (values <= 1 + 1e-9)
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            raise InputError(
                f"pvalue={values[at]:g}",
                f"is not a {'log ' if self.log else ''}p-value, for statistics {shorten(a[at].tolist())} and "
                f"{shorten(b[at].tolist())}",
                "Return numbers up to 0 (log=True)."
                if self.log
                else "Return numbers in [0, 1]; check that statistics add.",
            )
        # A p of zero is one below the smallest double.
        return np.clip(values, -1e300, 0.0) if self.log else np.log(np.clip(values, 5e-324, 1.0))

    def most_similar(self, clusters: IntArray) -> Pair:
        """All pairs of clusters are tested."""
        pooled = np.zeros((int(clusters.max()) + 1, self.statistics.shape[1]))
        np.add.at(pooled, clusters, self.statistics)
        return _largest(lambda a, b: self.log_pvalues(pooled[a], pooled[b]), len(pooled))

    def divided(self, shares: Sequence[float], rng: np.random.Generator) -> list[Similarity]:
        """As the notion says, if it does."""
        if self.divide is None:
            raise InputError(
                "divide=None",
                "this notion does not say how its statistics fall into independent parts",
                "Give Similarity(…, divide=…), or use guarantee='bonferroni' or 'calibrated'.",
            )
        order = np.lexsort(self.statistics.T)  # so that the order of the groups does not decide who gets which noise
        given = self.divide(self.statistics[order], shares, rng)
        try:
            parts = [np.array(part, dtype=float) for part in given]
            good = len(parts) == len(shares) and all(
                part.shape == self.statistics.shape and np.isfinite(part).all() for part in parts
            )
        except (TypeError, ValueError):
            good = False
        if not good:
            raise InputError(
                f"divide → {shorten(given)}",
                f"is not {len(shares)} arrays of finite numbers of shape {self.statistics.shape}",
                "Return one array a share.",
            )
        back = np.argsort(order)
        return [self.with_statistics(part[back]) for part in parts]


def drawn_from(null: Null, statistics: FloatArray, rng: np.random.Generator) -> FloatArray:
    """One draw of a user's own null, on a copy that it may spoil, once it is known to be one."""
    given = null(statistics.copy(), rng)
    try:
        made = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        made = np.empty(0)
    if made.shape != statistics.shape or not np.isfinite(made).all():
        raise InputError(
            f"null → {shorten(given)}",
            f"is not finite numbers of shape {statistics.shape}",
            "Return statistics like those it was given.",
        )
    return made


def _statistics(values: npt.ArrayLike) -> FloatArray:
    try:
        table = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("statistics", "do not add: they are not numbers", "Give an array of shape (K, m).") from error
    if table.ndim != 2 or 0 in table.shape:
        raise InputError("statistics", f"has shape {table.shape}", "Give one row a group: shape (K, m).")
    with np.errstate(over="ignore"):
        if not np.isfinite(table).all() or not np.isfinite(table.sum(axis=0)).all():
            at = np.argwhere(~np.isfinite(table))
            where = f" (row {at[0][0]} holds {table[tuple(at[0])]:g})" if len(at) else ""
            raise InputError("statistics", f"do not add: their sum is not finite{where}", "Leave such groups out.")
    table.setflags(write=False)
    return table


# -------------------------------------------------------------------------------------------- notions that come along


def welch(estimates: Estimates) -> Similarity:
    """The two-sample t-test on effects (the paper's section 5.1.1), with Welch–Satterthwaite degrees of freedom.

    A cluster's effect is the precision-weighted mean of its groups; its degrees of freedom are (Σw)²/Σ(w²/dof). Groups
    whose variance came out too small weigh too much, so its variance is 1/W and a little more: a share of
    4 Σ (w/W)(1 − w/W)/(dof − 3), after Meier (1953), without which the test would not survive merging. Where the
    standard errors of `estimates` have no `dof` they count as known.
    """
    if not isinstance(estimates, Estimates):
        raise InputError(f"estimates={type(estimates).__name__}", "is not an Estimates", "Make one with fl.Estimates.")
    if estimates.dims > 1:
        raise InputError("estimates", f"have {estimates.dims} dimensions", "The t-test compares one effect.")
    centre, unit = float(estimates.theta[len(estimates) // 2]), float(np.exp(np.log(estimates.se).mean()))
    weight = (unit / estimates.se) ** 2
    dof = np.full(len(estimates), np.inf) if estimates.dof is None else estimates.dof
    table = _welch_statistics(weight, (estimates.theta - centre) / unit, estimates.se / unit, dof)

    def estimate(s: FloatArray) -> Estimates:
        freedom = None if estimates.dof is None else np.maximum(_freedom(s), 1.0)
        theta = centre + unit * s[:, 1] / s[:, 0]
        return Estimates(
            theta,
            unit * np.sqrt(s[:, 2]) / s[:, 0],
            dof=freedom,
            scale=estimates.scale,
            natural=estimates.scale.natural(theta),
        )

    def divide(s: FloatArray, shares: Sequence[float], rng: np.random.Generator) -> list[FloatArray]:
        dof = None if estimates.dof is None else _freedom(s)
        parts = Gaussian(Estimates(s[:, 1] / s[:, 0], np.sqrt(s[:, 2]) / s[:, 0], dof=dof)).divided(shares, rng)
        known = np.full(len(s), np.inf)
        made = []
        for b, part in enumerate(parts):  # each weighs its groups with what the one before it knows of their variances
            weighted, e = part.weighted_by(parts[b - 1]), part.estimates
            weight = e.se**-2.0 if weighted.weights is None else weighted.weights
            fixed = weighted.weights is not None
            made.append(_welch_statistics(weight, e.theta, e.se, known if e.dof is None else e.dof, fixed))
        return made

    def null(s: FloatArray, rng: np.random.Generator) -> FloatArray:
        return np.asarray(welch_draws(s, rng, 1)[0])

    return Similarity(
        table,
        _welch_log_p,
        estimates.labels,
        log=True,
        null=null,
        divide=divide,
        estimate=estimate,
        n=estimates.n,
        attributes=estimates.attributes,
        measure=estimates.measure,
        _kernel=WELCH,
    )


def _welch_log_p(a: FloatArray, b: FloatArray) -> FloatArray:
    gap = a[:, 1] / a[:, 0] - b[:, 1] / b[:, 0]
    var_a, var_b = (s[:, 2] / s[:, 0] ** 2 * (1 + meier(s[:, 0], s[:, 4], s[:, 5])) for s in (a, b))
    variance = var_a + var_b
    with np.errstate(divide="ignore"):
        dof = variance**2 / (var_a**2 * a[:, 3] / a[:, 2] ** 2 + var_b**2 * b[:, 3] / b[:, 2] ** 2)
    return np.asarray(np.where(gap == 0, 0.0, log_t_tail(gap / np.sqrt(variance), dof)))


def _welch_statistics(
    weight: FloatArray, theta: FloatArray, se: FloatArray, dof: FloatArray, fixed: bool = False
) -> FloatArray:
    """Statistics that add up, along the last axis: w, wθ, v = w² se², v²/dof, and what `meier` needs (not if `fixed`).

    The variance of a weighted mean is Σv/(Σw)², its degrees of freedom (Σv)²/Σ(v²/dof) (Satterthwaite).
    """
    less = np.full_like(dof, np.inf) if fixed else np.maximum(dof - 3, 0.5)
    spread = (weight * se) ** 2
    return np.stack([weight, weight * theta, spread, spread**2 / dof, weight / less, weight**2 / less], axis=-1)


def meier(weight: FloatArray, shares: FloatArray, squares: FloatArray) -> FloatArray:
    """What estimated weights add to the variance 1/W of a weighted mean, as a share of it.

    Meier's first-order term is 4 Σ (w/W)(1 − w/W)/dof; with dof − 3 it holds down to four degrees of freedom (measured:
    rejections of 3 to 6% at α = 5%, where Meier's own gives up to 13% and none at all far more). From W = Σw,
    Σ w/(dof − 3) and Σ w²/(dof − 3).
    """
    return np.asarray(4 * (shares - squares / weight) / weight)


def welch_state(s: FloatArray) -> FloatArray:
    """Welch statistics, (…, K, 6), as the kernel takes them: the mean in place of wθ and first, one row a number."""
    rows = np.concatenate([s[..., 1:2] / s[..., :1], s[..., :1], s[..., 2:]], axis=-1)
    return np.ascontiguousarray(np.swapaxes(rows, -1, -2))


def _freedom(s: FloatArray) -> FloatArray:
    """Degrees of freedom behind Welch statistics."""
    return np.asarray(np.divide(s[:, 2] ** 2, s[:, 3], out=np.full(len(s), np.inf), where=s[:, 3] > 0))


def welch_draws(s: FloatArray, rng: np.random.Generator, rows: int) -> FloatArray:
    """Statistics of groups that are all alike, (rows, K, 6): effects around zero, variances estimated anew."""
    dof = _freedom(s)
    scale = true_scales(np.sqrt(s[:, 2]) / s[:, 0], None if np.isinf(dof).all() else np.maximum(dof, 1.0))
    half = np.minimum(dof, 1e12) / 2
    theta = scale * rng.standard_normal((rows, len(s)))
    se = scale * np.sqrt(rng.standard_gamma(half, size=theta.shape) / half)
    return _welch_statistics(se**-2.0, theta, se, dof)


def binomial(
    successes: npt.ArrayLike,
    trials: npt.ArrayLike,
    labels: Sequence[Label] | None = None,
    *,
    attributes: Sequence[str] | None = None,
    measure: str = "rate",
) -> Similarity:
    """The likelihood ratio test of equal rates, for `successes` out of `trials` in each group.

    `calibrated` is exact with it: given their total, the successes of groups that are all alike are hypergeometric.
    """
    table = _counts("successes", successes, "trials", trials)
    if np.any(table[:, 1] != np.floor(table[:, 1])):
        raise InputError("trials", "must be whole numbers", "Give counts.")
    if np.any(table[:, 0] > table[:, 1]):
        at = int(np.argmax(table[:, 0] > table[:, 1]))
        raise InputError(
            f"successes={table[at, 0]:g} of trials={table[at, 1]:g}", "there are more successes than trials", "Mend it."
        )

    def estimate(s: FloatArray) -> Estimates:
        theta, se = ANSCOMBE.forward(s[:, 0], s[:, 1]), 1 / np.sqrt(4 * s[:, 1] + 2)
        return Estimates(theta, se, n=s[:, 1], scale=ANSCOMBE, natural=s[:, 0] / s[:, 1])

    def divide(s: FloatArray, shares: Sequence[float], rng: np.random.Generator) -> list[FloatArray]:
        trials = _apportioned(s[:, 1], shares)
        left, tries = s[:, 0].astype(np.int64), s[:, 1].astype(np.int64)
        parts = []
        for part in trials:
            drawn = (
                rng.hypergeometric(left, tries - left, part)
                if tries.max() < 10**9
                else rng.binomial(left, part / tries)
            )
            parts.append(np.column_stack([drawn, part]).astype(float))
            left, tries = left - drawn, tries - part
        return parts

    return Similarity(
        table,
        _binomial_log_p,
        labels,
        log=True,
        null=lambda s, rng: count_draws(BINOMIAL, s, rng, 1)[0],
        divide=divide,
        estimate=estimate,
        n=table[:, 1],
        attributes=attributes,
        measure=measure,
        _kernel=BINOMIAL,
    )


def poisson(
    events: npt.ArrayLike,
    exposure: npt.ArrayLike = 1.0,
    labels: Sequence[Label] | None = None,
    *,
    attributes: Sequence[str] | None = None,
    measure: str = "rate of events",
) -> Similarity:
    """The likelihood ratio test of equal rates of counted events, for `events` in an `exposure` (people, days, …).

    `calibrated` is exact with it: given their total, the events of groups that are all alike are multinomial.
    """
    table = _counts("events", events, "exposure", exposure)

    def estimate(s: FloatArray) -> Estimates:
        theta, se = COUNTS.forward(s[:, 0], s[:, 1]), 0.5 / np.sqrt(s[:, 1])
        return Estimates(theta, se, n=s[:, 1], scale=COUNTS, natural=s[:, 0] / s[:, 1])

    def divide(s: FloatArray, shares: Sequence[float], rng: np.random.Generator) -> list[FloatArray]:
        drawn = rng.multinomial(s[:, 0].astype(np.int64), np.asarray(shares) / np.sum(shares))
        return [np.column_stack([drawn[:, b], q * s[:, 1]]) for b, q in enumerate(shares)]

    return Similarity(
        table,
        _poisson_log_p,
        labels,
        log=True,
        null=lambda s, rng: count_draws(POISSON, s, rng, 1)[0],
        divide=divide,
        estimate=estimate,
        n=table[:, 1],
        attributes=attributes,
        measure=measure,
        _kernel=POISSON,
    )


def _counts(name: str, events: npt.ArrayLike, other: str, sizes: npt.ArrayLike) -> FloatArray:
    """Events and what they are counted in, as statistics."""
    try:
        counted = np.array(events, dtype=np.float64)
        of = np.broadcast_to(np.array(sizes, dtype=np.float64), counted.shape)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}, {other}", "are not numbers, one a group each", "Give two arrays of K.") from error
    if counted.ndim != 1 or counted.size == 0:
        raise InputError(name, f"has shape {counted.shape}", "Give one count a group.")
    if not np.all(np.isfinite(counted) & (counted >= 0) & (counted == np.floor(counted)) & (counted < 2**53)):
        raise InputError(name, "must be whole numbers, 0 or more", "Give counts.")
    if not np.all(np.isfinite(of) & (of > 0)):
        raise InputError(other, "must be above zero", "Leave out groups without any.")
    return np.column_stack([counted, of])


def _apportioned(trials: FloatArray, shares: Sequence[float]) -> list[npt.NDArray[np.int64]]:
    """Whole numbers of trials for each part, at least one: as near to the shares as they come."""
    share = np.asarray(shares, dtype=float) / np.sum(shares)
    if float(trials.min()) * share.min() < 1 - 1e-9:
        raise InputError(
            f"{len(shares)} parts",
            f"are too many for the {trials.min():g} trials of the smallest group",
            "Use fewer folds, or leave small groups out.",
        )
    edges = np.floor(np.cumsum(share)[:, None] * trials + 0.5)
    edges[-1] = trials
    return [part.astype(np.int64) for part in np.diff(edges, axis=0, prepend=0.0)]


def _divergence(x: FloatArray, pooled: FloatArray) -> FloatArray:
    """The term x log(x/pooled), 0 at x = 0, without cancellation."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((x > 0) & (pooled > 0), xlog1py(x, (x - pooled) / np.where(pooled > 0, pooled, 1.0)), 0.0)


def _binomial_log_p(a: FloatArray, b: FloatArray) -> FloatArray:
    pooled, ratio = (a[:, 0] + b[:, 0]) / (a[:, 1] + b[:, 1]), np.zeros(len(a))
    for part in (a, b):
        rate = part[:, 0] / part[:, 1]
        ratio += 2 * part[:, 1] * (_divergence(rate, pooled) + _divergence(1 - rate, 1 - pooled))
    return log_chi_square_1_tail(np.maximum(ratio, 0.0))


def _poisson_log_p(a: FloatArray, b: FloatArray) -> FloatArray:
    pooled = (a[:, 0] + b[:, 0]) / (a[:, 1] + b[:, 1])
    ratio = sum(2 * part[:, 1] * _divergence(part[:, 0] / part[:, 1], pooled) for part in (a, b))
    return log_chi_square_1_tail(np.maximum(ratio, 0.0))


def count_draws(kernel: int, s: FloatArray, rng: np.random.Generator, rows: int) -> FloatArray:
    """Counts of groups that are all alike, (rows, K, 2), given their total: exact, whatever the common rate is."""
    total, sizes = int(s[:, 0].sum()), s[:, 1]
    if kernel == POISSON:
        drawn = rng.multinomial(total, sizes / sizes.sum(), size=rows)
    elif sizes.sum() < 10**9:
        drawn = rng.multivariate_hypergeometric(sizes.astype(np.int64), total, size=rows, method="marginals")
    else:  # beyond what NumPy draws; with so many trials the total hardly matters
        drawn = rng.binomial(sizes.astype(np.int64), total / sizes.sum(), size=(rows, len(s)))
    return np.stack([drawn.astype(float), np.broadcast_to(sizes, drawn.shape)], axis=2)
