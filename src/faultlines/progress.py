"""Signs of life for work that turns out to be long: silent for the first second and away from a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 1.0  # seconds


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the number of steps just done; it may be called as often as one likes."""
    if not _on_a_terminal():
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(label, total=total)
    started = time.monotonic()
    shown = False

    def advance(steps: int) -> None:
        nonlocal shown
        bar.advance(task, steps)
        if not shown and time.monotonic() - started > PATIENCE:
            shown = True
            bar.start()

    try:
        yield advance
    finally:
        if shown:
            bar.stop()


@contextmanager
def working(label: str) -> Iterator[None]:
    """Show a spinner while work of unknown length goes on."""
    if not _on_a_terminal():
        yield
        return
    from rich.console import Console

    spinner = Console(stderr=True).status(label)
    timer = threading.Timer(PATIENCE, spinner.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        spinner.stop()


def _on_a_terminal() -> bool:
    """Whether someone watches stderr; some programs set it to None, or to an object that only writes."""
    isatty = getattr(sys.stderr, "isatty", None)
    return bool(isatty is not None and isatty())
