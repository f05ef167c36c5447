"""Causal trees and forests, which see rows."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from experiments.baselines.fit import Fit
from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Callable


class Rows(NamedTuple):
    """People of an experiment: outcome, arm (0 or 1) and group (0 … K − 1)."""

    outcome: FloatArray
    arm: IntArray
    group: IntArray


def _causal_tree(features: FloatArray, rows: Rows, of_groups: FloatArray, seed: int, pruned: bool) -> FloatArray:
    from causalml.inference.tree import CausalTreeRegressor

    # With its default penalty for arms of unequal size, the tree cuts where the arms happen to be even, and not where
    # effects differ; without it and pruned by cross-validation it does best here.
    options = {"ccp_alpha": "cv", "groups_penalty": 0.0} if pruned else {}
    grown = CausalTreeRegressor(random_state=seed, **options).fit(features, rows.arm, rows.outcome)
    return np.asarray(grown.predict(of_groups), dtype=float).ravel()


def _causal_forest(features: FloatArray, rows: Rows, of_groups: FloatArray, seed: int, _: bool) -> FloatArray:
    from econml.grf import CausalForest

    forest = CausalForest(random_state=seed, n_jobs=1).fit(features, rows.arm, rows.outcome)
    return np.asarray(forest.predict(of_groups), dtype=float).ravel()


class _Tree(NamedTuple):
    package: str
    effects: Callable[[FloatArray, Rows, FloatArray, int, bool], FloatArray]
    encoded: bool = False
    pruned: bool = False


TREES = {
    "causal tree, one-hot": _Tree("causalml", _causal_tree),
    "causal tree, encoded": _Tree("causalml", _causal_tree, encoded=True),
    "causal tree, encoded, pruned": _Tree("causalml", _causal_tree, encoded=True, pruned=True),
    "honest forest, one-hot": _Tree("econml", _causal_forest),
    "honest forest, encoded": _Tree("econml", _causal_forest, encoded=True),
}


@cache
def is_installed(package: str) -> bool:
    """Whether a baseline's package is here; studies go on without it and say so."""
    return find_spec(package) is not None


def tree(method: str, rows: Rows, theta: FloatArray, seed: int) -> Fit:
    """CausalML's causal tree or EconML's honest forest (as in grf); clusters are groups of one predicted effect.

    Groups are given as indicators, or encoded as one number: the group's own estimate from these same rows. That tells
    the method the order of the groups, which is the best chance it can have. Settings are the packages' own, but for
    the tree that is pruned.
    """
    kind = TREES[method]
    of_groups = theta[:, None] if kind.encoded else np.eye(theta.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        effects = kind.effects(of_groups[rows.group], rows, of_groups, seed, kind.pruned)
    _, labels = np.unique(np.round(effects, 12), return_inverse=True)
    return Fit(labels.astype(np.int64) + 1, effects)
