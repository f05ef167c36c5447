"""One page to hand over: verdict, picture, clusters at every level, tree, what was left out, how it was computed.

The page is plain data first, read from summaries, and rendered then. It is one file without any address in it: it opens
from disk, prints, reads without JavaScript, and is the same to the byte for the same result. With JavaScript a slider
shows the result at another level; every level it stops at was cut and summarised before.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from faultlines import text
from faultlines.estimates.labels import name_of
from faultlines.progress import progress
from faultlines.result.decision import contrast, decide, standings
from faultlines.show.geometry import Frame
from faultlines.show.grouptable import group_table, listed
from faultlines.show.palette import PALETTE
from faultlines.show.pictures import pictures
from faultlines.show.reading import about_effects, reading
from faultlines.show.redraw import live, members_heading
from faultlines.show.script import script_json
from faultlines.show.vega import caption, svg
from faultlines.show.written import effect_cells, measured_from, observed_cells, observed_headers, rule_or_members

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faultlines.decide.certificate import Certificate
    from faultlines.estimates.estimates import Excluded
    from faultlines.result.clusters import Cluster
    from faultlines.result.decision import Harm
    from faultlines.result.summary import Summary

TABS = 20  # results with a part of their own on one page
_LISTED = 5_000  # groups up to which all are listed
_NAMED = 160  # characters of members beside a cluster without a rule
_MEMBERS = 200  # members named in a cluster where not all are
_HIGH = 720  # pixels of a picture from which on it has a sheet of its own in print
_MATRIX = 300  # groups up to which results are laid beside each other group by group
_LETTERS = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
_RIGHT_TO_LEFT = re.compile(f"[{_LETTERS}]+(?:[\\s\\d'’\\\"״׳.&/–-]+[{_LETTERS}]+)*")


class Part(NamedTuple):
    """One result on the page.

    Attributes:
        name: What it is called.
        levels: Its summaries at the levels of the slider, from the strictest.
        now: Which of them is the result itself.
        skipped: How many levels were left out.
        self_check: How often clusters are claimed in its rows where nothing differs, if that was asked.
        certificate: Whether all groups are within a gap, if that was asked.
        confirmed: What became of its clusters on fresh data, if there were some.
        harm: For each effect, on which side people are worse off, if that was said.
    """

    name: str
    levels: Sequence[Summary]
    now: int
    skipped: int
    self_check: str = ""
    certificate: Certificate | None = None
    confirmed: Sequence[str] = ()
    harm: Harm = ()


def page(
    results: Sequence[Summary],
    names: Sequence[str],
    shown: Sequence[Part],
    *,
    title: str | None = None,
    note: str | None = None,
    command: str | None = None,
    left: int = 0,
    rejected: int | None = None,
) -> str:
    """The page of one result, or of several with an overview of them.

    Args:
        results: All results of the overview.
        names: What they are called.
        shown: Those with a part of their own, the first of them.
        title: What stands at the head.
        note: How they were corrected for their number.
        command: What reproduces them.
        left: How many others are not on the page.
        rejected: How many of all have clusters that differ.
    """
    named = [
        f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)
    ]
    with progress("drawing the page", len(shown)) as advance:
        parts = []
        for i, one in enumerate(shown):
            parts.append(_part(one._replace(name=named[i]), f"r{i}", note, command))
            advance(1)
    script = _file("page.js")
    return rendered(
        "page.html",
        title=escape(text.printable(title or _titled(results, left))),
        head=title or "",
        parts=parts,
        overview=_overview(results, named, shown, left, rejected) if len(results) > 1 else None,
        note=note or "",
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def rendered(template: str, **values: Any) -> str:
    """A page of its parts, with the one style sheet of all pages; whatever is put into it is escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_shown
    )
    environment.filters["bdi"] = _apart
    style = Markup(_file("page.css").replace("/* palette */", _palette()))
    return environment.from_string(_file(template)).render(style=style, version=version("faultlines"), **values)


def _titled(results: Sequence[Summary], left: int) -> str:
    return results[0].verdict if len(results) == 1 else f"{len(results) + left:,} results"


def _apart(name: str) -> str:
    """The name of a group; kept apart from what stands beside it, if it runs from right to left."""
    words = text.printable(name)
    return words if not _RIGHT_TO_LEFT.search(words) else Markup("<bdi>{}</bdi>").format(words)


