"""States of procedures that go on over days: written whole, read back with care, used by one run at a time."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

from faultlines import files
from faultlines.errors import Argument, InputError, shorten
from faultlines.estimates.labels import Label, key_of

CHECKSUM = "checksum"


# ------------------------------------------------------------------------------------------------------------ files


def write_state(path: str | PathLike[str], state: str) -> None:
    """Write a state to a file, whole or not at all: an interrupted write leaves the old one as it was."""
    files.write("path", files.target("path", path), state + "\n")


def read_state(path: str | PathLike[str]) -> str:
    """The state in a file."""
    try:
        return files.read(path)
    except (OSError, TypeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InputError.unreadable_file(
            "path", f"cannot be read ({reason})", "Give what save() wrote.", path
        ) from error


@contextmanager
def stage_state(path: Path, state: str) -> Iterator[None]:
    """Write a state beside its file, and put it in place when the block ends without an error.

    That the state can be written, and that there is room for it, is known before the block begins.

    Args:
        path: The file.
        state: Its text.

    Raises:
        InputError: If it cannot be written.
    """
    place = Path(os.path.realpath(path))
    waiting = place.with_name(f".faultlines-{secrets.token_hex(8)}.part")
    argument = Argument("state", str(path))
    try:
        try:
            mode = place.stat().st_mode & 0o7777 if place.exists() else None
            if mode is not None and not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            with waiting.open("xb") as file:
                file.write(f"{state}\n".encode("ascii"))
                file.flush()
                os.fsync(file.fileno())
            if mode is not None:
                waiting.chmod(mode)
        except OSError as error:
            raise files.unwritable(argument, error) from error
        yield
        try:
            waiting.replace(place)
        except OSError as error:
            raise files.unwritable(argument, error) from error
    finally:
        waiting.unlink(missing_ok=True)


@contextmanager
def lock_state(path: str | PathLike[str]) -> Iterator[Path]:
    """Hold a state for reading, updating and writing: no other run can hold it meanwhile.

    The lock is a file beside the state. The operating system releases it when the process ends, however it ends.

    Args:
        path: The file of the state, which need not be there yet.

    Yields:
        The checked path.

    Raises:
        InputError: If another run holds it, or its folder cannot be written to.
    """
    target = files.target("state", path)
    place = Path(os.path.realpath(target))
    lock = place.with_name(f".{place.name}.lock")
    argument = Argument("state", str(target))
    try:
        descriptor = _acquire(lock, argument)
    except OSError as error:
        raise files.unwritable(argument, error) from error
    try:
        yield target
    finally:
        with suppress(OSError):
            lock.unlink(missing_ok=True)  # while it is held: whoever waits for this file finds that it is gone
        os.close(descriptor)


def _acquire(lock: Path, argument: Argument) -> int:
    """Open and lock a file; a file that its holder has removed meanwhile is not the lock any more."""
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _try_lock(descriptor):
                raise InputError.conflict(
                    argument, "is being updated by another run", "Run again when that one has ended."
                )
            if os.path.lexists(lock) and os.path.samestat(os.fstat(descriptor), lock.stat()):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


# ------------------------------------------------------------------------------------------------------------- text


def dump_state(state: Mapping[str, Any]) -> str:
    """A state as text, with a checksum; in ASCII, so that labels survive which are no valid text."""
    return json.dumps({**state, CHECKSUM: _checksum(state)}, allow_nan=False)


def parse_state(text: str, name: str, version: int) -> dict[str, Any]:
    """A state from its text.

    Args:
        text: What `dump_state` gave.
        name: The key that holds its version.
        version: The version that is understood.

    Returns:
        The state.

    Raises:
        InputError: If it is of another version, or was changed.
        ValueError: If it is no state at all.
    """
    state: dict[str, Any] = check_type(json.loads(text), dict)
    if type(state[name]) is not int or state[name] != version:
        raise InputError.unsupported(
            "state", "is of another version", "Use that version.", place=f"of format {shorten(state[name])}"
        )
    if state.pop(CHECKSUM, None) != _checksum(state):
        raise InputError.invalid_data(
            "state", "was changed after it was saved", "Restore the file, or start a new monitor."
        )
    return state


def _checksum(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode("ascii")).hexdigest()[:32]


@contextmanager
def refuse_unreadable(what: str) -> Iterator[None]:
    """Turn whatever is wrong with a state into one error that says what it is not."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise InputError.unreadable_file(
            "state", f"is not a saved {what} ({error})", "Give what save() wrote."
        ) from error


# ----------------------------------------------------------------------------------------------------------- values


def label_key(label: Label) -> str:
    """A label as text that is the same before and after a file, and not that of any other label."""
    return json.dumps(plain_label(label))


def plain_label(label: Label) -> Any:
    """A label as JSON has it."""
    parts = [part if isinstance(part, str | int | float | bool) else str(part) for part in key_of(label)]
    return parts if isinstance(label, tuple) else parts[0]


def check_type(value: Any, kind: type) -> Any:
    """A value of this very type; a boolean is not an integer."""
    if type(value) is not kind:
        raise ValueError(f"{shorten(value)} where {kind.__name__} is expected")
    return value


def check_number(value: Any, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number within bounds."""
    if type(value) not in (int, float) or not math.isfinite(value) or not low <= value <= high:
        raise ValueError(f"{shorten(value)} is not a number from {low:g} to {high:g}")
    return float(value)


def check_counts(value: Any, codes: tuple[str, ...]) -> dict[str, int]:
    """Numbers of groups by code, each above zero."""
    counts = {code: check_type(count, int) for code, count in check_type(value, dict).items()}
    if not set(counts) <= set(codes) or min(counts.values(), default=1) < 1:
        raise ValueError(f"{shorten(value)} where numbers of groups are expected")
    return counts


def read_labels(value: Any) -> tuple[Label, ...]:
    """Labels as they were: all of one part, or all of equally many."""
    labels = tuple(_read_label(label) for label in check_type(value, list))
    if len({len(label) if isinstance(label, tuple) else -1 for label in labels}) > 1:
        raise ValueError("labels of different lengths")
    return labels


def _read_label(value: Any) -> Label:
    label: Label = tuple(value) if isinstance(value, list) else value
    for part in key_of(label):
        if not isinstance(part, str | int | float) or (isinstance(part, float) and not math.isfinite(part)):
            raise ValueError(f"{shorten(part)} is not a label")
    return label
