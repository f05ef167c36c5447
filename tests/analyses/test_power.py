"""What an experiment can see: against plain loops and textbook formulas."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import faultlines as fl
from faultlines import simulate
from faultlines.analyses.power import Trial
from faultlines.core.normal import compare_effects
from faultlines.estimates.scales import ANSCOMBE
from tests.refused import refused

RATES = fl.Estimates([0.3, 0.4], [0.01, 0.01], scale=ANSCOMBE)


def test_two_groups_are_the_z_test() -> None:
    for gap in (1.0, 3.0):
        plan = fl.power([1.0, 1.0], gap=gap, split=[1.0, 0.0], runs=3000)
        z = gap / math.sqrt(2)
        expected = stats.norm.sf(1.96 - z) + stats.norm.cdf(-1.96 - z)
        assert plan.detected == pytest.approx(expected, abs=4 * plan.error)
    # 80% power of a two-sided z test needs 2.80 standard errors.
    assert plan.minimum_detectable == pytest.approx(2.80 * math.sqrt(2), rel=0.05)


@pytest.mark.parametrize("guarantee", ["calibrated", "bonferroni", fl.Holdout(splits=3)])
def test_detected_and_recovered_as_in_a_plain_loop(guarantee: Any) -> None:
    se, effects = np.linspace(0.5, 1.5, 12), np.repeat([0.0, 4.0], 6)
    plan = fl.power(se, gap=4.0, split=effects / 4, guarantee=guarantee, runs=200)
    rng = np.random.default_rng(1)
    detected = recovered = 0
    for seed in range(200):
        estimates = fl.Estimates(effects + se * rng.standard_normal(12), se)
        c = fl.cluster(estimates, guarantee=guarantee, seed=seed)
        detected += c.rejected
        recovered += c.labels.tolist() == [1] * 6 + [2] * 6
    assert plan.detected == pytest.approx(detected / 200, abs=0.12)
    assert plan.recovered == pytest.approx(recovered / 200, abs=0.14)


def test_the_smallest_gap_is_the_one_asked_for() -> None:
    se = np.ones(20)
    smallest = fl.power(se, runs=1500).minimum_detectable
    assert fl.power(se, gap=smallest, runs=1500, seed=9).detected == pytest.approx(0.8, abs=0.05)
    assert fl.power(se, runs=300, target=0.5).minimum_detectable < smallest
    assert fl.power(2 * se, runs=300).minimum_detectable == pytest.approx(2 * smallest, rel=0.1)


def test_sizes_and_a_spread() -> None:
    by_size = fl.power(np.full(10, 400), spread=3.0, runs=200)
    assert by_size.minimum_detectable == pytest.approx(
        fl.power(np.full(10, 3 * 2 / 20), runs=200).minimum_detectable, rel=1e-9
    )
    one_arm = fl.power(np.full(10, 400), spread=3.0, arms=1, runs=200)
    assert one_arm.minimum_detectable == pytest.approx(by_size.minimum_detectable / 2, rel=0.03)


def test_after_an_experiment_that_found_nothing() -> None:
    estimates = simulate.null(15, seed=2).estimates
    c = fl.cluster(estimates)
    assert not c.rejected
    plan = fl.power(c, runs=200)
    assert plan.minimum_detectable == fl.power(estimates, runs=200).minimum_detectable
    assert (plan.gap, plan.verdict) == (None, "no gap given")
    assert [dict(note.fields) for note in plan.notes if note.code == "minimum detectable"] == [
        {"effect": "", "size": plan.minimum_detectable}
    ]
    assert plan.to_dict()["planned"] == [7, 8]


def test_rates_are_planned_in_points() -> None:
    trials = np.full(16, 2000.0)
    estimates = fl.Estimates(
        ANSCOMBE.forward(0.1 * trials, trials), 1 / np.sqrt(4 * trials + 2), scale=ANSCOMBE, natural=np.full(16, 0.1)
    )
    plan = fl.power(estimates, runs=300, split=0.5)
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        successes = rng.binomial(2000, np.repeat([0.1, 0.1 + plan.minimum_detectable], 8))
        theta = ANSCOMBE.forward(successes.astype(float), trials)
        hits += fl.cluster(fl.Estimates(theta, estimates.se, scale=ANSCOMBE)).rejected
    assert hits / 200 == pytest.approx(0.8, abs=0.12)


def test_counts_are_planned_as_rates_of_events() -> None:
    rng = np.random.default_rng(0)
    plan = fl.power(fl.cluster(fl.poisson(rng.poisson(500, 10), np.full(10, 100.0))), runs=200)
    hits = 0
    for _ in range(150):
        events = rng.poisson(100 * np.repeat([5.0, 5.0 + plan.minimum_detectable], 5))
        hits += fl.cluster(fl.poisson(events, np.full(10, 100.0)), guarantee=fl.Calibrated(draws=199)).rejected
    assert hits / 150 == pytest.approx(0.8, abs=0.13)


def test_a_held_out_result_is_planned_with_all_of_the_data() -> None:
    estimates = simulate.null(15, seed=2).estimates
    held = fl.cluster(estimates, guarantee="holdout")
    assert fl.power(held, runs=200).minimum_detectable == pytest.approx(
        fl.power(estimates, runs=200).minimum_detectable, rel=0.02
    )


def test_more_than_two_levels_and_named_groups() -> None:
    estimates = fl.Estimates(np.zeros(6), np.ones(6), list("abcdef"))
    named = fl.power(estimates, gap=8.0, split=["a", "c"], runs=100)
    assert named.planned == (4, 2)
    assert named.recovered is not None
    assert named.recovered > 0.8
    three = fl.power(estimates, gap=9.0, split=[0, 0, 1, 1, 2, 2], runs=100)
    assert three.planned == (2, 2, 2)
    assert three.verdict == ("enough" if (three.detected or 0) >= 0.8 else "not enough")


def test_tolerance_and_degrees_of_freedom_cost_power() -> None:
    se = np.ones(10)
    plain = fl.power(se, runs=150).minimum_detectable
    assert fl.power(se, runs=150, tolerance=1.0).minimum_detectable > plain + 0.8
    few = fl.power(fl.Estimates(np.zeros(10), se, dof=4), runs=60, guarantee=fl.Calibrated(draws=99))
    assert few.minimum_detectable > plain


@pytest.mark.parametrize(("groups", "dof"), [(2, 5), (10, 6)])
def test_estimated_errors_as_in_a_plain_loop(groups: int, dof: int) -> None:
    se, rng = np.linspace(0.7, 1.3, groups), np.random.default_rng(5)
    effects = np.repeat([0.0, 3.0], groups // 2)
    plan, quick = fl.Estimates(np.zeros(groups), se, dof=dof), fl.Calibrated(draws=100)
    power = fl.power(plan, gap=3.0, split=effects / 3, runs=150, guarantee=quick)
    detected = 0
    for seed in range(120):
        seen = se * np.sqrt(rng.chisquare(dof, groups) / dof)
        estimates = fl.Estimates(effects + se * rng.standard_normal(groups), seen, dof=dof)
        detected += fl.cluster(estimates, guarantee=quick, seed=seed).rejected
    assert power.detected == pytest.approx(detected / 120, abs=0.16)


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_several_effects_differ_one_at_a_time(correlation: float) -> None:
    cov = np.array([[1.0, correlation], [correlation, 1.0]])
    plan = fl.Estimates(np.zeros((10, 2)), None, effect_covariance=np.tile(cov, (10, 1, 1)), parts=["first", "second"])
    quick = fl.Calibrated(draws=100)
    power = fl.power(plan, gap=2.5, split=np.repeat([0.0, 1.0], 5), runs=120, guarantee=quick)
    rng, root, detected = np.random.default_rng(1), np.linalg.cholesky(cov), 0
    for seed in range(120):
        theta = rng.standard_normal((10, 2)) @ root.T
        theta[5:, 1] += 2.5
        detected += fl.cluster(
            fl.Estimates(theta, None, effect_covariance=plan.effect_covariance), guarantee=quick, seed=seed
        ).rejected
    assert power.directions[3].detected == pytest.approx(detected / 120, abs=0.17)
    assert [(row.effect, row.direction) for row in power.directions] == [
        (part, direction) for part in ("first", "second") for direction in ("lower", "higher")
    ]
    assert len(power.minimum_detectable) == 2


def test_rows_are_planned_with() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"g": rng.integers(0, 5, 2000), "y": rng.integers(0, 2, 2000), "p": rng.integers(0, 2, 2000)})
    measured = fl.measure(frame, "g", fl.rate("p")).estimates
    assert fl.power(frame, "g", fl.rate("p"), runs=100) == fl.power(measured, runs=100)
    odds = fl.power(frame, "g", fl.equalized_odds("y", "p"), runs=100)
    assert max(odds.minimum_detectable) < 0.3
    alone = fl.power(frame, "g", fl.true_positive_rate("y", "p"), runs=100).minimum_detectable
    assert odds.minimum_detectable[0] == pytest.approx(alone, rel=0.25)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gap": 0}, "out of range: gap"),
        ({"gap": "big"}, "wrong type: gap"),
        ({"split": 1.5}, "out of range: split"),
        ({"split": ["nobody"]}, "not found: split"),
        ({"split": []}, "not found: split"),
        ({"split": [0, 0, 0, 0]}, "invalid: split"),
        ({"split": {"a": 1}}, "wrong type: split"),
        ({"split": [0, 0, 0, 1e-30]}, "out of range: target"),
        ({"data": [[1], [1, 2]]}, "wrong type: data"),
        ({"alpha": 0.9}, "out of range: target"),
        ({"data": RATES, "gap": 5.0}, "out of range: gap"),
        ({"spread": -1}, "out of range: spread"),
        ({"spread": 1, "arms": 3}, "out of range: arms"),
        ({"target": 0.01}, "out of range: target"),
        ({"runs": 3}, "out of range: runs"),
        ({"alpha": 5}, "out of range: alpha"),
        ({"guarantee": "x"}, "unknown: guarantee"),
        ({"data": [1.0]}, "too few: data"),
        ({"data": [1.0, -1.0]}, "invalid data: se"),
        ({"data": "wide"}, "wrong type: data"),
        ({"data": fl.Estimates(np.ones((3, 2)), np.ones((3, 2)), n=9), "spread": 1.0}, "unsupported: spread"),
        ({"by": "g"}, "missing: data"),
        ({"min_size": 5}, "conflict: min_size"),
        ({"data": fl.Estimates([0, 1], [1, 1]), "spread": 1.0}, "conflict: spread"),
    ],
)
def test_bad_plans(arguments: dict[str, Any], words: str) -> None:
    options: dict[str, Any] = {"data": np.ones(4)} | arguments
    with refused(words):
        fl.power(options.pop("data"), **options)


def test_recovery_is_never_more_likely_than_detection_and_says_what_it_rests_on() -> None:
    for gap in (0.5, 1.5, 3.0):
        result = fl.power([1.0] * 6, gap=gap, runs=600)
        assert result.recovered is not None
        assert result.detected is not None
        assert result.recovered <= result.detected
        assert result.followed == 200


def test_a_gap_below_zero_is_about_groups_that_are_lower() -> None:
    both = fl.power([400] * 8, baseline=0.05, arms=1, gap=0.03, runs=400)
    drop = fl.power([400] * 8, baseline=0.05, arms=1, gap=-0.03, runs=400)
    assert [row.direction for row in both.directions] == ["lower", "higher"]
    assert [row.direction for row in drop.directions] == ["lower"]
    assert drop.detected == both.directions[0].detected
    straight = fl.power([1.0] * 8, gap=2.0, runs=400), fl.power([1.0] * 8, gap=-2.0, runs=400)
    assert straight[0].detected == pytest.approx(straight[1].detected, abs=0.08)


def test_baseline_and_unequal_arms_are_the_standard_errors_they_should_be() -> None:
    sizes, rate = np.array([1000.0, 2000.0, 4000.0]), 0.1
    planned = fl.power(sizes, baseline=rate, shares={"A": 9, "B": 1}, runs=300)
    by_hand = np.sqrt(rate * (1 - rate) * (1 / (0.9 * sizes) + 1 / (0.1 * sizes)))
    assert planned.minimum_detectable == fl.power(by_hand, runs=300).minimum_detectable
    even = fl.power(sizes, spread=2.0, runs=300)
    assert even.minimum_detectable == fl.power(2 * 2.0 / np.sqrt(sizes), runs=300).minimum_detectable
    # With a gap, the treated of the groups that differ (two of three) have the variance of another rate.
    for direction, sign in (("lower", -1), ("higher", 1)):
        treated = (rate * (1 - rate) + 2 * (rate + sign * 0.05) * (1 - rate - sign * 0.05)) / 3
        errors = np.sqrt(rate * (1 - rate) / (0.9 * sizes) + treated / (0.1 * sizes))
        expected = fl.power(errors, gap=sign * 0.05, runs=300)
        power = fl.power(sizes, baseline=rate, shares={"A": 9, "B": 1}, gap=0.05, runs=300)
        row = next(row for row in power.directions if row.direction == direction)
        assert row.minimum_detectable == pytest.approx(expected.minimum_detectable, rel=1e-9)


def test_a_gap_beyond_the_rates_there_are() -> None:
    with refused("out of range: gap"):
        fl.power([1000] * 4, baseline=0.05, gap=-0.06, runs=50)
    assert [row.direction for row in fl.power([1000] * 4, baseline=0.05, gap=0.06, runs=50).directions] == ["higher"]


@pytest.mark.parametrize(("gap", "arms"), [(0.01, 2), (-0.02, 1), (0.02, 1)])
def test_the_units_needed_are_those_with_which_the_target_is_reached(gap: float, arms: int) -> None:
    plan = fl.power([1000] * 10, baseline=0.1, gap=gap, arms=arms, runs=600, per_day=500)
    assert plan.needed is not None
    assert plan.days == plan.needed / 500
    again = fl.power([plan.needed / 10] * 10, baseline=0.1, gap=gap, arms=arms, runs=600)
    assert again.detected == pytest.approx(0.8, abs=0.04)


def crossed(**options: Any) -> fl.Estimates:
    keys = [(f"c{i}", kind) for i in range(12) for kind in ("new", "returning")]
    return fl.Estimates(np.zeros(24), np.ones(24), keys, attributes=["country", "type"], **options)


def test_a_difference_along_an_attribute_is_detected_as_the_analysis_detects_it() -> None:
    plan = fl.power(crossed(), gap=1.3, along="type", runs=400)
    assert plan.planned == (1, 1)
    rng, hits, runs = np.random.default_rng(1), 0, 40
    is_new = np.array([key[1] == "new" for key in crossed().keys])
    for _ in range(runs):
        noisy = crossed().changed(theta=1.3 * is_new + rng.standard_normal(24))
        hits += fl.cluster(noisy).rejected
    assert plan.detected == pytest.approx(hits / runs, abs=0.2)
    cells = fl.power(crossed(), gap=1.3, along="type", runs=400, margins=False)
    assert cells.detected is not None
    assert plan.detected is not None
    assert plan.detected > cells.detected + 0.2
    named = fl.power(crossed(), gap=4.0, along="country", split=["c3"], runs=200)
    assert named.planned == (11, 1)


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"along": "region"}, "along"),
        ({"along": "type", "split": ["neww"]}, "split"),
        ({"gap": 0.0}, "gap"),
        ({"baseline": 0.05, "spread": 1.0}, "spread, baseline"),
        ({"shares": (0.9, 0.1)}, "shares"),
        ({"per_day": 10.0}, "per_day"),
    ],
)
def test_plans_that_do_not_fit_are_refused(options: dict[str, Any], parameter: str) -> None:
    with pytest.raises(fl.InputError) as refused:
        fl.power(crossed(), runs=20, **options)
    assert refused.value.parameter == parameter


@pytest.mark.parametrize("gap", [0.5, 6.0, 40.0])
def test_a_power_that_is_certain_follows_no_more_experiments(gap: float) -> None:
    trial = Trial(
        compare_effects(fl.Estimates(np.zeros(6), np.linspace(0.5, 1.5, 6)), 0.0),
        lambda _: np.repeat([0.0, 1.0], 3),
        fl.Folds(),
        0.05,
        0.0,
        0,
    )
    steps: list[int] = []
    reached = trial.reaches(0, gap, 60, 0.8, steps.append)
    assert reached == (trial.estimate_power(0, gap, 60, lambda _: None) >= 0.8)
    assert sum(steps) < 60


@pytest.mark.parametrize("scale", [1e6, 1e7, 1e8])
def test_nothing_is_ruled_out_at_a_tiny_level(scale: float) -> None:
    covariance = scale * np.array([[69.0, 27.0, 4.6], [27.0, 26.0, -10.8], [4.6, -10.8, 19.6]])
    estimates = fl.Estimates([0.0, 0.1, 0.2], None, covariance=covariance, dof=[2, 2, 1e9])
    c = fl.cluster(estimates, alpha=1e-300, guarantee=fl.Calibrated(draws=50))
    assert json.loads(c.to_json())["detection_limits"] == []
    assert "largest difference" not in {note.code for note in c.notes}
