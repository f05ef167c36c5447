"""Pictures of a result: first the geometry, as plain rows in data units, then one Altair chart of it.

A `Picture` is layers of rectangles, segments, polygons, points and texts. What depends on the cut is in layers of its
own, so that a page can draw another cut into the same frame without drawing groups again.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import altair as alt
import numpy as np
from scipy.special import chdtri

from faultlines import text
from faultlines.clustering import Clustering, summarised
from faultlines.errors import InputError, check_folder, did_you_mean, shorten, unwritable
from faultlines.estimates import name_of
from faultlines.guarantees import Folds
from faultlines.similarity import Gaussian

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from faultlines.clustering import Cluster
    from faultlines.estimates import FloatArray
    from faultlines.similarity import IntArray

Kind = Literal["groups", "tree"]
Theme = Literal["light", "dark"]
Row = dict[str, Any]

# Neighbours stay apart in the three kinds of colour blindness and stand out from white and from black alike (tested).
PALETTE = ("#2178c4", "#c98500", "#0f9d74", "#d5541a", "#b8609a")
INK, MUTED, GRID, PAPER = (
    {"light": light, "dark": dark}
    for light, dark in (
        ("#2b3036", "#d9dee4"),
        ("#6b737c", "#98a1ab"),
        ("#e4e7ea", "#2c333b"),
        ("#ffffff", "#14181d"),
    )
)

WIDTH, _TALL = 620, 460
_EACH = 400  # groups up to which each has a row of its own
_MANY = 60  # groups from which on a few may stand at the edge
_NAMED_ROW = 10.0  # pixels a row needs for a name
_OUTLINED = 80  # groups up to which each has an ellipse
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
    """What an axis shows."""

    title: str
    low: float
    high: float
    is_shown: bool = True

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
    def of(cls, c: Clustering) -> Frame:
        """Groups as they stand in the tree, which is by effect on a line; else by cluster and effect."""
        order = c.hierarchy.order
        if np.count_nonzero(np.diff(c.labels[order])) == c.n_clusters - 1:
            return cls(order, True, c.alpha)
        first = c.estimates.natural if c.groups.estimates is not None else np.zeros(len(c.labels))
        by = first if first.ndim == 1 else first[:, 0]
        return cls(np.lexsort((by, c.labels)).astype(np.int64), False, c.alpha)


def pictures(c: Clustering, kind: Kind = "groups", frame: Frame | None = None) -> tuple[Picture, ...]:
    """The pictures of a result: one, or one for each of three and more things measured together."""
    frame = frame or Frame.of(c)
    if kind == "tree":
        return (_tree(c),) if len(c.groups) > 1 else ()
    if c.groups.estimates is None:
        return ()
    if c.estimates.dims == 2:
        return (_plane(c, frame),)
    draw = _rows if len(c.groups) <= _EACH else _ridges
    return tuple(draw(c, frame, part) for part in range(c.estimates.dims))


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


def _effect(c: Clustering, frame: Frame, part: int) -> _Effect:
    estimates = c.estimates
    at = (frame.order, part) if estimates.dims > 1 else frame.order
    lower, upper = (end[at] for end in estimates.intervals(frame.level))
    values = estimates.natural[at]

    def ends(cluster: Cluster) -> tuple[float, float, float]:
        several = estimates.dims > 1
        low, high = cluster.ci[part] if several else cluster.ci
        return low, cluster.estimate[part] if several else cluster.estimate, high

    _, clusters = summarised(c.groups, c.labels, frame.level, c.population)
    title = text.printable(estimates.parts[part] if estimates.dims > 1 else c.groups.measure)
    # A few groups with huge intervals must not press all others together: theirs run out of the picture, and of very
    # many groups the outermost stand at its edge.
    tail = 0.0 if values.size < _MANY else 0.02
    inner = [*np.quantile(values, [tail, 1 - tail]).tolist(), *(end for one in clusters for end in ends(one))]
    low, high = min(inner), max(inner)
    room = max(high - low, float(np.median(upper - lower)), 1e-12 * max(abs(low), abs(high), 1e-300))
    low = max(float(lower.min()), low - 0.6 * room)
    high = min(float(upper.max()), high + 0.6 * room)
    margin = 0.03 * (high - low)
    axis = frame.axes[part][0] if frame.axes else Axis(title, low - margin, high + margin)
    labels, overall = c.labels[frame.order], ends(c.overall)[1]
    return _Effect(title, values, lower, upper, labels, [ends(one) for one in clusters], overall, axis)


def _runs(labels: IntArray) -> list[tuple[int, int, int]]:
    """Cluster, first and last place of every run of equal labels."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(labels)) + 1)).tolist()
    ends = [*(start - 1 for start in starts[1:]), labels.size - 1]
    return [(int(labels[start]), start, end) for start, end in zip(starts, ends, strict=True)]


