"""From moments to estimates: means, ratios, differences, lifts, rates, areas, with standard errors. Pure NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultlines.estimates.scales import ANSCOMBE
from faultlines.metrics.base import Measured

if TYPE_CHECKING:
    import numpy.typing as npt

    from faultlines.metrics.base import FloatArray
    from faultlines.rows.request import Moments

_NEAR_ZERO, _BOTH_NEAR_ZERO = 2.0, 7.0  # standard errors below which there is no lift


def reasons(groups: int) -> npt.NDArray[np.object_]:
    """Room for a reason per group, none yet."""
    return np.full(groups, "", dtype=object)


def mark(reason: npt.NDArray[np.object_], bad: npt.NDArray[np.bool_], text: str) -> None:
    """Note a reason for groups that have none yet."""
    if bad.any():
        reason[bad & (reason == "")] = text


class _Linear(NamedTuple):
    """A statistic of each arm as a mean of independent terms: its value, the terms' variance, their number."""

    value: FloatArray
    variance: FloatArray
    n: FloatArray
    freedom: FloatArray  # degrees of freedom of the variance
    empty: npt.NDArray[np.bool_]  # whether it is divided by nothing


def _linear(m: Moments, *, ratio: bool, weighted: bool, covariate: bool) -> _Linear:
    """Mean, ratio or weighted mean of every arm, with CUPED when there is a covariate.

    A ratio r = X̄/Ȳ is linear up to second order: its terms are (x − r y)/Ȳ (delta method). A weighted mean is the ratio
    of w(x − c) and w, plus c, where c is the group's plain mean; a weighted ratio is the ratio of w x and w y. Unequal
    weights leave Kish's effective number of rows, (Σw)²/Σw², to estimate the variance from.
    """
    n = m.n[..., 0]
    x, cov = m.mean[..., 0], m.cov
    effective, empty = n, np.zeros(n.shape, dtype=bool)
    if ratio or weighted:
        y = np.where(m.mean[..., 1] == 0, np.nan, m.mean[..., 1])
        r, empty = x / y, np.isnan(y)
        value = r + (m.mean[..., 2] if weighted and not ratio else 0.0)
        positive = (cov[..., 0, 0] + r**2 * cov[..., 1, 1]) / y**2
        variance = positive - 2 * r * cov[..., 0, 1] / y**2
        if weighted:
            place = 2 if ratio else 1
            effective = _kish(n, m.mean[..., place], cov[..., place, place])
            variance = variance * (n - 1) / n * effective / (effective - 1)
            positive = positive + 1e-12 * value**2
    else:
        value, variance = x, cov[..., 0, 0]
        positive = variance + 1e-12 * value**2
    lost = 1
    if covariate:
        lost = 2
        last = cov.shape[-1] - 1
        with_z = cov[..., 0, last] if not (ratio or weighted) else (cov[..., 0, last] - r * cov[..., 1, last]) / y
        of_z, inner = cov[..., last, last], np.maximum(n - 1, 0)
        sum_z = np.sum(inner * of_z, axis=1, keepdims=True)
        slope = np.sum(inner * with_z, axis=1, keepdims=True) / np.where(sum_z > 0, sum_z, np.nan)
        slope = np.nan_to_num(slope)  # a covariate without variance explains nothing
        z, total = m.mean[..., last], np.sum(n, axis=1, keepdims=True)
        value = value - slope * (z - np.sum(n * z, axis=1, keepdims=True) / total)
        positive = positive + slope**2 * of_z
        variance = (variance - 2 * slope * with_z + slope**2 * of_z) * (total - 2) / (total - 3)
        # The slope is estimated too; what that adds to the difference of the arms is shared between them.
        pooled = np.sum(inner * variance, axis=1, keepdims=True) / (total - 2)
        apart = (z.max(axis=1, keepdims=True) - z.min(axis=1, keepdims=True)) ** 2
        variance = variance + n / 2 * np.nan_to_num(pooled * apart / sum_z)
    # What is left of terms that cancel is rounding, not variance.
    rounding = np.isfinite(variance) & (variance <= 1e-12 * positive)
    return _Linear(value, np.where(rounding, 0.0, variance), n, effective - lost, empty)


