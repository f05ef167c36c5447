"""Rows to estimates: the same answer on every engine, and what happens to rows and groups that cannot be used."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import faultlines as fl
from faultlines.estimates.labels import key_of, reading
from faultlines.estimates.reasons import DropCode
from faultlines.metrics.measure import Split, measure_all, measure_parts
from tests.engine_matrix import ENGINES, SPARK, in_engine, rows
from tests.refused import refused
from tests.rows.spark import spark_session

if TYPE_CHECKING:
    from pathlib import Path

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}
ARMS_OF_USERS: dict[str, Any] = {"variant": "arm_of_user", "control": "A"}
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
    "weighted auc": ("country", fl.auc("label", "score", weight="weight")),
    "change of auc": ("country", fl.paired(fl.auc("label", "score"), fl.auc("label", "noisy"))),
    "weighted odds": ("country", fl.equalized_odds("label", "predicted", weight="weight")),
    "F1": ("country", fl.f1("label", "predicted")),
    "weighted F1": ("country", fl.f1("outcome", score="score", threshold=0.5, positive="yes", weight="weight")),
    "balanced accuracy": ("country", fl.balanced_accuracy("label", "predicted")),
    "weighted balanced accuracy": ("country", fl.balanced_accuracy("label", "predicted", weight="weight")),
    "several classes": ("country", fl.accuracy("device", "visits", classes=True)),
    "one of several classes": ("country", fl.selection_rate("device", positive=2, classes=True)),
    "calibration slope": ("country", fl.calibration_slope("label", "score")),
    "inequality": ("country", fl.atkinson("revenue", 0.5)),
    "inequality, logarithms": ("country", fl.atkinson("revenue", 1, **ARMS)),
    "inequality of users": ("device_of_user", fl.atkinson("revenue", 2, unit="user", **ARMS_OF_USERS)),
    "log loss": ("country", fl.log_loss("label", "score")),
    "calibration gap": ("premium", fl.calibration_gap("outcome", "score", positive="yes")),
    "absolute error": ("country", fl.mean_absolute_error("revenue", "before")),
    "age in fives": (fl.bins("age", width=5), fl.mean("revenue")),
    "income in quarters": ([fl.bins("income", quantiles=4), "device"], fl.mean("revenue")),
    "two at once": ("country", fl.joint(fl.lift("revenue", **ARMS), fl.difference("noisy", weight="weight", **ARMS))),
    "rates at once": ("country", fl.joint(fl.true_positive_rate("label", "predicted"), fl.rate("premium"))),
    "income at edges": (fl.bins("income", edges=[30_000, 60_000]), fl.mean("revenue")),
}


FEW = ["mean with NaN", "two at once", "auc", "age in fives", "income in quarters"]


@cache
def reference(name: str) -> fl.Measurement:
    by, metric = METRICS[name]
    return fl.measure(rows(), by, metric)


def choose_metrics(engine: str, every: int) -> list[str]:
    """A few for Spark; else one in so many metrics, other ones for every engine."""
    sparse = {"spark": FEW, "spark cluster": [FEW[0], FEW[2]]}
    return sparse.get(engine) or list(METRICS)[ENGINES.index(engine) % every :: every]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.statistical)])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_answer_on_every_engine(engine: str, every: int, tmp_path: Path, sparks: dict[str, Any]) -> None:
    if engine == "spark cluster" and not os.environ.get("CI"):
        pytest.skip("a cluster takes half a minute: in CI, or with CI=true")
    masters = {"spark": "local[2]", "spark cluster": "local-cluster[2,1,1024]"}
    spark = spark_session(masters[engine]) if engine in SPARK and sparks else None
    data = in_engine(rows(), engine, tmp_path, spark)
    for name in choose_metrics(engine, every):
        by, metric = METRICS[name]
        measurement, expected = fl.measure(data, by, metric), reference(name)
        names, other = ([reading(key_of(label)) for label in m.estimates.labels] for m in (measurement, expected))
        assert names == other, name  # csv has text where frames have numbers
        for field in ("theta", "se", "n", "dof", "natural", "effect_covariance"):
            ours, theirs = getattr(measurement.estimates, field), getattr(expected.estimates, field)
            if theirs is not None:
                close = 1e-12 * np.abs(theirs[np.isfinite(theirs)]).max()
                np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=close, err_msg=f"{name}: {field}")
        assert measurement.dropped == expected.dropped, name
        assert [e.reason for e in measurement.excluded] == [e.reason for e in expected.excluded], name
    if engine != "spark cluster":
        check_parts(data, quick=engine not in {"pandas", "polars lazy", "ibis", "csv"})
    if spark is not None and engine == "spark cluster":
        spark.stop()


def check_parts(data: Any, *, quick: bool) -> None:
    """Rows divided by a hash of their unit: every unit in one part, all of them in some part, shares as asked for."""
    metric = fl.difference("revenue", unit="user", **ARMS_OF_USERS)
    shares = (0.3, 0.7)
    parts = measure_parts(data, "device_of_user", metric, shares, unit="user", seed=1, min_size=2)
    measurement = fl.measure(data, "device_of_user", metric, min_size=2)
    sizes = np.array([sized(part) for part in parts])
    np.testing.assert_array_equal(sizes.sum(axis=0), measurement.estimates.n)
    np.testing.assert_allclose(sizes.sum(axis=1) / sizes.sum(), shares, atol=0.05)
    if quick:
        return
    again = measure_parts(data, "device_of_user", metric, shares, unit="user", seed=1, min_size=2)
    other = measure_parts(data, "device_of_user", metric, shares, unit="user", seed=2, min_size=2)
    np.testing.assert_array_equal(parts[0].estimates.n, again[0].estimates.n)
    assert parts[0].estimates.theta.tolist() != other[0].estimates.theta.tolist()
    pooled = np.sum([part.estimates.theta * sized(part) for part in parts], axis=0) / sizes.sum(axis=0)
    np.testing.assert_allclose(pooled, measurement.estimates.theta, atol=4 * measurement.estimates.se.max())
    ranked = measure_parts(data, "device_of_user", fl.auc("label", "score"), shares, unit="user", min_size=2)
    counted = fl.measure(data, "device_of_user", fl.auc("label", "score"), min_size=2)
    np.testing.assert_array_equal(np.sum([sized(part) for part in ranked], axis=0), sized(counted))


def sized(part: fl.Measurement) -> np.ndarray:
    return np.asarray(part.estimates.n)


def test_holdout_of_rows_by_unit() -> None:
    """The tree from one part, judged on the other, both as if they had been measured alone."""
    rng = np.random.default_rng(0)
    users = pd.DataFrame({"user": np.arange(8000), "g": rng.integers(0, 10, 8000), "arm": rng.choice(["A", "B"], 8000)})
    rows = users.loc[np.repeat(np.arange(8000), rng.integers(1, 4, 8000))]
    rows["x"] = rng.standard_normal(len(rows)) + (rows.arm == "B") * np.where(rows.g < 5, 0, 0.7)
    metric = fl.difference("x", unit="user", **ARMS)
    result = fl.cluster(rows, by="g", metric=metric, guarantee=fl.Holdout(fraction=0.3, splits=1), seed=5)
    explored, held = measure_parts(rows, "g", metric, (0.7, 0.3), unit="user", seed=5)
    np.testing.assert_allclose(result.estimates.theta, held.estimates.theta, rtol=1e-9, atol=1e-12)
    assert result.n_clusters == 2
    assert result.labels.tolist() == [1] * 5 + [2] * 5
    assert result.judged.facts["split"] == "units"
    assert result.estimates.n is not None
    assert result.estimates.n.sum() + sized(explored).sum() == 8000
    folds = fl.cluster(rows, by="g", metric=metric, guarantee=fl.Folds(n=3), seed=5)
    assert folds.judged.facts["split"] == "units"
    assert folds.estimates.n is not None
    assert folds.estimates.n.sum() == 8000
    named = fl.cluster(rows, by="g", metric=fl.mean("x"), guarantee=fl.Holdout(unit="user", splits=2))
    assert named.judged.facts["split"] == "units"
    thinned = fl.cluster(rows, by="g", metric=fl.mean("x"), guarantee="holdout")
    assert thinned.judged.facts["split"] == "thinning"


def test_rows_are_divided_anew_in_one_scan() -> None:
    """Each time the parts are those of some users, none of whom is in both; what is shown belongs to the shown part."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"user": np.repeat(np.arange(3000), 2), "x": rng.standard_normal(6000), "y": 1.0})
    rows["g"] = rows.user % 6
    rows["x"] += np.where(rows.g < 3, 0, 0.5)
    metrics = [fl.mean("x"), fl.mean("y"), fl.auc("y", "x")]
    rows["y"] = (rows.x > rng.standard_normal(6000)).astype(float)
    split = Split("user", (0.5, 0.5), 7, times=5)
    for metric, parts in zip(metrics, measure_all(rows, "g", metrics, split=split), strict=True):
        assert len(parts) == 10
        measurement = fl.measure(rows, "g", metric)
        sizes = np.array([sized(part) for part in parts]).reshape(5, 2, 6)
        np.testing.assert_array_equal(sizes.sum(axis=1), np.broadcast_to(sized(measurement), (5, 6)))
        assert len({tuple(size) for size in sizes[:, 0].tolist()}) == 5
    first = measure_parts(rows, "g", metrics[0], (0.5, 0.5), unit="user", seed=7)
    again = measure_all(rows, "g", metrics[:1], split=split)[0]
    for part, other in zip(first, again[:2], strict=True):
        assert part.estimates.theta.tolist() == pytest.approx(other.estimates.theta.tolist())
    guarantee = fl.Holdout(unit="user", splits=5)
    result = fl.cluster(rows, by="g", metric=metrics[0], guarantee=guarantee, seed=7)
    shown = again[2 * int(result.judged.facts["shown split"]) - 1]
    assert result.judged.facts["splits"] == 5
    assert result.estimates.theta.tolist() == pytest.approx(shown.estimates.theta.tolist())
    assert result.readout is not None
    assert shown.readout is not None
    assert result.readout.moments.mean.tolist() == shown.readout.moments.mean.tolist()


