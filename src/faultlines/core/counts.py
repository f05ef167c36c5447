"""Counted events: rates of successes (binomial) and rates of events (Poisson), compared by likelihood ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.special import xlog1py

from faultlines.core import kernels
from faultlines.core.comparison import BINOMIAL, MOST_DRAWS, POISSON, WELCH, Merges
from faultlines.core.custom import CompiledTest, Similarity
from faultlines.core.distributions import log_chi_square_1_tail, log_t_tail, meier, shrink_scales, welch_statistics
from faultlines.core.normal import Line, merged, top_merges
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import Key, Label, checked_labels
from faultlines.estimates.scales import ANSCOMBE, COUNTS, Scale
from faultlines.estimates.validation import named_by_index, numbers, require
from faultlines.types import FloatArray


def binomial(
    successes: npt.ArrayLike,
    trials: npt.ArrayLike,
    labels: Sequence[Label] | None = None,
    *,
    attributes: Sequence[str] | None = None,
    metric: str = "rate",
) -> Similarity:
    """The likelihood ratio test of equal rates, for `successes` out of `trials` in each group.

    `calibrated` is exact with it: given their total, the successes of groups with equal effects are hypergeometric.

    Args:
        successes: K counts.
        trials: K counts, or one for all.
        labels: K names, or K tuples with one value for each attribute. Default: the index of pandas Series.
        attributes: What the labels are values of.
        metric: What is compared.

    Returns:
        A comparison for `fl.cluster`.

    Raises:
        InputError: If counts are not whole numbers, or there are more successes than trials.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.binomial([10, 12, 60], 200)).labels.tolist()
        [1, 1, 2]
    """
    labels, attributes = named_by_index({"successes": successes, "trials": trials}, labels, attributes)
    table, keys = _counts("successes", successes, "trials", trials, labels)
    require(table[:, 1] == np.floor(table[:, 1]), "trials", table[:, 1], keys, "must be a whole number", "Give counts.")
    fewer = table[:, 0] <= table[:, 1]
    require(fewer, "successes", table[:, 0], keys, "there are more successes than trials", "Correct them.")
    return Similarity(
        table,
        _binomial_log_p,
        labels,
        log=True,
        null=partial(_one_draw, BINOMIAL),
        divide=_divided_successes,
        estimate=rate_estimates,
        n=table[:, 1],
        attributes=attributes,
        metric=metric,
        _compiled=_compiled(BINOMIAL),
    )


def poisson(
    events: npt.ArrayLike,
    exposure: npt.ArrayLike = 1.0,
    labels: Sequence[Label] | None = None,
    *,
    attributes: Sequence[str] | None = None,
    metric: str = "rate of events",
) -> Similarity:
    """The likelihood ratio test of equal rates of counted events, for `events` in an `exposure` (people, days, …).

    `calibrated` is exact with it: given their total, the events of groups with equal effects are multinomial.

    Args:
        events: K counts.
        exposure: K numbers above zero, or one for all.
        labels: K names, or K tuples with one value for each attribute. Default: the index of pandas Series.
        attributes: What the labels are values of.
        metric: What is compared.

    Returns:
        A comparison for `fl.cluster`.

    Raises:
        InputError: If events are not whole numbers, or an exposure is not above zero.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.poisson([10, 12, 60], 7.0)).labels.tolist()
        [1, 1, 2]
    """
    labels, attributes = named_by_index({"events": events, "exposure": exposure}, labels, attributes)
    table, _ = _counts("events", events, "exposure", exposure, labels)
    return Similarity(
        table,
        _poisson_log_p,
        labels,
        log=True,
        null=partial(_one_draw, POISSON),
        divide=_divided_events,
        estimate=_event_rates,
        n=table[:, 1],
        attributes=attributes,
        metric=metric,
        _compiled=_compiled(POISSON),
    )


# ------------------------------------------------------------------------------------------------------ what is given


def _counts(
    name: str, events: npt.ArrayLike, other: str, sizes: npt.ArrayLike, labels: Sequence[Label] | None
) -> tuple[FloatArray, Sequence[Key]]:
    """Events and what they are counted in, as statistics, and the groups they are of."""
    counted, of = numbers(name, events), numbers(other, sizes)
    try:
        of = np.broadcast_to(of, counted.shape)
    except ValueError as error:
        raise InputError.wrong_type(
            f"{name}, {other}", "are not numbers, one per group each", "Give two arrays of K."
        ) from error
    if counted.ndim != 1 or counted.size == 0:
        raise InputError.mismatch(name, f"has shape {counted.shape}", "Give one count per group.")
    keys, _ = checked_labels(labels, None, counted.size)
    is_count = np.isfinite(counted) & (counted >= 0) & (counted == np.floor(counted)) & (counted < 2**53)
    require(is_count, name, counted, keys, "must be a whole number, 0 or more", "Give counts.")
    fit = np.isfinite(of) & (of > 1e-100) & (of <= 2.0**53)
    require(fit, other, of, keys, "must be above zero and at most 2^53", "Leave out groups without any.")
    return np.column_stack([counted, of]), keys


def rate_estimates(s: FloatArray, labels: Sequence[Label] | None = None) -> Estimates:
    """Rates on Anscombe's scale, of successes and trials, (K, 2)."""
    theta, se = ANSCOMBE.forward(s[:, 0], s[:, 1]), 1 / np.sqrt(4 * s[:, 1] + 2)
    return Estimates(theta, se, labels, n=s[:, 1], scale=ANSCOMBE, natural=s[:, 0] / s[:, 1])


