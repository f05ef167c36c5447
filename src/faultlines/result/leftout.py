"""Groups that were left out, in numbers a reader can judge: how many people, and of which kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines import text
from faultlines.estimates.labels import key_of, named_by

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faultlines.comparison.base import Comparison
    from faultlines.estimates.estimates import Excluded
    from faultlines.estimates.labels import Label

_LISTED = 56  # characters of a list of groups left out
_VALUES = 4  # values of an attribute that are named
_MANY = 0.01  # share left out from which on a value is named, if it is twice that of all


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many people with one value of an attribute are in groups that were left out.

    Attributes:
        attribute: The attribute.
        value: Its value.
        n: How many with this value are in groups left out.
        total: How many with this value there are.
    """

    attribute: str
    value: str
    n: float
    total: float

    @property
    def share(self) -> float:
        """The share left out."""
        return self.n / self.total if self.total else 0.0


def left_out_by_value(groups: Comparison, excluded: Sequence[Excluded]) -> tuple[LeftOut, ...]:
    """For every value of every attribute of which somebody is left out, how many; the largest share first."""
    if groups.n is None or not excluded or any(left.n is None for left in excluded):
        return ()
    made = []
    keys = [key_of(left.label) for left in excluded]
    sizes = np.array([left.n for left in excluded], dtype=np.float64)
    for i, attribute in enumerate(groups.attributes):
        out: dict[str, float] = {}
        for key, size in zip(keys, sizes.tolist(), strict=True):
            out[str(key[i])] = out.get(str(key[i]), 0.0) + size
        total = dict(out)
        for key, size in zip(groups.keys, groups.n.tolist(), strict=True):
            if (name := str(key[i])) in total:
                total[name] += size
        values = [LeftOut(attribute, name, n, total[name]) for name, n in out.items() if n]
        made += sorted(values, key=lambda one: -one.share)
    return tuple(made)


def left_out_words(groups: Comparison, excluded: Sequence[Excluded], unit: str) -> Iterator[str]:
    """What was left out: the groups by reason with their numbers, and the people by the values of each attribute."""
    reasons: dict[str, list[Excluded]] = {}
    for left in excluded:
        reasons.setdefault(left.reason, []).append(left)
    for reason, several in reasons.items():
        events = {left.label: left for left in several}

        def named(label: Label, known: dict[Label, Excluded] = events) -> str:
            left = known[label]
            told = "" if left.events is None else f" ({text.count(left.events)} of {text.count(left.n or 0)})"
            return named_by(label, groups.attributes) + told

        apart = "; " if len(groups.attributes) > 1 else ", "
        names = text.members([left.label for left in several], named, _LISTED, apart)
        alone = len(several) == 1 and several[0].events is not None  # "B (0 of 4) (1)" would be hard to read
        yield f"Left out, {reason}: {names}" + ("." if alone else f" ({text.count(len(several))}).")
    by_value = left_out_by_value(groups, excluded)
    if not by_value or groups.n is None:
        return
    out = sum(left.n or 0.0 for left in excluded)
    share = out / (out + float(groups.n.sum()))
    said = f"{text.share(share, 1)} of {unit} are in groups left out"
    if len(groups.attributes) > 1:
        told = []
        for attribute in groups.attributes:
            worst = [one for one in by_value if one.attribute == attribute and one.share >= max(_MANY, 2 * share)]
            shares = [f"{_share(one)} of {attribute} {one.value}" for one in worst[:_VALUES]]
            shares += [f"… +{len(worst) - _VALUES}"] if len(worst) > _VALUES else []
            told.append(", ".join(shares))
        said += ", but " * any(told) + "; ".join(words for words in told if words)
    yield f"{said[0].upper()}{said[1:]}."


def _share(one: LeftOut) -> str:
    return "all" if one.n == one.total else text.share(one.share, 1)
