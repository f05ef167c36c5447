"""One page to hand over: verdict, picture, clusters at every level, tree, what was excluded, how it was computed.

The page is plain data first, read from summaries, and rendered then. It is one file without any address in it: it opens
from disk, prints, reads without JavaScript, and is the same to the byte for the same result. With JavaScript a slider
shows the result at another level; every level it stops at was cut and summarised before.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from os import PathLike
from typing import Any, NamedTuple

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from faultlines import checks, formats
from faultlines import files as file_writer
from faultlines.estimates.estimates import Excluded
from faultlines.estimates.labels import level_name, name_of, naming
from faultlines.estimates.reasons import DropCode
from faultlines.metrics.table import Adverse
from faultlines.progress import progress
from faultlines.render.certificate import group_table as group_rows
from faultlines.render.clustering import (
    AdverseSides,
    attribute_notes,
    average_notes,
    between_levels,
    contrast,
    decide,
    effect_cells,
    harm_statuses,
    interval_name,
    observed_cells,
    observed_headers,
    ratio_notes,
    rule_or_members,
    term_number,
)
from faultlines.render.data import adverse_sides as sides_of
from faultlines.render.data import measured_columns
from faultlines.render.geometry import PALETTE, Frame
from faultlines.render.pictures import group_values, last_merges, level_values, pictures, plot_rows
from faultlines.render.redraw import group_table, listed, live, members_heading
from faultlines.render.text import NextCommand, document, next_lines, supported_pvalue
from faultlines.render.vega import caption, script_json, svg
from faultlines.results.certificate import Certificate
from faultlines.results.clustering import Cluster, Clustering
from faultlines.results.confirmation import Confirmation
from faultlines.results.protocol import NEXT, Result
from faultlines.results.self_check import SelfCheck
from faultlines.types import IntArray

# ---------- How to read a page, and what not to conclude from it.


def reading(c: Clustering, note: str | None) -> dict[str, list[str]]:
    """How to read the page, and what not to conclude from it."""
    control = (
        f"If all groups were equal, a difference would be reported with a probability of at most {100 * c.alpha:g}%."
    )
    if not c.guarantee.holds:
        control = "The rule behind these clusters does not control the error rate: it finds clusters in pure noise."
    if note:
        control = f"This is one of several results: {note}"
    wholes = " Clusters differ; two single groups from neighboring clusters need not." if c.rejected else ""
    read = [
        f"Groups in one cluster could not be distinguished.{wholes}",
        control,
        "p is the smallest α at which there is more than one cluster. Each fault line has a p of its own.",
    ]
    read.append(_about_rules(c))
    dont = [
        "That groups in one cluster are equal. They may differ by too little to be detected in these data.",
        "That every group is in the right cluster. Hollow points are groups whose membership is uncertain.",
        "That an attribute in a rule is the cause. A rule says where the difference is, not why.",
        f"That another α is as good. The result is the one at α = {c.alpha:g}; moving the slider until something "
        "shows is choosing the result after the data.",
    ]
    if not c.rejected:
        dont.insert(0, "That there is no difference. The largest difference not ruled out is at the top.")
    return {"read": read, "dont": dont}


def about_effects(c: Clustering, adverse: AdverseSides = ()) -> str:
    """Which effect of a cluster is what, in a line."""
    if c.groups.estimates is None:
        return ""
    text = "Cluster effect: the mean of the groups of a cluster, weighted by precision."
    if c.clusters[0].pooled.mixed:
        text = (
            "Cluster effect: what the groups of a cluster have in common. A group with uncertain membership counts for "
            "each possible cluster, so that clusters are not pushed apart."
        )
    if c.guarantee.intervals_hold:
        text += " It comes from data that did not choose the cluster."
    if c.rejected and any(adverse):
        text += " Worse off: the whole interval is on the harmful side of the overall effect."
    return f"{text} {_about_observed(c)}".strip()


def _about_observed(c: Clustering) -> str:
    if not observed_headers(c):
        return ""
    how = "in all rows of a cluster together, as a dashboard shows it"
    if c.readout is None or not c.readout.metric.adds_up:
        how = "in the groups of a cluster, weighted by their sizes"
    text = f"Observed: the effect {how}."
    if c.rejected and not c.guarantee.intervals_hold:
        return f"{text} It exaggerates the difference between clusters, because the same data chose them."
    return text


def _about_rules(c: Clustering) -> str:
    counted = c.population.counted
    rules = (
        "A rule describes the groups of a cluster in short; no group is in two rules. A rule that is not exact matches "
        f"a share of the {counted} it describes, which are in the cluster, and covers a share of the {counted} in the "
        "cluster. Where either is less than half, no rule is shown."
    )
    return rules + (" Rules are not about excluded groups." if c.excluded else "")


# --------------------


# Notes of a certificate that are not said elsewhere on the page.
_CERTIFICATE_NOTES = frozenset(
    {
        "reference",
        "overall of groups",
        "method",
        "missing bounds",
        "missing share",
        "missing ignored",
        "unknown attributes",
    }
)
TABS = 20  # results with a part of their own on one page
_LISTED = 5_000  # groups up to which all are listed
_NAMED = 160  # characters of members beside a cluster without a rule
_SHORT_NAME = 24  # characters of a name that is never broken
_MEMBERS = 200  # members named in a cluster where not all are
_HIGH = 720  # pixels of a picture from which on it has a sheet of its own in print
_HEAT_ROWS, _HEAT_COLUMNS = 60, 12  # levels up to which two attributes are shown as a table of cells
_MATRIX = 300  # groups up to which results are laid beside each other group by group
_LETTERS = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
_RIGHT_TO_LEFT = re.compile(f"[{_LETTERS}]+(?:[\\s\\d'’\\\"״׳.&/–-]+[{_LETTERS}]+)*")


class Part(NamedTuple):
    """One result on the page.

    Attributes:
        name: What it is called.
        levels: Its summaries at the levels of the slider, from the strictest.
        now: Which of them is the result itself.
        skipped: How many levels are not shown.
        self_check: How often a difference is reported in its rows where nothing differs, if that was asked.
        certificate: Whether all groups are within a gap, if that was asked.
        confirmed: What became of its clusters on fresh data, if there were some.
        adverse: For each effect, on which side people are worse off, if that was said.
    """

    name: str
    levels: Sequence[Clustering]
    now: int
    skipped: int
    self_check: str = ""
    certificate: Certificate | None = None
    confirmed: Sequence[str] = ()
    adverse: AdverseSides = ()


def write_page(results: Sequence[Clustering], names: Sequence[str], path: str | PathLike[str], **options: Any) -> None:
    """Write the page of some results; for the options see `page_text`."""
    target = file_writer.target("report", path, (".html", ".htm"))
    file_writer.write("report", target, page_text(results, names, **options))


def page_text(
    results: Sequence[Clustering],
    names: Sequence[str],
    *,
    title: str | None = None,
    note: str | None = None,
    command: str | None = None,
    left: int = 0,
    rejected: int | None = None,
    self_checks: Sequence[SelfCheck] = (),
    certificates: Sequence[Certificate | None] = (),
    confirmations: Sequence[Confirmation] = (),
    adverse: Adverse | Mapping[str, Adverse] | None = None,
) -> str:
    """The page of some results; `left` others are not on it, `rejected` of all of them have clusters."""
    named = [
        f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name for i, name in enumerate(names)
    ]
    padding = [None] * len(results)
    rows = zip(
        results[:TABS],
        named,
        [*self_checks, *padding],
        [*certificates, *padding],
        [*confirmations, *padding],
        sides_of(adverse, results[:TABS], names),
        strict=False,
    )
    shown = [_page_part(*row) for row in rows]
    with progress("drawing the page", len(shown)) as advance:
        parts = []
        for i, part in enumerate(shown):
            parts.append(_part(part, f"r{i}", note, command))
            advance(1)
    script = _file("page.js")
    subject = results[0].headline if len(results) == 1 else f"{len(results) + left:,} results"
    return rendered(
        "page.html",
        title=escape(formats.printable(title or subject)),
        head=title or "",
        parts=parts,
        overview=_overview(results, named, shown, left, rejected) if len(results) > 1 else None,
        warnings=list(dict.fromkeys(note.text for result in results for note in ratio_notes(result))),
        note=note or "",
        kind="several" if len(results) > 1 else "",
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _page_part(
    result: Clustering,
    name: str,
    self_check: SelfCheck | None,
    certificate: Certificate | None,
    confirmation: Confirmation | None,
    adverse: AdverseSides,
) -> Part:
    """What the page needs of a result: the result at every level its slider stops at."""
    levels, now, skipped = result.slider_levels()
    checked = "" if self_check is None else self_check.headline
    confirmed: tuple[str, ...] = ()
    if confirmation is not None:
        pairs = (note.text for note in confirmation.notes if note.code == "pair")
        confirmed = (confirmation.headline, *pairs)
    return Part(name, levels, now, skipped, checked, certificate, confirmed, adverse)


def write_report(result: Result, path: str | PathLike[str], **options: Any) -> None:
    """Write the page of a result: its own, where its module of words has one, else its text with its tables."""
    checks.need_report("report()")
    for name in ("title", "command"):
        checks.text(name, options[name])
    target = file_writer.target("report", path, (".html", ".htm"))
    make = getattr(import_module(f"faultlines.render.{result.wording}"), "page", _text_page)
    file_writer.write("report", target, make(result, **options))


def _text_page(result: Result, *, title: str | None, command: str | None) -> str:
    parts = document(result, complete=True, spelling="omit")
    return rendered(
        "result.html",
        title=title or result.headline,
        head=title or "",
        opening=parts.opening,
        tables=parts.tables,
        closing=parts.closing,
        next=next_step(result, command),
        command=command or "",
    )


def rendered(template: str, **values: Any) -> str:
    """A page of its parts, with the one style sheet of all pages; whatever is put into it is escaped."""
    palette = "".join(f"--c{i + 1}:{colour};" for i, colour in enumerate(PALETTE))
    style = Markup(_file("page.css").replace("/* palette */", palette))
    shared = {"style": style, "version": version("faultlines"), "script_hash": "", "kind": ""}
    return _environment().get_template(template).render(shared | values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_file),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["bdi"] = _apart
    environment.filters["name_class"] = _name_class
    environment.filters["share"] = formats.share
    return environment


def next_step(result: Result, command: str | None) -> list[str]:
    """What to do next, as the reader would type it: on the command line where a command made the page.

    Nothing where the step is to write a page: that is before the reader.
    """
    step = next((note for note in result.notes if note.code == NEXT), None)
    then: NextCommand | None = None if step is None else step.fields["command"]
    if command and then is not None and not then.name and set(then.changes) == {"report"}:
        return []
    return next_lines(step, "command" if command else "python")


def _apart(name: str) -> str:
    """The name of a group; kept apart from what stands beside it, if it runs from right to left."""
    words = formats.printable(name)
    return words if not _RIGHT_TO_LEFT.search(words) else Markup("<bdi>{}</bdi>").format(words)


def _name_class(name: object) -> str:
    """How the cell of a name is laid out: a short name stays on one line, a long one has room enough for its words."""
    return "name short" if len(str(name)) <= _SHORT_NAME else "name"


def _shown(value: object) -> object:
    """Whatever is put into the page: what no reader can see made visible, and names from right to left kept apart."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    words = formats.printable(value)
    if words.isascii() or not _RIGHT_TO_LEFT.search(words):
        return words
    pieces = _RIGHT_TO_LEFT.split(words)
    names = [Markup("<bdi>{}</bdi>").format(name) for name in _RIGHT_TO_LEFT.findall(words)]
    return Markup("").join(part for pair in zip(pieces, [*names, ""], strict=True) for part in pair)


