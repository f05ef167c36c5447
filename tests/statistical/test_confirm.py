"""Clusters chosen on old data, looked at on fresh ones: the level of every p, and the coverage of plain intervals."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from docs.figures import record_figure
from tests.statistical.grid import Cell, estimates_of
from tests.statistical.tally import scale_runs, wider

if TYPE_CHECKING:
    from collections.abc import Callable

    from faultlines.results import Clustering

pytestmark = pytest.mark.statistical
Rng = np.random.Generator


class Data(NamedTuple):
    """Estimates of one data set, and the true effect of every group as people read it."""

    estimates: fl.Estimates
    truth: np.ndarray[Any, Any]


def normal(levels: np.ndarray[Any, Any], rng: Rng, dof: float | None = None) -> Data:
    sigma = 0.5 + np.arange(len(levels)) % 4 / 2  # the same in old and fresh data
    seen = sigma if dof is None else sigma * np.sqrt(rng.chisquare(dof, len(levels)) / dof)
    return Data(fl.Estimates(levels + sigma * rng.standard_normal(len(levels)), seen, dof=dof), levels)


def rates(levels: np.ndarray[Any, Any], rng: Rng) -> Data:
    """From a table of counts, as from rows."""
    truth = 0.15 + 0.03 * levels
    trials = 150 + 100 * (np.arange(len(levels)) % 5)
    table = pd.DataFrame({"g": np.arange(len(levels)), "n": trials, "y": rng.binomial(trials, truth)})
    return Data(fl.measure(table, "g", fl.rate(fl.aggregated("n", sum="y"))).estimates, truth)


def skewed(levels: np.ndarray[Any, Any], rng: Rng) -> Data:
    """Differences of lognormal values in rows, 50 in every arm of a group; without any true difference."""
    estimates = estimates_of(Cell("difference", len(levels), "50", "lognormal", "50/50", "equal"), rng)
    assert estimates is not None
    return Data(estimates, np.zeros(len(levels)))


def two(levels: np.ndarray[Any, Any], rng: Rng) -> Data:
    cov = np.array([[1.0, 0.6], [0.6, 1.0]])
    effects = np.column_stack([levels, -levels])
    noise = rng.standard_normal(effects.shape) @ np.linalg.cholesky(cov).T
    return Data(
        fl.Estimates(effects + noise, None, effect_covariance=np.broadcast_to(cov, (len(levels), 2, 2))), effects
    )


KINDS: dict[str, Callable[[np.ndarray[Any, Any], Rng], Data]] = {
    "known": normal,
    "dof 30": lambda levels, rng: normal(levels, rng, 30.0),
    "dof 5": lambda levels, rng: normal(levels, rng, 5.0),
    "rates": rates,
    "skewed rows": skewed,
    "two effects": two,
}
EXACT = {"known", "two effects"}
RUNS = 1000


def found_in(data: Data, seed: int) -> Clustering | None:
    """Clusters of old data at a level at which there nearly always are some; the selection is real."""
    result = fl.cluster(data.estimates, alpha=0.95, guarantee=fl.Calibrated(draws=99, scan=False), seed=seed)
    level = result.path()[1 + seed % 2]  # two clusters, or three
    return result.cut(min(level.pvalue * 1.001, 0.999)) if level.pvalue < 0.99 else None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [6, 40])
def test_levels(kind: str, groups: int) -> None:
    """Nothing differs; clusters are chosen on old data. P that they differ, pair by pair, and within: exact at α."""
    rng = np.random.default_rng(groups)
    runs = scale_runs(RUNS)
    differ, pairs, within, confirmed = [], [], [], 0
    for i in range(runs):
        old = found_in(KINDS[kind](np.zeros(groups), rng), i)
        if old is None or old.n_clusters < 2:
            continue
        again = fl.confirm(old, KINDS[kind](np.zeros(groups), rng).estimates, seed=i)
        differ.append(again.pvalue)
        pairs += [pair.pvalue for pair in again.pairs]
        within += [cluster.pvalue_equal for cluster in again.clusters if len(cluster.members) > 1]
        confirmed += again.confirmed
    for name, p, slack in (("differ", differ, 0.01), ("pairs", pairs, 0.01), ("within", within, 0.015)):
        shares = [float(np.mean(np.array(p) < alpha)) for alpha in (0.01, 0.05, 0.2)]
        for share, alpha in zip(shares, (0.01, 0.05, 0.2), strict=True):
            record_figure("confirm", f"p of {name}; {kind}, {groups} groups; at {alpha}", share, len(p))
        for share, alpha in zip(shares, (0.01, 0.05, 0.2), strict=True):
            # Of estimated variances and of rows the tests are approximations, of known ones they are exact.
            error = 3.5 * math.sqrt(alpha * (1 - alpha) / len(p))
            assert share <= alpha + error + (0.0 if kind in EXACT else slack), (kind, name, alpha)
            if kind in EXACT:
                assert share >= alpha - error, (kind, name, alpha)
    record_figure("confirm", f"wrongly confirmed; {kind}, {groups} groups", confirmed / len(differ), len(differ))
    assert confirmed / len(differ) <= 0.025 + 3.5 * math.sqrt(0.025 / len(differ)) + 0.005


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "skewed rows"])
@pytest.mark.parametrize("apart", [0.0, 2.0, 5.0])
def test_plain_intervals_cover(kind: str, apart: float) -> None:
    """Effects of the chosen clusters, and their differences, on fresh data; weighted as the estimate is."""
    rng = np.random.default_rng(int(apart))
    levels = np.repeat([0.0, apart], [12, 8])
    effects, differences, retained = [], [], []
    for i in range(scale_runs(RUNS // 2)):
        old = found_in(KINDS[kind](levels, rng), i)
        if old is None or old.n_clusters < 2:
            continue
        fresh = KINDS[kind](levels, rng)
        again = fl.confirm(old, fresh.estimates)
        labels, targets = np.array(again.labels), []
        for cluster in again.clusters:
            mine = labels == cluster.number
            errors = fresh.estimates.errors[mine, 0]
            weight = fresh.estimates.scales[0].mass(errors)
            truth = fresh.truth[mine].reshape(mine.sum(), -1)[:, 0]
            targets.append(float(np.average(truth, weights=weight)))
            effect = cluster.effects[0]
            effects.append(effect.lower <= targets[-1] <= effect.upper)
        for pair in again.pairs:
            true = targets[pair.second - 1] - targets[pair.first - 1]
            differences.append(pair.differences[0].lower <= true <= pair.differences[0].upper)
        retained.append((again.clusters[-1].effects[0].estimate - again.clusters[0].effects[0].estimate,
                     targets[-1] - targets[0]))  # fmt: skip
    bias = float(np.mean([new - true for new, true in retained]))
    print(f"{kind}, {apart} apart: bias of the difference {bias:+.3f}")
    for column, inside in (("effects", effects), ("differences", differences)):
        record_figure("confirm", f"coverage; {kind}, {apart} apart; {column}", float(np.mean(inside)), len(inside))
        share, error = np.mean(inside), math.sqrt(0.05 * 0.95 / len(inside))
        low, high = (0.95, 0.95) if kind in EXACT else (0.935, 0.965)
        assert low - 3.5 * error <= share <= high + 3.5 * error, (kind, apart)


def test_what_came_back_is_what_there_is() -> None:
    """Old differences are exaggerated by selection; what is kept of them says by how much, and is unbiased."""
    rng = np.random.default_rng(3)
    old_gaps, new_gaps, true_gaps = [], [], []
    for i in range(scale_runs(1500)):
        levels = np.repeat([0.0, 1.5], 10)
        sigma = np.ones(20)
        before = fl.Estimates(levels + rng.standard_normal(20), sigma)
        old = fl.cluster(before, guarantee=fl.Calibrated(draws=99), seed=i)
        if old.n_clusters != 2:
            continue
        again = fl.confirm(old, fl.Estimates(levels + rng.standard_normal(20), sigma))
        old_gaps.append(again.pairs[0].original_differences[0])
        new_gaps.append(again.pairs[0].differences[0].estimate)
        means = [levels[old.labels == c].mean() for c in (1, 2)]
        true_gaps.append(means[1] - means[0])
    old_gap, new_gap, true_gap = (float(np.mean(gaps)) for gaps in (old_gaps, new_gaps, true_gaps))
    for column, gap, several in (("found", old_gap, old_gaps), ("came back", new_gap, new_gaps)):
        error = float(np.std(several)) / math.sqrt(len(several)) / true_gap
        name = f"difference to the true one; halves 1.5 se apart; {column}"
        record_figure("confirm", name, gap / true_gap, len(several), error=error, unit="×")
    assert abs(new_gap - true_gap) < 4 * math.sqrt(0.2 / len(old_gaps))
    assert old_gap > 1.3 * true_gap


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_verdicts(share: float) -> None:
    """What is said when so much of the old difference is there, with few and with many fresh data."""
    old = fl.cluster(fl.Estimates(np.repeat([0.0, 4.0], 10), np.ones(20)))
    rng = np.random.default_rng(1)
    for se in (0.5, 1.0, 2.0, 4.0, 8.0):
        runs = scale_runs(600)
        said = dict.fromkeys(("confirmed", "not confirmed", "inconclusive"), 0)
        for _ in range(runs):
            theta = np.repeat([0.0, 4.0 * share], 10) + se * rng.standard_normal(20)
            said[fl.confirm(old, fl.Estimates(theta, np.full(20, se))).verdict] += 1
        for verdict, times in said.items():
            record_figure("confirm", f"verdicts; {share:.0%} of the difference, se {se}; {verdict}", times / runs, runs)
        if share == 0.0:
            assert said["confirmed"] / runs <= 0.025 + 3.5 * math.sqrt(0.025 / runs)
            assert said["not confirmed" if se <= 1 else "inconclusive"] > 0.83 * runs
        if share == 1.0:
            assert said["not confirmed"] / runs <= 0.03 + wider(0.03, runs, 600)
        if share >= 0.5 and se <= 1:
            assert said["confirmed"] > 0.75 * runs
