"""F1, balanced accuracy, calibration slope, areas and odds with weights, several classes: against references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn import metrics as sk

import faultlines as fl
from tests.metrics.test_metrics import rows
from tests.refused import refused
from tests.single import own_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd

    Value = Callable[[pd.DataFrame], float]

ROWS = rows()
CLASSES = ROWS.assign(
    colour=np.random.default_rng(1).choice(["red", "green", "blue"], len(ROWS)),
    guess=lambda d: np.where(ROWS.pred == ROWS.truth, d.colour, "red"),
)


def f1(d: pd.DataFrame, w: Any = 1.0) -> float:
    return float(2 * np.sum(w * d.truth * d.pred) / np.sum(w * (d.truth + d.pred)))


def balanced(d: pd.DataFrame, w: Any = 1.0) -> float:
    w = w + 0 * d.truth
    return float(
        (
            np.average(d.pred[d.truth == 1], weights=w[d.truth == 1])
            + 1
            - np.average(d.pred[d.truth == 0], weights=w[d.truth == 0])
        )
        / 2
    )


def slope(d: pd.DataFrame) -> float:
    return float(np.cov(d.score, d.truth)[0, 1] / np.var(d.score, ddof=1))


def area(d: pd.DataFrame) -> float:
    return float(sk.roc_auc_score(d.truth, d.score, sample_weight=d.w))


CASES: list[tuple[fl.Metric, Value]] = [
    (fl.f1("truth", "pred"), f1),
    (fl.f1("truth", "pred", weight="w"), lambda d: f1(d, d.w)),
    (fl.balanced_accuracy("truth", "pred"), balanced),
    (fl.balanced_accuracy("truth", score="score", threshold=0.5, weight="w"), lambda d: balanced(at_half(d), d.w)),
    (fl.calibration_slope("truth", "score"), slope),
    (fl.auc("truth", "score", weight="w"), area),
]


def at_half(d: pd.DataFrame) -> pd.DataFrame:
    return d.assign(pred=(d.score >= 0.5).astype(int))


@pytest.mark.parametrize(("metric", "value"), CASES, ids=[f"{metric.name} {i}" for i, (metric, _) in enumerate(CASES)])
def test_values_and_standard_errors(metric: fl.Metric, value: Value) -> None:
    estimates = fl.measure(ROWS, "g", metric).estimates
    parts = [part for _, part in ROWS.groupby("g")]
    np.testing.assert_allclose(estimates.natural, [value(part) for part in parts], rtol=1e-9)
    rng, part = np.random.default_rng(0), parts[0]
    draws = [value(part.iloc[rng.integers(0, len(part), len(part))]) for _ in range(250)]
    assert own_errors(ROWS, metric).se[0] == pytest.approx(np.std(draws), rel=0.18)


def test_values_are_scikit_learns() -> None:
    for i, (_, d) in enumerate(ROWS.groupby("g")):
        options: dict[str, Any] = {"sample_weight": d.w}
        for ours, theirs in (
            (fl.f1("truth", "pred"), sk.f1_score(d.truth, d.pred)),
            (fl.f1("truth", "pred", weight="w"), sk.f1_score(d.truth, d.pred, **options)),
            (fl.balanced_accuracy("truth", "pred"), sk.balanced_accuracy_score(d.truth, d.pred)),
            (fl.balanced_accuracy("truth", "pred", weight="w"), sk.balanced_accuracy_score(d.truth, d.pred, **options)),
        ):
            assert fl.measure(ROWS, "g", ours).estimates.natural[i] == pytest.approx(theirs, rel=1e-12)
        odds = fl.measure(ROWS, "g", fl.equalized_odds("truth", "pred", weight="w")).estimates
        tpr = sk.recall_score(d.truth, d.pred, **options)
        fpr = 1 - sk.recall_score(d.truth, d.pred, pos_label=0, **options)
        np.testing.assert_allclose(odds.natural[i], [tpr, fpr], rtol=1e-12)


def test_the_slope_has_whites_standard_error() -> None:
    """That of a regression with variances of any kind (HC0), from statsmodels."""
    metric = fl.calibration_slope("truth", "score")
    own, estimates = own_errors(ROWS, metric), fl.measure(ROWS, "g", metric).estimates
    for i, (_, d) in enumerate(ROWS.groupby("g")):
        fitted = sm.OLS(d.truth.to_numpy(float), sm.add_constant(d.score.to_numpy())).fit(cov_type="HC0")
        assert estimates.theta[i] == pytest.approx(fitted.params[1], rel=1e-9)
        assert own.se[i] == pytest.approx(fitted.bse[1], rel=1e-3)  # n − 1 instead of n


def test_weights_of_one_change_nothing() -> None:
    unit_weights = ROWS.assign(w=1.0)
    for make in (fl.auc, fl.equalized_odds, fl.f1, fl.balanced_accuracy):
        column = "score" if make is fl.auc else "pred"
        metrics = make("truth", column), make("truth", column, weight="w")
        plain, weighted = (fl.measure(unit_weights, "g", metric).estimates for metric in metrics)
        np.testing.assert_allclose(weighted.theta, plain.theta, rtol=1e-5)
        # The law of shares without weights is known, and their variance taken where groups are alike; with weights not.
        np.testing.assert_allclose(weighted.se, plain.se, rtol=1e-3 if make in (fl.auc, fl.equalized_odds) else 0.03)


def test_a_row_that_weighs_two_is_two_rows_to_the_value_but_not_to_the_error() -> None:
    doubled = ROWS.loc[ROWS.index.repeat(np.where(ROWS.pred == 1, 2, 1))]
    heavy = ROWS.assign(w=np.where(ROWS.pred == 1, 2.0, 1.0))
    for make in (fl.auc, fl.f1, fl.balanced_accuracy):
        column = "score" if make is fl.auc else "pred"
        estimates = fl.measure(heavy, "g", make("truth", column, weight="w")).estimates
        twice = fl.measure(doubled, "g", make("truth", column)).estimates
        np.testing.assert_allclose(estimates.natural, twice.natural, rtol=1e-9)
        assert np.all(estimates.se > 1.02 * twice.se)


def test_balanced_accuracy_is_the_area_of_the_prediction() -> None:
    """A curve of one point: value and DeLong's variance are the same."""
    balanced_, area_ = (own_errors(ROWS, m) for m in (fl.balanced_accuracy("truth", "pred"), fl.auc("truth", "pred")))
    np.testing.assert_allclose(balanced_.se, area_.se, rtol=1e-9)


