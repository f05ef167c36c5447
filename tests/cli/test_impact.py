"""The command `impact-ratio`: tables as csv, Markdown and page, and its gate."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pandas as pd
import pytest

import faultlines as fl
from tests.analyses.test_impact import hires
from tests.cli.running import is_one_line

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm


def test_the_command_writes_tables(warm: Warm, tmp_path: Path) -> None:
    hires().to_csv(tmp_path / "hires.csv", index=False)
    words = ["impact-ratio", tmp_path / "hires.csv", "--by", "sex", "--by", "race", "--selected", "hired"]
    done = warm(*words, "--csv", "-", "--markdown", tmp_path / "r.md", "--report", tmp_path / "r.html")
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(io.StringIO(done.stdout))
    expected = fl.impact_ratios(hires(), ["sex", "race"], selected="hired")
    assert table.ratio.tolist() == pytest.approx(expected.to_pandas().ratio.tolist(), nan_ok=True)
    assert (tmp_path / "r.md").read_text(encoding="utf-8") == expected.to_markdown()
    assert "impact ratio" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "code"),
    [("--by sex", 0), ("--by race", 1), ("--by race --unknown nobody", 2), ("--by race --min-share 0.4", 3)],
)
def test_the_gate(warm: Warm, tmp_path: Path, options: str, code: int) -> None:
    hires().to_csv(tmp_path / "hires.csv", index=False)
    done = warm("impact-ratio", tmp_path / "hires.csv", *options.split(), "--selected", "hired", "--fail-below")
    assert done.returncode == code, done.stderr
    assert code < 2 or is_one_line(done.stderr)
