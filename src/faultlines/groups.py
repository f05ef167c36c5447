"""What the groups are: columns and cut numbers as keys in the engine, labels for people, and the way back to rows."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines import frames
from faultlines.errors import InputError, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import narwhals as nw

_MOST_BINS = 200


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """A group of numbers from `lower` to below `upper`; reads as a range and sorts as a number."""

    lower: float
    upper: float
    whole: bool = False

    def __str__(self) -> str:
        if self.lower == -np.inf:
            return f"below {self.upper:.12g}"
        if self.upper == np.inf:
            return f"{self.lower:.12g} or more"
        if self.whole:
            last = self.upper - 1
            return f"{self.lower:.12g}" if last == self.lower else f"{self.lower:.12g}–{last:.12g}"
        return f"{self.lower:.12g} to {self.upper:.12g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)


@dataclass(frozen=True, slots=True)
class Bins:
    """How to cut a numeric attribute into groups; made by `fl.bins`."""

    column: str
    width: float | None = None
    quantiles: int | None = None
    edges: tuple[float, ...] | None = None


def bins(
    column: str, *, width: float | None = None, quantiles: int | None = None, edges: Sequence[float] | None = None
) -> Bins:
    """Cut a numeric column into groups, inside the engine.

    Args:
        column: The column.
        width: Groups of equal width, from multiples of it: ``width=5`` gives 20–24, 25–29, …
        quantiles: So many groups of about equal size; fewer where many rows have the same value.
        edges: Groups between these edges, each including its lower one, and one beyond either end.
    """
    if not isinstance(column, str) or not column:
        raise InputError(f"bins({shorten(column)})", "is not the name of a column", "Give a column by its name.")
    if sum(option is not None for option in (width, quantiles, edges)) != 1:
        raise InputError(f"bins({column!r})", "needs one of width, quantiles and edges", "Give exactly one of them.")
    if width is not None and not (_is_number(width) and 0 < width < np.inf):
        raise InputError(f"width={shorten(width)}", "must be a number above zero", "Use for example width=5.")
    if quantiles is not None and not (isinstance(quantiles, int | np.integer) and 2 <= quantiles <= _MOST_BINS):
        raise InputError(
            f"quantiles={shorten(quantiles)}", f"must be from 2 to {_MOST_BINS}", "Use for example quantiles=10."
        )
    if edges is not None:
        fit = (
            isinstance(edges, list | tuple | np.ndarray)
            and 0 < len(edges) <= _MOST_BINS
            and all(map(_is_number, edges))
        )
        listed = [float(edge) for edge in edges] if fit else []
        if not listed or not np.all(np.isfinite(listed)) or np.any(np.diff(listed) <= 0):
            raise InputError(
                f"edges={shorten(edges)}",
                f"must be up to {_MOST_BINS} finite, rising numbers",
                "Use for example edges=[18, 65].",
            )
        return Bins(column, edges=tuple(listed))
    return Bins(column, width=None if width is None else float(width), quantiles=quantiles)


class Attributes:
    """What the groups are: key expressions for the engine, and the way back from fetched keys to labels."""

    def __init__(
        self, frame: nw.LazyFrame[Any], by: Sequence[str | Bins], *, from_text: bool, prefix: str = "k"
    ) -> None:
        self.frame, self.by, self.from_text = frame, by, from_text
        self.schema = frame.collect_schema()
        self.keys = [f"{prefix}{i}" for i in range(len(by))]
        self.ranges: dict[int, list[Range]] = {}
        self.widths: dict[int, tuple[float, bool]] = {}

    def expressions(self) -> list[Any]:
        """All keys under names of our own."""
        return [self.expression(i).alias(key) for i, key in enumerate(self.keys)]

    def expression(self, place: int) -> Any:
        """The key of the place-th attribute, null where it is missing."""
        import narwhals as nw

        attribute = self.by[place]
        if isinstance(attribute, Bins):
            return self._binned(place, attribute)
        column, dtype = nw.col(attribute), self.schema[attribute]
        if dtype.is_float():
            return self.not_nan(attribute)
        if dtype.is_integer() or dtype in (nw.String, nw.Boolean, nw.Date):
            return column
        return column.cast(nw.String)

    def _binned(self, place: int, cut: Bins) -> Any:
        """The number of a row's bin; what range that is, is kept for the labels."""
        import narwhals as nw

        dtype = self.schema[cut.column]
        if not dtype.is_numeric():
            raise InputError(
                f"bins({cut.column!r})", f"the column is not numeric ({dtype})", "Cut numeric columns only."
            )
        value = self.finite(cut.column)
        if cut.width is not None:
            whole = cut.width == int(cut.width)
            if whole and not dtype.is_integer():  # frames without null integers hold them as floats
                part = self.frame.select(value.alias("v")).select(
                    (nw.col("v") - nw.col("v").floor()).max().alias("part")
                )
                whole = not frames.floats(frames.fetch(part)["part"])[0] > 0
            self.widths[place] = (cut.width, whole)
            # 0.3 / 0.1 is a hair below 3: what is that close to an edge stands on it.
            steps = value / cut.width
            nearest = (steps + 0.5).floor().cast(nw.Float64)
            close = (steps - nearest).abs() < 1e-9 * (steps.abs() + 1)
            return nw.when(close).then(nearest).otherwise(steps.floor().cast(nw.Float64))
        edges = list(cut.edges or ())
        if cut.quantiles is not None:
            at = [i / cut.quantiles for i in range(1, cut.quantiles)]
            found = frames.fetch(
                self.frame.select(value.alias("v")).select(
                    *(nw.col("v").quantile(q, interpolation="linear").alias(f"q{i}") for i, q in enumerate(at))
                )
            )
            known = np.array([frames.floats(column)[0] for column in found.values()])
            edges = sorted(set(known[np.isfinite(known)].tolist()))
        outer = [-np.inf, *edges, np.inf]
        self.ranges[place] = [Range(low, high) for low, high in itertools.pairwise(outer)]
        value = self.not_nan(cut.column)  # beyond the outermost edges there is room for infinity
        number = nw.lit(0.0)
        for edge in edges:
            number = number + nw.when(value >= edge).then(nw.lit(1.0)).otherwise(nw.lit(0.0))
        return nw.when(~value.is_null()).then(number)

    def not_nan(self, column: str) -> Any:
        """A column with NaN as null; integers and text have none."""
        import narwhals as nw

        value = nw.col(column)
        return nw.when(~value.is_nan()).then(value) if self.schema[column].is_float() else value

    def finite(self, column: str) -> Any:
        """A numeric or boolean column as doubles, with NaN and infinity as null. Cast first: integers overflow."""
        import narwhals as nw

        value = nw.col(column).cast(nw.Float64)
        dtype = self.schema[column]
        return nw.when(value.is_finite()).then(value) if dtype.is_float() or dtype.is_decimal() else value

    def labels(self, place: int, values: Sequence[Any]) -> list[Hashable]:
        """Fetched keys of the place-th attribute as group names."""
        if place in self.widths:
            width, whole = self.widths[place]
            return [
                frames.MISSING if missing else Range(number * width, (number + 1) * width, whole)
                for number, missing in _numbers(values)
            ]
        if place in self.ranges:
            return [
                frames.MISSING if missing else self.ranges[place][int(number)] for number, missing in _numbers(values)
            ]
        return frames.labels(values, from_text=self.from_text)

    def resolved(self) -> tuple[str | Bins, ...]:
        """The same groups for other rows: quantiles have become the edges they were."""
        return tuple(
            Bins(a.column, edges=tuple(r.upper for r in self.ranges[i][:-1]))
            if isinstance(a, Bins) and a.quantiles is not None and len(self.ranges[i]) > 1
            else a
            for i, a in enumerate(self.by)
        )


