"""The one door through which every analysis gets its groups: from estimates, a comparison, or rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from faultlines import checks
from faultlines.core.comparison import Comparison
from faultlines.core.normal import as_comparison, is_comparison
from faultlines.errors import InputError, NoGroupsError
from faultlines.estimates.estimates import Estimates, Excluded
from faultlines.estimates.labels import labels_of
from faultlines.estimates.reasons import DropCode, Reason, ReasonCode
from faultlines.guarantees.base import Guarantee, GuaranteedPath
from faultlines.metrics.base import Metric
from faultlines.metrics.measure import Measurement, Split, measure_all, measurements
from faultlines.metrics.names import recipe_of, traits_of
from faultlines.metrics.readout import Readout
from faultlines.metrics.variances import moderate_estimates
from faultlines.results.audit import CutFeature
from faultlines.rows.keys import Bins, By
from faultlines.rows.read import ColumnSummary, checked_by, read, sum_to_one, summarize_columns

# Names as people give them: p_black, P(white), race_white_p, proxy_black; pred.whi is that of R's package wru.
_OF_GROUP = re.compile(
    r"^(p|pr|prob|probability|bisg|bifsg|proxy)[._(\s]|^pred\.\w{3}$|[._](p|prob|probability|bisg|bifsg|proxy)$",
    re.IGNORECASE,
)
_FEW_VALUES = 20  # up to which a share may be a code or a grade
_MOST_LEVELS = 20  # values of a numeric feature up to which each is a group
_RANGES = 5  # ranges that one with more values is cut into


class Groups(NamedTuple):
    """Groups to be compared, with what was excluded.

    Attributes:
        comparison: All groups.
        parts: The same in independent parts of the data, where rows were divided by unit.
        excluded: Excluded groups.
        dropped: Reason → number of dropped rows.
        by: The attributes.
        readout: The moments behind the estimates, where rows were given.
        part_measurements: What was measured in each part.
    """

    comparison: Comparison
    parts: tuple[Comparison, ...]
    excluded: tuple[Excluded, ...]
    dropped: Mapping[DropCode, int]
    by: tuple[str | Bins, ...]
    readout: Readout | None = None
    part_measurements: tuple[Measurement, ...] = ()

    def with_readout(self, readout: Readout) -> Groups:
        """The same with more that is known about the rows, in all parts of them."""
        parts = tuple(
            part
            if part.readout is None
            else part._replace(readout=replace(part.readout, in_all_rows=readout.in_all_rows))
            for part in self.part_measurements
        )
        return self._replace(readout=readout, part_measurements=parts)

    def reported(self, judged: GuaranteedPath) -> Groups:
        """The same with what was excluded from, and what is known about, the part of the data that is reported."""
        if judged.part is None:
            return self
        part = self.part_measurements[judged.part]
        return self._replace(excluded=part.excluded, dropped=part.dropped, readout=part.readout)


def groups_from(
    data: object,
    by: By | None,
    metrics: Sequence[Metric],
    *,
    min_size: float | None = None,
    tolerance: float = 0.0,
    guarantee: Guarantee | None = None,
    seed: int = 0,
    moderated: bool = False,
) -> list[Groups]:
    """Groups of whatever was given: one for estimates or a comparison, one for each metric of rows.

    Args:
        data: Estimates, a comparison, or rows.
        by: For rows, the attributes.
        metrics: For rows, what to measure; all in one scan.
        min_size: Exclude smaller groups.
        tolerance: Effects at most so far apart are similar.
        guarantee: The error control, where that may divide rows by unit.
        seed: Of that division.
        moderated: Whether standard errors of few degrees of freedom are moderated by those of all groups: where all
            groups are compared at once, not where one is judged by its own error.

    Returns:
        The groups.

    Raises:
        InputError: If something given cannot be used.
    """
    if is_rows(data):
        try:
            return _from_rows(data, by, metrics, min_size, guarantee, tolerance, seed)
        except NoGroupsError:
            columns = [] if by is None else columns_of(checked_by(by))
            if columns:
                refuse_probabilities(data, "by", summarize_columns(data, dict.fromkeys(columns, "by")))
            raise
    if by is not None or metrics:
        raise InputError.conflict("by, metric", "apply to rows, not to estimates", "Leave them out.")
    if guarantee is not None and guarantee.unit is not None:
        raise InputError.conflict("unit", "applies to rows, not to estimates", "Leave it out.", guarantee.unit)
    data = moderate_estimates(data) if moderated and isinstance(data, Estimates) else data
    comparison, excluded = _exclude_small(as_comparison(data, tolerance), 0 if min_size is None else min_size)
    return [Groups(comparison, (), excluded, {}, comparison.attributes)]


def refuse_probabilities(data: object, parameter: str, summaries: Mapping[str, ColumnSummary]) -> None:
    """Refuse columns of probabilities of groups, as name-based methods give them: a row has no group then.

    Weighting rows by such probabilities estimates a group's rate only if the outcome is independent of the group given
    the probabilities. The rows cannot show that, and no bound on it that would be of use is known.

    Args:
        data: The rows.
        parameter: What names the columns.
        summaries: The columns that name groups, and what they hold.

    Raises:
        InputError: If several of them are shares that add up to 1 in every row, or the name of one says that it is a
            probability. A share under any other name may be a feature, such as that of homes that are owned.
    """
    shares = [
        column
        for column, summary in summaries.items()
        if summary.is_number and summary.low >= 0 and summary.high <= 1 and not summary.values <= {0, 1}
    ]
    named = [column for column in shares if _OF_GROUP.search(column) and len(summaries[column].values) > _FEW_VALUES]
    problem = "is the probability of a group by its name and values, and not a group"
    problem = problem if len(named) < 2 else "are probabilities of groups by their names and values, and not groups"
    if len(shares) > 1 and sum_to_one(data, dict.fromkeys(shares, parameter)):
        problem, named = "are probabilities of groups, which add up to 1 in every row, and not groups", shares
    if named:
        remedy = (
            "Give the group of each row, or the likeliest one as a feature of its own. Rates weighted by probabilities "
            "hold only if outcomes do not depend on the group beyond these, which no row can show."
        )
        raise InputError.unsupported(parameter, problem, remedy, named if len(named) > 1 else named[0])


def columns_of(attributes: Sequence[str | Bins]) -> list[str]:
    """The columns that attributes are made of."""
    return [attribute if isinstance(attribute, str) else attribute.column for attribute in attributes]


def cut_numbers(
    features: Sequence[str | Bins], summaries: Mapping[str, ColumnSummary]
) -> tuple[tuple[str | Bins, ...], tuple[CutFeature, ...]]:
    """The features, numeric ones with many values cut into ranges of about equally many rows, and which were."""
    attributes, cut = list[str | Bins](), list[CutFeature]()
    for feature in features:
        if isinstance(feature, Bins):
            attributes.append(feature)
            continue
        summary = summaries[feature]
        many = summary.is_number and len(summary.values) > _MOST_LEVELS
        attributes.append(Bins(feature, quantiles=_RANGES) if many else feature)
        cut += [CutFeature(feature, min(len(summary.values), 1_000), _RANGES)] if many else []
    return tuple(attributes), tuple(cut)


def with_value_in_all_rows(groups: Groups, data: object, metric: Metric) -> Groups:
    """The same, with the metric in all rows at once where that is not the mean of the groups' values: another scan."""
    traits_by_effect = traits_of(recipe_of(metric))
    if groups.readout is None or all(traits.averages for traits in traits_by_effect):
        return groups
    try:
        measured = measurements(read(data, (), [metric], None).grouped[0], ("group",), metric, 1, ())[0]
    except NoGroupsError:
        return groups
    return groups.with_readout(replace(groups.readout, in_all_rows=measured.estimates.shown[0]))


