"""Rows to estimates: the same answer on every engine, and what happens to rows and groups that cannot be used."""

from __future__ import annotations

import os
import shutil
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import faultlines as fl
from tests.engines import ENGINES, SPARK, in_engine, rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ARMS = {"variant": "arm", "control": "A"}
METRICS: dict[str, tuple[Any, Any]] = {
    "mean": ("country", fl.mean("revenue")),
    "mean with NaN": (["country", "premium"], fl.mean("noisy")),
    "weighted mean": ("country", fl.mean("revenue", weight="weight")),
    "decimals": ("day", fl.mean("price")),
    "large integers": ("device", fl.mean("huge")),
    "rate": ("country", fl.rate("label")),
    "rate of two labels": ("device", fl.rate("outcome", positive="yes")),
    "ratio": ("country", fl.ratio("revenue", "visits")),
    "difference": (["country", "device"], fl.difference("revenue", **ARMS)),
    "lift": ("country", fl.lift("revenue", **ARMS)),
    "CUPED": ("country", fl.lift("revenue", covariate="before", **ARMS)),
    "weighted lift": ("country", fl.lift("revenue", weight="weight", **ARMS)),
    "ratio lift": ("country", fl.ratio_lift("revenue", "visits", **ARMS)),
    "true positive rate": ("country", fl.true_positive_rate("label", "predicted")),
    "precision": (["country", "day"], fl.precision("label", score="score", threshold=0.5)),
    "weighted accuracy": ("country", fl.accuracy("label", "predicted", weight="weight")),
    "equalized odds": ("country", fl.equalized_odds("label", "predicted")),
    "auc": ("country", fl.auc("label", "score")),
    "auc, binned": ("country", fl.auc("label", "score", bins=50)),
    "log loss": ("country", fl.log_loss("label", "score")),
    "calibration gap": ("premium", fl.calibration_gap("outcome", "score", positive="yes")),
    "absolute error": ("country", fl.mean_absolute_error("revenue", "before")),
    "age in fives": (fl.bins("age", width=5), fl.mean("revenue")),
    "income in quarters": ([fl.bins("income", quantiles=4), "device"], fl.mean("revenue")),
    "income at edges": (fl.bins("income", edges=[30_000, 60_000]), fl.mean("revenue")),
}


