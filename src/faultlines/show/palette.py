"""Colours of pictures and pages, for light and for dark paper."""

from __future__ import annotations

from typing import Literal

Theme = Literal["light", "dark"]

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


def colour(cluster: int, theme: Theme) -> str:
    """The colour of a cluster; 0 is ink, −1 grey."""
    if cluster < 1:
        return INK[theme] if cluster == 0 else MUTED[theme]
    return PALETTE[(cluster - 1) % len(PALETTE)]
