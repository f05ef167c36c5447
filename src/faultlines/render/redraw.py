"""What the slider of a page redraws: the layers of a picture that follow the cut, in pixels of the first one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from faultlines import formats
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import key_of, level_name
from faultlines.render.clustering import decide, interval_name
from faultlines.render.geometry import FILLED, LAYERS, Frame, Picture
from faultlines.render.pictures import pictures
from faultlines.results.clustering import Clustering
from faultlines.results.tables import ARMS
from faultlines.types import BoolArray, IntArray

# ---------- The table of groups on a page: what each is by itself, and what to believe of it with what the others


_ENDS = 500  # groups listed from either end where there are more


class Column(NamedTuple):
    """One column: its header, what is shown, what it is sorted by; a key, if it follows the cut."""

    name: str
    shown: Sequence[str]
    by: Sequence[str]
    key: str = ""


def listed(order: IntArray, *, all_listed: bool) -> IntArray:
    """The groups that are listed, in the order of the picture: all of them, or those at either end."""
    return order if all_listed else np.concatenate([order[:_ENDS], order[-_ENDS:]])


def group_table(c: Clustering, order: IntArray, *, all_listed: bool, several: bool) -> dict[str, Any]:
    """The groups that are listed, with the columns of the page.

    Args:
        c: The result.
        order: Which groups, in which order.
        all_listed: Whether these are all.
        several: Whether there are several clusters, now or at another level.
    """
    posterior_cells = dict(posterior_columns(c, c.alpha, order))
    columns = _own_columns(c, order, posterior_cells)
    if c.groups.n is not None:
        sizes = c.groups.n[order].tolist()
        columns.append(Column("n", [formats.count(size) for size in sizes], list(map(repr, sizes))))
    columns += _arm_columns(c, order)
    clusters = [str(cluster) for cluster in c.labels[order].tolist()]
    columns.append(Column("cluster", clusters, clusters, "cluster"))
    if several and "membership" in posterior_cells and c.posterior is not None:
        by = list(map(repr, c.posterior.membership[order].tolist()))
        columns.append(Column("membership", posterior_cells["membership"], by, "membership"))
    keys = [key_of(c.group_labels[i]) for i in order.tolist()]
    cells = zip(*(zip(column.shown, column.by, strict=True) for column in columns), strict=True)
    return {
        "header": [
            *({"name": name, "is_number": False, "key": ""} for name in c.groups.attributes),
            *({"name": column.name, "is_number": True, "key": column.key} for column in columns),
        ],
        "rows": [
            {"names": [formats.printable(str(part)) for part in key], "cells": row}
            for key, row in zip(keys, cells, strict=True)
        ],
        "chip": next(i for i, column in enumerate(columns) if column.key == "cluster"),
        "total": len(c.groups),
        "whole": all_listed,
        "about": _about(c, several=several and "membership" in posterior_cells),
    }


def posterior_columns(c: Clustering, level: float, order: IntArray) -> list[tuple[str, list[str]]]:
    """What follows the cut, as text: membership, and the shrunken effects with their intervals at a level.

    A page keeps the level of its result for what it says of groups, whichever cut is looked at.
    """
    pooled = c.clusters[0].pooled.at(level)
    posterior, estimates = pooled.posterior, c.groups.estimates
    if posterior is None or estimates is None:
        return []
    chances = zip(posterior.membership[order].tolist(), posterior.possible[order], strict=True)
    columns = [("membership", [_membership(*row) for row in chances] if c.rejected else ["–"] * len(order))]
    for part in range(estimates.dims):
        number = _number(c, estimates, part, order)
        values, low, high = (a[order, part].tolist() for a in (posterior.shrunken, posterior.lower, posterior.upper))
        columns.append((f"shrunken{part}", [number(value) for value in values]))
        columns.append((f"within{part}", [number.interval(a, b) for a, b in zip(low, high, strict=True)]))
    return columns


def _membership(probability: float, possible: BoolArray) -> str:
    """The probability of the cluster it is in, with the possible ones: "71%, possible: 2 or 3"."""
    clusters = [str(i + 1) for i in np.flatnonzero(possible).tolist()]
    text = f"{100 * probability:.0f}%"
    if probability < 1 and text in {"100%", "0%"}:
        text = "> 99%" if text == "100%" else "< 1%"
    return text if len(clusters) == 1 else f"{text}, possible: {formats.either(clusters)}"


def _own_columns(c: Clustering, order: IntArray, posterior_cells: dict[str, list[str]]) -> list[Column]:
    """Every effect: the group's own estimate and the shrunken one, each with its interval."""
    estimates, columns = c.groups.estimates, list[Column]()
    if estimates is None:
        return columns
    lower, upper = (end[order] for end in estimates.interval_ends(c.alpha))
    for part, name in enumerate(c.effect_names):
        of = f"{name}: " if len(c.effect_names) > 1 else ""
        values, low, high = (array[:, part].tolist() for array in (estimates.shown[order], lower, upper))
        number = _number(c, estimates, part, order)
        columns.append(Column(f"{of}own estimate", [number(value) for value in values], list(map(repr, values))))
        ends = [number.interval(a, b) for a, b in zip(low, high, strict=True)]
        widths = [repr(b - a) for a, b in zip(low, high, strict=True)]
        columns.append(Column(interval_name(c), ends, widths))
        if f"shrunken{part}" in posterior_cells and c.posterior is not None:
            posterior = c.posterior
            values, low, high = (
                a[order, part].tolist() for a in (posterior.shrunken, posterior.lower, posterior.upper)
            )
            key = f"shrunken{part}"
            columns.append(Column(f"{of}shrunken", posterior_cells[key], list(map(repr, values)), key))
            widths = [repr(b - a) for a, b in zip(low, high, strict=True)]
            columns.append(Column(interval_name(c), posterior_cells[f"within{part}"], widths, f"within{part}"))
    return columns


