"""Where fetched rows belong: the groups in a fixed order, control and treatment, and the rows that fell away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.estimates.labels import Names
from faultlines.rows.arms import arm_places
from faultlines.sources.fetch import factorised, floats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from faultlines.estimates.labels import Key
    from faultlines.rows.keys import Keys
    from faultlines.rows.request import Arms
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
    """The arm of every fetched row (0 control, 1 treatment, −1 neither), and the values of the two in the engine."""

    arms: IntArray
    values: tuple[Any, ...]
    missing: npt.NDArray[np.bool_]  # rows without a variant


def compared(table: Mapping[str, Column], arms: Arms | None, rows: int) -> Compared:
    """Arms of fetched rows; all are one arm where nothing is compared."""
    if arms is None or not rows:
        return Compared(np.zeros(rows, dtype=np.int64), (), np.zeros(rows, dtype=bool))
    codes, distinct = factorised(table["arm"])
    known = [place for place, value in enumerate(distinct) if value is not None]
    control, treatment = (known[i] for i in arm_places([distinct[place] for place in known], arms))
    numbers = np.full(len(distinct), -1, dtype=np.int64)
    numbers[control], numbers[treatment] = 0, 1
    absent = np.array([value is None for value in distinct])
    return Compared(numbers[codes], (distinct[control], distinct[treatment]), absent[codes])


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
