"""What newcomers get wrong first, and whether the answer says what to do."""

# ruff: noqa: E501 - a table of mistakes reads better in long rows

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import faultlines as fl

if TYPE_CHECKING:
    from collections.abc import Callable

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"g": RNG.choice(list("abcd"), 800), "t": RNG.integers(0, 2, 800), "s": RNG.random(800)})
ROWS = ROWS.assign(x=RNG.exponential(1, 800), z=RNG.standard_normal(800), arm=RNG.choice(["A", "B"], 800))
TEXT = ROWS.assign(x=ROWS.x.map("{:.2f}".format))
PERCENT = ROWS.assign(x=ROWS.x.map("{:.1f}%".format))
TABLE = ROWS.groupby("g").agg(m=("x", "mean"), se=("x", "sem"))
ARMS = {"variant": "arm", "control": "A"}


def metric_frame() -> Any:
    from fairlearn.metrics import MetricFrame, selection_rate

    return MetricFrame(metrics=selection_rate, y_true=ROWS.t, y_pred=ROWS.t, sensitive_features=ROWS.g)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "probabilities as predictions": (
        lambda: fl.cluster(ROWS, "g", fl.precision("t", "s")),
        r"y_pred='s': holds 0\.\d+, which is no predicted class\. .* score=…, threshold=0\.5",
    ),
    "probabilities as predictions, joined": (
        lambda: fl.cluster(ROWS, "g", fl.joint(fl.selection_rate("s"), fl.mean("x"))),
        r"y_pred\[0\]='s'.*threshold=0\.5",
    ),
    "per cent as probabilities": (
        lambda: fl.cluster(ROWS.assign(s=100 * ROWS.s), "g", fl.brier("t", "s")),
        r"outside \[0, 1\]\. Give probabilities\. Divide per cent by 100",
    ),
    "numbers as text": (lambda: fl.cluster(TEXT, "g", fl.mean("x")), r"such as '0\.\d+': convert it.*pd\.to_numeric"),
    "numbers as text, Polars": (lambda: fl.cluster(pl.from_pandas(TEXT), "g", fl.mean("x")), r"pd\.to_numeric"),
    "per cent signs": (lambda: fl.cluster(PERCENT, "g", fl.mean("x")), r"rstrip\('%'\)\) / 100"),
    "per cent signs in a table": (
        lambda: fl.Estimates.from_frame(TABLE.reset_index().astype({"m": str}).assign(m="2%"), by="g", estimate="m", se="se"),
        r"estimate='m'.*such as '2%'.*rstrip\('%'\)\) / 100",
    ),
    "text in a table": (
        lambda: fl.Estimates.from_frame(TABLE.reset_index().astype(str), by="g", estimate="m", se="se"),
        r"estimate='m'.*pd\.to_numeric",
    ),
    "text in an array": (lambda: fl.Estimates(["1.5", "2.5"], [1, 1]), r"theta=.*such as '1\.5'.*pd\.to_numeric"),
    "per cent in an array": (lambda: fl.Estimates([1, 2], ["1 %", "2 %"]), r"se=.*such as '1 %'"),
    "commas": (lambda: fl.Estimates(["1,500", "2,500"], [1, 1]), "numbers with commas, such as '1,500'"),
    "aggregates as text": (
        lambda: fl.measure(TABLE.reset_index().assign(n="5"), "g", fl.mean(fl.aggregated("n", mean="m", variance="se"))),
        r"n='n': the column is not numeric\. It holds numbers as text, such as '5'",
    ),
    "no numbers at all": (lambda: fl.cluster(ROWS, "g", fl.mean("arm")), r"value='arm'.*Name a numeric column"),
    "groups in the index": (lambda: fl.cluster(ROWS.set_index("g"), "g", fl.mean("x")), r"in the index.*reset_index\(\)"),
    "groups of a table in the index": (
        lambda: fl.Estimates.from_frame(TABLE, by="g", estimate="m", se="se"),
        r"by='g': is in the index of the frame, not a column\. .*reset_index\(\)",
    ),
    "one of two in the index": (
        lambda: fl.cluster(ROWS.set_index(["g", "arm"]), ["arm", "g"], fl.mean("x")),
        r"by\[0\]='arm': is in the index",
    ),
    "assigning to groups in the index": (
        lambda: fl.cluster(ROWS, "g", fl.mean("x")).assign(ROWS.set_index("g")),
        r"in the index.*reset_index\(\)",
    ),
    "no variant": (lambda: fl.lift("x"), r"fl\.lift\(…\): needs variant and control\. .*variant=\"arm\", control=\"A\""),  # type: ignore[call-arg]
    "variants without names": (lambda: fl.lift("x", "arm", "A"), r"fl\.lift\(…\): takes 1 argument without a name, but 3 .*variant=…, control=…"),  # type: ignore[call-arg]
    "truth without a name": (lambda: fl.auc("t", "s", "yes"), r"fl\.auc\(…\): takes 2 arguments .*positive=…"),  # type: ignore[call-arg]
    "several metrics": (lambda: fl.cluster(ROWS, "g", [fl.mean("x"), fl.mean("z")]), r"metric=\['mean of x', 'mean of z'\]: .*fl\.holm.*fl\.joint.*fl\.audit"),  # type: ignore[arg-type]
    "a MetricFrame": (lambda: fl.cluster(metric_frame()), r"data=MetricFrame: .*fl\.from_metric_frame"),
    "no variant but a control": (lambda: fl.difference("x", control="A"), r"fl\.difference\(…\): needs variant"),  # type: ignore[call-arg]
    "no control": (lambda: fl.ratio_lift("x", "s", variant="arm"), r"fl\.ratio_lift\(…\): needs control"),  # type: ignore[call-arg]
    "false discovery rate": (lambda: fl.cluster(ROWS, "g", fl.mean("x"), guarantee="fdr"), r"fl\.cluster_many\(corr"),
    "Holm": (lambda: fl.cluster(ROWS, "g", fl.mean("x"), guarantee="holm"), r"corrected together by fl\.holm"),
    "Benjamini and Hochberg": (lambda: fl.cluster(ROWS, "g", fl.mean("x"), guarantee="BH"), r"Leave it out"),
    "a misspelt guarantee": (lambda: fl.cluster(ROWS, "g", fl.mean("x"), guarantee="stepdwn"), "mean 'stepdown'"),
    "lifts about zero": (
        lambda: fl.cluster(ROWS, "g", fl.lift("z", **ARMS)),
        r"none of 4 groups can be used: .*zero.*Measure the difference instead of the lift",
    ),
    "a name for a metric": (lambda: fl.cluster(ROWS, "g", "fpr"), r"Give it its columns: fl\.false_positive_rate\(…\)"),  # type: ignore[arg-type]
    "a function for a metric": (lambda: fl.cluster(ROWS, "g", fl.mean), r"Give it its columns: fl\.mean\(…\)"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_the_answer_says_what_to_do(name: str) -> None:
    call, words = MISTAKES[name]
    with pytest.raises(fl.InputError, match=words):
        call()


def test_words_of_the_command_line_hold_in_python() -> None:
    for word, value in (("stepdown", fl.Calibrated(stepdown=True)), ("topmerge", fl.Calibrated(scan=False))):
        by_word, by_value = (fl.cluster(ROWS, "g", fl.mean("x"), guarantee=one) for one in (word, value))
        assert by_word.guarantee == by_value.guarantee
        assert by_word.pvalue == by_value.pvalue
