"""Variances that do not follow the estimates: what must hold for them whatever the groups are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import faultlines as fl
from faultlines.metrics.variances import Cumulants, normalize_noise, shrink_variances
from faultlines.rows.request import Moments

quick = settings(max_examples=25, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def samples(seed: int, groups: int = 8) -> list[Any]:
    """Skewed values in groups of unequal size, spread and level."""
    rng = np.random.default_rng(seed)
    size, spread = rng.integers(3, 60, groups), rng.lognormal(0, rng.choice([0, 0.5]), groups)
    return [s * (rng.exponential(1, n) + rng.choice([0.0, 1.0])) for n, s in zip(size, spread, strict=True)]


def steadied(values: list[Any]) -> Any:
    n, mean, variance = (np.array([f(x) for x in values]) for f in (len, np.mean, lambda x: np.var(x, ddof=1)))
    third = np.array([stats.skew(x) for x in values]) * variance**1.5
    fourth = np.array([stats.kurtosis(x) for x in values]) * variance**2
    return shrink_variances(n.astype(float), mean, variance, Cumulants(variance, third, fourth))


@quick
@given(seeds)
def test_the_order_of_groups_does_not_matter(seed: int) -> None:
    values = samples(seed)
    order = np.random.default_rng(seed).permutation(len(values))
    first, again = steadied(values), steadied([values[i] for i in order])
    for name in ("variance", "dof", "noise"):
        np.testing.assert_allclose(getattr(again, name), getattr(first, name)[order], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(again.skewness, first.skewness[order], rtol=1e-7)


@quick
@given(seeds, st.floats(-100, 100), st.floats(0.01, 100))
def test_variances_go_with_the_unit_of_values_and_not_with_their_level(seed: int, shift: float, unit: float) -> None:
    values = samples(seed)
    first, again = steadied(values), steadied([shift + unit * x for x in values])
    np.testing.assert_allclose(again.variance, unit**2 * first.variance, rtol=1e-5)
    np.testing.assert_allclose(again.dof, first.dof, rtol=1e-4)
    np.testing.assert_allclose(again.noise, unit * first.noise, rtol=1e-4, atol=1e-6 * unit)


@quick
@given(seeds)
def test_values_upside_down_have_the_same_variances(seed: int) -> None:
    values = samples(seed)
    first, again = steadied(values), steadied([-x for x in values])
    np.testing.assert_allclose(again.variance, first.variance, rtol=1e-9)
    assert again.skewness == pytest.approx(-first.skewness)


@quick
@given(seeds)
def test_one_group_keeps_its_variance(seed: int) -> None:
    (values,) = samples(seed, groups=1)
    moderated = steadied([values])
    assert moderated.variance[0] == np.var(values, ddof=1)
    assert np.isnan(moderated.dof[0])
    assert moderated.noise[0] == 0


@quick
@given(seeds, st.integers(2, 9))
def test_equal_groups_have_equal_variances(seed: int, copies: int) -> None:
    (values,) = samples(seed, groups=1)
    moderated = steadied([values] * copies)
    np.testing.assert_allclose(moderated.variance, np.var(values, ddof=1), rtol=1e-9)
    np.testing.assert_allclose(moderated.dof, moderated.dof[0])


def test_a_group_of_which_nothing_is_expected_does_not_spoil_the_others() -> None:
    rng = np.random.default_rng(0)
    variance = rng.chisquare(49, 5) / 49
    own = Cumulants(variance, np.zeros(5), np.zeros(5))
    expected = Cumulants(np.array([1.0, 1.0, 1.0, 1.0, np.nan]), np.zeros(5), np.zeros(5))
    some = [Cumulants(*(part[:4] for part in cumulants)) for cumulants in (own, expected)]
    n, mean = np.full(5, 50.0), rng.standard_normal(5)
    shrunk = shrink_variances(n, mean, variance, own, np.zeros(5), expected=expected)
    without = shrink_variances(n[:4], mean[:4], variance[:4], some[0], np.zeros(4), expected=some[1])
    assert shrunk.variance.tolist() == [*without.variance.tolist(), variance[4]]


def test_groups_without_a_known_shape_keep_their_variances() -> None:
    nan = np.full(3, np.nan)
    variance = np.array([1.0, 2.0, 3.0])
    moderated = shrink_variances(np.full(3, 50.0), np.arange(3.0), variance, Cumulants(variance, nan, nan))
    assert moderated.variance.tolist() == [1, 2, 3]
    assert np.isnan(moderated.dof).all()


def test_a_mean_that_is_off_does_not_look_certain() -> None:
    """Of groups that are all alike, those with a low mean had a low standard error too; they no longer do."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat(np.arange(200), 60), "x": rng.lognormal(0, 1, 12_000)})
    estimates = fl.measure(data, "g", fl.mean("x")).estimates
    own = data.groupby("g")["x"].std() / np.sqrt(60)
    assert stats.spearmanr(estimates.theta, own)[0] > 0.6
    low, high = np.argsort(estimates.theta)[:20], np.argsort(estimates.theta)[-20:]
    assert own[high].mean() > 1.5 * own[low].mean()
    assert estimates.se[high].mean() == pytest.approx(estimates.se[low].mean(), rel=0.15)


