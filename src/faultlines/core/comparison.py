"""The protocol of a comparison: groups together with a test that says how different two clusters of them are.

Everything to the right (trees, guarantees, results) works with whatever offers this. `line` and `plane` are the
comparisons of estimates, `counts` those of counted events, `custom` is the user's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np

from faultlines.core import kernels
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import Key
from faultlines.types import BoolArray, FloatArray, IntArray

# Kernels on a line, and beyond it; the numbers are those of kernels.pyx.
NORMAL, WITHIN, WITHIN_RATES, BINOMIAL, POISSON = range(5)
PLANE, CORRELATED, WELCH = range(3)
AS_GOOD_AS_KNOWN = 1e12  # degrees of freedom
BLOCK = 2**17  # numbers in one block of draws: a megabyte, which stays in a core's own cache
MOST_DRAWS = 10_000


class Pair(NamedTuple):
    """Two clusters, by their numbers, and the log of the p of "they have the same effect"."""

    a: int
    b: int
    log_p: float


class Merges(NamedTuple):
    """All merges of a comparison, laid out so that every cluster is a run of neighboring places.

    Attributes:
        order: The group at each of the K places.
        gap_heights: For each of the K − 1 gaps between neighboring places, how different the two clusters are whose
            merge closes it; or an earlier merge, if that was higher.
        merge_rank: Which merge closes each gap, 0 for the first. None where the heights say so.
    """

    order: IntArray
    gap_heights: FloatArray
    merge_rank: IntArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class NullDraws:
    """Draws of groups with equal effects, rank block by block; every block has a random stream of its own.

    A draw of normal estimates has a direction and a length. Where `length_dof` is given, only directions are drawn: a
    block holds top merge over squared length, and the squared length follows χ² with that many degrees of freedom.
    Otherwise a block holds heights of top merges, and they are counted.

    Attributes:
        rows: Draws in a block.
        block: From the number of a block and how many draws are wanted of it to those draws.
        length_dof: Degrees of freedom of the squared length; 0 where draws are counted.
        own: The share of the data's own direction.
        tail_dof: The smallest degrees of freedom behind a standard error: beyond the draws, p falls like Student's t.
        uses_threads: Whether blocks can be rank side by side. A function of the user's holds Python's lock.
    """

    rows: int
    block: Callable[[int, int], FloatArray]
    length_dof: int = 0
    own: float = 0.0
    tail_dof: float = np.inf
    uses_threads: bool = True


class PooledEffects(NamedTuple):
    """Pooled effects of m clusters, on the scale that is compared on.

    Attributes:
        values: (m, d).
        errors: Their standard errors, (m, d).
        covariances: Their covariance matrices, (m, d, d).
        dof: Degrees of freedom behind the errors of each cluster, (m,); None where they are known.
        covariance_between: Covariance of the one effect of all clusters, (m, m), where groups share data.
    """

    values: FloatArray
    errors: FloatArray
    covariances: FloatArray
    dof: FloatArray | None
    covariance_between: FloatArray | None = None


class Comparison(Protocol):
    """Groups together with what makes clusters of them similar."""

    @property
    def keys(self) -> Sequence[Key]:
        """Keys of the groups."""

    @property
    def n(self) -> FloatArray | None:
        """Their sizes, where known."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """What the keys are values of."""

    @property
    def metric(self) -> str:
        """What is compared."""

    @property
    def estimates(self) -> Estimates | None:
        """Estimates for people to read, where there are some."""

    @property
    def tolerance(self) -> float:
        """How far apart effects may be and still count as similar, as people read it."""

    @property
    def height_name(self) -> str:
        """What the root of a merge's height says, for the axis of a tree."""

    @property
    def default_draws(self) -> int:
        """How many draws are worth their time."""

    @property
    def draws_are_counted(self) -> bool:
        """Whether p is a count of draws, so that no p below 1 / draws can be found."""

    @property
    def is_plain(self) -> bool:
        """Whether it is one effect with known standard errors and no tolerance, which many can be judged at once."""

    @property
    def can_scan(self) -> bool:
        """Whether a scan for groups apart from the rest goes with it: one effect, and no tolerance."""

    @property
    def data(self) -> Sequence[FloatArray | None]:
        """The numbers behind it, for a fingerprint."""

    def __len__(self) -> int: ...

    def merges(self) -> Merges:
        """Merge the most similar two clusters until one is left (the paper's Algorithms 1 and 2).

        Returns:
            The merges, laid out along a line.
        """

    def null_draws(self, top: float, draws: int, seed: int) -> NullDraws:
        """How groups with equal effects are drawn; `top` is the highest merge of the data.

        Args:
            top: The highest merge of the data.
            draws: How many.
            seed: Of the draws.

        Returns:
            What makes the draws.
        """

    def log_pointwise(self, heights: FloatArray) -> FloatArray:
        """Log p of merges of these heights, as if each had been chosen beforehand.

        Args:
            heights: Heights of merges.

        Returns:
            One log p for each.
        """

    def most_similar_pair(self, clusters: IntArray) -> Pair:
        """The pair of clusters with the largest p; `clusters` numbers the cluster of every group from 0.

        Args:
            clusters: The cluster of every group, from 0.

        Returns:
            The pair with its log p.
        """

    def split(self, shares: Sequence[float], rng: np.random.Generator) -> list[Self]:
        """Independent parts that hold the given shares of the information.

        Args:
            shares: The share of each part.
            rng: Random numbers.

        Returns:
            One comparison for each share.
        """

    def with_weights_of(self, other: Self) -> Self:
        """The same with the weights of an independent part of the data, where weights are estimates.

        Args:
            other: The independent part.

        Returns:
            The same effects with those weights.
        """

    def subset(self, keep: BoolArray) -> Self:
        """The same for some of the groups.

        Args:
            keep: K truth values.

        Returns:
            The comparison of those groups.
        """

    def pool(self, clusters: IntArray) -> PooledEffects | None:
        """Pooled effects of clusters, where there are estimates.

        Args:
            clusters: The cluster of every group, from 0.

        Returns:
            The pooled effects; None without estimates.
        """

    def refine(self, clusters: IntArray) -> IntArray:
        """Groups moved to the cluster of nearest effect until nothing moves, where there are estimates.

        Args:
            clusters: The cluster of every group, from 0.

        Returns:
            The cluster of every group, as many clusters as before.
        """


