"""Which attributes the differences run along: the fewest that are enough, how much each explains, clusters along them.

The p over all margins says whether anything differs; `AttributeChoice` says along which attributes. Clusters are then
unions of levels of those attributes, at any significance level, and every cell has its cluster through them. Cells are
clustered themselves where only their full crossing is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import chndtr, ndtri

from faultlines.core.additive import (
    AdditiveFit,
    LevelEffects,
    LinearTest,
    WeightedCells,
    compare,
    compare_within,
    fit_additive,
)
from faultlines.core.comparison import Comparison
from faultlines.core.distributions import choose_unit
from faultlines.core.normal import as_comparison
from faultlines.core.tree import Hierarchy, PartitionPath, build_tree, cut_tree
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import (
    MOST_ATTRIBUTES,
    Margin,
    cross_levels,
    labels_of,
    larger_margins,
    margins_of,
    number_levels,
    refines,
)
from faultlines.guarantees.base import MarginLevels
from faultlines.guarantees.joint_test import GroupEffects, JointTest, calibrate, extract_effects
from faultlines.guarantees.margins import (
    MarginTest,
    add_small_groups,
    aggregate_comparison,
    attribute_codes,
    compare_margins,
    compare_margins_of_planes,
    extend_margin,
    weighted_cells,
)
from faultlines.guarantees.partitions import PartitionSearch
from faultlines.types import BoolArray, FloatArray, IntArray

_NOISE = float(np.log(0.05))  # log p above which what an attribute leaves is not counted as variation
_MOST_TERMS = 4  # attributes up to which all divisions into terms are tried, 15 of them; of more, single ones alone
_MAIN, _FINER, _CHILD, _PARENT = 0.6, 0.1, 0.25, 0.05  # shares of the tests of "these attributes are enough"


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
        return cls(tuple(weighted_cells(each) for each in effects), codes, margins, tested)

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
                if margin.share > 0 and log_p[margin.attributes] <= np.log(alpha) + np.log(margin.share)
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
    cells = weighted_cells(effects)
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
    cells, by_attribute = weighted_cells(extract_effects(comparison)), attribute_codes(comparison.keys, count)
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
    margins = margins if len(with_small) == count else tuple(extend_margin(margin, codes) for margin in margins)
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
