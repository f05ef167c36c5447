"""The paper's two-part split, several times over: one part of the data makes the tree, the other says what to believe.

One split is a matter of luck: with another seed the same data may be claimed to differ or not. Each of S random splits
gives a p that is valid on its own, and they are combined into one that is valid whatever their dependence:

    p = (S/k) · p_(k),    the k-th smallest of the S p, k = ⌈γ S⌉,

the quantile rule of Meinshausen, Meier and Bühlmann (2009) with γ fixed at 1/5. Proof: p < α says that k splits or more
have a p below kα/S. On average at most S · kα/S = kα splits have so small a p although nothing differs, so by Markov
the chance of k of them or more is at most α. This holds for m = 2, 3, … clusters at once, because each split tests them
in that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from faultlines import checks
from faultlines.guarantees.base import EVEN, Defaults, Facts, Judged, split_by, splitter
from faultlines.progress import progress
from faultlines.tree.hierarchy import tree_of
from faultlines.tree.path import cuts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faultlines.comparison.base import Comparison
    from faultlines.estimates.scales import FloatArray
    from faultlines.tree.hierarchy import Hierarchy

SPLITS = 25
_AGREEING = 0.2  # share of the splits whose p counts; measured beside others in docs/guarantees.md
_MOST_SPLITS = 10_000


@dataclass(frozen=True, slots=True)
class Holdout(Defaults):
    """The paper's two-part split: one part of the data makes the tree, the other says how far to believe it.

    On the held-out part, "all pairs of clusters differ" is tested for m = 2, 3, … clusters in that order, each at full
    α, until one fails; the adjusted p of a level is the largest up to it. The order is fixed beforehand, so the chance
    of any false rejection is α. This is done for several random splits: p is five times the 20% quantile of theirs,
    which is valid however they depend on each other, and hardly depends on the seed.

    The partition, its estimates and its intervals are those of the split with the median p. Estimates come from the
    held-out part of that split, which did not choose the members.

    Rows are split by a hash of their unit, inside the engine; estimates, and rows without a unit, by Gaussian
    thinning: to each estimate noise is added in one part and taken away in the other, so that the parts are
    independent.

    Args:
        fraction: The share that is held out.
        unit: For rows: the column whose values are kept together; that of the metric by default.
        splits: How many random splits are combined; 1 is the paper's single split.

    Raises:
        InputError: If the fraction does not lie between 0 and 1, or there is no split.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]), guarantee=fl.Holdout(fraction=0.3)).n_clusters
        2
    """

    fraction: float = 0.5
    unit: str | None = None
    splits: int = SPLITS
    name: ClassVar[str] = "holdout"
    explanation: ClassVar[str] = "holdout: clusters found on one part of the data, tested and estimated on the other"
    intervals_hold: ClassVar[bool] = True
    reports_all_data: ClassVar[bool] = False
    holds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.unit is not None:
            checks.column("unit", self.unit)
        problem = "must lie strictly between 0 and 1"
        checks.number("fraction", self.fraction, problem, "Use fraction=0.5.", low=1e-12, high=1 - 1e-12)
        problem = f"must be a whole number from 1 to {_MOST_SPLITS:,}"
        remedy = f"Use for example splits={SPLITS}."
        checks.number("splits", self.splits, problem, remedy, low=1, high=_MOST_SPLITS, whole=True)

    def shares(self, groups: int) -> tuple[float, ...]:
        """The part that explores, and the part that is held out."""
        return (1 - float(self.fraction), float(self.fraction))

    def judge(
        self,
        comparison: Comparison,
        seed: int,
        *,
        refine: bool,
        parts: Sequence[Comparison] = (),
        cores: int | None = None,
    ) -> Judged:
        """Adjusted p of m clusters = the largest, over 2 … m, of the p of their most similar pair; then combined."""
        splits = len(parts) // 2 or int(self.splits)

        def divided(number: int) -> Sequence[Comparison]:
            if parts:
                return parts[2 * number : 2 * number + 2]
            return comparison.divided(self.shares(len(comparison)), splitter(seed, number))

        reached = []
        with progress("testing on held-out data", splits) as advance:
            for number in range(splits):
                shown = _tried(*divided(number), refine=refine)
                reached.append(shown.log_pvalues)
                advance(1)
        place = _median(reached)
        if splits > 1:  # splits of a million groups are not kept, but made again
            shown = _tried(*divided(place), refine=refine)
        opening, combined = shown.hierarchy.merge_order()[::-1], _combined(reached)
        log_p, known = np.zeros(opening.size), min(opening.size, combined.size)
        log_p[opening[:known]] = combined[:known]
        facts: Facts = {"fraction": float(self.fraction), "split": "units" if parts else "thinning", "seed": seed}
        facts |= {"splits": splits, "shown split": place + 1} if splits > 1 else {}
        path = cuts(shown.explored, shown.hierarchy, log_p, refine=refine)
        part = 2 * place + 1 if parts else None
        return Judged(path, shown.hierarchy, shown.held, shown.explored, facts, comparison.height_name, part)

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """Which part did what."""
        held = float(facts["fraction"])
        how = split_by(facts, comparison)
        parts = (
            f"Clusters from {1 - held:.0%} of the data, tested and estimated on the other {held:.0%}; split by {how}"
        )
        if "splits" not in facts:
            return [f"{parts}, seed {facts['seed']}."]
        splits = int(facts["splits"])
        return [
            f"{parts} {splits} times, seed {facts['seed']}. p combines all {splits} splits; clusters and intervals are "
            "those of the split with the median p."
        ]


class _Tried(NamedTuple):
    """One split: its parts, the tree of the first, and the log p of 2, 3, … clusters on the second, while below 1/2."""

    explored: Comparison
    held: Comparison
    hierarchy: Hierarchy
    log_pvalues: list[float]


def _tried(explored: Comparison, held: Comparison, *, refine: bool) -> _Tried:
    held = held.weighted_by(explored)
    hierarchy = tree_of(explored)
    opening = hierarchy.merge_order()[::-1]
    is_open, reached = np.zeros(opening.size, dtype=bool), [-np.inf]
    for gap in opening.tolist():
        is_open[gap] = True
        clusters = hierarchy.labels(hierarchy.starts(is_open)) - 1
        clusters = explored.refined(clusters) if refine else clusters
        log_p = max(reached[-1], held.most_similar(clusters).log_p)
        if log_p >= EVEN:
            break
        reached.append(log_p)
    return _Tried(explored, held, hierarchy, reached[1:])


def _median(reached: Sequence[Sequence[float]]) -> int:
    """The split whose p of "all groups are alike" is the median one."""
    first = np.array([log_p[0] if log_p else 0.0 for log_p in reached])
    return int(np.argsort(first, kind="stable")[(len(reached) - 1) // 2])


def _combined(reached: Sequence[Sequence[float]]) -> FloatArray:
    """Log p of 2, 3, … clusters from those of all splits: the quantile rule above."""
    splits, levels = len(reached), max(map(len, reached))
    table = np.zeros((splits, levels))
    for row, log_p in zip(table, reached, strict=True):
        row[: len(log_p)] = log_p
    k = ceil(_AGREEING * splits)
    return np.asarray(np.minimum(np.sort(table, axis=0)[k - 1] + np.log(splits / k), 0.0))
