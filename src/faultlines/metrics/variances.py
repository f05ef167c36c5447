"""Variances that do not follow the estimates.

A group's own variance is small exactly when its own mean happens to be off: few events, or a sample of skewed values
without its largest ones. Such groups would weigh most and look most certain. Two things are done about it, with the
third and fourth moments that the groups of an arm share:

- What a mean's own noise explains of the variance is taken off. For n values of skewness γ, E[s² | x̄] = σ² + γσ(x̄ − μ);
  how much of x̄ − μ is noise follows from how far the means of all groups are spread (empirical Bayes).
- What remains is pulled towards the common variance as far as the data cannot tell the variances apart. With kurtosis
  κ the variance of n values has d = 2n/(κ − γ² − 1 + 2/(n − 1)) degrees of freedom and not n − 1; the spread of the
  variances beyond 2/d is taken for real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import chdtri

if TYPE_CHECKING:
    from faultlines.metrics.base import FloatArray
    from faultlines.rows.request import Moments

_ROUNDS = 4  # shapes are measured in units of the variances, which follow from the shapes
_LEAST = 0.25  # of a variance that noise may explain away at most: this much stays
_LOWEST = 0.1  # of the common variance that groups with low means have at least
_ALIKE = 1e-3  # spread of variances, relative, below which they are taken as equal
_DOUBT = 1e-3  # chance of a spread of the means up to which all of it is taken for noise
_FARTHEST = 4.0  # standard errors that a mean may be off by chance
_STRAIGHT = 1e-4  # skewness and excess kurtosis that are none
_ROOT = 0.2  # power of the variances on which they are pulled together
_NONE = 1e-6  # of the common variance, below which a group has none of its own
_ROUNDING = 1e-24  # variance of equal values, beside their square
_MOST = 1e6  # degrees of freedom of a common variance


class Steady(NamedTuple):
    """Variances of K groups that do not follow their means.

    Attributes:
        variance: The variances of single values.
        freedom: The degrees of freedom behind them; not a number where a variance is as it was.
        noise: The part of each mean that is taken for noise.
        skewness: The skewness of single values, of all groups together.
        excess: Their kurtosis less that of normal values.
    """

    variance: FloatArray
    freedom: FloatArray
    noise: FloatArray
    skewness: float
    excess: float


class Cumulants(NamedTuple):
    """Variance, third and fourth cumulant of the values of each group and arm."""

    variance: FloatArray
    third: FloatArray
    fourth: FloatArray

    @classmethod
    def of(cls, m: Moments, place: int) -> Cumulants:
        """Those of one variable; not a number where the shape is not known."""
        variance = m.cov[..., place, place]
        if m.skewness is None or m.kurtosis is None:
            unknown = np.full(variance.shape, np.nan)
            return cls(variance, unknown, unknown)
        skewness, kurtosis = m.skewness[..., place], m.kurtosis[..., place]
        # Values that are all the same have no shape, and no part in that of the others; their variance may be rounding.
        flat = variance <= _ROUNDING * m.mean[..., place] ** 2
        # No values at all have a kurtosis below γ² + 1: an engine that adds up plain powers lost its digits.
        known = flat | (kurtosis >= skewness**2 + 1 - 1e-6)
        third = np.where(flat, 0.0, skewness * variance**1.5)
        fourth = np.where(flat, 0.0, (kurtosis - 3) * variance**2)
        return cls(variance, np.where(known, third, np.nan), np.where(known, fourth, np.nan))

    def less(self, other: Cumulants, covariance: FloatArray, slope: FloatArray) -> Cumulants:
        """Those of x − slope · y.

        With y's own slope b, x = b y + e; what is left of y, (b − slope) y, and e are taken as independent. That is
        exact both where x and y have nothing to do with each other and where they go together.
        """
        own = np.where(other.variance > 0, covariance / np.where(other.variance > 0, other.variance, 1.0), 0.0)
        rest = own - slope
        return Cumulants(
            np.maximum(self.variance + (rest**2 - own**2) * other.variance, 0.0),
            self.third + (rest**3 - own**3) * other.third,
            self.fourth + (rest**4 - own**4) * other.fourth,
        )


def steady(
    n: FloatArray, mean: FloatArray, variance: FloatArray, shape: Cumulants, noise: FloatArray | None = None
) -> Steady:
    """Variances of K groups that do not follow their means, and the degrees of freedom behind them.

    Args:
        n: Numbers of values.
        mean: Their means.
        variance: Their sample variances.
        shape: Their cumulants; only their size beside the variance there counts.
        noise: The part of each mean that is noise, where it is known from elsewhere.

    Returns:
        As they are for groups with fewer than two values or no known shape, and where no two others are left.
    """
    made = Steady(np.array(variance, dtype=np.float64), np.full(n.size, np.nan), np.zeros(n.size), 0.0, 0.0)
    usable = (n >= 2) & np.isfinite(mean) & np.isfinite(variance) & np.isfinite(shape.third) & np.isfinite(shape.fourth)
    if usable.sum() < 2 or not np.any(variance[usable] > 0):
        return made
    n, mean, variance = (array[usable] for array in (n, mean, variance))
    of_shape, third, fourth = (array[usable] for array in shape)
    ratio = np.where(of_shape > 0, variance / np.where(of_shape > 0, of_shape, 1.0), 0.0)
    third, fourth = third * ratio**1.5, (fourth + 3 * of_shape**2) * ratio**2
    common = np.full(n.size, np.average(variance, weights=n - 1))
    given = None if noise is None else np.nan_to_num(noise[usable])
    noise, freedom, skewness, kurtosis = np.zeros(n.size), n - 1, 0.0, 3.0
    for _ in range(_ROUNDS):
        skewness = float(np.sum(n * third) / np.sum(n * common**1.5))
        kurtosis = max(float(np.sum(n * fourth) / np.sum(n * common**2)), skewness**2 + 1)
        # A high mean can be chance only as far as the variance is the common one, and no mean is off by very much.
        alike = np.minimum(common, np.average(variance, weights=n - 1))
        farthest = _FARTHEST * np.sqrt(alike / n)
        noise = np.clip(_noise(n, mean, common) if given is None else given, -farthest, farthest)
        explained = skewness * np.sqrt(alike) * noise
        adjusted = np.maximum(variance - explained, _LEAST * np.minimum(variance, common))
        own = 2 * n / (max(kurtosis - skewness**2 - 1, (kurtosis - 1) / 2) + 2 / (n - 1))
        common, freedom = _pulled(adjusted, _along(mean - noise, adjusted, own), own)
    made.variance[usable], made.freedom[usable], made.noise[usable] = common, freedom, noise
    return made._replace(skewness=skewness, excess=kurtosis - 3)


def _along(likely: FloatArray, variance: FloatArray, own: FloatArray) -> FloatArray:
    """The variance that groups with such means have in common: a line, for shares and amounts vary as they rise."""
    centre, pooled = np.average(likely, weights=own), np.average(variance, weights=own)
    away = likely - centre
    scatter = np.sum(own * away**2)
    if not scatter > 1e-12 * pooled * np.sum(own):  # nothing but rounding
        return np.full(likely.size, pooled)
    slope = np.sum(own * away * (variance - pooled)) / scatter
    return np.asarray(np.maximum(pooled + slope * away, _LOWEST * pooled))


def _pulled(variance: FloatArray, target: FloatArray, own: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Variances pulled towards their common law as far as they do not clearly differ from it; degrees of freedom then.

    Args:
        variance: The variances.
        target: What each would be by the law.
        own: The degrees of freedom behind each: it has a relative variance of 2/own by chance.
    """
    spread = np.average((variance / target - 1) ** 2, weights=own) - np.average(2 / own, weights=own)
    prior = 2 / spread if spread > _ALIKE else _MOST
    # On the scale of a root: a variance that is clearly a hundredth of the common one is not lifted by a share of that.
    together = (prior * target**_ROOT + own * variance**_ROOT) / (prior + own)
    # Values that are all the same say nothing about how small their variance is.
    plain = (prior * target + own * variance) / (prior + own)
    return np.asarray(np.where(variance > _NONE * target, together ** (1 / _ROOT), plain)), np.asarray(prior + own)


