"""Every sentence about impact ratios."""

from __future__ import annotations

import math
from collections.abc import Iterator

from faultlines import formats
from faultlines.estimates.labels import level_name, naming
from faultlines.render.audit import cut_notes
from faultlines.render.certificate import rounded_like
from faultlines.render.text import Document, NextCommand, TextTable, next_note
from faultlines.results.impact import ImpactCategory, ImpactRatios, ImpactTable
from faultlines.results.protocol import Note

_LISTED = 56  # characters of a list of categories
_ROWS = 60  # categories in a table of text output
_WORDS = {"too small": "too small to compare", "alone": "nothing to compare with", "unknown": "counted separately"}


def headline(result: ImpactRatios) -> str:
    """The result in one line, which begins with the verdict."""
    if result.verdict == "not testable":
        sentence = f"Fewer than two categories by {', '.join(table.name for table in result.tables)} can be compared."
    else:
        sentence = {"passed": _passed, "failed": _failed, "inconclusive": _inconclusive}[result.verdict](result)
    return formats.printable(f"{result.verdict.upper()}  {sentence}")


def _level(result: ImpactRatios) -> str:
    return formats.level(result.alpha)


def _passed(result: ImpactRatios) -> str:
    ratios = [table.certifiable for table in result.tables if table.certifiable is not None]
    least = rounded_like(min(ratios), result.least, up=False)
    names = ", ".join(table.name for table in result.tables if table.verdict == "passed")
    passed = [table for table in result.tables if table.verdict == "passed"]
    small = any(category.status == "too small" for table in passed for category in table.categories)
    large = f" with at least {100 * result.min_share:.3g}% of all rows" if small else ""
    return (
        f"Every category by {names}{large} has at least {result.least:g} × the highest {result.kind} "
        f"({_level(result)} confidence). Certifiable: ratio {least}."
    )


def _failed(result: ImpactRatios) -> str:
    below = [(table, category) for table in result.tables for category in table.compared if category.status == "failed"]
    table, worst = below[0]
    if len(below) == 1:
        interval = f"simultaneous {_level(result)} interval {_number(worst.lower)} … {_number(worst.upper)}"
        name = level_name(worst.label, table.attributes)
        below_best = f"By {table.name}, {name} is below {result.least:g} × the highest {result.kind}"
        return f"{below_best}: ratio {_number(worst.ratio)} ({interval})."
    texts = []
    for attribute_table in result.tables:
        labels = [category.label for category in attribute_table.compared if category.status == "failed"]
        if labels:
            listed = formats.members(labels, naming(attribute_table.attributes), _LISTED, ", ")
            texts.append(f"by {attribute_table.name} {listed}")
    where = "; ".join(texts)
    return f"Below {result.least:g} × the highest {result.kind} ({_level(result)} confidence): {where}."


