"""Counts and moments in place of rows, and many experiments: from options to what the library takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from faultlines.cli.metrics import flag, metric_of_rows, one_or_several
from faultlines.cli.options import attribute
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
            raise InputError.conflict(name, f"means nothing to {word}", "Leave it out.")
    for name in ("variant", "control"):
        if name not in options and METRICS[word].accepts(name):
            raise InputError.missing("metric", f"needs {flag(name)}", f"Add {flag(name)}.", word)
    return METRICS[word].function(aggregated(n, **asdict(columns)), **options)


def counts(word: str, counted: opt.Counted, columns: opt.Aggregates, arms: opt.CountedArms) -> Similarity:
    """Successes and trials, or events and exposure, of every group, compared by their likelihood ratio test."""
    from faultlines.core import counts as tests
    from faultlines.engines.tables import read_table
    from faultlines.estimates.labels import keys_of, labels_of, part_of
    from faultlines.estimates.tables import checked_attributes, in_columns

    for name, value in {**asdict(columns), **asdict(arms)}.items():
        if value is not None and name != "sum":
            raise InputError.conflict(name, f"means nothing to {word}", "Leave it out.")
    if columns.sum is None:
        raise InputError.missing("metric", f"needs --sum, the column of {EXACT[word][0]}", "Add --sum COLUMN.", word)
    if len(counted.files) > 1 or "-" in counted.files:
        raise InputError.conflict(
            "files", f"{word} reads one file with one row per group", "Give one file.", form="sentence"
        )
    attributes = checked_attributes(counted.by)
    keys = {f"by[{i}]" if len(attributes) > 1 else "by": column for i, column in enumerate(attributes)}
    table = read_table(counted.files[0], keys=keys, numbers={"sum": columns.sum, "n": counted.n})
    named = [[part_of(value) for value in column] for column in table.keys]
    labels = labels_of(keys_of(list(zip(*named, strict=True))))
    counted_in = dict(zip(EXACT[word], (("sum", columns.sum), ("n", counted.n)), strict=True))
    with in_columns(counted_in):
        made: Similarity = getattr(tests, word)(
            table.numbers["sum"],
            table.numbers["n"],
            labels,
            attributes=attributes,
            metric=f"rate of {columns.sum}",
        )
    return made


def many_from(given: opt.ExperimentOptions, measured: opt.WatchedMetric, columns: opt.Aggregates) -> dict[str, Any]:
    """What `fl.cluster_many` is told about its data: a table of estimates, aggregates, or rows."""
    made: dict[str, Any] = {"experiment": given.experiment, "by": given.by}
    aggregates = {name: value for name, value in asdict(columns).items() if value is not None}
    if given.estimate is not None or given.se is not None:
        return made | _estimates(given, measured, aggregates)
    if aggregates:
        if given.n is None or given.dof is not None or measured.metric is None:
            problem = "aggregates need --metric and --n, and have no --dof"
            raise InputError.missing(", ".join(aggregates), problem, "Name them, or leave it out.", form="clause")
        for name, value in asdict(measured).items():
            if value is not None and name not in {"metric", *_ARMS}:
                raise InputError.conflict(name, "needs rows, not aggregates", "Leave it out, or give the rows.")
        metric = aggregated_metric(measured.metric, given.n, columns, measured)
    else:
        is_table(given)  # refuses --n and --dof, which rows have not
        metric = metric_of_rows(measured)
    if "-" in given.files:
        raise InputError.unsupported(
            "files", "rows are not read from standard input", "Give files.", "-", form="sentence"
        )
    return made | {"data": given.files, "by": [attribute(word) for word in given.by], "metric": metric}


def _estimates(given: opt.ExperimentOptions, measured: opt.WatchedMetric, aggregates: dict[str, str]) -> dict[str, Any]:
    """A table with one row per experiment and group."""
    also = {**aggregates, **{name: value for name, value in asdict(measured).items() if value is not None}}
    if also:
        raise InputError.conflict(", ".join(also), "does not go with --estimate and --se", "Leave it out.")
    if given.estimate is None or given.se is None or len(given.files) > 1:
        problem = "a table with one row per experiment and group needs both, and is one file"
        raise InputError.missing("estimate, se", problem, "Name them.", form="clause")
    return {"data": given.files[0], "estimate": given.estimate, "se": given.se, "n": given.n, "dof": given.dof}
