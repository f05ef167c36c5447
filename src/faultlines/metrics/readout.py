"""The moments behind estimates: from them any groups can be read as one, as plain metrics of their rows would."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from faultlines.estimates.reasons import RowWarning
from faultlines.metrics.base import Measured, Metric
from faultlines.metrics.moments import OwnCounts, OwnNoise, own_noise
from faultlines.rows.request import Capped, MissingRows, Moments
from faultlines.types import FloatArray, IntArray

ALARM = 1e-3  # p of a sample ratio below which every result warns: platforms test at 0.01 to 0.0005, at every look
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """The test of the arms' shares: one p over all margins, and the worst deviation.

    Attributes:
        log_pvalue: Log p of "all arms have the shares that are expected, in every group".
        where: Attribute and level of the worst deviation, in pairs; empty for all units together.
        arm: The arm that deviates most there.
        share: Its share there.
        expected: The share it should have.
        planned: Whether the expected share was given; else it is that of all other groups.
        n: Units there, in all arms.
        unit: What was counted.
        arms: The arms that were compared, the control first.
        counts: Units of each of them in all groups.
        shares: Their planned shares; None where none were given.
        counts_there: Units of each of them where the worst deviation is.
    """

    log_pvalue: float
    where: tuple[tuple[str, Hashable], ...]
    arm: Hashable
    share: float
    expected: float
    planned: bool
    n: float
    unit: str
    arms: tuple[Hashable, ...]
    counts: tuple[float, ...]
    shares: tuple[float, ...] | None = None
    counts_there: tuple[float, ...] = ()

    @property
    def pvalue(self) -> float:
        """The p itself."""
        return float(max(np.exp(self.log_pvalue), _TINY))

    @property
    def is_mismatch(self) -> bool:
        """Whether p is so small that every result warns of it."""
        return bool(self.log_pvalue < np.log(ALARM))

    def to_dict(self) -> dict[str, Any]:
        """The test as plain data."""
        return {
            "pvalue": self.pvalue,
            "mismatch": self.is_mismatch,
            "where": {attribute: str(level) for attribute, level in self.where},
            "arm": str(self.arm),
            "share": self.share,
            "expected": self.expected,
            "planned": self.planned,
            "n": self.n,
            "unit": self.unit,
            "arms": {str(arm): count for arm, count in zip(self.arms, self.counts, strict=True)},
            "arms_there": {str(arm): count for arm, count in zip(self.arms, self.counts_there, strict=True)},
        }


@dataclass(frozen=True, eq=False)
class Readout:
    """What was measured in the rows of each group.

    Attributes:
        metric: What was measured.
        moments: Moments of the groups that are compared, in their order.
        by_arm: Plain value of every arm, (K, arms); None where nothing is compared.
        warnings: What a reader must know about these rows; a sample ratio mismatch stands first.
        mass: What each group weighs in the value of all rows together, (K,) or (K, d); None: its size.
        missing: How many rows of every group, excluded ones too, lack a value; None where rows were not counted.
        capped: Where the largest values were cut, and how many of every group and arm; None where none were.
        sample_ratio: The test of the arms' shares; None where there are no arms.
        distinct: Rows (units) behind all groups, each counted once; None where no groups share any.
        distinct_by_arm: Units of every arm behind all groups, each counted once, (A,); None where none are shared.
        arms: The arms that were compared, the control first; none where nothing is.
        treatment: Which of several treatments each group has, from 0 on, (K,); None where there is one.
        cell: With several treatments, which group of the rows each belongs to, (K,): one control for each.
        common: Units that pairs of groups have in common, (K, K); None where units are in one group each.
        in_all_rows: Each effect in all rows at once, (d,), where that is not the mean of the groups' effects: an area
            under the curve compares rows of different groups, too. None where it is the mean, or was not measured.
    """

    metric: Metric
    moments: Moments
    by_arm: FloatArray | None
    warnings: tuple[RowWarning | SampleRatio, ...]
    mass: FloatArray | None = None
    missing: MissingRows | None = None
    capped: Capped | None = None
    sample_ratio: SampleRatio | None = None
    distinct: float | None = None
    distinct_by_arm: FloatArray | None = None
    arms: tuple[Hashable, ...] = ()
    treatment: IntArray | None = None
    cell: IntArray | None = None
    common: FloatArray | None = None
    in_all_rows: FloatArray | None = None

    @property
    def arm_sizes(self) -> FloatArray | None:
        """Rows (units) of every arm, (K, arms); None where nothing is compared."""
        return self.moments.n[:, :, 0] if self.metric.arms else None

    def cluster_sizes(self, clusters: IntArray, count: int) -> FloatArray | None:
        """Rows (units) of every cluster, each counted once; None where that is the sum, or cannot be known.

        A control that several treatments share counts once. Of units in several groups it is known how many each pair
        has in common, and how many there are in all: clusters are counted where no unit is in three groups.

        Args:
            clusters: The cluster of each group, from 0 on.
            count: How many there are.
        """
        if self.distinct is None:
            return None
        if count == 1:
            return np.array([self.distinct])
        n = self.moments.n[:, :, 0]
        if self.common is not None:
            in_pairs = (self.common.sum() - np.trace(self.common)) / 2
            if self.treatment is not None or not np.isclose(n.sum() - in_pairs, self.distinct, rtol=1e-9):
                return None
            inside = np.where(clusters[:, None] == clusters, self.common, 0.0)
            return np.asarray(
                np.bincount(clusters, n.sum(axis=1) - (inside.sum(axis=1) - np.diagonal(inside)) / 2, count)
            )
        if self.cell is None:
            return None
        first = np.unique(np.stack([clusters, self.cell]), axis=1, return_index=True)[1]
        return np.asarray(np.bincount(clusters, n[:, 1], count) + np.bincount(clusters[first], n[first, 0], count))

    def own_noise(self) -> OwnNoise | OwnCounts | None:
        """The noise of each estimate by its own rows, where its scale has no law of it."""
        metric = self.metric
        if metric.parts or metric.ranking is not None or metric.resampling is not None:
            return None
        return own_noise(metric.estimate, self.moments)

    def subset(self, keep: npt.NDArray[np.bool_]) -> Readout:
        """The same for some of the groups."""
        places = np.flatnonzero(keep)
        by_arm, mass = (None if array is None else array[places] for array in (self.by_arm, self.mass))
        capped = None if self.capped is None else self.capped._replace(above=self.capped.above[places])
        treatment, cell = (None if part is None else part[places] for part in (self.treatment, self.cell))
        common = None if self.common is None else self.common[np.ix_(places, places)]
        return replace(
            self,
            moments=self.moments.of_groups(places),
            by_arm=by_arm,
            mass=mass,
            capped=capped,
            treatment=treatment,
            cell=cell,
            common=common,
            distinct=self.distinct if places.size == len(self.moments.n) else None,
            distinct_by_arm=self.distinct_by_arm if places.size == len(self.moments.n) else None,
        )

    def together(self, clusters: IntArray, count: int) -> Measured | None:
        """What the metric is in the rows of each cluster, as if it were one group; None where there is no such sum.

        Args:
            clusters: The cluster of each group, from 0 on.
            count: How many there are.
        """
        if self.treatment is not None:
            return None  # a control that several groups have in common would count several times
        return self._add_up(clusters, count)

    def by_treatment(self) -> Measured | None:
        """What the metric is in the rows of all groups, once for each treatment; None where there is no such sum."""
        of_groups = np.zeros(len(self.moments.n), dtype=np.int64) if self.treatment is None else self.treatment
        return self._add_up(of_groups, len(self.arms) - 1)

    def _add_up(self, clusters: IntArray, count: int) -> Measured | None:
        """The metric in the rows of each cluster; None where groups share units, which would count several times."""
        metric = self.metric
        if not metric.adds_up or metric.overlap != "error":
            return None
        moments = self.moments
        for centre in dict.fromkeys(centre for _, _, centre in metric.products):
            products = [(product, weight) for product, weight, about in metric.products if about == centre]
            moments = _recentred(moments, products, centre)
        return metric.measured(sum_moments(moments._replace(skewness=None, kurtosis=None), clusters, count))


def _recentred(m: Moments, products: Sequence[tuple[int, int]], centre: int) -> Moments:
    """The same where all w(x − c) are taken about one c for all groups, and not about the mean of each."""
    with np.errstate(all="ignore"):
        size = np.nan_to_num(m.n[..., centre])
        common = float(np.sum(size * np.nan_to_num(m.mean[..., centre])) / max(np.sum(size), 1.0))
        away = m.mean[..., centre] - common
        mean, cov = m.mean.copy(), m.cov.copy()
        for product, weight in products:
            mean[..., product] += away * mean[..., weight]
            # Cov(w(x − c) + a w, v) = Cov(w(x − c), v) + a Cov(w, v), first for one side, then for the other.
            cov[..., product, :] += away[..., None] * cov[..., weight, :]
            cov[..., :, product] += away[..., None] * cov[..., :, weight]
        mean[..., centre] = np.where(np.isnan(away), np.nan, common)
    return m._replace(mean=mean, cov=cov)


def sum_moments(m: Moments, clusters: IntArray, count: int) -> Moments:
    """Moments of clusters from those of their groups, exactly, with their shape where that of the groups is known."""
    n = np.zeros((count, *m.n.shape[1:]))
    mean, cov = np.zeros(n.shape), np.zeros((*n.shape, n.shape[-1]))
    means = np.where(m.n > 0, m.mean, 0.0)
    np.add.at(n, clusters, m.n)
    np.add.at(mean, clusters, m.n * means)
    with np.errstate(all="ignore"):
        mean = mean / n
        away = np.where(m.n > 0, means - mean[clusters], 0.0)
        rows = np.sqrt(m.n[..., :, None] * m.n[..., None, :])  # the same for both variables wherever it is used
        inner = np.where(rows > 1, (rows - 1) * m.cov, 0.0)
        np.add.at(cov, clusters, inner + rows * away[..., :, None] * away[..., None, :])
        cov = cov / (np.sqrt(n[..., :, None] * n[..., None, :]) - 1)
    pooled = Moments(n, mean, cov)
    if m.skewness is None or m.kurtosis is None:
        return pooled
    return _sum_shapes(pooled, m, (m.skewness, m.kurtosis), away, clusters)


def _sum_shapes(
    pooled: Moments, m: Moments, shape: tuple[FloatArray, FloatArray], away: FloatArray, clusters: IntArray
) -> Moments:
    """The same with skewness and kurtosis, from third and fourth moments about the common means."""
    third, fourth = np.zeros(pooled.n.shape), np.zeros(pooled.n.shape)
    with np.errstate(all="ignore"):
        variance = np.diagonal(m.cov, axis1=-2, axis2=-1)
        square = np.where(m.n > 1, variance * (m.n - 1) / m.n, 0.0)
        known = square > 0
        cube = np.where(known, np.nan_to_num(shape[0]) * square**1.5, 0.0)
        power = np.where(known, np.nan_to_num(shape[1]) * square**2, 0.0)
        np.add.at(third, clusters, m.n * (cube + 3 * away * square + away**3))
        np.add.at(fourth, clusters, m.n * (power + 4 * away * cube + 6 * away**2 * square + away**4))
        spread = np.diagonal(pooled.cov, axis1=-2, axis2=-1) * (pooled.n - 1) / pooled.n
        return pooled._replace(skewness=third / pooled.n / spread**1.5, kurtosis=fourth / pooled.n / spread**2)
