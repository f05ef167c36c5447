"""Do thresholds and weights reduce differences on other rows, and when are clusters a better unit than groups?"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import faultlines as fl

pytestmark = pytest.mark.statistical

RUNS = 60
GROUPS = 60


def rows(levels: np.ndarray[Any, Any], size: int, rng: np.random.Generator) -> pl.DataFrame:
    """Groups whose scores, and outcomes with them, are higher or lower by their level."""
    group = np.repeat(np.arange(GROUPS), size)
    score = levels[group] + rng.standard_normal(group.size)
    outcome = (score + rng.standard_normal(group.size) > 0).astype(int)
    return pl.DataFrame({"group": group, "score": score, "outcome": outcome})


def left(chosen: fl.Thresholds, held: pl.DataFrame) -> float:
    """Typical distance of groups from the target on other rows, of which there are many."""
    rates = chosen.apply(held).group_by("group").agg(pl.col("prediction").mean())["prediction"].to_numpy()
    return float(np.sqrt(np.mean((rates - chosen.target) ** 2)))


def distances(levels: np.ndarray[Any, Any], size: int, seed: int) -> list[float]:
    """What thresholds for equal selection leave: one for all, by cluster, by group."""
    rng = np.random.default_rng(seed)
    tune, held = rows(levels, size, rng), rows(levels, 2000, rng)
    found = fl.cluster(tune, "group", fl.selection_rate(score="score", threshold=0.5))
    each = fl.Estimates(100.0 * np.arange(GROUPS), np.ones(GROUPS), range(GROUPS), attributes=["group"])
    one = fl.cluster(fl.Estimates(np.zeros(GROUPS), np.ones(GROUPS), range(GROUPS), attributes=["group"]))
    return [
        left(c.thresholds(tune, score="score"), held) for c in (one, found, fl.cluster(each, guarantee="bonferroni"))
    ]


def test_where_groups_are_few_kinds_clusters_leave_less_than_groups() -> None:
    levels = np.repeat([-0.6, 0.6], GROUPS // 2)
    single, by_cluster, by_group = np.mean([distances(levels, 30, seed) for seed in range(RUNS)], axis=0)
    print(f"single {single:.3f}, by cluster {by_cluster:.3f}, by group {by_group:.3f}")
    assert single > 0.2
    assert by_cluster < 0.04
    assert by_group > 0.07


def test_where_every_group_is_its_own_and_large_groups_leave_less() -> None:
    rng = np.random.default_rng(0)
    found = [distances(0.6 * rng.standard_normal(GROUPS), 1000, seed) for seed in range(20)]
    single, by_cluster, by_group = np.mean(found, axis=0)
    print(f"single {single:.3f}, by cluster {by_cluster:.3f}, by group {by_group:.3f}")
    assert by_group < by_cluster < single / 2


@pytest.mark.parametrize("metric", ["selection_rate", "true_positive_rate", "false_positive_rate"])
def test_a_second_look_finds_no_clusters_after_thresholds(metric: str) -> None:
    """Thresholds have errors of their own, so that the level is not α exactly; but what was there is gone."""
    levels = np.repeat([-0.6, 0.6], GROUPS // 2)
    made = getattr(fl, metric)
    outcome = () if metric == "selection_rate" else ("outcome",)
    before = after = 0
    for seed in range(RUNS):
        rng = np.random.default_rng(seed)
        tune, held = rows(levels, 400, rng), rows(levels, 400, rng)
        found = fl.cluster(tune, "group", made(*outcome, score="score", threshold=0.5))
        chosen = found.thresholds(tune, score="score", y_true="outcome", metric=metric)
        before += fl.cluster(held, "group", made(*outcome, score="score", threshold=0.5)).rejected
        after += fl.cluster(chosen.apply(held), "group", made(*outcome, y_pred="prediction")).rejected
    print(f"{metric}: claims before {before}, after {after}, of {RUNS}")
    assert before == RUNS
    assert after <= 0.2 * RUNS


def test_a_model_trained_with_weights_by_outcome_differs_less_and_with_those_of_sizes_as_before() -> None:
    from sklearn.linear_model import LogisticRegression

    levels = np.repeat([-0.6, 0.6], [GROUPS - 10, 10])
    gaps = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        train, held = (rows(levels, 200, rng).with_columns(low=pl.col("group") < GROUPS - 10) for _ in range(2))
        found = fl.cluster(train, "group", fl.mean("outcome"))
        assert found.n_clusters >= 2
        weights = [None, found.weights(train)["weight"], found.weights(train, label="outcome")["weight"]]
        for weight in weights:
            model = LogisticRegression().fit(train[["score", "low"]].to_numpy(), train["outcome"], weight)
            selected = held.with_columns(p=pl.Series(model.predict(held[["score", "low"]].to_numpy())))
            rates = selected.group_by("low").agg(pl.col("p").mean())["p"]
            gaps.append(abs(float(rates[0]) - float(rates[1])))
    none, sizes, outcomes = np.reshape(gaps, (10, 3)).mean(axis=0)
    print(f"gap: {none:.3f}, weights by size {sizes:.3f}, by outcome {outcomes:.3f}")
    assert sizes == pytest.approx(none, abs=0.01)
    assert outcomes < 0.45 * none
