"""Metrics by what they are called: by names, here or elsewhere, and as plain data that a saved result keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from numbers import Real
from typing import Any, NamedTuple, cast

import numpy as np

from faultlines.errors import Argument, InputError, did_you_mean
from faultlines.metrics.base import Metric
from faultlines.metrics.experiment import aggregated
from faultlines.metrics.joint import bootstrapped, joint
from faultlines.metrics.pairs import paired
from faultlines.metrics.table import METRICS, Adverse, of_family, own_name, remedy_for
from faultlines.rows.inputs import is_yes_or_no
from faultlines.rows.read import ColumnSummary
from faultlines.rows.request import Aggregated, Input
from faultlines.types import FloatArray

Wanted = str | Metric | Callable[..., Any]

_OF_LABELS = ("selection_rate", "true_positive_rate", "false_positive_rate", "accuracy")
_OF_PREDICTIONS = ("selection_rate",)
_OF_SCORES = ("auc", "calibration_gap", "brier")
_OF_AGREEMENT = ("accuracy", "error_rate")
_LIBRARIES = frozenset({"faultlines", "fairlearn", "sklearn"})  # whose functions do what their names say


def metrics_of(
    wanted: Any, columns: Mapping[str, str], options: dict[str, Any], summaries: Mapping[str, ColumnSummary]
) -> dict[str, Metric]:
    """What to measure, by name.

    Args:
        wanted: Names, metrics or functions: one, several, or a dict of them; None for the usual ones.
        columns: Which column is the ``y_true``, ``y_pred`` and ``score`` there are.
        options: Threshold, positive label, column of weights and of units; None where there is none.
        summaries: What columns of labels hold.

    Raises:
        InputError: If a metric is not known, or lacks a column.
    """
    if "y_pred" in columns and options["threshold"] is not None:
        raise InputError.conflict(
            "y_pred, threshold", "both set what was predicted", "Give only one of them.", form="clause"
        )
    if wanted is None:
        wanted = default_names(columns, predicts="y_pred" in columns or options["threshold"] is not None)
        if "y_true" in columns:
            _check_outcomes(summaries[columns["y_true"]].values, options["positive"])
    listed = [wanted] if isinstance(wanted, str | Metric) or callable(wanted) else wanted
    if isinstance(listed, set | frozenset):
        raise InputError.wrong_type("metrics", "is a set, which has no order", "Give a list.", wanted)
    if not isinstance(listed, Mapping | list | tuple) or not listed:
        raise InputError.empty("metrics", "names no metrics", 'Use for example metrics=["fpr", "recall"].', wanted)
    named: dict[str, Metric] = {}
    for entry in listed:
        metric = _metric(listed[entry] if isinstance(listed, Mapping) else entry, columns, options, summaries)
        name = str(entry) if isinstance(listed, Mapping) else _name(metric, columns)
        metric = replace(metric, name=name, inputs=_inputs(metric, summaries))
        if name in named:
            raise InputError.duplicate("metrics", "occurs more than once", "Name each metric once.", name)
        named[name] = metric
    return named


def default_names(columns: Mapping[str, str], *, predicts: bool) -> tuple[str, ...]:
    """What an audit measures where nothing is named.

    Args:
        columns: Which column is the ``y_true``, ``y_pred`` and ``score`` there are.
        predicts: Whether there are predictions, or a threshold that makes some of scores.
    """
    if "y_true" not in columns:
        return _OF_PREDICTIONS
    return _OF_LABELS if predicts else _OF_SCORES


def _name(metric: Metric, columns: Mapping[str, str]) -> str:
    """What a result calls it; one that was made of the score here does not repeat the only score there is."""
    arguments = {} if metric.recipe is None else dict(metric.recipe.arguments)
    entry = None if metric.recipe is None else METRICS.get(metric.recipe.name)
    of_score = entry is not None and ("score",) in entry.columns and arguments.get("score") == columns.get("score")
    return entry.title if entry is not None and of_score and not arguments.get("bins") else metric.name


def _check_outcomes(outcomes: frozenset[Any], positive: Any) -> None:
    """Refuse a regression where nothing says what to measure: the usual metrics are about two outcomes."""
    numbers = [value for value in outcomes if isinstance(value, Real)]
    if positive is None and len(outcomes) > 2 and len(numbers) == len(outcomes):
        problem = f"holds {len(outcomes):,} numbers, such as {max(numbers):g}, and the usual metrics are about 0 and 1"
        remedy = 'Of a regression use metrics=["mae", "bias"]; of classes say which one counts: positive=…'
        raise InputError.invalid_data("y_true", problem, remedy)


def _inputs(metric: Metric, summaries: Mapping[str, ColumnSummary]) -> dict[str, Input]:
    """What a metric reads; a label that some row of the whole table has may be missing in a part of it."""
    return {
        role: source if source.positive is None else replace(source, may_lack=_has_label(summaries, source))
        for role, source in metric.inputs.items()
    }


def _has_label(summaries: Mapping[str, ColumnSummary], source: Input) -> bool:
    """Whether the label that counts, or what reads like it, is among the values of its column."""
    values = summaries[source.column].values if source.column in summaries else ()
    return any(value == source.positive or str(value) == str(source.positive) for value in values)


def _own(wanted: Any) -> str | None:
    """The metric of this library that a name or a library's function stands for; a user's function is what it does."""
    if not callable(wanted):
        return own_name(str(wanted))
    of_library = str(getattr(wanted, "__module__", "")).partition(".")[0] in _LIBRARIES
    return own_name(getattr(wanted, "__name__", "")) if of_library else None


def _resampled(wanted: Any, columns: Mapping[str, str], options: dict[str, Any]) -> Metric:
    """A function of truth and prediction as a metric."""
    argument = Argument("metrics", wanted)
    if options["weight"] is not None:
        problem = "is a function, and weights of rows are not passed on to functions"
        raise InputError.unsupported(argument, problem, "Leave sample_weight out, or name a metric.")
    if options["threshold"] is not None:
        problem = "is a function, which would be given scores and not what they predict"
        raise InputError.unsupported(argument, problem, "Give the predictions: y_pred=score >= threshold.")
    if "y_true" not in columns:
        raise InputError.missing(argument, "is a function of truth and prediction", "Give y_true as well.")
    prediction = columns["y_pred" if "y_pred" in columns else "score"]
    return bootstrapped(wanted, columns["y_true"], prediction, unit=options["unit"])


def _metric(
    wanted: Any, columns: Mapping[str, str], options: dict[str, Any], summaries: Mapping[str, ColumnSummary]
) -> Metric:
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
        role = next((name for name in names if name in columns), None)
        if role is None:
            ways = " or ".join(f"{name}=…" for name in names)
            raise InputError.missing("metrics", f"needs {' or '.join(names)}", f"Give {ways} as well.", wanted)
        chosen[role] = columns[role]
    for option, parameter in (("weight", "sample_weight"), ("unit", "unit")):
        if options.get(option) is not None and not entry.accepts(option):
            raise InputError.conflict(parameter, f"does not apply to {own}", "Leave it, or this metric, out.")
    if entry.accepts("classes"):
        labels = _labels(chosen, summaries)
        if own in _OF_AGREEMENT and "y_pred" in chosen and not labels <= {0, 1} and not is_yes_or_no(labels):
            chosen |= {"positive": None, "classes": True}  # labels are right or wrong, whichever counts
        elif options["positive"] is not None and len(labels) > 2 and not is_yes_or_no(labels):
            chosen["classes"] = True
    return entry.function(**chosen)


def _labels(chosen: Mapping[str, Any], summaries: Mapping[str, ColumnSummary]) -> frozenset[Any]:
    """The labels of truth and prediction together."""
    columns = [chosen[name] for name in ("y_true", "y_pred") if name in chosen]
    return frozenset[Any]().union(*(summaries[column].values for column in columns if column in summaries))


# ------------------------------------------------------------------------------------------------ metrics as plain data
# A metric as plain data and back: what was called, with which arguments, so that a saved result can be measured again.
#
# Metrics of the table, and those joined of them, know how they were made. One that a user built by hand does not.


def plain_recipe(metric: Metric) -> dict[str, Any] | None:
    """How a metric was made, as JSON can hold it; None where that is not known, or an argument is not plain."""
    if metric.recipe is None:
        return None
    arguments = {}
    for name, value in metric.recipe.arguments:
        plain = _plain(value)
        if plain is None and value is not None:
            return None
        if plain is not None:
            arguments[name] = plain
    return {"name": metric.recipe.name, "arguments": arguments}


def _plain(value: Any) -> Any:
    """An argument as JSON can hold it; None where it cannot."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Aggregated):
        return {"aggregated": {name: column for name, column in asdict(value).items() if column is not None}}
    if isinstance(value, Mapping):  # planned shares of variants
        pairs = [[_plain(item) for item in pair] for pair in value.items()]
        return None if any(None in pair for pair in pairs) else {"shares": pairs}
    if isinstance(value, Metric):
        recipe = plain_recipe(value)
        return None if recipe is None else {"metric": recipe}
    listed = None
    if isinstance(value, tuple) and all(isinstance(item, Metric) for item in value):
        listed = [plain_recipe(item) for item in value]
    elif isinstance(value, list | tuple):  # several treatments
        listed = [_plain(item) for item in value]
    return None if listed is None or None in listed else listed


