"""The pictures of a result: groups by effect, or in the plane of two; and the tree of merges."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from faultlines import formats
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import labels_of, level_name, name_of, named_by
from faultlines.render.clustering import harm_statuses
from faultlines.render.geometry import (
    LAYERS,
    ROWS,
    WIDTH,
    Axis,
    Frame,
    GroupNames,
    Kind,
    Picture,
    Row,
    plane,
    row_heading,
    row_height,
    row_name,
)
from faultlines.results.audit import AuditedGroup
from faultlines.results.clustering import Clustering
from faultlines.types import BoolArray, FloatArray, IntArray

_PLOT_ROWS = 40  # groups with a row of their own in a plot of rows
_PRINTED_ROWS = 6  # of these, those that are printed: at the ends
_MANY = 60  # groups from which on a few may stand at the edge
_RIDGES = 24  # clusters that are drawn as densities
_BINS = 90
_EXTREMES = 5  # groups named at either end where not all are


class _Effect(NamedTuple):
    """One of the effects, in the order of a frame: of the groups, of the clusters and of all together."""

    title: str
    values: FloatArray
    lower: FloatArray
    upper: FloatArray
    labels: IntArray
    sure: BoolArray
    clusters: Sequence[tuple[float, float, float]]
    overall: float
    axis: Axis


def _effect(c: Clustering, estimates: Estimates, frame: Frame, part: int) -> _Effect:
    at = (frame.order, part)
    lower, upper = (end[at] for end in estimates.interval_ends(frame.level))
    values = estimates.shown[at]
    # Another cut is drawn into a picture whose intervals have the level of the first.
    effects = [effects[part] for effects in c.clusters[0].pooled.at(frame.level).effects]
    ends = [(effect.lower, effect.estimate, effect.upper) for effect in effects]
    title = formats.printable(estimates.parts[part] if estimates.parts else c.groups.metric)
    # A few groups with huge intervals must not press all others together: theirs run out of the picture, and of very
    # many groups the outermost stand at its edge.
    tail = 0.0 if values.size < _MANY else 0.02
    inner = [*np.quantile(values, [tail, 1 - tail]).tolist(), *(end for triple in ends for end in triple)]
    low, high = min(inner), max(inner)
    room = max(high - low, float(np.median(upper - lower)), 1e-12 * max(abs(low), abs(high), 1e-300))
    low = max(float(lower.min()), low - 0.6 * room)
    high = min(float(upper.max()), high + 0.6 * room)
    margin = 0.03 * (high - low)
    unit = estimates.scales[part].unit
    axis = frame.axes[part][0] if frame.axes else Axis(title, low - margin, high + margin, unit=unit)
    overall = c.overall.effects[part].estimate
    sure = c.certain_at(frame.level)[frame.order]
    return _Effect(title, values, lower, upper, c.labels[frame.order], sure, ends, overall, axis)


def _runs(labels: IntArray) -> list[tuple[int, int, int]]:
    """Cluster, first and last place of every run of equal labels."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(labels)) + 1)).tolist()
    ends = [*(start - 1 for start in starts[1:]), labels.size - 1]
    return [(int(labels[start]), start, end) for start, end in zip(starts, ends, strict=True)]


def _line_pvalues(c: Clustering, frame: Frame, runs: Sequence[object]) -> list[str]:
    """The p of every line between neighbouring runs, where the runs are the clusters of the tree."""
    path = c.claims
    opened = path.gap_pvalues()[path.open_gaps(len(c.clusters))]
    if not frame.follows_tree or len(opened) != len(runs) - 1:
        return [""] * (len(runs) - 1)
    return [formats.p_is(float(p)) for p in opened]


def _overall(effect: _Effect, rows: float, step: float) -> dict[str, list[Row]]:
    x = effect.overall
    return {
        "overall": [{"x": x, "x2": x, "y": 0.0, "y2": float(rows), "cluster": -1}],
        "notes": [{"x": x, "y": -9 / step, "text": "mean of all", "cluster": -1, "align": "center"}],
    }


def _columns(axis: Axis, frame: Frame, pvalues: Sequence[str]) -> tuple[float, float]:
    """Where the p of the lines and the names of the clusters stand, to the right of the rows."""
    widest = max(map(len, pvalues), default=0)
    between = max(88, 6.4 * widest + 14) if frame.follows_tree else 0  # lines of other orders have no p
    return axis.beyond(WIDTH + 8, WIDTH), axis.beyond(WIDTH + 8 + between, WIDTH)


