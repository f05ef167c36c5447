"""Which attributes matter: how much of the variation between groups goes with each, and whether that is chance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc, chdtri, fdtrc, log_ndtr

from faultlines import text
from faultlines.estimates.shared import is_independent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import Estimates, IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.result.attributes import Attribute
    from faultlines.result.rules import Population

COMBINATIONS = "(combinations)"
_NOISE = 0.05  # p of Cochran's Q above which there is nothing to explain
_UPPER = 0.1  # chance that groups vary more than the test of an attribute allows for
_ALL = 0.9  # share of the variation from which on an attribute explains "all" that noise leaves to be explained
_TOLD = 0.05  # share from which on combinations are worth a word
_MOST_EFFECTS = 800  # up to which the rank of a design is computed
_MOST_ATTRIBUTES = 8  # up to which every choice of fewer attributes is tried


@dataclass(frozen=True, slots=True)
class Explained:
    """How much of the variation between groups goes with an attribute, noise taken off.

    Attributes:
        attribute: Its name; or `COMBINATIONS`, for what no attribute explains by itself.
        values: How many it has.
        alone: The share of the variation that its values explain when nothing else is looked at.
        beyond: The share they add to what all other attributes explain together.
        part: Which of several effects; empty for a single one.
        pvalue: Of "it explains no more than chance, the other attributes held fixed", adjusted for the number of
            attributes (Holm). None for combinations, and where no groups are left to tell it from chance.

    Example:
        >>> import faultlines as fl
        >>> labels = [(country, device) for country in ("DE", "FR", "IN") for device in ("app", "web")]
        >>> both = fl.Estimates([0.0, 1.0, 0.1, 1.2, 5.0, 6.1], [0.1] * 6, labels, attributes=["country", "device"])
        >>> for one in fl.cluster(both).explained():
        ...     print(one.attribute, one.values, round(one.alone, 2), round(one.beyond, 2))
        country 3 0.95 0.95
        device 2 0.05 0.05
        (combinations) 6 0.0 0.0
    """

    attribute: str
    values: int
    alone: float
    beyond: float
    part: str = ""
    pvalue: float | None = None


def explained(estimates: Estimates, population: Population) -> tuple[Explained, ...]:
    """The share of the between-group variation that each attribute explains, and whether it is more than chance.

    The variation is Cochran's Q, the weighted sum of squares around the mean. Groups without any difference have
    Q = K − 1 on average, and an attribute of L values then explains L − 1 of it; both are taken off, so that an
    attribute with many values gains nothing from noise. Shares do not add up to one where attributes act together or
    overlap; they are zero where neither Q nor the test of an attribute finds anything.
    """
    columns = population.columns
    if len(columns) < 2 or len(estimates) < 3:
        return ()
    if estimates.covariance is not None and not is_independent(estimates.covariance, estimates.own[:, 0] ** 2):
        return ()  # groups that share data in ways of their own have no such sum of parts
    design = _Design.of(columns)
    tested = [_pvalues(design, *_effect(estimates, part)) for part in range(estimates.dims)]
    adjusted = iter(_holm([p for several in tested for p in several]))
    found: list[Explained] = []
    for part in range(estimates.dims):
        named = estimates.parts[part] if estimates.parts else ""
        pvalues = [next(adjusted) for _ in columns]
        rows = _shares(design, *_effect(estimates, part), is_known=any(p <= _NOISE for p in pvalues if p is not None))
        found += [replace(row, part=named, pvalue=p) for row, p in zip(rows, [*pvalues, None], strict=True)]
    return tuple(found)


def _effect(estimates: Estimates, part: int) -> tuple[FloatArray, FloatArray]:
    """One effect and its variances, in units of the smallest one: numbers of any size can be squared then."""
    errors = estimates.own[:, part]
    unit = float(errors.min())
    return (estimates.values[:, part] - estimates.values[0, part]) / unit, (errors / unit) ** 2


@dataclass(frozen=True, slots=True, eq=False)
class _Design:
    """The attributes of the groups.

    Attributes:
        columns: The attributes.
        finer: For each, those of the others that determine it: a city says what its country is.
        crossed: How many groups have each pair of values; empty where there are too many values.
        freedom: How many effects the values have together.
        without: The same without each of them.
    """

    columns: tuple[Attribute, ...]
    finer: tuple[tuple[int, ...], ...]
    crossed: FloatArray
    freedom: int = 0
    without: tuple[int, ...] = ()

    @classmethod
    def of(cls, columns: tuple[Attribute, ...]) -> _Design:
        every = range(len(columns))
        finer = tuple(tuple(j for j in every if j != i and _determines(columns[j], columns[i])) for i in every)
        bare = cls(columns, finer, _crossed(columns))
        without = tuple(bare.freedom_of([j for j in every if j != i]) for i in every)
        return replace(bare, freedom=bare.freedom_of(every), without=without)

    @property
    def codes(self) -> list[IntArray]:
        return [column.codes for column in self.columns]

    def freedom_of(self, chosen: Sequence[int]) -> int:
        """How many effects the values of some attributes have together; cities leave none to their country."""
        needed = [i for i in chosen if not set(self.finer[i]) & set(chosen)]
        plain = sum(len(self.columns[i].values) - 1 for i in needed)
        if plain > _MOST_EFFECTS or len(needed) < 2 or not self.crossed.size:
            return plain
        starts = np.cumsum([0, *(len(column.values) for column in self.columns)])
        places = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in needed])
        return int(np.linalg.matrix_rank(self.crossed[np.ix_(places, places)], hermitian=True)) - 1


def _crossed(columns: Sequence[Attribute]) -> FloatArray:
    """For every two values of all attributes, how many groups have both."""
    sizes = [len(column.values) for column in columns]
    if sum(sizes) > 2 * _MOST_EFFECTS:
        return np.empty((0, 0))
    blocks = [
        [np.bincount(a.codes * n + b.codes, minlength=m * n).reshape(m, n) for b, n in zip(columns, sizes, strict=True)]
        for a, m in zip(columns, sizes, strict=True)
    ]
    return np.asarray(np.block(blocks), dtype=np.float64)


def _shares(design: _Design, values: FloatArray, variances: FloatArray, *, is_known: bool) -> list[Explained]:
    """How much every attribute explains of one effect, and their combinations; zeros where it is all noise."""
    weight, groups, columns = 1 / variances, values.size, design.columns
    total = _squares(values, weight, [])
    is_noise = bool(chdtrc(groups - 1, total) > _NOISE)
    if is_noise and not is_known:  # nothing to share out
        names = [*((c.name, len(c.values)) for c in columns), (COMBINATIONS, groups)]
        return [Explained(name, size, 0.0, 0.0) for name, size in names]
    whole = _squares(values, weight, design.codes)
    real = total - (groups - 1)
    if is_noise:  # but an attribute is known to explain something, so that much variation is there
        real = max(real, total - whole - design.freedom, 1e-9 * total)
    found = []
    for i, column in enumerate(columns):
        levels = len(column.values)
        alone = total - _squares(values, weight, [column.codes]) - (levels - 1)
        others = [c.codes for j, c in enumerate(columns) if j != i]
        beyond = _squares(values, weight, others) - whole - (design.freedom - design.without[i])
        shares = [float(np.clip(size / real, 0, 1)) for size in (alone, beyond)]
        found.append(Explained(column.name, levels, shares[0], shares[1]))
    left = float(np.clip(1 - (total - whole - design.freedom) / real, 0, 1))
    return [*found, Explained(COMBINATIONS, groups, left, left)]


# ------------------------------------------------------------------------------------------------------------- tests


def _pvalues(design: _Design, values: FloatArray, variances: FloatArray) -> list[float | None]:
    """For each attribute, p of "it explains no more than chance, the other attributes held fixed".

    Groups may also differ for reasons that are none of the attributes. So this is no χ² test against the standard
    errors but the F test of a meta-regression with random effects (Knapp and Hartung 2003): an attribute's mean square
    against that of what all attributes leave, with weights 1/(se² + τ²). A country is compared with its cities, if
    those are known: cities of one country are not independent evidence about it.
    """
    left = values.size - 1 - design.freedom
    if left < 1:
        return [None] * len(design.columns)
    weight = 1 / (variances + _extra_variance(values, variances, design.codes, left))
    whole = _squares(values, weight, design.codes)
    return [_pvalue(design, i, values, weight, whole) for i in range(len(design.columns))]


def _pvalue(design: _Design, tested: int, values: FloatArray, weight: FloatArray, whole: float) -> float | None:
    """The p of one attribute, by the sum of squares that it explains and the one that it is compared with."""
    finer = design.finer[tested]
    others = [i for i in range(len(design.columns)) if i != tested and i not in finer]
    before = _squares(values, weight, [design.columns[i].codes for i in others])
    left, freedom = values.size - 1 - design.freedom, design.freedom - design.without[tested]
    after, error = whole, whole
    if finer:
        known = [*others, tested]
        rank = design.freedom_of(known)
        freedom, left = rank - design.freedom_of(others), design.freedom - rank
        after = _squares(values, weight, [design.columns[i].codes for i in known])
        error = after - whole
    if freedom < 1 or left < 1:
        return None
    gained, noise = max(before - after, 0.0) / freedom, error / left
    if noise <= 1e-12 * max(gained, 1e-300):  # estimates that follow the attributes to the last digit
        return float(chdtrc(freedom, gained * freedom))
    return float(fdtrc(freedom, left, gained / noise))


def _extra_variance(values: FloatArray, variances: FloatArray, codes: Sequence[IntArray], freedom: int) -> float:
    """τ²: how much groups may vary beyond noise and attributes; its upper limit at 90%, not its estimate.

    With a τ² that is too small, the F test rests on the few groups with the smallest standard errors and claims too
    often (measured: up to 17% instead of 5% with the estimate of Paule and Mandel); one that is too large costs some
    power only, because the mean square it is compared with has the same weights. The limit is where the squares fall
    to the 10% quantile of their χ² (the Q profile). One over them grows nearly in line with τ², so Newton's method
    for that needs a few steps only.
    """
    extra, wanted = 0.0, float(chdtri(freedom, 1 - _UPPER))
    for _ in range(60):
        weight = 1 / (variances + extra)
        rest = _residuals(values, weight, codes)
        squares = float(np.sum(weight * rest**2))
        if squares <= (1 + 1e-6) * wanted:
            break
        extra += (squares / wanted - 1) * squares / float(np.sum((weight * rest) ** 2))
    return extra


def _holm(pvalues: Sequence[float | None]) -> list[float | None]:
    """The p adjusted for their number by Holm's step-down; those that could not be computed stay out."""
    known = sorted((p, i) for i, p in enumerate(pvalues) if p is not None)
    adjusted: list[float | None] = [None] * len(pvalues)
    reached = 0.0
    for step, (p, i) in enumerate(known):
        reached = max(reached, min(1.0, (len(known) - step) * p))
        adjusted[i] = max(reached, float(np.nextafter(0.0, 1.0)))
    return adjusted


