"""What the groups are: columns and cut numbers as keys in the engine, and the way back from fetched keys to labels."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.errors import InputError, shorten
from faultlines.estimates.labels import MISSING, Range, part_of, rank
from faultlines.rows.bins import Bins
from faultlines.sources.columns import time_name
from faultlines.sources.fetch import fetch, floats

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from faultlines.sources.fetch import Column
    from faultlines.sources.frames import Rows


class Keys:
    """The key of every attribute as an expression, and labels for the values it takes.

    Args:
        rows: The rows.
        by: The attributes.
        prefix: What the names of the keys begin with.
        separate: So many of the first attributes name experiments: a unit may be in several of them.
    """

    def __init__(self, rows: Rows, by: Sequence[str | Bins], prefix: str = "k", *, separate: int = 0) -> None:
        self.rows, self.by, self.separate = rows, by, separate
        self.schema = rows.frame.collect_schema()
        self.names = [f"{prefix}{i}" for i in range(len(by))]
        self._ranges: dict[int, list[Range]] = {}
        self._widths: dict[int, tuple[float, bool]] = {}

    def expressions(self) -> list[Any]:
        """All keys under names of our own; null where one is missing."""
        return [
            (self._binned(i, attribute) if isinstance(attribute, Bins) else self._value(attribute)).alias(name)
            for i, (attribute, name) in enumerate(zip(self.by, self.names, strict=True))
        ]

    def fractions(self) -> dict[str, Any]:
        """For numbers cut by a whole width, what is behind the point: frames without null integers hold them as floats.

        The largest by group goes to `settle`, which then knows whether a group is 20–24 or 20 to 25.
        """
        found = {}
        for name, cut in zip(self.names, self.by, strict=True):
            if isinstance(cut, Bins) and cut.width is not None and cut.width == int(cut.width):
                column = self.rows.numbers[cut.column]
                value = finite(column, self.schema[column])
                if not self.schema[column].is_integer():
                    found[f"{name}_fraction"] = value - value.floor()
        return found

    def settle(self, table: Mapping[str, Column]) -> None:
        """Take note of the largest fractions that were found."""
        for i, (width, whole) in self._widths.items():
            found = table.get(f"{self.names[i]}_fraction")
            if found is not None and len(found):
                self._widths[i] = (width, whole and not np.nanmax(floats(found), initial=0.0) > 0)

    def _value(self, attribute: str) -> Any:
        import narwhals as nw

        column = self.rows.keys[attribute]
        dtype = self.schema[column]
        if dtype.is_float():
            return not_nan(column, dtype)
        if (dtype.is_integer() and dtype not in (nw.Int128, nw.UInt128)) or dtype in (nw.String, nw.Boolean, nw.Date):
            return nw.col(column)
        return nw.col(column).cast(nw.String)

    def _binned(self, place: int, cut: Bins) -> Any:
        """The number of a row's bin; what range that is, is kept for the labels."""
        column = self.rows.numbers[cut.column]
        if not self.schema[column].is_numeric():
            raise InputError(
                f"bins({shorten(cut.column)})",
                f"the column is not numeric ({self.schema[column]})",
                "Cut numeric columns only.",
            )
        return self._of_width(place, column, cut.width) if cut.width is not None else self._of_edges(place, column, cut)

    def _of_width(self, place: int, column: str, width: float) -> Any:
        import narwhals as nw

        value = finite(column, self.schema[column])
        self._widths[place] = (width, width == int(width))
        # 0.3 / 0.1 is a hair below 3: what is that close to an edge belongs above it.
        steps = value / width
        nearest = (steps + 0.5).floor().cast(nw.Float64)
        close = (steps - nearest).abs() < 1e-9 * (steps.abs() + 1)
        return nw.when(close).then(nearest).otherwise(steps.floor().cast(nw.Float64))

    def _of_edges(self, place: int, column: str, cut: Bins) -> Any:
        import narwhals as nw

        edges = list(cut.edges or ())
        if cut.quantiles is not None:
            at = [i / cut.quantiles for i in range(1, cut.quantiles)]
            value = finite(column, self.schema[column]).alias("v")
            wanted = [nw.col("v").quantile(q, interpolation="linear").alias(f"q{i}") for i, q in enumerate(at)]
            found = fetch(self.rows.frame.select(value).select(*wanted))
            known = np.array([floats(values)[0] for values in found.values()])
            edges = sorted(set(known[np.isfinite(known)].tolist()))
        self._ranges[place] = [Range(low, high) for low, high in itertools.pairwise([-np.inf, *edges, np.inf])]
        # Beyond the outermost edges there is room for infinity.
        value = not_nan(column, self.schema[column])
        number = nw.lit(0.0)
        for edge in edges:
            number = number + nw.when(value >= edge).then(nw.lit(1.0)).otherwise(nw.lit(0.0))
        return nw.when(~value.is_null()).then(number)

    def labels(self, place: int, values: Sequence[Any]) -> list[Hashable]:
        """Distinct keys of the place-th attribute as parts of group names; null is None.

        Raises:
            InputError: If a null and a text would have the same name.
        """
        parts = self._parts(place, values)
        if None in values and parts.count(MISSING) > 1:
            raise InputError(
                "by",
                f"two different keys have the same name, a null and the text {MISSING!r}",
                "Rename the text.",
            )
        return parts

    def _parts(self, place: int, values: Sequence[Any]) -> list[Hashable]:
        import narwhals as nw

        if place in self._widths:
            width, whole = self._widths[place]
            return [MISSING if v is None else Range(v * width, (v + 1) * width, whole) for v in values]
        if place in self._ranges:
            return [MISSING if v is None else self._ranges[place][int(v)] for v in values]
        attribute = self.by[place]
        column = self.rows.keys[str(attribute)]
        if column in self.rows.times:
            return [MISSING if v is None else time_name(v) for v in values]
        if self.schema[column] in (nw.Int128, nw.UInt128):
            return [MISSING if v is None else int(v) for v in values]
        kinds = set(map(type, values))
        if kinds <= {str, int}:  # they stay what they are; there may be millions
            return list(values)
        return [MISSING if v is None else v if type(v) in (str, int) else part_of(v) for v in values]

    def ordered(self, parts: Sequence[Hashable]) -> list[int]:
        """The places of parts of names in the order of their values.

        Text that is all whole numbers, as csv has them, is in the order of the numbers.
        """
        places = range(len(parts))
        kinds = set(map(type, parts))
        if kinds == {int} or (kinds == {str} and not self.rows.from_text and MISSING not in parts):
            return sorted(places, key=parts.__getitem__)  # type: ignore[arg-type]
        named = [part for part in parts if part != MISSING]
        if self.rows.from_text and named and all(type(part) is str and _is_whole(part) for part in named):
            return sorted(places, key=lambda i: rank(parts[i] if parts[i] == MISSING else int(str(parts[i]))))
        return sorted(places, key=lambda i: rank(parts[i]))

    def resolved(self) -> tuple[str | Bins, ...]:
        """The same groups for other rows: quantiles have become the edges they were."""
        return tuple(
            Bins(a.column, edges=tuple(r.upper for r in self._ranges[i][:-1]))
            if isinstance(a, Bins) and a.quantiles is not None and len(self._ranges[i]) > 1
            else a
            for i, a in enumerate(self.by)
        )


def not_nan(column: str, dtype: Any) -> Any:
    """A column with NaN as null; integers and text have none."""
    import narwhals as nw

    value = nw.col(column)
    return nw.when(~value.is_nan()).then(value) if dtype.is_float() else value


def finite(column: str, dtype: Any) -> Any:
    """A numeric or boolean column as doubles, with NaN and infinity as null. Cast first: integers overflow."""
    import narwhals as nw

    value = nw.col(column).cast(nw.Float64)
    return nw.when(value.is_finite()).then(value) if dtype.is_float() or dtype.is_decimal() else value


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and (digits == "0" or digits[0] != "0")
