"""The result of `fl.cluster`: the clusters that differ, and how sure that is."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import numpy as np

from faultlines import checks, formats
from faultlines.core.comparison import Comparison
from faultlines.core.lower_bound import at_least
from faultlines.core.mixture import MemberMeans, member_means
from faultlines.core.spread import Spread, between_spread, prefers_continuum
from faultlines.core.tree import Hierarchy, PartitionPath, count_clusters
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates, Excluded, plain
from faultlines.estimates.labels import Key, Label, labels_of, match, name_of, reading
from faultlines.estimates.reasons import DropCode
from faultlines.estimates.scales import Scale
from faultlines.guarantees.base import Guarantee, GuaranteedPath, MarginLevels
from faultlines.metrics.readout import Readout
from faultlines.metrics.table import Adverse
from faultlines.metrics.warnings import PValueFloor, pvalue_floor
from faultlines.results.certificate import Certificate
from faultlines.results.confirmation import Confirmation
from faultlines.results.effects import (
    COMBINATIONS,
    AgainstRest,
    ClusterEffects,
    Effect,
    Explained,
    GroupPosterior,
    RestComparison,
    against_rest,
    compare_with_rest,
    explain_attributes,
    is_certain,
    pooled_effects,
)
from faultlines.results.multiplicity import AdjustedPath, Adjustment, Correction, adjustments
from faultlines.results.power import DetectionLimit
from faultlines.results.protocol import Columns, Note, Rows, TabularResult, probability
from faultlines.results.rules import Partition, Population, Rule
from faultlines.results.self_check import SelfCheck
from faultlines.results.tables import (
    ExcludedShare,
    add_weights,
    cluster_columns,
    cluster_numbers,
    excluded_by_value,
    group_columns,
)
from faultlines.rows.attach import attach
from faultlines.rows.keys import Bins
from faultlines.rows.request import MissingRows
from faultlines.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from faultlines.render.chart import Chart, Charts
    from faultlines.render.geometry import Kind, Theme

Frame = TypeVar("Frame")
Verdict = Literal["differ", "no difference", "not testable"]

_FEWEST, _MOST = 20, 20_000  # groups from which on a continuum can be recognized, and up to which it takes a moment
_MOST_CLUSTERS = 40  # clusters that a partition of the slider may have, unless the result itself has more
_USUAL_LEVELS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
_SMALL_LEVELS = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-15, 1e-20, 1e-30, 1e-50, 1e-100, 1e-200, 1e-300)


# ------------------------------------------------------------------------------------- clusters and their effects


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """Groups whose effects may be taken as equal.

    Attributes:
        members: Labels of its groups, by rising estimate.
        n: Total size, when the sizes of the groups are known. Units that its groups share count once, where that can be
            known: see the note "shared data".
        number: Its number, from 1 on.
        partition: The clusters it is one of, which its rule tells it from.
        pooled: What is known of the effects of these clusters.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.simulate.onboarding().estimates)
        >>> lowest = found.clusters[0]
        >>> lowest.number, len(lowest.members), lowest.members[:3]
        (1, 8, ('CH', 'SE', 'AT'))
        >>> round(lowest.estimate, 3), round(lowest.se, 3), [round(end, 3) for end in lowest.ci]
        (-0.066, 0.005, [-0.075, -0.056])
        >>> [round(end, 3) for end in lowest.simultaneous_ci]
        [-0.091, -0.043]
        >>> round(lowest.observed, 3), [round(end, 3) for end in lowest.observed_ci]
        (-0.068, [-0.078, -0.059])
        >>> [round(one.estimate, 3) for one in lowest.effects + lowest.observed_effects + lowest.simultaneous_effects]
        [-0.066, -0.068, -0.067]
        >>> lowest.rule, len(lowest.population.keys)
        ('country in {AT, CH, DE, DK, FI, JP, KR, SE}', 40)
    """

    members: tuple[Label, ...]
    n: float | None
    number: int
    partition: Partition = field(compare=False)
    pooled: ClusterEffects = field(compare=False)

    def __repr__(self) -> str:
        members = formats.members(self.members, name_of, 60)
        return f"Cluster({members}; estimate={self.estimate}, se={self.se}, ci={self.ci}, n={self.n})"

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What is known of each effect; none for a comparison that has no estimates."""
        return self.pooled.effects[self.number - 1]

    @property
    def observed_effects(self) -> tuple[Effect, ...]:
        """Each observed effect: that of its rows; none where neither rows nor sizes are known."""
        return self.pooled.observed[self.number - 1]

    @property
    def simultaneous_effects(self) -> tuple[Effect, ...]:
        """Each effect as the plain mean of its groups, with the interval that holds however the cluster was chosen."""
        return self.pooled.simultaneous[self.number - 1]

    @property
    def estimate(self) -> float | tuple[float, ...] | None:
        """Its level: what its groups have in common; a tuple where several effects are measured together.

        It is that of a mixture: a group at the border of two clusters counts for both, as likely as it belongs to each,
        so clusters are not pushed apart by the data that chose them. Where other data chose them (`fl.Holdout`), where
        there is a tolerance, and where all groups are one, it is the precision-weighted mean of its groups.
        """
        return plain([effect.estimate for effect in self.effects]) if self.effects else None

    @property
    def se(self) -> float | tuple[float, ...] | None:
        """Its standard error."""
        return plain([effect.se for effect in self.effects]) if self.effects else None

    @property
    def ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Interval of the level at 1 − α. It holds where the number of clusters is right."""
        return _ends(self.effects)

    @property
    def simultaneous_ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Interval of the precision-weighted mean effect of its groups that holds however they were chosen.

        It allows for the most misleading choice of groups that the data could have made, so it holds also where the
        number of clusters is wrong; it is wide, the wider the more groups there are.
        """
        return _ends(self.simultaneous_effects)

    @property
    def observed(self) -> float | tuple[float, ...] | None:
        """The effect on its people: that of all its rows together, or the groups' effects weighted by their sizes.

        It is what a dashboard shows for these people. Where the same data chose the groups it exaggerates.
        """
        return plain([effect.estimate for effect in self.observed_effects]) if self.observed_effects else None

    @property
    def observed_ci(self) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
        """Its interval at the level 1 − α, descriptive where the same data chose the groups."""
        return _ends(self.observed_effects)

    @property
    def rule(self) -> Rule:
        """What its groups have in common: the shortest exact rule over their attributes, or the best short one.

        It is text that knows how well it fits: of the people it describes, a share `matches` is in the cluster, and it
        `covers` a share of the people in the cluster. No two clusters of a result are described by rules that overlap.
        """
        return self.partition.rules[self.number - 1]

    @property
    def population(self) -> Population:
        """All groups."""
        return self.partition.population


