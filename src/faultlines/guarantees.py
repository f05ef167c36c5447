"""What makes a split believable: a guarantee turns a tree and its estimates into one adjusted p for every merge.

Everything to the right reads those p and nothing else. They are kept as logarithms, because a split in a large
experiment easily has a p far below the smallest double.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import betainc, betaln, digamma, gammaincc, gammaln, log_ndtr, ndtri_exp, polygamma

from faultlines import _walk
from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faultlines.estimates import Estimates, FloatArray
    from faultlines.hierarchy import Hierarchy

_BLOCK = 2**17  # numbers in one block of draws: a megabyte, which stays in a core's own cache
_WORK = 100_000_000  # numbers drawn in all before the default number of draws begins to shrink with K
_MOST_DRAWS, _FEWEST_DRAWS = 10_000, 300
_CLEAR = 0.2  # a p above this after a tenth of the draws is not worth the rest of them
_BUNDLES = 256  # so many bundles of like directions stand for all of them where a curve of p is drawn
_EXACT_HEIGHTS = 512  # more merges than this in question are read off a curve
_AS_GOOD_AS_KNOWN = 1e12  # degrees of freedom


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a guarantee says about one tree.

    Attributes:
        log_pvalues: Natural logarithm of the adjusted p of the merge that closes each gap, in the order of the gaps.
        facts: How it was found, for the reader of a result: draws, seed and the like.
    """

    log_pvalues: FloatArray
    facts: dict[str, int | float | str]

    def __post_init__(self) -> None:
        self.log_pvalues.setflags(write=False)


