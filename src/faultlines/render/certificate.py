"""Every sentence about a certificate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from faultlines import formats
from faultlines.estimates.labels import Label, key_of, level_name, naming
from faultlines.estimates.reasons import ReasonCode
from faultlines.render.clustering import RATIO, mismatch_notes, other_notes
from faultlines.render.rows import dropped_notes, excluded_notes, lacking_columns, missing_fields
from faultlines.render.text import Document, NextCommand, TextTable, find_mismatch, next_note
from faultlines.results.certificate import ALL_PAIRS, ANY, DIRECTIONS, OVERALL, Certificate, CertifiedGroup, Status
from faultlines.results.protocol import Note
from faultlines.rows.request import LARGE_SHARE, LARGE_SHARE_OF_GROUP

_ROWS = 40  # groups in a table of text output
_LISTED = 56  # characters of a list of groups
_NAME = 72  # characters of a group in a table
_DIGITS = 17  # significant digits of a double: no two of them read the same
_SIDES = {"low": " below", "high": " above"}
_ORDER: dict[Status, int] = {"beyond": 0, "inconclusive": 1, "within": 2}


# ------------------------------------------------------------------------------------------------------- the headline


def headline(result: Certificate) -> str:
    """The result in one line, which begins with the verdict."""
    sentence = {"passed": _passed, "failed": _failed, "inconclusive": _inconclusive}[result.verdict](result)
    return formats.printable(f"{result.verdict.upper()}  {sentence}")


def _passed(result: Certificate) -> str:
    return f"{_capitalized(_all_within(result))}. Certifiable: {_certifiable(result)}."


def _failed(result: Certificate) -> str:
    beyond = [group for group in result.groups if group.status == "beyond"]
    if len(beyond) == 1 and not result.parts:
        group = beyond[0]
        number = _distance_format([group], result, 0)
        what = "ratio" if result.ratio else "difference"
        kind = "bounds" if _one_sided(result, 0) else "interval"
        interval = f"simultaneous {formats.level(result.alpha)} {kind} {number.interval(group.lower, group.upper)}"
        values = f"{what} {number(group.distance)} ({interval})"
        other = f" {level_name(group.other, result.attributes)}" if result.against == ALL_PAIRS else ""
        return f"{level_name(group.label, result.attributes)} is {_beyond(result, other)}: {values}."
    if len(beyond) == 1 and not result.ratio:
        return _failed_parts(result, beyond[0])
    names = formats.members(result.beyond, naming(result.attributes), _LISTED)
    if result.against == ALL_PAIRS and len(result.groups) == 2:
        return f"Both groups{_by(result)} are {_beyond(result, ' each other')} {_confidence(result)}: {names}."
    some = f"{formats.count(len(beyond))} of {_groups(result)} {'is' if len(beyond) == 1 else 'are'}"
    return f"{some} {_beyond(result)} {_confidence(result)}: {names}."


def _failed_parts(result: Certificate, group: CertifiedGroup) -> str:
    """The one group beyond a limit of several effects, with what its limits are."""
    texts = []
    for i, (part, gap, side) in enumerate(zip(result.parts, _gaps(result), result.directions, strict=True)):
        texts.append(f"{part} ({_size(result, gap, i)}{'' if side is None else _SIDES[side]})")
    name = level_name(group.label, result.attributes)
    return f"{name} is beyond a limit {_confidence(result)}: {', '.join(texts)}."


def _inconclusive(result: Certificate) -> str:
    certifiable = f"Certifiable: {_certifiable(result)}"
    if not result.inconclusive:
        reasons = []
        if result.excluded:
            was = "was" if len(result.excluded) == 1 else "were"
            reasons.append(f"{formats.amount(len(result.excluded), 'group')} {was} excluded")
        counts = result.missing_values
        if result.missing in ("share", "range") and counts is not None and (counts.is_large or result.needs_rows):
            reasons.append(f"{formats.share(counts.share, 1)} of rows lack a value")
        if result.mismatch:
            reasons.append("the arms have a sample ratio mismatch")
        if result.unknown == "category" and counts is not None and (counts.lacks_many_groups or not reasons):
            reasons.append(_rows_without_group(result))
        measured = _capitalized(_all_within(result, measured=True))
        return f"{_capitalized(', and '.join(reasons))}. {measured}. {certifiable}."
    names = result.farthest if result.parts else (result.farthest,)
    farthest = formats.members(list(dict.fromkeys(names)), naming(result.attributes), _LISTED)
    cannot = f"The data cannot show that {_all_within(result)}"
    if is_overturned(result):
        cannot = f"{_what_is_missing(result)}. {cannot}, whatever is missing"
    return f"{cannot}. {certifiable} ({farthest})."


_BOUNDED = ("bounds", "range")  # treatments of missing values that say how far these could move effects


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def is_overturned(result: Certificate) -> bool:
    """Whether all groups are within the gap if what is missing is ignored, and may not be if it is not."""
    counts_missing = result.possible is not None or result.missing in _BOUNDED
    return counts_missing and not result.beyond and bool(result.inconclusive) and _passes_ignoring(result)


def _passes_ignoring(result: Certificate) -> bool:
    """Whether all groups would be within the gap if what is missing were ignored."""
    ignoring = result.certifiable_ignoring if result.parts else (result.certifiable_ignoring,)
    pairs = zip(ignoring, _gaps(result), strict=True)
    return all(value >= gap if result.ratio else value <= gap for value, gap in pairs)


def _what_is_missing(result: Certificate) -> str:
    """Which shares of the rows lack a value, or an attribute: ``80.1% of rows lack a value``."""
    counts, texts = result.missing_values, []
    if counts is not None and result.missing != "none":
        texts.append(f"{formats.share(counts.share, 1)} of rows lack a value")
    if counts is not None and result.unknown is not None:
        share = counts.without_group / max(float(counts.rows.sum()), 1.0)
        texts.append(f"{formats.share(share, 1)} of rows lack {_attribute(result)}")
    return " and ".join(texts)


def _attribute(result: Certificate) -> str:
    return " or ".join(result.attributes)


def _rows_without_group(result: Certificate) -> str:
    counts = result.missing_values
    rows = 0 if counts is None else round(counts.without_group)
    return f"{formats.amount(rows, 'row')} {'lacks' if rows == 1 else 'lack'} {_attribute(result)}"


def _groups(result: Certificate) -> str:
    return formats.amount(len(result.groups), f"{_other(result)}group") + _by(result)


def _other(result: Certificate) -> str:
    """Groups compared with one of them are the others."""
    is_group = isinstance(result.against, str) and result.against not in (OVERALL, ALL_PAIRS, *DIRECTIONS)
    return "other " if is_group else ""


def _by(result: Certificate) -> str:
    by = ", ".join(result.margins) or " × ".join(result.attributes)
    return "" if by == "group" else f" by {by}"


def _all_within(result: Certificate, *, measured: bool = False) -> str:
    """What is certified: ``all 4 groups by country are within 5 points of the overall rate (95% confidence)``.

    A single group has its name, and where no loss at all is allowed, none of the groups is below.
    """
    count, directions = len(result.groups), set(result.directions)
    one, several = (f"{_other(result)}{noun}{_by(result)}" for noun in ("group", "groups"))
    if measured:
        one, several = f"{one} that was measured", f"{several} that were measured"
    if count == 1:
        only = f", the only {_other(result)}group measured," if measured else ""
        text = f"{level_name(result.groups[0].label, result.attributes)}{only} is {_within(result)}"
    elif not (result.ratio or any(_gaps(result)) or None in directions or len(directions) > 1):
        text = f"{f'neither {one}' if count == 2 else f'none of the {count:,} {several}'} is {_beyond(result)}"
    else:
        text = f"{'both' if count == 2 else f'all {count:,}'} {several} are {_within(result)}"
    return f"{text} {_confidence(result)}"


def _confidence(result: Certificate) -> str:
    return f"({formats.level(result.alpha)} confidence)"


def _gaps(result: Certificate) -> tuple[float, ...]:
    return tuple(result.gap) if result.parts else (result.gap,)


def _within(result: Certificate) -> str:
    """Within the gap, in words."""
    start, end = _reference(result, "each other")
    texts = []
    for i, (gap, side) in enumerate(zip(_gaps(result), result.directions, strict=True)):
        if result.ratio:
            low, high = f"{gap:.10g}", f"{1 / gap:.4g}"
            texts.append({None: f"between {low} and {high}", "low": f"at least {low}", "high": f"at most {high}"}[side])
        else:
            size = _size(result, gap, i)
            texts.append(
                {
                    None: f"within {size} of" if gap else "equal to",
                    "low": _at_most(size, "below"),
                    "high": _at_most(size, "above"),
                }[side]
            )
    return f"{_each(result, texts)}{' ×' if result.ratio else ''} {start}{end}"


def _at_most(size: str, where: str) -> str:
    return f"not {where}" if size in {"0", "0 points"} else f"at most {size} {where}"


def _beyond(result: Certificate, other: str = " another group") -> str:
    """Farther away than the gap, in words."""
    start, end = _reference(result, other.strip())
    texts = []
    for i, (gap, side) in enumerate(zip(_gaps(result), result.directions, strict=True)):
        if result.ratio:
            low, high = f"{gap:.10g}", f"{1 / gap:.4g}"
            texts.append({None: f"below {low} or above {high}", "low": f"below {low}", "high": f"above {high}"}[side])
        else:
            where = {None: "from" if gap else "different from", "low": "below", "high": "above"}[side]
            texts.append(f"more than {_size(result, gap, i)} {where}" if gap else where)
    return f"{_each(result, texts, ' or ')}{' ×' if result.ratio else ''} {start}{end}"


def _reference(result: Certificate, pair: str) -> tuple[str, str]:
    """What groups are compared with, and in what: the overall selection rate; A in selection rate."""
    if result.against in (OVERALL, *DIRECTIONS):
        return f"the {result.against} {result.metric}", ""
    of_metric = "" if result.metric == "effect" else f" in {result.metric}"
    if not isinstance(result.against, str):
        value = float(result.against)
        text = f"{100 * value:.3g}{result.units[0]}" if all(result.units) else f"{value:.3g}"
        return "zero" if value == 0 else text, of_metric
    return pair if result.against == ALL_PAIRS else result.against, of_metric


def _each(result: Certificate, texts: Sequence[str], joined: str = " and ") -> str:
    """One for all effects, or one for each."""
    if len(set(texts)) == 1:
        return texts[0]
    return joined.join(f"{text} ({part})" for text, part in zip(texts, result.parts, strict=True))


def _size(result: Certificate, gap: float, part: int, text: str | None = None) -> str:
    """A gap with its unit."""
    # What was asked is printed as it was asked: a gap of 0.1002 must not read "10 points" beside a bound of 10.01.
    if not result.units[part]:
        return f"{gap:.10g}" if text is None else text
    points = f"{100 * gap:.10g}" if text is None else text
    return f"{points} {'point' if points == '1' else 'points'}"


def _certifiable(result: Certificate) -> str:
    """The gap that can be certified, rounded so that it never contradicts the verdict."""
    values = result.certifiable if result.parts else (result.certifiable,)
    texts = []
    for i, (value, gap) in enumerate(zip(values, _gaps(result), strict=True)):
        if result.ratio:
            texts.append(f"ratio {rounded_like(value, gap, up=False)}")
        else:
            factor = 100.0 if result.units[i] else 1.0
            texts.append(_size(result, value, i, rounded_like(factor * value, factor * gap, up=True)))
    return _each(result, texts)


def rounded_like(value: float, limit: float, *, up: bool) -> str:
    """A bound with three significant digits, rounded to the safe side; with more, where these would cross the limit.

    A bound of 10.002 against a limit of 10 must not read "10.0", and one of 4.956 against 4.958 not "4.96". What is
    printed can be asked for as a gap, and passes.

    Args:
        value: The bound.
        limit: What it is compared with.
        up: Whether larger is the safe side.
    """
    if not math.isfinite(value) or value == 0:
        return "∞" if value > 0 else f"{value:.2g}"
    for digits in range(3, _DIGITS + 1):
        places = digits - 1 - math.floor(math.log10(abs(value)))
        scaled = value * 10.0**places
        rounded = math.ceil(scaled - 1e-9) if up else math.floor(scaled + 1e-9)
        text = f"{rounded / 10.0**places:.{max(places, 0)}f}"
        if (float(text) > limit) == (value > limit) and (float(text) < limit) <= (value < limit):
            return text
    return repr(value)


# -------------------------------------------------------------------------------------------------------------- notes


def notes(result: Certificate) -> Iterator[Note]:
    """What a reader must know beside the table."""
    yield from mismatch_notes(result.warnings)
    if result.reference_value is not None and isinstance(result.against, str):
        values = result.reference_value if result.parts else (result.reference_value,)
        yield Note("reference", f"{_reference_text(result, values)}.", fields={"value": result.reference_value})
    if undecided := result.inconclusive:
        some = f"{formats.count(len(undecided))} of {formats.amount(len(result.groups), 'group')}"
        names = formats.members(undecided, naming(result.attributes), _LISTED)
        text = f"{some} can be neither passed nor failed: {names}."
        yield Note("inconclusive groups", text, fields={"groups": len(undecided)})
    yield Note(
        "method", "The verdict holds at level α for all groups together. Intervals of single groups are simultaneous."
    )
    yield from _average_notes(result)
    certifiables = result.certifiable if result.parts else (result.certifiable,)
    for i, (gap, certifiable) in enumerate(zip(_gaps(result), certifiables, strict=True)):
        is_share = all(abs(value) < 1 for value in _numbers(result, result.groups, i, "estimate"))
        if is_share and not result.ratio and gap >= 1 > certifiable:  # it looks like one in per cent: 2 for 2%
            yield Note(
                "wide gap",
                f"The gap is {_size(result, gap, i)}, and no effect is beyond ±1: check its unit (0.02 is two points).",
                "warning",
                {"gap": gap},
            )
    if result.by_precision and result.against == OVERALL:
        yield Note("weights", "Group sizes are unknown, so the overall is weighted by precision.")
    yield from other_notes(result.warnings)
    yield from _missing_notes(result)
    yield from dropped_notes(result.dropped, result.missing_values)
    yield from excluded_notes(result.comparison, result.excluded, result.counted)


def next_step(result: Certificate) -> Note | None:
    """Hand a pass over, find the groups behind a failure, collect what is missing, or certify less."""
    if result.verdict == "passed":
        page = "certificate.html"
        command = NextCommand(changes={"report": page})
        return next_note("hand it over as a page with", f'certificate.report("{page}")', command)
    if result.mismatch:
        call = "fl.srm(rows, by, variant=…)"
        return next_note("find the cause of the sample ratio mismatch with", call, find_mismatch())
    if result.verdict == "failed":
        return next_note("see which groups differ together with", "fl.cluster(rows, by, metric)", None)
    return _next_of_inconclusive(result)


def _next_of_inconclusive(result: Certificate) -> Note | None:
    """Complete or collect what is missing, or certify less."""
    call, counts = f"fl.certify(rows, by, metric, gap={_gap_argument(result)}", result.missing_values
    never_passes = result.missing == "share" and counts is not None and counts.is_large
    if is_overturned(result) or (never_passes and _passes_ignoring(result)):
        changes = {} if result.missing == "none" else {"missing": "ignore"}
        changes |= {"unknown": "exclude"} if result.unknown == "bounds" else {}
        purpose = f"complete the missing values of {_incomplete(result)} or, if they are missing at random, use"
        settings = "".join(f', {name}="{value}"' for name, value in changes.items())
        return next_note(purpose, f"{call}{settings})", NextCommand(changes=changes))
    if never_passes:
        return _complete_first(_incomplete(result), call)
    if result.excluded and not result.inconclusive:
        return _next_of_excluded(result, call)
    if not result.inconclusive or result.parts or not math.isfinite(result.certifiable):
        return None
    gap, farthest = rounded_like(result.certifiable, result.gap, up=not result.ratio), [result.farthest]
    what = f"collect more rows of {formats.members(farthest, naming(result.attributes), _NAME)}"
    if _share_lacking(result, result.farthest) > LARGE_SHARE:
        what = f"complete the missing values of {_values_of(result, farthest)}"
    command = NextCommand(changes={"certify": gap})
    call = f"fl.certify(data, gap={gap}{', ratio=True' if result.ratio else ''})"
    return next_note(f"{what}, or certify what the data show with", call, command)


def _next_of_excluded(result: Certificate, call: str) -> Note:
    """Complete what excluded groups lack, or include groups that are only small."""
    labels = [group.label for group in result.excluded]
    lacking = [label for label in labels if _share_lacking(result, label) > LARGE_SHARE_OF_GROUP]
    if lacking:
        return _complete_first(_values_of(result, lacking), call)
    if any(group.code == ReasonCode.TOO_SMALL for group in result.excluded):
        purpose = "use coarser groups, or include smaller ones with"
        return next_note(purpose, f"{call}, min_size=MIN_SIZE)", NextCommand(changes={"min-size": "NUMBER"}))
    return next_note("use coarser groups with", f"{call})", None)


def _complete_first(values: str, call: str) -> Note:
    """Complete some values, without which nothing can pass."""
    return next_note(f"complete the missing values of {values}, then run", f"{call})", NextCommand("", ("COMPLETED",)))


def _values_of(result: Certificate, labels: Sequence[Label]) -> str:
    """Which columns some groups lack, and the groups: ``outcome in A``."""
    columns = lacking_columns(result.missing_values, [_places(result, label) for label in labels])
    return f"{columns} in {formats.members(labels, naming(result.attributes), _NAME)}"


def _incomplete(result: Certificate) -> str:
    """Everything that rows lack and the verdict counts: columns of the metric, and attributes."""
    columns = [] if result.missing == "none" else [lacking_columns(result.missing_values)]
    return " and ".join([*columns, *([_attribute(result)] if result.unknown == "bounds" else [])])


def _share_lacking(result: Certificate, label: Label) -> float:
    """The share of the rows of a group, or of the level of a margin, that lacks a value."""
    counts, places = result.missing_values, _places(result, label)
    return 0.0 if counts is None else float(counts.dropped[places].sum() / max(counts.rows[places].sum(), 1.0))


def _places(result: Certificate, label: Label) -> list[int]:
    """Where the rows of a group are counted, or those of the level of a margin."""
    keys, label_key = () if result.missing_values is None else result.missing_values.keys, key_of(label)
    is_margin = bool(result.margins)
    return [
        i
        for i, key in enumerate(keys)
        if all(own == part or (is_margin and own == ANY) for own, part in zip(label_key, key, strict=False))
    ]


def _gap_argument(result: Certificate) -> str:
    """The gap as it was asked for; of several effects, a list."""
    gaps = ", ".join(f"{gap:.10g}" for gap in _gaps(result))
    return f"[{gaps}]" if result.parts else gaps


def _missing_notes(result: Certificate) -> Iterator[Note]:
    """What was done about missing values and unknown attributes, and what they may change."""
    counts = result.missing_values
    if counts is None:
        return
    fields: dict[str, Any] = {"share": counts.share, "certifiable_ignoring": result.certifiable_ignoring}
    if result.possible is not None or result.missing in _BOUNDED:
        value = replace(result, certifiable=result.certifiable_ignoring)
        allowed = "and the verdict allows any value for them"
        if result.missing_range is not None:
            low, high = (f"{end:,.6g}" for end in result.missing_range)
            allowed = f"and the verdict allows values between {low} and {high}, as the others have"
            fields["values"] = list(result.missing_range)
        most = ""
        fields["groups"] = missing_fields(counts)["groups"]
        if is_overturned(result) and not counts.is_large:  # a note of its own says it where it is
            shares = [f"{name} {formats.share(share, 1)}" for name, share in fields["groups"].items() if share]
            most = f" (most in {', '.join(shares)})" if shares else ""
        text = f"{_what_is_missing(result)}{most}, {allowed}. "
        text += f"If they resemble the others, certifiable: {_certifiable(value)}."
        yield Note("missing bounds", text, "warning" if is_overturned(result) else "info", fields)
    elif result.missing == "share":
        rule = "no pass where more than 5% of all rows, or 20% of a group, lack one"
        text = f"The effect of missing values has no bound: {rule}."
        if result.needs_rows:
            text = (
                "Missing values of a mean are bounded only from the rows: use fl.certify(rows, …) or faultlines model."
            )
        yield Note("missing share", text, "warning", fields)
    if result.missing == "ignore":
        text = f"{_what_is_missing(result)}: these rows are taken to be like the others (missing at random)."
        yield Note("missing ignored", text, "warning", fields)
    if result.unknown in ("exclude", "category"):
        is_one = round(counts.without_group) == 1
        what = "excluded" if result.unknown == "exclude" else f"a group of {'its' if is_one else 'their'} own"
        text = f"{_rows_without_group(result)} and {'is' if is_one else 'are'} {what}."
        if result.unknown == "category" and result.verdict == "inconclusive" and counts.lacks_many_groups:
            text += " That passes only if asked for: unknown='category' (--unknown category)."
        yield Note("unknown attributes", text, "warning", {"rows": counts.without_group})


def _average_notes(result: Certificate) -> Iterator[Note]:
    """That groups are compared with the mean of their values, where the value in all rows is another one."""
    if not result.averaged or result.against != OVERALL:
        return
    mean = result.reference_value if result.parts else (result.reference_value,)
    total = result.in_all_rows if result.parts or result.in_all_rows is None else (result.in_all_rows,)
    if total is not None and np.allclose(mean, total, rtol=1e-9):
        return
    text = "The overall, with which groups are compared, is the mean of the values within groups"
    if total is None:
        text += f", not the {result.metric} of all rows. To compare with that, give its value as against."
    else:
        of_all = ", ".join(_value_texts(result, total))
        text += f". The {result.metric} in all rows is {of_all}; to compare with that, give it as against."
    yield Note("overall of groups", text, fields={"mean": mean, "in_all_rows": total})


def _value_texts(result: Certificate, values: Sequence[float]) -> list[str]:
    """A value of each effect as text, with its name where there are several."""
    estimates = result.comparison.estimates
    texts = []
    for i, value in enumerate(values):
        errors = (
            [] if estimates is None else estimates.readable_errors(estimates.given, estimates.errors)[:, i].tolist()
        )
        number = formats.decimals(
            [error for error in errors if error > 0] or [1.0], [value], value < 0, result.units[i]
        )
        texts.append(f"{result.parts[i]} {number(value)}" if result.parts else number(value))
    return texts


def _reference_text(result: Certificate, values: Sequence[float]) -> str:
    """The value that groups are compared with: ``Overall selection rate: 24.9%``."""
    texts = _value_texts(result, values)
    name = f"Overall {result.metric}" if result.against == OVERALL else f"{result.against} (reference)"
    if isinstance(result.against, str) and result.against in DIRECTIONS:
        name = f"{result.against.capitalize()} {result.metric} in these data"
        best = max if DIRECTIONS[result.against] == "low" else min
        for i in range(len(texts)):
            group = best(result.groups, key=lambda group, i=i: _numbers(result, [group], i, "estimate")[0])  # type: ignore[misc]
            texts[i] = f"{texts[i]} ({level_name(group.label, result.attributes)})"
    return formats.printable(f"{name}: {', '.join(texts)}")


# ------------------------------------------------------------------------------------------------------------ as text


def document(result: Certificate, *, complete: bool = False) -> Document:
    """The parts of a certificate as text; `complete` is with all groups."""
    opening = [*(f"Warning: {note.text}" for note in mismatch_notes(result.warnings)), result.headline]
    closing = [note.text for note in notes(result) if note.code != RATIO]
    return Document(opening, [group_table(result, complete=complete)], closing)


def group_table(result: Certificate, *, complete: bool = False) -> TextTable:
    """The table of groups, from the farthest to the surest to be within the gap."""
    ranked = sorted(result.groups, key=lambda group: (_ORDER[group.status], -_relative_bound(result, group)))
    shown = ranked if complete else ranked[:_ROWS]
    header, columns = ["group"], [[formats.members([group.label], naming(result.attributes), _NAME) for group in shown]]
    for i in range(len(result.units)):
        for name, cells in _effect_columns(result, shown, i):
            header.append(name)
            columns.append(cells)
    header.append("status")
    columns.append([group.status for group in shown])
    rows = [list(row) for row in zip(*columns, strict=True)]
    if len(ranked) > len(shown):
        rows.append(["…", *[""] * (len(header) - 2), f"{formats.count(len(ranked) - len(shown))} more groups"])
    right = set(range(1, len(header) - 1)) - {i for i, name in enumerate(header) if name == "against"}
    return TextTable(header, rows, right)


def _relative_bound(result: Certificate, group: CertifiedGroup) -> float:
    """How far a group may be away, for the order of the table: of several effects, the farthest relative to its gap."""
    bounds = group.bound if result.parts else (group.bound,)
    if result.ratio:
        return float(max(1 / bound if bound > 0 else math.inf for bound in bounds))
    return float(max(bound / gap if gap else bound for bound, gap in zip(bounds, _gaps(result), strict=True)))


def _effect_columns(result: Certificate, shown: Sequence[CertifiedGroup], i: int) -> list[tuple[str, list[str]]]:
    """Columns of one effect: estimate, distance, its interval, and the other group of a pair."""
    values, distances, lower, upper = (
        _numbers(result, shown, i, field) for field in ("estimate", "distance", "lower", "upper")
    )
    number = _distance_format(shown, result, i)
    estimate = formats.decimals(
        [_smallest_width(lower, upper) / 4], values, any(value < 0 for value in values), result.units[i]
    )
    points = ", points" if number.unit else ""
    interval = f"{formats.level(result.alpha)} {'bounds' if _one_sided(result, i) else 'interval'}{points}"
    columns = [
        (result.parts[i] if result.parts else "effect", [estimate(value) for value in values]),
        ("ratio" if result.ratio else "difference", [number.bare(value) for value in distances]),
        (interval, [f"{number.bare(low)} … {number.bare(high)}" for low, high in zip(lower, upper, strict=True)]),
    ]
    if result.has_others:
        others = [group.other[i] if result.parts else group.other for group in shown]
        columns.append(("against", [formats.members([other], naming(result.attributes), _NAME) for other in others]))
    return columns


def _one_sided(result: Certificate, i: int) -> bool:
    """Whether either end of an interval is a bound of its own."""
    return (result.adverse[i] if result.parts else result.adverse) is not None


def _numbers(result: Certificate, shown: Sequence[CertifiedGroup], i: int, field: str) -> list[float]:
    return [getattr(group, field)[i] if result.parts else getattr(group, field) for group in shown]


def _smallest_width(lower: Sequence[float], upper: Sequence[float]) -> float:
    return min((high - low for low, high in zip(lower, upper, strict=True) if 0 < high - low < math.inf), default=1.0)


def _distance_format(shown: Sequence[CertifiedGroup], result: Certificate, i: int) -> formats.NumberFormat:
    """A format for distances: those of effects in percent are in points."""
    distances, lower, upper = (_numbers(result, shown, i, field) for field in ("distance", "lower", "upper"))
    finite = [value for value in (*distances, *lower, *upper) if math.isfinite(value)] or [1.0]
    unit: formats.Unit = " points" if result.units[i] and not result.ratio else ""
    return formats.decimals([_smallest_width(lower, upper) / 4], finite, not result.ratio, unit)
