"""Pictures in the terms of Vega-Lite, and drawn as SVG."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import vl_convert

from faultlines import formats
from faultlines.render.geometry import (
    FILLED,
    GRID,
    INK,
    LAYERS,
    MUTED,
    OUTLINED,
    PAPER,
    ROWS,
    Axis,
    Kind,
    Picture,
    Row,
    Style,
    Theme,
    colour,
)
from faultlines.render.pictures import pictures
from faultlines.results.clustering import Clustering


def caption(c: Clustering, kind: Kind, *, several: bool | None = None) -> str:
    """What the marks of a picture mean.

    Args:
        c: The result.
        kind: Which picture.
        several: Whether it shows several clusters, now or at another level, so that points may be hollow.
    """
    level = formats.level(c.alpha)
    if kind == "tree":
        return "Clusters merge from left to right; what merges beyond the cut differs."
    hollow = c.rejected if several is None else several
    points = f" ● certain, ○ uncertain membership ({level})." if hollow else ""
    if c.groups.estimates is not None and c.groups.estimates.dims == 2:
        thin = f"Thin lines: their {level} regions. " if len(c.groups) <= OUTLINED else ""
        return f"Dots: groups.{points} {thin}Thick lines: cluster effects with {level} regions."
    if len(c.groups) <= ROWS:
        held_out = c.judged.explored is not c.judged.reported
        order = " Rows are in the order of the data that chose the clusters." if held_out else ""
        bars = f"Bars: groups, their own estimates with {level} intervals.{points}"
        return f"{bars} Bands: cluster effects. Dashed lines: fault lines.{order}"
    uncertain = f" Uncertain: groups with uncertain membership ({level})." if hollow else ""
    curves = "Curves: how the groups' estimates spread in each cluster."
    return f"{curves} Bands: cluster effects with {level} intervals.{uncertain}"


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


def spec(picture: Picture, theme: Theme) -> dict[str, Any]:
    """A picture in Vega-Lite's terms, without control characters, at which vl-convert ends the process."""
    # Rows run down the page, values up.
    channels = {
        "x": {"field": "x", "type": "quantitative", **_scaled(picture.x)},
        "y": {"field": "y", "type": "quantitative", **_scaled(picture.y, reverse=not picture.y.is_shown)},
    }
    layers = []
    for name, style in LAYERS.items():
        by_align: dict[str, list[Row]] = {}
        for row in picture.layers.get(name, []):
            by_align.setdefault(row.get("align", style.look.get("align", "")), []).append(row)  # of one size each
        for align, rows in by_align.items():
            layers.append(_layer(name, style, rows, align, channels, theme))
    drawn: dict[str, Any] = formats.printable_data({"width": picture.width, "height": picture.height, "layer": layers})
    return drawn


# Vega looks a title up in an object, and finds what every object of JavaScript has; a space behind it is not drawn.
_OF_EVERY_OBJECT = frozenset(
    "constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf __proto__ "
    "__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__".split()
)


_TICKS: dict[str, dict[str, str]] = {
    "": {},
    "%": {"format": ".3~%"},
    " points": {"labelExpr": "format(100 * datum.value, '.3~f')"},
}


def _scaled(axis: Axis, *, reverse: bool = False) -> dict[str, Any]:
    title = f"{axis.title}, points" if axis.unit == " points" else axis.title
    return {
        "scale": {"domain": [axis.low, axis.high], "nice": False, "zero": False, "reverse": reverse},
        "axis": {"title": f"{title} " if title in _OF_EVERY_OBJECT else title, "grid": True, "tickCount": 7}
        | _TICKS[axis.unit]
        if axis.is_shown
        else None,
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
    if name == "ellipses":
        encoding["fillOpacity"] = {"field": "opacity", "type": "quantitative", "scale": None, "legend": None}
    if style.mark == "circle":
        encoding |= {"stroke": paint, "fill": paint | {"field": "inside"}}
        fields = ("name", "estimate", "interval", "cluster")
        encoding["tooltip"] = [{"field": field, "type": "nominal"} for field in fields]
    if style.mark == "text":
        mark |= {"align": align, "baseline": "middle"} | ({"fontSize": rows[0]["size"]} if "size" in rows[0] else {})
        encoding["text"] = {"field": "text", "type": "nominal"}
    if style.mark == "line":
        mark["interpolate"] = "linear-closed"
        encoding |= {"detail": {"field": "id", "type": "nominal"}, "order": {"field": "order", "type": "quantitative"}}
    return {
        "name": name if align in ("", style.look.get("align")) else f"{name}_{align}",
        "data": {"values": [row | _painted(row, theme) for row in rows]},
        "mark": mark,
        "encoding": encoding,
    }


def _painted(row: Row, theme: Theme) -> dict[str, Any]:
    """The colours of a row; what is hollow has paper inside."""
    own = colour(row["cluster"], theme)
    if "hollow" not in row:
        return {"colour": own}
    return {"colour": own, "inside": PAPER[theme] if row["hollow"] else own, "opacity": 0 if row["hollow"] else FILLED}


def svg(picture: Picture, *, background: bool = False) -> str:
    """A picture as SVG to stand in a page, whose style sheet gives ink, grey and grid the colours of its theme."""
    text: str = vl_convert.vegalite_to_svg(spec(picture, "light") | {"config": config("light", background=background)})
    text = re.sub(r' (?:xmlns(?::xlink)?|version)="[^"]*"', "", text, count=3)
    text = to_hundredths(text)
    about = html.escape(formats.printable(picture.about), quote=True)
    return text.replace("<svg ", f'<svg role="img" aria-label="{about}" ', 1)


def to_hundredths(drawn: str) -> str:
    """An SVG without what cannot be seen, fills a page and differs between machines: thousandths of a pixel."""
    return re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), drawn)


def figure(c: Clustering) -> str:
    """The picture of a result for a notebook, on paper of its own, with what its marks mean."""
    drawn = "".join(svg(picture, background=True) for picture in pictures(c))
    note = f'<p style="font-size:smaller">{html.escape(caption(c, "groups"))}</p>' if drawn else ""
    return f'<div style="max-width:860px;overflow-x:auto">{drawn}{note}</div>'


# ---------- JSON inside a script element of a page: nothing in it can end the element.


def script_json(value: object) -> str:
    """A value as JSON that can stand in a script element, with control characters in its text made visible."""
    printable = formats.printable_data(value)
    return script_safe(json.dumps(printable, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def script_safe(written: str) -> str:
    """JSON with what HTML could read replaced by escapes that mean the same."""
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
