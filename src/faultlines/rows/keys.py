"""What the groups are: columns and cut numbers as keys in the engine, and the way back from fetched keys to labels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from faultlines.engines.frames import Rows, fetch
from faultlines.engines.protocol import Column, factorize, format_time, is_not_nan, to_floats
from faultlines.errors import InputError, shorten
from faultlines.estimates.labels import MISSING, Key, Names, Range, check_alike, in_order, match, part_of, rank
from faultlines.estimates.reasons import DropCode
from faultlines.rows.request import EVERY, Arms, Grouped, MissingRows, Together
from faultlines.types import FloatArray, IntArray

# ------------------------------------------------------------------------------------- numeric attributes cut into bins


_MOST_BINS = 200
ALL_ROWS = "all rows"  # the one group where no attribute makes groups


@dataclass(frozen=True, slots=True)
class Bins:
    """How to cut a numeric attribute into groups; made by `fl.bins`.

    Attributes:
        column: The numeric column.
        width: The width of every group.
        quantiles: The number of groups with equally many rows.
        edges: Where groups begin and end.

    Raises:
        InputError: Unless exactly one way to cut is given, and makes sense.

    Example:
        >>> import faultlines as fl
        >>> fl.bins("age", width=10)
        Bins(column='age', width=10.0, quantiles=None, edges=None)
    """

    column: str
    width: float | None = None
    quantiles: int | None = None
    edges: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        column = self.column
        if not isinstance(column, str) or not column:
            raise InputError.wrong_type("bins", "is not the name of a column", "Give a column by its name.", column)
        if sum(option is not None for option in (self.width, self.quantiles, self.edges)) != 1:
            problem = "needs one of width, quantiles and edges"
            raise InputError.missing("bins", problem, "Give exactly one of them.", column)
        if self.width is not None:
            object.__setattr__(self, "width", _checked_width(self.width))
        if self.quantiles is not None:
            object.__setattr__(self, "quantiles", _checked_quantiles(self.quantiles))
        if self.edges is not None:
            object.__setattr__(self, "edges", _checked_edges(self.edges))


By = str | Bins | Sequence[str | Bins]  # the columns that make groups


def bins(
    column: str, *, width: float | None = None, quantiles: int | None = None, edges: Sequence[float] | None = None
) -> Bins:
    """Cut a numeric column into groups, inside the engine.

    Args:
        column: The column.
        width: Groups of equal width, from multiples of it: ``width=5`` gives 20–24, 25–29, …
        quantiles: So many groups of about equal size; fewer where many rows have the same value.
        edges: Groups between these edges, each including its lower one, and one beyond either end.

    Returns:
        What to give as `by`, alone or among other attributes.

    Raises:
        InputError: Unless exactly one way to cut is given, and makes sense.

    Example:
        >>> import faultlines as fl
        >>> fl.bins("age", edges=[18, 65])
        Bins(column='age', width=None, quantiles=None, edges=(18.0, 65.0))
    """
    return Bins(column, width, quantiles, edges)  # type: ignore[arg-type]  # it makes a tuple of the edges


def _as_float(value: object) -> float | None:
    """A finite number as a double; None for everything else, and for integers beyond a double."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _checked_width(width: object) -> float:
    number = _as_float(width)
    if number is None or number <= 0:
        raise InputError.out_of_range(
            "width",
            "must be a number above zero",
            "Use for example {width}.",
            width,
            settings={"width": 5},
            form="must",
        )
    return number


def _checked_quantiles(quantiles: object) -> int:
    is_integer = isinstance(quantiles, Integral) and not isinstance(quantiles, bool)
    if not (is_integer and 2 <= quantiles <= _MOST_BINS):  # type: ignore[operator]
        problem = f"must be from 2 to {_MOST_BINS}"
        raise InputError.out_of_range("quantiles", problem, "Use for example quantiles=10.", quantiles, form="must")
    return int(quantiles)  # type: ignore[call-overload, no-any-return]


