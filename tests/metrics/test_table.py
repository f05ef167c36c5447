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
from tests.engines import rows

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
    assert {*entry.options, *(one for names in entry.columns for one in names)} == set(parameters)
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
    for other in (pickle.loads(pickle.dumps(metric)), copy.deepcopy(metric)):
        found = fl.measure(table, "device", other).estimates
        assert found.theta.tolist() == expected.theta.tolist()
        assert found.scale == expected.scale
        assert other.scale == metric.scale


def test_joint_and_aggregated_metrics_survive_a_pickle() -> None:
    pair = fl.joint(fl.lift("revenue", **ARMS), fl.difference("visits", weight="weight", **ARMS))
    thresholds = fl.joint(
        fl.true_positive_rate("label", score="score", threshold=0.5), fl.selection_rate("predicted"), fl.rate("premium")
    )
    table = rows(size=2000)
    for metric in (pair, thresholds):
        found = fl.measure(table, "device", pickle.loads(pickle.dumps(metric))).estimates
        np.testing.assert_array_equal(found.theta, fl.measure(table, "device", metric).estimates.theta)
    pickle.loads(pickle.dumps(fl.mean(fl.aggregated("n", mean="m", variance="v"))))


def test_rates_of_counts_need_no_variance() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": rng.choice(list("abc"), 3000), "day": rng.integers(0, 5, 3000)})
    data["y"] = (rng.random(3000) < 0.2).astype(int)
    table = data.groupby(["g", "day"], as_index=False).agg(n=("y", "size"), yes=("y", "sum"), share=("y", "mean"))
    expected = fl.measure(data, "g", fl.rate("y")).estimates
    for value in (fl.aggregated("n", sum="yes"), fl.aggregated("n", mean="share")):
        found = fl.measure(table, "g", fl.rate(value)).estimates
        for field in ("theta", "se", "n", "natural"):
            np.testing.assert_allclose(getattr(found, field), getattr(expected, field))
        assert found.scale == expected.scale
        assert found.scale.is_share
    odd = table.assign(yes=table.n + 1)
    with pytest.raises(fl.InputError, match=r"share below 0 or above 1 \(3\)"):
        fl.measure(odd, "g", fl.rate(fl.aggregated("n", sum="yes")))
    for make, words in (
        (lambda: fl.mean(fl.aggregated("n", sum="yes")), "variance=None, sum_squares=None: one of the two is needed"),
        (lambda: fl.lift(fl.aggregated("n", sum="yes"), **ARMS), "only rates can do without"),
        (lambda: fl.rate(fl.aggregated("n", sum="yes"), weight="w"), "weight='w': needs rows"),
        (lambda: fl.rate(fl.aggregated("n", sum="yes"), positive=1), "positive=1: needs rows"),
        (lambda: fl.aggregated("n", sum="s", variance="v", sum_squares="q"), "only one of the two"),
        (lambda: fl.aggregated("", sum="s"), "n='': is not the name of a column"),
    ):
        with pytest.raises(fl.InputError, match=words):
            make()


def test_errors_name_the_parameter_that_was_used() -> None:
    table = rows(size=200)
    for metric, words in (
        (fl.ratio("revenu", "visits"), "numer='revenu': no such column"),
        (fl.ratio("revenue", "visit"), "denom='visit': no such column"),
        (fl.ratio_lift("outcome", "visits", **ARMS), "numer='outcome': the column is not numeric"),
        (fl.lift("outcome", **ARMS), "value='outcome': the column is not numeric"),
        (fl.lift("revenue", covariate="outcome", **ARMS), "covariate='outcome': the column is not numeric"),
        (fl.mean("revenue", weight="outcome"), "weight='outcome': the column is not numeric"),
        (fl.brier("label", "revenue"), "score='revenue': holds"),
        (fl.accuracy("device", "predicted"), "y_true='device': holds 2, not only 0 and 1"),
        (fl.accuracy("outcome", "predicted", classes=True), "hold String and .*, which never agree"),
        (fl.precision("outcome", "label", positive="yes", classes=True), "but 'label' holds"),
        (fl.joint(fl.mean("revenue"), fl.mean("outcome")), r"value\[1\]='outcome'"),
    ):
        with pytest.raises(fl.InputError, match=words):
            fl.measure(table, "premium", metric)
    for make, words in (
        (lambda: fl.ratio(5, "visits"), "numer=5: is not the name of a column"),  # type: ignore[arg-type]
        (lambda: fl.ratio("visits", ""), "denom='': is not the name of a column"),
        (lambda: fl.mean("x", weight=5), "weight=5: is not the name of a column"),  # type: ignore[arg-type]
        (lambda: fl.auc("y", None), "score=None: is not the name of a column"),  # type: ignore[arg-type]
        (lambda: fl.difference("x", variant="a", control="b", covariate=5), "covariate=5"),  # type: ignore[arg-type]
        (lambda: fl.rate("y", positive=["a"]), r"positive=\['a'\]: is not a single value"),  # type: ignore[arg-type]
        (lambda: fl.lift("y", variant="v", control=["A"]), "control=.*is not a single value"),  # type: ignore[arg-type]
        (lambda: fl.auc("y", "s", bins=2.5), "bins=2.5"),  # type: ignore[arg-type]
        (lambda: fl.selection_rate(score="s", threshold=float("nan")), "threshold=nan"),
        (lambda: fl.selection_rate(score=5, threshold=0.5), "score=5"),  # type: ignore[arg-type]
        (lambda: fl.f1("y", "p", classes=True), "classes=True: needs the label that counts"),
        (lambda: fl.atkinson("x", 0), "epsilon=0: must be a number above 0"),
        (lambda: fl.atkinson("x", variant="arm"), "control=None: the control variant is needed"),
        (lambda: fl.atkinson("x", control="A"), "control='A': goes with variant"),
        (lambda: fl.atkinson("x", variant="v", control="A", treatment="A"), "is the control as well"),
        (lambda: fl.Input("x", per_unit="yes"), "per_unit='yes': must be true or false"),  # type: ignore[arg-type]
    ):
        with pytest.raises(fl.InputError, match=words):
            make()


def test_a_metric_of_ones_own_can_be_joined() -> None:
    own = fl.Metric("own", {"a": fl.Input("visits")}, lambda c: {"x": c["a"] * 2}, fl.mean("x").estimate)
    found = fl.measure(rows(), "device", fl.joint(own, fl.mean("revenue"))).estimates
    np.testing.assert_allclose(
        found.theta[:, 0], 2 * fl.measure(rows(), "device", fl.mean("visits")).estimates.theta, 0.05
    )
    broken = fl.Metric("own", {"a": fl.Input("visits")}, lambda c: {"x": c["b"]}, fl.mean("x").estimate)
    with pytest.raises(fl.InputError, match="has no input 'b'"):
        fl.joint(broken, fl.mean("revenue"))
