"""Figures are kept with their origin, pages show them as measured, and counts continue where they stopped."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks.timing import Board
from docs import figures
from docs.figures import ROOT, fill_page, make_table, record_figure, show
from tests.statistical.tally import Tally, count_events, read_tally

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTLINES_FIGURES", str(tmp_path))


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_show_what_was_measured(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert fill_page(text) == text, "python -m docs.figures --write"
    opened, closed = len(re.findall(r"<!-- (?:figures?|range|runs): ", text)), len(figures.MARKER.findall(text))
    assert opened == closed, "a marker is not closed"


# What looks like a measured number: 4.3%, .05, 0.92, 1.5 s, 12 minutes.
MEASURED = re.compile(
    r"(?<![\w.,])(?:\d+\.\d+%|0?\.\d{2,}|\d+(?:\.\d+)? (?:ms|s|seconds|minutes|MB|GB)\b|0\.\d{2,})(?![\w])",
    re.IGNORECASE,
)
# Settings, examples of values and quotations; pages of studies have a list of their own (test_paper.py).
NOT_MEASURED = {
    "certify.md": {"0.75"},
    "choose.md": {"0.01"},
    "confirm.md": {"2.5%"},
    "guarantees.md": {"0.05", "0.01", "0.001", "7.5%", "0.21"},
    "howto/extend.md": {"0.01"},
    "howto/impact-ratios.md": {"0.78", "0.85"},
    "howto/many.md": {"0.05"},
    "method.md": {"0.64"},
    "monitoring.md": {"0.05"},
    "rows.md": {"0.10000000149", "0.2%", "21.7%", "0.001"},
    "tutorials/estimates.md": {"0.05"},
    "understand/reading.md": {"0.03"},
}
STUDIES = {"paper.md", "field.md", "history.md", "mitigation.md"}


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_measured_number_is_typed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    text = re.sub(
        r"^```.*?^```|<!-- \w+: [^>]+? -->.*?<!-- end -->|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE
    )
    known = NOT_MEASURED.get(str(page.relative_to(ROOT / "docs")) if page.parent != ROOT else page.name, set())
    assert page.name in STUDIES or set(MEASURED.findall(text)) <= known


@pytest.mark.parametrize("path", sorted(figures.KEPT.glob("*.json")), ids=lambda path: path.name)
def test_kept_figures_are_in_order_and_have_their_origin(path: Path) -> None:
    sections = json.loads(path.read_text(encoding="utf-8"))
    assert figures.one_line_per_entry(sections) == path.read_text(encoding="utf-8")
    for name, entry in sections.get("figures", {}).items():
        assert {"value", "error", "runs", "commit", "date", "source"} <= set(entry), name
        assert entry["value"] is None or entry.get("unit") or 0 <= entry["value"] <= 1, name


def test_a_figure_is_kept_with_its_runs_and_error(tmp_path: Path) -> None:
    record_figure("study", "power; halves; ours", 0.2, 400)
    record_figure("study", "power; halves; best", 1.25, 30, error=0.01, unit="×")
    entries = figures.read_figures("study")["figures"]
    assert entries["power; halves; ours"]["error"] == pytest.approx(0.02)
    assert (entries["power; halves; best"]["value"], entries["power; halves; best"]["unit"]) == (1.25, "×")
    assert list(entries) == sorted(entries)
    before = (tmp_path / "study.json").read_bytes()
    record_figure("study", "power; halves; ours", 0.2, 400)
    assert (tmp_path / "study.json").read_bytes() == before
    with pytest.raises(ValueError, match="power"):
        record_figure("study", "power; x", 1.5, 400)


def test_fewer_runs_never_replace_what_a_full_run_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAULTLINES_FIGURES")
    assert figures.folder() == figures.KEPT
    monkeypatch.setenv("FAULTLINES_SHARE", "0.15")
    assert figures.folder() == ROOT / "build" / "figures"


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        ({"value": 0.049}, "4.9%"),
        ({"value": 0.37}, "37%"),
        ({"value": 0.985}, "98.5%"),
        ({"value": 0.0}, "0%"),
        ({"value": 1.0}, "100%"),
        ({"value": 1.254, "unit": "×"}, "1.25 ×"),
        ({"value": 14.9, "unit": "s"}, "14.9 s"),
        ({"value": 3500, "unit": "number"}, "3,500"),
        ({"value": None}, "–"),
    ],
)
def test_figures_are_shown_as_people_read_them(entry: Mapping[str, object], shown: str) -> None:
    assert show(entry) == shown


def test_pages_are_filled_by_marker(tmp_path: Path) -> None:
    for row, column, value in (("10 groups", "ours", 0.5), ("9 groups", "ours", 0.4), ("9 groups", "new", 0.3)):
        record_figure("study", f"power; {row}; {column}", value, 100 if column == "ours" else 400)
    page = "a <!-- figure: study/power; 9 groups; ours -->?<!-- end --> b\n<!-- figures: study/power --><!-- end -->\n"
    filled = fill_page(page, tmp_path)
    assert "ours -->40%<!-- end --> b" in filled
    table = filled.partition("<!-- figures")[2].splitlines()[1:-1]
    assert table == [
        "|  | new | ours | runs |",
        "|---|---:|---:|---:|",
        "| 9 groups | 30% | 40% | 100–400 |",
        "| 10 groups |  | 50% | 100 |",
    ]
    assert fill_page(filled, tmp_path) == filled
    for kind, pattern, shown in (
        ("range", "power; *; ours", "40%–50%"),
        ("range", "power; 9 groups; ours", "40%"),
        ("runs", "power; *", "100–400"),
    ):
        marker = f"<!-- {kind}: study/{pattern} -->"
        assert fill_page(f"{marker}?<!-- end -->", tmp_path) == f"{marker}{shown}<!-- end -->"
    for wanted in ("range: study/level; *", "figure: study/power; nobody", "figures: study/level", "figure: nothing/x"):
        with pytest.raises(KeyError):
            fill_page(f"<!-- {wanted} --><!-- end -->", tmp_path)


def test_tables_keep_the_order_of_the_page() -> None:
    entry = {"value": 0.5, "runs": 10}
    old = "\n| truth | b | a | runs |\n|---|---:|---:|---:|\n| z | 1% | | 3 |\n| gone | 1% | | 3 |\n"
    table = make_table({f"{row}; {column}": entry for row in "yz" for column in "abc"}, old)
    assert [line.split(" | ")[0] for line in table.splitlines()] == [
        "| truth",
        "|---|---:|---:|---:|---:|",
        "| z",
        "| y",
    ]
    assert table.splitlines()[0] == "| truth | b | a | c | runs |"


def test_the_command_says_which_pages_differ() -> None:
    done = subprocess.run([sys.executable, "-m", "docs.figures"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


# ------------------------------------------------------------------------------------------------------------- counts


def test_counts_continue_where_they_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def draw(run: int) -> dict[str, bool]:
        if run == 7 and len(seen) == 7:
            raise KeyboardInterrupt
        seen.append(run)
        return {"even": run % 2 == 0}

    monkeypatch.setattr("tests.statistical.tally.WRITE_EVERY", 0.0)
    with pytest.raises(KeyboardInterrupt):
        count_events("study", "cell", draw, 10)
    assert read_tally("study", "cell") == Tally(7, {"even": 4})
    seen.append(-1)  # it is not interrupted again
    assert count_events("study", "cell", draw, 10) == Tally(10, {"even": 5})
    assert seen == [0, 1, 2, 3, 4, 5, 6, -1, 7, 8, 9]
    assert count_events("study", "cell", draw, 12, seconds=0.0) == Tally(10, {"even": 5})
    monkeypatch.setattr("tests.statistical.tally.source_hash", lambda: "changed")
    assert read_tally("study", "cell") == Tally(0, {})


STUDY = """
import pytest
from docs.figures import record_figure