def test_several_classes() -> None:
    estimates = fl.measure(CLASSES, "g", fl.accuracy("colour", "guess", classes=True)).estimates
    expected = [sk.accuracy_score(d.colour, d.guess) for _, d in CLASSES.groupby("g")]
    np.testing.assert_allclose(estimates.natural, expected, rtol=1e-12)
    wrong = fl.measure(CLASSES, "g", fl.error_rate("colour", "guess", classes=True)).estimates
    np.testing.assert_allclose(wrong.natural, 1 - np.array(expected), rtol=1e-12)
    for name, theirs in (
        ("true_positive_rate", sk.recall_score),
        ("precision", sk.precision_score),
        ("f1", sk.f1_score),
    ):
        metric = getattr(fl, name)("colour", "guess", positive="red", classes=True)
        assert metric.name.endswith(" of red")
        estimates = fl.measure(CLASSES, "g", metric).estimates
        each = [theirs(d.colour == "red", d.guess == "red") for _, d in CLASSES.groupby("g")]
        np.testing.assert_allclose(estimates.natural, each, rtol=1e-12)


def test_labels_that_cannot_be_meant_are_refused() -> None:
    for metric, words in (
        (fl.f1("colour", "guess", positive="red"), "invalid data: y_true"),
        (fl.f1("colour", "guess", positive="pink", classes=True), "not found: positive"),
        (fl.accuracy("truth", "score", classes=True), "invalid data: y_pred"),
        (fl.accuracy("score", "truth", classes=True), "invalid data: y_true"),
        (fl.accuracy("colour", "truth", classes=True), "mismatch: y_true, y_pred"),
        (fl.rate("colour", positive="red"), "invalid data: value"),
    ):
        with refused(words):
            fl.measure(CLASSES, "g", metric)
    text = CLASSES.assign(guess=CLASSES.score.astype(str), truth=CLASSES.truth.astype(str))
    with refused("invalid data: y_pred"):
        fl.measure(text, "g", fl.accuracy("truth", "guess", classes=True))


def test_groups_without_one_side_say_so() -> None:
    data = ROWS.assign(g=np.where(ROWS.truth == 1, 0, ROWS.g))
    data.loc[data.index[:2000], "g"] = 9
    measurement = fl.measure(data, "g", fl.balanced_accuracy("truth", "pred"))
    assert {(left.code, left.reason.arm) for left in measurement.excluded} == {("no rows", "positives")}
