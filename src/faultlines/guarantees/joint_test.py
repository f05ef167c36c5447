"""The joint test of "all groups have the same effect": top merge, scan and Cochran's Q, whichever is least like noise.

The top merge has power for clusters of many groups; one outlier group drowns in it. The scan orders groups by their
distance from the common effect in standard errors and compares, for every j, the j most extreme with the rest. Q has
power for differences of no particular kind. Each is standardized by its mean and standard deviation under the null
hypothesis, and the largest counts. Given the direction of the noise all three rise with its length, whose distribution
is known, so only directions are drawn (docs/method.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtri, gammaln, ndtri_exp

from faultlines.core import kernels
from faultlines.core.comparison import AS_GOOD_AS_KNOWN, BLOCK, NORMAL, Comparison, NullDraws, generator
from faultlines.core.distributions import (
    choose_unit,
    log_chi_square_tail,
    log_f_tail,
    log_hotelling_tail,
    log_t_tail,
    shrink_scales,
)
from faultlines.core.normal import CorrelatedNoise, log_p_two_sided, top_merges
from faultlines.estimates.validation import is_independent
from faultlines.guarantees.base import Detector, run_in_order
from faultlines.progress import progress
from faultlines.types import BoolArray, FloatArray, IntArray

LOOK = 64  # draws after which a p that is clearly large or clearly small is taken
_CLEARLY_LARGE, _CLEARLY_SMALL = 0.2, 1e-8
_LEARNING_SHARE = 0.25  # mean and spread of each statistic come from as many draws as this share of the test's own
_FEW = 64  # groups up to which draws are sorted by counting
_MANY = 2**13  # groups from which on buckets sort faster than NumPy does
_BLOCKS_KEPT = 2**18  # numbers of draws that are kept for the next test with the same standard errors
_ROOTS_KEPT = 2**24  # numbers of the scan that are kept while its mean and spread are learned: 128 MB
_TAIL = 0.95  # quantile at which the three statistics are made equally strict
_WELL_KNOWN = 1e4  # degrees of freedom from which on a standard error counts as known: it is off by under 1%
_LEARNING_STREAM = 1 << 20  # number of the first random stream of those draws: apart from those of the test


class GroupEffects(NamedTuple):
    """One effect per group, in a unit near the standard errors.

    Attributes:
        theta: Estimates.
        se: Standard errors of the noise that is each group's own.
        dof: Degrees of freedom behind those, where they are estimated one by one.
        covariance: Covariance matrix of the groups, where their own noise does not describe how they differ.
        common_dof: Degrees of freedom behind all standard errors at once, where these are known up to one factor.
        full_covariance: Whether `common_dof` are those of a covariance matrix estimated entry by entry (Hotelling).
        alone: Standard error and degrees of freedom of each group by its own rows alone, (K, 2), where that is known.
    """

    theta: FloatArray
    se: FloatArray
    dof: FloatArray | None
    covariance: FloatArray | None = None
    common_dof: float = np.inf
    full_covariance: bool = False
    alone: FloatArray | None = None

    def select(self, members: IntArray) -> GroupEffects:
        """The effects of some of the groups, in this order."""
        return GroupEffects(
            self.theta[members],
            self.se[members],
            None if self.dof is None else self.dof[members],
            None if self.covariance is None else self.covariance[np.ix_(members, members)],
            self.common_dof,
            self.full_covariance,
            None if self.alone is None else self.alone[members],
        )


def extract_effects(comparison: Comparison, part: int = 0) -> GroupEffects:
    """The one effect of every group of a comparison of estimates; of several, the one at a place, by itself."""
    estimates = comparison.estimates
    if estimates is None:
        raise TypeError("a scan needs estimates")
    theta, se = estimates.values[:, part], estimates.own[:, part]
    unit = choose_unit(se)  # a power of two, which keeps weights far from overflow and changes nothing else
    scaled = (theta - theta[theta.size // 2]) / unit
    covariance, dof = estimates.covariance, estimates.own_dof
    dof = None if dof is None or dof.min() >= _WELL_KNOWN else dof
    if covariance is not None:
        covariance = None if is_independent(covariance, se**2) else covariance / unit**2
    if np.isfinite(estimates.covariance_dof):
        return GroupEffects(scaled, se / unit, None, covariance, estimates.covariance_dof, full_covariance=True)
    alone = None if estimates.alone is None else estimates.alone / [unit, 1.0]
    return GroupEffects(scaled, se / unit, dof, covariance, estimates.dof_of_all, alone=alone)


class JointTestResult(NamedTuple):
    """The result of the joint test of some groups.

    Attributes:
        log_p: Log p of "all of them have the same effect".
        separated: Which of them the strongest evidence separates from the others.
        draws: How many draws p rests on.
    """

    log_p: float
    separated: BoolArray
    draws: int


class _DrawBlock(NamedTuple):
    """Draws of groups with equal effects: top merges, sorted scores with their weights, squared lengths."""

    top: FloatArray
    scores: FloatArray
    weight: FloatArray
    radius: FloatArray

    def heterogeneity(self) -> FloatArray:
        """Cochran's Q with the standard errors that are observed: the squared length itself where they are known."""
        return np.asarray(np.einsum("rk,rk->r", self.scores, self.scores))


