"""Margins of crossed attributes: which there are, which of them are the same, and which attribute refines which.

A margin is a partition of the K cells by the levels of some attributes: by type, by country × device, and so on. Cells
themselves are the finest margin. Nothing here looks at an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faultlines.estimates.estimates import IntArray

MOST_ATTRIBUTES = 3  # in one margin beside the full crossing: four-way patterns are cells in practice
LIMIT = 60  # margins: six attributes have 42, seven 64; each further one costs the others a little power
_SINGLE_ATTRIBUTES = 0.5  # of the significance level: DESIGN.md, section 2.1
_BETWEEN = 0.25  # of it, for margins of two or more attributes that are not the cells
_CELLS = 0.25  # of it, so that one deviating cell stays within .05 of the power that a test of cells alone has


@dataclass(frozen=True, slots=True, eq=False)
class Margin:
    """The cells by the levels of some attributes.

    Attributes:
        attributes: Places of the attributes, in rising order.
        codes: The level of each of the K cells, numbered from 0 in the order of their first cells.
        levels: How many levels there are.
        share: Of the significance level; the shares of all margins add up to 1.
    """

    attributes: tuple[int, ...]
    codes: IntArray
    levels: int
    share: float

    @property
    def is_cells(self) -> bool:
        """Whether every cell is a level of its own."""
        return self.levels == self.codes.size


def margins_of(codes: IntArray, most_attributes: int = MOST_ATTRIBUTES, limit: int = LIMIT) -> tuple[Margin, ...]:
    """All margins of up to so many attributes, and the cells, each partition once.

    Equal partitions (region × state is state where states lie in regions) are listed under their shortest name.
    Attributes with a single level have no margin. Where there would be more than `limit` margins, all single
    attributes and the cells stay, then pairs, then triples, those with the fewest possible levels first.

    Half of the significance level goes to single attributes, a quarter to the cells and a quarter to what is between;
    parts that are empty leave theirs to the others.

    Args:
        codes: The level of each attribute, as whole numbers, (K, A).
        most_attributes: Of a margin that is not the cells.
        limit: How many margins at most; single attributes and the cells are not counted out.

    Returns:
        The margins: single attributes, pairs, triples, each in the order of the attributes; the cells last.

    Example:
        >>> codes = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1]])
        >>> [(margin.attributes, margin.levels, margin.share) for margin in margins_of(codes)]
        [((0,), 3, 0.25), ((1,), 2, 0.25), ((0, 1), 6, 0.5)]
    """
    cells, count = codes.shape
    columns = [number_levels(codes[:, a]) for a in range(count)]
    sizes = [int(column.max(initial=-1)) + 1 for column in columns]
    everyone = np.arange(cells, dtype=np.int64)
    partitions: dict[bytes, tuple[tuple[int, ...], IntArray]] = {}
    for chosen in _candidates(sizes, min(most_attributes, count)):
        if len(chosen) > 1 and len(partitions) >= limit - 1:
            break
        partition = cross_levels([columns[a] for a in chosen])
        partitions.setdefault(partition.tobytes(), (chosen, partition))
    if cells > 1:
        partitions.setdefault(everyone.tobytes(), (tuple(range(count)), everyone))
    ranked = sorted(partitions.values(), key=lambda named: (named[1].max() + 1 == cells, len(named[0]), named[0]))
    return _share_out(ranked)


def _candidates(sizes: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Sets of attributes with more than one level: by their size, then by how many levels they can have."""
    varying = [a for a, size in enumerate(sizes) if size > 1]
    for size in range(1, most + 1):
        yield from sorted(
            combinations(varying, size), key=lambda chosen: (float(np.prod([float(sizes[a]) for a in chosen])), chosen)
        )


def _share_out(partitions: Sequence[tuple[tuple[int, ...], IntArray]]) -> tuple[Margin, ...]:
    """Margins with their shares of the significance level."""

    def kind(chosen: tuple[int, ...], partition: IntArray) -> int:
        """Number of attributes; 0 for cells that more than one attribute makes."""
        return 0 if len(chosen) > 1 and int(partition.max()) + 1 == partition.size else len(chosen)

    kinds = [kind(*named) for named in partitions]
    counts = {each: kinds.count(each) for each in dict.fromkeys(kinds)}
    between = [each for each in counts if each > 1]
    parts = {each: _BETWEEN / len(between) for each in between} | ({0: _CELLS} if 0 in counts else {})
    rest = sum(parts.values())
    left = 1 - _SINGLE_ATTRIBUTES if 1 in counts else 1.0
    parts = {each: part * left / rest for each, part in parts.items()}
    if 1 in counts:
        parts[1] = _SINGLE_ATTRIBUTES if rest else 1.0
    return tuple(
        Margin(chosen, partition, int(partition.max()) + 1, parts[each] / counts[each])
        for (chosen, partition), each in zip(partitions, kinds, strict=True)
    )


def number_levels(codes: IntArray) -> IntArray:
    """Levels numbered from 0 by their first cells, so that equal partitions are equal arrays."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    return np.asarray(rank[inverse.ravel()], dtype=np.int64)


def cross_levels(columns: Sequence[IntArray]) -> IntArray:
    """The combination of levels that each cell has, numbered from 0 by first cells; columns are numbered from 0."""
    crossed = columns[0]
    for column in columns[1:]:
        crossed = number_levels(crossed * (int(column.max()) + 1) + column)
    return crossed


def refines(finer: IntArray, coarser: IntArray) -> bool:
    """Whether each level of a partition lies within one level of another; both numbered from 0."""
    first = np.zeros(int(finer.max(initial=-1)) + 1, dtype=np.int64)
    first[finer] = coarser
    return bool(np.array_equal(first[finer], coarser))


def nested(codes: IntArray) -> tuple[tuple[int, int], ...]:
    """Pairs (finer, coarser) of attributes where the level of one determines that of the other, and not vice versa.

    Args:
        codes: The level of each attribute, (K, A).

    Returns:
        The pairs, in the order of the finer attribute. Attributes with a single level are in none of them.

    Example:
        >>> nested(np.array([[0, 0], [0, 1], [1, 2], [1, 3]]))  # region, state
        ((1, 0),)
    """
    columns = [number_levels(codes[:, a]) for a in range(codes.shape[1])]
    sizes = [int(column.max(initial=-1)) + 1 for column in columns]
    return tuple(
        (fine, coarse)
        for fine, size in enumerate(sizes)
        for coarse, fewer in enumerate(sizes)
        if 1 < fewer < size and refines(columns[fine], columns[coarse])
    )
