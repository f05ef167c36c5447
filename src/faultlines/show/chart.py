"""Pictures as Altair charts, which save themselves as files that need no network and run nothing from the data."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import textwrap
from os import PathLike
from typing import TYPE_CHECKING, Any

import altair as alt
from altair.utils.html import spec_to_html

from faultlines import checks, files, text
from faultlines.errors import InputError
from faultlines.show.geometry import pictures
from faultlines.show.palette import INK, MUTED
from faultlines.show.script import script_safe
from faultlines.show.vega import caption, config, spec

if TYPE_CHECKING:
    from pathlib import Path

    from faultlines.result.summary import Summary
    from faultlines.show.geometry import Kind
    from faultlines.show.palette import Theme

ENDINGS = (".svg", ".png", ".html", ".json", ".pdf")


class _Offline:
    """Charts that save themselves without a network: libraries go into an HTML file, not links to them."""

    def save(self, fp: Any, format: Any = None, **options: Any) -> None:  # noqa: A002 - Altair's name for it
        """Write the chart; as in Altair, but a file is written whole or not at all, and HTML is made safe.

        Args:
            fp: A path, or a file that is open.
            format: ``"svg"``, ``"png"``, ``"html"``, ``"json"`` or ``"pdf"``; by default what the path ends in.
            options: Those of Altair.
        """
        ending = str(fp).rpartition(".")[2].lower()
        chosen = format or (ending if f".{ending}" in ENDINGS else None)
        if not isinstance(fp, str | PathLike):
            self._write(fp, chosen, options)
            return
        path = files.target("plot", fp)
        held: io.StringIO | io.BytesIO = io.BytesIO() if chosen in ("png", "pdf") else io.StringIO()
        self._write(held, chosen, options)
        files.write("plot", path, held.getvalue())

    def _write(self, file: Any, chosen: Any, options: dict[str, Any]) -> None:
        if chosen == "html" and not options:
            file.write(_page(self.to_dict()))  # type: ignore[attr-defined]
            return
        super().save(file, chosen, **({"inline": True} if chosen == "html" else {}) | options)  # type: ignore[misc]


class Chart(_Offline, alt.LayerChart):  # type: ignore[misc]
    """An Altair chart of layers."""


class Charts(_Offline, alt.VConcatChart):  # type: ignore[misc]
    """Several of them, one below the other."""


def _page(specification: dict[str, Any]) -> str:
    """A page with Altair's own script in it, in which no name of a group can end the script or start another."""
    made: str = spec_to_html(
        specification,
        mode="vega-lite",
        vegalite_version=alt.VEGALITE_VERSION.split(".")[0],
        vegaembed_version=alt.VEGAEMBED_VERSION,
        vega_version=alt.VEGA_VERSION,
        template="inline",
    )
    plain = json.dumps(specification)
    if plain not in made:  # another release of Altair writes it in another way
        raise InputError("plot", "this release of Altair cannot be made safe", "Save as .svg, or update altair.")
    made = made.replace(plain, script_safe(plain))
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", made, flags=re.DOTALL)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    policy = f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-eval' {hashes}"
    return made.replace("<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{policy}">', 1)


def plot(s: Summary, kind: Kind = "groups", theme: Theme = "light") -> Chart | Charts:
    """The picture of a result as an Altair chart, with its verdict above it."""
    checks.choice("kind", kind, ("groups", "tree"))
    checks.choice("theme", theme, ("light", "dark"), "Use 'light' or 'dark'.")
    drawn = pictures(s, kind)
    if not drawn:
        why = "there is only one group" if kind == "tree" else "this comparison has no estimates to draw"
        raise InputError(f"plot(kind={kind!r})", why, "Use kind='tree'." if kind == "groups" else "Use kind='groups'.")
    title = {
        "text": textwrap.wrap(text.printable(s.verdict), 92),
        "subtitle": caption(s, kind),
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


def target(path: str | PathLike[str]) -> Path:
    """Where a picture can be written."""
    return files.target("plot", path, ENDINGS)


def save(s: Summary, path: Path) -> None:
    """Write a picture; what its name ends in says how."""
    ending = path.suffix.lower().removeprefix(".")
    plot(s).save(path, ending, **({"scale_factor": 2} if ending == "png" else {}))
