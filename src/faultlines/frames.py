"""Tables in: any frame narwhals reads, and csv or parquet files.

`read` brings a table of estimates, which has one row a group, as plain columns. `scan` opens raw rows where they are,
for the engine to group; `fetch` brings the few rows that come out.
"""

from __future__ import annotations

import csv
import datetime
import difflib
import glob
import gzip
import io
import math
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.errors import InputError, did_you_mean, shorten, shorten_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    import duckdb
    import narwhals as nw
    import numpy.typing as npt

MISSING = "(missing)"
OURS = "__faultlines_"  # begins the names of columns we add to a user's frame for a while
WHOSE, _VALUE = f"{OURS}whose", f"{OURS}value"
_CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
_PARQUET = (".parquet", ".pq")
_ENGINES = {"duckdb", "_duckdb", "polars", "pyarrow", "pyspark", "py4j", "ibis", "narwhals"}


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


def check_columns(wanted: Mapping[str, str], present: Sequence[str]) -> None:
    """Refuse a column that is not there, or is there twice."""
    for parameter, column in wanted.items():
        if column not in present:
            raise InputError(f"{parameter}={column!r}", "no such column", did_you_mean(column, present))
        if sum(name == column for name in present) > 1:
            raise InputError(f"{parameter}={column!r}", "two columns have this name", "Rename one of them.")


