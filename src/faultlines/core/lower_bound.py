"""At least how many clusters there are: a lower confidence bound that is proved, beside the number the search reports.

Suppose there are at most m levels. With the true ones, z_i = (θ_i − level)/se_i are standard normal. Let E be the event
that every |z_i| ≤ b and Σ z_i² ≤ a; b is the Bonferroni quantile for half of α and a the quantile of χ²_K for the other
half, so P(E) ≥ 1 − α. Going from its own to the nearest level makes no |z_i| larger. So on E there are m *intervals* of
the sorted estimates, each with a center within b·se of all its groups, whose squares sum to a at most. A dynamic
program finds the smallest such sum over all m intervals; "at most m" is rejected where it is above a. Hence
P(bound > true number) ≤ α for any levels and any sizes of clusters: no step is heuristic.

The cost of an interval, its squares about the weighted mean clipped to where b allows, satisfies the quadrangle
inequality: its center lies between its own lowest and highest estimate, so groups beyond them are nearer to it than to
a center farther away. So the best last interval moves to the right as the prefix grows, and divide and conquer needs
O(K log K) costs for each m.

With estimated standard errors z_i is Student's t: b is a quantile of t for each group, and a the quantile of
Σ min(t_i², b_i²). With noise that groups share, only differences matter; a is a quantile of a weighted sum of χ².
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import chdtri, fdtri, log_ndtr, ndtri, stdtr, stdtrit

from faultlines.errors import InputError
from faultlines.types import FloatArray, IntArray

Rule = Literal["squares and largest", "largest"]

_SHARE = 0.5  # of α for the largest |z|; DESIGN 2.2 measured the bound with halves
_MOST = 12  # clusters; a larger bound is reported as "more than 12"
_SMALLEST_ALPHA = 1e-10  # the smallest p that is looked for; outputs print smaller ones as < 1e-10
_TOLERANCE = 0.01  # relative error of p
_AMPLE_DOF = 1e6  # degrees of freedom from which on a standard error counts as known
# Cells of the law of a sum of squares. With four times more, its quantile at α = .05 moved by under 7e-4 of itself for
# 4 degrees of freedom or more (K = 10–2,000), by 7e-3 for 2 degrees at K = 2,000.
_BINS = 2**14
_ROUNDING = 16 * np.finfo(np.float64).eps  # of the sums of squares that costs are differences of
_DEFINITE = 1e-10  # smallest eigenvalue of a correlation matrix that counts as not negative


@dataclass(frozen=True, slots=True, eq=False)
class CountBound:
    """Lower confidence bounds of the number of clusters at every significance level.

    Attributes:
        pvalues: The p of "more than m clusters" for m = 1, 2, …, never falling; at least 1e-10, and 1 from the m on
            that no level up to ½ rejects.
        rule: What the bound rests on: the squares together with the largest distance, or the largest distance alone
            where the law of the squares is not known (a covariance that is itself an estimate).
    """

    pvalues: FloatArray
    rule: Rule

    def at_least(self, alpha: float) -> int:
        """The bound at a significance level: the true number is smaller with probability at most α.

        Args:
            alpha: The significance level, at least 1e-10 and at most ½.

        Returns:
            A number of clusters, at least 1.
        """
        return 1 + int(np.sum(self.pvalues <= alpha))


def at_least(
    theta: FloatArray,
    se: FloatArray,
    alpha: float = 0.05,
    *,
    dof: FloatArray | float | None = None,
    covariance: FloatArray | None = None,
    dof_of_all: float = np.inf,
    most: int = _MOST,
) -> int:
    """A lower confidence bound of the number of clusters: the true one is smaller with probability at most α.

    "At most 1" may be tested by any other test at the whole α instead, for the hypotheses are nested: with the p of the
    calibrated test, the bound is 1 if p > α and max(2, `at_least`) otherwise.

    Args:
        theta: Estimates of K groups.
        se: Their standard errors, each group's own; not used where there is a covariance.
        alpha: The significance level.
        dof: Degrees of freedom behind each standard error, where these are estimated independently of each other.
        covariance: Of the estimates, (K, K), where groups share data. With `dof` or `dof_of_all` too, the bound rests
            on the largest distance alone, which holds under any dependence.
        dof_of_all: Degrees of freedom behind one factor that all standard errors share.
        most: The largest number of clusters that is looked at; the bound is at most one more.

    Returns:
        A number of clusters, at least 1.

    Raises:
        InputError: If alpha is not between 0 and 1, or standard errors are not above zero.

    Example:
        >>> import numpy as np
        >>> from faultlines.core.lower_bound import at_least
        >>> at_least(np.array([0.0, 0.1, 9.0, 9.2, 30.0]), np.ones(5))
        3
    """
    if not 0 < alpha < 1:
        raise InputError.out_of_range(
            "alpha",
            "must lie strictly between 0 and 1",
            "Use for example {alpha}.",
            alpha,
            settings={"alpha": 0.05},
            form="must",
        )
    return _rejected(_noise_of(theta, se, dof, covariance, dof_of_all), alpha, most) + 1


def cluster_count_bound(
    theta: FloatArray,
    se: FloatArray,
    *,
    dof: FloatArray | float | None = None,
    covariance: FloatArray | None = None,
    dof_of_all: float = np.inf,
    most: int = _MOST,
) -> CountBound:
    """The bound at every significance level at once, as p of "more than m clusters".

    The bound never falls as α grows, so the p of every m is found by halving, to 1% (0.04 s at K = 100,
    0.25 s at 2,000); beyond 10⁴ groups prefer `at_least` at the levels that are needed (0.4 s at 10⁵).

    Args:
        theta: Estimates of K groups.
        se: Their standard errors, each group's own.
        dof: Degrees of freedom behind each standard error.
        covariance: Of the estimates, (K, K), where groups share data.
        dof_of_all: Degrees of freedom behind one factor that all standard errors share.
        most: The largest number of clusters that is looked at.

    Returns:
        The p of "more than m" for m = 1 … most, fewer where there are fewer groups.

    Raises:
        InputError: If standard errors are not above zero.

    Example:
        >>> import numpy as np
        >>> from faultlines.core.lower_bound import cluster_count_bound
        >>> bound = cluster_count_bound(np.array([0.0, 0.1, 9.0, 9.2, 30.0]), np.ones(5))
        >>> bound.at_least(0.05), bound.at_least(1e-6), float(bound.pvalues[2])
        (3, 3, 1.0)
    """
    noise = _noise_of(theta, se, dof, covariance, dof_of_all)
    highest = 0.5
    pvalues = np.ones(max(min(most, noise.theta.size - 1), 0))
    # Pairs of levels between which the number of rejected hypotheses changes, halved on the logarithmic scale.
    ends = [(_SMALLEST_ALPHA, _rejected(noise, _SMALLEST_ALPHA, most)), (highest, _rejected(noise, highest, most))]
    pvalues[: ends[0][1]] = _SMALLEST_ALPHA
    open_ranges = [(ends[0], ends[1])]
    while open_ranges:
        (low, few), (high, many) = open_ranges.pop()
        if few == many:
            continue
        if high <= low * (1 + _TOLERANCE):
            pvalues[few:many] = high  # the larger end, so that p is never too small
            continue
        middle = float(np.sqrt(low * high))
        between = (middle, _rejected(noise, middle, most))
        open_ranges += [((low, few), between), (between, (high, many))]
    return CountBound(pvalues, noise.rule)


# ------------------------------------------------------------------------------------------------- the law of the noise


class _Noise(NamedTuple):
    """Estimates in rising order and what is known of their noise, in units in which it is neither huge nor tiny."""

    theta: FloatArray
    se: FloatArray
    dof: FloatArray | None
    eigenvalues: FloatArray | None  # of the correlations, where groups share noise
    dof_of_all: float
    rule: Rule


def _noise_of(
    theta: FloatArray,
    se: FloatArray,
    dof: FloatArray | float | None,
    covariance: FloatArray | None,
    dof_of_all: float,
) -> _Noise:
    theta, se = np.asarray(theta, dtype=np.float64), np.asarray(se, dtype=np.float64)
    degrees = (
        None if dof is None else np.minimum(np.broadcast_to(np.asarray(dof, dtype=np.float64), se.shape), _AMPLE_DOF)
    )
    if degrees is not None and degrees.min() >= _AMPLE_DOF:
        degrees = None
    eigenvalues, rule = None, "squares and largest"
    if covariance is not None and theta.size > 1:
        se, eigenvalues = _shared_noise(np.asarray(covariance, dtype=np.float64))
        if eigenvalues is not None and (degrees is not None or np.isfinite(dof_of_all)):
            rule = "largest"
    elif degrees is not None and np.isfinite(dof_of_all):
        rule = "largest"
    if not (np.isfinite(theta).all() and np.isfinite(se).all() and se.min() > 0):
        raise InputError.invalid_data(
            "se", "must be finite and above zero, with finite estimates", "Leave such groups out."
        )
    order = np.argsort(theta, kind="stable")
    unit = float(np.median(se))
    return _Noise(
        (theta[order] - theta[order[theta.size // 2]]) / unit,
        se[order] / unit,
        None if degrees is None else degrees[order],
        eigenvalues,
        dof_of_all,
        "largest" if rule == "largest" else "squares and largest",
    )


def _shared_noise(covariance: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Standard errors of the groups but for a common shift, and the eigenvalues of their correlations.

    A shift of all groups changes no number of levels, so any covariance Σ + a1ᵀ + 1aᵀ that is not negative will do. The
    sums a_i + a_j nearest to the covariances leave independent noise where groups share a control: then there are no
    eigenvalues to know. Where what they leave is no covariance, the mean is taken off, which always leaves one.
    """
    size = len(covariance)
    if size > 2:
        variance = np.diagonal(covariance)
        with_others = covariance.sum(axis=1) - variance
        common = (with_others - with_others.sum() / (2 * (size - 1))) / (size - 2)
        rest = covariance - common[:, None] - common
        own = np.diagonal(rest)
        if own.min() > 0:
            correlation = rest / np.sqrt(own[:, None] * own)
            if np.abs(correlation - np.eye(size)).max() < 1e-9:
                return np.sqrt(own), None
            eigenvalues = np.linalg.eigvalsh(correlation)
            if eigenvalues[0] > -_DEFINITE:
                return np.sqrt(own), np.maximum(eigenvalues, 0.0)
    centered = covariance - covariance.mean(axis=0)
    centered = centered - centered.mean(axis=1)[:, None]
    own = np.diagonal(centered)
    eigenvalues = np.linalg.eigvalsh(centered / np.sqrt(own[:, None] * own))
    return np.sqrt(own), np.maximum(eigenvalues, 0.0)


