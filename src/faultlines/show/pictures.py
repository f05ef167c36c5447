"""The pictures of a result: groups by effect, or in the plane of two; and the tree of merges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultlines.show.geometry import ROWS, Frame
from faultlines.show.oneeffect import ridges, rows
from faultlines.show.plane import plane
from faultlines.show.tree import tree

if TYPE_CHECKING:
    from faultlines.result.summary import Summary
    from faultlines.show.geometry import Kind, Picture


def pictures(s: Summary, kind: Kind = "groups", frame: Frame | None = None) -> tuple[Picture, ...]:
    """The pictures of a result: one, or one for each of three and more effects measured together."""
    frame = frame or Frame.of(s)
    if kind == "tree":
        return (tree(s),) if len(s.groups) > 1 else ()
    if s.estimates is None:
        return ()
    if s.estimates.dims == 2:
        return (plane(s, s.estimates, frame),)
    draw = rows if len(s.groups) <= ROWS else ridges
    return tuple(draw(s, s.estimates, frame, part) for part in range(s.estimates.dims))
