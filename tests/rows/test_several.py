"""Several metrics, one scan: the same answers as one by one, with units aggregated once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import faultlines as fl
from faultlines.engines import frames as fetching
from faultlines.estimates.reasons import DropCode
from faultlines.metrics.measure import Split, measure_all
from faultlines.rows.read import read
from tests.engine_matrix import in_engine, rows
from tests.refused import refused
from tests.rows.spark import spark_session

if TYPE_CHECKING:
    from pathlib import Path

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}
UNITS: dict[str, Any] = {"variant": "arm_of_user", "control": "A", "unit": "user"}
TOGETHER: dict[str, list[fl.Metric]] = {
    "experiment": [
        fl.lift("revenue", **ARMS),
        fl.difference("revenue", **ARMS),
        fl.difference("noisy", covariate="before", **ARMS),
        fl.ratio_lift("revenue", "visits", weight="weight", **ARMS),
        fl.joint(fl.difference("revenue", **ARMS), fl.difference("visits", **ARMS)),
    ],
    "units": [
        fl.lift("revenue", **UNITS),
        fl.difference("noisy", covariate="before", **UNITS),
        fl.ratio_difference("revenue", "visits", weight="weight", **UNITS),
        fl.difference("visits", weight="weight", **UNITS),
    ],
    "model": [
        fl.true_positive_rate("label", "predicted"),
        fl.false_positive_rate("label", score="score", threshold=0.5),
        fl.selection_rate("predicted", weight="weight"),
        fl.rate("outcome", positive="yes"),
        fl.brier("label", "score"),
        fl.auc("label", "score"),
        fl.equalized_odds("label", "predicted"),
    ],
    "mixed": [fl.mean("noisy"), fl.lift("revenue", **ARMS), fl.lift("revenue", **UNITS), fl.auc("label", "score")],
}


def same(measurement: fl.Measurement, alone: fl.Measurement) -> None:
    for field in ("theta", "se", "n", "dof", "natural", "effect_covariance"):
        ours, theirs = getattr(measurement.estimates, field), getattr(alone.estimates, field)
        if theirs is None:
            assert ours is None
        else:
            close = 1e-12 * np.abs(theirs[np.isfinite(theirs)]).max()
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=close, err_msg=alone.estimates.metric)
    assert list(measurement.estimates.labels) == list(alone.estimates.labels)
    assert measurement.dropped == alone.dropped
    assert [(left.label, left.reason) for left in measurement.excluded] == [(e.label, e.reason) for e in alone.excluded]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("complete", [False, pytest.param(True, marks=pytest.mark.statistical)])
@pytest.mark.parametrize("engine", ["parquet", "csv", "polars lazy", "pandas", "duckdb", "ibis", "spark"])
def test_together_is_as_one_by_one(engine: str, complete: bool, tmp_path: Path, sparks: dict[str, Any]) -> None:
    spark = spark_session("local[2]") if engine == "spark" and sparks else None
    data = in_engine(rows(), engine, tmp_path, spark)
    chosen = {"spark": ["units"], "ibis": ["units", "mixed"], "parquet": list(TOGETHER)}.get(
        engine, list(TOGETHER) if complete else ["mixed"]
    )
    for name in chosen:
        measurements = measure_all(data, "device_of_user", TOGETHER[name])
        for (measurement,), metric in zip(measurements, TOGETHER[name], strict=True):
            same(measurement, fl.measure(data, "device_of_user", metric))
    if engine == "spark":
        return
    split = Split("user", (0.4, 0.6), 3)
    parts = measure_all(data, "device_of_user", TOGETHER["units"], split=split)
    for both, metric in zip(parts, TOGETHER["units"], strict=True):
        alone = measure_all(data, "device_of_user", [metric], split=split)[0]
        assert len(both) == 2
        for measurement, other in zip(both, alone, strict=True):
            same(measurement, other)
    if engine in {"polars lazy", "ibis"}:  # the same users in the same parts, every time
        again = Split("user", (0.4, 0.6), 3, times=2)
        for metric in (TOGETHER["units"][0], fl.mean("revenue")):
            there, here = (measure_all(d, "device_of_user", [metric], split=again)[0] for d in (data, rows()))
            assert len(there) == 4
            for measurement, other in zip(there, here, strict=True):
                same(measurement, other)


def test_rows_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One group-by for all metrics of the same variants; with units one table, from which everything comes."""
    data = in_engine(rows(), "parquet", tmp_path)
    queries: list[Any] = []
    samples: list[Any] = []

    def counted(frame: Any) -> Any:
        queries.append(frame.to_native().explain())
        if "LIMIT" in frame.to_native().sql_query():  # a look at some rows
            samples.append(queries.pop())
        return fetching.fetch(frame)

    monkeypatch.setattr("faultlines.rows.query.fetch", counted)
    measure_all(data, "device", TOGETHER["experiment"])
    assert (len(queries), len(samples)) == (1, 1)
    queries.clear()
    measure_all(data, "device_of_user", TOGETHER["units"])
    assert len(queries) == 2  # the moments, and whether units are in several places
    assert not any("PARQUET" in query.upper() for query in queries)
    for metrics, asked in ((TOGETHER["units"], 6), ([fl.mean("revenue")], 5)):
        queries.clear()
        measure_all(data, "device_of_user", metrics, split=Split("user", (0.5, 0.5), times=5))
        assert len(queries) == asked  # every time the moments, of rows that were read once
        assert not any("PARQUET" in query.upper() for query in queries)


