"""What `--help` says: grouped, narrow, light, complete."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from faultlines.guarantees.choose import GUARANTEES
from faultlines.metrics.table import METRICS, of_family
from tests.cli.running import Warm, run

COMMANDS = ["demo", "estimates", "experiment", "model", "power", "monitor"]
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_grouped_narrow_and_has_examples(warm: Warm, command: str) -> None:
    done = warm(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    headings = re.findall(r"^(\w+):$", done.stdout, flags=re.M)
    order = ["Data", "Metric", "Plan", "Guarantee", "Gate", "Output", "Other"]
    assert headings == [heading for heading in order if heading in headings]
    assert {"Guarantee", "Output"} <= set(headings)
    examples = re.findall(rf"^    faultlines {command}\b", done.stdout, flags=re.M)
    assert len(examples) >= 2


def test_help_names_every_metric_with_what_it_takes(warm: Warm) -> None:
    words = " ".join(warm("model", "--help").stdout.split())
    for name in of_family("model"):
        assert name in words
    assert "auc --y-true, --score; if wanted, --positive log_loss" in words
    assert "equalized_odds --y-true, --y-pred or --score with --threshold; if wanted, --positive auc" in words
    for name in of_family("experiment"):
        assert f"{name}:" in warm("experiment", "--help").stdout
    for name in GUARANTEES:
        assert name in words


def test_every_flag_of_a_metric_is_an_option(warm: Warm) -> None:
    """A metric that takes something new needs an option for it; `bins` is for Python alone."""
    for family in ("experiment", "model"):
        shown = warm(family, "--help").stdout
        for entry in (METRICS[name] for name in of_family(family)):
            columns = {name for names in entry.columns for name in names} if family == "model" else set()
            for parameter in (columns | set(entry.options)) - {"bins"}:
                assert f"--{parameter.replace('_', '-')}" in shown, (entry.name, parameter)


def test_exit_codes_are_documented() -> None:
    shown = run("--help").stdout
    for code in (0, 1, 2, 3, 70, 130):
        assert re.search(rf"^    {code} ", shown, flags=re.M)
    assert "FAULTLINES_TRACEBACK=1" in shown


def test_flags_in_the_documentation_are_known(warm: Warm) -> None:
    known = {flag for command in COMMANDS for flag in re.findall(r"--[a-z][a-z-]+", warm(command, "--help").stdout)}
    known |= {"--version", "--help"}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if re.search(r"(^|\s|`)faultlines (demo|estimates|experiment|model|power|monitor)\b", line):
                assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", line)) <= known, (page.name, line)


def test_all_of_the_command_line_is_light() -> None:
    heavy = {"numpy", "scipy", "duckdb", "narwhals", "rich", "altair"}
    probe = (
        "import sys\nfrom faultlines.cli import main\n"
        "sys.argv = ['faultlines', 'model', '--help']\n"
        f"try: main()\nexcept SystemExit: print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
