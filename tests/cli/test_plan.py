"""`faultlines power` on the rows of experiments and models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import faultlines as fl
from faultlines.render.text import to_text
from tests.cli.running import EXPERIMENT, MODEL, Warm, is_one_line, without_next

if TYPE_CHECKING:
    from pathlib import Path


def test_rows_as_in_the_library(warm: Warm, shop: Path) -> None:
    done = warm("power", shop, *EXPERIMENT, *"--metric lift:revenue --unit user_id --runs 50 --share 0.25".split())
    metric = fl.lift("revenue", variant="arm", control="A", unit="user_id")
    expected = fl.power(shop, "country", metric, runs=50, split=0.25)
    assert without_next(done.stdout) == to_text(expected, spelling="omit")
    done = warm("power", shop, *MODEL, *"--metric equalized_odds --y-pred pred --runs 30 --draws 99 --json -".split())
    both = json.loads(done.stdout)
    assert len(both["minimum_detectable"]) == 2
    assert [direction["effect"] for direction in both["directions"][::2]] == [
        "true positive rate",
        "false positive rate",
    ]
    done = warm(
        "power", shop, "--by", "age:10", *"--metric auc --y-true label --positive yes --score score --runs 30".split()
    )
    assert "of 6 groups" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ("--by country --metric lift:revenue", "missing: metric"),
        ("--by country --metric lift:revenue --variant arm --control A --score s", "conflict: score"),
        ("--by country --metric auc --y-true label --score score --variant arm", "conflict: variant"),
        ("--by country --metric tpr --y-true label", "missing: metric"),
        ("--by country --metric auc --se x", "conflict: se"),
        ("--metric auc", "missing: metric"),
        ("--by country --variant arm --se x", "conflict: variant"),
        ("--by country --se x --min-size 3", "conflict: min_size"),
        ("--by country --metric selection_rate --y-pred pred --positive yes --min-size 99999", "no groups: by"),
        ("second.csv --by country --se x", "conflict: files"),
        ("--by country", "missing: file"),
    ],
)
def test_bad_plans_are_one_line_and_exit_2(warm: Warm, shop: Path, options: str, refused: str) -> None:
    done = warm("power", shop, *options.split())
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    assert done.refused == refused
    assert is_one_line(done.stderr)
