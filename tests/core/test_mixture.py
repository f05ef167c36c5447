"""Clusters as a mixture: held against plain EM, quadrature, and what must not change it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import faultlines as fl
from faultlines import simulate
from faultlines.core import mixture
from faultlines.core.mixture import fit_mixture, fit_posterior


def test_the_mixture_is_that_of_plain_em() -> None:
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], [30, 20, 10])
    se = rng.lognormal(0, 0.3, 60)
    theta = np.array([0.0, 3.0, 9.0])[labels] + se * rng.standard_normal(60)
    mixture = fit_mixture(theta, se, labels, free=True)
    levels, shares = mixture.effects, mixture.shares
    density = shares * stats.norm.pdf(theta[:, None], levels, se[:, None])
    np.testing.assert_allclose(mixture.posterior, density / density.sum(axis=1, keepdims=True), rtol=1e-2, atol=1e-3)
    weight = mixture.posterior / se[:, None] ** 2
    np.testing.assert_allclose(levels, (weight * theta[:, None]).sum(axis=0) / weight.sum(axis=0), atol=1e-2)
    constant = -np.sum(np.log(se)) - 30 * np.log(2 * np.pi)
    assert mixture.log_likelihood == pytest.approx(np.log(density.sum(axis=1)).sum() - constant, abs=1e-2)
    equal = fit_mixture(theta, se, labels, free=False)
    assert equal.shares.tolist() == [1 / 3] * 3
    assert equal.log_likelihood < mixture.log_likelihood


def by_quadrature(
    theta: np.ndarray, se: np.ndarray, dof: float | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Cluster effects, their standard errors, membership and expected effects of the groups, on a grid."""
    spread, centre = np.ptp(theta), theta.mean()
    quarters = np.quantile(theta, [0.0, 0.25, 0.75, 1.0])
    low = np.linspace(quarters[0] - 2, quarters[2] + 1, 120)
    high = np.linspace(quarters[1] - 1, quarters[3] + 2, 120)
    density = stats.norm if dof is None else stats.t(dof)
    at_low, at_high = (density.pdf((theta[:, None] - levels) / se[:, None]) for levels in (low, high))
    shares = (np.arange(60) + 0.5) / 60
    prior = np.exp(-0.5 * (((low - centre) / spread)[:, None] ** 2 + ((high - centre) / spread)[None, :] ** 2))
    prior *= low[:, None] < high[None, :]
    total = np.zeros(prior.shape)
    chance = np.zeros((theta.size, *prior.shape))
    for share, weight in [*((s, 0.5 / shares.size) for s in shares), (0.5, 0.5)]:  # free shares, and equal ones
        both = (1 - share) * at_low[:, :, None] + share * at_high[:, None, :]
        likelihood = weight * prior * both.prod(axis=0)
        total += likelihood
        chance += likelihood * share * at_high[:, None, :] / both
    mass = total.sum()
    mean = np.array([(total.sum(axis=1) * low).sum(), (total.sum(axis=0) * high).sum()]) / mass
    square = np.array([(total.sum(axis=1) * low**2).sum(), (total.sum(axis=0) * high**2).sum()]) / mass
    expected = (chance * high[None, None, :] + (total - chance) * low[None, :, None]).sum(axis=(1, 2)) / mass
    return mean, np.sqrt(square - mean**2), chance.sum(axis=(1, 2)) / mass, expected


@pytest.mark.parametrize("dof", [None, 6.0])
@pytest.mark.parametrize("apart", [3.0, 5.0])
def test_the_posterior_is_that_of_quadrature(apart: float, dof: float | None) -> None:
    rng = np.random.default_rng(4)
    labels = np.repeat([0, 1], [9, 6])
    se = rng.lognormal(0, 0.3, 15)
    theta = apart * labels + se * rng.standard_normal(15)
    posterior = fit_posterior(fl.Estimates(theta, se, dof=dof), labels)
    levels, errors, chances, expected = by_quadrature(theta, se, dof)
    assert posterior.effects[:, 0] == pytest.approx(levels, abs=0.1 * errors.max())
    assert posterior.errors[:, 0] == pytest.approx(errors, rel=0.15)
    assert posterior.membership[:, 1] == pytest.approx(chances, abs=0.03)
    assert posterior.mean[:, 0] == pytest.approx(expected, abs=0.12)
    lower, upper = posterior.intervals(0.05)
    assert np.all(lower < posterior.effects)
    assert np.all(posterior.effects < upper)
    assert (upper - lower)[:, 0] == pytest.approx(3.92 * errors, rel=0.25)


