"""The posterior of each group: its membership probabilities and its shrunken estimate."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr, ndtri

from faultlines.core.comparison import AS_GOOD_AS_KNOWN

if TYPE_CHECKING:
    from faultlines.core.mixture import MixturePosterior
    from faultlines.estimates.estimates import BoolArray, Estimates, IntArray
    from faultlines.estimates.scales import FloatArray

_FOR_ESTIMATES, _FOR_INTERVALS = -0.5, 1.0  # standard errors added to what may differ within clusters
_HALVINGS = 50


@dataclass(frozen=True, slots=True, eq=False)
class GroupPosterior:
    """Membership probabilities and shrunken estimates of K groups.

    Attributes:
        probabilities: The probability that a group belongs to each of the m clusters, (K, m).
        membership: The probability that it belongs to the cluster it is shown in, (K,).
        possible: Whether it may belong to each of the clusters at the level 1 − α, (K, m).
        shrunken: Its shrunken estimate, as people read it, (K, d).
        lower: Lower end of its interval, (K, d).
        upper: Upper end, (K, d).

    Example:
        >>> import faultlines as fl
        >>> posterior = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"])).posterior
        >>> posterior.probabilities.shape, posterior.membership.round(2).tolist(), posterior.certain.tolist()
        ((3, 2), [1.0, 1.0, 1.0], [True, True, True])
        >>> posterior.select([2]).shrunken.round(1).tolist()
        [[5.0]]
    """

    probabilities: FloatArray
    membership: FloatArray
    possible: BoolArray
    shrunken: FloatArray
    lower: FloatArray
    upper: FloatArray

    def select(self, places: IntArray) -> GroupPosterior:
        """The posterior of some groups, or of cells by their levels.

        Args:
            places: Which groups, by number; a group may be named more than once.

        Returns:
            Their posterior.
        """
        return GroupPosterior(*(getattr(self, field.name)[places] for field in fields(self)))

    @property
    def certain(self) -> BoolArray:
        """Whether a group can belong to no other cluster than the one it is shown in."""
        return is_certain(self.possible)


def is_certain(possible: BoolArray) -> BoolArray:
    """Whether groups can belong to one cluster only."""
    return np.asarray(possible.sum(axis=1) == 1)


def group_posterior(
    estimates: Estimates, posterior: MixturePosterior, labels: IntArray, alpha: float
) -> GroupPosterior:
    """The posterior of every group, with the clusters taken as a mixture.

    Groups of a cluster need not be quite equal, and clusters may have been missed. So their effects are taken to be
    spread about the level of their cluster with a variance τ², which follows from how far the estimates are from the
    levels (DerSimonian and Laird, over clusters by probability). The intervals allow for one standard error more of it:
    they cover on average also where clusters were missed.

    Args:
        estimates: The groups.
        posterior: Effects of the clusters, and where each group belongs.
        labels: The cluster each group is shown in, numbered from 0.
        alpha: One less the level of sets and intervals.
    """
    probabilities = posterior.membership
    membership = probabilities[np.arange(len(labels)), labels]
    shrunken, lower, upper = (np.empty(estimates.values.shape) for _ in range(3))
    errors = estimates.own
    if estimates.dof is not None:  # a standard error that is an estimate is less sure
        dof = np.minimum(estimates.dof, AS_GOOD_AS_KNOWN)[:, None]
        errors = errors * np.sqrt(np.maximum(dof, 3.0) / (np.maximum(dof, 3.0) - 2))
    for i, scale in enumerate(estimates.scales):
        theta, variance = estimates.values[:, i], errors[:, i] ** 2
        levels, of_levels = posterior.effects[:, i], posterior.covariances[:, i, i]
        shared: FloatArray | float = 0.0
        if posterior.shared is not None:
            of_levels = of_levels - posterior.shared
        point, wide = (
            _within(theta, variance, levels, probabilities, added=added) for added in (_FOR_ESTIMATES, _FOR_INTERVALS)
        )
        own = point / (point + variance)
        estimate = posterior.mean[:, i] + own * (theta - posterior.mean[:, i])
        own = wide / (wide + variance)
        centres = levels + own[:, None] * (theta[:, None] - levels)
        if posterior.shared is not None:  # of a mean of two, no more than the mean of what is shared by each
            between = np.maximum(estimates.errors[:, i] ** 2 - estimates.own[:, i] ** 2, 0.0)
            shared = (own * between)[:, None] + (1 - own)[:, None] * posterior.shared
        spreads = np.sqrt(np.maximum((own * variance)[:, None] + (1 - own)[:, None] ** 2 * of_levels + shared, 1e-300))
        low, high = (
            scale.natural(side * _lower(probabilities, side * centres, spreads, alpha / 2)) for side in (1, -1)
        )
        shrunken[:, i] = scale.natural(estimate)
        lower[:, i], upper[:, i] = np.minimum(low, shrunken[:, i]), np.maximum(high, shrunken[:, i])
    return GroupPosterior(probabilities, membership, possible_of(probabilities, labels, alpha), shrunken, lower, upper)


def _within(
    theta: FloatArray, variance: FloatArray, levels: FloatArray, probabilities: FloatArray, *, added: float
) -> float:
    """τ², the variance of effects about the level of their cluster, plus so many of its standard errors."""
    freedom = len(theta) - len(levels)
    if freedom < 1:
        return 0.0
    weight = variance.min() / variance
    mass = np.maximum(probabilities.T @ weight, 1e-300)
    total = float(weight.sum() - np.sum((probabilities.T @ weight**2) / mass)) / float(variance.min())
    if not total > 0:
        return 0.0
    scatter = float(np.sum(probabilities * (theta[:, None] - levels) ** 2 / variance[:, None]))
    return float(max(0.0, (scatter - freedom + added * np.sqrt(2 * freedom)) / total))


def _lower(probabilities: FloatArray, centres: FloatArray, spreads: FloatArray, share: float) -> FloatArray:
    """Where the mixture of normal laws of every group has this small share below it, by halving."""
    reach = -ndtri(share) * spreads
    low, high = (centres - reach).min(axis=1), centres.max(axis=1)
    certain = probabilities.max(axis=1) > 1 - 1e-9
    if probabilities.shape[1] == 1 or certain.all():
        best = np.argmax(probabilities, axis=1)[:, None]
        centre, spread = (np.take_along_axis(part, best, axis=1)[:, 0] for part in (centres, spreads))
        return np.asarray(centre + ndtri(share) * spread)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = np.sum(probabilities * ndtr((middle[:, None] - centres) / spreads), axis=1) < share
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


def possible_of(probabilities: FloatArray, labels: IntArray, alpha: float) -> BoolArray:
    """The likeliest clusters of every group that together have a probability of 1 − α, and the one it is shown in."""
    order = np.argsort(-probabilities, axis=1, kind="stable")
    reached = np.cumsum(np.take_along_axis(probabilities, order, axis=1), axis=1)
    before = np.concatenate((np.zeros((len(probabilities), 1)), reached[:, :-1]), axis=1)
    possible = np.zeros(probabilities.shape, dtype=bool)
    np.put_along_axis(possible, order, before < 1 - alpha, axis=1)
    possible[np.arange(len(labels)), labels] = True
    return possible
