"""`fl.confirm`: clusters of other data, looked at on new ones. They are fixed: no selection, plain intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise
from os import PathLike
from typing import Any

import numpy as np

from faultlines import checks, files
from faultlines.analyses.groups import Groups, groups_from, is_rows
from faultlines.core.comparison import PooledEffects
from faultlines.core.normal import compare_one_effect
from faultlines.core.spread import compare_correlated_means, compare_means, compare_pooled, log_pvalue_equal
from faultlines.errors import UNSET, Argument, InputError, NoGroupsError, first_line, shorten
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import Key, key_of, keys_of, labels_of, match, name_of, some_of
from faultlines.estimates.reasons import Reason, ReasonCode
from faultlines.estimates.scales import critical_value
from faultlines.metrics.base import Metric
from faultlines.metrics.names import metric_of
from faultlines.results.clustering import Clustering
from faultlines.results.confirmation import Confirmation, ConfirmedCluster, ConfirmedPair, MissingGroup, Verdict
from faultlines.results.effects import ClusterEffects, Effect
from faultlines.results.tables import by_of, cluster_numbers, keys_of_rows
from faultlines.rows.keys import Bins, By
from faultlines.types import BoolArray, FloatArray, IntArray

_ENOUGH = 0.8  # power for half of the original difference, from which on a missing difference says something
_REMEDY = "Give what fl.cluster returns, or what its to_json() or --json wrote."


# ------------------------------------------------- the original clusters: of a result, or of the JSON that was saved


@dataclass(frozen=True, slots=True, eq=False)
class FixedClusters:
    """Clusters that are fixed: which groups each has, and how large its effect was.

    Attributes:
        keys: Keys of the groups.
        labels: Cluster number of each, from 1 on.
        effects: Effect of every cluster as people read it, (m, d).
        name: What was measured.
        parts: Names of several effects.
        tolerance: How far apart effects could be and still count as similar.
        by: The attributes, for rows; none where they are not known.
        metric: The metric, for rows; None where it is not known.
    """

    keys: Sequence[Key]
    labels: IntArray
    effects: FloatArray
    name: str
    parts: tuple[str, ...]
    tolerance: float
    by: tuple[str | Bins, ...]
    metric: Metric | None

    def places(self, keys: Sequence[Key]) -> list[int]:
        """The place among these groups of every other one; −1 where it is none of them."""
        return match(keys, self.keys, "data")

    def numbers(self, keys: Sequence[Key], places: IntArray) -> IntArray:
        """The cluster of each of other groups, whose places are known; 0 where they are in none.

        Where clusters are unions of levels of some attributes, a combination that is new has the cluster of its levels.
        """
        along = () if np.all(places >= 0) else _attributes_of_clusters(self.keys, self.labels.tolist())
        return cluster_numbers(self.keys, self.labels, keys, places, along, "data")


def _attributes_of_clusters(keys: Sequence[Key], labels: Sequence[int]) -> tuple[int, ...]:
    """The places of the fewest attributes whose levels say which cluster a group is in; none where it takes all."""
    count = len(keys[0])
    for columns in chain.from_iterable(combinations(range(count), size) for size in range(1, count)):
        of_levels: dict[Key, int] = {}
        pairs = ((tuple(key[a] for a in columns), label) for key, label in zip(keys, labels, strict=True))
        if all(of_levels.setdefault(level, label) == label for level, label in pairs):
            return columns
    return ()


def fixed_clusters(clusters: object, metric: Metric | str | None = None) -> FixedClusters:
    """Clusters from a result, from its JSON, or from the path of that.

    Args:
        clusters: The result, a path, the text of the JSON, or what `json.loads` makes of it.
        metric: Which of several results is meant, where the JSON holds several metrics; or its name.

    Returns:
        The clusters.

    Raises:
        InputError: If there is no such file, it is damaged or something else, or there is one cluster only.
    """
    if not isinstance(metric, Metric | str | None):
        problem = "is neither a metric nor the name of one"
        raise InputError.wrong_type("metric", problem, 'Use for example fl.rate("converted").', metric)
    if isinstance(clusters, Clustering):
        if isinstance(metric, str):
            _select_metric([{"metric": clusters.groups.metric}], metric, Argument("clusters", UNSET))
        return _at_least_two(_from_result(clusters), Argument("clusters", UNSET))
    parameter, data = _load(clusters)
    several = data["metrics"] if isinstance(data.get("metrics"), list) else [data]
    if len(several) > 1 or isinstance(metric, str):
        data = _select_metric(several, metric, parameter)
    return _at_least_two(_from_data(data, parameter), parameter)


def _at_least_two(clusters: FixedClusters, parameter: Argument) -> FixedClusters:
    if len(clusters.effects) < 2:
        problem = "there is only one cluster, so there is no difference to confirm"
        raise InputError.too_few(parameter, problem, "Confirm a result in which clusters differ.", form="clause")
    return clusters


def _from_result(result: Clustering) -> FixedClusters:
    groups = result.groups
    if groups.estimates is None:
        raise InputError.unsupported(
            "clusters", "have no effects that could be confirmed", "Give Similarity(…, estimate=…)."
        )
    effects = np.array([[effect.estimate for effect in cluster.effects] for cluster in result.clusters])
    metric = None if result.readout is None else result.readout.metric
    parts = groups.estimates.parts
    return FixedClusters(groups.keys, result.labels, effects, groups.metric, parts, groups.tolerance, result.by, metric)


# ----------------------------------------------------------------------------------------------------------- from JSON


def _load(clusters: object) -> tuple[Argument, Mapping[str, Any]]:
    """What to call it in messages, and the data."""
    if isinstance(clusters, Mapping):
        return Argument("clusters", UNSET), clusters
    if not isinstance(clusters, str | PathLike):
        raise InputError.wrong_type("clusters", "is neither a result nor the path of its JSON", _REMEDY, clusters)
    text, parameter = clusters, Argument("clusters", UNSET)
    if not (isinstance(clusters, str) and clusters.lstrip()[:1] in {"{", "["}):
        parameter = Argument("clusters", str(clusters))
        text = _read(clusters, parameter)
    try:
        data = json.loads(str(text))
    except (ValueError, RecursionError) as error:
        raise InputError.unreadable_file(
            parameter, f"is not JSON, or damaged ({first_line(error)})", _REMEDY
        ) from error
    if not isinstance(data, Mapping):
        raise InputError.unreadable_file(parameter, "is not a faultlines result", _REMEDY)
    return parameter, data


def _read(path: str | PathLike[str], parameter: Argument) -> str:
    try:
        return files.read(path)
    except UnicodeDecodeError as error:
        raise InputError.unreadable_file(parameter, "is not text", _REMEDY) from error
    except (OSError, ValueError) as error:  # a null byte, a folder that is not there
        why = getattr(error, "strerror", None) or first_line(error)
        raise InputError.unreadable_file(
            parameter, f"cannot be read ({why})", "Give the path of what --json wrote."
        ) from error


def _select_metric(several: Sequence[Any], metric: Metric | str | None, parameter: Argument) -> Mapping[str, Any]:
    """The result of one metric among several."""
    results = [data for data in several if isinstance(data, Mapping)]
    name = metric if isinstance(metric, str | None) else metric.name
    matches = [data for data in results if name is not None and name in (data.get("metric"), _command_word(data))]
    if len(matches) != 1:
        metric_names = ", ".join(shorten(data.get("metric")) for data in results[:12])
        holds = f"holds {len(results)} results" if len(results) > 1 else "holds one result"
        problem = holds if name is None else f"{holds}, and not one of {shorten(name)}"
        raise InputError.not_found(parameter, problem, f"Name one of its metrics: {metric_names}.")
    return matches[0]


def _command_word(data: Mapping[str, Any]) -> str | None:
    """A saved metric as it is written on the command line: lift:revenue, ratio:clicks/views."""
    recipe = data.get("recipe")
    if not isinstance(recipe, Mapping) or not isinstance(recipe.get("arguments"), Mapping):
        return None
    arguments = recipe["arguments"]
    columns = [arguments[name] for name in ("value", "numer", "denom") if isinstance(arguments.get(name), str)]
    return f"{recipe.get('name')}:{'/'.join(columns)}" if columns else str(recipe.get("name"))


def _from_data(data: Mapping[str, Any], parameter: Argument) -> FixedClusters:
    try:
        rows = [row for row in data["groups"] if row["cluster"] is not None]
        clusters = data["clusters"]
        effects = np.array([_effects(row) for row in clusters], dtype=np.float64)
        keys, labels = keys_of(keys_of_rows(rows, data["attributes"])), [int(row["cluster"]) for row in rows]
        if len({tuple((type(part), part) for part in key) for key in keys}) < len(keys):  # a list is no name: TypeError
            raise ValueError("a group is there twice")
        name, tolerance = _text(data["metric"]), float(data.get("tolerance") or 0.0)
        parts = tuple(map(_text, data.get("parts") or ()))
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        problem = f"is not a faultlines result, or damaged ({type(error).__name__}: {first_line(error)})"
        raise InputError.unreadable_file(parameter, problem, _REMEDY) from error
    is_sound = 0 <= tolerance < np.inf and len(set(parts)) == len(parts)
    has_effects = is_sound and effects.shape == (len(clusters), max(len(parts), 1)) and bool(np.isfinite(effects).all())
    if not has_effects or set(labels) != set(range(1, len(clusters) + 1)):
        raise InputError.unreadable_file(parameter, "is not complete: its clusters and groups do not match", _REMEDY)
    by = by_of(data["by"]) if data.get("by") else ()
    metric = metric_of(data["recipe"]) if data.get("recipe") else None
    return FixedClusters(keys, np.array(labels, dtype=np.int64), effects, name, parts, tolerance, by, metric)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is not a name")
    return value


def _effects(row: Mapping[str, Any]) -> list[Any]:
    """The estimates of a cluster: one, or one for each of several effects."""
    return [value for name, value in row.items() if name == "estimate" or name.startswith("estimate_")]


# --------------------------------------------------------------------------------------------------------- on new data


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
    precision-weighted mean of its groups, which is what `Cluster.estimate` compares; beside it stands the observed
    effect in all its rows.

    Args:
        clusters: What `fl.cluster` returned, the path of its JSON, or that JSON.
        data: New data, as for `fl.cluster`: estimates of the same groups, or rows.
        by: For rows: the attributes. Default: those of the clusters.
        metric: For rows: what to measure. Default: as in the clusters, unless the metric was made by hand. Where the
            JSON holds several metrics, one of them, or its name.
        alpha: The significance level of verdicts and tests, and one less the level of the intervals.
        min_size: As for `fl.cluster`.
        seed: Of draws, which p within clusters rests on where standard errors have few degrees of freedom.

    Returns:
        Verdict, the clusters with old and new effects, neighbouring clusters compared, and groups that are new or
        missing. Combinations that are new belong to the cluster of their levels, where clusters run along attributes.

    Raises:
        InputError: If there is only one cluster, the file is something else, or no group is common to both.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> confirmation = fl.confirm(c, fl.Estimates([0.2, -0.1, 3.0], [0.4, 0.4, 0.4], ["DE", "FR", "IN"]))
        >>> confirmation.verdict, round(confirmation.pairs[0].retained, 2)
        ('confirmed', 0.6)
    """
    alpha, seed = checks.alpha(alpha), checks.seed(seed)
    original = fixed_clusters(clusters, metric)
    groups = _new_groups(original, data, by, None if isinstance(metric, str) else metric, min_size)
    places = np.array(original.places(groups.comparison.keys), dtype=np.int64)
    numbers = original.numbers(groups.comparison.keys, places)
    keep = numbers > 0
    if not keep.any():
        few = ", ".join(repr(name_of(key)) for key in list(groups.comparison.keys)[:3])
        raise NoGroupsError(
            "data", f"none of its groups is in a cluster ({few}, …)", "Give the groups of the clusters.", form="clause"
        )
    replication = _Replication(original, groups, keep, numbers[keep], alpha)
    confirmed = replication.clusters(seed)
    pairs = tuple(replication.pair(*neighbours) for neighbours in pairwise(confirmed))
    # Beyond a tolerance every pair has a p of its own; all of them differ where the largest is below α.
    log_p = max(pair.log_pvalue for pair in pairs) if original.tolerance else replication.log_pvalue
    return Confirmation(
        verdict=_overall([pair.verdict for pair in pairs]),
        log_pvalue=log_p,
        alpha=alpha,
        clusters=confirmed,
        pairs=pairs,
        estimates=replication.estimates,
        labels=tuple(replication.labels.tolist()),
        new=tuple(labels_of(some_of(groups.comparison.keys, np.flatnonzero(~keep)))),
        missing=_missing_groups(original, groups, places[places >= 0]),
        metric=original.name if groups.comparison.metric == "effect" else groups.comparison.metric,
        tolerance=original.tolerance,
        warnings=() if groups.readout is None else tuple(groups.readout.warnings),
        dropped=groups.dropped,
        missing_values=None if groups.readout is None else groups.readout.missing,
    )


