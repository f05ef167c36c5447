"""Every sentence about a clustering: headline, contrast of clusters, notes, and what a reader decides by.

Nothing here decides anything: values come from the result, and no code reads the sentences again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from faultlines import formats
from faultlines.core.custom import Similarity
from faultlines.estimates.estimates import plain
from faultlines.estimates.labels import key_of, name_of, named_by, naming
from faultlines.estimates.reasons import RowWarning
from faultlines.guarantees.margins import equal_attributes, nested_attributes
from faultlines.metrics.names import is_plural, traits_by_effect
from faultlines.metrics.readout import SampleRatio
from faultlines.metrics.table import Adverse
from faultlines.metrics.variances import MODERATED
from faultlines.render.rows import dropped_notes, excluded_notes, level_notes, missing_attribute_notes
from faultlines.render.text import (
    CLUSTERS,
    Document,
    GroupText,
    Hidden,
    NextCommand,
    TextTable,
    find_mismatch,
    name_groups,
    next_note,
    supported_p,
)
from faultlines.results.clustering import Cluster, Clustering
from faultlines.results.effects import COMBINATIONS, Effect
from faultlines.results.multiplicity import CORRECTIONS
from faultlines.results.power import DetectionLimit
from faultlines.results.protocol import NEXT, Note
from faultlines.rows.keys import Bins
from faultlines.rows.request import Arms

AdverseSides = tuple["Adverse | None", ...]  # for each effect, the harmful direction, if that was said
RATIO = "sample ratio"  # the code of the one note that stands before the headline
OVERALL = "overall"  # the code of notes that stand beneath it
EQUALITY = "equality"  # the code of what a null result does not show, which stands there too

_ABOUT_CELLS = frozenset({"membership", "continuum", "overlap"})  # notes on clusters that are not printed
_FEW_CLUSTERS = 3  # clusters of crossed attributes up to which the sentence about them says which attributes matter
NAMED_LEVELS = 3  # levels of an attribute up to which all are named in the headline
_OUTLIER_FROM = 6  # groups from which on one of them can be called an outlier
_FEW_GROUPS = 0.25  # share of the groups up to which a cluster is the exception and the other is "elsewhere"
_MOSTLY = 0.9  # F₁ from which on a rule may stand for a cluster
_CONDITION, _NAMES = 80, 40  # characters in which a cluster is named: by conditions, or as a list of names
_ARMS = 6  # treatments whose overall effect is printed
_SENTENCES = 6  # clusters described one by one
_EFFECTS = 3  # of several effects measured together that are described
_LISTED = 56  # characters of a list of groups
_OVERLAP = 0.05  # of the variation that attributes share, from which on it is said
_WORTH_NAMING = 0.05  # share of the variation from which on combinations are named
_NOISE = 0.05  # p above which an attribute adds nothing that shows to the others
_LINE = 112  # characters in a line of text output
_ROWS = 40  # clusters in a table of text output
_LONGEST_RULE = 120  # characters of a rule in a table of text output
_NUMBERS_OF_CLUSTERS = 4  # p-values of numbers of clusters that are printed
_COUNTS = dict(enumerate("one two three four five six seven eight nine ten".split(), 1))


# ------------------------------------------------------------------------------------------------------- the headline


def headline(c: Clustering) -> str:
    """The result in one sentence, with the number of clusters."""
    groups = c.groups
    adjusted = "" if c.adjustment is None else f", adjusted {supported_p(c, c.log_pvalue_adj)}"
    basis = f"{supported_p(c, c.log_pvalue)}{adjusted}, α = {c.alpha:.3g}"
    if len(groups) == 1:
        return f"There is only one group, so there is nothing to compare (p = 1, α = {c.alpha:.3g})."
    metric = "" if groups.metric == "effect" else f" in {groups.metric}"
    beyond = f" by more than {c.tolerance:g}" if c.tolerance else ""
    if (outlier := outlier_group(c)) is not None:
        name = name_groups(c.population, np.array([outlier]), 80, c.attributes).text
        remaining = f"{formats.count(len(groups) - 1)} {formats.plural(c.attributes)}"
        return f"{name} differs from the other {remaining}{metric}{beyond} ({basis})."
    if c.rejected:
        between = between_levels(c)
        constant = _constant_attributes(c)
        others = [name for name in groups.attributes if name not in {*c.attributes, *constant}]
        if c.additive:
            terms = formats.listed([f"by {' × '.join(term.groups.attributes)}" for term in c.additive])
            crossed = any(len(term.groups.attributes) > 1 for term in c.additive)
            added = _combinations_added(c)
            combined = [] if added else ["further combinations" if crossed else "combinations"]
            rest = nothing_added([*others, *combined], plural=len(others) + len(combined) > 1 or not added)
            return f"{_subject_differs(c)}{beyond} {terms} ({basis}).{rest}{added}{_one_level(constant)}"
        rest = nothing_added(others, plural=len(others) > 1) + _combinations_added(c) + _one_level(constant)
        if rest and c.by_attributes.n_clusters == len(c.by_attributes.groups):  # every level is a cluster of its own
            return f"{_subject_differs(c)}{beyond} between {between} ({basis}).{rest}"
        return (
            f"{_subject_differs(c)}{beyond} between {between} ({basis}). "
            f"Best description: {c.n_clusters} clusters.{rest}{_accounts(c)}"
        )
    between = f"{formats.count(len(groups))} {formats.plural(groups.attributes)}"
    return f"No difference found{metric}{beyond} between {between} ({basis})."


def _constant_attributes(c: Clustering) -> list[str]:
    """Attributes of which all groups have the same level: nothing can be said of them."""
    columns = zip(*c.groups.keys, strict=True)
    return [name for name, column in zip(c.groups.attributes, columns, strict=True) if len(set(column)) == 1]


def _one_level(constant: Sequence[str]) -> str:
    return f" {formats.listed(constant)} {'has' if len(constant) == 1 else 'have'} one level." if constant else ""


def _combinations_added(c: Clustering) -> str:
    """That combinations may matter too, where none is named, and the share of the variation beside it says so.

    What is not named passed one test of all that is left, at its part of α; combinations have a test of their own.
    """
    if c.judged.along is None or _is_crossed(c) or len(c.effect_names) != 1:
        return ""
    row = next((row for row in c.explained() if row.attribute == COMBINATIONS), None)
    if row is None or row.pvalue_adj > c.alpha:
        return ""
    return f" Combinations may matter too ({supported_p(c, math.log(row.pvalue))})."


def _accounts(c: Clustering) -> str:
    """How much each attribute accounts for, where several are needed and the clusters are too many to say it."""
    if len(c.attributes) < 2 or c.n_clusters <= _FEW_CLUSTERS or len(c.effect_names) != 1:
        return ""
    rows = [
        row for row in c.explained() if row.attribute in (*c.attributes, COMBINATIONS) and row.share >= _WORTH_NAMING
    ]
    if not rows:
        return ""
    parts = list[str]()
    for row in sorted(rows, key=lambda row: -row.share):
        is_crossed = row.attribute == COMBINATIONS
        verb = "" if parts else " account" if is_crossed else " accounts"
        base = "" if parts else " of the variation between groups"
        parts.append(f"{'combinations' if is_crossed else row.attribute}{verb} for {formats.share(row.share)}{base}")
    text = ", ".join(parts)
    return f" {text[0].upper()}{text[1:]}."


def nothing_added(names: Sequence[str], *, plural: bool) -> str:
    """What is not needed to describe the differences, as a sentence; nothing where all is needed."""
    if not names:
        return ""
    text = formats.listed(names)
    words = names[0].replace(" ", "")
    if len(words) > 1 and words.isalpha() and words.islower():  # of other columns case is part of the name
        text = f"{text[0].upper()}{text[1:]}"
    return f" {text} {'add' if plural else 'adds'} nothing detectable."


def subject_differs(metric: str, *, plural: bool = False) -> str:
    """A metric as the subject of a headline: ``The lift differs``, ``The equalized odds differ``."""
    return f"The {metric} {'differ' if plural else 'differs'}"


def _subject_differs(c: Clustering) -> str:
    estimates = c.groups.estimates
    return subject_differs(c.groups.metric, plural=estimates is not None and is_plural(estimates.recipe))


def between_levels(c: Clustering) -> str:
    """What the differences are between: few levels by name, many by their number."""
    levels = c.by_attributes
    if len(c.attributes) == 1 and len(levels.groups) <= NAMED_LEVELS and len(c.groups.attributes) > 1:
        column = levels.population.columns[levels.groups.attributes.index(c.attributes[0])]
        return f"{c.attributes[0]} {formats.listed([str(value) for value in column.values])}"
    return f"{formats.count(len(levels.groups))} {formats.plural(c.attributes)}"


def outlier_group(c: Clustering) -> int | None:
    """The place of the one group that differs from all the others, if that is the result."""
    if c.by_attributes is not c:
        return None
    alone = [cluster for cluster in c.clusters if len(cluster.members) == 1]
    if c.n_clusters != 2 or not alone or len(c.groups) < _OUTLIER_FROM:
        return None
    return int(np.flatnonzero(c.labels == alone[0].number)[0])


def contrast(c: Clustering, adverse: AdverseSides = ()) -> str:
    """Which clusters differ and by how much: the outermost in each effect; nothing where none differ.

    Those who are worse off by the nature of the metric come first; that they are is said where a reader said so.
    """
    if not c.rejected or c.groups.estimates is None:
        return ""
    first_sides = _sides(c, adverse)
    if c.additive:
        texts = [_term_sentence(c, term, first_sides[0]) for term in c.additive]
        return " ".join([f"The {formats.printable(c.groups.metric)} by{texts[0][2:]}", *texts[1:]])
    if (small := _small_cluster(c)) is not None:
        return _affected(c, small)
    harmful, neutral, alike, parts = list[str](), list[str](), list[str](), c.groups.estimates.parts
    for i in range(min(len(c.effect_names), _EFFECTS)):
        values = [cluster.effects[i].estimate for cluster in c.clusters]
        low, high = (c.clusters[int(place(values))] for place in (np.argmin, np.argmax))
        metric = formats.printable(parts[i] if parts else c.groups.metric)
        side = adverse[i] if adverse else None
        below, above = low.effects[i], high.effects[i]
        allowed = math.hypot(below.upper - below.estimate, above.estimate - above.lower)  # by both intervals together
        if len(parts) > 1 and not above.estimate - below.estimate > allowed:
            alike.append(metric)
        else:
            (harmful if side else neutral).append(_difference(c, i, metric, low, high, first_sides[i]))
    neutral += [f"no difference is detectable in {formats.listed(alike)}"] if alike else []
    neutral += [f"{len(parts) - _EFFECTS} more effects are below"] if len(parts) > _EFFECTS else []
    first, rest = "; ".join(harmful), "; ".join(neutral)
    return " ".join([f"Worse off: {first}."] * bool(harmful) + [f"{rest[:1].upper()}{rest[1:]}."] * bool(neutral))


def _sides(c: Clustering, adverse: AdverseSides) -> AdverseSides:
    """The harmful direction of each effect: as it was said, else as the metric has it."""
    recipe = "" if c.groups.estimates is None else c.groups.estimates.recipe
    own = [traits.adverse for traits in traits_by_effect(recipe, len(c.effect_names))]
    return tuple(side or mine for side, mine in zip(adverse or own, own, strict=True))


def _small_cluster(c: Clustering) -> int | None:
    """Of two clusters with one effect, the place of one that holds few of the groups, and not most of the units."""
    if c.n_clusters != 2 or len(c.effect_names) != 1:
        return None
    counts = [len(cluster.members) for cluster in c.clusters]
    place = int(np.argmin(counts))
    sizes = [cluster.n or 0.0 for cluster in c.clusters]
    is_few = counts[place] <= _FEW_GROUPS * sum(counts) and sizes[place] <= sizes[1 - place]
    return place if is_few else None


def _affected(c: Clustering, place: int) -> str:
    """The few groups that differ, with their own effect, and the effect elsewhere."""
    cluster, rest = c.clusters[place], c.clusters[1 - place]
    number = c.number_formats[0]
    units = "" if cluster.n is None else f", {formats.count(cluster.n)} {c.counted}"
    size = f"{formats.count(len(cluster.members))} of {formats.count(len(c.groups))} groups{units}"
    honest = shrunken_contrast(c)
    if honest is None:
        effect, elsewhere = (number(side.effects[0].estimate) for side in (cluster, rest))
    else:
        effect, elsewhere = number(honest[place]), number(honest[1 - place])
    names = describe_cluster(c, cluster).text
    return f"The {formats.printable(c.groups.metric)} is {effect} for {names} ({size}); elsewhere {elsewhere}."


def _term_sentence(c: Clustering, term: Clustering, adverse: Adverse | None) -> str:
    """The highest and the lowest levels of a term, as in ``By device: +14% for tv; +4% for the other 2``.

    Those who are worse off come first, if that is known; else the fewer levels of two clusters.
    """
    low, high = term.clusters[0], term.clusters[-1]
    values = shrunken_contrast(term) or (low.effects[0].estimate, high.effects[0].estimate)
    number, texts = term_number(c, term), []
    named = [describe_cluster(term, cluster) for cluster in (low, high)]
    is_short = [name.is_complete and name.is_one for name in named]
    for i, (cluster, value) in enumerate(zip((low, high), values, strict=True)):
        is_larger = 2 * len(cluster.members) > len(term.groups)
        is_rest = term.n_clusters == 2 and not is_short[i] and (is_short[1 - i] or is_larger)
        name = f"the other {len(cluster.members):,}" if is_rest else named[i].text
        texts.append(f"{number(value)} for {name}")
    is_low_first = adverse == "low" if adverse or term.n_clusters > 2 else len(low.members) < len(high.members)
    if not is_low_first:
        texts.reverse()
    more = f" ({term.n_clusters} clusters of levels)" if term.n_clusters > 2 else ""
    return f"By {' × '.join(term.groups.attributes)}: {'; '.join(texts)}{more}."


def term_number(c: Clustering, term: Clustering) -> formats.NumberFormat:
    """How effects of a term of a result are written: with a sign where those of the result have one."""
    effects = [cluster.effects[0] for cluster in term.clusters]
    ends = [end for effect in effects for end in (effect.lower, effect.upper)]
    return c.number_format([effect.se for effect in effects], ends, 0)


def _difference(c: Clustering, part: int, metric: str, low: Cluster, high: Cluster, adverse: Adverse | None) -> str:
    """How far two clusters are apart; it begins with those who are worse off, if that is known."""
    pair = (low, high)
    names = [describe_cluster(c, cluster) for cluster in pair]
    sizes = [f" ({_size(c, cluster)})" if len(c.effect_names) == 1 else "" for cluster in pair]
    texts = [f"{name.text}{size}" for name, size in zip(names, sizes, strict=True)]
    if c.n_clusters == 2:  # of two, one is whatever the other is not
        for i, (name, other) in enumerate(zip(names, names[::-1], strict=True)):
            if other.is_complete and other.is_one and not (name.is_complete and name.is_one):
                texts[i] = f"the other {formats.count(len(pair[i].members))} groups" + (sizes[i] if pair[i].n else "")
    elif len(c.groups.attributes) > 1:  # a part of a list of combinations says nothing about the rest
        for i, (name, end) in enumerate(zip(names, ("lowest", "highest"), strict=True)):
            if not (name.is_complete or name.is_one):
                groups = formats.amount(len(pair[i].members), "group")
                size = "" if pair[i].n is None else f", {_size(c, pair[i])}"
                texts[i] = f"the {end} cluster ({groups}{size})"
    # The distance that the data chose is exaggerated: where there is one effect, that of the groups named is shown.
    honest = shrunken_contrast(c) if len(c.effect_names) == 1 else None
    ends = honest or (low.effects[part].estimate, high.effects[part].estimate)
    if adverse == "low":
        return f"the {metric} is {_gap_with_ratio(c, part, *ends)} lower for {texts[0]} than for {texts[1]}"
    return f"the {metric} is {_gap_with_ratio(c, part, *ends[::-1])} higher for {texts[1]} than for {texts[0]}"


def shrunken_contrast(c: Clustering) -> tuple[float, float] | None:
    """The mean effects of the groups in the lowest and in the highest cluster, as people read them."""
    means, estimates = c.member_means, c.groups.estimates
    if means is None or estimates is None:
        return None
    low, high = (float(estimates.scale.natural(np.array([end]))[0]) for end in (means.estimate[0], means.estimate[-1]))
    # A correction of exaggeration never makes the distance larger.
    widest = c.clusters[-1].effects[0].estimate - c.clusters[0].effects[0].estimate
    return (low, high) if 0 < high - low <= widest else None


def difference_text(c: Clustering, part: int, size: float) -> str:
    """A difference of one of the effects: percentages in points, to three digits; others as the table shows them."""
    if c.groups.estimates is not None and c.groups.estimates.scales[part].is_percent:
        return f"{100 * size:.3g} points"
    return c.number_formats[part](size).removeprefix("+")


def _gap_with_ratio(c: Clustering, part: int, effect: float, other: float) -> str:
    """How far an effect is from another; of amounts, in percent of the other too."""
    estimates = c.groups.estimates
    low, high = min(effect, other), max(effect, other)
    text = difference_text(c, part, high - low)
    is_percent = estimates is not None and estimates.scales[part].is_percent
    is_amount = c.readout is not None and c.readout.metric.arms is None and not is_percent
    return f"{text} ({abs(effect / other - 1):.0%})" if is_amount and low > 0 and high < 10 * low else text


def _size(c: Clustering, cluster: Cluster) -> str:
    """How many units a cluster has; how many groups, where that is not known."""
    if cluster.n is None:
        return formats.amount(len(cluster.members), "group")
    return f"{formats.count(cluster.n)} {c.counted}"


def describe_cluster(c: Clustering, cluster: Cluster) -> GroupText:
    """A cluster in few words: all its groups where that is short, a rule that mostly fits, else the largest of them."""
    places = np.flatnonzero(c.labels == cluster.number)
    room = _CONDITION if len(c.groups.attributes) > 1 else _NAMES
    named = name_groups(c.population, places, room, c.attributes)
    if named.is_complete and len(named.text) <= room:
        return named
    rule = c.rules[cluster.number - 1] if c.has_rules else None
    if rule is not None and rule.fits and not rule.is_rest:
        good = 2 * rule.matches * rule.covers >= _MOSTLY * (rule.matches + rule.covers)
        if good and len(rule.condition) <= _CONDITION:
            return GroupText(rule.condition if rule.exact else f"mostly {rule.condition}", rule.exact, True)
    return GroupText(named.text, False, named.is_one)


# -------------------------------------------------------------------------------------------------------------- notes


def notes(c: Clustering) -> tuple[Note, ...]:
    """What a reader must know beside the table, in the order in which it is read."""
    about_groups = [*attribute_notes(c)]
    if c.groups.estimates is not None:
        about_groups = [
            *average_notes(c),
            *about_groups,
            *interval_notes(c),
            *membership_notes(c, c.alpha),
            *detection_notes(c),
        ]
    about_data = (*data_notes(c), *evidence_notes(c), *_floor_notes(c), *_method_notes(c), *exclusion_notes(c))
    return (*ratio_notes(c), *equality_notes(c), *overall_notes(c), *about_groups, *about_data)


def equality_notes(c: Clustering) -> Iterator[Note]:
    """What it does not mean that no difference was found."""
    if c.verdict == "no difference":
        yield Note(EQUALITY, "This does not show that the groups are equal.")


def next_step(c: Clustering) -> Note | None:
    """What to do about the clusters, or about having found none."""
    if c.verdict == "not testable":
        return _next_of_single(c)
    arms = None if c.readout is None else c.readout.metric.arms
    if c.readout is not None and arms is not None and any(True for _ in ratio_notes(c)):
        return _next_of_mismatch(arms, c.readout.metric.unit, c.by)
    if c.rejected:
        data = "new_estimates" if c.readout is None else "new_rows"
        needs, may_need = (("by", "estimate", "se"), ("n", "dof")) if c.readout is None else ((), ())
        command = NextCommand("confirm", (CLUSTERS, "NEW.csv"), needs, may_need)
        return next_note("confirm the clusters on new data with", f"fl.confirm(c, {data})", command)
    if c.groups.estimates is None:
        return next_note("see what would be detected with", "fl.power(c)", NextCommand("power", ("--help",)))
    command = NextCommand(changes={"certify": "GAP"})
    return next_note("choose a gap that would be acceptable and certify it with", "fl.certify(c, gap=GAP)", command)


def _next_of_single(c: Clustering) -> Note:
    """Include excluded groups, or compare other ones."""
    is_table = c.readout is None
    if c.excluded and not is_table:
        call, command = "fl.cluster(rows, by, metric, min_size=MIN_SIZE)", NextCommand(changes={"min-size": "NUMBER"})
        return next_note("use coarser groups, or include smaller ones with", call, command)
    call = "fl.cluster(other_estimates)" if is_table else "fl.cluster(rows, ATTRIBUTE, metric)"
    return next_note("compare groups of another attribute with", call, NextCommand(changes={"by": "COLUMN"}))


def _next_of_mismatch(arms: Arms, unit: str | None, by: Sequence[str | Bins]) -> Note:
    """Where to look for the cause of a sample ratio mismatch: the call and the command that cluster the shares."""
    names = [attribute if isinstance(attribute, str) else attribute.column for attribute in by]
    call = f"fl.srm(rows, {names[0]!r}" if len(names) == 1 else f"fl.srm(rows, {names!r}"
    call += f", variant={arms.column!r}"
    known = {"by": [_option_of(attribute) for attribute in by], "variant": [arms.column]}
    if unit is not None:
        call += f", unit={unit!r}"
        known["unit"] = [unit]
    if arms.shares is not None:
        shares = {str(arm): share for arm, share in arms.shares}
        call += f", shares={shares!r}"
        known["shares"] = [",".join(f"{arm}={share:g}" for arm, share in shares.items())]
    return next_note("find the cause of the sample ratio mismatch with", f"{call})", find_mismatch(known))


def _option_of(attribute: str | Bins) -> str:
    """An attribute as it is typed after --by."""
    if isinstance(attribute, str):
        return attribute
    if attribute.quantiles is not None:
        return f"{attribute.column}:q{attribute.quantiles}"
    return attribute.column if attribute.width is None else f"{attribute.column}:{attribute.width:g}"


def evidence_notes(c: Clustering) -> Iterator[Note]:
    """The p of each number of clusters: that of the headline belongs to "more than one" alone."""
    if not c.rejected:
        return
    log_p = c.claims.log_pvalues
    # More than two clusters are more than one: of several numbers with the same p, the highest says it all.
    highest = {supported_p(c, float(log_p[i])): i + 1 for i in range(c.n_clusters - 1)}
    shown = list(highest.items())
    if len(shown) > _NUMBERS_OF_CLUSTERS:
        shown = [*shown[: _NUMBERS_OF_CLUSTERS - 1], shown[-1]]
    texts = [f"{p} for more than {_COUNTS.get(count, count)}" for p, count in shown]
    texts[0] += " cluster" if shown[0][1] == 1 else " clusters"
    bound = f"At least {c.at_least} clusters ({formats.level(c.alpha)} confidence)."
    yield Note("evidence", f"{', '.join(texts)} (α = {c.alpha:.3g}). {bound}", fields={"at_least": c.at_least})
    if (spread := c.spread) is not None:
        size, low, high = (difference_text(c, 0, value) for value in (spread.estimate, spread.lower, spread.upper))
        ends = f"{low.removesuffix(' points')} … {high}"
        text = f"Standard deviation between groups: {size} ({interval_name(c)} {ends})."
        fields = {"estimate": spread.estimate, "lower": spread.lower, "upper": spread.upper}
        yield Note("spread", text, fields=fields)


_FLOOR_REASONS = {
    "few events": "so few rows or events of such skewed values",
    "heavy tails": "values with such heavy tails",
    "few degrees of freedom": "so few rows per group",
}


def _floor_notes(c: Clustering) -> Iterator[Note]:
    """Why a very small p is printed as less than something."""
    floor = c.pvalue_floor
    if floor is not None and c.log_pvalue < math.log(floor.pvalue):
        smallest = formats.pvalue(math.log(floor.pvalue))
        text = f"p < {smallest}: {_FLOOR_REASONS[floor.reason]} cannot support a smaller p-value."
        yield Note("smallest p", text, fields={"floor": floor.pvalue, "reason": floor.reason})


def _method_notes(c: Clustering) -> Iterator[Note]:
    for text in c.guarantee.notes(c.groups, c.judged.facts):
        yield Note("method", text)
    estimates = c.groups.estimates
    if estimates is not None and estimates.recipe == MODERATED and estimates.dof is not None:
        dof = float(np.median(estimates.dof))
        text = f"Standard errors are moderated by those of all groups (median degrees of freedom {dof:.0f})."
        yield Note("moderated", text, fields={"dof": dof})
    if c.adjustment is not None:
        how = CORRECTIONS[c.adjustment.correction]
        yield Note("correction", f"The adjusted p allows for {c.adjustment.results:,} results ({how}).")
    if c.rejected and _clusters_overlap(c):
        yield Note(
            "overlap",
            "Clusters overlap: a precisely estimated group can be distinguished where an imprecise one with the same "
            "estimate cannot.",
        )


def data_notes(c: Clustering) -> Iterator[Note]:
    """Warnings about the rows, but for sample ratios, which stand first."""
    if c.readout is not None:
        yield from other_notes(c.readout.warnings)


def ratio_notes(c: Clustering) -> Iterator[Note]:
    """A sample ratio mismatch: effects cannot be trusted before its cause is known."""
    if c.readout is not None:
        yield from mismatch_notes(c.readout.warnings)


def mismatch_notes(warnings: Iterable[Note | SampleRatio | RowWarning]) -> Iterator[Note]:
    """Of what was noticed in rows, a sample ratio mismatch: it stands before the headline."""
    yield from warning_notes(warning for warning in warnings if isinstance(warning, SampleRatio))


def other_notes(warnings: Iterable[Note | SampleRatio | RowWarning]) -> Iterator[Note]:
    """Of what was noticed in rows, all but a sample ratio mismatch."""
    yield from warning_notes(warning for warning in warnings if not isinstance(warning, SampleRatio))


def warning_notes(warnings: Iterable[Note | SampleRatio | RowWarning]) -> Iterator[Note]:
    """What was noticed in rows."""
    for warning in warnings:
        if isinstance(warning, SampleRatio):
            yield sample_ratio_note(warning)
        elif isinstance(warning, RowWarning):
            yield Note(warning.code, warning.text, "warning", warning.fields)
        else:
            yield warning


def sample_ratio_note(ratio: SampleRatio) -> Note:
    """Where the arms of an experiment do not have the shares that are expected, and why these are expected."""
    where = describe_place(ratio.where) or "all groups together"
    unit = ratio.unit.replace(" or ", " and ")
    shares = f"{formats.share(ratio.share, 1)} of {formats.count(ratio.n)} {unit} are in {ratio.arm}"
    why = "as planned" if ratio.planned else "the share in all other groups, since no shares are given"
    text = (
        f"Sample ratio mismatch in {where}: {shares}, {formats.share(ratio.expected, 1)} expected ({why}; "
        f"{formats.p_is(ratio.log_pvalue)}). Check assignment and logging there before you read effects."
    )
    return Note(RATIO, text, "warning", ratio.to_dict())


def overall_notes(c: Clustering) -> Iterator[Note]:
    """What each treatment did in all groups together, with its p."""
    where = f" in the {formats.count(len(c.groups))} groups that are compared" if c.excluded else " overall"
    for arm in c.arm_effects:
        texts = []
        for i, (name, effect, p) in enumerate(zip(_metric_names(c), arm.effects, arm.pvalues, strict=True)):
            number = c.number_format([effect.se], [effect.estimate, effect.lower, effect.upper], i)
            interval = f"{formats.level(c.alpha)} interval {number.interval(effect.lower, effect.upper)}"
            effect_name = f"{name} " if len(arm.effects) > 1 else ""  # a single one is named in the headline
            texts.append(f"{effect_name}{number(effect.estimate)} ({interval}, {formats.p_is(math.log(p))})")
        text = f"{name_of(arm.treatment)} against {name_of(arm.control)}{where}: {'; '.join(texts)}."
        fields = {"treatment": str(arm.treatment), "control": str(arm.control), "pvalue": plain(arm.pvalues)}
        yield Note(OVERALL, text, fields=fields)


def average_notes(c: Clustering) -> Iterator[Note]:
    """That the overall is the mean of the groups' values, where the value in all rows is another one."""
    mean = tuple(effect.estimate for effect in c.overall.effects)
    total = c.in_all_rows
    if total is None or np.allclose(mean, total, rtol=1e-9):
        return
    texts = []
    for i, (name, effect, value) in enumerate(zip(_metric_names(c), c.overall.effects, total, strict=True)):
        number = c.number_format([effect.se], [effect.estimate, value], i)
        texts.append(
            f"The {name} in all rows is {number(value)}. The overall here, {number(effect.estimate)}, is the mean of "
            "the values within groups."
        )
    yield Note("overall of groups", formats.printable(" ".join(texts)), fields={"mean": mean, "in_all_rows": total})


