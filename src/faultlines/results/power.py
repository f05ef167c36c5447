"""What an experiment can detect, by simulation (`fl.power`), and what a result without clusters leaves possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from faultlines.estimates.labels import Label, name_of
from faultlines.results.protocol import Result
from faultlines.types import FloatArray

Direction = Literal["lower", "higher"]
Verdict = Literal["enough", "not enough", "no gap given"]


@dataclass(frozen=True, slots=True)
class DetectableDifference:
    """What can be detected of one effect in one direction.

    Attributes:
        direction: Whether the groups that differ are lower or higher than the others.
        detected: The probability that the gap asked about is detected; None if none was.
        recovered: The probability that the clusters are exactly the planned ones.
        minimum_detectable: The smallest difference that is detected with the target probability.
        effect: The effect that differs, where several are measured together; the others are equal.

    Example:
        >>> import faultlines as fl
        >>> power = fl.power([5000] * 20, spread=1.2, gap=0.1, runs=200)
        >>> [(row.direction, row.detected) for row in power.directions]
        [('lower', 1.0), ('higher', 1.0)]
    """

    direction: Direction
    detected: float | None
    recovered: float | None
    minimum_detectable: float
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Power(Result):
    """What an experiment can detect, by simulation: what `fl.power` returns.

    Rates and lifts have more room on one side than on the other, so a drop is not detected as easily as a rise of the
    same size. `detected`, `recovered` and `minimum_detectable` hold in both directions: they are those of the harder
    one. Of several effects measured together one differs at a time: the two probabilities are those of the hardest,
    and `minimum_detectable` has a number for each.

    Attributes:
        gap: The difference that was asked about; None if only the smallest was wanted.
        detected: The probability that it is detected: that "all groups are equal" is rejected.
        recovered: The probability that the clusters are exactly the planned ones.
        minimum_detectable: The smallest difference detected with probability `target`; a tuple for several effects.
        target: That probability.
        alpha: Significance level.
        guarantee: The error control.
        planned: How many groups are planned at each effect, the lowest first.
        runs: Simulated experiments behind each figure.
        directions: The same figures for groups that are lower and for groups that are higher, in this order; for each
            of several effects. For a gap below zero, those of groups that are lower alone.
        along: The attribute along which groups differ; None where any groups do.
        followed: Simulated experiments that `recovered` rests on: how many of those that are detected are recovered.
        n: Units in all groups, as planned; None where sizes are not known.
        needed: Units in all groups with which the gap is detected with probability `target`; None where sizes are not
            known, no gap is given, or several effects are measured.
        days: How many days that takes; None where it was not asked.
        in_points: For each effect, whether people read its differences in percentage points.

    Example:
        >>> import faultlines as fl
        >>> power = fl.power([5000] * 20, spread=1.2, gap=0.1, runs=200)
        >>> power.verdict, power.detected, power.minimum_detectable < 0.1, power.error < 0.04
        ('enough', 1.0, True, True)
    """

    wording: ClassVar[str] = "power"
    json_keys: ClassVar[str] = (
        "verdict headline gap detected recovered minimum_detectable target alpha guarantee planned runs directions "
        "along followed n needed days notes"
    )

    gap: float | None
    detected: float | None
    recovered: float | None
    minimum_detectable: Any
    target: float
    alpha: float
    guarantee: str
    planned: tuple[int, ...]
    runs: int
    directions: tuple[DetectableDifference, ...]
    along: str | None = None
    followed: int = 0
    n: float | None = None
    needed: float | None = None
    days: float | None = None
    in_points: tuple[bool, ...] = (False,)

    @property
    def verdict(self) -> Verdict:
        """``"enough"`` where the gap is detected with the target probability, else ``"not enough"``."""
        if self.detected is None:
            return "no gap given"
        return "enough" if self.detected >= self.target else "not enough"

    @property
    def error(self) -> float:
        """Standard error of the two probabilities at most, from the number of runs."""
        return 0.5 / float(np.sqrt(self.runs))


# ----------------------------------------------------------------------------------------------------- detection limits
# What a null result rules out: the largest difference that is still possible, and what would have been detected.


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
