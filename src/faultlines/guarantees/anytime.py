"""Intervals that are valid at every look: of every group, of all groups together, and of any cluster.

Which rule, and why. A monitor may be stopped at any look, and looks may come at any time, so that an interval must hold
at all looks at once. Repeated confidence intervals from the boundary of the test would be infinite at early looks,
where O'Brien and Fleming's boundary spends next to nothing; and they end with the plan. The normal mixture of Robbins
(a confidence sequence; Howard et al. 2021, section 3) needs no plan, holds over infinitely many looks, and is at every
look about 1.5 times as wide as the interval of a single one. With information V (the clock of the null paths) and a
mixing variance ρ²,

    M = (1 + ρ²V)^(−1/2) exp(z² ρ²V / (2 (1 + ρ²V)))

is a martingale for Brownian motion, and by Ville's inequality P(M ever ≥ 1/a) ≤ a. So z² may be at most
(1 + 1/r)(2 log(1/a) + log(1 + r)) with r = ρ²V. Where looks depend on each other more than Brownian motion with that
clock does, both tails are crossed less often (Slepian). Where nothing is assumed of the dependence, or groups share
data, a is divided over the looks: a/L each of L planned ones, a/(t(t + 1)) at look t without a plan.

Simultaneous statements divide a: groups that are there at the first look share 0.8 of it, those that a later look adds
share 0.2/(j(j + 1)) for the j-th such look, as nobody knows beforehand how many will come. A cluster is chosen by the
data, so its interval is simultaneous over all subsets of m of K groups, for every m: a/(K · C(K, m)).

What holds: exactly so for normal estimates with known standard errors. From rows, standard errors are estimated and
early looks have few events: ends are then those of Student's t with the degrees of freedom of the look, at the same
tail probability. How often that covers is measured in tests/statistical/test_monitor.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtri_exp, stdtrit

from faultlines.guarantees.boundaries import LookData, extend_history

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.guarantees.boundaries import Dependence, GroupHistory

_FIRST = 0.8  # of α for the groups of the first look; the rest is for those that come later
_MIDDLE = 10.0  # growth since the first look at which intervals are narrowest: half of a planned way, at most this
_STEPS = 60


def mixture_reach(log_level: FloatArray, ratio: FloatArray) -> FloatArray:
    """How many standard errors a confidence sequence reaches.

    Args:
        log_level: Log of one less the level.
        ratio: Information as a multiple of 1/ρ², the precision of the mixing distribution.
    """
    return np.asarray(np.sqrt((1 + 1 / ratio) * (np.log1p(ratio) - 2 * log_level)))


def best_ratio(log_level: FloatArray) -> FloatArray:
    """The ratio at which a confidence sequence reaches least: r = 2 log(1/a) + log(1 + r)."""
    ratio = np.full(np.shape(log_level), 10.0)
    for _ in range(_STEPS):
        ratio = np.log1p(ratio) - 2 * log_level
    return ratio


@dataclass(frozen=True, slots=True)
class AnytimeRule:
    """How far intervals reach at one look.

    Attributes:
        alpha: One less the level of each statement.
        dependence: What is assumed of how looks depend on each other.
        number: Which look it is, from 1.
        planned: The planned number of looks.
        first_fraction: How far the first look was on a planned way; None without a plan.
    """

    alpha: float
    dependence: Dependence
    number: int
    planned: int | None
    first_fraction: float | None

    def reach(self, log_share: FloatArray, growth: FloatArray, dof: FloatArray | None) -> FloatArray:
        """Standard errors from the estimate to the ends.

        Args:
            log_share: Log of the share of α that each interval has.
            growth: Information as a multiple of that of the first look.
            dof: Degrees of freedom of the standard errors; None where they are known.
        """
        if self.dependence == "any":
            return self.reach_once(log_share, dof)
        log_level = np.log(self.alpha) + log_share
        middle = _MIDDLE if self.first_fraction is None else min(max(0.5 / self.first_fraction, 1.0), _MIDDLE)
        return _with_dof(mixture_reach(log_level, best_ratio(log_level) * growth / middle), dof)

    def reach_once(self, log_share: FloatArray, dof: FloatArray | None) -> FloatArray:
        """The same where nothing is assumed of how looks depend on each other: α is divided over the looks."""
        log_looks = np.log(self.planned) if self.planned else np.log(self.number) + np.log1p(self.number)
        return _with_dof(-ndtri_exp(np.log(self.alpha) + log_share - log_looks - np.log(2)), dof)

    def reach_of_groups(self, history: GroupHistory, look: LookData) -> FloatArray:
        """How far the interval of every group of a look reaches; simultaneous for all groups and looks."""
        return self.reach(_log_shares(history)[look.groups], history.growth[look.groups], look.dof)

    def reach_of_cluster(self, history: GroupHistory, members: IntArray, path: GroupHistory, dof: float) -> float:
        """How far the interval of a cluster reaches; simultaneous for all sets of groups and all looks.

        Args:
            history: What is known of all groups.
            members: The groups of the cluster.
            path: What is known of the cluster, as a group of its own.
            dof: Degrees of freedom of its standard error.
        """
        groups, size = history.se.size, members.size
        subsets = gammaln(groups + 1) - gammaln(size + 1) - gammaln(groups - size + 1)
        log_share = _log_batch(history.batch[members].max()[None]) - subsets - np.log(groups)
        return float(self.reach(log_share, path.growth, np.array([dof]))[0])


def _with_dof(reach: FloatArray, dof: FloatArray | None) -> FloatArray:
    """Student's t with the same tail probability, where standard errors are estimated."""
    if dof is None:
        return np.asarray(reach)
    return np.asarray(np.where(np.isinf(dof), reach, -stdtrit(np.minimum(dof, 1e12), np.exp(log_ndtr(-reach)))))


