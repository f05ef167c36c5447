"""Are these groups alike? One test with power for halves and for a lone group: top merge, scan and Cochran's Q at once.

The top merge sees clusters of many groups; one group far apart drowns in it. The scan orders groups by their distance
from the common effect in standard errors and asks of every j how unlikely the j most extreme are against the rest. Q
sees differences of no particular kind. Each is measured in units of what noise does to it, and the largest counts.
Given the direction of the noise all rise with its length, whose law is known, so only directions are drawn
(docs/method.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import chdtri, gammaln

from faultlines.comparison import kernels
from faultlines.comparison.base import AS_GOOD_AS_KNOWN, BLOCK, NORMAL, generator
from faultlines.comparison.correlated import Correlated
from faultlines.comparison.line import line_tops, two_sided
from faultlines.comparison.precision import true_scales, unit_of
from faultlines.comparison.tails import log_f_tail, log_hotelling_tail
from faultlines.estimates.shared import is_independent
from faultlines.guarantees.null import with_heavier_tail
from faultlines.guarantees.parallel import in_order
from faultlines.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faultlines.comparison.base import Comparison
    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.guarantees.base import Detector

_LEARNT = 0.25  # as many draws as this share of the others show what noise does to each statistic
LOOK = 64  # draws after which a p that is clearly large or clearly small is taken
_CLEAR, _TINY = 0.2, 1e-8
_FEW = 64  # groups up to which draws are sorted by counting
_KEPT = 2**18  # numbers of draws that are kept for the next test with the same standard errors
_TAIL = 0.95  # where the two statistics are made equally strict
_WELL_KNOWN = 1e4  # degrees of freedom from which on a standard error counts as known: it is off by under 1%
_FIRST = 1 << 20  # number of the first stream that shows what noise does: apart from those of the test


class Effects(NamedTuple):
    """One effect per group.

    Attributes:
        theta: Estimates.
        se: Standard errors: what of the noise is each group's own.
        dof: Degrees of freedom behind those, if they are estimated one by one.
        covariance: Of the groups, where their own noise does not say all of how they differ.
        dof_of_all: Degrees of freedom behind all standard errors at once, where these are known but for a factor.
        whole: Whether these are of the covariance as a whole, every entry of which is estimated (Hotelling).
    """

    theta: FloatArray
    se: FloatArray
    dof: FloatArray | None
    covariance: FloatArray | None = None
    dof_of_all: float = np.inf
    whole: bool = False

    def of(self, members: IntArray) -> Effects:
        """Those of some groups."""
        return Effects(
            self.theta[members],
            self.se[members],
            None if self.dof is None else self.dof[members],
            None if self.covariance is None else self.covariance[np.ix_(members, members)],
            self.dof_of_all,
            self.whole,
        )


def effects_of(comparison: Comparison) -> Effects:
    """The one effect of every group of a comparison of estimates."""
    estimates = comparison.estimates
    if estimates is None:
        raise TypeError("a scan needs estimates")
    theta, se = estimates.values[:, 0], estimates.own[:, 0]
    unit = unit_of(se)  # a power of two, which keeps weights far from overflow and changes nothing else
    scaled = (theta - theta[theta.size // 2]) / unit
    between, dof = estimates.covariance, estimates.own_dof
    dof = None if dof is None or dof.min() >= _WELL_KNOWN else dof
    if between is not None:
        between = None if is_independent(between, se**2) else between / unit**2
    if np.isfinite(estimates.covariance_dof):
        return Effects(scaled, se / unit, None, between, estimates.covariance_dof, whole=True)
    return Effects(scaled, se / unit, dof, between, estimates.dof_of_all)


class Tested(NamedTuple):
    """What the test says of some groups.

    Attributes:
        log_p: Log p of "they are all alike".
        apart: Which of them the strongest evidence sets apart from the others.
        draws: How many draws it rests on.
    """

    log_p: float
    apart: BoolArray
    draws: int


class _Block(NamedTuple):
    """Draws of groups that are alike: top merges, sorted scores with weights for the scan, squared lengths."""

    top: FloatArray
    scores: FloatArray
    weight: FloatArray
    radius: FloatArray

    def heterogeneity(self) -> FloatArray:
        """Cochran's Q with the standard errors that are seen: the squared length itself where they are known."""
        return np.asarray(np.einsum("rk,rk->r", self.scores, self.scores))


