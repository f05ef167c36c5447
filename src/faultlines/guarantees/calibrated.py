"""The default guarantee: p-values from groups drawn without any difference, with the precision these groups have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from faultlines import checks
from faultlines.core.comparison import Comparison
from faultlines.core.normal import Line, Plane
from faultlines.core.tree import build_tree, cut_tree
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.guarantees.attributes import attribute_paths, has_several_effects
from faultlines.guarantees.base import Detector, Facts, GuaranteeDefaults, GuaranteedPath, run_in_order
from faultlines.guarantees.joint_test import (
    JointTest,
    calibrate,
    calibrate_many,
    critical_height,
    default_draws,
    extract_effects,
    run_joint_tests,
)
from faultlines.guarantees.partitions import PartitionSearch

_MOST_DRAWS = 100_000_000
_AMPLE = 100  # degrees of freedom for each group with which a covariance counts as known: lengths are off by under 1%
_PORTION = 64  # experiments that go through one compiled pass together


@dataclass(frozen=True, slots=True)
class Calibrated(GuaranteeDefaults):
    """The probability that groups with equal effects would differ as much as these, from draws of such groups.

    Groups with equal effects are drawn again and again with the standard errors at hand. A draw has a direction (its
    pattern of noise) and a length (Cochran's Q); the two are independent, the test statistic rises with the length, and
    the length is known to follow χ² on K − 1 degrees of freedom. So only directions need drawing: p is the average over
    directions, the data's own included, of the probability that the length suffices. Under the null hypothesis that p
    is exactly uniform, whatever the number of draws and however small the p, and it needs no fitted tail. See
    docs/method.md.

    The statistic is the largest of the top merge of the tree, a scan for outlier groups, and Q, each standardized under
    the null hypothesis. m clusters are reported when m − 1 are not enough: when in every partition that was tried some
    cluster, k of the K groups, fails the same test of its own groups at level ¾ α (k − 1)/(K − 1).

    With `dof` the standard errors are estimates themselves. Draws then carry estimated variances as well, around true
    ones that are spread as widely as the data's, less the spread that estimation adds. For a `Similarity` draws are
    counted, so p does not fall below 1/(draws + 1), and levels below that are refused.

    Args:
        draws: How many draws at most. Default: 1,000 directions, fewer for very many groups; without a scan 10,000.
            They are cut short when p is clearly large (above 0.2), which keeps p valid.
        scan: Look for outlier groups too. It needs one effect and no tolerance; several effects, counts, tolerances
            and a `Similarity` are tested by the top merge alone, and the result says so. False: the top merge and one
            threshold for the whole tree.

    Raises:
        InputError: If `draws` is not a whole number above 0.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]), guarantee=fl.Calibrated(draws=2000)).n_clusters
        2
    """

    draws: int | None = None
    scan: bool = True
    name: ClassVar[str] = "calibrated"
    explanation: ClassVar[str] = (
        "calibrated: p-values from draws of groups with equal effects and these standard errors"
    )
    intervals_hold: ClassVar[bool] = False
    holds: ClassVar[bool] = True
    unit: ClassVar[None] = None

    def __post_init__(self) -> None:
        checks.flag("scan", self.scan)
        if self.draws is not None:
            problem = "must be a whole number above 0, at most 100 million"
            checks.number(
                "draws",
                self.draws,
                problem,
                "Use {draws}.",
                low=1,
                high=_MOST_DRAWS,
                whole=True,
                settings={"draws": 10_000},
            )

    def check(self, alpha: float, comparison: Comparison) -> None:
        """Refuse a level that counted draws cannot get below; where lengths are integrated, any level can be asked."""
        draws, estimates = self._draws(comparison), comparison.estimates
        if estimates is not None and estimates.covariance is not None and not self._scans(comparison):
            self._check_shared(estimates, comparison)
        if comparison.draws_are_counted and len(comparison) > 1 and (draws + 1) * alpha <= 1:
            raise InputError.too_few(
                "alpha",
                f"needs more than {draws} draws: the smallest p is 1/{draws + 1}",
                "Use {draws} or more (fl.Calibrated).",
                alpha,
                settings={"draws": int(np.ceil(2 / alpha))},
            )

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
        """The path of partitions: by the test of every cluster's own groups, or by one threshold for the tree."""
        hierarchy = build_tree(comparison)
        if margins and self._tests_margins(comparison) and len(comparison.attributes) > 1:
            along = attribute_paths(comparison, hierarchy, draws=self.draws, seed=seed, cores=cores, refine=refine)
            if along is not None:
                marginal: Facts = {
                    "draws": along.test.draws,
                    "seed": seed,
                    "scan": int(self._scans(comparison)),
                    "margins": len(along.choice.margins),
                }
                name = comparison.height_name
                return GuaranteedPath(along.cell_path, hierarchy, comparison, comparison, marginal, name, along=along)
        if self._scans(comparison):
            effects = extract_effects(comparison)
            joint_test = JointTest(effects, self.draws, seed, cores)
            log_p = joint_test.test(np.arange(len(comparison))).log_p
            path = PartitionSearch(effects, hierarchy, joint_test, log_p, refine)
            facts: Facts = {"draws": joint_test.most_draws, "seed": seed, "scan": 1}
            return GuaranteedPath(path, hierarchy, comparison, comparison, facts, comparison.height_name)
        calibration = calibrate(comparison, hierarchy.gap_heights, self._draws(comparison), seed, cores=cores)
        cut = cut_tree(comparison, hierarchy, calibration.log_p, refine=refine)
        facts = {"draws": calibration.draws, "seed": seed, "scan": 0}
        return GuaranteedPath(cut, hierarchy, comparison, comparison, facts, comparison.height_name)

    def _tests_margins(self, comparison: Comparison) -> bool:
        return self._scans(comparison) or (self.scan and has_several_effects(comparison) and len(comparison) > 1)

    def _scans(self, comparison: Comparison) -> bool:
        return self.scan and comparison.can_scan and len(comparison) > 1

    def find_paths(
        self, comparisons: Sequence[Comparison], seed: int, *, refine: bool, advance: Callable[[int], None]
    ) -> list[GuaranteedPath] | None:
        """The same for many plain comparisons with the same number of groups, in one compiled pass."""
        if self.scan:
            return self._scan_many(comparisons, seed, refine=refine, advance=advance)
        trees = [build_tree(comparison) for comparison in comparisons]
        heights, draws = [tree.gap_heights for tree in trees], self._draws(comparisons[0])
        calibrations = calibrate_many(comparisons, heights, draws, seed, advance)
        paths = []
        for comparison, tree, (log_p, drawn) in zip(comparisons, trees, calibrations, strict=True):
            cut = cut_tree(comparison, tree, log_p, refine=refine)
            facts: Facts = {"draws": drawn, "seed": seed, "scan": 0}
            paths.append(GuaranteedPath(cut, tree, comparison, comparison, facts))
        return paths

    def _scan_many(
        self, comparisons: Sequence[Comparison], seed: int, *, refine: bool, advance: Callable[[int], None]
    ) -> list[GuaranteedPath]:
        """All experiments on the same draws, in one compiled pass; clusters are searched for when asked for."""
        draws = default_draws(len(comparisons[0])) if self.draws is None else self.draws

        def test_portion(number: int) -> list[GuaranteedPath]:
            portion = comparisons[number * _PORTION : (number + 1) * _PORTION]
            effects = [extract_effects(comparison) for comparison in portion]
            log_p, drawn = (array.tolist() for array in run_joint_tests(effects, draws, seed))
            paths = []
            for comparison, own_effects, p, count in zip(portion, effects, log_p, drawn, strict=True):
                tree = build_tree(comparison)
                path = PartitionSearch(own_effects, tree, JointTest(own_effects, self.draws, seed), p, refine)
                facts: Facts = {"draws": count, "seed": seed, "scan": 1}
                paths.append(GuaranteedPath(path, tree, comparison, comparison, facts, comparison.height_name))
            return paths

        paths: list[GuaranteedPath] = []
        for portion in run_in_order(test_portion, -(-len(comparisons) // _PORTION)):
            paths += portion
            advance(len(portion))
        return paths

    def make_detector(self, groups: Line | Plane, alpha: float, seed: int) -> Detector | None:
        """One threshold for all effects; without a scan, only where standard errors are known."""
        if len(groups) < 2:
            return None
        if self._scans(groups):
            return JointTest(extract_effects(groups), self.draws, seed).make_detector(alpha, groups.estimates.own[:, 0])
        if groups.estimates.dof is not None:
            return None
        height = critical_height(groups, alpha, self._draws(groups), seed)
        return lambda effects, _: groups.tops(effects) > height

    def for_power(self, comparison: Comparison, draws: int) -> Calibrated:
        """Without a scan where the comparison has none, although normal estimates of the same groups would."""
        scan = self.scan and comparison.can_scan
        return Calibrated(draws if self.draws is None else self.draws, scan)

    def _check_shared(self, estimates: Estimates, comparison: Comparison) -> None:
        """Without a scan the length is compared with χ² alone."""
        ample = _AMPLE * len(comparison) <= estimates.covariance_dof < np.inf
        if np.isfinite(estimates.dof_of_all) and len(comparison) > 1 and not ample:
            problem = "needs a known covariance and no tolerance, or a scan"
            raise InputError.unsupported(
                "dof",
                problem,
                "Leave out dof; or leave out {tolerance} and {scan}.",
                settings={"tolerance": ..., "scan": False},
            )

    def _draws(self, comparison: Comparison) -> int:
        return comparison.default_draws if self.draws is None else int(self.draws)

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """The method, the seed, and what was not looked for."""
        if not facts["draws"]:
            return []
        notes = [f"Method: calibrated (seed {facts['seed']})."]
        if not facts["scan"]:
            reason = f" ({_why_no_scan(comparison)})" if self.scan else ""
            notes.append(f"Outlier groups were not searched for{reason}.")
        return notes


def _why_no_scan(comparison: Comparison) -> str:
    """What about a comparison makes a scan for outlier groups impossible."""
    if comparison.estimates is None:
        return "counts and statistics are tested by the top merge alone"
    if comparison.estimates.dims > 1:
        return "several effects are compared"
    return "a tolerance is given" if comparison.tolerance else "counts are tested by the top merge alone"
