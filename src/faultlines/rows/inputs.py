"""Inputs cleaned in the engine, and what shows afterwards whether they held what they must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from faultlines.errors import InputError, shorten, shorten_text, to_numbers
from faultlines.rows.keys import finite
from faultlines.sources.fetch import factorised, fetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faultlines.rows.request import Input
    from faultlines.sources.fetch import Column
    from faultlines.sources.frames import Rows


_FRACTION = r"^\s*-?[0-9]*\.[0-9]*[1-9][0-9]*\s*$"  # text that is a number, and not a whole one


class Cleaned(NamedTuple):
    """A cleaned input, null where it has no value, and expressions of values that it should not hold."""

    value: Any
    checks: dict[str, Any]


def is_label(wanted: Input) -> bool:
    """Whether an input of csv is compared with a label, as text."""
    return wanted.kind == "label" or (wanted.kind in {"binary", "class"} and isinstance(wanted.positive, str))


def source(rows: Rows, wanted: Input) -> str:
    """The column of an input in the frame."""
    return (rows.keys if is_label(wanted) else rows.numbers)[wanted.column]


def cleaned(rows: Rows, wanted: Input, parameter: str) -> Cleaned:
    """An input as doubles, NaN and infinity as null, labels as 0 and 1."""
    import narwhals as nw

    column = source(rows, wanted)
    dtype = rows.frame.collect_schema()[column]
    simple = dtype.is_numeric() or dtype == nw.Boolean
    shown = f"{parameter}={shorten(wanted.column)}"
    if wanted.kind in {"binary", "class"} and wanted.positive is not None:
        return _labelled(column, dtype, simple, wanted)
    if wanted.kind in {"label", "any"} and not simple:
        if dtype.is_nested():
            raise InputError(shown, f"holds {shorten_text(str(dtype), 80)}, not labels", "Name a plain column.")
        text = nw.col(column).cast(nw.String)
        return Cleaned(text, {"odd": nw.when(text.str.contains(_FRACTION)).then(text)} if is_label(wanted) else {})
    if not simple and wanted.kind == "binary" and dtype.is_nested():
        raise InputError(shown, f"holds {shorten_text(str(dtype), 80)}, not 0/1 or booleans", "Name a plain column.")
    if not simple and wanted.kind == "binary":
        some = _examples(rows, column)
        raise InputError(shown, f"holds {dtype}, not 0/1 or booleans", f"Say which label counts: positive={some}.")
    if not simple:
        remedy = to_numbers([] if dtype.is_nested() else some_values(rows, column), "Name a numeric column.")
        raise InputError(shown, f"the column is not numeric ({dtype})", remedy)
    value = finite(column, dtype)
    odd = {
        "number": None,
        "any": None,
        "binary": (value != 0) & (value != 1),
        "class": (value != 0) & (value != 1),
        "label": value != value.floor(),
        "probability": (value < 0) | (value > 1),
        "weight": value < 0,
        "amount": value < 0,
    }[wanted.kind]
    return Cleaned(value, {} if odd is None else {"odd": nw.when(odd).then(value)})


def _labelled(column: str, dtype: Any, simple: bool, wanted: Input) -> Cleaned:
    import narwhals as nw

    raw = finite(column, dtype) if simple else nw.col(column).cast(nw.String)
    positive = _coded(wanted, dtype) if simple else str(wanted.positive)
    coded = nw.when(~raw.is_null()).then(nw.when(raw == positive).then(nw.lit(1.0)).otherwise(nw.lit(0.0)))
    checks = {"seen": nw.when(raw == positive).then(raw)}
    if wanted.kind == "binary":  # there is but one label beside the one that counts
        checks["other"] = nw.when(raw != positive).then(raw)
    return Cleaned(coded, checks)


def _coded(wanted: Input, dtype: Any) -> float:
    """The label that counts, as a number or truth value of its column; from the command line it comes as text."""
    value = {"true": 1.0, "false": 0.0}.get(str(wanted.positive).lower(), wanted.positive)
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"positive={shorten(wanted.positive)}",
            f"but {shorten(wanted.column)} holds {dtype}",
            "Give a value of the column.",
        ) from error


def check(rows: Rows, wanted: Input, parameter: str, ends: Mapping[str, list[Column]], usable: float) -> None:
    """Refuse an input that held what it must not hold.

    Args:
        rows: The rows, for examples of what there is.
        wanted: The input.
        parameter: The parameter that named it.
        ends: Check → smallest and largest such values by group.
        usable: How many rows could be used.
    """
    shown = f"{parameter}={shorten(wanted.column)}"
    found = {kind: _distinct(columns) for kind, columns in ends.items()}
    if found.get("odd"):
        raise _odd(shown, wanted, parameter, found["odd"])
    if "seen" in found and not found["seen"] and usable > 0 and not wanted.may_lack:
        raise InputError(
            f"positive={shorten(wanted.positive)}",
            f"no row of {shorten(wanted.column)} has it",
            f"There are: {_examples(rows, source(rows, wanted))}.",
        )
    if len(found.get("other", ())) > 1:
        others = ", ".join(shorten(value) for value in sorted(found["other"], key=str)[:3])
        problem = f"holds more than two values: {shorten(wanted.positive)}, {others}"
        several = " Or count all others as 0: classes=True." if parameter.startswith(("y_true", "y_pred")) else ""
        raise InputError(shown, problem, f"Give a column of two.{several}")


def _odd(shown: str, wanted: Input, parameter: str, values: set[Any]) -> InputError:
    """What an input holds that it must not hold, and what was probably meant."""
    value = float(min(values, key=float))
    if wanted.kind == "probability":
        percent = " Divide per cent by 100." if 1 < max(map(float, values)) <= 100 else ""
        return InputError(shown, f"holds {value:g}, outside [0, 1]", f"Give probabilities.{percent}")
    if wanted.kind == "weight":
        return InputError(shown, f"holds the weight {value:g}", "Weights must not be negative.")
    if wanted.kind == "amount":
        remedy = "Give amounts from 0 on: inequality of negative ones is not defined."
        return InputError(shown, f"holds {value:g}", remedy)
    if parameter.startswith("y_pred") and any(0 < float(one) < 1 for one in values):
        remedy = "If these are probabilities, name the column as score, with a threshold: score=…, threshold=0.5."
        return InputError(shown, f"holds {value:g}, which is no predicted class", remedy)
    if wanted.kind == "label":
        return InputError(shown, f"holds {value:g}, which is no class", "Give classes as whole numbers or text.")
    remedy = "Code it 0/1, or say which value counts: positive=…"
    return InputError(shown, f"holds {value:g}, not only 0 and 1", remedy)


def check_labels(rows: Rows, wanted: Mapping[str, Input]) -> None:
    """Refuse labels of which some are numbers and some are text: they would never agree."""
    import narwhals as nw

    schema = rows.frame.collect_schema()
    labels = [one for one in wanted.values() if one.kind == "label"]
    types = [schema[source(rows, one)] for one in labels]
    if len({dtype.is_numeric() or dtype == nw.Boolean for dtype in types}) > 1:
        shown = ", ".join(f"{one.parameter}={shorten(one.column)}" for one in labels)
        told = " and ".join(str(dtype) for dtype in types)
        raise InputError(shown, f"hold {told}, which never agree", "Give both as text, or both as numbers.")


def _distinct(columns: list[Column]) -> set[Any]:
    return {value for column in columns for value in factorised(column)[1] if value is not None}


def some_values(rows: Rows, column: str) -> list[str]:
    """Some values of a column as text."""
    import narwhals as nw

    some = fetch(rows.frame.select(nw.col(column).alias("v")).unique().head(4))["v"]
    return sorted(str(v) for v in factorised(some)[1] if v is not None)


def _examples(rows: Rows, column: str) -> str:
    return " or ".join(map(repr, some_values(rows, column)))
