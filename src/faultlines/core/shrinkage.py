"""Shrunken estimates of groups that are crossings of attributes: several models predict each group from the others.

Each model (an expert) says N(a_i, c_i), or a mixture of such laws, about the effect μ_i of group i, from the *other*
groups: clusters; one mean with a spread; main effects of the attributes; main effects and pairs; main effects with a
few groups far off; main effects with two clusters of what they leave. Experts are weighted by how well they predict
the estimates that they have not seen (stacking of predictive densities, Yao et al. 2018). The posterior of a group is
the mixture of what they say, updated by its own estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import expit, ndtr, ndtri

from faultlines.core.randomeffects import (
    Block,
    Crossing,
    RandomEffects,
    Sample,
    fit_variances,
    list_blocks,
    rank_blocks,
    select_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.scales import FloatArray

_FEWEST = 8  # groups from which on attributes have effects of their own
_FEWEST_MIXED = 5  # groups from which on residuals are mixtures
_PSEUDO = 0.5  # groups that every expert has beforehand in the stacking
_WIDER = (
    1.5  # standard errors added to the variance of effects in intervals: coverage .938 on real halves, .97 simulated
)
_STACKING = 500  # rounds of EM for the weights of experts
_MANY = 20_000  # groups from which on EM and the turns of mixtures are cut to a third: what is left to gain is noise
_MOST_CLUSTERS = 10_000_000  # groups × clusters up to which clusters are an expert
_GRID = 9  # spreads of the scale mixture beside 0
_QUANTILE_ROUNDS = 60  # of Newton's method with bisection


class Expert(NamedTuple):
    """What the other groups say of the effect of each group: a mixture of J normal laws.

    Attributes:
        log_shares: Log shares of the laws, (K, J).
        means: Their means, (K, J).
        variances: Their variances, (K, J).
    """

    log_shares: FloatArray
    means: FloatArray
    variances: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Shrunken:
    """Shrunken estimates of K groups, on the compared scale.

    Attributes:
        mean: Posterior mean of each effect, (K,).
        lower: Lower end of its interval, (K,).
        upper: Upper end, (K,).
        weights: Weight of each expert.
        variances: Variance of the effects along attributes (0,), (1,), … and their pairs (0, 1), …; () is what no
            block of attributes explains.
    """

    mean: FloatArray
    lower: FloatArray
    upper: FloatArray
    weights: dict[str, float]
    variances: dict[tuple[int, ...], float]


def shrink(
    theta: FloatArray,
    variance: FloatArray,
    codes: IntArray,
    labels: IntArray | None = None,
    alpha: float = 0.05,
) -> Shrunken:
    """Estimate the effect of every group with what the other groups say, along the attributes.

    Noise is taken as independent between groups with the variances that are passed: pass the *own* variances where
    groups share noise. Covariances between groups are ignored, which leaves estimates right and makes intervals too
    narrow by the part of the noise that all groups share. Variances are taken as known: inflate them by dof/(dof − 2)
    where they rest on few degrees of freedom. Variances of the random effects are plugged in; intervals allow for
    their error by a variance that is 1.5 standard errors wider.

    Args:
        theta: Estimates on the compared scale, (K,).
        variance: Their variances, positive, (K,).
        codes: Levels of the attributes, any integers, (K, A). Attributes of one level, or of one per group, and
            nested ones need no care.
        labels: Reported clusters, numbered from 0, (K,); without them, clusters are no expert.
        alpha: One less the level of the intervals.

    Returns:
        Shrunken estimates, intervals, weights of the experts and variances along the attributes. Models that cannot
        be fitted are omitted; with one group there is nothing to learn from and its estimate is returned.

    Raises:
        ValueError: Shapes differ, or estimates or variances are not finite, or variances not positive.

    Example:
        >>> import numpy as np
        >>> codes = np.array(list(np.ndindex(4, 3)))
        >>> theta = codes[:, 0] + np.tile([0.1, -0.1, 0.0], 4)
        >>> shrunken = shrink(theta, np.full(12, 0.04), codes)
        >>> bool(np.abs(shrunken.mean - codes[:, 0]).max() < 0.1)
        True
    """
    theta, variance = np.asarray(theta, dtype=float), np.asarray(variance, dtype=float)
    codes = np.asarray(codes, dtype=np.int64).reshape(len(theta), -1)
    if theta.shape != variance.shape or theta.ndim != 1:
        raise ValueError(f"theta and variance must be of one length, got {theta.shape} and {variance.shape}.")
    if not (np.all(np.isfinite(theta)) and np.all(np.isfinite(variance)) and np.all(variance > 0)):
        raise ValueError("theta and variance must be finite, and variance positive.")
    if len(theta) < 2:
        reach = -ndtri(alpha / 2) * np.sqrt(variance)
        return Shrunken(theta.copy(), theta - reach, theta + reach, {}, {})
    unit, center = float(np.sqrt(np.median(variance))), float(np.median(theta))
    y, noise = (theta - center) / unit, variance / unit / unit
    sample = Sample.of(y, noise)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        experts, variances = _fit_experts(sample, codes, labels)
        weights, responsibilities = stack_experts(sample.y, sample.noise, experts)
        mean, lower, upper = _mix(y, noise, experts, responsibilities, alpha)
    return Shrunken(
        mean * unit + center,
        lower * unit + center,
        upper * unit + center,
        dict(zip(experts, weights.tolist(), strict=True)),
        {attributes: value * unit**2 for attributes, value in variances.items()},
    )


# ----------------------------------------------------------------------------------------------------------- experts


def _fit_experts(
    sample: Sample, codes: IntArray, labels: IntArray | None
) -> tuple[dict[str, Expert], dict[tuple[int, ...], float]]:
    """Every expert that can be fitted, and the variances of the richest model of the attributes."""
    groups = len(sample.y)
    experts: dict[str, Expert] = {}

    def add(name: str, fit: Callable[[], Expert]) -> None:
        try:
            expert = fit()
        except (np.linalg.LinAlgError, FloatingPointError):
            return
        if all(np.all(np.isfinite(part)) for part in expert) and expert.variances.min() >= 0:
            experts[name] = expert

    if labels is not None and groups * (int(labels.max()) + 1) <= _MOST_CLUSTERS:
        add("clusters", lambda: _predict_clusters(sample, labels))
    base = fit_variances(Crossing.of([], groups), sample)  # 1 × 1 equations: cannot fail
    experts["mean"] = _predict_normal(base)
    variances: dict[tuple[int, ...], float] = {(): base.tau2}
    score = -np.inf
    for name, fit in _fit_attributes(sample, codes).items() if groups >= _FEWEST else ():
        expert = _predict_normal(fit)
        add(name, lambda expert=expert: expert)  # type: ignore[misc]
        predicted = log_normal(sample.y[:, None], expert.means, expert.variances + sample.noise[:, None])
        # Mixtures are of residuals from the model that predicts better: with pairs and 6% outlier groups, K = 120, the
        # mean squared error is 0.39 instead of 0.66 of a typical squared standard error.
        if float(predicted.sum()) > score:
            base, score = fit, float(predicted.sum())
        along = zip(fit.crossing.blocks, fit.variances.tolist(), strict=True)
        variances = {(): fit.tau2, **{block.attributes: value for block, value in along}}
    if groups >= _FEWEST_MIXED:
        add("few far off", lambda: _predict_scale_mixture(sample, base))
        add("two clusters", lambda: _predict_location_mixture(sample, base))
    return experts, variances


def _fit_attributes(sample: Sample, codes: IntArray) -> dict[str, RandomEffects]:
    """Main effects, then main effects and pairs; less where there are none or they cannot be fitted."""
    mains, pairs = list_blocks(codes)
    groups, mains = len(sample.y), select_blocks(mains, len(sample.y))
    fits: dict[str, RandomEffects] = {}
    try:
        if mains:
            fits["attributes"] = fit_variances(Crossing.of(mains, groups), sample)
        if mains and len(select_blocks([*mains, *pairs], groups)) < len(mains) + len(pairs):
            pairs = rank_blocks(pairs, fits["attributes"], sample)
        blocks = select_blocks([*mains, *pairs], groups)
        if mains and len(blocks) > len(mains):
            fits["pairs"] = _fit_pairs(sample, blocks)
    except np.linalg.LinAlgError:
        return fits
    return fits


def _fit_pairs(sample: Sample, blocks: list[Block]) -> RandomEffects:
    """Main effects and pairs, whose common variance is the scale of the prior of each pair's own (global-local)."""
    crossing = Crossing.of(blocks, len(sample.y))
    pair = np.array([len(block.attributes) > 1 for block in crossing.blocks])
    family = np.where(pair, np.sum(~pair), np.cumsum(~pair) - 1)
    shared = fit_variances(crossing, sample, family=family)
    common = max(float(shared.variances[pair][0]), 1e-6 * sample.total)
    return fit_variances(crossing, sample, scales=np.where(pair, common, sample.total))


