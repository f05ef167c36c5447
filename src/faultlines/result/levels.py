"""The levels of significance that a reader may want to look at beside the one that was asked for."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from faultlines.errors import InputError
from faultlines.result.finding import Finding

_MOST_CLUSTERS = 40  # that a level may have, unless the result itself has more
_USUAL = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
_FAINT = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-15, 1e-20, 1e-30, 1e-50, 1e-100, 1e-200, 1e-300)

_Found = TypeVar("_Found", bound=Finding)


def levels_of(found: _Found) -> tuple[list[_Found], int, int]:
    """The result at many levels, from the strictest; which of them is its own; how many levels were left out.

    Levels are the usual ones, the result's own, and one just above the p of each split, so that every partition of
    the path can be seen. Levels with too many clusters, or out of reach of the draws, are left out.
    """
    log_p = found.claims.log_pvalues
    cuts, skipped = [], 0
    for alpha in _levels(found):
        count = 1 + int(np.searchsorted(log_p, math.log(alpha)))
        if count > _MOST_CLUSTERS and alpha != found.alpha:
            skipped += 1
            continue
        try:
            cuts.append(found.at(alpha) if alpha != found.alpha else found)
        except InputError:  # out of reach of the draws there are
            skipped += 1
    first: dict[bytes, _Found] = {}
    for cut in cuts:  # many levels have the same clusters
        same = first.setdefault(cut.labels.tobytes(), cut).clusters[0].pooled
        if same is not cut.clusters[0].pooled and same.posterior is not None:
            cut.clusters[0].pooled.share(same)
    return cuts, next(i for i, cut in enumerate(cuts) if cut is found), skipped


def _levels(found: Finding) -> list[float]:
    log_p = found.claims.log_pvalues
    seen = log_p[log_p < math.log(0.5)]
    strictest = max(float(seen[0]), math.log(1e-300)) if seen.size else math.log(1e-3)
    levels = {*_USUAL, found.alpha}
    levels |= {alpha for alpha in _FAINT if math.log(alpha) > strictest}
    levels |= set([alpha for alpha in _FAINT if math.log(alpha) <= strictest][:1])
    for p in seen[: _MOST_CLUSTERS - 1].tolist():
        if p > math.log(1e-300):
            above = 10 ** (math.floor(p / math.log(10)) - 1)
            levels.add(float(f"{(math.floor(math.exp(p) / above) + 1) * above:.2g}"))
    return sorted(level for level in levels if level < 1)
