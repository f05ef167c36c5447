"""What `fl.confirm` returns: clusters on fresh data, beside what they were found as, in words and as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from faultlines import checks, text
from faultlines.estimates.estimates import plain
from faultlines.estimates.labels import labels_of, name_of
from faultlines.result.finding import probability
from faultlines.result.tables import Columns, Rows, Tabular, dicts_of, json_text, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faultlines.estimates.estimates import Estimates
    from faultlines.estimates.labels import Label
    from faultlines.result.effects import Effect

Verdict = Literal["confirmed", "not confirmed", "cannot tell"]
_KINDS: tuple[Rows, ...] = ("groups", "clusters", "pairs")
_LISTED = 56  # characters of a list of groups
_MEMBERS = 40  # characters of members in the table


class Missing(NamedTuple):
    """A group of the clusters that is not in the fresh data, its cluster, and why."""

    label: Label
    cluster: int
    reason: str


@dataclass(frozen=True, slots=True)
class ConfirmedCluster:
    """One of the clusters on fresh data.

    Attributes:
        number: Its number among the clusters that were found.
        members: Labels of its groups in the fresh data.
        found_effects: Each effect as it was when the cluster was found.
        effects: Each effect on fresh data, pooled by precision, with its plain interval; none where no group is there.
        observed_effects: Each effect on its people in the fresh data; none where neither rows nor sizes are known.
        n: Total size in the fresh data, where sizes are known.
        log_pvalue_alike: Natural logarithm of `pvalue_alike`.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> again = fl.confirm(found, fl.Estimates([0.2, 0.0, 4.0], [0.4, 0.4, 0.4], ["DE", "FR", "IN"]))
        >>> first = again.clusters[0]
        >>> first.members, round(first.found, 2), round(first.estimate, 2), [round(end, 2) for end in first.ci]
        (('FR', 'DE'), 0.05, 0.1, [-0.45, 0.65])
        >>> round(first.pvalue_alike, 2)
        0.72
    """

    number: int
    members: tuple[Label, ...]
    found_effects: tuple[float, ...]
    effects: tuple[Effect, ...]
    observed_effects: tuple[Effect, ...]
    n: float | None
    log_pvalue_alike: float

    @property
    def found(self) -> float | tuple[float, ...]:
        """The effect as it was when the cluster was found; a tuple for several effects."""
        return plain(self.found_effects)  # type: ignore[no-any-return]

    @property
    def estimate(self) -> float | tuple[float, ...] | None:
        """The effect on fresh data: the precision-weighted mean of its groups."""
        return plain([effect.estimate for effect in self.effects]) if self.effects else None

    @property
    def ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Its interval at the level 1 − α: plain, because other data chose the cluster."""
        return plain([(effect.lower, effect.upper) for effect in self.effects]) if self.effects else None

    @property
    def pvalue_alike(self) -> float:
        """The p of "its groups are alike" on fresh data (Cochran's Q)."""
        return probability(self.log_pvalue_alike)


