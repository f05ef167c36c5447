"""Where no group can be used, the remedy helps: coarser groups do not make constant values vary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.estimates.reasons import Reason, ReasonCode, remedy_without_groups
from tests.refused import refused

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame({"g": RNG.choice(list("abc"), 300), "y": RNG.integers(0, 2, 300), "x": RNG.exponential(1, 300)})
ROWS = ROWS.assign(all="k", same=1.0, none=np.nan, endless=np.inf, zero=0.0, some=ROWS.x * ROWS.y)


@pytest.mark.parametrize(
    ("by", "metric", "min_size", "code", "groups"),
    [
        ("g", fl.mean("same"), None, "zero variance", 3),
        ("all", fl.mean("same"), None, "zero variance", 1),
        ("g", fl.mean("none"), None, "no rows", 3),
        ("g", fl.mean("endless"), None, "no rows", 3),
        ("g", fl.atkinson("some", 1.0), None, "zero values", 3),
        ("g", fl.mean("x"), 1_000, "too small", 3),
        ("g", fl.mean("x", weight="zero"), None, "empty denominator", 3),
        ("g", fl.calibration_slope("y", "same"), None, "empty denominator", 3),
        ("g", fl.auc("y", "same"), None, "zero variance", 3),
    ],
)
def test_the_error_has_the_reasons(by: str, metric: fl.Metric, min_size: float | None, code: str, groups: int) -> None:
    with refused("no groups: by") as caught:
        fl.cluster(ROWS, by, metric, min_size=min_size)
    assert {reason.code: count for reason, count in caught.value.reasons.items()} == {code: groups}


def test_the_remedy_is_chosen_by_the_most_frequent_reason() -> None:
    by_code = {code: remedy_without_groups([Reason(code, arm="control")])[0] for code in ReasonCode}
    assert by_code[ReasonCode.MEAN_NEAR_ZERO] == by_code[ReasonCode.MEAN_BELOW_ZERO]
    assert by_code[ReasonCode.NO_ROWS] == by_code[ReasonCode.TOO_FEW_OF_CLASS]  # of an arm or class
    assert remedy_without_groups([Reason(ReasonCode.NO_ROWS)])[0] != by_code[ReasonCode.NO_ROWS]
    flat, small = Reason(ReasonCode.ZERO_VARIANCE), Reason(ReasonCode.TOO_SMALL, least=10)
    assert remedy_without_groups([small, flat, flat]) == remedy_without_groups([flat])
    assert all(Reason(code, least=2, arm="control", detail="words").text for code in ReasonCode)


@pytest.mark.parametrize(("by", "coarser"), [("g", True), ("all", False)])
def test_small_groups_may_be_coarser_but_not_one_group(by: str, coarser: bool) -> None:
    rows = ROWS.head(9)
    with refused("no groups: by") as caught:
        fl.cluster(rows, by, fl.mean("x"))
    assert caught.value.settings == {"min_size": rows[by].value_counts().max()}
    assert ("coarser" in caught.value.remedy) is coarser


def test_an_audit_of_one_group_asks_for_another_feature() -> None:
    options: dict[str, Any] = {"sensitive_features": ROWS["all"], "metrics": "accuracy"}
    with refused("no groups: sensitive_features"):
        fl.audit(ROWS.y, ROWS.y, **options)
