"""Pictures of a result, of one effect or of two, as geometry: plain rows in data units, read from its summary.

A `Picture` is layers of rectangles, segments, polygons, points and texts. What depends on the cut is in layers of its
own, so that a page can draw another cut into the same frame without drawing groups again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import chdtri

from faultlines import formats
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import name_of
from faultlines.render.clustering import AdverseSides
from faultlines.results.clustering import Clustering
from faultlines.types import FloatArray, IntArray

Kind = Literal["groups", "tree"]
Row = dict[str, Any]

WIDTH = 620
ROWS = 400  # groups up to which each has a row of its own
NAMED_ROW = 10.0  # pixels a row needs for a name
_SMALL_ROW, SMALL_NAME = 9.0, 8.5  # the same for a name in small letters, and their size
_NAMED_ROWS = 150  # rows up to which they are made high enough for that
_SIZES = (2.2, 16.0, 900.0)  # the lowest row, the highest, and all together, in pixels


class Style(NamedTuple):
    """How the rows of a layer look; whether they follow the cut, and how: drawn anew, or coloured anew."""

    mark: Literal["rect", "rule", "line", "circle", "text"]
    look: dict[str, Any]
    cut: Literal["drawn", "coloured", "fixed"] = "fixed"


# From the back to the front. Points and ellipses are filled or hollow, by the row.
LAYERS: dict[str, Style] = {
    "bands": Style("rect", {"opacity": 0.16}, "drawn"),
    "ellipses": Style("line", {"strokeWidth": 1, "strokeOpacity": 0.6}, "coloured"),
    "ridges": Style("line", {"strokeWidth": 1, "fillOpacity": 0.35}, "drawn"),
    "branches": Style("rule", {"strokeWidth": 1.3}, "coloured"),
    "overall": Style("rule", {"strokeDash": [2, 3], "strokeWidth": 1.2}),
    "faults": Style("rule", {"strokeDash": [7, 4], "strokeWidth": 1.2}, "drawn"),
    "means": Style("rule", {"strokeWidth": 2.5}, "drawn"),
    "intervals": Style("rule", {"strokeWidth": 1.3, "opacity": 0.75}, "coloured"),
    "points": Style("circle", {"size": 26, "opacity": 1, "strokeWidth": 1.4}, "coloured"),
    "centres": Style("line", {"strokeWidth": 2.5, "fillOpacity": 0.2}, "drawn"),
    "names": Style("text", {"fontSize": 10, "align": "right"}),
    "sides": Style("text", {"fontSize": 11, "align": "left"}, "drawn"),
    "labels": Style("text", {"fontSize": 12, "align": "center", "fontWeight": "bold"}, "drawn"),
    "notes": Style("text", {"fontSize": 11, "align": "left"}),
}
FILLED = 0.07  # opacity of the ellipse of a group whose cluster is sure


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis shows; it is wide enough that rounding does not matter."""

    title: str
    low: float
    high: float
    is_shown: bool = True
    unit: formats.Unit = ""

    def __post_init__(self) -> None:
        least = 1e-12 * max(abs(self.low), abs(self.high))
        if not self.high - self.low > least:
            pad = least or 1.0
            object.__setattr__(self, "low", self.low - pad)
            object.__setattr__(self, "high", self.high + pad)

    def beyond(self, pixels: float, size: float) -> float:
        """The value at a number of pixels after the low end of an axis of this size."""
        return self.low + pixels / size * (self.high - self.low)


@dataclass(frozen=True, slots=True)
class Picture:
    """What is drawn, in data units.

    Attributes:
        about: What it shows, in a sentence.
        layers: Rows of each layer of `LAYERS`: x, y, perhaps x2 and y2, the cluster whose colour it has (0 for ink,
            −1 for grey), whether it is hollow, and what stands there as text.
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
        level: α of the intervals that are drawn, and of what is said of single groups.
        axes: Those of pictures that others are drawn into; their own by default.
        adverse: For each effect, on which side people are worse off, if that was said.
    """

    order: IntArray
    follows_tree: bool
    level: float
    axes: tuple[tuple[Axis, Axis], ...] = ()
    adverse: AdverseSides = ()

    @classmethod
    def of(cls, c: Clustering, adverse: AdverseSides = ()) -> Frame:
        """Groups as they stand in the tree, which is by effect on a line; else by cluster and effect."""
        order = c.judged.hierarchy.order
        if np.count_nonzero(np.diff(c.labels[order])) == len(c.clusters) - 1:
            return cls(order, True, c.alpha, adverse=adverse)
        by = np.zeros(len(c.labels)) if c.groups.estimates is None else c.groups.estimates.shown[:, 0]
        return cls(np.lexsort((by, c.labels)).astype(np.int64), False, c.alpha, adverse=adverse)