def _new_groups(
    original: FixedClusters, data: object, by: By | None, metric: Metric | None, min_size: float | None
) -> Groups:
    """The groups of the new data, measured as those of the clusters were."""
    if is_rows(data):
        by, metric = by or original.by or None, metric or original.metric
        if by is None or metric is None:
            lacking = ", ".join(name for name, value in (("by", by), ("metric", metric)) if value is None)
            raise InputError.missing(
                lacking,
                "the clusters do not say how new rows are measured",
                "Give {by} and {metric}.",
                settings={"by": ..., "metric": ...},
                form="clause",
            )
    metrics = [] if metric is None else [metric]
    groups = groups_from(data, by, metrics, min_size=min_size, tolerance=original.tolerance)[0]
    names = {original.name, groups.comparison.metric} - {"effect"}
    if len(names) > 1:
        problem = f"is not what the clusters were formed by, {original.name!r}"
        raise InputError.mismatch("metric", problem, "Measure the same metric.", groups.comparison.metric)
    estimates = groups.comparison.estimates
    if estimates is None:
        raise InputError.unsupported("data", "has no effects that could be compared", "Give estimates or rows.")
    if estimates.dims != original.effects.shape[1]:
        problem = f"has {estimates.dims} effects per group, but the clusters {original.effects.shape[1]}"
        raise InputError.mismatch("data", problem, "Measure the same effects.")
    return groups


