"""From words to a guarantee, by the one table of guarantees."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from faultlines.errors import InputError

if TYPE_CHECKING:
    from faultlines.cli.options import Claim
    from faultlines.guarantees.base import Guarantee

# What may stand behind the colon, as in holdout:0.3.
_SIZES: dict[str, tuple[str, type[Any]]] = {"holdout": ("fraction", float), "folds": ("n", int)}


def chosen_guarantee(claim: Claim, split_unit: str | None = None) -> Guarantee:
    """The guarantee that was asked for."""
    from faultlines.guarantees.choose import ALSO, GUARANTEES, unknown_guarantee

    known = {**GUARANTEES, **dict.fromkeys(ALSO, GUARANTEES["calibrated"])}
    kind, colon, size = claim.guarantee.partition(":")
    if kind not in known:
        raise unknown_guarantee(claim.guarantee, kind)
    settings: dict[str, Any] = dict(ALSO.get(kind, {}))
    if colon:
        settings |= _size(claim.guarantee, kind, size)
    asked = (("draws", "draws", claim.draws), ("splits", "splits", claim.splits), ("split_unit", "unit", split_unit))
    for option, parameter, value in asked:
        if value is None:
            continue
        takers = [name for name, made in known.items() if parameter in {field.name for field in fields(made)}]
        if kind not in takers:
            remedy = f"Leave it out, or use {' or '.join(takers)}."
            raise InputError(f"{option}={value!r}", f"means nothing to {claim.guarantee}", remedy)
        settings[parameter] = value
    made: Guarantee = known[kind](**settings)
    return made


def _size(word: str, kind: str, size: str) -> dict[str, Any]:
    try:
        parameter, number = _SIZES[kind]
        return {parameter: number(size)}
    except (KeyError, ValueError) as error:
        raise InputError(f"guarantee={word!r}", "is not known", "Write holdout:0.3 or folds:10.") from error