def _metric_names(c: Clustering) -> tuple[str, ...]:
    """What each effect is."""
    return c.effect_names if len(c.effect_names) > 1 else (c.groups.metric,)


def describe_place(where: Sequence[tuple[str, Any]]) -> str:
    """Levels of attributes in words: ``country AT, browser Safari``."""
    return ", ".join(f"{attribute} {level}" for attribute, level in where)


def interval_notes(c: Clustering) -> Iterator[Note]:
    """What the effects and intervals of the clusters are, where there are several."""
    if not c.rejected or c.groups.estimates is None:
        return
    if c.guarantee.intervals_hold:
        yield Note("intervals", "Effects are those of the held-out data, which did not choose the clusters.")
    elif c.tolerance > 0:
        yield Note("intervals", "Intervals are descriptive: the same data chose the clusters.")
    elif c.additive:
        yield Note("intervals", "Intervals assume that the numbers of clusters are right.")
    else:
        yield Note("intervals", f"Intervals assume that {c.n_clusters} is the right number of clusters.")
    yield from contrast_notes(c)
    if c.is_continuum and not c.additive:
        text = (
            "The effects vary gradually (a continuum); cluster borders are not sharp. Read the clusters as a summary."
        )
        yield Note("continuum", text, "warning")


def contrast_notes(c: Clustering) -> Iterator[Note]:
    """Why the sentence above and the table show different effects, wherever they do."""
    if len(c.effect_names) != 1:
        return
    if c.additive:
        if any(_shrunken_gap(term, term_number(c, term)) for term in c.additive):
            text = "Effects in the sentence above are corrected for the choice of groups; those in the table are not."
            yield Note("contrast", text)
        return
    honest, part = shrunken_contrast(c), 0
    if honest is None:
        return
    observed = c.clusters[-1].effects[0].estimate - c.clusters[0].effects[0].estimate
    texts = [difference_text(c, part, size) for size in (observed, honest[1] - honest[0])]
    if texts[0] != texts[1]:
        text = f"Highest minus lowest cluster: {texts[0]}. Corrected for the choice of groups: about {texts[1]}."
        yield Note("contrast", text, fields={"observed": observed, "corrected": honest[1] - honest[0]})


