"""`fl.audit`: a model audited by several metrics over its sensitive features and their crossings."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import combinations
from typing import Any, NamedTuple

from faultlines import checks, formats
from faultlines.analyses.groups import Groups, columns_of, cut_numbers, groups_from, refuse_probabilities
from faultlines.analyses.many import judge_all, part_of_stratum
from faultlines.core.normal import as_comparison
from faultlines.engines.arrays import build_table, read_column, read_columns
from faultlines.errors import InputError, NoGroupsError, shorten_text
from faultlines.estimates.estimates import Estimates, Excluded
from faultlines.estimates.labels import MISSING, labels_of, margins_of
from faultlines.formats import Unit
from faultlines.guarantees import resolve_guarantee
from faultlines.guarantees.base import Guarantee, GuaranteedPath
from faultlines.guarantees.margins import attribute_codes
from faultlines.metrics.base import Metric
from faultlines.metrics.measure import measurements
from faultlines.metrics.names import Wanted, metrics_of, possible_ends, traits_of
from faultlines.results.audit import Audit, AuditedComparison, AuditedGroup, Stratum, feature_names, stratum_text
from faultlines.results.clustering import Clustering, adjust_for_number
from faultlines.results.collection import Collection, unique_names
from faultlines.results.multiplicity import CORRECTIONS, Correction
from faultlines.results.protocol import NEXT
from faultlines.rows.keys import Bins
from faultlines.rows.read import ColumnSummary, attribute_names, checked_by, read, summarize_columns
from faultlines.rows.request import Grouped

Attributes = tuple[str | Bins, ...]
Overall = dict[tuple[Stratum, str], Estimates]
Measured = dict[tuple[Stratum, str], Groups | NoGroupsError]


def audit(
    y_true: Any = None,
    y_pred: Any = None,
    *,
    data: Any = None,
    score: Any = None,
    threshold: float | None = None,
    sensitive_features: Any,
    control_features: Any = None,
    metrics: Wanted | Sequence[Wanted] | Mapping[str, Wanted] | None = None,
    sample_weight: Any = None,
    unit: Any = None,
    positive: Hashable = None,
    intersections: bool | int = True,
    tolerance: float = 0.0,
    correction: Correction = "holm",
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    min_size: float | None = None,
    seed: int = 0,
) -> Audit:
    """Audit a model: which groups of which sensitive features it treats differently, by several metrics.

    Every metric is one analysis over the features and their crossings: a single p over all margins, clusters along the
    fewest features that are enough, so that a pattern is one finding. Metrics (and strata) are corrected for their
    number. With control features groups are compared with others of the same stratum only (conditional parity), each
    stratum a comparison of its own.

    Args:
        y_true: The true outcomes: an array, a list or a Series; with `data`, the name of a column. Metrics of
            predictions alone need none.
        y_pred: The predicted outcomes; or give `score`.
        data: A frame, or path, paths or glob of csv or parquet files, on any engine; all others are then names of
            columns.
        score: The scores, with `threshold` to make predictions of them; metrics of scores need no threshold.
        threshold: A score at or above it predicts 1.
        sensitive_features: What the groups are: an array, a Series, a frame of several, or a dict of columns. With
            `data`: a name or a list of names, among them `fl.bins(...)` to cut a numeric column. A numeric feature
            with more than 20 values is cut into five ranges of about equal size, which a note says.
        control_features: What groups have to have in common to be compared: likewise.
        metrics: Names of metrics, such as ``"false_positive_rate"`` (``"fpr"`` and other libraries' names are known),
            metrics of this library over the columns ``y_true``, ``y_pred``, ``score``, ``sample_weight`` and
            ``unit`` (over those of `data`), or functions of `y_true` and `y_pred`, whose standard errors come from a
            bootstrap; one, a list, or a dict. Default: selection rate, true and false positive rate and accuracy; of
            scores without a threshold area under the curve, calibration gap and Brier score.
        sample_weight: Weights of the rows.
        unit: What rows belong to, such as a person or a prompt, where each has several: an array, or with `data` the
            name of a column. Standard errors then allow for what rows of a unit have in common. A unit must be in one
            group of every comparison.
        positive: The label that counts as 1, where outcomes are not 0/1, booleans or yes/no. Where there are more than
            two, all others count as 0, and only accuracy and error rate can do without it.
        intersections: True: all features crossed, in one analysis with each alone. False: each feature alone, as a
            comparison of its own. A number: every combination of that many features, 2 for all pairs.
        tolerance: See `fl.cluster`. With one, features are compared alone and crossed, as comparisons of their own.
        correction: ``"holm"``: the probability of any false positive is α. ``"bh"``: of the findings, a share of α is
            false on average.
        alpha: The accepted probability of any false positive.
        guarantee: See `fl.cluster`.
        min_size: See `fl.cluster`.
        seed: Of the random draws.

    Returns:
        The overview, which prints itself, with the `Clustering` of every comparison and the table of every metric in
        every group; `report` writes one page.

    Raises:
        InputError: If arrays do not belong together, a metric is not known, or nothing can be compared. A metric that
            the rows do not allow, such as a log loss of scores above 1, is not compared, and a note says why.

    Example:
        >>> import faultlines as fl, pandas as pd
        >>> truth, sex = [0, 1] * 200, ["f"] * 200 + ["m"] * 200
        >>> predicted = [0, 1] * 100 + [0, 0] * 100
        >>> fl.audit(truth, predicted, sensitive_features={"sex": sex}, metrics=["recall", "fpr"]).rejected
        ('true positive rate by sex',)
        >>> people = pd.DataFrame({"hired": truth, "guess": predicted, "sex": sex})
        >>> fl.audit("hired", "guess", data=people, sensitive_features="sex", metrics="tpr").rejected
        ('true positive rate by sex',)
    """
    arguments = {"y_true": y_true, "y_pred": y_pred, "score": score, "sample_weight": sample_weight, "unit": unit}
    if y_pred is None and score is None:
        raise InputError.missing(
            "y_pred, score", "one of the two is needed", "Give the predictions, or the scores.", form="clause"
        )
    opened = _open_arrays if data is None else _open_columns
    table = opened(data, arguments, sensitive_features, control_features)
    summaries = summarize_columns(table.data, table.looked_up())
    options = {
        "threshold": threshold,
        "positive": positive,
        "weight": table.columns.get("sample_weight"),
        "unit": table.columns.get("unit"),
    }
    _check_threshold(threshold, table.columns, summaries)
    wanted = metrics_of(metrics, table.columns, options, summaries)
    refuse_probabilities(
        table.data, "sensitive_features", {name: summaries[name] for name in columns_of(table.features)}
    )
    features, cut = cut_numbers(table.features, summaries)
    checks.choice("correction", correction, CORRECTIONS, "Use 'holm' or 'bh'.")
    plan = _Plan(
        table._replace(features=features),
        wanted,
        resolve_guarantee(guarantee),
        min_size,
        tolerance,
        checks.alpha(alpha),
        checks.seed(seed),
    )
    plan, alone, unusable = _measure_features(plan, features)
    # A feature with one level makes no groups: crossed with others it would repeat theirs.
    varying = tuple(feature for feature in features if _varies(alone[feature,]))
    crossed = {by: plan.measure(by) for by in _crossings(varying, intersections)}
    overall = plan.overall()
    comparisons, skipped = _compare(plan, alone, crossed, overall)
    skipped += unusable
    names = unique_names([*(comparison.name for comparison in comparisons), *(name for name, _ in skipped)])
    corrected = adjust_for_number([comparison.result for comparison in comparisons], plan.alpha, correction)
    return Audit(
        tuple(
            replace(comparison, name=name, result=result)
            for comparison, name, result in zip(comparisons, names, corrected, strict=False)
        ),
        {name: _reason(error) for name, (_, error) in zip(names[len(corrected) :], skipped, strict=True)},
        plan.alpha,
        tuple(_table(plan, alone | crossed, overall)),
        correction,
        cut,
        {name: error.code for name, (_, error) in zip(names[len(corrected) :], skipped, strict=True)},
    )


def _reason(error: InputError) -> str:
    """Why something was not compared."""
    return error.problem if isinstance(error, NoGroupsError) else str(error).rstrip(".")


# ------------------------------------------------------------------------------------------------------ what is given


class _Table(NamedTuple):
    """Rows, and which of their columns are what.

    Attributes:
        data: A frame or files.
        columns: Role → column.
        features: The sensitive features.
        controls: The control features.
    """

    data: Any
    columns: dict[str, str]
    features: Attributes
    controls: tuple[str, ...]

    def looked_up(self) -> dict[str, str]:
        """Columns of which something must be known before rows are measured → the parameter that named them."""
        roles = {column: role for role, column in self.columns.items() if role not in {"sample_weight", "unit"}}
        return roles | dict.fromkeys(columns_of(self.features), "sensitive_features")


def _open_arrays(_: Any, arguments: Mapping[str, Any], features: Any, controls: Any) -> _Table:
    """Arrays, Series and frames as the columns of one table, under the names of their parameters."""
    sensitive = read_columns("sensitive_features", features, "sensitive_feature")
    if not sensitive:
        raise InputError.empty("sensitive_features", "holds no feature", "Give one value for each row.")
    control = [] if controls is None else read_columns("control_features", controls, "control_feature")
    arrays = [read_column(name, values) for name, values in arguments.items() if values is not None]
    table = build_table([*arrays, *sensitive, *control])
    columns = {array.name: array.name for array in arrays}
    return _Table(table, columns, tuple(f.name for f in sensitive), tuple(c.name for c in control))


def _open_columns(data: Any, arguments: Mapping[str, Any], features: Any, controls: Any) -> _Table:
    """Columns by their names in a frame or in files."""
    columns = {name: checks.column(name, value) for name, value in arguments.items() if value is not None}
    try:
        sensitive = checked_by(features)
        control = () if controls is None else checked_by(controls)
    except InputError as error:
        failed = "sensitive_features" if error.value == repr(features) else "control_features"
        raise error.changed(parameter=failed) from error
    names = [*attribute_names(sensitive), *attribute_names(control)]
    for place, name in enumerate(names):
        if name in names[:place]:
            problem = "is a sensitive and a control feature" if name in attribute_names(control) else "is named twice"
            raise InputError.duplicate("control_features", problem, "Name each column once.", name)
    for cut in control:
        if isinstance(cut, Bins):
            raise InputError.unsupported("control_features", "cannot be cut", "Name a column of few values.", cut)
    return _Table(data, columns, sensitive, tuple(attribute_names(control)))


def _check_threshold(
    threshold: float | None, columns: Mapping[str, str], summaries: Mapping[str, ColumnSummary]
) -> None:
    """Question a threshold of probabilities for scores that are none: nearly all rows would be predicted 1."""
    if threshold is None or "score" not in columns or not isinstance(threshold, int | float):
        return
    scores = summaries[columns["score"]]
    if scores.is_number and scores.low >= 0 and scores.high > 1 and 0 < threshold < 1:
        problem = f"is a probability, but scores go up to {scores.high:g}"
        top = next((usual for usual in (10.0, 100.0, 1000.0) if scores.high <= usual), scores.high)
        remedy = f"Give both in the same units: {{threshold}}, or scores divided by {top:g}."
        settings = {"threshold": threshold * top}
        raise InputError.mismatch("threshold", problem, remedy, threshold, settings=settings)


def _crossings(features: Attributes, intersections: Any) -> list[Attributes]:
    """Which features are crossed in one analysis: none, all of them, or every combination of a given number of them."""
    if type(intersections).__name__ in {"bool", "bool_"}:
        return [features] if intersections and len(features) > 1 else []
    problem = "must be true or false, or how many features are crossed"
    remedy, settings = "Use {intersections} for all pairs.", {"intersections": 2}
    depth = checks.number("intersections", intersections, problem, remedy, low=2, whole=True, settings=settings)
    size = min(int(depth), len(features))
    return [*combinations(features, size)] if size > 1 else []


# ----------------------------------------------------------------------------------------------- measured, by stratum


class _Plan(NamedTuple):
    """What is measured, and how groups are compared."""

    table: _Table
    metrics: Mapping[str, Metric]
    guarantee: Guarantee
    min_size: float | None
    tolerance: float
    alpha: float
    seed: int

    def measure(self, by: Attributes) -> Measured:
        """Every metric by some features in every stratum: its groups, or why there are none."""
        if self.table.controls:
            return self._measure_strata(by)
        measured: Measured = {}
        for name, groups in zip(self.metrics, self._measure_all(by, list(self.metrics.values())), strict=True):
            measured[(), name] = groups
        return measured

    def errors_by_metric(self, by: Attributes) -> dict[str, InputError]:
        """The metrics that cannot be measured in these rows, each with its error."""
        errors: dict[str, InputError] = {}
        for name, metric in self.metrics.items():
            try:
                self._replace(metrics={name: metric}).measure(by)
            except InputError as error:
                errors[name] = error
        return errors

    def _measure_all(self, by: Attributes, metrics: Sequence[Metric]) -> list[Groups | NoGroupsError]:
        """All metrics in one scan; one by one where some metric has no group that can be used."""
        options: dict[str, Any] = {"min_size": self.min_size, "tolerance": self.tolerance}
        try:
            return [
                *groups_from(self.table.data, list(by), metrics, guarantee=self.guarantee, seed=self.seed, **options)
            ]
        except NoGroupsError as error:
            return [error] if len(metrics) == 1 else [self._measure_all(by, [metric])[0] for metric in metrics]

    def _measure_strata(self, by: Attributes) -> Measured:
        """All strata in one scan: the control features come first in the keys of groups."""
        if self.guarantee.unit is not None:
            problem = "rows of several strata are not split by unit"
            raise InputError.unsupported(
                "unit", problem, "Leave it out: their estimates are split.", self.guarantee.unit, form="clause"
            )
        measured: Measured = {}
        for stratum, name, part, resolved in self.strata(by):
            metric = self.metrics[name]
            least = metric.min_size if self.min_size is None else checks.size(self.min_size)
            try:
                measurement = measurements([part], attribute_names(by), metric, least, resolved)[0]
            except NoGroupsError as error:
                measured[stratum, name] = error
                continue
            comparison = as_comparison(measurement.estimates, self.tolerance)
            measured[stratum, name] = Groups(
                comparison, (), measurement.excluded, measurement.dropped, measurement.by, measurement.readout
            )
        return measured

    def strata(self, by: Attributes) -> Iterator[tuple[Stratum, str, Grouped, Attributes]]:
        """The moments of every metric in every stratum, by some features or as one group, in one scan."""
        controls = self.table.controls
        scan = read(self.table.data, (*controls, *by), list(self.metrics.values()), None, separate=len(controls))
        for name, parts in zip(self.metrics, scan.grouped, strict=True):
            for key, part in part_of_stratum(parts[0], len(controls)):
                values = [None if value == MISSING else value for value in key]
                yield tuple(zip(controls, values, strict=True)), name, part, scan.by[len(controls) :]

    def overall(self) -> Overall:
        """Every metric in all rows of every stratum."""
        values = {}
        for stratum, name, part, resolved in self.strata(()):
            try:
                measurement = measurements([part], ("group",), self.metrics[name], 1, resolved)[0]
            except NoGroupsError:
                continue
            values[stratum, name] = measurement.estimates
        return values


def _measure_features(
    plan: _Plan, features: Attributes
) -> tuple[_Plan, dict[Attributes, Measured], list[tuple[str, InputError]]]:
    """Every metric by each feature alone, without metrics that the rows do not allow, such as scores above 1 in a loss.

    Returns:
        The plan without such metrics, what was measured, and the error of each such metric.

    Raises:
        InputError: If no metric is left, or the error is not that of single metrics.
    """
    try:
        return plan, {(feature,): plan.measure((feature,)) for feature in features}, []
    except InputError:
        errors = plan.errors_by_metric(features[:1])
        usable = {name: metric for name, metric in plan.metrics.items() if name not in errors}
        if not errors or not usable:
            raise
    plan = plan._replace(metrics=usable)
    return plan, {(feature,): plan.measure((feature,)) for feature in features}, list(errors.items())


def _varies(measured: Measured) -> bool:
    """Whether a feature has two levels or more, in whatever stratum."""
    return any(
        isinstance(groups, NoGroupsError) or len(groups.comparison) + len(groups.excluded) > 1
        for groups in measured.values()
    )


def _covers_features(result: Clustering) -> bool:
    """Whether a crossing answers for its features too: they were tested, or make the same groups as their crossing."""
    if result.judged.along is not None:
        return True
    return len(margins_of(attribute_codes(result.groups.keys, len(result.groups.attributes)))) < 2


def _compare(
    plan: _Plan, alone: Mapping[Attributes, Measured], crossed: Mapping[Attributes, Measured], overall: Overall
) -> tuple[list[AuditedComparison], list[tuple[str, InputError]]]:
    """The comparisons, and those that cannot be made.

    A metric whose crossing does not test single features, because it has several effects or another error control,
    compares these on their own as well.
    """
    comparisons, skipped = _judge(plan, crossed, overall)
    covered = {
        (comparison.stratum, comparison.metric): _covers_features(comparison.result) for comparison in comparisons
    }
    for by, measured in alone.items():
        is_crossed = any(set(by) <= set(several) for several in crossed)
        left = {place: groups for place, groups in measured.items() if not (is_crossed and covered.get(place))}
        more, without = _judge(plan, {by: left}, overall)
        comparisons += more
        skipped += without
    if not comparisons and not skipped:
        raise InputError.empty("sensitive_features", "have no rows", "Give at least one row.")
    if not comparisons:
        reasons = "; ".join(f"{shorten_text(name)}: {error.problem}" for name, error in skipped[:3])
        problem = f"nothing can be compared ({reasons})"
        raise skipped[0][1].changed(
            parameter="sensitive_features", value=None, place="", problem=problem, form="clause"
        )
    order = {name: place for place, name in enumerate(plan.metrics)}
    comparisons.sort(key=lambda comparison: order[comparison.metric])
    return comparisons, skipped


class _Testable(NamedTuple):
    """Groups that are to be compared: one metric by some features in one stratum."""

    name: str
    metric: str
    by: tuple[str, ...]
    stratum: Stratum
    groups: Groups


def _judge(
    plan: _Plan, measured: Mapping[Attributes, Measured], overall: Overall
) -> tuple[list[AuditedComparison], list[tuple[str, InputError]]]:
    """Compare groups that were measured by some features."""
    testable: list[_Testable] = []
    skipped: list[tuple[str, InputError]] = []
    for by, groups_of in measured.items():
        names = attribute_names(by)
        for (stratum, metric), groups in groups_of.items():
            where = f" ({stratum_text(stratum)})" if stratum else ""
            name = f"{metric} by {feature_names(names)}{where}"
            if isinstance(groups, NoGroupsError):
                skipped.append((name, groups))
            elif len(groups.comparison) < 2:
                remedy = "Give a feature with two groups or more that are large enough."
                error = NoGroupsError("data", "fewer than two groups can be compared", remedy, form="clause")
                skipped.append((name, error))
            else:
                testable.append(_Testable(name, metric, names, stratum, groups))
    comparisons = []
    for of, path in zip(testable, _paths(plan, testable), strict=True):
        reported_groups = _with_overall(of, overall).reported(path)
        settings = (plan.guarantee, plan.alpha, True)
        result = Clustering.of(
            path,
            *settings,
            reported_groups.excluded,
            reported_groups.dropped,
            reported_groups.by,
            reported_groups.readout,
        )
        comparisons.append(AuditedComparison(of.name, of.metric, of.by, of.stratum, result))
    return comparisons, skipped


def _with_overall(of: _Testable, overall: Overall) -> Groups:
    """The groups with the metric in all rows, where that is not the mean of the groups' values."""
    groups, value = of.groups, overall.get((of.stratum, of.metric))
    estimates = groups.comparison.estimates
    if groups.readout is None or estimates is None or value is None:
        return groups
    if all(traits.averages for traits in traits_of(estimates.recipe)):
        return groups
    return groups.with_readout(replace(groups.readout, in_all_rows=value.shown[0]))


def _paths(plan: _Plan, testable: Sequence[_Testable]) -> list[GuaranteedPath]:
    """What the error control says about each; in one pass for all, unless it divides rows."""
    for of in testable:
        plan.guarantee.check(plan.alpha / len(testable), of.groups.comparison)
    if any(of.groups.parts for of in testable):
        return [
            plan.guarantee.find_path(of.groups.comparison, plan.seed, refine=True, parts=of.groups.parts, margins=True)
            for of in testable
        ]
    names, comparisons = [of.name for of in testable], [of.groups.comparison for of in testable]
    return judge_all(names, comparisons, plan.guarantee, True, plan.seed, "comparing groups", margins=True)


# ------------------------------------------------------------------------------------------------ metrics by group


def _table(plan: _Plan, measured: Mapping[Attributes, Measured], overall: Overall) -> Iterator[AuditedGroup]:
    """Every metric in every level of a feature and every combination of levels, beside its value in all rows."""
    for place in dict.fromkeys(place for groups_of in measured.values() for place in groups_of):
        of_all = overall.get(place)
        for by, groups_of in measured.items():
            groups = groups_of.get(place)
            if isinstance(groups, Groups):
                yield from _rows(groups, of_all, attribute_names(by), place, plan.alpha)


def _rows(
    groups: Groups, overall: Estimates | None, by: tuple[str, ...], place: tuple[Stratum, str], alpha: float
) -> Iterator[AuditedGroup]:
    """One metric in the groups of some features."""
    stratum, metric = place
    estimates = groups.comparison.estimates
    if estimates is None:
        return
    ends = estimates.interval_ends(alpha)
    lower, upper = possible_ends(estimates.recipe, estimates.shown, *ends, estimates.n, alpha / 2)
    errors = estimates.readable_errors(estimates.given, estimates.errors)
    labels = labels_of(estimates.keys)
    effects = estimates.parts or (None,)
    for part, effect in enumerate(effects):
        unit = estimates.scales[part].unit
        value = None if overall is None else float(overall.shown[0, part])
        for i, label in enumerate(labels):
            n = None if estimates.n is None else float(estimates.n[i])
            estimate, se, low, high = (float(column[i, part]) for column in (estimates.shown, errors, lower, upper))
            yield AuditedGroup(metric, effect, by, label, stratum, n, estimate, se, low, high, value, unit)
        for left in groups.excluded:
            yield _excluded_row(left, metric, effect, by, stratum, value, unit)


def _excluded_row(
    left: Excluded,
    metric: str,
    effect: str | None,
    by: tuple[str, ...],
    stratum: Stratum,
    overall: float | None,
    unit: Unit,
) -> AuditedGroup:
    """A group that was not compared, with what is known of it."""
    values = (left.estimate, left.se, left.lower, left.upper) if effect is None else (None,) * 4
    return AuditedGroup(metric, effect, by, left.label, stratum, left.n, *values, overall, unit, left.reason)


_MOST = 20  # results with a part of their own
_FINDINGS, _LEVELS, _COLUMNS, _NOTES = 14, 32, 12, 8  # of an audit, so that its card has at most 80 lines
_CAVEAT = (
    "Groups of different clusters differ at this significance level. Groups of one cluster may still differ by less "
    "than these data can show: no difference found does not mean that there is none."
)


def model_card(
    results: Clustering | Sequence[Clustering] | Collection,
    *,
    title: str = "Differences between groups",
    data: str = "",
) -> str:
    """The part of a model card that says which groups a model serves differently, as Markdown.

    The card of an audit has at most 80 lines: the findings, and every metric in the levels of every feature. It begins
    with a heading of the second level and holds no front matter, so that it can be put into a card as it is.

    Args:
        results: What `fl.cluster` returns; several, corrected by `fl.holm`; what `fl.audit` returns; or what
            `fl.cluster_many` returns, of which those with clusters get a part of their own.
        title: The heading.
        data: What the model was evaluated on, in words.

    Returns:
        Markdown.

    Raises:
        InputError: If something else is given.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> print(fl.model_card(c, data="validation set, May").splitlines()[2])
        Evaluated on: validation set, May.
    """
    for name, value in (("title", title), ("data", data)):
        if checks.text(name, value) is None:
            raise InputError.wrong_type(name, "is not text", "Give a string.", None)
    lines = [f"## {formats.markdown(title)}"]
    lines += [f"Evaluated on: {formats.markdown(data)}."] if data else []
    if isinstance(results, Audit):
        lines += _audit_parts(results)
    elif isinstance(results, Collection):
        names = results.rejected[:_MOST]
        lines += [_collection_text(results), *_parts([results[name] for name in names], names, heading=True)]
    else:
        several = [results] if isinstance(results, Clustering) else results
        if not isinstance(several, list | tuple) or not several or not all(isinstance(r, Clustering) for r in several):
            remedy = "Give what fl.cluster or fl.audit returns."
            raise InputError.wrong_type("results", "is not a result, or a list of them", remedy, results)
        lines += _parts(several, [result.groups.metric for result in several], heading=len(several) > 1)
    lines += [_CAVEAT, f"Computed with faultlines {version('faultlines')}."]
    return "\n\n".join(lines) + "\n"


def _audit_parts(audit: Audit) -> list[str]:
    """Findings, metrics by level, what was excluded, and how it was computed."""
    from faultlines.render.audit import describe_groups, findings

    bullets = [f"- {formats.markdown(finding.text)}" for finding in findings(audit)]
    parts = [formats.markdown(audit.headline), "\n".join(formats.first_few(bullets, _FINDINGS))]
    tables = describe_groups(audit)[:_COLUMNS]
    names = list(dict.fromkeys(row.name for table in tables for row in table.levels))
    rows = [["overall", *(table.overall for table in tables)]]
    by_name = [{row.name: row for row in table.levels} for table in tables]
    for name in names[:_LEVELS]:
        cells = [f"{level[name].value} ({level[name].difference})" if name in level else "–" for level in by_name]
        rows.append([name, *cells])
    rows += [[f"… +{len(names) - _LEVELS:,}", *[""] * len(tables)]] if len(names) > _LEVELS else []
    header = ["group (difference from overall)", *(table.title for table in tables)]
    parts += [formats.markdown_table(header, rows, set(range(1, len(header))))] if tables else []
    notes = [formats.markdown(note.text) for note in audit.notes if note.code not in ("difference", NEXT)]
    parts += ["\n".join(formats.first_few(notes, _NOTES))] if notes else []
    control = audit.comparisons[0].result.guarantee.name
    facts = f"Error control: {control}, {audit.correction} over {len(audit)} {audit.noun}s, α = {audit.alpha:g}."
    return [*filter(None, parts), formats.markdown(facts)]


def _collection_text(results: Collection) -> str:
    excluded = [note.text for note in results.notes if note.code == "excluded experiments"]
    more = [f"The {_MOST} surest are below."] if len(results.rejected) > _MOST else []
    return formats.markdown(" ".join([results.headline, *excluded, *more]))


def _parts(results: Sequence[Clustering], names: Sequence[str], *, heading: bool) -> list[str]:
    """Each result with how it was computed."""
    parts = []
    for result, name in zip(results, names, strict=True):
        parts += [f"### {formats.markdown(name)}"] if heading else []
        parts += [result.to_markdown().strip(), formats.markdown_table(["", ""], _facts(result), set())]
    return parts


def _facts(result: Clustering) -> list[list[str]]:
    groups, by = len(result.groups), " × ".join(result.groups.attributes)
    rows = [
        ["Metric", result.groups.metric],
        ["Groups", f"{groups:,} by {by}" + (f", {len(result.excluded):,} excluded" if result.excluded else "")],
        ["Error control", f"{result.guarantee.name}, significance level α = {result.alpha:g}"],
    ]
    if result.tolerance:
        rows.append(["Tolerance", f"groups at most {result.tolerance:g} apart count as equal"])
    return [*rows, ["Fingerprint of data and settings", result.fingerprint]]
