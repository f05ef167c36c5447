"""Every sentence about many experiments with one correction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultlines import formats
from faultlines.estimates.labels import name_of
from faultlines.render import clustering
from faultlines.render.text import Document, TextTable
from faultlines.results.collection import Experiments
from faultlines.results.multiplicity import CORRECTIONS
from faultlines.results.protocol import Note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faultlines.results.collection import Collection

_ROWS = 20  # experiments in a table of text output
_NOTES = 40  # notes that are printed
_LISTED = 112  # characters of a list of experiments


# ------------------------------------------------------------------------------------------------------- the headline


def headline(result: Collection) -> str:
    """In how many of them groups differ."""
    basis = CORRECTIONS[result.correction]
    basis += f", {result.guarantee.name}" if isinstance(result, Experiments) else ""
    counts = f"{len(result.rejected):,} of {formats.amount(len(result), result.noun)}"
    return f"Groups differ in {counts} ({basis}, α = {result.alpha:g})."


def correction_text(result: Collection) -> str:
    """How they were corrected for their number, and which could not be compared."""
    count = formats.amount(len(result), result.noun)
    text = f"{count}, corrected by {CORRECTIONS[result.correction]} at α = {result.alpha:g}"
    skipped = [note.text for note in notes(result) if note.code in {"not compared", "excluded experiments"}]
    return " ".join([f"{text}: clusters differ where the adjusted p is below α.", *skipped])


# -------------------------------------------------------------------------------------------------------------- notes


def notes(result: Collection) -> tuple[Note, ...]:
    """What was not compared, and what was excluded."""
    return tuple(_experiment_notes(result)) if isinstance(result, Experiments) else ()


def _experiment_notes(result: Experiments) -> Iterator[Note]:
    if not result.rejected and len(lone := _single_groups(result)) < len(result):
        yield Note("smallest p", f"Smallest {formats.p_is(float(result.log_pvalues.min()))}.")
    if lone := _single_groups(result):
        count = formats.amount(len(lone), result.noun)
        text = f"Only one group, nothing to compare ({count}): {formats.members(lone, str, _LISTED, '; ')}."
        yield Note("not testable", text, "warning", {"experiments": len(lone)})
    if result.excluded:
        names = [f"{name_of(experiment.label)} ({experiment.reason})" for experiment in result.excluded]
        count = formats.amount(len(names), result.noun)
        text = f"Excluded {count}: {formats.members(names, str, _LISTED, '; ')}."
        yield Note("excluded experiments", text, "warning", {"experiments": len(names)})
    if groups := sum(len(experiment.excluded) for experiment in result.experiments):
        some = formats.amount(sum(bool(experiment.excluded) for experiment in result.experiments), result.noun)
        text = f"Excluded groups: {formats.amount(groups, 'group')} in {some}."
        yield Note("excluded groups", text, fields={"groups": groups})
    yield from clustering.dropped_notes(result.dropped)


def _single_groups(result: Experiments) -> list[str]:
    """The experiments with one group only, in which nothing was compared."""
    return [name for name, count in zip(result.names, result.group_counts, strict=True) if count < 2]


# ------------------------------------------------------------------------------------------------------------ as text


def document(result: Collection, *, complete: bool = False) -> Document:
    """The parts of several results as text; `complete` is with all of them."""
    table = _experiment_table(result, complete)
    texts = [note.text for note in result.notes]
    if not complete and len(texts) > _NOTES:
        texts = [*texts[:_NOTES], f"{len(texts) - _NOTES:,} more notes: .notes has all."]
    return Document([headline(result)], [table] if table.rows else [], texts)


def _experiment_table(result: Collection, complete: bool) -> TextTable:
    """The experiments in which groups differ, the surest first."""
    places = {name: place for place, name in enumerate(result.names)}
    rejected = result.rejected
    shown = rejected if complete else rejected[:_ROWS]
    header = [result.noun, "adjusted p", "clusters", "groups"]
    rows = [_row(result, places[name]) for name in shown]
    return TextTable(header, rows + _more(len(rejected) - len(shown)), {1, 2, 3})


def _row(result: Collection, place: int) -> list[str]:
    c = result.result_at(place)
    p = formats.pvalue(float(result.log_pvalues_adj[place]))
    return [formats.printable(result.names[place]), p, str(c.n_clusters), formats.count(len(c.groups))]


def _more(count: int) -> list[list[str]]:
    return [[f"… +{count:,}", "", "", ""]] if count else []