@pytest.mark.parametrize("scale", [3, 10, 150])
def test_groups_in_another_unit_keep_their_own_spread(scale: float) -> None:
    """Where mean and spread are both larger, as in another currency, the mean is not taken for noise."""
    rng = np.random.default_rng(0)
    scales = np.repeat([scale, 1.0], [5, 35])
    data = pd.DataFrame({"g": np.repeat(np.arange(40), 400), "x": rng.exponential(1, 16_000) * scales.repeat(400)})
    measurement = fl.measure(data, "g", fl.mean("x"))
    np.testing.assert_allclose(measurement.estimates.se[:5], scale / 20, rtol=0.2)
    assert np.median(measurement.estimates.se[5:]) == pytest.approx(1 / 20, rel=1.5)


def test_a_small_group_left_out_has_no_say_in_the_others() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat([0, 1, 2], [100, 100, 6]), "x": np.r_[rng.standard_normal(205), 1e6]})
    measurement, alone = fl.measure(data, "g", fl.mean("x")), fl.measure(data[data.g < 2], "g", fl.mean("x"))
    assert len(measurement.excluded) == 1
    np.testing.assert_allclose(measurement.estimates.se, alone.estimates.se, rtol=1e-12)
    assert measurement.estimates.dof == pytest.approx(alone.estimates.dof)


# ------------------------------------------------------------------------------------------------------ straightened


@quick
@given(seeds)
def test_straightened_estimates_keep_their_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    theta, variance, skewness = rng.normal(0, rng.uniform(0.5, 3), 30), rng.lognormal(0, 1), rng.uniform(-1.5, 1.5)
    third, fourth = skewness * variance**1.5, (1.5 * skewness**2 + rng.uniform(0, 3)) * variance**2
    normalized = normalize_noise(theta, np.full(30, variance), np.full(30, third), np.full(30, fourth))
    assert np.all(np.diff(normalized[np.argsort(theta)]) >= -1e-9)


@quick
@given(seeds, st.floats(-50, 50), st.floats(0.1, 50))
def test_straightened_estimates_go_with_shift_and_unit(seed: int, shift: float, unit: float) -> None:
    rng = np.random.default_rng(seed)
    theta, variance = rng.normal(0, 2, 12), rng.lognormal(0, 1, 12)
    third, fourth = rng.uniform(-1, 1) * variance**1.5, rng.uniform(0, 3) * variance**2
    normalized = normalize_noise(theta, variance, third, fourth)
    again = normalize_noise(shift + unit * theta, unit**2 * variance, unit**3 * third, unit**4 * fourth)
    np.testing.assert_allclose(again, shift + unit * normalized, rtol=1e-8, atol=1e-7 * unit)