def _inconclusive(result: ImpactRatios) -> str:
    names = ", ".join(table.name for table in result.tables if table.verdict != "passed" and table.is_divided)
    if not any(category.selected for table in result.tables for category in table.categories):
        return f"Every {result.kind} by {names} is 0, so there are no ratios."
    ratios = [table.certifiable for table in result.tables if table.certifiable is not None]
    least = rounded_like(min(ratios), result.least, up=False)
    return (
        f"The data neither confirm nor rule out a ratio of {result.least:g} to the highest {result.kind} for every "
        f"category by {names} ({_level(result)} confidence). Certifiable: ratio {least}."
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


# -------------------------------------------------------------------------------------------------------------- notes


def notes(result: ImpactRatios) -> Iterator[Note]:
    """What a reader must know beside the tables."""
    if result.median is not None:
        text = f"Selected: scores above the median of all, {result.median:g}."
        yield Note("median", text, fields={"median": result.median})
    yield Note(
        "method",
        f"Intervals of ratios hold for all categories of all tables together ({_level(result)}), although the data "
        "choose the highest category.",
    )
    if result.repeated is not None:
        column, each = result.repeated
        text = (
            f"Rows are taken as independent, but {column} repeats. Give one row for each applicant, "
            "or use certify, whose metrics have units."
        )
        yield Note("no unit", text, "warning", {"column": column, "rows_each": each})
    yield from cut_notes(result.cut)
    yield from _small_notes(result)
    yield from _unknown_notes(result)
    if result.missing_rows:
        total = result.applicants + result.missing_rows
        share = formats.share(result.missing_rows / total, 1)
        what = "score" if result.median is not None else "outcome"
        any_outcome = "the verdict allows any outcome for them"
        how = any_outcome if result.missing == "bounds" else "they are taken to be like the others"
        text = f"{formats.count(result.missing_rows)} rows ({share}) lack the {what}: {how}."
        yield Note("missing outcomes", text, "warning", {"rows": result.missing_rows})
    yield Note("purpose", "The layout follows 6 RCNY 5-300 ff.; it is a computation, not a legal opinion.")


def next_step(result: ImpactRatios) -> Note | None:
    """Hand the tables over, find the groups behind a low ratio, or collect more."""
    if result.verdict == "passed":
        return next_note(
            "hand the tables over as a page with",
            'result.report("ratios.html")',
            NextCommand(changes={"report": "ratios.html"}),
        )
    if result.verdict == "failed":
        by = repr(list(dict.fromkeys(name for table in result.tables for name in table.attributes)))
        known, arguments = {"metric": ["selection_rate"], "y-pred": [result.column]}, f"{result.column!r}"
        if result.median is not None:  # a score at the threshold is selected by a model, and not at the median
            above = repr(math.nextafter(result.median, math.inf))
            known = {"metric": ["selection_rate"], "score": [result.column], "threshold": [above]}
            arguments = f"score={result.column!r}, threshold={above}"
        call = f"fl.cluster(rows, {by}, fl.selection_rate({arguments}))"
        command = NextCommand("model", needs=("by", *known), known=known)
        return next_note("see which groups differ together with", call, command)
    again = f"fl.impact_ratios(rows, by, {'selected' if result.median is None else 'score'}={result.column!r}"
    if any(table.verdict == "not testable" and table.is_divided for table in result.tables):
        smaller = f"{result.min_share / 2:g}"
        command = NextCommand(changes={"min-share": smaller})
        step = next_note("compare smaller categories with", f"{again}, min_share={smaller})", command)
        return step if result.min_share else None
    least = min((table.certifiable for table in result.tables if table.certifiable is not None), default=0.0)
    if not least:  # a category of which no outcome is known
        return None
    ratio = rounded_like(least, result.least, up=False)
    purpose = "collect more applicants, or ask for what the data show with"
    return next_note(purpose, f"{again}, least={ratio})", NextCommand(changes={"least": ratio}))


def _small_notes(result: ImpactRatios) -> Iterator[Note]:
    for table in result.tables:
        small = [category.label for category in table.categories if category.status == "too small"]
        if small:
            names = formats.members(small, naming(table.attributes), _LISTED)
            text = f"By {table.name}, under {100 * result.min_share:.3g}% of all rows and not compared: {names}."
            yield Note("small categories", text, "warning", {"table": table.name, "categories": len(small)})


def _unknown_notes(result: ImpactRatios) -> Iterator[Note]:
    for attribute, levels in result.unknown_levels.items():
        names = formats.members(levels, repr, _LISTED)
        text = f"Levels of {attribute} named like a missing value count as unknown: {names}."
        yield Note("unknown levels", text, fields={"attribute": attribute, "levels": list(levels)})
    how = {
        "exclude": "counted separately, in no category",
        "category": "a category of their own",
        "bounds": "the verdict allows any category for them",
    }[result.unknown]
    for table in result.tables:
        count = table.unknown
        if count:
            share = formats.share(count / max(result.applicants, 1), 1)
            text = f"By {table.name}, {formats.count(count)} applicants ({share}) are unknown: {how}."
            yield Note("unknown applicants", text, "warning", {"table": table.name, "applicants": count})


# ------------------------------------------------------------------------------------------------------------ as text


def document(result: ImpactRatios, *, complete: bool = False) -> Document:
    """The parts of impact ratios as text; `complete` is with all categories."""
    tables = [_table(result, table, complete=complete) for table in result.tables]
    return Document([result.headline], tables, [note.text for note in notes(result)])


def _table(result: ImpactRatios, table: ImpactTable, *, complete: bool) -> TextTable:
    """One table: applicants, selected, rate, impact ratio, its interval, and the verdict."""
    shown = table.categories if complete else table.categories[:_ROWS]
    bounded = any(category.possible_lower is not None for category in table.categories)
    selected = "selected" if result.median is None else "above median"
    header = [table.name, "applicants", selected, result.kind, "impact ratio", f"{_level(result)} interval"]
    header += ["possible"] if bounded else []
    rows = [_cells(category, table, bounded=bounded) for category in shown]
    if len(table.categories) > len(shown):
        more = f"{formats.count(len(table.categories) - len(shown))} more categories"
        rows.append(["…", *[""] * (len(header) - 1), more])
    return TextTable([*header, "status"], rows, set(range(1, len(header))))


def _cells(category: ImpactCategory, table: ImpactTable, *, bounded: bool) -> list[str]:
    cells = [
        level_name(category.label, table.attributes),
        formats.count(category.applicants),
        formats.count(category.selected),
        "–" if category.rate is None else f"{category.rate:.1%}",
        _number(category.ratio),
        "–" if category.lower is None else f"{_number(category.lower)} … {_number(category.upper)}",
    ]
    if bounded:
        ends = (category.possible_lower, category.possible_upper)
        cells.append("–" if ends[0] is None else f"{_number(ends[0])} … {_number(ends[1])}")
    is_highest = category.label == table.highest and category.status == "passed"
    return [*cells, "highest" if is_highest else _WORDS.get(category.status, category.status)]
