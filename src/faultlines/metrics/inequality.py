"""Inequality between people, which means and groups do not show."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from faultlines.checks import column as checked_column
from faultlines.checks import number
from faultlines.errors import InputError, shorten
from faultlines.estimates.scales import PERCENT
from faultlines.metrics.base import Metric, recorded
from faultlines.metrics.moments import of_atkinson
from faultlines.rows.request import Arms, Input

if TYPE_CHECKING:
    from collections.abc import Hashable

    from faultlines.rows.request import Columns

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
        treatment: Its value for the treatment; may be left out when there are just two.
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
    for name, given in (("control", control), ("treatment", treatment)):
        if variant is None and given is not None:
            raise InputError(f"{name}={shorten(given)}", "goes with variant", "Name the column of variants.")
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
        size_unit="units" if unit else "rows",
        min_size=_FEWEST if variant is None else _FEWEST_OF_ARM,
    )


def _powers(c: Columns, epsilon: float) -> dict[str, Any]:
    x = c["x"]
    if epsilon < 1:
        return {"u": x ** (1 - epsilon), "x": x}
    above = c.where(x > 0, x)  # zeros have no logarithm; the estimate sees that they are missing
    return {"u": c.log(above) if epsilon == 1 else above ** (1 - epsilon), "x": x}