def _limits(noise: _Noise, alpha: float) -> tuple[FloatArray, float]:
    """How far every group may be from its center, in its standard errors, and the largest sum of squares."""
    size = noise.theta.size
    if noise.rule == "largest":
        fewest = np.minimum(noise.dof_of_all, np.inf if noise.dof is None else noise.dof)
        return np.broadcast_to(-stdtrit(fewest, alpha / (2 * size)), size), np.inf
    tail = alpha * _SHARE / (2 * size)
    rest = alpha * (1 - _SHARE)
    if noise.eigenvalues is not None:
        return np.full(size, -ndtri(tail)), _weighted_quantile(noise.eigenvalues, rest)
    if np.isfinite(noise.dof_of_all):
        total = size * float(fdtri(size, noise.dof_of_all, 1 - rest))
        return np.full(size, -stdtrit(noise.dof_of_all, tail)), total
    if noise.dof is None:
        return np.full(size, -ndtri(tail)), float(chdtri(size, rest))
    reach = np.asarray(-stdtrit(noise.dof, tail), dtype=np.float64)
    return reach, _truncated_quantile(noise.dof, reach, rest)


def _weighted_quantile(weights: FloatArray, tail: float) -> float:
    """The x that Σ λ_j χ²₁ exceeds with this probability, by the saddlepoint approximation (Kuonen 1999), halving."""
    weights = weights[weights > 1e-12 * weights.max()]
    mean, spread = float(weights.sum()), float(np.sqrt(2 * np.sum(weights**2)))
    low, high = mean, mean + spread * 10
    while _log_weighted_tail(weights, high) > np.log(tail):
        low, high = high, high + 2 * (high - mean)
    for _ in range(50):
        middle = (low + high) / 2
        if _log_weighted_tail(weights, middle) > np.log(tail):
            low = middle
        else:
            high = middle
    return high


