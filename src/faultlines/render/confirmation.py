"""Every sentence about a confirmation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from faultlines import formats
from faultlines.estimates.labels import Label, naming
from faultlines.metrics.names import parse_recipe
from faultlines.metrics.table import METRICS
from faultlines.render.clustering import RATIO, mismatch_notes, other_notes
from faultlines.render.rows import dropped_notes, missing_attribute_notes
from faultlines.render.text import (
    FILES,
    OF_METRIC,
    Document,
    NextCommand,
    TextTable,
    cluster_again,
    name_groups,
    next_note,
)
from faultlines.results.confirmation import Confirmation, ConfirmedPair
from faultlines.results.effects import Effect
from faultlines.results.protocol import Note
from faultlines.results.rules import Population

_LISTED = 56  # characters of a list of groups
_MEMBERS = 40  # characters of members in the table


def headline(result: Confirmation) -> str:
    """The result in one sentence."""
    metric = "" if result.metric == "effect" else f" in {result.metric}"
    metric += f" by more than {result.tolerance:g}" if result.tolerance else ""
    basis = f"{formats.p_is(result.log_pvalue)}, α = {result.alpha:g}"
    confirmed = sum(pair.verdict == "confirmed" for pair in result.pairs)
    share = f"{confirmed} of {len(result.pairs)} differences between neighboring clusters"
    if result.verdict == "confirmed":
        text = f"Confirmed: the {len(result.clusters)} clusters differ again{metric} on new data ({basis})."
    elif result.verdict == "not confirmed" and len(result.pairs) > 1:
        text = f"Not confirmed: {share} were confirmed{metric} on new data ({basis})."
    elif result.verdict == "not confirmed":
        text = f"Not confirmed: the clusters do not differ again{metric} on new data ({basis})."
    elif absent := _absent(result):
        text = f"Inconclusive: no group of cluster {formats.either(absent)} is in the new data."
    else:
        some = f" {share} were confirmed." if confirmed else ""
        text = f"Inconclusive: the new data are too few to show whether the clusters differ{metric} ({basis}).{some}"
    return formats.printable(text)


def _absent(result: Confirmation) -> list[str]:
    """The numbers of clusters without a group in the new data."""
    return [str(cluster.number) for cluster in result.clusters if not cluster.members]


def notes(result: Confirmation) -> Iterator[Note]:
    """Each pair of neighbouring clusters in a sentence, and what a reader must know beside it."""
    yield from mismatch_notes(result.warnings)
    for pair in result.pairs:
        fields = {"first": pair.first, "second": pair.second, "verdict": pair.verdict}
        yield Note("pair", formats.printable(_pair_text(result, pair)), fields=fields)
    for cluster in result.clusters:
        if cluster.log_pvalue_equal < math.log(result.alpha):
            p = formats.p_is(cluster.log_pvalue_equal)
            text = f"The groups of cluster {cluster.number} differ from each other ({p}): its effect is an average."
            yield Note("differences within", text, fields={"cluster": cluster.number})
    yield from other_notes(result.warnings)
    yield from dropped_notes(result.dropped, result.missing_values)
    yield from missing_attribute_notes(result.missing_values, result.estimates.attributes)
    if result.new:
        names = formats.members(result.new, naming(result.estimates.attributes), _LISTED)
        text = f"New groups, in no cluster ({formats.count(len(result.new))}): {names}."
        yield Note("new groups", text, fields={"groups": len(result.new)})
    reasons: dict[str, list[Label]] = {}
    for group in result.missing:
        reasons.setdefault(str(group.reason), []).append(group.label)
    for reason, labels in reasons.items():
        names = formats.members(labels, naming(result.estimates.attributes), _LISTED)
        text = f"Missing groups ({formats.count(len(labels))}, {reason}): {names}."
        yield Note("missing groups", text, fields={"groups": len(labels)})


def next_step(result: Confirmation) -> Note | None:
    """Use the new effects, search again, or plan for enough data."""
    if result.verdict == "confirmed":
        call = 'confirmation.to_pandas("clusters")'
        written = NextCommand(changes={"json": "confirmation.json"})
        return next_note("decide by the effects in the new data; get them with", call, written)
    if result.verdict == "not confirmed":
        call, command = "fl.cluster(all_rows, by, metric)", cluster_again("OLD.csv", FILES)
        return next_note("search old and new rows together with", call, command)
    if _absent(result):
        groups = formats.members(
            [group.label for group in result.missing], naming(result.estimates.attributes), _LISTED
        )
        return next_note(f"add rows of {groups}, and confirm again with", "fl.confirm(found, rows)", NextCommand())
    call = "fl.power(confirmation.estimates)"
    known = _known_options(result)
    if not result.estimates.recipe:
        command = NextCommand("power", needs=("by", "se"), may_need=("n",))
    elif known:
        command = NextCommand("power", needs=("by", *known), known=known)
    else:
        command = NextCommand("power", needs=("by", "metric", "variant", "control"), may_need=OF_METRIC)
    return next_note("see how many more rows it takes with", call, command)


def _known_options(result: Confirmation) -> dict[str, list[str]]:
    """The options of the metric of a model, which the saved clusters know; nothing of other metrics."""
    recipe = parse_recipe(result.estimates.recipe)
    name, arguments = recipe.get("name"), recipe.get("arguments")
    if (
        not isinstance(name, str)
        or name not in METRICS
        or METRICS[name].family != "model"
        or not isinstance(arguments, dict)
    ):
        return {}
    options = {key.replace("_", "-"): [str(value)] for key, value in arguments.items() if value is not True}
    return {"metric": [name], **options}


def _pair_text(result: Confirmation, pair: ConfirmedPair) -> str:
    """Two neighbouring clusters in a sentence."""
    start = f"Clusters {pair.first} and {pair.second}:"
    if not pair.differences:
        both = (result.clusters[pair.first - 1], result.clusters[pair.second - 1])
        absent = formats.either([str(cluster.number) for cluster in both if not cluster.members])
        return f"{start} no group of cluster {absent} is in the new data: inconclusive."
    texts = []
    parts = [f"{part} " for part in result.estimates.parts] or [""]
    for part, scale, old, new in zip(
        parts, result.estimates.scales, pair.original_differences, pair.differences, strict=True
    ):
        unit: formats.Unit = " points" if scale.is_percent else ""
        number = formats.decimals([new.se if new.se > 0 else 1.0], [old, new.lower, new.upper], False, unit)
        interval = f"{formats.level(result.alpha)} interval {number.interval(new.lower, new.upper)}"
        share = f"{new.estimate / old:.0%} of it, " if old else ""
        texts.append(f"{part}difference {number(new.estimate)}, {number(old)} originally ({share}{interval})")
    power = ""
    if pair.verdict == "inconclusive":
        power = f"; half of it would have been detected with a probability of {formats.share(pair.power)}"
    return f"{start} {'; '.join(texts)}, {formats.p_is(pair.log_pvalue)}: {pair.verdict}{power}."


def document(result: Confirmation, *, complete: bool = False) -> Document:
    """The parts of a confirmation as text; `complete` is with all members."""
    table = _cluster_table(result, 10**9 if complete else _MEMBERS)
    opening = [*(f"Warning: {note.text}" for note in mismatch_notes(result.warnings)), result.headline]
    return Document(opening, [table], [note.text for note in notes(result) if note.code != RATIO])


def _cluster_table(result: Confirmation, room: int) -> TextTable:
    formatters, names = _number_formats(result), result.estimates.parts or ("effect",)
    interval = f"{formats.level(result.alpha)} interval"
    has_observed = len(names) == 1 and any(cluster.observed_effects for cluster in result.clusters)
    has_sizes = result.estimates.n is not None
    header = ["cluster"]
    for name in names:
        header += ["original", name, interval]
    header += [*["observed"] * has_observed, "groups", *["n"] * has_sizes, "equal effects", "members"]
    rows = []
    for cluster in result.clusters:
        row = [str(cluster.number)]
        for i, number in enumerate(formatters):
            row += [number(cluster.original_effects[i]), *_effect_cells(cluster.effects[i : i + 1], number)]
        row += [_effect_cells(cluster.observed_effects, formatters[0])[0]] * has_observed
        row += [formats.count(len(cluster.members)), *[formats.count(cluster.n or 0)] * has_sizes]
        equal = formats.p_is(cluster.log_pvalue_equal) if len(cluster.members) > 1 else "–"
        rows.append([*row, equal, _members(result, cluster.number, room) or "–"])
    return TextTable(header, rows, set(range(len(header) - 1)))


def _members(result: Confirmation, number: int, room: int) -> str:
    """The groups of a cluster: those of several attributes by the levels that they share."""
    keys, attributes = result.estimates.keys, result.estimates.attributes
    places = np.flatnonzero(np.array(result.labels) == number)
    if len(attributes) > 1 and places.size:
        return name_groups(Population(keys, attributes, result.estimates.n), places, room).text
    return formats.members(result.clusters[number - 1].members, naming(attributes), room)


def _number_formats(result: Confirmation) -> list[formats.NumberFormat]:
    """How each effect is written."""
    chosen = []
    for i, scale in enumerate(result.estimates.scales):
        effects = [cluster.effects[i] for cluster in result.clusters if cluster.effects]
        values = [end for effect in effects for end in (effect.lower, effect.upper)]
        values += [cluster.original_effects[i] for cluster in result.clusters]
        errors = [effect.se for effect in effects if effect.se > 0] or [1.0]
        chosen.append(formats.decimals(errors, values, any(value < 0 for value in values), scale.unit))
    return chosen


def _effect_cells(effects: Sequence[Effect], number: formats.NumberFormat) -> list[str]:
    """Estimate and interval as text; dashes where there is none."""
    if not effects:
        return ["–", "–"]
    return [number(effects[0].estimate), number.interval(effects[0].lower, effects[0].upper)]
