"""Sample ratios: planned shares, heterogeneity between groups, margins, units; beside scipy's own tests."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import faultlines as fl
from faultlines.metrics.readout import ALARM
from faultlines.metrics.warnings import compare_arms

if TYPE_CHECKING:
    from pathlib import Path

    from faultlines.metrics.readout import SampleRatio

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}
THREE = {"A": 0.5, "B": 0.3, "C": 0.2}


def visits(seed: int = 0, size: int = 100_000, shares: Any = (0.5, 0.3, 0.2)) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "country": rng.choice([f"c{i}" for i in range(20)], size),
            "browser": rng.choice(["Chrome", "Edge", "Firefox", "Safari"], size),
            "arm": rng.choice(list("ABC")[: len(shares)], size, p=shares),
            "user": np.arange(size),
            "spend": rng.gamma(2, 2, size),
        }
    )


def reacting(data: pd.DataFrame) -> pd.DataFrame:
    """With two countries in which B spends more, so that there are clusters."""
    return data.assign(spend=data.spend + 3 * ((data.arm == "B") & data.country.isin(["c7", "c8"])))


def ratio(data: pd.DataFrame, by: Any, **options: Any) -> SampleRatio:
    readout = fl.measure(data, by, fl.difference("spend", **{**ARMS, **options})).readout
    assert readout is not None
    assert readout.sample_ratio is not None
    return readout.sample_ratio


@pytest.mark.parametrize("options", [{"treatment": "B"}, {"treatment": ["B", "C"]}, {"treatment": "*"}])
@pytest.mark.parametrize("shares", [None, THREE, {"C": 20, "A": 50, "B": 30}])
def test_unequal_arms_as_planned_are_no_mismatch(options: dict[str, Any], shares: Any) -> None:
    check = ratio(visits(), ["country", "browser"], shares=shares, **options)
    assert not check.is_mismatch
    assert check.planned == (shares is not None)
    assert check.arms == (("A", "B") if options["treatment"] == "B" else ("A", "B", "C"))


def test_planned_shares_are_those_of_the_arms_that_are_compared() -> None:
    check = ratio(visits(), "country", treatment="B", shares=THREE)
    assert check.shares == pytest.approx((0.625, 0.375))


def test_arms_off_the_planned_shares_are_found_in_all_units_together() -> None:
    data = visits(shares=(0.5, 0.5))
    check = ratio(data, "country", shares={"A": 0.52, "B": 0.48})
    counts = [(data.arm == arm).sum() for arm in "AB"]
    expected = stats.chisquare(counts, np.array([0.52, 0.48]) * len(data)).pvalue
    assert check.where == ()
    assert check.is_mismatch
    assert check.pvalue == pytest.approx(2 * expected, rel=1e-9)  # half of the level is for all units together
    assert not ratio(data, "country").is_mismatch  # without planned shares nothing is wrong with it


def test_a_mismatch_everywhere_is_not_that_of_the_country_where_it_is_worst() -> None:
    data = visits(3, 60_000, (0.5, 0.5))
    rng, planned = np.random.default_rng(30), {"A": 0.5, "B": 0.5}
    of_b, in_c3 = data.arm == "B", data.country == "c3"
    for loss, loss_in_c3, where in ((0.12, 0.3, ()), (0.0, 0.3, (("country", "c3"),)), (0.12, 0.12, ())):
        remaining = data[~(of_b & (rng.random(len(data)) < np.where(in_c3, loss_in_c3, loss)))]
        check = ratio(remaining, ["country", "browser"], shares=planned)
        assert check.is_mismatch
        assert check.where == where
        counted = remaining[remaining.country == "c3"] if where else remaining
        assert check.n == len(counted)
        assert check.share == pytest.approx((counted.arm == check.arm).mean())


def test_losses_that_cancel_are_those_of_a_country() -> None:
    data = visits(4, 60_000, (0.5, 0.5))
    half = data.country.str[1:].astype(int) < 10
    lost = (data.arm == np.where(half, "B", "A")) & (np.random.default_rng(31).random(len(data)) < 0.2)
    check = ratio(data[~lost], ["country", "browser"], shares={"A": 0.5, "B": 0.5})
    assert check.is_mismatch
    assert [name for name, _ in check.where] == ["country"]
    assert abs(check.share - check.expected) > 0.04


def test_a_loss_in_one_country_is_found_by_country_and_by_country_and_browser() -> None:
    data = visits(1, 60_000, (0.5, 0.5))
    remaining = data[~((data.country == "c3") & (data.arm == "B") & (data.user % 4 == 0))]
    for by in ("country", ["country", "browser"], ["browser", "country"]):
        check = ratio(remaining, by)
        assert check.is_mismatch
        assert check.where == (("country", "c3"),)
        own = remaining[remaining.country == "c3"]
        share = (own.arm == check.arm).mean()
        assert check.share == pytest.approx(share)
        assert check.expected == pytest.approx((remaining[remaining.country != "c3"].arm == check.arm).mean())
        assert check.n == len(own)


def test_a_loss_in_one_combination_is_found_there() -> None:
    data = visits(2, 80_000, (0.5, 0.5))
    lost = (data.country == "c3") & (data.browser == "Safari") & (data.arm == "B") & (data.user % 5 < 2)
    check = ratio(data[~lost], ["country", "browser"])
    assert check.where == (("country", "c3"), ("browser", "Safari"))
    assert check.is_mismatch


def test_the_p_of_two_levels_is_that_of_the_table_of_two_by_two() -> None:
    """With one attribute of two levels all tests are of one table: the smallest of χ² and the likelihood ratio."""
    table = np.array([[500.0, 600.0], [450.0, 380.0]])
    check = compare_arms(table, ["A", "B"], [("x",), ("y",)], ["g"], shares=None, unit="users")
    assert check is not None
    pearson = stats.chi2_contingency(table, correction=False).pvalue
    likelihood = stats.chi2_contingency(table, correction=True, lambda_="log-likelihood").pvalue
    assert check.pvalue == pytest.approx(2 * min(pearson, 2 * likelihood), rel=1e-9)


def test_units_are_counted_not_rows() -> None:
    """Users of B come back twice as often: rows are out of proportion, users are not."""
    data = visits(3, 20_000, (0.5, 0.5))
    again = pd.concat([data, data[data.arm == "B"]])
    assert not ratio(again, "country", unit="user", shares={"A": 1, "B": 1}).is_mismatch
    assert ratio(again, "country", shares={"A": 1, "B": 1}).is_mismatch
    assert ratio(again, "country", unit="user").counts == tuple((data.arm == arm).sum() for arm in "AB")


def test_units_in_several_groups_are_compared_cell_by_cell() -> None:
    data = visits(4, 20_000, (0.5, 0.5))
    several = pd.concat([data.sample(frac=0.8, random_state=i).assign(country=f"x{i}") for i in range(4)])
    check = ratio(several, "country", unit="user", overlap="covariance")
    assert not check.is_mismatch


def shared_visits(seed: int = 0, users: int = 3_000) -> pd.DataFrame:
    """Every user in three of six countries."""
    rng = np.random.default_rng(seed)
    countries = np.argsort(rng.random((users, 6)), axis=1)[:, :3].ravel()
    arm = rng.choice(["A", "B"], users)
    user = np.repeat(np.arange(users), 3)
    spend = rng.gamma(2, 2, user.size)
    return pd.DataFrame({"country": [f"c{i}" for i in countries], "arm": arm[user], "user": user, "spend": spend})


def test_units_in_several_groups_count_once_in_the_total() -> None:
    data = shared_visits()
    of_arm = data.drop_duplicates("user").arm.value_counts()
    options: dict[str, Any] = {"unit": "user", "overlap": "covariance", "shares": {"A": 1, "B": 1}}
    check = ratio(data, "country", **options)
    assert (check.n, check.counts) == (3_000, (of_arm["A"], of_arm["B"]))
    assert check.pvalue > 0.01
    look = fl.Monitor(looks=3).update(data, "country", fl.difference("spend", **ARMS, **options)).look
    assert look is not None
    assert look.arms == {"A": of_arm["A"], "B": of_arm["B"]}
    lost = data[~((data.arm == "B") & (data.user % 4 == 0))]
    assert ratio(lost, "country", **options).is_mismatch


@pytest.mark.parametrize("shares", [None, [0.5, 0.5]])
def test_false_alarms_with_units_in_several_groups(shares: Any) -> None:
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(200):
        arm, inside = rng.integers(0, 2, 1_000), np.argsort(rng.random((1_000, 6)), axis=1) < 3
        counts = np.stack([inside[arm == i].sum(axis=0) for i in range(2)], axis=1).astype(float)
        distinct = np.bincount(arm, minlength=2).astype(float)
        keys = [(str(i),) for i in range(6)]
        check = compare_arms(counts, "AB", keys, ["g"], shares=shares, unit="users", distinct=distinct)
        assert check is not None
        alarms += check.pvalue < 0.05
    assert alarms <= 19  # 0.05 and three Monte Carlo errors; counting units once per group it was a third


def test_small_levels_are_taken_together_and_tiny_data_are_not_tested() -> None:
    keys = [(str(i),) for i in range(200)]
    counts = np.tile([3.0, 1.0], (200, 1))
    check = compare_arms(counts, ["A", "B"], keys, ["g"], shares=[0.5, 0.5], unit="users")
    assert check is not None
    assert check.is_mismatch
    assert compare_arms(counts[:1], ["A", "B"], keys[:1], ["g"], shares=None, unit="users") is None


def test_a_mismatch_stands_first_in_every_output(tmp_path: Path) -> None:
    data = visits(1, 60_000, (0.5, 0.5))
    remaining = reacting(data[~((data.country == "c3") & (data.arm == "B") & (data.user % 3 == 0))])
    result = fl.cluster(remaining, "country", fl.difference("spend", unit="user", **ARMS))
    assert result.notes[0].code == "sample ratio"
    assert result.notes[0].severity == "warning"
    assert result.notes[0].fields["where"] == {"country": "c3"}
    assert {"share", "expected", "pvalue", "arm"} <= set(result.notes[0].fields)
    text = str(result)
    assert text.startswith("Warning: Sample ratio mismatch in country c3:")
    assert text.count("Sample ratio mismatch") == 1
    plain = json.loads(result.to_json())
    assert plain["sample_ratio"]["where"] == {"country": "c3"}
    assert plain["sample_ratio"]["pvalue"] < ALARM
    result.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count('class="warning"') == 1
    certificate = fl.certify(remaining, "country", fl.difference("spend", unit="user", **ARMS), gap=1.0)
    assert "sample ratio" in [note.code for note in certificate.notes]
    again = fl.confirm(result, remaining)
    assert "sample ratio" in [note.code for note in again.notes]


def test_planned_shares_come_back_with_a_saved_result(tmp_path: Path) -> None:
    data = reacting(visits(5, 10_000, (0.5, 0.5)))
    metric = fl.difference("spend", shares={"A": 0.4, "B": 0.6}, **ARMS)
    result = fl.cluster(data, "country", metric)
    (tmp_path / "c.json").write_text(result.to_json(), encoding="utf-8")
    again = fl.confirm(tmp_path / "c.json", data)
    assert "sample ratio" in [note.code for note in again.notes]


@pytest.mark.parametrize(
    ("shares", "code"),
    [
        ([0.5, 0.5], "wrong type"),
        ({"A": 1}, "too few"),
        ({"A": 0.5, "B": -1}, "invalid"),
        ({"A": 0.5, "B": "half"}, "invalid"),
        ({"A": 0.5, "D": 0.5}, "missing"),
    ],
)
def test_shares_that_cannot_be_used_are_refused(shares: Any, code: str) -> None:
    with pytest.raises(fl.InputError) as refused:
        fl.cluster(visits(size=400, shares=(0.5, 0.5)), "browser", fl.difference("spend", shares=shares, **ARMS))
    assert refused.value.parameter == "shares"
    assert refused.value.code == code


def test_margins_of_three_attributes_are_tested_once_each() -> None:
    keys = list(product("ab", "cd", "ef"))
    counts = np.full((8, 2), 500.0)
    counts[[0, 1, 2, 3], 1] = 400.0  # all of level "a"
    check = compare_arms(counts, ["A", "B"], keys, ["x", "y", "z"], shares=None, unit="rows")
    assert check is not None
    assert [attribute for attribute, _ in check.where] == ["x"]
