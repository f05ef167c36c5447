"""Any comparison: merges as in Algorithm 1 to the letter, p-values that are p-values, parts that add up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import faultlines as fl
from faultlines import simulate
from faultlines.core.comparison import Pair
from faultlines.core.distributions import log_t_tail
from faultlines.core.normal import Line, compare_effects, compare_one_effect, log_p_two_sided
from faultlines.estimates.scales import ANSCOMBE, Anscombe
from tests import oracles
from tests.refused import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def clusters_of(tree: fl.Hierarchy) -> list[frozenset[int]]:
    """The cluster every merge makes, in the order of the merges."""
    members = [frozenset([i]) for i in range(len(tree))]
    for a, b in tree.merges.tolist():
        members.append(members[a] | members[b])
    return members[len(tree) :]


def add(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x + y for x, y in zip(a, b, strict=True)]


def check_against_literal(
    tree: fl.Hierarchy,
    groups: Any,
    log_p: Callable[[Sequence[float], Sequence[float]], float],
    merged: Callable[[Sequence[float], Sequence[float]], Sequence[float]] = add,
    height: Callable[[float], float] = lambda log_p: -log_p,
) -> None:
    steps = oracles.literal_algorithm_1(np.asarray(groups).tolist(), log_p, merged)
    assert set(clusters_of(tree)) == {cluster for cluster, _ in steps}
    expected = np.maximum.accumulate([height(log_p) for _, log_p in steps])
    np.testing.assert_allclose(tree.heights, np.sort(expected), rtol=1e-7, atol=1e-9)


def log_rate_test(a: Sequence[float], b: Sequence[float]) -> float:
    """The textbook likelihood ratio of two binomial rates."""

    def loglik(y: float, n: float, p: float) -> float:
        return (y * math.log(p) if y else 0.0) + ((n - y) * math.log1p(-p) if n > y else 0.0)

    pooled = (a[0] + b[0]) / (a[1] + b[1])
    ratio = 2 * sum(loglik(y, n, y / n) - loglik(y, n, pooled) for y, n in (a, b))
    return math.log(2) + float(stats.norm.logsf(math.sqrt(max(ratio, 0.0))))


def log_count_test(a: Sequence[float], b: Sequence[float]) -> float:
    pooled = (a[0] + b[0]) / (a[1] + b[1])
    ratio = 2 * sum(y * math.log(y / t / pooled) if y else 0.0 for y, t in (a, b))
    return math.log(2) + float(stats.norm.logsf(math.sqrt(max(ratio, 0.0))))


@pytest.mark.parametrize("seed", range(9))
def test_rates_merge_as_algorithm_1_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 25))
    trials = rng.integers(5, 300, size)
    successes = rng.binomial(trials, rng.choice([0.1, 0.3, 0.97], size))
    # Groups with the same rate are alike beyond all others; which of them merge first is open, so they are left out.
    keep = np.unique(successes / trials, return_index=True)[1]
    trials, successes = trials[keep], successes[keep]
    similarity = fl.binomial(successes, trials)
    check_against_literal(fl.agglomerate(similarity), similarity.statistics, log_rate_test)


@pytest.mark.parametrize("seed", range(9))
def test_counts_merge_as_algorithm_1_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 25))
    exposure = rng.lognormal(0, 1, size)
    events = rng.poisson(exposure * rng.choice([0.5, 8.0], size))
    keep = np.unique(events / exposure, return_index=True)[1]
    exposure, events = exposure[keep], events[keep]
    similarity = fl.poisson(events, exposure)
    check_against_literal(fl.agglomerate(similarity), similarity.statistics, log_count_test)


@pytest.mark.parametrize("seed", range(9))
def test_t_tests_merge_as_algorithm_1_says(seed: int) -> None:
    """Written out from the definition: weighted means, variances with Meier's term, Satterthwaite, Student."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 20))
    dof = rng.integers(4, 40, size).astype(float)
    estimates = fl.Estimates(3 * rng.standard_normal(size), rng.lognormal(0, 0.7, size), dof=dof)
    groups = np.column_stack([estimates.se**-2.0, estimates.theta, dof])

    def pooled(members: Sequence[float]) -> tuple[float, float, float]:
        w, theta, nu = (np.array(members[i::3]) for i in range(3))
        share = w / w.sum()
        variance = (1 + 4 * np.sum(share * (1 - share) / (nu - 3))) / w.sum()
        return float(share @ theta), float(variance), float(1 / np.sum(share**2 / nu))

    def log_t(a: Sequence[float], b: Sequence[float]) -> float:
        (mean_a, var_a, nu_a), (mean_b, var_b, nu_b) = pooled(a), pooled(b)
        nu = (var_a + var_b) ** 2 / (var_a**2 / nu_a + var_b**2 / nu_b)
        return float(math.log(2) + stats.t.logsf(abs(mean_a - mean_b) / math.sqrt(var_a + var_b), nu))

    tree = fl.agglomerate(fl.welch(estimates))
    check_against_literal(tree, groups, log_t, merged=lambda a, b: [*a, *b])


