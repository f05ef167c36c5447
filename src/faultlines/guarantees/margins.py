"""Attributes before cells: one p over all margins of crossed attributes.

Every margin of crossed attributes consists of weighted means of the same K cells. Each is tested by the joint test of
its own levels, at its share w of the significance level; u, the smallest p/w, is a valid p by Bonferroni. Margins
overlap, so that the probability that some margin gets so far is smaller. With A_m the event that margin m has
p ≤ w_m u, and N how many of these events happen,

    P(A_1 ∪ A_2 ∪ …) = Σ_m P(A_m) E[1/N | A_m] = u Σ_m w_m E[1/N | A_m],

so p is u times the average of 1/N over noise drawn *given* that one margin gets so far. The factor lies between 1/M and
1 and needs a few hundred draws, however small p is.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtri

from faultlines.core import kernels
from faultlines.core.additive import WeightedCells
from faultlines.core.comparison import NORMAL, Comparison, generator
from faultlines.core.distributions import choose_unit, log_chi_square_tail
from faultlines.core.normal import CorrelatedNoise, as_comparison, top_merges
from faultlines.core.tree import build_tree
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import Key, Margin, cross_levels, labels_of, nested, number_levels
from faultlines.estimates.validation import is_independent, own_variances
from faultlines.guarantees.joint_test import GroupEffects, JointTest, NullDistribution, calibrate, extract_effects
from faultlines.types import BoolArray, FloatArray, IntArray

_STREAM = 1 << 21  # number of the first stream of conditional draws: apart from those of the tests
_DRAWS = 128  # conditional draws: the average of 1/N is known to 4%
_LEAST_DRAWS = 32
_NUMBERS = 6_400_000  # cells times draws: 64 draws of 10⁵ cells
_LAST = 20  # largest draws among which p is not counted but continued
_CANDIDATES = 4  # directions for each conditional draw, of which the likeliest to get so far are taken
_TINY = float(np.log(1e-8))  # below it Bonferroni's p is taken as it is: margins rarely get so far together
_LARGE = float(np.log(2.0))  # Bonferroni's sum above which p is 1: it would be above .7
_SECANT_STEPS = 8
_MOST = 0.99  # no margin is tested at a higher level
_WELL_KNOWN = 1e4  # degrees of freedom from which on a standard error counts as known, as in `joint`


class MarginTest(NamedTuple):
    """What all margins say together.

    Attributes:
        log_p: Log p of "no margin differs", calibrated.
        log_bonferroni: The same by weighted Bonferroni, an upper bound.
        log_p_of_margins: Log p of the joint test of each margin's own levels, not adjusted.
        draws: How many draws the tests rest on at most.
    """

    log_p: float
    log_bonferroni: float
    log_p_of_margins: FloatArray
    draws: int


def aggregate_effects(effects: GroupEffects, codes: IntArray) -> GroupEffects:
    """The effects of the levels of a partition, for the joint test.

    Args:
        effects: The cells.
        codes: The level of each cell, numbered from 0.

    Returns:
        Precision-weighted means with their standard errors, degrees of freedom (Satterthwaite) and covariance.
    """
    if int(codes.max()) + 1 == codes.size:
        return effects
    return _effects_of(weighted_cells(effects).aggregate(codes))


def weighted_cells(effects: GroupEffects) -> WeightedCells:
    """The cells with their weights, for linear tests between their levels."""
    return WeightedCells.of(*effects[:5], whole=effects.full_covariance, alone=effects.alone)


def _effects_of(levels: WeightedCells) -> GroupEffects:
    variance = 1 / levels.weight if levels.excess is None else levels.excess / levels.weight
    covariance, dof = levels.covariance, levels.dof
    if covariance is not None:
        variance = own_variances(covariance)
        covariance = None if is_independent(covariance, variance) else covariance
    dof = None if dof is None or dof.min() >= _WELL_KNOWN else dof
    return GroupEffects(levels.theta, np.sqrt(variance), dof, covariance, levels.dof_of_all, levels.whole)


def compare_margins(
    effects: GroupEffects,
    margins: Sequence[Margin],
    draws: int | None = None,
    seed: int = 0,
    cores: int | None = None,
    *,
    count: int | None = None,
) -> MarginTest:
    """Test all margins of some cells at once.

    Args:
        effects: The cells.
        margins: Their margins, as `margins_of` lists them.
        draws: Directions that a test may use; the usual number if None.
        seed: Of all draws.
        cores: How many to use; all by default.
        count: How many of the cells are compared by themselves: those after them only count in levels of the first.

    Returns:
        One p for all margins, and that of each.

    Example:
        >>> from faultlines.estimates.labels import margins_of
        >>> codes = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]])
        >>> effects = GroupEffects(np.array([0.0, 4.0, 0.0, 4.0, 0.0, 4.0]), np.ones(6), None)
        >>> bool(compare_margins(effects, margins_of(codes)).log_p < np.log(1e-5))
        True
    """
    if not margins:
        return MarginTest(0.0, 0.0, np.zeros(0), 0)
    cells = weighted_cells(effects)
    tested_levels = [_TestedLevels.of(margin, count) for margin in margins]
    levels = [
        effects if margin.is_cells and of.is_all else _effects_of(cells.subset(of.cells).aggregate(of.codes))
        for margin, of in zip(margins, tested_levels, strict=True)
    ]
    tests = [JointTest(each, draws, seed, cores) for each in levels]
    tested = [test.test(np.arange(each.theta.size)) for test, each in zip(tests, levels, strict=True)]
    log_p = np.array([each.log_p for each in tested])
    shares = np.array([margin.share for margin in margins])
    smallest = float(np.min(log_p - np.log(shares)))
    drawn = max(each.draws for each in tested)
    bonferroni = min(smallest, 0.0)
    if len(margins) == 1 or smallest < _TINY or smallest > _LARGE:
        return MarginTest(bonferroni, bonferroni, log_p, drawn)
    reached = np.minimum(shares * np.exp(smallest), _MOST)
    log_union = _log_probability_of_union(cells, tested_levels, reached, draws, seed, cores)
    return MarginTest(min(log_union, bonferroni), bonferroni, log_p, drawn)


class _TestedLevels(NamedTuple):
    """The levels of a margin that hold a cell which is compared by itself, and all cells in them.

    Attributes:
        cells: Places of those cells.
        codes: Their levels, from 0 on.
        levels: How many there are.
        is_all: Whether these are all cells.
    """

    cells: IntArray
    codes: IntArray
    levels: int
    is_all: bool

    @classmethod
    def of(cls, margin: Margin, count: int | None) -> _TestedLevels:
        """Those of a margin whose first cells, `count` of them, are compared by themselves."""
        levels = margin.levels if count is None else int(margin.codes[:count].max()) + 1  # they come first
        cells = np.flatnonzero(margin.codes < levels)
        return cls(cells, margin.codes[cells], levels, cells.size == margin.codes.size)


def compare_margins_of_planes(
    levels: Sequence[Comparison], margins: Sequence[Margin], draws: int | None, seed: int, cores: int | None = None
) -> MarginTest:
    """The same where several effects are measured together: the top merge of every margin's levels, by Bonferroni.

    Of two levels the top merge is Hotelling's T².

    Args:
        levels: The levels of each margin as groups.
        margins: The margins.
        draws: Of each test; the usual number if None.
        seed: Of the draws.
        cores: How many to use; all by default.
    """
    calibrations = [
        calibrate(each, build_tree(each).gap_heights, draws or each.default_draws, seed, cores=cores) for each in levels
    ]
    log_p = np.array([float(each.log_p.min(initial=0.0)) for each in calibrations])
    smallest = float(np.min(log_p - np.log([margin.share for margin in margins]), initial=0.0))
    return MarginTest(smallest, smallest, log_p, max((each.draws for each in calibrations), default=0))


class MarginStatistic:
    """The test of all margins as one number, on noise that is given: for groups that are looked at again and again.

    With one margin it is the joint statistic itself. With several it is the largest −log(p/share) of a margin, where p
    comes from the draws that are given: beyond the last few of them its root of −log p goes on in a straight line.

    Args:
        effects: The cells.
        margins: Their margins, as `margins_of` lists them.
        seed: Of the draws that standardize the statistics.
    """

    def __init__(self, effects: GroupEffects, margins: Sequence[Margin], seed: int) -> None:
        self.margins, self._cells = margins, weighted_cells(effects)
        levels = [aggregate_effects(effects, margin.codes) for margin in margins]
        nulls = [JointTest(each, None, seed).null_distribution() for each in levels]
        self._nulls = [null for null, _ in nulls]
        self._orders = [order for _, order in nulls]
        self._own = [
            float(null.statistics(each.theta[None, order], each.se[None, order])[0])
            for (null, order), each in zip(nulls, levels, strict=True)
        ]

    def compute(self, normal: FloatArray, spread: FloatArray | None) -> tuple[float, FloatArray]:
        """The statistic of the data and of every row of noise.

        Args:
            normal: Standard normals, a column for each cell.
            spread: Where standard errors are estimated: each estimated variance as a multiple of the true one.
        """
        drawn = [self._of_noise(m, normal, spread) for m in range(len(self.margins))]
        if len(self.margins) == 1:
            return self._own[0], drawn[0]
        own, best = -np.inf, np.full(len(normal), -np.inf)
        for margin, value, values in zip(self.margins, self._own, drawn, strict=True):
            evidence = _evidence(np.sort(values), np.append(values, value)) + np.log(margin.share)
            own, best = max(own, float(evidence[-1])), np.maximum(best, evidence[:-1])
        return own, best

    def log_pvalue(self, statistic: float, drawn: FloatArray) -> float:
        """Log of the probability that noise reaches a value of the statistic.

        Args:
            statistic: The value.
            drawn: The statistics of noise, as `compute` gave them.
        """
        if len(self.margins) == 1:
            return self._nulls[0].log_pvalue(statistic)
        last = np.sort(drawn)[-min(_LAST, drawn.size)]
        reached = int(np.count_nonzero(drawn >= min(statistic, last)))
        return float(min(np.log((reached + 1) / (drawn.size + 1)) - max(statistic - last, 0.0), 0.0))

    def _of_noise(self, place: int, normal: FloatArray, spread: FloatArray | None) -> FloatArray:
        """The joint statistic of a margin in every row of noise of the cells."""
        null, order, codes = self._nulls[place], self._orders[place], self.margins[place].codes
        if not self.margins[place].is_cells:
            weight = self._cells.weight
            total = np.bincount(codes, weight)
            normal = _level_sums(normal * np.sqrt(weight), codes) / np.sqrt(total)
            if spread is not None:
                spread = _level_sums(spread * weight, codes) / total
        if null.dof is None or spread is None:
            return null.statistics_of_noise(normal[:, order])
        return null.statistics_of_noise(normal[:, order], spread[:, order])


def _level_sums(rows: FloatArray, codes: IntArray) -> FloatArray:
    """Sums over the cells of each level, in rows of cells."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(int(codes.max()) + 1))
    return np.asarray(np.add.reduceat(rows[:, order], starts, axis=1))


