"""Polars: queries run in its streaming engine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from faultlines.engines.protocol import HASH_DIGITS, TIME_FORMAT, VALUE, Column, Engine, Selection
from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    import narwhals as nw


class Polars(Engine):
    """Polars frames, lazy or in memory."""

    error_modules = frozenset({"polars"})
    buffers_joins = True

    def owns(self, implementation: nw.Implementation) -> bool:
        """Polars alone."""
        return implementation.is_polars()

    def select(self, native: Any, selections: Sequence[Selection], width: int) -> Any:
        """By place: `pl.col` reads "*" and "^…$" as patterns. A cast of a time of day to text loses its fractions."""
        pl = import_module("polars")
        columns, types = [], native.collect_schema().dtypes()
        for selection in selections:
            column = pl.nth(selection.place)
            if types[selection.place] == pl.Time:
                column = column.dt.strftime("%H:%M:%S%.f")
            if str(types[selection.place]) == "Float16":  # since Polars 1.36
                column = column.cast(pl.Float32)
            if selection.zone is not None:
                column = column.dt.convert_time_zone("UTC") if selection.zone else column
                column = column.dt.strftime(f"{TIME_FORMAT}%.9f{'+00:00' if selection.zone else ''}")
            columns.append(column.alias(selection.name))
        return native.select(columns)

    def type_names(self, native: Any) -> list[str]:
        """As Polars writes them."""
        return [str(dtype) for dtype in native.collect_schema().dtypes()]

    def fetch(self, native: Any) -> dict[str, Column]:
        """Arrays where there are no nulls, lists otherwise."""
        columns = native.collect(engine="streaming").get_columns()
        return {c.name: c.to_list() if c.null_count() or not c.dtype.is_numeric() else c.to_numpy() for c in columns}

    @contextmanager
    def materialize(self, native: Any) -> Iterator[Any]:
        """In memory."""
        yield native.collect(engine="streaming").lazy()

    def create_table(self, native: Any, columns: Mapping[str, IntArray]) -> Any:
        """A lazy frame."""
        return import_module("polars").LazyFrame(dict(columns))

    def join_values(
        self, native: Any, marks: Mapping[str, list[str]], values: FloatArray, column: str, *, integer: bool
    ) -> Any:
        """In the order of the rows."""
        pl = import_module("polars")
        groups = pl.LazyFrame({**marks, VALUE: pl.Series(values, dtype=pl.Float64).fill_nan(None)})
        joined = native.join(groups, on=list(marks), how="left", maintain_order="left")
        return joined.with_columns(pl.col(VALUE).cast(pl.Int64 if integer else pl.Float64).alias(column)).drop(VALUE)

    def hash_text(self, native: Any, column: str) -> Any:
        """Polars has no MD5 of its own: it is computed in Python, once for each distinct text."""
        pl = import_module("polars")
        hashed = pl.col(column).map_batches(_hash_series, return_dtype=pl.String, is_elementwise=True)
        return native.with_columns(hashed)

    def parse_hash(self, native: Any, column: str) -> Any:
        """As a number in base 16."""
        pl = import_module("polars")
        digits = pl.col(column).str.slice(0, HASH_DIGITS)
        return native.with_columns(digits.str.to_integer(base=16, dtype=pl.Int64).alias(column))

    def number_rows(self, native: Any, name: str) -> Any:
        """The index of a row."""
        pl = import_module("polars")
        return native.with_row_index(name, offset=1).with_columns(pl.col(name).cast(pl.Int64))

    @contextmanager
    def open_eager(self, frame: nw.DataFrame[Any], columns: Sequence[str]) -> Iterator[tuple[Any, dict[str, str]]]:
        """The same frame, lazily."""
        yield frame.to_native().lazy(), {column: column for column in columns}

    def append_column(self, frame: nw.DataFrame[Any], values: FloatArray, column: str, *, integer: bool) -> Any:
        """As a Series with nulls."""
        pl = import_module("polars")
        series = pl.Series(column, values).fill_nan(None)
        return frame.to_native().with_columns(series.cast(pl.Int64) if integer else series)


def _hash_series(series: Any) -> Any:
    distinct = series.unique()
    hashes = [None if t is None else hashlib.md5(t.encode(), usedforsecurity=False).hexdigest() for t in distinct]
    return series.replace_strict(distinct, hashes, return_dtype=series.dtype)
