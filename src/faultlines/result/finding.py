"""The straight line itself: groups → guarantee → path of partitions → the clusters at a level. No output."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from faultlines import checks
from faultlines.comparison.choose import comparison_of, is_comparison
from faultlines.errors import InputError, NoGroupsError
from faultlines.estimates.estimates import Estimates, Excluded
from faultlines.estimates.labels import labels_of, name_of, reading
from faultlines.metrics.measure import Split, measure_all
from faultlines.result.clusters import clusters_of, numbered
from faultlines.result.explained import explained
from faultlines.result.multiplicity import AdjustedPath
from faultlines.result.rest import against_rest
from faultlines.tree.path import clusters_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faultlines.comparison.base import Comparison
    from faultlines.estimates.estimates import IntArray
    from faultlines.guarantees.base import Guarantee, Judged
    from faultlines.metrics.base import Metric
    from faultlines.metrics.measure import Measurement
    from faultlines.metrics.readout import Readout
    from faultlines.result.belief import Belief
    from faultlines.result.clusters import Cluster
    from faultlines.result.explained import Explained
    from faultlines.result.multiplicity import Adjustment, Correction
    from faultlines.result.rest import AgainstRest
    from faultlines.result.rules import Population
    from faultlines.rows.bins import Bins
    from faultlines.tree.hierarchy import Hierarchy
    from faultlines.tree.path import Path

    By = str | Bins | Sequence[str | Bins]


def probability(log_p: float) -> float:
    """A probability from its logarithm, at least the smallest positive double."""
    return float(max(np.exp(log_p), np.nextafter(0.0, 1.0)))


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One partition on the way from a single cluster to K.

    Attributes:
        n_clusters: How many clusters it has.
        pvalue: The smallest α above which at least so many clusters are reported: the adjusted p of its faintest
            split. Zero for the single cluster, which needs no evidence.
        pvalue_adj: The same, adjusted for the number of results where several were corrected.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> two = found.path()[1]
        >>> two.n_clusters, two.pvalue < 0.001, two.labels.tolist()
        (2, True, [1, 1, 2])
    """

    n_clusters: int
    pvalue: float
    pvalue_adj: float
    _path: Path
    _groups: Comparison

    def __repr__(self) -> str:
        return f"Level(n_clusters={self.n_clusters}, pvalue={self.pvalue:.3g})"

    @property
    def labels(self) -> IntArray:
        """Cluster numbers of the groups in this partition."""
        return numbered(self._groups, self._path.labels(self.n_clusters))


