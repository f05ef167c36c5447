"""How the accepted chance of a false claim is spent over looks, and what a look must show to be a claim.

A spending function says how much of α may be spent by a fraction of the way (Lan and DeMets 1983). The boundary follows
from draws of whole paths: at each look the most extreme of those that are still going stop, so many that no more than
the spent share of all has stopped so far. The data's own path counts as one of the draws, so the chance of ever a false
claim is at most α for any number of draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from faultlines import checks
from faultlines.errors import InputError, shorten

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from faultlines.estimates.scales import FloatArray

# Of what a look may spend, the share that goes by its own p alone: it reaches far below one in so many draws.
BY_ITSELF = 0.01
CUSTOM = "custom"
_ROUNDS = 40
_LEAST = -690.0  # log of the smallest level that is told from none


def _obrien_fleming(alpha: float, fraction: float) -> float:
    """Little early on, most of it at the end: the last look is nearly as sharp as a single one."""
    if fraction >= 1:
        return alpha
    return float(2 * ndtr(ndtri(alpha / 2) / np.sqrt(fraction))) if fraction > 0 else 0.0


def _pocock(alpha: float, fraction: float) -> float:
    """About as much at every look: early ones are sharper, the last one is blunter."""
    return float(alpha * np.log1p((np.e - 1) * fraction))


def _with_reserve(kept: float) -> Callable[[float, float], float]:
    """A share of it is kept for the end, the rest spent as by O'Brien and Fleming.

    The more groups there are, the less what two looks show depends on each other, and the more early looks cost.
    """
    return lambda alpha, fraction: alpha if fraction >= 1 else (1 - kept) * _obrien_fleming(alpha, fraction)


SPENDING: dict[str, Callable[[float, float], float]] = {
    "reserve": _with_reserve(0.3),
    "obrien-fleming": _obrien_fleming,
    "pocock": _pocock,
    "haybittle-peto": _with_reserve(0.8),
}


def usual_spending(*, has_end: bool, any_dependence: bool) -> str:
    """What is spent where nothing is said: without an end there is nothing to keep for it."""
    return "obrien-fleming" if not has_end else "haybittle-peto" if any_dependence else "reserve"


@dataclass(frozen=True, slots=True)
class Spending:
    """A spending function.

    Attributes:
        name: Which one; ``"custom"`` for a user's own.
        share: The user's own: from a fraction of the way to the share of α spent by then.
    """

    name: str
    share: Callable[[float], float] | None = None

    @classmethod
    def of(cls, given: Any) -> Spending:
        """What was asked for."""
        if callable(given):
            made = cls(CUSTOM, given)
            made._check()
            return made
        words = ", ".join(map(repr, SPENDING))
        remedy = f"Use {words}, or a function from the fraction of the way to the share of α."
        return cls(checks.choice("spending", given, SPENDING, remedy))

    def spent(self, alpha: float, fractions: FloatArray) -> FloatArray:
        """What of α is spent by each look, never falling."""
        if self.share is None:
            made = [SPENDING[self.name](alpha, fraction) for fraction in fractions.tolist()]
        else:
            made = [alpha * self._own(fraction) for fraction in fractions.tolist()]
        return np.maximum.accumulate(np.minimum(made, alpha)) if made else np.empty(0)

    def _check(self) -> None:
        """Refuse a function that falls, or does not spend everything in the end: α would be spent early, or wasted."""
        shares = [self._own(fraction) for fraction in np.linspace(0.02, 1.0, 50).tolist()]
        falls = int(np.argmin(np.diff(shares)))
        if np.diff(shares)[falls] < -1e-9:
            problem = f"falls from {shares[falls]:.3g} to {shares[falls + 1]:.3g} on the way"
            raise InputError("spending", problem, "Return the share of α that is spent by then, not falling.")
        if shares[-1] < 1 - 1e-9:
            problem = f"gives {shares[-1]:.3g} at 1, the end, where all of α is spent"
            raise InputError("spending", problem, "Return 1 at 1.")

    def _own(self, fraction: float) -> float:
        try:
            made = self.share(fraction)  # type: ignore[misc]
        except TypeError as error:
            problem = f"cannot be called with a fraction of the way ({shorten(str(error))})"
            raise InputError("spending", problem, "Use a function of one number, such as lambda t: t**2.") from error
        problem = f"gives {shorten(made)} at {fraction:.3g}, which is no share"
        remedy = "Return a number from 0 to 1, not falling."
        try:
            return checks.number("spending", made, problem, remedy, low=0, high=1)
        except InputError as error:
            raise InputError("spending", problem, remedy) from error


class Record(NamedTuple):
    """What the looks so far showed.

    Attributes:
        own: The statistic of the data at every look.
        log_p: Log p of every look, as if it had been the only one.
        null: The statistics of draws of groups that are all alike, an array of one number per draw for every look;
            none where nothing is assumed of how looks depend on each other.
    """

    own: list[float]
    log_p: list[float]
    null: list[FloatArray]


def boundaries(record: Record, spent: FloatArray) -> FloatArray:
    """What the statistic must exceed at every look to be a claim; infinite where draws are too few to say."""
    made = np.full(len(record.null), np.inf)
    if not record.null:
        return made
    draws, stopped = record.null[0].size, 0
    going = np.arange(draws)
    for look, values in enumerate(record.null):
        allowed = int((1 - BY_ITSELF) * spent[look] * (draws + 1)) - stopped
        if allowed <= 0:
            continue
        left = values[going]
        if allowed > left.size:
            made[look:] = -np.inf
            return made
        made[look] = np.partition(left, left.size - allowed)[left.size - allowed]
        going = going[left < made[look]]
        stopped = draws - going.size
    return made


def is_claimed(record: Record, spent: FloatArray) -> bool:
    """Whether clusters are claimed at one of the looks."""
    alone = levels_alone(record, spent)
    with np.errstate(divide="ignore"):
        if np.any((alone > 0) & (np.array(record.log_p) <= np.log(alone))):
            return True
    return bool(np.any(np.array(record.own)[: len(record.null)] > boundaries(record, spent)))


def levels_alone(record: Record, spent: FloatArray) -> FloatArray:
    """Levels that the looks' own p are compared with; they add up to what may go by p alone, whatever depends on what.

    Where nothing is drawn that is everything.
    """
    return np.diff(spent, prepend=0.0) * (BY_ITSELF if record.null else 1.0)


def pvalue_so_far(record: Record, spending: Spending, fractions: FloatArray, alpha: float) -> float:
    """The smallest level at which clusters would be claimed by now; above α exactly where they are not at α."""

    def claims(log_alpha: float) -> bool:
        return is_claimed(record, spending.spent(float(np.exp(log_alpha)), fractions))

    low, high = (_LEAST, float(np.log(alpha))) if claims(float(np.log(alpha))) else (float(np.log(alpha)), 0.0)
    if high == 0 and not claims(np.log1p(-1e-9)):
        return 1.0
    for _ in range(_ROUNDS):
        if high - low < 1e-4:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if claims(middle) else (middle, high)
    return float(min(np.exp(high), 1.0))
