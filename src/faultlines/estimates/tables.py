"""Tables of estimates: one row per group, or per experiment and group."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultlines.engines.tables import read_table
from faultlines.errors import InputError, shorten
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import keys_of, labels_of, name_of, part_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from typing import Any

    from faultlines.estimates.estimates import IntArray

# What a number is called where estimates are checked → the parameter that names its column.
_NAMES = {"theta": "estimate", "se": "se", "n": "n", "dof": "dof"}


class EstimateColumns(NamedTuple):
    """The columns of a table of estimates.

    Attributes:
        estimate: The column of estimates.
        se: The column of standard errors.
        n: The column of group sizes, if there is one.
        dof: The column of degrees of freedom, if there is one.
    """

    estimate: str
    se: str
    n: str | None = None
    dof: str | None = None


def checked_attributes(by: Any) -> tuple[str, ...]:
    """The columns that name the groups of a table."""
    if not isinstance(by, str | list | tuple) or not by:
        raise InputError.empty("by", "names no column", "Name the column that holds the groups.", by)
    attributes = (by,) if isinstance(by, str) else tuple(by)
    for column in attributes:
        if not isinstance(column, str):
            raise InputError.wrong_type("by", "is not the name of a column", "Give its name as text.", column)
    if len(set(attributes)) < len(attributes):
        raise InputError.duplicate("by", "names a column twice", "Name each column once.", list(attributes))
    return attributes


@contextmanager
def in_columns(named: Mapping[str, tuple[str, str | None]]) -> Iterator[None]:
    """Report errors about numbers by the parameter that names their column, and the column.

    Args:
        named: What a number is called inside → the parameter that named its column, and the column.
    """
    try:
        yield
    except InputError as error:
        if error.parameter not in named:
            raise
        parameter, column = named[error.parameter]
        place = error.place if column is None else f"(column {shorten(column)}) {error.place}".rstrip()
        raise error.changed(parameter=parameter, place=place) from error


def read_estimates(
    frame: object, by: str | Sequence[str], columns: EstimateColumns, *, metric: str = "effect"
) -> Estimates:
    """The estimates of a table with one row per group.

    Args:
        frame: As for `Estimates.from_frame`.
        by: The column, or the columns, that name the groups.
        columns: The columns of numbers.
        metric: What was measured.

    Returns:
        The estimates, in the order of the rows.

    Raises:
        InputError: If a column is missing, is not numeric, or a group occurs twice.
    """
    attributes = checked_attributes(by)
    keys, numbers = _read(frame, attributes, columns, None)
    return _estimates(keys, numbers, np.arange(len(keys)), attributes, columns, metric)


def read_experiments(
    frame: object, by: str | Sequence[str], columns: EstimateColumns, *, experiment: str
) -> dict[str, Estimates]:
    """The estimates of a table with one row per experiment and group, by experiment.

    Args:
        frame: As for `Estimates.from_frame`.
        by: The column, or the columns, that name the groups.
        columns: The columns of numbers.
        experiment: The column that says which experiment a row is of.

    Returns:
        Experiment → its estimates, in the order in which experiments first occur.

    Raises:
        InputError: As for `read_estimates`, or if there are no rows.
    """
    attributes = checked_attributes(by)
    keys, numbers = _read(frame, attributes, columns, experiment)
    if not keys:
        raise InputError.empty("data", "has no rows", "Give at least one row for each experiment and group.")
    rows = rows_by_experiment([key[0] for key in keys])
    groups = [key[1:] for key in keys]
    by_experiment = {}
    for name, places in rows.items():
        try:
            by_experiment[name] = _estimates(groups, numbers, places, attributes, columns, columns.estimate)
        except InputError as error:
            raise error.within(f"experiment {shorten(name)}") from error
    return by_experiment


def rows_by_experiment(names: Sequence[Hashable]) -> dict[str, IntArray]:
    """Where the rows of each experiment are, in the order in which they first occur."""
    typed: dict[Hashable, list[int]] = {}
    for place, name in enumerate(names):
        typed.setdefault((type(name), name), []).append(place)
    rows: dict[str, IntArray] = {}
    for (_, name), places in typed.items():  # type: ignore[misc]
        read_as = name_of(name)
        if read_as in rows:
            raise InputError.ambiguous("experiment", "is the name of several", "Give all names as text.", read_as)
        rows[read_as] = np.array(places, dtype=np.int64)
    return rows


def _read(
    frame: object, attributes: Sequence[str], columns: EstimateColumns, experiment: str | None
) -> tuple[list[tuple[Hashable, ...]], Mapping[str, Any]]:
    """Keys of the rows, that of the experiment first, and the columns of numbers by parameter."""
    keys = {} if experiment is None else {"experiment": experiment}
    keys |= {f"by[{i}]" if len(attributes) > 1 else "by": column for i, column in enumerate(attributes)}
    numbers: dict[str, str] = {"estimate": columns.estimate, "se": columns.se}
    numbers |= {name: column for name, column in (("n", columns.n), ("dof", columns.dof)) if column is not None}
    table = read_table(frame, keys=keys, numbers=numbers)
    parts = [[part_of(value) for value in column] for column in table.keys]
    return list(zip(*parts, strict=True)), table.numbers


def _estimates(
    keys: Sequence[tuple[Hashable, ...]],
    numbers: Mapping[str, Any],
    rows: Any,
    attributes: Sequence[str],
    columns: EstimateColumns,
    metric: str,
) -> Estimates:
    labels = labels_of(keys_of([keys[row] for row in rows.tolist()]))
    n, dof = (None if name not in numbers else numbers[name][rows] for name in ("n", "dof"))
    named = {inside: (name, getattr(columns, name)) for inside, name in _NAMES.items()}
    with in_columns(named):
        return Estimates(
            numbers["estimate"][rows], numbers["se"][rows], labels, n, dof, attributes=attributes, metric=metric
        )
