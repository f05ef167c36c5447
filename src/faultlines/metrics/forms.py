"""Means and rates of something formed row by row: what metrics of populations and of models are made of.

A metric can be pickled, so nothing in it is a lambda: forms are functions of this package, with arguments filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from faultlines.checks import number
from faultlines.errors import InputError
from faultlines.estimates.scales import ANSCOMBE
from faultlines.formats import unit_name
from faultlines.metrics.base import Metric
from faultlines.metrics.moments import of_population, of_rate, of_unit_rate
from faultlines.rows.request import Cap, Columns, Input

Form = Callable[[Columns], Any]


FEW = 5  # rows a rate needs: Anscombe's scale keeps its variance down to a handful
MANY = 10  # rows most others need
ENOUGH = 30  # rows a ratio needs whose denominator varies much: weights, squares


def weight_input(weight: str) -> Input:
    """The input of a column of weights."""
    return Input(weight, "weight", per_unit=True, parameter="weight")


def with_weight(inputs: Mapping[str, Input], weight: str | None) -> dict[str, Input]:
    """Inputs, with that of a column of weights where there is one."""
    return {**inputs} if weight is None else {**inputs, "w": weight_input(weight)}


ROWS_COLUMN = "*"  # as a denominator: the number of rows


def denominator(column: str) -> Input:
    """The input of a denominator: a column, or ``"*"`` for the number of rows."""
    is_rows = isinstance(column, str) and column == ROWS_COLUMN
    return Input(column, "rows" if is_rows else "number", parameter="denom")


def checked_cap(cap: float | str | None) -> Cap | None:
    """A cap as it can be used: a number, or a quantile such as ``"99%"``."""
    if cap is None:
        return None
    remedy = 'Use a number, such as 500, or the share of values to keep as they are, such as "99%".'
    if not isinstance(cap, str):
        return Cap(value=_cap_value(number("cap", cap, "must be a number, or a quantile such as '99%'", remedy)))
    try:
        if not cap.isascii() or "_" in cap:  # Python reads them as digits, cells of csv do not
            raise ValueError
        if not cap.endswith("%"):
            share, value = None, float(cap)
        else:
            share, value = float(cap[:-1]) / 100, None
        if not np.isfinite([number for number in (share, value) if number is not None]).all():
            raise ValueError
    except ValueError as error:
        raise InputError.invalid("cap", "is neither a number nor a quantile", remedy, cap) from error
    if share is None:
        return Cap(value=_cap_value(number("cap", value, "must be a number", remedy)))
    if not 0 < share < 1:
        raise InputError.out_of_range("cap", "must be between 0% and 100%", remedy, cap, form="must")
    return Cap(quantile=share)


def _cap_value(value: float) -> float:
    """A cap above zero: below, all amounts would be cut to one value."""
    if value <= 0:
        remedy = 'Use a value of the column, such as 500, or the share of values to keep, such as "99%".'
        raise InputError.out_of_range("cap", "must be above zero", remedy, value, form="must")
    return value


class Clusters(NamedTuple):
    """Units whose rows belong together, and what to do with units in several groups."""

    unit: str | None = None
    overlap: str = "error"

    def ratio(
        self, name: str, inputs: Mapping[str, Input], sums: Callable[[Columns], Mapping[str, Any]], **fields: Any
    ) -> Metric:
        """A ratio of sums over rows whose standard error is robust to what rows of a unit have in common.

        Units are independent, so that Σ x/Σ y of their sums x and y has the variance of a ratio of means of units
        (delta method): the cluster-robust variance of a regression on a constant, with the factor G/(G − 1).

        Args:
            name: What it is called.
            inputs: What it reads.
            sums: From input columns to x and y of a row.
            fields: Further fields of the metric.
        """
        usual: dict[str, Any] = {
            "estimate": partial(of_population, ratio=True),
            "shaped": (0, 1),
            "size_unit": unit_name(self.unit),
        }
        return Metric(name, inputs, unit_variables, unit=self.unit, overlap=self.overlap, sums=sums, **(usual | fields))


ROWS = Clusters()  # every row for itself


def weight_of(c: Columns) -> Any:
    """The weight of a row: 1 where there is no column of weights."""
    if "w" not in c:
        return 1.0
    return c["w"]


def unit_variables(c: Columns) -> dict[str, Any]:
    """Numerator and denominator of units that have one."""
    return {role: c.where(c["y"] > 0, c[role]) for role in ("x", "y")}


def _unit_sums(c: Columns, form: Form) -> dict[str, Any]:
    """What a mean is the ratio of, row by row: w v and w, or v and 1; null where v is."""
    value = form(c)
    weight = weight_of(c) + 0 * value
    return {"x": weight * value, "y": weight}


def mean_of(
    name: str, inputs: Mapping[str, Input], form: Form, weight: str | None, clusters: Clusters = ROWS
) -> Metric:
    """The mean of something formed row by row, weighted or not."""
    if clusters.unit is not None:
        return clusters.ratio(name, with_weight(inputs, weight), partial(_unit_sums, form=form))
    if weight is None:
        return Metric(name, inputs, partial(_plain, form=form), of_population)
    inputs = with_weight(inputs, weight)
    if set(inputs) == {"x", "w"}:
        formula = partial(of_population, weighted=True)
        return Metric(
            name,
            inputs,
            value_variables,
            formula,
            centred={"centre": "x"},
            shaped=shaped_of(inputs),
            products=((0, 1, 2),),
        )
    formula = partial(of_population, ratio=True, weighted=True)
    return Metric(name, inputs, partial(_weighted, form=form), formula, shaped=(0, 1))


def rate_of(
    name: str,
    inputs: Mapping[str, Input],
    form: Form,
    weight: str | None,
    size_unit: str = "rows",
    clusters: Clusters = ROWS,
) -> Metric:
    """The share of rows for which something is 1 among those for which it is not null; `size_unit` names those."""
    if clusters.unit is not None:
        units = unit_name(clusters.unit)
        counted = units if size_unit == "rows" else f"{units} with {size_unit}"
        sums = partial(_unit_sums, form=form)
        fields: dict[str, Any] = {"estimate": of_unit_rate, "scale": ANSCOMBE, "size_unit": counted}
        return clusters.ratio(name, with_weight(inputs, weight), sums, **fields)
    if weight is None:
        variables = partial(_plain, form=form)
        return Metric(
            name,
            inputs,
            variables,
            of_rate,
            scale=ANSCOMBE,
            needs_covariance=False,
            size_unit=size_unit,
            min_size=FEW,
        )
    inputs = with_weight(inputs, weight)
    formula, variables = partial(of_rate, weighted=True), partial(_weighted_share, form=form)
    return Metric(name, inputs, variables, formula, scale=ANSCOMBE, size_unit=size_unit, shaped=())


def shaped_of(inputs: Mapping[str, Input]) -> tuple[int, ...]:
    """Places of the variables of `value_variables` whose shape makes that of the terms: x, y or w, covariate."""
    places = (0, 1) if "y" in inputs or "w" in inputs else (0,)
    place = covariate_place(inputs)
    return (*places, place, *(place + 1 + i for i in places)) if "z" in inputs else places


def value(c: Columns) -> Any:
    """The value itself."""
    return c["x"]


def value_variables(c: Columns) -> dict[str, Any]:
    """Variables of a mean or ratio: x; x and y; with weights w x and w y, or w (x − c), w and c.

    Then the covariate z, which some rows may lack, and the first variables again where it is there.
    """
    if "w" in c and "y" in c:
        variables = {"wx": c["w"] * c["x"], "wy": c["w"] * c["y"], "w": c["w"]}
    elif "w" in c:
        variables = {"wx": c["w"] * (c["x"] - c["centre"]), "w": c["w"], "centre": c["centre"]}
    else:
        variables = {role: c[role] for role in ("x", "y") if role in c}
    if "z" not in c:
        return variables
    seen = {f"{role}_seen": variables[role] + 0 * c["z"] for role in list(variables)[: _terms(c)]}
    return variables | {"z": c["z"]} | seen


def _terms(inputs: Container[str]) -> int:
    """How many of these variables the terms of a mean or ratio are formed of."""
    return 2 if "y" in inputs or "w" in inputs else 1


def covariate_place(inputs: Container[str]) -> int:
    """The place of the covariate among these variables."""
    return 3 if "w" in inputs else 2 if "y" in inputs else 1


def covariate_fields(inputs: Mapping[str, Input]) -> dict[str, Any]:
    """What a metric says of its variables where a covariate may be missing."""
    if "z" not in inputs:
        return {}
    z, terms = covariate_place(inputs), range(_terms(inputs))
    own = [(i, j) for j in range(z) for i in range(j)]
    seen = [z + 1 + i for i in terms]
    pairs = (*own, *((i, z) for i in terms), *((z, i) for i in seen), *([] if len(seen) < 2 else [tuple(seen)]))
    return {"pairs": pairs, "size_variables": tuple(range(z))}


def no_variables(_: Columns) -> dict[str, Any]:
    """Tables of moments form none."""
    return {}


def _plain(c: Columns, form: Form) -> dict[str, Any]:
    return {"x": form(c)}


def _weighted(c: Columns, form: Form) -> dict[str, Any]:
    value = form(c)
    weight = c["w"] + 0 * value  # null where the value is
    return {"wx": c["w"] * value, "wy": weight, "w": weight}


def weighted_share(c: Columns, share: Any) -> dict[str, Any]:
    """Variables of a weighted share."""
    return {"wx": c["w"] * share, "w": c["w"] + 0 * share}  # null where the share is


def _weighted_share(c: Columns, form: Form) -> dict[str, Any]:
    return weighted_share(c, form(c))
