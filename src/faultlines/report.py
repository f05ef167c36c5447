"""One page to hand over: verdict, picture, clusters at every level, tree, what was left out, how it was computed.

The page is summed up as plain data first and rendered then. It is one file without any address in it: it opens from
disk, prints, reads without JavaScript, and is the same to the byte for the same result. With JavaScript a slider cuts
the tree at another level; every level it stops at was cut here, by the same code as `Clustering.at`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import vl_convert
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from faultlines import plot, text
from faultlines.errors import InputError, check_folder, shorten, unwritable
from faultlines.estimates import ANSCOMBE, name_of
from faultlines.guarantees import Bonferroni, Calibrated, Folds, Holdout
from faultlines.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from faultlines.clustering import Cluster, Clustering
    from faultlines.estimates import Estimates
    from faultlines.plot import Frame, Picture
    from faultlines.similarity import IntArray

_LISTED = 5_000  # groups up to which all are listed
_ENDS = 500  # groups listed from either end where there are more
_MEMBERS = 200  # members named in a cluster where not all are
_TABS = 20  # results with a part of their own on one page
_MATRIX = 300  # groups up to which results are laid beside each other group by group
_MOST_CLUSTERS = 40  # that a level of the slider may have, unless the result itself has more
_MOSTLY = 0.9  # F₁ from which on a rule may stand for a cluster
_NICE = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
_FAINT = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-15, 1e-20, 1e-30, 1e-50, 1e-100, 1e-200, 1e-300)


def checked(path: str | PathLike[str]) -> Path:
    """Where a page can be written."""
    try:
        target = Path(path).expanduser()
        if "\0" in str(target):
            raise TypeError
    except (TypeError, RuntimeError) as error:
        raise InputError(f"path={shorten(path)}", "is not a path", "Use for example 'out.html'.") from error
    if target.suffix.lower() not in {".html", ".htm"}:
        raise InputError(f"report={str(target)!r}", "does not end in .html", "Use for example 'out.html'.")
    check_folder(f"report={str(target)!r}", target)
    return target


def write(
    results: Sequence[Clustering],
    names: Sequence[str],
    path: Path,
    *,
    title: str | None = None,
    note: str | None = None,
    command: str | None = None,
    left: int = 0,
) -> None:
    """Write the page of one result, or of several with an overview of them; `left` others are not on it."""
    made = page(results, names, title=title, note=note, command=command, left=left)
    try:
        path.write_bytes(made.encode("utf-8", "replace"))
    except OSError as error:
        raise unwritable(f"report={str(path)!r}", error) from error


def page(
    results: Sequence[Clustering],
    names: Sequence[str],
    *,
    title: str | None = None,
    note: str | None = None,
    command: str | None = None,
    left: int = 0,
) -> str:
    """The page as text."""
    shown = list(results[:_TABS])
    names = [
        f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)
    ]
    with progress("drawing the page", len(shown)) as advance:
        parts = []
        for i, result in enumerate(shown):
            parts.append(_part(result, names[i], f"r{i}", note, command))
            advance(1)
    script = _file("report.js")
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    return environment.from_string(_file("report.html")).render(
        title=title or (results[0].verdict if len(results) == 1 else f"{len(results)} results"),
        head=title or "",
        version=version("faultlines"),
        parts=parts,
        overview=_overview(results, names, shown, left) if len(results) > 1 else None,
        note=note or "",
        style=Markup(_file("report.css").replace("/* palette */", _palette())),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _shown(value: object) -> object:
    """Whatever is put into the page, without what no reader can see."""
    return text.printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _file(name: str) -> str:
    return files("faultlines").joinpath(name).read_text(encoding="utf-8")


def _palette() -> str:
    return "".join(f"--c{i + 1}:{colour};" for i, colour in enumerate(plot.PALETTE))


# ------------------------------------------------------------------------------------------------------- one result


def _part(c: Clustering, name: str, key: str, note: str | None, command: str | None) -> dict[str, Any]:
    """Everything the page says about one result."""
    frame = plot.Frame.of(c)
    drawn = {kind: plot.pictures(c, kind, frame) for kind in ("groups", "tree")}
    cuts, skipped = _cuts(c)
    whole = len(c.groups) <= _LISTED
    return {
        "key": key,
        "name": name,
        "verdict": c.verdict,
        "contrast": contrast(c),
        "rejected": c.rejected,
        "alpha": _alpha(c.alpha),
        "caution": _caution(c),
        "notes": [line for note in c._notes() for line in note.split("\n") if not line.startswith("Intervals are")],
        "pictures": [
            {
                "kind": kind,
                "about": one.about,
                "caption": plot.caption(c, kind),
                "svg": Markup(svg(one)),
            }
            for kind in ("groups", "tree")
            for one in drawn[kind]
        ],
        "columns": _cluster_columns(c),
        "overall": _cluster_cells(c, c.overall, "all"),
        "clusters": [
            {"cells": cells, "rule": str(cluster.rule), "members": names, "more": more}
            for cells, cluster, (names, more) in zip(
                _cluster_rows(c), c.clusters, map(_members, c.clusters), strict=True
            )
        ],
        "levels": [{"alpha": _alpha(cut.alpha), "n": cut.n_clusters, "is_this": cut.alpha == c.alpha} for cut in cuts],
        "skipped": skipped,
        "groups": _group_table(c, frame, whole=whole),
        "explained": c.explained(),
        "excluded": [(name_of(left.label), left.reason) for left in c.excluded[:_LISTED]],
        "n_excluded": len(c.excluded),
        "dropped": list(c.dropped.items()),
        "facts": _facts(c, command),
        "reading": _reading(c, note),
        "data": Markup(_json(_live(c, frame, drawn, cuts, whole=whole))),
    }


def contrast(c: Clustering) -> str:
    """How far the outermost clusters are apart, in words."""
    if not c.rejected or c.groups.estimates is None:
        return ""
    if c.estimates.dims > 1:
        spans = np.ptp([cluster.estimate for cluster in c.clusters], axis=0).tolist()
        told = [
            f"{part} by {c.number(i)(span).removeprefix('+')}"
            for i, (part, span) in enumerate(zip(c._parts(), spans, strict=True))
        ]
        return f"Between its clusters, {', '.join(told)} at most."
    low, high = c.clusters[0], c.clusters[-1]
    gap = high.estimate - low.estimate
    size = c.number()(gap).removeprefix("+")
    if c.estimates.scale is ANSCOMBE:
        size = f"{100 * gap:.0f} points" if gap >= 0.095 else f"{100 * gap:.2g} points"
    return f"The {c.groups.measure} is {size} higher for {_whom(c, high, True)} than for {_whom(c, low, False)}."


def _whom(c: Clustering, cluster: Cluster, highest: bool) -> str:
    """A cluster in few words: its rule where that fits and says more, else its members from the outermost on."""
    if c._has_rules():
        rule = cluster.rule
        if rule.exact and len(rule) <= 80:
            return str(rule)
        fits = 2 * rule.precision * rule.recall >= _MOSTLY * (rule.precision + rule.recall)
        if fits and len(rule) <= 110:
            return f"mostly {rule}"
        return f"{text.count(len(cluster.members))} groups (cluster {c.clusters.index(cluster) + 1})"
    return text.members(cluster.members[::-1] if highest else cluster.members, name_of, 40)


def _alpha(alpha: float) -> str:
    return f"{alpha:.3g}"


def _cuts(c: Clustering) -> tuple[list[Clustering], int]:
    """The result at every level the slider stops at, from the strictest; and how many levels have too many clusters.

    Levels are the usual ones, the result's own, and one just above the p of each split, so that every partition of
    the path can be seen.
    """
    log_p = np.sort(c.judgement.log_pvalues)
    seen = log_p[log_p < math.log(0.5)]
    strictest = max(float(seen[0]), math.log(1e-300)) if seen.size else math.log(1e-3)
    levels = {*_NICE, c.alpha}
    levels |= {alpha for alpha in _FAINT if math.log(alpha) > strictest}
    levels |= set([alpha for alpha in _FAINT if math.log(alpha) <= strictest][:1])
    for p in seen[: _MOST_CLUSTERS - 1].tolist():
        if p > math.log(1e-300):
            above = 10 ** (math.floor(p / math.log(10)) - 1)
            levels.add(float(f"{(math.floor(math.exp(p) / above) + 1) * above:.2g}"))
    cuts, skipped = [], 0
    for alpha in sorted(level for level in levels if level < 1):
        count = 1 + int(np.searchsorted(log_p, math.log(alpha)))
        if count > _MOST_CLUSTERS and alpha != c.alpha:
            skipped += 1
            continue
        try:
            cuts.append(c.at(alpha) if alpha != c.alpha else c)
        except InputError:  # out of reach of the draws there are
            skipped += 1
    return cuts, skipped


def _cluster_columns(c: Clustering) -> list[str]:
    """Headers of the table of clusters."""
    level = f"{text.level(c.alpha)} interval"
    names = ["cluster"]
    for part in c._parts() or (["effect"] if c.groups.estimates is not None else []):
        names += [part, level]
    return names + ["groups", "share"] + (["n", "share of n"] if c.groups.n is not None else [])


def _cluster_rows(c: Clustering) -> list[list[str]]:
    """The rows of the table of clusters."""
    return [_cluster_cells(c, cluster, str(i + 1)) for i, cluster in enumerate(c.clusters)]


def _cluster_cells(c: Clustering, cluster: Cluster, name: str) -> list[str]:
    cells = [name]
    if c.groups.estimates is not None:
        several = bool(c._parts())
        for part in range(len(c._parts()) or 1):
            number = c.number(part)
            low, high = cluster.ci[part] if several else cluster.ci
            cells += [number(cluster.estimate[part] if several else cluster.estimate)]
            cells += [f"{number(low)} … {number(high)}"]
    cells += [text.count(len(cluster.members)), f"{len(cluster.members) / len(c.groups):.1%}"]
    if cluster.n is not None and c.groups.n is not None:
        cells += [text.count(cluster.n), f"{cluster.n / float(np.sum(c.groups.n)):.1%}"]
    return cells


def _members(cluster: Cluster) -> tuple[str, int]:
    """The members' names and how many are not named."""
    shown = cluster.members if len(cluster.members) <= _LISTED else cluster.members[:_MEMBERS]
    return ", ".join(text.printable(name_of(label)) for label in shown), len(cluster.members) - len(shown)


