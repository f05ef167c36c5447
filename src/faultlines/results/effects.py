"""Effects of a partition: of its clusters, of each group (posterior, against the rest), and of attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import ndtr, ndtri

from faultlines import checks
from faultlines.core.comparison import AS_GOOD_AS_KNOWN, Comparison, PooledEffects, generator
from faultlines.core.distributions import log_chi_square_tail, log_t_tail, log_two_sided, shrink_scales
from faultlines.core.mixture import MixturePosterior, fit_posterior
from faultlines.core.normal import CorrelatedNoise, covariance_of_means
from faultlines.core.shrinkage import shrink
from faultlines.estimates.estimates import Estimates, plain
from faultlines.estimates.labels import Label, labels_of
from faultlines.estimates.scales import Scale, critical_value
from faultlines.guarantees.attributes import explain_variation
from faultlines.guarantees.base import MarginLevels
from faultlines.guarantees.joint_test import GroupEffects, extract_effects
from faultlines.guarantees.margins import add_small_groups, attribute_codes
from faultlines.metrics.base import Measured
from faultlines.metrics.readout import Readout
from faultlines.results.multiplicity import CORRECTIONS, Correction, corrected
from faultlines.results.protocol import probability
from faultlines.types import BoolArray, FloatArray, IntArray

# ---------- One effect as people read it.


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect of a cluster as people read it: estimate, standard error, interval.

    Attributes:
        estimate: The effect.
        se: Its standard error.
        lower: Lower end of its interval.
        upper: Upper end.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> one = found.clusters[1].effects[0]
        >>> one.estimate, one.se, round(one.lower, 2), round(one.upper, 2)
        (5.0, 0.5, 4.02, 5.98)
    """

    estimate: float
    se: float
    lower: float
    upper: float


# ---------- The effect on the people of a cluster, as a plain readout of their rows would give it.


def observed_effects(
    estimates: Estimates | None, clusters: IntArray, count: int, alpha: float, readout: Readout | None
) -> list[tuple[Effect, ...]]:
    """Every effect of every cluster; none of a cluster for which it is not known.

    Args:
        estimates: Estimates of the groups.
        clusters: The cluster of each group, from 0 on.
        count: How many there are.
        alpha: One less the level of the intervals.
        readout: The moments behind the estimates. Without them, effects are weighted by the sizes of the groups.
    """
    if estimates is None:
        return [()] * count
    together = None if readout is None else readout.together(clusters, count)
    if together is not None:
        return _read(estimates, together, alpha)
    if estimates.n is None:
        return [()] * count
    return _weighted(estimates, clusters, count, alpha)


def pooled_effects(
    estimates: Estimates, clusters: IntArray, count: int, alpha: float, together: Measured | None
) -> list[tuple[tuple[Effect, ...], tuple[float, ...]]]:
    """Effects of all rows of each cluster, and log p of "this effect is zero" for each of them.

    Args:
        estimates: Estimates of the groups, of an effect that can be zero.
        clusters: The cluster of each group, from 0 on.
        count: How many there are.
        alpha: One less the level of the intervals.
        together: What was measured in all rows of each cluster; None: groups' effects are weighted by their sizes.
    """
    if together is None:
        effects = _weighted(estimates, clusters, count, alpha)
        return [(row, tuple(float(log_two_sided(np.array(e.estimate / e.se), None)) for e in row)) for row in effects]
    theta, se = (np.reshape(part, (len(together.n), -1)) for part in (together.theta, together.se))
    dof = None if together.dof is None else np.reshape(together.dof, (len(together.n), -1))
    with np.errstate(all="ignore"):
        log_p = log_two_sided(theta / se, dof)
    return list(zip(_read(estimates, together, alpha), map(tuple, log_p.tolist()), strict=True))


