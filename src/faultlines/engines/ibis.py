"""Ibis: tables of a database that stay there, and the SQL they are asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.engines.duckdb import SHARED
from faultlines.engines.protocol import HASH_DIGITS, PREFIX, TIME_FORMAT, VALUE, Column, Engine, Selection
from faultlines.errors import InputError, did_you_mean, first_line
from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    import narwhals as nw

_ZONED_NANOSECONDS = "TIMESTAMPTZ_NS"


class Ibis(Engine):
    """Ibis tables, connected to a database or not."""

    error_modules = frozenset({"ibis"})
    buffers_joins = True

    def owns(self, implementation: nw.Implementation) -> bool:
        """Ibis alone."""
        return implementation.is_ibis()

    @property
    def has_exact_shapes(self) -> bool:
        """Never: databases have no kurtosis, or one of powers of the values as they are."""
        return False

    def select(self, native: Any, selections: Sequence[Selection], width: int) -> Any:
        """By name."""
        columns = {s.name: _select_column(native[s.column], s.zone) for s in selections}
        if _is_on_duckdb(native):
            columns = {name: _drop_nan(column) for name, column in columns.items()}
        return native.select(**columns)

    def type_names(self, native: Any) -> list[str]:
        """As Ibis writes them; nanoseconds with a zone, which it does not know, as DuckDB does."""
        names = [str(dtype) for dtype in native.schema().types]
        return [_ZONED_NANOSECONDS if name.endswith(f"kind={_ZONED_NANOSECONDS}))") else name for name in names]

    def fetch(self, native: Any) -> dict[str, Column]:
        """Lists, by way of PyArrow."""
        table = native.to_pyarrow()
        return {name: table[name].to_pylist() for name in table.column_names}

    @contextmanager
    def materialize(self, native: Any) -> Iterator[Any]:
        """Computed again at each use: a warehouse may not let us keep tables."""
        yield native

    def create_table(self, native: Any, columns: Mapping[str, IntArray]) -> Any:
        """A table in memory."""
        return _table_in_memory(columns)

    def join_values(
        self, native: Any, marks: Mapping[str, list[str]], values: FloatArray, column: str, *, integer: bool
    ) -> Any:
        """By a left join; the marks of the groups have names of their own."""
        renamed = {f"{PREFIX}{name}": texts for name, texts in marks.items()}
        groups = _table_in_memory({**renamed, VALUE: np.ma.masked_invalid(values)})
        joined = native.left_join(groups, [native[name] == groups[f"{PREFIX}{name}"] for name in marks])
        typed = joined.mutate(**{column: joined[VALUE].cast("int64" if integer else "float64")})
        return typed.drop(*renamed, VALUE)

    def hash_text(self, native: Any, column: str) -> Any:
        """The database's own MD5."""
        return native.mutate(**{column: native[column].hexdigest("md5")})

    def parse_hash(self, native: Any, column: str) -> Any:
        """Digit by digit, as databases have no common function for it."""
        ibis = import_module("ibis")
        digits, text = ibis.literal("0123456789abcdef"), native[column]
        number = sum(digits.find(text.substr(i, 1)) * 16 ** (HASH_DIGITS - 1 - i) for i in range(HASH_DIGITS))
        # A null is not found, which some engines take for a number.
        return native.mutate(**{column: text.isnull().ifelse(ibis.null(), number).cast("int64")})

    def number_rows(self, native: Any, name: str) -> Any:
        """In whatever order the database has them."""
        return native.mutate(**{name: import_module("ibis").row_number() + 1})

    def exclusive(self, native: Any) -> AbstractContextManager[Any]:
        """One call at a time on DuckDB, where tables in memory are too; other databases answer several at once."""
        return SHARED if _is_on_duckdb(native) else nullcontext()

    def to_sql(self, native: Any, dialect: str | None) -> str | None:
        """In any dialect that Ibis writes."""
        import ibis
        from ibis.backends.sql import compilers
        from ibis.common.exceptions import IbisError

        names = [name for name in dir(compilers) if hasattr(getattr(compilers, name), "compiler")]
        if dialect is not None and (not isinstance(dialect, str) or dialect not in names):
            problem = "is not a dialect that Ibis writes"
            raise InputError.unknown("dialect", problem, did_you_mean(dialect, names), dialect)
        try:
            with _pyspark_options():
                return str(ibis.to_sql(native, dialect=dialect))
        except (IbisError, NotImplementedError) as error:  # the latter of databases that have no NaN, such as MySQL
            problem = f"cannot be written ({first_line(error)})"
            raise InputError.unsupported("dialect", problem, "Use another metric or database.", dialect) from error


@contextmanager
def _pyspark_options() -> Iterator[None]:
    """Options of Spark that its SQL is written by: Ibis has none before it is connected to Spark."""
    import ibis
    from ibis.config import Config

    if ibis.options.pyspark is not None:
        yield
        return
    plain = type("Plain", (Config,), {"__annotations__": {"treat_nan_as_null": bool}, "treat_nan_as_null": False})
    ibis.options.pyspark = plain()
    try:
        yield
    finally:
        ibis.options.pyspark = None


def _table_in_memory(columns: Mapping[str, Any]) -> Any:
    """Of Arrow: Ibis has it at hand, and asks pandas for an option that it warns of."""
    return import_module("ibis").memtable(import_module("pyarrow").table(dict(columns)))


def _is_on_duckdb(native: Any) -> bool:
    from ibis.common.exceptions import IbisError

    try:
        return bool(native.get_backend().name == "duckdb")
    except IbisError:  # a table that is not connected
        return False


def _drop_nan(column: Any) -> Any:
    """Floats with NaN as null, without ``isnan``, by which Ibis tells finite numbers: see `is_not_nan`."""
    return (column.isinf() | (column - column == 0)).ifelse(column, None) if column.type().is_floating() else column


def _select_column(column: Any, zone: str | None) -> Any:
    if zone is None:
        return column
    dtype = column.type()
    if dtype.is_unknown() or dtype.scale == 9:  # strftime has no nanoseconds
        text = column.cast("timestamp(9)").cast("string")
        return text + "+00:00" if zone else text
    if zone:
        return column.cast("timestamp('UTC')").strftime(f"{TIME_FORMAT}.%f+00:00")
    if dtype.scale in {0, 3}:  # DuckDB would make them nanoseconds, which end in 2262
        column = column.cast("timestamp(6)")
    return column.strftime(f"{TIME_FORMAT}.%f")
