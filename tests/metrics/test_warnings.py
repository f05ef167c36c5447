"""Warnings about the rows behind a result: each appears where it should, and nowhere else."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import faultlines as fl
from faultlines.estimates.reasons import RowWarning
from faultlines.render.text import supported_pvalue

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}


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


def warned(data: Any, metric: fl.Metric, by: str = "g") -> dict[str, Any]:
    """Warnings about rows: code → fields."""
    readout = fl.measure(data, by, metric).readout
    assert readout is not None
    return {warning.code: warning.fields for warning in readout.warnings if isinstance(warning, RowWarning)}


@pytest.mark.parametrize("experiments", [8, pytest.param(30, marks=pytest.mark.statistical)])
def test_nothing_is_warned_of_in_rows_as_they_should_be(experiments: int) -> None:
    """Arms by a fair coin, normal values, units named: no false alarm."""
    for seed in range(experiments):
        assert warned(rows(seed, size=1200), fl.difference("x", unit="user", **ARMS)) == {}
    assert warned(rows(), fl.mean("x")) == {}
    assert warned(rows(share=0.1), fl.difference("x", unit="user", covariate="before", **ARMS)) == {}
    assert warned(rows(share=0.47, size=20_000), fl.difference("x", unit="user", **ARMS)) == {}  # meant to be so


def test_rows_without_a_unit_are_taken_as_independent() -> None:
    assert list(warned(rows(), fl.difference("x", **ARMS))) == ["no unit"]
    table = rows().groupby(["g", "arm"])["x"].agg(n="count", m="mean", v="var").reset_index()
    aggregated = warned(table, fl.difference(fl.aggregated("n", mean="m", variance="v"), **ARMS))
    assert "no unit" not in aggregated


def test_few_events_are_warned_of_and_many_are_not() -> None:
    data = rows(size=4000, groups=20)
    rare = data.assign(x=(np.arange(4000) % 500 == 0).astype(float))
    assert warned(rare, fl.mean("x"))["few events"] == {"groups": 20, "of": 20}
    often = data.assign(x=(np.arange(4000) % 3 == 0).astype(float))
    assert "few events" not in warned(often, fl.mean("x"))
    assert "few events" not in warned(rare, fl.rate("x"))  # their own law is used there


def test_a_group_with_nearly_all_weight_is_named() -> None:
    data = rows()
    large = data.assign(g=np.where(np.arange(6000) < 5800, 0, 1 + data.g % 3))
    dominating = warned(large, fl.mean("x"))["dominating group"]
    assert (dominating["group"], round(dominating["share"], 2)) == ("0", 0.97)
    two = data.assign(g=(np.arange(6000) >= 5900).astype(int))
    assert warned(two, fl.mean("x")) == {}  # of two groups each is compared with the other anyway


def test_rows_sorted_by_their_unit_are_warned_of_though_the_first_hold_few_units() -> None:
    data = pd.DataFrame({"user_id": np.arange(24_000) // 300, "x": np.arange(24_000) % 7.0})
    data["g"] = data.user_id % 3
    assert warned(data, fl.mean("x"))["no unit"]["column"] == "user_id"
    assert "no unit" not in warned(data.assign(user_id=data.user_id // 40), fl.mean("x"))
    assert "no unit" not in warned(data.assign(user_id=np.arange(24_000)), fl.mean("x"))


def test_units_whose_rows_stand_far_apart_are_warned_of(tmp_path: Any) -> None:
    users = np.random.default_rng(5).permutation(300_000) // 3  # hardly any of them twice in the first rows
    data = pd.DataFrame({"user_id": users, "x": users % 7.0, "g": users % 3})
    data.to_parquet(tmp_path / "rows.parquet")
    for rows_ in (data, pl.from_pandas(data), str(tmp_path / "rows.parquet")):
        assert warned(rows_, fl.mean("x"))["no unit"]["column"] == "user_id"
    nearly = np.arange(300_000)
    nearly[5_000] = nearly[10]  # a row that was written twice
    assert "no unit" not in warned(data.assign(user_id=nearly), fl.mean("x"))


def test_rows_without_a_covariate_are_counted() -> None:
    data = rows()
    gone = (data.g == 2) & (data.arm == "B") & (data.user % 2 == 0)
    data.loc[gone, "before"] = np.nan
    warnings = warned(data, fl.difference("x", covariate="before", unit="user", **ARMS))
    assert warnings["missing covariate"] == {"column": "before", "rows": float(gone.sum())}


def test_warnings_are_in_every_output(tmp_path: Any) -> None:
    data = rows()
    result = fl.cluster(data, by="g", metric=fl.difference("x", **ARMS))
    fields = json.loads(result.to_json())
    (warning,) = (note for note in fields["notes"] if note["severity"] == "warning")
    assert warning["code"] == "no unit"
    result.report(tmp_path / "page.html")
    shown = (str(result), result.to_markdown(), result._repr_html_(), (tmp_path / "page.html").read_text())
    assert all(warning["text"] in text for text in shown)
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
            floor = c.pvalue_floor.pvalue
            assert [supported_pvalue(c, math.log(p)) for p in (floor / 10, 2 * floor)] == [
                f"< {floor:g}",
                f"{2 * floor:g}",
            ]
    rates = fl.cluster(pd.DataFrame({"g": np.repeat([0, 1], 400), "x": np.arange(800) % 7 > 2}), "g", fl.rate("x"))
    assert rates.pvalue_floor is None
