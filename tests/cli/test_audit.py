"""`faultlines audit` says what `fl.audit` says, and gates on it; metrics have the names people type."""

from __future__ import annotations

import csv
import html
import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.render.text import to_text
from tests.cli.running import Warm, is_one_line, without_next

if TYPE_CHECKING:
    from pathlib import Path

WHERE = "--by sex --by race --y-true hired --y-pred guess".split()


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    size = 4000
    table = pd.DataFrame({"sex": rng.choice(["f", "m"], size), "race": rng.choice(list("ABC"), size)})
    table["hired"] = (rng.random(size) < 0.4).astype(int)
    shift = 0.15 * (table.race == "C")
    table["score"] = np.clip(0.3 + 0.3 * table.hired + shift + 0.2 * rng.standard_normal(size), 0, 1)
    table["guess"] = np.where(table.score >= 0.5, "yes", "no")
    table["age"] = rng.integers(18, 80, size)
    table["place"] = rng.choice(["north", "south"], size)
    table.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def test_it_says_what_the_library_says(warm: Warm, rows: Path) -> None:
    done = warm(
        "audit",
        rows,
        *WHERE,
        "--metric",
        "tpr",
        "--metric",
        "fpr",
        "--json",
        "a.json",
        "--csv",
        "a.csv",
        cwd=rows.parent,
    )
    assert done.returncode == 0, done.stderr
    result = fl.audit("hired", "guess", data=rows, sensitive_features=["sex", "race"], metrics=["tpr", "fpr"])
    expected = to_text(result, spelling="omit").replace('.to_dicts("groups")', "--csv FILE")
    assert without_next(done.stdout) == expected
    written = json.loads((rows.parent / "a.json").read_text(encoding="utf-8"))
    assert written == json.loads(result.to_json())
    with (rows.parent / "a.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(row["estimate"]) for row in table] == [group.estimate for group in result.groups]
    done = warm(
        "audit", rows, "--by", "age", "--control", "place", "--y-true", "hired", "--score", "score", "--json", "-"
    )
    assert {row["stratum"] for row in json.loads(done.stdout)["groups"]} == {"place = north", "place = south"}
    assert [cut["feature"] for cut in json.loads(done.stdout)["cut"]] == ["age"]


def test_gates(warm: Warm, rows: Path) -> None:
    assert warm("audit", rows, *WHERE, "--metric", "fpr", "--fail-on-split").returncode == 1
    assert (
        warm("audit", rows, "--by", "sex", "--y-true", "hired", "--y-pred", "guess", "--fail-on-split").returncode == 0
    )
    for gap, code, verdict in (("0.4", 0, "passed"), ("0.01", 1, "failed")):
        done = warm(
            "audit", rows, *WHERE, "--metric", "selection_rate", "--certify", gap, "--json", "c.json", cwd=rows.parent
        )
        assert done.returncode == code, done.stderr
        written = json.loads((rows.parent / "c.json").read_text(encoding="utf-8"))
        assert [certificate["verdict"] for certificate in written["certificates"].values()] == [verdict]
    few = rows.parent / "few.csv"
    pd.read_csv(rows).head(6).to_csv(few, index=False)
    assert warm("audit", few, *WHERE, "--fail-on-split").returncode == 3


def test_a_page(warm: Warm, rows: Path) -> None:
    done = warm("audit", rows, *WHERE, "--report", "a.html", "--title", "Hiring", cwd=rows.parent)
    assert done.returncode == 0, done.stderr
    assert "Hiring" in (rows.parent / "a.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ([*WHERE, "--metric", "hinge"], "unknown: metric"),
        (["--by", "sx", "--y-true", "hired", "--y-pred", "guess"], "column not found: by"),
        (["--by", "sex", "--y-true", "hired"], "missing: y_pred, score"),
        ([*WHERE, "--control", "sex"], "duplicate: control"),
        ([*WHERE, "--correction", "no"], "unknown: correction"),
        ([*WHERE, "--reference", "A"], "conflict: reference"),
        ([*WHERE, "--csv", "-", "--json", "-"], "conflict: json, csv"),
    ],
)
def test_mistakes(warm: Warm, rows: Path, arguments: list[str], refused: str) -> None:
    done = warm("audit", rows, *arguments)
    assert done.returncode == 2
    assert is_one_line(done.stderr)
    assert done.refused == refused


@pytest.mark.parametrize(
    ("typed", "own"), [("tpr", "true_positive_rate"), ("recall", "true_positive_rate"), ("ppv", "precision")]
)
def test_metrics_have_the_names_that_people_type(warm: Warm, rows: Path, typed: str, own: str) -> None:
    outputs = [warm("model", rows, *WHERE, "--metric", name).stdout for name in (typed, own)]
    assert outputs[0] == outputs[1] != ""
    twice = warm("model", rows, *WHERE, "--metric", typed, "--metric", own)
    assert twice.returncode == 2
    planned = warm(
        "power", rows, "--by", "sex", "--metric", typed, "--y-true", "hired", "--y-pred", "guess", "--runs", "50"
    )
    assert planned.returncode == 0, planned.stderr


@pytest.mark.parametrize("side", ["low", "high"])
def test_one_direction_for_metrics_that_harm_in_different_ones_is_refused(warm: Warm, rows: Path, side: str) -> None:
    both = ("--metric", "tpr", "--metric", "fpr", "--certify", "0.1")
    done = warm("audit", rows, *WHERE, *both, "--adverse", side)
    assert (done.returncode, done.stdout) == (2, "")
    assert is_one_line(done.stderr)
    assert "--adverse" in done.stderr
    assert warm("audit", rows, *WHERE, *both).returncode in (1, 3)