def test_a_group_too_small_in_one_split_can_be_in_another() -> None:
    rng = np.random.default_rng(1)
    sizes = [200, 200, 24]
    rows = pd.DataFrame({"g": np.repeat([0, 1, 2], sizes), "user": np.arange(424), "x": rng.standard_normal(424)})
    split = Split("user", (0.5, 0.5), 3, times=12)
    parts = measure_all(rows, "g", [fl.mean("x")], split=split)[0]
    counts = {len(part.estimates) for part in parts}
    assert counts == {2, 3}
    result = fl.cluster(rows, by="g", metric=fl.mean("x"), guarantee=fl.Holdout(unit="user", splits=12), seed=3)
    shown = parts[2 * int(result.judged.facts["shown split"]) - 1]
    assert len(result.groups) == len(shown.estimates)
    assert result.excluded == shown.excluded
    tiny = rows[rows.g == 2].assign(g=lambda frame: frame.user % 2)
    with refused("no groups: by"):
        fl.cluster(tiny, by="g", metric=fl.mean("x"), guarantee=fl.Holdout(unit="user", splits=12))


def test_rows_that_cannot_be_divided() -> None:
    table = rows().to_pandas()
    few = table.head(300)
    with refused("no groups: by"):
        fl.cluster(few, by="country", metric=fl.mean("revenue"), guarantee=fl.Folds(n=60, unit="user"))
    held = fl.Holdout(0.15, unit="user", splits=2)
    some = fl.cluster(table.head(900), by="country", metric=fl.mean("revenue"), guarantee=held, min_size=20)
    assert any(left.reason.in_part for left in some.excluded)
    gaps = table.assign(user=table.user.where(table.user % 3 > 0))
    result = fl.cluster(gaps, by="country", metric=fl.mean("revenue"), guarantee=fl.Holdout(unit="user", splits=2))
    assert result.dropped[DropCode.MISSING_VALUE] > 1000
    with refused("column not found: unit"):
        fl.cluster(table, by="country", metric=fl.mean("revenue"), guarantee=fl.Holdout(unit="usr"))
    days = pd.DataFrame({"g": ["a", "b"], "n": [50, 60], "m": [1.0, 2.0], "v": [1.0, 1.0]})
    aggregated = fl.mean(fl.aggregated("n", mean="m", variance="v"))
    with refused("unsupported: unit"):
        fl.cluster(days, by="g", metric=aggregated, guarantee=fl.Holdout(unit="g"))