def rows(c: Clustering, estimates: Estimates, frame: Frame, part: int) -> Picture:
    """A row for every group, with its interval; clusters as bands, lines between them with their p."""
    effect = _effect(c, estimates, frame, part)
    groups = effect.labels.size
    step = row_height(groups, small=True)
    height = max(round(groups * step), 40)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    layers |= _overall(effect, groups, height / groups)
    _draw_groups(layers, c, frame, effect, part, step)
    runs = _runs(effect.labels)
    pvalues = _line_pvalues(c, frame, runs)
    columns = _columns(effect.axis, frame, pvalues)
    _draw_clusters(layers, c, frame, effect, runs, part, step, columns[1])
    free = -np.inf
    for (_, first, _), words in zip(runs[1:], pvalues, strict=True):
        y = float(first)
        layers["faults"].append({"x": effect.axis.low, "x2": effect.axis.high, "y": y, "y2": y, "cluster": 0})
        if words and (y - free) * step >= 12:
            layers["sides"].append({"x": columns[0], "y": y, "text": words, "cluster": 0})
            free = y
    about = f"{groups} groups by {effect.title}, colored by cluster, with {formats.level(frame.level)} intervals"
    return Picture(about, WIDTH, height, effect.axis, Axis("", 0.0, float(groups), False), layers)


def _draw_groups(
    layers: dict[str, list[Row]], c: Clustering, frame: Frame, effect: _Effect, part: int, step: float
) -> None:
    """Every group as a row: its point, hollow where its membership is uncertain, its interval and its name."""
    axis, number, names = effect.axis, c.number_formats[part], GroupNames(c, frame)
    ends = (effect.values, effect.lower, effect.upper, effect.labels, effect.sure)
    for place, (value, low, high, cluster, sure) in enumerate(zip(*(end.tolist() for end in ends), strict=True)):
        y = place + 0.5
        layers["intervals"].append(
            {"x": max(low, axis.low), "x2": min(high, axis.high), "y": y, "y2": y, "cluster": cluster}
        )
        tooltip = {"name": names[place], "estimate": number(value), "interval": number.interval(low, high)}
        inside = min(max(value, axis.low), axis.high)
        layers["points"].append({"x": inside, "y": y, "cluster": cluster, "hollow": not sure, **tooltip})
        layers["names"] += row_name(axis, y, names[place], step)
    layers["notes"] += row_heading(c, axis, step)
    if not layers["names"]:
        layers["notes"] += _named_extremes(names, effect, effect.labels.size, step)


def _draw_clusters(
    layers: dict[str, list[Row]],
    c: Clustering,
    frame: Frame,
    effect: _Effect,
    runs: Sequence[tuple[int, int, int]],
    part: int,
    step: float,
    column: float,
) -> None:
    """Every cluster as a band around its level, named beside it."""
    axis, number, standing = effect.axis, c.number_formats[part], _standings(c, frame)
    free = -np.inf
    for cluster, first, last in runs:
        low, mean, high = effect.clusters[cluster - 1]
        around = {"y": float(first), "y2": last + 1.0, "cluster": cluster}
        layers["bands"].append({"x": max(low, axis.low), "x2": min(high, axis.high), **around})
        layers["means"].append({"x": mean, "x2": mean, **around})
        middle = (first + last + 1) / 2
        if (middle - free) * step >= 13:  # or one name would run into the next
            about = f"cluster {cluster}: {number(mean)}{standing[cluster - 1]}"
            layers["sides"].append({"x": column, "y": middle, "text": about, "cluster": cluster})
            free = middle


def _standings(c: Clustering, frame: Frame) -> list[str]:
    """What is said of each cluster beside its effect: that its people are worse off, or better."""
    return [f", {words}" if words else "" for words in harm_statuses(c, frame.adverse)]


def _named_extremes(names: GroupNames, effect: _Effect, groups: int, step: float) -> list[Row]:
    """The groups at either end, named in one line each above and below the rows."""
    by_value = np.argsort(effect.values, kind="stable").tolist()
    lowest, highest = by_value[:_EXTREMES], by_value[: -_EXTREMES - 1 : -1]
    lines = {-26 / step: ("lowest", lowest), groups + 44 / step: ("highest", highest)}
    return [
        {
            "x": effect.axis.low,
            "y": y,
            "text": f"{which}: {formats.members(places, names.__getitem__, 110)}",
            "cluster": -1,
            "align": "left",
        }
        for y, (which, places) in lines.items()
    ]


