"""Metrics of models: which groups a classifier or a regression serves worse."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from faultlines.checks import column as checked_column
from faultlines.checks import flag, number
from faultlines.errors import InputError
from faultlines.estimates.scales import ANSCOMBE, PERCENT
from faultlines.formats import unit_name
from faultlines.metrics.base import Metric, recorded
from faultlines.metrics.forms import (
    ENOUGH,
    FEW,
    MANY,
    Clusters,
    mean_of,
    rate_of,
    weight_of,
    weighted_share,
    with_weight,
)
from faultlines.metrics.joint import joint
from faultlines.metrics.moments import (
    of_area,
    of_balanced,
    of_both_rates,
    of_calibration,
    of_calibration_slope,
    of_f1,
    of_population,
    of_unit_area,
    of_unit_balanced,
)
from faultlines.rows.request import Columns, Input, Kind

Outcome = Callable[[Columns, Any, Any], Any]

__all__ = [
    "accuracy",
    "auc",
    "balanced_accuracy",
    "brier",
    "calibration_gap",
    "calibration_slope",
    "equalized_odds",
    "error_rate",
    "f1",
    "false_negative_rate",
    "false_positive_rate",
    "log_loss",
    "mean_absolute_error",
    "mean_error",
    "mean_squared_error",
    "negative_predictive_value",
    "precision",
    "selection_rate",
    "true_negative_rate",
    "true_positive_rate",
]

_SIDES = "positives or negatives"


# ------------------------------------------------------------------------------------------------ truth and prediction


def truth(y_true: str, positive: Hashable, classes: bool = False, compared: bool = False) -> dict[str, Input]:
    """The input that says what is true.

    Args:
        y_true: The column.
        positive: The label that counts as 1.
        classes: Whether there may be more than two labels.
        compared: Whether labels are compared as they are where none counts.
    """
    return {"t": Input(y_true, _kind(positive, classes, compared), positive, parameter="y_true")}


def _kind(positive: Hashable, classes: bool, compared: bool) -> Kind:
    if not flag("classes", classes):
        return "binary"
    if positive is None and not compared:
        remedy, positive_label = "Name it: {positive} counts as 1, all others as 0.", {"positive": "…"}
        raise InputError.missing("classes", "needs the label that counts", remedy, True, settings=positive_label)
    return "label" if positive is None else "class"


def prediction(
    y_pred: str | None,
    score: str | None,
    threshold: float | None,
    positive: Hashable,
    classes: bool = False,
    compared: bool = False,
) -> dict[str, Input]:
    """The input that says what the model predicted: labels, see `truth`, or a score with a threshold."""
    if (y_pred is None) == (score is None):
        remedy = "Name the predictions, or the scores."
        raise InputError.missing("y_pred, score", "one of the two is needed", remedy, form="clause")
    if y_pred is not None:
        if threshold is not None:
            problem = "applies to score only, not to y_pred"
            raise InputError.conflict("threshold", problem, "Leave one of them out.", threshold)
        return {"p": Input(y_pred, _kind(positive, classes, compared), positive, parameter="y_pred")}
    remedy, example = "Use for example {threshold}.", {"threshold": 0.5}
    least = number("threshold", threshold, "must be a number", remedy, settings=example)
    # A score from 0 to 100 with a threshold of 0.5 predicts 1 nearly everywhere, and no group differs.
    # Probabilities with a threshold of 50 predict 0 everywhere, and no group differs either.
    kind: Kind = "score" if 0 < least < 1 else "points" if least > 1 else "number"
    return {"s": Input(checked_column("score", score), kind, parameter="score")}


def of_class(positive: Hashable, classes: bool) -> str:
    """Which of several classes a metric is about, as the end of its name."""
    return f" of {positive}" if flag("classes", classes) and positive is not None else ""


def predicted(c: Columns, threshold: float | None) -> Any:
    """1 where the model predicted so, else 0."""
    return c["p"] if threshold is None else c.at_least("s", threshold)


# --------------------------------------------------------------------------------------------------------------- rates


class ModelRate(Protocol):
    """How the rates of a classifier are called: truth with predictions, or with a score and its threshold."""

    __name__: str

    def __call__(
        self,
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
        """The metric for these columns."""


def _model_rate(
    name: str, summary: str, outcome: Outcome, size_unit: str = "rows", *, compared: bool = False
) -> ModelRate:
    """A rate of a classifier: `outcome` takes truth and prediction (0 or 1) and gives 1, 0 or null for every row.

    `size_unit` says which rows are not null; `compared`, whether it only asks if labels are equal.
    """
    title = name.replace("_", " ")

    def metric(
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
        labels = truth(y_true, positive, classes, compared and score is None)
        inputs = labels | prediction(y_pred, score, threshold, positive, classes, compared)
        form = partial(_classified, outcome=outcome, threshold=threshold)
        return rate_of(title + of_class(positive, classes), inputs, form, weight, size_unit, Clusters(unit, overlap))

    metric.__name__ = metric.__qualname__ = name
    note = _COMPARED if compared else ""
    metric.__doc__ = _RATE_DOC.format(summary=summary, name=name, shown=title, rows=size_unit, compared=note)
    return recorded(metric)


_COMPARED = ", or are compared\n            as they are where none is named"
_RATE_DOC = """{summary}

    0.2 is 20%. Groups are compared on Anscombe's scale, where the standard error depends on the number of {rows} alone;
    results show rates, and the standard error of a rate.

    Args:
        y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        y_pred: The column of predicted outcomes, coded likewise; or give `score` and `threshold`.
        score: The column of scores; a score at or above `threshold` predicts 1.
        threshold: See `score`.
        positive: The label that counts as 1, where outcomes are not 0/1 or booleans.
        classes: Whether there may be more than two labels: all but `positive` then count as 0{compared}.
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
        >>> fl.{name}("outcome", score="score", threshold=0.5).name
        '{shown}'
    """


def _classified(c: Columns, outcome: Outcome, threshold: float | None) -> Any:
    return outcome(c, c["t"], predicted(c, threshold))


def _positive_found(c: Columns, t: Any, p: Any) -> Any:
    return c.where(t == 1, p)


def _positive_missed(c: Columns, t: Any, p: Any) -> Any:
    return c.where(t == 1, 1 - p)


def _negative_taken(c: Columns, t: Any, p: Any) -> Any:
    return c.where(t == 0, p)


def _negative_spared(c: Columns, t: Any, p: Any) -> Any:
    return c.where(t == 0, 1 - p)


def _predicted_rightly(c: Columns, t: Any, p: Any) -> Any:
    return c.where(p == 1, t)


def _rejected_rightly(c: Columns, t: Any, p: Any) -> Any:
    return c.where(p == 0, 1 - t)


def _right(c: Columns, t: Any, p: Any) -> Any:
    return c.where(t == p, 1.0, 0.0)


def _wrong(c: Columns, t: Any, p: Any) -> Any:
    return c.where(t == p, 0.0, 1.0)


true_positive_rate = _model_rate(
    "true_positive_rate",
    "Share of the truly positive that are predicted positive (recall; equality of opportunity).",
    _positive_found,
    "positives",
)
false_negative_rate = _model_rate(
    "false_negative_rate",
    "Share of the truly positive that are predicted negative.",
    _positive_missed,
    "positives",
)
false_positive_rate = _model_rate(
    "false_positive_rate",
    "Share of the truly negative that are predicted positive.",
    _negative_taken,
    "negatives",
)
true_negative_rate = _model_rate(
    "true_negative_rate",
    "Share of the truly negative that are predicted negative (specificity).",
    _negative_spared,
    "negatives",
)
precision = _model_rate(
    "precision",
    "Share of the predicted positive that are truly positive.",
    _predicted_rightly,
    "predicted positives",
)
negative_predictive_value = _model_rate(
    "negative_predictive_value",
    "Share of the predicted negative that are truly negative.",
    _rejected_rightly,
    "predicted negatives",
)
accuracy = _model_rate("accuracy", "Share of rows predicted right.", _right, compared=True)
error_rate = _model_rate("error_rate", "Share of rows predicted wrong.", _wrong, compared=True)


@recorded
def selection_rate(
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
    """Share of rows the model selects: demographic parity asks for it to be equal. 0.2 is 20%.

    Groups are compared on Anscombe's scale, where the standard error depends on the number of rows alone.

    Args:
        y_pred: The column of predicted outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        score: The column of scores; a score at or above `threshold` selects.
        threshold: See `score`.
        positive: The label that counts as selected.
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
        >>> fl.selection_rate(score="score", threshold=0.5).name
        'selection rate'
    """
    inputs = prediction(y_pred, score, threshold, positive, classes)
    name, form = "selection rate" + of_class(positive, classes), partial(predicted, threshold=threshold)
    return rate_of(name, inputs, form, weight, clusters=Clusters(unit, overlap))


@recorded
def equalized_odds(
    y_true: str,
    y_pred: str | None = None,
    *,
    score: str | None = None,
    threshold: float | None = None,
    positive: Hashable = None,
    classes: bool = False,
    weight: str | None = None,
    unit: str | None = None,
) -> Metric:
    """True and false positive rate together (the paper's section 5.2): groups are similar when both are equal.

    Positives and negatives are different rows, so the two are independent.

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

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column, or predictions are given twice or not at all.

    Example:
        >>> import faultlines as fl
        >>> fl.equalized_odds("outcome", "predicted").parts
        ('true positive rate', 'false positive rate')
    """
    name = "equalized odds" + of_class(positive, classes)
    inputs = truth(y_true, positive, classes) | prediction(y_pred, score, threshold, positive, classes)
    if unit is not None:
        return _odds_of_units(name, inputs, threshold, weight, Clusters(unit))
    inputs = with_weight(inputs, weight)
    return Metric(
        name,
        inputs,
        partial(_both_rates, threshold=threshold),
        partial(of_both_rates, weighted=weight is not None),
        scale=ANSCOMBE,
        needs_covariance=weight is not None,
        size_unit=_SIDES,
        parts=("true positive rate", "false positive rate"),
        shaped=None if weight is None else (),
        min_size=FEW if weight is None else MANY,
    )


def _odds_of_units(
    name: str, inputs: dict[str, Input], threshold: float | None, weight: str | None, clusters: Clusters
) -> Metric:
    """Both rates where rows of a unit go together: positives and negatives of a unit are not independent."""
    sides = {
        "true positive rate": (_positive_found, "positives"),
        "false positive rate": (_negative_taken, "negatives"),
    }
    rates = [
        rate_of(side, inputs, partial(_classified, outcome=outcome, threshold=threshold), weight, rows, clusters)
        for side, (outcome, rows) in sides.items()
    ]
    return replace(joint(*rates), name=name, size_unit=f"{unit_name(rates[0].unit)} with {_SIDES}")


def _both_rates(c: Columns, threshold: float | None) -> dict[str, Any]:
    selected = predicted(c, threshold)
    sides = {"tpr": c.where(c["t"] == 1, selected), "fpr": c.where(c["t"] == 0, selected)}
    if "w" not in c:
        return sides
    return {f"{part}_{name}": v for part, rate in sides.items() for name, v in weighted_share(c, rate).items()}


# -------------------------------------------------------------------------------------------------------------- scores


_EITHER_SIDE = 10  # positives and negatives an area needs: with fewer, false positives rise to twice α


@recorded
def auc(
    y_true: str,
    score: str,
    *,
    positive: Hashable = None,
    bins: int = 0,
    weight: str | None = None,
    unit: str | None = None,
) -> Metric:
    """Area under the curve within each group (Mann–Whitney), with DeLong's standard error; with units, Obuchowski's.

    0.5 is a score that knows nothing, 1 one that puts every positive above every negative of its group. In small groups
    DeLong's variance falls to zero where the area comes out near 1, and areas near 1 are skewed. The variances of the
    placements are therefore steadied as those of any other values are. It says whether a score ranks well, not whether
    probabilities are right: for that, `fl.calibration_gap`, `fl.brier` and `fl.log_loss`.

    Args:
        y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        score: The column of scores; any numbers.
        positive: The label that counts as 1.
        bins: Round scores in [0, 1] down to multiples of 1/bins first: less memory for very many distinct scores, at
            the price of ties. 0 (default) takes scores as they are.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column, or `bins` is not a number of bins.

    Example:
        >>> import faultlines as fl
        >>> fl.auc("outcome", "score", bins=1000).name
        'auc of score (scores in 1000 bins)'
    """
    problem = "must be 0 or a whole number from 2 on"
    remedy = "Use for example bins=1000."
    if number("bins", bins, problem, remedy, low=0, whole=True) == 1:
        raise InputError.out_of_range("bins", problem, remedy, bins, form="must")
    kind = "probability" if bins else "number"
    inputs = truth(y_true, positive) | {"s": Input(score, kind, parameter="score")}  # type: ignore[arg-type]
    name = f"auc of {score}" + (f" (scores in {bins} bins)" if bins else "")
    return Metric(
        name,
        with_weight(inputs, weight),
        _truth_and_score,
        partial(of_area, weighted=weight is not None) if unit is None else of_unit_area,
        unit=unit,
        ranking=int(bins),
        size_unit=_SIDES if unit is None else f"{unit_name(unit)}, {_SIDES}",
        shaped=(),
        min_size=_EITHER_SIDE,
    )


def _truth_and_score(c: Columns) -> dict[str, Any]:
    return {"t": c["t"], "s": c["s"]}


@recorded
def log_loss(
    y_true: str,
    score: str,
    *,
    positive: Hashable = None,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
) -> Metric:
    """Mean logarithmic loss of predicted probabilities; those of 0 and 1 are kept a double's precision away from it.

    0 is perfect, 0.693 a coin's. It punishes wrong certainty more than `fl.brier`, and depends on how rare positives
    are: groups with other base rates differ in it though the model is as good; `fl.calibration_gap` asks for bias
    alone.

    Args:
        y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        score: The column of predicted probabilities.
        positive: The label that counts as 1.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl
        >>> fl.log_loss("outcome", "score").name
        'log loss of score'
    """
    inputs = _scored(y_true, score, positive)
    return mean_of(f"log loss of {score}", inputs, _logarithmic, weight, Clusters(unit, overlap))


@recorded
def brier(
    y_true: str,
    score: str,
    *,
    positive: Hashable = None,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
) -> Metric:
    """Mean squared distance of predicted probability and outcome: 0 is perfect, 0.25 a coin's. See `fl.log_loss`.

    Args:
        y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        score: The column of predicted probabilities.
        positive: The label that counts as 1.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl
        >>> fl.brier("outcome", "score").name
        'Brier score of score'
    """
    inputs = _scored(y_true, score, positive)
    return mean_of(f"Brier score of {score}", inputs, _squared, weight, Clusters(unit, overlap))


@recorded
def calibration_gap(
    y_true: str,
    score: str,
    *,
    positive: Hashable = None,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
) -> Metric:
    """Mean predicted probability less share of positives: above zero where scores are too high.

    It is in points of a probability: 0.02 means that 2% more were promised than came.

    Args:
        y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1.
        score: The column of predicted probabilities.
        positive: The label that counts as 1.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl
        >>> fl.calibration_gap("outcome", "score").name
        'calibration gap of score'
    """
    inputs = _scored(y_true, score, positive)
    if weight is not None or unit is not None:
        return mean_of(f"calibration gap of {score}", inputs, _promised, weight, Clusters(unit, overlap))
    return Metric(f"calibration gap of {score}", inputs, _promised_and_expected, of_calibration, pairs=(), shaped=())


def _scored(y_true: str, score: str, positive: Hashable) -> dict[str, Input]:
    return truth(y_true, positive) | {"s": Input(score, "probability", parameter="score")}


def _logarithmic(c: Columns) -> Any:
    least = sys.float_info.epsilon
    likelihood = c.where(c["t"] == 1, c["s"], 1 - c["s"])
    return -c.log(c.where(likelihood < least, least, likelihood))


def _squared(c: Columns) -> Any:
    return (c["s"] - c["t"]) * (c["s"] - c["t"])


def _promised(c: Columns) -> Any:
    return c["s"] - c["t"]


def _promised_and_expected(c: Columns) -> dict[str, Any]:
    """Score less outcome, and what the score expects its variance and skewness to be."""
    s = c["s"] + 0 * c["t"]  # null where the outcome is
    v = s * (1 - s)
    return {"x": _promised(c), "s": s, "v": v, "skewed": v * (1 - 2 * s), "square": v * v}


# --------------------------------------------------------------------------------------------------------- regressions


@recorded
def mean_error(
    y_true: str,
    y_pred: str,
    *,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
) -> Metric:
    """Mean of prediction less truth (bias of a regression), in the units of the truth: above zero where too much.

    Args:
        y_true: The column of true values.
        y_pred: The column of predicted values.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl
        >>> fl.mean_error("price", "predicted").name
        'mean error'
    """
    return mean_of("mean error", _regression(y_true, y_pred), _error, weight, Clusters(unit, overlap))


@recorded
def mean_absolute_error(
    y_true: str,
    y_pred: str,
    *,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
) -> Metric:
    """Mean absolute distance of prediction and truth, in the units of the truth.

    Args:
        y_true: The column of true values.
        y_pred: The column of predicted values.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl
        >>> fl.mean_absolute_error("price", "predicted").name
        'mean absolute error'
    """
    return mean_of("mean absolute error", _regression(y_true, y_pred), _absolute_error, weight, Clusters(unit, overlap))


@recorded
def mean_squared_error(
    y_true: str,
    y_pred: str,
    *,
    weight: str | None = None,
    unit: str | None = None,
    overlap: str = "error",
) -> Metric:
    """Mean squared distance of prediction and truth, in the squared units of the truth; few large errors decide it.

    Args:
        y_true: The column of true values.
        y_pred: The column of predicted values.
        weight: A column of weights.
        unit: The column of units, such as people or prompts, where each has several rows: standard errors then allow
            for what rows of a unit have in common (clustered by unit), and estimates stay those of the rows.
        overlap: What to do with units in several groups: ``"error"``, or ``"covariance"`` to allow for what they share.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`.

    Raises:
        InputError: If something is not the name of a column.

    Example:
        >>> import faultlines as fl
        >>> fl.mean_squared_error("price", "predicted").name
        'mean squared error'
    """
    return mean_of("mean squared error", _regression(y_true, y_pred), _squared_error, weight, Clusters(unit, overlap))


def _regression(y_true: str, y_pred: str) -> dict[str, Input]:
    return {"t": Input(y_true, parameter="y_true"), "p": Input(y_pred, parameter="y_pred")}


def _error(c: Columns) -> Any:
    return c["p"] - c["t"]


def _absolute_error(c: Columns) -> Any:
    return c.where(c["p"] >= c["t"], c["p"] - c["t"], c["t"] - c["p"])


def _squared_error(c: Columns) -> Any:
    return (c["p"] - c["t"]) * (c["p"] - c["t"])


# ------------------------------------------------------------------------------------------- combined from several sums
# Metrics of models that several sums make together: F1, balanced accuracy, the slope of calibration.


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
        sums = partial(_f1_terms_of_rows, threshold=threshold)
        return Clusters(unit, overlap).ratio(name, inputs, sums, size_unit=f"{unit_name(unit)} with {rows}")
    return Metric(
        name,
        inputs,
        partial(_f1_terms, threshold=threshold),
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


def _f1_terms(c: Columns, threshold: float | None) -> dict[str, Any]:
    """Numerator and denominator of F1, which rows that are neither positive nor predicted so have no part in."""
    t, p = c["t"], predicted(c, threshold)
    numer, denom = c.where(t + p > 0, 2 * t * p), c.where(t + p > 0, t + p)
    if "w" not in c:
        return {"x": numer, "y": denom}
    return {"wx": c["w"] * numer, "wy": c["w"] * denom, "w": c["w"] + 0 * numer}


def _f1_terms_of_rows(c: Columns, threshold: float | None) -> dict[str, Any]:
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
            size_unit=f"{unit_name(unit)} with positives or negatives",
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
    p, variables = predicted(c, threshold), dict[str, Any]()
    for side in (0, 1):
        selected = c.where(c["t"] == side, p)
        if "w" in c:
            weight = c["w"] + 0 * selected
            variables |= {f"wx{side}": c["w"] * selected, f"wy{side}": weight, f"w{side}": weight}
        else:
            variables[f"x{side}"] = selected
    return variables


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
