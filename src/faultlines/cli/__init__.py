"""The command line: words to calls of the library, results to files, verdicts to exit codes; no statistics.

Here are the way in and the ways out: stdout carries the result, stderr one line about what failed.

What the exit codes mean is said in `streams`. Everything heavy, Typer too, is imported where errors and interrupts are
already caught.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback

from faultlines.cli import streams
from faultlines.errors import InputError, first_line
from faultlines.formats import printable_lines

__all__ = ["main"]

_MEMORY = "error: out of memory. Use fewer or coarser groups, fewer draws, or a machine with more memory."


def main() -> None:
    """Run the command line, and end with one of the exit codes."""
    try:
        streams.prepare()
        code = _run(sys.argv[1:] or ["--help"])
    except BrokenPipeError:  # whoever read stdout has seen enough
        streams.close_stdout()
        code = streams.DONE
    except BaseException as error:  # engines written in Rust panic beside Exception
        words, code = _ending(error)
        streams.tell(words)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    import typer

    from faultlines.cli.commands import app

    # The public name of this class moved between releases of Typer; its child has stayed where it was.
    usage_error: type[Exception] = typer.BadParameter.__bases__[0]
    try:
        # Not `app()`: it frames usage errors in five lines, and ends with 1, the gate's code, when a pipe is closed.
        command = typer.main.get_command(app)
        with command.make_context("faultlines", arguments) as context:
            command.invoke(context)
    except typer.Exit as end:
        return int(end.exit_code)
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except usage_error as error:
        words = error.format_message().strip()  # type: ignore[attr-defined]
        where = getattr(getattr(error, "ctx", None), "command_path", "faultlines")
        streams.tell(f"error: {words}{'' if words.endswith(('.', '?')) else '.'} See {where} --help.")
        return streams.UNUSABLE
    return streams.DONE


def _ending(error: BaseException) -> tuple[str, int]:
    """What to say about an error, and the exit code."""
    if isinstance(error, InputError):
        return f"error: {error}", streams.UNUSABLE
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", streams.INTERRUPTED
    if isinstance(error, MemoryError):
        return _MEMORY, streams.UNUSABLE
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        streams.close_stdout()
        return f"error: {error.strerror}. Make room, or write elsewhere.", streams.UNUSABLE
    if os.environ.get("FAULTLINES_TRACEBACK"):
        streams.tell_lines(printable_lines(traceback.format_exc()))
    name = f"{type(error).__name__}: {first_line(error)}"
    return f"internal error ({name}); set FAULTLINES_TRACEBACK=1 to see where", streams.DEFECT
