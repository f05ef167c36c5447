"""Rows where they are: the engine of a frame, what it does for shared code, and data opened without being read."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from faultlines.checks import column as checked_column
from faultlines.engines import duckdb as duck
from faultlines.engines import readers
from faultlines.engines.duckdb import DuckDB
from faultlines.engines.ibis import Ibis
from faultlines.engines.polars import Polars
from faultlines.engines.protocol import (
    Column,
    Engine,
    Selection,
    format_time,
    has_no_type,
    is_not_nan,
    is_time,
    time_zone,
    to_floats,
)
from faultlines.engines.readers import check_file, expand_path, not_numeric_error, open_stdin, parse_number, show_file
from faultlines.engines.spark import Spark
from faultlines.errors import Argument, InputError, did_you_mean, first_line, shorten, to_numbers
from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    import narwhals as nw


ENGINES: tuple[Engine, ...] = (DuckDB(), Polars(), Spark(), Ibis())
_ERROR_MODULES = frozenset({"narwhals"}).union(*(engine.error_modules for engine in ENGINES))
_NAMELESS = ("map", "union", "struct", "variant", "interval")  # native types that narwhals may not know
_USABLE_DATA = "Give a pandas, Polars, PyArrow, DuckDB, Spark or Ibis frame, or csv or parquet files."


def engine_of(frame: nw.LazyFrame[Any] | nw.DataFrame[Any]) -> Engine:
    """Choose the engine that queries a frame.

    Raises:
        InputError: If no engine does.
    """
    for engine in ENGINES:
        if engine.owns(frame.implementation):
            return engine
    raise InputError.wrong_type("data", "is not a frame faultlines can query", _USABLE_DATA, type(frame.to_native()))


# ------------------------------------------------------------------------------------------ what engines do for rows


def select_columns(frame: nw.LazyFrame[Any], selections: Sequence[Selection]) -> nw.LazyFrame[Any]:
    """Take columns under other names; times become text where that is asked for."""
    schema = frame.collect_schema()
    names, engine = schema.names(), engine_of(frame)
    types = engine.type_names(frame.to_native()) if any(s.as_text for s in selections) else [""] * len(names)
    places = [names.index(s.column) for s in selections]
    resolved = [
        s._replace(place=place, zone=time_zone(schema[s.column], types[place]) if s.as_text else None)
        for s, place in zip(selections, places, strict=True)
    ]
    return _lazy(engine.select(frame.to_native(), resolved, len(names)))


def fetch(frame: nw.LazyFrame[Any]) -> dict[str, Column]:
    """Run a query and bring its columns here by the engine's own way; nulls are masked, or None in a list."""
    return engine_of(frame).fetch(frame.to_native())


@contextmanager
def materialize(frame: nw.LazyFrame[Any]) -> Iterator[nw.LazyFrame[Any]]:
    """Compute a query once, to be read several times within the block."""
    with engine_of(frame).materialize(frame.to_native()) as table:
        yield _lazy(table)


def create_table(frame: nw.LazyFrame[Any], columns: Mapping[str, IntArray]) -> nw.LazyFrame[Any]:
    """Make a small table of whole numbers, under names of our own, that can be joined to a frame."""
    return _lazy(engine_of(frame).create_table(frame.to_native(), columns))


def join_values(
    frame: nw.LazyFrame[Any], marks: Mapping[str, list[str]], values: FloatArray, column: str, *, integer: bool
) -> nw.LazyFrame[Any]:
    """Join a value to every row of a frame, in the order of its rows where it has one.

    Args:
        frame: The rows, with columns of marks.
        marks: Column of marks → the mark of each group.
        values: The value of each group; NaN for none.
        column: The name of the new column.
        integer: Whether values are whole numbers.
    """
    return _lazy(engine_of(frame).join_values(frame.to_native(), marks, values, column, integer=integer))


