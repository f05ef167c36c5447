"""Every sentence about a monitor, its table of effects, and its page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from faultlines import formats
from faultlines.estimates.labels import key_of, name_of
from faultlines.guarantees.boundaries import Dependence
from faultlines.render.clustering import NAMED_LEVELS, OVERALL, RATIO, nothing_added, subject_differs
from faultlines.render.geometry import LAYERS, Axis, Picture, Row
from faultlines.render.rows import dropped_notes
from faultlines.render.text import (
    Document,
    NextCommand,
    TextTable,
    cluster_again,
    find_mismatch,
    name_groups,
    next_note,
)
from faultlines.results.monitor import AnytimeEffect, HarmedGroup, Look, LookChanges, MonitoredGroup, MonitorResult
from faultlines.results.protocol import NEXT, Note
from faultlines.results.rules import Population

_WIDE, _HIGH = 240, 200  # pixels: three pictures beside each other, and each whole on a telephone
_FEWEST = 8  # looks that have room in a picture where no number is planned
_NAMED = 2_000  # characters of the members of a cluster on a page
_HARMED = 400  # characters of a list of groups with their effects
_LISTED = 90  # characters of a list of groups in text output
_NAME = 30  # characters of a group in a table
_ROWS = 10  # groups in a table of text output: those farthest from the overall effect
_EVIDENCE = "evidence: −log₁₀ p (2 is p = 0.01)"

_ASSUMPTIONS: dict[Dependence | None, str] = {
    "independent": "Assumes that new data do not depend on earlier data: every look has new users.",
    "returning": (
        "Returning users are allowed. Assumes that later outcomes are not negatively related to earlier ones, or are "
        "0/1 events that happen once."
    ),
    "any": "No assumption is made about the dependence between looks.",
    None: "Assumes that every batch holds new data: no batch was used before.",
}
_IGNORED = {
    "missing": "missing groups are ignored",
    "stopped": "missing groups are kept as they were",
    "new": "new groups are ignored",
}


# ------------------------------------------------------------------------------------------------------- the headline


def headline(result: MonitorResult) -> str:
    """The result in one sentence."""
    if not result.looks:
        return "No look yet" + (": too few groups can be compared so far." if result.waiting else ".")
    count = formats.count(sum(map(len, result.clusters)))
    groups = f"{count} {formats.plural(result.attributes)}"
    of_metric = "" if result.metric == "effect" else f" in the {result.metric}"
    basis = f"{formats.p_is(math.log(result.pvalue))} so far, α = {result.alpha:g}"
    look = result.decided or result.looks[-1]
    where = f"look {look.number}" + (f" of {result.planned}" if result.planned else "")
    if result.verdict == "differ":
        if look.number < result.looks[-1].number:  # what p is about is that some groups differ, not how they do now
            differs = f"{subject_differs(result.metric)} between {groups} ({basis})"
            levels = f" by {' × '.join(result.along)}" if len(result.along) < len(result.attributes) else ""
            now = f"Best description at look {result.looks[-1].number}: {result.n_clusters} clusters"
            return f"{differs}, reported at {where}. {now}{levels if result.along else ''}."
        differs = f"{subject_differs(result.metric)} between {_differing_levels(result)} ({basis})"
        others = [name for name in result.attributes if result.along and name not in result.along]
        rest = nothing_added(others, plural=len(others) > 1)
        return f"{differs}, reported at {where}. Best description: {result.n_clusters} clusters.{rest}"
    if result.verdict == "ended":
        return f"No difference found between {groups}{of_metric} ({basis}); {where} was the last."
    return f"{where.capitalize()}: no difference between {groups}{of_metric} can be reported yet ({basis})."


def _differing_levels(result: MonitorResult) -> str:
    """What the differences are between: few levels of one of several attributes by name, all else by number."""
    if not result.along:
        return f"{formats.count(sum(map(len, result.clusters)))} {formats.plural(result.attributes)}"
    attributes = result.along
    places = [result.attributes.index(name) for name in attributes]
    keys = (key_of(label) for cluster in result.clusters for label in cluster)
    levels = list(dict.fromkeys(tuple(key[place] for place in places) for key in keys))
    if len(attributes) == 1 < len(result.attributes) and len(levels) <= NAMED_LEVELS:
        return f"{attributes[0]} {formats.listed([name_of(level) for level in levels])}"
    return f"{formats.count(len(levels))} {formats.plural(attributes)}"


def _cluster_names(result: MonitorResult, room: int) -> list[str]:
    """The members of every cluster: groups of crossed attributes by the attributes that the clusters run along."""
    if len(result.attributes) < 2:
        return [formats.members(labels, name_of, room) for labels in result.clusters]
    sizes = [group.effect.n for group in result.groups]
    population = Population(
        [key_of(group.label) for group in result.groups],
        result.attributes,
        None if None in sizes else np.array(sizes, dtype=float),
    )
    place = {group.label: i for i, group in enumerate(result.groups)}
    places = (np.array([place[label] for label in cluster], dtype=np.int64) for cluster in result.clusters)
    return [formats.printable(name_groups(population, members, room, result.along).text) for members in places]


# -------------------------------------------------------------------------------------------------------------- notes


def notes(result: MonitorResult) -> Iterator[Note]:
    """The overall effect, arms, changes, groups too small, what the look needed, and what is assumed."""
    for reason, count in result.waiting.items():
        text = f"No look was taken: {formats.amount(count, 'group')} cannot be compared yet ({reason.text})."
        yield Note("waiting", text, "warning", {"groups": count})
    if not result.looks:
        return
    last = result.looks[-1]
    yield from result.warnings
    yield from overall_notes(result)
    if last.arms:
        yield _arms_note(last, result.counted)
    if result.changes is not None:
        yield _changes_note(result, result.changes)
    yield from _small_notes(result)
    if result.decided is not None and result.decided.number < last.number:
        text = f"Look {last.number} updates effects and intervals; the verdict and its p are those of look "
        yield Note("after the end", f"{text}{result.decided.number}.", fields={"look": result.decided.number})
    else:
        yield _look_note(result, last)
    for code, count in result.ignored.items():
        yield Note("ignored", f"{formats.count(count)} {_IGNORED[code]}.", "warning", {"code": code, "groups": count})
    yield from dropped_notes(result.dropped)  # type: ignore[arg-type]
    if result.groups:
        yield _intervals_note(result)
    yield Note("assumption", _ASSUMPTIONS[result.dependence])
    if len(result.attributes) > 1 and not result.margins:
        text = "Single attributes are not tested: groups are compared as unordered combinations."
        yield Note("margins", text, fields={"attributes": list(result.attributes)})


def _look_note(result: MonitorResult, last: Look) -> Note:
    """What the last look showed, and what it needed."""
    needed = "reported at no p" if last.level == 0 else f"reported below {formats.pvalue(math.log(last.level))}"
    used = "" if last.spent is None else f" α used so far: {formats.share(last.spent / result.alpha, 1)}."
    text = f"This look alone: {formats.p_is(math.log(last.pvalue))} ({needed}).{used}"
    return Note("look", text, fields={"pvalue": last.pvalue, "level": last.level})


def next_step(result: MonitorResult) -> Note | None:
    """Find the cause of a sample ratio mismatch; else look again, and read what it found when it has ended."""
    if any(note.code == RATIO for note in result.warnings):
        call = "fl.srm(rows, by, variant=…)"
        return next_note("find the cause of the sample ratio mismatch with", call, find_mismatch())
    if result.verdict == "differ":
        page = NextCommand(changes={"report": "monitor.html"})
        return next_note("read the clusters and their members with", "fl.cluster(rows, by, metric)", page)
    if result.verdict == "ended":
        call = "fl.certify(rows, by, metric, gap=GAP)"
        certify = replace(cluster_again(), changes={"certify": "GAP"})
        return next_note("certify a gap that would be acceptable with", call, certify)
    call = "monitor.update(all_rows, by, metric)"
    return next_note("when there are new data, look again with", call, NextCommand())


def overall_notes(result: MonitorResult) -> Iterator[Note]:
    """What each treatment did so far in all groups together, with its p."""
    arms = () if result.look is None else result.look.arm_effects
    where = f"in the {formats.count(len(result.groups))} groups that are compared" if result.small else "overall"
    for arm in arms:
        number = effect_format(result, [arm.effect])
        value, interval, _ = _cells(arm.effect, number)
        text = (
            f"{arm.treatment} against {arm.control} {where}: {value} ({formats.level(result.alpha)} "
            f"interval {interval}, {formats.p_is(math.log(arm.pvalue))}; valid at all looks)."
        )
        fields = {"treatment": arm.treatment, "control": arm.control, "pvalue": arm.pvalue}
        yield Note(OVERALL, text, fields=fields)


def _arms_note(look: Look, unit: str) -> Note:
    total = sum(look.arms.values())
    shares = ", ".join(f"{name} {formats.share(units / total, 1)}" for name, units in look.arms.items())
    text = f"Arms: {shares} of {formats.count(total)} {unit} in these groups."
    return Note("arms", text, fields=dict(look.arms))


def _changes_note(result: MonitorResult, changes: LookChanges) -> Note:
    before, now = result.looks[-2:]
    parts = []
    if changes.n is not None:
        parts.append(f"{formats.count(changes.n)} more {result.counted}")
    then = {each.name: each.effect for each in _overall_effects(before)}
    for _, name, effect in _overall_effects(now):
        if name in then:
            number = effect_format(result, [then[name], effect])
            parts.append(f"{name} {number(then[name].estimate)} → {number(effect.estimate)}")
    if result.decided is None or result.decided.number == now.number:
        parts.append(f"p so far {_p(before.adjusted)} → {_p(now.adjusted)}")
    for labels, what in ((changes.new, "new"), (changes.stopped, "stopped")):
        if labels:
            count = formats.amount(len(labels), f"{what} group")
            parts.append(f"{count} ({formats.members(labels, name_of, _LISTED // 2)})")
    text = formats.printable(f"Since look {changes.since}: {'; '.join(parts)}.")
    return Note("changes", text, fields={"since": changes.since, "n": changes.n, "new": len(changes.new)})


def _small_notes(result: MonitorResult) -> Iterator[Note]:
    """Groups that have too few data so far, by reason; with their differences where lifts cannot be had."""
    reasons: dict[str, list[int]] = {}
    for i, small in enumerate(result.small):
        reasons.setdefault(small.reason.text, []).append(i)
    for reason, places in reasons.items():
        labels = [result.small[i].label for i in places]
        text = (
            f"Too small so far ({formats.count(len(places))}, {reason}): {formats.members(labels, name_of, _LISTED)}."
        )
        yield Note("excluded groups", text, "warning", {"groups": len(places)})


def _intervals_note(result: MonitorResult) -> Note:
    level = formats.level(result.alpha)
    clusters = ", and for any choice of clusters" if result.rejected else ""
    together = ", for all groups together" if clusters else " and for all groups together"
    return Note("intervals", f"{level} intervals are valid at every look{together}{clusters}.")


def describe_harm(result: MonitorResult, harmed: Sequence[HarmedGroup]) -> str:
    """Who is harmed, with effects and intervals, in one line."""
    number, names = effect_format(result, [each.effect for each in harmed]), _cluster_names(result, _NAME)

    def describe(each: HarmedGroup) -> str:
        value, interval, _ = _cells(each.effect, number)
        place = each.cluster
        name = name_of(each.label) if place is None else f"cluster {place + 1} ({names[place]})"
        return f"{name} {value} ({interval})"

    level = formats.level(result.alpha)
    listed = formats.members(harmed, describe, _HARMED, "; ")
    return f"harmed in {result.metric} ({level} intervals, valid at every look): {listed}."


def _p(p: float) -> str:
    return formats.pvalue(math.log(p))


# ------------------------------------------------------------------------------------------------------------ as text


def document(result: MonitorResult, *, complete: bool = False) -> Document:
    """The parts of a monitor as text; `complete` is with all groups and looks."""
    tables = []
    if result.look is not None and result.look.overall is not None:
        tables.append(_effect_table(result, result.look.overall, complete=complete))
    elif result.rejected:
        rows = [[str(i + 1), members] for i, members in enumerate(_cluster_names(result, _LISTED))]
        tables.append(TextTable(["cluster", "members"], rows, {0}))
    if any(group.effect is not None for group in result.small):
        tables.append(_small_table(result, complete=complete))
    if complete and len(result.looks) > 1:
        tables.append(TextTable(_LOOK_HEADER, [_look_row(result, look) for look in reversed(result.looks)], _NUMBERS))
    opening = [f"Warning: {note.text}" for note in result.warnings if note.code == RATIO]
    opening += [result.headline, *(note.text for note in overall_notes(result))]
    return Document(opening, tables, [note.text for note in notes(result) if note.code not in (RATIO, OVERALL)])


def _effect_table(result: MonitorResult, overall: AnytimeEffect, *, complete: bool) -> TextTable:
    """Overall, the clusters once they differ, and groups: those farthest from the overall effect first."""
    all_groups = _overall_effects(result.looks[-1])
    of_arm = {each.treatment: each.effect for each in all_groups}

    def distance(group: MonitoredGroup) -> float:
        return _distance(group.effect, of_arm.get(name_of(key_of(group.label)[-1]), overall))

    ranked = sorted(result.groups, key=distance, reverse=True)
    shown = ranked if complete else ranked[:_ROWS]
    number = effect_format(result, [*of_arm.values(), *result.cluster_effects, *(group.effect for group in shown)])
    size = formats.count(len(result.groups))
    rows = [[each.name, *_cells(each.effect, number), "", "" if i else size] for i, each in enumerate(all_groups)]
    for i, (members, effect) in enumerate(zip(_cluster_names(result, _LISTED), result.cluster_effects, strict=False)):
        rows.append([f"cluster {i + 1}", *_cells(effect, number), "", members])
    rows += [_group_row(group, number) for group in shown]
    if len(ranked) > len(shown):
        rows.append(["…", "", "", "", "", f"{formats.count(len(ranked) - len(shown))} more groups"])
    change = "change, points" if result.unit else "change"
    level = f"{formats.level(result.alpha)} interval"
    header = ["", formats.printable(result.metric), level, formats.printable(result.counted), change, "groups"]
    return TextTable(header, rows, {1, 2, 3, 4})


class _Overall(NamedTuple):
    """An effect in all groups together; of several treatments, that of one."""

    treatment: str
    name: str
    effect: AnytimeEffect


def _overall_effects(look: Look) -> list[_Overall]:
    """The effects in all groups: one of each of several treatments, for their mean is the effect of none."""
    if len(look.arm_effects) > 1:
        return [_Overall(arm.treatment, f"overall {arm.treatment}", arm.effect) for arm in look.arm_effects]
    return [] if look.overall is None else [_Overall("", "overall", look.overall)]


def _group_row(group: MonitoredGroup, number: formats.NumberFormat) -> list[str]:
    name = formats.members([group.label], name_of, _NAME)
    change = "" if group.change is None else number.bare(group.change)
    return [name, *_cells(group.effect, number), change, "" if group.status == "measured" else group.status]


def _distance(effect: AnytimeEffect, overall: AnytimeEffect) -> float:
    """How far a group is from the overall effect, in the width of its interval towards it."""
    gap = effect.estimate - overall.estimate
    width = effect.estimate - effect.lower if gap > 0 else effect.upper - effect.estimate
    return abs(gap) / width if width > 0 else 0.0


def _cells(effect: AnytimeEffect, number: formats.NumberFormat) -> list[str]:
    size = "" if effect.n is None else formats.count(effect.n)
    return [number(effect.estimate), number.interval(effect.lower, effect.upper), size]


def effect_format(result: MonitorResult, effects: Sequence[AnytimeEffect]) -> formats.NumberFormat:
    """A format for effects that are shown beside each other, with two digits of the narrowest interval."""
    widths = [effect.upper - effect.lower for effect in effects if 0 < effect.upper - effect.lower < math.inf]
    values = [v for e in effects for v in (e.estimate, e.lower, e.upper) if math.isfinite(v)]
    is_signed = any(v < 0 for v in values) or bool(result.looks and result.looks[-1].arm_effects)
    return formats.decimals([min(widths, default=1.0) / 8], values, is_signed, result.unit)


def _small_table(result: MonitorResult, *, complete: bool) -> TextTable:
    """Groups whose lift cannot be had yet, with their differences, the largest first."""
    measured = [(small, small.effect) for small in result.small if small.effect is not None]
    measured.sort(key=lambda pair: -(pair[0].n or 0.0))
    shown = measured if complete else measured[:_ROWS]
    widths = [effect.upper - effect.lower for _, effect in shown]
    values = [value for _, effect in shown for value in (effect.lower, effect.upper)]
    number = formats.decimals([max(min(widths), 1e-300) / 8], values, unit=shown[0][0].unit)
    rows = [
        [formats.members([small.label], name_of, _NAME), *_cells(effect, number), formats.printable(small.reason.text)]
        for small, effect in shown
    ]
    if len(measured) > len(shown):
        rows.append(["…", "", "", "", f"{formats.count(len(measured) - len(shown))} more groups"])
    level, metric = f"{formats.level(result.alpha)} interval", formats.printable(shown[0][0].metric)
    header = ["too small so far", metric, level, formats.printable(result.counted), ""]
    return TextTable(header, rows, {1, 2, 3})


_LOOK_HEADER = [
    "look",
    "information",
    "of the way",
    "groups",
    "overall",
    "interval",
    "p of this look",
    "needed",
    "p so far",
]
_NUMBERS = set(range(len(_LOOK_HEADER)))


def _look_row(result: MonitorResult, look: Look) -> list[str]:
    """A look as the cells of a table."""
    effect = ["–", "–"]
    if effects := _overall_effects(look):
        number = effect_format(result, [each.effect for each in effects])
        cells = [_cells(each.effect, number)[:2] for each in effects]
        names = [f"{each.treatment} " if each.treatment else "" for each in effects]
        effect = ["; ".join(f"{name}{cell[i]}" for name, cell in zip(names, cells, strict=True)) for i in range(2)]
    return [
        str(look.number),
        _information(look.information),
        "–" if look.fraction is None else formats.share(look.fraction, 1),
        "–" if not look.groups else formats.count(look.groups),
        *effect,
        _p(look.pvalue),
        _level(look.level),
        _p(look.adjusted),
    ]


# ------------------------------------------------------------------------------------------------------------ the page


def page(result: MonitorResult, *, title: str | None = None, command: str | None = None) -> str:
    """The page of a monitor after its last look.

    Args:
        result: The result of the monitor.
        title: What stands at the head.
        command: What made it.
    """
    from faultlines.render.page import next_step as step_lines
    from faultlines.render.page import rendered
    from faultlines.render.vega import svg

    left = None
    if result.look is not None and result.look.spent is not None:
        left = formats.share(max(0.0, 1 - result.look.spent / result.alpha), 1)
    parts = document(result, complete=True)
    pictures = (_draw_effects(result), _draw_looks(result), _draw_so_far(result)) if result.looks else ()
    return rendered(
        "monitor.html",
        title=title or result.headline,
        head=title or "",
        verdict=result.headline,
        subject=f"{result.metric} by {' × '.join(result.attributes)}",
        mismatches=[note.text for note in result.notes if note.code == RATIO],
        notes=[
            {"text": note.text, "warning": note.severity == "warning"}
            for note in result.notes
            if note.code not in (NEXT, RATIO)
        ],
        next=step_lines(result, command),
        pictures=[
            {"svg": Markup(svg(picture)), "caption": picture.about} for picture in pictures if picture is not None
        ],
        tables=parts.tables,
        clusters=[
            {"number": i + 1, "size": formats.count(len(cluster)), "members": members}
            for i, (cluster, members) in enumerate(zip(result.clusters, _cluster_names(result, _NAMED), strict=True))
            if result.rejected
        ],
        alpha=f"{result.alpha:g}",
        left=left,
        rejected=result.rejected,
        finished=result.finished,
        command=command or "",
    )


def _information(information: float | None) -> str:
    if information is None:
        return "–"
    return formats.count(round(information)) if information >= 100 else f"{information:.3g}"


def _level(level: float) -> str:
    return "–" if level == 0 else formats.pvalue(math.log(level))


# ------------------------------------------------------------------------------------------------------------ pictures


def _draw_effects(result: MonitorResult) -> Picture | None:
    """The overall effect of every treatment at every look, with its interval."""
    series: dict[str, list[tuple[float, AnytimeEffect]]] = {}
    for look in result.looks:
        for overall in _overall_effects(look):
            if math.isfinite(overall.effect.lower) and math.isfinite(overall.effect.upper):
                seen = series.setdefault(overall.treatment, [])
                offset = 0.12 * list(series).index(overall.treatment)  # intervals do not cover each other
                seen.append((look.number + offset, overall.effect))
    effects = [effect for seen in series.values() for _, effect in seen]
    if not effects:
        return None
    number = effect_format(result, effects)
    factor, unit = (100.0, f",{result.unit}" if result.unit == " points" else ", %") if result.unit else (1.0, "")
    low, high = (factor * pick(0.0, *(end for e in effects for end in (e.lower, e.upper))) for pick in (min, max))
    layers: dict[str, list[Row]] = {name: [] for name in LAYERS}
    for cluster, (treatment, seen) in enumerate(series.items(), start=1):
        layers["means"] += _joined([x for x, _ in seen], [factor * e.estimate for _, e in seen], cluster)
        for x, e in seen:
            ends = {"y": factor * e.lower, "y2": factor * e.upper}
            layers["branches"].append({"x": x, "x2": x, **ends, "cluster": cluster})
            texts = {"estimate": number(e.estimate), "interval": number.interval(e.lower, e.upper)}
            name = f"{treatment}, look {int(x)}" if treatment else f"look {int(x)}"
            layers["points"].append({"x": x, "y": factor * e.estimate, "cluster": cluster, "name": name, **texts})
        last = seen[-1]
        name_at: Row = {"x": last[0] + 0.1, "y": factor * last[1].estimate}
        layers["notes"] += [{**name_at, "text": treatment, "cluster": cluster, "align": "left"}] if treatment else []
    arms = f" of {formats.listed(list(series))}" if len(series) > 1 else ""
    level = formats.level(result.alpha)
    about = f"Overall {result.metric}{arms} at every look, with {level} intervals that are valid at all looks."
    return Picture(about, _WIDE, _HIGH, _axis(result), Axis(f"{result.metric}{unit}", low, high), layers)


def _draw_looks(result: MonitorResult) -> Picture:
    """The p of every look beside what it needed."""
    evidence = [_evidence(look.pvalue) for look in result.looks]
    high = max(4.0, 1.25 * max(evidence))
    number = [float(look.number) for look in result.looks]
    needed = _joined(number, [min(_evidence(look.level), high) for look in result.looks], 0)
    texts = [(_p(look.pvalue), _level(look.level)) for look in result.looks]
    about = "Each look by itself: its p (dots) and the level it needs (dashed); a dot above reports a difference."
    layers = {"branches": _joined(number, evidence, 1), "points": _points(result, evidence, texts), "faults": needed}
    return _picture(result, about, high, layers)


def _draw_so_far(result: MonitorResult) -> Picture:
    """The p so far beside α."""
    evidence = [_evidence(look.adjusted) for look in result.looks]
    number = [float(look.number) for look in result.looks]
    alpha, x = _evidence(result.alpha), _axis(result)
    texts = [(_level(look.adjusted), "") for look in result.looks]
    line: Row = {"x": x.low, "x2": x.high, "y": alpha, "y2": alpha, "cluster": 0}
    layers = {"means": _joined(number, evidence, 1), "points": _points(result, evidence, texts), "faults": [line]}
    about = "p so far, all looks taken into account, and α (dashed)."
    return _picture(result, about, max(2 * alpha, 1.25 * max(evidence)), layers)


def _points(result: MonitorResult, evidence: Sequence[float], texts: Sequence[tuple[str, str]]) -> list[Row]:
    """A dot for every look."""
    return [
        {"x": float(look.number), "y": y, "cluster": 1, "name": f"look {look.number}", "estimate": p, "interval": level}
        for look, y, (p, level) in zip(result.looks, evidence, texts, strict=True)
    ]


def _picture(result: MonitorResult, about: str, high: float, layers: dict[str, list[Row]]) -> Picture:
    all_layers = {name: layers.get(name, []) for name in LAYERS}
    return Picture(about, _WIDE, _HIGH, _axis(result), Axis(_EVIDENCE, 0.0, high), all_layers)


def _axis(result: MonitorResult) -> Axis:
    last = result.looks[-1].number
    return Axis("look", 0.0, float(max(result.planned or _FEWEST, last)))


def _joined(x: Sequence[float], y: Sequence[float], cluster: int) -> list[Row]:
    """Neighbouring points joined by lines; one point is a short line."""
    if len(x) == 1:
        return [{"x": x[0] - 0.1, "x2": x[0] + 0.1, "y": y[0], "y2": y[0], "cluster": cluster}]
    return [{"x": x[i - 1], "y": y[i - 1], "x2": x[i], "y2": y[i], "cluster": cluster} for i in range(1, len(x))]


def _evidence(p: float) -> float:
    return -math.log10(p) if p > 0 else math.inf
