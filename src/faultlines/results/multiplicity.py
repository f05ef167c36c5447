"""Several results at once: p-values adjusted for their number, so that all are read at the level of the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from faultlines.core.tree import PartitionPath
from faultlines.types import BoolArray, FloatArray, IntArray

Correction = Literal["holm", "bh"]
CORRECTIONS: dict[str, str] = {"holm": "Holm", "bh": "Benjamini–Hochberg"}


def corrected(log_p: FloatArray, alpha: float, correction: Correction) -> tuple[FloatArray, FloatArray]:
    """Adjusted log p, and the level that each experiment's own p is compared with.

    Holm compares the smallest p with α/m, the next with α/(m − 1) and so on; once one fails, the rest are compared
    with the level it failed at. Benjamini and Hochberg compare all with α R/m, where R is the largest number of
    experiments with a p below that.
    """
    m = log_p.size
    order = np.argsort(log_p, kind="stable")
    ranked, adjusted, levels = log_p[order], np.empty(m), np.empty(m)
    if correction == "holm":
        left = np.arange(m, 0, -1)
        adjusted[order] = np.minimum(np.maximum.accumulate(ranked + np.log(left)), 0.0)
        failed = ranked >= np.log(alpha / left)
        first = int(np.argmax(failed)) if failed.any() else m - 1
        levels[order] = alpha / left[np.minimum(np.arange(m), first)]
        return adjusted, levels
    rank = np.arange(1, m + 1)
    adjusted[order] = np.minimum(np.minimum.accumulate((ranked + np.log(m / rank))[::-1])[::-1], 0.0)
    standing = np.flatnonzero(ranked < np.log(alpha * rank / m))
    levels[:] = alpha * (standing[-1] + 1 if standing.size else 1) / m
    return adjusted, levels


@dataclass(frozen=True, slots=True, eq=False)
class Adjustment:
    """How the p of one of several results are adjusted for their number.

    Attributes:
        correction: ``"holm"`` or ``"bh"``.
        results: How many results there are.
        log_pvalue: Adjusted log p of this one: below log α where a difference is reported.
        left: For Holm: how many results, this one among them, have no smaller p.
        reached: For Benjamini and Hochberg: adjusted log p of all results, rising.
    """

    correction: Correction
    results: int
    log_pvalue: float
    left: int
    reached: FloatArray

    def __call__(self, log_p: FloatArray) -> FloatArray:
        """Adjusted log p of finer partitions of the same result, whose own p are not below its first.

        It is the smallest α above which the procedure rejects them. Holm compares every p of a result with α over those
        left. Benjamini and Hochberg compare it with α R/m, where R rises with α: with a_k the k-th adjusted p, that is
        min over k of max(a_k, p m/k), found where the one passes the other.
        """
        if self.correction == "holm":
            adjusted = log_p + np.log(self.left)
        else:
            rank = np.log(np.arange(1, self.results + 1))
            wanted = log_p + np.log(self.results)
            k = np.searchsorted(rank + self.reached, wanted)  # the first with a_k ≥ p m/k
            at = np.append(self.reached, np.inf)[k]
            before = np.where(k > 0, wanted - rank[np.maximum(k - 1, 0)], np.inf)
            adjusted = np.minimum(at, before)
        return np.asarray(np.clip(adjusted, self.log_pvalue, 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class AdjustedPath:
    """The path of one of several results: the same partitions, their p adjusted for the number of results."""

    path: PartitionPath
    adjustment: Adjustment

    @property
    def log_pvalue(self) -> float:
        """Adjusted log p of "all groups are equal"."""
        return self.adjustment.log_pvalue

    @property
    def log_pvalues(self) -> FloatArray:
        """Adjusted log p of 2, 3, … clusters."""
        return self.adjustment(self.path.log_pvalues)

    def labels(self, clusters: int) -> IntArray:
        """Cluster numbers of the groups."""
        return self.path.labels(clusters)

    def open_gaps(self, clusters: int) -> BoolArray:
        """Which gaps of the tree lie between clusters."""
        return self.path.open_gaps(clusters)

    def gap_pvalues(self) -> FloatArray:
        """Adjusted log p of every gap."""
        return self.adjustment(self.path.gap_pvalues())


def adjustments(log_p: FloatArray, correction: Correction) -> tuple[Adjustment, ...]:
    """For each of several results, how its p are adjusted."""
    adjusted = corrected(log_p, 0.05, correction)[0]  # adjusted p do not depend on the level
    left = np.empty(log_p.size, dtype=np.int64)
    left[np.argsort(log_p, kind="stable")] = np.arange(log_p.size, 0, -1)
    reached = np.sort(adjusted)
    reached.setflags(write=False)
    return tuple(
        Adjustment(correction, log_p.size, own, ahead, reached)
        for own, ahead in zip(adjusted.tolist(), left.tolist(), strict=True)
    )
