"""What a script sees: stdout and stderr as they come (closed, full, no terminal), and exit codes.

What is printed for people has its control characters made visible, so nothing in the data steers a terminal.

Exit codes, which `faultlines --help` lists. 0: done; with a gate, every group was compared and no difference is
reported, all are certified to be within the gap, or clusters are confirmed. 1: the gate, clusters differ, a group is
farther away than the gap, or clusters are not confirmed; nothing else ends with 1. 2: something given cannot be used,
or is too large for this machine's memory or disk. 3: inconclusive; a gate was asked for, and groups were excluded, only
one was left, or the data are too few. 70: a defect of faultlines. 130: interrupted.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from faultlines.errors import UNSET, Argument, InputError
from faultlines.files import unwritable
from faultlines.formats import printable, printable_lines

DONE = 0
SPLIT = 1
UNUSABLE = 2
CANNOT_TELL = 3
DEFECT = 70
INTERRUPTED = 130


class Inconclusive(Exception):  # noqa: N818 - an outcome, not a defect
    """A gate was asked for, and there is nothing to compare; the error says why."""

    def __init__(self, error: InputError) -> None:
        super().__init__(str(error))
        self.error = error


def prepare() -> None:
    """Make streams safe to write to.

    A terminal without ● shows something else, not a traceback. Where a stream is closed, the next file to be opened
    would take its number, and whatever a library prints would end up in that file: nothing takes it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def say(words: str) -> None:
    """Text for people to stdout, with control characters made visible."""
    _out(printable_lines(words))


def print_data(words: str) -> None:
    """Data for programs to stdout: as they are, in UTF-8 whatever the terminal speaks."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")
    _out(words)


def _out(words: str) -> None:
    """Print now. A reader that has gone, such as `head`, is no error and does not change the exit code."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(f"{words}\n")
        if hasattr(sys.stdout, "flush"):
            sys.stdout.flush()
    except BrokenPipeError:
        close_stdout()
    except OSError as error:
        close_stdout()
        raise unwritable(Argument("stdout", UNSET), error) from error


def close_stdout() -> None:
    """Send what is still to come, and what could not be written, nowhere."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def tell(words: str) -> None:
    """One line to stderr, if there is one."""
    tell_lines(f"faultlines: {printable(' '.join(words.split()))}\n")


def tell_inconclusive(words: str) -> None:
    """One line to stderr on a gate that is inconclusive; the word stands there once."""
    tell(words if words.lower().startswith("inconclusive") else f"inconclusive: {words}")


def tell_lines(words: str) -> None:
    """Lines to stderr, if there is one."""
    with suppress(OSError, ValueError, AttributeError):  # AttributeError: it is None
        sys.stderr.write(words)
        sys.stderr.flush()
