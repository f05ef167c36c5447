"""What `--help` says: grouped, narrow, light, complete."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
import typer

import faultlines as fl
from faultlines.cli.commands import JOBS, app
from faultlines.guarantees import GUARANTEES
from faultlines.metrics.table import METRICS, of_family

if TYPE_CHECKING:
    from tests.cli.running import Warm

APP: Any = typer.main.get_command(app)
COMMANDS = sorted(APP.commands)
HEADINGS = ["Data", "Metric", "Plan", "Error control", "Gate", "Output", "Other"]
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("command", COMMANDS)
def test_the_whole_help_is_grouped_narrow_and_has_every_option(warm: Warm, command: str) -> None:
    done = warm(command, "--help-all")
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    headings = re.findall(r"^(\w[\w ]*):$", done.stdout.partition("\nExamples:\n")[0], flags=re.M)
    assert headings == [heading for heading in HEADINGS if heading in headings]
    assert {"Error control", "Output"} <= set(headings)
    other = done.stdout.partition("\nOther:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  (\S+)", other, flags=re.M) == ["--help-all", "--help"], "an option needs a heading"
    assert len(examples(done.stdout, command)) >= 2, "a command needs two examples: see @_command in cli/commands.py"
    listed = set(re.findall(r"(?:^  |/ )(--[a-z-]+)", done.stdout, flags=re.M))
    options = {
        flag for parameter in APP.commands[command].params for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    assert {flag for flag in options if flag.startswith("--")} <= listed


@pytest.mark.parametrize("command", COMMANDS)
def test_the_short_help_fits_a_screen(warm: Warm, command: str) -> None:
    done = warm(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 36
    assert 1 <= len(examples(done.stdout, command)) <= 2
    assert lines[-1] == f"All {len(APP.commands[command].params) + 1} options: faultlines {command} --help-all"
    common, there = (
        APP.commands[command].documentation.common,
        {parameter.name for parameter in APP.commands[command].params},
    )
    assert common <= there, "an option the command does not have"
    required = {parameter.name for parameter in APP.commands[command].params if parameter.required}
    shown = {parameter.name for parameter in APP.commands[command].params if parameter.opts[0] in done.stdout}
    assert common | (required - {"file", "clusters", "state"}) <= shown


def test_the_help_of_all_has_five_jobs_first_and_names_every_command(warm: Warm) -> None:
    lines = warm("--help").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 38
    shown = "\n".join(lines)
    jobs, _, others = shown.partition("\nOther commands:\n")
    assert len(re.findall(r"^    faultlines ", jobs, flags=re.M)) == 5
    listed = re.findall(r"^  ([a-z][a-z-]+)  ", others, flags=re.M)
    assert set(listed) | set(re.findall(r"^    faultlines (\S+)", jobs, flags=re.M)) == set(COMMANDS)
    assert len(others.partition("\n\n")[0].splitlines()) == len(listed), "one line each"


def test_the_jobs_run_as_they_are_printed(warm: Warm, tmp_path: Path) -> None:
    """On files with the names and columns they have there."""
    visits = pd.DataFrame(fl.simulate.experiment_rows())
    visits.to_csv(tmp_path / "visits.csv", index=False)
    pd.DataFrame(fl.simulate.model_rows()).to_csv(tmp_path / "scored.csv", index=False)
    estimates = fl.simulate.onboarding().estimates
    table = {"country": estimates.labels, "lift": estimates.theta, "se": estimates.se}
    pd.DataFrame(table).to_csv(tmp_path / "lifts.csv", index=False)
    result = fl.cluster(visits, "country", fl.lift("spend", variant="arm", control="A", unit="user"))
    (tmp_path / "clusters.json").write_text(result.to_json(), encoding="utf-8")
    shutil.copy(tmp_path / "visits.csv", tmp_path / "new.csv")
    for command in JOBS.values():
        words = shlex.split(command.replace("\\\n", ""))[1:]
        done = warm(*words, cwd=tmp_path)
        assert done.returncode in ((0, 1, 3) if "--certify" in words else (0,)), (words, done.stderr)


def examples(shown: str, command: str) -> list[list[str]]:
    """The examples of a help text as words; a backslash carries on to the next line."""
    lines = re.sub(r"\\\n\s*", "", shown.partition("\nExamples:\n")[2]).splitlines()
    return [
        shlex.split(line)[2:]
        for line in lines
        if line.startswith(f"  faultlines {command} ") or line.strip() == f"faultlines {command}"
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_understood(warm: Warm, command: str) -> None:
    """Names and values of options are; whether the files are there is another matter."""
    for words in examples(warm(command, "--help-all").stdout, command):
        with APP.commands[command].make_context(command, list(words)) as context:
            assert context.params, words


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_which_option_goes_with_which_metric(warm: Warm, command: str) -> None:
    shown = warm(command, "--help-all").stdout
    options = {
        flag
        for parameter in APP.commands[command].params
        if getattr(parameter, "rich_help_panel", "") == "Metric"
        for flag in parameter.opts
    }
    named = options - {"--metric", "--joint"}
    if not named or "--metric" not in options:
        return
    below = " ".join(shown.partition("Examples:")[2].split())
    said = re.split(
        r"What each metric needs|Which option applies to which metric|All options hold for every metric", below
    )
    assert len(said) > 1, "say it in the notes of @_command"
    assert "All options hold for every metric" in below or {flag for flag in named if flag not in said[1]} == set()
    there = {flag for parameter in APP.commands[command].params for flag in parameter.opts}
    assert set(re.findall(r"--[a-z][a-z-]+", said[1])) <= there, "an option the command does not have"


def test_help_names_every_metric_with_what_it_takes(warm: Warm) -> None:
    words = " ".join(warm("model", "--help-all").stdout.split())
    for name in of_family("model"):
        assert name in words
    assert (
        "calibration_gap --y-true, --score; if wanted, --positive, --weight, --unit and --overlap calibration_slope"
        in words
    )
    labels = "--y-true, --y-pred or --score with --threshold; if wanted, --positive, --classes, --weight"
    assert f"f1 {labels}, --unit and --overlap equalized_odds {labels} and --unit auc" in words
    for name in of_family("experiment"):
        assert f"{name}:" in warm("experiment", "--help-all").stdout
    for name in GUARANTEES:
        assert name in words


def test_every_flag_of_a_metric_is_an_option(warm: Warm) -> None:
    """A metric that takes something new needs an option for it; `bins` and `classes` are for Python alone."""
    for family in ("experiment", "model"):
        shown = warm(family, "--help-all").stdout
        for entry in (METRICS[name] for name in of_family(family)):
            columns = {name for names in entry.columns for name in names} if family == "model" else set()
            for parameter in (columns | set(entry.options)) - {"bins", "classes"}:
                assert f"--{parameter.replace('_', '-')}" in shown, (entry.name, parameter)


def test_exit_codes_are_documented(warm: Warm) -> None:
    shown = warm("--help-all").stdout
    for code in (0, 1, 2, 3, 70, 130):
        assert re.search(rf"^  {code} ", shown, flags=re.M)
    assert "FAULTLINES_TRACEBACK=1" in shown


def test_flags_in_the_documentation_are_known(warm: Warm) -> None:
    flags = {flag for command in COMMANDS for flag in re.findall(r"--[a-z][a-z-]+", warm(command, "--help-all").stdout)}
    flags |= {"--version"}
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if re.search(rf"(^|\s|`)faultlines ({'|'.join(COMMANDS)})\b", line):
                assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", line)) <= flags, (page.name, line)


@pytest.mark.parametrize("module", ["faultlines", "faultlines.cli"])
def test_modules_run_as_the_command_does(warm: Warm, module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (warm("--help").stdout, "")


def test_all_of_the_command_line_is_light() -> None:
    heavy = {"numpy", "scipy", "duckdb", "narwhals", "rich", "altair"}
    probe = (
        "import sys\nfrom faultlines.cli import main\n"
        "sys.argv = ['faultlines', 'model', '--help-all']\n"
        f"try: main()\nexcept SystemExit: print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
