"""Labels of real rows shuffled, so that nothing differs: how often are clusters claimed?

The data are public but not ours to pass on. Put the files into a folder and name it: FAULTLINES_DATA=folder make stats.
COMPAS two-year scores (ProPublica), Hillstrom's e-mail challenge, ACS income with model predictions (Aequitas).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import faultlines as fl
from docs.figures import record_figure
from tests.statistical.tally import scale_runs

pytestmark = pytest.mark.statistical

RUNS = scale_runs(400)
ARMS: dict[str, Any] = {"variant": "arm", "control": "A", "treatment": "B"}


def rows_of(name: str) -> pl.DataFrame:
    folder = os.environ.get("FAULTLINES_DATA", "")
    path = Path(folder) / name
    if not folder or not path.exists():
        pytest.skip(f"{name} is not in the folder that FAULTLINES_DATA names")
    return pl.read_parquet(path)


def compas() -> pl.DataFrame:
    return rows_of("compas_two_years.parquet").with_columns(score=(pl.col("decile_score") - 0.5) / 10)


def hillstrom(share: float) -> pl.DataFrame:
    """Everybody got something, but arms are drawn anew: nothing has an effect."""
    rows = rows_of("hillstrom.parquet")
    treated = np.random.default_rng(0).random(len(rows)) < share
    return rows.with_columns(arm=pl.Series(np.where(treated, "B", "A")))


def acs() -> pl.DataFrame:
    rows = rows_of("acs_income_with_model_preds.parquet").sample(60_000, seed=0)
    models = [pl.col(column) for column in rows.columns if column.startswith("pred_")]
    return rows.with_columns(score=0.01 + 0.98 * pl.mean_horizontal(models))


CASES: dict[str, tuple[Any, Any, Any, bool]] = {
    "COMPAS, log loss": (compas, ["race", "sex", "age_cat"], fl.log_loss("two_year_recid", "score"), False),
    "COMPAS, Brier": (compas, ["race", "sex", "age_cat"], fl.brier("two_year_recid", "score"), False),
    "COMPAS, calibration": (compas, ["race", "sex", "age_cat"], fl.calibration_gap("two_year_recid", "score"), False),
    "COMPAS, auc": (compas, ["race", "sex", "age_cat"], fl.auc("two_year_recid", "score"), False),
    "COMPAS, mean of priors": (compas, ["race", "sex", "age_cat"], fl.mean("priors_count"), False),
    "ACS by birthplace, log loss": (acs, "POBP", fl.log_loss("PINCP", "score"), False),
    "ACS by birthplace, calibration": (acs, "POBP", fl.calibration_gap("PINCP", "score"), False),
    "ACS by occupation, Brier": (acs, "OCCP", fl.brier("PINCP", "score"), False),
    "ACS by birthplace, auc": (acs, "POBP", fl.auc("PINCP", "score"), False),
    "ACS by birthplace, tpr": (acs, "POBP", fl.true_positive_rate("PINCP", score="score", threshold=0.5), False),
    "Hillstrom 50/50, spend": (0.5, ["history_segment", "channel", "zip_code"], fl.difference("spend", **ARMS), True),
    "Hillstrom 10/90, spend": (0.1, ["history_segment", "channel", "zip_code"], fl.difference("spend", **ARMS), True),
    "Hillstrom 50/50, visit": (0.5, ["history_segment", "channel", "zip_code"], fl.difference("visit", **ARMS), True),
    "Hillstrom 10/90, visit": (0.1, ["history_segment", "channel", "zip_code"], fl.difference("visit", **ARMS), True),
    "Hillstrom 50/50, lift of visit": (0.5, ["history_segment", "channel"], fl.lift("visit", **ARMS), True),
}
# One in a hundred buys, a tenth are treated: two or three buyers in the treated arm of a group. The result warns.
LIMIT = {"Hillstrom 10/90, spend": 0.15, "Hillstrom 50/50, spend": 0.12}


@pytest.mark.parametrize("name", CASES)
def test_shuffled_labels_are_not_claimed(name: str) -> None:
    load, by, metric, arms = CASES[name]
    rows = hillstrom(load) if isinstance(load, float) else load()
    check = fl.self_check(rows, by, metric, runs=RUNS, arms=arms)
    record_figure("real_rows", f"shuffled labels; {name}", check.rate, RUNS)
    limit = LIMIT.get(name, 0.075)
    assert check.rate < limit + 2 * np.sqrt(limit * (1 - limit) / RUNS)
