"""The command line through a real subprocess: stdout the result, stderr one line, exit code the verdict."""

from __future__ import annotations

import html
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.render.text import to_text
from tests.cli.running import BY, COMMAND, EXPERIMENT, MODEL, Warm, is_one_line, read_screen, run, without_next


def test_demo_finds_what_was_planted_and_writes_json(warm: Warm, tmp_path: Path) -> None:
    done = run("demo", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    written = json.loads((tmp_path / "faultlines-demo.json").read_text(encoding="utf-8"))
    assert (written["verdict"], written["n_clusters"]) == ("differ", 3)
    assert written["headline"] in done.stdout
    assert len(written["groups"]) == 40
    assert "faultlines-demo.html" in done.stdout
    page = (tmp_path / "faultlines-demo.html").read_text(encoding="utf-8")
    assert html.escape(written["headline"]) in page
    assert warm("demo", cwd=tmp_path).stdout == done.stdout
    assert (tmp_path / "faultlines-demo.html").read_text(encoding="utf-8") == page
    assert warm("demo", "--seed", "1", cwd=tmp_path).stdout != done.stdout


def test_estimates_from_csv_and_parquet_equal_the_library(table: Path) -> None:
    expected = fl.cluster(fl.Estimates.from_frame(table, "country", "lift", "sd"), alpha=0.01, seed=3)
    for path in (table, table.with_suffix(".parquet")):
        done = run("estimates", path, *BY, "--alpha", "0.01", "--seed", "3")
        assert (done.returncode, done.stderr) == (0, "")
        assert without_next(done.stdout) == to_text(expected, spelling="omit")


def test_json_to_a_file_and_to_stdout(warm: Warm, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert warm("estimates", table, *BY, "--json", out).returncode == 0
    piped = warm("estimates", table, *BY, "--json", "-")
    assert json.loads(piped.stdout) == json.loads(out.read_text(encoding="utf-8"))
    assert json.loads(piped.stdout)["rejected"] is True


def test_options_reach_the_library(warm: Warm, table: Path) -> None:
    done = warm("estimates", table, *BY, "--n", "users", "--min-size", "20000", "--draws", "777", "--no-refine")
    estimates = fl.Estimates.from_frame(table, "country", "lift", "sd", "users")
    draws = fl.Calibrated(draws=777)
    expected = fl.cluster(estimates, guarantee=draws, refine=False, min_size=20_000)
    assert without_next(done.stdout) == to_text(expected, spelling="omit")
    bonferroni = warm("estimates", table, *BY, "--n", "users", "--guarantee", "bonferroni")
    assert without_next(bonferroni.stdout) == to_text(fl.cluster(estimates, guarantee="bonferroni"), spelling="omit")


def test_the_gate_trips_only_on_a_split(warm: Warm, table: Path, tmp_path: Path) -> None:
    assert run("estimates", table, *BY, "--fail-on-split").returncode == 1
    assert warm("estimates", table, *BY).returncode == 0
    same = tmp_path / "same.csv"
    same.write_text("country,lift,sd\nDE,1,1\nFR,1.5,1\n")
    done = warm("estimates", same, *BY, "--fail-on-split")
    assert done.returncode == 0


def test_several_attributes(warm: Warm, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("country,device,lift,sd\nDE,app,0,1\nDE,web,0.1,1\nFR,app,9,1\nFR,web,9.2,1\n")
    written = {}
    for options in ((), ("--margins",), ("--no-margins",)):
        done = warm("estimates", path, *BY, "--by", "device", *options, "--json", "-")
        assert (done.returncode, done.stderr) == (0, "")
        written[options] = json.loads(done.stdout)
    estimates = fl.Estimates.from_frame(path, ["country", "device"], "lift", "sd")
    assert written[()] == written["--margins",] == fl.cluster(estimates).to_dict()
    assert written["--no-margins",] == fl.cluster(estimates, margins=False).to_dict() != written[()]


@pytest.mark.parametrize("command", ["estimates", "experiment", "model", "many"])
def test_margins_of_crossed_attributes_can_be_left_out(warm: Warm, command: str) -> None:
    shown = warm(command, "--help-all").stdout
    assert "--margins" in shown
    assert "--no-margins" in shown


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (
            ("--by", "contry", "--estimate", "lift", "--se", "sd"),
            "column not found: by",
        ),
        ((*BY, "--alpha", "2"), "out of range: alpha"),
        ((*BY, "--alpha", "low"), "usage"),
        ((*BY, "--guarantee", "bonferoni"), "unknown: guarantee"),
        ((*BY, "--draws", "0"), "out of range: draws"),
        ((*BY, "--draws", "500", "--guarantee", "bonferroni"), "conflict: draws"),
        ((*BY, "--seed", "-4"), "out of range: seed"),
        ((*BY, "--min-size", "10"), "missing: min_size"),
        ((*BY, "--json", "no/such/folder/out.json"), "unwritable file: json"),
        (("--by", "country", "--estimate", "lift"), "usage"),
        (("--nonsense",), "usage"),
        (("--by", "country", "--estimate", "country", "--se", "sd"), "wrong type: estimate"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_2(
    warm: Warm, table: Path, arguments: tuple[str, ...], refused: str
) -> None:
    done = warm("estimates", table, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.refused == refused
    assert done.stderr.startswith("faultlines: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [("absent.csv", None), ("empty.csv", b""), ("broken.parquet", b"PAR1"), ("noise.csv", bytes(range(256)) * 9)],
)
def test_bad_files_are_one_line_and_exit_2(warm: Warm, tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = warm("estimates", tmp_path / name, *BY)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert name in done.stderr


def piped(command: str, table: Path, *extra: str) -> list[int]:
    """Exit codes of `faultlines … | reader`."""
    words = f"{sys.executable} -c 'from faultlines.cli import main; main()' estimates {table} {' '.join((*BY, *extra))}"
    script = f'{command.format(words)}; echo "${{PIPESTATUS[@]}}" >&2'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return [int(code) for code in done.stderr.split("\n")[-2].split()]


@pytest.mark.parametrize("buffering", ["PYTHONUNBUFFERED=1", "PYTHONUNBUFFERED="])
def test_the_verdict_does_not_hang_on_who_reads_it(table: Path, buffering: str) -> None:
    """Streams that are closed from the start are tested in `test_exits`."""
    assert piped(f"export {buffering}; {{}} | true", table, "--fail-on-split")[0] == 1
    if Path("/dev/full").exists():
        assert piped(f"export {buffering}; {{}} > /dev/full", table, "--fail-on-split")[0] == 2


def test_a_table_on_stdin_and_the_version(warm: Warm, table: Path) -> None:
    words = [*COMMAND, "estimates", "-", *BY]
    done = subprocess.run(words, input=table.read_bytes(), capture_output=True, check=True)
    assert done.stdout.decode() == warm("estimates", table, *BY).stdout
    assert run("--version").stdout == f"faultlines {fl.cluster(fl.Estimates([1], [1])).to_dict()['faultlines']}\n"


def test_names_in_json_survive_any_terminal(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("country,lift,sd\n日本,0,1\nÖ,9,1\n", encoding="utf-8")
    env = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = subprocess.run([*COMMAND, "estimates", path, *BY, "--json", "-"], capture_output=True, env=env, check=True)
    assert json.loads(done.stdout.decode("utf-8"))["clusters"][0]["members"] == ["日本"]


def test_no_arguments_is_help_and_help_is_light(warm: Warm) -> None:
    done = run()
    assert done.stdout == warm("--help").stdout
    assert "estimates" in done.stdout
    probe = "import sys, faultlines.cli; print(sorted({'numpy', 'scipy', 'duckdb', 'narwhals'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_reader_that_has_seen_enough_is_no_error(table: Path) -> None:
    script = f"{sys.executable} -c 'from faultlines.cli import main; main()' estimates {table} {' '.join(BY)} --json -"
    piped = f"set -o pipefail; {script} | head -1"
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


def test_an_interrupt_ends_cleanly_and_progress_is_for_terminals(tmp_path: Path) -> None:
    """Long work on a terminal shows a bar, and stops at once with one line."""
    rng = np.random.default_rng(0)
    path = tmp_path / "large.csv"
    values = np.where(np.arange(20_000) < 10_000, 0.0, 3.0) + rng.standard_normal(20_000)
    pd.DataFrame({"country": np.arange(20_000), "lift": values, "sd": 1.0}).to_csv(path, index=False)
    screen, terminal = pty.openpty()
    arguments = ["estimates", str(path), *BY, "--draws", "2000000"]
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=terminal, env=_terminal())
    os.close(terminal)
    shown = b""
    deadline = time.monotonic() + 60
    while b"drawing" not in shown and time.monotonic() < deadline:
        shown += os.read(screen, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    shown += read_screen(screen)
    assert b"drawing groups with equal effects" in shown
    assert b"faultlines: interrupted" in shown
    assert b"Traceback" not in shown


def _terminal() -> dict[str, str]:
    return {**os.environ, "TERM": "xterm", "COLUMNS": "120"}


def test_experiment_finds_the_country_that_reacts(warm: Warm, shop: Path) -> None:
    for path in (shop, shop.with_suffix(".csv"), f"{shop.parent}/*.parquet"):
        done = warm(
            "experiment", path, *EXPERIMENT, "--metric", "lift:revenue", "--unit", "user_id", "--covariate", "before"
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert sum(line.endswith("  DE") for line in done.stdout.splitlines()) == 1  # a cluster of its own
    ratio = warm("experiment", shop, *EXPERIMENT, "--metric", "ratio_lift:revenue/views", "--fail-on-split")
    assert ratio.returncode == 1
    assert "ratio lift of revenue/views" in ratio.stdout


def test_model_finds_whom_it_serves_worse(warm: Warm, shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    metrics = ("--metric", "true_positive_rate", "--metric", "accuracy", "--metric", "selection_rate")
    done = warm("model", shop, *MODEL, "--y-pred", "pred", *metrics, "--json", out)
    assert (done.returncode, done.stderr) == (0, "")
    written = json.loads(out.read_text(encoding="utf-8"))
    assert written["correction"] == "holm"
    assert [row["pvalue_adj"] for row in written["overview"]] == [metric["pvalue_adj"] for metric in written["metrics"]]
    assert [metric["metric"] for metric in written["metrics"]] == ["true positive rate", "accuracy", "selection rate"]
    assert [metric["alpha"] for metric in written["metrics"]] == [0.05] * 3
    ranked = sorted(written["metrics"], key=lambda metric: metric["log10_pvalue"])
    assert ranked[0]["pvalue_adj"] == pytest.approx(3 * ranked[0]["pvalue"])
    assert all(metric["rejected"] == (metric["pvalue_adj"] < 0.05) for metric in ranked)
    both = warm(
        "model", shop, *MODEL, "--y-pred", "pred", "--score", "score", "--metric", "accuracy", "--metric", "auc"
    )
    assert both.returncode == 0
    scored = warm(
        "model", shop, *MODEL, "--score", "score", "--threshold", "0.5", "--metric", "accuracy", "--metric", "auc"
    )
    assert scored.returncode == 0
    binned = warm("model", shop, *MODEL, "--by", "age:25", "--y-pred", "pred", "--metric", "accuracy", "--json", "-")
    assert [row["name"] for row in json.loads(binned.stdout)["attributes"]] == ["country", "age"]
    tenths = warm("model", shop, *MODEL, "--by", "age:q2", "--y-pred", "pred", "--metric", "accuracy")
    assert tenths.returncode == 0


@pytest.mark.parametrize(
    ("command", "arguments", "refused"),
    [
        ("experiment", (*EXPERIMENT, "--metric", "lft:revenue"), "unknown: metric"),
        ("experiment", (*EXPERIMENT, "--metric", "lift"), "missing: metric"),
        ("experiment", (*EXPERIMENT, "--metric", "ratio_lift:revenue"), "missing: metric"),
        ("experiment", (*EXPERIMENT, "--metric", "lift:revenu"), "column not found: value"),
        ("experiment", (*EXPERIMENT[:-1], "C", "--metric", "lift:revenue"), "not found: control"),
        ("experiment", (*EXPERIMENT, "--metric", "lift:label"), "wrong type: value"),
        ("model", (*MODEL, "--metric", "acuracy", "--y-pred", "pred"), "unknown: metric"),
        ("model", (*MODEL, "--metric", "fdr", "--y-pred", "pred"), "unknown: metric"),
        (
            "model",
            (*MODEL, "--metric", "mcc", "--y-pred", "pred"),
            "unknown: metric",
        ),
        ("model", (*MODEL, "--metric", "accuracy"), "missing: metric"),
        (
            "model",
            (*MODEL, "--metric", "accuracy", "--score", "score"),
            "missing: metric",
        ),
        ("model", (*MODEL, "--metric", "auc", "--score", "score", "--classes"), "conflict: classes"),
        ("model", (*MODEL[:-2], "--metric", "f1", "--y-pred", "pred", "--classes"), "missing: classes"),
        ("model", (*MODEL, "--metric", "auc", "--score", "score", "--threshold", "1"), "conflict: threshold"),
        (
            "model",
            (*MODEL, "--metric", "accuracy", "--y-pred", "pred", "--threshold", "1"),
            "conflict: y_pred, threshold",
        ),
        ("model", (*MODEL[:5], "Yes", "--metric", "accuracy", "--y-pred", "pred"), "not found: positive"),
        ("model", (*MODEL, "--by", "age:q10.5", "--metric", "accuracy", "--y-pred", "pred"), "column not found: by"),
        ("model", (*MODEL, "--metric", "auc"), "missing: metric"),
        ("model", ("--by", "country", "--metric", "accuracy", "--y-pred", "pred"), "missing: metric"),
    ],
)
def test_bad_row_arguments_are_one_line_and_exit_2(
    warm: Warm, shop: Path, command: str, arguments: tuple[str, ...], refused: str
) -> None:
    done = warm(command, shop, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.refused == refused
    assert done.stderr.count("\n") == 1


def test_power_on_the_command_line(warm: Warm, tmp_path: Path) -> None:
    done = warm("power", "--groups", "10", "--size", "400", "--spread", "1", "--gap", "0.5", "--runs", "50")
    assert done.returncode == 0, done.stderr
    planned = fl.power([400] * 10, spread=1.0, gap=0.5, runs=50)
    assert without_next(done.stdout) == to_text(planned, spelling="omit")
    table = tmp_path / "plan.csv"
    table.write_text("country,sd,users\nDE,0.01,900\nAT,0.02,400\nCH,0.03,100\n")
    for options in (("--se", "sd"), ("--n", "users", "--spread", "0.5"), ("--se", "sd", "--only", "DE")):
        done = warm("power", str(table), "--by", "country", *options, "--runs", "50", "--json", "-")
        assert done.returncode == 0, done.stderr
        assert 0 < json.loads(done.stdout)["minimum_detectable"] < 1


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ((), "missing: files"),
        (("no.csv", "--by", "g", "--se", "s"), "file not found: file"),
        (("--groups", "1", "--size", "9", "--spread", "1"), "out of range: groups"),
        (("--groups", "5", "--size", "0", "--spread", "1"), "out of range: size"),
        (("--groups", "5", "--size", "9", "--spread", "1", "--se", "x"), "conflict: by, se, n"),
        (("--groups", "5", "--size", "9", "--spread", "1", "--share", "0.5", "--only", "a"), "conflict: share, only"),
        (("--groups", "5", "--size", "9", "--spread", "1", "--only", "a"), "not found: only"),
        (("--groups", "5", "--size", "9", "--spread", "1", "--guarantee", "holdout:2"), "out of range: fraction"),
        (("--groups", "5", "--size", "9", "--spread", "1", "--guarantee", "holdut"), "unknown: guarantee"),
        (
            ("--groups", "5", "--size", "9", "--spread", "1", "--guarantee", "topmerge:3"),
            "unknown: guarantee",
        ),
        (("--groups", "5", "--size", "9", "--spread", "1", "--target", "2"), "out of range: target"),
    ],
)
def test_bad_plans_are_one_line_and_exit_2(warm: Warm, arguments: tuple[str, ...], refused: str) -> None:
    done = warm("power", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.refused == refused
    assert done.stderr.count("\n") == 1


def test_every_guarantee_and_comparison_on_the_command_line(warm: Warm, shop: Path) -> None:
    odds = warm("model", shop, *MODEL, "--metric", "equalized_odds", "--y-pred", "pred")
    assert odds.returncode == 0, odds.stderr
    assert "true positive rate" in odds.stdout
    joint = warm("experiment", shop, *EXPERIMENT, "--metric", "lift:revenue", "--metric", "difference:views", "--joint")
    assert joint.returncode == 0, joint.stderr
    assert "lift of revenue and difference of views" in joint.stdout
    for guarantee in ("topmerge", "holdout:0.3", "folds:3"):
        done = warm("experiment", shop, *EXPERIMENT, "--metric", "difference:revenue", "--guarantee", guarantee)
        assert done.returncode == 0, done.stderr
    beyond = warm("experiment", shop, *EXPERIMENT, "--metric", "lift:revenue", "--tolerance", "0.5", "--json", "-")
    assert json.loads(beyond.stdout)["tolerance"] == 0.5
    for options, refused in (
        (("--joint",), "too few: joint"),
        (("--split-unit", "views"), "conflict: split_unit"),
        (("--tolerance", "-1"), "out of range: tolerance"),
    ):
        done = warm("experiment", shop, *EXPERIMENT, "--metric", "lift:revenue", *options)
        assert (done.returncode, done.stdout) == (2, ""), options
        assert done.refused == refused


def test_page_and_pictures_are_written(warm: Warm, tmp_path: Path, table: Path) -> None:
    page, picture = tmp_path / "out.html", tmp_path / "out.svg"
    done = warm("estimates", table, *BY, "--report", page, "--plot", picture)
    assert done.returncode == 0, done.stderr
    written = page.read_text(encoding="utf-8")
    assert "differ" in written
    assert f"faultlines estimates {table} --by country" in written  # how to do it again
    assert picture.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--plot", "x.bmp"], "--plot 'x.bmp'"),
        (["--plot", "none/x.svg"], "--plot 'none/x.svg'"),
        (["--report", "none/x.html"], "--report 'none/x.html'"),
        (["--report", "x.pdf"], "--report 'x.pdf'"),
    ],
)
def test_pictures_that_cannot_be_written_are_refused_at_once(
    warm: Warm, options: list[str], named: str, table: Path, tmp_path: Path
) -> None:
    done = warm("estimates", table, *BY, *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"faultlines: error: {named} ")
    assert is_one_line(done.stderr)


def test_several_treatments_are_taken_by_every_command(warm: Warm, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"g": rng.choice(list("pqr"), 6000), "arm": rng.choice(list("ABC"), 6000)})
    rows["y"] = rng.gamma(2, 1, 6000) * np.where((rows.g == "p") & (rows.arm == "C"), 1.5, 1.0)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    sums = rows.groupby(["g", "arm"], as_index=False)["y"].agg(["size", "mean", "var"])
    sums.to_csv(tmp_path / "sums.csv", index=False)
    arms = ("--by", "g", "--variant", "arm", "--control", "A", "--treatment", "B", "--treatment", "C")
    lift, file, out = ("--metric", "lift:y"), tmp_path / "rows.csv", tmp_path / "out.json"
    warm("experiment", file, *arms, *lift, "--json", out)
    assert json.loads(out.read_text())["headline"].startswith("g p, arm C ")
    for more in ((), (*arms, *lift)):
        assert json.loads(warm("confirm", out, file, *more, "--json", "-").stdout)["verdict"] == "confirmed"
    assert warm("power", file, *arms, *lift, "--runs", "40").returncode == 0
    columns = ("--metric", "lift", "--n", "size", "--mean", "mean", "--variance", "var")
    assert "g p, arm C " in warm("aggregates", tmp_path / "sums.csv", *arms, *columns).stdout
    watched = warm("monitor", tmp_path / "state.json", file, *arms, *lift, "--looks", "1", "--json", out)
    assert watched.returncode == 0
    written = json.loads(out.read_text())
    assert (written["verdict"], written["dependence"], written["clusters"][-1]) == ("differ", "any", [["p", "C"]])
    assert written["looks"][0]["arms"] == rows.groupby("arm").size().to_dict()
