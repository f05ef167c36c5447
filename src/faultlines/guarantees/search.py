"""From the test to clusters: how many does it take until each could be one, and which partition is it then?

m clusters are enough when every one of them, k of the K groups, passes the test of its own groups at level
¾ α (k − 1)/(K − 1). Partitions come from the tree and from what the test itself sets apart; of those that pass, the one
with the highest likelihood as a mixture is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultlines.comparison.mixture import fitted_mixture
from faultlines.progress import progress

if TYPE_CHECKING:
    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.guarantees.joint import Effects, Tests
    from faultlines.tree.hierarchy import Hierarchy

_FOR_BORDERS = 0.75  # of the level; the rest is kept back for groups that no border puts where they belong
_FINEST = float(np.log(0.2))  # levels above this are not told apart: what is claimed there is claimed here
_USUAL = float(np.log(0.05))  # partitions that pass here may be told apart by their likelihood
_SURE = float(np.log(1e-12))  # log p of partitions that need no test
_BEYOND = 12.0
_MANY = 20_000  # groups from which on fewer partitions are tried
_EXTENDED = 2  # partitions of m clusters from which those of m + 1 are made


@dataclass(eq=False)
class Partitions:
    """Partitions into 1, 2, … clusters, each with the log p at which it appears, searched for when first asked for.

    Attributes:
        effects: The groups.
        hierarchy: Their tree.
        tests: The tests of any of them.
        log_pvalue: Log p of "all groups are alike", at which the partition into two appears.
        refine: Whether a group goes where it most likely belongs.
    """

    effects: Effects
    hierarchy: Hierarchy
    tests: Tests
    log_pvalue: float
    refine: bool
    _chosen: dict[int, IntArray] = field(default_factory=dict)

    @cached_property
    def _searched(self) -> _Searched:
        return _search(self.effects, self.hierarchy, self.tests, self.log_pvalue, refine=self.refine)

    @property
    def log_pvalues(self) -> FloatArray:
        """Log of the p at which the partition into 2, 3, … clusters appears."""
        return self._searched.log_pvalues

    def labels(self, clusters: int) -> IntArray:
        """Cluster numbers 1 … m of the groups: of the partitions that pass, the likeliest as a mixture."""
        if clusters == 1:
            return np.ones(len(self.hierarchy), dtype=np.int64)
        if clusters not in self._chosen:
            known = self._searched.candidates
            found = known[clusters - 1] if clusters <= len(known) else ()
            made = _chosen(self.effects, found, refine=self.refine) if found else _cut(self.hierarchy, clusters)
            self._chosen[clusters] = made + 1
        return self._chosen[clusters].copy()

    def open_gaps(self, clusters: int) -> BoolArray:
        """Gaps of the tree whose neighbours are in different clusters."""
        along = self.labels(clusters)[self.hierarchy.order]
        return np.asarray(along[1:] != along[:-1])

    def gap_pvalues(self) -> FloatArray:
        """Log p at which the groups beside each gap are first told apart; 0 where they never are."""
        made = np.zeros(max(len(self.hierarchy) - 1, 0))
        known = int(np.count_nonzero(self.log_pvalues < 0)) + 1
        for clusters in range(min(known, max(len(self._searched.candidates), 2)), 1, -1):
            made[self.open_gaps(clusters)] = self.log_pvalues[clusters - 2]
        return made


class _Searched(NamedTuple):
    """Log p of partitions into 2, 3, … clusters; for 1, 2, … the partitions as plausible as any, numbered from 0."""

    log_pvalues: FloatArray
    candidates: tuple[tuple[IntArray, ...], ...]


def _search(effects: Effects, hierarchy: Hierarchy, tests: Tests, reached: float, *, refine: bool) -> _Searched:
    """The path of partitions of some groups, from the log p of all of them on."""
    groups = effects.theta.size
    log_p = np.zeros(max(groups - 1, 0))
    log_p[:1] = reached
    everyone = np.zeros(groups, dtype=np.int64)
    found: list[tuple[IntArray, ...]] = [(everyone,)]
    before: list[IntArray] = [everyone]
    chain = everyone  # always divided by the strongest evidence: two groups far out on either side are on no other way
    if reached > _FINEST:
        return _Searched(log_p, tuple(found))
    sure = _surely_apart(hierarchy) if reached < _SURE else 1
    for clusters in range(2, sure):  # far too many to be tested one by one, and each beyond doubt
        log_p[clusters - 1] = reached = max(reached, _SURE)
        found.append(())
        before = [_cut(hierarchy, clusters)]
        chain = before[0]
    with progress("judging clusters by their own groups", groups - 1) as advance:
        for clusters in range(max(2, sure), groups + 1):
            candidates = _candidates(effects, hierarchy, tests, before, clusters, refine=refine)
            if not candidates:
                found.append((_cut(hierarchy, clusters),))
                break
            scores = _scores(candidates, tests, groups)
            best = max(scores)
            passing = [c for c, score in zip(candidates, scores, strict=True) if score >= min(best, _USUAL)]
            found.append(tuple(passing))
            reached = max(reached, best)
            if clusters == groups or reached > _FINEST:
                break
            log_p[clusters - 1] = reached
            ranked = np.argsort(scores, kind="stable")[::-1][:_EXTENDED]
            chain = _divided(tests, chain)
            before = [*(candidates[i] for i in ranked.tolist()), chain]
            advance(1)
    log_p.setflags(write=False)
    return _Searched(log_p, tuple(found))


def _surely_apart(hierarchy: Hierarchy) -> int:
    """How many clusters the tree has whose merges are beyond any doubt.

    The root of the top merge of k groups that are all alike is about .8 √k, give or take one: twelve more than √k is
    out of its reach.
    """
    linkage = hierarchy.to_linkage()[::-1]
    sure = np.sqrt(linkage[:, 2]) > np.sqrt(linkage[:, 3]) + _BEYOND
    return 1 + int(np.argmin(np.append(sure, False)))


def _cut(hierarchy: Hierarchy, clusters: int) -> IntArray:
    """The tree cut into so many clusters, numbered from 0."""
    is_open = hierarchy.merge_rank() >= len(hierarchy) - clusters
    return hierarchy.labels(hierarchy.starts(is_open)) - 1


def _candidates(
    effects: Effects, hierarchy: Hierarchy, tests: Tests, before: list[IntArray], clusters: int, *, refine: bool
) -> list[IntArray]:
    """Partitions into so many clusters: the tree's, and those before with their least plausible cluster divided."""
    made = [_cut(hierarchy, clusters)]
    made += [_divided(tests, labels) for labels in before]
    if refine:
        plain = made[:1] if effects.theta.size > _MANY else made
        made += [_moved(effects, labels, by_size=by_size) for labels in plain for by_size in (False, True)]
    unique: dict[bytes, IntArray] = {}
    for labels in made:
        numbered = _renumbered(labels)
        if int(numbered.max()) + 1 == clusters:
            unique.setdefault(numbered.tobytes(), numbered)
    return list(unique.values())