def _log_weighted_tail(weights: FloatArray, value: float) -> float:
    """Log of P(Σ λ_j χ²₁ > value) for a value above the mean, by Lugannani and Rice in Barndorff-Nielsen's form."""
    # K(s) = −½ Σ log(1 − 2 λ s); K′(s) = value is solved on 0 < s < 1/(2 λ_max), where K′ rises without bound.
    low, high = 0.0, 0.5 / float(weights.max())
    for _ in range(60):
        s = (low + high) / 2
        if np.sum(weights / (1 - 2 * weights * s)) < value:
            low = s
        else:
            high = s
    s = (low + high) / 2
    scaled = 1 - 2 * weights * s
    root = float(np.sqrt(max(2 * (s * value + 0.5 * np.sum(np.log(scaled))), 0.0)))
    if root < 1e-3:
        return float(np.log(0.5))
    second = s * float(np.sqrt(2 * np.sum((weights / scaled) ** 2)))
    return float(log_ndtr(-(root + np.log(second / root) / root)))


def _truncated_quantile(dof: FloatArray, reach: FloatArray, tail: float) -> float:
    """The x that Σ min(t_i², b_i²) exceeds with this probability, for independent t_i.

    Each law is put on a grid in a way that keeps its mean, the laws are convolved by Fourier transforms. Groups with
    nearly the same degrees of freedom share a law, that of the fewest, whose squares are the largest.
    """
    _, steps = np.unique(np.floor(np.log(dof) * 16), return_inverse=True)
    fewest = np.full(int(steps.max()) + 1, np.inf)
    farthest = np.zeros_like(fewest)
    np.minimum.at(fewest, steps, dof)
    np.maximum.at(farthest, steps, reach)
    counts = np.bincount(steps)
    # Mean and variance of squares by 2,000 quantiles, for the length of the grid.
    levels = (np.arange(2000) + 0.5) / 4000
    squares = np.minimum(stdtrit(fewest[:, None], levels), 0.0) ** 2
    squares = np.minimum(squares, farthest[:, None] ** 2)
    mean, variance = counts @ squares.mean(axis=1), counts @ squares.var(axis=1)
    length = float(mean + 12 * np.sqrt(variance) + 3 * farthest.max() ** 2 * max(-np.log10(tail) / 3, 1.0))
    edges = np.linspace(0.0, length, _BINS)
    transform = np.ones(_BINS + 1, dtype=np.complex128)
    for degrees, most, count in zip(fewest, farthest, counts, strict=True):
        transform *= np.fft.rfft(_discretize(float(degrees), float(most), edges), 2 * _BINS) ** count
    law = np.fft.irfft(transform, 2 * _BINS)
    above = np.cumsum(law[::-1])[::-1]
    place = int(np.argmax(above <= max(tail, 1e-13)))
    return float(place * (edges[1] - edges[0])) if above[place] <= max(tail, 1e-13) else np.inf


