"""What groups are called, and margins of their attributes.

A key is a tuple with one value per attribute, everywhere; people see a name. Keys from different places (a frame, a csv
file, a saved result) hold the same value in different types. `match` pairs them: by what they are first, by how they
read only where that is unique. A margin is a partition of the cells by the levels of some attributes.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

from faultlines.errors import InputError, shorten
from faultlines.formats import amount
from faultlines.types import IntArray

Label = Hashable  # what users give and get: a name, or a tuple with one value for each attribute
Key = tuple[Hashable, ...]

MISSING = "(missing)"
# Levels, without case, that say nothing by themselves: "higher for female than for unknown".
UNKNOWN_LEVELS = frozenset(
    {"", "unknown", "missing", "n/a", "na", "nan", "none", "null", "?", "not available", "not known", "not stated"}
    | {"undisclosed", "not specified", "not disclosed", "declined", "declined to answer", "decline to answer"}
    | {"prefer not to say", "prefer not to answer", "unspecified"}
)
_CODE = 2  # letters of the code of a country or a state, among which NA is Namibia
_END = r"(-?(?:[0-9.]+(?:e[+-]?[0-9]+)?|inf))"
INTERVAL = re.compile(rf"[\[(]{_END}, {_END}[\])]")  # as pandas and Polars write a range: (30, 45]


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """A group of numbers from `lower` to below `upper`; reads as a range and sorts as a number.

    Attributes:
        lower: Where it begins.
        upper: Where it ends; numbers are below it.
        whole: Whether the numbers are whole, so that it is read as from 20 to 29.

    Example:
        >>> import faultlines as fl
        >>> print(fl.Range(20, 30), fl.Range(20, 30, whole=True), fl.Range(5, 30) < fl.Range(20, 30))
        20 to 30 20–29 True
    """

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


class Level(str):
    """A level of an ordered attribute: its text, which knows its place in the order.

    Args:
        text: The level.
        place: Its place in the order of the column, from 0 on.
    """

    __slots__ = ("place",)

    place: int

    def __new__(cls, text: str, place: int) -> Self:
        """Equal to the text, and hashed like it."""
        level = super().__new__(cls, text)
        level.place = place
        return level

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]
        return str(self), self.place


def in_order(parts: Iterable[Hashable], levels: Sequence[str]) -> list[Hashable]:
    """Parts of keys that know their place among the levels of an ordered attribute; as they are where it has none."""
    places = {level: place for place, level in enumerate(levels)}
    return [Level(part, places[part]) if isinstance(part, str) and part in places else part for part in parts]


class Names(Sequence[Key]):
    """Keys of groups by one attribute, made of their names when asked for: a million numbers need no million tuples."""

    __slots__ = ("names",)

    def __init__(self, names: Sequence[Hashable]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    @overload
    def __getitem__(self, place: int) -> Key: ...

    @overload
    def __getitem__(self, place: slice) -> Names: ...

    def __getitem__(self, place: int | slice) -> Key | Names:
        return Names(self.names[place]) if isinstance(place, slice) else (self.names[place],)


def some_of(keys: Sequence[Key], places: npt.NDArray[np.int64]) -> Sequence[Key]:
    """The keys at some places."""
    if isinstance(keys, Names):
        return Names([keys.names[i] for i in places.tolist()])
    return [keys[i] for i in places.tolist()]


def labels_of(keys: Sequence[Key]) -> Sequence[Label]:
    """Keys as users know them: plain names where there is one attribute."""
    return keys.names if isinstance(keys, Names) else keys


def keys_of(labels: Sequence[Label]) -> Sequence[Key]:
    """Names or tuples as keys."""
    if len(labels) and isinstance(labels[0], tuple):
        tuples: Sequence[Key] = labels  # type: ignore[assignment]
        return tuples if len(tuples[0]) > 1 else Names([key[0] for key in tuples])
    return Names(labels)


def key_of(label: Label) -> Key:
    """One label as a key."""
    return label if isinstance(label, tuple) else (label,)


def name_of(label: Label) -> str:
    """A group as people read it."""
    return " · ".join(str(part) for part in key_of(label))


def level_name(label: Label, attributes: Sequence[str]) -> str:
    """A group as people read it; a level that is missing, or says so, with its attribute: ``female · race missing``."""
    key = key_of(label)
    if len(key) != len(attributes):
        return name_of(label)
    return " · ".join(_level(attribute, part) for attribute, part in zip(attributes, key, strict=True))


def _level(attribute: str, part: Hashable) -> str:
    if part == MISSING:
        return f"{attribute} missing"
    return f"{attribute} {part}" if isinstance(part, str) and part.strip().casefold() in UNKNOWN_LEVELS else str(part)


def naming(attributes: Sequence[str]) -> Callable[[Label], str]:
    """`level_name` for groups by these attributes."""
    return partial(level_name, attributes=tuple(attributes))


def named_by(label: Label, attributes: Sequence[str]) -> str:
    """A group as a sentence names it: ``DE``; of several attributes ``channel Web, zip Rural``."""
    key = key_of(label)
    if len(key) == 1:
        return level_name(label, attributes)
    return ", ".join(f"{a} {'missing' if part == MISSING else part}" for a, part in zip(attributes, key, strict=True))


def part_of(value: Any) -> Hashable:
    """One value of an attribute as part of a key.

    Nulls are a group of their own, numbers and text stay what they are, midnight is a day, the rest is shown.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return MISSING
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, datetime.datetime) and value.time() == datetime.time() and value.tzinfo is None:
        value = value.date()
    return value if isinstance(value, str | int | float | Range) else str(value)


