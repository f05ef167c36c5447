"""Groups against the overall, a reference or each other: intervals of differences and ratios, as people read them.

Every comparison is one of two estimates: a group, and what it is compared with; of the overall, that is all the other
groups together. Each has an interval of its own (exact for rates and counts, Student's where standard errors
are estimated, on the logarithmic scale for lifts), and the two make the interval of their difference or ratio (MOVER:
Zou and Donner, 2008; Donner and Zou, 2012). Where both are normal with known standard errors that is the usual interval
of a difference, and Fieller's of a ratio; where these are estimated it is that of Cochran and Cox, which holds in the
far tails too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from faultlines.core.comparison import AS_GOOD_AS_KNOWN, generator
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.scales import ANSCOMBE, Scale
from faultlines.metrics.moments import OwnCounts, OwnNoise
from faultlines.metrics.names import traits_by_effect
from faultlines.metrics.readout import Readout
from faultlines.metrics.table import Adverse
from faultlines.results.effects import of_others
from faultlines.types import BoolArray, FloatArray, IntArray

# ---------- How far the most extreme of many comparisons gets by chance: the critical value of max |z| under their


_ROUNDS = 8
_PRECISE = 5e-4  # of the critical value: when rounds end
_MOST, _FEWEST = 1000, 32  # draws
_WORK = 1_000_000  # numbers that draws may make altogether
_AT_ONCE = 2**18  # numbers in one portion of draws
_PAIRS = 2_000_000  # numbers in the covariances of all pairs: up to some 150 groups
_FEW = 40  # groups whose pairs are all looked at


class Contrasts(Protocol):
    """Comparisons of groups, each with a variance of 1."""

    @property
    def count(self) -> int:
        """How many there are."""

    @property
    def draws(self) -> int:
        """How many draws are worth their time."""

    @property
    def size(self) -> int:
        """Numbers in one draw."""

    def exceeding(self, noise: FloatArray, which: IntArray, value: FloatArray, limit: float, sides: int) -> FloatArray:
        """How many comparisons exceed a limit in every draw, once one of them has been given a value.

        Args:
            noise: Standard normals, (r, K · d).
            which: The number of that comparison in each draw.
            value: Its value.
            limit: The limit.
            sides: 2 where either end counts, 1 for the upper one.
        """


def critical_value(contrasts: Contrasts, alpha: float, seed: int, *, sides: int = 2) -> float:
    """The value that the largest of some comparisons exceeds with probability α by noise alone.

    Args:
        contrasts: The comparisons.
        alpha: The probability.
        seed: Of the draws.
        sides: 2 for the largest in absolute value, 1 for the largest.
    """
    total = sides * contrasts.count
    factor, value = 1.0, 0.0
    for _ in range(_ROUNDS):
        before, value = value, float(-ndtri(alpha / (total * factor)))
        if abs(value - before) <= _PRECISE * value:
            break
        factor = max(_share_alone(contrasts, value, seed, sides), 1 / contrasts.count)
    return value


def _share_alone(contrasts: Contrasts, limit: float, seed: int, sides: int) -> float:
    """E[1/S], given that a comparison drawn at random exceeds the limit: 1 where it is always the only one."""
    draws, tail = contrasts.draws, float(ndtr(-limit))
    portion = max(1, _AT_ONCE // contrasts.size)
    total = 0.0
    for number, start in enumerate(range(0, draws, portion)):
        rng, count = generator(seed, number), min(portion, draws - start)
        which = rng.integers(contrasts.count, size=count)
        value = -ndtri(tail * (1 - rng.random(count)))
        if sides == 2:
            value = np.where(rng.random(count) < 0.5, -value, value)
        noise = rng.standard_normal((count, contrasts.size))
        total += float(np.sum(1 / np.maximum(contrasts.exceeding(noise, which, value, limit, sides), 1)))
    return total / draws


class AgainstMean:
    """Every group against a weighted mean of all: the overall, or one group that has all the weight.

    Args:
        cov: Covariances of the effects of each group, (K, d, d).
        share: The share of each group in the mean, (K, d); they add up to 1.
    """

    def __init__(self, cov: FloatArray, share: FloatArray) -> None:
        self.covariance, self.share, self.root = cov, share, np.linalg.cholesky(cov)
        variance = np.diagonal(cov, axis1=1, axis2=2)
        self.spread = np.sqrt(of_others(share) ** 2 * variance + of_others(share**2 * variance))
        self.places = np.argwhere(self.spread > 0)  # a group that is all of the mean has no difference from it

    @property
    def count(self) -> int:
        """All groups but a reference, times the effects."""
        return len(self.places)

    @property
    def size(self) -> int:
        """Numbers in one draw."""
        return int(self.share.size)

    @property
    def draws(self) -> int:
        """Fewer where there are many groups, whose correlation is slight."""
        return int(np.clip(_WORK // self.share.size, _FEWEST, _MOST))

    def exceeding(self, noise: FloatArray, which: IntArray, value: FloatArray, limit: float, sides: int) -> FloatArray:
        """How many differences exceed a limit in every draw, once one of them has been given a value."""
        group, part = self.places[which].T
        rows = np.arange(len(which))
        effects = np.einsum("kij,rkj->rki", self.root, noise.reshape(-1, *self.share.shape))
        # How the effects go with the comparison that is given a value: its weights times their covariances.
        along = -self.share.T[part][:, :, None] * np.moveaxis(self.covariance, 2, 0)[part]
        along[rows, group] += self.covariance[group, :, part]
        along /= self.spread[group, part][:, None, None]
        drawn, moved = self._standard(effects), self._standard(along)
        drawn += moved * (value - drawn[rows, group, part])[:, None, None]
        return np.asarray(np.sum((np.abs(drawn) if sides == 2 else drawn) >= limit, axis=(1, 2)), dtype=np.float64)

    def _standard(self, effects: FloatArray) -> FloatArray:
        """Differences of effects, (r, K, d), from their mean, in standard deviations."""
        away = effects - np.sum(self.share * effects, axis=1, keepdims=True)
        return np.asarray(np.divide(away, self.spread, out=np.zeros(away.shape), where=self.spread > 0))


class AllPairs:
    """Every group against every other.

    Args:
        cov: Covariances of the effects of each group, (K, d, d).
    """

    def __init__(self, cov: FloatArray) -> None:
        self.covariance, self.root = cov, np.linalg.cholesky(cov)

    @property
    def count(self) -> int:
        """All pairs, times the effects."""
        groups, dims = self.covariance.shape[:2]
        return int(groups * (groups - 1) // 2 * dims)

    @property
    def size(self) -> int:
        """Numbers in one draw."""
        return int(self.covariance.shape[0] * self.covariance.shape[1])

    @property
    def draws(self) -> int:
        """As many as ever: groups far apart from many others make the count of pairs vary."""
        return _MOST

    def exceeding(self, noise: FloatArray, which: IntArray, value: FloatArray, limit: float, sides: int) -> FloatArray:
        """How many pairs exceed a limit in every draw, once one of them has been given a value; either end counts."""
        groups, dims = self.covariance.shape[:2]
        part, rows = which % dims, np.arange(len(which))
        a, b = _pair(which // dims)
        effects = np.einsum("kij,rkj->rki", self.root, noise.reshape(-1, groups, dims))
        spread = np.sqrt(self.covariance[a, part, part] + self.covariance[b, part, part])
        missing = (value - (effects[rows, a, part] - effects[rows, b, part]) / spread) / spread
        effects[rows, a] += missing[:, None] * self.covariance[a, :, part]
        effects[rows, b] -= missing[:, None] * self.covariance[b, :, part]
        counted = np.zeros(len(which))
        for i in range(dims):
            counted += (_all_pairs if groups <= _FEW else _far_pairs)(effects[:, :, i], self.covariance[:, i, i], limit)
        return counted


class OfMatrix:
    """Comparisons of groups that share data, by the root of their covariance, (M, K).

    Args:
        root: One row for each comparison: what standard normals do to it.
    """

    def __init__(self, root: FloatArray) -> None:
        spread = np.sqrt(np.einsum("mk,mk->m", root, root))
        varies = spread > 1e-9 * spread.max()  # a reference group has no difference from itself
        self.root = root[varies] / spread[varies, None]

    @property
    def count(self) -> int:
        """All of them."""
        return len(self.root)

    @property
    def size(self) -> int:
        """Numbers in one draw."""
        return int(self.root.shape[1])

    @property
    def draws(self) -> int:
        """Fewer where each is much work."""
        return int(np.clip(20 * _WORK // self.root.size, _FEWEST, _MOST))

    def exceeding(self, noise: FloatArray, which: IntArray, value: FloatArray, limit: float, sides: int) -> FloatArray:
        """How many comparisons exceed a limit in every draw, once one of them has been given a value."""
        chosen = self.root[which]
        missing = value - np.einsum("rk,rk->r", noise, chosen)
        drawn = (noise + missing[:, None] * chosen) @ self.root.T
        return np.asarray(np.sum((np.abs(drawn) if sides == 2 else drawn) >= limit, axis=1), dtype=np.float64)


def of_shared(covariance: FloatArray, share: FloatArray | None) -> Contrasts:
    """Every group against a mean by these shares, or all pairs, of groups that share data.

    The probabilities of very many pairs are added up (Bonferroni).
    """
    root = np.linalg.cholesky(covariance)
    if share is not None:
        return OfMatrix(np.asarray(root - share @ root, dtype=np.float64))
    a, b = np.triu_indices(len(root), 1)
    if a.size * len(root) <= _PAIRS:
        return OfMatrix(np.asarray(root[a] - root[b], dtype=np.float64))
    return Unrelated(a.size)


class Unrelated:
    """So many comparisons of which nothing is known: no two are taken to exceed a limit at once (Bonferroni).

    Args:
        count: How many.
    """

    def __init__(self, count: int) -> None:
        self.count, self.size, self.draws = count, 1, 1

    def exceeding(self, noise: FloatArray, which: IntArray, value: FloatArray, limit: float, sides: int) -> FloatArray:
        """The one that has been given a value."""
        return np.ones(len(which))


def _pair(number: IntArray) -> tuple[IntArray, IntArray]:
    """The two groups of a pair by its number: (0, 1), (0, 2), (1, 2), (0, 3) and so on."""
    second = ((1 + np.sqrt(1.0 + 8.0 * number)) / 2).astype(np.int64)
    second -= second * (second - 1) // 2 > number
    return number - second * (second - 1) // 2, second


def _all_pairs(effects: FloatArray, variance: FloatArray, limit: float) -> FloatArray:
    """How many pairs of every draw are apart by at least `limit` of their standard errors."""
    a, b = np.triu_indices(variance.size, 1)
    apart = np.abs(effects[:, a] - effects[:, b]) >= limit * np.sqrt(variance[a] + variance[b])
    return np.asarray(np.count_nonzero(apart, axis=1), dtype=np.float64)


def _far_pairs(effects: FloatArray, variance: FloatArray, limit: float) -> FloatArray:
    """The same for many groups.

    Two groups are c standard errors apart only where the squares of their own distances, in their own standard errors,
    add up to c² at least. So one of them has half of it, and few have.
    """
    half = effects**2 >= (0.5 - 1e-9) * limit**2 * variance
    counted = np.empty(len(effects))
    for r, (row, is_far) in enumerate(zip(effects, half, strict=True)):
        far = np.flatnonzero(is_far)
        apart = np.abs(row[far, None] - row) >= limit * np.sqrt(variance[far, None] + variance)
        counted[r] = np.count_nonzero(apart) - np.count_nonzero(apart[:, far]) / 2
    return counted


# --------------------


_PAIRS_AT_ONCE = 2**20  # pairs that are compared in one go
_NO_ROWS = 1e-9  # trials that stand for none
_KEPT = 2**14  # numbers in covariances whose critical value is remembered


class Side(NamedTuple):
    """Estimates and the ends of their own intervals."""

    value: FloatArray
    lower: FloatArray
    upper: FloatArray

    def of(self, places: IntArray | slice) -> Side:
        """Those at some places, to be compared with all of another side."""
        return Side(*(array[places, None] for array in self))


class Interval(NamedTuple):
    """Differences or ratios with the ends of their intervals."""

    value: FloatArray
    lower: FloatArray
    upper: FloatArray


def difference(side: Side, other: Side, *, correlation: FloatArray | float = 0.0) -> Interval:
    """One less the other, given how both go together."""
    value = side.value - other.value
    down, up = side.value - side.lower, side.upper - side.value
    other_down, other_up = other.value - other.lower, other.upper - other.value
    with np.errstate(over="ignore", invalid="ignore"):  # an end that far away is no end
        return Interval(
            value,
            value - np.sqrt(np.maximum(down**2 + other_up**2 - 2 * correlation * down * other_up, 0.0)),
            value + np.sqrt(np.maximum(up**2 + other_down**2 - 2 * correlation * up * other_down, 0.0)),
        )


def ratio(side: Side, other: Side, *, correlation: FloatArray | float = 0.0) -> Interval:
    """One over the other, which is not below zero; an end that is not known is 0 or infinite.

    The lower end is where one − r · other, with its own interval, could be zero: r solves
    (e − r o)² = (e − l)² + r² (u − o)² − 2 r ρ (e − l)(u − o). The upper end likewise.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        value = side.value * other.value
        product = value - correlation * (side.value - side.lower) * (other.upper - other.value)
        head, foot = side.lower * (2 * side.value - side.lower), other.upper * (2 * other.value - other.upper)
        lower = head / (product + np.sqrt(np.maximum(product**2 - foot * head, 0.0)))
        product = value - correlation * (side.upper - side.value) * (other.value - other.lower)
        head, foot = side.upper * (2 * side.value - side.upper), other.lower * (2 * other.value - other.lower)
        upper = (product + np.sqrt(np.maximum(product**2 - foot * head, 0.0))) / foot
        value = side.value / other.value
    upper = np.where(foot > 0, upper, np.inf)
    return Interval(np.where(np.isnan(value), 1.0, value), np.maximum(np.nan_to_num(lower), 0.0), upper)


