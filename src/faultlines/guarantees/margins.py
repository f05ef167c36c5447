"""Attributes before cells: one p over all margins, the fewest attributes that are enough, and how much each explains.

Every margin of crossed attributes consists of weighted means of the same K cells. Each is tested by the joint test of
its own levels, at its share w of the significance level; u, the smallest p/w, is a valid p by Bonferroni. Margins
overlap, so that the probability that some margin gets so far is smaller. With A_m the event that margin m has
p ≤ w_m u, and N how many of these events happen,

    P(A_1 ∪ A_2 ∪ …) = Σ_m P(A_m) E[1/N | A_m] = u Σ_m w_m E[1/N | A_m],

so p is u times the average of 1/N over noise drawn *given* that one margin gets so far. The factor lies between 1/M and
1 and needs a few hundred draws, however small p is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import chdtri, chndtr, ndtri

from faultlines.core import kernels
from faultlines.core.additive import LinearTest, WeightedCells, compare, compare_within, fit_additive
from faultlines.core.comparison import NORMAL, generator
from faultlines.core.distributions import choose_unit, log_chi_square_tail
from faultlines.core.normal import CorrelatedNoise, as_comparison, top_merges
from faultlines.core.tree import build_tree, cut_tree
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import (
    MOST_ATTRIBUTES,
    Margin,
    cross_levels,
    labels_of,
    larger_margins,
    margins_of,
    nested,
    number_levels,
    refines,
)
from faultlines.estimates.validation import is_independent, own_variances
from faultlines.guarantees.base import MarginLevels
from faultlines.guarantees.joint_test import GroupEffects, JointTest, NullDistribution, calibrate, extract_effects
from faultlines.guarantees.partitions import PartitionSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from faultlines.core.additive import AdditiveFit, LevelEffects
    from faultlines.core.comparison import Comparison
    from faultlines.core.tree import Hierarchy, PartitionPath
    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.labels import Key
    from faultlines.estimates.scales import FloatArray

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
_NOISE = float(np.log(0.05))  # log p above which what an attribute leaves is not counted as variation
_MOST_TERMS = 4  # attributes up to which all divisions into terms are tried, 15 of them; of more, single ones alone
_MAIN, _FINER, _CHILD, _PARENT = 0.6, 0.1, 0.25, 0.05  # shares of the tests of "these attributes are enough"


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
    return _effects_of(_cells_of(effects).aggregate(codes))


def _cells_of(effects: GroupEffects) -> WeightedCells:
    return WeightedCells.of(*effects[:5], whole=effects.full_covariance)


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
    cells = _cells_of(effects)
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
        self.margins, self._cells = margins, _cells_of(effects)
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


# ------------------------------------------------------------------------------------------ the fewest attributes


@dataclass(eq=False)
class AttributeChoice:
    """The fewest attributes that are enough to describe the differences, at any significance level.

    A set S of attributes is enough when nothing else shows: no main effect of another attribute beside the levels of
    S, no finer margin as a whole, no single level of a finer margin within a level of S. Where S is all there is, more
    attributes are named with probability at most α.

    Attributes:
        cells: The cells; where several effects are measured together, of each effect by itself, with its part of α.
        codes: The level of each attribute, (K, A).
        margins: Their margins.
        tested: What the margins say.
    """

    cells: tuple[WeightedCells, ...]
    codes: IntArray
    margins: tuple[Margin, ...]
    tested: MarginTest
    _enough: dict[tuple[int, ...], float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, effects: Sequence[GroupEffects], codes: IntArray, margins: tuple[Margin, ...], tested: MarginTest
    ) -> AttributeChoice:
        """The choice for some cells, after their margins were tested."""
        return cls(tuple(_cells_of(each) for each in effects), codes, margins, tested)

    def at(self, alpha: float) -> tuple[int, ...]:
        """The attributes at a significance level: places in the order of the columns; none where nothing differs.

        Of sets of the same size the one whose margin has the smallest p is taken. A margin that only refines another
        one that differs by itself and is enough is not taken: of region and state, region.

        Args:
            alpha: The significance level.

        Returns:
            Places of the attributes, in rising order.
        """
        margin = self.margin_at(alpha)
        return () if margin is None else margin.attributes

    def margin_at(self, alpha: float) -> Margin | None:
        """The same as a margin; None where nothing differs."""
        if not self.margins or self.tested.log_p > np.log(alpha):
            return None
        log_p = {
            margin.attributes: float(p) for margin, p in zip(self.margins, self.tested.log_p_of_margins, strict=True)
        }
        for same in self._by_size():
            same.sort(key=lambda margin: (log_p.get(margin.attributes, 0.0), margin.levels))
            passing = [margin for margin in same if self.log_p_enough(margin) > np.log(alpha)]
            differing = [
                margin
                for margin in passing
                if margin.share > 0 and log_p[margin.attributes] <= np.log(alpha * margin.share)
            ]
            for margin in passing:
                if not any(_is_finer(margin, other) for other in differing):
                    return margin
        return self.margins[-1]

    def _by_size(self) -> Iterator[list[Margin]]:
        """Margins by their number of attributes; those of more than are tested only when they are needed."""
        yield from _group_by_size([margin for margin in self.margins if len(margin.attributes) <= MOST_ATTRIBUTES])
        yield from _group_by_size(self._larger)

    @cached_property
    def _larger(self) -> tuple[Margin, ...]:
        """Margins of more attributes than are tested: the same at every significance level."""
        return larger_margins(self.codes, self.margins)

    def log_p_enough(self, margin: Margin) -> float:
        """Log p of "the attributes of this margin are enough".

        Args:
            margin: The margin.

        Returns:
            The smallest p of the tests of everything else, each for its share; 0 for cells.
        """
        if margin.attributes not in self._enough:
            smallest = min(self._tested_enough(cells, margin) for cells in self.cells)
            self._enough[margin.attributes] = min(smallest + float(np.log(len(self.cells))), 0.0)
        return self._enough[margin.attributes]

    def _tested_enough(self, cells: WeightedCells, chosen: Margin) -> float:
        if chosen.is_cells:
            return 0.0
        others = [a for a in range(self.codes.shape[1]) if a not in chosen.attributes]
        columns = [number_levels(self.codes[:, a]) for a in others]
        columns = [column for column in columns if not refines(chosen.codes, column)]
        tests = [
            (compare(cells, [chosen.codes], [chosen.codes, column]).log_p, _MAIN / len(columns)) for column in columns
        ]
        finer = [margin.codes for margin in self.margins if _is_finer(margin, chosen)]
        for codes in finer:
            within = compare_within(cells, chosen.codes, codes)
            tests += [
                (compare(cells, [chosen.codes], [codes]).log_p, _FINER / len(finer)),
                (within.log_p_child, _CHILD / len(finer)),
                (within.log_p_parent, _PARENT / len(finer)),
            ]
        return min(0.0, *(log_p - float(np.log(share)) for log_p, share in tests))


def _group_by_size(margins: Sequence[Margin]) -> Iterator[list[Margin]]:
    for size in sorted({len(margin.attributes) for margin in margins}):
        yield [margin for margin in margins if len(margin.attributes) == size]


def _is_finer(finer: Margin, coarser: Margin) -> bool:
    return finer.levels > coarser.levels and refines(finer.codes, coarser.codes)


# ----------------------------------------------------------------------------------------------- what explains what


class AttributeShare(NamedTuple):
    """How much of the variation between groups goes with one attribute, noise taken off.

    Attributes:
        attribute: Its place; None for combinations, what additive effects of all attributes leave.
        levels: How many it has; the number of cells for combinations.
        alone: The test between its levels, nothing else looked at. For combinations, the same as `beside`.
        beside: The test of what it adds to all attributes that do not refine it.
        share: Of the variation between groups that its levels account for, 0 … 1.
        interval: 95% interval of that share.
        share_beside: The share that it adds to the others.
    """

    attribute: int | None
    levels: int
    alone: LinearTest
    beside: LinearTest
    share: float
    interval: tuple[float, float]
    share_beside: float


def explain_variation(effects: GroupEffects, codes: IntArray, confidence: float = 0.95) -> tuple[AttributeShare, ...]:
    """Test and share of each attribute, and of combinations, with fixed effects.

    Args:
        effects: The cells.
        codes: The level of each attribute, (K, A).
        confidence: Of the intervals of shares.

    Returns:
        One entry for each attribute, in their order, and one for combinations; none for fewer than two cells.

    Example:
        >>> codes = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        >>> rows = explain_variation(GroupEffects(np.array([0.0, 9.0, 0.5, 9.2]), np.ones(4), None), codes)
        >>> [round(row.share, 2) for row in rows]
        [0.0, 1.0, 0.0]
    """
    size, count = codes.shape
    if size < 2:
        return ()
    cells = _cells_of(effects)
    columns = [number_levels(codes[:, a]) for a in range(count)]
    everyone = np.arange(size, dtype=np.int64)
    additive, left = compare(cells, [], columns), compare(cells, columns, [everyone])
    alone = [compare(cells, [], [column]) for column in columns]
    variation = _variation(additive, left, alone)
    rows = []
    for a, column in enumerate(columns):
        others = [other for b, other in enumerate(columns) if b != a and not refines(other, column)]
        adjusted = compare(cells, others, [*others, column]) if others else alone[a]
        share, share_beside = (_part_of(test, variation) for test in (alone[a], adjusted))
        interval = _interval(alone[a], compare(cells, [column], [everyone]), share, confidence)
        rows.append(AttributeShare(a, int(column.max()) + 1, alone[a], adjusted, share, interval, share_beside))
    if count > 1:
        share = _part_of(left, variation)
        interval = _interval(left, additive, share, confidence)
        rows.append(AttributeShare(None, size, left, left, share, interval, share))
    return tuple(rows)


def _variation(additive: LinearTest, left: LinearTest, alone: Sequence[LinearTest]) -> float:
    """The variation between groups, noise taken off: of the attributes and of their combinations, where each shows.

    What is like noise counts as none: of many cells with faint effects it would be the larger part as often as not.
    """
    # Attributes that do not matter can have less than their noise's share of squares: not at the cost of one that does.
    shown = [test.square - test.effects for test in (additive, *alone) if test.log_p <= _NOISE]
    of_attributes = max(additive.square - additive.effects, *shown, 0.0) if shown else 0.0
    return of_attributes + (max(left.square - left.effects, 0.0) if left.log_p <= _NOISE else 0.0)


def _part_of(test: LinearTest, variation: float) -> float:
    """A debiased sum of squares as a share of the variation; 0 where it is like noise, or there is none."""
    if variation <= 0 or test.log_p > _NOISE:
        return 0.0
    return float(np.clip((test.square - test.effects) / variation, 0.0, 1.0))


def _interval(part: LinearTest, rest: LinearTest, share: float, confidence: float) -> tuple[float, float]:
    """An interval of a part's share of two independent sums of squares, noise taken off.

    The limits of both noncentralities are put together as in the MOVER method (Zou and Donner 2008): a share s is in
    the interval where (1 − s) λ_part − s λ_rest may be zero. Degrees of freedom behind the standard errors are left
    out: they stretch both sums equally.
    """
    if part.effects < 1:
        return 0.0, 0.0
    own, (low, high) = max(part.square - part.effects, 0.0), _noncentrality(part, confidence)
    other, (rest_low, rest_high) = max(rest.square - rest.effects, 0.0), _noncentrality(rest, confidence)
    low, high = min(low, own), max(high, own)
    rest_low, rest_high = min(rest_low, other), max(rest_high, other)

    def lower(s: float) -> float:
        return (1 - s) * own - s * other - float(np.hypot((1 - s) * (own - low), s * (rest_high - other)))

    def upper(s: float) -> float:
        return (1 - s) * own - s * other + float(np.hypot((1 - s) * (high - own), s * (other - rest_low)))

    return min(_zero_of(lower), share), max(_zero_of(upper), share)


def _zero_of(function: Callable[[float], float]) -> float:
    """Where a function that falls on 0 … 1 is zero; the nearer end where it is not."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return (low + high) / 2


