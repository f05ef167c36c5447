"""Rivals that look along attributes: analysis of variance, a mixed model, a regression tree, and CHAID.

Each sees the cells of crossed attributes, their estimates and standard errors, which are taken as known, and names the
attributes along which it finds a difference; none where it finds nothing.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import chdtrc

from experiments.baselines.line import merge_levels
from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Attributes = tuple[int, ...]

LEAVES = (1, 2, 3, 4, 6, 8)
FOLDS = 5
MOST_SPLITS = 3  # one below the other, as many as there are attributes in a margin


class Term(NamedTuple):
    """What one term of a linear model adds to the terms beside it.

    Attributes:
        attributes: The attributes that it crosses.
        basis: Orthonormal directions that it adds, in units of standard errors.
        eigenvalues: The law of its score: a sum of squares with these weights.
        levels: One column per level, in units of standard errors, beside the other terms.
    """

    attributes: Attributes
    basis: FloatArray
    eigenvalues: FloatArray
    levels: FloatArray


@dataclass(frozen=True)
class Crossed:
    """Cells whose attributes and standard errors are known.

    Attributes:
        codes: Levels of the attributes, (K, A).
        se: Standard errors.
    """

    codes: IntArray
    se: FloatArray

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Main effects and combinations, each beside those that do not contain it.

        A term that is part of others (a region, of its states) is taken beside those before it, as nested analyses of
        variance do.
        """
        count = self.codes.shape[1]
        sets = [subset for size in range(1, count + 1) for subset in itertools.combinations(range(count), size)]
        tests = []
        for place, own in enumerate(sets):
            levels = self._columns(own)
            for others in ([subset for subset in sets if not set(own) <= set(subset)], sets[:place]):
                nuisance = _orthonormal(np.column_stack([1 / self.se, *(self._columns(other) for other in others)]))
                left = levels - nuisance @ (nuisance.T @ levels)
                if (basis := _orthonormal(left, float(np.linalg.norm(levels)))).shape[1] > 0:
                    eigenvalues = np.linalg.eigvalsh(left.T @ left)
                    tests.append(Term(own, basis, eigenvalues[eigenvalues > 1e-9 * eigenvalues.max()], left))
                    break
        return tuple(tests)

    def _columns(self, attributes: Attributes) -> FloatArray:
        """One column per level of crossed attributes, in units of standard errors."""
        _, level = np.unique(self.codes[:, attributes], axis=0, return_inverse=True)
        columns = np.zeros((len(self.codes), int(level.max()) + 1))
        columns[np.arange(len(self.codes)), level.ravel()] = 1 / self.se
        return columns


def _orthonormal(columns: FloatArray, scale: float | None = None) -> FloatArray:
    """Orthonormal columns with the same span, but for what is nothing beside this scale."""
    left, size, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(left[:, size > 1e-9 * (np.linalg.norm(columns) if scale is None else scale)])


def anova(cells: Crossed, theta: FloatArray, alpha: float = 0.05) -> Attributes:
    """Weighted analysis of variance with all interactions; the attributes of the terms that pass Holm."""
    scaled = theta / cells.se
    p = [float(chdtrc(term.basis.shape[1], np.sum((term.basis.T @ scaled) ** 2))) for term in cells.terms]
    return _united(_holm(p, alpha), cells)


def mixed_model(cells: Crossed, theta: FloatArray, alpha: float = 0.05) -> Attributes:
    """Random main effects and combinations: the score test of each variance, by Holm.

    The score is a weighted sum of squares; its tail is that of a χ² with the same three moments.
    """
    scaled, p = theta / cells.se, []
    for term in cells.terms:
        score = float(np.sum((term.levels.T @ scaled) ** 2))
        first, second, third = (float(np.sum(term.eigenvalues**power)) for power in (1, 2, 3))
        freedom = second**3 / third**2
        p.append(float(chdtrc(freedom, max(freedom + (score - first) * (freedom / second) ** 0.5, 0.0))))
    return _united(_holm(p, alpha), cells)


def _holm(p: Sequence[float], alpha: float) -> list[int]:
    """Places of the tests that pass Holm's procedure."""
    passed: list[int] = []
    for left, place in zip(range(len(p), 0, -1), np.argsort(p, kind="stable").tolist(), strict=True):
        if p[place] * left > alpha:
            break
        passed.append(place)
    return passed


def _united(places: Iterable[int], cells: Crossed) -> Attributes:
    return tuple(sorted({attribute for place in places for attribute in cells.terms[place].attributes}))


def regression_tree(cells: Crossed, theta: FloatArray, alpha: float = 0.05) -> Attributes:
    """A regression tree on the cells, weighted by precision, its size by the one-standard-error rule; knows no α."""
    del alpha
    from sklearn.tree import DecisionTreeRegressor

    sizes = cells.codes.max(axis=0) + 1
    columns = np.concatenate([np.eye(size)[cells.codes[:, a]] for a, size in enumerate(sizes)], axis=1)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    weight = cells.se**-2.0
    fold = np.random.default_rng(0).permutation(len(theta)) % FOLDS
    losses = np.zeros((len(LEAVES), len(theta)))
    for place, leaves in enumerate(LEAVES):
        for held in range(FOLDS):
            inside, outside = fold != held, fold == held
            if leaves == 1:
                mean = np.average(theta[inside], weights=weight[inside])
            else:
                tree = DecisionTreeRegressor(max_leaf_nodes=leaves, random_state=0)
                mean = tree.fit(columns[inside], theta[inside], weight[inside]).predict(columns[outside])
            losses[place, outside] = weight[outside] * (theta[outside] - mean) ** 2
    best = int(np.argmin(losses.mean(axis=1)))
    error = float(losses[best].std(ddof=1)) / len(theta) ** 0.5
    leaves = LEAVES[int(np.argmax(losses.mean(axis=1) <= losses[best].mean() + error))]
    if leaves == 1:
        return ()
    split_on = DecisionTreeRegressor(max_leaf_nodes=leaves, random_state=0).fit(columns, theta, weight).tree_.feature
    return tuple(sorted({int(owner[column]) for column in split_on if column >= 0}))


def chaid_tree(cells: Crossed, theta: FloatArray, alpha: float = 0.05) -> Attributes:
    """CHAID: merge the levels of each attribute, split on the one with the smallest adjusted p, go on in each part."""
    return tuple(sorted(_split(cells.codes, theta, cells.se, alpha, MOST_SPLITS)))


def _split(codes: IntArray, theta: FloatArray, se: FloatArray, alpha: float, depth: int) -> set[int]:
    weight, best = se**-2.0, (np.log(alpha), -1, np.zeros(0, dtype=np.int64))
    for attribute in range(codes.shape[1]):
        _, level = np.unique(codes[:, attribute], return_inverse=True)
        total = np.bincount(level, weight)
        if total.size > 1:
            merged, log_p = merge_levels(np.bincount(level, weight * theta) / total, 1 / np.sqrt(total), alpha)
            if merged.n_clusters > 1 and log_p < best[0]:
                best = (log_p, attribute, merged.labels[level])
    if best[1] < 0 or depth == 0:
        return set()
    parts = [best[2] == number for number in np.unique(best[2])]
    return {best[1]}.union(*(_split(codes[part], theta[part], se[part], alpha, depth - 1) for part in parts))


ALONG_ATTRIBUTES: dict[str, Callable[[Crossed, FloatArray], Attributes]] = {
    "ANOVA, Holm": anova,
    "mixed model": mixed_model,
    "regression tree": regression_tree,
    "CHAID": chaid_tree,
}
