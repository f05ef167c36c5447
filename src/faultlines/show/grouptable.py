"""The table of groups on a page: what each is by itself, and what to believe of it with what the others teach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines import text
from faultlines.estimates.labels import key_of
from faultlines.result.tables import ARMS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faultlines.estimates.estimates import BoolArray, Estimates, IntArray
    from faultlines.result.summary import Summary

_ENDS = 500  # groups listed from either end where there are more


class Column(NamedTuple):
    """One column: its header, what is shown, what it is sorted by; a key, if it follows the cut."""

    name: str
    shown: Sequence[str]
    by: Sequence[str]
    key: str = ""


def listed(order: IntArray, *, whole: bool) -> IntArray:
    """The groups that are listed, in the order of the picture: all of them, or those at either end."""
    return order if whole else np.concatenate([order[:_ENDS], order[-_ENDS:]])


def group_table(s: Summary, order: IntArray, *, whole: bool, several: bool) -> dict[str, Any]:
    """The groups that are listed, with the columns of the page.

    Args:
        s: The result.
        order: Which groups, in which order.
        whole: Whether these are all.
        several: Whether there are several clusters, now or at another level.
    """
    believed = dict(believed_columns(s, s.alpha, order))
    columns = _own_columns(s, order, believed)
    if s.groups.n is not None:
        sizes = s.groups.n[order].tolist()
        columns.append(Column("n", [text.count(size) for size in sizes], list(map(repr, sizes))))
    columns += _arm_columns(s, order)
    clusters = [str(cluster) for cluster in s.labels[order].tolist()]
    columns.append(Column("cluster", clusters, clusters, "cluster"))
    if several and "membership" in believed and s.belief is not None:
        by = list(map(repr, s.belief.membership[order].tolist()))
        columns.append(Column("membership", believed["membership"], by, "membership"))
    keys = [key_of(s.group_labels[i]) for i in order.tolist()]
    cells = zip(*(zip(one.shown, one.by, strict=True) for one in columns), strict=True)
    return {
        "header": [
            *({"name": name, "is_number": False, "key": ""} for name in s.groups.attributes),
            *({"name": one.name, "is_number": True, "key": one.key} for one in columns),
        ],
        "rows": [
            {"names": [text.printable(str(part)) for part in key], "cells": row}
            for key, row in zip(keys, cells, strict=True)
        ],
        "chip": next(i for i, one in enumerate(columns) if one.key == "cluster"),
        "total": len(s.groups),
        "whole": whole,
        "about": _about(s, several=several and "membership" in believed),
    }


def believed_columns(s: Summary, level: float, order: IntArray) -> list[tuple[str, list[str]]]:
    """What follows the cut, as text: membership, and the shrunken effects with their intervals at a level.

    A page keeps the level of its claim for what it says of groups, whichever cut is looked at.
    """
    pooled = s.clusters[0].pooled.at(level)
    belief, estimates = pooled.belief, s.estimates
    if belief is None or estimates is None:
        return []
    chances = zip(belief.membership[order].tolist(), belief.possible[order], strict=True)
    made = [("membership", [_membership(*one) for one in chances] if s.rejected else ["–"] * len(order))]
    for part in range(estimates.dims):
        number = _number(s, estimates, part, order)
        values, low, high = (a[order, part].tolist() for a in (belief.shrunken, belief.lower, belief.upper))
        made.append((f"shrunken{part}", [number(value) for value in values]))
        made.append((f"within{part}", [f"{number(a)} … {number(b)}" for a, b in zip(low, high, strict=True)]))
    return made


def _membership(chance: float, possible: BoolArray) -> str:
    """The chance of the cluster it is in, and whether that is sure: "71%, could be 2 or 3"."""
    clusters = [str(i + 1) for i in np.flatnonzero(possible).tolist()]
    shown = f"{100 * chance:.0f}%"
    if chance < 1 and shown in {"100%", "0%"}:
        shown = "> 99%" if shown == "100%" else "< 1%"
    return f"{shown}, sure" if len(clusters) == 1 else f"{shown}, could be {text.either(clusters)}"


def _own_columns(s: Summary, order: IntArray, believed: dict[str, list[str]]) -> list[Column]:
    """Every effect: the group's own estimate and the shrunken one, each with its interval."""
    estimates, columns = s.estimates, list[Column]()
    if estimates is None:
        return columns
    lower, upper = (end[order] for end in estimates.interval_ends(s.alpha))
    for part, name in enumerate(s.effect_names):
        of = f"{name}: " if len(s.effect_names) > 1 else ""
        values, low, high = (array[:, part].tolist() for array in (estimates.shown[order], lower, upper))
        number = _number(s, estimates, part, order)
        columns.append(Column(f"{of}own estimate", [number(value) for value in values], list(map(repr, values))))
        ends = [f"{number(a)} … {number(b)}" for a, b in zip(low, high, strict=True)]
        widths = [repr(b - a) for a, b in zip(low, high, strict=True)]
        columns.append(Column(s.interval_name, ends, widths))
        if f"shrunken{part}" in believed and s.belief is not None:
            belief = s.belief
            values, low, high = (a[order, part].tolist() for a in (belief.shrunken, belief.lower, belief.upper))
            key = f"shrunken{part}"
            columns.append(Column(f"{of}shrunken", believed[key], list(map(repr, values)), key))
            widths = [repr(b - a) for a, b in zip(low, high, strict=True)]
            columns.append(Column(s.interval_name, believed[f"within{part}"], widths, f"within{part}"))
    return columns


def _number(s: Summary, estimates: Estimates, part: int, order: IntArray) -> Callable[[float], str]:
    """How an effect of single groups is written: with two digits of a small standard error."""
    errors = estimates.readable_errors(estimates.given, estimates.errors)[:, part]
    positive = errors[errors > 0]
    small = [float(np.quantile(positive, 0.1))] if positive.size else [1.0]
    return s.number_for(small, estimates.shown[order, part].tolist(), part)


def _arm_columns(s: Summary, order: IntArray) -> list[Column]:
    """Sizes and plain values of control and treatment, where they are compared."""
    readout = s.readout
    if readout is None or readout.by_arm is None or readout.arm_sizes is None:
        return []
    made = []
    spread = float(np.nanstd(readout.by_arm)) or 1.0
    for i, arm in enumerate(ARMS):
        values, sizes = readout.by_arm[order, i].tolist(), readout.arm_sizes[order, i].tolist()
        number = text.decimals([spread / 10], values, False, False)
        # In one column, so that the table fits on a page.
        shown = [f"{number(v)} ({text.count(n)})" for v, n in zip(values, sizes, strict=True)]
        made.append(Column(f"{arm} (n)", shown, list(map(repr, values))))
    return made


def _about(s: Summary, *, several: bool) -> str:
    """Which column is what, in a line."""
    if s.estimates is None:
        return ""
    told = ["Own estimate: from the group alone."]
    if s.belief is not None:
        told.append("Shrunken: with what the other groups teach, the better guess of the effect on one group.")
    if several:
        level = text.level(s.alpha)
        told.append(f"Membership: the chance of its cluster; sure, or the clusters it could be in at {level}.")
    return " ".join(told)
