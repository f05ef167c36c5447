"""One summary of one cut, computed once: text, Markdown, JSON, notebook, picture and page only read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from faultlines import text
from faultlines.estimates.labels import labels_of, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from faultlines.comparison.base import Comparison
    from faultlines.estimates.estimates import Estimates, Excluded, IntArray
    from faultlines.estimates.labels import Label
    from faultlines.guarantees.base import Guarantee, Judged
    from faultlines.result.clusters import Cluster
    from faultlines.result.explained import Explained
    from faultlines.result.finding import Finding
    from faultlines.result.rules import Population, Rule

_MOSTLY = 0.9  # F₁ from which on a rule may stand for a cluster
_LISTED = 56  # characters of a list of groups left out

NoteKind = Literal["method", "intervals", "left out"]


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence that a reader must know beside the table, and what it is about."""

    kind: NoteKind
    text: str


@dataclass(frozen=True, eq=False)
class Summary:
    """Everything the outputs say about one result at one level.

    What takes time and is not in every output (rules, explained attributes, the overall effect) is computed when first
    asked for, and once.
    """

    verdict: str
    notes: tuple[Note, ...]
    alpha: float
    log_pvalue: float
    clusters: tuple[Cluster, ...]
    labels: IntArray
    groups: Comparison
    judged: Judged
    guarantee: Guarantee
    refine: bool
    excluded: tuple[Excluded, ...]
    dropped: Mapping[str, int]
    fingerprint: Callable[[], str]
    _overall: Callable[[], Cluster]
    _explained: Callable[[], tuple[Explained, ...]]

    @property
    def rejected(self) -> bool:
        """Whether clusters differ."""
        return len(self.clusters) > 1

    @property
    def estimates(self) -> Estimates | None:
        """Estimates of the groups, where there are some."""
        return self.groups.estimates

    @property
    def group_labels(self) -> Sequence[Label]:
        """Labels of the groups."""
        return labels_of(self.groups.keys)

    @property
    def population(self) -> Population:
        """The groups by the values of their attributes."""
        return self.clusters[0].population

    @property
    def effect_names(self) -> tuple[str, ...]:
        """Headers of the effects: none, "effect", or the names of several."""
        if self.estimates is None:
            return ()
        return self.estimates.parts or ("effect",)

    @property
    def interval_name(self) -> str:
        """Header of intervals."""
        return f"{text.level(self.alpha)} interval"

    @cached_property
    def numbers(self) -> tuple[Callable[[float], str], ...]:
        """How each effect is written: with two digits of the smallest standard error of a cluster."""
        return tuple(self._number(i) for i in range(len(self.effect_names)))

    def _number(self, part: int) -> Callable[[float], str]:
        effects = [cluster.effects[part] for cluster in self.clusters]
        ends = [end for effect in effects for end in (effect.lower, effect.upper)]
        return self.number_for([effect.se for effect in effects if effect.se > 0] or [1.0], ends, part)

    def number_for(self, errors: Sequence[float], values: Sequence[float], part: int) -> Callable[[float], str]:
        """A format for other numbers of the same effect; a plus sign only where some values are negative."""
        estimates = self.estimates
        signed = estimates is not None and bool(np.any(estimates.shown[:, part] < 0))
        percent = estimates is not None and estimates.scales[part].is_percent
        return text.decimals(errors, values, signed, percent)

    @cached_property
    def overall(self) -> Cluster:
        """All groups as one cluster."""
        return self._overall()

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rule of every cluster."""
        return tuple(cluster.rule for cluster in self.clusters)

    @cached_property
    def explained(self) -> tuple[Explained, ...]:
        """How much each attribute explains."""
        return self._explained()

    @cached_property
    def has_rules(self) -> bool:
        """Whether rules say more than lists of names."""
        return self.population.reads_better_as_rules([cluster.members for cluster in self.clusters])

    @cached_property
    def contrast(self) -> str:
        """How far the outermost clusters are apart, in words."""
        return _contrast(self)


def summarize(found: Finding) -> Summary:
    """The summary of a result at its level."""
    return Summary(
        verdict(found),
        tuple(_notes(found)),
        found.alpha,
        found.log_pvalue,
        found.clusters,
        found.labels,
        found.groups,
        found.judged,
        found.guarantee,
        found.refine,
        found.excluded,
        found.dropped,
        lambda: found.fingerprint,
        lambda: found.overall,
        found.explained,
    )


def verdict(found: Finding) -> str:
    """The result in one sentence."""
    return text.printable(_verdict(found))


def _verdict(found: Finding) -> str:
    groups = found.groups
    by = " × ".join(groups.attributes)
    named = f"{text.count(len(groups))} groups" + ("" if by == "group" else f" by {by}")
    what = "" if groups.measure == "effect" else f" in {groups.measure}"
    what += f" by more than {found.tolerance:g}" if found.tolerance else ""
    basis = f"{text.p_is(found.log_pvalue)}, {found.guarantee.name}, α = {found.alpha:.3g}"
    if len(groups) == 1:
        return f"There is only one group, so there is nothing to compare (p = 1, α = {found.alpha:.3g})."
    if found.rejected:
        return f"{found.n_clusters} clusters of {named} differ{what} ({basis})."
    return f"No difference{what} between {named} can be claimed ({basis})."


def _notes(found: Finding) -> list[Note]:
    """What a reader must know beside the table."""
    notes = [Note("method", words) for words in found.guarantee.notes(found.groups, found.judged.facts)]
    if found.rejected and not found.guarantee.intervals_hold and found.groups.estimates is not None:
        notes.append(Note("intervals", "Intervals are descriptive: the same data chose the clusters."))
    notes += [Note("left out", f"Left out: {count:,} {reason}.") for reason, count in found.dropped.items()]
    reasons: dict[str, list[Label]] = {}
    for left in found.excluded:
        reasons.setdefault(left.reason, []).append(left.label)
    for reason, labels in reasons.items():
        names = text.members(labels, name_of, _LISTED)
        notes.append(Note("left out", f"Left out, {reason}: {names} ({text.count(len(labels))})."))
    return notes


# ------------------------------------------------------------------------------------------------------- in few words


def _contrast(summary: Summary) -> str:
    """How far the outermost clusters are apart, in words."""
    if not summary.rejected or summary.estimates is None:
        return ""
    clusters, estimates = summary.clusters, summary.estimates
    if estimates.parts:
        told = []
        for i, part in enumerate(estimates.parts):
            values = [cluster.effects[i].estimate for cluster in clusters]
            told.append(f"{part} by {_gap(summary, i, max(values) - min(values))}")
        return f"Between its clusters, {', '.join(told)} at most."
    low, high = clusters[0], clusters[-1]
    gap = _gap(summary, 0, high.effects[0].estimate - low.effects[0].estimate)
    return (
        f"The {summary.groups.measure} is {gap} higher for {_described(summary, high, highest=True)} than for "
        f"{_described(summary, low, highest=False)}."
    )


def _gap(summary: Summary, part: int, gap: float) -> str:
    """A difference of effects: of those in per cent, in points."""
    if summary.estimates is not None and summary.estimates.scales[part].is_percent:
        return f"{100 * gap:.0f} points" if gap >= 0.095 else f"{100 * gap:.2g} points"
    return summary.numbers[part](gap).removeprefix("+")


def _described(summary: Summary, cluster: Cluster, *, highest: bool) -> str:
    """A cluster in few words: its rule where that fits and says more, else its members from the outermost on."""
    if not summary.has_rules:
        return text.members(cluster.members[::-1] if highest else cluster.members, name_of, 40)
    number = len(summary.clusters) if highest else 1
    rule = summary.rules[number - 1]
    if rule.exact and len(rule) <= 80:
        return str(rule)
    fits = 2 * rule.precision * rule.recall >= _MOSTLY * (rule.precision + rule.recall)
    if fits and len(rule) <= 110:
        return f"mostly {rule}"
    return f"{text.count(len(cluster.members))} groups (cluster {number})"
