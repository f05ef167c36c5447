"""Shuffled labels: false claims on a user's own rows, counted; units stay together, and nothing real is left."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import binomtest

import faultlines as fl
from faultlines.rows.read import checked_by
from faultlines.rows.shuffled import Shuffles, shuffled

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
    found = fl.self_check(ROWS, "country", fl.rate("bought"), guarantee=FEW)
    assert 1 <= found.claims <= 22  # 10 are expected; either end is less likely than 1 in 5,000
    assert found.holds is not False
    assert str(found).startswith(
        f"In 200 shuffles of the group labels, where nothing differs, clusters were claimed in {found.claims} ("
    )


def test_rows_of_a_unit_stay_together() -> None:
    """Visits of one user are alike. Who takes them for independent is told so; who sums them to users is in order."""
    apart = fl.self_check(ROWS, "country", fl.rate("bought"), unit="user", runs=60, guarantee=FEW)
    assert apart.claims > 45
    assert apart.holds is False
    assert "the promise does not hold on rows like these" in apart.verdict
    metric = fl.difference("spend", variant="arm", control="A", unit="user")
    for arms in (False, True):
        together = fl.self_check(ROWS, "country", metric, runs=100, arms=arms, guarantee=FEW)
        assert together.claims <= 15
        assert (together.unit, together.shuffled) == ("user", "arms" if arms else "groups")


def test_arms_are_shuffled_within_the_groups() -> None:
    """B works in half of the countries: shuffled arms show nothing of it."""
    rows = ROWS.assign(bought=np.where((ROWS.arm == "B") & (ROWS.country < "c15"), 1, ROWS.bought), third="C")
    rows = pd.concat([rows, rows.head(2000).assign(arm="C", bought=1)])
    metric = fl.difference("bought", variant="arm", control="A", treatment="B")
    assert fl.cluster(rows, "country", metric).rejected
    assert fl.self_check(rows, "country", metric, arms=True, runs=100, guarantee=FEW).claims <= 15


@pytest.mark.parametrize("metric", [fl.rate("bought"), fl.auc("bought", "score")], ids=["moments", "ranking"])
def test_every_engine_shuffles_alike(metric: fl.Metric) -> None:
    frames: list[Any] = [ROWS, pl.from_pandas(ROWS), pl.from_pandas(ROWS).lazy(), duckdb.from_df(ROWS)]
    settings: dict[str, Any] = {"runs": 10, "guarantee": FEW, "seed": 3}
    assert len({fl.self_check(rows, "country", metric, **settings, unit="user") for rows in frames}) == 1
    assert len({fl.self_check(rows, "country", metric, **settings) for rows in frames[:2]}) == 1


def drawn(
    by: Any, metric: fl.Metric, how: Shuffles, rows: Any = ROWS, relabelled: fl.Metric | None = None
) -> list[Any]:
    with shuffled(rows, checked_by(by), metric, relabelled or metric, how) as several:
        return list(several)


def test_shuffled_groups_are_as_large_as_the_real_ones_and_hold_the_same_rows() -> None:
    sizes = np.sort(ROWS.groupby(["country", "arm"]).size().to_numpy())[::-1]
    moments = drawn(["country", "arm"], fl.mean("spend"), Shuffles(30))
    n = np.array([one.n[:, 0, 0] for one in moments])
    total = np.array([(one.n * one.mean).sum() for one in moments])
    np.testing.assert_array_equal(n.sum(axis=1), len(ROWS))
    np.testing.assert_allclose(total, ROWS.spend.sum(), rtol=1e-9)
    # 30 draws of a binomial: the mean within five of its standard errors, and cells cost a little more.
    assert np.all(np.abs(n.mean(axis=0) - sizes) < 5 * np.sqrt(sizes / 30) + 0.02 * sizes + 2)
    assert len({tuple(one) for one in n.tolist()}) == 30
    assert drawn("country", fl.mean("spend"), Shuffles(2, seed=1))[0].n.tolist() != n[0].tolist()


def test_several_queries_shuffle_as_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = fl.difference("spend", variant="arm", control="A", unit="user", weight="weight")
    whole = drawn("country", metric, Shuffles(7))
    monkeypatch.setattr("faultlines.rows.shuffled._LESS_ROOM", 3 * ROWS.user.nunique())
    for one, other in zip(whole, drawn("country", metric, Shuffles(7)), strict=True):
        np.testing.assert_array_equal(one.n, other.n)
        np.testing.assert_allclose(one.cov, other.cov, rtol=1e-9)


def test_units_fall_into_one_group_and_arm_and_those_without_a_name_nowhere() -> None:
    rows = ROWS.assign(user=ROWS.user.astype("Int64").mask(ROWS.user < 100))
    metric = fl.difference("spend", variant="arm", control="A", unit="user")
    for one in drawn("country", metric, Shuffles(5), rows):
        assert one.n.sum() == 1400
    alone = drawn("country", fl.mean("spend"), Shuffles(5, unit="user"), rows)
    assert {float(one.n.sum()) for one in alone} == {1400.0 * PER_USER}
    assert all(np.all(one.n % PER_USER == 0) for one in alone)


def test_the_interval_is_exact_and_the_verdict_follows_from_it() -> None:
    for claims, holds in ((0, True), (9, True), (13, None), (30, False), (200, False)):
        made = fl.SelfCheck(200, claims, 0.05, "groups", None, "rate", "calibrated", 0)
        expected = binomtest(claims, 200).proportion_ci(0.95, "exact")
        assert (made.lower, made.upper) == pytest.approx((expected.low, expected.high), abs=1e-12)
        assert made.holds is holds
        assert made.to_dict()["rate"] == made.rate == claims / 200
        assert pickle.loads(pickle.dumps(made)) == made
    assert str(fl.SelfCheck(200, 9, 0.05, "arms", None, "rate", "calibrated", 0)) == (
        "In 200 shuffles of the arms, where nothing has an effect, clusters were claimed in 9 (4.5%, 95% interval "
        "2.1% … 8.4%): consistent with α = 0.05."
    )


def test_skewed_values() -> None:
    """Forty groups of fifty lognormal values: with variances of single groups a quarter shows claims."""
    rng = np.random.default_rng(1)
    rows = pd.DataFrame({"g": np.arange(2000) % 40, "x": rng.lognormal(0, 1, 2000)})
    assert fl.self_check(rows, "g", fl.mean("x"), runs=100, guarantee=FEW).claims <= 15


def test_the_papers_rule_is_found_out_and_thinned_estimates_are_fine() -> None:
    rows = ROWS.assign(country=np.arange(len(ROWS)) % 60)
    assert fl.self_check(rows, "country", fl.rate("bought"), runs=40, guarantee="bonferroni").holds is False
    assert fl.self_check(rows, "country", fl.rate("bought"), runs=40, guarantee="holdout").claims <= 8


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"runs": 0}, "runs=0: must be a whole number from 1 to 100,000"),
        ({"runs": 1.5}, "runs=1.5: must be a whole number"),
        ({"arms": True}, "arms=True: but the metric 'rate of bought' has no arms"),
        ({"arms": "yes"}, "arms='yes': must be true or false"),
        ({"alpha": 2}, "alpha=2: must lie"),
        ({"unit": "nobody"}, "unit='nobody': no such column"),
        ({"unit": 3}, "unit=3: is not the name of a column"),
        ({"metric": "rate"}, "metric='rate': is not a metric"),
        ({"data": fl.Estimates([0.0, 1.0], [1.0, 1.0])}, "data=Estimates: has no rows whose labels could be shuffled"),
        ({"data": ROWS.head(0)}, "data: has no rows"),
        ({"data": ROWS[ROWS.country == "c1"]}, "by='country': only one group can be used"),
        ({"min_size": 1e9}, "none of 20 groups can be used"),
        ({"metric": fl.mean(fl.aggregated("user", mean="spend", variance="weight"))}, "a table of aggregates"),
        ({"metric": fl.lift("spend", variant="arm", control="A", unit="user"), "unit": "arm"}, "has the unit 'user'"),
        ({"metric": fl.lift("spend", variant="arm", control="A", unit="user"), "guarantee": "holdout"}, "splits rows"),
        ({"guarantee": fl.Holdout(unit="user")}, "splits rows by unit"),
        ({"guarantee": "hope"}, "guarantee='hope'"),
    ],
)
def test_what_cannot_be_checked_is_refused(changed: dict[str, Any], words: str) -> None:
    settings: dict[str, Any] = {"data": ROWS, "by": "country", "metric": fl.rate("bought"), "runs": 3} | changed
    with pytest.raises(fl.InputError) as caught:
        fl.self_check(**settings)
    assert words in str(caught.value)


def test_the_page_takes_a_self_check_only(tmp_path: Path) -> None:
    found = fl.cluster(fl.Estimates([0.0, 1.0], [1.0, 1.0]))
    with pytest.raises(fl.InputError, match="self_check='fine': is not a self-check"):
        found.report(tmp_path / "out.html", self_check="fine")  # type: ignore[arg-type]
