"""Scott and Knott (1974): cut the sorted means in two where they differ most, test the cut, and go on in both parts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc

from experiments.baselines.fit import Fit, pooled
from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Callable


def best_cut(theta: FloatArray, weight: FloatArray) -> tuple[FloatArray, IntArray]:
    """The largest sum of squares between two parts of the sorted line, and how many are in the lower part.

    One data set in each row. No other division into two has more: the best is always a cut of the line.
    """
    order = np.argsort(theta, axis=-1, kind="stable")
    w = np.take_along_axis(np.broadcast_to(weight, theta.shape), order, axis=-1)
    centred = theta - np.average(theta, axis=-1, weights=np.broadcast_to(weight, theta.shape), keepdims=True)
    low = np.cumsum(w, axis=-1)[..., :-1]
    moment = np.cumsum(w * np.take_along_axis(centred, order, axis=-1), axis=-1)[..., :-1]
    total = w.sum(axis=-1, keepdims=True)
    between = moment**2 * total / (low * (total - low))
    return between.max(axis=-1), between.argmax(axis=-1) + 1


def scott_knott_pvalue(theta: FloatArray, variance: float, dof: float = math.inf) -> float:
    """p of the best cut by Scott and Knott's approximation: λ = π B₀ / (2 (π − 2) σ₀²) against χ² with K/(π − 2).

    `variance` is that of one mean, estimated with `dof` degrees of freedom; σ₀² also uses the means themselves.
    """
    groups = theta.size
    own = float(np.sum((theta - theta.mean()) ** 2))
    common = variance if math.isinf(dof) else (own + dof * variance) / (groups + dof)
    between = float(best_cut(theta, np.ones(groups))[0])
    return float(chdtrc(groups / (math.pi - 2), math.pi / (2 * (math.pi - 2)) * between / common))


def ratio_pvalue(theta: FloatArray, se: FloatArray, *, draws: int = 199, seed: int = 0) -> float:
    """p of the best cut with unequal precision: its likelihood ratio among that of draws with the same errors."""
    weight = 1 / se**2
    drawn = se * np.random.default_rng(seed).standard_normal((draws, theta.size))
    return float(1 + np.sum(best_cut(drawn, weight)[0] >= best_cut(theta, weight)[0])) / (draws + 1)


def scott_knott(theta: FloatArray, se: FloatArray, *, alpha: float = 0.05, dof: float = math.inf) -> Fit:
    """The original, which knows one variance for all means: for unequal ones their average (as with the harmonic n)."""
    variance = float(np.mean(se**2))
    labels = _divided(theta, np.ones(theta.size), lambda own: scott_knott_pvalue(theta[own], variance, dof) < alpha)
    return pooled(labels, theta, se)


def scott_knott_unequal(theta: FloatArray, se: FloatArray, *, alpha: float = 0.05, seed: int = 0) -> Fit:
    """The same division by the likelihood ratio of groups of unequal precision, each test by its own draws."""
    labels = _divided(theta, 1 / se**2, lambda own: ratio_pvalue(theta[own], se[own], seed=seed) <= alpha)
    return pooled(labels, theta, se)


def _divided(theta: FloatArray, weight: FloatArray, differs: Callable[[IntArray], bool]) -> IntArray:
    """Labels of the parts that are left when no part's best cut is significant any more."""
    labels = np.zeros(theta.size, dtype=np.int64)
    waiting, done = [np.argsort(theta, kind="stable")], 0
    while waiting:
        own = waiting.pop()
        if own.size > 1 and differs(own):
            place = int(best_cut(theta[own], weight[own])[1])
            waiting += [own[:place], own[place:]]
        else:
            labels[own], done = done, done + 1
    return labels
