"""False positives when estimates come from rows: rates on Anscombe's scale, differences and lifts of skewed values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from docs.figures import record_figure
from tests.statistical.tally import level_bound, scale_runs
from tests.statistical.worlds import measure_moments, measure_rows

pytestmark = pytest.mark.statistical
RUNS, GROUPS = scale_runs(1200), 100


def share_rejected(data_sets: list[fl.Estimates]) -> float:
    """The share of data sets in which a difference is reported."""
    results = [fl.cluster(data, guarantee=fl.Calibrated(draws=199), seed=i) for i, data in enumerate(data_sets)]
    return float(np.mean([result.rejected for result in results]))


def rates(share: float, smallest: int, largest: int, *, wald: bool) -> list[fl.Estimates]:
    """Many data sets at once: the moments of a 0/1 column are its count and mean, so rows need not be written out."""
    rng = np.random.default_rng(int(1000 * share) + smallest)
    data_sets = []
    for _ in range(RUNS):
        n = np.exp(rng.uniform(math.log(smallest), math.log(largest), GROUPS)).round()
        mean = rng.binomial(n.astype(int), share) / n
        if wald:
            usable = (mean > 0) & (mean < 1)
            data_sets.append(fl.Estimates(mean[usable], np.sqrt(mean * (1 - mean) / n)[usable]))
        else:
            data_sets.append(measure_moments(fl.rate("x"), moments_of_rates(n, mean)).estimates)
    return data_sets


def moments_of_rates(n: np.ndarray, mean: np.ndarray) -> fl.Moments:
    """The moments of 0/1 columns, of which a rate needs the counts and means alone."""
    return fl.Moments(n[:, None, None], mean[:, None, None], np.zeros((n.size, 1, 1, 1)))


@pytest.mark.parametrize(("smallest", "largest"), [(40, 60), (50, 3000)])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_rates_do_not_report_too_often(share: float, smallest: int, largest: int) -> None:
    ours = share_rejected(rates(share, smallest, largest, wald=False))
    usual = share_rejected(rates(share, smallest, largest, wald=True))
    where = f"rates; {share:.0%}, {smallest}–{largest:,} rows"
    record_figure("rows", f"{where}; faultlines", ours, RUNS)
    record_figure("rows", f"{where}; with √(p(1 − p)/n)", usual, RUNS)
    assert ours <= level_bound(0.05, RUNS)


def test_the_usual_standard_error_of_a_rare_event_reports_far_too_often() -> None:
    usual = share_rejected(rates(0.1, 40, 60, wald=True))
    assert usual > 0.4


def test_rows_really_written_out_agree() -> None:
    """The short cut above against the whole way through the engine."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(40, 60, GROUPS)
    data = pd.DataFrame({"g": np.repeat(np.arange(GROUPS), sizes), "x": (rng.random(sizes.sum()) < 0.1).astype(int)})
    through = fl.measure(data, "g", fl.rate("x")).estimates
    grouped = data.groupby("g")["x"]
    n, mean = grouped.count().to_numpy(float), grouped.mean().to_numpy()
    short = measure_moments(fl.rate("x"), moments_of_rates(n, mean)).estimates
    np.testing.assert_allclose(through.theta, short.theta)
    np.testing.assert_allclose(through.se, short.se)
    # What is compared, with its degrees of freedom, is not public: the same p says that it is the same.
    assert fl.cluster(through).pvalue == pytest.approx(fl.cluster(short).pvalue, rel=1e-9)


@pytest.mark.parametrize("kind", ["difference", "lift"])
@pytest.mark.parametrize("groups", [21, 100])
def test_skewed_revenue_is_reported(kind: str, groups: int) -> None:
    """Log-normal values, 200 rows an arm: far from normal, so this is measured and bounded, not promised."""
    rng = np.random.default_rng(groups)
    metric = getattr(fl, kind)("x", variant="arm", control=0)
    estimates = []
    for _ in range(scale_runs(600)):
        x = rng.lognormal(0.0, 1.0, groups * 2 * 200)
        rows = {"g": np.repeat(np.arange(groups), 400), "arm": np.tile(np.repeat([0, 1], 200), groups), "x": x}
        estimates.append(measure_rows(metric, rows).estimates)
    rate = share_rejected(estimates)
    record_figure("rows", f"lognormal revenue, 200 rows an arm; {kind}; {groups} groups", rate, len(estimates))
    assert rate <= level_bound(0.05, len(estimates))


@pytest.mark.parametrize(
    ("kind", "groups", "rows"), [("revenue", 180, 400), ("revenue", 450, 150), ("converted", 180, 800)]
)
def test_lifts_of_small_unequal_groups_report_little_and_are_not_biased(kind: str, groups: int, rows: int) -> None:
    """Groups as unequal as countries, nothing differs: false positives, and the pooled lift, which should be zero."""
    rng = np.random.default_rng(groups)
    metric = fl.lift("x", variant="arm", control=0)
    reported, pooled = [], []
    for _ in range(scale_runs(300)):
        sizes = np.maximum(rng.lognormal(np.log(rows), 0.7, groups).astype(int), 40)
        g = np.repeat(np.arange(groups), 2 * sizes)
        x = (rng.random(g.size) < (0.2 if kind == "revenue" else 0.04)).astype(float)
        x = x * rng.lognormal(3.0, 0.8, g.size) if kind == "revenue" else x
        estimates = measure_rows(metric, {"g": g, "arm": np.arange(g.size) % 2, "x": x}).estimates
        reported.append(estimates)
        pooled.append(float(np.expm1(np.average(estimates.theta, weights=estimates.se**-2.0))))
    rate, bias, error = share_rejected(reported), np.mean(pooled), np.std(pooled) / len(pooled) ** 0.5
    print(f"pooled {bias:+.4f} ± {error:.4f}")
    record_figure("rows", f"lifts of small unequal groups; {kind}, {groups} groups, {rows} an arm", rate, len(reported))
    # Lifts of a conversion of 4% in small groups: .09 of 300 data sets, which docs/guarantees.md names.
    assert rate <= level_bound(0.08 if kind == "converted" else 0.05, len(reported))
    assert abs(bias) < 4 * error + 0.002


@pytest.mark.parametrize("kind", ["weights", "covariate"])
def test_weights_and_covariates_keep_the_level(kind: str) -> None:
    """Few rows, very unequal weights (log-normal, σ = 1) or a useless covariate: the degrees of freedom must know."""
    rng = np.random.default_rng(11)
    groups, rows, estimates = 40, 30, []
    options: dict[str, Any] = {"weight": "w"} if kind == "weights" else {"covariate": "w"}
    metric = fl.difference("x", variant="arm", control="A", **options)
    for _ in range(scale_runs(400)):
        data = pd.DataFrame(
            {
                "g": np.repeat(np.arange(groups), 2 * rows),
                "arm": np.tile(np.repeat(["A", "B"], rows), groups),
                "x": rng.standard_normal(2 * rows * groups),
                "w": rng.lognormal(0, 1, 2 * rows * groups),
            }
        )
        estimates.append(fl.measure(data, "g", metric).estimates)
    rate = share_rejected(estimates)
    record_figure("rows", f"difference; {kind}, {rows} rows an arm, {groups} groups", rate, len(estimates))
    # Weights as unequal as these leave the few rows of a group hardly more than ten: .08 of 400 data sets.
    assert rate <= level_bound(0.07 if kind == "weights" else 0.05, len(estimates))
