"""What is known of the clusters of a partition: their effects in several readings, and what to believe of groups."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri, stdtrit

from faultlines.comparison.mixture import posterior_of
from faultlines.result.belief import belief_of, possible_of
from faultlines.result.effects import Effect
from faultlines.result.observed import observed_effects
from faultlines.result.simultaneous import any_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from faultlines.comparison.base import Comparison, Levels
    from faultlines.comparison.mixture import Posterior
    from faultlines.estimates.estimates import BoolArray, Estimates, IntArray
    from faultlines.estimates.scales import FloatArray, Scale
    from faultlines.metrics.readout import Readout
    from faultlines.result.belief import Belief

_MOST = 2 * 10**7  # groups times clusters beyond which no chance of each is computed

Effects = list[tuple[Effect, ...]]


@dataclass(frozen=True, eq=False)
class Pooled:
    """Effects of clusters, each reading computed when first asked for and once.

    Attributes:
        groups: The groups.
        clusters: The cluster of each, from 0 on by rising effect.
        alpha: One less the level of intervals.
        readout: The moments behind the estimates, where rows were given.
        fixed: Whether the clusters were chosen by other data, so that plain means and their intervals hold.
        all_people: Whether these are all groups as one, whose effect is that on all their people.
    """

    groups: Comparison
    clusters: IntArray
    alpha: float
    readout: Readout | None = None
    fixed: bool = False
    all_people: bool = False

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return int(self.clusters.max()) + 1

    @property
    def estimates(self) -> Estimates | None:
        """Estimates of the groups, where there are some."""
        return self.groups.estimates

    @property
    def mixed(self) -> bool:
        """Whether effects are levels of a mixture; plain means where that is the same, or other data chose."""
        if self.count == 1 or self.fixed or self.groups.tolerance > 0:
            return False
        return self.posterior is not None and not self.posterior.certain

    def at(self, alpha: float) -> Pooled:
        """The same with intervals at another level."""
        if alpha == self.alpha:
            return self
        made = replace(self, alpha=alpha)
        made.share(self)
        return made

    def share(self, other: Pooled) -> None:
        """Take what does not depend on the level from the same clusters at another level, if it is known there."""
        self.__dict__.update({name: other.__dict__[name] for name in ("posterior", "means") if name in other.__dict__})

    @cached_property
    def means(self) -> Levels | None:
        """Precision-weighted means of the clusters."""
        return self.groups.levels(self.clusters)

    @cached_property
    def posterior(self) -> Posterior | None:
        """Levels of the clusters as a mixture, and where each group belongs; none of too many clusters."""
        if self.estimates is None or self.means is None or self.count * self.clusters.size > _MOST:
            return None
        return posterior_of(self.estimates, self.clusters)

    @cached_property
    def possible(self) -> BoolArray | None:
        """Which clusters every group may belong to at 1 − α, (K, m); the part of `belief` that is quick."""
        return None if self.posterior is None else possible_of(self.posterior.membership, self.clusters, self.alpha)

    @cached_property
    def belief(self) -> Belief | None:
        """What to believe of every group."""
        if self.estimates is None or self.posterior is None:
            return None
        return belief_of(self.estimates, self.posterior, self.clusters, self.alpha)

    @cached_property
    def effects(self) -> Effects:
        """Every effect of every cluster: levels of the mixture, or means; none without estimates."""
        if self.all_people and any(self.observed):
            return self.observed
        if self.estimates is None or self.means is None:
            return [()] * self.count
        if not self.mixed or self.posterior is None:
            levels = self.means
            reach = -ndtri(self.alpha / 2) if levels.dof is None else -stdtrit(levels.dof, self.alpha / 2)
            return self._plain(np.asarray(reach))
        ends = self.posterior.intervals(self.alpha)
        columns, chances = [], self.posterior.membership
        for i, scale in enumerate(self.estimates.scales):
            level, error = self.posterior.levels[:, i], self.posterior.errors[:, i]
            shift = shown = np.zeros(level.size)
            if scale.is_share:
                middle, pooled, share = self._shares(i, scale, lambda each: each @ chances)
                shift, shown = pooled - middle, scale.place(share) - middle
            lower, upper = (scale.natural(end[:, i] + shift) for end in ends)
            columns.append((scale.natural(level + shown), error * scale.slope(level + shift), lower, upper))
        return _listed(columns)

    @cached_property
    def simultaneous(self) -> Effects:
        """Intervals that hold for clusters chosen in any way from the same data; about the plain means."""
        if self.estimates is None or self.means is None:
            return [()] * self.count
        estimates, dims = self.estimates, self.estimates.dims
        each = self.alpha / dims
        if self.fixed:  # only for how many clusters there are
            one = -np.expm1(np.log1p(-each) / self.count) / 2
            reach = -ndtri(one) if self.means.dof is None else -stdtrit(self.means.dof, one)
            return self._plain(np.asarray(reach))
        widths = [any_cluster(estimates.own[:, i], estimates.dof, each, estimates.covariance) for i in range(dims)]
        if estimates.covariance is None:
            return self._plain(np.array(widths)[:, None])
        # Means are measured in their groups' own noise, whatever they share, so that one width holds for any cluster.
        own = self._sums((estimates.own[:, 0].min() / estimates.own[:, 0]) ** 2) ** -0.5 * estimates.own[:, 0].min()
        return self._plain(np.asarray(widths[0] * own / self.means.errors[:, 0]))

    @cached_property
    def observed(self) -> Effects:
        """Every effect on the people of every cluster, as a plain readout of their rows gives it."""
        return observed_effects(self.estimates, self.clusters, self.count, self.alpha, self.readout)

    def _plain(self, reach: FloatArray) -> Effects:
        """Precision-weighted means, with intervals of so many standard errors: for all, by cluster, or effects × 1."""
        estimates, levels = self.estimates, self.means
        if estimates is None or levels is None:
            return [()] * self.count
        columns = []
        for i, scale in enumerate(estimates.scales):
            values, shown = levels.values[:, i], scale.natural(levels.values[:, i])
            if scale.is_share:
                _, values, shown = self._shares(i, scale, self._sums)
            errors = levels.errors[:, i]
            wide = (reach[i] if reach.ndim > 1 else reach) * errors
            # Where there are no events at all, the interval of the scale begins a little above their share of zero.
            ends = (np.minimum(scale.natural(values - wide), shown), np.maximum(scale.natural(values + wide), shown))
            columns.append((shown, errors * scale.slope(values), *ends))
        return _listed(columns)

    def _sums(self, each: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(self.clusters, each, self.count), dtype=np.float64)

    def _shares(
        self, effect: int, scale: Scale, total: Callable[[FloatArray], FloatArray]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Of each cluster the mean on the scale, the place of its events over trials there, and these as people read.

        The mean on the scale is not the scale's value of the pooled share, so intervals are laid around the latter.
        """
        estimates = self.estimates
        if estimates is None:
            raise TypeError("shares need estimates")
        own = estimates.own[:, effect]
        trials, weight = scale.mass(estimates.errors[:, effect]), np.asarray((own.min() / own) ** 2)
        mass = np.maximum(total(trials), 1e-12)
        shown = total(trials * estimates.shown[:, effect]) / mass
        middle = total(weight * estimates.values[:, effect]) / np.maximum(total(weight), 1e-300)
        return np.asarray(middle), scale.pooled(shown, mass), np.asarray(shown)


def _listed(columns: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]) -> Effects:
    """Effects of every cluster from (estimate, se, lower, upper) of each effect."""
    made = []
    for estimate, error, lower, upper in columns:
        ends = (np.minimum(lower, estimate), np.maximum(upper, estimate))
        made.append([Effect(*row) for row in zip(*(a.tolist() for a in (estimate, error, *ends)), strict=True)])
    return list(zip(*made, strict=True))
