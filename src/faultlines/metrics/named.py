"""Metrics of a model by their names, here or in other libraries, over columns called as the parameters are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.metrics.base import Metric
from faultlines.metrics.resampling import bootstrapped
from faultlines.metrics.table import METRICS, of_family, own_name
from faultlines.sources.arrays import distinct

Wanted = str | Metric | Callable[..., Any]

_OF_LABELS = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
_OF_SCORES = ("auc", "calibration_gap", "brier")
_OF_AGREEMENT = ("accuracy", "error_rate")


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
    if wanted is None:
        predicts = "y_pred" in columns or options["threshold"] is not None
        wanted = _OF_LABELS if predicts else _OF_SCORES
    listed = [wanted] if isinstance(wanted, str | Metric) or callable(wanted) else wanted
    if not isinstance(listed, Mapping | list | tuple | set) or not listed:
        raise InputError(f"metrics={shorten(wanted)}", "names no metrics", 'Use for example metrics=["fpr", "recall"].')
    named: dict[str, Metric] = {}
    for one in listed:
        metric = _metric(listed[one] if isinstance(listed, Mapping) else one, columns, options, table)
        called = str(one) if isinstance(listed, Mapping) else metric.name.removesuffix(" of score")
        metric = replace(metric, name=called)
        if called in named:
            raise InputError(f"metrics: {shorten(called)}", "occurs more than once", "Name each metric once.")
        named[called] = metric
    return named


def _metric(wanted: Any, columns: set[str], options: dict[str, Any], table: Any) -> Metric:
    """One metric: as it is, by its name here or elsewhere, or as a function of truth and prediction."""
    if isinstance(wanted, Metric):
        return wanted
    known = own_name(getattr(wanted, "__name__", "") if callable(wanted) else str(wanted))
    if known is None or known not in of_family("model"):
        if not callable(wanted):
            raise InputError(f"metrics={shorten(wanted)}", "is not known", did_you_mean(wanted, of_family("model")))
        if options["weight"] is not None:
            problem = "is a function, and weights of rows are not passed on to functions"
            raise InputError(f"metrics={shorten(wanted)}", problem, "Leave sample_weight out, or name a metric.")
        return bootstrapped(wanted, "y_true", "y_pred" if "y_pred" in columns else "score")
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
    if "y_pred" in chosen:
        chosen.pop("threshold", None)
    if options["weight"] is not None and not entry.accepts("weight"):
        raise InputError("sample_weight", f"means nothing to {known}", "Leave it, or this metric, out.")
    if entry.accepts("classes"):
        labels = set().union(*(distinct(table, chosen[name]) for name in ("y_true", "y_pred") if name in chosen))
        if known in _OF_AGREEMENT and "y_pred" in chosen and not labels <= {0, 1}:
            chosen |= {"positive": None, "classes": True}  # labels are right or wrong, whichever counts
        elif options["positive"] is not None and len(labels) > 2:
            chosen["classes"] = True
    return entry.function(**chosen)
