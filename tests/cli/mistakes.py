"""What newcomers get wrong first on the command line; what it answers is in tests/golden/mistakes.txt."""

# ruff: noqa: E501 - a table of mistakes reads better in long rows

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.test_mistakes import PERCENT, ROWS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Ended, Warm

MODEL = ("model", "rows.csv", "--by", "g", "--y-true", "t")
EXPERIMENT = ("experiment", "rows.csv", "--by", "g", "--control", "A")
# Commands with the code and parameter of their error.
MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "probabilities": ((*MODEL, "--metric", "accuracy", "--y-pred", "s"), "invalid data: y_pred"),
    "per cent signs": (("experiment", "percent.csv", *EXPERIMENT[2:], "--variant", "arm", "--metric", "difference:x"), "wrong type: value"),
    "no variant": ((*EXPERIMENT, "--metric", "lift:x"), "usage"),
    "false discovery rate": ((*MODEL, "--metric", "fpr", "--guarantee", "fdr"), "missing: metric"),
    "guarantee": ((*MODEL, "--metric", "accuracy", "--y-pred", "t", "--guarantee", "fdr"), "unknown: guarantee"),
    "lifts": ((*EXPERIMENT, "--variant", "arm", "--metric", "lift:z"), "no groups: by"),
    "a hole in a table": (("estimates", "table.csv", "--by", "g", "--estimate", "lift", "--se", "se"), "invalid data: estimate"),
    "half a success": (("aggregates", "table.csv", "--by", "g", "--metric", "binomial", "--n", "n", "--sum", "k"), "invalid data: sum"),
    "metric of Python": ((*MODEL, "--metric", "atkinson"), "unsupported: metric"),
    "metric of Python and of experiments": ((*EXPERIMENT, "--variant", "arm", "--metric", "atkinson:x"), "unsupported: metric"),
    "a misspelt metric": ((*EXPERIMENT, "--variant", "arm", "--metric", "lft:x"), "unknown: metric"),
    "a misspelt column": ((*EXPERIMENT, "--variant", "arn", "--metric", "lift:x"), "column not found: variant"),
    "a metric without its column": ((*EXPERIMENT, "--variant", "arm", "--metric", "lift"), "missing: metric"),
    "an arm that is not there": ((*EXPERIMENT[:-1], "C", "--variant", "arm", "--metric", "lift:x"), "not found: control"),
    "the false discovery rate of a model": ((*MODEL, "--metric", "fdr", "--y-pred", "t"), "unknown: metric"),
    "a metric of scikit-learn": ((*MODEL, "--metric", "mcc", "--y-pred", "t"), "unknown: metric"),
    "scores without a threshold": ((*MODEL, "--metric", "accuracy", "--score", "s"), "missing: metric"),
    "an option twice": (("estimates", "table.csv", "--by", "g", "--estimate", "k", "--se", "se", "--se", "n"), "duplicate: se"),
    "no such file": (("estimates", "tabel.csv", "--by", "g", "--estimate", "k", "--se", "se"), "file not found: file"),
}  # fmt: skip


def write_inputs(folder: Path) -> None:
    """The files that the commands read."""
    ROWS.to_csv(folder / "rows.csv", index=False)
    (folder / "table.csv").write_text("g,lift,se,k,n\na,,1,3,9\nb,2,1,2.5,9\n")
    PERCENT.to_csv(folder / "percent.csv", index=False)


def make_mistake(name: str, warm: Warm, folder: Path) -> Ended:
    """Run a command of the table."""
    return warm(*MISTAKES[name][0], cwd=folder)
