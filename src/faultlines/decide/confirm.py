"""Clusters that were found on other data, looked at on fresh ones: fixed clusters, no selection, plain intervals."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri, stdtrit

from faultlines import checks
from faultlines.comparison.choose import one_effect
from faultlines.comparison.homogeneity import groups_alike, homogeneity, of_levels, of_shared
from faultlines.decide.confirmation import Confirmation, ConfirmedCluster, ConfirmedPair, Missing
from faultlines.decide.found import found_of
from faultlines.errors import InputError, NoGroupsError, shorten
from faultlines.estimates.labels import key_of, labels_of, name_of, some_of
from faultlines.guarantees.choose import guarantee_of
from faultlines.result.effects import Effect
from faultlines.result.finding import groups_of, is_rows, measured
from faultlines.result.pooled import Pooled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from faultlines.comparison.base import Levels
    from faultlines.decide.confirmation import Verdict
    from faultlines.decide.found import Found
    from faultlines.estimates.estimates import BoolArray, Estimates, IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.metrics.base import Metric
    from faultlines.result.finding import By, Groups

__all__ = ["Confirmation", "ConfirmedCluster", "ConfirmedPair", "confirm"]

_ENOUGH = 0.8  # chance to see half of the old difference, from which on not to see it says something


def confirm(
    clusters: Any,
    data: object,
    by: By | None = None,
    metric: Metric | str | None = None,
    *,
    alpha: float = 0.05,
    min_size: float | None = None,
    seed: int = 0,
) -> Confirmation:
    """Look at clusters on data that did not choose them: do they differ again, and by how much?

    The clusters are fixed, so nothing is selected and plain intervals and tests hold. The effect of a cluster is the
    precision-weighted mean of its groups, which is what `Cluster.estimate` compares; beside it stands the effect on its
    people, as a readout of their rows gives it.

    Args:
        clusters: What `fl.cluster` returned, the path of its JSON, or that JSON.
        data: Fresh data, as for `fl.cluster`: estimates of the same groups, or rows.
        by: For rows: what the groups are. Default: as in the clusters.
        metric: For rows: what to measure. Default: as in the clusters, unless the metric was made by hand. Where the
            JSON holds several metrics, one of them, or its name.
        alpha: The level of verdicts and tests, and one less that of the intervals.
        min_size: As for `fl.cluster`.
        seed: Of draws, which p within clusters rests on where standard errors have few degrees of freedom.

    Returns:
        Verdict, the clusters with old and new effects, neighbouring clusters compared, and groups that are new or
        missing.

    Raises:
        InputError: If there is only one cluster, the file is something else, or no group is common to both.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> again = fl.confirm(found, fl.Estimates([0.2, -0.1, 3.0], [0.4, 0.4, 0.4], ["DE", "FR", "IN"]))
        >>> again.verdict, round(again.pairs[0].kept, 2)
        ('confirmed', 0.6)
    """
    alpha, seed = checks.alpha(alpha), checks.seed(seed)
    found = found_of(clusters, metric)
    fresh = _fresh(found, data, by, None if isinstance(metric, str) else metric, min_size)
    places = np.array(found.places(fresh.comparison.keys), dtype=np.int64)
    keep = places >= 0
    if not keep.any():
        few = ", ".join(repr(name_of(key)) for key in list(fresh.comparison.keys)[:3])
        raise NoGroupsError(
            "data", f"none of its groups is in a cluster ({few}, …)", "Give the groups of the clusters."
        )
    again = _Again(found, fresh, keep, found.labels[places[keep]], alpha)
    made = again.clusters(seed)
    pairs = tuple(again.pair(*two) for two in pairwise(made))
    return Confirmation(
        _overall([pair.verdict for pair in pairs]),
        again.log_pvalue,
        alpha,
        made,
        pairs,
        again.estimates,
        tuple(again.labels.tolist()),
        tuple(labels_of(some_of(fresh.comparison.keys, np.flatnonzero(~keep)))),
        _missing(found, fresh, places[keep]),
        found.measure if fresh.comparison.measure == "effect" else fresh.comparison.measure,
        found.tolerance,
        () if fresh.readout is None else fresh.readout.warnings,
        tuple(fresh.dropped.items()),
    )


def _fresh(found: Found, data: object, by: By | None, metric: Metric | None, min_size: float | None) -> Groups:
    """The groups of the fresh data, measured as those of the clusters were."""
    guarantee = guarantee_of("calibrated")  # nothing is split
    if is_rows(data):
        by, metric = by or found.by or None, metric or found.metric
        if by is None or metric is None:
            lacking = " and ".join(name for name, given in (("by", by), ("metric", metric)) if given is None)
            raise InputError(lacking, "the clusters do not say how fresh rows are measured", "Give by= and metric=.")
        fresh = measured(data, by, [metric], min_size, guarantee, found.tolerance, 0)[0]
    else:
        fresh = groups_of(data, by, metric, min_size, guarantee, found.tolerance)
    measures = {found.measure, fresh.comparison.measure} - {"effect"}
    if len(measures) > 1:
        problem = f"but the clusters were found in {found.measure!r}"
        raise InputError(f"metric {shorten(fresh.comparison.measure)}", problem, "Measure what they were found in.")
    estimates = fresh.comparison.estimates
    if estimates is None:
        raise InputError("data", "has no effects that could be compared", "Give estimates or rows.")
    if estimates.dims != found.effects.shape[1]:
        problem = f"has {estimates.dims} effects per group, but the clusters {found.effects.shape[1]}"
        raise InputError("data", problem, "Measure what they were found in.")
    return fresh


def _apart(cov: FloatArray, together: float) -> FloatArray:
    """Variances of two effects, (2, 1, 1), scaled to add up to that of their difference."""
    return np.asarray(cov * (1 - 2 * together / cov.sum()))


def _missing(found: Found, fresh: Groups, there: IntArray) -> tuple[Missing, ...]:
    """The groups of the clusters that are not among the fresh ones, and why."""
    gone = np.setdiff1d(np.arange(len(found.keys)), there)
    excluded = [key_of(left.label) for left in fresh.excluded]
    reasons = {
        place: left.reason for place, left in zip(found.places(excluded), fresh.excluded, strict=True) if place >= 0
    }
    labels = labels_of(some_of(found.keys, gone))
    return tuple(
        Missing(label, int(found.labels[place]), reasons.get(place, "not in the data"))
        for label, place in zip(labels, gone.tolist(), strict=True)
    )


def _overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict over all pairs: what is wrong in one is wrong, and what is open in one is open."""
    if "not confirmed" in verdicts:
        return "not confirmed"
    return "cannot tell" if "cannot tell" in verdicts else "confirmed"