def check_refused(match: str, data: Any, by: Any, metric: Any, **options: Any) -> None:
    with refused(match):
        fl.measure(data, by, metric, **options)


def test_columns_and_values_that_cannot_be_used_are_named() -> None:
    data = rows()
    check_refused("column not found: by", data, "contry", fl.mean("revenue"))
    check_refused("column not found: value", data, "country", fl.mean("revenu"))
    check_refused("column not found: variant", data, "country", fl.lift("revenue", variant="arms", control="A"))
    check_refused("column not found: unit", data, "country", fl.lift("revenue", unit="users", **ARMS))
    check_refused("wrong type: value", data, "country", fl.mean("outcome"))
    check_refused("wrong type: value", data, "device", fl.rate("country"))  # yes and no would do
    check_refused("invalid data: value", data, "country", fl.rate("device"))
    check_refused("invalid data: value", data, "country", fl.rate("device", positive=1))
    check_refused("invalid data: value", data, "device", fl.rate("country", positive="DE"))
    check_refused("not found: positive", data, "device", fl.rate("label", positive="maybe"))
    check_refused("invalid data: score", data, "country", fl.log_loss("label", "revenue"))
    check_refused("invalid data: score", data, "country", fl.auc("label", "revenue", bins=100))
    check_refused(
        "not found: control",
        data,
        "device",
        fl.lift("revenue", variant="arm", control="C"),
    )
    check_refused("not found: treatment", data, "device", fl.lift("revenue", variant="arm", control="A", treatment="C"))
    check_refused(
        "ambiguous: variant",
        data,
        "device",
        fl.lift("revenue", variant="country", control="DE"),
    )
    check_refused("wrong type: metric", data, "country", "lift")
    check_refused("empty: by", data, [], fl.mean("revenue"))
    check_refused("duplicate: by", data, ["age", fl.bins("age", width=5)], fl.mean("revenue"))
    check_refused("wrong type: bins", data, fl.bins("country", width=5), fl.mean("revenue"))
    check_refused("out of range: min_size", data, "country", fl.mean("revenue"), min_size=-1)
    check_refused(
        "wrong type: n",
        data,
        "device",
        fl.mean(fl.aggregated("country", mean="age", variance="age")),
    )
    check_refused("wrong type: data", 5, "country", fl.mean("revenue"))


