"""The studies of public data: do their parts compute what they say, and do they go without data that are not there?"""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.optimize import minimize
from statsmodels.stats.multitest import multipletests

import faultlines as fl
from experiments import asos, halves, known, relabelled
from experiments.field_data import CASES, Paths, halved


def part(theta: np.ndarray, se: np.ndarray) -> halves.Seen:
    return halves.Seen(theta, se, theta, se, np.ones(theta.size))


def test_the_mixed_model_is_that_of_a_generic_solver() -> None:
    for seed, spread in ((0, 2.0), (1, 0.0), (2, 0.5)):
        rng = np.random.default_rng(seed)
        se = rng.lognormal(0, 0.5, 12)
        theta = 1 + spread * rng.standard_normal(12) + se * rng.standard_normal(12)

        def loss(log: np.ndarray, theta: np.ndarray = theta, se: np.ndarray = se) -> float:
            # The likelihood of what no mean can change: all contrasts of the groups.
            contrasts = np.linalg.svd(np.ones((1, 12)))[2][1:]
            cover = contrasts @ np.diag(se**2 + np.exp(log[0])) @ contrasts.T
            return -float(stats.multivariate_normal.logpdf(contrasts @ theta, np.zeros(11), cover))

        variance = float(np.exp(minimize(loss, [0.0], method="Nelder-Mead", options={"xatol": 1e-10}).x[0]))
        mean = np.average(theta, weights=1 / (se**2 + variance))
        expected = mean + variance / (variance + se**2) * (theta - mean)
        assert halves.mixed_model(theta, se) == pytest.approx(expected, abs=1e-3)


def test_flagged_groups_are_those_of_holm() -> None:
    rng = np.random.default_rng(3)
    theta, se = np.append(rng.standard_normal(20), [6.0, -5.0]), np.full(22, 1.0)
    far, z = halves.against_rest(part(theta, se))
    assert far[20] == pytest.approx(6.0 - np.delete(theta, 20).mean())
    assert z[20] == pytest.approx(far[20] / np.sqrt(1 + 1 / 21))
    flags = halves.flagged(part(theta, se), part(-theta, se))
    assert flags["Holm flagged"] == multipletests(2 * stats.norm.sf(np.abs(z)), method="holm")[0].sum() >= 2
    assert flags["p < 0.05 flagged"] == np.sum(np.abs(z) >= stats.norm.isf(0.025))
    assert (flags["Holm confirmed"], flags["Holm reversed"]) == (0, flags["Holm flagged"])
    assert flags["Holm back"] == pytest.approx(-flags["Holm found"])


def test_claims_are_seen_again_in_the_same_data_and_not_in_opposite_ones() -> None:
    theta = np.repeat([0.0, 8.0], 6)
    estimates = fl.Estimates(theta, np.ones(12), list("abcdefghijkl"))
    result = fl.cluster(estimates)
    same = halves.claims(result, estimates)
    assert (same["pairs"], same["confirmed"], same["reversed"]) == (1, 1, 0)
    assert same["back"] == pytest.approx(same["plain"]) == pytest.approx(8)
    opposite = halves.claims(result, fl.Estimates(-theta, np.ones(12), list("abcdefghijkl")))
    assert (opposite["confirmed"], opposite["reversed"]) == (0, 1)
    assert opposite["back"] == pytest.approx(-8)


def test_the_error_of_a_right_prediction_is_nought_on_average() -> None:
    rng = np.random.default_rng(5)
    se = rng.lognormal(0, 0.3, 40)
    errors = [halves.error(np.zeros(40), part(se * rng.standard_normal(40), se)) for _ in range(4000)]
    assert np.mean(errors) == pytest.approx(0, abs=4 * np.std(errors) / np.sqrt(4000))
    assert halves.error(np.full(40, 2.0), part(np.zeros(40), np.zeros(40))) == 4


def test_ratios_and_intervals() -> None:
    assert halves.ratio([1.0, 3.0], [2.0, 6.0]) == pytest.approx([0.5, 0.0])
    assert halves.ratio([0.0], [0.0]) is None
    assert relabelled.ends(0, 400)[0] == 0
    assert relabelled.ends(20, 400) == pytest.approx(tuple(stats.binomtest(20, 400).proportion_ci(method="exact")))


def test_lifts_in_which_nothing_differs_have_the_given_errors_and_grow_together() -> None:
    n, se = np.array([[100.0, 200.0, 400.0]]), np.array([[1.0, 0.8, 0.5]])
    for how, clock in (("precision", se[0] ** -2.0), ("totals", (n * se)[0] ** 2)):
        rng = np.random.default_rng(1)
        drawn = [asos.alike(Paths(("x",), n, n, se), how, rng).lift[0] for _ in range(4000)]
        assert np.std(drawn, axis=0) == pytest.approx(se[0], rel=0.05)
        assert np.corrcoef(np.array(drawn).T)[0, 2] == pytest.approx(np.sqrt(clock[0] / clock[2]), abs=0.05)


def test_halves_share_no_row() -> None:
    first, second = halved(pl.DataFrame({"i": range(1000)}), 0.5, 1)
    assert sorted([*first["i"], *second["i"]]) == list(range(1000))
    assert 400 < len(first) < 600


def test_every_case_has_a_name_of_its_own() -> None:
    assert len({(case.data, case.name) for case in CASES}) == len(CASES)
    assert all((case.arms is None) == (case.data == "COMPAS") for case in CASES)


def test_studies_are_skipped_without_their_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAULTLINES_DATA", raising=False)
    for study in (known.STUDY, relabelled.STUDY, halves.STUDY, asos.STUDY):
        assert "is not in the folder that FAULTLINES_DATA names" in str(study.skipped())