def rank(part: Hashable) -> tuple[Any, ...]:
    """An order over values of any type: numbers, ranges and levels in their order, text, and what is missing last."""
    if part == MISSING:
        return (3, "")
    if isinstance(part, Range):
        return (1, part.lower, part.upper)
    if isinstance(part, Level):
        return (1, part.place, part.place)
    if isinstance(part, str) and (interval := INTERVAL.fullmatch(part)):
        return (1, float(interval[1]), float(interval[2]))
    return (0, part) if isinstance(part, int | float) else (2, str(part))


# ------------------------------------------------------------------------------------- levels that may be none


def _plain_name(level: Hashable) -> str | None:
    """A level without surrounding spaces and case; None where it is not text, or what is missing anyway."""
    return level.strip().casefold() if isinstance(level, str) and level != MISSING else None


def levels_by_attribute(keys: Iterable[Key], attributes: Sequence[str]) -> dict[str, list[Hashable]]:
    """The distinct levels of every attribute, in the order in which they occur."""
    levels: list[dict[Hashable, None]] = [{} for _ in attributes]
    for key in keys:
        for seen, part in zip(levels, key, strict=False):
            seen[part] = None
    return {attribute: list(seen) for attribute, seen in zip(attributes, levels, strict=True)}


def find_unknown(levels: Sequence[Hashable], names: Container[str] = UNKNOWN_LEVELS) -> list[str]:
    """The levels of an attribute that have one of these names, whatever their case and surrounding spaces.

    NA among codes of two letters is one of them, Namibia or North America, unless names are given.
    """
    codes = sum(isinstance(level, str) and len(level) == _CODE and level.isupper() for level in levels)
    spared = "NA" if names is UNKNOWN_LEVELS and codes > max(_CODE, len(levels) / 2) else None
    return [str(level) for level in levels if level != spared and _plain_name(level) in names]


def find_similar(levels: Sequence[Hashable]) -> list[tuple[str, ...]]:
    """Levels that differ by case or surrounding spaces only, those that belong together as a tuple."""
    alike: dict[str, list[str]] = {}
    for level in levels:
        name = _plain_name(level)
        if name is not None:
            alike.setdefault(name, []).append(str(level))
    return [tuple(several) for several in alike.values() if len(several) > 1]


# ------------------------------------------------------------------------------------------------ keys of two places


def match(wanted: Sequence[Key], keys: Sequence[Key], where: str = "frame") -> list[int]:
    """The place among `keys` of every wanted key; −1 where it is not there.

    A key that is there as it is (same values of the same types) is taken. Otherwise one that reads the same, however a
    frame holds it: 1, 1.0 and "1"; a date and its midnight. If several read the same, nobody can tell which is meant.
    """
    exact = {_typed(key): place for place, key in enumerate(keys)}
    matches = [exact.get(_typed(key), -1) for key in wanted]
    open_places = [i for i, place in enumerate(matches) if place < 0]
    if not open_places:
        return matches
    used = set(matches)
    by_name: dict[str, list[int]] = {}
    for place, key in enumerate(keys):
        by_name.setdefault(reading(key), []).append(place)
    asking: dict[str, list[int]] = {}
    for i in open_places:
        asking.setdefault(reading(wanted[i]), []).append(i)
    for text, places in asking.items():
        candidates = [place for place in by_name.get(text, []) if place not in used]
        if not candidates:
            continue
        if len(candidates) > 1 or len(places) > 1:
            candidates_shown = [keys[p] for p in candidates] if len(candidates) > 1 else [wanted[i] for i in places]
            raise InputError.ambiguous(
                where,
                f"reads like several: {', '.join(_shown(key) for key in candidates_shown[:3])}",
                "Give the keys in the type they had before.",
                place=f"group {name_of(wanted[places[0]])!r}",
            )
        matches[places[0]] = candidates[0]
    return matches