def _event_rates(s: FloatArray) -> Estimates:
    theta, se = COUNTS.forward(s[:, 0], s[:, 1]), 0.5 / np.sqrt(s[:, 1])
    return Estimates(theta, se, n=s[:, 1], scale=COUNTS, natural=s[:, 0] / s[:, 1])


# ----------------------------------------------------------------------------------------------------------- the tests


def _divergence(x: FloatArray, pooled: FloatArray) -> FloatArray:
    """The term x log(x/pooled), 0 at x = 0, without cancellation."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((x > 0) & (pooled > 0), xlog1py(x, (x - pooled) / np.where(pooled > 0, pooled, 1.0)), 0.0)


def _binomial_log_p(a: FloatArray, b: FloatArray) -> FloatArray:
    pooled, ratio = (a[:, 0] + b[:, 0]) / (a[:, 1] + b[:, 1]), np.zeros(len(a))
    for part in (a, b):
        rate = part[:, 0] / part[:, 1]
        ratio += 2 * part[:, 1] * (_divergence(rate, pooled) + _divergence(1 - rate, 1 - pooled))
    return log_chi_square_1_tail(np.maximum(ratio, 0.0))


def _poisson_log_p(a: FloatArray, b: FloatArray) -> FloatArray:
    pooled = (a[:, 0] + b[:, 0]) / (a[:, 1] + b[:, 1])
    ratio = sum(2 * part[:, 1] * _divergence(part[:, 0] / part[:, 1], pooled) for part in (a, b))
    return log_chi_square_1_tail(np.maximum(ratio, 0.0))


def _compiled(kernel: int) -> CompiledTest:
    return CompiledTest(partial(_merges, kernel), partial(_draw_top_merges, kernel), _default_draws)


def _merges(kernel: int, s: FloatArray) -> Merges:
    """Rates stand on a line: the proof for estimates covers any one-dimensional Bregman loss."""
    order = np.lexsort((s[:, 1], s[:, 0] / s[:, 1])).astype(np.int64)
    heights = np.empty(len(s) - 1)
    kernels.merge_line((s[:, 0] / s[:, 1])[order], s[order, 1], heights, kernel)
    return Merges(order, -log_chi_square_1_tail(heights))


def _draw_top_merges(kernel: int, s: FloatArray, rng: np.random.Generator, rows: int) -> FloatArray:
    drawn = _draws(kernel, s, rng, rows)
    return -log_chi_square_1_tail(top_merges(drawn[:, :, 0] / drawn[:, :, 1], drawn[:, :, 1], kernel))


def _default_draws(groups: int) -> int:
    return int(np.clip(20_000_000 // groups, 999, MOST_DRAWS))


def _one_draw(kernel: int, s: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.asarray(_draws(kernel, s, rng, 1)[0])


def _draws(kernel: int, s: FloatArray, rng: np.random.Generator, rows: int) -> FloatArray:
    """Counts of groups with equal effects, (rows, K, 2), given their total: exact, whatever the common rate is."""
    total, sizes = int(s[:, 0].sum()), s[:, 1]
    if kernel == POISSON:
        drawn = rng.multinomial(total, sizes / sizes.sum(), size=rows)
    elif sizes.sum() < 10**9:
        drawn = rng.multivariate_hypergeometric(sizes.astype(np.int64), total, size=rows, method="marginals")
    else:  # beyond what NumPy draws; of that many trials the total hardly matters
        drawn = rng.binomial(sizes.astype(np.int64), total / sizes.sum(), size=(rows, len(s)))
    return np.stack([drawn.astype(float), np.broadcast_to(sizes, drawn.shape)], axis=2)


# ------------------------------------------------------------------------------------------------- independent parts


def _divided_successes(s: FloatArray, shares: Sequence[float], rng: np.random.Generator) -> list[FloatArray]:
    """Trials by their shares, successes as they fall: hypergeometric."""
    left, tries = s[:, 0].astype(np.int64), s[:, 1].astype(np.int64)
    parts = []
    for part in _apportioned(s[:, 1], shares):
        drawn = (
            rng.hypergeometric(left, tries - left, part) if tries.max() < 10**9 else rng.binomial(left, part / tries)
        )
        parts.append(np.column_stack([drawn, part]).astype(float))
        left, tries = left - drawn, tries - part
    return parts


def _divided_events(s: FloatArray, shares: Sequence[float], rng: np.random.Generator) -> list[FloatArray]:
    """Events as they fall: multinomial."""
    drawn = rng.multinomial(s[:, 0].astype(np.int64), np.asarray(shares) / np.sum(shares))
    return [np.column_stack([drawn[:, b], q * s[:, 1]]) for b, q in enumerate(shares)]


def _apportioned(trials: FloatArray, shares: Sequence[float]) -> list[npt.NDArray[np.int64]]:
    """Whole numbers of trials for each part, at least one: as near to the shares as possible."""
    share = np.asarray(shares, dtype=float) / np.sum(shares)
    if float(trials.min()) * share.min() < 1 - 1e-9:
        raise InputError.too_few(
            "parts",
            f"are too many for the {trials.min():g} trials of the smallest group",
            "Use fewer folds, or leave small groups out.",
            len(shares),
        )
    edges = np.floor(np.cumsum(share)[:, None] * trials + 0.5)
    edges[-1] = trials
    return [part.astype(np.int64) for part in np.diff(edges, axis=0, prepend=0.0)]


# ---------- The two-sample t-test on effects, as a comparison of statistics that add up (the paper, section 5.1.1).


def welch(estimates: Estimates) -> Similarity:
    """The two-sample t-test on effects (the paper's section 5.1.1), with Welch–Satterthwaite degrees of freedom.

    A cluster's effect is the precision-weighted mean of its groups; its degrees of freedom are (Σw)²/Σ(w²/dof). Groups
    whose variance came out too small weigh too much, so its variance is 1/W and a little more: a share of
    4 Σ (w/W)(1 − w/W)/(dof − 3), after Meier (1953), without which the test would not survive merging. Where the
    standard errors of `estimates` have no `dof` they count as known.

    Args:
        estimates: One effect per group.

    Returns:
        A comparison for `fl.cluster`.

    Raises:
        InputError: If there are several effects per group.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.welch(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], dof=30))).n_clusters
        2
    """
    if not isinstance(estimates, Estimates):
        raise InputError.wrong_type("estimates", "is not an Estimates", "Make one with fl.Estimates.", type(estimates))
    if estimates.dims > 1:
        raise InputError.unsupported(
            "estimates", f"have {estimates.dims} dimensions", "The t-test compares one effect."
        )
    theta, se = estimates.values[:, 0], estimates.errors[:, 0]
    centre, unit = float(theta[len(estimates) // 2]), float(np.exp(np.log(se).mean()))
    dof = np.full(len(estimates), np.inf) if estimates.dof is None else estimates.dof
    has_dof = estimates.dof is not None
    return Similarity(
        welch_statistics((unit / se) ** 2, (theta - centre) / unit, se / unit, dof),
        _log_p,
        estimates.labels,
        log=True,
        null=_one_draw_of_welch,
        divide=_Divided(has_dof),
        estimate=_Effects(centre, unit, has_dof, estimates.scales[0]),
        n=estimates.n,
        attributes=estimates.attributes,
        metric=estimates.metric,
        _compiled=CompiledTest(_merges_of_welch, _tops_of_welch, _default_draws_of_welch),
    )


def _log_p(a: FloatArray, b: FloatArray) -> FloatArray:
    gap = a[:, 1] / a[:, 0] - b[:, 1] / b[:, 0]
    var_a, var_b = (s[:, 2] / s[:, 0] ** 2 * (1 + meier(s[:, 0], s[:, 4], s[:, 5])) for s in (a, b))
    variance = var_a + var_b
    with np.errstate(divide="ignore"):
        dof = variance**2 / (var_a**2 * a[:, 3] / a[:, 2] ** 2 + var_b**2 * b[:, 3] / b[:, 2] ** 2)
    return np.asarray(np.where(gap == 0, 0.0, log_t_tail(gap / np.sqrt(variance), dof)))


@dataclass(frozen=True, slots=True)
class _Effects:
    """From statistics back to effects."""

    centre: float
    unit: float
    has_dof: bool
    scale: Scale

    def __call__(self, s: FloatArray) -> Estimates:
        theta = self.centre + self.unit * s[:, 1] / s[:, 0]
        return Estimates(
            theta,
            self.unit * np.sqrt(s[:, 2]) / s[:, 0],
            dof=np.maximum(_freedom(s), 1.0) if self.has_dof else None,
            scale=self.scale,
            natural=self.scale.natural(theta),
        )


@dataclass(frozen=True, slots=True)
class _Divided:
    """Statistics of independent parts; each weighs its groups with what the one before it knows of their variances."""

    has_dof: bool

    def __call__(self, s: FloatArray, shares: Sequence[float], rng: np.random.Generator) -> list[FloatArray]:
        dof = _freedom(s) if self.has_dof else None
        parts = Line(Estimates(s[:, 1] / s[:, 0], np.sqrt(s[:, 2]) / s[:, 0], dof=dof)).split(shares, rng)
        infinite_dof = np.full(len(s), np.inf)
        statistics = []
        for b, part in enumerate(parts):
            weights, e = part.with_weights_of(parts[b - 1]).weights, part.estimates
            weight = e.se**-2.0 if weights is None else weights
            statistics.append(
                welch_statistics(weight, e.theta, e.se, infinite_dof if e.dof is None else e.dof, weights is not None)
            )
        return statistics


def _merges_of_welch(s: FloatArray) -> Merges:
    return merged(WELCH, _state(s))


def _tops_of_welch(s: FloatArray, rng: np.random.Generator, rows: int) -> FloatArray:
    top = np.empty(rows)
    kernels.top_plane(WELCH, _state(_draws_of_welch(s, rng, rows)), top)
    return top


def _default_draws_of_welch(groups: int) -> int:
    return int(np.clip(20_000_000 // groups**2, 199, MOST_DRAWS))


def _state(s: FloatArray) -> FloatArray:
    """Statistics, (…, K, 6), as the kernel takes them: the mean in place of wθ and first, one row per number."""
    rows = np.concatenate([s[..., 1:2] / s[..., :1], s[..., :1], s[..., 2:]], axis=-1)
    return np.ascontiguousarray(np.swapaxes(rows, -1, -2))


def _freedom(s: FloatArray) -> FloatArray:
    """Degrees of freedom behind statistics."""
    return np.asarray(np.divide(s[:, 2] ** 2, s[:, 3], out=np.full(len(s), np.inf), where=s[:, 3] > 0))


def _one_draw_of_welch(s: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.asarray(_draws_of_welch(s, rng, 1)[0])


def _draws_of_welch(s: FloatArray, rng: np.random.Generator, rows: int) -> FloatArray:
    """Statistics of groups with equal effects, (rows, K, 6): effects around zero, variances estimated anew."""
    dof = _freedom(s)
    scale = shrink_scales(np.sqrt(s[:, 2]) / s[:, 0], None if np.isinf(dof).all() else np.maximum(dof, 1.0))
    half = np.minimum(dof, 1e12) / 2
    theta = scale * rng.standard_normal((rows, len(s)))
    se = scale * np.sqrt(rng.standard_gamma(half, size=theta.shape) / half)
    return welch_statistics(se**-2.0, theta, se, dof)