def recipe_of(metric: Metric) -> str:
    """A metric in words that tell it from any other: what was called, or its name where that is not known."""
    return json.dumps(plain_recipe(metric) or metric.name, sort_keys=True, ensure_ascii=False)


class Traits(NamedTuple):
    """What is known of one effect of a metric.

    Attributes:
        adverse: The harmful direction; None where neither is, or none is known.
        span: How far apart two groups can be at most.
        averages: Whether the value in all rows is the mean of the groups' values.
    """

    adverse: Adverse | None = None
    span: float = math.inf
    averages: bool = True

    @property
    def extent(self) -> tuple[float, float]:
        """The lowest and the highest value: a rate or loss is not below 0; gaps and changes go either way."""
        return (0.0, self.span) if self.span <= 1 else (-self.span / 2, self.span / 2)


def traits_of(recipe: str) -> tuple[Traits, ...]:
    """What is known of each effect of a metric, by what `recipe_of` says of it; nothing where that is not known.

    The change of a metric between two models harms in the direction of the metric itself.
    """
    parsed = parse_recipe(recipe)
    return _traits(parsed) if parsed else ()


def traits_by_effect(recipe: str, effects: int) -> tuple[Traits, ...]:
    """The same for each of some effects; nothing of any of them where there is another number of them.

    Args:
        recipe: What `recipe_of` says of the metric.
        effects: How many effects there are.
    """
    traits = traits_of(recipe)
    return traits if len(traits) == effects else (Traits(),) * effects


