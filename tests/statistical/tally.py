"""Monte Carlo counts that are written as they come, so that a study stops at its budget and continues later.

A study is a set of cells; a cell is a function of the run's number, which seeds everything random in it, so that runs
can be added at any time and in any order. Counts are kept in docs/figures/<study>.json with the commit, the date, the
number of runs and one Monte Carlo standard error, and start anew when the code that they measure has changed.

Environment: FAULTLINES_BUDGET, the seconds that a session of studies may take (all of them together);
FAULTLINES_SHARE, the share of the runs of each study.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
# What numbers rest on; words, pictures and the command line do not change them.
MEASURED_CODE = ("analyses", "core", "engines", "estimates", "guarantees", "metrics", "rows", "simulate.py")
WRITE_EVERY = 5.0  # seconds between two writes of a cell that is being counted


@dataclass(frozen=True)
class Tally:
    """How often each event happened in a cell.

    Attributes:
        runs: How many data sets were drawn.
        events: Number of data sets with each event.
    """

    runs: int
    events: dict[str, int]

    def share(self, event: str) -> float:
        """The share of data sets with an event."""
        return self.events.get(event, 0) / max(self.runs, 1)

    def error(self, event: str) -> float:
        """One Monte Carlo standard error of that share, not below that of one event."""
        share = self.share(event)
        return math.sqrt(max(share * (1 - share), 1 / max(self.runs, 1)) / max(self.runs, 1))


def level_bound(alpha: float, runs: int) -> float:
    """The largest share that a true rate of α explains: three Monte Carlo standard errors above it."""
    return alpha + 3 * math.sqrt(alpha * (1 - alpha) / max(runs, 1))


def session_seconds() -> float:
    """Seconds that this session of studies may take: FAULTLINES_BUDGET; no end where it is not set."""
    return float(os.environ.get("FAULTLINES_BUDGET") or math.inf)


def scale_runs(runs: int) -> int:
    """As many runs as FAULTLINES_SHARE of these, but not below a hundred; for studies whose bounds follow from runs."""
    share = float(os.environ.get("FAULTLINES_SHARE") or 1.0)
    return max(round(share * runs), min(runs, 100))


def cell_seconds(cells: int, share: float) -> float:
    """Seconds of one of a study's cells.

    Args:
        cells: How many cells the study has.
        share: The study's share of the session, over all worker processes.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return share * session_seconds() * workers / cells


def count_events(
    study: str,
    cell: str,
    draw: Callable[[int], Mapping[str, bool]],
    runs: int,
    *,
    seconds: float = math.inf,
    least: int = 1,
) -> Tally:
    """Count the events of a cell until it has so many runs or its time is over, from where it stopped.

    Args:
        study: Its name; counts are kept in a file of that name.
        cell: The name of the cell.
        draw: The events of the data set with this number.
        runs: How many are wanted in all.
        seconds: When to stop.
        least: Runs that are made in any case.

    Returns:
        All that is counted by now, earlier sessions included.
    """
    tally, started, written = read_tally(study, cell), time.monotonic(), time.monotonic()
    while tally.runs < runs and (tally.runs < least or time.monotonic() - started < seconds):
        events = dict(tally.events)
        for name, happened in draw(tally.runs).items():
            events[name] = events.get(name, 0) + int(bool(happened))
        tally = Tally(tally.runs + 1, events)
        if time.monotonic() - written > WRITE_EVERY:
            write_tally(study, cell, tally)
            written = time.monotonic()
    if tally.runs > 0:
        write_tally(study, cell, tally)
    return tally


def read_tally(study: str, cell: str) -> Tally:
    """What is counted by now of this code; nothing where the code has changed since."""
    entry = read_figures(study).get("cells", {}).get(cell, {})
    if entry.get("source") != source_hash():
        return Tally(0, {})
    return Tally(entry["runs"], dict(entry["events"]))


def write_tally(study: str, cell: str, tally: Tally) -> None:
    """Keep the counts of a cell, with their shares and Monte Carlo errors."""
    entry = {
        "runs": tally.runs,
        "events": tally.events,
        "share": {event: round(tally.share(event), 5) for event in tally.events},
        "error": {event: round(tally.error(event), 5) for event in tally.events},
        **origin(),
    }
    with locked(study) as figures:
        figures.setdefault("cells", {})[cell] = entry


def origin() -> dict[str, str]:
    """Where a figure comes from: commit, date, and the hash of the code that was measured."""
    return {"commit": commit(), "date": datetime.now(UTC).strftime("%Y-%m-%d"), "source": source_hash()}


@cache
def commit() -> str:
    """The commit of the working copy; empty outside of one."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return answer.stdout.strip()


@cache
def source_hash() -> str:
    """A hash of the code that studies measure."""
    digest = hashlib.sha256()
    for part in MEASURED_CODE:
        path = ROOT / "src" / "faultlines" / part
        for file in [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.pyx")]):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def read_figures(study: str) -> dict[str, Any]:
    """The file of a study; empty where there is none yet."""
    path = FIGURES / f"{study}.json"
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return figures


@contextmanager
def locked(study: str) -> Iterator[dict[str, Any]]:
    """The file of a study to change, while no other process does."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    lock = ROOT / "build" / "figures.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        figures = read_figures(study)
        yield figures
        path = FIGURES / f"{study}.json"
        beside = path.with_suffix(".part")  # a reader never sees half a file
        beside.write_text(_one_line_per_entry(figures), encoding="utf-8")
        beside.replace(path)


def _one_line_per_entry(figures: Mapping[str, Any]) -> str:
    """JSON with one line for each cell or test, so that small changes make small diffs."""
    parts = []
    for key, value in figures.items():
        if isinstance(value, dict):
            lines = [
                f"  {json.dumps(k, ensure_ascii=False)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()
            ]
            parts.append(f" {json.dumps(key)}: {{\n" + ",\n".join(lines) + "\n }")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
