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
        ("--by country --se x --control A", "conflict: control"),
    ],
)
def test_bad_plans_are_one_line_and_exit_2(warm: Warm, shop: Path, options: str, refused: str) -> None:
    done = warm("power", shop, *options.split())
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    assert done.refused == refused
    assert is_one_line(done.stderr)


PLAN = ("power", *"--groups 10 --size 5000 --spread 1 --runs 50".split())


def test_two_of_three_arms_have_their_shares_of_all_units(warm: Warm) -> None:
    three = warm(*PLAN, "--shares", "A=50,B=30,C=20", "--control", "A", "--treatment", "B", "--json", "-")
    # 80% of 5,000 units are in these two arms, at 5 to 3.
    two = warm(*PLAN[:4], "4000", *PLAN[5:], "--shares", "A=5,B=3", "--json", "-")
    assert json.loads(three.stdout)["minimum_detectable"] == pytest.approx(json.loads(two.stdout)["minimum_detectable"])
    turned = warm(*PLAN, "--shares", "B=30,C=20,A=50", "--control", "A", "--treatment", "B", "--json", "-")
    assert json.loads(turned.stdout)["minimum_detectable"] == json.loads(three.stdout)["minimum_detectable"]


@pytest.mark.parametrize(
    ("options", "refused", "remedy"),
    [
        (("--shares", "A=50,B=30,C=20"), "ambiguous: shares", "--treatment B"),
        (("--shares", "A=50,B=30,C=20", "--treatment", "Z"), "not found: treatment", "'C'"),
        (("--shares", "A=50,B=30", "--control", "B", "--treatment", "B"), "duplicate: treatment", ""),
        (("--shares", "A=50,B=-1"), "out of range: shares", "--shares A=0.9,B=0.1"),
        (("--shares", "A=50,B=30,C=20", "--treatment", "*"), "unsupported: treatment", ""),
    ],
)
def test_planned_arms_that_cannot_be_used(warm: Warm, options: tuple[str, ...], refused: str, remedy: str) -> None:
    done = warm(*PLAN, *options)
    assert (done.returncode, done.stdout, done.refused) == (2, "", refused)
    assert remedy in done.stderr
    assert is_one_line(done.stderr)