def hash_column(frame: nw.LazyFrame[Any], column: str, seed: int, name: str) -> nw.LazyFrame[Any]:
    """Add a random whole number below 2²⁸: the MD5 of a column's text and a seed; null for null.

    Numbers have the text they have in a csv file, so that 5 and 5.0 are the same unit on every engine.

    Args:
        frame: Rows, under names of our own.
        column: The column.
        seed: The seed.
        name: The name of the new column.
    """
    import narwhals as nw

    text = _as_text(column, frame.collect_schema()[column])
    frame = frame.with_columns(nw.concat_str(text, nw.lit(f":{seed}")).alias(name))
    engine = engine_of(frame)
    return _lazy(engine.parse_hash(engine.hash_text(frame.to_native(), name), name))


def number_rows(frame: nw.LazyFrame[Any], name: str) -> nw.LazyFrame[Any]:
    """Add a whole number of its own for every row: its place from 1 on, where rows have an order."""
    return _lazy(engine_of(frame).number_rows(frame.to_native(), name))


def _lazy(native: Any) -> nw.LazyFrame[Any]:
    import narwhals as nw

    frame: nw.LazyFrame[Any] = nw.from_native(native).lazy()
    return frame


def _as_text(column: str, dtype: Any) -> Any:
    import narwhals as nw

    value = nw.col(column)
    if dtype == nw.String:
        return value
    if not dtype.is_float():
        return value.cast(nw.String)
    is_whole = (value == value.floor()) & (value.abs() < 2.0**53)
    integers = nw.when(is_whole).then(value).cast(nw.Int64).cast(nw.String)
    return nw.coalesce(integers, nw.when(is_not_nan(value)).then(value).cast(nw.String))


# ------------------------------------------------------------------------------------------------------ opening data


