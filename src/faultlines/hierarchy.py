"""Algorithms 1 and 2 without their stopping rule: the whole tree of merges.

The paper stops merging once every remaining pair differs. On a line merge heights never fall, so stopping early and
cutting the finished tree give the same clusters; the tree is therefore built once, in the time it takes to sort, and
answers every level of significance. In several dimensions, and for tests of other kinds, heights can fall a little;
there a merge counts as high as the highest one before it.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines import _walk
from faultlines.errors import InputError
from faultlines.estimates import Estimates
from faultlines.progress import progress
from faultlines.similarity import (
    BINOMIAL,
    CORRELATED,
    PLANE,
    POISSON,
    WELCH,
    WITHIN,
    WITHIN_RATES,
    Gaussian,
    Similarity,
    checked_tolerance,
    welch_state,
)
from faultlines.tails import log_chi_square_1_tail

if TYPE_CHECKING:
    import numpy.typing as npt

    from faultlines.estimates import FloatArray
    from faultlines.similarity import IntArray, Notion


def ranks(values: FloatArray) -> IntArray:
    """The rank of every value, 0 for the least; equal ones in their order."""
    made = np.empty(values.size, dtype=np.int64)
    made[np.argsort(values, kind="stable")] = np.arange(values.size)
    return made


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Hierarchy:
    """The tree of merges, kept as a line: every cluster of the tree is a run of neighbouring places.

    Attributes:
        order: The group that stands at each of the K places; on one dimension, groups by rising estimate.
        gap_heights: For each of the K − 1 gaps between neighbouring places, the height at which it closes. For
            estimates that is the likelihood ratio LR = (θ_a − θ_b)² w_a w_b / (w_a + w_b) of the two clusters that
            merge there, for a Similarity −log p; or that of an earlier merge, if one was higher.
        steps: At which merge each gap closes, 0 first. Left out where heights say so.
    """

    order: IntArray
    gap_heights: FloatArray
    steps: IntArray | None = None

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

    def closing(self) -> IntArray:
        """The gaps in the order in which they close."""
        by = self.gap_heights if self.steps is None else self.steps
        return np.argsort(by, kind="stable").astype(np.int64)

    def closes(self) -> IntArray:
        """At which merge each gap closes, 0 first."""
        return self.steps if self.steps is not None else ranks(self.gap_heights)

    def _linked(self) -> tuple[IntArray, FloatArray, IntArray]:
        gaps = self.closing()
        merges = np.empty((gaps.size, 2), dtype=np.int64)
        sizes = np.empty(gaps.size, dtype=np.int64)
        _walk.link(self.order, gaps, merges, sizes)
        return merges, self.gap_heights[gaps], sizes


def line(estimates: Estimates, *, keep_zero: bool = False) -> tuple[IntArray, FloatArray, FloatArray, float]:
    """Order, estimates and weights 1/se² along the line, shifted and scaled to where doubles are most precise.

    Neither changes a likelihood ratio. The shift takes a middle estimate to zero, so that θ near 1e9 keeps its
    digits; the scale is a power of two, so that it is exact, and keeps weights far from overflow. It comes last.
    With `keep_zero` there is neither, for scales on which a place has a meaning.
    """
    order = np.argsort(estimates.theta).astype(np.int64, copy=False)
    theta = estimates.theta[order]
    if np.any(theta[1:] == theta[:-1]):  # ties in an order that does not depend on the machine's sort
        order = np.lexsort((estimates.se, estimates.theta)).astype(np.int64, copy=False)
    se = estimates.se[order]
    unit = 1.0 if keep_zero else _unit(se)
    theta -= 0.0 if keep_zero else theta[theta.size // 2]
    theta /= unit
    se /= unit
    np.multiply(se, se, out=se)
    np.divide(1.0, se, out=se)
    return order, theta, se, unit


def _unit(se: FloatArray) -> float:
    """A power of two in the middle of the standard errors: to divide by it is exact."""
    return float(2.0 ** np.round((np.log2(se.min()) + np.log2(se.max())) / 2))


def notion_of(data: Estimates | Notion, tolerance: float = 0.0) -> Notion:
    """What makes groups similar: equal effects for estimates, what it says for a Similarity."""
    if isinstance(data, Estimates):
        return Gaussian(data, checked_tolerance(tolerance, data))
    if isinstance(data, Similarity) and tolerance != 0:
        raise InputError(
            f"tolerance={tolerance}", "goes with estimates", "Let the test of the Similarity allow for it."
        )
    if isinstance(data, Gaussian | Similarity):
        return data
    raise InputError(f"estimates={type(data).__name__}", "is not an Estimates", "Make one with fl.Estimates.")


def agglomerate(estimates: Estimates | Notion, *, tolerance: float = 0.0) -> Hierarchy:
    """Merge the two most similar clusters, again and again, until one is left (the paper's Algorithms 1 and 2).

    For estimates, similarity is the likelihood ratio of "same effect" (the paper's equation for LR^(b)). In one
    dimension the most similar pair always stands side by side, so sorting and one walk along the line give the same
    merges as its O(K²) search. Otherwise every cluster remembers its nearest neighbour: O(K²).

    Args:
        estimates: The groups: `Estimates`, or a `Similarity`.
        tolerance: Take effects as alike that are at most so far apart, in the units of the metric.
    """
    notion = notion_of(estimates, tolerance)
    if isinstance(notion, Gaussian) and notion.estimates.dims == 1:
        return _on_a_line(notion)
    if isinstance(notion, Gaussian):
        kind, state = plane_state(notion.estimates)
        return grown(*_merged(kind, state))
    if isinstance(notion, Similarity):
        return _by_test(notion)
    raise TypeError(type(notion))


def _on_a_line(notion: Gaussian) -> Hierarchy:
    kind = notion.line_kernel
    order, theta, weight, unit = line(notion.estimates, keep_zero=kind == WITHIN_RATES)
    heights = np.empty(theta.size - 1)
    _walk.merge_line(theta, weight, heights, kind, notion.tolerance / (unit if kind == WITHIN else 1.0))
    if notion.tolerance == 0:
        return _frozen(order, heights)
    return _frozen(order, np.maximum(heights, 0.0), ranks(heights))


def plane_state(estimates: Estimates) -> tuple[int, FloatArray]:
    """Several dimensions as the kernels take them, shifted and scaled to where doubles are most precise."""
    unit = _unit(estimates.se)
    theta = ((estimates.theta - estimates.theta[len(estimates) // 2]) / unit).T
    if estimates.cov is None:
        return PLANE, np.ascontiguousarray(np.vstack([theta, (unit / estimates.se.T) ** 2]))
    return CORRELATED, correlated_state(theta, estimates.cov / unit**2)


def correlated_state(theta: FloatArray, cov: FloatArray) -> FloatArray:
    """Means (d, K), precision matrices and covariances of K groups, one below the other."""
    groups = len(cov)
    precision = np.linalg.inv(cov)
    return np.ascontiguousarray(np.vstack([theta, precision.reshape(groups, -1).T, cov.reshape(groups, -1).T]))


def _merged(kind: int, state: FloatArray) -> tuple[IntArray, FloatArray]:
    merges = np.empty((state.shape[1] - 1, 2), dtype=np.int64)
    heights = np.empty(state.shape[1] - 1)
    _walk.merge_plane(kind, state, merges, heights)
    return merges, heights


def _by_test(similarity: Similarity) -> Hierarchy:
    """Algorithm 1: compiled for the notions that come along, with the user's own function for any other."""
    s = similarity.statistics
    if similarity.kernel in {BINOMIAL, POISSON}:
        order = np.lexsort((s[:, 1], s[:, 0] / s[:, 1])).astype(np.int64)
        heights = np.empty(len(s) - 1)
        _walk.merge_line((s[:, 0] / s[:, 1])[order], s[order, 1], heights, int(similarity.kernel or 0))
        return _frozen(order, -log_chi_square_1_tail(heights))
    if similarity.kernel == WELCH:
        return grown(*_merged(WELCH, welch_state(s)))
    return grown(*merged_by_test(similarity, s, shown=True))


def merged_by_test(similarity: Similarity, statistics: FloatArray, *, shown: bool) -> tuple[IntArray, FloatArray]:
    """Merges, in scipy's numbering, and −log p of each: every cluster remembers the most similar one after it.

    A memory goes stale when what it points at is merged away; its p stays an upper bound, because every new cluster is
    compared with it, so it is looked up again only when it comes up as the largest of all.
    """
    size = len(statistics)
    s = np.array(statistics)
    number, near, nearest = np.arange(size), np.full(size, -np.inf), np.full(size, -1)
    alive = np.ones(size, dtype=bool)
    merges, heights = np.empty((size - 1, 2), dtype=np.int64), np.empty(size - 1)

    def look(i: int) -> None:
        others = i + 1 + np.flatnonzero(alive[i + 1 :])
        near[i], nearest[i] = -np.inf, -1
        if others.size:
            log_p = similarity.log_pvalues(s[i], s[others])
            best = int(np.argmax(log_p))
            near[i], nearest[i] = log_p[best], others[best]

    with progress("comparing groups", 2 * size) if shown else nullcontext(lambda _: None) as advance:
        for i in range(size):
            look(i)
            advance(1)
        for step in range(size - 1):
            while nearest[a := int(np.argmax(near))] < 0:
                look(a)
            b = int(nearest[a])
            merges[step], heights[step] = sorted((number[a], number[b])), -near[a]
            s[b] += s[a]
            alive[a], near[a], number[b] = False, -np.inf, size + step
            others = np.flatnonzero(alive)
            others = others[others != b]
            near[b], nearest[b] = -np.inf, -1
            if others.size:
                log_p = similarity.log_pvalues(s[b], s[others])
                before = others < b
                closer = before & (log_p > near[others])
                near[others[closer]], nearest[others[closer]] = log_p[closer], b
                stale = others[before & ~closer & np.isin(nearest[others], (a, b))]
                nearest[stale] = -1
                if (~before).any():
                    best = int(np.argmax(np.where(before, -np.inf, log_p)))
                    near[b], nearest[b] = log_p[best], others[best]
            advance(1)
    return merges, heights


def grown(merges: IntArray, heights: FloatArray) -> Hierarchy:
    """A tree from merges in scipy's numbering: laid out so that clusters are runs of places, heights not falling."""
    size = len(merges) + 1
    order, gaps = np.empty(size, dtype=np.int64), np.empty(size - 1, dtype=np.int64)
    _walk.unfold(merges, order, gaps)
    gap_heights, steps = np.empty(size - 1), np.empty(size - 1, dtype=np.int64)
    gap_heights[gaps] = np.maximum.accumulate(heights) if size > 1 else heights
    steps[gaps] = np.arange(size - 1)
    return _frozen(order, gap_heights, steps)


def _frozen(order: IntArray, heights: FloatArray, steps: IntArray | None = None) -> Hierarchy:
    for array in (order, heights, steps):
        if array is not None:
            array.setflags(write=False)
    return Hierarchy(order, heights, steps)


# ------------------------------------------------------------------------------------------------ from tree to clusters


def partition(notion: Notion, hierarchy: Hierarchy, is_open: npt.NDArray[np.bool_], *, refine: bool) -> IntArray:
    """Cluster numbers 1 … m of the groups when the given gaps stay open.

    With `refine`, greedy merging's mistakes at the borders are mended: each group goes to the cluster of nearest
    estimate, the estimates are computed again, and so on until nothing moves. The number of clusters stays.
    """
    starts = hierarchy.places(is_open)
    estimates = notion.estimates
    if not refine or estimates is None or starts.size < 2:
        return hierarchy.labels(starts)
    if estimates.dims == 1 and np.all(np.diff(estimates.theta[hierarchy.order]) >= 0):
        return hierarchy.labels(refined_line(estimates, hierarchy.order, starts))
    return _refined(Gaussian(estimates), hierarchy.labels(starts) - 1) + 1


def refined_line(estimates: Estimates, order: IntArray, starts: IntArray) -> IntArray:
    """Clusters stay runs of neighbouring places, so only their starts move.

    Each round brings the groups' weighted squared distance to their clusters down, so it ends; a round that would
    empty a cluster is not taken.
    """
    theta = estimates.theta[order] - estimates.theta[order[order.size // 2]]  # less a middle one, for its digits
    weight = (estimates.se.min() / estimates.se[order]) ** 2
    for _ in range(theta.size):
        mass = np.add.reduceat(weight, starts)
        means = np.add.reduceat(weight * theta, starts) / mass
        moved = np.concatenate(([0], np.searchsorted(theta, (means[1:] + means[:-1]) / 2)))
        if np.array_equal(moved, starts) or np.any(np.diff(moved, append=theta.size) <= 0):
            break
        starts = moved
    return starts


def _refined(notion: Gaussian, labels: IntArray) -> IntArray:
    """The same where there is no line: nearest in the groups' own precision."""
    estimates, count = notion.estimates, int(labels.max()) + 1
    theta = estimates.theta - estimates.theta[len(estimates) // 2]
    theta = theta[:, None] if theta.ndim == 1 else theta
    se = estimates.se[:, None] if estimates.se.ndim == 1 else estimates.se
    precision = None if estimates.cov is None else np.linalg.inv(estimates.cov)
    for _ in range(100):
        centres = notion.pooled(labels)[0]
        centres = centres[:, None] if centres.ndim == 1 else centres
        distance = np.empty((len(theta), count))
        for c in range(count):
            gap = theta - centres[c]
            distance[:, c] = (
                np.sum((gap / se) ** 2, axis=1) if precision is None else np.einsum("ki,kij,kj->k", gap, precision, gap)
            )
        moved = np.argmin(distance, axis=1).astype(np.int64)
        if np.array_equal(moved, labels) or np.unique(moved).size < count:
            break
        labels = moved
    return labels