class _Again:
    """The clusters on fresh data.

    Args:
        found: The clusters as they were found.
        fresh: All groups of the fresh data.
        keep: Which of them are in clusters.
        labels: The cluster of each of these.
        alpha: The level.
    """

    def __init__(self, found: Found, fresh: Groups, keep: BoolArray, labels: IntArray, alpha: float) -> None:
        self.found, self.labels, self.alpha = found, labels, alpha
        self.comparison = fresh.comparison.subset(keep)
        self.present, index = np.unique(labels, return_inverse=True)
        self.index = index.reshape(-1).astype(np.int64)
        self.readout = None if fresh.readout is None else fresh.readout.subset(keep)
        # That there are effects was checked before.
        self.estimates: Estimates = self.comparison.estimates  # type: ignore[assignment]
        self.levels: Levels = self.comparison.levels(self.index)  # type: ignore[assignment]

    @property
    def log_pvalue(self) -> float:
        """Log p of "the clusters do not differ"."""
        return of_levels(self.levels).log_pvalue if self.present.size > 1 else 0.0

    def clusters(self, seed: int) -> tuple[ConfirmedCluster, ...]:
        """Every cluster that was found; those without a fresh group are empty."""
        e, count = self.estimates, self.present.size
        pooled = Pooled(self.comparison, self.index, self.alpha, self.readout, fixed=True)
        effects, observed = pooled.effects, pooled.observed
        names = labels_of(e.keys)
        made = []
        for number, old in enumerate(self.found.effects.tolist(), start=1):
            place = int(np.searchsorted(self.present, number))
            if place == count or self.present[place] != number:
                made.append(ConfirmedCluster(number, (), tuple(old), (), (), None if e.n is None else 0.0, 0.0))
                continue
            mine = self.index == place
            own = e.subset(mine)
            by_effect = np.flatnonzero(mine)[np.argsort(own.values[:, 0], kind="stable")].tolist()
            members = tuple(names[i] for i in by_effect)
            size = None if own.n is None else float(own.n.sum())
            alike = groups_alike(own, seed)
            made.append(ConfirmedCluster(number, members, tuple(old), effects[place], observed[place], size, alike))
        return tuple(made)

    def pair(self, first: ConfirmedCluster, second: ConfirmedCluster) -> ConfirmedPair:
        """Two neighbouring clusters compared."""
        old = tuple(b - a for a, b in zip(first.found_effects, second.found_effects, strict=True))
        if not (first.members and second.members):
            return ConfirmedPair(first.number, second.number, old, (), 0.0, 0.0, "cannot tell")
        places = np.searchsorted(self.present, [first.number, second.number])
        values, cov = self.levels.values[places], self.levels.cov[places]
        dof = None if self.levels.dof is None else self.levels.dof[places]
        scales = self.estimates.scales
        both = np.array([first.found_effects, second.found_effects])
        before = np.column_stack([scale.place(both[:, i]) for i, scale in enumerate(scales)])
        test = homogeneity(values, cov, dof)
        if self.levels.between is not None:
            between = self.levels.between[np.ix_(places, places)]
            test, cov = of_shared(values[:, 0], between, dof), _apart(cov, float(between[0, 1]))
        test = test._replace(square=test.square * self._beyond(values) ** 2)
        precision = np.linalg.inv(cov[0] + cov[1])
        gap_before, gap = before[1] - before[0], values[1] - values[0]
        half = float(gap_before @ precision @ gap_before) * (self._beyond(before) / 2) ** 2
        power = test.power(half, self.alpha)
        verdict: Verdict = "not confirmed" if power >= _ENOUGH else "cannot tell"
        if test.log_pvalue < np.log(self.alpha):
            verdict = "confirmed" if float(gap_before @ precision @ gap) > 0 else "not confirmed"
        differences = self._differences(first, second, values, cov, dof)
        return ConfirmedPair(first.number, second.number, old, differences, test.log_pvalue, power, verdict)

    def _beyond(self, values: FloatArray) -> float:
        """The share of the distance of two effects that is beyond the tolerance; all of it without one."""
        low, high = np.sort(values[:, 0])
        if not self.found.tolerance or high == low:
            return 1.0
        line = one_effect(self.estimates, self.found.tolerance)
        return float(line.beyond(np.array([low]), np.array([high]))[0]) / float(high - low)

    def _differences(
        self,
        first: ConfirmedCluster,
        second: ConfirmedCluster,
        values: FloatArray,
        cov: FloatArray,
        dof: FloatArray | None,
    ) -> tuple[Effect, ...]:
        """The second less the first, as people read them; intervals have the width they have where the two meet."""
        made = []
        for i, scale in enumerate(self.estimates.scales):
            variances = cov[:, i, i]
            error = float(np.sqrt(variances.sum()))
            freedom = None if dof is None else float(variances.sum() ** 2 / np.sum(variances**2 / dof))
            if dof is not None and self.levels.between is not None:
                freedom = float(dof.min())
            reach = float(-ndtri(self.alpha / 2) if freedom is None else -stdtrit(freedom, self.alpha / 2))
            shown = second.effects[i].estimate - first.effects[i].estimate
            se = error * float(scale.slope(values[:, i].mean(keepdims=True))[0])
            made.append(Effect(shown, se, shown - reach * se, shown + reach * se))
        return tuple(made)