@dataclass(frozen=True, slots=True)
class ArmEffect:
    """What one treatment did in all groups together, against the control.

    Attributes:
        control: The control.
        treatment: The treatment.
        effects: Each effect in the rows of all groups that are compared, with its interval at 1 − α; of groups that
            share units, the groups' effects weighted by their sizes, with what they share allowed for.
        pvalues: Of each effect, p of "it is zero", two-sided. It is that of a single test: nothing was searched.

    Example:
        >>> import faultlines as fl, pandas as pd
        >>> visits = pd.DataFrame(fl.simulate.experiment_rows())
        >>> metric = fl.lift("spend", variant="arm", control="A", unit="user")
        >>> arm = fl.cluster(visits, by="country", metric=metric).arm_effects[0]
        >>> arm.control, arm.treatment, round(arm.effects[0].estimate, 3), round(arm.pvalues[0], 2)
        ('A', 'B', -0.02, 0.16)
    """

    control: Hashable
    treatment: Hashable
    effects: tuple[Effect, ...]
    pvalues: tuple[float, ...]


def arm_effects(groups: Comparison, readout: Readout | None, alpha: float) -> tuple[ArmEffect, ...]:
    """Every treatment against the control in all groups together; none without arms.

    Args:
        groups: The groups.
        readout: The moments behind the estimates.
        alpha: One less the level of intervals.
    """
    if readout is None or len(readout.arms) < 2 or groups.estimates is None:
        return ()
    control, *treatments = readout.arms
    of_groups = np.zeros(len(groups), dtype=np.int64) if readout.treatment is None else readout.treatment
    pooled = pooled_effects(groups.estimates, of_groups, len(treatments), alpha, readout.by_treatment())
    return tuple(
        ArmEffect(control, treatment, effects, tuple(probability(log_p) for log_p in log_pvalues))
        for treatment, (effects, log_pvalues) in zip(treatments, pooled, strict=True)
        if effects
    )


def overall_pvalues(groups: Comparison, readout: Readout | None, alpha: float) -> tuple[float, ...]:
    """Of each effect in all rows, p of "it is zero": of several treatments, of their mean; none without arms."""
    if readout is None or len(readout.arms) < 2 or groups.estimates is None:
        return ()
    single = np.zeros(len(groups), dtype=np.int64)
    pooled = pooled_effects(groups.estimates, single, 1, alpha, readout.together(single, 1))
    return tuple(probability(log_p) for log_p in pooled[0][1])


def _ends(effects: tuple[Effect, ...]) -> tuple[float, float] | tuple[tuple[float, float], ...] | None:
    """Intervals of effects; none without any."""
    return plain([(effect.lower, effect.upper) for effect in effects]) if effects else None