def _group_table(c: Clustering, frame: Frame, *, whole: bool) -> dict[str, Any]:
    """The groups in the order of the picture: all of them, or those at either end."""
    order = _listed(frame, whole=whole)
    estimates = c.groups.estimates
    columns: list[tuple[str, list[tuple[str, str]]]] = []  # what is shown, and what it is sorted by
    if estimates is not None:
        lower, upper = (end[order].reshape(order.size, -1) for end in estimates.intervals(c.alpha))
        natural = estimates.natural[order].reshape(order.size, -1)
        for part, name in enumerate(c._parts() or ["effect"]):
            values, low, high = (array[:, part].tolist() for array in (natural, lower, upper))
            number = text.decimals(_errors(estimates, part), values, c._is_signed(part))
            columns.append((name, [(number(value), repr(value)) for value in values]))
            ends = [(f"{number(a)} … {number(b)}", repr(b - a)) for a, b in zip(low, high, strict=True)]
            columns.append((f"{text.level(c.alpha)} interval", ends))
    if c.groups.n is not None:
        columns.append(("n", [(text.count(size), repr(size)) for size in c.groups.n[order].tolist()]))
    columns.append(("cluster", [(str(cluster), str(cluster)) for cluster in c.labels[order].tolist()]))
    labels = [c.groups.labels[i] for i in order.tolist()]
    return {
        "header": [
            *({"name": name, "is_number": False} for name in c.groups.attributes),
            *({"name": name, "is_number": True} for name, _ in columns),
        ],
        "rows": [
            {
                "names": [text.printable(str(part)) for part in (label if isinstance(label, tuple) else (label,))],
                "cells": cells,
            }
            for label, cells in zip(labels, zip(*(cells for _, cells in columns), strict=True), strict=True)
        ],
        "total": len(c.groups),
        "whole": whole,
    }


