"""One attribute of the groups: its values in order, and conditions on them in words."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from faultlines import text
from faultlines.estimates.labels import MISSING, Range, rank

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from faultlines.estimates.estimates import BoolArray, IntArray

LISTED = 12  # values named in one condition


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """One attribute: its values in order, and which of them each group has.

    Attributes:
        is_ordered: Whether the values have an order, so that ranges mean something.
        missing: The code of groups without a value, or −1.
    """

    name: str
    values: tuple[Hashable, ...]
    codes: IntArray
    is_ordered: bool
    missing: int

    @classmethod
    def of(cls, name: str, parts: Sequence[Hashable]) -> Attribute:
        """The attribute whose values are those of some groups."""
        found = set(parts)
        known = [value for value in found if value != MISSING]
        ordered = _has_order(known)
        values = sorted(known, key=_interval if ordered else rank) + [MISSING] * (MISSING in found)
        code = {value: i for i, value in enumerate(values)}
        codes = np.fromiter((code[part] for part in parts), dtype=np.int64, count=len(parts))
        shown = _quoted(name)
        return cls(shown, tuple(values), codes, ordered and len(known) > 1, len(known) if MISSING in found else -1)

    def runs(self, allowed: BoolArray) -> list[tuple[int, int]]:
        """First and last of every run of allowed values; what is missing is not part of the order."""
        places = np.flatnonzero(allowed)
        places = places[places != self.missing]
        if not places.size:
            return []
        ends = np.flatnonzero(np.diff(places) > 1)
        first, last = places[np.concatenate(([0], ends + 1))], places[np.concatenate((ends, [places.size - 1]))]
        return list(zip(first.tolist(), last.tolist(), strict=True))

    def cost(self, allowed: BoolArray) -> int:
        """How much there is to read in a condition: one for the attribute, one for each value or range."""
        if allowed.all():
            return 0
        if self.is_ordered:
            return 1 + len(self.runs(allowed)) + int(self.missing >= 0 and bool(allowed[self.missing]))
        inside = int(allowed.sum())
        return 1 + (len(allowed) - inside if self._is_rather_a_complement(allowed) else inside)

    def condition(self, allowed: BoolArray) -> str:
        """The condition in words."""
        if self.is_ordered:
            runs = self.runs(allowed)
            if runs and self.missing >= 0 and runs[0] == (0, len(self.values) - 2):
                return f"{self.name} ≠ {MISSING}"
            told = self._told(allowed)
            single = len(told) == 1 and (not runs or runs[0][0] == runs[0][1])
            is_plain = single and not isinstance(self.values[runs[0][0]] if runs else MISSING, Range)
            return f"{self.name} {'= ' if is_plain else ''}{' or '.join(told)}"
        complement = self._is_rather_a_complement(allowed)
        named = self._told(~allowed if complement else allowed)
        if len(named) == 1:
            return f"{self.name} {'≠' if complement else '='} {named[0]}"
        return f"{self.name} {'not in' if complement else 'in'} {{{', '.join(named)}}}"

    def words(self, allowed: BoolArray) -> str:
        """Some of its values as a sentence names them: ``age 40–49 or 60+``, ``device web``."""
        told = self._told(allowed)
        return f"{self.name} {', '.join(told) if told[-1].startswith('…') else text.either(told)}"

    def _told(self, allowed: BoolArray) -> list[str]:
        """The values, or the ranges of them; of very many the first."""
        if not self.is_ordered:
            named = [_quoted(self.values[i]) for i in np.flatnonzero(allowed)[: LISTED + 1].tolist()]
            count = int(allowed.sum())
            return [*named[:LISTED], *([f"… +{count - LISTED}"] if count > LISTED else [])]
        runs = self.runs(allowed)
        told = [self._span(first, last) for first, last in runs[:LISTED]]
        told += [f"… +{len(runs) - LISTED}"] if len(runs) > LISTED else []
        return told + ([MISSING] if self.missing >= 0 and allowed[self.missing] else [])

    def _is_rather_a_complement(self, allowed: BoolArray) -> bool:
        outside = int(np.sum(~allowed))
        return 0 < 2 * outside <= int(np.sum(allowed))

    def _span(self, first: int, last: int) -> str:
        """A range of values in words."""
        low, high = self.values[first], self.values[last]
        if isinstance(low, Range) and isinstance(high, Range):
            return str(Range(low.lower, high.upper, low.whole and high.whole))
        if first == last:
            return _quoted(low)
        if isinstance(low, str) and isinstance(high, str) and not (_DATE.fullmatch(low) or _NUMBER.fullmatch(low)):
            return _joined(_interval(low)[0], _interval(high)[1])
        plain = str(low).isdigit() and str(high).isdigit()
        return f"{low}–{high}" if plain else f"{low} to {high}"


_DATE = re.compile(r"\d{4}-\d{2}(-\d{2})?([ T]\d{2}:\d{2}(:\d{2})?)?")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")  # leading zeros are part of a name
_FROM_TO = re.compile(r"(\d+(?:\.\d+)?)\s*(?:-|–|to)\s*(\d+(?:\.\d+)?)")
_FROM = re.compile(
    r"(?:≥|>=|>|over\s|(?:more|greater|older) than\s)\s*(\d+(?:\.\d+)?)|(\d+(?:\.\d+)?)\s*(?:\+|or more|and over)"
)
_TO = re.compile(r"(?:≤|<=|<|under\s|below\s|up to\s|(?:less|fewer|younger) than\s)\s*(\d+(?:\.\d+)?)")


def _interval(value: Hashable) -> tuple[float, float]:
    """A value of an ordered attribute as a range of numbers: 45–49, 65+, below 18, a date, a number itself."""
    if isinstance(value, Range):
        return value.lower, value.upper
    if isinstance(value, bool | np.bool_):
        raise TypeError(value)
    words = str(value).strip().casefold()
    if isinstance(value, datetime.datetime):
        since = value.replace(tzinfo=None) - (value.utcoffset() or datetime.timedelta()) - datetime.datetime.min
        value = since / datetime.timedelta(microseconds=1)
    elif isinstance(value, datetime.date):
        value = value.toordinal()
    elif _DATE.fullmatch(words):
        value = float(re.sub(r"\D", "", words).ljust(14, "0"))
    elif _NUMBER.fullmatch(words):
        value = float(words)
    if isinstance(value, int | float | np.number):
        return float(value), float(value)
    if found := _FROM_TO.fullmatch(words):
        return float(found[1]), float(found[2])
    if found := _FROM.fullmatch(words):
        return float(found[1] or found[2]), np.inf
    if (found := _TO.fullmatch(words)) is None:
        raise ValueError(words)
    return -np.inf, float(found[1])


def _has_order(values: Sequence[Hashable]) -> bool:
    """Whether all values are numbers, dates or ranges of one kind that do not overlap."""
    if len({float if isinstance(value, int | float | np.number) else type(value) for value in values}) != 1:
        return False
    try:
        found = sorted(map(_interval, values))
    except (TypeError, ValueError):
        return False
    return all(low <= high for low, high in found) and all(a[1] <= b[0] and a < b for a, b in pairwise(found))


def _joined(low: float, high: float) -> str:
    if low == -np.inf:
        return f"up to {high:.12g}"
    return f"{low:.12g}+" if high == np.inf else f"{low:.12g}–{high:.12g}"


def _quoted(value: Hashable) -> str:
    """A value as it can stand in a list: in quotes where it would be read as several, or as none."""
    words = text.printable(str(value))
    odd = words != words.strip() or not words or re.search(r'[,{}"=≠()]|\b(and|or|nor|in)\b', words)
    return json.dumps(words, ensure_ascii=False) if odd and words != MISSING else words