def _typed(key: Key) -> tuple[Any, ...]:
    """A key together with the types of its values: True, 1 and 1.0 are equal in Python and not the same group."""
    return tuple(("str" if isinstance(part, str) else type(part).__name__, part) for part in key)


def _shown(key: Key) -> str:
    return " · ".join(f"{part!r} ({type(part).__name__})" for part in key)


def reading(key: Key) -> str:
    """A key as text that is the same however a frame holds its values: 1, 1.0 and "1"; a date and its midnight."""
    return "\x1f".join(part_reading(part) for part in key)


# Zeros behind a time of day, which csv may have and others have not: 03:04:05.000000, 03:04:05.120.
_EMPTY_FRACTION = re.compile(r"(:[0-9]{2}(?:\.[0-9]*[1-9])?)\.?0*(?=$|[+-][0-9]{2}:[0-9]{2}$)")
# A time with its distance from UTC, as csv may have it: 04:04:05+01:00 (pandas), +0100 and Z (PyArrow), +00 (DuckDB).
_ZONED = re.compile(r"([0-9-]{10})[ T]([0-9]{2}:[0-9]{2}:[0-9]{2})([.][0-9]+)?(Z|([+-][0-9]{2})(?::?([0-9]{2}))?)")


def _in_utc(text: str) -> str:
    """A time with a zone as the same time in UTC, as columns with types have it; every other text as it is."""
    zoned = _ZONED.fullmatch(text)
    if zoned is None:
        return text
    day, time, fraction, _, hours, minutes = zoned.groups("")
    distance = datetime.timedelta(hours=int(hours or 0), minutes=int(f"{hours[:1]}{minutes or 0}"))
    try:
        moment = datetime.datetime.fromisoformat(f"{day} {time}") - distance
    except (ValueError, OverflowError):  # no such day, or beyond the years there are
        return text
    return f"{moment}{fraction}+00:00"


def part_reading(part: Hashable) -> str:
    """One value of a key as such text."""
    if isinstance(part, Range):
        return f"[{part.lower!r}, {part.upper!r})"
    reading = _in_utc(str(part))
    if isinstance(part, bool) or reading in {"True", "False"}:
        return reading.lower()
    if ":" in reading:
        reading = _EMPTY_FRACTION.sub(r"\1", reading)
    for midnight in (" 00:00:00", "T00:00:00"):
        if reading.endswith(midnight) or reading.endswith(f"{midnight}.000000"):
            return reading.split(midnight, maxsplit=1)[0]
    try:
        number = float(reading)
    except ValueError:
        return (
            reading.replace("T", " ")
            if len(reading) >= 19 and reading[10:11] == "T" and reading[:4].isdigit()
            else reading
        )
    # Leading zeros, 1.10 and the like are part of a name, not of a number: a number reads back as it stands.
    if not np.isfinite(number):
        return reading
    plain = str(int(number)) if number == int(number) else repr(number)
    return plain if reading in {plain, repr(number)} or _EXPONENT.fullmatch(reading) else reading


_EXPONENT = re.compile(r"-?[1-9](\.[0-9]*[1-9])?e\+[0-9]{2,3}")  # 1e+15, as DuckDB writes a large number to csv
_POINT_ZERO = re.compile(r"(-?[0-9]+)\.0+")
_TRUTH = {"true": "1", "false": "0"}


def find_alike(parts: Iterable[Hashable]) -> tuple[Hashable, Hashable] | None:
    """Two levels of an attribute that read as one number or truth value: "1" and 1.0, "1" and "1.0", True and "true".

    Files that were written at different times hold such pairs: a column of whole numbers is one of floats where some
    are missing. They are one level to everyone who reads them.
    """
    levels = [part for part in parts if part != MISSING]
    kinds = {type(part) for part in levels}
    if len(kinds) < 2 and not any(isinstance(part, str) and _may_be_alike(part) for part in levels):
        return None
    seen: dict[str, Hashable] = {}
    for part in levels:
        first = seen.setdefault(_plain_reading(part), part)
        if first is not part:
            return first, part
    return None