def _read(estimates: Estimates, together: Measured, alpha: float) -> list[tuple[Effect, ...]]:
    """What the metric is in the rows of each cluster."""
    theta, se, natural = (np.reshape(a, (len(together.n), -1)) for a in (together.theta, together.se, together.natural))
    reach = critical_value(alpha / 2, together.dof)
    columns = []
    for i, scale in enumerate(estimates.scales):
        with np.errstate(all="ignore"):
            ends = [scale.natural(theta[:, i] + side * reach * se[:, i]) for side in (-1, 1)]
            errors = se[:, i] * scale.slope(theta[:, i])
        columns.append((natural[:, i], errors, np.fmin(ends[0], natural[:, i]), np.fmax(ends[1], natural[:, i])))
    return _effects(columns)


def _weighted(estimates: Estimates, clusters: IntArray, count: int, alpha: float) -> list[tuple[Effect, ...]]:
    """Effects of the groups, weighted by their sizes."""
    sizes = np.ones(len(estimates)) if estimates.n is None else estimates.n
    share = sizes / np.bincount(clusters, sizes, count)[clusters]
    errors = estimates.readable_errors(estimates.given, estimates.errors)
    columns = []
    for i in range(estimates.dims):
        value = np.asarray(np.bincount(clusters, share * estimates.shown[:, i], count), dtype=np.float64)
        error = np.sqrt(np.bincount(clusters, (share * errors[:, i]) ** 2, count))
        if estimates.covariance is not None:
            slope = errors[:, i] / estimates.errors[:, i]
            error = np.sqrt(
                np.diagonal(covariance_of_means(estimates.covariance * slope[:, None] * slope, sizes, clusters))
            )
        reach = -ndtri(alpha / 2) * error
        columns.append((value, error, value - reach, value + reach))
    return _effects(columns)


def _effects(columns: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]) -> list[tuple[Effect, ...]]:
    """Effects of every cluster, (estimate, se, lower, upper) of each; none where one is not a number."""
    effects = []
    for rows in zip(*(zip(*(part.tolist() for part in column), strict=True) for column in columns), strict=True):
        finite = all(np.isfinite(row).all() for row in rows)
        effects.append(tuple(Effect(*row) for row in rows) if finite else ())
    return effects


# ---------- Intervals that hold for clusters chosen in any way from the same data.


_NUMBERS, _MOST, _LEAST = 4_000_000, 4000, 40  # numbers to be drawn; draws at most and at least
_COUNTED = 400  # draws from which on the quantile is one of them


def any_cluster(
    errors: FloatArray, dof: FloatArray | None, alpha: float, covariance: FloatArray | None = None
) -> float:
    """How many standard errors the mean of any set of groups is off at most, with probability 1 − α.

    The largest |Σ w ε|/√(Σ w) of noise over all sets of groups, w = 1/se². Of any noise the best set is a run from one
    end in the order of the noise, so each draw takes one sort. Whatever chose a cluster chose one of these sets.

    Args:
        errors: Standard errors of the groups.
        dof: The degrees of freedom behind them, where they are estimates.
        alpha: One less the level.
        covariance: That of groups that share data; `errors` are then what each mean is measured in.
    """
    scaled = errors / errors.min()
    freedom = b"" if dof is None else np.minimum(dof, AS_GOOD_AS_KNOWN).tobytes()
    drawn = _largest(
        scaled.tobytes(), freedom, b"" if covariance is None else (covariance / errors.min() ** 2).tobytes()
    )
    if len(drawn) < _COUNTED:  # of very many groups the largest hardly varies
        return float(drawn.mean() + (0.5 - ndtri(alpha)) * drawn.std(ddof=1))
    place = int(np.ceil((len(drawn) + 1) * (1 - alpha))) - 1
    if place >= len(drawn):
        return float(drawn[-1] + (0.5 - ndtri(alpha) + ndtri(1 / len(drawn))) * drawn.std(ddof=1))
    return float(drawn[place])


