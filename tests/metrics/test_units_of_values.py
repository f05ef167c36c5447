"""Answers do not depend on the units of the values; where squares overflow, the reason says so."""

from __future__ import annotations

from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import faultlines as fl
from faultlines.errors import NoGroupsError
from faultlines.estimates.reasons import ReasonCode

ROWS = 200
NOISE = np.random.default_rng(5).normal(size=ROWS)
METRICS = {
    "mean": fl.mean("x"),
    "difference": fl.difference("x", variant="v", control="A"),
    "lift": fl.lift("x", variant="v", control="A"),
}


def rows(unit: float, center: float = 5.0) -> pd.DataFrame:
    arms = (["A"] * 2 + ["B"] * 2) * (ROWS // 4)
    return pd.DataFrame({"g": ["a", "b"] * (ROWS // 2), "v": arms, "x": unit * (center + NOISE + np.arange(ROWS) % 2)})


def frames(unit: float) -> dict[str, Any]:
    frame = rows(unit)
    table = pa.table({name: frame[name].tolist() for name in frame})
    return {
        "pandas": frame,
        "polars": pl.from_arrow(table),
        "duckdb": duckdb.from_arrow(table),
        "ibis": ibis.memtable(table),
    }


@pytest.mark.parametrize("unit", [1e-6, 1e-18, 1e-20, 1e-50, 1e30])
@pytest.mark.parametrize("name", METRICS)
def test_small_values_are_not_taken_for_zeros_and_ones(name: str, unit: float) -> None:
    plain = fl.cluster(rows(1.0), "g", METRICS[name]).pvalue
    for engine, frame in frames(unit).items():
        assert fl.cluster(frame, "g", METRICS[name]).pvalue == pytest.approx(plain, rel=1e-6), engine


@pytest.mark.parametrize("unit", [3e-6, 1e-7, 1e-20])
def test_values_around_zero_are_not_taken_for_signs(unit: float) -> None:
    plain = fl.measure(rows(1.0, -0.5).assign(x=lambda d: d.x - d.x.mean()), "g", METRICS["mean"]).estimates
    small = fl.measure(rows(unit, -0.5).assign(x=lambda d: d.x - d.x.mean()), "g", METRICS["mean"]).estimates
    np.testing.assert_allclose(small.se / unit, plain.se, rtol=1e-6)


def test_lifts_of_tiny_values() -> None:
    plain = fl.cluster(rows(1.0), "g", METRICS["lift"]).pvalue
    for engine, frame in frames(1e-55).items():
        assert fl.cluster(frame, "g", METRICS["lift"]).pvalue == pytest.approx(plain, rel=1e-6), engine


@pytest.mark.parametrize("unit", [1e-62, 1e-100, 1e-150, 1e-200])
@pytest.mark.parametrize("name", METRICS)
def test_values_whose_powers_are_zero_are_excluded(name: str, unit: float) -> None:
    for engine, frame in frames(unit).items():
        with pytest.raises(NoGroupsError) as error:
            fl.measure(frame, "g", METRICS[name])
        assert {reason.code for reason in error.value.reasons} == {ReasonCode.VANISHING}, engine


@pytest.mark.parametrize("name", METRICS)
def test_squares_that_overflow_are_too_large(name: str) -> None:
    extreme = rows(1.0)
    extreme.loc[extreme.g == "a", "x"] *= 1e200
    third = rows(1.0).assign(g="c")
    excluded = fl.measure(pd.concat([extreme, third]), "g", METRICS[name]).excluded
    assert [(group.label, group.reason.code) for group in excluded] == [("a", ReasonCode.TOO_LARGE)]


@pytest.mark.parametrize("unit", [1e45, 1e57, 1e-55])
def test_shapes_have_no_units(unit: float) -> None:
    """Groups that differ in their variances, of which eighth powers were formed."""
    rng = np.random.default_rng(2)
    groups = np.arange(240) % 6
    plain = pd.DataFrame({"g": groups.astype(str), "x": rng.lognormal(size=240) * (1 + groups)})
    expected = fl.measure(plain, "g", fl.mean("x")).estimates
    measured = fl.measure(plain.assign(x=plain.x * unit), "g", fl.mean("x")).estimates
    np.testing.assert_allclose(measured.se / unit, expected.se, rtol=1e-9)


@pytest.mark.parametrize(("unit", "code"), [(1e150, ReasonCode.TOO_LARGE), (1e-150, ReasonCode.VANISHING)])
def test_weights_of_rates_have_a_range(unit: float, code: ReasonCode) -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"g": list("ab") * 60, "t": rng.integers(0, 2, 120), "w": unit * rng.random(120)})
    with pytest.raises(NoGroupsError) as error:
        fl.measure(frame, "g", fl.rate("t", weight="w"))
    assert {reason.code for reason in error.value.reasons} == {code}


def test_ratios_beyond_all_powers_are_excluded() -> None:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"g": list("ab") * 60, "x": 1e-50 * rng.random(120), "y": 1e50 * rng.random(120)})
    with pytest.raises(NoGroupsError) as error:
        fl.measure(frame, "g", fl.ratio("x", "y"))
    assert {reason.code for reason in error.value.reasons} == {ReasonCode.VANISHING}
