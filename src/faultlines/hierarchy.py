"""Algorithm 2 without its stopping rule: the whole tree of merges, in the time it takes to sort.

The paper stops merging once every remaining pair differs. Merge heights never fall, so stopping early and cutting the
finished tree give the same clusters; the tree is therefore built once and answers every level of significance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines import _walk
from faultlines.errors import InputError
from faultlines.estimates import Estimates

if TYPE_CHECKING:
    import numpy.typing as npt

    from faultlines.estimates import FloatArray

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hierarchy:
    """The tree of merges, kept as a line: every cluster of the tree is a run of neighbouring places.

    Attributes:
        order: The group that stands at each of the K places; on one dimension, groups by rising estimate.
        gap_heights: For each of the K − 1 gaps between neighbouring places, the height at which it closes: the
            likelihood ratio LR = (θ_a − θ_b)² w_a w_b / (w_a + w_b) of the two clusters that merge there.
    """

    order: IntArray
    gap_heights: FloatArray

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
        """The tree in the form `scipy.cluster.hierarchy` works with (heights are likelihood ratios)."""
        if len(self) < 2:
            raise InputError("Hierarchy of one group", "has no merges to link", "A dendrogram needs two groups.")
        merges, heights, sizes = self._linked()
        return np.column_stack([merges, heights, sizes]).astype(np.float64)

    def places(self, open_gaps: npt.NDArray[np.bool_]) -> IntArray:
        """The first place of every cluster when the given gaps stay open."""
        return np.concatenate(([0], np.flatnonzero(open_gaps) + 1)).astype(np.int64)

    def labels(self, starts: IntArray) -> IntArray:
        """Cluster numbers 1 … m of the K groups, for clusters that start at the given places."""
        at_place = np.zeros(len(self), dtype=np.int64)
        at_place[starts] = 1
        labels = np.empty(len(self), dtype=np.int64)
        labels[self.order] = np.cumsum(at_place)
        return labels

    def _linked(self) -> tuple[IntArray, FloatArray, IntArray]:
        gaps = np.argsort(self.gap_heights, kind="stable").astype(np.int64)
        merges = np.empty((gaps.size, 2), dtype=np.int64)
        sizes = np.empty(gaps.size, dtype=np.int64)
        _walk.link(self.order, gaps, merges, sizes)
        return merges, self.gap_heights[gaps], sizes


def line(estimates: Estimates) -> tuple[IntArray, FloatArray, FloatArray]:
    """Order, estimates and weights 1/se² along the line, shifted and scaled to where doubles are most precise.

    Neither changes a likelihood ratio. The shift takes a middle estimate to zero, so that θ near 1e9 keeps its
    digits; the scale is a power of two, so that it is exact, and keeps weights far from overflow.
    """
    order = np.argsort(estimates.theta).astype(np.int64, copy=False)
    theta = estimates.theta[order]
    if np.any(theta[1:] == theta[:-1]):  # ties in an order that does not depend on the machine's sort
        order = np.lexsort((estimates.se, estimates.theta)).astype(np.int64, copy=False)
    se = estimates.se[order]
    unit = 2.0 ** np.round((np.log2(se.min()) + np.log2(se.max())) / 2)
    theta -= theta[theta.size // 2]
    theta /= unit
    se /= unit
    np.multiply(se, se, out=se)
    np.divide(1.0, se, out=se)
    return order, theta, se


def agglomerate(estimates: Estimates) -> Hierarchy:
    """Merge the two most similar clusters, again and again, until one is left (the paper's Algorithm 2).

    Similarity is the likelihood ratio of "same effect" (its equation for LR^(b)). In one dimension the most similar
    pair always stands side by side, so sorting and one walk along the line give the same merges as its O(K²) search.
    """
    if not isinstance(estimates, Estimates):
        raise InputError(f"estimates={type(estimates).__name__}", "is not an Estimates", "Make one with fl.Estimates.")
    if estimates.theta.ndim > 1:
        raise InputError(
            f"estimates of {estimates.theta.shape[1]} things at once ({estimates.measure})",
            "cannot be clustered yet",
            "Cluster each of them on its own.",
        )
    order, theta, weight = line(estimates)
    heights = np.empty(theta.size - 1)
    _walk.merge_line(theta, weight, heights)
    order.setflags(write=False)
    heights.setflags(write=False)
    return Hierarchy(order, heights)
