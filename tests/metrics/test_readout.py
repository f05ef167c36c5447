"""Any groups read as one: the same numbers as a measurement of all their rows together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import faultlines as fl

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}
clusters = np.array([0, 1, 0, 2, 1, 0])


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    users = pd.DataFrame({"user": np.arange(2400), "g": np.arange(2400) % 6, "arm": rng.choice(["A", "B"], 2400)})
    data = users.loc[users.index.repeat(rng.integers(1, 4, 2400))].reset_index(drop=True)
    size, level = len(data), 1e3 * (1 + data.g.to_numpy())
    data["w"], data["before"] = rng.uniform(0.2, 4, size), level + rng.exponential(30, size)
    data["revenue"] = data.before * np.where(data.arm == "B", 1.05, 1.0) + rng.exponential(40, size)
    data["visits"] = rng.integers(1, 9, size)
    data["clicks"] = rng.binomial(data.visits, 0.3)
    data["t"] = (rng.random(size) < 0.3 + 0.05 * data.g).astype(int)
    data["p"] = np.where(rng.random(size) < 0.75, data.t, 1 - data.t)
    data["s"] = np.round(np.clip(0.4 + 0.2 * data.t + 0.2 * rng.standard_normal(size), 0.01, 0.99), 2)
    return data


ROWS = rows()
METRICS = [
    fl.mean("revenue"),
    fl.mean("revenue", weight="w"),
    fl.rate("t"),
    fl.rate("t", weight="w"),
    fl.ratio("clicks", "visits"),
    fl.ratio("clicks", "visits", weight="w"),
    fl.difference("revenue", **ARMS),
    fl.difference("revenue", weight="w", **ARMS),
    fl.difference("revenue", covariate="before", **ARMS),
    fl.difference("revenue", unit="user", **ARMS),
    fl.difference("revenue", unit="user", covariate="before", weight="w", **ARMS),
    fl.lift("revenue", **ARMS),
    fl.lift("revenue", covariate="before", weight="w", **ARMS),
    fl.ratio_lift("clicks", "visits", unit="user", **ARMS),
    fl.ratio_difference("clicks", "visits", weight="w", **ARMS),
    fl.true_positive_rate("t", "p"),
    fl.accuracy("t", "p", weight="w"),
    fl.equalized_odds("t", "p"),
    fl.equalized_odds("t", "p", weight="w"),
    fl.f1("t", "p"),
    fl.f1("t", "p", weight="w"),
    fl.balanced_accuracy("t", "p"),
    fl.balanced_accuracy("t", "p", weight="w"),
    fl.atkinson("clicks", 0.5),
    fl.atkinson("revenue", 1, unit="user", **ARMS),
    fl.log_loss("t", "s"),
    fl.brier("t", "s", weight="w"),
    fl.calibration_gap("t", "s"),
    fl.mean_squared_error("revenue", "before"),
    fl.joint(fl.mean("revenue", weight="w"), fl.rate("t"), fl.ratio("clicks", "visits")),
    fl.joint(fl.lift("revenue", **ARMS), fl.difference("clicks", covariate="visits", **ARMS)),
]


def named(metric: fl.Metric) -> str:
    return f"{metric.name}{' weighted' if 'w' in metric.inputs else ''}{' by unit' if metric.unit else ''}"


@pytest.mark.parametrize("metric", METRICS, ids=named)
def test_groups_together_are_their_rows_together(metric: fl.Metric) -> None:
    readout = fl.measure(ROWS, "g", metric).readout
    assert readout is not None
    together = readout.together(clusters, 3)
    assert together is not None
    for i in range(3):
        union = ROWS[np.isin(ROWS.g, np.flatnonzero(clusters == i))].assign(g=i)
        alone = fl.measure(union, "g", metric).estimates
        np.testing.assert_allclose(together.theta[i], alone.theta[0], rtol=1e-9)
        np.testing.assert_allclose(together.se[i], alone.se[0], rtol=1e-9)
        np.testing.assert_allclose(together.natural[i], alone.natural[0], rtol=1e-9)
        if alone.dof is not None:
            assert together.dof is not None
            np.testing.assert_allclose(together.dof[i], alone.dof[0], rtol=1e-7)


@pytest.mark.parametrize("metric", METRICS[::6], ids=named)
def test_clusters_and_overall_are_plain_readouts(metric: fl.Metric) -> None:
    result: Any = fl.cluster(ROWS, by="g", metric=metric, guarantee=fl.Calibrated(199))
    everyone = fl.measure(ROWS.assign(g=0), "g", metric).estimates
    np.testing.assert_allclose(np.ravel(result.overall.estimate), np.ravel(everyone.natural), rtol=1e-9)
    np.testing.assert_allclose(np.ravel(result.overall.observed), np.ravel(everyone.natural), rtol=1e-9)
    for cluster in result.clusters:
        union = ROWS[ROWS.g.isin(cluster.members)].assign(g=0)
        alone = fl.measure(union, "g", metric).estimates
        np.testing.assert_allclose(np.ravel(cluster.observed), np.ravel(alone.natural), rtol=1e-9)
        for value, (low, high) in zip(
            np.ravel(cluster.observed), np.reshape(cluster.observed_ci, (-1, 2)), strict=True
        ):
            assert low < value < high


def test_the_overall_effect_is_the_plain_average_treatment_effect() -> None:
    result: Any = fl.cluster(ROWS, by="g", metric=fl.difference("revenue", **ARMS))
    treated, control = (ROWS.revenue[ROWS.arm == arm] for arm in "BA")
    assert result.overall.estimate == pytest.approx(treated.mean() - control.mean(), rel=1e-12)
    welch = stats.ttest_ind(treated, control, equal_var=False).confidence_interval(0.95)
    assert result.overall.ci == pytest.approx((welch.low, welch.high))
    rates: Any = fl.cluster(ROWS, by="g", metric=fl.rate("t"))
    assert rates.overall.estimate == pytest.approx(ROWS.t.mean(), rel=1e-12)
    by_unit: Any = fl.cluster(ROWS, by="g", metric=fl.lift("revenue", unit="user", **ARMS))
    spent = ROWS.groupby(["user", "arm"])["revenue"].sum().groupby("arm").mean()
    assert by_unit.overall.estimate == pytest.approx(spent["B"] / spent["A"] - 1, rel=1e-12)


def test_areas_are_weighted_by_the_sizes_of_their_groups() -> None:
    result: Any = fl.cluster(ROWS, by="g", metric=fl.auc("t", "s"))
    assert result.readout.together(clusters, 3) is None
    estimates = result.estimates
    share = estimates.n / estimates.n.sum()
    assert result.overall.estimate == pytest.approx(np.sum(share * estimates.natural))
    assert result.overall.se == pytest.approx(np.sqrt(np.sum((share * estimates.se) ** 2)))


@pytest.mark.parametrize(
    "guarantee", [fl.Holdout(unit="user", splits=3), fl.Folds(n=3, unit="user")], ids=["holdout", "folds"]
)
def test_rows_in_parts_have_a_readout(guarantee: Any) -> None:
    metric = fl.mean("revenue")
    result: Any = fl.cluster(ROWS, by="g", metric=metric, guarantee=guarantee)
    assert result.n_clusters > 1
    if isinstance(guarantee, fl.Folds):  # of all rows
        assert result.overall.estimate == pytest.approx(ROWS.revenue.mean(), rel=1e-9)
    else:  # of those held out
        assert result.overall.estimate == pytest.approx(ROWS.revenue.mean(), rel=0.05)
        assert result.overall.n < 0.7 * len(ROWS)
    for cluster in result.clusters:
        assert cluster.observed == pytest.approx(ROWS.revenue[ROWS.g.isin(cluster.members)].mean(), rel=0.05)


def test_estimates_with_sizes_are_weighted_by_them() -> None:
    result: Any = fl.cluster(fl.Estimates([0.0, 1.0, 10.0], [1.0, 1.0, 1.0], n=[10, 30, 60]))
    assert result.overall.estimate == pytest.approx(6.3)
    assert result.overall.se == pytest.approx(np.sqrt(0.01 + 0.09 + 0.36))
    assert [cluster.observed for cluster in result.clusters] == pytest.approx([0.75, 10])
    bare: Any = fl.cluster(fl.Estimates([0.0, 1.0, 10.0], [1.0, 0.5, 1.0]))
    assert bare.clusters[0].observed is None
    assert bare.clusters[0].observed_ci is None
    assert bare.overall.estimate == pytest.approx((0 + 4 + 10) / 6)  # by precision, where no sizes are known


def test_arms_stand_in_the_table_of_groups() -> None:
    result = fl.cluster(ROWS, by="g", metric=fl.difference("revenue", covariate="before", **ARMS))
    means, counts = (ROWS.groupby(["g", "arm"])["revenue"].agg(how).unstack() for how in ("mean", "count"))
    for row, g in zip(result.to_dicts("groups"), range(6), strict=True):
        assert (row["n_control"], row["n_treatment"]) == (counts.loc[g, "A"], counts.loc[g, "B"])
        assert row["mean_control"] == pytest.approx(means.loc[g, "A"])
        assert row["mean_treatment"] == pytest.approx(means.loc[g, "B"])
    plain = fl.cluster(ROWS, by="g", metric=fl.mean("revenue")).to_dicts("groups")
    assert "n_control" not in plain[0]