def _checked_edges(edges: object) -> tuple[float, ...]:
    several = isinstance(edges, list | tuple) or (isinstance(edges, np.ndarray) and edges.ndim == 1)
    numbers = [_as_float(edge) for edge in edges] if several and len(edges) <= _MOST_BINS else []  # type: ignore
    listed = [edge for edge in numbers if edge is not None]
    if not listed or len(listed) < len(numbers) or any(low >= high for low, high in itertools.pairwise(listed)):
        problem = f"must be up to {_MOST_BINS} finite, rising numbers"
        raise InputError.out_of_range("edges", problem, "Use for example edges=[18, 65].", edges, form="must")
    return tuple(listed)


# ------------------------------------------------------------------------------------------- keys in the engine, labels


class Keys:
    """The key of every attribute as an expression, and labels for the values it takes.

    Args:
        rows: The rows.
        by: The attributes; none for all rows as one group.
        prefix: What the names of the keys begin with.
        separate: So many of the first attributes name experiments: a unit may be in several of them.

    Attributes:
        keeps_empty: Whether empty text is a key like others, and not null: it need not be looked for row by row then.
        has_empty: Whether some group had it as its key.
    """

    keeps_empty = False
    has_empty = False

    def __init__(self, rows: Rows, by: Sequence[str | Bins], prefix: str = "k", *, separate: int = 0) -> None:
        self.rows, self.by, self.separate = rows, by, separate
        self.schema = rows.frame.collect_schema()
        self.names = [f"{prefix}{i}" for i in range(max(len(by), 1))]
        self._ranges: dict[int, list[Range]] = {}
        self._widths: dict[int, tuple[float, bool]] = {}

    def expressions(self) -> list[Any]:
        """All keys under names of our own; null where one is missing."""
        import narwhals as nw

        if not self.by:
            return [nw.lit(0).alias(self.names[0])]
        return [
            (self._binned(i, attribute) if isinstance(attribute, Bins) else self._value(attribute)).alias(name)
            for i, (attribute, name) in enumerate(zip(self.by, self.names, strict=True))
        ]

    def fractions(self) -> dict[str, Any]:
        """For numbers cut by a whole width, what is behind the point: frames without null integers hold them as floats.

        The largest by group goes to `record_fractions`, which then knows whether a group is 20–24 or 20 to 25.
        """
        fractions = {}
        for name, cut in zip(self.names, self.by, strict=bool(self.by)):
            if isinstance(cut, Bins) and cut.width is not None and cut.width == int(cut.width):
                column = self.rows.numbers[cut.column]
                value = finite(column, self.schema[column])
                if not self.schema[column].is_integer():
                    fractions[f"{name}_fraction"] = value - whole_part(value)
        return fractions

    def record_fractions(self, table: Mapping[str, Column]) -> None:
        """Take note of the largest fractions that were found."""
        for i, (width, is_integer) in self._widths.items():
            fractions = table.get(f"{self.names[i]}_fraction")
            if fractions is not None and len(fractions):
                self._widths[i] = (width, is_integer and not np.nanmax(to_floats(fractions), initial=0.0) > 0)

    def _value(self, attribute: str) -> Any:
        import narwhals as nw

        column = self.rows.keys[attribute]
        dtype = self.schema[column]
        if dtype.is_float():
            return key_value(column, dtype)
        if (dtype.is_integer() and dtype not in (nw.Int128, nw.UInt128)) or dtype in (nw.Boolean, nw.Date):
            return nw.col(column)
        text = nw.col(column) if dtype == nw.String else _as_text(column, dtype)
        return text if self.keeps_empty else nw.when(text != "").then(text)  # in csv, too, an empty field has no value

    def _binned(self, place: int, cut: Bins) -> Any:
        """The number of a row's bin; what range that is, is kept for the labels."""
        import narwhals as nw

        column = self.rows.numbers[cut.column]
        if not (self.schema[column].is_numeric() or self.schema[column] == nw.Boolean):  # 0 and 1, as in csv
            problem = f"is not numeric ({self.schema[column]})"
            raise InputError.wrong_type("bins", problem, "Cut numeric columns only.", cut.column)
        return self._of_width(place, column, cut.width) if cut.width is not None else self._of_edges(place, column, cut)

    def _of_width(self, place: int, column: str, width: float) -> Any:
        import narwhals as nw

        value = finite(column, self.schema[column])
        self._widths[place] = (width, width == int(width))
        # 0.3 / 0.1 is a hair below 3: what is that close to an edge belongs above it.
        steps = value / width
        nearest = whole_part(steps + 0.5)
        close = (steps - nearest).abs() < 1e-9 * (steps.abs() + 1)
        return nw.when(close).then(nearest).otherwise(whole_part(steps))

    def _of_edges(self, place: int, column: str, cut: Bins) -> Any:
        import narwhals as nw

        edges = list(cut.edges or ())
        if cut.quantiles is not None:
            at = [i / cut.quantiles for i in range(1, cut.quantiles)]
            value = finite(column, self.schema[column]).alias("v")
            quantiles = [nw.col("v").quantile(q, interpolation="linear").alias(f"q{i}") for i, q in enumerate(at)]
            table = fetch(self.rows.frame.select(value).select(*quantiles))
            cuts = np.array([to_floats(values)[0] for values in table.values()])
            edges = sorted(set(cuts[np.isfinite(cuts)].tolist()))
        self._ranges[place] = [Range(low, high) for low, high in itertools.pairwise([-np.inf, *edges, np.inf])]
        # Beyond the outermost edges there is room for infinity.
        dtype = self.schema[column]
        value = not_nan(column, dtype) if dtype.is_numeric() else finite(column, dtype)
        number = nw.lit(0.0)
        for edge in edges:
            number = number + nw.when(value >= edge).then(nw.lit(1.0)).otherwise(nw.lit(0.0))
        return nw.when(~value.is_null()).then(number)

    def labels(self, place: int, values: Sequence[Any]) -> list[Hashable]:
        """Distinct keys of the place-th attribute as parts of group names; null is None.

        Raises:
            InputError: If a null and a text would have the same name.
        """
        parts: list[Hashable] = self._parts(place, values) if self.by else [ALL_ROWS] * len(values)
        if None in values and parts.count(MISSING) > 1:
            problem = f"two different keys have the same name, a null and the text {MISSING!r}"
            raise InputError.duplicate("by", problem, "Rename the text.", form="clause")
        if self.by and isinstance(self.by[place], str):
            check_alike("by", parts, str(self.by[place]))
        return parts

    def _parts(self, place: int, values: Sequence[Any]) -> list[Hashable]:
        import narwhals as nw

        if place in self._widths:
            width, is_integer = self._widths[place]
            return [MISSING if v is None else Range(v * width, (v + 1) * width, is_integer) for v in values]
        if place in self._ranges:
            return [MISSING if v is None else self._ranges[place][int(v)] for v in values]
        attribute = self.by[place]
        column = self.rows.keys[str(attribute)]
        as_time, as_int = column in self.rows.times, self.schema[column] in (nw.Int128, nw.UInt128)
        if as_time or as_int:
            return [MISSING if v is None else format_time(v) if as_time else int(v) for v in values]
        if column in self.rows.orders:
            return in_order([MISSING if v is None else str(v) for v in values], self.rows.orders[column])
        kinds = set(map(type, values))
        if kinds <= {str, int}:  # they stay what they are; there may be millions
            return list(values)
        return [MISSING if v is None else v if type(v) in (str, int) else part_of(v) for v in values]

    def order(self, parts: Sequence[Hashable]) -> list[int]:
        """The places of parts of names in the order of their values.

        Text that is all whole numbers, as csv has them, is in the order of the numbers.
        """
        places = range(len(parts))
        kinds = set(map(type, parts))
        is_plain = kinds == {str} and not self.rows.from_text and not any(str(part)[:1] in {"(", "["} for part in parts)
        if kinds == {int} or is_plain:  # neither "(missing)" nor ranges, as in (30, 45]
            return sorted(places, key=parts.__getitem__)  # type: ignore[arg-type]
        named = [part for part in parts if part != MISSING]
        if self.rows.from_text and named and all(type(part) is str and _is_whole(part) for part in named):
            return sorted(places, key=lambda i: rank(parts[i] if parts[i] == MISSING else int(str(parts[i]))))
        return sorted(places, key=lambda i: rank(parts[i]))

    def resolve(self) -> tuple[str | Bins, ...]:
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
    return nw.when(is_not_nan(value)).then(value) if dtype.is_float() else value