def test_metrics_that_make_no_sense_are_refused_before_any_row_is_read() -> None:
    for make, match in (
        (lambda: fl.true_positive_rate("label"), "missing: y_pred, score"),
        (lambda: fl.true_positive_rate("label", "p", score="s"), "missing: y_pred, score"),
        (lambda: fl.true_positive_rate("label", "p", threshold=0.5), "conflict: threshold"),
        (lambda: fl.selection_rate(score="s"), "wrong type: threshold"),
        (lambda: fl.lift("x", variant="arm", control=None), "missing: control"),
        (lambda: fl.lift("x", variant="arm", control="A", treatment="A"), "invalid: treatment"),
        (
            lambda: fl.lift(fl.aggregated("n", mean="m", variance="v"), variant="a", control="A", unit="u"),
            "unsupported: unit, covariate, weight, cap",
        ),
        (lambda: fl.aggregated("n", mean="m", sum="s", variance="v"), "missing: mean, sum"),
        (lambda: fl.mean(fl.aggregated("n", mean="m")), "missing: variance, sum_squares"),
        (lambda: fl.auc("label", "s", bins=1), "out of range: bins"),
        (lambda: fl.mean(""), "wrong type: value"),
        (lambda: fl.bins("age"), "missing: bins"),
        (lambda: fl.bins("age", width=0), "out of range: width"),
        (lambda: fl.bins("age", quantiles=1), "out of range: quantiles"),
        (lambda: fl.bins("age", edges=[3, 1]), "out of range: edges"),
    ):
        with refused(match):
            make()


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not a table")
    (tmp_path / "empty.csv").write_bytes(b"")
    for name, match in (
        ("none-*.parquet", "file not found: file"),
        ("absent.parquet", "file not found: file"),
        ("broken.parquet", "unreadable file: file"),
        ("empty.csv", "empty: file"),
    ):
        check_refused(match, tmp_path / name, "g", fl.mean("x"))
    (tmp_path / "t.csv").write_text("g,x\na,1\n")
    check_refused("unsupported: file", [tmp_path / "broken.parquet", tmp_path / "t.csv"], "g", fl.mean("x"))
    (tmp_path / "odd[1].csv").write_text("g,x\n" + "a,1\na,2\n" * 30)
    (tmp_path / "odd1.csv").write_text("g,x\n" + "b,1\nb,2\n" * 30)
    assert list(fl.measure(tmp_path / "odd[1].csv", "g", fl.mean("x")).estimates.labels) == ["a"]


def test_units_in_two_places_are_counted() -> None:
    data = pd.DataFrame(
        {"g": ["a", "a", "b", "b"] * 30, "arm": ["A", "B"] * 60, "x": np.arange(120.0), "user": [1, 1, 2, 3] * 30}
    )
    check_refused("invalid data: unit", data, "g", fl.lift("x", unit="user", **ARMS))


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
    result = fl.cluster(data, by="g", metric=fl.lift("x", variant="arm", control="A", treatment="B"))
    # Values that are all the same have a variance too: what the others suggest.
    assert list(result.estimates.labels) == ["constant", "fine", "(missing)"]
    assert result.estimates.se[0] > 0
    assert {left.label: (left.code, left.reason.arm) for left in result.excluded} == {
        "small": ("too small", "any"),
        "one arm": ("no rows", "treatment"),
        "near zero": ("mean near zero", "control"),
        "all missing": ("no rows", "control"),
        "other": ("no rows", "control"),
    }
    assert result.dropped == {"missing value": 105, "other variants": 7}
    for shown in (str(result), result.to_markdown(), result._repr_html_()):
        assert "105 rows with a missing value" in shown
        assert "fewer than 10 rows in an arm): small" in shown
    assert result.to_dict()["dropped"] == result.dropped
    assert "NaN" not in result.to_json()