def _noncentrality(test: LinearTest, confidence: float) -> tuple[float, float]:
    """Limits of what a sum of squares has beyond noise: those of a noncentral χ²."""
    square, effects, tail = test.square, test.effects, (1 - confidence) / 2
    if effects < 1:
        return 0.0, 0.0
    if square > 2000:  # X ~ N(r + λ, 2(r + 2λ)), which a quadratic equation inverts
        z = float(ndtri(1 - tail))
        root = np.sqrt(4 * z**4 + z**2 * max(4 * square - 2 * effects, 0.0))
        return max(square - effects + 2 * z**2 - root, 0.0), max(square - effects + 2 * z**2 + root, 0.0)

    def limit(probability: float) -> float:
        low, high = 0.0, 4 * square + 40 + 4 * effects
        if chndtr(square, effects, 0.0) <= probability:
            return 0.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if chndtr(square, effects, middle) > probability else (low, middle)
        return high

    # Less scatter than noise has is luck, and no sign that there is nothing beside it (a power-constrained limit).
    square = max(square, float(effects))
    return limit(1 - tail), limit(tail)


# -------------------------------------------------------------------------------------------- clusters along attributes

# Clusters along attributes: partitions of the levels of the fewest attributes that are enough, at any α.
#
# The p over all margins says whether anything differs; `AttributeChoice` says along which attributes. Clusters are then
# unions of levels of those attributes, and every cell has its cluster through them. Cells are clustered themselves
# where only their full crossing is enough.