def parse_recipe(recipe: str) -> Mapping[str, Any]:
    """What was called and with which arguments, by what `recipe_of` says of a metric; empty where that is not known."""
    try:
        parsed = json.loads(recipe)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def is_plural(recipe: str) -> bool:
    """Whether the name of a metric is a plural, as "equalized odds" and the names of metrics that are joined are.

    Args:
        recipe: What `recipe_of` says of the metric. A metric that a user names is singular.
    """
    name = str(parse_recipe(recipe).get("name"))
    return name == joint.__name__ or (name in METRICS and METRICS[name].is_plural)


def possible_ends(
    recipe: str, shown: FloatArray, lower: FloatArray, upper: FloatArray, n: FloatArray | None, tail: float
) -> tuple[FloatArray, FloatArray]:
    """Ends of intervals within what a metric can be, and no surer than its rows allow where it is at an end.

    An area under the curve is not above 1. Where it is 1 nothing varies, and of n rows without any error a share of
    1 − tail^(1/n) could still be one.

    Args:
        recipe: What `recipe_of` says of the metric.
        shown: The values, (K,) or (K, d).
        lower: Their lower ends.
        upper: Their upper ends.
        n: The rows of each group, (K,); None where they are not known.
        tail: The probability beyond each end.
    """
    traits = traits_of(recipe)
    if len(traits) != (1 if shown.ndim == 1 else shown.shape[1]):
        return lower, upper
    lowest, highest = np.array([of_effect.extent for of_effect in traits]).T
    if n is not None:
        share = -np.expm1(np.log(tail) / np.maximum(n, 1.0)).reshape(-1, *[1] * (shown.ndim - 1))
        with np.errstate(invalid="ignore"):
            lower = np.where(shown >= highest, np.minimum(lower, highest - share * (highest - lowest)), lower)
            upper = np.where(shown <= lowest, np.maximum(upper, lowest + share * (highest - lowest)), upper)
    return np.maximum(lower, lowest), np.minimum(upper, highest)


