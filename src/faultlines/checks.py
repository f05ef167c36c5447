"""Arguments as they can be used: each check takes name and value and returns the value, or raises an `InputError`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from numbers import Integral, Real
from typing import Any

from faultlines.errors import InputError, did_you_mean, to_install


def number(
    name: str,
    value: Any,
    problem: str,
    remedy: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    ends: str = "[]",
    whole: bool = False,
    settings: Mapping[str, object] | None = None,
) -> float:
    """A finite real number between `low` and `high`; `ends` says like an interval which of them are allowed.

    Args:
        name: The parameter, for the message.
        value: What was given. Booleans are not numbers; NumPy's numbers are.
        problem: What to say when it cannot be used: ``"must be …"``.
        remedy: What to do then.
        low: The smallest value.
        high: The largest value.
        ends: ``"[]"``, ``"(]"``, ``"[)"`` or ``"()"``.
        whole: Whether it must be an integer.
        settings: Values of the settings that the remedy names; see `InputError`.

    Returns:
        The number, as Python's own.

    Raises:
        InputError: ``wrong type`` if it is not a finite number (of that kind), ``out of range`` if it is outside.
    """
    kind = Integral if whole else Real
    # NumPy registers its numbers with these, and not its booleans; Python's booleans are integers.
    if not isinstance(value, kind) or isinstance(value, bool) or not _is_finite(value):
        # Infinity, and a whole number that no double can hold, are numbers out of any range; NaN is none.
        is_number = isinstance(value, Real) and not isinstance(value, bool) and value == value  # noqa: PLR0124
        make = InputError.out_of_range if is_number else InputError.wrong_type
        raise make(name, problem, remedy, value, settings=settings, form="must")
    plain = int(value) if whole else float(value)  # type: ignore[call-overload]
    above = low < plain if ends[0] == "(" else low <= plain
    below = plain < high if ends[1] == ")" else plain <= high
    if not (above and below):
        raise InputError.out_of_range(name, problem, remedy, value, settings=settings, form="must")
    return plain


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number or fraction that no double can hold
        return False


def alpha(value: Any) -> float:
    """A significance level."""
    remedy, example = "For 5%, use {alpha}.", 0.05
    if (
        isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value < 100
    ):  # most likely meant in percent
        remedy, example = f"For {float(value):g}%, use {{alpha}}.", float(f"{float(value) / 100:.12g}")
    problem = "must be between 0 and 1"
    return number("alpha", value, problem, remedy, low=1e-305, high=1, ends="()", settings={"alpha": example})


def seed(value: Any) -> int:
    """A seed of random numbers."""
    problem = "must be a whole number, 0 or more"
    return int(number("seed", value, problem, "Use for example {seed}.", low=0, whole=True, settings={"seed": 0}))


def size(value: Any) -> float:
    """A smallest group size."""
    problem, remedy = "must be a number, 0 or more", "Use for example {min_size}."
    return number("min_size", value, problem, remedy, low=0, settings={"min_size": 30})


def runs(value: Any, least: int, usual: int) -> int:
    """A number of simulations."""
    problem = f"must be a whole number from {least} on"
    return int(number("runs", value, problem, "Use {runs}.", low=least, whole=True, settings={"runs": usual}))


def flag(name: str, value: Any) -> bool:
    """True or false, as Python or NumPy have them."""
    if type(value).__name__ not in {"bool", "bool_"}:
        raise InputError.wrong_type(
            name, "must be true or false", f"Use {name}=True or {name}=False.", value, form="must"
        )
    return bool(value)


def choice(name: str, value: Any, allowed: Iterable[str], remedy: str | None = None) -> str:
    """One of some words."""
    words = list(allowed)
    if not isinstance(value, str) or value not in words:
        raise InputError.unknown(name, "is not known", remedy or did_you_mean(value, words), value)
    return value


def column(name: str, value: Any) -> str:
    """The name of a column."""
    if not isinstance(value, str) or not value:
        raise InputError.wrong_type(name, "is not the name of a column", "Give a column by its name.", value)
    return value


def text(name: str, value: Any) -> str | None:
    """Text, or none."""
    if value is not None and not isinstance(value, str):
        raise InputError.wrong_type(name, "is not text", "Give a string.", value)
    return value


def missing_for_report() -> list[str]:
    """Libraries of the extra `report` that are not installed."""
    return [name for name in ("altair", "vl_convert", "jinja2") if find_spec(name) is None]


def need_report(what: str) -> None:
    """Say which libraries are missing for charts and pages, if some are."""
    if missing := missing_for_report():
        raise InputError.not_installed(what, f"needs {', '.join(missing)}", to_install("report"))
