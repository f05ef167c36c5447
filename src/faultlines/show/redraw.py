"""What the slider of a page redraws: the layers of a picture that follow the cut, in pixels of the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faultlines import text
from faultlines.estimates.labels import name_of
from faultlines.result.decision import decide
from faultlines.show.geometry import FILLED, LAYERS
from faultlines.show.grouptable import believed_columns
from faultlines.show.pictures import pictures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faultlines.estimates.estimates import IntArray
    from faultlines.result.summary import Summary
    from faultlines.show.geometry import Frame, Picture


_CELLS = 60_000  # groups of all partitions together up to which what to believe of them follows the slider


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
    count = len({s.labels.tobytes() for s in levels})
    claim = levels[now].labels.tobytes()
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
            follows = count * len(s.groups) <= _CELLS or key == claim
            believed = believed_columns(s, frame.level, order) if follows else []
            partitions.append(
                {
                    "labels": _runs(s.labels[order].tolist()),
                    "drawn": redrawn,
                    "believed": {name: _runs(cells) for name, cells in believed},
                }
            )
        decision = decide(s, frame.harm, frame.level)
        about = {"alpha": f"{s.alpha:.3g}", "verdict": s.verdict, "lead": decision.lead, "partition": known[key]}
        sides = [[one.cluster, one.effect, one.who, one.size, one.standing] for one in decision.sides]
        about |= {"sides": sides, "between": decision.between, "sure": decision.sure, "unseen": decision.unseen}
        told.append(about | table)
    return {
        "now": now,
        "levels": told,
        "partitions": partitions,
        "names": [text.printable(name_of(levels[now].group_labels[i])) for i in frame.order.tolist()] if whole else [],
        "styles": {name: style.look for name, style in LAYERS.items()},
        "filled": FILLED,
        "members": members_heading(levels[now]),
    }


def members_heading(s: Summary) -> str:
    """What stands above the members of a cluster: what their names are made of, where that is not one attribute."""
    several = len(s.groups.attributes) > 1
    return text.printable(f"members ({' · '.join(s.groups.attributes)})" if several else "members")


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
    made: list[Any] = []
    for value in values:
        if made and made[-2] == value:
            made[-1] += 1
        else:
            made += [value, 1]
    return made
