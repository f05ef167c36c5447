"""The critical value of the largest of many comparisons: against integrals and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from faultlines.analyses.contrasts import AgainstMean, AllPairs, _all_pairs, _far_pairs, _pair, critical_value

ALPHA = 0.05


def matrices(variance: np.ndarray) -> np.ndarray:
    return variance[:, None, None]


def one_hot(groups: int) -> np.ndarray:
    share = np.zeros((groups, 1))
    share[0] = 1.0
    return share


def tukey(groups: int) -> float:
    """The studentized range with known variance, over √2."""
    z = np.linspace(-9, 14, 40_001)

    def within(q: float) -> float:
        return float(
            np.trapezoid(groups * stats.norm.pdf(z) * (stats.norm.cdf(z) - stats.norm.cdf(z - q)) ** (groups - 1), z)
        )

    return float(optimize.brentq(lambda q: within(q) - 1 + ALPHA, 1, 12)) / math.sqrt(2)


def dunnett(variance: np.ndarray) -> float:
    """Groups against the first one: given its noise, they are independent."""
    x = np.linspace(-8, 8, 1_001)
    spread = np.sqrt(variance[1:] + variance[0])

    def within(c: float) -> float:
        shift = x[:, None] * math.sqrt(variance[0])
        ends = [stats.norm.cdf((side * c * spread + shift) / np.sqrt(variance[1:])) for side in (1, -1)]
        return float(np.trapezoid(stats.norm.pdf(x) * np.prod(ends[0] - ends[1], axis=1), x))

    return float(optimize.brentq(lambda c: within(c) - 1 + ALPHA, 1, 8))


@pytest.mark.parametrize("groups", [2, 3, 12, 102])
def test_all_pairs_with_equal_variances_are_tukeys(groups: int) -> None:
    assert critical_value(AllPairs(np.ones((groups, 1, 1))), ALPHA, 0) == pytest.approx(tukey(groups), rel=0.01)


@pytest.mark.parametrize("groups", [2, 5, 30, 150])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_a_reference_is_dunnetts(groups: int, spread: float) -> None:
    variance = np.exp(2 * spread * np.random.default_rng(groups).standard_normal(groups))
    critical = critical_value(AgainstMean(matrices(variance), one_hot(groups)), ALPHA, 0)
    assert critical == pytest.approx(dunnett(variance), rel=0.015)


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("groups", [3, 8])
def test_the_overall_of_two_effects_by_brute_force(groups: int, sides: int) -> None:
    rng = np.random.default_rng(groups)
    root = rng.standard_normal((groups, 2, 2))
    cov = root @ np.swapaxes(root, 1, 2) + 0.3 * np.eye(2)
    share = rng.dirichlet(np.ones(groups), 2).T
    noise = np.einsum("kij,rkj->rki", np.linalg.cholesky(cov), rng.standard_normal((60_000, groups, 2)))
    away = noise - np.sum(share * noise, axis=1, keepdims=True)
    away /= away.std(axis=0)
    top = (np.abs(away) if sides == 2 else away).reshape(len(away), -1).max(axis=1)
    critical = critical_value(AgainstMean(cov, share), ALPHA, 0, sides=sides)
    assert critical == pytest.approx(float(np.quantile(top, 1 - ALPHA)), rel=0.015)


def test_all_pairs_with_unequal_variances_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    variance = np.exp(2 * rng.standard_normal(60))
    noise = rng.standard_normal((4_000, 60)) * np.sqrt(variance)
    a, b = np.triu_indices(60, 1)
    top = np.max(np.abs(noise[:, a] - noise[:, b]) / np.sqrt(variance[a] + variance[b]), axis=1)
    critical = critical_value(AllPairs(matrices(variance)), ALPHA, 0)
    assert critical == pytest.approx(float(np.quantile(top, 1 - ALPHA)), rel=0.02)


def test_pairs_are_numbered_and_counted_in_two_ways() -> None:
    a, b = _pair(np.arange(45))
    assert set(zip(a.tolist(), b.tolist(), strict=True)) == {(i, j) for j in range(10) for i in range(j)}
    effects = 2 * np.random.default_rng(1).standard_normal((50, 10))
    variance = np.linspace(0.5, 2, 10)
    counted = _all_pairs(effects, variance, 2.0)
    assert counted.max() > 3
    np.testing.assert_array_equal(_far_pairs(effects, variance, 2.0), counted)


def test_two_groups_are_one_comparison_at_any_level() -> None:
    for alpha in (0.5, 0.05, 1e-9):
        both = critical_value(AgainstMean(np.ones((2, 1, 1)), np.full((2, 1), 0.5)), alpha, 0)
        assert both == pytest.approx(stats.norm.isf(alpha / 2), rel=1e-6)


def test_precise_reference_makes_independent_comparisons() -> None:
    variance = np.array([1e-12, *np.ones(50)])
    for alpha in (0.05, 1e-8):
        sidak = stats.norm.isf(-math.expm1(math.log1p(-alpha) / 50) / 2)
        assert critical_value(AgainstMean(matrices(variance), one_hot(51)), alpha, 0) == pytest.approx(sidak, rel=2e-3)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=9), st.floats(1e-6, 0.3), st.sampled_from([1, 2]), st.booleans()
)
def test_it_lies_between_one_comparison_and_bonferroni(
    variances: list[float], alpha: float, sides: int, is_pairs: bool
) -> None:
    cov = matrices(np.array(variances))
    contrasts = AllPairs(cov) if is_pairs else AgainstMean(cov, np.full((len(cov), 1), 1 / len(cov)))
    sides = 2 if is_pairs else sides
    critical = critical_value(contrasts, alpha, 3, sides=sides)
    alone, all_of_them = (stats.norm.isf(alpha / (sides * count)) for count in (1, contrasts.count))
    assert alone * (1 - 1e-9) <= critical <= all_of_them * (1 + 1e-9)
