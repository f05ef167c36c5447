"""Blocks of work on all cores, in a fixed order."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Made = TypeVar("_Made")


def in_order(block: Callable[[int], _Made], total: int, cores: int | None = None) -> Iterator[_Made]:
    """Blocks of work in a fixed order, made on all cores.

    Only a few blocks are in flight at a time: memory stays bounded, and an interrupt is answered within one block.
    """
    cores = cores or available_cores()
    if total == 1 or cores == 1:
        for number in range(total):
            yield block(number)
        return
    with ThreadPoolExecutor(cores) as pool:
        waiting = deque(pool.submit(block, number) for number in range(min(2 * cores, total)))
        submitted = len(waiting)
        try:
            while waiting:
                done = waiting.popleft().result()
                if submitted < total:
                    waiting.append(pool.submit(block, submitted))
                    submitted += 1
                yield done
        finally:
            for future in waiting:
                future.cancel()


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