@pytest.mark.parametrize("kind", ["a", "b", "c"])
def test_study(kind):
    record_figure("study", f"level; {kind}", 0.05, 100)
    assert kind != "b"
"""


def test_a_session_continues_with_what_has_not_passed(tmp_path: Path) -> None:
    for folder in ("docs/figures", "tests/statistical", "src/faultlines/core"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("docs/figures/__init__.py", "tests/__init__.py", "tests/statistical/__init__.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    for name in ("conftest.py", "tally.py"):
        (tmp_path / "tests" / "statistical" / name).write_bytes((ROOT / "tests/statistical" / name).read_bytes())
    (tmp_path / "tests" / "statistical" / "test_study.py").write_text(STUDY, encoding="utf-8")

    def outcomes(**environment: str) -> list[tuple[str, str]]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "tests/statistical/test_study.py"]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("FAULTLINES", "PYTEST"))}
        env = clean | environment | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return sorted(re.findall(r"^(\w+) tests/\S+\[(\w)\]", done.stdout, flags=re.MULTILINE))

    assert outcomes() == [("FAILED", "b"), ("PASSED", "a"), ("PASSED", "c")]
    written = json.loads((tmp_path / "docs" / "figures" / "study.json").read_text(encoding="utf-8"))
    assert sorted(written["figures"]) == ["level; a", "level; b", "level; c"]
    assert {name: entry["outcome"] for name, entry in written["tests"].items()}["test_study[b]"] == "failed"
    assert outcomes(FAULTLINES_CONTINUE="1") == [("FAILED", "b")]
    assert outcomes(FAULTLINES_BUDGET="0") == []
    assert outcomes(FAULTLINES_LONGEST="-1") == []
    (tmp_path / "src" / "faultlines" / "core" / "line.py").write_text("changed = True\n", encoding="utf-8")
    assert len(outcomes(FAULTLINES_CONTINUE="1", FAULTLINES_SHARE="0.5")) == 3
    assert (tmp_path / "build" / "figures" / "study.json").is_file()


def test_benchmarks_keep_their_figures_and_limits() -> None:
    board = Board("tree")
    board.line("ours / floor", 2.5, "×", good=True, limit="≤ 4")
    board.line("    time", 31.4, "ms")
    board.line("theirs / ours", 80.0, "×", good=False, limit="≥ 100")
    limits = figures.read_figures("bench")["figures"]
    assert {name: entry["value"] for name, entry in limits.items()} == {
        "tree; ours / floor": 2.5,
        "tree; ours / floor, time": 31.4,
        "tree; theirs / ours": 80.0,
    }
    assert (limits["tree; ours / floor"]["limit"], board.missed) == ("≤ 4", ["theirs / ours"])