def _traits(recipe: Mapping[str, Any]) -> tuple[Traits, ...]:
    name, arguments = recipe["name"], recipe["arguments"]
    if name == joint.__name__:
        return tuple(traits for metric in arguments["metrics"] for traits in _traits(metric))
    if name == paired.__name__:
        return tuple(traits._replace(span=2 * traits.span) for traits in _traits(arguments["first"]["metric"]))
    if name not in METRICS:
        return (Traits(),)
    entry = METRICS[name]
    sides = cast("list[Adverse | None]", entry.adverse.split() or [None])
    in_arms = "variant" in arguments  # a difference of two such values is not bounded by the span of one
    return tuple(Traits(side, math.inf if in_arms else entry.span, entry.averages) for side in sides)


_BY_HAND = "Give {metric} yourself."


def metric_of(recipe: Any) -> Metric:
    """The metric that a recipe of `plain_recipe` makes.

    Raises:
        InputError: If it is no such recipe.
    """
    argument = Argument("metric", recipe)
    by_hand: dict[str, object] = {"metric": ...}
    if not isinstance(recipe, Mapping) or not isinstance(recipe.get("arguments"), Mapping):
        raise InputError.missing(argument, "does not say how the metric was made", _BY_HAND, settings=by_hand)
    name, arguments = recipe.get("name"), dict(recipe["arguments"])
    if name == joint.__name__:
        several = arguments.get("metrics")
        return joint(*map(metric_of, several if isinstance(several, list) else ()))
    if name == paired.__name__:
        pair = [arguments.get(which) for which in ("first", "second")]
        return paired(*(metric_of(part.get("metric") if isinstance(part, Mapping) else None) for part in pair))
    if not isinstance(name, str) or name not in METRICS:
        raise InputError.unknown(argument, "names no metric", did_you_mean(name, METRICS))
    for parameter, value in arguments.items():
        if isinstance(value, Mapping) and isinstance(value.get("shares"), list):
            arguments[parameter] = dict(map(tuple, value["shares"]))
        elif isinstance(value, Mapping):
            arguments[parameter] = _aggregated(value.get("aggregated"), argument)
    try:
        return METRICS[name].function(**arguments)
    except TypeError as error:
        raise InputError.invalid(
            argument, "has arguments that the metric does not take", _BY_HAND, settings=by_hand
        ) from error


def _aggregated(columns: Any, argument: Argument) -> Aggregated:
    try:
        return aggregated(**columns)
    except TypeError as error:
        raise InputError.empty(
            argument, "names no columns of aggregates", _BY_HAND, settings={"metric": ...}
        ) from error
