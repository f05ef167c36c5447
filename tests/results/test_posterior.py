"""What to believe of one group: its cluster and its effect, and intervals for clusters chosen in any way."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import faultlines as fl
from faultlines import simulate
from faultlines.core.mixture import fit_posterior as fit_mixture
from faultlines.results.effects import any_cluster, group_posterior

if TYPE_CHECKING:
    from faultlines.results import Clustering


def demo() -> tuple[simulate.Simulated, Clustering]:
    simulated = simulate.onboarding()
    return simulated, fl.cluster(simulated.estimates)


def test_all_countries_that_the_demo_misplaces_are_marked() -> None:
    simulated, result = demo()
    posterior = result.posterior
    assert posterior is not None
    wrong = simulated.truth != result.labels
    assert wrong.sum() == 5
    assert not posterior.certain[wrong].any()
    assert posterior.certain.sum() > 15  # not simply everybody
    for row, truth in zip(result.to_dicts(), simulated.truth, strict=True):
        assert row["cluster"] in row["possible"]
        assert truth in row["possible"]
        assert 0 <= row["membership"] <= 1
        assert row["shrunken_lower"] <= row["shrunken"] <= row["shrunken_upper"]


def test_one_cluster_has_all_groups_and_shrinks_as_empirical_bayes_does() -> None:
    rng = np.random.default_rng(8)
    theta = rng.normal(0, 0.6, 60) + rng.standard_normal(60)
    estimates = fl.Estimates(theta, np.ones(60))
    labels = np.zeros(60, dtype=np.int64)
    posterior = group_posterior(estimates, fit_mixture(estimates, labels), labels, 0.05)
    assert posterior.membership == pytest.approx(1.0)
    assert posterior.possible.all()
    scatter = np.sum((theta - theta.mean()) ** 2)
    between = (scatter - 59 - 0.5 * np.sqrt(2 * 59)) / (60 - 1)
    expected = theta.mean() + between / (1 + between) * (theta - theta.mean())
    assert posterior.shrunken[:, 0] == pytest.approx(expected)


def test_intervals_are_quantiles_of_the_mixture() -> None:
    rng = np.random.default_rng(3)
    labels = np.repeat([0, 1], 12)
    theta = 3.0 * labels + rng.standard_normal(24)
    estimates = fl.Estimates(theta, np.ones(24))
    mixture = fit_mixture(estimates, labels)
    posterior = group_posterior(estimates, mixture, labels, 0.1)
    probabilities, levels = mixture.membership, mixture.effects[:, 0]
    scatter = np.sum(probabilities * (theta[:, None] - levels) ** 2)
    total = 24 - np.sum(probabilities.sum(axis=0) / probabilities.sum(axis=0))
    between = max(0.0, (scatter - 22 + np.sqrt(44)) / total)
    own = between / (between + 1)
    for i in range(24):
        centre = levels + own * (theta[i] - levels)
        spread = np.sqrt(own + ((1 - own) * mixture.errors[:, 0]) ** 2)
        for end, share in ((posterior.lower[i, 0], 0.05), (posterior.upper[i, 0], 0.95)):
            if not posterior.lower[i, 0] < posterior.shrunken[i, 0] < posterior.upper[i, 0]:
                continue
            assert np.sum(probabilities[i] * stats.norm.cdf(end, centre, spread)) == pytest.approx(share, abs=1e-6)


def test_sets_hold_the_likeliest_clusters_until_the_level_is_reached() -> None:
    result = demo()[1]
    posterior = result.posterior
    assert posterior is not None
    for i, (probabilities, may) in enumerate(zip(posterior.probabilities, posterior.possible, strict=True)):
        order = np.argsort(-probabilities)
        needed = int(np.searchsorted(np.cumsum(probabilities[order]), 0.95)) + 1
        expected = {*order[:needed].tolist(), result.labels[i] - 1}
        assert set(np.flatnonzero(may).tolist()) == expected
    stricter = result.at(0.001).posterior
    assert stricter is not None
    assert stricter.possible.sum() >= posterior.possible.sum() or result.at(0.001).n_clusters < 3


def test_two_effects_and_rates_are_shrunken_on_the_scale_people_read() -> None:
    rng = np.random.default_rng(0)
    theta = np.repeat([[0.0, 0.0], [6.0, -6.0]], 10, axis=0) + rng.standard_normal((20, 2))
    two = fl.cluster(fl.Estimates(theta, np.ones((20, 2)), parts=["a", "b"]))
    row = two.to_dicts()[0]
    assert {"shrunken_a", "shrunken_b", "shrunken_lower_a", "shrunken_upper_b"} < set(row)
    assert len(two.clusters[0].simultaneous_ci or ()) == 2
    rates = fl.cluster(
        pd.DataFrame(
            {
                "g": np.repeat([f"g{i:02}" for i in range(20)], 300),
                "y": rng.random(6000) < np.repeat([0.02] * 10 + [0.2] * 10, 300),
            }
        ),
        "g",
        fl.rate("y"),
    )
    for group in rates.to_dicts():
        assert 0 <= group["shrunken_lower"] <= group["shrunken"] <= group["shrunken_upper"] <= 1
    assert rates.n_clusters == 2
    for cluster in rates.clusters:
        assert cluster.estimate == pytest.approx(cluster.observed, abs=1e-3)  # certain: events over trials


def test_levels_are_nearer_to_each_other_than_means_and_readout_stands_beside() -> None:
    rng = np.random.default_rng(12)
    theta = np.repeat([0.0, 2.5], 30) + rng.standard_normal(60)
    result = fl.cluster(fl.Estimates(theta, np.ones(60), n=np.full(60, 10)))
    assert result.n_clusters == 2
    low, high = (cluster.effects[0] for cluster in result.clusters)
    means = [theta[result.labels == i].mean() for i in (1, 2)]
    assert high.estimate - low.estimate < means[1] - means[0]
    assert [cluster.observed for cluster in result.clusters] == pytest.approx(means)
    data = json.loads(result.to_json())
    assert {"simultaneous_lower", "simultaneous_upper", "observed", "estimate"} < set(data["clusters"][0])
    lower, upper = result.clusters[0].simultaneous_ci or (0, 0)
    assert lower < means[0] < upper


def test_held_out_data_keep_their_plain_means() -> None:
    rng = np.random.default_rng(12)
    theta = np.repeat([0.0, 5.0], 30) + rng.standard_normal(60)
    result = fl.cluster(fl.Estimates(theta, np.ones(60)), guarantee="holdout")
    for i, cluster in enumerate(result.clusters):
        assert cluster.estimate == pytest.approx(result.estimates.theta[result.labels == i + 1].mean())
    assert "intervals" in {note.code for note in result.notes}
    assert result.posterior is not None


@pytest.mark.parametrize("errors", [np.ones(6), np.array([0.2, 0.5, 1.0, 1.0, 2.0, 4.0])])
def test_the_most_misleading_set_is_found(errors: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    sets = [list(s) for r in range(1, 7) for s in itertools.combinations(range(6), r)]
    largest = []
    for _ in range(3000):
        noise, weight = errors * rng.standard_normal(6), errors**-2.0
        largest.append(max(abs(np.sum((weight * noise)[s])) / np.sqrt(np.sum(weight[s])) for s in sets))
    assert any_cluster(errors, None, 0.05) == pytest.approx(np.quantile(largest, 0.95), rel=0.04)
    assert any_cluster(errors, np.full(6, 5.0), 0.05) > any_cluster(errors, None, 0.05)


def test_reach_is_that_of_the_design_and_falls_with_alpha() -> None:
    for groups, expected in ((5, 2.9), (21, 4.4), (40, 5.5), (102, 7.9), (1000, 21.6)):
        assert any_cluster(np.ones(groups), None, 0.05) == pytest.approx(expected, rel=0.03)
    reach = [any_cluster(np.ones(21), None, alpha) for alpha in (0.5, 0.1, 0.05, 0.01, 1e-4, 1e-8)]
    assert reach == sorted(reach)
    many = any_cluster(np.ones(200_000), None, 0.05)
    assert many == pytest.approx(any_cluster(np.ones(5000), None, 0.05) * np.sqrt(40), rel=0.05)


def test_a_comparison_without_estimates_has_no_belief() -> None:
    counts = np.array([[30.0, 70.0], [32.0, 68.0], [70.0, 30.0]])

    def alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.array([stats.chi2_contingency(np.array(pair)).pvalue for pair in zip(a, b, strict=True)])

    result = fl.cluster(fl.Similarity(counts, alike), guarantee="bonferroni")
    assert result.n_clusters == 2
    assert result.posterior is None
    assert result.clusters[0].ci is None
    assert result.clusters[0].simultaneous_ci is None
    assert "membership" not in result.to_dicts()[0]


def test_simultaneous_intervals_are_of_each_of_several_effects_also_with_estimated_standard_errors() -> None:
    rng = np.random.default_rng(4)
    se = np.column_stack([np.full(8, 0.5), rng.lognormal(0, 1, 8)])
    for apart in (0.0, 20.0):  # one cluster, and as many clusters as effects
        theta = se * rng.standard_normal((8, 2)) + np.repeat([[0.0], [apart]], 4, axis=0)
        result = fl.cluster(fl.Estimates(theta, se, dof=30.0))
        assert result.n_clusters == 1 + (apart > 0)
        widest = [any_cluster(se[:, i], np.full(8, 30.0), 0.025) for i in range(2)]
        for cluster in result.clusters:
            for effect, reach in zip(cluster.simultaneous_effects, widest, strict=True):
                assert (effect.upper - effect.lower) / 2 == pytest.approx(reach * effect.se)
