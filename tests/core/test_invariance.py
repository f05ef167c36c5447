"""Merge invariance: what comes along has it, the paper's counterexample and pooled raw arms do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import faultlines as fl
from faultlines import simulate
from faultlines.estimates.scales import ANSCOMBE
from tests.refused import refused

RNG = np.random.default_rng(0)
TRIALS = RNG.integers(100, 900, 12)
SHIPPED: dict[str, Any] = {
    "estimates": simulate.null(12, profile="lognormal").estimates,
    "two effects": fl.Estimates(RNG.standard_normal((12, 2)), RNG.lognormal(0, 0.5, (12, 2))),
    "correlated": fl.Estimates(
        np.zeros((12, 2)), None, effect_covariance=np.tile([[1.0, 0.6], [0.6, 2.0]], (12, 1, 1))
    ),
    "t-test": fl.welch(simulate.null(12, dof=8, profile="lognormal").estimates),
    "binomial": fl.binomial(RNG.binomial(TRIALS, 0.2), TRIALS),
    "poisson": fl.poisson(RNG.poisson(20, 12), RNG.uniform(0.5, 2, 12)),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_what_comes_along_survives_merging(name: str) -> None:
    check = fl.check_merge_invariance(SHIPPED[name], runs=3000)
    assert check.passed, str(check)
    assert check
    assert check.counterexample is None
    assert 0.03 < check.of_pairs < 0.075


@pytest.mark.parametrize("scale", ["plain", "rates"])
def test_a_tolerance_survives_merging(scale: str) -> None:
    if scale == "plain":
        check = fl.check_merge_invariance(SHIPPED["estimates"], tolerance=1.0, runs=2000)
    else:
        rates = fl.Estimates(np.full(12, 0.4), 1 / np.sqrt(4.0 * TRIALS + 2), scale=ANSCOMBE)
        check = fl.check_merge_invariance(rates, tolerance=0.05, runs=2000)
    assert check.passed, str(check)


def equal_variances(a: Any, b: Any) -> Any:
    """The two-sided F test on (n, Σx, Σx²)."""
    of_a, of_b = ((s[:, 2] - s[:, 1] ** 2 / s[:, 0]) / (s[:, 0] - 1) for s in (a, b))
    below = stats.f.cdf(of_a / of_b, a[:, 0] - 1, b[:, 0] - 1)
    return 2 * np.minimum(below, 1 - below)


def groups_with_equal_variances(s: Any, rng: np.random.Generator) -> Any:
    rows = [rng.normal(rng.normal(0, 2), 1.0, 60) for _ in range(len(s))]
    return np.array([[60, x.sum(), (x**2).sum()] for x in rows])


def compare_effects(a: Any, b: Any) -> Any:
    """A t-test on the pooled raw arms, (n, Σx, Σx²) of treatment and of control."""

    def effect(s: Any) -> Any:
        means = [s[:, i + 1] / s[:, i] for i in (0, 3)]
        variances = [(s[:, i + 2] / s[:, i] - mean**2) / (s[:, i] - 1) for i, mean in zip((0, 3), means, strict=True)]
        return means[0] - means[1], variances[0] + variances[1]

    (effect_a, var_one), (other, var_other) = effect(a), effect(b)
    return stats.chi2.sf((effect_a - other) ** 2 / (var_one + var_other), 1)


def groups_with_equal_effects(s: Any, rng: np.random.Generator, *, shares: Any = (0.1, 0.9)) -> Any:
    groups = []
    for _ in range(len(s)):
        treated = int(400 * rng.choice(shares))
        level = rng.normal(0, 2)
        t, c = rng.normal(level + 1, 1, treated), rng.normal(level, 1, 400 - treated)
        groups.append([len(t), t.sum(), (t**2).sum(), len(c), c.sum(), (c**2).sum()])
    return np.array(groups)


def test_equal_variances_do_not_survive_merging() -> None:
    table = groups_with_equal_variances(np.ones(9), RNG)
    check = fl.check_merge_invariance(fl.Similarity(table, equal_variances, null=groups_with_equal_variances), runs=600)
    assert not check.passed
    assert 0.02 < check.of_pairs < 0.09
    assert check.of_merged > 0.4
    assert check.counterexample is not None


def test_pooled_arms_survive_only_equal_treatment_shares() -> None:
    table = groups_with_equal_effects(np.ones(9), RNG)
    unequal = fl.Similarity(table, compare_effects, null=groups_with_equal_effects)
    check = fl.check_merge_invariance(unequal, runs=600)
    assert not check.passed
    assert check.counterexample is not None
    equal = fl.Similarity(
        table, compare_effects, null=lambda s, rng: groups_with_equal_effects(s, rng, shares=(0.5, 0.5))
    )
    assert fl.check_merge_invariance(equal, runs=600).passed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"comparison": fl.Similarity(np.ones((3, 3)), equal_variances)}, "unsupported: null"),
        ({"comparison": fl.Estimates([0, 1], [1, 1])}, "too few: comparison"),
        ({"comparison": "variance"}, "wrong type: estimates"),
        ({"runs": 10}, "out of range: runs"),
        ({"alpha": 1.0}, "out of range: alpha"),
    ],
)
def test_bad_input(arguments: dict[str, Any], words: str) -> None:
    with refused(words):
        fl.check_merge_invariance(**({"comparison": SHIPPED["estimates"]} | arguments))
