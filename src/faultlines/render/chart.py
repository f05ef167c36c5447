"""Pictures as Altair charts, which save themselves as files that need no network and run nothing from the data."""

from __future__ import annotations

import base64
import hashlib
import html
import inspect
import io
import json
import re
import textwrap
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import altair as alt
from altair.utils.html import spec_to_html

from faultlines import checks, files, formats
from faultlines.errors import InputError
from faultlines.render.geometry import INK, MUTED, Kind, Theme
from faultlines.render.pictures import pictures
from faultlines.render.vega import caption, config, script_safe, spec
from faultlines.results.clustering import Clustering

ENDINGS = (".svg", ".png", ".html", ".json", ".pdf")
_PLACES = ("base_url", "output_div", "embed_options", "json_kwds", "fullhtml", "requirejs", "inline")  # of to_html


class _Offline:
    """Charts that work without a network and run nothing from the data, in whatever way they become HTML."""

    def save(self, fp: Any, format: Any = None, **options: Any) -> None:  # noqa: A002 - Altair's name for it
        """Write the chart; as in Altair, but a file is written whole or not at all, and HTML is made safe.

        Args:
            fp: A path, or a file that is open.
            format: ``"svg"``, ``"png"``, ``"html"``, ``"json"`` or ``"pdf"``; by default what the path ends in.
            options: Those of Altair.
        """
        is_file = callable(getattr(fp, "write", None)) and not isinstance(fp, PathLike)
        if format is not None or is_file:
            checks.choice("format", format, [*(ending[1:] for ending in ENDINGS), "vega"], "Use for example 'svg'.")
        if is_file:
            self._write(fp, format, options)
            return
        path = files.target("plot", fp, ENDINGS if format is None else ())
        chosen = format or path.suffix.lower()[1:]
        held: io.StringIO | io.BytesIO = io.BytesIO() if chosen in ("png", "pdf") else io.StringIO()
        self._write(held, chosen, options)
        files.write("plot", path, held.getvalue())

    def to_html(self, *values: Any, **options: Any) -> str:
        """The chart as a page, made safe; as in Altair, but by default with the libraries in it (`inline=True`)."""
        return _page(super().to_html, **dict(zip(_PLACES, values, strict=False)) | options)  # type: ignore[misc]

    def _write(self, file: Any, chosen: str, options: dict[str, Any]) -> None:
        if chosen != "html":
            super().save(file, chosen, **options)  # type: ignore[misc]
            return

        def render(**arguments: Any) -> str:
            held = io.StringIO()
            super(_Offline, self).save(held, "html", **arguments)  # type: ignore[misc]
            return held.getvalue()

        file.write(_page(render, **options))

    def _repr_mimebundle_(self, *values: Any, **options: Any) -> Any:
        """What a notebook shows; Altair's renderers write the HTML in it, where names of groups could end a script."""
        bundle = super()._repr_mimebundle_(*values, **options)  # type: ignore[misc]
        content = bundle[0] if isinstance(bundle, tuple) else bundle
        if isinstance(content, dict) and "text/html" in content:
            plain = json.dumps(self.to_dict(validate=False, context={"pre_transform": False}))  # type: ignore[attr-defined]
            page = str(content["text/html"])
            safe = page.replace(plain, script_safe(plain)) if plain in page else self.to_html(fullhtml=False)
            content = content | {"text/html": safe}
        return (content, *bundle[1:]) if isinstance(bundle, tuple) else content


class Chart(_Offline, alt.LayerChart):  # type: ignore[misc]
    """An Altair chart of layers."""


class Charts(_Offline, alt.VConcatChart):  # type: ignore[misc]
    """Several of them, one below the other."""


def _page(make: Callable[..., str], **options: Any) -> str:
    """HTML as Altair makes it, in which no name of a group can end the script or start another.

    Args:
        make: What makes it, from options of Altair.
        options: The options.
    """
    kwds = dict(options.pop("json_kwds", None) or {})
    written: list[str] = []

    class Safe(kwds.pop("cls", json.JSONEncoder)):  # type: ignore[misc]
        def encode(self, o: Any) -> str:
            written.append(script_safe(super().encode(o)))
            return written[-1]

    options = {"inline": "template" not in options} | options
    page = make(**options, json_kwds=kwds | {"cls": Safe})
    own = json.dumps(options.get("embed_options") or {})[1:-1]  # Altair writes these in its own way
    harmless = script_safe(own)
    if not written or not all(encoded in page for encoded in written) or (own != harmless and own not in page):
        raise InputError.not_installed(
            "plot", "this release of Altair cannot be made safe", "Save as .svg, or update altair.", form="clause"
        )
    if own != harmless:
        page = page.replace(own, harmless)
    scripts = filter(None, re.findall(r"<script[^>]*>(.*?)</script>", page, flags=re.DOTALL))
    allowed = [f"'sha256-{base64.b64encode(hashlib.sha256(c.encode()).digest()).decode()}'" for c in scripts]
    if not options["inline"]:  # libraries are linked to
        allowed += re.findall(r"<script[^>]* src=[\"']([^\"'\s;,]+)[\"']", page)
        base = options.get("base_url") or inspect.signature(spec_to_html).parameters["base_url"].default
        allowed.append(html.escape(str(base).rstrip("/") + "/"))
    policy = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-eval' "
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}{" ".join(allowed)}">'
    return page.replace("<head>", f"<head>\n{meta}", 1)


def plot(c: Clustering, kind: Kind = "groups", theme: Theme = "light") -> Chart | Charts:
    """The picture of a result as an Altair chart, with its verdict above it."""
    checks.choice("kind", kind, ("groups", "tree"))
    checks.choice("theme", theme, ("light", "dark"), "Use 'light' or 'dark'.")
    drawn = pictures(c, kind)
    if not drawn:
        why = "there is only one group" if kind == "tree" else "this comparison has no estimates to draw"
        raise InputError.unsupported(
            "kind", why, "Use {kind}.", kind, settings={"kind": "tree" if kind == "groups" else "groups"}, form="clause"
        )
    title = {
        "text": textwrap.wrap(formats.printable(c.headline), 92),
        "subtitle": textwrap.wrap(caption(c, kind), 118),
        "anchor": "start",
        "frame": "group",
        "offset": 22,
        "color": INK[theme],
        "subtitleColor": MUTED[theme],
        "fontSize": 14,
        "subtitleFontSize": 11,
        "subtitlePadding": 5,
    }
    specs = [spec(picture, theme) for picture in drawn]
    around = {"title": title, "config": config(theme)}
    # Altair looks at every value it is given; rows are put in afterwards, or large pictures take tens of seconds.
    rows = [[layer.pop("data")["values"] for layer in view["layer"]] for view in specs]
    kind_of, content = (Chart, specs[0]) if len(specs) == 1 else (Charts, {"vconcat": specs})
    chart: Chart | Charts = kind_of.from_dict(content | around, validate=False)
    for view, layers in zip([chart] if len(specs) == 1 else chart.vconcat, rows, strict=True):
        for layer, values in zip(view.layer, layers, strict=True):
            layer.data = alt.InlineData(values=values)
    return chart


def target(path: str | PathLike[str]) -> Path:
    """Where a picture can be written."""
    return files.target("plot", path, ENDINGS)


def save(c: Clustering, path: Path) -> None:
    """Write a picture; what its name ends in says how."""
    ending = path.suffix.lower().removeprefix(".")
    plot(c).save(path, ending, **({"scale_factor": 2} if ending == "png" else {}))
