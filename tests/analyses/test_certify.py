"""Certificates: against textbook intervals, plain loops and the rows themselves."""

from __future__ import annotations

import json
import math
import pickle
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

import faultlines as fl
from faultlines.analyses.contrasts import Side, best_tails, compare_with_best, difference, hall_margins, ratio
from faultlines.estimates.scales import ANSCOMBE, COUNTS
from faultlines.metrics.moments import OwnCounts, OwnNoise
from faultlines.render.certificate import rounded_like
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

Z = stats.norm.isf(0.05)
FIVE = fl.Estimates([0.0, 0.1, 0.2, 0.3, 1.0], [0.1, 0.2, 0.1, 0.3, 0.2], list("abcde"), n=[10, 20, 30, 20, 20])
RATES = fl.binomial([480, 500, 510], 1000, ["DE", "FR", "IT"])
PAIR = fl.Estimates([[0.5, 10.0], [0.6, 12.0], [0.55, 11.0]], [[0.01, 0.5]] * 3, parts=["share", "spend"])


def rows(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    size = 3_000
    frame = pd.DataFrame({"g": rng.integers(0, 4, size), "w": rng.uniform(0.5, 2, size), "y": rng.integers(0, 2, size)})
    frame["x"], frame["d"] = rng.gamma(2.0, 1.0 + frame.g / 9), 1.0 + rng.poisson(3, size)
    frame["p"] = (rng.random(size) < 0.3 + 0.05 * frame.g + 0.2 * frame.y).astype(int)
    frame["arm"] = np.where(frame.groupby("g").cumcount() % 2 == 0, "A", "B")
    return frame.iloc[: 4 * (size // 4)]


# ------------------------------------------------------------------------------------------------------ the overall


@pytest.mark.parametrize(
    ("metric", "plain"),
    [
        (fl.mean("x"), lambda f: f.x.mean()),
        (fl.mean("x", weight="w"), lambda f: np.average(f.x, weights=f.w)),
        (fl.ratio("x", "d"), lambda f: f.x.sum() / f.d.sum()),
        (fl.ratio("x", "d", weight="w"), lambda f: (f.w * f.x).sum() / (f.w * f.d).sum()),
        (fl.rate("p"), lambda f: f.p.mean()),
        (fl.rate("p", weight="w"), lambda f: np.average(f.p, weights=f.w)),
        (fl.true_positive_rate("y", "p"), lambda f: f.p[f.y == 1].mean()),
        (fl.true_positive_rate("y", "p", weight="w"), lambda f: np.average(f.p[f.y == 1], weights=f.w[f.y == 1])),
        (fl.brier("y", "p", weight="w"), lambda f: np.average((f.p - f.y) ** 2, weights=f.w)),
        (fl.equalized_odds("y", "p"), lambda f: (f.p[f.y == 1].mean(), f.p[f.y == 0].mean())),
        (fl.joint(fl.rate("p"), fl.ratio("x", "d")), lambda f: (f.p.mean(), f.x.sum() / f.d.sum())),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_overall_is_the_plain_value_in_all_rows(metric: fl.Metric, plain: Any) -> None:
    frame = rows()
    dims = max(len(metric.parts), 1)
    certificate = fl.certify(frame, "g", metric, gap=[0.1] * dims)
    assert certificate.reference_value == pytest.approx(plain(frame), rel=1e-9)
    shown = fl.cluster(frame, "g", metric).overall.estimate
    assert certificate.reference_value == pytest.approx(shown, rel=1e-9)


@pytest.mark.parametrize("kind", ["difference", "lift"])
def test_the_overall_of_an_experiment_with_even_arms(kind: str) -> None:
    frame = rows()
    frame = frame.groupby(["g", "arm"]).head(int(frame.groupby(["g", "arm"]).size().min())).reset_index(drop=True)
    metric = getattr(fl, kind)("x", variant="arm", control="A")
    treated, control = frame.x[frame.arm == "B"].mean(), frame.x[frame.arm == "A"].mean()
    plain = treated - control if kind == "difference" else treated / control - 1
    assert fl.certify(frame, "g", metric, gap=0.5).reference_value == pytest.approx(plain, rel=1e-9)


def test_without_sizes_the_overall_weighs_by_precision_and_says_so() -> None:
    certificate = fl.certify(fl.Estimates([0.0, 3.0], [1.0, 2.0]), gap=1)
    assert certificate.reference_value == pytest.approx(3 / 5)
    assert (certificate.by_precision, fl.certify(FIVE, gap=1).by_precision) == (True, False)
    assert "weights" in {note.code for note in certificate.notes}
    assert "weights" not in {note.code for note in fl.certify(FIVE, gap=1).notes}


# -------------------------------------------------------------------------------------------------------- intervals


def test_the_overall_by_its_covariance() -> None:
    """θ_i − Σ s_j θ_j as a contrast of independent estimates, with a matrix."""
    certificate = fl.certify(FIVE, gap=0.5)
    share = np.asarray(FIVE.n) / 100
    contrast = np.eye(5) - share
    away, error = contrast @ FIVE.theta, np.sqrt(np.diag(contrast @ np.diag(FIVE.se**2) @ contrast.T))
    for group, d, e in zip(certificate.groups, away, error, strict=True):
        assert group.distance == pytest.approx(d)
        assert (group.lower, group.upper) == pytest.approx((d - certificate.critical * e, d + certificate.critical * e))
        assert group.bound == pytest.approx(abs(d) + Z * e)
    assert certificate.certifiable == pytest.approx(np.max(np.abs(away) + Z * error))
    assert certificate.farthest == "e"
    assert (certificate.verdict, certificate.beyond) == ("inconclusive", ())
    assert certificate.within == ("c",)


def test_a_reference_and_all_pairs_in_plain_loops() -> None:
    theta, se, labels = FIVE.theta.tolist(), FIVE.se.tolist(), list(FIVE.labels)
    against = fl.certify(FIVE, gap=0.5, against="b", adverse="high")
    assert [group.label for group in against.groups] == ["a", "c", "d", "e"]
    errors = {label: math.hypot(s, se[1]) for label, s in zip(labels, se, strict=True)}
    for group, value in zip(against.groups, [theta[0], *theta[2:]], strict=True):
        assert group.upper == pytest.approx(value - theta[1] + against.critical * errors[group.label])
        assert group.bound == pytest.approx(max(value - theta[1] + Z * errors[group.label], 0.0))
    assert (against.against, against.reference_value, against.farthest) == ("b", 0.1, "e")
    pairs = fl.certify(FIVE, gap=0.3, against="all pairs")
    farthest = max(
        abs(theta[i] - theta[j]) + Z * math.hypot(se[i], se[j]) for i in range(5) for j in range(5) if i != j
    )
    assert pairs.certifiable == pytest.approx(farthest)
    surely = {
        labels[i]
        for i in range(5)
        for j in range(5)
        if i != j and abs(theta[i] - theta[j]) - pairs.critical * math.hypot(se[i], se[j]) > 0.3
    }
    assert set(pairs.beyond) == surely == {"a", "e"}
    assert {group.label: group.other for group in pairs.groups}["a"] == "e"
    assert pairs.reference_value is None


# --------------------------------------------------------------------------------------------- each group's own rows


@settings(max_examples=60, deadline=None)
@given(st.floats(-0.3, 0.3), st.floats(-0.3, 0.3), st.floats(0.001, 0.2), st.integers(5, 500))
def test_halls_interval_by_his_cubic(own: float, common: float, tail: float, dof: int) -> None:
    """Each end is where T + γT²/3 + γ²T³/27 + γ/6 is the quantile, with the skewness that reaches farther."""
    arrays = (np.array([value]) for value in (4.0, float(dof), own, common))
    down, up = (float(end[0]) / 2 for end in hall_margins(OwnNoise(*arrays), tail))
    quantile = float(stats.t.isf(tail, dof))

    def bent(t: float, skewness: float) -> float:
        return t + skewness * t**2 / 3 + skewness**2 * t**3 / 27 + skewness / 6

    limited = float(np.clip(common, -0.8 / quantile, 0.8 / quantile))
    assert min(abs(bent(down, g) - quantile) for g in (own, limited)) < 1e-6 or down == 0
    assert min(abs(bent(-up, g) + quantile) for g in (own, limited)) < 1e-6 or up == 0
    assert max(bent(down, own), bent(down, limited)) >= quantile - 1e-6


def test_from_rows_a_group_is_bounded_by_its_own_variance_and_skewness() -> None:
    """A noisier small group: Student's interval of its own rows, beside two groups that are known."""
    rng = np.random.default_rng(2)
    values = [2 * rng.standard_normal(30), *(rng.standard_normal(20_000) for _ in range(2))]
    values[0] = np.concatenate([values[0][:15], -values[0][:15]])  # without any skewness
    frame = pd.DataFrame({"g": np.repeat(list("abc"), [len(v) for v in values]), "x": np.concatenate(values)})
    group = fl.certify(frame, "g", fl.mean("x"), gap=1.0, against=0, adverse="low").groups[0]
    alone = stats.ttest_1samp(values[0], 0.0, alternative="greater").confidence_interval(0.95).low
    assert group.bound == pytest.approx(-alone, rel=0.01)
    skewed = np.random.default_rng(3).exponential(1, 30)
    frame.loc[frame.g == "a", "x"] = skewed
    by_rows = fl.certify(frame, "g", fl.mean("x"), gap=1.0, against=0.0, adverse="high").groups[0]
    assert by_rows.bound > stats.ttest_1samp(skewed, 0.0, alternative="less").confidence_interval(0.95).high
    assert fl.certify(fl.cluster(frame, "g", fl.mean("x")), gap=1.0, against=0, adverse="high").groups[0] == by_rows


def own_noise_of(frame: pd.DataFrame, metric: fl.Metric) -> OwnNoise | None:
    readout = fl.measure(frame, "g", metric).readout
    assert readout is not None
    noise = readout.own_noise()
    assert not isinstance(noise, OwnCounts)
    return noise


@pytest.mark.parametrize("kind", ["difference", "lift"])
def test_own_noise_of_arms_is_welchs(kind: str) -> None:
    frame = rows()
    metric = getattr(fl, kind)("x", variant="arm", control="A")
    noise = own_noise_of(frame, metric)
    assert noise is not None
    parts = frame.groupby(["g", "arm"]).x.agg(["mean", "var", "count", "skew"]).unstack()
    of_mean = (parts["var"] / parts["count"]).to_numpy()
    third = (parts["skew"] * parts["var"] ** 1.5 / parts["count"] ** 2).to_numpy()
    if kind == "lift":
        mean = parts["mean"].to_numpy()
        third = (third - 3 * of_mean**2 / mean) / mean**3
        of_mean = of_mean / mean**2
    total = of_mean.sum(axis=1)
    assert noise.variance == pytest.approx(total)
    assert noise.skewness == pytest.approx((third[:, 1] - third[:, 0]) / total**1.5)
    assert noise.dof == pytest.approx(total**2 / (of_mean**2 / (parts["count"].to_numpy() - 1)).sum(axis=1))
    assert own_noise_of(frame, fl.rate("p")) is None
    assert own_noise_of(frame, fl.difference("p", variant="arm", control="A")) is None


def two_models(size: int = 30) -> pd.DataFrame:
    """Two models that disagree in 1% of 6,000 rows, and in none of a small group, where both are always right."""
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 2, 6000 + size)
    old = np.where(rng.random(truth.size) < 0.1, 1 - truth, truth)
    new = np.where(rng.random(truth.size) < 0.01, 1 - old, old)
    score = np.clip(0.3 * truth + 0.7 * rng.random(truth.size), 0, 1)
    frame = pd.DataFrame({"g": np.repeat(["a", "b", "small"], [3000, 3000, size]), "t": truth, "old": old, "new": new})
    frame = frame.assign(s=score, s2=np.clip(score + 0.01 * rng.standard_normal(truth.size), 0, 1), w=1.0 + truth / 9)
    frame["unit"] = np.arange(truth.size) // 2
    small = frame.g == "small"
    for column in ("old", "new"):
        frame[column] = np.where(small, frame.t, frame[column])
    for column in ("s", "s2"):
        frame[column] = np.where(small, 0.1 + 0.8 * frame.t, frame[column])
    return frame


PAIRS: dict[str, Any] = {
    "accuracy": lambda **o: fl.paired(fl.accuracy("t", "old", **o), fl.accuracy("t", "new", **o)),
    "weighted accuracy": lambda: PAIRS["accuracy"](weight="w"),
    "precision": lambda: fl.paired(fl.precision("t", "old"), fl.precision("t", "new")),
    "auc": lambda: fl.paired(fl.auc("t", "s"), fl.auc("t", "s2")),
    "brier": lambda: fl.paired(fl.brier("t", "s"), fl.brier("t", "s2")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_small_group_without_any_change_is_no_surer_than_its_own_rows(name: str) -> None:
    """Of 30 rows without a loss, a share of 1 − 0.05^(1/30) could be losses: what other groups vary says nothing."""
    certificate = fl.certify(two_models(), "g", PAIRS[name](), gap=0.05, against=0)
    bounds = {group.label: group.bound for group in certificate.groups}
    assert bounds["small"] >= 1 - 0.05 ** (1 / 30) - 1e-9
    assert bounds["a"] < 0.02
    assert certificate.verdict == "inconclusive"
    assert certificate.farthest == "small"


def test_models_that_lose_nowhere_may_still_lose() -> None:
    frame = two_models()
    frame["new"] = np.where(frame.new == frame.t, frame.t, frame.old)  # gains alone
    certificate = fl.certify(frame, "g", PAIRS["accuracy"](), gap=0.01, against=0)
    assert certificate.verdict == "inconclusive"
    assert certificate.certifiable == pytest.approx(1 - 0.05 ** (1 / 30))


def test_the_bound_of_a_change_is_that_of_its_own_counts() -> None:
    frame = two_models(200)
    frame.loc[frame.index[-3:], "new"] = 1 - frame.t[-3:]
    (group,) = [g for g in fl.certify(frame, "g", PAIRS["accuracy"](), gap=0.1, against=0).groups if g.label == "small"]
    assert group.bound == pytest.approx(stats.beta.isf(0.05, 4, 197))  # 3 losses and no gain of 200


@pytest.mark.parametrize("metric", [fl.f1("t", "old"), fl.balanced_accuracy("t", "old"), fl.auc("t", "s")])
def test_a_small_group_without_any_error_may_make_some(metric: fl.Metric) -> None:
    certificate = fl.certify(two_models(), "g", metric, gap=0.9, against=0.95)
    (small,) = [group for group in certificate.groups if group.label == "small"]
    assert small.upper <= 0.05 + 1e-12  # none of these metrics exceeds 1
    assert small.lower <= 1 - 0.95 - (1 - 0.05 ** (1 / 30))


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_mean_of_zeros_and_ones_is_bounded_as_the_rate(share: float) -> None:
    frame = two_models()
    frame["x"] = (np.random.default_rng(0).random(len(frame)) < share).astype(float)
    frame.loc[frame.g == "a", "x"] = np.arange(3000) % 2
    asked: Any = {"gap": 0.4, "against": 0.5}
    by_mean, by_rate = (fl.certify(frame, "g", metric, **asked) for metric in (fl.mean("x"), fl.rate("x")))
    assert by_mean.certifiable == pytest.approx(by_rate.certifiable)


# ------------------------------------------------------------------------------------------------------------ margins


def test_one_group_has_no_margins() -> None:
    rows = pd.DataFrame({"c": ["DE"] * 40, "d": ["web"] * 40, "x": [0, 1] * 20})
    with refused("no groups: data"):
        fl.certify(rows, ["c", "d"], fl.rate("x"), gap=0.1, margins=True)


def test_two_rates_with_unknown_groups_are_bounded() -> None:
    """Variables behind the covariance of two rates are not rates of their own."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({
        "g": [["a", "b", "c", None][i] for i in rng.integers(0, 4, 800)],
        "x": rng.integers(0, 2, 800),
        "y": [None if i < 8 else int(v) for i, v in enumerate(rng.integers(0, 2, 800))],
    })  # fmt: skip
    certificate = fl.certify(rows, "g", fl.joint(fl.rate("x"), fl.rate("y")), gap=0.4)
    assert certificate.unknown == "bounds"
    assert certificate.possible is not None
    for (low, high), group in zip(certificate.possible, ("a", "b", "c"), strict=True):
        seen = rows[rows.g == group]
        assert low[0] <= float(seen["x"].mean()) <= high[0]
        assert low[1] <= float(seen["y"].mean()) <= high[1]


def test_margins_are_certified_with_the_cells() -> None:
    """No country, no device and no combination: margins as their own rows have them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"c": rng.choice(list("ABCDEFGH"), 4000), "d": rng.choice(["m", "w"], 4000)})
    frame["x"] = (rng.random(4000) < np.where(frame.d == "m", 0.55, 0.45)).astype(int)
    asked: dict[str, Any] = {"gap": 0.02, "adverse": None}
    cells = fl.certify(frame, ["c", "d"], fl.rate("x"), **asked)
    every = fl.certify(frame, ["c", "d"], fl.rate("x"), **asked, margins=True)
    assert (cells.verdict, every.verdict) == ("inconclusive", "failed")  # no cell can be shown to differ, a margin can
    assert every.beyond == (("any", "m"), ("any", "w"))
    assert every.margins == ("c", "d", "c × d")
    assert len(every.groups) == 8 + 2 + 16
    by_device = {group.label: group for group in fl.certify(frame, "d", fl.rate("x"), **asked).groups}
    for group in every.groups[8:10]:
        alone = by_device["m" if group.label == ("any", "m") else "w"]
        assert (group.bound, group.distance) == (alone.bound, alone.distance)
        assert group.upper > alone.upper  # margins share α
    assert every.certifiable == pytest.approx(cells.certifiable)
    assert every.to_pandas()[["c", "d"]].iloc[8].tolist() == ["any", "m"]
    lacking = frame.astype({"x": float})
    lacking.loc[:30, "x"] = np.nan
    shares = fl.certify(lacking, ["c", "d"], fl.rate("x"), **asked, margins=True).to_pandas().dropped_share
    assert (shares[:10].isna().all(), shares[10:].isna().any()) == (True, False)
    wide = fl.certify(frame, ["c", "d"], fl.rate("x"), gap=0.5, margins=True)
    assert wide.verdict == "passed"
    best = fl.certify(frame, ["c", "d"], fl.rate("x"), gap=0.8, ratio=True, margins=True)
    assert dict(zip([g.label for g in best.groups], best.groups, strict=True))["any", "w"].other == ("any", "m")


def test_margins_of_estimates_are_means_of_their_cells() -> None:
    successes, trials = np.array([30, 50, 20, 60]), np.array([100, 100, 50, 150])
    labels = [("F", "x"), ("F", "y"), ("M", "x"), ("M", "y")]
    rates = fl.binomial(successes, trials, labels).estimates
    assert rates is not None
    by_label = {group.label: group for group in fl.certify(rates, gap=0.2, margins=True).groups}
    women = by_label["F", "any"]
    assert women.estimate == pytest.approx(0.4)
    assert women.distance == pytest.approx(0.0)
    group = fl.certify(fl.binomial([80, 80], [200, 200], ["F", "M"]), gap=0.2).groups[0]
    assert women.bound == pytest.approx(group.bound, rel=0.05)  # of two strata, a little less than of one sample
    plain = fl.Estimates([1.0, 2.0, 3.0, 4.0], [0.1] * 4, labels, n=[1, 3, 2, 2])
    level = {group.label: group for group in fl.certify(plain, gap=5, margins=True, against=0).groups}["F", "any"]
    assert level.estimate == pytest.approx(1.75)
    assert level.bound == pytest.approx(1.75 + Z * 0.1 * math.hypot(0.25, 0.75))
    with refused("unsupported: margins"):
        fl.certify(RATES, gap=0.1, margins=True)
    with refused("conflict: against"):
        fl.certify(plain, gap=5, margins=True, against=("F", "x"))
    with refused("wrong type: margins"):
        fl.certify(plain, gap=5, margins=1)  # type: ignore[arg-type]


def test_margins_of_nested_attributes_name_each_cell_whole() -> None:
    """Of region > state > zip the zips are the cells, and are not named by their regions."""
    zips = [(f"R{i // 4}", f"S{i // 2}", f"Z{i}") for i in range(8)]
    effects = fl.Estimates(np.arange(8.0), [0.1] * 8, zips, attributes=["region", "state", "zip"])
    certificate = fl.certify(effects, gap=20, margins=True)
    assert certificate.margins == ("region", "state", "zip")
    estimates = {group.label: group.estimate for group in certificate.groups}
    assert [estimates[label] for label in zips] == pytest.approx(range(8))
    assert estimates["any", "S3", "any"] == pytest.approx(6.5)
    assert len(estimates) == len(certificate.groups) == 2 + 4 + 8


def test_a_level_named_like_all_levels_is_refused() -> None:
    rows = [("any", "x"), ("any", "y"), ("b", "x"), ("b", "y")]
    with refused("ambiguous: margins"):
        fl.certify(fl.Estimates([0.1, 0.2, 0.3, 0.4], [0.1] * 4, rows), gap=5, margins=True)


# ------------------------------------------------------------------------------------- a fixed value, and directions


def test_against_a_fixed_value_each_group_has_its_own_bound() -> None:
    certificate = fl.certify(FIVE, gap=0.2, against=0, adverse="low")
    for group, theta, se in zip(certificate.groups, FIVE.theta, FIVE.se, strict=True):
        assert group.distance == pytest.approx(theta)
        assert group.bound == pytest.approx(max(Z * se - theta, 0.0))
        assert group.lower == pytest.approx(theta - stats.norm.isf(0.05 / 5) * se)
    assert (certificate.against, certificate.reference_value) == (0.0, 0.0)
    assert fl.certify(FIVE, gap=certificate.certifiable, against=0, adverse="low").verdict == "passed"
    harm = fl.Estimates([-0.05, 0.3], [0.01, 0.01], ["old", "new"])
    assert fl.certify(harm, gap=0, against=0, adverse="low").beyond == ("old",)
    assert fl.certify(harm, gap=0.1, against=0, adverse="low").verdict == "passed"
    assert fl.certify(harm, gap=0.1, adverse="low").verdict == "failed"  # new users gain more, and nobody loses
    assert fl.certify(fl.Estimates([0.2], [0.01]), gap=0.1, against=0, adverse="low").verdict == "passed"
    rates = fl.certify(RATES, gap=0.1, against=0.5)
    assert [group.distance for group in rates.groups] == pytest.approx([-0.02, 0.0, 0.01])
    assert fl.certify(RATES, gap=0.8, ratio=True, against=0.5, adverse="low").groups[0].distance == pytest.approx(0.96)
    shared = fl.Estimates([0.1, 0.2], None, covariance=np.array([[1.0, 0.9], [0.9, 1.0]]) / 100)
    assert fl.certify(shared, gap=1, against=0).critical < stats.norm.isf(0.05 / 4)


def test_two_models_against_zero_is_a_regression_gate() -> None:
    """No group loses more than two points of accuracy; what it gains does not matter."""
    rng = np.random.default_rng(5)
    group, truth = rng.integers(0, 3, 6000), rng.integers(0, 2, 6000)
    old = np.where(rng.random(6000) < 0.8, truth, 1 - truth)
    new = np.where((group == 2) & (rng.random(6000) < 0.5), truth, old)
    frame = pd.DataFrame({"g": group, "y": truth, "old": old, "new": new})
    change = fl.paired(fl.accuracy("y", "old"), fl.accuracy("y", "new"))
    gained = fl.certify(frame, "g", change, gap=0.02, against=0)
    assert (gained.verdict, gained.adverse) == ("passed", "low")
    assert fl.certify(frame, "g", change, gap=0.02).verdict == "failed"
    turned = fl.paired(fl.accuracy("y", "new"), fl.accuracy("y", "old"))
    lost = fl.certify(frame, "g", turned, gap=0.02, against=0)
    assert (lost.verdict, lost.beyond) == ("failed", (2,))


@pytest.mark.parametrize(
    ("metric", "side"),
    [
        (fl.selection_rate("p"), "low"),
        (fl.false_positive_rate("y", "p"), "high"),
        (fl.brier("y", "p"), "high"),
        (fl.calibration_gap("y", "p"), None),
        (fl.rate("p"), None),
        (fl.difference("x", variant="arm", control="A"), None),
        (fl.equalized_odds("y", "p"), ("low", "high")),
        (fl.joint(fl.error_rate("y", "p"), fl.mean("x")), ("high", None)),
        (fl.paired(fl.error_rate("y", "p"), fl.error_rate("y", "p2")), "high"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_every_metric_knows_its_harmful_direction(metric: fl.Metric, side: Any) -> None:
    frame = rows()
    frame["p2"] = 1 - frame.p
    gap = [0.3] * max(len(metric.parts), 1)
    certificate = fl.certify(frame, "g", metric, gap=gap)
    assert certificate.adverse == side
    assert json.loads(certificate.to_json())["adverse"] == (list(side) if isinstance(side, tuple) else side)
    estimates = fl.measure(frame, "g", metric).estimates
    assert fl.certify(estimates, gap=gap).adverse == side
    assert fl.certify(fl.cluster(frame, "g", metric), gap=gap).adverse == side
    both = fl.certify(frame, "g", metric, gap=gap, adverse=None)
    assert both.adverse == ((None, None) if metric.parts else None)
    assert fl.certify(frame, "g", metric, gap=gap, against="all pairs").critical > both.critical


def test_one_direction_is_not_applied_to_metrics_that_harm_in_different_ones() -> None:
    """As reported: with one direction for both, a false positive rate 12 points too high was "within"."""
    frame = rows()
    frame.loc[(frame.g == 0) & (frame.y == 0), "p"] = 1
    odds = fl.equalized_odds("y", "p")
    with refused("conflict: adverse"):
        fl.certify(frame, "g", odds, gap=0.2, adverse="low")
    assert 0 in fl.certify(frame, "g", odds, gap=0.2).beyond
    assert fl.certify(frame, "g", odds, gap=0.2, adverse=["low", "low"]).beyond == ()
    with refused("missing: against"):
        fl.certify(frame, "g", odds, gap=0.8, ratio=True)
    assert fl.certify(frame, "g", fl.false_positive_rate("y", "p"), gap=0.8, ratio=True).against == "lowest"
    for metric, end in ((fl.false_positive_rate("y", "p"), "highest"), (fl.true_positive_rate("y", "p"), "lowest")):
        for gap, is_ratio in ((0.1, False), (0.8, True)):
            with refused("conflict: against"):
                fl.certify(frame, "g", metric, against=end, gap=gap, ratio=is_ratio)
        assert fl.certify(frame, "g", metric, gap=0.1, against=end, adverse=None).adverse is None
    for end in ("highest", "lowest"):
        with refused("conflict: against"):
            fl.certify(frame, "g", odds, gap=0.2, against=end)


# --------------------------------------------------------------------------------------------------- the best group


def hsu(theta: list[float], se: list[float], within: float, beyond: float) -> tuple[set[int], list[float], list[float]]:
    """Candidates and ends of θ_i − max over the others, in plain loops (Hsu's constrained intervals below)."""
    groups = range(len(theta))

    def apart(i: int, j: int, c: float) -> float:
        return theta[i] - theta[j] + c * math.hypot(se[i], se[j])

    best = {i for i in groups if min(apart(i, j, within) for j in groups if j != i) >= 0}
    lower = [min([0.0, *(apart(i, j, -within) for j in best if j != i)]) for i in groups]
    return best, lower, [min(apart(i, j, beyond) for j in groups if j != i) for i in groups]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(0.1, 2)), min_size=2, max_size=6, unique_by=lambda pair: pair[0]))
def test_the_best_group_in_plain_loops(groups: list[tuple[float, float]]) -> None:
    theta, se = (list(column) for column in zip(*groups, strict=True))
    estimates = fl.Estimates(theta, se)
    tails = best_tails(estimates, 0.05, 0, sides=1)
    (comparison,) = compare_with_best(estimates, 0.05, 0, sides=1)
    within, beyond = (float(stats.norm.isf(tail)) for tail in tails)
    best, lower, upper = hsu(theta, se, within, beyond)
    assert set(np.flatnonzero(comparison.candidates).tolist()) == best
    assert comparison.interval.lower.tolist() == pytest.approx(lower)
    assert comparison.interval.upper.tolist() == pytest.approx(upper)
    assert comparison.to_best.value.tolist() == pytest.approx([value - max(theta) for value in theta])
    assert np.all(comparison.to_best.upper <= 0)
    certificate = fl.certify(estimates, gap=1.0, against="highest", adverse="low")
    farthest = max(
        theta[j] - theta[i] + Z * math.hypot(se[i], se[j]) for i in range(len(se)) for j in range(len(se)) if i != j
    )
    assert certificate.certifiable == pytest.approx(farthest)
    mirrored = fl.certify(fl.Estimates([-value for value in theta], se), gap=1.0, against="lowest", adverse="high")
    assert [group.upper for group in mirrored.groups] == pytest.approx([-group.lower for group in certificate.groups])
    assert mirrored.verdict == certificate.verdict


def test_the_critical_value_of_the_best_is_dunnetts() -> None:
    """Equal variances: the one-sided table of Dunnett for five treatments and a control, 2.23 at 95%."""
    tails = best_tails(fl.Estimates(np.zeros(6), np.ones(6)), 0.05, 0, sides=1)
    assert float(stats.norm.isf(tails.within)) == pytest.approx(2.234, abs=0.02)
    assert float(stats.norm.isf(tails.beyond)) == pytest.approx(
        stats.studentized_range.isf(0.05, 6, 1e6) / 2**0.5, 0.01
    )
    uneven = fl.Estimates(np.zeros(6), [1.0, 3.0, 1.0, 2.0, 1.0, 1.0])
    assert best_tails(uneven, 0.05, 0, sides=1).within < tails.within  # less correlated, so farther out


def test_four_fifths_is_about_the_highest_group() -> None:
    """As reported: 60% of 6,000 and 45% of 4,000 are both above 0.8 × the overall, and the impact ratio is 0.75."""
    rates = fl.binomial([3600, 1800], [6000, 4000], ["A", "B"])
    certificate = fl.certify(rates, gap=0.8, ratio=True)
    assert (certificate.verdict, certificate.against, certificate.beyond) == ("failed", "highest", ("B",))
    assert certificate.groups[1].distance == pytest.approx(0.75)
    assert certificate.groups[1].other == "A"
    assert certificate.reference_value == pytest.approx(0.6)
    assert fl.certify(rates, gap=0.8, ratio=True, against="overall").verdict == "passed"
    assert fl.certify(rates, gap=0.8, ratio=True, adverse="high").against == "lowest"
    assert fl.certify(rates, gap=0.7, ratio=True, adverse="low").verdict == "passed"


def test_groups_that_may_not_be_the_reference() -> None:
    """A small category is compared with the highest of the others, and is nobody's reference."""
    rates = fl.binomial([9, 500, 400], [10, 1000, 1000], ["tiny", "A", "B"]).estimates
    assert rates is not None
    (comparison,) = compare_with_best(rates, 0.05, 0, as_ratio=True, eligible=np.array([False, True, True]))
    assert comparison.to_best.value.tolist() == pytest.approx([1.8, 1.0, 0.8])
    assert comparison.other.tolist() == [1, 2, 1]
    assert comparison.candidates.tolist() == [False, True, False]
    assert comparison.to_best.lower[1] == 1.0
    assert comparison.to_best.upper[0] > 1.8
    (alone,) = compare_with_best(rates, 0.05, 0, as_ratio=True, eligible=np.array([False, True, False]))
    assert alone.to_best.value.tolist() == pytest.approx([1.8, 1.0, 0.8])
    assert [part[1] for part in alone.to_best] == [1.0, 1.0, 1.0]


def test_the_best_of_groups_that_share_data_and_of_several_effects() -> None:
    covariance = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]]) / 100
    shared = fl.Estimates([1.0, 0.5, 0.0], None, list("abc"), covariance=covariance)
    certificate = fl.certify(shared, gap=0.4, against="highest", adverse="low")
    assert certificate.groups[1].bound == pytest.approx(0.5 + Z * 0.1)
    assert certificate.beyond == ("c",)
    both = fl.certify(PAIR, gap=[0.2, 5.0], against="highest", adverse="low")
    alone = fl.certify(fl.Estimates(PAIR.theta[:, 0], PAIR.se[:, 0]), gap=0.2, against="highest", adverse="low")
    assert both.certifiable[0] == pytest.approx(alone.certifiable)
    assert both.groups[0].lower[0] < alone.groups[0].lower
    assert both.groups[0].other == (1, 1)


def test_estimated_errors_reach_as_far_as_students_t() -> None:
    """With the same degrees of freedom everywhere, the interval is Student's instead of normal (Cochran and Cox)."""
    certificate = fl.certify(FIVE, gap=0.5)
    few = fl.certify(fl.Estimates(FIVE.theta, FIVE.se, FIVE.labels, FIVE.n, dof=6), gap=0.5)
    assert few.critical == certificate.critical
    wider = stats.t.isf(stats.norm.sf(certificate.critical), 6) / certificate.critical
    for group, other in zip(few.groups, certificate.groups, strict=True):
        assert group.upper - group.lower == pytest.approx(wider * (other.upper - other.lower))


def test_ratios_of_normal_estimates_are_fiellers() -> None:
    c, (e, o), (s, t) = 2.3, (3.0, 4.0), (0.4, 0.5)
    interval = ratio(*(Side(np.array([m]), np.array([m - c * v]), np.array([m + c * v])) for m, v in ((e, s), (o, t))))
    g = (c * t / o) ** 2
    root = c / o * math.sqrt(s**2 + (e / o) ** 2 * t**2 - g * s**2)
    assert float(interval.lower[0]) == pytest.approx((e / o - root) / (1 - g))
    assert float(interval.upper[0]) == pytest.approx((e / o + root) / (1 - g))


def test_ratios_of_estimates_that_go_together_are_fiellers() -> None:
    c, (e, o), (s, t), rho = 2.3, (3.0, 4.0), (0.4, 0.5), 0.6
    side, other = (Side(np.array([m]), np.array([m - c * v]), np.array([m + c * v])) for m, v in ((e, s), (o, t)))
    interval = ratio(side, other, correlation=rho)
    for end in (
        float(interval.lower[0]),
        float(interval.upper[0]),
    ):  # where the difference e − r o is c errors from zero
        error = math.sqrt(s**2 + (end * t) ** 2 - 2 * end * rho * s * t)
        assert abs(e - end * o) == pytest.approx(c * error)
    apart = difference(side, other, correlation=rho)
    half = c * math.sqrt(s**2 + t**2 - 2 * rho * s * t)
    assert float(apart.upper[0] - apart.value[0]) == pytest.approx(half)
    far = ratio(Side(*np.array([[3.0], [2.0], [4.0]])), Side(*np.array([[1.0], [-0.5], [2.5]])))
    assert far.upper[0] == np.inf
    assert 0 < far.lower[0] < 2


@settings(max_examples=60, deadline=None)
@given(*[st.floats(0.1, 10)] * 4, st.floats(0.01, 0.9), st.floats(0.01, 0.9))
def test_a_ratio_is_where_a_difference_could_be_zero(
    e: float, o: float, up: float, up_o: float, a: float, b: float
) -> None:
    numerator, other = Side(*np.array([[e], [e * a], [e + up]])), Side(*np.array([[o], [o * b], [o + up_o]]))
    interval = ratio(numerator, other)
    for r, side in ((interval.lower, "lower"), (interval.upper, "upper")):
        scaled = Side(*(r * part for part in other))
        assert float(getattr(difference(numerator, scaled), side)[0]) == pytest.approx(
            0.0, abs=1e-9 * (e + up) * max(1, r[0])
        )
    assert interval.lower <= interval.value <= interval.upper


def test_the_share_of_a_group_in_the_overall_counts_for_ratios() -> None:
    """A group that is half of everybody cannot be more than twice the overall."""
    certificate = fl.certify(fl.binomial([900, 3], [1000, 1000]), gap=0.5, ratio=True, against="overall")
    assert certificate.groups[0].distance == pytest.approx(0.9 / 0.4515)
    assert certificate.groups[0].upper < 2
    assert certificate.verdict == "failed"


def test_no_events_are_bounded_exactly() -> None:
    """Zero of a hundred: rates up to 3% are compatible (the rule of three), whatever a normal interval says."""
    huge = 10**7
    certificate = fl.certify(fl.binomial([huge // 1000, 0], [huge, 100]), gap=0.03, adverse="high", against="0")
    bound = certificate.groups[0].bound
    assert bound == pytest.approx(1 - 0.05 ** (1 / 100) - 0.001, abs=2e-5)
    counts = fl.certify(fl.poisson([huge // 1000, 0], [huge, 100]), gap=0.03, adverse="high", against="0")
    assert counts.groups[0].bound == pytest.approx(-math.log(0.05) / 100 - 0.001, abs=2e-5)


@pytest.mark.parametrize("tail", [0.05, 1e-6])
def test_exact_intervals_of_counts(tail: float) -> None:
    events, trials = np.array([0.0, 1.0, 7.0, 20.0]), np.full(4, 20.0)
    low, high = ANSCOMBE.ends(events / trials, np.zeros(4), 1 / np.sqrt(4 * trials + 2), tail)
    for y, a, b in zip(events, low, high, strict=True):
        assert (a == 0) if y == 0 else stats.binom.sf(y - 1, 20, a) == pytest.approx(tail, rel=1e-6)
        assert (b == 1) if y == 20 else stats.binom.cdf(y, 20, b) == pytest.approx(tail, rel=1e-6)
    low, high = COUNTS.ends(events / 5, np.zeros(4), np.full(4, 0.5 / math.sqrt(5)), tail)
    for y, a, b in zip(events, low, high, strict=True):
        assert (a == 0) if y == 0 else stats.poisson.sf(y - 1, 5 * a) == pytest.approx(tail, rel=1e-6)
        assert stats.poisson.cdf(y, 5 * b) == pytest.approx(tail, rel=1e-6)


# ----------------------------------------------------------------------------------------------------- the verdict


@pytest.mark.parametrize("against", ["overall", "a", "all pairs", "highest", "lowest"])
def test_every_gap_from_the_smallest_on_is_certified(against: str) -> None:
    smallest = fl.certify(FIVE, gap=1, against=against).certifiable
    above, below = (fl.certify(FIVE, gap=smallest * factor, against=against) for factor in (1.0001, 0.9999))
    assert (above.verdict, below.verdict) == ("passed", "inconclusive")
    assert set(above.within) == {group.label for group in above.groups}
    assert above.inconclusive == ()
    ratios = fl.certify(RATES, gap=0.8, ratio=True, against="DE" if against == "a" else against)
    for factor, verdict in ((0.9999, "passed"), (1.0001, "inconclusive")):
        asked = fl.certify(RATES, gap=ratios.certifiable * factor, ratio=True, against=ratios.against)
        assert asked.verdict == verdict


def test_only_the_adverse_direction_counts() -> None:
    high = fl.Estimates([0.0] * 5 + [9.0], [0.1] * 6, list("abcdef"), n=[1000] * 5 + [1])
    assert fl.certify(high, gap=1, adverse="low").verdict == "passed"
    assert fl.certify(high, gap=1, adverse="high").beyond == ("f",)
    assert fl.certify(high, gap=1).beyond == ("f",)
    one_sided, two_sided = (fl.certify(high, gap=1, adverse=side) for side in ("low", None))
    assert one_sided.critical < two_sided.critical


def test_groups_left_out_cannot_be_certified() -> None:
    frame = pd.DataFrame({"g": ["A"] * 500 + ["B"] * 500 + ["C"] * 3, "x": [0, 1] * 501 + [0]})
    certificate = fl.certify(frame, "g", fl.rate("x"), gap=0.2)
    assert (certificate.verdict, certificate.within, certificate.inconclusive) == ("inconclusive", ("A", "B"), ())
    (note,) = [note for note in certificate.notes if note.code == "excluded groups" and "C" in note.text]
    assert (note.severity, note.fields) == ("warning", {"groups": 1})
    assert certificate.to_dicts()[-1]["excluded"] == "fewer than 5 rows"
    with refused("not found: against"):
        fl.certify(frame, "g", fl.rate("x"), gap=0.2, against="C")
    apart = pd.DataFrame({"g": ["A"] * 500 + ["B"] * 500 + ["C"] * 3, "x": [0] * 500 + [1] * 503})
    assert fl.certify(apart, "g", fl.rate("x"), gap=0.2).verdict == "failed"


def test_several_effects_are_certified_together() -> None:
    certificate = fl.certify(PAIR, gap=[0.2, 5.0])
    assert certificate.verdict == "passed"
    assert len(certificate.certifiable) == len(certificate.farthest) == 2
    spend = fl.certify(PAIR, gap=[0.2, 0.1])
    assert spend.verdict == "inconclusive"
    alone = fl.certify(fl.Estimates(PAIR.theta[:, 0], PAIR.se[:, 0]), gap=0.2)
    assert alone.certifiable == pytest.approx(certificate.certifiable[0])
    assert alone.critical < certificate.critical
    row = certificate.to_dicts()[1]
    assert row["difference_share"] == pytest.approx(certificate.groups[1].distance[0])
    apart = fl.Estimates(
        PAIR.theta, None, effect_covariance=np.array([[[1e-4, 0], [0, 0.25]]] * 3), parts=["share", "spend"]
    )
    assert fl.certify(apart, gap=[0.2, 5.0]).certifiable == pytest.approx(certificate.certifiable)
    assert fl.certify(PAIR, gap=[0.01, 0.5], against="all pairs").beyond == (0, 1, 2)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(0.1, 3), st.floats(1, 100)), min_size=2, max_size=8),
    st.floats(-100, 100),
    st.floats(0.01, 50),
    st.randoms(use_true_random=False),
)
def test_shifts_units_and_order_change_nothing_else(groups: Any, shift: float, unit: float, random: Any) -> None:
    theta, se, n = (np.array(column) for column in zip(*groups, strict=True))
    first = fl.certify(fl.Estimates(theta, se, n=n), gap=1.0)
    moved = fl.certify(fl.Estimates(shift + unit * theta, unit * se, n=n), gap=unit)
    assert moved.certifiable == pytest.approx(unit * first.certifiable, rel=1e-6)
    assert [group.lower for group in moved.groups] == pytest.approx(
        [unit * group.lower for group in first.groups], rel=1e-4
    )
    order = random.sample(range(len(theta)), len(theta))
    turned = fl.certify(fl.Estimates(theta[order], se[order], order, n[order]), gap=1.0)
    assert turned.certifiable == pytest.approx(first.certifiable)
    assert turned.critical == pytest.approx(first.critical, rel=0.02)
    assert first.certifiable > 0


# ------------------------------------------------------------------------------------------------ what is given and got


def test_every_kind_of_data(tmp_path: Path) -> None:
    frame = rows()
    frame.to_csv(tmp_path / "rows.csv", index=False)
    asked: dict[str, Any] = {"by": "g", "metric": fl.rate("p"), "gap": 0.2}
    first = fl.certify(frame, **asked)
    assert [
        row | {"g": int(row["g"])} for row in fl.certify(tmp_path / "rows.csv", **asked).to_dicts()
    ] == first.to_dicts()
    assert fl.certify(fl.cluster(frame, "g", fl.rate("p")), gap=0.2).to_dicts() == first.to_dicts()
    estimates = fl.measure(frame, "g", fl.rate("p")).estimates
    assert fl.certify(estimates, gap=0.2).certifiable == pytest.approx(first.certifiable)
    counted = frame.groupby("g").p
    assert fl.certify(fl.binomial(counted.sum(), counted.count()), gap=0.2).certifiable == pytest.approx(
        first.certifiable
    )
    assert fl.certify(frame, **asked, min_size=700).excluded == ()
    assert fl.certify(frame, **asked, against="2").against == "2"
    crossed = fl.certify(frame, ["g", "y"], fl.rate("p"), gap=0.2, against=(0, 1))
    assert crossed.against == fl.certify(frame, ["g", "y"], fl.rate("p"), gap=0.2, against="0 · 1").against == "0 · 1"
    assert len(crossed.groups) == 7


def test_as_data_and_text() -> None:
    certificate = fl.certify(RATES, gap=0.03)
    data = json.loads(certificate.to_json())
    assert data == json.loads(json.dumps(certificate.to_dict()))
    assert data["certifiable"] == certificate.certifiable
    assert [row["group"] for row in data["groups"]] == ["DE", "FR", "IT"]
    assert data["inconclusive"] == ["DE", "FR", "IT"]
    assert certificate.to_pandas().status.tolist() == ["inconclusive"] * 3
    assert str(pickle.loads(pickle.dumps(certificate))) == str(certificate)
    (note,) = [note for note in certificate.notes if note.code == "inconclusive groups"]
    assert note.fields == {"groups": 3}
    unbounded = fl.certify(fl.binomial([0, 500], [50, 1000]), gap=0.5, ratio=True, against="all pairs")
    assert json.loads(unbounded.to_json())["groups"][1]["upper"] is None
    assert "∞" in str(unbounded)
    many = fl.certify(fl.Estimates(np.zeros(60), np.ones(60)), gap=1)
    assert len(str(many).splitlines()) < 60
    with refused("out of range: indent"):
        certificate.to_json(indent=-1)


@pytest.mark.parametrize(
    "options",
    [
        {"gap": 0.06},
        {"gap": 0.06, "adverse": "low"},
        {"gap": 0.2, "against": "all pairs"},
        {"gap": 0.8, "ratio": True},
        {"gap": 0.8, "ratio": True, "adverse": "low", "against": "IT"},
    ],
)
def test_the_headline_begins_with_the_verdict(options: dict[str, Any]) -> None:
    certificate = fl.certify(RATES, **options)
    assert certificate.headline.startswith(f"{certificate.verdict.upper()}  ")
    assert certificate.headline == certificate.to_dict()["headline"]


@settings(max_examples=200, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(-1e-3, 1e-3), st.booleans())
def test_a_printed_bound_never_contradicts_its_limit(limit: float, away: float, up: bool) -> None:
    """A bound of 10.02 against a limit of 10 is not printed as 10: that the verdict has it otherwise would be odd."""
    value = limit * (1 + away)
    shown = float(rounded_like(value, limit, up=up))
    assert (shown > limit) == (value > limit)
    assert shown >= value * (1 - 1e-9) if up else shown <= value * (1 + 1e-9)
    assert shown == pytest.approx(value, rel=0.011)


def test_the_bound_that_is_printed_passes() -> None:
    """As reported: "cannot tell whether any is more than 10 points below … none is more than 10 points below"."""
    certificate = fl.certify(RATES, gap=0.03)
    printed = float(re.findall(r"Certifiable: ([\d.]+) points", certificate.headline)[0]) / 100
    assert fl.certify(RATES, gap=printed).verdict == "passed"
    close = fl.certify(RATES, gap=certificate.certifiable * 0.9999)
    assert close.verdict == "inconclusive"
    assert float(re.findall(r"Certifiable: ([\d.]+) points", close.headline)[0]) > 100 * close.gap


def test_the_gap_is_printed_as_it_was_asked() -> None:
    """As reported: "cannot tell … more than 10 points … none is more than 10 points", for a gap of 0.1002."""
    certificate = fl.certify(fl.Estimates([0.0, 0.0], [0.01] * 2), gap=0.123456)
    assert "0.123456" in certificate.headline
    assert "10.02 points" in fl.certify(RATES, gap=0.1002).headline


def test_a_gap_in_percent_is_refused_or_questioned() -> None:
    """As reported: --certify 2, meant as 2%, passed."""
    frame = rows()
    frame["s"] = frame.p * 0.6 + 0.2
    for metric in (fl.auc("y", "s"), fl.brier("y", "s"), fl.f1("y", "p"), fl.balanced_accuracy("y", "p")):
        with refused("out of range: gap"):
            fl.certify(frame, "g", metric, gap=2)
    for metric in (fl.calibration_gap("y", "s"), fl.paired(fl.accuracy("y", "p"), fl.accuracy("y", "y"))):
        with refused("out of range: gap"):
            fl.certify(frame, "g", metric, gap=2)
    difference = fl.difference("p", variant="arm", control="A")
    for metric in (difference, fl.mean("p")):
        for gap in (1.0, 2, 80):
            with refused("out of range: gap"):
                fl.certify(frame, "g", metric, gap=gap)
    assert "wide gap" not in {note.code for note in fl.certify(frame, "g", fl.mean("x"), gap=2).notes}
    lift = fl.lift("x", variant="arm", control="A")
    for gap, points in ((1, 0.01), (2, 0.02)):
        for metric in (lift, difference):
            with refused("out of range: gap") as caught:
                fl.certify(frame, "g", metric, gap=gap, against=0)
            assert caught.value.settings == {"gap": points}
    large = fl.Estimates([3.0, 2.9], [0.1, 0.1], ["A", "B"], [500, 500], percent=True)
    assert fl.certify(large, gap=1).verdict == "passed"


HIRES = pd.DataFrame({"g": ["A"] * 6000 + ["B"] * 4000, "hired": [1, 1, 1, 0, 0] * 1200 + [1] * 1800 + [0] * 2200})


@pytest.mark.parametrize(
    ("metric", "asked"),
    [
        (fl.selection_rate("hired"), {"gap": 0.8}),
        (fl.selection_rate("hired"), {"gap": 0.6}),
        (fl.selection_rate("hired"), {"gap": 0.61, "against": "highest"}),
        (fl.selection_rate("hired"), {"gap": 0.47, "adverse": "high"}),
        (fl.selection_rate("hired"), {"gap": 0.55, "adverse": None}),
        (fl.selection_rate("hired"), {"gap": 0.46, "against": "B"}),
        (fl.mean("hired"), {"gap": 0.6}),
    ],
)
def test_a_gap_that_no_group_can_exceed_is_refused(metric: fl.Metric, asked: Any) -> None:
    """As reported: A hires 60%, B 45%, and a gap of 0.8, meant as four fifths, passed."""
    with refused("out of range: gap") as caught:
        fl.certify(HIRES, "g", metric, **asked)
    assert ("ratio" in caught.value.settings) == (asked["gap"] > 0.5)
    assert fl.certify(HIRES, "g", metric, **asked | {"gap": 0.3}).verdict == "passed"


def test_what_is_missing_could_move_the_reference() -> None:
    """Labels where the model said yes: of all known negatives every one is a false positive, and of all others none."""
    frame = pd.DataFrame({"g": ["A", "B"] * 4000, "p": [1, 1, 0, 0] * 2000, "y": ([1] * 4 + [0] * 4) * 1000})
    metric = fl.false_positive_rate("y", "p")
    assert fl.certify(frame, "g", metric, gap=0.05).verdict == "passed"
    known = frame.assign(y=frame.y.where(frame.p == 1))
    certificate = fl.certify(known, "g", metric, gap=0.05)
    assert (certificate.verdict, certificate.reference_value) == ("inconclusive", 1.0)
    with refused("out of range: gap"):
        fl.certify(known, "g", metric, gap=0.05, missing="ignore")
    nobody = frame.assign(p=0)
    with refused("out of range: gap"):
        fl.certify(nobody, "g", fl.selection_rate("p"), gap=0.05)
    assert fl.certify(nobody, "g", fl.selection_rate("p"), gap=0.05, adverse=None).verdict == "passed"


def test_a_reference_is_a_value_that_a_share_can_have() -> None:
    for against in (60, -0.2):
        with refused("out of range: against"):
            fl.certify(HIRES, "g", fl.selection_rate("hired"), gap=0.1, against=against)


def test_the_overall_of_a_ranking_is_that_within_groups() -> None:
    frame = rows()
    frame["s"] = frame.p * 0.6 + 0.1 * frame.g
    certificate = fl.certify(frame, "g", fl.auc("y", "s"), gap=0.5)
    within = [group.estimate for group in certificate.groups]
    assert min(within) <= certificate.reference_value <= max(within)
    (note,) = [note for note in certificate.notes if note.code == "overall of groups"]
    area: Any = pytest.approx(roc_auc_score(frame.y, frame.s))
    assert certificate.in_all_rows == note.fields["in_all_rows"][0] == area
    assert certificate.to_dict()["in_all_rows"] == area
    clusters = fl.cluster(frame, "g", fl.auc("y", "s"))
    assert clusters.in_all_rows is not None
    assert clusters.in_all_rows[0] == area
    assert clusters.to_dict()["in_all_rows"] == fl.certify(clusters, gap=0.5).in_all_rows == area
    assert clusters.overall.observed == pytest.approx(certificate.reference_value)
    assert "overall of groups" in {note.code for note in clusters.notes}
    assert fl.cluster(frame, "g", fl.rate("y")).in_all_rows is None
    own = fl.certify(frame, "g", fl.auc("y", "s"), gap=0.5, against=0.6)
    assert own.groups[0].distance == pytest.approx(within[0] - 0.6)
    assert "overall of groups" not in {note.code for note in own.notes}
    assert "overall of groups" not in {note.code for note in fl.certify(RATES, gap=0.1).notes}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gap": -0.1}, "out of range: gap"),
        ({"gap": float("nan")}, "wrong type: gap"),
        ({"gap": "wide"}, "wrong type: gap"),
        ({"gap": None}, "wrong type: gap"),
        ({"gap": True}, "wrong type: gap"),
        ({"gap": 1.5}, "out of range: gap"),
        ({"gap": [0.1, 0.2]}, "mismatch: gap"),
        ({"gap": 1.2, "ratio": True}, "out of range: gap"),
        ({"gap": 0, "ratio": True}, "out of range: gap"),
        ({"ratio": "yes"}, "wrong type: ratio"),
        ({"adverse": "lo"}, "unknown: adverse"),
        ({"adverse": 1}, "unknown: adverse"),
        ({"adverse": "low", "against": "all pairs"}, "conflict: adverse"),
        ({"against": "XX"}, "not found: against"),
        ({"against": "overal"}, "not found: against"),
        ({"against": ["DE"]}, "not found: against"),
        ({"against": "highest", "adverse": "high"}, "conflict: adverse"),
        ({"against": "lowest", "adverse": "low"}, "conflict: adverse"),
        ({"alpha": 0}, "out of range: alpha"),
        ({"alpha": 1.5}, "out of range: alpha"),
        ({"seed": -1}, "out of range: seed"),
        ({"min_size": 5000}, "no groups: min_size"),
        ({"min_size": "x"}, "wrong type: min_size"),
        ({"by": "g"}, "conflict: by, metric"),
        ({"data": fl.cluster(FIVE), "min_size": 5}, "conflict: by, metric, min_size"),
        ({"data": 7}, "missing: data"),
        ({"data": fl.Estimates([1.0], [1.0])}, "no groups: data"),
        ({"data": FIVE, "ratio": True}, "unsupported: ratio"),
        ({"data": fl.Estimates([-1.0, 3.0], [1, 1]), "ratio": True}, "unsupported: ratio"),
        ({"data": fl.Estimates([0.1, 0.2], [1, 1]), "ratio": True}, "unsupported: ratio"),
        ({"data": fl.Estimates([0.1, 9], [1, 1]), "ratio": True, "against": "0"}, "unsupported: ratio"),
        ({"data": FIVE, "ratio": True, "against": 0}, "unsupported: ratio"),
        ({"data": fl.Estimates([3.0, 9], [1, 1]), "ratio": True, "against": 0}, "out of range: against"),
        ({"against": 0, "adverse": "low"}, "out of range: against"),
        ({"against": 1.0, "adverse": "high"}, "out of range: against"),
        ({"data": fl.binomial([5, 6], 10), "against": 0}, "ambiguous: against"),
        ({"data": fl.Estimates([3.0, 9], [1, 1]), "against": 1}, "ambiguous: against"),
        ({"against": math.nan}, "wrong type: against"),
        ({"against": True}, "not found: against"),
        ({"data": PAIR, "gap": [0.1, 1], "adverse": ["low"]}, "mismatch: adverse"),
        ({"data": PAIR, "gap": [0.1, 1], "adverse": ["low", "up"]}, "unknown: adverse"),
        ({"data": fl.binomial([0, 0], 50), "ratio": True}, "unsupported: ratio"),
        ({"data": PAIR}, "mismatch: gap"),
        ({"data": fl.Estimates(np.zeros(5001), np.ones(5001)), "against": "all pairs"}, "unsupported: against"),
        ({"data": fl.Estimates(np.zeros(5001), np.ones(5001)), "against": "lowest"}, "unsupported: against"),
        ({"data": fl.Similarity([[1.0], [2.0]], lambda a, b: np.ones(len(a)))}, "unsupported: data"),
    ],
)
def test_bad_input(options: dict[str, Any], words: str) -> None:
    asked: dict[str, Any] = {"data": RATES, "gap": 0.1} | options
    with refused(words):
        fl.certify(asked.pop("data"), **asked)


def test_ratios_of_lifts_are_refused() -> None:
    frame = rows()
    with refused("unsupported: ratio"):
        fl.certify(frame, "g", fl.lift("x", variant="arm", control="A"), gap=0.8, ratio=True)


def test_a_group_called_overall_can_be_the_reference() -> None:
    named = fl.Estimates([0.0, 1.0, 2.0], [0.1] * 3, ["overall", "b", "c"])
    assert len(fl.certify(named, gap=1).groups) == 3
    assert [group.label for group in fl.certify(named, gap=1, against=("overall",)).groups] == ["b", "c"]


def test_excluded_cells_of_margins_are_counted_once() -> None:
    frame = pd.DataFrame(
        {"c": ["x"] * 600 + ["y"] * 600 + ["z"] * 7, "d": ["p", "q"] * 603 + ["p"], "v": [0, 1, 1] * 402 + [0]}
    )
    certificate = fl.certify(frame, ["c", "d"], fl.rate("v"), gap=0.3, margins=True)
    assert {group.label for group in certificate.excluded} == {("z", "p"), ("z", "q")}
    (note,) = [note for note in certificate.notes if note.code == "excluded levels"]
    assert (note.fields["attribute"], note.fields["levels"], note.fields["n"]) == ("c", ["z"], 7)