@dataclass(frozen=True, eq=False)
class CellPath:
    """A path of partitions of levels, as partitions of the cells."""

    levels: MarginLevels
    hierarchy: Hierarchy  # of the cells

    @property
    def log_pvalue(self) -> float:
        """Log p of "no difference"."""
        return self.levels.path.log_pvalue

    @property
    def log_pvalues(self) -> FloatArray:
        """Log p of 2, 3, … clusters."""
        return self.levels.path.log_pvalues

    def labels(self, clusters: int) -> IntArray:
        """Cluster numbers of the cells."""
        return np.asarray(self.levels.path.labels(clusters)[self.levels.codes])

    def open_gaps(self, clusters: int) -> BoolArray:
        """Gaps of the tree of cells whose neighbors are in different clusters."""
        along = self.labels(clusters)[self.hierarchy.order]
        return np.asarray(along[1:] != along[:-1])

    def gap_pvalues(self) -> FloatArray:
        """Log p at which the cells beside each gap are first distinguished; 0 where they never are."""
        log_p = np.zeros(max(len(self.hierarchy) - 1, 0))
        for clusters in range(int(np.count_nonzero(self.log_pvalues < 0)) + 1, 1, -1):
            log_p[self.open_gaps(clusters)] = self.log_pvalues[clusters - 2]
        return log_p


