"""The effect on the people of a cluster, as a plain readout of their rows would give it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri, stdtrit

from faultlines.comparison.line import between_means
from faultlines.result.effects import Effect

if TYPE_CHECKING:
    from faultlines.estimates.estimates import Estimates, IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.metrics.base import Measured
    from faultlines.metrics.readout import Readout


def observed_effects(
    estimates: Estimates | None, clusters: IntArray, count: int, alpha: float, readout: Readout | None
) -> list[tuple[Effect, ...]]:
    """Every effect of every cluster; none of a cluster for which it is not known.

    Args:
        estimates: Estimates of the groups.
        clusters: The cluster of each group, from 0 on.
        count: How many there are.
        alpha: One less the level of the intervals.
        readout: The moments behind the estimates. Without them, effects are weighted by the sizes of the groups.
    """
    if estimates is None:
        return [()] * count
    together = None if readout is None else readout.together(clusters, count)
    if together is not None:
        return _read(estimates, together, alpha)
    if estimates.n is None:
        return [()] * count
    return _weighted(estimates, clusters, count, alpha)


def _read(estimates: Estimates, together: Measured, alpha: float) -> list[tuple[Effect, ...]]:
    """What the metric is in the rows of each cluster."""
    theta, se, natural = (np.reshape(a, (len(together.n), -1)) for a in (together.theta, together.se, together.natural))
    reach = np.asarray(-ndtri(alpha / 2) if together.dof is None else -stdtrit(together.dof, alpha / 2))
    columns = []
    for i, scale in enumerate(estimates.scales):
        with np.errstate(all="ignore"):
            ends = [scale.natural(theta[:, i] + side * reach * se[:, i]) for side in (-1, 1)]
            errors = se[:, i] * scale.slope(theta[:, i])
        columns.append((natural[:, i], errors, np.fmin(ends[0], natural[:, i]), np.fmax(ends[1], natural[:, i])))
    return _effects(columns)


def _weighted(estimates: Estimates, clusters: IntArray, count: int, alpha: float) -> list[tuple[Effect, ...]]:
    """Effects of the groups, weighted by their sizes."""
    sizes = np.ones(len(estimates)) if estimates.n is None else estimates.n
    share = sizes / np.bincount(clusters, sizes, count)[clusters]
    errors = estimates.readable_errors(estimates.given, estimates.errors)
    columns = []
    for i in range(estimates.dims):
        value = np.asarray(np.bincount(clusters, share * estimates.shown[:, i], count), dtype=np.float64)
        error = np.sqrt(np.bincount(clusters, (share * errors[:, i]) ** 2, count))
        if estimates.covariance is not None:
            slope = errors[:, i] / estimates.errors[:, i]
            error = np.sqrt(np.diagonal(between_means(estimates.covariance * slope[:, None] * slope, sizes, clusters)))
        reach = -ndtri(alpha / 2) * error
        columns.append((value, error, value - reach, value + reach))
    return _effects(columns)


def _effects(columns: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]]) -> list[tuple[Effect, ...]]:
    """Effects of every cluster, (estimate, se, lower, upper) of each; none where one is not a number."""
    made = []
    for rows in zip(*(zip(*(part.tolist() for part in column), strict=True) for column in columns), strict=True):
        known = all(np.isfinite(row).all() for row in rows)
        made.append(tuple(Effect(*row) for row in rows) if known else ())
    return made
