"""From draws of groups with equal effects to adjusted p-values: P(top merge ≥ height).

For normal estimates a draw has a direction and a length, and only directions are drawn (docs/method.md, "Calibration").
For other comparisons the draws are counted.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtri_exp

from faultlines.core import kernels
from faultlines.core.comparison import AS_GOOD_AS_KNOWN, BLOCK, generator
from faultlines.core.distributions import log_chi_square_tail, log_t_tail
from faultlines.guarantees.base import run_in_order
from faultlines.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faultlines.core.comparison import Comparison, NullDraws
    from faultlines.estimates.scales import FloatArray

_CLEAR = 0.2  # a p above this after a tenth of the draws is not worth the rest of them
_BUNDLES = 256  # so many bundles of like directions stand for all of them where a curve of p is drawn
_EXACT_HEIGHTS = 512  # more merges than this in question are read off a curve


class Calibration(NamedTuple):
    """Adjusted log p of merges, and the number of draws behind them."""

    log_p: FloatArray
    draws: int


def calibrate(
    comparison: Comparison, heights: FloatArray, draws: int, seed: int, *, cores: int | None = None
) -> Calibration:
    """Adjusted p of merges of these heights: P(top merge of groups with equal effects ≥ height).

    Args:
        comparison: The groups.
        heights: Heights of merges in their tree, that of the top one among them.
        draws: How many draws at most.
        seed: Of the draws; the result does not depend on the number of cores.
        cores: How many to use; all by default.
    """
    top = float(heights.max(initial=0.0))
    if top == 0:  # one group, or all the same
        return Calibration(np.zeros(heights.size), 0)
    null = comparison.null_draws(top, draws, seed)
    return (
        _by_direction(null, heights, top, draws, cores)
        if null.length_dof
        else _counted(null, heights, top, draws, cores)
    )


def _by_direction(null: NullDraws, heights: FloatArray, top: float, draws: int, cores: int | None) -> Calibration:
    """Average over directions, the data's own included, of the probability that the length reaches the height."""
    fractions: list[FloatArray] = [np.array([null.own])]

    def clear() -> bool:
        return bool(_log_p_of_top(top, np.concatenate(fractions), null.length_dof) > np.log(_CLEAR))

    _draw(null, draws, fractions, clear, cores)
    drawn = np.concatenate(fractions)
    log_p = _log_pvalues(heights, drawn, null.length_dof)
    if np.isfinite(null.tail_dof):
        log_p = with_heavier_tail(log_p, drawn.size, null.tail_dof)
    return Calibration(log_p, drawn.size - 1)


def _counted(null: NullDraws, heights: FloatArray, top: float, draws: int, cores: int | None) -> Calibration:
    """One more than the draws whose top merge is as high, over one more than the draws."""
    tops: list[FloatArray] = []

    def clear() -> bool:
        return bool(np.mean(np.concatenate(tops) >= top) > _CLEAR)

    _draw(null, draws, tops, clear, cores)
    ranked = np.sort(np.concatenate(tops))
    # Counts make ties; rounding must not break them in favor of a difference.
    as_high = ranked.size - np.searchsorted(ranked, heights - 1e-9 * np.abs(heights))
    return Calibration(np.log((as_high + 1.0) / (ranked.size + 1.0)), ranked.size)


