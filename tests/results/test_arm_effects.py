"""The effect of every treatment in all groups together, with its p, beside the clusters; against textbook formulas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import faultlines as fl

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}


def rows(seed: int = 3, size: int = 3_000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    country, arm = rng.choice(["DE", "FR", "IN"], size), rng.choice(["A", "B", "C"], size, p=[0.5, 0.3, 0.2])
    before = rng.gamma(4.0, 2.0, size)
    spend = before * rng.gamma(9.0, 1 / 9, size) * np.where(arm == "B", 1.04, 1.0) + (country == "IN")
    return pd.DataFrame({"country": country, "arm": arm, "before": before, "spend": spend})


@pytest.mark.parametrize("treatment", ["B", ["B", "C"], "*"])
def test_differences_are_those_of_welch(treatment: Any) -> None:
    data = rows()
    c = fl.cluster(data, "country", fl.difference("spend", **ARMS, treatment=treatment))
    assert [arm.treatment for arm in c.arm_effects] == (["B"] if treatment == "B" else ["B", "C"])
    control = data.spend[data.arm == "A"]
    for arm in c.arm_effects:
        test = stats.ttest_ind(data.spend[data.arm == arm.treatment], control, equal_var=False)
        interval = test.confidence_interval()
        expected = (data.spend[data.arm == arm.treatment].mean() - control.mean(), interval.low, interval.high)
        effect = arm.effects[0]
        assert (effect.estimate, effect.lower, effect.upper) == pytest.approx(expected, rel=1e-9)
        assert arm.pvalues[0] == pytest.approx(test.pvalue, rel=1e-9)


def test_lifts_are_those_of_the_delta_method() -> None:
    data = rows()
    arm = fl.cluster(data, "country", fl.lift("spend", **ARMS, treatment="B")).arm_effects[0]
    parts = [data.spend[data.arm == name] for name in ("B", "A")]
    log_ratio = np.log(parts[0].mean() / parts[1].mean())
    variances = np.array([part.var() / len(part) / part.mean() ** 2 for part in parts])
    dof = variances.sum() ** 2 / sum(v**2 / (len(part) - 1) for v, part in zip(variances, parts, strict=True))
    assert arm.effects[0].estimate == pytest.approx(np.expm1(log_ratio), rel=1e-9)
    assert arm.pvalues[0] == pytest.approx(2 * stats.t.sf(abs(log_ratio) / np.sqrt(variances.sum()), dof), rel=1e-9)


def test_cuped_is_a_regression_in_each_arm() -> None:
    sm = pytest.importorskip("statsmodels.api")
    data = rows()
    arm = fl.cluster(data, "country", fl.difference("spend", **ARMS, treatment="B", covariate="before")).arm_effects[0]
    two = data[data.arm != "C"]
    treated = (two.arm == "B").to_numpy(float)
    within = two.before - two.groupby("arm").before.transform("mean")
    slope = sm.OLS(two.spend - two.groupby("arm").spend.transform("mean"), within).fit().params.iloc[0]
    adjusted = two.spend - slope * (two.before - two.before.mean())
    assert arm.effects[0].estimate == pytest.approx(
        adjusted[treated == 1].mean() - adjusted[treated == 0].mean(), rel=2e-3
    )
    assert arm.effects[0].se == pytest.approx(
        np.sqrt(sum(adjusted[two.arm == name].var() / (two.arm == name).sum() for name in "AB")), rel=2e-2
    )


def test_groups_that_share_units_are_weighted_with_their_covariance() -> None:
    rng = np.random.default_rng(0)
    users = pd.DataFrame(
        {"user": np.arange(4_000), "arm": rng.choice(["A", "B"], 4_000), "own": rng.normal(5, 2, 4000)}
    )
    visits = pd.concat([users.assign(page=page) for page in ("home", "cart")])
    visits = visits.assign(spend=visits.own + rng.normal(0, 1, len(visits)))
    c = fl.cluster(visits, "page", fl.difference("spend", **ARMS, unit="user", overlap="covariance"))
    estimates = c.groups.estimates
    assert estimates is not None
    assert estimates.covariance is not None
    assert estimates.n is not None
    weight = estimates.n / estimates.n.sum()
    z = weight @ estimates.shown[:, 0] / np.sqrt(weight @ estimates.covariance @ weight)
    assert c.arm_effects[0].pvalues[0] == pytest.approx(2 * stats.norm.sf(abs(z)), rel=1e-9)


def test_json_has_arms_and_p_and_nothing_of_them_without_arms() -> None:
    data = rows()
    several = json.loads(fl.cluster(data, "country", fl.lift("spend", **ARMS, treatment="*")).to_json())["overall"]
    assert [(arm["control"], arm["treatment"]) for arm in several["arms"]] == [("A", "B"), ("A", "C")]
    written = json.loads(fl.cluster(data, "country", fl.lift("spend", **ARMS, treatment="B")).to_json())
    assert written["overall"]["pvalue"] == written["overall"]["arms"][0]["pvalue"] == several["arms"][0]["pvalue"]
    assert {note["code"] for note in written["notes"]} >= {"overall"}
    mean = json.loads(fl.cluster(data, "country", fl.mean("spend")).to_json())["overall"]
    assert (mean["pvalue"], mean["arms"]) == (None, [])


def test_excluded_groups_are_said() -> None:
    data = pd.concat([rows(), pd.DataFrame({"country": ["IS"], "arm": ["A"], "before": [1.0], "spend": [1.0]})])
    c = fl.cluster(data, "country", fl.lift("spend", **ARMS, treatment="B"))
    result = fl.cluster(rows(), "country", fl.lift("spend", **ARMS, treatment="B"))
    assert c.arm_effects == result.arm_effects
    texts = [next(note.text for note in each.notes if note.code == "overall") for each in (c, result)]
    assert ["3 groups" in text for text in texts] == [True, False]


def test_many_experiments_and_several_metrics_have_them(warm: Warm, tmp_path: Path) -> None:
    data = rows()
    halves = data.assign(test=np.arange(len(data)) % 2)
    metric = fl.lift("spend", **ARMS, treatment="B")
    experiments = fl.cluster_many(halves, experiment="test", by="country", metric=metric)
    plain = experiments.to_dict()["experiments"]
    assert [row["overall"]["arms"][0]["treatment"] for row in plain] == ["B", "B"]
    data.to_csv(tmp_path / "rows.csv", index=False)
    words = ["experiment", "rows.csv", "--by", "country", "--metric", "lift:spend", "--metric", "difference:before"]
    words += ["--variant", "arm", "--control", "A", "--treatment", "B", "--json", "-"]
    overview = json.loads(warm(*words, cwd=tmp_path).stdout)["overview"]
    expected = [
        fl.cluster(data, "country", metric).arm_effects[0].pvalues[0]
        for metric in (fl.lift("spend", **ARMS, treatment="B"), fl.difference("before", **ARMS, treatment="B"))
    ]
    assert [row["overall"]["pvalue"] for row in overview] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("treatment", ["B", "*"])
def test_looks_have_them_with_p_below_alpha_where_the_interval_excludes_zero(treatment: str) -> None:
    data = rows(size=6_000)
    metric = fl.difference("spend", **ARMS, treatment=treatment)
    monitor = fl.Monitor(looks=4, draws=1_000)
    for share in (0.4, 0.7, 1.0):
        part = data.iloc[: round(share * len(data))]
        look = monitor.update(part, "country", metric).look
        assert look is not None
        for arm in look.arm_effects:
            expected = part.spend[part.arm == arm.treatment].mean() - part.spend[part.arm == "A"].mean()
            assert arm.effect.estimate == pytest.approx(expected, rel=1e-9)
            assert (arm.pvalue < 0.05) == (arm.effect.lower > 0 or arm.effect.upper < 0)
        monitor = fl.Monitor.from_json(monitor.to_json())
        assert {arm.treatment for arm in look.arm_effects} == ({"B"} if treatment == "B" else {"B", "C"})


def test_p_of_a_look_is_where_its_interval_ends() -> None:
    from faultlines.guarantees.boundaries import AnytimeRule

    growth, dof = np.array([3.0]), np.array([40.0])
    for dependence in ("returning", "any"):
        rule = AnytimeRule(0.05, dependence, 2, 10, 0.1)
        end = rule.reach(np.zeros(1), growth, dof)
        assert np.exp(rule.log_pvalue(end, growth, dof)) == pytest.approx(0.05, rel=1e-9)
        assert rule.log_pvalue(end * 1.01, growth, dof) < np.log(0.05) < rule.log_pvalue(end * 0.99, growth, dof)


def test_a_look_at_several_treatments_has_no_common_effect() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"g": rng.choice(["a", "b"], 900), "arm": rng.choice(list("ABC"), 900), "y": rng.random(900)})
    metric = fl.difference("y", variant="arm", control="A", treatment="*")
    look = fl.Monitor(looks=3).update(rows, "g", metric).to_dict()["looks"][0]
    assert look["overall"] is None
    assert [arm["treatment"] for arm in look["arm_effects"]] == ["B", "C"]
