"""Metrics of one population: means, rates and ratios."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

from faultlines.checks import column as checked_column
from faultlines.checks import number
from faultlines.errors import InputError
from faultlines.estimates.scales import ANSCOMBE, PERCENT
from faultlines.formats import unit_name
from faultlines.metrics.base import Metric, recorded
from faultlines.metrics.experiment import check_denominator, with_variance
from faultlines.metrics.forms import (
    FEW,
    Clusters,
    checked_cap,
    denominator,
    mean_of,
    no_variables,
    rate_of,
    shaped_of,
    value_variables,
    weight_of,
    with_weight,
)
from faultlines.metrics.forms import value as value_itself
from faultlines.metrics.moments import of_atkinson, of_population, of_rate
from faultlines.rows.request import Aggregated, Arms, Columns, Input

__all__ = ["mean", "rate", "ratio"]


@recorded
def mean(
    value: str | Aggregated,
    *,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
    cap: float | str | None = None,
) -> Metric:
    """Mean of a column in each group, in the units of the column.

    Rows need the column `value` (numbers) and those of the groups. The standard error is the root of the variance over
    the number of rows; variances that do not clearly differ are pooled over groups. `fl.rate` is for yes/no columns,
    `fl.ratio` for a ratio of sums, `fl.difference` and `fl.lift` for experiments.

    Args:
        value: The column, or `fl.aggregated(...)`.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.
        cap: Where the largest values are cut, the same in all groups: a number, or a quantile such as ``"99%"``. The
            estimate is then the mean of capped values.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"country": ["DE", "IN"] * 100, "spend": [10, 20, 11, 18] * 50})
        >>> fl.measure(rows, "country", fl.mean("spend")).estimates.theta.tolist()
        [10.5, 19.0]
    """
    if isinstance(value, Aggregated):
        _need_rows(weight=weight, unit=unit, cap=cap)
        check_denominator(value, None, ratio=False)
        _check_no_covariate(value)
        name = f"mean of {value.mean or value.sum}"
        return Metric(name, {}, no_variables, of_population, aggregated=with_variance(value))
    capped = Input(value, parameter="value", cap=checked_cap(cap))
    return mean_of(f"mean of {value}", {"x": capped}, value_itself, weight, Clusters(unit, overlap))


@recorded
def rate(
    value: str | Aggregated,
    *,
    positive: Hashable = None,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
) -> Metric:
    """Share of rows in which a yes/no column is yes: 0.2 is 20%.

    Rows need the column `value` and those of the groups. Rates are compared on Anscombe's scale, asin √((y + 3/8)/(n +
    3/4)), where the standard error depends on the number of rows alone, so that rare events cause no false positives;
    results show rates, and the standard error of a rate. `fl.mean` is for other numbers, `fl.selection_rate` and its
    kin for models.

    Args:
        value: The column: 0/1, booleans, or two labels of which `positive` counts; or `fl.aggregated(n, sum=…)`, where
            the sum counts the rows that are yes.
        positive: The label that counts as yes.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"country": ["DE", "IN"] * 100, "bought": ["yes", "no", "no", "no"] * 50})
        >>> fl.measure(rows, "country", fl.rate("bought", positive="yes")).estimates.natural.tolist()
        [0.5, 0.0]
    """
    if isinstance(value, Aggregated):
        _need_rows(weight=weight, positive=positive, unit=unit)
        check_denominator(value, None, ratio=False)
        _check_no_covariate(value)
        name = f"rate of {value.mean or value.sum}"
        return Metric(
            name, {}, no_variables, of_rate, aggregated=value, scale=ANSCOMBE, needs_covariance=False, min_size=FEW
        )
    binary = Input(value, "binary", positive, parameter="value")
    return rate_of(f"rate of {value}", {"x": binary}, value_itself, weight, clusters=Clusters(unit, overlap))


@recorded
def ratio(
    numer: str | Aggregated,
    denom: str | None = None,
    *,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
) -> Metric:
    """Ratio of two sums in each group, such as clicks per page view, in the units of the ratio.

    Rows need the columns `numer` and `denom` (numbers) and those of the groups. The standard error is by the delta
    method, from the variances and the covariance of both. `fl.mean` is for a mean per row, `fl.ratio_lift` for
    experiments.

    Args:
        numer: The column whose sum is divided, or `fl.aggregated(...)` with its denominator.
        denom: The column by whose sum it is divided; ``"*"`` for the number of rows.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"country": ["DE", "IN"] * 100, "clicks": [1, 2, 2, 2] * 50, "views": [10, 20] * 100})
        >>> fl.measure(rows, "country", fl.ratio("clicks", "views")).estimates.theta.tolist()
        [0.15, 0.1]
    """
    if isinstance(numer, Aggregated):
        check_denominator(numer, denom, ratio=True)
        _need_rows(weight=weight, unit=unit)
        _check_no_covariate(numer)
        name, table = f"ratio of {numer.mean or numer.sum}/{numer.denom_sum}", with_variance(numer)
        return Metric(name, {}, no_variables, partial(of_population, ratio=True), aggregated=table)
    if denom is None:
        raise InputError.missing("denom", "is needed", 'Name the column, or "*" for the number of rows.')
    inputs = {"x": Input(numer, parameter="numer"), "y": denominator(denom)}
    inputs = with_weight(inputs, weight)
    if unit is not None:
        return Clusters(unit, overlap).ratio(f"ratio of {numer}/{denom}", inputs, _products)
    formula = partial(of_population, ratio=True, weighted=weight is not None)
    return Metric(f"ratio of {numer}/{denom}", inputs, value_variables, formula, shaped=shaped_of(inputs))


def _products(c: Columns) -> dict[str, Any]:
    """Numerator and denominator of a row, times its weight where it has one."""
    return {role: weight_of(c) * c[role] for role in ("x", "y")}


def _check_no_covariate(value: Aggregated) -> None:
    if value.covariate_sum is not None:
        raise InputError.conflict("covariate_sum", "applies to experiments only", "Leave it out.", value.covariate_sum)


def _need_rows(**options: object) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError.unsupported(name, "needs rows, not aggregates", "Leave it out, or give the rows.", value)


# ---------- Inequality between people, which means and groups do not show.


__all__ = ["atkinson"]

_FEWEST, _FEWEST_OF_ARM = 30, 50  # people an index needs: its skewness falls with their number
_MOST = 5.0  # aversion beyond which an index is all about the smallest value


@recorded
def atkinson(
    value: str,
    epsilon: float = 0.5,
    *,
    variant: str | None = None,
    control: Hashable = None,
    treatment: Hashable = None,
    unit: str | None = None,
) -> Metric:
    """Atkinson's index of inequality between people, in each group; with variants, what the treatment does to it.

    It is the share of the total that could be given up if the rest were shared equally, and people were as well off as
    now: 0 where all have the same. The standard error is by the delta method.

    Args:
        value: The column of amounts, none negative: sessions, messages, income.
        epsilon: Aversion to inequality, above 0: the larger, the more the lower end counts. From 1 on, every amount has
            to be above zero.
        variant: The column that says which variant a row had; the index of treatment less that of control is measured.
        control: Its value for the control.
        treatment: Its value for the treatment; may be omitted when there are just two.
        unit: The column of people, when there are several rows of each; rows are summed to it first.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column, or `epsilon` is not above 0.

    Example:
        >>> import faultlines as fl
        >>> fl.atkinson("sessions", 0.5, variant="arm", control="A", unit="user").name
        'difference of Atkinson index (ε = 0.5) of sessions'
    """
    problem = f"must be a number above 0, and at most {_MOST:g}"
    aversion = number("epsilon", epsilon, problem, "Use for example epsilon=0.5.", low=0, high=_MOST, ends="(]")
    for name, arm_value in (("control", control), ("treatment", treatment)):
        if variant is None and arm_value is not None:
            raise InputError.conflict(name, "needs the column of variants", "Name the column of variants.", arm_value)
    arms = None if variant is None else Arms(variant, control, treatment)
    inputs = {"x": Input(value, "amount", parameter="value")}
    if unit is not None:
        checked_column("unit", unit)
    return Metric(
        f"{'' if variant is None else 'difference of '}Atkinson index (ε = {aversion:g}) of {value}",
        inputs,
        partial(_powers, epsilon=aversion),
        partial(of_atkinson, epsilon=aversion),
        arms=arms,
        unit=unit,
        scale=PERCENT,
        size_unit=unit_name(unit),
        min_size=_FEWEST if variant is None else _FEWEST_OF_ARM,
    )


def _powers(c: Columns, epsilon: float) -> dict[str, Any]:
    x = c["x"]
    if epsilon < 1:
        return {"u": x ** (1 - epsilon), "x": x}
    above = c.where(x > 0, x)  # zeros have no logarithm; the estimate sees that they are missing
    return {"u": c.log(above) if epsilon == 1 else above ** (1 - epsilon), "x": x}
