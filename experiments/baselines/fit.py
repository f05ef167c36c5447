"""What every method makes of some estimates: the cluster of each group, and its effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    from faultlines.results import Clustering

MOST = 6  # clusters that a method which chooses their number may choose


class Fit(NamedTuple):
    """The cluster of each group, and its effect as the method sees it."""

    labels: IntArray
    effects: FloatArray

    @staticmethod
    def single(groups: int) -> Fit:
        """All groups in one cluster, before anything is known of them."""
        return Fit(np.ones(groups, dtype=np.int64), np.full(groups, np.nan))

    @property
    def n_clusters(self) -> int:
        """How many clusters have members."""
        return int(np.unique(self.labels).size)


def pooled(labels: npt.ArrayLike, theta: FloatArray, se: FloatArray) -> Fit:
    """Clusters numbered by rising precision-weighted mean, and that mean as the effect of each member."""
    _, which = np.unique(labels, return_inverse=True)
    weight = 1 / se**2
    mean = np.bincount(which, weight * theta) / np.bincount(which, weight)
    number = np.argsort(np.argsort(mean, kind="stable"), kind="stable") + 1
    return Fit(number[which].astype(np.int64), mean[which])


def ours(result: Clustering) -> Fit:
    """A result of the library in the form of the others."""
    return Fit(result.labels, np.array([result.clusters[i - 1].estimate for i in result.labels.tolist()]))


def believed(result: Clustering) -> Fit:
    """The same with the effect of each group that the result shows beside its clusters."""
    return Fit(result.labels, result.posterior.shrunken[:, 0]) if result.posterior is not None else ours(result)


def interleaved(labels: IntArray, theta: FloatArray) -> bool:
    """Whether some cluster, read along rising estimates, has members of another between its own."""
    along = labels[np.argsort(theta, kind="stable")]
    return bool(np.count_nonzero(np.diff(along)) + 1 > np.unique(labels).size)
