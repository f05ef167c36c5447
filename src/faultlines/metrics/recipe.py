"""A metric as plain data and back: what was called, with which arguments, so that a saved result can be measured again.

Metrics of the table, and those joined of them, know how they were made. One that a user built by hand does not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from faultlines.errors import Argument, InputError, did_you_mean
from faultlines.metrics.base import Metric
from faultlines.metrics.experiment import aggregated
from faultlines.metrics.joint import joint
from faultlines.metrics.pairs import paired
from faultlines.metrics.table import METRICS
from faultlines.rows.request import Aggregated

if TYPE_CHECKING:
    from faultlines.metrics.table import Direction


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
    if isinstance(value, Metric):
        recipe = plain_recipe(value)
        return None if recipe is None else {"metric": recipe}
    if isinstance(value, tuple) and all(isinstance(item, Metric) for item in value):
        recipes = [plain_recipe(item) for item in value]
        return None if None in recipes else recipes
    if isinstance(value, list | tuple):  # several treatments
        listed = [_plain(item) for item in value]
        return None if None in listed else listed
    return None


def told_apart(metric: Metric) -> str:
    """A metric in words that tell it from any other: what was called, or its name where that is not known."""
    return json.dumps(plain_recipe(metric) or metric.name, sort_keys=True, ensure_ascii=False)


class Traits(NamedTuple):
    """What is known of one effect of a metric.

    Attributes:
        adverse: The harmful direction; None where neither is, or none is known.
        span: How far apart two groups can be at most.
        averages: Whether the value in all rows is the mean of the groups' values.
    """

    adverse: Direction | None = None
    span: float = math.inf
    averages: bool = True


def traits_of(recipe: str) -> tuple[Traits, ...]:
    """What is known of each effect of a metric, by what `told_apart` says of it; nothing where that is not known.

    The change of a metric between two models harms in the direction of the metric itself.
    """
    try:
        made = json.loads(recipe)
    except ValueError:
        return ()
    return _traits(made) if isinstance(made, dict) else ()


def _traits(recipe: Mapping[str, Any]) -> tuple[Traits, ...]:
    name, arguments = recipe["name"], recipe["arguments"]
    if name == joint.__name__:
        return tuple(traits for metric in arguments["metrics"] for traits in _traits(metric))
    if name == paired.__name__:
        return tuple(one._replace(span=2 * one.span) for one in _traits(arguments["first"]["metric"]))
    if name not in METRICS:
        return (Traits(),)
    entry = METRICS[name]
    sides = cast("list[Direction | None]", entry.adverse.split() or [None])
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
        if isinstance(value, Mapping):
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
