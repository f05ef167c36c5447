"""What a reader decides by: who differs, how much, how sure that is, and what the result cannot see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from faultlines import checks, text
from faultlines.result.rules import OTHERS
from faultlines.result.who import Who, who

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.result.clusters import Cluster
    from faultlines.result.summary import Summary

Adverse = Literal["low", "high"]
SIDES: tuple[Adverse, ...] = ("low", "high")
Harm = tuple[Adverse | None, ...]  # for each effect, on which side people are worse off, if that was said

_MOSTLY = 0.9  # F₁ from which on a rule may stand for a cluster
_SHORT, _NAMES = 80, 40  # characters in which a cluster is named: by conditions, or as a list of names
_SHOWN = 6  # clusters named one by one
_EFFECTS = 3  # of several measured together that are told


@dataclass(frozen=True, slots=True)
class Side:
    """One cluster: who is in it, what effect it has, and whether its people are worse off, if that can be said."""

    cluster: int
    who: str
    size: str
    effect: str
    standing: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The result in the order in which it is decided by.

    Attributes:
        lead: Which clusters differ and how much, in a sentence; the verdict where nothing differs.
        sides: The clusters by rising effect; of many, the outermost.
        between: How many clusters between them are left out.
        sure: How sure that is.
        unseen: What it cannot see: groups that could be in another cluster, and groups left out.
    """

    lead: str
    sides: tuple[Side, ...]
    between: int
    sure: tuple[str, ...]
    unseen: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "lead": self.lead,
            "clusters": [
                {"cluster": one.cluster, "who": one.who, "size": one.size, "effect": one.effect}
                | ({"standing": one.standing} if one.standing else {})
                for one in self.sides
            ],
            "sure": list(self.sure),
            "unseen": list(self.unseen),
        }


