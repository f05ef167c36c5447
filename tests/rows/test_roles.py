"""What each role accepts: the table in docs/rows.md, on every way in."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import faultlines as fl
from faultlines.estimates.labels import reading
from tests.refused import refused
from tests.rows.spark import spark_session

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = 240
PAGE = Path(__file__).parents[2] / "docs" / "rows.md"


def column(values: list[Any], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array([values[i // 6 % len(values)] for i in range(ROWS)], kind)


MORNING = dt.datetime(2020, 1, 1, 3, 4, 5)
MICROSECONDS = [MORNING + dt.timedelta(microseconds=i) for i in (1, 2)]
NANOSECONDS = np.datetime64("2020-01-01T00:00:00", "ns") + np.array([1, 2])
TYPES: dict[str, list[pa.Array]] = {
    "text": [column(["a", "b"]), column(["ä", "b c"])],
    "category": [column(["a", "b"]).dictionary_encode()],
    "integer": [
        *(column([2**63 - 1, -(2**63)]), column([2**63, 2**64 - 1], pa.uint64())),
        *(column([1, 2], kind) for kind in (pa.int8(), pa.int64(), pa.uint64())),
    ],
    "float": [
        column([1e22, 2.5e-300]),
        column([np.float16(0.5), np.float16(2.5)], pa.float16()),
        *(column([0.1, 2.5], kind) for kind in (pa.float64(), pa.float32())),
    ],
    "decimal": [column([Decimal("1.10"), Decimal("2.50")], pa.decimal128(10, 2))],
    "boolean": [column([True, False])],
    "date": [column([dt.date(2020, 1, 1), dt.date(2020, 1, 2)])],
    "time stamp": [
        column(MICROSECONDS, pa.timestamp("us")),
        column([MORNING, MORNING + dt.timedelta(1)], pa.timestamp("us")),
        *(column([MORNING, dt.datetime(9999, 12, 31)], pa.timestamp(unit)) for unit in ("s", "ms", "us")),
        column([MORNING, dt.datetime(1, 1, 1)], pa.timestamp("us")),
        column([MORNING.replace(tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC)], pa.timestamp("us", "UTC")),
        column(list(NANOSECONDS), pa.timestamp("ns")),
    ],
    "time of day": [column([dt.time(1, 2, 3, 4), dt.time(1, 2, 3, 5)], pa.time64("us"))],
    "duration": [column([dt.timedelta(seconds=1), dt.timedelta(seconds=2)], pa.duration("us"))],
    "bytes": [column([b"a", b"b"], pa.binary())],
    "list": [column([[1], [2]])],
    "record": [column([[("a", 1)], [("b", 1)]], pa.map_(pa.string(), pa.int64())), column([{"a": 1}, {"a": 2}])],
}
ON_SPARK = ("float", "duration")  # in the everyday suite; all of them are slow


def measured(metric: fl.Metric) -> Callable[[Any], Any]:
    return lambda frame: fl.measure(frame, "g", metric, min_size=1).estimates.theta.tolist()


def grouped(by: Any) -> Callable[[Any], Any]:
    def groups(frame: Any) -> Any:
        keys = fl.measure(frame, by, fl.mean("x"), min_size=1).estimates.keys
        return sorted(reading(key) for key in keys)  # csv has 2 where others have 2.0

    return groups


def roles(control: Any) -> dict[str, Callable[[Any], Any]]:
    arms: dict[str, Any] = {"variant": "v", "control": "A"}
    return {
        "group": grouped("z"),
        "bins": grouped(fl.bins("z", width=1)),
        "value": measured(fl.difference("z", **arms)),
        "weight": measured(fl.difference("x", weight="z", **arms)),
        "covariate": measured(fl.difference("x", covariate="z", **arms)),
        "variant": measured(fl.difference("x", variant="z", control=control)),
        "unit": lambda frame: fl.measure(frame, "z", fl.difference("x", unit="z", variant="z", control=control)),
    }


def ways(table: pa.Table, folder: Path) -> dict[str, Any]:
    tables: dict[str, Any] = {
        "pandas": table.to_pandas(),
        "pandas of arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": pl.from_arrow(table),
        "arrow": table,
    }
    kind = table.schema.field("z").type
    if not pa.types.is_float16(kind):  # which DuckDB does not have
        tables |= {"duckdb": duckdb.from_arrow(table), "ibis": ibis.memtable(table)}
    pyarrow.parquet.write_table(table, folder / "x.parquet")
    tables["parquet"] = folder / "x.parquet"
    if not (pa.types.is_nested(kind) or pa.types.is_duration(kind) or pa.types.is_binary(kind)):
        pyarrow.csv.write_csv(table, folder / "x.csv")
        tables["csv"] = folder / "x.csv"
    return tables


def on_spark(table: pa.Table, folder: Path, sparks: dict[str, Any]) -> dict[str, Any]:
    """The table in Spark, where there is Java and Spark has the type."""
    kind = table.schema.field("z").type
    absent = pa.types.is_time(kind) or pa.types.is_float16(kind) or kind == pa.timestamp("ns")
    # Spark has times with a zone in the zone of its session, and names groups as it shows them.
    absent = absent or (pa.types.is_timestamp(kind) and kind.tz is not None)
    if not sparks or absent:
        return {}
    session = spark_session("local[2]")
    if pa.types.is_duration(kind):
        return {
            "spark": session.createDataFrame(
                table.to_pylist(), "g string, x double, v string, z interval day to second"
            )
        }
    pyarrow.parquet.write_table(table, folder / "spark.parquet")
    return {"spark": session.read.parquet(str(folder / "spark.parquet"))}


def documented() -> dict[str, dict[str, bool]]:
    lines = PAGE.read_text(encoding="utf-8").split("## What each role accepts")[1].split("\n## ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    header = rows[0][1:]
    return {row[0]: dict(zip(header, [cell == "yes" for cell in row[1:]], strict=True)) for row in rows[2:]}


TABLE = documented()


def test_the_table_is_about_all_types_and_roles() -> None:
    assert list(TABLE) == list(TYPES)
    assert list(TABLE["text"]) == list(roles("x"))


@pytest.mark.parametrize("complete", [False, pytest.param(True, marks=pytest.mark.statistical)])
@pytest.mark.parametrize("kind", TYPES)
def test_one_answer_on_every_way_in(kind: str, complete: bool, tmp_path: Path, sparks: dict[str, Any]) -> None:
    plain = rows_beside()
    for array in TYPES[kind] if complete else TYPES[kind][-1:]:
        table = pa.table(plain | {"z": array})
        control = "x" if pa.types.is_nested(array.type) else array[0].as_py()
        if array.type in (pa.float32(), pa.float16()):
            control = np.float32(control)  # which reads 0.1; as a double it does not
        frames = ways(table, tmp_path)
        if complete or kind in ON_SPARK:
            frames |= on_spark(table, tmp_path, sparks)
        for role, ask in roles(control).items():
            if role == "unit" or (role == "weight" and -(2**63) in array.to_pylist()):
                continue  # units are below; no weight is negative
            answers = {way: answer(ask, frame) for way, frame in frames.items()}
            first = answers["arrow"]
            assert (first[0] == "answered") == TABLE[kind][role], (role, answers)
            for way, estimates in answers.items():
                assert estimates[0] == first[0], (role, way, answers)
                if estimates[0] == "answered" and isinstance(estimates[1][0], float):
                    digits = 1e-6 if array.type == pa.float32() else 1e-9
                    np.testing.assert_allclose(estimates[1], first[1], rtol=digits, err_msg=f"{role} {way}")
                elif estimates[0] == "answered":
                    assert [short(text) for text in estimates[1]] == [short(text) for text in first[1]], (role, way)


@pytest.mark.parametrize("role", ["group", "bins", "value", "weight", "covariate", "variant"])
def test_a_column_without_any_value_has_one_answer(role: str, tmp_path: Path) -> None:
    """Without a type: an empty column of csv, nulls of Arrow, None in pandas. It counts as numbers that are missing."""
    table = pa.table(rows_beside() | {"z": pa.nulls(ROWS)})
    answers = {way: answer(roles("x")[role], frame) for way, frame in ways(table, tmp_path).items()}
    first = answers["csv"]
    assert first[0] == {"group": "answered", "bins": "answered", "covariate": "answered", "variant": "not found"}.get(
        role, "no groups"
    )
    for way, estimates in answers.items():
        assert estimates[0] == first[0], (way, answers)
        if role in {"group", "bins"}:
            assert estimates[1] == ["(missing)"], way


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_short_floats_as_keys(kind: Any, tmp_path: Path) -> None:
    """They have one name on every way in that has types; a control of that type is found in csv as well."""
    values = [kind(0.1), kind(3e4) if kind is np.float16 else kind(3e10)]
    arrow = pa.float16() if kind is np.float16 else pa.float32()
    frames = ways(pa.table(rows_beside() | {"z": column(values, arrow)}), tmp_path)
    names = {way: answer(grouped("z"), frame)[1] for way, frame in frames.items() if way != "csv"}
    large = "30000" if kind is np.float16 else "30000001024"
    assert set(map(tuple, names.values())) == {("0.099975586" if kind is np.float16 else "0.1", large)}, names
    arms = {way: answer(roles(values[1])["variant"], frame) for way, frame in frames.items()}
    assert {code for code, _ in arms.values()} == {"answered"}, arms


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")  # which Ibis calls
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
@pytest.mark.parametrize("role", ["group", "bins", "value", "weight", "covariate", "variant", "unit", "rate", "label"])
def test_nan_is_missing_in_files(role: str, kind: pa.DataType, tmp_path: Path) -> None:
    """NaN that is no null: Parquet's smallest and largest values leave it out, and DuckDB goes by them."""
    z = np.repeat([0.0, 1.0, np.nan, 1.0], ROWS // 4)
    plain = rows_beside()
    if role == "unit":
        place = np.arange(ROWS)
        z = np.where(place % 7 == 0, np.nan, place // 6)
        plain |= {"g": pa.array([f"g{i // 12 % 2}" for i in place]), "v": pa.array(["AB"[i // 6 % 2] for i in place])}
    table = pa.table(plain | {"z": pa.array(z, kind)})
    ask = {
        **roles(0.0),
        "bins": grouped(fl.bins("z", edges=[0.5])),
        "unit": measured(fl.difference("x", unit="z", variant="v", control="A")),
        "rate": measured(fl.rate("z")),
        "label": measured(fl.rate("z", positive=0)),
    }[role]
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    first = answer(ask, table)
    assert first[0] == "answered"
    path = str(tmp_path / "x.parquet")
    for frame in (path, duckdb.read_parquet(path), ibis.duckdb.connect().read_parquet(path)):
        code, values = answer(ask, frame)
        assert code == "answered"
        if isinstance(values[0], str):
            assert values == first[1]
        else:
            np.testing.assert_allclose(values, first[1], rtol=1e-9)


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.date32()])
def test_days_far_away(kind: pa.DataType, tmp_path: Path) -> None:
    """Nanoseconds end in 1677 and 2262; the last day there is, 9999-12-31, often stands for "never"."""
    zone = dt.UTC if getattr(kind, "tz", None) else None
    days = [dt.datetime(1600, 1, 1, tzinfo=zone), dt.datetime(9999, 12, 31, tzinfo=zone)]
    frames = ways(pa.table(rows_beside() | {"z": column(days, kind)}), tmp_path)
    names = {way: answer(grouped("z"), frame) for way, frame in frames.items()}
    assert len(set(map(str, names.values()))) == 1, names
    assert names["arrow"][0] == "answered"
    arms = {way: answer(roles(days[1])["variant"], frame)[0] for way, frame in frames.items()}
    assert set(arms.values()) == {"answered"}, arms


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+05:30"])
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_with_a_zone_are_one_however_they_are_written(unit: str, zone: str, tmp_path: Path) -> None:
    """In csv as pandas, Polars, PyArrow and DuckDB write the distance from UTC: +01:00, +0100, Z, +00."""
    moments = [MORNING.replace(tzinfo=dt.UTC), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]
    table = pa.table(rows_beside() | {"z": column(moments, pa.timestamp(unit, zone))})
    frames = ways(table, tmp_path) if zone != "+05:30" else {"arrow": table}
    writers: dict[str, Callable[[str], Any]] = {
        "pandas": lambda path: table.to_pandas().to_csv(path, index=False),
        "polars": lambda path: pl.DataFrame(table).write_csv(path),
        "pyarrow": lambda path: pyarrow.csv.write_csv(table, path),
        "duckdb": lambda path: duckdb.from_arrow(table).write_csv(path),
    }
    for writer, write in writers.items():
        if (writer, zone) != ("polars", "+05:30"):  # which Polars does not have
            write(str(tmp_path / f"{writer}.csv"))
            frames[f"csv of {writer}"] = tmp_path / f"{writer}.csv"
    names = {way: answer(grouped("z"), frame) for way, frame in frames.items()}
    expected = ("answered", ["2020-01-01 00:00:00+00:00", "2020-01-01 03:04:05+00:00"])
    assert set(map(str, names.values())) == {str(expected)}, names
    for control in (moments[0], pd.Timestamp(moments[0]).tz_convert("America/New_York"), "2020-01-01T03:04:05Z"):
        arms = {way: answer(roles(control)["variant"], frame)[0] for way, frame in frames.items()}
        assert set(arms.values()) == {"answered"}, (control, arms)


@pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")  # which Ibis calls
def test_nanoseconds_with_a_zone_stay_apart(tmp_path: Path) -> None:
    moments = np.append(NANOSECONDS, np.datetime64("1969-12-31T23:59:59.999998500"))
    table = pa.table(rows_beside() | {"z": column(list(moments)).cast(pa.timestamp("ns", "Europe/Berlin"))})
    frames = ways(table, tmp_path)
    frames["ibis of parquet"] = ibis.duckdb.connect().read_parquet(tmp_path / "x.parquet")
    names = {way: answer(grouped("z"), frame) for way, frame in frames.items()}
    expected = [reading((f"{moment}+00:00",)) for moment in sorted(moments)]
    assert set(map(str, names.values())) == {str(("answered", expected))}, names
    attached = fl.cluster(table, "z", fl.mean("x"), min_size=1).assign(duckdb.from_arrow(table))
    assert attached.aggregate("count(*), count(DISTINCT z)").fetchall() == [(ROWS, 3)]


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_days_and_times_as_labels(kind: pa.DataType, tmp_path: Path) -> None:
    """A day may be the label that counts; a point in time is refused where columns have types."""
    days = [dt.date(2020, 1, 1), dt.date(2020, 1, 2)]
    table = pa.table(rows_beside() | {"z": column(days).cast(kind)})
    expected = "answered" if kind == pa.date32() else "wrong type"
    for way, frame in ways(table, tmp_path).items():
        for positive in (table["z"][0].as_py(), str(days[0])):
            if way != "csv" or kind == pa.date32():
                assert answer(measured(fl.rate("z", positive=positive)), frame)[0] == expected, (way, positive)


def test_truth_values_as_labels_of_csv(tmp_path: Path) -> None:
    """True as pandas writes it, true as others do."""
    table = pa.table(rows_beside() | {"z": column([True, False])})
    frames = ways(table, tmp_path)
    table.to_pandas().to_csv(tmp_path / "pandas.csv", index=False)
    for positive in (True, "True", "true"):
        ask = measured(fl.rate("z", positive=positive))
        answers = {
            way: answer(ask, frame) for way, frame in (frames | {"csv of pandas": tmp_path / "pandas.csv"}).items()
        }
        assert len({str(estimates) for estimates in answers.values()}) == 1, (positive, answers)
        assert answers["arrow"][0] == "answered"
    assert answer(measured(fl.rate("z", positive=10**400)), table)[0] == "not found"


@pytest.mark.parametrize("kind", ["float", "text", "decimal"])
def test_a_decimal_is_found_in_every_type(kind: str, tmp_path: Path) -> None:
    every: dict[str, list[Any]] = {
        "float": [1.1, 2.5],
        "text": ["1.10", "2.50"],
        "decimal": [Decimal("1.10"), Decimal("2.50")],
    }
    values = every[kind]
    frames = ways(pa.table(rows_beside() | {"z": column(values)}), tmp_path)
    for way, frame in frames.items():
        for control in (Decimal("1.10"), Decimal("1.1"), 1.1):
            assert answer(roles(control)["variant"], frame)[0] == "answered", (way, control)
    assert answer(roles(Decimal("1.11"))["variant"], frames["arrow"])[0] == "not found"


def test_decimals_below_one_have_their_zero(tmp_path: Path) -> None:
    """DuckDB writes a decimal of two digits, both behind the point, as .10; pandas chooses such types for files."""
    values = column([Decimal("-0.10"), Decimal("0.25")], pa.decimal128(2, 2))
    for way, frame in ways(pa.table(rows_beside() | {"z": values}), tmp_path).items():
        assert answer(grouped("z"), frame) == ("answered", ["-0.10", "0.25"]), way
        assert answer(roles("0.25")["variant"], frame)[0] == "answered", way


def test_decimals_without_a_common_type_are_refused() -> None:
    """DuckDB gives them 38 digits, and 1e-8 and 2e-8 would be one group."""
    far = [Decimal("1e30"), Decimal("1e-8"), Decimal("2e-8")] * 20
    with refused("out of range: data"):
        fl.measure(pd.DataFrame({"g": far, "x": np.arange(60.0)}), "g", fl.mean("x"))
    near = [Decimal("1e29"), Decimal("1e-8"), Decimal("2e-8"), None] * 20
    assert len(fl.measure(pd.DataFrame({"g": near, "x": np.arange(80.0)}), "g", fl.mean("x")).estimates) == 4


def test_times_of_day_keep_their_fractions(tmp_path: Path) -> None:
    table = pa.table(rows_beside() | {"z": column([dt.time(1, 2, 3, 4), dt.time(1, 2, 3, 5)], pa.time64("ns"))})
    for way, frame in ways(table, tmp_path).items():
        assert len(grouped("z")(frame)) == 2, way


def rows_beside() -> dict[str, pa.Array]:
    return {
        "g": pa.array([f"g{i % 3}" for i in range(ROWS)]),
        "x": pa.array(np.random.default_rng(0).normal(size=ROWS)),
        "v": pa.array([["A", "B"][i // 3 % 2] for i in range(ROWS)]),
    }


def short(text: str) -> str:
    """A key without the zeros that pyarrow writes to csv behind a time."""
    return text.rstrip("0").rstrip(".") if ":" in text else text


def answer(ask: Callable[[Any], Any], frame: Any) -> tuple[str, Any]:
    try:
        return "answered", ask(frame)
    except fl.InputError as error:
        return str(error.code), None


@pytest.mark.parametrize("kind", TYPES)
def test_units(kind: str, tmp_path: Path) -> None:
    """Rows of six for each unit; a type of two values would put one unit into both variants."""
    first = TYPES[kind][-1]
    if kind in {"boolean", "category"}:
        pytest.skip("has too few values to name units")
    users = [_nth(first[0].as_py(), i // 6) for i in range(ROWS)]
    rng = np.random.default_rng(1)
    plain = {"g": pa.array([f"g{i // 12 % 2}" for i in range(ROWS)]), "x": pa.array(rng.normal(size=ROWS))}
    plain["v"] = pa.array([["A", "B"][i // 6 % 2] for i in range(ROWS)])
    table = pa.table(plain | {"z": pa.array(users, first.type)})
    ask = measured(fl.difference("x", variant="v", control="A", unit="z"))
    answers = {way: answer(ask, frame) for way, frame in ways(table, tmp_path).items()}
    assert (answers["arrow"][0] == "answered") == TABLE[kind]["unit"], answers
    for way, estimates in answers.items():
        assert estimates[0] == answers["arrow"][0], (way, answers)
        if estimates[1] is not None:
            np.testing.assert_allclose(estimates[1], answers["arrow"][1], rtol=1e-9, err_msg=way)


def _nth(value: Any, i: int) -> Any:
    """The i-th value of a type."""
    for kind, make in (
        (bytes, lambda: b"%d" % i),
        (str, lambda: f"u{i}"),
        (dt.datetime, lambda: value + dt.timedelta(microseconds=i)),
        (dt.date, lambda: value + dt.timedelta(i)),
        (dt.time, lambda: dt.time(1, i // 60, i % 60)),
        (dt.timedelta, lambda: dt.timedelta(seconds=i)),
        (list, lambda: [i]),
        (dict, lambda: {"a": i}),
        (Decimal, lambda: Decimal(i) / 4),
        (float, lambda: i / 4),
    ):
        if isinstance(value, kind):
            return make()
    return i


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_points_in_time_are_no_groups_but_days_are(tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(3)
    seconds = pd.to_timedelta(rng.integers(0, 86_400 * 3, 4_000), unit="s")
    rows = pd.DataFrame({"ts": pd.Timestamp("2026-01-01") + seconds, "x": rng.normal(size=4_000)})
    rows["user"] = np.arange(4_000) // 2
    path = str(tmp_path / f"rows.{kind}")
    rows.to_csv(path, index=False) if kind == "csv" else rows.to_parquet(path)
    with refused("unsupported: by") as caught:
        fl.cluster(path, "ts", fl.mean("x"))
    assert "::date as day" in str(caught.value)
    with refused("invalid data: unit") as caught:
        fl.cluster(path, "ts", fl.mean("x", unit="user"))
    assert "::date as day" in str(caught.value)
    by_day = duckdb.sql(f"select *, ts::date as day from '{path}'")
    assert len(fl.cluster(by_day, "day", fl.mean("x")).groups) == 3