@dataclass(frozen=True, slots=True)
class ColumnUse:
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
        frame: The rows, with the columns in use only.
        from_text: Whether they come from csv, whose keys are text.
        keys: Column → its name in the frame, as key.
        numbers: Column → its name in the frame, as number.
        times: The names in the frame under which there are times as text; see `protocol.format_time`.
        is_stored: Whether they are read from files or memory, so that looking at the first few is cheap.
        present: All columns there are, also those that are not in use.
        orders: Name in the frame → its levels in their order, of columns that are ordered categories of text.
    """

    frame: nw.LazyFrame[Any]
    from_text: bool
    keys: Mapping[str, str]
    numbers: Mapping[str, str]
    times: frozenset[str]
    is_stored: bool = False
    present: tuple[str, ...] = ()
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def open_frame(data: object, parameter: str = "data") -> nw.LazyFrame[Any] | nw.DataFrame[Any]:
    """See a frame through narwhals.

    Raises:
        InputError: If it is something else; says what.
    """
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    try:
        frame = nw.from_native(data)  # type: ignore[call-overload]
    except (TypeError, NarwhalsError) as error:
        problem = "is not a frame" if isinstance(error, TypeError) else f"cannot be read, {describe_unreadable(error)}"
        raise InputError.wrong_type(parameter, problem, _USABLE_DATA, type(data)) from error
    if isinstance(frame, nw.DataFrame | nw.LazyFrame):
        return frame
    raise InputError.wrong_type(parameter, "is not a table", "Give the whole frame.", type(data))


def describe_unreadable(error: Exception) -> str:
    """Why narwhals does not take a frame."""
    return f"is not a frame narwhals can read ({duck.describe_error(error)})"


def index_names(frame: nw.LazyFrame[Any] | nw.DataFrame[Any]) -> Sequence[object]:
    """What the levels of the index are called, in a frame that has one."""
    return getattr(getattr(frame.to_native(), "index", None), "names", ()) if frame.implementation.is_pandas() else ()


def check_columns(columns: Mapping[str, str], present: Sequence[str], index: Sequence[object] = ()) -> None:
    """Refuse a column that is not there, or is there twice.

    Args:
        columns: Parameter → column.
        present: The columns there are.
        index: The names of an index beside them.
    """
    for parameter, column in columns.items():
        if column not in present and column in index:
            problem = "is in the index of the frame, not a column"
            raise InputError.column_not_found(parameter, problem, "Make it a column: frame.reset_index().", column)
        if column not in present:
            bare = parameter.partition("[")[0]  # by[1] is the second column of by
            raise InputError.column_not_found(
                bare, f"column {shorten(column)} not found", did_you_mean(column, present), column, form="column"
            )
        if sum(name == column for name in present) > 1:
            raise InputError.duplicate(parameter, "is the name of two columns", "Rename one of them.", column)


def check_uses(uses: Sequence[ColumnUse], present: Sequence[str], index: Sequence[object] = ()) -> None:
    """Refuse columns as `check_columns` does; one parameter may use several."""
    for use in uses:
        check_columns({use.parameter: use.column}, present, index)


@contextmanager
def scan(data: object, uses: Sequence[ColumnUse]) -> Iterator[Rows]:
    """Open rows in the engine they are in, without reading them.

    Args:
        data: A frame, or the path, paths or glob of csv or parquet files.
        uses: The columns that will be used.

    Raises:
        InputError: If they cannot be read, now or by a query within the block.
    """
    if readers.are_paths(data):
        paths = [data] if isinstance(data, str | Path) else data
        files = readers.find_files(paths)  # type: ignore[arg-type]
        with _scan_files(files, uses) as rows:
            yield rows
        return
    frame = open_frame(data)
    with report_errors(data, frame), _scan_frame(frame, uses) as rows:
        yield rows


def first_values(data: object, columns: Sequence[str], rows: int) -> dict[str, Column]:
    """Columns of the first few rows of files, or of a frame in memory."""
    with _first_rows(data, columns, rows) as opened:
        values = fetch(opened.frame.head(rows))
        return {column: values[opened.keys[column]] for column in columns}


def count_values(data: object, columns: Sequence[str], rows: int) -> dict[str, tuple[int, int]]:
    """How many values columns have in the first rows of files, or of a frame in memory, and how many distinct ones."""
    import narwhals as nw

    with _first_rows(data, columns, rows) as opened:
        counts = {}
        for column in columns:
            values = nw.col(opened.keys[column])
            present = opened.frame.head(rows).filter(~values.is_null())
            count = fetch(present.select(values.len().alias("all"), values.n_unique().alias("distinct")))
            counts[column] = int(to_floats(count["all"])[0]), int(to_floats(count["distinct"])[0])
        return counts


@contextmanager
def _first_rows(data: object, columns: Sequence[str], rows: int) -> Iterator[Rows]:
    import narwhals as nw

    if not readers.are_paths(data):
        frame = open_frame(data)
        if isinstance(frame, nw.DataFrame):
            data = frame.select(*columns).head(rows).to_native()
    with scan(data, [ColumnUse("data", column) for column in columns]) as opened:
        yield opened


@contextmanager
def report_errors(
    data: object, frame: nw.LazyFrame[Any] | nw.DataFrame[Any], parameter: str = "data"
) -> Iterator[None]:
    """Report what an engine says about a frame as an error of ours, and an interrupt as the usual one."""
    import narwhals as nw

    engine = engine_of(frame)
    try:
        with engine.interruptible():
            if isinstance(frame, nw.LazyFrame):
                with engine.exclusive(frame.to_native()):
                    yield
            else:
                yield
    except Exception as error:
        if type(error).__module__.split(".")[0] not in _ERROR_MODULES and not isinstance(error, OSError | MemoryError):
            raise
        argument = Argument(parameter, type(data))
        problem = f"cannot be read ({first_line(error)})"
        raise out_of_memory(argument, error, engine) or InputError.unreadable_file(
            argument, problem, "Simplify its columns: half floats and decimals of more than 38 digits become float64."
        ) from error


def out_of_memory(argument: Argument, error: Exception, engine: Engine = ENGINES[0]) -> InputError | None:
    """The error to raise where memory ran out; None for other errors."""
    if not engine.is_out_of_memory(error):
        return None
    problem = f"there is not enough memory ({duck.describe_error(error)})"
    return InputError.out_of_memory(
        argument, problem, "Use fewer or coarser groups, or a machine with more memory.", form="clause"
    )


def _column_names(frame: nw.LazyFrame[Any] | nw.DataFrame[Any], parameter: str) -> list[str]:
    """The columns of a frame; one with a type that narwhals does not know is refused."""
    try:
        return frame.collect_schema().names()
    except ValueError as error:
        if type(error) is not ValueError:  # those of engines, which are reported as what they are
            raise
        problem = f"has a column that cannot be read ({first_line(error)})"  # the precision of a wide decimal
        remedy = 'Cast decimals of more than 38 digits, as in table.cast({"revenue": "float64"}).'
        raise InputError.wrong_type(parameter, problem, remedy, type(frame.to_native())) from error


@contextmanager
def _scan_frame(frame: nw.LazyFrame[Any] | nw.DataFrame[Any], uses: Sequence[ColumnUse]) -> Iterator[Rows]:
    import narwhals as nw

    present = _column_names(frame, "data")
    check_uses(uses, present, index_names(frame))
    columns = list(dict.fromkeys(use.column for use in uses))
    orders = {column: levels for column in columns if (levels := ordered_levels(frame, column))}

    def opened(rows: Rows) -> Rows:
        in_frame = {rows.keys[column]: levels for column, levels in orders.items() if column in rows.keys}
        return replace(rows, present=tuple(present), orders=in_frame)

    if isinstance(frame, nw.LazyFrame):
        yield opened(_select_uses(frame, uses, {column: column for column in columns}))
    else:
        with engine_of(frame).open_eager(frame, columns) as (native, names):
            yield opened(_select_uses(_lazy(native), uses, names, is_stored=True))


def ordered_levels(frame: nw.LazyFrame[Any] | nw.DataFrame[Any], column: str) -> tuple[str, ...]:
    """The levels of an ordered category of text in their order; none of any other column.

    Ordered categoricals of pandas, Enums of Polars and of DuckDB, and ordered dictionaries of Arrow are such columns.
    """
    import narwhals as nw

    dtype = frame.collect_schema()[column]
    levels: list[Any] = []
    if isinstance(dtype, nw.Enum):
        levels = list(dtype.categories)
    elif dtype == nw.Categorical and isinstance(frame, nw.DataFrame) and frame.implementation.is_pyarrow():
        values = frame.to_native().column(column)
        if values.type.ordered and values.num_chunks:
            levels = values.unify_dictionaries().chunk(0).dictionary.to_pylist()
    return tuple(levels) if all(isinstance(level, str) for level in levels) else ()


def _select_uses(
    frame: nw.LazyFrame[Any], uses: Sequence[ColumnUse], names: Mapping[str, str], *, is_stored: bool = False
) -> Rows:
    """Rows whose columns have types: each is taken once; times that are keys become text.

    Args:
        frame: The rows.
        uses: The columns.
        names: Column → its name in the frame.
        is_stored: See `Rows`.
    """
    import narwhals as nw

    schema = frame.collect_schema()
    types = dict(zip(schema.names(), engine_of(frame).type_names(frame.to_native()), strict=True))
    selections: list[Selection] = []
    keys: dict[str, str] = {}
    numbers: dict[str, str] = {}
    times: set[str] = set()
    for use in uses:
        is_key = use.kind == "key"
        if is_key:
            _check_key(use, schema[names[use.column]], types[names[use.column]])
        own, others = (keys, numbers) if is_key else (numbers, keys)
        if use.column in own:
            continue
        becomes_text = is_key and is_time(schema[names[use.column]], types[names[use.column]])
        other = others.get(use.column)
        if other is not None and not becomes_text and other not in times:
            own[use.column] = other
            continue
        own[use.column] = name = f"c{len(selections)}"
        selections.append(Selection(names[use.column], name, as_text=becomes_text))
        times |= {name} if becomes_text else set()
    selected = select_columns(frame, selections)
    empty = [selection.name for selection in selections if has_no_type(types[selection.column])]
    if empty:  # numbers that are all missing, as an empty column of csv
        selected = selected.with_columns(nw.lit(None).cast(nw.Float64).alias(name) for name in empty)
    return Rows(selected, False, keys, numbers, frozenset(times), is_stored)


def _check_key(use: ColumnUse, dtype: Any, native: str) -> None:
    """Refuse a column that names nothing: engines have no common text for lists, records, bytes and durations."""
    import narwhals as nw

    if dtype.is_nested() or dtype in (nw.Binary, nw.Duration) or native.lower().startswith(_NAMELESS):
        problem, remedy = (
            f"holds no names ({dtype if dtype != nw.Unknown else native})",
            "Name a column of text, numbers, booleans, dates or times.",
        )
        raise InputError.wrong_type(use.parameter, problem, remedy, use.column)


@contextmanager
def _scan_files(files: Sequence[Path], uses: Sequence[ColumnUse]) -> Iterator[Rows]:
    import duckdb

    present: list[str] = []

    def check(columns: Sequence[str]) -> None:
        present[:] = columns
        check_uses(uses, columns)

    is_parquet = readers.is_parquet(files[0])
    with duck.own_connection() as connection:
        try:
            if is_parquet:
                columns = [use.column for use in uses]
                keys = {use.column: use.parameter for use in uses if use.kind == "key"}
                relation, names = readers.scan_parquet(connection, files, columns, keys, check)
                rows = _select_uses(_lazy(relation), uses, names, is_stored=True)
                orders = {rows.keys[column]: levels for column, levels in readers.read_orders(files, keys).items()}
                yield replace(rows, present=tuple(present), orders=orders)
            else:
                yield replace(_scan_csv(connection, files, uses, check), present=tuple(present))
        except duckdb.Error as error:
            argument = readers.show_files(files)
            memory = out_of_memory(argument, error)
            if memory is not None:
                raise memory from error
            if is_parquet:
                problem = f"cannot be read ({duck.describe_error(error)})"
                raise InputError.unreadable_file(argument, problem, "Check that it is intact.") from error
            must_be_numeric = [(use.parameter, use.column, use.kind == "binary") for use in uses if use.kind != "key"]
            raise readers.diagnose_csv(files, must_be_numeric, error) from error


def _scan_csv(
    connection: Any, files: Sequence[Path], uses: Sequence[ColumnUse], check: Callable[[Sequence[str]], None]
) -> Rows:
    """Rows of csv files; a column may be used as key and as number."""
    keys = {column: f"t{i}" for i, column in enumerate(dict.fromkeys(u.column for u in uses if u.kind == "key"))}
    numbers = {column: f"n{i}" for i, column in enumerate(dict.fromkeys(u.column for u in uses if u.kind != "key"))}
    binary = {u.column for u in uses if u.kind == "binary"}
    query = readers.write_csv_query(files, keys, numbers, check, binary)
    return Rows(_lazy(connection.sql(query)), True, keys, numbers, frozenset(), is_stored=True)


class Table(NamedTuple):
    """What was asked of a table: its key columns as Python values, its numeric columns as float arrays.

    Attributes:
        keys: The key columns.
        numbers: Parameter → column of numbers.
        orders: For each key column its levels in their order, where it is an ordered category of text; else none.
    """

    keys: list[list[Any]]
    numbers: dict[str, FloatArray]
    orders: list[tuple[str, ...]]


def read_table(data: object, *, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Table:
    """Bring the named columns of a frame or file.

    Args:
        data: A frame narwhals knows, or the path of a csv or parquet file; ``-`` is csv on standard input.
        keys: Parameter → column, for columns that name groups. Every kind of null becomes None; cells of csv are text;
            times with a time zone are in UTC.
        numbers: Parameter → column, for columns that must be numeric. Nulls become NaN.

    Returns:
        The columns, in the order they were asked for.

    Raises:
        InputError: If the file cannot be read, or a column is missing or is not numeric.
    """
    for parameter, column in {**keys, **numbers}.items():
        checked_column(parameter, column)
    if isinstance(data, str | Path):
        return _read_file(expand_path(data), keys, numbers)
    return _read_frame(data, keys, numbers)


def _read_file(path: Path, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Table:
    """Cells of csv are text first: a code such as 007 or NO stays what it is."""
    uses = [ColumnUse(parameter, column) for parameter, column in {**keys, **numbers}.items()]
    with open_stdin(path) as file:
        check_file(file)  # one file: patterns are for rows
        with scan([file], uses) as rows:
            names = rows.frame.collect_schema().names()
            cells = duck.run(rows.frame.to_native().fetchall)
    if not cells:
        raise InputError.empty(show_file(path), "has no rows", "Give a table with one row per group.")
    columns = {}
    for column, name in rows.keys.items():
        values = [to_plain(row[names.index(name)]) for row in cells]
        is_time = name in rows.times
        columns[column] = [None if v is None else format_time(v) for v in values] if is_time else values
    arrays = {parameter: _to_numbers(parameter, column, columns[column]) for parameter, column in numbers.items()}
    orders = [rows.orders.get(rows.keys[column], ()) for column in keys.values()]
    return Table([columns[column] for column in keys.values()], arrays, orders)


def to_plain(value: Any) -> Any:
    """A value as plain Python has it: null of every kind is None, and times with a zone are in UTC."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value != value or type(value).__name__ in {"NAType", "NaTType"}:  # noqa: PLR0124
        return None
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    return value


