"""What the groups of a cluster have in common: a short rule over their attributes, for all clusters of a partition.

A rule is a few boxes: in each, every attribute is free, lies in a range (if its values have an order) or is one of some
values. It is exact where that is short, and otherwise the best short approximation that a search finds, with its fit
beside it. No two rules of a partition describe the same group: of two clusters one is whatever the other is not, and
of several each keeps clear of what better rules describe.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise, product
from typing import Self

import numpy as np

from faultlines import formats
from faultlines.estimates.labels import INTERVAL, MISSING, Key, Level, Names, Range, rank
from faultlines.types import BoolArray, FloatArray, IntArray

Box = tuple[BoolArray, ...]  # for each attribute, which of its values lie inside

# ---------- One attribute of the groups: its values in order, and conditions on them in words.


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
        distinct = set(parts)
        present = [value for value in distinct if value != MISSING]
        ordered = _has_order(present)
        values = sorted(present, key=_interval if ordered else rank) + [MISSING] * (MISSING in distinct)
        code = {value: i for i, value in enumerate(values)}
        codes = np.fromiter((code[part] for part in parts), dtype=np.int64, count=len(parts))
        quoted = _quote(name)
        return cls(
            quoted, tuple(values), codes, ordered and len(present) > 1, len(present) if MISSING in distinct else -1
        )

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
        return 1 + (len(allowed) - inside if self._prefers_complement(allowed) else inside)

    def condition(self, allowed: BoolArray) -> str:
        """The condition in words."""
        if self.is_ordered:
            runs = self.runs(allowed)
            if runs and self.missing >= 0 and runs[0] == (0, len(self.values) - 2):
                return f"{self.name} ≠ {MISSING}"
            outside = np.flatnonzero(~allowed)
            if len(runs) > 1 and outside.size == 1 and not _is_range(self.values[int(outside[0])]):
                return f"{self.name} ≠ {_quote(self.values[int(outside[0])])}"
            texts = self._list_values(allowed)
            single = len(texts) == 1 and (not runs or runs[0][0] == runs[0][1])
            is_plain = single and not _is_range(self.values[runs[0][0]] if runs else MISSING)
            return f"{self.name} {'= ' if is_plain else ''}{' or '.join(texts)}"
        complement = self._prefers_complement(allowed)
        named = self._list_values(~allowed if complement else allowed)
        if len(named) == 1:
            return f"{self.name} {'≠' if complement else '='} {named[0]}"
        return f"{self.name} {'not in' if complement else 'in'} {{{', '.join(named)}}}"

    def words(self, allowed: BoolArray) -> str:
        """Some of its values as a sentence names them: ``age 40–49 or 60+``, ``device web``."""
        texts = self._list_values(allowed)
        return f"{self.name} {', '.join(texts) if texts[-1].startswith('…') else formats.either(texts)}"

    def _list_values(self, allowed: BoolArray) -> list[str]:
        """The values, or the ranges of them; of very many the first."""
        if not self.is_ordered:
            named = [_quote(self.values[i]) for i in np.flatnonzero(allowed)[: LISTED + 1].tolist()]
            count = int(allowed.sum())
            return [*named[:LISTED], *([f"… +{count - LISTED}"] if count > LISTED else [])]
        runs = self.runs(allowed)
        texts = [self._span(first, last) for first, last in runs[:LISTED]]
        texts += [f"… +{len(runs) - LISTED}"] if len(runs) > LISTED else []
        return texts + ([MISSING] if self.missing >= 0 and allowed[self.missing] else [])

    def _prefers_complement(self, allowed: BoolArray) -> bool:
        outside = int(np.sum(~allowed))
        return 0 < 2 * outside <= int(np.sum(allowed))

    def _span(self, first: int, last: int) -> str:
        """A range of values in words."""
        low, high = self.values[first], self.values[last]
        if isinstance(low, Range) and isinstance(high, Range):
            return str(Range(low.lower, high.upper, low.whole and high.whole))
        if isinstance(low, str) and isinstance(high, str) and INTERVAL.fullmatch(low) and INTERVAL.fullmatch(high):
            return _between(low, high)
        if first == last:
            return _quote(low)
        is_text = isinstance(low, str) and isinstance(high, str)
        if is_text and not (_DATE.fullmatch(str(low)) or _NUMBER.fullmatch(str(low))):
            try:
                return _join_ends(_interval(str(low))[0], _interval(str(high))[1])
            except ValueError:  # levels that have an order of their own
                return f"{_quote(low)} to {_quote(high)}"
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
    ends = INTERVAL.fullmatch(value) if isinstance(value, str) else None
    if ends is not None:
        value = Range(float(ends[1]), float(ends[2]))
    elif isinstance(value, Level):
        value = Range(value.place, value.place)
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
    if match := _FROM_TO.fullmatch(words):
        return float(match[1]), float(match[2])
    if match := _FROM.fullmatch(words):
        return float(match[1] or match[2]), np.inf
    if (match := _TO.fullmatch(words)) is None:
        raise ValueError(words)
    return -np.inf, float(match[1])


def _is_range(value: Hashable) -> bool:
    return isinstance(value, Range) or (isinstance(value, str) and INTERVAL.fullmatch(value) is not None)


def _between(first: str, last: str) -> str:
    """The range from the first to the last of some intervals in words: (25, 35] and (35, 45] are 25 to 45."""
    low, high = _interval(first)[0], _interval(last)[1]
    if low == -np.inf and last.endswith("]"):
        return f"up to {high:.12g}"
    if high == np.inf and first.startswith("("):
        return f"above {low:.12g}"
    return str(Range(low, high))


def _has_order(values: Sequence[Hashable]) -> bool:
    """Whether all values are numbers, dates or ranges of one kind that do not overlap."""
    if len({float if isinstance(value, int | float | np.number) else type(value) for value in values}) != 1:
        return False
    try:
        intervals = sorted(map(_interval, values))
    except (TypeError, ValueError):
        return False
    return all(low <= high for low, high in intervals) and all(a[1] <= b[0] and a < b for a, b in pairwise(intervals))


def _join_ends(low: float, high: float) -> str:
    if low == -np.inf:
        return f"up to {high:.12g}"
    return f"{low:.12g}+" if high == np.inf else f"{low:.12g}–{high:.12g}"


def _quote(value: Hashable) -> str:
    """A value as it can stand in a list: in quotes where it would be read as several, or as none."""
    words = formats.printable(str(value))
    odd = words != words.strip() or not words or re.search(r'[,{}"=≠()]|\b(and|or|nor|in)\b', words)
    return json.dumps(words, ensure_ascii=False) if odd and words != MISSING else words


# ---------- The search for a few boxes that hold the groups of a cluster: in a box, every attribute is free or has


_BOXES = 3  # that a rule may join with "or"
_WORTH = 0.03  # gain in F₁ that pays for another box
_LENGTH = 0.004  # of F₁ that each value, range and condition costs
_PURITY = (1.0, 8.0)  # how much worse a wrong group is than a missing one, tried in turn
_BARRED = 1e3  # the same for a group that another rule describes already
_STARTS = 4  # attributes that a search begins with
_MOST_ATTRIBUTES = 8  # up to which every choice of conditions is tried


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """Groups among which boxes are looked for.

    Attributes:
        columns: Their attributes.
        weight: How much each of them counts; above zero.
        barred: Groups that no box may hold.
    """

    columns: tuple[Attribute, ...]
    weight: FloatArray
    barred: BoolArray

    def inside(self, box: Box, *, but: int = -1) -> BoolArray:
        """The groups in a box; the condition on one attribute can be left aside."""
        inside = np.ones(self.weight.size, dtype=bool)
        for i, (column, allowed) in enumerate(zip(self.columns, box, strict=True)):
            if i != but and not allowed.all():
                inside &= allowed[column.codes]
        return inside

    def inside_any(self, boxes: Sequence[Box]) -> BoolArray:
        """The groups in one of several boxes."""
        inside = np.zeros(self.weight.size, dtype=bool)
        for box in boxes:
            inside |= self.inside(box)
        return inside

    def cost(self, boxes: Sequence[Box]) -> int:
        """How much there is to read."""
        return sum(column.cost(allowed) for box in boxes for column, allowed in zip(self.columns, box, strict=True))

    def fit(self, inside: BoolArray, want: BoolArray) -> tuple[float, float]:
        """Of what is inside, the share that is wanted; of what is wanted, the share inside. One only where all is."""
        right = float(self.weight[inside & want].sum())
        wrong, missed = (float(self.weight[mask].sum()) for mask in (inside & ~want, want & ~inside))
        below = float(np.nextafter(1.0, 0.0))  # a single small group must not be rounded away
        matches = min(right / (right + wrong), below) if wrong else float(right > 0)
        covers = min(right / (right + missed), below) if missed else float(right > 0)
        return matches, covers

    def value(self, inside: BoolArray, want: BoolArray, cost: int) -> float:
        """How good a rule is: F₁, less a little for its length; −∞ if it holds what is barred."""
        if np.any(inside & self.barred):
            return -np.inf
        matches, covers = self.fit(inside, want)
        return 2 * matches * covers / max(matches + covers, 1e-300) - _LENGTH * cost

    def exact_box(self, want: BoolArray) -> Box | None:
        """The shortest box that holds just these groups, if one does.

        Any such box lies around the values these groups have, so there is one if and only if that smallest one holds
        no others. Conditions are then dropped, ranges closed over values that no other group has, and values added
        that make a list shorter.
        """
        smallest = self._everything()
        for column, allowed in zip(self.columns, smallest, strict=True):
            allowed[:] = np.bincount(column.codes[want], minlength=len(column.values)) > 0
        if np.any(self.inside(tuple(smallest)) & ~want):
            return None
        best = tuple(smallest)
        choices = product((False, True), repeat=len(smallest)) if len(smallest) <= _MOST_ATTRIBUTES else iter(())
        for free in choices:
            box = [np.ones_like(b) if is_free else b for is_free, b in zip(free, smallest, strict=True)]
            if np.any(self.inside(tuple(box)) & ~want):
                continue
            widened = self._widen(box, want)
            if self.cost([widened]) < self.cost([best]):
                best = widened
        return best

    def cover(self, want: BoolArray) -> list[Box]:
        """A few boxes that together describe these groups as well as a greedy search can."""
        if int(want.sum()) <= _BOXES:  # name the groups themselves
            cells = [tuple(np.arange(len(c.values)) == c.codes[i] for c in self.columns) for i in np.flatnonzero(want)]
            return self._merge(cells, want)
        boxes, reached = self._add_box([], want)
        while len(boxes) < _BOXES:
            more, value = self._add_box(boxes, want)
            for i in range(len(more) - 1):  # a box chosen alone is often too wide once there are others
                others, better = self._add_box([*more[:i], *more[i + 1 :]], want)
                if better > value:
                    more, value = others, better
            if value < reached + _WORTH or more is boxes:  # no wanted group is left to add
                break
            boxes, reached = more, value
        return self._merge(boxes, want)

    # ------------------------------------------------------------------------------------------------ steps of it

    def _everything(self) -> list[BoolArray]:
        return [np.ones(len(column.values), dtype=bool) for column in self.columns]

    def _value_of(self, boxes: Sequence[Box], want: BoolArray) -> float:
        return self.value(self.inside_any(boxes), want, self.cost(boxes))

    def _widen(self, box: list[BoolArray], want: BoolArray) -> Box:
        """Values added that no other group in the box has, where that makes the rule shorter."""
        box = list(box)
        for i, column in enumerate(self.columns):
            others = self.inside(tuple(box), but=i) & ~want
            barred = np.bincount(column.codes[others], minlength=len(column.values)) > 0
            if np.array_equal(box[i], ~barred):
                continue
            filled = box[i].copy()
            until = np.concatenate(([0], np.cumsum(barred)))
            for (_, end), (start, _) in pairwise(column.runs(box[i]) if column.is_ordered else []):
                if until[start] == until[end]:
                    filled[end:start] = True
            for wider in (filled, ~barred):
                if column.cost(wider) < column.cost(box[i]):
                    box[i] = wider
        return tuple(box)

    def _merge(self, boxes: list[Box], want: BoolArray) -> list[Box]:
        """Two boxes made one, or none, wherever the rule fits as well and gets shorter."""
        for i, j in combinations(range(len(boxes)), 2):
            joined: Box = tuple(a | b for a, b in zip(boxes[i], boxes[j], strict=True))
            fewer = [box for k, box in enumerate(boxes) if k not in (i, j)]
            for box in (joined, self._widen(list(joined), want)):
                candidate = [*fewer, box] if self.inside(box).any() else fewer  # every value may have other groups
                if candidate and self._value_of(candidate, want) > self._value_of(boxes, want):
                    return self._merge(candidate, want)
        return boxes

    def _add_box(self, boxes: list[Box], want: BoolArray) -> tuple[list[Box], float]:
        """The best box to add, for the groups that are not yet in one, and how good the rule is then."""
        held = self.inside_any(boxes)
        rest = want & ~held
        if not rest.any():
            return boxes, self._value_of(boxes, want)
        cost = self.cost(boxes)
        candidates = [
            (self.value(held | self.inside(box), want, cost + self.cost([box])), box)
            for box in self._candidates(rest, ~want)
        ]
        value, box = max(candidates, key=lambda pair: pair[0])
        for i in range(len(box)):  # a condition that few people depend on is not worth reading
            freer = (*box[:i], np.ones_like(box[i]), *box[i + 1 :])
            if all(allowed.all() for allowed in freer):
                continue
            reached = self.value(held | self.inside(freer), want, cost + self.cost([freer]))
            if reached > value:
                value, box = reached, freer
        return [*boxes, box], value

    def _candidates(self, want: BoolArray, avoid: BoolArray) -> Iterator[Box]:
        """Boxes around many wanted groups and few others, one attribute after the other improved till nothing helps."""
        count, wanted = len(self.columns), float(self.weight[want].sum())
        gained = np.where(want, self.weight, 0.0)
        lost = np.where(avoid, self.weight, 0.0) * np.where(self.barred, _BARRED, 1.0)
        lost[self.barred] = np.maximum(lost[self.barred], wanted)  # also a small one is not worth it
        for impurity, first in product(_PURITY, range(min(count, _STARTS))):
            box = self._everything()
            for _ in range(10):
                before = [allowed.copy() for allowed in box]
                for i in ((first + step) % count for step in range(count)):
                    others = self.inside(tuple(box), but=i)
                    codes, size = self.columns[i].codes[others], len(self.columns[i].values)
                    right, wrong = (
                        np.asarray(np.bincount(codes, mass[others], size), dtype=np.float64) for mass in (gained, lost)
                    )
                    box[i] = _best_values(self.columns[i], right, impurity * wrong, wanted)
                if all(np.array_equal(a, b) for a, b in zip(before, box, strict=True)):
                    break
            yield tuple(box)


def _best_values(column: Attribute, right: FloatArray, wrong: FloatArray, wanted: float) -> BoolArray:
    """The values (a single range, if they have an order) with the highest F = 2 TP / (TP + FP + all wanted).

    A ratio is maximised by maximising its numerator less F times its denominator, with F from the round before
    (Dinkelbach): a sum over values, so each counts for itself, and the best range is the best run of a sum.
    """
    share, chosen = 0.0, right > 0
    for _ in range(20):
        gain = (2 - share) * right - share * wrong
        if column.is_ordered:
            chosen = _best_run(gain, column.missing)
        else:
            chosen = (gain > 0) & (right > 0)
            if chosen.sum() > LISTED and np.sum(~chosen) > LISTED:
                chosen = np.zeros_like(chosen)
                chosen[np.argsort(-gain, kind="stable")[:LISTED]] = True
        hits = float(right[chosen].sum())
        of = hits + float(wrong[chosen].sum()) + wanted
        reached = 2 * hits / of if of > 0 else 0.0  # sizes of next to nothing have none
        if reached <= share:
            break
        share = reached
    absent = (right + wrong) == 0  # says nothing either way
    return np.ones_like(chosen) if np.all(chosen | absent) else chosen


def _best_run(gain: FloatArray, missing: int) -> BoolArray:
    """The run of values with the largest sum; what is missing joins by itself."""
    gains = gain if missing < 0 else gain[:missing]
    sums = np.concatenate(([0.0], np.cumsum(gains)))
    least = np.minimum.accumulate(sums[:-1])
    end = int(np.argmax(sums[1:] - least)) + 1
    start = int(np.argmin(sums[:end]))
    chosen = np.zeros(gain.size, dtype=bool)
    chosen[start:end] = True
    if missing >= 0:
        chosen[missing] = gain[missing] > 0
    return chosen


# --------------------


NO_RULE = "no short rule"
OTHERS = "all others"
_RIGHT = 0.5  # below this, a rule is wrong about most people it describes or silent on most of its cluster
_SHORT = 16  # length of a rule, in values, ranges and conditions, up to which exactness is worth it
_OTHERS_COST = 8  # of "all others", which is short, but sends the reader to all other rules
_SEARCHED = 8_000  # groups a search looks at, the largest of them
_MOST_SEARCHES = 40  # clusters with a search of their own, the largest of them; others have an exact rule or none
_MOST_VALUES = 100_000  # of one attribute, above which nobody reads its ranges


class Rule(str):
    """The rule as text; it also knows how well it fits.

    "matches 92% of its units, covers 85%" says: of the units the rule describes, 92% are in the cluster; of the
    units in the cluster, the rule describes 85%. Groups are counted instead where their sizes are not known. Where
    either would be less than half, there is no rule: the text is "no short rule", and the fit is what was reached.

    Args:
        words: The text.
        counted: What the shares are of: ``"units"`` or ``"groups"``.

    Attributes:
        matches: Of the people it describes, the share that is in the cluster.
        covers: Of the people in the cluster, the share it describes.
        condition: The rule without its fit.
        is_rest: Whether it says no more than "all others".

    Example:
        >>> import faultlines as fl
        >>> labels = [(country, device) for country in ("DE", "FR", "IN") for device in ("app", "web")]
        >>> both = fl.Estimates([0.0, 5.0, 0.1, 5.1, 0.0, 5.2], [0.1] * 6, labels, attributes=["country", "device"])
        >>> rule = fl.cluster(both).clusters[1].rule
        >>> rule, rule.matches, rule.covers, rule.exact, rule.fits
        ('device = web', 1.0, 1.0, True, True)
    """

    __slots__ = ("condition", "covers", "is_rest", "matches")

    matches: float
    covers: float
    condition: str
    is_rest: bool

    def __new__(cls, words: str, matches: float = 1.0, covers: float = 1.0, counted: str = "groups") -> Self:
        """A rule that is not exact says so."""
        condition = words
        if words != NO_RULE and min(matches, covers) < 1:
            words += f" (matches {_share(matches)} of its {counted}, covers {_share(covers)})"
        rule = super().__new__(cls, words)
        rule.matches, rule.covers = matches, covers
        rule.condition, rule.is_rest = condition, condition == OTHERS
        return rule

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

    @property
    def exact(self) -> bool:
        """Whether it describes the groups of the cluster and no others."""
        return self.fits and self.matches == 1 and self.covers == 1

    @property
    def fits(self) -> bool:
        """Whether there is a rule: one that is mostly wrong is none."""
        return self != NO_RULE


def _share(value: float) -> str:
    """A share in percent that reads 100% only when it is all."""
    return f"{min(value, 0.99) if value < 1 else 1:.0%}"


@dataclass(frozen=True, slots=True, eq=False)
class _Region:
    """The groups a rule describes: those in some boxes, or all but those."""

    boxes: tuple[Box, ...]
    but: bool
    inside: BoolArray

    def complement(self) -> _Region:
        return _Region(self.boxes, not self.but, ~self.inside)


class Population:
    """Groups by the values of their attributes. Nothing is read before the first rule is asked for.

    Args:
        keys: The groups.
        attributes: What their attributes are called.
        sizes: How many people each of them has; groups count equally where that is not known.
    """

    def __init__(self, keys: Sequence[Key], attributes: Sequence[str], sizes: FloatArray | None = None) -> None:
        self.keys, self.attributes = keys, attributes
        self.sizes = None if sizes is None or not np.any(sizes > 0) else sizes
        self._known: dict[bytes, tuple[Rule, ...]] = {}
        self._alone: dict[bytes, _Region | None] = {}
        self._along: dict[tuple[str, ...], Population] = {}

    def __reduce__(self) -> tuple[type[Population], tuple[object, ...]]:
        return Population, (self.keys, self.attributes, self.sizes)  # what was found is found again

    @cached_property
    def columns(self) -> tuple[Attribute, ...]:
        """The attributes."""
        if isinstance(self.keys, Names):
            return (Attribute.of(self.attributes[0], self.keys.names),)
        return tuple(Attribute.of(name, [key[i] for key in self.keys]) for i, name in enumerate(self.attributes))

    def along(self, attributes: tuple[str, ...]) -> Population:
        """The same groups by some of the attributes only."""
        if attributes == tuple(self.attributes):
            return self
        if attributes not in self._along:
            places = [self.attributes.index(name) for name in attributes]
            keys = [tuple(key[i] for i in places) for key in self.keys]
            self._along[attributes] = Population(keys, attributes, self.sizes)
        return self._along[attributes]

    @property
    def counted(self) -> str:
        """What shares are counted in."""
        return "groups" if self.sizes is None else "units"

    def reads_better_as_rules(self, labels: IntArray) -> bool:
        """Whether rules say more than lists of names: for several attributes, or for ranges of one with an order."""
        if len(self.attributes) > 1:
            return True
        if len(self.keys) > _MOST_VALUES:
            return False
        column = self.columns[0]
        if not column.is_ordered:
            return False
        count = len(column.values)
        masks = (np.bincount(column.codes[labels == i + 1], minlength=count) > 0 for i in range(int(labels.max())))
        return all(len(column.runs(mask)) <= 2 for mask in masks)

    def rules(self, labels: IntArray) -> tuple[Rule, ...]:
        """The rules of clusters 1 … m, by the number of the cluster that each group is in."""
        key = _digest(labels)
        if key not in self._known:
            wants = [labels == i + 1 for i in range(int(labels.max()))]
            several = len(wants) > 2
            self._known[key] = self._describe_several(wants) if several else self._describe_two(wants[0])
        return self._known[key]

    @cached_property
    def _search(self) -> Search:
        count = len(self.keys)
        weight = np.ones(count)
        if self.sizes is not None:
            smallest = float(np.min(self.sizes[self.sizes > 0]))
            weight = np.where(self.sizes > 0, self.sizes, smallest / 1024)  # a group of nobody is still a group
        return Search(self.columns, weight, np.zeros(count, dtype=bool))

    @cached_property
    def _sample(self) -> IntArray:
        """The groups to search among: those most people are in, and some of those that are equal."""
        count = len(self.keys)
        if count <= _SEARCHED:
            return np.arange(count)
        shuffled = np.random.default_rng(0).permutation(count)
        largest = shuffled[np.argsort(-self._search.weight[shuffled], kind="stable")[:_SEARCHED]]
        return np.sort(largest)

    # ----------------------------------------------------------------------------------------------- two clusters

    def _describe_two(self, want: BoolArray) -> tuple[Rule, ...]:
        """The rules of a cluster and of all other groups: each is what the other is not."""
        if want.all():
            return (Rule("all groups"),)
        sides = (want, ~want)
        exact = [self._short_box(side) for side in sides]
        regions = [_Region((box,), False, side) for box, side in zip(exact, sides, strict=True) if box is not None]
        if len(regions) == 2:  # both are exact, so each has its own words
            return tuple(self._make_rule(region, side) for region, side in zip(regions, sides, strict=True))
        best: _Region | None
        if exact[0] is not None:
            best = regions[0]
        elif exact[1] is not None:
            best = regions[0].complement()
        else:
            covered = [self._cover(side) for side in sides]
            both = [*covered[0], *(region.complement() for region in covered[1])]
            best = max(
                both,
                key=lambda region: self._value(region, want) + self._value(region.complement(), ~want),
                default=None,
            )
        if best is None:
            return Rule(NO_RULE, 0.0, 0.0), Rule(NO_RULE, 0.0, 0.0)
        pair = ((best, want), (best.complement(), ~want))
        fits = all(self._fits(*half) for half in pair)  # they are the same statement: both are shown, or neither is
        return tuple(self._make_rule(*half, fits=fits) for half in pair)

    def _short_box(self, want: BoolArray) -> Box | None:
        """The shortest box with just these groups, if there is one that is worth reading."""
        box = self._search.exact_box(want)
        return box if box is not None and (len(self.columns) == 1 or self._search.cost([box]) <= _SHORT) else None

    def _cover(self, want: BoolArray, barred: BoolArray | None = None) -> list[_Region]:
        """Regions around these groups, by a search that keeps clear of those barred; none if all need those."""
        claimed = self._search.barred if barred is None else barred
        target = want & ~claimed
        places = self._sample
        if not target[places].any() or target[places].all():
            places = np.arange(want.size)
        if not target.any():
            return []
        columns = tuple(replace(column, codes=column.codes[places]) for column in self.columns)
        boxes = Search(columns, self._search.weight[places], claimed[places]).cover(target[places])
        candidates = [boxes, *([[exact]] if (exact := self._search.exact_box(want)) is not None else [])]
        regions = []
        for several in candidates:
            clear = tuple(box for box in several if not np.any(self._search.inside(box) & claimed))
            inside = self._search.inside_any(clear)
            if clear and not inside.all():
                regions.append(_Region(clear, False, inside))
        return regions

    def _value(self, region: _Region, want: BoolArray) -> float:
        cost = self._search.cost(region.boxes) + int(region.but) if region.boxes else _OTHERS_COST
        return self._search.value(region.inside, want, cost)

    # ------------------------------------------------------------------------------------------- several clusters

    def _describe_several(self, wants: Sequence[BoolArray]) -> tuple[Rule, ...]:
        """Rules of three clusters or more: exact ones first, then the best of the others, and one for what is left."""
        weight = [float(self._search.weight[want].sum()) for want in wants]
        largest = sorted(range(len(wants)), key=lambda i: -weight[i])
        searched = set(largest[:_MOST_SEARCHES])
        alone = [self._find_region(want, search=i in searched) for i, want in enumerate(wants)]
        values = [-np.inf if r is None else self._value(r, wants[i]) for i, r in enumerate(alone)]
        exact = [r is not None and np.array_equal(r.inside, wants[i]) for i, r in enumerate(alone)]
        claimed = np.zeros(len(self.keys), dtype=bool)
        rules = [Rule(NO_RULE, 0.0, 0.0)] * len(wants)
        rest = next((i for i in largest if not exact[i]), -1)
        for i in sorted(range(len(wants)), key=lambda i: (not exact[i], i == rest, -values[i])):
            region = alone[i]
            if region is not None and np.any(region.inside & claimed):
                region = self._choose_best(self._cover(wants[i], claimed), wants[i])
            if i == rest and claimed.any():
                others = _Region((), True, ~claimed)
                region = self._choose_best([others, *([] if region is None else [region])], wants[i])
            if region is not None:
                rules[i] = self._make_rule(region, wants[i], fits=self._fits(region, wants[i]))
                claimed = claimed | region.inside if rules[i].fits else claimed
        return tuple(rules)

    def _find_region(self, want: BoolArray, *, search: bool) -> _Region | None:
        """The best region for a cluster on its own."""
        key = _digest(want)
        if key not in self._alone:
            exact = self._short_box(want)
            if exact is not None:
                self._alone[key] = _Region((exact,), False, want)
            elif not search:
                return None
            else:
                regions = self._cover(want)
                if 2 * float(self._search.weight[want].sum()) > float(self._search.weight.sum()):
                    regions += [region.complement() for region in self._cover(~want)]
                self._alone[key] = self._choose_best(regions, want)
        return self._alone[key]

    def _choose_best(self, regions: Sequence[_Region], want: BoolArray) -> _Region | None:
        return max(regions, key=lambda region: self._value(region, want), default=None)

    # ----------------------------------------------------------------------------------------------------- words

    def _fits(self, region: _Region, want: BoolArray) -> bool:
        return min(self._search.fit(region.inside, want)) >= _RIGHT

    def _make_rule(self, region: _Region, want: BoolArray, *, fits: bool = True) -> Rule:
        """The rule of a region in words; none where it does not fit."""
        words = self._words(region) if fits else NO_RULE
        return Rule(words, *self._search.fit(region.inside, want), self.counted)

    def _words(self, region: _Region) -> str:
        if not region.boxes:
            return OTHERS
        boxes, but = list(region.boxes), region.but
        if but and len(boxes) == 1:
            limited = [i for i, allowed in enumerate(boxes[0]) if not allowed.all()]
            if len(limited) == 1:  # what is not on a list of values is on another
                column, allowed = self.columns[limited[0]], boxes[0][limited[0]]
                if column.cost(~allowed) <= column.cost(allowed) + 1:
                    return column.condition(~allowed)
        texts = []
        for box in sorted(boxes, key=lambda box: -float(self._search.weight[self._search.inside(box)].sum())):
            conditions = [
                c.condition(allowed) for c, allowed in zip(self.columns, box, strict=True) if not allowed.all()
            ]
            if len(conditions) > 1:
                conditions = [f"({words})" if " or " in words else words for words in conditions]
            texts.append(" and ".join(conditions))
        if but:  # "all but A and B" would be read as all but what is in both
            return f"all but ({texts[0]})" if len(texts) == 1 else f"neither ({') nor ('.join(texts)})"
        return ", or ".join(texts)


@dataclass(frozen=True, eq=False)
class Partition:
    """Which cluster each group is in, from 1 on; its rules are made when first asked for.

    Attributes:
        population: The groups.
        labels: The cluster of each.
        attributes: Those along which clusters run: rules speak of no others.
    """

    population: Population
    labels: IntArray
    attributes: tuple[str, ...]

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rule of every cluster."""
        return self.population.along(self.attributes).rules(self.labels)


def _digest(array: IntArray | BoolArray) -> bytes:
    """A short key for a partition: a million labels need not be kept to know them again."""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
