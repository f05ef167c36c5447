"""What a slip of the pen meets: the name, the number or the option that was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.errors import did_you_mean
from faultlines.estimates.reasons import RowWarning
from faultlines.render.clustering import nothing_added

if TYPE_CHECKING:
    from pathlib import Path


def rows(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    revenue = np.where(rng.random(6_000) < 0.3, rng.integers(1, 200, 6_000), 0)
    return pd.DataFrame({"g": rng.choice(list("abc"), 6_000), "arm": rng.choice(["A", "B"], 6_000), "revenue": revenue})


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("zip", ["zip_code", "state"], "'zip_code'"),
        ("NoEMail", ["No E-Mail", "Mens E-Mail"], "'No E-Mail'"),
        ("zip", ["zip_code", "zip_area"], None),  # which of them?
        ("x", ["x_1"], None),
    ],
)
def test_names_with_other_signs_or_a_longer_end(name: str, names: list[str], meant: str | None) -> None:
    assert (meant in did_you_mean(name, names)) if meant else ("mean" not in did_you_mean(name, names))


def test_a_cap_that_should_have_been_a_share() -> None:
    def warned(cap: float | str) -> dict[str, object]:
        readout = fl.measure(rows(), "g", fl.difference("revenue", variant="arm", control="A", cap=cap)).readout
        assert readout is not None
        return next(
            dict(note.fields) for note in readout.warnings if isinstance(note, RowWarning) and note.code == "capped"
        )

    assert warned(0.99)["share"] == pytest.approx(1)
    assert "share" not in warned("99%")
    assert "share" not in warned(150)


@pytest.mark.parametrize("cap", [-1, 0, "-5"])
def test_a_cap_below_zero_is_refused(cap: float | str) -> None:
    with pytest.raises(fl.InputError) as refused:
        fl.difference("revenue", variant="arm", control="A", cap=cap)
    assert (refused.value.code, refused.value.parameter) == ("out of range", "cap")


def test_another_metric_at_a_later_look_is_named() -> None:
    monitor = fl.Monitor(looks=5)
    monitor.update(rows(), "g", fl.difference("revenue", variant="arm", control="A"))
    more = pd.concat([rows(), rows(1)])
    for metric in (
        fl.difference("revenue", variant="arm", control="A", cap=100),
        fl.difference("revenue", variant="arm", control="B"),
    ):
        with pytest.raises(fl.InputError) as refused:
            monitor.update(more, "g", metric)
        assert refused.value.code == "mismatch"
        assert "{" not in str(refused.value)


def test_a_column_in_the_names_of_folders(tmp_path: Path) -> None:
    for i, day in enumerate(("2024-01-01", "2024-01-02")):
        folder = tmp_path / f"dt={day}"
        folder.mkdir()
        rows(i).to_parquet(folder / "part.parquet")
    metric = fl.difference("revenue", variant="arm", control="A")
    with pytest.raises(fl.InputError) as refused:
        fl.cluster(tmp_path, "dt", metric)
    assert refused.value.code == "column not found"
    query = refused.value.remedy.partition("duckdb.sql): ")[2].rstrip(".")
    assert len(fl.cluster(duckdb.sql(query), "dt", metric).labels) == 2


def test_names_of_columns_keep_their_case() -> None:
    assert "a" in nothing_added(["a"], plural=False).split()
    assert "iOS" in nothing_added(["iOS", "b"], plural=True).split()
    assert "Further" in nothing_added(["further combinations"], plural=True).split()
