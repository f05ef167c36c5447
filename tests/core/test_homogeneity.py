"""Given clusters and groups: the tests of the textbooks, and draws where those do not hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.oneway import anova_oneway

import faultlines as fl
from faultlines.core.spread import compare_means, log_pvalue_equal


def diagonal(variances: np.ndarray) -> np.ndarray:
    return np.asarray(variances)[:, None, None] * np.eye(1)


def test_known_errors_give_the_chi_square_test() -> None:
    rng = np.random.default_rng(0)
    values, se = rng.standard_normal(5), rng.lognormal(0, 0.5, 5)
    weight = se**-2.0
    q = np.sum(weight * (values - np.average(values, weights=weight)) ** 2)
    test = compare_means(values[:, None], diagonal(se**2), None)
    assert test.square == pytest.approx(q)
    assert math.exp(test.log_pvalue) == pytest.approx(stats.chi2.sf(q, 4))
    assert test.power(9.0, 0.05) == pytest.approx(stats.ncx2.sf(stats.chi2.isf(0.05, 4), 4, 9.0))
    assert test.power(0.0, 0.05) == 0.05


@pytest.mark.parametrize("count", [2, 3, 6])
def test_estimated_errors_give_welch(count: int) -> None:
    rng = np.random.default_rng(count)
    samples = [rng.normal(0.5 * i, 1 + i, 8 + 3 * i) for i in range(count)]
    values = np.array([[sample.mean()] for sample in samples])
    variances = np.array([sample.var(ddof=1) / len(sample) for sample in samples])
    test = compare_means(values, diagonal(variances), np.array([len(s) - 1.0 for s in samples]))
    assert math.exp(test.log_pvalue) == pytest.approx(anova_oneway(samples, use_var="unequal").pvalue)
    if count == 2:
        assert math.exp(test.log_pvalue) == pytest.approx(stats.ttest_ind(*samples, equal_var=False).pvalue)


def test_several_effects() -> None:
    rng = np.random.default_rng(1)
    root = np.tril(rng.standard_normal((4, 2, 2))) + 2 * np.eye(2)
    cov, values = root @ np.swapaxes(root, 1, 2), rng.standard_normal((4, 2))
    precision = np.linalg.inv(cov)
    common = np.linalg.solve(precision.sum(axis=0), np.einsum("kij,kj->i", precision, values))
    square = sum((v - common) @ p @ (v - common) for v, p in zip(values, precision, strict=True))
    test = compare_means(values, cov, None)
    assert test.square == pytest.approx(square)
    assert math.exp(test.log_pvalue) == pytest.approx(stats.chi2.sf(square, 6))
    nearly = compare_means(values, cov, np.full(4, 1e7))
    assert nearly.log_pvalue == pytest.approx(test.log_pvalue, rel=1e-4)
    assert compare_means(values, cov, np.full(4, 9.0)).log_pvalue > test.log_pvalue


def test_shift_scale_and_far_tails() -> None:
    values, cov = np.array([[0.0], [1.0], [90.0]]), diagonal(np.array([1.0, 2.0, 1.0]))
    far = compare_means(values, cov, None)
    assert far.log_pvalue < -1000
    for shift, scale in ((1e9, 1.0), (0.0, 1e-40), (0.0, 1e40)):
        moved = compare_means(shift + scale * values, scale**2 * cov, None)
        assert moved.square == pytest.approx(far.square, rel=1e-6)
    equal = compare_means(np.ones((2, 1)), diagonal(np.ones(2)), np.full(2, 5.0))
    assert equal.log_pvalue == 0.0


def test_groups_of_a_cluster() -> None:
    rng = np.random.default_rng(2)
    assert log_pvalue_equal(fl.Estimates([1.0], [1.0]), 0) == 0.0
    apart = fl.Estimates(np.arange(30.0), np.ones(30), dof=6)
    assert math.exp(log_pvalue_equal(apart, 0)) == pytest.approx(1 / 1000)
    alike = fl.Estimates(rng.standard_normal(30), np.sqrt(rng.chisquare(6, 30) / 6), dof=6)
    assert math.exp(log_pvalue_equal(alike, 0)) > 0.05
    assert log_pvalue_equal(alike, 0) == log_pvalue_equal(alike, 0)
    two = rng.standard_normal((30, 2))
    cov = np.array([[1.0, 0.5], [0.5, 1.0]])[None] * np.ones((30, 1, 1))
    assert math.exp(log_pvalue_equal(fl.Estimates(two, None, effect_covariance=cov, dof=8), 0)) > 0.01
    assert math.exp(log_pvalue_equal(fl.Estimates(two * 9, None, effect_covariance=cov, dof=8), 0)) == pytest.approx(
        1 / 1000
    )
    assert math.exp(log_pvalue_equal(fl.Estimates(two * 9, np.ones((30, 2)), dof=8), 0)) == pytest.approx(1 / 1000)
    few = fl.Estimates([0.0, 1.0, 2.0], [1.0, 1.0, 1.0], dof=9)
    assert log_pvalue_equal(few, 0) == compare_means(few.values, few.covariances, few.dof).log_pvalue
