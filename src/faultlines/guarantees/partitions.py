"""From the joint test to clusters: how many are needed until each passes the test, and which partition is reported?

m clusters are enough when every one of them, k of the K groups, passes the joint test of its own groups at level
¾ α (k − 1)/(K − 1). Partitions come from the tree and from what the test itself separates; of those that pass, the one
with the highest likelihood as a mixture is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from faultlines.core import kernels
from faultlines.core.mixture import fit_mixture
from faultlines.core.tree import Hierarchy
from faultlines.guarantees.base import run_in_order
from faultlines.guarantees.joint_test import GroupEffects, JointTest
from faultlines.progress import progress
from faultlines.types import BoolArray, FloatArray, IntArray

_SHARE_OF_LEVEL = 0.75  # of α for the clusters' tests; the rest is for groups that no border puts where they belong
_LARGEST = float(np.log(0.2))  # log p beyond which partitions are not searched: nobody asks for such a level
_USUAL = float(np.log(0.05))  # partitions that pass here are compared by their likelihood
_CERTAIN = float(np.log(1e-12))  # log p of partitions that need no test
_BEYOND_NOISE = 12.0  # how far a root must exceed √k to be out of the reach of noise: its spread is about 1
_MANY = 20_000  # groups from which on fewer partitions are tried
_EXTENDED = 2  # partitions of m clusters from which those of m + 1 are made


@dataclass(eq=False)
class PartitionSearch:
    """Partitions into 1, 2, … clusters, each with the log p at which it appears, searched for when first asked for.

    Attributes:
        effects: The groups.
        hierarchy: Their tree.
        joint_test: The test of any set of them.
        log_pvalue: Log p of "all groups have the same effect", at which the partition into two appears.
        refine: Whether every group goes to the cluster it most likely belongs to.
    """

    effects: GroupEffects
    hierarchy: Hierarchy
    joint_test: JointTest
    log_pvalue: float
    refine: bool
    _labels: dict[int, IntArray] = field(default_factory=dict)

    @cached_property
    def _search(self) -> _SearchResult:
        return _search(self.effects, self.hierarchy, self.joint_test, self.log_pvalue, refine=self.refine)

    @property
    def log_pvalues(self) -> FloatArray:
        """Log of the p at which the partition into 2, 3, … clusters appears."""
        return self._search.log_pvalues

    def labels(self, clusters: int) -> IntArray:
        """Cluster numbers 1 … m of the groups: of the partitions that pass, the likeliest as a mixture."""
        if clusters == 1:
            return np.ones(len(self.hierarchy), dtype=np.int64)
        if clusters not in self._labels:
            searched = self._search.candidates
            candidates = searched[clusters - 1] if clusters <= len(searched) else ()
            if candidates:
                labels = _choose_likeliest(self.effects, candidates, refine=self.refine)
            else:
                labels = _cut(self.hierarchy, clusters)
            self._labels[clusters] = labels + 1
        return self._labels[clusters].copy()

    def open_gaps(self, clusters: int) -> BoolArray:
        """Gaps of the tree whose neighbors are in different clusters."""
        along = self.labels(clusters)[self.hierarchy.order]
        return np.asarray(along[1:] != along[:-1])

    def gap_pvalues(self) -> FloatArray:
        """Log p at which the groups beside each gap are first in different clusters; 0 where they never are."""
        by_gap = np.zeros(max(len(self.hierarchy) - 1, 0))
        most = int(np.count_nonzero(self.log_pvalues < 0)) + 1
        for clusters in range(min(most, max(len(self._search.candidates), 2)), 1, -1):
            by_gap[self.open_gaps(clusters)] = self.log_pvalues[clusters - 2]
        return by_gap


class _SearchResult(NamedTuple):
    """Log p of partitions into 2, 3, … clusters; for 1, 2, … the partitions as plausible as any, numbered from 0."""

    log_pvalues: FloatArray
    candidates: tuple[tuple[IntArray, ...], ...]


def _search(
    effects: GroupEffects, hierarchy: Hierarchy, joint_test: JointTest, log_pvalue: float, *, refine: bool
) -> _SearchResult:
    """The path of partitions of some groups, from the log p of all of them on."""
    groups = effects.theta.size
    log_p = np.zeros(max(groups - 1, 0))
    log_p[:1] = reached = log_pvalue
    one_cluster = np.zeros(groups, dtype=np.int64)
    plausible: list[tuple[IntArray, ...]] = [(one_cluster,)]
    before: list[IntArray] = [one_cluster]
    # A chain that is always divided by the strongest evidence: two groups far out on either side are on no other way.
    chain = one_cluster
    if reached > _LARGEST:
        return _SearchResult(log_p, tuple(plausible))
    certain = _count_certain(hierarchy) if reached < _CERTAIN else 1
    for clusters in range(2, certain):  # far too many to be tested one by one, and each beyond doubt
        log_p[clusters - 1] = reached = max(reached, _CERTAIN)
        plausible.append(())
        before = [_cut(hierarchy, clusters)]
        chain = before[0]
    with progress("testing clusters", groups - 1) as advance:
        for clusters in range(max(2, certain), groups + 1):
            candidates = _propose(effects, hierarchy, joint_test, before, clusters, refine=refine)
            if not candidates:
                plausible.append((_cut(hierarchy, clusters),))
                break
            scores = _score(candidates, joint_test, groups)
            best = max(scores)
            plausible.append(
                tuple(c for c, score in zip(candidates, scores, strict=True) if score >= min(best, _USUAL))
            )
            reached = max(reached, best)
            if clusters == groups or reached > _LARGEST:
                break
            log_p[clusters - 1] = reached
            ranked = np.argsort(scores, kind="stable")[::-1][:_EXTENDED]
            chain = _divide_least_plausible(joint_test, chain)
            before = [*(candidates[i] for i in ranked.tolist()), chain]
            advance(1)
    log_p.setflags(write=False)
    return _SearchResult(log_p, tuple(plausible))


def _count_certain(hierarchy: Hierarchy) -> int:
    """How many clusters the tree has whose merges are beyond any doubt.

    The root of the top merge of k groups with equal effects is about .8 √k, give or take one: twelve more than √k is
    too many for it.
    """
    linkage = hierarchy.to_linkage()[::-1]
    is_certain = np.sqrt(linkage[:, 2]) > np.sqrt(linkage[:, 3]) + _BEYOND_NOISE
    return 1 + int(np.argmin(np.append(is_certain, False)))


def _cut(hierarchy: Hierarchy, clusters: int) -> IntArray:
    """The tree cut into a number of clusters, numbered from 0."""
    is_open = hierarchy.merge_rank() >= len(hierarchy) - clusters
    return hierarchy.labels(hierarchy.starts(is_open)) - 1


def _propose(
    effects: GroupEffects,
    hierarchy: Hierarchy,
    joint_test: JointTest,
    before: list[IntArray],
    clusters: int,
    *,
    refine: bool,
) -> list[IntArray]:
    """Partitions into a number of clusters: the tree's, and those before with their least plausible cluster divided."""
    proposed = [_cut(hierarchy, clusters)]
    proposed += [_divide_least_plausible(joint_test, labels) for labels in before]
    if refine:
        unrefined = proposed[:1] if effects.theta.size > _MANY else proposed
        proposed += [
            _move_groups(effects, labels, by_size=by_size) for labels in unrefined for by_size in (False, True)
        ]
    if effects.theta.size > _MANY:  # those with groups moved pass first, so that others are given up sooner
        proposed = proposed[::-1]
    distinct: dict[bytes, IntArray] = {}
    for labels in proposed:
        numbered = _renumber(labels)
        if int(numbered.max()) + 1 == clusters:
            distinct.setdefault(numbered.tobytes(), numbered)
    return list(distinct.values())


