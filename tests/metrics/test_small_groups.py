"""Small combinations: pooled by their sizes, with the moments of their rows, along the attributes that are left."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.core.normal import as_comparison
from faultlines.guarantees.margins import add_small_groups, attribute_codes


def rows(seed: int = 0) -> pd.DataFrame:
    """Three large countries and many small ones, by two devices."""
    rng = np.random.default_rng(seed)
    country = np.r_[np.repeat(["DE", "FR", "IT"], 200), np.repeat([f"s{i:02d}" for i in range(40)], 6)]
    frame = pd.DataFrame({"country": country, "device": np.tile(["app", "web"], country.size // 2)})
    return frame.assign(x=rng.gamma(2.0, 1.0, country.size), arm=rng.choice(["A", "B"], country.size))


def test_what_is_pooled_has_the_moments_of_its_rows() -> None:
    frame = rows()
    estimates = fl.measure(frame, ["country", "device"], fl.mean("x")).estimates
    small = frame[frame.country.str.startswith("s")]
    assert estimates.remainder is not None
    assert estimates.remainder.groups == 80
    assert set(estimates.remainder.keys) == {(None, "app"), (None, "web")}
    for key, theta, n in zip(
        estimates.remainder.keys,
        estimates.remainder.estimates.natural,
        estimates.remainder.estimates.n,  # type: ignore[arg-type]
        strict=True,
    ):
        values = small[small.device == key[1]].x
        assert (theta, n) == (pytest.approx(values.mean()), values.size)


def test_levels_take_in_what_is_pooled_and_the_cells_stay_as_they_are() -> None:
    frame = rows()
    by = ["country", "device"]
    found = fl.cluster(frame, by, fl.mean("x"))
    alone = fl.cluster(frame, by, fl.mean("x"), margins=False)
    assert found.estimates is not None
    assert alone.estimates is not None
    assert found.estimates.theta.tolist() == alone.estimates.theta.tolist()
    assert found.estimates.se.tolist() == alone.estimates.se.tolist()
    comparison = as_comparison(found.estimates)
    together, codes = add_small_groups(comparison, attribute_codes(comparison.keys, 2))
    assert (len(comparison), len(together)) == (6, 8)
    assert set(codes[:6, 1].tolist()) == {0, 1}
    assert set(codes[6:, 0].tolist()) == {3}  # no country: a level of its own
    assert "pooled groups" in {note.code for note in found.notes}
    assert "pooled groups" not in {note.code for note in alone.notes}


@pytest.mark.parametrize(
    "metric",
    [
        fl.mean("x", weight="x"),
        fl.difference("x", variant="arm", control="A", unit="user", overlap="covariance"),
    ],
    ids=["weights", "shared units"],
)
def test_where_rows_do_not_add_up_nothing_is_pooled(metric: fl.Metric) -> None:
    frame = rows()
    frame["user"] = np.arange(len(frame)) // 4
    frame["arm"] = np.where(frame.user % 2 == 0, "A", "B")
    assert fl.measure(frame, ["country", "device"], metric).estimates.remainder is None


def test_other_effects_of_the_same_groups_have_no_remainder() -> None:
    estimates = fl.measure(rows(), ["country", "device"], fl.mean("x")).estimates
    assert estimates.changed(metric="y").remainder is estimates.remainder
    assert estimates.subset(np.arange(len(estimates)) < 3).remainder is None
    assert estimates.replaced(estimates.values).remainder is None


def test_where_no_combination_is_large_enough_fewer_attributes_are_named() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"zip": rng.integers(0, 200, 400), "type": rng.choice(["new", "old"], 400), "x": rng.random(400)}
    )
    with pytest.raises(fl.InputError) as error:
        fl.cluster(frame, ["zip", "type"], fl.mean("x"))
    assert (error.value.code, error.value.settings) == ("no groups", {"by": "type"})