@dataclass(frozen=True, slots=True)
class ConfirmedPair:
    """Two neighbouring clusters on fresh data.

    Attributes:
        first: Number of the first.
        second: Number of the second.
        found_differences: Each effect of the second less that of the first, as they were found.
        differences: The same on fresh data, with plain intervals; none where one of them has no group there.
        log_pvalue: Natural logarithm of `pvalue`.
        power: The chance with which half of the difference that was found would have been seen in the fresh data.
        verdict: ``"confirmed"``, ``"not confirmed"`` or ``"cannot tell"``.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> again = fl.confirm(found, fl.Estimates([0.2, 0.0, 4.0], [0.4, 0.4, 0.4], ["DE", "FR", "IN"]))
        >>> pair = again.pairs[0]
        >>> pair.verdict, round(pair.difference, 2), [round(end, 2) for end in pair.ci], round(pair.kept, 2)
        ('confirmed', 3.9, [2.94, 4.86], 0.79)
        >>> pair.pvalue < 1e-10
        True
    """

    first: int
    second: int
    found_differences: tuple[float, ...]
    differences: tuple[Effect, ...]
    log_pvalue: float
    power: float
    verdict: Verdict

    @property
    def pvalue(self) -> float:
        """The p of "they do not differ" on fresh data (Welch's test)."""
        return probability(self.log_pvalue)

    @property
    def difference(self) -> float | tuple[float, ...] | None:
        """The difference on fresh data; a tuple for several effects."""
        return plain([one.estimate for one in self.differences]) if self.differences else None

    @property
    def ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Its interval at the level 1 − α."""
        return plain([(one.lower, one.upper) for one in self.differences]) if self.differences else None

    @property
    def kept(self) -> float | tuple[float | None, ...] | None:
        """The share of the difference that came back: 1 where all of it did, below 0 where it turned round."""
        return plain(self._kept()) if self.differences else None

    def _kept(self) -> list[float | None]:
        both = zip(self.differences, self.found_differences, strict=True)
        return [new.estimate / old if old else None for new, old in both]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Confirmation(Tabular):
    """Clusters that were found on other data, looked at on fresh ones: what `fl.confirm` returns.

    Attributes:
        verdict: ``"confirmed"``: all neighbouring clusters differ on fresh data, in the order in which they were found.
            ``"not confirmed"``: some pair does not, although half of its old difference would have been seen with a
            chance of 80%, or it differs the other way round. ``"cannot tell"``: the fresh data are too few.
        log_pvalue: Natural logarithm of `pvalue`.
        alpha: The level of the verdicts, and one less that of the intervals.
        clusters: The clusters, in the order in which they were found.
        pairs: Neighbouring clusters, compared.
        estimates: The fresh estimates of the groups that are in clusters.
        labels: The cluster of each of them.
        new: Groups of the fresh data that are in no cluster.
        missing: Groups of the clusters that are not in the fresh data, each with its reason.
        measure: What was measured.
        tolerance: Differences up to this do not count.
        warnings: What a reader must know about the fresh rows.
        dropped: Reason → number of fresh rows left out.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> again = fl.confirm(found, fl.Estimates([0.2, 0.0, 4.0], [0.4, 0.4, 0.4], ["DE", "FR", "IN"]))
        >>> again.verdict, again.confirmed, again.pvalue < 1e-10
        ('confirmed', True, True)
        >>> again.headline
        'Confirmed: the 2 clusters differ on fresh data as they were found (p < 1e-10, α = 0.05).'
        >>> len(again.sentences), again.notes()
        (2, [])
        >>> again.to_dict()["verdict"], len(again.to_json()) > 100
        ('confirmed', True)
    """

    verdict: Verdict
    log_pvalue: float
    alpha: float
    clusters: tuple[ConfirmedCluster, ...]
    pairs: tuple[ConfirmedPair, ...]
    estimates: Estimates
    labels: tuple[int, ...]
    new: tuple[Label, ...]
    missing: tuple[Missing, ...]
    measure: str
    tolerance: float
    warnings: tuple[str, ...]
    dropped: tuple[tuple[str, int], ...]

    @property
    def confirmed(self) -> bool:
        """Whether the verdict is ``"confirmed"``."""
        return self.verdict == "confirmed"

    @property
    def pvalue(self) -> float:
        """The p of "the clusters do not differ" on fresh data: one test of all of them, exact for known se."""
        return probability(self.log_pvalue)

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        what = "" if self.measure == "effect" else f" in {self.measure}"
        what += f" by more than {self.tolerance:g}" if self.tolerance else ""
        basis = f"{text.p_is(self.log_pvalue)}, α = {self.alpha:g}"
        back = sum(pair.verdict == "confirmed" for pair in self.pairs)
        came = f"{back} of {len(self.pairs)} differences between neighbours came back"
        if self.verdict == "confirmed":
            who = f"the {len(self.clusters)} clusters"
            said = f"Confirmed: {who} differ{what} on fresh data as they were found ({basis})."
        elif self.verdict == "not confirmed":
            alone = "the difference between the clusters did not come back"
            said = f"Not confirmed: {came if len(self.pairs) > 1 else alone}{what} on fresh data ({basis})."
        else:
            told = f"; {came}" if back else ""
            said = f"Cannot tell: the fresh data are too few to say whether the clusters differ{what} ({basis}){told}."
        return text.printable(said)

    @property
    def sentences(self) -> list[str]:
        """The result in one sentence, and each pair of neighbouring clusters in one."""
        return [self.headline, *(text.printable(self._about(pair)) for pair in self.pairs)]

    def __repr__(self) -> str:
        return f"<Confirmation: {self.verdict}, {text.p_is(self.log_pvalue)}, α = {self.alpha:g}>"

    def __str__(self) -> str:
        headline, *pairs = self.sentences
        return text.printable_lines("\n\n".join([headline, self._table(), "\n".join([*pairs, *self.notes()])]))

    # ----------------------------------------------------------------------------------------------------------- data

    def _columns(self, rows: Rows = "groups") -> Columns:
        checks.choice("rows", rows, _KINDS, "Use 'groups', 'clusters' or 'pairs'.")
        return {"groups": self._of_groups, "clusters": self._of_clusters, "pairs": self._of_pairs}[rows]()

    def _spread(self, name: str, values: list[Any]) -> Columns:
        return spread(self.estimates.parts, name, values)

    def _of_clusters(self) -> Columns:
        clusters = self.clusters
        made: Columns = {"cluster": [c.number for c in clusters], **self._spread("found", [c.found for c in clusters])}
        for name, whose, field in (
            ("estimate", "effects", "estimate"),
            ("se", "effects", "se"),
            ("ci_lower", "effects", "lower"),
            ("ci_upper", "effects", "upper"),
            ("observed", "observed_effects", "estimate"),
            ("observed_lower", "observed_effects", "lower"),
            ("observed_upper", "observed_effects", "upper"),
        ):
            made |= self._spread(name, [_each(getattr(c, whose), field) for c in clusters])
        lost = [sum(group.cluster == c.number for group in self.missing) for c in clusters]
        return made | {
            "groups": [len(c.members) for c in clusters],
            "missing": lost,
            "n": [c.n for c in clusters],
            "pvalue_alike": [c.pvalue_alike for c in clusters],
        }

    def _of_pairs(self) -> Columns:
        pairs = self.pairs
        made: Columns = {"first": [p.first for p in pairs], "second": [p.second for p in pairs]}
        made |= self._spread("found_difference", [plain(p.found_differences) for p in pairs])
        for name, field in (("difference", "estimate"), ("se", "se"), ("ci_lower", "lower"), ("ci_upper", "upper")):
            made |= self._spread(name, [_each(p.differences, field) for p in pairs])
        made |= self._spread("kept", [p.kept for p in pairs])
        return made | {
            "pvalue": [p.pvalue for p in pairs],
            "power": [p.power for p in pairs],
            "verdict": [p.verdict for p in pairs],
        }

    def _of_groups(self) -> Columns:
        e, others = self.estimates, len(self.new) + len(self.missing)
        blank: list[Any] = [None] * others
        errors = e.readable_errors(e.given, e.errors)
        names = [*labels_of(e.keys), *self.new, *(one.label for one in self.missing)]
        sizes = [None] * len(e) if e.n is None else e.n.tolist()
        return {
            "group": [name_of(label) for label in names],
            "cluster": [*self.labels, *[None] * len(self.new), *(one.cluster for one in self.missing)],
            **self._spread("estimate", [plain(row) for row in e.shown.tolist()] + blank),
            **self._spread("se", [plain(row) for row in errors.tolist()] + blank),
            "n": sizes + blank,
            "left_out": [
                *[None] * len(e),
                *["in no cluster"] * len(self.new),
                *(one.reason for one in self.missing),
            ],
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data.

        Returns:
            Plain data.
        """
        return {
            "faultlines": version("faultlines"),
            "verdict": self.verdict,
            "headline": self.headline,
            "confirmed": self.confirmed,
            "pvalue": self.pvalue,
            "log10_pvalue": self.log_pvalue / np.log(10),
            "alpha": self.alpha,
            "measure": self.measure,
            "parts": list(self.estimates.parts),
            "tolerance": self.tolerance,
            **{kind: dicts_of(self._columns(kind)) for kind in ("clusters", "pairs", "groups")},
            "new": [name_of(label) for label in self.new],
            "missing": [
                {"group": name_of(one.label), "cluster": one.cluster, "reason": one.reason} for one in self.missing
            ],
            "notes": self.notes(),
            "warnings": list(self.warnings),
            "dropped": dict(self.dropped),
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """The whole result as JSON.

        Args:
            indent: How many spaces a level is indented by; None for one line.

        Returns:
            The text of the JSON.
        """
        return json_text(self.to_dict(), indent)

    # ---------------------------------------------------------------------------------------------------------- words

    def notes(self) -> list[str]:
        """What a reader must know beside the table.

        Returns:
            Sentences.
        """
        return list(self._notes())

    def _notes(self) -> Iterator[str]:
        for cluster in self.clusters:
            if cluster.log_pvalue_alike < np.log(self.alpha):
                p = text.p_is(cluster.log_pvalue_alike)
                yield f"The groups of cluster {cluster.number} differ from each other ({p}): its effect is an average."
        yield from self.warnings
        yield from (f"Left out: {count:,} {reason}." for reason, count in self.dropped)
        if self.new:
            yield f"New, in no cluster: {text.members(self.new, name_of, _LISTED)} ({text.count(len(self.new))})."
        reasons: dict[str, list[Label]] = {}
        for one in self.missing:
            reasons.setdefault(one.reason, []).append(one.label)
        for reason, labels in reasons.items():
            yield f"Missing, {reason}: {text.members(labels, name_of, _LISTED)} ({text.count(len(labels))})."

    def _numbers(self) -> list[Callable[[float], str]]:
        """How each effect is written."""
        made = []
        for i, scale in enumerate(self.estimates.scales):
            effects = [cluster.effects[i] for cluster in self.clusters if cluster.effects]
            values = [end for one in effects for end in (one.lower, one.upper)]
            values += [cluster.found_effects[i] for cluster in self.clusters]
            errors = [one.se for one in effects if one.se > 0] or [1.0]
            made.append(text.decimals(errors, values, any(value < 0 for value in values), scale.is_percent))
        return made

    def _table(self) -> str:
        numbers, names = self._numbers(), self.estimates.parts or ("effect",)
        interval = f"{text.level(self.alpha)} interval"
        is_observed = len(names) == 1 and any(cluster.observed_effects for cluster in self.clusters)
        header = ["cluster"]
        for name in names:
            header += ["found", name, interval]
        sized = self.estimates.n is not None
        header += [*["observed"] * is_observed, "groups", *["n"] * sized, "alike", "members"]
        rows = []
        for one in self.clusters:
            row = [str(one.number)]
            for i, number in enumerate(numbers):
                row += [number(one.found_effects[i]), *_shown(one.effects[i : i + 1], number)]
            row += [_shown(one.observed_effects, numbers[0])[0]] * is_observed + [text.count(len(one.members))]
            row += [text.count(one.n or 0)] * sized
            alike = text.p_is(one.log_pvalue_alike) if len(one.members) > 1 else "–"
            rows.append([*row, alike, text.members(one.members, name_of, _MEMBERS) or "–"])
        return text.table(header, rows, set(range(len(header) - 1)))

    def _about(self, pair: ConfirmedPair) -> str:
        """Two neighbouring clusters in a sentence."""
        who = f"Clusters {pair.first} and {pair.second}:"
        if not pair.differences:
            both = (self.clusters[pair.first - 1], self.clusters[pair.second - 1])
            absent = " or ".join(str(cluster.number) for cluster in both if not cluster.members)
            return f"{who} no group of cluster {absent} is in the fresh data: cannot tell."
        told = []
        names = [f"{part}:" for part in self.estimates.parts] or ["the difference of"]
        for name, scale, old, new in zip(
            names, self.estimates.scales, pair.found_differences, pair.differences, strict=True
        ):
            number = _gap_format(new, old, scale.is_percent)
            unit = " points" if scale.is_percent else ""
            interval = f"{text.level(self.alpha)} interval {number(new.lower)} … {number(new.upper)}{unit}"
            share = f"{new.estimate / old:.0%}, " if old else ""
            told.append(f"{name} {number(old)}{unit} came back as {number(new.estimate)}{unit} ({share}{interval})")
        why = ""
        if pair.verdict == "cannot tell":
            why = f", half of it would have been seen with a chance of {text.share(pair.power)}"
        return f"{who} {'; '.join(told)}, {text.p_is(pair.log_pvalue)}: {pair.verdict}{why}."


def _each(effects: Sequence[Effect], field: str) -> Any:
    return plain([getattr(effect, field) for effect in effects]) if effects else None


def _shown(effects: Sequence[Effect], number: Callable[[float], str]) -> list[str]:
    """Estimate and interval as text; dashes where there is none."""
    if not effects:
        return ["–", "–"]
    return [number(effects[0].estimate), f"{number(effects[0].lower)} … {number(effects[0].upper)}"]


def _gap_format(new: Effect, old: float, is_percent: bool) -> Callable[[float], str]:
    """How a difference is written: those of effects in per cent in points, which are said behind it."""
    number = text.decimals([new.se if new.se > 0 else 1.0], [old, new.lower, new.upper], False, is_percent)
    return lambda value: number(value).removesuffix("%")
