"""Linear hypotheses about cells: do the levels of an attribute differ, alone, beside others, or within levels?

A model is a list of partitions of the cells: an effect for each level of each, added up. `compare` tests a model
against one that it is part of. All models use the same weights w = 1/se², so what a test looks at is a difference of
two weighted sums of squares.

- Known standard errors: χ². Known but for one factor (`dof_of_all`): F.
- Standard errors with degrees of freedom of their own: the test statistic of Box (1954) and Brunner, Dette and Munk
  (1997). With P the projection that is tested and D the estimated variances times w, F = SS / tr(PD) on
  tr(PD)²/tr(PDPD) and tr(PD)²/Σ(P_ii D_ii)²/ν_i degrees of freedom. For two levels it is Welch's t. Weights come from
  variances that are pulled together (`shrink_scales`), which keeps them almost independent of what they weigh.
- A known covariance: generalized least squares. A covariance of which every entry is estimated: Hotelling's T² of the
  contrasts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.special import betainc, betaln, digamma, polygamma

from faultlines.core.comparison import AS_GOOD_AS_KNOWN
from faultlines.core.distributions import log_f_tail, log_hotelling_tail, log_t_tail, meier, shrink_scales
from faultlines.core.normal import CorrelatedNoise, covariance_of_means
from faultlines.estimates.labels import cross_levels, refines
from faultlines.types import FloatArray, IntArray

_RANK = 1e-9  # of the largest: eigenvalues below it are rounding, in units of the diagonal
_DENSE = 30_000_000  # numbers in one table of levels by levels; beyond it effects are fitted in turn
_STEPS = 2_000_000_000  # multiplications of one decomposition, about a second
_ROUNDS = 500  # of fitting effects in turn; ten are enough for most tables
_RANKS = {1: 0.6, 2: 0.25, 4: 0.1, 8: 0.05}  # shares of the j parents with the most deviating children
_LEAST_DOF = 0.5  # what is left of ν − 2 or ν − 3 at least, as in `precision`


class LinearTest(NamedTuple):
    """A model against a larger one.

    Attributes:
        square: The sum of squares that the larger model adds, in units of the noise (expected: `effects`).
        effects: Degrees of freedom of what it adds.
        errors: Degrees of freedom behind the standard errors; infinite where these are known.
        log_p: Log p of "it adds nothing"; 0 where it has no more effects.
    """

    square: float
    effects: float
    errors: float
    log_p: float


class WithinTest(NamedTuple):
    """The largest difference within one of the levels.

    Attributes:
        log_p_child: Log p of the children that deviate most from their parents, for the number of children.
        log_p_parent: Log p of the parent whose children differ most as a whole, for its share of the effects.
    """

    log_p_child: float
    log_p_parent: float


NOTHING = LinearTest(0.0, 0.0, np.inf, 0.0)


@dataclass(frozen=True, eq=False)
class WeightedCells:
    """Estimates of cells with fixed weights.

    Attributes:
        theta: Estimates, (K,).
        weight: Weights, (K,): 1/se², or 1/variance pulled together where standard errors are estimated.
        excess: Estimated variance times weight, (K,); None where variances are 1/weight.
        dof: Degrees of freedom behind each variance, (K,); None where they are known.
        reliance: How far each weight follows its own estimated variance, 0 … 1, (K,); None where these are known.
        covariance: Of the cells, (K, K), where their own noise does not say all of how they differ.
        dof_of_all: Degrees of freedom behind all standard errors at once.
        whole: Whether these are of the covariance as a whole (Hotelling).
        alone: Variance and degrees of freedom of each cell by its own rows alone, (K, 2), where that is known.
    """

    theta: FloatArray
    weight: FloatArray
    excess: FloatArray | None = None
    dof: FloatArray | None = None
    reliance: FloatArray | None = None
    covariance: FloatArray | None = None
    dof_of_all: float = np.inf
    whole: bool = False
    alone: FloatArray | None = None

    @classmethod
    def of(
        cls,
        theta: FloatArray,
        se: FloatArray,
        dof: FloatArray | None = None,
        covariance: FloatArray | None = None,
        dof_of_all: float = np.inf,
        *,
        whole: bool = False,
        alone: FloatArray | None = None,
    ) -> WeightedCells:
        """Cells as they are estimated.

        Args:
            theta: Estimates.
            se: Standard errors: what of the noise is each cell's own.
            dof: Degrees of freedom behind each.
            covariance: Of the cells, where own noise is not all.
            dof_of_all: Degrees of freedom behind all standard errors at once.
            whole: Whether these are of the covariance as a whole.
            alone: Standard error and degrees of freedom of each cell by its own rows alone.
        """
        centered = theta - theta[theta.size // 2]
        alone = None if alone is None else alone ** [2.0, 1.0]
        if dof is None:
            return cls(centered, se**-2.0, None, None, None, covariance, dof_of_all, whole, alone)
        weight = shrink_scales(se, dof) ** -2.0
        return cls(centered, weight, se**2 * weight, dof, _reliance(se, dof), covariance, dof_of_all, whole, alone)

    def __len__(self) -> int:
        return self.theta.size

    def subset(self, places: IntArray) -> WeightedCells:
        """Some of the cells."""
        return self if places.size == len(self) else self._at(places)

    def aggregate(self, codes: IntArray) -> WeightedCells:
        """The weighted means of the levels of a partition, whose levels are numbered from 0.

        A mean's variance is Σ w²s²/W² with allowance for weights that follow the variances they come from (Meier's
        term times that reliance), its degrees of freedom Satterthwaite's (Σ w²s²)²/Σ (w²s²)²/ν.
        """
        levels = int(codes.max()) + 1
        if levels == len(self):
            return self._at(np.argsort(codes))
        total = _sum(codes, self.weight, levels)
        theta = _sum(codes, self.weight * self.theta, levels) / total
        covariance = None if self.covariance is None else covariance_of_means(self.covariance, self.weight, codes)
        alone = None if self.alone is None else _mean_alone(self.alone, self.weight, codes, total)
        if self.excess is None or self.dof is None or self.reliance is None:
            return WeightedCells(theta, total, None, None, None, covariance, self.dof_of_all, self.whole, alone)
        spread = self.weight * self.excess
        variance, freedom = _sum_variances(codes, spread, self.dof, levels)
        reliance = _sum(codes, self.weight * self.reliance, levels) / total
        share = self.weight / np.maximum(self.dof - 3, _LEAST_DOF)
        squares = _sum(codes, self.weight * share, levels)
        added = meier(total, _sum(codes, share, levels), squares)
        excess = variance / total * (1 + reliance * np.maximum(added, 0.0))
        return WeightedCells(theta, total, excess, freedom, reliance, covariance, self.dof_of_all, self.whole, alone)

    def _at(self, order: IntArray) -> WeightedCells:
        own = (self.excess, self.dof, self.reliance, self.alone)
        excess, dof, reliance, alone = (None if x is None else x[order] for x in own)
        covariance = None if self.covariance is None else self.covariance[np.ix_(order, order)]
        return WeightedCells(
            self.theta[order], self.weight[order], excess, dof, reliance, covariance, self.dof_of_all, self.whole, alone
        )

    @cached_property
    def root(self) -> FloatArray:
        """The lower triangular root of the covariance."""
        if self.covariance is None:
            raise TypeError("no covariance")
        return CorrelatedNoise.from_differences(self.covariance).root


def _sum(codes: IntArray, values: FloatArray, levels: int = 0) -> FloatArray:
    """The sum of values in each level."""
    return np.asarray(np.bincount(codes, values, levels), dtype=np.float64)


def _sum_variances(codes: IntArray, parts: FloatArray, dof: FloatArray, levels: int) -> tuple[FloatArray, FloatArray]:
    """Sums of estimated variances in each level, and Satterthwaite's degrees of freedom."""
    variance = _sum(codes, parts, levels)
    return variance, variance**2 / _sum(codes, parts**2 / np.minimum(dof, AS_GOOD_AS_KNOWN), levels)