class _AdditiveModel(NamedTuple):
    """Crossed attributes divided into terms whose effects add up.

    Attributes:
        blocks: Places of the attributes of each term.
        codes: The level of each term that each of the crossed levels has.
        fit: The fit.
    """

    blocks: tuple[tuple[int, ...], ...]
    codes: tuple[IntArray, ...]
    fit: AdditiveFit


@dataclass(eq=False)
class AttributePaths:
    """Which attributes the differences run along, and the partitions along them, at any significance level.

    Attributes:
        comparison: The cells.
        with_small: The cells, then small groups of rows that are pooled over some attributes; the cells alone where
            there are none.
        hierarchy: The tree of the cells.
        cell_path: Partitions of the cells themselves, the first at the p over all margins.
        choice: The fewest attributes that are enough.
        draws: Of each test; the usual number if None.
        seed: Of the draws.
        cores: How many to use.
        refine: Whether groups at a border are moved.
    """

    comparison: Comparison
    with_small: Comparison
    hierarchy: Hierarchy
    cell_path: PartitionPath
    choice: AttributeChoice
    draws: int | None
    seed: int
    cores: int | None
    refine: bool
    _levels: dict[tuple[int, ...], MarginLevels | None] = field(default_factory=dict)
    _models: dict[tuple[int, ...], list[_AdditiveModel]] = field(default_factory=dict)
    _terms: dict[tuple[tuple[int, ...], int], tuple[MarginLevels, ...]] = field(default_factory=dict)

    @property
    def test(self) -> MarginTest:
        """The test over all margins."""
        return self.choice.tested

    @property
    def log_pvalue(self) -> float:
        """Log p of "no margin differs"."""
        return self.test.log_p

    def attributes_at(self, alpha: float) -> tuple[str, ...]:
        """Names of the fewest attributes that are enough; none where nothing differs."""
        return tuple(self.comparison.attributes[a] for a in self.choice.at(alpha))

    def levels_at(self, alpha: float) -> MarginLevels | None:
        """The levels of those attributes as groups; None where nothing differs, or the cells themselves are needed."""
        margin = self.choice.margin_at(alpha)
        if margin is None:
            return None
        if margin.attributes not in self._levels:
            self._levels[margin.attributes] = None if margin.is_cells else self._build_levels(margin)
        return self._levels[margin.attributes]

    def path_at(self, alpha: float) -> PartitionPath:
        """Partitions of the cells along those attributes."""
        levels = self.levels_at(alpha)
        return self.cell_path if levels is None else CellPath(levels, self.hierarchy)

    def terms_at(self, alpha: float) -> tuple[MarginLevels, ...]:
        """The levels of each attribute, or of attributes crossed, whose effects add up; none where they do not.

        The attributes that are enough are divided into as many terms as possible such that the additive model of the
        terms is enough by itself and the levels of every term differ.
        """
        margin = self.choice.margin_at(alpha)
        if margin is None or len(margin.attributes) < 2 or has_several_effects(self.comparison):
            return ()
        levels, attributes = self.levels_at(alpha), margin.attributes
        comparison = self.comparison if levels is None else levels.comparison
        codes = np.arange(len(self.comparison)) if levels is None else levels.codes
        if attributes not in self._models:
            places = attributes if levels is None else tuple(range(len(attributes)))
            self._models[attributes] = _additive_models(comparison, places)
        for i, model in enumerate(self._models[attributes]):
            if model.fit.log_p <= np.log(alpha):
                continue
            if (attributes, i) not in self._terms:
                self._terms[attributes, i] = self._build_terms(comparison, codes, model)
            if all(term.path.log_pvalue <= np.log(alpha) for term in self._terms[attributes, i]):
                return self._terms[attributes, i]
        return ()

    def _build_terms(self, comparison: Comparison, codes: IntArray, model: _AdditiveModel) -> tuple[MarginLevels, ...]:
        terms = []
        for block, of_term, effects in zip(model.blocks, model.codes, model.fit.terms, strict=True):
            levels = _term_comparison(comparison, block, of_term, effects)
            terms.append(MarginLevels(levels.attributes, of_term[codes], levels, *self._search(levels)))
        return tuple(terms)

    def _build_levels(self, margin: Margin) -> MarginLevels:
        count = len(self.comparison)
        comparison = aggregate_comparison(self.with_small, margin, self.comparison)
        codes = margin.codes[:count]
        return MarginLevels(comparison.attributes, codes, comparison, *self._search(comparison, self.log_pvalue))

    def _search(self, comparison: Comparison, log_p: float | None = None) -> tuple[Hierarchy, PartitionPath]:
        """The tree of some levels, and partitions of them: the first at a given p, by default that of their own."""
        hierarchy, how = build_tree(comparison), (self.draws, self.seed, self.cores)
        if log_p is None:
            log_p = JointTest(extract_effects(comparison), *how).test(np.arange(len(comparison))).log_p
        return hierarchy, _search_partitions(comparison, hierarchy, log_p, *how, refine=self.refine)


