"""The protocol of a guarantee, and what it says about some groups.

P-values are kept as logarithms, because a split in a large experiment easily has a p far below the smallest double.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from faultlines.comparison.base import Comparison
    from faultlines.comparison.line import Line
    from faultlines.comparison.plane import Plane
    from faultlines.estimates.estimates import BoolArray
    from faultlines.estimates.scales import FloatArray
    from faultlines.tree.hierarchy import Hierarchy
    from faultlines.tree.path import Path

    Detector = Callable[[FloatArray, FloatArray | None], BoolArray]

EVEN = float(np.log(0.5))  # nobody asks for a level above one half: p beyond it are not told apart

Facts = dict[str, int | float | str]


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """What a guarantee says about some groups.

    Attributes:
        path: Partitions, each with the log p at which it appears.
        hierarchy: The tree they come from.
        reported: The groups that are reported; those held out, if some were.
        explored: The groups the tree was built from; the same, unless some data were held out.
        facts: How it was found, for the reader of a result: draws, seed and the like.
        height_name: What the root of a height in the tree says.
        part: Which of the parts of the data that were given is reported; None where none of them is.
    """

    path: Path
    hierarchy: Hierarchy
    reported: Comparison
    explored: Comparison
    facts: Facts
    height_name: str = "how different the two merged clusters are, in standard errors"
    part: int | None = None

    @property
    def log_pvalue(self) -> float:
        """Log of the adjusted p of "all groups are alike"."""
        return self.path.log_pvalue


class Guarantee(Protocol):
    """How claims are kept honest."""

    @property
    def name(self) -> str:
        """What it is called in arguments and results."""

    @property
    def explanation(self) -> str:
        """What it does, in a sentence."""

    @property
    def intervals_hold(self) -> bool:
        """Whether intervals of clusters come from data that did not choose the clusters."""

    @property
    def reports_all_data(self) -> bool:
        """Whether estimates of all data are reported also where data are split."""

    @property
    def holds(self) -> bool:
        """Whether the chance of a false claim is at most α."""

    @property
    def unit(self) -> str | None:
        """For rows: the column whose values stay together where rows are split."""

    @property
    def splits(self) -> int:
        """How many times data are split anew."""

    def check(self, alpha: float, comparison: Comparison) -> None:
        """Refuse a level that is out of reach.

        Args:
            alpha: The level that is asked for.
            comparison: The groups.

        Raises:
            InputError: If claims at that level cannot be made.
        """

    def shares(self, groups: int) -> tuple[float, ...]:
        """Shares of the data in each part; none where data are not split.

        Args:
            groups: How many groups there are.

        Returns:
            The shares, which add up to 1; or nothing.
        """

    def judge(
        self,
        comparison: Comparison,
        seed: int,
        *,
        refine: bool,
        parts: Sequence[Comparison] = (),
        cores: int | None = None,
    ) -> Judged:
        """The path of partitions of some groups.

        Where rows were split, `parts` are the parts of their data: those of the first split, then those of the second.

        Args:
            comparison: The groups.
            seed: Of all random numbers.
            refine: Whether groups at a border are moved to the cluster of nearest estimate.
            parts: Parts of the data, where rows were split.
            cores: How many cores may be used; all, if None.

        Returns:
            Partitions with the p at which they appear, and how they were found.
        """

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """What a reader must know about how it was found.

        Args:
            comparison: The groups.
            facts: What `judge` said about how it was found.

        Returns:
            Sentences.
        """

    def judge_many(
        self, comparisons: Sequence[Comparison], seed: int, *, refine: bool, advance: Callable[[int], None]
    ) -> list[Judged] | None:
        """Many plain comparisons with the same number of groups in one pass; None where there is no such pass.

        Args:
            comparisons: The groups of each experiment.
            seed: Of all random numbers.
            refine: Whether groups at a border are moved.
            advance: Is told how many more experiments are done.

        Returns:
            What `judge` would say about each; or None.
        """

    def detector(self, groups: Line | Plane, alpha: float, seed: int) -> Detector | None:
        """From rows of other effects of the same groups to whether clusters are claimed; None without a short way.

        Effects are (r, K, d), and so are the standard errors that are seen with them, where those are estimates. What
        is critical follows from the standard errors of the groups, not from their effects.

        Args:
            groups: The groups.
            alpha: The level of the claims.
            seed: Of all random numbers.

        Returns:
            A function from effects, and standard errors or None, to r truth values; or None.
        """


class Defaults:
    """What most guarantees have in common: any level can be asked, data are not split, nothing is done in bulk."""

    __slots__ = ()
    reports_all_data: ClassVar[bool] = True
    splits: int = 1

    def check(self, alpha: float, comparison: Comparison) -> None:
        """Any level can be asked."""

    def shares(self, groups: int) -> tuple[float, ...]:
        """Data are not split."""
        return ()

    def judge_many(
        self, comparisons: Sequence[Comparison], seed: int, *, refine: bool, advance: Callable[[int], None]
    ) -> list[Judged] | None:
        """Each experiment is judged on its own."""
        return None

    def detector(self, groups: Line | Plane, alpha: float, seed: int) -> Detector | None:
        """There is no short way."""
        return None


def split_by(facts: Mapping[str, int | float | str], comparison: Comparison) -> str:
    """How data were split, in words."""
    if facts.get("split") == "units":
        return "a hash of the units"
    return "thinning" if comparison.draws_are_counted else "Gaussian thinning"


def splitter(seed: int, number: int = 0) -> np.random.Generator:
    """The random numbers that split data, the number-th time.

    A stream of its own: simulated data made with NumPy's plain generator and the same seed would otherwise be thinned
    with the very noise they were made of.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x5917, number) if number else (0x5917,)))
