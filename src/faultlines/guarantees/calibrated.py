"""The default guarantee: p-values from groups drawn without any difference, with the precision these groups have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from faultlines import checks
from faultlines.errors import InputError
from faultlines.guarantees.base import Defaults, Facts, Judged
from faultlines.guarantees.null import calibrated, calibrated_many, critical_height
from faultlines.guarantees.stepdown import step_down
from faultlines.tree.hierarchy import tree_of
from faultlines.tree.path import cuts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from faultlines.comparison.base import Comparison


_MOST_DRAWS = 100_000_000


@dataclass(frozen=True, slots=True)
class Calibrated(Defaults):
    """The chance that groups without any difference would show a merge as high as this one somewhere in their tree.

    Groups that are all alike are drawn again and again with the standard errors at hand, and each draw is
    agglomerated. A draw has a direction (its pattern of noise) and a length (Cochran's Q); the two are independent, the
    height of the top merge is proportional to the squared length, and the law of that length is known to be χ² on
    K − 1 degrees of freedom. So only directions need drawing: p is the average over directions, the data's own
    included, of the chance that the length reaches the height. Under the null that p is exactly uniform, whatever the
    number of draws and however small the p, and it needs no fitted tail. See docs/method.md.

    With `dof` the standard errors are estimates themselves. Draws then carry estimated variances as well, around true
    ones that are spread as widely as the data's, less the spread that estimation adds. For a `Similarity` draws are
    counted, so p does not fall below 1/(draws + 1), and levels below that are refused.

    Args:
        draws: How many draws at most. Default: 10,000, fewer for very many groups (300 for a million). They are cut
            short after a tenth when p is clearly large (above 0.2), which keeps p valid.
        stepdown: Once a split stands, judge each cluster against the null of its own groups, k of the K, at level
            ¾ α (k − 1)/(K − 1): finer structure is found where there is a coarse one. For one effect on a line.

    Raises:
        InputError: If `draws` is not a whole number above 0.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]), guarantee=fl.Calibrated(draws=2000)).n_clusters
        2
    """

    draws: int | None = None
    stepdown: bool = False
    name: ClassVar[str] = "calibrated"
    explanation: ClassVar[str] = (
        "calibrated: p-values from groups drawn without any difference, with the precision these groups have"
    )
    intervals_hold: ClassVar[bool] = False
    holds: ClassVar[bool] = True
    unit: ClassVar[None] = None

    def __post_init__(self) -> None:
        checks.flag("stepdown", self.stepdown)
        if self.draws is not None:
            problem = "must be a whole number above 0, at most 100 million"
            checks.number("draws", self.draws, problem, "Use draws=10_000.", low=1, high=_MOST_DRAWS, whole=True)

    def check(self, alpha: float, comparison: Comparison) -> None:
        """Refuse a level that counted draws cannot get below; where lengths are integrated, any level can be asked."""
        draws = self._draws(comparison)
        if comparison.draws_are_counted and len(comparison) > 1 and (draws + 1) * alpha <= 1:
            raise InputError(
                f"alpha={alpha:.3g}",
                f"is out of reach of {draws} draws, which count no p below 1/{draws + 1}",
                f"Use fl.Calibrated(draws={int(np.ceil(2 / alpha))}) or more.",
            )

    def judge(
        self,
        comparison: Comparison,
        seed: int,
        *,
        refine: bool,
        parts: Sequence[Comparison] = (),
        cores: int | None = None,
    ) -> Judged:
        """Adjusted p = P(top merge of groups that are all alike ≥ height)."""
        if self.stepdown and (comparison.draws_are_counted or comparison.estimates is None):
            raise _needs_one_effect()
        if self.stepdown and comparison.estimates is not None and comparison.estimates.dims > 1:
            raise _needs_one_effect()
        hierarchy, draws = tree_of(comparison), self._draws(comparison)
        if self.stepdown:
            log_p, draws = step_down(comparison, hierarchy, draws, seed, cores)
        else:
            log_p, draws = calibrated(comparison, hierarchy.gap_heights, draws, seed, cores=cores)
        facts: Facts = {"draws": draws, "seed": seed}
        facts |= {"stepdown": 1} if self.stepdown else {}
        path = cuts(comparison, hierarchy, log_p, refine=refine)
        return Judged(path, hierarchy, comparison, comparison, facts, comparison.height_name)

    def judge_many(
        self, comparisons: Sequence[Comparison], seed: int, *, refine: bool, advance: Callable[[int], None]
    ) -> list[Judged] | None:
        """The same for many plain comparisons with the same number of groups, in one compiled pass."""
        if self.stepdown:
            return None
        trees = [tree_of(comparison) for comparison in comparisons]
        draws = self._draws(comparisons[0])
        found = calibrated_many(comparisons, [tree.gap_heights for tree in trees], draws, seed, advance)
        return [
            Judged(cuts(one, tree, log_p, refine=refine), tree, one, one, {"draws": drawn, "seed": seed})
            for one, tree, (log_p, drawn) in zip(comparisons, trees, found, strict=True)
        ]

    def critical_height(self, comparison: Comparison, alpha: float, seed: int) -> float | None:
        """One threshold for all effects: the null depends on the standard errors alone, where they are known."""
        known = comparison.estimates is not None and comparison.estimates.dof is None
        if self.stepdown or not known or comparison.draws_are_counted:
            return None
        return critical_height(comparison, alpha, self._draws(comparison), seed)

    def _draws(self, comparison: Comparison) -> int:
        return comparison.default_draws if self.draws is None else int(self.draws)

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """How many draws p rests on."""
        if not facts["draws"]:
            return []
        each = "; each cluster against its own groups" if self.stepdown else ""
        return [f"Calibrated on {facts['draws']:,} draws, seed {facts['seed']}{each}."]


def _needs_one_effect() -> InputError:
    return InputError(
        "stepdown=True", "works with one effect on a line", "Leave it out, or cluster the effects one by one."
    )
