"""Do weights reduce differences on other rows?"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import faultlines as fl

pytestmark = pytest.mark.statistical

GROUPS = 60


def rows(levels: np.ndarray[Any, Any], size: int, rng: np.random.Generator) -> pl.DataFrame:
    """Groups whose scores, and outcomes with them, are higher or lower by their level."""
    group = np.repeat(np.arange(GROUPS), size)
    score = levels[group] + rng.standard_normal(group.size)
    outcome = (score + rng.standard_normal(group.size) > 0).astype(int)
    return pl.DataFrame({"group": group, "score": score, "outcome": outcome})


def test_a_model_trained_with_weights_by_outcome_differs_less_and_with_those_of_sizes_as_before() -> None:
    from sklearn.linear_model import LogisticRegression

    levels = np.repeat([-0.6, 0.6], [GROUPS - 10, 10])
    gaps = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        train, held = (rows(levels, 200, rng).with_columns(low=pl.col("group") < GROUPS - 10) for _ in range(2))
        result = fl.cluster(train, "group", fl.mean("outcome"))
        assert result.n_clusters >= 2
        weights = [None, result.weights(train)["weight"], result.weights(train, label="outcome")["weight"]]
        for weight in weights:
            model = LogisticRegression().fit(train[["score", "low"]].to_numpy(), train["outcome"], weight)
            selected = held.with_columns(p=pl.Series(model.predict(held[["score", "low"]].to_numpy())))
            rates = selected.group_by("low").agg(pl.col("p").mean())["p"]
            gaps.append(abs(float(rates[0]) - float(rates[1])))
    none, sizes, outcomes = np.reshape(gaps, (10, 3)).mean(axis=0)
    print(f"gap: {none:.3f}, weights by size {sizes:.3f}, by outcome {outcomes:.3f}")
    assert sizes == pytest.approx(none, abs=0.01)
    assert outcomes < 0.45 * none
