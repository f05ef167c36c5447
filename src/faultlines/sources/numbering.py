"""A whole number for every row, by chance: of a hash of its unit, or of its place where it has no unit."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from faultlines.sources import duck
from faultlines.sources.hashing import with_hash

if TYPE_CHECKING:
    import narwhals as nw

_DIGITS = 7  # hexadecimal ones of the hash
BITS = 4 * _DIGITS  # of a number, so that products with 31 bits fit into 64


def with_hash_number(frame: nw.LazyFrame[Any], column: str, seed: int, name: str) -> nw.LazyFrame[Any]:
    """Add a whole number below 2²⁸ made of a hash of a column's text and a seed; null for null.

    Args:
        frame: Rows, under names of our own.
        column: The column.
        seed: The seed.
        name: The name of the new column.
    """
    import narwhals as nw

    hashed = with_hash(frame, column, seed, name)
    native, engine = hashed.to_native(), hashed.implementation
    made: Any
    if engine.is_duckdb():
        quoted = duck.quoted(name)
        made = native.project(f"* REPLACE (('0x' || {quoted}[:{_DIGITS}])::BIGINT AS {quoted})")
    elif engine.is_polars():
        pl = import_module("polars")
        digits = pl.col(name).str.slice(0, _DIGITS)
        made = native.with_columns(digits.str.to_integer(base=16, dtype=pl.Int64).alias(name))
    elif engine.is_pyspark() or engine.is_pyspark_connect():
        functions = import_module("pyspark.sql.functions")
        digits = functions.substring(functions.col(name), 1, _DIGITS)
        made = native.withColumn(name, functions.conv(digits, 16, 10).cast("bigint"))
    else:
        ibis = import_module("ibis")
        digit = ibis.literal("0123456789abcdef")
        number = sum(digit.find(native[name].substr(i, 1)) * 16 ** (_DIGITS - 1 - i) for i in range(_DIGITS))
        # A null is not found, which some engines take for a number.
        made = native.mutate(**{name: native[name].isnull().ifelse(ibis.null(), number).cast("int64")})
    numbered: nw.LazyFrame[Any] = nw.from_native(made).lazy()
    return numbered


def with_row_number(frame: nw.LazyFrame[Any], name: str) -> nw.LazyFrame[Any]:
    """Add a number of its own for every row: its place from 1 on, where rows have an order."""
    import narwhals as nw

    native, engine = frame.to_native(), frame.implementation
    made: Any
    if engine.is_duckdb():
        made = native.project(f"*, row_number() OVER () AS {duck.quoted(name)}")
    elif engine.is_polars():
        pl = import_module("polars")
        made = native.with_row_index(name, offset=1).with_columns(pl.col(name).cast(pl.Int64))
    elif engine.is_pyspark() or engine.is_pyspark_connect():
        functions = import_module("pyspark.sql.functions")
        made = native.withColumn(name, functions.monotonically_increasing_id() + 1)
    else:
        made = native.mutate(**{name: import_module("ibis").row_number() + 1})
    numbered: nw.LazyFrame[Any] = nw.from_native(made).lazy()
    return numbered