def _predict_normal(fit: RandomEffects) -> Expert:
    """One normal law per group: what the random effects of the others predict, and τ²."""
    mean, variance = fit.prediction.mean[:, None], fit.prediction.variance[:, None] + fit.tau2
    return Expert(np.zeros(mean.shape), mean, np.maximum(variance, 1e-12))


def _predict_scale_mixture(sample: Sample, base: RandomEffects) -> Expert:
    """Residuals of most groups are small and those of a few large: normal laws of ten spreads, shares by EM."""
    far = float(np.max((sample.y - base.prediction.fitted) ** 2))
    largest = max(far, 4 * base.tau2, 1.0)
    grid = np.append(0.0, np.geomspace(0.02 * float(np.median(sample.noise)), largest, _GRID))
    variances = base.variances
    share, noise = np.full(grid.size, 1 / grid.size), sample.noise + base.tau2
    for _ in range(_limit(4, len(sample.y))):
        fit = fit_variances(base.crossing, sample, noise=noise, scales=base.scales, start=variances)
        variances, mean = fit.variances, fit.prediction.mean
        spread = np.maximum(fit.prediction.variance, 1e-9)
        total = (sample.noise + spread)[:, None] + grid
        log = log_normal((sample.y - mean)[:, None], 0.0, total)
        density = np.exp(log - log.max(axis=1, keepdims=True))
        share = _fit_shares(density, share, (grid == 0).astype(float), _limit(200, len(sample.y)))
        posterior = density * share
        posterior /= posterior.sum(axis=1, keepdims=True)
        noise = 1 / np.sum(posterior / (sample.noise[:, None] + grid), axis=1)
    remaining = posterior.sum(axis=0) - posterior + 1e-3
    log_shares = np.log(remaining / remaining.sum(axis=1, keepdims=True))
    return Expert(log_shares, np.repeat(mean[:, None], grid.size, axis=1), spread[:, None] + grid)


