"""Counted events: rates of successes (binomial) and rates of events (Poisson), compared by likelihood ratio."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import xlog1py

from faultlines.comparison import kernels
from faultlines.comparison.base import BINOMIAL, MOST_DRAWS, POISSON, Merges
from faultlines.comparison.custom import Compiled, Similarity
from faultlines.comparison.line import line_tops
from faultlines.comparison.tails import log_chi_square_1_tail
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.given import numbers, require
from faultlines.estimates.labels import checked_labels
from faultlines.estimates.scales import ANSCOMBE, COUNTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from faultlines.estimates.labels import Key, Label
    from faultlines.estimates.scales import FloatArray


def binomial(
    successes: npt.ArrayLike,
    trials: npt.ArrayLike,
    labels: Sequence[Label] | None = None,
    *,
    attributes: Sequence[str] | None = None,
    measure: str = "rate",
) -> Similarity:
    """The likelihood ratio test of equal rates, for `successes` out of `trials` in each group.

    `calibrated` is exact with it: given their total, the successes of groups that are all alike are hypergeometric.

    Args:
        successes: K counts.
        trials: K counts, or one for all.
        labels: K names, or K tuples with one value for each attribute.
        attributes: What the labels are values of.
        measure: What is compared.

    Returns:
        A comparison for `fl.cluster`.

    Raises:
        InputError: If counts are not whole numbers, or there are more successes than trials.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.binomial([10, 12, 60], 200)).labels.tolist()
        [1, 1, 2]
    """
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
        estimate=_rates,
        n=table[:, 1],
        attributes=attributes,
        measure=measure,
        _compiled=_compiled(BINOMIAL),
    )


def poisson(
    events: npt.ArrayLike,
    exposure: npt.ArrayLike = 1.0,
    labels: Sequence[Label] | None = None,
    *,
    attributes: Sequence[str] | None = None,
    measure: str = "rate of events",
) -> Similarity:
    """The likelihood ratio test of equal rates of counted events, for `events` in an `exposure` (people, days, …).

    `calibrated` is exact with it: given their total, the events of groups that are all alike are multinomial.

    Args:
        events: K counts.
        exposure: K numbers above zero, or one for all.
        labels: K names, or K tuples with one value for each attribute.
        attributes: What the labels are values of.
        measure: What is compared.

    Returns:
        A comparison for `fl.cluster`.

    Raises:
        InputError: If events are not whole numbers, or an exposure is not above zero.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.poisson([10, 12, 60], 7.0)).labels.tolist()
        [1, 1, 2]
    """
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
        measure=measure,
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
        raise InputError(f"{name}, {other}", "are not numbers, one per group each", "Give two arrays of K.") from error
    if counted.ndim != 1 or counted.size == 0:
        raise InputError(name, f"has shape {counted.shape}", "Give one count per group.")
    keys, _ = checked_labels(labels, None, counted.size)
    whole = np.isfinite(counted) & (counted >= 0) & (counted == np.floor(counted)) & (counted < 2**53)
    require(whole, name, counted, keys, "must be a whole number, 0 or more", "Give counts.")
    fit = np.isfinite(of) & (of > 1e-100) & (of <= 2.0**53)
    require(fit, other, of, keys, "must be above zero and at most 2^53", "Leave out groups without any.")
    return np.column_stack([counted, of]), keys


def _rates(s: FloatArray) -> Estimates:
    theta, se = ANSCOMBE.forward(s[:, 0], s[:, 1]), 1 / np.sqrt(4 * s[:, 1] + 2)
    return Estimates(theta, se, n=s[:, 1], scale=ANSCOMBE, natural=s[:, 0] / s[:, 1])


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


def _compiled(kernel: int) -> Compiled:
    return Compiled(partial(_merges, kernel), partial(_tops, kernel), _default_draws)


def _merges(kernel: int, s: FloatArray) -> Merges:
    """Rates stand on a line: the proof for estimates covers any one-dimensional Bregman loss."""
    order = np.lexsort((s[:, 1], s[:, 0] / s[:, 1])).astype(np.int64)
    heights = np.empty(len(s) - 1)
    kernels.merge_line((s[:, 0] / s[:, 1])[order], s[order, 1], heights, kernel)
    return Merges(order, -log_chi_square_1_tail(heights))


def _tops(kernel: int, s: FloatArray, rng: np.random.Generator, rows: int) -> FloatArray:
    drawn = _draws(kernel, s, rng, rows)
    return -log_chi_square_1_tail(line_tops(drawn[:, :, 0] / drawn[:, :, 1], drawn[:, :, 1], kernel))


def _default_draws(groups: int) -> int:
    return int(np.clip(20_000_000 // groups, 999, MOST_DRAWS))


def _one_draw(kernel: int, s: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.asarray(_draws(kernel, s, rng, 1)[0])


def _draws(kernel: int, s: FloatArray, rng: np.random.Generator, rows: int) -> FloatArray:
    """Counts of groups that are all alike, (rows, K, 2), given their total: exact, whatever the common rate is."""
    total, sizes = int(s[:, 0].sum()), s[:, 1]
    if kernel == POISSON:
        drawn = rng.multinomial(total, sizes / sizes.sum(), size=rows)
    elif sizes.sum() < 10**9:
        drawn = rng.multivariate_hypergeometric(sizes.astype(np.int64), total, size=rows, method="marginals")
    else:  # beyond what NumPy draws; with so many trials the total hardly matters
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
        raise InputError(
            f"{len(shares)} parts",
            f"are too many for the {trials.min():g} trials of the smallest group",
            "Use fewer folds, or leave small groups out.",
        )
    edges = np.floor(np.cumsum(share)[:, None] * trials + 0.5)
    edges[-1] = trials
    return [part.astype(np.int64) for part in np.diff(edges, axis=0, prepend=0.0)]
