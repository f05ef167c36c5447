"""All methods on estimates by the names they have in tables and figures, ours beside the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import faultlines as fl
from experiments.baselines.fit import Fit, FloatArray, ours
from experiments.baselines.fused import fused_effects
from experiments.baselines.line import chaid, kmeans, optimal_partition
from experiments.baselines.mixture import Criterion, mixtures

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The first release's default. Its p is exact with any number of draws; as many as the default's make the two alike.
TOP_MERGE = fl.Calibrated(draws=1000, scan=False)

_GUARANTEED: dict[str, Callable[[fl.Estimates, int], fl.Clustering]] = {
    "literal": lambda estimates, _: fl.cluster(estimates, guarantee="bonferroni", refine=False),
    "calibrated": lambda estimates, seed: fl.cluster(estimates, seed=seed),
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
_MIXTURES: dict[str, Criterion] = {"mixture, BIC": "bic", "mixture, AIC": "aic"}


def fits(methods: Sequence[str], estimates: Sequence[fl.Estimates], seeds: Sequence[int]) -> dict[str, list[Fit]]:
    """What each method makes of each data set; every method sees the same ones."""
    made: dict[str, list[Fit]] = {}
    criteria = [_MIXTURES[method] for method in methods if method in _MIXTURES]
    mixed = mixtures(estimates, criteria) if criteria else {}
    for method in methods:
        if method in _GUARANTEED:
            judge = _GUARANTEED[method]
            made[method] = [ours(judge(one, seed)) for one, seed in zip(estimates, seeds, strict=True)]
        elif method in _ALONE:
            made[method] = [_ALONE[method](one.theta, one.se) for one in estimates]
        else:
            made[method] = mixed[_MIXTURES[method]]
    return made
