"""Noise of groups that share data, and the law of its length."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

import faultlines as fl
from faultlines.analyses.contrasts import critical_value, of_shared
from faultlines.core.distributions import log_f_tail, log_hotelling_tail
from faultlines.core.normal import CorrelatedNoise, compare_one_effect
from faultlines.guarantees import joint_test as joint


def matrix_of(groups: int = 7) -> Any:
    root = np.random.default_rng(1).standard_normal((groups, groups + 2))
    return np.asarray(root @ root.T)


def test_the_length_is_cochrans_q_with_covariances() -> None:
    matrix, rng = matrix_of(), np.random.default_rng(2)
    noise = CorrelatedNoise.from_covariance(matrix)
    effects = rng.standard_normal((5, 7))
    inverse, ones = np.linalg.inv(matrix), np.ones(7)
    for row, statistic in zip(effects, noise.heterogeneity(effects), strict=True):
        centre = ones @ inverse @ row / (ones @ inverse @ ones)
        assert np.isclose(statistic, (row - centre) @ inverse @ (row - centre))
    normal = rng.standard_normal((20_000, 7))
    assert stats.kstest(noise.squared_lengths(normal), "chi2", args=(6,)).pvalue > 1e-3
    np.testing.assert_allclose(np.cov(noise.noise(normal).T), matrix, rtol=0.1, atol=0.2)


def test_p_is_the_share_of_draws_that_show_as_much() -> None:
    matrix = matrix_of()
    theta = CorrelatedNoise.from_covariance(matrix).noise(np.random.default_rng(8).standard_normal((1, 7)))[0] * 1.3
    estimates = fl.Estimates(theta, None, covariance=matrix)
    tests = joint.JointTest(joint.extract_effects(compare_one_effect(estimates)), 4000, 0)
    null, order = tests.null_distribution()
    unit = np.exp(np.log(estimates.own[:, 0]).mean())
    own = null.statistics(theta[None, order] / unit, estimates.own[None, order, 0] / unit)[0]
    drawn = null.statistics_of_noise(np.random.default_rng(9).standard_normal((20_000, 7)))
    p = float(np.exp(tests.test(np.arange(7)).log_p))
    assert 0.001 < p < 0.3
    assert abs(float(np.mean(drawn >= own)) - p) < 0.01


def test_the_tail_of_f() -> None:
    values = np.array([0.1, 1.0, 3.0, 50.0, 1e4])
    for dof, below in ((1, 5.0), (4, 30.0), (20, 1000.0)):
        expected = stats.f.logsf(values, dof, below)
        good = expected > -600
        np.testing.assert_allclose(log_f_tail(values, dof, below)[good], expected[good], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(log_f_tail(values[:3], 4, np.inf), stats.chi2.logsf(values[:3] * 4, 4))
    assert log_f_tail(np.array([1e200]), 3, 8.0)[0] < -1500


def test_critical_values_of_any_matrix_hold() -> None:
    matrix = matrix_of(6)
    noise = CorrelatedNoise.from_covariance(matrix).noise(np.random.default_rng(3).standard_normal((40_000, 6)))
    share = np.full(6, 1 / 6)
    away = noise - noise @ share[:, None]
    critical = critical_value(of_shared(matrix, share), 0.05, 0)
    assert abs(np.mean(np.abs(away / away.std(axis=0)).max(axis=1) > critical) - 0.05) < 0.006
    a, b = np.triu_indices(6, 1)
    apart = noise[:, a] - noise[:, b]
    critical = critical_value(of_shared(matrix, None), 0.05, 0)
    assert abs(np.mean(np.abs(apart / apart.std(axis=0)).max(axis=1) > critical) - 0.05) < 0.006


def test_hotellings_tail_is_that_of_estimated_covariances() -> None:
    rng, dims, dof, runs = np.random.default_rng(4), 5, 14, 4000
    units = rng.standard_normal((runs, dof, dims))
    inverse = np.linalg.inv(np.einsum("rui,ruj->rij", units, units) / dof)
    means = rng.standard_normal((runs, dims))
    squares = np.einsum("ri,rij,rj->r", means, inverse, means)
    p = np.exp(log_hotelling_tail(squares, dims, dof))
    assert stats.kstest(p, "uniform").pvalue > 1e-3
