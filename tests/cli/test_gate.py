"""The launch gate: 0 only when every group was compared and none differ, 1 for a split, 3 when that cannot be told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.running import BY, Warm, is_one_line, run_here, without_next

if TYPE_CHECKING:
    from pathlib import Path

TPR = ("--by", "g", "--metric", "true_positive_rate", "--y-true", "y", "--y-pred", "p")


def rows(path: Path, hits: dict[str, tuple[int, int]]) -> Path:
    """Positives by group, hits of all positives."""
    lines = ["g,y,p"]
    for group, (detected, of) in hits.items():
        lines += [f"{group},1,{int(i < detected)}" for i in range(of)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("hits", "code", "words"),
    [
        ({"A": (400, 500), "B": (0, 500)}, 1, ""),
        ({"A": (400, 500), "B": (398, 500)}, 0, ""),
        # The group that is harmed is too small to be measured.
        ({"A": (400, 500), "B": (0, 4)}, 3, " B ("),
        ({"A": (400, 500), "B": (398, 500), "C": (0, 4)}, 3, " C ("),
        ({"A": (400, 500)}, 3, "inconclusive: "),
        ({"A": (4, 4), "B": (0, 4)}, 3, "inconclusive: none of 2 groups can be used"),
        # A claim is a claim, whatever was left out.
        ({"A": (400, 500), "B": (0, 500), "C": (0, 4)}, 1, ""),
        ({"A": (400, 500), "B": (400, 500), **{f"s{i}": (0, 3) for i in range(9)}}, 3, " s2 ("),
    ],
)
def test_the_gate(warm: Warm, tmp_path: Path, hits: dict[str, tuple[int, int]], code: int, words: str) -> None:
    path = rows(tmp_path / "rows.csv", hits)
    done = warm("model", path, *TPR, "--fail-on-split")
    assert done.returncode == code, (done.stdout, done.stderr)
    assert words in done.stderr
    assert done.stderr == "" if not words else is_one_line(done.stderr)
    without = warm("model", path, *TPR)
    usable = "none of" not in words
    assert without.returncode == (0 if usable else 2)
    assert (without_next(without.stdout) == without_next(done.stdout)) or not usable


def test_many_left_out_are_counted(warm: Warm, tmp_path: Path) -> None:
    hits = {"A": (400, 500), "B": (400, 500), **{f"s{i}": (0, 3) for i in range(9)}}
    done = warm("model", rows(tmp_path / "rows.csv", hits), *TPR, "--fail-on-split")
    assert " s0 (" in done.stderr
    assert ", … +4" in done.stderr


def test_several_metrics_are_named(warm: Warm, tmp_path: Path) -> None:
    path = rows(tmp_path / "rows.csv", {"A": (400, 500), "B": (398, 500), "C": (0, 15)})
    done = warm("model", path, *TPR, "--metric", "selection_rate", "--fail-on-split")
    assert done.returncode == 1  # C can be measured, and differs
    done = warm("model", path, *TPR, "--metric", "selection_rate", "--fail-on-split", "--min-size", "20")
    assert done.returncode == 3
    assert done.stderr.startswith("faultlines: inconclusive: true positive rate: ")
    assert " selection rate: " in done.stderr


@pytest.mark.parametrize(
    ("content", "options", "code", "words"),
    [
        ("DE,0,1,50\nFR,0.1,1,50\n", (), 0, ""),
        ("DE,0,1,50\nFR,0.1,1,50\n", ("--n", "users", "--min-size", "60"), 3, "all 2 groups are smaller"),
        ("DE,0,1,50\nFR,0.1,1,70\n", ("--n", "users", "--min-size", "60"), 3, "inconclusive: "),
        ("DE,0,1,50\n", (), 3, "inconclusive: "),
        ("DE,0,1,50\nFR,9,1,50\n", (), 1, ""),
    ],
)
def test_the_gate_on_estimates(
    warm: Warm, tmp_path: Path, content: str, options: tuple[str, ...], code: int, words: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("country,lift,sd,users\n" + content)
    done = warm("estimates", path, *BY, *options, "--fail-on-split")
    assert done.returncode == code
    assert words in done.stderr
    assert done.stderr == "" if not words else is_one_line(done.stderr)


def test_a_bad_input_does_not_become_an_answer(warm: Warm, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("country,lift,sd\nDE,0,1\nFR,nothing,1\n")
    assert warm("estimates", path, *BY, "--fail-on-split").returncode == 2
    assert warm("estimates", tmp_path / "no.csv", *BY, "--fail-on-split").returncode == 2


def test_split_gate_is_inconclusive_over_missing_attributes(tmp_path: Path) -> None:
    lines = ["g,hired", *(f"{'ab'[i % 2]},{i // 2 % 2}" for i in range(400)), *(f",{i % 2}" for i in range(170))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    options = ("rows.csv", "--by", "g", "--y-pred", "hired", "--fail-on-split")
    for command in (("model", *options, "--metric", "selection_rate"), ("audit", *options)):
        ended = run_here(*command, cwd=tmp_path)
        assert ended.returncode == 3
        assert run_here(*command, "--missing", "ignore", cwd=tmp_path).returncode == 0