def _line_pvalues(c: Clustering, frame: Frame, runs: Sequence[object]) -> list[str]:
    """The p of every line between neighbouring runs, where the runs are the clusters of the tree."""
    opened = c.judgement.log_pvalues[c.judgement.log_pvalues < np.log(c.alpha)]
    if not frame.follows_tree or len(opened) != len(runs) - 1:
        return [""] * (len(runs) - 1)
    return [f"p = {text.pvalue(float(p))}" for p in opened]


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


def _rows(c: Clustering, frame: Frame, part: int) -> Picture:
    """A row for every group, with its interval; clusters as bands, lines between them with their p."""
    effect = _effect(c, frame, part)
    axis, labels = effect.axis, effect.labels
    groups = labels.size
    step = float(np.clip(900 / groups, 2.2, 16.0))
    height = max(round(groups * step), 40)
    names = [text.printable(name_of(c.groups.labels[i])) for i in frame.order.tolist()]
    number = c.number(part)
    runs = _runs(labels)
    pvalues = _line_pvalues(c, frame, runs)
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


def _ridges(c: Clustering, frame: Frame, part: int) -> Picture:
    """Too many groups for a row each: how their estimates are spread in every cluster, with those at the ends named."""
    effect = _effect(c, frame, part)
    axis, values, labels = effect.axis, effect.values, effect.labels
    runs = _runs(labels)
    if len(runs) != c.n_clusters:
        runs = [(number + 1, 0, 0) for number in range(c.n_clusters)]
    told = _line_pvalues(c, frame, runs)
    shown = list(range(len(runs)))
    if len(shown) > _RIDGES:
        shown = [*shown[: _RIDGES // 2], *shown[-_RIDGES // 2 :]]
    height = int(np.clip(64 * len(shown), 240, 26 * _RIDGES))
    step = height / len(shown)
    edges = np.linspace(axis.low, axis.high, _BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    number = c.number(part)
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
    names = _Names(c, frame)
    layers["notes"] += _named_extremes(names, effect, len(shown), step)
    about = f"how the estimates of {text.count(values.size)} groups by {effect.title} are spread in each cluster"
    return Picture(about, WIDTH, height, axis, Axis("", 0.0, float(len(shown)), False), layers)


class _Names:
    """Names of the groups in the order of a frame, made when asked for: few of very many are."""

    def __init__(self, c: Clustering, frame: Frame) -> None:
        self._labels, self._order = c.groups.labels, frame.order

    def __getitem__(self, place: int) -> str:
        return text.printable(name_of(self._labels[int(self._order[place])]))


def _short(name: str, width: int = 40) -> str:
    name = text.printable(name)
    return name if len(name) <= width else f"{name[: width - 1]}…"


# --------------------------------------------------------------------------------------------------------- the plane


def _regions(c: Clustering, frame: Frame) -> tuple[list[FloatArray], list[FloatArray]]:
    """Outlines of the clusters' regions, and of those of the groups where they are few."""
    estimates = c.estimates
    angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    unit = float(estimates.se.max())  # squares of very small numbers would be lost

    def outline(centre: FloatArray, cov: FloatArray, dof: float) -> FloatArray:
        try:
            root = np.linalg.cholesky(cov / unit / unit) * unit
        except np.linalg.LinAlgError:  # so small that its square is zero
            root = np.zeros((2, 2))
        return estimates.scale.natural(centre + _reach(frame.level, dof) * circle @ root.T)

    notion = c.groups if isinstance(c.groups, Gaussian) else Gaussian(estimates)
    centred, pooled = notion.pooled(c.labels - 1)
    means = centred + estimates.theta[len(estimates) // 2]
    freedom = np.full(c.n_clusters, np.inf) if estimates.dof is None else notion.freedom_of_several(c.labels - 1)
    clusters = list(map(outline, means, pooled, np.ravel(freedom).tolist()))
    if len(estimates) > _OUTLINED:
        return clusters, []
    cov = estimates.cov if estimates.cov is not None else np.einsum("ki,ij->kij", estimates.se**2, np.eye(2))
    dof = np.full(len(estimates), np.inf) if estimates.dof is None else estimates.dof
    return clusters, [outline(estimates.theta[i], cov[i], float(dof[i])) for i in frame.order.tolist()]


def _plane(c: Clustering, frame: Frame) -> Picture:
    """Two things measured together: an ellipse for each group where there are few, dots where there are many."""
    estimates = c.estimates
    labels, values = c.labels[frame.order], estimates.natural[frame.order]
    centres, ellipses = _regions(c, frame)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    seen = np.vstack([values, *centres])
    span = np.ptp(seen, axis=0)
    room = np.where(span > 0, span, 1e-9)
    around = np.vstack([seen, *ellipses])
    low = np.maximum(around.min(axis=0), seen.min(axis=0) - 0.5 * room)
    high = np.minimum(around.max(axis=0), seen.max(axis=0) + 0.5 * room)
    low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
    own = (Axis(text.printable(estimates.parts[i]), float(low[i]), float(high[i])) for i in range(2))
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
    names = _Names(c, frame)
    numbers = [c.number(part) for part in range(2)]
    for place in drawn.tolist():
        a, b = values[place].tolist()
        about = {"name": names[place], "estimate": f"{numbers[0](a)}, {numbers[1](b)}", "interval": ""}
        layers["points"].append({"x": a, "y": b, "cluster": int(labels[place]), **about})
    for i, points in enumerate(centres):
        polygon("centres", points, i, i + 1)
        top = points[np.argmax(points[:, 1])]
        up = y.beyond(12, _TALL) - y.low
        told = {"text": f"cluster {i + 1}" if c.n_clusters <= 8 else str(i + 1), "cluster": i + 1}
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
    return float(np.sqrt(dof * (alpha ** (-2 / max(dof - 1, 0.5)) - 1)))


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


def _tree(c: Clustering) -> Picture:
    """The merges from the leaves to the root, with the cut; of very many groups only the topmost."""
    tree = c.hierarchy
    groups = len(tree)
    size = np.sqrt(np.maximum(tree.gap_heights, 0.0))
    is_open = c.judgement.log_pvalues < np.log(c.alpha)
    whole = groups <= _EACH
    kept = np.arange(groups - 1)
    if not whole:  # gaps that close last; what closes before is a leaf
        kept = np.sort(tree.closing()[-(_LEAVES - 1) :])
    first = [0, *(kept + 1).tolist()]
    last = [*kept.tolist(), groups - 1]
    # A branch has the colour of most of its groups: some at the borders were moved.
    labels, starts = c.labels[tree.order], tree.places(is_open)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), groups], strict=True):
        labels[start:end] = np.bincount(labels[start:end]).argmax()
    leaves = len(first)
    step = float(np.clip(900 / leaves, 2.2, 16.0))
    height = max(round(leaves * step), 40)
    high = float(size.max()) * 1.04 or 1.0
    x = Axis(_tree_title(c), 0.0, high)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    if step >= _NAMED_ROW:
        for leaf, (start, end) in enumerate(zip(first, last, strict=True)):
            only = name_of(c.groups.labels[int(tree.order[start])])
            words = _short(only) if start == end else f"{text.count(end - start + 1)} groups"
            layers["names"].append({"x": x.beyond(-8, WIDTH), "y": leaf + 0.5, "text": words, "cluster": 0})
    # Each branch: the first and last leaf below it, where it stands, how high it is, and its cluster.
    branch = [(leaf, leaf, leaf + 0.5, 0.0, int(labels[first[leaf]])) for leaf in range(leaves)]
    closes = tree.closes()
    for gap in sorted(range(leaves - 1), key=lambda i: int(closes[kept[i]])):
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
        told = f"cut: {c.n_clusters} cluster{'s' * c.rejected}"
        layers["sides"].append({"x": cut, "y": -9 / step, "text": told, "cluster": 0, "align": "center"})
    about = f"tree of merges of {text.count(groups)} groups" + ("" if whole else f", its {leaves} topmost branches")
    return Picture(about, WIDTH, height, x, Axis("", 0.0, float(leaves), False), layers)


def _tree_title(c: Clustering) -> str:
    if isinstance(c.guarantee, Folds):
        return "root of −log p at the merge"
    if isinstance(c.groups, Gaussian):
        return "how different the two merged clusters are, in standard errors"
    return "root of −log p of the two merged clusters"


# ----------------------------------------------------------------------------------------------------- with Altair


class _Offline:
    """Charts that save themselves without a network: libraries go into an HTML file, not links to them."""

    def save(self, fp: Any, format: Any = None, **options: Any) -> None:  # noqa: A002 - Altair's name for it
        """As in Altair, with ``inline=True`` for HTML."""
        ending = str(fp).rpartition(".")[2].lower()
        chosen = format or (ending if ending in ("svg", "png", "html", "json", "pdf") else None)
        super().save(fp, chosen, **({"inline": True} if chosen == "html" else {}) | options)  # type: ignore[misc]


class Chart(_Offline, alt.LayerChart):  # type: ignore[misc]
    """An Altair chart of layers."""


class Charts(_Offline, alt.VConcatChart):  # type: ignore[misc]
    """Several of them, one below the other."""


def plot(c: Clustering, kind: Kind = "groups", theme: Theme = "light") -> Chart | Charts:
    """The picture of a result as an Altair chart, with its verdict above it."""
    if kind not in ("groups", "tree"):
        raise InputError(f"kind={shorten(kind)}", "is not known", did_you_mean(str(kind), ("groups", "tree")))
    if theme not in ("light", "dark"):
        raise InputError(f"theme={shorten(theme)}", "is not known", "Use 'light' or 'dark'.")
    drawn = pictures(c, kind)
    if not drawn:
        why = "there is only one group" if kind == "tree" else "this notion of similarity has no estimates to draw"
        raise InputError(f"plot(kind={kind!r})", why, "Use kind='tree'." if kind == "groups" else "Use kind='groups'.")
    title = {
        "text": textwrap.wrap(text.printable(c.verdict), 92),
        "subtitle": caption(c, kind),
        "anchor": "start",
        "frame": "group",
        "offset": 22,
        "color": INK[theme],
        "subtitleColor": MUTED[theme],
        "fontSize": 14,
        "subtitleFontSize": 11,
        "subtitlePadding": 5,
    }
    specs = [spec(one, theme) for one in drawn]
    around = {"title": title, "config": config(theme)}
    # Altair looks at every value it is given; rows are put in afterwards, or large pictures take tens of seconds.
    rows = [[layer.pop("data")["values"] for layer in one["layer"]] for one in specs]
    kind_of, whole = (Chart, specs[0]) if len(specs) == 1 else (Charts, {"vconcat": specs})
    made: Chart | Charts = kind_of.from_dict(whole | around, validate=False)
    for one, layers in zip([made] if len(specs) == 1 else made.vconcat, rows, strict=True):
        for layer, values in zip(one.layer, layers, strict=True):
            layer.data = alt.InlineData(values=values)
    return made


def caption(c: Clustering, kind: Kind) -> str:
    """What the marks of a picture mean."""
    level = text.level(c.alpha)
    if kind == "tree":
        return "Clusters merge from left to right; what joins beyond the cut differs."
    if c.estimates.dims == 2:
        thin = f"Thin lines: their {level} regions. " if len(c.groups) <= _OUTLINED else ""
        return f"Dots: groups. {thin}Thick lines: clusters with their {level} regions."
    if len(c.groups) <= _EACH:
        order = " Rows stand in the order of the data that chose the clusters." if c.explored is not c.groups else ""
        return f"Bars: groups with their {level} intervals. Bands: clusters. Dashed lines: fault lines.{order}"
    return f"Hills: how the groups' estimates spread in each cluster. Bands: clusters with their {level} intervals."


def config(theme: Theme, *, background: bool = True) -> dict[str, Any]:
    """Colours and fonts of a whole chart; without a background of its own it has room for the fonts of a page."""
    side = 8 if background else 26
    return {
        "background": PAPER[theme] if background else "transparent",
        "font": "Helvetica, Arial, sans-serif",
        "view": {"stroke": None},
        "axis": {
            "labelColor": MUTED[theme],
            "titleColor": INK[theme],
            "gridColor": GRID[theme],
            "domainColor": MUTED[theme],
            "tickColor": MUTED[theme],
            "titleFontWeight": "normal",
            "titleFontSize": 12,
            "labelFontSize": 11,
        },
        "padding": {"left": side, "right": side, "top": 8, "bottom": 8},
    }


def colour(cluster: int, theme: Theme) -> str:
    """The colour of a cluster; 0 is ink, −1 is grey."""
    if cluster <= 0:
        return INK[theme] if cluster == 0 else MUTED[theme]
    return PALETTE[(cluster - 1) % len(PALETTE)]


def spec(picture: Picture, theme: Theme) -> dict[str, Any]:
    """A picture in Vega-Lite's terms."""
    # Rows run down the page, values up.
    channels = {
        "x": {"field": "x", "type": "quantitative", **_scaled(picture.x)},
        "y": {"field": "y", "type": "quantitative", **_scaled(picture.y, reverse=not picture.y.is_shown)},
    }
    layers = []
    for name, style in LAYERS.items():
        by_align: dict[str, list[Row]] = {}
        for row in picture.layers.get(name, []):
            by_align.setdefault(row.get("align", style.look.get("align", "")), []).append(row)
        for align, rows in by_align.items():
            layers.append(_layer(name, style, rows, align, channels, theme))
    return {"width": picture.width, "height": picture.height, "layer": layers}


def _scaled(axis: Axis, *, reverse: bool = False) -> dict[str, Any]:
    return {
        "scale": {"domain": [axis.low, axis.high], "nice": False, "zero": False, "reverse": reverse},
        "axis": {"title": axis.title, "grid": True, "tickCount": 7} if axis.is_shown else None,
    }


def _layer(
    name: str, style: Style, rows: list[Row], align: str, channels: dict[str, Any], theme: Theme
) -> dict[str, Any]:
    mark: dict[str, Any] = {"type": style.mark, "aria": False, **style.look}
    paint = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    encoding: dict[str, Any] = dict(channels)
    if style.mark in ("rect", "rule"):
        encoding |= {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    if style.mark in ("rule", "line"):
        encoding["stroke"] = paint
    if style.mark != "rule":
        encoding["fill"] = paint
    if style.mark == "circle":
        told = ("name", "estimate", "interval", "cluster")
        encoding["tooltip"] = [{"field": field, "type": "nominal"} for field in told]
    if style.mark == "text":
        mark |= {"align": align, "baseline": "middle"}
        encoding["text"] = {"field": "text", "type": "nominal"}
    if style.mark == "line":
        mark["interpolate"] = "linear-closed"
        encoding |= {
            "detail": {"field": "id", "type": "nominal"},
            "order": {"field": "order", "type": "quantitative"},
        }
    return {
        "name": name if align in ("", style.look.get("align")) else f"{name}_{align}",
        "data": {"values": [{**row, "colour": colour(row["cluster"], theme)} for row in rows]},
        "mark": mark,
        "encoding": encoding,
    }


def check_target(path: Path) -> None:
    """Refuse a file of a kind that pictures are not written in, or where none can be."""
    if path.suffix.lower() not in {".svg", ".png", ".html", ".json"}:
        raise InputError(f"plot={str(path)!r}", "is of no known kind", "End it in .svg, .png, .html or .json.")
    check_folder(f"plot={str(path)!r}", path)


def save(c: Clustering, path: Path, kind: Kind = "groups", theme: Theme = "light") -> None:
    """Write a picture; what its name ends in says how."""
    check_target(path)
    ending = path.suffix.lower().removeprefix(".")
    options = {"scale_factor": 2} if ending == "png" else {}
    chart = plot(c, kind, theme)
    try:
        chart.save(str(path), ending, **options)
    except OSError as error:
        raise unwritable(f"plot={str(path)!r}", error) from error