def _mean_alone(alone: FloatArray, weight: FloatArray, codes: IntArray, total: FloatArray) -> FloatArray:
    """The same of the weighted means of levels."""
    variance, freedom = _sum_variances(codes, weight**2 * alone[:, 0], alone[:, 1], total.size)
    return np.stack((variance / total**2, freedom), axis=1)


def _reliance(se: FloatArray, dof: FloatArray) -> FloatArray:
    """How far `shrink_scales` follows each estimated variance: d log scale² / d log se², with the mean held fixed."""
    if se.size < 2:
        return np.ones(se.size)
    half = np.minimum(dof, AS_GOOD_AS_KNOWN) / 2
    noise = polygamma(1, half)
    slack = np.sqrt(2 * noise.mean() ** 2 / (half.size - 1) + polygamma(3, half).mean() / half.size)
    log_variance = 2 * np.log(se) - (digamma(half) - np.log(half))
    spread = max(0.0, float(log_variance.var(ddof=1) - noise.mean() - slack))
    return np.asarray(np.sqrt(spread / (spread + noise)))


# ------------------------------------------------------------------------------------------------------ tests of models


def compare(cells: WeightedCells, base: Sequence[IntArray], larger: Sequence[IntArray]) -> LinearTest:
    """Test a model against a larger one that contains it.

    Args:
        cells: The cells.
        base: Partitions whose levels have effects in both models; none: one mean for all.
        larger: Partitions of the larger model; the base must be among them or be refined by them.

    Returns:
        The test; p = 1 on 0 degrees of freedom where the larger model is the same.

    Example:
        >>> cells = WeightedCells.of(np.array([0.0, 1.0, 3.0, 4.0]), np.ones(4))
        >>> test = compare(cells, [], [np.array([0, 0, 1, 1])])
        >>> round(test.square, 6), test.effects, round(float(np.exp(test.log_p)), 4)
        (9.0, 1, 0.0027)
    """
    base, larger = _without_coarser(base), _without_coarser(larger)
    crossed = cross_levels(larger) if larger else np.zeros(len(cells), dtype=np.int64)
    if cells.covariance is None and int(crossed.max()) + 1 < len(cells):  # models are constant within these levels
        first = np.unique(crossed, return_index=True)[1]
        base, larger = [codes[first] for codes in base], [codes[first] for codes in larger]
        cells = cells.aggregate(crossed)
    if cells.covariance is not None:
        return _compare_correlated(cells, base, larger)
    before, after = _squares(cells, base), _squares(cells, larger)
    effects, square = after[1] - before[1], max(before[0] - after[0], 0.0)
    if effects < 1:
        return NOTHING
    if cells.excess is None or cells.dof is None:
        return LinearTest(square, effects, cells.dof_of_all, _log_f(square, effects, cells.dof_of_all))
    expected, squares, errors = _traces(cells, base, larger, effects)
    scaled = square * effects / expected
    freedom = min(expected**2 / squares, effects)
    return LinearTest(
        scaled, effects, expected**2 / errors, _log_f(scaled * freedom / effects, freedom, expected**2 / errors)
    )


