"""The walk against brute force: every merge a global minimum, every partition that of the literal algorithm."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import dendrogram, is_valid_linkage, linkage

import faultlines as fl
from tests import oracles
from tests.refused import refused

PROFILES = ["equal", "lognormal", "wild", "one giant"]


def random_case(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Every third case has ties; weights run from equal to twelve orders of magnitude apart."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 31))
    theta = rng.standard_normal(size) * rng.choice([0.1, 1.0, 100.0])
    if seed % 3 == 0:
        theta = np.round(theta * 2) / 2
    profile = PROFILES[seed % 4]
    if profile == "equal":
        se = np.full(size, 0.5)
    elif profile == "lognormal":
        se = np.exp(rng.standard_normal(size))
    elif profile == "wild":
        se = 10 ** rng.uniform(-6, 6, size)
    else:
        se = np.ones(size)
        se[0] = 1e-6
    return theta, se


@pytest.mark.parametrize("batch", range(12))
def test_every_merge_is_the_global_minimum_and_every_partition_literal(batch: int) -> None:
    for seed in range(batch * 50, batch * 50 + 50):
        theta, se = random_case(seed)
        steps = oracles.literal_algorithm_2(theta.tolist(), se.tolist())
        tree = fl.agglomerate(fl.Estimates(theta, se))
        np.testing.assert_allclose(tree.heights, [step.height for step in steps], rtol=1e-7, atol=1e-12)
        weight = (1 / se**2).tolist()
        clusters = {i: frozenset([i]) for i in range(theta.size)}
        for t, (a, b) in enumerate(tree.merges.tolist()):
            stats = {i: oracles.pooled(members, theta.tolist(), weight) for i, members in clusters.items()}
            smallest = min(oracles.likelihood_ratio(stats[i], stats[j]) for i in stats for j in stats if i < j)
            chosen = oracles.likelihood_ratio(stats[a], stats[b])
            assert chosen <= smallest * (1 + 1e-7) + 1e-12, (seed, t)
            clusters[theta.size + t] = clusters.pop(a) | clusters.pop(b)
        # PartitionSearch between two heights that really differ, and so at every α that can tell them apart.
        for before, step in itertools.pairwise(steps):
            if step.height > before.height * (1 + 1e-6) + 1e-9:
                cut = (before.height + step.height) / 2
                labels = tree.labels(tree.starts(tree.gap_heights > cut))
                assert oracles.partition_of(labels.tolist()) == step.before, seed


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-6, 6), st.sampled_from([1, 4, 16, 64])), min_size=2, max_size=12))
def test_ties_agree_with_exact_arithmetic(case: list[tuple[int, int]]) -> None:
    theta, weight = zip(*case, strict=True)
    tree = fl.agglomerate(fl.Estimates(theta, [w**-0.5 for w in weight]))
    heights, by_rounding = oracles.exact_heights(theta, weight)
    exact = sorted(float(height) for height in heights)
    # Equal θ with unequal weight may stand in either order; their merges are at height 0 and change nothing above.
    # Equal heights elsewhere may be taken in another order, but not in this oracle: it also goes from left to right.
    np.testing.assert_allclose(tree.heights.sum(), sum(exact), rtol=1e-9, atol=1e-12)
    if not by_rounding:
        np.testing.assert_allclose(tree.heights, exact, rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["equal", "lognormal", "wild"]))
def test_order_shift_scale_and_monotone_heights(seed: int, profile: str) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 80))
    theta = rng.standard_normal(size)
    se = {"equal": np.ones(size), "lognormal": np.exp(rng.standard_normal(size))}.get(
        profile, 10 ** rng.uniform(-6, 6, size)
    )
    tree = fl.agglomerate(fl.Estimates(theta, se))
    assert np.all(np.diff(tree.heights) >= 0)
    np.testing.assert_allclose(tree.heights.sum(), cochran_q(theta, se), rtol=1e-6)
    shuffle = rng.permutation(size)
    shuffled = fl.agglomerate(fl.Estimates(theta[shuffle], se[shuffle]))
    np.testing.assert_array_equal(shuffled.gap_heights, tree.gap_heights)
    np.testing.assert_array_equal(shuffle[shuffled.order], tree.order)
    for factor in (2.0**-150, 2.0**40):  # powers of two, so that rounding is no excuse
        scaled = fl.agglomerate(fl.Estimates(theta * factor, se * factor))
        np.testing.assert_allclose(scaled.gap_heights, tree.gap_heights, rtol=1e-12)
    negated = fl.agglomerate(fl.Estimates(-theta, se))
    np.testing.assert_allclose(negated.heights, tree.heights, rtol=1e-9)


def cochran_q(theta: np.ndarray, se: np.ndarray) -> float:
    weight = (se.min() / se) ** 2
    centred = theta - theta[np.argmin(se)]
    return float(np.sum(weight * (centred - np.sum(weight * centred) / weight.sum()) ** 2) / se.min() ** 2)


def test_a_shift_of_a_billion_keeps_the_answer() -> None:
    rng = np.random.default_rng(1)
    theta = np.round(rng.standard_normal(60) * 2**20) / 2**20  # so that adding 1e9 loses no bit
    se = np.exp(rng.standard_normal(60))
    near, far = (fl.agglomerate(fl.Estimates(theta + shift, se)) for shift in (0.0, 1e9))
    np.testing.assert_allclose(far.gap_heights, near.gap_heights, rtol=1e-9)
    np.testing.assert_array_equal(far.order, near.order)


@pytest.mark.parametrize("size", [2, 3, 40, 400])
def test_equal_errors_give_wards_tree(size: int) -> None:
    theta = np.random.default_rng(size).standard_normal(size)
    ward = linkage(theta[:, None], "ward")
    tree = fl.agglomerate(fl.Estimates(theta, np.ones(size)))
    np.testing.assert_allclose(tree.heights, ward[:, 2] ** 2 / 2, rtol=1e-9)
    np.testing.assert_array_equal(np.sort(tree.merges, axis=1), ward[:, :2])


@pytest.mark.parametrize("size", [2, 3, 50])
def test_linkage_is_valid_and_draws(size: int) -> None:
    rng = np.random.default_rng(size)
    z = fl.agglomerate(fl.Estimates(rng.standard_normal(size), rng.uniform(0.1, 3, size))).to_linkage()
    assert is_valid_linkage(z, throw=True)
    assert sorted(dendrogram(z, no_plot=True)["leaves"] or []) == list(range(size))
    assert z[-1, 3] == size


SIZE = 300_000
WORST = {
    "growing gaps": np.cumsum(np.arange(SIZE, dtype=float)),
    "shrinking gaps": -np.cumsum(np.arange(SIZE, dtype=float))[::-1],
    "all equal": np.full(SIZE, 3.7),
    "geometric gaps": np.concatenate([1.001 ** np.arange(SIZE // 2) % 1e12, -(1.001 ** np.arange(SIZE // 2)) % 1e12]),
    "equal gaps": np.arange(SIZE, dtype=float),
    "heavy tails": np.random.default_rng(0).standard_cauchy(SIZE),
}


@pytest.mark.parametrize("name", WORST)
def test_worst_cases_finish(name: str) -> None:
    """Quadratic time on any of these would take hours; `make bench` prints the ratios."""
    theta = WORST[name]
    tree = fl.agglomerate(fl.Estimates(theta, np.ones(theta.size)))
    assert np.all(np.isfinite(tree.gap_heights))
    np.testing.assert_allclose(tree.gap_heights.sum(), np.sum((theta - theta.mean()) ** 2), rtol=1e-6, atol=1e-9)
    assert tree.to_linkage()[-1, 3] == theta.size


def test_one_group_has_no_merges() -> None:
    tree = fl.agglomerate(fl.Estimates([1.0], [2.0]))
    assert tree.merges.shape == (0, 2)
    assert tree.heights.size == 0
    assert repr(tree) == "Hierarchy(1 groups)"
    with refused("too few: hierarchy"):
        tree.to_linkage()


def test_something_else_than_estimates_is_refused() -> None:
    with refused("wrong type: estimates"):
        fl.agglomerate([1.0, 2.0])  # type: ignore[arg-type]
