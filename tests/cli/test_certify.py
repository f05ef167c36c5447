"""`--certify`: 0 when all groups are within the gap, 1 when some group is not, 3 when that cannot be told."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.render.text import to_text
from tests.cli.running import BY, Warm, is_one_line, without_next

if TYPE_CHECKING:
    from pathlib import Path

RATE = ("--by", "g", "--metric", "selection_rate", "--y-pred", "p")


@pytest.fixture
def scored(tmp_path: Path) -> Path:
    """Selection rates of 50% and 49% in A and B, 30% in C, of 800 rows each."""
    lines = ["g,y,p,arm,x"]
    for group, selected in (("A", 400), ("B", 392), ("C", 240)):
        lines += [f"{group},{i % 2},{int(i < selected)},{'AB'[i // 2 % 2]},{i % 7}" for i in range(800)]
    path = tmp_path / "scored.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("options", "code", "verdict"),
    [
        ("--certify 0.2", 0, "PASSED"),
        ("--certify 0.05", 1, "FAILED"),
        ("--certify 0.13", 3, "INCONCLUSIVE"),
        ("--certify 0.8 --ratio --reference A --adverse low", 1, "FAILED"),
        ("--certify 0.8 --ratio", 1, "FAILED"),
        ("--certify 0.5 --ratio", 0, "PASSED"),
        ("--certify 0.25 --reference highest --adverse low", 0, "PASSED"),
        ("--certify 0.8 --ratio --reference overall --adverse high", 0, "PASSED"),
        ("--certify 0.5 --ratio --reference all_pairs", 0, "PASSED"),
    ],
)
def test_exit_codes(warm: Warm, scored: Path, options: str, code: int, verdict: str) -> None:
    words = [word.replace("_", " ") for word in options.split()]
    done = warm("model", scored, *RATE, *words)
    assert (done.returncode, f"\n{verdict}  " in done.stdout) == (code, True), (done.stdout, done.stderr)
    assert is_one_line(done.stderr) if code == 3 else done.stderr == ""
    plain = warm("model", scored, *RATE)
    assert done.stdout.startswith(plain.stdout.partition("\nNext: ")[0])


def test_it_is_the_certificate_of_the_library_in_json_and_page(warm: Warm, scored: Path, tmp_path: Path) -> None:
    done = warm(
        "model",
        scored,
        *RATE,
        *"--certify 0.2 --alpha 0.1 --seed 3 --json out.json --report out.html".split(),
        cwd=tmp_path,
    )
    expected = fl.certify(scored, "g", fl.selection_rate("p"), gap=0.2, alpha=0.1, seed=3)
    assert without_next(done.stdout).endswith(f"\n\n{to_text(expected, spelling='omit')}")
    assert json.loads((tmp_path / "out.json").read_text())["certificate"] == json.loads(expected.to_json())
    assert f"<p>{html.escape(expected.headline)}</p>" in (tmp_path / "out.html").read_text()


def test_several_metrics_share_the_level(warm: Warm, scored: Path) -> None:
    done = warm(
        "model",
        scored,
        *RATE,
        *"--metric true_positive_rate --y-true y --certify 0.3 --json -".split(),
        "--alpha",
        "0.08",
    )
    assert done.returncode == 0
    both = [metric["certificate"] for metric in json.loads(done.stdout)["metrics"]]
    assert [certificate["alpha"] for certificate in both] == [0.04, 0.04]
    text = warm("model", scored, *RATE, *"--metric true_positive_rate --y-true y --certify 0.13".split())
    assert text.returncode == 3
    assert "\n\n2 certificates, at α/2 each (Bonferroni).\n\n" in text.stdout
    assert " true positive rate: " in text.stderr
    assert is_one_line(text.stderr)


def test_estimates_and_experiments(warm: Warm, table: Path, scored: Path) -> None:
    done = warm("estimates", table, *BY, "--n", "users", "--certify", "0.05")
    expected = fl.certify(fl.Estimates.from_frame(table, "country", "lift", "sd", "users"), gap=0.05)
    assert (done.returncode, expected.verdict) == (1, "failed")
    assert without_next(done.stdout).endswith(f"\n\n{to_text(expected, spelling='omit')}")
    arms = "--by g --variant arm --control A --metric difference:x --certify 1".split()
    assert warm("experiment", scored, *arms).returncode == 0


def test_harm_is_about_each_groups_own_effect(warm: Warm, tmp_path: Path) -> None:
    """New users gain four points, old ones nothing: groups differ, and nobody is harmed."""
    path = tmp_path / "lifts.csv"
    words = "--by users --estimate lift --se se --n n".split()
    path.write_text("users,lift,se,n\nnew,0.04,0.004,5000\nold,0.001,0.004,5000\n")
    assert warm("estimates", path, *words, "--fail-on-split").returncode == 1
    assert warm("estimates", path, *words, *"--fail-on harm --adverse low --certify 0.01".split()).returncode == 0
    done = warm("estimates", path, *words, *"--fail-on harm --adverse low".split())
    assert (done.returncode, is_one_line(done.stderr)) == (3, True)
    assert warm("estimates", path, *words, *"--certify 0.01 --reference 0 --adverse low".split()).returncode == 0
    done = warm("estimates", path, *words, *"--fail-on harm".split())
    assert (done.returncode, "--adverse" in done.stderr) == (2, True)
    path.write_text("users,lift,se,n\nnew,0.04,0.004,5000\nold,-0.02,0.004,5000\n")
    done = warm("estimates", path, *words, *"--fail-on harm --adverse low --json -".split())
    certificate = json.loads(done.stdout)["certificate"]
    assert (done.returncode, certificate["beyond"], certificate["against"]) == (1, ["old"], 0.0)
    assert warm("estimates", path, *words, *"--fail-on harm --adverse high".split()).returncode == 1


def test_one_group_can_be_compared_with_a_value(warm: Warm, scored: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    frame = pd.read_csv(scored)
    frame[frame.g == "C"].to_csv(path, index=False)
    for reference, code in (("0.3", 0), ("0.6", 1)):
        assert warm("model", path, *RATE, "--certify", "0.1", "--reference", reference).returncode == code
    assert warm("model", path, *RATE, "--certify", "0.1").returncode == 3
    assert warm("model", path, *RATE, *"--certify 0.1 --reference 0.3 --fail-on-split".split()).returncode == 3


def test_both_gates_at_once(warm: Warm, scored: Path) -> None:
    assert warm("model", scored, *RATE, "--certify", "0.2", "--fail-on-split").returncode == 1
    assert warm("model", scored, *RATE, "--certify", "0.05", "--fail-on-split").returncode == 1
    alike = scored.with_name("alike.csv")
    alike.write_text("".join(line for line in scored.read_text().splitlines(True) if not line.startswith("C")))
    assert warm("model", alike, *RATE, "--certify", "0.2", "--fail-on-split").returncode == 0
    assert warm("model", alike, *RATE, "--certify", "0.001", "--fail-on-split").returncode == 3


def test_groups_left_out_or_alone_cannot_be_certified(warm: Warm, scored: Path, tmp_path: Path) -> None:
    with scored.open("a", encoding="utf-8") as file:
        file.write("D,1,1,A,0\n")
    done = warm("model", scored, *RATE, "--certify", "0.2")
    assert done.returncode == 3
    assert done.stderr.startswith("faultlines: inconclusive: ")
    assert " D" in done.stderr
    alone = tmp_path / "alone.csv"
    alone.write_text("g,p\n" + "A,1\nA,0\n" * 20)
    done = warm("model", alone, *RATE, "--certify", "0.2", "--json", "out.json", cwd=tmp_path)
    assert done.returncode == 3
    assert is_one_line(done.stderr)
    assert json.loads((tmp_path / "out.json").read_text())["certificate"] is None
    few = tmp_path / "few.csv"
    few.write_text("g,p\nA,1\nB,0\n")
    assert warm("model", few, *RATE, "--certify", "0.2").returncode == 3
    assert warm("model", few, *RATE).returncode == 2


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ("--certify -1", "out of range: certify"),
        ("--certify nan", "wrong type: certify"),
        ("--certify x", "usage"),
        ("--certify 2", "out of range: certify"),
        ("--certify 1.2 --ratio", "out of range: certify"),
        ("--certify 0.1 --reference ZZ", "not found: reference"),
        ("--certify 0.1 --adverse lo", "unknown: adverse"),
        ("--reference A", "conflict: reference"),
        ("--ratio", "conflict: ratio"),
        ("--adverse low", "conflict: adverse"),
        ("--fail-on split", "unknown: fail_on"),
        ("--fail-on harm --ratio", "conflict: fail_on"),
        ("--fail-on harm --reference A", "conflict: fail_on"),
        ("--fail-on harm --adverse both", "missing: adverse"),
        ("--certify 0.1 --metric false_positive_rate --y-true y --adverse low", "conflict: adverse"),
    ],
)
def test_bad_options_are_one_line_and_exit_2(warm: Warm, scored: Path, options: str, refused: str) -> None:
    done = warm("model", scored, *RATE, *options.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.refused == refused
    assert is_one_line(done.stderr)


# --------------------------------------------------------------------------------------------------- two models


@pytest.fixture(scope="module")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Predictions and scores of two models: the new one is worse in group 1; the safe one is worse nowhere."""
    path, rng, size = tmp_path_factory.mktemp("models") / "models.csv", np.random.default_rng(0), 9_000
    rows = pd.DataFrame({"g": rng.integers(0, 3, size), "y": rng.integers(0, 2, size)})
    rows["old"] = np.where(rng.random(size) < 0.8, rows.y, 1 - rows.y)
    rows["new"] = np.where(rng.random(size) < np.where(rows.g == 1, 0.06, 0.001), 1 - rows.y, rows.old)
    rows["safe"] = np.where(rng.random(size) < 0.02, rows.y, rows.old)
    noise = rng.normal(size=(3, size))
    rows["s_old"], rows["s_new"] = rows.y + noise[0], rows.y + noise[0] + np.where(rows.g == 1, 1.0, 0.05) * noise[1]
    rows.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--metric accuracy --y-pred safe --baseline old --certify 0.01", 0),
        ("--metric accuracy --y-pred new --baseline old --certify 0.01", 1),
        ("--metric accuracy --y-pred new --baseline old --certify 0.2", 0),
        ("--metric accuracy --y-pred old --baseline new --certify 0.01", 0),  # a gain is no loss
        ("--metric accuracy --y-pred old --baseline new --certify 0.01 --adverse both", 1),
        ("--metric error_rate --y-pred new --baseline old --certify 0.01", 1),
        ("--metric accuracy --y-pred new --baseline old --certify 0.05", 3),
        ("--metric tpr --metric fpr --y-pred safe --baseline old --certify 0.01", 0),
        ("--metric accuracy --y-pred safe --baseline old --certify 0.01 --reference 0", 0),
        ("--metric accuracy --y-pred safe --baseline old --certify 0.01 --fail-on harm", 0),
        ("--metric auc --score s_new --baseline-score s_old --certify 0.01", 1),
        ("--metric tpr --score s_new --baseline-score s_old --threshold 0.5 --certify 0.01", 1),
    ],
)
def test_no_group_loses_from_one_model_to_another(warm: Warm, two_models: Path, options: str, code: int) -> None:
    done = warm("model", two_models, "--by", "g", "--y-true", "y", *options.split(), "--json", "-")
    assert done.returncode == code, done.stderr
    data = json.loads(done.stdout)
    for result in data.get("metrics", [data]):
        certificate = result["certificate"]
        assert certificate["against"] == 0  # and not the group of that name
        assert certificate["adverse"] == (None if "both" in options else "high" if "rate" in _kind(result) else "low")


