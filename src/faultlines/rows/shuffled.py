"""Moments of groups whose labels are shuffled: what a metric finds in rows where nothing differs.

Every unit (every row, where there are none) gets a random number h once, from a hash. In shuffle r its label follows
from (a·h + b) mod p, with a and b drawn for that shuffle, so labels need no memory and all rows of a unit have the
same. Rows are cleaned, and summed to units, once for all shuffles; each query then takes as many of them as it can.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.rows import places
from faultlines.rows.chance import NUMBER, PRIME, chance, drawn
from faultlines.rows.keys import Keys
from faultlines.rows.query import Query
from faultlines.rows.ranks import ranked
from faultlines.rows.read import wanted_columns
from faultlines.sources.beside import beside
from faultlines.sources.columns import OURS
from faultlines.sources.fetch import fetch, floats
from faultlines.sources.frames import Wanted, scan
from faultlines.sources.kept import kept
from faultlines.sources.numbering import with_hash_number, with_row_number

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    import narwhals as nw

    from faultlines.rows.bins import Bins
    from faultlines.rows.request import Grouped, Moments, Request
    from faultlines.sources.fetch import Column
    from faultlines.sources.frames import Rows

_ROOM = 50_000_000  # rows × shuffles in one query
_LESS_ROOM = 10_000_000  # the same where the engine holds them in memory: windows, sorts, Polars
_SHUFFLE, _LABEL = "shuffle", "label"
_SHUFFLING = 0x5AFE


@dataclass(frozen=True, slots=True)
class Shuffles:
    """How labels are shuffled.

    Args:
        runs: How many times.
        arms: Whether control and treatment are shuffled instead of the groups.
        unit: The column whose rows stay together, where the request has no unit of its own; None for single rows.
        seed: The seed of hash and shuffles.
    """

    runs: int
    arms: bool = False
    unit: str | None = None
    seed: int = 0


@contextmanager
def shuffled(
    data: object, by: tuple[str | Bins, ...], request: Request, relabelled: Request, how: Shuffles
) -> Iterator[Iterator[Moments]]:
    """The moments of a request by group, once for each shuffle.

    Groups are about as large as the real ones: a unit falls into each with the share of the units it has.

    Args:
        data: As for `read`.
        by: What the groups are.
        request: What is asked of the rows.
        relabelled: The same of shuffled rows: where arms are shuffled, control and treatment are 0 and 1.
        how: How labels are shuffled.

    Raises:
        InputError: As for `read`.
    """
    columns = wanted_columns(by, [request], None)
    if how.unit is not None:
        columns.append(Wanted("unit", how.unit))
    with scan(data, columns) as rows, ExitStack() as open_tables:
        made = _Ranking(rows, by, request, how) if request.ranking is not None else _Sums(rows, by, request, how)
        base = open_tables.enter_context(kept(made.base()))
        label = _Arms(base, made.keys, request) if how.arms else _Groups(base, made.keys)
        factor, shift = drawn(how.seed, _SHUFFLING, how.runs)
        tables = {_SHUFFLE: np.arange(how.runs), "factor": factor, "shift": shift}
        draws = open_tables.enter_context(kept(beside(base, tables)))
        lookup = open_tables.enter_context(kept(beside(base, label.lookup))) if label.lookup else None
        yield _moments(made, label, relabelled, base, draws, lookup, how.runs)


def _moments(
    made: _Sums | _Ranking,
    label: _Groups | _Arms,
    relabelled: Request,
    base: nw.LazyFrame[Any],
    draws: nw.LazyFrame[Any],
    lookup: nw.LazyFrame[Any] | None,
    runs: int,
) -> Iterator[Moments]:
    """Moments of one shuffle after the other, of as many in a query as it can take."""
    import narwhals as nw

    is_held = base.implementation.is_polars() or base.implementation.is_ibis() or made.needs_memory
    together = int(np.clip((_LESS_ROOM if is_held else _ROOM) // max(label.rows, 1), 1, runs))
    used = label.usable(base)
    for first in range(0, runs, together):
        some = draws.filter((nw.col(_SHUFFLE) >= first) & (nw.col(_SHUFFLE) < first + together))
        wide = used.join(some, how="cross")
        falls = chance(nw.col("factor"), nw.col("shift"))
        grouped = made.grouped(label.labelled(wide, falls, lookup), label.names, relabelled)
        # Groups are in the order of their keys, and the shuffle comes first.
        numbers = np.array([key[0] for key in grouped.keys], dtype=np.int64)
        for number in range(first, min(first + together, runs)):
            yield grouped.moments.of_groups(np.flatnonzero(numbers == number))


# ------------------------------------------------------------------------------------------------------- new labels


class _Groups:
    """Rows get the number of a group: cells of equal chance are shared out in proportion to the groups' sizes."""

    def __init__(self, base: nw.LazyFrame[Any], real: Keys) -> None:
        import narwhals as nw

        sizes = np.sort(floats(fetch(base.group_by(*real.names).agg(nw.len().alias("n")))["n"]))[::-1]
        self.rows = int(sizes.sum())
        self.names: Sequence[str] = [_LABEL]
        self._real = real
        of_group = _cells(sizes)
        self._cells = of_group.size
        self.lookup: Mapping[str, places.IntArray] = {"cell": np.arange(of_group.size), _LABEL: of_group}

    def usable(self, base: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """All rows; their groups are forgotten."""
        return base.drop(*self._real.names)

    def labelled(self, frame: nw.LazyFrame[Any], falls: Any, lookup: nw.LazyFrame[Any] | None) -> nw.LazyFrame[Any]:
        """With the group a row falls into by chance, a number below the prime."""
        frame = frame.with_columns((falls % self._cells).alias("cell"))
        return frame if lookup is None else frame.join(lookup, on="cell", how="inner")


def _cells(sizes: Any) -> places.IntArray:
    """The group of each of some thousand cells; more of them where a group that counts is small."""
    if not sizes.size:
        return np.zeros(1, dtype=np.int64)
    smallest = max(float(sizes.min()), 10.0)
    count = np.clip(8 * sizes.sum() / smallest, max(1024, 4 * sizes.size), max(131_072, 4 * sizes.size))
    edges = np.round(np.cumsum(sizes) / sizes.sum() * count).astype(np.int64)
    return np.repeat(np.arange(sizes.size), np.maximum(np.diff(edges, prepend=0), 1))


class _Arms:
    """Rows keep their groups, and get 0 for control or 1 for treatment, with the shares that these two have."""

    def __init__(self, base: nw.LazyFrame[Any], real: Keys, request: Request) -> None:
        import narwhals as nw

        table = fetch(base.group_by("arm").agg(nw.len().alias("n")))
        sizes = floats(table["n"])
        found = places.compared(table, request.arms, sizes.size)
        control, both = float(sizes[found.arms == 0].sum()), float(sizes[found.arms >= 0].sum())
        self.rows = int(both)
        self.names: Sequence[str] = real.names
        self.lookup: Mapping[str, places.IntArray] = {}
        self._values = list(found.values)
        self._edge = round(control / max(both, 1.0) * PRIME)

    def usable(self, base: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The rows of the two variants."""
        import narwhals as nw

        return base.filter(nw.col("arm").is_in(self._values)).drop("arm")

    def labelled(self, frame: nw.LazyFrame[Any], falls: Any, lookup: nw.LazyFrame[Any] | None) -> nw.LazyFrame[Any]:
        """With the arm a row falls into by chance, a number below the prime."""
        import narwhals as nw

        return frame.with_columns(nw.when(falls < self._edge).then(nw.lit(0)).otherwise(nw.lit(1)).alias("arm"))


# ------------------------------------------------------------------------------------------------ from rows to moments


class _Numbered(Keys):
    """The real keys of rows, with the random number of their unit beside them."""

    def expressions(self) -> list[Any]:
        """All keys, and the number."""
        import narwhals as nw

        return [*super().expressions(), nw.col(NUMBER)]


class _Drawn(Keys):
    """The keys of shuffled rows: the number of the shuffle, then that of the group, or the real keys."""

    def __init__(self, real: Keys, names: Sequence[str]) -> None:
        self.rows, self.by, self.schema = real.rows, (), real.schema
        self.names = [_SHUFFLE, *names]
        self._real = real

    def fractions(self) -> dict[str, Any]:
        """None: how ranges are written does not matter here."""
        return {}

    def settle(self, table: Mapping[str, Column]) -> None:
        """Nothing is to be noted."""

    def labels(self, place: int, values: Sequence[Any]) -> list[Hashable]:
        """Numbers as they are; the real keys as they are called."""
        return list(values) if self.names[place] in {_SHUFFLE, _LABEL} else self._real.labels(place - 1, values)


class _Sums:
    """Requests for sums and moments: rows are cleaned, and where they have units summed to these, before shuffling."""

    def __init__(self, rows: Rows, by: tuple[str | Bins, ...], request: Request, how: Shuffles) -> None:
        self.needs_memory = bool(request.centred)
        self._request, self._how = request, how
        if request.unit is None:
            rows = _with_number(rows, how)
        self.keys: Keys = Keys(rows, by) if request.unit else _Numbered(rows, by)
        self._query = _Steps(rows, self.keys, [request], None)

    def base(self) -> nw.LazyFrame[Any]:
        """What all shuffles have in common, with the random number of each row or unit."""
        import narwhals as nw

        frame = self._query.base()
        if self._request.unit:
            frame = with_hash_number(frame, "unit", self._how.seed, NUMBER)
        return frame.filter(~nw.col(NUMBER).is_null())

    def grouped(self, frame: nw.LazyFrame[Any], names: Sequence[str], request: Request) -> Grouped:
        """The moments of rows that have new labels."""
        return self._query.of_labels(frame, _Drawn(self.keys, names), request)


class _Steps(Query):
    """A query in two steps, with room for new labels between them."""

    def base(self) -> nw.LazyFrame[Any]:
        """Rows with cleaned inputs, or units with their sums."""
        prepared = self._prepared()
        return prepared if self.unit is None else self._by_unit(prepared)

    def of_labels(self, frame: nw.LazyFrame[Any], keys: Keys, request: Request) -> Grouped:
        """Moments by new keys. What inputs may not hold was looked for when the real groups were measured."""
        import narwhals as nw

        step = copy(self)
        step.by, step.requests, step.checks, step.columns = keys, [request], [], []
        step.keyed = [*keys.names, *(["arm"] if self.variant else [])]
        if self.unit is None:
            table = step._moments(frame, [nw.len().alias("rows")])
        else:
            table = step._moments(step._usable_units(frame), step._unit_counts())
        return step._results(table)[0][0]


class _Ranking:
    """Requests for placements by score: these need the rows themselves, and have no units."""

    needs_memory = True

    def __init__(self, rows: Rows, by: tuple[str | Bins, ...], request: Request, how: Shuffles) -> None:
        self._rows = _with_number(rows, how)
        self.keys = Keys(self._rows, by)

    def base(self) -> nw.LazyFrame[Any]:
        """The rows, with their keys and numbers."""
        import narwhals as nw

        return self._rows.frame.with_columns(*self.keys.expressions()).filter(~nw.col(NUMBER).is_null())

    def grouped(self, frame: nw.LazyFrame[Any], names: Sequence[str], request: Request) -> Grouped:
        """The placements of rows that have new labels."""
        own = {f"{OURS}{name}": name for name in (_SHUFFLE, *names)}
        rows = replace(self._rows, frame=frame, keys={**self._rows.keys, **own})
        return ranked(rows, Keys(rows, tuple(own), prefix="new"), request, None)[0]


def _with_number(rows: Rows, how: Shuffles) -> Rows:
    """Rows with a random number each, the same for all rows of a unit."""
    column, frame = "place", rows.frame
    if how.unit is None:
        frame = with_row_number(frame, column)
    else:
        column = rows.keys[how.unit]
    numbered = with_hash_number(frame, column, how.seed, NUMBER)
    return replace(rows, frame=numbered)
