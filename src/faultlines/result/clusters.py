"""Clusters of a partition with their effects and intervals, numbered from the lowest to the highest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri, stdtrit

from faultlines import text
from faultlines.comparison.base import Levels
from faultlines.estimates.estimates import plain
from faultlines.estimates.labels import labels_of, name_of
from faultlines.result.effects import Effect
from faultlines.result.observed import observed_effects
from faultlines.result.rules import Partition, Population

if TYPE_CHECKING:
    from faultlines.comparison.base import Comparison
    from faultlines.estimates.estimates import Estimates, IntArray
    from faultlines.estimates.labels import Label
    from faultlines.estimates.scales import FloatArray, Scale
    from faultlines.metrics.readout import Readout
    from faultlines.result.rules import Rule


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """Groups that may be taken as alike.

    Attributes:
        members: Labels of its groups, by rising estimate.
        effects: What is known of each effect; none for a comparison that has no estimates.
        observed_effects: Each effect on its people, as a plain readout of their rows gives it; none where neither rows
            nor sizes are known.
        n: Total size, when the sizes of the groups are known.
        number: Its number, from 1 on.
        partition: The clusters it is one of, which its rule tells it from.
    """

    members: tuple[Label, ...]
    effects: tuple[Effect, ...]
    observed_effects: tuple[Effect, ...]
    n: float | None
    number: int
    partition: Partition = field(compare=False)

    def __repr__(self) -> str:
        members = text.members(self.members, name_of, 60)
        return f"Cluster({members}; estimate={self.estimate}, se={self.se}, ci={self.ci}, n={self.n})"

    @property
    def estimate(self) -> float | tuple[float, ...] | None:
        """The precision-weighted mean of its groups; a tuple where several effects are measured together."""
        return plain([effect.estimate for effect in self.effects]) if self.effects else None

    @property
    def se(self) -> float | tuple[float, ...] | None:
        """Its standard error; where `dof` is known, with allowance for weights that are estimated."""
        return plain([effect.se for effect in self.effects]) if self.effects else None

    @property
    def ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Interval at the level 1 − α.

        Descriptive unless the guarantee is a holdout: the same data chose the members, so two clusters' intervals are
        farther apart than fresh data would put them.
        """
        ends = [(effect.lower, effect.upper) for effect in self.effects]
        return plain(ends) if ends else None

    @property
    def observed(self) -> float | tuple[float, ...] | None:
        """The effect on its people: that of all its rows together, or the groups' effects weighted by their sizes.

        It is what a dashboard shows for these people. Where the same data chose the groups it exaggerates, as
        `estimate` does.
        """
        return plain([effect.estimate for effect in self.observed_effects]) if self.observed_effects else None

    @property
    def observed_ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Its interval at the level 1 − α."""
        ends = [(effect.lower, effect.upper) for effect in self.observed_effects]
        return plain(ends) if ends else None

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


def numbered(groups: Comparison, labels: IntArray) -> IntArray:
    """Cluster numbers 1 … m from the lowest to the highest effect; of several effects, the first."""
    return _by_effect(groups, labels)[0]


def _by_effect(groups: Comparison, labels: IntArray) -> tuple[IntArray, Levels | None]:
    """Numbered labels, and the pooled effects in that order."""
    levels = groups.levels(labels - 1)
    if levels is None:
        return labels, None
    order = np.argsort(levels.values[:, 0], kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(1, order.size + 1)
    dof = None if levels.dof is None else levels.dof[order]
    ordered = Levels(levels.values[order], levels.errors[order], levels.cov[order], dof)
    return np.asarray(rank[labels - 1]), ordered


def clusters_of(
    groups: Comparison,
    labels: IntArray,
    alpha: float,
    population: Population | None = None,
    readout: Readout | None = None,
) -> tuple[IntArray, tuple[Cluster, ...]]:
    """Labels numbered from the lowest to the highest effect, and the clusters in that order."""
    labels, levels = _by_effect(groups, labels)
    labels.setflags(write=False)
    estimates, count = groups.estimates, int(labels.max())
    effects: list[tuple[Effect, ...]] = [()] * count
    order = np.arange(len(groups))
    if estimates is not None and levels is not None:
        order = np.argsort(estimates.values[:, 0], kind="stable")
        effects = pooled_effects(estimates, levels, labels - 1, alpha)
    order = order[np.argsort(labels[order], kind="stable")]
    ends = np.cumsum(np.bincount(labels, minlength=count + 1)[1:]).tolist()
    sizes = None if groups.n is None else np.bincount(labels - 1, groups.n, count).tolist()
    observed = observed_effects(estimates, labels - 1, count, alpha, readout)
    names, ordered = labels_of(groups.keys), order.tolist()
    partition = Partition(population or Population(groups.keys, groups.attributes, groups.n), labels)
    return labels, tuple(
        Cluster(
            tuple(names[i] for i in ordered[start:end]),
            effects[c],
            observed[c],
            None if sizes is None else sizes[c],
            c + 1,
            partition,
        )
        for c, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
    )


def pooled_effects(estimates: Estimates, levels: Levels, clusters: IntArray, alpha: float) -> list[tuple[Effect, ...]]:
    """Every effect of every cluster; each interval has the level on its own."""
    reach = np.asarray(-ndtri(alpha / 2) if levels.dof is None else -stdtrit(levels.dof, alpha / 2))
    columns = []
    for i, scale in enumerate(estimates.scales):
        values, shown = levels.values[:, i], scale.natural(levels.values[:, i])
        if scale.is_share:
            values, shown = _shares(estimates, i, scale, clusters)
        errors = levels.errors[:, i]
        # Where there are no events at all, the interval of the scale begins a little above their share of zero.
        lower = np.minimum(scale.natural(values - reach * errors), shown)
        upper = np.maximum(scale.natural(values + reach * errors), shown)
        arrays = (shown, errors * scale.slope(values), lower, upper)
        columns.append([Effect(*numbers) for numbers in zip(*(array.tolist() for array in arrays), strict=True)])
    return list(zip(*columns, strict=True))


def _shares(estimates: Estimates, effect: int, scale: Scale, clusters: IntArray) -> tuple[FloatArray, FloatArray]:
    """Events over trials of each cluster, on the scale and as people read them.

    The mean on the scale is not the scale's value of the pooled share, so intervals are laid around the latter.
    """
    trials, count = scale.mass(estimates.errors[:, effect]), int(clusters.max()) + 1
    total = np.asarray(np.bincount(clusters, trials, count), dtype=np.float64)
    shown = np.bincount(clusters, trials * estimates.shown[:, effect], count) / total
    return scale.pooled(shown, total), shown
