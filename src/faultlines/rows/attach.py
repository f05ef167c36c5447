"""From groups back to rows: every row of a frame gets the value of its group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.checks import column as checked_column
from faultlines.errors import InputError, shorten
from faultlines.rows.inputs import cleaned
from faultlines.rows.keys import Keys
from faultlines.rows.places import Placed, placed
from faultlines.rows.read import attribute_names, wanted_columns
from faultlines.rows.request import Input
from faultlines.sources.columns import Pick, is_time, picked
from faultlines.sources.fetch import fetch, floats, plain_list
from faultlines.sources.frames import Rows, Wanted, check_columns, index_names, opened, reported, scan
from faultlines.sources.joining import added, joined
from faultlines.sources.paths import are_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import narwhals as nw

    from faultlines.estimates.labels import Key
    from faultlines.rows.bins import Bins
    from faultlines.sources.fetch import Column, FloatArray

    Values = Callable[[Sequence[Key], Sequence[float]], Sequence[float]]


def attach(
    data: object,
    by: Sequence[str | Bins],
    values: Values,
    column: str,
    *,
    whole: bool = False,
    label: str | None = None,
    score: str | None = None,
) -> Any:
    """Give every row a value that depends on its group, in the frame's own type.

    Args:
        data: The frame.
        by: What its groups are.
        values: From the groups that occur and their numbers of rows to a value for each; NaN leaves a row without one.
        column: The name of the new column.
        whole: Whether the values are whole numbers.
        label: A further column that divides the groups; its value is then the last part of their keys.
        score: A column of numbers: a row then gets 1 if its number reaches the value of its group, and 0 if not.

    Returns:
        The frame with one more column; the rows of a frame in memory and of a Polars LazyFrame keep their order.

    Raises:
        InputError: If a column is missing, or the new one is there already.
    """
    import narwhals as nw

    if are_paths(data):
        problem = "is not a frame but names files, to which no column can be added"
        raise InputError(f"frame={shorten(data)}", problem, "Open them, for example with duckdb.read_parquet(…).")
    frame = opened(data)
    present = frame.collect_schema().names()
    wanted = wanted_columns(tuple(by), [], None)
    wanted += [] if label is None else [Wanted("label", checked_column("label", label))]
    wanted += [] if score is None else [Wanted("score", score, "number")]
    for one in wanted:
        check_columns({one.parameter: one.column}, present, index_names(frame))
    if checked_column("column", column).casefold() in {name.casefold() for name in present}:
        raise InputError(f"column={shorten(column)}", "is there already", "Choose another name for the new column.")
    keyed = (*by, *([] if label is None else [label]))
    if isinstance(frame, nw.LazyFrame):
        with reported(data):
            return _to_query(frame, keyed, values, column, whole, score).to_native()
    with scan(data, wanted) as rows:
        keys = Keys(rows, keyed)
        numbers = [] if score is None else [_number(rows, score).alias("score")]
        fractions = [expression.alias(name) for name, expression in keys.fractions().items()]
        table = fetch(rows.frame.select(*keys.expressions(), *fractions, *numbers))
        keys.settle(table)
        where = placed(keys, table)
    counts = np.bincount(where.groups, minlength=len(where.keys))
    given = np.array(values(where.keys, counts.tolist()), dtype=float) if len(where.keys) else np.zeros(0)
    each = given[where.groups] if given.size else np.zeros(0)
    if score is None:
        return added(frame, each, column, whole=whole)
    reached = floats(table["score"])
    return added(frame, np.where(np.isnan(reached), np.nan, reached >= each), column, whole=True)


def _number(rows: Rows, score: str) -> Any:
    """A column of numbers as doubles, null where there is none."""
    return cleaned(rows, Input(score, parameter="score"), "score").value


def _to_query(
    frame: nw.LazyFrame[Any], by: Sequence[str | Bins], values: Values, column: str, whole: bool, score: str | None
) -> nw.LazyFrame[Any]:
    """The same for rows that are elsewhere: groups are counted there, and their values joined there."""
    import narwhals as nw

    schema = frame.collect_schema()
    columns = [Pick(name, f"u{i}") for i, name in enumerate(schema.names())]
    picks = [Pick(name, f"c{i}", as_text=is_time(schema[name])) for i, name in enumerate(attribute_names(by))]
    numbers = [] if score is None else [Pick(score, "s")]
    own = {pick.column: pick.name for pick in picks}
    times = frozenset(pick.name for pick in picks if pick.as_text)
    rows = Rows(
        picked(frame, [*columns, *picks, *numbers]),
        False,
        own,
        own | {pick.column: pick.name for pick in numbers},
        times,
    )
    keys = Keys(rows, by)
    back = [*(Pick(pick.name, pick.column) for pick in columns), Pick("value", column)]
    fractions = keys.fractions()
    marked = with_marks(rows.frame.with_columns(*keys.expressions(), *(e.alias(n) for n, e in fractions.items())), keys)
    found = fetch_groups(marked, keys, [nw.len().alias("rows")])
    if not len(found["rows"]):
        empty = nw.lit(None).cast(nw.Int64 if whole or score is not None else nw.Float64).alias("value")
        return picked(marked.with_columns(empty), back)
    where = placed(keys, found)
    counts = np.bincount(where.groups, floats(found["rows"]), minlength=len(where.keys))
    given: FloatArray = np.array(values(where.keys, counts.tolist()), dtype=float)
    valued = with_values(marked, keys, found, where, given, whole=whole)
    if score is not None:
        number = _number(rows, score)
        reached = nw.when(number >= nw.col("value")).then(nw.lit(1)).otherwise(nw.lit(0)).cast(nw.Int64)
        valued = valued.with_columns(nw.when(~number.is_null()).then(reached).alias("value"))
    return picked(valued, back)


# ----------------------------------------------------------------------------------------- values by group in a query


def with_marks(frame: nw.LazyFrame[Any], keys: Keys) -> nw.LazyFrame[Any]:
    """With the text of every key, by which a query joins; null and text cannot be taken for each other."""
    import narwhals as nw

    return frame.with_columns(
        nw.when(nw.col(key).is_null())
        .then(nw.lit("-"))  # only text has a plus before it
        .otherwise(nw.concat_str(nw.lit("+"), nw.col(key).cast(nw.String)))
        .alias(mark)
        for key, mark in zip(keys.names, _marks(keys), strict=True)
    )


def fetch_groups(marked: nw.LazyFrame[Any], keys: Keys, aggregates: Sequence[Any]) -> dict[str, Column]:
    """The groups that occur, with their marks and what is aggregated over the rows of each."""
    import narwhals as nw

    largest = [nw.col(name).max().alias(name) for name in keys.fractions()]
    found = fetch(marked.group_by(*_marks(keys), *keys.names).agg(*aggregates, *largest))
    keys.settle(found)
    return found


def with_values(
    marked: nw.LazyFrame[Any],
    keys: Keys,
    found: Mapping[str, Column],
    where: Placed,
    values: FloatArray,
    *,
    whole: bool,
) -> nw.LazyFrame[Any]:
    """The rows with the value of their group as a further column ``value``.

    Args:
        marked: The rows, with marks.
        keys: Their keys.
        found: The groups that occur; see `fetch_groups`.
        where: The places of those groups.
        values: A value for each place; NaN for none.
        whole: Whether they are whole numbers.
    """
    listed = {mark: [str(text) for text in plain_list(found[mark])] for mark in _marks(keys)}
    return joined(marked, listed, values[where.groups], "value", whole=whole)


def _marks(keys: Keys) -> list[str]:
    return [f"m{i}" for i in range(len(keys.names))]
