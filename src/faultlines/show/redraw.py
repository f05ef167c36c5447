"""What the slider of a page redraws: the layers of a picture that follow the cut, in pixels of the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faultlines import text
from faultlines.estimates.labels import name_of
from faultlines.show.geometry import LAYERS, pictures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faultlines.estimates.estimates import IntArray
    from faultlines.result.summary import Summary
    from faultlines.show.geometry import Frame, Picture


def live(
    levels: Sequence[Summary],
    now: int,
    tables: Sequence[dict[str, Any]],
    frame: Frame,
    drawn: Mapping[str, tuple[Picture, ...]],
    order: IntArray,
    *,
    whole: bool,
) -> dict[str, Any]:
    """Every level as the page's script needs it; equal partitions share their drawing."""
    inside = frame._replace(axes=tuple((one.x, one.y) for one in drawn["groups"]))
    known: dict[bytes, int] = {}
    partitions: list[dict[str, Any]] = []
    told = []
    for s, table in zip(levels, tables, strict=True):
        key = s.labels.tobytes()
        if key not in known:
            known[key] = len(partitions)
            redrawn = [
                _redrawn(other, base)
                for kind, several in drawn.items()
                for other, base in zip(pictures(s, kind, inside), several, strict=True)  # type: ignore[arg-type]
            ]
            partitions.append({"labels": _runs(s.labels[order].tolist()), "drawn": redrawn})
        about = {"alpha": f"{s.alpha:.3g}", "verdict": s.verdict, "contrast": s.contrast, "partition": known[key]}
        told.append(about | table)
    return {
        "now": now,
        "levels": told,
        "partitions": partitions,
        "names": [text.printable(name_of(levels[now].group_labels[i])) for i in frame.order.tolist()] if whole else [],
        "styles": {name: style.look for name, style in LAYERS.items()},
    }


def _redrawn(picture: Picture, base: Picture) -> dict[str, Any]:
    """The layers of a picture that follow the cut, in pixels of the frame that is on the page."""

    def across(value: float) -> float:
        return round((value - base.x.low) / (base.x.high - base.x.low) * base.width, 1)

    def down(value: float) -> float:
        share = (value - picture.y.low) / (picture.y.high - picture.y.low)  # rows share the height, however many
        return round((1 - share if base.y.is_shown else share) * base.height, 1)

    shapes: dict[str, list[Any]] = {}
    for name, style in LAYERS.items():
        rows = picture.layers[name]
        if style.cut == "coloured":
            first = [row for i, row in enumerate(rows) if "id" not in row or row["order"] == 0]
            shapes[name] = _runs([row["cluster"] for row in first])
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
    return {"kinds": {name: style.mark for name, style in LAYERS.items() if name in shapes}, "shapes": shapes}


def _runs(values: Sequence[int]) -> list[int]:
    """Values as value, count, value, count and so on."""
    made: list[int] = []
    for value in values:
        if made and made[-2] == value:
            made[-1] += 1
        else:
            made += [value, 1]
    return made