def _number(c: Clustering, estimates: Estimates, part: int, order: IntArray) -> formats.NumberFormat:
    """How an effect of single groups is written: with two digits of a small standard error."""
    errors = estimates.readable_errors(estimates.given, estimates.errors)[:, part]
    positive = errors[errors > 0]
    small = [float(np.quantile(positive, 0.1))] if positive.size else [1.0]
    return c.number_format(small, estimates.shown[order, part].tolist(), part)


def _arm_columns(c: Clustering, order: IntArray) -> list[Column]:
    """Sizes and plain values of control and treatment, where they are compared."""
    readout = c.readout
    if readout is None or readout.by_arm is None or readout.arm_sizes is None:
        return []
    columns = []
    spread = float(np.nanstd(readout.by_arm)) or 1.0
    for i, arm in enumerate(ARMS):
        values, sizes = readout.by_arm[order, i].tolist(), readout.arm_sizes[order, i].tolist()
        number = formats.decimals([spread / 10], values, False)
        # In one column, so that the table fits on a page.
        texts = [f"{number(v)} ({formats.count(n)})" for v, n in zip(values, sizes, strict=True)]
        columns.append(Column(f"{arm} (n)", texts, list(map(repr, values))))
    return columns


def _about(c: Clustering, *, several: bool) -> str:
    """Which column is what, in a line."""
    if c.groups.estimates is None:
        return ""
    texts = ["Own estimate: from the group alone."]
    if c.posterior is not None:
        texts.append("Shrunken: pulled toward similar groups, the best guess of the effect of one group.")
    if several:
        level = formats.level(c.alpha)
        texts.append(f"Membership: the probability of its cluster; below {level}, with all possible clusters.")
    return " ".join(texts)


# --------------------


_CELLS = 60_000  # groups of all partitions together up to which what to believe of them follows the slider