def two_proportions(a: Any, b: Any) -> Any:
    """A user's own test: z of two proportions."""
    pooled = (a[:, 0] + b[:, 0]) / (a[:, 1] + b[:, 1])
    variance = np.maximum(pooled * (1 - pooled), 1e-12) * (1 / a[:, 1] + 1 / b[:, 1])
    return stats.chi2.sf((a[:, 0] / a[:, 1] - b[:, 0] / b[:, 1]) ** 2 / variance, 1)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_users_own_test_merges_as_algorithm_1_says(seed: int, log: bool) -> None:
    rng = np.random.default_rng(seed)
    trials = rng.integers(300, 500, 23)
    table = np.column_stack([rng.binomial(trials, rng.choice([0.1, 0.4], 23)), trials]).astype(float)
    test = (lambda a, b: np.log(two_proportions(a, b))) if log else two_proportions
    similarity = fl.Similarity(table, test, log=log)

    def log_p(a: Sequence[float], b: Sequence[float]) -> float:
        return float(np.log(two_proportions(np.array([a]), np.array([b]))[0]))

    check_against_literal(fl.agglomerate(similarity), table, log_p)


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("correlated", [False, True])
def test_several_dimensions_merge_as_algorithm_1_says(seed: int, dims: int, correlated: bool) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 30))
    theta = 2 * rng.standard_normal((size, dims)) + 1e6
    root = rng.standard_normal((size, dims, dims + 2)) * rng.lognormal(0, 1, (size, 1, 1))
    cov = root @ np.swapaxes(root, 1, 2)
    if not correlated:
        cov = cov * np.eye(dims)
    se = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    estimates = fl.Estimates(theta, None, effect_covariance=cov) if correlated else fl.Estimates(theta, se)

    def ratio(a: Sequence[float], b: Sequence[float]) -> float:
        parts = []
        for members in (a, b):
            rows = np.array(members, dtype=int)
            precision = np.linalg.inv(cov[rows])
            variance = np.linalg.inv(precision.sum(axis=0))
            parts.append((variance @ np.einsum("kij,kj->i", precision, theta[rows] - 1e6), variance))
        gap = parts[0][0] - parts[1][0]
        return -float(gap @ np.linalg.solve(parts[0][1] + parts[1][1], gap))

    tree = fl.agglomerate(estimates)
    check_against_literal(tree, np.arange(size)[:, None], ratio, merged=lambda a, b: [*a, *b])


@pytest.mark.parametrize("seed", range(9))
def test_tolerance_merges_as_algorithm_1_says(seed: int) -> None:
    """Within the tolerance everything is alike; there the plain likelihood ratio decides what goes first."""
    rng = np.random.default_rng(seed)
    size, epsilon = int(rng.integers(2, 25)), float(rng.choice([0.3, 1.0, 3.0]))
    theta, se = 3 * rng.standard_normal(size), rng.lognormal(0, 0.7, size)

    def ratio(a: Sequence[float], b: Sequence[float]) -> float:
        (w_a, m_a), (w_b, m_b) = a, b
        gap, weight = abs(m_a / w_a - m_b / w_b), w_a * w_b / (w_a + w_b)
        beyond = max(gap - epsilon, 0.0) ** 2 * weight
        return -beyond if beyond else 1 / max(gap**2 * weight, 1e-300)

    weight = se**-2.0
    tree = fl.agglomerate(fl.Estimates(theta, se), tolerance=epsilon)
    check_against_literal(tree, np.column_stack([weight, weight * theta]), ratio, height=lambda log_p: max(-log_p, 0.0))


