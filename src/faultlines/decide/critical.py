"""How far the most extreme of many comparisons gets by chance: the critical value of max |z| under their correlation.

Comparisons with the overall, with a reference group or of all pairs are correlated, and not in a simple way. The chance
that any of them exceeds c is at most the sum of their chances (Bonferroni), and exactly that sum times E[1/S]: S is how
many exceed c where one of them, drawn at random, is known to (Owen, Maximov and Chertkov, 2019). So only the factor is
simulated, which needs few draws, and is as precise for small α as for large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from faultlines.comparison.base import generator
from faultlines.result.rest import of_others

if TYPE_CHECKING:
    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.scales import FloatArray

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
    """The value that the largest of some comparisons exceeds with chance α by noise alone.

    Args:
        contrasts: The comparisons.
        alpha: The chance.
        seed: Of the draws.
        sides: 2 for the largest in absolute value, 1 for the largest.
    """
    total = sides * contrasts.count
    factor, found = 1.0, 0.0
    for _ in range(_ROUNDS):
        before, found = found, float(-ndtri(alpha / (total * factor)))
        if abs(found - before) <= _PRECISE * found:
            break
        factor = max(_share_alone(contrasts, found, seed, sides), 1 / contrasts.count)
    return found


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
        self.cov, self.share, self.root = cov, share, np.linalg.cholesky(cov)
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
        along = -self.share.T[part][:, :, None] * np.moveaxis(self.cov, 2, 0)[part]
        along[rows, group] += self.cov[group, :, part]
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
        self.cov, self.root = cov, np.linalg.cholesky(cov)

    @property
    def count(self) -> int:
        """All pairs, times the effects."""
        groups, dims = self.cov.shape[:2]
        return int(groups * (groups - 1) // 2 * dims)

    @property
    def size(self) -> int:
        """Numbers in one draw."""
        return int(self.cov.shape[0] * self.cov.shape[1])

    @property
    def draws(self) -> int:
        """As many as ever: groups far apart from many others make the count of pairs vary."""
        return _MOST

    def exceeding(self, noise: FloatArray, which: IntArray, value: FloatArray, limit: float, sides: int) -> FloatArray:
        """How many pairs exceed a limit in every draw, once one of them has been given a value; either end counts."""
        groups, dims = self.cov.shape[:2]
        part, rows = which % dims, np.arange(len(which))
        a, b = _pair(which // dims)
        effects = np.einsum("kij,rkj->rki", self.root, noise.reshape(-1, groups, dims))
        spread = np.sqrt(self.cov[a, part, part] + self.cov[b, part, part])
        missing = (value - (effects[rows, a, part] - effects[rows, b, part]) / spread) / spread
        effects[rows, a] += missing[:, None] * self.cov[a, :, part]
        effects[rows, b] -= missing[:, None] * self.cov[b, :, part]
        counted = np.zeros(len(which))
        for i in range(dims):
            counted += (_all_pairs if groups <= _FEW else _far_pairs)(effects[:, :, i], self.cov[:, i, i], limit)
        return counted


class OfMatrix:
    """Comparisons of groups that share data, by the root of their covariance, (M, K).

    Args:
        root: One row for each comparison: what standard normals do to it.
    """

    def __init__(self, root: FloatArray) -> None:
        spread = np.sqrt(np.einsum("mk,mk->m", root, root))
        kept = spread > 1e-9 * spread.max()  # a reference group has no difference from itself
        self.root = root[kept] / spread[kept, None]

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

    The chances of very many pairs are added up (Bonferroni).
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
    for r, (one, is_far) in enumerate(zip(effects, half, strict=True)):
        far = np.flatnonzero(is_far)
        apart = np.abs(one[far, None] - one) >= limit * np.sqrt(variance[far, None] + variance)
        counted[r] = np.count_nonzero(apart) - np.count_nonzero(apart[:, far]) / 2
    return counted
