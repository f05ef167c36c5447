"""csv files, read by DuckDB: all cells are text, and numbers where numbers are wanted; nothing is guessed."""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from faultlines.errors import InputError, first_line
from faultlines.sources import duck, paths
from faultlines.sources.dialect import Dialect, diagnosed, dialect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import duckdb

STDIN = "-"


def csv_query(
    files: Sequence[Path], keys: Mapping[str, str], numbers: Mapping[str, str], check: Callable[[Sequence[str]], None]
) -> str:
    """The rows of csv files as a query; files that are written in another way, or have other columns, are read apart.

    Args:
        files: The files.
        keys: Column → name, for cells as text.
        numbers: Column → name, for cells as numbers.
        check: Refuses a header that lacks a column.
    """
    alike: dict[Dialect, list[Path]] = {}
    for path in files:
        found = dialect(path)
        try:
            check(found.header)
        except InputError as error:
            if path == files[0]:
                raise
            raise InputError(paths.shown(path), f"{error.parameter}: {error.problem}", error.remedy) from error
        alike.setdefault(found, []).append(path)
    return " UNION ALL ".join(_query(found, some, keys, numbers) for found, some in alike.items())


def _query(found: Dialect, files: Sequence[Path], keys: Mapping[str, str], numbers: Mapping[str, str]) -> str:
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(found.header)))
    options = {
        "auto_detect": "false",
        "header": "true",
        "skip": str(found.blank),
        "delim": duck.literal(found.separator),
        "quote": "'\"'",
        "escape": "'\"'",
        "nullstr": "''",
        "compression": "'gzip'" if found.gzipped else "'none'",
        "hive_partitioning": "false",
        "columns": f"{{{columns}}}",
    }
    listed = duck.listed([duck.pattern(path) for path in files])
    places = {column: f"c{found.header.index(column)}" for column in [*keys, *numbers]}
    picks = [f"{places[column]} AS {name}" for column, name in keys.items()]
    picks += [f"{_number(places[column])} AS {name}" for column, name in numbers.items()]
    named = ", ".join(f"{option}={value}" for option, value in options.items())
    return f"SELECT {', '.join(picks)} FROM read_csv({listed}, {named})"


def _number(column: str) -> str:
    """A cell as a number by the rules of `dialect.number`; one that is none ends the query, and is looked for then."""
    bad = f"error('not a number: ' || {column})"
    other = f"CASE lower({column}) WHEN 'true' THEN 1.0 WHEN 'false' THEN 0.0 ELSE {bad} END"
    plain = f"CASE WHEN contains({column}, '_') THEN NULL ELSE try_cast({column} AS DOUBLE) END"
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE coalesce({plain}, {other}) END"


def csv_error(files: Sequence[Path], numbers: Sequence[tuple[str, str, bool]], error: duckdb.Error) -> InputError:
    """What is wrong with csv files that DuckDB could not read: what Python finds, or else what DuckDB says.

    Args:
        files: The files.
        numbers: Parameter, column, and whether it is yes/no, for the columns that must hold numbers.
        error: The error of DuckDB.
    """
    for path in files:
        try:
            diagnosed(path, numbers)
        except InputError as found:
            if len(files) == 1 or found.parameter.startswith("file="):
                return found
            return InputError(f"{paths.shown(path)}, {found.parameter}", found.problem, found.remedy)
    shown = paths.shown(files[0]) + (f" (and {len(files) - 1} more)" if len(files) > 1 else "")
    return InputError(shown, f"cannot be read ({duck.message(error)})", "Correct the file or the named line.")


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """The path of a csv file; standard input, named ``-``, is written to a file for as long as it is read."""
    if str(path) != STDIN:
        yield path
        return
    shown = f"file={STDIN!r}"
    with tempfile.TemporaryDirectory(prefix="faultlines-") as folder:
        copy = Path(folder) / "stdin.csv"
        try:
            if sys.stdin is None:
                raise ValueError("it is closed")
            copy.write_bytes(sys.stdin.buffer.read())
        except (OSError, ValueError, AttributeError) as error:
            problem = f"standard input cannot be read ({first_line(error)})"
            raise InputError(shown, problem, "Pipe a csv table in, or name a file.") from error
        try:
            yield copy
        except InputError as error:
            if error.parameter != paths.shown(copy):
                raise
            raise InputError(shown, error.problem, error.remedy) from error
