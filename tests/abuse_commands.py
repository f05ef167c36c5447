"""Bad command lines for `test_abuse`: words, and the exit code that is right."""

# ruff: noqa: E501 - a table of bad inputs reads better in long rows

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

ESTIMATES = ["estimates", "lifts.csv", "--by", "g", "--estimate", "e", "--se", "s"]
EXPERIMENT = ["experiment", "good.csv", "--by", "g", "--variant", "arm", "--control", "A", "--metric", "lift:x"]
MODEL = ["model", "good.csv", "--by", "g", "--metric", "accuracy", "--y-true", "t", "--y-pred", "p"]
POWER = ["power", "--groups", "4", "--size", "100", "--spread", "1", "--runs", "20", "--guarantee", "bonferroni"]
PLANNED = ["power", "lifts.csv", "--by", "g", "--se", "s", "--runs", "20", "--guarantee", "bonferroni"]
MONITOR = [
    "monitor",
    "new-state.json",
    "lifts.csv",
    "--by",
    "g",
    "--estimate",
    "e",
    "--se",
    "s",
    "--n",
    "n",
    "--draws",
    "200",
]
CSVS = "folder.csv empty.csv header.csv ragged-long.csv utf16.csv half.csv.gz not-gz.csv.gz damaged.parquet gone.csv".split()


class Command(NamedTuple):
    """Words of a command, and how it has to end: 2 as a rule, 3 where a gate cannot tell, 0 where all is well."""

    words: list[str]
    code: int = 2

    @property
    def name(self) -> str:
        """What the test is called."""
        return " ".join(self.words).encode("unicode_escape").decode()[:120]


def _with(words: list[str], option: str, value: str) -> list[str]:
    """The same words with another value of an option."""
    arguments = list(words)
    if option in arguments:
        arguments[arguments.index(option) + 1] = value
        return arguments
    return [*arguments, option, value]


_EVERYWHERE = {
    "--alpha": ["0", "1", "2", "-1", "nan", "inf", "x", "", "1e-400", "0,05", "1e400", "0x1", "five"],
    "--guarantee": [
        "", "magic", "holdout:", "holdout:0", "holdout:1", "holdout:nan", "holdout:x", "holdout:1e-400", "folds:1", "folds:x",
        "folds:-3", "folds:2.5", "folds:99999999999999999999", "calibrated:5", "bonferroni:2", "Calibrated", "topmerge:1",
    ],
    "--tolerance": ["-1", "nan", "inf", "x", "1e400", ""],
    "--seed": ["-1", "x", "1.5", "nan", ""],
    "--json": ["/", "/no/x.json", "", "x" * 300, "lifts.csv/x.json"],
}  # fmt: skip
_ROWS = {
    "--min-size": ["-1", "nan", "x", "1e400", "500", ""],
    "--weight": ["", "zz", "g"],
    "--by": ["", "zz", "g:5", "x:0", "x:0.0", "x:q1", "x:q0", "x:q999", "x:q99999999999999999999", "*", "^.*$", "\x1b[31m"],
    "--report": ["/", "/no/x.html", "", "x.gif", "x" * 300 + ".html", "good.csv/b.html", "good.csv"],
    "--plot": ["/", "/no/x.svg", "", "x.gif", "x" * 300 + ".svg", "good.csv/b.svg", "good.csv"],
    "--split-unit": ["u", "zz", ""],
    "--draws": ["0", "-1", "x", "1.5", "nan", ""],
}  # fmt: skip
# The other commands take them from the same place.
_SHARED = {"--alpha": ["2"], "--guarantee": ["magic"], "--tolerance": ["-1"], "--seed": ["-1"], "--json": ["/"]}
_OF = {
    "estimates": {
        "--by": ["", "zz", "*", "^.*$", "g g", "G", "\x1b[31m"], "--estimate": ["", "zz", "g", "s\n"], "--se": ["", "zz", "g", "e"],
        "--n": ["", "zz", "g", "e"], "--dof": ["", "zz", "g", "e"], "--min-size": ["-1", "nan", "x", "1e400", "5"],
        "--draws": ["0", "-1", "x", "1.5"], "--json": ["lifts.csv", "./lifts.csv"],
    },
    "experiment": {
        "--variant": ["", "zz", "g", "x"], "--control": ["", "zz"], "--treatment": ["A", "", "zz"], "--unit": ["", "zz"],
        "--covariate": ["", "zz", "g"], "--json": ["good.csv"],
        "--metric": [
            "", "lift", "lift:", "lift:zz", "lift:g", "zz:x", "lift:x/y", "ratio_lift:x", "ratio_lift:x/", "ratio_lift:/",
            "ratio_lift:x/y/w", "mean:x", "accuracy", "lift:x:y", "LOFT:x", ":x", "\x1b[31m:x",
        ],
    },
    "model": {
        "--metric": ["", "zz", "lift:x", "auc", "log_loss", "tp"], "--y-true": ["", "zz", "s", "g", "x"],
        "--y-pred": ["", "zz", "g", "s"], "--threshold": ["0.5", "nan", "x", "inf"], "--positive": ["", "zz", "yes"],
    },
    "power": {
        "--groups": ["0", "1", "-1", "x", "1.5", "nan", "99999999999"], "--size": ["0", "-1", "nan", "inf", "x", "1e400"],
        "--spread": ["0", "-1", "nan", "inf", "x"], "--arms": ["0", "3", "x"], "--gap": ["0", "nan", "inf", "x"],
        "--share": ["0", "1", "nan", "-1", "x"], "--only": ["zz", ""], "--target": ["0", "1", "nan", "0.01", "x"],
        "--runs": ["0", "-1", "x", "19", "1.5"], "--by": ["g"], "--se": ["s"], "--n": ["n"],
    },
}  # fmt: skip


