"""Every sentence about many experiments with one correction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from faultlines import formats
from faultlines.estimates.labels import name_of
from faultlines.metrics.table import Adverse
from faultlines.render import clustering
from faultlines.render.data import overall_effect
from faultlines.render.rows import dropped_notes
from faultlines.render.text import Document, Hidden, NextCommand, Spelling, TextTable, next_lines, next_note
from faultlines.results.clustering import Clustering
from faultlines.results.collection import Experiments
from faultlines.results.multiplicity import CORRECTIONS
from faultlines.results.protocol import NEXT, Note, probability

_ROWS = 20  # experiments in a table of text output
_NOTES = 40  # notes that are printed
_ON_A_PAGE = 1_000  # experiments in the overview of a page
_LISTED = 112  # characters of a list of experiments


# ------------------------------------------------------------------------------------------------------- the headline


def headline(result: Experiments) -> str:
    """In how many of them groups differ."""
    basis = f"{CORRECTIONS[result.correction]}, {result.guarantee.name}"
    counts = f"{len(result.rejected):,} of {formats.amount(len(result), result.noun)}"
    return f"Groups differ in {counts} ({basis}, α = {result.alpha:g})."


def correction_text(result: Experiments) -> str:
    """How they were corrected for their number, and which could not be compared."""
    count = formats.amount(len(result), result.noun)
    text = f"{count}, corrected by {CORRECTIONS[result.correction]} at α = {result.alpha:g}"
    skipped = [note.text for note in notes(result) if note.code in {"not compared", "excluded experiments"}]
    return " ".join([f"{text}: clusters differ where the adjusted p is below α.", *skipped])


# -------------------------------------------------------------------------------------------------------------- notes


def next_step(result: Experiments) -> Note | None:
    """Read the surest of them, or plan for more data."""
    if not result.rejected:
        call = "fl.power(data)"
        return next_note("see which differences would have been detected with", call, NextCommand("power", ("--help",)))
    name = repr(result.rejected[0])
    page = NextCommand(changes={"report": "out.html"})
    return next_note(f"read the clusters of {name} with", f"print(result[{name}])", page)


def notes(result: Experiments) -> Iterator[Note]:
    """What was not compared, and what was excluded."""
    yield from _mismatch_notes(result)
    if not result.rejected and len(single_group_names := _single_groups(result)) < len(result):
        yield Note("smallest p", f"Smallest {formats.p_is(float(result.log_pvalues.min()))}.")
    if single_group_names := _single_groups(result):
        count = formats.amount(len(single_group_names), result.noun)
        listed = formats.members(single_group_names, str, _LISTED, "; ")
        text = f"Only one group, nothing to compare ({count}): {listed}."
        yield Note("not testable", text, "warning", {"experiments": len(single_group_names)})
    if result.excluded:
        names = [f"{name_of(experiment.label)} ({experiment.reason})" for experiment in result.excluded]
        count = formats.amount(len(names), result.noun)
        text = f"Excluded {count}: {formats.members(names, str, _LISTED, '; ')}."
        yield Note("excluded experiments", text, "warning", {"experiments": len(names)})
    if groups := sum(len(experiment.excluded) for experiment in result.experiments):
        some = formats.amount(sum(bool(experiment.excluded) for experiment in result.experiments), result.noun)
        text = f"Excluded groups: {formats.amount(groups, 'group')} in {some}."
        yield Note("excluded groups", text, fields={"groups": groups})
    yield from dropped_notes(result.dropped)


def _mismatch_notes(result: Experiments) -> Iterator[Note]:
    """The experiments with a sample ratio mismatch, and where the worst of them is."""
    ratios = {
        name: experiment.readout.sample_ratio
        for name, experiment in zip(result.names, result.experiments, strict=True)
        if experiment.readout is not None and experiment.readout.sample_ratio is not None
    }
    mismatches = sorted((ratio.log_pvalue, name) for name, ratio in ratios.items() if ratio.is_mismatch)
    if mismatches:
        names = [name for _, name in mismatches]
        worst = clustering.sample_ratio_note(ratios[names[0]])
        listed = formats.members(names, str, _LISTED, "; ")
        text = f"Sample ratio mismatch in {formats.amount(len(names), result.noun)}: {listed}. {names[0]}: {worst.text}"
        yield Note(clustering.RATIO, text, "warning", {"experiments": names, **worst.fields})


def _single_groups(result: Experiments) -> list[str]:
    """The experiments with one group only, in which nothing was compared."""
    return [name for name, count in zip(result.names, result.group_counts, strict=True) if count < 2]


# ------------------------------------------------------------------------------------------------------------ the page


def page(
    result: Experiments, *, title: str | None, command: str | None, adverse: Adverse | Mapping[str, Adverse] | None
) -> str:
    """The page over all of them, with a part for each of the twenty surest."""
    from faultlines.render.page import page_text

    shown = np.argsort(result.log_pvalues, kind="stable")[:_ON_A_PAGE].tolist()
    return page_text(
        [result.result_at(place) for place in shown],
        [result.names[place] for place in shown],
        title=title,
        note=correction_text(result),
        command=command,
        left=len(result) - len(shown),
        rejected=len(result.rejected),
        adverse=adverse,
    )


# ------------------------------------------------------------------------------------------------------------ as text


def document(result: Experiments, *, complete: bool = False) -> Document:
    """The parts of several results as text; `complete` is with all of them."""
    table = _experiment_table(result, complete)
    texts = [note.text for note in notes(result)]
    shown = texts if complete else texts[:_NOTES]
    hidden: dict[Hidden, int] = {"note": len(texts) - len(shown)} if len(shown) < len(texts) else {}
    return Document([result.headline], [table] if table.rows else [], shown, hidden)


def _experiment_table(result: Experiments, complete: bool) -> TextTable:
    """The experiments in which groups differ, the surest first."""
    places = {name: place for place, name in enumerate(result.names)}
    rejected = result.rejected
    shown = rejected if complete else rejected[:_ROWS]
    rows = [_row(result, places[name]) for name in shown]
    header = [result.noun, "adjusted p", "clusters", "groups", "differs along", "overall"]
    # Attributes where several are crossed, and effects of treatments, where there are any.
    columns = [i for i in range(len(header)) if i < 4 or any(row[i] for row in rows)]
    rows = [[row[i] for i in columns] for row in rows] + _more(len(rejected) - len(shown), len(columns))
    return TextTable([header[i] for i in columns], rows, {1, 2, 3})


def _row(result: Experiments, place: int) -> list[str]:
    c = result.result_at(place)
    p = formats.pvalue(float(result.log_pvalues_adj[place]))
    overall = _overall(c) if c.arm_effects else ""
    along = formats.printable(", ".join(c.attributes)) if len(c.groups.attributes) > 1 else ""
    return [formats.printable(result.names[place]), p, str(c.n_clusters), formats.count(len(c.groups)), along, overall]


def _more(count: int, width: int) -> list[list[str]]:
    return [[f"… +{count:,}", *[""] * (width - 1)]] if count else []


# ---------------------------------------------------------------------------------- several metrics of the same groups


def metrics_headline(results: Sequence[Clustering]) -> str:
    """In how many metrics of the same rows groups differ."""
    differing = sum(c.rejected for c in results)
    return f"Groups differ in {differing:,} of {len(results):,} metrics (Holm, α = {results[0].alpha:.3g})."


def metrics_text(results: Sequence[Clustering], spelling: Spelling = "command") -> str:
    """Several metrics as one report: what holds for all of them, an overview, then each in detail."""
    warnings = dict.fromkeys(f"Warning: {note.text}" for c in results for note in clustering.ratio_notes(c))
    notes_of = [[note for note in c.notes if note.code not in _SAID] for c in results]
    common = [note.text for note in notes_of[0] if all(note in others for others in notes_of[1:])]
    header = ["metric", "overall", "adjusted p", "clusters", "finding"]
    rows = [
        [c.groups.metric, _overall(c), formats.pvalue(c.log_pvalue_adj), str(c.n_clusters), _finding(c)]
        for c in results
    ]
    blocks = ["\n".join([*warnings, metrics_headline(results)]), formats.table(header, rows, {1, 2, 3})]
    for c, own in zip(results, notes_of, strict=True):
        parts = clustering.document(c)
        texts = [note.text for note in own if note.text not in common]
        opening = [text for text in parts.opening if text not in warnings]
        blocks += [f"{c.groups.metric}\n{'-' * len(c.groups.metric)}\n" + "\n".join(opening)]
        blocks += [*(formats.table(*table) for table in parts.tables), "\n".join(texts)]
    blocks += ["For all metrics:\n" + "\n".join(common)] if common else []
    first = next((c for c in results if c.rejected), results[0])
    blocks += next_lines(clustering.next_step(first), spelling)
    return formats.printable_lines("\n\n".join(filter(None, blocks)))


# Notes that one report of several metrics says at its head: once, or in the opening of each.
_SAID = {clustering.RATIO, clustering.OVERALL, NEXT, "correction"}
_FINDING = 90  # characters of a finding in an overview


def _finding(c: Clustering) -> str:
    text = clustering.contrast(c) if c.rejected else "no difference found"
    return text if len(text) <= _FINDING else f"{text[:_FINDING].rsplit(' ', 1)[0]} …"


def _overall(c: Clustering) -> str:
    """The effect in all rows; of an experiment with its p, and for each treatment."""
    if len(c.overall.effects) != 1:
        return ""
    if not c.arm_effects:
        return clustering.effect_cells(c, c.overall)[0]
    return "; ".join(
        f"{name_of(arm.treatment)} {c.number_formats[0](arm.effects[0].estimate)} "
        f"({formats.p_is(math.log(arm.pvalues[0]))})"
        for arm in c.arm_effects
    )


def metrics_data(results: Sequence[Clustering]) -> dict[str, Any]:
    """The overview of several metrics as plain data, to stand before the results themselves."""
    ratios = [c.readout.sample_ratio for c in results if c.readout is not None and c.readout.sample_ratio is not None]
    worst = min(ratios, key=lambda ratio: ratio.log_pvalue, default=None)
    return {
        "headline": metrics_headline(results),
        "correction": "holm",
        "alpha": results[0].alpha,
        "sample_ratio": None if worst is None else worst.to_dict(),
        "notes": [] if worst is None or not worst.is_mismatch else [clustering.sample_ratio_note(worst).to_dict()],
        "overview": [
            {
                "metric": c.groups.metric,
                "verdict": c.verdict,
                "pvalue": probability(c.log_pvalue),
                "pvalue_adj": probability(c.log_pvalue_adj),
                "n_clusters": c.n_clusters,
                "headline": c.headline,
                "overall": overall_effect(c),
            }
            for c in results
        ],
    }
