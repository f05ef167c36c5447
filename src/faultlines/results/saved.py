"""What a saved result says about its groups, so that others can be told to belong to them: to plain data and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.errors import InputError
from faultlines.estimates.labels import Range
from faultlines.rows.keys import Bins

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from faultlines.estimates.labels import Key


def plain_by(by: Sequence[str | Bins]) -> list[str | dict[str, Any]]:
    """What the groups are, as JSON can hold it."""
    return [
        {name: value for name, value in asdict(one).items() if value is not None} if isinstance(one, Bins) else one
        for one in by
    ]


def by_of(plain: Any) -> tuple[str | Bins, ...]:
    """The way back."""
    made = []
    for one in plain if isinstance(plain, list) else [None]:
        if not isinstance(one, str | Mapping):
            raise InputError.missing(
                "by", "does not say what the groups are", "Give {by} yourself.", plain, settings={"by": ...}
            )
        try:
            made.append(Bins(**one) if isinstance(one, Mapping) else one)
        except TypeError as error:
            raise InputError.missing(
                "by", "does not say how to cut", "Give {by} yourself.", plain, settings={"by": ...}
            ) from error
    return tuple(made)


def plain_attributes(
    attributes: Sequence[str], columns: Sequence[str], keys: Sequence[Key]
) -> list[dict[str, str | dict[str, Any]]]:
    """The attributes of the groups: the column of the table that holds each, and what the names of ranges mean."""
    made: list[dict[str, str | dict[str, Any]]] = []
    for i, (name, column) in enumerate(zip(attributes, columns, strict=True)):
        ranges = {str(key[i]): _plain(key[i]) for key in keys if isinstance(key[i], Range)}
        made.append({"name": name, "column": column} | ({"ranges": ranges} if ranges else {}))
    return made


def _plain(part: Any) -> dict[str, Any]:
    ends = {"lower": part.lower, "upper": part.upper}
    return {end: value if np.isfinite(value) else None for end, value in ends.items()} | {"whole": part.whole}


def keys_of_rows(rows: Sequence[Mapping[str, Any]], attributes: Any) -> list[Key]:
    """The keys of groups from the rows of a table and its attributes; raises KeyError or TypeError where they lack."""
    named = [(one["column"], one.get("ranges", {})) for one in attributes]
    return [tuple(_part(row[column], ranges) for column, ranges in named) for row in rows]


def _part(value: Hashable, ranges: Mapping[str, Any]) -> Hashable:
    known = ranges.get(value) if isinstance(value, str) else None
    if known is None:
        return value
    lower = -np.inf if known["lower"] is None else float(known["lower"])
    upper = np.inf if known["upper"] is None else float(known["upper"])
    return Range(lower, upper, bool(known["whole"]))