def is_rows(data: object) -> bool:
    """Whether data are rows to be measured, not estimates or a comparison."""
    return not isinstance(data, Estimates) and not is_comparison(data)


def _from_rows(
    data: object,
    by: By | None,
    metrics: Sequence[Metric],
    min_size: float | None,
    guarantee: Guarantee | None,
    tolerance: float,
    seed: int,
) -> list[Groups]:
    """Groups of rows by each of several metrics, in one scan; in parts where the error control divides them by unit."""
    if type(data).__name__ == "MetricFrame":
        remedy = "Take its estimates: fl.cluster(fl.from_metric_frame(frame)), or use fl.audit."
        raise InputError.unsupported("data", "holds one value for each group, not rows", remedy, type(data))
    if by is None or not metrics or any(metric is None for metric in metrics):
        raise InputError.missing(
            "data",
            "rows need groups and a metric",
            "Give {by} and {metric}, or make estimates with fl.Estimates(theta, se) or fl.Estimates.from_frame.",
            type(data),
            settings={"by": ..., "metric": ...},
            form="clause",
        )
    unit = None if guarantee is None else guarantee.unit or getattr(metrics[0], "unit", None)
    if guarantee is None or not guarantee.shares(1) or unit is None:
        measured = measure_all(data, by, metrics, min_size=min_size)
        return [_undivided(parts[0], tolerance) for parts in measured]
    if not guarantee.reports_all_data:
        split = Split(unit, guarantee.shares(0), seed, guarantee.splits)
        divided = measure_all(data, by, metrics, min_size=min_size, split=split)
        return [_divided(parts, None, tolerance) for parts in divided]
    everything = [parts[0] for parts in measure_all(data, by, metrics, min_size=min_size)]
    # As many folds as the metric with most groups needs, so that rows are divided in one scan for all metrics.
    most = max(len(measurement.estimates) for measurement in everything)
    split = Split(unit, guarantee.shares(most), seed)
    divided = measure_all(data, by, metrics, min_size=min_size, split=split)
    return [_divided(parts, all_rows, tolerance) for parts, all_rows in zip(divided, everything, strict=True)]