def ridges(c: Clustering, estimates: Estimates, frame: Frame, part: int) -> Picture:
    """Too many groups for a row each: how their estimates are spread in every cluster, with those at the ends named."""
    effect = _effect(c, estimates, frame, part)
    axis, values, labels = effect.axis, effect.values, effect.labels
    runs = _runs(labels)
    if len(runs) != len(c.clusters):
        runs = [(number + 1, 0, 0) for number in range(len(c.clusters))]
    line_texts = _line_pvalues(c, frame, runs)
    drawn = list(range(len(runs)))
    if len(drawn) > _RIDGES:
        drawn = [*drawn[: _RIDGES // 2], *drawn[-_RIDGES // 2 :]]
    height = int(np.clip(64 * len(drawn), 240, 26 * _RIDGES))
    step = height / len(drawn)
    edges = np.linspace(axis.low, axis.high, _BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    number, standing = c.number_formats[part], _standings(c, frame)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    layers |= _overall(effect, len(drawn), step)
    first_column, second_column = _columns(axis, frame, line_texts)
    for row, i in enumerate(drawn):
        cluster = runs[i][0]
        members = labels == cluster
        inside, unsure = values[members], int(np.sum(~effect.sure[members]))
        density = np.histogram(np.clip(inside, axis.low, axis.high), edges)[0]
        outline = row + 0.92 - 0.84 * density / max(density.max(), 1)
        xs, ys = [axis.low, *middles.tolist(), axis.high], [row + 0.92, *outline.tolist(), row + 0.92]
        layers["ridges"] += [
            {"x": x, "y": y, "id": row, "order": j, "cluster": cluster}
            for j, (x, y) in enumerate(zip(xs, ys, strict=True))
        ]
        low, mean, high = effect.clusters[cluster - 1]
        around = {"y": row + 0.08, "y2": row + 0.92, "cluster": cluster}
        layers["bands"].append({"x": max(low, axis.low), "x2": min(high, axis.high), **around})
        layers["means"].append({"x": mean, "x2": mean, **around})
        count = f"{formats.count(inside.size)} groups" + (f", {formats.count(unsure)} uncertain" if unsure else "")
        lines = [f"cluster {cluster}: {number(mean)}{standing[cluster - 1]}", count]
        layers["sides"] += [
            {
                "x": second_column,
                "y": row + 0.5 + (j - 0.5) * 14 / step,
                "text": line,
                "cluster": cluster if j == 0 else -1,
            }
            for j, line in enumerate(lines)
        ]
        if row:
            y = float(row)
            skipped = len(runs) - len(drawn) if row == _RIDGES // 2 and len(drawn) < len(runs) else 0
            words = f"… {skipped} more" if skipped else line_texts[i - 1]
            layers["faults"].append({"x": axis.low, "x2": axis.high, "y": y, "y2": y, "cluster": 0})
            layers["sides"].append({"x": first_column, "y": y, "text": words, "cluster": 0})
    names = GroupNames(c, frame)
    layers["notes"] += _named_extremes(names, effect, len(drawn), step)
    about = f"how the estimates of {formats.count(values.size)} groups by {effect.title} are spread in each cluster"
    return Picture(about, WIDTH, height, axis, Axis("", 0.0, float(len(drawn)), False), layers)


# ---------- The tree of merges as a picture.


_LEAVES = 60  # of a tree that is drawn from the top


def _tree_gaps(c: Clustering) -> BoolArray:
    """Where the tree is cut: into as many branches as there are clusters, if each branch then is mostly one of them.

    Clusters need not be branches: groups at the borders were moved, and an outlier group can stand anywhere.
    """
    tree, count = c.judged.hierarchy, len(c.clusters)
    cut = tree.merge_rank() >= len(tree) - count
    labels = c.labels[tree.order]
    starts = tree.starts(cut)
    ends = [*starts[1:].tolist(), len(tree)]
    mostly = {int(np.bincount(labels[a:b]).argmax()) for a, b in zip(starts.tolist(), ends, strict=True)}
    return cut if len(mostly) == count else c.judged.path.open_gaps(count)


def tree(c: Clustering) -> Picture:
    """The merges from the leaves to the root, with the cut; of very many groups only the topmost."""
    merges = c.judged.hierarchy
    groups = len(merges)
    size = np.sqrt(np.maximum(merges.gap_heights, 0.0))
    is_open = _tree_gaps(c)
    is_complete = groups <= ROWS
    gaps = np.arange(groups - 1)
    if not is_complete:  # gaps that close last; what closes before is a leaf
        gaps = np.sort(merges.merge_order()[-(_LEAVES - 1) :])
        # Each border is drawn at the nearest gap that is shown.
        nearest = gaps[np.abs(gaps[:, None] - np.flatnonzero(is_open)).argmin(axis=0)]
        is_open = np.zeros_like(is_open)
        is_open[nearest] = True
    first = [0, *(gaps + 1).tolist()]
    last = [*gaps.tolist(), groups - 1]
    # A branch has the colour of most of its groups: some at the borders were moved.
    labels, starts = c.labels[merges.order], merges.starts(is_open)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), groups], strict=True):
        labels[start:end] = np.bincount(labels[start:end]).argmax()
    leaves = len(first)
    step = row_height(leaves)
    height = max(round(leaves * step), 40)
    high = float(size.max()) * 1.04 or 1.0
    x = Axis(c.judged.height_name, 0.0, high)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    for leaf, (start, end) in enumerate(zip(first, last, strict=True)):
        only = name_of(c.group_labels[int(merges.order[start])])
        words = only if start == end else f"{formats.count(end - start + 1)} groups"
        layers["names"] += row_name(x, leaf + 0.5, words, step)
    layers["notes"] += row_heading(c, x, step)
    # Each branch: the first and last leaf below it, where it stands, how high it is, and its cluster.
    branch = [(leaf, leaf, leaf + 0.5, 0.0, int(labels[first[leaf]])) for leaf in range(leaves)]
    merge_rank = merges.merge_rank()
    for gap in sorted(range(leaves - 1), key=lambda i: int(merge_rank[gaps[i]])):
        left, right = branch[gap], branch[gap + 1]
        tall = float(size[gaps[gap]])
        cluster = 0 if is_open[gaps[gap]] else left[4]
        layers["branches"] += [
            {"x": left[3], "x2": tall, "y": left[2], "y2": left[2], "cluster": cluster},
            {"x": tall, "x2": tall, "y": left[2], "y2": right[2], "cluster": cluster},
            {"x": right[3], "x2": tall, "y": right[2], "y2": right[2], "cluster": cluster},
        ]
        # Neighbours ask only at its ends.
        branch[left[0]] = branch[right[1]] = (left[0], right[1], (left[2] + right[2]) / 2, tall, cluster)
    opened, closed = size[is_open], size[~is_open]
    if opened.size == 0 or closed.size == 0 or opened.min() > closed.max():
        upper = float(opened.min()) if opened.size else high
        cut = (upper + (float(closed.max()) if closed.size else 0.0)) / 2
        layers["faults"].append({"x": cut, "x2": cut, "y": 0.0, "y2": float(leaves), "cluster": 0})
        text = f"cut: {len(c.clusters)} cluster{'s' * c.rejected}"
        layers["sides"].append({"x": cut, "y": -9 / step, "text": text, "cluster": 0, "align": "center"})
    about = f"tree of merges of {formats.count(groups)} groups" + (
        "" if is_complete else f", its {leaves} topmost branches"
    )
    return Picture(about, WIDTH, height, x, Axis("", 0.0, float(leaves), False), layers)


