"""Rows that ship with the package: their shape, their truth, and that they are the same for the same seed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from faultlines import InputError, simulate


@pytest.mark.parametrize("rows", [simulate.experiment_rows, simulate.model_rows])
def test_a_seed_gives_the_same_rows(rows) -> None:  # type: ignore[no-untyped-def]
    first, again, other = rows(3), rows(np.random.default_rng(3)), rows(4)
    assert {len(column) for column in first.values()} == {len(next(iter(first.values())))}
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not all(np.array_equal(first[name], other[name]) for name in first)
    with pytest.raises(InputError):
        rows("x")


def test_the_experiment_lowers_spend_in_one_country() -> None:
    visits = pd.DataFrame(simulate.experiment_rows())
    of_user = visits.groupby("user")[["country", "device", "arm"]].nunique()
    assert (of_user == 1).all(axis=None)
    assert visits.groupby("user").size().max() == 3
    means = visits.groupby(["country", "arm"])["spend"].mean().unstack()
    lift = means["B"] / means["A"] - 1
    assert lift["PL"] == pytest.approx(-0.2, abs=0.04)
    assert lift.drop("PL").abs().max() < 0.04


def test_the_model_finds_fewer_positives_of_55_and_above() -> None:
    scored = pd.DataFrame(simulate.model_rows())
    assert (scored.predicted == (scored.score >= 0.5)).all()
    rates = scored[scored.label == 1].groupby(["age", "gender"])["predicted"].mean().unstack()
    assert rates.loc["55+"].max() < rates.drop("55+").min(axis=None) - 0.05
    assert (rates["f"] - rates["m"]).abs().max() < 0.06
