"""Clusters as a mixture: what the groups together say of the level of each cluster, and where each group belongs.

A group belongs to cluster j with chance π_j and has the effect μ_j; its estimate is that plus noise of known size. To
put every group into one cluster and to take the mean of each pushes the clusters apart; the mixture does not, for a
group at a border counts for both. Levels and shares are not known exactly: they are drawn from their posterior, around
the most likely ones, and everything that is said about levels and groups is averaged over these draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln, ndtri

from faultlines.comparison import kernels
from faultlines.comparison.base import AS_GOOD_AS_KNOWN, generator
from faultlines.comparison.precision import unit_of

if TYPE_CHECKING:
    from faultlines.estimates.estimates import Estimates, IntArray
    from faultlines.estimates.scales import FloatArray

_ROUNDS, _ENOUGH = 80, 1e-7  # of EM
_MANY = 20_000  # groups from which on EM is cut short
_PRIOR = 1.0  # groups that every cluster is given beforehand, which is a flat prior of the shares
_DRAWS = 1000  # of levels and shares
_WORTH = 4_000_000  # numbers to be computed for all draws; with many more groups the posterior is as good as normal
_FEWEST = 200  # draws below which the normal law is taken
_TAIL = 5.0  # degrees of freedom of the law that levels and shares are drawn from: heavier than their posterior's
_CERTAIN = 1 - 1e-9  # chance of its own cluster from which on a group is in no other
_IN_REACH = 10.0  # draws that must lie outside an interval whose ends are draws
_RELIABLE = 50.0  # draws that those of unequal weight must be worth


class Groups(NamedTuple):
    """Effects of K groups, (K, d), what is known of their noise, in units in which it is neither huge nor tiny."""

    values: FloatArray
    precision: FloatArray  # (K, d, d)
    dof: FloatArray | None  # of one effect
    centre: FloatArray  # (d,), which was taken off
    unit: float  # by which was divided


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """Clusters as a mixture with known standard errors: levels, shares, and where each group comes from."""

    levels: FloatArray
    shares: FloatArray
    posterior: FloatArray
    log_likelihood: float


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """What is known of m clusters and of where each of K groups belongs.

    Attributes:
        levels: The levels of the clusters, (m, d).
        cov: Their covariance matrices, (m, d, d).
        draws: Draws of the levels, (r, m, d); none where their law is as good as normal.
        weights: What each draw counts, (r,).
        membership: The chance that each group belongs to each cluster, (K, m).
        mean: The level that is expected of each group, (K, d).
        shared: What noise that groups share adds to the variance of the levels, (m,); it is part of `cov`.
    """

    levels: FloatArray
    cov: FloatArray
    draws: FloatArray
    weights: FloatArray
    membership: FloatArray
    mean: FloatArray
    shared: FloatArray | None = None

    @property
    def certain(self) -> bool:
        """Whether no group could belong to another cluster, so that levels are plain means."""
        return bool(self.membership.max(axis=1).min() > _CERTAIN)

    @property
    def errors(self) -> FloatArray:
        """Standard errors of the levels, (m, d)."""
        return np.sqrt(np.diagonal(self.cov, axis1=1, axis2=2))

    def intervals(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """The ends of the interval of every level, (m, d): what lies outside has a chance of α/2 on either side.

        Beyond the reach of the draws the tails are taken for normal ones.
        """
        if not len(self.weights) or alpha < _IN_REACH * float(np.sum(self.weights**2)):
            wide = -ndtri(alpha / 2) * self.errors
            return self.levels - wide, self.levels + wide
        order = np.argsort(self.draws, axis=0)
        below = np.cumsum(self.weights[order], axis=0)
        rising = np.take_along_axis(self.draws, order, axis=0)
        places = (np.sum(below < alpha / 2, axis=0), np.sum(below <= 1 - alpha / 2, axis=0))
        most = len(self.weights) - 1
        lower, upper = (np.take_along_axis(rising, np.minimum(at, most)[None], axis=0)[0] for at in places)
        return lower, upper


def fitted_mixture(theta: FloatArray, se: FloatArray, labels: IntArray, *, free: bool) -> Mixture:
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
    levels = np.bincount(labels, weight * scaled, count) / np.bincount(labels, weight, count)
    sizes = np.bincount(labels, minlength=count) if free else np.ones(count)
    shares = sizes / sizes.sum()
    posterior = np.empty((labels.size, count))
    rounds = _ROUNDS if labels.size <= _MANY else _ROUNDS // 5
    found = kernels.fit_mixture(scaled, weight, levels, shares, posterior, int(free), rounds, _ENOUGH)
    return Mixture(levels / np.sqrt(unit) + theta[0], shares, posterior, float(found))


# ---------------------------------------------------------------------------------------- levels, shares and groups


def posterior_of(estimates: Estimates, labels: IntArray, seed: int = 0) -> Posterior:
    """What the groups say of the clusters of a partition, taken as a mixture, and of where each group belongs.

    Levels have a normal prior as wide as the effects lie apart. Shares are equal, or have a flat prior: both models
    count as far as the data speak for them. Draws come from Student's t around the most likely levels and shares and
    are weighted by their likelihood (importance sampling). Where few of them count, as with dozens of clusters, and
    where there are very many groups, the normal law is taken. Where no group could belong to another cluster, there is
    nothing to draw: levels are plain means.

    Args:
        estimates: The groups.
        labels: Their clusters, numbered from 0.
        seed: Of the draws.
    """
    made = _posterior(_scaled(estimates), labels, seed)
    return made if estimates.covariance is None else _with_shared(made, estimates)


def _with_shared(made: Posterior, estimates: Estimates) -> Posterior:
    """With what the groups share: it moves levels together, so it says nothing of clusters, but adds to every error.

    Levels are means of the groups, weighted by their own precision and their chances, and have the covariance of those.
    """
    if estimates.covariance is None:
        return made
    weight = made.membership * (estimates.own.min() / estimates.own) ** 2
    share = (weight / weight.sum(axis=0)).T
    shared = estimates.covariance - np.diag(estimates.own[:, 0] ** 2)
    added = np.einsum("mi,ij,mj->m", share, shared, share, optimize=True)
    # A level is never better known than its groups' own noise, a tenth of it at least, allows.
    variance = np.maximum(made.cov[:, 0, 0] + added, made.cov[:, 0, 0] / 10)
    stretch = np.sqrt(variance / made.cov[:, 0, 0])[:, None]
    return replace(
        made,
        cov=variance[:, None, None],
        draws=made.levels + stretch * (made.draws - made.levels),
        shared=variance - made.cov[:, 0, 0],
    )


def _posterior(groups: Groups, labels: IntArray, seed: int) -> Posterior:
    """What groups say whose noise is their own."""
    free = _likeliest(groups, labels, free=True)
    if free.chances.max(axis=1).min() > _CERTAIN:
        blocks = np.einsum("km,kij->mij", np.round(free.chances), groups.precision)
        return _rescaled(_normal(free, np.linalg.inv(blocks)), groups)
    draws = min(_DRAWS, _WORTH // (2 * free.chances.size))
    models = (free, _likeliest(groups, labels, free=False)) if draws >= _FEWEST else (free,)
    information = [_information(groups, model) for model in models]
    for several in (1, 4) if draws >= _FEWEST else ():
        drawn = [
            _drawn(groups, model, known, several * draws, seed)
            for model, known in zip(models, information, strict=True)
        ]
        reliable = [one for one in drawn if 1 / np.sum(one.weights**2) >= _RELIABLE]
        if reliable:
            return _rescaled(_together(reliable), groups)
    count, dims = free.levels.shape
    inverse = np.linalg.inv(information[0])[: count * dims, : count * dims].reshape(count, dims, count, dims)
    return _rescaled(_normal(free, np.stack([inverse[j, :, j] for j in range(count)])), groups)


def _rescaled(made: Posterior, groups: Groups) -> Posterior:
    """In the units of the estimates."""
    unit, centre = groups.unit, groups.centre
    return Posterior(
        made.levels * unit + centre,
        made.cov * unit**2,
        made.draws * unit + centre,
        made.weights,
        made.membership,
        made.mean * unit + centre,
    )


def _scaled(estimates: Estimates) -> Groups:
    """Effects less a middle one, in a unit near their standard errors."""
    middle = len(estimates) // 2
    unit = unit_of(estimates.own[:, 0])
    values = (estimates.values - estimates.values[middle]) / unit
    if estimates.cov is not None:
        precision = np.linalg.inv(estimates.cov / unit**2)
    else:
        precision = (estimates.own[:, :, None] / unit) ** -2.0 * np.eye(estimates.dims)
    dof = estimates.dof if estimates.dims == 1 else None
    return Groups(values, np.asarray(precision), dof, estimates.values[middle], unit)


def _squares(groups: Groups, levels: FloatArray) -> FloatArray:
    """Squared distances of all groups from levels (…, m, d), in standard errors: (…, K, m)."""
    values, precision = groups.values, groups.precision
    dims = values.shape[1]
    apart = [values[:, i, None] - levels[..., None, :, i] for i in range(dims)]
    total = np.zeros_like(apart[0])
    for i in range(dims):
        for j in range(i, dims):
            if precision[:, i, j].any():
                total += precision[:, i, j, None] * apart[i] * apart[j] * (1 if i == j else 2)
    return total


def _log_density(groups: Groups, levels: FloatArray) -> FloatArray:
    """Log density of all groups at levels, up to a constant of each group: normal, or Student's t."""
    squares = _squares(groups, levels)
    if groups.dof is None:
        return np.asarray(-0.5 * squares)
    dof = np.minimum(groups.dof, AS_GOOD_AS_KNOWN)[:, None]
    return np.asarray(-(dof + 1) / 2 * np.log1p(squares / dof))


