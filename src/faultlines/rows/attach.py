"""From groups back to rows: every row of a frame gets the value of its group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.checks import column as checked_column
from faultlines.engines.frames import (
    ColumnUse,
    Rows,
    check_uses,
    engine_of,
    fetch,
    index_names,
    join_values,
    open_frame,
    report_errors,
    scan,
    select_columns,
)
from faultlines.engines.protocol import Selection, is_time, to_floats, to_list
from faultlines.engines.readers import are_paths
from faultlines.errors import InputError
from faultlines.estimates.labels import Key
from faultlines.rows.keys import Bins, Keys, place_groups
from faultlines.rows.read import attribute_names, list_uses

if TYPE_CHECKING:
    import narwhals as nw


Values = Callable[[Sequence[Key], Sequence[float]], Sequence[float]]


def attach(
    data: object,
    by: Sequence[str | Bins],
    values: Values,
    column: str,
    *,
    integer: bool = False,
    label: str | None = None,
) -> Any:
    """Give every row a value that depends on its group, in the frame's own type.

    Args:
        data: The frame.
        by: What its groups are.
        values: From the groups that occur and their numbers of rows to a value for each; NaN leaves a row without one.
        column: The name of the new column.
        integer: Whether the values are whole numbers.
        label: A further column that divides the groups; its value is then the last part of their keys.

    Returns:
        The frame with one more column; the rows of a frame in memory and of a Polars LazyFrame keep their order.

    Raises:
        InputError: If a column is missing, or the new one is there already.
    """
    import narwhals as nw

    if are_paths(data):
        problem = "is not a frame but names files, to which no column can be added"
        raise InputError.wrong_type("frame", problem, "Open them, for example with duckdb.read_parquet(…).", data)
    frame = open_frame(data)
    present = frame.collect_schema().names()
    uses = list_uses(tuple(by), [], None)
    uses += [] if label is None else [ColumnUse("label", checked_column("label", label))]
    check_uses(uses, present, index_names(frame))
    if checked_column("column", column).casefold() in {name.casefold() for name in present}:
        raise InputError.duplicate("column", "is there already", "Choose another name for the new column.", column)
    attributes = (*by, *([] if label is None else [label]))
    if isinstance(frame, nw.LazyFrame):
        with report_errors(data, frame):
            return _attach_to_query(frame, attributes, values, column, integer=integer).to_native()
    with scan(data, uses) as rows:
        keys = Keys(rows, attributes)
        fractions = [expression.alias(name) for name, expression in keys.fractions().items()]
        table = fetch(rows.frame.select(*keys.expressions(), *fractions))
        keys.record_fractions(table)
        places = place_groups(keys, table)
    counts = np.bincount(places.groups, minlength=len(places.keys))
    group_values = np.array(values(places.keys, counts.tolist()) if len(places.keys) else [], dtype=float)
    return engine_of(frame).append_column(frame, group_values[places.groups], column, integer=integer)


def _attach_to_query(
    frame: nw.LazyFrame[Any], by: Sequence[str | Bins], values: Values, column: str, *, integer: bool
) -> nw.LazyFrame[Any]:
    """The same for rows that are elsewhere: groups are counted there, and their values joined there."""
    import narwhals as nw

    schema = frame.collect_schema()
    types = dict(zip(schema.names(), engine_of(frame).type_names(frame.to_native()), strict=True))
    columns = [Selection(name, f"u{i}") for i, name in enumerate(schema.names())]
    attributes = [
        Selection(name, f"c{i}", is_time(schema[name], types[name])) for i, name in enumerate(attribute_names(by))
    ]
    names = {attribute.column: attribute.name for attribute in attributes}
    times = frozenset(attribute.name for attribute in attributes if attribute.as_text)
    rows = Rows(select_columns(frame, [*columns, *attributes]), False, names, names, times)
    keys = Keys(rows, by)
    result = [*(Selection(selection.name, selection.column) for selection in columns), Selection("value", column)]
    fractions = keys.fractions()
    expressions = [*keys.expressions(), *(expression.alias(name) for name, expression in fractions.items())]
    marks = [f"m{i}" for i in range(len(keys.names))]
    marked = _mark_keys(rows.frame.with_columns(*expressions), keys.names, marks)
    largest = [nw.col(name).max().alias(name) for name in fractions]
    table = fetch(marked.group_by(*marks, *keys.names).agg(nw.len().alias("rows"), *largest))
    keys.record_fractions(table)
    if not len(table["rows"]):
        empty = nw.lit(None).cast(nw.Int64 if integer else nw.Float64).alias("value")
        return select_columns(marked.with_columns(empty), result)
    places = place_groups(keys, table)
    counts = np.bincount(places.groups, to_floats(table["rows"]), minlength=len(places.keys))
    group_values = np.array(values(places.keys, counts.tolist()), dtype=float)
    texts = {mark: [str(text) for text in to_list(table[mark])] for mark in marks}
    return select_columns(join_values(marked, texts, group_values[places.groups], "value", integer=integer), result)


def _mark_keys(frame: nw.LazyFrame[Any], keys: Sequence[str], marks: Sequence[str]) -> nw.LazyFrame[Any]:
    """Add the text of every key, by which a query joins; null and text cannot be taken for each other."""
    import narwhals as nw

    return frame.with_columns(
        nw.when(nw.col(key).is_null())
        .then(nw.lit("-"))  # only text has a plus before it
        .otherwise(nw.concat_str(nw.lit("+"), nw.col(key).cast(nw.String)))
        .alias(mark)
        for key, mark in zip(keys, marks, strict=True)
    )
