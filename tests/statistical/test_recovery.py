"""Is what is there found, and no more than that? Run by `make stats`; each test prints its figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

import faultlines as fl
from docs.figures import record_figure, share_error
from faultlines import simulate
from tests.statistical.tally import scale_runs, wider

if TYPE_CHECKING:
    from faultlines.results import Clustering

pytestmark = pytest.mark.statistical


def exactly_recovered(result: Clustering, truth: np.ndarray, cluster: int) -> bool:
    return any(np.array_equal(result.labels == i, truth == cluster) for i in range(1, result.n_clusters + 1))


def test_asia_is_recovered_from_an_effect_of_a_fifth_on() -> None:
    """The paper's example at μ = 4/19; its own rule finds Asia in about one run in twenty."""
    runs = scale_runs(400)
    ours = literal = 0
    for seed in range(runs):
        simulated = simulate.asia_africa(4 / 19, seed=seed)
        ours += exactly_recovered(
            fl.cluster(simulated.estimates, guarantee=fl.Calibrated(draws=499)), simulated.truth, 1
        )
        rule = fl.cluster(simulated.estimates, guarantee="bonferroni", refine=False)
        literal += exactly_recovered(rule, simulated.truth, 1)
    record_figure("recovery", "Asia recovered; μ = 4/19; calibrated", ours / runs, runs)
    record_figure("recovery", "Asia recovered; μ = 4/19; the paper's rule", literal / runs, runs)
    assert ours / runs >= 0.98 - wider(0.98, runs, 400)
    assert literal / runs <= 0.05 + 3 * share_error(0.05, runs)


@pytest.mark.parametrize("profile", ["equal", "lognormal"])
@pytest.mark.parametrize(("effects", "sizes"), [([0, 12], [20, 20]), ([0, 12], [60, 40]), ([-12, 0, 12], [15, 20, 15])])
def test_separated_clusters_are_not_split_further(
    effects: list[float], sizes: list[int], profile: simulate.Profile
) -> None:
    runs = scale_runs(400)
    counts = []
    for seed in range(runs):
        simulated = simulate.planted(effects, sizes, profile=profile, seed=seed)
        counts.append(fl.cluster(simulated.estimates, guarantee=fl.Calibrated(draws=299)).n_clusters)
    more = float(np.mean(np.array(counts) > len(effects)))
    record_figure("recovery", f"more clusters than true, 12 se apart; {sizes}; {profile} se", more, runs)
    assert more <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
    assert np.mean(np.array(counts) >= 2) == 1.0


@pytest.mark.parametrize(("groups", "apart"), [(40, 2.0), (40, 3.0), (102, 1.0), (102, 2.0), (102, 3.0), (102, 5.0)])
def test_agreement_with_the_truth_is_not_below_a_mixture(groups: int, apart: float) -> None:
    """Adjusted Rand index against the fixed-variance Gaussian mixture with BIC; a tie is within 0.03."""
    runs = scale_runs(150)
    ours, mixture = [], []
    for seed in range(runs):
        simulated = simulate.planted([0, apart], [groups // 2, groups - groups // 2], seed=seed)
        result = fl.cluster(simulated.estimates, guarantee=fl.Calibrated(draws=499))
        ours.append(rand_index(result.labels, simulated.truth))
        mixture.append(rand_index(mixture_labels(simulated.estimates), simulated.truth))
    for name, several in (("calibrated", ours), ("mixture", mixture)):
        where = f"Rand index; {groups} groups, {apart} se apart; {name}"
        spread = float(np.std(several)) / math.sqrt(runs)
        record_figure("recovery", where, float(np.mean(several)), runs, error=spread, unit="number")
    error = float(np.std(np.subtract(ours, mixture)) / math.sqrt(runs))
    assert np.mean(ours) >= np.mean(mixture) - 0.03 - 2 * error


def rand_index(first: np.ndarray, second: np.ndarray) -> float:
    """Hubert and Arabie's adjusted index."""
    table = np.zeros((first.max() + 1, second.max() + 1))
    np.add.at(table, (first, second), 1)

    def pairs(counts: np.ndarray) -> float:
        return float(np.sum(counts * (counts - 1)) / 2)

    both, rows, columns = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = rows * columns / pairs(np.array([float(len(first))]))
    return 1.0 if rows + columns == 2 * expected else (both - expected) / ((rows + columns) / 2 - expected)


def mixture_labels(estimates: fl.Estimates, most: int = 5) -> np.ndarray:
    """EM for means and shares with every group's variance known; the number of components by BIC."""
    theta, se = estimates.theta, estimates.se
    best, labels = math.inf, np.ones(theta.size, dtype=int)
    for components in range(1, most + 1):
        mean = np.quantile(theta, (np.arange(components) + 0.5) / components)
        share = np.full(components, 1 / components)
        likelihood = -math.inf
        for _ in range(500):
            log = np.log(share) - 0.5 * ((theta[:, None] - mean) / se[:, None]) ** 2 - np.log(se[:, None])
            total = np.logaddexp.reduce(log, axis=1)
            weight = np.exp(log - total[:, None])
            share = np.maximum(weight.mean(axis=0), 1e-12)
            mean = (weight / se[:, None] ** 2 * theta[:, None]).sum(axis=0) / (weight / se[:, None] ** 2).sum(axis=0)
            if total.sum() - likelihood < 1e-9:
                break
            likelihood = float(total.sum())
        bic = -2 * likelihood + (2 * components - 1) * math.log(theta.size)
        if bic < best:
            best, labels = bic, weight.argmax(axis=1) + 1
    return labels
