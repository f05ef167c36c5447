"""What newcomers get wrong first, and whether the answer says what to do."""

# ruff: noqa: E501 - a table of mistakes reads better in long rows

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import faultlines as fl
from tests.refused import refused

if TYPE_CHECKING:
    from collections.abc import Callable

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"g": RNG.choice(list("abcd"), 800), "t": RNG.integers(0, 2, 800), "s": RNG.random(800)})
ROWS = ROWS.assign(x=RNG.exponential(1, 800), z=RNG.standard_normal(800), arm=RNG.choice(["A", "B"], 800))
TEXT = ROWS.assign(x=ROWS.x.map("{:.2f}".format))
PERCENT = ROWS.assign(x=ROWS.x.map("{:.1f}%".format))
TABLE = ROWS.groupby("g").agg(m=("x", "mean"), se=("x", "sem"))
ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}


def metric_frame() -> Any:
    from fairlearn.metrics import MetricFrame, selection_rate

    return MetricFrame(metrics=selection_rate, y_true=ROWS.t, y_pred=ROWS.t, sensitive_features=ROWS.g)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "probabilities as predictions": (
        lambda: fl.cluster(ROWS, "g", fl.precision("t", "s")),
        "invalid data: y_pred",
    ),
    "probabilities as predictions, joined": (
        lambda: fl.cluster(ROWS, "g", fl.joint(fl.selection_rate("s"), fl.mean("x"))),
        "invalid data: y_pred[0]",
    ),
    "per cent as probabilities": (
        lambda: fl.cluster(ROWS.assign(s=100 * ROWS.s), "g", fl.brier("t", "s")),
        "invalid data: score",
    ),
    "numbers as text": (lambda: fl.cluster(TEXT, "g", fl.mean("x")), "wrong type: value"),
    "numbers as text, Polars": (lambda: fl.cluster(pl.from_pandas(TEXT), "g", fl.mean("x")), "wrong type: value"),
    "per cent signs": (lambda: fl.cluster(PERCENT, "g", fl.mean("x")), "wrong type: value"),
    "per cent signs in a table": (
        lambda: fl.Estimates.from_frame(TABLE.reset_index().astype({"m": str}).assign(m="2%"), by="g", estimate="m", se="se"),
        "wrong type: estimate",
    ),
    "text in a table": (
        lambda: fl.Estimates.from_frame(TABLE.reset_index().astype(str), by="g", estimate="m", se="se"),
        "wrong type: estimate",
    ),
    "text in an array": (lambda: fl.Estimates(["1.5", "2.5"], [1, 1]), "wrong type: theta"),
    "per cent in an array": (lambda: fl.Estimates([1, 2], ["1 %", "2 %"]), "wrong type: se"),
    "commas": (lambda: fl.Estimates(["1,500", "2,500"], [1, 1]), "wrong type: theta"),
    "aggregates as text": (
        lambda: fl.measure(TABLE.reset_index().assign(n="5"), "g", fl.mean(fl.aggregated("n", mean="m", variance="se"))),
        "wrong type: n",
    ),
    "no numbers at all": (lambda: fl.cluster(ROWS, "g", fl.mean("arm")), "wrong type: value"),
    "groups in the index": (lambda: fl.cluster(ROWS.set_index("g"), "g", fl.mean("x")), "column not found: by"),
    "groups of a table in the index": (
        lambda: fl.Estimates.from_frame(TABLE, by="g", estimate="m", se="se"),
        "column not found: by",
    ),
    "one of two in the index": (
        lambda: fl.cluster(ROWS.set_index(["g", "arm"]), ["arm", "g"], fl.mean("x")),
        "column not found: by[0]",
    ),
    "assigning to groups in the index": (
        lambda: fl.cluster(ROWS, "g", fl.mean("x")).assign(ROWS.set_index("g")),
        "column not found: by",
    ),
    "no variant": (lambda: fl.lift("x"), "missing: variant, control"),  # type: ignore[call-arg]
    "variants without names": (lambda: fl.lift("x", "arm", "A"), "invalid: variant, control"),  # type: ignore[call-arg]
    "truth without a name": (lambda: fl.auc("t", "s", "yes"), "invalid: positive"),  # type: ignore[call-arg]
    "several metrics": (lambda: fl.cluster(ROWS, "g", [fl.mean("x"), fl.mean("z")]), "ambiguous: metric"),  # type: ignore[arg-type]
    "a MetricFrame": (lambda: fl.cluster(metric_frame()), "unsupported: data"),
    "no variant but a control": (lambda: fl.difference("x", control="A"), "missing: variant"),  # type: ignore[call-arg]
    "no control": (lambda: fl.ratio_lift("x", "s", variant="arm"), "missing: control"),  # type: ignore[call-arg]
    "false discovery rate": (lambda: fl.cluster(ROWS, "g", fl.mean("x"), guarantee="fdr"), "unknown: guarantee"),
    "Holm": (lambda: fl.cluster(ROWS, "g", fl.mean("x"), guarantee="holm"), "unknown: guarantee"),
    "Benjamini and Hochberg": (lambda: fl.cluster(ROWS, "g", fl.mean("x"), guarantee="BH"), "unknown: guarantee"),
    "a misspelt guarantee": (lambda: fl.cluster(ROWS, "g", fl.mean("x"), guarantee="bonferoni"), "unknown: guarantee"),
    "lifts about zero": (
        lambda: fl.cluster(ROWS, "g", fl.lift("z", **ARMS)),
        "no groups: by",
    ),
    "a name for a metric": (lambda: fl.cluster(ROWS, "g", "fpr"), "wrong type: metric"),  # type: ignore[arg-type]
    "a function for a metric": (lambda: fl.cluster(ROWS, "g", fl.mean), "wrong type: metric"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_the_answer_says_what_to_do(name: str) -> None:
    call, words = MISTAKES[name]
    with refused(words):
        call()


def test_words_of_the_command_line_hold_in_python() -> None:
    settings = ("topmerge", fl.Calibrated(scan=False))
    by_word, by_value = (fl.cluster(ROWS, "g", fl.mean("x"), guarantee=guarantee) for guarantee in settings)
    assert by_word.guarantee == by_value.guarantee
    assert by_word.pvalue == by_value.pvalue


TWO: Any = np.ones(2)
HALF: Any = np.array(0.5)
METRIC: Any = fl.mean("x")


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (lambda: fl.Estimates([0, 1], None, covariance=np.eye(2), covariance_dof=TWO), "wrong type: covariance_dof"),
        (lambda: fl.Estimates([0, 1], None, covariance=METRIC), "wrong type: covariance"),
        (lambda: fl.accuracy("t", "t", classes=TWO), "wrong type: classes"),
        (lambda: fl.equalized_odds("t", "t", classes=TWO), "wrong type: classes"),
        (lambda: fl.power([1.0] * 4, gap=5e-324), "out of range: gap"),
        (lambda: fl.power([1.0] * 4, gap=1e308), "out of range: gap"),
        (lambda: fl.power([1.0] * 4, along=TWO), "not found: along"),
        (lambda: fl.power([1.0] * 4, baseline=0.5, shares=HALF), "wrong type: shares"),
    ],
)  # fmt: skip
def test_arrays_and_extremes_for_single_values(call: Callable[[], Any], refusal: str) -> None:
    with refused(refusal):
        call()