@dataclass(frozen=True, slots=True)
class Bonferroni:
    """The paper's Algorithm 2: a merge is a split when its p, as if chosen beforehand, is below α/K².

    Provided for comparison. It does not hold what it promises: merging sorts the noise first, and with 50 groups of
    pure noise and equal standard errors it claims clusters in 98 of 100 data sets at α = 0.05.
    """

    name: ClassVar[str] = "bonferroni"

    def judge(self, estimates: Estimates, hierarchy: Hierarchy, seed: int) -> Judgement:
        """Adjusted p = K² · P(χ²₁ ≥ height)."""
        pointwise = np.log(2.0) + log_ndtr(-np.sqrt(hierarchy.gap_heights))
        return Judgement(np.minimum(pointwise + 2 * np.log(len(hierarchy)), 0.0), {})

    def check(self, alpha: float) -> None:
        """Any level can be asked of this guarantee."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The chance that groups without any difference would show a merge as high as this one somewhere in their tree.

    Groups that are all alike are drawn again and again with the standard errors at hand, and each draw is
    agglomerated. A draw has a direction (its pattern of noise) and a length (Cochran's Q); the two are independent, the
    height of the top merge is proportional to the squared length, and the law of that length is known to be χ² on
    K − 1 degrees of freedom. So only directions need drawing: p is the average over directions, the data's own
    included, of the chance that the length reaches the height. Under the null that p is exactly uniform, whatever the
    number of draws and however small the p, and it needs no fitted tail. See docs/method.md.

    With `dof` the standard errors are estimates themselves. Draws then carry estimated variances as well, around true
    ones that are spread as widely as the data's, less the spread that estimation adds.

    Args:
        draws: How many draws at most. Default: 10,000, fewer for very many groups (300 for a million). They are cut
            short after a tenth when p is clearly large (above 0.2), which keeps p valid.
    """

    draws: int | None = None
    name: ClassVar[str] = "calibrated"

    def __post_init__(self) -> None:
        if self.draws is None:
            return
        if isinstance(self.draws, bool) or not isinstance(self.draws, int | np.integer) or self.draws < 1:
            raise InputError(f"draws={shorten(self.draws)}", "must be a whole number above 0", "Use draws=10_000.")

    def check(self, alpha: float) -> None:
        """Refuse a number of draws, if one was asked for, of which less than one is expected beyond alpha."""
        if self.draws is not None and (self.draws + 1) * alpha < 1:
            raise InputError(
                f"draws={self.draws}",
                f"too few for alpha={alpha:g}",
                f"Use at least draws={int(np.ceil(1 / alpha)) - 1}, or leave draws out.",
            )

    def draws_for(self, groups: int) -> int:
        """How many draws so many groups get at most."""
        return self.draws or int(np.clip(_WORK // groups, _FEWEST_DRAWS, _MOST_DRAWS))

    def judge(self, estimates: Estimates, hierarchy: Hierarchy, seed: int) -> Judgement:
        """Adjusted p = P(top merge of groups that are all alike ≥ height)."""
        groups, heights = len(hierarchy), hierarchy.gap_heights
        top = float(heights.max(initial=0.0))
        if top == 0:  # one group, or all estimates the same
            return Judgement(np.zeros(groups - 1), {"draws": 0, "seed": seed})
        draws = self.draws_for(groups)
        scale = true_scales(estimates)
        own = top / _radius(estimates, hierarchy, scale)
        fractions: list[FloatArray] = [np.array([own])]
        so_far, look_at = 0, -(-draws // 10)
        with progress("drawing groups that are all alike", draws) as advance:
            for block in _null_blocks(scale, estimates.dof, draws, seed):
                fractions.append(block)
                so_far += block.size
                advance(block.size)
                if look_at <= so_far < draws:
                    # One look, after a tenth. Stopping only above _CLEAR keeps p valid at every level: below it, p is
                    # that of all the draws; above it, at most a share _CLEAR of the data sets went on to them.
                    look_at = draws
                    if _log_p_of_top(top, np.concatenate(fractions), groups) > np.log(_CLEAR):
                        break
        drawn = np.concatenate(fractions)
        log_p = _log_pvalues(heights, drawn, groups)
        if estimates.dof is not None:
            log_p = _with_heavier_tail(log_p, drawn.size, float(estimates.dof.min()))
        return Judgement(log_p, {"draws": drawn.size - 1, "seed": seed})


Guarantee = Bonferroni | Calibrated
_BY_NAME: dict[str, type[Guarantee]] = {"calibrated": Calibrated, "bonferroni": Bonferroni}


def guarantee_of(value: str | Guarantee) -> Guarantee:
    """A guarantee given by its name or as itself."""
    if isinstance(value, Bonferroni | Calibrated):
        return value
    if isinstance(value, str) and value in _BY_NAME:
        return _BY_NAME[value]()
    raise InputError(f"guarantee={shorten(value)}", "is not known", did_you_mean(str(value), _BY_NAME))


def true_scales(estimates: Estimates) -> FloatArray:
    """Standard errors to draw with: as spread out as the true ones, not as their estimates.

    An estimated variance scatters around the true one, so log se² is more spread out than log σ² by trigamma(dof/2).
    Drawing with the estimates as they are doubles that scatter and makes the null too tame: false claims at α = 0.05
    become about 0.25 at K = 500, dof = 5 and equal variances. Each log variance is therefore
    pulled towards the mean until the spread that remains is the one the true variances have, less one standard error
    of that spread: variances taken as too unequal make false claims, taken as too equal only a little caution.
    """
    if estimates.dof is None or len(estimates) < 2:
        return np.array(estimates.se)
    half = np.minimum(estimates.dof, _AS_GOOD_AS_KNOWN) / 2
    noise = polygamma(1, half)
    log_variance = 2 * np.log(estimates.se) - (digamma(half) - np.log(half))
    centre = log_variance.mean()
    # The variance of log χ² has a standard error by its own second and fourth cumulants.
    slack = np.sqrt(2 * noise.mean() ** 2 / (half.size - 1) + polygamma(3, half).mean() / half.size)
    spread = max(0.0, float(log_variance.var(ddof=1) - noise.mean() - slack))
    kept = np.where(estimates.dof < _AS_GOOD_AS_KNOWN, np.sqrt(spread / (spread + noise)), 1.0)
    return np.asarray(np.exp((centre + kept * (log_variance - centre)) / 2))


def _radius(estimates: Estimates, hierarchy: Hierarchy, scale: FloatArray) -> float:
    """Cochran's Q of the data: the sum of all merge heights, or the same sum with the scales the draws use."""
    if estimates.dof is None:
        return float(hierarchy.gap_heights.sum())
    theta = estimates.theta - estimates.theta[hierarchy.order[len(hierarchy) // 2]]
    standard, weight = theta / scale, (scale.min() / scale) ** 2
    centre = float(np.sum(weight * theta) / weight.sum())
    return float(np.sum((standard - centre / scale) ** 2))


def _null_blocks(scale: FloatArray, dof: FloatArray | None, draws: int, seed: int) -> Iterator[FloatArray]:
    """Blocks of draws from groups that are all alike, in a fixed order: top merge over squared length of each.

    Every block has a random stream of its own, so the numbers depend on the seed and not on the number of cores.
    Only a few blocks are in flight at a time: memory stays bounded, and an interrupt is answered within one block.
    """
    rows = max(1, min(512, _BLOCK // scale.size))
    # In an order of their own, so that the order of the groups does not change the answer.
    order = np.argsort(scale) if dof is None else np.lexsort((dof, scale))
    scale = scale[order] / np.exp(np.log(scale).mean())
    known = (1 / scale**2)[None, :]
    half = None if dof is None else np.minimum(dof[order], _AS_GOOD_AS_KNOWN) / 2

    def block(number: int) -> FloatArray:
        count = min(rows, draws - number * rows)
        rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(number,))))
        normal = rng.standard_normal((count, scale.size))
        weight = known
        if half is not None:
            weight = known / (rng.standard_gamma(half, size=normal.shape) / half)
        radius, top = np.empty(count), np.empty(count)
        _walk.pack(normal, scale, radius)
        normal.sort(axis=1)
        _walk.top_heights(normal, weight, top)
        return top / np.maximum(radius, np.finfo(float).tiny)

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    total = -(-draws // rows)
    if total == 1:
        yield block(0)
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


def _log_p_of_top(top: float, fractions: FloatArray, groups: int) -> float:
    """Log p of the highest merge, on which the global claim rests: exactly as defined."""
    shares = np.full(fractions.size, 1 / fractions.size)
    return float(_log_exceedance(np.array([top]), fractions, shares, groups)[0])


def _log_pvalues(heights: FloatArray, fractions: FloatArray, groups: int) -> FloatArray:
    """Log p of every merge; `fractions` begins with that of the data.

    The highest merge, on which the global claim rests, gets its p exactly as defined. For the others, directions with
    nearly the same fraction are taken together, and where there are very many merges p is read off a curve.
    """
    top = float(heights.max())
    exact = _log_p_of_top(top, fractions, groups)
    if groups == 2:
        return np.array([exact])
    bundles, shares = _bundled(fractions)
    # Law of the top merge of pure noise: a fraction times a chi-square number.
    expected = float(np.sum(shares * bundles)) * (groups - 1)
    of_length = expected * np.sqrt(2 / (groups - 1))
    spread = float(np.hypot(of_length, expected * np.std(fractions[1:]) / np.mean(fractions[1:])))
    log_p = np.zeros(heights.size)  # merges that noise is sure to exceed keep p = 1
    open_question = np.flatnonzero(heights > expected - 8 * spread)
    asked, back = np.unique(heights[open_question], return_inverse=True)
    if asked.size <= _EXACT_HEIGHTS:
        log_p[open_question] = _log_exceedance(asked, bundles, shares, groups)[back]
    else:
        near = np.linspace(
            max(expected - 8 * spread, 0.0), expected + 30 * spread, int(min(380 * spread / of_length, 5000))
        )
        far = expected + spread * np.geomspace(30.0, max((top - expected) / spread, 30.0) * 1.01, 128)
        # Log p bends downwards, so a chord lies below it. Near by that is a thousandth at most; farther out the p
        # of the next lower point is taken, which errs on the safe side.
        at_near, at_far = (_log_exceedance(points, bundles, shares, groups) for points in (near, far))
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


def _log_exceedance(heights: FloatArray, fractions: FloatArray, shares: FloatArray, groups: int) -> FloatArray:
    """Log of the average over directions of P(χ²_{K−1} ≥ height / fraction), for each height."""
    each = log_chi_square_tail(heights[:, None] / fractions[None, :], groups - 1)
    most = each.max(axis=1, keepdims=True)
    return np.asarray(np.minimum(most[:, 0] + np.log(np.exp(each - most) @ shares), 0.0))


def _with_heavier_tail(log_p: FloatArray, drawn: int, dof: float) -> FloatArray:
    """Below one in so many draws, let p fall like the tail of Student's t, not like a normal one.

    Draws with estimated variances have shown no rarer event than that; what lies beyond is decided by variances that
    come out far too small, as in a t with the smallest degrees of freedom. The normal quantile of p is kept.
    """
    limit = -np.log(drawn)
    if dof >= _AS_GOOD_AS_KNOWN or log_p.min() >= limit:
        return log_p
    quantile, at_limit = (-ndtri_exp(value - np.log(2)) for value in (log_p, limit))
    return np.where(log_p < limit, limit + _log_t_tail(quantile, dof) - _log_t_tail(at_limit, dof), log_p)


def _log_t_tail(t: FloatArray, dof: float) -> FloatArray:
    """Log of P(|T| ≥ t) for Student's t: an incomplete beta function, by its leading term where that underflows."""
    square = np.maximum(np.square(t), 1e-12)
    x = dof / (dof + square)
    tail = betainc(dof / 2, 0.5, x)
    leading = dof / 2 * np.log(x) - np.log(square / (dof + square)) / 2 - np.log(dof / 2) - betaln(dof / 2, 0.5)
    return np.asarray(np.where(tail > 1e-280, np.log(np.maximum(tail, 1e-300)), leading))


def log_chi_square_tail(values: FloatArray, dof: float) -> FloatArray:
    """Log of P(χ²_dof ≥ value), also where that is far below the smallest double."""
    shape, x = dof / 2, values / 2
    tail = gammaincc(shape, x)
    small = tail < 1e-280
    out = np.log(np.where(small, 1.0, tail))
    if small.any():
        out[small] = _log_upper_gamma(shape, x[small])
    return np.asarray(out)


def _log_upper_gamma(shape: float, x: FloatArray) -> FloatArray:
    """Log of the regularised upper incomplete gamma function for x well above `shape`, by Legendre's fraction.

    Evaluated from the front by Lentz's method; it converges fast because x is far in the tail.
    """
    b = x + 1 - shape
    c = np.full_like(x, 1e300)
    d = 1 / b
    fraction = d.copy()
    for i in range(1, 5000):
        a = -i * (i - shape)
        b = b + 2
        d = 1 / (a * d + b)
        c = b + a / c
        step = c * d
        fraction *= step
        if np.all(np.abs(step - 1) < 1e-14):
            break
    return np.asarray(-x + shape * np.log(x) - gammaln(shape) + np.log(fraction))
