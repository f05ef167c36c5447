"""Each group against all the others: against plain loops and published adjustments."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

import faultlines as fl
from tests.refused import refused


def estimates(dof: float | None = None) -> fl.Estimates:
    rng = np.random.default_rng(0)
    se = rng.lognormal(0, 0.5, 12)
    theta = se * rng.standard_normal(12)
    theta[5] += 6 * se[5]
    return fl.Estimates(theta, se, [f"g{i}" for i in range(12)], dof=dof)


@pytest.mark.parametrize(("correction", "theirs"), [("holm", "holm"), ("bh", "fdr_bh")])
def test_p_and_differences_are_those_of_plain_tests(correction: str, theirs: str) -> None:
    groups = estimates()
    result = fl.cluster(groups).against_rest(correction)  # type: ignore[arg-type]
    plain, gaps, errors = [], [], []
    for i in range(12):
        others = np.arange(12) != i
        weight = groups.se[others] ** -2.0
        gaps.append(groups.theta[i] - np.average(groups.theta[others], weights=weight))
        errors.append(np.sqrt(groups.se[i] ** 2 + 1 / weight.sum()))
        plain.append(2 * stats.norm.sf(abs(gaps[-1]) / errors[-1]))
    np.testing.assert_allclose([group.difference for group in result], gaps, rtol=1e-9)
    np.testing.assert_allclose([group.pvalue for group in result], multipletests(plain, method=theirs)[1], rtol=1e-9)
    reach = -stats.norm.ppf((1 - 0.95 ** (1 / 12)) / 2)
    np.testing.assert_allclose([group.upper for group in result], np.array(gaps) + reach * np.array(errors), rtol=1e-9)
    assert [group.label for group in result if group.pvalue < 0.05] == ["g5"]


def test_every_row_has_them() -> None:
    result = fl.cluster(estimates())
    rows = result.to_dicts()
    assert {"pvalue_rest", "rest_difference", "rest_lower", "rest_upper"} <= rows[0].keys()
    assert rows[5]["pvalue_rest"] == result.against_rest()[5].pvalue
    assert fl.cluster(estimates(dof=4)).to_dicts()[5]["pvalue_rest"] > rows[5]["pvalue_rest"]
    with refused("unknown: correction"):
        result.against_rest("bonferroni")  # type: ignore[arg-type]


def test_several_effects_and_rates() -> None:
    rng = np.random.default_rng(1)
    two = fl.Estimates(rng.standard_normal((9, 2)), np.ones((9, 2)))
    rest = fl.cluster(two).against_rest()
    others = np.arange(9) != 4
    gap = two.values[4] - two.values[others].mean(axis=0)
    p = stats.chi2.sf(np.sum(gap**2) / (1 + 1 / 8), 2)
    assert rest[4].pvalue >= p
    np.testing.assert_allclose(rest[4].difference, gap)
    rates = fl.binomial([1, 9, 30, 2], [50] * 4)
    assert all(row["pvalue_rest"] <= 1 for row in fl.cluster(rates).to_dicts())


def test_intervals_hold_for_all_groups_together() -> None:
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(300):
        se = rng.lognormal(0, 0.5, 15)
        rest = fl.cluster(fl.Estimates(se * rng.standard_normal(15), se), guarantee=fl.Bonferroni()).against_rest()
        missed += any(group.lower > 0 or group.upper < 0 for group in rest)  # type: ignore[operator]
    assert missed / 300 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_groups_that_share_data_are_compared_with_their_covariance() -> None:
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    covariance, theta = root @ root.T + np.eye(5), rng.normal(size=5)
    estimates = fl.Estimates(theta, None, covariance=covariance)
    weight = estimates.own[:, 0] ** -2.0
    for i, group in enumerate(fl.cluster(estimates).against_rest()):
        assert isinstance(group.lower, float)
        assert isinstance(group.upper, float)
        contrast = -weight / (weight.sum() - weight[i])
        contrast[i] = 1.0
        error = np.sqrt(contrast @ covariance @ contrast)
        assert group.difference == pytest.approx(contrast @ theta)
        assert group.upper - group.lower == pytest.approx(2 * error * -stats.norm.ppf((1 - 0.95**0.2) / 2))
        assert group.pvalue >= 2 * stats.norm.sf(abs(contrast @ theta) / error) * (1 - 1e-9)
    two = fl.cluster(fl.Estimates([0.0, 1.0], None, covariance=[[1, 0.9], [0.9, 1]]))
    assert two.against_rest()[0].pvalue == pytest.approx(2 * two.pvalue)