def whole_part(value: Any) -> Any:
    """A number rounded down, as a double. Beyond 2⁵³ all are whole, and databases may not have an integer for them."""
    import narwhals as nw

    is_small = value.abs() < 2.0**53
    return nw.when(is_small).then(nw.when(is_small).then(value).floor().cast(nw.Float64)).otherwise(value)


def _as_text(column: str, dtype: Any) -> Any:
    """A column as text; a decimal without room before the point, which DuckDB writes as .10, has its zero."""
    import narwhals as nw

    text = nw.col(column).cast(nw.String)
    if not dtype.is_decimal():
        return text
    positive = nw.when(text.str.starts_with(".")).then(nw.concat_str(nw.lit("0"), text)).otherwise(text)
    negative = nw.concat_str(nw.lit("-0"), text.str.slice(1))
    return nw.when(text.str.starts_with("-.")).then(negative).otherwise(positive)


def key_value(column: str, dtype: Any) -> Any:
    """A column that names things, with NaN as null; floats of 32 bits are the numbers they read as: 0.1, as in csv.

    From 2²⁴ on such floats are whole numbers, named exactly: engines shorten their digits in different ways.
    """
    import narwhals as nw

    if dtype.is_decimal():  # as groups are named: engines bring decimals as text, floats or their own
        return _as_text(column, dtype)
    if dtype != nw.Float32:
        return not_nan(column, dtype)
    value = nw.col(column)
    shortest = (
        nw.when(value.abs() < 2.0**24).then(value.cast(nw.String).cast(nw.Float64)).otherwise(value.cast(nw.Float64))
    )
    return nw.when(is_not_nan(value)).then(shortest)