@dataclass(frozen=True, eq=False, repr=False)
class Finding:
    """The clusters that really differ, and how sure that is.

    Attributes:
        judged: What the guarantee says about the groups: a path of partitions, each with its p.
        guarantee: What those p rest on.
        alpha: Level of significance: the chance of a false split that was accepted.
        refine: Whether border groups were moved to the cluster of nearest estimate.
        excluded: Groups left out, each with its reason.
        dropped: Reason → number of rows left out.
        by: What the groups are, for other rows.
        labels: Cluster number of each group, 1 … m from the lowest to the highest effect, in the order of `estimates`.
        clusters: The clusters, in that same order.
        readout: The moments behind the estimates, where rows were given.
        adjustment: How p are adjusted, where this is one of several results that were corrected for their number.
    """

    judged: Judged
    guarantee: Guarantee
    alpha: float
    refine: bool
    excluded: tuple[Excluded, ...]
    dropped: Mapping[str, int]
    by: tuple[str | Bins, ...]
    labels: IntArray
    clusters: tuple[Cluster, ...]
    readout: Readout | None = None
    adjustment: Adjustment | None = None

    @classmethod
    def of(
        cls,
        judged: Judged,
        guarantee: Guarantee,
        alpha: float,
        refine: bool,
        excluded: tuple[Excluded, ...] = (),
        dropped: Mapping[str, int] | None = None,
        by: tuple[str | Bins, ...] | None = None,
        readout: Readout | None = None,
        adjustment: Adjustment | None = None,
    ) -> Self:
        """The result that follows from judged groups, cut at a level.

        Args:
            judged: What a guarantee says about groups.
            guarantee: The guarantee.
            alpha: The level.
            refine: Whether border groups were moved.
            excluded: Groups left out.
            dropped: Reason → number of rows left out.
            by: What the groups are; by default the attributes of the groups.
            readout: The moments behind the estimates.
            adjustment: How p are adjusted, if several results are corrected.

        Returns:
            The result.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> fl.Clustering.of(found.judged, found.guarantee, 0.01, True).n_clusters
            2
        """
        names = judged.reported.attributes if by is None else by
        none = np.empty(0, dtype=np.int64)
        read = readout if readout is not None and len(readout.moments.n) == len(judged.reported) else None
        made = cls(judged, guarantee, alpha, refine, excluded, dropped or {}, names, none, (), read, adjustment)
        return made.cut(alpha)

    @property
    def groups(self) -> Comparison:
        """The groups that were clustered, with what makes them similar; those held out, if some were."""
        return self.judged.reported

    @property
    def hierarchy(self) -> Hierarchy:
        """Their tree of merges."""
        return self.judged.hierarchy

    @property
    def estimates(self) -> Estimates:
        """The estimates of the groups; those of the held-out part, if there is one."""
        if self.groups.estimates is None:
            raise InputError("estimates", "this comparison has none", "Give Similarity(…, estimate=…).")
        return self.groups.estimates

    @property
    def population(self) -> Population:
        """The groups by the values of their attributes."""
        return self.clusters[0].population

    @property
    def overall(self) -> Cluster:
        """All groups as one cluster: the plain effect in all their rows with its interval, as a readout gives it.

        Without rows or sizes it is the groups' effects weighted by their precision.
        """
        one = np.ones_like(self.labels)
        return clusters_of(self.groups, one, self.alpha, self.population, self.readout, all_people=True)[1][0]

    @property
    def belief(self) -> Belief | None:
        """What to believe of each group: its cluster and its effect; none without estimates."""
        return self.clusters[0].pooled.belief

    @property
    def tolerance(self) -> float:
        """How far apart effects may be and still count as similar."""
        return self.groups.tolerance

    @property
    def n_clusters(self) -> int:
        """How many clusters differ; 1 when no difference can be claimed."""
        return len(self.clusters)

    @property
    def rejected(self) -> bool:
        """Whether "all groups are alike" is rejected."""
        return self.n_clusters > 1

    @property
    def log_pvalue(self) -> float:
        """Natural logarithm of `pvalue`, right also where that is below the smallest double."""
        return self.judged.log_pvalue

    @property
    def pvalue(self) -> float:
        """The p of "all groups are alike" in this result; never zero."""
        return probability(self.log_pvalue)

    @property
    def log_pvalue_adj(self) -> float:
        """Natural logarithm of `pvalue_adj`."""
        return self.claims.log_pvalue

    @property
    def pvalue_adj(self) -> float:
        """The same adjusted for the number of results, where several were corrected: below α where clusters differ."""
        return probability(self.log_pvalue_adj)

    @property
    def claims(self) -> Path:
        """The path of partitions with the p that claims are made by: adjusted, where several results were corrected."""
        path = self.judged.path
        return path if self.adjustment is None else AdjustedPath(path, self.adjustment)

    def at(self, alpha: float) -> Self:
        """The clusters at another level of significance, without computing anything again: O(K).

        Args:
            alpha: The level.

        Returns:
            The result at that level.

        Raises:
            InputError: If it does not lie between 0 and 1, or counted draws cannot get below it.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 2.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> found.n_clusters, found.at(0.001).n_clusters
            (2, 1)
        """
        alpha = checks.alpha(alpha)
        self.guarantee.check(alpha, self.groups)
        return self.cut(alpha)

    def cut(self, alpha: float) -> Self:
        """The same for a level that was checked before.

        Args:
            alpha: The level.

        Returns:
            The result at that level.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 2.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> found.cut(0.001).n_clusters
            1
        """
        path = self.claims
        partition = path.labels(clusters_at(path, float(np.log(alpha))))
        known = self.population if self.clusters else None
        fixed = self.guarantee.intervals_hold
        labels, clusters = clusters_of(self.groups, partition, alpha, known, self.readout, fixed=fixed)
        return replace(self, alpha=alpha, labels=labels, clusters=clusters)

    def path(self) -> tuple[Level, ...]:
        """Every partition from one cluster to K, each with the p at which it appears.

        Returns:
            The partitions, from the coarsest to the finest.

        Example:
            >>> import faultlines as fl
            >>> fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"])).path()
            (Level(n_clusters=1, pvalue=0), Level(n_clusters=2, pvalue=4.22e-15), Level(n_clusters=3, pvalue=1))
        """
        path = self.judged.path
        own, adjusted = ([0.0, *map(probability, one.log_pvalues.tolist())] for one in (path, self.claims))
        return tuple(Level(i + 1, *p, path, self.groups) for i, p in enumerate(zip(own, adjusted, strict=True)))

    def against_rest(self, correction: Correction = "holm") -> tuple[AgainstRest, ...]:
        """Every group against all the others together, with p adjusted for the number of groups.

        Args:
            correction: ``"holm"``: the chance of any false claim is kept. ``"bh"`` (Benjamini and Hochberg): the share
                of false ones among the claims is.

        Returns:
            For each group its difference from the others, an interval that holds for all groups together, and its p.

        Raises:
            InputError: If the correction is not known, or there are no estimates.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> [one.label for one in found.against_rest("bh") if one.pvalue < 0.05]
            ['DE', 'FR', 'IN']
        """
        return against_rest(self.estimates, self.alpha, correction)

    def explained(self) -> tuple[Explained, ...]:
        """How much of the variation between groups each attribute explains; nothing where there is only one.

        Returns:
            What each attribute explains, the combinations of them last.

        Example:
            >>> import faultlines as fl
            >>> labels = [(country, device) for country in ("DE", "FR", "IN") for device in ("app", "web")]
            >>> both = fl.Estimates([0.0, 1.0, 0.1, 1.2, 5.0, 6.1], [0.1] * 6, labels, attributes=["country", "device"])
            >>> [one.attribute for one in fl.cluster(both).explained()]
            ['country', 'device', '(combinations)']
        """
        return () if self.groups.estimates is None else explained(self.groups.estimates, self.population)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change when the data do, or anything else the result was computed from.

        Numbers count with nine digits: engines that add up rows on several cores differ in the last ones.
        """
        made = hashlib.sha256()
        for groups in {id(g): g for g in (self.judged.reported, self.judged.explored)}.values():
            made.update("\x1e".join(map(reading, groups.keys)).encode("utf-8", "surrogatepass"))
            for array in groups.data:
                made.update(b"-" if array is None else _nine_digits(array))
        settings = (self.guarantee, self.alpha, self.tolerance, self.refine, self.judged.facts.get("seed"))
        made.update(repr(settings).encode())
        if self.adjustment is not None:
            made.update(repr((self.adjustment.correction, self.adjustment.results)).encode())
            made.update(_nine_digits(np.array([self.log_pvalue_adj])))
        return made.hexdigest()[:16]


def _nine_digits(array: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> bytes:
    """Numbers rounded to nine digits, as bytes."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        digits = 10.0 ** (9 - np.ceil(np.log10(np.abs(array))))
        rounded = np.where(np.isfinite(digits) & (digits > 0), np.round(array * digits), array)
    return np.ascontiguousarray(np.stack([rounded, np.nan_to_num(digits)]), dtype="<f8").tobytes()


