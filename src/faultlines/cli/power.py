"""What `faultlines power` plans with: a table of groups, rows of an experiment or a model, or so many of one size."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from faultlines.cli.options import ArmOptions, Predictions, attribute
from faultlines.errors import InputError

if TYPE_CHECKING:
    from faultlines.cli.options import Planned
    from faultlines.metrics.base import Metric


_OF_ARMS = ("variant", "control", "treatment", "covariate", "cap", "aggregate")
_OF_EITHER = ("weight", "unit", "overlap")


def to_plan_with(planned: Planned, predictions: Predictions) -> dict[str, Any]:
    """Data for `fl.power`, with groups and metric where they are rows."""
    if planned.metric is not None:
        return _rows(planned, predictions, planned.metric)
    given = {name: getattr(planned, name) for name in _OF_ARMS}
    for name, value in {**given, **asdict(predictions), "min_size": planned.min_size}.items():
        if value is not None:
            raise InputError.conflict(name, "goes with rows", "Name what is measured: --metric.", value)
    if planned.files:
        return {"data": _table(planned, planned.files)}
    if planned.by or planned.se or planned.n:
        raise InputError.conflict("by, se, n", "name columns of a file", "Give the file, or leave them out.")
    groups, size = planned.groups, planned.size
    if groups is None or size is None or planned.spread is None:
        raise InputError.missing(
            "files", "a file is missing", "Give a file, or --groups, --size and --spread.", form="sentence"
        )
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
    return {"data": [size] * groups}


def _rows(planned: Planned, predictions: Predictions, metric: str) -> dict[str, Any]:
    """Files of rows, with their groups and metric."""
    for name in ("se", "n", "groups", "size"):
        if getattr(planned, name) is not None:
            raise InputError.conflict(name, "goes without --metric", "Leave one of them out.")
    if not planned.files or not planned.by:
        raise InputError.missing("metric", "needs the files of its rows, and --by", "Name them.", metric)
    if "-" in planned.files:
        raise InputError.unsupported(
            "files", "rows are not read from standard input", "Give files.", "-", form="sentence"
        )
    by = [attribute(given) for given in planned.by]
    return {
        "data": planned.files,
        "by": by,
        "metric": _metric(planned, predictions, metric),
        "min_size": planned.min_size,
    }


def _metric(planned: Planned, predictions: Predictions, word: str) -> Metric:
    """A metric of an experiment, where its variants are named; else of a model."""
    from faultlines.cli.metrics import experiment_metrics, model_metrics
    from faultlines.metrics.table import of_family

    if word.partition(":")[0] not in of_family("experiment"):
        for name in _OF_ARMS:
            if (value := getattr(planned, name)) is not None:
                raise InputError.conflict(name, f"means nothing to {word}", "Leave it out.", value)
        return model_metrics([word], predictions)[0]
    if planned.variant is None or planned.control is None:
        raise InputError.missing("metric", "needs --variant and --control", "Name both.", word)
    for name, value in asdict(predictions).items():
        if value is not None and name not in _OF_EITHER:
            raise InputError.conflict(name, f"means nothing to {word}", "Leave it out.", value)
    arms = ArmOptions(
        variant=planned.variant,
        control=planned.control,
        treatment=planned.treatment,
        covariate=planned.covariate,
        cap=planned.cap,
        aggregate=planned.aggregate,
        **{name: getattr(predictions, name) for name in _OF_EITHER},
    )
    return experiment_metrics([word], arms)[0]


def _table(planned: Planned, files: list[str]) -> Any:
    """A table with one row per group: their standard errors or sizes."""
    from faultlines.engines.tables import read_table
    from faultlines.estimates.estimates import Estimates
    from faultlines.estimates.labels import part_of

    if len(files) > 1:
        raise InputError.conflict(
            "files",
            f"one table is planned with, got {len(files)} files",
            "Give one file, or rows with --metric.",
            form="sentence",
        )
    file, by, se, n, spread = files[0], planned.by, planned.se, planned.n, planned.spread
    if planned.groups is not None or planned.size is not None:
        raise InputError.conflict("groups, size", "go without a file", "Leave them out, or the file.")
    if not by or (se is None) == (n is None):
        remedy = "Name them; for rows, --metric."
        raise InputError.missing("file", "needs --by and either --se or --n with --spread", remedy, file)
    if se is not None and spread is not None:
        raise InputError.conflict("spread", "goes with --n, not with --se", "Leave one of them out.", spread)
    if n is not None and spread is None:
        raise InputError.missing("n", "needs --spread", "Give the standard deviation of the metric.", n)
    keys = {f"by[{i}]" if len(by) > 1 else "by": column for i, column in enumerate(by)}
    read = read_table(file, keys=keys, numbers={"se": se} if se is not None else {"n": n or ""})
    named = [[part_of(value) for value in column] for column in read.keys]
    labels = named[0] if len(by) == 1 else list(zip(*named, strict=True))
    count = len(labels)
    return Estimates([0.0] * count, read.numbers.get("se", [1.0] * count), labels, read.numbers.get("n"), attributes=by)