def _scale_to_difference(cov: FloatArray, covariance: float) -> FloatArray:
    """Variances of two effects, (2, 1, 1), scaled to add up to that of their difference."""
    return np.asarray(cov * (1 - 2 * covariance / cov.sum()))


def _missing_groups(original: FixedClusters, groups: Groups, present: IntArray) -> tuple[MissingGroup, ...]:
    """The groups of the clusters that are not among the new ones, and why."""
    missing = np.setdiff1d(np.arange(len(original.keys)), present)
    excluded = [key_of(group.label) for group in groups.excluded]
    reasons = {
        place: group.reason
        for place, group in zip(original.places(excluded), groups.excluded, strict=True)
        if place >= 0
    }
    labels = labels_of(some_of(original.keys, missing))
    return tuple(
        MissingGroup(label, int(original.labels[place]), reasons.get(place, Reason(ReasonCode.NOT_IN_DATA)))
        for label, place in zip(labels, missing.tolist(), strict=True)
    )


def _overall(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict over all pairs: one that is not confirmed decides, then one that is inconclusive."""
    if "not confirmed" in verdicts:
        return "not confirmed"
    return "inconclusive" if "inconclusive" in verdicts else "confirmed"


class _Replication:
    """The clusters on new data.

    Args:
        original: The clusters as they were.
        groups: All groups of the new data.
        keep: Which of them are in clusters.
        labels: The cluster of each of these.
        alpha: The significance level.
    """

    def __init__(
        self, original: FixedClusters, groups: Groups, keep: BoolArray, labels: IntArray, alpha: float
    ) -> None:
        self.original, self.labels, self.alpha = original, labels, alpha
        self.comparison = groups.comparison.subset(keep)
        self.present, index = np.unique(labels, return_inverse=True)
        self.index = index.reshape(-1).astype(np.int64)
        self.readout = None if groups.readout is None else groups.readout.subset(keep)
        # That there are effects was checked before.
        self.estimates: Estimates = self.comparison.estimates  # type: ignore[assignment]
        self.levels: PooledEffects = self.comparison.pool(self.index)  # type: ignore[assignment]

    @property
    def log_pvalue(self) -> float:
        """Log p of "the clusters do not differ"."""
        return compare_pooled(self.levels).log_pvalue if self.present.size > 1 else 0.0

    def clusters(self, seed: int) -> tuple[ConfirmedCluster, ...]:
        """Every original cluster; those without a new group are empty."""
        estimates, count = self.estimates, self.present.size
        pooled = ClusterEffects(self.comparison, self.index, self.alpha, self.readout, fixed=True)
        effects, observed = pooled.effects, pooled.observed
        names = labels_of(estimates.keys)
        confirmed = []
        for number, before in enumerate(self.original.effects.tolist(), start=1):
            place = int(np.searchsorted(self.present, number))
            if place == count or self.present[place] != number:
                size = None if estimates.n is None else 0.0
                confirmed.append(ConfirmedCluster(number, (), tuple(before), (), (), size, 0.0))
                continue
            is_member = self.index == place
            own = estimates.subset(is_member)
            by_effect = np.flatnonzero(is_member)[np.argsort(own.values[:, 0], kind="stable")].tolist()
            members = tuple(names[i] for i in by_effect)
            size = None if own.n is None else float(own.n.sum())
            equal = log_pvalue_equal(own, seed)
            confirmed.append(
                ConfirmedCluster(number, members, tuple(before), effects[place], observed[place], size, equal)
            )
        return tuple(confirmed)

    def pair(self, first: ConfirmedCluster, second: ConfirmedCluster) -> ConfirmedPair:
        """Two neighbouring clusters compared."""
        both = (first.original_effects, second.original_effects)
        before = tuple(high - low for low, high in zip(*both, strict=True))
        if not (first.members and second.members):
            return ConfirmedPair(first.number, second.number, before, (), 0.0, 0.0, "inconclusive")
        places = np.searchsorted(self.present, [first.number, second.number])
        values, cov = self.levels.values[places], self.levels.covariances[places]
        dof = None if self.levels.dof is None else self.levels.dof[places]
        originals = np.array(both)
        on_scale = np.column_stack([scale.place(originals[:, i]) for i, scale in enumerate(self.estimates.scales)])
        test = compare_means(values, cov, dof)
        if self.levels.covariance_between is not None:
            between = self.levels.covariance_between[np.ix_(places, places)]
            test, cov = (
                compare_correlated_means(values[:, 0], between, dof),
                _scale_to_difference(cov, float(between[0, 1])),
            )
        test = test._replace(square=test.square * self._share_beyond(values) ** 2)
        precision = np.linalg.inv(cov[0] + cov[1])
        gap_before, gap = on_scale[1] - on_scale[0], values[1] - values[0]
        half = float(gap_before @ precision @ gap_before) * (self._share_beyond(on_scale) / 2) ** 2
        power = test.power(half, self.alpha)
        verdict: Verdict = "not confirmed" if power >= _ENOUGH else "inconclusive"
        if test.log_pvalue < np.log(self.alpha):
            verdict = "confirmed" if float(gap_before @ precision @ gap) > 0 else "not confirmed"
        differences = self._differences(first, second, values, cov, dof)
        return ConfirmedPair(first.number, second.number, before, differences, test.log_pvalue, power, verdict)

    def _share_beyond(self, values: FloatArray) -> float:
        """The share of the distance of two effects that is beyond the tolerance; all of it without one."""
        low, high = np.sort(values[:, 0])
        if not self.original.tolerance or high == low:
            return 1.0
        line = compare_one_effect(self.estimates, self.original.tolerance)
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
        differences = []
        for i, scale in enumerate(self.estimates.scales):
            variances = cov[:, i, i]
            error = float(np.sqrt(variances.sum()))
            freedom = None if dof is None else float(variances.sum() ** 2 / np.sum(variances**2 / dof))
            if dof is not None and self.levels.covariance_between is not None:
                freedom = float(dof.min())
            critical = float(critical_value(self.alpha / 2, freedom))
            difference = second.effects[i].estimate - first.effects[i].estimate
            se = error * float(scale.slope(values[:, i].mean(keepdims=True))[0])
            differences.append(Effect(difference, se, difference - critical * se, difference + critical * se))
        return tuple(differences)
