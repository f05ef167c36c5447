"""Data that are rows, or a table with one row per group: as the options of a command say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultlines.errors import InputError

if TYPE_CHECKING:
    from faultlines.cli.options import Experiments, Fresh, Watched
    from faultlines.estimates.estimates import Estimates


def is_table(given: Experiments | Fresh | Watched) -> bool:
    """Whether files are a table with one row per group; refused where they can be neither that nor rows."""
    if given.estimate is not None or given.se is not None:
        return True
    if given.n is not None or given.dof is not None:
        raise InputError("--n, --dof", "go with --estimate and --se", "Name these, or leave them out.")
    if "-" in given.files:
        raise InputError("file='-'", "rows are not read from standard input", "Give files.")
    return False


def table_of(given: Fresh | Watched, *, measured: bool) -> Estimates:
    """The estimates of a table; `measured` says whether a metric was asked for, which goes with rows."""
    from faultlines.estimates.estimates import Estimates

    if measured:
        raise InputError("--metric", "is measured in rows, not with --estimate and --se", "Leave it out.")
    if given.estimate is None or given.se is None or not given.by or len(given.files) > 1:
        problem = "a table with one row per group needs --by, --estimate and --se, and is one file"
        raise InputError("--estimate, --se", problem, "Name them.")
    by = given.by[0] if len(given.by) == 1 else given.by
    return Estimates.from_frame(given.files[0], by=by, estimate=given.estimate, se=given.se, n=given.n, dof=given.dof)