def _predict_location_mixture(sample: Sample, base: RandomEffects) -> Expert:
    """Effects of the attributes and two clusters of what they leave, fitted in turn."""
    y, noise, groups = sample.y, sample.noise, len(sample.y)
    variances, spread, tau2 = base.variances, np.zeros(groups), 0.0
    difference = y - base.prediction.mean
    starts = [
        _fit_two_clusters(difference, noise, np.quantile(difference, shares), 0.5, 150)
        for shares in ((0.25, 0.75), (0.4, 0.93), (0.07, 0.6))
    ]
    likelihoods = [
        np.sum(
            np.logaddexp(
                np.log1p(-share) + log_normal(difference, levels[0], noise),
                np.log(share) + log_normal(difference, levels[1], noise),
            )
        )
        for levels, share, _ in starts
    ]
    levels, share, second = starts[int(np.argmax(likelihoods))]
    for _ in range(_limit(6, groups)):
        levels, share, second = _fit_two_clusters(difference, noise + tau2 + spread, levels, share, 1)
        gap = float(levels[1] - levels[0])
        expected = levels[0] + second * gap
        # Not to know its cluster is noise of a group: r (1 − r) gap².
        unsure = noise + tau2 + second * (1 - second) * gap**2
        reduced = Sample(y - expected, noise, sample.total)
        fit = fit_variances(base.crossing, reduced, noise=unsure, scales=base.scales, start=variances)
        variances, mean = fit.variances, fit.prediction.mean
        spread, difference = np.maximum(fit.prediction.variance, 1e-9), y - mean
        levels, share, second = _fit_two_clusters(difference, noise + tau2 + spread, levels, share, 30)
        squares = (1 - second) * (difference - levels[0]) ** 2 + second * (difference - levels[1]) ** 2
        scatter = float(np.sum(squares / (noise + spread)))
        freedom = groups - 2
        # Half a standard error is taken off: τ² within clusters only where the groups show it.
        tau2 = max(0.0, (scatter - freedom - 0.5 * np.sqrt(2 * freedom)) / float(np.sum(1 / (noise + spread))))
    memberships = np.stack([1 - second, second], axis=1)
    weight = memberships / (noise + tau2 + spread)[:, None]
    # A prior as wide as the residuals keeps the level of a cluster that has no other group.
    total = weight.sum(axis=0) - weight + 1 / max(float(np.ptp(difference)), 1e-9) ** 2
    pulled = weight * difference[:, None]
    remaining = (pulled.sum(axis=0) - pulled) / total
    log_shares = np.log((memberships.sum(axis=0) - memberships + 1) / (groups + 1))
    return Expert(log_shares, mean[:, None] + remaining, spread[:, None] + 1 / total + tau2)


