"""Ratios and CUPED from a table of sums, squares and products, as a warehouse has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

import faultlines as fl
from tests.metrics.test_caps import spend
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from tests.cli.running import Warm

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}
RATIO = {"denom_sum": "y", "denom_sum_squares": "yy", "denom_product": "xy"}
COVARIATE = {"covariate_sum": "z", "covariate_sum_squares": "zz", "covariate_product": "xz"}
KINDS: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "ratio_lift": (RATIO, "visits", {}),
    "ratio_difference": (RATIO | COVARIATE | {"denom_covariate_product": "yz"}, "visits", {"covariate": "before"}),
    "difference": (COVARIATE, "", {"covariate": "before"}),
    "lift": (COVARIATE, "", {"covariate": "before"}),
}


def sums(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for every group, arm and day."""
    rows = rows.assign(day=np.arange(len(rows)) % 3)
    relation = duckdb.sql(
        """SELECT g, arm, day, count(*) AS n, sum(spend) AS x, sum(spend * spend) AS xx, sum(visits) AS y,
        sum(visits * visits) AS yy, sum(spend * visits) AS xy, sum(before) AS z, sum(before * before) AS zz,
        sum(spend * before) AS xz, sum(visits * before) AS yz FROM rows GROUP BY ALL"""
    )
    assert relation is not None
    return relation.df()


@pytest.mark.parametrize("kind", KINDS)
def test_sums_and_products_give_what_rows_give(kind: str) -> None:
    rows = spend()
    rows["spend"], rows["before"] = np.minimum(rows.spend, 50) + 5, np.minimum(rows.before, 50)
    columns, denom, options = KINDS[kind]
    table = fl.aggregated("n", sum="x", sum_squares="xx", **columns)
    metric = getattr(fl, kind)
    for group in "ab":  # alone, for rows share what they know of variances between groups
        of_rows = rows[rows.g == group]
        estimates = fl.measure(sums(of_rows), "g", metric(table, **ARMS)).estimates
        expected = fl.measure(of_rows, "g", metric("spend", *([denom] if denom else []), **ARMS, **options)).estimates
        np.testing.assert_allclose(estimates.theta, expected.theta, rtol=1e-9)
        np.testing.assert_allclose(estimates.se, expected.se, rtol=1e-6)
        assert np.array_equal(np.asarray(estimates.n), np.asarray(expected.n))


def test_a_ratio_of_a_population() -> None:
    rows = spend()
    rows = rows[rows.g == "a"]
    estimates = fl.measure(sums(rows), "g", fl.ratio(fl.aggregated("n", sum="x", sum_squares="xx", **RATIO))).estimates
    expected = fl.measure(rows, "g", fl.ratio("spend", "visits")).estimates
    np.testing.assert_allclose((estimates.theta, estimates.se), (expected.theta, expected.se), rtol=1e-7)


def test_what_is_missing_is_said() -> None:
    with refused("missing: denom_sum_squares, denom_product"):
        fl.aggregated("n", sum="x", sum_squares="xx", denom_sum="y")
    with refused("missing: denom_covariate_product"):
        fl.aggregated("n", sum="x", sum_squares="xx", **RATIO, **COVARIATE)
    with refused("missing: denom_sum"):
        fl.ratio_lift(fl.aggregated("n", sum="x", sum_squares="xx"), **ARMS)
    with refused("missing: denom_sum"):
        fl.lift(fl.aggregated("n", sum="x", sum_squares="xx", **RATIO), **ARMS)
    with refused("conflict: denom"):
        fl.ratio_lift(fl.aggregated("n", sum="x", sum_squares="xx", **RATIO), "visits", **ARMS)
    with refused("missing: denom"):
        fl.ratio_lift("x", **ARMS)


def test_the_command_line_reads_them(warm: Warm, tmp_path: Path) -> None:
    sums(spend()).to_csv(tmp_path / "sums.csv", index=False)
    options = ["--by", "g", "--n", "n", "--sum", "x", "--sum-squares", "xx", "--variant", "arm", "--control", "A"]
    ratio = ["--denom-sum", "y", "--denom-sum-squares", "yy", "--denom-product", "xy"]
    done = warm("aggregates", tmp_path / "sums.csv", *options, *ratio, "--metric", "ratio_lift")
    assert done.returncode == 0, done.stderr
    assert "x/y" in done.stdout