def _listed(frame: Frame, *, whole: bool) -> IntArray:
    """The groups that are listed, in the order of the picture."""
    return frame.order if whole else np.concatenate([frame.order[:_ENDS], frame.order[-_ENDS:]])


def _errors(estimates: Estimates, part: int) -> list[float]:
    """A small standard error, for the digits that are shown."""
    errors = (estimates.se * estimates.scale.slope(estimates.theta)).reshape(len(estimates), -1)[:, part]
    positive = errors[errors > 0]
    return [float(np.quantile(positive, 0.1))] if positive.size else [1.0]


# ------------------------------------------------------------------------------------------- what the slider redraws


def svg(picture: Picture, *, background: bool = False) -> str:
    """A picture as SVG to stand in a page, whose style sheet gives ink, grey and grid the colours of its theme."""
    spec = plot.spec(picture, "light") | {"config": plot.config("light", background=background)}
    made: str = vl_convert.vegalite_to_svg(spec)
    made = re.sub(r' (?:xmlns(?::xlink)?|version)="[^"]*"', "", made, count=3)
    made = to_hundredths(made)
    about = html.escape(text.printable(picture.about), quote=True)
    return made.replace("<svg ", f'<svg role="img" aria-label="{about}" ', 1)


def to_hundredths(drawn: str) -> str:
    """An SVG without what cannot be seen, fills a page and differs between machines: thousandths of a pixel."""
    return re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), drawn)


