"""Atkinson's index: against its definition, a bootstrap, and what it must not depend on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl
from tests.refused import refused
from tests.single import own_errors

RNG = np.random.default_rng(3)
USERS = pd.DataFrame({"user": np.arange(6000), "g": np.arange(6000) % 3, "arm": RNG.choice(["A", "B"], 6000)})
ROWS = USERS.loc[USERS.index.repeat(RNG.integers(1, 4, 6000))].reset_index(drop=True)
ROWS["x"] = RNG.lognormal(0, 0.7 + 0.2 * (ROWS.arm == "B"))


def atkinson(x: Any, epsilon: float) -> float:
    """By its definition: 1 less the mean of order 1 − ε over the mean."""
    if epsilon == 1:
        return float(1 - np.exp(np.log(x).mean()) / x.mean())
    return float(1 - np.mean(x ** (1 - epsilon)) ** (1 / (1 - epsilon)) / x.mean())


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1, 2])
@pytest.mark.parametrize("unit", [None, "user"])
def test_values_and_standard_errors(epsilon: float, unit: str | None) -> None:
    data = ROWS if unit is None else ROWS.groupby(["g", "arm", "user"], as_index=False)["x"].sum()
    estimates = fl.measure(ROWS, "g", fl.atkinson("x", epsilon, unit=unit)).estimates
    parts = [d.x.to_numpy() for _, d in data.groupby("g")]
    np.testing.assert_allclose(estimates.natural, [atkinson(x, epsilon) for x in parts], rtol=1e-9)
    rng = np.random.default_rng(0)
    draws = [[atkinson(x[rng.integers(0, x.size, x.size)], epsilon) for _ in range(250)] for x in parts]
    own = own_errors(ROWS, fl.atkinson("x", epsilon, unit=unit))
    np.testing.assert_allclose(own.se, np.std(draws, axis=1), rtol=0.2)
    # The plain index is too small by about what the bootstrap says it is.
    bias = np.mean(draws, axis=1) - estimates.natural
    np.testing.assert_allclose(estimates.theta - estimates.natural, -bias, atol=4 * estimates.se.max() / np.sqrt(250))


def test_arms_are_compared() -> None:
    metric = fl.atkinson("x", 0.5, variant="arm", control="A", unit="user")
    measurement = fl.measure(ROWS, "g", metric)
    people = ROWS.groupby(["g", "arm", "user"], as_index=False)["x"].sum()
    each = people.groupby(["g", "arm"])["x"].apply(lambda x: atkinson(x.to_numpy(), 0.5)).unstack()
    np.testing.assert_allclose(measurement.estimates.natural, each.B - each.A, rtol=1e-9)
    assert measurement.readout is not None
    assert measurement.readout.by_arm is not None
    np.testing.assert_allclose(measurement.readout.by_arm, each[["A", "B"]], rtol=1e-9)
    sides = [own_errors(ROWS[ROWS.arm == arm], fl.atkinson("x", 0.5, unit="user")) for arm in "AB"]
    np.testing.assert_allclose(own_errors(ROWS, metric).se, np.hypot(sides[0].se, sides[1].se), rtol=1e-9)


@settings(max_examples=8, deadline=None)
@given(st.floats(0.1, 3), st.floats(1e-3, 1e3), st.integers(0, 2**31))
def test_it_does_not_depend_on_the_unit_of_money(epsilon: float, factor: float, seed: int) -> None:
    x = np.random.default_rng(seed).lognormal(0, 1, 200)
    data = pd.DataFrame({"g": [0, 1] * 100, "x": x, "y": factor * x})
    plain, scaled = (fl.measure(data, "g", fl.atkinson(column, epsilon)).estimates for column in "xy")
    np.testing.assert_allclose(scaled.natural, plain.natural, rtol=1e-7)
    np.testing.assert_allclose(scaled.se, plain.se, rtol=1e-6)
    assert np.all((plain.natural > 0) & (plain.natural < 1))


def test_what_it_cannot_be_taken_of() -> None:
    zeros = pd.DataFrame({"g": np.arange(400) % 4, "x": RNG.exponential(1, 400)})
    zeros.loc[zeros.g == 0, "x"] *= RNG.random(100) < 0.8
    assert len(fl.measure(zeros, "g", fl.atkinson("x", 0.5)).estimates) == 4
    measurement = fl.measure(zeros, "g", fl.atkinson("x", 1))
    assert [left.code for left in measurement.excluded] == ["zero values"]
    with refused("invalid data: value"):
        fl.measure(zeros.assign(x=-1.0), "g", fl.atkinson("x"))
    with refused("no groups: by"):
        fl.measure(zeros.assign(x=2.0), "g", fl.atkinson("x"))
