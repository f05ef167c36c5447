"""What is compared: sums, means or any of the rows of a unit, and ratios to the number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import faultlines as fl
from tests.metrics.test_caps import spend
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}


@pytest.mark.parametrize("aggregate", ["sum", "mean", "any"])
def test_a_unit_has_what_was_asked_of_its_rows(aggregate: str) -> None:
    rows = spend()
    rows["spend"] = rows.spend.where(rows.spend > 5, 0.0)
    metric = fl.difference("spend", **ARMS, unit="user", aggregate=aggregate)
    how = {"any": lambda values: float((values != 0).any())}.get(aggregate, aggregate)
    users = rows.groupby(["user", "g", "arm"], as_index=False)["spend"].agg(how)
    of_rows, two = fl.measure(rows, "g", metric), fl.measure(users, "g", fl.difference("spend", **ARMS))
    np.testing.assert_allclose(of_rows.estimates.theta, two.estimates.theta, rtol=1e-9)
    np.testing.assert_allclose(of_rows.estimates.se, two.estimates.se, rtol=1e-7)


def test_the_name_says_per_what() -> None:
    names = {
        fl.lift("spend", **ARMS).name: "lift of spend",
        fl.lift("spend", **ARMS, unit="household").name: "lift of spend per household",
        fl.lift("spend", **ARMS, unit="user_id").name: "lift of spend per user",
        fl.lift("spend", **ARMS, unit="schid").name: "lift of spend per schid",
        fl.lift("spend", **ARMS, unit="user", overlap="covariance").name: "lift of spend per user and group",
        fl.lift("spend", **ARMS, unit="user", aggregate="mean").name: "lift of mean spend per user",
        fl.difference("bought", **ARMS, unit="user", aggregate="any").name: "difference of any bought per user",
        fl.ratio_lift("spend", "visits", **ARMS, unit="user").name: "ratio lift of spend/visits",
        fl.ratio_lift("bought", "*", **ARMS, unit="user").name: "ratio lift of bought/rows",
    }
    for name, expected in names.items():
        assert name == expected
    with refused("missing: aggregate"):
        fl.lift("spend", **ARMS, aggregate="mean")
    with refused("unknown: aggregate"):
        fl.lift("spend", **ARMS, unit="user", aggregate="median")


@pytest.mark.parametrize("options", [{}, {"unit": "user"}, {"unit": "user", "covariate": "before"}])
def test_rows_are_a_denominator(options: dict[str, Any]) -> None:
    rows = spend().assign(one=1)
    rows.loc[::7, "spend"] = np.nan  # rows without a numerator are not counted
    estimated, expected = (
        fl.measure(rows, "g", fl.ratio_lift("spend", denom, **ARMS, **options)) for denom in ("*", "one")
    )
    np.testing.assert_allclose(estimated.estimates.theta, expected.estimates.theta, rtol=1e-9)
    np.testing.assert_allclose(estimated.estimates.se, expected.estimates.se, rtol=1e-7)
    assert estimated.dropped == expected.dropped
    counted, two = (fl.measure(rows, "g", fl.ratio("spend", denom, unit="user")).estimates for denom in ("*", "one"))
    np.testing.assert_allclose(counted.theta, two.theta, rtol=1e-9)


def test_the_command_line_divides_by_rows(warm: Warm, tmp_path: Path) -> None:
    spend().to_csv(tmp_path / "rows.csv", index=False)
    options = ["--by", "g", "--variant", "arm", "--control", "A", "--unit", "user"]
    done = warm("experiment", tmp_path / "rows.csv", *options, "--metric", "ratio_lift:spend/*")
    assert done.returncode == 0, done.stderr
    refused_one = warm("experiment", tmp_path / "rows.csv", *options, "--metric", "ratio_lift:spend/1")
    assert refused_one.returncode == 2
    assert "ratio_lift:spend/*" in refused_one.stderr
    done = warm("experiment", tmp_path / "rows.csv", *options, "--metric", "lift:spend", "--aggregate", "mean")
    assert done.returncode == 0, done.stderr


def test_every_engine_counts_rows(tmp_path: Path) -> None:
    import duckdb
    import ibis
    import polars as pl
    import pyarrow as pa

    rows = spend(size=400)
    rows["arm"] = np.where(rows.user % 8 < 4, "A", "B")
    rows["spend"] = rows.spend.where(rows.spend > 5, 0.0)
    metric = fl.ratio_difference("spend", "*", **ARMS, unit="user", cap="95%")
    any_of = fl.difference("spend", **ARMS, unit="user", aggregate="any", cap=0.5)
    expected = [fl.measure(rows, "g", each).estimates.theta for each in (metric, any_of)]
    table = pa.Table.from_pandas(rows, preserve_index=False)
    frames = [pl.DataFrame(rows), pl.DataFrame(rows).lazy(), duckdb.from_arrow(table), ibis.memtable(table)]
    rows.to_parquet(tmp_path / "rows.parquet")
    for frame in (*frames, tmp_path / "rows.parquet"):
        for each, theta in zip((metric, any_of), expected, strict=True):
            np.testing.assert_allclose(fl.measure(frame, "g", each).estimates.theta, theta, rtol=1e-9, atol=1e-12)


def test_units_and_controls_that_groups_share_are_counted_once() -> None:
    rows = spend()
    rows["device"] = np.where(np.arange(len(rows)) % 2, "phone", "web")  # every user has both
    shared = fl.cluster(rows, "device", fl.lift("spend", **ARMS, unit="user", overlap="covariance"))
    assert shared.to_dict()["distinct_units"] == 2000
    rows["arm"] = np.array(["A", "B", "C"])[rows.user % 3]
    several = fl.cluster(rows, "g", fl.lift("spend", **ARMS, treatment="*"))
    assert several.to_dict()["distinct_units"] == len(rows)
    assert "distinct_units" not in fl.cluster(rows, "g", fl.mean("spend")).to_dict()


def test_differences_of_yes_and_no_are_read_in_points() -> None:
    rows = spend()
    rows["bought"], rows["twice"] = (rows.spend > 5).astype(int), 2 * (rows.spend > 5).astype(int)
    rows["before"] = rows.spend + 1
    metrics = [
        (fl.difference("bought", **ARMS), " points"),
        (fl.difference("bought", **ARMS, covariate="before"), " points"),
        (fl.difference("bought", **ARMS, unit="user", aggregate="any"), " points"),
        (fl.difference("twice", **ARMS), ""),
        (fl.difference("spend", **ARMS), ""),
        (fl.lift("bought", **ARMS), "%"),
    ]
    for metric, unit in metrics:
        assert fl.measure(rows, "g", metric).estimates.scales[0].unit == unit, metric.name
    both = fl.joint(fl.difference("bought", **ARMS), fl.difference("spend", **ARMS))
    assert [scale.unit for scale in fl.measure(rows, "g", both).estimates.scales] == [" points", ""]
    c = fl.cluster(rows, "g", fl.difference("bought", **ARMS))
    assert c.number_formats[0].unit == " points"
    assert fl.certify(c, gap=0.5).units == (" points",)
    share = c.to_dicts("groups")[0]["estimate"]  # numbers for programs stay as they are
    first = rows[rows.g == c.to_dicts("groups")[0]["g"]]
    means = first.groupby("arm").bought.mean()
    assert share == pytest.approx(means["B"] - means["A"])


@pytest.mark.parametrize(
    ("column", "name"),
    [("user", "users"), ("user_id", "users"), ("userId", "users"), ("household", "households"), ("uid", "units"),
     ("company_key", "companies"), ("schid", "units"), ("anonymous_id", "units")],
)  # fmt: skip
def test_units_are_counted_by_their_own_name(column: str, name: str) -> None:
    assert fl.lift("spend", **ARMS, unit=column).size_unit == name
    assert fl.rate("bought", unit=column).size_unit == name
