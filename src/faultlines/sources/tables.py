"""Small tables, one row per group, as plain columns: what `Estimates.from_frame` reads."""

from __future__ import annotations

import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.checks import column as checked_column
from faultlines.errors import InputError, shorten, to_numbers
from faultlines.sources import duck
from faultlines.sources.columns import Pick, is_time, picked, time_name
from faultlines.sources.csvs import csv_error, csv_query, readable
from faultlines.sources.dialect import not_numeric
from faultlines.sources.dialect import number as number_of
from faultlines.sources.frames import check_columns, index_names, opened, reported, unreadable
from faultlines.sources.parquet import parquet_rows
from faultlines.sources.paths import checked, is_parquet, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import narwhals as nw
    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]


class Table(NamedTuple):
    """What was asked of a table: its key columns as Python values, its numeric columns as float arrays."""

    keys: list[list[Any]]
    numbers: dict[str, FloatArray]


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
        return _of_file(Path(data), keys, numbers)
    return _of_frame(data, keys, numbers)


def _of_file(path: Path, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Table:
    wanted = {**keys, **numbers}
    columns = _parquet(path, wanted) if is_parquet(path) else _csv(path, wanted, numbers)
    if not next(iter(columns.values())):
        raise InputError(shown(path), "has no rows", "Give a table with one row per group.")
    arrays = {parameter: _numeric(parameter, name, columns[name]) for parameter, name in numbers.items()}
    return Table([columns[name] for name in keys.values()], arrays)


def _csv(path: Path, wanted: Mapping[str, str], numbers: Mapping[str, str]) -> dict[str, list[Any]]:
    """Cells as text: a code such as 007 or NO stays what it is."""
    import duckdb

    names = {column: f"t{i}" for i, column in enumerate(dict.fromkeys(wanted.values()))}
    with readable(path) as file, duck.own_connection() as engine:
        checked(file)
        try:
            query = csv_query([file], names, {}, partial(check_columns, wanted))
            rows = duck.run(engine.sql(query).fetchall)
        except duckdb.Error as error:
            must = [(parameter, column, False) for parameter, column in numbers.items()]
            raise duck.out_of_memory(shown(path), error) or csv_error([file], must, error) from error
    return {column: [row[i] for row in rows] for i, column in enumerate(names)}


def _parquet(path: Path, wanted: Mapping[str, str]) -> dict[str, list[Any]]:
    import duckdb
    import narwhals as nw

    name = checked(path)
    columns = list(dict.fromkeys(wanted.values()))
    with duck.own_connection() as engine:
        try:
            relation, names = parquet_rows(engine, [path], columns, {}, partial(check_columns, wanted))
            frame = nw.from_native(relation).lazy()
            times = [is_time(frame.collect_schema()[names[column]]) for column in columns]
            picks = [Pick(names[column], f"c{i}", as_text=True) for i, column in enumerate(columns)]
            rows = duck.run(picked(frame, picks).to_native().fetchall)
        except duckdb.Error as error:
            problem = f"cannot be read ({duck.message(error)})"
            raise duck.out_of_memory(name, error) or InputError(name, problem, "Check that it is intact.") from error
    cells = {column: [plain(row[i]) for row in rows] for i, column in enumerate(columns)}
    return {
        column: [None if v is None else time_name(v) for v in values] if time else values
        for (column, values), time in zip(cells.items(), times, strict=True)
    }


def plain(value: Any) -> Any:
    """A value as plain Python has it: null of every kind is None, and times with a zone are in UTC."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value != value or type(value).__name__ in {"NAType", "NaTType"}:  # noqa: PLR0124
        return None
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC)
    return value


def _numeric(parameter: str, column: str, values: Sequence[Any]) -> FloatArray:
    """A column of cells as floats; the first cell that is no number is named."""
    out = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if value is None:
            continue
        number = number_of(value) if isinstance(value, str) else _as_float(value)
        if number is None:
            raise not_numeric(parameter, column, row + 1, value)
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


def _of_frame(data: object, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Table:
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    frame = opened(data, "frame")
    wanted = {**keys, **numbers}
    try:
        check_columns(wanted, frame.collect_schema().names(), index_names(frame))
    except NarwhalsError as error:
        raise InputError(
            f"frame={type(data).__name__}",
            unreadable(error),
            "Give a pandas, Polars or PyArrow frame with distinct text column names, or the path of a file.",
        ) from error
    collected = _collected(frame, wanted, data) if isinstance(frame, nw.LazyFrame) else frame
    arrays = {}
    for parameter, column in numbers.items():
        series = collected.get_column(column)
        if not series.dtype.is_numeric():
            kind = f"the column is not numeric ({series.dtype})"
            remedy = to_numbers(series.drop_nulls().head(1).to_list(), "Make it numeric.")
            raise InputError(f"{parameter}={shorten(column)}", kind, remedy)
        arrays[parameter] = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    return Table([_values(collected.get_column(column)) for column in keys.values()], arrays)


def _collected(frame: nw.LazyFrame[Any], wanted: Mapping[str, str], data: object) -> nw.DataFrame[Any]:
    columns = list(dict.fromkeys(wanted.values()))
    names = {column: f"c{i}" for i, column in enumerate(columns)}
    try:
        with reported(data, "frame"):
            found = picked(frame, [Pick(column, name) for column, name in names.items()]).collect()
    except ImportError as error:
        raise InputError(
            f"frame={type(data).__name__}", f"needs {error.name} to be read", f"Run: pip install {error.name}"
        ) from error
    return found.rename({name: column for column, name in names.items()})


def _values(series: nw.Series[Any]) -> list[Any]:
    """A key column as Python values; every frame's own kind of null is known to narwhals."""
    nulls = series.is_null().to_list()
    return [None if null else plain(value) for value, null in zip(series.to_list(), nulls, strict=True)]
