"""Excluded groups and dropped rows, in numbers a reader can judge: by level of the attributes, and by group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.estimates.labels import key_of, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.core.comparison import Comparison
    from faultlines.estimates.estimates import Excluded
    from faultlines.estimates.labels import Key
    from faultlines.rows.request import MissingRows


def missing_data(missing: MissingRows | None) -> dict[str, Any] | None:
    """Rows that lack a value, of all and by group, as plain data; None where rows were not counted."""
    if missing is None:
        return None
    groups = zip(missing.keys, missing.rows.tolist(), missing.dropped.tolist(), missing.shares.tolist(), strict=True)
    return {
        "rows": int(missing.rows.sum()),
        "dropped": int(missing.dropped.sum()),
        "share": missing.share,
        "by_column": {name: int(counts.sum()) for name, counts in missing.by_column.items()},
        "without_group": int(missing.without_group),
        "groups": [
            {"group": name_of(key), "rows": int(rows), "dropped": int(dropped), "share": share}
            for key, rows, dropped, share in groups
        ],
    }


def dropped_share_column(missing: MissingRows | None, keys: Sequence[Key]) -> dict[str, list[Any]]:
    """The share of rows of each group that was dropped, as a column; none where rows were not counted."""
    return {} if missing is None else {"dropped_share": [group.share for group in missing.of(keys)]}


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
