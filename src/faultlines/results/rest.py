"""Each group against all the others together: how far it is from them, and how surely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

from faultlines import checks
from faultlines.core.comparison import AS_GOOD_AS_KNOWN
from faultlines.core.distributions import log_chi_square_tail, log_t_tail
from faultlines.estimates.estimates import plain
from faultlines.estimates.labels import labels_of
from faultlines.estimates.scales import critical_value
from faultlines.results.multiplicity import CORRECTIONS, corrected

if TYPE_CHECKING:
    from faultlines.estimates.estimates import Estimates
    from faultlines.estimates.labels import Label
    from faultlines.estimates.scales import FloatArray
    from faultlines.results.multiplicity import Correction


@dataclass(frozen=True, slots=True)
class AgainstRest:
    """One group against all the others.

    Attributes:
        label: The group.
        difference: Its effect less that of the others together, as people read it; a tuple for several effects.
        lower: Lower end of its interval, at the level 1 − α for all groups together.
        upper: Upper end.
        pvalue: The p of "no difference from the others", adjusted for the number of groups.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> one = found.against_rest()[2]
        >>> one.label, round(one.difference, 2), one.pvalue < 0.001
        ('IN', 4.95, True)
    """

    label: Label
    difference: float | tuple[float, ...]
    lower: float | tuple[float, ...]
    upper: float | tuple[float, ...]
    pvalue: float


@dataclass(frozen=True, slots=True, eq=False)
class RestComparison:
    """All groups, each against the others: differences and ends of their intervals (K, d), adjusted log p (K,)."""

    difference: FloatArray
    lower: FloatArray
    upper: FloatArray
    log_pvalues: FloatArray


def compare_with_rest(estimates: Estimates, alpha: float, correction: Correction = "holm") -> RestComparison:
    """Every group against the precision-weighted mean of all the others.

    The p are adjusted by Holm, or by Benjamini and Hochberg. Intervals hold for all groups together (Šidák), whatever
    the correction.

    Args:
        estimates: The groups.
        alpha: One less the level of the intervals.
        correction: ``"holm"``: the chance of any false claim. ``"bh"``: the share of false ones among the claims.
    """
    checks.choice("correction", correction, CORRECTIONS, "Use 'holm' or 'bh'.")
    groups, dims = estimates.values.shape
    if groups < 2:
        none = np.full((groups, dims), np.nan)
        return RestComparison(none, none, none, np.zeros(groups))
    others, of_others = _others(estimates)
    own = estimates.covariances
    gap, spread = estimates.values - others, own + of_others
    if estimates.covariance is not None:
        spread = _shared(estimates.covariance, estimates.own[:, 0] ** -2.0)
    errors = np.sqrt(np.diagonal(spread, axis1=1, axis2=2))
    if dims == 1 and estimates.dof is not None:
        # Welch and Satterthwaite; the others together are known much better than one of them.
        share = own[:, 0, 0] / spread[:, 0, 0]
        of_rest = float(max(np.sum(np.sort(np.minimum(estimates.dof, AS_GOOD_AS_KNOWN))[:-1]), 1.0))
        dof = 1 / np.maximum(share**2 / estimates.dof + (1 - share) ** 2 / of_rest, 1 / AS_GOOD_AS_KNOWN)
        if estimates.covariance is not None:  # no group is known better than the worst of them
            dof = np.full(groups, float(estimates.dof.min()))
        log_p = np.where(gap[:, 0] == 0, 0.0, log_t_tail(np.abs(gap[:, 0]) / errors[:, 0], dof))
        reach = critical_value(_each(alpha, groups) / 2, dof)[:, None]
    else:
        square = np.einsum("ki,kij,kj->k", gap, np.linalg.inv(spread), gap)
        log_p = log_chi_square_tail(square, dims)
        reach = np.full((groups, 1), -ndtri(_each(alpha, groups * dims) / 2))
    adjusted, _ = corrected(np.minimum(log_p, 0.0), alpha, correction)
    shown = estimates.shown - estimates.readable(others)
    # In what people read the interval has the width it has where the group and the others meet.
    middle = (estimates.values + others) / 2
    wide = reach * estimates.readable_errors(middle, errors)
    return RestComparison(shown, shown - wide, shown + wide, adjusted)


def _each(alpha: float, count: int) -> float:
    """The level of one interval when so many hold together with 1 − α (Šidák)."""
    return float(-np.expm1(np.log1p(-alpha) / count))


def _others(estimates: Estimates) -> tuple[FloatArray, FloatArray]:
    """The precision-weighted mean of all groups but one, for each of them, and its covariance."""
    centre = estimates.values[len(estimates) // 2]
    values = estimates.values - centre
    own = estimates.covariances if estimates.covariance is None else estimates.own[:, :, None] ** 2
    weight: FloatArray = np.asarray(np.linalg.inv(own), dtype=np.float64)
    moment: FloatArray = np.einsum("kij,kj->ki", weight, values)
    covariance: FloatArray = np.asarray(np.linalg.inv(of_others(weight)), dtype=np.float64)
    return np.einsum("kij,kj->ki", covariance, of_others(moment)) + centre, covariance


def _shared(covariance: FloatArray, weight: FloatArray) -> FloatArray:
    """Variances of each group less the mean of the others, (K, 1, 1), where groups share data."""
    size = len(covariance)
    contrast = np.eye(size) - np.where(np.eye(size, dtype=bool), 0.0, weight) / of_others(weight)[:, None]
    return np.asarray(np.einsum("ij,ij->i", contrast @ covariance, contrast)[:, None, None])


def of_others(parts: FloatArray) -> FloatArray:
    """For each part, the sum of all the others.

    Sums from both sides, not the total less one: where one group holds nearly all weight, that would be rounding.
    """
    made = np.zeros(parts.shape)
    np.cumsum(parts[:-1], axis=0, out=made[1:])
    made[:-1] += np.cumsum(parts[:0:-1], axis=0)[::-1]
    return made


def against_rest(estimates: Estimates, alpha: float, correction: Correction) -> tuple[AgainstRest, ...]:
    """Every group against the others, as values."""
    rest = compare_with_rest(estimates, alpha, correction)
    pvalues = np.maximum(np.exp(rest.log_pvalues), np.nextafter(0.0, 1.0)).tolist()
    columns = zip(rest.difference.tolist(), rest.lower.tolist(), rest.upper.tolist(), pvalues, strict=True)
    return tuple(
        AgainstRest(label, plain(gap), plain(low), plain(high), p)
        for label, (gap, low, high, p) in zip(labels_of(estimates.keys), columns, strict=True)
    )