def _log_batch(batch: FloatArray) -> FloatArray:
    """Log of the share of α that the groups of the j-th look with new groups have together; the first is 0."""
    later = np.maximum(batch, 1.0)
    return np.asarray(np.log(np.where(batch == 0, _FIRST, (1 - _FIRST) / (later * (later + 1)))))


def _log_shares(history: GroupHistory) -> FloatArray:
    """Log of the share of α of every group."""
    _, place, count = np.unique(history.batch, return_inverse=True, return_counts=True)
    return np.asarray(_log_batch(history.batch) - np.log(count[place]))


def pool_look(look: LookData, places: IntArray) -> LookData:
    """Some of the groups of a look as one, weighted by precision.

    With weights 1/se² the score of the pool is the sum of the groups' scores: it is Brownian motion again, about the
    precision-weighted mean of the true effects of that look, also where weights change from look to look.

    Args:
        look: The look.
        places: Which of its groups, by their places.
    """
    weight = look.se[places] ** -2.0
    share = weight / weight.sum()
    variance = 1 / weight.sum()
    if look.covariance is not None:
        variance = float(share @ look.covariance[np.ix_(places, places)] @ share)
    dof = None
    if look.dof is not None:  # Satterthwaite
        dof = np.array([1 / np.sum(share**2 / look.dof[places])])
    n, odds = look.n, look.odds
    return LookData(
        groups=np.zeros(1, dtype=np.int64),
        theta=np.array([share @ look.theta[places]]),
        se=np.array([np.sqrt(variance)]),
        n=None if n is None else np.array([n[places].sum()]),
        dof=dof,
        odds=None if odds is None or n is None else np.array([np.average(odds[places], weights=n[places])]),
    )


def follow(looks: Sequence[LookData], dependence: Dependence) -> GroupHistory:
    """What is known after looks at one group."""
    history = extend_history(None, looks[0], ("",), dependence, check=False)
    for look in looks[1:]:
        history = extend_history(history, look, ("",), dependence, check=False)
    return history
