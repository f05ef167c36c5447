"""Caps: the same for all groups and arms, and said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}


def spend(seed: int = 0, size: int = 4000) -> pd.DataFrame:
    """Spend of which a few are very large, two rows for every user."""
    rng = np.random.default_rng(seed)
    user = np.arange(size) // 2
    rows = pd.DataFrame({"user": user, "g": np.array(list("abcd"))[user % 4]})
    rows["arm"], rows["spend"] = np.where(user // 4 % 2, "A", "B"), rng.lognormal(1, 2, size)
    rows["visits"], rows["before"] = rng.integers(1, 4, size), rng.lognormal(1, 2, size)
    return rows


@pytest.mark.parametrize("cap", [20.0, "99%"])
def test_capped_values_are_those_of_a_capped_column(cap: float | str) -> None:
    rows = spend()
    at = np.quantile(rows.spend, 0.99) if isinstance(cap, str) else cap
    rows["cut"] = np.minimum(rows.spend, at)
    pairs = [
        (fl.lift("spend", **ARMS, cap=cap), fl.lift("cut", **ARMS)),
        (fl.difference("spend", **ARMS, cap=cap, covariate="before"), fl.difference("cut", **ARMS, covariate="before")),
        (fl.ratio_lift("spend", "visits", **ARMS, cap=cap), fl.ratio_lift("cut", "visits", **ARMS)),
        (fl.mean("spend", cap=cap), fl.mean("cut")),
        (fl.mean("spend", cap=cap, unit="user"), fl.mean("cut", unit="user")),
    ]
    for capped, plain in pairs:
        capped_estimates, expected = (fl.measure(rows, "g", metric).estimates for metric in (capped, plain))
        np.testing.assert_allclose(capped_estimates.theta, expected.theta, rtol=1e-9, err_msg=capped.name)
        np.testing.assert_allclose(capped_estimates.se, expected.se, rtol=1e-7, err_msg=capped.name)


def test_units_are_capped_and_not_their_rows() -> None:
    rows = spend()
    users = rows.groupby(["user", "g", "arm"], as_index=False)["spend"].sum()
    measurement = fl.measure(rows, "g", fl.difference("spend", **ARMS, unit="user", cap="95%"))
    users["spend"] = np.minimum(users.spend, np.quantile(users.spend, 0.95))
    expected = fl.measure(users, "g", fl.difference("spend", **ARMS)).estimates
    np.testing.assert_allclose(measurement.estimates.theta, expected.theta)
    assert measurement.readout is not None
    assert measurement.readout.capped is not None
    assert measurement.readout.capped.above.sum() == 100  # of 2,000 users


def test_the_result_says_what_was_capped_and_for_whom(warm: Warm, tmp_path: Path) -> None:
    rows = spend()
    rows.to_csv(tmp_path / "rows.csv", index=False)
    options = ["--by", "g", "--metric", "lift:spend", "--variant", "arm", "--control", "A", "--cap", "99%"]
    done = warm("experiment", tmp_path / "rows.csv", *options, "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    capped = json.loads((tmp_path / "out.json").read_text())["capped"]
    at = np.quantile(rows.spend, 0.99)
    above = rows.spend > at
    assert (capped["column"], capped["at"]) == ("spend", pytest.approx(at))
    shares = above.groupby(rows.arm).mean()
    assert capped["arms"] == {"control": pytest.approx(shares["A"]), "treatment": pytest.approx(shares["B"])}
    of_groups = above.groupby(rows.g).mean()
    assert {row["group"]: row["share"] for row in capped["groups"]} == pytest.approx(of_groups.to_dict())
    assert "capped at" in done.stdout


def test_several_treatments_and_joint_metrics_are_capped_alike() -> None:
    rows = spend()
    rows["arm"] = np.array(["A", "B", "C"])[rows.user % 3]
    measurement = fl.measure(rows, "g", fl.lift("spend", **ARMS, treatment="*", cap=20))
    assert measurement.readout is not None
    assert measurement.readout.capped is not None
    assert measurement.readout.capped.above.shape == (8, 2)
    rows["cut"] = np.minimum(rows.spend, 20)
    first, two = (
        fl.measure(rows, "g", fl.joint(mean, fl.mean("visits"))).estimates
        for mean in (fl.mean("spend", cap=20), fl.mean("cut"))
    )
    np.testing.assert_allclose(first.theta, two.theta)


def test_a_cap_narrows_heavy_tails() -> None:
    rows = spend()
    plain, capped = (
        fl.measure(rows, "g", fl.difference("spend", **ARMS, cap=cap)).estimates.se.mean() for cap in (None, "99%")
    )
    assert capped < 0.7 * plain


@pytest.mark.parametrize(
    ("cap", "code"),
    [
        ("much", "invalid: cap"),
        ("101%", "out of range: cap"),
        ("0%", "out of range: cap"),
        (float("nan"), "wrong type: cap"),
    ],
)
def test_what_is_no_cap_is_refused(cap: float | str, code: str) -> None:
    with refused(code):
        fl.lift("spend", **ARMS, cap=cap)
    with refused("unsupported: unit, covariate, weight, cap"):
        fl.lift(fl.aggregated("n", mean="m", variance="v"), **ARMS, cap=3)


@pytest.mark.parametrize("cap", ["1_5", "\u0665", "\u0665%", "1_0%", "nan", "1e400", "many"])
def test_text_that_no_cell_of_csv_has_for_a_number_is_no_cap(cap: str) -> None:
    with pytest.raises(fl.InputError) as error:
        fl.mean("spend", cap=cap)
    assert (error.value.code, error.value.parameter) == ("invalid", "cap")
