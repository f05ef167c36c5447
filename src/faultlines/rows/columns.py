"""What columns hold, looked up before anything is measured: their type, their range, and their values if few."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from faultlines.engines.frames import ColumnUse, fetch, scan
from faultlines.engines.protocol import factorize, to_floats
from faultlines.rows.keys import finite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faultlines.engines.frames import Rows

_LOOKED_AT = 1_000  # distinct values that are fetched: more are "many" to everyone who asks


class ColumnSummary(NamedTuple):
    """What a column holds.

    Attributes:
        is_number: Whether all of its values are numbers, in csv files as text that reads so.
        values: Its values without missing ones, 1,000 at most.
        low: The smallest finite number; NaN where there is none.
        high: The largest.
    """

    is_number: bool
    values: frozenset[Any]
    low: float
    high: float


def summarize_columns(data: object, columns: Mapping[str, str]) -> dict[str, ColumnSummary]:
    """What some columns of rows hold.

    Args:
        data: A frame, or path, paths or glob of files.
        columns: Column → the parameter that named it.

    Returns:
        Column → what it holds.
    """
    with scan(data, [ColumnUse(parameter, column) for column, parameter in columns.items()]) as rows:
        return {column: _summarize(rows, rows.keys[column]) for column in columns}


def _summarize(rows: Rows, name: str) -> ColumnSummary:
    import narwhals as nw

    dtype = rows.frame.collect_schema()[name]
    if dtype.is_nested():
        return ColumnSummary(False, frozenset(), math.nan, math.nan)
    if dtype.is_numeric():
        value = finite(name, dtype)
        ends = rows.frame.select(value.min().alias("low"), value.max().alias("high"))
        low, high = (float(to_floats(column)[0]) for column in fetch(ends).values())
        distinct = rows.frame.select(value.alias("v")).unique().head(_LOOKED_AT + 1)
        values = {number for number in to_floats(fetch(distinct)["v"]).tolist() if not math.isnan(number)}
        return ColumnSummary(True, frozenset(values), low, high)
    column = nw.col(name) if dtype in (nw.String, nw.Boolean) else nw.col(name).cast(nw.String)
    distinct = rows.frame.select(column.alias("v")).unique().head(_LOOKED_AT + 1)
    values = {value for value in factorize(fetch(distinct)["v"])[1] if value is not None}
    numbers = [_to_number(str(value)) for value in values] if rows.from_text else [None]
    found = [number for number in numbers if number is not None and math.isfinite(number)]
    if numbers and len(found) == len(numbers):
        return ColumnSummary(True, frozenset(found), min(found), max(found))
    return ColumnSummary(False, frozenset(values), math.nan, math.nan)


def _to_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
