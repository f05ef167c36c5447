"""From clusters to a model that treats them alike: weights for training, and thresholds for its scores."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from faultlines import checks, text
from faultlines.errors import InputError, shorten
from faultlines.estimates.labels import MISSING, match
from faultlines.metrics.table import METRICS
from faultlines.result.finding import Finding, known_groups
from faultlines.rows.attach import attach
from faultlines.rows.cuts import find_cuts
from faultlines.rows.read import attribute_names

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.labels import Key
    from faultlines.rows.bins import Bins
    from faultlines.rows.cuts import Cuts

Frame = TypeVar("Frame")


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """Which groups are in which cluster, as other rows can have it.

    Args:
        by: What the groups are.
        keys: The groups.
        labels: The number of each one's cluster, from 1 on.
    """

    by: tuple[str | Bins, ...]
    keys: Sequence[Key]
    labels: IntArray

    @classmethod
    def of(cls, found: Finding) -> Members:
        """Those of a result; with several treatments, the treatment says which group a row is in too."""
        arms = None if found.readout is None else found.readout.metric.arms
        by = (*found.by, arms.column) if arms is not None and arms.several else found.by
        return cls(by, found.groups.keys, found.labels)

    @property
    def n_clusters(self) -> int:
        """How many clusters there are."""
        return int(self.labels.max())

    def clusters_of(self, groups: Sequence[Key]) -> IntArray:
        """The cluster of each group of a frame; 0 where it has none."""
        places = match(groups, self.keys)
        known_groups(groups, places)
        return np.append(self.labels, 0)[places]


# ------------------------------------------------------------------------------------------------------------ weights


def weighted(members: Members, frame: Frame, column: str, label: str | None) -> Frame:
    """The frame with training weights as a new column; see `Clustering.weights`."""
    if label is not None and checks.column("label", label) in attribute_names(members.by):
        problem = "is one of the columns the groups are made of"
        raise InputError(f"label={shorten(label)}", problem, "Name the column of outcomes.")
    values = _even(members) if label is None else _independent(members, label)
    made: Frame = attach(frame, members.by, values, column, label=label)
    return made


def _even(members: Members) -> Callable[[Sequence[Key], Sequence[float]], list[float]]:
    """Every cluster gets the same total weight, and rows an average of 1."""

    def weights(groups: Sequence[Key], rows: Sequence[float]) -> list[float]:
        whose = members.clusters_of(groups)
        sizes = np.bincount(whose, weights=np.asarray(rows), minlength=members.n_clusters + 1)
        present = np.count_nonzero(sizes[1:])
        share = np.divide(sizes[1:].sum() / max(present, 1), sizes, out=np.ones_like(sizes), where=sizes > 0)
        share[0] = 1.0
        return [float(weight) for weight in share[whose]]

    return weights


def _independent(members: Members, label: str) -> Callable[[Sequence[Key], Sequence[float]], list[float]]:
    """P(cluster) P(label) / P(cluster, label): outcomes are independent of clusters among weighted rows.

    Kamiran and Calders, Data preprocessing techniques for classification without discrimination (2012), equation 4.
    """

    def weights(groups: Sequence[Key], rows: Sequence[float]) -> list[float]:
        # The last part of every key is the outcome; a group comes once for each of its outcomes.
        once = {key: i for i, key in enumerate(dict.fromkeys(key[:-1] for key in groups))}
        own = members.clusters_of(list(once))[[once[key[:-1]] for key in groups]]
        outcomes = {part: i for i, part in enumerate(dict.fromkeys(key[-1] for key in groups if key[-1] != MISSING))}
        outcome = np.array([outcomes.get(key[-1], -1) for key in groups])
        used = (own > 0) & (outcome >= 0)
        if not used.any():
            problem = "no row of a cluster has an outcome"
            raise InputError(f"label={shorten(label)}", problem, "Name the column of outcomes.")
        both = np.zeros((members.n_clusters + 1, len(outcomes)))
        np.add.at(both, (own[used], outcome[used]), np.asarray(rows)[used])
        by_cluster, by_outcome = both.sum(axis=1), both.sum(axis=0)
        lacking = np.argwhere((both == 0) & (by_cluster[:, None] > 0) & (by_outcome > 0))
        if lacking.size:
            cluster, missing = lacking[0].tolist()
            raise InputError(
                f"label={shorten(label)}",
                f"cluster {cluster} has no row with the value {shorten(list(outcomes)[missing])},"
                " so that no weights make outcomes independent of clusters",
                "Name a column of outcomes that occur in every cluster, or merge rare ones.",
            )
        made = np.where(outcome < 0, np.nan, 1.0)
        cell = (own[used], outcome[used])
        made[used] = by_cluster[cell[0]] * by_outcome[cell[1]] / (both.sum() * both[cell])
        return [float(weight) for weight in made]

    return weights


# --------------------------------------------------------------------------------------------------------- thresholds


class _Rate(NamedTuple):
    """A rate that a threshold moves in one direction: the outcome of its rows, and whether it counts the selected."""

    outcome: float | None
    selected: bool

    def of(self, share: float) -> float:
        """The rate where a share of those rows is selected; and the other way round."""
        return share if self.selected else 1 - share


_RATES = {
    "selection_rate": _Rate(None, True),
    "true_positive_rate": _Rate(1.0, True),
    "false_negative_rate": _Rate(1.0, False),
    "false_positive_rate": _Rate(0.0, True),
    "true_negative_rate": _Rate(0.0, False),
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """The threshold of one cluster.

    Attributes:
        cluster: The number of the cluster.
        threshold: Rows of the cluster whose score is at or above it are selected.
        n: How many rows of the cluster the metric is about: all, those with the outcome, or those without it.
        before: The metric in the cluster with the one threshold that was used so far.
        after: The metric in the cluster with its own threshold.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> found = fl.cluster(fl.Estimates([0.1, 0.9], [0.01, 0.01], ["a", "b"], attributes=["group"]))
        >>> rows = pl.DataFrame({"group": ["a", "b"] * 4, "score": [0.1, 0.3, 0.2, 0.6, 0.3, 0.8, 0.6, 0.9]})
        >>> found.thresholds(rows, score="score").clusters[0]
        Threshold(cluster=1, threshold=0.25, n=4, before=0.25, after=0.5)
    """

    cluster: int
    threshold: float
    n: int
    before: float
    after: float


@dataclass(frozen=True, slots=True, eq=False)
class Thresholds:
    """A threshold for every cluster, so that a metric is the same in all of them: what `Clustering.thresholds` gives.

    Attributes:
        metric: What was made equal, such as ``"true_positive_rate"``.
        target: The value it should have in every cluster.
        clusters: The threshold of each cluster, with the metric before and after, on the rows it was chosen from.
        overall: The threshold for groups that are in no cluster.
        score: The column of scores.
        unknown: How many rows were of groups that are in no cluster.
        missing: How many rows had no score, or no outcome where the metric needs one; they were not used.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> found = fl.cluster(fl.Estimates([0.1, 0.9], [0.01, 0.01], ["a", "b"], attributes=["group"]))
        >>> rows = pl.DataFrame({"group": ["a", "b"] * 4, "score": [0.1, 0.3, 0.2, 0.6, 0.3, 0.8, 0.6, 0.9]})
        >>> chosen = found.thresholds(rows, score="score")
        >>> chosen.metric, chosen.target, chosen.gap_before, chosen.gap
        ('selection_rate', 0.5, 0.5, 0.0)
        >>> chosen.apply(rows)["prediction"].to_list()
        [0, 0, 0, 0, 1, 1, 1, 1]
        >>> [one["threshold"] for one in chosen.to_dicts()]
        [0.25, 0.7]
    """

    metric: str
    target: float
    clusters: tuple[Threshold, ...]
    overall: float
    score: str
    unknown: int
    missing: int
    _members: Members

    @property
    def gap_before(self) -> float:
        """The largest difference between clusters with one threshold for all."""
        return _spread([one.before for one in self.clusters])

    @property
    def gap(self) -> float:
        """What is left of it: a metric takes as many values as there are scores, so ties and small clusters leave some.

        On the rows the thresholds were chosen from. On other rows chance adds to it, the more the smaller a cluster is.
        """
        return _spread([one.after for one in self.clusters])

    def apply(self, frame: Frame, column: str = "prediction") -> Frame:
        """The frame with predictions as a new column, in the frame's own type: 1 for rows selected, and 0 for others.

        Rows of groups that are in no cluster are compared with `overall`; rows without a score have no prediction.

        Args:
            frame: A frame with the column of scores and the columns the groups are made of.
            column: The name of the new column.

        Returns:
            The frame with one column more.

        Raises:
            InputError: If a column is missing or not numeric, or none of its groups was clustered.
        """
        by_cluster = np.array([self.overall, *(one.threshold for one in self.clusters)])

        def values(groups: Sequence[Key], _: Sequence[float]) -> list[float]:
            chosen: list[float] = by_cluster[self._members.clusters_of(groups)].tolist()
            return chosen

        made: Frame = attach(frame, self._members.by, values, column, score=self.score)
        return made

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per cluster.

        Returns:
            The fields of a `Threshold`, for every cluster.
        """
        return [asdict(one) for one in self.clusters]

    def __str__(self) -> str:
        name = self.metric.replace("_", " ")
        shown = [[str(c.cluster), f"{c.threshold:.6g}", text.count(c.n), *_rates(c)] for c in self.clusters]
        table = text.table(["cluster", "threshold", "rows", "before", "after"], shown, {1, 2, 3, 4})
        gaps = f"{_points(self.gap_before)} before, {_points(self.gap)} after"
        lines = [
            f"Thresholds of {self.score} for a {name} of {text.share(self.target, 1)} in every cluster.",
            "",
            table,
        ]
        lines += ["", f"Largest gap between clusters on these rows: {gaps}."]
        if self.unknown:
            lines.append(f"Rows in no cluster: {text.count(self.unknown)}, with the threshold {self.overall:.6g}.")
        if self.missing:
            lines.append(f"Rows without a score or an outcome: {text.count(self.missing)}, not used.")
        return text.printable_lines("\n".join(lines))


