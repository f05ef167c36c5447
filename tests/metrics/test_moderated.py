"""Moderated variances: the formula, its limits, and groups that keep their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import polygamma

import faultlines as fl
from faultlines.metrics import variances as module
from faultlines.metrics.variances import moderate
from tests.refused import refused


@settings(deadline=None)
@given(st.floats(1e-4, 1e4))
def test_trigamma_is_inverted(value: float) -> None:
    assert polygamma(1, module._invert_trigamma(value)) == pytest.approx(value, rel=1e-8)


def test_equal_variances_are_taken_together() -> None:
    rng = np.random.default_rng(0)
    variance = 3.0 * rng.chisquare(8, 400) / 8
    result = moderate(variance, 8.0)
    assert np.all((result.variance > 2.3) & (result.variance < 4.2))
    assert result.dof.min() > 50
    assert result.prior_variance == pytest.approx(3.0, rel=0.1)
    assert not result.outlying.any()


def test_it_is_a_weighted_mean() -> None:
    rng = np.random.default_rng(1)
    variance = np.exp(rng.standard_normal(60)) * rng.chisquare(8, 60) / 8
    result = moderate(variance, 8.0)
    expected = (result.prior_dof * result.prior_variance + 8 * variance) / (result.prior_dof + 8)
    assert np.allclose(result.variance[~result.outlying], expected[~result.outlying])
    assert np.allclose(result.dof[~result.outlying], 8 + result.prior_dof)
    assert 1 < result.prior_dof < 6  # a variance of log s² of 1 is ψ′(d₀/2) = 1 at d₀ = 2.9, with caution less


def test_variances_that_equal_each_other_are_one() -> None:
    result = moderate(np.full(14, 2.0), 5.0)
    assert np.isinf(result.prior_dof)
    assert np.allclose(result.variance, 2.0)
    assert np.allclose(result.dof, 70.0)


def test_an_outlying_group_keeps_its_own() -> None:
    rng = np.random.default_rng(2)
    variance = rng.chisquare(20, 50) / 20
    variance[7] = 40.0
    result = moderate(variance, 20.0)
    assert np.flatnonzero(result.outlying).tolist() == [7]
    assert (result.variance[7], result.dof[7]) == (40.0, 20.0)


def test_sizes_are_no_news() -> None:
    rng = np.random.default_rng(3)
    sizes = rng.integers(5, 500, 60)
    variance = rng.chisquare(8, 60) / 8 / sizes
    assert moderate(variance, 8.0, 1 / sizes).prior_dof > 3 * moderate(variance, 8.0).prior_dof


@settings(deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-6, 1e6))
def test_units_do_not_matter(seed: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    variance, dof = rng.lognormal(0, 0.7, 12), rng.integers(2, 30, 12).astype(float)
    plain, scaled = moderate(variance, dof), moderate(variance * unit, dof)
    assert np.allclose(scaled.variance, plain.variance * unit)
    assert np.allclose(scaled.dof, plain.dof)
    assert np.all(plain.dof >= dof - 1e-9)
    assert np.all(plain.dof <= dof.sum() + 1e-9)


def test_what_is_known_or_alone_stays() -> None:
    variance, dof = np.array([1.0, 2.0, 3.0, 9.0]), np.array([np.inf, 4.0, 4.0, 4.0])
    result = moderate(variance, dof)
    assert (result.variance[0], result.dof[0]) == (1.0, np.inf)
    few = moderate(variance[:2], 4.0)
    assert few.prior_dof == 0
    assert few.variance.tolist() == [1.0, 2.0]
    for name, parameters in {"variance": (np.array([0.0, 1, 1]), 4.0), "dof": (np.ones(3), 0.0)}.items():
        with refused(f"invalid data: {name}"):
            moderate(*parameters)


def few_degrees(rng: np.random.Generator, groups: int, effects: Any = 0.0) -> fl.Estimates:
    return fl.Estimates(effects + rng.standard_normal(groups), np.sqrt(rng.chisquare(8, groups) / 8), dof=8)


def test_clusters_use_moderated_errors_and_say_so() -> None:
    outlier = np.r_[8.0, np.zeros(39)]
    c = fl.cluster(few_degrees(np.random.default_rng(0), 40, outlier))
    assert c.groups.estimates is not None
    assert c.groups.estimates.dof is not None
    assert c.groups.estimates.dof.min() > 8
    assert [cluster.members for cluster in c.clusters if len(cluster.members) == 1] == [(0,)]
    assert "moderated" in [note.code for note in c.notes]
    many = fl.cluster_many({"a": few_degrees(np.random.default_rng(0), 40, outlier)})
    assert many["a"].pvalue == c.pvalue


def test_certificates_judge_every_group_by_its_own_error() -> None:
    estimates = few_degrees(np.random.default_rng(1), 40)
    certificate = fl.certify(estimates, gap=5.0)
    assert certificate.comparison.estimates is estimates


@pytest.mark.parametrize(
    "estimates",
    [
        few_degrees(np.random.default_rng(2), 8),  # too few groups
        fl.Estimates(np.zeros(20), np.ones(20)),  # known errors
        fl.Estimates(np.zeros(20), np.linspace(1, 2, 20), dof=1e6),
        fl.Estimates(np.zeros((20, 2)), np.ones((20, 2)), dof=8),  # several effects
        few_degrees(np.random.default_rng(3), 20).changed(recipe="measured"),
    ],
)
def test_what_stays_as_it_is(estimates: fl.Estimates) -> None:
    assert module.moderate_estimates(estimates) is estimates


def test_moderating_twice_changes_nothing() -> None:
    moderated = module.moderate_estimates(few_degrees(np.random.default_rng(4), 30))
    assert module.moderate_estimates(moderated) is moderated
