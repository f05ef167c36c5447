"""Counts and moments in place of rows, many experiments, and plans: from options to what the library takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from faultlines.cli.metrics import (
    attributes,
    column_names,
    flag,
    metric_of_options,
    metric_of_rows,
    one_or_several,
    set_options,
)
from faultlines.cli.outputs import is_table
from faultlines.errors import InputError, did_you_mean
from faultlines.metrics.table import METRICS

if TYPE_CHECKING:
    from faultlines.cli import options as opt
    from faultlines.core.custom import Similarity
    from faultlines.metrics.base import Metric

EXACT = {"binomial": ("successes", "trials"), "poisson": ("events", "exposure")}
_MEASURED = ("rate", "mean", "ratio", "difference", "lift", "ratio_difference", "ratio_lift")
_ARMS = ("variant", "control", "treatment")


def aggregated_metric(word: str, n: str, columns: opt.Aggregates, arms: Any) -> Metric:
    """The metric of a table of counts and moments.

    Args:
        word: Its name.
        n: The column of counts.
        columns: The other columns.
        arms: Values of options, of which those of the variants count.
    """
    from faultlines.metrics.experiment import aggregated

    if word not in _MEASURED:
        remedy = did_you_mean(word, (*_MEASURED, *EXACT))
        raise InputError.unknown("metric", "is not a metric of aggregates", remedy, word)
    options = {name: value for name in _ARMS if (value := getattr(arms, name)) is not None}
    options |= {"treatment": one_or_several(options["treatment"])} if "treatment" in options else {}
    for name in options:
        if not METRICS[word].accepts(name):
            raise InputError.conflict(name, f"does not apply to {word}", "Leave it out.")
    for name in ("variant", "control"):
        if name not in options and METRICS[word].accepts(name):
            raise InputError.missing("metric", f"needs {flag(name)}", f"Add {flag(name)}.", word)
    return METRICS[word].function(aggregated(n, **asdict(columns)), **options)


def counts(word: str, counted: opt.Counted, columns: opt.Aggregates, arms: opt.CountedArms) -> Similarity:
    """Successes and trials, or events and exposure, of every group, compared by their likelihood ratio test."""
    from faultlines.core import counts as tests
    from faultlines.estimates.estimates import checked_attributes, in_columns

    for name in set_options(columns, arms):
        if name != "sum":
            raise InputError.conflict(name, f"does not apply to {word}", "Leave it out.")
    if columns.sum is None:
        raise InputError.missing("metric", f"needs --sum, the column of {EXACT[word][0]}", "Add --sum COLUMN.", word)
    files = counted.inputs
    if counted.sql is not None or len(files) > 1 or "-" in files:
        raise InputError.conflict(
            "files", f"{word} reads one file with one row per group", "Give one file.", form="sentence"
        )
    by = checked_attributes(column_names(counted.by))
    labels, numbers = _read_groups(files[0], by, {"sum": columns.sum, "n": counted.n})
    counted_in = dict(zip(EXACT[word], (("sum", columns.sum), ("n", counted.n)), strict=True))
    with in_columns(counted_in):
        similarity: Similarity = getattr(tests, word)(
            numbers["sum"], numbers["n"], labels, attributes=by, metric=f"rate of {columns.sum}"
        )
    return similarity


def many_from(options: opt.ExperimentOptions, measured: opt.WatchedMetric, columns: opt.Aggregates) -> dict[str, Any]:
    """What `fl.cluster_many` is told about its data: a table of estimates, aggregates, or rows."""
    arguments: dict[str, Any] = {"experiment": options.experiment, "by": column_names(options.by)}
    aggregates = set_options(columns)
    if options.estimate is not None or options.se is not None:
        return arguments | _estimates(options, measured, aggregates)
    if aggregates:
        if options.n is None or options.dof is not None or measured.metric is None:
            problem = "aggregates need --metric and --n, and have no --dof"
            raise InputError.missing(", ".join(aggregates), problem, "Name them, or leave it out.", form="clause")
        for name in set_options(measured):
            if name not in {"metric", *_ARMS}:
                raise InputError.conflict(name, "needs rows, not aggregates", "Leave it out, or give the rows.")
        metric = aggregated_metric(measured.metric, options.n, columns, measured)
    else:
        is_table(options)  # refuses --n and --dof, which rows have not
        metric = metric_of_rows(measured)
    return arguments | {"data": options.rows(), "by": attributes(options.by), "metric": metric}


def _estimates(
    options: opt.ExperimentOptions, measured: opt.WatchedMetric, aggregates: dict[str, str]
) -> dict[str, Any]:
    """A table with one row per experiment and group."""
    also = {**aggregates, **set_options(measured)}
    if also:
        raise InputError.conflict(", ".join(also), "does not apply to --estimate and --se", "Leave it out.")
    if options.estimate is None or options.se is None:
        problem = "a table with one row per experiment and group needs both"
        raise InputError.missing("estimate, se", problem, "Name them.", form="clause")
    data = options.table("a table with one row per experiment and group")
    return {"data": data, "estimate": options.estimate, "se": options.se, "n": options.n, "dof": options.dof}


def _read_groups(file: str, by: Sequence[str], numbers: dict[str, str]) -> tuple[list[Any], Mapping[str, Any]]:
    """The groups of a table, and columns of numbers by the options that name them."""
    from faultlines.engines.frames import read_table
    from faultlines.estimates.labels import part_of

    keys = {f"by[{i}]" if len(by) > 1 else "by": column for i, column in enumerate(by)}
    table = read_table(file, keys=keys, numbers=numbers)
    named = [[part_of(value) for value in column] for column in table.keys]
    return named[0] if len(by) == 1 else list(zip(*named, strict=True)), table.numbers


# ---------- What `faultlines power` plans with: a table of groups, rows, or a number of groups of one size.


_OF_ARMS = ("variant", "control", "treatment", "covariate", "cap", "aggregate")
_NAMED_ARMS = ("control", "treatment")  # they say which of the planned shares are compared, too


def to_plan_with(planned: opt.Planned, predictions: opt.Predictions) -> dict[str, Any]:
    """Data for `fl.power`, with groups and metric where they are rows."""
    if planned.metric is not None:
        return _rows(planned, predictions, planned.metric)
    of_shares = _NAMED_ARMS if planned.shares is not None else ()
    arm_options = {name: getattr(planned, name) for name in _OF_ARMS if name not in of_shares}
    for name, value in {**arm_options, **asdict(predictions), "min_size": planned.min_size}.items():
        if value is not None:
            raise InputError.conflict(name, "applies to rows only", "Name what is measured: --metric.", value)
    if planned.sql is not None:
        raise InputError.conflict("sql", "applies to rows only", "Name what is measured: --metric.")
    if planned.files:
        return {"data": _table(planned, planned.files), **_planned_arms(planned)}
    if planned.by or planned.se or planned.n:
        raise InputError.conflict("by, se, n", "name columns of a file", "Give the file, or leave them out.")
    groups, size = planned.groups, planned.size
    if groups is None or size is None or (planned.spread is None and planned.baseline is None):
        remedy = "Give a file, or --groups, --size and --spread or --baseline."
        raise InputError.missing("files", "a file is missing", remedy, form="sentence")
    if not 2 <= groups <= 1_000_000:
        raise InputError.out_of_range(
            "groups",
            "must be from 2 to a million",
            "Use for example {groups}.",
            groups,
            settings={"groups": 40},
            form="must",
        )
    if not size > 0:
        raise InputError.out_of_range(
            "size", "must be above zero", "Use for example {size}.", size, settings={"size": 5000}, form="must"
        )
    return {"data": [size] * groups, **_planned_arms(planned)}


def _planned_arms(planned: opt.Planned) -> dict[str, Any]:
    """Which of the planned arms are compared."""
    treatments = planned.treatment or []
    if len(treatments) > 1 or "*" in treatments:
        remedy = "Name one, and plan for each by itself."
        raise InputError.unsupported("treatment", "names several arms", remedy, planned.treatment)
    return {"control": planned.control, "treatment": next(iter(treatments), None)}


def _rows(planned: opt.Planned, predictions: opt.Predictions, metric: str) -> dict[str, Any]:
    """Files of rows, with their groups and metric."""
    for name in ("se", "n", "groups", "size"):
        if getattr(planned, name) is not None:
            raise InputError.conflict(name, "does not apply to rows with --metric", "Leave one of them out.")
    if not (planned.files or planned.sql) or not planned.by:
        raise InputError.missing("metric", "needs the files of its rows, and --by", "Name them.", metric)
    return {
        "data": planned.rows(),
        "by": attributes(planned.by),
        "metric": _metric(planned, predictions, metric),
        "min_size": planned.min_size,
    }


def _metric(planned: opt.Planned, predictions: opt.Predictions, word: str) -> Metric:
    """A metric of an experiment or of a model, from the options of either."""
    options = {name: getattr(planned, name) for name in _OF_ARMS} | set_options(predictions)
    return metric_of_options(word, {name: value for name, value in options.items() if value is not None})


def _table(planned: opt.Planned, files: list[str]) -> Any:
    """A table with one row per group: their standard errors or sizes."""
    from faultlines.estimates.estimates import Estimates

    if len(files) > 1:
        raise InputError.conflict(
            "files",
            f"planning needs exactly one table, got {len(files)} files",
            "Give one file, or rows with --metric.",
            form="sentence",
        )
    file, by, se, n, spread = files[0], column_names(planned.by or []), planned.se, planned.n, planned.spread
    if planned.groups is not None or planned.size is not None:
        raise InputError.conflict("groups, size", "do not apply to a file", "Leave them out, or the file.")
    if not by or (se is None) == (n is None):
        remedy = "Name them; for rows, --metric."
        raise InputError.missing("file", "needs --by and either --se or --n with --spread", remedy, file)
    for name, value in (("spread", spread), ("baseline", planned.baseline)):
        if se is not None and value is not None:
            raise InputError.conflict(name, "applies to --n only, not to --se", "Leave one of them out.", value)
    if n is not None and spread is None and planned.baseline is None:
        remedy = "Give the standard deviation of the metric, or for a rate --baseline."
        raise InputError.missing("n", "needs --spread", remedy, n)
    labels, numbers = _read_groups(file, by, {"se": se} if se is not None else {"n": n or ""})
    count = len(labels)
    return Estimates([0.0] * count, numbers.get("se", [1.0] * count), labels, numbers.get("n"), attributes=by)