def _determines(finer: Attribute, coarser: Attribute) -> bool:
    """Whether each value of an attribute goes with a single value of another that has fewer."""
    pairs = np.unique(finer.codes * len(coarser.values) + coarser.codes).size
    return pairs == len(finer.values) > len(coarser.values)


def _squares(values: FloatArray, weight: FloatArray, codes: Sequence[IntArray]) -> float:
    """What is left of the weighted squares after fitting the mean and an effect for each value of each attribute."""
    return float(np.sum(weight * _residuals(values, weight, codes) ** 2))


def _residuals(values: FloatArray, weight: FloatArray, codes: Sequence[IntArray]) -> FloatArray:
    """Values less the mean and an effect for each value of each attribute.

    The effects are fitted in turn until they stay (backfitting), which needs no matrix of attributes × values.
    """
    rest = values - np.average(values, weights=weight)
    masses = [np.bincount(code, weight) for code in codes]
    left = float(np.sum(weight * rest**2))
    for _ in range(200):
        before = left
        for code, mass in zip(codes, masses, strict=True):
            rest = rest - (np.bincount(code, weight * rest) / np.where(mass > 0, mass, 1.0))[code]
        left = float(np.sum(weight * rest**2))
        if len(codes) < 2 or before - left <= 1e-9 * before:
            break
    return np.asarray(rest, dtype=np.float64)