def test_arms_of_one_column_share_a_scan() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": list("ab") * 300, "arm": np.arange(600) // 2 % 3, "x": rng.random(600)})
    metrics = [fl.difference("x", variant="arm", control=0, treatment=t) for t in (1, 2)]
    for (measurement,), metric in zip(measure_all(data, "g", metrics), metrics, strict=True):
        same(measurement, fl.measure(data, "g", metric))
        assert measurement.dropped == {"other variants": 200}


def test_rows_of_each_metric_are_counted_apart() -> None:
    data = pd.DataFrame({"g": list("ab") * 60, "x": np.arange(120.0), "y": np.arange(120.0) % 5})
    data.loc[:9, "x"] = np.nan
    data.loc[5:19, "y"] = np.nan
    measurements = measure_all(data, "g", [fl.mean("x"), fl.mean("y"), fl.ratio("x", "y")])
    assert [measurement.dropped[DropCode.MISSING_VALUE] for (measurement,) in measurements] == [10, 15, 20]


def units(size: int = 900) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    user = np.arange(size) // 3
    return pd.DataFrame(
        {
            "user": user,
            "g": np.where(user % 3, "a", "b"),
            "arm": np.where(user % 2, "A", "B"),
            "x": rng.random(size),
            "y": rng.random(size),
        }
    )


def test_units_in_several_places_are_found_for_the_metric_that_uses_them() -> None:
    data = units()
    arms: dict[str, Any] = {"variant": "arm", "control": "A", "unit": "user"}
    data.loc[0, "g"] = "a" if data.g[0] == "b" else "b"
    data.loc[0, "y"] = np.nan  # without this row, the unit is in one place
    for frame in (data, pl.from_pandas(data).lazy()):
        fl.measure(frame, "g", fl.difference("y", **arms))
        with refused("invalid data: unit"):
            fl.measure(frame, "g", fl.difference("x", **arms))
        with refused("invalid data: unit"):
            measure_all(frame, "g", [fl.difference("y", **arms), fl.difference("x", **arms)])


def mean_of_moments(m: fl.Moments) -> fl.Measured:
    n, mean = m.n[:, 0, 0], m.mean[:, 0, 0]
    se = np.sqrt(m.cov[:, 0, 0, 0] / n)
    return fl.Measured(mean, se, None, n, mean, np.full(len(n), "", dtype=object))


@pytest.mark.parametrize("role", ["x", "w", "z", "q"])
def test_inputs_are_summed_to_units_unless_they_describe_them(role: str) -> None:
    """Whatever an input is called; and units need no variants."""
    data = units()
    for per_unit in (False, True):
        own = fl.Metric(
            "own",
            {role: fl.Input("x", per_unit=per_unit)},
            lambda c: {"v": c[role]},
            mean_of_moments,
            unit="user",
            size_unit="units",
        )
        estimates = fl.measure(data, "g", own).estimates
        by_unit = data.groupby(["g", "user"])["x"].agg("mean" if per_unit else "sum").groupby("g").mean()
        np.testing.assert_allclose(estimates.theta, by_unit.to_numpy())
    data.loc[0, "g"] = "a" if data.g[0] == "b" else "b"
    with refused("invalid data: unit"):
        fl.measure(data, "g", own)


def test_variants_that_read_alike() -> None:
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"g": "a", "arm": np.repeat(["1", "1.0"], 60), "x": rng.random(120)})
    expected = data.x[60:].mean() - data.x[:60].mean()
    estimates = fl.measure(data, "g", fl.difference("x", variant="arm", control="1")).estimates
    assert estimates.theta[0] == pytest.approx(expected)
    flipped = fl.measure(data, "g", fl.difference("x", variant="arm", control="1.0")).estimates
    assert flipped.theta[0] == pytest.approx(-expected)
    with refused("ambiguous: control"):
        fl.measure(data, "g", fl.difference("x", variant="arm", control=1))
    plain = data.assign(arm=np.repeat([1, 2], 60))
    for control in (1, "1", 1.0):
        estimates = fl.measure(plain, "g", fl.difference("x", variant="arm", control=control)).estimates
        assert estimates.theta[0] == pytest.approx(expected)
    named = data.assign(arm=np.repeat(["(missing)", "B"], 60))
    named.loc[:4, "arm"] = None
    found_named = fl.measure(named, "g", fl.difference("x", variant="arm", control="(missing)"))
    assert found_named.dropped == {"missing value": 5}


