"""Shrunken estimates of groups that are crossings of attributes: several models predict each group from the others.

Each model (an expert) says N(a_i, c_i), or a mixture of such laws, about the effect μ_i of group i, from the *other*
groups: clusters; one mean with a spread; main effects of the attributes; main effects and pairs; main effects with a
few groups far off; main effects with two clusters of what they leave. Experts are weighted by how well they predict
the estimates that they have not seen (stacking of predictive densities, Yao et al. 2018). The posterior of a group is
the mixture of what they say, updated by its own estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.special import expit, ndtr, ndtri

from faultlines.types import BoolArray, FloatArray, IntArray

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


# ----------------------------------------------------------------------------------------------- crossed random effects

# Crossed random effects of attributes: variances by restricted likelihood, and every group predicted from the others.
#
#     θ_i = b₀ + Σ_b u_b[level of i] + r_i + noise,   u_b ~ N(0, σ_b²),   r_i ~ N(0, τ²),   noise ~ N(0, v_i)
#
# A block b is an attribute or a pair of attributes. With noise D_i = v_i + τ² and W = 1/D, everything follows from the
# p × p matrix M = I + Λ Z'WZ Λ of the standardized effects (Henderson): its largest block is diagonal and is eliminated
# first (Schur complement), the others are dense. Nothing is K × K: an evaluation is O(K B² + q c²) for B blocks, the
# largest of q levels and c columns beside it.


# Prior of a spread s: s^(κ−1) / (1 + s²/S²)^((1+κ)/2). Close to restricted likelihood; tamer where there is no effect.
_KAPPA = 0.25
_LOWEST, _HIGHEST = -14.0, 5.0  # log variances are sought within these of log S²
_FINEST = 0.75  # pairs with more levels than this share of the groups cannot be told from what no attribute explains
_DENSE = 1_000_000_000  # c²(c + q), multiplications of an evaluation: about 0.2 s
_POSITIONS = 20_000_000  # entries of the index that is stored: 160 MB
_ROUNDS, _BACKTRACKS = 50, 12  # of the search for variances
_ENOUGH = 1e-5  # rise of the log-likelihood that a further step promises
_LONGEST = 3.0  # step of a log variance
_DOMINATED = 1e-8  # noise below this share of the median or of the spread is as good as none: keeps 1 − leverage exact


class Block(NamedTuple):
    """Levels of an attribute, or of a pair of attributes, that share a random effect."""

    attributes: tuple[int, ...]
    codes: IntArray
    size: int


def list_blocks(codes: IntArray) -> tuple[list[Block], list[Block]]:
    """Main effects and pairs of attributes that can have an effect of their own, each by rising number of levels.

    Constant attributes, those that have one level per group, and those that divide the groups like another one (as a
    state does beside the pair of region and state) are omitted.

    Args:
        codes: Levels of the attributes, (K, A).
    """
    columns = [_number(column) for column in codes.T]
    groups = len(codes)
    distinct: list[Block] = []

    def add(attributes: tuple[int, ...], numbers: IntArray, most: float) -> None:
        size = int(numbers.max()) + 1
        same = (other for other in distinct if other.size == size)
        if 1 < size <= most and not any(np.array_equal(numbers, other.codes) for other in same):
            distinct.append(Block(attributes, numbers, size))

    for i, column in enumerate(columns):
        add((i,), column, groups - 1)
    mains = sorted(distinct, key=lambda block: block.size)
    for i, first in enumerate(columns):
        for j in range(i):
            add((j, i), _number(first * (columns[j].max() + 1) + columns[j]), _FINEST * groups)
    pairs = sorted(distinct[len(mains) :], key=lambda block: block.size)
    return mains, pairs


def _number(column: IntArray) -> IntArray:
    """Number levels from 0 in the order in which they first appear, so that equal divisions have equal numbers."""
    _, first, inverse = np.unique(column, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first, kind="stable")] = np.arange(first.size)
    return rank[inverse.reshape(-1)]


def select_blocks(blocks: list[Block], groups: int) -> list[Block]:
    """Take blocks in their order, as far as all of them together can be computed in bounded time and memory."""
    selected: list[Block] = []
    for block in blocks:
        sizes = sorted(other.size for other in (*selected, block))
        columns, many = 1 + sum(sizes[:-1]), len(sizes)
        if columns**2 * (columns + sizes[-1]) <= _DENSE and groups * many * (many + 1) // 2 <= _POSITIONS:
            selected.append(block)
    return selected


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """Where the random effects of K groups are in the equations.

    Attributes:
        blocks: The blocks; the one with most levels last.
        starts: First column of each block but the last; column 0 is the mean.
        columns: Number of these columns, c.
        levels: Levels of the last block, q.
        wide: Level of each group in the last block, (K,).
        inner: Positions of pairs of columns in a c × c table, upper triangle, (C(C+1)/2, K).
        twice: Whether such a pair counts twice in a quadratic form.
        outer: Positions of pairs of a level of the last block and a column, in a q × c table, (C, K).
        index: Columns of each group, (C, K).
    """

    blocks: tuple[Block, ...]
    starts: IntArray
    columns: int
    levels: int
    wide: IntArray
    inner: IntArray
    twice: FloatArray
    outer: IntArray
    index: IntArray

    @classmethod
    def of(cls, blocks: list[Block], groups: int) -> Crossing:
        """Lay out the equations of some blocks; with none there is only the mean."""
        ordered = sorted(blocks, key=lambda block: block.size)
        starts = np.cumsum([1, *(block.size for block in ordered[:-1])], dtype=np.int64)
        columns = int(starts[-1])
        # Without blocks the last one is a level without spread, which adds nothing.
        wide, levels = (ordered[-1].codes, ordered[-1].size) if ordered else (np.zeros(groups, np.int64), 1)
        index = np.stack(
            [
                np.zeros(groups, np.int64),
                *(start + block.codes for start, block in zip(starts[:-1], ordered[:-1], strict=True)),
            ]
        )
        left, right = np.triu_indices(len(index))
        return cls(
            tuple(ordered),
            starts[:-1],
            columns,
            levels,
            wide,
            index[left] * columns + index[right],
            np.where(left == right, 1.0, 2.0),
            wide * columns + index,
            index,
        )


class Prediction(NamedTuple):
    """What a fit says, with its variances taken as known.

    Attributes:
        value: Restricted log-likelihood, without its constant.
        gradient: Its slope in the log variances of the blocks and, last, of τ².
        curvature: About its information on each of them.
        fitted: Mean of every group without its own residual, (K,).
        mean: The same from the other groups alone (leave-one-out), (K,).
        variance: Variance of that mean about b₀ + Σ u_b, (K,): without τ².
    """

    value: float
    gradient: FloatArray
    curvature: FloatArray
    fitted: FloatArray
    mean: FloatArray
    variance: FloatArray


def predict(crossing: Crossing, y: FloatArray, noise: FloatArray, variances: FloatArray, tau2: float) -> Prediction:
    """Solve the equations of the random effects, and leave each group out in closed form.

    With e = y − fit and leverage l_i = W_i h_i, h_i the variance of the fit, the prediction of group i from the
    others is y_i − e_i / (1 − l_i), with variance h_i / (1 − l_i).

    Args:
        crossing: The equations.
        y: Estimates, (K,).
        noise: Variance of each about b₀ + Σ u_b, τ² included, (K,).
        variances: Variances of the blocks, in the order of the crossing.
        tau2: τ², for the gradient; 0 where `noise` is fixed.

    Raises:
        numpy.linalg.LinAlgError: The equations cannot be solved.
    """
    weight, columns, levels = 1 / noise, crossing.columns, crossing.levels
    scale = np.ones(columns)
    spreads = np.sqrt(variances) if len(variances) else np.zeros(1)
    sizes = [block.size for block in crossing.blocks[:-1]]
    scale[1:] = np.repeat(spreads[:-1], sizes)
    last = float(spreads[-1])

    table = _sum_at(crossing.inner, weight, columns**2).reshape(columns, columns) * scale[:, None] * scale
    np.einsum("ii->i", table)[1:] += 1
    diagonal = 1 + last**2 * _sum_at(crossing.wide, weight, levels)
    across = _sum_at(crossing.outer, weight, levels * columns).reshape(levels, columns) * (last * scale)
    ratio = across / diagonal[:, None]
    root, failed = dpotrf(table - across.T @ ratio, lower=0, clean=1)  # the upper triangle is all that is read
    if failed or not np.all(np.isfinite(root)):
        raise np.linalg.LinAlgError
    inverse, _ = dpotri(root, lower=0)
    inverse = np.triu(inverse) + np.triu(inverse, 1).T

    pull = scale * _sum_at(crossing.index, weight * y, columns)
    pull_wide = last * _sum_at(crossing.wide, weight * y, levels)
    effects = inverse @ (pull - ratio.T @ pull_wide)
    effects_wide = pull_wide / diagonal - ratio @ effects
    fitted = np.sum((scale * effects)[crossing.index], axis=0) + (last * effects_wide)[crossing.wide]

    cross = ratio @ inverse  # less the covariances of the last block with the columns
    own = 1 / diagonal + np.sum(cross * ratio, axis=1)
    scaled = (inverse * scale[:, None] * scale).ravel()
    spread = last**2 * own[crossing.wide]
    for positions, times in zip(crossing.inner, crossing.twice, strict=True):
        spread += times * scaled[positions]
    scaled = (cross * (2 * last * scale)).ravel()
    for positions in crossing.outer:
        spread -= scaled[positions]

    residual = y - fitted
    remaining = np.clip(1 - weight * spread, 1e-12, 1.0)
    effect_squares = [effects[a : a + q] @ effects[a : a + q] for a, q in zip(crossing.starts, sizes, strict=True)]
    uncertain = np.diagonal(inverse)
    certainty = [1 - uncertain[a : a + q] for a, q in zip(crossing.starts, sizes, strict=True)]
    if crossing.blocks:
        effect_squares.append(effects_wide @ effects_wide)
        certainty.append(1 - own)
    quadratic = np.sum(weight * residual**2) + sum(effect_squares)
    logarithms = np.sum(np.log(noise)) + np.sum(np.log(diagonal)) + 2 * np.sum(np.log(np.diagonal(root)))
    gradient = [0.5 * (square - part.sum()) for square, part in zip(effect_squares, certainty, strict=True)]
    gradient.append(0.5 * tau2 * (np.sum((weight * residual) ** 2) - np.sum(weight * remaining)))
    curvature = [0.5 * part @ part for part in certainty]
    curvature.append(0.5 * tau2**2 * np.sum((weight * remaining) ** 2))
    return Prediction(
        float(-0.5 * (logarithms + quadratic)),
        np.array(gradient),
        np.array(curvature),
        fitted,
        y - residual / remaining,
        np.maximum(spread, 0.0) / remaining,
    )


def _sum_at(positions: IntArray, values: FloatArray, size: int) -> FloatArray:
    """Sums of values (K,) by position; with positions (C, K), every row of them."""
    repeated = np.broadcast_to(values, positions.shape).ravel()
    return np.asarray(np.bincount(positions.ravel(), repeated, size), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Estimates in units in which their noise is neither huge nor tiny.

    Attributes:
        y: Estimates, (K,).
        noise: Variances of their noise for fitting: none is negligible beside the others, (K,).
        total: About the variance of the effects, S²: the scale of the prior of variances.
    """

    y: FloatArray
    noise: FloatArray
    total: float

    @classmethod
    def of(cls, y: FloatArray, variance: FloatArray) -> Sample:
        """Measure how far effects spread beyond noise, by moments.

        Weights are 1 / max(v, median), so that two precise groups that happen to agree do not hide what the others
        show; at least a quarter of the standard error of the moment.
        """
        middle = float(np.median(variance))
        weight = 1 / np.maximum(variance, middle)
        rest = 1 - weight / weight.sum()
        freedom, center = float(np.sum(weight * rest)), float(np.average(y, weights=weight))
        scatter = float(np.sum(weight * (y - center) ** 2))
        least = 0.25 * np.sqrt(2 * (len(y) - 1)) / freedom
        total = max((scatter - float(np.sum(weight * variance * rest))) / freedom, least)
        return cls(y, np.clip(variance, _DOMINATED * max(middle, 10 * total), middle / _DOMINATED), total)