class EstimatesComparison:
    """What a comparison of estimates says about its groups."""

    __slots__ = ()
    estimates: Estimates

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def keys(self) -> Sequence[Key]:
        """Keys of the groups."""
        return self.estimates.keys

    @property
    def n(self) -> FloatArray | None:
        """Sizes of the groups."""
        return self.estimates.n

    @property
    def attributes(self) -> tuple[str, ...]:
        """What the keys are values of."""
        return self.estimates.attributes

    @property
    def metric(self) -> str:
        """What was measured."""
        return self.estimates.metric

    @property
    def height_name(self) -> str:
        """What the root of a merge's height says."""
        return "how different the two merged clusters are, in standard errors"

    @property
    def draws_are_counted(self) -> bool:
        """Never: lengths of draws are integrated, so p is right at any level."""
        return False

    @property
    def can_scan(self) -> bool:
        """Only one effect without a tolerance has an order to scan along."""
        return False

    @property
    def data(self) -> Sequence[FloatArray | None]:
        """The numbers behind it."""
        e = self.estimates
        # Effects in standard errors: engines that add up rows on several cores differ in digits that nobody can see.
        return (
            np.round(e.values / e.errors, 6),
            e.errors,
            e.effect_covariance if e.covariance is None else e.covariance,
            e.n,
            e.dof,
        )


def lay_out(merges: IntArray, heights: FloatArray) -> Merges:
    """Merges in scipy's numbering, laid out so that clusters are runs of places, heights not falling."""
    size = len(merges) + 1
    order, gaps = np.empty(size, dtype=np.int64), np.empty(size - 1, dtype=np.int64)
    kernels.lay_out_merges(merges, order, gaps)
    gap_heights, merge_rank = np.empty(size - 1), np.empty(size - 1, dtype=np.int64)
    gap_heights[gaps] = np.maximum.accumulate(heights) if size > 1 else heights
    merge_rank[gaps] = np.arange(size - 1)
    return Merges(order, gap_heights, merge_rank)


def ranks(values: FloatArray) -> IntArray:
    """The rank of every value, 0 for the least; equal ones in their order."""
    rank = np.empty(values.size, dtype=np.int64)
    rank[np.argsort(values, kind="stable")] = np.arange(values.size)
    return rank


def fraction_of(height: float, squared_length: float) -> float:
    """A height as a share of the squared length; 0 where all effects are equal."""
    return height / squared_length if squared_length > 0 else 0.0


def generator(seed: int, number: int) -> np.random.Generator:
    """The random stream of one block: numbers depend on the seed and the block, not on the number of cores."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=(number,))))


def find_largest_pair(value: Callable[[IntArray, IntArray], FloatArray], count: int) -> Pair:
    """The pair a < b of `count` clusters with the largest value, looking at some hundred thousand pairs at a time."""
    best = Pair(0, 1, -np.inf)
    rows = max(1, 200_000 // count)
    for start in range(0, count - 1, rows):
        a, b = np.triu_indices(min(rows, count - start), 1, count - start)
        a, b = a + start, b + start
        values = value(a, b)
        at = int(np.argmax(values))
        if start == 0 or values[at] > best.log_p:
            best = Pair(int(a[at]), int(b[at]), float(values[at]))
    return best
