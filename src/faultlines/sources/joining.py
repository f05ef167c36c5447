"""A value for every row of a frame, by its group: added to frames in memory, joined to those that are elsewhere."""

from __future__ import annotations

import secrets
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.sources import duck
from faultlines.sources.columns import OURS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import narwhals as nw
    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]

_VALUE = f"{OURS}value"


def added(frame: nw.DataFrame[Any], values: FloatArray, column: str, *, whole: bool) -> Any:
    """A frame in memory with a further column, in its own type; NaN is null, where the frame has nulls for numbers."""
    native, engine = frame.to_native(), frame.implementation
    gone = np.isnan(values)
    if engine.is_polars():
        pl = import_module("polars")
        series = pl.Series(column, values).fill_nan(None)
        return native.with_columns(series.cast(pl.Int64) if whole else series)
    if engine.is_pyarrow():
        pa = import_module("pyarrow")
        kind = pa.int64() if whole else pa.float64()
        return native.append_column(column, pa.array(np.where(gone, 0, values), pa.float64(), mask=gone).cast(kind))
    return native.assign(**{column: values.astype(np.int64) if whole and not gone.any() else values})


def joined(
    frame: nw.LazyFrame[Any], marks: Mapping[str, Sequence[str]], values: FloatArray, column: str, *, whole: bool
) -> nw.LazyFrame[Any]:
    """Join a value to the rows of a frame that is not in memory, in the order of its rows where it has one.

    Args:
        frame: The rows, with columns of marks.
        marks: Column of marks → the marks of each group.
        values: The value of each group; NaN for none.
        column: The name of the new column.
        whole: Whether values are whole numbers.
    """
    import narwhals as nw

    native, engine = frame.to_native(), frame.implementation
    kind = nw.Int64 if whole else nw.Float64
    columns: dict[str, Any] = {name: list(texts) for name, texts in marks.items()}
    numbers = [None if np.isnan(value) else float(value) for value in values]
    made: Any
    if engine.is_duckdb():
        made = _duckdb(native, columns, values, column, whole)
        found: nw.LazyFrame[Any] = nw.from_native(made).lazy()
        return found
    if engine.is_polars():
        pl = import_module("polars")
        table = pl.LazyFrame(columns | {_VALUE: numbers}, schema_overrides={_VALUE: pl.Float64})
        wide = nw.from_native(native.join(table, on=list(marks), how="left", maintain_order="left"))
    elif engine.is_pyspark() or engine.is_pyspark_connect():
        rows = list(zip(*columns.values(), numbers, strict=True))
        fields = ", ".join([*(f"{name} string" for name in marks), f"{_VALUE} double"])
        wide = frame.join(nw.from_native(native.sparkSession.createDataFrame(rows, fields)), on=list(marks), how="left")
    else:
        table = import_module("ibis").memtable(columns | {_VALUE: numbers})
        wide = frame.join(nw.from_native(table), on=list(marks), how="left")
    typed: nw.LazyFrame[Any] = wide.with_columns(nw.col(_VALUE).cast(kind).alias(column)).drop(_VALUE)
    return typed


def _duckdb(native: Any, columns: dict[str, list[str]], values: FloatArray, column: str, whole: bool) -> Any:
    """A join on the connection the rows are on, to arrays that DuckDB reads where they are."""
    faultlines_groups = {name: np.array(texts, dtype=object) for name, texts in columns.items()} | {_VALUE: values}
    rows = f"{OURS}{secrets.token_hex(8)}"  # rows that were joined before keep their name, before DuckDB 2.0
    on = " AND ".join(f"{rows}.{duck.quoted(name)} = g.{duck.quoted(name)}" for name in columns)
    # NaN would be a number; what has no value is null.
    value = f"CASE WHEN isnan(g.{_VALUE}) THEN NULL ELSE g.{_VALUE} END::{'BIGINT' if whole else 'DOUBLE'}"
    made = native.query(
        rows,
        f"SELECT {rows}.*, {value} AS {duck.quoted(column)} FROM {rows} LEFT JOIN faultlines_groups AS g ON {on}",
    )
    del faultlines_groups
    return made
