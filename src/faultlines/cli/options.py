"""The options of all commands: each declared once, with the heading of `--help` it stands under.

Options that go together are one frozen value. A command takes these values; `bound` shows Typer their fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from faultlines.errors import InputError
from faultlines.metrics.table import METRICS, of_family

DATA, METRIC, PLAN, GUARANTEE, GATE, OUTPUT = "Data", "Metric", "Plan", "Error control", "Gate", "Output"


# Whether a file can be read is found out by who reads it, with one message for all; Typer would ask of outputs too.


def _option(panel: str, words: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=words, metavar=metavar, rich_help_panel=panel, readable=False)


def _column(panel: str, words: str) -> Any:
    return _option(panel, words, metavar="COLUMN")


def _number(panel: str, words: str) -> Any:
    return _option(panel, words, metavar="NUMBER")


def _file(words: str) -> Any:
    return typer.Argument(help=words, metavar="FILE", rich_help_panel=DATA, show_default=False, readable=False)


# ---------------------------------------------------------------------------------------- data

_TABLE_BY = "Column that names the groups; several for intersections."
_FILES = "csv or parquet files, patterns of them, or a folder; or --sql."
Sql = Annotated[
    str | None,
    _option(
        DATA,
        "Instead of files, one SELECT over files, run by DuckDB in this process: \"select * from 'visits/*.parquet'\".",
        "--sql",
        metavar="QUERY",
    ),
]


class RowSource:
    """Where rows come from: files, or a query over files."""

    __slots__ = ()
    files: list[str] | None
    sql: str | None

    @property
    def inputs(self) -> list[str]:
        """The files, refused where there are none and no query, or both."""
        if self.sql is not None and self.files:
            remedy = "Leave the files out, and name them in the query."
            raise InputError.conflict("sql", "cannot be combined with files", remedy)
        if self.sql is None and not self.files:
            raise InputError.missing("files", "a file is missing", "Give files, or --sql.", form="sentence")
        return self.files or []

    def rows(self) -> Any:
        """The rows as the library takes them."""
        files = self.inputs
        if "-" in files:
            remedy = "Give files, or a table with one row per group to: faultlines estimates -."
            raise InputError.unsupported("files", "rows are not read from standard input", remedy, "-", form="sentence")
        if self.sql is None:
            return files
        from faultlines.engines.duckdb import query

        return query(self.sql)

    def table(self, whole: str = "a table with one row per group") -> Any:
        """One table as the library takes it: the path of a file, ``-`` for standard input, or the rows of a query."""
        files = self.inputs
        if self.sql is not None:
            return self.rows()
        if len(files) != 1:
            remedy = "Give one, or join them in --sql."
            raise InputError.unsupported("files", f"{whole} is one file", remedy, len(files), form="clause")
        return files[0]


_N = "Column of group sizes."


@dataclass(frozen=True, kw_only=True, slots=True)
class TableOptions(RowSource):
    """A table with one row per group."""

    files: Annotated[list[str] | None, _file("A csv or parquet file with one row per group; - for csv on stdin.")] = (
        None
    )
    sql: Sql = None
    by: Annotated[list[str], _column(DATA, _TABLE_BY)]
    estimate: Annotated[str, _column(DATA, "Column of estimates.")]
    se: Annotated[str, _column(DATA, "Column of standard errors.")]
    n: Annotated[str | None, _column(DATA, _N)] = None
    dof: Annotated[str | None, _column(DATA, "Column of degrees of freedom of the standard errors.")] = None
    min_size: Annotated[float | None, _number(DATA, "Exclude groups smaller than this (needs --n).")] = None
    percent: Annotated[bool, _option(DATA, "Estimates are lifts: print them in percent.", "--percent")] = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOptions(RowSource):
    """Rows of an experiment or a model, and the groups they make."""

    files: Annotated[list[str] | None, _file(_FILES)] = None
    sql: Sql = None
    by: Annotated[
        list[str],
        _column(DATA, "Attribute; several for intersections. age:5 cuts in steps of 5, age:q10 in ten equal groups."),
    ]
    min_size: Annotated[float | None, _number(DATA, "Rows a group needs in every arm. Default: 10; rates 5.")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedRows(RowSource):
    """Rows whose arms are counted, by group or all together."""

    files: Annotated[list[str] | None, _file(_FILES)] = None
    sql: Sql = None
    by: Annotated[
        list[str] | None, _column(DATA, "Attribute; several for intersections. Without it, all units: needs --shares.")
    ] = None
    min_size: Annotated[float | None, _number(DATA, "Units a group needs to be clustered. Default: 10.")] = None


# --------------------------------------------------------------------------------------- metric


Treatments = Annotated[
    list[str] | None,
    _option(
        METRIC,
        "Its value for the treatment, if there are more than two. Several, or '*' for all: clustered jointly.",
        metavar="VALUE",
    ),
]
Overlap = Annotated[
    str | None, _option(METRIC, "'covariance': allow units in several groups and account for it.", metavar="HOW")
]


Shares = Annotated[
    str | None,
    _option(
        METRIC,
        "Planned shares of the variants, as in A=50,B=30,C=20, for the test of sample ratios. Default: only "
        "differences between groups are tested.",
        metavar="SHARES",
    ),
]


Cap = Annotated[
    str | None, _option(METRIC, "Cut values above this, in all groups and arms: a number, or 99%.", metavar="CAP")
]
Aggregate = Annotated[
    str | None, _option(METRIC, "How rows of a unit are combined: sum, mean or any. Default: sum.", metavar="HOW")
]
Classes = Annotated[
    bool | None, _option(METRIC, "There may be more than two labels: all others count as 0.", "--classes")
]
RowUnit = Annotated[
    str | None, _column(METRIC, "Column of units, such as prompts, that have several rows: errors by unit.")
]
Variant = Annotated[str, _column(METRIC, "Column of variants.")]
Unit = Annotated[str | None, _column(METRIC, "Column of the randomized unit: units are counted, not rows.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmOptions:
    """How an experiment was made."""

    variant: Variant
    control: Annotated[str, _option(METRIC, "Its value for the control.", metavar="VALUE")]
    treatment: Treatments = None
    unit: Annotated[str | None, _column(METRIC, "Column of the randomized unit; its rows are summed.")] = None
    overlap: Overlap = None
    covariate: Annotated[str | None, _column(METRIC, "Column measured before the experiment, for CUPED.")] = None
    weight: Annotated[str | None, _column(METRIC, "Column of weights.")] = None
    cap: Cap = None
    aggregate: Aggregate = None
    shares: Shares = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Predictions:
    """What a model said, and what was true."""

    y_true: Annotated[str | None, _column(METRIC, "Column of true outcomes.")] = None
    y_pred: Annotated[str | None, _column(METRIC, "Column of predictions.")] = None
    score: Annotated[str | None, _column(METRIC, "Column of scores.")] = None
    threshold: Annotated[float | None, _number(METRIC, "A score at or above this predicts 1.")] = None
    positive: Annotated[
        str | None, _option(METRIC, "The label that counts as 1, if not 1 or true.", metavar="LABEL")
    ] = None
    classes: Classes = None
    weight: Annotated[str | None, _column(METRIC, "Column of weights.")] = None
    unit: RowUnit = None
    overlap: Overlap = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """What another model said about the same rows, if the change from it is to be measured."""

    baseline: Annotated[
        str | None, _column(METRIC, "Column of another model's predictions: measures the change to --y-pred.")
    ] = None
    baseline_score: Annotated[
        str | None, _column(METRIC, "The same for scores: the change from this column to --score.")
    ] = None

    @property
    def columns(self) -> dict[str, str]:
        """The columns by what they stand for: predictions and scores."""
        return {k: v for k, v in (("y_pred", self.baseline), ("score", self.baseline_score)) if v is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditOptions(RowSource):
    """Rows of a model, the features that make the groups, and what the model said."""

    files: Annotated[list[str] | None, _file(_FILES)] = None
    sql: Sql = None
    by: Annotated[
        list[str],
        _column(
            DATA,
            "Sensitive feature; several are compared alone and crossed. age:5 cuts in steps of 5, age:q10 in ten equal "
            "groups; a numeric one with more than 20 values is cut into five.",
        ),
    ]
    control: Annotated[
        list[str] | None, _column(DATA, "What groups must have in common to be compared: each value is a stratum.")
    ] = None
    min_size: Annotated[float | None, _number(DATA, "Rows a group needs. Default: 10; rates 5.")] = None
    intersections: Annotated[
        bool, _option(DATA, "Compare features alone and crossed in one analysis; or one by one.")
    ] = True
    y_true: Annotated[str | None, _column(METRIC, "Column of true outcomes.")] = None
    y_pred: Annotated[str | None, _column(METRIC, "Column of predictions.")] = None
    score: Annotated[str | None, _column(METRIC, "Or column of scores.")] = None
    threshold: Annotated[float | None, _number(METRIC, "A score at or above this predicts 1.")] = None
    positive: Annotated[
        str | None, _option(METRIC, "The label that counts as 1, if not 1, true or yes.", metavar="LABEL")
    ] = None
    weight: Annotated[str | None, _column(METRIC, "Column of weights.")] = None
    unit: RowUnit = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fresh(RowSource):
    """Fresh data for clusters that were found before, and how they are measured: as before, or as said here."""

    clusters: Annotated[
        Path,
        typer.Argument(
            help="The clusters: what --json wrote.", metavar="CLUSTERS", rich_help_panel=DATA, readable=False
        ),
    ]
    files: Annotated[list[str] | None, _file(f"New data: {_FILES}")] = None
    sql: Sql = None
    by: Annotated[list[str] | None, _column(DATA, "Attribute, as for experiment and model. Default: as before.")] = None
    estimate: Annotated[str | None, _column(DATA, "For a table with one row per group: column of estimates.")] = None
    se: Annotated[str | None, _column(DATA, "For such a table: column of standard errors.")] = None
    n: Annotated[str | None, _column(DATA, "For such a table: column of group sizes.")] = None
    dof: Annotated[str | None, _column(DATA, "For such a table: column of degrees of freedom.")] = None
    min_size: Annotated[float | None, _number(DATA, "Rows a group needs in every arm. Default: 10; rates 5.")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredOptions:
    """How new rows are measured, where that is not as before: options of experiments and of models."""

    metric: Annotated[
        str | None,
        _option(METRIC, "As for experiment or model. Default: as before. Of several, its name alone.", metavar="KIND"),
    ] = None
    variant: Annotated[str | None, _column(METRIC, "Column of variants.")] = None
    control: Annotated[str | None, _option(METRIC, "Its value for the control.", metavar="VALUE")] = None
    treatment: Treatments = None
    unit: Annotated[str | None, _column(METRIC, "Column of the randomized unit.")] = None
    overlap: Overlap = None
    covariate: Annotated[str | None, _column(METRIC, "Column measured before the experiment, for CUPED.")] = None
    shares: Shares = None
    y_true: Annotated[str | None, _column(METRIC, "Column of true outcomes.")] = None
    y_pred: Annotated[str | None, _column(METRIC, "Column of predictions.")] = None
    score: Annotated[str | None, _column(METRIC, "Column of scores.")] = None
    threshold: Annotated[float | None, _number(METRIC, "A score at or above this predicts 1.")] = None
    positive: Annotated[str | None, _option(METRIC, "The label that counts as 1.", metavar="LABEL")] = None
    classes: Classes = None
    weight: Annotated[str | None, _column(METRIC, "Column of weights.")] = None
    cap: Cap = None
    aggregate: Aggregate = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched(RowSource):
    """All data so far of what is monitored."""

    state: Annotated[
        Path,
        typer.Argument(
            help="State file of the monitor; created at the first look.",
            metavar="STATE",
            rich_help_panel=DATA,
            readable=False,
        ),
    ]
    files: Annotated[list[str] | None, _file(f"All data so far: {_FILES}")] = None
    sql: Sql = None
    by: Annotated[list[str], _column(DATA, "Attribute; several for intersections. age:5 cuts in steps of 5.")]
    estimate: Annotated[str | None, _column(DATA, "For a table with one row per group: column of estimates.")] = None
    se: Annotated[str | None, _column(DATA, "For such a table: column of standard errors.")] = None
    n: Annotated[str | None, _column(DATA, "For such a table: column of group sizes.")] = None
    dof: Annotated[str | None, _column(DATA, "For such a table: column of degrees of freedom.")] = None
    min_size: Annotated[float | None, _number(DATA, "Rows a group needs in every arm. Default: 10; rates 5.")] = None
    missing: Annotated[
        str,
        _option(
            DATA, "Groups of before that are missing: error, keep (their data are complete) or ignore.", metavar="HOW"
        ),
    ] = "error"
    new: Annotated[
        str, _option(DATA, "Groups that were not there before, or too small: add, ignore or error.", metavar="HOW")
    ] = "add"


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedMetric(MeasuredOptions):
    """How the rows are measured: options of experiments and of models."""

    metric: Annotated[str | None, _option(METRIC, "One, as for experiment or model.", metavar="KIND")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentOptions(RowSource):
    """Many experiments in one table or one set of rows."""

    files: Annotated[
        list[str] | None,
        _file("A csv or parquet file with one row per experiment and group; with --metric rows, or patterns of files."),
    ] = None
    sql: Sql = None
    experiment: Annotated[str, _column(DATA, "Column that names the experiment.")]
    by: Annotated[list[str], _column(DATA, "Attribute; several for intersections. Of rows, age:5 cuts in steps of 5.")]
    estimate: Annotated[str | None, _column(DATA, "For a table: column of estimates.")] = None
    se: Annotated[str | None, _column(DATA, "For a table: column of standard errors.")] = None
    n: Annotated[str | None, _column(DATA, "For a table or aggregates: column of group sizes.")] = None
    dof: Annotated[str | None, _column(DATA, "For a table: column of degrees of freedom.")] = None
    min_size: Annotated[
        float | None, _number(DATA, "Exclude groups smaller than this. Default of rows: 10; rates 5.")
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregates:
    """Columns of counts and moments, where a table has them instead of rows."""

    sum: Annotated[str | None, _column(DATA, "For aggregates: column of sums (of a rate: how many are yes).")] = None
    mean: Annotated[str | None, _column(DATA, "Or column of means.")] = None
    variance: Annotated[str | None, _column(DATA, "For aggregates: column of sample variances. Rates need none.")] = (
        None
    )
    sum_squares: Annotated[str | None, _column(DATA, "Or column of sums of squares.")] = None
    skewness: Annotated[str | None, _column(DATA, "For aggregates: column of skewnesses, with --kurtosis.")] = None
    kurtosis: Annotated[str | None, _column(DATA, "Column of kurtoses: 3 for normal values.")] = None
    denom_sum: Annotated[str | None, _column(DATA, "For aggregates of a ratio: column of sums of the denominator.")] = (
        None
    )
    denom_sum_squares: Annotated[str | None, _column(DATA, "Column of its sums of squares.")] = None
    denom_product: Annotated[str | None, _column(DATA, "Column of sums of its products with the value.")] = None
    covariate_sum: Annotated[str | None, _column(DATA, "For aggregates with CUPED: column of its sums.")] = None
    covariate_sum_squares: Annotated[str | None, _column(DATA, "Column of its sums of squares.")] = None
    covariate_product: Annotated[str | None, _column(DATA, "Column of sums of its products with the value.")] = None
    denom_covariate_product: Annotated[
        str | None, _column(DATA, "Of a ratio with a covariate: column of sums of products of both.")
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted(RowSource):
    """A table of counts and moments by group, or by group and arm."""

    files: Annotated[
        list[str] | None, _file("csv or parquet files with one row per group (and arm); several are pooled. Or --sql.")
    ] = None
    sql: Sql = None
    by: Annotated[list[str], _column(DATA, _TABLE_BY)]
    n: Annotated[str, _column(DATA, "Column of counts: users, trials; for poisson the exposure.")]
    min_size: Annotated[float | None, _number(DATA, "What a group needs in every arm. Default: 10; rates 5.")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedArms:
    """Who had what, where aggregates of two arms are compared."""

    variant: Annotated[str | None, _column(METRIC, "For difference and lift: column of variants.")] = None
    control: Annotated[str | None, _option(METRIC, "Its value for the control.", metavar="VALUE")] = None
    treatment: Treatments = None


AggregatedMetric = Annotated[
    str,
    _option(
        METRIC,
        "rate, mean, ratio, difference, lift, ratio_difference, ratio_lift, binomial or poisson. The last two are "
        "exact likelihood ratio tests: of successes --sum among trials --n, of events --sum in the exposure --n.",
        metavar="NAME",
    ),
]

_FORMS = [f"{name}:{'/'.join('xy'[: len(METRICS[name].columns)])}" for name in of_family("experiment")]
ExperimentMetrics = Annotated[
    list[str],
    _option(METRIC, f"{', '.join(_FORMS[:-1])} or {_FORMS[-1]}; several are corrected by Holm.", metavar="KIND:COLUMN"),
]
_MODEL_NAMES = f"All: {', '.join(of_family('model'))}."
ModelMetrics = Annotated[
    list[str],
    _option(
        METRIC,
        f"Such as accuracy, tpr, fpr, selection_rate or auc; several are corrected by Holm. {_MODEL_NAMES} Other usual "
        "names are known too.",
        metavar="NAME",
    ),
]
AuditMetrics = Annotated[
    list[str] | None,
    _option(
        METRIC,
        "Default: selection rate, true and false positive rate and accuracy; of scores without --threshold auc, "
        f"calibration gap and Brier score. {_MODEL_NAMES}",
        metavar="NAME",
    ),
]
PerArm = Annotated[bool, _option(METRIC, "Each of several treatments on its own (Holm).", "--per-arm")]
Joint = Annotated[bool, _option(METRIC, "Take all metrics together: similar means similar in every one.", "--joint")]

# ------------------------------------------------------------------------------------ guarantee

Seed = Annotated[int, _number(GUARANTEE, "Random seed.")]
Alpha = Annotated[float, _number(GUARANTEE, "Significance level: the accepted probability of a false positive.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """Significance level, error control and seed."""

    alpha: Alpha = 0.05
    guarantee: Annotated[
        str,
        _option(
            GUARANTEE,
            "calibrated, topmerge (calibrated without the scan for outlier groups), holdout or holdout:0.3, folds or "
            "folds:10, bonferroni (the paper's α/K²).",
            metavar="NAME",
        ),
    ] = "calibrated"
    splits: Annotated[
        int | None, _number(GUARANTEE, "For holdout: random splits, combined. Default: 25; 1 reproduces the paper.")
    ] = None
    draws: Annotated[
        int | None,
        _number(
            GUARANTEE,
            "Simulated null draws. Default: 1,000 (calibrated) or 10,000 (topmerge); fewer for many groups.",
        ),
    ] = None
    tolerance: Annotated[
        float, _number(GUARANTEE, "Effects at most this far apart count as similar, in units of the metric.")
    ] = 0.0
    seed: Seed = 0


Correction = Annotated[
    str,
    _option(
        GUARANTEE,
        "holm: probability of any false positive in all experiments; bh: share of false positives among the findings.",
        metavar="NAME",
    ),
]
Refine = Annotated[bool, _option(GUARANTEE, "Move border groups to the cluster of nearest estimate.")]
Margins = Annotated[
    bool,
    _option(
        GUARANTEE,
        "With several --by: test single attributes and combinations of them, and report clusters along the fewest "
        "that are enough; or compare the combinations of all alone.",
    ),
]
SplitUnit = Annotated[
    str | None, _column(GUARANTEE, "For holdout and folds: column whose values stay together. Default: --unit, if any.")
]

SelfCheckRuns = Annotated[
    int | None,
    _option(
        GUARANTEE,
        "Make rows in which nothing differs N times (variants shuffled, or rows drawn anew within their groups) and "
        "show how often a difference is reported: at most α, if all is well.",
        "--self-check",
        metavar="N",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfCheckOptions:
    """Whether the false positive rate is measured on the rows."""

    self_check: SelfCheckRuns = None
    self_check_groups: Annotated[
        bool, _option(GUARANTEE, "For --self-check: shuffle the groups.", "--self-check-groups")
    ] = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Monitoring:
    """How α is spent over looks; kept in the state, so that later looks need not say it again."""

    looks: Annotated[int | None, _number(GUARANTEE, "Planned number of looks.")] = None
    information: Annotated[
        float | None,
        _number(GUARANTEE, "Or users in all groups at the end (without sizes: the sum of 1/se²). Default: no end."),
    ] = None
    spending: Annotated[
        str | None,
        _option(
            GUARANTEE, "How α is spent: reserve (default), obrien-fleming, pocock or haybittle-peto.", metavar="NAME"
        ),
    ] = None
    dependence: Annotated[
        str | None,
        _option(
            GUARANTEE,
            "How new data relate to earlier data: returning (default; users may come back), independent, any.",
            metavar="NAME",
        ),
    ] = None
    alpha: Annotated[
        float | None,
        _number(GUARANTEE, "Significance level over all looks together. Default: 0.05."),
    ] = None
    draws: Annotated[
        int | None, _number(GUARANTEE, "Simulated null paths. Default: 10,000; fewer for many groups.")
    ] = None
    seed: Annotated[int | None, _number(GUARANTEE, "Random seed. Default: 0.")] = None
    margins: Annotated[
        bool | None,
        _option(GUARANTEE, "With several --by: test single attributes too (default), or only combinations."),
    ] = None
    final: Annotated[
        bool, _option(GUARANTEE, "This look is the last, sooner than planned: all of α is spent.", "--final")
    ] = False


# ------------------------------------------------------------------------------ gate and output

FailOnClaim = Annotated[
    bool, _option(GATE, "Exit 1 once a difference is reported, at this look or before.", "--fail-on-split")
]


@dataclass(frozen=True, kw_only=True, slots=True)
class LookGates:
    """Which findings of a look end with an exit code."""

    fail_on_split: FailOnClaim = False
    fail_on: Annotated[
        str | None,
        _option(
            GATE,
            "harm: exit 1 when the interval of some group or cluster lies wholly on the harmful side of zero.",
            "--fail-on",
            metavar="harm",
        ),
    ] = None
    adverse: Annotated[
        str,
        _option(
            GATE,
            "For --fail-on harm: which direction is harmful, low or high. Default: that of the metric, if it has one.",
            metavar="auto|low|high",
        ),
    ] = "auto"
    mismatch: Mismatch = "inconclusive"


FailUnlessConfirmed = Annotated[
    bool,
    _option(
        GATE,
        "Exit 1 when the clusters are not confirmed; exit 3 when new data are too few, lack many values or have a "
        "sample ratio mismatch.",
        "--fail-unless-confirmed",
    ),
]
RatioAlpha = Annotated[
    float, _number(GUARANTEE, "Significance level: smaller than for effects, because sample ratios are tested often.")
]
FailOnMismatch = Annotated[
    bool,
    _option(
        GATE, "Exit 1 for a sample ratio mismatch; exit 3 when there are too few units to test.", "--fail-on-mismatch"
    ),
]
FailOnSplit = Annotated[
    bool,
    _option(
        GATE,
        "Exit 1 when clusters differ. Exit 3 when groups were excluded, many rows lack a value or an attribute, "
        "arms have a sample ratio mismatch, or only one group is left.",
        "--fail-on-split",
    ),
]


Missing = Annotated[
    str,
    _option(
        GATE,
        "Rows that lack a value. bounds: nothing passes that they could overturn (exit 3). ignore: they are taken "
        "to be like the others.",
        metavar="bounds|ignore",
    ),
]


Mismatch = Annotated[
    str,
    _option(
        GATE,
        "A sample ratio mismatch. inconclusive: nothing passes beside one (exit 3). ignore: gates go by effects alone.",
        metavar="inconclusive|ignore",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Certify:
    """What is certified."""

    certify: Annotated[
        float | None,
        _option(
            GATE,
            "Certify that no group is farther than this from the overall, in units of the metric. Exit 0 if so, 1 when "
            "some group is, 3 when neither can be shown.",
            "--certify",
            metavar="GAP",
        ),
    ] = None
    reference: Annotated[
        str | None,
        _option(
            GATE,
            "For --certify: compare with this group; 'highest' or 'lowest': with the best group, whichever it is; "
            "'all pairs': each with each; a number: with that value. Default: the overall; the highest with --ratio; "
            "zero with --baseline.",
            metavar="LABEL",
        ),
    ] = None
    certify_margins: Annotated[
        bool,
        _option(
            GATE,
            "For --certify: the levels of each attribute and of their combinations too, in one certificate.",
            "--certify-margins",
        ),
    ] = False
    ratio: Annotated[
        bool,
        _option(
            GATE,
            "For --certify: ratios to the highest group instead of differences; --certify 0.8 is the four-fifths rule.",
            "--ratio",
        ),
    ] = False
    adverse: Annotated[
        str,
        _option(
            GATE,
            "For --certify and --fail-on harm: which direction is harmful: low, high, both. "
            "Default: that of the metric, and both where it has none.",
            metavar="auto|low|high|both",
        ),
    ] = "auto"
    fail_on: Annotated[
        str | None,
        _option(
            GATE,
            "harm: exit 1 when some group's own effect is shown to be harmful, whatever the others gain; exit 0 when "
            "none loses more than --certify GAP (0 by default); exit 3 when the data show neither.",
            "--fail-on",
            metavar="harm",
        ),
    ] = None
    missing: Missing = "bounds"
    unknown: Annotated[
        str | None,
        _option(
            GATE,
            "For --certify: rows with a missing attribute may belong to any group (bounds), are a group of their own "
            "(category) or are excluded (exclude). Default: bounds for rates, else category.",
            metavar="HOW",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Impact(RowSource):
    """Which ratios are wanted, of what."""

    files: Annotated[list[str] | None, _file(f"One row for each applicant: {_FILES}")] = None
    sql: Sql = None
    by: Annotated[list[str], _column(DATA, "Attribute; several for a table of each and one of their crossing.")]
    selected: Annotated[str | None, _column(DATA, "Column of outcomes: who was selected.")] = None
    score: Annotated[
        str | None, _column(DATA, "Column of scores, instead of --selected: the share above the median of all.")
    ] = None
    positive: Annotated[
        str | None, _option(DATA, "The label that counts as selected, if not 1 or true.", metavar="LABEL")
    ] = None
    least: Annotated[float, _number(GUARANTEE, "The ratio that categories are compared with.")] = 0.8
    min_share: Annotated[
        float, _number(DATA, "Categories with a smaller share of all rows are shown, but not compared.")
    ] = 0.02
    unknown: Annotated[
        str,
        _option(
            DATA,
            "Applicants with a missing attribute are counted apart and may belong to any category (bounds), are counted"
            " apart and change nothing (exclude), or are a category of their own (category).",
            metavar="HOW",
        ),
    ] = "bounds"
    unknown_level: Annotated[
        list[str] | None,
        _option(
            DATA,
            "Name of a level that says that the attribute is not known. Default: unknown, n/a, ?, prefer not to say "
            "and the like.",
            metavar="LABEL",
        ),
    ] = None
    missing: Annotated[
        str,
        _option(
            DATA,
            "Applicants with a missing outcome could be anything (bounds) or are taken to be like the others (ignore).",
            metavar="bounds|ignore",
        ),
    ] = "bounds"
    alpha: Annotated[float, _number(GUARANTEE, "One less the confidence of intervals and verdicts.")] = 0.05
    seed: Annotated[int, _number(GUARANTEE, "Seed of the draws behind the intervals.")] = 0
    fail_below: Annotated[
        bool,
        _option(
            GATE,
            "Exit 1 when a category is below --least times the highest; exit 3 when the data cannot show it.",
            "--fail-below",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactOutput:
    """Where impact ratios go."""

    json: Json = None
    csv: Annotated[
        Path | None, _option(OUTPUT, "Write one row for each category; - for stdout.", "--csv", metavar="FILE")
    ] = None
    markdown: Annotated[Path | None, _option(OUTPUT, "Write the tables as Markdown.", "--markdown", metavar="FILE")] = (
        None
    )
    report: Report = None
    title: Title = None


Json = Annotated[
    Path | None, _option(OUTPUT, "Write the whole result to this file; - for stdout.", "--json", metavar="FILE")
]
Csv = Annotated[
    Path | None,
    _option(OUTPUT, "Write effect and cluster of every experiment and group; - for stdout.", "--csv", metavar="FILE"),
]
GroupsCsv = Annotated[
    Path | None,
    _option(OUTPUT, "Write every metric in every group; - for stdout.", "--csv", metavar="FILE"),
]
Report = Annotated[
    Path | None, _option(OUTPUT, "Write a page to hand over: one HTML file, no network.", "--report", metavar="FILE")
]
Title = Annotated[str | None, _option(OUTPUT, "The title of the page.", metavar="TEXT")]
Plot = Annotated[
    Path | None,
    _option(
        OUTPUT, "Draw the clusters: .svg, .png, .pdf or .html; several metrics are numbered.", "--plot", metavar="FILE"
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What to write, beside the text on stdout."""

    json: Json = None
    report: Report = None
    title: Title = None
    plot: Plot = None


