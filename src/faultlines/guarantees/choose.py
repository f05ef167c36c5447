"""Guarantees by their names: the one table that arguments, the command line and the documentation read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.guarantees.bonferroni import Bonferroni
from faultlines.guarantees.calibrated import Calibrated
from faultlines.guarantees.folds import Folds
from faultlines.guarantees.holdout import Holdout

if TYPE_CHECKING:
    from faultlines.guarantees.base import Guarantee

GUARANTEES: dict[str, type[Any]] = {
    "calibrated": Calibrated,
    "bonferroni": Bonferroni,
    "holdout": Holdout,
    "folds": Folds,
}


def guarantee_of(value: str | Guarantee) -> Guarantee:
    """A guarantee given by its name or as itself."""
    if isinstance(value, str) and value in GUARANTEES:
        made: Guarantee = GUARANTEES[value]()
        return made
    if isinstance(value, str) or not (hasattr(value, "judge") and hasattr(value, "shares")) or isinstance(value, type):
        raise InputError(f"guarantee={shorten(value)}", "is not known", did_you_mean(value, GUARANTEES))
    return value
