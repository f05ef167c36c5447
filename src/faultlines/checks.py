"""Arguments as they can be used: each check takes name and value and returns the value, or raises an `InputError`."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from faultlines.errors import InputError, did_you_mean, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable


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
) -> float:
    """A finite real number between `low` and `high`; `ends` says like an interval which of them are allowed.

    Args:
        name: The parameter, for the message.
        value: What was given. Booleans are not numbers; NumPy's numbers are.
        problem: What to say when it cannot be used.
        remedy: What to do then.
        low: The smallest value.
        high: The largest value.
        ends: ``"[]"``, ``"(]"``, ``"[)"`` or ``"()"``.
        whole: Whether it must be an integer.
    """
    kind = Integral if whole else Real
    # NumPy registers its numbers with these, and not its booleans; Python's booleans are integers.
    good = isinstance(value, kind) and not isinstance(value, bool) and _is_finite(value)
    given = 0.0 if not good else value if whole else float(value)
    if good:
        above = low < given if ends[0] == "(" else low <= given
        good = above and (given < high if ends[1] == ")" else given <= high)
    if not good:
        raise InputError(f"{name}={shorten(value)}", problem, remedy)
    return int(given) if whole else float(given)


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number or fraction that no double can hold
        return False


def alpha(value: Any) -> float:
    """A level of significance."""
    return number(
        "alpha",
        value,
        "must lie strictly between 0 and 1",
        "Use for example alpha=0.05.",
        low=1e-305,
        high=1,
        ends="()",
    )


def seed(value: Any) -> int:
    """A seed of random numbers."""
    return int(number("seed", value, "must be a whole number, 0 or more", "Use for example seed=0.", low=0, whole=True))


def size(value: Any) -> float:
    """A smallest group size."""
    return number("min_size", value, "must be a number, 0 or more", "Use for example min_size=30.", low=0)


def runs(value: Any, least: int, usual: int) -> int:
    """A number of simulations."""
    problem = f"must be a whole number from {least} on"
    return int(number("runs", value, problem, f"Use runs={usual}.", low=least, whole=True))


def flag(name: str, value: Any) -> bool:
    """True or false, as Python or NumPy have them."""
    if type(value).__name__ not in {"bool", "bool_"}:
        raise InputError(f"{name}={shorten(value)}", "must be true or false", f"Use {name}=True or {name}=False.")
    return bool(value)


def choice(name: str, value: Any, known: Iterable[str], remedy: str | None = None) -> str:
    """One of some words."""
    words = list(known)
    if not isinstance(value, str) or value not in words:
        raise InputError(f"{name}={shorten(value)}", "is not known", remedy or did_you_mean(value, words))
    return value


def column(name: str, value: Any) -> str:
    """The name of a column."""
    if not isinstance(value, str) or not value:
        raise InputError(f"{name}={shorten(value)}", "is not the name of a column", "Give a column by its name.")
    return value


def text(name: str, value: Any) -> str | None:
    """Text, or none."""
    if value is not None and not isinstance(value, str):
        raise InputError(f"{name}={shorten(value)}", "is not text", "Give a string.")
    return value
