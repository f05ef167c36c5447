"""What a result without clusters leaves possible: how far a group may still be away, and what would have been seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faultlines import text
from faultlines.estimates.labels import name_of, named_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from faultlines.estimates.labels import Label
    from faultlines.estimates.scales import FloatArray

    Size = Callable[[int, float], str]


@dataclass(frozen=True, slots=True, eq=False)
class Unseen:
    """What cannot be excluded of one effect where no difference can be claimed.

    Attributes:
        part: The effect, where several are measured together; "" otherwise.
        group: The group that may be farthest from the overall.
        largest: How far it may be, as people read it: with confidence 1 − α no group is farther away. It is the gap
            that `fl.certify` would certify, and needs no correction for the number of groups.
        is_above: Whether it may be that far above the overall, and not below it.
        lower: Lower ends of every group's difference from the overall, at the level 1 − α for all groups together.
        upper: Upper ends.
        halves: The smallest difference between two halves of the groups that would have been detected with the power
            `target`; None where none would have been, or it was not simulated.
        one: The same where a single group differs.
        target: That power.
        alpha: The level.
        simulated: Whether it was simulated: not for very many groups, nor where every simulated experiment takes long.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 0.2], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> left = found.unseen[0]
        >>> left.group, round(left.largest, 2), left.to_dict(found.estimates.labels)["group"]
        ('DE', 0.77, 'DE')
    """

    part: str
    group: Label
    largest: float
    is_above: bool
    lower: FloatArray
    upper: FloatArray
    halves: float | None
    one: float | None
    target: float
    alpha: float
    simulated: bool

    def to_dict(self, labels: Sequence[Label]) -> dict[str, Any]:
        """Everything as plain data; `labels` are those of the groups.

        Args:
            labels: Names of the groups, in the order of the estimates.

        Returns:
            Plain data.
        """
        ends = zip(labels, self.lower.tolist(), self.upper.tolist(), strict=True)
        return {
            "part": self.part or None,
            "group": name_of(self.group),
            "largest": self.largest,
            "direction": "above" if self.is_above else "below",
            "target": self.target,
            "half_of_the_groups": self.halves,
            "one_group": self.one,
            "simulated": self.simulated,
            "groups": [{"group": name_of(label), "lower": low, "upper": high} for label, low, high in ends],
        }


def unseen_words(several: Sequence[Unseen], size: Size, attributes: Sequence[str]) -> Iterator[str]:
    """The same in sentences; `size` writes a difference of one of the effects."""
    for i, one in enumerate(several):
        of_part = f" in {one.part}" if one.part else ""
        where, name = "above" if one.is_above else "below", named_by(one.group, attributes)
        yield (
            f"Not excluded{of_part}: that {name} is up to {size(i, one.largest)} {where} the overall; "
            f"no group is farther away from it, with {text.level(one.alpha)} confidence."
        )
        yield _would_have_been(one, i, of_part, size)


def _would_have_been(one: Unseen, i: int, of_part: str, size: Size) -> str:
    """What would have been seen."""
    if not one.simulated:
        return f"What differences{of_part} would have been seen was not simulated here; fl.power does it."
    said = []
    for gap, what in ((one.halves, "half of the groups differ from the others"), (one.one, "one group differs")):
        said.append(f"if {what}, {'no gap' if gap is None else f'a gap of {size(i, gap)}'}")
    return f"Would have been seen{of_part} with {one.target:.0%} power: {'; '.join(said)}."
