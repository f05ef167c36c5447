"""One table, or one scan of rows, divided into the experiments that are in it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines import checks
from faultlines.comparison.choose import comparison_of
from faultlines.errors import InputError, NoGroupsError, shorten
from faultlines.estimates.estimates import Estimates, Excluded
from faultlines.estimates.labels import keys_of, labels_of, name_of
from faultlines.estimates.tables import checked_attributes, in_columns, read_estimates
from faultlines.metrics.base import Metric
from faultlines.metrics.measure import measurements
from faultlines.result.finding import Groups, groups_of
from faultlines.rows.places import MISSING_VALUE
from faultlines.rows.read import attribute_names, checked_by, read

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import numpy.typing as npt

    from faultlines.estimates.labels import Key
    from faultlines.guarantees.base import Guarantee
    from faultlines.result.finding import By
    from faultlines.rows.request import Grouped

    IntArray = npt.NDArray[np.int64]


class Experiments(NamedTuple):
    """The groups of every experiment; experiments none of whose groups can be used; rows that were not used."""

    groups: dict[str, Groups]
    excluded: tuple[Excluded, ...]
    dropped: Mapping[str, int]


def of_mapping(given: Mapping[str, Any], min_size: float | None, guarantee: Guarantee, tolerance: float) -> Experiments:
    """Experiments that were given as estimates by name."""
    return _collected(given, lambda one: groups_of(one, None, None, min_size, guarantee, tolerance), {})


def of_table(
    frame: object,
    *,
    experiment: str,
    by: Any,
    columns: Mapping[str, Any],
    min_size: float | None,
    guarantee: Guarantee,
    tolerance: float,
) -> Experiments:
    """Experiments of a table with one row per experiment and group.

    Args:
        frame: A frame, or the path of a csv or parquet file.
        experiment: The column that names the experiment.
        by: The columns that name its groups.
        columns: The columns of estimate, se, n and dof, by these names.
        min_size: Leave out smaller groups.
        guarantee: What will be claimed.
        tolerance: Effects at most so far apart are alike.
    """
    attributes = checked_attributes(by)
    _check_column(experiment, attributes)
    table = read_estimates(frame, attributes, **columns, experiment=experiment)
    if not table.keys[0]:
        raise InputError("data", "has no rows", "Give at least one row for each experiment and group.")
    keys = list(zip(*table.keys[1:], strict=True))
    inside = {"theta" if name == "estimate" else name: (name, column) for name, column in columns.items()}
    made: dict[str, Estimates] = {}
    for name, places in _places(table.keys[0]).items():
        numbers = {column: values[places] for column, values in table.numbers.items()}
        labels = labels_of(keys_of([keys[i] for i in places.tolist()]))
        try:
            with in_columns(inside):
                made[name] = Estimates(
                    numbers["estimate"],
                    numbers["se"],
                    labels,
                    numbers.get("n"),
                    numbers.get("dof"),
                    attributes=attributes,
                    measure=columns["estimate"],
                )
        except InputError as error:
            raise InputError(f"experiment {shorten(name)}, {error.parameter}", error.problem, error.remedy) from error
    return of_mapping(made, min_size, guarantee, tolerance)


def of_rows(
    data: object,
    *,
    experiment: str,
    by: By,
    metric: Any,
    min_size: float | None,
    guarantee: Guarantee,
    tolerance: float,
) -> Experiments:
    """Experiments of rows, in one group-by for all of them.

    Every experiment is measured by itself: how far variances are taken to be common is decided among its own groups.

    Args:
        data: A frame, or path, paths or glob of files.
        experiment: The column that says which experiment a row is of.
        by: The groups.
        metric: What to measure.
        min_size: Leave out groups with fewer rows.
        guarantee: What will be claimed.
        tolerance: Effects at most so far apart are alike.
    """
    if not isinstance(metric, Metric):
        remedy = 'Use for example fl.rate("converted") or fl.lift(...).'
        raise InputError(f"metric={shorten(metric)}", "is not a metric", remedy)
    if guarantee.unit is not None:
        problem = "rows of many experiments are not split by unit"
        raise InputError(f"unit={shorten(guarantee.unit)}", problem, "Leave it out: their estimates are split.")
    attributes = checked_by(by)
    names = attribute_names(attributes)
    _check_column(experiment, names)
    least = metric.min_size if min_size is None else checks.size(min_size)
    if metric.overlap != "error":
        problem = "units in several groups are followed in one experiment at a time"
        raise InputError(f"overlap={shorten(metric.overlap)}", problem, "Cluster the experiments one by one.")
    found = read(data, (experiment, *attributes), [metric], None, separate=1)
    grouped = found.grouped[0][0]
    if not len(grouped.keys):
        raise InputError("data", "has no rows", "Give at least one row for each group.")
    parts = {name: _part(grouped, places) for name, places in _places([key[0] for key in grouped.keys]).items()}

    def groups(part: Grouped) -> Groups:
        one = measurements([part], names, metric, least, found.by[1:])[0]
        comparison = comparison_of(one.estimates, tolerance)
        return Groups(comparison, (), one.excluded, one.dropped, one.by, one.readout)

    return _collected(parts, groups, {why: count for why, count in grouped.dropped.items() if count})


def _check_column(experiment: Any, attributes: Sequence[str]) -> None:
    if checks.column("experiment", experiment) in attributes:
        given = f"experiment={shorten(experiment)}"
        raise InputError(given, "names the groups as well", "Name two different columns.")


def _places(names: Sequence[Hashable]) -> dict[str, IntArray]:
    """Where the rows of each experiment are, in the order in which they first occur."""
    found: dict[Hashable, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault((type(name), name), []).append(place)
    made: dict[str, IntArray] = {}
    for (_, name), places in found.items():  # type: ignore[misc]
        read_as = name_of(name)
        if read_as in made:
            raise InputError(f"experiment {shorten(read_as)}", "is the name of several", "Give all names as text.")
        made[read_as] = np.array(places, dtype=np.int64)
    return made


def _part(grouped: Grouped, places: IntArray) -> Grouped:
    """The groups of one experiment, named without it, with its rows that were not used."""
    keys: Sequence[Key] = keys_of([tuple(grouped.keys[i][1:]) for i in places.tolist()])
    rows, lost = (None if one is None else one[places] for one in (grouped.rows, grouped.lost))
    gone = {} if lost is None else {MISSING_VALUE: int(lost.sum())}
    moments = grouped.moments.of_groups(places)
    return replace(grouped, keys=keys, moments=moments, dropped=gone, rows=rows, lost=lost)


def _collected(given: Mapping[str, Any], groups: Callable[[Any], Groups], dropped: Mapping[str, int]) -> Experiments:
    """Groups by experiment; an experiment without any that can be used is left out, with its reason."""
    made: dict[str, Groups] = {}
    left: list[Excluded] = []
    failed: list[NoGroupsError] = []
    for name, one in given.items():
        try:
            made[name] = groups(one)
        except NoGroupsError as error:
            left.append(Excluded(name, error.problem))
            failed.append(error)
    if not made:
        first = failed[0]
        count = f" (and likewise {len(left) - 1} more experiments)" if len(left) > 1 else ""
        raise NoGroupsError(
            f"experiment {shorten(left[0].label)}, {first.parameter}", first.problem + count, first.remedy
        )
    return Experiments(made, tuple(left), dropped)
