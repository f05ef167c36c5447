"""How often an attribute without an effect gets p ≤ α, and how often one with an effect is found."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from docs.figures import record_figure
from faultlines.core.additive import WeightedCells, fit_additive
from faultlines.guarantees.attributes import explain_variation
from faultlines.guarantees.joint_test import GroupEffects
from faultlines.types import FloatArray
from tests.statistical.tally import level_bound, scale_runs

pytestmark = pytest.mark.statistical
ALPHA, RUNS = 0.05, scale_runs(600)
SHAPES = {"6 × 8": (6, 8), "30 × 3": (30, 3), "4 × 5 × 6": (4, 5, 6), "3 × 3": (3, 3)}


def draw_pvalues(
    shape: tuple[int, ...], rng: np.random.Generator, *, first: float, spread: float, missing: float
) -> FloatArray:
    """The p of each attribute beside the others in one data set.

    Args:
        shape: How many levels each attribute has.
        rng: Source of random numbers.
        first: Standard deviation of the effects of the first attribute; no other has an effect.
        spread: Standard deviation of the logarithm of standard errors, which differ by attribute too.
        missing: Share of the cells that do not occur, so that attributes overlap.
    """
    cells = np.array([cell for cell in itertools.product(*map(range, shape)) if rng.random() >= missing])
    se = np.exp(rng.normal(0, spread / 2, shape[-1])[cells[:, -1]] + rng.normal(0, spread, len(cells)))
    theta = rng.normal(0, first, shape[0])[cells[:, 0]] + se * rng.normal(size=len(cells))
    rows = explain_variation(GroupEffects(theta, se, None), cells)
    return np.exp([row.beside.log_p for row in rows[: len(shape)]])


def measure_rates(
    shape: tuple[int, ...], *, first: float, spread: float, missing: float = 0.0, seed: int = 0
) -> tuple[float, float]:
    """The largest rate of false positives of an attribute, and the power of the first where it has an effect."""
    rng = np.random.default_rng(seed)
    below = np.mean(
        [draw_pvalues(shape, rng, first=first, spread=spread, missing=missing) <= ALPHA for _ in range(RUNS)], axis=0
    )
    return float(below[1:].max() if first else below.max()), float(below[0])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spread", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("first", [0.0, 5.0], ids=["nothing differs", "the first attribute explains all"])
def test_false_positives_of_attributes(first: float, spread: float, shape: str) -> None:
    false, _ = measure_rates(SHAPES[shape], first=first, spread=spread)
    where = "nothing differs" if first == 0 else "the first attribute differs"
    record_figure("explained", f"false positives; {shape}, lognormal({spread:g}) se; {where}", false, RUNS)
    assert false <= level_bound(ALPHA, RUNS)


def test_attributes_that_overlap_do_not_borrow_from_each_other() -> None:
    false, power = measure_rates((6, 8), first=5.0, spread=0.6, missing=0.4)
    record_figure("explained", "false positives; two fifths of 6 × 8 missing; the first attribute differs", false, RUNS)
    record_figure("explained", "power; two fifths of 6 × 8 missing; the first attribute", power, RUNS)
    assert false <= level_bound(ALPHA, RUNS)
    assert power > 0.9


@pytest.mark.parametrize("dof", [None, 8.0], ids=["known", "dof 8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_combinations_are_rarely_named_where_effects_add_up(shape: str, dof: float | None) -> None:
    rng = np.random.default_rng(3)
    codes = [levels.ravel() for levels in np.indices(SHAPES[shape])]
    size = codes[0].size
    se = np.exp(rng.normal(0, 0.6, size))
    mean = np.sum([3.0 * rng.normal(size=int(levels.max()) + 1)[levels] for levels in codes], axis=0)
    rejected = 0
    for _ in range(RUNS):
        estimated = se if dof is None else se * np.sqrt(rng.chisquare(dof, size) / dof)
        freedom = None if dof is None else np.full(size, dof)
        fit = fit_additive(WeightedCells.of(mean + se * rng.normal(size=size), estimated, freedom), codes, se**-2)
        rejected += fit is not None and fit.log_p <= np.log(ALPHA)
    precision = "known se" if dof is None else f"{dof:g} degrees of freedom"
    record_figure("explained", f"additive model rejected; {shape}; {precision}", rejected / RUNS, RUNS)
    assert rejected / RUNS <= level_bound(ALPHA, RUNS)