def test_very_many_groups_of_one_row_each_say_so() -> None:
    data = pl.DataFrame({"g": np.arange(200_000), "x": np.random.default_rng(0).standard_normal(200_000)})
    check_refused("no groups: by", data, "g", fl.mean("x"))
    check_refused("no groups: by", data.with_columns(x=pl.lit(1)), "g", fl.rate("x"))


def test_an_empty_frame_says_so() -> None:
    check_refused("empty: data", pd.DataFrame({"g": [], "x": []}).astype({"g": str, "x": float}), "g", fl.mean("x"))


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
    with refused("missing: data"):
        fl.cluster(rows())
    with refused("conflict: by, metric"):
        fl.cluster(fl.Estimates([1, 2], [1, 1]), by="g", metric=fl.mean("x"))


def test_infinities_do_not_become_results() -> None:
    data = pa.table({"g": ["a"] * 40 + ["b"] * 40, "x": [1.0, 2.0] * 20 + [np.inf, 1.0, 2.0, 3.0] * 10})
    measurement = fl.measure(data, "g", fl.mean("x"))
    assert np.all(np.isfinite(measurement.estimates.theta))
    assert measurement.dropped == {"missing value": 10}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "engine", ["pandas", "pandas nullable", "polars", "polars lazy", "pyarrow", "duckdb", "ibis", "spark"]
)
def test_clusters_and_weights_go_back_to_the_rows(engine: str, tmp_path: Path, sparks: dict[str, Any]) -> None:
    table = rows()
    spark = spark_session("local[2]") if engine in SPARK and sparks else None
    data = in_engine(table, engine, tmp_path, spark)
    groups: list[str | fl.Bins] = [fl.bins("income", quantiles=3), "country", "premium"]
    clustering = fl.cluster(data, by=groups, metric=fl.mean("revenue"), alpha=0.9, min_size=60)
    assert clustering.excluded
    assigned, weighted = clustering.assign(data), clustering.weights(data, column="w")
    assert type(assigned) is type(data) or engine == "ibis"
    result, weights = (to_pandas(frame).sort_values(["user", "revenue", "score"]) for frame in (assigned, weighted))
    assert len(result) == table.num_rows
    for cluster, cluster_result in enumerate(clustering.clusters, start=1):
        assert (result["cluster"] == cluster).sum() >= (
            cluster_result.n or 0
        )  # rows without revenue have a group as well
    assert result["cluster"].isna().sum() > 0
    assert weights["w"].mean() == pytest.approx(1)
    totals = weights["w"].to_numpy()[result["cluster"].notna().to_numpy()]
    by_cluster = pd.Series(totals).groupby(result["cluster"].dropna().astype(int).to_numpy()).sum()
    assert by_cluster.max() == pytest.approx(by_cluster.min())
    if engine in {"pandas", "polars", "pyarrow"}:
        assert to_pandas(assigned)["user"].tolist() == table["user"].to_pylist()
    with refused("duplicate: column"):
        clustering.assign(data, column="revenue")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "engine", ["pandas", "pandas nullable", "polars", "polars lazy", "pyarrow", "duckdb", "ibis", "spark"]
)
def test_reweighing_is_the_same_everywhere(engine: str, tmp_path: Path, sparks: dict[str, Any]) -> None:
    table = rows()
    spark = spark_session("local[2]") if engine in SPARK and sparks else None
    data = in_engine(table, engine, tmp_path, spark)
    result = fl.cluster(table, by=["country", "premium"], metric=fl.mean("revenue"), alpha=0.9, min_size=100)
    assert result.excluded
    weights, expected = (
        to_pandas(result.weights(frame, column="w", label="label"))
        .sort_values(["user", "revenue", "score", "visits"])["w"]
        .to_numpy(dtype=float)
        for frame in (data, table)
    )
    assert weights == pytest.approx(expected, rel=1e-15, nan_ok=True)


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
    result = fl.cluster(fl.Estimates([0, 0.1, 9], [1, 1, 1], ["a", "b", "c"], attributes=["g"]))
    frame = pl.DataFrame({"g": ["c", "a", None, "z"], "x": [1, 2, 3, 4]})
    assert result.assign(frame)["cluster"].to_list() == [2, 1, None, None]
    with refused("column not found: by"):
        result.assign(frame.rename({"g": "group"}))
    with refused("wrong type: frame"):
        result.assign("rows.csv")


