"""The SQL that is shown: that of a snapshot in every dialect, and one that brings what `fl.measure` measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sqlglot

import faultlines as fl
from tests.refused import refused

DIALECTS = ["duckdb", "postgres", "bigquery", "snowflake"]
SNAPSHOTS = Path(__file__).parent / "snapshots"
MADE_WITH = "12"  # of Ibis; another release writes the same in other words
SCHEMA = {"country": "string", "arm": "string", "user_id": "int64", "age": "int64", "revenue": "float64"}
SCHEMA |= {"bought": "boolean", "score": "float64"}
METRICS: dict[str, tuple[fl.Metric, Any]] = {
    "rate": (fl.rate("bought"), "country"),
    "lift": (fl.lift("revenue", variant="arm", control="A", unit="user_id"), ["country", fl.bins("age", width=10)]),
}


def visits() -> Any:
    """A table without a connection."""
    return ibis.table(SCHEMA, name="visits")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_snapshots(dialect: str) -> None:
    """To make them again: for every dialect, write what is shown to the file."""
    if ibis.__version__.split(".")[0] != MADE_WITH:
        pytest.skip(f"the snapshots are of Ibis {MADE_WITH}")
    shown = "\n\n".join(fl.sql(visits(), by, metric, dialect=dialect) for metric, by in METRICS.values())
    assert shown == (SNAPSHOTS / f"{dialect}.sql").read_text(encoding="utf-8").rstrip("\n")


def test_the_query_in_the_documentation_is_what_is_shown() -> None:
    if ibis.__version__.split(".")[0] != MADE_WITH:
        pytest.skip(f"the page is of Ibis {MADE_WITH}")
    page = Path(__file__).parent.parent.parent / "docs" / "howto" / "integrations.md"
    query = page.read_text(encoding="utf-8").split("```sql\n")[1].split("```")[0]
    shown = ibis.table({"country": "string", "bought": "boolean"}, name="visits")
    assert fl.sql(shown, "country", fl.rate("bought"), dialect="snowflake") == query.rstrip("\n")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", METRICS)
def test_what_is_shown_brings_what_is_measured(name: str, dialect: str) -> None:
    """Every dialect, translated to DuckDB's and run there: counts and means are those of `fl.measure`."""
    metric, by = METRICS[name]
    rng = np.random.default_rng(0)
    data = pd.DataFrame(
        {
            "country": rng.choice(["DE", "FR"], 6000),
            "user_id": np.arange(6000) // 2,
            "age": 20 + np.arange(6000) // 2 % 20,
            "revenue": np.where(rng.random(6000) < 0.1, np.nan, rng.lognormal(0, 1, 6000)),
            "bought": rng.random(6000) < 0.3,
            "score": rng.random(6000),
        }
    )
    data["arm"] = np.where(data.user_id % 2, "A", "B")
    data["country"] = np.where(data.user_id % 3, "DE", "FR")
    (text,) = sqlglot.transpile(fl.sql(visits(), by, metric, dialect=dialect), read=dialect, write="duckdb")
    with duckdb.connect() as engine:
        engine.sql("CREATE MACRO ieee_divide(a, b) AS a / b")  # BigQuery's, which divides by zero
        engine.register("visits", data)
        table = engine.sql(text).df()
    readout = fl.measure(data, by, metric, min_size=1).readout
    assert readout is not None
    value = "m_i0_0"
    np.testing.assert_allclose(sorted(table[value]), sorted(readout.moments.mean[..., 0].ravel()), rtol=1e-9)
    counts = table["n_i0_0"]
    np.testing.assert_allclose(sorted(counts), sorted(readout.moments.n[..., 0].ravel()))
    if metric.needs_covariance:
        spread = readout.moments.cov[..., 0, 0].ravel()
        np.testing.assert_allclose(sorted(table["c_i0_0"]), sorted(spread), rtol=1e-9)


def test_two_queries_of_an_area() -> None:
    first, second = fl.sql(visits(), "country", fl.auc("bought", "score")).split(";\n\n")
    assert "COUNT(*)" in first
    assert "OVER (PARTITION BY" in second


def test_tables_that_are_connected() -> None:
    data = pd.DataFrame({"g": ["a", "b"] * 20, "x": range(40)})
    with duckdb.connect() as engine:
        engine.register("rows", data)
        relation = engine.sql("SELECT * FROM rows")
        text = fl.sql(relation, "g", fl.mean("x"))
        assert sorted(engine.sql(text).fetchnumpy()["m_i0_0"]) == [19.0, 20.0]
        with refused("unsupported: dialect"):
            fl.sql(relation, "g", fl.mean("x"), dialect="postgres")
    assert "AVG" in fl.sql(ibis.memtable(pa.Table.from_pandas(data)), "g", fl.mean("x"), dialect="snowflake")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": pd.DataFrame({"country": ["DE"], "bought": [True]})}, "unsupported: data"),
        ({"data": 5}, "wrong type: data"),
        ({"dialect": "postgress"}, "unknown: dialect"),
        ({"dialect": 5}, "unknown: dialect"),
        ({"metric": "rate"}, "wrong type: metric"),
        ({"metric": fl.rate("sold")}, "column not found: value"),
        ({"metric": fl.rate(fl.aggregated("n", sum="k"))}, "unsupported: metric"),
        ({"by": []}, "empty: by"),
        ({"by": "land"}, "column not found: by"),
        ({"by": fl.bins("age", quantiles=4)}, "unsupported: bins"),
        ({"metric": fl.mean("revenue"), "dialect": "mssql"}, "unsupported: dialect"),
        ({"metric": fl.mean("revenue"), "dialect": "mysql"}, "unsupported: dialect"),
    ],
)
def test_bad_input(changes: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"data": visits(), "by": "country", "metric": fl.rate("bought")} | changes
    with refused(words):
        fl.sql(**arguments)