_MERGES = 8  # the last merges, where the tree is a list
_MERGED = 60  # characters of the names on either side of a merge


def last_merges(c: Clustering) -> list[dict[str, str]]:
    """The last merges, from the root down: how different both sides are, and which groups they hold."""
    merges = c.judged.hierarchy
    groups = len(merges)
    gaps = merges.merge_order()[::-1][:_MERGES].tolist()

    def names(first: int, last: int) -> str:
        labels = [c.group_labels[i] for i in merges.order[first : last + 1].tolist()]
        return formats.members(labels, lambda label: formats.printable(name_of(label)), _MERGED)

    borders, rows = [-1, groups - 1], []
    for gap in gaps:
        before, after = max(b for b in borders if b < gap), min(b for b in borders if b > gap)
        height = float(np.sqrt(max(merges.gap_heights[gap], 0.0)))
        rows.append({"height": f"{height:.3g}", "left": names(before + 1, gap), "right": names(gap + 1, after)})
        borders.append(gap)
    return rows


# ---------- The pictures of a result: groups by effect, or in the plane of two; and the tree of merges.


def pictures(c: Clustering, kind: Kind = "groups", frame: Frame | None = None) -> tuple[Picture, ...]:
    """The pictures of a result: one, or one for each of three and more effects measured together."""
    frame = frame or Frame.of(c)
    if kind == "tree":
        return (tree(c),) if len(c.groups) > 1 else ()
    if c.groups.estimates is None:
        return ()
    if c.groups.estimates.dims == 2:
        return (plane(c, c.groups.estimates, frame),)
    draw = rows if len(c.groups) <= ROWS else ridges
    return tuple(draw(c, c.groups.estimates, frame, part) for part in range(c.groups.estimates.dims))


