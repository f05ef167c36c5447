"""One summary of one cut, computed once: text, Markdown, JSON, notebook, picture and page only read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from faultlines import text
from faultlines.estimates.labels import labels_of
from faultlines.estimates.scales import Scale
from faultlines.result.belief import sure_of
from faultlines.result.explained import explained_notes, explained_words
from faultlines.result.leftout import left_out_by_value, left_out_words
from faultlines.result.multiplicity import CORRECTIONS
from faultlines.result.rest import rest_of
from faultlines.result.unseen import unseen_words
from faultlines.result.who import who

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from faultlines.comparison.base import Comparison
    from faultlines.estimates.estimates import BoolArray, Estimates, Excluded, IntArray
    from faultlines.estimates.labels import Label
    from faultlines.guarantees.base import Guarantee, Judged
    from faultlines.metrics.readout import Readout
    from faultlines.result.belief import Belief
    from faultlines.result.clusters import Cluster
    from faultlines.result.explained import Explained
    from faultlines.result.finding import Finding
    from faultlines.result.leftout import LeftOut
    from faultlines.result.multiplicity import Adjustment
    from faultlines.result.rest import Rest
    from faultlines.result.rules import Population, Rule
    from faultlines.result.unseen import Unseen
    from faultlines.rows.bins import Bins
    from faultlines.tree.path import Path

_SEVERAL = 6  # groups from which on one of them can be said to stand apart from the others

NoteKind = Literal["method", "warning", "intervals", "membership", "attributes", "reach", "left out"]


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence that a reader must know beside the table, and what it is about."""

    kind: NoteKind
    text: str


