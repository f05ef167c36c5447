"""Missing values and impact ratios: bounds always hold the truth, few certificates are wrong, intervals cover.

Values are missing in the worst of ways: they depend on the outcome itself, differently in every group.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from docs.figures import record_figure
from tests.statistical.tally import scale_runs

if TYPE_CHECKING:
    from faultlines.results.impact import ImpactTable

pytestmark = pytest.mark.statistical
ALPHA = 0.05
METRICS: dict[str, tuple[fl.Metric, Any]] = {
    "rate": (fl.rate("t"), lambda rows: rows.t),
    "true positive rate": (fl.true_positive_rate("t", "p"), lambda rows: rows.p[rows.t == 1]),
    "precision": (fl.precision("t", "p"), lambda rows: rows.t[rows.p == 1]),
    "accuracy": (fl.accuracy("t", "p"), lambda rows: (rows.t == rows.p).astype(float)),
}


def bound(runs: int) -> float:
    return ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def complete(rng: np.random.Generator, groups: int, size: int, spread: float) -> pd.DataFrame:
    """Truth and predictions of groups of unequal sizes whose rates differ."""
    sizes = rng.dirichlet(np.full(groups, 5.0))
    g = rng.choice(groups, size, p=sizes)
    base, hit = rng.uniform(0.3, 0.3 + spread, groups), rng.uniform(0.6, 0.6 + spread, groups)
    t = rng.random(size) < base[g]
    p = rng.random(size) < np.where(t, hit[g], 1 - hit[g])
    return pd.DataFrame({"g": [f"g{i}" for i in g], "t": t.astype(float), "p": p.astype(float)})


def holes(rng: np.random.Generator, rows: pd.DataFrame, most: float) -> pd.DataFrame:
    """The same with values missing that depend on what they are, on the group and on the other value."""
    incomplete, groups = rows.copy(), rows.g.nunique()
    chance = rng.uniform(0, most, (2, groups, 2, 2))
    codes = rows.g.str[1:].astype(int).to_numpy() % groups
    for i, column in enumerate(("t", "p")):
        own = chance[i, codes, rows.t.astype(int), rows.p.astype(int)]
        incomplete.loc[rng.random(len(rows)) < own, column] = np.nan
    return incomplete


@pytest.mark.parametrize("name", METRICS)
def test_bounds_hold_the_rates_of_the_complete_rows_in_all_simulations(name: str) -> None:
    metric, values = METRICS[name]
    for seed in range(scale_runs(100)):
        rng = np.random.default_rng(seed)
        rows = complete(rng, int(rng.integers(2, 9)), 2000, 0.3)
        certificate = fl.certify(holes(rng, rows, 0.4), "g", metric, gap=0.2)
        for row in certificate.to_dicts():
            own = float(values(rows[rows.g == row["g"]]).mean())
            assert row["possible_lower"] - 1e-12 <= own <= row["possible_upper"] + 1e-12


def test_bounds_hold_the_rates_where_attributes_are_unknown_in_all_simulations() -> None:
    for seed in range(scale_runs(100)):
        rng = np.random.default_rng(seed)
        rows = complete(rng, int(rng.integers(2, 7)), 2000, 0.3)
        lost = rows.assign(g=rows.g.where(rng.random(2000) > np.where(rows.t == 1, 0.3, 0.1)))
        ratios = fl.impact_ratios(lost, "g", selected="t", unknown="bounds", min_share=0)
        rates = rows.groupby("g").t.mean()
        for category in ratios.tables[0].compared:
            ratio = rates[category.label] / rates.max()
            assert category.possible_lower is not None
            assert category.possible_upper is not None
            assert category.possible_lower - 1e-12 <= ratio <= category.possible_upper + 1e-12


@pytest.mark.parametrize("against", ["overall", "all pairs", "highest", "g0"])
def test_certificates_in_spite_of_missing_values_are_wrong_no_more_often_than_alpha(against: str) -> None:
    """The population has a group beyond the gap; missing values hide as much of it as they can."""
    runs, wrong, ignored = scale_runs(400), 0, 0
    rates = np.array([0.50, 0.50, 0.401])
    center = float(rates.mean()) if against == "overall" else 0.5
    gap = center - 0.401 - 1e-4
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        g = np.arange(6000) % 3
        rows = pd.DataFrame({"g": [f"g{i}" for i in g], "x": (rng.random(6000) < rates[g]).astype(float)})
        hidden = (g == 2) & (rows.x == 0) & (rng.random(6000) < 0.03)
        rows.loc[hidden, "x"] = np.nan
        asked: dict[str, Any] = {"gap": gap, "against": against, "adverse": None}
        wrong += fl.certify(rows, "g", fl.rate("x"), **asked).verdict == "passed"
        ignored += fl.certify(rows, "g", fl.rate("x"), **asked, missing="ignore").verdict == "passed"
    assert wrong / runs <= bound(runs)
    assert ignored >= wrong


# Selection rates of the categories, and how many rows each has on average.
CATEGORIES: dict[str, tuple[list[float], int]] = {
    "2 equal": ([0.4] * 2, 400),
    "2, the lower at 0.8 × the higher, no crossing": ([0.4, 0.5], 1000),
    "5, the lowest at 0.8 × the highest": ([0.32, 0.4, 0.4, 0.4, 0.4], 400),
    "5, rare": ([0.04, 0.05, 0.05, 0.05, 0.05], 400),
    "12, from 20% to 50%": (np.linspace(0.2, 0.5, 12).tolist(), 100),
}


def _covers(table: ImpactTable, truth: Any) -> bool:
    """Whether all intervals of a table hold the true ratios, which are those of g; by sex there is no difference."""
    for category in table.compared:
        label = category.label if isinstance(category.label, tuple) else (category.label,)
        own = truth[int(str(label[0])[1:])] if table.attributes[0] == "g" else 1.0
        if category.lower is None or category.upper is None:
            return False
        if not category.lower - 1e-9 <= own <= category.upper + 1e-9:
            return False
    return True


@pytest.mark.parametrize("name", CATEGORIES)
def test_intervals_of_impact_ratios_cover_all_ratios_of_all_tables(name: str) -> None:
    listed, size = CATEGORIES[name]
    rates, count = np.array(listed), len(listed)
    truth = rates / rates.max()
    runs, missed, passed, failed = scale_runs(1000), 0, 0, 0
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        g, sex = rng.choice(count, size * count), rng.choice(["f", "m"], size * count)
        rows = pd.DataFrame(
            {"g": [f"g{i:02}" for i in g], "sex": sex, "x": (rng.random(g.size) < rates[g]).astype(int)}
        )
        by = ["g"] if name.endswith("no crossing") else ["g", "sex"]
        ratios = fl.impact_ratios(rows, by, selected="x", min_share=0)
        missed += not all(_covers(table, truth) for table in ratios.tables)
        passed += ratios.verdict == "passed"
        failed += ratios.verdict == "failed"
    record_figure("impact", f"coverage; {name}; all intervals cover", 1 - missed / runs, runs)
    record_figure("impact", f"coverage; {name}; passed", passed / runs, runs)
    record_figure("impact", f"coverage; {name}; failed", failed / runs, runs)
    assert missed / runs <= bound(runs)
    if truth.min() <= 0.8:
        assert passed / runs <= bound(runs)
    if truth.min() >= 0.8:
        assert failed / runs <= bound(runs)