def _shrunken_gap(term: Clustering, number: formats.NumberFormat) -> bool:
    """Whether the sentence about a term shows other effects than its table."""
    honest = shrunken_contrast(term)
    ends = (term.clusters[0].effects[0].estimate, term.clusters[-1].effects[0].estimate)
    return honest is not None and any(number(a) != number(b) for a, b in zip(honest, ends, strict=True))


def membership_notes(c: Clustering, alpha: float) -> Iterator[Note]:
    """Which groups could belong to another cluster than the one they are shown in, at the level 1 − α."""
    attributes, c = c.attributes, c.by_attributes
    if not c.rejected or c.clusters[0].pooled.possible is None:
        return
    uncertain = np.flatnonzero(~c.certain_at(alpha))
    if not uncertain.size:
        text = f"Membership probability is at least {formats.level(alpha)} for every group."
        yield Note("membership", text, fields={"uncertain": 0})
        return
    room = _LISTED if len(c.groups.attributes) == 1 else 2 * _LISTED
    names = name_groups(c.population, uncertain, room, attributes).text  # the largest first: a decision is about them
    of_all = f"{formats.count(uncertain.size)} of {formats.count(len(c.groups))} {formats.plural(attributes)}"
    yield Note("membership", f"Uncertain membership ({of_all}): {names}.", fields={"uncertain": int(uncertain.size)})


