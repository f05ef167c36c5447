"""Every example in README and docs runs, and prints what it says it prints."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run_and_print_what_they_say(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for language, code, expected in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, page.name, "exec"), names)
            assert printed.getvalue().strip() == expected.strip() or not expected, code
        elif language == "csv":
            header = code.split("\n", 1)[0]
            Path("lifts.csv").write_text(code, encoding="utf-8")
            assert "," in header
        elif language == "console":
            run_console(code)


def run_console(session: str) -> None:
    """Run the lines that start with `$ faultlines`; what stands below each is what it must print."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        words = shlex.split(command)
        if words[0] != "faultlines":
            continue
        script = [sys.executable, "-c", "from faultlines.cli import main; main()", *words[1:]]
        done = subprocess.run(script, capture_output=True, text=True, check=False)
        assert done.returncode in {0, 1, 2}, done.stderr
        assert (done.stdout + done.stderr).strip() == expected.strip() or not expected.strip()


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)
