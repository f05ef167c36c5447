"""Metrics of a model by their names, here or in other libraries, over columns called as the parameters are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from faultlines.engines.arrays import distinct_values, has_label
from faultlines.errors import Argument, InputError
from faultlines.metrics.base import Metric
from faultlines.metrics.bootstrap import bootstrapped
from faultlines.metrics.table import METRICS, of_family, own_name, remedy_for

if TYPE_CHECKING:
    from faultlines.rows.request import Input

Wanted = str | Metric | Callable[..., Any]

_OF_LABELS = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
_OF_SCORES = ("auc", "calibration_gap", "brier")
_OF_AGREEMENT = ("accuracy", "error_rate")
_LIBRARIES = frozenset({"faultlines", "fairlearn", "sklearn"})  # whose functions do what their names say


def metrics_of(wanted: Any, columns: set[str], options: dict[str, Any], table: Any) -> dict[str, Metric]:
    """What to measure, by name.

    Args:
        wanted: Names, metrics or functions: one, several, or a dict of them; None for the usual ones.
        columns: The columns there are: ``y_true``, ``y_pred``, ``score``.
        options: Threshold, positive label, column of weights and of units; None where there is none.
        table: The rows, for the labels in them.

    Raises:
        InputError: If a metric is not known, or lacks a column.
    """
    if "y_pred" in columns and options["threshold"] is not None:
        raise InputError.conflict(
            "y_pred, threshold", "both say what was predicted", "Leave one of them out.", form="clause"
        )
    if wanted is None:
        predicts = "y_pred" in columns or options["threshold"] is not None
        wanted = _OF_LABELS if predicts else _OF_SCORES
        _check_outcomes(distinct_values(table, "y_true"), options["positive"])
    listed = [wanted] if isinstance(wanted, str | Metric) or callable(wanted) else wanted
    if isinstance(listed, set | frozenset):
        raise InputError.wrong_type("metrics", "is a set, which has no order", "Give a list.", wanted)
    if not isinstance(listed, Mapping | list | tuple) or not listed:
        raise InputError.empty("metrics", "names no metrics", 'Use for example metrics=["fpr", "recall"].', wanted)
    named: dict[str, Metric] = {}
    for entry in listed:
        metric = _metric(listed[entry] if isinstance(listed, Mapping) else entry, columns, options, table)
        name = str(entry) if isinstance(listed, Mapping) else _name(metric)
        metric = replace(metric, name=name, inputs=_inputs(metric, table))
        if name in named:
            raise InputError.duplicate("metrics", "occurs more than once", "Name each metric once.", name)
        named[name] = metric
    return named


def _name(metric: Metric) -> str:
    """What a result calls it; one that was made of the score here does not repeat the only score there is."""
    arguments = {} if metric.recipe is None else dict(metric.recipe.arguments)
    entry = None if metric.recipe is None else METRICS.get(metric.recipe.name)
    of_score = entry is not None and ("score",) in entry.columns and arguments.get("score") == "score"
    return entry.title if entry is not None and of_score and not arguments.get("bins") else metric.name


def _check_outcomes(outcomes: set[Any], positive: Any) -> None:
    """Refuse a regression where nothing says what to measure: the usual metrics are about two outcomes."""
    numbers = [value for value in outcomes if isinstance(value, Real)]
    if positive is None and len(outcomes) > 2 and len(numbers) == len(outcomes):
        problem = f"holds {len(outcomes):,} numbers, such as {max(numbers):g}, and the usual metrics are about 0 and 1"
        remedy = 'Of a regression use metrics=["mae", "bias"]; of classes say which one counts: positive=…'
        raise InputError.invalid_data("y_true", problem, remedy)


def _inputs(metric: Metric, table: Any) -> dict[str, Input]:
    """What a metric reads; a label that some row of the whole table has may be missing in a part of it."""
    return {
        role: one if one.positive is None else replace(one, may_lack=has_label(table, one.column, one.positive))
        for role, one in metric.inputs.items()
    }


def _own(wanted: Any) -> str | None:
    """The metric of this library that a name or a library's function stands for; a user's function is what it does."""
    if not callable(wanted):
        return own_name(str(wanted))
    of_library = str(getattr(wanted, "__module__", "")).partition(".")[0] in _LIBRARIES
    return own_name(getattr(wanted, "__name__", "")) if of_library else None


def _resampled(wanted: Any, columns: set[str], options: dict[str, Any]) -> Metric:
    """A function of truth and prediction as a metric."""
    argument = Argument("metrics", wanted)
    if options["weight"] is not None:
        problem = "is a function, and weights of rows are not passed on to functions"
        raise InputError.unsupported(argument, problem, "Leave sample_weight out, or name a metric.")
    if options["threshold"] is not None:
        problem = "is a function, which would be given scores and not what they predict"
        raise InputError.unsupported(argument, problem, "Give the predictions: y_pred=score >= threshold.")
    return bootstrapped(wanted, "y_true", "y_pred" if "y_pred" in columns else "score", unit=options["unit"])


def _metric(wanted: Any, columns: set[str], options: dict[str, Any], table: Any) -> Metric:
    """One metric: as it is, by its name here or elsewhere, or as a function of truth and prediction."""
    if isinstance(wanted, Metric):
        return wanted
    own = _own(wanted)
    if own is None or own not in of_family("model"):
        if callable(wanted):
            return _resampled(wanted, columns, options)
        words = {"function": "Give the function itself: {}.", "otherwise": " Or give a function of y_true and y_pred."}
        raise InputError.unknown("metrics", "is not known", remedy_for(str(wanted), "model", **words), wanted)
    entry = METRICS[own]
    chosen: dict[str, Any] = {
        name: value for name, value in options.items() if value is not None and entry.accepts(name)
    }
    for names in entry.columns:
        column = next((name for name in names if name in columns), None)
        if column is None:
            ways = " or ".join(f"{name}=…" for name in names)
            raise InputError.missing("metrics", f"needs {' or '.join(names)}", f"Give {ways} as well.", wanted)
        chosen[column] = column
    if options["weight"] is not None and not entry.accepts("weight"):
        raise InputError.conflict("sample_weight", f"means nothing to {own}", "Leave it, or this metric, out.")
    if entry.accepts("classes"):
        labels = set().union(*(distinct_values(table, chosen[name]) for name in ("y_true", "y_pred") if name in chosen))
        if own in _OF_AGREEMENT and "y_pred" in chosen and not labels <= {0, 1}:
            chosen |= {"positive": None, "classes": True}  # labels are right or wrong, whichever counts
        elif options["positive"] is not None and len(labels) > 2:
            chosen["classes"] = True
    return entry.function(**chosen)
