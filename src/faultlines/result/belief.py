"""What to believe of one group, with what the others teach: which cluster it belongs to, and what its effect is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from faultlines.comparison.base import AS_GOOD_AS_KNOWN

if TYPE_CHECKING:
    from faultlines.comparison.mixture import Posterior
    from faultlines.estimates.estimates import BoolArray, Estimates, IntArray
    from faultlines.estimates.scales import FloatArray

_FOR_ESTIMATES, _FOR_INTERVALS = -0.5, 1.0  # standard errors added to what may differ within clusters
_HALVINGS = 50


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """What to believe of each of K groups.

    Attributes:
        chances: The chance that it belongs to each of the m clusters, (K, m).
        membership: The chance that it belongs to the cluster it is shown in, (K,).
        possible: Whether it may belong to each of the clusters at the level 1 − α, (K, m).
        shrunken: Its effect with what the others teach, as people read it, (K, d).
        lower: Lower end of its interval, (K, d).
        upper: Upper end, (K, d).
    """

    chances: FloatArray
    membership: FloatArray
    possible: BoolArray
    shrunken: FloatArray
    lower: FloatArray
    upper: FloatArray

    @property
    def sure(self) -> BoolArray:
        """Whether a group can belong to no other cluster than the one it is shown in."""
        return sure_of(self.possible)


def sure_of(possible: BoolArray) -> BoolArray:
    """Whether groups can belong to one cluster only."""
    return np.asarray(possible.sum(axis=1) == 1)


def belief_of(estimates: Estimates, posterior: Posterior, labels: IntArray, alpha: float) -> Belief:
    """What the clusters, taken as a mixture, say of every group.

    Groups of a cluster need not be quite alike, and clusters may have been missed. So their effects are taken to be
    spread about the level of their cluster with a variance τ², which follows from how far the estimates are from the
    levels (DerSimonian and Laird, over clusters by chance). The intervals allow for one standard error more of it:
    they cover on average also where clusters were missed.

    Args:
        estimates: The groups.
        posterior: Levels of the clusters, and where each group belongs.
        labels: The cluster each group is shown in, numbered from 0.
        alpha: One less the level of sets and intervals.
    """
    chances = posterior.membership
    membership = chances[np.arange(len(labels)), labels]
    shrunken, lower, upper = (np.empty(estimates.values.shape) for _ in range(3))
    errors = estimates.own
    if estimates.dof is not None:  # a standard error that is an estimate is less sure
        dof = np.minimum(estimates.dof, AS_GOOD_AS_KNOWN)[:, None]
        errors = errors * np.sqrt(np.maximum(dof, 3.0) / (np.maximum(dof, 3.0) - 2))
    for i, scale in enumerate(estimates.scales):
        theta, variance = estimates.values[:, i], errors[:, i] ** 2
        levels, of_levels = posterior.levels[:, i], posterior.cov[:, i, i]
        shared: FloatArray | float = 0.0
        if posterior.shared is not None:
            of_levels = of_levels - posterior.shared
        point, wide = (
            _within(theta, variance, levels, chances, added=added) for added in (_FOR_ESTIMATES, _FOR_INTERVALS)
        )
        own = point / (point + variance)
        believed = posterior.mean[:, i] + own * (theta - posterior.mean[:, i])
        own = wide / (wide + variance)
        centres = levels + own[:, None] * (theta[:, None] - levels)
        if posterior.shared is not None:  # of a mean of two, no more than the mean of what is shared by each
            beside = np.maximum(estimates.errors[:, i] ** 2 - estimates.own[:, i] ** 2, 0.0)
            shared = (own * beside)[:, None] + (1 - own)[:, None] * posterior.shared
        spreads = np.sqrt(np.maximum((own * variance)[:, None] + (1 - own)[:, None] ** 2 * of_levels + shared, 1e-300))
        low, high = (scale.natural(side * _lower(chances, side * centres, spreads, alpha / 2)) for side in (1, -1))
        shrunken[:, i] = scale.natural(believed)
        lower[:, i], upper[:, i] = np.minimum(low, shrunken[:, i]), np.maximum(high, shrunken[:, i])
    return Belief(chances, membership, possible_of(chances, labels, alpha), shrunken, lower, upper)


def _within(theta: FloatArray, variance: FloatArray, levels: FloatArray, chances: FloatArray, *, added: float) -> float:
    """τ², the variance of effects about the level of their cluster, plus so many of its standard errors."""
    freedom = len(theta) - len(levels)
    if freedom < 1:
        return 0.0
    weight = variance.min() / variance
    mass = np.maximum(chances.T @ weight, 1e-300)
    total = float(weight.sum() - np.sum((chances.T @ weight**2) / mass)) / float(variance.min())
    if not total > 0:
        return 0.0
    scatter = float(np.sum(chances * (theta[:, None] - levels) ** 2 / variance[:, None]))
    return float(max(0.0, (scatter - freedom + added * np.sqrt(2 * freedom)) / total))


def _lower(chances: FloatArray, centres: FloatArray, spreads: FloatArray, share: float) -> FloatArray:
    """Where the mixture of normal laws of every group has this small share below it, by halving."""
    reach = -ndtri(share) * spreads
    low, high = (centres - reach).min(axis=1), centres.max(axis=1)
    sure = chances.max(axis=1) > 1 - 1e-9
    if chances.shape[1] == 1 or sure.all():
        best = np.argmax(chances, axis=1)[:, None]
        centre, spread = (np.take_along_axis(part, best, axis=1)[:, 0] for part in (centres, spreads))
        return np.asarray(centre + ndtri(share) * spread)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = np.sum(chances * ndtr((middle[:, None] - centres) / spreads), axis=1) < share
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


def possible_of(chances: FloatArray, labels: IntArray, alpha: float) -> BoolArray:
    """The likeliest clusters of every group that together have a chance of 1 − α, and the one it is shown in."""
    order = np.argsort(-chances, axis=1, kind="stable")
    reached = np.cumsum(np.take_along_axis(chances, order, axis=1), axis=1)
    before = np.concatenate((np.zeros((len(chances), 1)), reached[:, :-1]), axis=1)
    made = np.zeros(chances.shape, dtype=bool)
    np.put_along_axis(made, order, before < 1 - alpha, axis=1)
    made[np.arange(len(labels)), labels] = True
    return made
