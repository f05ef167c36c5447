"""What `--help` says: grouped, narrow, light, complete."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from faultlines.cli.commands import app
from faultlines.guarantees.choose import GUARANTEES
from faultlines.metrics.table import METRICS, of_family
from tests.cli.running import Warm, run

APP: Any = typer.main.get_command(app)
COMMANDS = sorted(APP.commands)
HEADINGS = ["Data", "Metric", "Plan", "Guarantee", "Gate", "Output", "Other"]
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_grouped_narrow_and_has_examples(warm: Warm, command: str) -> None:
    done = warm(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    headings = re.findall(r"^(\w+):$", done.stdout, flags=re.M)
    assert headings == [heading for heading in HEADINGS if heading in headings]
    assert {"Guarantee", "Output"} <= set(headings)
    other = done.stdout.partition("\nOther:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  (\S+)", other, flags=re.M) == ["--help"], "every option needs a heading: see cli/options.py"
    assert len(examples(done.stdout, command)) >= 2, "a command needs two examples: see @_command in cli/commands.py"


def examples(shown: str, command: str) -> list[list[str]]:
    """The examples of a help text as words; a backslash carries on to the next line."""
    lines = re.sub(r"\\\n\s*", "", shown).splitlines()
    return [
        shlex.split(line)[2:]
        for line in lines
        if line.startswith(f"    faultlines {command} ") or line.strip() == f"faultlines {command}"
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_understood(warm: Warm, command: str) -> None:
    """Names and values of options are; whether the files are there is another matter."""
    for words in examples(warm(command, "--help").stdout, command):
        with APP.commands[command].make_context(command, list(words)) as context:
            assert context.params, words


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_which_option_goes_with_which_metric(warm: Warm, command: str) -> None:
    shown = warm(command, "--help").stdout
    options = {
        flag
        for one in APP.commands[command].params
        if getattr(one, "rich_help_panel", "") == "Metric"
        for flag in one.opts
    }
    named = options - {"--metric", "--joint"}
    if not named:
        return
    below = " ".join(shown.partition("Examples:")[2].split())
    said = re.split(
        r"What each metric needs|Which option goes with which metric|All options hold for every metric", below
    )
    assert len(said) > 1, "say it in the notes of @_command"
    assert "All options hold for every metric" in below or {flag for flag in named if flag not in said[1]} == set()
    there = {flag for one in APP.commands[command].params for flag in one.opts}
    assert set(re.findall(r"--[a-z][a-z-]+", said[1])) <= there | {"--help"}, "an option the command does not have"


def test_help_names_every_metric_with_what_it_takes(warm: Warm) -> None:
    words = " ".join(warm("model", "--help").stdout.split())
    for name in of_family("model"):
        assert name in words
    assert (
        "calibration_gap --y-true, --score; if wanted, --positive, --weight, --unit and --overlap calibration_slope"
        in words
    )
    labels = "--y-true, --y-pred or --score with --threshold; if wanted, --positive, --classes, --weight"
    assert f"f1 {labels}, --unit and --overlap equalized_odds {labels} and --unit auc" in words
    for name in of_family("experiment"):
        assert f"{name}:" in warm("experiment", "--help").stdout
    for name in GUARANTEES:
        assert name in words


def test_every_flag_of_a_metric_is_an_option(warm: Warm) -> None:
    """A metric that takes something new needs an option for it; `bins` and `classes` are for Python alone."""
    for family in ("experiment", "model"):
        shown = warm(family, "--help").stdout
        for entry in (METRICS[name] for name in of_family(family)):
            columns = {name for names in entry.columns for name in names} if family == "model" else set()
            for parameter in (columns | set(entry.options)) - {"bins", "classes"}:
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
            if re.search(rf"(^|\s|`)faultlines ({'|'.join(COMMANDS)})\b", line):
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
