"""The scales estimates are compared on, and the way back to what people read. Scales are values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import betaincinv, gammainccinv, gammaincinv, ndtri, stdtr, stdtrit

from faultlines.errors import InputError
from faultlines.formats import Unit
from faultlines.types import FloatArray

_FEWEST = 1e-9  # events that a beta or gamma law needs
_RARE = 1e-30  # tails below which SciPy's quantiles of Student's t are infinite, or go up where they should go down


def critical_value(tail: FloatArray | float, dof: FloatArray | float | None) -> FloatArray:
    """The value that a normal variable, or Student's t, exceeds with the probability `tail`; below 1e155.

    Args:
        tail: The probability, above 0 and at most a half.
        dof: Degrees of freedom; None for a normal variable.
    """
    if dof is None:
        return np.asarray(-ndtri(tail))
    if np.min(tail) >= _RARE:
        return np.asarray(-stdtrit(dof, tail))
    freedom, tails = np.broadcast_arrays(np.asarray(dof, dtype=np.float64), np.asarray(tail, dtype=np.float64))
    low, high = np.zeros(freedom.shape), np.full(freedom.shape, 350.0)  # logarithms
    for _ in range(80):
        middle = (low + high) / 2
        is_low = stdtr(freedom, -np.exp(middle)) > tails
        low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
    return np.asarray(np.where(tails >= _RARE, -stdtrit(freedom, tails), np.exp(high)))


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale one effect is compared on; this one is the effect itself.

    Attributes:
        name: How it is called in a result.
        is_percent: Whether people read the effect, or differences of it, in per cent.
        is_points: Whether the effect is itself a difference of shares, which people read in percentage points.
        is_share: Whether pooled groups are read as events over trials, whatever the scale makes of them.
        is_straight: Whether a distance on the scale is one in what people read.
        bends: Whether a tolerance has a different size on the scale depending on where the effects lie.
        counted: What sizes of groups are in, where no metric says it.

    Example:
        >>> import faultlines as fl, numpy as np
        >>> scale, rate = fl.rate("bought").scale, np.array([0.2])
        >>> theta = scale.place(rate)
        >>> theta.round(3).tolist(), scale.natural(theta).round(3).tolist(), scale.slope(theta).round(2).tolist()
        ([0.464], [0.2], [0.8])
        >>> lower, upper = scale.ends(rate, theta, np.array([0.01]), 0.025)
        >>> lower.round(3).tolist(), upper.round(3).tolist()
        ([0.184], [0.216])
        >>> scale.effective(rate, np.array([0.0001])).round(4).tolist(), scale.mass(np.array([0.01])).tolist()
        ([0.0125], [2499.5])
        >>> scale.name, scale.room(0.01, -0.05, 0.05), scale.largest_gap(upwards=True)
        ('anscombe', 0.05, 1.0)
        >>> scale.pooled(rate, np.array([2500.0])).round(3).tolist()
        [0.464]
        >>> lift = fl.lift("spend", variant="arm", control="A").scale
        >>> round(lift.distance(0.05), 4), round(lift.tolerance(0.0488), 4)
        (0.0488, 0.05)
    """

    name: str = "identity"
    is_percent: bool = False
    is_points: bool = False
    is_share: ClassVar[bool] = False
    is_straight: ClassVar[bool] = True
    bends: ClassVar[bool] = False
    counted: ClassVar[str] = "units"

    @property
    def unit(self) -> Unit:
        """What stands behind a value as people read it."""
        return " points" if self.is_points else "%" if self.is_percent else ""

    def natural(self, theta: FloatArray) -> FloatArray:
        """From the scale to what people read.

        Args:
            theta: Values on the scale.

        Returns:
            The same as people read them.
        """
        return theta

    def slope(self, theta: FloatArray) -> FloatArray:
        """The derivative of `natural`, for standard errors.

        Args:
            theta: Values on the scale.

        Returns:
            The derivative there.
        """
        return np.ones_like(theta)

    def mass(self, se: FloatArray) -> FloatArray:
        """The weight of natural values when groups are pooled.

        Args:
            se: Standard errors on the scale.

        Returns:
            The weights.
        """
        return np.asarray((se.min() / se) ** 2)

    def place(self, natural: FloatArray) -> FloatArray:
        """From what people read to the scale, for values that are true and not estimated.

        Args:
            natural: Values as people read them.

        Returns:
            The same on the scale.
        """
        return natural

    def pooled(self, natural: FloatArray, mass: FloatArray) -> FloatArray:
        """From pooled natural values and their total mass to the scale, for intervals around them.

        Args:
            natural: Pooled values as people read them.
            mass: The sum of the weights behind each.

        Returns:
            Their places on the scale.
        """
        return self.place(natural)

    def ends(
        self, shown: FloatArray, theta: FloatArray, se: FloatArray, tail: float, dof: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Intervals as people read them, with the probability `tail` beyond either end.

        Args:
            shown: Estimates as people read them.
            theta: The same on the scale.
            se: Standard errors on the scale.
            tail: The probability beyond each end.
            dof: Degrees of freedom behind the standard errors; None where they are known.

        Returns:
            The lower and the upper ends.
        """
        reach = critical_value(tail, dof) * se
        return np.minimum(self.natural(theta - reach), shown), np.maximum(self.natural(theta + reach), shown)

    def effective(self, natural: FloatArray, variance: FloatArray) -> FloatArray:
        """The standard error on the scale of a value whose own variance is known.

        Args:
            natural: The value as people read it.
            variance: The variance of that.

        Returns:
            The standard error on the scale.
        """
        return np.sqrt(variance)

    def room(self, natural: float, lowest: float, highest: float) -> float:
        """The nearest value to `natural` with room for `lowest` (below zero) and `highest` added to it.

        Args:
            natural: A value as people read it.
            lowest: What is added to it at the least, zero or below.
            highest: What is added to it at the most.

        Returns:
            A value that stays on the scale with either.
        """
        return natural

    def largest_gap(self, upwards: bool) -> float:
        """How far apart two effects can be at most.

        Args:
            upwards: Whether from a value to a higher one.

        Returns:
            The gap; infinity where there is no end.
        """
        return np.inf

    def distance(self, tolerance: float) -> float:
        """A tolerance in what people read as a distance on the scale.

        Args:
            tolerance: A difference as people read it.

        Returns:
            The distance on the scale, where that is the same everywhere.
        """
        return tolerance

    def tolerance(self, distance: float) -> float:
        """The way back.

        Args:
            distance: A distance on the scale.

        Returns:
            The difference that people read.
        """
        return distance


@dataclass(frozen=True, slots=True)
class Anscombe(Scale):
    """asin √((y + 3/8)/(n + 3/4)) for y of n: its variance 1/(4n + 2) does not depend on the rate."""

    name: str = "anscombe"
    is_percent: bool = True
    is_share: ClassVar[bool] = True
    is_straight: ClassVar[bool] = False
    bends: ClassVar[bool] = True

    @staticmethod
    def forward(successes: FloatArray, trials: FloatArray) -> FloatArray:
        """From successes and trials to the scale."""
        return np.asarray(np.arcsin(np.sqrt(np.clip((successes + 3 / 8) / (trials + 3 / 4), 0.0, 1.0))))

    def natural(self, theta: FloatArray) -> FloatArray:
        """The rate."""
        return np.asarray(np.sin(np.clip(theta, 0.0, np.pi / 2)) ** 2)

    def slope(self, theta: FloatArray) -> FloatArray:
        """Derivative of the rate."""
        return np.asarray(np.maximum(np.sin(2 * np.clip(theta, 0.0, np.pi / 2)), 0.0))

    def mass(self, se: FloatArray) -> FloatArray:
        """The number of trials behind the standard error, so that pooled rates are plain shares."""
        return np.asarray(np.maximum((se**-2.0 - 2) / 4, 1e-12))

    def place(self, natural: FloatArray) -> FloatArray:
        """The angle of a rate."""
        return np.asarray(np.arcsin(np.sqrt(np.clip(natural, 0.0, 1.0))))

    def pooled(self, natural: FloatArray, mass: FloatArray) -> FloatArray:
        """The angle of a number of successes in all trials."""
        return self.forward(natural * mass, mass)

    def ends(
        self, shown: FloatArray, theta: FloatArray, se: FloatArray, tail: float, dof: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """The exact ones of Clopper and Pearson: the scale itself is too sure where there are no events, or few."""
        trials = self.mass(se)
        events = np.clip(shown, 0.0, 1.0) * trials
        misses = trials - events
        lower = betaincinv(np.maximum(events, _FEWEST), misses + 1, tail)
        upper = 1 - betaincinv(np.maximum(misses, _FEWEST), events + 1, tail)
        return np.where(events > _FEWEST, lower, 0.0), np.where(misses > _FEWEST, upper, 1.0)

    def effective(self, natural: FloatArray, variance: FloatArray) -> FloatArray:
        """That of as many trials as would vary so much."""
        return np.asarray(1 / np.sqrt(4 * natural * (1 - natural) / variance + 2))

    def room(self, natural: float, lowest: float, highest: float) -> float:
        """Rates stay between 0 and 1."""
        return float(np.clip(natural, -lowest, max(1 - highest, -lowest)))

    def largest_gap(self, upwards: bool) -> float:
        """Rates differ by less than 1."""
        return 1.0

    def distance(self, tolerance: float) -> float:
        """Rates keep their tolerance as it is: what it means depends on where they lie."""
        if tolerance >= 1:
            raise InputError.out_of_range(
                "tolerance",
                "rates differ by less than 1 in any case",
                "Use for example 0.01.",
                tolerance,
                form="clause",
            )
        return tolerance


@dataclass(frozen=True, slots=True)
class Counts(Scale):
    """√((y + 3/8)/t) for y events in an exposure of t: its variance 1/(4t) does not depend on the rate of events."""

    name: str = "square root"
    is_share: ClassVar[bool] = True
    is_straight: ClassVar[bool] = False
    counted: ClassVar[str] = "units of exposure"

    @staticmethod
    def forward(events: FloatArray, exposure: FloatArray) -> FloatArray:
        """From events and exposure to the scale."""
        return np.asarray(np.sqrt((events + 3 / 8) / exposure))

    def natural(self, theta: FloatArray) -> FloatArray:
        """The rate of events."""
        return np.asarray(np.maximum(theta, 0.0) ** 2)

    def slope(self, theta: FloatArray) -> FloatArray:
        """Derivative of the rate."""
        return np.asarray(2 * np.maximum(theta, 0.0))

    def mass(self, se: FloatArray) -> FloatArray:
        """The exposure behind the standard error."""
        return np.asarray(1 / (4 * se**2))

    def place(self, natural: FloatArray) -> FloatArray:
        """The root of a rate."""
        return np.asarray(np.sqrt(np.maximum(natural, 0.0)))

    def pooled(self, natural: FloatArray, mass: FloatArray) -> FloatArray:
        """The root of a number of events in the whole exposure."""
        return self.forward(natural * mass, mass)

    def ends(
        self, shown: FloatArray, theta: FloatArray, se: FloatArray, tail: float, dof: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """The exact ones of Garwood."""
        exposure = self.mass(se)
        events = np.maximum(shown, 0.0) * exposure
        lower = np.where(events > _FEWEST, gammaincinv(np.maximum(events, _FEWEST), tail), 0.0)
        return lower / exposure, np.asarray(gammainccinv(events + 1, tail) / exposure)

    def effective(self, natural: FloatArray, variance: FloatArray) -> FloatArray:
        """That of as long an exposure as would vary so much."""
        return np.asarray(np.sqrt(variance / (4 * natural)))

    def distance(self, tolerance: float) -> float:
        """A distance between roots says nothing about the distance of the rates."""
        if tolerance:
            raise InputError.unsupported(
                "tolerance", f"has no meaning on the {self.name} scale", "Leave it out.", tolerance
            )
        return 0.0


@dataclass(frozen=True, slots=True)
class LogRatio(Scale):
    """log(T/C), for a lift T/C − 1, whose own standard error grows with it, so that pooling would favour low ones."""

    name: str = "log ratio"
    is_percent: bool = True
    is_straight: ClassVar[bool] = False

    def natural(self, theta: FloatArray) -> FloatArray:
        """The lift."""
        return np.asarray(np.expm1(theta))

    def slope(self, theta: FloatArray) -> FloatArray:
        """Derivative of the lift."""
        return np.asarray(np.exp(theta))

    def place(self, natural: FloatArray) -> FloatArray:
        """The logarithm of the ratio behind a lift."""
        return np.asarray(np.log1p(np.maximum(natural, -1 + 1e-12)))

    def largest_gap(self, upwards: bool) -> float:
        """A lift falls to −100% at most."""
        return np.inf if upwards else 1.0

    def distance(self, tolerance: float) -> float:
        """Lifts are as far apart as their ratios."""
        return float(np.log1p(tolerance))

    def tolerance(self, distance: float) -> float:
        """From the ratio back to the lift."""
        return float(np.expm1(distance))


@dataclass(frozen=True, slots=True)
class Scales(Scale):
    """A scale for each of several effects that are measured together."""

    parts: tuple[Scale, ...] = ()


IDENTITY = Scale()
PERCENT = Scale(is_percent=True)
POINTS = Scale(is_percent=True, is_points=True)
ANSCOMBE = Anscombe()
COUNTS = Counts()
LOG_RATIO = LogRatio()


def scale_of_each(scale: Scale, effects: int) -> tuple[Scale, ...]:
    """One scale for each of several effects: its own, or the one that all share."""
    return scale.parts if isinstance(scale, Scales) else (scale,) * effects
