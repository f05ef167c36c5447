"""What is measured in a group: the columns a metric needs, and how moments become an estimate. Pure NumPy.

A metric is a frozen record. It names its input columns, says which *variables* to form of them row by row, and turns
the moments of those variables (count, mean, covariance; by group and arm) into estimates with standard errors. The
engine that holds the rows does one group-by in between and knows no statistics; this room knows no engines.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from faultlines.errors import InputError, shorten
from faultlines.estimates import ANSCOMBE, IDENTITY, LOG_RATIO, Scale, Scales

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    from faultlines.estimates import FloatArray

_PARAMETERS = {
    "x": "value",
    "y": "denom",
    "w": "weight",
    "z": "covariate",
    "t": "y_true",
    "p": "y_pred",
    "s": "score",
}  # what users call the inputs that formulas call by a letter
_SIDES = "positives or negatives"
_OF = "__"  # stands between a metric's number and its roles where several metrics are measured together
_NEAR_ZERO, _BOTH_NEAR_ZERO = 2.0, 7.0  # standard errors below which there is no lift


class Columns(Protocol):
    """The input columns by role, as expressions of whatever engine holds the rows: they add, multiply and compare."""

    def __getitem__(self, role: str) -> Any: ...

    def __contains__(self, role: object) -> bool: ...

    def where(self, condition: Any, value: Any, otherwise: Any = None) -> Any:
        """`value` in rows where the condition holds, `otherwise` (null) in the rest."""

    def log(self, value: Any) -> Any:
        """Natural logarithm."""


class Moments(NamedTuple):
    """Moments of a metric's variables: K groups × A arms (control first; one arm for a population) × V variables."""

    n: FloatArray
    mean: FloatArray
    cov: FloatArray


class Measured(NamedTuple):
    """What a metric makes of moments: one entry a group, and why a group cannot be used ("" when it can)."""

    theta: FloatArray
    se: FloatArray
    dof: FloatArray | None
    n: FloatArray
    natural: FloatArray
    reason: npt.NDArray[np.object_]
    cov: FloatArray | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """One input column and what it must hold."""

    column: str
    kind: Literal["number", "binary", "probability", "weight"] = "number"
    positive: Any = None

    def __post_init__(self) -> None:
        _column("column", self.column)


@dataclass(frozen=True, slots=True)
class Arms:
    """The column that says who had what, and which of its values are compared."""

    column: str
    control: Any
    treatment: Any = None

    def __post_init__(self) -> None:
        _column("variant", self.column)


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Columns of a table that is already aggregated: one row a group (and arm), or several that are pooled."""

    n: str
    mean: str | None
    sum: str | None
    variance: str | None
    sum_squares: str | None

    def columns(self) -> dict[str, str]:
        """Every column it names, by parameter."""
        return {
            name: column for name in ("n", "mean", "sum", "variance", "sum_squares") if (column := getattr(self, name))
        }


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
        unit: For experiments: the randomised unit; rows are summed to it first.
        centred: Name → role of an input whose mean by group and arm is wanted as a further input of that name; it keeps
            weighted variances precise.
        scale: The scale of the estimates and the way back to what people read.
        ranking: For the area under the curve: by score instead of by moments; number of score bins, 0 for none.
        aggregated: For tables that hold moments already.
        second: Whether variances and covariances are needed.
        counted: What `min_size` counts, for the reason given.
        parts: Names of the things measured, where there are several.
        pairs: Pairs of variables whose covariance is needed; None for all.
        sized: The variables whose counts `min_size` is held against; None for all.
    """

    name: str
    inputs: Mapping[str, Input]
    variables: Callable[[Columns], dict[str, Any]]
    estimate: Callable[[Moments], Measured]
    arms: Arms | None = None
    unit: str | None = None
    centred: Mapping[str, str] = field(default_factory=dict)
    scale: Scale = field(default=IDENTITY)
    ranking: int | None = None
    aggregated: Aggregated | None = None
    second: bool = True
    counted: str = "rows"
    parts: tuple[str, ...] = ()
    pairs: tuple[tuple[int, int], ...] | None = None
    sized: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.unit is not None:
            _column("unit", self.unit)
        if not self.inputs and self.aggregated is None:
            raise InputError(
                f"metric {self.name!r}", "has no inputs", 'Name them, as in inputs={"x": fl.Input("column")}.'
            )
        for role, wanted in self.inputs.items():
            if not isinstance(wanted, Input):
                raise InputError(f"inputs[{role!r}]={shorten(wanted)}", "is not an Input", "Use fl.Input(column).")

    def averaged(self, role: str) -> bool:
        """Whether an input describes the unit (covariate, weight) and is averaged over its rows, not summed."""
        return role.rpartition(_OF)[2] in {"z", "w"}

    def columns(self) -> dict[str, str]:
        """Every column the metric reads, by the name of the parameter that named it."""
        named = {}
        for role, wanted in self.inputs.items():
            number, _, letter = role.rpartition(_OF)
            parameter = _PARAMETERS.get(letter, letter)
            named[f"{parameter}[{number}]" if number else parameter] = wanted.column
        named |= {"variant": self.arms.column} if self.arms else {}
        named |= {"unit": self.unit} if self.unit else {}
        return named | (self.aggregated.columns() if self.aggregated else {})


# ------------------------------------------------------------------------------------------- from moments to estimates


def _reasons(groups: int) -> npt.NDArray[np.object_]:
    return np.full(groups, "", dtype=object)


