"""The command to run next: the options that were typed, each once and as it was typed."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of an experiment with shared households, of one that lost users, and of decisions with scores."""
    folder, rng = tmp_path_factory.mktemp("next"), np.random.default_rng(0)
    size = 12_000
    rows = pd.DataFrame(
        {
            "COUNTRY": rng.choice(["DE", "FR", "IN"], size),
            "RAC1P": rng.choice(["1", "2"], size),
            "arm": rng.choice(["A", "B"], size),
            "user": np.arange(size),
            "spend": rng.normal(2, 1, size),
            "score": rng.random(size),
        }
    )
    rows.loc[rows.COUNTRY == "DE", "score"] *= 0.5
    rows.to_csv(folder / "rows.csv", index=False)
    rows[~((rows.arm == "B") & (rows.user % 4 == 0))].to_csv(folder / "lost.csv", index=False)
    return folder


def next_words(warm: Warm, folder: Path, *words: str) -> list[str]:
    """The words of the command that stands at the end."""
    lines = [line for line in warm(*words, cwd=folder).stdout.splitlines() if line.startswith("Next: ")]
    return shlex.split("faultlines " + lines[-1].partition("faultlines ")[2]) if lines else []


EXPERIMENT = ("--by", "COUNTRY", "--by", "RAC1P", "--variant", "arm", "--control", "A")


@pytest.mark.parametrize("command", ["experiment", "monitor"])
def test_values_in_capitals_are_values(warm: Warm, folder: Path, command: str, tmp_path: Path) -> None:
    state = [str(tmp_path / "state.json")] if command == "monitor" else []
    options = ("--metric", "difference:spend", "--shares", "A=50,B=50", "--unit", "user")
    words = next_words(warm, folder, command, *state, "lost.csv", *EXPERIMENT, *options)
    expected = "faultlines srm lost.csv --by COUNTRY --by RAC1P --variant arm --unit user --shares A=50,B=50"
    assert words == expected.split()
    assert warm(*words[1:], cwd=folder).returncode == 0


def test_the_last_look_hands_on_all_options_of_the_metric(warm: Warm, folder: Path, tmp_path: Path) -> None:
    state, options = str(tmp_path / "state.json"), ("--unit", "user", "--treatment", "B", "--shares", "A=1,B=1")
    look = ("--metric", "difference:spend", *options, "--final")
    words = next_words(warm, folder, "monitor", state, "rows.csv", *EXPERIMENT, *look)
    assert words[:3] == ["faultlines", "experiment", "rows.csv"]
    given = {words[i]: words[i + 1] for i in range(3, len(words), 2)}
    assert given["--unit"] == "user"
    assert given["--treatment"] == "B"
    assert given["--shares"] == "A=1,B=1"
    assert given["--certify"] == "GAP"
    words[words.index("GAP")] = "1"
    assert warm(*words[1:], cwd=folder).returncode == 0


def test_ratios_as_planned_lead_to_effects(warm: Warm, folder: Path) -> None:
    words = next_words(warm, folder, "srm", "rows.csv", "--by", "COUNTRY", "--variant", "arm", "--shares", "A=1,B=1")
    expected = "--by COUNTRY --metric lift:COLUMN --variant arm --control VALUE --shares A=1,B=1"
    assert words == ["faultlines", "experiment", "rows.csv", *expected.split()]


def test_low_scores_lead_to_the_groups_that_differ(warm: Warm, folder: Path) -> None:
    words = next_words(warm, folder, "impact-ratio", "rows.csv", "--by", "COUNTRY", "--score", "score")
    assert words[:5] == ["faultlines", "model", "rows.csv", "--by", "COUNTRY"]
    assert warm(*words[1:], cwd=folder).returncode == 0


def test_a_single_group_leads_to_other_groups(warm: Warm, folder: Path) -> None:
    query = "select *, 1 as everyone from 'rows.csv'"
    typed = ("--sql", query, "--by", "everyone", "--metric", "difference:spend", "--variant", "arm", "--control", "A")
    words = next_words(warm, folder, "experiment", *typed)
    assert words == ["faultlines", "experiment", *typed, "--by", "COLUMN"]


def test_a_plan_hands_on_its_shares(warm: Warm, folder: Path) -> None:
    words = next_words(warm, folder, "power", "--groups", "5", "--size", "1000", "--spread", "1", "--shares", "A=9,B=1")
    assert words[words.index("--shares") + 1] == "A=9,B=1"


def test_confirmed_clusters_lead_to_their_effects(warm: Warm, folder: Path) -> None:
    rows: Any = ["g,lift,se\n", *(f"g{i},{5 * (i % 2)},{0.5 + i / 100}\n" for i in range(8))]
    (folder / "lifts.csv").write_text("".join(rows), encoding="utf-8")
    columns = ("--by", "g", "--estimate", "lift", "--se", "se")
    assert warm("estimates", "lifts.csv", *columns, "--json", "clusters.json", cwd=folder).returncode == 0
    typed = ("confirm", "clusters.json", "lifts.csv", *columns)
    words = next_words(warm, folder, *typed)
    assert words == ["faultlines", *typed, "--json", "confirmation.json"]


def test_the_rate_that_a_plan_expects_makes_no_model_of_it(warm: Warm, folder: Path) -> None:
    planned = ("--groups", "4", "--size", "500", "--baseline", "0.05", "--gap", "0.1", "--draws", "100")
    assert next_words(warm, folder, "power", *planned)[1] == "experiment"