def _shown(value: object) -> object:
    """Whatever is put into the page: what no reader can see made visible, and names from right to left kept apart."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    words = text.printable(value)
    if words.isascii() or not _RIGHT_TO_LEFT.search(words):
        return words
    found = _RIGHT_TO_LEFT.split(words)
    names = [Markup("<bdi>{}</bdi>").format(name) for name in _RIGHT_TO_LEFT.findall(words)]
    return Markup("").join(part for pair in zip(found, [*names, ""], strict=True) for part in pair)


def _file(name: str) -> str:
    return files("faultlines.show").joinpath("templates", name).read_text(encoding="utf-8")


def _palette() -> str:
    return "".join(f"--c{i + 1}:{colour};" for i, colour in enumerate(PALETTE))


# ------------------------------------------------------------------------------------------------------- one result


def _part(part: Part, key: str, note: str | None, command: str | None) -> dict[str, Any]:
    """Everything the page says about one result."""
    s, several = part.levels[part.now], any(level.rejected for level in part.levels)
    frame = Frame.of(s, part.harm)
    drawn = {"groups": pictures(s, "groups", frame), "tree": pictures(s, "tree", frame)}
    whole = len(s.groups) <= _LISTED
    order = listed(frame.order, whole=whole)
    tables = [level_table(level, part.harm, whole=whole) for level in part.levels]
    return {
        "key": key,
        "name": part.name,
        "decision": decide(s, part.harm),
        "alpha": alpha_text(s.alpha),
        "certificate": _certificate(part.certificate),
        "confirmed": part.confirmed,
        "pictures": [
            {
                "kind": kind,
                "caption": caption(s, kind, several=several),  # type: ignore[arg-type]
                "svg": Markup(svg(one)),
                "is_high": one.height > _HIGH,
            }
            for kind, pictured in drawn.items()
            for one in pictured
        ],
        "columns": tables[part.now]["header"],
        "overall": tables[part.now]["overall"],
        "about_effects": about_effects(s, part.harm),
        "attributes": " · ".join(s.groups.attributes),
        "members": members_heading(s),
        "clusters": _clusters(s, tables[part.now]),
        "levels": [
            {"alpha": alpha_text(one.alpha), "n": len(one.clusters), "is_this": i == part.now}
            for i, one in enumerate(part.levels)
        ],
        "skipped": part.skipped,
        "groups": group_table(s, order, whole=whole, several=several),
        "explained": s.explained,
        "explained_p": ["–" if row.pvalue is None else text.pvalue(math.log(row.pvalue)) for row in s.explained],
        "explained_words": [*s.explained_words, *(one.text for one in s.notes if one.kind == "attributes")],
        "excluded": [_left_out(s, left) for left in s.excluded[:_LISTED]],
        "left_out": [
            (one.attribute, one.value, text.count(one.n), text.share(one.share, 1)) for one in s.left_out[:_MEMBERS]
        ],
        "n_excluded": len(s.excluded),
        "dropped": list(s.dropped.items()),
        "facts": _facts(s, command, part.self_check),
        "reading": reading(s, note),
        "data": Markup(script_json(live(part.levels, part.now, tables, frame, drawn, order, whole=whole))),
    }


def _certificate(certificate: Certificate | None) -> dict[str, Any] | None:
    """A certificate as a sentence and a table."""
    if certificate is None:
        return None
    header, rows, right = certificate.table()
    return {
        "sentence": certificate.sentence,
        "header": [{"name": name, "is_number": i in right, "key": ""} for i, name in enumerate(header)],
        "rows": rows,
        "notes": certificate.notes[:1],
    }


def _clusters(s: Summary, table: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table of clusters, each with what is told below it."""
    below = zip(table["rows"], table["rules"], table["standings"], map(_members, s.clusters), strict=True)
    return [
        {"cells": cells, "rule": rule, "standing": standing, "members": members, "more": more}
        for cells, rule, standing, (members, more) in below
    ]


def _left_out(s: Summary, left: Excluded) -> tuple[str, str, str]:
    """A group that was left out: its name, why, and what is known of it."""
    told = ""
    if left.events is not None and left.n is not None:
        told = f"{text.count(left.events)} of {text.count(left.n)}"
    elif left.n is not None:
        told = f"n = {text.count(left.n)}"
    if left.estimate is not None and left.lower is not None and left.upper is not None and len(s.numbers) == 1:
        number = s.number_for([max((left.upper - left.lower) / 4, 1e-300)], [left.lower, left.upper], 0)
        told += f": {number(left.estimate)} ({number(left.lower)} … {number(left.upper)})"
    return name_of(left.label), left.reason, told


def alpha_text(alpha: float) -> str:
    """A level as it stands on the page."""
    return f"{alpha:.3g}"


def level_table(s: Summary, harm: Harm, *, whole: bool) -> dict[str, Any]:
    """The table of clusters at one level; members as text only where the groups are not all on the page."""
    several = len(s.effect_names) > 1
    levels = [f"{name}: level" if several else "level" for name in s.effect_names]
    header = [
        "cluster",
        *(told for name in levels for told in (name, s.interval_name)),
        *observed_headers(s),
        "groups",
        "share",
        *(["n", "share of n"] if s.groups.n is not None else []),
    ]
    return {
        "header": header,
        "rows": [[str(i + 1), *_cells(s, cluster)] for i, cluster in enumerate(s.clusters)],
        "overall": ["all", *_cells(s, s.overall)],
        "rules": [rule_or_members(s, i, _NAMED) for i in range(len(s.clusters))],
        "standings": standings(s, harm),
        "members": [] if whole else [text.members(one.members, name_of, 80) for one in s.clusters],
    }


