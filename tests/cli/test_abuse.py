"""Bad inputs by the hundred: each is one line and exit 2, never a traceback, a NaN, a drawing on the terminal."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

import pytest

from tests.cli.running import BY, EXPERIMENT, MODEL, Warm, is_one_line

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess

NAMES = [
    "",
    " ",
    "*",
    "^abc$",
    "\x1b[31mred",
    "\x9b31m",
    "\u202egnp.exe",
    "a\nb",
    "a\x00b".replace("\x00", "\x01"),
    "'; DROP TABLE rows; --",
    '"',
    "\\",
    "%s{0}$(id)`id`",
    "</script><svg onload=alert(1)>",
    "n" * 5000,
    "\udcff",
    "COUNTRY ",
    "country\u200b",
    "--by",
]
TABLE = ("estimates", "lifts.csv")
LIFT = ("experiment", "shop.parquet", *EXPERIMENT, "--metric", "lift:revenue")
RATE = ("model", "shop.parquet", *MODEL, "--metric", "accuracy", "--y-pred", "pred")
AUC = ("model", "shop.parquet", *MODEL, "--metric", "auc", "--score", "score")
PLAN = ("power", "--groups", "5", "--size", "90", "--spread", "1", "--runs", "20")


def but(words: tuple[str, ...], option: str, value: str) -> tuple[str, ...]:
    """The same words with another value of one option, written so that a dash in it is no option."""
    without = list(words)
    if option in without:
        place = without.index(option)
        del without[place : place + 2]
    return (*without, f"{option}={value}")


def refused(done: CompletedProcess[str]) -> None:
    assert done.returncode == 2, (done.args, done.stdout, done.stderr)
    assert done.stdout == ""
    assert is_one_line(done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


@pytest.fixture
def here(table: Path, shop: Path) -> Path:
    assert table.parent == shop.parent
    return table.parent


COLUMNS = [
    *(((*TABLE, *BY), option) for option in ("--by", "--estimate", "--se", "--n", "--dof")),
    *((LIFT, option) for option in ("--by", "--variant", "--unit", "--covariate", "--weight")),
    *((RATE, option) for option in ("--y-true", "--y-pred", "--weight")),
    (AUC, "--score"),
    (("power", "lifts.csv", "--by", "country", "--se", "sd"), "--se"),
]


@pytest.mark.parametrize(("words", "option"), COLUMNS, ids=lambda value: value if isinstance(value, str) else value[0])
def test_columns_that_are_not_there(warm: Warm, here: Path, words: tuple[str, ...], option: str) -> None:
    # All of them where they are read from csv and from parquet, some of them everywhere.
    for name in NAMES if option in {"--by", "--estimate", "--unit"} else NAMES[::4]:
        refused(warm(*but(words, option, name), cwd=here))


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_files_metrics_guarantees_and_values_that_are_not_there(warm: Warm, here: Path, name: str) -> None:
    # A file whose name starts with a dash looks like an option, with "--" before it like a file.
    refused(warm("estimates", *BY, "--", f"{name}.csv", cwd=here))
    refused(warm("experiment", *LIFT[2:], "--", f"{name}.csv", cwd=here))
    for words, option in (
        (LIFT, "--metric"),
        (RATE, "--metric"),
        (LIFT, "--guarantee"),
        (LIFT, "--control"),
        (LIFT, "--treatment"),
        (RATE, "--positive"),
        (PLAN, "--only"),
    ):
        refused(warm(*but(words, option, name), cwd=here))
    refused(warm(*but(LIFT, "--metric", f"lift:{name}"), cwd=here))
    refused(warm(*but(LIFT, "--metric", f"ratio_lift:revenue/{name}"), cwd=here))
    refused(warm(*but((*LIFT, "--split-unit", "x"), "--guarantee", "calibrated"), cwd=here))
    refused(warm(name, cwd=here))


NUMBERS = ["", " ", "x", "nan", "inf", "-inf", "1e999", "0x10", "1,5", "1_0.x", "\x1b[31m", "½", "9" * 400 + "x", "5%"]
BEYOND = {
    "--alpha": ["0", "1", "-0.1", "2", "1e-320"],
    "--draws": ["0", "-1", "1.5", "1e3"],
    "--tolerance": ["-1", "-1e-9"],
    "--seed": ["-1", "1.5"],
    "--min-size": ["-1"],
    "--groups": ["1", "0", "-5", "2.5", "1000001"],
    "--size": ["0", "-1"],
    "--spread": ["0", "-1"],
    "--arms": ["0", "3", "-1", "1.5"],
    "--gap": ["0", "-1"],
    "--share": ["0", "1", "-1", "2"],
    "--target": ["0", "1", "2", "0.05"],
    "--runs": ["0", "19", "-1", "2.5"],
    "--threshold": [],
}


@pytest.mark.parametrize("option", BEYOND)
def test_numbers_that_are_none_or_out_of_range(warm: Warm, here: Path, option: str) -> None:
    words: tuple[str, ...] = PLAN
    if option in {"--alpha", "--draws", "--tolerance", "--seed", "--min-size"}:
        words = LIFT
    if option == "--threshold":
        words = (*AUC, "--metric", "accuracy")
    for value in (*(NUMBERS if option in {"--alpha", "--draws"} else NUMBERS[::3]), *BEYOND[option]):
        refused(warm(*but(words, option, value), cwd=here))


@pytest.mark.parametrize(
    "words",
    [
        # What a metric cannot use is not ignored because another can.
        (*AUC, "--metric", "brier", "--weight", "views"),
        (*RATE, "--metric", "equalized_odds", "--weight", "views"),
        (*RATE, "--metric", "mean_error"),
        (*AUC, "--threshold", "0.5"),
        (*RATE, "--threshold", "0.5"),
        (*RATE, "--metric", "accuracy"),
        (*LIFT, "--metric", "lift:revenue"),
        (*LIFT, "--joint"),
        (*LIFT, "--metric", "accuracy"),
        (*LIFT, "--metric", "mean:revenue"),
        (*RATE, "--metric", "lift"),
        (*RATE, "--metric", "ratio"),
        (*LIFT, "--by", "country"),
        (*LIFT, "--by", "age:0"),
        (*LIFT, "--by", "age:q1"),
        (*LIFT, "--by", "age:q201"),
        (*LIFT, "--by", "label:5"),
        (*LIFT, "--guarantee", "holdout:"),
        (*LIFT, "--guarantee", "holdout:0"),
        (*LIFT, "--guarantee", "holdout:nan"),
        (*LIFT, "--guarantee", "folds:1"),
        (*LIFT, "--guarantee", "folds:2.5"),
        (*LIFT, "--guarantee", "bonferroni:2"),
        (*LIFT, "--guarantee", "calibrated:2"),
        (*LIFT, "--guarantee", "Calibrated"),
        (*LIFT, "--guarantee", "folds", "--draws", "100"),
        (*LIFT, "--guarantee", "bonferroni", "--split-unit", "user_id"),
        (*LIFT, "--control", "B", "--treatment", "B"),
        (*LIFT, "--variant", "country"),
        ("experiment", "-", *LIFT[2:]),
        ("experiment", *LIFT[2:]),
        ("experiment", "shop.parquet", "shop.parquet", *LIFT[2:]),
        ("experiment", "shop.parquet", "./shop.parquet", *LIFT[2:]),
        ("experiment", "shop.parquet", "shop.csv", *LIFT[2:]),
        ("experiment", ".", *LIFT[2:]),
        ("experiment", "*.none", *LIFT[2:]),
        ("experiment", "[", *LIFT[2:]),
        ("estimates", "lifts.csv", "lifts.parquet", *BY),
        ("estimates", "lifts.csv"),
        ("estimates", "lifts.csv", *BY, "--by", "country"),
        ("estimates", "lifts.csv", *BY, "--guarantee", "holdout", "--draws", "9"),
        ("estimates", "lifts.csv", *BY, "--alpha"),
        ("estimates", "lifts.csv", *BY, "--alpha", "0.05", "--alpha"),
        ("estimates", "lifts.csv", *BY, "--fail-on-split=yes"),
        ("power", "lifts.csv"),
        ("power", "lifts.csv", "--by", "country"),
        ("power", "lifts.csv", "--by", "country", "--se", "sd", "--n", "users"),
        ("power", "lifts.csv", "--by", "country", "--se", "sd", "--spread", "1"),
        ("power", "lifts.csv", "--by", "country", "--n", "users"),
        ("power", "lifts.csv", "--by", "country", "--se", "sd", "--groups", "3"),
        (*PLAN, "--share", "0.5", "--only", "a"),
        ("demo", "extra"),
        ("demo", "--seed", "x"),
        ("demo", "--seed", "-1"),
        ("demo", "--json", "no/such/out.json"),
        ("demo", "--report", "out.txt"),
        ("monitr",),
        ("--nonsense",),
        ("--version=yes",),
    ],
    ids=lambda words: " ".join(words[-3:]),
)
def test_combinations_that_make_no_sense(warm: Warm, here: Path, words: tuple[str, ...]) -> None:
    refused(warm(*words, cwd=here))


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("fpr", "false_positive_rate"),
        ("FPR", "false_positive_rate"),
        ("tpr", "true_positive_rate"),
        ("recall", "true_positive_rate"),
        ("specificity", "true_negative_rate"),
        ("ppv", "precision"),
        ("roc_auc", "auc"),
        ("roc-auc-score", "auc"),
        ("demographic parity", "selection_rate"),
        ("mse", "mean_squared_error"),
        ("ece", "calibration_gap"),
        ("equalised_odds", "equalized_odds"),
    ],
)
def test_names_of_other_libraries_are_understood(warm: Warm, here: Path, name: str, metric: str) -> None:
    done = warm(*but(RATE, "--metric", name), cwd=here)
    refused(done)
    assert done.stderr.endswith(f"Did you mean {metric!r}?\n")


HEADER = b"country,lift,sd\n"
FILES = {
    "empty": b"",
    "blank lines": b"\n\n\n",
    "header only": HEADER,
    "short row": HEADER + b"DE,1\n",
    "long row": HEADER + b"DE,1,1,1\n",
    "open quote": HEADER + b'"DE,1,1\n',
    "latin-1": HEADER + b"\xd6sterreich,1,1\n",
    "utf-16": "country,lift,sd\nDE,1,1\n".encode("utf-16"),
    "nul bytes": HEADER + b"\x00\x00\x00\n",
    "binary": bytes(range(256)) * 50,
    "no numbers": HEADER + b"DE,high,low\n",
    "escape in a number": HEADER + b"DE,\x1b[31m,1\nFR,1,1\n",
    "decimal comma": HEADER.replace(b",", b";") + b"DE;1,5;1\nFR;1,5;1\n",
    "per cent": HEADER + b"DE,5%,1%\nFR,5%,1%\n",
    "nan": HEADER + b"DE,nan,1\nFR,1,1\n",
    "inf": HEADER + b"DE,inf,1\nFR,1,1\n",
    "no estimate": HEADER + b"DE,,1\nFR,1,1\n",
    "zero error": HEADER + b"DE,1,0\nFR,1,1\n",
    "negative error": HEADER + b"DE,1,-1\nFR,1,1\n",
    "group twice": HEADER + b"DE,1,1\nDE,2,1\n",
    "column twice": b"country,lift,lift,sd\nDE,1,1,1\n",
    "huge": HEADER + b"DE,1e308,1\nFR,-1e308,1\n",
    "tiny error": HEADER + b"DE,1,1e-320\nFR,1,1\n",
    "parquet by name": b"PAR1 and nothing else",
}


@pytest.mark.parametrize("kind", FILES)
def test_files_that_are_no_tables(warm: Warm, tmp_path: Path, kind: str) -> None:
    ending = "parquet" if "parquet" in kind else "csv"
    path = tmp_path / f"t.{ending}"
    path.write_bytes(FILES[kind])
    refused(warm("estimates", path, *BY))
    if kind not in {"group twice", "zero error", "negative error", "tiny error"}:
        refused(
            warm("experiment", path, "--by", "country", "--metric", "lift:lift", "--variant", "sd", "--control", "1")
        )


@pytest.mark.parametrize("name", [name for name in NAMES if name.strip() and "\udcff" not in name], ids=ascii)
def test_names_in_data_are_only_names(warm: Warm, tmp_path: Path, name: str) -> None:
    """Hostile names of groups and columns are shown, harmlessly, and the numbers are right."""
    quoted = '"' + name.replace('"', '""') + '"'
    path = tmp_path / "t.csv"
    path.write_text(f"{quoted},x,sd\n{quoted},0,1\nother,9,1\n", encoding="utf-8", newline="")
    done = warm("estimates", path, f"--by={name.strip()}", "--estimate", "x", "--se", "sd")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "2 clusters of 2 groups" in done.stdout
    steering = {"Cc", "Cs", "Zl", "Zp"}
    assert not steering & {unicodedata.category(c) for c in done.stdout.replace("\n", "")}
    assert "\u202e" not in done.stdout
    assert not re.search(r"\bnan\b", done.stdout)