def live(
    levels: Sequence[Clustering],
    now: int,
    tables: Sequence[dict[str, Any]],
    frame: Frame,
    drawn: Mapping[str, tuple[Picture, ...]],
    order: IntArray,
    *,
    all_listed: bool,
) -> dict[str, Any]:
    """Every level as the page's script needs it; equal partitions share their drawing."""
    inside = frame._replace(axes=tuple((picture.x, picture.y) for picture in drawn["groups"]))
    count = len({c.labels.tobytes() for c in levels})
    claim = levels[now].labels.tobytes()
    places: dict[bytes, int] = {}
    partitions: list[dict[str, Any]] = []
    texts = []
    for c, table in zip(levels, tables, strict=True):
        key = c.labels.tobytes()
        if key not in places:
            places[key] = len(partitions)
            redrawn = [
                _redrawn(other, base)
                for kind, several in drawn.items()
                for other, base in zip(pictures(c, kind, inside), several, strict=True)  # type: ignore[arg-type]
            ]
            follows = count * len(c.groups) <= _CELLS or key == claim
            posterior_cells = posterior_columns(c, frame.level, order) if follows else []
            partitions.append(
                {
                    "labels": _runs(c.labels[order].tolist()),
                    "drawn": redrawn,
                    "posterior_cells": {name: _runs(cells) for name, cells in posterior_cells},
                }
            )
        decision = decide(c, frame.adverse, frame.level)
        about = {"alpha": f"{c.alpha:.3g}", "verdict": c.headline, "lead": decision.lead, "partition": places[key]}
        clusters = [[row.cluster, row.effect, row.groups, row.size, row.standing] for row in decision.clusters]
        about |= {"described": clusters, "between": decision.between}
        about |= {"evidence": decision.evidence, "uncertain": decision.uncertain}
        texts.append(about | table)
    return {
        "now": now,
        "levels": texts,
        "partitions": partitions,
        "names": [
            formats.printable(level_name(levels[now].group_labels[i], levels[now].groups.attributes))
            for i in frame.order.tolist()
        ]
        if all_listed
        else [],
        "styles": {name: style.look for name, style in LAYERS.items()},
        "filled": FILLED,
        "members": members_heading(levels[now]),
    }


def members_heading(c: Clustering) -> str:
    """What stands above the members of a cluster: what their names are made of, where that is not one attribute."""
    several = len(c.groups.attributes) > 1
    return formats.printable(f"members ({' · '.join(c.groups.attributes)})" if several else "members")


def _redrawn(picture: Picture, base: Picture) -> dict[str, Any]:
    """The layers of a picture that follow the cut, in pixels of the frame that is on the page."""

    def across(value: float) -> float:
        return round((value - base.x.low) / (base.x.high - base.x.low) * base.width, 1)

    def down(value: float) -> float:
        share = (value - picture.y.low) / (picture.y.high - picture.y.low)  # rows share the height, however many
        return round((1 - share if base.y.is_shown else share) * base.height, 1)

    shapes: dict[str, list[Any]] = {}
    hollow: dict[str, list[Any]] = {}
    for name, style in LAYERS.items():
        rows = picture.layers[name]
        if style.cut == "coloured":
            first = [row for i, row in enumerate(rows) if "id" not in row or row["order"] == 0]
            shapes[name] = _runs([row["cluster"] for row in first])
            if first and "hollow" in first[0]:
                hollow[name] = _runs([int(row["hollow"]) for row in first])
        elif style.cut == "drawn" and style.mark == "text":
            shapes[name] = [
                [across(r["x"]), down(r["y"]), r["cluster"], r.get("align", style.look["align"]), r["text"]]
                for r in rows
            ]
        elif style.cut == "drawn" and style.mark == "line":
            by: dict[int, list[dict[str, Any]]] = {}
            for row in rows:
                by.setdefault(row["id"], []).append(row)
            shapes[name] = [
                [" ".join(f"{across(r['x'])},{down(r['y'])}" for r in same), same[0]["cluster"]] for same in by.values()
            ]
        elif style.cut == "drawn":
            shapes[name] = [[across(r["x"]), down(r["y"]), across(r["x2"]), down(r["y2"]), r["cluster"]] for r in rows]
    kinds = {name: style.mark for name, style in LAYERS.items() if name in shapes}
    return {"kinds": kinds, "shapes": shapes, "hollow": hollow}


def _runs(values: Sequence[Any]) -> list[Any]:
    """Values as value, count, value, count and so on."""
    runs: list[Any] = []
    for value in values:
        if runs and runs[-2] == value:
            runs[-1] += 1
        else:
            runs += [value, 1]
    return runs
