"""How studies are run: within a budget, least recently run first, with their figures kept as they come.

Every study that ends is written to docs/figures/<file>.json with its outcome, processor seconds, commit and date.
FAULTLINES_BUDGET is the number of seconds after which no further study starts; FAULTLINES_CONTINUE=1 leaves out those
that passed since the code was changed; FAULTLINES_LONGEST leaves out those that took more seconds than this last time.
"""

from __future__ import annotations

import os
import time
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from docs.figures import KEPT, keep_entry, read_figures, share_of_runs, source_hash
from tests.statistical.tally import session_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HERE = Path(__file__).parent
STARTED = time.monotonic()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of every file in turn, what was run longest ago first: a budget that ends early was spent on all files."""
    studies = [item for item in items if HERE in item.path.parents]
    if not studies:
        return
    left_out = [item for item in studies if is_left_out(past_result(item))]
    chosen = [item for item in studies if item not in left_out]
    others = [item for item in items if HERE not in item.path.parents]
    items[:] = [*others, *in_turns(chosen)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def study_of(path: Path) -> str:
    """The name of the file of figures that belongs to a file of studies."""
    return path.stem.removeprefix("test_")


def past_result(item: pytest.Item) -> dict[str, Any]:
    """What is known of a study from its last run; of its last full run where there is no other."""
    study = study_of(item.path)
    tests = read_figures(study, KEPT).get("tests", {}) | read_figures(study).get("tests", {})
    result: dict[str, Any] = tests.get(item.name, {})
    return result


def is_left_out(past: dict[str, Any]) -> bool:
    """Whether a study need not, or should not, be run now."""
    longest = float(os.environ.get("FAULTLINES_LONGEST") or "inf")
    is_full = past.get("share_of_runs") == 1.0
    has_passed = is_full and past.get("outcome") == "passed" and past.get("source") == source_hash()
    seconds = past.get("seconds", 0.0) * min(1.0, share_of_runs() / past.get("share_of_runs", 1.0))
    return (bool(os.environ.get("FAULTLINES_CONTINUE")) and has_passed) or seconds > longest


def in_turns(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """One of every file, then the next of every file, each file by the date of its last result."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    for own in files.values():
        own.sort(key=lambda item: past_result(item).get("date", ""))
    return [item for turn in zip_longest(*files.values()) for item in turn if item is not None]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """No study starts after the end of the budget."""
    if HERE in item.path.parents and time.monotonic() - STARTED > session_seconds():
        pytest.skip("the budget is spent; run again to continue")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Measure what a study takes of the processor, however busy the machine is."""
    before = sum(os.times()[:4])
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu", round(sum(os.times()[:4]) - before, 1)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the outcome and the figures of a study that ended.

    With several processes the one that ran it writes: the first one knows this file only if it was named on the command
    line, and gets the names of studies with their letters escaped.
    """
    path = HERE / Path(report.nodeid.split("::")[0]).name
    if report.when != "call" or report.outcome == "skipped" or hasattr(report, "node"):
        return
    if "tests/statistical/" not in report.nodeid:
        return
    entry = {
        "outcome": report.outcome,
        "seconds": dict(report.user_properties).get("cpu", round(report.duration, 1)),
        "share_of_runs": share_of_runs(),
        "printed": report.capstdout.splitlines(),
    }
    keep_entry(study_of(path), "tests", report.nodeid.split("::", 1)[1], entry)
