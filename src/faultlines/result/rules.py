"""What the groups of a cluster have in common: a short rule over their attributes, and which attributes matter.

A rule is a few boxes: in each, every attribute is free, lies in a range (if its values have an order) or is one of some
values. It is exact where that is short, and otherwise the best short approximation that a search finds, with its
precision and recall beside it.
"""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING, Self

import numpy as np

from faultlines import text
from faultlines.estimates.labels import MISSING, Names, Range, key_of, rank, some_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.labels import Key, Label
    from faultlines.estimates.scales import FloatArray

    Box = tuple[BoolArray, ...]  # for each attribute, which of its values lie inside

_LISTED = 12  # values named in one condition
_BOXES = 3  # that a rule may join with "or"
_SHORT = 16  # length of a rule, in values, ranges and conditions, up to which exactness is worth it
_WORTH = 0.03  # gain in F₁ that pays for another box
_LENGTH = 0.004  # of F₁ that each of them costs
_PURITY = (1.0, 8.0)  # how much worse a wrong group is than a missing one, tried in turn
_STARTS = 4  # attributes that a search begins with
_SEARCHED = 8_000  # groups a search looks at
_MOST_ATTRIBUTES = 8  # up to which every choice of conditions is tried
_MOST_VALUES = 100_000  # of one attribute, above which nobody reads its ranges


class Rule(str):
    """The rule as text; it also knows how well it fits.

    Attributes:
        precision: Of the groups it describes, the share that is in the cluster.
        recall: Of the groups in the cluster, the share it describes.
    """

    __slots__ = ("precision", "recall")

    precision: float
    recall: float

    def __new__(cls, words: str, precision: float = 1.0, recall: float = 1.0) -> Self:
        """A rule that is not exact says so."""
        exact = precision == 1 and recall == 1
        quality = "" if exact else f" (precision {_share(precision)}, recall {_share(recall)})"
        made = super().__new__(cls, words + quality)
        made.precision, made.recall = precision, recall
        return made

    def __getnewargs__(self) -> tuple[str]:
        return (str(self),)

    @property
    def exact(self) -> bool:
        """Whether it describes the groups of the cluster and no others."""
        return self.precision == 1 and self.recall == 1


def _share(value: float) -> str:
    """A share in percent that reads 100% only when it is all."""
    return f"{min(value, 0.99) if value < 1 else 1:.0%}"


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
            told = [self._span(first, last) for first, last in runs[:_LISTED]]
            told += [f"… +{len(runs) - _LISTED}"] if len(runs) > _LISTED else []
            told += [MISSING] if self.missing >= 0 and allowed[self.missing] else []
            single = len(told) == 1 and (not runs or runs[0][0] == runs[0][1])
            is_plain = single and not isinstance(self.values[runs[0][0]] if runs else MISSING, Range)
            return f"{self.name} {'= ' if is_plain else ''}{' or '.join(told)}"
        complement = self._is_rather_a_complement(allowed)
        named = [_quoted(self.values[i]) for i in np.flatnonzero(~allowed if complement else allowed).tolist()]
        if len(named) == 1:
            return f"{self.name} {'≠' if complement else '='} {named[0]}"
        rest = f", … +{len(named) - _LISTED}" if len(named) > _LISTED else ""
        return f"{self.name} {'not in' if complement else 'in'} {{{', '.join(named[:_LISTED])}{rest}}}"

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