@pytest.mark.parametrize("seed", range(8))
def test_tolerance_of_rates_is_in_points(seed: int) -> None:
    """Merged pairs with the smallest distance beyond the tolerance, the distance found by search over all rates."""
    rng = np.random.default_rng(seed)
    size, epsilon = int(rng.integers(2, 15)), 0.05
    trials = rng.integers(50, 3000, size).astype(float)
    theta = Anscombe.forward(
        rng.binomial(trials.astype(int), rng.choice([0.02, 0.1, 0.3], size)).astype(np.float64), trials
    )
    se = 1 / np.sqrt(4 * trials + 2)
    comparison = Line(fl.Estimates(theta, se, scale=ANSCOMBE), epsilon)
    # What of the distance is beyond the tolerance is at most what moving one of the two by ε leaves.
    low, high = np.sort(rng.choice(theta, (2, 200)), axis=0)
    left = high - np.arcsin(np.sqrt(np.clip(np.sin(low) ** 2 + epsilon, 0, 1)))
    right = np.arcsin(np.sqrt(np.clip(np.sin(high) ** 2 - epsilon, 0, 1))) - low
    apart = np.sin(high) ** 2 - np.sin(low) ** 2
    beyond = comparison.beyond(low, high)
    np.testing.assert_allclose(beyond, np.where(apart > epsilon, np.minimum(left, right), 0.0), atol=1e-12)
    assert np.all(beyond <= high - low + 1e-15)
    tree = fl.agglomerate(fl.Estimates(theta, se, scale=ANSCOMBE), tolerance=epsilon)
    weight = se**-2.0

    def ratio(a: Sequence[float], b: Sequence[float]) -> float:
        (w_a, m_a), (w_b, m_b) = a, b
        rate, other = np.array([m_a / w_a]), np.array([m_b / w_b])
        harmonic = w_a * w_b / (w_a + w_b)
        left = float(comparison.beyond(np.minimum(rate, other), np.maximum(rate, other))[0]) ** 2 * harmonic
        return -left if left else 1 / max(float((rate - other)[0]) ** 2 * harmonic, 1e-300)

    check_against_literal(tree, np.column_stack([weight, weight * theta]), ratio, height=lambda log_p: max(-log_p, 0.0))


def test_with_a_tolerance_p_is_never_below_that_of_the_exact_interval_null() -> None:
    """Two groups, the least favourable truth: they are exactly ε apart."""
    for gap in np.linspace(0, 8, 40):
        for epsilon in (0.5, 2.0):
            se = np.array([0.7, 1.1])
            total = math.hypot(*se)
            exact = stats.norm.sf((gap - epsilon) / total) + stats.norm.sf((gap + epsilon) / total)
            for guarantee in ("calibrated", "bonferroni"):
                result = fl.cluster(fl.Estimates([0, gap], se), guarantee=guarantee, tolerance=epsilon)
                assert result.pvalue >= exact * (1 - 1e-9)


