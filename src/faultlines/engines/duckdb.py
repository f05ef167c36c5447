"""DuckDB, the engine of files and of frames in memory: connections that load nothing, errors that say what happened."""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from faultlines.engines.protocol import HASH_DIGITS, PREFIX, TIME_FORMAT, VALUE, Column, Engine, Selection
from faultlines.errors import InputError, shorten, shorten_text
from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    import duckdb
    import narwhals as nw


_Result = TypeVar("_Result")
_OWN: ContextVar[duckdb.DuckDBPyConnection | None] = ContextVar("own connection", default=None)
_PATIENCE = 0.3  # seconds that an interrupted query has to end before it is left alone
# Frames of at most this many rows are read in one database that stays open: opening one takes 9 ms, a query of such a
# frame 1 ms. A database keeps what its largest query needed, so longer frames get one that is closed afterwards.
_MOST_SHARED_ROWS = 100_000


def connect() -> duckdb.DuckDBPyConnection:
    """A connection of our own. It installs and loads no extension: reading a table never reaches for the network."""
    import duckdb

    return duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})


_SQL = "Write one SELECT, as in: select * from 'visits/*.parquet' where day >= '2024-01-01'"


def query(sql: str) -> duckdb.DuckDBPyRelation:
    """The rows of a query over files, run when they are read; it can do nothing but read.

    Args:
        sql: One SELECT.

    Returns:
        A relation on a connection of its own, without extensions, variables of Python or further settings.

    Raises:
        InputError: If it is anything else than one SELECT, or cannot be run.
    """
    import duckdb

    engine = connect()
    engine.execute("SET python_enable_replacements = false; SET lock_configuration = true")
    try:
        statements = engine.extract_statements(sql)
        kinds = [statement.type for statement in statements]
        if kinds != [duckdb.StatementType.SELECT]:
            problem = "is empty" if not kinds else "is not one SELECT"
            raise InputError.unsupported("sql", problem, f"{_SQL}.", shorten_text(sql, 60))
        relation = engine.sql(statements[0].query)
    except duckdb.Error as error:
        problem = f"cannot be run ({describe_error(error)})"
        raise InputError.invalid("sql", problem, f"{_SQL}.", shorten_text(sql, 60)) from error
    if relation is None:
        raise InputError.unsupported("sql", "returns no rows", f"{_SQL}.", shorten_text(sql, 60))
    return relation


class _SharedDatabase:
    """The database of short frames: each call has its own connection to it, with its own temporary tables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.connection: duckdb.DuckDBPyConnection | None = None
        if hasattr(os, "register_at_fork"):  # a child that inherits an open database crashes when it closes it
            os.register_at_fork(
                before=self._prepare_fork, after_in_parent=self._lock.release, after_in_child=self._lock.release
            )

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A connection that sees no tables of others."""
        with self._lock:
            self.connection = self.connection or connect()
            return self.connection.cursor()

    def drop(self) -> None:
        """Let the next call open another; this one closes with the last connection to it."""
        with self._lock:
            self.connection = None

    def _prepare_fork(self) -> None:
        self._lock.acquire()
        self.connection = None


SHARED_DATABASE = _SharedDatabase()


