"""What procedures that go on over days keep in a file: labels as JSON has them, read back with care."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faultlines import files
from faultlines.errors import InputError, shorten
from faultlines.estimates.labels import key_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from faultlines.estimates.labels import Label


def write(path: str | PathLike[str], state: str) -> None:
    """Write a state to a file, whole or not at all: an interrupted write leaves the old one as it was."""
    files.write("path", files.target("path", path), state + "\n")


def read(path: str | PathLike[str]) -> str:
    """The state in a file."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, TypeError, ValueError) as error:
        shown = getattr(error, "strerror", None) or "not text"
        raise InputError(f"path={shorten(path)}", f"cannot be read ({shown})", "Give what save() wrote.") from error


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Whatever is wrong with a state is one error, which says that it is none of `what`."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise InputError("state", f"is not a saved {what} ({error})", "Give what save() wrote.") from error


def version(found: Any, known: int) -> None:
    """Refuse a state of another format."""
    if type(found) is not int or found != known:
        raise InputError(f"state of format {shorten(found)}", "is of another version", "Use that version.")


def key(label: Label) -> str:
    """A label as text that is the same before and after a file, and not that of any other label."""
    return json.dumps(plain(label), ensure_ascii=False)


def plain(label: Label) -> Any:
    """A label as JSON has it."""
    parts = [part if isinstance(part, str | int | float | bool) else str(part) for part in key_of(label)]
    return parts if isinstance(label, tuple) else parts[0]


def typed(found: Any, kind: type) -> Any:
    """What was read, if it is of this very type; a boolean is no integer."""
    if type(found) is not kind:
        raise ValueError(f"{shorten(found)} where {kind.__name__} is expected")
    return found


def labels(found: Any) -> tuple[Label, ...]:
    """Labels as they were: all of one part, or all of equally many."""
    made = tuple(_label(label) for label in typed(found, list))
    if len({len(label) if isinstance(label, tuple) else -1 for label in made}) > 1:
        raise ValueError("labels of different lengths")
    return made


def _label(found: Any) -> Label:
    made: Label = tuple(found) if isinstance(found, list) else found
    for part in key_of(made):
        if not isinstance(part, str | int | float) or (isinstance(part, float) and not math.isfinite(part)):
            raise ValueError(f"{shorten(part)} is no label")
    return made


def number(found: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number within bounds."""
    if type(found) not in (int, float) or not math.isfinite(found) or not low <= found <= high:
        raise ValueError(f"{shorten(found)} is no such number")
    return float(found)