def test_noise_without_skewness_stays_as_it_is() -> None:
    rng = np.random.default_rng(0)
    theta, variance = rng.normal(0, 2, 12), rng.lognormal(0, 1, 12)
    none = np.zeros(12)
    np.testing.assert_allclose(normalize_noise(theta, variance, none, none), theta, rtol=1e-14)
    alone = normalize_noise(theta[:1], variance[:1], np.ones(1), np.ones(1))
    assert alone.tolist() == theta[:1].tolist()  # nothing to compare it with


def test_skewed_noise_becomes_normal() -> None:
    """Means of ten exponential values: a gamma, which Wilson and Hilferty had in mind."""
    theta = np.random.default_rng(0).exponential(1, (4000, 10)).mean(axis=1)
    normalized = normalize_noise(theta, np.full(4000, 0.1), np.full(4000, 2 / 100), np.full(4000, 6 / 1000))
    assert float(stats.skew(theta)) > 0.5
    # The long tail is that of a normal; towards the short one nothing is made to look surer than it did.
    assert np.quantile(normalized, 0.999) - 1 == pytest.approx(3.09 * np.sqrt(0.1), rel=0.1)
    assert normalized.min() >= theta.min() - 1e-9
    assert np.std(normalized) == pytest.approx(np.sqrt(0.1), rel=0.06)


def test_heavy_tails_become_normal() -> None:
    """Student's t with ten degrees of freedom: variance 10/8, excess kurtosis 6/(10 − 4)."""
    theta = np.random.default_rng(0).standard_t(10, 20_000)
    normalized = normalize_noise(theta, np.full(20_000, 1.25), np.zeros(20_000), np.full(20_000, 1.25**2))
    assert float(stats.kurtosis(theta)) > 0.6
    assert abs(float(stats.kurtosis(normalized))) < 0.15


# --------------------------------------------------------------------------------------------------------- cumulants


def cumulants(x: Any) -> Cumulants:
    variance = np.array([np.var(x, ddof=1)])
    return Cumulants(variance, stats.skew(x) * variance**1.5, stats.kurtosis(x) * variance**2)


@pytest.mark.parametrize("own", [0.0, 0.7], ids=["independent", "x = 0.7 y + e"])
@pytest.mark.parametrize("slope", [0.0, 0.3, 1.2])
def test_cumulants_of_a_difference_are_those_of_its_values(own: float, slope: float) -> None:
    rng = np.random.default_rng(0)
    y, e = rng.gamma(2, 1, 400_000), rng.exponential(1, 400_000)
    x = own * y + e
    adjusted = cumulants(x).less(cumulants(y), np.array([np.cov(x, y)[0, 1]]), np.array([slope]))
    for cumulant, exact in zip(adjusted, cumulants(x - slope * y), strict=True):
        np.testing.assert_allclose(cumulant, exact, rtol=0.06, atol=0.06)
    np.testing.assert_allclose(adjusted.variance, np.var(x - slope * y, ddof=1), rtol=1e-9)


def test_equal_values_whose_variance_is_rounding_are_flat_and_not_unknown() -> None:
    rng = np.random.default_rng(3)
    values = [(rng.random(50) < 0.05) * 1.0 + 0.1 for _ in range(40)]
    values[0] = np.full(50, 0.1)  # its mean is not quite 0.1, so its variance is not quite 0
    raw = [v - v.mean() for v in values]
    moments = Moments(
        np.full((40, 1, 1), 50.0),
        np.array([v.mean() for v in values])[:, None, None],
        np.array([np.sum(a**2) / 49 for a in raw])[:, None, None, None],
        np.array([np.sum(a**3) / 50 / max(np.mean(a**2), 1e-40) ** 1.5 for a in raw])[:, None, None],
        np.array([np.sum(a**4) / 50 / max(np.mean(a**2), 1e-40) ** 2 for a in raw])[:, None, None],
    )
    shape = Cumulants.of(moments, 0)
    assert shape.third[0, 0] == shape.fourth[0, 0] == 0
    measured = fl.mean("x").measured(moments)
    assert measured.reason[0] is None
    assert measured.se[0] > 0.2 * np.median(measured.se)
