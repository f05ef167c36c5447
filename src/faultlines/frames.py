"""Tables in: any frame narwhals reads, and csv or parquet files by way of DuckDB, as plain columns.

A table of estimates has one row a group, so it is simply brought here; nothing in this room scales with raw rows.
"""

from __future__ import annotations

import datetime
import difflib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.errors import InputError, did_you_mean, shorten

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import narwhals as nw
    import numpy.typing as npt

MISSING = "(missing)"
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".csv.zst")
_PARQUET = (".parquet", ".pq")


class Columns(NamedTuple):
    """What was asked of a table: its key columns as Python values, its numeric columns as float arrays."""

    keys: list[list[Hashable]]
    numbers: dict[str, npt.NDArray[np.float64]]


def read(data: object, *, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Columns:
    """Bring the named columns of a frame or file.

    Args:
        data: A frame narwhals knows, or the path of a csv or parquet file.
        keys: Parameter name → column, for columns that name groups. Nulls become ``(missing)``.
        numbers: Parameter name → column, for columns that must be numeric. Nulls become NaN.
    """
    if isinstance(data, str | Path):
        return _read_file(Path(data), keys, numbers)
    return _read_frame(data, keys, numbers)


def _check_columns(wanted: Mapping[str, str], present: Sequence[str]) -> None:
    for parameter, column in wanted.items():
        if column not in present:
            raise InputError(f"{parameter}={column!r}", "no such column", did_you_mean(column, present))


def _not_numeric(parameter: str, column: str, found: str) -> InputError:
    return InputError(f"{parameter}={column!r}", f"the column is not numeric ({found})", "Name a numeric column.")


def _key(value: Any) -> Hashable:
    """One group name: nulls are a group of their own, numbers and text stay what they are, the rest is shown."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    return value if isinstance(value, str | int | float) else str(value)


def _read_frame(data: object, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Columns:
    import narwhals as nw

    try:
        frame = nw.from_native(data)  # type: ignore[call-overload]
    except TypeError as error:
        raise InputError(
            f"frame={shorten(data)}",
            f"{type(data).__name__} is not a frame narwhals knows",
            "Give a pandas, Polars or PyArrow frame, or the path of a csv or parquet file.",
        ) from error
    if isinstance(frame, nw.Series):
        raise InputError("frame", "is a single column", "Give the whole frame.")
    _check_columns({**keys, **numbers}, frame.collect_schema().names())
    if isinstance(frame, nw.LazyFrame):
        frame = frame.select(list(dict.fromkeys([*keys.values(), *numbers.values()]))).collect()
    arrays = {}
    for parameter, column in numbers.items():
        series = frame.get_column(column)
        if not series.dtype.is_numeric():
            raise _not_numeric(parameter, column, str(series.dtype))
        arrays[parameter] = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    return Columns([_keys(frame.get_column(column)) for column in keys.values()], arrays)


def _keys(series: nw.Series[Any]) -> list[Hashable]:
    """A key column as Python values; every frame's own kind of null is None by then."""
    nulls = series.is_null().to_list()
    return [MISSING if null else _key(value) for value, null in zip(series.to_list(), nulls, strict=True)]


def _read_file(path: Path, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Columns:
    import duckdb

    source = _file_query(path)
    named = dict(enumerate([*keys.values(), *numbers.values()]))
    with duckdb.connect() as engine:
        try:
            present = engine.sql(f"SELECT * FROM {source} LIMIT 0")
            types = dict(zip(present.columns, (str(kind) for kind in present.types), strict=True))
            _check_columns({**keys, **numbers}, present.columns)
            is_text = {column: types[column] == "VARCHAR" for column in named.values()}
            picked = ", ".join(f"{_quoted(column)} AS c{i}" for i, column in named.items())
            fetched = engine.sql(f"SELECT {picked} FROM {source}").fetchall()
        except duckdb.Error as error:
            raise InputError(
                f"file={str(path)!r}",
                f"cannot be read ({_first_line(error)})",
                "Check that it is a sound table.",
            ) from error
    if not fetched:
        raise InputError(f"file={str(path)!r}", "has no rows", "Give a table with one row a group.")
    columns = list(zip(*fetched, strict=True))
    arrays = {
        parameter: _numeric(parameter, column, columns[len(keys) + i], types[column], is_text[column])
        for i, (parameter, column) in enumerate(numbers.items())
    }
    return Columns([[_key(value) for value in columns[i]] for i in range(len(keys))], arrays)


def _numeric(parameter: str, column: str, values: Sequence[Any], kind: str, is_text: bool) -> npt.NDArray[np.float64]:
    """A fetched column as floats. Csv columns come as text and are converted here, so that a bad cell is named."""
    out = np.empty(len(values))
    for row, value in enumerate(values):
        try:
            if isinstance(value, bool | datetime.date):
                raise TypeError
            out[row] = np.nan if value is None else float(value)
        except (TypeError, ValueError) as error:
            found = f"row {row + 1} holds {shorten(value)}" if is_text else kind
            raise _not_numeric(parameter, column, found) from error
    return out


def _file_query(path: Path) -> str:
    """The DuckDB table function for a file, once it is known to be there and to hold something."""
    shown = f"file={str(path)!r}"
    if path.is_dir():
        raise InputError(shown, "is a folder", "Give a csv or parquet file.")
    if not path.exists():
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, siblings, n=1, cutoff=0.7)
        raise InputError(shown, "no such file", f"Did you mean {near[0]!r}?" if near else "Check the path.")
    name = path.name.lower()
    if not name.endswith(_CSV + _PARQUET):
        raise InputError(shown, "is neither csv nor parquet by its name", f"Use one of {', '.join(_CSV + _PARQUET)}.")
    if path.stat().st_size == 0:
        raise InputError(shown, "is empty", "Give a table with a header and one row a group.")
    literal = "'" + str(path).replace("'", "''") + "'"
    if name.endswith(_PARQUET):
        return f"read_parquet({literal})"
    # All text: a code such as 007 or NO stays what it is, and only the columns asked for are made numbers.
    return f"read_csv({literal}, all_varchar=true, header=true)"


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
