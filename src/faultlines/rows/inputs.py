"""Input columns: cleaned in the engine, checked for what they must not hold, and formed into a metric's variables."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from faultlines.engines.frames import Rows, fetch
from faultlines.engines.protocol import Column, factorize, is_time
from faultlines.engines.readers import BOOLEANS, TRUTH_WORDS
from faultlines.errors import Argument, InputError, shorten, shorten_text, to_numbers
from faultlines.rows.keys import finite, whole_part
from faultlines.rows.request import Input, Request

_FAR_ABOVE = 2.0  # scores beyond it are on another scale than a threshold below 1; a linear model may exceed 1 a little


_FRACTION = r"^\s*-?[0-9]*\.[0-9]*[1-9][0-9]*\s*$"  # text that is a number, and not a whole one


# Words for yes and no: labels of two columns may be coded differently and mean the same.
_YES = frozenset({*(word for word, number in TRUTH_WORDS.items() if number), "1", "1.0"})
_NO = frozenset({*(word for word, number in TRUTH_WORDS.items() if not number), "0", "0.0"})


def is_yes_or_no(values: Collection[Any]) -> bool:
    """Whether labels are all words or numbers for yes and no, in whatever coding."""
    return bool(values) and all(_plain_word(value) in _YES | _NO for value in values)


def _plain_word(value: Any) -> str:
    return str(value).strip().lower()


class CleanInput(NamedTuple):
    """A cleaned input, null where it has no value, and expressions of values that it should not hold."""

    value: Any
    checks: dict[str, Any]


def is_label(source: Input) -> bool:
    """Whether an input of csv is compared with a label, as text."""
    as_text = isinstance(source.positive, str | datetime.date)
    return source.kind == "label" or (source.kind in {"binary", "class"} and as_text)


def source_column(rows: Rows, source: Input) -> str:
    """The column of an input in the frame."""
    return (rows.keys if is_label(source) else rows.numbers)[source.column]


def clean_input(rows: Rows, source: Input, parameter: str, *, is_checked: bool = True) -> CleanInput:
    """An input as doubles, NaN and infinity as null where it is checked, labels as 0 and 1."""
    import narwhals as nw

    if source.kind == "rows":
        return CleanInput(nw.lit(1.0), {})
    column = source_column(rows, source)
    dtype = rows.frame.collect_schema()[column]
    simple = dtype.is_numeric() or dtype == nw.Boolean
    argument = Argument(parameter, source.column)
    if source.kind in {"binary", "class", "label"} and (column in rows.times or is_time(dtype)):
        problem, remedy = "holds points in time, not labels", "Name a column of labels, or of days."
        raise InputError.wrong_type(argument, problem, remedy)
    if source.kind in {"binary", "class"} and source.positive is not None:
        return _clean_label(column, dtype, simple, source)
    if source.kind in {"label", "any"} and not simple:
        if dtype.is_nested():
            raise InputError.wrong_type(
                argument, f"holds {shorten_text(str(dtype), 80)}, not labels", "Name a plain column."
            )
        text = nw.col(column).cast(nw.String)
        return CleanInput(text, {"odd": nw.when(text.str.contains(_FRACTION)).then(text)} if is_label(source) else {})
    if not simple and source.kind == "binary" and dtype.is_nested():
        raise InputError.wrong_type(
            argument, f"holds {shorten_text(str(dtype), 80)}, not 0/1 or booleans", "Name a plain column."
        )
    if not simple and source.kind == "binary":
        values = some_values(rows, column)
        if is_yes_or_no(values):  # "yes" and "no" need nobody to say which one counts
            return _clean_words(column)
        examples = " or ".join(map(repr, values))
        raise InputError.wrong_type(
            argument,
            f"holds {dtype}, not 0/1 or booleans",
            f"Say which label counts with {{positive}}: there are {examples}.",
            settings={"positive": ...},
        )
    if not simple:
        remedy = to_numbers(some_values(rows, column) if dtype == nw.String else [], "Name a numeric column.")
        raise InputError.wrong_type(argument, f"is not numeric ({dtype})", remedy)
    value = finite(column, dtype) if is_checked else nw.col(column).cast(nw.Float64)
    if source.kind in {"score", "points"}:
        above, beyond = value > _FAR_ABOVE, (value < 0) | (value > 1)
        tests = {"below": value < 0, "above": above} if source.kind == "score" else {"beyond": beyond}
        return CleanInput(value, {name: nw.when(test).then(value) for name, test in tests.items()})
    odd = {
        "number": None,
        "any": None,
        "binary": (value != 0) & (value != 1),
        "class": (value != 0) & (value != 1),
        "label": value != whole_part(value),
        "probability": (value < 0) | (value > 1),
        "weight": value < 0,
        "amount": value < 0,
    }[source.kind]
    return CleanInput(value, {} if odd is None else {"odd": nw.when(odd).then(value)})


def _clean_words(column: str) -> CleanInput:
    """Words for yes and no as 1 and 0; any other word that turns up is refused as such."""
    import narwhals as nw

    text = nw.col(column).cast(nw.String)
    word = text.str.strip_chars().str.to_lowercase()
    is_yes, is_no = word.is_in(sorted(_YES)), word.is_in(sorted(_NO))
    coded = nw.when(is_yes).then(nw.lit(1.0)).otherwise(nw.when(is_no).then(nw.lit(0.0)))
    return CleanInput(coded, {"odd": nw.when(~is_yes & ~is_no).then(text)})


def _clean_label(column: str, dtype: Any, simple: bool, source: Input) -> CleanInput:
    import narwhals as nw

    raw = finite(column, dtype) if simple else nw.col(column).cast(nw.String)
    positive = _parse_positive(source, dtype) if simple else str(source.positive)
    if not simple and _plain_word(positive) in BOOLEANS:  # csv has True where pandas wrote it, true elsewhere
        raw, positive = raw.str.to_lowercase(), _plain_word(positive)
    coded = nw.when(~raw.is_null()).then(nw.when(raw == positive).then(nw.lit(1.0)).otherwise(nw.lit(0.0)))
    checks = {"seen": nw.when(raw == positive).then(raw)}
    if source.kind == "binary":  # there is but one label beside the one that counts
        checks["other"] = nw.when(raw != positive).then(raw)
    return CleanInput(coded, checks)


def _parse_positive(source: Input, dtype: Any) -> float:
    """The label that counts, as a number or truth value of its column; from the command line it comes as text.

    "yes" counts in a column of truth values, too: truth and prediction may be coded differently.
    """
    word = _plain_word(source.positive)
    value = 1.0 if word in _YES else 0.0 if word in _NO else source.positive
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        problem, remedy = f"cannot be in {shorten(source.column)}, which holds {dtype}", "Give a value of the column."
        raise InputError.not_found("positive", problem, remedy, source.positive) from error


def check_input(rows: Rows, source: Input, parameter: str, ends: Mapping[str, list[Column]], usable: float) -> None:
    """Refuse an input that held what it must not hold.

    Args:
        rows: The rows, for examples of what there is.
        source: The input.
        parameter: The parameter that named it.
        ends: Check → smallest and largest such values by group.
        usable: How many rows could be used.
    """
    argument = Argument(parameter, source.column)
    values = {kind: _distinct_values(columns) for kind, columns in ends.items()}
    if words := [value for value in values.get("odd", ()) if isinstance(value, str) and source.kind == "binary"]:
        problem = f"holds {shorten(min(words))} beside words for yes and no"
        raise InputError.invalid_data(
            argument, problem, "Say which label counts: {positive}.", settings={"positive": "…"}
        )
    if values.get("odd"):
        raise _odd_value_error(argument, source, parameter, values["odd"])
    if values.get("above") and not values["below"]:
        top = max(map(float, values["above"]))
        problem = f"goes up to {top:g}, but the threshold is a probability"
        remedy = "Give both in the same units, or name a column of predictions: {y_pred}."
        raise InputError.mismatch(argument, problem, remedy, settings={"y_pred": "…"})
    if "beyond" in values and not values["beyond"] and usable > 0:
        problem, remedy = "lies between 0 and 1, but the threshold is above 1", "Give both in the same units."
        raise InputError.mismatch(argument, problem, remedy)
    if "seen" in values and not values["seen"] and usable > 0 and not source.may_lack:
        raise InputError.not_found(
            "positive",
            f"is in no row of {shorten(source.column)}",
            f"There are: {_show_examples(rows, source_column(rows, source))}. "
            "Truth and predictions need the same labels.",
            source.positive,
        )
    if len(values.get("other", ())) > 1:
        others = ", ".join(shorten(value) for value in sorted(values["other"], key=str)[:3])
        problem = f"holds more than two values: {shorten(source.positive)}, {others}"
        several = " Or count all others as 0: {classes}." if parameter.startswith(("y_true", "y_pred")) else ""
        raise InputError.invalid_data(argument, problem, f"Give a column of two.{several}", settings={"classes": True})


def _odd_value_error(argument: Argument, source: Input, parameter: str, values: set[Any]) -> InputError:
    """What an input holds that it must not hold, and what was probably meant."""
    value = float(min(values, key=float))
    if source.kind == "probability":
        percent = " Divide per cent by 100." if 1 < max(map(float, values)) <= 100 else ""
        return InputError.invalid_data(argument, f"holds {value:g}, outside [0, 1]", f"Give probabilities.{percent}")
    if source.kind == "weight":
        return InputError.invalid_data(argument, f"holds the weight {value:g}", "Weights must not be negative.")
    if source.kind == "amount":
        remedy = "Give amounts from 0 on: inequality of negative ones is not defined."
        return InputError.invalid_data(argument, f"holds {value:g}", remedy)
    if parameter.startswith("y_pred") and any(0 < float(v) < 1 for v in values):
        remedy = "If these are probabilities, name the column as score, with a threshold: {score}, {threshold}."
        return InputError.invalid_data(
            argument, f"holds {value:g}, which is not a class", remedy, settings={"score": "…", "threshold": 0.5}
        )
    if source.kind == "label":
        return InputError.invalid_data(
            argument, f"holds {value:g}, which is not a class", "Give classes as whole numbers or text."
        )
    remedy = "Code it 0/1, or say which value counts: {positive}."
    return InputError.invalid_data(argument, f"holds {value:g}, not only 0 and 1", remedy, settings={"positive": "…"})


def check_labels(rows: Rows, inputs: Mapping[str, Input]) -> None:
    """Refuse labels of which some are numbers and some are text: they would never agree."""
    import narwhals as nw

    schema = rows.frame.collect_schema()
    labels = [label for label in inputs.values() if label.kind == "label"]
    types = [schema[source_column(rows, label)] for label in labels]
    if len({dtype.is_numeric() or dtype == nw.Boolean for dtype in types}) > 1:
        argument = Argument(
            ", ".join(label.parameter or "" for label in labels), tuple(label.column for label in labels)
        )
        kinds = " and ".join(str(dtype) for dtype in types)
        raise InputError.mismatch(
            argument, f"hold {kinds}, which never agree", "Give both as text, or both as numbers."
        )


def _distinct_values(columns: list[Column]) -> set[Any]:
    return {value for column in columns for value in factorize(column)[1] if value is not None}


def some_values(rows: Rows, column: str) -> list[str]:
    """Some values of a column as text."""
    import narwhals as nw

    sample = fetch(rows.frame.select(nw.col(column).alias("v")).unique().head(4))["v"]
    return sorted(str(v) for v in factorize(sample)[1] if v is not None)


def _show_examples(rows: Rows, column: str) -> str:
    return " or ".join(map(repr, some_values(rows, column)))


# ------------------------------------------------------------------------------------------------- variables of metrics


class Expressions:
    """Input columns by role.

    Args:
        names: Role → name in the frame.
        single: Roles whose columns hold numbers of single precision.
    """

    def __init__(self, names: Mapping[str, str], single: frozenset[str] = frozenset()) -> None:
        self._names, self._single = names, single
        self.used: dict[str, Any] = {}  # the columns that were asked for, by name

    def __getitem__(self, role: str) -> Any:
        import narwhals as nw

        name = self._names[role]
        return self.used.setdefault(name, nw.col(name))

    def __contains__(self, role: object) -> bool:
        return role in self._names

    def where(self, condition: Any, value: Any, otherwise: Any = None) -> Any:
        """`value` in rows where the condition holds, `otherwise` (null) in the rest."""
        import narwhals as nw

        value, otherwise = (nw.lit(v) if isinstance(v, int | float) else v for v in (value, otherwise))
        chosen = nw.when(condition).then(value)
        if otherwise is None:
            return chosen
        # A null condition is neither: it must not fall into the other branch.
        return nw.when(~condition.is_null()).then(chosen.otherwise(otherwise))

    def log(self, value: Any) -> Any:
        """Natural logarithm."""
        return value.log()

    def at_least(self, role: str, threshold: float) -> Any:
        """1 in rows where an input reaches a threshold, 0 in the rest.

        A single-precision 0.7 is a little less than 0.7; it is meant to reach it, so the threshold is rounded likewise.
        """
        edge = float(np.float32(threshold)) if role in self._single else float(threshold)
        return self.where(self[role] >= edge, 1.0, 0.0)

    def under(self, prefix: str) -> Expressions:
        """The inputs whose roles start with a prefix, by the rest of their roles."""
        names = {role.removeprefix(prefix): name for role, name in self._names.items() if role.startswith(prefix)}
        part = Expressions(names, frozenset(r.removeprefix(prefix) for r in self._single if r.startswith(prefix)))
        part.used = self.used
        return part


def form_variables(
    request: Request, names: Mapping[str, str] | None = None, single: frozenset[str] = frozenset()
) -> list[tuple[str | None, Any]]:
    """The variables of a request, as expressions; and which column one is, where it is a column as it stands.

    Args:
        request: What is asked.
        names: Role (of a sum over units, its name) → name in the frame; by default these themselves, to learn which
            variables there are.
        single: Roles of single precision.

    Raises:
        InputError: If it uses an input it does not have, or forms nothing.
    """
    import narwhals as nw

    if names is None:
        names = {role: role for role in (*request.inputs, *request.centred)}
        names = names if request.sums is None else {name: name for name in request.sums(Expressions(names))}
    columns = Expressions(names, single)
    try:
        variables = request.variables(columns)
    except KeyError as error:
        raise InputError.not_found(
            "metric", f"has no input {error.args[0]!r}", f"It has: {', '.join(names)}.", request.name
        ) from error
    if not isinstance(variables, Mapping):
        problem = f"its variables are {shorten(variables)}, not a dict"
        raise InputError.wrong_return(
            "metric", problem, 'Return for example {"x": c["x"]}.', request.name, form="clause"
        )
    for name, variable in variables.items():
        if not isinstance(variable, nw.Expr | Real):
            problem = f"its variable {shorten(name)} is {shorten(variable)}, which is not formed of columns"
            raise InputError.wrong_return(
                "metric", problem, 'Return for example {"x": c["x"]}.', request.name, form="clause"
            )
    if not variables:
        raise InputError.wrong_return("metric", "forms no variables", "Return at least one.", request.name)
    # A plain number becomes a column that is null where rows are dropped.
    first = nw.col(next(iter(names.values())))
    expressions = [0 * first + float(v) if isinstance(v, Real) else v for v in variables.values()]
    names_of = {id(column): name for name, column in columns.used.items()}
    return [(names_of.get(id(expression)), expression) for expression in expressions]