class GroupNames:
    """Names of the groups in the order of a frame, made when asked for: few of very many are."""

    def __init__(self, c: Clustering, frame: Frame) -> None:
        self._labels, self._order = c.group_labels, frame.order

    def __getitem__(self, place: int) -> str:
        return formats.printable(name_of(self._labels[int(self._order[place])]))


def row_height(rows: int, *, small: bool = False) -> float:
    """Pixels of each row, given their number; `small` leaves room for small letters where they are few."""
    low, high, all_rows = _SIZES
    return float(np.clip(all_rows / rows, _SMALL_ROW if small and rows <= _NAMED_ROWS else low, high))


def row_name(x: Axis, y: float, name: str, height: float) -> list[Row]:
    """The name beside a row, if the row is high enough for it."""
    if height < _SMALL_ROW:
        return []
    small = {} if height >= NAMED_ROW else {"size": SMALL_NAME}
    return [{"x": x.beyond(-8, WIDTH), "y": y, "text": short(name), "cluster": 0, **small}]


def row_heading(c: Clustering, x: Axis, height: float) -> list[Row]:
    """What the names beside the rows are made of, above them."""
    words = " · ".join(c.groups.attributes)
    if height < _SMALL_ROW or words == "group":
        return []
    where = {"x": x.beyond(-8, WIDTH), "y": -9 / height, "align": "right"}
    return [{"text": short(words), "cluster": -1, **where}]


def short(name: str, width: int = 44) -> str:
    """A name that is cut where it is long."""
    name = formats.printable(name)
    return name if len(name) <= width else f"{name[: width - 1]}…"


# ---------- Colours of pictures and pages, for light and for dark paper.


Theme = Literal["light", "dark"]

# Neighbours stay apart in the three kinds of colour blindness and stand out from white and from black alike (tested).
PALETTE = ("#2178c4", "#c98500", "#0f9d74", "#d5541a", "#b8609a")
INK, MUTED, GRID, PAPER = (
    {"light": light, "dark": dark}
    for light, dark in (("#2b3036", "#d9dee4"), ("#6b737c", "#98a1ab"), ("#e4e7ea", "#2c333b"), ("#ffffff", "#14181d"))
)


def colour(cluster: int, theme: Theme) -> str:
    """The colour of a cluster; 0 is ink, −1 grey."""
    if cluster < 1:
        return INK[theme] if cluster == 0 else MUTED[theme]
    return PALETTE[(cluster - 1) % len(PALETTE)]


_TALL = 460
OUTLINED = 80  # groups up to which each has an ellipse
_DOTS = 5_000  # groups up to which each has a dot