def numbered(groups: Comparison, labels: IntArray) -> IntArray:
    """Cluster numbers 1 … m from the lowest to the highest effect; of several effects, the first."""
    levels = groups.pool(labels - 1)
    if levels is None:
        return labels
    order = np.argsort(levels.values[:, 0], kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(1, order.size + 1)
    return np.asarray(rank[labels - 1])


def _sizes(n: FloatArray, clusters: IntArray, count: int, readout: Readout | None) -> FloatArray:
    """The sizes of clusters; units that their groups share count once where that can be known."""
    distinct = None if readout is None else readout.cluster_sizes(clusters, count)
    return np.bincount(clusters, n, count).astype(np.float64) if distinct is None else distinct


def clusters_of(
    groups: Comparison,
    labels: IntArray,
    alpha: float,
    population: Population | None = None,
    readout: Readout | None = None,
    *,
    fixed: bool = False,
    all_people: bool = False,
    levels: MarginLevels | None = None,
    attributes: tuple[str, ...] = (),
) -> tuple[IntArray, tuple[Cluster, ...]]:
    """Labels numbered from the lowest to the highest effect, and the clusters in that order.

    Args:
        groups: The groups.
        labels: Cluster numbers from 1 on, in any order.
        alpha: One less the level of intervals.
        population: The groups by the values of their attributes, if that is known already.
        readout: The moments behind the estimates.
        fixed: Whether other data chose the clusters.
        all_people: Whether it is all groups as one, with the effect on all their people.
        levels: The levels of some attributes, where clusters are unions of these.
        attributes: Those that rules may speak of; all if none are given.
    """
    labels = numbered(groups, labels)
    labels.setflags(write=False)
    count = int(labels.max())
    order = np.arange(len(groups))
    if groups.estimates is not None:
        order = np.argsort(groups.estimates.values[:, 0], kind="stable")
    order = order[np.argsort(labels[order], kind="stable")]
    ends = np.cumsum(np.bincount(labels, minlength=count + 1)[1:]).tolist()
    sizes = None if groups.n is None else _sizes(groups.n, labels - 1, count, readout).tolist()
    names, ordered = labels_of(groups.keys), order.tolist()
    population = population or Population(groups.keys, groups.attributes, groups.n)
    partition = Partition(population, labels, attributes or tuple(groups.attributes))
    pooled = ClusterEffects(groups, labels - 1, alpha, readout, fixed, all_people, levels)
    if readout is not None:
        _ = pooled.observed  # here, so that a metric of one's own that cannot do it fails before it is printed
    return labels, tuple(
        Cluster(
            tuple(names[i] for i in ordered[start:end]), None if sizes is None else sizes[c], c + 1, partition, pooled
        )
        for c, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
    )


# ---------------------------------------------------------------------------------------------------- the result


@dataclass(frozen=True, slots=True, eq=False)
class PathStep:
    """One partition on the way from a single cluster to K.

    Attributes:
        n_clusters: How many clusters it has.
        pvalue: The smallest significance level α above which at least this number of clusters is reported. Zero for the
            single cluster, which needs no evidence.
        pvalue_adj: The same, adjusted for the number of results where several were corrected.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> two = c.path()[1]
        >>> two.n_clusters, two.pvalue < 0.001, two.labels.tolist()
        (2, True, [1, 1, 2])
    """

    n_clusters: int
    pvalue: float
    pvalue_adj: float
    _path: PartitionPath
    _groups: Comparison

    def __repr__(self) -> str:
        return f"PathStep(n_clusters={self.n_clusters}, pvalue={self.pvalue:.3g})"

    @property
    def labels(self) -> IntArray:
        """Cluster numbers of the groups in this partition."""
        return numbered(self._groups, self._path.labels(self.n_clusters))


@dataclass(frozen=True, eq=False, repr=False)
class Clustering(TabularResult):
    """The clusters that differ, and how sure that is: what `fl.cluster` returns.

    It prints itself, shows itself in a notebook, and leaves as data, chart or page.

    Attributes:
        judged: What the error control says about the groups: a path of partitions, each with its p.
        guarantee: The error control.
        alpha: Significance level: the accepted probability of a false positive.
        refine: Whether groups at a border were moved to the cluster of nearest estimate.
        excluded: Excluded groups, each with its reason.
        dropped: Reason → number of dropped rows.
        by: The attributes, for other rows.
        labels: Cluster number of each group, 1 … m from the lowest to the highest effect, in the order of `estimates`.
        clusters: The clusters, in that same order; each a `Cluster`.
        readout: The moments behind the estimates, where rows were given.
        adjustment: How p are adjusted, where this is one of several results that were corrected for their number.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.simulate.onboarding().estimates)
        >>> c.verdict, c.rejected, c.n_clusters, c.pvalue < 1e-10, c.labels[:4].tolist()
        ('differ', True, 3, True, [1, 1, 1, 1])
        >>> [round(cluster.estimate, 3) for cluster in c.clusters], round(c.overall.observed, 3)
        ([-0.066, 0.019, 0.079], 0.011)
        >>> c.pvalue == c.pvalue_adj, bool(c.log_pvalue == c.log_pvalue_adj < -20)
        (True, True)
        >>> c.tolerance, c.detection_limits
        (0.0, ())
        >>> len(c.estimates.theta), len(c.groups), len(c.hierarchy.heights), len(c.population.keys)
        (40, 40, 39, 40)
        >>> bool(c.claims.log_pvalue == c.log_pvalue), len(c.fingerprint), c.posterior.membership.shape
        (True, 16, (40,))
        >>> c.to_dict()["alpha"], len(c.to_json()) > 1000, len(c.to_markdown()) > 100
        (0.05, True, True)
    """

    row_kinds: ClassVar[tuple[Rows, ...]] = ("groups", "clusters")
    wording: ClassVar[str] = "clustering"
    json_keys: ClassVar[str] = (
        "verdict headline decision rejected pvalue log10_pvalue pvalue_adj correction alpha n_clusters n_groups metric "
        "parts tolerance scale guarantee refine clusters at_least pvalue_floor is_continuum spread attributes_needed "
        "explained additive groups excluded excluded_shares notes sample_ratio overall in_all_rows detection_limits "
        "columns recipe by attributes dropped missing_values"
    )

    judged: GuaranteedPath
    guarantee: Guarantee
    alpha: float
    refine: bool
    excluded: tuple[Excluded, ...]
    dropped: Mapping[DropCode, int]
    by: tuple[str | Bins, ...]
    labels: IntArray
    clusters: tuple[Cluster, ...]
    readout: Readout | None = None
    adjustment: Adjustment | None = None

    @classmethod
    def of(
        cls,
        judged: GuaranteedPath,
        guarantee: Guarantee,
        alpha: float,
        refine: bool,
        excluded: tuple[Excluded, ...] = (),
        dropped: Mapping[DropCode, int] | None = None,
        by: tuple[str | Bins, ...] | None = None,
        readout: Readout | None = None,
        adjustment: Adjustment | None = None,
    ) -> Self:
        """The result that follows from a path of partitions, cut at a significance level.

        Args:
            judged: What an error control says about groups.
            guarantee: The error control.
            alpha: The significance level.
            refine: Whether border groups were moved.
            excluded: Excluded groups.
            dropped: Reason → number of dropped rows.
            by: The attributes; by default those of the groups.
            readout: The moments behind the estimates.
            adjustment: How p are adjusted, if several results are corrected.

        Returns:
            The result.

        Example:
            >>> import faultlines as fl
            >>> from faultlines.results import Clustering
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> Clustering.of(c.judged, c.guarantee, 0.01, True).n_clusters
            2
        """
        names = judged.reported.attributes if by is None else by
        no_labels = np.empty(0, dtype=np.int64)
        moments = readout if readout is not None and len(readout.moments.n) == len(judged.reported) else None
        uncut = cls(
            judged, guarantee, alpha, refine, excluded, dropped or {}, names, no_labels, (), moments, adjustment
        )
        return uncut.cut(alpha)

    def __getstate__(self) -> dict[str, Any]:
        """Its fields; what was computed from them is computed again when it is asked for."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        p = formats.p_is(self.log_pvalue_adj)
        return f"<Clustering: {self.n_clusters} of {len(self.groups)} groups, {p}, α = {self.alpha:g}>"

    # -------------------------------------------------------------------------------------------------- the outcome

    @property
    def verdict(self) -> Verdict:
        """``"differ"``, ``"no difference"`` (none was found), or ``"not testable"`` with a single group."""
        if len(self.groups) < 2:
            return "not testable"
        return "differ" if self.rejected else "no difference"

    @cached_property
    def notes(self) -> tuple[Note, ...]:
        """What a reader must know beside the table."""
        return super().notes

    @property
    def missing_values(self) -> MissingRows | None:
        """How many rows of every group were dropped for want of a value; None where no rows were counted."""
        return None if self.readout is None else self.readout.missing

    @property
    def n_clusters(self) -> int:
        """How many clusters differ; 1 when no difference is reported."""
        return len(self.clusters)

    @property
    def rejected(self) -> bool:
        """Whether "all groups are equal" is rejected."""
        return self.n_clusters > 1

    @property
    def log_pvalue(self) -> float:
        """Natural logarithm of `pvalue`, right also where that is below the smallest double."""
        return self.judged.log_pvalue

    @property
    def pvalue(self) -> float:
        """The p of "all groups are equal"; never zero."""
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
    def claims(self) -> PartitionPath:
        """The path of partitions by adjusted p, where several results were corrected."""
        return self._path_at(self.alpha)

    def _path_at(self, alpha: float) -> PartitionPath:
        path = self.judged.path_at(alpha)
        return path if self.adjustment is None else AdjustedPath(path, self.adjustment)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The fewest attributes that are enough to describe the differences; none where nothing differs.

        All attributes where margins were not tested.
        """
        if not self.rejected:
            return ()
        along = self.judged.along
        return self.groups.attributes if along is None else along.attributes_at(self.alpha)

    @cached_property
    def by_attributes(self) -> Clustering:
        """The same result with the levels of `attributes` as groups; the result itself where those are its groups."""
        levels = self.judged.levels_at(self.alpha) if self.rejected else None
        return self if levels is None else self._of_levels(levels)

    @cached_property
    def additive(self) -> tuple[Clustering, ...]:
        """One result for each of `attributes` where their effects add up: its levels, the others at their average mix.

        Those that account for most come first. Attributes that matter in combination are one term together. Nothing
        where one attribute is enough, or where no additive model is.

        Example:
            >>> import faultlines as fl
            >>> labels = [(country, device) for country in ("DE", "FR", "IN") for device in ("app", "web")]
            >>> both = fl.Estimates([0.0, 1.0, 0.1, 1.2, 5.0, 6.1], [0.1] * 6, labels, attributes=["country", "device"])
            >>> for term in fl.cluster(both).additive:
            ...     print(term.groups.attributes, [round(cluster.estimate, 1) for cluster in term.clusters])
            ('country',) [0.6, 5.6]
            ('device',) [1.7, 2.8]
        """
        if not self.rejected or self.judged.along is None:
            return ()
        terms = tuple(self._of_levels(levels) for levels in self.judged.along.terms_at(self.alpha))
        share = {row.attribute: row.share for row in self.explained()}

        def accounts_for(term: Clustering) -> float:
            names = term.groups.attributes
            return sum(share[name] for name in names) + (share[COMBINATIONS] if len(names) > 1 else 0.0)

        return tuple(sorted(terms, key=accounts_for, reverse=True)) if all(term.rejected for term in terms) else ()

    def _of_levels(self, levels: MarginLevels) -> Clustering:
        """A result with the levels of some attributes as groups."""
        path = replace(
            self.judged,
            path=levels.path,
            hierarchy=levels.hierarchy,
            reported=levels.comparison,
            explored=levels.comparison,
            along=None,
        )
        return Clustering.of(path, self.guarantee, self.alpha, self.refine, adjustment=self.adjustment)

    # --------------------------------------------------------------------------------------------------- the groups

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
            raise InputError.unsupported(
                "estimates", "this comparison has none", "Give Similarity(…, estimate=…).", form="clause"
            )
        return self.groups.estimates

    @property
    def group_labels(self) -> Sequence[Label]:
        """Names of the groups."""
        return labels_of(self.groups.keys)

    @property
    def population(self) -> Population:
        """The groups by the levels of their attributes."""
        return self.clusters[0].population

    @property
    def tolerance(self) -> float:
        """How far apart effects may be and still count as similar."""
        return self.groups.tolerance

    @property
    def counted(self) -> str:
        """What the sizes of groups count."""
        return counted(self.groups, self.readout)

    @cached_property
    def overall(self) -> Cluster:
        """All groups as one cluster: the observed effect in all their rows with its interval.

        Without rows or sizes it is the groups' effects weighted by their precision.
        """
        single = np.ones_like(self.labels)
        return clusters_of(self.groups, single, self.alpha, self.population, self.readout, all_people=True)[1][0]

    @property
    def in_all_rows(self) -> tuple[float, ...] | None:
        """Each effect in all rows at once, where that is not the mean of the groups' effects that `overall` is.

        An area under the curve of all rows compares rows of different groups, too. None where both are the same, and
        where no rows were given.
        """
        value = None if self.readout is None else self.readout.in_all_rows
        return None if value is None else tuple(value.tolist())

    @cached_property
    def arm_effects(self) -> tuple[ArmEffect, ...]:
        """Of an experiment from rows: what each treatment did in all groups together, with its p; else nothing."""
        return arm_effects(self.groups, self.readout, self.alpha)

    @property
    def posterior(self) -> GroupPosterior | None:
        """Membership probabilities and shrunken estimates of the groups; none without estimates."""
        return self.clusters[0].pooled.posterior

    def certain_at(self, alpha: float) -> BoolArray:
        """Whether each group can be in no other cluster than its own, at the level 1 − α; all are, without estimates.

        Args:
            alpha: The significance level.

        Returns:
            One truth value per group.
        """
        possible = self.clusters[0].pooled.at(alpha).possible
        return np.ones(len(self.groups), dtype=bool) if possible is None else is_certain(possible)

    @cached_property
    def spread(self) -> Spread | None:
        """The standard deviation of the effects between groups, noise taken off, with its interval at 1 − α.

        It is in the units of the metric, comparable over time, and None without estimates of a single effect.
        """
        estimates = self.groups.estimates
        if estimates is None or estimates.dims > 1 or len(estimates) < 2:
            return None
        values, variance = estimates.values[:, 0], estimates.own[:, 0] ** 2
        spread = between_spread(values, variance, self.alpha, dof=estimates.own_dof, covariance=estimates.covariance)
        # On the scale people read, by the slope of that scale at the common effect.
        slope = abs(float(estimates.scale.slope(np.array([np.average(values, weights=variance.min() / variance)]))[0]))
        # Shares between 0 and 1 have a standard deviation of at most one half, their differences of one.
        most = 0.5 if estimates.scale.is_share else 1.0 if estimates.scale.is_points else np.inf
        return Spread(*(min(slope * end, most) for end in (spread.estimate, spread.lower, spread.upper)))

    @cached_property
    def at_least(self) -> int:
        """A lower confidence bound of the number of clusters: the true number is smaller with probability at most α.

        It is proved, unlike the number of clusters, which is the best description. Clusters along attributes are
        counted among the levels of those.
        """
        if not self.rejected:
            return 1
        estimates = self.by_attributes.groups.estimates
        if estimates is None or estimates.dims > 1 or self.tolerance > 0:
            return 2
        bound = at_least(
            estimates.values[:, 0],
            estimates.own[:, 0],
            self.alpha,
            dof=estimates.own_dof,
            covariance=estimates.covariance,
            dof_of_all=estimates.dof_of_all,
        )
        return min(max(2, bound), self.n_clusters)  # an error control that merges more must not seem to contradict it

    @cached_property
    def is_continuum(self) -> bool:
        """Whether a smooth distribution of effects describes the groups better than the clusters do (BIC)."""
        result = self.by_attributes
        estimates = result.groups.estimates
        if not self.rejected or estimates is None or estimates.dims > 1 or not _FEWEST <= len(estimates) <= _MOST:
            return False
        return prefers_continuum(estimates.values[:, 0], estimates.own[:, 0] ** 2, result.labels)[0]

    @cached_property
    def member_means(self) -> MemberMeans | None:
        """The mean true effect of the groups that each cluster names, on the compared scale.

        The data that chose the clusters exaggerate the distance between them; these means allow for that.
        """
        result = self.by_attributes
        estimates = result.groups.estimates
        if estimates is None or estimates.dims > 1 or not self.rejected or self.tolerance > 0:
            return None
        if self.guarantee.intervals_hold or len(estimates) > _MOST:
            return None
        return member_means(
            estimates.values[:, 0],
            estimates.own[:, 0] ** 2,
            result.labels - 1,
            self.alpha,
            sizes=estimates.n,
            dof=estimates.own_dof,
            covariance=estimates.covariance,
        )

    @cached_property
    def rest(self) -> RestComparison | None:
        """Every group against all the others together, where there are several groups with estimates."""
        if self.groups.estimates is None or len(self.groups) < 2:
            return None
        return compare_with_rest(self.groups.estimates, self.alpha)

    @cached_property
    def pvalue_floor(self) -> PValueFloor | None:
        """The smallest p that the rows support, and why; None where estimates were given or nothing limits it.

        Outputs print a smaller p as "less than this": tails of few events, of heavy-tailed values or of few degrees of
        freedom are not known any farther.
        """
        if self.readout is None or self.groups.estimates is None:
            return None
        return pvalue_floor(self.readout, self.groups.estimates.dof)

    def against_rest(self, correction: Correction = "holm") -> tuple[AgainstRest, ...]:
        """Every group against all the others together, with p adjusted for the number of groups.

        Args:
            correction: ``"holm"`` bounds the probability of any false positive, ``"bh"`` (Benjamini and Hochberg) the
                share of false positives among the reported differences.

        Returns:
            For each group its difference from the others, a simultaneous interval, and its p.

        Raises:
            InputError: If the correction is not known, or there are no estimates.

        Example:
            >>> import faultlines as fl
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> [group.label for group in c.against_rest("bh") if group.pvalue < 0.05]
            ['DE', 'FR', 'IN']
        """
        return against_rest(self.estimates, self.alpha, correction)

    @cached_property
    def excluded_shares(self) -> tuple[ExcludedShare, ...]:
        """How much of each level of the attributes is in excluded groups."""
        return excluded_by_value(self.groups, self.excluded)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rule of every cluster."""
        return tuple(cluster.rule for cluster in self.clusters)

    @cached_property
    def has_rules(self) -> bool:
        """Whether rules say more than lists of names."""
        return self.population.reads_better_as_rules(self.labels)

    @cached_property
    def _explained(self) -> tuple[Explained, ...]:
        return explain_attributes(self.groups)

    def explained(self) -> tuple[Explained, ...]:
        """How much of the variation between groups goes with each attribute; nothing where there is only one.

        Returns:
            A row for each attribute, the combinations of them last.

        Example:
            >>> import faultlines as fl
            >>> labels = [(country, device) for country in ("DE", "FR", "IN") for device in ("app", "web")]
            >>> both = fl.Estimates([0.0, 1.0, 0.1, 1.2, 5.0, 6.1], [0.1] * 6, labels, attributes=["country", "device"])
            >>> [row.attribute for row in fl.cluster(both).explained()]
            ['country', 'device', '(combinations)']
        """
        return self._explained

    @cached_property
    def detection_limits(self) -> tuple[DetectionLimit, ...]:
        """What a result without clusters does not rule out, effect by effect; nothing where clusters differ.

        It takes a moment, and is computed when it is first asked for.
        """
        from faultlines.analyses.power import detection_limits

        return detection_limits(self)

    # ------------------------------------------------------------------------------------------ other levels of α

    def at(self, alpha: float) -> Self:
        """The clusters at another significance level, without computing anything again: O(K).

        Args:
            alpha: The significance level.

        Returns:
            The result at that level.

        Raises:
            InputError: If it does not lie between 0 and 1, or counted draws cannot get below it.

        Example:
            >>> import faultlines as fl
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 2.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> c.n_clusters, c.at(0.001).n_clusters
            (2, 1)
        """
        alpha = checks.alpha(alpha)
        self.guarantee.check(alpha, self.groups)
        return self.cut(alpha)

    def cut(self, alpha: float) -> Self:
        """The same for a significance level that was checked before.

        Args:
            alpha: The significance level.

        Returns:
            The result at that level.

        Example:
            >>> import faultlines as fl
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 2.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> c.cut(0.001).n_clusters
            1
        """
        path = self._path_at(alpha)
        count = count_clusters(path, float(np.log(alpha)))
        partition = path.labels(count)
        levels = self.judged.levels_at(alpha) if count > 1 else None
        along = self.judged.along
        attributes = () if along is None or count < 2 else along.attributes_at(alpha)
        population = self.population if self.clusters else None
        fixed = self.guarantee.intervals_hold
        labels, clusters = clusters_of(
            self.groups, partition, alpha, population, self.readout, fixed=fixed, levels=levels, attributes=attributes
        )
        if self.clusters and np.array_equal(labels, self.labels):  # the same clusters: nothing is estimated again
            clusters[0].pooled.share(self.clusters[0].pooled)
        return replace(self, alpha=alpha, labels=labels, clusters=clusters)

    def path(self) -> tuple[PathStep, ...]:
        """Every partition from one cluster to K, each with the p at which it appears.

        Returns:
            The partitions, from the coarsest to the finest.

        Example:
            >>> import faultlines as fl
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> [(step.n_clusters, f"{step.pvalue:.3g}") for step in c.path()]
            [(1, '0'), (2, '4.22e-15'), (3, '1')]
        """
        path = self.judged.path_at(self.alpha)
        own, adjusted = ([0.0, *map(probability, p.log_pvalues.tolist())] for p in (path, self.claims))
        return tuple(PathStep(i + 1, *p, path, self.groups) for i, p in enumerate(zip(own, adjusted, strict=True)))

    def slider_levels(self) -> tuple[list[Self], int, int]:
        """The result at many significance levels, from the strictest.

        They are the usual ones, the result's own, and one just above the p of each number of clusters, so that every
        partition of the path can be seen. Levels that show the same clusters share what was computed of them. Levels
        with too many clusters, or out of reach of the draws, are skipped.

        Returns:
            The results, the place of this one among them, and how many levels were skipped.
        """
        results: list[Self] = []
        by_partition: dict[tuple[tuple[str, ...], int], Self] = {
            (self.attributes if self.judged.along is not None else (), self.n_clusters): self
        }
        skipped = 0
        for alpha in self._levels_of_interest():
            if alpha == self.alpha:
                results.append(self)
                continue
            try:
                self.guarantee.check(alpha, self.groups)
            except InputError:  # out of reach of the draws there are
                skipped += 1
                continue
            count = count_clusters(self._path_at(alpha), math.log(alpha))
            if count > _MOST_CLUSTERS:
                skipped += 1
                continue
            along = () if self.judged.along is None else self.judged.along.attributes_at(alpha)
            partition = (along if count > 1 else (), count)
            if partition not in by_partition:
                by_partition[partition] = self.cut(alpha)
            results.append(by_partition[partition].at_level(alpha))
        return results, next(i for i, result in enumerate(results) if result is self), skipped

    def at_level(self, alpha: float) -> Self:
        """The same clusters with the intervals of another significance level.

        Args:
            alpha: The significance level.

        Returns:
            The result, with the same partition.
        """
        if alpha == self.alpha:
            return self
        pooled = self.clusters[0].pooled.at(alpha)
        result = replace(self, alpha=alpha, clusters=tuple(replace(c, pooled=pooled) for c in self.clusters))
        # Fitted once for all levels of the same clusters: a page with two partitions has some twenty levels.
        means = None if self.member_means is None else self.member_means.at(alpha)
        result.__dict__.update(member_means=means, is_continuum=self.is_continuum)
        return result

    def _levels_of_interest(self) -> list[float]:
        log_p = self.claims.log_pvalues
        evident = log_p[log_p < math.log(0.5)]
        strictest = max(float(evident[0]), math.log(1e-300)) if evident.size else math.log(1e-3)
        levels = {*_USUAL_LEVELS, self.alpha}
        levels |= {alpha for alpha in _SMALL_LEVELS if math.log(alpha) > strictest}
        levels |= set([alpha for alpha in _SMALL_LEVELS if math.log(alpha) <= strictest][:1])
        for p in evident[: _MOST_CLUSTERS - 1].tolist():
            if p > math.log(1e-300):
                above = 10 ** (math.floor(p / math.log(10)) - 1)
                levels.add(float(f"{(math.floor(math.exp(p) / above) + 1) * above:.2g}"))
        return sorted(level for level in levels if level < 1)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change when the data do, or anything else the result was computed from.

        Numbers count with nine digits: engines that add up rows on several cores differ in the last ones.
        """
        digest = hashlib.sha256()
        for groups in {id(g): g for g in (self.judged.reported, self.judged.explored)}.values():
            digest.update("\x1e".join(map(reading, groups.keys)).encode("utf-8", "surrogatepass"))
            for array in groups.data:
                digest.update(b"-" if array is None else _nine_digits(array))
        settings = (self.guarantee, self.alpha, self.tolerance, self.refine, self.judged.facts.get("seed"))
        digest.update(repr(settings).encode())
        if self.adjustment is not None:
            digest.update(repr((self.adjustment.correction, self.adjustment.results)).encode())
            digest.update(_nine_digits(np.array([self.log_pvalue_adj])))
        return digest.hexdigest()[:16]

    # ------------------------------------------------------------------------------------------------- as text looks

    @property
    def effect_names(self) -> tuple[str, ...]:
        """Headers of the effects: none without estimates, "effect" for one, or the names of several."""
        return () if self.groups.estimates is None else self.groups.estimates.parts or ("effect",)

    @cached_property
    def number_formats(self) -> tuple[formats.NumberFormat, ...]:
        """How each effect is written: with two digits of the smallest standard error of a cluster."""
        chosen = []
        for part in range(len(self.effect_names)):
            effects = [cluster.effects[part] for cluster in self.clusters]
            ends = [end for effect in effects for end in (effect.lower, effect.upper)]
            chosen.append(self.number_format([effect.se for effect in effects if effect.se > 0] or [1.0], ends, part))
        return tuple(chosen)

    def number_format(self, errors: Sequence[float], values: Sequence[float], part: int) -> formats.NumberFormat:
        """A format for other numbers of an effect; a plus sign in experiments, and where some values are negative.

        Args:
            errors: Standard errors that decide about the number of digits.
            values: Numbers that will be written.
            part: Which effect.

        Returns:
            A function from a number to text.
        """
        estimates = self.groups.estimates
        has_arms = self.readout is not None and len(self.readout.arms) > 1
        signed = has_arms or (estimates is not None and bool(np.any(estimates.shown[:, part] < 0)))
        return formats.decimals(errors, values, signed, "" if estimates is None else estimates.scales[part].unit)

    # ------------------------------------------------------------------------------------------------------- as data

    def columns(self, rows: Rows) -> Columns:
        """The columns of its groups or clusters.

        Args:
            rows: ``"groups"`` or ``"clusters"``.

        Returns:
            Column → values.
        """
        return cluster_columns(self) if rows == "clusters" else group_columns(self)

    def _plain_values(self) -> dict[str, Any]:
        from faultlines.render.data import clustering_values

        return clustering_values(self)

    # ------------------------------------------------------------------------------------------------- back to rows

    def cluster_of(self, groups: Sequence[Key]) -> IntArray:
        """The cluster of each group of other rows; 0 where it has none.

        Where clusters are unions of levels of some attributes, a combination that is new has the cluster of its levels.

        Args:
            groups: Keys of the groups of a frame.

        Returns:
            Cluster numbers.

        Raises:
            InputError: If none of the groups was clustered.
        """
        keys, levels = self.groups.keys, self.judged.levels_at(self.alpha) if self.n_clusters > 1 else None
        along = () if levels is None else tuple(self.groups.attributes.index(name) for name in levels.attributes)
        places = np.array(match(groups, keys), dtype=np.int64)
        numbers = cluster_numbers(keys, self.labels, groups, places, along, "frame")
        if not numbers.any():
            few = ", ".join(repr(name_of(key)) for key in list(groups)[:3])
            problem = f"none of its groups was clustered ({few}, …)"
            raise InputError.not_found("frame", problem, "Give a frame with the same groups.", form="clause")
        return numbers

    @property
    def row_attributes(self) -> tuple[str | Bins, ...]:
        """The columns that say which group a row is in; with several treatments, the treatment is one of them."""
        arms = None if self.readout is None else self.readout.metric.arms
        return (*self.by, arms.column) if arms is not None and arms.several else self.by

    def assign(self, frame: Frame, column: str = "cluster") -> Frame:
        """The frame with the cluster of each row as a new column, in the frame's own type.

        Rows of excluded groups, or of groups that were not there before, have none; where clusters run along some
        attributes (`c.attributes`), they have the cluster of their levels. The order of the rows is kept where
        frames have one (pandas, Polars, PyArrow).

        Args:
            frame: A frame with the columns the groups were made of.
            column: The name of the new column.

        Returns:
            The frame with one column more.

        Raises:
            InputError: If none of its groups was clustered, or a key is ambiguous.

        Example:
            >>> import faultlines as fl, polars as pl
            >>> c = fl.cluster(fl.Estimates([0.1, 0.9], [0.01, 0.01], ["a", "b"], attributes=["group"]))
            >>> c.assign(pl.DataFrame({"group": ["b", "a", "new"]}))["cluster"].to_list()
            [2, 1, None]
        """

        def clusters(groups: Sequence[Key], _: Sequence[float]) -> list[float]:
            return [float(number) if number else np.nan for number in self.cluster_of(groups).tolist()]

        assigned: Frame = attach(frame, self.row_attributes, clusters, column, integer=True)
        return assigned

    def weights(self, frame: Frame, column: str = "weight", *, label: str | None = None) -> Frame:
        """The frame with training weights as a new column, in the frame's own type.

        With `label`, outcomes are independent of clusters among the weighted rows (reweighing, Kamiran and Calders): a
        row weighs P(cluster) P(label) / P(cluster, label), so that a model learns from each cluster the same share of
        every outcome. Without it only the sizes of clusters are evened out: with N_j of the N rows in m clusters a row
        weighs N/(m N_j). That does not reduce differences between clusters; docs/mitigation.md has figures.

        Rows have an average weight of 1. Rows without a cluster weigh 1, rows without an outcome have no weight.

        Args:
            frame: A frame with the columns the groups were made of.
            column: The name of the new column.
            label: The column of outcomes, with two values or more.

        Returns:
            The frame with one column more.

        Raises:
            InputError: If none of its groups was clustered, a key is ambiguous, or some cluster lacks one of the
                outcomes.

        Example:
            >>> import faultlines as fl, polars as pl
            >>> c = fl.cluster(fl.Estimates([0.1, 0.9], [0.01, 0.01], ["a", "b"], attributes=["group"]))
            >>> rows = pl.DataFrame({"group": ["a", "a", "a", "b"] * 2, "hired": [0, 0, 1, 1, 0, 0, 1, 0]})
            >>> c.weights(rows, label="hired")["weight"].to_list()[:4]
            [0.9375, 0.9375, 1.125, 0.75]
        """
        return add_weights(self, frame, column, label)

    # ---------------------------------------------------------------------------------------------------- to look at

    def plot(self, kind: Kind = "groups", *, theme: Theme = "light") -> Chart | Charts:
        """The result as an Altair chart, which `save` writes as SVG, PNG or HTML.

        Args:
            kind: ``"groups"``: groups by effect with their intervals, coloured by cluster, with the lines between them;
                two effects measured together as ellipses in the plane; many groups as densities. ``"tree"``: merges.
            theme: ``"light"`` or ``"dark"``.

        Returns:
            The chart.

        Raises:
            InputError: If the extra ``report`` is not installed, or there is nothing to draw.

        Example:
            >>> import faultlines as fl
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> c.plot().save("lifts.svg")
        """
        checks.need_report("plot()")
        from faultlines.render.chart import plot

        return plot(self, kind, theme)

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        command: str | None = None,
        also: Sequence[Clustering] = (),
        names: Sequence[str] | None = None,
        note: str | None = None,
        self_check: SelfCheck | None = None,
        certificate: Certificate | None = None,
        confirmation: Confirmation | None = None,
        adverse: Adverse | Mapping[str, Adverse] | None = None,
    ) -> None:
        """Write one page to hand over: a file that needs no network and nothing beside it.

        Args:
            path: Where to, such as ``"out.html"``.
            title: What stands at its head: the experiment, the model, the date.
            command: What reproduces it, to be said on the page. Default: the call of `fl.cluster`.
            also: Results of other metrics, for tabs and an overview on the same page.
            names: What to call the results there; by default what each of them measures.
            note: How they were corrected for their number, if they were.
            self_check: What `fl.self_check` found in the same rows, to be said beside this result.
            certificate: What `fl.certify` says about the same groups, to stand beside this result.
            confirmation: What `fl.confirm` found on new data, to be said beside this result.
            adverse: The harmful direction: ``"low"`` (a lift, a true positive rate) or ``"high"`` (an error rate). The
                page then begins with the clusters that are worse off than all groups together. Several effects have a
                direction each: ``{"true positive rate": "low", "false positive rate": "high"}``, by the name of the
                effect or of the result; those not named have none.

        Raises:
            InputError: If the extra ``report`` is not installed, or the file cannot be written.

        Example:
            >>> import faultlines as fl
            >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> c.report("lifts.html", title="Onboarding, March", adverse="low")
        """
        from faultlines.render.page import write_page

        checks.need_report("report()")
        if not isinstance(also, list | tuple) or not all(isinstance(result, Clustering) for result in also):
            raise InputError.wrong_type("also", "is not a list of results", "Give what fl.cluster returns.", also)
        results = [self, *also]
        result_names = [result.groups.metric for result in results] if names is None else names
        if not isinstance(result_names, list | tuple) or len(result_names) != len(results):
            raise InputError.mismatch("names", f"is not a list of {len(results)}", "Give one for each result.", names)
        for name, value in {"title": title, "note": note, "command": command}.items():
            checks.text(name, value)
        if not all(isinstance(name, str) for name in result_names):
            raise InputError.wrong_type("names", "is not a list of text", "Give one name for each result.", names)
        _check_kind("self_check", self_check, "SelfCheck", "fl.self_check")
        _check_kind("certificate", certificate, "Certificate", "fl.certify")
        _check_kind("confirmation", confirmation, "Confirmation", "fl.confirm")
        write_page(
            results,
            result_names,
            path,
            title=title,
            note=note,
            command=command,
            self_checks=() if self_check is None else (self_check,),
            certificates=() if certificate is None else (certificate,),
            confirmations=() if confirmation is None else (confirmation,),
            adverse=adverse,
        )


