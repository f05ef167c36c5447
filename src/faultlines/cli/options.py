"""The options of all commands: each declared once, with the heading of `--help` it stands under.

Options that go together are one frozen value. A command takes these values; `bound` shows Typer their fields.
"""

# ruff: noqa: RUF009 - what is called for a default makes a field of its own

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING as NEEDED
from dataclasses import dataclass, field, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from faultlines.errors import InputError
from faultlines.metrics.table import METRICS, of_family

DATA, METRIC, PLAN, GUARANTEE, GATE, OUTPUT = "Data", "Metric", "Plan", "Error control", "Gate", "Output"


# Whether a file can be read is found out by who reads it, with one message for all; Typer would ask of outputs too.


def _info(panel: str, words: str, *names: str, metavar: str | None = None) -> Any:
    """What `--help` says of an option."""
    return typer.Option(*names, help=words, metavar=metavar, rich_help_panel=panel, readable=False)


def _option(panel: str, words: str, *names: str, metavar: str | None = None, default: Any = None) -> Any:
    """A field that is an option."""
    return field(default=default, metadata={"info": _info(panel, words, *names, metavar=metavar)})


def _column(panel: str, words: str, default: Any = None) -> Any:
    return _option(panel, words, metavar="COLUMN", default=default)


def _number(panel: str, words: str, default: float | None = None) -> Any:
    return _option(panel, words, metavar="NUMBER", default=default)


def _file(words: str, metavar: str = "FILE", default: Any = None) -> Any:
    info = typer.Argument(help=words, metavar=metavar, rich_help_panel=DATA, show_default=False, readable=False)
    return field(default=default, metadata={"info": info})


# ---------------------------------------------------------------------------------------- data

_TABLE_BY = "Column that names the groups; several for intersections."
_FILES = "csv or parquet files, patterns of them, or a folder; or --sql."


