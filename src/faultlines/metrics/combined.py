"""Metrics of models that several sums make together: F1, balanced accuracy, the slope of calibration."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from faultlines.estimates.scales import PERCENT
from faultlines.metrics.base import Metric, recorded
from faultlines.metrics.forms import ENOUGH, MANY, Clusters, weight_of, with_weight
from faultlines.metrics.model import of_class, predicted, prediction, truth
from faultlines.metrics.moments import of_balanced, of_calibration_slope, of_f1, of_population, of_unit_balanced
from faultlines.rows.request import Input

if TYPE_CHECKING:
    from collections.abc import Hashable

    from faultlines.rows.request import Columns

__all__ = ["balanced_accuracy", "calibration_slope", "f1"]


@recorded
def f1(
    y_true: str,
    y_pred: str | None = None,
    *,
    score: str | None = None,
    threshold: float | None = None,
    positive: Hashable = None,
    classes: bool = False,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
) -> Metric:
    """F1 score: harmonic mean of precision and recall, 2 TP/(2 TP + FP + FN), by the delta method.

    Args:
        y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        y_pred: The column of predicted outcomes, coded likewise; or give `score` and `threshold`.
        score: The column of scores; a score at or above `threshold` predicts 1.
        threshold: See `score`.
        positive: The label that counts as 1, where outcomes are not 0/1 or booleans.
        classes: Whether there may be more than two labels: all but `positive` then count as 0.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column, or predictions are given twice or not at all.

    Example:
        >>> import faultlines as fl
        >>> fl.f1("outcome", score="score", threshold=0.5).name
        'F1'
    """
    inputs = _inputs(y_true, y_pred, score, threshold, positive, classes, weight)
    name, rows = "F1" + of_class(positive, classes), "positives or predicted positives"
    if unit is not None:
        sums = partial(_found_and_wanted_of_rows, threshold=threshold)
        return Clusters(unit, overlap).ratio(name, inputs, sums, size_unit=f"units with {rows}")
    return Metric(
        name,
        inputs,
        partial(_found_and_wanted, threshold=threshold),
        of_f1 if weight is None else partial(of_population, ratio=True, weighted=True),
        size_unit=rows,
        shaped=(0, 1),
        min_size=MANY if weight is None else ENOUGH,
    )


def _inputs(
    y_true: str,
    y_pred: str | None,
    score: str | None,
    threshold: float | None,
    positive: Hashable,
    classes: bool,
    weight: str | None,
) -> dict[str, Input]:
    inputs = truth(y_true, positive, classes) | prediction(y_pred, score, threshold, positive, classes)
    return with_weight(inputs, weight)


def _found_and_wanted(c: Columns, threshold: float | None) -> dict[str, Any]:
    """Numerator and denominator of F1, which rows that are neither positive nor predicted so have no part in."""
    t, p = c["t"], predicted(c, threshold)
    found, wanted = c.where(t + p > 0, 2 * t * p), c.where(t + p > 0, t + p)
    if "w" not in c:
        return {"x": found, "y": wanted}
    return {"wx": c["w"] * found, "wy": c["w"] * wanted, "w": c["w"] + 0 * found}


def _found_and_wanted_of_rows(c: Columns, threshold: float | None) -> dict[str, Any]:
    """The same of single rows, to be summed to units: 0 where a row has no part in it."""
    t, p = c["t"], predicted(c, threshold)
    return {"x": weight_of(c) * 2 * t * p, "y": weight_of(c) * (t + p)}


@recorded
def balanced_accuracy(
    y_true: str,
    y_pred: str | None = None,
    *,
    score: str | None = None,
    threshold: float | None = None,
    positive: Hashable = None,
    classes: bool = False,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
) -> Metric:
    """Balanced accuracy: mean of true positive and true negative rate, whatever the share of positives.

    Args:
        y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        y_pred: The column of predicted outcomes, coded likewise; or give `score` and `threshold`.
        score: The column of scores; a score at or above `threshold` predicts 1.
        threshold: See `score`.
        positive: The label that counts as 1, where outcomes are not 0/1 or booleans.
        classes: Whether there may be more than two labels: all but `positive` then count as 0.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column, or predictions are given twice or not at all.

    Example:
        >>> import faultlines as fl
        >>> fl.balanced_accuracy("outcome", "predicted").name
        'balanced accuracy'
    """
    each = 1 if weight is None else 3
    inputs = _inputs(y_true, y_pred, score, threshold, positive, classes, weight)
    name = "balanced accuracy" + of_class(positive, classes)
    if unit is not None:
        return Metric(
            name,
            inputs,
            _of_units,
            of_unit_balanced,
            unit=unit,
            overlap=overlap,
            sums=partial(_sides_of_rows, threshold=threshold),
            scale=PERCENT,
            size_unit="units with positives or negatives",
            pairs=tuple((i, j) for j in range(4) for i in range(j)),
            shaped=(0, 1, 2, 3),
            size_variables=(4, 5),
        )
    return Metric(
        name,
        inputs,
        partial(_of_both_sides, threshold=threshold),
        partial(of_balanced, weighted=weight is not None),
        scale=PERCENT,
        size_unit="positives or negatives",
        pairs=tuple((i + k, j + k) for k in (0, each) for i in range(each) for j in range(i + 1, each)),
        shaped=(0, 1) if weight is None else (0, 1, 3, 4),
    )


def _of_both_sides(c: Columns, threshold: float | None) -> dict[str, Any]:
    """Predictions of negatives, then of positives; with weights w p, w and w for each, as weighted ratios have them."""
    p, made = predicted(c, threshold), dict[str, Any]()
    for side in (0, 1):
        selected = c.where(c["t"] == side, p)
        if "w" in c:
            weight = c["w"] + 0 * selected
            made |= {f"wx{side}": c["w"] * selected, f"wy{side}": weight, f"w{side}": weight}
        else:
            made[f"x{side}"] = selected
    return made


def _sides_of_rows(c: Columns, threshold: float | None) -> dict[str, Any]:
    """Of single rows, positives then negatives: those predicted positive, and all; 0 for rows of the other side."""
    p, weight = predicted(c, threshold), weight_of(c)
    sides = {"1": weight * c["t"], "0": weight * (1 - c["t"])}
    return {
        f"{part}{side}": of_side * value for side, of_side in sides.items() for part, value in (("x", p), ("y", 1.0))
    }


def _of_units(c: Columns) -> dict[str, Any]:
    """These sums of units, and the units that have rows of either side."""
    sums = {role: c[role] for role in ("x1", "y1", "x0", "y0")}
    return sums | {f"with{side}": c.where(c[f"y{side}"] > 0, c[f"y{side}"]) for side in "10"}


@recorded
def calibration_slope(
    y_true: str, score: str, *, positive: Hashable = None, unit: str | None = None, overlap: str = "error"
) -> Metric:
    """Slope of outcomes on predicted probabilities: 1 where these are calibrated, below 1 where they are too extreme.

    It is Cov(score, outcome)/Var(score) within each group. If E[outcome | score] = score it is 1 in every group,
    however their scores are distributed. Its standard error is that of White, which holds whatever the variances of
    the outcomes are.

    Args:
        y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        score: The column of predicted probabilities.
        positive: The label that counts as 1.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl
        >>> fl.calibration_slope("outcome", "score").name
        'calibration slope of score'
    """
    inputs = truth(y_true, positive) | {"s": Input(score, "probability", parameter="score")}
    name = f"calibration slope of {score}"
    if unit is not None:
        centred = {"mean_s": "s", "mean_t": "t"}
        return Clusters(unit, overlap).ratio(name, inputs, _products_of_rows, centred=centred, min_size=ENOUGH)
    return Metric(
        name,
        inputs,
        _deviations,
        of_calibration_slope,
        centred={"mean_s": "s", "mean_t": "t"},
        pairs=((0, 1),),
        shaped=(0, 1),
        min_size=ENOUGH,
    )


def _deviations(c: Columns) -> dict[str, Any]:
    away, v = c["s"] - c["mean_s"], c["s"] * (1 - c["s"])
    square = away * away
    return {
        "x": away * (c["t"] - c["mean_t"]),
        "y": square,
        "second": square * v,
        "third": square * away * v * (1 - 2 * c["s"]),
        "fourth": square * square * v * (1 - 6 * v),
        "square": square * square * v * v,
    }


def _products_of_rows(c: Columns) -> dict[str, Any]:
    """The terms of covariance and variance: what they leave of a unit is its part of the score of a regression."""
    return {role: value for role, value in _deviations(c).items() if role in {"x", "y"}}
