"""Small tables, one row per group, as plain columns: what `Estimates.from_frame` reads."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.checks import column as checked_column
from faultlines.engines import duckdb as duck
from faultlines.engines.frames import (
    ColumnUse,
    check_columns,
    describe_unreadable,
    index_names,
    open_frame,
    ordered_levels,
    report_errors,
    scan,
    select_columns,
)
from faultlines.engines.protocol import Selection, format_time
from faultlines.engines.readers import check_file, expand_path, not_numeric_error, open_stdin, parse_number, show_file
from faultlines.errors import InputError, to_numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import narwhals as nw
    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]


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
    return Table([columns[column] for column in keys.values()], arrays, [()] * len(keys))


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
        check_columns(parameters, frame.collect_schema().names(), index_names(frame))
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