def _file(name: str) -> str:
    return files("faultlines.render").joinpath("templates", name).read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------------- one result


def _part(part: Part, key: str, note: str | None, command: str | None) -> dict[str, Any]:
    """Everything the page says about one result."""
    c, several = part.levels[part.now], any(level.rejected for level in part.levels)
    frame = Frame.of(c, part.adverse)
    drawn = {"groups": pictures(c, "groups", frame), "tree": pictures(c, "tree", frame)}
    all_listed = len(c.groups) <= _LISTED
    order = listed(frame.order, all_listed=all_listed)
    tables = [level_table(level, part.adverse, all_listed=all_listed) for level in part.levels]
    return {
        "key": key,
        "name": part.name,
        "warnings": [note.text for note in ratio_notes(c)],
        "decision": decide(c, part.adverse),
        "alpha": alpha_text(c.alpha),
        "certificate": certificate_data(part.certificate),
        "confirmed": part.confirmed,
        # A certificate or new data on the page are a step that was taken.
        "next": [] if part.certificate is not None or part.confirmed else next_step(c, command),
        "pictures": [
            {
                "kind": kind,
                "caption": caption(c, kind, several=several),  # type: ignore[arg-type]
                "svg": Markup(svg(picture)),
                "is_high": picture.height > _HIGH,
            }
            for kind, pictured in drawn.items()
            for picture in pictured
        ],
        "along": _along_attributes(c),
        "on_phone": _phone_plots(c, order),
        "merges": last_merges(c),
        "merges_about": f"The last merges: {c.judged.height_name}, and the groups on either side.",
        "columns": tables[part.now]["header"],
        "overall": tables[part.now]["overall"],
        "about_effects": about_effects(c, part.adverse),
        "attributes": " · ".join(c.groups.attributes),
        "members": members_heading(c),
        "clusters": _clusters(c, tables[part.now]),
        "levels": [
            {"alpha": alpha_text(level.alpha), "n": len(level.clusters), "is_this": i == part.now}
            for i, level in enumerate(part.levels)
        ],
        "skipped": part.skipped,
        "groups": group_table(c, order, all_listed=all_listed, several=several),
        "explained": c.explained(),
        "explained_p": [supported_pvalue(c, math.log(row.pvalue)) for row in c.explained()],
        "explained_words": [note.text for note in attribute_notes(c)],
        "averages": [note.text for note in average_notes(c)],
        "excluded": [_describe_excluded(c, group) for group in c.excluded[:_LISTED]],
        "left_out": [
            (row.attribute, row.value, formats.count(row.n), formats.share(row.share, 1))
            for row in c.excluded_shares[:_MEMBERS]
        ],
        "n_excluded": len(c.excluded),
        "dropped": [(DropCode(code).text, count) for code, count in c.dropped.items()],
        "missing": [note.text for note in c.notes if note.code == "missing values"],
        "facts": _facts(c, command, part.self_check),
        "reading": reading(c, note),
        "data": Markup(script_json(live(part.levels, part.now, tables, frame, drawn, order, all_listed=all_listed))),
    }


