"""What newcomers get wrong first on the command line: one line, exit code 2; its words are a golden file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.mistakes import MISTAKES, make_mistake, write_inputs
from tests.cli.running import is_one_line

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes")
    write_inputs(path)
    return path


@pytest.mark.parametrize("name", MISTAKES)
def test_the_answer_is_one_line_and_exit_2(name: str, folder: Path, warm: Warm) -> None:
    done = make_mistake(name, warm, folder)
    assert (done.returncode, done.stdout) == (2, ""), done
    assert done.refused == MISTAKES[name][1]
    assert is_one_line(done.stderr)


def test_an_option_of_one_value_is_not_overruled_by_another(warm: Warm, tmp_path: Path) -> None:
    (tmp_path / "lifts.csv").write_text("g,lift,se,error\na,0,1,1\nb,9,1,1\n", encoding="utf-8")
    words = ("estimates", tmp_path / "lifts.csv", "--by", "g", "--estimate", "lift", "--se", "se")
    assert warm(*words, "--se", "error").refused == "duplicate: se"
    assert warm(*words, "--by", "g", "--fail-on-split", "--fail-on-split").refused == "duplicate: by"
    assert warm(*words).returncode == 0
