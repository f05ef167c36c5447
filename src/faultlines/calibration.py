"""Groups that are all alike, drawn again and again: the law of their highest merge, for these very standard errors.

For normal estimates a draw has a direction and a length, and only directions are drawn (docs/method.md, "Calibration").
For other notions the draws are counted.
"""

from __future__ import annotations

import math
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from scipy.special import ndtri_exp

from faultlines import _walk
from faultlines.errors import InputError
from faultlines.hierarchy import correlated_state, merged_by_test
from faultlines.progress import progress
from faultlines.similarity import (
    AS_GOOD_AS_KNOWN,
    BINOMIAL,
    CORRELATED,
    PLANE,
    POISSON,
    WELCH,
    Gaussian,
    Similarity,
    count_draws,
    drawn_from,
    true_roots,
    true_scales,
    welch_draws,
    welch_state,
    wishart_around,
)
from faultlines.tails import log_chi_square_1_tail, log_chi_square_tail, log_t_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faultlines.estimates import Estimates, FloatArray
    from faultlines.similarity import Notion

_BLOCK = 2**17  # numbers in one block of draws: a megabyte, which stays in a core's own cache
_MOST_DRAWS, _FEWEST_DRAWS = 10_000, 300
_CLEAR = 0.2  # a p above this after a tenth of the draws is not worth the rest of them
_BUNDLES = 256  # so many bundles of like directions stand for all of them where a curve of p is drawn
_EXACT_HEIGHTS = 512  # more merges than this in question are read off a curve


_Made = TypeVar("_Made")


class Calibration(NamedTuple):
    """Adjusted log p of merges, and the number of draws behind them."""

    log_p: FloatArray
    draws: int


