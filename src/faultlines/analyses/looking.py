"""What a look takes from rows: estimates, groups too small so far, arms, the overall effect, and what was noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from faultlines import formats
from faultlines.analyses.groups import Groups, groups_from, is_rows
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import Label, key_of, name_of
from faultlines.estimates.reasons import Reason
from faultlines.guarantees.boundaries import AnytimeRule, LookData
from faultlines.metrics.base import Measured, Metric
from faultlines.metrics.readout import Readout
from faultlines.metrics.table import METRICS
from faultlines.render.clustering import warning_notes
from faultlines.results.clustering import counted as counted_in
from faultlines.results.monitor import AnytimeEffect, SmallGroup
from faultlines.results.protocol import Note
from faultlines.rows.keys import By
from faultlines.types import FloatArray, IntArray

_ABSOLUTE = {"lift": "difference", "ratio_lift": "ratio_difference"}  # what can be had where a lift cannot
_ZERO_ONE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class LookRows:
    """What a look knows of its rows beside the estimates; nothing where estimates were given.

    Attributes:
        small: Groups with too few data so far.
        dropped: Reason → number of dropped rows.
        warnings: What was noticed in the rows.
        arms: Users or rows by arm, the control first.
        overall: All rows as one group.
        control: The control, of an experiment.
        by_treatment: Treatment → all its rows and those of the control as one group; None where groups share units.
        odds: Of a 0/1 outcome, the odds of every group that it is 1.
        counted: What sizes of groups count.
        readout: The moments behind the estimates, where groups share units or a control.
    """

    small: tuple[SmallGroup, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[Note, ...] = ()
    arms: Mapping[str, float] = field(default_factory=dict)
    overall: LookData | None = None
    control: str = ""
    by_treatment: Mapping[str, LookData | None] = field(default_factory=dict)
    odds: FloatArray | None = None
    counted: str = ""
    readout: Readout | None = None

    def count_units(self, labels: Sequence[Label], clusters: Sequence[Sequence[Label]]) -> list[float | None]:
        """Units of clusters, each counted once; None where sizes of groups add up, or it cannot be known.

        Args:
            labels: The groups of the look, in the order of its estimates.
            clusters: The groups of each cluster.
        """
        number = {key_of(label): i for i, cluster in enumerate(clusters) for label in cluster}
        of_groups = np.array([number.get(key_of(label), len(clusters)) for label in labels], dtype=np.int64)
        if self.readout is None or len(number) > np.count_nonzero(of_groups < len(clusters)):
            return [None] * len(clusters)
        sizes = self.readout.cluster_sizes(of_groups, int(of_groups.max()) + 1)
        return [None] * len(clusters) if sizes is None else sizes.tolist()[: len(clusters)]

    def count_reasons(self) -> dict[Reason, int]:
        """Why groups cannot be compared yet, and how many."""
        return dict(Counter(small.reason for small in self.small))


def measure_look(
    data: object, by: By | None, metric: Metric | None, min_size: float | None, rule: AnytimeRule
) -> tuple[Any, LookRows]:
    """Estimates of all data so far, and what is known of the rows behind them.

    Of a lift, differences are measured in the same scan: groups whose lift cannot be had yet are shown with theirs.

    Args:
        data: Estimates, or rows.
        by: For rows: the attributes.
        metric: For rows: what to measure.
        min_size: For rows: the smallest group that is compared.
        rule: How far intervals of groups that are too small reach.

    Raises:
        InputError: If the data cannot be used.
    """
    if by is None and metric is None:
        if min_size is not None:
            raise InputError.conflict(
                "min_size", "applies to rows only", "Leave it out, and exclude small groups yourself.", min_size
            )
        return data, LookRows(odds=_odds_of_rates(data)) if isinstance(data, Estimates) else LookRows()
    for attribute in [by] if isinstance(by, str) or not isinstance(by, list | tuple) else by:
        if getattr(attribute, "quantiles", None) is not None:
            problem = "quantiles move while data come in, and groups with them"
            raise InputError.unsupported("by", problem, "Cut in steps of a width, as in age:5.", form="clause")
    absolute = _absolute_of(metric) if is_rows(data) else None
    metrics = [] if metric is None else [metric, *([] if absolute is None else [absolute])]
    groups, *absolute_groups = groups_from(data, by, metrics, min_size=min_size)
    estimates = groups.comparison.estimates
    if estimates is None or groups.readout is None:
        raise InputError.wrong_type("data", "holds no rows", "Give rows with by and metric.", type(data))
    readout = groups.readout
    return estimates, LookRows(
        small=_small_groups(groups, absolute_groups, rule),
        dropped={str(code): count for code, count in groups.dropped.items()},
        warnings=row_warnings(readout),
        arms=arm_sizes(readout, estimates),
        overall=_overall(readout),
        control=name_of(readout.arms[0]) if readout.arms else "",
        by_treatment=_by_treatment(readout),
        odds=_odds_of_rates(estimates) if estimates.scales[0].is_share else _odds_of_outcome(readout),
        counted=counted_in(groups.comparison, readout),
        readout=readout if readout.distinct is not None else None,
    )


def row_warnings(readout: Readout) -> tuple[Note, ...]:
    """What was noticed in the rows of a look, sample ratios among it: the one place that asks for it."""
    return tuple(replace(note, text=formats.printable(note.text)) for note in warning_notes(readout.warnings))


def arm_sizes(readout: Readout, estimates: Estimates) -> dict[str, float]:
    """Users or rows of every arm in the groups that are compared, the control first; none without arms."""
    sizes, arms = readout.arm_sizes, readout.metric.arms
    if sizes is None or arms is None:
        return {}
    control = name_of(readout.arms[0])
    if readout.distinct_by_arm is not None:  # a unit counts once, in however many groups it is
        counts = zip(readout.arms, readout.distinct_by_arm.tolist(), strict=True)
        return {name_of(arm): count for arm, count in counts}
    if not arms.several:
        return {control: float(sizes[:, 0].sum()), name_of(readout.arms[1]): float(sizes[:, 1].sum())}
    # A group is there once for each treatment, with the same control: that counts once, and where all arms are there.
    by_group: dict[Any, dict[str, float]] = {}
    for label, (of_control, of_treatment) in zip(estimates.labels, sizes.tolist(), strict=True):
        *group, name = key_of(label)
        by_group.setdefault(tuple(group), {control: of_control})[name_of(name)] = of_treatment
    names = list(dict.fromkeys(name for counts in by_group.values() for name in counts))
    complete = [counts for counts in by_group.values() if len(counts) == len(names)]
    return {name: sum(counts[name] for counts in complete) for name in names} if complete else {}


def _absolute_of(metric: Metric | None) -> Metric | None:
    """The metric of differences for one of lifts."""
    recipe = getattr(metric, "recipe", None)
    if recipe is None or recipe.name not in _ABSOLUTE:
        return None
    return METRICS[_ABSOLUTE[recipe.name]].function(**dict(recipe.arguments))


def _small_groups(groups: Groups, absolute_groups: Sequence[Groups], rule: AnytimeRule) -> tuple[SmallGroup, ...]:
    """Groups that cannot be compared yet, with their differences where lifts cannot be had."""
    absolute = absolute_groups[0].comparison.estimates if absolute_groups else None
    places = {} if absolute is None else {key_of(label): i for i, label in enumerate(absolute.labels)}
    keys = [key for group in groups.excluded if (key := key_of(group.label)) in places]
    effects: dict[Any, AnytimeEffect] = {}
    if absolute is not None and keys:
        at = np.array([places[key] for key in keys])
        dof = None if absolute.dof is None else absolute.dof[at]
        # They come and go with the looks, so that nothing is assumed of how these depend on each other.
        reach = rule.reach_once(np.full(at.size, -np.log(at.size)), dof) * absolute.errors[at, 0]
        middle = absolute.given[at, 0]
        sizes = np.full(at.size, np.nan) if absolute.n is None else absolute.n[at]
        for key, theta, width, n in zip(keys, middle.tolist(), reach.tolist(), sizes.tolist(), strict=True):
            effects[key] = AnytimeEffect(theta, theta - width, theta + width, n)
    return tuple(
        SmallGroup(group.label, group.reason, group.n, absolute.metric, effect, absolute.scales[0].unit)
        if absolute is not None and (effect := effects.get(key_of(group.label))) is not None
        else SmallGroup(group.label, group.reason, group.n)
        for group in groups.excluded
    )


def _overall(readout: Readout) -> LookData | None:
    """All rows as one group, as a dashboard shows them; None where there is no such sum."""
    places = np.arange(len(readout.moments.n))
    measured = readout.together(np.zeros_like(places), 1)
    return None if measured is None or readout.metric.parts else _as_one_group(readout, measured, 0, places)


def _by_treatment(readout: Readout) -> dict[str, LookData | None]:
    """All rows of each treatment, with those of the control, as one group; None where there is no such sum."""
    if not readout.arms or readout.metric.parts:
        return {}
    measured, of_groups = readout.by_treatment(), readout.treatment
    by_name: dict[str, LookData | None] = {}
    for i, treatment in enumerate(readout.arms[1:]):
        places = np.arange(len(readout.moments.n)) if of_groups is None else np.flatnonzero(of_groups == i)
        if places.size:
            by_name[name_of(treatment)] = None if measured is None else _as_one_group(readout, measured, i, places)
    return by_name


def _as_one_group(readout: Readout, measured: Measured, place: int, groups: IntArray) -> LookData | None:
    """What was measured in all rows of some groups, as a look at one; None where it has no interval."""
    parts = (measured.theta, measured.se, measured.natural, measured.n)
    theta, se, natural, n = (np.asarray(part, dtype=float).reshape(-1)[place : place + 1] for part in parts)
    if not (np.isfinite([theta[0], se[0], natural[0]]).all() and se[0] > 0):
        return None
    dof = measured.dof
    if dof is not None:
        dof = np.maximum(np.asarray(dof, dtype=float).reshape(-1)[place : place + 1], 1.0)
    odds = None
    if _is_zero_one(readout):
        moments = readout.moments.of_groups(groups)
        odds = _zero_one_odds(moments.n[:, :, 0].sum(keepdims=True)[:1, :1], _mean_of_all(moments))
    return LookData(np.zeros(1, dtype=np.int64), theta, se, n, dof, odds, natural)


def _mean_of_all(moments: Any) -> FloatArray:
    n, mean = moments.n[:, :, 0], np.nan_to_num(moments.mean[:, :, 0])
    return np.array([[float(np.sum(n * mean) / max(np.sum(n), 1.0))]])


def _odds_of_rates(estimates: Estimates) -> FloatArray | None:
    """The odds of rates, whose outcome is 0 or 1."""
    if not estimates.scales[0].is_share or estimates.n is None or estimates.dims > 1:
        return None
    return _zero_one_odds(estimates.n[:, None], estimates.shown[:, :1])


def _odds_of_outcome(readout: Readout) -> FloatArray | None:
    """The odds of every group where the values behind differences and lifts are all 0 or 1."""
    if not _is_zero_one(readout):
        return None
    return _zero_one_odds(readout.moments.n[:, :, 0], readout.moments.mean[:, :, 0])


def _is_zero_one(readout: Readout) -> bool:
    """Whether values are 0 or 1, by their variances: p(1 − p) n/(n − 1) for no others with all values in [0, 1]."""
    moments = readout.moments
    n, mean = moments.n[:, :, 0], moments.mean[:, :, 0]
    if readout.metric.parts or moments.cov.shape[-1] > 1 or not np.all((n > 1) & (mean >= 0) & (mean <= 1)):
        return False
    variance = mean * (1 - mean) * n / (n - 1)
    return bool(np.allclose(moments.cov[:, :, 0, 0], variance, rtol=1e-6, atol=_ZERO_ONE))


def _zero_one_odds(n: FloatArray, mean: FloatArray) -> FloatArray:
    """The odds of every row of counts and means of arms, half an event away from 0 and 1."""
    total = n.sum(axis=1)
    events = np.clip((n * mean).sum(axis=1), 0.0, total)
    return np.asarray((events + 0.5) / (total - events + 0.5))
