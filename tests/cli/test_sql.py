"""`--sql`: rows from one SELECT on every command that reads rows, which can do nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.engines.duckdb import query
from tests.cli.running import is_one_line, without_next

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm

EXPERIMENT = "experiment --by country --metric difference:spend --variant arm --control A"
COMMANDS = [
    EXPERIMENT,
    "model --by country --metric selection_rate --y-pred bought",
    "audit --by country --y-true bought --y-pred bought --metric selection_rate",
    "srm --by country --variant arm --shares A=1,B=1",
    "impact-ratio --by country --selected bought",
    "power --by country --metric difference:spend --variant arm --control A --runs 50",
    "many --experiment day --by country --metric difference:spend --variant arm --control A",
    "monitor state.json --by country --metric difference:spend --variant arm --control A",
]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    rng = np.random.default_rng(2)
    data = pd.DataFrame({"country": rng.choice(["AT", "DE", "FR"], 3000), "arm": rng.choice(["A", "B"], 3000)})
    data["day"] = rng.choice(["d1", "d2"], 3000)
    data["bought"] = rng.integers(0, 2, 3000)
    data["spend"] = rng.gamma(2, 2, 3000) + 4.0 * ((data.country == "FR") & (data.arm == "B"))
    data.to_parquet(tmp_path / "visits.parquet")
    data[data.country != "FR"].to_csv(tmp_path / "without.csv", index=False)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_reads_rows_takes_a_query(warm: Warm, shop: Path, command: str) -> None:
    by_query = warm(*command.split(), "--sql", "select * from 'visits.parquet'", cwd=shop)
    assert by_query.returncode == 0, by_query.stderr
    (shop / "state.json").unlink(missing_ok=True)
    words = command.split()
    at = 2 if words[0] == "monitor" else 1
    by_file = warm(*words[:at], "visits.parquet", *words[at:], cwd=shop)
    assert without_next(by_file.stdout) == without_next(by_query.stdout)


def test_aggregates_and_fresh_data_take_a_query(warm: Warm, shop: Path) -> None:
    summed = "select country, count(*) n, sum(bought) k from 'visits.parquet' group by all"
    counts = warm("aggregates", *"--by country --metric rate --n n --sum k --json -".split(), "--sql", summed, cwd=shop)
    assert counts.returncode == 0, counts.stderr
    assert json.loads(counts.stdout)["n_groups"] == 3
    rows = "select * from 'visits.parquet'"
    assert warm(*EXPERIMENT.split(), "--sql", rows, "--json", "found.json", cwd=shop).returncode == 0
    again = warm("confirm", "found.json", "--sql", rows, cwd=shop)
    assert again.returncode == 0, again.stderr


TABLES = [
    ("estimates", "--by country --estimate lift --se se --n n", "estimates"),
    ("many", "--experiment day --by country --estimate lift --se se --n n", "many"),
    ("monitor", "--by country --estimate lift --se se --n n", "monitor state.json"),
    ("confirm", "--by country --estimate lift --se se --n n", "confirm found.json"),
]


@pytest.mark.parametrize(("command", "options", "start"), TABLES, ids=[name for name, *_ in TABLES])
def test_tables_with_one_row_per_group_take_a_query(
    warm: Warm, tmp_path: Path, command: str, options: str, start: str
) -> None:
    rng = np.random.default_rng(0)
    countries = [f"c{i}" for i in range(12)]
    frame = pd.DataFrame({"country": countries, "lift": rng.normal(0, 1, 12) + 9 * (np.arange(12) < 4)})
    frame = frame.assign(se=1.0, n=900.0, day="d1")
    frame.to_csv(tmp_path / "lifts.csv", index=False)
    pd.concat([frame, frame.assign(day="d2", lift=0.0)]).to_parquet(tmp_path / "days.parquet")
    if command == "confirm":
        found = ("--json", "found.json")
        assert warm("estimates", "lifts.csv", *options.split(), *found, cwd=tmp_path).returncode == 0
    query_of_day = ("--sql", "select * from 'days.parquet' where day = 'd1'")
    by_query = warm(*start.split(), *query_of_day, *options.split(), cwd=tmp_path)
    assert (by_query.returncode, by_query.stderr) == (0, "")
    (tmp_path / "state.json").unlink(missing_ok=True)
    by_file = warm(*start.split(), "lifts.csv", *options.split(), cwd=tmp_path)
    assert without_next(by_file.stdout) == without_next(by_query.stdout)
    again = warm(*start.split(), "lifts.csv", "lifts.csv", *options.split(), cwd=tmp_path)
    assert (again.returncode, again.refused) == (2, "unsupported: files")


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["--sql", "select 'a' country, 1.0 lift"], "column not found: se"),
        (["--sql", "select 'a' country, 'x' lift, 1.0 se"], "wrong type: estimate"),
        (["--sql", "select 'a' country, 'x'::double lift, 1.0 se"], "unreadable file: frame"),
        (["--sql", "select 'a' country, 1.0 lift, 1.0 se from range(2)"], "duplicate: labels"),
        (["--sql", "select 'a' country, 1.0 lift, 1.0 se where false"], "empty: estimate"),
        (["--sql", "copy (select 1) to 'evil.csv'"], "unsupported: sql"),
        (["lifts.csv", "--sql", "select 1"], "conflict: sql"),
        ([], "missing: files"),
    ],
)
def test_queries_of_estimates_that_cannot_be_used(warm: Warm, tmp_path: Path, words: list[str], refused: str) -> None:
    done = warm("estimates", *words, *"--by country --estimate lift --se se".split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.refused) == (2, "", refused)
    assert is_one_line(done.stderr)
    assert not list(tmp_path.iterdir())


def test_filters_are_part_of_the_query(warm: Warm, shop: Path) -> None:
    asked = "select * from 'visits.parquet' where country <> 'FR'"
    result = json.loads(warm(*EXPERIMENT.split(), "--sql", asked, "--json", "-", cwd=shop).stdout)
    assert {row["country"] for row in result["groups"]} == {"AT", "DE"}


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "copy (select 1) to 'evil.csv'",
        "select 1; select 2",
        "attach 'evil.db'",
        "install httpfs",
        "pragma version",
        "set threads = 1",
        "create table t as select 1",
        "selec 1",
        "select * from nowhere",
        f"select * from '{'http:'}//localhost:9/x.parquet'",
    ],
)
def test_anything_but_one_select_that_runs_is_one_line_and_exit_2(warm: Warm, shop: Path, sql: str) -> None:
    before = sorted(path.name for path in shop.iterdir())
    ended = warm(*EXPERIMENT.split(), "--sql", sql, cwd=shop)
    assert ended.returncode == 2
    assert is_one_line(ended.stderr)
    assert "--sql" in ended.stderr
    assert sorted(path.name for path in shop.iterdir()) == before


def test_variables_of_python_are_not_tables() -> None:
    hidden = pd.DataFrame({"x": [1]})
    assert len(hidden) == 1
    with pytest.raises(fl.InputError) as refused:
        query("select * from hidden")
    assert refused.value.parameter == "sql"


@pytest.mark.parametrize("words", [[], ["visits.parquet", "--sql", "select 1"]])
def test_files_or_a_query_are_needed_and_not_both(warm: Warm, shop: Path, words: list[str]) -> None:
    ended = warm(*EXPERIMENT.split(), *words, cwd=shop)
    assert ended.returncode == 2
    assert is_one_line(ended.stderr)


def test_attributes_with_a_comma_folders_and_mixed_kinds(warm: Warm, shop: Path) -> None:
    words = "--metric difference:spend --variant arm --control A --json -".split()
    crossed = warm("experiment", "visits.parquet", "--by", "country,day", *words, cwd=shop)
    apart = warm("experiment", "visits.parquet", "--by", "country", "--by", "day", *words, cwd=shop)
    assert json.loads(crossed.stdout)["groups"] == json.loads(apart.stdout)["groups"]
    mixed = warm("experiment", ".", "--by", "country", *words, cwd=shop)
    assert mixed.returncode == 2
    assert "union all by name" in mixed.stderr
    (shop / "without.csv").unlink()
    folder = warm("experiment", ".", "--by", "country", *words, cwd=shop)
    file = warm("experiment", "visits.parquet", "--by", "country", *words, cwd=shop)
    assert json.loads(folder.stdout)["groups"] == json.loads(file.stdout)["groups"]


def test_all_treatments_by_name_one_by_one(warm: Warm, shop: Path) -> None:
    words = ["experiment", "visits.parquet", "--by", "country", "--variant", "arm", "--control", "A", "--per-arm"]
    three = "select *, case when spend > 4 and arm = 'B' then 'C' else arm end as variant from 'visits.parquet'"
    words = ["experiment", "--sql", three, *words[2:5], "variant", *words[6:], "--metric", "difference:bought"]
    every = warm(*words, "--treatment", "*", "--json", "-", cwd=shop)
    named = warm(*words, "--treatment", "B", "--treatment", "C", "--json", "-", cwd=shop)
    assert every.returncode == 0, every.stderr
    assert json.loads(every.stdout) == json.loads(named.stdout)
    single = warm(*words, "--treatment", "B", cwd=shop)
    assert single.returncode == 2


def test_several_metrics_are_one_report_with_one_warning(warm: Warm, shop: Path) -> None:
    lost = "select * from 'visits.parquet' where not (country = 'FR' and arm = 'B' and bought = 1)"
    metrics = ["--metric", "difference:spend", "--metric", "lift:spend", "--metric", "difference:day_number"]
    asked = f"select *, length(day) + random() day_number from ({lost})"
    ended = warm(*EXPERIMENT.split(), *metrics[2:], "--sql", asked, "--json", "three.json", cwd=shop)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("Sample ratio mismatch") == 1
    assert ended.stdout.startswith("Warning: Sample ratio mismatch in country FR")
    written = json.loads((shop / "three.json").read_text(encoding="utf-8"))
    assert [row["metric"] for row in written["overview"]] == [metric["metric"] for metric in written["metrics"]]
    assert len(written["overview"]) == 3
    assert written["sample_ratio"]["where"] == {"country": "FR"}
    again = warm("confirm", "three.json", "--sql", asked, "--metric", "lift of spend", cwd=shop)
    assert again.returncode == 0, again.stderr
