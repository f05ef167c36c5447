"""From words to metrics, attributes and error control, by the one table of each."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from faultlines.cli import options as opt
from faultlines.errors import Argument, InputError
from faultlines.metrics.table import METRICS, Entry, Family, of_family, own_name, remedy_for

if TYPE_CHECKING:
    from faultlines.guarantees.base import Guarantee
    from faultlines.metrics.base import Metric
    from faultlines.rows.keys import Bins

_MODEL_OPTIONS = ("threshold", "positive", "classes", "weight", "unit", "overlap")
_WIDTH = 70


def experiment_metrics(words: Sequence[str], arms: opt.ArmOptions, *, per_arm: bool = False) -> list[Metric]:
    """The metrics of an experiment, written as KIND:COLUMN or KIND:COLUMN/COLUMN.

    Args:
        words: The metrics.
        arms: The arms; several treatments are clustered jointly.
        per_arm: Or each of them on its own.
    """
    _check_distinct(words)
    unset = {"overlap", "aggregate"}
    options = {name: value for name, value in asdict(arms).items() if name not in unset or value is not None}
    options["shares"] = None if arms.shares is None else planned_shares(arms.shares)
    treatments = arms.treatment or []
    if per_arm:
        if len(treatments) < 2 or "*" in treatments:
            remedy = "Use --treatment B --treatment C, or --treatment '*'."
            raise InputError.missing("per_arm", "needs two treatments or more", remedy)
        return [
            replace(metric, name=f"{metric.name}, {treatment}")
            for treatment in treatments
            for metric in experiment_metrics(words, replace(arms, treatment=[treatment]))
        ]
    options["treatment"] = one_or_several(treatments)
    metrics = []
    for word in words:
        kind, _, column = word.partition(":")
        entry = _entry(word, kind, "experiment")
        count = len(entry.columns)
        columns = column.split("/") if count > 1 else [column]
        if len(columns) != count or not all(columns):
            form = "lift:revenue" if count == 1 else "ratio_lift:clicks/views"
            raise InputError.missing("metric", "does not name its columns", f"Write it as in {form}.", word)
        if count > 1 and columns[1] == "1":
            remedy = f"Write {kind}:{columns[0]}/* to divide by the number of rows."
            raise InputError.invalid("metric", "is divided by 1, which is not a column", remedy, word)
        _check_options([entry], options)
        metrics.append(entry.function(*columns, **options))
    return metrics


def name_treatments(arms: opt.ArmOptions, data: object) -> opt.ArmOptions:
    """The same arms with all treatments that occur in rows by name."""
    from faultlines.analyses.srm import list_variants

    return replace(arms, treatment=[name for name in list_variants(data, arms.variant) if name != arms.control])


def one_or_several(treatments: list[str] | None) -> list[str] | str | None:
    """Treatments as metrics take them."""
    return treatments if treatments is None or len(treatments) > 1 else treatments[0] if treatments else None


def model_metrics(
    words: Sequence[str], predictions: opt.Predictions, baseline: opt.Baseline | None = None
) -> list[Metric]:
    """The metrics of a model by their names, from the columns that were given.

    Args:
        words: The names.
        predictions: What the model said.
        baseline: What another model said: each metric is then the change from it.
    """
    entries = [_entry(word, word, "model") for word in words]
    _check_distinct([entry.name for entry in entries])
    everything = asdict(predictions)
    options = {name: everything.pop(name) for name in _MODEL_OPTIONS}
    _check_options(entries, options)
    metrics = [_of_model(entry, everything, options) for entry in entries]
    if baseline is None or not baseline.columns:
        return metrics
    return [
        _changed(entry, metric, everything, options, baseline.columns)
        for entry, metric in zip(entries, metrics, strict=True)
    ]


def audit_changes(words: Sequence[str] | None, options: opt.AuditOptions, baseline: opt.Baseline) -> list[Metric]:
    """The changes that an audit measures from another model's predictions or scores.

    Args:
        words: Names of metrics; without them those that an audit has by default and that can be paired.
        options: The columns of the audit.
        baseline: What the other model said.
    """
    from faultlines.metrics.names import default_names

    columns = {name: getattr(options, name) for name in opt.Predictions.__dataclass_fields__ if hasattr(options, name)}
    given = {role: column for role in ("y_true", "y_pred", "score") if (column := columns[role]) is not None}
    names = words or default_names(given, predicts="y_pred" in given or options.threshold is not None)
    return model_metrics(names, opt.Predictions(**columns), baseline)


def _changed(
    entry: Entry, metric: Metric, columns: dict[str, str | None], options: dict[str, Any], baseline: dict[str, str]
) -> Metric:
    """The change of a metric from the baseline to the model."""
    from faultlines.metrics.pairs import paired

    used = next((name for names in entry.columns for name in names if name != "y_true" and columns[name]), None)
    if used is None:
        problem = f"does not apply to {entry.name}"
        raise InputError.conflict("baseline", problem, "Leave it out.", next(iter(baseline.values())))
    parameter = {"y_pred": "baseline", "score": "baseline_score"}[used]
    if used not in baseline:
        remedy = f"Add {flag(parameter)} COLUMN: the baseline's values of {flag(used)}."
        raise InputError.missing("metric", f"needs {flag(parameter)} beside {flag(used)}", remedy, entry.name)
    if baseline[used] == columns[used]:
        problem = f"names the column of {flag(used)}"
        raise InputError.duplicate(parameter, problem, "Name the column of another model.", baseline[used])
    first = _of_model(entry, columns | {used: baseline[used]}, options)
    with opt.name_options({"first": "metric", "second": "metric"}):
        change = paired(first, metric)
    inputs = {  # errors about the other model's column name its own option
        role: replace(source, parameter=parameter) if source.column == baseline[used] else source
        for role, source in change.inputs.items()
    }
    return replace(change, inputs=inputs)


def fresh_metric(measured: opt.MeasuredOptions) -> Metric | str | None:
    """What to measure in new rows: a metric of an experiment or of a model; that of before, or its name alone."""
    named = set_options(measured)
    word = named.pop("metric", None)
    if word is None:
        if named:
            raise InputError.conflict(
                ", ".join(named), "needs --metric", "Add --metric, or leave it out to measure as before."
            )
        return None
    return metric_of_options(word, named) if named else str(word)


def metric_of_rows(measured: opt.MeasuredOptions) -> Metric:
    """What to measure in rows: a metric of an experiment or of a model."""
    named = set_options(measured)
    if "metric" not in named:
        remedy = "Add for example --metric lift:revenue; for a table with one row per group, --estimate and --se."
        raise InputError.missing("metric", "is missing", remedy)
    return metric_of_options(named.pop("metric"), named)


def set_options(*values: opt.MeasuredOptions | opt.Predictions | opt.Aggregates | opt.CountedArms) -> dict[str, Any]:
    """The options that were given, by name."""
    return {name: value for each in values for name, value in asdict(each).items() if value is not None}


def metric_of_options(word: str, named: dict[str, Any]) -> Metric:
    """The metric of a word, of an experiment or of a model, with the options that were given."""
    kind = word.partition(":")[0]
    own = own_name(kind)
    is_experiment = ":" in word or (own is not None and METRICS[own].family == "experiment")
    family: Any = opt.ArmOptions if is_experiment else opt.Predictions
    fields_of = {field.name for field in fields(family)}
    for name in named:
        if name not in fields_of:
            raise InputError.conflict(name, f"does not apply to {word}", "Leave it out.")
    if is_experiment:
        _entry(word, kind, "experiment")
        for name in ("variant", "control"):
            if name not in named:
                raise InputError.missing("metric", f"needs {flag(name)}", f"Add {flag(name)}.", word)
        return experiment_metrics([word], opt.ArmOptions(**named))[0]
    return model_metrics([word], opt.Predictions(**named))[0]


def _of_model(entry: Entry, columns: dict[str, str | None], options: dict[str, Any]) -> Metric:
    chosen: dict[str, Any] = {n: value for n, value in options.items() if value is not None and entry.accepts(n)}
    for names in entry.columns:
        # Predictions where there are some; a score makes predictions only with its threshold.
        parameter = next((name for name in names if columns[name] is not None), None)
        if parameter is None:
            raise _missing(entry, names)
        chosen[parameter] = columns[parameter]
        if parameter == "score" and "y_pred" in names and options["threshold"] is None:
            remedy = "Add for example --threshold 0.5: a score at or above it predicts 1."
            raise InputError.missing("metric", "needs --threshold beside --score", remedy, entry.name)
    if "y_pred" in chosen and chosen.get("threshold") is not None:
        raise InputError.conflict(
            "y_pred, threshold", "both set what was predicted", "Give only one of them.", form="clause"
        )
    return entry.function(**chosen)


def _missing(entry: Entry, names: Sequence[str]) -> InputError:
    flags = [flag(name) for name in names]
    ways = [f"{option} COLUMN" for option in flags]
    if len(names) > 1:
        ways[-1] += " with --threshold NUMBER"
    needs = " or ".join(reversed(flags))
    return InputError.missing("metric", f"needs {needs}", f"Name the column: {', or '.join(ways)}.", entry.name)


def _entry(word: str, name: str, family: Family) -> Entry:
    """The metric of a name, or an error that knows what other libraries call it."""
    names = of_family(family)
    own = own_name(name)  # "tpr" and what else other libraries call it
    if own in names:
        return METRICS[own]
    argument = Argument("metric", word)
    if name in METRICS:
        other = METRICS[name].family
        if other == "population":  # some of these compare the variants of an experiment too
            raise InputError.unsupported(
                argument, "is not measured in rows from the command line", f"In Python: fl.{name}(…)."
            )
        problem = f"is not a metric of {_of(family)}, but of {_of(other)}"
        raise InputError.unknown(argument, problem, f"Use: faultlines {other}.")
    lacks_column = family == "experiment" and word == name
    form = " Write it with its column, as in lift:revenue." if lacks_column else ""
    remedy = remedy_for(name, family, function="In Python: fl.bootstrapped({}, …).", otherwise=form)
    raise InputError.unknown(argument, "is not known", remedy)


def _of(family: Family) -> str:
    return "an experiment" if family == "experiment" else "a model"


def _check_distinct(words: Sequence[str]) -> None:
    for word, count in Counter(words).items():
        if count > 1:
            raise InputError.duplicate("metric", "occurs more than once", "Name each metric once.", word)


def _check_options(entries: Sequence[Entry], options: dict[str, Any]) -> None:
    """Refuse an option that a metric would ignore: results of one run have to be about the same thing.

    A threshold says what a score predicts. Metrics of the score itself, such as the auc, do not ask, and it is refused
    only where nothing does.
    """
    for option, value in options.items():
        if value is None:
            continue
        unsupporting = [entry.name for entry in entries if not entry.accepts(option)]
        some = len(unsupporting) < len(entries)
        if unsupporting and not (option == "threshold" and some):
            remedy = f"Leave it out, or run {', '.join(unsupporting)} without it." if some else "Leave it out."
            raise InputError.conflict(option, f"does not apply to {', '.join(unsupporting)}", remedy, value)


def flag(parameter: str) -> str:
    """A parameter as it is written on the command line."""
    return f"--{parameter.replace('_', '-')}"


def model_usage(*, without: Collection[str] = ()) -> str:
    """Which metric of a model takes which columns and options, for `--help`; a command may lack some options."""
    alike: dict[str, list[str]] = {}
    for name in of_family("model"):
        entry = METRICS[name]
        needs = ["--y-pred or --score with --threshold" if len(c) > 1 else flag(c[0]) for c in entry.columns]
        options = [option for option in entry.options if option not in without]
        may = [flag(option) for option in options if option in _MODEL_OPTIONS and option != "threshold"]
        wanted = f"{', '.join(may[:-1])} and {may[-1]}" if may[1:] else may[0]
        takes = f"{', '.join(needs)}; if wanted, {wanted}"
        alike.setdefault(takes, []).append(name)
    lines = []
    for takes, names in alike.items():
        lines += textwrap.wrap(", ".join(names), _WIDTH, initial_indent="  ", subsequent_indent="  ")
        lines += textwrap.wrap(takes, _WIDTH, initial_indent="      ", subsequent_indent="      ")
    return "\b\nWhat each metric needs, and which options it takes:\n" + "\n".join(lines)


def kinds_usage(options: Collection[str]) -> str:
    """Which options are for metrics of experiments and which for those of models, for a command that has both."""
    arms, predictions = (
        [field.name for field in fields(kind) if field.name in options] for kind in (opt.ArmOptions, opt.Predictions)
    )
    kinds = {
        "of an experiment": [name for name in arms if name not in predictions],
        "of a model": [name for name in predictions if name not in arms],
        "of either": [name for name in arms if name in predictions],
    }
    lines = ["Which option applies to which metric:"]
    for kind, names in kinds.items():
        words = f"{kind}: {', '.join(map(flag, names))}"
        lines += textwrap.wrap(words, _WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
    lines += ["  faultlines model --help-all says what each metric of a model takes."]
    return "\b\n" + "\n".join(lines)


# ---------- From words to attributes: a column, or a column to be cut.


def attributes(words: Sequence[str]) -> list[str | Bins]:
    """The attributes of `--by`, each a column or a column to be cut; country,device is two."""
    return [attribute(word) for word in column_names(words)]


def column_names(words: Sequence[str]) -> list[str]:
    """Names of columns, of which several may stand in one word."""
    return [name.strip() for word in words for name in (word.split(",") if word.strip(", ") else [word])]


def attribute(word: str) -> str | Bins:
    """A column, or a column to be cut: age:5 by width, income:q10 by quantiles."""
    from faultlines.rows.keys import bins

    cut = re.fullmatch(r"(.+):(q[0-9]+|[0-9]+(?:\.[0-9]+)?)", word, flags=re.DOTALL)
    if cut is None:
        return word
    column, size = cut.groups()
    return bins(column, quantiles=int(size[1:])) if size.startswith("q") else bins(column, width=float(size))


def planned_shares(text: str) -> dict[str, float]:
    """Shares of variants, from A=50,B=30,C=20."""
    shares: dict[str, float] = {}
    remedy = "Write it as in A=50,B=30,C=20."
    for word in text.split(","):
        name, equals, number = word.rpartition("=")
        try:
            share = float(number)
        except ValueError as error:
            raise InputError.invalid("shares", "are not shares of variants", remedy, text) from error
        if not equals or not name:
            raise InputError.invalid("shares", "are not shares of variants", remedy, text)
        if name in shares:
            raise InputError.duplicate("shares", "name a variant twice", "Name each once.", name)
        shares[name] = share
    if len(shares) < 2:
        raise InputError.too_few("shares", "needs two variants or more", remedy, text)
    return shares


# ---------- From words to a guarantee, by the one table of guarantees.


# What may stand behind the colon, as in holdout:0.3.
_SIZES: dict[str, tuple[str, type[Any]]] = {"holdout": ("fraction", float), "folds": ("n", int)}


def chosen_guarantee(claim: opt.Claim, split_unit: str | None = None) -> Guarantee:
    """The guarantee that was asked for."""
    from faultlines.guarantees import GUARANTEES, OTHER_NAMES, unknown_guarantee_error

    constructors = {**GUARANTEES, **dict.fromkeys(OTHER_NAMES, GUARANTEES["calibrated"])}
    kind, colon, size = claim.guarantee.partition(":")
    if kind not in constructors:
        raise unknown_guarantee_error(claim.guarantee, kind)
    settings: dict[str, Any] = dict(OTHER_NAMES.get(kind, {}))
    if colon:
        settings |= _size(claim.guarantee, kind, size)
    choices = (("draws", "draws", claim.draws), ("splits", "splits", claim.splits), ("split_unit", "unit", split_unit))
    for option, parameter, value in choices:
        if value is None:
            continue
        takers = [
            name
            for name, constructor in constructors.items()
            if parameter in {field.name for field in fields(constructor)}
        ]
        if kind not in takers:
            remedy = f"Leave it out, or use {' or '.join(takers)}."
            raise InputError.conflict(option, f"does not apply to {claim.guarantee}", remedy, value)
        settings[parameter] = value
    guarantee: Guarantee = constructors[kind](**settings)
    return guarantee


def _size(word: str, kind: str, size: str) -> dict[str, Any]:
    try:
        parameter, number = _SIZES[kind]
        return {parameter: number(size)}
    except (KeyError, ValueError) as error:
        raise InputError.unknown("guarantee", "is not known", "Write holdout:0.3 or folds:10.", word) from error
