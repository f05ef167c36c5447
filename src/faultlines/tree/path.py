"""A result is a path of partitions: m = 1, 2, … clusters, each with the p at which it appears."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from faultlines.comparison.base import Comparison
    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.tree.hierarchy import Hierarchy


class Path(Protocol):
    """Partitions from one cluster to many."""

    @property
    def log_pvalue(self) -> float:
        """Log of the p at which there is more than one cluster; 0 where there never is."""

    @property
    def log_pvalues(self) -> FloatArray:
        """Log of the p at which the partition into 2, 3, … clusters appears, never falling."""

    def labels(self, clusters: int) -> IntArray:
        """Cluster numbers 1 … m of the groups in the partition into so many clusters."""

    def open_gaps(self, clusters: int) -> BoolArray:
        """Which gaps of the tree lie between clusters of that partition, before groups at the borders are moved."""

    def gap_pvalues(self) -> FloatArray:
        """Log p of every gap of the tree."""


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """The partitions one gets by cutting a tree at its least plausible merges, one after the other; see `cuts`.

    Attributes:
        comparison: The groups the tree was built from.
        hierarchy: Their tree.
        by_gap: Adjusted log p of the merge that closes each gap.
        ranked: Gaps from the smallest p on.
        log_pvalues: Log of the p at which the partition into 2, 3, … clusters appears.
        refine: Whether groups at a border are moved to the cluster of nearest effect.
    """

    comparison: Comparison
    hierarchy: Hierarchy
    by_gap: FloatArray
    ranked: IntArray
    log_pvalues: FloatArray
    refine: bool

    @property
    def log_pvalue(self) -> float:
        """Log of the smallest p."""
        return float(self.log_pvalues.min(initial=0.0))

    def labels(self, clusters: int) -> IntArray:
        """Cluster numbers of the groups; borders moved, if asked for."""
        cut = self.hierarchy.labels(self.hierarchy.starts(self.open_gaps(clusters)))
        return self.comparison.refined(cut - 1) + 1 if self.refine and clusters > 1 else cut

    def open_gaps(self, clusters: int) -> BoolArray:
        """The gaps with the smallest p, one fewer than there are clusters."""
        is_open = np.zeros(self.by_gap.size, dtype=bool)
        is_open[self.ranked[: clusters - 1]] = True
        return is_open

    def gap_pvalues(self) -> FloatArray:
        """Log p of every gap."""
        return self.by_gap


def cuts(comparison: Comparison, hierarchy: Hierarchy, by_gap: FloatArray, *, refine: bool) -> Cuts:
    """The path through a tree whose merges have these adjusted log p.

    Equal p are told apart by height, so that every partition is a cut of the tree.
    """
    ranked = np.lexsort((-hierarchy.merge_rank(), by_gap)).astype(np.int64)
    log_p = np.maximum.accumulate(by_gap[ranked]) if by_gap.size else np.empty(0)
    for array in (by_gap, ranked, log_p):
        array.setflags(write=False)
    return Cuts(comparison, hierarchy, by_gap, ranked, log_p, refine)


def clusters_at(path: Path, log_alpha: float) -> int:
    """How many clusters are claimed at a level."""
    if path.log_pvalue >= log_alpha:
        return 1
    return 1 + int(np.searchsorted(path.log_pvalues, log_alpha))