def _search_partitions(
    comparison: Comparison,
    hierarchy: Hierarchy,
    log_p: float,
    draws: int | None,
    seed: int,
    cores: int | None,
    *,
    refine: bool,
) -> PartitionPath:
    """Partitions of groups, the first at a given p.

    One effect: by tests of each cluster's own groups. Several effects: by one threshold for the tree.
    """
    if not has_several_effects(comparison):
        effects = extract_effects(comparison)
        return PartitionSearch(effects, hierarchy, JointTest(effects, draws, seed, cores), log_p, refine)
    heights = hierarchy.gap_heights
    by_gap = calibrate(comparison, heights, draws or comparison.default_draws, seed, cores=cores).log_p
    by_gap = np.where(heights == heights.max(initial=0.0), log_p, np.maximum(by_gap, log_p))
    return cut_tree(comparison, hierarchy, by_gap, refine=refine)


def has_several_effects(comparison: Comparison) -> bool:
    """Whether several effects are measured together in each group."""
    return comparison.estimates is not None and comparison.estimates.dims > 1


def _additive_models(comparison: Comparison, places: tuple[int, ...]) -> list[_AdditiveModel]:
    """All divisions of some attributes into terms whose effects add up: most terms first, then the best fit."""
    estimates, count = comparison.estimates, len(comparison.attributes)
    if estimates is None:
        return []
    cells, by_attribute = _cells_of(extract_effects(comparison)), attribute_codes(comparison.keys, count)
    mix = cells.weight if estimates.n is None else estimates.n
    models = []
    divisions = _divisions(places) if len(places) <= _MOST_TERMS else [tuple((a,) for a in places)]
    for blocks in divisions:
        codes = tuple(cross_levels([by_attribute[:, a] for a in block]) for block in blocks)
        fit = fit_additive(cells, codes, mix) if len(blocks) > 1 else None
        models += [] if fit is None else [_AdditiveModel(blocks, codes, fit)]
    return sorted(models, key=lambda model: (-len(model.blocks), -model.fit.log_p))