# ------------------------------------------------------------------------------------------------------------- words


def explained_words(rows: Sequence[Explained]) -> list[str]:
    """The attributes by what they explain, in one sentence for each effect."""
    told = []
    for part in dict.fromkeys(row.part for row in rows):
        same = sorted((row for row in rows if row.part == part), key=lambda row: -row.alone)
        named = [f"{row.attribute} {row.alone:.0%}{_p_of(row)}" for row in same if row.attribute != COMBINATIONS]
        named += [
            f"only their combinations {row.alone:.0%}"
            for row in same
            if row.attribute == COMBINATIONS and row.alone >= _TOLD
        ]
        told.append(f"Explained{f' of {part}' if part else ''}: {', '.join(named)}.")
    return [*told[:-1], f"{told[-1]} Each p is with the other attributes held fixed."] if told else []


def _p_of(row: Explained) -> str:
    return " (not testable)" if row.pvalue is None else f" ({text.p_is(math.log(row.pvalue))})"


def explained_notes(
    estimates: Estimates, population: Population, rows: Sequence[Explained], alpha: float, *, rejected: bool
) -> list[str]:
    """What a reader of groups by several attributes must know: that fewer attributes say it all, or more."""
    if not rows:
        return []
    if rejected:
        return _enough(estimates, population.columns, alpha)
    alone = [row for row in rows if row.pvalue is not None and row.pvalue <= alpha]
    if not alone:
        return []
    best = min(alone, key=lambda row: row.pvalue or 0.0)
    return [
        f"By {best.attribute} alone there may be a difference{_p_of(best)}: it has fewer and larger groups. That is a "
        f"second test of the same data; to claim it, choose by {best.attribute} beforehand and use new data."
    ]