def test_a_person_can_ask_for_more_than_one_point() -> None:
    trials = np.full(8, 40_000)
    rates = np.array([0.050, 0.0505, 0.0510, 0.0515, 0.056, 0.0565, 0.1, 0.101])
    estimates = fl.Estimates(
        Anscombe.forward(rates * trials, trials), 1 / np.sqrt(4 * trials + 2), scale=ANSCOMBE, natural=rates
    )
    assert fl.cluster(estimates).n_clusters == 3
    result = fl.cluster(estimates, tolerance=0.01)
    assert result.n_clusters == 2
    assert result.tolerance == 0.01
    assert not fl.cluster(estimates, tolerance=0.06).rejected


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 3))
def test_more_tolerance_never_means_a_smaller_p(seed: int, tolerance: float) -> None:
    # Of two given clusters. Among more groups a tolerance also changes which of them merge first, and the p of the last
    # merge may then fall (here with seed 262144, from a tolerance of 2.5 to 3).
    estimates = simulate.planted([0, 4], [6, 6], profile="lognormal", seed=seed).estimates
    labels = (np.arange(12) >= 6).astype(np.int64)
    log_p = [compare_one_effect(estimates, t).most_similar_pair(labels).log_p for t in (tolerance, tolerance + 0.5)]
    assert log_p[0] <= log_p[1] + 1e-9
    pair = estimates.subset(np.isin(np.arange(12), (0, 11)))
    for guarantee in ("bonferroni", fl.Calibrated(draws=99)):
        log_p = [fl.cluster(pair, tolerance=t, guarantee=guarantee).log_pvalue for t in (tolerance, tolerance + 0.5)]
        assert log_p[0] <= log_p[1] + 1e-9


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_order_of_groups_changes_nothing_for_any_comparison(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shuffle = rng.permutation(9)
    theta, se = rng.standard_normal((9, 2)), rng.lognormal(0, 0.5, (9, 2))
    counts, trials = rng.integers(1, 40, 9), rng.integers(50, 90, 9)
    quick = fl.Calibrated(draws=99)
    pairs = [
        (fl.Estimates(theta, se), fl.Estimates(theta[shuffle], se[shuffle])),
        (fl.binomial(counts, trials), fl.binomial(counts[shuffle], trials[shuffle])),
        (fl.poisson(counts, trials), fl.poisson(counts[shuffle], trials[shuffle])),
        (
            fl.welch(fl.Estimates(theta[:, 0], se[:, 0], dof=9)),
            fl.welch(fl.Estimates(theta[shuffle, 0], se[shuffle, 0], dof=9)),
        ),
    ]
    for first, second in pairs:
        here, there = (fl.cluster(data, guarantee=quick, refine=False) for data in (first, second))
        assert here.log_pvalue == pytest.approx(there.log_pvalue, rel=1e-9)
        path = {frozenset(oracles.partition_of(level.labels.tolist())) for level in here.path()}
        back = {frozenset(oracles.partition_of(level.labels[np.argsort(shuffle)].tolist())) for level in there.path()}
        assert path == back


def test_pairwise_p_are_those_of_textbooks() -> None:
    rates = fl.binomial([30, 55], [100, 120])
    table = np.array([[30, 70], [55, 65]])
    expected = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood").pvalue
    assert np.exp(rates.most_similar_pair(np.array([0, 1])).log_p) == pytest.approx(expected)
    assert np.exp(fl.agglomerate(rates).gap_heights * -1)[0] == pytest.approx(expected)
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, 12), rng.normal(1, 3, 7)
    both = fl.Estimates([a.mean(), b.mean()], [a.std(ddof=1) / 12**0.5, b.std(ddof=1) / 7**0.5], dof=[11, 6])
    expected = stats.ttest_ind(a, b, equal_var=False).pvalue
    assert np.exp(fl.welch(both).most_similar_pair(np.array([0, 1])).log_p) == pytest.approx(expected)
    assert np.exp(compare_effects(both).most_similar_pair(np.array([0, 1])).log_p) == pytest.approx(expected)
    assert fl.cluster(fl.welch(both), guarantee="bonferroni").pvalue == pytest.approx(min(4 * expected, 1))


