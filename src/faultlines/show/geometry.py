"""Pictures of a result as geometry: plain rows in data units, read from its summary.

A `Picture` is layers of rectangles, segments, polygons, points and texts. What depends on the cut is in layers of its
own, so that a page can draw another cut into the same frame without drawing groups again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.special import chdtri

from faultlines import text
from faultlines.estimates.labels import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faultlines.estimates.estimates import BoolArray, Estimates, IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.result.summary import Summary

Kind = Literal["groups", "tree"]
Row = dict[str, Any]

WIDTH, _TALL = 620, 460
ROWS = 400  # groups up to which each has a row of its own
_MANY = 60  # groups from which on a few may stand at the edge
_NAMED_ROW = 10.0  # pixels a row needs for a name
OUTLINED = 80  # groups up to which each has an ellipse
_DOTS = 5_000  # groups up to which each has a dot
_RIDGES = 24  # clusters that are drawn as densities
_BINS = 90
_LEAVES = 60  # of a tree that is drawn from the top
_EXTREMES = 5  # groups named at either end where not all are


class Style(NamedTuple):
    """How the rows of a layer look; whether they follow the cut, and how: drawn anew, or coloured anew."""

    mark: Literal["rect", "rule", "line", "circle", "text"]
    look: dict[str, Any]
    cut: Literal["drawn", "coloured", "fixed"] = "fixed"


# From the back to the front.
LAYERS: dict[str, Style] = {
    "bands": Style("rect", {"opacity": 0.16}, "drawn"),
    "ellipses": Style("line", {"strokeWidth": 1, "fillOpacity": 0.05, "strokeOpacity": 0.6}, "coloured"),
    "ridges": Style("line", {"strokeWidth": 1, "fillOpacity": 0.35}, "drawn"),
    "branches": Style("rule", {"strokeWidth": 1.3}, "coloured"),
    "overall": Style("rule", {"strokeDash": [2, 3], "strokeWidth": 1.2}),
    "faults": Style("rule", {"strokeDash": [7, 4], "strokeWidth": 1.2}, "drawn"),
    "means": Style("rule", {"strokeWidth": 2.5}, "drawn"),
    "intervals": Style("rule", {"strokeWidth": 1.3, "opacity": 0.75}, "coloured"),
    "points": Style("circle", {"size": 22, "opacity": 1}, "coloured"),
    "centres": Style("line", {"strokeWidth": 2.5, "fillOpacity": 0.2}, "drawn"),
    "names": Style("text", {"fontSize": 10, "align": "right"}),
    "sides": Style("text", {"fontSize": 11, "align": "left"}, "drawn"),
    "labels": Style("text", {"fontSize": 12, "align": "center", "fontWeight": "bold"}, "drawn"),
    "notes": Style("text", {"fontSize": 11, "align": "left"}),
}


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis shows; it is wide enough that rounding does not matter."""

    title: str
    low: float
    high: float
    is_shown: bool = True
    is_percent: bool = False

    def __post_init__(self) -> None:
        least = 1e-12 * max(abs(self.low), abs(self.high))
        if not self.high - self.low > least:
            pad = least or 1.0
            object.__setattr__(self, "low", self.low - pad)
            object.__setattr__(self, "high", self.high + pad)

    def beyond(self, pixels: float, size: float) -> float:
        """The value that stands so many pixels after the low end of an axis of this size."""
        return self.low + pixels / size * (self.high - self.low)


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn, in data units.

    Attributes:
        about: What it shows, in a sentence.
        layers: Rows of each layer of `LAYERS`: x, y, perhaps x2 and y2, the cluster whose colour it has (0 for ink,
            −1 for grey) and what stands there as text.
    """

    about: str
    width: int
    height: int
    x: Axis
    y: Axis
    layers: Mapping[str, list[Row]]


class Frame(NamedTuple):
    """What stays when the level changes: the order of the groups, the level of the intervals, the axes of each picture.

    Attributes:
        order: The group at each place.
        follows_tree: Whether that is the order of the tree, in which clusters are runs.
        level: α of the intervals that are drawn.
        axes: Those of pictures that others are drawn into; their own where left out.
    """

    order: IntArray
    follows_tree: bool
    level: float
    axes: tuple[tuple[Axis, Axis], ...] = ()

    @classmethod
    def of(cls, s: Summary) -> Frame:
        """Groups as they stand in the tree, which is by effect on a line; else by cluster and effect."""
        order = s.judged.hierarchy.order
        if np.count_nonzero(np.diff(s.labels[order])) == len(s.clusters) - 1:
            return cls(order, True, s.alpha)
        by = np.zeros(len(s.labels)) if s.estimates is None else s.estimates.shown[:, 0]
        return cls(np.lexsort((by, s.labels)).astype(np.int64), False, s.alpha)


def pictures(s: Summary, kind: Kind = "groups", frame: Frame | None = None) -> tuple[Picture, ...]:
    """The pictures of a result: one, or one for each of three and more effects measured together."""
    frame = frame or Frame.of(s)
    if kind == "tree":
        return (_tree(s),) if len(s.groups) > 1 else ()
    if s.estimates is None:
        return ()
    if s.estimates.dims == 2:
        return (_plane(s, s.estimates, frame),)
    draw = _rows if len(s.groups) <= ROWS else _ridges
    return tuple(draw(s, s.estimates, frame, part) for part in range(s.estimates.dims))


# ------------------------------------------------------------------------------------------------------ one effect


class _Effect(NamedTuple):
    """One of the effects, in the order of a frame: of the groups, of the clusters and of all together."""

    title: str
    values: FloatArray
    lower: FloatArray
    upper: FloatArray
    labels: IntArray
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
    return _Effect(title, values, lower, upper, s.labels[frame.order], ends, overall, axis)


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


def _columns(axis: Axis, pvalues: Sequence[str]) -> tuple[float, float]:
    """Where the p of the lines and the names of the clusters stand, to the right of the rows."""
    widest = max(map(len, pvalues), default=0)
    return axis.beyond(WIDTH + 8, WIDTH), axis.beyond(WIDTH + 8 + max(88, 6.4 * widest + 14), WIDTH)


def _rows(s: Summary, estimates: Estimates, frame: Frame, part: int) -> Picture:
    """A row for every group, with its interval; clusters as bands, lines between them with their p."""
    effect = _effect(s, estimates, frame, part)
    axis, labels = effect.axis, effect.labels
    groups = labels.size
    step = float(np.clip(900 / groups, 2.2, 16.0))
    height = max(round(groups * step), 40)
    names = [text.printable(name_of(s.group_labels[i])) for i in frame.order.tolist()]
    number = s.numbers[part]
    runs = _runs(labels)
    pvalues = _line_pvalues(s, frame, runs)
    first_column, second_column = _columns(axis, pvalues)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    layers |= _overall(effect, groups, height / groups)
    ends = zip(effect.values.tolist(), effect.lower.tolist(), effect.upper.tolist(), labels.tolist(), strict=True)
    for place, (value, low, high, cluster) in enumerate(ends):
        y = place + 0.5
        layers["intervals"].append(
            {"x": max(low, axis.low), "x2": min(high, axis.high), "y": y, "y2": y, "cluster": cluster}
        )
        told = {"name": names[place], "estimate": number(value), "interval": f"{number(low)} … {number(high)}"}
        shown = min(max(value, axis.low), axis.high)
        layers["points"].append({"x": shown, "y": y, "cluster": cluster, **told})
        if step >= _NAMED_ROW:
            layers["names"].append({"x": axis.beyond(-8, WIDTH), "y": y, "text": _short(names[place]), "cluster": 0})
    if step < _NAMED_ROW:
        layers["notes"] += _named_extremes(names, effect, groups, step)
    free = -np.inf
    for cluster, first, last in runs:
        low, mean, high = effect.clusters[cluster - 1]
        around = {"y": float(first), "y2": last + 1.0, "cluster": cluster}
        layers["bands"].append({"x": max(low, axis.low), "x2": min(high, axis.high), **around})
        layers["means"].append({"x": mean, "x2": mean, **around})
        middle = (first + last + 1) / 2
        if (middle - free) * step >= 13:  # or one name would run into the next
            about = f"cluster {cluster}: {number(mean)}"
            layers["sides"].append({"x": second_column, "y": middle, "text": about, "cluster": cluster})
            free = middle
    free = -np.inf
    for (_, first, _), words in zip(runs[1:], pvalues, strict=True):
        y = float(first)
        layers["faults"].append({"x": axis.low, "x2": axis.high, "y": y, "y2": y, "cluster": 0})
        if words and (y - free) * step >= 12:
            layers["sides"].append({"x": first_column, "y": y, "text": words, "cluster": 0})
            free = y
    about = f"{groups} groups by {effect.title}, coloured by cluster, with {text.level(frame.level)} intervals"
    return Picture(about, WIDTH, height, axis, Axis("", 0.0, float(groups), False), layers)


def _named_extremes(names: Sequence[str] | _Names, effect: _Effect, groups: int, step: float) -> list[Row]:
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


def _ridges(s: Summary, estimates: Estimates, frame: Frame, part: int) -> Picture:
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
    number = s.numbers[part]
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    layers |= _overall(effect, len(shown), step)
    first_column, second_column = _columns(axis, told)
    for row, i in enumerate(shown):
        cluster = runs[i][0]
        inside = values[labels == cluster]
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
        lines = [f"cluster {cluster}: {number(mean)}", f"{text.count(inside.size)} groups"]
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
    names = _Names(s, frame)
    layers["notes"] += _named_extremes(names, effect, len(shown), step)
    about = f"how the estimates of {text.count(values.size)} groups by {effect.title} are spread in each cluster"
    return Picture(about, WIDTH, height, axis, Axis("", 0.0, float(len(shown)), False), layers)


class _Names:
    """Names of the groups in the order of a frame, made when asked for: few of very many are."""

    def __init__(self, s: Summary, frame: Frame) -> None:
        self._labels, self._order = s.group_labels, frame.order

    def __getitem__(self, place: int) -> str:
        return text.printable(name_of(self._labels[int(self._order[place])]))


def _short(name: str, width: int = 40) -> str:
    name = text.printable(name)
    return name if len(name) <= width else f"{name[: width - 1]}…"


# --------------------------------------------------------------------------------------------------------- the plane


def _regions(s: Summary, estimates: Estimates, frame: Frame) -> tuple[list[FloatArray], list[FloatArray]]:
    """Outlines of the clusters' regions, and of those of the groups where they are few."""
    angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    unit = float(estimates.errors.max())  # squares of very small numbers would be lost

    def outline(centre: FloatArray, cov: FloatArray, dof: float) -> FloatArray:
        root = np.linalg.cholesky(cov / unit / unit) * unit
        return estimates.readable(centre + _reach(frame.level, dof) * circle @ root.T)

    levels = s.groups.levels(s.labels - 1)
    if levels is None:
        return [], []
    known = np.full(len(s.clusters), np.inf) if levels.dof is None else levels.dof
    clusters = list(map(outline, levels.values, levels.cov, known.tolist()))
    if len(estimates) > OUTLINED:
        return clusters, []
    cov = estimates.cov if estimates.cov is not None else np.einsum("ki,ij->kij", estimates.errors**2, np.eye(2))
    dof = np.full(len(estimates), np.inf) if estimates.dof is None else estimates.dof
    return clusters, [outline(estimates.given[i], cov[i], float(dof[i])) for i in frame.order.tolist()]


