"""Monte Carlo counts that are written as they come, so that a study stops at its budget and continues later.

A study is a set of cells; a cell is a function of the run's number, which seeds everything random in it, so that runs
can be added at any time and in any order. Counts are kept in docs/figures/<study>.json (`docs.figures`), from which a
later session continues, and start anew when the code that they measure has changed.

Environment: FAULTLINES_BUDGET, the seconds that a session of studies may take (all of them together);
FAULTLINES_SHARE, the share of the runs of each study.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.special import bdtr

from docs.figures import keep_entry, read_figures, share_error, share_of_runs, source_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
        return share_error(self.share(event), self.runs)


def level_bound(alpha: float, runs: int) -> float:
    """The largest share that a true rate of α explains: three Monte Carlo standard errors above it."""
    return alpha + 3 * math.sqrt(alpha * (1 - alpha) / max(runs, 1))


TELLS = 0.075  # a rate that runs must tell from .05
SURE = 0.001  # and how surely


def is_settled(reported: int, runs: int, alpha: float = 0.05) -> bool:
    """Whether so few false positives show that a rate of .075 is not the true one: further runs would change nothing.

    Most kinds of rows report in 1–4% of data sets, and 200 to 400 of them show it.

    Args:
        reported: Data sets in which a difference was reported at α.
        runs: All data sets; looked at after every hundred, so that looking often does not decide.
        alpha: The significance level; the rate that must be told from it is half as large again.
    """
    return runs > 0 and runs % 100 == 0 and float(bdtr(reported, runs, TELLS * alpha / 0.05)) < SURE


def session_seconds() -> float:
    """Seconds that this session of studies may take: FAULTLINES_BUDGET; no end where it is not set."""
    return float(os.environ.get("FAULTLINES_BUDGET") or math.inf)


def scale_runs(runs: int) -> int:
    """As many runs as FAULTLINES_SHARE of these, but not below a hundred; for studies whose bounds follow from runs."""
    return max(round(share_of_runs() * runs), min(runs, 100))


def wider(share: float, runs: int, usual: int) -> float:
    """What fewer runs than usual add to a bound of a share: three times the growth of its Monte Carlo error."""
    return 3 * (share_error(share, runs) - share_error(share, usual))


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
    decides: str = "",
) -> Tally:
    """Count the events of a cell until it has so many runs or its time is over, from where it stopped.

    Args:
        study: Its name; counts are kept in a file of that name.
        cell: The name of the cell.
        draw: The events of the data set with this number.
        runs: How many are wanted in all.
        seconds: When to stop.
        least: Runs that are made in any case.
        decides: An event that is a false positive at .05: counting also ends when its rate `is_settled`.

    Returns:
        All that is counted by now, earlier sessions included.
    """
    tally, started, written = read_tally(study, cell), time.monotonic(), time.monotonic()
    while tally.runs < runs and (tally.runs < least or time.monotonic() - started < seconds):
        if decides and is_settled(tally.events.get(decides, 0), tally.runs):
            break
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
    entry = read_figures(study).get("counts", {}).get(cell, {})
    if entry.get("source") != source_hash():
        return Tally(0, {})
    return Tally(entry["runs"], dict(entry["events"]))


def write_tally(study: str, cell: str, tally: Tally) -> None:
    """Keep the counts of a cell."""
    keep_entry(study, "counts", cell, {"runs": tally.runs, "events": tally.events})