def _divide_least_plausible(joint_test: JointTest, labels: IntArray) -> IntArray:
    """A partition whose least plausible cluster is divided in two by the strongest evidence."""
    sets = [np.flatnonzero(labels == j) for j in range(int(labels.max()) + 1)]
    log_p = [_adjusted_log_p(members, joint_test, labels.size) if members.size > 1 else np.inf for members in sets]
    worst = sets[int(np.argmin(log_p))]
    divided = labels.copy()
    if worst.size > 1:
        divided[worst[joint_test.test(worst).separated]] = len(sets)
    return divided


def _renumber(labels: IntArray) -> IntArray:
    """Clusters numbered by the first group of each, so that equal partitions are equal arrays."""
    first = np.full(int(labels.max()) + 1, labels.size)
    first[labels[::-1]] = np.arange(labels.size - 1, -1, -1)  # the last to be written is the first group
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(first.size)
    return np.asarray(rank[labels], dtype=np.int64)


def _adjusted_log_p(members: IntArray, joint_test: JointTest, groups: int) -> float:
    """Log p of a cluster's own groups, for its share of the level."""
    if members.size < 2:
        return 0.0
    share = 0.0 if members.size == groups else np.log((groups - 1) / (members.size - 1) / _SHARE_OF_LEVEL)
    return min(joint_test.test(members).log_p + float(share), 0.0)


