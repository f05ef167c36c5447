"""Clusters along attributes: partitions of the levels of the fewest attributes that are enough, at any α.

The p over all margins says whether anything differs; `AttributeChoice` says along which attributes. Clusters are then
unions of levels of those attributes, and every cell has its cluster through them. Cells are clustered themselves where
only their full crossing is enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from faultlines.core.choose import as_comparison
from faultlines.core.distributions import choose_unit
from faultlines.core.tree import build_tree
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import labels_of
from faultlines.estimates.margins import margins_of, nested
from faultlines.guarantees.base import MarginLevels
from faultlines.guarantees.joint_test import JointTest, extract_effects
from faultlines.guarantees.margins import AttributeChoice, aggregate_effects, compare_margins
from faultlines.guarantees.partitions import PartitionSearch

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from faultlines.core.comparison import Comparison
    from faultlines.core.tree import Hierarchy, PartitionPath
    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.labels import Key
    from faultlines.estimates.margins import Margin
    from faultlines.estimates.scales import FloatArray
    from faultlines.guarantees.margins import MarginTest


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


@dataclass(eq=False)
class AttributePaths:
    """Which attributes the differences run along, and the partitions along them, at any significance level.

    Attributes:
        comparison: The cells.
        hierarchy: Their tree.
        cell_path: Partitions of the cells themselves, the first at the p over all margins.
        choice: The fewest attributes that are enough.
        draws: Of each test; the usual number if None.
        seed: Of the draws.
        cores: How many to use.
        refine: Whether groups at a border are moved.
    """

    comparison: Comparison
    hierarchy: Hierarchy
    cell_path: PartitionSearch
    choice: AttributeChoice
    draws: int | None
    seed: int
    cores: int | None
    refine: bool
    _levels: dict[int, MarginLevels | None] = field(default_factory=dict)

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
        place = self.choice.margin_at(alpha)
        if place is None:
            return None
        if place not in self._levels:
            margin = self.choice.margins[place]
            self._levels[place] = None if margin.is_cells else self._build_levels(margin)
        return self._levels[place]

    def path_at(self, alpha: float) -> PartitionPath:
        """Partitions of the cells along those attributes."""
        levels = self.levels_at(alpha)
        return self.cell_path if levels is None else CellPath(levels, self.hierarchy)

    def _build_levels(self, margin: Margin) -> MarginLevels:
        comparison = aggregate_comparison(self.comparison, margin)
        hierarchy, effects = build_tree(comparison), extract_effects(comparison)
        joint_test = JointTest(effects, self.draws, self.seed, self.cores)
        path = PartitionSearch(effects, hierarchy, joint_test, self.log_pvalue, self.refine)
        names = tuple(self.comparison.attributes[a] for a in margin.attributes)
        return MarginLevels(names, margin.codes, comparison, hierarchy, path)


def attribute_paths(
    comparison: Comparison,
    hierarchy: Hierarchy,
    *,
    draws: int | None,
    seed: int,
    cores: int | None,
    refine: bool,
) -> AttributePaths | None:
    """Test all margins of cells at once; None where there is one margin only.

    Args:
        comparison: The cells, with one effect each.
        hierarchy: Their tree.
        draws: Of each test; the usual number if None.
        seed: Of the draws.
        cores: How many to use; all by default.
        refine: Whether groups at a border are moved.

    Returns:
        The attributes and the partitions along them.
    """
    codes = attribute_codes(comparison.keys, len(comparison.attributes))
    margins = margins_of(codes)
    if len(margins) < 2:
        return None
    effects = extract_effects(comparison)
    tested = compare_margins(effects, margins, draws, seed, cores)
    joint_test = JointTest(effects, draws, seed, cores)
    cell_path = PartitionSearch(effects, hierarchy, joint_test, tested.log_p, refine)
    choice = AttributeChoice.of(effects, codes, margins, tested)
    return AttributePaths(comparison, hierarchy, cell_path, choice, draws, seed, cores, refine)


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


def aggregate_comparison(comparison: Comparison, margin: Margin) -> Comparison:
    """The levels of a margin as groups of their own, with precision-weighted means of their cells."""
    estimates = comparison.estimates
    if estimates is None:
        raise TypeError("margins need estimates")
    theta, se = estimates.values[:, 0], estimates.own[:, 0]
    unit, center = choose_unit(se), theta[theta.size // 2]  # those of `extract_effects`
    levels = aggregate_effects(extract_effects(comparison), margin.codes)
    first = np.unique(margin.codes, return_index=True)[1]
    keys = [tuple(comparison.keys[i][a] for a in margin.attributes) for i in first.tolist()]
    weight = (se.min() / se) ** 2
    total = np.bincount(margin.codes, weight)
    # What is shown is the mean of what was estimated; what is compared may have been made more normal.
    shown = np.bincount(margin.codes, weight * (estimates.given[:, 0] - center)) / total + center
    sizes = None if estimates.n is None else np.bincount(margin.codes, estimates.n)
    covariance = None if levels.covariance is None else levels.covariance * unit**2
    has_one_dof = covariance is not None and np.isfinite(levels.common_dof)
    dof = float(levels.common_dof) if has_one_dof and not levels.full_covariance else levels.dof
    aggregated = Estimates(
        shown,
        None if covariance is not None else levels.se * unit,
        labels_of(keys),
        sizes,
        dof,
        attributes=[comparison.attributes[a] for a in margin.attributes],
        natural=estimates.scale.natural(shown),
        scale=estimates.scale,
        metric=estimates.metric,
        compared=levels.theta * unit + center,
        covariance=covariance,
        covariance_dof=levels.common_dof if levels.full_covariance and covariance is not None else None,
        recipe=estimates.recipe,
    )
    return as_comparison(aggregated, 0.0)
