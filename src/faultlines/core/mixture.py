"""Clusters as a mixture: what the groups together say about the effect of each cluster, and where each group belongs.

A group belongs to cluster j with probability π_j and has the effect μ_j; its estimate is that plus noise of known
size. To put every group into one cluster and to take the mean of each pushes the clusters apart; the mixture does not,
for a group at a border counts for both. Cluster effects and shares are not known exactly: they are drawn from their
posterior, around the most likely ones, and everything said about effects and groups is averaged over these draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, ndtr, ndtri

from faultlines.core import kernels
from faultlines.core.comparison import AS_GOOD_AS_KNOWN, generator
from faultlines.core.distributions import choose_unit
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.types import FloatArray, IntArray

_ROUNDS, _ENOUGH = 80, 1e-7  # of EM
_MANY = 20_000  # groups from which on EM is cut short
_PRIOR = 1.0  # groups that every cluster is given beforehand, which is a flat prior of the shares
_DRAWS = 1000  # of effects and shares
_WORTH = 4_000_000  # numbers to be computed for all draws; with many more groups the posterior is as good as normal
_FEWEST = 200  # draws below which the normal distribution is taken
_TAIL = (
    5.0  # degrees of freedom of the distribution that effects and shares are drawn from: heavier than their posterior's
)
_CERTAIN = 1 - 1e-9  # membership probability from which on a group is in no other cluster
_IN_REACH = 10.0  # draws that must lie outside an interval whose ends are draws
_RELIABLE = 50.0  # draws that those of unequal weight must be worth
_NEGLIGIBLE = 3.0  # log evidence behind the best from which on a model may be left out: it counts a twentieth
_SAME_CLUSTERS = 0.75  # of the groups that a model leaves in their cluster, below which it is about other clusters


class ScaledGroups(NamedTuple):
    """Effects of K groups, (K, d), what is known of their noise, in units in which it is neither huge nor tiny."""

    values: FloatArray
    precision: FloatArray  # (K, d, d)
    dof: FloatArray | None  # of one effect
    centre: FloatArray  # (d,), which was taken off
    unit: float  # by which was divided


@dataclass(frozen=True, slots=True, eq=False)
class FittedMixture:
    """Clusters as a mixture with known standard errors: effects, shares, and where each group comes from."""

    effects: FloatArray
    shares: FloatArray
    posterior: FloatArray
    log_likelihood: float


@dataclass(frozen=True, slots=True, eq=False)
class MixturePosterior:
    """What is known of m clusters and of where each of K groups belongs.

    Attributes:
        effects: The effects of the clusters, (m, d).
        covariances: Their covariance matrices, (m, d, d).
        draws: Draws of the effects, (r, m, d); none where their distribution is as good as normal.
        weights: What each draw counts, (r,).
        membership: The probability that each group belongs to each cluster, (K, m).
        mean: The expected effect of each group, (K, d).
        shared: What noise that groups share adds to the variance of the effects, (m,); it is part of `covariances`.
    """

    effects: FloatArray
    covariances: FloatArray
    draws: FloatArray
    weights: FloatArray
    membership: FloatArray
    mean: FloatArray
    shared: FloatArray | None = None

    @property
    def certain(self) -> bool:
        """Whether no group could belong to another cluster, so that cluster effects are plain means."""
        return bool(self.membership.max(axis=1).min() > _CERTAIN)

    @property
    def errors(self) -> FloatArray:
        """Standard errors of the effects, (m, d)."""
        return np.sqrt(np.diagonal(self.covariances, axis1=1, axis2=2))

    def intervals(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """The interval of every cluster effect, (m, d): what lies outside has a probability of α/2 on either side.

        Beyond the draws the tails are taken for normal ones.
        """
        if not len(self.weights) or alpha < _IN_REACH * float(np.sum(self.weights**2)):
            wide = -ndtri(alpha / 2) * self.errors
            return self.effects - wide, self.effects + wide
        order = np.argsort(self.draws, axis=0)
        below = np.cumsum(self.weights[order], axis=0)
        rising = np.take_along_axis(self.draws, order, axis=0)
        places = (np.sum(below < alpha / 2, axis=0), np.sum(below <= 1 - alpha / 2, axis=0))
        most = len(self.weights) - 1
        lower, upper = (np.take_along_axis(rising, np.minimum(at, most)[None], axis=0)[0] for at in places)
        return lower, upper


def fit_mixture(theta: FloatArray, se: FloatArray, labels: IntArray, *, free: bool) -> FittedMixture:
    """The mixture of one effect that EM finds from a partition, whose clusters are numbered from 0.

    Args:
        theta: Estimates.
        se: Their standard errors.
        labels: Their clusters.
        free: Whether clusters may have shares of their own; equal ones otherwise.
    """
    weight, count = se**-2.0, int(labels.max()) + 1
    unit = float(weight.max())
    scaled, weight = (theta - theta[0]) * np.sqrt(unit), weight / unit
    effects = np.bincount(labels, weight * scaled, count) / np.bincount(labels, weight, count)
    sizes = np.bincount(labels, minlength=count) if free else np.ones(count)
    shares = sizes / sizes.sum()
    posterior = np.empty((labels.size, count))
    rounds = _ROUNDS if labels.size <= _MANY else _ROUNDS // 5
    log_likelihood = kernels.fit_mixture(scaled, weight, effects, shares, posterior, int(free), rounds, _ENOUGH)
    return FittedMixture(effects / np.sqrt(unit) + theta[0], shares, posterior, float(log_likelihood))


# ---------------------------------------------------------------------------------------- effects, shares and groups


def fit_posterior(estimates: Estimates, labels: IntArray, seed: int = 0) -> MixturePosterior:
    """What the groups say of the clusters of a partition, taken as a mixture, and of where each group belongs.

    Cluster effects have a normal prior as wide as the range of the effects. Shares are equal, or have a flat prior:
    both models count as far as the data speak for them. Draws come from Student's t around the most likely effects and
    shares and are weighted by their likelihood (importance sampling). Where few of them count, as with dozens of
    clusters, and where there are very many groups, the normal distribution is taken. Where no group could belong to
    another cluster, there is nothing to draw: effects are plain means.

    Args:
        estimates: The groups.
        labels: Their clusters, numbered from 0.
        seed: Of the draws.
    """
    posterior = _posterior(_scale_groups(estimates), labels, seed)
    return posterior if estimates.covariance is None else _add_shared_noise(posterior, estimates)


def _add_shared_noise(posterior: MixturePosterior, estimates: Estimates) -> MixturePosterior:
    """With what the groups share: it moves effects together, so it says nothing of clusters, but adds to every error.

    Cluster effects are means of the groups, weighted by their own precision and their membership probabilities, and
    have the covariance of those.
    """
    if estimates.covariance is None:
        return posterior
    weight = posterior.membership * (estimates.own.min() / estimates.own) ** 2
    share = (weight / weight.sum(axis=0)).T
    shared = estimates.covariance - np.diag(estimates.own[:, 0] ** 2)
    added = np.einsum("mi,ij,mj->m", share, shared, share, optimize=True)
    # A cluster effect is never better known than its groups' own noise, a tenth of it at least, allows.
    variance = np.maximum(posterior.covariances[:, 0, 0] + added, posterior.covariances[:, 0, 0] / 10)
    stretch = np.sqrt(variance / posterior.covariances[:, 0, 0])[:, None]
    return replace(
        posterior,
        covariances=variance[:, None, None],
        draws=posterior.effects + stretch * (posterior.draws - posterior.effects),
        shared=variance - posterior.covariances[:, 0, 0],
    )


def _posterior(groups: ScaledGroups, labels: IntArray, seed: int) -> MixturePosterior:
    """What groups say whose noise is their own."""
    free = _fit_model(groups, labels, free=True)
    if free.membership.max(axis=1).min() > _CERTAIN:
        blocks = np.einsum("km,kij->mij", np.round(free.membership), groups.precision)
        return _rescale(_normal_posterior(free, np.linalg.inv(blocks)), groups)
    draws = min(_DRAWS, _WORTH // (2 * free.membership.size))
    models = [free]
    if draws >= _FEWEST:
        equal = _fit_model(groups, labels, free=False)
        # Equal shares cannot describe one outlier among many groups: EM then leaves it and halves the others.
        models += [equal] if np.mean(equal.membership.argmax(axis=1) == labels) >= _SAME_CLUSTERS else []
    information = [_information(groups, model) for model in models]
    for several in (1, 4) if draws >= _FEWEST else ():
        drawn = [
            _draw_from(groups, model, information_of_model, several * draws, seed)
            for model, information_of_model in zip(models, information, strict=True)
        ]
        reliable = [model for model in drawn if 1 / np.sum(model.weights**2) >= _RELIABLE]
        best = max(model.evidence for model in drawn)
        if reliable and max(model.evidence for model in reliable) >= best - _NEGLIGIBLE:
            return _rescale(_average_models(reliable), groups)
    count, dims = free.effects.shape
    inverse = np.linalg.inv(information[0])[: count * dims, : count * dims].reshape(count, dims, count, dims)
    return _rescale(_normal_posterior(free, np.stack([inverse[j, :, j] for j in range(count)])), groups)


def _rescale(posterior: MixturePosterior, groups: ScaledGroups) -> MixturePosterior:
    """In the units of the estimates."""
    unit, centre = groups.unit, groups.centre
    return MixturePosterior(
        posterior.effects * unit + centre,
        posterior.covariances * unit**2,
        posterior.draws * unit + centre,
        posterior.weights,
        posterior.membership,
        posterior.mean * unit + centre,
    )


def _scale_groups(estimates: Estimates) -> ScaledGroups:
    """Effects less a middle one, in a unit near their standard errors."""
    middle = len(estimates) // 2
    unit = choose_unit(estimates.own[:, 0])
    values = (estimates.values - estimates.values[middle]) / unit
    if estimates.effect_covariance is not None:
        precision = np.linalg.inv(estimates.effect_covariance / unit**2)
    else:
        precision = (estimates.own[:, :, None] / unit) ** -2.0 * np.eye(estimates.dims)
    dof = estimates.dof if estimates.dims == 1 else None
    return ScaledGroups(values, np.asarray(precision), dof, estimates.values[middle], unit)


def _squares(groups: ScaledGroups, effects: FloatArray) -> FloatArray:
    """Squared distances of all groups from effects (…, m, d), in standard errors: (…, K, m)."""
    values, precision = groups.values, groups.precision
    dims = values.shape[1]
    distance = [values[:, i, None] - effects[..., None, :, i] for i in range(dims)]
    total = np.zeros_like(distance[0])
    for i in range(dims):
        for j in range(i, dims):
            if precision[:, i, j].any():
                total += precision[:, i, j, None] * distance[i] * distance[j] * (1 if i == j else 2)
    return total


def _log_density(groups: ScaledGroups, effects: FloatArray) -> FloatArray:
    """Log density of all groups at effects, up to a constant of each group: normal, or Student's t."""
    squares = _squares(groups, effects)
    if groups.dof is None:
        return np.asarray(-0.5 * squares)
    dof = np.minimum(groups.dof, AS_GOOD_AS_KNOWN)[:, None]
    return np.asarray(-(dof + 1) / 2 * np.log1p(squares / dof))


