"""Two models, or two versions of one, on the same rows: how much a metric changes from the first to the second."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Any

from faultlines.errors import Argument, InputError
from faultlines.estimates.scales import ANSCOMBE, IDENTITY, POINTS
from faultlines.formats import unit_name
from faultlines.metrics.base import Measured, Metric, recorded
from faultlines.metrics.forms import Clusters, mean_of, with_weight
from faultlines.metrics.moments import of_paired
from faultlines.metrics.table import METRICS
from faultlines.rows.inputs import form_variables
from faultlines.rows.request import Columns, Input, Moments

_FIRST, _SECOND = "first__", "second__"
# The two models make these of different rows: of their own denominators, or of what each predicts.
_OF_DIFFERENT_ROWS = frozenset({"ratio", "precision", "negative_predictive_value"})
_SAME = ("y_true", "positive", "bins", "weight", "unit", "overlap")  # what both have in common


@recorded
def paired(first: Metric, second: Metric) -> Metric:
    """How much a metric changes from one model to another on the same rows: that of the second less that of the first.

    Both models are right or wrong in the same rows, so their estimates go together, and their difference is known
    better than from two tables. Where the two are shares of the same rows (accuracy, true positive rate, losses), it is
    the mean of what changes in each row; shares of different rows (precision) and ratios go by the delta method, and
    areas under the curve by DeLong's covariance of both.

    Args:
        first: The metric of the first model, such as ``fl.accuracy("outcome", "old")``.
        second: The same metric of the second, such as ``fl.accuracy("outcome", "new")``.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`: groups are similar when it changes equally in them.

    Raises:
        InputError: If the two are not the same metric, with the same truth and weights; or if it is no mean, share or
            ratio of rows nor the area under the curve: F1, balanced accuracy, a calibration slope, Atkinson's index,
            equalized odds, an effect of an experiment, or what `fl.bootstrapped` makes.

    Example:
        >>> import faultlines as fl
        >>> fl.paired(fl.accuracy("outcome", "old"), fl.accuracy("outcome", "new")).name
        'change in accuracy from old to new'
    """
    before, after = _plain(first, "first"), _plain(second, "second")
    _check_alike(first, second)
    kind, weight = _recipe(first), _arguments(first).get("weight")
    clusters = Clusters(first.unit, first.overlap)
    columns = [_own_arguments(metric, other) for metric, other in ((first, second), (second, first))]
    name = f"change in {kind.replace('_', ' ')} from {columns[0]} to {columns[1]}"
    if kind == "auc":  # what ranks and of_area make of one score they make of the difference of two
        both = {**first.inputs, "s2": second.inputs["s"]}
        return replace(first, name=name, inputs=both, variables=_truth_and_scores)
    inputs = {f"{_FIRST}{role}": source for role, source in before.inputs.items()}
    inputs |= {f"{_SECOND}{role}": source for role, source in after.inputs.items()}
    scale = POINTS if before.scale == ANSCOMBE else IDENTITY
    if kind in _OF_DIFFERENT_ROWS:
        return replace(_of_ratios(name, inputs, (before, after), weight, clusters), scale=scale)
    metric = mean_of(name, inputs, partial(_changed, before=before, after=after), weight, clusters)
    return replace(metric, size_unit=first.size_unit, scale=scale)


def _truth_and_scores(c: Columns) -> dict[str, Any]:
    return {role: c[role] for role in ("t", "s", "s2")}


def _changed(c: Columns, before: Metric, after: Metric) -> Any:
    return _value(c.under(_SECOND), after) - _value(c.under(_FIRST), before)


def _value(c: Columns, metric: Metric) -> Any:
    """What a metric is the mean of, row by row; null where a row does not count."""
    return metric.variables(c)["x"]


# ------------------------------------------------------------------------------------------------- different rows


def _of_ratios(
    name: str, inputs: dict[str, Input], both: tuple[Metric, Metric], weight: str | None, clusters: Clusters
) -> Metric:
    """The difference of two ratios: numerators and denominators of both, and how many rows count in each."""
    inputs = with_weight(inputs, weight)
    pairs = tuple((i, j) for j in range(4) for i in range(j))
    if clusters.unit is not None:
        units = unit_name(clusters.unit)
        return Metric(
            name,
            inputs,
            _of_units,
            partial(_difference_of_ratios, weighted=False, counted=(4, 5)),
            unit=clusters.unit,
            overlap=clusters.overlap,
            sums=partial(_sums, before=both[0], after=both[1]),
            size_unit=units if "y" in both[0].inputs else f"{units} with {both[0].size_unit}",
            pairs=pairs,
            shaped=(0, 1, 2, 3),
            size_variables=(4, 5),
        )
    counted = () if "y" in both[0].inputs else (5, 6) if weight else (4, 5)
    return Metric(
        name,
        inputs,
        partial(_parts, before=both[0], after=both[1]),
        partial(_difference_of_ratios, weighted=weight is not None, counted=counted),
        size_unit=both[0].size_unit,
        pairs=pairs,
        shaped=(0, 1, 2, 3),
        size_variables=counted or None,
    )


def _difference_of_ratios(m: Moments, *, weighted: bool, counted: tuple[int, ...]) -> Measured:
    """The difference; a group is as large as the rows that count in it, of the model that has fewer."""
    change = of_paired(m, weighted=weighted)
    return change._replace(n=m.n[:, 0, list(counted)].min(axis=1)) if counted else change


def _parts(c: Columns, before: Metric, after: Metric) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    counted: dict[str, Any] = {}
    # Null where some input is: a row that does not count for one model must not be taken for one that is missing.
    here: Any = 0.0
    for prefix, metric in ((_SECOND, after), (_FIRST, before)):
        for role in metric.inputs:
            here = here + 0 * c.under(prefix)[role]
    for prefix, metric in ((_SECOND, after), (_FIRST, before)):
        columns = c.under(prefix)
        if "y" in metric.inputs:
            numer, denom = columns["x"] + here, columns["y"] + here
        else:
            value = _value(columns, metric)
            numer = c.where(value.is_null(), 0.0, value) + here
            denom = c.where(value.is_null(), 0.0, 1.0) + here
            counted[f"{prefix}n"] = value
        variables |= {f"{prefix}x": numer, f"{prefix}y": denom}
    if "w" in c:
        variables = {role: c["w"] * value for role, value in variables.items()} | {"w": c["w"] + here}
    return variables | counted


def _sums(c: Columns, before: Metric, after: Metric) -> dict[str, Any]:
    """Numerators and denominators of a row, to be summed to units."""
    parts = _parts(c, before, after)
    return {f"{prefix}{role}": parts[f"{prefix}{role}"] for prefix in (_SECOND, _FIRST) for role in "xy"}


def _of_units(c: Columns) -> dict[str, Any]:
    """These sums of units, and the units that have a denominator of either."""
    sums = {f"{prefix}{role}": c[f"{prefix}{role}"] for prefix in (_SECOND, _FIRST) for role in "xy"}
    below = {prefix: c[f"{prefix}y"] for prefix in (_SECOND, _FIRST)}
    return sums | {f"{prefix}n": c.where(denom > 0, denom) for prefix, denom in below.items()}


# ------------------------------------------------------------------------------------------------- what may be given


def _recipe(metric: Metric) -> str:
    return "" if metric.recipe is None else metric.recipe.name


def _arguments(metric: Metric) -> dict[str, Any]:
    arguments = {} if metric.recipe is None else dict(metric.recipe.arguments)
    return {name: value for name, value in arguments.items() if value is not None}


def _plain(metric: Metric, parameter: str) -> Metric:
    """The same metric without weights and units, which the pair has itself; an error where there is no pair of it."""
    argument = Argument(parameter, metric.name if isinstance(metric, Metric) else metric)
    if not isinstance(metric, Metric):
        remedy = 'Use for example fl.paired(fl.accuracy("y", "old"), fl.accuracy("y", "new")).'
        raise InputError.wrong_type(argument, "is not a metric", remedy)
    arguments = {n: v for n, v in _arguments(metric).items() if n not in {"weight", "unit", "overlap"}}
    entry = METRICS.get(_recipe(metric))
    problem = "cannot be compared in pairs: it is not a mean, share or ratio of rows of one population"
    remedy = "Use a rate of a model, its AUC, a loss, or fl.mean, fl.rate or fl.ratio of rows."
    if entry is None or metric.arms is not None or metric.aggregated or metric.parts:
        raise InputError.unsupported(argument, problem, remedy)
    plain = entry.function(**arguments)
    if metric.ranking is not None:
        return plain
    # A calibration gap has more variables, for what scores expect; what it is the mean of is the first.
    expects = _recipe(metric) == "calibration_gap"
    if not expects and len(form_variables(plain)) != len(entry.columns if "y" in plain.inputs else "x"):
        raise InputError.unsupported(argument, problem, remedy)
    return plain


def _check_alike(first: Metric, second: Metric) -> None:
    metrics = Argument("first, second", (first.name, second.name))
    if _recipe(first) != _recipe(second):
        raise InputError.mismatch(metrics, "are different metrics", "Give the same metric of two models.")
    before, after = _arguments(first), _arguments(second)
    if before == after:
        raise InputError.duplicate(metrics, "are the same", "Name the columns of two models, or two thresholds.")
    for name in _SAME:
        value, other = before.get(name), after.get(name)
        if value != other:
            argument = Argument(name, (value, other))
            raise InputError.mismatch(argument, "must be the same for both", f"Give both metrics the same {name}.")


def _own_arguments(metric: Metric, other: Metric) -> str:
    """What one of the two was told that the other was not, for the name of the pair."""
    theirs: dict[str, Hashable] = _arguments(other)
    own = {name: value for name, value in _arguments(metric).items() if theirs.get(name) != value}
    return ", ".join(f"{name} {value}" if name == "threshold" else str(value) for name, value in own.items())