def commands() -> Iterator[Command]:
    """All bad command lines."""
    for words in (ESTIMATES, EXPERIMENT, MODEL, POWER):
        options = {"experiment": _SHARED | _ROWS, "estimates": _EVERYWHERE}.get(words[0], _SHARED)
        for wrong in (options, _OF[words[0]]):
            for option, values in wrong.items():
                for value in values:
                    yield Command(_with(words, option, value))
        for more in (["--zz"], ["--alpha"], ["--alpha", "0.1", "--alpha"], ["extra"][: words[0] != "experiment"]):
            yield Command([*words, *more] if more else [words[0]])
    for option, values in {
        "--by": ["", "zz"],
        "--se": ["", "zz", "g", "e"],
        "--n": ["n"],
        "--spread": ["1"],
        "--groups": ["3"],
        "--size": ["5"],
        "--only": ["zz"],
    }.items():
        for value in values:
            yield Command(_with(PLANNED, option, value))
    yield Command([*PLANNED, "--only", "a", "--share", "0.5"])
    yield Command([*PLANNED, "--only", "a", "--only", "b", "--only", "c"])
    yield from _of_monitor()
    yield from _of_many()
    yield from _together()
    yield from _of_files()


def _of_monitor() -> Iterator[Command]:
    """No state is left behind by any of them."""
    wrong = {
        "--looks": ["0", "-1", "x", "1.5", "nan", ""], "--information": ["0", "-1", "nan", "inf", "x"],
        "--spending": ["", "pocok", "custom"], "--dependence": ["", "none", "Any"], "--alpha": ["0", "1", "nan", "x"],
        "--draws": ["0", "-1", "x", "5", "99999999999"], "--seed": ["-1", "x"], "--missing": ["", "drop"], "--new": ["", "drop"],
        "--by": ["", "zz"], "--estimate": ["", "zz", "g"], "--se": ["zz"], "--n": ["zz", "e"], "--dof": ["zz"], "--min-size": ["5"],
        "--json": ["/", "lifts.csv", "new-state.json"], "--report": ["/", "x.gif", "lifts.csv"], "--metric": ["lift:x"],
        "--variant": ["arm"],
    }  # fmt: skip
    for option, values in wrong.items():
        for value in values:
            yield Command(_with(MONITOR, option, value))
    for state in ("", "/", "no/state.json", "lifts.csv", "good.csv", "empty.csv", "folder.csv", "x" * 300):
        yield Command(["monitor", state, *MONITOR[2:]])
    yield Command([*MONITOR, "--looks", "3", "--information", "5"])
    yield Command(["monitor", "new-state.json", "good.csv", "--by", "g"])
    yield Command(["monitor", "new-state.json", "good.csv", "--by", "x:q3", *EXPERIMENT[4:]])
    yield Command(["monitor", "new-state.json", "-", *EXPERIMENT[2:]])
    yield Command(
        ["monitor", "new-state.json", "good.csv", "--by", "g", "--metric", "auc", "--y-true", "t", "--variant", "arm"]
    )


