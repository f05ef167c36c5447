"""A monitor between the runs of a daily job: begun or resumed, shown all data so far, saved in its file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from faultlines import files
from faultlines.analyses.monitor import Monitor
from faultlines.cli.metrics import attributes, metric_of_rows, set_options
from faultlines.cli.outputs import Targets, complete_command, is_table, table_of
from faultlines.errors import ErrorCode, InputError
from faultlines.guarantees.state import lock_state, stage_state
from faultlines.render.text import to_text

if TYPE_CHECKING:
    from faultlines.cli import options as opt
    from faultlines.results.monitor import MonitorResult

_SETTINGS = ("alpha", "looks", "information", "spending", "dependence", "draws", "seed", "margins")


class CommandLook(NamedTuple):
    """A look from the command line.

    Attributes:
        monitor: The monitor after it.
        result: Its result.
        taken: Whether this run took a look; not where groups are too small yet, or where a monitor that has ended has
            no new data, or no valid intervals for them.
        repeated: Whether the last look was at these data already.
    """

    monitor: Monitor
    result: MonitorResult
    taken: bool
    repeated: bool = False


@contextmanager
def open_monitor(state: Path, how: opt.Monitoring) -> Iterator[Monitor]:
    """Hold the monitor of a file, whose settings may be repeated but not changed; or a new one.

    Args:
        state: The file.
        how: Settings that were given.

    Yields:
        The monitor.

    Raises:
        InputError: If another run holds the file, it is not the state of a monitor, or settings differ.
    """
    settings = {name: value for name, value in asdict(how).items() if name in _SETTINGS and value is not None}
    with lock_state(state) as target:
        if not os.path.lexists(target):
            yield Monitor(**settings)
            return
        try:
            monitor = Monitor.load(target)
        except InputError as error:
            state_error = error.changed(parameter="state", value=repr(str(state)))
            if error.code == ErrorCode.UNREADABLE_FILE:  # other errors, such as one of another release, say what to do
                here = "The first file is where the monitor is kept from look to look; data come after it."
                state_error = state_error.changed(remedy=here)
            raise state_error from error
        monitor.check_settings(str(state), settings)
        yield monitor


def take_look(
    monitor: Monitor, watched: opt.Watched, measured: opt.WatchedMetric, *, final: bool, writes: bool
) -> CommandLook:
    """Look at all data so far.

    Args:
        monitor: The monitor.
        watched: What is looked at.
        measured: What is measured.
        final: Whether it is the last look.
        writes: Whether the result is written to a file: then that of the last look is, if the data are still the same.
    """
    try:
        return _take_look(monitor, watched, measured, final=final)
    except InputError as error:
        if (error.code, error.parameter) != (ErrorCode.DUPLICATE, "estimates"):
            raise
        if final or not writes:
            raise error.changed(problem=f"these data {error.problem}", form="sentence") from error
        return CommandLook(monitor, monitor.result, taken=False, repeated=True)


def _take_look(monitor: Monitor, watched: opt.Watched, measured: opt.WatchedMetric, *, final: bool) -> CommandLook:
    table, has_metric = is_table(watched), bool(set_options(measured))
    metric = None if table else metric_of_rows(measured)
    looks = len(monitor.result.looks)
    how: dict[str, Any] = {
        "missing": watched.missing, "new": watched.new, "final": final, "min_size": watched.min_size
    }  # fmt: skip
    if metric is None:
        result = monitor.update(table_of(watched, measured=has_metric), **how)
    else:
        result = monitor.update(watched.rows(), attributes(watched.by), metric, **how)
    return CommandLook(monitor, result, taken=len(result.looks) > looks)


def write_look(look: CommandLook, targets: Targets, state: Path) -> None:
    """Write JSON and page, print the look, then put the state in place: a run that fails before has not looked.

    All files are written before anything is printed, the state beside its own: no look is shown that cannot be kept.
    """
    if not look.taken:
        _write_outputs(look, targets)
        return
    with stage_state(files.target("state", state), look.monitor.to_json()):
        _write_outputs(look, targets)


def _reason_for_none(result: MonitorResult) -> str:
    """Why no look was taken."""
    last = result.looks[-1].number
    if result.planned is not None and last >= result.planned:
        return "all planned looks are used"
    return f"there are no new data since look {last}"


def _write_outputs(look: CommandLook, targets: Targets) -> None:
    has_reason = look.repeated or (look.result.finished and not look.taken)
    ended = "" if not has_reason else f"\nNo look was taken: {_reason_for_none(look.result)}."
    targets.write_result(look.result)
    targets.say(f"{to_text(look.result, spelling=complete_command)}{ended}")