def _discretize(dof: float, reach: float, edges: FloatArray) -> FloatArray:
    """The law of min(t², b²) on a grid: the mass of every cell goes to its two ends so that the mean stays."""
    root = np.minimum(np.sqrt(edges), reach)
    below = 1 - 2 * stdtr(dof, -root)
    # Mass and first moment of every cell; E[t²; t² ≤ x] from four points inside each is exact to far below a cell.
    fractions = (np.arange(4) + 0.5) / 4
    step = edges[1]
    levels = below[:-1, None] + np.diff(below)[:, None] * fractions
    inside = np.clip(stdtrit(dof, (1 - levels) / 2) ** 2, edges[:-1, None], edges[1:, None])
    right = np.diff(below) * np.mean((inside - edges[:-1, None]) / step, axis=1)
    law = np.zeros(edges.size)
    law[:-1] += np.diff(below) - right
    law[1:] += right
    place = min(reach**2 / step, edges.size - 1.001)
    law[int(place)] += (1 - below[-1]) * (1 - place % 1)
    law[int(place) + 1] += (1 - below[-1]) * (place % 1)
    return law


# ------------------------------------------------------------------------------------------------ the dynamic program


class _Intervals:
    """Costs of intervals of the sorted groups: squares about the best center that is in reach of all of them."""

    def __init__(self, theta: FloatArray, se: FloatArray, reach: FloatArray) -> None:
        weight = se**-2.0
        self.size = theta.size
        zero = np.zeros(1)
        self.mass, self.moment, self.square = (
            np.concatenate((zero, np.cumsum(part))) for part in (weight, weight * theta, weight * theta**2)
        )
        self.slack = _ROUNDING * self.square[-1]  # costs are never taken for more than they are
        # Highest lower end and lowest upper end of what 2^level groups from each place on allow.
        self.low, self.high = [theta - reach * se], [theta + reach * se]
        width = 1
        while 2 * width <= self.size:
            low, high = self.low[-1], self.high[-1]
            self.low.append(np.maximum(low[:-width], low[width:]))
            self.high.append(np.minimum(high[:-width], high[width:]))
            width *= 2
        # One row per level, so that a query is one look-up.
        self.lows, self.highs = (_padded(part, self.size) for part in (self.low, self.high))
        self.exponent = np.zeros(self.size + 1, dtype=np.int64)
        self.exponent[1:] = np.log2(np.arange(1, self.size + 1) + 0.5).astype(np.int64)
        self.first = self._first()

    def _first(self) -> IntArray:
        """For every end j the first i from which on groups i … j − 1 have a center in reach of all; never falling."""
        ends = np.arange(self.size + 1)
        start, low, high = ends.copy(), np.full(self.size + 1, -np.inf), np.full(self.size + 1, np.inf)
        for level in range(len(self.low) - 1, -1, -1):
            before = start - 2**level
            place = np.maximum(before, 0)
            lower = np.maximum(low, self.lows[level, place])
            upper = np.minimum(high, self.highs[level, place])
            longer = (before >= 0) & (lower <= upper)
            start, low, high = (np.where(longer, *pair) for pair in ((before, start), (lower, low), (upper, high)))
        return np.asarray(start)

    def cost(self, start: IntArray, end: IntArray) -> FloatArray:
        """Costs of groups start … end − 1, where `start` is not before the first that is possible."""
        mass = self.mass[end] - self.mass[start]
        moment = self.moment[end] - self.moment[start]
        mean = moment / np.where(mass > 0, mass, 1.0)  # groups whose weight is lost in the sum cost nothing
        level = self.exponent[end - start]
        other = end - (1 << level)
        low = np.maximum(self.lows[level, start], self.lows[level, other])
        high = np.minimum(self.highs[level, start], self.highs[level, other])
        moved = np.clip(mean, low, high) - mean
        squares = self.square[end] - self.square[start] - moment * mean - self.slack
        return np.asarray(np.maximum(squares, 0.0) + mass * moved**2)


