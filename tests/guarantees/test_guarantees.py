"""Adjusted p-values: against independent Monte Carlo, in exact cases, far in the tail, on any number of cores."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.cluster.hierarchy import linkage
from sklearn.metrics import adjusted_rand_score

import faultlines as fl
from faultlines import simulate
from faultlines.core import normal
from faultlines.core.distributions import log_chi_square_tail, log_t_tail, shrink_scales
from faultlines.core.normal import compare_effects
from faultlines.core.tree import count_clusters
from faultlines.guarantees import joint_test
from faultlines.guarantees.base import split_generator
from faultlines.guarantees.paper import held_out_log_pvalues, rand_agreement
from tests import oracles
from tests.refused import refused

TOP_MERGE = fl.Calibrated(scan=False)


def judged(estimates: fl.Estimates, guarantee: fl.Calibrated | fl.Bonferroni, seed: int = 0) -> np.ndarray:
    return np.exp(guarantee.find_path(compare_effects(estimates), seed, refine=True).path.gap_pvalues())


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
        p = judged(fl.Estimates(theta, np.ones(size)), fl.Calibrated(draws=4000, scan=False)).min()
        assert p == pytest.approx(1 - quantile, abs=4 * math.sqrt(quantile * (1 - quantile) / 4000))


@pytest.mark.parametrize("groups", [4, 90, 3_000, 100_000])
@pytest.mark.parametrize("merges", [100, 1_000])
def test_every_merge_has_nearly_its_exact_p(groups: int, merges: int) -> None:
    """Few merges in question or many, few groups or very many: p is off by less than Monte Carlo error anyway."""
    rows, block = normal._blocks(np.ones(groups), None, 0, best=False)
    fractions = np.concatenate(
        [[0.99], *(block(number, min(rows, 100 - number * rows)) for number in range(-(-100 // rows)))]
    )
    expected = fractions[1:].mean() * (groups - 1)
    heights = expected * (1 + math.sqrt(2 / groups) * np.linspace(-9, 30, merges))
    heights = np.append(np.abs(heights), 50 * expected)
    log_p = joint_test._log_pvalues(heights, fractions, groups - 1)
    exact = np.array([joint_test._log_p_of_top(height, fractions, groups - 1) for height in heights[:: merges // 50]])
    off = log_p[:: merges // 50] - exact
    assert np.all(off > -0.02)
    assert np.all(off[exact > -20] < 0.02)
    assert np.all(np.diff(log_p[np.argsort(heights)]) <= 1e-12)


@pytest.mark.parametrize("runs", [300, pytest.param(1500, marks=pytest.mark.statistical)])
@pytest.mark.parametrize(("groups", "profile"), [(2, "zipf"), (5, "lognormal"), (21, "equal"), (60, "zipf")])
def test_p_is_uniform_under_the_null_even_with_few_draws(groups: int, profile: simulate.Profile, runs: int) -> None:
    """Exactly uniform, so the smallest p must reach far below one in so many draws."""
    rng = np.random.default_rng(groups)
    p = []
    for seed in range(runs):
        estimates = simulate.null(groups, profile=profile, seed=rng).estimates
        p.append(judged(estimates, fl.Calibrated(draws=39), seed).min())
    assert stats.kstest(p, "uniform").pvalue > 0.001
    assert min(p) < 1 / 50  # which 39 counted draws cannot say


def test_less_monte_carlo_noise_than_counting() -> None:
    """The claim of docs/method.md: a fifth of the variance at p near 0.05 and a hundred groups."""
    rng = np.random.default_rng(0)
    theta = rng.standard_normal(100)
    tops = [fl.agglomerate(simulate.null(100, seed=rng).estimates).gap_heights.max() for _ in range(2000)]
    theta *= math.sqrt(np.quantile(tops, 0.95) / fl.agglomerate(fl.Estimates(theta, np.ones(100))).gap_heights.max())
    top_merge = fl.Calibrated(draws=200, scan=False)
    p = [judged(fl.Estimates(theta, np.ones(100)), top_merge, seed).min() for seed in range(200)]
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
        scales = shrink_scales(se, np.full(4000, 5.0))
        assert np.std(np.log(scales)) == pytest.approx(spread, abs=0.07)
        assert np.mean(np.log(scales)) == pytest.approx(np.mean(np.log(sigma)), abs=0.05)
    exact = shrink_scales(np.array([1.0, 2, 3]), np.array([1e15, np.inf, 1e15]))
    np.testing.assert_allclose(exact, [1, 2, 3], rtol=1e-5)


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
    seen_apart = judged(estimates, fl.Calibrated(draws=3000), seed=1)
    assert seen[0].min() < 1e-6 or not np.array_equal(seen[0], seen_apart)


def test_draws_stop_early_only_when_p_is_large() -> None:
    alike, apart = simulate.null(30, seed=2).estimates, simulate.planted([0, 5], [15, 15], seed=2).estimates
    unclear = simulate.planted([0, 2], [15, 15], seed=6).estimates
    for guarantee, estimates, draws in (
        (TOP_MERGE, alike, 1024),
        (TOP_MERGE, apart, 10_000),
        (fl.Calibrated(), alike, 64),
        (fl.Calibrated(), unclear, 1_000),
        (fl.Calibrated(), apart, 64),  # clearly tiny: taken doubled
    ):
        judgement = guarantee.find_path(compare_effects(estimates), 0, refine=True)
        assert judgement.facts["draws"] == draws
    assert judged(alike, fl.Calibrated()).min() > 0.2


@pytest.mark.parametrize(("groups", "draws"), [(200, 10_000), (50_000, 2_000), (2_000_000, 150)])
def test_default_draws_shrink_with_the_number_of_groups(groups: int, draws: int) -> None:
    assert compare_effects(fl.Estimates(np.zeros(groups), np.ones(groups))).default_draws == draws


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
            result = fl.cluster(fl.Estimates(theta, se), alpha=alpha, guarantee="bonferroni", refine=False)
            assert oracles.partition_of(result.labels.tolist()) == oracles.stopped_at(steps, size, alpha)


def test_bonferroni_far_in_the_tail() -> None:
    result = fl.cluster(fl.Estimates([0.0, 1e3], [1.0, 1.0]), guarantee="bonferroni")
    assert result.rejected
    assert result.pvalue == 5e-324
    assert result.log_pvalue == pytest.approx(-250_006.787_4 + math.log(4), abs=1e-3)
    assert "p < 1e-10" in str(result)
    farther = fl.cluster(fl.Estimates([0.0, 1e9], [1.0, 1.0]), guarantee="bonferroni")
    assert "p < 1e-10" in str(farther)


@pytest.mark.parametrize("draws", [0, -1, 2.5, True, "many"])
def test_draws_must_be_a_whole_number(draws: object) -> None:
    code = "out of range" if draws in (0, -1, 2.5) and draws is not True else "wrong type"
    with refused(f"{code}: draws"):
        fl.Calibrated(draws=draws)  # type: ignore[arg-type]


def test_levels_are_out_of_reach_of_counted_draws_only() -> None:
    """Lengths of normal draws are integrated, so p is right at any level; counts cannot get below one in so many."""
    estimates = simulate.planted([0, 9], [3, 3]).estimates
    result = fl.cluster(estimates, guarantee=fl.Calibrated(draws=18))
    assert result.at(1e-6).rejected
    counts = fl.binomial([10, 12, 60, 64], 200)
    with refused("too few: alpha"):
        fl.cluster(counts, guarantee=fl.Calibrated(draws=18))
    counted = fl.cluster(counts, guarantee=fl.Calibrated(draws=99))
    assert counted.pvalue == pytest.approx(0.01)
    with refused("too few: alpha"):
        counted.at(0.001)
    assert fl.holm([counted] * 12, 0.05)[0].n_clusters == 1  # a level that follows from another one is no error


@pytest.mark.parametrize("name", ["calibrate", "none", None, 3])
def test_unknown_guarantee(name: object) -> None:
    with refused("unknown: guarantee"):
        fl.cluster(simulate.null(5).estimates, guarantee=name)  # type: ignore[arg-type]


def groups_apart(seed: int = 0) -> fl.Estimates:
    return simulate.planted([0, 6, 14], [7, 8, 6], profile="lognormal", seed=seed).estimates


@pytest.mark.parametrize("refine", [False, True])
def test_holdout_tests_two_three_and_more_clusters_in_that_order(refine: bool) -> None:
    """Written out: the tree of one part, all pairs of each level on the other, the running maximum of the largest p."""
    for seed in range(12):
        estimates = simulate.planted([0, 4], [6, 7], profile="lognormal", seed=seed).estimates
        result = fl.cluster(estimates, guarantee=fl.Holdout(fraction=0.4, splits=1), refine=refine, seed=seed)
        explored, held = compare_effects(estimates).split((0.6, 0.4), split_generator(seed))
        assert held.estimates.theta.tolist() == result.estimates.theta.tolist()
        tree = fl.cluster(explored.estimates, guarantee=TOP_MERGE, refine=refine)
        reached = 0.0
        for level in result.path()[1:]:
            labels = tree.path()[level.n_clusters - 1].labels
            largest = 0.0
            for a in range(1, level.n_clusters + 1):
                for b in range(a + 1, level.n_clusters + 1):
                    means, variances = [], []
                    for c in (a, b):
                        weight = held.estimates.se[labels == c] ** -2.0
                        means.append(np.average(held.estimates.theta[labels == c], weights=weight))
                        variances.append(1 / weight.sum())
                    largest = max(largest, 2 * stats.norm.sf(abs(means[0] - means[1]) / math.sqrt(sum(variances))))
            reached = max(reached, largest)
            assert level.pvalue == pytest.approx(reached if reached < 0.5 else 1.0)
            if reached >= 0.5:
                break
            assert oracles.partition_of(level.labels.tolist()) == oracles.partition_of(labels.tolist())


@pytest.mark.parametrize("splits", [1, 2, 11, 25])
def test_several_splits_are_combined_by_their_quantile(splits: int) -> None:
    """Written out: every split judged on its own, the k-th smallest p times S/k, clusters of the most typical split."""
    for seed in range(2):
        estimates = simulate.planted([0, 4], [6, 7], profile="lognormal", seed=seed).estimates
        comparison = compare_effects(estimates)
        alone = [
            fl.Holdout(fraction=0.4).find_path(
                comparison, 99, refine=True, parts=comparison.split((0.6, 0.4), split_generator(seed, number))
            )
            for number in range(splits)
        ]
        result = fl.cluster(estimates, guarantee=fl.Holdout(fraction=0.4, splits=splits), seed=seed)
        k = math.ceil(splits / 10)
        shown = int(result.judged.facts.get("shown split", 1)) - 1
        for level in result.path()[1:]:
            every = [math.exp(split.path.log_pvalues[level.n_clusters - 2]) for split in alone]
            least = every[shown] if level.n_clusters > 2 else 0.0  # what the shown split supports by itself
            assert level.pvalue == pytest.approx(max(least, min(1.0, sorted(every)[k - 1] * splits / k)))
        assert shown == most_typical(alone)
        assert result.estimates.theta.tolist() == alone[shown].reported.estimates.theta.tolist()  # type: ignore[union-attr]
        cut = alone[shown].path.labels(2).tolist()
        assert oracles.partition_of(result.path()[1].labels.tolist()) == oracles.partition_of(cut)
        assert ("splits" in result.judged.facts) == (splits > 1)


def most_typical(alone: list[Any]) -> int:
    """Of the splits with middling p, the one with the largest mean adjusted Rand index; ties to the median p."""
    own = [split.path.labels(max(2, count_clusters(split.path, math.log(0.05)))) for split in alone]
    by_p = sorted(range(len(alone)), key=lambda number: alone[number].log_pvalue)
    middle = by_p[len(alone) // 4 : len(alone) - len(alone) // 4]
    places = {number: place for place, number in enumerate(middle)}
    middle.sort(key=lambda number: abs(2 * places[number] - len(places) + 1))
    scores = [round(sum(adjusted_rand_score(own[number], other) for other in own), 9) for number in middle]
    return middle[scores.index(max(scores))]


def test_partitions_agree_as_the_adjusted_rand_index_says() -> None:
    rng = np.random.default_rng(0)
    for groups in (1, 2, 5, 40):
        several = [
            np.unique(rng.integers(0, int(rng.integers(1, 5)), groups), return_inverse=True)[1] for _ in range(6)
        ]
        several += [np.zeros(groups, dtype=np.int64), np.arange(groups)]
        agreement = rand_agreement(several)
        for i, labels in enumerate(several):
            for j, other in enumerate(several):
                assert agreement[i, j] == pytest.approx(adjusted_rand_score(labels, other), abs=1e-9)


@pytest.mark.parametrize("refine", [False, True])
def test_rows_of_effects_are_held_out_as_one_is(refine: bool) -> None:
    """Many effects at once against the guarantee itself, given the same parts."""
    rng = np.random.default_rng(3)
    se = rng.lognormal(0, 0.6, 9)
    theta = np.repeat([0.0, 2.0], [4, 5]) + se * rng.standard_normal((40, 9))
    log_pvalues = held_out_log_pvalues(theta, se, 0.3, np.random.default_rng(1), refine=refine)
    noise, ratio = se * np.random.default_rng(1).standard_normal(theta.shape), math.sqrt(0.3 / 0.7)
    for i in range(40):
        explored = fl.Estimates(theta[i] + ratio * noise[i], se / math.sqrt(0.7))
        held = fl.Estimates(theta[i] - noise[i] / ratio, se / math.sqrt(0.3))
        parts = [compare_effects(explored), compare_effects(held)]
        alone = fl.Holdout(0.3, splits=1).find_path(parts[0], 0, refine=refine, parts=parts)
        assert log_pvalues[i] == pytest.approx(
            alone.log_pvalue if log_pvalues[i] < math.log(0.5) else log_pvalues[i], rel=1e-9
        )
        assert (alone.log_pvalue < math.log(0.5)) == (log_pvalues[i] < math.log(0.5))


def test_holdout_reports_the_held_out_part() -> None:
    estimates = groups_apart()
    result = fl.cluster(estimates, guarantee="holdout")
    assert result.n_clusters == 3
    np.testing.assert_allclose(result.estimates.se, estimates.se * math.sqrt(2))
    for cluster, number in zip(result.clusters, (1, 2, 3), strict=True):
        weight = result.estimates.se[result.labels == number] ** -2.0
        mean = np.average(result.estimates.theta[result.labels == number], weights=weight)
        assert cluster.estimate == pytest.approx(mean)
        assert cluster.se == pytest.approx(weight.sum() ** -0.5)
    assert (result.judged.facts["fraction"], result.judged.facts["split"]) == (0.5, "thinning")
    assert fl.cluster(estimates, guarantee="holdout", seed=1).pvalue != result.pvalue


@pytest.mark.parametrize("folds", [None, 5])
def test_folds_take_one_fold_a_step(folds: int | None) -> None:
    """Written out: test and merge on fold b alone, the partition before the first step below α/K is reported."""
    for seed in range(12):
        estimates = simulate.planted([0, 30], [4, 5], profile="lognormal", seed=seed).estimates
        result = fl.cluster(estimates, guarantee=fl.Folds(n=folds), refine=False, seed=seed)
        count = folds or 9
        parts = compare_effects(estimates).split((1 / count,) * count, split_generator(seed))
        clusters = [frozenset([i]) for i in range(9)]
        if folds:  # the first fold merges down to as many clusters as there are folds
            labels = fl.cluster(parts.pop(0).estimates, refine=False).path()[folds - 1].labels
            clusters = [frozenset(np.flatnonzero(labels == c).tolist()) for c in range(1, folds + 1)]
        expected = {frozenset(range(9))}
        for part in parts:
            if len(clusters) == 1:
                break
            pooled = [
                (oracles.pooled(c, part.estimates.theta.tolist(), (part.estimates.se**-2.0).tolist()), c)
                for c in clusters
            ]
            ratio, i, j = min(
                (oracles.likelihood_ratio(pooled[i][0], pooled[j][0]), i, j)
                for i in range(len(pooled))
                for j in range(i + 1, len(pooled))
            )
            if math.erfc(math.sqrt(ratio / 2)) < 0.05 / count:
                expected = set(clusters)
                break
            clusters = [c for k, c in enumerate(clusters) if k not in (i, j)] + [clusters[i] | clusters[j]]
        assert set(oracles.partition_of(result.labels.tolist())) == expected


def test_folds_keep_what_a_step_down_the_line_has_found() -> None:
    result = fl.cluster(fl.Estimates([0, 0.1, 500, 500.1], [1] * 4), guarantee="folds", refine=False)
    assert result.labels.tolist() == [1, 1, 2, 2]
    levels = [level.pvalue for level in result.path()]
    assert levels == sorted(levels)
    assert result.at(1e-12).n_clusters <= result.n_clusters


def test_each_cluster_is_judged_by_its_own_groups() -> None:
    """Two far apart, one of them two clusters that a single threshold for all 102 groups does not tell apart."""
    estimates = simulate.planted([0, 3, 60], [8, 8, 86], seed=4).estimates
    single, refined = fl.cluster(estimates, guarantee=TOP_MERGE), fl.cluster(estimates)
    assert (single.n_clusters, refined.n_clusters) == (2, 3)
    # A side of 16 groups is compared with its own null at ¾ α·15/101.
    side = fl.cluster(estimates.subset(np.arange(102) < 16))
    assert refined.path()[2].pvalue == pytest.approx(side.pvalue * 101 / 15 / 0.75, rel=0.2)
    levels = [level.pvalue for level in refined.path()]
    assert levels == sorted(levels)


def test_groups_on_the_wrong_side_make_no_more_clusters() -> None:
    """Few beside many, at a distance where the tree puts strays of the many among the few."""
    more = 0
    for seed in range(60):
        data = simulate.planted([0, 5, 10], [4, 92, 4], seed=seed).estimates
        more += fl.cluster(data, guarantee=fl.Calibrated(draws=99), seed=seed).n_clusters > 3
    assert more <= 9  # 5% of 60 and three standard errors; cutting side by side makes it 24


@pytest.mark.statistical
@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_several_effects_with_estimated_covariances_do_not_make_false_claims(correlation: float) -> None:
    """Six degrees of freedom: with covariances taken as known, four in ten of these would be claims."""
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(np.array([[1, correlation], [correlation, 1]]))
    claims = {"calibrated": 0, "holdout": 0}
    for seed in range(150):
        sample = rng.standard_normal((20, 6, 2)) @ root.T
        cov = np.einsum("kni,knj->kij", sample, sample) / 6
        estimates = fl.Estimates(rng.standard_normal((20, 2)) @ root.T, None, effect_covariance=cov, dof=6)
        for name, guarantee in (("calibrated", fl.Calibrated(draws=99)), ("holdout", fl.Holdout())):
            claims[name] += fl.cluster(estimates, guarantee=guarantee, seed=seed).rejected
    assert max(claims.values()) <= 150 * 0.05 + 3.5 * math.sqrt(150 * 0.05 * 0.95), claims


def test_the_order_of_the_groups_does_not_change_how_they_are_split() -> None:
    estimates = groups_apart()
    shuffle = np.random.default_rng(0).permutation(len(estimates))
    there = fl.Estimates(estimates.theta[shuffle], estimates.se[shuffle], shuffle.tolist())
    for guarantee in ("holdout", "folds", fl.Folds(n=4)):
        here, other = fl.cluster(estimates, guarantee=guarantee), fl.cluster(there, guarantee=guarantee)
        assert here.log_pvalue == pytest.approx(other.log_pvalue, rel=1e-9)
        assert here.labels[shuffle].tolist() == other.labels.tolist()
    rates = fl.binomial([5, 30, 9, 40], [60, 70, 80, 90])
    back = fl.binomial([40, 9, 30, 5], [90, 80, 70, 60])
    assert fl.cluster(rates, guarantee="holdout").pvalue == fl.cluster(back, guarantee="holdout").pvalue


def test_refined_folds_put_groups_with_the_nearest_estimate() -> None:
    """The tree of folds is not sorted by the estimates of all the data, which refinement must not assume."""
    for seed in range(20):
        rng = np.random.default_rng([seed, 1])
        estimates = fl.Estimates((np.repeat([0, 8.0], 10) + rng.standard_normal(20))[rng.permutation(20)], np.ones(20))
        result = fl.cluster(estimates, guarantee=fl.Folds(n=4), seed=seed)
        means = np.array([cluster.estimate for cluster in result.clusters])
        nearest = np.argmin(np.abs(estimates.theta[:, None] - means), axis=1) + 1
        assert np.mean(nearest == result.labels) > 0.9


@pytest.mark.parametrize("correlated", [False, True])
def test_several_dimensions_against_plain_counting(correlated: bool) -> None:
    """The law of the top merge from trees of draws that have nothing to do with directions and lengths."""
    rng = np.random.default_rng(0)
    size = 12
    se = rng.lognormal(0, 0.5, (size, 2))
    cov = se[:, :, None] * se[:, None, :] * np.array([[1, 0.7], [0.7, 1]]) if correlated else None
    root = np.linalg.cholesky(cov) if cov is not None else se[:, :, None] * np.eye(2)

    def made(theta: np.ndarray) -> fl.Estimates:
        return fl.Estimates(theta, None, effect_covariance=cov) if correlated else fl.Estimates(theta, se)

    def noise() -> np.ndarray:
        return np.asarray(np.einsum("kij,kj->ki", root, rng.standard_normal((size, 2))))

    tops = np.array([fl.agglomerate(made(noise())).heights[-1] for _ in range(4000)])
    for quantile in (0.5, 0.9, 0.98):
        theta = noise()
        theta *= math.sqrt(np.quantile(tops, quantile) / fl.agglomerate(made(theta)).heights[-1])
        p = judged(made(theta), fl.Calibrated(draws=4000)).min()
        assert p == pytest.approx(1 - quantile, abs=5 * math.sqrt(quantile * (1 - quantile) / 4000))


def test_several_dimensions_far_in_the_tail_and_on_any_number_of_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    theta = np.repeat([[0, 0], [40, -30.0]], 10, axis=0) + rng.standard_normal((20, 2))
    estimates = fl.Estimates(theta, np.ones((20, 2)), dof=50)
    result = fl.cluster(estimates)
    assert result.labels.tolist() == [1] * 10 + [2] * 10
    assert result.log_pvalue < -20
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    assert fl.cluster(estimates).log_pvalue == result.log_pvalue
    assert result.clusters[0].effects[0].estimate == pytest.approx(theta[:10, 0].mean())
    assert result.clusters[1].effects[1].lower < -30 < result.clusters[1].effects[1].upper


def test_one_dimension_given_as_a_plane_is_the_same() -> None:
    estimates = groups_apart()
    flat = fl.Estimates(estimates.theta[:, None], estimates.se[:, None])
    assert fl.cluster(estimates).log_pvalue == fl.cluster(flat).log_pvalue
    cov = (estimates.se**2)[:, None, None]
    assert (
        fl.cluster(fl.Estimates(flat.theta[:, None], None, effect_covariance=cov)).labels.tolist()
        == fl.cluster(flat).labels.tolist()
    )


def test_calibration_with_a_tolerance_rests_on_the_best_cut() -> None:
    """P(best cut of noise ≥ height), by counting."""
    rng = np.random.default_rng(0)
    size, epsilon = 15, 0.8
    best = []
    for _ in range(4000):
        z = np.sort(rng.standard_normal(size))
        left = np.cumsum(z)[:-1] - np.arange(1, size) * z.mean()
        best.append(np.max(left**2 * size / (np.arange(1, size) * np.arange(size - 1, 0, -1))))
    theta = rng.standard_normal(size)
    for factor in (1.6, 2.0, 2.3):
        estimates = fl.Estimates(factor * theta, np.ones(size))
        height = fl.agglomerate(estimates, tolerance=epsilon).heights[-1]
        expected = float(np.mean(np.array(best) >= height))
        assert fl.cluster(estimates, tolerance=epsilon).pvalue == pytest.approx(expected, abs=0.035)


def test_counted_p_values() -> None:
    """Rates: one more than the draws as extreme, over one more than the draws; never zero."""
    result = fl.cluster(fl.binomial([1, 2, 90, 80], [100] * 4), guarantee=fl.Calibrated(draws=199))
    assert result.pvalue == pytest.approx(1 / 200)
    assert result.labels.tolist() == [1, 1, 2, 2]
    alike = fl.cluster(fl.binomial([10, 10, 10], [100] * 3))
    assert alike.pvalue == 1.0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fl.Holdout(fraction=0), "out of range: fraction"),
        (lambda: fl.Holdout(fraction=1.0), "out of range: fraction"),
        (lambda: fl.Holdout(splits=0), "out of range: splits"),
        (lambda: fl.Holdout(splits=2.5), "out of range: splits"),  # type: ignore[arg-type]
        (lambda: fl.Holdout(splits=True), "wrong type: splits"),
        (lambda: fl.Holdout(splits=10**6), "out of range: splits"),
        (lambda: fl.Holdout(fraction=-0.5), "out of range: fraction"),
        (lambda: fl.Holdout(fraction="half"), "wrong type: fraction"),  # type: ignore[arg-type]
        (lambda: fl.Holdout(fraction=float("nan")), "wrong type: fraction"),
        (lambda: fl.Folds(n=1), "out of range: n"),
        (lambda: fl.Folds(n=2.5), "out of range: n"),  # type: ignore[arg-type]
        (lambda: fl.Calibrated(scan="yes"), "wrong type: scan"),  # type: ignore[arg-type]
        (
            lambda: fl.cluster(fl.Estimates([1, 2, 3], [1, 1, 1], n=[9, 40, 50]), guarantee=fl.Folds(n=10)),
            "out of range: n",
        ),
        (
            lambda: fl.cluster(fl.Estimates([1, 2, 3], [1, 1, 1], dof=4), guarantee="folds"),
            "too few: parts",
        ),
        (
            lambda: fl.cluster(fl.Estimates(np.arange(1e5), np.ones(10**5)), guarantee="folds"),
            "out of range: n",
        ),
    ],
)
def test_bad_splits(make: object, words: str) -> None:
    with refused(words):
        make()  # type: ignore[operator]
