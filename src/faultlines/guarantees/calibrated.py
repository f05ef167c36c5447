"""The default guarantee: p-values from groups drawn without any difference, with the precision these groups have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from faultlines import checks
from faultlines.errors import InputError
from faultlines.guarantees.base import Defaults, Facts, Judged
from faultlines.guarantees.joint import Tests, effects_of, tested_many, usual_draws
from faultlines.guarantees.null import calibrated, calibrated_many, critical_height
from faultlines.guarantees.parallel import in_order
from faultlines.guarantees.search import Partitions
from faultlines.tree.hierarchy import tree_of
from faultlines.tree.path import cuts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from faultlines.comparison.base import Comparison
    from faultlines.comparison.line import Line
    from faultlines.comparison.plane import Plane
    from faultlines.estimates.estimates import Estimates
    from faultlines.guarantees.base import Detector


_MOST_DRAWS = 100_000_000
_AMPLE = 100  # degrees of freedom for each group with which a covariance counts as known: lengths are off by under 1%
_PORTION = 64  # experiments that go through one compiled pass together


@dataclass(frozen=True, slots=True)
class Calibrated(Defaults):
    """The chance that groups without any difference would show as much as these do, from draws of such groups.

    Groups that are all alike are drawn again and again with the standard errors at hand. A draw has a direction (its
    pattern of noise) and a length (Cochran's Q); the two are independent, what is looked at rises with the length, and
    the law of that length is known to be χ² on K − 1 degrees of freedom. So only directions need drawing: p is the
    average over directions, the data's own included, of the chance that the length is long enough. Under the null that
    p is exactly uniform, whatever the number of draws and however small the p, and it needs no fitted tail. See
    docs/method.md.

    What is looked at is the top merge of the tree, a scan for groups that stand apart from all the others, and Q,
    whichever is least like noise. m clusters are reported when m − 1 are not enough: when in every partition that was
    tried some cluster, k of the K groups, fails the same test of its own groups at level ¾ α (k − 1)/(K − 1).

    With `dof` the standard errors are estimates themselves. Draws then carry estimated variances as well, around true
    ones that are spread as widely as the data's, less the spread that estimation adds. For a `Similarity` draws are
    counted, so p does not fall below 1/(draws + 1), and levels below that are refused.

    Args:
        draws: How many draws at most. Default: 1,000 directions, fewer for very many groups; without a scan 10,000.
            They are cut short when p is clearly large (above 0.2), which keeps p valid.
        scan: Look for groups that stand apart from the rest too. It goes with one effect and without a tolerance;
            several effects, counts, tolerances and a `Similarity` are judged by the top merge alone, and the result
            says so. False: the top merge and one threshold for the whole tree, as in the first release.
        stepdown: Another name for `scan`, which does what this did and more.

    Raises:
        InputError: If `draws` is not a whole number above 0.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]), guarantee=fl.Calibrated(draws=2000)).n_clusters
        2
    """

    draws: int | None = None
    scan: bool = True
    stepdown: bool = False
    name: ClassVar[str] = "calibrated"
    explanation: ClassVar[str] = (
        "calibrated: p-values from groups drawn without any difference, with the precision these groups have"
    )
    intervals_hold: ClassVar[bool] = False
    holds: ClassVar[bool] = True
    unit: ClassVar[None] = None

    def __post_init__(self) -> None:
        checks.flag("scan", self.scan)
        checks.flag("stepdown", self.stepdown)
        if self.draws is not None:
            problem = "must be a whole number above 0, at most 100 million"
            checks.number("draws", self.draws, problem, "Use draws=10_000.", low=1, high=_MOST_DRAWS, whole=True)

    def check(self, alpha: float, comparison: Comparison) -> None:
        """Refuse a level that counted draws cannot get below; where lengths are integrated, any level can be asked."""
        draws, estimates = self._draws(comparison), comparison.estimates
        if estimates is not None and estimates.covariance is not None and not self._scans(comparison):
            self._check_shared(estimates, comparison)
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
        """The path of partitions: by test of every cluster's own groups, or by one threshold for the tree."""
        hierarchy = tree_of(comparison)
        if self._scans(comparison):
            effects = effects_of(comparison)
            tests = Tests(effects, self.draws, seed, cores)
            path = Partitions(effects, hierarchy, tests, tests.of(np.arange(len(comparison))).log_p, refine)
            facts: Facts = {"draws": tests.most_draws, "seed": seed, "scan": 1}
            return Judged(path, hierarchy, comparison, comparison, facts, comparison.height_name)
        estimates = comparison.estimates
        if self.stepdown and (comparison.draws_are_counted or estimates is None or estimates.dims > 1):
            raise InputError(
                "stepdown=True", "works with one effect on a line", "Leave it out, or cluster the effects one by one."
            )
        log_p, draws = calibrated(comparison, hierarchy.gap_heights, self._draws(comparison), seed, cores=cores)
        cut = cuts(comparison, hierarchy, log_p, refine=refine)
        facts = {"draws": draws, "seed": seed, "scan": 0}
        return Judged(cut, hierarchy, comparison, comparison, facts, comparison.height_name)

    def _scans(self, comparison: Comparison) -> bool:
        return (self.scan or self.stepdown) and comparison.can_scan and len(comparison) > 1

    def judge_many(
        self, comparisons: Sequence[Comparison], seed: int, *, refine: bool, advance: Callable[[int], None]
    ) -> list[Judged] | None:
        """The same for many plain comparisons with the same number of groups, in one compiled pass."""
        if self.scan or self.stepdown:
            return self._scan_many(comparisons, seed, refine=refine, advance=advance)
        trees = [tree_of(comparison) for comparison in comparisons]
        draws = self._draws(comparisons[0])
        found = calibrated_many(comparisons, [tree.gap_heights for tree in trees], draws, seed, advance)
        return [
            Judged(cuts(one, tree, log_p, refine=refine), tree, one, one, {"draws": drawn, "seed": seed, "scan": 0})
            for one, tree, (log_p, drawn) in zip(comparisons, trees, found, strict=True)
        ]

    def _scan_many(
        self, comparisons: Sequence[Comparison], seed: int, *, refine: bool, advance: Callable[[int], None]
    ) -> list[Judged]:
        """All experiments on the same draws, in one compiled pass; clusters are looked for when they are asked for."""
        draws = usual_draws(len(comparisons[0])) if self.draws is None else self.draws

        def some(number: int) -> list[Judged]:
            mine = comparisons[number * _PORTION : (number + 1) * _PORTION]
            effects = [effects_of(one) for one in mine]
            made = []
            log_p, drawn = (array.tolist() for array in tested_many(effects, draws, seed))
            for one, of_one, p, count in zip(mine, effects, log_p, drawn, strict=True):
                tree = tree_of(one)
                path = Partitions(of_one, tree, Tests(of_one, self.draws, seed), p, refine)
                facts: Facts = {"draws": count, "seed": seed, "scan": 1}
                made.append(Judged(path, tree, one, one, facts, one.height_name))
            return made

        found: list[Judged] = []
        for done in in_order(some, -(-len(comparisons) // _PORTION)):
            found += done
            advance(len(done))
        return found

    def detector(self, groups: Line | Plane, alpha: float, seed: int) -> Detector | None:
        """One threshold for all effects; without a scan, only where standard errors are known."""
        if len(groups) < 2:
            return None
        if self._scans(groups):
            return Tests(effects_of(groups), self.draws, seed).detector(alpha, groups.estimates.own[:, 0])
        if groups.estimates.dof is not None:
            return None
        height = critical_height(groups, alpha, self._draws(groups), seed)
        return lambda effects, _: groups.tops(effects) > height

    def _check_shared(self, estimates: Estimates, comparison: Comparison) -> None:
        """Without a scan the length is compared with χ² alone."""
        ample = _AMPLE * len(comparison) <= estimates.covariance_dof < np.inf
        if np.isfinite(estimates.dof_of_all) and len(comparison) > 1 and not ample:
            problem = "goes with a known covariance without a tolerance, and with a scan"
            raise InputError("dof", problem, "Leave dof out, or leave out tolerance and scan=False.")

    def _draws(self, comparison: Comparison) -> int:
        return comparison.default_draws if self.draws is None else int(self.draws)

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """What was looked at, and how many draws p rests on."""
        if not facts["draws"]:
            return []
        looked = "Looked at halves and at lone groups" if facts["scan"] else "Looked at the top merge only"
        if not facts["scan"] and self.scan:
            looked += " (a scan for lone groups goes with one effect and without a tolerance)"
        return [f"{looked}; calibrated on {facts['draws']:,} draws, seed {facts['seed']}."]
