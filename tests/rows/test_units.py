"""Units, covariates with gaps and caps in every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import faultlines as fl
from tests.engine_matrix import in_engine
from tests.metrics.test_units import prompts
from tests.rows.spark import spark_session

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

LOCAL = ["pandas", "polars", "polars lazy", "pyarrow", "duckdb", "ibis", "parquet", "csv"]

EVERY_KIND: dict[str, fl.Metric] = {
    "mean": fl.mean("s", unit="prompt", weight="w"),
    "rate": fl.rate("y", unit="prompt"),
    "slope": fl.calibration_slope("t", "s", unit="prompt"),
    "odds": fl.equalized_odds("t", score="s", threshold=0.5, unit="prompt"),
    "auc": fl.auc("t", "s", unit="prompt"),
    "change of auc": fl.paired(fl.auc("t", "s", unit="prompt"), fl.auc("t", "w", unit="prompt")),
    "balanced": fl.balanced_accuracy("t", "y", unit="prompt"),
}


@pytest.fixture(scope="module")
def awkward() -> tuple[pd.DataFrame, dict[str, fl.Estimates]]:
    """Rows with gaps, in inputs, units and groups."""
    rows = prompts(1, 120, 3)
    rng = np.random.default_rng(4)
    rows["prompt"] = rows.prompt.astype("Int64").mask(rng.random(len(rows)) < 0.03)
    rows["lang"] = rows.lang.where(rows.prompt % 3 != 2)
    rows["y"] = rows.y.astype("Int64").mask(rng.random(len(rows)) < 0.05)
    rows["s"] = rows.s.mask(rng.random(len(rows)) < 0.05)
    return rows, {name: fl.measure(rows, "lang", metric).estimates for name, metric in EVERY_KIND.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", [*LOCAL, "spark"])
def test_units_in_every_engine(
    engine: str, tmp_path: Path, sparks: dict[str, Any], awkward: tuple[pd.DataFrame, dict[str, fl.Estimates]]
) -> None:
    rows, expected = awkward
    spark = spark_session("local[2]") if engine == "spark" and sparks else None
    table = pa.Table.from_pandas(rows, preserve_index=False)
    data = table.to_pandas() if engine == "pandas" else in_engine(table, engine, tmp_path, spark)
    for name in ("rate", "auc") if engine == "spark" else EVERY_KIND:
        estimates = fl.measure(data, "lang", EVERY_KIND[name]).estimates
        assert estimates.labels == expected[name].labels
        np.testing.assert_allclose(estimates.natural, expected[name].natural, rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(estimates.se, expected[name].se, rtol=1e-7, err_msg=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", LOCAL)
def test_covariates_with_gaps_in_every_engine(engine: str, tmp_path: Path) -> None:
    from tests.metrics.test_covariates import users

    rows = users(5, 600, 10.0)
    rows["user"] = np.arange(600) // 2
    rows["arm"] = np.where(rows.user % 2, "A", "B")
    table = pa.Table.from_pandas(rows, preserve_index=False)
    data = table.to_pandas() if engine == "pandas" else in_engine(table, engine, tmp_path)
    choices: list[dict[str, Any]] = [{}, {"weight": "w"}, {"unit": "user"}, {"unit": "user", "cap": "90%"}]
    for options in choices:
        metric = fl.lift("y", variant="arm", control="A", covariate="before", **options)
        estimates, expected = (fl.measure(frame, "g", metric).estimates for frame in (data, rows))
        np.testing.assert_allclose(estimates.theta, expected.theta, rtol=1e-9)
        np.testing.assert_allclose(estimates.se, expected.se, rtol=1e-7)
