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


# Other words for the calibrated guarantee.
ALSO: dict[str, dict[str, Any]] = {"stepdown": {"stepdown": True}, "topmerge": {"scan": False}}
_OF_SEVERAL = {"fdr", "bh", "benjamini-hochberg", "holm", "bonferroni-holm"}


def unknown_guarantee(value: object, word: object) -> InputError:
    """The error for a guarantee that there is not, with what was probably meant.

    Args:
        value: What was given.
        word: The part of it that should be a name.
    """
    remedy = did_you_mean(word, [*GUARANTEES, *ALSO])
    if isinstance(word, str) and word.casefold().replace("_", "-") in _OF_SEVERAL:
        remedy = (
            "Leave it out: within one result the chance of any false claim is α. Several results are corrected together"
            " by fl.holm, fl.audit or fl.cluster_many(correction='holm' or 'bh')."
        )
    return InputError(f"guarantee={shorten(value)}", "is not known", remedy)


def guarantee_of(value: str | Guarantee) -> Guarantee:
    """A guarantee given by its name or as itself."""
    if isinstance(value, str) and value in GUARANTEES:
        made: Guarantee = GUARANTEES[value]()
        return made
    if isinstance(value, str) and value in ALSO:
        return Calibrated(**ALSO[value])
    if isinstance(value, str) or not (hasattr(value, "judge") and hasattr(value, "shares")) or isinstance(value, type):
        raise unknown_guarantee(value, value)
    return value