def detection_notes(c: Clustering) -> Iterator[Note]:
    """What a result without clusters does not rule out."""
    for i, limit in enumerate(c.detection_limits):
        for code, text in _detection_texts(c, i, limit):
            yield Note(code, text)


def _detection_texts(c: Clustering, part: int, limit: DetectionLimit) -> Iterator[tuple[str, str]]:
    of_effect = f" in {limit.effect}" if limit.effect else ""
    where, name = "above" if limit.is_above else "below", named_by(limit.group, c.groups.attributes)
    largest = difference_text(c, part, limit.largest_difference)
    yield (
        "largest difference",
        f"Largest difference not ruled out{of_effect}: {largest} {where} the overall "
        f"({formats.level(limit.alpha)} confidence; widest: {name}).",
    )
    if not limit.simulated:
        yield "minimum detectable", f"Minimum detectable difference{of_effect}: not simulated here; use fl.power."
        return
    texts = []
    for size, share in ((limit.half_of_groups, "half the groups differ"), (limit.one_group, "one does")):
        texts.append(f"{'none' if size is None else difference_text(c, part, size)} if {share}")
    text = f"Minimum detectable difference{of_effect}: {', '.join(texts)} ({limit.power:.0%} power)."
    yield "minimum detectable", text


# --------------------------------------------------------------------------------------------------------- attributes