def test_columns_with_our_own_names_survive() -> None:
    base = pd.DataFrame({"g": ["a", "b"] * 50, "x": np.r_[np.zeros(100) + np.tile([0.0, 9.0], 50)]})
    base["x"] += np.random.default_rng(0).standard_normal(100)
    for name in ("k0", "whose", "value", "ok", "arm", "unit", "i_x", "v0", "rows", "n0"):
        data = base.rename(columns={"g": name})
        result = fl.cluster(data, by=name, metric=fl.mean("x"))
        assert result.n_clusters == 2
        for frame in (data, pl.from_pandas(data), pl.from_pandas(data).lazy()):
            assigned = to_pandas(result.assign(frame))
            assert list(assigned.columns) == [name, "x", "cluster"]
            assert assigned.groupby(name)["cluster"].first().to_dict() == {"a": 1, "b": 2}
    other = to_pandas(
        fl.cluster(base, by="g", metric=fl.mean("x")).assign(pl.from_pandas(base.assign(value=7.5)).lazy())
    )
    assert sorted(other["cluster"].unique()) == [1, 2]
    assert (other["value"] == 7.5).all()


def test_clusters_find_their_rows_however_keys_are_held() -> None:
    rng = np.random.default_rng(1)
    x = np.repeat([0.0, 9.0], 60) + rng.standard_normal(120)
    days = pd.to_datetime(["2026-01-01", "2026-01-02"]).repeat(60)
    for fitted, later in (
        (np.repeat([1, 2], 60), np.repeat([1.0, 2.0], 60)),
        (np.repeat([1.0, 2.0], 60), np.repeat([1, 2], 60)),
        (np.repeat(["1", "2"], 60), np.repeat([1, 2], 60)),
        (days, days),
        (days, days.astype(str)),
        (np.repeat([True, False], 60), np.repeat(["True", "False"], 60)),
    ):
        result = fl.cluster(pd.DataFrame({"g": fitted, "x": x}), by="g", metric=fl.mean("x"))
        assigned = result.assign(pd.DataFrame({"g": later, "x": x}))
        assert assigned["cluster"].tolist() == [1] * 60 + [2] * 60
    ages = pd.DataFrame({"age": np.repeat([22, 41], 60), "x": x})
    result = fl.cluster(ages, by=fl.bins("age", width=5), metric=fl.mean("x"))
    assert result.assign(ages.assign(age=ages.age + 0.5))["cluster"].tolist() == [1] * 60 + [2] * 60
    with refused("not found: frame"):
        result.assign(ages.assign(age=ages.age + 500))
    pairs = fl.cluster(fl.Estimates([0, 9], [1, 1], [("a · b", "c"), ("a", "b · c")], attributes=["p", "q"]))
    both = pl.DataFrame({"p": ["a · b", "a"], "q": ["c", "b · c"]})
    assert pairs.assign(both)["cluster"].to_list() == [1, 2]
    empty = result.assign(
        pl.DataFrame({"age": [], "x": []}, schema={"age": pl.Int64, "x": pl.Float64}).lazy()
    ).collect()
    assert empty.schema["cluster"] == pl.Int64


def test_files_of_different_types_are_united(tmp_path: Path) -> None:
    frame = pd.DataFrame({"g": ["a", "b"] * 50, "x": [1, 2] * 50})
    frame.to_parquet(tmp_path / "1.parquet")
    frame.assign(x=frame.x + 0.4).to_parquet(tmp_path / "2.parquet")
    estimates = fl.measure(str(tmp_path / "*.parquet"), "g", fl.mean("x")).estimates
    np.testing.assert_allclose(estimates.theta, [1.2, 2.2])
    folder = tmp_path / "g=Z"
    folder.mkdir()
    frame.assign(x=frame.x + np.random.default_rng(0).random(100)).to_parquet(folder / "3.parquet")
    assert list(fl.measure(folder / "3.parquet", "g", fl.mean("x")).estimates.labels) == ["a", "b"]
    frame.drop(columns="g").assign(x=np.arange(100.0)).to_parquet(folder / "3.parquet")
    check_refused("column not found: by", folder / "3.parquet", "g", fl.mean("x"))  # a folder's name is no column


def test_a_null_and_its_name_are_not_mixed_up() -> None:
    data = pd.DataFrame({"g": [None] * 50 + ["(missing)"] * 50, "x": np.arange(100.0)})
    check_refused("duplicate: by", data, "g", fl.mean("x"))


def test_units_and_variants_that_are_nan_are_left_out() -> None:
    rng = np.random.default_rng(2)
    unit = np.arange(400.0)
    unit[:40] = np.nan
    data = {"g": ["a", "b"] * 200, "arm": ["A"] * 200 + ["B"] * 200, "x": rng.standard_normal(400), "u": unit}
    for frame in (pl.DataFrame(data), pa.table(data), pd.DataFrame(data)):
        measurement = fl.measure(frame, "g", fl.difference("x", unit="u", **ARMS))
        assert measurement.dropped == {"missing value": 40}


