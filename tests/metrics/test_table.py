"""The list of metrics is complete, says what each accepts, and every metric can be pickled."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.metrics.table import METRICS, of_family
from tests.engine_matrix import rows
from tests.refused import refused

ARMS: dict[str, Any] = {"variant": "arm", "control": "A", "treatment": "B"}
COLUMNS = {
    "value": "revenue",
    "numer": "revenue",
    "denom": "visits",
    "y_true": "label",
    "y_pred": "predicted",
    "score": "score",
}


def made(name: str, **options: Any) -> fl.Metric:
    entry = METRICS[name]
    columns = {names[0]: COLUMNS[names[0]] for names in entry.columns}
    if name == "rate":
        columns["value"] = "label"
    needed = ARMS if entry.family == "experiment" else {}
    return entry.function(**columns, **needed, **options)


@pytest.mark.parametrize("name", METRICS)
def test_the_table_knows_what_a_metric_takes(name: str) -> None:
    entry = METRICS[name]
    assert getattr(fl, name) is entry.function
    parameters = inspect.signature(entry.function).parameters
    assert {*entry.options, *(name for names in entry.columns for name in names)} == set(parameters)
    for option in ("weight", "threshold", "positive", "unit", "covariate", "bins", "epsilon", "classes"):
        assert entry.accepts(option) == (option in parameters)
    assert entry.summary.endswith(".")
    assert not entry.accepts("seed")
    for word in ("Args:", "Returns:", "Raises:", "Example:"):
        assert word in (entry.function.__doc__ or "")


def test_families() -> None:
    assert of_family("experiment") == ["difference", "lift", "ratio_difference", "ratio_lift"]
    assert of_family("population") == ["mean", "rate", "ratio", "atkinson"]
    assert "auc" in of_family("model")
    assert not METRICS["auc"].accepts("threshold")
    probe = "import sys, faultlines.metrics.table as t; t.METRICS['auc'].accepts('bins'); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("weight", [False, True])
def test_metrics_survive_a_pickle(name: str, weight: bool) -> None:
    if weight and not METRICS[name].accepts("weight"):
        pytest.skip("takes no weights")
    metric = made(name, **({"weight": "weight"} if weight else {}))
    table = rows(size=2000)
    expected = fl.measure(table, "device", metric).estimates
    other = copy.deepcopy(pickle.loads(pickle.dumps(metric)))
    estimates = fl.measure(table, "device", other).estimates
    assert estimates.theta.tolist() == expected.theta.tolist()
    assert estimates.scale == expected.scale
    assert other.scale == metric.scale


def test_joint_and_aggregated_metrics_survive_a_pickle() -> None:
    pair = fl.joint(fl.lift("revenue", **ARMS), fl.difference("visits", weight="weight", **ARMS))
    thresholds = fl.joint(
        fl.true_positive_rate("label", score="score", threshold=0.5), fl.selection_rate("predicted"), fl.rate("premium")
    )
    table = rows(size=2000)
    for metric in (pair, thresholds):
        estimates = fl.measure(table, "device", pickle.loads(pickle.dumps(metric))).estimates
        np.testing.assert_array_equal(estimates.theta, fl.measure(table, "device", metric).estimates.theta)
    pickle.loads(pickle.dumps(fl.mean(fl.aggregated("n", mean="m", variance="v"))))


def test_rates_of_counts_need_no_variance() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": rng.choice(list("abc"), 3000), "day": rng.integers(0, 5, 3000)})
    data["y"] = (rng.random(3000) < 0.2).astype(int)
    table = data.groupby(["g", "day"], as_index=False).agg(n=("y", "size"), yes=("y", "sum"), share=("y", "mean"))
    expected = fl.measure(data, "g", fl.rate("y")).estimates
    for value in (fl.aggregated("n", sum="yes"), fl.aggregated("n", mean="share")):
        estimates = fl.measure(table, "g", fl.rate(value)).estimates
        for field in ("theta", "se", "n", "natural"):
            np.testing.assert_allclose(getattr(estimates, field), getattr(expected, field))
        assert estimates.scale == expected.scale
        assert estimates.scale.is_share
    odd = table.assign(yes=table.n + 1)
    with refused("no groups: by"):
        fl.measure(odd, "g", fl.rate(fl.aggregated("n", sum="yes")))
    for make, words in (
        (lambda: fl.mean(fl.aggregated("n", sum="yes")), "missing: variance, sum_squares"),
        (lambda: fl.lift(fl.aggregated("n", sum="yes"), **ARMS), "missing: variance, sum_squares"),
        (lambda: fl.rate(fl.aggregated("n", sum="yes"), weight="w"), "unsupported: weight"),
        (lambda: fl.rate(fl.aggregated("n", sum="yes"), positive=1), "unsupported: positive"),
        (lambda: fl.aggregated("n", sum="s", variance="v", sum_squares="q"), "conflict: variance, sum_squares"),
        (lambda: fl.aggregated("", sum="s"), "wrong type: n"),
    ):
        with refused(words):
            make()


def test_errors_name_the_parameter_that_was_used() -> None:
    table = rows(size=200)
    for metric, words in (
        (fl.ratio("revenu", "visits"), "column not found: numer"),
        (fl.ratio("revenue", "visit"), "column not found: denom"),
        (fl.ratio_lift("outcome", "visits", **ARMS), "wrong type: numer"),
        (fl.lift("outcome", **ARMS), "wrong type: value"),
        (fl.lift("revenue", covariate="outcome", **ARMS), "wrong type: covariate"),
        (fl.mean("revenue", weight="outcome"), "wrong type: weight"),
        (fl.brier("label", "revenue"), "invalid data: score"),
        (fl.accuracy("device", "predicted"), "invalid data: y_true"),
        (fl.accuracy("outcome", "predicted", classes=True), "mismatch: y_true, y_pred"),
        (fl.precision("outcome", "label", positive="maybe", classes=True), "not found: positive"),
        (fl.joint(fl.mean("revenue"), fl.mean("outcome")), "wrong type: value[1]"),
    ):
        with refused(words):
            fl.measure(table, "premium", metric)
    for make, words in (
        (lambda: fl.ratio(5, "visits"), "wrong type: numer"),  # type: ignore[arg-type]
        (lambda: fl.ratio("visits", ""), "wrong type: denom"),
        (lambda: fl.mean("x", weight=5), "wrong type: weight"),  # type: ignore[arg-type]
        (lambda: fl.auc("y", None), "wrong type: score"),  # type: ignore[arg-type]
        (lambda: fl.difference("x", variant="a", control="b", covariate=5), "wrong type: covariate"),  # type: ignore[arg-type]
        (lambda: fl.rate("y", positive=["a"]), "wrong type: positive"),  # type: ignore[arg-type]
        (lambda: fl.lift("y", variant="v", control=["A"]), "wrong type: control"),  # type: ignore[arg-type]
        (lambda: fl.auc("y", "s", bins=2.5), "out of range: bins"),  # type: ignore[arg-type]
        (lambda: fl.selection_rate(score="s", threshold=float("nan")), "wrong type: threshold"),
        (lambda: fl.selection_rate(score=5, threshold=0.5), "wrong type: score"),  # type: ignore[arg-type]
        (lambda: fl.f1("y", "p", classes=True), "missing: classes"),
        (lambda: fl.atkinson("x", 0), "out of range: epsilon"),
        (lambda: fl.atkinson("x", variant="arm"), "missing: control"),
        (lambda: fl.atkinson("x", control="A"), "conflict: control"),
        (lambda: fl.atkinson("x", variant="v", control="A", treatment="A"), "invalid: treatment"),
        (lambda: fl.Input("x", per_unit="yes"), "wrong type: per_unit"),  # type: ignore[arg-type]
    ):
        with refused(words):
            make()


def test_a_metric_of_ones_own_can_be_joined() -> None:
    own = fl.Metric("own", {"a": fl.Input("visits")}, lambda c: {"x": c["a"] * 2}, fl.mean("x").estimate)
    estimates = fl.measure(rows(), "device", fl.joint(own, fl.mean("revenue"))).estimates
    np.testing.assert_allclose(
        estimates.theta[:, 0], 2 * fl.measure(rows(), "device", fl.mean("visits")).estimates.theta, 0.05
    )
    broken = fl.Metric("own", {"a": fl.Input("visits")}, lambda c: {"x": c["b"]}, fl.mean("x").estimate)
    with refused("not found: metric"):
        fl.joint(broken, fl.mean("revenue"))
