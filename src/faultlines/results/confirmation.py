"""The result of `fl.confirm`: clusters on new data, beside what they were before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from faultlines import formats
from faultlines.estimates.estimates import Estimates, plain
from faultlines.estimates.labels import Label, labels_of, name_of
from faultlines.estimates.reasons import DropCode, Reason, RowWarning
from faultlines.metrics.readout import SampleRatio
from faultlines.results.effects import Effect
from faultlines.results.protocol import Columns, Note, Rows, TabularResult, probability
from faultlines.results.tables import effect_columns, missing_data, spread
from faultlines.rows.request import MissingRows

Verdict = Literal["confirmed", "not confirmed", "inconclusive"]

_ENDS = (("se", "se"), ("ci_lower", "lower"), ("ci_upper", "upper"))  # columns of an effect behind its estimate


class MissingGroup(NamedTuple):
    """A group of the clusters that is not in the new data, its cluster, and why."""

    label: Label
    cluster: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class ConfirmedCluster:
    """One of the clusters on new data.

    Attributes:
        number: Its number among the original clusters.
        members: Labels of its groups in the new data.
        original_effects: Each effect as it was in the data that chose the cluster.
        effects: Each effect on new data, pooled by precision, with its plain interval; none where no group is there.
        observed_effects: Each observed effect in the new data; none where neither rows nor sizes are known.
        n: Total size in the new data, where sizes are known.
        log_pvalue_equal: Natural logarithm of `pvalue_equal`.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> confirmation = fl.confirm(c, fl.Estimates([0.2, 0.0, 4.0], [0.4, 0.4, 0.4], ["DE", "FR", "IN"]))
        >>> first = confirmation.clusters[0]
        >>> first.members, round(first.original, 2), round(first.estimate, 2), [round(end, 2) for end in first.ci]
        (('FR', 'DE'), 0.05, 0.1, [-0.45, 0.65])
        >>> round(first.pvalue_equal, 2)
        0.72
    """

    number: int
    members: tuple[Label, ...]
    original_effects: tuple[float, ...]
    effects: tuple[Effect, ...]
    observed_effects: tuple[Effect, ...]
    n: float | None
    log_pvalue_equal: float

    @property
    def original(self) -> float | tuple[float, ...]:
        """The effect as it was in the data that chose the cluster; a tuple for several effects."""
        return plain(self.original_effects)  # type: ignore[no-any-return]

    @property
    def estimate(self) -> float | tuple[float, ...] | None:
        """The effect on new data: the precision-weighted mean of its groups."""
        return plain([effect.estimate for effect in self.effects]) if self.effects else None

    @property
    def ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Its interval at the level 1 − α: plain, because other data chose the cluster."""
        return plain([(effect.lower, effect.upper) for effect in self.effects]) if self.effects else None

    @property
    def pvalue_equal(self) -> float:
        """The p of "its groups are equal" on new data (Cochran's Q)."""
        return probability(self.log_pvalue_equal)