def _membership_probabilities(log: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Membership probabilities from their log weights (…, K, m), and the log-likelihood (…,)."""
    most = log.max(axis=-1, keepdims=True)
    probabilities = np.exp(log - most)
    total = probabilities.sum(axis=-1, keepdims=True)
    probabilities /= total
    return probabilities, np.sum(most[..., 0] + np.log(total[..., 0]), axis=-1)


def _precision_factors(groups: ScaledGroups, effects: FloatArray) -> FloatArray:
    """What the precision of a group counts at a cluster effect: less than 1 far out in the tail of Student's t."""
    if groups.dof is None:
        return np.ones((len(groups.values), len(effects)))
    dof = np.minimum(groups.dof, AS_GOOD_AS_KNOWN)[:, None]
    return np.asarray((dof + 1) / (dof + _squares(groups, effects)))


class _FittedModel(NamedTuple):
    """Cluster effects (m, d), shares (m,) and membership probabilities (K, m) at the highest likelihood."""

    effects: FloatArray
    shares: FloatArray
    membership: FloatArray
    free: bool


def _fit_model(groups: ScaledGroups, labels: IntArray, *, free: bool) -> _FittedModel:
    """The model of the highest likelihood that EM finds from a partition."""
    count, size = int(labels.max()) + 1, len(labels)
    probabilities = np.zeros((size, count))
    probabilities[np.arange(size), labels] = 1.0
    if groups.values.shape[1] == 1 and count > 1:  # compiled
        probabilities = fit_mixture(groups.values[:, 0], groups.precision[:, 0, 0] ** -0.5, labels, free=free).posterior
    effects, highest, shares = _weighted_means(groups, probabilities), -np.inf, np.full(count, 1 / count)
    for _ in range(_ROUNDS if size <= _MANY else _ROUNDS // 5):
        if free:
            shares = np.asarray((probabilities.sum(axis=0) + _PRIOR) / (size + _PRIOR * count))
        probabilities, likelihood = _membership_probabilities(np.log(shares) + _log_density(groups, effects))
        if not likelihood - highest > _ENOUGH:
            break
        highest = float(likelihood)
        effects = _weighted_means(groups, probabilities * _precision_factors(groups, effects))
    return _FittedModel(effects, shares, probabilities, free)


def _weighted_means(groups: ScaledGroups, probabilities: FloatArray) -> FloatArray:
    """Means of the groups, weighted by precision and membership probability."""
    weight = np.einsum("km,kij->mij", probabilities, groups.precision)
    moment = np.einsum("km,kij,kj->mi", probabilities, groups.precision, groups.values)
    return np.asarray(np.linalg.solve(weight, moment[..., None])[..., 0])


def _information(groups: ScaledGroups, model: _FittedModel) -> FloatArray:
    """The information of effects and of the logarithms of shares beside that of the last cluster, with their prior's.

    That of groups whose clusters are known, less what is lost because they are not (Louis): the covariance of the
    scores over the clusters that each group may belong to. No direction has less than the prior says.
    """
    effects, shares, probabilities, free = model
    count, dims = effects.shape
    weighted = probabilities * _precision_factors(groups, effects)
    size = count * dims + count - 1
    full, scores = np.zeros((size, size)), np.zeros((len(probabilities), count, size))
    for j in range(count):
        own = slice(j * dims, (j + 1) * dims)
        full[own, own] = np.einsum("k,kij->ij", weighted[:, j], groups.precision)
        pull = np.einsum("kij,kj->ki", groups.precision, groups.values - effects[j])
        scores[:, j, own] = pull * (_precision_factors(groups, effects)[:, j, None] if groups.dof is not None else 1.0)
        scores[:, j, count * dims :] = -shares[:-1]
        if j < count - 1:
            scores[:, j, count * dims + j] += 1.0
    inner = (np.diag(shares) - np.outer(shares, shares))[:-1, :-1]
    full[count * dims :, count * dims :] = len(probabilities) * inner
    mean = np.einsum("km,kms->ks", probabilities, scores)
    lost = np.einsum("km,kms,kmt->st", probabilities, scores, scores) - mean.T @ mean
    prior = np.zeros((size, size))
    prior[: count * dims, : count * dims] = np.diag(np.tile(_effect_range(groups) ** -2.0, count))
    prior[count * dims :, count * dims :] = _PRIOR * count * inner
    parameters = size if free else count * dims
    full, lost, prior = full[:parameters, :parameters], lost[:parameters, :parameters], prior[:parameters, :parameters]
    # In units of the prior, so that what the data lose can be distinguished from what they do not have.
    root = np.linalg.cholesky(prior)
    scaled = np.linalg.solve(root, np.linalg.solve(root, full - lost).T)
    values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
    from_data = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return np.asarray(root @ (from_data + np.eye(parameters)) @ root.T)


def _effect_range(groups: ScaledGroups) -> FloatArray:
    """How far the effects lie apart, (d,): no cluster effect is farther from their middle than about that."""
    return np.asarray(np.maximum(np.ptp(groups.values, axis=0), 1e-6))


def _normal_posterior(model: _FittedModel, covariances: FloatArray) -> MixturePosterior:
    """The posterior where it is as good as normal, with these covariances of the effects."""
    none = np.empty((0, *model.effects.shape))
    return MixturePosterior(
        model.effects, covariances, none, np.empty(0), model.membership, model.membership @ model.effects
    )


class _ModelDraws(NamedTuple):
    """Weighted draws of effects (r, m, d), what they say of the groups, and the log evidence for their model."""

    effects: FloatArray
    weights: FloatArray
    membership: FloatArray
    mean: FloatArray
    evidence: float


def _root(covariance: FloatArray) -> FloatArray:
    """A matrix whose product with its own transpose is the covariance, or the nearest one that rounding leaves."""
    try:
        return np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    except np.linalg.LinAlgError:
        spread, axes = np.linalg.eigh((covariance + covariance.T) / 2)
        return np.asarray(axes * np.sqrt(np.maximum(spread, 0.0)))


def _draw_from(
    groups: ScaledGroups, model: _FittedModel, information: FloatArray, draws: int, seed: int
) -> _ModelDraws:
    """Draws around the most likely effects and shares, weighted by their posterior over what they were drawn from."""
    count, dims = model.effects.shape
    rng, root = generator(seed, 0), _root(np.asarray(np.linalg.inv(information), dtype=np.float64))
    size, dof = len(root), max(_TAIL, 2.0 * len(root))
    half = rng.standard_normal((draws // 2, size))
    stretch = np.sqrt(dof / rng.chisquare(dof, len(half)))[:, None] * half
    stretch = np.concatenate((stretch, -stretch))  # in pairs about the middle, so that means have less error
    middle = np.concatenate((model.effects.ravel(), np.log(model.shares[:-1] / model.shares[-1])))[:size]
    at = middle + stretch @ root.T
    effects = at[:, : count * dims].reshape(len(at), count, dims)
    away = (effects - groups.values.mean(axis=0)) / _effect_range(groups)
    log_weight = -0.5 * np.sum(away**2, axis=(1, 2))
    log_shares = np.full((len(at), count), -np.log(count))
    if model.free:
        logits = np.concatenate((at[:, count * dims :], np.zeros((len(at), 1))), axis=1)
        log_shares = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        log_weight += gammaln(count) + _PRIOR * log_shares.sum(axis=1)
    probabilities, likelihood = _membership_probabilities(log_shares[:, None, :] + _log_density(groups, effects))
    drawn_from = -(dof + size) / 2 * np.log1p(np.sum(stretch**2, axis=1) / dof) - np.linalg.slogdet(root)[1]
    drawn_from += gammaln((dof + size) / 2) - gammaln(dof / 2) - size / 2 * np.log(dof * np.pi)
    log_weight += likelihood - drawn_from
    rising = np.argsort(model.effects[:, 0])
    log_weight[np.any(np.diff(effects[:, rising, 0], axis=1) <= 0, axis=1)] = -np.inf  # clusters keep their order
    total = np.logaddexp.reduce(log_weight)
    # Where effects all but coincide, no draw may keep their order: one that counts alone is not relied on.
    weights = np.exp(log_weight - total) if np.isfinite(total) else np.eye(1, len(at))[0]
    membership = np.einsum("r,rkm->km", weights, probabilities)
    mean = np.stack(
        [np.einsum("rkm,rm->k", probabilities, weights[:, None] * effects[..., i]) for i in range(dims)], axis=1
    )
    return _ModelDraws(effects, weights, membership, mean, float(total - np.log(len(at))))


def _average_models(models: list[_ModelDraws]) -> MixturePosterior:
    """The posterior over models, each as far as the data speak for it."""
    evidence = np.array([model.evidence for model in models])
    share = np.exp(evidence - np.logaddexp.reduce(evidence))
    effects = np.concatenate([model.effects for model in models])
    weights = np.concatenate([part * model.weights for part, model in zip(share, models, strict=True)])
    mean = np.einsum("r,rmi->mi", weights, effects)
    away = effects - mean
    return MixturePosterior(
        mean,
        np.einsum("r,rmi,rmj->mij", weights, away, away),
        effects,
        weights,
        np.clip(sum(part * model.membership for part, model in zip(share, models, strict=True)), 0.0, 1.0),
        np.asarray(sum(part * model.mean for part, model in zip(share, models, strict=True))),
    )


# ------------------------------------------------------------------------- the mean effect of a cluster's named members

# The honest effect of a cluster's named members: the mean of their true effects, with an interval.
#
# A cluster that was chosen from the data is named after the noise, too: the mean estimate of its members, and the level
# of a mixture of points, lie farther out than the mean of their true effects. A posterior is not misled by selection as
# far as its prior is right. So effects have a prior that is fitted to all groups: μ_i ~ Σ_j π_j N(L_j, τ²), with the m
# components of the reported clusters or with one. So there are four models: equal effects (one component, τ = 0), a
# continuum (one, τ > 0), points (m, τ = 0) and clusters whose groups differ (m, τ > 0). Equal effects are as likely
# beforehand as the others together; then all count as their likelihood says (BIC for levels and shares, a flat prior
# for τ). Given the prior, groups are independent, and
#
#     E μ_i = Σ_j p_ij (b_i θ_i + (1 − b_i) L_j),   b_i = τ²/(τ² + v_i),   p_ij ∝ π_j N(θ_i; L_j, τ² + v_i),
#
# so a cluster's mean Σ a_i μ_i has a mean, and a variance: that of its members given the prior, and what the errors of
# L and π, which all groups share, do to it (delta method with Louis' information). Intervals reach as far as that of
# any model that the data leave possible: averaged over models they covered .87–.94 for clusters 2.5 standard errors
# apart.


# Rounds of EM, and beyond how many groups × clusters they are cut short.
_PRIOR_ROUNDS, _ROUNDS_OF_MANY_PAIRS, _MANY_PAIRS = 60, 15, 20_000
_PRIOR_ENOUGH = 1e-5  # of the log-likelihood
_STEPS = 16  # values of τ, from 0 on
_HALVINGS = 50
_EQUAL = 3.0  # prior mass of equal effects beside 1 of each other model: as likely as any difference
_MODELS = ("equal", "continuum", "points", "spread")
_NEGLIGIBLE = 1e-12  # weight beside that of the likeliest prior below which a prior is not computed
_POSSIBLE = 0.05  # posterior probability from which on a model may widen intervals


@dataclass(frozen=True, slots=True, eq=False)
class MemberMeans:
    """The mean true effect of the members of every cluster, in the order of the cluster numbers.

    Attributes:
        estimate: Means of the members' shrunken estimates, (m,).
        se: Their posterior standard deviations, (m,).
        lower: Lower ends of their intervals, (m,).
        upper: Upper ends, (m,).
        gap: Highest less lowest estimate.
        gap_lower: Lower end of the interval of that difference.
        gap_upper: Upper end.
        model_probabilities: Posterior probability of "equal" effects, a "continuum", "points" (clusters of equal
            effects) and "spread" (clusters within which effects differ).
        fits: What every prior says, in units of `unit` from `center`.
        unit: A typical standard error.
        center: The median estimate.
    """

    estimate: FloatArray
    se: FloatArray
    lower: FloatArray
    upper: FloatArray
    gap: float
    gap_lower: float
    gap_upper: float
    model_probabilities: dict[str, float]
    fits: _Fits
    unit: float
    center: float

    def at(self, alpha: float) -> MemberMeans:
        """The same with intervals at another level: what was fitted does not depend on it."""
        return _summarized(self.fits, self.unit, self.center, alpha)


def member_means(
    theta: FloatArray,
    variance: FloatArray,
    labels: IntArray,
    alpha: float = 0.05,
    *,
    sizes: FloatArray | None = None,
    dof: FloatArray | float | None = None,
    covariance: FloatArray | None = None,
) -> MemberMeans:
    """Estimate the mean true effect of the groups that every cluster names.

    With sizes the mean is that over the cluster's units, each group weighted by its size. Without, groups count by
    their precision, which is proportional to their sizes where their rows vary equally.

    Args:
        theta: Estimates of K groups, on the scale on which they are compared.
        variance: Their squared standard errors, each group's own where groups share data.
        labels: The cluster of each group, numbered from 0 without gaps.
        alpha: Intervals have the level 1 − α.
        sizes: What a group counts within its cluster; by default its precision.
        dof: Degrees of freedom behind the variances, where these are estimated.
        covariance: Of the estimates, (K, K), where groups share data; what it has beyond `variance` widens intervals.

    Returns:
        Means, their intervals, and the gap between the highest and the lowest.

    Raises:
        InputError: If a cluster has no members.

    Example:
        >>> import numpy as np
        >>> from faultlines.core.mixture import member_means
        >>> rng = np.random.default_rng(0)
        >>> theta = np.repeat([0.0, 6.0], 20) + rng.standard_normal(40)
        >>> means = member_means(theta, np.ones(40), np.repeat([0, 1], 20))
        >>> bool(means.lower[1] < 6 < means.upper[1]), bool(means.gap_lower < 6 < means.gap_upper)
        (True, True)
    """
    theta, variance, labels = np.asarray(theta, float), np.asarray(variance, float), np.asarray(labels)
    count = int(labels.max()) + 1
    members = np.zeros((count, theta.size))
    members[labels, np.arange(theta.size)] = 1 / variance if sizes is None else np.asarray(sizes, float)
    if not (members.sum(axis=1) > 0).all():
        raise InputError.empty("labels", "leave a cluster without members", "Number clusters from 0 without gaps.")
    members /= members.sum(axis=1)[:, None]
    noise = variance
    if dof is not None:  # the variance of Student's t
        degrees = np.clip(np.asarray(dof, float), 3.0, 1e12)
        noise = variance * degrees / (degrees - 2)
    unit, middle = float(np.sqrt(np.median(noise))), float(np.median(theta))
    fits = _fits((theta - middle) / unit, noise / unit**2, labels, members)
    if covariance is not None:
        shared = np.asarray(covariance, float) - np.diag(variance)
        shared_part = members @ shared @ members.T / unit**2
        own = np.diagonal(members @ (members * variance).T) / unit**2
        # A mean is never better known than a tenth of its members' own noise allows.
        short = np.maximum(0.1 * own - np.diagonal(shared_part) - own, 0.0)
        fits = fits._replace(covariances=fits.covariances + shared_part + np.diag(short))
    return _summarized(fits, unit, middle, alpha)


class _Fits(NamedTuple):
    """What every prior says of the means of the clusters, and what it counts."""

    weights: FloatArray  # (s,)
    means: FloatArray  # (s, m)
    covariances: FloatArray  # (s, m, m)
    models: IntArray  # (s,), places in _MODELS


def _summarized(fits: _Fits, unit: float, middle: float, alpha: float) -> MemberMeans:
    """Means and quantiles over all priors, each a normal law, in the units of the estimates."""
    estimate = fits.weights @ fits.means
    errors = np.sqrt(np.maximum(np.diagonal(fits.covariances, axis1=1, axis2=2), 0.0))
    spread = np.sqrt(fits.weights @ (errors**2 + (fits.means - estimate) ** 2))
    lower, upper = _interval(fits, fits.means, errors, alpha)
    high, low = int(np.argmax(estimate)), int(np.argmin(estimate))
    contrast = np.zeros(estimate.size)
    contrast[high] += 1.0
    contrast[low] -= 1.0
    gaps = (fits.means @ contrast)[:, None]
    gap_errors = np.sqrt(np.maximum(np.einsum("i,sij,j->s", contrast, fits.covariances, contrast), 0.0))[:, None]
    gap_lower, gap_upper = _interval(fits, gaps, gap_errors, alpha)
    return MemberMeans(
        estimate * unit + middle,
        spread * unit,
        lower * unit + middle,
        upper * unit + middle,
        float(fits.weights @ gaps[:, 0]) * unit,
        float(gap_lower[0]) * unit,
        float(gap_upper[0]) * unit,
        dict(zip(_MODELS, np.bincount(fits.models, fits.weights, len(_MODELS)).tolist(), strict=True)),
        fits,
        unit,
        middle,
    )


def _interval(fits: _Fits, means: FloatArray, errors: FloatArray, alpha: float) -> tuple[FloatArray, FloatArray]:
    """The widest of the intervals over all priors and over those of every model that is possible, column by column."""
    probabilities = np.bincount(fits.models, fits.weights, len(_MODELS))
    selections = [fits.weights]
    selections += [
        np.where(fits.models == model, fits.weights, 0.0) / probabilities[model]
        for model in np.flatnonzero(probabilities > _POSSIBLE)
    ]
    lower, upper = (
        np.array([_quantile(weights, means, errors, level) for weights in selections])
        for level in (alpha / 2, 1 - alpha / 2)
    )
    return np.asarray(lower.min(axis=0)), np.asarray(upper.max(axis=0))


def _quantile(weights: FloatArray, means: FloatArray, errors: FloatArray, level: float) -> FloatArray:
    """Quantiles of mixtures of normal laws, column by column, by halving."""
    counted = weights > 0
    weights, means, errors = weights[counted], means[counted], np.maximum(errors[counted], 1e-300)
    ends = means + ndtri(level) * errors
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        below = weights @ ndtr((middle - means) / errors) < level
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2)


# ------------------------------------------------------------------------------------------------------------- priors


def _fits(theta: FloatArray, variance: FloatArray, labels: IntArray, members: FloatArray) -> _Fits:
    """The priors with the components of the clusters and with one, each at every τ, and what they count.

    Moments cost the cube of the clusters, so they are computed only under priors that count.
    """
    size, count = theta.size, len(members)
    logs, priors, models = [], [], []
    single = np.zeros(size, dtype=np.int64)
    for places, components in ((single, 1), (labels, count)) if count > 1 else ((single, 1),):
        spreads, masses = _spreads(theta, variance, places, components)
        masses[0] += _EQUAL if components == 1 else 1.0  # no spread beside all others together
        prior = _fit(theta, variance + spreads[:, None] ** 2, places, components)
        # Levels and shares cost what BIC says, a level that of the groups it is estimated from: with log K for the
        # level of one outlier, estimates of 4.2–4.6 standard errors among 100 groups were shrunk to .23–.35 of that.
        penalty = 0.5 * np.sum(np.log(np.maximum(prior.membership.sum(axis=1), 1.0)), axis=1)
        penalty += 0.5 * (components - 1) * np.log(size)
        logs.append(prior.log_likelihood - penalty + np.log(masses))
        priors.append((spreads, prior))
        models.append(2 * (components > 1) + (spreads > 0))
    weights = [np.exp(log - np.max(logs)) for log in logs]
    counted = [weight > _NEGLIGIBLE for weight in weights]
    moments = [
        _moments(theta, variance, spreads[use] ** 2, _Prior(*(field[use] for field in prior)), members)
        for (spreads, prior), use in zip(priors, counted, strict=True)
        if use.any()
    ]
    weight = np.concatenate(weights)[np.concatenate(counted)]
    return _Fits(
        weight / weight.sum(),
        np.concatenate([mean for mean, _ in moments]),
        np.concatenate([covariance for _, covariance in moments]),
        np.concatenate(models)[np.concatenate(counted)],
    )


def _spreads(
    theta: FloatArray, variance: FloatArray, places: IntArray, components: int
) -> tuple[FloatArray, FloatArray]:
    """Values of τ that can matter, from 0 to beyond the scatter about the starting components, and a flat prior."""
    weight = 1 / variance
    levels = np.bincount(places, weight * theta, components) / np.bincount(places, weight, components)
    scatter = float(np.sqrt(np.mean((theta - levels[places]) ** 2)))
    top = max(1.3 * scatter, 0.5 * float(np.sqrt(variance.min())))
    # Finer towards 0, where τ is below the noise and decides how much is shrunk.
    spreads = top * np.linspace(0.0, 1.0, _STEPS) ** 1.5
    widths = np.gradient(spreads)
    return spreads, np.asarray(widths / widths.sum())


class _Prior(NamedTuple):
    """Mixtures fitted at s values of τ: levels and shares (s, m), membership of the components (s, K, m)."""

    levels: FloatArray
    shares: FloatArray
    membership: FloatArray
    log_likelihood: FloatArray  # (s,), without −½ log 2π of each group


def _fit(theta: FloatArray, variance: FloatArray, places: IntArray, components: int) -> _Prior:
    """Levels and shares by EM from the partition, at all values of τ at once; variances are (s, K)."""
    size, weight = theta.size, 1 / variance
    steps = len(variance)
    membership = np.zeros((steps, size, components))
    membership[:, np.arange(size), places] = 1.0
    constant = -0.5 * np.sum(np.log(variance), axis=1)
    wide = max(float(np.ptp(theta)), 1e-6) ** -2.0  # information of a weak prior of levels, as wide as the estimates
    center, reached = float(np.median(theta)), np.full(steps, -np.inf)
    for _ in range(_PRIOR_ROUNDS if size * components <= _MANY_PAIRS else _ROUNDS_OF_MANY_PAIRS):
        levels = np.einsum("sk,skm->sm", weight * theta, membership) + wide * center
        levels /= np.einsum("sk,skm->sm", weight, membership) + wide
        shares = (membership.sum(axis=1) + _PRIOR) / (size + _PRIOR * components)
        log = np.log(shares)[:, None, :] - 0.5 * weight[:, :, None] * (theta[:, None] - levels[:, None, :]) ** 2
        most = log.max(axis=2)
        membership = np.exp(log - most[:, :, None])
        total = membership.sum(axis=2)
        membership /= total[:, :, None]
        likelihood = np.sum(most + np.log(total), axis=1) + constant
        if np.all(likelihood - reached < _PRIOR_ENOUGH):
            break
        reached = likelihood
    return _Prior(levels, shares, membership, np.asarray(likelihood))


def _moments(
    theta: FloatArray, variance: FloatArray, between: FloatArray, prior: _Prior, members: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Means of the clusters' members, (s, m), and their covariances, (s, m, m), under every prior."""
    membership = prior.membership
    total = variance + between[:, None]
    own = (between[:, None] / total)[:, :, None]
    away = theta[:, None] - prior.levels[:, None, :]
    each = prior.levels[:, None, :] + own * away
    mean = np.sum(membership * each, axis=2)
    apart = each - mean[:, :, None]
    within = own[:, :, 0] * variance + np.sum(membership * apart**2, axis=2)
    pull = away / total[:, :, None]
    slopes = np.concatenate(
        (members @ (membership * (1 - own + apart * pull)), (members @ (membership * apart))[:, :, :-1]), axis=2
    )
    information = _prior_information(total, pull, prior, float(np.ptp(theta)))
    covariance = slopes @ np.linalg.solve(information, slopes.swapaxes(1, 2))
    own_part = np.einsum("mk,sk->sm", members**2, within)
    return np.asarray(mean @ members.T), np.asarray(covariance + own_part[:, :, None] * np.eye(len(members)))


def _prior_information(total: FloatArray, pull: FloatArray, prior: _Prior, widest: float) -> FloatArray:
    """Information of levels and log ratios of shares: of known components, less what is lost (Louis 1982).

    No direction has less than a prior as wide as the estimates lie apart.
    """
    shares, membership = prior.shares, prior.membership
    steps, size, count = membership.shape
    # Of a group of component j the score is its pull at level j and e_j − π at the shares; what is lost is the
    # covariance of that over j, with p_ij. With r = p·pull and q = p: Σ_i diag(r·pull) − r rᵀ, and so on.
    pulled = membership * pull
    lost = np.empty((steps, 2 * count, 2 * count))
    lost[:, :count, :count] = -pulled.swapaxes(1, 2) @ pulled
    lost[:, :count, count:] = -pulled.swapaxes(1, 2) @ membership
    lost[:, count:, count:] = -membership.swapaxes(1, 2) @ membership
    places = np.arange(count)
    lost[:, places, places] += np.sum(pulled * pull, axis=1)
    lost[:, places, count + places] += pulled.sum(axis=1)
    lost[:, count + places, count + places] += membership.sum(axis=1)
    lost[:, count:, :count] = lost[:, :count, count:].swapaxes(1, 2)
    inner = (shares[:, :, None] * np.eye(count) - shares[:, :, None] * shares[:, None, :])[:, :-1, :-1]
    parts = 2 * count - 1
    full, weak = np.zeros((steps, parts, parts)), np.zeros((steps, parts, parts))
    full[:, places, places] = np.einsum("skm,sk->sm", membership, 1 / total)
    full[:, count:, count:] = size * inner
    weak[:, places, places] = max(widest, 1e-6) ** -2.0
    weak[:, count:, count:] = _PRIOR * count * inner
    observed = full - lost[:, :parts, :parts]
    return np.array([_add_information(*pair) for pair in zip(observed, weak, strict=True)])


def _add_information(observed: FloatArray, prior: FloatArray) -> FloatArray:
    """The sum, without the directions in which the observed information is negative."""
    try:
        np.linalg.cholesky(observed)  # a tenth of the time of eigenvalues, and nearly always enough
    except np.linalg.LinAlgError:
        root = np.linalg.cholesky(prior)
        scaled = np.linalg.solve(root, np.linalg.solve(root, observed).T)
        values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
        informed = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return np.asarray(root @ (informed + np.eye(len(root))) @ root.T)
    return observed + prior