def finite(column: str, dtype: Any) -> Any:
    """A numeric or boolean column as doubles, with NaN and infinity as null. Cast first: integers overflow."""
    import narwhals as nw

    value = nw.col(column).cast(nw.Float64)
    return nw.when(value.is_finite()).then(value) if dtype.is_float() or dtype.is_decimal() else value


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and (digits == "0" or digits[0] != "0")


# -------------------------------------------------------------------------------------------- control and treatments


def find_arms(values: Sequence[Hashable], arms: Arms) -> tuple[int, ...]:
    """The places of control and treatments among the distinct values of the column.

    A value that is there exactly is taken; one that only reads the same (1 and "1") where no other does.

    Args:
        values: The distinct values, without null.
        arms: What is compared.

    Raises:
        InputError: If one is not there, or it is left open which is meant.
    """
    values_text = _show_values(values)

    def place_of(parameter: str, variant: Any) -> int:
        try:
            place = match([(variant,)], [(value,) for value in values], parameter)[0]
        except InputError as error:
            raise error.changed(
                value=shorten(variant), place="", remedy="Give it exactly as the column has it."
            ) from error
        if place < 0:
            equal = [i for i, value in enumerate(values) if _is_same_number(variant, value)]
            place = equal[0] if len(equal) == 1 else -1
        if place < 0:
            problem = f"is in no row of {shorten(arms.column)}"
            raise InputError.not_found(parameter, problem, f"There are: {values_text}.", variant)
        return place

    control = place_of("control", arms.control)
    others = [place for place in range(len(values)) if place != control]
    every = arms.several and arms.treatments == (EVERY,) and EVERY not in values
    if arms.treatment is not None and not every:
        treatments = [place_of("treatment", variant) for variant in arms.treatments]
        if control in treatments or len(set(treatments)) < len(treatments):
            problem = "is the control as well" if control in treatments else "names a variant twice"
            raise InputError.duplicate("treatment", problem, "Name two different variants.", arms.treatment)
        return control, *treatments
    if not others:
        problem = f"holds {shorten(values[control])} alone"
        raise InputError.too_few("variant", problem, "An experiment needs two variants.", arms.column)
    if len(others) > 1 and not every:
        raise InputError.ambiguous(
            "variant",
            f"has {len(others)} variants beside {shorten(values[control])}",
            f"Say which is the treatment: {_show_values([values[i] for i in others])}; or all of them: {{treatment}}.",
            settings={"treatment": EVERY},
        )
    return control, *sorted(others, key=lambda place: str(values[place]))


