"""Algorithms 1 and 2 without their stopping rule: the whole tree of merges.

The paper stops merging once every remaining pair differs. On a line merge heights never fall, so stopping early and
cutting the finished tree give the same clusters; the tree is therefore built once, in the time it takes to sort, and
answers every level of significance. In several dimensions, and for tests of other kinds, heights can fall a little;
there a merge counts as high as the highest one before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines.comparison import kernels
from faultlines.comparison.base import Merges, laid_out, ranks
from faultlines.comparison.choose import comparison_of
from faultlines.errors import InputError

if TYPE_CHECKING:
    from faultlines.comparison.base import Comparison
    from faultlines.estimates.estimates import BoolArray, Estimates, IntArray
    from faultlines.estimates.scales import FloatArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hierarchy:
    """The tree of merges, kept as a line: every cluster of the tree is a run of neighbouring places.

    Attributes:
        order: The group that stands at each of the K places; on one dimension, groups by rising estimate.
        gap_heights: For each of the K − 1 gaps between neighbouring places, the height at which it closes. For
            estimates that is the likelihood ratio LR = (θ_a − θ_b)² w_a w_b / (w_a + w_b) of the two clusters that
            merge there, for a Similarity −log p; or that of an earlier merge, if one was higher.
        ranks: Which merge closes each gap, 0 for the first. Left out where heights say so.

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
    def of(cls, merges: Merges) -> Hierarchy:
        """The tree of some merges.

        Args:
            merges: All merges of a comparison, laid out along a line.

        Returns:
            The tree.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 5.0, 0.1], [0.5, 0.5, 0.5], ["DE", "IN", "FR"]))
            >>> len(fl.Hierarchy.of(found.groups.merges()))
            3
        """
        for array in merges:
            if array is not None:
                array.setflags(write=False)
        return cls(*merges)

    @classmethod
    def grown(cls, merges: IntArray, heights: FloatArray) -> Hierarchy:
        """The tree of merges in scipy's numbering, in the order in which they are made.

        Args:
            merges: The two clusters of each merge; group i is cluster i, the t-th merge makes K + t.
            heights: Their heights.

        Returns:
            The tree.

        Example:
            >>> import faultlines as fl, numpy as np
            >>> fl.Hierarchy.grown(np.array([[0, 2], [1, 3]]), np.array([0.02, 65.0]))
            Hierarchy(3 groups, highest merge 65)
        """
        return cls.of(laid_out(merges, heights))

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
        return self._linked()[0]

    def to_linkage(self) -> FloatArray:
        """The tree in the form `scipy.cluster.hierarchy` works with (heights are likelihood ratios).

        Returns:
            One row per merge: the two clusters, the height, the number of groups.

        Raises:
            InputError: If there is only one group.
        """
        if len(self) < 2:
            raise InputError("Hierarchy of one group", "has no merges to link", "A dendrogram needs two groups.")
        merges, heights, sizes = self._linked()
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

    def _linked(self) -> tuple[IntArray, FloatArray, IntArray]:
        gaps = self.merge_order()
        merges = np.empty((gaps.size, 2), dtype=np.int64)
        sizes = np.empty(gaps.size, dtype=np.int64)
        kernels.link(self.order, gaps, merges, sizes)
        return merges, self.gap_heights[gaps], sizes


def agglomerate(estimates: Estimates | Comparison, *, tolerance: float = 0.0) -> Hierarchy:
    """Merge the two most similar clusters, again and again, until one is left (the paper's Algorithms 1 and 2).

    For estimates, similarity is the likelihood ratio of "same effect" (the paper's equation for LR^(b)). In one
    dimension the most similar pair always stands side by side, so sorting and one walk along the line give the same
    merges as its O(K²) search. Otherwise every cluster remembers its nearest neighbour: O(K²).

    Args:
        estimates: The groups: `Estimates`, or a `Similarity`.
        tolerance: Take effects as alike that are at most so far apart, in the units of the metric.

    Returns:
        The whole tree.

    Raises:
        InputError: If something else is given, or a tolerance that has no meaning.

    Example:
        >>> import faultlines as fl
        >>> fl.agglomerate(fl.Estimates([0.0, 0.1, 5.0], [1.0, 1.0, 1.0])).merges.tolist()
        [[0, 1], [2, 3]]
    """
    return tree_of(comparison_of(estimates, tolerance))


def tree_of(comparison: Comparison) -> Hierarchy:
    """The tree of a comparison."""
    return Hierarchy.of(comparison.merges())