# --------------------------------------------------------------------------------------------------- from data to it


class Groups(NamedTuple):
    """Groups to be clustered, in parts if rows were split, with what was left out."""

    comparison: Comparison
    parts: tuple[Comparison, ...]
    excluded: tuple[Excluded, ...]
    dropped: Mapping[str, int]
    by: tuple[str | Bins, ...]
    readout: Readout | None = None
    of_parts: tuple[Measurement, ...] = ()

    def reported(self, judged: Judged) -> Groups:
        """The same with what was left out of, and what is known about, the part of the data that is reported."""
        if judged.part is None:
            return self
        shown = self.of_parts[judged.part]
        return self._replace(excluded=shown.excluded, dropped=shown.dropped, readout=shown.readout)


def groups_of(
    data: object, by: By | None, metric: Metric | None, min_size: float | None, guarantee: Guarantee, tolerance: float
) -> Groups:
    """Groups that were given as estimates or as a comparison."""
    if by is not None or metric is not None:
        raise InputError("by, metric", "go with rows, but estimates were given", "Leave them out.")
    if guarantee.unit is not None:
        raise InputError(f"unit={guarantee.unit!r}", "goes with rows, but estimates were given", "Leave it out.")
    comparison, excluded = _large_enough(comparison_of(data, tolerance), 0 if min_size is None else min_size)
    return Groups(comparison, (), excluded, {}, comparison.attributes)