def test_two_effects_that_say_the_same_as_one_are_as_one() -> None:
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1], [20, 12])
    theta = 3.0 * labels + rng.standard_normal(32)
    single = fit_posterior(fl.Estimates(theta, np.ones(32)), labels)
    # The second effect is noise about a common level: it says nothing about where a group belongs.
    two = fit_posterior(fl.Estimates(np.column_stack([theta, np.zeros(32)]), np.ones((32, 2))), labels)
    assert two.membership == pytest.approx(single.membership, abs=0.03)
    assert two.effects[:, 0] == pytest.approx(single.effects[:, 0], abs=0.05)
    turned = np.column_stack([theta + 0.0, theta * 0.5])
    cov = np.broadcast_to(np.array([[1.0, 0.3], [0.3, 1.0]]), (32, 2, 2))
    both = fit_posterior(fl.Estimates(turned, None, effect_covariance=cov), labels)
    assert both.effects.shape == (2, 2)
    assert both.membership.sum(axis=1) == pytest.approx(1.0)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(-1e3, 1e3), st.sampled_from([1e-3, 1.0, 1e4]))
def test_shift_and_scale_move_levels_and_leave_chances(seed: int, shift: float, scale: float) -> None:
    rng = np.random.default_rng(seed)
    labels = np.repeat([0, 1], [8, 7])
    theta, se = 3.0 * labels + rng.standard_normal(15), rng.lognormal(0, 0.3, 15)
    here = fit_posterior(fl.Estimates(theta, se), labels)
    there = fit_posterior(fl.Estimates(scale * theta + shift, scale * se), labels)
    assert there.effects == pytest.approx(scale * here.effects + shift, rel=1e-6, abs=1e-3 * scale)
    assert there.membership == pytest.approx(here.membership, abs=1e-3)


def test_what_is_beyond_doubt_is_the_plain_mean() -> None:
    rng = np.random.default_rng(1)
    labels = np.repeat([0, 1, 2], 10)
    se = rng.lognormal(0, 0.3, 30)
    theta = 50.0 * labels + se * rng.standard_normal(30)
    posterior = fit_posterior(fl.Estimates(theta, se), labels)
    weight = [np.where(labels == j, se**-2.0, 0.0) for j in range(3)]
    assert posterior.certain
    assert posterior.effects[:, 0] == pytest.approx([np.average(theta, weights=w) for w in weight])
    assert posterior.errors[:, 0] == pytest.approx([w.sum() ** -0.5 for w in weight])


def test_many_groups_and_many_clusters_take_the_normal_law() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 30_000)
    theta = 3.0 * labels + rng.standard_normal(30_000)
    posterior = fit_posterior(fl.Estimates(theta, np.ones(30_000)), labels)
    assert not len(posterior.weights)
    assert posterior.effects[:, 0] == pytest.approx([0, 3], abs=5 * posterior.errors.max())
    lower, upper = posterior.intervals(1e-20)  # a level far beyond any draw
    assert np.isfinite([lower, upper]).all()
    few = fit_posterior(fl.Estimates(np.r_[0.0, 0.5, 4.0, 4.4], np.ones(4)), np.array([0, 0, 1, 1]))
    assert len(few.weights)
    assert np.isfinite(few.intervals(1e-20)).all()


def test_draws_that_hardly_count_are_not_relied_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    labels = np.repeat([0, 1], 10)
    estimates = fl.Estimates(3.0 * labels + rng.standard_normal(20), np.ones(20))
    drawn = fit_posterior(estimates, labels)
    monkeypatch.setattr(mixture, "_RELIABLE", 1e9)
    normal = fit_posterior(estimates, labels)
    assert len(drawn.weights)
    assert not len(normal.weights)
    assert normal.effects == pytest.approx(drawn.effects, abs=0.3)


def test_levels_that_all_but_coincide_leave_no_draw_in_order() -> None:
    split = fl.cluster(simulate.planted([0, 4], [300, 300], seed=2).estimates, guarantee="bonferroni")
    assert split.n_clusters > 4  # of two: the paper's rule makes too many of so many groups
    posterior = fit_posterior(split.estimates, split.labels - 1)
    assert np.isfinite(posterior.effects).all()
    assert posterior.membership.sum(axis=1) == pytest.approx(1.0)