def _learnt(draws: int) -> int:
    """How many draws show what noise does."""
    return int(np.clip(_LEARNT * draws, 15, 2000))


def usual_draws(groups: int) -> int:
    """How many directions are worth their time: a thousand, fewer for very many groups, whose noise varies less."""
    return int(np.clip(1000 * (100 / groups) ** 0.4, 20, 1000))


@dataclass(eq=False)
class Null:
    """What groups with these standard errors show when they are all alike.

    Args:
        scale: Their true standard errors, as far as they are known, in rising order; their geometric mean is 1.
        dof: Degrees of freedom behind the estimated ones, in the same order.
        draws: Directions that a test may use.
        seed: Of the draws.
        cores: How many to use; all by default.
        shared: The covariance of the groups in the same order and units, where they share data.
        dof_of_all: Degrees of freedom behind all standard errors at once, where these are known but for a factor.
        whole: Whether these are of the covariance as a whole.
    """

    scale: FloatArray
    dof: FloatArray | None
    draws: int
    seed: int
    cores: int | None = None
    shared: Correlated | None = None
    dof_of_all: float = np.inf
    whole: bool = False
    _blocks: dict[int, _Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = _learnt(self.draws)
        if self.scale.size <= _FEW and self.dof is None:
            self._take(learnt_few(self.scale[None], self.draws, self.seed, self.shared)[0])
            return
        groups = self.scale.size
        sums, squares, tops, lengths = np.zeros(groups - 1), np.zeros(groups - 1), [], []
        for block in self._drawn(_FIRST, count):
            kernels.scan_sums(block.scores, block.weight, sums, squares)
            tops.append(np.sqrt(block.top))
            lengths.append(np.sqrt(block.heterogeneity()))
        mean = sums / count
        spread = np.sqrt(np.maximum(squares / count - mean**2, 1e-12 * mean**2) + 1e-300)
        self.mean, self.spread = mean, spread
        top = np.concatenate(tops)
        peaks = np.concatenate([self._peaks(block)[0] for block in self._drawn(_FIRST, count)])
        place = min(int(_TAIL * count), count - 1)
        high = [float(np.partition(part, place)[place]) for part in (top, peaks)]
        self._take(np.concatenate([mean, spread, [top.mean(), max(top.std(), 1e-6 * top.mean(), 1e-300), *high]]))
        if self.dof is not None:  # with estimated standard errors the law of Q is not known
            length = np.concatenate(lengths)
            self.length_mean, self.length_spread = float(length.mean()), float(max(length.std(), 1e-300))
            rare = (float(np.partition(length, place)[place]) - self.length_mean) / self.length_spread
            self.length_stretch = max(high[1], 0.1) / max(rare, 0.1)

    def _take(self, learnt: FloatArray) -> None:
        """What noise does, as `kernels.learn_few` lays it out."""
        count = self.scale.size - 1
        self.mean, self.spread = learnt[:count].copy(), learnt[count : 2 * count].copy()
        self.top_mean, self.top_spread, top, peak = learnt[2 * count :].tolist()
        # Each counts from where noise rarely gets: the scan is the largest of many numbers, the others are one each.
        self.length_mean, self.length_spread, reached = law_of_length(count).tolist()
        self.stretch = max(peak, 0.1) / max((top - self.top_mean) / self.top_spread, 0.1)
        self.length_stretch = max(peak, 0.1) / reached

    def _drawn(self, first: int, count: int) -> Iterator[_Block]:
        """Blocks of draws from a stream on, in their order: the first for a look; those of few groups are kept."""
        most = max(1, BLOCK // self.scale.size)
        edges = [0] if first else [0, min(LOOK, most)]
        edges = [*(e for e in edges if e < count), *range(edges[-1] + most, count, most), count]
        keeps = count * self.scale.size <= _KEPT

        def made(number: int) -> _Block:
            known = self._blocks.get(first + number)
            if known is None:
                known = self._made(first + number, edges[number + 1] - edges[number])
                if keeps:
                    self._blocks[first + number] = known
            return known

        total = len(edges) - 1
        if keeps:
            yield from (made(number) for number in range(total))
            return
        with progress("drawing groups that are all alike", count) as advance:
            for block in in_order(made, total, self.cores):
                advance(block.top.size)
                yield block

    def _made(self, number: int, count: int) -> _Block:
        groups = self.scale.size
        if groups <= _FEW and self.dof is None:
            return self._packed(_normals(self.seed, number, count, groups), None)
        rng = generator(self.seed, number)
        normal = rng.standard_normal((count, groups))
        spread = None
        if self.dof is not None:
            half = np.minimum(self.dof, AS_GOOD_AS_KNOWN) / 2
            spread = rng.standard_gamma(half, size=normal.shape) / half
        return self._packed(normal, spread)

    def _packed(self, normal: FloatArray, spread: FloatArray | None) -> _Block:
        """Rows of standard normals as draws; where standard errors are estimated, with what is seen of variances."""
        count, groups = normal.shape
        weight = (1 / self.scale**2)[None, :]
        radius, top, scores = np.empty(count), np.empty(count), np.empty((count, groups))
        length = None
        if self.shared is not None:
            length, normal = self.shared.squared_lengths(normal), self.shared.noise(normal) / self.scale
        if groups <= _FEW and spread is None:
            kernels.draw_few(np.ascontiguousarray(normal), self.scale, top, scores, radius)
        else:
            if spread is not None:
                weight = weight / spread
            kernels.pack_scores(np.ascontiguousarray(normal * self.scale), weight, scores)
            packed = np.array(normal, order="C")
            kernels.pack(packed, self.scale, radius)
            packed.sort(axis=1)
            scores.sort(axis=1)
            kernels.top_heights(packed, weight, top, 0)
        return _Block(top, scores, weight, np.maximum(radius, np.finfo(float).tiny) if length is None else length)

    def _peaks(self, block: _Block) -> tuple[FloatArray, IntArray]:
        peak, place = np.empty(len(block.scores)), np.empty(len(block.scores), dtype=np.int64)
        kernels.scan_peaks(block.scores, block.weight, self.mean, self.spread, peak, place)
        return peak, place

    def test(self, effects: Effects) -> Tested:
        """Log p of these groups, in the order of `scale`, and what its strongest evidence sets apart."""
        groups = effects.theta.size
        weight = 1 / effects.se**2
        scores = np.empty((1, groups))
        centred = effects.theta - effects.theta[groups // 2]
        kernels.pack_scores(centred[None], weight[None], scores)
        by_score = np.argsort(scores[0], kind="stable")
        scores.sort(axis=1)
        peak, place = self._peaks(_Block(np.empty(1), scores, weight[None], np.empty(1)))
        by_effect = np.lexsort((effects.se, centred))
        heights = np.empty(groups - 1)
        kernels.merge_line(centred[by_effect], weight[by_effect], heights, NORMAL, 0.0)
        cut = int(heights.argmax())
        of_top = self._of_top(heights[cut])
        apart = np.zeros(groups, dtype=bool)
        apart[by_score[: int(place[0])] if peak[0] > of_top else by_effect[: cut + 1]] = True
        apart = apart if apart.sum() <= groups / 2 else ~apart
        scale = true_scales(effects.se, effects.dof)
        centre = np.average(centred, weights=(scale.min() / scale) ** 2)
        own = float(np.sum(((centred - centre) / scale) ** 2))
        of_length = self._of_length(np.sum(scores**2))
        if self.shared is not None:
            own = float(self.shared.heterogeneity(centred[None] / _unit(scale))[0])
            of_length = of_length if effects.dof is not None else self._of_length(own)
        log_p, drawn = self._log_p(float(max(peak[0], of_top, of_length)), own)
        if effects.dof is not None:
            log_p = float(with_heavier_tail(np.array([log_p]), drawn + 1, float(effects.dof.min()))[0])
        return Tested(log_p, apart, drawn)

    def _of_top(self, height: Any) -> Any:
        """A top merge in the units of the scan."""
        return self.stretch * (np.sqrt(height) - self.top_mean) / self.top_spread

    def _of_length(self, heterogeneity: Any) -> Any:
        """Cochran's Q in the units of the scan."""
        return self.length_stretch * (np.sqrt(heterogeneity) - self.length_mean) / self.length_spread

    def values(self, theta: FloatArray, se: FloatArray) -> FloatArray:
        """What the test looks at, in every row of effects; one row of standard errors is that of all."""
        weight = np.ascontiguousarray(se**-2.0)
        scores = np.empty(theta.shape)
        kernels.pack_scores(np.ascontiguousarray(theta), weight, scores)
        scores.sort(axis=1)
        radius = np.empty(0) if self.shared is None else self.shared.heterogeneity(theta)
        return self._largest(_Block(line_tops(theta, weight, NORMAL), scores, weight, radius))

    def values_of_noise(self, normal: FloatArray, spread: FloatArray | None = None) -> FloatArray:
        """The same in rows of noise.

        Args:
            normal: Standard normals, (r, K), a column for each group in the order of `scale`.
            spread: Where standard errors are estimated: what is seen of each variance, as a multiple of the true one.
        """
        rows = max(1, BLOCK // self.scale.size)

        def some(number: int) -> FloatArray:
            mine = slice(number * rows, (number + 1) * rows)
            seen = None if spread is None else np.ascontiguousarray(spread[mine])
            return self._largest(self._packed(np.ascontiguousarray(normal[mine]), seen))

        return np.concatenate(list(in_order(some, -(-len(normal) // rows), self.cores)))

    def _largest(self, block: _Block) -> FloatArray:
        """Whichever of the three is least like noise."""
        length = block.heterogeneity() if self.shared is None or self.dof is not None else block.radius
        others = np.maximum(self._of_top(block.top), self._of_length(length))
        return np.asarray(np.maximum(self._peaks(block)[0], others))

    def log_chance(self, value: float) -> float:
        """Log of the chance that noise reaches a value."""
        log_p, drawn = self._log_p(value, None)
        if self.dof is not None:
            log_p = float(with_heavier_tail(np.array([log_p]), drawn + 1, float(self.dof.min()))[0])
        return log_p

    def critical(self, alpha: float) -> float:
        """The value that noise exceeds with chance α."""
        low, high = 0.0, 1.0
        while self._log_p(high, None)[0] > np.log(alpha):
            low, high = high, 2 * high
        for _ in range(20):
            middle = (low + high) / 2
            above = self._log_p(middle, None)[0] > np.log(alpha)
            low, high = (middle, high) if above else (low, middle)
        return high

    def _log_p(self, critical: float, own: float | None) -> tuple[float, int]:
        """Average over directions, the data's own included, of the chance that the length makes it critical.

        One look after the first draws: what is clearly large is taken, which keeps p valid at every level below; what
        is clearly tiny is taken doubled, for the second chance it had.
        """
        needed = [] if own is None else [np.array([own])]
        top = (self.top_mean + critical / self.stretch * self.top_spread) ** 2
        length = max(self.length_mean + critical / self.length_stretch * self.length_spread, 0.0) ** 2
        drawn = 0
        for block in self._drawn(0, self.draws):
            reach = np.empty(block.top.size)
            kernels.scan_reach(block.scores, block.weight, block.radius, self.mean, self.spread, critical, reach)
            with np.errstate(divide="ignore"):
                reach = np.minimum(reach, top / (block.top / block.radius))
                of_q = length if self.dof is None else length / (block.heterogeneity() / block.radius)
                needed.append(np.minimum(reach, of_q))
            is_first, drawn = drawn == 0, drawn + block.top.size
            if own is not None and is_first and drawn < self.draws:
                log_p = self._average(np.concatenate(needed))
                if log_p > np.log(_CLEAR):
                    return log_p, drawn
                if log_p < np.log(_TINY) and self.dof is None:
                    return log_p + np.log(2), drawn
        return self._average(np.concatenate(needed)), drawn

    def _average(self, needed: FloatArray) -> float:
        """Log of the average chance that a squared length reaches what each direction needs."""
        return float(_averages(needed[None], self.scale.size - 1, self.dof_of_all, whole=self.whole)[0])


def _averages(needed: FloatArray, freedom: int, dof: float = np.inf, *, whole: bool = False) -> FloatArray:
    """The same for every row; the length is that of F where standard errors are known but for a factor."""
    each = log_hotelling_tail(needed, freedom, dof) if whole else log_f_tail(needed / freedom, freedom, dof)
    most = each.max(axis=1, keepdims=True)
    return np.asarray(np.minimum(most[:, 0] + np.log(np.mean(np.exp(each - most), axis=1)), 0.0))


def _of_two(effects: Effects) -> float:
    """Log p of two groups: normal, Welch's t, or Student's where standard errors are known but for a factor."""
    variance, first, second = effects.se**2, np.array([0]), np.array([1])
    gap = np.abs(effects.theta[1:] - effects.theta[:1])
    between = effects.covariance
    if between is not None:  # scaled to add up to the variance of the difference
        variance = variance * ((between[0, 0] + between[1, 1] - 2 * between[0, 1]) / variance.sum())
    if np.isfinite(effects.dof_of_all):
        return float(log_f_tail(gap**2 / variance.sum(), 1, effects.dof_of_all)[0])
    return float(two_sided(gap, variance[first], variance[second], effects.dof, first, second)[0])


def _two_apart(
    theta: FloatArray, se: FloatArray, seen: FloatArray | None, dof: FloatArray | None, alpha: float
) -> BoolArray:
    """Whether two groups would be claimed to differ, in every row of effects."""
    variance = np.broadcast_to(se, theta.shape) ** 2 if seen is None else seen[:, :, 0] ** 2
    first = np.zeros(len(theta), dtype=np.int64)
    gap = np.abs(theta[:, 1] - theta[:, 0])
    return np.asarray(two_sided(gap, variance[:, 0], variance[:, 1], dof, first, first + 1) <= np.log(alpha))


class Tests:
    """The test of any set of the groups, each set tested once, and what noise does to like sets learnt once.

    Args:
        effects: All groups.
        draws: Directions a test may use; the usual number if None.
        seed: Of the draws.
        cores: How many to use; all by default.
    """

    def __init__(self, effects: Effects, draws: int | None, seed: int, cores: int | None = None) -> None:
        self.effects, self.draws, self.seed, self.cores = effects, draws, seed, cores
        self._same = float(np.ptp(effects.se)) == 0 and (effects.dof is None or float(np.ptp(effects.dof)) == 0)
        self._same &= effects.covariance is None
        self.most_draws = 0
        self._known: dict[bytes, Tested] = {}

    def of(self, members: IntArray) -> Tested:
        """What the test says of these groups."""
        key = members.tobytes()
        if key not in self._known:
            self._known[key] = self._tested(members)
            self.most_draws = max(self.most_draws, self._known[key].draws)
        return self._known[key]

    def detector(self, alpha: float, se: FloatArray) -> Detector:
        """Whether rows of other effects of all groups, in the units of `se`, would be claimed to differ."""
        if se.size == 2 and np.isinf(self.effects.dof_of_all):
            return lambda effects, seen: _two_apart(effects[:, :, 0], se, seen, self.effects.dof, alpha)
        null, order = self._ordered(self.effects)
        critical, dof_of_all = null.critical(alpha), self.effects.dof_of_all
        # What effects that share data are measured in; without a covariance matrix no unit matters.
        unit = float(se[0] / self.effects.se[0]) * _unit(true_scales(self.effects.se, self.effects.dof))

        def detects(effects: FloatArray, seen: FloatArray | None) -> BoolArray:
            theta, errors = (effects[:, :, 0] - effects[:, :1, 0])[:, order] / unit, se[None, order] / unit
            if seen is not None and np.isfinite(dof_of_all):  # one factor for all, by which effects seem larger
                theta = theta / (seen[:, :1, 0] / se[0])
            elif seen is not None:
                errors = seen[:, order, 0] / unit
            return null.values(theta, errors) >= critical

        return detects

    def _tested(self, members: IntArray) -> Tested:
        effects = self.effects.of(members)
        size = members.size
        if size < 2:
            return Tested(0.0, np.zeros(size, dtype=bool), 0)
        if size == 2:
            return Tested(_of_two(effects), np.array([False, True]), 0)
        if not np.any(effects.theta != effects.theta[0]):
            return Tested(0.0, np.arange(size) == 0, 0)
        null, order = self._ordered(effects)
        found = null.test(effects.of(order))
        apart = np.empty(size, dtype=bool)
        apart[order] = found.apart
        return found._replace(apart=apart)

    def everyone(self) -> tuple[Null, IntArray]:
        """What noise does to all groups together, and the order in which it takes them."""
        return self._ordered(self.effects)

    def _ordered(self, effects: Effects) -> tuple[Null, IntArray]:
        scale = true_scales(effects.se, effects.dof)
        # In an order of their own, so that the order of the groups does not change the answer.
        order = np.lexsort((effects.theta, scale) if effects.dof is None else (effects.theta, effects.dof, scale))
        return self._null(effects.of(order), scale[order]), order

    def _null(self, effects: Effects, scale: FloatArray) -> Null:
        draws = usual_draws(scale.size) if self.draws is None else self.draws
        unit, dof = _unit(scale), effects.dof
        made = np.ones(scale.size) if self._same else scale / unit
        shared = None
        if effects.covariance is not None:  # as spread out as the true variances, not as their estimates
            stretch = scale / effects.se / unit
            shared = Correlated.of_differences(effects.covariance * stretch[:, None] * stretch)
        if draws * scale.size > _KEPT or shared is not None or np.isfinite(effects.dof_of_all):
            return Null(made, dof, draws, self.seed, self.cores, shared, effects.dof_of_all, effects.whole)
        return _remembered(made.tobytes(), None if dof is None else dof.tobytes(), draws, self.seed)


def _unit(scale: FloatArray) -> float:
    """The geometric mean of standard errors."""
    return float(np.exp(np.log(scale).mean()))


@lru_cache(maxsize=32)
def _normals(seed: int, number: int, count: int, groups: int) -> FloatArray:
    """The standard normals behind a block, which many tests share."""
    return generator(seed, number).standard_normal((count, groups))


@lru_cache(maxsize=256)
def law_of_length(freedom: int) -> FloatArray:
    """Mean and spread of the root of a χ² number, and a high quantile in units of both."""
    mean = float(np.sqrt(2) * np.exp(gammaln((freedom + 1) / 2) - gammaln(freedom / 2)))
    spread = float(np.sqrt(max(freedom - mean**2, 1e-6)))
    return np.array([mean, spread, (float(np.sqrt(chdtri(freedom, 1 - _TAIL))) - mean) / spread])


def learnt_few(scales: FloatArray, draws: int, seed: int, shared: Correlated | None = None) -> FloatArray:
    """What noise does to some dozens of groups, for each row of scales; or to one row of groups that share data."""
    learnt = np.empty((len(scales), 2 * scales.shape[1] + 2))
    normal = _normals(seed, _FIRST, _learnt(draws), scales.shape[1])
    if shared is not None:
        normal = np.ascontiguousarray(shared.noise(normal) / scales)
    kernels.learn_few(normal, scales, _TAIL, learnt)
    return learnt


def tested_many(many: Sequence[Effects], draws: int, seed: int) -> tuple[FloatArray, IntArray]:
    """Log p of many sets of the same number of groups, some dozens, and their draws: those of `Tests` of each."""
    groups = many[0].theta.size
    unit = [np.exp(np.log(one.se).mean()) for one in many]
    order = [np.lexsort((one.theta, one.se)) for one in many]
    scales = np.stack([one.se[o] / u for one, u, o in zip(many, unit, order, strict=True)])
    effects = np.stack([one.theta[o] / u for one, u, o in zip(many, unit, order, strict=True)])
    learnt, length = learnt_few(scales, draws, seed), law_of_length(groups - 1)

    def needed(number: int, count: int, places: IntArray) -> FloatArray:
        made = np.empty((places.size, count + 1))
        kernels.test_few(
            _normals(seed, number, count, groups), effects[places], scales[places], learnt[places], length, made
        )
        return made

    look = min(LOOK, draws)
    first = needed(0, look, np.arange(len(many)))
    log_p, drawn = _averages(first, groups - 1), np.full(len(many), look)
    tiny = log_p < np.log(_TINY)
    open_question = np.flatnonzero((log_p <= np.log(_CLEAR)) & ~tiny) if look < draws else np.empty(0, dtype=np.int64)
    if look < draws:
        log_p[tiny] += np.log(2)
    if open_question.size:
        rest = needed(1, draws - look, open_question)[:, 1:]
        log_p[open_question] = _averages(np.concatenate([first[open_question], rest], axis=1), groups - 1)
        drawn[open_question] = draws
    return log_p, drawn


@lru_cache(maxsize=64)
def _remembered(scale: bytes, dof: bytes | None, draws: int, seed: int) -> Null:
    """What noise does to groups with these standard errors: the same for all tests of like groups."""
    return Null(np.frombuffer(scale), None if dof is None else np.frombuffer(dof), draws, seed)