def decide(summary: Summary, harm: Harm = (), level: float | None = None) -> Decision:
    """What a reader decides by.

    Args:
        summary: The result.
        harm: For each effect, whether people are worse off where it is low or high.
        level: α at which groups could be in another cluster; by default that of the result.
    """
    level = summary.alpha if level is None else level
    told = standings(summary, harm)
    shown = list(range(len(summary.clusters)))
    if len(shown) > _SHOWN:
        shown = [*shown[: _SHOWN // 2], *shown[-_SHOWN // 2 :]]
    membership = summary.membership_words(level)
    unsure = not summary.sure_at(level).all()
    lead = contrast(summary, harm)
    sure = [summary.verdict] if lead else []
    sure += [] if unsure else membership
    sure += [*summary.interval_words, *summary.notes_of("warning")]
    # What would have been seen takes a moment to compute: it is told of the claim alone.
    reach = summary.reach_words if level == summary.alpha else []
    unseen = [*reach, *(membership if unsure else []), *summary.notes_of("left out")]
    unseen += [] if summary.excluded or summary.dropped else ["No group and no row was left out."]
    sides = [_side(summary, i, told[i]) for i in shown] if summary.rejected else []
    return Decision(
        lead or summary.verdict, tuple(sides), len(told) - len(shown), tuple(map(text.printable, sure)), tuple(unseen)
    )


def contrast(summary: Summary, harm: Harm = ()) -> str:
    """Which clusters differ and how much: the outermost clusters in each effect; nothing where none differ."""
    if not summary.rejected or summary.estimates is None:
        return ""
    worse, plain, parts = list[str](), list[str](), summary.estimates.parts
    for i in range(min(len(summary.effect_names), _EFFECTS)):
        values = [cluster.effects[i].estimate for cluster in summary.clusters]
        low, high = (summary.clusters[int(place(values))] for place in (np.argmin, np.argmax))
        measure = text.printable(parts[i] if parts else summary.groups.measure)
        adverse = harm[i] if harm else None
        (worse if adverse else plain).append(_apart(summary, i, measure, low, high, adverse))
    plain += [f"{len(parts) - _EFFECTS} more effects are below"] if len(parts) > _EFFECTS else []
    first, rest = "; ".join(worse), "; ".join(plain)
    return " ".join([f"Worse off: {first}."] * bool(worse) + [f"{rest[:1].upper()}{rest[1:]}."] * bool(plain))


def standings(summary: Summary, harm: Harm) -> list[str]:
    """For each cluster whether its people are worse or better off than all together; nothing where that is not clear.

    A cluster is worse off where the whole interval of its effect lies on the side said to be adverse of the effect on
    all people.
    """
    made = []
    for cluster in summary.clusters:
        worse, better = [], []
        for i, adverse in enumerate(harm):
            if adverse is None or not summary.rejected or not cluster.effects:
                continue
            effect, of_all = cluster.effects[i], summary.overall.effects[i].estimate
            below, above = effect.upper < of_all, effect.lower > of_all
            name = f" in {text.printable(summary.effect_names[i])}" if len(harm) > 1 else ""
            worse += [name] * (below if adverse == "low" else above)
            better += [name] * (above if adverse == "low" else below)
        told = [f"worse off{' and'.join(worse)}"] if worse else []
        told += [f"better off{' and'.join(better)}"] if better else []
        made.append(", ".join(told))
    return made


def harms_of(
    adverse: Adverse | Mapping[str, Adverse] | None, results: Sequence[Summary], names: Sequence[str]
) -> list[Harm]:
    """For each effect of each result, on which side people are worse off.

    Args:
        adverse: One side for all effects, or a side by the name of an effect, of what is measured or of the result.
        results: The results.
        names: What they are called.

    Raises:
        InputError: If it is neither a side nor sides by names that there are.
    """
    sides: Mapping[str, Adverse] = {}
    if isinstance(adverse, Mapping):
        sides = adverse
    elif adverse is not None:
        checks.choice("adverse", adverse, SIDES, "Use 'low' or 'high'.")
        sides = dict.fromkeys(names, adverse)
    known = {*names, *(name for s in results for name in (s.groups.measure, *_parts(s)))}
    for name, side in sides.items():
        checks.choice("adverse: name", name, sorted(known))
        checks.choice(f"adverse[{name!r}]", side, SIDES, "Use 'low' or 'high'.")
    made = []
    for s, called in zip(results, names, strict=False):
        whole = sides.get(called, sides.get(s.groups.measure))
        made.append(tuple(sides.get(name, whole) for name in s.effect_names))
    return made


def _parts(summary: Summary) -> tuple[str, ...]:
    return summary.estimates.parts if summary.estimates is not None else ()


# ------------------------------------------------------------------------------------------------------------ words


def _side(summary: Summary, place: int, standing: str) -> Side:
    cluster = summary.clusters[place]
    effects = list(zip(summary.numbers, cluster.effects, strict=bool(cluster.effects)))
    told = [f"{number(one.estimate)} ({number(one.lower)} … {number(one.upper)})" for number, one in effects]
    if len(told) > 1:  # several are too long with their intervals, which are in the table
        names = map(text.printable, summary.effect_names)
        told = [f"{name} {number(one.estimate)}" for name, (number, one) in zip(names, effects, strict=True)]
    groups = f"{text.count(len(cluster.members))} group{'s' * (len(cluster.members) != 1)}"
    size = groups if cluster.n is None else f"{groups}, {_people(summary, cluster)}"
    return Side(cluster.number, _described(summary, cluster).words, size, ", ".join(told), standing)


def _apart(summary: Summary, part: int, measure: str, low: Cluster, high: Cluster, adverse: Adverse | None) -> str:
    """How far two clusters are apart; it begins with those who are worse off, if that is known."""
    pair = (low, high)
    names = [_described(summary, one) for one in pair]
    sizes = [f" ({_people(summary, one)})" for one in pair]
    if len(summary.effect_names) > 1:  # several effects leave no room for them
        sizes = ["", ""]
    told = [f"{name.words}{size}" for name, size in zip(names, sizes, strict=True)]
    if len(summary.clusters) == 2:  # of two, one is whatever the other is not
        for i, (one, other) in enumerate(zip(names, names[::-1], strict=True)):
            if other.whole and "; " not in other.words and (not one.whole or "; " in one.words):
                rest = f"the other {text.count(len(pair[i].members))} groups"
                told[i] = rest if pair[i].n is None else f"{rest}{sizes[i]}"
    gap = _gap(summary, part, low.effects[part].estimate, high.effects[part].estimate)
    if adverse == "low":
        return f"the {measure} is {gap} lower for {told[0]} than for {told[1]}"
    return f"the {measure} is {gap} higher for {told[1]} than for {told[0]}"


def _gap(summary: Summary, part: int, low: float, high: float) -> str:
    """How far apart two effects are; of amounts, in per cent too."""
    shown = summary.gap(part, high - low)
    is_amount = summary.readout is not None and summary.readout.metric.arms is None and not shown.endswith("points")
    return f"{shown} ({high / low - 1:.0%})" if is_amount and low > 0 and high < 10 * low else shown


def _people(summary: Summary, cluster: Cluster) -> str:
    """How many people a cluster has; how many groups, where that is not known."""
    if cluster.n is None:
        count = len(cluster.members)
        return f"{text.count(count)} group{'s' * (count != 1)}"
    return f"{text.count(cluster.n)} {summary.counted}"


def _described(summary: Summary, cluster: Cluster) -> Who:
    """A cluster in few words: all its groups where that is short, a rule that mostly fits, else the largest of them."""
    places = np.flatnonzero(summary.labels == cluster.number)
    room = _SHORT if len(summary.groups.attributes) > 1 else _NAMES
    named = who(summary.population, places, room)
    if named.whole and len(named.words) <= room:
        return named
    rule = summary.rules[cluster.number - 1] if summary.has_rules else None
    if rule is not None and rule.fits and not rule.startswith(OTHERS):
        bare = rule.partition(" (matches ")[0]
        if 2 * rule.matches * rule.covers >= _MOSTLY * (rule.matches + rule.covers) and len(bare) <= _SHORT:
            return Who(bare if rule.exact else f"mostly {bare}", rule.exact)
    return Who(named.words, False)
