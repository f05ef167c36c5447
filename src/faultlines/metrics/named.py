"""Metrics of a model by their names, here or in other libraries, over columns called as the parameters are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

from faultlines.errors import InputError, shorten
from faultlines.metrics.base import Metric
from faultlines.metrics.resampling import bootstrapped
from faultlines.metrics.table import METRICS, of_family, own_name, remedy_for
from faultlines.sources.arrays import distinct, holds

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
        options: Threshold, positive label and column of weights; None where there is none.
        table: The rows, for the labels in them.

    Raises:
        InputError: If a metric is not known, or lacks a column.
    """
    if "y_pred" in columns and options["threshold"] is not None:
        given = f"y_pred, threshold={shorten(options['threshold'])}"
        raise InputError(given, "both say what was predicted", "Leave one of them out.")
    if wanted is None:
        predicts = "y_pred" in columns or options["threshold"] is not None
        wanted = _OF_LABELS if predicts else _OF_SCORES
        _check_outcomes(distinct(table, "y_true"), options["positive"])
    listed = [wanted] if isinstance(wanted, str | Metric) or callable(wanted) else wanted
    if isinstance(listed, set | frozenset):
        raise InputError(f"metrics={shorten(wanted)}", "is a set, which has no order", "Give a list.")
    if not isinstance(listed, Mapping | list | tuple) or not listed:
        raise InputError(f"metrics={shorten(wanted)}", "names no metrics", 'Use for example metrics=["fpr", "recall"].')
    named: dict[str, Metric] = {}
    for one in listed:
        metric = _metric(listed[one] if isinstance(listed, Mapping) else one, columns, options, table)
        called = str(one) if isinstance(listed, Mapping) else metric.name.removesuffix(" of score")
        metric = replace(metric, name=called, inputs=_inputs(metric, table))
        if called in named:
            raise InputError(f"metrics: {shorten(called)}", "occurs more than once", "Name each metric once.")
        named[called] = metric
    return named


def _check_outcomes(outcomes: set[Any], positive: Any) -> None:
    """Refuse a regression where nothing says what to measure: the usual metrics are about two outcomes."""
    numbers = [value for value in outcomes if isinstance(value, Real)]
    if positive is None and len(outcomes) > 2 and len(numbers) == len(outcomes):
        problem = f"holds {len(outcomes):,} numbers, such as {max(numbers):g}, and the usual metrics are about 0 and 1"
        remedy = 'Of a regression use metrics=["mae", "bias"]; of classes say which one counts: positive=…'
        raise InputError("y_true", problem, remedy)


def _inputs(metric: Metric, table: Any) -> dict[str, Input]:
    """What a metric reads; a label that some row of the whole table has may be missing in a part of it."""
    return {
        role: one if one.positive is None else replace(one, may_lack=holds(table, one.column, one.positive))
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
    given = f"metrics={shorten(wanted)}"
    if options["weight"] is not None:
        problem = "is a function, and weights of rows are not passed on to functions"
        raise InputError(given, problem, "Leave sample_weight out, or name a metric.")
    if options["threshold"] is not None:
        problem = "is a function, which would be given scores and not what they predict"
        raise InputError(given, problem, "Give the predictions: y_pred=score >= threshold.")
    return bootstrapped(wanted, "y_true", "y_pred" if "y_pred" in columns else "score")


def _metric(wanted: Any, columns: set[str], options: dict[str, Any], table: Any) -> Metric:
    """One metric: as it is, by its name here or elsewhere, or as a function of truth and prediction."""
    if isinstance(wanted, Metric):
        return wanted
    known = _own(wanted)
    if known is None or known not in of_family("model"):
        if callable(wanted):
            return _resampled(wanted, columns, options)
        words = {"function": "Give the function itself: {}.", "otherwise": " Or give a function of y_true and y_pred."}
        raise InputError(f"metrics={shorten(wanted)}", "is not known", remedy_for(str(wanted), "model", **words))
    entry = METRICS[known]
    chosen: dict[str, Any] = {
        name: value for name, value in options.items() if value is not None and entry.accepts(name)
    }
    for names in entry.columns:
        found = next((name for name in names if name in columns), None)
        if found is None:
            ways = " or ".join(f"{name}=…" for name in names)
            raise InputError(f"metrics={shorten(wanted)}", f"needs {' or '.join(names)}", f"Give {ways} as well.")
        chosen[found] = found
    if options["weight"] is not None and not entry.accepts("weight"):
        raise InputError("sample_weight", f"means nothing to {known}", "Leave it, or this metric, out.")
    if entry.accepts("classes"):
        labels = set().union(*(distinct(table, chosen[name]) for name in ("y_true", "y_pred") if name in chosen))
        if known in _OF_AGREEMENT and "y_pred" in chosen and not labels <= {0, 1}:
            chosen |= {"positive": None, "classes": True}  # labels are right or wrong, whichever counts
        elif options["positive"] is not None and len(labels) > 2:
            chosen["classes"] = True
    return entry.function(**chosen)
