"""Intervals that hold for clusters chosen in any way from the same data."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from faultlines.comparison.base import AS_GOOD_AS_KNOWN, generator
from faultlines.comparison.correlated import Correlated
from faultlines.comparison.precision import true_scales

if TYPE_CHECKING:
    from faultlines.estimates.scales import FloatArray

_NUMBERS, _MOST, _LEAST = 4_000_000, 4000, 40  # numbers to be drawn; draws at most and at least
_COUNTED = 400  # draws from which on the quantile is one of them


def any_cluster(
    errors: FloatArray, dof: FloatArray | None, alpha: float, covariance: FloatArray | None = None
) -> float:
    """How many standard errors the mean of any set of groups is off at most, with a chance of 1 − α.

    The largest |Σ w ε|/√(Σ w) of noise over all sets of groups, w = 1/se². Of any noise the best set is a run from one
    end in the order of the noise, so each draw takes one sort. Whatever chose a cluster chose one of these sets.

    Args:
        errors: Standard errors of the groups.
        dof: The degrees of freedom behind them, where they are estimates.
        alpha: One less the level.
        covariance: That of groups that share data; `errors` are then what each mean is measured in.
    """
    scaled = errors / errors.min()
    freedom = b"" if dof is None else np.minimum(dof, AS_GOOD_AS_KNOWN).tobytes()
    drawn = _largest(
        scaled.tobytes(), freedom, b"" if covariance is None else (covariance / errors.min() ** 2).tobytes()
    )
    if len(drawn) < _COUNTED:  # of very many groups the largest hardly varies
        return float(drawn.mean() + (0.5 - ndtri(alpha)) * drawn.std(ddof=1))
    place = int(np.ceil((len(drawn) + 1) * (1 - alpha))) - 1
    if place >= len(drawn):
        return float(drawn[-1] + (0.5 - ndtri(alpha) + ndtri(1 / len(drawn))) * drawn.std(ddof=1))
    return float(drawn[place])


@lru_cache(maxsize=8)
def _largest(errors: bytes, dof: bytes, covariance: bytes) -> FloatArray:
    """Draws of the largest distance, sorted."""
    scales = np.frombuffer(errors)
    freedom = np.frombuffer(dof) if dof else None
    shared = Correlated.of(np.frombuffer(covariance).reshape(scales.size, -1)) if covariance else None
    of_all = shared is not None and freedom is not None and np.ptp(freedom) == 0
    truth = true_scales(scales, None if of_all else freedom)
    draws = int(np.clip(_NUMBERS // scales.size, _LEAST, _MOST))
    rows = max(1, min(draws, 2**20 // scales.size))
    made: list[FloatArray] = []
    for number in range(-(-draws // rows)):
        rng = generator(0, number)
        normal = rng.standard_normal((rows, scales.size))
        noise = truth * normal if shared is None else shared.noise(normal) * (truth / scales)
        weight = np.broadcast_to(truth**-2.0, noise.shape)
        if freedom is not None and not of_all:
            weight = weight / (rng.standard_gamma(freedom / 2, size=noise.shape) / (freedom / 2))
        farthest = _farthest(noise, weight)
        if freedom is not None and of_all:
            farthest /= np.sqrt(rng.standard_gamma(freedom[0] / 2, size=rows) / (freedom[0] / 2))
        made.append(farthest)
    drawn = np.sort(np.concatenate(made)[:draws])
    drawn.setflags(write=False)
    return drawn


def _farthest(noise: FloatArray, weight: FloatArray) -> FloatArray:
    """The largest |Σ w ε|/√(Σ w) over all sets of groups, of every row."""
    order = np.argsort(noise, axis=1)
    weight = np.take_along_axis(weight, order, axis=1)
    pulled = weight * np.take_along_axis(noise, order, axis=1)
    sides = [
        np.abs(np.cumsum(p, axis=1)) / np.sqrt(np.cumsum(w, axis=1))
        for p, w in ((pulled, weight), (pulled[:, ::-1], weight[:, ::-1]))
    ]
    return np.asarray(np.maximum(*(side.max(axis=1) for side in sides)))