def _kish(n: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """The effective number of rows behind weights of this mean and variance: (Σw)²/Σw²."""
    return np.asarray(n * mean**2 / (mean**2 + np.nan_to_num(variance) * (n - 1) / n))


def _check_arms(arm: _Linear, reason: npt.NDArray[np.object_]) -> None:
    names = ("control", "treatment") if arm.n.shape[1] == 2 else ("",)
    for i, name in enumerate(names):
        where = f" in {name}" if name else ""
        mark(reason, arm.n[:, i] == 0, f"no rows{where}")
        mark(reason, ~(arm.freedom[:, i] >= 1), f"too few rows{where} for a variance")
        mark(reason, arm.empty[:, i], f"empty denominator{where}")
        finite = np.isfinite(arm.value[:, i]) & np.isfinite(arm.variance[:, i])
        mark(reason, ~finite, f"numbers too large{where}")


def _finish(arm: _Linear, theta: FloatArray, parts: FloatArray, reason: npt.NDArray[np.object_]) -> Measured:
    """Estimate with the variances its arms contribute: standard error and Welch–Satterthwaite degrees of freedom."""
    variance = parts.sum(axis=1)
    mark(reason, ~(variance > 0), "zero variance")
    with np.errstate(all="ignore"):
        dof = np.maximum(variance**2 / np.sum(parts**2 / arm.freedom, axis=1), 1.0)
    return Measured(theta, np.sqrt(variance), dof, arm.n.sum(axis=1), theta, reason)


def of_population(m: Moments, *, ratio: bool = False, weighted: bool = False) -> Measured:
    """A mean or a ratio of sums, with its standard error by the delta method."""
    with np.errstate(all="ignore"):
        arm = _linear(m, ratio=ratio, weighted=weighted, covariate=False)
        reason = reasons(len(m.n))
        _check_arms(arm, reason)
        return _finish(arm, arm.value[:, 0], arm.variance / arm.n, reason)


def of_difference(m: Moments, *, ratio: bool, weighted: bool, covariate: bool) -> Measured:
    """Treatment less control, with the standard error of Welch."""
    with np.errstate(all="ignore"):
        arm = _linear(m, ratio=ratio, weighted=weighted, covariate=covariate)
        reason = reasons(len(m.n))
        _check_arms(arm, reason)
        return _finish(arm, arm.value[:, 1] - arm.value[:, 0], arm.variance / arm.n, reason)


def of_lift(m: Moments, *, ratio: bool, weighted: bool, covariate: bool) -> Measured:
    """T/C − 1, compared as log(T/C), whose variance by the delta method is s_T²/T² + s_C²/C².

    What is too near zero must not depend on which arm it is: to ask it of the control alone would leave out groups with
    a high lift only. So both arms together must be well above zero, and each a little.
    """
    with np.errstate(all="ignore"):
        arm = _linear(m, ratio=ratio, weighted=weighted, covariate=covariate)
        reason = reasons(len(m.n))
        _check_arms(arm, reason)
        control, treated = arm.value[:, 0], arm.value[:, 1]
        of_mean = arm.variance / arm.n
        for name, mean, variance in (("control", control, of_mean[:, 0]), ("treatment", treated, of_mean[:, 1])):
            near = np.abs(mean) <= _NEAR_ZERO * np.sqrt(variance)
            mark(reason, near, f"{name} mean within {_NEAR_ZERO:g} standard errors of zero")
            mark(reason, mean < 0, f"{name} mean below zero")
        together = control + treated <= _BOTH_NEAR_ZERO * np.sqrt(of_mean.sum(axis=1))
        mark(reason, together, f"both means together within {_BOTH_NEAR_ZERO:g} standard errors of zero")
        made = _finish(arm, np.log(treated / control), of_mean / arm.value**2, reason)
        return made._replace(natural=treated / control - 1)


def of_rate(m: Moments, *, weighted: bool = False, variable: int = 0) -> Measured:
    """A share on Anscombe's scale, asin √((y + 3/8)/(n + 3/4)), whose variance 1/(4n + 2) does not depend on it.

    The usual p(1 − p)/n is smallest just where p happens to come out small, so rare events make groups look different
    that are not. With weights, n is the number of plain rows that would be as precise: p(1 − p) over the variance of
    the weighted share, and at most Kish's (Σw)²/Σw².
    """
    with np.errstate(all="ignore"):
        n, mean = m.n[:, 0, variable], m.mean[:, 0, variable]
        rows, empty = n, (n == 0) | np.isnan(mean)
        if weighted:
            weight, cov = m.mean[:, 0, 1], m.cov[:, 0]
            empty = (n == 0) | np.isnan(weight) | (weight == 0)
            mean = mean / weight
            variance = (cov[:, 0, 0] - 2 * mean * cov[:, 0, 1] + mean**2 * cov[:, 1, 1]) / (rows * weight**2)
            n = np.fmin(_kish(n, weight, cov[:, 1, 1]), np.where(variance > 0, mean * (1 - mean) / variance, np.inf))
        reason = reasons(len(n))
        mark(reason, empty, "empty denominator")
        mark(reason, ~np.isfinite(mean), "numbers too large")
        mark(reason, (mean < -1e-9) | (mean > 1 + 1e-9), "share below 0 or above 1")
        theta, se = ANSCOMBE.forward(mean * n, n), 1 / np.sqrt(4 * n + 2)
    return Measured(theta, se, None, rows, mean, reason)


def of_both_rates(m: Moments) -> Measured:
    """Two rates over different rows, of positives and of negatives, which are independent."""
    parts = [of_rate(m, variable=i) for i in (0, 1)]
    reason = reasons(len(m.n))
    for name, part in zip(("positives", "negatives"), parts, strict=True):
        mark(reason, part.n == 0, f"no {name}")
    return Measured(
        np.stack([part.theta for part in parts], axis=1),
        np.stack([part.se for part in parts], axis=1),
        None,
        parts[0].n + parts[1].n,
        np.stack([part.natural for part in parts], axis=1),
        reason,
    )


def of_area(m: Moments) -> Measured:
    """Area under the curve with DeLong's variance: n = positives and negatives; mean, cov of their placements."""
    with np.errstate(all="ignore"):
        positives, negatives = m.n[:, 0, 0], m.n[:, 0, 1]
        reason = reasons(len(positives))
        mark(reason, positives < 2, "fewer than two positives")
        mark(reason, negatives < 2, "fewer than two negatives")
        parts = np.stack([m.cov[:, 0, 0, 0] / positives, m.cov[:, 0, 1, 1] / negatives], axis=1)
        variance = parts.sum(axis=1)
        theta = m.mean[:, 0, 0]
        mark(reason, ~(variance > 1e-24), "zero variance")
        dof = variance**2 / (parts[:, 0] ** 2 / (positives - 1) + parts[:, 1] ** 2 / (negatives - 1))
        return Measured(theta, np.sqrt(variance), np.maximum(dof, 1.0), positives + negatives, theta, reason)