@dataclass(frozen=True, slots=True, eq=False)
class OneEffect:
    """One effect of all groups.

    Attributes:
        shown: Estimates as people read them.
        theta: The same on their scale.
        se: Standard errors there.
        dof: Degrees of freedom behind them; None where they are known.
        scale: The scale.
        share: The share of each group in the overall; they add up to 1.
        variance: Variances of what people read (delta method).
        correlation: Of the groups, (K, K), where they share data.
        noise: The noise of each by its own rows, where rows were given and its scale has no law of it.
        extent: The lowest and the highest value that the effect can have.
        flat: Rows of each group in which nothing varies, as far as they show; infinite for all other groups.
    """

    shown: FloatArray
    theta: FloatArray
    se: FloatArray
    dof: FloatArray | None
    scale: Scale
    share: FloatArray
    variance: FloatArray
    correlation: FloatArray | None = None
    noise: OwnNoise | OwnCounts | None = None
    extent: tuple[float, float] = (-np.inf, np.inf)
    flat: FloatArray | None = None

    @property
    def overall(self) -> float:
        """The effect on all people: the mean of the groups' effects, weighted by their shares."""
        return float(self.share @ self.shown)

    def side(self, tail: float) -> Side:
        """The groups, with the probability `tail` beyond each end of their intervals."""
        if isinstance(self.noise, OwnCounts):
            return counted_side(self.noise, tail, signed=self.extent[0] == -1)
        with np.errstate(over="ignore"):
            lower, upper = self.scale.ends(self.shown, self.theta, self.se, tail, self.dof)
            if self.noise is not None:
                below, above = hall_margins(self.noise, tail)
                natural = self.scale.natural
                lower = np.where(np.isfinite(below), np.minimum(natural(self.theta - below), self.shown), lower)
                upper = np.where(np.isfinite(above), np.maximum(natural(self.theta + above), self.shown), upper)
        lowest, highest = self.extent
        if self.flat is not None and np.isfinite(highest - lowest):
            # Of n rows alike, a share of 1 − tail^(1/n) could be anything that the metric can be.
            share = -np.expm1(np.log(tail) / np.maximum(self.flat, 1.0))
            lower = np.minimum(lower, self.shown - share * (self.shown - lowest))
            upper = np.maximum(upper, self.shown + share * (highest - self.shown))
        return Side(self.shown, np.maximum(lower, lowest), np.minimum(upper, highest))

    def rest(self, tail: float) -> Side:
        """For each group, all the others together."""
        left = of_others(self.share)
        value = of_others(self.share * self.shown) / left
        if self.scale.is_share:  # many exact intervals of few events would add up to one that is far too wide
            likely = of_others(self.share * self.scale.natural(self.theta)) / left
            se = self.scale.effective(likely, self._of_rest(np.sqrt(self.variance)) / left**2)
            return Side(value, *self.scale.ends(value, self.scale.place(value), se, tail))
        side = self.side(tail)
        with np.errstate(over="ignore", invalid="ignore"):  # an end that far away is no end
            below, above = (np.sqrt(self._of_rest(np.abs(end - side.value))) / left for end in (side.lower, side.upper))
        return Side(value, value - below, value + above)

    def _of_rest(self, errors: FloatArray) -> FloatArray:
        """The variance of the sum of all other groups by their shares, for each group; errors are one sided."""
        pulled = self.share * errors
        if self.correlation is None:
            return of_others(pulled**2)
        along = self.correlation @ pulled
        rest = np.maximum(pulled @ along - 2 * pulled * along + pulled**2, 0.0)
        return np.where(np.isnan(rest), np.inf, rest)  # the end of some group is infinite

    def _of_everyone(self, errors: FloatArray) -> float:
        """The same of all groups together."""
        pulled = self.share * errors
        return float(pulled @ pulled if self.correlation is None else pulled @ self.correlation @ pulled)

    def _with_rest(self) -> FloatArray | float:
        """The correlation of each group with all the others together."""
        if self.correlation is None:
            return 0.0
        pulled = self.share * np.sqrt(self.variance)
        spread = np.sqrt(self._of_rest(np.sqrt(self.variance)))
        with_others = self.correlation @ pulled - pulled
        return np.asarray(np.divide(with_others, spread, out=np.zeros(spread.shape), where=spread > 0))

    def of_all(self, tail: float) -> Side:
        """The overall itself."""
        level = np.array([self.overall])
        if self.scale.is_share:
            likely, variance = self.share @ self.scale.natural(self.theta), self._of_everyone(np.sqrt(self.variance))
            se = self.scale.effective(np.array([likely]), np.array([variance]))
            return Side(level, *self.scale.ends(level, self.scale.place(level), se, tail))
        side = self.side(tail)
        ends = [np.sqrt(self._of_everyone(np.abs(end - side.value))) for end in (side.lower, side.upper)]
        return Side(level, level - ends[0], level + ends[1])

    def against_overall(self, tail: float, *, as_ratio: bool) -> Interval:
        """Every group against the overall, by way of all the other groups."""
        side, rest, together = self.side(tail), self.rest(tail), self._with_rest()
        left = of_others(self.share)
        if not as_ratio:
            return Interval(*(left * part for part in difference(side, rest, correlation=together)))
        own = 1 - left
        with np.errstate(divide="ignore"):  # over the overall, which has the group in it: at most 1/share
            return Interval(*(1 / (own + left / part) for part in ratio(side, rest, correlation=together)))

    def against_value(self, value: float, tail: float, *, as_ratio: bool) -> Interval:
        """Every group against a fixed value."""
        return Interval(*(part / value if as_ratio else part - value for part in self.side(tail)))

    def against_group(self, place: int, tail: float, *, as_ratio: bool) -> Interval:
        """Every group against one of them."""
        side = self.side(tail)
        other = Side(*(array[place : place + 1] for array in side))
        together = 0.0 if self.correlation is None else self.correlation[place]
        return (ratio if as_ratio else difference)(side, other, correlation=together)

    def pairs(
        self, tail: float, *, as_ratio: bool, others: IntArray | None = None
    ) -> Iterator[tuple[IntArray, Interval]]:
        """Some groups at a time, each against every other: intervals (r, K), and nothing is known of one itself.

        Args:
            tail: The probability beyond each end.
            as_ratio: Ratios, not differences.
            others: The places of those that all are compared with; None: all.
        """
        side, groups = self.side(tail), self.shown.size
        other = side if others is None else Side(*(array[others] for array in side))
        some = max(1, _PAIRS_AT_ONCE // groups)
        for start in range(0, groups, some):
            places = np.arange(start, min(start + some, groups))
            together: FloatArray | float = 0.0
            if self.correlation is not None:
                together = self.correlation[places] if others is None else self.correlation[np.ix_(places, others)]
            yield places, (ratio if as_ratio else difference)(side.of(places), other, correlation=together)


def rate_side(ones: FloatArray, trials: FloatArray, tail: float) -> Side:
    """Rates with their exact intervals."""
    trials = np.maximum(trials, _NO_ROWS)
    value = np.clip(ones / trials, 0.0, 1.0)
    return Side(value, *ANSCOMBE.ends(value, ANSCOMBE.place(value), 1 / np.sqrt(4 * trials + 2), tail))


def counted_side(counts: OwnCounts, tail: float, *, signed: bool) -> Side:
    """Means of values −1, 0 and 1: the rate of ones less that of minus ones, each with its exact interval.

    Args:
        counts: Ones and minus ones of every group.
        tail: The probability beyond each end.
        signed: Whether values can be −1 although none is: a model that loses in no row may still lose in others.
    """
    if not signed and not counts.minus_ones.any():
        return rate_side(counts.ones, counts.trials, tail)
    up, down = (rate_side(ones, counts.trials, tail) for ones in (counts.ones, counts.minus_ones))
    odds = up.value * down.value / np.maximum((1 - up.value) * (1 - down.value), _NO_ROWS)
    return Side(*difference(up, down, correlation=-np.sqrt(np.minimum(odds, 1.0))))  # a row is one or the other


_SKEW_LIMIT = 0.8  # of skewness times quantile, up to which a shape that is not the group's own is believed


def hall_margins(noise: OwnNoise, tail: float) -> tuple[FloatArray, FloatArray]:
    """How far one-sided intervals reach down and up, with the probability `tail` beyond each end; NaN: not known.

    Hall's interval (1992) turns the skewness of a studentized estimate round: T + γT²/3 + γ²T³/27 + γ/6 is nearly as
    normal as T would be without it. A small sample shows too little of its skewness, so that the farther of two ends
    counts: with the group's own, and with what groups have in common, as far as the cubic is not near its end. Wrong
    certificates at 5%, one-sided (20,000 samples): spend n = 200 .054 (Student's .16, shared variances .23), lognormal
    n = 50 .039 (.13), exponential n = 30 .049 (.10), t(3) n = 50 .053, normal .046–.049.
    """
    with np.errstate(all="ignore"):
        quantile = np.asarray(-stdtrit(np.minimum(noise.dof, AS_GOOD_AS_KNOWN), tail), dtype=np.float64)
        limit = _SKEW_LIMIT / quantile
        common = np.clip(np.nan_to_num(noise.common), -limit, limit)
        usable = (noise.variance > 0) & (noise.dof >= 1) & np.isfinite(noise.skewness)
        error = np.where(usable, np.sqrt(noise.variance), np.nan)
        down = np.maximum(*(_hall_quantile(quantile, skewness) for skewness in (noise.skewness, common)))
        up = np.maximum(*(-_hall_quantile(-quantile, skewness) for skewness in (noise.skewness, common)))
    return error * np.maximum(down, 0.0), error * np.maximum(up, 0.0)


def _hall_quantile(quantile: FloatArray, skewness: FloatArray) -> FloatArray:
    """Where Hall's cubic is at a quantile."""
    straight = np.abs(skewness) < 1e-8
    bend = np.where(straight, 1.0, skewness)
    return np.where(straight, quantile, 3 / bend * (np.cbrt(1 + bend * (quantile - bend / 6)) - 1))


def effects_of(estimates: Estimates, share: FloatArray, readout: Readout | None = None) -> list[OneEffect]:
    """Each effect of estimates; `share` is (K, d). With the rows behind them, bounds are by each group's own noise."""
    noise = None if readout is None or estimates.dims > 1 else readout.own_noise()
    extents = _extents(estimates)
    dof = None if estimates.dof is None else np.minimum(estimates.dof, AS_GOOD_AS_KNOWN)
    errors = natural_errors(estimates)
    return [
        OneEffect(
            estimates.shown[:, i],
            estimates.given[:, i],
            estimates.errors[:, i],
            dof,
            scale,
            share[:, i],
            errors[:, i] ** 2,
            correlation_of(estimates),
            noise,
            extents[i],
            None
            if readout is None or scale.is_share
            else _flat_rows(estimates.shown[:, i], readout, noise, extents[i]),
        )
        for i, scale in enumerate(estimates.scales)
    ]


def _extents(estimates: Estimates) -> list[tuple[float, float]]:
    """The lowest and the highest value of each effect, where these are known."""
    return [of_effect.extent for of_effect in traits_by_effect(estimates.recipe, estimates.dims)]


def _flat_rows(
    shown: FloatArray, readout: Readout | None, noise: OwnNoise | OwnCounts | None, extent: tuple[float, float]
) -> FloatArray | None:
    """Rows (of the smaller class) of groups in which nothing varies: at an end of the metric, or unchanged between two.

    Their estimated variance would be what other groups lend them, and a few rows without any error would be sure.
    """
    if readout is None:
        return None
    flat = (shown <= extent[0]) | (shown >= extent[1]) | ((extent[0] == -extent[1]) & (shown == 0))
    if isinstance(noise, OwnNoise):
        flat |= ~(noise.variance > 0)
    return np.where(flat, readout.moments.n.min(axis=(1, 2)), np.inf)


def correlation_of(estimates: Estimates) -> FloatArray | None:
    """How the groups go together, (K, K); None where they are independent."""
    if estimates.covariance is None:
        return None
    return np.asarray(estimates.covariance / estimates.errors / estimates.errors.T)


def natural_errors(estimates: Estimates) -> FloatArray:
    """Standard errors of what people read, (K, d), above zero also where a scale ends."""
    errors = estimates.readable_errors(estimates.given, estimates.errors)
    return np.where(errors > 0, errors, estimates.errors**2)


def critical_of(
    estimates: Estimates,
    share: FloatArray | None,
    alpha: float,
    seed: int,
    *,
    sides: int,
    signs: FloatArray | None = None,
) -> float:
    """The critical value of all comparisons at once: with a mean by these shares, (K, d), or of all pairs.

    Args:
        estimates: The groups.
        share: What each weighs in the mean; None: all pairs.
        alpha: The probability that any comparison exceeds it by noise alone.
        seed: Of the draws.
        sides: 2 for either end, 1 for one of them.
        signs: For one end of several effects: −1 where it is the other one.
    """
    errors = natural_errors(estimates) * (1.0 if signs is None else signs)
    errors = errors / np.exp(np.log(np.abs(errors)).mean(axis=0))  # comparisons have no unit
    together = correlation_of(estimates)
    if together is not None:
        covariance = together * errors * errors.T
        return critical_value(of_shared(covariance, None if share is None else share[:, 0]), alpha, seed, sides=sides)
    correlation = np.broadcast_to(np.eye(estimates.dims), (len(estimates), estimates.dims, estimates.dims))
    if estimates.effect_covariance is not None:
        correlation = estimates.effect_covariance / (estimates.errors[:, :, None] * estimates.errors[:, None, :])
    cov = correlation * errors[:, :, None] * errors[:, None, :]
    if cov.size > _KEPT:
        return critical_value(AllPairs(cov) if share is None else AgainstMean(cov, share), alpha, seed, sides=sides)
    return _remembered(cov.shape, cov.tobytes(), None if share is None else share.tobytes(), alpha, seed, sides)


def critical_alone(estimates: Estimates, alpha: float, seed: int, *, sides: int) -> float:
    """The critical value of all groups against a fixed value."""
    together = correlation_of(estimates)
    contrasts: Contrasts = Unrelated(len(estimates) * estimates.dims)
    if together is not None:
        contrasts = OfMatrix(np.asarray(np.linalg.cholesky(together), dtype=np.float64))
    return critical_value(contrasts, alpha, seed, sides=sides)


@lru_cache(maxsize=64)
def _remembered(
    shape: tuple[int, int, int], cov: bytes, share: bytes | None, alpha: float, seed: int, sides: int
) -> float:
    """The same, remembered: it does not depend on the effects."""
    matrices = np.frombuffer(cov).reshape(shape)
    contrasts: Contrasts = AllPairs(matrices)
    if share is not None:
        contrasts = AgainstMean(matrices, np.frombuffer(share).reshape(shape[:2]))
    return critical_value(contrasts, alpha, seed, sides=sides)


# ------------------------------------------------------------------------------------------------------ how far apart


class Distances(NamedTuple):
    """How far apart two may be at most (`far`), and are at least (`near`), in the direction that matters.

    Differences count from 0 and ratios from 1, turned round where they are below it.
    """

    far: FloatArray
    near: FloatArray


def distances(interval: Interval, adverse: Adverse | None, *, as_ratio: bool) -> Distances:
    """The distances that intervals leave possible."""
    down = Interval(*(_reversed_contrast(part, as_ratio=as_ratio) for part in interval))
    if adverse == "high":
        return Distances(interval.upper, interval.lower)
    if adverse == "low":
        return Distances(down.lower, down.upper)
    return Distances(np.maximum(interval.upper, down.lower), np.maximum(interval.lower, down.upper))


def _reversed_contrast(values: FloatArray, *, as_ratio: bool) -> FloatArray:
    """The other way round: −d of a difference, 1/r of a ratio."""
    if not as_ratio:
        return -values
    return np.asarray(np.divide(1.0, values, out=np.full(values.shape, np.inf), where=values > 0))


class Farthest(NamedTuple):
    """Of every group, the other one that decides: from which it certainly differs, else which it may be farthest from.

    Attributes:
        interval: Of the two.
        distances: The farthest of all pairs of the group, and the one that is surely there.
        other: The other group.
    """

    interval: Interval
    distances: Distances
    other: IntArray


def farthest(effect: OneEffect, tail: float, limit: float, *, as_ratio: bool) -> Farthest:
    """All pairs of every group, by the pair that decides about it."""
    groups = effect.shown.size
    value, lower, upper, far, near = np.empty((5, groups))
    other = np.empty(groups, dtype=np.int64)
    for places, interval in effect.pairs(tail, as_ratio=as_ratio):
        rows, pair_distances = np.arange(places.size), distances(interval, None, as_ratio=as_ratio)
        for array in pair_distances:
            array[rows, places] = -np.inf
        at_far, at_near = pair_distances.far.argmax(axis=1), pair_distances.near.argmax(axis=1)
        far[places], near[places] = pair_distances.far[rows, at_far], pair_distances.near[rows, at_near]
        other[places] = np.where(near[places] > limit, at_near, at_far)
        for array, part in zip((value, lower, upper), interval, strict=True):
            array[places] = part[rows, other[places]]
    return Farthest(Interval(value, lower, upper), Distances(far, near), other)


# ---------- Multiple comparisons with the best (Hsu, 1984; Edwards and Hsu, 1983). The data choose which group looks
# best; the intervals hold for the one that is. With k the best in truth, P(θ̂_k − θ̂_j − (θ_k − θ_j) ≥ −d s_kj for all
# j) ≥ 1 − α with Dunnett's one-sided d. Then k is among the candidates (groups not shown to be below another), and no
# group is farther below it than below the worst of the candidates. That a group *is* below the best by some distance is
# shown by any pair, and that holds for all groups at once with Tukey's critical value of all pairs.


class BestTails(NamedTuple):
    """The probability beyond one end of a pair's interval, for what is said of all groups.

    Attributes:
        within: That no group is farther below the best.
        beyond: That some are at least so far below it.
    """

    within: float
    beyond: float


class AgainstBest(NamedTuple):
    """Every group against the best of the others, with simultaneous intervals.

    Attributes:
        interval: Against the best of the *other* groups: above 0 (a ratio above 1) for the best one alone.
        to_best: Against the best of all: exactly 0 (1) for the best one, and never above it.
        other: The best of the others in these data.
        candidates: Groups that may be the best one: those not shown to be below another.
    """

    interval: Interval
    to_best: Interval
    other: IntArray
    candidates: BoolArray


def compare_with_best(
    estimates: Estimates,
    alpha: float,
    seed: int,
    *,
    highest: bool = True,
    as_ratio: bool = False,
    sides: int = 2,
    eligible: BoolArray | None = None,
) -> list[AgainstBest]:
    """Each effect of all groups against the best group, whichever that is in truth.

    Args:
        estimates: The groups.
        alpha: The probability that any interval of an effect misses.
        seed: Of the draws behind the critical values.
        highest: Whether the highest is the best, or the lowest.
        as_ratio: Ratios, not differences: effects must not be below zero.
        sides: 2 where both ends hold together with 1 − α; 1 where each end does on its own.
        eligible: Which groups may be the best one; the others are compared with it all the same. None: all.

    Returns:
        One comparison for each effect.
    """
    tails = best_tails(estimates, alpha, seed, sides=sides)
    effects = effects_of(estimates, np.full(estimates.shown.shape, 1 / len(estimates)))
    return [against_best(effect, tails, highest=highest, as_ratio=as_ratio, eligible=eligible) for effect in effects]


def best_tails(estimates: Estimates, alpha: float, seed: int, *, sides: int) -> BestTails:
    """The tails of all comparisons with the best.

    Dunnett's one-sided critical value grows as the comparisons get less correlated (Slepian), thus with the precision
    of what they have in common: that with the most precise group as the best is enough for any best group.
    """
    beyond = float(ndtr(-critical_of(estimates, None, alpha, seed, sides=2)))
    if sides == 2:
        return BestTails(beyond, beyond)
    if estimates.covariance is not None:
        return BestTails(float(ndtr(-critical_value(Unrelated(len(estimates) - 1), alpha, seed, sides=1))), beyond)
    errors, critical = natural_errors(estimates), 0.0
    for own in errors.T:  # the best group may be another one for each of several effects
        share = (np.arange(own.size) == own.argmin()).astype(float)
        contrasts = AgainstMean((own / own.min())[:, None, None] ** 2, share[:, None])
        critical = max(critical, critical_value(contrasts, alpha / errors.shape[1], seed, sides=1))
    return BestTails(float(ndtr(-critical)), beyond)


def against_best(
    effect: OneEffect, tails: BestTails, *, highest: bool, as_ratio: bool, eligible: BoolArray | None = None
) -> AgainstBest:
    """One effect of all groups against the best group."""
    groups, equal = effect.shown.size, 1.0 if as_ratio else 0.0
    may_be = np.ones(groups, dtype=bool) if eligible is None else eligible
    columns = np.flatnonzero(may_be)
    settings = {"highest": highest, "as_ratio": as_ratio}
    upper = _least(effect, tails.beyond, columns, **settings).upper
    shown_below = upper if tails.within == tails.beyond else _least(effect, tails.within, columns, **settings).upper
    candidates = may_be & (shown_below >= equal)
    places = np.flatnonzero(candidates)
    lower = _least(effect, tails.within, places, **settings).lower
    if places.size == 1 and tails.within == tails.beyond:  # by how much it is ahead of all others
        lower[places] = _least(effect, tails.within, columns, **settings).lower[places]
    sole = candidates & (places.size == 1)
    lower = np.where(sole, np.maximum(np.where(np.isfinite(lower), lower, equal), equal), lower)
    lower = np.where(may_be & ~sole, np.minimum(lower, equal), lower)
    order = np.where(may_be, effect.shown if highest else -effect.shown, -np.inf)
    first = int(order.argmax())
    second = int(np.where(np.arange(groups) == first, -np.inf, order).argmax()) if columns.size > 1 else first
    other = np.where(np.arange(groups) == first, second, first)
    apart = _oriented(_values(effect.shown, effect.shown[other], as_ratio=as_ratio), **settings).value
    interval = Interval(apart, np.minimum(lower, apart), np.maximum(upper, apart))
    capped = Interval(*(np.where(may_be, np.minimum(part, equal), part) for part in interval))
    return AgainstBest(_oriented(interval, **settings), _oriented(capped, **settings), other, candidates)


def at_most_below_best(effect: OneEffect, tail: float, *, highest: bool, as_ratio: bool) -> FloatArray:
    """How far each group may be from the best at most: the farthest of its pairs, each a bound of its own."""
    columns = np.arange(effect.shown.size)
    lower = _least(effect, tail, columns, highest=highest, as_ratio=as_ratio).lower
    return _reversed_contrast(lower, as_ratio=as_ratio)


def _least(effect: OneEffect, tail: float, columns: IntArray, *, highest: bool, as_ratio: bool) -> Interval:
    """Of every group, the least ends of all its pairs with some groups; infinite where it is the only one of these."""
    lower, upper = np.full((2, effect.shown.size), np.inf)
    for places, pairs in effect.pairs(tail, as_ratio=as_ratio, others=columns):
        interval = _oriented(pairs, highest=highest, as_ratio=as_ratio)
        itself = places[:, None] == columns
        lower[places] = np.where(itself, np.inf, interval.lower).min(axis=1)
        upper[places] = np.where(itself, np.inf, interval.upper).min(axis=1)
    return Interval(lower, lower, upper)


def _values(values: FloatArray, other: FloatArray, *, as_ratio: bool) -> Interval:
    """Differences or ratios without any interval."""
    if not as_ratio:
        return Interval(*[values - other] * 3)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = values / other
    return Interval(*[np.where(np.isnan(value), 1.0, value)] * 3)


def _oriented(interval: Interval, *, highest: bool, as_ratio: bool) -> Interval:
    """Intervals as they are where the highest is the best, turned round where the lowest is; twice is as before."""
    if highest:
        return interval
    value, upper, lower = (_reversed_contrast(part, as_ratio=as_ratio) for part in interval)
    return Interval(value, lower, upper)
