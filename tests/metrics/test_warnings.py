"""Warnings about the rows behind a result: each appears where it should, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl

ARMS = {"variant": "arm", "control": "A"}
NO_UNIT, FEW, WEIGHT = "Rows were taken as independent", "too few", "of all weight"
OVERALL, WORST, LOST = "sample-ratio mismatch", "Arms are out of proportion in", "covariate"


def rows(seed: int = 0, size: int = 6000, groups: int = 6, share: float = 0.5) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "g": rng.integers(0, groups, size),
            "user": np.arange(size),
            "arm": np.where(rng.random(size) < share, "B", "A"),
            "before": rng.standard_normal(size),
            "x": rng.standard_normal(size),
        }
    )


def told(data: Any, metric: fl.Metric, by: str = "g") -> tuple[str, ...]:
    readout = fl.measure(data, by, metric).readout
    assert readout is not None
    return readout.warnings


@pytest.mark.parametrize("experiments", [8, pytest.param(30, marks=pytest.mark.statistical)])
def test_nothing_is_told_of_rows_as_they_should_be(experiments: int) -> None:
    """Arms by a fair coin, normal values, units named: no false alarm."""
    for seed in range(experiments):
        assert told(rows(seed, size=1200), fl.difference("x", unit="user", **ARMS)) == ()
    assert told(rows(), fl.mean("x")) == ()
    assert told(rows(share=0.1), fl.difference("x", unit="user", covariate="before", **ARMS)) == ()
    assert told(rows(share=0.47, size=20_000), fl.difference("x", unit="user", **ARMS)) == ()  # meant to be so


def test_rows_without_a_unit_are_taken_as_independent() -> None:
    (words,) = told(rows(), fl.difference("x", **ARMS))
    assert words.startswith(NO_UNIT)
    table = rows().groupby(["g", "arm"])["x"].agg(n="count", m="mean", v="var").reset_index()
    aggregated = told(table, fl.difference(fl.aggregated("n", mean="m", variance="v"), **ARMS))
    assert not any(NO_UNIT in words for words in aggregated)


@pytest.mark.parametrize(
    ("seed", "share", "found"), [(0, 0.5, False), (1, 0.52, True), (2, 0.1, False), (3, 0.11, True)]
)
def test_arms_off_the_usual_share_are_a_mismatch(seed: int, share: float, found: bool) -> None:
    data = rows(seed, size=40_000, share=share)
    words = [one for one in told(data, fl.difference("x", unit="user", **ARMS)) if OVERALL in one]
    assert bool(words) == found
    if found:
        meant = "50.0%" if share > 0.3 else "10.0%"
        assert f"{100 * (data.arm == 'B').mean():.2f}% of units are in treatment. If {meant} was meant" in words[0]


def test_the_group_whose_arms_are_off_is_named() -> None:
    data = rows(size=12_000)
    lost = (data.g == 4) & (data.arm == "B") & (data.user % 3 == 0)
    words = [one for one in told(data[~lost], fl.difference("x", unit="user", **ARMS)) if WORST in one]
    assert len(words) == 1
    assert words[0].startswith("Arms are out of proportion in 4: 40")


def test_few_events_are_told_and_many_are_not() -> None:
    data = rows(size=4000, groups=20)
    rare = data.assign(x=(np.arange(4000) % 500 == 0).astype(float))
    assert any(FEW in words and "20 of 20 groups" in words for words in told(rare, fl.mean("x")))
    often = data.assign(x=(np.arange(4000) % 3 == 0).astype(float))
    assert not any(FEW in words for words in told(often, fl.mean("x")))
    assert not any(FEW in words for words in told(rare, fl.rate("x")))  # Anscombe's scale holds there


def test_a_group_with_nearly_all_weight_is_named() -> None:
    data = rows()
    large = data.assign(g=np.where(np.arange(6000) < 5800, 0, 1 + data.g % 3))
    assert any(words.startswith("0 holds 97% of all weight") for words in told(large, fl.mean("x")))
    two = data.assign(g=(np.arange(6000) >= 5900).astype(int))
    assert told(two, fl.mean("x")) == ()  # of two groups each is compared with the other anyway


def test_rows_lost_for_want_of_a_covariate_are_told_by_arm_and_group() -> None:
    data = rows()
    gone = (data.g == 2) & (data.arm == "B") & (data.user % 2 == 0)
    data.loc[gone, "before"] = np.nan
    words = told(data, fl.difference("x", covariate="before", unit="user", **ARMS))
    lost = [one for one in words if LOST in one]
    of_treated, of_two = gone.sum() / (data.arm == "B").sum(), gone.sum() / (data.g == 2).sum()
    assert f"0.0% of control and {100 * of_treated:.1f}% of treatment" in lost[0]
    assert f"most in 2 ({100 * of_two:.1f}%)" in lost[0]


def test_warnings_are_in_every_output(tmp_path: Any) -> None:
    data = rows()
    result = fl.cluster(data, by="g", metric=fl.difference("x", **ARMS))
    fields = json.loads(result.to_json())
    (warning,) = (note for note in fields["notes"] if note["severity"] == "warning")
    assert warning["code"] == "data"
    assert warning["text"].startswith(NO_UNIT)
    result.report(tmp_path / "page.html")
    shown = (str(result), result.to_markdown(), result._repr_html_(), (tmp_path / "page.html").read_text())
    assert all(NO_UNIT in text for text in shown)
    assert fields["columns"] == {"value": "x", "variant": "arm", "control": "A"}


def test_a_p_that_rows_cannot_support_is_floored() -> None:
    """Sums of few skewed values have tails that nobody knows at 1e-8; those of many are normal."""
    rng = np.random.default_rng(0)
    metric = fl.mean("x")
    for rows, supported in ((40, False), (40_000, True)):
        group = np.repeat(np.arange(10), rows)
        shift = np.where(group < 5, 0.0, 40 / np.sqrt(rows))
        c = fl.cluster(pd.DataFrame({"g": group, "x": rng.lognormal(0, 1, group.size) + shift}), "g", metric)
        assert c.pvalue < 1e-10
        assert (c.pvalue_floor is None) == supported
        assert ("smallest p" in [note.code for note in c.notes]) != supported
        if c.pvalue_floor is not None:
            assert 1e-10 < c.pvalue_floor.pvalue <= 1e-3
            assert c.to_dict()["pvalue_floor"]["reason"] == c.pvalue_floor.reason
    rates = fl.cluster(pd.DataFrame({"g": np.repeat([0, 1], 400), "x": np.arange(800) % 7 > 2}), "g", fl.rate("x"))
    assert rates.pvalue_floor is None
