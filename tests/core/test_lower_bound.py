"""The proved lower bound of the number of clusters: against a brute-force oracle, and where its laws are known."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from faultlines.core import lower_bound
from faultlines.core.lower_bound import at_least, cluster_count_bound
from tests.refused import refused

Array = np.ndarray


def brute_force(theta: Array, se: Array, alpha: float) -> int:
    """The bound by all partitions into intervals, the center of each on a fine grid where it is not the mean."""
    order = np.argsort(theta)
    theta, se, size = theta[order], se[order], theta.size
    reach, limit = stats.norm.isf(alpha / 4 / size), stats.chi2.isf(alpha / 2, size)

    def cost(start: int, end: int) -> float:
        t, s = theta[start:end], se[start:end]
        low, high = np.max(t - reach * s), np.min(t + reach * s)
        if low > high:
            return float("inf")
        center = np.clip(np.average(t, weights=s**-2.0), low, high)
        return float(np.sum(((t - center) / s) ** 2))

    for count in range(1, size):
        cuts = combinations(range(1, size), count - 1)
        sums = (sum(cost(*ends) for ends in zip((0, *cut), (*cut, size), strict=True)) for cut in cuts)
        if min(sums) <= limit:
            return count
    return size


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_it_is_the_smallest_number_of_intervals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 9))
    se = rng.lognormal(0, rng.choice([0.0, 1.0]), size)
    theta = rng.choice([0.0, 4.0, 9.0, 20.0], size) + se * rng.standard_normal(size)
    alpha = float(rng.choice([0.5, 0.05, 0.001]))
    assert at_least(theta, se, alpha) == brute_force(theta, se, alpha)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_units_and_order_do_not_matter(seed: int, shift: float, unit: float) -> None:
    rng = np.random.default_rng(seed)
    theta, se = 4 * rng.standard_normal(12), rng.lognormal(0, 0.5, 12)
    order = rng.permutation(12)
    assert at_least(theta[order] * unit, se[order] * unit) == at_least(theta, se)
    assert at_least(theta + shift, se) == at_least(theta, se)


@pytest.mark.parametrize("dof", [None, 6.0])
def test_the_bound_at_every_level_is_that_at_each(dof: float | None) -> None:
    rng = np.random.default_rng(1)
    theta = np.asarray(np.repeat([0.0, 4.0, 9.0], 10) + rng.standard_normal(30), dtype=np.float64)
    bound = cluster_count_bound(theta, np.ones(30), dof=dof)
    assert np.all(np.diff(bound.pvalues) >= 0)
    for alpha in (1e-8, 0.001, 0.01, 0.05, 0.2, 0.49):
        assert bound.at_least(alpha) in (at_least(theta, np.ones(30), a, dof=dof) for a in (alpha, alpha / 1.02))
    assert bound.rule == "squares and largest"


def test_plain_cases() -> None:
    assert at_least(np.array([3.0]), np.ones(1)) == 1
    assert at_least(np.zeros(50), np.ones(50)) == 1
    assert at_least(np.array([0.0, 100.0]), np.ones(2)) == 2
    assert at_least(np.linspace(0.0, 4000.0, 40), np.ones(40), most=12) == 13
    assert at_least(np.array([0.0, 1e9, 1.0]), np.array([1.0, 1.0, 1e-3])) == 2
    assert cluster_count_bound(np.array([3.0]), np.ones(1)).pvalues.size == 0
    with refused("out of range: alpha"):
        at_least(np.zeros(2), np.ones(2), 5.0)
    with refused("invalid data: se"):
        at_least(np.zeros(2), np.zeros(2))


def test_few_degrees_of_freedom_allow_less() -> None:
    theta = np.concatenate((np.zeros(19), [6.0]))
    assert at_least(theta, np.ones(20)) == 2
    assert at_least(theta, np.ones(20), dof=3.0) == 1
    assert at_least(theta, np.ones(20), dof=np.inf) == 2
    assert at_least(theta, np.ones(20), dof_of_all=3.0) == 1


def test_the_law_of_truncated_squares() -> None:
    rng = np.random.default_rng(2)
    dof = np.repeat([4.0, 8.0, 30.0], 10)
    reach = np.asarray(stats.t.isf(0.001, dof))
    squares = np.minimum(rng.standard_t(dof, (60_000, 30)) ** 2, reach**2).sum(axis=1)
    for tail in (0.2, 0.025, 0.001):
        quantile = lower_bound._truncated_quantile(dof, reach, tail)
        assert np.mean(squares > quantile) == pytest.approx(tail, rel=0.05, abs=3 * np.sqrt(tail / 60_000))
    many = np.full(40, 1e5)
    quantile = lower_bound._truncated_quantile(many, np.full(40, 8.0), 0.025)
    assert quantile == pytest.approx(stats.chi2.isf(0.025, 40), rel=2e-3)


def test_the_law_of_weighted_squares() -> None:
    assert lower_bound._weighted_quantile(np.ones(20), 0.025) == pytest.approx(stats.chi2.isf(0.025, 20), rel=1e-3)
    rng = np.random.default_rng(3)
    weights = rng.exponential(size=15)
    squares = rng.chisquare(1, (60_000, 15)) @ weights
    for tail in (0.2, 0.025, 0.001):
        quantile = lower_bound._weighted_quantile(weights, tail)
        assert np.mean(squares > quantile) == pytest.approx(tail, rel=0.05, abs=3 * np.sqrt(tail / 60_000))


def test_noise_that_all_groups_share_changes_nothing() -> None:
    rng = np.random.default_rng(4)
    se = rng.lognormal(0, 0.4, 20)
    theta = np.repeat([0.0, 6.0], 10) + se * rng.standard_normal(20)
    half = rng.random(20)
    for shared in (np.full((20, 20), 9.0), half[:, None] + half):
        assert at_least(theta, se, covariance=np.diag(se**2) + shared) == at_least(theta, se)
    blocks = np.kron(np.eye(4), np.ones((5, 5))) * 3.0  # each four of a kind move together
    assert 1 <= at_least(theta, se, covariance=np.diag(se**2) + blocks) <= at_least(theta, se)
    bound = cluster_count_bound(theta, se, covariance=np.diag(se**2) + blocks, dof=20.0)
    assert bound.rule == "largest"


def test_many_groups() -> None:
    rng = np.random.default_rng(5)
    theta = rng.integers(0, 4, 20_000) * 4.0 + rng.standard_normal(20_000)
    assert at_least(theta, np.ones(20_000)) == 4


def test_groups_whose_weight_is_lost_in_the_sum() -> None:
    """Standard errors over fourteen orders of magnitude: the imprecise ones prove nothing and stop nothing."""
    theta = np.array([-0.6, 1.2, -1.0, 1.6, 0.5])
    se = np.array([3e5, 2e-7, 3e-9, 8e-7, 2.7e5])
    assert at_least(theta, se, 0.05) == at_least(theta[1:4], se[1:4], 0.05) == 3
