"""False positives from rows in which nothing differs: a part of the grid, so that it can fail in minutes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from docs.figures import record_figure
from faultlines.metrics.readout import Readout
from faultlines.rows.request import Moments
from tests.statistical.grid import MEANS, METRICS, Cell, cells, moments_of, share_reported, sizes_of, values_of
from tests.statistical.tally import scale_runs

pytestmark = pytest.mark.statistical

HELD = 0.075


def is_known(cell: Cell) -> bool:
    """Cells that cannot be held, of which docs/guarantees.md and the result warn.

    Few events whose size varies between groups: what a group without events would have varied by, nobody can know.
    Lifts of few and skewed values, in an arm of ten rows.
    """
    if cell.spread == "unequal" and cell.rows in {"rare", "spend"}:
        return True
    return cell.metric == "lift" and cell.arms == "10/90" and cell.rows != "normal"


@pytest.mark.parametrize("groups", [10, 40, 100])
@pytest.mark.parametrize("metric", METRICS)
def test_false_positives_from_rows(metric: str, groups: int) -> None:
    wanted = scale_runs(400 if groups < 100 else 200)
    above, shares = [], []
    for cell in cells():
        if (cell.metric, cell.groups) != (metric, groups):
            continue
        share, runs, drawn = share_reported(cell, wanted)
        if runs < drawn // 2:  # hardly ever two groups that can be compared
            continue
        shares.append(share)
        if share > HELD:
            record_figure("grid", f"above 7.5%; {cell.describe()}; false positives", share, runs)
        if not is_known(cell) and share > HELD + 3.3 * np.sqrt(HELD * (1 - HELD) / runs):
            above.append((cell, share))
    row = f"kinds of rows; {metric}, {groups} groups"
    record_figure("grid", f"{row}; kinds", len(shares), wanted, unit="number")
    record_figure("grid", f"{row}; above 7.5%", sum(share > HELD for share in shares), wanted, unit="number")
    record_figure("grid", f"{row}; mean", np.mean(shares), wanted)
    record_figure("grid", f"{row}; worst kind", max(shares), wanted)
    assert not above
    assert np.mean(shares) < HELD


@pytest.mark.parametrize("rows", MEANS)
@pytest.mark.parametrize("metric", ["mean", "difference"])
def test_the_overall_effect_is_covered(metric: str, rows: str) -> None:
    """Of all groups, and of the first half of them, chosen beforehand."""
    rng = np.random.default_rng(0)
    arms = 2 if metric == "difference" else 1
    truth = 0.0 if arms == 2 else MEANS[rows]
    inside, runs = np.zeros(2), scale_runs(600)
    for _ in range(runs):
        sizes = sizes_of("lognormal", 40, rng)
        parts = [moments_of([values_of(rows, rng, int(sizes.sum()))], sizes) for _ in range(arms)]
        moments = Moments(*(np.stack(part, axis=1) for part in zip(*parts, strict=True)))
        readout = Readout(METRICS[metric], moments, None, ())
        for i, clusters in enumerate((np.zeros(40, dtype=np.int64), (np.arange(40) >= 20).astype(np.int64))):
            together = readout.together(clusters, i + 1)
            assert together is not None
            assert together.dof is not None
            reach = stats.t.ppf(0.975, together.dof[0]) * together.se[0]
            inside[i] += abs(together.theta[0] - truth) <= reach
    for column, share in zip(("all groups", "half of them"), inside / runs, strict=True):
        record_figure("grid", f"coverage; {metric}, {rows}; {column}", share, runs)
    assert np.all(inside / runs > 0.93 - 2.5 * np.sqrt(0.05 * 0.95 / runs))
    assert np.all(inside / runs < 0.96 + 2.5 * np.sqrt(0.05 * 0.95 / runs))
