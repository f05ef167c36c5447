"""From groups back to rows: every row of a frame gets the value of its group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.checks import column as checked_column
from faultlines.errors import InputError, shorten
from faultlines.rows.bins import Bins
from faultlines.rows.keys import Keys
from faultlines.rows.places import placed
from faultlines.rows.read import attribute_names
from faultlines.sources.columns import Pick, is_time, picked
from faultlines.sources.fetch import fetch, floats, plain_list
from faultlines.sources.frames import Rows, Wanted, check_columns, opened, reported, scan
from faultlines.sources.joining import added, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import narwhals as nw

    from faultlines.estimates.labels import Key
    from faultlines.sources.fetch import FloatArray

    Values = Callable[[Sequence[Key], Sequence[float]], Sequence[float]]


def attach(data: object, by: Sequence[str | Bins], values: Values, column: str, *, whole: bool) -> Any:
    """Give every row a value that depends on its group, in the frame's own type.

    Args:
        data: The frame.
        by: What its groups are.
        values: From the groups that occur and their numbers of rows to a value for each; NaN leaves a row without one.
        column: The name of the new column.
        whole: Whether the values are whole numbers.

    Returns:
        The frame with one more column; the rows of a frame in memory and of a Polars LazyFrame keep their order.

    Raises:
        InputError: If a column is missing, or the new one is there already.
    """
    import narwhals as nw

    frame = opened(data)
    present = frame.collect_schema().names()
    wanted = [
        Wanted(f"by[{i}]" if len(by) > 1 else "by", name, "number" if isinstance(attribute, Bins) else "key")
        for i, (attribute, name) in enumerate(zip(by, attribute_names(by), strict=True))
    ]
    for one in wanted:
        check_columns({one.parameter: one.column}, present)
    if checked_column("column", column).casefold() in {name.casefold() for name in present}:
        raise InputError(f"column={shorten(column)}", "is there already", "Choose another name for the new column.")
    if isinstance(frame, nw.LazyFrame):
        with reported(data):
            return _to_query(frame, by, values, column, whole).to_native()
    with scan(data, wanted) as rows:
        keys = Keys(rows, by)
        fractions = [expression.alias(name) for name, expression in keys.fractions().items()]
        table = fetch(rows.frame.select(*keys.expressions(), *fractions))
        keys.settle(table)
        where = placed(keys, table)
    counts = np.bincount(where.groups, minlength=len(where.keys))
    given = np.array(values(where.keys, counts.tolist()), dtype=float) if len(where.keys) else np.zeros(0)
    return added(frame, given[where.groups] if given.size else np.zeros(0), column, whole=whole)


def _to_query(
    frame: nw.LazyFrame[Any], by: Sequence[str | Bins], values: Values, column: str, whole: bool
) -> nw.LazyFrame[Any]:
    """The same for rows that are elsewhere: groups are counted there, and their values joined there."""
    import narwhals as nw

    schema = frame.collect_schema()
    columns = [Pick(name, f"u{i}") for i, name in enumerate(schema.names())]
    picks = [Pick(name, f"c{i}", as_text=is_time(schema[name])) for i, name in enumerate(attribute_names(by))]
    own = {pick.column: pick.name for pick in picks}
    times = frozenset(pick.name for pick in picks if pick.as_text)
    rows = Rows(picked(frame, [*columns, *picks]), False, own, own, times)
    keys = Keys(rows, by)
    marks = [f"m{i}" for i in range(len(by))]
    back = [*(Pick(pick.name, pick.column) for pick in columns), Pick("value", column)]
    fractions = keys.fractions()
    keyed = rows.frame.with_columns(*keys.expressions(), *(e.alias(name) for name, e in fractions.items()))
    # Null and text cannot be taken for each other: only text has a plus before it.
    texts = [
        nw.when(nw.col(key).is_null())
        .then(nw.lit("-"))
        .otherwise(nw.concat_str(nw.lit("+"), nw.col(key).cast(nw.String)))
        .alias(mark)
        for key, mark in zip(keys.names, marks, strict=True)
    ]
    marked = keyed.with_columns(*texts)
    largest = [nw.col(name).max().alias(name) for name in fractions]
    found = fetch(marked.group_by(*marks, *keys.names).agg(nw.len().alias("rows"), *largest))
    keys.settle(found)
    if not len(found["rows"]):
        empty = nw.lit(None).cast(nw.Int64 if whole else nw.Float64).alias("value")
        return picked(marked.with_columns(empty), back)
    where = placed(keys, found)
    counts = np.bincount(where.groups, floats(found["rows"]), minlength=len(where.keys))
    given: FloatArray = np.array(values(where.keys, counts.tolist()), dtype=float)
    listed = {mark: [str(text) for text in plain_list(found[mark])] for mark in marks}
    return picked(joined(marked, listed, given[where.groups], "value", whole=whole), back)