def _draw(null: NullDraws, draws: int, into: list[FloatArray], clear: Callable[[], bool], cores: int | None) -> None:
    """Collect blocks in their order, with one look after a tenth of the draws.

    Stopping only where p is clearly large keeps p valid at every level: below that, p is that of all the draws; above
    it, at most that share of the data sets went on to them.
    """
    so_far, look_at = 0, -(-draws // 10)
    with progress("drawing groups with equal effects", draws) as advance:
        for done in _blocks(null, draws, cores if null.uses_threads else 1):
            into.append(done)
            so_far += done.size
            advance(done.size)
            if look_at <= so_far < draws:
                look_at = draws
                if clear():
                    return


def _blocks(null: NullDraws, draws: int, cores: int | None) -> Iterator[FloatArray]:
    return run_in_order(
        lambda number: null.block(number, min(null.rows, draws - number * null.rows)), -(-draws // null.rows), cores
    )


def critical_height(comparison: Comparison, alpha: float, draws: int, seed: int) -> float:
    """The height above which a merge is a split at level α, whatever the effects: it follows from their errors."""
    null = comparison.null_draws(0.0, draws, seed)
    fractions = np.concatenate(list(_blocks(null, draws, None)))
    shares = np.full(fractions.size, 1 / fractions.size)

    def is_above(height: float) -> bool:
        return bool(_log_exceedance(np.array([height]), fractions, shares, null.length_dof)[0] > np.log(alpha))

    low, high = 0.0, 1.0
    while is_above(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_above(middle) else (low, middle)
    return high


# ------------------------------------------------------------------------------------------------- many at once


def calibrate_many(
    comparisons: Sequence[Comparison],
    heights: Sequence[FloatArray],
    draws: int,
    seed: int,
    advance: Callable[[int], None],
) -> list[Calibration]:
    """The same as `calibrate` for many plain comparisons with the same number of groups, to the last digit.

    For one seed all of them rest on the same standard normals; those are drawn once and go through one compiled pass.
    """
    groups = len(comparisons[0])
    rows = max(1, min(512, BLOCK // groups))
    count = -(-draws // rows)
    blocks = [generator(seed, b).standard_normal((min(rows, draws - b * rows), groups)) for b in range(count)]
    first = min(math.ceil(math.ceil(draws / 10) / rows), count)
    early, late = np.concatenate(blocks[:first]), np.concatenate([*blocks[first:], np.empty((0, groups))])
    portion = 32

    def calibrate_portion(number: int) -> list[Calibration]:
        portion_of_all = range(number * portion, min((number + 1) * portion, len(comparisons)))
        errors = [estimates.errors[:, 0] for e in portion_of_all if (estimates := comparisons[e].estimates) is not None]
        scales = np.sort(np.stack(errors), axis=1)
        scales /= np.exp(np.log(scales).mean(axis=1, keepdims=True))
        looked = np.empty((len(portion_of_all), len(early)))
        kernels.top_fractions(early, scales, looked)
        return [calibrate_one(e, scales[i : i + 1], looked[i]) for i, e in enumerate(portion_of_all)]

    def calibrate_one(e: int, scale: FloatArray, looked: FloatArray) -> Calibration:
        top = float(heights[e].max(initial=0.0))
        if top == 0:
            return Calibration(np.zeros(heights[e].size), 0)
        own = comparisons[e].null_draws(top, draws, seed).own
        fractions = np.concatenate([[own], looked])
        of_top: float | None = _log_p_of_top(top, fractions, groups - 1)
        if len(late) and of_top is not None and of_top <= np.log(_CLEAR):
            rest = np.empty((1, len(late)))
            kernels.top_fractions(late, scale, rest)
            fractions, of_top = np.concatenate([fractions, rest[0]]), None
        return Calibration(_log_pvalues(heights[e], fractions, groups - 1, of_top), fractions.size - 1)

    calibrations: list[Calibration] = []
    for done in run_in_order(calibrate_portion, -(-len(comparisons) // portion)):
        calibrations += done
        advance(len(done))
    return calibrations


# ----------------------------------------------------------------------------------------------- from draws to p-values


def _log_p_of_top(top: float, fractions: FloatArray, freedom: int) -> float:
    """Log p of the highest merge, on which the global test rests: exactly as defined."""
    shares = np.full(fractions.size, 1 / fractions.size)
    return float(_log_exceedance(np.array([top]), fractions, shares, freedom)[0])


def _log_pvalues(heights: FloatArray, fractions: FloatArray, freedom: int, of_top: float | None = None) -> FloatArray:
    """Log p of every merge; `fractions` begins with that of the data.

    The highest merge, on which the global test rests, gets its p exactly as defined. For the others, directions with
    nearly the same fraction are taken together, and where there are very many merges p is read off a curve.
    """
    top = float(heights.max())
    exact = _log_p_of_top(top, fractions, freedom) if of_top is None else of_top
    if heights.size == 1:
        return np.array([exact])
    bundles, shares = _bundled(fractions)
    # Law of the top merge of pure noise: a fraction times a chi-square number.
    expected = float(np.sum(shares * bundles)) * freedom
    of_length = expected * np.sqrt(2 / freedom)
    spread = float(np.hypot(of_length, expected * np.std(fractions[1:]) / np.mean(fractions[1:])))
    log_p = np.zeros(heights.size)  # merges that noise is sure to exceed keep p = 1
    open_question = np.flatnonzero(heights > expected - 8 * spread)
    distinct, back = np.unique(heights[open_question], return_inverse=True)
    if distinct.size <= _EXACT_HEIGHTS:
        log_p[open_question] = _log_exceedance(distinct, bundles, shares, freedom)[back]
    else:
        near = np.linspace(
            max(expected - 8 * spread, 0.0), expected + 30 * spread, int(min(380 * spread / of_length, 5000))
        )
        far = expected + spread * np.geomspace(30.0, max((top - expected) / spread, 30.0) * 1.01, 128)
        # Log p bends downwards, so a chord lies below it. Near by that is a thousandth at most; farther out the p
        # of the next lower point is taken, which errs on the safe side.
        at_near, at_far = (_log_exceedance(points, bundles, shares, freedom) for points in (near, far))
        step = at_far[np.clip(np.searchsorted(far, distinct, side="right") - 1, 0, None)]
        log_p[open_question] = np.where(distinct <= near[-1], np.interp(distinct, near, at_near), step)[back]
    return np.asarray(np.where(heights == top, exact, np.maximum(log_p, exact)), dtype=np.float64)


def _bundled(fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Fractions in a few hundred bundles of nearly equal ones, with the share of each; the data's own stays alone."""
    ranked = np.log(np.sort(fractions[1:]))
    width = max((ranked[-1] - ranked[0]) / _BUNDLES, 1e-12)
    first = np.unique(((ranked - ranked[0]) // width).astype(np.int64), return_index=True)[1]
    counts = np.diff(np.append(first, ranked.size))
    bundles = np.exp(np.add.reduceat(ranked, first) / counts)
    return np.append(bundles, fractions[0]), np.append(counts, 1) / fractions.size


def _log_exceedance(heights: FloatArray, fractions: FloatArray, shares: FloatArray, freedom: int) -> FloatArray:
    """Log of the average over directions of P(χ² ≥ height / fraction), for each height."""
    each = log_chi_square_tail(heights[:, None] / fractions[None, :], freedom)
    most = each.max(axis=1, keepdims=True)
    return np.asarray(np.minimum(most[:, 0] + np.log(np.exp(each - most) @ shares), 0.0))


def with_heavier_tail(log_p: FloatArray, drawn: int, dof: float) -> FloatArray:
    """Below one in so many draws, let p fall like the tail of Student's t, not like a normal one.

    Draws with estimated variances have shown no rarer event than that; what lies beyond is decided by variances that
    come out far too small, as in a t with the smallest degrees of freedom. The normal quantile of p is kept.
    """
    limit = -np.log(drawn)
    if dof >= AS_GOOD_AS_KNOWN or log_p.min() >= limit:
        return log_p
    quantile, at_limit = (-ndtri_exp(value - np.log(2)) for value in (log_p, limit))
    return np.where(log_p < limit, limit + log_t_tail(quantile, dof) - log_t_tail(at_limit, dof), log_p)
