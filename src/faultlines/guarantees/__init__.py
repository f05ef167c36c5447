"""Error control: a guarantee turns groups into a path of partitions, each with an adjusted p.

Here are guarantees by their names: the one table that arguments, the command line and the documentation read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faultlines.errors import InputError, did_you_mean
from faultlines.guarantees.calibrated import Calibrated
from faultlines.guarantees.paper import Bonferroni, Folds, Holdout

if TYPE_CHECKING:
    from faultlines.guarantees.base import Guarantee

GUARANTEES: dict[str, type[Any]] = {
    "calibrated": Calibrated,
    "bonferroni": Bonferroni,
    "holdout": Holdout,
    "folds": Folds,
}


# Other names of the calibrated guarantee, with its settings.
OTHER_NAMES: dict[str, dict[str, Any]] = {"topmerge": {"scan": False}}
_OF_SEVERAL_RESULTS = {"fdr", "bh", "benjamini-hochberg", "holm", "bonferroni-holm"}


def unknown_guarantee_error(value: object, word: object) -> InputError:
    """The error for a guarantee that does not exist, with what was probably meant.

    Args:
        value: The argument.
        word: The part of it that should be a name.

    Returns:
        The error, to be raised.
    """
    remedy = did_you_mean(word, [*GUARANTEES, *OTHER_NAMES])
    if isinstance(word, str) and word.casefold().replace("_", "-") in _OF_SEVERAL_RESULTS:
        remedy = (
            "Leave it out: within one result the probability of any false positive is at most α. Several results are"
            " corrected together by fl.holm, fl.audit or fl.cluster_many with {correction} or 'bh'."
        )
    return InputError.unknown("guarantee", "is not known", remedy, value, settings={"correction": "holm"})


def resolve_guarantee(value: str | Guarantee) -> Guarantee:
    """A guarantee from its name, or as it is.

    Args:
        value: A name or a guarantee.

    Returns:
        The guarantee.

    Raises:
        InputError: If there is none of that name, or it is not a guarantee.
    """
    if isinstance(value, str):
        if value in GUARANTEES:
            guarantee: Guarantee = GUARANTEES[value]()
            return guarantee
        if value in OTHER_NAMES:
            return Calibrated(**OTHER_NAMES[value])
        raise unknown_guarantee_error(value, value)
    if isinstance(value, type) or not (hasattr(value, "find_path") and hasattr(value, "shares")):
        raise unknown_guarantee_error(value, value)
    return value
