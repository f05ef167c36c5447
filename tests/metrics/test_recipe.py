"""A metric as plain data and back."""

from __future__ import annotations

import datetime
import json
import pickle
from typing import Any

import numpy as np
import pytest

import faultlines as fl
from faultlines.metrics.names import metric_of, plain_recipe
from faultlines.metrics.table import METRICS
from tests.refused import refused

ARGUMENTS: dict[str, Any] = {
    "cap": "99%",
    "aggregate": "mean",
    "value": "x", "numer": "x", "denom": "y", "variant": "arm", "control": "A", "treatment": "B", "unit": "user",
    "covariate": "z", "weight": "w", "y_true": "t", "y_pred": "p", "score": "s", "positive": 1, "bins": 9,
    "overlap": "covariance", "epsilon": 2, "classes": True, "shares": {"A": 0.5, "B": 0.5},
}  # fmt: skip


def made(name: str) -> fl.Metric:
    """A metric with everything it takes."""
    entry = METRICS[name]
    chosen = {names[0]: ARGUMENTS[names[0]] for names in entry.columns}
    chosen |= {option: ARGUMENTS[option] for option in entry.options if option != "threshold"}
    return entry.function(**chosen)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_comes_back(name: str) -> None:
    metric = made(name)
    recipe = plain_recipe(metric)
    assert recipe is not None
    assert recipe["name"] == name
    back = metric_of(json.loads(json.dumps(recipe)))
    for field in ("name", "inputs", "arms", "unit", "centred", "scale", "ranking", "parts", "min_size", "recipe"):
        ours, theirs = getattr(back, field), getattr(metric, field)
        assert (dict(ours.arguments) == dict(theirs.arguments)) if field == "recipe" else (ours == theirs), field
    assert pickle.loads(pickle.dumps(metric)).recipe == metric.recipe


def test_metrics_of_metrics_and_of_tables() -> None:
    both = fl.joint(fl.rate("p"), fl.mean("x"))
    recipe = plain_recipe(both)
    assert metric_of(json.loads(json.dumps(recipe))).parts == both.parts
    table = fl.difference(fl.aggregated("n", mean="m", variance="v"), variant="arm", control=np.int64(0))
    back = metric_of(json.loads(json.dumps(plain_recipe(table))))
    assert back.aggregated == table.aggregated
    assert back.arms == table.arms


def test_what_cannot_be_said_is_not_said() -> None:
    by_hand = fl.Metric("spend", {"x": fl.Input("spend")}, lambda c: {"x": c["x"]}, fl.mean("spend").estimate)
    assert plain_recipe(by_hand) is None
    assert plain_recipe(fl.joint(fl.mean("x"), by_hand)) is None
    dated = fl.difference("x", variant="day", control=datetime.date(2024, 1, 1))
    assert plain_recipe(dated) is None


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (None, "missing: metric"),
        ({"name": "rate"}, "missing: metric"),
        ({"name": "rat", "arguments": {}}, "unknown: metric"),
        ({"name": ["rate"], "arguments": {}}, "unknown: metric"),
        ({"name": "rate", "arguments": {}}, "invalid: metric"),
        ({"name": "rate", "arguments": {"value": {"aggregated": {"m": "x"}}}}, "empty: metric"),
        ({"name": "rate", "arguments": {"value": {"aggregated": 5}}}, "empty: metric"),
        ({"name": "joint", "arguments": {}}, "too few: metrics"),
        ({"name": "joint", "arguments": {"metrics": [{"name": "rate"}]}}, "missing: metric"),
    ],
)
def test_recipes_of_something_else(recipe: Any, words: str) -> None:
    with refused(words):
        metric_of(recipe)