def _divisions(places: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways to divide some attributes into blocks, each in rising order."""
    if not places:
        yield ()
        return
    first, rest = places[0], places[1:]
    for blocks in _divisions(rest):
        yield ((first,), *blocks)
        for i, block in enumerate(blocks):
            yield ((first, *block), *blocks[:i], *blocks[i + 1 :])


def _term_comparison(
    comparison: Comparison, block: tuple[int, ...], codes: IntArray, effects: LevelEffects
) -> Comparison:
    """The levels of a term as groups, with their effects at the average mix of the other terms."""
    estimates = comparison.estimates
    if estimates is None:
        raise TypeError("additive models need estimates")
    unit, center = choose_unit(estimates.own[:, 0]), estimates.values[len(estimates) // 2, 0]
    first = np.unique(codes, return_index=True)[1]
    means = effects.coefficients @ estimates.given[:, 0]
    covers_all = np.isfinite(estimates.covariance_dof)
    dof = effects.dof if np.isinf(estimates.dof_of_all) or covers_all else estimates.dof_of_all
    levels = Estimates(
        means,
        None,
        labels_of([tuple(comparison.keys[i][a] for a in block) for i in first.tolist()]),
        None if estimates.n is None else np.bincount(codes, estimates.n),
        None if covers_all else dof,
        attributes=[comparison.attributes[a] for a in block],
        natural=estimates.scale.natural(means),
        scale=estimates.scale,
        metric=estimates.metric,
        compared=effects.theta * unit + center,
        covariance=effects.covariance * unit**2,
        covariance_dof=estimates.covariance_dof if covers_all else None,
        recipe=estimates.recipe,
    )
    return as_comparison(levels, 0.0)


def attribute_paths(
    comparison: Comparison,
    hierarchy: Hierarchy,
    *,
    draws: int | None,
    seed: int,
    cores: int | None,
    refine: bool,
    tested: MarginTest | None = None,
) -> AttributePaths | None:
    """Test all margins of cells at once; None where there is nothing to compare.

    Args:
        comparison: The cells.
        hierarchy: Their tree.
        draws: Of each test; the usual number if None.
        seed: Of the draws.
        cores: How many to use; all by default.
        refine: Whether groups at a border are moved.
        tested: What the margins say, where that is known already.

    Returns:
        The attributes and the partitions along them.
    """
    codes = attribute_codes(comparison.keys, len(comparison.attributes))
    margins = margins_of(codes)
    if not margins:
        return None
    with_small, codes = add_small_groups(comparison, codes)
    count = len(comparison)
    margins = margins if len(with_small) == count else tuple(_extend(margin, codes) for margin in margins)
    parts = 1 if comparison.estimates is None else comparison.estimates.dims
    effects = [extract_effects(with_small, part) for part in range(parts)]
    if tested is None and parts == 1:
        tested = compare_margins(effects[0], margins, draws, seed, cores, count=count)
    elif tested is None:
        levels = [comparison if margin.is_cells else aggregate_comparison(comparison, margin) for margin in margins]
        tested = compare_margins_of_planes(levels, margins, draws, seed, cores)
    cell_path = _search_partitions(comparison, hierarchy, tested.log_p, draws, seed, cores, refine=refine)
    choice = AttributeChoice.of(effects, codes, margins, tested)
    return AttributePaths(comparison, with_small, hierarchy, cell_path, choice, draws, seed, cores, refine)


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


def _extend(margin: Margin, codes: IntArray) -> Margin:
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
