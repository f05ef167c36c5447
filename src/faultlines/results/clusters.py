"""Clusters of a partition with their effects and intervals, numbered from the lowest to the highest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from faultlines import formats
from faultlines.estimates.estimates import plain
from faultlines.estimates.labels import labels_of, name_of
from faultlines.results.effects import ClusterEffects, pooled_effects
from faultlines.results.protocol import probability
from faultlines.results.rules import Partition, Population

if TYPE_CHECKING:
    from collections.abc import Hashable

    from faultlines.core.comparison import Comparison
    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.labels import Label
    from faultlines.estimates.scales import FloatArray
    from faultlines.guarantees.base import MarginLevels
    from faultlines.metrics.readout import Readout
    from faultlines.results.effects import Effect
    from faultlines.results.rules import Rule


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """Groups whose effects may be taken as equal.

    Attributes:
        members: Labels of its groups, by rising estimate.
        n: Total size, when the sizes of the groups are known. Units that its groups share count once, where that can be
            known: see the note "shared data".
        number: Its number, from 1 on.
        partition: The clusters it is one of, which its rule tells it from.
        pooled: What is known of the effects of these clusters.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.simulate.onboarding().estimates)
        >>> lowest = found.clusters[0]
        >>> lowest.number, len(lowest.members), lowest.members[:3]
        (1, 8, ('CH', 'SE', 'AT'))
        >>> round(lowest.estimate, 3), round(lowest.se, 3), [round(end, 3) for end in lowest.ci]
        (-0.066, 0.005, [-0.075, -0.056])
        >>> [round(end, 3) for end in lowest.simultaneous_ci]
        [-0.091, -0.043]
        >>> round(lowest.observed, 3), [round(end, 3) for end in lowest.observed_ci]
        (-0.068, [-0.078, -0.059])
        >>> [round(one.estimate, 3) for one in lowest.effects + lowest.observed_effects + lowest.simultaneous_effects]
        [-0.066, -0.068, -0.067]
        >>> lowest.rule, len(lowest.population.keys)
        ('country in {AT, CH, DE, DK, FI, JP, KR, SE}', 40)
    """

    members: tuple[Label, ...]
    n: float | None
    number: int
    partition: Partition = field(compare=False)
    pooled: ClusterEffects = field(compare=False)

    def __repr__(self) -> str:
        members = formats.members(self.members, name_of, 60)
        return f"Cluster({members}; estimate={self.estimate}, se={self.se}, ci={self.ci}, n={self.n})"

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What is known of each effect; none for a comparison that has no estimates."""
        return self.pooled.effects[self.number - 1]

    @property
    def observed_effects(self) -> tuple[Effect, ...]:
        """Each observed effect: that of its rows; none where neither rows nor sizes are known."""
        return self.pooled.observed[self.number - 1]

    @property
    def simultaneous_effects(self) -> tuple[Effect, ...]:
        """Each effect as the plain mean of its groups, with the interval that holds however the cluster was chosen."""
        return self.pooled.simultaneous[self.number - 1]

    @property
    def estimate(self) -> float | tuple[float, ...] | None:
        """Its level: what its groups have in common; a tuple where several effects are measured together.

        It is that of a mixture: a group at the border of two clusters counts for both, as likely as it belongs to each,
        so clusters are not pushed apart by the data that chose them. Where other data chose them (`fl.Holdout`), where
        there is a tolerance, and where all groups are one, it is the precision-weighted mean of its groups.
        """
        return plain([effect.estimate for effect in self.effects]) if self.effects else None

    @property
    def se(self) -> float | tuple[float, ...] | None:
        """Its standard error."""
        return plain([effect.se for effect in self.effects]) if self.effects else None

    @property
    def ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Interval of the level at 1 − α. It holds where the number of clusters is right."""
        return _ends(self.effects)

    @property
    def simultaneous_ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Interval of the precision-weighted mean effect of its groups that holds however they were chosen.

        It allows for the most misleading choice of groups that the data could have made, so it holds also where the
        number of clusters is wrong; it is wide, the wider the more groups there are.
        """
        return _ends(self.simultaneous_effects)

    @property
    def observed(self) -> float | tuple[float, ...] | None:
        """The effect on its people: that of all its rows together, or the groups' effects weighted by their sizes.

        It is what a dashboard shows for these people. Where the same data chose the groups it exaggerates.
        """
        return plain([effect.estimate for effect in self.observed_effects]) if self.observed_effects else None

    @property
    def observed_ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Its interval at the level 1 − α, descriptive where the same data chose the groups."""
        return _ends(self.observed_effects)

    @property
    def rule(self) -> Rule:
        """What its groups have in common: the shortest exact rule over their attributes, or the best short one.

        It is text that knows how well it fits: of the people it describes, a share `matches` is in the cluster, and it
        `covers` a share of the people in the cluster. No two clusters of a result are described by rules that overlap.
        """
        return self.partition.rules[self.number - 1]

    @property
    def population(self) -> Population:
        """All groups."""
        return self.partition.population


@dataclass(frozen=True, slots=True)
class ArmEffect:
    """What one treatment did in all groups together, against the control.

    Attributes:
        control: The control.
        treatment: The treatment.
        effects: Each effect in the rows of all groups that are compared, with its interval at 1 − α; of groups that
            share units, the groups' effects weighted by their sizes, with what they share allowed for.
        pvalues: Of each effect, p of "it is zero", two-sided. It is that of a single test: nothing was searched.

    Example:
        >>> import faultlines as fl, pandas as pd
        >>> visits = pd.DataFrame(fl.simulate.experiment_rows())
        >>> metric = fl.lift("spend", variant="arm", control="A", unit="user")
        >>> arm = fl.cluster(visits, by="country", metric=metric).arm_effects[0]
        >>> arm.control, arm.treatment, round(arm.effects[0].estimate, 3), round(arm.pvalues[0], 2)
        ('A', 'B', -0.02, 0.16)
    """

    control: Hashable
    treatment: Hashable
    effects: tuple[Effect, ...]
    pvalues: tuple[float, ...]


def arm_effects(groups: Comparison, readout: Readout | None, alpha: float) -> tuple[ArmEffect, ...]:
    """Every treatment against the control in all groups together; none without arms.

    Args:
        groups: The groups.
        readout: The moments behind the estimates.
        alpha: One less the level of intervals.
    """
    if readout is None or len(readout.arms) < 2 or groups.estimates is None:
        return ()
    control, *treatments = readout.arms
    of_groups = np.zeros(len(groups), dtype=np.int64) if readout.treatment is None else readout.treatment
    pooled = pooled_effects(groups.estimates, of_groups, len(treatments), alpha, readout.by_treatment())
    return tuple(
        ArmEffect(control, treatment, effects, tuple(probability(log_p) for log_p in log_pvalues))
        for treatment, (effects, log_pvalues) in zip(treatments, pooled, strict=True)
        if effects
    )


def overall_pvalues(groups: Comparison, readout: Readout | None, alpha: float) -> tuple[float, ...]:
    """Of each effect in all rows, p of "it is zero": of several treatments, of their mean; none without arms."""
    if readout is None or len(readout.arms) < 2 or groups.estimates is None:
        return ()
    single = np.zeros(len(groups), dtype=np.int64)
    pooled = pooled_effects(groups.estimates, single, 1, alpha, readout.together(single, 1))
    return tuple(probability(log_p) for log_p in pooled[0][1])


def _ends(effects: tuple[Effect, ...]) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
    """Intervals of effects; none without any."""
    return plain([(effect.lower, effect.upper) for effect in effects]) if effects else None


def numbered(groups: Comparison, labels: IntArray) -> IntArray:
    """Cluster numbers 1 … m from the lowest to the highest effect; of several effects, the first."""
    levels = groups.pool(labels - 1)
    if levels is None:
        return labels
    order = np.argsort(levels.values[:, 0], kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(1, order.size + 1)
    return np.asarray(rank[labels - 1])


def _sizes(n: FloatArray, clusters: IntArray, count: int, readout: Readout | None) -> FloatArray:
    """The sizes of clusters; units that their groups share count once where that can be known."""
    distinct = None if readout is None else readout.cluster_sizes(clusters, count)
    return np.bincount(clusters, n, count).astype(np.float64) if distinct is None else distinct


def clusters_of(
    groups: Comparison,
    labels: IntArray,
    alpha: float,
    population: Population | None = None,
    readout: Readout | None = None,
    *,
    fixed: bool = False,
    all_people: bool = False,
    levels: MarginLevels | None = None,
) -> tuple[IntArray, tuple[Cluster, ...]]:
    """Labels numbered from the lowest to the highest effect, and the clusters in that order.

    Args:
        groups: The groups.
        labels: Cluster numbers from 1 on, in any order.
        alpha: One less the level of intervals.
        population: The groups by the values of their attributes, if that is known already.
        readout: The moments behind the estimates.
        fixed: Whether other data chose the clusters.
        all_people: Whether it is all groups as one, with the effect on all their people.
        levels: The levels of some attributes, where clusters are unions of these.
    """
    labels = numbered(groups, labels)
    labels.setflags(write=False)
    count = int(labels.max())
    order = np.arange(len(groups))
    if groups.estimates is not None:
        order = np.argsort(groups.estimates.values[:, 0], kind="stable")
    order = order[np.argsort(labels[order], kind="stable")]
    ends = np.cumsum(np.bincount(labels, minlength=count + 1)[1:]).tolist()
    sizes = None if groups.n is None else _sizes(groups.n, labels - 1, count, readout).tolist()
    names, ordered = labels_of(groups.keys), order.tolist()
    partition = Partition(population or Population(groups.keys, groups.attributes, groups.n), labels)
    pooled = ClusterEffects(groups, labels - 1, alpha, readout, fixed, all_people, levels)
    if readout is not None:
        _ = pooled.observed  # here, so that a metric of one's own that cannot do it fails before it is printed
    return labels, tuple(
        Cluster(
            tuple(names[i] for i in ordered[start:end]), None if sizes is None else sizes[c], c + 1, partition, pooled
        )
        for c, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
    )
