"""Crossed random effects of attributes: variances by restricted likelihood, and every group predicted from the others.

    θ_i = b₀ + Σ_b u_b[level of i] + r_i + noise,   u_b ~ N(0, σ_b²),   r_i ~ N(0, τ²),   noise ~ N(0, v_i)

A block b is an attribute or a pair of attributes. With noise D_i = v_i + τ² and W = 1/D, everything follows from the
p × p matrix M = I + Λ Z'WZ Λ of the standardized effects (Henderson): its largest block is diagonal and is eliminated
first (Schur complement), the others are dense. Nothing is K × K: an evaluation is O(K B² + q c²) for B blocks, the
largest of q levels and c columns beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri

if TYPE_CHECKING:
    from collections.abc import Callable

    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.scales import FloatArray

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
    known = [1 - uncertain[a : a + q] for a, q in zip(crossing.starts, sizes, strict=True)]
    if crossing.blocks:
        effect_squares.append(effects_wide @ effects_wide)
        known.append(1 - own)
    quadratic = np.sum(weight * residual**2) + sum(effect_squares)
    logarithms = np.sum(np.log(noise)) + np.sum(np.log(diagonal)) + 2 * np.sum(np.log(np.diagonal(root)))
    gradient = [0.5 * (square - part.sum()) for square, part in zip(effect_squares, known, strict=True)]
    gradient.append(0.5 * tau2 * (np.sum((weight * residual) ** 2) - np.sum(weight * remaining)))
    curvature = [0.5 * part @ part for part in known]
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
