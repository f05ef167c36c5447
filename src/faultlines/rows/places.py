"""Where fetched rows belong: the groups in a fixed order, control and treatment, and the rows that fell away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.estimates.labels import Names, part_of
from faultlines.rows.arms import arm_places
from faultlines.rows.request import Together
from faultlines.sources.fetch import factorised, floats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from faultlines.estimates.labels import Key
    from faultlines.rows.keys import Keys
    from faultlines.rows.request import Arms, Grouped
    from faultlines.sources.fetch import Column, FloatArray

    IntArray = npt.NDArray[np.int64]

MISSING_VALUE, OTHER_VARIANTS = "rows with a missing value", "rows of other variants"


class Placed(NamedTuple):
    """The group of every fetched row, and the groups in order."""

    groups: IntArray
    keys: Sequence[Key]


def placed(by: Keys, table: Mapping[str, Column]) -> Placed:
    """Groups of fetched rows by their keys, without a Python object for each row."""
    codes, parts = [], []
    for i, name in enumerate(by.names):
        code, distinct = factorised(table[name])
        labels = by.labels(i, distinct)
        order = by.ordered(labels)
        position = np.empty(len(order), dtype=np.int64)
        position[order] = np.arange(len(order))
        codes.append(position[code] if len(order) else code)
        parts.append([labels[k] for k in order])
    if len(codes) == 1:
        return Placed(codes[0], Names(parts[0]))
    combined, sizes = codes[0], [len(part) for part in parts]
    room = max(sizes[0], 1)
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        if room * max(size, 1) >= 2**62:  # squeeze out combinations that do not occur
            combined = np.unique(combined, return_inverse=True)[1].reshape(-1)
            room = int(combined.max(initial=0)) + 1
        combined, room = combined * max(size, 1) + code, room * max(size, 1)
    _, first, groups = np.unique(combined, return_index=True, return_inverse=True)
    columns = [[part[k] for k in code[first].tolist()] for part, code in zip(parts, codes, strict=True)]
    return Placed(groups.reshape(-1).astype(np.int64), list(zip(*columns, strict=True)))


class Compared(NamedTuple):
    """The arm of every fetched row (0 control, 1 … treatments, −1 none of them), and their values in the engine."""

    arms: IntArray
    values: tuple[Any, ...]
    missing: npt.NDArray[np.bool_]  # rows without a variant

    @property
    def number(self) -> int:
        """How many arms there are."""
        return max(len(self.values), 1)

    @property
    def treatments(self) -> tuple[Any, ...]:
        """The treatments, as parts of labels."""
        return tuple(part_of(value) for value in self.values[1:])


def compared(table: Mapping[str, Column], arms: Arms | None, rows: int) -> Compared:
    """Arms of fetched rows; all are one arm where nothing is compared."""
    if arms is None or not rows:
        values = () if arms is None else (None, None)
        return Compared(np.zeros(rows, dtype=np.int64), values, np.zeros(rows, dtype=bool))
    codes, distinct = factorised(table["arm"])
    known = [place for place, value in enumerate(distinct) if value is not None]
    chosen = [known[i] for i in arm_places([distinct[place] for place in known], arms)]
    numbers = np.full(len(distinct), -1, dtype=np.int64)
    numbers[chosen] = np.arange(len(chosen))
    absent = np.array([value is None for value in distinct])
    return Compared(numbers[codes], tuple(distinct[place] for place in chosen), absent[codes])


def together(
    by: Keys, table: Mapping[str, Column], arms: Arms | None, parts: Sequence[Grouped], variables: int, divided: bool
) -> list[Grouped]:
    """Groups, part by part, with what a fetched table says pairs of them have in common."""
    rows = floats(table["both"])
    mine = {name: table[name] for name in by.names}
    theirs = {name: table[f"o_{name}"] for name in by.names}
    places = [placed(by, side) for side in (mine, theirs)]
    found = compared(table, arms, rows.size)
    cross = np.stack(
        [np.stack([floats(table[f"x{i}_{j}"]) for j in range(variables)], axis=1) for i in range(variables)], axis=1
    )
    made = []
    for grouped, part in zip(parts, in_part(table, len(parts) if divided else 0), strict=True):
        at = {key: place for place, key in enumerate(grouped.keys)}
        first, second = (np.array([at[key] for key in side.keys], dtype=np.int64)[side.groups] for side in places)
        kept = part & (found.arms >= 0)
        common = Together(first[kept], second[kept], found.arms[kept], rows[kept], cross[kept])
        made.append(replace(grouped, together=common))
    return made


def dropped(rows: FloatArray, usable: FloatArray, found: Compared, arms: Arms | None) -> dict[str, int]:
    """How many rows are not used, by reason.

    Args:
        rows: Rows behind every fetched row.
        usable: How many of them have all inputs.
        found: Their arms.
        arms: What is compared.
    """
    usable = np.where(found.missing, 0.0, usable)
    gone = {MISSING_VALUE: int(rows.sum() - usable.sum())}
    if arms is not None:
        gone[OTHER_VARIANTS] = int(usable[(found.arms < 0) & ~found.missing].sum())
    return gone


def in_part(table: Mapping[str, Column], parts: int) -> list[npt.NDArray[np.bool_]]:
    """For each part of the rows, which of the fetched rows belong to it; all, where there are no parts."""
    if not parts:
        return [np.ones(len(next(iter(table.values()))), dtype=bool)]
    number = floats(table["part"])
    return [number == i for i in range(parts)]
