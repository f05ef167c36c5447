"""Every sentence about an audit: what was found, whom it affects, and the table of every metric in every group."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultlines import formats
from faultlines.estimates.labels import name_of, named_by
from faultlines.render import clustering
from faultlines.render.text import Document, TextTable
from faultlines.results.audit import stratum_text
from faultlines.results.multiplicity import CORRECTIONS
from faultlines.results.protocol import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faultlines.results.audit import Audit, AuditedComparison, AuditedGroup
    from faultlines.results.clustering import Clustering

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
    return clustering.contrast(result) or clustering.headline(result)


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
    found = [_finding(comparison) for comparison in result.comparisons if comparison.result.rejected]
    largest: dict[str, float] = {}
    for finding in found:
        largest[finding.affected] = max(finding.size, largest.get(finding.affected, 0.0))
    return sorted(found, key=lambda finding: (-largest[finding.affected], finding.affected, -finding.size))


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


def notes(result: Audit) -> tuple[Note, ...]:
    """What was found, what was done to the data, and what was not compared."""
    return (*_finding_notes(result), *_cut_notes(result), *_exclusion_notes(result), *_skipped_notes(result))


def _finding_notes(result: Audit) -> Iterator[Note]:
    for finding in findings(result):
        yield Note("difference", finding.text, fields={"comparison": finding.comparison.name})


def _cut_notes(result: Audit) -> Iterator[Note]:
    for cut in result.cut:
        count = f"{cut.values:,} values" if cut.values < 1_000 else "1,000 values or more"
        name = formats.printable(cut.feature)
        text = (
            f"{name} has {count} and was cut into {cut.ranges} ranges of about equal size. Cut it by fl.bins for other "
            "ranges; give it as text to compare every value."
        )
        yield Note("cut feature", text, fields={"feature": cut.feature, "values": cut.values, "ranges": cut.ranges})


def _exclusion_notes(result: Audit) -> Iterator[Note]:
    """Each sentence about dropped rows and excluded groups once, with the comparisons it is about."""
    about: dict[tuple[str, str], list[str]] = {}
    for comparison in result.comparisons:
        for note in clustering.exclusion_notes(comparison.result):
            about.setdefault((note.code, note.text), []).append(comparison.name)
    for (code, text), names in about.items():
        where = names[0] if len(names) == 1 else formats.amount(len(names), result.noun)
        about_all = len(names) == len(result)
        words = formats.printable(text if about_all else f"{where}: {text}")
        yield Note(code, words, fields={"comparisons": tuple(names)})


def _skipped_notes(result: Audit) -> Iterator[Note]:
    for name, reason in result.skipped.items():
        text = formats.printable(f"Not compared: {name} ({reason}).")
        yield Note("not compared", text, "warning", {"comparison": name})


# ------------------------------------------------------------------------------------------------------------ as text


def document(result: Audit, *, complete: bool = False) -> Document:
    """The parts of an audit as text; `complete` is with all comparisons and more groups."""
    found = [note.text for note in result.notes if note.code == "difference"]
    others = [note.text for note in result.notes if note.code != "difference"]
    opening = [headline(result), *_shortened(found, complete)]
    tables = [_comparison_table(result, complete), *group_tables(result, complete=complete)]
    return Document(opening, [table for table in tables if table.rows], _shortened(others, complete))


def _shortened(texts: Sequence[str], complete: bool) -> list[str]:
    if complete or len(texts) <= _COMPARISONS:
        return list(texts)
    return [*texts[:_COMPARISONS], f"{len(texts) - _COMPARISONS:,} more: .notes has all."]


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
    shares = {row.attribute: row.share for row in c.explained()}
    ranked = sorted(c.attributes, key=lambda name: -shares.get(name, 0.0))
    return ", ".join(f"{name} {formats.share(shares.get(name, 0.0))}" for name in ranked)


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
        unit = "points" if groups[0].percent else ""
        tables.append(GroupTable(formats.printable(title), overall, levels, cells, unit))
    return tables


def _number_formats(groups: Sequence[AuditedGroup]) -> tuple[Callable[[float], str], Callable[[float], str]]:
    """How values and differences of a metric are written: with the digits of a typical standard error."""
    errors = [group.se for group in groups if group.se]
    typical = float(np.median(errors)) if errors else 1.0
    ends = [end for group in groups for end in (group.lower, group.upper) if end is not None] or [0.0]
    percent = groups[0].percent
    number = formats.decimals([typical], ends, min(ends) < 0, percent)
    differences = [group.difference for group in groups if group.difference is not None] or [0.0]
    if percent:
        plain = formats.decimals([100 * typical], [100 * d for d in differences], True, False)
        return number, lambda difference: plain(100 * difference)
    return number, formats.decimals([typical], differences, True, False)


def _group_row(group: AuditedGroup, number: Callable[[float], str], points: Callable[[float], str]) -> GroupRow:
    name = f"{group.by[0]} {name_of(group.label)}" if len(group.by) == 1 else named_by(group.label, group.by)
    known = group.lower is not None and group.upper is not None
    return GroupRow(
        group,
        formats.printable(name),
        "–" if group.n is None else formats.count(group.n),
        "–" if group.estimate is None else number(group.estimate),
        f"{number(group.lower)} … {number(group.upper)}" if known else "–",  # type: ignore[arg-type]
        "excluded" if group.excluded is not None else "–" if group.difference is None else points(group.difference),
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
        rows += [[f'… +{left:,} in .to_dicts("groups")', "", "", "", ""]] if left > 0 else []
        tables.append(TextTable(header, rows, {1, 2, 3, 4}))
    if (left := len(described) - len(tables)) > 0:
        tables.append(TextTable([f'… {left:,} more metrics or strata in .to_dicts("groups")'], [], set()))
    return tables
