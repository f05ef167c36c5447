"""From rows to estimates: what a metric is in every group, the groups that cannot be used, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.checks import size as checked_size
from faultlines.errors import InputError, NoGroupsError, shorten
from faultlines.estimates.estimates import Estimates, Excluded
from faultlines.estimates.labels import labels_of, some_of
from faultlines.metrics.base import Metric
from faultlines.rows.read import attribute_names, checked_by, read
from faultlines.rows.request import Split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from faultlines.metrics.base import FloatArray, Measured
    from faultlines.rows.bins import Bins
    from faultlines.rows.request import Grouped, Moments

    By = str | Bins | Sequence[str | Bins]
    Reasons = npt.NDArray[np.object_]

__all__ = ["MIN_SIZE", "Measurement", "Split", "measure", "measure_all", "measure_parts"]

MIN_SIZE = 20  # rows (units) a group needs in every arm, unless the user says otherwise


class Measurement(NamedTuple):
    """What came out of the rows: estimates, the groups that could not be used, and the rows that were not.

    Args:
        estimates: The estimates of the groups that can be used.
        excluded: The other groups, each with its reason.
        dropped: How many rows were not used, by reason.
        by: What the groups are; quantiles have become the edges they were in these rows.
    """

    estimates: Estimates
    excluded: tuple[Excluded, ...]
    dropped: Mapping[str, int]
    by: tuple[str | Bins, ...]


def measure(data: object, by: By, metric: Metric, *, min_size: float | None = None) -> Measurement:
    """Estimate a metric in every group of rows.

    Args:
        data: A frame (pandas, Polars, PyArrow, DuckDB, Spark, Ibis), or path, paths or glob of csv or parquet files.
        by: The column, or the columns, whose combinations are the groups; `fl.bins(...)` cuts a numeric one.
        metric: What to measure.
        min_size: Groups with fewer than this are left out, counted where the estimate comes from: rows or units in each
            arm, positives for a true positive rate, and so on. Default: 20.

    Returns:
        Estimates, and what was left out.

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
        For every metric, one measurement per part.

    Raises:
        InputError: As for `measure`.
    """
    for metric in metrics:
        if not isinstance(metric, Metric):
            raise InputError(
                f"metric={shorten(metric)}", "is not a metric", 'Use for example fl.rate("converted") or fl.lift(...).'
            )
    attributes = checked_by(by)
    least = checked_size(MIN_SIZE if min_size is None else min_size)
    found = read(data, attributes, metrics, split)
    names = attribute_names(attributes)
    measured = []
    for metric, parts in zip(metrics, found.grouped, strict=True):
        if not len(parts[0].keys):
            raise InputError("data", "has no rows", "Give at least one row for each group.")
        measured.append(_measurements(parts, names, metric, least, found.by))
    return measured


def _measurements(
    parts: Sequence[Grouped], names: tuple[str, ...], metric: Metric, least: float, by: tuple[str | Bins, ...]
) -> tuple[Measurement, ...]:
    measured = [metric.measured(part.moments) for part in parts]
    keys = parts[0].keys
    reason = np.full(len(keys), "", dtype=object)
    for part, grouped in zip(measured, parts, strict=True):
        why = _unusable(part, grouped.moments, metric, least)
        if len(parts) > 1:
            why[why != ""] += " in a part of the data"
        reason = np.where(reason == "", why, reason)
    keep = reason == ""
    if not keep.any():
        found = {str(why): int((reason == why).sum()) for why in dict.fromkeys(reason.tolist())}
        shown = "; ".join(f"{why} ({count:,})" for why, count in found.items())
        raise NoGroupsError(
            f"by={list(names)!r}",
            f"none of {len(keys):,} groups can be used: {shown}",
            "Use coarser groups or min_size.",
        )
    places = np.flatnonzero(keep)
    labels = labels_of(keys if places.size == len(keys) else some_of(keys, places))
    excluded = _excluded(keys, reason, measured, metric)
    dropped = {why: count for why, count in parts[0].dropped.items() if count}
    return tuple(
        Measurement(_estimates(part, places, labels, names, metric), excluded, dropped, by) for part in measured
    )


def _estimates(part: Measured, places: Any, labels: Any, names: tuple[str, ...], metric: Metric) -> Estimates:
    return Estimates(
        part.theta[places],
        part.se[places] if part.cov is None else None,
        labels,
        part.n[places],
        None if part.dof is None else part.dof[places],
        attributes=names,
        natural=part.natural[places],
        scale=metric.scale,
        measure=metric.name,
        cov=None if part.cov is None else part.cov[places],
        parts=metric.parts or None,
    )


def _excluded(
    keys: Sequence[Any], reason: Reasons, measured: Sequence[Measured], metric: Metric
) -> tuple[Excluded, ...]:
    """The groups that cannot be used, each with what is known of it: its size, and its estimate where there is one."""
    places = np.flatnonzero(reason != "")
    if not places.size:
        return ()
    sizes: FloatArray = np.sum([part.n[places] for part in measured], axis=0)
    known: list[tuple[float | None, float | None]] = [(None, None)] * places.size
    if len(measured) == 1 and measured[0].theta.reshape(len(keys), -1).shape[1] == 1:
        part = measured[0]
        theta, natural, se = (column.reshape(-1)[places] for column in (part.theta, part.natural, part.se))
        with np.errstate(all="ignore"):
            errors = se * metric.scale.slope(theta)
        known = [
            (_known(value), _known(error) if np.isfinite(value) and error > 0 else None)
            for value, error in zip(natural.tolist(), errors.tolist(), strict=True)
        ]
    labels = labels_of(some_of(keys, places))
    return tuple(
        Excluded(label, str(why), estimate, se, _known(n))
        for label, why, (estimate, se), n in zip(labels, reason[places], known, sizes.tolist(), strict=True)
    )


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _unusable(measured: Measured, moments: Moments, metric: Metric, least: float) -> Reasons:
    """Why each group cannot be used; "" where it can."""
    reason = measured.reason
    sizes = moments.n if metric.size_variables is None else moments.n[:, :, list(metric.size_variables)]
    small = sizes.min(axis=(1, 2)) < least
    words = f"fewer than {least:g} {metric.size_unit}" + (" in an arm" if metric.arms else "")
    reason[(reason == "") & small] = words
    for part in (measured.theta, measured.se, measured.natural):
        finite = np.all(np.isfinite(np.reshape(part, (len(reason), -1))), axis=1)
        reason[(reason == "") & ~finite] = "not a finite number"
    return reason
