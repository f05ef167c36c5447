"""The same rows in every frame and file faultlines reads; a new engine is a line of `BUILDERS`."""

from __future__ import annotations

import datetime
import decimal
from typing import TYPE_CHECKING, Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def rows(seed: int = 0, size: int = 4000) -> pa.Table:
    """Rows with every nuisance there is: nulls, NaN, booleans, categories, decimals, dates, unicode, large numbers."""
    rng = np.random.default_rng(seed)

    def holes(values: np.ndarray, share: float) -> list[Any]:
        gone = rng.random(size) < share
        return [None if g else v for v, g in zip(values.tolist(), gone.tolist(), strict=True)]

    country = rng.choice(["DE", "NA", "日本", "O'Hare", 'quo"te', "a,b"], size)
    arm = rng.choice(["A", "B"], size)
    base = rng.lognormal(0, 0.5, size)
    revenue = np.where(arm == "B", 1.1, 1.0) * base * 10
    truth = rng.random(size) < 0.4
    score = np.clip(np.where(truth, 0.6, 0.4) + 0.25 * rng.standard_normal(size), 0, 1)
    day = [datetime.date(2026, 1, 1 + int(i)) for i in rng.integers(0, 3, size)]
    price = [decimal.Decimal(int(v)) / 4 for v in rng.integers(1, 400, size)]
    return pa.table(
        {
            "country": pa.array(holes(country, 0.05), pa.string()),
            "device": pa.array(rng.integers(1, 4, size), pa.int32()),
            "premium": pa.array(holes(rng.random(size) < 0.5, 0.02), pa.bool_()),
            "day": pa.array(day, pa.date32()),
            "age": pa.array(holes(rng.integers(18, 80, size), 0.02), pa.int64()),
            "income": pa.array(holes(rng.normal(50_000, 15_000, size), 0.02), pa.float64()),
            "arm": pa.array(arm.tolist(), pa.string()),
            "user": pa.array(np.arange(size) // 2, pa.int64()),
            "arm_of_user": pa.array(np.where(np.arange(size) // 2 % 2, "A", "B").tolist(), pa.string()),
            "device_of_user": pa.array(np.arange(size) // 4 % 3, pa.int64()),
            "revenue": pa.array(holes(revenue, 0.03), pa.float64()),
            "noisy": pa.array(holes(np.where(rng.random(size) < 0.03, np.nan, revenue), 0.02), pa.float64()),
            "visits": pa.array(rng.integers(1, 9, size), pa.int64()),
            "before": pa.array(base * 10 + rng.standard_normal(size), pa.float64()),
            "weight": pa.array(rng.uniform(0.5, 3, size), pa.float64()),
            "price": pa.array(price, pa.decimal128(10, 2)),
            "huge": pa.array(rng.integers(4_000_000_000, 4_000_100_000, size), pa.int64()),
            "label": pa.array(holes(truth, 0.02), pa.bool_()),
            "outcome": pa.array(np.where(truth, "yes", "no").tolist(), pa.string()),
            "predicted": pa.array((score >= 0.5).astype(np.int64), pa.int64()),
            "score": pa.array(np.round(score, 3), pa.float64()),
        }
    )


def _parquet(table: pa.Table, folder: Path) -> Path:
    pq.write_table(table, folder / "rows.parquet")
    return folder / "rows.parquet"


def _parquet_glob(table: pa.Table, folder: Path) -> str:
    half = table.num_rows // 2
    pq.write_table(table.slice(0, half), folder / "part-0.parquet")
    pq.write_table(table.slice(half), folder / "part-1.parquet")
    return str(folder / "part-*.parquet")


def _csv(table: pa.Table, folder: Path) -> Path:
    pa.csv.write_csv(table, folder / "rows.csv")
    return folder / "rows.csv"


def _spark(table: pa.Table, folder: Path, spark: Any) -> Any:
    if spark is None:
        pytest.skip("Spark needs Java 17 or newer and pyspark")
    return spark.read.parquet(str(_parquet(table, folder)))


# From a table, a folder and a Spark session to the table as an engine has it.
BUILDERS: dict[str, Callable[[pa.Table, Path, Any], Any]] = {
    "pandas": lambda table, _, __: table.to_pandas().astype({"country": "category"}),
    "pandas nullable": lambda table, _, __: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda table, _, __: pl.DataFrame(table),
    "polars lazy": lambda table, _, __: pl.DataFrame(table).lazy(),
    "pyarrow": lambda table, _, __: table,
    "duckdb": lambda table, _, __: duckdb.from_arrow(table),
    "ibis": lambda table, _, __: ibis.memtable(table),
    "parquet": lambda table, folder, _: _parquet(table, folder),
    "parquet glob": lambda table, folder, _: _parquet_glob(table, folder),
    "csv": lambda table, folder, _: _csv(table, folder),
    "spark": _spark,
    "spark cluster": _spark,
}
ENGINES = list(BUILDERS)
SPARK = ("spark", "spark cluster")


def in_engine(table: pa.Table, engine: str, folder: Path, spark: Any = None) -> Any:
    """The table as this engine has it."""
    return BUILDERS[engine](table, folder, spark)
