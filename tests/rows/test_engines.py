"""What engines take differently if one lets them: names, times, precision, hashes, and the order of rows."""

from __future__ import annotations

import datetime
import hashlib
from typing import TYPE_CHECKING, Any

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats

import faultlines as fl
from faultlines.engines.frames import fetch, number_rows
from faultlines.metrics.measure import measure_parts
from faultlines.rows.shuffling import Shuffles, shuffle_groups
from tests.engine_matrix import in_engine
from tests.rows.spark import spark_session

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = ["pandas", "pandas nullable", "polars", "polars lazy", "pyarrow", "duckdb", "ibis", "parquet", "csv"]
EVERY = [*LOCAL, "spark"]
ODD_NAMES = [
    "*",
    "^g$",
    "^.*$",
    'a"b',
    "a`b",
    "a.b",
    "a'b",
    "a b",
    "1",
    "select",
    "日本",
    "c0",
    "k0",
    "a;b",
    "\\",
    "%s",
]


def frame_of(table: pa.Table, engine: str, folder: Path, sparks: dict[str, Any]) -> Any:
    spark = spark_session("local[2]") if engine == "spark" and sparks else None
    if engine == "pandas":
        return table.to_pandas()
    return in_engine(table, engine, folder, spark)


def grouped(size: int = 120) -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table({"g": ["a", "b"] * (size // 2), "x": rng.standard_normal(size)})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", EVERY)
def test_a_column_is_taken_by_its_very_name(engine: str, tmp_path: Path, sparks: dict[str, Any]) -> None:
    expected = fl.measure(grouped(), "g", fl.mean("x")).estimates
    decoys = {"g": ["z"] * 120, "x": np.arange(120.0), "aXb": np.arange(120.0)}
    for name in ODD_NAMES if engine != "spark" else ["*", "a`b.c"]:
        table = pa.table({name: grouped()["g"], "value": grouped()["x"], **decoys})
        data = frame_of(table, engine, tmp_path, sparks)
        estimates = fl.measure(data, name, fl.mean("value")).estimates
        np.testing.assert_allclose(estimates.theta, expected.theta, err_msg=name)
        other = pa.table({"group": grouped()["g"], name: grouped()["x"], **decoys})
        data = frame_of(other, engine, tmp_path, sparks)
        estimates = fl.measure(data, "group", fl.mean(name)).estimates
        np.testing.assert_allclose(estimates.theta, expected.theta, err_msg=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["pandas", "polars", "polars lazy", "pyarrow", "parquet", "csv", "spark"])
def test_names_that_differ_in_case_only(engine: str, tmp_path: Path, sparks: dict[str, Any]) -> None:
    table = pa.table({"g": grouped()["g"], "X": np.arange(120.0), "x": grouped()["x"], "G": ["z"] * 120})
    if engine == "spark":
        if not sparks:
            pytest.skip("Spark needs Java 17 or newer")
        rows = list(zip(*table.to_pydict().values(), strict=True))
        data = spark_session("local[2]").createDataFrame(rows).toDF(*table.column_names)
    else:
        data = frame_of(table, engine, tmp_path, sparks)
    estimates = fl.measure(data, "g", fl.mean("x")).estimates
    np.testing.assert_allclose(estimates.theta, fl.measure(grouped(), "g", fl.mean("x")).estimates.theta)
    both = fl.measure(data, "g", fl.ratio("x", "X")).estimates
    assert list(both.labels) == ["a", "b"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", EVERY)
def test_times_are_keys_with_one_name(engine: str, tmp_path: Path, sparks: dict[str, Any]) -> None:
    moments = [
        datetime.datetime(2026, 1, 1),
        datetime.datetime(2026, 1, 1, 12),
        datetime.datetime(2026, 1, 1, 12, 0, 0, 250_000),
        datetime.datetime(2026, 1, 1, 12, 0, 0, 250_001),
    ]
    names = ["2026-01-01", "2026-01-01 12:00:00", "2026-01-01 12:00:00.250000", "2026-01-01 12:00:00.250001"]
    times = pa.array(moments * 30, pa.timestamp("us"))
    table = pa.table({"when": times, "x": np.random.default_rng(0).random(120)})
    data = frame_of(table, engine, tmp_path, sparks)
    estimates = fl.measure(data, "when", fl.mean("x")).estimates
    if engine == "csv":  # text, as pyarrow writes it
        assert len(estimates) == 4
        return
    assert list(estimates.labels) == names
    result = fl.cluster(data, by="when", metric=fl.mean("x"))
    if engine != "parquet":
        assert column_of(result.assign(data), "cluster").count(None) == 0
        again = fl.Estimates.from_frame(
            pd.DataFrame({"when": moments, "t": [1.0, 2, 3, 4], "s": 1.0}), by="when", estimate="t", se="s"
        )
        assert list(again.labels) == names
        assert column_of(fl.cluster(again).assign(data), "cluster").count(None) == 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["pandas", "polars", "polars lazy", "pyarrow", "duckdb", "ibis", "parquet"])
def test_times_with_a_zone_are_in_utc(engine: str, tmp_path: Path, sparks: dict[str, Any]) -> None:
    moments = [datetime.datetime(2026, 7, 1), datetime.datetime(2026, 7, 1, 12, 0, 0, 5)]
    zoned = pa.array(moments * 30, pa.timestamp("us", tz="Europe/Berlin"))
    data = frame_of(pa.table({"when": zoned, "x": np.arange(60.0) % 7}), engine, tmp_path, sparks)
    names = ["2026-07-01 00:00:00+00:00", "2026-07-01 12:00:00.000005+00:00"]
    result = fl.cluster(data, by="when", metric=fl.mean("x"))
    assert list(result.estimates.labels) == names
    if engine != "parquet":
        assert column_of(result.assign(data), "cluster").count(None) == 0
    small = pa.table({"when": zoned.slice(0, 2), "t": [1.0, 2.0], "s": [1.0, 1.0]})
    table = frame_of(small, engine, tmp_path, sparks)
    if engine != "ibis":
        assert list(fl.Estimates.from_frame(table, by="when", estimate="t", se="s").labels) == names


def test_nanoseconds_are_not_lost() -> None:
    times = pd.to_datetime(["2026-01-01 00:00:00.000000001", "2026-01-01 00:00:00.000000002"] * 30)
    frame = pd.DataFrame({"when": times.astype("datetime64[ns]"), "x": np.arange(60.0) % 7})
    for data in (frame, pl.from_pandas(frame)):
        labels = list(fl.measure(data, "when", fl.mean("x")).estimates.labels)
        assert labels == ["2026-01-01 00:00:00.000000001", "2026-01-01 00:00:00.000000002"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", EVERY)
def test_single_precision_reaches_the_threshold(engine: str, tmp_path: Path, sparks: dict[str, Any]) -> None:
    scores = np.repeat(np.array([0.1, 0.3, 0.6, 0.7, 0.9], dtype=np.float32), 30)
    table = pa.table({"g": ["a"] * 150, "y": [0, 1] * 75, "s": pa.array(scores)})
    data = frame_of(table, engine, tmp_path, sparks)
    for threshold, share in ((0.7, 0.4), (0.1, 1.0), (0.3, 0.8), (0.6, 0.6), (0.9, 0.2)):
        estimates = fl.measure(data, "g", fl.selection_rate(score="s", threshold=threshold)).estimates
        assert estimates.natural[0] == pytest.approx(share), threshold
        odds = fl.measure(data, "g", fl.equalized_odds("y", score="s", threshold=threshold)).estimates
        np.testing.assert_allclose(odds.natural, share)
    pair = fl.joint(fl.selection_rate(score="s", threshold=0.7), fl.mean("y"))
    assert fl.measure(data, "g", pair).estimates.natural[0, 0] == pytest.approx(0.4)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", EVERY)
@pytest.mark.parametrize("unit", ["user", "name", "float"])
def test_units_fall_into_the_same_part_everywhere(
    engine: str, unit: str, tmp_path: Path, sparks: dict[str, Any]
) -> None:
    size = 600
    users = np.arange(size) // 2
    table = pa.table(
        {
            "user": users,
            "name": [f"Ünit {user}" for user in users],
            "float": pa.array([None if user == 7 else float(user) for user in users]),
            "g": ["a", "a", "b", "b"] * (size // 4),
            "x": np.arange(float(size)),
        }
    )
    data = frame_of(table, engine, tmp_path, sparks)
    texts = [f"Ünit {user}" if unit == "name" else str(user) for user in users]
    edge = f"{round(0.3 * 16**12):012x}"
    late = np.array([hashlib.md5(f"{text}:4".encode()).hexdigest() >= edge for text in texts])
    present = ~((users == 7) & (unit == "float"))
    parts = measure_parts(data, "g", fl.mean("x"), (0.3, 0.7), unit=unit, seed=4, min_size=2)
    groups = np.array(table["g"].to_pylist())
    for part, chosen in zip(parts, (~late, late), strict=True):
        means = [np.arange(float(size))[chosen & present & (groups == g)].mean() for g in "ab"]
        np.testing.assert_allclose(part.estimates.theta, means)
    assert parts[0].dropped == ({"missing value": 2} if unit == "float" else {})


def test_a_lazy_frame_keeps_the_order_of_its_rows() -> None:
    rng = np.random.default_rng(0)
    size = 300_000
    frame = pl.DataFrame({"g": rng.integers(0, 50, size), "x": rng.standard_normal(size), "row": np.arange(size)})
    shifted = frame.with_columns(x=pl.col("x") + pl.when(pl.col("g") < 25).then(0.0).otherwise(1.0))
    result = fl.cluster(shifted, by="g", metric=fl.mean("x"))
    assigned = result.assign(shifted.lazy())
    assert isinstance(assigned, pl.LazyFrame)
    for engine in ("streaming", "in-memory"):
        collected = assigned.collect(engine=engine)
        assert collected["row"].to_list() == list(range(size))
        assert collected["cluster"].to_list() == result.assign(shifted)["cluster"].to_list()


def column_of(frame: Any, name: str) -> list[Any]:
    """A column of any frame; missing is None."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame[name].to_list()
    if isinstance(frame, pa.Table):
        return list(frame[name].to_pylist())
    for method in ("toPandas", "to_pandas", "df"):
        if hasattr(frame, method) and not isinstance(frame, pd.DataFrame):
            frame = getattr(frame.select(name), method)()
            break
    return [None if pd.isna(value) else value for value in frame[name]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["ibis", "spark"])
def test_labels_are_shuffled_in_the_engine(engine: str, tmp_path: Path, sparks: dict[str, Any]) -> None:
    """Units fall into the same groups everywhere; rows without units have numbers of their own."""
    rng = np.random.default_rng(0)
    user = np.arange(600) // 3
    table = pa.table({"g": user % 4, "user": user, "x": rng.standard_normal(600)})
    data = frame_of(table, engine, tmp_path, sparks)
    with shuffle_groups(table, ("g",), fl.mean("x"), fl.mean("x"), Shuffles(3, unit="user")) as several:
        expected = [grouped.moments.mean for grouped in several]
    with shuffle_groups(data, ("g",), fl.mean("x"), fl.mean("x"), Shuffles(3, unit="user")) as several:
        for grouped, mean in zip(several, expected, strict=True):
            np.testing.assert_allclose(grouped.moments.mean, mean, rtol=1e-9)
    numbers = fetch(number_rows(nw.from_native(data).lazy(), "place").select("place"))["place"]
    assert len(set(numbers)) == 600


def skewed(offset: float) -> pa.Table:
    """Two groups of skewed values with a spread of one, far from zero."""
    rng = np.random.default_rng(0)
    return pa.table({"g": ["a", "b"] * 1000, "x": offset + rng.exponential(1, 2000), "w": rng.uniform(0.5, 2, 2000)})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", EVERY)
def test_shapes_survive_a_mean_of_a_million(engine: str, tmp_path: Path, sparks: dict[str, Any]) -> None:
    table = skewed(1e6)
    data = frame_of(table, engine, tmp_path, sparks)
    readout = fl.measure(data, "g", fl.mean("x")).readout
    assert readout is not None
    x, group = np.array(table["x"]), np.array(table["g"])
    for i, name in enumerate("ab"):
        # In units of the values less their mean, which is exact here, scipy has all its digits.
        values = x[group == name] - x[group == name].mean()
        assert readout.moments.skewness is not None
        assert readout.moments.kurtosis is not None
        assert readout.moments.skewness[i, 0, 0] == pytest.approx(stats.skew(values), rel=1e-6)
        assert readout.moments.kurtosis[i, 0, 0] == pytest.approx(stats.kurtosis(values, fisher=False), rel=1e-6)
    # Standard errors are those of the same values about zero.
    centred = fl.measure(pa.table({"g": table["g"], "x": x - 1e6}), "g", fl.mean("x")).estimates
    np.testing.assert_allclose(fl.measure(data, "g", fl.mean("x")).estimates.se, centred.se, rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", EVERY)
def test_values_whose_fourth_powers_are_out_of_range_raise_nothing(
    engine: str, tmp_path: Path, sparks: dict[str, Any]
) -> None:
    """Engines stop with an error where a sum leaves the range of doubles; here such values have no part in shapes."""
    x, group = np.random.default_rng(0).exponential(1, 105), np.array(["a", "b"] * 50 + ["c"] * 5)
    plain = fl.measure(pa.table({"g": group[:100], "x": x[:100]}), "g", fl.mean("x")).estimates
    # Before 2.0 DuckDB refuses to take a variance of squares beyond a double, which is said in an InputError.
    refused = int(duckdb.__version__.partition(".")[0]) < 2 and "polars" not in engine
    for largest in (1e200,) if engine == "spark" else (1e90,) if refused else (1e90, 1e200):
        x[-1] = largest
        measurement = fl.measure(frame_of(pa.table({"g": group, "x": x}), engine, tmp_path, sparks), "g", fl.mean("x"))
        assert [left.label for left in measurement.excluded] == ["c"]
        np.testing.assert_allclose(measurement.estimates.theta, plain.theta)
        np.testing.assert_allclose(measurement.estimates.se, plain.se)


@pytest.mark.parametrize("engine", ["pandas", "duckdb", "spark"])
def test_units_in_several_groups_have_the_same_covariance_everywhere(
    engine: str, tmp_path: Path, sparks: dict[str, Any]
) -> None:
    rng = np.random.default_rng(5)
    unit = rng.integers(0, 200, 900)
    table = pa.table(
        {
            "unit": unit,
            "g": np.array(["a", "b", "c"])[rng.integers(0, 3, 900)],
            "arm": np.array(["A", "B", "C"])[unit % 3],
            "x": rng.gamma(1.0, 1.0, 200)[unit] + rng.gamma(1.0, 1.0, 900),
        }
    )
    metric = fl.lift("x", variant="arm", control="A", treatment="*", unit="unit", overlap="covariance")
    expected: Any = fl.measure(table, "g", metric).estimates.covariance
    covariance: Any = fl.measure(frame_of(table, engine, tmp_path, sparks), "g", metric).estimates.covariance
    assert expected.shape == (6, 6)
    np.testing.assert_allclose(covariance, expected, rtol=1e-9)
