"""Two effects measured together, as a picture of the plane: groups as ellipses or dots, clusters with their regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtri

from faultlines import formats
from faultlines.render.geometry import LAYERS, WIDTH, Axis, GroupNames, Picture, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import Estimates
    from faultlines.estimates.scales import FloatArray
    from faultlines.render.geometry import Frame, Row
    from faultlines.results.clustering import Clustering

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
    known = np.full(len(c.clusters), np.inf) if dof is None else dof
    clusters = list(map(outline, values, cov, known.tolist()))
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
        Axis(
            formats.printable(estimates.parts[i]),
            float(low[i]),
            float(high[i]),
            is_percent=estimates.scales[i].is_percent,
        )
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
        told = {"text": f"cluster {i + 1}" if len(c.clusters) <= 8 else str(i + 1), "cluster": i + 1}
        layers["labels"].append({"x": float(top[0]), "y": float(top[1]) + up, **told})
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
        words = short(row["name"], 22)
        own = box(row, words, False)
        if all(own[1] <= b[0] or b[1] <= own[0] or own[3] <= b[2] or b[3] <= own[2] for b in boxes):
            boxes.append(own)
            made.append({"x": row["x"] - x.beyond(7, WIDTH) + x.low, "y": row["y"], "text": words, "cluster": 0})
    return made
