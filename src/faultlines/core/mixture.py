"""Clusters as a mixture: what the groups together say about the effect of each cluster, and where each group belongs.

A group belongs to cluster j with probability π_j and has the effect μ_j; its estimate is that plus noise of known
size. To put every group into one cluster and to take the mean of each pushes the clusters apart; the mixture does not,
for a group at a border counts for both. Cluster effects and shares are not known exactly: they are drawn from their
posterior, around the most likely ones, and everything said about effects and groups is averaged over these draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln, ndtri

from faultlines.core import kernels
from faultlines.core.comparison import AS_GOOD_AS_KNOWN, generator
from faultlines.core.distributions import choose_unit

if TYPE_CHECKING:
    from faultlines.estimates.estimates import Estimates, IntArray
    from faultlines.estimates.scales import FloatArray

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

        Beyond the reach of the draws the tails are taken for normal ones.
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
    models = (free, _fit_model(groups, labels, free=False)) if draws >= _FEWEST else (free,)
    information = [_information(groups, model) for model in models]
    for several in (1, 4) if draws >= _FEWEST else ():
        drawn = [
            _draw_from(groups, model, information_of_model, several * draws, seed)
            for model, information_of_model in zip(models, information, strict=True)
        ]
        reliable = [draws_of_model for draws_of_model in drawn if 1 / np.sum(draws_of_model.weights**2) >= _RELIABLE]
        if reliable:
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


def _draw_from(
    groups: ScaledGroups, model: _FittedModel, information: FloatArray, draws: int, seed: int
) -> _ModelDraws:
    """Draws around the most likely effects and shares, weighted by their posterior over what they were drawn from."""
    count, dims = model.effects.shape
    rng, root = generator(seed, 0), np.linalg.cholesky(np.linalg.inv(information))
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