def compare_within(cells: WeightedCells, parents: IntArray, children: IntArray) -> WithinTest:
    """Look for single children, and for one parent whose children differ, where children lie within parents.

    Every child is compared with the weighted mean of its parent; the smallest p of a parent's n children times n is
    its p. Parents are independent, so the j-th smallest of m such p follows from a binomial distribution; j = 1, 2, 4
    and 8 have shares of the significance level. The children of every parent are also compared as a whole (Cochran's
    Q), and the smallest p counts for the number of parents.

    Args:
        cells: The cells.
        parents: A partition, numbered from 0.
        children: A finer partition, numbered from 0.

    Returns:
        Both p; 1 where no parent has two children, or for Q where none has three, which it adds nothing to.
    """
    first = np.unique(children, return_index=True)[1]
    levels = _by_the_larger_variance(cells.aggregate(children))
    above = parents[first]
    count = np.bincount(above)
    several = count > 1
    if not several.any():
        return WithinTest(0.0, 0.0)
    smallest = np.zeros(count.size)
    np.minimum.at(smallest, above, _log_p_of_children(levels, above))
    smallest = smallest[several] + np.log(count[several] - (count[several] == 2))  # two children deviate by the same
    is_independent = cells.covariance is None and np.isinf(cells.dof_of_all)
    log_p_child = _log_p_of_smallest(np.minimum(smallest, 0.0), _RANKS if is_independent else {1: 1.0})
    if count.max() == 2:
        return WithinTest(log_p_child, 0.0)
    log_p_parent = _log_p_of_parents(levels, above)[several] + np.log((count - 1.0).sum() / (count[several] - 1.0))
    return WithinTest(log_p_child, min(float(log_p_parent.min()), 0.0))