@dataclass(frozen=True, slots=True)
class ConfirmedPair:
    """Two neighbouring clusters on new data.

    Attributes:
        first: Number of the first.
        second: Number of the second.
        original_differences: Each effect of the second less that of the first, in the data that chose them.
        differences: The same on new data, with plain intervals; none where one of them has no group there.
        log_pvalue: Natural logarithm of `pvalue`.
        power: The probability with which half of the original difference would have been detected in the new data.
        verdict: ``"confirmed"``, ``"not confirmed"`` or ``"inconclusive"``.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> confirmation = fl.confirm(c, fl.Estimates([0.2, 0.0, 4.0], [0.4, 0.4, 0.4], ["DE", "FR", "IN"]))
        >>> pair = confirmation.pairs[0]
        >>> pair.verdict, round(pair.difference, 2), [round(end, 2) for end in pair.ci], round(pair.retained, 2)
        ('confirmed', 3.9, [2.94, 4.86], 0.79)
        >>> pair.pvalue < 1e-10
        True
    """

    first: int
    second: int
    original_differences: tuple[float, ...]
    differences: tuple[Effect, ...]
    log_pvalue: float
    power: float
    verdict: Verdict

    @property
    def pvalue(self) -> float:
        """The p of "they do not differ" (with a tolerance: by more than that) on new data (Welch's test)."""
        return probability(self.log_pvalue)

    @property
    def difference(self) -> float | tuple[float, ...] | None:
        """The difference on new data; a tuple for several effects."""
        return plain([effect.estimate for effect in self.differences]) if self.differences else None

    @property
    def ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Its interval at the level 1 − α."""
        return plain([(effect.lower, effect.upper) for effect in self.differences]) if self.differences else None

    @property
    def retained(self) -> float | tuple[float | None, ...] | None:
        """The share of the original difference in the new one: 1 where all of it is there, negative if reversed."""
        if not self.differences:
            return None
        both = zip(self.differences, self.original_differences, strict=True)
        return plain([new.estimate / old if old else None for new, old in both])  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Confirmation(TabularResult):
    """Clusters of other data, looked at on new ones: what `fl.confirm` returns.

    Attributes:
        verdict: ``"confirmed"``: all neighbouring clusters differ on new data, in the same order. ``"not confirmed"``:
            some pair does not, although half of its original difference would have been detected with a probability of
            80%, or it differs the other way round. ``"inconclusive"``: the new data are too few.
        log_pvalue: Natural logarithm of `pvalue`.
        alpha: The significance level of the verdicts, and one less the level of the intervals.
        clusters: The clusters, in their original order.
        pairs: Neighbouring clusters, compared.
        estimates: The new estimates of the groups that are in clusters.
        labels: The cluster of each of them.
        new: Groups of the new data that are in no cluster.
        missing: Groups of the clusters that are not in the new data, each with its reason.
        metric: What was measured.
        tolerance: Differences up to this do not count.
        warnings: What was noticed in the new rows.
        dropped: Reason → number of dropped new rows.
        missing_values: How many new rows of every group lack a value; None where no rows were counted.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> confirmation = fl.confirm(c, fl.Estimates([0.2, 0.0, 4.0], [0.4, 0.4, 0.4], ["DE", "FR", "IN"]))
        >>> confirmation.verdict, confirmation.confirmed, confirmation.pvalue < 1e-10
        ('confirmed', True, True)
        >>> print(confirmation.headline)
        Confirmed: the 2 clusters differ again on new data (p < 1e-10, α = 0.05).
        >>> [note.code for note in confirmation.notes], confirmation.to_dict()["verdict"]
        (['pair', 'next'], 'confirmed')
    """

    row_kinds: ClassVar[tuple[Rows, ...]] = ("groups", "clusters", "pairs")
    wording: ClassVar[str] = "confirmation"
    json_keys: ClassVar[str] = (
        "verdict headline pvalue log10_pvalue alpha metric parts tolerance clusters pairs groups new missing notes "
        "dropped missing_values"
    )

    verdict: Verdict
    log_pvalue: float
    alpha: float
    clusters: tuple[ConfirmedCluster, ...]
    pairs: tuple[ConfirmedPair, ...]
    estimates: Estimates
    labels: tuple[int, ...]
    new: tuple[Label, ...]
    missing: tuple[MissingGroup, ...]
    metric: str
    tolerance: float
    warnings: tuple[Note | SampleRatio | RowWarning, ...] = ()
    dropped: Mapping[DropCode, int] = field(default_factory=dict)
    missing_values: MissingRows | None = None

    def __repr__(self) -> str:
        return f"<Confirmation: {self.verdict}, {formats.p_is(self.log_pvalue)}, α = {self.alpha:g}>"

    @property
    def confirmed(self) -> bool:
        """Whether the verdict is ``"confirmed"``."""
        return self.verdict == "confirmed"

    @property
    def pvalue(self) -> float:
        """The p of "the clusters do not differ" on new data: one test of all of them, exact for known se.

        With a tolerance, the largest p of the neighbouring pairs: that of "some pair differs by no more than that".
        """
        return probability(self.log_pvalue)

    # ----------------------------------------------------------------------------------------------------------- data

    def columns(self, rows: Rows) -> Columns:
        """The columns of its groups, clusters or pairs.

        Args:
            rows: ``"groups"``, ``"clusters"`` or ``"pairs"``.

        Returns:
            Column → values.
        """
        if rows == "groups":
            return self._group_columns()
        return self._cluster_columns() if rows == "clusters" else self._pair_columns()

    def _spread(self, name: str, values: list[Any]) -> Columns:
        return spread(self.estimates.parts, name, values)

    def _cluster_columns(self) -> Columns:
        clusters = self.clusters
        columns: Columns = {"cluster": [cluster.number for cluster in clusters]}
        columns |= self._spread("original", [cluster.original for cluster in clusters])
        parts, names = self.estimates.parts, (("estimate", "estimate"), *_ENDS)
        columns |= effect_columns(parts, [cluster.effects for cluster in clusters], names)
        observed = (("observed", "estimate"), ("observed_lower", "lower"), ("observed_upper", "upper"))
        columns |= effect_columns(parts, [cluster.observed_effects for cluster in clusters], observed)
        return columns | {
            "groups": [len(cluster.members) for cluster in clusters],
            "missing": [sum(group.cluster == cluster.number for group in self.missing) for cluster in clusters],
            "n": [cluster.n for cluster in clusters],
            "pvalue_equal": [cluster.pvalue_equal for cluster in clusters],
        }

    def _pair_columns(self) -> Columns:
        pairs = self.pairs
        columns: Columns = {"first": [pair.first for pair in pairs], "second": [pair.second for pair in pairs]}
        columns |= self._spread("original_difference", [plain(pair.original_differences) for pair in pairs])
        names = (("difference", "estimate"), *_ENDS)
        columns |= effect_columns(self.estimates.parts, [pair.differences for pair in pairs], names)
        columns |= self._spread("retained", [pair.retained for pair in pairs])
        return columns | {
            "pvalue": [pair.pvalue for pair in pairs],
            "power": [pair.power for pair in pairs],
            "verdict": [pair.verdict for pair in pairs],
        }

    def _group_columns(self) -> Columns:
        estimates, new = self.estimates, [None] * len(self.new)
        blank: list[Any] = [*new, *[None] * len(self.missing)]
        errors = estimates.readable_errors(estimates.given, estimates.errors)
        names = [*labels_of(estimates.keys), *self.new, *(group.label for group in self.missing)]
        sizes = [None] * len(estimates) if estimates.n is None else estimates.n.tolist()
        reasons = [*["in no cluster"] * len(self.new), *(str(group.reason) for group in self.missing)]
        return {
            "group": [name_of(label) for label in names],
            "cluster": [*self.labels, *new, *(group.cluster for group in self.missing)],
            **self._spread("estimate", [plain(row) for row in estimates.shown.tolist()] + blank),
            **self._spread("se", [plain(row) for row in errors.tolist()] + blank),
            "n": sizes + blank,
            "excluded": [*[None] * len(estimates), *reasons],
        }

    def _plain_values(self) -> dict[str, Any]:
        return {
            "log10_pvalue": self.log_pvalue / np.log(10),
            "parts": list(self.estimates.parts),
            "new": [name_of(label) for label in self.new],
            "missing": [
                {"group": name_of(group.label), "cluster": group.cluster, "reason": str(group.reason)}
                for group in self.missing
            ],
            "missing_values": missing_data(self.missing_values),
        }