def measured(
    data: object,
    by: By | None,
    metrics: Sequence[Metric],
    min_size: float | None,
    guarantee: Guarantee,
    tolerance: float,
    seed: int,
) -> list[Groups]:
    """Groups of rows by each of several metrics, in one scan; in parts where the guarantee splits data by unit."""
    if type(data).__name__ == "MetricFrame":
        remedy = "Take its estimates: fl.cluster(fl.from_metric_frame(frame)), or use fl.audit."
        raise InputError("data=MetricFrame", "holds one value for each group, not rows", remedy)
    if by is None or not metrics or any(metric is None for metric in metrics):
        raise InputError(
            f"data={type(data).__name__}",
            "rows need by= and metric=",
            "Name them, or make estimates with fl.Estimates(theta, se) or fl.Estimates.from_frame.",
        )
    unit = guarantee.unit or getattr(metrics[0], "unit", None)
    if not guarantee.shares(1) or unit is None:
        return [_whole(parts[0], tolerance) for parts in measure_all(data, by, metrics, min_size=min_size)]
    if not guarantee.reports_all_data:
        split = Split(unit, guarantee.shares(0), seed, guarantee.splits)
        found = measure_all(data, by, metrics, min_size=min_size, split=split)
        return [_in_parts(parts, None, tolerance) for parts in found]
    made = []
    whole = measure_all(data, by, metrics, min_size=min_size)
    for metric, (everyone, *_) in zip(metrics, whole, strict=True):
        split = Split(unit, guarantee.shares(len(everyone.estimates)), seed)
        parts = measure_all(data, by, [metric], min_size=min_size, split=split)[0]
        made.append(_in_parts(parts, everyone, tolerance))
    return made


def _whole(found: Measurement, tolerance: float) -> Groups:
    comparison = comparison_of(found.estimates, tolerance)
    return Groups(comparison, (), found.excluded, found.dropped, found.by, found.readout)


def _in_parts(several: Sequence[Measurement], whole: Measurement | None, tolerance: float) -> Groups:
    found = several[0]
    parts = tuple(comparison_of(part.estimates, tolerance) for part in several)
    comparison, readout = parts[0], found.readout
    if whole is not None:
        known = set(found.estimates.labels)
        keep = np.array([label in known for label in whole.estimates.labels])
        comparison = comparison_of(whole.estimates, tolerance).subset(keep)
        readout = None if whole.readout is None else whole.readout.subset(keep)
    return Groups(comparison, parts, found.excluded, found.dropped, found.by, readout, tuple(several))


def is_rows(data: object) -> bool:
    """Whether data are rows to be measured, not estimates or a comparison."""
    return not isinstance(data, Estimates) and not is_comparison(data)


def _large_enough(comparison: Comparison, min_size: float) -> tuple[Comparison, tuple[Excluded, ...]]:
    """Groups that are not too small, and the others with what is known of them."""
    least = checks.size(min_size)
    if least == 0:
        return comparison, ()
    if comparison.n is None:
        raise InputError(f"min_size={least:g}", "the sizes of the groups are not known", "Give n as well.")
    keep = comparison.n >= least
    if keep.all():
        return comparison, ()
    if not keep.any():
        raise NoGroupsError(
            f"min_size={least:g}", f"all {len(comparison)} groups are smaller", f"Use at most {comparison.n.max():g}."
        )
    labels, estimates = labels_of(comparison.keys), comparison.estimates
    left = []
    for i in np.flatnonzero(~keep).tolist():
        known: tuple[float | None, float | None] = (None, None)
        if estimates is not None and estimates.dims == 1:
            error = estimates.readable_errors(estimates.given[i], estimates.errors[i])
            known = (float(estimates.shown[i, 0]), float(error[0]))
        left.append(Excluded(labels[i], f"fewer than {least:g} in the group", *known, float(comparison.n[i])))
    return comparison.subset(keep), tuple(left)


def known_groups(wanted: Sequence[object], matched: Sequence[int]) -> None:
    """Refuse a frame none of whose groups was clustered."""
    if all(place < 0 for place in matched):
        few = ", ".join(repr(name_of(key)) for key in list(wanted)[:3])
        raise InputError("frame", f"none of its groups was clustered ({few}, …)", "Give a frame with the same groups.")
