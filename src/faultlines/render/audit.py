"""Every sentence about an audit: what was found, in which groups, and the table of all metrics and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from faultlines import formats
from faultlines.errors import InputError
from faultlines.estimates.labels import name_of, named_by
from faultlines.metrics.table import Adverse
from faultlines.progress import progress
from faultlines.render import clustering
from faultlines.render.clustering import AdverseSides
from faultlines.render.data import adverse_sides
from faultlines.render.pictures import is_outer, level_values, plot_rows
from faultlines.render.text import Document, Hidden, NextCommand, TextTable, next_note
from faultlines.results.audit import Audit, AuditedComparison, AuditedGroup, CutFeature, stratum_text
from faultlines.results.certificate import Certificate
from faultlines.results.clustering import Clustering
from faultlines.results.effects import COMBINATIONS
from faultlines.results.multiplicity import CORRECTIONS
from faultlines.results.protocol import NEXT, Note

_LEAST_SHARE = 0.005  # of the variation, below which an attribute is not said to make a difference
_COMPARISONS = 40  # comparisons, and notes of a kind, that are printed
_TABLES, _ALL_TABLES = 6, 60  # metrics (and strata) with a table of groups: on a terminal, in Markdown
_LEVELS, _CELLS = 16, 4  # rows of such a table: levels of single features, and combinations farthest from the overall
_ALL_LEVELS, _ALL_CELLS = 200, 40  # the same in Markdown
_OVERALL = "overall"


# ------------------------------------------------------------------------------------------------------- the headline


def headline(result: Audit) -> str:
    """In how many metrics groups differ."""
    counts = f"{len(result.rejected):,} of {formats.amount(len(result), result.noun)}"
    return f"Groups differ in {counts} ({CORRECTIONS[result.correction]}, α = {result.alpha:g})."


def contrast_text(result: Clustering) -> str:
    """Which clusters differ and by how much; the headline where nothing differs."""
    return clustering.contrast(result) or result.headline


def exclusion_text(result: Clustering) -> str:
    """Dropped rows and excluded groups."""
    return " ".join(note.text for note in clustering.exclusion_notes(result))


# ------------------------------------------------------------------------------------------------------- the findings


class Finding(NamedTuple):
    """One comparison in which groups differ.

    Attributes:
        comparison: The comparison.
        affected: The groups whose value is farthest from the overall, in words.
        size: How far that is: of rates and other numbers up to 1 the distance, else its ratio to the overall.
        text: Who differs and by how much.
    """

    comparison: AuditedComparison
    affected: str
    size: float
    text: str


def findings(result: Audit) -> list[Finding]:
    """What was found, by who is affected: the groups with the largest difference first, theirs by size."""
    reported = [_finding(comparison) for comparison in result.comparisons if comparison.result.rejected]
    largest: dict[str, float] = {}
    for finding in reported:
        largest[finding.affected] = max(finding.size, largest.get(finding.affected, 0.0))
    return sorted(reported, key=lambda finding: (-largest[finding.affected], finding.affected, -finding.size))


def _finding(comparison: AuditedComparison) -> Finding:
    c = comparison.result
    place, size = _farthest_cluster(c)
    where = f"{stratum_text(comparison.stratum)}: " if comparison.stratum else ""
    affected = where + clustering.describe_cluster(c, c.clusters[place]).text
    return Finding(comparison, affected, size, formats.printable(where + contrast_text(c)))


def _farthest_cluster(c: Clustering) -> tuple[int, float]:
    """The cluster whose effect is farthest from the overall, and how far that is."""
    farthest, size = 0, 0.0
    for i, cluster in enumerate(c.clusters):
        for effect, overall in zip(cluster.effects, c.overall.effects, strict=False):
            distance = abs(effect.estimate - overall.estimate)
            if max(abs(effect.estimate), abs(overall.estimate)) > 1:
                distance /= abs(overall.estimate) or 1.0
            if distance > size:
                farthest, size = i, distance
    return farthest, size


# -------------------------------------------------------------------------------------------------------------- notes


def notes(result: Audit) -> Iterator[Note]:
    """What was found, what was noticed in the rows, what was done to them, and what was not compared."""
    for finding in findings(result):
        yield Note("difference", finding.text, fields={"comparison": finding.comparison.name})
    yield from _contrast_notes(result)
    yield from _row_notes(result, clustering.ratio_notes)
    yield from _row_notes(result, clustering.data_notes)
    yield from cut_notes(result.cut)
    yield from _row_notes(result, clustering.exclusion_notes)
    for name, reason in result.skipped.items():
        fields = {"comparison": name, "error": result.skipped_codes.get(name)}
        yield Note("not compared", f"Not compared: {name} ({reason}).", "warning", fields)


def next_step(result: Audit) -> Note | None:
    """Confirm the largest finding on new data; without any, certify a gap."""
    reported = findings(result)
    if reported:
        call = f"fl.confirm(audit[{reported[0].comparison.name!r}], new_rows)"
        return next_note("see whether new data confirm it with", call, NextCommand(arguments=("NEW.csv",)))
    if not result.comparisons:
        return None
    call = f"fl.certify(audit[{result.names[0]!r}], gap=GAP)"
    command = NextCommand(changes={"certify": "GAP"})
    return next_note("choose a gap that would be acceptable and certify it with", call, command)


def _contrast_notes(result: Audit) -> Iterator[Note]:
    """Why sentences and tables show different effects, wherever they do."""
    reported = [comparison.result for comparison in result.comparisons if comparison.result.rejected]
    if any(True for c in reported for _ in clustering.contrast_notes(c)):
        text = "Effects in the sentences above are corrected for the choice of groups; those in the tables are not."
        yield Note("contrast", text)


def cut_notes(several: Iterable[CutFeature]) -> Iterator[Note]:
    """Numeric features that were cut into ranges."""
    for cut in several:
        count = f"{cut.values:,} values" if cut.values < 1_000 else "1,000 values or more"
        name = formats.printable(cut.feature)
        text = (
            f"{name} has {count} and was cut into {cut.ranges} ranges of about equal size. For other ranges use "
            f"fl.bins (--by {name}:10 on the command line); to compare every value, give it as text."
        )
        yield Note("cut feature", text, fields={"feature": cut.feature, "values": cut.values, "ranges": cut.ranges})


def _row_notes(result: Audit, notes_of: Callable[[Clustering], Iterable[Note]]) -> Iterator[Note]:
    """Each note about the rows once, with the comparisons it is about."""
    about: dict[tuple[str, str], list[str]] = {}
    originals: dict[tuple[str, str], Note] = {}
    for comparison in result.comparisons:
        for note in notes_of(comparison.result):
            about.setdefault((note.code, note.text), []).append(comparison.name)
            originals.setdefault((note.code, note.text), note)
    for (code, text), names in about.items():
        where = names[0] if len(names) == 1 else formats.amount(len(names), result.noun)
        about_all = len(names) == len(result)
        words = formats.printable(text if about_all else f"{where}: {text}")
        original = originals[code, text]
        yield Note(code, words, original.severity, {**original.fields, "comparisons": tuple(names)})


# ------------------------------------------------------------------------------------------------------------ as text


def document(result: Audit, *, complete: bool = False) -> Document:
    """The parts of an audit as text; `complete` is with all comparisons and more groups."""
    all_notes = list(notes(result))
    differences = [note.text for note in all_notes if note.code == "difference"]
    others = [note.text for note in all_notes if note.code != "difference"]
    shown = len(all_notes) if complete else _COMPARISONS
    tables = [_comparison_table(result, complete), *group_tables(result, complete=complete)]
    hidden: dict[Hidden, int] = {
        "row": _hidden_rows(result, complete=complete),
        "note": len(differences[shown:]) + len(others[shown:]),
    }
    return Document(
        [result.headline, *differences[:shown]],
        [table for table in tables if table.rows],
        others[:shown],
        {what: count for what, count in hidden.items() if count},
    )


def _comparison_table(result: Audit, complete: bool) -> TextTable:
    """All comparisons: which attributes the differences run along, and how sure that is."""
    shown = result.comparisons if complete else result.comparisons[:_COMPARISONS]
    header = [result.noun, "adjusted p", "clusters", "groups", "differs along"]
    rows = []
    for comparison in shown:
        c = comparison.result
        cells = [formats.pvalue(c.log_pvalue_adj), str(c.n_clusters), formats.count(len(c.groups)), along_text(c)]
        rows.append([formats.printable(comparison.name), *map(formats.printable, cells)])
    rows += [[f"… +{len(result) - len(shown):,}", "", "", "", ""]] if len(shown) < len(result) else []
    return TextTable(header, rows, {1, 2, 3})


def along_text(c: Clustering) -> str:
    """The features that differences run along; of several, with the share of the variation that each accounts for."""
    if len(c.attributes) < 2 or len(c.effect_names) != 1:
        return " × ".join(c.attributes)
    shares = {row.attribute: row.share for row in c.explained() if row.attribute in (*c.attributes, COMBINATIONS)}
    ranked = sorted(shares, key=lambda name: -shares[name])
    named = [("combinations" if name == COMBINATIONS else name, shares[name]) for name in ranked]
    return ", ".join(f"{name} {formats.share(share)}" for name, share in named if share >= _LEAST_SHARE)


class GroupRow(NamedTuple):
    """One group of a table of groups, as text: its name, size, value, interval and difference from the overall."""

    group: AuditedGroup
    name: str
    n: str
    value: str
    interval: str
    difference: str


class GroupTable(NamedTuple):
    """One metric in every group: levels of single features first, then combinations of levels.

    Attributes:
        title: The metric, with the effect and the stratum where there are several.
        overall: The value in all rows, as text.
        levels: The levels of single features.
        cells: The combinations.
        unit: What differences are in: points, or nothing.
    """

    title: str
    overall: str
    levels: tuple[GroupRow, ...]
    cells: tuple[GroupRow, ...]
    unit: str


def describe_groups(result: Audit) -> list[GroupTable]:
    """Every metric in every group, as text."""
    several: dict[tuple[str, str | None, str], list[AuditedGroup]] = {}
    for group in result.groups:
        several.setdefault((group.metric, group.effect, stratum_text(group.stratum)), []).append(group)
    tables = []
    for (metric, effect, stratum), groups in several.items():
        title = metric + (f": {effect}" if effect else "") + (f" ({stratum})" if stratum else "")
        number, points = _number_formats(groups)
        rows = [_group_row(group, number, points) for group in groups]
        levels = tuple(row for row in rows if len(row.group.by) == 1)
        cells = tuple(row for row in rows if len(row.group.by) > 1)
        overall = "–" if groups[0].overall is None else number(groups[0].overall)
        unit = "points" if groups[0].unit else ""
        tables.append(GroupTable(formats.printable(title), overall, levels, cells, unit))
    return tables


def _number_formats(groups: Sequence[AuditedGroup]) -> tuple[formats.NumberFormat, formats.NumberFormat]:
    """How values and differences of a metric are written: with the digits of a typical standard error."""
    errors = [group.se for group in groups if group.se]
    typical = float(np.median(errors)) if errors else 1.0
    ends = [end for group in groups for end in (group.lower, group.upper) if end is not None] or [0.0]
    unit, signed = groups[0].unit, any(group.estimate is not None and group.estimate < 0 for group in groups)
    number = formats.decimals([typical], ends, signed, unit)
    differences = [group.difference for group in groups if group.difference is not None] or [0.0]
    return number, formats.decimals([typical], differences, True, unit)


def _group_row(group: AuditedGroup, number: formats.NumberFormat, points: formats.NumberFormat) -> GroupRow:
    name = f"{group.by[0]} {name_of(group.label)}" if len(group.by) == 1 else named_by(group.label, group.by)
    has_interval, difference = group.lower is not None and group.upper is not None, group.difference
    return GroupRow(
        group,
        formats.printable(name),
        "–" if group.n is None else formats.count(group.n),
        "–" if group.estimate is None else number(group.estimate),
        number.interval(group.lower, group.upper) if has_interval else "–",  # type: ignore[arg-type]
        "excluded" if group.excluded is not None else "–" if difference is None else points.bare(difference),
    )


def farthest_cells(rows: Sequence[GroupRow], most: int) -> list[GroupRow]:
    """The combinations farthest from the overall in standard errors, in the order of their groups."""

    def distance(row: GroupRow) -> float:
        group = row.group
        return abs(group.difference) / group.se if group.difference is not None and group.se else 0.0

    chosen = {id(row) for row in sorted(rows, key=distance, reverse=True)[:most]}
    return [row for row in rows if id(row) in chosen]


def group_tables(result: Audit, *, complete: bool = False) -> list[TextTable]:
    """One table per metric: the levels of every feature, and the combinations farthest from the overall."""
    most_levels, most_cells = (_ALL_LEVELS, _ALL_CELLS) if complete else (_LEVELS, _CELLS)
    described = describe_groups(result)
    tables = []
    for table in described[: _ALL_TABLES if complete else _TABLES]:
        difference = f"difference ({table.unit})" if table.unit else "difference"
        header = [table.title, "n", "value", f"{formats.level(result.alpha)} interval", difference]
        cells = farthest_cells(table.cells, most_cells)
        rows = [[_OVERALL, "", table.overall, "", ""]]
        rows += [[*row[1:]] for row in (*table.levels[:most_levels], *cells)]
        left = len(table.levels) + len(table.cells) - len(rows) + 1
        rows += [[f"… {left:,} more", "", "", "", ""]] if left > 0 else []
        tables.append(TextTable(header, rows, {1, 2, 3, 4}))
    if (left := len(described) - len(tables)) > 0:
        tables.append(TextTable([f"… {left:,} more metrics or strata"], [], set()))
    return tables


def _hidden_rows(result: Audit, *, complete: bool) -> int:
    """How many groups the tables of groups leave out."""
    most_levels, most_cells = (_ALL_LEVELS, _ALL_CELLS) if complete else (_LEVELS, _CELLS)
    hidden = 0
    for i, table in enumerate(describe_groups(result)):
        if i >= (_ALL_TABLES if complete else _TABLES):
            hidden += len(table.levels) + len(table.cells)
        else:
            hidden += len(table.levels[most_levels:]) + len(table.cells) - len(farthest_cells(table.cells, most_cells))
    return hidden


# ------------------------------------------------------------------------------------------------------------ the page
# A plot is a row of a table: a point and an interval placed by per cent, so that nothing is cut on a narrow screen and
# hundreds of findings take no time to draw.


_PRINTED_CLUSTERS = 4  # of the clusters of a finding, those that are printed: at the ends
_MATRIX_COLUMNS = 12  # metrics laid beside each other
_MEMBERS = 2_000  # groups of a cluster that are all named
_LISTED_CELLS = 2_000  # combinations of a metric that are listed
_READING = (
    "Groups differ in a metric where the adjusted p is below α: if no group differed in any metric, a finding would be "
    "reported in at most {alpha} of such audits.",
    "Each metric is one analysis over the features and their crossings. Clusters run along the fewest features that "
    "are enough; groups of one cluster could not be distinguished.",
    "Intervals of groups are statements about one group each; findings allow for having searched all of them.",
)
_READING_BH = "Of the findings, {alpha} are false on average (Benjamini and Hochberg)."
# Codes of notes that stand with their finding; all others are at the head of the page.
_WITH_FINDINGS = {"difference", "excluded groups", "excluded share", "excluded levels", NEXT}
_NOT_TO_CONCLUDE = (
    "That groups without a finding are equal: a difference may be too small to be detected. Certificates say "
    "what can be ruled out.",
    "That a feature is the cause. The feature says where the difference is, not why.",
    "That a difference is unfair, or its absence fair: that depends on what the model decides.",
)


def page(
    audit: Audit,
    *,
    title: str | None,
    command: str | None,
    adverse: Adverse | Mapping[str, Adverse] | None,
    certificates: Mapping[str, Certificate | None] | None,
) -> str:
    """The page of an audit; for the options see `Audit.report`."""
    from faultlines.render.page import next_step as step_lines
    from faultlines.render.page import rendered

    signed = _certificates(certificates, audit)
    reported = findings(audit)
    results = [finding.comparison.result for finding in reported]
    sides = adverse_sides(adverse, results, [finding.comparison.name for finding in reported])
    tables = describe_groups(audit)
    values = _values_of_groups(audit)
    first = _READING[0] if audit.correction == "holm" else _READING_BH
    with progress("drawing the page", len(reported)) as advance:
        sections = []
        for number, (finding, side) in enumerate(zip(reported, sides, strict=True)):
            sections.append(_section(finding, number, side, values))
            advance(1)
    return rendered(
        "audit.html",
        title=title or audit.headline,
        head=title or "",
        headline=audit.headline,
        next=[] if signed else step_lines(audit, command),
        certificates=signed,
        kind="audit",
        sections=sections,
        without=_without_finding(audit),
        matrix=_matrix(tables),
        tables=[_page_table(table) for table in tables],
        interval=f"{formats.level(audit.alpha)} interval",
        notes=[note.text for note in audit.notes if note.code not in _WITH_FINDINGS],
        facts=_facts(audit, command),
        reading=[words.format(alpha=f"{100 * audit.alpha:g}%") for words in (first, *_READING[1:])],
        dont=_NOT_TO_CONCLUDE,
    )


def _certificates(certificates: Any, audit: Audit) -> list[dict[str, Any]]:
    """Certificates by name as sentences and tables, or why there is none."""
    from faultlines.render.page import certificate_data

    remedy = "Give what audit.certify(…) returns."
    if certificates is not None and not isinstance(certificates, dict):
        raise InputError.wrong_type("certificates", "is no dict of certificates", remedy, certificates)
    parts = []
    for name, certificate in (certificates or {}).items():
        if not (certificate is None or isinstance(certificate, Certificate)):
            raise InputError.wrong_type("certificates", "holds something else than certificates", remedy, name)
        parts.append({"name": name, "reason": audit.skipped.get(name), **(certificate_data(certificate) or {})})
    return parts


# --------------------------------------------------------------------------------------------------------- one finding


def _values_of_groups(audit: Audit) -> dict[tuple[Any, ...], dict[Any, AuditedGroup]]:
    """The groups of every metric by features and stratum, by their labels."""
    values: dict[tuple[Any, ...], dict[Any, AuditedGroup]] = {}
    for group in audit.groups:
        if group.effect is None and group.estimate is not None:
            values.setdefault((group.metric, group.by, group.stratum), {})[group.label] = group
    return values


def _section(
    finding: Finding, number: int, adverse: AdverseSides, values: Mapping[tuple[Any, ...], Mapping[Any, AuditedGroup]]
) -> dict[str, Any]:
    """Everything the page says about one finding."""
    comparison = finding.comparison
    c = comparison.result
    adjusted = formats.p_is(c.log_pvalue_adj)
    standing = clustering.harm_statuses(c, adverse)
    number_format = c.number_formats[0] if len(c.number_formats) == 1 else None
    groups = level_values(c, values.get((comparison.metric, c.attributes, comparison.stratum), {}))
    stratum = stratum_text(comparison.stratum)
    in_all_rows = c.overall.effects[0].estimate if c.in_all_rows is None else c.in_all_rows[0]
    return {
        "key": f"f{number + 1}",
        "number": number + 1,
        "name": comparison.metric + (f" ({stratum})" if stratum else ""),
        "text": finding.text,
        "p": adjusted,
        "along": along_text(c),
        "counted": c.counted,
        "clusters": [
            {
                "cluster": cluster.number,
                "effect": clustering.effect_cells(c, cluster),
                "standing": standing[i],
                "groups": formats.count(len(cluster.members)),
                "n": "" if cluster.n is None else formats.count(cluster.n),
                "is_printed": is_outer(i, len(c.clusters), _PRINTED_CLUSTERS),
                "who": str(c.rules[i]) if c.has_rules and c.rules[i].fits else _members(c, i),
            }
            for i, cluster in enumerate(c.clusters)
        ],
        "between": max(len(c.clusters) - _PRINTED_CLUSTERS, 0),
        "header": clustering.effect_headers(c),
        "plot": None if number_format is None else plot_rows(groups, in_all_rows, number_format),
        "averages": [note.text for note in clustering.average_notes(c)],
        "excluded": _excluded(c),
    }


def _excluded(c: Clustering) -> list[str]:
    """Excluded groups by reason, by their full names."""
    reasons: dict[str, list[str]] = {}
    for group in c.excluded:
        reasons.setdefault(str(group.reason), []).append(formats.printable(named_by(group.label, c.groups.attributes)))
    texts = []
    for reason, names in reasons.items():
        more = f"; … +{len(names) - _MEMBERS:,}" if len(names) > _MEMBERS else ""
        texts.append(f"Excluded ({len(names):,}, {reason}): {'; '.join(names[:_MEMBERS])}{more}.")
    return texts


def _members(c: Clustering, place: int) -> str:
    """All groups of a cluster by their full names."""
    members = c.clusters[place].members
    names = [named_by(label, c.groups.attributes) for label in members[:_MEMBERS]]
    more = f"; … +{len(members) - len(names):,}" if len(members) > len(names) else ""
    return formats.printable("; ".join(names) + more)


# ------------------------------------------------------------------------------------------- metrics beside each other


def _without_finding(audit: Audit) -> list[dict[str, str]]:
    """The comparisons in which no difference was found."""
    return [
        {
            "name": comparison.name,
            "p": formats.pvalue(comparison.result.log_pvalue_adj),
            "groups": formats.count(len(comparison.result.groups)),
        }
        for comparison in audit.comparisons
        if not comparison.result.rejected
    ]


def _matrix(tables: Sequence[GroupTable]) -> dict[str, Any] | None:
    """Levels of features by metrics: the value and how far it is from the overall."""
    tables = tables[:_MATRIX_COLUMNS]
    names = list(dict.fromkeys(row.name for table in tables for row in table.levels))
    if not names:
        return None
    by_name = [{row.name: row for row in table.levels} for table in tables]
    return {
        "titles": [table.title for table in tables],
        "overall": [table.overall for table in tables],
        "rows": [{"name": name, "cells": [_matrix_cell(rows.get(name)) for rows in by_name]} for name in names],
    }


def _matrix_cell(row: GroupRow | None) -> dict[str, Any]:
    if row is None or row.group.excluded is not None:
        return {"value": "–", "difference": "", "far": ""}
    group, far = row.group, ""
    if group.overall is not None and group.lower is not None and group.upper is not None:
        far = "low" if group.upper < group.overall else "high" if group.lower > group.overall else ""
    return {"value": row.value, "difference": row.difference, "far": far}


def _page_table(table: GroupTable) -> dict[str, Any]:
    cells = table.cells if len(table.cells) <= _LISTED_CELLS else farthest_cells(table.cells, _LISTED_CELLS)
    return {
        "title": table.title,
        "overall": table.overall,
        "difference": f"difference ({table.unit})" if table.unit else "difference",
        "levels": [row[1:] for row in table.levels],
        "cells": [row[1:] for row in cells],
        "left": len(table.cells) - len(cells),
    }


def _facts(audit: Audit, command: str | None) -> list[tuple[str, str]]:
    """How it was computed."""
    first = audit.comparisons[0].result
    facts = [
        ("Metrics", ", ".join(dict.fromkeys(comparison.metric for comparison in audit.comparisons))),
        ("Features", ", ".join(audit.features)),
        ("Correction", f"{CORRECTIONS[audit.correction]} over {formats.amount(len(audit), audit.noun)}"),
        ("Significance level α", f"{audit.alpha:g}"),
        ("Error control", first.guarantee.explanation),
        ("faultlines", version("faultlines")),
    ]
    return [*facts, ("Reproduce with", command or "fl.audit(…).report(…)")]
