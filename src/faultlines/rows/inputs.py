"""Inputs cleaned in the engine, and what shows afterwards whether they held what they must hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from faultlines.errors import InputError, shorten, shorten_text
from faultlines.rows.keys import finite
from faultlines.sources.fetch import factorised, fetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from faultlines.rows.request import Input
    from faultlines.sources.fetch import Column
    from faultlines.sources.frames import Rows


class Cleaned(NamedTuple):
    """A cleaned input, null where it has no value, and expressions of values that it should not hold."""

    value: Any
    checks: dict[str, Any]


def is_label(wanted: Input) -> bool:
    """Whether an input of csv is compared with a label, as text."""
    return wanted.kind == "binary" and isinstance(wanted.positive, str)


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
    if wanted.kind == "binary" and wanted.positive is not None:
        return _labelled(column, dtype, simple, wanted)
    if not simple and wanted.kind == "binary" and dtype.is_nested():
        raise InputError(shown, f"holds {shorten_text(str(dtype), 80)}, not 0/1 or booleans", "Name a plain column.")
    if not simple and wanted.kind == "binary":
        some = _examples(rows, column)
        raise InputError(shown, f"holds {dtype}, not 0/1 or booleans", f"Say which label counts: positive={some}.")
    if not simple:
        raise InputError(shown, f"the column is not numeric ({dtype})", "Name a numeric column.")
    value = finite(column, dtype)
    odd = {
        "number": None,
        "binary": (value != 0) & (value != 1),
        "probability": (value < 0) | (value > 1),
        "weight": value < 0,
    }[wanted.kind]
    return Cleaned(value, {} if odd is None else {"odd": nw.when(odd).then(value)})


def _labelled(column: str, dtype: Any, simple: bool, wanted: Input) -> Cleaned:
    import narwhals as nw

    raw = finite(column, dtype) if simple else nw.col(column).cast(nw.String)
    positive = _coded(wanted, dtype) if simple else str(wanted.positive)
    coded = nw.when(~raw.is_null()).then(nw.when(raw == positive).then(nw.lit(1.0)).otherwise(nw.lit(0.0)))
    seen, other = nw.when(raw == positive).then(raw), nw.when(raw != positive).then(raw)
    return Cleaned(coded, {"seen": seen, "other": other})


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
        value = min(found["odd"])
        if wanted.kind == "probability":
            raise InputError(shown, f"holds {value:g}, outside [0, 1]", "Give probabilities.")
        if wanted.kind == "weight":
            raise InputError(shown, f"holds the weight {value:g}", "Weights must not be negative.")
        remedy = "Code it 0/1, or say which value counts: positive=…"
        raise InputError(shown, f"holds {value:g}, not only 0 and 1", remedy)
    if "seen" in found and not found["seen"] and usable > 0:
        raise InputError(
            f"positive={shorten(wanted.positive)}",
            f"no row of {shorten(wanted.column)} has it",
            f"There are: {_examples(rows, source(rows, wanted))}.",
        )
    if len(found.get("other", ())) > 1:
        others = ", ".join(shorten(value) for value in sorted(found["other"], key=str)[:3])
        problem = f"holds more than two values: {shorten(wanted.positive)}, {others}"
        raise InputError(shown, problem, "Give a column of two.")


def _distinct(columns: list[Column]) -> set[Any]:
    return {value for column in columns for value in factorised(column)[1] if value is not None}


def _examples(rows: Rows, column: str) -> str:
    import narwhals as nw

    some = fetch(rows.frame.select(nw.col(column).alias("v")).unique().head(4))["v"]
    return " or ".join(repr(text) for text in sorted(str(v) for v in factorised(some)[1] if v is not None))