def _kind(result: dict[str, Any]) -> str:
    """The metric, where that harms when high."""
    return next((name for name in ("false positive rate", "error rate") if name in result["metric"]), "")


def test_the_gate_agrees_with_the_paired_certificate(warm: Warm, two_models: Path) -> None:
    options = ("--metric", "auc", "--score", "s_new", "--baseline-score", "s_old", "--certify", "0.01")
    done = warm("model", two_models, "--by", "g", "--y-true", "y", *options, "--json", "-")
    typed = json.loads(done.stdout)["certificate"]
    metric = fl.paired(fl.auc("y", "s_old"), fl.auc("y", "s_new"))
    called = fl.certify(pd.read_csv(two_models), "g", metric, gap=0.01, against=0).to_dict()
    assert typed["certifiable"] == pytest.approx(called["certifiable"])
    assert [row["lower"] for row in typed["groups"]] == pytest.approx([row["lower"] for row in called["groups"]])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--metric accuracy --y-pred new --baseline new", "--baseline 'new' names the column of --y-pred"),
        ("--metric accuracy --y-pred new --baseline gone", "(--baseline)"),
        ("--metric auc --score s_new --baseline old", "needs --baseline-score"),
        ("--metric accuracy --y-pred new --baseline-score s_old", "needs --baseline"),
        ("--metric f1 --y-pred new --baseline old", "cannot be compared in pairs"),
        ("--metric accuracy --y-pred new --baseline old --certify 0.8 --ratio", "--ratio does not apply"),
    ],
)
def test_what_a_baseline_cannot_be(warm: Warm, two_models: Path, options: str, words: str) -> None:
    done = warm("model", two_models, "--by", "g", "--y-true", "y", *options.split())
    assert done.returncode == 2
    assert is_one_line(done.stderr)
    assert words in done.stderr
