"""Best-of-n timing, and lines that hold a figure against its limit."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from docs.figures import keep_entry, show

if TYPE_CHECKING:
    from collections.abc import Callable


def seconds(work: Callable[[], object], least: float = 0.5, most: int = 30) -> float:
    """The shortest of several runs: the one the machine disturbed least."""
    best, spent, runs = float("inf"), 0.0, 0
    while spent < least and runs < most:
        started = time.perf_counter()
        work()
        took = time.perf_counter() - started
        best, spent, runs = min(best, took), spent + took, runs + 1
    return best


def side_by_side(first: Callable[[], object], second: Callable[[], object], rounds: int = 25) -> tuple[float, float]:
    """The shortest runs of two pieces of work that take turns, so that a machine's moods meet both."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for i, work in enumerate((first, second)):
            started = time.perf_counter()
            work()
            best[i] = min(best[i], time.perf_counter() - started)
    return best[0], best[1]


@dataclass
class Board:
    """Collects figures in docs/figures/bench.json; knows at the end whether all are within their limits.

    Attributes:
        part: The part of the benchmarks that runs.
        missed: What is beyond its limit.
    """

    part: str = ""
    missed: list[str] = field(default_factory=list)
    _heading: str = ""

    def line(self, what: str, value: float, unit: str, *, good: bool | None = None, limit: str = "") -> None:
        """Print and keep one figure; `good` says whether it is within `limit`, None that there is none.

        A line that begins with spaces belongs to the one above, and is kept under the names of both.
        """
        self._heading = self._heading if what.startswith(" ") else what
        name = f"{self.part}; {self._heading}" + (f", {what.strip()}" if what.startswith(" ") else "")
        verdict = "" if good is None else ("ok" if good else "MISSED")
        print(f"{what:<74} {show({'value': value, 'unit': unit}):>14}  {limit:<10} {verdict}", flush=True)
        entry: dict[str, Any] = {"value": float(f"{value:.4g}"), "error": None, "runs": 1, "unit": unit}
        keep_entry("bench", "figures", name, entry | ({"limit": limit, "good": good} if limit else {}))
        if good is False:
            self.missed.append(what)