@contextmanager
def own_connection(*, shared: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for a block of queries, which end at once when the user interrupts.

    Args:
        shared: Whether to read in the database that stays open; not for files, as a database remembers their contents.
    """
    engine = SHARED_DATABASE.connect() if shared else connect()
    token = _OWN.set(engine)
    try:
        with interruptible():
            yield engine
    except BaseException as error:
        if shared and (not isinstance(error, InputError) or error.__cause__ is not None):
            SHARED_DATABASE.drop()  # after some errors a database answers nothing any more
        if not isinstance(error, KeyboardInterrupt):  # a query that has not ended yet needs it still, and drops it
            engine.close()
        raise
    else:
        engine.close()
    finally:
        _OWN.reset(token)


def run(work: Callable[[], _Result]) -> _Result:
    """Run a query. On a connection of our own it runs beside the main thread, which answers an interrupt at once.

    DuckDB looks for interrupts between pieces of work, which can take it seconds.
    """
    engine = _OWN.get()
    if engine is None or threading.current_thread() is not threading.main_thread():
        with interruptible():
            return work()
    done: list[_Result] = []
    failed: list[BaseException] = []
    over = threading.Event()

    def task() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            over.set()

    # No daemon: a query that ends while the interpreter is being taken down would abort the process.
    threading.Thread(target=task, name="faultlines query").start()
    try:
        over.wait()
    except KeyboardInterrupt:
        engine.interrupt()
        over.wait(_PATIENCE)
        raise
    if failed:
        raise failed[0]
    return done[0]


def quote(name: str) -> str:
    """The name of a column in a query."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Text in a query."""
    return "'" + text.replace("'", "''") + "'"


def quote_path(path: object) -> str:
    """A path in a query. DuckDB takes paths for patterns; in brackets, their characters stand for themselves."""
    return quote_text("".join(f"[{c}]" if c in "[*?" else c for c in str(path)))


def write_list(values: Sequence[str]) -> str:
    """A list in a query."""
    return f"[{', '.join(values)}]"


@contextmanager
def interruptible() -> Iterator[None]:
    """DuckDB answers an interrupt by an error of its own; callers expect the usual one."""
    try:
        yield
    except RuntimeError as error:
        if "interrupt" in str(error).lower():
            raise KeyboardInterrupt from error
        raise


def describe_error(error: BaseException) -> str:
    """The first few lines of a message, where the first names the place and the next the reason."""
    lines = [line.strip() for line in str(error).strip().splitlines()[:3] if line.strip()]
    return shorten_text("; ".join(lines)) or type(error).__name__


# -------------------------------------------------------------------------------------------------------- the engine


SHARED = threading.RLock()  # held while a query runs on a connection of the user


class DuckDB(Engine):
    """DuckDB relations, and frames of pandas and PyArrow, which it scans where they are."""

    error_modules = frozenset({"duckdb", "_duckdb", "pyarrow"})
    sums_powers_fast = True

    def owns(self, implementation: nw.Implementation) -> bool:
        """DuckDB, and everything in memory that can become PyArrow."""
        return implementation.is_duckdb() or implementation.is_pandas_like() or implementation.is_pyarrow()

    @property
    def has_exact_shapes(self) -> bool:
        """Since 2.0; of values about a million, skewed by 2.2, releases before said 3,518."""
        import duckdb

        return int(duckdb.__version__.partition(".")[0]) >= 2

    def select(self, native: Any, selections: Sequence[Selection], width: int) -> Any:
        """By quoted name."""
        types = native.types
        return native.project(", ".join(f"{_select_column(s, types[s.place])} AS {quote(s.name)}" for s in selections))

    def type_names(self, native: Any) -> list[str]:
        """As DuckDB writes them."""
        return [str(dtype) for dtype in native.types]

    def fetch(self, native: Any) -> dict[str, Column]:
        """Masked arrays."""
        columns: dict[str, Column] = run(native.fetchnumpy)
        return columns

    @contextmanager
    def materialize(self, native: Any) -> Iterator[Any]:
        """As a temporary table on the connection of the rows."""
        name = f"{PREFIX}{secrets.token_hex(8)}"
        run(lambda: native.query("asked", f"CREATE TEMPORARY TABLE {name} AS SELECT * FROM asked"))
        try:
            yield native.query("asked", f"SELECT * FROM {name}")
        except KeyboardInterrupt:
            raise  # the connection may be busy still
        except BaseException:
            native.query("asked", f"DROP TABLE {name}")
            raise
        else:
            native.query("asked", f"DROP TABLE {name}")

    def create_table(self, native: Any, columns: Mapping[str, IntArray]) -> Any:
        """Arrays that DuckDB reads where they are, on the connection of the rows."""
        faultlines_table = {name: np.ascontiguousarray(values, dtype=np.int64) for name, values in columns.items()}
        table = native.query("faultlines_rows", "SELECT * FROM faultlines_table")
        del faultlines_table
        return table

    def join_values(
        self, native: Any, marks: Mapping[str, list[str]], values: FloatArray, column: str, *, integer: bool
    ) -> Any:
        """By a join on the connection of the rows, to arrays that DuckDB reads where they are."""
        faultlines_groups = {name: np.array(texts, dtype=object) for name, texts in marks.items()} | {VALUE: values}
        rows = f"{PREFIX}{secrets.token_hex(8)}"  # rows that were joined before keep their name, before DuckDB 2.0
        on = " AND ".join(f"{rows}.{quote(name)} = g.{quote(name)}" for name in marks)
        # NaN would be a number; what has no value is null.
        value = f"CASE WHEN isnan(g.{VALUE}) THEN NULL ELSE g.{VALUE} END::{'BIGINT' if integer else 'DOUBLE'}"
        picks = f"{rows}.*, {value} AS {quote(column)}"
        joined = native.query(rows, f"SELECT {picks} FROM {rows} LEFT JOIN faultlines_groups AS g ON {on}")
        del faultlines_groups
        return joined

    def hash_text(self, native: Any, column: str) -> Any:
        """DuckDB's own MD5."""
        return native.project(f"* REPLACE (md5({quote(column)}) AS {quote(column)})")

    def parse_hash(self, native: Any, column: str) -> Any:
        """By a cast of hexadecimal text."""
        return native.project(f"* REPLACE (('0x' || {quote(column)}[:{HASH_DIGITS}])::BIGINT AS {quote(column)})")

    def number_rows(self, native: Any, name: str) -> Any:
        """By a window."""
        return native.project(f"*, row_number() OVER () AS {quote(name)}")

    def to_sql(self, native: Any, dialect: str | None) -> str | None:
        """In DuckDB's own dialect."""
        if dialect not in {None, "duckdb"}:
            problem = "a DuckDB relation is written in DuckDB's SQL"
            raise InputError.unsupported(
                "dialect", problem, 'Give ibis.table(schema, name="visits").', dialect, form="clause"
            )
        return str(native.sql_query())

    @contextmanager
    def open_eager(self, frame: nw.DataFrame[Any], columns: Sequence[str]) -> Iterator[tuple[Any, dict[str, str]]]:
        """Scanned in place; numbered, as DuckDB cannot distinguish names that differ in case only."""
        names = {column: f"f{i}" for i, column in enumerate(columns)}
        with own_connection(shared=len(frame) <= _MOST_SHARED_ROWS) as connection:
            yield _scan_frame(connection, frame.select(*columns), list(names.values())), names

    def append_column(self, frame: nw.DataFrame[Any], values: FloatArray, column: str, *, integer: bool) -> Any:
        """PyArrow has nulls for numbers; pandas has NaN, and then no whole numbers."""
        native, nulls = frame.to_native(), np.isnan(values)
        if frame.implementation.is_pyarrow():
            pa = import_module("pyarrow")
            numbers = pa.array(np.where(nulls, 0, values), pa.float64(), mask=nulls)
            return native.append_column(column, numbers.cast(pa.int64() if integer else pa.float64()))
        return native.assign(**{column: values.astype(np.int64) if integer and not nulls.any() else values})

    def interruptible(self) -> AbstractContextManager[None]:
        """DuckDB answers an interrupt by an error of its own."""
        return interruptible()

    def exclusive(self, native: Any) -> AbstractContextManager[Any]:
        """One call at a time: a connection refuses a second one, and a cursor of it does not see registered frames."""
        return SHARED

    def is_out_of_memory(self, error: Exception) -> bool:
        """By DuckDB's error or Python's."""
        import duckdb

        return isinstance(error, duckdb.OutOfMemoryException | MemoryError)


def _select_column(selection: Selection, dtype: object) -> str:
    column = quote(selection.column)
    if selection.zone is None:
        return column
    if selection.zone:
        fraction = "%n" if str(dtype) == "TIMESTAMPTZ_NS" else "%f"  # with text behind %n, DuckDB 2.0 adds empty bytes
        return f"strftime({column} AT TIME ZONE 'UTC', '{TIME_FORMAT}.{fraction}') || '+00:00'"
    if str(dtype) == "TIMESTAMP_NS":
        return f"strftime({column}, '{TIME_FORMAT}.%n')"
    return f"strftime({column}::TIMESTAMP, '{TIME_FORMAT}.%f')"  # nanoseconds end in 2262


_MOST_DIGITS = 38  # of a decimal
_NUMBERS = frozenset({int, float, np.int64, np.float64})


def _mixes_text_and_numbers(column: Any, name: str) -> bool:
    try:
        kinds = {type(value) for value in column.unique()}
    except (
        TypeError,
        NotImplementedError,
    ):  # lists and records, the latter of Arrow: what names nothing is refused by its type
        return False
    if Decimal in kinds:
        _check_decimals(column, name)
    if kinds <= {bool, *_NUMBERS}:
        kinds = set(map(type, column.dropna()))  # True and 1 are one value to unique
        if bool in kinds and kinds & _NUMBERS:
            problem = "mixes True and False with numbers"
            where = f"column {shorten(name)}"
            raise InputError.ambiguous("data", problem, "Write each value in one way.", place=where)
    return str in kinds and bool(kinds & _NUMBERS)


def _check_decimals(column: Any, name: str) -> None:
    """Refuse decimals that have no common type: DuckDB would round the small ones, and join groups."""
    places = [
        (value.adjusted() + 1, -int(value.as_tuple().exponent))
        for value in column.unique()
        if isinstance(value, Decimal) and value.is_finite()
    ]
    whole, fraction = (max((place[i] for place in places), default=0) for i in (0, 1))
    if max(whole, 0) + max(fraction, 0) > _MOST_DIGITS:
        problem = f"holds decimals that take more than {_MOST_DIGITS} digits together"
        remedy = "Give them as text, or rounded to fewer digits."
        raise InputError.out_of_range("data", problem, remedy, place=f"column {shorten(name)}")


def _as_text(value: Any) -> str:
    """A value of a column that mixes text and numbers: 1.0 and "1.0" read as "1", so that these are one group."""
    return re.sub(r"^(-?[0-9]+)\.0+$", r"\1", str(value))


def _scan_frame(connection: duckdb.DuckDBPyConnection, frame: nw.DataFrame[Any], names: list[str]) -> Any:
    """A frame in memory as a relation, under other names."""
    if not frame.implementation.is_pandas():
        return connection.from_arrow(_without_halves(frame.to_arrow().rename_columns(names)))
    native = frame.to_native().set_axis(names, axis=1)
    for name in names:
        dtype = native[name].dtype
        if str(dtype) == "halffloat[pyarrow]":
            native = native.assign(**{name: native[name].astype("float32[pyarrow]")})
        inner = getattr(getattr(dtype, "categories", None), "dtype", dtype)
        if type(inner).__name__ in {"IntervalDtype", "PeriodDtype"}:  # unknown to DuckDB
            native = native.assign(**{name: native[name].astype(object).map(str, na_action="ignore")})
        elif _has_zoned_nanoseconds(native[name]):  # DuckDB would cut them to microseconds, and join groups
            native = native.assign(**{name: native[name].dt.tz_convert("UTC").map(str, na_action="ignore")})
        elif dtype.kind == "O" and _mixes_text_and_numbers(native[name], frame.columns[names.index(name)]):
            native = native.assign(**{name: native[name].map(_as_text, na_action="ignore")})
    return connection.from_df(native)


def _has_zoned_nanoseconds(column: Any) -> bool:
    dtype = column.dtype
    is_zoned = getattr(dtype, "tz", None) is not None and getattr(dtype, "unit", "") == "ns"
    return is_zoned and bool((column.dt.nanosecond > 0).any())


def _without_halves(table: Any) -> Any:
    """A table of Arrow whose floats of 16 bits are floats of 32 bits: DuckDB has none."""
    pa = import_module("pyarrow")
    fields = [f.with_type(pa.float32()) if pa.types.is_float16(f.type) else f for f in table.schema]
    return table.cast(pa.schema(fields)) if pa.schema(fields) != table.schema else table
