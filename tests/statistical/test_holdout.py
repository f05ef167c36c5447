"""Several splits of a holdout: false positives, power, how much the seed decides, and the intervals that are shown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import faultlines as fl
from docs.figures import record_figure
from faultlines import simulate
from faultlines.guarantees.base import split_generator
from faultlines.guarantees.paper import held_out_log_pvalues
from tests.statistical.tally import scale_runs, wider

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.statistical
Floats = np.ndarray[Any, np.dtype[np.float64]]


def pvalues(levels: list[float], sizes: list[int], profile: simulate.Profile, runs: int, splits: int) -> Floats:
    """The p of every split, (runs, splits), of data sets with these true levels."""
    groups = sum(sizes)
    rng = np.random.default_rng([groups, int(10 * max(levels))])
    se = simulate.standard_errors(groups, profile, np.random.default_rng(5))
    theta = np.repeat(levels, sizes) + se * rng.standard_normal((runs, groups))
    log_p = [held_out_log_pvalues(theta, se, 0.5, split_generator(1, number)) for number in range(splits)]
    return np.maximum(np.exp(np.stack(log_p, axis=1)), 1e-300)


def quantile(p: Floats, share: float) -> Floats:
    k = math.ceil(share * p.shape[1])
    return np.asarray(np.sort(p, axis=1)[:, k - 1] * p.shape[1] / k)


def adaptive(p: Floats, least: float = 0.05) -> Floats:
    """Meinshausen, Meier and Bühlmann, with the best quantile from 5% on."""
    splits = p.shape[1]
    k = np.arange(max(1, math.ceil(least * splits)), splits + 1)
    return np.asarray((1 - math.log(least)) * np.min(np.sort(p, axis=1)[:, k - 1] * splits / k, axis=1))


# Ways to combine p that are valid whatever their dependence.
RULES: dict[str, Callable[[Floats], Floats]] = {
    "one split": lambda p: p[:, 0],
    "twice the median": lambda p: quantile(p, 0.5),
    "5 × 20% quantile": lambda p: quantile(p, 0.2),
    "10 × 10% quantile": lambda p: quantile(p, 0.1),
    "adaptive quantile": adaptive,
    "e × geometric mean": lambda p: math.e * np.exp(np.log(p).mean(axis=1)),
    "harmonic mean": lambda p: math.e * math.log(max(p.shape[1], 2)) / np.mean(1 / p, axis=1),
    "mean of e-values": lambda p: 1 / np.mean(0.5 / np.sqrt(p), axis=1),
}
TRUTHS: dict[str, tuple[list[float], list[int], simulate.Profile]] = {
    "nothing, 21": ([0.0], [21], "equal"),
    "nothing, 102": ([0.0], [102], "lognormal"),
    "halves of 21, 2 se": ([0.0, 2.0], [10, 11], "equal"),
    "halves of 21, 3 se": ([0.0, 3.0], [10, 11], "equal"),
    "halves of 102, 1.5 se": ([0.0, 1.5], [51, 51], "equal"),
    "one of 21, 5 se": ([0.0, 5.0], [20, 1], "equal"),
}


def claimed(p: Floats, rule: str, splits: int) -> tuple[float, float]:
    """The share of data sets with claims, and that in which two seeds disagree about it."""
    batches = p.shape[1] // splits
    claims = np.stack([RULES[rule](p[:, b * splits : (b + 1) * splits]) < 0.05 for b in range(batches)], axis=1)
    share = claims.mean(axis=1)
    return float(claims.mean()), float(np.mean(2 * share * (1 - share))) * batches / (batches - 1)


def test_ways_to_combine_splits() -> None:
    """The table of docs/guarantees.md: claims, and disagreement of two seeds, of every rule with 25 splits."""
    runs, rates = scale_runs(800), dict[tuple[str, str], tuple[float, float]]()
    for truth, how in TRUTHS.items():
        p = pvalues(*how, runs, 100)
        for rule in RULES:
            rates[truth, rule] = claimed(p, rule, 1 if rule == "one split" else 25)
            for column, share in zip(("reported", "seeds disagree"), rates[truth, rule], strict=True):
                record_figure("holdout", f"{column}; {rule}; {truth}", share, runs)
    for rule in RULES:
        for truth in ("nothing, 21", "nothing, 102"):
            assert rates[truth, rule][0] <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / runs)
    chosen = "10 × 10% quantile"
    for truth in list(TRUTHS)[2:]:
        assert rates[truth, chosen][0] > rates[truth, "one split"][0] + 0.04
        assert rates[truth, chosen][1] < 0.5 * rates[truth, "one split"][1]
        for rule in set(RULES) - {"one split", chosen}:
            assert rates[truth, chosen][0] >= rates[truth, rule][0] - 0.01, (truth, rule)


def test_more_splits_leave_less_to_the_seed() -> None:
    for truth in ("halves of 21, 2 se", "halves of 102, 1.5 se"):
        p = pvalues(*TRUTHS[truth], scale_runs(400), 200)
        shares = []
        for splits in (1, 5, 10, 25, 50, 100):
            claims, disagree = claimed(p, "10 × 10% quantile", splits)
            record_figure("holdout", f"seeds; {truth}, {splits} splits; reported", claims, len(p))
            record_figure("holdout", f"seeds; {truth}, {splits} splits; disagree", disagree, len(p))
            shares.append(disagree)
        assert shares[0] > 0.3
        assert shares[3] < 0.16
        assert shares[5] < 0.11


@pytest.mark.parametrize("kind", ["known", "dof 8", "rates", "two"])
def test_false_positives_of_the_default(kind: str) -> None:
    """The guarantee itself, with its 25 splits, from one effect to two, known and estimated errors, and counts."""
    rng, runs, claims = np.random.default_rng(0), scale_runs(250), 0
    for i in range(runs):
        data: Any
        if kind == "rates":
            trials = rng.integers(200, 1200, 21)
            data = fl.binomial(rng.binomial(trials, 0.2), trials)
        elif kind == "two":
            data = fl.Estimates(rng.standard_normal((15, 2)), np.ones((15, 2)))
        else:
            data = simulate.null(21, profile="lognormal", dof=8.0 if kind == "dof 8" else None, seed=rng).estimates
        claims += fl.cluster(data, guarantee="holdout", seed=i).rejected
    record_figure("holdout", f"false positives; 25 splits, {kind}", claims / runs, runs)
    assert claims / runs <= 0.05 + wider(0.05, runs, 250)


@pytest.mark.parametrize("apart", [1.5, 2.0, 3.0, 6.0])
def test_intervals_of_the_split_that_is_shown(apart: float) -> None:
    """Coverage, bias of the difference, and agreement with the truth: one split, and the most typical of 25."""
    truth = np.repeat([0.0, apart], [11, 10])
    rng = np.random.default_rng(int(10 * apart))
    intervals: dict[int, list[tuple[float, float, float]]] = {1: [], 25: []}
    runs = scale_runs(300)
    for i in range(runs):
        data = fl.Estimates(truth + rng.standard_normal(21), np.ones(21))
        for splits, several in intervals.items():
            result = fl.cluster(data, guarantee=fl.Holdout(splits=splits), seed=i)
            if result.n_clusters < 2:
                continue
            means = [float(truth[result.labels == c].mean()) for c in range(1, result.n_clusters + 1)]
            effects = [cluster.effects[0] for cluster in result.clusters]
            inside = [e.lower <= mean <= e.upper for e, mean in zip(effects, means, strict=True)]
            bias = effects[-1].estimate - effects[0].estimate - (means[-1] - means[0])
            several.append((float(np.mean(inside)), bias, float(adjusted_rand_score(truth > 0, result.labels))))
    for splits, several in intervals.items():
        cover, bias, agreement = np.mean(several, axis=0)
        where = f"the split that is shown; {apart} se apart, {splits} splits"
        record_figure("holdout", f"{where}; reported", len(several) / runs, runs)
        record_figure("holdout", f"{where}; covered", cover, len(several))
        error = float(np.std([rand for _, _, rand in several])) / math.sqrt(len(several))
        record_figure("holdout", f"{where}; Rand index", agreement, len(several), error=error, unit="number")
    cover, bias, agreement = np.mean(intervals[25], axis=0)
    assert cover >= 0.93 - 3 * math.sqrt(0.05 * 0.95 / (2 * len(intervals[25])))
    assert agreement > np.mean(intervals[1], axis=0)[2] - 0.02
    if apart >= 3:
        assert abs(bias) < 0.25


def test_finer_clusters_than_there_are() -> None:
    """Where there are two clusters, a partition that has two equal clusters is reported in at most 5% of data sets."""
    for low, high in ((10, 11), (18, 3)):
        for apart in (2.0, 4.0, 8.0):
            effects, rng, false, runs = (
                np.repeat([0.0, apart], [low, high]),
                np.random.default_rng(low),
                0,
                scale_runs(150),
            )
            for i in range(runs):
                data = fl.Estimates(effects + rng.standard_normal(low + high), np.ones(low + high))
                result = fl.cluster(data, guarantee="holdout", seed=i)
                means = [round(float(effects[result.labels == c].mean()), 9) for c in range(1, result.n_clusters + 1)]
                false += len(set(means)) < len(means)
            record_figure("holdout", f"equal clusters; {low} + {high} groups; {apart} se apart", false / runs, runs)
            assert false / runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)