def _padded(rows: list[FloatArray], width: int) -> FloatArray:
    table = np.zeros((len(rows), width))
    for i, row in enumerate(rows):
        table[i, : row.size] = row
    return table


def _rejected(noise: _Noise, alpha: float, most: int) -> int:
    """How many of the hypotheses "at most 1", "at most 2", … in turn are rejected."""
    size = noise.theta.size
    reach, limit = _limits(noise, alpha)
    intervals = _Intervals(noise.theta, noise.se, np.asarray(reach))
    reached, best = 0, np.zeros(1)
    for count in range(1, min(most, size - 1) + 1):
        # The longest prefix that this number of intervals can cover, each with a center in reach.
        farthest = int(np.searchsorted(intervals.first, reached, side="right")) - 1
        covered = farthest == size
        if covered and limit == np.inf:
            return count - 1
        if limit < np.inf:
            best = _next_layer(intervals, best, reached, farthest)
            if covered and best[size] <= limit:
                return count - 1
        reached = farthest
    return min(most, size - 1)


def _next_layer(intervals: _Intervals, best: FloatArray, reached: int, farthest: int) -> FloatArray:
    """Smallest costs of the prefixes 0 … farthest with one interval more than `best` (prefixes 0 … reached) has.

    The best start of the last interval never falls as the prefix grows. So prefixes at multiples of a stride bound
    those between them, and every stride needs about K costs.
    """
    layer = np.full(farthest + 1, np.inf)
    layer[0] = 0.0
    starts = np.zeros(farthest + 1, dtype=np.int64)
    stride = 1 << max(farthest, 1).bit_length()
    while stride >= 1:
        ends = np.arange(stride, farthest + 1, 2 * stride)
        if ends.size:
            low = np.maximum(intervals.first[ends], starts[ends - stride])
            high = np.minimum(ends - 1, reached)
            after = ends + stride
            inside = after <= farthest
            high[inside] = np.minimum(high[inside], starts[after[inside]])
            high = np.maximum(high, low)  # the order of starts holds up to rounding
            counts = high - low + 1
            begins = np.cumsum(counts) - counts
            ends_of = np.repeat(ends, counts)
            candidates = np.arange(counts.sum()) - np.repeat(begins - low, counts)
            values = best[candidates] + intervals.cost(candidates, ends_of)
            smallest = np.minimum.reduceat(values, begins)
            layer[ends] = smallest
            at = np.flatnonzero(values == np.repeat(smallest, counts))
            _, first = np.unique(ends_of[at], return_index=True)
            starts[ends] = candidates[at[first]]
        stride //= 2
    return layer