def _to_numbers(parameter: str, column: str, values: Sequence[Any]) -> FloatArray:
    """A column of cells as floats; the first cell that is no number is named."""
    out = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if value is None:
            continue
        number = parse_number(value) if isinstance(value, str) else _as_float(value)
        if number is None:
            raise not_numeric_error(parameter, column, row + 1, value)
        out[row] = number
    return out


def _as_float(value: Any) -> float | None:
    if isinstance(value, bool | datetime.date):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


# -------------------------------------------------------------------------------------------------------------- frames


def _read_frame(data: object, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Table:
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    frame = open_frame(data, "frame")
    parameters = {**keys, **numbers}
    try:
        check_columns(parameters, _column_names(frame, "frame"), index_names(frame))
    except NarwhalsError as error:
        raise InputError.wrong_type(
            "frame",
            describe_unreadable(error),
            "Give a pandas, Polars or PyArrow frame with distinct text column names, or the path of a file.",
            type(data),
        ) from error
    collected = _collect(frame, parameters, data) if isinstance(frame, nw.LazyFrame) else frame
    arrays = {}
    for parameter, column in numbers.items():
        series = collected.get_column(column)
        if not series.dtype.is_numeric():
            kind = f"is not numeric ({series.dtype})"
            remedy = to_numbers(series.drop_nulls().head(1).to_list(), "Make it numeric.")
            raise InputError.wrong_type(parameter, kind, remedy, column)
        arrays[parameter] = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    orders = [ordered_levels(frame, column) for column in keys.values()]
    return Table([_to_values(collected.get_column(column)) for column in keys.values()], arrays, orders)


def _collect(frame: nw.LazyFrame[Any], parameters: Mapping[str, str], data: object) -> nw.DataFrame[Any]:
    names = {column: f"c{i}" for i, column in enumerate(dict.fromkeys(parameters.values()))}
    try:
        with report_errors(data, frame, "frame"):
            table = select_columns(frame, [Selection(column, name) for column, name in names.items()]).collect()
    except ImportError as error:
        problem = f"needs {error.name} to be read"
        raise InputError.not_installed("frame", problem, f"Run: pip install {error.name}", type(data)) from error
    return table.rename({name: column for column, name in names.items()})


def _to_values(series: nw.Series[Any]) -> list[Any]:
    """A key column as Python values; every frame's own kind of null is known to narwhals."""
    nulls = series.is_null().to_list()
    return [None if null else to_plain(value) for value, null in zip(series.to_list(), nulls, strict=True)]
