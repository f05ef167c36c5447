"""What the tests of the command line share."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from faultlines import simulate

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files below, made once."""
    folder = tmp_path_factory.mktemp("originals")
    _write_table(folder)
    _write_shop(folder)
    return folder


@pytest.fixture
def table(originals: Path, tmp_path: Path) -> Path:
    """Estimates of 40 countries."""
    for name in ("lifts.parquet", "lifts.csv"):
        shutil.copy(originals / name, tmp_path)
    return tmp_path / "lifts.csv"


@pytest.fixture
def shop(originals: Path, tmp_path: Path) -> Path:
    """An experiment and a model in one file: DE reacts, and the model misses more in DE."""
    for name in ("shop.csv", "shop.parquet"):
        shutil.copy(originals / name, tmp_path)
    return tmp_path / "shop.parquet"


def _write_table(folder: Path) -> None:
    estimates = simulate.onboarding().estimates
    frame = pd.DataFrame(
        {"country": estimates.labels, "lift": estimates.theta, "sd": estimates.se, "users": estimates.n}
    )
    frame.to_csv(folder / "lifts.csv", index=False)
    frame.to_parquet(folder / "lifts.parquet")


def _write_shop(folder: Path) -> None:
    rng = np.random.default_rng(0)
    size = 12_000
    frame = pd.DataFrame(
        {
            "country": rng.choice(["DE", "FR", "IT", "ES"], size),
            "age": rng.integers(18, 68, size),
            "arm": rng.choice(["A", "B"], size),
            "user_id": np.arange(size),
            "before": rng.lognormal(1, 0.3, size),
            "label": rng.choice(["yes", "no"], size),
        }
    )
    effect = np.where((frame.arm == "B") & (frame.country == "DE"), 1.4, 1.0)
    frame["revenue"] = frame.before * effect + rng.exponential(0.5, size)
    frame["views"] = 1 + rng.poisson(2, size)
    hit = rng.random(size) < np.where(frame.country == "DE", 0.6, 0.8)
    frame["pred"] = np.where(hit, frame.label, np.where(frame.label == "yes", "no", "yes"))
    frame["score"] = np.where(frame.pred == "yes", 0.8, 0.3) + rng.uniform(-0.1, 0.1, size)
    frame.to_parquet(folder / "shop.parquet")
    frame.to_csv(folder / "shop.csv", index=False)
