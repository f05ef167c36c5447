"""Where no group can be used, the remedy helps: coarser groups do not make constant values vary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"g": RNG.choice(list("abc"), 300), "y": RNG.integers(0, 2, 300), "x": RNG.exponential(1, 300)})
ROWS = ROWS.assign(all="k", same=1.0, none=np.nan, endless=np.inf, zero=0.0, some=ROWS.x * ROWS.y)


@pytest.mark.parametrize(
    ("by", "metric", "min_size", "words"),
    [
        ("g", fl.mean("same"), None, r"zero variance \(3\)\. .*varies within groups"),
        ("all", fl.mean("same"), None, r"none of 1 group can.*varies within groups"),
        ("g", fl.mean("none"), None, r"no rows \(3\)\. No row has all values.*finite"),
        ("g", fl.mean("endless"), None, r"no rows \(3\)\. No row has all values.*finite"),
        ("g", fl.atkinson("some", 1.0), None, r"Use an epsilon below 1, or leave out rows with zero"),
        ("g", fl.mean("x"), 1_000, r"fewer than 1000 rows \(3\)\. Use a min_size of at most 1\d\d\.$"),
        ("g", fl.mean("x", weight="zero"), None, r"empty denominator \(3\)\. .*weights"),
        ("g", fl.calibration_slope("y", "same"), None, r"empty denominator \(3\)\. .*scores all the same"),
        ("g", fl.auc("y", "same"), None, r"zero variance \(3\)\. .*varies"),
    ],
)
def test_the_remedy_fits_the_reason(by: str, metric: fl.Metric, min_size: float | None, words: str) -> None:
    with pytest.raises(fl.InputError, match=words):
        fl.cluster(ROWS, by, metric, min_size=min_size)


@pytest.mark.parametrize(
    ("by", "words"),
    [("g", r"Use coarser groups, or a min_size of at most \d\.$"), ("all", r"\. Use a min_size of at most 9\.$")],
)
def test_small_groups_may_be_coarser_but_not_one_group(by: str, words: str) -> None:
    with pytest.raises(fl.InputError, match=words):
        fl.cluster(ROWS.head(9), by, fl.mean("x"))


def test_an_audit_of_one_group_asks_for_another_feature() -> None:
    given: dict[str, Any] = {"sensitive_features": ROWS["all"], "metrics": "accuracy"}
    with pytest.raises(fl.InputError, match="Give a feature with two groups or more"):
        fl.audit(ROWS.y, ROWS.y, **given)
