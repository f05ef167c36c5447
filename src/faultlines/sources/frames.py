"""Rows where they are: a frame or files opened for a query, without being read."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from faultlines.errors import InputError, did_you_mean, first_line, shorten
from faultlines.sources import duck, paths
from faultlines.sources.columns import Pick, is_time, picked
from faultlines.sources.csvs import csv_error, csv_query
from faultlines.sources.parquet import parquet_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import duckdb
    import narwhals as nw

ENGINES = {"duckdb", "_duckdb", "polars", "pyarrow", "pyspark", "py4j", "ibis", "narwhals"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A column that will be used, and as what: cells of csv have no types but these.

    Args:
        parameter: The parameter that named it, for messages.
        column: Its name.
        kind: ``"key"`` for names of things, ``"number"`` for numbers, ``"binary"`` for yes/no as 0/1 or true/false.
    """

    parameter: str
    column: str
    kind: Literal["key", "number", "binary"] = "key"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows that can be queried; their columns have names of our own.

    Args:
        frame: The rows, with the wanted columns only.
        from_text: Whether they come from csv, whose keys are text.
        keys: Column → its name in the frame, as key.
        numbers: Column → its name in the frame, as number.
        times: The names in the frame under which there are times as text; see `columns.time_name`.
    """

    frame: nw.LazyFrame[Any]
    from_text: bool
    keys: Mapping[str, str]
    numbers: Mapping[str, str]
    times: frozenset[str]


def index_names(frame: nw.LazyFrame[Any] | nw.DataFrame[Any]) -> Sequence[object]:
    """What the levels of the index are called, in a frame that has one."""
    return getattr(getattr(frame.to_native(), "index", None), "names", ()) if frame.implementation.is_pandas() else ()


def check_columns(wanted: Mapping[str, str], present: Sequence[str], index: Sequence[object] = ()) -> None:
    """Refuse a column that is not there, or is there twice; `index` names what is beside the columns."""
    for parameter, column in wanted.items():
        if column not in present and column in index:
            remedy = "Make it a column: frame.reset_index()."
            raise InputError(f"{parameter}={shorten(column)}", "is in the index of the frame, not a column", remedy)
        if column not in present:
            raise InputError(f"{parameter}={shorten(column)}", "no such column", did_you_mean(column, present))
        if sum(name == column for name in present) > 1:
            raise InputError(f"{parameter}={shorten(column)}", "two columns have this name", "Rename one of them.")


def _check_wanted(wanted: Sequence[Wanted], present: Sequence[str], index: Sequence[object] = ()) -> None:
    for one in wanted:
        check_columns({one.parameter: one.column}, present, index)


def opened(data: object, parameter: str = "data") -> nw.LazyFrame[Any] | nw.DataFrame[Any]:
    """A frame as narwhals sees it, or an error that says what was given instead."""
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    try:
        frame = nw.from_native(data)  # type: ignore[call-overload]
    except (TypeError, NarwhalsError) as error:
        problem = "is not a frame" if isinstance(error, TypeError) else f"cannot be read, {unreadable(error)}"
        raise InputError(
            f"{parameter}={type(data).__name__}",
            problem,
            "Give a pandas, Polars, PyArrow, DuckDB, Spark or Ibis frame, or csv or parquet files.",
        ) from error
    if isinstance(frame, nw.DataFrame | nw.LazyFrame):
        return frame
    raise InputError(f"{parameter}={type(data).__name__}", "is not a table", "Give the whole frame.")


def unreadable(error: Exception) -> str:
    """Why narwhals does not take a frame."""
    return f"is not a frame narwhals can read ({duck.message(error)})"


@contextmanager
def scan(data: object, wanted: Sequence[Wanted]) -> Iterator[Rows]:
    """Open rows in the engine they are in, without reading them.

    Args:
        data: A frame, or the path, paths or glob of csv or parquet files.
        wanted: The columns that will be used.

    Raises:
        InputError: If they cannot be read, now or by a query within the block.
    """
    if paths.are_paths(data):
        given = [data] if isinstance(data, str | Path) else data
        files = paths.files(given)  # type: ignore[arg-type]
        with _files(files, wanted) as rows:
            yield rows
        return
    frame = opened(data)
    with reported(data), _frame(frame, wanted) as rows:
        yield rows


@contextmanager
def reported(data: object, parameter: str = "data") -> Iterator[None]:
    """Report what an engine says about a frame as an error of ours, and an interrupt as the usual one."""
    try:
        with duck.interruptible():
            yield
    except Exception as error:
        if type(error).__module__.split(".")[0] not in ENGINES and not isinstance(error, OSError | MemoryError):
            raise
        shown = f"{parameter}={type(data).__name__}"
        problem = f"cannot be read ({first_line(error)})"
        raise duck.out_of_memory(shown, error) or InputError(shown, problem, "Simplify its columns.") from error


# -------------------------------------------------------------------------------------------------------------- frames


@contextmanager
def _frame(frame: nw.LazyFrame[Any] | nw.DataFrame[Any], wanted: Sequence[Wanted]) -> Iterator[Rows]:
    import narwhals as nw

    schema = frame.collect_schema()
    _check_wanted(wanted, schema.names(), index_names(frame))
    if isinstance(frame, nw.LazyFrame):
        yield _typed(frame, wanted)
    elif frame.implementation.is_polars():
        yield _typed(frame.lazy(), wanted)
    else:
        with duck.own_connection() as engine:
            columns = list(dict.fromkeys(one.column for one in wanted))
            # DuckDB cannot tell names that differ in case only, so they are changed before it sees them.
            lazy = nw.from_native(_bridged(engine, frame.select(columns))).lazy()
            yield _typed(lazy, wanted, {column: f"f{i}" for i, column in enumerate(columns)})


def _bridged(engine: duckdb.DuckDBPyConnection, frame: nw.DataFrame[Any]) -> Any:
    """An eager frame as DuckDB sees it: scanned where it is, its columns numbered."""
    if not frame.implementation.is_pandas():
        arrow = frame.to_arrow()
        return engine.from_arrow(arrow.rename_columns([f"f{i}" for i in range(arrow.num_columns)]))
    native = frame.to_native()
    native = native.set_axis([f"f{i}" for i in range(native.shape[1])], axis=1)
    for name in native.columns:
        kind = native[name].dtype
        inner = getattr(getattr(kind, "categories", None), "dtype", kind)
        if type(inner).__name__ in {"IntervalDtype", "PeriodDtype"}:  # unknown to DuckDB
            native = native.assign(**{name: native[name].astype(object).map(str, na_action="ignore")})
    return engine.from_df(native)


def _typed(frame: nw.LazyFrame[Any], wanted: Sequence[Wanted], called: Mapping[str, str] | None = None) -> Rows:
    """Rows whose columns have types: each is taken once; times that are keys become text.

    Args:
        frame: The rows.
        wanted: The columns.
        called: Column → its name in the frame, where that is another one.
    """
    schema = frame.collect_schema()
    picks: list[Pick] = []
    keys: dict[str, str] = {}
    numbers: dict[str, str] = {}
    times: set[str] = set()
    for one in wanted:
        source = one.column if called is None else called[one.column]
        known, is_key = (keys, True) if one.kind == "key" else (numbers, False)
        if one.column in known:
            continue
        time = is_key and is_time(schema[source])
        other = (numbers if is_key else keys).get(one.column)
        if other is not None and not time and other not in times:
            known[one.column] = other
            continue
        name = f"c{len(picks)}"
        picks.append(Pick(source, name, as_text=time))
        known[one.column] = name
        times |= {name} if time else set()
    return Rows(picked(frame, picks), False, keys, numbers, frozenset(times))


# --------------------------------------------------------------------------------------------------------------- files


@contextmanager
def _files(files: Sequence[Path], wanted: Sequence[Wanted]) -> Iterator[Rows]:
    import duckdb
    import narwhals as nw

    shown = paths.shown(files[0]) + (f" (and {len(files) - 1} more)" if len(files) > 1 else "")
    with duck.own_connection() as engine:
        try:
            if paths.is_parquet(files[0]):
                columns = [one.column for one in wanted]
                keys = {one.column: one.parameter for one in wanted if one.kind == "key"}
                relation, names = parquet_rows(engine, files, columns, keys, partial(_check_wanted, wanted))
                yield _typed(nw.from_native(relation).lazy(), wanted, names)
            else:
                yield _csv(engine, files, wanted)
        except duckdb.Error as error:
            memory = duck.out_of_memory(shown, error)
            if memory is not None:
                raise memory from error
            if not paths.is_parquet(files[0]):
                numbers = [(one.parameter, one.column, one.kind == "binary") for one in wanted if one.kind != "key"]
                raise csv_error(files, numbers, error) from error
            problem = f"cannot be read ({duck.message(error)})"
            raise InputError(shown, problem, "Correct the file or the named line.") from error


def _csv(engine: duckdb.DuckDBPyConnection, files: Sequence[Path], wanted: Sequence[Wanted]) -> Rows:
    import narwhals as nw

    keys = {column: f"t{i}" for i, column in enumerate(dict.fromkeys(w.column for w in wanted if w.kind == "key"))}
    numbers = {column: f"n{i}" for i, column in enumerate(dict.fromkeys(w.column for w in wanted if w.kind != "key"))}
    query = csv_query(files, keys, numbers, partial(_check_wanted, wanted))
    return Rows(nw.from_native(engine.sql(query)).lazy(), True, keys, numbers, frozenset())