def _plane(s: Summary, estimates: Estimates, frame: Frame) -> Picture:
    """Two effects measured together: an ellipse for each group where there are few, dots where there are many."""
    labels, values = s.labels[frame.order], estimates.shown[frame.order]
    centres, ellipses = _regions(s, estimates, frame)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    seen = np.vstack([values, *centres])
    span = np.ptp(seen, axis=0)
    room = np.where(span > 0, span, 1e-9)
    around = np.vstack([seen, *ellipses])
    low = np.maximum(around.min(axis=0), seen.min(axis=0) - 0.5 * room)
    high = np.minimum(around.max(axis=0), seen.max(axis=0) + 0.5 * room)
    low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
    own = (
        Axis(
            text.printable(estimates.parts[i]),
            float(low[i]),
            float(high[i]),
            is_percent=estimates.scales[i].is_percent,
        )
        for i in range(2)
    )
    x, y = frame.axes[0] if frame.axes else own
    low, high = np.array([x.low, y.low]), np.array([x.high, y.high])

    def polygon(layer: str, points: FloatArray, number: int, cluster: int) -> None:
        inside = np.clip(points, low, high)
        layers[layer] += [
            {"x": a, "y": b, "id": number, "order": j, "cluster": cluster} for j, (a, b) in enumerate(inside.tolist())
        ]

    for place, points in enumerate(ellipses):
        polygon("ellipses", points, place, int(labels[place]))
    drawn = np.arange(labels.size) if labels.size <= _DOTS else np.linspace(0, labels.size - 1, _DOTS).astype(np.int64)
    names = _Names(s, frame)
    numbers = s.numbers
    for place in drawn.tolist():
        a, b = values[place].tolist()
        about = {"name": names[place], "estimate": f"{numbers[0](a)}, {numbers[1](b)}", "interval": ""}
        layers["points"].append({"x": a, "y": b, "cluster": int(labels[place]), **about})
    for i, points in enumerate(centres):
        polygon("centres", points, i, i + 1)
        top = points[np.argmax(points[:, 1])]
        up = y.beyond(12, _TALL) - y.low
        told = {"text": f"cluster {i + 1}" if len(s.clusters) <= 8 else str(i + 1), "cluster": i + 1}
        layers["labels"].append({"x": float(top[0]), "y": float(top[1]) + up, **told})
    if ellipses:
        layers["names"] = _where_there_is_room(layers["points"], layers["labels"], x, y)
    if drawn.size < labels.size:
        words = f"{text.count(drawn.size)} of {text.count(labels.size)} groups drawn"
        layers["notes"].append({"x": x.low, "y": y.high, "text": words, "cluster": -1, "align": "left"})
    shows = (
        f"{text.count(labels.size)} groups by {x.title} and {y.title}, clusters with {text.level(frame.level)} regions"
    )
    return Picture(shows, WIDTH, _TALL, x, y, layers)