def _by_the_larger_variance(levels: WeightedCells) -> WeightedCells:
    """Levels whose variance is the larger of that by their own rows and the one they have, for tests of single ones.

    A few extreme values among few rows raise a mean, and the variance of the same rows, but not one that groups share:
    by that alone a cell of log-normal values is far from all others in one of five data sets of 700 cells.
    """
    if levels.alone is None or levels.covariance is not None:
        return levels
    variance = (1.0 if levels.excess is None else levels.excess) / levels.weight
    ones, dof = np.ones(len(levels)), levels.alone[:, 1]
    return replace(
        levels,
        weight=1 / np.maximum(variance, levels.alone[:, 0]),
        excess=ones,
        dof=dof if levels.dof is None else np.minimum(levels.dof, dof),
        reliance=ones,
    )


def _log_p_of_smallest(log_p: FloatArray, shares: dict[int, float]) -> float:
    """Log p of independent p: whether the j-th smallest is too small, for each j with its share of the level."""
    ranked = np.sort(log_p)
    total = sum(share for j, share in shares.items() if j <= ranked.size)
    tested = [0.0]
    for j, share in shares.items():
        if j <= ranked.size:
            at, rest = float(ranked[j - 1]), ranked.size - j + 1
            # P(at least j of m p are below t) = I_t(j, m − j + 1), at most C(m, j) t^j, which does not underflow.
            log_tail = j * at - float(betaln(j, rest)) - np.log(j)
            if at > np.log(1e-12):
                log_tail = float(np.log(betainc(j, rest, np.exp(at))))
            tested.append(log_tail - float(np.log(share / total)))
    return min(tested)


def _log_p_of_children(levels: WeightedCells, above: IntArray) -> FloatArray:
    """Log p of each child against the mean of its parent."""
    weight, groups = levels.weight, int(above.max()) + 1
    total = _sum(above, weight, groups)[above]
    gap = levels.theta - (_sum(above, weight * levels.theta, groups)[above] / total)
    share = weight / total
    if levels.covariance is not None:
        contrast = np.eye(len(levels)) - np.where(above[:, None] == above, weight / total[:, None], 0.0)
        variance = np.einsum("ij,jk,ik->i", contrast, levels.covariance, contrast, optimize=True)
        errors = np.full(len(levels), levels.dof_of_all if levels.dof is None else float(levels.dof.min()))
    else:
        excess = np.ones(len(levels)) if levels.excess is None else levels.excess
        own = (1 - share) ** 2 * excess / weight
        each = weight * excess / total**2
        variance = own + _sum(above, each, groups)[above] - each
        errors = np.full(len(levels), levels.dof_of_all)
        if levels.dof is not None:
            dof = np.minimum(levels.dof, AS_GOOD_AS_KNOWN)
            squares = own**2 / dof + _sum(above, each**2 / dof, groups)[above] - each**2 / dof
            # Satterthwaite's are never below the smallest; the variance of an only child is 0, and 0/0 no number.
            errors = np.maximum(variance**2 / np.maximum(squares, 1e-300), dof.min())
    variance = np.maximum(variance, 1e-12 / weight)
    return np.asarray(log_t_tail(np.abs(gap) / np.sqrt(variance), np.minimum(errors, AS_GOOD_AS_KNOWN)))


def _log_p_of_parents(levels: WeightedCells, above: IntArray) -> FloatArray:
    """Log p of Cochran's Q between the children of each parent; 0 for a single child."""
    weight, groups = levels.weight, int(above.max()) + 1
    freedom = np.bincount(above, minlength=groups) - 1.0
    if levels.covariance is not None:
        return np.array([_log_p_of_correlated(levels, np.flatnonzero(above == g)) for g in range(groups)])
    total = _sum(above, weight, groups)
    gap = levels.theta - (_sum(above, weight * levels.theta, groups) / total)[above]
    square = _sum(above, weight * gap**2, groups)
    errors = np.full(groups, levels.dof_of_all)
    if levels.excess is not None and levels.dof is not None:
        leverage = (1 - weight / total[above]) * _allowed(levels, np.maximum(freedom, 1.0)[above])
        expected = np.maximum(_sum(above, leverage, groups), 1e-300)
        errors = expected**2 / np.maximum(_sum(above, leverage**2 / levels.dof, groups), 1e-300)
        square = square * freedom / expected
    log_p = np.zeros(groups)
    for each in np.unique(freedom[freedom > 0]).tolist():
        same = freedom == each
        if np.isinf(errors[same]).all():
            log_p[same] = log_f_tail(square[same] / each, each, np.inf)
        else:
            log_p[same] = [_log_f(s, each, e) for s, e in zip(square[same], errors[same], strict=True)]
    return log_p