def _may_be_alike(text: str) -> bool:
    return (text.endswith("0") and "." in text) or text.lower() in _TRUTH or text == "-0"


def _plain_reading(part: Hashable) -> str:
    text = str(part)
    number = _POINT_ZERO.fullmatch(text)
    if text == "-0" or (number and number[1] == "-0"):
        return "0"
    return number[1] if number else _TRUTH.get(text.lower(), text)


def check_alike(parameter: str, parts: Iterable[Hashable], *attribute: str) -> None:
    """Refuse levels of an attribute that read as one.

    Args:
        parameter: The parameter that named them.
        parts: The distinct levels.
        attribute: What the attribute is called, where it has a name.
    """
    pair = find_alike(parts)
    if pair is None:
        return
    described = [repr(str(part)) if isinstance(part, str) else f"{part!r} ({type(part).__name__})" for part in pair]
    problem = f"holds {described[0]} and {described[1]}, which read as one level"
    raise InputError.ambiguous(parameter, problem, "Write each level in one way.", *attribute)


# --------------------------------------------------------------------------------------------------- labels of users


def checked_labels(
    labels: Sequence[Label] | npt.NDArray[Any] | None, attributes: Sequence[str] | None, size: int
) -> tuple[Sequence[Key], tuple[str, ...]]:
    """Keys and names of the attributes, from what a user gave as labels."""
    names = _listed(labels, size)
    if len(names) != size:
        raise InputError.mismatch(
            "labels", f"has {len(names)} names, but theta has {size}", "Give one name for each group."
        )
    lengths = {len(name) if isinstance(name, tuple) else 0 for name in names} if labels is not None else {0}
    if len(lengths) > 1 or (lengths == {0} and isinstance(next(iter(names), None), tuple)):
        raise InputError.wrong_type(
            "labels",
            "mixes names and tuples, or tuples of different lengths",
            "Give all names, or all tuples with one value for each attribute.",
            names,
        )
    keys = keys_of(names)
    if labels is not None:
        _check_values(keys)
    width = lengths.pop() or 1
    if attributes is None:
        attributes = ["group"] if width == 1 else [f"attribute_{i + 1}" for i in range(width)]
    named = isinstance(attributes, list | tuple) and all(isinstance(a, str) and a for a in attributes)
    if not named or len(set(attributes)) < len(attributes):
        raise InputError.duplicate(
            "attributes", "must be distinct names", "Name each attribute once.", attributes, form="must"
        )
    if len(attributes) != width:
        raise InputError.mismatch(
            "attributes",
            f"has {len(attributes)} names, but the labels have {width} values each",
            "Name each attribute of the labels once.",
            tuple(attributes),
        )
    if labels is not None:
        _check_distinct(keys)
    return keys, tuple(attributes)


def _listed(labels: Sequence[Label] | npt.NDArray[Any] | None, size: int) -> Sequence[Label]:
    if labels is None:
        return range(size)
    if isinstance(labels, range):
        return labels
    if isinstance(labels, str | bytes | set | frozenset | dict) or not hasattr(labels, "__iter__"):
        raise InputError.wrong_type(
            "labels", "is not a sequence of names", "Give a list with one name per group.", labels
        )
    listed = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    names = (tuple(map(_plain, name)) if isinstance(name, list | tuple) else _plain(name) for name in listed)
    return tuple(in_order(names, _levels_of(labels)))


def _levels_of(labels: Any) -> list[str]:
    """The levels of an ordered categorical of pandas, in their order; none of other labels."""
    dtype = getattr(labels, "dtype", None)
    levels = getattr(dtype, "categories", ()) if getattr(dtype, "ordered", False) is True else ()
    return [level for level in levels if isinstance(level, str)]


_TWO_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")  # one character as UTF-16 has it; JSON reads it as one


def _plain(value: Any) -> Any:
    """A NumPy number or text as Python's own: NumPy's compare element by element, and print with their type.

    Two halves of a character (surrogates) become that character: from JSON they would come back so.
    """
    if isinstance(value, np.generic) and value.dtype.kind in "biufUS":
        value = value.item()
    if type(value) is str and not value.isascii() and _TWO_HALVES.search(value):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return value


def _check_values(keys: Sequence[Key]) -> None:
    names = [keys.names] if isinstance(keys, Names) else keys
    for key in names:
        for part in key:
            if part is None or type(part).__name__ in {"NAType", "NaTType"}:
                raise InputError.invalid_data("labels", f"holds {part!r}, a missing value", "Name that group.")
            if isinstance(part, float | np.floating) and not math.isfinite(part):
                raise InputError.invalid_data("labels", "holds NaN or infinity", "Name that group.")