# ----------------------------------------------------------------------------------------- plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned(RowSource):
    """Groups to plan with: of a table, of the rows of an experiment or a model, or a number of groups of one size."""

    files: Annotated[
        list[str] | None,
        _file("A csv or parquet file with one row per group; with --metric, rows; or give --groups and --size."),
    ] = None
    sql: Sql = None
    by: Annotated[list[str] | None, _column(DATA, _TABLE_BY)] = None
    se: Annotated[str | None, _column(DATA, "Column of standard errors; or --n with --spread.")] = None
    n: Annotated[str | None, _column(DATA, _N)] = None
    groups: Annotated[int | None, _number(DATA, "Without a file: how many groups.")] = None
    size: Annotated[float | None, _number(DATA, "Without a file: units in each of them.")] = None
    spread: Annotated[float | None, _number(DATA, "Standard deviation of the metric between units.")] = None
    baseline: Annotated[float | None, _number(DATA, "Or, for a rate, the rate that is expected, such as 0.05.")] = None
    arms: Annotated[int, _number(DATA, "2: sizes are shared by two arms; 1: a plain mean.")] = 2
    shares: Annotated[
        str | None, _option(DATA, "Shares of two arms, as in A=90,B=10. Default: one half each.", metavar="SHARES")
    ] = None
    per_day: Annotated[float | None, _number(DATA, "Units that come in on a day: says how many days it takes.")] = None
    min_size: Annotated[float | None, _number(DATA, "For rows: how many a group needs in every arm.")] = None
    metric: Annotated[
        str | None,
        _option(METRIC, "For rows: a metric of an experiment (lift:x) or of a model (auc).", metavar="NAME"),
    ] = None
    variant: Annotated[str | None, _column(METRIC, "Of an experiment: column of variants.")] = None
    control: Annotated[str | None, _option(METRIC, "Its value for the control.", metavar="VALUE")] = None
    treatment: Treatments = None
    covariate: Annotated[str | None, _column(METRIC, "Column measured before the experiment, for CUPED.")] = None
    cap: Cap = None
    aggregate: Aggregate = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The difference that is asked about."""

    gap: Annotated[
        float | None,
        _number(PLAN, "The difference to be detected, in units of the metric; below zero: for groups that are lower."),
    ] = None
    share: Annotated[float | None, _number(PLAN, "Share of the groups that differ, any of them. Default: 0.5.")] = None
    only: Annotated[list[str] | None, _option(PLAN, "Or just these groups; with --along, levels.", metavar="GROUP")] = (
        None
    )
    along: Annotated[
        str | None, _column(PLAN, "Of several --by, the attribute along which groups differ: all groups of a level do.")
    ] = None
    target: Annotated[float, _number(PLAN, "Probability with which the smallest gap is detected.")] = 0.8
    runs: Annotated[int, _number(PLAN, "Simulated experiments behind each figure.")] = 1000


# --------------------------------------------------------------------------------------- to Typer


WHOLE_HELP = "faultlines.help_all"  # where a context keeps whether the whole help was asked for


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        context.meta[WHOLE_HELP] = True
        typer.echo(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all",
        callback=_show_all,
        is_eager=True,
        help="Show every option, and the exit codes, and exit.",
    ),
]


def bound(function: Callable[..., None]) -> Callable[..., None]:
    """A command that takes values of options, as Typer wants it: with one parameter per option."""
    hints = get_type_hints(function, include_extras=True)
    values: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in values:
            parameters += _parameters(values[name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))
    whole_help = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=HelpAll)
    parameters.append(whole_help)

    @wraps(function)
    def flat(help_all: bool = False, **arguments: Any) -> None:
        options = {name: kind(**{f.name: arguments.pop(f.name) for f in fields(kind)}) for name, kind in values.items()}
        function(**options, **arguments)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return flat


def is_argument(annotation: Any) -> bool:
    """Whether a parameter of a command is given by its place, and not as an option."""
    return any(isinstance(item, type(typer.Argument())) for item in getattr(annotation, "__metadata__", ()))


def placeholder(annotation: Any) -> str:
    """What stands for a value of an option in help and messages: ``COLUMN``."""
    named = [getattr(item, "metavar", None) for item in getattr(annotation, "__metadata__", ())]
    return next(filter(None, named), "VALUE")


@contextmanager
def name_options(options: Mapping[str, str]) -> Iterator[None]:
    """Let errors about parameters of the library name the options that were given for them."""
    try:
        yield
    except InputError as error:
        raise error.renamed(options) from error


def _parameters(kind: Any) -> list[inspect.Parameter]:
    """The fields of a value of options as parameters."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]
