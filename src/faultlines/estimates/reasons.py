"""Why a group or a row was not used: a code and fields for programs, words for people made of them here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from faultlines.types import BoolArray

Reasons = npt.NDArray[np.object_]  # a Reason for each group, None where it can be used


class ReasonCode(StrEnum):
    """Why a group cannot be used."""

    CUSTOM = "custom"  # what a metric of the user says
    DETERMINED = "determined"
    EMPTY_DENOMINATOR = "empty denominator"
    LOST_DIGITS = "lost digits"  # a variance that cannot be told from rounding
    MEAN_BELOW_ZERO = "mean below zero"
    MEAN_NEAR_ZERO = "mean near zero"
    NOT_A_SHARE = "not a share"
    NOT_FINITE = "not finite"
    NOT_IN_DATA = "not in the data"
    NO_GROUPS = "no groups"  # of an experiment among many
    NO_ROWS = "no rows"
    NO_VALUE = "no value"
    NO_VALUE_IN_DRAWS = "no value in draws"
    TOO_FEW_FOR_VARIANCE = "too few for a variance"
    TOO_FEW_OF_CLASS = "too few of a class"
    TOO_LARGE = "too large"
    TOO_SMALL = "too small"
    VANISHING = "vanishing"  # numbers whose powers are 0 to a double
    ZERO_VALUES = "zero values"
    ZERO_VARIANCE = "zero variance"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a group was not used.

    Attributes:
        code: The kind of reason.
        least: What it has less of than this: rows for ``too small``, standard errors for ``mean near zero``.
        unit: What is counted: ``"rows"``, ``"positives"``; the size of the group where it is empty.
        arm: The arm (control, treatment) or class it is about; ``"any"``: one of them, ``"both"``: both together.
        metric: The one of several metrics measured together that it is about.
        in_part: Whether it is so in a part of the data, where data are divided.
        detail: Words of a metric of the user, or what is wrong with an experiment.

    Example:
        >>> import faultlines as fl
        >>> small = fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 2.5], ["DE", "FR", "IS"], [900, 800, 9])
        >>> reason = fl.cluster(small, min_size=100).excluded[0].reason
        >>> reason.code == "too small", reason.least, reason.text
        (True, 100.0, 'fewer than 100 in the group')
    """

    code: ReasonCode
    least: float | None = None
    unit: str = ""
    arm: str = ""
    metric: str = ""
    in_part: bool = False
    detail: str = ""

    @property
    def text(self) -> str:
        """The reason in words."""
        text = self._words()
        text += f" ({self.metric})" if self.metric else ""
        return f"{text} in a part of the data" if self.in_part else text

    def __str__(self) -> str:
        return self.text

    def _words(self) -> str:
        where = f" in {self.arm}" if self.arm else ""
        match self.code:
            case ReasonCode.TOO_SMALL:
                text = f"fewer than {self.least:g} {self.unit or 'in the group'}" + (" in an arm" if self.arm else "")
            case ReasonCode.TOO_FEW_OF_CLASS:
                text = f"no {self.arm}" if self.least == 1 else f"fewer than two {self.arm}"
            case ReasonCode.TOO_FEW_FOR_VARIANCE:
                text = f"too few rows{where} for a variance"
            case ReasonCode.MEAN_NEAR_ZERO:
                text = f"too few events{'' if self.arm == 'both' else where} for a relative lift"
            case ReasonCode.MEAN_BELOW_ZERO:
                text = f"{self.arm} mean below zero"
            case ReasonCode.CUSTOM | ReasonCode.NO_GROUPS:
                text = self.detail
            case _:
                text = f"{_WORDS[self.code]}{where}"
        return text


_WORDS = {
    ReasonCode.DETERMINED: "one metric determines another",
    ReasonCode.EMPTY_DENOMINATOR: "empty denominator",
    ReasonCode.LOST_DIGITS: "variance as small as rounding",
    ReasonCode.NOT_A_SHARE: "share below 0 or above 1",
    ReasonCode.NOT_FINITE: "not a finite number",
    ReasonCode.NOT_IN_DATA: "not in the data",
    ReasonCode.NO_ROWS: "no rows",
    ReasonCode.NO_VALUE: "no value",
    ReasonCode.NO_VALUE_IN_DRAWS: "no value in too many draws of rows",
    ReasonCode.TOO_LARGE: "numbers too large",
    ReasonCode.VANISHING: "numbers too close to zero",
    ReasonCode.ZERO_VALUES: "values of zero, which need an epsilon below 1",
    ReasonCode.ZERO_VARIANCE: "zero variance",
}