def test_units_outside_the_comparison_do_not_matter() -> None:
    data = pd.DataFrame({"g": "a", "arm": ["A", "B", "C"] * 60, "x": np.arange(180.0) % 7, "u": np.arange(180)})
    data.loc[data.arm == "C", "u"] = data.loc[data.arm == "A", "u"].to_numpy()
    measurement = fl.measure(data, "g", fl.difference("x", unit="u", variant="arm", control="A", treatment="B"))
    assert measurement.dropped == {"other variants": 60}
    empty = data.assign(g=np.where(data.index < 9, "b", "a"), x=data.x.where(data.index >= 9))
    measurement = fl.measure(empty, "g", fl.difference("x", unit="u", variant="arm", control="A", treatment="B"))
    assert [(left.label, left.code, left.reason.arm) for left in measurement.excluded] == [("b", "no rows", "control")]


def test_values_on_an_edge_belong_above_it() -> None:
    data = pd.DataFrame({"z": np.repeat(np.arange(10) / 10, 30), "x": np.random.default_rng(0).random(300)})
    for frame in (data, pl.from_pandas(data)):
        estimates = fl.measure(frame, fl.bins("z", width=0.1), fl.mean("x")).estimates
        assert len(estimates) == 10
    beyond = data.assign(z=np.where(data.index < 30, -np.inf, data.z))
    assert [str(label) for label in fl.measure(beyond, fl.bins("z", edges=[0.5]), fl.mean("x")).estimates.labels] == [
        "below 0.5",
        "0.5 or more",
    ]


def test_weights_must_not_be_negative_and_count_for_what_they_are() -> None:
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"g": "a", "x": rng.standard_normal(100), "w": np.r_[1.0, 1.0, 1.0, np.zeros(97)]})
    check_refused("invalid data: weight", data.assign(w=-1.0), "g", fl.mean("x", weight="w"))
    estimates = fl.measure(data, "g", fl.mean("x", weight="w")).estimates
    assert estimates.dof is not None
    assert estimates.dof[0] == pytest.approx(2)  # three rows that count
    assert estimates.se[0] == pytest.approx(data.x[:3].std() / np.sqrt(3))


def test_what_cancels_is_not_a_variance() -> None:
    rng = np.random.default_rng(4)
    data = pd.DataFrame({"g": "a", "arm": ["A", "B"] * 100, "y": rng.uniform(1, 2, 200), "w": rng.uniform(1, 2, 200)})
    data["x"] = 0.3 * data.y
    check_refused("no groups: by", data, "g", fl.ratio_difference("x", "y", **ARMS))
    check_refused("no groups: by", data.assign(z=3 * data.x + 0.7), "g", fl.difference("x", covariate="z", **ARMS))
    check_refused("no groups: by", data.assign(x=0.1), "g", fl.mean("x", weight="w"))
    check_refused("no groups: by", data.assign(x=data.y * 1e200), "g", fl.mean("x"))
    check_refused("no groups: by", data.assign(x=-10 + rng.random(200)), "g", fl.lift("x", **ARMS))


def test_reasons_say_what_is_missing() -> None:
    data = pd.DataFrame({"g": ["pos"] * 60 + ["few"] * 60 + ["fine"] * 60, "s": np.random.default_rng(5).random(180)})
    data["t"] = np.r_[np.ones(60), np.repeat([1, 0], [9, 51]), np.tile([0, 1], 30)]
    measurement = fl.measure(data, "g", fl.auc("t", "s"))
    assert {
        left.label: (left.code, left.reason.least, left.reason.unit or left.reason.arm) for left in measurement.excluded
    } == {
        "pos": ("too few of a class", 2, "negatives"),
        "few": ("too small", 10, "positives or negatives"),
    }
    assert measurement.estimates.n is not None
    assert measurement.estimates.n.tolist() == [60]
    odds = fl.measure(
        data.assign(t=data.t.where(data.g != "pos", 0)), "g", fl.equalized_odds("t", score="s", threshold=0.5)
    )
    assert {left.label: (left.code, left.reason.arm) for left in odds.excluded} == {
        "pos": ("too few of a class", "positives")
    }