def _is_same_number(variant: Any, value: Any) -> bool:
    """Whether a number is what the text of a decimal says: 1.1 and "1.10"; a short float, what it rounds to.

    A decimal is the double that is written so: 1.10 and 1.1.
    """
    if isinstance(variant, bool | str) or not isinstance(variant, Real | Decimal) or isinstance(value, bool):
        return False
    try:
        if isinstance(variant, np.float32 | np.float16):
            return bool(type(variant)(value) == variant)
        if isinstance(variant, Decimal) and isinstance(value, float):
            return Decimal(repr(value)) == variant
        if not isinstance(value, str):
            return False
        return Decimal(str(variant)) == Decimal(value)
    except (InvalidOperation, TypeError, ValueError, OverflowError):
        return False


def _show_values(values: Sequence[Hashable]) -> str:
    return ", ".join(shorten(value) for value in sorted(values, key=str)[:10])


# ---------------------------------------------------------------------------------------- where fetched rows belong


MISSING_VALUE, OTHER_VARIANTS = DropCode.MISSING_VALUE, DropCode.OTHER_VARIANTS


class GroupPlaces(NamedTuple):
    """The group of every fetched row, and the groups in order."""

    groups: IntArray
    keys: Sequence[Key]


def place_groups(by: Keys, table: Mapping[str, Column]) -> GroupPlaces:
    """Groups of fetched rows by their keys, without a Python object for each row."""
    codes, parts = [], []
    for i, name in enumerate(by.names):
        code, distinct = factorize(table[name])
        by.has_empty |= "" in {value for value in distinct if isinstance(value, str)}
        labels = by.labels(i, distinct)
        order = by.order(labels)
        position = np.empty(len(order), dtype=np.int64)
        position[order] = np.arange(len(order))
        codes.append(position[code] if len(order) else code)
        parts.append([labels[k] for k in order])
    if len(codes) == 1:
        return GroupPlaces(codes[0], Names(parts[0]))
    combined, sizes = codes[0], [len(part) for part in parts]
    room = max(sizes[0], 1)
    for code, size in zip(codes[1:], sizes[1:], strict=True):
        if room * max(size, 1) >= 2**62:  # squeeze out combinations that do not occur
            combined = np.unique(combined, return_inverse=True)[1].reshape(-1)
            room = int(combined.max(initial=0)) + 1
        combined, room = combined * max(size, 1) + code, room * max(size, 1)
    _, first, groups = np.unique(combined, return_index=True, return_inverse=True)
    columns = [[part[k] for k in code[first].tolist()] for part, code in zip(parts, codes, strict=True)]
    return GroupPlaces(groups.reshape(-1).astype(np.int64), list(zip(*columns, strict=True)))


class ArmPlaces(NamedTuple):
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


