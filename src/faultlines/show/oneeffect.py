"""One effect as a picture: a row for every group, or how groups are spread in each cluster where they are many."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultlines import text
from faultlines.result.decision import standings
from faultlines.show.geometry import LAYERS, WIDTH, Axis, GroupNames, Picture, row_heading, row_height, row_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import BoolArray, Estimates, IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.result.summary import Summary
    from faultlines.show.geometry import Frame, Row

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


def _effect(s: Summary, estimates: Estimates, frame: Frame, part: int) -> _Effect:
    at = (frame.order, part)
    lower, upper = (end[at] for end in estimates.interval_ends(frame.level))
    values = estimates.shown[at]
    # Another cut is drawn into a picture whose intervals have the level of the first.
    effects = [effects[part] for effects in s.clusters[0].pooled.at(frame.level).effects]
    ends = [(effect.lower, effect.estimate, effect.upper) for effect in effects]
    title = text.printable(estimates.parts[part] if estimates.parts else s.groups.measure)
    # A few groups with huge intervals must not press all others together: theirs run out of the picture, and of very
    # many groups the outermost stand at its edge.
    tail = 0.0 if values.size < _MANY else 0.02
    inner = [*np.quantile(values, [tail, 1 - tail]).tolist(), *(end for one in ends for end in one)]
    low, high = min(inner), max(inner)
    room = max(high - low, float(np.median(upper - lower)), 1e-12 * max(abs(low), abs(high), 1e-300))
    low = max(float(lower.min()), low - 0.6 * room)
    high = min(float(upper.max()), high + 0.6 * room)
    margin = 0.03 * (high - low)
    percent = estimates.scales[part].is_percent
    axis = frame.axes[part][0] if frame.axes else Axis(title, low - margin, high + margin, is_percent=percent)
    overall = s.overall.effects[part].estimate
    sure = s.sure_at(frame.level)[frame.order]
    return _Effect(title, values, lower, upper, s.labels[frame.order], sure, ends, overall, axis)


def _runs(labels: IntArray) -> list[tuple[int, int, int]]:
    """Cluster, first and last place of every run of equal labels."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(labels)) + 1)).tolist()
    ends = [*(start - 1 for start in starts[1:]), labels.size - 1]
    return [(int(labels[start]), start, end) for start, end in zip(starts, ends, strict=True)]


def _line_pvalues(s: Summary, frame: Frame, runs: Sequence[object]) -> list[str]:
    """The p of every line between neighbouring runs, where the runs are the clusters of the tree."""
    path = s.claims
    opened = path.gap_pvalues()[path.open_gaps(len(s.clusters))]
    if not frame.follows_tree or len(opened) != len(runs) - 1:
        return [""] * (len(runs) - 1)
    return [text.p_is(float(p)) for p in opened]


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


def rows(s: Summary, estimates: Estimates, frame: Frame, part: int) -> Picture:
    """A row for every group, with its interval; clusters as bands, lines between them with their p."""
    effect = _effect(s, estimates, frame, part)
    groups = effect.labels.size
    step = row_height(groups, small=True)
    height = max(round(groups * step), 40)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    layers |= _overall(effect, groups, height / groups)
    _draw_groups(layers, s, frame, effect, part, step)
    runs = _runs(effect.labels)
    pvalues = _line_pvalues(s, frame, runs)
    columns = _columns(effect.axis, frame, pvalues)
    _draw_clusters(layers, s, frame, effect, runs, part, step, columns[1])
    free = -np.inf
    for (_, first, _), words in zip(runs[1:], pvalues, strict=True):
        y = float(first)
        layers["faults"].append({"x": effect.axis.low, "x2": effect.axis.high, "y": y, "y2": y, "cluster": 0})
        if words and (y - free) * step >= 12:
            layers["sides"].append({"x": columns[0], "y": y, "text": words, "cluster": 0})
            free = y
    about = f"{groups} groups by {effect.title}, coloured by cluster, with {text.level(frame.level)} intervals"
    return Picture(about, WIDTH, height, effect.axis, Axis("", 0.0, float(groups), False), layers)