# ------------------------------------------------------------------------------------------------ reasons of all groups


def no_reasons(groups: int) -> Reasons:
    """Room for a reason per group, none yet."""
    return np.full(groups, None, dtype=object)


def unmarked(reasons: Reasons) -> BoolArray:
    """Which groups have no reason, and can be used."""
    return np.fromiter((reason is None for reason in reasons), dtype=bool, count=len(reasons))


def mark(reasons: Reasons, bad: BoolArray, reason: Reason) -> None:
    """Note a reason for groups that have none yet."""
    if bad.any():
        places = np.flatnonzero(bad)
        reasons[places[unmarked(reasons[places])]] = reason


# --------------------------------------------------------------------------------------------- where no group is usable


_DIFFERENCE = "Measure the difference instead of the lift: it has no mean to divide by."
_BOTH = "Use coarser groups that have both, or a metric that needs one of them only."
_REMEDIES = {
    ReasonCode.DETERMINED: "Leave out the metric that follows from the others.",
    ReasonCode.EMPTY_DENOMINATOR: "There is nothing to divide by: weights or denominators are zero, scores all the "
    "same, or no row is of the kind that is counted. Check these columns, or take another metric.",
    ReasonCode.LOST_DIGITS: "Values hardly differ beside their size: measure something that varies more; of means and "
    "differences, subtract a constant first.",  # which would change a lift or an Atkinson index
    ReasonCode.MEAN_BELOW_ZERO: _DIFFERENCE,
    ReasonCode.MEAN_NEAR_ZERO: _DIFFERENCE,
    ReasonCode.NOT_A_SHARE: "Check the columns of sums and counts: more are counted than there are.",
    ReasonCode.NO_ROWS: "No row has all values that are needed as finite numbers: name other columns, or fill them in.",
    ReasonCode.NO_VALUE: "Use coarser groups, or a statistic that is defined for few rows.",
    ReasonCode.NO_VALUE_IN_DRAWS: "Use coarser groups, or a statistic that is defined for few rows.",
    ReasonCode.TOO_FEW_OF_CLASS: _BOTH,
    ReasonCode.TOO_LARGE: "Use other units: such numbers cannot be squared.",
    ReasonCode.VANISHING: "Use other units: powers of such numbers become zero.",
    ReasonCode.ZERO_VALUES: "Use an epsilon below 1, or leave out rows with zero: it is then about the others.",
    ReasonCode.ZERO_VARIANCE: "All values of a group are the same, or differ too little beside their size: "
    "measure something that varies within groups.",
}


def remedy_without_groups(
    reasons: Sequence[Reason], sizes: Sequence[float] = (), usual: float = 0.0
) -> tuple[str, Mapping[str, object]]:
    """What to do where no group can be used: a remedy for the most frequent reason, and the settings it names.

    Args:
        reasons: Why each of them cannot.
        sizes: How large each is, as `min_size` counts it, where that is known.
        usual: The `min_size` that the metric has by itself.

    Returns:
        The remedy as `InputError` takes it, and its settings.
    """
    most = Counter(reasons).most_common(1)[0][0]
    if most.code == ReasonCode.NO_ROWS and most.arm:
        return _BOTH, {}
    if most.code != ReasonCode.TOO_SMALL:
        return _REMEDIES.get(most.code, "Use coarser groups."), {}
    if not sizes:
        return "Use coarser groups, or a smaller min_size.", {}
    largest = float(max(sizes))
    settings: Mapping[str, object] = {"min_size": int(largest) if largest == int(largest) else largest}
    # Groups that are large enough for the metric need not be coarser, and one group cannot be.
    enough = largest >= usual or len(reasons) == 1
    return "Use {min_size} or less." if enough else "Use coarser groups, or {min_size} or less.", settings


# ------------------------------------------------------------------------------------------------------------ rows


class DropCode(StrEnum):
    """Why rows were not used."""

    MISSING_VALUE = "missing value"
    OTHER_VARIANTS = "other variants"

    @property
    def text(self) -> str:
        """The rows in words."""
        return "rows with a missing value" if self is DropCode.MISSING_VALUE else "rows of other variants"


@dataclass(frozen=True, slots=True)
class RowWarning:
    """Something in the rows that a reader of the result must know.

    Attributes:
        code: What it is about: ``"no unit"``, ``"few events"``, ``"dominating group"``, ``"missing covariate"``,
            ``"capped"``, ``"shared data"`` or ``"assumed shape"``.
        text: The same as a sentence.
        fields: The columns and numbers behind it.
    """

    code: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