def place_arms(table: Mapping[str, Column], arms: Arms | None, rows: int) -> ArmPlaces:
    """Arms of fetched rows; all are one arm where nothing is compared."""
    if arms is None or not rows:
        values = () if arms is None else (None, None)
        return ArmPlaces(np.zeros(rows, dtype=np.int64), values, np.zeros(rows, dtype=bool))
    codes, distinct = factorize(table["arm"])
    present = [place for place, value in enumerate(distinct) if value is not None]
    chosen = [present[i] for i in find_arms([distinct[place] for place in present], arms)]
    numbers = np.full(len(distinct), -1, dtype=np.int64)
    numbers[chosen] = np.arange(len(chosen))
    absent = np.array([value is None for value in distinct])
    return ArmPlaces(numbers[codes], tuple(distinct[place] for place in chosen), absent[codes])


def add_overlaps(
    by: Keys, table: Mapping[str, Column], arms: Arms | None, parts: Sequence[Grouped], variables: int, divided: bool
) -> list[Grouped]:
    """Groups, part by part, with what a fetched table says pairs of them have in common."""
    rows = to_floats(table["both"])
    mine = {name: table[name] for name in by.names}
    theirs = {name: table[f"o_{name}"] for name in by.names}
    places = [place_groups(by, side) for side in (mine, theirs)]
    arm_places = place_arms(table, arms, rows.size)
    cross = np.stack(
        [np.stack([to_floats(table[f"x{i}_{j}"]) for j in range(variables)], axis=1) for i in range(variables)], axis=1
    )
    with_overlaps = []
    for grouped, part in zip(parts, split_rows(table, len(parts) if divided else 0), strict=True):
        at = {key: place for place, key in enumerate(grouped.keys)}
        first, second = (np.array([at[key] for key in side.keys], dtype=np.int64)[side.groups] for side in places)
        used = part & (arm_places.arms >= 0)
        overlap = Together(first[used], second[used], arm_places.arms[used], rows[used], cross[used])
        with_overlaps.append(replace(grouped, together=overlap))
    return with_overlaps


def count_dropped(
    rows: FloatArray, usable: FloatArray, arm_places: ArmPlaces, arms: Arms | None
) -> dict[DropCode, int]:
    """How many rows are not used, by reason.

    Args:
        rows: Rows behind every fetched row.
        usable: How many of them have all inputs.
        arm_places: Their arms.
        arms: What is compared.
    """
    usable = np.where(arm_places.missing, 0.0, usable)
    dropped = {MISSING_VALUE: int(rows.sum() - usable.sum())}
    if arms is not None:
        dropped[OTHER_VARIANTS] = int(usable[(arm_places.arms < 0) & ~arm_places.missing].sum())
    return dropped


def count_missing(
    rows: FloatArray,
    usable: FloatArray,
    arm_places: ArmPlaces,
    group_places: GroupPlaces,
    present: Mapping[str, FloatArray],
    variant: str | None = None,
) -> MissingRows:
    """How many rows of every group lack a value.

    Args:
        rows: Rows behind every fetched row.
        usable: How many of them have all inputs.
        arm_places: Their arms.
        group_places: Their groups.
        present: Column → how many of them have that value.
        variant: The column of variants.
    """
    counted = (arm_places.arms >= 0) | arm_places.missing
    usable = np.where(arm_places.missing, 0.0, usable)

    def by_group(counts: FloatArray) -> FloatArray:
        weights = np.where(counted, counts, 0.0)
        return np.bincount(group_places.groups, weights, minlength=len(group_places.keys)).astype(np.float64)

    by_column = {column: by_group(rows - have) for column, have in present.items()}
    if variant is not None:
        by_column[variant] = by_group(np.where(arm_places.missing, rows, 0.0))
    some = {column: counts for column, counts in by_column.items() if counts.any()}
    return MissingRows(group_places.keys, by_group(rows), by_group(rows - usable), some)


def split_rows(table: Mapping[str, Column], parts: int) -> list[npt.NDArray[np.bool_]]:
    """For each part of the rows, which of the fetched rows belong to it; all, where there are no parts."""
    if not parts:
        return [np.ones(len(next(iter(table.values()))), dtype=bool)]
    number = to_floats(table["part"])
    return [number == i for i in range(parts)]
