"""Paths of groups that are all alike, from look to look: how estimates from all data so far move while data come in.

What new data add is independent of what was there before. So the score of a group, estimate × information, is a
Brownian motion whose clock is the information: the estimates of two looks have the correlation √(earlier ÷ later
information). Every look draws from a random stream of its own, so paths come back from the seed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultlines.comparison.base import AS_GOOD_AS_KNOWN, generator

if TYPE_CHECKING:
    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.guarantees.joint import Null, Tests
    from faultlines.guarantees.looks import Known, Observed
    from faultlines.guarantees.spending import Record

_FIRST = 1 << 21  # number of the stream of the first look: apart from those of tests
_SMALLEST = 5e-324


class Paths:
    """Draws of whole paths, kept at the last look.

    Args:
        draws: How many.
        seed: Of the draws.
    """

    def __init__(self, draws: int, seed: int) -> None:
        self.draws, self.seed, self.looks = draws, seed, 0
        self._clock, self._dof = np.empty(0), np.empty(0)
        self._score, self._squares = np.empty((draws, 0)), np.empty((draws, 0))

    def advance(self, clock: FloatArray, dof: FloatArray) -> None:
        """Go on to the next look.

        Args:
            clock: Information of every group seen so far, not falling; those that are new come last.
            dof: Degrees of freedom behind their standard errors; infinite where they are known.
        """
        rng = generator(self.seed, _FIRST + self.looks)
        self.looks += 1
        fresh = clock.size - self._clock.size
        before, dof = np.append(self._clock, np.zeros(fresh)), np.minimum(dof, AS_GOOD_AS_KNOWN)
        added = dof - np.append(self._dof, np.zeros(fresh))
        if fresh:
            room = np.zeros((self.draws, fresh))
            self._score, self._squares = np.hstack([self._score, room]), np.hstack([self._squares, room])
        self._score += np.sqrt(clock - before) * rng.standard_normal(self._score.shape)
        # Sums of squares add up in the same way, χ² with the degrees of freedom that are new; fewer are all new.
        estimated = np.flatnonzero((dof < AS_GOOD_AS_KNOWN) & (added != 0))
        fewer = added[estimated] < 0
        self._squares[:, estimated[fewer]] = 0.0
        half = np.where(fewer, dof[estimated], added[estimated]) / 2
        self._squares[:, estimated] += 2 * rng.standard_gamma(half, (self.draws, estimated.size))
        self._clock, self._dof = clock, dof

    def values(self, null: Null, groups: IntArray) -> FloatArray:
        """What the test looks at, in every path.

        Args:
            null: What noise does to the groups.
            groups: Which they are, in its order.
        """
        normal = self._score[:, groups] / np.sqrt(self._clock[groups])
        if null.dof is None:
            return null.values_of_noise(normal)
        known = self._dof[groups] >= AS_GOOD_AS_KNOWN
        spread = np.where(known, 1.0, self._squares[:, groups] / self._dof[groups])
        return null.values_of_noise(normal, spread)


class History:
    """What looks showed, and the paths at the last of them."""

    __slots__ = ("paths", "record")

    def __init__(self, record: Record, paths: Paths | None) -> None:
        self.record, self.paths = record, paths

    @property
    def looks(self) -> int:
        """How many looks it holds, all of them wholly; −1 where an interrupt left one behind."""
        counts = {len(self.record.own), len(self.record.log_p)}
        if self.paths is not None:
            counts |= {len(self.record.null), self.paths.looks}
        return counts.pop() if len(counts) == 1 else -1

    def take(self, known: Known, seen: Observed, tests: Tests) -> None:
        """Add a look."""
        effects = tests.effects
        null, order = tests.everyone()
        log_p = tests.of(np.arange(effects.theta.size)).log_p
        self.record.own.append(float(null.values(effects.theta[None], effects.se[None])[0]))
        # As a file will have it, so that it is the same after one.
        self.record.log_p.append(float(np.log(max(np.exp(log_p), _SMALLEST))))
        if self.paths is not None:
            self.paths.advance(known.clock, known.dof)
            self.record.null.append(self.paths.values(null, seen.groups[order]))