def _enough(estimates: Estimates, columns: Sequence[Attribute], alpha: float) -> list[str]:
    """The note that fewer attributes explain all there is, for the fewest that do."""
    effects = [_effect(estimates, part) for part in range(estimates.dims)]
    sizes = range(1, len(columns)) if len(columns) <= _MOST_ATTRIBUTES else (1,)
    for size in sizes:
        found = []
        for chosen in combinations(columns, size):
            tried = math.comb(len(columns), size)
            judged = [_left_by(chosen, values, variances, alpha, tried) for values, variances in effects]
            if all(one is not None for one in judged):
                found.append((*min(one for one in judged if one is not None), chosen))
        if found:
            share, p, chosen = max(found, key=lambda one: one[:2])
            named = " × ".join(column.name for column in chosen)
            rest = " and ".join(column.name for column in columns if column not in chosen)
            return [
                f"{named} alone explains {share:.0%} of the differences: groups of the same {named} vary no more than "
                f"noise does ({text.p_is(math.log(max(p, 1e-300)))}). Read no difference by {rest} into the clusters; "
                f"run it by {named} alone."
            ]
    return []


def _left_by(
    chosen: Sequence[Attribute], values: FloatArray, variances: FloatArray, alpha: float, tried: int
) -> tuple[float, float] | None:
    """The share that groups by these attributes explain, and p of what is left; None unless they explain it all.

    Neither the sum of what is left (Cochran's Q) nor its largest single piece may be more than noise. The second finds
    one deviating group among thousands, which the first does not. And each attribute must be needed: among many
    choices tried, one that adds nothing but values would soon make what is left look like noise.
    """
    weight, place = 1 / variances, _cells(chosen, values.size)
    cells, total = int(place.max()) + 1, _squares(values, weight, [])
    freedom = values.size - cells
    if freedom < 1 or cells < 2 or chdtrc(values.size - 1, total) > _NOISE:
        return None
    rest = _residuals(values, weight, [place])
    squares = float(np.sum(weight * rest**2))
    share, p = (total - squares - (cells - 1)) / (total - (values.size - 1)), float(chdtrc(freedom, squares))
    noise = max(alpha, _NOISE)  # at a strict level, more would pass for noise
    if share < _ALL or min(p, _largest(rest, variances, variances - (1 / np.bincount(place, weight))[place])) <= noise:
        return None
    needed = _NOISE / (len(chosen) * tried)
    for column in chosen if len(chosen) > 1 else ():
        fewer = _cells([other for other in chosen if other is not column], values.size)
        gained = _squares(values, weight, [fewer]) - squares
        if chdtrc(cells - int(fewer.max()) - 1, max(gained, 0.0)) > needed:
            return None
    return min(share, 1.0), p


def _cells(columns: Sequence[Attribute], groups: int) -> IntArray:
    """Which combination of values each group has, from 0 on."""
    place = np.zeros(groups, dtype=np.int64)
    for column in columns:
        place = np.unique(place * len(column.values) + column.codes, return_inverse=True)[1]
    return place


def _largest(rest: FloatArray, variances: FloatArray, room: FloatArray) -> float:
    """The p of the largest single deviation, of as many as there are; `room` is how much each varies by noise."""
    known = room > 1e-9 * variances  # a group that is alone in its place cannot deviate
    largest = float(np.max(np.abs(rest[known]) / np.sqrt(room[known]), initial=0.0))
    tail = min(2 * math.exp(float(log_ndtr(-largest))), 1 - 1e-15)
    return -math.expm1(int(known.sum()) * math.log1p(-tail))