def attribute_notes(c: Clustering) -> Iterator[Note]:
    """Which attributes add nothing, what each accounts for, and which are nested."""
    if len(c.groups.attributes) < 2:
        return
    if c.groups.estimates is None:
        yield from _untested_notes(c)
        return
    for names in equal_attributes(c.groups):
        text = f"The groups are divided by {formats.listed(names)} in the same way."
        yield Note("equal attributes", text, fields={"attributes": list(names)})
    nested = nested_attributes(c.groups)
    for finer, coarser in nested:
        text = f"Every {finer} belongs to one {coarser}."
        yield Note("nested attributes", text, fields={"finer": finer, "coarser": coarser})
    for text in _explained_texts(c, {name for name, _ in nested}) if c.rejected else ():
        yield Note("explained", text)
    yield from _untested_notes(c)
    if c.additive:
        text = (
            "Each effect is at the average mix of the other attributes. Crossed, the levels form "
            f"{c.n_clusters} clusters of {formats.count(len(c.by_attributes.groups))} combinations."
        )
        yield Note("additive", text, fields={"terms": [list(term.groups.attributes) for term in c.additive]})


def _untested_notes(c: Clustering) -> Iterator[Note]:
    """That single attributes were not tested, why, and what would test them."""
    if c.judged.along is not None or "margins" in c.judged.facts or len(c.groups) < 2:
        return
    reason, remedy = "margins off", ""
    if c.tolerance > 0:
        reason, remedy = "tolerance", " Leave out the tolerance to test single attributes."
    elif isinstance(c.groups, Similarity):
        reason = "comparison" if c.groups.compiled is None else "counts"
        remedy = " To test single attributes, give rows or standard errors."
    elif c.guarantee.name != "calibrated" or not c.judged.facts["scan"]:
        reason, remedy = "error control", " Use the default error control to test single attributes."
    text = "Single attributes were not tested: the groups were compared as unordered combinations."
    if c.rejected and c.groups.estimates is not None:  # their shares stand above, with p that no error control covers
        text = "The groups were compared as unordered combinations. The p of single attributes are descriptive."
    yield Note("margins", f"{text}{remedy}", fields={"reason": reason})


