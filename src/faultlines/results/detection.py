"""What a null result rules out: the largest difference that is still possible, and what would have been detected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faultlines.estimates.labels import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.labels import Label
    from faultlines.estimates.scales import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class DetectionLimit:
    """What is not ruled out of one effect where no difference was found.

    Attributes:
        effect: The effect, where several are measured together; "" otherwise.
        group: The group that may be farthest from the overall.
        largest_difference: How far it may be, as people read it: with confidence 1 − α no group is farther away. It is
            the gap that `fl.certify` would certify, and needs no correction for the number of groups.
        is_above: Whether it may be that far above the overall, and not below it.
        lower: Lower ends of every group's difference from the overall, at the level 1 − α for all groups together.
        upper: Upper ends.
        half_of_groups: The smallest difference between two halves of the groups that is detected with the probability
            `power`; None where none would have been, or it was not simulated.
        one_group: The same where a single group differs.
        power: That probability.
        alpha: The level.
        simulated: Whether it was simulated: not for very many groups, nor where every simulated experiment takes long.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 0.2], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> limit = c.detection_limits[0]
        >>> limit.group, round(limit.largest_difference, 2), limit.to_dict(c.estimates.labels)["group"]
        ('DE', 0.77, 'DE')
    """

    effect: str
    group: Label
    largest_difference: float
    is_above: bool
    lower: FloatArray
    upper: FloatArray
    half_of_groups: float | None
    one_group: float | None
    power: float
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
            "effect": self.effect or None,
            "group": name_of(self.group),
            "largest_difference": self.largest_difference,
            "direction": "above" if self.is_above else "below",
            "power": self.power,
            "half_of_groups": self.half_of_groups,
            "one_group": self.one_group,
            "simulated": self.simulated,
            "groups": [{"group": name_of(label), "lower": low, "upper": high} for label, low, high in ends],
        }