def _log_p_of_correlated(levels: WeightedCells, members: IntArray) -> float:
    if members.size < 2 or levels.covariance is None:
        return 0.0
    between = levels.covariance[np.ix_(members, members)]
    theta = levels.theta[members] - levels.theta[members[0]]
    square = float(CorrelatedNoise.from_differences(between).heterogeneity(theta[None])[0])
    freedom = float(members.size - 1)
    if levels.whole:
        return float(log_hotelling_tail(np.array([square]), int(freedom), levels.dof_of_all)[0])
    return _log_f(square, freedom, levels.dof_of_all if levels.dof is None else float(levels.dof.min()))


def _log_f(square: float, effects: float, errors: float) -> float:
    """Log p of a sum of squares on these degrees of freedom."""
    errors = np.inf if errors >= AS_GOOD_AS_KNOWN else errors
    return float(log_f_tail(np.array([square / effects]), effects, errors)[0])


# ------------------------------------------------------------------------------------------------------ least squares


def _without_coarser(partitions: Sequence[IntArray]) -> list[IntArray]:
    """The partitions without those that another one refines, which have no effect of their own beside it."""
    finest: list[IntArray] = []
    for codes in sorted(partitions, key=lambda codes: -int(codes.max())):
        if codes.max() > 0 and not any(refines(finer, codes) for finer in finest):
            finest.append(codes)
    return finest


def _squares(cells: WeightedCells, partitions: Sequence[IntArray]) -> tuple[float, int]:
    """What an additive model leaves of the weighted squares, and its rank. The first partition is the largest one.

    The largest partition is eliminated (its block of the normal equations is diagonal), so that only a table of the
    other levels is decomposed.
    """
    weight = cells.weight
    if not partitions:
        rest = cells.theta - np.average(cells.theta, weights=weight)
        return float(np.sum(weight * rest**2)), 1
    largest, others = partitions[0], partitions[1:]
    count = int(largest.max()) + 1
    total = _sum(largest, weight, count)
    rest = cells.theta - (_sum(largest, weight * cells.theta, count) / total)[largest]
    left = float(np.sum(weight * rest**2))
    if not others:
        return left, count
    sizes = [int(codes.max()) + 1 for codes in others]
    if sum(sizes) * max(count, sum(sizes)) > _DENSE:
        return _fit_in_turn(cells, partitions)
    values, vectors, scale = _eliminate(weight, largest, total, others, sizes)
    moment = np.concatenate([_sum(codes, weight * rest, size) for codes, size in zip(others, sizes, strict=True)])
    gain = float(np.sum((vectors.T @ (moment / scale)) ** 2 / values))
    return max(left - gain, 0.0), count + values.size


