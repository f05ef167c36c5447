"""From rows to estimates: what a metric is in every group, the groups that cannot be used, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from faultlines import formats
from faultlines.checks import size as checked_size
from faultlines.errors import InputError, NoGroupsError
from faultlines.estimates.estimates import Estimates, Excluded, Remainder
from faultlines.estimates.labels import Key, labels_of, part_of, some_of
from faultlines.estimates.reasons import (
    DropCode,
    Reason,
    ReasonCode,
    Reasons,
    RowWarning,
    mark,
    no_reasons,
    remedy_without_groups,
    unmarked,
)
from faultlines.estimates.scales import Scale
from faultlines.metrics.base import Measured, Metric
from faultlines.metrics.joint import correlation, split_treatments
from faultlines.metrics.moments import OwnNoise, own_noise
from faultlines.metrics.names import possible_ends, recipe_of
from faultlines.metrics.readout import Readout, SampleRatio, sum_moments
from faultlines.metrics.table import own_name
from faultlines.metrics.variances import assume_shape
from faultlines.metrics.warnings import sample_ratio, warnings
from faultlines.rows.keys import Bins, By
from faultlines.rows.read import attribute_names, checked_by, read
from faultlines.rows.request import Grouped, Moments, Split, Together
from faultlines.types import BoolArray, FloatArray, IntArray

__all__ = ["Measurement", "Split", "measure", "measure_all", "measure_parts"]

_LEAST_POOLED = 2.0  # times the smallest size of a group: what is pooled is a mixture, its shape is known less well


class Measurement(NamedTuple):
    """What came out of the rows: estimates, the groups that could not be used, and the rows that were not.

    Args:
        estimates: The estimates of the groups that can be used.
        excluded: The other groups, each with its reason.
        dropped: How many rows were not used, by reason.
        by: What the groups are; quantiles have become the edges they were in these rows.
        readout: The moments behind the estimates, and what a reader must know about the rows.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"country": ["DE"] * 40 + ["FR"] * 60 + ["IS"], "bought": [0, 1, 1, 0] * 25 + [1]})
        >>> made = fl.measure(rows, "country", fl.rate("bought"))
        >>> made.estimates.labels, made.excluded[0].label, made.dropped
        (('DE', 'FR'), 'IS', {})
    """

    estimates: Estimates
    excluded: tuple[Excluded, ...]
    dropped: Mapping[DropCode, int]
    by: tuple[str | Bins, ...]
    readout: Readout | None = None

    def __repr__(self) -> str:
        groups = f"{formats.amount(len(self.estimates), 'group')} by {' × '.join(self.estimates.attributes)}"
        dropped = formats.amount(sum(self.dropped.values()), "row")
        return f"Measurement({groups}, {len(self.excluded):,} excluded, {dropped} dropped)"


_PLENTY = 1_000  # units for each group with which a covariance counts as known: Cochran's Q is off by 0.1%


def measure(data: object, by: By, metric: Metric, *, min_size: float | None = None) -> Measurement:
    """Estimate a metric in every group of rows.

    Args:
        data: A frame (pandas, Polars, PyArrow, DuckDB, Spark, Ibis), or path, paths or glob of csv or parquet files.
        by: The column, or the columns, whose combinations are the groups; `fl.bins(...)` cuts a numeric one.
        metric: What to measure.
        min_size: Groups with fewer than this are excluded, counted where the estimate comes from: rows or units in each
            arm, positives for a true positive rate, and so on. Default: that of the metric: 10, for rates 5.

    Returns:
        Estimates, and what was excluded.

    Raises:
        InputError: If the data cannot be read, do not hold what the metric needs, or no group can be used.

    Example:
        >>> import duckdb, faultlines as fl
        >>> rows = duckdb.sql("SELECT i % 3 AS g, i % 7 AS x FROM range(300) t(i)")
        >>> fl.measure(rows, "g", fl.mean("x")).estimates
        Estimates(3 groups by g, θ from 2.97 to 3.01)
    """
    return measure_all(data, by, [metric], min_size=min_size)[0][0]


def measure_parts(
    data: object,
    by: By,
    metric: Metric,
    shares: Sequence[float],
    *,
    unit: str,
    min_size: float | None = None,
    seed: int = 0,
) -> tuple[Measurement, ...]:
    """Estimate a metric in every group of rows, in independent parts: a unit is in one of them, by a hash of its name.

    Only groups that can be used in every part are kept; `min_size` is asked of each. The hash is the same wherever the
    rows are.

    Args:
        data: As for `measure`.
        by: As for `measure`.
        metric: As for `measure`.
        shares: The share of each part; they add up to 1.
        unit: The column whose values stay together.
        min_size: As for `measure`.
        seed: The seed of the hash.

    Returns:
        One measurement per part.

    Raises:
        InputError: As for `measure`.
    """
    return measure_all(data, by, [metric], min_size=min_size, split=Split(unit, shares, seed))[0]


def measure_all(
    data: object, by: By, metrics: Sequence[Metric], *, min_size: float | None = None, split: Split | None = None
) -> list[tuple[Measurement, ...]]:
    """Estimate several metrics in every group of rows, in one scan where they have the same variants and unit.

    Args:
        data: As for `measure`.
        by: As for `measure`.
        metrics: What to measure.
        min_size: As for `measure`.
        split: How rows are divided into independent parts; not at all by default.

    Returns:
        For every metric, one measurement per part. Where rows are divided several times, times in which no group can
        be used are excluded.

    Raises:
        InputError: As for `measure`.
    """
    for metric in metrics:
        if not isinstance(metric, Metric):
            raise _no_metric(metric)
    attributes = checked_by(by)
    least = None if min_size is None else checked_size(min_size)
    rows = read(data, attributes, metrics, split)
    names = attribute_names(attributes)
    measured = []
    for metric, parts in zip(metrics, rows.grouped, strict=True):
        if not len(parts[0].keys):
            raise InputError.empty("data", "has no rows", "Give at least one row for each group.")
        needed = metric.min_size if least is None else least
        times = 1 if split is None else split.times
        measured.append(_every_time(parts, times, names, metric, needed, rows.by))
    return measured


def _no_metric(value: object) -> InputError:
    """What to say of something that is not a metric: several of them, or the name or function of one."""
    if isinstance(value, list | tuple) and value and all(isinstance(item, Metric) for item in value):
        remedy = "Cluster by each and correct by fl.holm, take all together by fl.joint(m1, m2), or use fl.audit."
        names = [item.name for item in value]
        return InputError.ambiguous("metric", "holds several metrics", remedy, names)
    named = getattr(value, "__name__", value)
    own = own_name(named) if isinstance(named, str) else None
    remedy = f"Give it its columns: fl.{own}(…)." if own else 'Use for example fl.rate("converted").'
    return InputError.wrong_type("metric", "is not a metric", remedy, value)


def _every_time(
    parts: Sequence[Grouped], times: int, names: tuple[str, ...], metric: Metric, least: float, by: tuple[Any, ...]
) -> tuple[Measurement, ...]:
    """Measurements of rows that were divided several times; a group too small one time can be there the next."""
    count, usable, failed = len(parts) // times, list[Measurement](), list[NoGroupsError]()
    for time in range(times):
        try:
            usable += measurements(parts[time * count : (time + 1) * count], names, metric, least, by)
        except NoGroupsError as error:
            failed.append(error)
    if not usable:
        raise failed[0]
    return tuple(usable)


def _is_unchanged(metric: Metric, reasons: Mapping[Reason, int]) -> bool:
    """Whether the two models of a paired metric do not differ in any row."""
    is_paired = metric.recipe is not None and metric.recipe.name == "paired"
    return is_paired and {reason.code for reason in reasons} == {ReasonCode.ZERO_VARIANCE}


def measurements(
    parts: Sequence[Grouped], names: tuple[str, ...], metric: Metric, least: float, by: tuple[str | Bins, ...]
) -> tuple[Measurement, ...]:
    """Groups with their moments as estimates, those that cannot be used excluded; once for each part of the rows."""
    ratios = [sample_ratio(metric, part, names) for part in parts]
    shaped = [_shaped(split_treatments(part, metric), metric) for part in parts]
    parts = [part for part, _ in shaped]
    several = metric.arms is not None and metric.arms.several
    if metric.arms is not None and several:
        names = (*names, metric.arms.column)
    measured = [_measured(part.moments, metric, least) for part in parts]
    keys = parts[0].keys
    reasons = no_reasons(len(keys))
    for part, grouped in zip(measured, parts, strict=True):
        why = _unusable(part, grouped.moments, metric, least)
        if len(parts) > 1:
            for place in np.flatnonzero(~unmarked(why)).tolist():
                why[place] = replace(why[place], in_part=True)
        reasons = np.where(unmarked(reasons), why, reasons)
    keep = unmarked(reasons)
    if not keep.any():
        sizes = np.min([_sizes(part.moments, metric) for part in parts], axis=0)
        raise _no_groups_error(reasons, keys, sizes, metric, names)
    places = np.flatnonzero(keep)
    labels = labels_of(keys if places.size == len(keys) else some_of(keys, places))
    excluded = _excluded(keys, reasons, measured, metric)
    dropped = {why: count for why, count in parts[0].dropped.items() if count}
    measured_parts = []
    for part, grouped, (_, assumed), ratio in zip(measured, parts, shaped, ratios, strict=True):
        alone = _errors_alone(part, metric, grouped.moments) if len(names) > 1 else None
        estimates = _estimates(part, places, labels, names, metric, alone)
        sizes = _sizes(grouped.moments, metric)
        remainder = _pool_small_groups(metric, grouped.moments, keys, sizes, keep, least, ratio)
        estimates = estimates if remainder is None else estimates.changed(remainder=remainder)
        notes = (*assumed, *warnings(metric, grouped, keep, estimates.errors[:, 0]))
        if grouped.together is not None:
            estimates, words = _sharing(estimates, grouped, grouped.together, metric, places)
            notes = (*notes, *words)
        by_arm, mass = (None if array is None else array[places] for array in (part.by_arm, part.mass))
        capped = None if grouped.capped is None else grouped.capped._replace(above=grouped.capped.above[places])
        mismatch = (ratio,) if ratio is not None and ratio.is_mismatch else ()
        readout = Readout(
            metric,
            grouped.moments.of_groups(places),
            by_arm,
            (*mismatch, *notes),
            mass,
            missing=grouped.missing,
            capped=capped,
            sample_ratio=ratio,
            distinct=_distinct(grouped, metric, places),
            distinct_by_arm=grouped.distinct,
            arms=() if metric.arms is None else (part_of(metric.arms.control), *grouped.treatments),
            treatment=places % len(grouped.treatments) if several else None,
            cell=places // len(grouped.treatments) if several else None,
            common=_common_units(grouped, places) if metric.overlap != "error" else None,
        )
        measured_parts.append(Measurement(estimates, excluded, dropped, by, readout))
    return tuple(measured_parts)


def _no_groups_error(
    reasons: Reasons, keys: Sequence[Any], sizes: FloatArray, metric: Metric, names: tuple[str, ...]
) -> NoGroupsError:
    """What to say where no group can be used, and what to do about it."""
    counts = Counter(reasons.tolist())
    if _is_unchanged(metric, counts):
        problem = "has the same ranks or predictions of both models in all rows: every change is zero"
        remedy = "Check that the two columns are those of different models. If they are, there is nothing to test."
        return NoGroupsError("metric", problem, remedy, value=metric.name, reasons=counts)
    listed = "; ".join(f"{why.text} ({count:,})" for why, count in counts.items())
    remedy, settings = remedy_without_groups(reasons.tolist(), sizes.tolist(), metric.min_size)
    alone = _large_attributes(keys, sizes, metric.min_size) if len(names) > 1 else []
    if alone and ReasonCode.TOO_SMALL in {reason.code for reason in counts}:
        remedy, settings = "Combinations are too small: give fewer attributes, such as {by}.", {"by": names[alone[0]]}
    problem = f"none of {formats.amount(len(reasons), 'group')} can be used: {listed}"
    how: dict[str, Any] = {"settings": settings, "form": "clause", "reasons": counts}
    return NoGroupsError("by", problem, remedy, value=list(names), **how)


def _measured(moments: Moments, metric: Metric, least: float) -> Measured:
    """What the metric is in every group; groups too small to be compared have no say in the variances of the others."""
    of_all_groups = metric.measured(moments)
    large = np.flatnonzero(_sizes(moments, metric) >= least)
    if large.size in {0, len(moments.n)}:
        return of_all_groups
    of_large_groups = metric.measured(moments.of_groups(large))
    return Measured(
        *(_fill_in(of_all, of_large, large) for of_all, of_large in zip(of_all_groups, of_large_groups, strict=True))
    )


def _fill_in(of_all: Any, of_large: Any, large: Any) -> Any:
    """The numbers of all groups, with others for some of them."""
    if of_all is None or of_large is None or isinstance(of_large, Scale):
        return of_large
    combined = of_all.copy()
    combined[large] = of_large
    return combined


def _sizes(moments: Moments, metric: Metric) -> FloatArray:
    """What is compared with `min_size`."""
    sizes = moments.n if metric.size_variables is None else moments.n[:, :, list(metric.size_variables)]
    return np.asarray(sizes.min(axis=(1, 2)))


def _shaped(grouped: Grouped, metric: Metric) -> tuple[Grouped, tuple[RowWarning, ...]]:
    """Groups of a table that does not say how its values are distributed, with what it suggests, in words too."""
    if metric.aggregated is None or not metric.needs_covariance or grouped.moments.skewness is not None:
        return grouped, ()
    if metric.aggregated.others:  # every group has the variance of its own values then
        return grouped, ()
    moments, text = assume_shape(grouped.moments)
    return replace(grouped, moments=moments), (RowWarning("assumed shape", text),)


def _estimates(
    part: Measured, places: Any, labels: Any, names: tuple[str, ...], metric: Metric, alone: FloatArray | None = None
) -> Estimates:
    return Estimates(
        part.theta[places],
        part.se[places] if part.effect_covariance is None else None,
        labels,
        part.n[places],
        None if part.dof is None else part.dof[places],
        attributes=names,
        natural=part.natural[places],
        scale=part.scale or metric.scale,
        metric=metric.name,
        effect_covariance=None if part.effect_covariance is None else part.effect_covariance[places],
        parts=metric.parts or None,
        compared=None if part.compared is None else part.compared[places],
        recipe=recipe_of(metric),
        alone=None if alone is None else alone[places],
    )


def _errors_alone(part: Measured, metric: Metric, moments: Moments) -> FloatArray | None:
    """What the rows of each cell alone say of its noise: of skewed values a few make it look far out."""
    noise = own_noise(metric.estimate, moments)
    if not isinstance(noise, OwnNoise):
        return None
    alone = np.stack((np.sqrt(noise.variance), noise.dof), axis=1)
    is_known = np.all(np.isfinite(alone) & (alone > 0), axis=1)
    alone[~is_known, 0], alone[~is_known, 1] = part.se[~is_known], np.inf
    return alone


def _sharing(
    estimates: Estimates, grouped: Grouped, common: Together, metric: Metric, places: Any
) -> tuple[Estimates, tuple[RowWarning, ...]]:
    """Estimates with the covariance of groups that share data, and what a reader must know of it."""
    shared = correlation(metric, grouped.moments, common, places)
    if shared is None or len(estimates) < 2:
        return estimates, ()
    errors, dof = estimates.errors[:, 0], np.inf
    if metric.overlap != "error" and shared.units < _PLENTY * errors.size:
        dof = shared.units
    if dof < errors.size - 1:
        problem = f"{errors.size} groups share the data of some {dof:.0f} {metric.size_unit}, too few to tell how"
        raise InputError.too_few(
            "overlap", problem, "Use coarser groups or min_size, or more data.", "covariance", form="clause"
        )
    with_covariance = estimates.changed(covariance=shared.correlation * errors[:, None] * errors, covariance_dof=dof)
    off_diagonal = np.abs(shared.correlation[np.triu_indices(errors.size, 1)])
    what = "a control" if metric.overlap == "error" else metric.size_unit
    distinct, total = _distinct(grouped, metric, places), float(np.sum(grouped.moments.n[places, :, 0]))
    text = f"Groups share {what}; the correlation of two estimates, up to {off_diagonal.max():.2g}, is allowed for."
    fields = {"correlation": float(off_diagonal.max())}
    if distinct is not None:
        text += (
            f" There are {formats.count(round(distinct))} different {metric.size_unit}; sizes of groups add up to "
            f"{formats.count(round(total))}."
        )
        fields |= {"distinct": float(distinct), "sum": total}
    warning = RowWarning("shared data", text, fields)
    return with_covariance, (warning,)


def _distinct(grouped: Grouped, metric: Metric, places: Any) -> float | None:
    """Rows or units of all groups, each counted once; None where no groups share any."""
    if metric.overlap != "error":
        return None if grouped.distinct is None else float(grouped.distinct.sum())
    if metric.arms is None or not metric.arms.several:
        return None
    sizes, of_group = grouped.moments.n[places, :, 0], places // max(len(grouped.treatments), 1)
    first = np.unique(of_group, return_index=True)[1]  # all treatments of a group have the same control
    return float(sizes[first, 0].sum() + sizes[:, 1].sum())


def _common_units(grouped: Grouped, places: Any) -> FloatArray | None:
    """Units that pairs of groups have in common, in all arms; None where that was not counted."""
    pairs = grouped.together
    if pairs is None:
        return None
    units = np.zeros((len(grouped.moments.n), len(grouped.moments.n)))
    np.add.at(units, (pairs.first, pairs.second), pairs.n)
    return np.asarray(units[np.ix_(places, places)])


def _excluded(
    keys: Sequence[Any], reasons: Reasons, measured: Sequence[Measured], metric: Metric
) -> tuple[Excluded, ...]:
    """The groups that cannot be used, each with what is known of it: its size, and its estimate where there is one."""
    places = np.flatnonzero(~unmarked(reasons))
    if not places.size:
        return ()
    sizes: FloatArray = np.sum([part.n[places] for part in measured], axis=0)
    figures: list[tuple[float | None, float | None]] = [(None, None)] * places.size
    intervals: list[_Interval] = [_Interval()] * places.size
    if len(measured) == 1 and measured[0].theta.reshape(len(keys), -1).shape[1] == 1:
        part = measured[0]
        theta, natural, se = (column.reshape(-1)[places] for column in (part.theta, part.natural, part.se))
        with np.errstate(all="ignore"):
            errors = se * metric.scale.slope(theta)
        figures = [
            (_finite_or_none(value), _finite_or_none(error) if np.isfinite(value) and error > 0 else None)
            for value, error in zip(natural.tolist(), errors.tolist(), strict=True)
        ]
        dof = None if part.dof is None else part.dof[places]
        intervals = _intervals(natural, theta, se, dof, sizes, metric)
    labels = labels_of(some_of(keys, places))
    return tuple(
        Excluded(label, why, estimate, se, _finite_or_none(n), *interval)
        for label, why, (estimate, se), n, interval in zip(
            labels, reasons[places], figures, sizes.tolist(), intervals, strict=True
        )
    )


class _Interval(NamedTuple):
    """Events and the ends of a 95% interval, of an excluded group."""

    events: float | None = None
    lower: float | None = None
    upper: float | None = None


def _intervals(
    natural: FloatArray, theta: FloatArray, se: FloatArray, dof: FloatArray | None, n: FloatArray, metric: Metric
) -> list[_Interval]:
    """Exact intervals of shares, those of Student of other estimates."""
    counts: list[float | None] = [None] * n.size
    with np.errstate(all="ignore"):
        ends = metric.scale.ends(natural, theta, se, 0.025, dof)
        lower, upper = possible_ends(recipe_of(metric), natural, *ends, n, 0.025)
    if metric.scale.is_share:
        events = np.nan_to_num(natural * n)
        is_count = (np.abs(events - np.round(events)) < 1e-6) & np.isfinite(natural)
        counts = [float(round(e)) if w else None for e, w in zip(events.tolist(), is_count, strict=True)]
    return [_Interval(c, _finite_or_none(a), _finite_or_none(b)) for c, a, b in zip(counts, lower, upper, strict=True)]


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _unusable(measured: Measured, moments: Moments, metric: Metric, least: float) -> Reasons:
    """Why each group cannot be used; None where it can."""
    reasons = measured.reason
    small = Reason(ReasonCode.TOO_SMALL, least=least, unit=metric.size_unit, arm="any" if metric.arms else "")
    mark(reasons, _sizes(moments, metric) < least, small)
    for part in (measured.theta, measured.se, measured.natural):
        finite = np.all(np.isfinite(np.reshape(part, (len(reasons), -1))), axis=1)
        mark(reasons, ~finite, Reason(ReasonCode.NOT_FINITE))
    return reasons


# ------------------------------------------------------------------------ crossed groups too small to be compared

# Small combinations are pooled over the attribute with the most levels first (of country × device × type, over
# country), those that are still too small over the next one too, until one attribute is left, so that their rows still
# count along the others. Sizes alone decide what is pooled: what the rows hold has no say, so that groups with equal
# effects have equal effects pooled.


def _pool_small_groups(
    metric: Metric,
    moments: Moments,
    keys: Sequence[Key],
    sizes: FloatArray,
    is_used: BoolArray,
    least: float,
    ratio: SampleRatio | None,
) -> Remainder | None:
    """The rows of small groups by the attributes that pooling leaves; None where there are none, or they do not add up.

    Args:
        metric: What is measured.
        moments: Moments of all groups.
        keys: All groups.
        sizes: What is compared with the smallest size, by group.
        is_used: Which groups are compared by themselves.
        least: The smallest size.
        ratio: Of the arms: where their shares differ, pooled arms are not comparable.
    """
    adds_up = metric.adds_up and not metric.products and not metric.parts and metric.aggregated is None
    is_plain = metric.overlap == "error" and not (metric.arms is not None and metric.arms.several)
    if not adds_up or not is_plain or (ratio is not None and ratio.is_mismatch):
        return None
    small = np.flatnonzero((sizes < least) & (sizes > 0))
    if np.count_nonzero(is_used) < 2 or small.size < 2 or len(keys[0]) < 2:
        return None
    pooled_keys, codes = _pool_keys([keys[i] for i in small.tolist()], sizes[small], _LEAST_POOLED * least)
    count = len(pooled_keys)
    if not count:
        return None
    inside = codes >= 0
    pooled = sum_moments(moments.of_groups(small[inside]), codes[inside], count)
    used = moments.of_groups(np.flatnonzero(is_used))
    both = Moments(*(_stack(*pair) for pair in zip(used, pooled, strict=True)))  # type: ignore[arg-type]
    measured = metric.measured(both)  # together, so that they share what is known about variances
    rest = slice(len(used.n), None)
    parts = (measured.theta[rest], measured.se[rest], measured.natural[rest])
    is_good = np.all([np.isfinite(part) for part in parts], axis=0) & (measured.se[rest] > 0)
    is_good &= unmarked(measured.reason[rest])
    if not is_good.any():
        return None
    theta, se, natural = (part[is_good] for part in parts)
    estimates = Estimates(
        theta,
        se,
        n=measured.n[rest][is_good],
        dof=None if measured.dof is None else measured.dof[rest][is_good],
        natural=natural,
        scale=measured.scale or metric.scale,
        metric=metric.name,
        compared=None if measured.compared is None else measured.compared[rest][is_good],
    )
    good_places = np.flatnonzero(is_good).tolist()
    groups = int(np.count_nonzero(np.isin(codes, good_places)))
    return Remainder(estimates, tuple(pooled_keys[i] for i in good_places), groups)


def _large_attributes(keys: Sequence[Key], sizes: FloatArray, least: float) -> list[int]:
    """Places of the attributes two or more of whose levels are large enough by themselves, fewest levels first.

    Args:
        keys: All groups, of which none is large enough.
        sizes: What is compared with the smallest size, by group.
        least: The smallest size.
    """
    found = []
    for a in range(len(keys[0])):
        totals: dict[object, float] = {}
        for key, size in zip(keys, sizes.tolist(), strict=True):
            totals[key[a]] = totals.get(key[a], 0.0) + size
        if sum(total >= least for total in totals.values()) > 1:
            found.append((len(totals), a))
    return [a for _, a in sorted(found)]


def _pool_keys(keys: Sequence[Key], sizes: FloatArray, least: float) -> tuple[list[tuple[object, ...]], IntArray]:
    """Pooled keys, None for attributes that were pooled over, and which of them each group belongs to; −1 for none."""
    count = len(keys[0])
    by_levels = sorted(range(count), key=lambda a: -len({key[a] for key in keys}))
    codes, pooled = np.full(len(keys), -1, dtype=np.int64), list[tuple[object, ...]]()
    for over in range(1, count):
        dropped, places = set(by_levels[:over]), dict[tuple[object, ...], list[int]]()
        for i in np.flatnonzero(codes < 0).tolist():
            key = tuple(None if a in dropped else part for a, part in enumerate(keys[i]))
            places.setdefault(key, []).append(i)
        for key, members in places.items():
            if len(members) > 1 and float(sizes[members].sum()) >= least:
                codes[members] = len(pooled)
                pooled.append(key)
    return pooled, codes


def _stack(first: FloatArray | None, second: FloatArray | None) -> FloatArray | None:
    return None if first is None or second is None else np.concatenate((first, second))
