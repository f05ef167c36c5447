"""From rows to the moments of several requests: the rows are opened once, and scanned as seldom as can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faultlines.errors import InputError, shorten
from faultlines.progress import working
from faultlines.rows.aggregates import from_aggregates
from faultlines.rows.bins import Bins
from faultlines.rows.inputs import is_label
from faultlines.rows.keys import Keys
from faultlines.rows.query import Query
from faultlines.rows.ranks import ranked
from faultlines.rows.resampled import resampled
from faultlines.sources.frames import Wanted, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.rows.request import Grouped, Request, Split
    from faultlines.sources.frames import Rows


class Read(NamedTuple):
    """For every request, groups and moments of each part of the rows; and the groups as other rows can have them."""

    grouped: list[list[Grouped]]
    by: tuple[str | Bins, ...]


def checked_by(by: str | Bins | Sequence[str | Bins]) -> tuple[str | Bins, ...]:
    """Attributes as they can be used."""
    attributes = (by,) if isinstance(by, str | Bins) else tuple(by) if isinstance(by, list | tuple) else ()
    if not attributes or not all(isinstance(a, Bins) or (isinstance(a, str) and a) for a in attributes):
        raise InputError(
            f"by={shorten(by)}", "names no column", "Name the columns that hold the groups, or fl.bins(...)."
        )
    names = attribute_names(attributes)
    if len(set(names)) < len(names):
        raise InputError(f"by={shorten(list(names))}", "names a column twice", "Name each column once.")
    return attributes


def attribute_names(by: Sequence[str | Bins]) -> tuple[str, ...]:
    """The columns behind attributes."""
    return tuple(a.column if isinstance(a, Bins) else a for a in by)


def read(
    data: object, by: tuple[str | Bins, ...], requests: Sequence[Request], split: Split | None, *, separate: int = 0
) -> Read:
    """Moments of several requests by group.

    Args:
        data: A frame, or path, paths or glob of files.
        by: What the groups are; see `checked_by`.
        requests: What is asked. Those with the same column of variants and the same unit share one scan.
        split: How rows are divided into parts, if they are.
        separate: So many of the first attributes name experiments: a unit may be in several of them.

    Raises:
        InputError: If the rows cannot be read or do not hold what is asked.
    """
    with scan(data, wanted_columns(by, requests, split)) as rows, working("reading rows"):
        keys = Keys(rows, by, separate=separate)
        grouped = _grouped(rows, keys, requests, split)
        return Read(grouped, keys.resolved())


def _grouped(rows: Rows, keys: Keys, requests: Sequence[Request], split: Split | None) -> list[list[Grouped]]:
    found: dict[int, list[Grouped]] = {}
    together: dict[tuple[str | None, str | None], list[int]] = {}
    for i, request in enumerate(requests):
        if request.aggregated is not None:
            found[i] = [from_aggregates(rows, keys, request, request.aggregated)]
        elif request.ranking is not None:
            found[i] = ranked(rows, keys, request, split)
        elif request.resampling is not None:
            found[i] = [resampled(rows, keys, request, request.resampling)]
        else:
            together.setdefault((request.arms.column if request.arms else None, request.unit), []).append(i)
    for places in together.values():
        results = Query(rows, keys, [requests[i] for i in places], split).run()
        found |= dict(zip(places, results, strict=True))
    return [found[i] for i in range(len(requests))]


def wanted_columns(by: tuple[str | Bins, ...], requests: Sequence[Request], split: Split | None) -> list[Wanted]:
    """Every column that is read, with what it is read as."""
    wanted = []
    for i, attribute in enumerate(by):
        parameter = f"by[{i}]" if len(by) > 1 else "by"
        if isinstance(attribute, Bins):
            wanted.append(Wanted(parameter, attribute.column, "number"))
        else:
            wanted.append(Wanted(parameter, attribute))
    for request in requests:
        wanted += _of_request(request)
        if split is not None:
            _check_split(split, request)
    if split is not None:
        wanted.append(Wanted("unit", split.unit))
    return wanted


def _of_request(request: Request) -> list[Wanted]:
    wanted = []
    for role, one in request.inputs.items():
        parameter = one.parameter or role
        if is_label(one):
            wanted.append(Wanted(parameter, one.column))
        else:
            wanted.append(Wanted(parameter, one.column, "binary" if one.kind == "binary" else "number"))
    if request.arms:
        wanted.append(Wanted("variant", request.arms.column))
    if request.unit:
        wanted.append(Wanted("unit", request.unit))
    if request.aggregated:
        wanted += [Wanted(name, column, "number") for name, column in request.aggregated.columns().items()]
    return wanted


def _check_split(split: Split, request: Request) -> None:
    if request.resampling is not None:
        problem = "splits rows, which is not done with a statistic that is resampled"
        raise InputError(f"unit={shorten(split.unit)}", problem, "Leave it out: estimates are split then.")
    if request.aggregated is not None:
        raise InputError(f"unit={shorten(split.unit)}", "needs rows, not aggregates", "Leave it out, or give the rows.")
    if request.unit is not None and split.unit != request.unit:
        raise InputError(
            f"unit={shorten(split.unit)}",
            f"but the metric has the unit {shorten(request.unit)}",
            "Split by the randomised unit: leave unit out of the guarantee.",
        )
