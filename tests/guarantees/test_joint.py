"""The joint test and the search for clusters: against plain loops, and what must not change the answer."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import faultlines as fl
from faultlines import simulate
from faultlines.core import kernels
from faultlines.core.normal import compare_one_effect
from faultlines.guarantees import joint_test as joint
from faultlines.guarantees.joint_test import GroupEffects, NullDistribution


def extract_effects(theta: object, se: object, dof: object = None) -> GroupEffects:
    return GroupEffects(
        np.asarray(theta, dtype=float),
        np.asarray(se, dtype=float),
        None if dof is None else np.asarray(dof, dtype=float),
    )


def scanned(theta: np.ndarray, se: np.ndarray) -> np.ndarray:
    """Written out: for every j the likelihood ratio of the j lowest scores against the rest, as a root."""
    weight = se**-2.0
    score = (theta - np.average(theta, weights=weight)) / se
    order = np.argsort(score)
    roots = []
    for j in range(1, theta.size):
        low, high = order[:j], order[j:]
        means = [np.average(theta[side], weights=weight[side]) for side in (low, high)]
        spread = sum(1 / weight[side].sum() for side in (low, high))
        roots.append(abs(means[0] - means[1]) / np.sqrt(spread))
    return np.array(roots)


@pytest.mark.parametrize("groups", [3, 21, 102])
def test_the_scan_is_the_likelihood_ratio_of_every_cut(groups: int) -> None:
    rng = np.random.default_rng(groups)
    theta, se = rng.standard_normal(groups), rng.lognormal(0, 0.8, groups)
    scores = np.empty((1, groups))
    kernels.pack_scores(theta[None], se[None] ** -2.0, scores)
    scores.sort(axis=1)
    roots = np.empty((1, groups - 1))
    kernels.scan_roots(scores, se[None] ** -2.0, roots)
    np.testing.assert_allclose(roots[0], scanned(theta, se), rtol=1e-9)
    mean, spread = rng.random(groups - 1), 1 + rng.random(groups - 1)
    peak, place = np.empty(1), np.empty(1, dtype=np.int64)
    kernels.scan_peaks(scores, se[None] ** -2.0, mean, spread, peak, place)
    expected = (scanned(theta, se) - mean) / spread
    assert peak[0] == pytest.approx(expected.max(), rel=1e-9)
    assert place[0] == expected.argmax() + 1
    reach, radius = np.empty(1), np.array([7.0])
    kernels.scan_required_lengths(scores, se[None] ** -2.0, radius, mean, spread, 2.5, reach)
    assert reach[0] == pytest.approx(7 * np.min(((mean + 2.5 * spread) / scanned(theta, se)) ** 2), rel=1e-9)


@pytest.mark.parametrize("runs", [500, pytest.param(3000, marks=pytest.mark.statistical)])
def test_p_agrees_with_plain_counting(runs: int) -> None:
    """The same constants, but draws with lengths of their own, counted."""
    rng = np.random.default_rng(2)
    se = np.sort(rng.lognormal(0, 0.5, 15))
    null = NullDistribution(se / np.exp(np.log(se).mean()), None, 4000, 0)
    for far in (1.0, 2.5, 3.5):
        theta = rng.standard_normal(15) * se + np.where(np.arange(15) == 4, far * se, 0.0)
        test = null.test(extract_effects(theta, se))

        def critical(values: np.ndarray) -> float:
            top = float(fl.agglomerate(fl.Estimates(values, se)).heights[-1])
            weight = se**-2.0
            length = np.sqrt(np.sum(weight * (values - np.average(values, weights=weight)) ** 2))
            of_scan = float(np.max((scanned(values, se) - null.mean) / null.spread))
            of_top = null.stretch * (float(np.sqrt(top)) - null.top_mean) / null.top_spread
            of_length = null.length_stretch * (float(length) - null.length_mean) / null.length_spread
            return float(max(of_scan, of_top, of_length))

        here = critical(theta)
        counted = float(np.mean([critical(rng.standard_normal(15) * se) >= here for _ in range(runs)]))
        assert np.exp(test.log_p) == pytest.approx(counted, abs=4 * np.sqrt(max(counted, 0.001) / runs) + 0.02)


@pytest.mark.parametrize(("groups", "dof"), [(8, None), (40, None), (80, None), (12, 6.0)])
def test_p_is_uniform_where_nothing_differs(groups: int, dof: float | None) -> None:
    rng = np.random.default_rng(groups)
    p = []
    for seed in range(500):
        se = rng.lognormal(0, 0.6, groups)
        seen = se if dof is None else se * np.sqrt(rng.chisquare(dof, groups) / dof)
        degrees = None if dof is None else np.full(groups, dof)
        tests = joint.JointTest(extract_effects(rng.standard_normal(groups) * se, seen, degrees), 60, seed)
        p.append(np.exp(tests.test(np.arange(groups)).log_p))
    below = [np.mean(np.array(p) <= level) for level in (0.05, 0.2, 0.5)]
    for share, level in zip(below, (0.05, 0.2, 0.5), strict=True):
        assert share < level + 3.5 * np.sqrt(level * (1 - level) / 500)
    if dof is None:
        assert stats.kstest(p, "uniform").pvalue > 0.001


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1e-6, 1.0, 1e6]), st.sampled_from([-1e6, 0.0, 3.0]))
def test_order_shift_and_scale_change_nothing(seed: int, unit: float, shift: float) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.integers(3, 30))
    se = rng.lognormal(0, 0.5, groups)
    theta = rng.standard_normal(groups) * se + np.where(np.arange(groups) < 2, 4.0, 0.0)
    shuffle = rng.permutation(groups)
    here = fl.cluster(fl.Estimates(theta, se), guarantee=fl.Calibrated(draws=80))
    there = fl.cluster(
        fl.Estimates((theta[shuffle] + shift) * unit, se[shuffle] * unit), guarantee=fl.Calibrated(draws=80)
    )
    assert there.log_pvalue == pytest.approx(here.log_pvalue, rel=1e-6, abs=1e-6)
    assert there.labels.tolist() == here.labels[shuffle].tolist()


def test_many_at_once_are_judged_as_each_alone() -> None:
    rng = np.random.default_rng(0)
    several = [
        extract_effects(rng.standard_normal(21) * se + far, se)
        for far in (0.0, np.where(np.arange(21) == 3, 3.0, 0.0), np.where(np.arange(21) < 9, 30.0, 0.0))
        for se in rng.lognormal(0, 0.5, (4, 21))
    ]
    log_p, drawn = joint.run_joint_tests(several, 1000, 5)
    for estimates, p, count in zip(several, log_p, drawn, strict=True):
        alone = joint.JointTest(estimates, 1000, 5).test(np.arange(21))
        assert alone.log_p == pytest.approx(p, rel=1e-9, abs=1e-12)
        assert alone.draws == count
    assert set(drawn.tolist()) == {64, 1000}


# ------------------------------------------------------------------------------------------------------------- results


def lone(groups: int = 60, far: float = 9.0, seed: int = 3) -> fl.Estimates:
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(groups)
    theta[7] = far
    return fl.Estimates(theta, np.ones(groups), [f"g{i}" for i in range(groups)], attributes=["country"])


def test_one_broken_group_is_named() -> None:
    result = fl.cluster(lone())
    assert result.clusters[1].members == ("g7",)
    assert (result.verdict, result.n_clusters) == ("differ", 2)
    fainter = lone(102, 6.0, seed=1)
    assert fl.cluster(fainter).clusters[1].members == ("g7",)
    assert not fl.cluster(fainter, guarantee=fl.Calibrated(scan=False)).rejected


def test_a_precise_group_can_stand_apart_among_imprecise_ones() -> None:
    rng = np.random.default_rng(0)
    theta = np.concatenate([6 * rng.standard_normal(40), [0.0] * 10, [1.5]])
    estimates = fl.Estimates(theta, np.concatenate([np.full(40, 6.0), np.full(11, 0.1)]), [f"g{i}" for i in range(51)])
    result = fl.cluster(estimates)
    along = result.labels[np.argsort(theta)]
    assert result.rejected
    assert np.any(np.diff(along) < 0)  # no interval
    assert "overlap" in {note.code for note in result.notes}
    assert sum(len(cluster.members) for cluster in result.clusters) == 51
    assert result.to_json()
    assert len(result.hierarchy.to_linkage()) == 50


@pytest.mark.parametrize("alpha", [1e-9, 0.001, 0.05, 0.15])
def test_another_level_is_that_of_a_fit_at_it(alpha: float) -> None:
    estimates = simulate.planted([0, 3, 6], [20, 20, 5], profile="lognormal", seed=2).estimates
    there = fl.cluster(estimates).at(alpha)
    again = fl.cluster(estimates, alpha=alpha)
    assert there.labels.tolist() == again.labels.tolist()
    assert there.verdict == again.verdict
    path = fl.cluster(estimates).path()
    levels = [level.pvalue for level in path]
    assert levels == sorted(levels)
    assert there.n_clusters == max(level.n_clusters for level in path if level.pvalue < alpha)
    for level in path[:6]:
        assert set(level.labels.tolist()) == set(range(1, level.n_clusters + 1))


def test_very_many_clusters_far_apart_take_no_time() -> None:
    theta = 1000.0 * np.arange(400)
    result = fl.cluster(fl.Estimates(theta, np.ones(400)))
    assert result.n_clusters == 400


def test_a_result_can_be_kept() -> None:
    result = fl.cluster(lone())
    again = pickle.loads(pickle.dumps(result))
    assert again.labels.tolist() == result.labels.tolist()
    assert again.at(0.001).verdict == result.at(0.001).verdict


@pytest.mark.parametrize(
    "data",
    [
        lambda: fl.Estimates(np.arange(12.0).reshape(6, 2), np.ones((6, 2))),
        lambda: fl.binomial([1, 9, 30, 2], [50] * 4),
    ],
)
def test_what_cannot_be_scanned_says_so(data: object) -> None:
    for result in (fl.cluster(data()), fl.cluster(lone(), tolerance=0.5)):  # type: ignore[operator]
        assert result.judged.facts["scan"] == 0
        assert len(result.guarantee.notes(result.groups, result.judged.facts)) == 2
    assert len(fl.Calibrated().notes(fl.cluster(lone()).groups, fl.cluster(lone()).judged.facts)) == 1


def test_groups_that_are_all_equal_are_alike() -> None:
    result = fl.cluster(fl.Estimates([1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 3.0, 1.0]))
    assert (result.n_clusters, result.pvalue) == (1, 1.0)
    assert (
        fl.Calibrated().find_path(compare_one_effect(fl.Estimates([1.0], [1.0]), 0.0), 0, refine=True).log_pvalue == 0.0
    )
