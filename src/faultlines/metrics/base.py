"""A metric: the columns it needs, the variables formed of them, and the way from their moments to estimates.

A metric is a frozen record of functions. It names its input columns, says which *variables* to form of them row by row,
and turns the moments of those variables (count, mean, covariance; by group and arm) into estimates with standard
errors. The engine that holds the rows does one group-by in between and knows no statistics; this package knows no
engines.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from numbers import Integral
from typing import Any, NamedTuple, ParamSpec

import numpy as np
import numpy.typing as npt

from faultlines.checks import choice, flag, text
from faultlines.checks import column as checked_column
from faultlines.checks import size as checked_size
from faultlines.errors import InputError, shorten
from faultlines.estimates.reasons import Reason, ReasonCode
from faultlines.estimates.scales import IDENTITY, Scale
from faultlines.formats import amount
from faultlines.rows.request import Aggregated, Arms, Columns, Input, Moments, Resampling
from faultlines.types import FloatArray

P = ParamSpec("P")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Measured(NamedTuple):
    """What a metric makes of moments, one entry per group.

    Args:
        theta: The estimates, (K,), or (K, d) for several effects.
        se: Their standard errors, in the same shape.
        dof: Degrees of freedom behind them, (K,); None for known variances.
        n: Sizes of the groups.
        natural: The estimates as people read them, in the shape of `theta`.
        reason: Why a group cannot be used, a `Reason` or text of your own; None (or "") when it can.
        effect_covariance: Covariance matrices of several effects, (K, d, d); None where they are independent.
        compared: The estimates as groups are compared by them, where skewed noise was straightened; `theta` if None.
        by_arm: The plain value of every arm, (K, arms), control first; None where there are no arms.
        mass: What each group weighs in the value of all groups together: its rows, the sum of their weights, or their
            denominator; in the shape of `theta`. None: `n`.
        scale: How people read the estimates, where values decide it: differences of 0/1 values are in points.
            None: as the metric says.

    Example:
        >>> import faultlines as fl, numpy as np
        >>> moments = fl.Moments(np.array([[[900.0]]]), np.array([[[0.2]]]), np.zeros((1, 1, 1, 1)))
        >>> made = fl.rate("bought").measured(moments)
        >>> made.natural.tolist(), made.se.round(4).tolist(), made.n.tolist()
        ([0.2], [0.0167], [900.0])
    """

    theta: FloatArray
    se: FloatArray
    dof: FloatArray | None
    n: FloatArray
    natural: FloatArray
    reason: npt.NDArray[np.object_]
    effect_covariance: FloatArray | None = None
    compared: FloatArray | None = None
    by_arm: FloatArray | None = None
    mass: FloatArray | None = None
    scale: Scale | None = None


class Recipe(NamedTuple):
    """How a metric was made: the function of that name, and the arguments it was given."""

    name: str
    arguments: tuple[tuple[str, Any], ...]


_RECORDS: tuple[tuple[str, Any, str, str], ...] = (
    ("arms", Arms, "is not an Arms", "Use fl.Arms(column, control, treatment)."),
    ("aggregated", Aggregated, "names no columns of aggregates", "Use fl.aggregated(n, mean=…)."),
    ("resampling", Resampling, "is not a statistic with its draws", "Use fl.bootstrapped(…)."),
)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: input columns, the variables formed of them, and the way from moments to estimates.

    Args:
        name: How it is called in a result.
        inputs: Role → column, for every column the variables use. A row in which one of them is null is dropped,
            and counted.
        variables: From the input columns to the variables, by name; null where a row does not count.
        estimate: From the moments of the variables to estimates.
        arms: For experiments: the column of variants, control and treatment.
        unit: The unit whose rows belong together; rows are summed to it first, and inputs that describe it
            (`Input.per_unit`) averaged.
        centred: Name → role of an input whose mean by group and arm is wanted as a further input of that name; it keeps
            weighted variances precise.
        scale: The scale of the estimates and the way back to what people read.
        ranking: For the area under the curve: by score instead of by moments; number of score bins, 0 for none.
        resampling: For a statistic of whole columns, whose standard error comes from rows drawn anew.
        aggregated: For tables that hold moments already.
        needs_covariance: Whether variances and covariances are needed.
        size_unit: What `min_size` counts, for the reason given.
        parts: Names of the things measured, where there are several.
        pairs: Pairs of variables whose covariance is needed; None for all.
        size_variables: The variables whose counts are compared with `min_size`; None for all.
        shaped: The variables whose skewness and kurtosis are needed; None for all, where covariances are.
        min_size: What a group needs by default, in every arm.
        products: Places of variables w(x − c), w and c, for every weighted mean about `centred`.
        recipe: How it was made, where a function of this library made it.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"``: allow for what they share.
        sums: With units, what is summed over the rows of each, formed of the input columns row by row; `variables` are
            then formed of these sums. None: the inputs themselves are summed.

    Raises:
        InputError: If it has no inputs, or something is not what it must be.

    Example:
        >>> import faultlines as fl
        >>> own = fl.Metric("spend", {"x": fl.Input("spend")}, lambda c: {"x": c["x"]}, fl.mean("spend").estimate)
        >>> own.name, own.adds_up
        ('spend', True)
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
    resampling: Resampling | None = None
    aggregated: Aggregated | None = None
    needs_covariance: bool = True
    size_unit: str = "rows"
    parts: tuple[str, ...] = ()
    pairs: tuple[tuple[int, int], ...] | None = None
    size_variables: tuple[int, ...] | None = None
    shaped: tuple[int, ...] | None = None
    min_size: float = 10
    products: tuple[tuple[int, int, int], ...] = ()
    recipe: Recipe | None = None
    overlap: str = "error"
    sums: Callable[[Columns], Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        for parameter in ("name", "size_unit"):
            if text(parameter, getattr(self, parameter)) is None:
                raise InputError.wrong_type(parameter, "is not text", "Give a string.", None)
        for parameter in ("variables", "estimate"):
            if not callable(getattr(self, parameter)):
                self._refuse(parameter, "is not a function", "Give a function of one argument.")
        if self.unit is not None:
            checked_column("unit", self.unit)
        flag("needs_covariance", self.needs_covariance)
        self._check_overlap()
        if not isinstance(self.scale, Scale):
            self._refuse("scale", "is not a scale", "Leave it out for the estimates as they are.")
        for parameter, kind, problem, remedy in _RECORDS:
            if not isinstance(getattr(self, parameter), kind | None):
                self._refuse(parameter, problem, remedy)
        if self.ranking is not None and not _is_place(self.ranking, 2**53):
            self._refuse("ranking", "must be a whole number, 0 or more", "Leave it out.")
        if not isinstance(self.parts, tuple | list) or not all(isinstance(part, str) for part in self.parts):
            self._refuse("parts", "must be names", 'Use for example parts=("first", "second").')
        self._check_inputs()
        checked_size(self.min_size)
        if self.size_variables is not None or self.pairs is not None or self.shaped is not None:
            self._check_places()

    def _check_overlap(self) -> None:
        choice("overlap", self.overlap, ("error", "covariance"))
        if self.overlap != "error" and self.unit is None:
            raise InputError.missing(
                "overlap", "needs units that can be in several groups", "Name the unit.", "covariance"
            )
        if self.sums is not None and (self.unit is None or not callable(self.sums)):
            self._refuse("sums", "needs a unit, and must be a function", "Name the unit, or leave it out.")

    def _refuse(self, parameter: str, problem: str, remedy: str) -> None:
        raise InputError.wrong_type(parameter, problem, remedy, getattr(self, parameter))

    def _check_inputs(self) -> None:
        remedy = 'Name them, as in inputs={"x": fl.Input("column")}.'
        if not isinstance(self.inputs, Mapping):
            self._refuse("inputs", "is not a dict of inputs by role", remedy)
        if not self.inputs and self.aggregated is None:
            raise InputError.empty("metric", "has no inputs", remedy, self.name)
        for role, column_input in self.inputs.items():
            if not isinstance(role, str):
                raise InputError.wrong_type("inputs", "the role is not text", remedy, role, form="clause")
            if not isinstance(column_input, Input):
                raise InputError.wrong_type(
                    "inputs", "is not an Input", "Use fl.Input(column).", column_input, place=f"in {shorten(role)}"
                )
        if not isinstance(self.centred, Mapping):
            self._refuse("centred", "is not a dict", 'Name an input, as in centred={"centre": "x"}.')
        for name, role in self.centred.items():
            if not isinstance(name, str) or not isinstance(role, str) or role not in self.inputs:
                raise InputError.not_found(
                    "centred",
                    f"metric {shorten(self.name)} has no such input",
                    f"It has: {', '.join(map(shorten, list(self.inputs)[:12]))}.",
                    role,
                    form="clause",
                )

    def _check_places(self) -> None:
        """Refuse places of variables that there are not."""
        from faultlines.rows.inputs import form_variables

        count = len(form_variables(self))
        remedy = f"There are {count}, numbered from 0."

        def places(values: Any) -> bool:
            return isinstance(values, tuple | list) and all(_is_place(place, count) for place in values)

        if self.size_variables is not None and not (places(self.size_variables) and self.size_variables):
            self._refuse("size_variables", "must be places of variables", remedy)
        if self.shaped is not None and not places(self.shaped):
            self._refuse("shaped", "must be places of variables", remedy)
        if self.pairs is not None and not (
            isinstance(self.pairs, tuple | list) and all(places(pair) and len(pair) == 2 for pair in self.pairs)
        ):
            self._refuse("pairs", "must be pairs of places of variables", remedy)

    @property
    def adds_up(self) -> bool:
        """Whether moments of groups make those of all their rows together."""
        centred = bool(self.centred) and not self.products
        return self.ranking is None and self.resampling is None and not centred

    def measured(self, moments: Moments) -> Measured:
        """What `estimate` makes of moments, in the shapes it must have.

        Args:
            moments: The moments, by group.

        Returns:
            An estimate for every group, or the reason why there is none.

        Raises:
            InputError: If the estimate is something else.

        Example:
            >>> import faultlines as fl, numpy as np
            >>> moments = fl.Moments(np.array([[[900.0]]]), np.array([[[0.2]]]), np.zeros((1, 1, 1, 1)))
            >>> fl.rate("bought").measured(moments).natural.tolist()
            [0.2]
        """
        estimate = self.estimate(moments)
        if not isinstance(estimate, Measured):
            raise self._misshapen(f"is {shorten(estimate)}, not an fl.Measured")
        groups = len(moments.n)
        theta = self._array("theta", estimate.theta)
        effects = theta.shape[1] if theta.ndim == 2 else 1
        if theta.shape not in {(groups,), (groups, effects)} or (self.parts and effects != len(self.parts)):
            raise self._misshapen(f"has theta of shape {theta.shape} for {groups} groups")
        covariance = (
            None
            if estimate.effect_covariance is None
            else self._array("effect_covariance", estimate.effect_covariance, (groups, effects, effects))
        )
        reason = np.array(estimate.reason, dtype=object)
        if reason.shape != (groups,) or not all(isinstance(why, str | Reason | None) for why in reason.tolist()):
            raise self._misshapen(f"has the reasons {shorten(estimate.reason)}, not one per group or None")
        for place in np.flatnonzero([isinstance(why, str) for why in reason]).tolist():
            reason[place] = Reason(ReasonCode.CUSTOM, detail=reason[place]) if reason[place] else None
        return Measured(
            theta,
            self._array("se", estimate.se, theta.shape),
            None if estimate.dof is None else self._array("dof", estimate.dof, (groups,)),
            self._array("n", estimate.n, (groups,)),
            self._array("natural", estimate.natural, theta.shape),
            reason,
            covariance,
            None if estimate.compared is None else self._array("compared", estimate.compared, theta.shape),
            None if estimate.by_arm is None else self._array("by_arm", estimate.by_arm, (groups, 2)),
            None if estimate.mass is None else self._array("mass", estimate.mass, theta.shape),
            estimate.scale if isinstance(estimate.scale, Scale) else None,
        )

    def _array(self, name: str, value: Any, shape: tuple[int, ...] | None = None) -> FloatArray:
        """A field of an estimate as an array of doubles."""
        try:
            array = np.asarray(value)
        except ValueError:
            array = np.asarray(None)
        if array.dtype.kind not in "iuf" or (shape is not None and array.shape != shape):
            expected = "" if shape is None else f" of shape {shape}"
            raise self._misshapen(f"has {name}={shorten(value)}, not numbers{expected}")
        return array.astype(np.float64, copy=False)

    def _misshapen(self, problem: str) -> InputError:
        return InputError.wrong_return(
            "metric",
            f"its estimate {problem}",
            "Return fl.Measured with one entry per group.",
            self.name,
            form="clause",
        )

    def columns(self) -> dict[str, str]:
        """Every column the metric reads, by the name of the parameter that named it.

        Returns:
            Parameter → column.

        Example:
            >>> import faultlines as fl
            >>> fl.lift("spend", variant="arm", control="A").columns()
            {'value': 'spend', 'variant': 'arm'}
        """
        named = {column_input.parameter or role: column_input.column for role, column_input in self.inputs.items()}
        named |= {"variant": self.arms.column} if self.arms else {}
        named |= {"unit": self.unit} if self.unit else {}
        return named | (self.aggregated.columns() if self.aggregated else {})


def recorded(make: Callable[P, Metric]) -> Callable[P, Metric]:
    """The same function, whose metrics remember what they were made with."""
    signature = inspect.signature(make)
    needed = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty and parameter.kind in _NAMED
    ]

    @wraps(make)
    def record(*args: P.args, **kwargs: P.kwargs) -> Metric:
        _check_order(make.__name__, signature, len(args))
        if missing := needed[len(args) :]:
            _check_given(make.__name__, [name for name in missing if name not in kwargs])
        metric = make(*args, **kwargs)
        arguments = signature.bind(*args, **kwargs).arguments
        return replace(metric, recipe=Recipe(make.__name__, tuple(arguments.items())))

    return record


def _check_order(function: str, signature: inspect.Signature, count: int) -> None:
    """Refuse arguments without a name where they need one, and say which."""
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    by_name = [name for name, kind in kinds.items() if kind is inspect.Parameter.KEYWORD_ONLY]
    in_order = len(kinds) - len(by_name)
    if count > in_order and inspect.Parameter.VAR_POSITIONAL not in kinds.values():
        problem = f"fl.{function} takes {amount(in_order, 'argument')} without a name, but {count} were given"
        remedy = f"Name the others: {', '.join(f'{name}=…' for name in by_name[: count - in_order])}."
        remedy = remedy if by_name else "Leave the others out."
        raise InputError.invalid(", ".join(by_name[: count - in_order]), problem, remedy, form="sentence")


def _check_given(function: str, missing: list[str]) -> None:
    """Say what a metric still needs, and what that is."""
    if "variant" in missing or "control" in missing:
        remedy = 'Say which column holds the variants, and which of them is the control: variant="arm", control="A".'
        problem = f"fl.{function} needs {' and '.join(missing)}"
        raise InputError.missing(", ".join(missing), problem, remedy, form="sentence")


def _is_place(value: object, below: int | None = None) -> bool:
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    return is_integer and value >= 0 and (below is None or value < below)  # type: ignore[operator]