def test_odd_tables_and_metrics_are_refused(tmp_path: Path) -> None:
    table = pd.DataFrame({"g": ["a"], "n": [-5], "m": [1.0], "s": [5.0], "q": [1.0]})
    check_refused("invalid data: n", table, "g", fl.mean(fl.aggregated("n", mean="m", variance="q")))
    check_refused(
        "invalid data: sum_squares", table.assign(n=5), "g", fl.mean(fl.aggregated("n", sum="s", sum_squares="q"))
    )
    doubled = pd.DataFrame([[1, 2, 3]] * 30, columns=["g", "x", "x"])
    check_refused("wrong type: data", doubled, "g", fl.mean("x"))
    (tmp_path / "t.csv").write_text("g,x,x\n" + "a,1,2\n" * 30)
    check_refused("duplicate: value", tmp_path / "t.csv", "g", fl.mean("x"))
    (tmp_path / "ragged.csv").write_text("g,x\n" + "a,1\n" * 30 + "a,1,9\n")
    check_refused("unreadable file: file", tmp_path / "ragged.csv", "g", fl.mean("x"))
    check_refused("unreadable file: data", pl.scan_csv(tmp_path / "absent.csv"), "g", fl.mean("x"))
    for make, match in (
        (
            lambda: fl.ratio_lift(fl.aggregated("n", mean="m", variance="v"), "d", **ARMS),
            "conflict: denom",
        ),
        (lambda: fl.mean(fl.aggregated("n", mean="m", variance="v"), weight="w"), "unsupported: weight"),
        (lambda: fl.lift("x", variant=5, control="A"), "wrong type: variant"),  # type: ignore[arg-type]
        (lambda: fl.lift("x", unit=5, **ARMS), "wrong type: unit"),  # type: ignore[arg-type]
        (lambda: fl.bins(5, width=1), "wrong type: bins"),  # type: ignore[arg-type]
        (lambda: fl.bins("a", width=True), "out of range: width"),
        (lambda: fl.bins("a", edges=["x"]), "out of range: edges"),  # type: ignore[list-item]
        (lambda: fl.Metric("own", {}, lambda c: {}, lambda m: m), "empty: metric"),  # type: ignore[arg-type, return-value]
        (lambda: fl.Metric("own", {"x": "x"}, lambda c: {}, lambda m: m), "wrong type: inputs"),  # type: ignore[dict-item, arg-type, return-value]
    ):
        with refused(match):
            make()
    own = fl.Metric("own", {"x": fl.Input("revenue")}, lambda c: {"y": c["y"]}, lambda m: m)  # type: ignore[arg-type, return-value]
    check_refused("not found: metric", rows(), "country", own)
    check_refused("empty: by", rows(), 5, fl.mean("revenue"))


NOT_FINITE: dict[str, Any] = {
    "nowhere": [],
    "in the first row": [0],
    "in one late row": [4321],
    "in a group of one": [5000],
    "in every group, after the first thousand rows": range(2000, 4000),
    "in half of the groups": range(4000, 4999, 2),
    "in all of a group": range(3, 5000, 10),
}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", NOT_FINITE)
def test_values_that_are_not_finite_are_dropped_wherever_they_are(where: str, bad: float, tmp_path: Path) -> None:
    """DuckDB sums such values first, and looks for them where sums say so."""
    rng = np.random.default_rng(0)
    values, others = rng.lognormal(0, 1, 5001), rng.normal(size=5001)
    values[list(NOT_FINITE[where])] = bad
    data = pl.DataFrame({"g": [f"g{i % 10}" for i in range(5000)] + ["alone"], "x": values, "z": others})
    data.write_parquet(tmp_path / "rows.parquet")
    metrics = [fl.mean("x"), fl.mean("z")]
    measured = measure_all(tmp_path / "rows.parquet", "g", metrics)
    for (found,), expected in zip(measured, measure_all(data, "g", metrics), strict=True):
        assert dict(found.dropped) == dict(expected[0].dropped)
        assert [(e.label, e.reason) for e in found.excluded] == [(e.label, e.reason) for e in expected[0].excluded]
        assert found.estimates.labels == expected[0].estimates.labels
        np.testing.assert_allclose(found.estimates.theta, expected[0].estimates.theta, rtol=1e-9)
        np.testing.assert_allclose(found.estimates.se, expected[0].estimates.se, rtol=1e-7)
    estimates = measured[0][0].estimates
    assert estimates.n is not None
    for label, n, mean in zip(estimates.labels, estimates.n, estimates.theta, strict=True):
        of_group = values[(data["g"] == label).to_numpy()]
        of_group = of_group[np.isfinite(of_group)]
        assert n == of_group.size
        np.testing.assert_allclose(mean, of_group.mean(), rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "number"), [("1e+15", 1e15), ("1.5e+300", 1.5e300), ("1e+16", 10**16), ("-2.25e+22", -2.25e22)]
)
def test_large_numbers_match_their_text(text: str, number: float) -> None:
    """As DuckDB writes them to csv."""
    assert reading((text,)) == reading((number,))
    assert reading((text.replace("+", ""),)) == text.replace("+", "")  # a name such as 1e5 is no number
