"""Several effects per group, measured together: similar means equal in all of them.

The likelihood ratio of two clusters is Δᵀ(V_a + V_b)⁻¹Δ. There is no line here: every cluster remembers its nearest
neighbor, and heights can fall a little.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import fdtrc

from faultlines.core import kernels
from faultlines.core.comparison import (
    AS_GOOD_AS_KNOWN,
    BLOCK,
    CORRELATED,
    MOST_DRAWS,
    PLANE,
    EstimatesComparison,
    Merges,
    NullDraws,
    Pair,
    PooledEffects,
    find_largest_pair,
    fraction_of,
    generator,
    lay_out,
)
from faultlines.core.distributions import (
    choose_unit,
    draw_covariances,
    log_chi_square_tail,
    shrink_all_scales,
    shrink_roots,
)
from faultlines.core.line import thin_estimates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faultlines.estimates.estimates import BoolArray, Estimates, IntArray
    from faultlines.estimates.scales import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Plane(EstimatesComparison):
    """Groups with several effects each.

    Attributes:
        estimates: Their effects, with covariances or independent.
        weights: Weights of each effect from an independent part of the data, (K, d), where covariances are estimates.
    """

    estimates: Estimates
    weights: FloatArray | None = None

    @property
    def tolerance(self) -> float:
        """Several effects have none."""
        return 0.0

    @property
    def default_draws(self) -> int:
        """Fewer where each of them is much work."""
        return int(np.clip(400_000_000 // len(self) ** 2, 99, MOST_DRAWS))

    @property
    def is_plain(self) -> bool:
        """Never: several effects are judged one experiment at a time."""
        return False

    def subset(self, keep: BoolArray) -> Plane:
        """The same for some of the groups."""
        return Plane(self.estimates.subset(keep), None if self.weights is None else self.weights[keep])

    def with_weights_of(self, other: Plane) -> Plane:
        """The same with the weights of another part of the data, where they are estimates."""
        if other.estimates.dof is None:
            return self
        return replace(self, weights=shrink_all_scales(other.estimates) ** -2.0)

    def split(self, shares: Sequence[float], rng: np.random.Generator) -> list[Plane]:
        """By thinning."""
        return [Plane(part) for part in thin_estimates(self.estimates, shares, rng)]

    def log_pointwise(self, heights: FloatArray) -> FloatArray:
        """χ² with as many degrees of freedom as there are effects."""
        return log_chi_square_tail(heights, self.estimates.dims)

    def merges(self) -> Merges:
        """The most similar pair of all, again and again."""
        estimates = self.estimates
        unit = choose_unit(estimates.errors)
        theta = ((estimates.values - estimates.values[len(self) // 2]) / unit).T
        if estimates.effect_covariance is None:
            return merged(PLANE, np.ascontiguousarray(np.vstack([theta, (unit / estimates.errors.T) ** 2])))
        return merged(CORRELATED, stack_covariances(theta, estimates.effect_covariance / unit**2))

    def tops(self, theta: FloatArray) -> FloatArray:
        """The highest merge of every row of other effects, (r, K, d), of the same groups."""
        estimates = self.estimates
        unit = choose_unit(estimates.errors)
        means = np.swapaxes((theta - theta[:, :1]) / unit, 1, 2)
        kind, below = PLANE, (unit / estimates.errors.T) ** 2
        if estimates.effect_covariance is not None:
            kind, below = CORRELATED, stack_covariances(np.empty((0, len(self))), estimates.effect_covariance / unit**2)
        rows = np.broadcast_to(below, (len(theta), *below.shape))
        top = np.empty(len(theta))
        kernels.top_plane(kind, np.ascontiguousarray(np.concatenate([means, rows], axis=1)), top)
        return top

    # ----------------------------------------------------------------------------------------------------- null

    def null_draws(self, top: float, draws: int, seed: int) -> NullDraws:
        """Directions of draws with these covariances."""
        dof, root = self.estimates.dof, shrink_roots(self.estimates)
        rows, block = self._blocks(root, seed)
        tail = np.inf if dof is None else float(dof.min())
        own = fraction_of(top, self._squared_length(root))
        return NullDraws(rows, block, self.estimates.dims * (len(self) - 1), own, tail)

    def _squared_length(self, root: FloatArray) -> float:
        """The data's squared length in standard errors, once a common shift is taken out."""
        theta = self.estimates.values - self.estimates.values[len(self) // 2]
        standard = np.linalg.solve(root, theta[:, :, None]).reshape(-1)
        shift = np.linalg.qr(np.linalg.inv(root).reshape(-1, self.estimates.dims))[0]
        return float(np.sum((standard - shift @ (shift.T @ standard)) ** 2))

    def _blocks(self, root: FloatArray, seed: int) -> tuple[int, Callable[[int, int], FloatArray]]:
        """Top merge over squared length of draws."""
        estimates = self.estimates
        groups, dims = root.shape[:2]
        dof = np.full(groups, np.inf) if estimates.dof is None else np.minimum(estimates.dof, AS_GOOD_AS_KNOWN)
        order = np.lexsort((dof, *root.reshape(groups, -1).T))
        root, dof = root[order] / np.exp(np.log(np.diagonal(root, axis1=1, axis2=2)).mean()), dof[order]
        outward = np.linalg.qr(np.linalg.inv(root).reshape(groups * dims, dims))[0]  # directions of a common shift
        rows = max(1, min(256, BLOCK // (groups * dims * (2 if estimates.effect_covariance is None else 2 + 2 * dims))))
        scale, cov = np.diagonal(root, axis1=1, axis2=2), root @ np.swapaxes(root, 1, 2)

        def block(number: int, count: int) -> FloatArray:
            rng = generator(seed, number)
            normal = rng.standard_normal((count, groups, dims))
            flat = normal.reshape(count, -1)
            radius = np.einsum("ri,ri->r", flat, flat) - np.sum((flat @ outward) ** 2, axis=1)
            if estimates.effect_covariance is None:
                observed = np.broadcast_to(scale, normal.shape)
                if estimates.dof is not None:
                    half = dof[:, None] / 2
                    observed = observed * np.sqrt(rng.standard_gamma(half, size=normal.shape) / half)
                state = np.concatenate(
                    [(normal * scale).transpose(0, 2, 1), (observed**-2.0).transpose(0, 2, 1)], axis=1
                )
                kind = PLANE
            else:
                means = np.einsum("kij,rkj->rki", root, normal)
                drawn = cov[None] if estimates.dof is None else draw_covariances(root, dof, count, rng)
                state = np.stack([stack_covariances(m.T, drawn[r % len(drawn)]) for r, m in enumerate(means)])
                kind = CORRELATED
            top = np.empty(count)
            kernels.top_plane(kind, np.ascontiguousarray(state), top)
            return np.asarray(top / np.maximum(radius, np.finfo(float).tiny))

        return rows, block

    # --------------------------------------------------------------------------------------------------- pooling

    def pool(self, clusters: IntArray) -> PooledEffects:
        """Effects pooled with their precision matrices; with fixed weights where covariances are estimates."""
        centred, cov = self._pooled(clusters)
        freedom = None if self.estimates.dof is None else self._freedom(clusters)
        errors = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
        return PooledEffects(centred + self.estimates.values[len(self) // 2], errors, cov, freedom)

    def _pooled(self, clusters: IntArray) -> tuple[FloatArray, FloatArray]:
        """Effects of the clusters less a common centre, (m, d), and their covariances."""
        estimates, count = self.estimates, int(clusters.max()) + 1
        theta, smallest = estimates.values - estimates.values[len(self) // 2], float(estimates.errors.min())
        if estimates.dof is not None:
            return self._pooled_with_fixed_weights(clusters, theta)
        if estimates.effect_covariance is None:
            weight = (smallest / estimates.errors) ** 2
            masses, moments = np.zeros((count, estimates.dims)), np.zeros((count, estimates.dims))
            np.add.at(masses, clusters, weight)
            np.add.at(moments, clusters, weight * theta)
            return moments / masses, (smallest**2 / masses)[:, :, None] * np.eye(estimates.dims)
        precision = np.asarray(np.linalg.inv(estimates.effect_covariance / smallest**2), dtype=np.float64)
        total, moments = np.zeros((count, *precision.shape[1:])), np.zeros((count, estimates.dims))
        np.add.at(total, clusters, precision)
        np.add.at(moments, clusters, np.einsum("kij,kj->ki", precision, theta))
        cov = np.linalg.inv(total)
        return np.einsum("kij,kj->ki", cov, moments), cov * smallest**2

    def _pooled_with_fixed_weights(self, clusters: IntArray, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effects whose covariances are estimates: each weighs on its own, which hardly depends on them."""
        estimates, count = self.estimates, int(clusters.max()) + 1
        weight = self._weight()
        cov = (
            estimates.effect_covariance
            if estimates.effect_covariance is not None
            else estimates.errors[:, :, None] ** 2 * np.eye(estimates.dims)
        )
        mass, moment = np.zeros((count, estimates.dims)), np.zeros((count, estimates.dims))
        total = np.zeros((count, estimates.dims, estimates.dims))
        np.add.at(mass, clusters, weight)
        np.add.at(moment, clusters, weight * theta)
        np.add.at(total, clusters, weight[:, :, None] * weight[:, None, :] * cov)
        return moment / mass, total / (mass[:, :, None] * mass[:, None, :])

    def _weight(self) -> FloatArray:
        """Weights of each effect of the groups, at most 1."""
        weight = shrink_all_scales(self.estimates) ** -2.0 if self.weights is None else self.weights
        return np.asarray(weight / weight.max(axis=0))

    def _freedom(self, clusters: IntArray) -> FloatArray:
        """Degrees of freedom behind each cluster's covariance: Satterthwaite's, those of the least known effect."""
        estimates, count = self.estimates, int(clusters.max()) + 1
        spread = (self._weight() * (estimates.errors / estimates.errors.min(axis=0))) ** 2
        finite_dof = np.minimum(np.asarray(estimates.dof), AS_GOOD_AS_KNOWN)[:, None]
        total, squares = np.zeros((count, estimates.dims)), np.zeros((count, estimates.dims))
        np.add.at(total, clusters, spread)
        np.add.at(squares, clusters, spread**2 / finite_dof)
        return np.asarray((total**2 / squares).min(axis=1))

    def most_similar_pair(self, clusters: IntArray) -> Pair:
        """All pairs are compared."""
        theta, cov = self._pooled(clusters)

        def ratio(a: IntArray, b: IntArray) -> FloatArray:
            gap = theta[a] - theta[b]
            return np.asarray(np.einsum("bi,bi->b", gap, np.linalg.solve(cov[a] + cov[b], gap[:, :, None])[:, :, 0]))

        if self.estimates.dof is None:
            a, b, least = find_largest_pair(lambda a, b: -ratio(a, b), len(theta))
            return Pair(a, b, float(log_chi_square_tail(np.array([-least]), self.estimates.dims)[0]))
        freedom = self._freedom(clusters)
        return find_largest_pair(
            lambda a, b: _log_hotelling(ratio(a, b), cov[a], cov[b], freedom[a], freedom[b]), len(theta)
        )

    def refine(self, clusters: IntArray) -> IntArray:
        """Groups moved to the nearest cluster in their own precision, until nothing moves; none is emptied."""
        estimates, count = self.estimates, int(clusters.max()) + 1
        theta = estimates.values - estimates.values[len(self) // 2]
        precision = None if estimates.effect_covariance is None else np.linalg.inv(estimates.effect_covariance)
        for _ in range(100):
            centres = self._pooled(clusters)[0]
            distance = np.empty((len(theta), count))
            for c in range(count):
                gap = theta - centres[c]
                if precision is None:
                    distance[:, c] = np.sum((gap / estimates.errors) ** 2, axis=1)
                else:
                    distance[:, c] = np.einsum("ki,kij,kj->k", gap, precision, gap)
            moved = np.argmin(distance, axis=1).astype(np.int64)
            if np.array_equal(moved, clusters) or np.unique(moved).size < count:
                break
            clusters = moved
        return clusters


def merged(kind: int, state: FloatArray) -> Merges:
    """Merges of clusters that do not stand on a line; `state` is used up."""
    merges = np.empty((state.shape[1] - 1, 2), dtype=np.int64)
    heights = np.empty(state.shape[1] - 1)
    kernels.merge_plane(kind, state, merges, heights)
    return lay_out(merges, heights)


def stack_covariances(theta: FloatArray, cov: FloatArray) -> FloatArray:
    """Means (d, K), precision matrices and covariances of K groups, one below the other."""
    groups = len(cov)
    precision = np.linalg.inv(cov)
    return np.ascontiguousarray(np.vstack([theta, precision.reshape(groups, -1).T, cov.reshape(groups, -1).T]))


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
