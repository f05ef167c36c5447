"""Blank levels are missing on every way in, and levels that may be a slip are noted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pytest

import faultlines as fl

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pd.DataFrame({"g": ["a", "b", "", "b"] * 200, "y": [0, 1] * 400})
WAYS: dict[str, Any] = {
    "pandas": lambda rows: rows,
    "categorical": lambda rows: rows.astype({"g": "category"}),
    "polars": pl.from_pandas,
    "arrow": lambda rows: pl.from_pandas(rows).to_arrow(),
    "duckdb": lambda rows: duckdb.sql("select * from rows"),
}


def codes(result: Any) -> dict[str, Any]:
    return {note.code: note for note in result.notes}


@pytest.mark.parametrize("way", WAYS)
def test_an_empty_name_is_missing(way: str) -> None:
    result = fl.cluster(WAYS[way](ROWS), "g", fl.selection_rate("y"))
    assert result.group_labels == ("a", "b", "(missing)")
    assert codes(result)["missing attributes"].fields == {"share": 0.25, "attributes": {"g": 0.25}}


def test_as_in_csv(tmp_path: Path) -> None:
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    assert fl.cluster(tmp_path / "rows.csv", "g", fl.selection_rate("y")).group_labels == ("a", "b", "(missing)")


def test_few_missing_attributes_are_no_warning() -> None:
    rows = pd.DataFrame({"g": ["a", "b"] * 400 + [None] * 20, "y": [0, 1] * 410})
    assert codes(fl.cluster(rows, "g", fl.selection_rate("y")))["missing attributes"].severity == "info"


def test_levels_that_say_unknown_or_differ_by_case() -> None:
    rows = pd.DataFrame({"g": ["F", "f ", "Unknown", "n/a", "M"] * 200, "y": [0, 1] * 500})
    notes = codes(fl.cluster(rows, "g", fl.selection_rate("y")))
    assert notes["unknown levels"].fields["levels"] == ["Unknown", "n/a"]
    assert notes["similar levels"].fields["levels"] == [("F", "f ")]


def test_na_is_a_country_among_codes() -> None:
    rows = pd.DataFrame({"g": ["DE", "FR", "NA", "IT"] * 200, "y": [0, 1] * 400})
    assert "unknown levels" not in codes(fl.cluster(rows, "g", fl.selection_rate("y")))