def _reach(alpha: float, dof: float) -> float:
    """How many standard errors a region of two effects reaches: χ² on 2, or Hotelling's T² where dof is finite."""
    if np.isinf(dof):
        return float(np.sqrt(chdtri(2, alpha)))
    # With few degrees of freedom the region outgrows all numbers; a picture is clipped to its axes anyway.
    exponent = min(-2 / max(dof - 1, 0.5) * np.log(alpha), 200.0)
    return float(np.sqrt(dof * np.expm1(exponent)))


def _where_there_is_room(points: Sequence[Row], taken: Sequence[Row], x: Axis, y: Axis) -> list[Row]:
    """Names to the left of their dots, the outermost dots first, none across another name or dot."""

    def pixel(row: Row) -> tuple[float, float]:
        return (row["x"] - x.low) / (x.high - x.low) * WIDTH, (row["y"] - y.low) / (y.high - y.low) * _TALL

    def box(row: Row, words: str, centred: bool) -> tuple[float, float, float, float]:
        (across, up), wide = pixel(row), 5.6 * len(words)
        left = across - wide / 2 if centred else across - 7 - wide
        return left, left + wide, up - 6, up + 6

    boxes = [box(row, row["text"], True) for row in taken]
    boxes += [(a - 3, a + 3, b - 3, b + 3) for a, b in map(pixel, points)]
    middle = np.median([pixel(row) for row in points], axis=0)
    made = []
    for row in sorted(points, key=lambda row: -float(np.hypot(*(np.array(pixel(row)) - middle)))):
        words = _short(row["name"], 22)
        own = box(row, words, False)
        if all(own[1] <= b[0] or b[1] <= own[0] or own[3] <= b[2] or b[3] <= own[2] for b in boxes):
            boxes.append(own)
            made.append({"x": row["x"] - x.beyond(7, WIDTH) + x.low, "y": row["y"], "text": words, "cluster": 0})
    return made


