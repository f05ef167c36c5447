"""Files out: a file is written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from faultlines.errors import Argument, InputError


def target(what: str, path: str | PathLike[str], endings: Iterable[str] = ()) -> Path:
    """A path that a file can be written to, or an error before any work is done for it.

    Args:
        what: The parameter that named it, such as ``"report"``.
        path: The path.
        endings: What its name may end in; anything by default.
    """
    try:
        target_path = expand(path)
        if "\0" in str(target_path):
            raise TypeError
    except TypeError as error:
        raise InputError.wrong_type(what, "is not a path", "Use for example 'out.html'.", path) from error
    argument = Argument(what, target_path)
    allowed = list(endings)
    if allowed and target_path.suffix.lower() not in allowed:
        raise InputError.unwritable_file(
            argument, f"does not end in {' or '.join(allowed)}", f"Use for example 'out{allowed[0]}'."
        )
    try:
        if target_path.is_dir():
            raise InputError.unwritable_file(argument, "is a folder", "Name a file in it.")
        if not target_path.parent.is_dir():
            raise InputError.unwritable_file(
                argument, "is in a folder that does not exist", f"Make {str(target_path.parent)!r} first."
            )
    except OSError as error:  # a name too long, a folder that may not be entered
        raise unwritable(argument, error) from error
    return target_path


def expand(path: str | PathLike[str]) -> Path:
    """A path with ``~`` as the home folder; ``./~`` is a folder of that name."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path("./~/x") would lose its dot before


def read(path: str | PathLike[str]) -> str:
    """The text of a file; a device such as /dev/zero, which never ends, is none.

    Raises:
        OSError: If it cannot be read.
        TypeError: If it is no path.
        ValueError: If it is not UTF-8.
    """
    file = expand(path)
    if file.is_char_device() or file.is_block_device():
        raise OSError(errno.ENODEV, "a device")
    return file.read_text(encoding="utf-8")


def write(what: str, path: Path, content: str | bytes) -> None:
    """Write a file through a temporary one beside it, so that whatever happens the old one or the new one is whole.

    A link keeps pointing at its file, and the file keeps its mode. What is no regular file (a pipe, /dev/stdout) is
    written to directly: there is nothing to keep whole.
    """
    argument, data = Argument(what, path), content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    try:
        place = Path(os.path.realpath(path))
        if place.exists() and not place.is_file():
            place.write_bytes(data)
            return
        mode = place.stat().st_mode & 0o7777 if place.exists() else None
        if mode is not None and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        waiting = place.with_name(f".faultlines-{secrets.token_hex(8)}.part")
        try:
            with waiting.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if mode is not None:
                waiting.chmod(mode)
            waiting.replace(place)
        except BaseException:  # an interrupt too leaves nothing behind
            waiting.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(argument, error) from error


def unwritable(argument: Argument, error: OSError) -> InputError:
    """The error for a file that cannot be written."""
    why = error.strerror or type(error).__name__
    return InputError.unwritable_file(
        argument, f"cannot be written ({why})", "Check the path and the space that is left."
    )


def same(first: Path, second: Path) -> bool:
    """Whether two paths name one file, also through links and before either is there."""
    return os.path.realpath(first) == os.path.realpath(second)
