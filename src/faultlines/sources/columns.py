"""Columns of any engine under names of our own, taken by place or quoted, so that no name means anything but itself.

Times become text on the way, in one form on every engine: as keys of groups they must read the same everywhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from faultlines.sources import duck

if TYPE_CHECKING:
    from collections.abc import Sequence

    import narwhals as nw

OURS = "__faultlines_"  # begins the names of columns we add to a user's frame for a while
_TIME = "%Y-%m-%d %H:%M:%S"


class Pick(NamedTuple):
    """One column, the name it gets, and whether a time in it becomes text."""

    column: str
    name: str
    as_text: bool = False


def picked(frame: nw.LazyFrame[Any], picks: Sequence[Pick]) -> nw.LazyFrame[Any]:
    """Columns of a lazy frame under other names.

    Args:
        frame: The frame.
        picks: The columns and their names.
    """
    import narwhals as nw

    native, engine, schema = frame.to_native(), frame.implementation, frame.collect_schema()
    names = schema.names()
    zones = [_zone(schema[pick.column]) if pick.as_text else None for pick in picks]
    made: Any
    if engine.is_polars():
        made = _polars(native, names, picks, zones)
    elif engine.is_duckdb():
        parts = [f"{_duckdb(pick, zone)} AS {duck.quoted(pick.name)}" for pick, zone in zip(picks, zones, strict=True)]
        made = native.project(", ".join(parts))
    elif engine.is_pyspark() or engine.is_pyspark_connect():
        made = _spark(native, names, picks, zones)
    elif engine.is_ibis():
        made = native.select(**{p.name: _ibis(native[p.column], zone) for p, zone in zip(picks, zones, strict=True)})
    else:
        return frame.select(*(nw.col(pick.column).alias(pick.name) for pick in picks))
    found: nw.LazyFrame[Any] = nw.from_native(made).lazy()
    return found


def is_time(dtype: Any) -> bool:
    """Whether a column holds points in time, which become text."""
    return _zone(dtype) is not None


def time_name(text: str) -> str:
    """Such text as people read a time: no empty fraction of a second, and midnight without a zone is a day."""
    head, _, zone = text.partition("+")
    whole, _, fraction = head.partition(".")
    fraction = fraction[:6] + (fraction[6:] if fraction[6:].strip("0") else "")
    if not fraction.strip("0"):
        if not zone and whole.endswith(" 00:00:00"):
            return whole.removesuffix(" 00:00:00")
        return whole + (f"+{zone}" if zone else "")
    return f"{whole}.{fraction}" + (f"+{zone}" if zone else "")


def _zone(dtype: Any) -> str | None:
    """Empty for times without a zone, UTC for those that have one, None for everything else."""
    import narwhals as nw

    if dtype != nw.Datetime:
        return None
    return "" if getattr(dtype, "time_zone", None) is None else "UTC"


# ------------------------------------------------------------------------------------------------------- by each engine


def _polars(native: Any, names: list[str], picks: Sequence[Pick], zones: list[str | None]) -> Any:
    pl = import_module("polars")
    columns = []
    for pick, zone in zip(picks, zones, strict=True):
        column = pl.nth(names.index(pick.column))  # by place: pl.col reads "*" and "^…$" as patterns
        if zone is not None:
            column = column.dt.convert_time_zone("UTC") if zone else column
            column = column.dt.strftime(f"{_TIME}%.9f{'+00:00' if zone else ''}")
        columns.append(column.alias(pick.name))
    return native.select(columns)


def _duckdb(pick: Pick, zone: str | None) -> str:
    column = duck.quoted(pick.column)
    if zone is None:
        return column
    if zone:
        return f"strftime({column} AT TIME ZONE 'UTC', '{_TIME}.%f+00:00')"
    return f"strftime({column}::TIMESTAMP_NS, '{_TIME}.%n')"


def _spark(native: Any, names: list[str], picks: Sequence[Pick], zones: list[str | None]) -> Any:
    functions = import_module("pyspark.sql.functions")
    columns = []
    for pick, zone in zip(picks, zones, strict=True):
        column = functions.col(f"{OURS}{names.index(pick.column)}")
        if zone is not None:  # Spark shows every time in the zone of the session
            column = functions.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSS")
        columns.append(column)
    # By place, on the way in and out: Spark cannot tell names that differ in case only.
    numbered = native.toDF(*(f"{OURS}{i}" for i in range(len(names))))
    return numbered.select(*columns).toDF(*(pick.name for pick in picks))


def _ibis(column: Any, zone: str | None) -> Any:
    if zone is None:
        return column
    if zone:
        return column.cast("timestamp('UTC')").strftime(f"{_TIME}.%f+00:00")
    return column.strftime(f"{_TIME}.%f")
