"""Every sentence about the sample ratios of an experiment."""

from __future__ import annotations

from collections.abc import Iterator

from faultlines import formats
from faultlines.estimates.reasons import DropCode
from faultlines.render.clustering import describe_place, sample_ratio_note
from faultlines.render.clustering import document as clustering_document
from faultlines.render.rows import dropped_notes
from faultlines.render.text import OF_METRIC, Document, NextCommand, TextTable, next_note
from faultlines.results.protocol import Note
from faultlines.results.sample_ratio import SampleRatios


def headline(result: SampleRatios) -> str:
    """The result in one sentence."""
    if result.ratio is None:
        return f"Sample ratios cannot be tested: fewer than 5 {result.unit} are expected in an arm."
    if result.verdict == "mismatch":
        return sample_ratio_note(result.ratio).text
    where = "from the planned shares" if result.ratio.planned else "of shares between groups"
    return (
        f"No sample ratio mismatch found: no deviation {where} "
        f"({formats.p_is(result.ratio.log_pvalue)}, α = {result.alpha:g})."
    )


def notes(result: SampleRatios) -> Iterator[Note]:
    """What was expected and why, and what was dropped."""
    if result.ratio is not None and not result.ratio.planned:
        text = (
            "No shares are given: each group is compared with all others, and a mismatch that is the same everywhere "
            "cannot be detected. Give the planned shares to test them."
        )
        yield Note("expected shares", text, "warning")
    differing = [c for c in result.clusterings if c.rejected]
    if result.verdict == "mismatch" and result.attributes and not differing:
        text = "Shares do not differ detectably between groups: look for a cause that affects all of them."
        yield Note("no clusters", text)
    other = result.dropped.get(DropCode.OTHER_VARIANTS, 0)
    if other:
        text = f"{formats.count(other)} rows of variants without a planned share are not tested."
        yield Note("other variants", text, "warning", {"rows": other})
    yield from dropped_notes({why: count for why, count in result.dropped.items() if why != DropCode.OTHER_VARIANTS})


def next_step(result: SampleRatios) -> Note | None:
    """Read effects where the arms are as planned; else look for the cause in more attributes."""
    if result.verdict == "not testable":
        return None
    if result.verdict == "mismatch":
        by, which = ("[*by, ATTRIBUTE]", "another") if result.attributes else ("ATTRIBUTE", "an")
        call = f"fl.srm(rows, {by}, variant=variant, shares=shares)"
        purpose = f"narrow the cause down by {which} attribute, such as a day or an app version, with"
        return next_note(purpose, call, NextCommand(changes={"by": "COLUMN"}))
    several = {"treatment": ["*"]} if len(result.arms) > 2 else {}
    arms = "variant=VARIANT, control=CONTROL" + (', treatment="*"' if several else "")
    call = f"fl.cluster(rows, by, fl.lift(VALUE, {arms}))"
    known = {"metric": ["lift:COLUMN"], **several}
    command = NextCommand("experiment", needs=("by", "metric", "variant", "control"), may_need=OF_METRIC, known=known)
    return next_note("compare the effects between groups with", call, command)


def document(result: SampleRatios, *, complete: bool = False) -> Document:
    """The parts of a test of sample ratios as text: the arms, then the clusters of shares."""
    opening, tables = [result.headline], [_arm_table(result)]
    closing: list[str] = []
    for clustering in result.clusterings:
        if not clustering.rejected:
            continue
        parts = clustering_document(clustering, complete=complete)
        opening += parts.opening
        for table in parts.tables:  # one for each arm: the column says of which
            header = [clustering.groups.metric if name == "effect" else name for name in table.header]
            tables.append(table._replace(header=header))
    closing += [note.text for note in notes(result)]
    return Document(opening, tables, closing)


def _arm_table(result: SampleRatios) -> TextTable:
    """The arms with their units and shares; for a mismatch in one place, those of that place beside them."""
    planned = any(arm.expected is not None for arm in result.arms)
    header = ["arm", result.unit, "share", *(["planned"] if planned else [])]
    rows = [
        [arm.arm, formats.count(arm.n), formats.share(arm.share, 2)]
        + ([] if arm.expected is None else [formats.share(arm.expected, 2)])
        for arm in result.arms
    ]
    if result.verdict == "mismatch" and result.ratio is not None and result.ratio.where:
        header += [f"{result.unit} in {describe_place(result.ratio.where)}", "share there"]
        for row, units in zip(rows, result.ratio.counts_there, strict=True):
            row += [formats.count(units), formats.share(units / result.ratio.n, 2)]
    return TextTable(header, rows, set(range(1, len(header))))