@lru_cache(maxsize=8)
def _largest(errors: bytes, dof: bytes, covariance: bytes) -> FloatArray:
    """Draws of the largest distance, sorted."""
    scales = np.frombuffer(errors)
    freedom = np.frombuffer(dof) if dof else None
    shared = CorrelatedNoise.from_covariance(np.frombuffer(covariance).reshape(scales.size, -1)) if covariance else None
    of_all = shared is not None and freedom is not None and np.ptp(freedom) == 0
    truth = shrink_scales(scales, None if of_all else freedom)
    draws = int(np.clip(_NUMBERS // scales.size, _LEAST, _MOST))
    rows = max(1, min(draws, 2**20 // scales.size))
    distances: list[FloatArray] = []
    for number in range(-(-draws // rows)):
        rng = generator(0, number)
        normal = rng.standard_normal((rows, scales.size))
        noise = truth * normal if shared is None else shared.noise(normal) * (truth / scales)
        weight = np.broadcast_to(truth**-2.0, noise.shape)
        if freedom is not None and not of_all:
            weight = weight / (rng.standard_gamma(freedom / 2, size=noise.shape) / (freedom / 2))
        farthest = _farthest(noise, weight)
        if freedom is not None and of_all:
            farthest /= np.sqrt(rng.standard_gamma(freedom[0] / 2, size=rows) / (freedom[0] / 2))
        distances.append(farthest)
    drawn = np.sort(np.concatenate(distances)[:draws])
    drawn.setflags(write=False)
    return drawn


def _farthest(noise: FloatArray, weight: FloatArray) -> FloatArray:
    """The largest |Σ w ε|/√(Σ w) over all sets of groups, of every row."""
    order = np.argsort(noise, axis=1)
    weight = np.take_along_axis(weight, order, axis=1)
    pulled = weight * np.take_along_axis(noise, order, axis=1)
    sides = [
        np.abs(np.cumsum(p, axis=1)) / np.sqrt(np.cumsum(w, axis=1))
        for p, w in ((pulled, weight), (pulled[:, ::-1], weight[:, ::-1]))
    ]
    return np.asarray(np.maximum(*(side.max(axis=1) for side in sides)))


# ---------- Effects of clusters, and what is known of their groups.


_MOST_MEMBERSHIPS = 2 * 10**7  # groups times clusters beyond which no membership is computed

Effects = list[tuple[Effect, ...]]


@dataclass(frozen=True, eq=False)
class ClusterEffects:
    """Effects of clusters, each reading computed when first asked for and once.

    Attributes:
        groups: The groups.
        clusters: The cluster of each, from 0 on by rising effect.
        alpha: One less the level of intervals.
        readout: The moments behind the estimates, where rows were given.
        fixed: Whether the clusters were chosen by other data, so that plain means and their intervals hold.
        all_people: Whether these are all groups as one, whose effect is that on all their people.
        levels: The levels of some attributes, where clusters are unions of these.
    """

    groups: Comparison
    clusters: IntArray
    alpha: float
    readout: Readout | None = None
    fixed: bool = False
    all_people: bool = False
    levels: MarginLevels | None = None

    @cached_property
    def by_levels(self) -> ClusterEffects | None:
        """The same clusters of levels, where clusters are unions of levels of some attributes."""
        if self.levels is None:
            return None
        first = np.unique(self.levels.codes, return_index=True)[1]
        return ClusterEffects(self.levels.comparison, self.clusters[first], self.alpha, fixed=self.fixed)

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
        if self.by_levels is not None:
            return self.by_levels.mixed
        if self.count == 1 or self.fixed or self.groups.tolerance > 0:
            return False
        return self.mixture is not None and not self.mixture.certain

    def at(self, alpha: float) -> ClusterEffects:
        """The same with intervals at another level."""
        if alpha == self.alpha:
            return self
        effects = replace(self, alpha=alpha)
        effects.share(self)
        return effects

    def share(self, other: ClusterEffects) -> None:
        """Take what does not depend on α from the same clusters at another significance level, fitted there once.

        The same clusters of cells may be unions of levels of other attributes there: by country at one level, by
        country × device at another.
        """
        self.__dict__.update(mixture=other.mixture, means=other.means)
        if self.by_levels is None or other.by_levels is None or self.levels is None or other.levels is None:
            return
        if self.levels.attributes == other.levels.attributes:
            self.by_levels.share(other.by_levels)

    @cached_property
    def means(self) -> PooledEffects | None:
        """Precision-weighted means of the clusters."""
        return self.groups.pool(self.clusters)

    @cached_property
    def mixture(self) -> MixturePosterior | None:
        """Effects of the clusters as a mixture, and where each group belongs; none of too many clusters."""
        if self.estimates is None or self.means is None or self.count * self.clusters.size > _MOST_MEMBERSHIPS:
            return None
        return fit_posterior(self.estimates, self.clusters)

    @cached_property
    def possible(self) -> BoolArray | None:
        """Which clusters every group may belong to at 1 − α, (K, m); the part of `posterior` that is quick."""
        if self.by_levels is not None and self.levels is not None:
            possible = self.by_levels.possible
            return None if possible is None else possible[self.levels.codes]
        return None if self.mixture is None else possible_of(self.mixture.membership, self.clusters, self.alpha)

    @cached_property
    def posterior(self) -> GroupPosterior | None:
        """Membership probabilities and shrunken estimates of every group."""
        if self.estimates is None:
            return None
        is_crossed = len(self.groups.attributes) > 1 and len(self.estimates) > 2
        if self.by_levels is not None and self.levels is not None:
            of_levels = self.by_levels.posterior
            return None if of_levels is None else self._along_attributes(of_levels.select(self.levels.codes))
        if self.mixture is None:
            return None
        posterior = group_posterior(self.estimates, self.mixture, self.clusters, self.alpha)
        return self._along_attributes(posterior) if is_crossed else posterior

    def _along_attributes(self, posterior: GroupPosterior) -> GroupPosterior:
        """The posterior with estimates that are shrunken along the attributes."""
        estimates = self.groups.estimates
        if estimates is None:
            return posterior
        variance = estimates.own**2
        if estimates.dof is not None:  # a standard error that is an estimate is less certain
            dof = np.clip(estimates.dof, 3.0, AS_GOOD_AS_KNOWN)
            variance = variance * (dof / (dof - 2))[:, None]
        codes = attribute_codes(self.groups.keys, len(self.groups.attributes))
        parts = [
            shrink(estimates.values[:, part], variance[:, part], codes, self.clusters, self.alpha)
            for part in range(estimates.dims)
        ]
        mean, lower, upper = (
            estimates.readable(np.column_stack([getattr(part, name) for part in parts]))
            for name in ("mean", "lower", "upper")
        )
        return replace(posterior, shrunken=mean, lower=lower, upper=upper)

    @cached_property
    def effects(self) -> Effects:
        """Every effect of every cluster: levels of the mixture, or means; none without estimates."""
        if self.all_people and any(self.observed):
            return self.observed
        if self.by_levels is not None:
            return self.by_levels.effects
        if self.estimates is None or self.means is None:
            return [()] * self.count
        if not self.mixed or self.mixture is None:
            levels = self.means
            return self._plain(critical_value(self.alpha / 2, levels.dof))
        ends = self.mixture.intervals(self.alpha)
        columns, chances = [], self.mixture.membership
        for i, scale in enumerate(self.estimates.scales):
            level, error = self.mixture.effects[:, i], self.mixture.errors[:, i]
            shift = natural_shift = np.zeros(level.size)
            if scale.is_share:
                middle, pooled, share = self._shares(i, scale, lambda each: each @ chances)
                shift, natural_shift = pooled - middle, scale.place(share) - middle
            lower, upper = (scale.natural(end[:, i] + shift) for end in ends)
            columns.append((scale.natural(level + natural_shift), error * scale.slope(level + shift), lower, upper))
        return _listed(columns)

    @cached_property
    def simultaneous(self) -> Effects:
        """Intervals that hold for clusters chosen in any way from the same data; about the plain means."""
        if self.estimates is None or self.means is None:
            return [()] * self.count
        estimates, dims = self.estimates, self.estimates.dims
        each = self.alpha / dims
        if self.fixed:  # only for how many clusters there are
            tail = -np.expm1(np.log1p(-each) / self.count) / 2
            return self._plain(critical_value(tail, self.means.dof))
        widths = [any_cluster(estimates.own[:, i], estimates.dof, each, estimates.covariance) for i in range(dims)]
        if estimates.covariance is None:
            return self._plain(np.array(widths)[:, None])
        # Means are measured in their groups' own noise, whatever they share, so that one width holds for any cluster.
        own = self._sums((estimates.own[:, 0].min() / estimates.own[:, 0]) ** 2) ** -0.5 * estimates.own[:, 0].min()
        return self._plain(np.asarray(widths[0] * own / self.means.errors[:, 0]))

    @cached_property
    def observed(self) -> Effects:
        """Every effect on the rows of every cluster."""
        return observed_effects(self.estimates, self.clusters, self.count, self.alpha, self.readout)

    def _plain(self, reach: FloatArray) -> Effects:
        """Precision-weighted means, with intervals of `reach` standard errors: for all, by cluster, or effects × 1."""
        estimates, levels = self.estimates, self.means
        if estimates is None or levels is None:
            return [()] * self.count
        columns = []
        for i, scale in enumerate(estimates.scales):
            values, natural = levels.values[:, i], scale.natural(levels.values[:, i])
            if scale.is_share:
                _, values, natural = self._shares(i, scale, self._sums)
            errors = levels.errors[:, i]
            wide = (reach[i] if reach.ndim > 1 else reach) * errors
            # Where there are no events at all, the interval of the scale begins a little above their share of zero.
            ends = (
                np.minimum(scale.natural(values - wide), natural),
                np.maximum(scale.natural(values + wide), natural),
            )
            columns.append((natural, errors * scale.slope(values), *ends))
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
        rates = total(trials * estimates.shown[:, effect]) / mass
        middle = total(weight * estimates.values[:, effect]) / np.maximum(total(weight), 1e-300)
        return np.asarray(middle), scale.pooled(rates, mass), np.asarray(rates)


def _listed(columns: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]) -> Effects:
    """Effects of every cluster from (estimate, se, lower, upper) of each effect."""
    effects = []
    for estimate, error, lower, upper in columns:
        ends = (np.minimum(lower, estimate), np.maximum(upper, estimate))
        effects.append([Effect(*row) for row in zip(*(a.tolist() for a in (estimate, error, *ends)), strict=True)])
    return list(zip(*effects, strict=True))


# ----------------------------------------------------------------------------------------------------------- posteriors
# The posterior of each group: its membership probabilities and its shrunken estimate.

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
    """τ², the variance of effects about the level of their cluster, plus a number of its standard errors."""
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


# ----------------------------------------------------------------------------------------------------------- attributes
# Which attributes matter: how much of the variation between groups goes with each, and its tests.

COMBINATIONS = "(combinations)"


@dataclass(frozen=True, slots=True)
class Explained:
    """How much of the variation between groups goes with an attribute, noise taken off.

    Tests are those of fixed effects: weighted least squares on the groups, with χ² where standard errors are known and
    F with the degrees of freedom behind them where they are estimates.

    Attributes:
        attribute: Its name; or `COMBINATIONS`, for what the attributes do not explain one by one.
        levels: How many it has; the number of groups for combinations.
        share: The share of the variation that its levels account for when nothing else is looked at, 0 … 1.
        lower: Lower end of the 95% interval of that share.
        upper: Upper end.
        share_beside: The share that it adds to the other attributes.
        pvalue: The p of "its levels do not differ, the other attributes held fixed".
        pvalue_adj: The same adjusted for the number of attributes (Holm).
        pvalue_alone: The p of "its levels do not differ", with nothing else looked at.
        dof: Degrees of freedom of the test beside the others.
        part: Which of several effects; empty for a single one.

    Example:
        >>> import faultlines as fl
        >>> labels = [(country, device) for country in ("DE", "FR", "IN") for device in ("app", "web")]
        >>> both = fl.Estimates([0.0, 1.0, 0.1, 1.2, 5.0, 6.1], [0.1] * 6, labels, attributes=["country", "device"])
        >>> for row in fl.cluster(both).explained():
        ...     print(row.attribute, row.levels, round(row.share, 2), row.pvalue < 0.001)
        country 3 0.95 True
        device 2 0.05 True
        (combinations) 6 0.0 False
    """

    attribute: str
    levels: int
    share: float
    lower: float
    upper: float
    share_beside: float
    pvalue: float
    pvalue_adj: float
    pvalue_alone: float
    dof: float
    part: str = ""


def explain_attributes(comparison: Comparison) -> tuple[Explained, ...]:
    """The share of the variation that each attribute accounts for, with its tests; nothing for one attribute.

    Args:
        comparison: The groups.

    Returns:
        A row for each attribute and one for combinations, for each effect.
    """
    estimates, names = comparison.estimates, comparison.attributes
    if estimates is None or len(names) < 2 or len(estimates) < 3:
        return ()
    of_cells = attribute_codes(comparison.keys, len(names))
    comparison, codes = add_small_groups(comparison, of_cells)
    rows: list[Explained] = []
    for part in range(estimates.dims):
        if estimates.dims == 1:
            effects = extract_effects(comparison)
        else:  # one effect at a time, by its own standard errors
            unit = float(estimates.own[:, part].min())
            theta = (estimates.values[:, part] - estimates.values[0, part]) / unit
            effects = GroupEffects(theta, estimates.own[:, part] / unit, estimates.dof)
        shares = explain_variation(effects, codes)
        log_p = np.array([row.beside.log_p for row in shares])
        adjusted = corrected(log_p, 0.05, "holm")[0]
        for row, own, adj in zip(shares, log_p.tolist(), adjusted.tolist(), strict=True):
            rows.append(
                Explained(
                    COMBINATIONS if row.attribute is None else names[row.attribute],
                    len(of_cells) if row.attribute is None else int(of_cells[:, row.attribute].max()) + 1,
                    row.share,
                    *row.interval,
                    row.share_beside,
                    probability(own),
                    probability(adj),
                    probability(row.alone.log_p),
                    float(row.beside.effects),
                    estimates.parts[part] if estimates.parts else "",
                )
            )
    return tuple(rows)


# ------------------------------------------------------------------------------------------ each group against the rest
# Each group against all the others together: how far it is from them, and how surely.


@dataclass(frozen=True, slots=True)
class AgainstRest:
    """One group against all the others.

    Attributes:
        label: The group.
        difference: Its effect less that of the others together, as people read it; a tuple for several effects.
        lower: Lower end of its interval, at the level 1 − α for all groups together.
        upper: Upper end.
        pvalue: The p of "no difference from the others", adjusted for the number of groups.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> one = found.against_rest()[2]
        >>> one.label, round(one.difference, 2), one.pvalue < 0.001
        ('IN', 4.95, True)
    """

    label: Label
    difference: float | tuple[float, ...]
    lower: float | tuple[float, ...]
    upper: float | tuple[float, ...]
    pvalue: float


@dataclass(frozen=True, slots=True, eq=False)
class RestComparison:
    """All groups, each against the others: differences and ends of their intervals (K, d), adjusted log p (K,)."""

    difference: FloatArray
    lower: FloatArray
    upper: FloatArray
    log_pvalues: FloatArray


def compare_with_rest(estimates: Estimates, alpha: float, correction: Correction = "holm") -> RestComparison:
    """Every group against the precision-weighted mean of all the others.

    The p are adjusted by Holm, or by Benjamini and Hochberg. Intervals hold for all groups together (Šidák), whatever
    the correction.

    Args:
        estimates: The groups.
        alpha: One less the level of the intervals.
        correction: ``"holm"``: the probability of any false positive. ``"bh"``: their expected share.
    """
    checks.choice("correction", correction, CORRECTIONS, "Use 'holm' or 'bh'.")
    groups, dims = estimates.values.shape
    if groups < 2:
        none = np.full((groups, dims), np.nan)
        return RestComparison(none, none, none, np.zeros(groups))
    others, of_others = _others(estimates)
    own = estimates.covariances
    gap, spread = estimates.values - others, own + of_others
    if estimates.covariance is not None:
        spread = _shared(estimates.covariance, estimates.own[:, 0] ** -2.0)
    errors = np.sqrt(np.diagonal(spread, axis1=1, axis2=2))
    if dims == 1 and estimates.dof is not None:
        # Welch and Satterthwaite; the others together are known much better than one of them.
        share = own[:, 0, 0] / spread[:, 0, 0]
        of_rest = float(max(np.sum(np.sort(np.minimum(estimates.dof, AS_GOOD_AS_KNOWN))[:-1]), 1.0))
        dof = 1 / np.maximum(share**2 / estimates.dof + (1 - share) ** 2 / of_rest, 1 / AS_GOOD_AS_KNOWN)
        if estimates.covariance is not None:  # no group is known better than the worst of them
            dof = np.full(groups, float(estimates.dof.min()))
        log_p = np.where(gap[:, 0] == 0, 0.0, log_t_tail(np.abs(gap[:, 0]) / errors[:, 0], dof))
        reach = critical_value(_each(alpha, groups) / 2, dof)[:, None]
    else:
        square = np.einsum("ki,kij,kj->k", gap, np.linalg.inv(spread), gap)
        log_p = log_chi_square_tail(square, dims)
        reach = np.full((groups, 1), -ndtri(_each(alpha, groups * dims) / 2))
    adjusted, _ = corrected(np.minimum(log_p, 0.0), alpha, correction)
    difference = estimates.shown - estimates.readable(others)
    # In what people read the interval has the width it has where the group and the others meet.
    middle = (estimates.values + others) / 2
    wide = reach * estimates.readable_errors(middle, errors)
    return RestComparison(difference, difference - wide, difference + wide, adjusted)


def _each(alpha: float, count: int) -> float:
    """The level of one interval when `count` of them hold together with 1 − α (Šidák)."""
    return float(-np.expm1(np.log1p(-alpha) / count))


def _others(estimates: Estimates) -> tuple[FloatArray, FloatArray]:
    """The precision-weighted mean of all groups but one, for each of them, and its covariance."""
    centre = estimates.values[len(estimates) // 2]
    values = estimates.values - centre
    own = estimates.covariances if estimates.covariance is None else estimates.own[:, :, None] ** 2
    weight: FloatArray = np.asarray(np.linalg.inv(own), dtype=np.float64)
    moment: FloatArray = np.einsum("kij,kj->ki", weight, values)
    covariance: FloatArray = np.asarray(np.linalg.inv(of_others(weight)), dtype=np.float64)
    return np.einsum("kij,kj->ki", covariance, of_others(moment)) + centre, covariance


def _shared(covariance: FloatArray, weight: FloatArray) -> FloatArray:
    """Variances of each group less the mean of the others, (K, 1, 1), where groups share data."""
    size = len(covariance)
    contrast = np.eye(size) - np.where(np.eye(size, dtype=bool), 0.0, weight) / of_others(weight)[:, None]
    return np.asarray(np.einsum("ij,ij->i", contrast @ covariance, contrast)[:, None, None])


def of_others(parts: FloatArray) -> FloatArray:
    """For each part, the sum of all the others.

    Sums from both sides, not the total less one: where one group holds nearly all weight, that would be rounding.
    """
    sums = np.zeros(parts.shape)
    np.cumsum(parts[:-1], axis=0, out=sums[1:])
    sums[:-1] += np.cumsum(parts[:0:-1], axis=0)[::-1]
    return sums


def against_rest(estimates: Estimates, alpha: float, correction: Correction) -> tuple[AgainstRest, ...]:
    """Every group against the others, as values."""
    rest = compare_with_rest(estimates, alpha, correction)
    pvalues = np.maximum(np.exp(rest.log_pvalues), np.nextafter(0.0, 1.0)).tolist()
    columns = zip(rest.difference.tolist(), rest.lower.tolist(), rest.upper.tolist(), pvalues, strict=True)
    return tuple(
        AgainstRest(label, plain(gap), plain(low), plain(high), p)
        for label, (gap, low, high, p) in zip(labels_of(estimates.keys), columns, strict=True)
    )
