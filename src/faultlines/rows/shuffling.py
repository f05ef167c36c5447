"""Moments of rows whose labels are shuffled, or that are drawn anew: what a metric finds where nothing differs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from scipy.special import gammaln

from faultlines.engines.frames import (
    ColumnUse,
    Rows,
    create_table,
    engine_of,
    fetch,
    hash_column,
    materialize,
    number_rows,
    scan,
)
from faultlines.engines.protocol import PREFIX, Column, factorize, to_floats
from faultlines.estimates.labels import Key
from faultlines.rows import keys as places
from faultlines.rows.keys import Bins, Keys
from faultlines.rows.query import HASH, PRIME, Query, draw_factors, random_number
from faultlines.rows.ranks import rank_scores
from faultlines.rows.read import list_uses
from faultlines.rows.request import Grouped, Request
from faultlines.types import IntArray

if TYPE_CHECKING:
    import narwhals as nw


_ROOM = 50_000_000  # rows × shuffles in one query
_LESS_ROOM = 10_000_000  # the same where the engine holds them in memory: windows, sorts, Polars
_SHUFFLE, _LABEL = "shuffle", "label"
_SHUFFLING = 0x5AFE
_COPIES = 8  # more copies of a row than a Poisson variable of mean 1 has once in a million draws
_CELLS = 65_536  # of equal probability, that numbers of copies are shared out over

Shuffled = Literal["groups", "arms", "resampled"]


@dataclass(frozen=True, slots=True)
class Shuffles:
    """How labels are shuffled.

    Args:
        runs: How many times.
        labels: What is assigned at random: groups, or control and treatment; or rows are drawn anew within their
            groups, each as often as a Poisson variable of mean 1 says.
        unit: The column whose rows stay together, where the request has no unit of its own; None for single rows.
        seed: The seed of hash and shuffles.
    """

    runs: int
    labels: Shuffled = "groups"
    unit: str | None = None
    seed: int = 0


@contextmanager
def shuffle_groups(
    data: object, by: tuple[str | Bins, ...], request: Request, relabelled: Request, how: Shuffles
) -> Iterator[Iterator[Grouped]]:
    """The groups of a request with their moments, once for each shuffle.

    Groups are about as large as the real ones: a unit falls into each with the share of the units it has. They have the
    keys of the real ones, as numbers of levels, so that attributes cross as they do.

    Args:
        data: As for `read`.
        by: What the groups are.
        request: What is asked of the rows.
        relabelled: The same of shuffled rows: where arms are shuffled, control and treatment are 0 and 1.
        how: How labels are shuffled.

    Raises:
        InputError: As for `read`.
    """
    uses = list_uses(by, [request], None)
    if how.unit is not None:
        uses.append(ColumnUse("unit", how.unit))
    with scan(data, uses) as rows, ExitStack() as open_tables:
        steps = _Ranking(rows, by, request, how) if request.ranking is not None else _Sums(rows, by, request, how)
        base = open_tables.enter_context(materialize(steps.base()))
        label = _choose_labels(base, steps.keys, request, how.labels)
        factor, shift = draw_factors(how.seed, _SHUFFLING, how.runs)
        tables = {_SHUFFLE: np.arange(how.runs), "factor": factor, "shift": shift}
        draws = open_tables.enter_context(materialize(create_table(base, tables)))
        lookup = open_tables.enter_context(materialize(create_table(base, label.lookup))) if label.lookup else None
        yield _shuffle_in_batches(steps, label, relabelled, base, draws, lookup, how.runs)


def _shuffle_in_batches(
    steps: _Sums | _Ranking,
    label: _Groups | _Arms | _Resampled,
    relabelled: Request,
    base: nw.LazyFrame[Any],
    draws: nw.LazyFrame[Any],
    lookup: nw.LazyFrame[Any] | None,
    runs: int,
) -> Iterator[Grouped]:
    """The groups of one shuffle after the other, of as many in a query as it can take."""
    import narwhals as nw

    in_memory = engine_of(base).buffers_joins or steps.needs_memory
    batch = int(np.clip((_LESS_ROOM if in_memory else _ROOM) // max(label.rows, 1), 1, runs))
    used = label.select_rows(base)
    for first in range(0, runs, batch):
        chosen = draws.filter((nw.col(_SHUFFLE) >= first) & (nw.col(_SHUFFLE) < first + batch))
        wide = used.join(chosen, how="cross")
        number = random_number(nw.col("factor"), nw.col("shift"))
        grouped = steps.group(label.relabel(wide, number, lookup), label.names, relabelled)
        # Groups are in the order of their keys, and the shuffle comes first.
        shuffles = np.array([key[0] for key in grouped.keys], dtype=np.int64)
        for shuffle in range(first, min(first + batch, runs)):
            places = np.flatnonzero(shuffles == shuffle)
            keys = [label.key(grouped.keys[place][1:]) for place in places.tolist()]
            yield Grouped(keys, grouped.moments.of_groups(places), {})


# ------------------------------------------------------------------------------------------------------- new labels


def _choose_labels(
    base: nw.LazyFrame[Any], real: Keys, request: Request, labels: Shuffled
) -> _Groups | _Arms | _Resampled:
    """How rows get their labels."""
    if labels == "arms":
        return _Arms(base, real, request)
    return _Groups(base, real) if labels == "groups" else _Resampled(base, real)


class _Groups:
    """Rows get the number of a group: cells of equal probability are shared out in proportion to the groups' sizes."""

    def __init__(self, base: nw.LazyFrame[Any], real: Keys) -> None:
        import narwhals as nw

        table = fetch(base.group_by(*real.names).agg(nw.len().alias("n")))
        levels = [_number_levels(table[name]) for name in real.names]
        order = np.lexsort((*levels[::-1], -to_floats(table["n"])))  # engines return groups in any order
        sizes = to_floats(table["n"])[order]
        self._keys = list(zip(*(numbers[order].tolist() for numbers in levels), strict=True))
        self.rows = int(sizes.sum())
        self.names: Sequence[str] = [_LABEL]
        self._real = real
        of_group = _share_cells(sizes)
        self._cells = of_group.size
        self.lookup: Mapping[str, IntArray] = {"cell": np.arange(of_group.size), _LABEL: of_group}

    def key(self, label: Key) -> Key:
        """The key of the real group in whose place a shuffled one is."""
        return self._keys[int(cast("int", label[0]))]

    def select_rows(self, base: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """All rows; their groups are forgotten."""
        return base.drop(*self._real.names)

    def relabel(self, frame: nw.LazyFrame[Any], number: Any, lookup: nw.LazyFrame[Any] | None) -> nw.LazyFrame[Any]:
        """With the group a row falls into at random, a number below the prime."""
        frame = frame.with_columns((number % self._cells).alias("cell"))
        return frame if lookup is None else frame.join(lookup, on="cell", how="inner")


def _number_levels(values: Column) -> IntArray:
    """Levels of an attribute as numbers, in an order that does not depend on the engine."""
    codes, levels = factorize(values)
    ranks = {place: rank for rank, place in enumerate(sorted(range(len(levels)), key=lambda i: repr(levels[i])))}
    return np.array([ranks[code] for code in codes.tolist()], dtype=np.int64)


def _share_cells(sizes: Any) -> IntArray:
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
        sizes = to_floats(table["n"])
        arm_places = places.place_arms(table, request.arms, sizes.size)
        control, both = float(sizes[arm_places.arms == 0].sum()), float(sizes[arm_places.arms >= 0].sum())
        self.rows = int(both)
        self.names: Sequence[str] = real.names
        self.lookup: Mapping[str, IntArray] = {}
        self._values = list(arm_places.values)
        self._edge = round(control / max(both, 1.0) * PRIME)

    def key(self, label: Key) -> Key:
        """Groups are the real ones."""
        return label

    def select_rows(self, base: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """The rows of the two variants."""
        import narwhals as nw

        return base.filter(nw.col("arm").is_in(self._values)).drop("arm")

    def relabel(self, frame: nw.LazyFrame[Any], number: Any, lookup: nw.LazyFrame[Any] | None) -> nw.LazyFrame[Any]:
        """With the arm a row falls into at random, a number below the prime."""
        import narwhals as nw

        return frame.with_columns(nw.when(number < self._edge).then(nw.lit(0)).otherwise(nw.lit(1)).alias("arm"))


class _Resampled:
    """Rows keep their groups, and appear as often as a Poisson variable of mean 1 says: a bootstrap of every group."""

    def __init__(self, base: nw.LazyFrame[Any], real: Keys) -> None:
        import narwhals as nw

        self.rows = int(to_floats(fetch(base.select(nw.len().alias("n")))["n"])[0])
        self.names: Sequence[str] = real.names
        copies = np.arange(_COPIES)
        upto = np.round(np.cumsum(np.exp(-1 - gammaln(copies + 1))) * _CELLS).astype(np.int64)
        cells = np.diff(upto, prepend=0)  # with 0, 1, 2, … copies
        # A cell is in the table as often as its rows are to be there: the join makes the copies.
        self.lookup: Mapping[str, IntArray] = {"cell": np.repeat(np.arange(cells.sum()), np.repeat(copies, cells))}

    def key(self, label: Key) -> Key:
        """Groups are the real ones."""
        return label

    def select_rows(self, base: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """All rows."""
        return base

    def relabel(self, frame: nw.LazyFrame[Any], number: Any, lookup: nw.LazyFrame[Any] | None) -> nw.LazyFrame[Any]:
        """With as many copies of a row as its number says, a number below the prime."""
        frame = frame.with_columns((number % _CELLS).alias("cell"))
        return frame if lookup is None else frame.join(lookup, on="cell", how="inner")


# ------------------------------------------------------------------------------------------------ from rows to moments


class _HashedKeys(Keys):
    """The real keys of rows, with the random number of their unit beside them."""

    def expressions(self) -> list[Any]:
        """All keys, and the number."""
        import narwhals as nw

        return [*super().expressions(), nw.col(HASH)]


class _ShuffledKeys(Keys):
    """The keys of shuffled rows: the number of the shuffle, then that of the group, or the real keys."""

    def __init__(self, real: Keys, names: Sequence[str]) -> None:
        self.rows, self.by, self.schema = real.rows, (), real.schema
        self.names = [_SHUFFLE, *names]
        self._real = real

    def fractions(self) -> dict[str, Any]:
        """None: how ranges are written does not matter here."""
        return {}

    def record_fractions(self, table: Mapping[str, Column]) -> None:
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
            rows = _hash_rows(rows, how)
        self.keys: Keys = Keys(rows, by) if request.unit else _HashedKeys(rows, by)
        self._query = _TwoStepQuery(rows, self.keys, [request], None)

    def base(self) -> nw.LazyFrame[Any]:
        """What all shuffles have in common, with the random number of each row or unit."""
        import narwhals as nw

        frame = self._query.base()
        if self._request.unit:
            frame = hash_column(frame, "unit", self._how.seed, HASH)
        return frame.filter(~nw.col(HASH).is_null())

    def group(self, frame: nw.LazyFrame[Any], names: Sequence[str], request: Request) -> Grouped:
        """The moments of rows that have new labels."""
        return self._query.measure_labels(frame, _ShuffledKeys(self.keys, names), request)


class _TwoStepQuery(Query):
    """A query in two steps, with room for new labels between them."""

    def base(self) -> nw.LazyFrame[Any]:
        """Rows with cleaned inputs, or units with their sums."""
        prepared = self._prepare()
        return prepared if self.unit is None else self._sum_units(prepared)

    def measure_labels(self, frame: nw.LazyFrame[Any], keys: Keys, request: Request) -> Grouped:
        """Moments by new keys. What inputs may not hold was looked for when the real groups were measured."""
        import narwhals as nw

        step = copy(self)
        step.by, step.requests, step.checks, step.columns = keys, [request], [], []
        step.keyed = [*keys.names, *(["arm"] if self.variant else [])]
        if self.unit is None:
            table = step._fetch_moments(frame, [nw.len().alias("rows")])
        else:
            table = step._fetch_moments(step._usable_units(frame), step._unit_counts())
        return step._results(table)[0][0]


class _Ranking:
    """Requests for placements by score: these need the rows themselves."""

    needs_memory = True

    def __init__(self, rows: Rows, by: tuple[str | Bins, ...], request: Request, how: Shuffles) -> None:
        self._rows = _hash_rows(rows, how if request.unit is None else replace(how, unit=request.unit))
        self.keys = Keys(self._rows, by)

    def base(self) -> nw.LazyFrame[Any]:
        """The rows, with their keys and numbers."""
        import narwhals as nw

        return self._rows.frame.with_columns(*self.keys.expressions()).filter(~nw.col(HASH).is_null())

    def group(self, frame: nw.LazyFrame[Any], names: Sequence[str], request: Request) -> Grouped:
        """The placements of rows that have new labels."""
        shuffled_keys = {f"{PREFIX}{name}": name for name in (_SHUFFLE, *names)}
        rows = replace(self._rows, frame=frame, keys={**self._rows.keys, **shuffled_keys})
        keys = Keys(rows, tuple(shuffled_keys), prefix="new", separate=1)  # every shuffle has all units
        return rank_scores(rows, keys, request, None)[0]


def _hash_rows(rows: Rows, how: Shuffles) -> Rows:
    """Rows with a random number each, the same for all rows of a unit."""
    column, frame = "place", rows.frame
    if how.unit is None:
        frame = number_rows(frame, column)
    else:
        column = rows.keys[how.unit]
    return replace(rows, frame=hash_column(frame, column, how.seed, HASH))
