"""Which values of a column are the control and the treatment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faultlines.errors import InputError, shorten
from faultlines.estimates.labels import match
from faultlines.rows.request import EVERY

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from faultlines.rows.request import Arms


def arm_places(values: Sequence[Hashable], arms: Arms) -> tuple[int, ...]:
    """The places of control and treatments among the distinct values of the column.

    A value that is there exactly is taken; one that only reads the same (1 and "1") where no other does.

    Args:
        values: The distinct values, without null.
        arms: What is compared.

    Raises:
        InputError: If one is not there, or it is left open which is meant.
    """
    shown = _shown(values)

    def place_of(parameter: str, wanted: Any) -> int:
        try:
            found = match([(wanted,)], [(value,) for value in values], parameter)[0]
        except InputError as error:
            given = f"{parameter}={shorten(wanted)}"
            raise InputError(given, error.problem, "Give it exactly as the column has it.") from error
        if found < 0:
            problem = f"no row of {shorten(arms.column)} has it"
            raise InputError(f"{parameter}={shorten(wanted)}", problem, f"There are: {shown}.")
        return found

    control = place_of("control", arms.control)
    others = [place for place in range(len(values)) if place != control]
    every = arms.several and arms.treatments == (EVERY,) and EVERY not in values
    if arms.treatment is not None and not every:
        treatments = [place_of("treatment", one) for one in arms.treatments]
        if control in treatments or len(set(treatments)) < len(treatments):
            given = f"treatment={shorten(arms.treatment)}"
            problem = "is the control as well" if control in treatments else "names a variant twice"
            raise InputError(given, problem, "Name two different variants.")
        return control, *treatments
    if not others:
        problem = f"holds {shorten(values[control])} alone"
        raise InputError(f"variant={shorten(arms.column)}", problem, "An experiment needs two variants.")
    if len(others) > 1 and not every:
        raise InputError(
            f"variant={shorten(arms.column)}",
            f"has {len(others)} variants beside {shorten(values[control])}",
            f"Say which is the treatment: {_shown([values[i] for i in others])}; or several, in a list.",
        )
    return control, *sorted(others, key=lambda place: str(values[place]))


def _shown(values: Sequence[Hashable]) -> str:
    return ", ".join(shorten(value) for value in sorted(values, key=str)[:10])
