"""A monitor between the runs of a daily job: begun or resumed, shown all data so far, saved in its file."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from faultlines import files
from faultlines.analyses.monitor import Monitor
from faultlines.cli.metrics import metric_of_rows
from faultlines.cli.options import attributes, column_names
from faultlines.cli.outputs import command_line, dumped, is_table, table_of
from faultlines.errors import ErrorCode, InputError
from faultlines.estimates.labels import name_of
from faultlines.guarantees.state import lock_state, stage_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from faultlines.cli import options as opt
    from faultlines.cli.outputs import Targets
    from faultlines.estimates.estimates import Excluded
    from faultlines.estimates.reasons import DropCode
    from faultlines.results.monitor import MonitorResult

_SHOWN = 3
_SETTINGS = ("alpha", "looks", "information", "spending", "dependence", "draws", "seed")


@dataclass(frozen=True, slots=True)
class CommandLook:
    """A look from the command line, with what of the rows it did not use.

    Attributes:
        monitor: The monitor after it.
        result: Its result.
        excluded: Groups that were excluded, each with its reason.
        dropped: How many rows were dropped, by reason.
        taken: Whether this run took a look; not where the monitor had ended before.
    """

    monitor: Monitor
    result: MonitorResult
    excluded: Sequence[Excluded] = ()
    dropped: Mapping[DropCode, int] | None = None
    taken: bool = True

    def __str__(self) -> str:
        lines = [str(self.result), *(f"  {line}" for line in self.left_out)]
        if not self.taken:
            lines.append("  The monitor had ended before; no look was taken.")
        return "\n".join(lines)

    @property
    def left_out(self) -> list[str]:
        """Excluded groups and dropped rows, in words."""
        lines = []
        if self.excluded:
            named = [f"{name_of(group.label)} ({group.reason})" for group in self.excluded[:_SHOWN]]
            named += [f"… +{len(self.excluded) - _SHOWN}"] if len(self.excluded) > _SHOWN else []
            lines.append(f"Left out: {len(self.excluded):,} groups: {', '.join(named)}.")
        return lines + [f"Left out: {count:,} {reason}." for reason, count in (self.dropped or {}).items()]


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


def take_look(monitor: Monitor, watched: opt.Watched, measured: opt.WatchedMetric, *, final: bool) -> CommandLook:
    """Look at all data so far; rows are not read where the monitor has ended."""
    table, has_metric = is_table(watched), any(value is not None for value in asdict(measured).values())
    metric = None if table else metric_of_rows(measured)
    if monitor.result.finished:
        return CommandLook(monitor, monitor.result, taken=False)
    how: dict[str, Any] = {"missing": watched.missing, "new": watched.new, "final": final}
    if metric is None:
        if watched.min_size is not None:
            raise InputError.conflict(
                "min_size", "goes with rows", "Leave it out, or leave small groups out of the table."
            )
        return CommandLook(monitor, monitor.update(table_of(watched, measured=has_metric), **how))
    from faultlines.metrics.measure import measure

    by = attributes(watched.by)
    for word, values in zip(column_names(watched.by), by, strict=True):
        if getattr(values, "quantiles", None) is not None:
            problem = "quantiles move while data come in, and groups with them"
            raise InputError.unsupported("by", problem, "Cut in steps of a width, as in age:5.", word, form="clause")
    measurement = measure(watched.rows(), by, metric, min_size=watched.min_size)
    result = monitor.update(measurement.estimates, **how)
    return CommandLook(monitor, result, measurement.excluded, measurement.dropped)


def write_look(look: CommandLook, targets: Targets, state: Path) -> None:
    """Print the look, write JSON and page, then put the state in place: a run that fails before has not looked.

    The state is written beside its file before anything is printed, so that a look is never shown that cannot be kept.
    """
    if not look.taken:
        _write_outputs(look, targets)
        return
    with stage_state(files.target("state", state), look.monitor.to_json()):
        _write_outputs(look, targets)


def _write_outputs(look: CommandLook, targets: Targets) -> None:
    targets.say(str(look))
    plain = look.result.to_dict()
    plain["excluded"] = [{"label": name_of(group.label), "reason": group.reason} for group in look.excluded]
    plain["dropped"] = dict(look.dropped or {})
    targets.write_json(dumped(plain))
    if targets.report is not None:
        from faultlines.render.monitor import monitor_page

        page = monitor_page(look.result, title=targets.title, command=command_line(), left_out=look.left_out)
        files.write("report", targets.report, page)
