"""The paper's own rule, p < α/K², for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import chdtri

from faultlines.core.tree import build_tree, cut_tree
from faultlines.guarantees.base import Facts, GuaranteeDefaults, GuaranteedPath

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faultlines.core.comparison import Comparison
    from faultlines.core.line import Line
    from faultlines.core.plane import Plane
    from faultlines.guarantees.base import Detector


@dataclass(frozen=True, slots=True)
class Bonferroni(GuaranteeDefaults):
    """The paper's Algorithm 2: a merge is a split when its p, as if chosen beforehand, is below α/K².

    Provided for comparison. It does not control the error: merging sorts the noise first, and with 50 groups of
    pure noise and equal standard errors it reports clusters in 98 of 100 data sets at α = 0.05.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]), guarantee=fl.Bonferroni()).n_clusters
        2
    """

    name: ClassVar[str] = "bonferroni"
    explanation: ClassVar[str] = "bonferroni: the rule p < α/K², which rejects too often; for comparison only"
    intervals_hold: ClassVar[bool] = False
    holds: ClassVar[bool] = False
    unit: ClassVar[None] = None

    def find_path(
        self,
        comparison: Comparison,
        seed: int,
        *,
        refine: bool,
        parts: Sequence[Comparison] = (),
        cores: int | None = None,
        margins: bool = False,
    ) -> GuaranteedPath:
        """Adjusted p = K² times the p of the pair."""
        hierarchy = build_tree(comparison)
        log_p = comparison.log_pointwise(hierarchy.gap_heights) + 2 * np.log(len(comparison))
        path = cut_tree(comparison, hierarchy, np.minimum(log_p, 0.0), refine=refine)
        return GuaranteedPath(path, hierarchy, comparison, comparison, Facts(), comparison.height_name)

    def make_detector(self, groups: Line | Plane, alpha: float, seed: int) -> Detector | None:
        """The height of a merge whose p is α/K², where standard errors are known."""
        estimates, least = groups.estimates, alpha / len(groups) ** 2
        if len(groups) < 2 or estimates.dof is not None or not least > 0:
            return None
        height = float(chdtri(estimates.dims, least))
        return lambda effects, _: groups.tops(effects) > height

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """That it does not hold, where that was measured, and that it does not know about estimated errors."""
        notes = []
        if len(comparison) > 20:  # measured from 21 groups on
            notes.append("The α/K² rule reports clusters in pure noise far more often than α; see docs/guarantees.md.")
        if comparison.estimates is not None and comparison.estimates.covariance is not None:
            notes.append("The α/K² rule takes groups as independent; what they share is not used.")
        has_known_errors = comparison.estimates is None or comparison.estimates.dof is None
        if not comparison.draws_are_counted and not has_known_errors:
            notes.append("The α/K² rule takes standard errors as known; dof is not used.")
        return notes
