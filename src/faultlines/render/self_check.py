"""Every sentence about a self-check."""

from __future__ import annotations

from collections.abc import Iterator

from faultlines import formats
from faultlines.render.text import Document, NextCommand, next_note
from faultlines.results.protocol import Note
from faultlines.results.self_check import SelfCheck
from faultlines.rows.shuffling import Shuffled

_SHUFFLES: dict[Shuffled, str] = {
    "groups": "shuffles of the group labels, where nothing differs",
    "arms": "shuffles of the arms, where nothing has an effect",
    "resampled": "resamples of the rows within their groups, moved to a common value",
}


def headline(result: SelfCheck) -> str:
    """The result in one sentence."""
    rate, lower, upper = (f"{share:.1%}" for share in (result.rate, result.lower, result.upper))
    level = f"α = {result.alpha:g}"
    comparison = {
        "holds": f"consistent with {level}",
        "inconclusive": f"more than {level}, which the interval includes",
        "violated": f"more than {level}",
    }[result.verdict]
    shuffles = (
        f"In {result.runs:,} {_SHUFFLES[result.shuffled]}, a difference was reported in {result.false_positives:,}"
    )
    return formats.printable(f"{shuffles} ({rate}, 95% interval {lower} … {upper}): {comparison}.")


def notes(result: SelfCheck) -> tuple[Note, ...]:
    """What to do about it, and what the check cannot show."""
    return (*_verdict_notes(result), *_blind_spots(result))


def _blind_spots(result: SelfCheck) -> Iterator[Note]:
    if result.shuffled == "groups":
        text = (
            "Shuffling makes groups identical. False positives caused by different base rates or spreads do not show."
        )
        yield Note("equal groups", text, "warning")
    if result.shuffled == "resampled":
        text = (
            "Resampling repeats the values of each group: small groups vary more than they do in new data, and rare "
            "large values show only in part."
        )
        yield Note("rare values", text)


def _verdict_notes(result: SelfCheck) -> tuple[Note, ...]:
    if result.verdict == "violated":
        text = "The error rate is not controlled on data like these; check the unit and the number of events."
        if result.shuffled == "resampled":
            text = (
                "The error rate is not controlled on resamples of these data. Resampling small groups overstates it. "
                "Where spreads or shapes of groups differ, use coarser groups."
            )
        return (Note("error rate", text, "warning"),)
    return ()


def next_step(result: SelfCheck) -> Note | None:
    """More runs where they decide; else another unit or error control where the error rate is too high."""
    if result.verdict == "inconclusive":
        runs = 4 * result.runs
        return next_note(
            "decide it by more runs with",
            f"fl.self_check(rows, by, metric, runs={runs})",
            NextCommand(changes={"self-check": str(runs)}),
        )
    if result.verdict == "violated" and result.unit is None:
        call = "fl.self_check(rows, by, metric, unit=COLUMN)"
        purpose = "if rows of one user are related, name the user with"
        return next_note(purpose, call, NextCommand(changes={"unit": "COLUMN"}))
    return None


def document(result: SelfCheck, *, complete: bool = False) -> Document:
    """The parts of a self-check as text."""
    return Document([result.headline], [], [note.text for note in notes(result)])