@dataclass(frozen=True, slots=True, eq=False)
class RandomEffects:
    """A fit: variances of the blocks, τ² (0 where the noise was fixed), and what it predicts."""

    crossing: Crossing
    variances: FloatArray
    tau2: float
    scales: FloatArray
    prediction: Prediction


def fit_variances(
    crossing: Crossing,
    sample: Sample,
    *,
    noise: FloatArray | None = None,
    scales: FloatArray | None = None,
    family: IntArray | None = None,
    start: FloatArray | None = None,
) -> RandomEffects:
    """Find the variances at the highest restricted likelihood times their weak prior.

    Args:
        crossing: The equations.
        sample: Estimates and their noise.
        noise: Variance of every group about b₀ + Σ u_b, where it is fixed; v + τ² with τ² to be found otherwise.
        scales: Scales S² of the priors of the blocks' variances, (B,); that of the sample otherwise.
        family: Number of each block's variance, (B,); blocks of the same number share it. Each its own otherwise.
        start: Variances of the blocks to begin with; equal ones otherwise.

    Raises:
        numpy.linalg.LinAlgError: The equations cannot be solved.
    """
    count = len(crossing.blocks)
    scales = np.full(count, sample.total) if scales is None else scales
    number = np.arange(count) if family is None else family
    of_prior = scales
    if noise is None:  # τ² is a variance like those of the blocks
        number, of_prior = np.append(number, number.max(initial=-1) + 1), np.append(scales, sample.total)
    size = int(number.max(initial=-1)) + 1

    def solve(logs: FloatArray) -> Prediction:
        variances = np.exp(logs[number])
        tau2 = float(variances[-1]) if noise is None else 0.0
        return predict(crossing, sample.y, sample.noise + tau2 if noise is None else noise, variances[:count], tau2)

    def evaluate(logs: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        prediction, rho = solve(logs), logs[number]
        ratio = np.exp(rho) / of_prior
        value = prediction.value + float(np.sum(0.5 * _KAPPA * rho - (1 + _KAPPA) / 2 * np.log1p(ratio)))
        share = ratio / (1 + ratio)
        gradient = prediction.gradient[: len(rho)] + 0.5 * _KAPPA - (1 + _KAPPA) / 2 * share
        curvature = prediction.curvature[: len(rho)] + (1 + _KAPPA) / 2 * share * (1 - share)
        return value, _sum_at(number, gradient, size), _sum_at(number, curvature, size)

    if not size:
        return RandomEffects(crossing, np.empty(0), 0.0, scales, solve(np.empty(0)))
    middle = np.log(sample.total)
    begin = np.full(size, middle - np.log(size)) if start is None else np.log(start)
    logs = _maximize(evaluate, begin, middle + _LOWEST, middle + _HIGHEST)
    variances = np.exp(logs[number])
    tau2 = float(variances[-1]) if noise is None else 0.0
    return RandomEffects(crossing, variances[:count], tau2, scales, solve(logs))


def rank_blocks(blocks: list[Block], fit: RandomEffects, sample: Sample) -> list[Block]:
    """Order blocks that are not in a fit by how clearly its residuals vary along them.

    The score of σ_b² at 0 with its standard deviation, without the covariances of residuals:
    Σ_l ((Σ W e)² − Σ W) / √(2 Σ_l (Σ W)²), sums over the groups of level l.

    Args:
        blocks: The blocks.
        fit: A fit of other ones.
        sample: What it was fitted to.
    """
    weight = 1 / (sample.noise + fit.tau2)
    pull = weight * (sample.y - fit.prediction.fitted)
    scores = []
    for block in blocks:
        expected = np.bincount(block.codes, weight, block.size)
        excess = np.bincount(block.codes, pull, block.size) ** 2 - expected
        scores.append(float(excess.sum() / np.sqrt(2 * expected @ expected)))
    return [blocks[i] for i in np.argsort(-np.array(scores), kind="stable")]


def _maximize(
    evaluate: Callable[[FloatArray], tuple[float, FloatArray, FloatArray]],
    start: FloatArray,
    low: float,
    high: float,
) -> FloatArray:
    """Climb by quasi-Newton steps (BFGS) between bounds; the first step has the information that is returned."""
    at = np.clip(start, low, high)
    value, gradient, curvature = evaluate(at)
    inverse = np.diag(1 / np.maximum(curvature, 0.05))
    for _ in range(_ROUNDS):
        free = ~(((at <= low) & (gradient < 0)) | ((at >= high) & (gradient > 0)))
        step = np.where(free, inverse @ np.where(free, gradient, 0.0), 0.0)
        if not step @ gradient > _ENOUGH:
            break
        step *= min(1.0, _LONGEST / float(np.abs(step).max()))
        for _ in range(_BACKTRACKS):
            place = np.clip(at + step, low, high)
            try:
                risen, slope, _ = evaluate(place)
            except np.linalg.LinAlgError:
                risen, slope = -np.inf, gradient
            if risen >= value + 1e-4 * gradient @ (place - at):
                break
            step *= 0.3
        else:
            break
        moved, bent = place - at, gradient - slope
        at, value, gradient = place, risen, slope
        inverse = _update(inverse, moved, bent, free)
    return at


def _update(inverse: FloatArray, moved: FloatArray, bent: FloatArray, free: BoolArray) -> FloatArray:
    """Correct the inverse information by what a step showed (BFGS), where that leaves it positive."""
    moved, bent = np.where(free, moved, 0.0), np.where(free, bent, 0.0)
    product = float(moved @ bent)
    if not product > 1e-3 * float(moved @ moved) * 0.05:
        return inverse
    side = np.eye(len(moved)) - np.outer(moved, bent) / product
    return np.asarray(side @ inverse @ side.T + np.outer(moved, moved) / product)