def _along_attributes(c: Clustering) -> dict[str, Any] | None:
    """The levels of the attributes that are enough: their picture, a table of two attributes crossed, and filters."""
    result = c.by_attributes
    names = result.groups.attributes
    if len(c.groups.attributes) < 2 or not c.rejected or result.groups.estimates is None:
        return None
    columns = result.population.columns
    places = [c.groups.attributes.index(name) for name in names]
    terms = _term_plots(c)
    plot = None if terms else _level_plot(c, places)
    drawn = pictures(result, "groups") if plot is None and result is not c and not terms else ()  # of several effects
    heat = _heat_map(result, places)
    levels = between_levels(c)
    return {
        "names": list(names),
        "interval": f"{formats.level(c.alpha)} interval",
        "terms": terms,
        "plot": plot,
        "svg": Markup(svg(drawn[0])) if len(drawn) == 1 else "",
        "on_phone": _phone_plots(result) if len(drawn) == 1 else [],
        "caption": f"{levels[:1].upper()}{levels[1:]}: {caption(result, 'groups')}",
        "heat": heat,
        "levels": []
        if plot or heat or terms
        else [
            {"name": name, "filters": [_filter([(place, value)]) for value in column.values]}
            for name, place, column in zip(names, places, columns, strict=True)
            if len(column.values) <= _HEAT_ROWS
        ],
    }


