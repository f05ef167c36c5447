"""How a csv file is written, and what is wrong with a broken one.

Rows come through DuckDB, which is told separator, lines to skip, names and types found here and guesses nothing. Where
it fails, Python reads the file again to say what is wrong in which line.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from faultlines.errors import InputError, shorten
from faultlines.sources.paths import checked, is_gzip, reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import TextIO

SEPARATORS = ",;\t|"
NOT_NUMERIC = "Name a column of plain numbers with a decimal point, without % or units."


class Dialect(NamedTuple):
    """How a csv file is written: what DuckDB has to be told."""

    header: tuple[str, ...]
    separator: str
    blank: int  # empty lines before the header
    gzipped: bool


def separator(header: str) -> str:
    """Whichever of comma, semicolon, tab and bar a header has most of, outside of quotes."""
    plain = "".join(header.split('"')[::2])
    return max(SEPARATORS, key=plain.count)


def dialect(path: Path) -> Dialect:
    """Header, separator and the lines before the header."""
    name = checked(path)
    with _reading(path, name) as file:
        start = _start(name, file)
    return Dialect(start.header, start.separator, start.blank, is_gzip(path))


def diagnosed(path: Path, columns: Sequence[tuple[str, str, bool]]) -> None:
    """Raise what is wrong with a file that DuckDB could not read, if Python finds it.

    Args:
        path: The file.
        columns: Parameter, column, and whether the column is yes/no, for the columns that must hold numbers.
    """
    name = checked(path)
    with _reading(path, name) as file:
        start = _start(name, file)
        wanted = [(parameter, start.header.index(column), yes_no) for parameter, column, yes_no in columns]
        for row, fields in enumerate(_cells(name, start), start=1):
            for parameter, place, yes_no in wanted:
                if fields[place] is not None and number(fields[place], truth=True) is None:
                    raise not_numeric(parameter, start.header[place], row, fields[place], yes_no=yes_no)
        if isinstance(file.newlines, tuple):
            raise _mixed(name)


def number(cell: str | None, *, truth: bool = False) -> float | None:
    """A cell as a number; None where it is none. With `truth`, true and false count as 1 and 0."""
    if cell is None or not cell.isascii() or "_" in cell:
        return None
    if truth and cell.lower() in {"true", "false"}:
        return float(cell.lower() == "true")
    try:
        return float(cell)
    except ValueError:
        return None


def not_numeric(parameter: str, column: str, row: int, cell: object, *, yes_no: bool = False) -> InputError:
    """The error for a cell that should have been a number."""
    if yes_no:
        return InputError(
            f"{parameter}={shorten(column)}",
            f"holds text, not 0/1 or booleans (row {row} holds {shorten(cell)})",
            f"Say which label counts: for example positive={shorten(cell)}.",
        )
    problem = f"the column is not numeric (row {row} holds {shorten(cell)})"
    return InputError(f"{parameter}={shorten(column)}", problem, NOT_NUMERIC)


# ------------------------------------------------------------------------------------------------------------- reading


class _Start(NamedTuple):
    """What the beginning of a file says, and the reader of the rest."""

    header: tuple[str, ...]
    separator: str
    blank: int
    lines: Any  # a reader of the csv module


def _start(name: str, file: TextIO) -> _Start:
    blank, first, ends = 0, file.readline(), set[str]()
    while first and not first.strip("\r\n"):
        blank += 1
        ends.add(first)
        first = file.readline()
    if blank and len(ends | ({first.lstrip(first.rstrip("\r\n"))} - {""})) > 1:
        raise _mixed(name)  # DuckDB would count the empty lines in another way
    between = separator(first)
    lines = csv.reader(itertools.chain([first] if first else [], file), delimiter=between, strict=True)
    try:
        header = next(lines, None)
    except csv.Error as error:
        raise _broken(name, blank + lines.line_num, error) from error
    if header is None:
        raise InputError(name, "is empty", "Give a table with a header and at least one row.")
    return _Start(tuple(column.strip() for column in header), between, blank, lines)


def _cells(name: str, start: _Start) -> Iterator[list[str | None]]:
    while True:
        try:
            fields = next(start.lines, None)
        except csv.Error as error:
            raise _broken(name, start.blank + start.lines.line_num, error) from error
        if fields is None:
            return
        if fields and len(fields) != len(start.header):
            raise InputError(
                name,
                f"line {start.blank + start.lines.line_num} has {len(fields)} fields, the header {len(start.header)}",
                "Correct or quote that line.",
            )
        if fields:
            yield [cell or None for cell in fields]


@contextmanager
def _reading(path: Path, name: str) -> Iterator[TextIO]:
    """A text file, compressed or not; a mark of byte order at its start is no part of it."""
    try:
        binary: Any = gzip.open(path, "rb") if is_gzip(path) else path.open("rb")  # noqa: SIM115
        with binary, io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as file:
            yield file
    except UnicodeDecodeError as error:
        raise _not_text(name, path) from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(name, f"cannot be read ({reason(error)})", "Check that the file is intact.") from error


def _mixed(name: str) -> InputError:
    return InputError(name, "mixes several kinds of line ends", "Save it with one kind of line ends.")


def _broken(name: str, line: int, error: csv.Error) -> InputError:
    return InputError(name, f"line {line}: {error}", "Check the quotes in and before it.")


def _not_text(name: str, path: Path) -> InputError:
    """The error for bytes that are not UTF-8, with their place in the file; decoding in pieces does not know it."""
    raw = b""
    try:
        raw = gzip.decompress(path.read_bytes()) if is_gzip(path) else path.read_bytes()
        raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _not_text_at(name, raw, error)
    except (OSError, EOFError, MemoryError):
        pass
    return InputError(name, "is not UTF-8 text", "Save it as UTF-8.")


def _not_text_at(name: str, raw: bytes, error: UnicodeDecodeError) -> InputError:
    problem = f"is not UTF-8 text (byte {error.start + 1} is 0x{raw[error.start]:02x})"
    return InputError(name, problem, "Save it as UTF-8.")
