"""The paper's two-part split: one part of the data makes the tree, the other says how far to believe it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from faultlines import checks
from faultlines.guarantees.base import EVEN, Defaults, Facts, Judged, split_by, splitter
from faultlines.progress import progress
from faultlines.tree.hierarchy import tree_of
from faultlines.tree.path import cuts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faultlines.comparison.base import Comparison


@dataclass(frozen=True, slots=True)
class Holdout(Defaults):
    """The paper's two-part split: one part of the data makes the tree, the other says how far to believe it.

    On the held-out part, "all pairs of clusters differ" is tested for m = 2, 3, … clusters in that order, each at full
    α, until one fails; the adjusted p of a level is the largest up to it. The order is fixed beforehand, so the chance
    of any false rejection is α. Estimates and intervals of the clusters come from the held-out part, which did not
    choose their members, and are honest.

    Rows are split by a hash of their unit, inside the engine; estimates, and rows without a unit, by Gaussian
    thinning: to each estimate noise is added in one part and taken away in the other, so that the parts are
    independent.

    Args:
        fraction: The share that is held out.
        unit: For rows: the column whose values are kept together; that of the metric by default.

    Raises:
        InputError: If the fraction does not lie between 0 and 1.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]), guarantee=fl.Holdout(fraction=0.3)).n_clusters
        2
    """

    fraction: float = 0.5
    unit: str | None = None
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
        """Adjusted p of m clusters = the largest, over 2 … m, of the p of their most similar pair."""
        explored, held = parts or comparison.divided(self.shares(len(comparison)), splitter(seed))
        held = held.weighted_by(explored)
        hierarchy = tree_of(explored)
        opening = hierarchy.merge_order()[::-1]
        log_p, is_open = np.zeros(opening.size), np.zeros(opening.size, dtype=bool)
        reached = -np.inf
        with progress("testing on held-out data", opening.size) as advance:
            for gap in opening.tolist():
                is_open[gap] = True
                clusters = hierarchy.labels(hierarchy.starts(is_open)) - 1
                clusters = explored.refined(clusters) if refine else clusters
                reached = max(reached, held.most_similar(clusters).log_p)
                if reached >= EVEN:
                    break
                log_p[gap] = reached
                advance(1)
        facts: Facts = {"fraction": float(self.fraction), "split": "units" if parts else "thinning", "seed": seed}
        path = cuts(explored, hierarchy, log_p, refine=refine)
        return Judged(path, hierarchy, held, explored, facts, comparison.height_name)

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """Which part did what."""
        held = float(facts["fraction"])
        how = split_by(facts, comparison)
        return [
            f"Clusters from {1 - held:.0%} of the data, tested and estimated on the other {held:.0%}; "
            f"split by {how}, seed {facts['seed']}."
        ]