def _divided(tests: Tests, labels: IntArray) -> IntArray:
    """A partition whose least plausible cluster is divided in two by the strongest evidence."""
    sets = [np.flatnonzero(labels == j) for j in range(int(labels.max()) + 1)]
    tested = [_adjusted(members, tests, labels.size) if members.size > 1 else np.inf for members in sets]
    worst = sets[int(np.argmin(tested))]
    divided = labels.copy()
    if worst.size > 1:
        divided[worst[tests.of(worst).apart]] = len(sets)
    return divided


def _renumbered(labels: IntArray) -> IntArray:
    """Clusters numbered by the first group of each, so that equal partitions are equal arrays."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    return np.asarray(rank[inverse], dtype=np.int64)


def _adjusted(members: IntArray, tests: Tests, groups: int) -> float:
    """Log p of a cluster's own groups, for its share of the level."""
    if members.size < 2:
        return 0.0
    share = 0.0 if members.size == groups else np.log((groups - 1) / (members.size - 1) / _FOR_BORDERS)
    return min(tests.of(members).log_p + float(share), 0.0)


def _scores(candidates: list[IntArray], tests: Tests, groups: int) -> list[float]:
    """How plausible every partition is: the smallest p of its clusters; given up where it cannot be second best."""
    scores: list[float] = []
    for labels in candidates:
        second = sorted(scores)[-_EXTENDED] if len(scores) >= _EXTENDED else -np.inf
        score = 0.0
        for j in range(int(labels.max()) + 1):
            score = min(score, _adjusted(np.flatnonzero(labels == j), tests, groups))
            if score < second and score < _USUAL:
                break
        scores.append(score)
    return scores


def _moved(effects: Effects, labels: IntArray, *, by_size: bool) -> IntArray:
    """Groups moved to the nearest cluster, or to the likeliest with regard to its size, until nothing moves."""
    theta, weight = effects.theta, effects.se**-2.0
    count = int(labels.max()) + 1
    for _ in range(50 if theta.size <= _MANY else 10):
        mass = np.bincount(labels, weight, count)
        means = np.bincount(labels, weight * theta, count) / mass
        distance = weight[:, None] * (theta[:, None] - means) ** 2
        if by_size:
            distance -= 2 * np.log(np.bincount(labels, minlength=count))
        moved = distance.argmin(axis=1)
        if np.array_equal(moved, labels) or np.count_nonzero(np.bincount(moved, minlength=count)) < count:
            break
        labels = moved
    return labels


# ----------------------------------------------------------------------------------------------------------- mixtures


def _chosen(effects: Effects, candidates: tuple[IntArray, ...], *, refine: bool) -> IntArray:
    """The likeliest of some partitions as a mixture; every group where it most likely belongs, if asked for."""
    if len(candidates) == 1 and (not refine or candidates[0].max() == 0):
        return candidates[0]
    fitted = [fitted_mixture(effects.theta, effects.se, labels, free=True) for labels in candidates]
    best = int(np.argmax([one.log_likelihood for one in fitted]))
    labels = candidates[best]
    if not refine:
        return labels
    free, count = fitted[best], int(labels.max()) + 1
    equal = fitted_mixture(effects.theta, effects.se, labels, free=False)
    # Shares of the clusters are taken as equal unless others fit clearly better (Akaike).
    chosen = free if free.log_likelihood - equal.log_likelihood > count - 1 else equal
    assigned = chosen.posterior.argmax(axis=1)
    return assigned if np.unique(assigned).size == count else labels
