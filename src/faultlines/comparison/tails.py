"""Logarithms of tail probabilities, right also where the probability is far below the smallest double."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betainc, betaln, gammaincc, gammaln, log_ndtr

if TYPE_CHECKING:
    from faultlines.estimates.scales import FloatArray


def log_t_tail(t: FloatArray, dof: FloatArray | float) -> FloatArray:
    """Log of P(|T| ≥ t) for Student's t: an incomplete beta function, by its leading term where that underflows."""
    dof = np.minimum(dof, 1e9)
    square = np.maximum(np.square(t), 1e-12)
    x = dof / (dof + square)
    tail = betainc(dof / 2, 0.5, x)
    leading = dof / 2 * np.log(x) - np.log(square / (dof + square)) / 2 - np.log(dof / 2) - betaln(dof / 2, 0.5)
    return np.asarray(np.where(tail > 1e-280, np.log(np.maximum(tail, 1e-300)), leading))


def log_chi_square_1_tail(values: FloatArray) -> FloatArray:
    """Log of P(χ²₁ ≥ value): the two tails of a normal."""
    return np.asarray(np.minimum(np.log(2.0) + log_ndtr(-np.sqrt(values)), 0.0))


def log_chi_square_tail(values: FloatArray, dof: float) -> FloatArray:
    """Log of P(χ²_dof ≥ value), also where that is far below the smallest double."""
    shape, x = dof / 2, values / 2
    tail = gammaincc(shape, x)
    small = tail < 1e-280
    out = np.log(np.where(small, 1.0, tail))
    if small.any():
        out[small] = _log_upper_gamma(shape, x[small])
    return np.asarray(out)


def log_f_tail(values: FloatArray, dof: float, dof_below: float) -> FloatArray:
    """Log of P(F ≥ value) on these degrees of freedom; χ²/dof where those below are infinite."""
    if np.isinf(dof_below):
        return log_chi_square_tail(values * dof, dof)
    a, b = dof_below / 2, dof / 2
    x = dof_below / (dof_below + dof * np.minimum(values, 1e300 / max(dof, 1.0)))
    tail = betainc(a, b, x)
    with np.errstate(divide="ignore"):
        leading = a * np.log(x) + b * np.log1p(-x) - np.log(a) - betaln(a, b)
    return np.asarray(np.where(tail > 1e-280, np.log(np.maximum(tail, 1e-300)), np.minimum(leading, 0.0)))


def log_hotelling_tail(squares: FloatArray, dims: int, dof: float) -> FloatArray:
    """Log of P(T² ≥ value) for Hotelling's T² of so many dimensions, whose whole covariance has these degrees."""
    left = max(dof - dims + 1, 1.0)
    return log_f_tail(squares * (left / (dof * dims)), dims, left)


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
