"""What the groups of a cluster have in common: a short rule over their attributes, for all clusters of a partition.

A rule is a few boxes: in each, every attribute is free, lies in a range (if its values have an order) or is one of some
values. It is exact where that is short, and otherwise the best short approximation that a search finds, with its fit
beside it. No two rules of a partition describe the same group: of two clusters one is whatever the other is not, and
of several each keeps clear of what better rules describe.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from faultlines.estimates.labels import Names
from faultlines.result.attributes import Attribute
from faultlines.result.boxes import Search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.labels import Key
    from faultlines.estimates.scales import FloatArray
    from faultlines.result.boxes import Box

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

    "matches 92% of its people, covers 85%" says: of the people the rule describes, 92% are in the cluster; of the
    people in the cluster, the rule describes 85%. Groups are counted instead where their sizes are not known. Where
    either would be less than half, there is no rule: the text is "no short rule", and the fit is what was reached.

    Args:
        words: The text.
        counted: What the shares are of: ``"people"`` or ``"groups"``.

    Attributes:
        matches: Of the people it describes, the share that is in the cluster.
        covers: Of the people in the cluster, the share it describes.

    Example:
        >>> import faultlines as fl
        >>> labels = [(country, device) for country in ("DE", "FR", "IN") for device in ("app", "web")]
        >>> both = fl.Estimates([0.0, 5.0, 0.1, 5.1, 0.0, 5.2], [0.1] * 6, labels, attributes=["country", "device"])
        >>> rule = fl.cluster(both).clusters[1].rule
        >>> rule, rule.matches, rule.covers, rule.exact, rule.fits
        ('device = web', 1.0, 1.0, True, True)
        >>> rule.precision, rule.recall
        (1.0, 1.0)
    """

    __slots__ = ("covers", "matches")

    matches: float
    covers: float

    def __new__(cls, words: str, matches: float = 1.0, covers: float = 1.0, counted: str = "groups") -> Self:
        """A rule that is not exact says so."""
        if words != NO_RULE and min(matches, covers) < 1:
            words += f" (matches {_share(matches)} of its {counted}, covers {_share(covers)})"
        made = super().__new__(cls, words)
        made.matches, made.covers = matches, covers
        return made

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

    @property
    def precision(self) -> float:
        """`matches`, as the first releases called it."""
        return self.matches

    @property
    def recall(self) -> float:
        """`covers`, as the first releases called it."""
        return self.covers


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
        sizes: How many people each of them has; groups count alike where that is not known.
    """

    def __init__(self, keys: Sequence[Key], attributes: Sequence[str], sizes: FloatArray | None = None) -> None:
        self.keys, self.attributes = keys, attributes
        self.sizes = None if sizes is None or not np.any(sizes > 0) else sizes
        self._known: dict[bytes, tuple[Rule, ...]] = {}
        self._alone: dict[bytes, _Region | None] = {}

    def __reduce__(self) -> tuple[type[Population], tuple[object, ...]]:
        return Population, (self.keys, self.attributes, self.sizes)  # what was found is found again

    @cached_property
    def columns(self) -> tuple[Attribute, ...]:
        """The attributes."""
        if isinstance(self.keys, Names):
            return (Attribute.of(self.attributes[0], self.keys.names),)
        return tuple(Attribute.of(name, [key[i] for key in self.keys]) for i, name in enumerate(self.attributes))

    @property
    def counted(self) -> str:
        """What shares are counted in."""
        return "groups" if self.sizes is None else "people"

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
            self._known[key] = self._of_several(wants) if several else self._of_two(wants[0])
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

    def _of_two(self, want: BoolArray) -> tuple[Rule, ...]:
        """The rules of a cluster and of all other groups: each is what the other is not."""
        if want.all():
            return (Rule("all groups"),)
        sides = (want, ~want)
        exact = [self._short_box(side) for side in sides]
        regions = [_Region((box,), False, side) for box, side in zip(exact, sides, strict=True) if box is not None]
        if len(regions) == 2:  # both are exact, so each has its own words
            return tuple(self._told(one, side) for one, side in zip(regions, sides, strict=True))
        best: _Region | None
        if exact[0] is not None:
            best = regions[0]
        elif exact[1] is not None:
            best = regions[0].complement()
        else:
            found = [self._covered(side) for side in sides]
            both = [*found[0], *(region.complement() for region in found[1])]
            best = max(
                both, key=lambda one: self._value(one, want) + self._value(one.complement(), ~want), default=None
            )
        if best is None:
            return Rule(NO_RULE, 0.0, 0.0), Rule(NO_RULE, 0.0, 0.0)
        pair = ((best, want), (best.complement(), ~want))
        fits = all(self._fits(*one) for one in pair)  # they are the same statement: both are shown, or neither is
        return tuple(self._told(*one, fits=fits) for one in pair)

    def _short_box(self, want: BoolArray) -> Box | None:
        """The shortest box with just these groups, if there is one that is worth reading."""
        box = self._search.exact_box(want)
        return box if box is not None and (len(self.columns) == 1 or self._search.cost([box]) <= _SHORT) else None

    def _covered(self, want: BoolArray, barred: BoolArray | None = None) -> list[_Region]:
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
        made = []
        for several in candidates:
            clear = tuple(box for box in several if not np.any(self._search.inside(box) & claimed))
            inside = self._search.inside_any(clear)
            if clear and not inside.all():
                made.append(_Region(clear, False, inside))
        return made

    def _value(self, region: _Region, want: BoolArray) -> float:
        cost = self._search.cost(region.boxes) + int(region.but) if region.boxes else _OTHERS_COST
        return self._search.value(region.inside, want, cost)

    # ------------------------------------------------------------------------------------------- several clusters

    def _of_several(self, wants: Sequence[BoolArray]) -> tuple[Rule, ...]:
        """Rules of three clusters or more: exact ones first, then the best of the others, and one for what is left."""
        weight = [float(self._search.weight[want].sum()) for want in wants]
        largest = sorted(range(len(wants)), key=lambda i: -weight[i])
        searched = set(largest[:_MOST_SEARCHES])
        alone = [self._found(want, search=i in searched) for i, want in enumerate(wants)]
        values = [-np.inf if r is None else self._value(r, wants[i]) for i, r in enumerate(alone)]
        exact = [r is not None and np.array_equal(r.inside, wants[i]) for i, r in enumerate(alone)]
        claimed = np.zeros(len(self.keys), dtype=bool)
        rules = [Rule(NO_RULE, 0.0, 0.0)] * len(wants)
        rest = next((i for i in largest if not exact[i]), -1)
        for i in sorted(range(len(wants)), key=lambda i: (not exact[i], i == rest, -values[i])):
            found = alone[i]
            if found is not None and np.any(found.inside & claimed):
                found = self._best(self._covered(wants[i], claimed), wants[i])
            if i == rest and claimed.any():
                others = _Region((), True, ~claimed)
                found = self._best([others, *([] if found is None else [found])], wants[i])
            if found is not None:
                rules[i] = self._told(found, wants[i], fits=self._fits(found, wants[i]))
                claimed = claimed | found.inside if rules[i].fits else claimed
        return tuple(rules)

    def _found(self, want: BoolArray, *, search: bool) -> _Region | None:
        """The best region for a cluster on its own."""
        key = _digest(want)
        if key not in self._alone:
            exact = self._short_box(want)
            if exact is not None:
                self._alone[key] = _Region((exact,), False, want)
            elif not search:
                return None
            else:
                found = self._covered(want)
                if 2 * float(self._search.weight[want].sum()) > float(self._search.weight.sum()):
                    found += [region.complement() for region in self._covered(~want)]
                self._alone[key] = self._best(found, want)
        return self._alone[key]

    def _best(self, regions: Sequence[_Region], want: BoolArray) -> _Region | None:
        return max(regions, key=lambda region: self._value(region, want), default=None)

    # ----------------------------------------------------------------------------------------------------- words

    def _fits(self, region: _Region, want: BoolArray) -> bool:
        return min(self._search.fit(region.inside, want)) >= _RIGHT

    def _told(self, region: _Region, want: BoolArray, *, fits: bool = True) -> Rule:
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
        told = []
        for box in sorted(boxes, key=lambda box: -float(self._search.weight[self._search.inside(box)].sum())):
            conditions = [
                c.condition(allowed) for c, allowed in zip(self.columns, box, strict=True) if not allowed.all()
            ]
            if len(conditions) > 1:
                conditions = [f"({words})" if " or " in words else words for words in conditions]
            told.append(" and ".join(conditions))
        if but:  # "all but A and B" would be read as all but what is in both
            return f"all but ({told[0]})" if len(told) == 1 else f"neither ({') nor ('.join(told)})"
        return ", or ".join(told)


@dataclass(frozen=True, eq=False)
class Partition:
    """Which cluster each group is in, from 1 on; its rules are made when first asked for."""

    population: Population
    labels: IntArray

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rule of every cluster."""
        return self.population.rules(self.labels)


def _digest(array: IntArray | BoolArray) -> bytes:
    """A short key for a partition: a million labels need not be kept to know them again."""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
