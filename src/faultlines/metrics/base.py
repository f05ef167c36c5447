"""A metric: the columns it needs, the variables formed of them, and the way from their moments to estimates.

A metric is a frozen record of functions. It names its input columns, says which *variables* to form of them row by row,
and turns the moments of those variables (count, mean, covariance; by group and arm) into estimates with standard
errors. The engine that holds the rows does one group-by in between and knows no statistics; this package knows no
engines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from faultlines.checks import column as checked_column
from faultlines.errors import InputError, shorten
from faultlines.estimates.scales import IDENTITY, Scale
from faultlines.rows.request import Input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import numpy.typing as npt

    from faultlines.rows.request import Aggregated, Arms, Columns, Moments

    FloatArray = npt.NDArray[np.float64]


class Measured(NamedTuple):
    """What a metric makes of moments, one entry per group.

    Args:
        theta: The estimates, (K,), or (K, d) for several effects.
        se: Their standard errors, in the same shape.
        dof: Degrees of freedom behind them, (K,); None for known variances.
        n: Sizes of the groups.
        natural: The estimates as people read them, in the shape of `theta`.
        reason: Why a group cannot be used; "" when it can.
        cov: Covariance matrices of several effects, (K, d, d); None where they are independent.
    """

    theta: FloatArray
    se: FloatArray
    dof: FloatArray | None
    n: FloatArray
    natural: FloatArray
    reason: npt.NDArray[np.object_]
    cov: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: input columns, the variables formed of them, and the way from moments to estimates.

    Args:
        name: How it is called in a result.
        inputs: Role → column, for every column the variables use. A row in which one of them is null is left out,
            and counted.
        variables: From the input columns to the variables, by name; null where a row does not count.
        estimate: From the moments of the variables to estimates.
        arms: For experiments: the column of variants, control and treatment.
        unit: The randomised unit; rows are summed to it first, and inputs that describe it (`Input.per_unit`) averaged.
        centred: Name → role of an input whose mean by group and arm is wanted as a further input of that name; it keeps
            weighted variances precise.
        scale: The scale of the estimates and the way back to what people read.
        ranking: For the area under the curve: by score instead of by moments; number of score bins, 0 for none.
        aggregated: For tables that hold moments already.
        needs_covariance: Whether variances and covariances are needed.
        size_unit: What `min_size` counts, for the reason given.
        parts: Names of the things measured, where there are several.
        pairs: Pairs of variables whose covariance is needed; None for all.
        size_variables: The variables whose counts are compared with `min_size`; None for all.

    Raises:
        InputError: If it has no inputs, or one that is not an `Input`.

    Example:
        >>> import faultlines as fl
        >>> fl.Metric("spend", {"x": fl.Input("spend")}, lambda c: {"x": c["x"]}, fl.mean("spend").estimate).name
        'spend'
    """

    name: str
    inputs: Mapping[str, Input]
    variables: Callable[[Columns], Mapping[str, Any]]
    estimate: Callable[[Moments], Measured]
    arms: Arms | None = None
    unit: str | None = None
    centred: Mapping[str, str] = field(default_factory=dict)
    scale: Scale = field(default=IDENTITY)
    ranking: int | None = None
    aggregated: Aggregated | None = None
    needs_covariance: bool = True
    size_unit: str = "rows"
    parts: tuple[str, ...] = ()
    pairs: tuple[tuple[int, int], ...] | None = None
    size_variables: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.unit is not None:
            checked_column("unit", self.unit)
        if not self.inputs and self.aggregated is None:
            raise InputError(
                f"metric {self.name!r}", "has no inputs", 'Name them, as in inputs={"x": fl.Input("column")}.'
            )
        for role, wanted in self.inputs.items():
            if not isinstance(wanted, Input):
                raise InputError(f"inputs[{role!r}]={shorten(wanted)}", "is not an Input", "Use fl.Input(column).")

    def columns(self) -> dict[str, str]:
        """Every column the metric reads, by the name of the parameter that named it."""
        named = {wanted.parameter or role: wanted.column for role, wanted in self.inputs.items()}
        named |= {"variant": self.arms.column} if self.arms else {}
        named |= {"unit": self.unit} if self.unit else {}
        return named | (self.aggregated.columns() if self.aggregated else {})
