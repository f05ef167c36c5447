"""Adjusted p-values: against independent Monte Carlo, in exact cases, far in the tail, on any number of cores."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from scipy import stats
from scipy.cluster.hierarchy import linkage

import faultlines as fl
from faultlines import calibration, simulate
from faultlines.similarity import Gaussian, true_scales
from faultlines.tails import log_chi_square_tail, log_t_tail
from tests import oracles


def judged(estimates: fl.Estimates, guarantee: fl.Calibrated | fl.Bonferroni, seed: int = 0) -> np.ndarray:
    return np.exp(guarantee.judge(Gaussian(estimates), seed, refine=True).judgement.log_pvalues)


def test_two_groups_are_the_two_sided_z_test_exactly() -> None:
    for theta, se in (([0.0, 1.0], [0.5, 0.3]), ([0.0, 9.0], [1.0, 1e-3]), ([2.0, 2.0], [1.0, 1.0])):
        z = abs(theta[1] - theta[0]) / math.hypot(*se)
        assert judged(fl.Estimates(theta, se), fl.Calibrated(draws=20))[0] == pytest.approx(math.erfc(z / math.sqrt(2)))


@pytest.mark.parametrize("size", [3, 12, 40])
def test_p_agrees_with_plain_counting_over_scipys_trees(size: int) -> None:
    rng = np.random.default_rng(size)
    tops = np.array([linkage(rng.standard_normal((size, 1)), "ward")[-1, 2] ** 2 / 2 for _ in range(4000)])
    for quantile in (0.5, 0.9, 0.97):
        target = float(np.quantile(tops, quantile))
        theta = rng.standard_normal(size)
        theta *= math.sqrt(target / fl.agglomerate(fl.Estimates(theta, np.ones(size))).heights[-1])
        p = judged(fl.Estimates(theta, np.ones(size)), fl.Calibrated(draws=4000)).min()
        assert p == pytest.approx(1 - quantile, abs=4 * math.sqrt(quantile * (1 - quantile) / 4000))


@pytest.mark.parametrize("groups", [4, 90, 3_000, 100_000])
@pytest.mark.parametrize("merges", [100, 1_000])
def test_every_merge_has_nearly_its_exact_p(groups: int, merges: int) -> None:
    """Few merges in question or many, few groups or very many: p is off by less than Monte Carlo error anyway."""
    rows, block = calibration._line_blocks(np.ones(groups), None, 100, 0, best=False)
    fractions = np.concatenate([[0.99], *(block(number) for number in range(-(-100 // rows)))])
    expected = fractions[1:].mean() * (groups - 1)
    heights = expected * (1 + math.sqrt(2 / groups) * np.linspace(-9, 30, merges))
    heights = np.append(np.abs(heights), 50 * expected)
    log_p = calibration._log_pvalues(heights, fractions, groups - 1)
    exact = np.array([calibration._log_p_of_top(height, fractions, groups - 1) for height in heights[:: merges // 50]])
    off = log_p[:: merges // 50] - exact
    assert np.all(off > -0.02)
    assert np.all(off[exact > -20] < 0.02)
    assert np.all(np.diff(log_p[np.argsort(heights)]) <= 1e-12)


@pytest.mark.parametrize(("groups", "profile"), [(2, "zipf"), (5, "lognormal"), (21, "equal"), (60, "zipf")])
def test_p_is_uniform_under_the_null_even_with_few_draws(groups: int, profile: simulate.Profile) -> None:
    """Exactly uniform, so the smallest p must reach far below one in so many draws."""
    rng = np.random.default_rng(groups)
    p = []
    for seed in range(1500):
        estimates = simulate.null(groups, profile=profile, seed=rng).estimates
        p.append(judged(estimates, fl.Calibrated(draws=39), seed).min())
    assert stats.kstest(p, "uniform").pvalue > 0.001
    assert min(p) < 1 / 200


def test_less_monte_carlo_noise_than_counting() -> None:
    """The claim of docs/method.md: a fifth of the variance at p near 0.05 and a hundred groups."""
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(100)
    tops = [fl.agglomerate(simulate.null(100, seed=rng).estimates).gap_heights.max() for _ in range(2000)]
    theta *= math.sqrt(np.quantile(tops, 0.95) / fl.agglomerate(fl.Estimates(theta, np.ones(100))).gap_heights.max())
    p = [judged(fl.Estimates(theta, np.ones(100)), fl.Calibrated(draws=200), seed).min() for seed in range(200)]
    assert np.mean(p) == pytest.approx(0.05, abs=0.02)
    assert np.var(p) < 0.05 * 0.95 / 200 / 5


def test_estimated_variances_do_not_make_false_claims() -> None:
    """With dof = 5 and no allowance for it, seven in ten of these would be claims."""
    rng = np.random.default_rng(5)
    claims = 0
    for seed in range(300):
        estimates = simulate.null(60, dof=5, seed=rng).estimates
        claims += judged(estimates, fl.Calibrated(draws=199), seed).min() < 0.05
    assert claims / 300 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)
    assert claims > 0


def test_scales_shrink_by_the_scatter_of_estimated_variances() -> None:
    rng = np.random.default_rng(0)
    for spread in (0.0, 0.5, 2.0):
        sigma = np.exp(spread * rng.standard_normal(4000))
        se = sigma * np.sqrt(rng.chisquare(5, 4000) / 5)
        scales = true_scales(se, np.full(4000, 5.0))
        assert np.std(np.log(scales)) == pytest.approx(spread, abs=0.07)
        assert np.mean(np.log(scales)) == pytest.approx(np.mean(np.log(sigma)), abs=0.05)
    known = true_scales(np.array([1.0, 2, 3]), np.array([1e15, np.inf, 1e15]))
    np.testing.assert_allclose(known, [1, 2, 3], rtol=1e-5)


def test_small_p_with_estimated_variances_are_not_below_students_t() -> None:
    """One group known, one with dof degrees of freedom: the truth is a t test."""
    for dof in (3, 5, 20, 100):
        for t in (2.0, 4.0, 7.0, 10.0, 15.0, 40.0):
            p = judged(fl.Estimates([0, t], [0.001, 1], dof=[np.inf, dof]), fl.Calibrated(draws=999)).min()
            truth = 2 * stats.t.sf(t, dof)
            assert p >= truth / 1.5, (dof, t)
            assert p <= max(20 * truth, 1e-3), (dof, t)


def test_students_tail_in_logarithms() -> None:
    t = np.array([0.5, 5.0, 100.0, 1e5])
    np.testing.assert_allclose(log_t_tail(t, 5.0), stats.t.logsf(t, 5) + math.log(2), rtol=1e-9)
    # 50-digit arithmetic: log of I_x(5000, 1/2) at x = 10⁴/(10⁴ + t²), where doubles have long underflowed.
    assert log_t_tail(np.array([50.0]), 1e4)[0] == pytest.approx(-1119.744423674522, abs=1e-3)


@pytest.mark.parametrize("dof", [None, [3.0, 5, 80, 7, np.inf]])
def test_the_order_of_the_groups_changes_nothing(dof: list[float] | None) -> None:
    theta, se = np.array([0.0, 1, 2, 2, 7]), np.array([1.0, 2, 0.5, 0.3, 1])
    shuffle = np.array([3, 0, 4, 2, 1])
    there = judged(fl.Estimates(theta, se, dof=dof), fl.Calibrated(draws=500))
    back = None if dof is None else np.array(dof)[shuffle]
    np.testing.assert_array_equal(
        there, judged(fl.Estimates(theta[shuffle], se[shuffle], dof=back), fl.Calibrated(500))
    )


@pytest.mark.parametrize("dof", [None, 8])
def test_the_number_of_cores_changes_nothing(dof: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    estimates = simulate.planted([0, 2], [40, 40], profile="lognormal", dof=dof, seed=1).estimates
    seen = []
    for cores in (1, 2, 7):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: set(range(cores)), raising=False)
        seen.append(judged(estimates, fl.Calibrated(draws=3000)))
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0], seen[2])
    assert not np.array_equal(seen[0], judged(estimates, fl.Calibrated(draws=3000), seed=1))


def test_draws_stop_early_only_when_p_is_large() -> None:
    alike, apart = simulate.null(30, seed=2).estimates, simulate.planted([0, 5], [15, 15], seed=2).estimates
    for estimates, draws in ((alike, 1024), (apart, 10_000)):
        judgement = fl.Calibrated().judge(Gaussian(estimates), 0, refine=True).judgement
        assert judgement.facts["draws"] == draws
    assert judged(alike, fl.Calibrated()).min() > 0.2


@pytest.mark.parametrize(("groups", "draws"), [(200, 10_000), (50_000, 2_000), (2_000_000, 300)])
def test_default_draws_shrink_with_the_number_of_groups(groups: int, draws: int) -> None:
    assert calibration.draws_for(Gaussian(fl.Estimates(np.zeros(groups), np.ones(groups)))) == draws


def test_far_tails_are_right_where_doubles_end() -> None:
    """Reference values from 50-digit arithmetic."""
    for value, dof, expected in (
        (2_000.0, 101, -804.53465673163714597),
        (1e6, 101, -499496.96216930450356684),
        (1e5, 1, -50005.98226408487985397),
    ):
        assert log_chi_square_tail(np.array([value]), dof)[0] == pytest.approx(expected, rel=1e-10)
    near = np.array([0.0, 0.5, 30.0, 900.0])
    np.testing.assert_allclose(log_chi_square_tail(near, 20), stats.chi2.logsf(near, 20), rtol=1e-9, atol=1e-15)


def test_bonferroni_is_algorithm_2_to_the_letter() -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        size = int(rng.integers(2, 26))
        theta, se = rng.standard_normal(size) * 5, np.exp(rng.standard_normal(size))
        steps = oracles.literal_algorithm_2(theta.tolist(), se.tolist())
        for alpha in (0.001, 0.05, 0.5):
            found = fl.cluster(fl.Estimates(theta, se), alpha=alpha, guarantee="bonferroni", refine=False)
            assert oracles.partition_of(found.labels.tolist()) == oracles.stopped_at(steps, size, alpha)


def test_bonferroni_far_in_the_tail() -> None:
    found = fl.cluster(fl.Estimates([0.0, 1e3], [1.0, 1.0]), guarantee="bonferroni")
    assert found.rejected
    assert found.pvalue == 5e-324
    assert found.log_pvalue == pytest.approx(-250_006.787_4 + math.log(4), abs=1e-3)
    assert "1.1e-108576" in str(found)
    farther = fl.cluster(fl.Estimates([0.0, 1e9], [1.0, 1.0]), guarantee="bonferroni")
    assert "p = 1e-1000000 or less" in str(farther)


@pytest.mark.parametrize("draws", [0, -1, 2.5, True, "many"])
def test_draws_must_be_a_whole_number(draws: object) -> None:
    with pytest.raises(fl.InputError, match="draws="):
        fl.Calibrated(draws=draws)  # type: ignore[arg-type]


def test_too_few_draws_for_alpha() -> None:
    estimates = simulate.null(5).estimates
    with pytest.raises(fl.InputError, match=r"draws=18: too few for alpha=0\.05\. Use at least draws=19"):
        fl.cluster(estimates, guarantee=fl.Calibrated(draws=18))
    found = fl.cluster(estimates, guarantee=fl.Calibrated(draws=19))
    with pytest.raises(fl.InputError, match="at least draws=999"):
        found.at(0.001)


@pytest.mark.parametrize("name", ["calibrate", "none", None, 3])
def test_unknown_guarantee(name: object) -> None:
    with pytest.raises(fl.InputError, match="guarantee="):
        fl.cluster(simulate.null(5).estimates, guarantee=name)  # type: ignore[arg-type]
