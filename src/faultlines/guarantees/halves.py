"""The held-out test of two clusters for many rows of effects at once: what simulations of a holdout need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultlines.comparison import kernels
from faultlines.comparison.tails import log_chi_square_1_tail

if TYPE_CHECKING:
    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.scales import FloatArray

_ROUNDS = 1000


def held_out_log_pvalues(
    theta: FloatArray, se: FloatArray, fraction: float, rng: np.random.Generator, *, refine: bool = True
) -> FloatArray:
    """Log p of "all groups are alike" of every row: the tree's two clusters of one part, compared on the other.

    Args:
        theta: Effects, (r, K), with K of two or more.
        se: Their standard errors, known, (K,).
        fraction: The share that is held out.
        rng: Of the noise that divides every row (Gaussian thinning).
        refine: Whether groups at the border are moved to the nearer cluster.
    """
    noise, ratio = se * rng.standard_normal(theta.shape), np.sqrt(fraction / (1 - fraction))
    explored, held = theta + ratio * noise, theta - noise / ratio
    order = np.argsort(explored, axis=1)
    weight = ((se.min() / se) ** 2)[order]
    explored, held = (np.take_along_axis(part, order, axis=1) for part in (explored, held))
    explored = explored - explored[:, :1]
    first = _cut(explored / se.min(), weight)
    if refine:
        first = _moved(explored, weight, first)
    mass, means = _two_means(held - held[:, :1], weight, first)
    apart = (means[:, 1] - means[:, 0]) ** 2 * fraction / (se.min() ** 2 * (1 / mass[:, 0] + 1 / mass[:, 1]))
    return log_chi_square_1_tail(apart)


def _cut(theta: FloatArray, weight: FloatArray) -> IntArray:
    """How many groups are below the last merge of every sorted row."""
    heights, cut = np.empty(theta.shape[1] - 1), np.empty(len(theta), dtype=np.int64)
    for i, (values, weights) in enumerate(zip(theta, weight.copy(), strict=True)):
        kernels.merge_line(values, weights, heights)
        cut[i] = int(np.argmax(heights)) + 1
    return cut


def _two_means(theta: FloatArray, weight: FloatArray, first: IntArray) -> tuple[FloatArray, FloatArray]:
    """Masses and weighted means, (r, 2), of the first groups of every row and of the others."""
    is_first = np.arange(theta.shape[1]) < first[:, None]
    parts = [np.where(side, weight, 0.0) for side in (is_first, ~is_first)]
    mass = np.stack([part.sum(axis=1) for part in parts], axis=1)
    return mass, np.stack([(part * theta).sum(axis=1) for part in parts], axis=1) / mass


def _moved(theta: FloatArray, weight: FloatArray, first: IntArray) -> IntArray:
    """Borders moved to the middle of the two means until none moves; a move that would empty a side is not made."""
    for _ in range(_ROUNDS):
        means = _two_means(theta, weight, first)[1]
        moved = np.sum(theta < means.mean(axis=1)[:, None], axis=1)
        moved = np.where((moved == 0) | (moved == theta.shape[1]), first, moved)
        if np.array_equal(moved, first):
            break
        first = moved
    return first