class Population:
    """Groups by the values of their attributes. Nothing is read before the first rule is asked for."""

    def __init__(self, keys: Sequence[Key], attributes: Sequence[str]) -> None:
        self.keys, self.attributes = keys, attributes
        self._known: dict[tuple[Label, ...], Rule] = {}

    @cached_property
    def columns(self) -> tuple[Attribute, ...]:
        """The attributes."""
        if isinstance(self.keys, Names):
            return (Attribute.of(self.attributes[0], self.keys.names),)
        return tuple(Attribute.of(name, [key[i] for key in self.keys]) for i, name in enumerate(self.attributes))

    def reads_better_as_rules(self, clusters: Sequence[tuple[Label, ...]]) -> bool:
        """Whether rules say more than lists of names: for several attributes, or for ranges of one with an order."""
        if len(self.attributes) > 1:
            return True
        if len(self.keys) > _MOST_VALUES:
            return False
        column = self.columns[0]
        if not column.is_ordered:
            return False
        count = len(column.values)
        masks = (np.bincount(column.codes[self._mask(one)], minlength=count) > 0 for one in clusters)
        return all(len(column.runs(mask)) <= 2 for mask in masks)

    @cached_property
    def _place(self) -> dict[Key, int]:
        return {key: i for i, key in enumerate(self.keys)}

    def rule(self, members: tuple[Label, ...]) -> Rule:
        """The shortest exact rule for these groups, or the best short one."""
        if members not in self._known:
            self._known[members] = self._found(self._mask(members))
        return self._known[members]

    def _mask(self, members: Sequence[Label]) -> BoolArray:
        mask = np.zeros(len(self.keys), dtype=bool)
        mask[[self._place[key_of(label)] for label in members]] = True
        return mask

    @cached_property
    def _sample(self) -> tuple[Population, IntArray]:
        """Some groups to search among, and which they are; a rule's fit is always that over all groups."""
        places = np.sort(np.random.default_rng(0).permutation(len(self.keys))[:_SEARCHED])
        sample = Population(some_of(self.keys, places), self.attributes)
        sample.__dict__["columns"] = tuple(replace(column, codes=column.codes[places]) for column in self.columns)
        return sample, places

    def _found(self, want: BoolArray) -> Rule:
        if want.all():
            return Rule("all groups")
        exact = self._exact_box(want)
        if exact is not None and (self._cost(exact) <= _SHORT or len(self.columns) == 1):
            return self._worded([exact], want)
        seen, places = self._sample if len(self.keys) > _SEARCHED else (self, np.arange(len(self.keys)))
        if not want[places].any() or want[places].all():
            seen, places = self, np.arange(len(self.keys))
        inside, outside = (seen._cover(side[places]) for side in (want, ~want))
        rules = [(self._value(inside, want), False, inside)]
        if not any(all(allowed.all() for allowed in box) for box in outside):
            rules.append((self._value(outside, want, but=True), True, outside))
        if exact is not None:
            rules.append((self._value([exact], want), False, [exact]))
        _, but, boxes = max(rules, key=lambda rule: rule[0])
        return self._worded(boxes, want, but=but)

    # ------------------------------------------------------------------------------------------------- boxes

    def _inside(self, box: Box, *, but: int = -1) -> BoolArray:
        """The groups in a box; the condition on one attribute can be left aside."""
        inside = np.ones(len(self.keys), dtype=bool)
        for i, (column, allowed) in enumerate(zip(self.columns, box, strict=True)):
            if i != but and not allowed.all():
                inside &= allowed[column.codes]
        return inside

    def _cost(self, box: Box) -> int:
        return sum(column.cost(allowed) for column, allowed in zip(self.columns, box, strict=True))

    def _everything(self) -> list[BoolArray]:
        return [np.ones(len(column.values), dtype=bool) for column in self.columns]

    def _exact_box(self, want: BoolArray) -> Box | None:
        """The shortest box that holds just these groups, if one does.

        Any such box lies around the values these groups have, so there is one if and only if that smallest one holds
        no others. Conditions are then dropped, ranges closed over values that no other group has, and values added
        that make a list shorter.
        """
        smallest = self._everything()
        for column, allowed in zip(self.columns, smallest, strict=True):
            allowed[:] = np.bincount(column.codes[want], minlength=len(column.values)) > 0
        if np.any(self._inside(tuple(smallest)) & ~want):
            return None
        best = tuple(smallest)
        choices = product((False, True), repeat=len(smallest)) if len(smallest) <= _MOST_ATTRIBUTES else iter(())
        for free in choices:
            box = [np.ones_like(b) if is_free else b for is_free, b in zip(free, smallest, strict=True)]
            if np.any(self._inside(tuple(box)) & ~want):
                continue
            widened = self._widened(box, want)
            if self._cost(widened) < self._cost(best):
                best = widened
        return best

    def _widened(self, box: list[BoolArray], want: BoolArray) -> Box:
        """Values added that no other group in the box has, where that makes the rule shorter."""
        box = list(box)
        for i, column in enumerate(self.columns):
            others = self._inside(tuple(box), but=i) & ~want
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

    def _cover(self, want: BoolArray) -> list[Box]:
        """A few boxes that together describe these groups as well as a greedy search can."""
        if int(want.sum()) <= _BOXES:  # name the groups themselves
            cells = [tuple(np.arange(len(c.values)) == c.codes[i] for c in self.columns) for i in np.flatnonzero(want)]
            return self._merged(cells, want)
        boxes, reached = self._with_another([], want)
        while len(boxes) < _BOXES:
            more, value = self._with_another(boxes, want)
            for i in range(len(more) - 1):  # a box chosen alone is often too wide once there are others
                others, better = self._with_another([*more[:i], *more[i + 1 :]], want)
                if better > value:
                    more, value = others, better
            if value < reached + _WORTH:
                break
            boxes, reached = more, value
        return self._merged(boxes, want)

    def _merged(self, boxes: list[Box], want: BoolArray) -> list[Box]:
        """Two boxes made one wherever the rule fits as well and gets shorter."""
        for i, j in combinations(range(len(boxes)), 2):
            joined: Box = tuple(a | b for a, b in zip(boxes[i], boxes[j], strict=True))
            fewer = [box for k, box in enumerate(boxes) if k not in (i, j)]
            for box in (joined, self._widened(list(joined), want)):
                if self._value([*fewer, box], want) > self._value(boxes, want):
                    return self._merged([*fewer, box], want)
        return boxes

    def _with_another(self, boxes: list[Box], want: BoolArray) -> tuple[list[Box], float]:
        """The best box to add, for the groups that are not yet in one, and how good the rule is then."""
        rest = want.copy()
        for box in boxes:
            rest &= ~self._inside(box)
        if not rest.any():
            return boxes, self._value(boxes, want)
        found = [(self._value([*boxes, box], want), box) for box in self._candidates(rest, ~want)]
        value, box = max(found, key=lambda pair: pair[0])
        return [*boxes, box], value

    def _value(self, boxes: Sequence[Box], want: BoolArray, *, but: bool = False) -> float:
        """How good a rule is: F₁, less a little for its length."""
        return self._fit(boxes, want, but=but)[2] - _LENGTH * (sum(map(self._cost, boxes)) + int(but))

    def _fit(self, boxes: Sequence[Box], want: BoolArray, *, but: bool = False) -> tuple[float, float, float]:
        """Precision, recall and F₁ of all that is in the boxes, or of all but that."""
        inside = np.any([self._inside(box) for box in boxes], axis=0) ^ but
        right = int(np.sum(inside & want))
        total = int(inside.sum())
        return right / max(total, 1), right / int(want.sum()), 2 * right / (total + int(want.sum()))

    def _candidates(self, want: BoolArray, avoid: BoolArray) -> Iterator[Box]:
        """Boxes around many wanted groups and few others, one attribute after the other improved till nothing helps."""
        count = len(self.columns)
        for impurity, first in product(_PURITY, range(min(count, _STARTS))):
            box = self._everything()
            for _ in range(10):
                before = [allowed.copy() for allowed in box]
                for i in ((first + step) % count for step in range(count)):
                    others = self._inside(tuple(box), but=i)
                    column = self.columns[i]
                    right = np.bincount(column.codes[others & want], minlength=len(column.values))
                    wrong = np.bincount(column.codes[others & avoid], minlength=len(column.values))
                    box[i] = _best_values(
                        column, right, np.asarray(impurity * wrong, dtype=np.float64), int(want.sum())
                    )
                if all(np.array_equal(a, b) for a, b in zip(before, box, strict=True)):
                    break
            yield tuple(box)

    def _worded(self, boxes: Sequence[Box], want: BoolArray, *, but: bool = False) -> Rule:
        told = []
        for box in sorted(boxes, key=lambda box: -int(self._inside(box).sum())):
            conditions = [
                c.condition(allowed) for c, allowed in zip(self.columns, box, strict=True) if not allowed.all()
            ]
            if len(conditions) > 1:
                conditions = [f"({words})" if " or " in words else words for words in conditions]
            told.append(" and ".join(conditions) or "no short description")
        precision, recall, _ = self._fit(boxes, want, but=but)
        words = ", or ".join(told)
        if but:  # "all but A and B" would be read as all but what is in both
            words = f"all but ({told[0]})" if len(told) == 1 else f"neither ({') nor ('.join(told)})"
        return Rule(words, precision, recall)


def _best_values(column: Attribute, right: IntArray, wrong: FloatArray, wanted: int) -> BoolArray:
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
            if chosen.sum() > _LISTED and np.sum(~chosen) > _LISTED:
                chosen = np.zeros_like(chosen)
                chosen[np.argsort(-gain, kind="stable")[:_LISTED]] = True
        hits = float(right[chosen].sum())
        reached = 2 * hits / (hits + float(wrong[chosen].sum()) + wanted)
        if reached <= share:
            break
        share = reached
    absent = (right + wrong) == 0  # says nothing either way
    return np.ones_like(chosen) if np.all(chosen | absent) else chosen


def _best_run(gain: FloatArray, missing: int) -> BoolArray:
    """The run of values with the largest sum; what is missing joins by itself."""
    known = gain if missing < 0 else gain[:missing]
    sums = np.concatenate(([0.0], np.cumsum(known)))
    least = np.minimum.accumulate(sums[:-1])
    end = int(np.argmax(sums[1:] - least)) + 1
    start = int(np.argmin(sums[:end]))
    chosen = np.zeros(gain.size, dtype=bool)
    chosen[start:end] = True
    if missing >= 0:
        chosen[missing] = gain[missing] > 0
    return chosen
