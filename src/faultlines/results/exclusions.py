"""Excluded groups, in numbers a reader can judge: how much of each level of the attributes is in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines.estimates.labels import key_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.core.comparison import Comparison
    from faultlines.estimates.estimates import Excluded


@dataclass(frozen=True, slots=True)
class ExcludedShare:
    """How many people with one value of an attribute are in excluded groups.

    Attributes:
        attribute: The attribute.
        value: Its value.
        n: How many with this value are in excluded groups.
        total: How many with this value there are.
    """

    attribute: str
    value: str
    n: float
    total: float

    @property
    def share(self) -> float:
        """The excluded share."""
        return self.n / self.total if self.total else 0.0


def excluded_by_value(groups: Comparison, excluded: Sequence[Excluded]) -> tuple[ExcludedShare, ...]:
    """For every value of every attribute of which some are excluded, how many; the largest share first."""
    if groups.n is None or not excluded or any(left.n is None for left in excluded):
        return ()
    shares = []
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
        values = [ExcludedShare(attribute, name, n, total[name]) for name, n in out.items() if n]
        shares += sorted(values, key=lambda value: -value.share)
    return tuple(shares)
