"""Means of the named members: known limits, and the posterior that it approximates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultlines.core.mixture import member_means
from tests.refused import refused


def halves(apart: float, size: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    labels = np.repeat([0, 1], size // 2)
    return apart * labels + np.random.default_rng(seed).standard_normal(size), labels


def test_clear_clusters_have_their_plain_means() -> None:
    theta, labels = halves(12.0)
    means = member_means(theta, np.ones(40), labels)
    averages = np.array([theta[labels == j].mean() for j in (0, 1)])
    assert np.allclose(means.estimate, averages, atol=0.02)
    assert np.allclose(means.se, 20**-0.5, rtol=0.1)
    assert np.allclose(means.upper - means.lower, 2 * 1.96 * means.se, rtol=0.1)
    assert means.gap == pytest.approx(np.ptp(averages), abs=0.03)
    assert means.gap_upper - means.gap_lower == pytest.approx(2 * 1.96 * (2 / 20) ** 0.5, rel=0.1)
    assert means.model_probabilities["points"] + means.model_probabilities["spread"] == pytest.approx(1)


def test_noise_cut_in_halves_is_shrunk_to_nothing() -> None:
    theta = np.random.default_rng(1).standard_normal(100)
    labels = (theta > np.median(theta)).astype(int)
    means = member_means(theta, np.ones(100), labels)
    assert means.gap < 0.35 * (theta[labels == 1].mean() - theta[labels == 0].mean())
    assert means.gap_lower < 0.05
    assert means.model_probabilities["equal"] > 0.3


def test_smooth_effects_are_shrunk_by_the_share_of_noise() -> None:
    rng = np.random.default_rng(2)
    theta = np.sqrt(2.0) * rng.standard_normal(2000)
    labels = (theta > 0).astype(int)
    means = member_means(theta, np.ones(2000), labels)
    assert means.gap == pytest.approx((theta[labels == 1].mean() - theta[labels == 0].mean()) / 2, rel=0.1)
    assert means.model_probabilities["continuum"] > 0.95


def test_an_outlier_keeps_its_effect() -> None:
    theta = np.append(np.random.default_rng(3).standard_normal(60), 10.0)
    means = member_means(theta, np.ones(61), np.append(np.zeros(60, dtype=int), 1))
    assert means.estimate[1] == pytest.approx(10, abs=0.3)
    assert means.upper[1] - means.lower[1] == pytest.approx(3.92, rel=0.15)


def test_sizes_say_what_a_group_counts() -> None:
    theta, labels = halves(20.0, 4, 4)
    variance, sizes = np.array([1.0, 1e-2, 1.0, 1.0]), np.array([3.0, 1.0, 1.0, 1.0])
    by_size = member_means(theta, variance, labels, sizes=sizes)
    by_precision = member_means(theta, variance, labels)
    assert by_precision.lower[0] <= by_precision.estimate[0] <= by_precision.upper[0]
    assert by_size.se[0] > by_precision.se[0]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.floats(-1e3, 1e3), st.floats(1e-4, 1e4))
def test_units_order_and_numbers(seed: int, shift: float, unit: float) -> None:
    rng = np.random.default_rng(seed)
    theta, variance, labels = 2 * rng.standard_normal(12), rng.lognormal(0, 0.5, 12), np.arange(12) % 3
    order = rng.permutation(12)
    plain = member_means(theta, variance, labels)
    moved = member_means((theta[order] + shift) * unit, variance[order] * unit**2, labels[order])
    assert np.all((plain.lower <= plain.estimate) & (plain.estimate <= plain.upper))
    assert plain.gap_lower <= plain.gap <= plain.gap_upper
    assert sum(plain.model_probabilities.values()) == pytest.approx(1)
    assert np.allclose(moved.estimate, (plain.estimate + shift) * unit, rtol=1e-4, atol=1e-3 * unit)
    assert np.allclose(moved.upper, (plain.upper + shift) * unit, rtol=1e-4, atol=1e-3 * unit)


def test_a_single_cluster() -> None:
    theta = np.random.default_rng(5).standard_normal(30) + 3
    means = member_means(theta, np.ones(30), np.zeros(30, dtype=int))
    assert means.estimate[0] == pytest.approx(theta.mean(), abs=0.05)
    assert (means.gap, means.gap_lower, means.gap_upper) == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)
    with refused("empty: labels"):
        member_means(theta, np.ones(30), np.ones(30, dtype=int))


def test_what_is_less_known_has_wider_intervals() -> None:
    theta, labels = halves(10.0)
    plain = member_means(theta, np.ones(40), labels)
    few = member_means(theta, np.ones(40), labels, dof=6.0)
    shared = member_means(theta, np.ones(40), labels, covariance=np.eye(40) + 2.0)
    assert np.all(few.upper - few.lower > plain.upper - plain.lower)
    assert np.all(shared.se > 1.4)
    assert shared.gap_upper - shared.gap_lower == pytest.approx(plain.gap_upper - plain.gap_lower, rel=1e-6)
    exact = member_means(theta, np.ones(40), labels, dof=np.inf)
    assert np.allclose(exact.estimate, plain.estimate)