def test_what_is_left_out_keeps_what_is_known() -> None:
    rng = np.random.default_rng(3)
    data = pd.DataFrame({"g": ["big"] * 100 + ["small"] * 10 + ["one"], "x": rng.random(111)})
    measurement = fl.measure(data, "g", fl.mean("x"), min_size=20)
    left = {group.label: group for group in measurement.excluded}
    assert left["small"].n == 10
    assert left["small"].estimate == pytest.approx(data.x[100:110].mean())
    assert left["small"].se == pytest.approx(np.sqrt(1 / 12 / 10), rel=0.2)  # the variance of both groups
    assert (left["one"].n, left["one"].se) == (1, None)
    rates = fl.measure(data.assign(x=(data.x > 0.5).astype(int)), "g", fl.rate("x"), min_size=20)
    small = next(group for group in rates.excluded if group.label == "small")
    assert small.estimate == pytest.approx((data.x[100:110] > 0.5).mean())
    assert small.se is not None
    assert 0 < small.se < 0.3
    pair = fl.measure(data.assign(y=rng.random(111)), "g", fl.joint(fl.mean("x"), fl.mean("y")), min_size=20)
    assert {group.label: (group.n, group.estimate) for group in pair.excluded}["small"] == (10, None)


@pytest.mark.parametrize("engine", ["pandas", "polars", "polars lazy", "duckdb"])
def test_a_null_and_its_name_are_told_apart_when_clusters_go_back(engine: str, tmp_path: Path) -> None:
    import pyarrow as pa

    result = fl.cluster(fl.Estimates([0, 9], [1, 1], ["a", "(missing)"], attributes=["g"]))
    nulls = in_engine(pa.table({"g": ["a", None], "country": ["a", "b"]}), engine, tmp_path)
    assert clusters(result.assign(nulls)) == [1, 2]
    both = in_engine(pa.table({"g": ["a", None, "(missing)"], "country": ["a", "b", "c"]}), engine, tmp_path)
    with refused("duplicate: by"):
        result.assign(both)
    pairs = fl.cluster(fl.Estimates([0, 9], [1, 1], [("a\x1f+b", "c"), ("a", "b\x1f+c")], attributes=["p", "q"]))
    table = pa.table({"p": ["a\x1f+b", "a"], "q": ["c", "b\x1f+c"], "country": ["a", "b"]})
    assert clusters(pairs.assign(in_engine(table, engine, tmp_path))) == [1, 2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ["pandas", "polars", "polars lazy", "duckdb", "ibis"])
def test_clusters_go_back_by_columns_of_any_name(engine: str, tmp_path: Path) -> None:
    import pyarrow as pa

    for name in ("*", "^g$", 'a"b', "a.b", "a`b"):
        result = fl.cluster(fl.Estimates([0, 9], [1, 1], ["a", "b"], attributes=[name]))
        table = pa.table({"country": ["x", "y"], name: ["b", "a"], "g": ["z", "z"]})
        assigned = result.assign(in_engine(table, engine, tmp_path))
        assert clusters(assigned) == [2, 1]
        assert list(columns(assigned)) == ["country", name, "g", "cluster"]


def columns(frame: Any) -> list[str]:
    return list(frame.collect_schema().names() if isinstance(frame, pl.LazyFrame) else frame.columns)


def clusters(frame: Any) -> list[Any]:
    """The clusters in the order of the column `country`."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    for method in ("to_pandas", "df"):
        if hasattr(frame, method):
            frame = getattr(frame, method)()
    return list(pd.DataFrame(frame).sort_values("country")["cluster"])


def far_rows(kind: str, size: int = 6000) -> pd.DataFrame:
    """Rows of which sums of powers about one center lose digits in some groups, or in all."""
    rng = np.random.default_rng(1)
    group = np.minimum(rng.zipf(1.4, size), 300)
    values = {
        "small groups": rng.lognormal(1, 1, size),
        "a few prices": rng.choice([9.99, 19.99, 29.99], size),
        "a level for each group": np.exp(group / 20) * (1 + 0.01 * rng.standard_normal(size)),
        "a large offset": 1e6 + rng.exponential(1, size),
        "zeros": np.where(rng.random(size) < 0.9, 0.0, rng.lognormal(3, 1, size)),
        "huge values": np.where(np.arange(size) == 7, 1e72, rng.lognormal(3, 1, size)),
    }[kind]
    lacks_key = rng.random(size) < 0.05
    other = [None if lacks else str(g % 3) for lacks, g in zip(lacks_key, group, strict=True)]
    return pd.DataFrame({"g": group, "h": other, "x": values})


@pytest.mark.parametrize(
    "kind", ["small groups", "a few prices", "a level for each group", "a large offset", "zeros", "huge values"]
)
def test_sums_of_powers_say_what_the_engine_says(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = far_rows(kind)
    from_powers: list[Any] = []
    own: list[Any] = []
    for fast, moments in ((True, from_powers), (False, own)):
        monkeypatch.setattr("faultlines.engines.duckdb.DuckDB.sums_powers_fast", fast)
        read_moments = read(data, ("g", "h"), [fl.mean("x")], None).grouped[0][0].moments
        moments += [read_moments.n, read_moments.mean, read_moments.cov, read_moments.skewness, read_moments.kurtosis]
    for powers, expected in zip(from_powers, own, strict=True):
        np.testing.assert_allclose(powers, expected, rtol=1e-8, atol=1e-8)