def _fit_two_clusters(
    difference: FloatArray, variance: FloatArray, levels: FloatArray, share: float, rounds: int
) -> tuple[FloatArray, float, FloatArray]:
    """Levels of two clusters, the share of the second, and the probability that each group is in it, by EM."""
    precision, groups = 1 / variance, len(difference)
    moment, second = precision * difference, np.zeros(groups)
    for _ in range(_limit(rounds, groups)):
        low, high = float(levels[0]), float(levels[1])
        second = expit(np.log(share / (1 - share)) + (high - low) * precision * (difference - (low + high) / 2))
        weights = np.array([precision @ (1 - second), precision @ second])
        place = np.array([moment @ (1 - second), moment @ second]) / np.maximum(weights, 1e-300)
        before, share = share, (float(second.sum()) + 1) / (groups + 2)
        still = np.abs(place - levels).max() <= 1e-6 * abs(high - low) and abs(share - before) <= 1e-6
        levels = place
        if still:
            break
    return levels, share, second


def _predict_clusters(sample: Sample, labels: IntArray) -> Expert:
    """The reported clusters as a mixture with a spread τ² within, each group from the others."""
    y, noise, groups, count = sample.y, sample.noise, len(sample.y), int(labels.max()) + 1
    width, center = max(float(np.ptp(y)), 1e-9), float(np.average(y, weights=1 / noise))
    tau2, typical = 0.0, float(np.median(noise))
    memberships = np.zeros((groups, count))
    memberships[np.arange(groups), labels] = 1.0
    prior = width**-2.0  # levels lie about as far apart as the estimates
    for i in range(_limit(200, groups)):
        weight = 1 / (noise + tau2)
        levels = (memberships.T @ (weight * y) + center * prior) / (memberships.T @ weight + prior)
        squares = (y[:, None] - levels) ** 2
        log = np.log((memberships.sum(axis=0) + 1) / (groups + count)) - 0.5 * squares * weight[:, None]
        updated = np.exp(log - log.max(axis=1, keepdims=True))
        updated /= updated.sum(axis=1, keepdims=True)
        # Fisher's step of τ², after the memberships have settled.
        excess = np.sum(weight**2 * np.sum(updated * squares, axis=1)) - np.sum(weight)
        wider = max(0.0, tau2 + float(excess / np.sum(weight**2))) if i >= 5 else 0.0
        moved, grown = float(np.abs(updated - memberships).max()), abs(wider - tau2)
        memberships, tau2 = updated, wider
        if i > 6 and moved < 1e-6 and grown < 1e-6 * typical:
            break
    weight = memberships / (noise + tau2)[:, None]
    total = weight.sum(axis=0) - weight + prior
    pulled = weight * y[:, None]
    log_shares = np.log((memberships.sum(axis=0) - memberships + 1) / (groups - 1 + count))
    return Expert(log_shares, (pulled.sum(axis=0) - pulled + center * prior) / total, 1 / total + tau2)


# ----------------------------------------------------------------------------------------------- stacking, intervals


