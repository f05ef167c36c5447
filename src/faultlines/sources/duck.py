"""DuckDB, the engine of files and of frames in memory: connections that load nothing, errors that say what happened."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from faultlines.errors import InputError, shorten_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import duckdb


_Result = TypeVar("_Result")
_OWN: ContextVar[duckdb.DuckDBPyConnection | None] = ContextVar("own connection", default=None)
_PATIENCE = 0.3  # seconds that an interrupted query has to end before it is left alone


def connect() -> duckdb.DuckDBPyConnection:
    """A connection of our own. It installs and loads no extension: reading a table never reaches for the network."""
    import duckdb

    return duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})


@contextmanager
def own_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for a block of queries, which end at once when the user interrupts."""
    engine = connect()
    token = _OWN.set(engine)
    try:
        with interruptible():
            yield engine
    except KeyboardInterrupt:
        raise  # a query that has not ended yet still needs the connection, and drops it
    except BaseException:
        engine.close()
        raise
    else:
        engine.close()
    finally:
        _OWN.reset(token)


def run(work: Callable[[], _Result]) -> _Result:
    """Run a query. On a connection of our own it runs beside the main thread, which answers an interrupt at once.

    DuckDB looks for interrupts between pieces of work, which can take it seconds.
    """
    engine = _OWN.get()
    if engine is None or threading.current_thread() is not threading.main_thread():
        with interruptible():
            return work()
    done: list[_Result] = []
    failed: list[BaseException] = []
    over = threading.Event()

    def task() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            over.set()

    # No daemon: a query that ends while the interpreter is being taken down would abort the process.
    threading.Thread(target=task, name="faultlines query").start()
    try:
        over.wait()
    except KeyboardInterrupt:
        engine.interrupt()
        over.wait(_PATIENCE)
        raise
    if failed:
        raise failed[0]
    return done[0]


def quoted(name: str) -> str:
    """The name of a column in a query."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Text in a query."""
    return "'" + text.replace("'", "''") + "'"


def pattern(path: object) -> str:
    """A path in a query. DuckDB takes paths for patterns; in brackets, their characters stand for themselves."""
    return literal("".join(f"[{c}]" if c in "[*?" else c for c in str(path)))


def listed(values: Sequence[str]) -> str:
    """A list in a query."""
    return f"[{', '.join(values)}]"


@contextmanager
def interruptible() -> Iterator[None]:
    """DuckDB answers an interrupt by an error of its own; callers expect the usual one."""
    try:
        yield
    except RuntimeError as error:
        if "interrupt" in str(error).lower():
            raise KeyboardInterrupt from error
        raise


def out_of_memory(shown: str, error: Exception) -> InputError | None:
    """The error to show when DuckDB ran out of memory; none for other errors."""
    import duckdb

    if not isinstance(error, duckdb.OutOfMemoryException | MemoryError):
        return None
    return InputError(
        shown,
        f"there is not enough memory ({message(error)})",
        "Use fewer or coarser groups, or a machine with more memory.",
    )


def message(error: BaseException) -> str:
    """The first few lines of a message, where the first names the place and the next the reason."""
    lines = [line.strip() for line in str(error).strip().splitlines()[:3] if line.strip()]
    return shorten_text("; ".join(lines)) or type(error).__name__
