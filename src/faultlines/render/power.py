"""Every sentence about power."""

from __future__ import annotations

from collections.abc import Iterator

from faultlines import formats
from faultlines.render.text import Document, TextTable, cluster_again, next_note
from faultlines.results.power import Power
from faultlines.results.protocol import Note


def headline(result: Power) -> str:
    """The result in one sentence."""
    if result.gap is None or result.detected is None:
        return formats.printable(" ".join(note.text for note in _minimum_notes(result)))
    detected, size = formats.share(result.detected), _difference(result.gap, 4, all(result.in_points))
    what = f"A difference of {size}" if len(result.planned) == 2 else f"Differences of {size}"
    verb = "is" if len(result.planned) == 2 else "are"
    return formats.printable(
        f"{what} between {_groups(result)} {verb} detected in {detected} of simulated experiments "
        f"(target: {formats.share(result.target)})."
    )


def _difference(size: float, digits: int, in_points: bool) -> str:
    if not in_points:
        return f"{size:.{digits}g}"
    points = f"{100 * size:.{digits}g}"
    return f"{points} {'point' if points in {'1', '-1'} else 'points'}"


def _groups(result: Power) -> str:
    things = "groups" if result.along is None else f"levels of {result.along}"
    if len(result.planned) == 2:
        first, rest = result.planned
        return f"{first} of {first + rest} {things} and the other {rest}"
    return f"clusters of {formats.listed(list(map(str, result.planned)))} of {sum(result.planned)} {things}"


def notes(result: Power) -> Iterator[Note]:
    """Minimum detectable differences, the units needed, and what the figures rest on."""
    yield from _minimum_notes(result)
    if result.needed is not None:
        days = "" if result.days is None else f", {result.days:.3g} days"
        planned = "" if result.n is None else f"; {formats.count(result.n)} are planned"
        needed = f"{formats.count(result.needed)} units in all{days}{planned}"
        text = f"Needed for {formats.share(result.target)} power: {needed}."
        yield Note("units needed", text, fields={"needed": result.needed, "days": result.days, "planned": result.n})
    basis = f"{result.guarantee}, α = {result.alpha:g}, {result.runs:,} simulated experiments"
    error = f"standard error of a share at most {formats.share(result.error, 1)}"
    followed = ""
    if result.recovered is not None and result.followed < result.runs:
        followed = f"; recovery from {result.followed:,} of them"
    yield Note("method", f"Method: {basis} ({error}){followed}.")


def next_step(result: Power) -> Note | None:
    """Run the experiment as planned, or with more units."""
    purpose = "when the data are there, run"
    if result.verdict == "not enough" and result.needed is not None:
        purpose = f"collect {formats.count(result.needed)} units, then run"
    return next_note(purpose, "fl.cluster(rows, by, metric)", cluster_again())


def _effects(result: Power) -> dict[str, bool]:
    """The effects in their order, with whether differences of each are in points."""
    names = dict.fromkeys(row.effect for row in result.directions)
    return dict(zip(names, result.in_points, strict=True))


def _minimum_notes(result: Power) -> Iterator[Note]:
    for effect, in_points in _effects(result).items():
        size = max(row.minimum_detectable for row in result.directions if row.effect == effect)
        of_effect = f" in {effect}" if effect else ""
        text = (
            f"Minimum detectable difference{of_effect} between {_groups(result)}: {_difference(size, 3, in_points)} "
            f"({formats.share(result.target)} power)."
        )
        yield Note("minimum detectable", text, fields={"effect": effect, "size": size})


def _direction_table(result: Power) -> TextTable:
    """Both directions, one row for each effect and direction."""
    several, of_effect = any(row.effect for row in result.directions), _effects(result)
    header = [*(["effect"] if several else []), "groups that differ are"]
    header += ["detected", "recovered exactly"] if result.gap is not None else []
    rows = []
    for row in result.directions:
        cells = [*([row.effect] if several else []), row.direction]
        if row.detected is not None and row.recovered is not None:
            cells += [formats.share(row.detected), formats.share(row.recovered)]
        rows.append([*cells, _difference(row.minimum_detectable, 3, of_effect[row.effect])])
    first = 2 if several else 1
    return TextTable([*header, "minimum detectable"], rows, set(range(first, len(header) + 1)))


def document(result: Power, *, complete: bool = False) -> Document:
    """The parts of a power analysis as text."""
    is_headline = result.gap is None
    texts = [note.text for note in notes(result) if not (is_headline and note.code == "minimum detectable")]
    return Document([result.headline], [_direction_table(result)], texts)