# ------------------------------------------------------------------------------------------------------------ the tree


def _tree_gaps(s: Summary) -> BoolArray:
    """Where the tree is cut: into as many branches as there are clusters, if each branch then is mostly one of them.

    Clusters need not be branches: groups at the borders were moved, and a lone group can stand anywhere.
    """
    tree, count = s.judged.hierarchy, len(s.clusters)
    cut = tree.merge_rank() >= len(tree) - count
    labels = s.labels[tree.order]
    starts = tree.starts(cut)
    ends = [*starts[1:].tolist(), len(tree)]
    mostly = {int(np.bincount(labels[a:b]).argmax()) for a, b in zip(starts.tolist(), ends, strict=True)}
    return cut if len(mostly) == count else s.judged.path.open_gaps(count)


def _tree(s: Summary) -> Picture:
    """The merges from the leaves to the root, with the cut; of very many groups only the topmost."""
    tree = s.judged.hierarchy
    groups = len(tree)
    size = np.sqrt(np.maximum(tree.gap_heights, 0.0))
    is_open = _tree_gaps(s)
    whole = groups <= ROWS
    kept = np.arange(groups - 1)
    if not whole:  # gaps that close last; what closes before is a leaf
        kept = np.sort(tree.merge_order()[-(_LEAVES - 1) :])
        # Each border is drawn at the nearest gap that is shown.
        nearest = kept[np.abs(kept[:, None] - np.flatnonzero(is_open)).argmin(axis=0)]
        is_open = np.zeros_like(is_open)
        is_open[nearest] = True
    first = [0, *(kept + 1).tolist()]
    last = [*kept.tolist(), groups - 1]
    # A branch has the colour of most of its groups: some at the borders were moved.
    labels, starts = s.labels[tree.order], tree.starts(is_open)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), groups], strict=True):
        labels[start:end] = np.bincount(labels[start:end]).argmax()
    leaves = len(first)
    step = float(np.clip(900 / leaves, 2.2, 16.0))
    height = max(round(leaves * step), 40)
    high = float(size.max()) * 1.04 or 1.0
    x = Axis(s.judged.height_name, 0.0, high)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    if step >= _NAMED_ROW:
        for leaf, (start, end) in enumerate(zip(first, last, strict=True)):
            only = name_of(s.group_labels[int(tree.order[start])])
            words = _short(only) if start == end else f"{text.count(end - start + 1)} groups"
            layers["names"].append({"x": x.beyond(-8, WIDTH), "y": leaf + 0.5, "text": words, "cluster": 0})
    # Each branch: the first and last leaf below it, where it stands, how high it is, and its cluster.
    branch = [(leaf, leaf, leaf + 0.5, 0.0, int(labels[first[leaf]])) for leaf in range(leaves)]
    merge_rank = tree.merge_rank()
    for gap in sorted(range(leaves - 1), key=lambda i: int(merge_rank[kept[i]])):
        left, right = branch[gap], branch[gap + 1]
        tall = float(size[kept[gap]])
        cluster = 0 if is_open[kept[gap]] else left[4]
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
        told = f"cut: {len(s.clusters)} cluster{'s' * s.rejected}"
        layers["sides"].append({"x": cut, "y": -9 / step, "text": told, "cluster": 0, "align": "center"})
    about = f"tree of merges of {text.count(groups)} groups" + ("" if whole else f", its {leaves} topmost branches")
    return Picture(about, WIDTH, height, x, Axis("", 0.0, float(leaves), False), layers)