@dataclass(frozen=True, kw_only=True, slots=True)
class RowSource:
    """Where rows come from: files, or a query over files."""

    files: list[str] | None = _file(_FILES)
    sql: str | None = _option(
        DATA,
        "Instead of files, one SELECT over files, run by DuckDB in this process: \"select * from 'visits/*.parquet'\".",
        metavar="QUERY",
    )

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

    files: list[str] | None = _file("A csv or parquet file with one row per group; - for csv on stdin.")
    by: list[str] = _column(DATA, _TABLE_BY, NEEDED)
    estimate: str = _column(DATA, "Column of estimates.", NEEDED)
    se: str = _column(DATA, "Column of standard errors.", NEEDED)
    n: str | None = _column(DATA, _N)
    dof: str | None = _column(DATA, "Column of degrees of freedom of the standard errors.")
    min_size: float | None = _number(DATA, "Exclude groups smaller than this (needs --n).")
    percent: bool = _option(DATA, "Estimates are lifts: print them in percent.", "--percent", default=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOptions(RowSource):
    """Rows of an experiment or a model, and the groups they make."""

    by: list[str] = _column(
        DATA, "Attribute; several for intersections. age:5 cuts in steps of 5, age:q10 in ten equal groups.", NEEDED
    )
    min_size: float | None = _number(DATA, "Rows a group needs in every arm. Default: 10; rates 5.")


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedRows(RowSource):
    """Rows whose arms are counted, by group or all together."""

    by: list[str] | None = _column(DATA, "Attribute; several for intersections. Without it, all units: needs --shares.")
    min_size: float | None = _number(DATA, "Units a group needs to be clustered. Default: 10.")


# --------------------------------------------------------------------------------------- metric


Treatments = Annotated[
    list[str] | None,
    _info(
        METRIC,
        "Its value for the treatment, if there are more than two. Several, or '*' for all: clustered jointly.",
        metavar="VALUE",
    ),
]
Overlap = Annotated[
    str | None, _info(METRIC, "'covariance': allow units in several groups and account for it.", metavar="HOW")
]


Shares = Annotated[
    str | None,
    _info(
        METRIC,
        "Planned shares of the variants, as in A=50,B=30,C=20, for the test of sample ratios. Default: only "
        "differences between groups are tested.",
        metavar="SHARES",
    ),
]


Cap = Annotated[
    str | None, _info(METRIC, "Cut values above this, in all groups and arms: a number, or 99%.", metavar="CAP")
]
Aggregate = Annotated[
    str | None, _info(METRIC, "How rows of a unit are combined: sum, mean or any. Default: sum.", metavar="HOW")
]
Classes = Annotated[
    bool | None, _info(METRIC, "There may be more than two labels: all others count as 0.", "--classes")
]
RowUnit = Annotated[
    str | None,
    _info(METRIC, "Column of units, such as prompts, that have several rows: errors by unit.", metavar="COLUMN"),
]
Variant = Annotated[str, _info(METRIC, "Column of variants.", metavar="COLUMN")]
Unit = Annotated[
    str | None, _info(METRIC, "Column of the randomized unit: units are counted, not rows.", metavar="COLUMN")
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmOptions:
    """How an experiment was made."""

    variant: Variant
    control: str = _option(METRIC, "Its value for the control.", metavar="VALUE", default=NEEDED)
    treatment: Treatments = None
    unit: str | None = _column(METRIC, "Column of the randomized unit; its rows are summed.")
    overlap: Overlap = None
    covariate: str | None = _column(METRIC, "Column measured before the experiment, for CUPED.")
    weight: str | None = _column(METRIC, "Column of weights.")
    cap: Cap = None
    aggregate: Aggregate = None
    shares: Shares = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Predictions:
    """What a model said, and what was true."""

    y_true: str | None = _column(METRIC, "Column of true outcomes.")
    y_pred: str | None = _column(METRIC, "Column of predictions.")
    score: str | None = _column(METRIC, "Column of scores.")
    threshold: float | None = _number(METRIC, "A score at or above this predicts 1.")
    positive: str | None = _option(METRIC, "The label that counts as 1, if not 1 or true.", metavar="LABEL")
    classes: Classes = None
    weight: str | None = _column(METRIC, "Column of weights.")
    unit: RowUnit = None
    overlap: Overlap = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Baseline:
    """What another model said about the same rows, if the change from it is to be measured."""

    baseline: str | None = _column(METRIC, "Column of another model's predictions: measures the change to --y-pred.")
    baseline_score: str | None = _column(METRIC, "The same for scores: the change from this column to --score.")

    @property
    def columns(self) -> dict[str, str]:
        """The columns by what they stand for: predictions and scores."""
        return {k: v for k, v in (("y_pred", self.baseline), ("score", self.baseline_score)) if v is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditOptions(RowSource):
    """Rows of a model, the features that make the groups, and what the model said."""

    by: list[str] = _column(
        DATA,
        "Sensitive feature; several are compared alone and crossed. age:5 cuts in steps of 5, age:q10 in ten equal "
        "groups; a numeric one with more than 20 values is cut into five.",
        NEEDED,
    )
    control: list[str] | None = _column(
        DATA, "What groups must have in common to be compared: each value is a stratum."
    )
    min_size: float | None = _number(DATA, "Rows a group needs. Default: 10; rates 5.")
    intersections: bool = _option(
        DATA, "Compare features alone and crossed in one analysis; or one by one.", default=True
    )
    y_true: str | None = _column(METRIC, "Column of true outcomes.")
    y_pred: str | None = _column(METRIC, "Column of predictions.")
    score: str | None = _column(METRIC, "Or column of scores.")
    threshold: float | None = _number(METRIC, "A score at or above this predicts 1.")
    positive: str | None = _option(METRIC, "The label that counts as 1, if not 1, true or yes.", metavar="LABEL")
    weight: str | None = _column(METRIC, "Column of weights.")
    unit: RowUnit = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fresh(RowSource):
    """Fresh data for clusters that were found before, and how they are measured: as before, or as said here."""

    clusters: Path = _file("The clusters: what --json wrote.", "CLUSTERS", NEEDED)
    files: list[str] | None = _file(f"New data: {_FILES}")
    by: list[str] | None = _column(DATA, "Attribute, as for experiment and model. Default: as before.")
    estimate: str | None = _column(DATA, "For a table with one row per group: column of estimates.")
    se: str | None = _column(DATA, "For such a table: column of standard errors.")
    n: str | None = _column(DATA, "For such a table: column of group sizes.")
    dof: str | None = _column(DATA, "For such a table: column of degrees of freedom.")
    min_size: float | None = _number(DATA, "Rows a group needs in every arm. Default: 10; rates 5.")


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredOptions:
    """How new rows are measured, where that is not as before: options of experiments and of models."""

    metric: str | None = _option(
        METRIC, "As for experiment or model. Default: as before. Of several, its name alone.", metavar="KIND"
    )
    variant: str | None = _column(METRIC, "Column of variants.")
    control: str | None = _option(METRIC, "Its value for the control.", metavar="VALUE")
    treatment: Treatments = None
    unit: str | None = _column(METRIC, "Column of the randomized unit.")
    overlap: Overlap = None
    covariate: str | None = _column(METRIC, "Column measured before the experiment, for CUPED.")
    shares: Shares = None
    y_true: str | None = _column(METRIC, "Column of true outcomes.")
    y_pred: str | None = _column(METRIC, "Column of predictions.")
    score: str | None = _column(METRIC, "Column of scores.")
    threshold: float | None = _number(METRIC, "A score at or above this predicts 1.")
    positive: str | None = _option(METRIC, "The label that counts as 1.", metavar="LABEL")
    classes: Classes = None
    weight: str | None = _column(METRIC, "Column of weights.")
    cap: Cap = None
    aggregate: Aggregate = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched(RowSource):
    """All data so far of what is monitored."""

    state: Path = _file("State file of the monitor; created at the first look.", "STATE", NEEDED)
    files: list[str] | None = _file(f"All data so far: {_FILES}")
    by: list[str] = _column(DATA, "Attribute; several for intersections. age:5 cuts in steps of 5.", NEEDED)
    estimate: str | None = _column(DATA, "For a table with one row per group: column of estimates.")
    se: str | None = _column(DATA, "For such a table: column of standard errors.")
    n: str | None = _column(DATA, "For such a table: column of group sizes.")
    dof: str | None = _column(DATA, "For such a table: column of degrees of freedom.")
    min_size: float | None = _number(DATA, "Rows a group needs in every arm. Default: 10; rates 5.")
    missing: str = _option(
        DATA,
        "Groups of before that are missing: error, keep (their data are complete) or ignore.",
        metavar="HOW",
        default="error",
    )
    new: str = _option(
        DATA, "Groups that were not there before, or too small: add, ignore or error.", metavar="HOW", default="add"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedMetric(MeasuredOptions):
    """How the rows are measured: options of experiments and of models."""

    metric: str | None = _option(METRIC, "One, as for experiment or model.", metavar="KIND")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentOptions(RowSource):
    """Many experiments in one table or one set of rows."""

    files: list[str] | None = _file(
        "A csv or parquet file with one row per experiment and group; with --metric rows, or patterns of files."
    )
    experiment: str = _column(DATA, "Column that names the experiment.", NEEDED)
    by: list[str] = _column(DATA, "Attribute; several for intersections. Of rows, age:5 cuts in steps of 5.", NEEDED)
    estimate: str | None = _column(DATA, "For a table: column of estimates.")
    se: str | None = _column(DATA, "For a table: column of standard errors.")
    n: str | None = _column(DATA, "For a table or aggregates: column of group sizes.")
    dof: str | None = _column(DATA, "For a table: column of degrees of freedom.")
    min_size: float | None = _number(DATA, "Exclude groups smaller than this. Default of rows: 10; rates 5.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Aggregates:
    """Columns of counts and moments, where a table has them instead of rows."""

    sum: str | None = _column(DATA, "For aggregates: column of sums (of a rate: how many are yes).")
    mean: str | None = _column(DATA, "Or column of means.")
    variance: str | None = _column(DATA, "For aggregates: column of sample variances. Rates need none.")
    sum_squares: str | None = _column(DATA, "Or column of sums of squares.")
    skewness: str | None = _column(DATA, "For aggregates: column of skewnesses, with --kurtosis.")
    kurtosis: str | None = _column(DATA, "Column of kurtoses: 3 for normal values.")
    denom_sum: str | None = _column(DATA, "For aggregates of a ratio: column of sums of the denominator.")
    denom_sum_squares: str | None = _column(DATA, "Column of its sums of squares.")
    denom_product: str | None = _column(DATA, "Column of sums of its products with the value.")
    covariate_sum: str | None = _column(DATA, "For aggregates with CUPED: column of its sums.")
    covariate_sum_squares: str | None = _column(DATA, "Column of its sums of squares.")
    covariate_product: str | None = _column(DATA, "Column of sums of its products with the value.")
    denom_covariate_product: str | None = _column(
        DATA, "Of a ratio with a covariate: column of sums of products of both."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted(RowSource):
    """A table of counts and moments by group, or by group and arm."""

    files: list[str] | None = _file(
        "csv or parquet files with one row per group (and arm); several are pooled. Or --sql."
    )
    by: list[str] = _column(DATA, _TABLE_BY, NEEDED)
    n: str = _column(DATA, "Column of counts: users, trials; for poisson the exposure.", NEEDED)
    min_size: float | None = _number(DATA, "What a group needs in every arm. Default: 10; rates 5.")


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedArms:
    """Who had what, where aggregates of two arms are compared."""

    variant: str | None = _column(METRIC, "For difference and lift: column of variants.")
    control: str | None = _option(METRIC, "Its value for the control.", metavar="VALUE")
    treatment: Treatments = None


AggregatedMetric = Annotated[
    str,
    _info(
        METRIC,
        "rate, mean, ratio, difference, lift, ratio_difference, ratio_lift, binomial or poisson. The last two are "
        "exact likelihood ratio tests: of successes --sum among trials --n, of events --sum in the exposure --n.",
        metavar="NAME",
    ),
]

_FORMS = [f"{name}:{'/'.join('xy'[: len(METRICS[name].columns)])}" for name in of_family("experiment")]
ExperimentMetrics = Annotated[
    list[str],
    _info(METRIC, f"{', '.join(_FORMS[:-1])} or {_FORMS[-1]}; several are corrected by Holm.", metavar="KIND:COLUMN"),
]
_MODEL_NAMES = f"All: {', '.join(of_family('model'))}."
ModelMetrics = Annotated[
    list[str],
    _info(
        METRIC,
        f"Such as accuracy, tpr, fpr, selection_rate or auc; several are corrected by Holm. {_MODEL_NAMES} Other usual "
        "names are known too.",
        metavar="NAME",
    ),
]
AuditMetrics = Annotated[
    list[str] | None,
    _info(
        METRIC,
        "Default: selection rate, true and false positive rate and accuracy; of scores without --threshold auc, "
        f"calibration gap and Brier score. {_MODEL_NAMES}",
        metavar="NAME",
    ),
]
PerArm = Annotated[bool, _info(METRIC, "Each of several treatments on its own (Holm).", "--per-arm")]
Joint = Annotated[bool, _info(METRIC, "Take all metrics together: similar means similar in every one.", "--joint")]

# ------------------------------------------------------------------------------------ guarantee

Seed = Annotated[int, _info(GUARANTEE, "Random seed.", metavar="NUMBER")]
Alpha = Annotated[
    float, _info(GUARANTEE, "Significance level: the accepted probability of a false positive.", metavar="NUMBER")
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """Significance level, error control and seed."""

    alpha: Alpha = 0.05
    guarantee: str = _option(
        GUARANTEE,
        "calibrated, topmerge (calibrated without the scan for outlier groups), holdout or holdout:0.3, folds or "
        "folds:10, bonferroni (the paper's α/K²).",
        metavar="NAME",
        default="calibrated",
    )
    splits: int | None = _number(
        GUARANTEE, "For holdout: random splits, combined. Default: 25; 1 reproduces the paper."
    )
    draws: int | None = _number(
        GUARANTEE, "Simulated null draws. Default: 1,000 (calibrated) or 10,000 (topmerge); fewer for many groups."
    )
    tolerance: float = _number(
        GUARANTEE, "Effects at most this far apart count as similar, in units of the metric.", default=0.0
    )
    seed: Seed = 0


Correction = Annotated[
    str,
    _info(
        GUARANTEE,
        "holm: probability of any false positive in all experiments; bh: share of false positives among the findings.",
        metavar="NAME",
    ),
]
Refine = Annotated[bool, _info(GUARANTEE, "Move border groups to the cluster of nearest estimate.")]
Margins = Annotated[
    bool,
    _info(
        GUARANTEE,
        "With several --by: test single attributes and combinations of them, and report clusters along the fewest "
        "that are enough; or compare the combinations of all alone.",
    ),
]
SplitUnit = Annotated[
    str | None,
    _info(
        GUARANTEE,
        "For holdout and folds: column whose values stay together. Default: --unit, if any.",
        metavar="COLUMN",
    ),
]

SelfCheckRuns = Annotated[
    int | None,
    _info(
        GUARANTEE,
        "Make rows in which nothing differs N times (variants shuffled, or rows drawn anew within their groups) and "
        "show how often a difference is reported: at most α, if all is well.",
        metavar="N",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class SelfCheckOptions:
    """Whether the false positive rate is measured on the rows."""

    self_check: SelfCheckRuns = None
    self_check_groups: bool = _option(
        GUARANTEE, "For --self-check: shuffle the groups.", "--self-check-groups", default=False
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Monitoring:
    """How α is spent over looks; kept in the state, so that later looks need not say it again."""

    looks: int | None = _number(GUARANTEE, "Planned number of looks.")
    information: float | None = _number(
        GUARANTEE, "Or users in all groups at the end (without sizes: the sum of 1/se²). Default: no end."
    )
    spending: str | None = _option(
        GUARANTEE, "How α is spent: reserve (default), obrien-fleming, pocock or haybittle-peto.", metavar="NAME"
    )
    dependence: str | None = _option(
        GUARANTEE,
        "How new data relate to earlier data: returning (default; users may come back), independent, any.",
        metavar="NAME",
    )
    alpha: float | None = _number(GUARANTEE, "Significance level over all looks together. Default: 0.05.")
    draws: int | None = _number(GUARANTEE, "Simulated null paths. Default: 10,000; fewer for many groups.")
    seed: int | None = _number(GUARANTEE, "Random seed. Default: 0.")
    margins: bool | None = _option(
        GUARANTEE, "With several --by: test single attributes too (default), or only combinations."
    )
    final: bool = _option(
        GUARANTEE, "This look is the last, sooner than planned: all of α is spent.", "--final", default=False
    )


# ------------------------------------------------------------------------------ gate and output


@dataclass(frozen=True, kw_only=True, slots=True)
class LookGates:
    """Which findings of a look end with an exit code."""

    fail_on_split: bool = _option(
        GATE, "Exit 1 once a difference is reported, at this look or before.", "--fail-on-split", default=False
    )
    fail_on: str | None = _option(
        GATE,
        "harm: exit 1 when the interval of some group or cluster lies wholly on the harmful side of zero.",
        metavar="harm",
    )
    adverse: str = _option(
        GATE,
        "For --fail-on harm: which direction is harmful, low or high. Default: that of the metric, if it has one.",
        metavar="auto|low|high",
        default="auto",
    )
    mismatch: Mismatch = "inconclusive"


FailUnlessConfirmed = Annotated[
    bool,
    _info(
        GATE,
        "Exit 1 when the clusters are not confirmed; exit 3 when new data are too few, lack many values or have a "
        "sample ratio mismatch.",
        "--fail-unless-confirmed",
    ),
]
RatioAlpha = Annotated[
    float,
    _info(
        GUARANTEE,
        "Significance level: smaller than for effects, because sample ratios are tested often.",
        metavar="NUMBER",
    ),
]
FailOnMismatch = Annotated[
    bool,
    _info(
        GATE, "Exit 1 for a sample ratio mismatch; exit 3 when there are too few units to test.", "--fail-on-mismatch"
    ),
]
FailOnSplit = Annotated[
    bool,
    _info(
        GATE,
        "Exit 1 when clusters differ. Exit 3 when groups were excluded, many rows lack a value or an attribute, "
        "arms have a sample ratio mismatch, or only one group is left.",
        "--fail-on-split",
    ),
]


Missing = Annotated[
    str,
    _info(
        GATE,
        "Rows that lack a value. bounds: nothing passes that they could overturn (exit 3). ignore: they are taken "
        "to be like the others.",
        metavar="bounds|ignore",
    ),
]


Mismatch = Annotated[
    str,
    _info(
        GATE,
        "A sample ratio mismatch. inconclusive: nothing passes beside one (exit 3). ignore: gates go by effects alone.",
        metavar="inconclusive|ignore",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Certify:
    """What is certified."""

    certify: float | None = _option(
        GATE,
        "Certify that no group is farther than this from the overall, in units of the metric. Exit 0 if so, 1 when "
        "some group is, 3 when neither can be shown.",
        metavar="GAP",
    )
    reference: str | None = _option(
        GATE,
        "For --certify: compare with this group; 'highest' or 'lowest': with the best group, whichever it is; "
        "'all pairs': each with each; a number: with that value. Default: the overall; the highest with --ratio; "
        "zero with --baseline.",
        metavar="LABEL",
    )
    certify_margins: bool = _option(
        GATE,
        "For --certify: the levels of each attribute and of their combinations too, in one certificate.",
        "--certify-margins",
        default=False,
    )
    ratio: bool = _option(
        GATE,
        "For --certify: ratios to the highest group instead of differences; --certify 0.8 is the four-fifths rule.",
        "--ratio",
        default=False,
    )
    adverse: str = _option(
        GATE,
        "For --certify and --fail-on harm: which direction is harmful: low, high, both. "
        "Default: that of the metric, and both where it has none.",
        metavar="auto|low|high|both",
        default="auto",
    )
    fail_on: str | None = _option(
        GATE,
        "harm: exit 1 when some group's own effect is shown to be harmful, whatever the others gain; exit 0 when "
        "none loses more than --certify GAP (0 by default); exit 3 when the data show neither.",
        metavar="harm",
    )
    missing: Missing = "bounds"
    unknown: str | None = _option(
        GATE,
        "For --certify: rows with a missing attribute may belong to any group (bounds), are a group of their own "
        "(category) or are excluded (exclude). Default: bounds for rates, else category.",
        metavar="HOW",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Impact(RowSource):
    """Which ratios are wanted, of what."""

    files: list[str] | None = _file(f"One row for each applicant: {_FILES}")
    by: list[str] = _column(DATA, "Attribute; several for a table of each and one of their crossing.", NEEDED)
    selected: str | None = _column(DATA, "Column of outcomes: who was selected.")
    score: str | None = _column(DATA, "Column of scores, instead of --selected: the share above the median of all.")
    positive: str | None = _option(DATA, "The label that counts as selected, if not 1 or true.", metavar="LABEL")
    least: float = _number(GUARANTEE, "The ratio that categories are compared with.", default=0.8)
    min_share: float = _number(
        DATA, "Categories with a smaller share of all rows are shown, but not compared.", default=0.02
    )
    unknown: str = _option(
        DATA,
        "Applicants with a missing attribute are counted apart and may belong to any category (bounds), are counted"
        " apart and change nothing (exclude), or are a category of their own (category).",
        metavar="HOW",
        default="bounds",
    )
    unknown_level: list[str] | None = _option(
        DATA,
        "Name of a level that says that the attribute is not known. Default: unknown, n/a, ?, prefer not to say "
        "and the like.",
        metavar="LABEL",
    )
    missing: str = _option(
        DATA,
        "Applicants with a missing outcome could be anything (bounds) or are taken to be like the others (ignore).",
        metavar="bounds|ignore",
        default="bounds",
    )
    alpha: float = _number(GUARANTEE, "One less the confidence of intervals and verdicts.", default=0.05)
    seed: int = _number(GUARANTEE, "Seed of the draws behind the intervals.", default=0)
    fail_below: bool = _option(
        GATE,
        "Exit 1 when a category is below --least times the highest; exit 3 when the data cannot show it.",
        "--fail-below",
        default=False,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ImpactOutput:
    """Where impact ratios go."""

    json: Json = None
    csv: Path | None = _option(OUTPUT, "Write one row for each category; - for stdout.", metavar="FILE")
    markdown: Path | None = _option(OUTPUT, "Write the tables as Markdown.", metavar="FILE")
    report: Report = None
    title: Title = None


Json = Annotated[Path | None, _info(OUTPUT, "Write the whole result to this file; - for stdout.", metavar="FILE")]
Csv = Annotated[
    Path | None, _info(OUTPUT, "Write effect and cluster of every experiment and group; - for stdout.", metavar="FILE")
]
GroupsCsv = Annotated[Path | None, _info(OUTPUT, "Write every metric in every group; - for stdout.", metavar="FILE")]
Report = Annotated[Path | None, _info(OUTPUT, "Write a page to hand over: one HTML file, no network.", metavar="FILE")]
Title = Annotated[str | None, _info(OUTPUT, "The title of the page.", metavar="TEXT")]
Plot = Annotated[
    Path | None,
    _info(OUTPUT, "Draw the clusters: .svg, .png, .pdf or .html; several metrics are numbered.", metavar="FILE"),
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

    files: list[str] | None = _file(
        "A csv or parquet file with one row per group; with --metric, rows; or give --groups and --size."
    )
    by: list[str] | None = _column(DATA, _TABLE_BY)
    se: str | None = _column(DATA, "Column of standard errors; or --n with --spread.")
    n: str | None = _column(DATA, _N)
    groups: int | None = _number(DATA, "Without a file: how many groups.")
    size: float | None = _number(DATA, "Without a file: units in each of them.")
    spread: float | None = _number(DATA, "Standard deviation of the metric between units.")
    baseline: float | None = _number(DATA, "Or, for a rate, the rate that is expected, such as 0.05.")
    arms: int = _number(DATA, "2: sizes are shared by two arms; 1: a plain mean.", default=2)
    shares: str | None = _option(DATA, "Shares of two arms, as in A=90,B=10. Default: one half each.", metavar="SHARES")
    per_day: float | None = _number(DATA, "Units that come in on a day: says how many days it takes.")
    min_size: float | None = _number(DATA, "For rows: how many a group needs in every arm.")
    metric: str | None = _option(
        METRIC, "For rows: a metric of an experiment (lift:x) or of a model (auc).", metavar="NAME"
    )
    variant: str | None = _column(METRIC, "Of an experiment: column of variants.")
    control: str | None = _option(METRIC, "Its value for the control.", metavar="VALUE")
    treatment: Treatments = None
    covariate: str | None = _column(METRIC, "Column measured before the experiment, for CUPED.")
    cap: Cap = None
    aggregate: Aggregate = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The difference that is asked about."""

    gap: float | None = _number(
        PLAN, "The difference to be detected, in units of the metric; below zero: for groups that are lower."
    )
    share: float | None = _number(PLAN, "Share of the groups that differ, any of them. Default: 0.5.")
    only: list[str] | None = _option(PLAN, "Or just these groups; with --along, levels.", metavar="GROUP")
    along: str | None = _column(
        PLAN, "Of several --by, the attribute along which groups differ: all groups of a level do."
    )
    target: float = _number(PLAN, "Probability with which the smallest gap is detected.", default=0.8)
    runs: int = _number(PLAN, "Simulated experiments behind each figure.", default=1000)


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
        "--help-all", callback=_show_all, is_eager=True, help="Show every option, and the exit codes, and exit."
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
    """The fields of a value of options as parameters; a file that is needed stands before others."""
    hints = get_type_hints(kind, include_extras=True)
    parameters = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is NEEDED else each.default,
            annotation=Annotated[hints[each.name], each.metadata["info"]] if each.metadata else hints[each.name],
        )
        for each in fields(kind)
    ]
    return sorted(parameters, key=lambda each: each.default is not each.empty or not is_argument(each.annotation))