def _limit(rounds: int, groups: int) -> int:
    """How often to repeat a step."""
    return rounds if groups <= _MANY else -(-rounds // 3)


def log_normal(x: FloatArray, mean: FloatArray | float, variance: FloatArray) -> FloatArray:
    """Log density of normal laws."""
    return np.asarray(-0.5 * np.log(2 * np.pi * variance) - 0.5 * (x - mean) ** 2 / variance)


def _fit_shares(density: FloatArray, share: FloatArray, prior: FloatArray, rounds: int) -> FloatArray:
    """Shares of J laws under which all groups together are likeliest, by EM; `prior` are groups beforehand."""
    total = len(density) + float(prior.sum())
    for _ in range(rounds):
        updated = (share * (density.T @ (1 / np.maximum(density @ share, 1e-300))) + prior) / total
        still = np.abs(updated - share).max() < 1e-7
        share = updated
        if still:
            break
    return share


def stack_experts(y: FloatArray, noise: FloatArray, experts: dict[str, Expert]) -> tuple[FloatArray, list[FloatArray]]:
    """Weight experts by how well they predict estimates they have not seen.

    Args:
        y: Estimates, (K,).
        noise: Their variances, (K,).
        experts: What each says about the effects.

    Returns:
        The weights, (E,), and for every expert log weight + log density of each of its laws, (K, J).
    """
    laws = [
        expert.log_shares + log_normal(y[:, None], expert.means, expert.variances + noise[:, None])
        for expert in experts.values()
    ]
    log = np.stack([np.logaddexp.reduce(law, axis=1) for law in laws], axis=1)
    density = np.exp(log - log.max(axis=1, keepdims=True))
    count = len(laws)
    weights = _fit_shares(density, np.full(count, 1 / count), np.full(count, _PSEUDO), _STACKING)
    return weights, [np.log(weight) + law for weight, law in zip(weights, laws, strict=True)]


def _mix(
    y: FloatArray, noise: FloatArray, experts: dict[str, Expert], logs: list[FloatArray], alpha: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Posterior means and intervals: normal laws of all experts, updated by the estimate of the group itself."""
    probabilities = np.concatenate(logs, axis=1)
    probabilities = np.exp(probabilities - probabilities.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    points, centers, spreads = [], [], []
    for log_shares, means, variances in experts.values():
        own = variances / (variances + noise[:, None])
        points.append(means + own * (y[:, None] - means))
        shares = np.exp(log_shares)
        total = noise + np.sum(shares * variances, axis=1) / shares.sum(axis=1)
        wide = variances + _WIDER * np.sqrt(2 / np.sum(total**-2.0))  # standard error of a variance component
        own = wide / (wide + noise[:, None])
        centers.append(means + own * (y[:, None] - means))
        spreads.append(np.sqrt(own * noise[:, None]))
    mean = np.sum(probabilities * np.concatenate(points, axis=1), axis=1)
    center, spread = np.concatenate(centers, axis=1), np.concatenate(spreads, axis=1)
    lower = _invert_mixture(probabilities, center, spread, alpha / 2)
    upper = -_invert_mixture(probabilities, -center, spread, alpha / 2)
    return mean, np.minimum(lower, mean), np.maximum(upper, mean)


def _invert_mixture(probabilities: FloatArray, center: FloatArray, spread: FloatArray, share: float) -> FloatArray:
    """Lower quantile of the mixture of each group: Newton steps, halving where they leave the bracket."""
    quantile = ndtri(share)
    low, high = (center + quantile * spread).min(axis=1), (center + quantile * spread).max(axis=1)
    mean = np.sum(probabilities * center, axis=1)
    variance = np.sum(probabilities * (spread**2 + (center - mean[:, None]) ** 2), axis=1)
    result = np.clip(mean + quantile * np.sqrt(variance), low, high)
    active = np.arange(len(center))
    for _ in range(_QUANTILE_ROUNDS):
        at, chances, scale = result[active], probabilities[active], spread[active]
        distance = (at[:, None] - center[active]) / scale
        excess = np.sum(chances * ndtr(distance), axis=1) - share
        slope = np.sum(chances / scale * np.exp(-0.5 * distance**2), axis=1) / np.sqrt(2 * np.pi)
        below = excess < 0
        low[active], high[active] = np.where(below, at, low[active]), np.where(below, high[active], at)
        step = at - excess / slope
        inside = (step > low[active]) & (step < high[active])
        place = np.where(inside, step, (low[active] + high[active]) / 2)
        result[active] = place
        active = active[np.abs(place - at) > 1e-9 * scale.min(axis=1)]
        if not len(active):
            break
    return np.asarray(result)