def _of_many() -> Iterator[Command]:
    """Many experiments, and counts."""
    table = "many lifts.csv --experiment g --by n --estimate e --se s".split()
    rows = "many good.csv --experiment g --by t --metric mean:x --variant arm --control A".split()
    counts = "aggregates lifts.csv --by g --metric poisson --n n --sum n".split()
    wrong = {
        "--experiment": ["", "zz", "n"], "--by": ["", "zz"], "--estimate": ["", "zz", "g"], "--se": ["", "zz", "g", "e"],
        "--n": ["", "zz", "g"], "--dof": ["zz", "g"], "--min-size": ["-1", "nan", "5", "x"], "--correction": ["", "Holm", "x"],
        "--sum": ["n"], "--variance": ["s"], "--metric": ["lift:e"], "--unit": ["g"], "--y-true": ["t"], "--alpha": ["0", "x"],
        "--csv": ["/", "lifts.csv", "", "x" * 300], "--json": ["/", "lifts.csv"], "--report": ["/", "x.gif"],
        "--guarantee": ["magic"], "--draws": ["0"], "--tolerance": ["-1"], "--seed": ["-1"],
    }  # fmt: skip
    for option, values in wrong.items():
        for value in values:
            yield Command(_with(table, option, value))
    for file in CSVS:
        yield Command(["many", file, *table[2:]])
        yield Command(["aggregates", file, *counts[2:]])
    yield Command([*table, "--csv", "o.csv", "--json", "./o.csv"])
    yield Command(["many", "lifts.csv", *table])
    for value in ("", "zz", "lift", "lift:zz", "auc", "rate", "mean:x"):
        yield Command(_with(rows, "--metric", value))
    wrong = {
        "--by": ["", "zz"], "--metric": ["", "zz", "lift", "Rate", "binomial:n"], "--n": ["", "zz", "g", "e"],
        "--sum": ["", "zz", "g", "e"], "--mean": ["e"], "--variance": ["s"], "--variant": ["g"], "--treatment": ["a"],
        "--certify": ["-1", "x"], "--min-size": ["-1", "x"], "--json": ["lifts.csv"], "--plot": ["x.gif"],
    }  # fmt: skip
    for option, values in wrong.items():
        for value in values:
            yield Command(_with(counts, option, value))


