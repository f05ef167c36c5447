"""False positives when estimates come from rows: rates on Anscombe's scale, differences and lifts of skewed values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from docs.figures import record_figure
from faultlines.estimates.reasons import unmarked
from tests.statistical.tally import scale_runs

pytestmark = pytest.mark.statistical
RUNS, GROUPS = scale_runs(1200), 100


def claims(estimates: list[fl.Estimates], seed: int = 0) -> float:
    found = [fl.cluster(one, guarantee=fl.Calibrated(draws=199), seed=seed + i) for i, one in enumerate(estimates)]
    return float(np.mean([one.rejected for one in found]))


def rates(share: float, smallest: int, largest: int, *, wald: bool) -> list[fl.Estimates]:
    """Many data sets at once: the moments of a 0/1 column are its count and mean, so rows need not be written out."""
    rng = np.random.default_rng(int(1000 * share) + smallest)
    metric = fl.rate("x")
    out = []
    for _ in range(RUNS):
        n = np.exp(rng.uniform(math.log(smallest), math.log(largest), GROUPS)).round()
        mean = rng.binomial(n.astype(int), share) / n
        made = metric.estimate(fl.Moments(n[:, None, None], mean[:, None, None], np.zeros((GROUPS, 1, 1, 1))))
        if wald:
            keep = (mean > 0) & (mean < 1)
            out.append(fl.Estimates(mean[keep], np.sqrt(mean * (1 - mean) / n)[keep]))
        else:
            out.append(fl.Estimates(made.theta, made.se))
    return out


@pytest.mark.parametrize(("smallest", "largest"), [(40, 60), (50, 3000)])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_rates_do_not_report_too_often(share: float, smallest: int, largest: int) -> None:
    ours = claims(rates(share, smallest, largest, wald=False))
    usual = claims(rates(share, smallest, largest, wald=True))
    where = f"rates; {share:.0%}, {smallest}–{largest} rows"
    record_figure("rows", f"{where}; Anscombe's scale", ours, RUNS)
    record_figure("rows", f"{where}; √(p(1 − p)/n)", usual, RUNS)
    most = 0.08 if share * smallest < 5 else 0.05  # a handful of events a group: docs/rows.md says so
    assert ours <= most + 3 * math.sqrt(most * (1 - most) / RUNS)


def test_the_usual_standard_error_of_a_rare_event_reports_far_too_often() -> None:
    usual = claims(rates(0.1, 40, 60, wald=True))
    assert usual > 0.4


def test_rows_really_written_out_agree() -> None:
    """The short cut above against the whole way through the engine."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(40, 60, GROUPS)
    data = pd.DataFrame({"g": np.repeat(np.arange(GROUPS), sizes), "x": (rng.random(sizes.sum()) < 0.1).astype(int)})
    through = fl.measure(data, "g", fl.rate("x")).estimates
    grouped = data.groupby("g")["x"]
    n, mean = grouped.count().to_numpy(float), grouped.mean().to_numpy()
    short = fl.rate("x").estimate(fl.Moments(n[:, None, None], mean[:, None, None], np.zeros((GROUPS, 1, 1, 1))))
    np.testing.assert_allclose(through.theta, short.theta)
    np.testing.assert_allclose(through.se, short.se)


@pytest.mark.parametrize("kind", ["difference", "lift"])
@pytest.mark.parametrize("groups", [21, 100])
def test_skewed_revenue_is_reported(kind: str, groups: int) -> None:
    """Log-normal values, 200 rows an arm: far from normal, so this is measured and bounded, not promised."""
    rng = np.random.default_rng(groups)
    metric = getattr(fl, kind)("x", variant="arm", control="A")
    estimates = []
    for _ in range(scale_runs(600)):
        x = rng.lognormal(0.0, 1.0, (groups, 2, 200))
        moments = fl.Moments(
            np.full((groups, 2, 1), 200.0), x.mean(axis=2)[..., None], x.var(axis=2, ddof=1)[..., None, None]
        )
        made = metric.estimate(moments)
        estimates.append(fl.Estimates(made.theta, made.se, dof=made.dof))
    rate = claims(estimates)
    record_figure("rows", f"lognormal revenue, 200 rows an arm; {kind}; {groups} groups", rate, len(estimates))
    assert rate <= {"difference": 0.08, "lift": 0.13}[kind]


@pytest.mark.parametrize(
    ("kind", "groups", "rows"), [("revenue", 180, 400), ("revenue", 450, 150), ("converted", 180, 800)]
)
def test_lifts_of_small_unequal_groups_report_little_and_are_not_biased(kind: str, groups: int, rows: int) -> None:
    """Groups as unequal as countries, nothing differs: false positives, and the pooled lift, which should be zero."""
    rng = np.random.default_rng(groups)
    metric = fl.lift("x", variant="arm", control="A")
    found, pooled = [], []
    for _ in range(150):
        sizes = np.maximum(rng.lognormal(np.log(rows), 0.7, groups).astype(int), 40)
        n, mean, variance = (np.empty((groups, 2)) for _ in range(3))
        for i, j in np.ndindex(groups, 2):
            x = rng.random(sizes[i]) < (0.2 if kind == "revenue" else 0.04)
            x = x * rng.lognormal(3.0, 0.8, sizes[i]) if kind == "revenue" else x.astype(float)
            n[i, j], mean[i, j], variance[i, j] = sizes[i], x.mean(), x.var(ddof=1)
        made = metric.estimate(fl.Moments(n[..., None], mean[..., None], variance[..., None, None]))
        keep = unmarked(made.reason)
        freedom = np.inf if made.dof is None else made.dof[keep]
        estimates = fl.Estimates(made.theta[keep], made.se[keep], dof=freedom, scale=metric.scale)
        found.append(estimates)
        pooled.append(float(np.expm1(np.average(estimates.theta, weights=estimates.se**-2.0))))
    rate, bias, error = claims(found), np.mean(pooled), np.std(pooled) / len(pooled) ** 0.5
    print(f"pooled {bias:+.4f} ± {error:.4f}")
    record_figure("rows", f"lifts of small unequal groups; {kind}, {groups} groups, {rows} an arm", rate, len(found))
    assert rate <= 0.13
    assert abs(bias) < 4 * error + 0.002


@pytest.mark.parametrize("kind", ["weights", "covariate"])
def test_weights_and_covariates_keep_the_level(kind: str) -> None:
    """Few rows, very unequal weights (log-normal, σ = 1) or a useless covariate: the degrees of freedom must know."""
    rng = np.random.default_rng(11)
    groups, rows, estimates = 40, 30, []
    options: dict[str, Any] = {"weight": "w"} if kind == "weights" else {"covariate": "w"}
    metric = fl.difference("x", variant="arm", control="A", **options)
    for _ in range(150):
        data = pd.DataFrame(
            {
                "g": np.repeat(np.arange(groups), 2 * rows),
                "arm": np.tile(np.repeat(["A", "B"], rows), groups),
                "x": rng.standard_normal(2 * rows * groups),
                "w": rng.lognormal(0, 1, 2 * rows * groups),
            }
        )
        estimates.append(fl.measure(data, "g", metric).estimates)
    rate = claims(estimates)
    record_figure("rows", f"difference; {kind}, {rows} rows an arm, {groups} groups", rate, len(estimates))
    assert rate <= 0.05 + (0.08 if kind == "weights" else 0.03) + 2 * math.sqrt(0.05 * 0.95 / 150)