def _regions(c: Clustering, estimates: Estimates, frame: Frame) -> tuple[list[FloatArray], list[FloatArray]]:
    """Outlines of the clusters' regions, and of those of the groups where they are few."""
    angles = np.linspace(0, 2 * np.pi, 48, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    unit = float(estimates.errors.max())  # squares of very small numbers would be lost

    def outline(centre: FloatArray, cov: FloatArray, dof: float) -> FloatArray:
        root = np.linalg.cholesky(cov / unit / unit) * unit
        return estimates.readable(centre + _reach(frame.level, dof) * circle @ root.T)

    pooled = c.clusters[0].pooled
    levels = pooled.means
    if levels is None:
        return [], []
    values, cov, dof = levels.values, levels.covariances, levels.dof
    if pooled.mixed and pooled.mixture is not None:  # levels of the clusters, as in the tables
        values, cov, dof = pooled.mixture.effects, pooled.mixture.covariances, None
    dof_of_clusters = np.full(len(c.clusters), np.inf) if dof is None else dof
    clusters = list(map(outline, values, cov, dof_of_clusters.tolist()))
    if len(estimates) > OUTLINED:
        return clusters, []
    cov = (
        estimates.effect_covariance
        if estimates.effect_covariance is not None
        else np.einsum("ki,ij->kij", estimates.errors**2, np.eye(2))
    )
    free = np.full(len(estimates), np.inf) if estimates.dof is None else estimates.dof
    return clusters, [outline(estimates.given[i], cov[i], float(free[i])) for i in frame.order.tolist()]


def plane(c: Clustering, estimates: Estimates, frame: Frame) -> Picture:
    """Two effects measured together: an ellipse for each group where there are few, dots where there are many."""
    labels, values = c.labels[frame.order], estimates.shown[frame.order]
    centres, ellipses = _regions(c, estimates, frame)
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    seen = np.vstack([values, *centres])
    span = np.ptp(seen, axis=0)
    room = np.where(span > 0, span, 1e-9)
    around = np.vstack([seen, *ellipses])
    low = np.maximum(around.min(axis=0), seen.min(axis=0) - 0.5 * room)
    high = np.minimum(around.max(axis=0), seen.max(axis=0) + 0.5 * room)
    low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
    own = (
        Axis(formats.printable(estimates.parts[i]), float(low[i]), float(high[i]), unit=estimates.scales[i].unit)
        for i in range(2)
    )
    x, y = frame.axes[0] if frame.axes else own
    low, high = np.array([x.low, y.low]), np.array([x.high, y.high])

    def polygon(layer: str, points: FloatArray, number: int, cluster: int, **more: bool) -> None:
        inside = np.clip(points, low, high)
        layers[layer] += [
            {"x": a, "y": b, "id": number, "order": j, "cluster": cluster, **more}
            for j, (a, b) in enumerate(inside.tolist())
        ]

    sure = c.certain_at(frame.level)[frame.order]
    for place, points in enumerate(ellipses):
        polygon("ellipses", points, place, int(labels[place]), hollow=not sure[place])
    drawn = np.arange(labels.size) if labels.size <= _DOTS else np.linspace(0, labels.size - 1, _DOTS).astype(np.int64)
    names = GroupNames(c, frame)
    numbers = c.number_formats
    for place in drawn.tolist():
        a, b = values[place].tolist()
        about = {"name": names[place], "estimate": f"{numbers[0](a)}, {numbers[1](b)}", "interval": ""}
        hollow = not sure[place]
        layers["points"].append({"x": a, "y": b, "cluster": int(labels[place]), "hollow": hollow, **about})
    for i, points in enumerate(centres):
        polygon("centres", points, i, i + 1)
        top = points[np.argmax(points[:, 1])]
        up = y.beyond(12, _TALL) - y.low
        label = {"text": f"cluster {i + 1}" if len(c.clusters) <= 8 else str(i + 1), "cluster": i + 1}
        layers["labels"].append({"x": float(top[0]), "y": float(top[1]) + up, **label})
    if ellipses:
        layers["names"] = _where_there_is_room(layers["points"], layers["labels"], x, y)
    if drawn.size < labels.size:
        words = f"{formats.count(drawn.size)} of {formats.count(labels.size)} groups drawn"
        layers["notes"].append({"x": x.low, "y": y.high, "text": words, "cluster": -1, "align": "left"})
    shows = f"{formats.count(labels.size)} groups by {x.title} and {y.title}, "
    shows += f"clusters with {formats.level(frame.level)} regions"
    return Picture(shows, WIDTH, _TALL, x, y, layers)


def _reach(alpha: float, dof: float) -> float:
    """How many standard errors a region of two effects reaches: χ² on 2, or Hotelling's T² where dof is finite."""
    if np.isinf(dof):
        return float(np.sqrt(chdtri(2, alpha)))
    # With few degrees of freedom the region outgrows all numbers; a picture is clipped to its axes anyway.
    exponent = min(-2 / max(dof - 1, 0.5) * np.log(alpha), 200.0)
    return float(np.sqrt(dof * np.expm1(exponent)))


def _where_there_is_room(points: Sequence[Row], occupied: Sequence[Row], x: Axis, y: Axis) -> list[Row]:
    """Names to the left of their dots, the outermost dots first, none across another name or dot."""

    def pixel(row: Row) -> tuple[float, float]:
        return (row["x"] - x.low) / (x.high - x.low) * WIDTH, (row["y"] - y.low) / (y.high - y.low) * _TALL

    def box(row: Row, words: str, centred: bool) -> tuple[float, float, float, float]:
        (across, up), wide = pixel(row), 5.6 * len(words)
        left = across - wide / 2 if centred else across - 7 - wide
        return left, left + wide, up - 6, up + 6

    boxes = [box(row, row["text"], True) for row in occupied]
    boxes += [(a - 3, a + 3, b - 3, b + 3) for a, b in map(pixel, points)]
    middle = np.median([pixel(row) for row in points], axis=0)
    names = []
    for row in sorted(points, key=lambda row: -float(np.hypot(*(np.array(pixel(row)) - middle)))):
        words = short(row["name"], 22)
        own = box(row, words, False)
        if all(own[1] <= b[0] or b[1] <= own[0] or own[3] <= b[2] or b[3] <= own[2] for b in boxes):
            boxes.append(own)
            names.append({"x": row["x"] - x.beyond(7, WIDTH) + x.low, "y": row["y"], "text": words, "cluster": 0})
    return names