def figure(c: Clustering) -> str:
    """The picture of a result for a notebook, on paper of its own."""
    drawn = "".join(svg(one, background=True) for one in plot.pictures(c))
    return f'<div style="max-width:860px;overflow-x:auto">{drawn}</div>'


def _live(
    c: Clustering, frame: Frame, drawn: dict[str, tuple[Picture, ...]], cuts: list[Clustering], *, whole: bool
) -> dict[str, Any]:
    """Every level as the page's script needs it; equal partitions share their drawing."""
    frame = frame._replace(axes=tuple((one.x, one.y) for one in drawn["groups"]))
    known: dict[bytes, int] = {}
    partitions: list[dict[str, Any]] = []
    levels = []
    for cut in cuts:
        key = cut.labels.tobytes()
        if key not in known:
            known[key] = len(partitions)
            pictures = [
                _redrawn(other, base)
                for kind in ("groups", "tree")
                for other, base in zip(plot.pictures(cut, kind, frame), drawn[kind], strict=True)
            ]
            partitions.append({"labels": _runs(cut.labels[_listed(frame, whole=whole)].tolist()), "drawn": pictures})
        levels.append(
            {
                "alpha": _alpha(cut.alpha),
                "verdict": cut.verdict,
                "contrast": contrast(cut),
                "header": _cluster_columns(cut),
                "rows": _cluster_rows(cut),
                "overall": _cluster_cells(cut, cut.overall, "all"),
                "rules": [str(cluster.rule) for cluster in cut.clusters],
                "members": [] if whole else [text.members(one.members, name_of, 80) for one in cut.clusters],
                "partition": known[key],
            }
        )
    return {
        "now": next(i for i, cut in enumerate(cuts) if cut.alpha == c.alpha),
        "levels": levels,
        "partitions": partitions,
        "names": [text.printable(name_of(c.groups.labels[i])) for i in frame.order.tolist()] if whole else [],
        "styles": {name: style.look for name, style in plot.LAYERS.items()},
    }


def _redrawn(picture: Picture, base: Picture) -> dict[str, Any]:
    """The layers of a picture that follow the cut, in pixels of the frame that is on the page."""

    def across(value: float) -> float:
        return round((value - base.x.low) / (base.x.high - base.x.low) * base.width, 1)

    def down(value: float) -> float:
        share = (value - picture.y.low) / (picture.y.high - picture.y.low)  # rows share the height, however many
        return round((1 - share if base.y.is_shown else share) * base.height, 1)

    shapes: dict[str, list[Any]] = {}
    for name, style in plot.LAYERS.items():
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
    return {"kinds": {name: style.mark for name, style in plot.LAYERS.items() if name in shapes}, "shapes": shapes}


def _runs(values: Sequence[int]) -> list[int]:
    """Values as value, count, value, count and so on."""
    made: list[int] = []
    for value in values:
        if made and made[-2] == value:
            made[-1] += 1
        else:
            made += [value, 1]
    return made


def _json(value: object) -> str:
    """JSON that nothing in it can end the script element of."""
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# ----------------------------------------------------------------------------------------------- words of the page


def _facts(c: Clustering, command: str | None) -> list[tuple[str, str]]:
    """How it was computed."""
    facts = c.judgement.facts
    seed = f", seed={facts['seed']}" if "seed" in facts else ""
    tolerance = f", tolerance={c.tolerance:g}" if c.tolerance else ""
    call = f"fl.cluster(…, alpha={c.alpha!r}, guarantee=fl.{c.guarantee!r}{tolerance}, refine={c.refine}{seed})"
    told = [("Measured", c.groups.measure), ("Groups by", " × ".join(c.groups.attributes))]
    if c.groups.estimates is not None and c.estimates.scale.name != "identity":
        told.append(("Compared on the scale", c.estimates.scale.name))
    told += [("Level α", f"{c.alpha:g}"), ("Guarantee", _guarantee(c))]
    told += [
        (str(name).capitalize(), f"{value:,}" if isinstance(value, int) else str(value))
        for name, value in facts.items()
    ]
    told += [("Border groups", "moved to the nearest cluster" if c.refine else "left where the merges put them")]
    told += [("Tolerance", f"{c.tolerance:g}")] if c.tolerance else []
    told += [("faultlines", version("faultlines")), ("Fingerprint of the data", c.fingerprint)]
    return [*told, ("To do it again", command or f"{call}.report(…)")]


