"""One hash for all engines, MD5 of the text: the same units fall into the same parts wherever the rows are."""

from __future__ import annotations

import hashlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from faultlines.sources import duck

if TYPE_CHECKING:
    import narwhals as nw


def with_hash(frame: nw.LazyFrame[Any], column: str, seed: int, name: str) -> nw.LazyFrame[Any]:
    """Add the hash of a column's text and a seed, as hexadecimal text; null for null.

    Numbers have the text they have in a csv file: 5 and 5.0 are "5".

    Args:
        frame: Rows, under names of our own.
        column: The column.
        seed: The seed.
        name: The name of the new column.
    """
    import narwhals as nw

    text = _text(column, frame.collect_schema()[column])
    frame = frame.with_columns(nw.concat_str(text, nw.lit(f":{seed}")).alias(name))
    native, engine = frame.to_native(), frame.implementation
    made: Any
    if engine.is_duckdb():
        made = native.project(f"* REPLACE (md5({duck.quoted(name)}) AS {duck.quoted(name)})")
    elif engine.is_polars():
        pl = import_module("polars")
        made = native.with_columns(pl.col(name).map_batches(_polars, return_dtype=pl.String, is_elementwise=True))
    elif engine.is_pyspark() or engine.is_pyspark_connect():
        functions = import_module("pyspark.sql.functions")
        made = native.withColumn(name, functions.md5(functions.col(name)))
    else:
        made = native.mutate(**{name: native[name].hexdigest("md5")})
    hashed: nw.LazyFrame[Any] = nw.from_native(made).lazy()
    return hashed


def _text(column: str, dtype: Any) -> Any:
    import narwhals as nw

    value = nw.col(column)
    if dtype == nw.String:
        return value
    if not dtype.is_float():
        return value.cast(nw.String)
    fits = (value == value.floor()) & (value.abs() < 2.0**53)
    whole = nw.when(fits).then(value).cast(nw.Int64).cast(nw.String)
    return nw.coalesce(whole, nw.when(~value.is_nan()).then(value).cast(nw.String))


def _polars(series: Any) -> Any:
    """Polars has no MD5 of its own; of each distinct text it is taken once."""
    distinct = series.unique()
    hashes = [None if t is None else hashlib.md5(t.encode(), usedforsecurity=False).hexdigest() for t in distinct]
    return series.replace_strict(distinct, hashes, return_dtype=series.dtype)