def _noise(n: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """The part of each mean's distance from the common one that is noise: all of it where means are alike."""
    return _share_of_noise(mean, variance / n)[0]


def _share_of_noise(
    theta: FloatArray, variance: FloatArray, excess: FloatArray | float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Distances from the centre times the share of them that is noise, and that share.

    As DerSimonian and Laird have it, but all counts as noise that noise can do: heavy tails widen what that is.
    """
    weight = 1 / variance
    centre = np.sum(weight * theta) / np.sum(weight)
    freedom = theta.size - 1
    usual = freedom + (chdtri(freedom, _DOUBT) - freedom) * np.sqrt(1 + np.mean(np.maximum(excess, 0.0)) / 2)
    beyond = np.sum(weight * (theta - centre) ** 2) - usual
    between = max(0.0, float(beyond / (np.sum(weight) - np.sum(weight**2) / np.sum(weight))))
    share = variance / (between + variance)
    return np.asarray(share * (theta - centre)), np.asarray(share)


def noise_of_arms(value: FloatArray, variance: FloatArray) -> FloatArray:
    """The part of the mean of each arm, (K, 2), that its difference from the other arm shows to be noise.

    Groups differ in their levels, and levels are in both arms. What the arms have in common says nothing about their
    difference (weighted by precision the two are independent), so variances may follow it; they must not follow the
    difference. As far as effects do not clearly differ, all of a difference beyond that of the other groups is noise,
    and each arm has a share of it in proportion to its variance.

    Args:
        value: Means of the arms.
        variance: Variances of these means.
    """
    made = np.zeros(value.shape)
    usable = np.all(np.isfinite(value) & np.isfinite(variance) & (variance > 0), axis=1)
    if usable.sum() > 1:
        total = variance[usable].sum(axis=1)
        apart = _share_of_noise(value[usable, 1] - value[usable, 0], total)[0]
        made[usable] = np.stack([-apart, apart], axis=1) * variance[usable] / total[:, None]
    return made


def straightened(theta: FloatArray, variance: FloatArray, third: FloatArray, fourth: FloatArray) -> FloatArray:
    """Estimates whose noise is normal where it was skewed or had heavy tails.

    The mean of few skewed values is skewed itself: one large value more is a long way up. The part that is noise is
    taken for a gamma of the same skewness and put on the normal scale (Wilson and Hilferty); tails that are still
    heavier are taken for those of Student's t with the same kurtosis (Wallace). With many values nothing is left of it.

    Args:
        theta: Estimates.
        variance: Their variances.
        third: Their third cumulants.
        fourth: Their fourth cumulants.
    """
    made = np.array(theta, dtype=np.float64)
    usable = np.isfinite(theta) & (variance > 0) & np.isfinite(variance) & np.isfinite(third) & np.isfinite(fourth)
    if usable.sum() < 2:
        return made
    theta, variance, third, fourth = (array[usable] for array in (theta, variance, third, fourth))
    skewness, excess = third / variance**1.5, fourth / variance**2
    noise, share = _share_of_noise(theta, variance, excess)
    spread = np.sqrt(variance * share)
    z = noise / spread
    scores = _wilson_hilferty(z, skewness)
    # Towards the short tail a gamma ends; an estimate beyond its end is no surer for that.
    scores = np.where((skewness > 0) & (z < 0), np.maximum(scores, z), scores)
    scores = np.where((skewness < 0) & (z > 0), np.minimum(scores, z), scores)
    made[usable] = theta - noise + spread * _wallace(scores, np.maximum(excess - 1.5 * skewness**2, 0.0))
    return made


def _wilson_hilferty(z: FloatArray, skewness: FloatArray) -> FloatArray:
    """Normal scores of gamma variables of mean 0, variance 1 and this skewness; z itself where there is none."""
    bent = np.where(np.abs(skewness) < _STRAIGHT, 1.0, skewness)
    score = 6 / bent * (np.cbrt(np.maximum(bent * z / 2 + 1, 1e-3)) - 1) + bent / 6
    return np.asarray(np.where(np.abs(skewness) < _STRAIGHT, z, score))


def _wallace(z: FloatArray, excess: FloatArray) -> FloatArray:
    """Normal scores of Student's t of variance 1 and this excess kurtosis; z itself where there is none."""
    heavy = np.maximum(excess, _STRAIGHT)
    freedom = 4 + 6 / heavy
    student = z * np.sqrt(freedom / (freedom - 2))
    score = (8 * freedom + 1) / (8 * freedom + 3) * np.sqrt(freedom * np.log1p(student**2 / freedom))
    return np.asarray(np.where(excess < _STRAIGHT, z, np.sign(z) * score))


# ------------------------------------------------------------------------------------------ tables without a shape


def assumed_shape(m: Moments) -> tuple[Moments, str]:
    """Moments with the shape their means and variances suggest, and what was assumed, in words."""
    n, mean, variance = m.n[..., 0], m.mean[..., 0], m.cov[..., 0, 0]
    with np.errstate(all="ignore"):
        expected = mean * (1 - mean)
        known = np.isfinite(variance) & (n > 1)
        apart = np.abs(variance * (n - 1) / n - expected)
        if np.all(apart[known] <= 1e-6 * np.maximum(expected[known], 1e-12)):
            skewness, kurtosis = (1 - 2 * mean) / np.sqrt(expected), 1 / expected - 3
            words = "The table gives no skewness and kurtosis; its variances are those of yes/no values."
        else:
            slope = _skewness_by_slope(n[known], mean[known], variance[known])
            # Of a gamma distribution, which is as heavy as skewed amounts commonly are.
            skewness, kurtosis = np.full(n.shape, slope), np.full(n.shape, 3 + 1.5 * slope**2)
            words = (
                "The table gives no skewness and kurtosis; values were taken to be as skewed as their variances follow "
                f"their means (skewness {slope:.2g}, kurtosis {3 + 1.5 * slope**2:.3g})."
            )
    return m._replace(skewness=skewness[..., None], kurtosis=kurtosis[..., None]), words


def _skewness_by_slope(n: FloatArray, mean: FloatArray, variance: FloatArray) -> float:
    """γ from E[s² | x̄] = σ² + γσ(x̄ − μ): the slope of variances on means; 0 where there is none to be seen."""
    if n.size < 3 or not np.any(variance > 0):
        return 0.0
    common, centre = np.average(variance, weights=n), np.average(mean, weights=n)
    spread = np.sum(n * (mean - centre) ** 2)
    return float(np.sum(n * (variance - common) * (mean - centre)) / (spread * np.sqrt(common))) if spread > 0 else 0.0
