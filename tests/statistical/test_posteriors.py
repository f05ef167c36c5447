"""Levels, memberships, shrunken effects and simultaneous intervals are as right as the docs say."""

from __future__ import annotations

import numpy as np
import pytest

import faultlines as fl
from docs.figures import record_figure
from faultlines import simulate
from tests.statistical.posteriors import ARRANGED, Cell, described, seen, shrinkage
from tests.statistical.tally import scale_runs, wider

pytestmark = pytest.mark.statistical
CELLS = [
    Cell(*ARRANGED[0], 40, "equal"),
    Cell(*ARRANGED[1], 102, "mild"),
    Cell(*ARRANGED[3], 40, "mild"),
    Cell(*ARRANGED[5], 20, "equal"),
    Cell(*ARRANGED[6], 102, "equal"),
    Cell(*ARRANGED[7], 40, "equal", 10.0),
    Cell(*ARRANGED[9], 40, "mild"),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_levels_cover_and_memberships_are_calibrated(cell: Cell) -> None:
    runs = scale_runs(200)
    made = described(cell, runs)
    assert made["found"] > runs / 2
    more = wider(0.95, runs, 200)
    for name in ("covered", "in_set", "any_covered"):
        record_figure("posteriors", f"coverage; {cell}; {name.replace('_', ' ')}", made[name], made["found"])
    assert 0.92 - more <= made["covered"] <= 0.985 + more
    assert made["covered"] > made["hard_covered"] - 0.02
    assert np.abs(made["bias"]).max() < 0.45
    assert made["calibration_error"] <= 0.035
    assert made["in_set"] >= 0.95
    assert made["any_covered"] >= 0.95
    if min(np.diff(cell.levels)) >= 4:
        assert made["set_size"] <= 1.35


@pytest.mark.parametrize("apart", [0.0, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_shrunken_effects_are_near_the_best_and_their_intervals_cover(apart: float) -> None:
    levels = (0.0, apart) if apart else (0.0,)
    made = shrinkage(Cell(levels, (1 / len(levels),) * len(levels), 60, "mild"), 150)
    assert made["covered"] >= 0.93
    assert made["width"] < 1.0
    assert made["errors"]["shrunken"] < made["errors"]["alone"]
    if apart >= 1:
        assert made["ratio"] <= 1.12


@pytest.mark.parametrize("groups", [5, 21, 102])
def test_simultaneous_intervals_hold_when_the_number_of_clusters_is_wrong(groups: int) -> None:
    rng = np.random.default_rng(groups)
    held = []
    for _ in range(300):
        truth = np.linspace(0, 6, groups)  # no clusters at all: every group has an effect of its own
        theta = truth + rng.standard_normal(groups)
        found = fl.cluster(fl.Estimates(theta, np.ones(groups)), guarantee=fl.Calibrated(draws=200))
        ends = [cluster.simultaneous_ci for cluster in found.clusters]
        aims = [truth[found.labels == i + 1].mean() for i in range(found.n_clusters)]
        held.append(all(low <= aim <= high for (low, high), aim in zip(ends, aims, strict=True)))  # type: ignore[misc]
    assert np.mean(held) >= 0.95


def test_groups_that_the_onboarding_study_misplaces_are_mostly_marked() -> None:
    wrong = marked = 0
    for seed in range(60):
        made = simulate.onboarding(seed)
        found = fl.cluster(made.estimates)
        posterior = found.posterior
        if found.n_clusters != 3 or posterior is None:
            continue
        misplaced = made.truth != found.labels
        wrong += int(misplaced.sum())
        marked += int(np.sum(~posterior.certain & misplaced))
    assert wrong > 60
    assert marked > 0.9 * wrong


def test_a_cell_that_was_not_found_is_left_out() -> None:
    cell = Cell(*ARRANGED[0], 20, "equal")
    estimates = fl.Estimates(np.zeros(20) + 1e-3 * np.arange(20), np.ones(20))
    assert seen(cell, estimates, np.zeros(20), 0) is None