def _evidence(ranked: FloatArray, values: FloatArray) -> FloatArray:
    """−log of the share of draws that are at least as large, going on smoothly where these end.

    Args:
        ranked: The draws in rising order.
        values: What is looked up.
    """
    count = ranked.size
    root = np.sqrt(-np.log((count - np.arange(count)) / (count + 1)))
    last, before = count - min(_LAST, count), count - min(10 * _LAST, count)
    heights = np.interp(values, ranked[: last + 1], root[: last + 1])
    width = ranked[last] - ranked[before]
    slope = (root[last] - root[before]) / width if width > 0 else 0.0
    return np.asarray((heights + slope * np.maximum(values - ranked[last], 0.0)) ** 2)


# ------------------------------------------------------------------------------------------------ calibration


class _Statistic:
    """The joint test of one margin on rows of noise: what it must exceed, and how long noise must be for that.

    Standard errors count as known here, also where they are estimates: what matters is how margins depend on each
    other at the levels at which they are tested.
    """

    def __init__(self, cells: WeightedCells, margin: _TestedLevels, tests: tuple[int | None, int, int | None]) -> None:
        self.cells, self.codes = margin.cells, margin.codes
        by_level = np.argsort(margin.codes, kind="stable")
        self.order = margin.cells[by_level]
        self.starts = np.searchsorted(margin.codes[by_level], np.arange(margin.levels))
        levels = cells.subset(margin.cells).aggregate(margin.codes)
        self.weight, self.covariance = levels.weight, levels.covariance
        self.freedom = margin.levels - 1
        own = 1 / levels.weight
        if self.covariance is not None:
            own = own_variances(self.covariance)
        self.se = np.sqrt(own)
        self.critical = np.inf
        self.null: NullDistribution | None = None
        if self.freedom > 1:
            effects = GroupEffects(np.zeros(self.se.size), self.se, None, self.covariance)
            self.null, self.by_scale = JointTest(effects, *tests).null_distribution()
            self.unit = float(np.exp(np.log(self.se).mean()))

    def aggregate(self, noise: FloatArray, weight: FloatArray) -> FloatArray:
        """Means of the levels in rows of cells."""
        sums = np.add.reduceat((noise * weight)[:, self.order], self.starts, axis=1)
        return np.asarray(sums / self.weight)

    def exceeds(self, means: FloatArray) -> BoolArray:
        """Whether the test gets so far, in rows of means."""
        if self.null is None:
            return self._lengths(means) >= self.critical
        theta = (means - means[:, :1])[:, self.by_scale] / self.unit
        values = self.null.statistics(np.ascontiguousarray(theta), self.se[None, self.by_scale] / self.unit)
        return np.asarray(values >= self.critical)

    def draw(self, level: float, count: int, rng: np.random.Generator) -> FloatArray:
        """Find what noise exceeds at a level, and draw means of the levels that do: (count, levels).

        Directions are drawn first; which of them are taken, and how long they are then, follows from how long each of
        them must be.
        """
        size = self.se.size
        candidates = max(count, min(_CANDIDATES * count, _NUMBERS // size))
        normal = rng.standard_normal((candidates, size))
        precision = self.se**-2.0
        if self.covariance is None:
            means = normal * self.se
        else:
            means = normal @ np.linalg.cholesky(self.covariance).T
            precision = np.asarray(np.linalg.solve(self.covariance, np.ones(size)), dtype=np.float64)
        center = (means @ precision / precision.sum())[:, None]
        lengths = self._lengths(means)
        needed = self._solve(means, lengths, level)
        log_tail = log_chi_square_tail(needed, self.freedom)
        probability = np.exp(log_tail - log_tail.max())
        places = (np.arange(count) + rng.random()) / count * probability.sum()
        chosen = np.minimum(np.searchsorted(np.cumsum(probability), places), candidates - 1)
        tails = np.exp(log_tail[chosen]) * (1 - rng.random(count))
        drawn = np.maximum(chdtri(self.freedom, np.maximum(tails, 1e-300)), needed[chosen])
        stretch = np.sqrt(drawn / lengths[chosen])[:, None]
        return np.asarray(center[chosen] + (means[chosen] - center[chosen]) * stretch)

    def _lengths(self, means: FloatArray) -> FloatArray:
        """Cochran's Q in rows of means."""
        if self.covariance is not None:
            return CorrelatedNoise.from_differences(self.covariance).heterogeneity(means - means[:, :1])
        precision = self.se**-2.0
        center = means @ precision / precision.sum()
        return np.asarray((means - center[:, None]) ** 2 @ precision)

    def _solve(self, means: FloatArray, lengths: FloatArray, level: float) -> FloatArray:
        """The squared length that each direction needs for the value that noise exceeds at this level."""
        null = self.null
        if null is None:
            self.critical = float(chdtri(1, level))
            return np.full(len(means), self.critical)
        theta = np.ascontiguousarray((means - means[:, :1])[:, self.by_scale] / self.unit)
        weight = np.ascontiguousarray((self.se[None, self.by_scale] / self.unit) ** -2.0)
        scores = np.empty(theta.shape)
        kernels.pack_scores(theta, weight, scores)
        scores.sort(axis=1)
        tops = np.maximum(top_merges(theta, weight, NORMAL) / lengths, 1e-300)

        def needed(critical: float) -> FloatArray:
            reach = np.empty(len(theta))
            kernels.scan_required_lengths(scores, weight, lengths, null.mean, null.spread, critical, reach)
            top = max(null.top_mean + critical / null.stretch * null.top_spread, 0.0) ** 2
            length = max(null.length_mean + critical / null.length_stretch * null.length_spread, 0.0) ** 2
            return np.asarray(np.minimum(np.minimum(reach, top / tops), length))

        def height(critical: float) -> float:
            """The root of −log p, almost a line: a few steps of a secant find where it is as high as it should be."""
            log_tail = log_chi_square_tail(needed(critical), self.freedom)
            most = float(log_tail.max())
            return float(np.sqrt(max(-most - np.log(np.mean(np.exp(log_tail - most))), 0.0)))

        wanted, last, critical = float(np.sqrt(-np.log(level))), 0.0, 3.0
        before, now = height(last), height(critical)
        for _ in range(_SECANT_STEPS):
            if abs(now - wanted) < 1e-3 or abs(now - before) < 1e-9:
                break
            step = float(np.clip((wanted - now) * (critical - last) / (now - before), -3.0, 6.0))
            last, before, critical = critical, now, critical + step
            now = height(critical)
        self.critical = critical
        return needed(critical)


def _log_probability_of_union(
    cells: WeightedCells,
    margins: Sequence[_TestedLevels],
    levels: FloatArray,
    draws: int | None,
    seed: int,
    cores: int | None,
) -> float:
    """Log of the probability that noise takes some margin to its level."""
    total = float(levels.sum())
    wanted = int(np.clip(_NUMBERS // len(cells), _LEAST_DRAWS, _DRAWS))
    counts = np.maximum(np.round(wanted * levels / total).astype(int), 2).tolist()
    streams = [generator(seed, _STREAM + m) for m in range(len(margins))]
    statistics = [_Statistic(cells, margin, (draws, seed, cores)) for margin in margins]
    means = [
        statistic.draw(float(level), count, rng)
        for statistic, level, count, rng in zip(statistics, levels, counts, streams, strict=True)
    ]
    averages = []
    for statistic, drawn, count, rng in zip(statistics, means, counts, streams, strict=True):
        noise = rng.standard_normal((count, len(cells)))
        noise = noise / np.sqrt(cells.weight) if cells.covariance is None else noise @ cells.root.T
        noise = _with_means(cells, statistic, noise, drawn)
        reached = np.ones(count)
        for other in statistics:
            if other is not statistic:
                reached += other.exceeds(other.aggregate(noise, cells.weight))
        averages.append(float(np.mean(1 / reached)))
    return float(min(np.log(np.dot(levels, averages)), 0.0))


def _with_means(cells: WeightedCells, statistic: _Statistic, noise: FloatArray, means: FloatArray) -> FloatArray:
    """Rows of cells whose levels have these means; what is left of the noise is independent of them."""
    gap = means - statistic.aggregate(noise, cells.weight)
    if cells.covariance is None:
        moved = noise.copy()
        moved[:, statistic.cells] += gap[:, statistic.codes]
        return moved
    share = np.zeros((len(cells), statistic.se.size))
    share[np.arange(len(cells)), statistic.codes] = cells.weight / statistic.weight[statistic.codes]
    with_levels = cells.root @ (cells.root.T @ share)
    return np.asarray(noise + gap @ np.linalg.solve(share.T @ with_levels, with_levels.T))


def add_small_groups(comparison: Comparison, codes: IntArray) -> tuple[Comparison, IntArray]:
    """The cells, then the small groups that are pooled over some attributes, with the levels of all of them.

    What is pooled over an attribute has a level of its own there, as has one that no cell has.

    Args:
        comparison: The cells.
        codes: The level of each attribute of each cell, (K, A).
    """
    estimates = comparison.estimates
    if estimates is None or estimates.remainder is None or comparison.tolerance > 0:
        return comparison, codes
    keys = [*comparison.keys, *estimates.remainder.keys]
    return as_comparison(estimates.with_small_groups(), 0.0), attribute_codes(keys, codes.shape[1])


def extend_margin(margin: Margin, codes: IntArray) -> Margin:
    """A margin of the cells as one of the cells and of what is pooled beside them."""
    if margin.is_cells:
        every = np.arange(len(codes), dtype=np.int64)
        return Margin(margin.attributes, every, every.size, margin.share)
    crossed = cross_levels([number_levels(codes[:, a]) for a in margin.attributes])
    return Margin(margin.attributes, crossed, int(crossed.max()) + 1, margin.share)


def attribute_codes(keys: Sequence[Key], attributes: int) -> IntArray:
    """The level of each attribute of each cell, numbered by first occurrence, (K, A)."""
    codes = np.empty((len(keys), attributes), dtype=np.int64)
    for a in range(attributes):
        numbers: dict[Hashable, int] = {}
        codes[:, a] = [numbers.setdefault(key[a], len(numbers)) for key in keys]
    return codes


def nested_attributes(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    """Pairs (finer, coarser) of attributes where the level of one determines that of the other."""
    pairs = nested(attribute_codes(comparison.keys, len(comparison.attributes)))
    return tuple((comparison.attributes[fine], comparison.attributes[coarse]) for fine, coarse in pairs)


def equal_attributes(comparison: Comparison) -> tuple[tuple[str, ...], ...]:
    """Sets of attributes that divide the groups in the same way, such as a country and its code."""
    codes = attribute_codes(comparison.keys, len(comparison.attributes))  # numbered by first occurrence
    alike: dict[bytes, list[str]] = {}
    for name, column in zip(comparison.attributes, codes.T, strict=True):
        if column.any():  # more than one level
            alike.setdefault(column.tobytes(), []).append(name)
    return tuple(tuple(names) for names in alike.values() if len(names) > 1)


def aggregate_comparison(comparison: Comparison, margin: Margin, cells: Comparison | None = None) -> Comparison:
    """The levels of a margin as groups of their own, with precision-weighted means of their cells.

    Args:
        comparison: The cells.
        margin: The margin.
        cells: Those that are compared by themselves, which come first and have the names; all of them by default.
    """
    cells = comparison if cells is None else cells
    of = _TestedLevels.of(margin, len(cells))
    comparison = comparison if of.is_all else comparison.subset(margin.codes < of.levels)
    estimates = comparison.estimates
    if estimates is None:
        raise TypeError("margins need estimates")
    first = np.unique(of.codes, return_index=True)[1]
    described: dict[str, Any] = {
        "labels": labels_of([tuple(cells.keys[i][a] for a in margin.attributes) for i in first.tolist()]),
        "n": None if estimates.n is None else np.bincount(of.codes, estimates.n),
        "attributes": [cells.attributes[a] for a in margin.attributes],
        "scale": estimates.scale,
        "metric": estimates.metric,
        "recipe": estimates.recipe,
    }
    aggregate = _aggregate_one_effect if estimates.dims == 1 else _aggregate_several_effects
    return as_comparison(Estimates(**aggregate(comparison, estimates, of.codes), **described), 0.0)


def _aggregate_one_effect(comparison: Comparison, estimates: Estimates, codes: IntArray) -> dict[str, Any]:
    theta, se = estimates.values[:, 0], estimates.own[:, 0]
    unit, center = choose_unit(se), theta[theta.size // 2]  # those of `extract_effects`
    levels = aggregate_effects(extract_effects(comparison), codes)
    weight = (se.min() / se) ** 2
    # What is shown is the mean of what was estimated; what is compared may have been made more normal.
    means = np.bincount(codes, weight * (estimates.given[:, 0] - center)) / np.bincount(codes, weight) + center
    covariance = None if levels.covariance is None else levels.covariance * unit**2
    has_one_dof = covariance is not None and np.isfinite(levels.common_dof)
    return {
        "theta": means,
        "se": None if covariance is not None else levels.se * unit,
        "dof": float(levels.common_dof) if has_one_dof and not levels.full_covariance else levels.dof,
        "natural": estimates.scale.natural(means),
        "compared": levels.theta * unit + center,
        "covariance": covariance,
        "covariance_dof": levels.common_dof if levels.full_covariance and covariance is not None else None,
    }


def _aggregate_several_effects(comparison: Comparison, estimates: Estimates, codes: IntArray) -> dict[str, Any]:
    pooled, dof = comparison.pool(codes), estimates.dof
    if pooled is None:
        raise TypeError("margins need estimates")
    covariances = pooled.covariances
    if dof is not None:  # weights follow the variances that they come from: the allowance of each effect by itself
        parts = [
            WeightedCells.of(estimates.values[:, part], estimates.errors[:, part], dof).aggregate(codes)
            for part in range(estimates.dims)
        ]
        variance = np.column_stack([part.excess / part.weight for part in parts if part.excess is not None])
        allowance = np.sqrt(np.maximum(variance / pooled.errors**2, 1.0))
        covariances = covariances * allowance[:, :, None] * allowance[:, None, :]
        dof = np.min([part.dof for part in parts if part.dof is not None], axis=0)
    weight = (estimates.errors.min(axis=0) / estimates.errors) ** 2
    moved = weight * (estimates.given - estimates.values)
    moved_levels = [
        np.bincount(codes, moved[:, part]) / np.bincount(codes, weight[:, part]) for part in range(estimates.dims)
    ]
    theta = pooled.values + np.column_stack(moved_levels)
    correlated = estimates.effect_covariance is not None
    return {
        "theta": theta,
        "se": None if correlated else np.sqrt(np.diagonal(covariances, axis1=1, axis2=2)),
        "effect_covariance": covariances if correlated else None,
        "dof": dof,
        "natural": estimates.readable(theta),
        "compared": pooled.values,
        "parts": estimates.parts,
    }
