"""The paper's K-part split: every step of the algorithm uses a fold of the data of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from faultlines import checks
from faultlines.core.tree import Hierarchy, build_tree, cut_tree
from faultlines.errors import InputError
from faultlines.guarantees.base import Facts, GuaranteeDefaults, GuaranteedPath, describe_split, split_generator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from faultlines.core.comparison import Comparison
    from faultlines.estimates.estimates import IntArray
    from faultlines.estimates.scales import FloatArray

_MOST_NUMBERS = 10_000_000  # that folds of estimates may take


@dataclass(frozen=True, slots=True)
class Folds(GuaranteeDefaults):
    """The paper's K-part split: every step of the algorithm, test and merge, uses a fold of the data of its own.

    Step b tests on fold b alone whether all clusters differ from each other, each at level α/K; if not, it merges the
    two that look most similar there. Each p is independent of the merges before it, which is what the paper's theorem
    asks for, at the price of most of the power: it detects 1% of the splits of which the default detects 80%. To look
    while data come in, use `fl.Monitor`.

    Args:
        n: How many folds; as many as there are groups by default, as in the paper. With fewer, the first one merges
            down to n clusters without testing, and the others test.
        unit: For rows: the column whose values are kept together; that of the metric by default.

    Raises:
        InputError: If there are fewer than two folds.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.Estimates([0.0, 99.0], [1.0, 1.0]), guarantee=fl.Folds()).n_clusters
        2
    """

    n: int | None = None
    unit: str | None = None
    name: ClassVar[str] = "folds"
    explanation: ClassVar[str] = "folds: every step on a part of the data of its own"
    intervals_hold: ClassVar[bool] = False
    holds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.unit is not None:
            checks.column("unit", self.unit)
        if self.n is not None:
            problem = "must be a whole number from 2 on"
            checks.number("n", self.n, problem, "Use for example {n}.", low=2, whole=True, settings={"n": 10})

    def shares(self, groups: int) -> tuple[float, ...]:
        """Equal ones."""
        folds = max(2, self.n or groups)
        if folds * max(groups, 1) > _MOST_NUMBERS:
            raise InputError.out_of_range(
                "n", f"are too many folds for {groups:,} groups", "Use for example fl.Folds(n=20).", folds
            )
        return (1 / folds,) * folds

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
        """Adjusted p of the partition before step b = the number of folds times the least p of the steps up to b."""
        groups = len(comparison)
        split = "units" if parts else "thinning"
        shares = tuple(1 / len(parts) for _ in parts) or self.shares(groups)
        folds = len(shares)
        if not comparison.draws_are_counted and comparison.n is not None and folds > comparison.n.min():
            smallest = f"are more than the {comparison.n.min():g} units of the smallest group"
            raise InputError.out_of_range("n", smallest, "Use fewer.", folds)
        merges, log_p = _steps(list(parts or comparison.split(shares, split_generator(seed))), groups, folds)
        hierarchy = Hierarchy.from_linkage(merges, -log_p)
        by_gap = np.zeros(groups - 1)
        by_gap[hierarchy.merge_order()] = log_p
        facts: Facts = {"folds": folds, "split": split, "seed": seed}
        path = cut_tree(comparison, hierarchy, by_gap, refine=refine)
        return GuaranteedPath(path, hierarchy, comparison, comparison, facts, "root of −log p at the merge")

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """How many folds, and how they were made."""
        how = describe_split(facts, comparison)
        return [f"Every step on one of {facts['folds']} folds, made by {how}, seed {facts['seed']}."]


def _steps(parts: list[Comparison], groups: int, folds: int) -> tuple[IntArray, FloatArray]:
    """Merges in scipy's numbering, and the adjusted log p of the partition before each."""
    number, clusters = np.arange(groups), np.arange(groups)
    merges, log_p = np.empty((groups - 1, 2), dtype=np.int64), np.zeros(groups - 1)
    untested = max(0, groups - folds)
    if untested:
        first = build_tree(parts[0])
        merges[:untested] = first.merges[:untested]
        is_open = np.ones(groups - 1, dtype=bool)
        is_open[first.merge_order()[:untested]] = False
        clusters = first.labels(first.starts(is_open)) - 1
        number = _numbers(merges[:untested], clusters, groups)
    least = 0.0
    for step in range(untested, groups - 1):
        place = step - untested + (1 if untested else 0)
        fold = parts[place].with_weights_of(parts[place - 1]) if place > 0 else parts[place]
        pair = fold.most_similar_pair(clusters)
        least = min(least, pair.log_p + np.log(folds))
        log_p[step] = least
        a, b = sorted((pair.a, pair.b))
        merges[step] = sorted((number[a], number[b]))
        number = np.delete(number, b)
        number[a] = groups + step
        clusters = np.where(clusters == b, a, clusters - (clusters > b))
    return merges, log_p


def _numbers(merges: IntArray, clusters: IntArray, groups: int) -> IntArray:
    """The number, in scipy's way, of each cluster that the first merges have left."""
    last_number = np.arange(groups + len(merges))  # the last cluster that each has become part of
    for step in range(len(merges) - 1, -1, -1):
        last_number[merges[step]] = last_number[groups + step]
    numbers = np.empty(int(clusters.max()) + 1, dtype=np.int64)
    numbers[clusters] = last_number[:groups]
    return numbers
