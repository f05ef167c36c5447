"""Does the guarantee hold? Shares of false claims, measured. Run by `make stats`; each test prints its figures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

import faultlines as fl
from faultlines import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.statistical
SIZES = [2, 5, 21, 102, 500]
PROFILES: list[simulate.Profile] = ["equal", "lognormal", "zipf"]


def pvalues(draw: Callable[[np.random.Generator], fl.Estimates], runs: int, guarantee: object, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([fl.cluster(draw(rng), guarantee=guarantee, seed=i).pvalue for i in range(runs)])  # type: ignore[arg-type]


def within(rate: float, alpha: float, runs: int) -> bool:
    """Within Monte Carlo error, on both sides: four standard errors, for there are many of these tests."""
    return abs(rate - alpha) <= 4 * math.sqrt(alpha * (1 - alpha) / runs)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("groups", SIZES)
def test_calibrated_claims_at_alpha_with_known_errors(groups: int, profile: simulate.Profile) -> None:
    runs = 6000 if groups <= 102 else 2500
    p = pvalues(
        lambda rng: simulate.null(groups, profile=profile, seed=rng).estimates, runs, fl.Calibrated(draws=199), groups
    )
    for alpha in (0.001, 0.01, 0.05, 0.2):
        rate = float((p < alpha).mean())
        print(f"known se, K={groups} {profile}: {rate:.4f} at α={alpha}")
        assert within(rate, alpha, runs)
    assert stats.kstest(p, "uniform").pvalue > 1e-4


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("groups", SIZES)
def test_calibrated_claims_at_alpha_with_five_degrees_of_freedom(groups: int, profile: simulate.Profile) -> None:
    """Not exact here, for the true variances are unknown: the rate may stray from α by a fifth of it."""
    runs = 4000 if groups <= 102 else 2000
    p = pvalues(
        lambda rng: simulate.null(groups, profile=profile, dof=5, seed=rng).estimates,
        runs,
        fl.Calibrated(draws=499),
        groups + 1,
    )
    for alpha in (0.01, 0.05):
        rate = float((p < alpha).mean())
        print(f"dof 5, K={groups} {profile}: {rate:.4f} at α={alpha}")
        assert rate <= 1.2 * alpha + 3 * math.sqrt(alpha / runs)
        assert rate >= 0.5 * alpha - 3 * math.sqrt(alpha / runs)


@pytest.mark.parametrize(
    ("groups", "equal", "lognormal"),
    [(5, 0.02, 0.02), (10, 0.06, 0.03), (21, 0.31, 0.07), (50, 0.98, 0.55), (100, 1.0, 0.99)],
)
def test_the_papers_rule_claims_far_too_often(groups: int, equal: float, lognormal: float) -> None:
    for profile, expected in (("equal", equal), ("lognormal", lognormal)):
        p = pvalues(
            lambda rng, profile=profile: simulate.null(groups, profile=profile, seed=rng).estimates,  # type: ignore[misc]
            4000,
            "bonferroni",
            groups,
        )
        rate = float((p < 0.05).mean())
        print(f"α/K², K={groups} {profile}: {rate:.3f}")
        assert rate == pytest.approx(expected, abs=0.02)


def test_degrees_of_freedom_from_twenty_on_allow_a_small_p() -> None:
    """Below one in so many draws p rests on the spread of the variances; from dof 20 on that is sound."""
    for profile in PROFILES:
        runs = 12_000
        p = pvalues(
            lambda rng, profile=profile: simulate.null(21, profile=profile, dof=20, seed=rng).estimates,  # type: ignore[misc]
            runs,
            fl.Calibrated(draws=199),
            7,
        )
        rate = float((p < 0.001).mean())
        print(f"dof 20, K=21 {profile}: {rate:.5f} at α=0.001 from 199 draws")
        assert rate <= 1.5 * 0.001 + 3 * math.sqrt(0.001 / runs)
