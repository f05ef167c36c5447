"""Laws that are known: scores of binomial counts, 0/1 values, rounding, and what rows support at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import faultlines as fl
from faultlines.errors import NoGroupsError
from faultlines.metrics.moments import describe_noise
from faultlines.metrics.variances import (
    Cumulants,
    inflate_for_common_error,
    is_binary,
    is_rounding,
    is_signed,
    normal_scores,
    shapes_by_group,
    shrink_rates,
)
from faultlines.metrics.warnings import few_events_limit, smallest_supported_pvalue
from faultlines.rows.request import Moments

if TYPE_CHECKING:
    from collections.abc import Callable


def moments(values: list[Any]) -> Moments:
    n, mean, variance = (np.array([f(x) for x in values]) for f in (len, np.mean, lambda x: np.var(x, ddof=1)))
    with np.errstate(all="ignore"):
        skewness, kurtosis = (np.array([f(x) for x in values]) for f in (stats.skew, lambda x: stats.kurtosis(x) + 3))
    parts = (n.astype(float)[:, None, None], mean[:, None, None], variance[:, None, None, None])
    return Moments(*parts, skewness[:, None, None], kurtosis[:, None, None])


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 300), st.floats(0.02, 0.98))
def test_scores_have_mean_zero_and_at_most_unit_variance(trials: int, rate: float) -> None:
    y = np.arange(trials + 1.0)
    mass = stats.binom.pmf(y, trials, rate)
    scores = normal_scores(y, np.full(y.size, float(trials)), np.full(y.size, rate))
    assert np.all(np.diff(scores[np.abs(scores) < 25]) > 0)  # beyond, roots of the deviance take over
    assert np.sum(mass * scores) == pytest.approx(0, abs=0.01)
    assert 0.2 < np.sum(mass * scores**2) <= 1.005


def test_scores_have_the_tails_of_a_normal_distribution() -> None:
    y = np.arange(401.0)
    scores = normal_scores(y, np.full(y.size, 400.0), np.full(y.size, 0.1))
    for z in (2.0, 3.0, 4.0):
        assert stats.binom.pmf(y, 400, 0.1)[scores > z].sum() < 2 * stats.norm.sf(z)
    assert np.isfinite(scores).all()


def test_scores_of_very_many_trials_are_roots_of_the_deviance() -> None:
    score = normal_scores(np.array([500_500.0]), np.array([1e6]), np.array([0.5]))
    assert score[0] == pytest.approx(1.0, rel=1e-3)


def test_values_of_zero_and_one_are_told_by_their_variance() -> None:
    rng = np.random.default_rng(0)
    yes, other = [(rng.random(50) < p).astype(float) for p in (0.1, 0.5)], [rng.random(50) for _ in range(2)]
    for values, binary in ((yes, True), (other, False)):
        m = moments(values)
        assert is_binary(m.n[..., 0], m.mean[..., 0], m.cov[..., 0, 0]) is binary
    assert not is_binary(np.full(2, 9.0), np.array([0.0, 1.0]), np.zeros(2))  # no group varies
    signed = [rng.choice([-1.0, 0.0, 1.0], 60, p=[0.1, 0.8, 0.1]) for _ in range(3)]
    assert is_signed(moments(signed))
    assert not is_signed(moments([2 * x for x in signed]))


def test_rates_are_pulled_together_as_far_as_they_may_be_equal() -> None:
    rng = np.random.default_rng(0)
    trials = np.full(200, 50.0)
    equal = shrink_rates(rng.binomial(50, 0.1, 200).astype(float), trials, doubt=True)
    np.testing.assert_allclose(equal.rate, equal.rate[0], rtol=0.01)
    apart = rng.binomial(50, np.where(np.arange(200) % 2, 0.02, 0.5)).astype(float)
    assert np.ptp(shrink_rates(apart, trials, doubt=True).rate) > 0.4
    assert np.all(shrink_rates(np.zeros(5), np.full(5, 20.0), doubt=False).rate > 0)


def test_third_and_fourth_cumulants_follow_the_rate_of_rare_events() -> None:
    rng = np.random.default_rng(0)
    rates = np.repeat([0.02, 0.2], 30)
    values = [rng.poisson(p, 3000) * 1.0 for p in rates]
    cumulants = Cumulants(*(np.array([stats.kstat(x, k) for x in values]) for k in (2, 3, 4)))
    skewness, excess = shapes_by_group(np.full(60, 3000.0), cumulants, rates)
    np.testing.assert_allclose(skewness, rates**-0.5, rtol=0.25)
    np.testing.assert_allclose(excess, 1 / rates, rtol=0.5)


@pytest.mark.parametrize("offset", [0.0, 1e9, 1e12])
def test_large_offsets_leave_the_variance(offset: float) -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat(np.arange(20), 100), "x": offset + rng.standard_normal(2000)})
    measurement = fl.measure(data, "g", fl.mean("x"))
    assert not measurement.excluded
    np.testing.assert_allclose(measurement.estimates.se, 0.1, rtol=0.2)
    assert is_rounding(np.array([100.0]), np.array([1e12]), np.array([1e-7]))[0]


def _shares_below(make: Callable[[np.random.Generator], pd.DataFrame], metric: fl.Metric) -> tuple[int, set[str]]:
    """Of 8 data sets without any difference, how many have p < .001; and why groups were excluded."""
    small, reasons = 0, set[str]()
    for seed in range(8):
        try:
            result = fl.cluster(make(np.random.default_rng(seed)), "g", metric)
        except NoGroupsError as error:
            reasons |= {reason.code for reason in error.reasons}
            continue
        small += result.pvalue < 0.001
        reasons |= {group.reason.code for group in result.excluded}
    return small, reasons


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("level", [1e2, 1e4, 1e6, 1e8])
def test_atkinson_of_values_that_hardly_differ_has_no_p_from_rounding(level: float, epsilon: float) -> None:
    def make(rng: np.random.Generator) -> pd.DataFrame:
        return pd.DataFrame({"g": np.repeat(np.arange(10), 60), "x": level + rng.standard_normal(600)})

    small, reasons = _shares_below(make, fl.atkinson("x", epsilon))
    assert small == 0
    assert reasons <= {"lost digits"}
    assert bool(reasons) == (level > 1e5) or 1e3 < level < 1e5  # in between it depends on the data


@pytest.mark.parametrize("noise", [1e-5, 7e-7, 5e-7])
def test_ratios_close_to_what_rounding_leaves_have_no_p_from_zeros(noise: float) -> None:
    """Half of the groups below a limit, their variances set to zero, made p < .001 in 18 of 19 data sets."""

    def make(rng: np.random.Generator) -> pd.DataFrame:
        y = 1 + rng.exponential(size=1200)
        x = 2 * y * (1 + noise * rng.standard_normal(1200))
        return pd.DataFrame({"g": np.repeat(np.arange(30), 40), "x": x, "y": y})

    small, reasons = _shares_below(make, fl.ratio("x", "y"))
    assert small <= 1
    assert reasons <= {"lost digits", "zero variance"}
    assert bool(reasons) == (noise < 1e-5)


@pytest.mark.parametrize("level", [1e12, 1e14, 3e14, 1e15])
def test_means_far_from_zero_have_no_p_from_rounding(level: float) -> None:
    def make(rng: np.random.Generator) -> pd.DataFrame:
        return pd.DataFrame({"g": np.repeat(np.arange(20), 40), "x": level + rng.standard_normal(800)})

    small, reasons = _shares_below(make, fl.mean("x"))
    assert small == 0
    assert bool(reasons) == (level > 1e14) or level == 1e14  # where it depends on the data


def test_equal_values_count_as_zero_variance_beside_others() -> None:
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"g": np.repeat(np.arange(10), 40), "y": rng.exponential(size=400)})
    data["x"] = data["y"] * np.where(data["g"] == 3, 0.1, 0.1 + 0.02 * rng.standard_normal(400))
    measurement = fl.measure(data, "g", fl.ratio("x", "y"))
    assert not measurement.excluded
    assert measurement.estimates.se.min() > 0


def test_the_error_of_a_common_variance_counts_with_many_groups() -> None:
    assert inflate_for_common_error(10, 0.0) == 1
    assert 1 < inflate_for_common_error(25, 0.05) < 1.01 < inflate_for_common_error(3000, 0.05) < 1.1


def test_few_rows_support_no_small_p() -> None:
    rng = np.random.default_rng(0)
    skewed = moments([rng.lognormal(0, 1, 30) for _ in range(20)])
    normal = moments([rng.standard_normal(1000) for _ in range(20)])
    floor = smallest_supported_pvalue(skewed)
    assert 1e-4 < floor.pvalue < 0.2
    assert floor.reason in {"few events", "heavy tails"}
    assert smallest_supported_pvalue(normal).pvalue < 1e-10
    few = smallest_supported_pvalue(normal, np.full(20, 5.0))
    assert few.reason == "few degrees of freedom"
    assert few.pvalue > 1e-6
    assert np.median(np.abs(describe_noise(skewed).skewness)) > 0.3
    assert few_events_limit(10) == 2 > few_events_limit(1000) > 0
