"""Gates over rows that lack values: never a silent pass."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.analyses.test_missing import labels_where_selected, unknown_rows
from tests.cli.running import Warm, is_one_line

if TYPE_CHECKING:
    from pathlib import Path

TPR = ("--by", "g", "--metric", "true_positive_rate", "--y-true", "t", "--y-pred", "p")


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("missing") / "labelled.csv"
    labels_where_selected(size=4000).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--certify 0.05", 3),
        ("--certify 0.05 --missing ignore", 0),
        ("--fail-on-split", 3),
        ("--fail-on-split --missing ignore", 0),
        ("", 0),
    ],
)
def test_a_gate_does_not_pass_over_labels_that_are_missing(warm: Warm, labelled: Path, options: str, code: int) -> None:
    done = warm("model", labelled, *TPR, *options.split())
    assert done.returncode == code, done.stderr
    if code == 3:
        assert is_one_line(done.stderr)


def test_the_json_says_what_was_done(warm: Warm, labelled: Path) -> None:
    done = warm("model", labelled, *TPR, "--certify", "0.05", "--json", "-")
    certificate = json.loads(done.stdout)["certificate"]
    assert (certificate["missing"], certificate["verdict"]) == ("bounds", "inconclusive")
    assert certificate["missing_values"]["share"] > 0.7
    assert all(0 <= row["possible_lower"] <= row["possible_upper"] <= 1 for row in certificate["groups"])


@pytest.mark.parametrize(("options", "code"), [("", 3), ("--unknown exclude", 0), ("--unknown category", 0)])
def test_unknown_attributes(warm: Warm, tmp_path: Path, options: str, code: int) -> None:
    unknown_rows().to_csv(tmp_path / "rows.csv", index=False)
    words = ["--by", "race", "--metric", "selection_rate", "--y-pred", "hired", "--certify", "0.05"]
    done = warm("model", tmp_path / "rows.csv", *words, *options.split())
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("options", ["--certify 0.1 --missing no", "--certify 0.1 --unknown no", "--unknown exclude"])
def test_what_is_not_known_is_refused_in_one_line(warm: Warm, labelled: Path, options: str) -> None:
    done = warm("model", labelled, *TPR, *options.split())
    assert done.returncode == 2
    assert is_one_line(done.stderr)