# ------------------------------------------------------------------------------------------- plots of rows, in HTML


class LevelValue(NamedTuple):
    """One group in a plot of rows."""

    label: Hashable
    name: str
    n: float | None
    estimate: float
    lower: float
    upper: float
    cluster: int


def is_outer(place: int, count: int, most: int) -> bool:
    """Whether one of many rows is near either end, and not in the middle."""
    return place < most // 2 or place >= count - most // 2


def level_values(c: Clustering, measured: Mapping[Any, AuditedGroup]) -> list[LevelValue]:
    """The levels of the features that the differences run along, by rising value, as they were measured in the rows."""
    levels = c.by_attributes
    estimates = levels.groups.estimates
    if estimates is None or estimates.dims > 1:
        return []
    lower, upper = estimates.interval_ends(c.alpha)
    values = []
    for i, label in enumerate(labels_of(levels.groups.keys)):
        group, cluster = measured.get(label), int(levels.labels[i])
        name = f"{levels.groups.attributes[0]} {name_of(label)}"
        if len(levels.groups.attributes) > 1:
            name = named_by(label, levels.groups.attributes)
        n = None if estimates.n is None else float(estimates.n[i])
        ends = (float(estimates.shown[i, 0]), float(lower[i, 0]), float(upper[i, 0]))
        if group is not None and group.estimate is not None and group.lower is not None and group.upper is not None:
            n, ends = group.n, (group.estimate, group.lower, group.upper)
        values.append(LevelValue(label, formats.printable(name), n, *ends, cluster))
    return sorted(values, key=lambda value: value.estimate)


def group_values(c: Clustering, estimates: Estimates, part: int) -> list[LevelValue]:
    """All groups by rising value of one effect; what they are known by is their place in the result."""
    lower, upper = (end[:, part].tolist() for end in estimates.interval_ends(c.alpha))
    values, sizes = estimates.shown[:, part], estimates.n
    by_value = np.argsort(values, kind="stable").tolist()
    if len(by_value) > _PLOT_ROWS:  # those between are counted only
        by_value = [*by_value[: _PLOT_ROWS // 2], *by_value[-_PLOT_ROWS // 2 :]]
    return [
        LevelValue(
            group,
            formats.printable(level_name(c.group_labels[group], c.groups.attributes)),
            None if sizes is None else float(sizes[group]),
            float(values[group]),
            lower[group],
            upper[group],
            int(c.labels[group]),
        )
        for group in by_value
    ]


def plot_rows(
    values: Sequence[LevelValue],
    overall: float,
    number: Any,
    total: int | None = None,
    *,
    others: Sequence[LevelValue] = (),
) -> dict[str, Any] | None:
    """Points and intervals as places in per cent of the width.

    Args:
        values: The groups, by rising value.
        overall: The value of all together.
        number: How values are written.
        total: How many groups there are, where `values` has only those at either end.
        others: Groups of other plots that are drawn on the same scale.
    """
    if not values:
        return None
    shown = list(values)
    if len(shown) > _PLOT_ROWS:
        shown = [*shown[: _PLOT_ROWS // 2], *shown[-_PLOT_ROWS // 2 :]]
    # A few wide intervals must not press all points together: they run out of the picture.
    drawn = [*shown, *others]
    points = [value.estimate for value in drawn]
    spread = max(max(points) - min(points), 1e-12)
    low = max(min(value.lower for value in drawn), min(points) - spread)
    high = min(max(value.upper for value in drawn), max(points) + spread)
    low, high = min(low, overall), max(high, overall)

    def place(value: float) -> float:
        return float(np.clip(100 * (value - low) / max(high - low, 1e-300), 0, 100))

    rows = [
        {
            "label": value.label,
            "name": value.name,
            "n": "" if value.n is None else formats.count(value.n),
            "value": number(value.estimate),
            "interval": number.interval(value.lower, value.upper),
            "cluster": value.cluster,
            "left": f"{place(value.lower):.2f}",
            "width": f"{max(place(value.upper) - place(value.lower), 0.3):.2f}",
            "point": f"{place(value.estimate):.2f}",
            "is_printed": is_outer(i, len(shown), _PRINTED_ROWS),
        }
        for i, value in enumerate(shown)
    ]
    left = (total or len(values)) - len(shown)
    return {
        "rows": rows,
        "middle": _PLOT_ROWS // 2 if left else -1,
        "left": f"{left:,}",
        "overall": f"{place(overall):.2f}",
        "overall_text": number(overall),
    }