def _level_plot(c: Clustering, places: Sequence[int]) -> dict[str, Any] | None:
    """A row for every level of the attributes that are enough; none where these are all attributes, drawn below."""
    result = c.by_attributes
    if result is c or len(result.number_formats) != 1:
        return None
    plot = plot_rows(level_values(c, {}), c.overall.effects[0].estimate, c.number_formats[0])
    return None if plot is None else _filtered(plot, places) | {"counted": c.counted}


def _term_plots(c: Clustering) -> list[dict[str, Any]]:
    """A row for every level of each term whose effects add up, all terms on one scale."""
    values = [level_values(term, {}) for term in c.additive]
    all_values, plots = [value for levels in values for value in levels], []
    for term, levels in zip(c.additive, values, strict=True):
        plot = plot_rows(levels, c.overall.effects[0].estimate, term_number(c, term), others=all_values)
        if plot is not None:
            names = term.groups.attributes
            filtered = _filtered(plot, [c.groups.attributes.index(name) for name in names])
            plots.append(filtered | {"counted": c.counted, "name": " × ".join(names)})
    return plots


def _filtered(plot: dict[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """A plot of levels with what a click on each of them shows."""
    for row in plot["rows"]:
        label = row.pop("label")
        parts = label if len(places) > 1 else (label,)
        row["filter"] = _filter(list(zip(places, parts, strict=True)))
    return plot


def _phone_plots(c: Clustering, order: IntArray | None = None) -> list[dict[str, Any]]:
    """The picture of groups as rows of a table, one table per effect: on a telephone these are whole and legible.

    Args:
        c: The result.
        order: The groups that are listed on the page; rows of these follow the slider.
    """
    estimates = c.groups.estimates
    if estimates is None:
        return []
    places = {} if order is None else {group: place for place, group in enumerate(order.tolist())}
    plots = []
    for part, number in enumerate(c.number_formats):
        values = group_values(c, estimates, part)
        plot = plot_rows(values, c.overall.effects[part].estimate, number, len(c.groups))
        for row in plot["rows"] if plot else ():
            row["place"] = places.get(row.pop("label"))
        about = {"title": estimates.parts[part] if estimates.parts else "", "interval": interval_name(c)}
        plots += [plot | about] if plot else []
    return plots


def _heat_map(result: Clustering, places: Sequence[int]) -> dict[str, Any] | None:
    """Two attributes as rows and columns, the longer one down the page."""
    columns = result.population.columns
    if len(columns) != 2 or result.groups.estimates is None or len(result.number_formats) != 1:
        return None
    down, across = (0, 1) if len(columns[0].values) >= len(columns[1].values) else (1, 0)
    if len(columns[across].values) > _HEAT_COLUMNS or len(columns[down].values) > _HEAT_ROWS:
        return None
    number, estimates = result.number_formats[0], result.groups.estimates.shown[:, 0].tolist()
    pairs = zip(columns[down].codes.tolist(), columns[across].codes.tolist(), strict=True)
    cells = {
        pair: {"cluster": int(cluster), "text": number(value)}
        for pair, cluster, value in zip(pairs, result.labels.tolist(), estimates, strict=True)
    }
    return {
        "corner": f"{result.groups.attributes[down]} \\ {result.groups.attributes[across]}",
        "columns": [_filter([(places[across], value)]) for value in columns[across].values],
        "rows": [
            {
                "filter": _filter([(places[down], value)]),
                "cells": [cells.get((i, j)) for j in range(len(columns[across].values))],
            }
            for i, value in enumerate(columns[down].values)
        ],
    }


def _filter(levels: Sequence[tuple[int, object]]) -> dict[str, str]:
    """Levels that a click shows the groups of: their names, and for the script the columns they stand in."""
    names = [formats.printable(str(value)) for _, value in levels]
    wanted = [[place, name] for (place, _), name in zip(levels, names, strict=True)]
    return {"name": ", ".join(names), "wanted": json.dumps(wanted, ensure_ascii=False)}


def certificate_data(certificate: Certificate | None) -> dict[str, Any] | None:
    """A certificate as a sentence and a table.

    Args:
        certificate: The certificate, if there is one.
    """
    if certificate is None:
        return None
    header, rows, right = group_rows(certificate)
    return {
        "sentence": certificate.headline,
        "header": [{"name": name, "is_number": i in right, "key": ""} for i, name in enumerate(header)],
        "rows": rows,
        "notes": [note.text for note in certificate.notes if note.code in _CERTIFICATE_NOTES],
    }


def _clusters(c: Clustering, table: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table of clusters, each with what is told below it."""
    below = zip(table["rows"], table["rules"], table["harm_statuses"], map(_members, c.clusters), strict=True)
    return [
        {"cells": cells, "rule": rule, "standing": standing, "members": members, "more": more}
        for cells, rule, standing, (members, more) in below
    ]


def _describe_excluded(c: Clustering, group: Excluded) -> tuple[str, str, str]:
    """An excluded group: its name, why, and what is known of it."""
    details = ""
    if group.events is not None and group.n is not None:
        details = f"{formats.count(group.events)} of {formats.count(group.n)}"
    elif group.n is not None:
        details = f"n = {formats.count(group.n)}"
    if (
        group.estimate is not None
        and group.lower is not None
        and group.upper is not None
        and len(c.number_formats) == 1
    ):
        number = c.number_format([max((group.upper - group.lower) / 4, 1e-300)], [group.lower, group.upper], 0)
        details += f": {number(group.estimate)} ({number.interval(group.lower, group.upper)})"
    return level_name(group.label, c.groups.attributes), str(group.reason), details


def alpha_text(alpha: float) -> str:
    """A level as it stands on the page."""
    return f"{alpha:.3g}"


def level_table(c: Clustering, adverse: AdverseSides, *, all_listed: bool) -> dict[str, Any]:
    """The table of clusters at one level; members as text only where the groups are not all on the page."""
    several = len(c.effect_names) > 1
    effects = [f"{name}: effect" if several else "effect" for name in c.effect_names]
    header = [
        "cluster",
        *(column for name in effects for column in (name, interval_name(c))),
        *observed_headers(c),
        "groups",
        "share of groups",
        *(["n", "share of n"] if c.groups.n is not None else []),
    ]
    return {
        "header": header,
        "rows": [[str(i + 1), *_cells(c, cluster)] for i, cluster in enumerate(c.clusters)],
        "overall": ["all", *_cells(c, c.overall)],
        "rules": [rule_or_members(c, i, _NAMED) for i in range(len(c.clusters))],
        "harm_statuses": harm_statuses(c, adverse),
        "members": []
        if all_listed
        else [formats.members(cluster.members, naming(c.groups.attributes), 80) for cluster in c.clusters],
    }


def _cells(c: Clustering, cluster: Cluster) -> list[str]:
    cells = [*effect_cells(c, cluster), *observed_cells(c, cluster)]
    cells += [formats.count(len(cluster.members)), f"{len(cluster.members) / len(c.groups):.1%}"]
    if cluster.n is not None and c.groups.n is not None:
        cells += [formats.count(cluster.n), f"{cluster.n / (c.overall.n or 1):.1%}"]
    return cells


def _members(cluster: Cluster) -> tuple[str, int]:
    """The members' names and how many are not named."""
    shown = cluster.members if len(cluster.members) <= _LISTED else cluster.members[:_MEMBERS]
    return ", ".join(formats.printable(name_of(label)) for label in shown), len(cluster.members) - len(shown)


# ----------------------------------------------------------------------------------------------- words of the page


def _facts(c: Clustering, command: str | None, self_check: str = "") -> list[tuple[str, str]]:
    """How it was computed."""
    facts, tolerance = c.judged.facts, c.groups.tolerance
    entries = [("Measured", c.groups.metric), ("Groups by", " × ".join(c.groups.attributes))]
    entries += [(name.replace("_", " ").capitalize(), column) for name, column in measured_columns(c).items()]
    if c.groups.estimates is not None and c.groups.estimates.scale.name != "identity":
        entries.append(("Compared on the scale", c.groups.estimates.scale.name))
    entries += [("Significance level α", f"{c.alpha:g}"), ("Error control", c.guarantee.explanation)]
    entries += [
        ("Scan for outlier groups", "yes" if value else "no")
        if name == "scan"
        else (str(name).capitalize(), f"{value:,}" if isinstance(value, int) else str(value))
        for name, value in facts.items()
    ]
    entries += [("Note", words) for words in c.guarantee.notes(c.groups, c.judged.facts)]
    entries += [("Border groups", "moved to the nearest cluster" if c.refine else "left where the merges put them")]
    entries += [("Tolerance", f"{tolerance:g}")] if tolerance else []
    entries += [("Self-check", self_check)] if self_check else []
    entries += [("faultlines", version("faultlines")), ("Fingerprint of data and settings", c.fingerprint)]
    return [*entries, ("Reproduce with", command or f"{_call(c)}.report(…)")]


def _call(c: Clustering) -> str:
    """The call that gives the result again."""
    seed = f", seed={c.judged.facts['seed']}" if "seed" in c.judged.facts else ""
    allowed = f", tolerance={c.groups.tolerance:g}" if c.groups.tolerance else ""
    rest = f"guarantee=fl.{c.guarantee!r}{allowed}, refine={c.refine}{seed})"
    if c.adjustment is None:
        return f"fl.cluster(…, alpha={c.alpha!r}, {rest}"
    if c.adjustment.correction == "holm":
        return f"fl.holm([fl.cluster(…, {rest}, …], alpha={c.alpha!r})[…]"
    return f"fl.cluster_many(…, alpha={c.alpha!r}, correction={c.adjustment.correction!r}, {rest}[…]"


# --------------------------------------------------------------------------------------------------- several results


def _overview(
    results: Sequence[Clustering], names: Sequence[str], parts: Sequence[Part], left: int, rejected: int | None
) -> dict[str, Any]:
    """All results in one table, and group by group where they are few and the same."""
    adverse_sides = [*(part.adverse for part in parts), *[()] * len(results)]
    table = [
        {
            "key": f"r{i}" if i < len(parts) else "",
            "name": names[i],
            "p": formats.pvalue(c.log_pvalue),
            "adjusted": formats.pvalue(c.claims.log_pvalue),
            "alpha": alpha_text(c.alpha),
            "clusters": len(c.clusters),
            "groups": formats.count(len(c.groups)),
            "contrast": contrast(c, adverse) or ("Clusters differ." if c.rejected else "No difference found."),
        }
        for i, (c, adverse) in enumerate(zip(results, adverse_sides, strict=False))
    ]
    shown = results[: len(parts)]
    same = {c.groups.attributes for c in shown}
    labels = list(dict.fromkeys(label for c in shown for label in c.group_labels))
    return {
        "summary": table,
        "total": formats.count(len(results) + left),
        "rejected": formats.count(sum(c.rejected for c in results) if rejected is None else rejected),
        "only": len(results) - len(parts),
        "left": left,
        "is_adjusted": any(c.adjustment is not None for c in results),
        "attributes": " · ".join(*same) if len(same) == 1 else "group",
        "names": names[: len(parts)],
        "rows": list(_matrix(shown, labels)) if len(labels) <= _MATRIX else [],
        "groups": formats.count(len(labels)),
    }


def _matrix(shown: Sequence[Clustering], labels: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """For every group, its cluster and estimate in each result."""
    places = [{label: i for i, label in enumerate(c.group_labels)} for c in shown]
    for label in labels:
        cells = []
        for c, place in zip(shown, places, strict=True):
            i = place.get(label)
            if i is None:
                cells.append({"cluster": 0, "of": 1, "text": "–"})
                continue
            values = [] if c.groups.estimates is None else c.groups.estimates.shown[i].tolist()
            text = ", ".join(number(value) for number, value in zip(c.number_formats, values, strict=True))
            cells.append({"cluster": int(c.labels[i]), "of": len(c.clusters), "text": text})
        yield {"name": formats.printable(name_of(label)), "cells": cells}