def test_the_most_similar_pair_is_that_of_all_pairs() -> None:
    """Also with unlike degrees of freedom, where it need not stand side by side."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        size = int(rng.integers(2, 12))
        theta, se = 3 * rng.standard_normal(size), rng.lognormal(0, 1, size)
        dof = rng.choice([4.0, 5.0, 300.0], size)
        comparison = compare_effects(fl.Estimates(theta, se, dof=dof)).most_similar_pair(np.arange(size))
        best = Pair(0, 0, -np.inf)
        for a in range(size):
            for b in range(a + 1, size):
                total = se[a] ** 2 + se[b] ** 2
                nu = total**2 / (se[a] ** 4 / dof[a] + se[b] ** 4 / dof[b])
                log_p = math.log(2) + stats.t.logsf(abs(theta[a] - theta[b]) / math.sqrt(total), nu)
                best = max(best, Pair(a, b, float(log_p)), key=lambda pair: pair.log_p)
        assert {comparison.a, comparison.b} == {best.a, best.b}
        assert comparison.log_p == pytest.approx(best.log_p)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.2, 0.8), (0.25, 0.25, 0.5)])
def test_parts_are_independent_and_as_precise_as_their_shares(shares: tuple[float, ...]) -> None:
    """Drawn anew each time, as data are; with known and with estimated variances, rates and counts."""
    rng = np.random.default_rng(0)
    size = 12_000
    draws: dict[str, Any] = {
        "known": fl.Estimates(rng.normal(5, 2, size), np.full(size, 2.0)),
        "estimated": fl.Estimates(rng.normal(5, 2, size), 2 * np.sqrt(rng.chisquare(15, size) / 15), dof=15.0),
        "binomial": fl.binomial(rng.binomial(40, 0.3, size), np.full(size, 40)),
        "poisson": fl.poisson(rng.poisson(12, size), np.full(size, 4.0)),
    }
    for name, data in draws.items():
        comparison: Any = compare_effects(data) if isinstance(data, fl.Estimates) else data
        parts = comparison.split(shares, rng)
        if isinstance(data, fl.Estimates):
            values = np.array([part.estimates.theta for part in parts])
        else:
            values = np.array([part.statistics[:, 0] / part.statistics[:, 1] for part in parts])
            np.testing.assert_allclose(sum(part.statistics for part in parts), comparison.statistics)
        # Squares as well: independence is more than no correlation.
        for what in (values, (values - values.mean(axis=1, keepdims=True)) ** 2):
            assert np.abs(np.corrcoef(what) - np.eye(len(shares))).max() < 4.5 / math.sqrt(size), name
        truth = {"known": 4.0, "estimated": 4.0, "binomial": 0.3 * 0.7 / 40, "poisson": 3 / 4}[name]
        np.testing.assert_allclose(values.var(axis=1), truth / np.array(shares), rtol=0.06, err_msg=name)
        if name == "estimated":
            spread = np.array([part.estimates.se**2 for part in parts])
            np.testing.assert_allclose(spread.mean(axis=1), truth / np.array(shares), rtol=0.04)
            dof = np.array([part.estimates.dof[0] for part in parts])
            assert dof.sum() == pytest.approx(16 - len(shares))
            relative = spread.var(axis=1) / spread.mean(axis=1) ** 2  # 2/dof for a chi-square
            np.testing.assert_allclose(relative, 2 / dof, rtol=0.15)
            apart = np.corrcoef(np.vstack([values, spread]))
            assert np.abs(apart - np.eye(2 * len(shares))).max() < 4.5 / math.sqrt(size)


def test_parts_of_correlated_estimates_are_independent_too() -> None:
    rng = np.random.default_rng(1)
    cov = np.array([[1.0, 0.8], [0.8, 2.0]])
    theta = rng.multivariate_normal([0, 0], cov, 6000)
    part, other = compare_effects(fl.Estimates(theta, None, effect_covariance=np.tile(cov, (6000, 1, 1)))).split(
        (0.5, 0.5), rng
    )
    covariance = np.cov(np.hstack([part.estimates.theta, other.estimates.theta]).T)
    np.testing.assert_allclose(covariance[:2, :2], 2 * cov, atol=0.15)
    np.testing.assert_allclose(covariance[:2, 2:], 0, atol=0.15)


def test_draws_from_the_null_keep_the_total() -> None:
    rng = np.random.default_rng(0)
    rates, counts = fl.binomial([3, 9, 20], [30, 50, 60]), fl.poisson([3, 9, 20], [1.0, 2, 3])
    for similarity in (rates, counts):
        assert similarity.null is not None
        drawn = np.array([similarity.null(similarity.statistics, rng)[:, 0] for _ in range(4000)])
        assert np.all(drawn.sum(axis=1) == 32)
        shares = similarity.statistics[:, 1] / similarity.statistics[:, 1].sum()
        np.testing.assert_allclose(drawn.mean(axis=0), 32 * shares, rtol=0.05)


def test_a_comparison_without_estimates_still_has_every_output() -> None:
    table = np.column_stack([[10, 12, 60, 66], np.full(4, 100)])
    result = fl.cluster(fl.Similarity(table, two_proportions, list("abcd")), guarantee="bonferroni")
    assert result.n_clusters == 2
    assert {cluster.members for cluster in result.clusters} == {("a", "b"), ("c", "d")}
    assert result.clusters[0].estimate is None
    for shown in (str(result), result.to_json(), result.to_markdown(), result._repr_html_(), repr(result)):
        assert shown
    assert result.to_pandas()["cluster"].tolist() == result.labels.tolist()
    assert [level.n_clusters for level in result.path()] == [1, 2, 3, 4]
    with refused("unsupported: estimates"):
        _ = result.estimates


def test_a_comparison_of_ones_own_with_everything() -> None:
    """NullDraws, division and estimates given: every guarantee works, and finds what is there."""
    rng = np.random.default_rng(0)
    trials = np.full(12, 600.0)
    table = np.column_stack([rng.binomial(600, np.repeat([0.1, 0.3], 6)), trials])

    def null(s: Any, rng: np.random.Generator) -> Any:
        return np.column_stack([rng.binomial(s[:, 1].astype(int), s[:, 0].sum() / s[:, 1].sum()), s[:, 1]])

    own = fl.Similarity(
        table,
        two_proportions,
        [f"g{i}" for i in range(12)],
        null=null,
        divide=lambda s, shares, rng: fl.binomial(s[:, 0], s[:, 1]).divide(s, shares, rng),  # type: ignore[misc]
        estimate=lambda s: fl.Estimates(s[:, 0] / s[:, 1], np.sqrt(0.25 / s[:, 1])),
        metric="share of yes",
    )
    for guarantee in (fl.Calibrated(99), "bonferroni", "holdout", fl.Folds(n=4)):
        result = fl.cluster(own, guarantee=guarantee)
        assert result.n_clusters == 2, guarantee
        assert result.labels.tolist() == [1] * 6 + [2] * 6
        assert result.clusters[1].estimate == pytest.approx(0.3, abs=0.05)
        assert result.verdict == "differ"
        assert result.estimates.metric == "share of yes"


@pytest.mark.parametrize(
    ("pvalue", "words"),
    [
        (lambda a, b: np.full(len(a), 1.5), "wrong return value: pvalue"),
        (lambda a, b: np.full(len(a), -0.1), "wrong return value: pvalue"),
        (lambda a, b: np.full(len(a), np.nan), "wrong return value: pvalue"),
        (lambda a, b: 0.5, "wrong return value: pvalue"),
        (lambda a, b: np.full((len(a), 2), 0.5), "wrong return value: pvalue"),
        (lambda a, b: ["x"] * len(a), "wrong return value: pvalue"),
    ],
)
def test_what_is_no_p_value_is_refused(pvalue: Any, words: str) -> None:
    with refused(words):
        fl.cluster(fl.Similarity(np.ones((4, 2)), pvalue), guarantee="bonferroni")


@pytest.mark.parametrize(
    ("statistics", "words"),
    [
        ([["a"], ["b"]], "wrong type: statistics"),
        ([[1.0, np.nan], [2, 3]], "invalid data: statistics"),
        ([[1e308], [1e308]], "invalid data: statistics"),
        ([1.0, 2.0], "mismatch: statistics"),
        (np.ones((0, 2)), "mismatch: statistics"),
    ],
)
def test_statistics_that_do_not_add_are_refused(statistics: Any, words: str) -> None:
    with refused(words):
        fl.Similarity(statistics, two_proportions)


def test_functions_that_spoil_what_they_are_given_do_no_harm() -> None:
    table = np.column_stack([[2, 4, 5, 9], np.full(4, 20)]).astype(float)

    def pure(s: Any, rng: np.random.Generator) -> Any:
        return np.column_stack([rng.binomial(20, s[:, 0].sum() / 80, 4), s[:, 1]])

    def spoiling(s: Any, rng: np.random.Generator) -> Any:
        s[:, 0] = rng.binomial(20, s[:, 0].sum() / 80, 4)
        return s

    quick = fl.Calibrated(draws=199)
    p = [
        fl.cluster(fl.Similarity(table, two_proportions, null=null), guarantee=quick).pvalue
        for null in (pure, spoiling)
    ]
    assert p[0] == p[1]
    for rubbish in ("x", None, [[1], [2, 3]]):
        function: Any = lambda *_, rubbish=rubbish: rubbish  # noqa: E731
        with refused("wrong return value: null"):
            fl.cluster(fl.Similarity(table, two_proportions, null=function))
        listed: Any = lambda *_, rubbish=rubbish: [rubbish]  # noqa: E731
        with refused("wrong return value: divide"):
            fl.cluster(fl.Similarity(table, two_proportions, divide=listed), guarantee="holdout")


def test_what_a_comparison_does_not_say_is_asked_for() -> None:
    bare = fl.Similarity(np.column_stack([[5, 9, 30], [50, 60, 70]]), two_proportions)
    for guarantee, parameter in (("calibrated", "guarantee"), ("holdout", "divide"), ("folds", "divide")):
        with refused(f"unsupported: {parameter}"):
            fl.cluster(bare, guarantee=guarantee)
    with refused("too few: alpha"):
        fl.cluster(fl.binomial([1, 2], [9, 9]), guarantee=fl.Calibrated(draws=99), alpha=0.01)
    with refused("conflict: unit"):
        fl.cluster(simulate.null(4).estimates, guarantee=fl.Holdout(unit="u"))
    with refused("unsupported: tolerance"):
        fl.cluster(bare, guarantee="bonferroni", tolerance=0.1)
    with refused("wrong type: pvalue"):
        fl.Similarity(np.ones((2, 2)), "t-test")  # type: ignore[arg-type]
    table = np.column_stack([[5, 9, 30], [50, 60, 70]])
    with refused("wrong return value: null"):
        fl.cluster(fl.Similarity(table, two_proportions, null=lambda s, rng: s[:1]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fl.binomial([5], [3]), "invalid data: successes"),
        (lambda: fl.binomial([0.5], [3]), "invalid data: successes"),
        (lambda: fl.binomial([1, 2], [3, 0]), "invalid data: trials"),
        (lambda: fl.binomial([1, 2], [3, 4.5]), "invalid data: trials"),
        (lambda: fl.binomial(["a"], [3]), "wrong type: successes"),
        (lambda: fl.poisson([-1, 2], 1.0), "invalid data: events"),
        (lambda: fl.poisson([], 1.0), "mismatch: events"),
        (lambda: fl.welch([1, 2]), "wrong type: estimates"),  # type: ignore[arg-type]
        (lambda: fl.welch(fl.Estimates([[1, 2], [3, 4]], np.ones((2, 2)))), "unsupported: estimates"),
        (lambda: fl.cluster(fl.binomial([1, 2, 9], [9, 9, 9]), guarantee=fl.Folds(n=10)), "too few: parts"),
    ],
)
def test_bad_counts(make: Any, words: str) -> None:
    with refused(words):
        make()


@pytest.mark.parametrize("tolerance", [-0.1, np.nan, np.inf, "0.1", True, None])
def test_bad_tolerance(tolerance: Any) -> None:
    with pytest.raises(fl.InputError) as caught:
        fl.cluster(simulate.null(4).estimates, tolerance=tolerance)
    assert caught.value.parameter == "tolerance"
    assert caught.value.code in {"out of range", "wrong type"}


def test_tolerance_has_no_meaning_in_several_dimensions() -> None:
    with refused("unsupported: tolerance"):
        fl.cluster(fl.Estimates(np.ones((3, 2)), np.ones((3, 2))), tolerance=0.1)


@pytest.mark.parametrize(
    ("cov", "words"),
    [
        (np.ones((2, 2)), "mismatch: effect_covariance"),
        (np.tile(np.array([[1.0, 1], [1, 1]]), (3, 1, 1)), "invalid data: effect_covariance"),
        (np.tile(np.array([[1.0, 0.5], [0.1, 1]]), (3, 1, 1)), "invalid data: effect_covariance"),
        (np.full((3, 2, 2), np.nan), "invalid data: effect_covariance"),
        ("x", "wrong type: effect_covariance"),
    ],
)
def test_bad_covariances(cov: Any, words: str) -> None:
    with refused(words):
        fl.Estimates(np.zeros((3, 2)), None, effect_covariance=cov)


def test_known_standard_errors_beside_estimated_ones_are_compared_as_normal() -> None:
    dof = np.array([np.inf, np.inf, 5.0])
    first, second = np.array([0]), np.array([1])
    log_p = log_p_two_sided(np.array([-2.5]), np.ones(1), np.ones(1), dof, first, second)
    assert np.exp(log_p) == pytest.approx(2 * stats.norm.sf(2.5 / np.sqrt(2)))
    with_estimated = log_p_two_sided(np.array([-2.5]), np.ones(1), np.ones(1), dof, first, second + 1)
    assert np.exp(with_estimated) == pytest.approx(2 * stats.t.sf(2.5 / np.sqrt(2), 20.0))


@pytest.mark.parametrize("dof", [1.0, 30.0, np.inf])
def test_tails_of_t_are_two_sided_and_finite(dof: float) -> None:
    t = np.array([-3.0, 0.0, 3.0, 1e100, 1e200, np.inf])
    log_p = log_t_tail(t, dof)
    assert np.exp(log_p[:3]) == pytest.approx(2 * stats.t.sf(np.abs(t[:3]), min(dof, 1e9)), abs=1e-5)
    assert np.all(np.isfinite(log_p))
    assert np.all(np.diff(log_p[1:]) <= 0)
