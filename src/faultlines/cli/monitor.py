"""A monitor between the runs of a daily job: begun or taken up again, shown all data so far, kept in its file."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from faultlines import files
from faultlines.cli.attributes import attribute
from faultlines.cli.metrics import metric_of_rows
from faultlines.cli.outputs import command_line, dumped
from faultlines.cli.tables import is_table, table_of
from faultlines.errors import InputError
from faultlines.estimates.labels import name_of
from faultlines.guarantees.monitor import Monitor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from faultlines.cli import options as opt
    from faultlines.cli.outputs import Targets
    from faultlines.estimates.estimates import Excluded
    from faultlines.guarantees.monitored import Monitored

_SHOWN = 3
_SETTINGS = ("alpha", "looks", "information", "spending", "dependence", "draws", "seed")


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look found, and what of the rows it did not use.

    Attributes:
        monitor: The monitor after it.
        decision: Where it stands.
        excluded: Groups that were left out, each with its reason.
        dropped: How many rows were not used, by reason.
        taken: Whether this run took a look; not where there was a decision before.
    """

    monitor: Monitor
    decision: Monitored
    excluded: Sequence[Excluded] = ()
    dropped: Mapping[str, int] | None = None
    taken: bool = True

    def __str__(self) -> str:
        lines = [str(self.decision), *(f"  {line}" for line in self.left_out)]
        if not self.taken:
            lines.append("  Decided before; no look was taken.")
        return "\n".join(lines)

    @property
    def left_out(self) -> list[str]:
        """What was left out, in words."""
        lines = []
        if self.excluded:
            named = [f"{name_of(group.label)} ({group.reason})" for group in self.excluded[:_SHOWN]]
            named += [f"… +{len(self.excluded) - _SHOWN}"] if len(self.excluded) > _SHOWN else []
            lines.append(f"Left out: {len(self.excluded):,} groups: {', '.join(named)}.")
        return lines + [f"Left out: {count:,} {why}." for why, count in (self.dropped or {}).items()]


def begun(state: Path, how: opt.Monitoring) -> Monitor:
    """The monitor of a file, whose settings may be repeated but not changed; or a new one."""
    target = files.target("state", state)
    given = {name: value for name, value in asdict(how).items() if name in _SETTINGS and value is not None}
    if not os.path.lexists(target):
        return Monitor(**given)
    try:
        kept = Monitor.load(target)
    except InputError as error:
        here = "The first file is where the monitor is kept from look to look; data come after it."
        remedy = error.remedy.replace("Give what save() wrote.", here)
        raise InputError(f"state={str(state)!r}", error.problem, remedy) from error
    for name, value in given.items():
        before = getattr(kept, name)
        if before != value:
            shown = "without" if before is None else f"with {name}={before}"
            raise InputError(f"{name}={value}", f"{str(state)!r} was begun {shown}", "Leave it out, or begin another.")
    return kept


def looked(kept: Monitor, watched: opt.Watched, measured: opt.WatchedMetric, *, final: bool) -> Looked:
    """A look at all data so far; rows are not read where there is a decision."""
    table, given = is_table(watched), any(value is not None for value in asdict(measured).values())
    metric = None if table else metric_of_rows(measured)
    if kept.decision.finished:
        return Looked(kept, kept.decision, taken=False)
    how: dict[str, Any] = {"missing": watched.missing, "new": watched.new, "final": final}
    if metric is None:
        if watched.min_size is not None:
            raise InputError("--min-size", "goes with rows", "Leave it out, or leave small groups out of the table.")
        return Looked(kept, kept.update(table_of(watched, measured=given), **how))
    from faultlines.metrics.measure import measure

    by = [attribute(word) for word in watched.by]
    for word, one in zip(watched.by, by, strict=True):
        if getattr(one, "quantiles", None) is not None:
            problem = "quantiles move while data come in, and groups with them"
            raise InputError(f"by={word!r}", problem, "Cut in steps of a width, as in age:5.")
    found = measure(watched.files, by, metric, min_size=watched.min_size)
    return Looked(kept, kept.update(found.estimates, **how), found.excluded, found.dropped)


def written(found: Looked, targets: Targets, state: Path) -> None:
    """JSON and page, then the state: a run that fails before its end has not looked."""
    plain = found.decision.to_dict()
    plain["excluded"] = [{"label": name_of(one.label), "reason": one.reason} for one in found.excluded]
    plain["dropped"] = dict(found.dropped or {})
    targets.write_json(dumped(plain))
    if targets.report is not None:
        from faultlines.show.monitored import monitor_page

        page = monitor_page(found.decision, title=targets.title, command=command_line(), left_out=found.left_out)
        files.write("report", targets.report, page)
    if found.taken:
        found.monitor.save(state)
