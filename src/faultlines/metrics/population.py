"""Metrics of one population: means, rates and ratios."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from faultlines.errors import InputError, shorten
from faultlines.estimates.scales import ANSCOMBE
from faultlines.metrics.base import Metric, recorded
from faultlines.metrics.experiment import with_variance
from faultlines.metrics.forms import FEW, mean_of, no_variables, rate_of, shaped_of, value_variables, weight_input
from faultlines.metrics.forms import value as value_itself
from faultlines.metrics.moments import of_population, of_rate
from faultlines.rows.request import Aggregated, Input

if TYPE_CHECKING:
    from collections.abc import Hashable

__all__ = ["mean", "rate", "ratio"]


@recorded
def mean(value: str | Aggregated, *, weight: str | None = None) -> Metric:
    """Mean of a column in each group.

    Args:
        value: The column, or `fl.aggregated(...)`.
        weight: A column of weights.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl
        >>> fl.mean("spend").name
        'mean of spend'
    """
    if isinstance(value, Aggregated):
        _need_rows(weight=weight)
        name = f"mean of {value.mean or value.sum}"
        return Metric(name, {}, no_variables, of_population, aggregated=with_variance(value))
    number = Input(value, parameter="value")
    return mean_of(f"mean of {value}", {"x": number}, value_itself, weight)


@recorded
def rate(value: str | Aggregated, *, positive: Hashable = None, weight: str | None = None) -> Metric:
    """Share of rows in which a yes/no column is yes.

    Args:
        value: The column: 0/1, booleans, or two labels of which `positive` counts; or `fl.aggregated(n, sum=…)`, where
            the sum counts the rows that are yes.
        positive: The label that counts as yes.
        weight: A column of weights.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl
        >>> fl.rate("bought", positive="yes").name
        'rate of bought'
    """
    if isinstance(value, Aggregated):
        _need_rows(weight=weight, positive=positive)
        name = f"rate of {value.mean or value.sum}"
        return Metric(
            name, {}, no_variables, of_rate, aggregated=value, scale=ANSCOMBE, needs_covariance=False, min_size=FEW
        )
    binary = Input(value, "binary", positive, parameter="value")
    return rate_of(f"rate of {value}", {"x": binary}, value_itself, weight)


@recorded
def ratio(numer: str, denom: str, *, weight: str | None = None) -> Metric:
    """Ratio of two sums in each group, by the delta method.

    Args:
        numer: The column whose sum is divided.
        denom: The column by whose sum it is divided.
        weight: A column of weights.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl
        >>> fl.ratio("clicks", "views").name
        'ratio of clicks/views'
    """
    inputs = {"x": Input(numer, parameter="numer"), "y": Input(denom, parameter="denom")}
    inputs |= {} if weight is None else {"w": weight_input(weight)}
    formula = partial(of_population, ratio=True, weighted=weight is not None)
    return Metric(f"ratio of {numer}/{denom}", inputs, value_variables, formula, shaped=shaped_of(inputs))


def _need_rows(**options: object) -> None:
    for name, given in options.items():
        if given is not None:
            raise InputError(
                f"{name}={shorten(given)}", "needs rows, not aggregates", "Leave it out, or give the rows."
            )
