"""Rows of units that go together, covariates with gaps: false positives and coverage where nothing differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from docs.figures import record_figure
from tests.statistical.tally import level_bound

pytestmark = pytest.mark.statistical
RUNS = 200
METRICS: dict[str, fl.Metric] = {
    "rate": fl.rate("y", unit="prompt"),
    "true positive rate": fl.true_positive_rate("t", "y", unit="prompt"),
    "area": fl.auc("t", "s", unit="prompt"),
    "Brier score": fl.brier("t", "s", unit="prompt"),
    "F1": fl.f1("t", "y", unit="prompt"),
    "balanced accuracy": fl.balanced_accuracy("t", "y", unit="prompt"),
    "slope": fl.calibration_slope("t", "s", unit="prompt"),
    "mean": fl.mean("x", unit="prompt"),
}


def answers(rng: np.random.Generator) -> pd.DataFrame:
    """600 prompts of ten languages that do not differ, eight answers each."""
    prompt, ability = np.repeat(np.arange(600), 8), rng.beta(0.8, 0.8, 600)
    language, size = rng.integers(0, 10, 600)[prompt], prompt.size
    rows: dict[str, Any] = {"prompt": prompt, "language": language, "t": rng.integers(0, 2, size)}
    rows["y"] = (rng.random(size) < ability[prompt]).astype(int)
    rows["s"] = np.clip(ability[prompt] + 0.15 * rng.standard_normal(size), 0, 1)
    rows["x"] = rng.exponential(1, 600)[prompt] + rng.exponential(1, size)
    return pd.DataFrame(rows)


@pytest.mark.parametrize("name", METRICS)
def test_repeated_rows_of_prompts_make_no_clusters(name: str) -> None:
    rejected = 0
    for seed in range(RUNS):
        rows = answers(np.random.default_rng([seed, 17]))
        rejected += fl.cluster(rows, "language", METRICS[name], seed=seed).pvalue <= 0.05
    assert rejected / RUNS <= level_bound(0.05, RUNS)


def test_the_same_rows_without_units_do() -> None:
    """The study can see what it is there to exclude."""
    results = [
        fl.cluster(answers(np.random.default_rng([seed, 17])), "language", fl.rate("y")).pvalue for seed in range(20)
    ]
    assert np.mean(np.array(results) <= 0.05) > 0.5


def test_effects_with_three_in_ten_covariates_missing_are_unbiased_and_covered() -> None:
    rng, groups, effect = np.random.default_rng(9), 20, 0.5
    errors, covered, rejected = [], [], 0
    for seed in range(RUNS):
        size = groups * 300
        group, is_new, treated = rng.integers(0, groups, size), rng.random(size) < 0.3, rng.random(size) < 0.5
        before = rng.gamma(1, 3, size) + 0.2 * group
        y = np.where(is_new, 0.0, before) + rng.exponential(1, size) + effect * treated
        rows = pd.DataFrame({"g": group, "arm": np.where(treated, "B", "A"), "y": y})
        rows["before"] = np.where(is_new, np.nan, before)
        metric = fl.difference("y", variant="arm", control="A", covariate="before")
        estimates = fl.measure(rows, "g", metric).estimates
        errors.append(float(np.mean(estimates.theta - effect)))
        covered.append(float(np.mean(np.abs(estimates.theta - effect) < 1.96 * estimates.se)))
        rejected += fl.cluster(estimates, seed=seed).pvalue <= 0.05
    name = "three in ten covariates missing; 20 groups of 300"
    error = float(np.std(errors) / np.sqrt(RUNS))
    record_figure("units", f"{name}; bias (the effect is 0.5)", np.mean(errors), RUNS, error=error, unit="number")
    record_figure("units", f"{name}; 95% intervals cover", np.mean(covered), RUNS * groups)
    record_figure("units", f"{name}; false positives (α = 5%)", rejected / RUNS, RUNS)
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(RUNS)
    assert 0.94 < np.mean(covered) < 0.96
    assert rejected / RUNS <= level_bound(0.05, RUNS)
