"""Which attributes matter: how much of the variation between groups goes with each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import chdtrc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import Estimates, IntArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.result.rules import Attribute, Population

COMBINATIONS = "(combinations)"
_NOISE = 0.05  # p of Cochran's Q above which there is nothing to explain
_MOST_EFFECTS = 800  # up to which the rank of a design is computed


@dataclass(frozen=True, slots=True)
class Explained:
    """How much of the variation between groups goes with an attribute, noise taken off.

    Attributes:
        attribute: Its name; or `COMBINATIONS`, for what no attribute explains by itself.
        values: How many it has.
        alone: The share of the variation that its values explain when nothing else is looked at.
        beyond: The share they add to what all other attributes explain together.
        part: Which of several effects; empty for a single one.
    """

    attribute: str
    values: int
    alone: float
    beyond: float
    part: str = ""


def explained(estimates: Estimates, population: Population) -> tuple[Explained, ...]:
    """The share of the between-group variation that each attribute explains.

    The variation is Cochran's Q, the weighted sum of squares around the mean. Groups without any difference have
    Q = K − 1 on average, and an attribute of L values then explains L − 1 of it; both are taken off, so that an
    attribute with many values gains nothing from noise. Shares do not add up to one where attributes act together or
    overlap.
    """
    columns = population.columns
    groups = len(estimates)
    if len(columns) < 2 or groups < 3:
        return ()
    found = []
    freedom = _freedom(columns)
    ranks = [_freedom([c for c in columns if c is not column]) for column in columns]
    for part in range(estimates.dims):
        values, errors = estimates.values[:, part], estimates.errors[:, part]
        weight = (errors.min() / errors) ** 2
        unit = float(errors.min()) ** 2
        total = _sum_of_squares(values, weight, []) / unit
        real = total - (groups - 1)
        if chdtrc(groups - 1, total) > _NOISE:  # nothing to share out
            continue
        whole = _sum_of_squares(values, weight, [c.codes for c in columns]) / unit
        named = estimates.parts[part] if estimates.parts else ""
        for i, column in enumerate(columns):
            levels = len(column.values)
            alone = total - _sum_of_squares(values, weight, [column.codes]) / unit - (levels - 1)
            others = [c.codes for j, c in enumerate(columns) if j != i]
            beyond = _sum_of_squares(values, weight, others) / unit - whole - (freedom - ranks[i])
            shares = [float(np.clip(size / real, 0, 1)) for size in (alone, beyond)]
            found.append(Explained(column.name, levels, shares[0], shares[1], named))
        left = float(np.clip(1 - (total - whole - freedom) / real, 0, 1))
        found.append(Explained(COMBINATIONS, groups, left, left, named))
    return tuple(found)


def _freedom(columns: Sequence[Attribute]) -> int:
    """How many effects the values of these attributes have together; a city says what its country is already."""
    plain = sum(len(column.values) - 1 for column in columns)
    if plain > _MOST_EFFECTS or len(columns) < 2:
        return plain
    marks = [np.eye(len(column.values))[column.codes] for column in columns]
    crossed = np.hstack(marks).T @ np.hstack(marks)
    return int(np.linalg.matrix_rank(crossed, hermitian=True)) - 1


def _sum_of_squares(values: FloatArray, weight: FloatArray, codes: Sequence[IntArray]) -> float:
    """What is left of the weighted squares after fitting the mean and an effect for each value of each attribute.

    The effects are fitted in turn until they stay (backfitting), which needs no matrix of attributes × values.
    """
    rest = values - np.average(values, weights=weight)
    left = float(np.sum(weight * rest**2))
    for _ in range(200):
        before = left
        for code in codes:
            mass = np.bincount(code, weight)
            rest = rest - (np.bincount(code, weight * rest) / np.where(mass > 0, mass, 1.0))[code]
        left = float(np.sum(weight * rest**2))
        if len(codes) < 2 or before - left <= 1e-9 * before:
            break
    return left
