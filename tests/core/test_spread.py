"""The spread between groups: equations it solves, and a continuum beside clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from faultlines.core import spread as module
from faultlines.core.spread import between_spread, prefers_continuum
from tests.refused import refused

Array = np.ndarray


def heterogeneity(theta: Array, variance: Array) -> float:
    weight = 1 / variance
    return float(np.sum(weight * (theta - np.average(theta, weights=weight)) ** 2))


def test_it_solves_the_equations() -> None:
    rng = np.random.default_rng(0)
    variance = rng.lognormal(0, 1, 25)
    theta = 2 * rng.standard_normal(25) + np.sqrt(variance) * rng.standard_normal(25)
    result = between_spread(theta, variance, 0.1)
    for end, value in zip(
        (result.estimate, result.lower, result.upper),
        (24.0, stats.chi2.isf(0.05, 24), stats.chi2.ppf(0.05, 24)),
        strict=True,
    ):
        assert heterogeneity(theta, variance + end**2) == pytest.approx(value, rel=1e-6)


def test_equal_variances_have_a_closed_form() -> None:
    theta = np.array([0.0, 3.0, 7.0, 1.0])
    result = between_spread(theta, np.full(4, 0.5))
    assert result.estimate == pytest.approx(np.sqrt(theta.var(ddof=1) - 0.5))
    assert result.lower == pytest.approx(np.sqrt(3 * theta.var(ddof=1) / stats.chi2.ppf(0.975, 3) - 0.5))


def test_less_scatter_than_noise_is_no_evidence_for_less_spread() -> None:
    quiet, usual = between_spread(np.linspace(0, 1e-3, 10), np.ones(10)), stats.chi2.ppf(0.025, 9)
    assert (quiet.estimate, quiet.lower) == (0.0, 0.0)
    assert quiet.upper == pytest.approx(np.sqrt(9 / usual - 1))
    same = between_spread(np.zeros(3), np.ones(3))
    assert (same.estimate, same.lower) == (0.0, 0.0)
    with refused("too few: theta"):
        between_spread(np.zeros(1), np.ones(1))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(-1e3, 1e3), st.floats(1e-5, 1e5))
def test_units_and_shifts(seed: int, shift: float, unit: float) -> None:
    rng = np.random.default_rng(seed)
    theta, variance = 2 * rng.standard_normal(9), rng.lognormal(0, 0.5, 9)
    plain, moved = between_spread(theta, variance), between_spread((theta + shift) * unit, variance * unit**2)
    for name in ("estimate", "lower", "upper"):
        assert getattr(moved, name) == pytest.approx(getattr(plain, name) * unit, rel=1e-5, abs=1e-5 * unit)


def test_a_covariance_without_shared_noise_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    variance = rng.lognormal(0, 0.5, 12)
    theta = 3 * rng.standard_normal(12)
    plain = between_spread(theta, variance)
    for shared in (0.0, 5.0):  # what all groups have in common moves none against the others
        result = between_spread(theta, variance, covariance=np.diag(variance) + shared)
        assert (result.estimate, result.upper) == pytest.approx((plain.estimate, plain.upper), rel=1e-6)


def test_estimated_variances_widen_the_interval() -> None:
    theta, variance = np.arange(10.0), np.ones(10)
    plain, few = between_spread(theta, variance), between_spread(theta, variance, dof=5.0)
    assert few.lower < plain.lower
    assert between_spread(theta, variance, dof=np.inf) == plain


def test_densities_are_densities() -> None:
    for density in (module._normal, module._uniform, module._exponential):
        for spread in (0.3, 2.0):

            def value(x: float, density: object = density, spread: float = spread) -> float:
                return float(np.exp(density(np.array([x]), np.array([0.7]), 1.0, spread)[0]) / np.sqrt(2 * np.pi))  # type: ignore[operator]

            assert integrate.quad(value, -10, 40, limit=200)[0] == pytest.approx(1, abs=1e-6)
            mean = integrate.quad(lambda x: x * value(x), -10, 40, limit=200)[0]
            assert mean == pytest.approx(1, abs=1e-5)
            second = integrate.quad(lambda x: (x - 1) ** 2 * value(x), -10, 40, limit=200)[0]
            assert second == pytest.approx(0.49 + spread**2, abs=1e-4)


@pytest.mark.parametrize("shape", ["normal", "uniform", "exponential"])
def test_smooth_effects_are_a_continuum(shape: str) -> None:
    rng = np.random.default_rng(2)
    effects = {
        "normal": rng.standard_normal(200),
        "uniform": rng.uniform(-1.7, 1.7, 200),
        "exponential": rng.exponential(size=200),
    }[shape]
    theta = 3 * effects + rng.standard_normal(200)
    cuts = np.searchsorted(np.quantile(theta, [0.3, 0.7]), theta)
    preferred, by = prefers_continuum(theta, np.ones(200), cuts)
    assert preferred
    assert by > 0


def test_clear_clusters_are_none() -> None:
    rng = np.random.default_rng(3)
    for labels, levels in ((np.repeat([1, 2], 30), [0.0, 5.0]), (np.repeat([7, 8], [59, 1]), [0.0, 9.0])):
        theta = np.array(levels)[labels - labels.min()] + rng.standard_normal(60)
        preferred, by = prefers_continuum(theta, np.ones(60), labels)
        assert not preferred
        assert by < -5
        assert prefers_continuum(1e-4 * theta + 3, np.full(60, 1e-8), labels)[1] == pytest.approx(by, abs=0.05)
    assert prefers_continuum(np.zeros(4), np.ones(4), np.ones(4, dtype=int)) == (False, 0.0)


def test_the_mixture_has_the_likelihood_of_its_density() -> None:
    theta = np.array([0.0, 0.5, 8.0, 9.0])
    result = module._mixture_likelihood(theta, np.full(4, 0.25), np.array([0, 0, 1, 1]), 2)
    expected = np.sum(np.log(0.5) + stats.norm.logpdf(theta, [0.25, 0.25, 8.5, 8.5], 0.5)) + 2 * np.log(2 * np.pi)
    assert result == pytest.approx(expected, abs=1e-6)