def key(value: Any) -> Hashable:
    """One group name: nulls are a group of their own, numbers and text stay what they are, the rest is shown."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        value = value.date()
    return value if isinstance(value, str | int | float) else str(value)


# -------------------------------------------------------------------------------------------------------------- frames


def _read_frame(data: object, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Columns:
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    frame = opened(data, "frame")
    try:
        names = frame.collect_schema().names()
    except NarwhalsError as error:
        raise InputError(
            f"frame={type(data).__name__}",
            _unreadable(error),
            "Give a pandas, Polars or PyArrow frame with distinct text column names, or the path of a file.",
        ) from error
    check_columns({**keys, **numbers}, names)
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
    return [MISSING if null else key(value) for value, null in zip(series.to_list(), nulls, strict=True)]


# --------------------------------------------------------------------------------------------------------------- files


def _read_file(path: Path, keys: Mapping[str, str], numbers: Mapping[str, str]) -> Columns:
    wanted = {**keys, **numbers}
    header, rows = _parquet(path, wanted) if path.name.lower().endswith(_PARQUET) else _csv(path)
    check_columns(wanted, header)
    if not rows:
        raise InputError(f"file={str(path)!r}", "has no rows", "Give a table with one row a group.")
    columns = {name: [row[header.index(name)] for row in rows] for name in wanted.values()}
    return Columns(
        [[key(value) for value in columns[name]] for name in keys.values()],
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
    with duckdb.connect() as engine:
        try:
            source = f"read_parquet({_pattern(path)})"
            present = engine.sql(f"SELECT * FROM {source} LIMIT 0").columns
            check_columns(wanted, present)
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
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=_separator(first), strict=True)
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


# ------------------------------------------------------------------------------------------------------------ raw rows


@contextmanager
def scan(data: object, columns: Mapping[str, str], *, as_text: Sequence[str] = ()) -> Iterator[nw.LazyFrame[Any]]:
    """Open rows in the engine they are in, without reading them.

    Args:
        data: A frame, or the path, paths or glob of csv or parquet files.
        columns: Parameter name → column, for the columns that will be used.
        as_text: Columns of csv files that are names, even where they look like numbers.
    """
    import duckdb
    import narwhals as nw

    is_path = isinstance(data, str | Path)
    if is_path or (isinstance(data, list | tuple) and data and all(isinstance(d, str | Path) for d in data)):
        files = _files([data] if is_path else data)  # type: ignore[arg-type, list-item]
        with duckdb.connect() as engine:
            try:
                relation = engine.sql(_files_query(engine, files, columns, as_text))
                check_columns(columns, relation.columns)
                yield nw.from_native(relation).lazy()
            except duckdb.Error as error:
                shown = f"file={str(files[0])!r}" + (f" (and {len(files) - 1} more)" if len(files) > 1 else "")
                raise InputError(
                    shown, f"cannot be read ({_lines(error)})", "Mend the file or the named line."
                ) from error
        return
    frame = opened(data)
    try:
        check_columns(columns, frame.collect_schema().names())
        if isinstance(frame, nw.LazyFrame):
            yield frame
        elif frame.implementation.is_polars():
            yield frame.lazy()
        else:
            wanted = list(dict.fromkeys(columns.values()))
            if len({name.casefold() for name in wanted}) < len(wanted):
                raise InputError(f"columns {wanted!r}", "differ only in case", "Rename one of them.")
            with duckdb.connect() as engine:
                yield nw.from_native(_bridged(engine, frame.select(wanted))).lazy()
    except Exception as error:
        if type(error).__module__.split(".")[0] not in _ENGINES and not isinstance(error, OSError):
            raise
        raise InputError(
            f"data={type(data).__name__}", f"cannot be read ({_first_line(error)})", "Simplify its columns."
        ) from error


def opened(data: object, parameter: str = "data") -> nw.LazyFrame[Any] | nw.DataFrame[Any]:
    """A frame as narwhals sees it, or an error that says what was given instead."""
    import narwhals as nw
    from narwhals.exceptions import NarwhalsError

    try:
        frame = nw.from_native(data)  # type: ignore[call-overload]
    except (TypeError, NarwhalsError) as error:
        problem = "is not a frame" if isinstance(error, TypeError) else f"cannot be read, {_unreadable(error)}"
        raise InputError(
            f"{parameter}={type(data).__name__}",
            problem,
            "Give a pandas, Polars, PyArrow, DuckDB, Spark or Ibis frame, or csv or parquet files.",
        ) from error
    if isinstance(frame, nw.DataFrame | nw.LazyFrame):
        return frame
    raise InputError(f"{parameter}={type(data).__name__}", "is not a table", "Give the whole frame.")


def _bridged(engine: duckdb.DuckDBPyConnection, frame: nw.DataFrame[Any]) -> Any:
    """An eager frame as DuckDB sees it: scanned where it is."""
    if frame.implementation.is_pandas():
        native = frame.to_native()
        for name in native.columns:
            kind = native[name].dtype
            inner = getattr(getattr(kind, "categories", None), "dtype", kind)
            if type(inner).__name__ in {"IntervalDtype", "PeriodDtype"}:  # unknown to DuckDB
                native = native.assign(**{name: native[name].astype(object).map(str, na_action="ignore")})
        return engine.from_df(native)
    return engine.from_arrow(frame.to_arrow())


def _files(given: Sequence[str | Path]) -> list[Path]:
    """The files behind paths and globs, each known to be there."""
    found: list[Path] = []
    for one in given:
        path = Path(one)
        if not path.exists() and glob.has_magic(str(one)):
            matches = sorted(Path(match) for match in glob.glob(str(one), recursive=True))  # noqa: PTH207
            if not matches:
                raise InputError(f"file={str(one)!r}", "matches no file", "Check the pattern.")
            found += matches
        else:
            found.append(path)
    for path in found:
        _checked(path)
    kinds = {path.name.lower().endswith(_PARQUET) for path in found}
    if len(kinds) > 1:
        raise InputError(f"file={shorten([str(p) for p in found])}", "mixes csv and parquet", "Give files of one kind.")
    return found


def is_csv(data: object) -> bool:
    """Whether rows come from csv files, whose columns have no types."""
    first = data[0] if isinstance(data, list | tuple) and data else data
    return isinstance(first, str | Path) and not str(first).lower().endswith(_PARQUET)


def _files_query(
    engine: duckdb.DuckDBPyConnection, files: Sequence[Path], columns: Mapping[str, str], as_text: Sequence[str]
) -> str:
    listed = ", ".join(_pattern(path) for path in files)
    if files[0].name.lower().endswith(_PARQUET):
        # Types are united over the files. What a file holds comes before what its folders are called (country=DE/).
        query = f"SELECT * FROM read_parquet([{listed}], union_by_name=true"
        own = engine.sql(f"{query}, hive_partitioning=false) LIMIT 0").columns
        return f"{query}, hive_partitioning={'false' if set(columns.values()) <= set(own) else 'true'})"
    delimiter, header = _csv_header(files[0])
    check_columns(columns, header)
    named = ", ".join(f"'{name.replace(chr(39), chr(39) * 2)}': 'VARCHAR'" for name in as_text)
    options = f"header=true, delim='{delimiter}', quote='\"', escape='\"', nullstr='', union_by_name=true"
    return f"SELECT * FROM read_csv([{listed}], {options}" + (f", types={{{named}}})" if named else ")")


def _csv_header(path: Path) -> tuple[str, list[str]]:
    """Separator and column names of a csv file."""
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig") as file
        ):
            first = file.readline()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(
            f"file={str(path)!r}", f"cannot be read ({_first_line(error)})", "Save it as UTF-8."
        ) from error
    delimiter = _separator(first)
    return delimiter, [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]


def _separator(header: str) -> str:
    return max(",;\t|", key=header.count)


def fetch(frame: nw.LazyFrame[Any]) -> dict[str, Any]:
    """Bring what a query returns, by the engine's own way; Polars streams."""
    native, implementation = frame.to_native(), frame.implementation
    if implementation.is_duckdb():
        rows = native.fetchall()
        columns = zip(*rows, strict=True) if rows else [()] * len(native.columns)
        return dict(zip(native.columns, columns, strict=True))
    if implementation.is_polars():
        made = native.collect(engine="streaming").get_columns()
        return {c.name: c.to_list() if c.null_count() or not c.dtype.is_numeric() else c.to_numpy() for c in made}
    if implementation.is_pyspark():
        rows = native.collect()
        return {name: [row[i] for row in rows] for i, name in enumerate(native.columns)}
    collected = frame.collect("pyarrow")
    return {name: collected.get_column(name).to_list() for name in collected.columns}


