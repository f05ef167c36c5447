"""The files behind paths and patterns: there, readable, of one kind, and none of them twice."""

from __future__ import annotations

import difflib
import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING

from faultlines.errors import InputError, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

CSV = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET = (".parquet", ".pq")


def are_paths(data: object) -> bool:
    """Whether data are named by a path, or by several."""
    if isinstance(data, list | tuple):
        return len(data) > 0 and all(isinstance(one, str | Path) for one in data)
    return isinstance(data, str | Path)


def is_parquet(path: Path) -> bool:
    """Whether a file is parquet, by its name."""
    return path.name.lower().endswith(PARQUET)


def is_gzip(path: Path) -> bool:
    """Whether a file is compressed, by its name."""
    return path.name.lower().endswith(".gz")


def shown(path: Path) -> str:
    """A file as messages name it."""
    return f"file={shorten(str(path), 200)}"


def checked(path: Path) -> str:
    """The path as messages name it, once it is known to be a file that holds something."""
    name = shown(path)
    try:
        _check(path, name)
        if path.stat().st_size == 0:
            raise InputError(name, "is empty", "Give a table with a header and at least one row.")
        with path.open("rb"):
            pass
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(name, f"cannot be read ({reason(error)})", "Check the path and who may read it.") from error
    return name


def _check(path: Path, name: str) -> None:
    if path.is_dir():
        raise InputError(name, "is a folder", "Give a csv or parquet file.")
    if not path.exists():
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, siblings, n=1, cutoff=0.7)
        raise InputError(name, "no such file", f"Did you mean {near[0]!r}?" if near else "Check the path.")
    if not path.name.lower().endswith(CSV + PARQUET):
        raise InputError(name, "is neither csv nor parquet by its name", f"Use one of {', '.join(CSV + PARQUET)}.")


def files(given: Sequence[str | Path]) -> list[Path]:
    """The files behind paths and patterns.

    Raises:
        InputError: If one is missing or unreadable, if kinds are mixed, or if a file is there twice.
    """
    found: list[Path] = []
    for one in given:
        found += _matches(one)
    for path in found:
        checked(path)
    if len({is_parquet(path) for path in found}) > 1:
        raise InputError(f"file={shorten([str(p) for p in found])}", "mixes csv and parquet", "Give files of one kind.")
    _check_distinct(found)
    return found


def _matches(one: str | Path) -> list[Path]:
    """A file by its name; a pattern only where no file has that name."""
    path = Path(one)
    try:
        if not glob.has_magic(str(one)) or path.exists():
            return [path]
        matches = sorted(Path(match) for match in glob.glob(str(one), recursive=True))  # noqa: PTH207
    except (OSError, ValueError) as error:
        raise InputError(shown(path), f"cannot be read ({reason(error)})", "Check the path.") from error
    if not matches:
        raise InputError(shown(path), "matches no file", "Check the pattern.")
    return matches


def _check_distinct(found: Sequence[Path]) -> None:
    seen: dict[tuple[int, int] | str, Path] = {}
    for path in found:
        status = path.stat()
        # Links of either kind have the number of the file they lead to; file systems without numbers say 0.
        identity = (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(path)
        if identity in seen:
            first = seen[identity]
            again = "" if first == path else f" ({shorten(str(first), 80)} is the same file)"
            raise InputError(shown(path), f"is given twice{again}: its rows would count twice", "Give each file once.")
        seen[identity] = path


def reason(error: Exception) -> str:
    """Why the system could not do something, in a few words."""
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