def _explained_texts(c: Clustering, finer: Set[str]) -> list[str]:
    """What the attributes account for, in one sentence for each effect.

    Args:
        c: The result.
        finer: Attributes that are nested in others, of which only what they add is said.
    """
    texts, least = [], 0.0 if _is_crossed(c) else _WORTH_NAMING
    rows = [row for row in c.explained() if row.levels > 1]
    for part in dict.fromkeys(row.part for row in rows):
        shares = {row: row.share_beside if row.attribute in finer else row.share for row in rows if row.part == part}
        shares = {
            row: share
            for row, share in shares.items()
            if row.attribute != COMBINATIONS or (share > 0 and share >= least)
        }
        # What is nested follows what it is nested in, in the order of the attributes.
        ranked = sorted(
            shares, key=lambda row: (row.attribute == COMBINATIONS, row.attribute in finer, -shares[row] * (not finer))
        )
        named = []
        for row in ranked:
            name = "combinations" if row.attribute == COMBINATIONS else row.attribute
            share = f"{'adds ' if row.attribute in finer else ''}{formats.share(shares[row])}"
            if row.attribute not in finer and row.pvalue > _NOISE and row.share > 0:  # p is that of what it adds
                share += f" alone, {formats.share(row.share_beside)} beside the others"
            named.append(f"{name} {share} ({supported_p(c, math.log(row.pvalue))})")
        of_part = f" in {part}" if part else ""
        shared = sum(row.share - row.share_beside for row in shares if row.attribute not in finer)
        is_shared = sum(shares.values()) > 1 + _OVERLAP and shared > _OVERLAP  # the first may be noise
        overlap = " Shares overlap because the attributes are related." if is_shared else ""
        texts.append(f"Share of the variation between groups{of_part}: {', '.join(named)}.{overlap}")
    return texts


def _is_crossed(c: Clustering) -> bool:
    """Whether the headline says that attributes matter in combination."""
    sets = [term.groups.attributes for term in c.additive] or [c.attributes]
    return any(len(names) > 1 for names in sets)


# ----------------------------------------------------------------------------------------------------------- excluded