def _mark(reason: npt.NDArray[np.object_], bad: npt.NDArray[np.bool_], text: str) -> None:
    """Note a reason for groups that have none yet."""
    reason[bad & (reason == "")] = text


class _Linear(NamedTuple):
    """A statistic of each arm as a mean of independent terms: its value, the terms' variance, their number."""

    value: FloatArray
    variance: FloatArray
    n: FloatArray
    freedom: FloatArray  # degrees of freedom of the variance


def _linear(m: Moments, *, ratio: bool, weighted: bool, covariate: bool) -> _Linear:
    """Mean, ratio or weighted mean of every arm, with CUPED when there is a covariate.

    A ratio r = X̄/Ȳ is linear up to second order: its terms are (x − r y)/Ȳ (delta method). A weighted mean is the ratio
    of w(x − c) and w, plus c, where c is the group's plain mean; a weighted ratio is the ratio of w x and w y. Unequal
    weights leave Kish's effective number of rows, (Σw)²/Σw², to estimate the variance from.
    """
    n = m.n[..., 0]
    x, cov = m.mean[..., 0], m.cov
    effective = n
    if ratio or weighted:
        y = np.where(m.mean[..., 1] == 0, np.nan, m.mean[..., 1])
        r = x / y
        value = r + (m.mean[..., 2] if weighted and not ratio else 0.0)
        positive = (cov[..., 0, 0] + r**2 * cov[..., 1, 1]) / y**2
        variance = positive - 2 * r * cov[..., 0, 1] / y**2
        if weighted:
            place = 2 if ratio else 1
            effective = _kish(n, m.mean[..., place], cov[..., place, place])
            variance = variance * (n - 1) / n * effective / (effective - 1)
            positive = positive + 1e-12 * value**2
    else:
        value, variance = x, cov[..., 0, 0]
        positive = variance + 1e-12 * value**2
    lost = 1
    if covariate:
        lost = 2
        last = cov.shape[-1] - 1
        with_z = cov[..., 0, last] if not (ratio or weighted) else (cov[..., 0, last] - r * cov[..., 1, last]) / y
        of_z, inner = cov[..., last, last], np.maximum(n - 1, 0)
        sum_z = np.sum(inner * of_z, axis=1, keepdims=True)
        slope = np.sum(inner * with_z, axis=1, keepdims=True) / np.where(sum_z > 0, sum_z, np.nan)
        slope = np.nan_to_num(slope)  # a covariate without variance explains nothing
        z, total = m.mean[..., last], np.sum(n, axis=1, keepdims=True)
        value = value - slope * (z - np.sum(n * z, axis=1, keepdims=True) / total)
        positive = positive + slope**2 * of_z
        variance = (variance - 2 * slope * with_z + slope**2 * of_z) * (total - 2) / (total - 3)
        # The slope is estimated too; what that adds to the difference of the arms is shared between them.
        pooled = np.sum(inner * variance, axis=1, keepdims=True) / (total - 2)
        apart = (z.max(axis=1, keepdims=True) - z.min(axis=1, keepdims=True)) ** 2
        variance = variance + n / 2 * np.nan_to_num(pooled * apart / sum_z)
    # What is left of terms that cancel is rounding, not variance.
    rounding = np.isfinite(variance) & (variance <= 1e-12 * positive)
    return _Linear(value, np.where(rounding, 0.0, variance), n, effective - lost)