def _check_kind(parameter: str, value: object, class_name: str, source: str) -> None:
    """Refuse what is not the result of another analysis."""
    if value is not None and type(value).__name__ != class_name:
        raise InputError.wrong_type(parameter, f"is not a {class_name}", f"Give what {source} returns.", value)


def _nine_digits(array: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> bytes:
    """Numbers rounded to nine digits, as bytes."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        digits = 10.0 ** (9 - np.ceil(np.log10(np.abs(array))))
        rounded = np.where(np.isfinite(digits) & (digits > 0), np.round(array * digits), array)
    return np.ascontiguousarray(np.stack([rounded, np.nan_to_num(digits)]), dtype="<f8").tobytes()


def counted(groups: Comparison, readout: Readout | None) -> str:
    """What the sizes of groups count."""
    if readout is not None:
        return readout.metric.size_unit.replace(" or ", " and ")
    return Scale.counted if groups.estimates is None else groups.estimates.scale.counted


def adjust_for_number(results: Sequence[Clustering], alpha: float, correction: Correction) -> list[Clustering]:
    """Several results with adjusted p, each with the clusters that are reported at α."""
    each = adjustments(np.array([result.log_pvalue for result in results]), correction)
    return [replace(result, adjustment=adjustment).cut(alpha) for result, adjustment in zip(results, each, strict=True)]
