"""The protocol of a guarantee, and the path of partitions it finds.

P-values are kept as logarithms, because a difference in a large experiment easily has a p far below the smallest
double.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self, TypeVar

import numpy as np

from faultlines.core.comparison import Comparison
from faultlines.core.normal import Line, Plane
from faultlines.core.tree import Hierarchy, PartitionPath
from faultlines.types import BoolArray, FloatArray, IntArray

Detector = Callable[[FloatArray, FloatArray | None], BoolArray]

LOG_HALF = float(np.log(0.5))  # nobody asks for a level above one half: p beyond it need not be distinguished

Facts = dict[str, int | float | str]


@dataclass(frozen=True, eq=False)
class MarginLevels:
    """The levels of some attributes as groups of their own.

    Attributes:
        attributes: Names of the attributes.
        codes: The level of each cell.
        comparison: The levels as groups: precision-weighted means of their cells.
        hierarchy: Their tree of merges.
        path: Partitions of the levels, the first at the p over all margins.
    """

    attributes: tuple[str, ...]
    codes: IntArray
    comparison: Comparison
    hierarchy: Hierarchy
    path: PartitionPath


class AttributeSearch(Protocol):
    """Which attributes the differences run along, at any significance level; see `guarantees.attributes`."""

    def attributes_at(self, alpha: float) -> tuple[str, ...]:
        """Names of the fewest attributes that are enough."""

    def levels_at(self, alpha: float) -> MarginLevels | None:
        """Their levels as groups."""

    def terms_at(self, alpha: float) -> tuple[MarginLevels, ...]:
        """The levels of each of them, where their effects add up."""

    def path_at(self, alpha: float) -> PartitionPath:
        """Partitions of the cells along them."""


@dataclass(frozen=True, slots=True, eq=False)
class GuaranteedPath:
    """The path of partitions that a guarantee finds for some groups.

    Attributes:
        path: Partitions, each with the log p at which it appears.
        hierarchy: The tree they come from.
        reported: The groups that are reported; those of the held-out part, if data were held out.
        explored: The groups the tree was built from; the same, unless data were held out.
        facts: How it was found: draws, seed and the like.
        height_name: What the root of a height in the tree measures.
        part: Which part of split rows is reported; None where none of them is.
        along: Partitions along the fewest attributes that are enough, where crossed attributes were tested by margins.
    """

    path: PartitionPath
    hierarchy: Hierarchy
    reported: Comparison
    explored: Comparison
    facts: Facts
    height_name: str = "how different the two merged clusters are, in standard errors"
    part: int | None = None
    along: AttributeSearch | None = None

    @property
    def log_pvalue(self) -> float:
        """Log of the adjusted p of "all groups have the same effect"."""
        return self.path.log_pvalue

    def path_at(self, alpha: float) -> PartitionPath:
        """Partitions that are reported at a significance level: along the attributes that are enough there."""
        return self.path if self.along is None else self.along.path_at(alpha)

    def levels_at(self, alpha: float) -> MarginLevels | None:
        """The levels of those attributes as groups; None where the groups themselves are clustered."""
        return None if self.along is None else self.along.levels_at(alpha)


class Guarantee(Protocol):
    """How the probability of false positives is controlled."""

    @property
    def name(self) -> str:
        """Its name in arguments and results."""

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
        """Whether the probability of a false positive is at most α."""

    @property
    def unit(self) -> str | None:
        """For rows: the column whose values stay together where rows are split."""

    @property
    def splits(self) -> int:
        """How many times data are split anew."""

    def check(self, alpha: float, comparison: Comparison) -> None:
        """Refuse a significance level that is out of reach.

        Args:
            alpha: The significance level.
            comparison: The groups.

        Raises:
            InputError: If no difference can be reported at that level.
        """

    def shares(self, groups: int) -> tuple[float, ...]:
        """Shares of the data in each part; none where data are not split.

        Args:
            groups: How many groups there are.

        Returns:
            The shares, which add up to 1; or nothing.
        """

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
        """The path of partitions of some groups.

        Where rows were split, `parts` are the parts of their data: those of the first split, then those of the second.

        Args:
            comparison: The groups.
            seed: Of all random numbers.
            refine: Whether groups at a border are moved to the cluster of nearest estimate.
            parts: Parts of the data, where rows were split.
            cores: How many cores may be used; all, if None.
            margins: Whether all margins of crossed attributes are tested, where the guarantee can do that.

        Returns:
            Partitions with the p at which they appear, and how they were found.
        """

    def find_paths(
        self, comparisons: Sequence[Comparison], seed: int, *, refine: bool, advance: Callable[[int], None]
    ) -> list[GuaranteedPath] | None:
        """The paths of many plain comparisons with the same number of groups; None where there is no common pass.

        Args:
            comparisons: The groups of each experiment.
            seed: Of all random numbers.
            refine: Whether groups at a border are moved.
            advance: Called with how many more experiments are done.

        Returns:
            What `find_path` would return for each; or None.
        """

    def notes(self, comparison: Comparison, facts: Mapping[str, int | float | str]) -> list[str]:
        """What a reader must know about the method.

        Args:
            comparison: The groups.
            facts: Those of the path.

        Returns:
            Sentences.
        """

    def make_detector(self, groups: Line | Plane, alpha: float, seed: int) -> Detector | None:
        """A function from rows of other effects of the same groups to whether a difference would be reported.

        Effects are (r, K, d), and so are the standard errors observed with them, where those are estimates. The
        threshold follows from the standard errors of the groups, not from their effects.

        Args:
            groups: The groups.
            alpha: The significance level.
            seed: Of all random numbers.

        Returns:
            A function from effects, and standard errors or None, to r truth values; None where no threshold is known.
        """

    def for_power(self, comparison: Comparison, draws: int) -> Guarantee:
        """The guarantee to simulate the power of a comparison with, from normal estimates of its groups.

        Args:
            comparison: The groups.
            draws: How many draws a threshold is worth, where their number was not set.

        Returns:
            The guarantee with these settings.
        """


class GuaranteeDefaults:
    """What most guarantees have in common: any level can be asked, data are not split, nothing is done in bulk."""

    __slots__ = ()
    reports_all_data: ClassVar[bool] = True
    splits: int = 1

    def check(self, alpha: float, comparison: Comparison) -> None:
        """Any level can be asked."""

    def shares(self, groups: int) -> tuple[float, ...]:
        """Data are not split."""
        return ()

    def find_paths(
        self, comparisons: Sequence[Comparison], seed: int, *, refine: bool, advance: Callable[[int], None]
    ) -> list[GuaranteedPath] | None:
        """Each experiment is analyzed on its own."""
        return None

    def make_detector(self, groups: Line | Plane, alpha: float, seed: int) -> Detector | None:
        """No threshold is known."""
        return None

    def for_power(self, comparison: Comparison, draws: int) -> Self:
        """The same guarantee."""
        return self


def describe_split(facts: Mapping[str, int | float | str], comparison: Comparison) -> str:
    """How data were split, in words."""
    if facts.get("split") == "units":
        return "a hash of the units"
    return "thinning" if comparison.draws_are_counted else "Gaussian thinning"


def split_generator(seed: int, number: int = 0) -> np.random.Generator:
    """The random numbers of the number-th split of the data.

    A stream of its own: simulated data made with NumPy's plain generator and the same seed would otherwise be thinned
    with the very noise they were made of.
    """
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0x5917, number) if number else (0x5917,)))


# ------------------------------------------------------------------------------------------ blocks of work on all cores


_Result = TypeVar("_Result")


def run_in_order(work: Callable[[int], _Result], total: int, cores: int | None = None) -> Iterator[_Result]:
    """Results of blocks of work in a fixed order, computed on all cores.

    Only a few blocks are in flight at a time: memory stays bounded, and an interrupt is answered within one block.

    Args:
        work: Computes the block of a number.
        total: How many blocks there are.
        cores: How many cores to use; all, if None.

    Yields:
        The result of every block, in the order of their numbers.
    """
    cores = cores or available_cores()
    if total == 1 or cores == 1:
        yield from map(work, range(total))
        return
    with ThreadPoolExecutor(cores) as pool:
        waiting = deque(pool.submit(work, number) for number in range(min(2 * cores, total)))
        submitted = len(waiting)
        try:
            while waiting:
                result = waiting.popleft().result()
                if submitted < total:
                    waiting.append(pool.submit(work, submitted))
                    submitted += 1
                yield result
        finally:
            for future in waiting:
                future.cancel()


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
