"""Metrics of experiments: what the treatment did, as a difference or as a lift."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from faultlines.checks import choice
from faultlines.checks import column as checked_column
from faultlines.errors import InputError
from faultlines.estimates.scales import IDENTITY, LOG_RATIO, Scale
from faultlines.formats import one_unit, unit_name
from faultlines.metrics.base import Measured, Metric, recorded
from faultlines.metrics.forms import (
    ROWS_COLUMN,
    checked_cap,
    covariate_fields,
    denominator,
    no_variables,
    shaped_of,
    value_variables,
    weight_input,
)
from faultlines.metrics.moments import of_difference, of_lift
from faultlines.rows.request import AGGREGATES, Aggregated, Arms, Input

__all__ = ["aggregated", "difference", "lift", "ratio_difference", "ratio_lift"]


def aggregated(
    n: str,
    *,
    mean: str | None = None,
    sum: str | None = None,  # noqa: A002
    variance: str | None = None,
    sum_squares: str | None = None,
    skewness: str | None = None,
    kurtosis: str | None = None,
    denom_sum: str | None = None,
    denom_sum_squares: str | None = None,
    denom_product: str | None = None,
    covariate_sum: str | None = None,
    covariate_sum_squares: str | None = None,
    covariate_product: str | None = None,
    denom_covariate_product: str | None = None,
) -> Aggregated:
    """Name the columns of a table that holds counts and moments instead of rows, to be given as a metric's `value`.

    Args:
        n: The column of counts.
        mean: The column of means; or `sum`, of sums.
        sum: See `mean`.
        variance: The column of sample variances (n − 1); or `sum_squares`, of sums of squares. Rates need neither.
        sum_squares: See `variance`. Loses precision where the mean is large beside the spread; prefer `variance`.
        skewness: The column of skewnesses, mean of ((x − x̄)/s)³; with `kurtosis`. Without the two the result says what
            was assumed: yes/no values are seen by their variance, others are taken to be as skewed as their variances
            follow their means.
        kurtosis: The column of kurtoses, mean of ((x − x̄)/s)⁴: 3 for normal values.
        denom_sum: For a ratio: the column of sums of the denominator, SUM(views).
        denom_sum_squares: The column of its sums of squares, SUM(views * views).
        denom_product: The column of sums of products with the value, SUM(clicks * views).
        covariate_sum: For CUPED: the column of sums of the covariate, SUM(before).
        covariate_sum_squares: The column of its sums of squares.
        covariate_product: The column of sums of its products with the value.
        denom_covariate_product: Of a ratio with a covariate: the column of sums of products of both.

    Returns:
        The names, for `difference`, `lift`, `mean`, `rate`, and with a denominator `ratio_difference`, `ratio_lift` and
        `ratio`.

    Raises:
        InputError: If a column is missing, or two are given where one is needed.

    Example:
        >>> import faultlines as fl
        >>> fl.rate(fl.aggregated("users", sum="buyers")).name
        'rate of buyers'
    """
    if (mean is None) == (sum is None):
        remedy = "Name the column of means or sums."
        raise InputError.missing("mean, sum", "one of the two is needed", remedy, form="clause")
    if variance is not None and sum_squares is not None:
        raise InputError.conflict(
            "variance, sum_squares",
            "only one of the two is needed",
            "Name the column of variances or of sums of squares.",
            form="clause",
        )
    if (skewness is None) != (kurtosis is None):
        remedy = "Name both columns, or leave both out."
        raise InputError.missing("skewness, kurtosis", "both or none are needed", remedy, form="clause")
    columns = Aggregated(
        n,
        mean,
        sum,
        variance,
        sum_squares,
        skewness,
        kurtosis,
        denom_sum,
        denom_sum_squares,
        denom_product,
        covariate_sum,
        covariate_sum_squares,
        covariate_product,
        denom_covariate_product,
    )
    _check_others(columns)
    for field in fields(columns):
        column = getattr(columns, field.name)
        if column is not None or field.name == "n":
            checked_column(field.name, column)
    return columns


def _check_others(columns: Aggregated) -> None:
    """Refuse a denominator or a covariate of which some sums are missing."""
    needed = {name: [f"{name}_sum", f"{name}_sum_squares", f"{name}_product"] for name in ("denom", "covariate")}
    for name, parts in needed.items():
        missing = [part for part in parts if getattr(columns, part) is None]
        if 0 < len(missing) < len(parts):
            remedy = "Name the columns of its sums, of its squares, and of its products with the value."
            raise InputError.missing(", ".join(missing), f"the {name} needs all three", remedy, form="clause")
    if (columns.denom_covariate_product is None) == (len(columns.others) == 2):
        remedy = "Name the column of sums of their products where there are both, and only then."
        raise InputError.missing(
            "denom_covariate_product", "needs a denominator and a covariate", remedy, form="clause"
        )
    if columns.others and columns.skewness is not None:
        remedy = "Leave skewness and kurtosis out: every group has the variance of its own values then."
        raise InputError.conflict("skewness, kurtosis", "are those of a single value", remedy, form="clause")


def check_denominator(value: Aggregated, denom: object, *, ratio: bool) -> None:
    """Refuse aggregates without the denominator of a ratio, and with one where there is no ratio."""
    if denom is not None:
        remedy = "Leave it out: the columns of aggregates name it."
        raise InputError.conflict("denom", "needs rows, not aggregates", remedy, denom)
    if ratio != (value.denom_sum is not None):
        problem = "is needed for a ratio" if ratio else "means nothing without a ratio"
        remedy = "Name denom_sum, denom_sum_squares and denom_product." if ratio else "Leave it out, or use a ratio."
        raise InputError.missing("denom_sum", problem, remedy, value.denom_sum)


def with_variance(value: Aggregated) -> Aggregated:
    """Aggregates that say how much values vary, or an error."""
    if value.variance is None and value.sum_squares is None:
        raise InputError.missing(
            "variance, sum_squares",
            "one of the two is needed",
            "Name the column of variances or of sums of squares; only rates can do without.",
            form="clause",
        )
    return value


@recorded
def difference(
    value: str | Aggregated,
    *,
    variant: str,
    control: Hashable,
    treatment: Hashable | Sequence[Hashable] = None,
    unit: str | None = None,
    covariate: str | None = None,
    weight: str | None = None,
    overlap: str = "error",
    cap: float | str | None = None,
    aggregate: str | None = None,
    shares: Mapping[Any, float] | None = None,
) -> Metric:
    """Treatment effect: mean of the treated less mean of the control (the paper, section 5.1.1).

    It is in the units of `value`: 0.5 is half a euro more per user, and of a 0/1 column 0.02 is two points more of a
    rate. Rows need the columns `value` (numbers), `variant` and those of the groups. The standard error is that of a
    difference of two means, from the variances within the arms; variances that do not clearly differ are pooled over
    groups.

    Take it where the absolute gain counts, or where means may be near zero or below. `fl.lift` is for groups that
    differ in level, so that the same per cent means the same in each; `fl.ratio_difference` for a ratio of sums, such
    as clicks per view. With several rows of each randomised unit give `unit=`; `covariate=` narrows intervals (CUPED).

    Args:
        value: The column that is measured, or `fl.aggregated(...)`.
        variant: The column that says which variant a row had.
        control: Its value for the control.
        treatment: Its value for the treatment; may be omitted when there are just two. A list of several, or ``"*"``
            for all: every group is then there once for each, and they are clustered jointly.
        unit: The randomised unit, when there are several rows of each; rows are summed to it first.
        covariate: A column measured before the experiment, for CUPED. Rows that lack it are kept, with an indicator.
        weight: A column of weights.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.
        cap: Where the largest values are cut, the same in all groups and arms: a number, or a quantile such as
            ``"99%"``; with units, of their sums. The estimate is then that of capped values.
        aggregate: What a unit has of `value`: the ``"sum"`` of its rows, their ``"mean"``, or ``"any"``: 1 where one of
            them is not zero. It says what is compared: spend per user, the mean of their visits, or users who bought.
        shares: Variant → planned share of units, such as ``{"A": 0.5, "B": 0.5}``, for the test of sample ratios.
            Without it, shares are compared between groups alone.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column, or control and treatment are the same.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> arms = pl.DataFrame({"country": ["DE", "IN"] * 100, "arm": ["A", "A", "B", "B"] * 50})
        >>> rows = arms.with_columns(spend=pl.Series([10, 20, 11, 18, 12, 22, 13, 20] * 25))
        >>> made = fl.measure(rows, "country", fl.difference("spend", variant="arm", control="A")).estimates
        >>> made.labels, made.theta.round(3).tolist(), made.se.round(3).tolist()
        (('DE', 'IN'), [1.0, -2.0], [0.202, 0.202])
    """
    options = _Options(variant, control, treatment, unit, covariate, weight, overlap, shares, cap, aggregate)
    return options.metric("difference", of_difference, value, None)


@recorded
def lift(
    value: str | Aggregated,
    *,
    variant: str,
    control: Hashable,
    treatment: Hashable | Sequence[Hashable] = None,
    unit: str | None = None,
    covariate: str | None = None,
    weight: str | None = None,
    overlap: str = "error",
    cap: float | str | None = None,
    aggregate: str | None = None,
    shares: Mapping[Any, float] | None = None,
) -> Metric:
    """Relative lift of a mean: that of the treated over that of the control, less one (the paper, section 5.1.2).

    0.05 is +5%, and is shown so. Rows need the columns `value` (numbers whose mean is above zero), `variant` and those
    of the groups. Groups are compared and pooled by the logarithm of the ratio of means, with its standard error by the
    delta method from the variances within the arms; variances that do not clearly differ are pooled over groups.
    Results show lifts, and the standard error of a lift. A group is excluded, with its reason, where the sum of both
    means is within seven standard errors of zero, or one of them within two: the delta method fails there.

    Take it where groups differ in level, so that the same per cent means the same in each: revenue by country.
    `fl.difference` is for the absolute gain, and for means near zero or below; `fl.ratio_lift` for a ratio of sums,
    such as clicks per view. With several rows of each randomised unit give `unit=`; `covariate=` narrows intervals
    (CUPED).

    Args:
        value: The column that is measured, or `fl.aggregated(...)`.
        variant: The column that says which variant a row had.
        control: Its value for the control.
        treatment: Its value for the treatment; may be omitted when there are just two. A list of several, or ``"*"``
            for all: every group is then there once for each, and they are clustered jointly.
        unit: The randomised unit, when there are several rows of each; rows are summed to it first.
        covariate: A column measured before the experiment, for CUPED. Rows that lack it are kept, with an indicator.
        weight: A column of weights.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.
        cap: Where the largest values are cut, the same in all groups and arms: a number, or a quantile such as
            ``"99%"``; with units, of their sums. The estimate is then that of capped values.
        aggregate: What a unit has of `value`: the ``"sum"`` of its rows, their ``"mean"``, or ``"any"``: 1 where one of
            them is not zero. It says what is compared: spend per user, the mean of their visits, or users who bought.
        shares: Variant → planned share of units, such as ``{"A": 0.5, "B": 0.5}``, for the test of sample ratios.
            Without it, shares are compared between groups alone.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column, or control and treatment are the same.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> arms = pl.DataFrame({"country": ["DE", "IN"] * 100, "arm": ["A", "A", "B", "B"] * 50})
        >>> rows = arms.with_columns(spend=pl.Series([10, 20, 11, 18, 12, 22, 13, 20] * 25))
        >>> found = fl.cluster(rows, "country", fl.lift("spend", variant="arm", control="A"))
        >>> [(row["country"], round(row["estimate"], 3), round(row["se"], 3)) for row in found.to_dicts()]
        [('DE', 0.091, 0.019), ('IN', -0.095, 0.009)]
    """
    options = _Options(variant, control, treatment, unit, covariate, weight, overlap, shares, cap, aggregate)
    return options.metric("lift", of_lift, value, None, LOG_RATIO)


@recorded
def ratio_difference(
    numer: str | Aggregated,
    denom: str | None = None,
    *,
    variant: str,
    control: Hashable,
    treatment: Hashable | Sequence[Hashable] = None,
    unit: str | None = None,
    covariate: str | None = None,
    weight: str | None = None,
    overlap: str = "error",
    cap: float | str | None = None,
    shares: Mapping[Any, float] | None = None,
) -> Metric:
    """Difference of a ratio of sums, such as clicks per page view: that of the treated less that of the control.

    It is in the units of the ratio. Rows need the columns `numer`, `denom` (numbers), `variant` and those of the
    groups. The standard error is by the delta method, from the variances and the covariance of both within the arms.

    Take it where the denominator is not what was randomised: users are randomised, and page views are counted. Give
    `unit=` then, so that rows of a user are summed first. `fl.ratio_lift` is the same in per cent; `fl.difference` is
    for plain means.

    Args:
        numer: The column whose sum is divided, or `fl.aggregated(...)` with its denominator.
        denom: The column by whose sum it is divided; ``"*"`` for the number of rows.
        variant: The column that says which variant a row had.
        control: Its value for the control.
        treatment: Its value for the treatment; may be omitted when there are just two. A list of several, or ``"*"``
            for all: every group is then there once for each, and they are clustered jointly.
        unit: The randomised unit, when there are several rows of each; rows are summed to it first.
        covariate: A column measured before the experiment, for CUPED. Rows that lack it are kept, with an indicator.
        weight: A column of weights.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.
        cap: Where the largest values of `numer` are cut, the same in all groups and arms: a number, or a quantile such
            as ``"99%"``; with units, of their sums. The estimate is then that of capped values.
        shares: Variant → planned share of units, such as ``{"A": 0.5, "B": 0.5}``, for the test of sample ratios.
            Without it, shares are compared between groups alone.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column, or control and treatment are the same.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> arms = pl.DataFrame({"country": ["DE", "IN"] * 100, "arm": ["A", "A", "B", "B"] * 50})
        >>> rows = arms.with_columns(clicks=pl.Series([1, 2, 2, 2, 3, 2, 3, 4] * 25), views=pl.Series([10, 20] * 100))
        >>> metric = fl.ratio_difference("clicks", "views", variant="arm", control="A")
        >>> fl.measure(rows, "country", metric).estimates.theta.round(3).tolist()
        [0.05, 0.05]
    """
    options = _Options(variant, control, treatment, unit, covariate, weight, overlap, shares, cap)
    return options.ratio("ratio difference", of_difference, numer, denom)


@recorded
def ratio_lift(
    numer: str | Aggregated,
    denom: str | None = None,
    *,
    variant: str,
    control: Hashable,
    treatment: Hashable | Sequence[Hashable] = None,
    unit: str | None = None,
    covariate: str | None = None,
    weight: str | None = None,
    overlap: str = "error",
    cap: float | str | None = None,
    shares: Mapping[Any, float] | None = None,
) -> Metric:
    """Relative lift of a ratio of sums, such as clicks per page view: treated over control, less one.

    0.05 is +5%. Rows need the columns `numer`, `denom` (numbers), `variant` and those of the groups. Groups are
    compared by the logarithm of the two ratios, with its standard error by the delta method; groups whose ratios are
    near zero are excluded, as for `fl.lift`.

    Take it where the denominator is not what was randomised and groups differ in level. Give `unit=` then, so that rows
    of a user are summed first. `fl.ratio_difference` is the same in absolute terms; `fl.lift` is for plain means.

    Args:
        numer: The column whose sum is divided, or `fl.aggregated(...)` with its denominator.
        denom: The column by whose sum it is divided; ``"*"`` for the number of rows.
        variant: The column that says which variant a row had.
        control: Its value for the control.
        treatment: Its value for the treatment; may be omitted when there are just two. A list of several, or ``"*"``
            for all: every group is then there once for each, and they are clustered jointly.
        unit: The randomised unit, when there are several rows of each; rows are summed to it first.
        covariate: A column measured before the experiment, for CUPED. Rows that lack it are kept, with an indicator.
        weight: A column of weights.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.
        cap: Where the largest values of `numer` are cut, the same in all groups and arms: a number, or a quantile such
            as ``"99%"``; with units, of their sums. The estimate is then that of capped values.
        shares: Variant → planned share of units, such as ``{"A": 0.5, "B": 0.5}``, for the test of sample ratios.
            Without it, shares are compared between groups alone.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column, or control and treatment are the same.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> arms = pl.DataFrame({"country": ["DE", "IN"] * 100, "arm": ["A", "A", "B", "B"] * 50})
        >>> rows = arms.with_columns(clicks=pl.Series([1, 2, 2, 2, 3, 2, 3, 4] * 25), views=pl.Series([10, 20] * 100))
        >>> metric = fl.ratio_lift("clicks", "views", variant="arm", control="A")
        >>> fl.measure(rows, "country", metric).estimates.natural.round(3).tolist()
        [0.25, 0.5]
    """
    options = _Options(variant, control, treatment, unit, covariate, weight, overlap, shares, cap)
    return options.ratio("ratio lift", of_lift, numer, denom, LOG_RATIO)


class _Options:
    """What all metrics of experiments can be told."""

    def __init__(
        self,
        variant: str,
        control: Hashable,
        treatment: Hashable | Sequence[Hashable],
        unit: str | None,
        covariate: str | None,
        weight: str | None,
        overlap: str,
        shares: Mapping[Any, float] | None,
        cap: float | str | None,
        aggregate: str | None = None,
    ) -> None:
        self.arms, self.overlap = Arms(variant, control, treatment, shares), overlap
        self.cap = checked_cap(cap)
        if aggregate is not None and unit is None:
            raise InputError.missing("aggregate", "is about rows of units", "Name the unit.", aggregate)
        if aggregate == "first":
            query = f"select * from 'FILE' qualify row_number() over (partition by \"{unit}\" order by TIME) = 1"
            remedy = f"Keep the first row of each {unit} by a query (--sql, duckdb.sql): {query}."
            raise InputError.unsupported("aggregate", "needs an order of rows", remedy, aggregate)
        self.aggregate = choice("aggregate", aggregate or "sum", AGGREGATES)
        for name, column in (("unit", unit), ("covariate", covariate), ("weight", weight)):
            if column is not None:
                checked_column(name, column)
        self.unit, self.covariate, self.weight = unit, covariate, weight

    def ratio(
        self,
        name: str,
        estimate: Callable[..., Measured],
        numer: str | Aggregated,
        denom: str | None,
        scale: Scale = IDENTITY,
    ) -> Metric:
        """The metric of a ratio of sums, of rows or of a table that has them."""
        if isinstance(numer, Aggregated):
            check_denominator(numer, denom, ratio=True)
            return self._of_table(name, estimate, numer, scale)
        if denom is None:
            raise InputError.missing("denom", "is needed", 'Name the column, or "*" for the number of rows.')
        return self.metric(name, estimate, numer, checked_column("denom", denom), scale)

    def _of_table(self, name: str, estimate: Callable[..., Measured], table: Aggregated, scale: Scale) -> Metric:
        if any(option is not None for option in (self.unit, self.covariate, self.weight, self.cap)):
            options, problem = "unit, covariate, weight, cap", "need rows, not aggregates"
            raise InputError.unsupported(options, problem, "Leave them out, or give the rows.")
        has = {other: other in table.others for other in ("denom", "covariate")}
        formula = partial(estimate, ratio=has["denom"], weighted=False, covariate=has["covariate"])
        column = f"{table.mean or table.sum}" + (f"/{table.denom_sum}" if has["denom"] else "")
        fields: dict[str, Any] = {"arms": self.arms, "aggregated": with_variance(table), "scale": scale}
        return Metric(f"{name} of {column}", {}, no_variables, formula, **fields)

    def metric(
        self,
        name: str,
        estimate: Callable[..., Measured],
        numer: str | Aggregated,
        denom: str | None,
        scale: Scale = IDENTITY,
    ) -> Metric:
        formula = partial(
            estimate,
            ratio=denom is not None,
            weighted=self.weight is not None,
            covariate=self.covariate is not None,
        )
        if isinstance(numer, Aggregated):
            check_denominator(numer, None, ratio=False)
            return self._of_table(name, estimate, numer, scale)
        if self.covariate is not None and self.covariate in (numer, denom):
            remedy = "Name a column that was measured before the experiment."
            raise InputError.conflict("covariate", "is the column that is measured", remedy, self.covariate)
        inputs = self._inputs(numer, denom)
        return Metric(
            f"{name} of {self._estimand(numer, denom)}",
            inputs,
            value_variables,
            formula,
            arms=self.arms,
            unit=self.unit,
            size_unit=unit_name(self.unit),
            centred={"centre": "x"} if self.weight is not None and denom is None else {},
            scale=scale,
            shaped=shaped_of(inputs),
            products=self._products(inputs),
            overlap=self.overlap,
            **covariate_fields(inputs),
        )

    def _estimand(self, numer: str, denom: str | None) -> str:
        """What is compared, in words: a sum of rows is one per unit."""
        if denom is not None:
            return f"{numer}/{'rows' if denom == ROWS_COLUMN else denom}"
        if self.unit is None:
            return numer
        # A unit in several groups has a value in each of them: what its rows there add up to.
        per = one_unit(self.unit) + (" and group" if self.overlap == "covariance" else "")
        return f"{numer if self.aggregate == 'sum' else f'{self.aggregate} {numer}'} per {per}"

    def _products(self, inputs: Mapping[str, Input]) -> tuple[tuple[int, int, int], ...]:
        if "w" not in inputs or "y" in inputs:
            return ()
        return ((0, 1, 2),) if "z" not in inputs else ((0, 1, 2), (4, 5, 2))

    def _inputs(self, numer: Any, denom: str | None) -> dict[str, Input]:
        inputs = {
            "x": Input(numer, parameter="value" if denom is None else "numer", cap=self.cap, aggregate=self.aggregate)
        }
        if denom is not None:
            inputs["y"] = denominator(denom)
        if self.weight is not None:
            inputs["w"] = weight_input(self.weight)
        if self.covariate is not None:
            inputs["z"] = Input(self.covariate, per_unit=True, parameter="covariate", optional=True)
        return inputs
