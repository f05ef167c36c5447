"""What is said about rows that lack something: a value, or an attribute; about slips in levels, and excluded groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from faultlines import formats
from faultlines.core.comparison import Comparison
from faultlines.estimates.estimates import Excluded
from faultlines.estimates.labels import (
    MISSING,
    Key,
    Label,
    find_similar,
    find_unknown,
    levels_by_attribute,
    name_of,
    named_by,
)
from faultlines.estimates.reasons import DropCode
from faultlines.results.protocol import Note, Severity
from faultlines.results.tables import ExcludedShare, excluded_by_value
from faultlines.rows.request import MissingRows

_LISTED = 56  # characters of a list
_LEVELS = 4  # levels of an attribute that are named
_MANY_EXCLUDED = 0.01  # excluded share from which on a level is named, if it is twice that of all
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


def excluded_notes(groups: Comparison, excluded: Sequence[Excluded], unit: str) -> Iterator[Note]:
    """Excluded groups by reason with their numbers, and their share by the levels of each attribute."""
    reasons: dict[str, list[Excluded]] = {}
    for group in excluded:
        reasons.setdefault(str(group.reason), []).append(group)
    for reason, several in reasons.items():
        by_label = {group.label: group for group in several}

        def name(label: Label, excluded_by_label: dict[Label, Excluded] = by_label) -> str:
            group = excluded_by_label[label]
            return named_by(label, groups.attributes) + (
                "" if group.events is None else f" ({formats.count(group.events)}/{formats.count(group.n or 0)})"
            )

        separator = "; " if len(groups.attributes) > 1 else ", "
        names = formats.members([group.label for group in several], name, _LISTED, separator)
        counted = f"; in brackets events/{unit}" if any(group.events is not None for group in several) else ""
        text = f"Excluded groups ({formats.count(len(several))}, {reason}{counted}): {names}."
        yield Note("excluded groups", text, "warning", {"groups": len(several)})
    shares = excluded_by_value(groups, excluded)
    if not shares or groups.n is None:
        return
    if len(groups.attributes) > 1:
        yield from _excluded_level_notes(shares, groups.attributes, unit)
    total = sum(group.n or 0.0 for group in excluded)
    share = total / (total + float(groups.n.sum()))
    text = f"{formats.share(share, 1)} of {unit} are in excluded groups"
    if len(groups.attributes) > 1:
        texts = []
        for attribute in groups.attributes:
            worst = [
                row for row in shares if row.attribute == attribute and row.share >= max(_MANY_EXCLUDED, 2 * share)
            ]
            named = [
                f"{'all' if row.n == row.total else formats.share(row.share, 1)} of {attribute} {row.value}"
                for row in worst[:_LEVELS]
            ]
            named += [f"… +{len(worst) - _LEVELS}"] if len(worst) > _LEVELS else []
            texts.append(", ".join(named))
        text += ", but " * any(texts) + "; ".join(filter(None, texts))
    yield Note("excluded share", f"{text[0].upper()}{text[1:]}.", fields={"share": share})


def _excluded_level_notes(shares: Sequence[ExcludedShare], attributes: Sequence[str], unit: str) -> Iterator[Note]:
    """Levels of which every combination is excluded: the result says nothing about them."""
    for attribute in attributes:
        rows = sorted((row for row in shares if row.attribute == attribute and row.n == row.total), key=lambda r: -r.n)
        if not rows:
            continue
        names = formats.members([row.value for row in rows], str, _LISTED)
        count = formats.count(sum(row.n for row in rows))
        text = (
            f"Excluded with all their groups: {attribute} {names} ({count} {unit}). The result says nothing about them."
        )
        fields = {"attribute": attribute, "levels": [row.value for row in rows], "n": sum(row.n for row in rows)}
        yield Note("excluded levels", text, "warning", fields)
