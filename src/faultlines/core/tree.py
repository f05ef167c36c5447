"""Algorithms 1 and 2 without their stopping rule: the whole tree of merges.

The paper stops merging once every remaining pair differs. On a line merge heights never fall, so stopping early and
cutting the finished tree give the same clusters; the tree is therefore built once, in the time it takes to sort, and
answers every level of significance. In several dimensions, and for tests of other kinds, heights can fall a little;
there a merge counts as high as the highest one before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from faultlines.core import kernels
from faultlines.core.comparison import Comparison, Merges, lay_out, ranks
from faultlines.core.normal import as_comparison
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.types import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hierarchy:
    """The tree of merges, kept as a line: every cluster of the tree is a run of neighboring places.

    Attributes:
        order: The group that stands at each of the K places; on one dimension, groups by rising estimate.
        gap_heights: For each of the K − 1 gaps between neighboring places, the height at which it closes. For
            estimates that is the likelihood ratio LR = (θ_a − θ_b)² w_a w_b / (w_a + w_b) of the two clusters that
            merge there, for a Similarity −log p; or that of an earlier merge, if one was higher.
        ranks: Which merge closes each gap, 0 for the first. Omitted where heights say so.

    Example:
        >>> import faultlines as fl
        >>> tree = fl.agglomerate(fl.Estimates([0.0, 5.0, 0.1], [0.5, 0.5, 0.5], ["DE", "IN", "FR"]))
        >>> tree.order.tolist(), tree.heights.round(2).tolist(), tree.merges.tolist()
        ([0, 2, 1], [0.02, 65.34], [[0, 2], [1, 3]])
        >>> tree.merge_order().tolist(), tree.merge_rank().tolist()
        ([0, 1], [0, 1])
        >>> tree.labels(tree.starts(tree.gap_heights > 1)).tolist()
        [1, 2, 1]
        >>> tree.to_linkage().round(2).tolist()
        [[0.0, 2.0, 0.02, 2.0], [1.0, 3.0, 65.34, 3.0]]
    """

    order: IntArray
    gap_heights: FloatArray
    ranks: IntArray | None = None

    @classmethod
    def from_merges(cls, merges: Merges) -> Hierarchy:
        """The tree of some merges.

        Args:
            merges: All merges of a comparison, laid out along a line.

        Returns:
            The tree.

        Example:
            >>> import faultlines as fl
            >>> from faultlines import results
            >>> found = fl.cluster(fl.Estimates([0.0, 5.0, 0.1], [0.5, 0.5, 0.5], ["DE", "IN", "FR"]))
            >>> len(results.Hierarchy.from_merges(found.groups.merges()))
            3
        """
        for array in merges:
            if array is not None:
                array.setflags(write=False)
        return cls(*merges)

    @classmethod
    def from_linkage(cls, merges: IntArray, heights: FloatArray) -> Hierarchy:
        """The tree of merges in scipy's numbering, in the order in which they are made.

        Args:
            merges: The two clusters of each merge; group i is cluster i, the t-th merge makes K + t.
            heights: Their heights.

        Returns:
            The tree.

        Example:
            >>> import numpy as np
            >>> from faultlines import results
            >>> results.Hierarchy.from_linkage(np.array([[0, 2], [1, 3]]), np.array([0.02, 65.0]))
            Hierarchy(3 groups, highest merge 65)
        """
        return cls.from_merges(lay_out(merges, heights))

    def __len__(self) -> int:
        return int(self.order.size)

    def __repr__(self) -> str:
        top = f", highest merge {self.gap_heights.max():.4g}" if self.gap_heights.size else ""
        return f"Hierarchy({len(self)} groups{top})"

    @property
    def heights(self) -> FloatArray:
        """The K − 1 merge heights, rising."""
        return np.sort(self.gap_heights)

    @property
    def merges(self) -> IntArray:
        """The two clusters of each merge, by rising height; group i is cluster i, the t-th merge makes K + t."""
        return self._link()[0]

    def to_linkage(self) -> FloatArray:
        """The tree in the form `scipy.cluster.hierarchy` works with (heights are likelihood ratios).

        Returns:
            One row per merge: the two clusters, the height, the number of groups.

        Raises:
            InputError: If there is only one group.
        """
        if len(self) < 2:
            raise InputError.too_few(
                "hierarchy", "has no merges to link", "A dendrogram needs two groups.", place="of one group"
            )
        merges, heights, sizes = self._link()
        return np.column_stack([merges, heights, sizes]).astype(np.float64)

    def starts(self, open_gaps: BoolArray) -> IntArray:
        """The first place of every cluster when the given gaps stay open.

        Args:
            open_gaps: K − 1 truth values, one per gap.

        Returns:
            The places, rising.
        """
        return np.concatenate(([0], np.flatnonzero(open_gaps) + 1)).astype(np.int64)

    def labels(self, starts: IntArray) -> IntArray:
        """Cluster numbers 1 … m of the K groups, for clusters that start at the given places.

        Args:
            starts: The first place of every cluster, rising.

        Returns:
            A number for each group, in the order of the estimates.
        """
        at_place = np.zeros(len(self), dtype=np.int64)
        at_place[starts] = 1
        labels = np.empty(len(self), dtype=np.int64)
        labels[self.order] = np.cumsum(at_place)
        return labels

    def merge_order(self) -> IntArray:
        """The gaps in the order in which merges close them.

        Returns:
            The K − 1 gaps by their places.
        """
        by = self.gap_heights if self.ranks is None else self.ranks
        return np.argsort(by, kind="stable").astype(np.int64)

    def merge_rank(self) -> IntArray:
        """Which merge closes each gap, 0 for the first.

        Returns:
            K − 1 numbers, one per gap.
        """
        return self.ranks if self.ranks is not None else ranks(self.gap_heights)

    def _link(self) -> tuple[IntArray, FloatArray, IntArray]:
        gaps = self.merge_order()
        merges = np.empty((gaps.size, 2), dtype=np.int64)
        sizes = np.empty(gaps.size, dtype=np.int64)
        kernels.link_merges(self.order, gaps, merges, sizes)
        return merges, self.gap_heights[gaps], sizes


def agglomerate(estimates: Estimates | Comparison, *, tolerance: float = 0.0) -> Hierarchy:
    """Merge the two most similar clusters, again and again, until one is left (the paper's Algorithms 1 and 2).

    For estimates, similarity is the likelihood ratio of "same effect" (the paper's equation for LR^(b)). In one
    dimension the most similar pair always stands side by side, so sorting and one walk along the line give the same
    merges as its O(K²) search. Otherwise every cluster remembers its nearest neighbor: O(K²).

    Args:
        estimates: The groups: `Estimates`, or a `Similarity`.
        tolerance: Treat effects as equal that are at most so far apart, in the units of the metric.

    Returns:
        The whole tree.

    Raises:
        InputError: If something else is given, or a tolerance that has no meaning.

    Example:
        >>> import faultlines as fl
        >>> fl.agglomerate(fl.Estimates([0.0, 0.1, 5.0], [1.0, 1.0, 1.0])).merges.tolist()
        [[0, 1], [2, 3]]
    """
    return build_tree(as_comparison(estimates, tolerance))


def build_tree(comparison: Comparison) -> Hierarchy:
    """The tree of a comparison."""
    return Hierarchy.from_merges(comparison.merges())


# ---------- A result is a path of partitions: m = 1, 2, … clusters, each with the p at which it appears.


class PartitionPath(Protocol):
    """PartitionSearch from one cluster to many."""

    @property
    def log_pvalue(self) -> float:
        """Log of the p at which there is more than one cluster; 0 where there never is."""

    @property
    def log_pvalues(self) -> FloatArray:
        """Log of the p at which the partition into 2, 3, … clusters appears, never falling."""

    def labels(self, clusters: int) -> IntArray:
        """Cluster numbers 1 … m of the groups in the partition into m clusters."""

    def open_gaps(self, clusters: int) -> BoolArray:
        """Which gaps of the tree lie between clusters of that partition, before groups at the borders are moved."""

    def gap_pvalues(self) -> FloatArray:
        """Log p of every gap of the tree."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeCuts:
    """The partitions one gets by cutting a tree at its least plausible merges, one after the other; see `cut_tree`.

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
        return self.comparison.refine(cut - 1) + 1 if self.refine and clusters > 1 else cut

    def open_gaps(self, clusters: int) -> BoolArray:
        """The gaps with the smallest p, one fewer than there are clusters."""
        is_open = np.zeros(self.by_gap.size, dtype=bool)
        is_open[self.ranked[: clusters - 1]] = True
        return is_open

    def gap_pvalues(self) -> FloatArray:
        """Log p of every gap."""
        return self.by_gap


def cut_tree(comparison: Comparison, hierarchy: Hierarchy, by_gap: FloatArray, *, refine: bool) -> TreeCuts:
    """The path through a tree whose merges have these adjusted log p.

    Equal p are ordered by height, so that every partition is a cut of the tree.
    """
    ranked = np.lexsort((-hierarchy.merge_rank(), by_gap)).astype(np.int64)
    log_p = np.maximum.accumulate(by_gap[ranked]) if by_gap.size else np.empty(0)
    for array in (by_gap, ranked, log_p):
        array.setflags(write=False)
    return TreeCuts(comparison, hierarchy, by_gap, ranked, log_p, refine)


def count_clusters(path: PartitionPath, log_alpha: float) -> int:
    """How many a difference is reported at a level."""
    if path.log_pvalue >= log_alpha:
        return 1
    return 1 + int(np.searchsorted(path.log_pvalues, log_alpha))
