"""All methods on estimates by the names they have in tables and figures, ours beside the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import faultlines as fl
from experiments.baselines.bautista import bautista
from experiments.baselines.centres import clusters_of_centres
from experiments.baselines.dgc import dgc
from experiments.baselines.empirical_bayes import normal_bayes, npmle, shrunken
from experiments.baselines.fit import Fit, believed, ours, pooled
from experiments.baselines.fused import fused_effects
from experiments.baselines.jolliffe import jolliffe
from experiments.baselines.line import chaid, kmeans, optimal_partition
from experiments.baselines.mixture import Criterion, mixtures
from experiments.baselines.mixture_ratio import mixture_by_ratio
from experiments.baselines.ranks import grouped_by_ranks
from experiments.baselines.rest import set_apart
from experiments.baselines.scott_knott import scott_knott, scott_knott_unequal
from faultlines.types import FloatArray

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faultlines.results import Clustering

# The first release's default. Its p is exact with any number of draws; as many as the default's make the two alike.
TOP_MERGE = fl.Calibrated(draws=1000, scan=False)

SHRUNKEN = "calibrated, shrunken"  # the effect of each group that a result shows beside the clusters
_GUARANTEED: dict[str, Callable[[fl.Estimates, int], Clustering]] = {
    "literal": lambda estimates, _: fl.cluster(estimates, guarantee="bonferroni", refine=False),
    "calibrated": lambda estimates, seed: fl.cluster(estimates, seed=seed),
    SHRUNKEN: lambda estimates, seed: fl.cluster(estimates, seed=seed),
    "calibrated, not refined": lambda estimates, seed: fl.cluster(estimates, refine=False, seed=seed),
    "top merge": lambda estimates, seed: fl.cluster(estimates, guarantee=TOP_MERGE, seed=seed),
    "holdout": lambda estimates, seed: fl.cluster(estimates, guarantee=fl.Holdout(splits=1), seed=seed),
}
_ALONE: dict[str, Callable[[FloatArray, FloatArray], Fit]] = {
    "optimal partition, BIC": optimal_partition,
    "k-means, silhouette": kmeans,
    "CHAID-style merging": chaid,
    "fused effects": fused_effects,
}
# Effects without clusters.
_BAYES: dict[str, Callable[[FloatArray, FloatArray], Fit]] = {
    "NPMLE": npmle,
    "adaptive shrinkage": shrunken,
    "normal empirical Bayes": normal_bayes,
}
# Those that test at α; with estimated errors the classical ones use all degrees of freedom together.
_TESTING: dict[str, Callable[[fl.Estimates, int], Fit]] = {
    "Scott–Knott": lambda groups, _: scott_knott(groups.theta, groups.se, dof=all_dof(groups)),
    "Scott–Knott, unequal precision": lambda groups, seed: scott_knott_unequal(groups.theta, groups.se, seed=seed),
    "DGC": lambda groups, _: dgc(groups.theta, groups.se, dof=all_dof(groups)),
    "Jolliffe": lambda groups, _: jolliffe(groups.theta, groups.se, dof=all_dof(groups)),
    "Bautista": lambda groups, _: bautista(groups.theta, groups.se, dof=all_dof(groups)),
    "Clusters-of-Centres": lambda groups, _: clusters_of_centres(groups.theta, groups.se),
    "one against the rest, Holm": lambda groups, _: set_apart(groups.theta, groups.se, "holm", dof=each_dof(groups)),
    "one against the rest, BH": lambda groups, _: set_apart(groups.theta, groups.se, "bh", dof=each_dof(groups)),
    "rank sets": lambda groups, seed: grouped_by_ranks(groups.theta, groups.se, seed=seed),
}
BY_RATIO = "mixture, likelihood ratio"
RIVALS = [*_TESTING, BY_RATIO]  # that came before, or are what platforms do
EFFECTS = [SHRUNKEN, *_BAYES]  # for the error of effects alone
_MIXTURES: dict[str, Criterion] = {"mixture, BIC": "bic", "mixture, AIC": "aic"}


def fits(methods: Sequence[str], estimates: Sequence[fl.Estimates], seeds: Sequence[int]) -> dict[str, list[Fit]]:
    """What each method makes of each data set; every method sees the same ones."""
    by_method: dict[str, list[Fit]] = {}
    criteria = [_MIXTURES[method] for method in methods if method in _MIXTURES]
    mixed = mixtures(estimates, criteria) if criteria else {}
    for method in methods:
        if method in _GUARANTEED:
            judge = _GUARANTEED[method]
            results = [judge(groups, seed) for groups, seed in zip(estimates, seeds, strict=True)]
            if method == "literal":  # the paper's effect of a cluster is its plain mean
                by_method[method] = [
                    pooled(c.labels, groups.theta, groups.se) for c, groups in zip(results, estimates, strict=True)
                ]
            else:
                by_method[method] = [(believed if method == SHRUNKEN else ours)(c) for c in results]
        elif method in _ALONE:
            by_method[method] = [_ALONE[method](groups.theta, groups.se) for groups in estimates]
        elif method in _BAYES:
            by_method[method] = [_BAYES[method](groups.theta, groups.se) for groups in estimates]
        elif method in _TESTING:
            by_method[method] = [_TESTING[method](groups, seed) for groups, seed in zip(estimates, seeds, strict=True)]
        elif method == BY_RATIO:
            by_method[method] = mixture_by_ratio(estimates, seed=seeds[0])
        else:
            by_method[method] = mixed[_MIXTURES[method]]
    return by_method


def each_dof(groups: fl.Estimates) -> FloatArray:
    """Degrees of freedom of each standard error; infinite where it is known."""
    return (
        np.full(len(groups), np.inf)
        if groups.dof is None
        else np.broadcast_to(np.asarray(groups.dof, float), len(groups))
    )


def all_dof(groups: fl.Estimates) -> float:
    """Degrees of freedom of one common variance; so many that it is known within two percent are as good as all."""
    total = float(each_dof(groups).sum())
    return total if total < 1000 else math.inf