def _together() -> Iterator[Command]:
    """What does not go together, and what has no good answer."""
    yield Command([*ESTIMATES, "--by", "g"])
    yield Command([*ESTIMATES, "--min-size", "5"])
    yield Command([*ESTIMATES, "--n", "n", "--min-size", "500"])
    yield Command([*ESTIMATES, "--n", "n", "--min-size", "500", "--fail-on-split"], 3)
    yield Command([*ESTIMATES, "--fail-on-split"], 1)
    yield Command([*ESTIMATES, "--json", "o.html", "--report", "o.html"])
    yield Command([*ESTIMATES, "--json", "o.svg", "--plot", "./o.svg"])
    yield Command([*EXPERIMENT, "--metric", "lift:x"])
    yield Command([*EXPERIMENT, "--joint"])
    for value in ("-1", "nan", "inf", "x", "", "1e400"):
        yield Command([*ESTIMATES, "--certify", value])
    for wrong in ("--ratio", "--reference zz", "--adverse worse", "--reference a --ratio --certify"):
        yield Command([*ESTIMATES, "--certify", "0.5", *wrong.split()])
    for alone in ("--ratio", "--reference a", "--adverse low"):
        yield Command([*MODEL, *alone.split()])
    yield Command([*ESTIMATES, "--certify", "1e9"], 0)
    yield Command([*ESTIMATES, "--certify", "0"], 1)
    yield Command([*EXPERIMENT, "--min-size", "41", "--certify", "1"], 3)
    yield Command([*EXPERIMENT, "--certify", "0.8", "--ratio"])
    rows = ["power", "good.csv", "--by", "g", "--runs", "20", "--guarantee", "bonferroni", "--metric"]
    for wrong in ("zz", "lift:x", "accuracy", "accuracy --y-true t", "accuracy --y-true t --y-pred p --se s"):
        yield Command([*rows, *wrong.split()])
    yield Command([*rows, "accuracy", "--y-true", "t", "--y-pred", "p"], 0)
    yield Command([*rows, "lift:x", "--variant", "arm", "--control", "A", "--y-true", "t"])
    yield Command([*EXPERIMENT, "--self-check-groups"])
    yield Command([*EXPERIMENT, "--self-check", "0"])
    yield Command([*EXPERIMENT, "--self-check", "many"])
    yield Command([*EXPERIMENT, "--min-size", "500", "--fail-on-split"], 3)
    yield Command([*EXPERIMENT, "--min-size", "41", "--fail-on-split"], 3)
    yield Command([*EXPERIMENT, "--fail-on-split"], 0)
    yield Command([*_with(EXPERIMENT, "--by", "one"), "--fail-on-split"])
    yield Command(_with(_with(EXPERIMENT, "--guarantee", "holdout"), "--split-unit", "zz"))
    yield Command([*MODEL, "--metric", "accuracy"])
    yield Command(MODEL[:-2])
    yield Command([*MODEL[:-2], "--score", "s"])
    yield Command([*MODEL, "--metric", "auc", "--score", "s", "--classes"])
    yield Command(["model", "good.csv", "--by", "g", "--metric", "auc", "--y-true", "t", "--score", "g"])
    yield Command(["demo", "--seed", "-1"])
    yield Command(["demo", "--json", "/"])
    yield Command(["demo", "--report", "/"])
    for words in (
        ["zz"],
        [""],
        ["-"],
        ["--zz"],
        ["estimates", "--zz"],
        ["--version", "zz"][1:],
        ["\x1b[31m"],
        ["\u202e"],
    ):
        yield Command(words)


def _of_files() -> Iterator[Command]:
    for first in ([], ["good.csv"]):
        for name in CSVS:
            if not first or name != "header.csv":  # a file without rows adds none
                yield Command(["experiment", *first, name, *EXPERIMENT[2:]])
    for name in CSVS:
        yield Command(["estimates", name, *ESTIMATES[2:]])
    for names in (
        ["good.csv", "good.csv"], ["good.csv", "link.csv"], ["good.csv", "hard.csv"], ["good.csv", "./good.csv"], ["goo*.csv", "good.csv"],
        ["good.csv", "good.parquet"], ["zz*.csv"], ["-"], ["x" * 300 + ".csv"], ["x/" * 3000 + ".csv"], [""], ["."], ["good.txt"], ["other.xlsx"],
        ["good.csv", "lifts.csv"], ["good.parquet", "no-x.parquet"], ["good.parquet", "other-columns.parquet"],
    ):  # fmt: skip
        yield Command(["experiment", *names, *EXPERIMENT[2:]])