def _cells(s: Summary, cluster: Cluster) -> list[str]:
    cells = [*effect_cells(s, cluster), *observed_cells(s, cluster)]
    cells += [text.count(len(cluster.members)), f"{len(cluster.members) / len(s.groups):.1%}"]
    if cluster.n is not None and s.groups.n is not None:
        cells += [text.count(cluster.n), f"{cluster.n / float(np.sum(s.groups.n)):.1%}"]
    return cells


def _members(cluster: Cluster) -> tuple[str, int]:
    """The members' names and how many are not named."""
    shown = cluster.members if len(cluster.members) <= _LISTED else cluster.members[:_MEMBERS]
    return ", ".join(text.printable(name_of(label)) for label in shown), len(cluster.members) - len(shown)


# ----------------------------------------------------------------------------------------------- words of the page


def _facts(s: Summary, command: str | None, self_check: str = "") -> list[tuple[str, str]]:
    """How it was computed."""
    facts, tolerance = s.judged.facts, s.groups.tolerance
    told = [("Measured", s.groups.measure), ("Groups by", " × ".join(s.groups.attributes))]
    told += [(name.replace("_", " ").capitalize(), column) for name, column in measured_from(s).items()]
    if s.estimates is not None and s.estimates.scale.name != "identity":
        told.append(("Compared on the scale", s.estimates.scale.name))
    told += [("Level α", f"{s.alpha:g}"), ("Guarantee", s.guarantee.explanation)]
    told += [
        (str(name).capitalize(), f"{value:,}" if isinstance(value, int) else str(value))
        for name, value in facts.items()
    ]
    told += [("Note", words) for words in s.notes_of("method")]
    told += [("Border groups", "moved to the nearest cluster" if s.refine else "left where the merges put them")]
    told += [("Tolerance", f"{tolerance:g}")] if tolerance else []
    told += [("Self-check", self_check)] if self_check else []
    told += [("faultlines", version("faultlines")), ("Fingerprint of data and settings", s.fingerprint())]
    return [*told, ("Reproduce with", command or f"{_call(s)}.report(…)")]


def _call(s: Summary) -> str:
    """The call that gives the result again."""
    seed = f", seed={s.judged.facts['seed']}" if "seed" in s.judged.facts else ""
    allowed = f", tolerance={s.groups.tolerance:g}" if s.groups.tolerance else ""
    rest = f"guarantee=fl.{s.guarantee!r}{allowed}, refine={s.refine}{seed})"
    if s.adjustment is None:
        return f"fl.cluster(…, alpha={s.alpha!r}, {rest}"
    if s.adjustment.correction == "holm":
        return f"fl.holm([fl.cluster(…, {rest}, …], alpha={s.alpha!r})[…]"
    return f"fl.cluster_many(…, alpha={s.alpha!r}, correction={s.adjustment.correction!r}, {rest}[…]"


# --------------------------------------------------------------------------------------------------- several results


def _overview(
    results: Sequence[Summary], names: Sequence[str], parts: Sequence[Part], left: int, rejected: int | None
) -> dict[str, Any]:
    """All results in one table, and group by group where they are few and the same."""
    harms = [*(part.harm for part in parts), *[()] * len(results)]
    table = [
        {
            "key": f"r{i}" if i < len(parts) else "",
            "name": names[i],
            "p": text.pvalue(s.log_pvalue),
            "adjusted": text.pvalue(s.claims.log_pvalue),
            "alpha": alpha_text(s.alpha),
            "clusters": len(s.clusters),
            "groups": text.count(len(s.groups)),
            "contrast": contrast(s, harm) or ("Clusters differ." if s.rejected else "No difference can be claimed."),
        }
        for i, (s, harm) in enumerate(zip(results, harms, strict=False))
    ]
    shown = results[: len(parts)]
    same = {s.groups.attributes for s in shown}
    labels = list(dict.fromkeys(label for s in shown for label in s.group_labels))
    return {
        "summary": table,
        "total": text.count(len(results) + left),
        "rejected": text.count(sum(s.rejected for s in results) if rejected is None else rejected),
        "only": len(results) - len(parts),
        "left": left,
        "is_adjusted": any(s.adjustment is not None for s in results),
        "attributes": " · ".join(*same) if len(same) == 1 else "group",
        "names": names[: len(parts)],
        "rows": list(_matrix(shown, labels)) if len(labels) <= _MATRIX else [],
        "groups": text.count(len(labels)),
    }


def _matrix(shown: Sequence[Summary], labels: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """For every group, its cluster and estimate in each result."""
    places = [{label: i for i, label in enumerate(s.group_labels)} for s in shown]
    for label in labels:
        cells = []
        for s, place in zip(shown, places, strict=True):
            i = place.get(label)
            if i is None:
                cells.append({"cluster": 0, "of": 1, "text": "–"})
                continue
            values = [] if s.estimates is None else s.estimates.shown[i].tolist()
            told = ", ".join(number(value) for number, value in zip(s.numbers, values, strict=True))
            cells.append({"cluster": int(s.labels[i]), "of": len(s.clusters), "text": told})
        yield {"name": text.printable(name_of(label)), "cells": cells}