def _spread(rates: Sequence[float]) -> float:
    return max(rates) - min(rates)


def _rates(one: Threshold) -> tuple[str, str]:
    return text.share(one.before, 1), text.share(one.after, 1)


def _points(gap: float) -> str:
    return f"{100 * gap:.1f} points"


def thresholds(
    members: Members,
    frame: object,
    *,
    score: str,
    y_true: str | None,
    metric: str,
    target: str | float,
    threshold: float,
    positive: Hashable,
) -> Thresholds:
    """Choose the thresholds of all clusters; see `Clustering.thresholds`."""
    rate = _RATES[checks.choice("metric", metric, _RATES)]
    checks.column("score", score)
    wanted = None if isinstance(target, str) and target == "overall" else _checked_target(target)
    truth = () if rate.outcome is None else (_checked_truth(y_true, metric),)
    request = METRICS[metric].function(*truth, score=score, threshold=threshold, **_label(rate, positive))
    found = find_cuts(
        frame,
        members.by,
        request,
        members.clusters_of,
        outcome=rate.outcome,
        threshold=threshold,
        share=None if wanted is None else rate.of(wanted),
    )
    together = found.together
    lacking = [c for c in range(1, members.n_clusters + 1) if c not in found.clusters]
    if together is None or lacking:
        what = {None: "a score", 1.0: "a positive outcome", 0.0: "a negative outcome"}[rate.outcome]
        problem = f"no row of cluster {lacking[0]} has {what}"
        raise InputError(f"frame: {metric}", problem, "Give rows of every cluster, or use metric='selection_rate'.")
    share = together.before / together.rows if wanted is None else rate.of(wanted)
    chosen = tuple(_chosen(number, found.clusters[number], share, rate) for number in sorted(found.clusters))
    overall = found.threshold if wanted is None else _chosen(0, together, share, rate).threshold
    return Thresholds(metric, rate.of(share), chosen, overall, score, found.unknown, found.missing, members)


def _chosen(cluster: int, cuts: Cuts, share: float, rate: _Rate) -> Threshold:
    """The cut nearest to the wanted share; of two equally near, the lower."""
    low, high = (abs(cut.reaching / cuts.rows - share) for cut in (cuts.lower, cuts.upper))
    cut = cuts.upper if high < low else cuts.lower
    before, after = (rate.of(count / cuts.rows) for count in (cuts.before, cut.reaching))
    return Threshold(cluster, cut.at, int(cuts.rows), before, after)


def _checked_target(target: Any) -> float:
    remedy = "Use target='overall', or a rate such as target=0.4."
    return checks.number("target", target, "must be 'overall' or a number from 0 to 1", remedy, low=0, high=1)


def _checked_truth(y_true: str | None, metric: str) -> str:
    if y_true is None:
        raise InputError("y_true=None", f"is needed for {metric}", "Name the column of true outcomes.")
    return checks.column("y_true", y_true)


def _label(rate: _Rate, positive: Hashable) -> dict[str, Hashable]:
    """The label that counts, for metrics that read outcomes; scores have none."""
    return {} if rate.outcome is None else {"positive": positive}
