"""`faultlines many` and `faultlines aggregates` say what the library says."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.render.text import to_text
from tests.cli.running import Warm, is_one_line, without_next

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "--experiment test --by country --estimate lift --se se".split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    lifts = pd.DataFrame(
        [
            (test, f"c{g}", rng.normal() + 7 * (test == "beta" and g < 4), 1.0, 100 + g)
            for test in ("alpha", "beta", "gamma")
            for g in range(9)
        ],
        columns=["test", "country", "lift", "se", "users"],
    )
    lifts.to_csv(tmp_path / "lifts.csv", index=False)
    lifts[lifts.test != "beta"].to_csv(tmp_path / "alike.csv", index=False)
    rows = pd.DataFrame(
        {
            "test": rng.choice(["one", "two"], 4000),
            "country": rng.choice(["DE", "FR", "IT"], 4000),
            "arm": rng.choice(["A", "B"], 4000),
            "spend": rng.gamma(2, 1, 4000),
        }
    )
    rows.loc[(rows.test == "one") & (rows.country == "DE") & (rows.arm == "B"), "spend"] *= 2
    rows["buys"] = (rows.spend > 2).astype(int)
    rows.to_parquet(tmp_path / "rows.parquet")
    keys = ["test", "country", "arm"]
    sums = rows.groupby(keys, as_index=False).agg(
        users=("spend", "size"), mean=("spend", "mean"), var=("spend", "var"), buyers=("buys", "sum")
    )
    sums.to_csv(tmp_path / "sums.csv", index=False)
    counts = sums[sums.test == "one"].groupby("country", as_index=False)[["users", "buyers"]].sum()
    counts.to_csv(tmp_path / "counts.csv", index=False)
    return tmp_path


def test_a_table_as_in_the_library(warm: Warm, folder: Path) -> None:
    done = warm("many", "lifts.csv", *TABLE, *"--n users --csv out.csv --json out.json".split(), cwd=folder)
    experiments = fl.cluster_many(
        folder / "lifts.csv", experiment="test", by="country", estimate="lift", se="se", n="users"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert without_next(done.stdout) == to_text(experiments, spelling="omit")
    assert json.loads((folder / "out.json").read_text()) == json.loads(experiments.to_json())
    written = pd.read_csv(folder / "out.csv")
    assert written.cluster.tolist() == experiments.to_pandas("groups").cluster.tolist()
    assert written.experiment.tolist() == [name for name in experiments for _ in range(9)]
    streamed = warm("many", "lifts.csv", *TABLE, *"--n users --csv -".split(), cwd=folder)
    assert streamed.stdout == (folder / "out.csv").read_text()
    plain = warm("many", "lifts.csv", *TABLE, *"--n users --json -".split(), cwd=folder)
    assert json.loads(plain.stdout)["rejected"] == ["beta"]


def test_rows_and_aggregates_are_the_same(warm: Warm, folder: Path) -> None:
    metric = fl.rate(fl.aggregated("users", sum="buyers"))
    done = warm("many", "rows.parquet", *"--experiment test --by country --metric".split(), "lift:spend",
                *"--variant arm --control A --correction bh --json -".split(), cwd=folder)  # fmt: skip
    rows = json.loads(done.stdout)
    assert rows["correction"] == "bh"
    assert rows["rejected"] == ["one"]
    done = warm("many", "sums.csv", *"--experiment test --by country --metric lift --n users --mean mean".split(),
                *"--variance var --variant arm --control A --json -".split(), cwd=folder)  # fmt: skip
    sums = json.loads(done.stdout)
    assert [row["estimate"] for row in sums["groups"]] == pytest.approx([row["estimate"] for row in rows["groups"]])
    done = warm("many", "sums.csv", *"--experiment test --by country --metric rate --n users".split(),
                *"--sum buyers".split(), cwd=folder)  # fmt: skip
    experiments = fl.cluster_many(folder / "sums.csv", experiment="test", by="country", metric=metric)
    assert without_next(done.stdout) == to_text(experiments, spelling="omit")


@pytest.mark.parametrize("metric", ["rate", "binomial", "poisson"])
def test_counts_as_in_the_library(warm: Warm, folder: Path, metric: str) -> None:
    words = f"aggregates counts.csv --by country --metric {metric} --n users --sum buyers --json out.json"
    done = warm(*words.split(), cwd=folder)
    counts = pd.read_csv(folder / "counts.csv")
    if metric == "rate":
        result = fl.cluster(counts, "country", fl.rate(fl.aggregated("users", sum="buyers")))
    else:
        test = fl.binomial if metric == "binomial" else fl.poisson
        labels = counts.country.tolist()
        result = fl.cluster(test(counts.buyers, counts.users, labels, attributes=["country"], metric="rate of buyers"))
    assert without_next(done.stdout) == to_text(result, spelling="omit")
    assert json.loads((folder / "out.json").read_text())["pvalue"] == result.pvalue


def test_moments_of_two_arms(warm: Warm, folder: Path) -> None:
    words = "aggregates sums.csv --by country --metric difference --n users --mean mean --variance var"
    done = warm(*words.split(), *"--variant arm --control A --certify 1.5".split(), cwd=folder)
    metric = fl.difference(fl.aggregated("users", mean="mean", variance="var"), variant="arm", control="A")
    assert done.stdout.startswith(to_text(fl.cluster(folder / "sums.csv", "country", metric), spelling="omit"))
    assert "\nPASSED  " in done.stdout
    assert done.returncode == 0


def test_the_gate(warm: Warm, folder: Path) -> None:
    assert warm("many", "lifts.csv", *TABLE, "--fail-on-split", cwd=folder).returncode == 1
    done = warm("many", "alike.csv", *TABLE, "--fail-on-split", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    small = ("--n", "users", "--min-size")
    done = warm("many", "alike.csv", *TABLE, *small, "103", "--fail-on-split", cwd=folder)
    assert done.returncode == 3
    assert is_one_line(done.stderr)
    assert "inconclusive: alpha: " in done.stderr
    done = warm("many", "alike.csv", *TABLE, *small, "1000", "--fail-on-split", cwd=folder)
    assert done.returncode == 3
    assert warm("many", "alike.csv", *TABLE, *small, "1000", cwd=folder).returncode == 2
    assert warm(*"aggregates counts.csv --by country --metric binomial --n users --sum buyers".split(),
                "--fail-on-split", cwd=folder).returncode in {0, 1}  # fmt: skip


def test_a_page_over_all(warm: Warm, folder: Path) -> None:
    done = warm("many", "lifts.csv", *TABLE, *"--report out.html --title Tests".split(), cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    page = (folder / "out.html").read_text()
    assert "faultlines many lifts.csv" in page
    assert re.search(r"<title>[^<]*Tests", page)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("many lifts.csv --experiment test --by country", "missing: metric"),
        ("many lifts.csv --experiment test --by country --estimate lift", "missing: estimate, se"),
        ("many lifts.csv --experiment tset --by country --estimate lift --se se", "column not found: experiment"),
        ("many lifts.csv --experiment test --by test --estimate lift --se se", "duplicate: experiment"),
        ("many lifts.csv --experiment test --by country --estimate lift --se se --metric mean", "conflict: metric"),
        ("many lifts.csv --experiment test --by country --estimate lift --se se --mean x", "conflict: mean"),
        ("many lifts.csv --experiment test --by country --metric lift:x --n users", "conflict: n, dof"),
        ("many lifts.csv --experiment test --by country --metric rate --sum x", "missing: sum"),
        ("many lifts.csv --experiment test --by country --metric rate --sum x --n n --unit u", "conflict: unit"),
        ("many - --experiment test --by country --metric lift:x --variant a --control A", "unsupported: files"),
        ("many lifts.csv --experiment test --by country --estimate lift --se se --correction x", "unknown: correction"),
        (
            "many lifts.csv --experiment test --by country --estimate lift --se se --csv - --json -",
            "conflict: json, csv",
        ),
        ("many lifts.csv --experiment test --by country --estimate lift --se se --csv lifts.csv", "conflict: csv"),
        ("aggregates counts.csv --by country --metric rate --n users", "missing: mean, sum"),
        ("aggregates counts.csv --by country --metric rates --n users --sum buyers", "unknown: metric"),
        ("aggregates counts.csv --by country --metric mean --n users --sum buyers", "missing: variance, sum_squares"),
        ("aggregates counts.csv --by country --metric rate --n users --sum buyers --variant x", "conflict: variant"),
        ("aggregates counts.csv --by country --metric lift --n users --sum buyers --variant x", "missing: metric"),
        ("aggregates counts.csv --by country --metric binomial --n users --mean buyers", "conflict: mean"),
        ("aggregates counts.csv --by country --metric binomial --n users", "missing: metric"),
        ("aggregates counts.csv --by country --metric binomial --n buyers --sum users", "invalid data: sum"),
        ("aggregates counts.csv lifts.csv --by country --metric poisson --n users --sum buyers", "conflict: files"),
        ("aggregates - --by country --metric rate --n users --sum buyers", "unsupported: files"),
    ],
)
def test_bad_words(warm: Warm, folder: Path, words: str, refused: str) -> None:
    done = warm(*words.split(), cwd=folder)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert is_one_line(done.stderr)
    assert done.refused == refused