def _kish(n: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """The effective number of rows behind weights of this mean and variance: (Σw)²/Σw²."""
    return np.asarray(n * mean**2 / (mean**2 + np.nan_to_num(variance) * (n - 1) / n))


def _check_arms(arm: _Linear, reason: npt.NDArray[np.object_]) -> None:
    names = ("control", "treatment") if arm.n.shape[1] == 2 else ("",)
    for i, name in enumerate(names):
        where = f" in {name}" if name else ""
        _mark(reason, arm.n[:, i] == 0, f"no rows{where}")
        _mark(reason, ~(arm.freedom[:, i] >= 1), f"too few rows{where} for a variance")
        _mark(reason, ~np.isfinite(arm.value[:, i]), f"empty denominator{where}")
        _mark(reason, ~np.isfinite(arm.variance[:, i]), f"numbers too large{where}")


def _finish(arm: _Linear, theta: FloatArray, parts: FloatArray, reason: npt.NDArray[np.object_]) -> Measured:
    """Estimate with the variances its arms contribute: standard error and Welch–Satterthwaite degrees of freedom."""
    variance = parts.sum(axis=1)
    _mark(reason, ~(variance > 0), "zero variance")
    with np.errstate(all="ignore"):
        dof = np.maximum(variance**2 / np.sum(parts**2 / arm.freedom, axis=1), 1.0)
    return Measured(theta, np.sqrt(variance), dof, arm.n.sum(axis=1), theta, reason)


def _population(m: Moments, *, ratio: bool = False, weighted: bool = False) -> Measured:
    with np.errstate(all="ignore"):
        arm = _linear(m, ratio=ratio, weighted=weighted, covariate=False)
        reason = _reasons(len(m.n))
        _check_arms(arm, reason)
        return _finish(arm, arm.value[:, 0], arm.variance / arm.n, reason)


def _difference(m: Moments, *, ratio: bool, weighted: bool, covariate: bool) -> Measured:
    with np.errstate(all="ignore"):
        arm = _linear(m, ratio=ratio, weighted=weighted, covariate=covariate)
        reason = _reasons(len(m.n))
        _check_arms(arm, reason)
        return _finish(arm, arm.value[:, 1] - arm.value[:, 0], arm.variance / arm.n, reason)


def _lift(m: Moments, *, ratio: bool, weighted: bool, covariate: bool) -> Measured:
    """T/C − 1, compared as log(T/C), whose variance by the delta method is s_T²/T² + s_C²/C².

    What is too near zero must not depend on which arm it is: to ask it of the control alone would leave out groups with
    a high lift only. So both arms together must be well above zero, and each a little.
    """
    with np.errstate(all="ignore"):
        arm = _linear(m, ratio=ratio, weighted=weighted, covariate=covariate)
        reason = _reasons(len(m.n))
        _check_arms(arm, reason)
        control, treated = arm.value[:, 0], arm.value[:, 1]
        of_mean = arm.variance / arm.n
        for name, mean, variance in (("control", control, of_mean[:, 0]), ("treatment", treated, of_mean[:, 1])):
            near = np.abs(mean) <= _NEAR_ZERO * np.sqrt(variance)
            _mark(reason, near, f"{name} mean within {_NEAR_ZERO:g} standard errors of zero")
            _mark(reason, mean < 0, f"{name} mean below zero")
        together = control + treated <= _BOTH_NEAR_ZERO * np.sqrt(of_mean.sum(axis=1))
        _mark(reason, together, f"both means together within {_BOTH_NEAR_ZERO:g} standard errors of zero")
        made = _finish(arm, np.log(treated / control), of_mean / arm.value**2, reason)
        return made._replace(natural=treated / control - 1)


def _rate(m: Moments, *, weighted: bool = False, variable: int = 0) -> Measured:
    """A share on Anscombe's scale, asin √((y + 3/8)/(n + 3/4)), whose variance 1/(4n + 2) does not depend on it.

    The usual p(1 − p)/n is smallest just where p happens to come out small, so rare events make groups look different
    that are not. With weights, n is the number of plain rows that would be as precise: p(1 − p) over the variance of
    the weighted share, and at most Kish's (Σw)²/Σw².
    """
    with np.errstate(all="ignore"):
        n, mean = m.n[:, 0, variable], m.mean[:, 0, variable]
        rows = n
        if weighted:
            weight, cov = m.mean[:, 0, 1], m.cov[:, 0]
            mean = mean / weight
            variance = (cov[:, 0, 0] - 2 * mean * cov[:, 0, 1] + mean**2 * cov[:, 1, 1]) / (rows * weight**2)
            n = np.fmin(_kish(n, weight, cov[:, 1, 1]), np.where(variance > 0, mean * (1 - mean) / variance, np.inf))
        reason = _reasons(len(n))
        _mark(reason, (rows == 0) | ~np.isfinite(mean), "empty denominator")
        theta, se = ANSCOMBE.forward(mean * n, n), 1 / np.sqrt(4 * n + 2)
    return Measured(theta, se, None, rows, mean, reason)


def _equalized_odds(m: Moments) -> Measured:
    parts = [_rate(m, variable=i) for i in (0, 1)]
    reason = _reasons(len(m.n))
    for name, part in zip(("positives", "negatives"), parts, strict=True):
        _mark(reason, part.n == 0, f"no {name}")
    return Measured(
        np.stack([part.theta for part in parts], axis=1),
        np.stack([part.se for part in parts], axis=1),
        None,
        parts[0].n + parts[1].n,
        np.stack([part.natural for part in parts], axis=1),
        reason,
    )


def _area(m: Moments) -> Measured:
    """Area under the curve with DeLong's variance: n = positives and negatives; mean, cov of their placements."""
    with np.errstate(all="ignore"):
        positives, negatives = m.n[:, 0, 0], m.n[:, 0, 1]
        reason = _reasons(len(positives))
        _mark(reason, positives < 2, "fewer than two positives")
        _mark(reason, negatives < 2, "fewer than two negatives")
        parts = np.stack([m.cov[:, 0, 0, 0] / positives, m.cov[:, 0, 1, 1] / negatives], axis=1)
        variance = parts.sum(axis=1)
        theta = m.mean[:, 0, 0]
        _mark(reason, ~(variance > 1e-24), "zero variance")
        dof = variance**2 / (parts[:, 0] ** 2 / (positives - 1) + parts[:, 1] ** 2 / (negatives - 1))
        return Measured(theta, np.sqrt(variance), np.maximum(dof, 1.0), positives + negatives, theta, reason)


# --------------------------------------------------------------------------------------------------------- experiments


def aggregated(
    n: str,
    *,
    mean: str | None = None,
    sum: str | None = None,  # noqa: A002
    variance: str | None = None,
    sum_squares: str | None = None,
) -> Aggregated:
    """Name the columns of a table that holds counts and moments instead of rows, to be given as a metric's `value`.

    Args:
        n: The column of counts.
        mean: The column of means; or `sum`, of sums.
        sum: See `mean`.
        variance: The column of sample variances (n − 1); or `sum_squares`, of sums of squares.
        sum_squares: See `variance`. Loses precision where the mean is large beside the spread; prefer `variance`.
    """
    if (mean is None) == (sum is None):
        raise InputError(f"mean={mean!r}, sum={sum!r}", "one of the two is needed", "Name the column of means or sums.")
    if (variance is None) == (sum_squares is None):
        raise InputError(
            f"variance={variance!r}, sum_squares={sum_squares!r}",
            "one of the two is needed",
            "Name the column of variances or of sums of squares.",
        )
    for name, column in (("n", n), ("mean", mean), ("sum", sum), ("variance", variance), ("sum_squares", sum_squares)):
        if column is not None or name == "n":
            _column(name, column)
    return Aggregated(n, mean, sum, variance, sum_squares)


def difference(
    value: str | Aggregated,
    *,
    variant: str,
    control: Any,
    treatment: Any = None,
    unit: str | None = None,
    covariate: str | None = None,
    weight: str | None = None,
) -> Metric:
    """Treatment effect: mean of the treated less mean of the control (the paper, section 5.1.1).

    Args:
        value: The column that is measured, or `fl.aggregated(...)`.
        variant: The column that says which variant a row had.
        control: Its value for the control.
        treatment: Its value for the treatment; may be left out when there are just two.
        unit: The randomised unit, when there are several rows of each; rows are summed to it first.
        covariate: A column measured before the experiment, for CUPED.
        weight: A column of weights.
    """
    return _experiment("difference", _difference, value, None, variant, control, treatment, unit, covariate, weight)


def lift(
    value: str | Aggregated,
    *,
    variant: str,
    control: Any,
    treatment: Any = None,
    unit: str | None = None,
    covariate: str | None = None,
    weight: str | None = None,
) -> Metric:
    """Relative lift: mean of the treated over mean of the control, less one, by the delta method (section 5.1.2).

    Groups are compared and pooled by the logarithm of the ratio. A group is left out where the sum of both means is
    within seven standard errors of zero, or one of them within two: the delta method fails there. Arguments as for
    `difference`.
    """
    made = _experiment("lift", _lift, value, None, variant, control, treatment, unit, covariate, weight)
    return replace(made, scale=LOG_RATIO)


def ratio_difference(
    numer: str,
    denom: str,
    *,
    variant: str,
    control: Any,
    treatment: Any = None,
    unit: str | None = None,
    covariate: str | None = None,
    weight: str | None = None,
) -> Metric:
    """Difference of a ratio of sums, such as clicks per page view, by the delta method. See `difference`."""
    return _experiment(
        "ratio difference", _difference, numer, denom, variant, control, treatment, unit, covariate, weight
    )


def ratio_lift(
    numer: str,
    denom: str,
    *,
    variant: str,
    control: Any,
    treatment: Any = None,
    unit: str | None = None,
    covariate: str | None = None,
    weight: str | None = None,
) -> Metric:
    """Relative lift of a ratio of sums, by the delta method. See `difference`."""
    made = _experiment("ratio lift", _lift, numer, denom, variant, control, treatment, unit, covariate, weight)
    return replace(made, scale=LOG_RATIO)


def _experiment(
    name: str,
    estimate: Callable[..., Measured],
    numer: str | Aggregated,
    denom: str | None,
    variant: str,
    control: Any,
    treatment: Any,
    unit: str | None,
    covariate: str | None,
    weight: str | None,
) -> Metric:
    if control is None:
        raise InputError("control=None", "the control variant is needed", "Name the value of the control.")
    if treatment is not None and treatment == control:
        raise InputError(f"treatment={treatment!r}", "is the control as well", "Name two different variants.")
    arms = Arms(variant, control, treatment)
    formula = partial(estimate, ratio=denom is not None, weighted=weight is not None, covariate=covariate is not None)
    if isinstance(numer, Aggregated):
        if unit or covariate or weight or denom:
            raise InputError(
                "denom, unit, covariate, weight", "need rows, not aggregates", "Leave them out, or give the rows."
            )
        return Metric(f"{name} of {numer.mean or numer.sum}", {}, lambda c: {}, formula, arms=arms, aggregated=numer)
    shown = numer if denom is None else f"{numer}/{denom}"
    return Metric(
        f"{name} of {shown}",
        _inputs({"x": numer, "y": denom, "w": weight, "z": covariate}),
        _value_variables,
        formula,
        arms=arms,
        unit=unit,
        counted="units" if unit else "rows",
        centred={"centre": "x"} if weight is not None and denom is None else {},
    )


def _inputs(columns: Mapping[str, Any]) -> dict[str, Input]:
    """Inputs by role; a column that was not given has none."""
    kinds: dict[str, Any] = {"w": "weight"}
    return {role: Input(column, kinds.get(role, "number")) for role, column in columns.items() if column is not None}


def _column(role: str, column: object) -> str:
    if not isinstance(column, str) or not column:
        raise InputError(f"{role}={shorten(column)}", "is not the name of a column", "Give a column by its name.")
    return column


def _value_variables(c: Columns) -> dict[str, Any]:
    """Variables of a mean or ratio: x; x and y; with weights w x and w y, or w (x − c), w and c; then the covariate."""
    if "w" in c and "y" in c:
        variables = {"wx": c["w"] * c["x"], "wy": c["w"] * c["y"], "w": c["w"]}
    elif "w" in c:
        variables = {"wx": c["w"] * (c["x"] - c["centre"]), "w": c["w"], "centre": c["centre"]}
    else:
        variables = {role: c[role] for role in ("x", "y") if role in c}
    return variables | ({"z": c["z"]} if "z" in c else {})


# ------------------------------------------------------------------------------------------------------ one population


def mean(value: str | Aggregated, *, weight: str | None = None) -> Metric:
    """Mean of a column in each group."""
    if isinstance(value, Aggregated):
        if weight is not None:
            raise InputError(f"weight={weight!r}", "needs rows, not aggregates", "Leave it out, or give the rows.")
        return Metric(f"mean of {value.mean or value.sum}", {}, lambda c: {}, _population, aggregated=value)
    return _mean_of(f"mean of {value}", {"x": Input(_column("value", value))}, lambda c: c["x"], weight)


def rate(value: str, *, positive: Any = None, weight: str | None = None) -> Metric:
    """Share of rows in which a yes/no column is yes (0/1, booleans, or two labels of which `positive` counts)."""
    binary = Input(_column("value", value), "binary", positive)
    return _rate_of(f"rate of {value}", {"x": binary}, lambda c: c["x"], weight)


def ratio(numer: str, denom: str, *, weight: str | None = None) -> Metric:
    """Ratio of two sums in each group, by the delta method."""
    return Metric(
        f"ratio of {numer}/{denom}",
        _inputs({"x": numer, "y": denom, "w": weight}),
        _value_variables,
        partial(_population, ratio=True, weighted=weight is not None),
    )


def _mean_of(name: str, inputs: dict[str, Input], form: Callable[[Columns], Any], weight: str | None) -> Metric:
    """The mean of something formed row by row, weighted or not."""
    if weight is None:
        return Metric(name, inputs, lambda c: {"x": form(c)}, _population)
    inputs = inputs | {"w": Input(_column("weight", weight), "weight")}
    if set(inputs) == {"x", "w"}:
        return Metric(name, inputs, _value_variables, lambda m: _population(m, weighted=True), centred={"centre": "x"})
    return Metric(
        name,
        inputs,
        lambda c: {"wx": c["w"] * form(c), "wy": c["w"], "w": c["w"]},
        lambda m: _population(m, ratio=True, weighted=True),
    )


def _rate_of(
    name: str,
    inputs: dict[str, Input],
    form: Callable[[Columns], Any],
    weight: str | None,
) -> Metric:
    """The share of rows for which something is 1 among those for which it is not null."""
    if weight is None:
        return Metric(name, inputs, lambda c: {"x": form(c)}, _rate, scale=ANSCOMBE, second=False)
    inputs = inputs | {"w": Input(_column("weight", weight), "weight")}

    def variables(c: Columns) -> dict[str, Any]:
        share = form(c)
        return {"wx": c["w"] * share, "w": c["w"] + 0 * share}  # null where the share is

    return Metric(name, inputs, variables, lambda m: _rate(m, weighted=True), scale=ANSCOMBE)


# --------------------------------------------------------------------------------------------------------------- models


def _prediction(y_pred: str | None, score: str | None, threshold: float | None, positive: Any) -> dict[str, Input]:
    """The input that says what the model predicted: labels, or a score with a threshold."""
    if (y_pred is None) == (score is None):
        raise InputError(
            f"y_pred={y_pred!r}, score={score!r}", "one of the two is needed", "Name the predictions, or the scores."
        )
    if y_pred is not None:
        if threshold is not None:
            raise InputError(f"threshold={threshold!r}", "goes with score, not with y_pred", "Leave one of them out.")
        return {"p": Input(_column("y_pred", y_pred), "binary", positive)}
    if isinstance(threshold, bool) or not isinstance(threshold, int | float | np.number) or not np.isfinite(threshold):
        raise InputError(f"threshold={shorten(threshold)}", "must be a number", "Use for example threshold=0.5.")
    return {"s": Input(_column("score", score))}


class ModelRate(Protocol):
    """How the rates of a classifier are called: truth with predictions, or with a score and its threshold."""

    def __call__(
        self,
        y_true: str,
        y_pred: str | None = None,
        *,
        score: str | None = None,
        threshold: float | None = None,
        positive: Any = None,
        weight: str | None = None,
    ) -> Metric:
        """The metric for these columns."""


def _model_rate(name: str, doc: str, form: Callable[[Columns, Any, Any], Any], counted: str = "rows") -> ModelRate:
    """A rate of a classifier: `form` takes truth and prediction (0 or 1) and gives 1, 0 or null for every row.

    `counted` says which rows are not null.
    """

    def metric(
        y_true: str,
        y_pred: str | None = None,
        *,
        score: str | None = None,
        threshold: float | None = None,
        positive: Any = None,
        weight: str | None = None,
    ) -> Metric:
        truth = {"t": Input(_column("y_true", y_true), "binary", positive)}
        inputs = truth | _prediction(y_pred, score, threshold, positive)
        made = _rate_of(name.replace("_", " "), inputs, lambda c: form(c, c["t"], _predicted(c, threshold)), weight)
        return replace(made, counted=counted)

    metric.__name__ = metric.__qualname__ = name
    metric.__doc__ = f"{doc}\n\n    {_MODEL_ARGUMENTS}"
    return metric


_MODEL_ARGUMENTS = """Args:
        y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        y_pred: The column of predicted outcomes, coded likewise; or give `score` and `threshold`.
        score: The column of scores; a score at or above `threshold` predicts 1.
        threshold: See `score`.
        positive: The label that counts as 1, where outcomes are not 0/1 or booleans.
        weight: A column of weights."""


def _predicted(c: Columns, threshold: float | None) -> Any:
    return c["p"] if "p" in c else c.where(c["s"] >= threshold, 1.0, 0.0)


def selection_rate(
    y_pred: str | None = None,
    *,
    score: str | None = None,
    threshold: float | None = None,
    positive: Any = None,
    weight: str | None = None,
) -> Metric:
    """Share of rows the model selects: demographic parity asks for it to be equal.

    Args:
        y_pred: The column of predicted outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        score: The column of scores; a score at or above `threshold` selects.
        threshold: See `score`.
        positive: The label that counts as selected.
        weight: A column of weights.
    """
    inputs = _prediction(y_pred, score, threshold, positive)
    return _rate_of("selection rate", inputs, lambda c: _predicted(c, threshold), weight)


true_positive_rate = _model_rate(
    "true_positive_rate",
    "Share of the truly positive that are predicted positive (recall; equality of opportunity).",
    lambda c, t, p: c.where(t == 1, p),
    "positives",
)
false_negative_rate = _model_rate(
    "false_negative_rate",
    "Share of the truly positive that are predicted negative.",
    lambda c, t, p: c.where(t == 1, 1 - p),
    "positives",
)
false_positive_rate = _model_rate(
    "false_positive_rate",
    "Share of the truly negative that are predicted positive.",
    lambda c, t, p: c.where(t == 0, p),
    "negatives",
)
true_negative_rate = _model_rate(
    "true_negative_rate",
    "Share of the truly negative that are predicted negative (specificity).",
    lambda c, t, p: c.where(t == 0, 1 - p),
    "negatives",
)
precision = _model_rate(
    "precision",
    "Share of the predicted positive that are truly positive.",
    lambda c, t, p: c.where(p == 1, t),
    "predicted positives",
)
negative_predictive_value = _model_rate(
    "negative_predictive_value",
    "Share of the predicted negative that are truly negative.",
    lambda c, t, p: c.where(p == 0, 1 - t),
    "predicted negatives",
)
accuracy = _model_rate("accuracy", "Share of rows predicted right.", lambda c, t, p: c.where(t == p, 1.0, 0.0))
error_rate = _model_rate("error_rate", "Share of rows predicted wrong.", lambda c, t, p: c.where(t == p, 0.0, 1.0))


def equalized_odds(
    y_true: str,
    y_pred: str | None = None,
    *,
    score: str | None = None,
    threshold: float | None = None,
    positive: Any = None,
) -> Metric:
    """True and false positive rate together (the paper's section 5.2): groups are similar when both are equal.

    Positives and negatives are different rows, so the two are independent. Arguments as for `true_positive_rate`.
    """
    truth = {"t": Input(_column("y_true", y_true), "binary", positive)}

    def variables(c: Columns) -> dict[str, Any]:
        predicted = _predicted(c, threshold)
        return {"tpr": c.where(c["t"] == 1, predicted), "fpr": c.where(c["t"] == 0, predicted)}

    inputs = truth | _prediction(y_pred, score, threshold, positive)
    names = ("true positive rate", "false positive rate")
    return Metric(
        "equalized odds",
        inputs,
        variables,
        _equalized_odds,
        scale=ANSCOMBE,
        second=False,
        counted=_SIDES,
        parts=names,
    )


def auc(y_true: str, score: str, *, positive: Any = None, bins: int = 0) -> Metric:
    """Area under the curve within each group (Mann–Whitney), with DeLong's variance.

    Args:
        y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        score: The column of scores; any numbers.
        positive: The label that counts as 1.
        bins: Round scores in [0, 1] down to multiples of 1/bins first: less memory for very many distinct scores, at
            the price of ties. 0 (default) takes scores as they are.
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 0 or bins == 1:
        raise InputError(f"bins={shorten(bins)}", "must be 0 or a whole number from 2 on", "Use for example bins=1000.")
    inputs = {
        "t": Input(_column("y_true", y_true), "binary", positive),
        "s": Input(_column("score", score), "probability" if bins else "number"),
    }
    name = f"auc of {score}" + (f" (scores in {bins} bins)" if bins else "")
    return Metric(name, inputs, lambda c: {"t": c["t"], "s": c["s"]}, _area, ranking=bins, counted=_SIDES)


def log_loss(y_true: str, score: str, *, positive: Any = None, weight: str | None = None) -> Metric:
    """Mean logarithmic loss of predicted probabilities; those of 0 and 1 are kept a double's precision away from it."""
    least = float(np.finfo(float).eps)

    def loss(c: Columns) -> Any:
        chance = c.where(c["t"] == 1, c["s"], 1 - c["s"])
        return -c.log(c.where(chance < least, least, chance))

    return _mean_of(f"log loss of {score}", _scored(y_true, score, positive), loss, weight)


def brier(y_true: str, score: str, *, positive: Any = None, weight: str | None = None) -> Metric:
    """Mean squared distance of predicted probability and outcome."""
    form = lambda c: (c["s"] - c["t"]) * (c["s"] - c["t"])  # noqa: E731
    return _mean_of(f"Brier score of {score}", _scored(y_true, score, positive), form, weight)


def calibration_gap(y_true: str, score: str, *, positive: Any = None, weight: str | None = None) -> Metric:
    """Mean predicted probability less share of positives: above zero where the model promises too much."""
    return _mean_of(f"calibration gap of {score}", _scored(y_true, score, positive), lambda c: c["s"] - c["t"], weight)


def _scored(y_true: str, score: str, positive: Any) -> dict[str, Input]:
    return {
        "t": Input(_column("y_true", y_true), "binary", positive),
        "s": Input(_column("score", score), "probability"),
    }


def mean_error(y_true: str, y_pred: str, *, weight: str | None = None) -> Metric:
    """Mean of prediction less truth (bias of a regression)."""
    return _mean_of("mean error", _regression(y_true, y_pred), lambda c: c["p"] - c["t"], weight)


def mean_absolute_error(y_true: str, y_pred: str, *, weight: str | None = None) -> Metric:
    """Mean absolute distance of prediction and truth."""
    form = lambda c: c.where(c["p"] >= c["t"], c["p"] - c["t"], c["t"] - c["p"])  # noqa: E731
    return _mean_of("mean absolute error", _regression(y_true, y_pred), form, weight)


def mean_squared_error(y_true: str, y_pred: str, *, weight: str | None = None) -> Metric:
    """Mean squared distance of prediction and truth."""
    form = lambda c: (c["p"] - c["t"]) * (c["p"] - c["t"])  # noqa: E731
    return _mean_of("mean squared error", _regression(y_true, y_pred), form, weight)


def _regression(y_true: str, y_pred: str) -> dict[str, Input]:
    return {"t": Input(_column("y_true", y_true)), "p": Input(_column("y_pred", y_pred))}


# ------------------------------------------------------------------------------------------------------ several at once


def joint(*metrics: Metric) -> Metric:
    """Several metrics together: groups are similar when they are equal in all of them.

    The metrics are measured on the same rows, so their estimates are correlated; the covariance comes from the same
    group-by, by the delta method. All must have the same variants and unit. Not for `auc`, which is no mean of rows,
    and not for aggregated tables, which do not say how their columns go together.
    """
    if len(metrics) < 2 or not all(isinstance(metric, Metric) for metric in metrics):
        raise InputError(
            f"joint({shorten(metrics)})", "needs two metrics or more", "Use fl.joint(fl.rate(…), fl.mean(…))."
        )
    for metric in metrics:
        if metric.ranking is not None or metric.aggregated is not None or metric.parts:
            kind = "is measured by ranks" if metric.ranking is not None else "comes from aggregates"
            kind = "is several metrics already" if metric.parts else kind
            raise InputError(f"metric {metric.name!r}", f"cannot be joined: it {kind}", "Cluster it on its own.")
        if (metric.arms, metric.unit) != (metrics[0].arms, metrics[0].unit):
            raise InputError(
                f"metrics {metrics[0].name!r} and {metric.name!r}",
                "differ in their variants or units",
                "Give all the same variant, control, treatment and unit.",
            )
    if any((a.name, a.inputs) == (b.name, b.inputs) for i, a in enumerate(metrics) for b in metrics[i + 1 :]):
        raise InputError(f"joint({', '.join(m.name for m in metrics)})", "has a metric twice", "Give each once.")
    plain = [metric.name for metric in metrics]
    names = tuple(
        f"{name} ({plain[: i + 1].count(name)})" if plain.count(name) > 1 else name for i, name in enumerate(plain)
    )
    inputs = {f"{k}{_OF}{role}": wanted for k, metric in enumerate(metrics) for role, wanted in metric.inputs.items()}
    own, both = _joint_layout(metrics)

    def variables(c: Columns) -> dict[str, Any]:
        formed = [list(metric.variables(_Part(c, k)).items()) for k, metric in enumerate(metrics)]
        made = {f"{k}{_OF}{name}": value for k, part in enumerate(formed) for name, value in part}
        # Rates of positives and of negatives have values in different rows; what two variables have in common comes
        # from copies that are null wherever the other one is.
        flat = list(made.values())
        for i, j in both:
            made[f"both{i}_{j}"], made[f"and{i}_{j}"] = flat[i] + 0 * flat[j], flat[j] + 0 * flat[i]
        return made

    total = own[-1][-1] + 1
    copies = [(total + 2 * t, total + 2 * t + 1) for t in range(len(both))]
    within = [(i, j) for places in own for i in places for j in places if i < j]
    return Metric(
        " and ".join(names),
        inputs,
        variables,
        partial(_joint, metrics=metrics, own=own, both=both, copies=copies),
        arms=metrics[0].arms,
        unit=metrics[0].unit,
        centred={
            f"{k}{_OF}{centre}": f"{k}{_OF}{role}"
            for k, metric in enumerate(metrics)
            for centre, role in metric.centred.items()
        },
        scale=Scales(" and ".join(metric.scale.name for metric in metrics), tuple(metric.scale for metric in metrics)),
        counted=metrics[0].counted,
        parts=names,
        pairs=(*within, *copies),
        sized=tuple(range(total)),
    )


class _Part:
    """The columns of one of several metrics, under the names it knows."""

    def __init__(self, columns: Columns, number: int) -> None:
        self._columns, self._prefix = columns, f"{number}{_OF}"

    def __getitem__(self, role: str) -> Any:
        return self._columns[self._prefix + role]

    def __contains__(self, role: object) -> bool:
        return f"{self._prefix}{role}" in self._columns

    def where(self, condition: Any, value: Any, otherwise: Any = None) -> Any:
        return self._columns.where(condition, value, otherwise)

    def log(self, value: Any) -> Any:
        return self._columns.log(value)


class _Anything:
    """Stands for any column, to learn how many variables a metric forms without an engine."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: self

    def __getitem__(self, role: str) -> Any:
        return self

    def __contains__(self, role: object) -> bool:
        return True

    def _same(self, *_: Any) -> Any:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _same
    __pow__ = __rpow__ = __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __abs__ = __pos__ = _same
    __ge__ = __gt__ = __le__ = __lt__ = __and__ = __rand__ = __or__ = __ror__ = __invert__ = _same


class _Known(_Anything):
    """The same with the roles a metric really has."""

    def __init__(self, metric: Metric) -> None:
        self._roles = {*metric.inputs, *metric.centred}

    def __contains__(self, role: object) -> bool:
        return role in self._roles

    def __getitem__(self, role: str) -> Any:
        return _Anything()


def _joint_layout(metrics: tuple[Metric, ...]) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Places of each metric's variables among all of them, and the pairs of variables of different metrics."""
    own, start = [], 0
    for metric in metrics:
        count = len(metric.variables(_Known(metric)))
        own.append(list(range(start, start + count)))
        start += count
    both = [(i, j) for a, first in enumerate(own) for second in own[a + 1 :] for i in first for j in second]
    return own, both


def _joint(
    m: Moments,
    *,
    metrics: tuple[Metric, ...],
    own: list[list[int]],
    both: list[tuple[int, int]],
    copies: list[tuple[int, int]],
) -> Measured:
    """Each metric from its own variables; their covariance by the delta method.

    Cov(θ_a, θ_b) = Σ over arms and variables of ∂θ_a/∂m_i · Cov(m_i, m_j) · ∂θ_b/∂m_j, where m are the means. The
    derivatives are taken by moving a mean a little, so that any metric has them. The standard errors stay those of the
    metrics.
    """
    moments = [Moments(m.n[..., p], m.mean[..., p], m.cov[..., p, :][..., p]) for p in own]
    parts = [metric.estimate(moment) for metric, moment in zip(metrics, moments, strict=True)]
    reason = _reasons(len(m.n))
    for metric, part in zip(metrics, parts, strict=True):
        for why in dict.fromkeys(part.reason.tolist()):
            _mark(reason, part.reason == why, f"{why} ({metric.name})" if why else "")
    theta, se, natural = (
        np.stack([getattr(part, name) for part in parts], axis=1) for name in ("theta", "se", "natural")
    )
    with np.errstate(all="ignore"):
        slopes = [_slopes(metric, moment) for metric, moment in zip(metrics, moments, strict=True)]
        slope = np.concatenate(slopes, axis=2)  # (K, arms, variables)
        whose = np.concatenate([np.full(len(places), k) for k, places in enumerate(own)])
        of_means = _covariance_of_means(m, own, both, copies)
        indicator = (whose[:, None] == np.arange(len(metrics))).astype(float)
        scaled = np.nan_to_num(slope[..., None] * indicator)  # (K, arms, variables, metrics)
        joint_cov = np.einsum("kaim,kaij,kajl->kml", scaled, np.nan_to_num(of_means), scaled)
        spread = np.sqrt(np.diagonal(joint_cov, axis1=1, axis2=2))
        correlation = np.nan_to_num(joint_cov / (spread[:, :, None] * spread[:, None, :]))
    correlation = np.clip(correlation, -1, 1)
    for i in range(len(metrics)):
        correlation[:, i, i] = 1.0
    least = np.linalg.eigvalsh(correlation).min(axis=1)
    _mark(reason, least < 1e-6, "one metric determines another")
    known = [part.dof for part in parts if part.dof is not None]
    return Measured(
        theta,
        se,
        np.min(known, axis=0) if known else None,
        np.max([part.n for part in parts], axis=0),
        natural,
        reason,
        correlation * (se[:, :, None] * se[:, None, :]),
    )


def _slopes(metric: Metric, m: Moments) -> FloatArray:
    """Derivatives of the estimate with respect to every mean, (K, arms, variables), by moving it a little each way."""
    slopes = np.zeros(m.mean.shape)
    variance = np.diagonal(m.cov, axis1=2, axis2=3)
    # A thousandth of a standard error; for shares, which have no variances here, that of a share of one half.
    step = 1e-3 * np.sqrt(np.where(variance > 0, variance, 0.25) / np.maximum(m.n, 1))
    for place in np.ndindex(m.mean.shape[1:]):
        ends = []
        for side in (1, -1):
            moved = m.mean.copy()
            moved[(slice(None), *place)] += side * step[(slice(None), *place)]
            ends.append(metric.estimate(m._replace(mean=moved)).theta)
        slopes[(slice(None), *place)] = (ends[0] - ends[1]) / (2 * step[(slice(None), *place)])
    return slopes


def _covariance_of_means(
    m: Moments, own: list[list[int]], both: list[tuple[int, int]], copies: list[tuple[int, int]]
) -> FloatArray:
    """Covariances of the means of all variables, (K, arms, V, V), also of those that are null in different rows."""
    total = own[-1][-1] + 1
    cov = np.zeros((*m.n.shape[:2], total, total))
    for places in own:
        for i in places:
            for j in places:
                cov[..., i, j] = m.cov[..., i, j] / m.n[..., i]
    for (i, j), (a, b) in zip(both, copies, strict=True):
        common = m.n[..., a]
        apart = (m.mean[..., a] - m.mean[..., i]) * (m.mean[..., b] - m.mean[..., j])
        shared = common * (np.nan_to_num(m.cov[..., a, b]) + np.nan_to_num(apart))
        cov[..., i, j] = cov[..., j, i] = np.where(common > 0, shared / (m.n[..., i] * m.n[..., j]), 0.0)
    return cov