@pytest.fixture(scope="session")
def sparks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Real Spark, in one process and as a cluster of two executor processes; skipped without Java, never in CI."""
    if shutil.which("java") is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs Java for the Spark tests")
        yield {}
        return
    yield {"folder": tmp_path_factory.mktemp("spark")}


def spark_session(master: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        active = SparkSession.getActiveSession()
        if active is not None and active.sparkContext.master != master:
            active.stop()
        session = (
            SparkSession.builder.master(master)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "4")
            .getOrCreate()
        )
    session.sparkContext.setLogLevel("OFF")
    return session


@pytest.fixture(scope="module")
def reference() -> dict[str, fl.Measurement]:
    table = rows()
    return {name: fl.measure(table, by, metric) for name, (by, metric) in METRICS.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_answer_on_every_engine(
    engine: str, reference: dict[str, fl.Measurement], tmp_path: Path, sparks: dict[str, Any]
) -> None:
    masters = {"spark": "local[2]", "spark cluster": "local-cluster[2,1,1024]"}
    spark = spark_session(masters[engine]) if engine in SPARK and sparks else None
    data = in_engine(rows(), engine, tmp_path, spark)
    few = ["mean with NaN", "weighted lift", "CUPED", "precision", "auc", "age in fives", "income in quarters"]
    chosen = {"spark": few, "spark cluster": few[:1] + few[4:6]}.get(engine, list(METRICS))
    for name in chosen:
        by, metric = METRICS[name]
        found, expected = fl.measure(data, by, metric), reference[name]
        assert [str(label) for label in found.estimates.labels] == [str(label) for label in expected.estimates.labels]
        for field in ("theta", "se", "n", "dof", "natural"):
            ours, theirs = getattr(found.estimates, field), getattr(expected.estimates, field)
            if theirs is not None:
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, err_msg=f"{name}: {field}")
        assert found.dropped == expected.dropped, name
        assert [e.reason for e in found.excluded] == [e.reason for e in expected.excluded], name
    if spark is not None and engine == "spark cluster":
        spark.stop()


def refused(match: str, data: Any, by: Any, metric: Any, **options: Any) -> None:
    with pytest.raises(fl.InputError, match=match):
        fl.measure(data, by, metric, **options)


def test_columns_and_values_that_cannot_be_used_are_named() -> None:
    data = rows()
    refused(r"by='contry': no such column. Did you mean 'country'\?", data, "contry", fl.mean("revenue"))
    refused("value='revenu': no such column. Did you mean 'revenue'", data, "country", fl.mean("revenu"))
    refused("variant='arms': no such column", data, "country", fl.lift("revenue", variant="arms", control="A"))
    refused("unit='users': no such column", data, "country", fl.lift("revenue", unit="users", **ARMS))
    refused("'outcome': the column is not numeric", data, "country", fl.mean("outcome"))
    refused("'outcome': holds String, not 0/1 or booleans.*positive='no' or 'yes'", data, "device", fl.rate("outcome"))
    refused("'device': holds 2, not only 0 and 1", data, "country", fl.rate("device"))
    refused("'device': holds more than two values: 1, 2.0, 3.0", data, "country", fl.rate("device", positive=1))
    refused("'country': holds more than two values", data, "device", fl.rate("country", positive="DE"))
    refused("positive='yes': but 'label' holds Boolean", data, "device", fl.rate("label", positive="yes"))
    refused(r"'revenue': holds .* outside \[0, 1\]", data, "country", fl.log_loss("label", "revenue"))
    refused(r"outside \[0, 1\]", data, "country", fl.auc("label", "revenue", bins=100))
    refused(
        "control='C': no row of 'arm' has it. There are: 'A', 'B'",
        data,
        "device",
        fl.lift("revenue", variant="arm", control="C"),
    )
    refused("treatment='C': no row", data, "device", fl.lift("revenue", variant="arm", control="A", treatment="C"))
    refused(
        "has 5 variants beside 'DE'. Say which: treatment=",
        data,
        "device",
        fl.lift("revenue", variant="country", control="DE"),
    )
    refused("is not a metric", data, "country", "lift")
    refused("names no column", data, [], fl.mean("revenue"))
    refused("names a column twice", data, ["age", fl.bins("age", width=5)], fl.mean("revenue"))
    refused(r"bins\('country'\): the column is not numeric", data, fl.bins("country", width=5), fl.mean("revenue"))
    refused("min_size=-1", data, "country", fl.mean("revenue"), min_size=-1)
    refused(
        "n='country': the column is not numeric",
        data,
        "device",
        fl.mean(fl.aggregated("country", mean="age", variance="age")),
    )
    refused("data=int: is neither a frame nor a path", 5, "country", fl.mean("revenue"))


def test_metrics_that_make_no_sense_are_refused_before_any_row_is_read() -> None:
    for make, match in (
        (lambda: fl.true_positive_rate("label"), "one of the two is needed"),
        (lambda: fl.true_positive_rate("label", "p", score="s"), "one of the two is needed"),
        (lambda: fl.true_positive_rate("label", "p", threshold=0.5), "goes with score"),
        (lambda: fl.selection_rate(score="s"), "threshold=None: must be a number"),
        (lambda: fl.lift("x", variant="arm", control=None), "control=None"),
        (lambda: fl.lift("x", variant="arm", control="A", treatment="A"), "is the control as well"),
        (lambda: fl.lift(fl.aggregated("n", mean="m", variance="v"), variant="a", control="A", unit="u"), "need rows"),
        (lambda: fl.aggregated("n", mean="m", sum="s", variance="v"), "one of the two is needed"),
        (lambda: fl.aggregated("n", mean="m"), "one of the two is needed"),
        (lambda: fl.auc("label", "s", bins=1), "bins=1"),
        (lambda: fl.mean(""), "is not the name of a column"),
        (lambda: fl.bins("age"), "exactly one"),
        (lambda: fl.bins("age", width=0), "width=0"),
        (lambda: fl.bins("age", quantiles=1), "quantiles=1"),
        (lambda: fl.bins("age", edges=[3, 1]), "rising"),
    ):
        with pytest.raises(fl.InputError, match=match):
            make()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not a table")
    (tmp_path / "empty.csv").write_bytes(b"")
    for name, match in (
        ("none-*.parquet", "matches no file"),
        ("absent.parquet", "no such file"),
        ("broken.parquet", "cannot be read"),
        ("empty.csv", "is empty"),
    ):
        refused(match, tmp_path / name, "g", fl.mean("x"))
    (tmp_path / "t.csv").write_text("g,x\na,1\n")
    refused("mixes csv and parquet", [tmp_path / "broken.parquet", tmp_path / "t.csv"], "g", fl.mean("x"))
    (tmp_path / "odd[1].csv").write_text("g,x\n" + "a,1\na,2\n" * 30)
    (tmp_path / "odd1.csv").write_text("g,x\n" + "b,1\nb,2\n" * 30)
    assert list(fl.measure(tmp_path / "odd[1].csv", "g", fl.mean("x")).estimates.labels) == ["a"]


def test_units_in_two_places_are_counted() -> None:
    data = pd.DataFrame(
        {"g": ["a", "a", "b", "b"] * 30, "arm": ["A", "B"] * 60, "x": np.arange(120.0), "user": [1, 1, 2, 3] * 30}
    )
    refused("1 units are in more than one variant or group", data, "g", fl.lift("x", unit="user", **ARMS))


def test_what_is_left_out_is_counted_and_shown() -> None:
    rng = np.random.default_rng(0)
    frames = [
        pd.DataFrame({"g": "fine", "arm": ["A", "B"] * 50, "x": 10 + rng.standard_normal(100)}),
        pd.DataFrame({"g": "small", "arm": ["A", "B"] * 8, "x": 10 + rng.standard_normal(16)}),
        pd.DataFrame({"g": "one arm", "arm": ["A"] * 50, "x": 10 + rng.standard_normal(50)}),
        pd.DataFrame({"g": "constant", "arm": ["A", "B"] * 50, "x": 3.0}),
        pd.DataFrame({"g": "near zero", "arm": ["A", "B"] * 50, "x": rng.standard_normal(100)}),
        pd.DataFrame({"g": "all missing", "arm": ["A", "B"] * 50, "x": np.nan}),
        pd.DataFrame({"g": "other", "arm": ["C"] * 7, "x": 1.0}),
        pd.DataFrame({"g": None, "arm": ["A", "B"] * 50, "x": 10 + rng.standard_normal(100)}),
    ]
    data = pd.concat(frames, ignore_index=True)
    data.loc[:4, "x"] = np.nan
    found = fl.cluster(data, by="g", metric=fl.lift("x", variant="arm", control="A", treatment="B"))
    assert list(found.estimates.labels) == ["fine", "(missing)"]
    assert {left.label: left.reason for left in found.excluded} == {
        "small": "fewer than 20 rows in an arm",
        "one arm": "no rows in treatment",
        "constant": "zero variance",
        "near zero": "control mean within 5 standard errors of zero",
        "all missing": "no rows in control",
    }
    assert found.dropped == {"rows with a missing value": 105, "rows of other variants": 7}
    for shown in (str(found), found.to_markdown(), found._repr_html_()):
        assert "Left out: 105 rows with a missing value." in shown
        assert "Left out, zero variance: constant (1)." in shown
    assert found.summary()["dropped"] == dict(found.dropped)
    assert "NaN" not in found.to_json()


def test_very_many_groups_of_one_row_each_say_so() -> None:
    data = pl.DataFrame({"g": np.arange(200_000), "x": np.random.default_rng(0).standard_normal(200_000)})
    refused(r"none of 200,000 groups can be used: too few rows for a variance \(200,000\)", data, "g", fl.mean("x"))
    refused(
        r"none of 200,000 groups can be used: fewer than 20 rows", data.with_columns(x=pl.lit(1)), "g", fl.rate("x")
    )


def test_an_empty_frame_says_so() -> None:
    refused("data: has no rows", pd.DataFrame({"g": [], "x": []}).astype({"g": str, "x": float}), "g", fl.mean("x"))


def test_bins_read_as_ranges_and_sort_as_numbers() -> None:
    data = pd.DataFrame({"age": np.repeat([5, 18, 19, 23, 99, 101], 30), "x": np.random.default_rng(0).random(180)})
    fives = fl.measure(data, fl.bins("age", width=5), fl.mean("x")).estimates.labels
    assert [str(label) for label in fives] == ["5–9", "15–19", "20–24", "95–99", "100–104"]
    assert sorted(fives) == list(fives)  # type: ignore[type-var]
    edges = fl.measure(data, fl.bins("age", edges=[18, 65]), fl.mean("x")).estimates.labels
    assert [str(label) for label in edges] == ["below 18", "18 to 65", "65 or more"]
    halves = fl.measure(data.assign(age=data.age / 2), fl.bins("age", width=5), fl.mean("x")).estimates.labels
    assert str(halves[0]) == "0 to 5"
    quarters = fl.measure(data, fl.bins("age", quantiles=2), fl.mean("x")).estimates
    assert quarters.n is not None
    assert quarters.n.tolist() == [90, 90]


def test_pandas_intervals_and_periods_are_groups_too() -> None:
    data = pd.DataFrame({"when": pd.period_range("2026-01", periods=3, freq="M").repeat(30), "x": np.arange(90.0)})
    assert list(fl.measure(data, "when", fl.mean("x")).estimates.labels) == ["2026-01", "2026-02", "2026-03"]
    cut = data.assign(when=pd.cut(data.x, [-1, 29, 59, 90]))
    assert list(fl.measure(cut, "when", fl.mean("x")).estimates.labels) == ["(-1, 29]", "(29, 59]", "(59, 90]"]


def test_rows_and_estimates_are_told_apart() -> None:
    with pytest.raises(fl.InputError, match="rows need by= and metric="):
        fl.cluster(rows())
    with pytest.raises(fl.InputError, match="go with rows"):
        fl.cluster(fl.Estimates([1, 2], [1, 1]), by="g", metric=fl.mean("x"))


def test_infinities_do_not_become_results() -> None:
    data = pa.table({"g": ["a"] * 40 + ["b"] * 40, "x": [1.0, 2.0] * 20 + [np.inf, 1.0, 2.0, 3.0] * 10})
    found = fl.measure(data, "g", fl.mean("x"))
    assert np.all(np.isfinite(found.estimates.theta))
    assert found.dropped == {"rows with a missing value": 10}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "engine", ["pandas", "pandas nullable", "polars", "polars lazy", "pyarrow", "duckdb", "ibis", "spark"]
)
def test_clusters_and_weights_go_back_to_the_rows(engine: str, tmp_path: Path, sparks: dict[str, Any]) -> None:
    table = rows()
    spark = spark_session("local[2]") if engine in SPARK and sparks else None
    data = in_engine(table, engine, tmp_path, spark)
    groups: list[str | fl.Bins] = [fl.bins("income", quantiles=3), "country", "premium"]
    found = fl.cluster(data, by=groups, metric=fl.mean("revenue"), alpha=0.9, min_size=60)
    assert found.excluded
    assigned, weighted = found.assign(data), found.weights(data, column="w")
    assert type(assigned) is type(data) or engine == "ibis"
    result, weights = (to_pandas(frame).sort_values(["user", "revenue", "score"]) for frame in (assigned, weighted))
    assert len(result) == table.num_rows
    for cluster, whole in enumerate(found.clusters, start=1):
        assert (result["cluster"] == cluster).sum() >= (whole.n or 0)  # rows without revenue have a group as well
    assert result["cluster"].isna().sum() > 0
    assert weights["w"].mean() == pytest.approx(1)
    totals = weights["w"].to_numpy()[result["cluster"].notna().to_numpy()]
    by_cluster = pd.Series(totals).groupby(result["cluster"].dropna().astype(int).to_numpy()).sum()
    assert by_cluster.max() == pytest.approx(by_cluster.min())
    if engine in {"pandas", "polars", "pyarrow"}:
        assert to_pandas(assigned)["user"].tolist() == table["user"].to_pylist()
    with pytest.raises(fl.InputError, match="is there already"):
        found.assign(data, column="revenue")


def to_pandas(frame: Any) -> pd.DataFrame:
    if isinstance(frame, pd.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    for name in ("to_pandas", "df", "toPandas"):
        if hasattr(frame, name):
            return pd.DataFrame(getattr(frame, name)())
    raise TypeError(type(frame))


def test_estimates_assign_by_their_attributes() -> None:
    found = fl.cluster(fl.Estimates([0, 0.1, 9], [1, 1, 1], ["a", "b", "c"], attributes=["g"]))
    frame = pl.DataFrame({"g": ["c", "a", None, "z"], "x": [1, 2, 3, 4]})
    assert found.assign(frame)["cluster"].to_list() == [2, 1, None, None]
    with pytest.raises(fl.InputError, match="no such column"):
        found.assign(frame.rename({"g": "group"}))
    with pytest.raises(fl.InputError, match="is not a frame"):
        found.assign("rows.csv")
