"""Tables in: any frame narwhals reads, and csv or parquet files, as plain columns.

A table of estimates has one row a group, so it is simply brought here; nothing in this room scales with raw rows.
"""

from __future__ import annotations

import csv
import datetime
import difflib
import gzip
import io
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.errors import InputError, did_you_mean, shorten

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import narwhals as nw
    import numpy.typing as npt

MISSING = "(missing)"
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_PARQUET = (".parquet", ".pq")


class Columns(NamedTuple):
    """What was asked of a table: its key columns as Python values, its numeric columns as float arrays."""

    keys: list[list[Hashable]]
    numbers: dict[str, npt.NDArray[np.float64]]


def read(data: object, *, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Columns:
    """Bring the named columns of a frame or file.

    Args:
        data: A frame narwhals knows, or the path of a csv or parquet file; ``-`` is csv on standard input.
        keys: Parameter name → column, for columns that name groups. Nulls become ``(missing)``.
        numbers: Parameter name → column, for columns that must be numeric. Nulls become NaN.
    """
    for parameter, column in {**keys, **numbers}.items():
        if not isinstance(column, str):
            raise InputError(f"{parameter}={shorten(column)}", "is not the name of a column", "Give its name as text.")
    if isinstance(data, str | Path):
        return _read_file(Path(data), keys, numbers)
    return _read_frame(data, keys, numbers)


def _check_columns(wanted: Mapping[str, str], present: Sequence[str]) -> None:
    for parameter, column in wanted.items():
        if column not in present:
            raise InputError(f"{parameter}={column!r}", "no such column", did_you_mean(column, present))
        if sum(name == column for name in present) > 1:
            raise InputError(f"{parameter}={column!r}", "two columns have this name", "Rename one of them.")


def _key(value: Any) -> Hashable:
    """One group name: nulls are a group of their own, numbers and text stay what they are, the rest is shown."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    return value if isinstance(value, str | int | float) else str(value)


# -------------------------------------------------------------------------------------------------------------- frames


def _read_frame(data: object, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Columns:
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    try:
        frame = nw.from_native(data)  # type: ignore[call-overload]
        names = [str(name) for name in frame.columns] if isinstance(frame, nw.DataFrame) else None
        if names is None and isinstance(frame, nw.LazyFrame):
            names = frame.collect_schema().names()
    except (TypeError, NarwhalsError) as error:
        raise InputError(
            f"frame={type(data).__name__}",
            f"is not a frame narwhals can read ({_first_line(error)})",
            "Give a pandas, Polars or PyArrow frame with distinct text column names, or the path of a file.",
        ) from error
    if names is None:
        raise InputError(f"frame={type(data).__name__}", "is not a table", "Give the whole frame.")
    _check_columns({**keys, **numbers}, names)
    if isinstance(frame, nw.LazyFrame):
        picked = frame.select(list(dict.fromkeys([*keys.values(), *numbers.values()])))
        try:
            frame = picked.collect()
        except ImportError as error:
            raise InputError(
                f"frame={type(data).__name__}", f"needs {error.name} to be read", f"Run: pip install {error.name}"
            ) from error
    arrays = {}
    for parameter, column in numbers.items():
        series = frame.get_column(column)
        if not series.dtype.is_numeric():
            raise InputError(
                f"{parameter}={column!r}",
                f"the column is not numeric ({series.dtype})",
                "Make it numeric.",
            )
        arrays[parameter] = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    return Columns([_keys(frame.get_column(column)) for column in keys.values()], arrays)


def _keys(series: nw.Series[Any]) -> list[Hashable]:
    """A key column as Python values; every frame's own kind of null is known to narwhals."""
    nulls = series.is_null().to_list()
    return [MISSING if null else _key(value) for value, null in zip(series.to_list(), nulls, strict=True)]


# --------------------------------------------------------------------------------------------------------------- files


def _read_file(path: Path, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Columns:
    wanted = {**keys, **numbers}
    header, rows = _parquet(path, wanted) if path.name.lower().endswith(_PARQUET) else _csv(path)
    _check_columns(wanted, header)
    if not rows:
        raise InputError(f"file={str(path)!r}", "has no rows", "Give a table with one row a group.")
    columns = {name: [row[header.index(name)] for row in rows] for name in wanted.values()}
    return Columns(
        [[_key(value) for value in columns[name]] for name in keys.values()],
        {parameter: _numeric(parameter, name, columns[name]) for parameter, name in numbers.items()},
    )


def _numeric(parameter: str, column: str, values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """A column of cells as floats; the first cell that is no number is named."""
    out = np.empty(len(values))
    for row, value in enumerate(values):
        try:
            if isinstance(value, bool | datetime.date) or (isinstance(value, str) and "_" in value):
                raise TypeError
            out[row] = np.nan if value is None else float(value)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"{parameter}={column!r}",
                f"the column is not numeric (row {row + 1} holds {shorten(value)})",
                "Name a column of plain numbers with a decimal point, without % or units.",
            ) from error
    return out


def _checked(path: Path) -> str:
    """The path as it stands in messages, once it is known to be a file that holds something."""
    shown = f"file={str(path)!r}"
    if path.is_dir():
        raise InputError(shown, "is a folder", "Give a csv or parquet file.")
    if not path.exists():
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, siblings, n=1, cutoff=0.7)
        raise InputError(shown, "no such file", f"Did you mean {near[0]!r}?" if near else "Check the path.")
    if not path.name.lower().endswith(_CSV + _PARQUET):
        raise InputError(shown, "is neither csv nor parquet by its name", f"Use one of {', '.join(_CSV + _PARQUET)}.")
    if path.stat().st_size == 0:
        raise InputError(shown, "is empty", "Give a table with a header and one row a group.")
    return shown


def _parquet(path: Path, wanted: Mapping[str, str]) -> tuple[list[str], list[tuple[Any, ...]]]:
    import duckdb

    shown = _checked(path)
    # DuckDB takes a path for a pattern; put in brackets, the characters of patterns stand for themselves.
    plain = "".join(f"[{c}]" if c in "[*?" else c for c in str(path)).replace("'", "''")
    with duckdb.connect() as engine:
        try:
            source = f"read_parquet('{plain}')"
            present = engine.sql(f"SELECT * FROM {source} LIMIT 0").columns
            _check_columns(wanted, present)
            names = list(dict.fromkeys(wanted.values()))
            picked = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
            return names, engine.sql(f"SELECT {picked} FROM {source}").fetchall()
        except duckdb.Error as error:
            raise InputError(shown, f"cannot be read ({_first_line(error)})", "Check that it is sound.") from error


def _csv(path: Path) -> tuple[list[str], list[list[str | None]]]:
    """Header and rows of a csv file, all as text: a code such as 007 or NO stays what it is.

    The separator is whichever of comma, semicolon, tab and bar the header has most of. Every row must have as many
    fields as the header; nothing is guessed, skipped or padded.
    """
    shown = "file='-'" if str(path) == "-" else _checked(path)
    try:
        if str(path) == "-":
            raw = sys.stdin.buffer.read()
        else:
            raw = path.read_bytes()
            raw = gzip.decompress(raw) if path.name.lower().endswith(".gz") else raw
        content = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            shown, f"is not UTF-8 text (byte {error.start + 1} is 0x{raw[error.start]:02x})", "Save it as UTF-8."
        ) from error
    except (OSError, EOFError) as error:
        raise InputError(shown, f"cannot be read ({_first_line(error)})", "Check that it is sound.") from error
    first = content.lstrip("\r\n").split("\n", 1)[0]
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=max(",;\t|", key=first.count), strict=True)
    try:
        lines = [(reader.line_num, fields) for fields in reader if fields]
    except csv.Error as error:
        raise InputError(shown, f"line {reader.line_num}: {error}", "Check the quotes in and before it.") from error
    if not lines:
        raise InputError(shown, "is empty", "Give a table with a header and one row a group.")
    header = [name.strip() for name in lines[0][1]]
    for number, fields in lines[1:]:
        if len(fields) != len(header):
            raise InputError(
                shown, f"line {number} has {len(fields)} fields, the header {len(header)}", "Mend or quote that line."
            )
    return header, [[cell or None for cell in fields] for _, fields in lines[1:]]


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
