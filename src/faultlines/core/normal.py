"""Effects with standard errors, one per group or several: similar means equal effects (the paper, section 5.1.2).

The likelihood ratio of two clusters is (θ_a − θ_b)² / (var_a + var_b). Sorted by effect the groups form a line, and
only neighbors can be the most similar pair (docs/method.md), so one walk along it makes all merges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import fdtrc, stdtrit

from faultlines import checks
from faultlines.core import kernels
from faultlines.core.comparison import (
    AS_GOOD_AS_KNOWN,
    BLOCK,
    CORRELATED,
    MOST_DRAWS,
    NORMAL,
    PLANE,
    WITHIN,
    WITHIN_RATES,
    Comparison,
    EstimatesComparison,
    Merges,
    NullDraws,
    Pair,
    PooledEffects,
    find_largest_pair,
    fraction_of,
    generator,
    lay_out,
    ranks,
)
from faultlines.core.distributions import (
    choose_unit,
    draw_covariances,
    draw_wishart,
    log_chi_square_1_tail,
    log_chi_square_tail,
    log_f_tail,
    log_t_tail,
    meier,
    shrink_all_scales,
    shrink_roots,
    shrink_scales,
    welch_statistics,
)
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.scales import Scale
from faultlines.types import BoolArray, FloatArray, IntArray

# ---------- Noise of groups that share data: drawn with their covariance matrix, and its length once a common shift


@dataclass(frozen=True, slots=True, eq=False)
class CorrelatedNoise:
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
    def from_covariance(cls, covariance: FloatArray) -> CorrelatedNoise:
        """Of a positive definite matrix."""
        return cls._rooted(covariance)

    @classmethod
    def from_differences(cls, covariance: FloatArray) -> CorrelatedNoise:
        """The same for what depends on differences alone: draws do not change with what all groups have in common."""
        centred = covariance - covariance.mean(axis=0)
        centred = centred - centred.mean(axis=1)[:, None]
        return cls._rooted(centred + np.trace(centred) / len(centred) ** 2)

    @classmethod
    def _rooted(cls, covariance: FloatArray) -> CorrelatedNoise:
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


# --------------------


_SIDE_BY_SIDE = 64  # groups up to which many experiments are judged in one compiled pass
_ROUNDS = 1000  # of moving borders; each brings groups nearer to their clusters, so it ends long before


@dataclass(frozen=True, slots=True, eq=False)
class Line(EstimatesComparison):
    """Groups with one effect each.

    Attributes:
        estimates: Their effects.
        distance: How far apart effects may be on the scale that is compared on (for rates: as people read it).
        weights: Weights of the groups from an independent part of the data, where standard errors are estimates:
            weights that do not depend on the estimates they weigh leave no bias in the variance. Default: 1/se².
    """

    estimates: Estimates
    distance: float = 0.0
    weights: FloatArray | None = None

    @property
    def tolerance(self) -> float:
        """How far apart effects may be, as people read it."""
        return self._scale.tolerance(self.distance) if self.distance else 0.0

    @property
    def default_draws(self) -> int:
        """Fewer where each of them is much work: 300 for a million groups, 30 for ten million; p stays valid."""
        affordable = max(100_000_000 // len(self), min(300, 300_000_000 // len(self)))
        return int(np.clip(affordable, 20, MOST_DRAWS))

    @property
    def is_plain(self) -> bool:
        """Whether many of its kind can be judged in one compiled pass."""
        has_known_errors = self.estimates.dof is None and self.estimates.covariance is None
        return self.distance == 0 and has_known_errors and 2 <= len(self) <= _SIDE_BY_SIDE

    @property
    def can_scan(self) -> bool:
        """Without a tolerance, and with weights of its own."""
        return self.distance == 0 and self.weights is None

    @property
    def _theta(self) -> FloatArray:
        return self.estimates.values[:, 0]

    @property
    def _se(self) -> FloatArray:
        """What is each group's own: noise that all have in common moves none against the others."""
        return self.estimates.own[:, 0]

    @property
    def _scale(self) -> Scale:
        return self.estimates.scales[0]

    @property
    def _kernel(self) -> int:
        """How neighbors are compared."""
        if self.distance == 0:
            return NORMAL
        return WITHIN_RATES if self._scale.bends else WITHIN

    def subset(self, keep: BoolArray) -> Line:
        """The same for some of the groups."""
        weights = None if self.weights is None else self.weights[keep]
        return Line(self.estimates.subset(keep), self.distance, weights)

    def with_weights_of(self, other: Line) -> Line:
        """The same with the weights of another part of the data, where they are estimates."""
        if other.estimates.own_dof is None:
            return self
        return replace(self, weights=shrink_scales(other._se, other.estimates.own_dof) ** -2.0)

    def split(self, shares: Sequence[float], rng: np.random.Generator) -> list[Line]:
        """By thinning."""
        return [Line(part, self.distance) for part in thin_estimates(self.estimates, shares, rng)]

    def log_pointwise(self, heights: FloatArray) -> FloatArray:
        """χ² with one degree of freedom."""
        return log_chi_square_1_tail(heights)

    # ------------------------------------------------------------------------------------------------------ merging

    def merges(self) -> Merges:
        """Sort once, then merge local minima along the line."""
        order, theta, weight, unit = self._sorted()
        heights = np.empty(theta.size - 1)
        kernels.merge_line(theta, weight, heights, self._kernel, self.distance / unit)
        if self.distance == 0:
            return Merges(order, heights)
        return Merges(order, np.maximum(heights, 0.0), ranks(heights))

    def _sorted(self) -> tuple[IntArray, FloatArray, FloatArray, float]:
        """Order, effects and weights 1/se² along the line, shifted and scaled to where doubles are most precise.

        Neither changes a likelihood ratio. The shift takes a middle estimate to zero, so that θ near 1e9 keeps its
        digits; the scale is a power of two, so that it is exact, and keeps weights far from overflow. It comes last.
        Neither is done on scales on which a place has a meaning.
        """
        order = np.argsort(self._theta).astype(np.int64, copy=False)
        theta = self._theta[order]
        if np.any(theta[1:] == theta[:-1]):  # ties in an order that does not depend on the machine's sort
            order = np.lexsort((self._se, self._theta)).astype(np.int64, copy=False)
        se = self._se[order]
        bends = self._kernel == WITHIN_RATES
        unit = 1.0 if bends else choose_unit(se)
        theta -= 0.0 if bends else theta[theta.size // 2]
        theta /= unit
        se /= unit
        np.multiply(se, se, out=se)
        np.divide(1.0, se, out=se)
        return order, theta, se, unit

    def tops(self, theta: FloatArray) -> FloatArray:
        """The highest merge of every row of other effects, (r, K, 1), of the same groups."""
        theta = theta[:, :, 0]
        shifted = theta if self._kernel == WITHIN_RATES else theta - np.average(self._theta, weights=self._weight())
        return top_merges(shifted, self._se**-2.0, self._kernel, self.distance)

    # -------------------------------------------------------------------------------------------------------- null

    def null_draws(self, top: float, draws: int, seed: int) -> NullDraws:
        """Directions of draws with these standard errors.

        With a tolerance, similar groups may lie anywhere within it. Whatever they do, the top merge of what they show
        is at most the best cut in two of their noise; so that is what heights are compared with.
        """
        dof = self.estimates.own_dof
        scale = shrink_scales(self._se, dof)
        best = self.distance > 0
        own = self._best_cut(scale) if best else top
        tail = np.inf if dof is None else float(dof.min())
        between = self.estimates.covariance
        rows, block = _blocks(scale, dof, seed, best, between)
        length = self._squared_length(scale)
        if between is not None:
            length = float(
                CorrelatedNoise.from_differences(between).heterogeneity(self._theta[None] - self._theta[0])[0]
            )
        return NullDraws(rows, block, len(self) - 1, fraction_of(own, length), tail)

    def _squared_length(self, scale: FloatArray) -> float:
        """Cochran's Q with the scales the draws use: the data's squared length once a common shift is taken out."""
        theta = self._theta - self._theta[len(self) // 2]
        weight = (scale.min() / scale) ** 2
        centre = float(np.sum(weight * theta) / weight.sum())
        return float(np.sum(((theta - centre) / scale) ** 2))

    def _best_cut(self, scale: FloatArray) -> float:
        """The largest likelihood ratio of all cuts of the data in two."""
        theta = self._theta - self._theta[len(self) // 2]
        order = np.argsort(theta)
        weight = (scale.min() / scale[order]) ** 2
        moment = weight * (theta[order] - np.sum(weight * theta[order]) / weight.sum())
        # From either end, so that the lighter side is never a difference of two equal numbers.
        best = 0.0
        for side in (slice(None), slice(None, None, -1)):
            mass, sums = np.cumsum(weight[side])[:-1], np.cumsum(moment[side])[:-1]
            rest = np.cumsum(weight[side][::-1])[::-1][1:]
            lighter = mass <= rest
            if lighter.any():
                ratios = sums[lighter] ** 2 * (weight.sum() / (mass[lighter] * rest[lighter]))
                best = max(best, float(ratios.max()))
        return best / float(scale.min()) ** 2

    # ------------------------------------------------------------------------------------------------------- pooling

    def _weight(self) -> FloatArray:
        """Weights of the groups, at most 1."""
        if self.weights is None:
            return np.asarray((self._se.min() / self._se) ** 2)
        return np.asarray(self.weights / self.weights.max())

    def _pooled(self, clusters: IntArray) -> tuple[FloatArray, FloatArray]:
        """Effects of the clusters, less a common centre, and their variances."""
        count, smallest = int(clusters.max()) + 1, float(self._se.min())
        theta, weight = self._theta - self._theta[len(self) // 2], self._weight()
        mass = np.bincount(clusters, weight, count)
        variance = np.bincount(clusters, (weight * (self._se / smallest)) ** 2, count) * smallest**2 / mass**2
        return np.bincount(clusters, weight * theta, count) / mass, variance

    def _between(self, clusters: IntArray) -> FloatArray | None:
        """The covariance of the means of clusters, (m, m), where groups share data."""
        if self.estimates.covariance is None:
            return None
        return covariance_of_means(self.estimates.covariance, self._weight(), clusters)

    def _with_freedom(self, clusters: IntArray, variance: FloatArray) -> tuple[FloatArray | None, FloatArray]:
        """Degrees of freedom of each cluster's standard error (Welch–Satterthwaite), and its variance as in `welch`."""
        dof, se = self.estimates.own_dof, self._se
        if dof is None:
            return None, variance
        finite_dof = np.minimum(dof, AS_GOOD_AS_KNOWN)
        terms = welch_statistics(self._weight(), np.zeros(se.size), se / se.min(), finite_dof, self.weights is not None)
        total, _, spread, squares, *added = (
            np.asarray(np.bincount(clusters, term, variance.size), dtype=float) for term in terms.T
        )
        return np.asarray(spread**2 / squares), np.asarray(variance * (1 + meier(total, *added)))

    def pool(self, clusters: IntArray) -> PooledEffects:
        """Precision-weighted means; where standard errors are estimates, with allowance for weights that are too."""
        centred, variance = self._pooled(clusters)
        freedom, variance = self._with_freedom(clusters, variance)
        values, between = centred + self._theta[len(self) // 2], self._between(clusters)
        if between is not None:
            variance = np.diagonal(between) * (variance / self._pooled(clusters)[1])
            if np.isfinite(self.estimates.dof_of_all):
                freedom = np.full(variance.size, self.estimates.dof_of_all)
            return PooledEffects(values[:, None], np.sqrt(variance)[:, None], variance[:, None, None], freedom, between)
        return PooledEffects(values[:, None], np.sqrt(variance)[:, None], variance[:, None, None], freedom)

    def refine(self, clusters: IntArray) -> IntArray:
        """Groups moved to the cluster of nearest effect, again and again until nothing moves; none is emptied."""
        order = np.argsort(self._theta, kind="stable").astype(np.int64)
        along = clusters[order]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(along)) + 1)).astype(np.int64)
        if starts.size > int(clusters.max()) + 1:  # no runs: a tree of folds need not follow the effects
            means = self._pooled(clusters)[0]
            by_mean = ranks(means)
            theta = self._theta[order] - self._theta[len(self) // 2]
            nearest = np.searchsorted((np.sort(means)[1:] + np.sort(means)[:-1]) / 2, theta, side="right")
            if np.unique(nearest).size < means.size:
                return by_mean[clusters]
            starts = np.searchsorted(nearest, np.arange(means.size)).astype(np.int64)
        starts = refine_starts(self._theta[order], self._se[order], starts)
        at_place = np.zeros(order.size, dtype=np.int64)
        at_place[starts[1:]] = 1
        refined = np.empty(order.size, dtype=np.int64)
        refined[order] = np.cumsum(at_place)
        return refined

    # ------------------------------------------------------------------------------------------- most similar pair

    def most_similar_pair(self, clusters: IntArray) -> Pair:
        """Only neighbors need comparing, unless degrees of freedom differ."""
        theta, variance = self._pooled(clusters)
        between = self._between(clusters)
        if between is not None:
            return self._most_similar_of(theta, between, self._with_freedom(clusters, variance)[0])
        order = np.lexsort((variance, theta))
        low, high = order[:-1], order[1:]
        beyond, gap = self._beyond_centred(theta[low], theta[high]), theta[high] - theta[low]
        freedom, variance = self._with_freedom(clusters, variance)
        ratios = gap**2 / (variance[low] + variance[high])
        if freedom is None and self.distance == 0:  # p falls with the ratio: that of the nearest pair is enough
            nearest = int(np.argmin(ratios))
            return Pair(int(low[nearest]), int(high[nearest]), float(log_chi_square_1_tail(ratios[nearest])))
        log_p = log_p_two_sided(beyond, variance[low], variance[high], freedom, low, high)
        nearest = int(np.lexsort((ratios, -log_p))[0])
        pair = Pair(int(low[nearest]), int(high[nearest]), float(log_p[nearest]))
        return pair if freedom is None else self._farther(pair, order, theta, variance, freedom)

    def _most_similar_of(self, theta: FloatArray, between: FloatArray, freedom: FloatArray | None) -> Pair:
        """The same of all pairs: what clusters share can make up for distance."""
        variance = np.diagonal(between)

        def log_p(a: IntArray, b: IntArray) -> FloatArray:
            gap = self._beyond_centred(np.minimum(theta[a], theta[b]), np.maximum(theta[a], theta[b]))
            # Scaled to add up to the variance of the difference.
            factor = 1 - 2 * between[a, b] / (variance[a] + variance[b])
            if np.isfinite(self.estimates.dof_of_all):
                return log_f_tail(gap**2 / (factor * (variance[a] + variance[b])), 1, self.estimates.dof_of_all)
            return log_p_two_sided(gap, factor * variance[a], factor * variance[b], freedom, a, b)

        return find_largest_pair(log_p, theta.size)

    def _farther(
        self, pair: Pair, order: IntArray, theta: FloatArray, variance: FloatArray, freedom: FloatArray
    ) -> Pair:
        """A pair that are not neighbors but more similar: fewer degrees of freedom can make up for more distance."""
        farthest = -float(stdtrit(freedom.min(), max(np.exp(pair.log_p), 1e-300) / 2))
        for place, a in enumerate(order[:-2].tolist()):
            others = order[place + 2 :]
            gap = self._beyond_centred(np.broadcast_to(theta[a], others.shape), theta[others])
            near = gap <= farthest * np.sqrt(variance[a] + variance[others])
            if near.any():
                b = others[near]
                log_p = log_p_two_sided(gap[near], variance[a], variance[b], freedom, np.full(b.size, a), b)
                at = int(np.argmax(log_p))
                if log_p[at] > pair.log_p:
                    pair = Pair(a, int(b[at]), float(log_p[at]))
        return pair

    def _beyond_centred(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """`beyond` for effects less their centre, which comes back where the scale bends."""
        centre = self._theta[len(self) // 2] if self._kernel == WITHIN_RATES else 0.0
        return self.beyond(low + centre, high + centre)

    def beyond(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """The part of the distance of two effects that is beyond the tolerance, on the scale that is compared on.

        For rates it is how far the higher one is from the farthest rate that the lower one allows, or the other way
        round: the smaller of the two.
        """
        if self.distance == 0:
            return high - low
        if not self._scale.bends:
            return np.maximum(high - low - self.distance, 0.0)
        reach = np.sin(np.clip(low, 0, np.pi / 2)) ** 2 + self.distance
        floor = np.sin(np.clip(high, 0, np.pi / 2)) ** 2 - self.distance
        up = np.where(reach < 1, high - np.arcsin(np.sqrt(np.clip(reach, 0, 1))), 0.0)
        down = np.where(floor > 0, np.arcsin(np.sqrt(np.clip(floor, 0, 1))) - low, 0.0)
        return np.maximum(np.minimum(up, down), 0.0)


def refine_starts(theta: FloatArray, se: FloatArray, starts: IntArray) -> IntArray:
    """Clusters as runs along sorted effects, by their first places, with borders moved to the nearest effect.

    Each round brings the groups' weighted squared distance to their clusters down, so it ends; a round that would
    empty a cluster is not taken.
    """
    theta = theta - theta[theta.size // 2]  # less a middle one, for its digits
    weight = (se.min() / se) ** 2
    for _ in range(_ROUNDS):
        mass = np.add.reduceat(weight, starts)
        means = np.add.reduceat(weight * theta, starts) / mass
        moved = np.concatenate(([0], np.searchsorted(theta, (means[1:] + means[:-1]) / 2)))
        if np.array_equal(moved, starts) or np.any(np.diff(moved, append=theta.size) <= 0):
            break
        starts = moved
    return starts


def covariance_of_means(covariance: FloatArray, weight: FloatArray, clusters: IntArray) -> FloatArray:
    """The covariance, (m, m), of weighted means of clusters of groups with this covariance."""
    count = int(clusters.max()) + 1
    share = np.zeros((count, clusters.size))
    share[clusters, np.arange(clusters.size)] = weight / np.bincount(clusters, weight, count)[clusters]
    return np.asarray(share @ covariance @ share.T)


def top_merges(means: FloatArray, weights: FloatArray, kind: int, epsilon: float = 0.0) -> FloatArray:
    """Highest merge of every row of means on a line, given their weights."""
    order = np.argsort(means, axis=1, kind="stable")
    top = np.empty(len(means))
    weights = np.take_along_axis(np.broadcast_to(weights, means.shape), order, axis=1)
    kernels.top_lines(np.take_along_axis(means, order, axis=1), weights, top, kind, epsilon)
    return top


def _blocks(
    scale: FloatArray, dof: FloatArray | None, seed: int, best: bool, between: FloatArray | None = None
) -> tuple[int, Callable[[int, int], FloatArray]]:
    """Draws in a block, and the function that makes one: top merge (or best cut) over squared length of each draw."""
    rows = max(1, min(512, BLOCK // scale.size))
    # In an order of their own, so that the order of the groups does not change the answer.
    order = np.argsort(scale) if dof is None else np.lexsort((dof, scale))
    unit = np.exp(np.log(scale).mean())
    scale = scale[order] / unit
    shared = None if between is None else CorrelatedNoise.from_differences(between[np.ix_(order, order)] / unit**2)
    known_weight = (1 / scale**2)[None, :]
    half = None if dof is None else np.minimum(dof[order], AS_GOOD_AS_KNOWN) / 2

    def block(number: int, count: int) -> FloatArray:
        rng = generator(seed, number)
        normal = rng.standard_normal((count, scale.size))
        weight = known_weight
        if half is not None:
            weight = known_weight / (rng.standard_gamma(half, size=normal.shape) / half)
        radius, top = np.empty(len(normal)), np.empty(len(normal))
        lengths = None if shared is None else shared.squared_lengths(normal)
        if shared is not None:
            normal = np.ascontiguousarray(shared.noise(normal) / scale)
        kernels.pack_draws(normal, scale, radius)
        normal.sort(axis=1)
        kernels.top_heights(normal, weight, top, int(best))
        radius = radius if lengths is None else lengths
        return top / np.maximum(radius, np.finfo(float).tiny)

    return rows, block


def log_p_two_sided(
    gap: FloatArray, var_a: FloatArray | float, var_b: FloatArray, freedom: FloatArray | None, a: IntArray, b: IntArray
) -> FloatArray:
    """Log p of a difference: normal, or Welch's t where the degrees of freedom are known."""
    total = var_a + var_b
    if freedom is None:
        return log_chi_square_1_tail(gap**2 / total)
    share = var_a / total
    # At least 1/AS_GOOD_AS_KNOWN: both may be known, with infinite degrees of freedom.
    dof = 1 / np.maximum(share**2 / freedom[a] + (1 - share) ** 2 / freedom[b], 1 / AS_GOOD_AS_KNOWN)
    return np.asarray(np.where(gap == 0, 0.0, log_t_tail(gap / np.sqrt(total), dof)))


# ---------------------------------------------------------------------------------------------------- independent parts
# Estimates divided into independent parts: noise is added to one part and taken away from the others.


def thin_estimates(estimates: Estimates, shares: Sequence[float], rng: np.random.Generator) -> list[Estimates]:
    """Gaussian thinning: θ_b = θ + se·(z_b/√q_b − Σ √q_c z_c) has variance se²/q_b, and the parts are independent.

    Where the standard errors are estimates, with `dof`, their information is divided along.
    """
    # In an order of their own, so that the order of the groups does not decide which group gets which noise.
    order = np.lexsort((*estimates.errors.T, *estimates.values.T)).astype(np.int64)
    between = estimates.covariance
    if estimates.dof is not None and between is None:
        return _with_estimated_errors(estimates, order, shares, rng)
    root = np.sqrt(np.asarray(shares, dtype=float))
    normal = np.empty((len(root), *estimates.values.shape))
    normal[:, order] = rng.standard_normal(normal.shape)
    if between is not None:
        noise = np.einsum("ij,bjd->bid", _root(between, order), normal)
    elif estimates.effect_covariance is None:
        noise = normal * estimates.errors
    else:
        noise = np.einsum("kij,bkj->bki", np.linalg.cholesky(estimates.effect_covariance), normal)
    common = np.tensordot(root, noise, axes=1)
    values, spreads = estimates.values + noise / root[:, None, None] - common, 1 / root
    if estimates.own_dof is None:
        return estimates.replaced_parts(values, spreads)
    # What was estimated one by one is known less well from a part of the data.
    freedom = [np.maximum(q**2 * (estimates.own_dof + 1) - 1, 1) for q in root]
    return [estimates.replaced(values[b], spread=spreads[b], dof=freedom[b]) for b in range(len(root))]


def _root(covariance: FloatArray, order: IntArray) -> FloatArray:
    """A root of a covariance matrix that follows the groups when these come in another order."""
    root = np.empty_like(covariance)
    root[np.ix_(order, order)] = np.linalg.cholesky(covariance[np.ix_(order, order)])
    return root


def _with_estimated_errors(
    estimates: Estimates, order: IntArray, shares: Sequence[float], rng: np.random.Generator
) -> list[Estimates]:
    """Parts of estimates that are independent although the variances are not known.

    Mean and covariance of normal observations say all there is to know of their law, so observations drawn given both
    are as good as the real ones; and those can be divided. Of the squared deviations a share falls between the parts,
    which moves their means apart, and the rest within them, which gives each part a covariance of its own. Written for
    d × d matrices; with independent effects (no `cov`) each effect is a case of its own with d = 1.
    """
    size = len(estimates)
    # (K, effects, 1, 1) or (K, 1, d, d)
    cases = (
        estimates.errors[:, :, None, None] ** 2
        if estimates.effect_covariance is None
        else estimates.effect_covariance[:, None]
    )
    effects, dims = cases.shape[1], cases.shape[2]
    q = np.asarray(shares, dtype=float)[:, None]
    finite_dof = np.minimum(np.asarray(estimates.dof), 1e9)[order]
    left = q * (finite_dof + 1) - 1
    _check_remaining_dof(left, finite_dof, dims, len(shares))
    share = q[:, :, None, None]
    normal = rng.standard_normal((len(q), size, effects, dims))
    between = normal / np.sqrt(share) - np.sum(np.sqrt(share) * normal, axis=0)
    within = draw_wishart(np.broadcast_to(left[:, :, None], (len(q), size, effects)), dims, rng)
    total = np.sum(share[..., None] * between[..., :, None] * between[..., None, :], axis=0) + np.sum(within, axis=0)
    scaled = np.linalg.cholesky(cases[order] * finite_dof[:, None, None, None]) @ np.linalg.inv(
        np.linalg.cholesky(total)
    )
    moved = np.einsum("keij,bkej->bkei", scaled, between).reshape(len(q), size, -1)
    spread = scaled @ within @ np.swapaxes(scaled, -1, -2) / (left[:, :, None, None, None] * share[..., None])
    back = np.argsort(order)
    parts = []
    for b in range(len(q)):
        cov: FloatArray = spread[b][back]
        errors = (
            {"se": np.sqrt(cov[:, :, 0, 0]), "effect_covariance": None}
            if estimates.effect_covariance is None
            else {"effect_covariance": cov[:, 0]}
        )
        parts.append(estimates.replaced(estimates.values + moved[b][back], dof=left[b][back], **errors))
    return parts


def _check_remaining_dof(left: FloatArray, dof: FloatArray, dims: int, parts: int) -> None:
    """Every part must keep enough degrees of freedom for a covariance."""
    if left.min() >= dims:
        return
    least = float(dof.min())
    most = int((least + 1) // (dims + 1))
    raise InputError.too_few(
        "parts",
        f"leave too little to estimate a standard error from: some rest on {least:g} degrees of freedom",
        f"Use at most {most} parts, or leave such groups out." if most > 1 else "Leave such groups out.",
        parts,
    )


# -------------------------------------------------------------------------------------------- several effects per group

# Several effects per group, measured together: similar means equal in all of them.
#
# The likelihood ratio of two clusters is Δᵀ(V_a + V_b)⁻¹Δ. There is no line here: every cluster remembers its nearest
# neighbor, and heights can fall a little.


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


# ---------------------------------------------------------------------- from what users give to the comparison it means

# From what users give to the comparison it means.


def compare_effects(estimates: Estimates, tolerance: float = 0.0) -> Line | Plane:
    """Estimates as groups that are similar when their effects are equal, or at most a tolerance apart."""
    tolerance = _checked(tolerance)
    if estimates.dims == 1:
        return compare_one_effect(estimates, tolerance)
    if tolerance:
        raise InputError.unsupported(
            "tolerance",
            f"has no meaning for {estimates.dims} effects at once ({estimates.metric})",
            "Cluster each of them on its own.",
            tolerance,
        )
    return Plane(estimates)


def compare_one_effect(estimates: Estimates, tolerance: float = 0.0) -> Line:
    """The same for estimates that are known to have one effect per group."""
    tolerance = _checked(tolerance)
    return Line(estimates, estimates.scales[0].distance(tolerance) if tolerance else 0.0)


def _checked(tolerance: float) -> float:
    remedy = "Give it in the units of the metric: 0.01 is one point of a rate."
    return checks.number("tolerance", tolerance, "must be a number, 0 or more", remedy, low=0)


def as_comparison(data: Any, tolerance: float = 0.0) -> Comparison:
    """The comparison behind estimates, or a comparison as it is."""
    if isinstance(data, Estimates):
        return compare_effects(data, tolerance)
    if not is_comparison(data):
        raise InputError.wrong_type("estimates", "is not an Estimates", "Make one with fl.Estimates.", type(data))
    if _checked(tolerance):
        raise InputError.unsupported(
            "tolerance", "applies to estimates only", "Let the test of the Similarity allow for it.", tolerance
        )
    comparison: Comparison = data
    return comparison


def is_comparison(data: object) -> bool:
    """Whether something offers what `Comparison` asks for."""
    return all(hasattr(data, name) for name in ("merges", "null_draws", "most_similar_pair", "pool", "split"))