def draws_for(notion: Notion) -> int:
    """How many draws a notion gets by default: fewer where each of them is much work."""
    groups = len(notion)
    if isinstance(notion, Gaussian) and notion.estimates.dims == 1:
        return int(np.clip(100_000_000 // groups, _FEWEST_DRAWS, _MOST_DRAWS))
    if isinstance(notion, Gaussian):
        return int(np.clip(400_000_000 // groups**2, 99, _MOST_DRAWS))
    kernel = notion.kernel if isinstance(notion, Similarity) else None
    if kernel in {BINOMIAL, POISSON}:
        return int(np.clip(20_000_000 // groups, 999, _MOST_DRAWS))
    return int(np.clip(20_000_000 // groups**2, 199, _MOST_DRAWS)) if kernel == WELCH else 999


def calibrated(notion: Notion, heights: FloatArray, draws: int, seed: int, *, cores: int | None = None) -> Calibration:
    """Adjusted p of merges of these heights: P(top merge of groups that are all alike ≥ height).

    Args:
        notion: The groups.
        heights: Heights of merges in their tree, that of the top one among them.
        draws: How many draws at most.
        seed: Of the draws; the result does not depend on the number of cores.
        cores: How many to use; all by default.
    """
    top = float(heights.max(initial=0.0))
    if top == 0:  # one group, or all the same
        return Calibration(np.zeros(heights.size), 0)
    if isinstance(notion, Gaussian):
        return _by_direction(notion, heights, top, draws, seed, cores)
    if isinstance(notion, Similarity):
        return _by_counting(notion, heights, top, draws, seed, cores)
    raise TypeError(type(notion))


def _by_direction(
    notion: Gaussian, heights: FloatArray, top: float, draws: int, seed: int, cores: int | None
) -> Calibration:
    """Average over directions, the data's own included, of the chance that the length reaches the height."""
    estimates = notion.estimates
    freedom = estimates.dims * (len(estimates) - 1)
    if estimates.dims == 1:
        scale = true_scales(estimates.se, estimates.dof)
        # With a tolerance, alike groups may lie anywhere within it. Whatever they do, the top merge of what they show
        # is at most the best cut in two of their noise; so the law of that is what heights are held against.
        best = notion.tolerance > 0
        own = (_best_cut(estimates, scale) if best else top) / _length(estimates, scale)
        rows, block = _line_blocks(scale, estimates.dof, draws, seed, best)
    else:
        root = true_roots(estimates)
        own = top / _length_of_several(estimates, root)
        rows, block = _plane_blocks(estimates, root, draws, seed)
    fractions: list[FloatArray] = [np.array([own])]

    def clear() -> bool:
        return bool(_log_p_of_top(top, np.concatenate(fractions), freedom) > np.log(_CLEAR))

    _drawn(block, rows, draws, fractions, clear, cores)
    drawn = np.concatenate(fractions)
    log_p = _log_pvalues(heights, drawn, freedom)
    if estimates.dof is not None:
        log_p = _with_heavier_tail(log_p, drawn.size, float(estimates.dof.min()))
    return Calibration(log_p, drawn.size - 1)


def _by_counting(
    notion: Similarity, heights: FloatArray, top: float, draws: int, seed: int, cores: int | None
) -> Calibration:
    """One more than the draws whose top merge is as high, over one more than the draws."""
    rows, block = _count_blocks(notion, draws, seed)
    tops: list[FloatArray] = []

    def clear() -> bool:
        return bool(np.mean(np.concatenate(tops) >= top) > _CLEAR)

    # A function of the user's own holds Python's lock: threads would only wait for each other.
    _drawn(block, rows, draws, tops, clear, 1 if notion.kernel is None else cores)
    ranked = np.sort(np.concatenate(tops))
    # Counts make ties; rounding must not break them in favour of a claim.
    reached = ranked.size - np.searchsorted(ranked, heights - 1e-9 * np.abs(heights))
    return Calibration(np.log((reached + 1.0) / (ranked.size + 1.0)), ranked.size)


MANY_GROUPS = 64  # up to here many experiments are calibrated in one compiled pass


def calibrated_many(
    notions: Sequence[Gaussian], heights: Sequence[FloatArray], draws: int, seed: int, advance: Callable[[int], None]
) -> list[Calibration]:
    """The same as `calibrated` for many experiments with the same number of groups, to the last digit.

    For one seed all of them rest on the same standard normals; those are drawn once and go through one compiled pass.
    """
    groups = len(notions[0])
    rows = max(1, min(512, _BLOCK // groups))
    count = -(-draws // rows)
    blocks = [_generator(seed, b).standard_normal((min(rows, draws - b * rows), groups)) for b in range(count)]
    first = min(math.ceil(math.ceil(draws / 10) / rows), count)
    early, late = np.concatenate(blocks[:first]), np.concatenate([*blocks[first:], np.empty((0, groups))])
    portion = 32

    def some(number: int) -> list[Calibration]:
        mine = range(number * portion, min((number + 1) * portion, len(notions)))
        scales = np.stack([np.sort(notions[e].estimates.se) for e in mine])
        scales /= np.exp(np.log(scales).mean(axis=1, keepdims=True))
        looked = np.empty((len(mine), len(early)))
        _walk.many_fractions(early, scales, looked)
        return [one(e, scales[i : i + 1], looked[i]) for i, e in enumerate(mine)]

    def one(e: int, scale: FloatArray, looked: FloatArray) -> Calibration:
        top = float(heights[e].max(initial=0.0))
        if top == 0:
            return Calibration(np.zeros(heights[e].size), 0)
        estimates = notions[e].estimates
        fractions = np.concatenate([[top / _length(estimates, estimates.se)], looked])
        of_top: float | None = _log_p_of_top(top, fractions, groups - 1)
        if len(late) and of_top is not None and of_top <= np.log(_CLEAR):
            rest = np.empty((1, len(late)))
            _walk.many_fractions(late, scale, rest)
            fractions, of_top = np.concatenate([fractions, rest[0]]), None
        return Calibration(_log_pvalues(heights[e], fractions, groups - 1, of_top), fractions.size - 1)

    made: list[Calibration] = []
    for done in in_order(some, -(-len(notions) // portion)):
        made += done
        advance(len(done))
    return made


# --------------------------------------------------------------------------------------------------------------- blocks


def _drawn(
    block: Callable[[int], FloatArray],
    rows: int,
    draws: int,
    into: list[FloatArray],
    clear: Callable[[], bool],
    cores: int | None,
) -> None:
    """Collect blocks in their order, with one look after a tenth of the draws.

    Stopping only where p is clearly large keeps p valid at every level: below that, p is that of all the draws; above
    it, at most that share of the data sets went on to them.
    """
    so_far, look_at = 0, -(-draws // 10)
    with progress("drawing groups that are all alike", draws) as advance:
        for done in in_order(block, -(-draws // rows), cores):
            into.append(done)
            so_far += done.size
            advance(done.size)
            if look_at <= so_far < draws:
                look_at = draws
                if clear():
                    return


def in_order(block: Callable[[int], _Made], total: int, cores: int | None = None) -> Iterator[_Made]:
    """Blocks of work in a fixed order, made on all cores.

    Only a few blocks are in flight at a time: memory stays bounded, and an interrupt is answered within one block.
    """
    cores = cores or available_cores()
    if total == 1 or cores == 1:
        for number in range(total):
            yield block(number)
        return
    with ThreadPoolExecutor(cores) as pool:
        waiting = deque(pool.submit(block, number) for number in range(min(2 * cores, total)))
        submitted = len(waiting)
        try:
            while waiting:
                done = waiting.popleft().result()
                if submitted < total:
                    waiting.append(pool.submit(block, submitted))
                    submitted += 1
                yield done
        finally:
            for future in waiting:
                future.cancel()


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _generator(seed: int, number: int) -> np.random.Generator:
    """Every block has a random stream of its own, so the numbers depend on the seed and not on the number of cores."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(number,))))


def _line_blocks(
    scale: FloatArray, dof: FloatArray | None, draws: int, seed: int, best: bool
) -> tuple[int, Callable[[int], FloatArray]]:
    """Top merge (or best cut) over squared length of draws on a line."""
    rows = max(1, min(512, _BLOCK // scale.size))
    # In an order of their own, so that the order of the groups does not change the answer.
    order = np.argsort(scale) if dof is None else np.lexsort((dof, scale))
    scale = scale[order] / np.exp(np.log(scale).mean())
    known = (1 / scale**2)[None, :]
    half = None if dof is None else np.minimum(dof[order], AS_GOOD_AS_KNOWN) / 2

    def block(number: int) -> FloatArray:
        rng = _generator(seed, number)
        normal = rng.standard_normal((min(rows, draws - number * rows), scale.size))
        weight = known
        if half is not None:
            weight = known / (rng.standard_gamma(half, size=normal.shape) / half)
        radius, top = np.empty(len(normal)), np.empty(len(normal))
        _walk.pack(normal, scale, radius)
        normal.sort(axis=1)
        _walk.top_heights(normal, weight, top, int(best))
        return top / np.maximum(radius, np.finfo(float).tiny)

    return rows, block


def _plane_blocks(
    estimates: Estimates, root: FloatArray, draws: int, seed: int
) -> tuple[int, Callable[[int], FloatArray]]:
    """Top merge over squared length of draws in several dimensions."""
    groups, dims = root.shape[:2]
    dof = np.full(groups, np.inf) if estimates.dof is None else np.minimum(estimates.dof, AS_GOOD_AS_KNOWN)
    order = np.lexsort((dof, *root.reshape(groups, -1).T))
    root, dof = root[order] / np.exp(np.log(np.diagonal(root, axis1=1, axis2=2)).mean()), dof[order]
    outward = np.linalg.qr(np.linalg.inv(root).reshape(groups * dims, dims))[0]  # directions of a common shift
    rows = max(1, min(256, _BLOCK // (groups * dims * (2 if estimates.cov is None else 2 + 2 * dims))))
    scale, cov = np.diagonal(root, axis1=1, axis2=2), root @ np.swapaxes(root, 1, 2)

    def block(number: int) -> FloatArray:
        rng = _generator(seed, number)
        count = min(rows, draws - number * rows)
        normal = rng.standard_normal((count, groups, dims))
        flat = normal.reshape(count, -1)
        radius = np.einsum("ri,ri->r", flat, flat) - np.sum((flat @ outward) ** 2, axis=1)
        if estimates.cov is None:
            seen = np.broadcast_to(scale, normal.shape)
            if estimates.dof is not None:
                half = dof[:, None] / 2
                seen = seen * np.sqrt(rng.standard_gamma(half, size=normal.shape) / half)
            state = np.concatenate([(normal * scale).transpose(0, 2, 1), (seen**-2.0).transpose(0, 2, 1)], axis=1)
            kind = PLANE
        else:
            means = np.einsum("kij,rkj->rki", root, normal)
            drawn = cov[None] if estimates.dof is None else wishart_around(root, dof, count, rng)
            state = np.stack([correlated_state(m.T, drawn[r % len(drawn)]) for r, m in enumerate(means)])
            kind = CORRELATED
        top = np.empty(count)
        _walk.top_plane(kind, np.ascontiguousarray(state), top)
        return np.asarray(top / np.maximum(radius, np.finfo(float).tiny))

    return rows, block


def _count_blocks(notion: Similarity, draws: int, seed: int) -> tuple[int, Callable[[int], FloatArray]]:
    """Top merges, as −log p, of draws from the null of any other notion."""
    s, kernel = notion.statistics, notion.kernel
    null = notion.null
    if null is None:
        raise InputError(
            "guarantee='calibrated'",
            "this notion of similarity does not say how groups that are all alike look",
            "Give Similarity(…, null=…), or use guarantee='bonferroni'.",
        )
    order = np.lexsort(s.T)
    s = s[order]
    rows = max(1, min(256, _BLOCK // (3 * len(s)))) if kernel is not None else 1

    def block(number: int) -> FloatArray:
        rng = _generator(seed, number)
        count = min(rows, draws - number * rows)
        top = np.empty(count)
        if kernel in {BINOMIAL, POISSON}:
            drawn = count_draws(int(kernel or 0), s, rng, count)
            tops = line_tops(drawn[:, :, 0] / drawn[:, :, 1], drawn[:, :, 1], int(kernel or 0))
            return -log_chi_square_1_tail(tops)
        if kernel == WELCH:
            _walk.top_plane(WELCH, welch_state(welch_draws(s, rng, count)), top)
            return top
        made = drawn_from(null, s, rng)
        return np.array([merged_by_test(notion, made, shown=False)[1].max()])

    return rows, block


def line_tops(means: FloatArray, weights: FloatArray, kind: int, epsilon: float = 0.0) -> FloatArray:
    """Highest merge of every row of means on a line, given their weights."""
    order = np.argsort(means, axis=1, kind="stable")
    top = np.empty(len(means))
    weights = np.take_along_axis(np.broadcast_to(weights, means.shape), order, axis=1)
    _walk.top_lines(np.take_along_axis(means, order, axis=1), weights, top, kind, epsilon)
    return top


def _length(estimates: Estimates, scale: FloatArray) -> float:
    """Cochran's Q of the data, with the scales the draws use: its squared length once a common shift is taken out."""
    theta = estimates.theta - estimates.theta[len(estimates) // 2]
    weight = (scale.min() / scale) ** 2
    centre = float(np.sum(weight * theta) / weight.sum())
    return float(np.sum(((theta - centre) / scale) ** 2))


def _length_of_several(estimates: Estimates, root: FloatArray) -> float:
    """The same for several effects at once."""
    theta = estimates.theta - estimates.theta[len(estimates) // 2]
    standard = np.linalg.solve(root, theta[:, :, None]).reshape(-1)
    shift = np.linalg.qr(np.linalg.inv(root).reshape(-1, estimates.dims))[0]
    return float(np.sum((standard - shift @ (shift.T @ standard)) ** 2))


def _best_cut(estimates: Estimates, scale: FloatArray) -> float:
    """The largest likelihood ratio of all cuts of the data in two."""
    theta = estimates.theta - estimates.theta[len(estimates) // 2]
    order = np.argsort(theta)
    weight = (scale.min() / scale[order]) ** 2
    moment = np.cumsum(weight * (theta[order] - np.sum(weight * theta[order]) / weight.sum()))[:-1]
    left = np.cumsum(weight)[:-1]
    return float(np.max(moment**2 * (weight.sum() / (left * (weight.sum() - left))))) / float(scale.min()) ** 2


# ----------------------------------------------------------------------------------------------- from draws to p-values


def _log_p_of_top(top: float, fractions: FloatArray, freedom: int) -> float:
    """Log p of the highest merge, on which the global claim rests: exactly as defined."""
    shares = np.full(fractions.size, 1 / fractions.size)
    return float(_log_exceedance(np.array([top]), fractions, shares, freedom)[0])


def _log_pvalues(heights: FloatArray, fractions: FloatArray, freedom: int, of_top: float | None = None) -> FloatArray:
    """Log p of every merge; `fractions` begins with that of the data.

    The highest merge, on which the global claim rests, gets its p exactly as defined. For the others, directions with
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
    asked, back = np.unique(heights[open_question], return_inverse=True)
    if asked.size <= _EXACT_HEIGHTS:
        log_p[open_question] = _log_exceedance(asked, bundles, shares, freedom)[back]
    else:
        near = np.linspace(
            max(expected - 8 * spread, 0.0), expected + 30 * spread, int(min(380 * spread / of_length, 5000))
        )
        far = expected + spread * np.geomspace(30.0, max((top - expected) / spread, 30.0) * 1.01, 128)
        # Log p bends downwards, so a chord lies below it. Near by that is a thousandth at most; farther out the p
        # of the next lower point is taken, which errs on the safe side.
        at_near, at_far = (_log_exceedance(points, bundles, shares, freedom) for points in (near, far))
        step = at_far[np.clip(np.searchsorted(far, asked, side="right") - 1, 0, None)]
        log_p[open_question] = np.where(asked <= near[-1], np.interp(asked, near, at_near), step)[back]
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


def _with_heavier_tail(log_p: FloatArray, drawn: int, dof: float) -> FloatArray:
    """Below one in so many draws, let p fall like the tail of Student's t, not like a normal one.

    Draws with estimated variances have shown no rarer event than that; what lies beyond is decided by variances that
    come out far too small, as in a t with the smallest degrees of freedom. The normal quantile of p is kept.
    """
    limit = -np.log(drawn)
    if dof >= AS_GOOD_AS_KNOWN or log_p.min() >= limit:
        return log_p
    quantile, at_limit = (-ndtri_exp(value - np.log(2)) for value in (log_p, limit))
    return np.where(log_p < limit, limit + log_t_tail(quantile, dof) - log_t_tail(at_limit, dof), log_p)


def critical_height(notion: Gaussian, alpha: float, draws: int, seed: int) -> float:
    """The height above which a merge is a split at level α, whatever the estimates: it follows from their errors."""
    estimates = notion.estimates
    freedom = len(estimates) - 1
    rows, block = _line_blocks(estimates.se, None, draws, seed, notion.tolerance > 0)
    fractions = np.concatenate(list(in_order(block, -(-draws // rows))))
    shares = np.full(fractions.size, 1 / fractions.size)
    low, high = 0.0, 1.0
    while _log_exceedance(np.array([high]), fractions, shares, freedom)[0] > np.log(alpha):
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        above = _log_exceedance(np.array([middle]), fractions, shares, freedom)[0] > np.log(alpha)
        low, high = (middle, high) if above else (low, middle)
    return high
