"""Shuffled labels: false claims on a user's own rows, counted; units stay together, and nothing real is left."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import binomtest

import faultlines as fl
from faultlines.results import SelfCheck
from faultlines.rows.read import checked_by
from faultlines.rows.shuffling import Shuffles, shuffle_groups
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

FEW = fl.Calibrated(draws=500)
PER_USER = 8


def visits(users: int = 1500, groups: int = 20) -> pd.DataFrame:
    """Visits of users: groups really differ, so do users, and arms do not."""
    rng = np.random.default_rng(0)
    group = rng.choice(groups, users, p=rng.dirichlet(np.full(groups, 5.0)))
    taste = np.repeat(rng.normal(0, 2, users), PER_USER)
    size = users * PER_USER
    spend = np.repeat(group, PER_USER) + taste + rng.normal(0, 1, size)
    return pd.DataFrame(
        {
            "user": np.repeat(np.arange(users), PER_USER),
            "country": np.repeat([f"c{i}" for i in group], PER_USER),
            "arm": np.repeat(rng.choice(["A", "B"], users, p=[0.3, 0.7]), PER_USER),
            "spend": spend,
            "bought": (spend > np.median(spend)).astype(int),
            "score": rng.random(size).round(2),
            "weight": rng.uniform(0.5, 2, size),
        }
    )


ROWS = visits()


def test_nothing_real_is_left_in_shuffled_groups() -> None:
    assert fl.cluster(ROWS, "country", fl.rate("bought")).n_clusters > 2
    check = fl.self_check(ROWS, "country", fl.rate("bought"), guarantee=FEW)
    assert 1 <= check.false_positives <= 22  # 10 are expected; either end is less likely than 1 in 5,000
    assert check.verdict != "violated"


def test_rows_of_a_unit_stay_together() -> None:
    """Visits of one user are alike. Who takes them for independent is told so; who sums them to users is in order."""
    apart = fl.self_check(ROWS, "country", fl.rate("bought"), unit="user", runs=40, guarantee=FEW)
    assert apart.false_positives > 30
    assert apart.verdict == "violated"
    assert [note.code for note in apart.notes] == ["error rate", "equal groups"]
    metric = fl.difference("spend", variant="arm", control="A", unit="user")
    for arms in (False, True):
        together = fl.self_check(ROWS, "country", metric, runs=60, arms=arms, guarantee=FEW)
        assert together.false_positives <= 10
        assert (together.unit, together.shuffled) == ("user", "arms" if arms else "groups")


def test_arms_are_shuffled_within_the_groups() -> None:
    """B works in half of the countries: shuffled arms show nothing of it."""
    rows = ROWS.assign(bought=np.where((ROWS.arm == "B") & (ROWS.country < "c15"), 1, ROWS.bought), third="C")
    rows = pd.concat([rows, rows.head(2000).assign(arm="C", bought=1)])
    metric = fl.difference("bought", variant="arm", control="A", treatment="B")
    assert fl.cluster(rows, "country", metric).rejected
    check = fl.self_check(rows, "country", metric, runs=100, guarantee=FEW)  # arms, where there are any
    assert check.false_positives <= 15
    assert (check.shuffled, [note.code for note in check.notes]) == ("arms", [])


@pytest.mark.parametrize("metric", [fl.rate("bought"), fl.auc("bought", "score")], ids=["moments", "ranking"])
def test_every_engine_shuffles_alike(metric: fl.Metric) -> None:
    frames: list[Any] = [ROWS, pl.from_pandas(ROWS), pl.from_pandas(ROWS).lazy(), duckdb.from_df(ROWS)]
    settings: dict[str, Any] = {"runs": 10, "guarantee": FEW, "seed": 3}
    assert len({fl.self_check(rows, "country", metric, **settings, unit="user") for rows in frames}) == 1
    assert len({fl.self_check(rows, "country", metric, **settings) for rows in frames[:2]}) == 1


def drawn(
    by: Any, metric: fl.Metric, how: Shuffles, rows: Any = ROWS, relabelled: fl.Metric | None = None
) -> list[Any]:
    with shuffle_groups(rows, checked_by(by), metric, relabelled or metric, how) as several:
        return [grouped.moments for grouped in several]


def test_shuffled_groups_are_as_large_as_the_real_ones_and_hold_the_same_rows() -> None:
    sizes = np.sort(ROWS.groupby(["country", "arm"]).size().to_numpy())[::-1]
    moments = drawn(["country", "arm"], fl.mean("spend"), Shuffles(30))
    n = np.array([moment.n[:, 0, 0] for moment in moments])
    total = np.array([(moment.n * moment.mean).sum() for moment in moments])
    np.testing.assert_array_equal(n.sum(axis=1), len(ROWS))
    np.testing.assert_allclose(total, ROWS.spend.sum(), rtol=1e-9)
    # 30 draws of a binomial: the mean within five of its standard errors, and cells cost a little more.
    assert np.all(np.abs(n.mean(axis=0) - sizes) < 5 * np.sqrt(sizes / 30) + 0.02 * sizes + 2)
    assert len({tuple(counts) for counts in n.tolist()}) == 30
    assert drawn("country", fl.mean("spend"), Shuffles(2, seed=1))[0].n.tolist() != n[0].tolist()


def test_several_queries_shuffle_as_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = fl.difference("spend", variant="arm", control="A", unit="user", weight="weight")
    moments_of_all = drawn("country", metric, Shuffles(7))
    monkeypatch.setattr("faultlines.rows.shuffling._LESS_ROOM", 3 * ROWS.user.nunique())
    for moments, other in zip(moments_of_all, drawn("country", metric, Shuffles(7)), strict=True):
        np.testing.assert_array_equal(moments.n, other.n)
        np.testing.assert_allclose(moments.cov, other.cov, rtol=1e-9)


def test_units_fall_into_one_group_and_arm_and_those_without_a_name_nowhere() -> None:
    rows = ROWS.assign(user=ROWS.user.astype("Int64").mask(ROWS.user < 100))
    metric = fl.difference("spend", variant="arm", control="A", unit="user")
    for moments in drawn("country", metric, Shuffles(5), rows):
        assert moments.n.sum() == 1400
    alone = drawn("country", fl.mean("spend"), Shuffles(5, unit="user"), rows)
    assert {float(moments.n.sum()) for moments in alone} == {1400.0 * PER_USER}
    assert all(np.all(moments.n % PER_USER == 0) for moments in alone)


def test_the_interval_is_exact_and_the_verdict_follows_from_it() -> None:
    for count, verdict in ((0, "holds"), (9, "holds"), (13, "inconclusive"), (30, "violated"), (200, "violated")):
        check = SelfCheck(200, count, 0.05, "groups", None, "rate", "calibrated", 0)
        expected = binomtest(count, 200).proportion_ci(0.95, "exact")
        assert (check.lower, check.upper) == pytest.approx((expected.low, expected.high), abs=1e-12)
        assert check.verdict == verdict
        assert check.to_dict()["rate"] == check.rate == count / 200
        assert pickle.loads(pickle.dumps(check)) == check


def test_skewed_values() -> None:
    """Forty groups of fifty lognormal values: with variances of single groups a quarter shows claims."""
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"g": np.arange(2000) % 40, "x": rng.lognormal(0, 1, 2000)})
    assert fl.self_check(rows, "g", fl.mean("x"), runs=100, guarantee=FEW).false_positives <= 15


def test_the_papers_rule_is_found_out_and_thinned_estimates_are_fine() -> None:
    rows = ROWS.assign(country=np.arange(len(ROWS)) % 60)
    assert fl.self_check(rows, "country", fl.rate("bought"), runs=40, guarantee="bonferroni").verdict == "violated"
    assert fl.self_check(rows, "country", fl.rate("bought"), runs=40, guarantee="holdout").false_positives <= 8


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"runs": 0}, "out of range: runs"),
        ({"runs": 1.5}, "out of range: runs"),
        ({"arms": True}, "conflict: arms"),
        ({"arms": "yes"}, "wrong type: arms"),
        ({"alpha": 2}, "out of range: alpha"),
        ({"unit": "nobody"}, "column not found: unit"),
        ({"unit": 3}, "wrong type: unit"),
        ({"metric": "rate"}, "wrong type: metric"),
        ({"data": fl.Estimates([0.0, 1.0], [1.0, 1.0])}, "unsupported: data"),
        ({"data": ROWS.head(0)}, "empty: data"),
        ({"data": ROWS[ROWS.country == "c1"]}, "too few: by"),
        ({"min_size": 1e9}, "no groups: by"),
        ({"metric": fl.mean(fl.aggregated("user", mean="spend", variance="weight"))}, "unsupported: metric"),
        ({"metric": fl.lift("spend", variant="arm", control="A", unit="user"), "unit": "arm"}, "conflict: unit"),
        (
            {"metric": fl.lift("spend", variant="arm", control="A", unit="user"), "guarantee": "holdout"},
            "unsupported: guarantee",
        ),
        ({"guarantee": fl.Holdout(unit="user")}, "unsupported: guarantee"),
        ({"guarantee": "hope"}, "unknown: guarantee"),
    ],
)
def test_what_cannot_be_checked_is_refused(changed: dict[str, Any], expected: str) -> None:
    settings: dict[str, Any] = {"data": ROWS, "by": "country", "metric": fl.rate("bought"), "runs": 3} | changed
    with refused(expected):
        fl.self_check(**settings)


def test_the_page_takes_a_self_check_only(tmp_path: Path) -> None:
    result = fl.cluster(fl.Estimates([0.0, 1.0], [1.0, 1.0]))
    with refused("wrong type: self_check"):
        result.report(tmp_path / "out.html", self_check="fine")  # type: ignore[arg-type]


def test_shuffled_groups_cross_as_the_real_ones_do() -> None:
    """Crossed attributes stay crossed, so that margins are tested in shuffled rows as in the real ones."""
    by = ("country", "arm")
    real = {(country, arm) for country, arm in zip(ROWS.country, ROWS.arm, strict=True)}
    with shuffle_groups(ROWS, by, fl.mean("spend"), fl.mean("spend"), Shuffles(2)) as several:
        for grouped in several:
            assert len(set(grouped.keys)) == len(real)
            assert [len({key[i] for key in grouped.keys}) for i in (0, 1)] == [ROWS.country.nunique(), 2]
    settings: dict[str, Any] = {"runs": 40, "guarantee": FEW}
    crossed = fl.self_check(ROWS, list(by), fl.rate("bought"), **settings)
    cells = fl.self_check(ROWS, list(by), fl.rate("bought"), margins=False, **settings)
    assert crossed.false_positives <= 9
    assert cells.false_positives <= 9


def test_rows_drawn_anew_keep_what_groups_are() -> None:
    """Without arms every group keeps its own values: a standard error that ignores the groups' spreads is found out."""
    rng = np.random.default_rng(3)
    sizes = np.r_[np.full(12, 400), np.full(12, 25)]
    group = np.repeat(np.arange(24), sizes)
    spread = np.repeat(np.r_[np.full(12, 1.0), np.full(12, 4.0)], sizes)
    rows = pl.DataFrame({"g": group, "x": group + spread * rng.standard_normal(group.size)})
    pooled = replace(fl.mean("x"), estimate=one_variance_for_all)
    naive = fl.self_check(rows, "g", pooled, runs=60, guarantee=FEW)
    assert (naive.shuffled, naive.verdict) == ("resampled", "violated")
    assert fl.self_check(rows, "g", pooled, runs=60, arms=False, guarantee=FEW).rate < naive.rate - 0.3
    shipped = fl.self_check(rows, "g", fl.mean("x"), runs=60, guarantee=FEW)
    assert (shipped.shuffled, shipped.verdict in {"holds", "inconclusive"}) == ("resampled", True)
    assert [note.code for note in shipped.notes][:1] == ["rare values"]


