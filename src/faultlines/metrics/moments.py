"""From moments to estimates: means, ratios, differences, lifts, rates, areas, with standard errors. Pure NumPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultlines.estimates.scales import ANSCOMBE
from faultlines.metrics.base import Measured
from faultlines.metrics.variances import Cumulants, assumed_shape, noise_of_arms, steady, straightened
from faultlines.rows.request import Moments

if TYPE_CHECKING:
    import numpy.typing as npt

    from faultlines.metrics.base import FloatArray

_APART = np.array([-1.0, 1.0])  # treatment less control
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
    likely: FloatArray  # the value without what is taken for noise
    skewness: FloatArray  # of the terms, (arms,)
    excess: FloatArray  # kurtosis of the terms less 3, (arms,)
    plain: FloatArray  # the value before a covariate
    mass: FloatArray  # what the value is divided by, summed over rows: their number, weights or denominators


class _Terms(NamedTuple):
    """The terms before a covariate explains some of them, and what it takes to see whether they cancel."""

    value: FloatArray
    variance: FloatArray
    positive: FloatArray  # sum of the parts that were added, against which the variance may be rounding
    shape: Cumulants
    effective: FloatArray  # the number of equally weighted rows that know as much
    ratio: FloatArray | None  # x/y, where the terms are (x − r y)/ȳ
    below: FloatArray  # ȳ


def _linear(m: Moments, *, ratio: bool, weighted: bool, covariate: bool) -> _Linear:
    """Mean, ratio or weighted mean of every arm, with CUPED when there is a covariate; variances are steady."""
    n = m.n[..., 0]
    terms = _ratio(m, weighted=weighted, plain=not ratio) if ratio or weighted else _mean(m)
    value, variance, positive, shape = terms.value, terms.variance, terms.positive, terms.shape
    lost = 1
    if covariate:
        lost = 2
        value, variance, positive, shape = _explained(m, terms)
    # What is left of terms that cancel is rounding, not variance.
    rounding = np.isfinite(variance) & (variance <= 1e-12 * positive)
    variance, freedom = np.where(rounding, 0.0, variance), terms.effective - lost
    made = _steadied(value, variance, n, freedom, shape, np.isnan(terms.below))
    return made._replace(plain=terms.value, mass=n * terms.below)


def _steadied(
    value: FloatArray,
    variance: FloatArray,
    n: FloatArray,
    freedom: FloatArray,
    shape: Cumulants,
    empty: npt.NDArray[np.bool_],
) -> _Linear:
    """The same with variances that do not follow the values, arm by arm.

    With two arms there are two rounds: first each by itself, then with what their difference says about the noise.
    """
    arms = range(n.shape[1])
    # Groups that cannot be used for want of rows have no say in the variances of the others.
    known = np.where(freedom >= 1, variance, np.nan)
    shapes = [Cumulants(*(part[:, arm] for part in shape)) for arm in arms]
    made = [steady(n[:, arm], value[:, arm], known[:, arm], shapes[arm]) for arm in arms]
    if n.shape[1] == 2 and not np.array_equal(value[:, 0], value[:, 1], equal_nan=True):
        of_means = np.stack([made[arm].variance / n[:, arm] for arm in arms], axis=1)
        noise = noise_of_arms(value, of_means)
        made = [steady(n[:, arm], value[:, arm], known[:, arm], shapes[arm], noise[:, arm]) for arm in arms]
    steadied, made_freedom, of_noise = (
        np.stack([getattr(one, name) for one in made], axis=1) for name in ("variance", "freedom", "noise")
    )
    is_made = np.isfinite(made_freedom)
    return _Linear(
        value,
        np.where(is_made, steadied, variance),
        n,
        np.where(is_made, np.maximum(made_freedom, freedom), freedom),
        empty,
        value - of_noise,
        np.array([one.skewness for one in made]),
        np.array([one.excess for one in made]),
        value,
        n,
    )


def _mean(m: Moments) -> _Terms:
    value, variance = m.mean[..., 0], m.cov[..., 0, 0]
    shape, n = Cumulants.of(m, 0), m.n[..., 0]
    return _Terms(value, variance, variance + 1e-12 * value**2, shape, n, None, np.ones(n.shape))


def _ratio(m: Moments, *, weighted: bool, plain: bool) -> _Terms:
    """A ratio r = X̄/Ȳ is linear up to second order: its terms are (x − r y)/Ȳ (delta method).

    A weighted mean (`plain`) is the ratio of w(x − c) and w, plus c, where c is the group's plain mean; a weighted
    ratio is the ratio of w x and w y. Unequal weights leave Kish's effective number of rows, (Σw)²/Σw², to estimate
    the variance from.
    """
    n, x, cov = m.n[..., 0], m.mean[..., 0], m.cov
    y = np.where(m.mean[..., 1] == 0, np.nan, m.mean[..., 1])
    r = x / y
    value = r + (m.mean[..., 2] if weighted and plain else 0.0)
    positive = (cov[..., 0, 0] + r**2 * cov[..., 1, 1]) / y**2
    variance = positive - 2 * r * cov[..., 0, 1] / y**2
    made = Cumulants.of(m, 0).less(Cumulants.of(m, 1), cov[..., 0, 1], r)
    shape = Cumulants(made.variance / y**2, made.third / np.abs(y) ** 3, made.fourth / y**4)
    effective = n
    if weighted:
        place = 1 if plain else 2
        effective = _kish(n, m.mean[..., place], cov[..., place, place])
        variance = variance * (n - 1) / n * effective / (effective - 1)
        positive = positive + 1e-12 * value**2
    return _Terms(value, variance, positive, shape, effective, r, y)


def _explained(m: Moments, terms: _Terms) -> tuple[FloatArray, FloatArray, FloatArray, Cumulants]:
    """Value, variance, its positive parts and shape once a covariate has explained what it can (CUPED)."""
    n, cov = m.n[..., 0], m.cov
    last, r, y = cov.shape[-1] - 1, terms.ratio, terms.below
    with_z = cov[..., 0, last] if r is None else (cov[..., 0, last] - r * cov[..., 1, last]) / y
    of_z, inner = cov[..., last, last], np.maximum(n - 1, 0)
    sum_z = np.sum(inner * of_z, axis=1, keepdims=True)
    slope = np.sum(inner * with_z, axis=1, keepdims=True) / np.where(sum_z > 0, sum_z, np.nan)
    slope = np.nan_to_num(slope)  # a covariate without variance explains nothing
    z, total = m.mean[..., last], np.sum(n, axis=1, keepdims=True)
    value = terms.value - slope * (z - np.sum(n * z, axis=1, keepdims=True) / total)
    positive = terms.positive + slope**2 * of_z
    variance = (terms.variance - 2 * slope * with_z + slope**2 * of_z) * (total - 2) / (total - 3)
    # The slope is estimated too; what that adds to the difference of the arms is shared between them.
    pooled = np.sum(inner * variance, axis=1, keepdims=True) / (total - 2)
    apart = (z.max(axis=1, keepdims=True) - z.min(axis=1, keepdims=True)) ** 2
    variance = variance + n / 2 * np.nan_to_num(pooled * apart / sum_z)
    shape = terms.shape.less(Cumulants.of(m, last), with_z, np.broadcast_to(slope, with_z.shape))
    return value, variance, positive, shape


def _kish(n: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """The effective number of rows behind weights of this mean and variance: (Σw)²/Σw²."""
    return np.asarray(n * mean**2 / (mean**2 + np.nan_to_num(variance) * (n - 1) / n))


def _check_arms(
    arm: _Linear, reason: npt.NDArray[np.object_], names: tuple[str, str] = ("control", "treatment")
) -> None:
    for i, name in enumerate(names if arm.n.shape[1] == 2 else ("",)):
        where = f" in {name}" if name else ""
        mark(reason, arm.n[:, i] == 0, f"no rows{where}")
        mark(reason, arm.empty[:, i], f"empty denominator{where}")
        mark(reason, ~(arm.freedom[:, i] >= 1), f"too few rows{where} for a variance")
        finite = np.isfinite(arm.value[:, i]) & np.isfinite(arm.variance[:, i])
        mark(reason, ~finite, f"numbers too large{where}")


def _finish(
    arm: _Linear,
    theta: FloatArray,
    parts: FloatArray,
    third: FloatArray,
    fourth: FloatArray,
    reason: npt.NDArray[np.object_],
) -> Measured:
    """Estimate with what its arms contribute to its variance, and its third and fourth cumulant.

    Standard errors come with Welch–Satterthwaite degrees of freedom. Skewed noise is straightened where groups are
    compared; what people read is the estimate as it is.
    """
    variance = parts.sum(axis=1)
    mark(reason, ~(variance > 0), "zero variance")
    dof = np.maximum(variance**2 / np.sum(parts**2 / arm.freedom, axis=1), 1.0)
    compared, usable = theta.copy(), reason == ""
    compared[usable] = straightened(theta[usable], variance[usable], third[usable], fourth[usable])
    sizes, mass = arm.n.sum(axis=1), arm.mass.sum(axis=1)
    return Measured(theta, np.sqrt(variance), dof, sizes, theta, reason, compared=compared, mass=mass)


def _third(arm: _Linear) -> FloatArray:
    """Third cumulants of the values of the arms."""
    return np.asarray(arm.skewness * arm.variance**1.5 / arm.n**2)


def _fourth(arm: _Linear, unit: FloatArray | float = 1.0) -> FloatArray:
    """Fourth cumulant of the sum or difference of the values of the arms, each in some unit."""
    return np.asarray((arm.excess * arm.variance**2 / arm.n**3 / unit**4).sum(axis=1))


def of_population(m: Moments, *, ratio: bool = False, weighted: bool = False) -> Measured:
    """A mean or a ratio of sums, with its standard error by the delta method."""
    with np.errstate(all="ignore"):
        arm = _linear(m, ratio=ratio, weighted=weighted, covariate=False)
        reason = reasons(len(m.n))
        _check_arms(arm, reason)
        return _finish(arm, arm.value[:, 0], arm.variance / arm.n, _third(arm)[:, 0], _fourth(arm), reason)


def of_paired(m: Moments, *, weighted: bool = False) -> Measured:
    """One ratio of sums less another of the same rows: x₂/y₂ − x₁/y₁ of the variables x₂, y₂, x₁, y₁ (and weights).

    By the delta method it is linear up to second order, with the terms (x₂ − r₂ y₂)/ȳ₂ − (x₁ − r₁ y₁)/ȳ₁.
    """
    with np.errstate(all="ignore"):
        n, cov = m.n[..., 0], m.cov[..., :4, :4]
        below = np.where(m.mean[..., [1, 3]] == 0, np.nan, m.mean[..., [1, 3]])
        r = m.mean[..., [0, 2]] / below
        slopes = np.zeros((*n.shape, 2, 4))  # of either ratio
        for side in (0, 1):
            slopes[..., side, 2 * side] = 1 / below[..., side]
            slopes[..., side, 2 * side + 1] = -r[..., side] / below[..., side]
        of_both = np.einsum("...ai,...ij,...bj->...ab", slopes, np.nan_to_num(cov), slopes)
        variance = of_both[..., 0, 0] + of_both[..., 1, 1] - 2 * of_both[..., 0, 1]
        shapes = []
        for side in (0, 1):
            x, y = 2 * side, 2 * side + 1
            made = Cumulants.of(m, x).less(Cumulants.of(m, y), cov[..., x, y], r[..., side])
            shapes.append(Cumulants(*(part / below[..., side] ** power for power, part in enumerate(made, start=2))))
        shape = shapes[0].less(shapes[1], of_both[..., 0, 1], np.ones(n.shape))
        effective = _kish(n, m.mean[..., 4], m.cov[..., 4, 4]) if weighted else n
        rounding = variance <= 1e-12 * (of_both[..., 0, 0] + of_both[..., 1, 1])
        variance = np.where(rounding, 0.0, variance) * (effective / (effective - 1) if weighted else 1.0)
        value, empty = r[..., 0] - r[..., 1], np.isnan(below[..., 0]) | np.isnan(below[..., 1])
        arm = _steadied(value, variance, n, effective - 1, shape, empty)._replace(mass=n * below.mean(axis=-1))
        reason = reasons(len(n))
        _check_arms(arm, reason)
        return _finish(arm, arm.value[:, 0], arm.variance / arm.n, _third(arm)[:, 0], _fourth(arm), reason)


def of_difference(m: Moments, *, ratio: bool, weighted: bool, covariate: bool) -> Measured:
    """Treatment less control, with the standard error of Welch."""
    with np.errstate(all="ignore"):
        arm = _linear(m, ratio=ratio, weighted=weighted, covariate=covariate)
        reason = reasons(len(m.n))
        _check_arms(arm, reason)
        effect = arm.value[:, 1] - arm.value[:, 0]
        return _finish(arm, effect, arm.variance / arm.n, _third(arm) @ _APART, _fourth(arm), reason)._replace(
            by_arm=arm.plain
        )


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
        # Means that happen to be low would make their own logarithms look uncertain, so noise is taken off them too.
        fourth = _fourth(arm, arm.likely)
        third = (_third(arm) - 3 * of_mean**2 / arm.likely) / arm.likely**3  # of the logarithms, to second order
        made = _finish(arm, np.log(treated / control), of_mean / arm.likely**2, third @ _APART, fourth, reason)
        # The lift of all rows is a mean of lifts weighted by what the control would have made of them.
        mass = arm.mass.sum(axis=1) * arm.plain[:, 0]
        return made._replace(natural=treated / control - 1, by_arm=arm.plain, mass=mass)


def of_rate(m: Moments, *, weighted: bool = False, variable: int = 0) -> Measured:
    """A share on Anscombe's scale, asin √((y + 3/8)/(n + 3/4)), whose variance 1/(4n + 2) does not depend on it.

    The usual p(1 − p)/n is smallest just where p happens to come out small, so rare events make groups look different
    that are not. With weights, n is the number of plain rows that would be as precise: p(1 − p) over the variance of
    the weighted share, and at most Kish's (Σw)²/Σw².
    """
    with np.errstate(all="ignore"):
        n, mean = m.n[:, 0, variable], m.mean[:, 0, variable]
        rows, mass, empty = n, n, (n == 0) | np.isnan(mean)
        if weighted:
            weight, cov = m.mean[:, 0, 1], m.cov[:, 0]
            empty = (n == 0) | np.isnan(weight) | (weight == 0)
            mean, mass = mean / weight, rows * weight
            variance = (cov[:, 0, 0] - 2 * mean * cov[:, 0, 1] + mean**2 * cov[:, 1, 1]) / (rows * weight**2)
            n = np.fmin(_kish(n, weight, cov[:, 1, 1]), np.where(variance > 0, mean * (1 - mean) / variance, np.inf))
        reason = reasons(len(n))
        mark(reason, empty, "empty denominator")
        mark(reason, ~np.isfinite(mean), "numbers too large")
        mark(reason, (mean < -1e-9) | (mean > 1 + 1e-9), "share below 0 or above 1")
        theta, se = ANSCOMBE.forward(mean * n, n), 1 / np.sqrt(4 * n + 2)
    return Measured(theta, se, None, rows, mean, reason, mass=mass)


def of_both_rates(m: Moments, *, weighted: bool = False) -> Measured:
    """Two rates over different rows, of positives and of negatives, which are independent."""
    each = 2 if weighted else 1
    parts = [of_rate(m.of_variables(range(each * i, each * i + each)), weighted=weighted) for i in (0, 1)]
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
        mass=np.stack([np.asarray(part.mass) for part in parts], axis=1),
    )


def of_area(m: Moments, *, weighted: bool = False) -> Measured:
    """Area under the curve: n = positives and negatives; mean, cov and shape of their placements.

    The area is the mean of the placements of the positives, and of those of the negatives; DeLong's variance is
    v₁/n₊ + v₂/n₋, as that of a difference of two arms. With weights, two further variables are the weights of either
    side, and the variances are those of w(a − A)/w̄.
    """
    with np.errstate(all="ignore"):
        n, area = m.n[:, 0, :2], m.mean[:, 0, 0]
        reason = reasons(len(n))
        for i, name in enumerate(("positives", "negatives")):
            mark(reason, n[:, i] < 2, f"fewer than two {name}")
        placements = [Cumulants.of(m, i) for i in (0, 1)]
        shape = Cumulants(*(np.concatenate(parts, axis=1) for parts in zip(*placements, strict=True)))
        value, variance, effective, mass = np.stack([area, area], axis=1), shape.variance, n, n
        if weighted:
            weight = m.mean[:, 0, 2:]
            effective = _kish(n, weight, np.diagonal(m.cov[:, 0, 2:, 2:], axis1=1, axis2=2))
            variance = variance * (n - 1) / n * effective / (effective - 1)
            mass = n * weight
            mark(reason, np.any(~(weight > 0), axis=1), "empty denominator")
        sides = _steadied(value, variance, n, effective - 1, shape, np.zeros(n.shape, dtype=bool))
        # A placement goes up where the area does, on either side.
        made = _finish(sides, area, sides.variance / n, _third(sides).sum(axis=1), _fourth(sides), reason)
        return made._replace(mass=mass.sum(axis=1))


def of_balanced(m: Moments, *, weighted: bool = False) -> Measured:
    """Balanced accuracy: the mean of true positive and true negative rate, (1 + TPR − FPR)/2.

    The first half of the variables is of negatives, the second of positives: other rows, so the two rates are the arms
    of a difference.
    """
    each = m.n.shape[2] // 2
    sides = [m.of_variables(range(i, i + each)) for i in (0, each)]
    both = Moments(*(np.concatenate(parts, axis=1) for parts in zip(*sides, strict=True) if parts[0] is not None))
    with np.errstate(all="ignore"):
        arm = _linear(both, ratio=weighted, weighted=weighted, covariate=False)
        reason = reasons(len(m.n))
        _check_arms(arm, reason, ("negatives", "positives"))
        apart = arm.value[:, 1] - arm.value[:, 0]
        made = _finish(arm, apart, arm.variance / arm.n, _third(arm) @ _APART, _fourth(arm), reason)
    compared = None if made.compared is None else (1 + made.compared) / 2
    balanced = (1 + apart) / 2
    return made._replace(theta=balanced, se=made.se / 2, natural=balanced, compared=compared)


def of_resampled(m: Moments) -> Measured:
    """A statistic whose variance was seen in draws of rows: steadied as those of means, by how it follows the values.

    Draws do not say what shape the noise has with any precision; how variances follow values over the groups does.
    """
    value, variance = m.mean[:, 0, 0], m.cov[:, 0, 0, 0]
    made = of_population(assumed_shape(m)[0])
    reason = reasons(value.size)
    mark(reason, m.n[:, 0, 0] == 0, "no rows")
    mark(reason, ~np.isfinite(value), "no value")
    mark(reason, ~np.isfinite(variance), "no value in too many draws of rows")
    mark(reason, variance == 0, "zero variance")  # such as a median of few distinct values
    return made._replace(reason=np.where(reason == "", made.reason, reason))


def of_atkinson(m: Moments, *, epsilon: float) -> Measured:
    """Atkinson's index of each arm, 1 − M/x̄ with M the mean of order 1 − ε; with two arms, its difference.

    The variables are u = x^(1−ε), or log x for ε = 1, and x. With R = M/x̄ the terms are R (x/x̄ − u/((1 − ε) ū)), for
    ε = 1 R (x/x̄ − u) (delta method). To second order R is too large by a share that falls with n; groups of unequal
    size would differ by it, so it is taken off what is compared.
    """
    n = m.n[..., 1]
    with np.errstate(all="ignore"):
        u, x = m.mean[..., 0], np.where(m.mean[..., 1] > 0, m.mean[..., 1], np.nan)
        power = 1 - epsilon
        of_u = 1 / (power * u) if power else np.ones(u.shape)  # derivative of log M by ū
        ratio = (u ** (1 / power) if power else np.exp(u)) / x
        a, b = ratio / x, ratio * of_u
        cov = m.cov
        positive = a**2 * cov[..., 1, 1] + b**2 * cov[..., 0, 0]
        variance = np.maximum(positive - 2 * a * b * cov[..., 0, 1], 0.0)
        variance = np.where(variance <= 1e-12 * positive, 0.0, variance)
        made = Cumulants.of(m, 1).less(Cumulants.of(m, 0), cov[..., 0, 1], b / a)
        shape = Cumulants(a**2 * made.variance, a**3 * made.third, a**4 * made.fourth)
        second = cov[..., 1, 1] / x**2 - power * of_u**2 * cov[..., 0, 0] - variance / ratio**2
        straight = 1 - ratio * np.exp(-second / (2 * n))
        arm = _steadied(straight, variance, n, n - 1, shape, np.isnan(x))
        reason = reasons(len(n))
        mark(reason, np.any(m.n[..., 0] < n, axis=1), "values of zero, which need an epsilon below 1")
        _check_arms(arm, reason)
        if n.shape[1] == 1:
            made_of = _finish(arm, straight[:, 0], arm.variance / n, _third(arm)[:, 0], _fourth(arm), reason)
            return made_of._replace(natural=1 - ratio[:, 0])
        effect = straight[:, 1] - straight[:, 0]
        made_of = _finish(arm, effect, arm.variance / n, _third(arm) @ _APART, _fourth(arm), reason)
        return made_of._replace(natural=ratio[:, 0] - ratio[:, 1], by_arm=1 - ratio)