def _check_distinct(keys: Sequence[Key]) -> None:
    plain = labels_of(keys)
    try:
        distinct = len(set(plain))
    except TypeError as error:
        raise InputError.wrong_type(
            "labels", "holds unhashable values", "Use text, numbers or tuples.", plain
        ) from error
    if distinct < len(plain):
        seen: set[Label] = set()
        repeated = next(name for name in plain if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        counts = f"{amount(len(plain), 'row')}, {amount(distinct, 'group')}"
        raise InputError.duplicate(
            "labels",
            f"holds group {shorten(repeated)} more than once ({counts})",
            "Give one row per group: pool the repeated ones, or name a further attribute that distinguishes them.",
        )
    for column in [keys.names] if isinstance(keys, Names) else zip(*keys, strict=True):
        check_alike("labels", dict.fromkeys(column))


MOST_ATTRIBUTES = 3  # in one margin beside the full crossing: four-way patterns are cells in practice
LIMIT = 60  # margins: six attributes have 42, seven 64; each further one costs the others a little power
_MOST_CROSSED = 8  # attributes of which all sets are considered: 162 of four to seven of them
_BETWEEN = 0.25  # of the significance level, for margins of two or more attributes that are not the cells
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
    """All margins of up to `most_attributes` attributes, and the cells, each partition once.

    Equal partitions (region × state is state where states lie in regions) are listed under their shortest name.
    Attributes with a single level have no margin. Where there would be more than `limit` margins, all single
    attributes and the cells stay, then pairs, then triples, those with the fewest possible levels first.

    Half of the significance level goes to single attributes, a quarter to what is between and a quarter to the cells,
    also where one attribute makes them all (zip of region, state, zip), which then has both. Where nothing is between,
    its quarter goes to cells of several attributes, else to the single attributes.

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


def larger_margins(codes: IntArray, margins: Sequence[Margin]) -> tuple[Margin, ...]:
    """Margins of more attributes than are tested and fewer than all: without a share of the significance level.

    Args:
        codes: The level of each attribute, (K, A).
        margins: Those that are tested, as `margins_of` lists them.

    Returns:
        The margins, those of fewer attributes first; partitions that are tested are not among them.
    """
    count = codes.shape[1]
    columns = [number_levels(codes[:, a]) for a in range(count)]
    varying = [a for a, column in enumerate(columns) if column.max(initial=0) > 0]
    known = {margin.codes.tobytes() for margin in margins}
    larger = []
    for size in range(MOST_ATTRIBUTES + 1, min(len(varying), _MOST_CROSSED + 1)):
        for chosen in combinations(varying, size):
            partition = cross_levels([columns[a] for a in chosen])
            if partition.tobytes() not in known:
                known.add(partition.tobytes())
                larger.append(Margin(chosen, partition, int(partition.max()) + 1, 0.0))
    return tuple(larger)


def _candidates(sizes: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Sets of attributes with more than one level: by their size, then by how many levels they can have."""
    varying = [a for a, size in enumerate(sizes) if size > 1]
    for size in range(1, most + 1):
        yield from sorted(
            combinations(varying, size), key=lambda chosen: (float(np.prod([float(sizes[a]) for a in chosen])), chosen)
        )


def _share_out(partitions: Sequence[tuple[tuple[int, ...], IntArray]]) -> tuple[Margin, ...]:
    """Margins with their shares of the significance level; the cells come last, also where one attribute makes them."""
    sizes = [len(chosen) for chosen, _ in partitions]
    by_one_attribute = sizes[-1:] == [1]
    counts = Counter(sizes if by_one_attribute else sizes[:-1])
    between = [size for size in counts if size > 1]
    of_size = {size: _BETWEEN / len(between) / counts[size] for size in between}
    of_cells = _CELLS if between or by_one_attribute else _CELLS + _BETWEEN
    if counts[1]:
        of_size[1] = (1 - of_cells - (_BETWEEN if between else 0)) / counts[1]
    shares = [of_size.get(size, 0.0) for size in sizes[:-1]]
    shares += [of_cells + (of_size[1] if by_one_attribute else 0)] if sizes else []
    return tuple(
        Margin(chosen, partition, int(partition.max()) + 1, share / sum(shares))
        for (chosen, partition), share in zip(partitions, shares, strict=True)
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