def one_variance_for_all(moments: fl.Moments) -> fl.Measured:
    """Means with one variance for all groups: wrong where spreads differ."""
    measured = fl.mean("x").estimate(moments)
    n, variance = moments.n[:, 0, 0], moments.cov[:, 0, 0, 0]
    common = np.average(variance, weights=n)
    return measured._replace(se=np.sqrt(common / n), dof=None)


@pytest.mark.parametrize("name", ["polars", "duckdb", "pandas"])
def test_drawn_groups_vary_as_much_as_their_means_do(name: str) -> None:
    """A bootstrap written out: moments of Poisson copies have the mean and the variance of the group's mean."""
    rows = ROWS[["country", "spend"]]
    data = {"polars": pl.from_pandas(rows), "pandas": rows, "duckdb": duckdb.from_df(rows)}[name]
    moments = drawn("country", fl.mean("spend"), Shuffles(200, "resampled"), data)
    means = np.array([moment.mean[:, 0, 0] for moment in moments])
    real = rows.groupby("country")["spend"]
    order = [f"c{i}" for i in range(20)]
    expected, error = real.mean(), real.std() / np.sqrt(real.size())
    keys = sorted(order)  # groups come in the order of their keys
    assert np.abs((means.mean(axis=0) - expected[keys]) / error[keys]).max() < 4 / np.sqrt(200)
    assert np.abs(means.std(axis=0) / error[keys] - 1).max() < 0.25
