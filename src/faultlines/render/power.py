"""Every sentence about power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultlines import formats
from faultlines.render.text import Document
from faultlines.results.protocol import Note

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faultlines.results.power import Power


def headline(result: Power) -> str:
    """The result in one sentence."""
    if result.gap is None or result.detected is None:
        return formats.printable(" ".join(note.text for note in _minimum_notes(result)))
    steps = "A gap" if len(result.planned) == 2 else "Steps"
    detected = formats.share(result.detected)
    return (
        f"{steps} of {result.gap:.4g} between {_groups(result)}: detected in {detected} of simulated experiments "
        f"(target: {formats.share(result.target)})."
    )


def _groups(result: Power) -> str:
    return " and ".join(map(str, result.planned)) + f" of {sum(result.planned)} groups"


def notes(result: Power) -> tuple[Note, ...]:
    """Minimum detectable differences, and what the figures rest on."""
    return tuple(_notes(result))


def _notes(result: Power) -> Iterator[Note]:
    if result.recovered is not None:
        share = formats.share(result.recovered)
        yield Note("recovery", f"The planned clusters are recovered exactly in {share} of simulated experiments.")
    yield from _minimum_notes(result)
    for effect in dict.fromkeys(row.effect for row in result.directions):
        rows = [row for row in result.directions if row.effect == effect]
        if len({row.minimum_detectable for row in rows}) > 1:
            of_effect = f" in {effect}" if effect else ""
            sizes = ", ".join(f"{row.minimum_detectable:.3g} where they are {row.direction}" for row in rows)
            yield Note("directions", f"By direction of the groups that differ{of_effect}: {sizes}.")
    basis = f"{result.guarantee}, α = {result.alpha:g}, {result.runs:,} simulated experiments"
    yield Note("method", f"Method: {basis}; standard error of a share at most {formats.share(result.error, 1)}.")


def _minimum_notes(result: Power) -> Iterator[Note]:
    for effect in dict.fromkeys(row.effect for row in result.directions):
        size = max(row.minimum_detectable for row in result.directions if row.effect == effect)
        of_effect = f" in {effect}" if effect else ""
        text = (
            f"Minimum detectable difference{of_effect} between {_groups(result)}: {size:.3g} "
            f"({formats.share(result.target)} power)."
        )
        yield Note("minimum detectable", text, fields={"effect": effect, "size": size})


def document(result: Power, *, complete: bool = False) -> Document:
    """The parts of a power analysis as text."""
    is_headline = result.gap is None
    texts = [note.text for note in result.notes if not (is_headline and note.code == "minimum detectable")]
    return Document([headline(result)], [], texts)
