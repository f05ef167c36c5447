"""From clusters to a model that treats them equally: training weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from faultlines import checks
from faultlines.errors import InputError, shorten
from faultlines.estimates.labels import MISSING
from faultlines.rows.attach import attach
from faultlines.rows.read import attribute_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faultlines.estimates.labels import Key
    from faultlines.results.clustering import Clustering

Frame = TypeVar("Frame")


def add_weights(c: Clustering, frame: Frame, column: str, label: str | None) -> Frame:
    """The frame with training weights as a new column; see `Clustering.weights`."""
    if label is not None and checks.column("label", label) in attribute_names(c.row_attributes):
        problem = "is one of the columns the groups are made of"
        raise InputError.conflict("label", problem, "Name the column of outcomes.", label)
    values = _equal_totals(c) if label is None else _independent_outcomes(c, label)
    weighted: Frame = attach(frame, c.row_attributes, values, column, label=label)
    return weighted


def _equal_totals(c: Clustering) -> Callable[[Sequence[Key], Sequence[float]], list[float]]:
    """Every cluster gets the same total weight, and rows an average of 1."""

    def weights(groups: Sequence[Key], rows: Sequence[float]) -> list[float]:
        cluster = c.cluster_of(groups)
        sizes = np.bincount(cluster, weights=np.asarray(rows), minlength=c.n_clusters + 1)
        present = np.count_nonzero(sizes[1:])
        share = np.divide(sizes[1:].sum() / max(present, 1), sizes, out=np.ones_like(sizes), where=sizes > 0)
        share[0] = 1.0
        return [float(weight) for weight in share[cluster]]

    return weights


def _independent_outcomes(c: Clustering, label: str) -> Callable[[Sequence[Key], Sequence[float]], list[float]]:
    """P(cluster) P(label) / P(cluster, label): outcomes are independent of clusters among weighted rows.

    Kamiran and Calders, Data preprocessing techniques for classification without discrimination (2012), equation 4.
    """

    def weights(groups: Sequence[Key], rows: Sequence[float]) -> list[float]:
        # The last part of every key is the outcome; a group comes once for each of its outcomes.
        first_place = {key: i for i, key in enumerate(dict.fromkeys(key[:-1] for key in groups))}
        cluster = c.cluster_of(list(first_place))[[first_place[key[:-1]] for key in groups]]
        outcomes = {part: i for i, part in enumerate(dict.fromkeys(key[-1] for key in groups if key[-1] != MISSING))}
        outcome = np.array([outcomes.get(key[-1], -1) for key in groups])
        used = (cluster > 0) & (outcome >= 0)
        if not used.any():
            problem = "no row of a cluster has an outcome"
            raise InputError.invalid_data("label", problem, "Name the column of outcomes.", label, form="clause")
        both = np.zeros((c.n_clusters + 1, len(outcomes)))
        np.add.at(both, (cluster[used], outcome[used]), np.asarray(rows)[used])
        by_cluster, by_outcome = both.sum(axis=1), both.sum(axis=0)
        lacking = np.argwhere((both == 0) & (by_cluster[:, None] > 0) & (by_outcome > 0))
        if lacking.size:
            number, missing = lacking[0].tolist()
            raise InputError.invalid_data(
                "label",
                f"cluster {number} has no row with the value {shorten(list(outcomes)[missing])},"
                " so that no weights make outcomes independent of clusters",
                "Name a column of outcomes that occur in every cluster, or merge rare ones.",
                label,
                form="clause",
            )
        weight = np.where(outcome < 0, np.nan, 1.0)
        cell = (cluster[used], outcome[used])
        weight[used] = by_cluster[cell[0]] * by_outcome[cell[1]] / (both.sum() * both[cell])
        return [float(value) for value in weight]

    return weights