def _chances(log: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Chances of the clusters from their log weights (…, K, m), and the log-likelihood (…,)."""
    most = log.max(axis=-1, keepdims=True)
    chances = np.exp(log - most)
    total = chances.sum(axis=-1, keepdims=True)
    chances /= total
    return chances, np.sum(most[..., 0] + np.log(total[..., 0]), axis=-1)


def _trust(groups: Groups, levels: FloatArray) -> FloatArray:
    """What the precision of every group counts at every level: less than 1 far out in the tail of Student's t."""
    if groups.dof is None:
        return np.ones((len(groups.values), len(levels)))
    dof = np.minimum(groups.dof, AS_GOOD_AS_KNOWN)[:, None]
    return np.asarray((dof + 1) / (dof + _squares(groups, levels)))


class _Model(NamedTuple):
    """Levels (m, d), shares (m,) and chances (K, m) at the highest likelihood, with shares free or equal."""

    levels: FloatArray
    shares: FloatArray
    chances: FloatArray
    free: bool


def _likeliest(groups: Groups, labels: IntArray, *, free: bool) -> _Model:
    """The model of the highest likelihood that EM finds from a partition."""
    count, size = int(labels.max()) + 1, len(labels)
    chances = np.zeros((size, count))
    chances[np.arange(size), labels] = 1.0
    if groups.values.shape[1] == 1 and count > 1:  # compiled
        chances = fitted_mixture(groups.values[:, 0], groups.precision[:, 0, 0] ** -0.5, labels, free=free).posterior
    levels, reached, shares = _levels_of(groups, chances), -np.inf, np.full(count, 1 / count)
    for _ in range(_ROUNDS if size <= _MANY else _ROUNDS // 5):
        if free:
            shares = np.asarray((chances.sum(axis=0) + _PRIOR) / (size + _PRIOR * count))
        chances, likelihood = _chances(np.log(shares) + _log_density(groups, levels))
        if not likelihood - reached > _ENOUGH:
            break
        reached = float(likelihood)
        levels = _levels_of(groups, chances * _trust(groups, levels))
    return _Model(levels, shares, chances, free)


def _levels_of(groups: Groups, chances: FloatArray) -> FloatArray:
    """Means of the groups, weighted by precision and chance."""
    weight = np.einsum("km,kij->mij", chances, groups.precision)
    moment = np.einsum("km,kij,kj->mi", chances, groups.precision, groups.values)
    return np.asarray(np.linalg.solve(weight, moment[..., None])[..., 0])


def _information(groups: Groups, model: _Model) -> FloatArray:
    """The information of levels and of the logarithms of shares beside that of the last cluster, with their prior's.

    That of groups whose clusters are known, less what is lost because they are not (Louis): the covariance of the
    scores over the clusters that each group may belong to. No direction has less than the prior says.
    """
    levels, shares, chances, free = model
    count, dims = levels.shape
    trust = chances * _trust(groups, levels)
    size = count * dims + count - 1
    full, scores = np.zeros((size, size)), np.zeros((len(chances), count, size))
    for j in range(count):
        own = slice(j * dims, (j + 1) * dims)
        full[own, own] = np.einsum("k,kij->ij", trust[:, j], groups.precision)
        pull = np.einsum("kij,kj->ki", groups.precision, groups.values - levels[j])
        scores[:, j, own] = pull * (_trust(groups, levels)[:, j, None] if groups.dof is not None else 1.0)
        scores[:, j, count * dims :] = -shares[:-1]
        if j < count - 1:
            scores[:, j, count * dims + j] += 1.0
    inner = (np.diag(shares) - np.outer(shares, shares))[:-1, :-1]
    full[count * dims :, count * dims :] = len(chances) * inner
    mean = np.einsum("km,kms->ks", chances, scores)
    lost = np.einsum("km,kms,kmt->st", chances, scores, scores) - mean.T @ mean
    prior = np.zeros((size, size))
    prior[: count * dims, : count * dims] = np.diag(np.tile(_spread(groups) ** -2.0, count))
    prior[count * dims :, count * dims :] = _PRIOR * count * inner
    kept = size if free else count * dims
    full, lost, prior = full[:kept, :kept], lost[:kept, :kept], prior[:kept, :kept]
    # In units of the prior, so that what the data lose can be told from what they do not have.
    root = np.linalg.cholesky(prior)
    scaled = np.linalg.solve(root, np.linalg.solve(root, full - lost).T)
    values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
    known = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return np.asarray(root @ (known + np.eye(kept)) @ root.T)


def _spread(groups: Groups) -> FloatArray:
    """How far the effects lie apart, (d,): no level is farther from their middle than about that."""
    return np.asarray(np.maximum(np.ptp(groups.values, axis=0), 1e-6))


def _normal(model: _Model, cov: FloatArray) -> Posterior:
    """The posterior where it is as good as normal, with these covariances of the levels."""
    none = np.empty((0, *model.levels.shape))
    return Posterior(model.levels, cov, none, np.empty(0), model.chances, model.chances @ model.levels)


class _Draws(NamedTuple):
    """Weighted draws of levels (r, m, d), what they say of the groups, and the log evidence for their model."""

    levels: FloatArray
    weights: FloatArray
    membership: FloatArray
    mean: FloatArray
    evidence: float


def _drawn(groups: Groups, model: _Model, information: FloatArray, draws: int, seed: int) -> _Draws:
    """Draws around the most likely levels and shares, weighted by their posterior over what they were drawn from."""
    count, dims = model.levels.shape
    rng, root = generator(seed, 0), np.linalg.cholesky(np.linalg.inv(information))
    size, dof = len(root), max(_TAIL, 2.0 * len(root))
    half = rng.standard_normal((draws // 2, size))
    stretch = np.sqrt(dof / rng.chisquare(dof, len(half)))[:, None] * half
    stretch = np.concatenate((stretch, -stretch))  # in pairs about the middle, so that means have less error
    middle = np.concatenate((model.levels.ravel(), np.log(model.shares[:-1] / model.shares[-1])))[:size]
    at = middle + stretch @ root.T
    levels = at[:, : count * dims].reshape(len(at), count, dims)
    away = (levels - groups.values.mean(axis=0)) / _spread(groups)
    log_weight = -0.5 * np.sum(away**2, axis=(1, 2))
    log_shares = np.full((len(at), count), -np.log(count))
    if model.free:
        logits = np.concatenate((at[:, count * dims :], np.zeros((len(at), 1))), axis=1)
        log_shares = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        log_weight += gammaln(count) + _PRIOR * log_shares.sum(axis=1)
    chances, likelihood = _chances(log_shares[:, None, :] + _log_density(groups, levels))
    drawn_from = -(dof + size) / 2 * np.log1p(np.sum(stretch**2, axis=1) / dof) - np.linalg.slogdet(root)[1]
    drawn_from += gammaln((dof + size) / 2) - gammaln(dof / 2) - size / 2 * np.log(dof * np.pi)
    log_weight += likelihood - drawn_from
    rising = np.argsort(model.levels[:, 0])
    log_weight[np.any(np.diff(levels[:, rising, 0], axis=1) <= 0, axis=1)] = -np.inf  # clusters keep their order
    total = np.logaddexp.reduce(log_weight)
    # Where levels all but coincide, no draw may keep their order: one that counts alone is not relied on.
    weights = np.exp(log_weight - total) if np.isfinite(total) else np.eye(1, len(at))[0]
    membership = np.einsum("r,rkm->km", weights, chances)
    mean = np.stack([np.einsum("rkm,rm->k", chances, weights[:, None] * levels[..., i]) for i in range(dims)], axis=1)
    return _Draws(levels, weights, membership, mean, float(total - np.log(len(at))))


def _together(models: list[_Draws]) -> Posterior:
    """The posterior over models, each as far as the data speak for it."""
    evidence = np.array([model.evidence for model in models])
    share = np.exp(evidence - np.logaddexp.reduce(evidence))
    levels = np.concatenate([model.levels for model in models])
    weights = np.concatenate([part * model.weights for part, model in zip(share, models, strict=True)])
    mean = np.einsum("r,rmi->mi", weights, levels)
    away = levels - mean
    return Posterior(
        mean,
        np.einsum("r,rmi,rmj->mij", weights, away, away),
        levels,
        weights,
        np.clip(sum(part * model.membership for part, model in zip(share, models, strict=True)), 0.0, 1.0),
        np.asarray(sum(part * model.mean for part, model in zip(share, models, strict=True))),
    )
