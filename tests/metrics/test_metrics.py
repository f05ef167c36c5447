"""Metrics against independent references: scikit-learn, statsmodels, tea-tasting, and plain bootstraps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
import tea_tasting as tt
from scipy import stats
from sklearn import metrics as sk

import faultlines as fl
from faultlines.estimates.reasons import RowWarning
from tests.refused import refused
from tests.single import own_errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from faultlines.metrics.readout import Readout

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}


def codes_of(readout: Readout) -> list[str]:
    """What a measurement warns of."""
    return [warning.code for warning in readout.warnings if isinstance(warning, RowWarning)]


def rows(size: int = 6000, groups: int = 4, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    arm = rng.choice(["A", "B"], size)
    before = rng.lognormal(1, 0.6, size)
    visits = rng.poisson(4, size) + 1
    truth = (rng.random(size) < 0.35).astype(int)
    score = np.clip(0.4 + 0.25 * truth + 0.2 * rng.standard_normal(size), 0.001, 0.999)
    return pd.DataFrame(
        {
            "g": rng.integers(0, groups, size),
            "arm": arm,
            "before": before,
            "revenue": before * np.where(arm == "B", 1.08, 1.0) + rng.exponential(1, size),
            "visits": visits,
            "clicks": rng.binomial(visits, np.where(arm == "B", 0.34, 0.3)),
            "w": rng.uniform(0.2, 4, size),
            "truth": truth,
            "score": np.round(score, 2),
            "pred": (score >= 0.5).astype(int),
        }
    )


ROWS = rows()
CLASSIFIER: dict[str, Callable[[pd.DataFrame], float]] = {
    "selection_rate": lambda d: d.pred.mean(),
    "true_positive_rate": lambda d: sk.recall_score(d.truth, d.pred),
    "false_negative_rate": lambda d: 1 - sk.recall_score(d.truth, d.pred),
    "true_negative_rate": lambda d: sk.recall_score(d.truth, d.pred, pos_label=0),
    "false_positive_rate": lambda d: 1 - sk.recall_score(d.truth, d.pred, pos_label=0),
    "precision": lambda d: sk.precision_score(d.truth, d.pred),
    "negative_predictive_value": lambda d: sk.precision_score(d.truth, d.pred, pos_label=0),
    "accuracy": lambda d: sk.accuracy_score(d.truth, d.pred),
    "error_rate": lambda d: 1 - sk.accuracy_score(d.truth, d.pred),
}


@pytest.mark.parametrize("name", CLASSIFIER)
@pytest.mark.parametrize("by_score", [False, True])
def test_classifier_rates_are_scikit_learns(name: str, by_score: bool) -> None:
    columns: dict[str, Any] = {"score": "score", "threshold": 0.5} if by_score else {"y_pred": "pred"}
    data = ROWS.assign(pred=(ROWS.score >= 0.5).astype(int)) if by_score else ROWS
    metric = getattr(fl, name)(**({} if name == "selection_rate" else {"y_true": "truth"}), **columns)
    estimates = fl.measure(data, "g", metric).estimates
    expected = [CLASSIFIER[name](part) for _, part in data.groupby("g")]
    np.testing.assert_allclose(estimates.natural, expected, rtol=1e-12)
    assert estimates.metric == name.replace("_", " ")


@pytest.mark.parametrize(
    ("metric", "reference"),
    [
        (fl.auc("truth", "score"), lambda d: sk.roc_auc_score(d.truth, d.score)),
        (fl.log_loss("truth", "score"), lambda d: sk.log_loss(d.truth, d.score)),
        (fl.brier("truth", "score"), lambda d: sk.brier_score_loss(d.truth, d.score)),
        (fl.calibration_gap("truth", "score"), lambda d: d.score.mean() - d.truth.mean()),
        (fl.mean_error("revenue", "before"), lambda d: (d.before - d.revenue).mean()),
        (fl.mean_absolute_error("revenue", "before"), lambda d: sk.mean_absolute_error(d.revenue, d.before)),
        (fl.mean_squared_error("revenue", "before"), lambda d: sk.mean_squared_error(d.revenue, d.before)),
        (fl.accuracy("truth", "pred", weight="w"), lambda d: sk.accuracy_score(d.truth, d.pred, sample_weight=d.w)),
        (fl.brier("truth", "score", weight="w"), lambda d: sk.brier_score_loss(d.truth, d.score, sample_weight=d.w)),
        (fl.mean("revenue", weight="w"), lambda d: np.average(d.revenue, weights=d.w)),
        (fl.ratio("clicks", "visits"), lambda d: d.clicks.sum() / d.visits.sum()),
        (fl.ratio("clicks", "visits", weight="w"), lambda d: (d.w * d.clicks).sum() / (d.w * d.visits).sum()),
    ],
    ids=lambda value: value.name if isinstance(value, fl.Metric) else "",
)
def test_values_and_standard_errors(metric: fl.Metric, reference: Callable[[pd.DataFrame], float]) -> None:
    """Values against a reference, standard errors against a bootstrap of it."""
    estimates = fl.measure(ROWS, "g", metric).estimates
    parts = [part for _, part in ROWS.groupby("g")]
    np.testing.assert_allclose(estimates.natural, [reference(part) for part in parts], rtol=1e-9)
    rng = np.random.default_rng(0)
    part = parts[0]
    draws = [reference(part.iloc[rng.integers(0, len(part), len(part))]) for _ in range(300)]
    se = own_errors(ROWS, metric).se * estimates.scale.slope(estimates.theta)
    assert se[0] == pytest.approx(np.std(draws), rel=0.17)


def test_delong_variance_is_that_of_the_definition() -> None:
    part = ROWS[ROWS.g == 0]
    positive, negative = part.score[part.truth == 1].to_numpy(), part.score[part.truth == 0].to_numpy()
    wins = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    variance = wins.mean(axis=1).var(ddof=1) / len(positive) + wins.mean(axis=0).var(ddof=1) / len(negative)
    estimates = fl.measure(ROWS, "g", fl.auc("truth", "score")).estimates
    assert estimates.theta[0] == pytest.approx(wins.mean(), rel=1e-12)
    assert own_errors(ROWS, fl.auc("truth", "score")).se[0] == pytest.approx(np.sqrt(variance), rel=1e-12)
    binned = fl.measure(ROWS, "g", fl.auc("truth", "score", bins=1000)).estimates
    assert binned.theta[0] == pytest.approx(wins.mean(), abs=0.002)
    assert "1000 bins" in binned.metric


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda m, k: m("revenue", **k), lambda c: tt.Mean("revenue", covariate=c)),
        (
            lambda m, k: {fl.lift: fl.ratio_lift, fl.difference: fl.ratio_difference}[m]("clicks", "visits", **k),
            lambda c: tt.RatioOfMeans("clicks", "visits", numer_covariate=c),
        ),
    ],
    ids=["mean", "ratio"],
)
@pytest.mark.parametrize("covariate", [None, "before"])
def test_experiments_agree_with_tea_tasting(ours: Any, theirs: Any, covariate: str | None) -> None:
    options = {**ARMS, "covariate": covariate}
    absolute = fl.measure(ROWS, "g", ours(fl.difference, options)).estimates
    relative = fl.measure(ROWS, "g", ours(fl.lift, options)).estimates
    own = own_errors(ROWS, ours(fl.difference, options))
    for i, (_, part) in enumerate(ROWS.groupby("g")):
        result = tt.Experiment({"m": theirs(covariate)}, variant="arm").analyze(part.assign(arm=part.arm == "B"))["m"]
        width = result.effect_size_ci_upper - result.effect_size_ci_lower
        tolerance = 1e-9 if covariate is None else 2e-3
        assert absolute.theta[i] == pytest.approx(result.effect_size, rel=tolerance)
        t = sm.stats.stattools.stats.t.ppf(0.975, own.dof[i])
        assert 2 * t * own.se[i] == pytest.approx(width, rel=max(tolerance, 1e-6))
        assert relative.natural[i] == pytest.approx(result.rel_effect_size, rel=tolerance)
        assert relative.theta[i] == pytest.approx(np.log1p(result.rel_effect_size), rel=2 * tolerance)


def test_difference_is_welchs_t_test() -> None:
    estimates = fl.measure(ROWS, "g", fl.difference("revenue", **ARMS)).estimates
    own = own_errors(ROWS, fl.difference("revenue", **ARMS))
    for i, (_, part) in enumerate(ROWS.groupby("g")):
        control, treated = part.revenue[part.arm == "A"], part.revenue[part.arm == "B"]
        welch = sm.stats.CompareMeans.from_data(treated, control)
        assert estimates.theta[i] == pytest.approx(treated.mean() - control.mean(), rel=1e-12)
        assert own.se[i] == pytest.approx(welch.std_meandiff_separatevar, rel=1e-12)
        assert own.dof[i] == pytest.approx(welch.dof_satt(), rel=1e-9)


@pytest.mark.parametrize("covariate", [None, "before"])
@pytest.mark.parametrize("weight", [None, "w"])
def test_lift_errors_against_a_bootstrap(covariate: str | None, weight: str | None) -> None:
    """The whole estimator again on resampled rows, by our own point estimate only."""
    part = ROWS[ROWS.g == 1]
    metric = fl.lift("revenue", covariate=covariate, weight=weight, **ARMS)
    estimates = fl.measure(part, "g", metric).estimates
    rng = np.random.default_rng(1)
    stacked = pd.concat(
        [part.iloc[rng.integers(0, len(part), len(part))].assign(g=i) for i in range(300)], ignore_index=True
    )
    draws = fl.measure(stacked, "g", metric).estimates.theta
    assert estimates.se[0] == pytest.approx(np.std(draws), rel=0.15)


def test_cuped_narrows_and_does_not_move() -> None:
    plain = fl.measure(ROWS, "g", fl.difference("revenue", **ARMS)).estimates
    adjusted = fl.measure(ROWS, "g", fl.difference("revenue", covariate="before", **ARMS)).estimates
    assert np.all(adjusted.se < 0.75 * plain.se)
    assert np.all(np.abs(adjusted.theta - plain.theta) < 4 * plain.se)


def test_units_are_summed_first() -> None:
    rng = np.random.default_rng(2)
    users = pd.DataFrame({"user": np.arange(800), "g": np.arange(800) % 4, "arm": rng.choice(["A", "B"], 800)})
    sessions = users.loc[users.index.repeat(rng.integers(1, 6, 800))].reset_index(drop=True)
    sessions["spend"] = rng.exponential(5, len(sessions))
    summed = sessions.groupby(["user", "g", "arm"], as_index=False)["spend"].sum()
    by_unit = fl.measure(sessions, "g", fl.difference("spend", unit="user", **ARMS)).estimates
    direct = fl.measure(summed, "g", fl.difference("spend", **ARMS)).estimates
    np.testing.assert_allclose(by_unit.theta, direct.theta, rtol=1e-9)
    np.testing.assert_allclose(by_unit.se, direct.se, rtol=1e-9)
    assert by_unit.n is not None
    assert by_unit.n.sum() == 800


@pytest.mark.parametrize("weight", [None, "w"])
def test_variances_survive_a_mean_of_a_million(weight: str | None) -> None:
    """Means a million apart and more, standard deviation one: sums of squares would lose every digit."""
    rng = np.random.default_rng(3)
    size = 40_000
    group = rng.integers(0, 4, size)
    noise, w = rng.standard_normal(size), rng.uniform(0.5, 2, size)
    data = pd.DataFrame({"g": group, "x": 1e6 + 1e5 * group + noise, "w": w})
    centred = data.assign(x=1e5 * group + noise)
    estimates, expected = (fl.measure(d, "g", fl.mean("x", weight=weight)).estimates for d in (data, centred))
    np.testing.assert_allclose(estimates.se, expected.se, rtol=1e-6)
    np.testing.assert_allclose(estimates.theta - 1e6, expected.theta, atol=1e-6)


def moments_of(data: pd.DataFrame, by: list[str], value: str = "revenue") -> pd.DataFrame:
    """A table of counts and moments, as a warehouse would keep it."""
    return (
        data.groupby(by)[value]
        .agg(
            n="count",
            mean="mean",
            total="sum",
            variance="var",
            squares=lambda x: (x**2).sum(),
            skewness=stats.skew,
            kurtosis=lambda x: stats.kurtosis(x, fisher=False),
        )
        .reset_index()
    )


@pytest.mark.parametrize("by", [[], ["day"]], ids=["one row per arm", "daily"])
def test_aggregates_equal_their_rows(by: list[str]) -> None:
    """With their shape in all things; without it in those of a group alone."""
    data = ROWS.assign(day=np.arange(len(ROWS)) % 7)
    table, shape = moments_of(data, ["g", "arm", *by]), {"skewness": "skewness", "kurtosis": "kurtosis"}
    metric = fl.lift("revenue", **ARMS)
    of_rows = fl.measure(data, "g", metric)
    for spread in ({"mean": "mean", "variance": "variance"}, {"sum": "total", "sum_squares": "squares"}):
        shaped = fl.measure(table, "g", fl.lift(fl.aggregated("n", **spread, **shape), **ARMS))
        for name in ("theta", "se", "dof", "values", "natural"):
            expected = getattr(of_rows.estimates, name)
            np.testing.assert_allclose(getattr(shaped.estimates, name), expected, rtol=1e-9, err_msg=name)
        assert shaped.readout is not None
        assert "assumed shape" not in codes_of(shaped.readout)
        plain = fl.lift(fl.aggregated("n", **spread), **ARMS)
        measurement = fl.measure(table, "g", plain)
        np.testing.assert_allclose(measurement.estimates.theta, of_rows.estimates.theta, rtol=1e-10)
        assert measurement.readout is not None
        assert "assumed shape" in codes_of(measurement.readout)
        np.testing.assert_allclose(own_errors(table, plain).se, own_errors(data, metric).se, rtol=1e-8)
    means = fl.mean(fl.aggregated("n", mean="mean", variance="variance", **shape))
    again = fl.measure(moments_of(data, ["g", *by]), "g", means).estimates
    np.testing.assert_allclose(again.se, fl.measure(data, "g", fl.mean("revenue")).estimates.se, rtol=1e-9)


def test_yes_no_values_are_seen_by_their_variance() -> None:
    """A table of yes/no values needs no shape to be the same as its rows."""
    data = ROWS.assign(bought=(ROWS.visits > 6).astype(float))
    table = moments_of(data, ["g", "arm"], "bought")
    for spread in ({"mean": "mean", "variance": "variance"}, {"sum": "total", "sum_squares": "squares"}):
        measurement = fl.measure(table, "g", fl.difference(fl.aggregated("n", **spread), **ARMS))
        of_rows = fl.measure(data, "g", fl.difference("bought", **ARMS)).estimates
        for name in ("theta", "se", "dof", "values"):
            np.testing.assert_allclose(
                getattr(measurement.estimates, name), getattr(of_rows, name), rtol=1e-9, err_msg=name
            )
        assert measurement.readout is not None
        assert "assumed shape" in codes_of(measurement.readout)


def test_rates_are_reported_as_rates() -> None:
    data = pd.DataFrame({"g": np.repeat(["a", "b", "c", "d"], 400), "x": 0})
    for group, share in zip("abcd", (0.05, 0.06, 0.4, 0.42), strict=True):
        data.loc[data.index[data.g == group][: int(400 * share)], "x"] = 1
    result = fl.cluster(data, by="g", metric=fl.rate("x"))
    assert result.n_clusters == 2
    several: tuple[Any, ...] = result.clusters
    low, high = several
    assert low.estimate == pytest.approx(0.055)  # 44 of 800
    assert high.estimate == pytest.approx(0.41)
    assert 0 < low.ci[0] < 0.055 < low.ci[1] < 0.1
    assert result.to_dicts()[0]["estimate"] == pytest.approx(0.05)
    assert (result.verdict, result.estimates.metric) == ("differ", "rate of x")


def test_equalized_odds_has_two_dimensions() -> None:
    estimates = fl.measure(ROWS, "g", fl.equalized_odds("truth", "pred")).estimates
    assert estimates.theta.shape == (4, 2)
    for i, name in enumerate(("true_positive_rate", "false_positive_rate")):
        alone = fl.measure(ROWS, "g", getattr(fl, name)("truth", "pred")).estimates
        np.testing.assert_allclose(estimates.theta[:, i], alone.theta)
        np.testing.assert_allclose(estimates.se[:, i], alone.se)
    clustered = fl.cluster(ROWS, by="g", metric=fl.equalized_odds("truth", "pred"))
    assert (clustered.verdict, clustered.estimates.metric) == ("no difference", "equalized odds")
    both: Any = clustered.clusters[0].estimate
    assert len(both) == 2
    assert {"estimate_true_positive_rate", "se_false_positive_rate"} <= clustered.to_dicts()[0].keys()


def test_a_metric_of_ones_own() -> None:
    """Products of columns, and any function of their moments."""

    def correlation(m: Any) -> Any:
        from faultlines.metrics.base import Measured

        r = m.cov[:, 0, 0, 1] / np.sqrt(m.cov[:, 0, 0, 0] * m.cov[:, 0, 1, 1])
        n = m.n[:, 0, 0]
        return Measured(np.arctanh(r), 1 / np.sqrt(n - 3), None, n, r, np.full(len(n), "", dtype=object))

    own = fl.Metric(
        "correlation",
        {"a": fl.Input("revenue"), "b": fl.Input("before")},
        lambda c: {"a": c["a"], "b": c["b"]},
        correlation,
    )
    estimates = fl.measure(ROWS, "g", own).estimates
    expected = [part.revenue.corr(part.before) for _, part in ROWS.groupby("g")]
    np.testing.assert_allclose(np.tanh(estimates.theta), expected, rtol=1e-9)


def test_a_billion_rows_keep_their_digits() -> None:
    """Days of a hundred million rows each, mean a million, variance one: pooled without losing the variance."""
    days = pd.DataFrame(
        {"g": np.repeat(["a", "b"], 10), "n": 10**8, "mean": 1e6 + np.tile(np.arange(10) / 10, 2), "v": 1.0}
    )
    estimates = fl.measure(days, "g", fl.mean(fl.aggregated("n", mean="mean", variance="v"))).estimates
    between = np.var(np.arange(10) / 10)
    assert estimates.theta[0] == pytest.approx(1e6 + 0.45, rel=1e-15)
    assert estimates.se[0] == pytest.approx(np.sqrt((1 + between) / 1e9), rel=1e-6)


@pytest.mark.parametrize("arms", [("A", "B"), (0, 1), (False, True), (0.0, 1.0)])
def test_variants_of_any_type(arms: tuple[Any, Any]) -> None:
    rng = np.random.default_rng(0)
    coded = np.array(arms, dtype=object if isinstance(arms[0], str) else None)[rng.integers(0, 2, 400)]
    data = pd.DataFrame({"g": "a", "arm": coded, "x": rng.standard_normal(400), "u": np.arange(400)})
    for frame in (data, pl.from_pandas(data)):
        for control in (arms[0], str(arms[0])):
            estimates = fl.measure(frame, "g", fl.difference("x", variant="arm", control=control, unit="u")).estimates
            expected = data.x[data.arm == arms[1]].mean() - data.x[data.arm == arms[0]].mean()
            assert estimates.theta[0] == pytest.approx(expected)


JOINT: dict[str, tuple[fl.Metric, ...]] = {
    "two differences": (fl.difference("revenue", **ARMS), fl.difference("clicks", **ARMS)),
    "difference and lift": (fl.difference("before", **ARMS), fl.lift("revenue", **ARMS)),
    "lift and ratio": (fl.lift("revenue", **ARMS), fl.ratio_lift("clicks", "visits", **ARMS)),
    "with a covariate": (
        fl.difference("revenue", covariate="before", **ARMS),
        fl.difference("clicks", covariate="before", **ARMS),
    ),
    "rates of other rows": (
        fl.true_positive_rate("truth", "pred"),
        fl.precision("truth", "pred"),
        fl.accuracy("truth", "pred"),
    ),
    "weighted": (fl.mean("revenue", weight="w"), fl.mean("visits", weight="w"), fl.rate("truth", weight="w")),
    "mean and ratio": (fl.mean("revenue"), fl.ratio("clicks", "visits")),
}


@pytest.mark.parametrize("name", JOINT)
def test_joint_metrics_are_correlated_as_a_bootstrap_says(name: str) -> None:
    data = rows(size=800, groups=1, seed=3)
    metrics = JOINT[name]
    estimates = fl.measure(data, "g", fl.joint(*metrics)).estimates
    for i, metric in enumerate(metrics):
        alone = fl.measure(data, "g", metric).estimates
        assert estimates.theta[0, i] == pytest.approx(alone.theta[0])
        assert estimates.se[0, i] == pytest.approx(alone.se[0])
        assert estimates.natural[0, i] == pytest.approx(alone.natural[0])
    assert estimates.effect_covariance is not None
    correlation = estimates.effect_covariance[0] / np.outer(estimates.se[0], estimates.se[0])
    # 300 resamples at once: each is a group of its own.
    rng = np.random.default_rng(0)
    resampled = pd.concat([data.iloc[rng.integers(0, 800, 800)].assign(g=i) for i in range(300)])
    again = fl.measure(resampled, "g", fl.joint(*metrics)).estimates.theta
    np.testing.assert_allclose(correlation, np.corrcoef(again.T), atol=0.16)
    if name in {"difference and lift", "rates of other rows"}:
        assert np.abs(correlation - np.eye(len(metrics))).max() > 0.4


def test_joint_metrics_of_units_and_of_disjoint_rows() -> None:
    data = ROWS.assign(user=np.arange(len(ROWS)) // 3)
    data["arm"] = np.where(data.user % 2, "A", "B")
    data["g"] = data.user % 4 // 2
    pair = fl.joint(fl.difference("revenue", unit="user", **ARMS), fl.difference("visits", unit="user", **ARMS))
    estimates = fl.measure(data, "g", pair).estimates
    own = own_errors(data, pair)
    units = data.groupby(["g", "arm", "user"])[["revenue", "visits"]].sum().reset_index()
    for g in (0, 1):
        parts = [units[(units.g == g) & (units.arm == arm)] for arm in "AB"]
        expected = sum(p[["revenue", "visits"]].cov().to_numpy() / len(p) for p in parts)
        np.testing.assert_allclose(own.effect_covariance[g], expected, rtol=1e-5)
        means = [p[["revenue", "visits"]].mean().to_numpy() for p in parts]
        np.testing.assert_allclose(estimates.theta[g], means[1] - means[0], rtol=1e-9)
    odds = fl.measure(ROWS, "g", fl.equalized_odds("truth", "pred")).estimates
    same = fl.measure(
        ROWS, "g", fl.joint(fl.true_positive_rate("truth", "pred"), fl.false_positive_rate("truth", "pred"))
    ).estimates
    np.testing.assert_allclose(same.theta, odds.theta)
    assert same.effect_covariance is not None
    np.testing.assert_allclose(same.effect_covariance, odds.se[:, :, None] ** 2 * np.eye(2), atol=1e-12)


def test_joint_metrics_cluster_where_neither_does() -> None:
    """Two outcomes that each shift by little in some groups; together they tell them apart."""
    rng = np.random.default_rng(5)
    size = 12_000
    group = rng.integers(0, 12, size)
    shift = np.where(group < 6, 0.0, 0.12)
    common = rng.standard_normal(size)
    data = pd.DataFrame({"g": group, "a": common + shift, "b": common * 0.95 + 0.3 * rng.standard_normal(size) - shift})
    result = fl.cluster(data, by="g", metric=fl.joint(fl.mean("a"), fl.mean("b")))
    assert result.n_clusters == 2
    assert result.labels.tolist() == [1] * 6 + [2] * 6
    assert result.estimates.parts == ("mean of a", "mean of b")
    assert {"estimate_mean_of_a", "ci_upper_mean_of_b"} <= result.to_dicts("clusters")[0].keys()
    assert result.log_pvalue < fl.cluster(data, by="g", metric=fl.mean("a")).log_pvalue


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: fl.joint(fl.mean("a")), "too few: metrics"),
        (lambda: fl.joint(fl.mean("a"), "b"), "too few: metrics"),  # type: ignore[arg-type]
        (lambda: fl.joint(fl.mean("a"), fl.mean("a")), "duplicate: metrics"),
        (lambda: fl.joint(fl.mean("a"), fl.difference("b", **ARMS)), "mismatch: metrics"),
        (lambda: fl.joint(fl.mean("a"), fl.auc("t", "s")), "unsupported: metric"),
        (lambda: fl.joint(fl.mean("a"), fl.equalized_odds("t", "p")), "unsupported: metric"),
        (lambda: fl.joint(fl.mean(fl.aggregated("n", mean="m", variance="v")), fl.mean("a")), "unsupported: metric"),
        (lambda: fl.measure(ROWS, "g", fl.joint(fl.mean("revenue"), fl.mean("revenu"))), "column not found: value"),
    ],
)
def test_metrics_that_cannot_be_joined(make: Any, words: str) -> None:
    with refused(words):
        make()


def test_metrics_that_determine_each_other_are_left_out() -> None:
    data = ROWS.assign(twice=2 * ROWS.revenue)
    with refused("no groups: by"):
        fl.measure(data, "g", fl.joint(fl.mean("revenue"), fl.mean("twice")))


def test_lifts_are_compared_by_their_ratio_and_read_as_lifts() -> None:
    result = fl.cluster(ROWS, by="g", metric=fl.lift("revenue", **ARMS), tolerance=0.05)
    assert result.tolerance == pytest.approx(0.05)
    assert result.verdict == "no difference"
    estimates = result.estimates
    assert estimates.natural == pytest.approx(np.expm1(estimates.theta))
    rows = result.to_dicts()
    assert [row["se"] for row in rows] == pytest.approx((estimates.se * np.exp(estimates.theta)).tolist())
    pooled: Any = result.overall
    arms = ROWS.groupby("arm")["revenue"].mean()
    assert pooled.estimate == pytest.approx(arms["B"] / arms["A"] - 1, rel=1e-12)
    assert pooled.ci[0] < pooled.estimate < pooled.ci[1]
    # Symmetric in the ratio, not in the lift.
    assert (1 + pooled.ci[1]) / (1 + pooled.estimate) == pytest.approx((1 + pooled.estimate) / (1 + pooled.ci[0]))


def test_means_near_zero_have_no_lift_whichever_arm_it_is() -> None:
    events = {"plenty": (60, 60), "collapsed": (60, 6), "none": (60, 0), "from nothing": (1, 60), "rare": (20, 20)}
    rows = [
        {"g": g, "arm": arm, "x": float(i < count)}
        for g, counts in events.items()
        for arm, count in zip("AB", counts, strict=True)
        for i in range(200)
    ]
    measurement = fl.measure(pd.DataFrame(rows), "g", fl.lift("x", **ARMS))
    assert list(measurement.estimates.labels) == [
        "collapsed",
        "plenty",
    ]  # a treatment that breaks things is not left out
    assert measurement.estimates.natural[0] == pytest.approx(-0.9)
    near = {left.label: (left.code, left.reason.arm, left.reason.least) for left in measurement.excluded}
    assert near == {
        "none": ("mean near zero", "treatment", 2),
        "from nothing": ("mean near zero", "control", 2),
        "rare": ("mean near zero", "both", 7),
    }


@pytest.mark.parametrize("engine", [pd.DataFrame, pl.DataFrame])
def test_a_threshold_of_probabilities_is_questioned_for_scores_that_are_none(engine: Any) -> None:
    rng = np.random.default_rng(5)
    share = rng.random(400)
    rows = {"g": rng.choice(["a", "b"], 400), "y": (rng.random(400) < share).astype(int), "s": share}
    for make in (partial(fl.true_positive_rate, "y"), fl.selection_rate):
        expected = fl.measure(engine(rows), by="g", metric=make(score="s", threshold=0.5)).estimates.natural
        percent = engine(rows | {"s": 100 * share})
        with refused("mismatch: score"):
            fl.measure(percent, by="g", metric=make(score="s", threshold=0.5))
        same = fl.measure(percent, by="g", metric=make(score="s", threshold=50))
        with refused("mismatch: score"):  # which predicts 0 everywhere, so that any gap would be certified
            fl.certify(engine(rows), "g", make(score="s", threshold=50), gap=0.02)
        odds = fl.measure(engine(rows | {"s": 4 * share - 1.5}), by="g", metric=make(score="s", threshold=0.5))
        assert np.array_equal(same.estimates.natural, expected)
        assert np.array_equal(odds.estimates.natural, expected)  # log odds may be anything


def test_a_measurement_reads_in_one_line() -> None:
    rows = pd.DataFrame({"g": ["a"] * 20 + ["b"] * 20 + ["c"], "x": [*np.arange(40.0), np.nan]})
    measurement = fl.measure(rows, "g", fl.mean("x"))
    assert repr(measurement) == str(measurement) == "Measurement(2 groups by g, 1 excluded, 1 row dropped)"
