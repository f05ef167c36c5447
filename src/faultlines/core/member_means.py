"""The honest effect of a cluster's named members: the mean of their true effects, with an interval.

A cluster that was chosen from the data is named after the noise, too: the mean estimate of its members, and the level
of a mixture of points, lie farther out than the mean of their true effects. A posterior is not misled by selection as
far as its prior is right. So effects have a prior that is fitted to all groups: μ_i ~ Σ_j π_j N(L_j, τ²), with the m
components of the reported clusters or with one. So there are four models: equal effects (one component, τ = 0), a
continuum (one, τ > 0), points (m, τ = 0) and clusters whose groups differ (m, τ > 0). Equal effects are as likely
beforehand as the others together; then all count as their likelihood says (BIC for levels and shares, a flat prior for
τ). Given the prior, groups are independent, and

    E μ_i = Σ_j p_ij (b_i θ_i + (1 − b_i) L_j),   b_i = τ²/(τ² + v_i),   p_ij ∝ π_j N(θ_i; L_j, τ² + v_i),

so a cluster's mean Σ a_i μ_i has a mean, and a variance: that of its members given the prior, and what the errors of
L and π, which all groups share, do to it (delta method with Louis' information). Intervals reach as far as that of any
model that the data leave possible: averaged over models they covered .87–.94 for clusters 2.5 standard errors apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from faultlines.errors import InputError

if TYPE_CHECKING:
    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.scales import FloatArray

_ROUNDS, _ROUNDS_OF_MANY, _MANY = 60, 15, 20_000  # of EM, and beyond how many groups × clusters they are cut short
_ENOUGH = 1e-5  # of the log-likelihood
_STEPS = 16  # values of τ, from 0 on
_PRIOR = 1.0  # groups that every component has beforehand, a flat prior of the shares
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
    """

    estimate: FloatArray
    se: FloatArray
    lower: FloatArray
    upper: FloatArray
    gap: float
    gap_lower: float
    gap_upper: float
    model_probabilities: dict[str, float]


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
        >>> from faultlines.core.member_means import member_means
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
        beside = members @ shared @ members.T / unit**2
        own = np.diagonal(members @ (members * variance).T) / unit**2
        # A mean is never better known than a tenth of its members' own noise allows.
        short = np.maximum(0.1 * own - np.diagonal(beside) - own, 0.0)
        fits = fits._replace(covariances=fits.covariances + beside + np.diag(short))
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
    errors = np.sqrt(np.diagonal(fits.covariances, axis1=1, axis2=2))
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
    for _ in range(_ROUNDS if size * components <= _MANY else _ROUNDS_OF_MANY):
        levels = np.einsum("sk,skm->sm", weight * theta, membership) + wide * center
        levels /= np.einsum("sk,skm->sm", weight, membership) + wide
        shares = (membership.sum(axis=1) + _PRIOR) / (size + _PRIOR * components)
        log = np.log(shares)[:, None, :] - 0.5 * weight[:, :, None] * (theta[:, None] - levels[:, None, :]) ** 2
        most = log.max(axis=2)
        membership = np.exp(log - most[:, :, None])
        total = membership.sum(axis=2)
        membership /= total[:, :, None]
        likelihood = np.sum(most + np.log(total), axis=1) + constant
        if np.all(likelihood - reached < _ENOUGH):
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
    information = _information(total, pull, prior, float(np.ptp(theta)))
    covariance = slopes @ np.linalg.solve(information, slopes.swapaxes(1, 2))
    own_part = np.einsum("mk,sk->sm", members**2, within)
    return np.asarray(mean @ members.T), np.asarray(covariance + own_part[:, :, None] * np.eye(len(members)))


def _information(total: FloatArray, pull: FloatArray, prior: _Prior, widest: float) -> FloatArray:
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