def _numbers(values: Sequence[Any]) -> list[tuple[float, bool]]:
    floats = frames.floats(values)
    return list(zip(floats.tolist(), np.isnan(floats).tolist(), strict=True))


def rank(part: Hashable) -> tuple[Any, ...]:
    """An order over labels of any type: numbers, ranges, text, and what is missing last."""
    if part == frames.MISSING:
        return (3, "")
    if isinstance(part, Range):
        return (1, part.lower, part.upper)
    return (0, part) if isinstance(part, int | float) else (2, str(part))


def attach(
    data: object,
    by: Sequence[str | Bins],
    values: Callable[[Sequence[str], Sequence[int]], Sequence[float]],
    column: str,
    *,
    whole: bool,
) -> Any:
    """Give every row a value that depends on its group, in the frame's own type.

    Args:
        data: The frame.
        by: What its groups are.
        values: From the groups that occur (as `canonical` texts) and their numbers of rows to a value for each; NaN
            leaves a row without one.
        column: The name of the new column.
        whole: Whether the values are whole numbers.
    """
    import narwhals as nw

    frame = frames.opened(data)
    names = [a.column if isinstance(a, Bins) else a for a in by]
    present = frame.collect_schema().names()
    frames.check_columns({f"by[{i}]": name for i, name in enumerate(names)}, present)
    if not isinstance(column, str) or not column or column.casefold() in {name.casefold() for name in present}:
        raise InputError(f"column={shorten(column)}", "is there already", "Choose another name for the new column.")
    kind = nw.Int64 if whole else nw.Float64
    lazy = frame if isinstance(frame, nw.LazyFrame) else frame.lazy()
    groups = Attributes(lazy, by, from_text=False, prefix=f"{frames.OURS}k")
    keys = groups.expressions()
    texts = [
        nw.when(nw.col(key).is_null()).then(nw.lit(frames.MISSING)).otherwise(nw.col(key).cast(nw.String))
        for key in groups.keys
    ]
    mark = nw.concat_str(*texts, separator="\x1f").alias(frames.WHOSE)
    counted = lazy.select(*keys).with_columns(mark).group_by(frames.WHOSE, *groups.keys).agg(nw.len().alias("rows"))
    found = frames.fetch(counted)
    if not len(found["rows"]):
        return frame.with_columns(nw.lit(None).cast(kind).alias(column)).to_native()
    parts = [groups.labels(i, found[key]) for i, key in enumerate(groups.keys)]
    marks = frames.labels(found[frames.WHOSE])
    given = values([canonical(label) for label in zip(*parts, strict=True)], frames.floats(found["rows"]).tolist())
    value_of = dict(zip(marks, given, strict=True))
    marked = frame.with_columns(*keys).with_columns(mark)
    if isinstance(marked, nw.LazyFrame):
        return frames.joined(marked, value_of, column, kind).drop(frames.WHOSE, *groups.keys).to_native()
    blank = [mark for mark, value in value_of.items() if np.isnan(value)]
    filled = [-1 if np.isnan(value) else (int(value) if whole else float(value)) for value in value_of.values()]
    value = nw.col(frames.WHOSE).replace_strict(list(value_of), filled, return_dtype=kind)
    if blank:
        value = nw.when(~nw.col(frames.WHOSE).is_in(blank)).then(value)
    return marked.with_columns(value.alias(column)).drop(frames.WHOSE, *groups.keys).to_native()


def canonical(label: Sequence[Hashable]) -> str:
    """A group as text that is the same however a frame holds its keys: 1, 1.0 and "1"; a date and its midnight."""
    return "\x1f".join(canonical_part(part) for part in label)


def canonical_part(part: Hashable) -> str:
    """One value of a group as such text."""
    if isinstance(part, Range):
        return f"[{part.lower!r}, {part.upper!r})"
    text = str(part)
    if isinstance(part, bool) or text in {"True", "False"}:
        return text.lower()
    for midnight in (" 00:00:00", "T00:00:00"):
        if midnight in text:
            return text.split(midnight, maxsplit=1)[0]
    try:
        number = float(text)
    except ValueError:
        return text.replace("T", " ") if len(text) >= 19 and text[10:11] == "T" and text[:4].isdigit() else text
    # Leading zeros, 1.10 and the like are part of a name, not of a number: a number reads back as it stands.
    if not np.isfinite(number):
        return text
    shown = str(int(number)) if number == int(number) else repr(number)
    return shown if text in {shown, repr(number)} else text
