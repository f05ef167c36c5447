"""Intervals valid at every look: by hand, narrowest where they should be, shares of α that add up, in a monitor."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import faultlines as fl
from faultlines.estimates.labels import margins_of
from faultlines.guarantees.boundaries import (
    AnytimeRule,
    ClusterChoice,
    LookData,
    _log_shares,
    best_ratio,
    extend_history,
    follow,
    mixture_reach,
    pool_look,
)
from tests.refused import refused


def look(n: Any, groups: Any = None, **more: Any) -> LookData:
    sizes = np.asarray(n, dtype=float)
    places = np.arange(sizes.size) if groups is None else np.asarray(groups)
    return LookData(places, np.zeros(sizes.size), sizes**-0.5, sizes, more.pop("dof", None), **more)


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-9, 0.5), st.floats(0.01, 1e4))
def test_the_mixture_is_that_of_a_normal_prior(level: float, ratio: float) -> None:
    """At the end of the interval the Bayes factor of N(0, ρ²) against 0 is 1/level."""
    z = float(mixture_reach(np.array([math.log(level)]), np.array([ratio]))[0])
    factor = stats.norm.logpdf(z, scale=math.sqrt(1 + ratio)) - stats.norm.logpdf(z)
    assert factor == pytest.approx(-math.log(level), rel=1e-9)


def test_the_best_ratio_is_where_it_reaches_least() -> None:
    for level in (0.05, 0.05 / 180, 1e-9):
        log_level = np.array([math.log(level)])
        best = optimize.minimize_scalar(
            lambda x, at=log_level: float(mixture_reach(at, np.exp([x]))[0]), bounds=(0, 8), method="bounded"
        )
        assert best_ratio(log_level)[0] == pytest.approx(math.exp(best.x), rel=1e-3)


def test_shares_of_alpha_add_up_to_at_most_one() -> None:
    history = None
    for day, groups in enumerate(([0, 1, 2], [0, 1, 2], [0, 1, 2, 3], [1, 2, 3, 4, 5, 6], [0, 7]), start=1):
        labels = range(1 + max(groups) if history is None else max(history.se.size, 1 + max(groups)))
        history = extend_history(history, look([50.0 * day] * len(groups), groups), labels, "independent", check=False)
    assert history is not None
    assert history.batch.tolist() == [0, 0, 0, 1, 2, 2, 2, 3]
    assert np.exp(_log_shares(history)).sum() == pytest.approx(0.8 + 0.2 * (1 / 2 + 1 / 6 + 1 / 12))


@pytest.mark.parametrize("shape", [(6,), (3, 2), (2, 2, 2)])
def test_a_cluster_reaches_as_far_as_the_number_of_its_rivals_asks(shape: tuple[int, ...]) -> None:
    """The shares of all clusters that join levels of a margin add up to what the groups of the first look have."""
    rule = AnytimeRule(0.05, "any", 1, 1, 0.5)
    codes = np.indices(shape).reshape(len(shape), -1).T
    total = 0.0
    for margin in margins_of(codes):
        for size in range(1, margin.levels + 1):
            choice = ClusterChoice(margin.share, margin.levels, size)
            reach = rule.reach_of_cluster(choice, 0.0, follow([look([1.0])], "any"), np.inf)
            total += math.comb(margin.levels, size) * 2 * stats.norm.sf(reach) / 0.05
    assert total == pytest.approx(0.8)


def test_degrees_of_freedom_keep_the_tail() -> None:
    rule = AnytimeRule(0.05, "any", 2, None, None)
    reach = rule.reach(np.zeros(2), np.ones(2), np.array([6.0, np.inf]))
    assert stats.t.sf(reach[0], 6) == pytest.approx(0.05 / 12)
    assert stats.norm.sf(reach[1]) == pytest.approx(0.05 / 12)


def test_a_pool_is_the_weighted_mean_and_with_a_covariance_has_its_variance() -> None:
    rng = np.random.default_rng(0)
    factor = rng.standard_normal((4, 4))
    covariance = factor @ factor.T + np.eye(4)
    se = np.sqrt(np.diag(covariance))
    data = LookData(np.arange(4), rng.standard_normal(4), se, np.arange(1.0, 5), None, covariance=covariance)
    places = np.array([0, 2, 3])
    weight = se[places] ** -2 / np.sum(se[places] ** -2)
    pooled = pool_look(data, places)
    assert pooled.theta[0] == pytest.approx(weight @ data.theta[places])
    assert pooled.se[0] ** 2 == pytest.approx(weight @ covariance[np.ix_(places, places)] @ weight)
    assert pooled.n is not None
    assert pooled.n[0] == 8


def test_an_outcome_that_happens_once_runs_by_its_odds() -> None:
    """Corr² of 1{T ≤ s} and 1{T ≤ t} is the ratio of their odds; users that join multiply the clock."""
    shares, users = np.array([0.08, 0.3, 0.7]), np.array([100.0, 100.0, 150.0])
    history = None
    for p, n in zip(shares, users, strict=True):
        data = look([n, n], odds=np.full(2, p / (1 - p)))
        history = extend_history(history, data, range(2), "returning")
    assert history is not None
    assert history.growth == pytest.approx(np.full(2, 1.5 * (0.7 / 0.3) / (0.08 / 0.92)))
    rng = np.random.default_rng(0)
    first = rng.exponential(size=200_000)
    early, late = (first < -math.log1p(-p) for p in shares[:2])
    squared = float(np.corrcoef(early, late)[0, 1] ** 2)
    assert squared == pytest.approx((0.08 / 0.92) / (0.3 / 0.7), rel=0.02)


# ------------------------------------------------------------------------------------------------------ in a monitor


def rows(count: int, seed: int = 0) -> pd.DataFrame:
    """Three arms and four countries, of which IS has few rows and no events in some arm."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"country": rng.choice(["DE", "FR", "IN", "IS"], count, p=[0.4, 0.35, 0.246, 0.004])})
    frame["user"] = rng.integers(0, count // 2, count)
    frame["arm"] = np.array(list("ABC"))[frame.user % 3]
    frame["bought"] = (rng.random(count) < 0.1).astype(int)
    return frame


def test_every_look_has_effects_that_contain_their_estimates() -> None:
    data, monitor = rows(24_000), fl.Monitor(looks=4, draws=300)
    metric = fl.lift("bought", variant="arm", control="A", treatment="B")
    results = [monitor.update(data[: 6000 * day], "country", metric) for day in range(1, 5)]
    for result in results:
        for effect in (result.look.overall, *(group.effect for group in result.groups)):  # type: ignore[union-attr]
            assert effect is not None
            assert effect.lower < effect.estimate < effect.upper
    last = results[-1]
    arms = data[(data.arm != "C") & (data.country != "IS")].groupby("arm").bought.mean()
    assert last.look is not None
    assert last.look.overall is not None
    assert last.look.overall.estimate == pytest.approx(arms["B"] / arms["A"] - 1)
    plain = fl.measure(data, "country", metric).estimates
    lower, upper = plain.intervals(0.05)
    for group, low, high in zip(last.groups, lower, upper, strict=True):
        assert group.effect.lower < low < high < group.effect.upper
    assert last.to_dicts()[-1]["status"] == "too small"
    widths = [result.look.overall.upper - result.look.overall.lower for result in results]  # type: ignore[union-attr]
    assert all(late < early for early, late in pairwise(widths))


def test_small_groups_have_differences_where_lifts_cannot_be_had() -> None:
    data = rows(6000)
    metric = fl.lift("bought", variant="arm", control="A", treatment="B")
    now = fl.Monitor(looks=4, draws=300).update(data, "country", metric, min_size=2)
    small = now.small[0]
    assert small.label == "IS"
    assert small.metric == "difference of bought"
    assert small.effect is not None
    arms = data[data.country == "IS"].groupby("arm").bought.mean()
    assert small.effect.estimate == pytest.approx(arms["B"] - arms["A"])
    assert now.looks[0].small == 1
    assert now.looks[0].arms == data[(data.arm != "C") & (data.country != "IS")].groupby("arm").size().to_dict() | {}


def test_no_look_is_taken_before_two_groups_can_be_compared() -> None:
    monitor, data = fl.Monitor(looks=4, draws=300), rows(6000)
    metric = fl.lift("bought", variant="arm", control="A", treatment="B")
    early = monitor.update(data[:25], "country", metric)
    assert early.verdict == "continue"
    assert early.looks == ()
    assert sum(early.waiting.values()) >= 2
    assert [note.code for note in early.notes] == [*["waiting"] * len(early.waiting), "next"]
    assert len(monitor.update(data, "country", metric).looks) == 1


@pytest.mark.parametrize(
    "how", [{"treatment": "*"}, {"treatment": "B", "unit": "user", "overlap": "covariance"}], ids=["arms", "units"]
)
def test_groups_that_share_data_are_tested_look_by_look(how: dict[str, Any]) -> None:
    data, monitor = rows(9000), fl.Monitor(looks=3, draws=300)
    metric = fl.difference("bought", variant="arm", control="A", **how)
    for day in range(1, 4):
        part = data[: 3000 * day]
        result = monitor.update(part, "country", metric)
        assert result.look is not None
        single = fl.cluster(part, "country", metric)
        assert result.look.pvalue == pytest.approx(single.pvalue, rel=1e-6)
        monitor = fl.Monitor.from_json(monitor.to_json())
        assert monitor.result == result
    assert result.dependence == "any"
    assert result.verdict == "ended"
    with refused("unsupported: dependence"):
        fl.Monitor(dependence="returning").update(data, "country", metric)


def test_bins_by_quantiles_are_refused() -> None:
    with refused("unsupported: by"):
        fl.Monitor().update(rows(600), fl.bins("user", quantiles=3), fl.rate("bought"))