def exclusion_notes(c: Clustering) -> Iterator[Note]:
    """Dropped rows, missing attributes, levels that may be none, and excluded groups."""
    yield from dropped_notes(c.dropped, c.missing_values)
    yield from missing_attribute_notes(c.missing_values, c.groups.attributes)
    yield from level_notes([*c.groups.keys, *(key_of(group.label) for group in c.excluded)], c.groups.attributes)
    yield from excluded_notes(c.groups, c.excluded, c.counted)
    remainder = None if c.groups.estimates is None else c.groups.estimates.remainder
    if remainder is not None and c.judged.along is not None:
        count = formats.amount(remainder.groups, "excluded group")
        text = f"The rows of {count} still count where attributes are tested, pooled with other small groups."
        yield Note("pooled groups", text, fields={"groups": remainder.groups})


def _clusters_overlap(c: Clustering) -> bool:
    """Whether some cluster is no interval of estimates."""
    c = c.by_attributes
    estimates = c.groups.estimates
    if estimates is None or estimates.dims > 1:
        return False
    along = c.labels[np.argsort(estimates.values[:, 0], kind="stable")]
    return bool(np.any(np.diff(along) < 0))


# ---------------------------------------------------------------------------------------------- what is decided by it


@dataclass(frozen=True, slots=True)
class ClusterSentence:
    """One cluster: its groups, its size and effect, and whether it is worse off, if that can be said."""

    cluster: int
    groups: str
    size: str
    effect: str
    standing: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The result in the order in which it is decided by.

    Attributes:
        lead: Which clusters differ and by how much; the headline where nothing differs.
        clusters: The clusters by rising effect; of many, the outermost.
        between: How many clusters between them are not described.
        evidence: How sure that is.
        uncertain: What is uncertain: groups of uncertain membership, and excluded groups.
    """

    lead: str
    clusters: tuple[ClusterSentence, ...]
    between: int
    evidence: tuple[str, ...]
    uncertain: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "lead": self.lead,
            "clusters": [
                {"cluster": row.cluster, "groups": row.groups, "size": row.size, "effect": row.effect}
                | ({"standing": row.standing} if row.standing else {})
                for row in self.clusters
            ],
            "evidence": list(self.evidence),
            "uncertain": list(self.uncertain),
        }


def decide(c: Clustering, adverse: AdverseSides = (), level: float | None = None) -> Decision:
    """What a reader decides by.

    Args:
        c: The result.
        adverse: For each effect, the harmful direction.
        level: α of uncertain membership; by default that of the result.
    """
    level = c.alpha if level is None else level
    standing = harm_statuses(c, adverse)
    described = list(range(c.n_clusters))
    if len(described) > _SENTENCES:
        described = [*described[: _SENTENCES // 2], *described[-_SENTENCES // 2 :]]
    membership = [note.text for note in membership_notes(c, level)]
    is_uncertain = not c.certain_at(level).all()
    lead = contrast(c, adverse)
    evidence = [*([c.headline] if lead else []), *overall_lines(c)]
    evidence += [] if is_uncertain else membership
    evidence += [note.text for some in (evidence_notes(c), interval_notes(c), data_notes(c)) for note in some]
    # Detection limits take a moment to compute: they are told of the result's own level alone.
    limits = [note.text for note in detection_notes(c)] if level == c.alpha else []
    uncertain = [
        *(note.text for note in equality_notes(c)),
        *limits,
        *(membership if is_uncertain else []),
        *(note.text for note in exclusion_notes(c)),
    ]
    uncertain += [] if c.excluded or c.dropped else ["No group was excluded and no row was dropped."]
    sentences = [_cluster_sentence(c, i, standing[i]) for i in described] if c.rejected else []
    return Decision(
        lead or c.headline,
        tuple(sentences),
        len(standing) - len(described),
        tuple(map(formats.printable, evidence)),
        tuple(uncertain),
    )


def _cluster_sentence(c: Clustering, place: int, standing: str) -> ClusterSentence:
    cluster = c.clusters[place]
    effects = list(zip(c.number_formats, cluster.effects, strict=bool(cluster.effects)))
    texts = [f"{number(e.estimate)} ({number.interval(e.lower, e.upper)})" for number, e in effects]
    if len(texts) > 1:  # several are too long with their intervals, which are in the table
        names = map(formats.printable, c.effect_names)
        texts = [f"{name} {number(e.estimate)}" for name, (number, e) in zip(names, effects, strict=True)]
    groups = formats.amount(len(cluster.members), "group")
    size = groups if cluster.n is None else f"{groups}, {_size(c, cluster)}"
    return ClusterSentence(cluster.number, describe_cluster(c, cluster).text, size, ", ".join(texts), standing)


def harm_statuses(c: Clustering, adverse: AdverseSides) -> list[str]:
    """For each cluster whether it is worse or better off than all groups together; nothing where that is not clear.

    A cluster is worse off where the whole interval of its effect lies on the harmful side of the overall effect.
    """
    texts = []
    for cluster in c.clusters:
        worse, better = [], []
        for i, side in enumerate(adverse):
            if side is None or not c.rejected or not cluster.effects:
                continue
            effect, overall = cluster.effects[i], c.overall.effects[i].estimate
            below, above = effect.upper < overall, effect.lower > overall
            name = f" in {formats.printable(c.effect_names[i])}" if len(adverse) > 1 else ""
            worse += [name] * (below if side == "low" else above)
            better += [name] * (above if side == "low" else below)
        standing = [f"worse off{' and'.join(worse)}"] if worse else []
        standing += [f"better off{' and'.join(better)}"] if better else []
        texts.append(", ".join(standing))
    return texts


# --------------------------------------------------------------------------------------------------- the table of text


def document(c: Clustering, *, complete: bool = False) -> Document:
    """The parts of a clustering as text; `complete` is without bars but with all clusters and members."""
    opening = [*(f"Warning: {note.text}" for note in ratio_notes(c)), c.headline, *filter(None, [contrast(c)])]
    opening += [*(note.text for note in equality_notes(c)), *overall_lines(c)]
    skipped = {RATIO, OVERALL, EQUALITY, NEXT, *(_ABOUT_CELLS if c.additive and not complete else ())}
    closing = [note.text for note in c.notes if note.code not in skipped]
    hidden: dict[Hidden, int] = {"treatment": len(c.arm_effects) - _ARMS} if len(c.arm_effects) > _ARMS else {}
    if c.verdict == "no difference":  # one cluster of all groups says nothing that the overall effect does not
        return Document(opening, [], [*_overall_effect(c), *closing], hidden)
    tables = [_term_table(c, complete=complete)] if c.additive else []
    if complete or not tables:
        tables.append(_cluster_table(c, complete=complete))
    return Document(opening, tables, closing, hidden)


def overall_lines(c: Clustering) -> list[str]:
    """What each treatment did in all groups together; of many treatments, the first."""
    return [note.text for note in overall_notes(c)][:_ARMS]


def _overall_effect(c: Clustering) -> list[str]:
    """The effect in all groups together, where no line about a treatment says it."""
    if c.arm_effects:
        return []
    lines, several = list[str](), len(c.effect_names) > 1
    for name, number, effect in zip(c.effect_names, c.number_formats, c.overall.effects, strict=False):
        interval = f"{interval_name(c)} {number.interval(effect.lower, effect.upper)}"
        of_effect = f" in {name}" if several else ""
        lines.append(f"Overall effect{of_effect}: {number(effect.estimate)} ({interval}).")
    return lines


def interval_name(c: Clustering) -> str:
    """Header of intervals."""
    return f"{formats.level(c.alpha)} interval"


def effect_cells(c: Clustering, cluster: Cluster) -> list[str]:
    """Estimate and interval of each effect, as text."""
    return _cells(c, cluster.effects)


def _cells(c: Clustering, effects: Sequence[Effect]) -> list[str]:
    cells = []
    for number, effect in zip(c.number_formats, effects, strict=bool(effects)):
        cells += [number(effect.estimate), number.interval(effect.lower, effect.upper)]
    return cells


def observed_cells(c: Clustering, cluster: Cluster) -> list[str]:
    """The effect on the people of a cluster and its interval, as text; dashes where it is not known."""
    if not observed_headers(c):
        return []
    return _cells(c, cluster.observed_effects) or ["–", "–"] * len(c.effect_names)


def observed_headers(c: Clustering) -> list[str]:
    """Their headers; none where effects on people are not known."""
    if not any(cluster.observed_effects for cluster in c.clusters):
        return []
    several = len(c.effect_names) > 1
    return [h for name in c.effect_names for h in (f"observed {name}" if several else "observed", interval_name(c))]


def effect_headers(c: Clustering) -> list[str]:
    """Their headers."""
    return [header for name in c.effect_names for header in (name, interval_name(c))]


def _term_table(c: Clustering, *, complete: bool) -> TextTable:
    """The levels of each term whose effects add up; levels that are not shown to differ together."""
    pairs = [(term, cluster) for term in c.additive for cluster in term.clusters]
    bars = [] if complete else _bars([cluster.effects[0] for _, cluster in pairs])
    has_sizes = c.groups.n is not None
    header = ["by", *effect_headers(c), *([""] if bars else []), *(["n"] if has_sizes else []), "levels"]
    rows = []
    for i, (term, cluster) in enumerate(pairs):
        name = " × ".join(term.groups.attributes)
        is_repeated = i > 0 and pairs[i - 1][0] is term and not complete
        number, effect = term_number(c, term), cluster.effects[0]
        interval = number.interval(effect.lower, effect.upper)
        row = ["" if is_repeated else name, number(effect.estimate), interval, *bars[i : i + 1]]
        row += [formats.count(cluster.n or 0)] if has_sizes else []
        rows.append([*row, members(term, cluster.number - 1, 10**9 if complete else _LISTED)])
    right = set(range(1, len(header) - 1)) - ({3} if bars else set())
    return TextTable(header, rows, right)


def _cluster_table(c: Clustering, *, complete: bool = False) -> TextTable:
    """The table of clusters; `complete` is without bars but with all clusters and members."""
    shown = list(range(len(c.clusters)))
    if len(shown) > _ROWS and not complete:
        shown = [*shown[: _ROWS // 2], *shown[-_ROWS // 2 :]]
    bars = None
    if not complete and len(c.effect_names) == 1:
        bars = _bars([cluster.effects[0] for cluster in c.clusters])
    header = [
        "cluster",
        *effect_headers(c),
        *([""] if bars else []),
        "groups",
        *(["n"] if c.groups.n is not None else []),
    ]
    rows = []
    for i in shown:
        cluster = c.clusters[i]
        row = [str(i + 1), *effect_cells(c, cluster), *([bars[i]] if bars else []), formats.count(len(cluster.members))]
        rows.append(row + ([formats.count(cluster.n or 0)] if c.groups.n is not None else []))
    width = len(header)
    header += _described(c, rows, shown, header, complete=complete)
    if len(rows) < len(c.clusters):
        more = f"{len(c.clusters) - len(rows):,} more clusters"
        rows.insert(_ROWS // 2, ["…", *[""] * (width - 1), more, *[""] * (len(header) - width - 1)])
    return TextTable(header, rows, set(range(width)) - ({3} if bars else set()))


def rule_or_members(c: Clustering, i: int, room: int) -> str:
    """The rule of a cluster; its largest groups where no short rule fits it, or names say as much."""
    if not c.has_rules:
        return members(c, i, room)
    rule = c.rules[i]
    return str(rule) if rule.fits else f"{rule}: {members(c, i, max(room - len(rule) - 2, 30))}"


def members(c: Clustering, i: int, room: int) -> str:
    """The largest groups of a cluster, in about `room` characters."""
    return name_groups(c.population, np.flatnonzero(c.labels == i + 1), room, c.attributes).text


def _bars(effects: Sequence[Effect]) -> list[str]:
    """Intervals as small drawings on one scale."""
    ends = [end for effect in effects for end in (effect.lower, effect.upper)]
    return [formats.bar(e.lower, e.estimate, e.upper, (min(ends), max(ends))) for e in effects]


def _described(
    c: Clustering, rows: list[list[str]], shown: list[int], header: list[str], *, complete: bool
) -> list[str]:
    """Add rules or members to the rows, as far as there is room; their headers."""
    used = sum(max(len(row[i]) for row in [header, *rows]) + 2 for i in range(len(header)))
    columns = ["rule"] if c.rejected and c.has_rules else []
    columns += ["members"] if complete or not columns else []
    room = 10**9 if complete else max(_LINE - used, 30)
    for row, i in zip(rows, shown, strict=True):
        if "rule" in columns:
            is_long = len(c.rules[i]) > _LONGEST_RULE
            row.append(str(c.rules[i]) if complete else (members if is_long else rule_or_members)(c, i, room))
        if "members" in columns:
            row.append(
                formats.members(c.clusters[i].members, naming(c.groups.attributes), room)
                if complete
                else members(c, i, room)
            )
    return columns