def _eliminate(
    weight: FloatArray, largest: IntArray, total: FloatArray, others: Sequence[IntArray], sizes: Sequence[int]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Eigenvalues above zero and their vectors of the normal equations of other levels beside the largest partition.

    In units of the roots of the diagonal, the third array, so that light levels count like heavy ones.
    """
    cross = np.concatenate([_table(largest, total.size, b, m, weight) for b, m in zip(others, sizes, strict=True)], 1)
    rows = [
        np.concatenate([_table(a, n, b, m, weight) for b, m in zip(others, sizes, strict=True)], 1)
        for a, n in zip(others, sizes, strict=True)
    ]
    normal = np.concatenate(rows) - cross.T @ (cross / total[:, None])
    scale = np.sqrt(np.concatenate([_sum(a, weight, n) for a, n in zip(others, sizes, strict=True)]))
    values, vectors = np.linalg.eigh(normal / scale[:, None] / scale)
    real = values > _RANK
    return values[real], vectors[:, real], scale


def _table(a: IntArray, n: int, b: IntArray, m: int, weight: FloatArray) -> FloatArray:
    """The weight of every pair of levels."""
    return np.asarray(np.bincount(a * m + b, weight, n * m).reshape(n, m))


def _fit_in_turn(cells: WeightedCells, partitions: Sequence[IntArray]) -> tuple[float, int]:
    """The same where tables would be too large: effects are fitted in turn until they stay (backfitting).

    The rank is that of attributes whose levels are connected through common cells, as those of large tables are.
    """
    weight = cells.weight
    rest = cells.theta - np.average(cells.theta, weights=weight)
    totals = [_sum(codes, weight) for codes in partitions]
    left = float(np.sum(weight * rest**2))
    for _ in range(_ROUNDS):
        before = left
        for codes, total in zip(partitions, totals, strict=True):
            rest = rest - (_sum(codes, weight * rest) / total)[codes]
        left = float(np.sum(weight * rest**2))
        if before - left <= 1e-10 * before:
            break
    return left, 1 + sum(total.size - 1 for total in totals)


# ---------------------------------------------------------------------------------------------------- additive models


class LevelEffects(NamedTuple):
    """The levels of one term of an additive model, each at the average mix of the other terms.

    Attributes:
        coefficients: The weight of each cell in the effect of each level, (L, K); they add up to 1.
        theta: Effects of the levels, (L,).
        covariance: Their covariance, (L, L).
        dof: Degrees of freedom behind their variances, (L,); None where those of the cells are known.
    """

    coefficients: FloatArray
    theta: FloatArray
    covariance: FloatArray
    dof: FloatArray | None


class AdditiveFit(NamedTuple):
    """An additive model of the cells.

    Attributes:
        log_p: Log p of "combinations of the terms add nothing".
        terms: The levels of each term.
    """

    log_p: float
    terms: tuple[LevelEffects, ...]


def fit_additive(cells: WeightedCells, terms: Sequence[IntArray], mix: FloatArray) -> AdditiveFit | None:
    """Fit effects of several partitions that add up, and test whether anything else shows.

    Half of the significance level goes to what the model leaves as a whole, half to the cell that is farthest from it,
    so that a single deviating cell is not lost among many.

    Args:
        cells: The cells.
        terms: Partitions of the cells, numbered from 0.
        mix: How much each cell counts where effects are averaged over the levels of other terms, (K,).

    Returns:
        The fit; None where it would be huge, or where the cells do not connect the levels of the terms.

    Example:
        >>> cells = WeightedCells.of(np.array([0.0, 1.0, 3.0, 4.0]), np.ones(4))
        >>> fit = fit_additive(cells, [np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])], np.ones(4))
        >>> fit.terms[0].theta.round(6).tolist(), round(float(np.exp(fit.log_p)), 6)
        ([-2.5, 0.5], 1.0)
    """
    sizes = [int(codes.max()) + 1 for codes in terms]
    columns = sum(sizes)
    if columns**2 * len(cells) > _STEPS or columns * len(cells) > _DENSE:
        return None
    design = np.concatenate([np.eye(size)[codes] for codes, size in zip(terms, sizes, strict=True)], axis=1)
    if cells.covariance is None or cells.whole:
        weighted = cells.weight[:, None] * design
    else:
        white = solve_triangular(cells.root, design, lower=True)
        weighted = solve_triangular(cells.root, white, lower=True, trans=1)
    normal = design.T @ weighted
    scale = np.sqrt(np.diagonal(normal))
    values, vectors = np.linalg.eigh(normal / scale[:, None] / scale)
    real = values > _RANK
    vectors = vectors[:, real] / scale[:, None]
    inverse = (vectors / values[real]) @ vectors.T
    averages = _averages(terms, sizes, mix)
    if not np.allclose(averages @ inverse @ normal, averages, atol=1e-6):
        return None
    fitted = inverse @ weighted.T
    log_p = _log_p_of_rest(cells, terms, design, fitted)
    coefficients = np.split(averages @ fitted, np.cumsum(sizes)[:-1])
    return AdditiveFit(log_p, tuple(_level_effects(cells, each) for each in coefficients))


def _averages(terms: Sequence[IntArray], sizes: Sequence[int], mix: FloatArray) -> FloatArray:
    """Which effects of all terms are added up for each level: its own, and the average of each other term."""
    shares = [_sum(codes, mix, size) / mix.sum() for codes, size in zip(terms, sizes, strict=True)]
    rows = np.tile(np.concatenate(shares), (sum(sizes), 1))
    start = 0
    for size in sizes:
        rows[start : start + size, start : start + size] = np.eye(size)
        start += size
    return rows


def _variances(cells: WeightedCells) -> FloatArray:
    """Variances of the cells, with allowance for being averaged with others where they are estimates."""
    return _allowed(cells, 1.0, 1.0) / cells.weight


def _level_effects(cells: WeightedCells, coefficients: FloatArray) -> LevelEffects:
    theta, dof = coefficients @ cells.theta, None
    if cells.covariance is not None:
        return LevelEffects(coefficients, theta, coefficients @ cells.covariance @ coefficients.T, None)
    variance = _variances(cells)
    if cells.dof is not None:  # Satterthwaite
        parts = coefficients**2 * variance
        dof = parts.sum(axis=1) ** 2 / (parts**2 @ (1 / np.minimum(cells.dof, AS_GOOD_AS_KNOWN)))
    return LevelEffects(coefficients, theta, (coefficients * variance) @ coefficients.T, dof)


def _log_p_of_rest(cells: WeightedCells, terms: Sequence[IntArray], design: FloatArray, fitted: FloatArray) -> float:
    """Log p of what an additive model leaves: all of it, and the cell that is farthest from the model."""
    everything = compare(cells, terms, [np.arange(len(cells), dtype=np.int64)])
    if everything.effects <= 1:
        return everything.log_p
    rest = cells.theta - design @ (fitted @ cells.theta)
    if cells.covariance is not None:
        own, shared = np.diagonal(cells.covariance), fitted @ cells.covariance
        errors = np.full(len(cells), cells.dof_of_all if cells.dof is None else float(cells.dof.min()))
    else:
        own = _variances(cells)
        shared = fitted * own
        errors = np.full(len(cells), cells.dof_of_all) if cells.dof is None else cells.dof
    variance = own - 2 * np.einsum("ip,pi->i", design, shared)
    variance = variance + np.einsum("ip,ip->i", design @ (shared @ fitted.T), design)
    free = variance > 1e-6 * own  # a cell that is alone in a level has no residual
    if not free.any():
        return everything.log_p
    size = np.abs(rest[free]) / np.sqrt(variance[free])
    log_p = log_t_tail(size, np.minimum(errors[free], AS_GOOD_AS_KNOWN)) + np.log(np.count_nonzero(free))
    return min(everything.log_p, float(np.min(log_p)), -float(np.log(2))) + float(np.log(2))


# ----------------------------------------------------------------------------------------- estimated standard errors


def _allowed(cells: WeightedCells, effects: FloatArray | float, averaged: FloatArray | float = 0.0) -> FloatArray:
    """Estimated variances times weights, with allowance for weights that follow the variances they come from.

    E[z² x^(−k)] / E[x^(1−k)] is about 1 + 2k/ν for x a mean square on ν degrees of freedom and reliance k; one
    contrast needs none of it (Johansen 1980: the factor (r − 1)/(r + 2)). Where a cell is averaged with others, as far
    as 1 − its leverage says, Meier's term 4k/(ν − 3) is added: without it an attribute beside others was found in .19
    of data sets without differences (K = 48, ν = 5, unequal variances, α = .05, 400 runs).
    """
    if cells.excess is None or cells.dof is None or cells.reliance is None:
        return np.ones(len(cells))
    added = 2 / np.maximum(cells.dof - 2, _LEAST_DOF) * (effects - 1) / (effects + 2)
    added = added + 4 * averaged / np.maximum(cells.dof - 3, _LEAST_DOF)
    return np.asarray(cells.excess * (1 + cells.reliance * added))


def _traces(
    cells: WeightedCells, base: Sequence[IntArray], larger: Sequence[IntArray], effects: int
) -> tuple[float, float, float]:
    """tr(PD), tr(PDPD) and Σ (P_ii D_ii)²/ν_i of the projection P that the larger model adds."""
    if cells.dof is None:
        return float(effects), float(effects), 0.0
    if len(base) <= 1 and len(larger) == 1:
        codes = base[0] if base else np.zeros(len(cells), dtype=np.int64)
        # Rows are the levels of the larger model (`compare`), so that P = I − the projection on those of the base.
        total = _sum(codes, cells.weight)[codes]
        diagonal, excess = 1 - cells.weight / total, _allowed(cells, float(effects))
        mean = _sum(codes, cells.weight * excess)[codes] / total
        squares = float(np.sum(excess**2) - 2 * np.sum(cells.weight * excess**2 / total))
        squares += float(np.sum(cells.weight * mean**2 / total))
    elif (projection := _added_basis(cells, base, larger)) is not None:
        basis, below = projection
        diagonal = np.einsum("ij,ij->i", basis, basis)
        excess = _allowed(cells, float(effects), np.clip(1 - below - diagonal, 0.0, 1.0))
        squares = float(np.sum((basis.T @ (excess[:, None] * basis)) ** 2))
    else:  # too large for a table: as if what is added were orthogonal to the base, as in balanced designs
        rank = 1 + sum(int(codes.max()) for codes in larger)
        added = [codes for codes in larger if not any(np.array_equal(codes, same) for same in base)]
        diagonal = np.sum([cells.weight / _sum(codes, cells.weight)[codes] for codes in added], axis=0)
        diagonal *= effects / float(diagonal.sum())
        excess = _allowed(cells, float(effects), 1 - min(rank / len(cells), 1.0))
        squares = float(np.sum(diagonal * excess)) ** 2 / effects
    expected = float(np.sum(diagonal * excess))
    errors = float(np.sum((diagonal * excess) ** 2 / np.minimum(cells.dof, AS_GOOD_AS_KNOWN)))
    return expected, max(squares, 1e-300), max(errors, 1e-300)


def _added_basis(
    cells: WeightedCells, base: Sequence[IntArray], larger: Sequence[IntArray]
) -> tuple[FloatArray, FloatArray] | None:
    """An orthonormal basis, in units of the noise, of what a model adds, and the leverages of its base.

    None where it would be huge.
    """
    root = np.sqrt(cells.weight)
    others = [codes for codes in larger if not any(np.array_equal(codes, same) for same in base)]
    columns = sum(int(codes.max()) + 1 for codes in others)
    wide = sum(int(codes.max()) + 1 for codes in base)
    if columns**2 * len(cells) > _STEPS or (len(base) > 1 and wide**2 * len(cells) > _STEPS):
        return None
    design = root[:, None] * np.concatenate([np.eye(int(codes.max()) + 1)[codes] for codes in others], axis=1)
    if len(base) == 1:  # its levels are orthogonal: taken off without a table
        total = _sum(base[0], cells.weight)
        means = np.stack([_sum(base[0], root * column) / total for column in design.T], axis=1)
        return _orthonormal(design - root[:, None] * means[base[0]]), cells.weight / total[base[0]]
    below = _orthonormal(root[:, None] * _dummies(base, len(cells)))
    return _orthonormal(design - below @ (below.T @ design)), np.einsum("ij,ij->i", below, below)


def _dummies(partitions: Sequence[IntArray], cells: int) -> FloatArray:
    """A column of zeros and ones for every level, and one of ones."""
    parts = [np.ones((cells, 1)), *(np.eye(int(codes.max()) + 1)[codes] for codes in partitions)]
    return np.concatenate(parts, axis=1)


def _orthonormal(design: FloatArray) -> FloatArray:
    """An orthonormal basis of the columns."""
    basis, triangle, _ = qr(design, mode="economic", pivoting=True)
    size = np.abs(np.diagonal(triangle))
    return np.asarray(basis[:, size > np.sqrt(_RANK) * max(float(np.sqrt(np.max(design**2))), 1e-300)])


# -------------------------------------------------------------------------------------------------------- covariances


def _compare_correlated(cells: WeightedCells, base: Sequence[IntArray], larger: Sequence[IntArray]) -> LinearTest:
    """The same where cells have a covariance: generalized least squares, or Hotelling's T² of the contrasts."""
    size, covariance = len(cells), cells.covariance
    if covariance is None:
        raise TypeError("no covariance")
    if cells.whole:
        root = np.sqrt(cells.weight)
        before = _orthonormal(root[:, None] * _dummies(base, size))
        design = root[:, None] * _dummies(larger, size)
        contrast = _orthonormal(design - before @ (before.T @ design)) * root[:, None]
        effects = contrast.shape[1]
        if not effects:
            return NOTHING
        value = contrast.T @ cells.theta
        square = float(value @ np.linalg.solve(contrast.T @ covariance @ contrast, value))
        errors = max(cells.dof_of_all - effects + 1, 1.0)
        log_p = float(log_hotelling_tail(np.array([square]), effects, cells.dof_of_all)[0])
        return LinearTest(square * errors / cells.dof_of_all, effects, errors, log_p)
    white = solve_triangular(cells.root, cells.theta, lower=True)
    before, after = (
        _orthonormal(solve_triangular(cells.root, _dummies(model, size), lower=True)) for model in (base, larger)
    )
    effects = after.shape[1] - before.shape[1]
    if effects < 1:
        return NOTHING
    square = max(float(np.sum((after.T @ white) ** 2) - np.sum((before.T @ white) ** 2)), 0.0)
    errors = cells.dof_of_all if cells.dof is None else min(cells.dof_of_all, float(cells.dof.min()))
    return LinearTest(square, effects, errors, _log_f(square, effects, errors))
