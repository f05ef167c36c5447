"""One page to hand over: verdict, picture, clusters at every level, tree, what was left out, how it was computed.

The page is plain data first, read from summaries, and rendered then. It is one file without any address in it: it opens
from disk, prints, reads without JavaScript, and is the same to the byte for the same result. With JavaScript a slider
shows the result at another level; every level it stops at was cut and summarised before.
"""

from __future__ import annotations

import base64
import hashlib
import math
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from faultlines import text
from faultlines.estimates.labels import key_of, name_of
from faultlines.progress import progress
from faultlines.result.tables import ARMS
from faultlines.show.geometry import Frame, pictures
from faultlines.show.palette import PALETTE
from faultlines.show.redraw import live
from faultlines.show.script import script_json
from faultlines.show.vega import caption, svg
from faultlines.show.written import (
    effect_cells,
    effect_headers,
    measured_from,
    observed_cells,
    observed_headers,
    rule_or_members,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faultlines.decide.certificate import Certificate
    from faultlines.estimates.estimates import Estimates, Excluded, IntArray
    from faultlines.result.clusters import Cluster
    from faultlines.result.summary import Summary

TABS = 20  # results with a part of their own on one page
_LISTED = 5_000  # groups up to which all are listed
_ENDS = 500  # groups listed from either end where there are more
_NAMED = 160  # characters of members beside a cluster without a rule
_MEMBERS = 200  # members named in a cluster where not all are
_MATRIX = 300  # groups up to which results are laid beside each other group by group


class Part(NamedTuple):
    """One result on the page.

    Attributes:
        name: What it is called.
        levels: Its summaries at the levels of the slider, from the strictest.
        now: Which of them is the result itself.
        skipped: How many levels were left out.
        self_check: How often clusters are claimed in its rows where nothing differs, if that was asked.
        certificate: Whether all groups are within a gap, if that was asked.
    """

    name: str
    levels: Sequence[Summary]
    now: int
    skipped: int
    self_check: str = ""
    certificate: Certificate | None = None


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
        title=title or (results[0].verdict if len(results) == 1 else f"{len(results) + left:,} results"),
        head=title or "",
        parts=parts,
        overview=_overview(results, named, len(shown), left, rejected) if len(results) > 1 else None,
        note=note or "",
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def rendered(template: str, **values: Any) -> str:
    """A page of its parts, with the one style sheet of all pages; whatever is put into it is escaped."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_printable
    )
    style = Markup(_file("page.css").replace("/* palette */", _palette()))
    return environment.from_string(_file(template)).render(style=style, version=version("faultlines"), **values)


def _printable(value: object) -> object:
    """Whatever is put into the page, with what no reader can see made visible."""
    return text.printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _file(name: str) -> str:
    return files("faultlines.show").joinpath("templates", name).read_text(encoding="utf-8")


def _palette() -> str:
    return "".join(f"--c{i + 1}:{colour};" for i, colour in enumerate(PALETTE))


# ------------------------------------------------------------------------------------------------------- one result


def _part(part: Part, key: str, note: str | None, command: str | None) -> dict[str, Any]:
    """Everything the page says about one result."""
    s = part.levels[part.now]
    frame = Frame.of(s)
    drawn = {"groups": pictures(s, "groups", frame), "tree": pictures(s, "tree", frame)}
    whole = len(s.groups) <= _LISTED
    order = _listed(frame, whole=whole)
    tables = [level_table(level, whole=whole) for level in part.levels]
    return {
        "key": key,
        "name": part.name,
        "verdict": s.verdict,
        "contrast": s.contrast,
        "rejected": s.rejected,
        "alpha": alpha_text(s.alpha),
        "caution": _caution(s),
        "certificate": _certificate(part.certificate),
        "reach": [one.text for one in s.notes if one.kind == "reach"],
        "notes": [one.text for one in s.notes if one.kind not in {"intervals", "attributes", "reach"}],
        "pictures": [
            {"kind": kind, "about": one.about, "caption": caption(s, kind), "svg": Markup(svg(one))}  # type: ignore[arg-type]
            for kind, several in drawn.items()
            for one in several
        ],
        "columns": tables[part.now]["header"],
        "overall": tables[part.now]["overall"],
        "clusters": [
            {"cells": cells, "rule": rule, "members": members, "more": more}
            for cells, rule, (members, more) in zip(
                tables[part.now]["rows"], tables[part.now]["rules"], map(_members, s.clusters), strict=True
            )
        ],
        "levels": [
            {"alpha": alpha_text(one.alpha), "n": len(one.clusters), "is_this": i == part.now}
            for i, one in enumerate(part.levels)
        ],
        "skipped": part.skipped,
        "groups": _group_table(s, order, whole=whole),
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
        "reading": _reading(s, note),
        "data": Markup(script_json(live(part.levels, part.now, tables, frame, drawn, order, whole=whole))),
    }


def _certificate(certificate: Certificate | None) -> dict[str, Any] | None:
    """A certificate as a sentence and a table."""
    if certificate is None:
        return None
    header, rows, right = certificate.table()
    return {
        "sentence": certificate.sentence,
        "header": [{"name": name, "is_number": i in right} for i, name in enumerate(header)],
        "rows": rows,
        "notes": certificate.notes[:1],
    }


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


def level_table(s: Summary, *, whole: bool) -> dict[str, Any]:
    """The table of clusters at one level; members as text only where the groups are not all on the page."""
    header = [
        "cluster",
        *effect_headers(s),
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


def _group_table(s: Summary, order: IntArray, *, whole: bool) -> dict[str, Any]:
    """The groups in the order of the picture: all of them, or those at either end."""
    estimates = s.estimates
    columns: list[tuple[str, list[tuple[str, str]]]] = []  # what is shown, and what it is sorted by
    if estimates is not None:
        lower, upper = (end[order] for end in estimates.interval_ends(s.alpha))
        for part, name in enumerate(s.effect_names):
            values, low, high = (array[:, part].tolist() for array in (estimates.shown[order], lower, upper))
            number = s.number_for(_small_error(estimates, part), values, part)
            columns.append((name, [(number(value), repr(value)) for value in values]))
            ends = [(f"{number(a)} … {number(b)}", repr(b - a)) for a, b in zip(low, high, strict=True)]
            columns.append((s.interval_name, ends))
    if s.groups.n is not None:
        columns.append(("n", [(text.count(size), repr(size)) for size in s.groups.n[order].tolist()]))
    columns += _arm_columns(s, order)
    columns.append(("cluster", [(str(cluster), str(cluster)) for cluster in s.labels[order].tolist()]))
    keys = [key_of(s.group_labels[i]) for i in order.tolist()]
    return {
        "header": [
            *({"name": name, "is_number": False} for name in s.groups.attributes),
            *({"name": name, "is_number": True} for name, _ in columns),
        ],
        "rows": [
            {"names": [text.printable(str(part)) for part in key], "cells": cells}
            for key, cells in zip(keys, zip(*(cells for _, cells in columns), strict=True), strict=True)
        ],
        "total": len(s.groups),
        "whole": whole,
    }


def _arm_columns(s: Summary, order: IntArray) -> list[tuple[str, list[tuple[str, str]]]]:
    """Sizes and plain values of control and treatment, where they are compared."""
    readout = s.readout
    if readout is None or readout.by_arm is None or readout.arm_sizes is None:
        return []
    made = []
    spread = float(np.nanstd(readout.by_arm)) or 1.0
    for i, arm in enumerate(ARMS):
        values, sizes = readout.by_arm[order, i].tolist(), readout.arm_sizes[order, i].tolist()
        number = text.decimals([spread / 10], values, False, False)
        # In one column, so that the table fits on a page.
        cells = [(f"{number(v)} ({text.count(n)})", repr(v)) for v, n in zip(values, sizes, strict=True)]
        made.append((f"{arm} (n)", cells))
    return made


def _listed(frame: Frame, *, whole: bool) -> IntArray:
    """The groups that are listed, in the order of the picture."""
    return frame.order if whole else np.concatenate([frame.order[:_ENDS], frame.order[-_ENDS:]])


def _small_error(estimates: Estimates, part: int) -> list[float]:
    """A small standard error, for the digits that are shown."""
    errors = estimates.readable_errors(estimates.given, estimates.errors)[:, part]
    positive = errors[errors > 0]
    return [float(np.quantile(positive, 0.1))] if positive.size else [1.0]


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


def _caution(s: Summary) -> str:
    """What a reader of the first lines must know: the same data chose the clusters and estimate them."""
    if not s.rejected or s.estimates is None or s.guarantee.intervals_hold:
        return ""
    return (
        "That clusters differ is what is claimed. How far they are apart is exaggerated, because the same data chose "
        "the clusters: for figures to act on, use the guarantee holdout."
    )


def _reading(s: Summary, note: str | None) -> dict[str, list[str]]:
    """How to read the page, and what must not be concluded from it."""
    chance = f"{100 * s.alpha:g}%"
    if not s.guarantee.holds:
        sure = "The rule behind these clusters does not control the error: on pure noise it claims clusters too often."
    else:
        sure = f"If all groups were alike, two or more clusters would still be shown in at most {chance} of cases."
    apart = "Clusters differ as a whole; of two single groups on either side of a line this is not claimed."
    if note:
        sure = f"This is one of several results: {note}"
    read = [
        "Groups in one cluster could not be told apart." + (f" {apart}" if s.rejected else ""),
        sure,
        "p is the smallest level α at which there is more than one cluster. Each fault line has a p of its own.",
    ]
    if s.estimates is not None:
        from_data = (
            "did not choose the cluster."
            if s.guarantee.intervals_hold
            else ("also chose the cluster, so it describes more than it proves.")
        )
        read.append(
            "The effect of a cluster pools its groups, weighted by their precision. Its interval is from data that "
            + from_data
        )
        if observed_headers(s):
            read.append(_about_observed(s))
    read.append(_about_rules(s))
    dont = [
        "That groups in one cluster are equal. A difference may be there and be too small to be seen in these data.",
        "That every group is where it belongs. Groups near a fault line may well belong to the other side.",
        "That an attribute in a rule is the cause. It says where the difference is, not why.",
        f"That another level is as good. The claim is made at α = {s.alpha:g}; to move the slider until something "
        "shows is to choose the claim after the data.",
    ]
    if not s.rejected:
        dont.insert(
            0,
            "That there is no difference. None can be claimed; how large a one is not excluded is said at the top.",
        )
    return {"read": read, "dont": dont}


def _about_observed(s: Summary) -> str:
    if s.readout is None or s.readout.metric.ranking is not None:
        return "Observed is the effect on the people of a cluster: those of its groups, weighted by their sizes."
    return (
        "Observed is the effect on the people of a cluster: that of all their rows together, as a dashboard would "
        "show it. The line of all groups has this one, too."
    )


def _about_rules(s: Summary) -> str:
    counted = s.population.counted
    rules = (
        "A rule says in short which groups a cluster holds; no group is in two rules. Where it is not exact, it "
        f"matches a share of its {counted}: of the {counted} it describes, so many are in the cluster. And it covers a "
        f"share of the cluster: of the {counted} in the cluster, so many are described. Where either is less than "
        "half, no rule is shown."
    )
    return rules + (" It does not speak of groups that were left out." if s.excluded else "")


# --------------------------------------------------------------------------------------------------- several results


def _overview(
    results: Sequence[Summary], names: Sequence[str], parts: int, left: int, rejected: int | None
) -> dict[str, Any]:
    """All results in one table, and group by group where they are few and the same."""
    table = [
        {
            "key": f"r{i}" if i < parts else "",
            "name": names[i],
            "p": text.pvalue(s.log_pvalue),
            "adjusted": text.pvalue(s.claims.log_pvalue),
            "alpha": alpha_text(s.alpha),
            "clusters": len(s.clusters),
            "groups": text.count(len(s.groups)),
            "contrast": s.contrast or ("Clusters differ." if s.rejected else "No difference can be claimed."),
        }
        for i, s in enumerate(results)
    ]
    shown = results[:parts]
    labels = list(dict.fromkeys(label for s in shown for label in s.group_labels))
    return {
        "summary": table,
        "total": text.count(len(results) + left),
        "rejected": text.count(sum(s.rejected for s in results) if rejected is None else rejected),
        "only": len(results) - parts,
        "left": left,
        "is_adjusted": any(s.adjustment is not None for s in results),
        "names": names[:parts],
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