def _score(candidates: list[IntArray], joint_test: JointTest, groups: int) -> list[float]:
    """How plausible every partition is: the smallest p of its clusters; given up where it cannot be second best."""
    scores: list[float] = []
    for labels in candidates:
        second = sorted(scores)[-_EXTENDED] if len(scores) >= _EXTENDED else -np.inf
        score = 0.0
        sets = [np.flatnonzero(labels == j) for j in range(int(labels.max()) + 1)]
        if groups > _MANY:  # the largest is the likeliest to fail
            sets.sort(key=len, reverse=True)
        for members in sets:
            score = min(score, _adjusted_log_p(members, joint_test, groups))
            if score < second and score < _USUAL:
                break
        scores.append(score)
    return scores


def _move_groups(effects: GroupEffects, labels: IntArray, *, by_size: bool) -> IntArray:
    """Groups moved to the nearest cluster, or to the likeliest with regard to its size, until nothing moves."""
    theta, weight = effects.theta, effects.se**-2.0
    count = int(labels.max()) + 1
    for _ in range(50 if theta.size <= _MANY else 10):
        mass = np.bincount(labels, weight, count)
        means = np.bincount(labels, weight * theta, count) / mass
        bonus = 2 * np.log(np.bincount(labels, minlength=count)) if by_size else np.zeros(count)
        moved = labels.copy()
        changed = kernels.assign_nearest(theta, weight, means, bonus, moved)
        if not changed or np.count_nonzero(np.bincount(moved, minlength=count)) < count:
            break
        labels = moved
    return labels


# ----------------------------------------------------------------------------------------------------------- mixtures


def _choose_likeliest(effects: GroupEffects, candidates: tuple[IntArray, ...], *, refine: bool) -> IntArray:
    """The likeliest of some partitions as a mixture; every group where it most likely belongs, if asked for."""
    if len(candidates) == 1 and (not refine or candidates[0].max() == 0):
        return candidates[0]
    cores = None if effects.theta.size > _MANY else 1  # threads cost more than they save where there are few groups
    fits = list(
        run_in_order(lambda i: fit_mixture(effects.theta, effects.se, candidates[i], free=True), len(candidates), cores)
    )
    best = int(np.argmax([fit.log_likelihood for fit in fits]))
    labels = candidates[best]
    if not refine:
        return labels
    free, count = fits[best], int(labels.max()) + 1
    equal = fit_mixture(effects.theta, effects.se, labels, free=False)
    # Shares of the clusters are taken as equal unless others fit clearly better (Akaike).
    likelier = free if free.log_likelihood - equal.log_likelihood > count - 1 else equal
    assigned = likelier.posterior.argmax(axis=1)
    return assigned if np.unique(assigned).size == count else labels