@dataclass(frozen=True, eq=False)
class Summary:
    """Everything the outputs say about one result at one level.

    What takes time and is not in every output (rules, explained attributes, the overall effect, what would have been
    seen) is computed when first asked for, and once.
    """

    verdict: str
    _notes: tuple[Note, ...]
    alpha: float
    log_pvalue: float
    clusters: tuple[Cluster, ...]
    labels: IntArray
    groups: Comparison
    judged: Judged
    claims: Path
    adjustment: Adjustment | None
    guarantee: Guarantee
    refine: bool
    excluded: tuple[Excluded, ...]
    dropped: Mapping[str, int]
    readout: Readout | None
    by: tuple[str | Bins, ...]
    fingerprint: Callable[[], str]
    _overall: Callable[[], Cluster]
    _explained: Callable[[], tuple[Explained, ...]]
    _unseen: Callable[[], tuple[Unseen, ...]]

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

    def gap(self, part: int, size: float) -> str:
        """A difference of one of the effects in words: of those in per cent, in points."""
        if self.estimates is not None and self.estimates.scales[part].is_percent:
            return f"{100 * size:.0f} points" if size >= 0.095 else f"{100 * size:.2g} points"
        return self.numbers[part](size).removeprefix("+")

    @cached_property
    def overall(self) -> Cluster:
        """All groups as one cluster."""
        return self._overall()

    @property
    def belief(self) -> Belief | None:
        """What to believe of each group, where there are estimates."""
        return self.clusters[0].pooled.belief

    def sure_at(self, alpha: float) -> BoolArray:
        """Whether each group can be in no other cluster than its own, at the level 1 − α; all are, without estimates.

        A page keeps the level of its claim for what it says of groups, whichever cut is looked at.
        """
        possible = self.clusters[0].pooled.at(alpha).possible
        return np.ones(len(self.groups), dtype=bool) if possible is None else sure_of(possible)

    def membership_words(self, alpha: float) -> list[str]:
        """Which groups could belong to another cluster than the one they are shown in, at the level 1 − α."""
        if not self.rejected or self.clusters[0].pooled.possible is None:
            return []
        unsure = np.flatnonzero(~self.sure_at(alpha))
        if not unsure.size:
            return [f"Every group is in its cluster with a chance of {text.level(alpha)} or more."]
        room = 56 if len(self.groups.attributes) == 1 else 112
        names = who(self.population, unsure, room).words  # the largest come first: they are what a decision is about
        of_all = f"{text.count(unsure.size)} of {text.count(len(self.groups))} groups"
        return [f"Could be in another cluster too ({of_all}, at {text.level(alpha)}): {names}."]

    @cached_property
    def rest(self) -> Rest | None:
        """Every group against all the others together, where there are several groups with estimates."""
        if self.estimates is None or len(self.groups) < 2:
            return None
        return rest_of(self.estimates, self.alpha)

    @cached_property
    def left_out(self) -> tuple[LeftOut, ...]:
        """How many people are in groups left out, by the values of the attributes."""
        return left_out_by_value(self.groups, self.excluded)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rule of every cluster."""
        return tuple(cluster.rule for cluster in self.clusters)

    @cached_property
    def explained(self) -> tuple[Explained, ...]:
        """How much each attribute explains."""
        return self._explained()

    @cached_property
    def explained_words(self) -> tuple[str, ...]:
        """The same in words, where there are differences to explain."""
        return tuple(explained_words(self.explained)) if self.rejected else ()

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """What a reader must know beside the table."""
        if self.estimates is None:
            return self._notes
        told = explained_notes(self.estimates, self.population, self.explained, self.alpha, rejected=self.rejected)
        notes = [Note("attributes", words) for words in told]
        notes += [Note("intervals", words) for words in self.interval_words]
        notes += [Note("membership", words) for words in self.membership_words(self.alpha)]
        notes += [Note("reach", words) for words in self.reach_words]
        return (*notes, *self._notes)

    @property
    def interval_words(self) -> list[str]:
        """What the effects and intervals of the clusters are, where there are several."""
        return [_reading(self)] if self.rejected and self.estimates is not None else []

    @property
    def reach_words(self) -> list[str]:
        """What is left possible where no difference can be claimed, in words."""
        return [text.printable(words) for words in unseen_words(self.unseen, self.gap, self.groups.attributes)]

    def notes_of(self, kind: NoteKind) -> list[str]:
        """Notes that need nothing else to be computed: about the method, the rows, and what was left out."""
        return [note.text for note in self._notes if note.kind == kind]

    @cached_property
    def unseen(self) -> tuple[Unseen, ...]:
        """What is left possible where no difference can be claimed, effect by effect."""
        return self._unseen()

    @cached_property
    def has_rules(self) -> bool:
        """Whether rules say more than lists of names."""
        return self.population.reads_better_as_rules(self.labels)

    @property
    def counted(self) -> str:
        """What the sizes of groups count."""
        return counted(self.groups, self.readout)


def summarize(found: Finding, unseen: Callable[[], tuple[Unseen, ...]]) -> Summary:
    """The summary of a result at its level; `unseen` says what it leaves possible, if it is asked."""
    return Summary(
        verdict(found),
        tuple(_notes(found)),
        found.alpha,
        found.log_pvalue,
        found.clusters,
        found.labels,
        found.groups,
        found.judged,
        found.claims,
        found.adjustment,
        found.guarantee,
        found.refine,
        found.excluded,
        found.dropped,
        found.readout,
        found.by,
        lambda: found.fingerprint,
        lambda: found.overall,
        found.explained,
        unseen,
    )


def counted(groups: Comparison, readout: Readout | None) -> str:
    """What the sizes of groups count: people, where nothing else is known."""
    if readout is not None:
        return readout.metric.size_unit.replace(" or ", " and ")
    return Scale.counted if groups.estimates is None else groups.estimates.scale.counted


def verdict(found: Finding) -> str:
    """The result in one sentence."""
    return text.printable(_verdict(found))


def _verdict(found: Finding) -> str:
    groups = found.groups
    by = " × ".join(groups.attributes)
    named = f"{text.count(len(groups))} groups" + ("" if by == "group" else f" by {by}")
    what = "" if groups.measure == "effect" else f" in {groups.measure}"
    what += f" by more than {found.tolerance:g}" if found.tolerance else ""
    adjusted = "" if found.adjustment is None else f", adjusted {text.p_is(found.log_pvalue_adj)}"
    basis = f"{text.p_is(found.log_pvalue)}{adjusted}, {found.guarantee.name}, α = {found.alpha:.3g}"
    if len(groups) == 1:
        return f"There is only one group, so there is nothing to compare (p = 1, α = {found.alpha:.3g})."
    alone = [cluster for cluster in found.clusters if len(cluster.members) == 1]
    if found.n_clusters == 2 and alone and len(groups) >= _SEVERAL:
        others = f"{text.count(len(groups) - 1)} others" + ("" if by == "group" else f" by {by}")
        name = who(found.population, np.flatnonzero(found.labels == alone[0].number), 80).words
        return f"{name} stands apart from {others}{what} ({basis}); the others do not differ detectably."
    if found.rejected:
        return f"{found.n_clusters} clusters of {named} differ{what} ({basis})."
    return f"No difference{what} between {named} can be claimed ({basis})."


def _notes(found: Finding) -> list[Note]:
    """What a reader must know beside the table."""
    notes = [Note("method", words) for words in found.guarantee.notes(found.groups, found.judged.facts)]
    if found.adjustment is not None:
        how = CORRECTIONS[found.adjustment.correction]
        notes.append(Note("method", f"The adjusted p allows for {found.adjustment.results:,} results ({how})."))
    if found.rejected and _overlap(found):
        notes.append(
            Note(
                "method",
                "Clusters overlap along the effect: a precise group can be told apart where an imprecise one cannot.",
            )
        )
    if found.readout is not None:
        notes += [Note("warning", words) for words in found.readout.warnings]
    notes += [Note("left out", f"Left out: {count:,} {reason}.") for reason, count in found.dropped.items()]
    unit = counted(found.groups, found.readout)
    notes += [Note("left out", words) for words in left_out_words(found.groups, found.excluded, unit)]
    return notes


def _reading(summary: Summary) -> str:
    """What the effects and intervals of the clusters are."""
    if summary.guarantee.intervals_hold:
        return "Effects are those of the held-out data, which did not choose the clusters."
    if summary.groups.tolerance > 0:
        return "Intervals are descriptive: the same data chose the clusters."
    return "Effects are levels of the clusters; their intervals hold where the number of clusters is right."


def _overlap(found: Finding) -> bool:
    """Whether some cluster is no interval of estimates."""
    estimates = found.groups.estimates
    if estimates is None or estimates.dims > 1:
        return False
    along = found.labels[np.argsort(estimates.values[:, 0], kind="stable")]
    return bool(np.any(np.diff(along) < 0))