def joined(frame: nw.LazyFrame[Any], values: Mapping[Any, float], column: str, kind: Any) -> nw.LazyFrame[Any]:
    """Join a value to the rows of a frame that is not in memory, by the text of their group's key in `WHOSE`."""
    import narwhals as nw

    native, implementation = frame.to_native(), frame.implementation
    pairs = [(str(key), None if math.isnan(value) else float(value)) for key, value in values.items()]
    table: Any
    if implementation.is_duckdb():  # on the connection the rows are on
        quote = "'"
        rows = ", ".join(
            f"('{k.replace(quote, quote * 2)}', {'NULL' if v is None else repr(v)}::DOUBLE)" for k, v in pairs
        )
        table = native.query("rows_of_the_user", f"SELECT * FROM (VALUES {rows}) AS t({WHOSE}, {_VALUE})")
    elif implementation.is_pyspark():
        table = native.sparkSession.createDataFrame(pairs, f"{WHOSE} string, {_VALUE} double")
    else:
        columns = {WHOSE: [name for name, _ in pairs], _VALUE: [value for _, value in pairs]}
        table = import_module("polars" if implementation.is_polars() else "ibis")
        table = table.LazyFrame(columns) if implementation.is_polars() else table.memtable(columns)
    wide = frame.join(nw.from_native(table), on=WHOSE, how="left")
    return wide.with_columns(nw.col(_VALUE).cast(kind).alias(column)).drop(_VALUE)


def hashed(frame: nw.LazyFrame[Any], column: str, seed: int, name: str) -> nw.LazyFrame[Any]:
    """Add a number in [0, 1) that depends on the text of a column and on a seed: the engine's own hash, null for null.

    The same engine gives the same numbers again; another engine has another hash.
    """
    import narwhals as nw

    native, implementation = frame.to_native(), frame.implementation
    salt, buckets = f":{seed}", 1_000_000
    made: Any
    if implementation.is_duckdb():
        quoted = '"' + column.replace('"', '""') + '"'
        made = native.project(
            f"*, (hash(CAST({quoted} AS VARCHAR) || '{salt}') % {buckets})::DOUBLE / {buckets} AS {name}"
        )
        made = made.project(f"* REPLACE (CASE WHEN {quoted} IS NULL THEN NULL ELSE {name} END AS {name})")
    elif implementation.is_polars():
        pl = import_module("polars")
        text = pl.col(column).cast(pl.String)
        bucket = (text + salt).hash(seed=0).mod(buckets).cast(pl.Float64) / buckets
        made = native.with_columns(pl.when(text.is_not_null()).then(bucket).alias(name))
    elif implementation.is_pyspark():
        functions = import_module("pyspark.sql.functions")
        text = functions.col(f"`{column.replace('`', '``')}`").cast("string")
        bucket = functions.pmod(functions.xxhash64(functions.concat(text, functions.lit(salt))), functions.lit(buckets))
        made = native.withColumn(name, functions.when(text.isNotNull(), bucket / buckets))
    else:
        text = native[column].cast("string")
        bucket = ((text + salt).hash() % buckets + buckets) % buckets
        made = native.mutate(**{name: text.isnull().ifelse(None, bucket.cast("float64") / buckets)})
    with_bucket: nw.LazyFrame[Any] = nw.from_native(made).lazy()
    return with_bucket


def floats(values: Sequence[Any]) -> npt.NDArray[np.float64]:
    """A fetched column as floats; null is NaN."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.astype(np.float64)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def labels(values: Sequence[Any], *, from_text: bool = False) -> list[Hashable]:
    """A fetched key column as group names. Text that is all whole numbers or all true/false is read as such (csv)."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    named = [key(value) for value in listed]
    given = {name for name in named if name != MISSING}
    if not from_text or not given or not all(isinstance(name, str) for name in given):
        return named
    if given <= {"true", "false"}:
        return [name if name == MISSING else name == "true" for name in named]
    if all(_is_whole(str(name)) for name in given):
        return [name if name == MISSING else int(str(name)) for name in named]
    return named


def _is_whole(text: str) -> bool:
    return text.lstrip("-").isascii() and text.lstrip("-").isdecimal() and str(int(text)) == text


def _pattern(path: Path) -> str:
    """A path in a query. DuckDB takes paths for patterns; in brackets, their characters stand for themselves."""
    return "'" + "".join(f"[{c}]" if c in "[*?" else c for c in str(path)).replace("'", "''") + "'"


def _unreadable(error: Exception) -> str:
    return f"is not a frame narwhals can read ({_lines(error)})"


def _lines(error: Exception) -> str:
    """The first few lines of a message, where the first names the place and the next the reason."""
    return shorten_text("; ".join(line.strip() for line in str(error).strip().splitlines()[:3] if line.strip()))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