def default_draws(groups: int) -> int:
    """How many directions are worth their time: a thousand, fewer for very many groups, whose noise varies less."""
    return int(np.clip(1000 * (100 / groups) ** 0.4, 20, 1000))


def _learning_draws(draws: int) -> int:
    """How many draws mean and spread of the statistics are learned from."""
    return int(np.clip(_LEARNING_SHARE * draws, 15, 2000))


@dataclass(eq=False)
class NullDistribution:
    """The distribution of the joint statistic for groups with equal effects and these standard errors.

    Args:
        scale: True standard errors, as far as they are known, in rising order; their geometric mean is 1.
        dof: Degrees of freedom behind the estimated ones, in the same order.
        draws: Directions that a test may use.
        seed: Of the draws.
        cores: How many to use; all by default.
        shared: The noise of the groups in the same order and units, where they share data.
        common_dof: Degrees of freedom behind all standard errors at once, where these are known up to one factor.
        full_covariance: Whether these are of a covariance matrix estimated entry by entry.
    """

    scale: FloatArray
    dof: FloatArray | None
    draws: int
    seed: int
    cores: int | None = None
    shared: CorrelatedNoise | None = None
    common_dof: float = np.inf
    full_covariance: bool = False
    _blocks: dict[int, _DrawBlock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.scale.size <= _FEW and self.dof is None:
            self._set_moments(null_moments(self.scale[None], self.draws, self.seed, self.shared)[0])
        else:
            self._learn()

    # ------------------------------------------------------------------------------- mean and spread of the statistics

    def _learn(self) -> None:
        """Mean and spread of the statistics, and a high quantile of each, from draws of their own."""
        groups, count = self.scale.size, _learning_draws(self.draws)
        sums, squares = np.zeros(groups - 1), np.zeros(groups - 1)
        tops, lengths, all_roots = [], [], []
        keeps_roots = count * groups <= _ROOTS_KEPT
        for block, roots in self._learning_blocks(count):
            sums += roots.sum(axis=0)
            squares += np.einsum("rj,rj->j", roots, roots)
            tops.append(np.sqrt(block.top))
            lengths.append(np.sqrt(block.heterogeneity()))
            if keeps_roots:
                all_roots.append(roots)
        mean = sums / count
        spread = np.sqrt(np.maximum(squares / count - mean**2, 1e-12 * mean**2) + 1e-300)
        rows_of_roots = all_roots if keeps_roots else (roots for _, roots in self._learning_blocks(count))
        peaks = np.concatenate([np.max((roots - mean) / spread, axis=1) for roots in rows_of_roots])
        top = np.concatenate(tops)
        place = min(int(_TAIL * count), count - 1)
        high = [float(np.partition(values, place)[place]) for values in (top, peaks)]
        of_top = [top.mean(), max(top.std(), 1e-6 * top.mean(), 1e-300)]
        self._set_moments(np.concatenate([mean, spread, of_top, high]))
        if self.dof is not None:  # with estimated standard errors the distribution of Q is not known
            length = np.concatenate(lengths)
            self.length_mean, self.length_spread = float(length.mean()), float(max(length.std(), 1e-300))
            rare = (float(np.partition(length, place)[place]) - self.length_mean) / self.length_spread
            self.length_stretch = max(high[1], 0.1) / max(rare, 0.1)

    def _set_moments(self, moments: FloatArray) -> None:
        """Take over mean and spread, as `kernels.null_moments_few` lays them out."""
        count = self.scale.size - 1
        self.mean, self.spread = moments[:count].copy(), moments[count : 2 * count].copy()
        self.top_mean, self.top_spread, top, peak = moments[2 * count :].tolist()
        # Each counts from where noise rarely gets: the scan is the largest of many numbers, the others are one each.
        self.length_mean, self.length_spread, rare_length = length_moments(count).tolist()
        self.stretch = max(peak, 0.1) / max((top - self.top_mean) / self.top_spread, 0.1)
        self.length_stretch = max(peak, 0.1) / rare_length

    def _learning_blocks(self, count: int) -> Iterator[tuple[_DrawBlock, FloatArray]]:
        """Blocks of the draws that mean and spread come from, with the roots of their scans."""
        rows = max(1, BLOCK // self.scale.size)

        def draw(number: int) -> tuple[_DrawBlock, FloatArray]:
            block = self._draw_block(_LEARNING_STREAM + number, min(rows, count - number * rows))
            roots = np.empty((block.top.size, self.scale.size - 1))
            kernels.scan_roots(block.scores, block.weight, roots)
            return block, roots

        yield from self._with_progress(draw, -(-count // rows), count, lambda drawn: drawn[0].top.size)

    # ----------------------------------------------------------------------------------------------------------- draws

    def _test_blocks(self) -> Iterator[_DrawBlock]:
        """Blocks of the draws of a test, in their order; the first is for a look, those of few groups are kept."""
        most = max(1, BLOCK // self.scale.size)
        first = min(LOOK, most)
        edges = [*(e for e in (0, first) if e < self.draws), *range(first + most, self.draws, most), self.draws]
        total = len(edges) - 1
        if self.draws * self.scale.size > _BLOCKS_KEPT:
            yield from self._with_progress(
                lambda number: self._draw_block(number, edges[number + 1] - edges[number]),
                total,
                self.draws,
                lambda block: block.top.size,
            )
            return
        for number in range(total):
            if number not in self._blocks:
                self._blocks[number] = self._draw_block(number, edges[number + 1] - edges[number])
            yield self._blocks[number]

    def _with_progress(self, draw: Callable[[int], Any], blocks: int, draws: int, size: Callable[[Any], int]) -> Any:
        if draws * self.scale.size <= _BLOCKS_KEPT:
            yield from map(draw, range(blocks))
            return
        with progress("drawing groups with equal effects", draws) as advance:
            for block in run_in_order(draw, blocks, self.cores):
                advance(size(block))
                yield block

    def _draw_block(self, number: int, count: int) -> _DrawBlock:
        groups = self.scale.size
        if groups <= _FEW and self.dof is None:
            return self._pack(_normals(self.seed, number, count, groups), None)
        rng = generator(self.seed, number)
        normal = rng.standard_normal((count, groups))
        spread = None
        if self.dof is not None:
            half = np.minimum(self.dof, AS_GOOD_AS_KNOWN) / 2
            spread = rng.standard_gamma(half, size=normal.shape) / half
        return self._pack(normal, spread)

    def _pack(self, normal: FloatArray, spread: FloatArray | None) -> _DrawBlock:
        """Rows of standard normals as draws; where standard errors are estimated, with the estimated variances."""
        count, groups = normal.shape
        weight = (1 / self.scale**2)[None, :]
        radius, top, scores = np.empty(count), np.empty(count), np.empty((count, groups))
        length = None
        if self.shared is not None:
            length, normal = self.shared.squared_lengths(normal), self.shared.noise(normal) / self.scale
        if groups <= _FEW and spread is None:
            kernels.draw_few_groups(np.ascontiguousarray(normal), self.scale, top, scores, radius)
        else:
            if spread is not None:
                weight = weight / spread
            kernels.pack_scores(np.ascontiguousarray(normal * self.scale), weight, scores)
            packed = np.array(normal, order="C")
            kernels.pack_draws(packed, self.scale, radius)
            _sort_rows(scores)
            if spread is None and self.scale[0] == self.scale[-1]:  # then effects are in the order of their scores
                kernels.top_lines(scores.copy(), np.ones_like(scores), top, NORMAL)
            else:
                _sort_rows(packed)
                kernels.top_heights(packed, weight, top, 0)
        return _DrawBlock(top, scores, weight, np.maximum(radius, np.finfo(float).tiny) if length is None else length)

    # ------------------------------------------------------------------------------------------------------ statistics

    def _peaks(self, block: _DrawBlock) -> tuple[FloatArray, IntArray]:
        """The largest standardized root of the scan of every row, and how many groups it cuts off."""
        peak, place = np.empty(len(block.scores)), np.empty(len(block.scores), dtype=np.int64)
        kernels.scan_peaks(block.scores, block.weight, self.mean, self.spread, peak, place)
        return peak, place

    def _standardize_top(self, height: Any) -> Any:
        """A top merge in the units of the scan."""
        return self.stretch * (np.sqrt(height) - self.top_mean) / self.top_spread

    def _standardize_length(self, heterogeneity: Any) -> Any:
        """Cochran's Q in the units of the scan."""
        return self.length_stretch * (np.sqrt(heterogeneity) - self.length_mean) / self.length_spread

    def _joint_statistics(self, block: _DrawBlock) -> FloatArray:
        """The largest of the three standardized statistics of every row."""
        length = block.heterogeneity() if self.shared is None or self.dof is not None else block.radius
        of_others = np.maximum(self._standardize_top(block.top), self._standardize_length(length))
        return np.asarray(np.maximum(self._peaks(block)[0], of_others))

    def statistics(self, theta: FloatArray, se: FloatArray) -> FloatArray:
        """The joint statistic of every row of effects, (r, K); one row of standard errors serves for all."""
        weight = np.ascontiguousarray(se**-2.0)
        scores = np.empty(theta.shape)
        kernels.pack_scores(np.ascontiguousarray(theta), weight, scores)
        scores.sort(axis=1)
        radius = np.empty(0) if self.shared is None else self.shared.heterogeneity(theta)
        return self._joint_statistics(_DrawBlock(top_merges(theta, weight, NORMAL), scores, weight, radius))

    def statistics_of_noise(self, normal: FloatArray, spread: FloatArray | None = None) -> FloatArray:
        """The joint statistic of every row of noise.

        Args:
            normal: Standard normals, (r, K), a column for each group in the order of `scale`.
            spread: Where standard errors are estimated: each estimated variance as a multiple of the true one.
        """
        rows = max(1, BLOCK // self.scale.size)

        def compute(number: int) -> FloatArray:
            portion = slice(number * rows, (number + 1) * rows)
            observed = None if spread is None else np.ascontiguousarray(spread[portion])
            return self._joint_statistics(self._pack(np.ascontiguousarray(normal[portion]), observed))

        return np.concatenate(list(run_in_order(compute, -(-len(normal) // rows), self.cores)))

    # -------------------------------------------------------------------------------------------------------- p-values

    def test(self, effects: GroupEffects) -> JointTestResult:
        """The joint test of these groups, in the order of `scale`."""
        groups = effects.theta.size
        weight = 1 / effects.se**2
        scores = np.empty((1, groups))
        centred = effects.theta - effects.theta[groups // 2]
        kernels.pack_scores(centred[None], weight[None], scores)
        _sort_rows(scores)
        peak, place = self._peaks(_DrawBlock(np.empty(1), scores, weight[None], np.empty(1)))
        by_effect = _order_by_effect(centred, effects.se)
        heights = np.empty(groups - 1)
        kernels.merge_line(centred[by_effect], weight[by_effect], heights, NORMAL, 0.0)
        cut = int(heights.argmax())
        of_top = self._standardize_top(heights[cut])
        separated = np.zeros(groups, dtype=bool)
        separated[_groups_of(scores[0, : int(place[0])], groups) if peak[0] > of_top else by_effect[: cut + 1]] = True
        separated = separated if separated.sum() <= groups / 2 else ~separated
        scale = shrink_scales(effects.se, effects.dof)
        centre = np.average(centred, weights=(scale.min() / scale) ** 2)
        own_length = float(np.sum(((centred - centre) / scale) ** 2))
        of_length = self._standardize_length(np.sum(scores**2))
        if self.shared is not None:
            own_length = float(self.shared.heterogeneity(centred[None] / _geometric_mean(scale))[0])
            of_length = of_length if effects.dof is not None else self._standardize_length(own_length)
        log_p, drawn = self._log_pvalue(float(max(peak[0], of_top, of_length)), own_length)
        if effects.dof is not None:
            log_p = float(with_heavier_tail(np.array([log_p]), drawn + 1, float(effects.dof.min()))[0])
        return JointTestResult(log_p, separated, drawn)

    def log_pvalue(self, statistic: float) -> float:
        """Log of the probability that noise reaches a value of the joint statistic."""
        log_p, drawn = self._log_pvalue(statistic, None)
        if self.dof is not None:
            log_p = float(with_heavier_tail(np.array([log_p]), drawn + 1, float(self.dof.min()))[0])
        return log_p

    def critical_value(self, alpha: float) -> float:
        """The value of the joint statistic that noise exceeds with probability α."""
        low, high = 0.0, 1.0
        while self._log_pvalue(high, None)[0] > np.log(alpha):
            low, high = high, 2 * high
        for _ in range(20):
            middle = (low + high) / 2
            above = self._log_pvalue(middle, None)[0] > np.log(alpha)
            low, high = (middle, high) if above else (low, middle)
        return high

    def _log_pvalue(self, statistic: float, own_length: float | None) -> tuple[float, int]:
        """Average over directions, the data's own included, of the probability that the length suffices.

        One look after the first draws: what is clearly large is taken, which keeps p valid at every level below; what
        is clearly tiny is taken doubled, because there were two tries.
        """
        required = [] if own_length is None else [np.array([own_length])]
        top = (self.top_mean + statistic / self.stretch * self.top_spread) ** 2
        length = max(self.length_mean + statistic / self.length_stretch * self.length_spread, 0.0) ** 2
        drawn = 0
        for block in self._test_blocks():
            by_scan = np.empty(block.top.size)
            kernels.scan_required_lengths(
                block.scores, block.weight, block.radius, self.mean, self.spread, statistic, by_scan
            )
            with np.errstate(divide="ignore"):
                by_top = top / (block.top / block.radius)
                by_length = length if self.dof is None else length / (block.heterogeneity() / block.radius)
                required.append(np.minimum(np.minimum(by_scan, by_top), by_length))
            is_first, drawn = drawn == 0, drawn + block.top.size
            if own_length is not None and is_first and drawn < self.draws:
                log_p = self._average(np.concatenate(required))
                if log_p > np.log(_CLEARLY_LARGE):
                    return log_p, drawn
                if log_p < np.log(_CLEARLY_SMALL) and self.dof is None:
                    return log_p + np.log(2), drawn
        return self._average(np.concatenate(required)), drawn

    def _average(self, required: FloatArray) -> float:
        """Log of the average probability that a squared length reaches what each direction requires."""
        freedom = self.scale.size - 1
        return float(_average_tails(required[None], freedom, self.common_dof, full=self.full_covariance)[0])


def _sort_rows(values: FloatArray) -> None:
    """Sort every row in place; many numbers by buckets, unless outliers put most of them into few."""
    if values.shape[1] < _MANY or not kernels.sort_rows(values):
        values.sort(axis=1)


def _groups_of(scores: FloatArray, groups: int) -> IntArray:
    """The groups that packed scores belong to: their numbers are in the lowest bits (see `kernels.pack_scores`)."""
    return np.asarray(scores.view(np.int64) & ((1 << (groups - 1).bit_length()) - 1))


def _order_by_effect(theta: FloatArray, se: FloatArray) -> IntArray:
    """The order of rising effects; equal ones by their standard errors."""
    if np.all(theta[1:] > theta[:-1]):
        return np.arange(theta.size)
    order = np.argsort(theta)
    ordered = theta[order]
    return np.lexsort((se, theta)) if np.any(ordered[1:] == ordered[:-1]) else order


def _average_tails(required: FloatArray, freedom: int, dof: float = np.inf, *, full: bool = False) -> FloatArray:
    """Log of the average over each row of P(squared length ≥ required): χ², F, or Hotelling's."""
    tails = log_hotelling_tail(required, freedom, dof) if full else log_f_tail(required / freedom, freedom, dof)
    highest = tails.max(axis=1, keepdims=True)
    return np.asarray(np.minimum(highest[:, 0] + np.log(np.mean(np.exp(tails - highest), axis=1)), 0.0))


# ----------------------------------------------------------------------------------------------------------- two groups


def _log_pvalue_of_two(effects: GroupEffects) -> float:
    """Log p of two groups: normal, Welch's t, or Student's where standard errors are known up to one factor."""
    variance, first, second = effects.se**2, np.array([0]), np.array([1])
    gap = np.abs(effects.theta[1:] - effects.theta[:1])
    covariance = effects.covariance
    if covariance is not None:  # scaled to add up to the variance of the difference
        of_difference = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
        variance = variance * (of_difference / variance.sum())
    if np.isfinite(effects.common_dof):
        return float(log_f_tail(gap**2 / variance.sum(), 1, effects.common_dof)[0])
    return float(log_p_two_sided(gap, variance[first], variance[second], effects.dof, first, second)[0])


def _two_differ(
    theta: FloatArray, se: FloatArray, observed_se: FloatArray | None, dof: FloatArray | None, alpha: float
) -> BoolArray:
    """Whether a difference of two groups would be reported, in every row of effects."""
    variance = np.broadcast_to(se, theta.shape) ** 2 if observed_se is None else observed_se[:, :, 0] ** 2
    first = np.zeros(len(theta), dtype=np.int64)
    gap = np.abs(theta[:, 1] - theta[:, 0])
    return np.asarray(log_p_two_sided(gap, variance[:, 0], variance[:, 1], dof, first, first + 1) <= np.log(alpha))


# ------------------------------------------------------------------------------------------------ any set of the groups


class JointTest:
    """The joint test of any set of the groups; each set is tested once, null distributions of equal sets are shared.

    Args:
        effects: All groups.
        draws: Directions a test may use; the usual number if None.
        seed: Of the draws.
        cores: How many to use; all by default.
    """

    def __init__(self, effects: GroupEffects, draws: int | None, seed: int, cores: int | None = None) -> None:
        self.effects, self.draws, self.seed, self.cores = effects, draws, seed, cores
        self._same_scale = float(np.ptp(effects.se)) == 0 and (effects.dof is None or float(np.ptp(effects.dof)) == 0)
        self._same_scale &= effects.covariance is None
        self.most_draws = 0
        self._results: dict[bytes, JointTestResult] = {}

    def test(self, members: IntArray) -> JointTestResult:
        """The result for these groups."""
        key = members.tobytes()
        if key not in self._results:
            self._results[key] = self._test(members)
            self.most_draws = max(self.most_draws, self._results[key].draws)
        return self._results[key]

    def null_distribution(self) -> tuple[NullDistribution, IntArray]:
        """The null distribution of all groups together, and the order in which it takes them."""
        return self._null_of(self.effects)

    def make_detector(self, alpha: float, se: FloatArray) -> Detector:
        """Whether a difference would be reported for rows of other effects of all groups, in the units of `se`."""
        if se.size == 2 and np.isinf(self.effects.common_dof):
            return lambda effects, observed: _two_differ(effects[:, :, 0], se, observed, self.effects.dof, alpha)
        null, order = self.null_distribution()
        critical, common_dof = null.critical_value(alpha), self.effects.common_dof
        # What effects that share data are measured in; without a covariance matrix no unit matters.
        unit = float(se[0] / self.effects.se[0]) * _geometric_mean(shrink_scales(self.effects.se, self.effects.dof))

        def detect(effects: FloatArray, observed_se: FloatArray | None) -> BoolArray:
            theta, errors = (effects[:, :, 0] - effects[:, :1, 0])[:, order] / unit, se[None, order] / unit
            if observed_se is not None and np.isfinite(common_dof):  # one factor for all, by which effects seem larger
                theta = theta / (observed_se[:, :1, 0] / se[0])
            elif observed_se is not None:
                errors = observed_se[:, order, 0] / unit
            return null.statistics(theta, errors) >= critical

        return detect

    def _test(self, members: IntArray) -> JointTestResult:
        effects = self.effects.select(members)
        size = members.size
        if size < 2:
            return JointTestResult(0.0, np.zeros(size, dtype=bool), 0)
        if size == 2:
            return JointTestResult(_log_pvalue_of_two(effects), np.array([False, True]), 0)
        if not np.any(effects.theta != effects.theta[0]):
            return JointTestResult(0.0, np.arange(size) == 0, 0)
        null, order = self._null_of(effects)
        result = null.test(effects.select(order))
        separated = np.empty(size, dtype=bool)
        separated[order] = result.separated
        return result._replace(separated=separated)

    def _null_of(self, effects: GroupEffects) -> tuple[NullDistribution, IntArray]:
        scale = shrink_scales(effects.se, effects.dof)
        # In an order of their own, so that the order of the groups does not change the answer.
        if self._same_scale:
            order = np.argsort(effects.theta, kind="stable")
        else:
            order = np.lexsort((effects.theta, scale) if effects.dof is None else (effects.theta, effects.dof, scale))
        return self._build_null(effects.select(order), scale[order]), order

    def _build_null(self, effects: GroupEffects, scale: FloatArray) -> NullDistribution:
        draws = default_draws(scale.size) if self.draws is None else self.draws
        unit, dof = _geometric_mean(scale), effects.dof
        relative = np.ones(scale.size) if self._same_scale else scale / unit
        shared = None
        if effects.covariance is not None:  # as spread out as the true variances, not as their estimates
            stretch = scale / effects.se / unit
            shared = CorrelatedNoise.from_differences(effects.covariance * stretch[:, None] * stretch)
        if draws * scale.size > _BLOCKS_KEPT or shared is not None or np.isfinite(effects.common_dof):
            return NullDistribution(
                relative, dof, draws, self.seed, self.cores, shared, effects.common_dof, effects.full_covariance
            )
        return _shared_null(relative.tobytes(), None if dof is None else dof.tobytes(), draws, self.seed)


def _geometric_mean(scale: FloatArray) -> float:
    return float(np.exp(np.log(scale).mean()))


@lru_cache(maxsize=64)
def _shared_null(scale: bytes, dof: bytes | None, draws: int, seed: int) -> NullDistribution:
    """The null distribution of groups with these standard errors: the same for all tests of such groups."""
    return NullDistribution(np.frombuffer(scale), None if dof is None else np.frombuffer(dof), draws, seed)


@lru_cache(maxsize=32)
def _normals(seed: int, number: int, count: int, groups: int) -> FloatArray:
    """The standard normals behind a block, which many tests share."""
    return generator(seed, number).standard_normal((count, groups))


@lru_cache(maxsize=256)
def length_moments(freedom: int) -> FloatArray:
    """Mean and spread of the root of a χ² number, and a high quantile in units of both."""
    mean = float(np.sqrt(2) * np.exp(gammaln((freedom + 1) / 2) - gammaln(freedom / 2)))
    spread = float(np.sqrt(max(freedom - mean**2, 1e-6)))
    return np.array([mean, spread, (float(np.sqrt(chdtri(freedom, 1 - _TAIL))) - mean) / spread])


# ------------------------------------------------------------------------------------- many experiments with few groups


def null_moments(scales: FloatArray, draws: int, seed: int, shared: CorrelatedNoise | None = None) -> FloatArray:
    """Mean and spread of the statistics of some dozens of groups, for each row of scales.

    Args:
        scales: True standard errors, (r, K); one row where groups share data.
        draws: Directions that a test may use.
        seed: Of the draws.
        shared: The noise of groups that share data.

    Returns:
        One row for each row of scales, as `kernels.null_moments_few` lays it out.
    """
    moments = np.empty((len(scales), 2 * scales.shape[1] + 2))
    normal = _normals(seed, _LEARNING_STREAM, _learning_draws(draws), scales.shape[1])
    if shared is not None:
        normal = np.ascontiguousarray(shared.noise(normal) / scales)
    kernels.null_moments_few(normal, scales, _TAIL, moments)
    return moments


def run_joint_tests(many: Sequence[GroupEffects], draws: int, seed: int) -> tuple[FloatArray, IntArray]:
    """Log p of many sets of the same number of groups, some dozens, and their draws: those of `JointTest` of each."""
    groups = many[0].theta.size
    units = [np.exp(np.log(effects.se).mean()) for effects in many]
    orders = [np.lexsort((effects.theta, effects.se)) for effects in many]
    sets = list(zip(many, units, orders, strict=True))
    scales = np.stack([effects.se[order] / unit for effects, unit, order in sets])
    theta = np.stack([effects.theta[order] / unit for effects, unit, order in sets])
    # Experiments of one platform often have the same shares of users by group, and so the same law.
    distinct, law = np.unique(scales, axis=0, return_inverse=True)
    moments, length = null_moments(distinct, draws, seed)[law.ravel()], length_moments(groups - 1)

    def require(number: int, count: int, places: IntArray) -> FloatArray:
        required = np.empty((places.size, count + 1))
        normal = _normals(seed, number, count, groups)
        kernels.required_lengths_few(normal, theta[places], scales[places], moments[places], length, required)
        return required

    look = min(LOOK, draws)
    first = require(0, look, np.arange(len(many)))
    log_p, drawn = _average_tails(first, groups - 1), np.full(len(many), look)
    tiny = log_p < np.log(_CLEARLY_SMALL)
    undecided = np.empty(0, dtype=np.int64)
    if look < draws:
        undecided = np.flatnonzero((log_p <= np.log(_CLEARLY_LARGE)) & ~tiny)
        log_p[tiny] += np.log(2)
    if undecided.size:
        rest = require(1, draws - look, undecided)[:, 1:]
        log_p[undecided] = _average_tails(np.concatenate([first[undecided], rest], axis=1), groups - 1)
        drawn[undecided] = draws
    return log_p, drawn


# ----------------------------------------------------------------------------------------- adjusted p-values from draws

# From draws of groups with equal effects to adjusted p-values: P(top merge ≥ height).
#
# For normal estimates a draw has a direction and a length, and only directions are drawn (docs/method.md,
# "Calibration"). For other comparisons the draws are counted.


_CLEAR = 0.2  # a p above this after a tenth of the draws is not worth the rest of them
_BUNDLES = 256  # bundles of like directions that stand for all of them where a curve of p is drawn
_EXACT_HEIGHTS = 512  # more merges than this in question are read off a curve


class Calibration(NamedTuple):
    """Adjusted log p of merges, and the number of draws behind them."""

    log_p: FloatArray
    draws: int


def calibrate(
    comparison: Comparison, heights: FloatArray, draws: int, seed: int, *, cores: int | None = None
) -> Calibration:
    """Adjusted p of merges of these heights: P(top merge of groups with equal effects ≥ height).

    Args:
        comparison: The groups.
        heights: Heights of merges in their tree, that of the top one among them.
        draws: How many draws at most.
        seed: Of the draws; the result does not depend on the number of cores.
        cores: How many to use; all by default.
    """
    top = float(heights.max(initial=0.0))
    if top == 0:  # one group, or all the same
        return Calibration(np.zeros(heights.size), 0)
    null = comparison.null_draws(top, draws, seed)
    return (
        _by_direction(null, heights, top, draws, cores)
        if null.length_dof
        else _counted(null, heights, top, draws, cores)
    )


def _by_direction(null: NullDraws, heights: FloatArray, top: float, draws: int, cores: int | None) -> Calibration:
    """Average over directions, the data's own included, of the probability that the length reaches the height."""
    fractions: list[FloatArray] = [np.array([null.own])]

    def clear() -> bool:
        return bool(_log_p_of_top(top, np.concatenate(fractions), null.length_dof) > np.log(_CLEAR))

    _draw(null, draws, fractions, clear, cores)
    drawn = np.concatenate(fractions)
    log_p = _log_pvalues(heights, drawn, null.length_dof)
    if np.isfinite(null.tail_dof):
        log_p = with_heavier_tail(log_p, drawn.size, null.tail_dof)
    return Calibration(log_p, drawn.size - 1)


def _counted(null: NullDraws, heights: FloatArray, top: float, draws: int, cores: int | None) -> Calibration:
    """One more than the draws whose top merge is as high, over one more than the draws."""
    tops: list[FloatArray] = []

    def clear() -> bool:
        return bool(np.mean(np.concatenate(tops) >= top) > _CLEAR)

    _draw(null, draws, tops, clear, cores)
    ranked = np.sort(np.concatenate(tops))
    # Counts make ties; rounding must not break them in favor of a difference.
    as_high = ranked.size - np.searchsorted(ranked, heights - 1e-9 * np.abs(heights))
    return Calibration(np.log((as_high + 1.0) / (ranked.size + 1.0)), ranked.size)


def _draw(null: NullDraws, draws: int, into: list[FloatArray], clear: Callable[[], bool], cores: int | None) -> None:
    """Collect blocks in their order, with one look after a tenth of the draws.

    Stopping only where p is clearly large keeps p valid at every level: below that, p is that of all the draws; above
    it, at most that share of the data sets went on to them.
    """
    so_far, look_at = 0, -(-draws // 10)
    with progress("drawing groups with equal effects", draws) as advance:
        for done in _blocks(null, draws, cores if null.uses_threads else 1):
            into.append(done)
            so_far += done.size
            advance(done.size)
            if look_at <= so_far < draws:
                look_at = draws
                if clear():
                    return


def _blocks(null: NullDraws, draws: int, cores: int | None) -> Iterator[FloatArray]:
    return run_in_order(
        lambda number: null.block(number, min(null.rows, draws - number * null.rows)), -(-draws // null.rows), cores
    )


def critical_height(comparison: Comparison, alpha: float, draws: int, seed: int) -> float:
    """The height above which a merge is a split at level α, whatever the effects: it follows from their errors."""
    null = comparison.null_draws(0.0, draws, seed)
    fractions = np.concatenate(list(_blocks(null, draws, None)))
    shares = np.full(fractions.size, 1 / fractions.size)

    def is_above(height: float) -> bool:
        return bool(_log_exceedance(np.array([height]), fractions, shares, null.length_dof)[0] > np.log(alpha))

    low, high = 0.0, 1.0
    while is_above(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_above(middle) else (low, middle)
    return high


# ------------------------------------------------------------------------------------------------- many at once


def calibrate_many(
    comparisons: Sequence[Comparison],
    heights: Sequence[FloatArray],
    draws: int,
    seed: int,
    advance: Callable[[int], None],
) -> list[Calibration]:
    """The same as `calibrate` for many plain comparisons with the same number of groups, to the last digit.

    For one seed all of them rest on the same standard normals; those are drawn once and go through one compiled pass.
    """
    groups = len(comparisons[0])
    rows = max(1, min(512, BLOCK // groups))
    count = -(-draws // rows)
    blocks = [generator(seed, b).standard_normal((min(rows, draws - b * rows), groups)) for b in range(count)]
    first = min(math.ceil(math.ceil(draws / 10) / rows), count)
    early, late = np.concatenate(blocks[:first]), np.concatenate([*blocks[first:], np.empty((0, groups))])
    portion = 32

    def calibrate_portion(number: int) -> list[Calibration]:
        portion_of_all = range(number * portion, min((number + 1) * portion, len(comparisons)))
        errors = [estimates.errors[:, 0] for e in portion_of_all if (estimates := comparisons[e].estimates) is not None]
        scales = np.sort(np.stack(errors), axis=1)
        scales /= np.exp(np.log(scales).mean(axis=1, keepdims=True))
        early_fractions = np.empty((len(portion_of_all), len(early)))
        kernels.top_fractions(early, scales, early_fractions)
        return [calibrate_one(e, scales[i : i + 1], early_fractions[i]) for i, e in enumerate(portion_of_all)]

    def calibrate_one(e: int, scale: FloatArray, early_fractions: FloatArray) -> Calibration:
        top = float(heights[e].max(initial=0.0))
        if top == 0:
            return Calibration(np.zeros(heights[e].size), 0)
        own = comparisons[e].null_draws(top, draws, seed).own
        fractions = np.concatenate([[own], early_fractions])
        of_top: float | None = _log_p_of_top(top, fractions, groups - 1)
        if len(late) and of_top is not None and of_top <= np.log(_CLEAR):
            rest = np.empty((1, len(late)))
            kernels.top_fractions(late, scale, rest)
            fractions, of_top = np.concatenate([fractions, rest[0]]), None
        return Calibration(_log_pvalues(heights[e], fractions, groups - 1, of_top), fractions.size - 1)

    calibrations: list[Calibration] = []
    for done in run_in_order(calibrate_portion, -(-len(comparisons) // portion)):
        calibrations += done
        advance(len(done))
    return calibrations


# ----------------------------------------------------------------------------------------------- from draws to p-values


def _log_p_of_top(top: float, fractions: FloatArray, freedom: int) -> float:
    """Log p of the highest merge, on which the global test rests: exactly as defined."""
    shares = np.full(fractions.size, 1 / fractions.size)
    return float(_log_exceedance(np.array([top]), fractions, shares, freedom)[0])


def _log_pvalues(heights: FloatArray, fractions: FloatArray, freedom: int, of_top: float | None = None) -> FloatArray:
    """Log p of every merge; `fractions` begins with that of the data.

    The highest merge, on which the global test rests, gets its p exactly as defined. For the others, directions with
    nearly the same fraction are taken together, and where there are very many merges p is read off a curve.
    """
    top = float(heights.max())
    exact = _log_p_of_top(top, fractions, freedom) if of_top is None else of_top
    if heights.size == 1:
        return np.array([exact])
    bundles, shares = _bin_fractions(fractions)
    # Law of the top merge of pure noise: a fraction times a chi-square number.
    expected = float(np.sum(shares * bundles)) * freedom
    of_length = expected * np.sqrt(2 / freedom)
    spread = float(np.hypot(of_length, expected * np.std(fractions[1:]) / np.mean(fractions[1:])))
    log_p = np.zeros(heights.size)  # merges that noise is sure to exceed keep p = 1
    open_question = np.flatnonzero(heights > expected - 8 * spread)
    distinct, back = np.unique(heights[open_question], return_inverse=True)
    if distinct.size <= _EXACT_HEIGHTS:
        log_p[open_question] = _log_exceedance(distinct, bundles, shares, freedom)[back]
    else:
        near = np.linspace(
            max(expected - 8 * spread, 0.0), expected + 30 * spread, int(min(380 * spread / of_length, 5000))
        )
        far = expected + spread * np.geomspace(30.0, max((top - expected) / spread, 30.0) * 1.01, 128)
        # Log p bends downwards, so a chord lies below it. Near by that is a thousandth at most; farther out the p
        # of the next lower point is taken, which errs on the safe side.
        at_near, at_far = (_log_exceedance(points, bundles, shares, freedom) for points in (near, far))
        step = at_far[np.clip(np.searchsorted(far, distinct, side="right") - 1, 0, None)]
        log_p[open_question] = np.where(distinct <= near[-1], np.interp(distinct, near, at_near), step)[back]
    return np.asarray(np.where(heights == top, exact, np.maximum(log_p, exact)), dtype=np.float64)


def _bin_fractions(fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fractions in a few hundred bundles of nearly equal ones, with the share of each; the data's own stays alone."""
    ranked = np.log(np.sort(fractions[1:]))
    width = max((ranked[-1] - ranked[0]) / _BUNDLES, 1e-12)
    first = np.unique(((ranked - ranked[0]) // width).astype(np.int64), return_index=True)[1]
    counts = np.diff(np.append(first, ranked.size))
    bundles = np.exp(np.add.reduceat(ranked, first) / counts)
    return np.append(bundles, fractions[0]), np.append(counts, 1) / fractions.size


def _log_exceedance(heights: FloatArray, fractions: FloatArray, shares: FloatArray, freedom: int) -> FloatArray:
    """Log of the average over directions of P(χ² ≥ height / fraction), for each height."""
    each = log_chi_square_tail(heights[:, None] / fractions[None, :], freedom)
    most = each.max(axis=1, keepdims=True)
    return np.asarray(np.minimum(most[:, 0] + np.log(np.exp(each - most) @ shares), 0.0))


def with_heavier_tail(log_p: FloatArray, drawn: int, dof: float) -> FloatArray:
    """Below one in that many draws, let p fall like the tail of Student's t, not like a normal one.

    Draws with estimated variances have shown no rarer event than that; what lies beyond is decided by variances that
    come out far too small, as in a t with the smallest degrees of freedom. The normal quantile of p is kept.
    """
    limit = -np.log(drawn)
    if dof >= AS_GOOD_AS_KNOWN or log_p.min() >= limit:
        return log_p
    quantile, at_limit = (-ndtri_exp(value - np.log(2)) for value in (log_p, limit))
    return np.where(log_p < limit, limit + log_t_tail(quantile, dof) - log_t_tail(at_limit, dof), log_p)