def _draw_groups(
    layers: dict[str, list[Row]], s: Summary, frame: Frame, effect: _Effect, part: int, step: float
) -> None:
    """Every group as a row: its point, hollow where it could be in another cluster, its interval and its name."""
    axis, number, names = effect.axis, s.numbers[part], GroupNames(s, frame)
    ends = (effect.values, effect.lower, effect.upper, effect.labels, effect.sure)
    for place, (value, low, high, cluster, sure) in enumerate(zip(*(end.tolist() for end in ends), strict=True)):
        y = place + 0.5
        layers["intervals"].append(
            {"x": max(low, axis.low), "x2": min(high, axis.high), "y": y, "y2": y, "cluster": cluster}
        )
        told = {"name": names[place], "estimate": number(value), "interval": f"{number(low)} … {number(high)}"}
        shown = min(max(value, axis.low), axis.high)
        layers["points"].append({"x": shown, "y": y, "cluster": cluster, "hollow": not sure, **told})
        layers["names"] += row_name(axis, y, names[place], step)
    layers["notes"] += row_heading(s, axis, step)
    if not layers["names"]:
        layers["notes"] += _named_extremes(names, effect, effect.labels.size, step)


def _draw_clusters(
    layers: dict[str, list[Row]],
    s: Summary,
    frame: Frame,
    effect: _Effect,
    runs: Sequence[tuple[int, int, int]],
    part: int,
    step: float,
    column: float,
) -> None:
    """Every cluster as a band around its level, named beside it."""
    axis, number, told = effect.axis, s.numbers[part], _standings(s, frame)
    free = -np.inf
    for cluster, first, last in runs:
        low, mean, high = effect.clusters[cluster - 1]
        around = {"y": float(first), "y2": last + 1.0, "cluster": cluster}
        layers["bands"].append({"x": max(low, axis.low), "x2": min(high, axis.high), **around})
        layers["means"].append({"x": mean, "x2": mean, **around})
        middle = (first + last + 1) / 2
        if (middle - free) * step >= 13:  # or one name would run into the next
            about = f"cluster {cluster}: {number(mean)}{told[cluster - 1]}"
            layers["sides"].append({"x": column, "y": middle, "text": about, "cluster": cluster})
            free = middle


def _standings(s: Summary, frame: Frame) -> list[str]:
    """What is said of each cluster beside its effect: that its people are worse off, or better."""
    return [f", {words}" if words else "" for words in standings(s, frame.harm)]


def _named_extremes(names: GroupNames, effect: _Effect, groups: int, step: float) -> list[Row]:
    """The groups at either end, named in one line each above and below the rows."""
    by_value = np.argsort(effect.values, kind="stable").tolist()
    lowest, highest = by_value[:_EXTREMES], by_value[: -_EXTREMES - 1 : -1]
    told = {-26 / step: ("lowest", lowest), groups + 44 / step: ("highest", highest)}
    return [
        {
            "x": effect.axis.low,
            "y": y,
            "text": f"{which}: {text.members(places, names.__getitem__, 110)}",
            "cluster": -1,
            "align": "left",
        }
        for y, (which, places) in told.items()
    ]


def ridges(s: Summary, estimates: Estimates, frame: Frame, part: int) -> Picture:
    """Too many groups for a row each: how their estimates are spread in every cluster, with those at the ends named."""
    effect = _effect(s, estimates, frame, part)
    axis, values, labels = effect.axis, effect.values, effect.labels
    runs = _runs(labels)
    if len(runs) != len(s.clusters):
        runs = [(number + 1, 0, 0) for number in range(len(s.clusters))]
    told = _line_pvalues(s, frame, runs)
    shown = list(range(len(runs)))
    if len(shown) > _RIDGES:
        shown = [*shown[: _RIDGES // 2], *shown[-_RIDGES // 2 :]]
    height = int(np.clip(64 * len(shown), 240, 26 * _RIDGES))
    step = height / len(shown)
    edges = np.linspace(axis.low, axis.high, _BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    number, standing = s.numbers[part], _standings(s, frame)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    layers |= _overall(effect, len(shown), step)
    first_column, second_column = _columns(axis, frame, told)
    for row, i in enumerate(shown):
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
        count = f"{text.count(inside.size)} groups" + (f", {text.count(unsure)} unsure" if unsure else "")
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
            skipped = len(runs) - len(shown) if row == _RIDGES // 2 and len(shown) < len(runs) else 0
            words = f"… {skipped} more" if skipped else told[i - 1]
            layers["faults"].append({"x": axis.low, "x2": axis.high, "y": y, "y2": y, "cluster": 0})
            layers["sides"].append({"x": first_column, "y": y, "text": words, "cluster": 0})
    names = GroupNames(s, frame)
    layers["notes"] += _named_extremes(names, effect, len(shown), step)
    about = f"how the estimates of {text.count(values.size)} groups by {effect.title} are spread in each cluster"
    return Picture(about, WIDTH, height, axis, Axis("", 0.0, float(len(shown)), False), layers)
