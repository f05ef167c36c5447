"""The search for a few boxes that hold the groups of a cluster: in a box, every attribute is free or has some values.

A box that holds just these groups is found whenever there is one. Otherwise boxes are added greedily for the best F₁,
counted in people where the sizes of the groups are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from faultlines.result.attributes import LISTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faultlines.estimates.estimates import BoolArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.result.attributes import Attribute

    Box = tuple[BoolArray, ...]  # for each attribute, which of its values lie inside

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
            widened = self._widened(box, want)
            if self.cost([widened]) < self.cost([best]):
                best = widened
        return best

    def cover(self, want: BoolArray) -> list[Box]:
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

    # ------------------------------------------------------------------------------------------------ steps of it

    def _everything(self) -> list[BoolArray]:
        return [np.ones(len(column.values), dtype=bool) for column in self.columns]

    def _of(self, boxes: Sequence[Box], want: BoolArray) -> float:
        return self.value(self.inside_any(boxes), want, self.cost(boxes))

    def _widened(self, box: list[BoolArray], want: BoolArray) -> Box:
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

    def _merged(self, boxes: list[Box], want: BoolArray) -> list[Box]:
        """Two boxes made one wherever the rule fits as well and gets shorter."""
        for i, j in combinations(range(len(boxes)), 2):
            joined: Box = tuple(a | b for a, b in zip(boxes[i], boxes[j], strict=True))
            fewer = [box for k, box in enumerate(boxes) if k not in (i, j)]
            for box in (joined, self._widened(list(joined), want)):
                if self._of([*fewer, box], want) > self._of(boxes, want):
                    return self._merged([*fewer, box], want)
        return boxes

    def _with_another(self, boxes: list[Box], want: BoolArray) -> tuple[list[Box], float]:
        """The best box to add, for the groups that are not yet in one, and how good the rule is then."""
        held = self.inside_any(boxes)
        rest = want & ~held
        if not rest.any():
            return boxes, self._of(boxes, want)
        cost = self.cost(boxes)
        found = [
            (self.value(held | self.inside(box), want, cost + self.cost([box])), box)
            for box in self._candidates(rest, ~want)
        ]
        value, box = max(found, key=lambda pair: pair[0])
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