def test_margins_are_certified_as_in_the_library(warm: Warm, rows: Path) -> None:
    words = "--by sex --by race --metric selection_rate --y-pred guess --certify 0.3 --certify-margins --json -"
    done = warm("model", rows, *words.split())
    metric = fl.selection_rate("guess")
    expected = fl.certify(rows, ["sex", "race"], metric, gap=0.3, margins=True)
    written = json.loads(done.stdout)["certificate"]
    assert (done.returncode, written["verdict"]) == (0, expected.verdict)
    assert written["certifiable"] == pytest.approx(expected.certifiable)
    assert len(written["groups"]) == 2 + 3 + 6
    alone = warm("model", rows, *words.replace("--certify 0.3 ", "").split())
    assert (alone.returncode, "--certify-margins" in alone.stderr) == (2, True)


@pytest.mark.parametrize("asked", [["--fail-on-split"], ["--certify", "0.5"]])
def test_a_gate_does_not_pass_over_a_metric_that_could_not_be_compared(
    warm: Warm, rows: Path, asked: list[str]
) -> None:
    table = pd.read_csv(rows)
    table.assign(score=10 * table.score).to_csv(rows, index=False)
    where = ["audit", rows, "--by", "sex", "--y-true", "hired", "--score", "score", "--threshold", "5"]
    passed = warm(*where, "--metric", "tpr", *asked)
    assert passed.returncode == 0, passed.stderr
    skipped = warm(*where, "--metric", "tpr", "--metric", "brier_score", *asked)
    assert skipped.returncode == 3
    assert is_one_line(skipped.stderr)
    ungated = warm(*where, "--metric", "tpr", "--metric", "brier_score")
    assert ungated.returncode == 0


def test_certificates_say_which_stratum_they_are_of(warm: Warm, rows: Path) -> None:
    words = "--by race --y-true hired --y-pred guess --control place --metric tpr --certify 0.01"
    done = warm("audit", rows, *words.split(), "--json", "a.json", "--report", "a.html", cwd=rows.parent)
    written = json.loads((rows.parent / "a.json").read_text(encoding="utf-8"))["certificates"]
    page = (rows.parent / "a.html").read_text(encoding="utf-8")
    assert list(written) == [f"true positive rate by race (place = {place})" for place in ("north", "south")]
    for name, certificate in written.items():
        assert f"\n\n{name}\n{certificate['headline']}\n" in done.stdout
        assert f"<h3>{name}</h3>\n<p>{html.escape(certificate['headline'])}</p>" in page


def test_one_end_of_metrics_that_harm_in_different_directions_is_refused(warm: Warm, rows: Path) -> None:
    both = ("--metric", "tpr", "--metric", "fpr", "--certify", "0.1")
    for end in ("highest", "lowest"):
        assert warm("audit", rows, *WHERE, *both, "--reference", end).refused == "conflict: reference"
    assert warm("audit", rows, *WHERE, "--metric", "tpr", "--metric", "accuracy", *both[4:]).returncode != 2
    wide = warm("audit", rows, *WHERE, *both[:4], "--certify", "0.9")
    assert (wide.refused, " by sex × race: --certify " in wide.stderr) == ("out of range: certify", True)


@pytest.mark.parametrize(("share", "code"), [(0.005, 0), (0.08, 3)])
def test_missing_values_are_bounded_as_by_model(warm: Warm, rows: Path, share: float, code: int) -> None:
    table = pd.read_csv(rows)
    table["truth"] = table.hired.where(np.random.default_rng(1).random(len(table)) >= share)
    table.to_csv(rows, index=False)
    for metric, predicted, gap in (("mae", "score", "0.1"), ("tpr", "guess", "0.05")):
        words = f"--by sex --y-true truth --y-pred {predicted} --metric {metric} --certify {gap}".split()
        audited, modelled = (warm(name, rows, *words, "--json", "-") for name in ("audit", "model"))
        assert (audited.returncode, modelled.returncode) == (code, code), audited.stderr
        certificate = next(iter(json.loads(audited.stdout)["certificates"].values()))
        assert certificate["certifiable"] == json.loads(modelled.stdout)["certificate"]["certifiable"]


def test_changes_from_a_baseline(warm: Warm, rows: Path) -> None:
    """The new model is wrong about one in five of race B, where the old one was right."""
    rng = np.random.default_rng(2)
    table = pd.read_csv(rows)
    table["old"] = table.guess
    flipped = (table.race == "B") & (rng.random(len(table)) < 0.2)
    table["new"] = np.where(flipped, np.where(table.old == "yes", "no", "yes"), table.old)
    table.to_csv(rows, index=False)
    words = [*WHERE[:6], "--y-pred", "new", "--baseline", "old"]
    done = warm("audit", rows, *words, "--metric", "accuracy", "--certify", "0.02", "--json", "-")
    certificate = next(iter(json.loads(done.stdout)["certificates"].values()))
    change = fl.paired(fl.accuracy("hired", "old"), fl.accuracy("hired", "new"))
    expected = fl.certify(rows, ["sex", "race"], change, gap=0.02, against=0)
    assert (done.returncode, expected.verdict, expected.beyond) == (1, "failed", (("f", "B"), ("m", "B")))
    assert (certificate["against"], certificate["certifiable"]) == (0.0, pytest.approx(expected.certifiable))
    assert warm("audit", rows, *words, "--certify", "0.5").returncode == 0
    assert warm("audit", rows, *words, "--fail-on-split").returncode == 1
    for more, refused in (
        (["--metric", "f1"], "unsupported: metric"),
        (["--certify", "0.8", "--ratio"], "conflict: ratio"),
    ):
        assert warm("audit", rows, *words, *more).refused == refused
    assert warm("audit", rows, *words[:-1], "new").refused == "duplicate: baseline"