def _caution(c: Clustering) -> str:
    """What a reader of the first lines must know: the same data chose the clusters and estimate them."""
    if not c.rejected or c.groups.estimates is None or isinstance(c.guarantee, Holdout):
        return ""
    return (
        "That clusters differ is what is claimed. How far they are apart is exaggerated, because the same data chose "
        "the clusters: for figures to act on, use the guarantee holdout."
    )


def _guarantee(c: Clustering) -> str:
    if isinstance(c.guarantee, Calibrated):
        return "calibrated: p-values from groups drawn without any difference, with the precision these groups have"
    if isinstance(c.guarantee, Holdout):
        return "holdout: clusters found on one part of the data, judged and estimated on the other"
    if isinstance(c.guarantee, Folds):
        return "folds: every step on a part of the data of its own"
    return "bonferroni: the rule p < α/K², which claims too often; for comparison only"


def _reading(c: Clustering, note: str | None) -> dict[str, list[str]]:
    """How to read the page, and what must not be concluded from it."""
    own = c.groups.estimates is not None
    chance = f"{100 * c.alpha:g}%"
    if isinstance(c.guarantee, Bonferroni):
        sure = (
            "The rule behind these clusters does not keep its promise: on pure noise it claims clusters far too often."
        )
    else:
        sure = f"If all groups were alike, two or more clusters would still be shown in at most {chance} of cases."
    apart = "Clusters differ as a whole; of two single groups on either side of a line this is not claimed."
    if note:
        sure = f"This is one of several results: {note}"
    read = [
        "Groups in one cluster could not be told apart." + (f" {apart}" if c.rejected else ""),
        sure,
        "p is the smallest level α at which there is more than one cluster. Each fault line has a p of its own.",
    ]
    if own:
        held = isinstance(c.guarantee, Holdout)
        read.append(
            "The effect of a cluster pools its groups, weighted by their precision. Its interval is from data that "
            + (
                "did not choose the cluster."
                if held
                else "also chose the cluster, so it describes more than it proves."
            )
        )
    rules = "A rule says in short which groups a cluster holds; where it is not exact, it says how well it fits."
    read.append(rules + (" It does not speak of groups that were left out." if c.excluded else ""))
    dont = [
        "That groups in one cluster are equal. A difference may be there and be too small to be seen in these data.",
        "That every group is where it belongs. Groups near a fault line may well belong to the other side.",
        "That an attribute in a rule is the cause. It says where the difference is, not why.",
        f"That another level is as good. The claim is made at α = {c.alpha:g}; to move the slider until something "
        "shows is to choose the claim after the data.",
    ]
    if not c.rejected:
        dont.insert(
            0,
            "That there is no difference. None can be claimed; how large a one can be missed, `faultlines power` says.",
        )
    return {"read": read, "dont": dont}


# --------------------------------------------------------------------------------------------------- several results


def _overview(
    results: Sequence[Clustering], names: Sequence[str], shown: Sequence[Clustering], left: int
) -> dict[str, Any]:
    """All results in one table, and group by group where they are few and the same."""
    summary = [
        {
            "key": f"r{i}" if i < len(shown) else "",
            "name": names[i],
            "p": text.pvalue(c.log_pvalue),
            "alpha": _alpha(c.alpha),
            "clusters": c.n_clusters,
            "groups": text.count(len(c.groups)),
            "contrast": contrast(c) or ("Clusters differ." if c.rejected else "No difference can be claimed."),
        }
        for i, c in enumerate(results)
    ]
    labels = list(dict.fromkeys(label for c in shown for label in c.groups.labels))
    rows = list(_matrix(shown, labels)) if len(labels) <= _MATRIX else []
    return {
        "summary": summary,
        "only": len(results) - len(shown),
        "left": left,
        "names": names[: len(shown)],
        "rows": rows,
        "groups": text.count(len(labels)),
    }


def _matrix(shown: Sequence[Clustering], labels: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """For every group, its cluster and estimate in each result."""
    places = [{label: i for i, label in enumerate(c.groups.labels)} for c in shown]
    for label in labels:
        cells = []
        for c, place in zip(shown, places, strict=True):
            i = place.get(label)
            if i is None:
                cells.append({"cluster": 0, "of": 1, "text": "–"})
                continue
            told = ""
            if c.groups.estimates is not None:
                values = np.atleast_1d(c.estimates.natural[i])
                told = ", ".join(c.number(part)(float(value)) for part, value in enumerate(values))
            cells.append({"cluster": int(c.labels[i]), "of": c.n_clusters, "text": told})
        yield {"name": text.printable(name_of(label)), "cells": cells}
