"""What newcomers get wrong first on the command line, and whether the answer says what to do."""

# ruff: noqa: E501 - a table of mistakes reads better in long rows

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.running import is_one_line
from tests.test_mistakes import PERCENT, ROWS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm

MODEL = ("model", "rows.csv", "--by", "g", "--y-true", "t")
EXPERIMENT = ("experiment", "rows.csv", "--by", "g", "--control", "A")
ON_THE_LINE: dict[str, tuple[tuple[str, ...], str]] = {
    "probabilities": ((*MODEL, "--metric", "accuracy", "--y-pred", "s"), "--score …, --threshold 0.5"),
    "per cent signs": (("experiment", "percent.csv", *EXPERIMENT[2:], "--variant", "arm", "--metric", "difference:x"), "without %"),
    "no variant": ((*EXPERIMENT, "--metric", "lift:x"), "--variant"),
    "false discovery rate": ((*MODEL, "--metric", "fpr", "--guarantee", "fdr"), "false_positive_rate"),
    "guarantee": ((*MODEL, "--metric", "accuracy", "--y-pred", "t", "--guarantee", "fdr"), "Leave it out"),
    "lifts": ((*EXPERIMENT, "--variant", "arm", "--metric", "lift:z"), "Measure the difference instead"),
    "a hole in a table": (("estimates", "table.csv", "--by", "g", "--estimate", "lift", "--se", "se"), "--estimate (column 'lift') in group 'a' must be finite, got nan"),
    "half a success": (("aggregates", "table.csv", "--by", "g", "--metric", "binomial", "--n", "n", "--sum", "k"), "--sum (column 'k') in group 'b' must be a whole number"),
    "metric of Python": ((*MODEL, "--metric", "atkinson"), "In Python: fl.atkinson"),
    "metric of Python and of experiments": ((*EXPERIMENT, "--variant", "arm", "--metric", "atkinson:x"), "--metric 'atkinson:x' is not measured in rows from the command line. In Python: fl.atkinson"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes")
    ROWS.to_csv(path / "rows.csv", index=False)
    (path / "table.csv").write_text("g,lift,se,k,n\na,,1,3,9\nb,2,1,2.5,9\n")
    PERCENT.to_csv(path / "percent.csv", index=False)
    return path


@pytest.mark.parametrize("name", ON_THE_LINE)
def test_the_answer_is_a_line_that_says_what_to_do(name: str, folder: Path, warm: Warm) -> None:
    words, expected = ON_THE_LINE[name]
    done = warm(*words, cwd=folder)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert expected in done.stderr
    assert is_one_line(done.stderr)


def test_an_option_of_one_value_is_not_overruled_by_another(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "lifts.csv").write_text("g,lift,se,error\na,0,1,1\nb,9,1,1\n", encoding="utf-8")
    words = ("estimates", tmp_path / "lifts.csv", "--by", "g", "--estimate", "lift", "--se", "se")
    done = warm(*words, "--se", "error")
    assert done.returncode == 2
    assert "--se is given 2 times, and takes one value. Leave all but one of them out." in done.stderr
    assert warm(*words, "--by", "g", "--fail-on-split", "--fail-on-split").returncode != 0
    assert warm(*words).returncode == 0
