"""One effect per group: similar means equal effects, or effects at most a tolerance apart (the paper, section 5.1.2).

The likelihood ratio of two clusters is (θ_a − θ_b)² / (var_a + var_b). Sorted by effect the groups form a line, and
only neighbors can be the most similar pair (docs/method.md), so one walk along it makes all merges.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import stdtrit

from faultlines.core import kernels
from faultlines.core.comparison import (
    AS_GOOD_AS_KNOWN,
    BLOCK,
    MOST_DRAWS,
    NORMAL,
    WITHIN,
    WITHIN_RATES,
    EstimatesComparison,
    Merges,
    NullDraws,
    Pair,
    PooledEffects,
    find_largest_pair,
    fraction_of,
    generator,
    ranks,
)
from faultlines.core.distributions import (
    choose_unit,
    draw_wishart,
    log_chi_square_1_tail,
    log_f_tail,
    log_t_tail,
    meier,
    shrink_scales,
    welch_statistics,
)
from faultlines.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faultlines.estimates.estimates import BoolArray, Estimates, IntArray
    from faultlines.estimates.scales import FloatArray, Scale

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
        log_p = log_p_two_sided(beyond, variance[low], variance[high], freedom, low, high)
        nearest = int(np.lexsort((gap**2 / (variance[low] + variance[high]), -log_p))[0])
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
    # What was estimated one by one is known less well from a part of the data.
    freedom = [
        {} if estimates.own_dof is None else {"dof": np.maximum(q**2 * (estimates.own_dof + 1) - 1, 1)} for q in root
    ]
    return [
        estimates.replaced(estimates.values + noise[b] / root[b] - common, spread=1 / root[b], **freedom[b])
        for b in range(len(root))
    ]


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
    _check_left(left, finite_dof, dims, len(shares))
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


def _check_left(left: FloatArray, dof: FloatArray, dims: int, parts: int) -> None:
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
