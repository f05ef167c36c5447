"""Some groups in few words, the largest first: as a sentence about them names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultlines import formats
from faultlines.estimates.labels import Names, naming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.results.rules import Box, Population

_SEARCHED = 20_000  # groups of several attributes up to which those that go together are named together


class GroupText(NamedTuple):
    """Groups in words.

    Attributes:
        text: The words.
        is_complete: Whether all of the groups are named.
        is_one: Whether it is one condition or list of names, and not several with semicolons between them.
    """

    text: str
    is_complete: bool
    is_one: bool = True


def name_groups(population: Population, places: IntArray, room: int) -> GroupText:
    """Groups by name, the largest first, in about so many characters; those that are not named are counted.

    Groups of several attributes are named by them, and groups that share values together: ``race Black, sex men, age
    40–49 or 60+; race Other, sex women, age 20–29; … +5``. Groups that were left out are not spoken of.

    Args:
        population: All groups.
        places: Which of them.
        room: How long the text may become; one name is always there.
    """
    ordered = places if population.sizes is None else places[np.argsort(-population.sizes[places], kind="stable")]
    if len(population.keys) > _SEARCHED or (isinstance(population.keys, Names) and not _is_range(population, places)):
        keys = population.keys
        names, named = formats.list_members(
            [keys[i] for i in ordered.tolist()], naming([column.name for column in population.columns]), room
        )
        return GroupText(names, named == ordered.size)
    return _name_together(population, ordered, room)


def _is_range(population: Population, places: IntArray) -> bool:
    """Whether groups by one attribute read as one or two ranges of it."""
    column = population.columns[0]
    inside = np.zeros(len(column.values), dtype=bool)
    inside[column.codes[places]] = True
    return column.is_ordered and len(column.runs(inside)) <= 2 and len(places) > 1


def _name_together(population: Population, places: IntArray, room: int) -> GroupText:
    """Boxes around the largest groups that are left, until the room is used."""
    left = np.zeros(len(population.keys), dtype=bool)
    left[places] = True
    texts: list[str] = []
    used = 0
    for place in places.tolist():
        if not left[place]:
            continue
        box, inside = _around(population, place, left)
        words = _words(population, box)
        if not texts and len(words) > room:  # one group by its name rather than a part of a long list
            inside = np.arange(left.size) == place
            words = _words(population, [np.arange(len(c.values)) == c.codes[place] for c in population.columns])
        rest = int(left.sum() - inside.sum())
        if texts and used + len(words) + (len(f"; … +{rest}") if rest else 0) > room:
            return GroupText(f"{'; '.join(texts)}; … +{formats.count(left.sum())}", False, False)
        texts.append(words)
        used += len(words) + 2
        left &= ~inside
    return GroupText("; ".join(texts), True, len(texts) == 1)


def _words(population: Population, box: Sequence[BoolArray]) -> str:
    """The conditions of a box."""
    named = zip(population.columns, box, strict=True)
    texts = [column.words(allowed) for column, allowed in named if not allowed.all()]
    return ", ".join(texts) or f"all {formats.count(len(population.keys))} groups"


def _around(population: Population, place: int, left: BoolArray) -> tuple[Box, BoolArray]:
    """A box around one group that holds no others than those that are left, as many people as it can; and these.

    One attribute at a time, all values are added with which it still holds only such groups.
    """
    columns, weight = population.columns, population.sizes
    box = [np.arange(len(column.values)) == column.codes[place] for column in columns]
    while True:
        best, gained, wider = -1, 0.0, box[0]
        for i, column in enumerate(columns):
            elsewhere = np.ones(left.size, dtype=bool)
            for j, other in enumerate(columns):
                if j != i:
                    elsewhere &= box[j][other.codes]
            count = len(column.values)
            wrong = np.bincount(column.codes[elsewhere & ~left], minlength=count) > 0
            right = elsewhere & left
            free = (np.bincount(column.codes[right], minlength=count) > 0) & ~wrong & ~box[i]
            added = right & free[column.codes]
            gain = float(added.sum() if weight is None else weight[added].sum() + added.sum() * 1e-9)
            if gain > gained:
                best, gained, wider = i, gain, box[i] | free
        if best < 0:
            inside = np.ones(left.size, dtype=bool)
            for allowed, column in zip(box, columns, strict=True):
                inside &= allowed[column.codes]
            return tuple(box), inside
        box[best] = wider