def _undivided(measurement: Measurement, tolerance: float) -> Groups:
    comparison = as_comparison(measurement.estimates, tolerance)
    return Groups(comparison, (), measurement.excluded, measurement.dropped, measurement.by, measurement.readout)


def _divided(measurements: Sequence[Measurement], all_rows: Measurement | None, tolerance: float) -> Groups:
    first = measurements[0]
    parts = tuple(as_comparison(part.estimates, tolerance) for part in measurements)
    comparison, readout = parts[0], first.readout
    if all_rows is not None:
        in_parts = set(first.estimates.labels)
        keep = np.array([label in in_parts for label in all_rows.estimates.labels])
        comparison = as_comparison(all_rows.estimates, tolerance).subset(keep)
        readout = None if all_rows.readout is None else all_rows.readout.subset(keep)
    return Groups(comparison, parts, first.excluded, first.dropped, first.by, readout, tuple(measurements))


def _exclude_small(comparison: Comparison, min_size: float) -> tuple[Comparison, tuple[Excluded, ...]]:
    """Groups that are large enough, and the others with what is known of them."""
    least = checks.size(min_size)
    if least == 0:
        return comparison, ()
    if comparison.n is None:
        raise InputError.missing(
            "min_size", "the sizes of the groups are not known", "Give n as well.", least, form="clause"
        )
    keep = comparison.n >= least
    if keep.all():
        return comparison, ()
    if not keep.any():
        raise NoGroupsError(
            "min_size",
            f"all {len(comparison)} groups are smaller",
            "Use {min_size} or less.",
            value=least,
            settings={"min_size": float(comparison.n.max())},
            form="clause",
        )
    labels, estimates = labels_of(comparison.keys), comparison.estimates
    excluded = []
    for i in np.flatnonzero(~keep).tolist():
        effect: tuple[float | None, float | None] = (None, None)
        if estimates is not None and estimates.dims == 1:
            error = estimates.readable_errors(estimates.given[i], estimates.errors[i])
            effect = (float(estimates.shown[i, 0]), float(error[0]))
        excluded.append(Excluded(labels[i], Reason(ReasonCode.TOO_SMALL, least=least), *effect, float(comparison.n[i])))
    return comparison.subset(keep), tuple(excluded)
