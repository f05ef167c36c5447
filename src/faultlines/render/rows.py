"""What is said about rows that lack something: a value, or an attribute, and about levels that may be a slip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines import formats
from faultlines.estimates.labels import MISSING, find_similar, find_unknown, levels_by_attribute, name_of
from faultlines.estimates.reasons import DropCode
from faultlines.results.protocol import Note

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from faultlines.estimates.labels import Key
    from faultlines.results.protocol import Severity
    from faultlines.rows.request import MissingRows

_LISTED = 56  # characters of a list
_WORST = 5  # groups that are named for the share of their rows that was dropped


def dropped_notes(dropped: Mapping[DropCode, int], missing: MissingRows | None = None) -> Iterator[Note]:
    """Rows that were not used, by reason; by group where they are many."""
    for reason, count in dropped.items():
        yield Note("dropped rows", f"Dropped rows: {count:,} {DropCode(reason).text}.", fields={"rows": count})
    if missing is not None and missing.is_large:
        yield Note("missing values", missing_text(missing), "warning", missing_fields(missing))


def missing_attribute_notes(missing: MissingRows | None, attributes: Sequence[str]) -> Iterator[Note]:
    """Which share of the rows lacks an attribute: nothing is known about the groups these rows belong to."""
    if missing is None or not missing.without_group:
        return
    rows = max(float(missing.rows.sum()), 1.0)
    shares = {
        name: float(missing.rows[[key[i] == MISSING for key in missing.keys]].sum()) / rows
        for i, name in enumerate(attributes[: len(missing.keys[0])])
    }
    share, lacked = missing.without_group / rows, [name for name, of_name in shares.items() if of_name]
    named = ", ".join(f"{name} in {formats.share(shares[name], 1)}" for name in lacked)
    what = lacked[0] if len(lacked) == 1 else f"an attribute ({named})"
    text = (
        f"{formats.share(share, 1)} of rows lack {what} and are groups of their own. The result says nothing about the "
        "groups to which these rows belong."
    )
    severity: Severity = "warning" if missing.lacks_many_groups else "info"
    yield Note("missing attributes", text, severity, {"share": share, "attributes": shares})


def level_notes(keys: Sequence[Key], attributes: Sequence[str]) -> Iterator[Note]:
    """Levels named like a missing value, and levels that differ by case or surrounding spaces only."""
    for attribute, levels in levels_by_attribute(keys, attributes).items():
        unknown = find_unknown(levels)
        if unknown:
            names = formats.members(unknown, repr, _LISTED)
            text = f"Levels of {attribute} named like a missing value are compared as groups: {names}."
            yield Note("unknown levels", text, "warning", {"attribute": attribute, "levels": unknown})
        similar = find_similar(levels)
        if similar:
            names = formats.members(similar, lambda several: " and ".join(map(repr, several)), _LISTED, "; ")
            text = f"Levels of {attribute} differ by case or surrounding spaces only: {names}. If they are the same, "
            text += "give them one name."
            yield Note("similar levels", text, "warning", {"attribute": attribute, "levels": similar})


def missing_text(missing: MissingRows) -> str:
    """Which share of the rows lacks a value, which values, and in which groups most: ``80.1% of rows …``."""
    rows = max(missing.rows.sum(), 1.0)
    inputs = [f"{name} in {formats.share(float(c.sum() / rows), 1)}" for name, c in missing.by_column.items()]
    worst = missing_fields(missing)["groups"]
    names = formats.members(list(worst), lambda name: f"{name} {formats.share(worst[name], 1)}", _LISTED)
    lacking = f"{formats.share(missing.share, 1)} of rows lack a value ({', '.join(inputs)}) and were dropped"
    return formats.printable(f"{lacking}, most in {names}. The result is about the others.")


def lacking_columns(missing: MissingRows | None, places: Sequence[Sequence[int]] | None = None) -> str:
    """The columns that rows lack, the most frequent first: of all groups, or of those at some places."""
    if missing is None:
        return ""
    chosen = slice(None) if places is None else np.unique(np.concatenate([np.array(own, int) for own in places]))
    counts = {name: float(lacking[chosen].sum()) for name, lacking in missing.by_column.items()}
    names = sorted((name for name, count in counts.items() if count), key=lambda name: -counts[name])
    return formats.members(names, str, _LISTED, " and ")


def missing_fields(missing: MissingRows) -> dict[str, Any]:
    """The share of rows that lack a value: of all, and of the groups where it is largest."""
    order = np.lexsort((-missing.dropped, -missing.shares))[:_WORST]
    return {
        "share": missing.share,
        "groups": {name_of(missing.keys[i]): float(missing.shares[i]) for i in order.tolist()},
    }
