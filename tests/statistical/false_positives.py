"""How often a difference is reported in rows where nothing differs, many data sets in one query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import faultlines as fl
from faultlines.analyses.cluster import cluster
from faultlines.errors import NoGroupsError
from faultlines.metrics.measure import measurements
from faultlines.rows.read import read
from faultlines.rows.request import Grouped

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd


def sizes_of(rng: np.random.Generator, groups: int, typical: int, spread: float) -> Any:
    """Sizes of groups: all alike, or log-normal about the typical one."""
    return np.maximum((typical * rng.lognormal(0, spread, groups)).round(), 2).astype(int)


def false_positive_rate(
    metric: fl.Metric,
    rows_of: Callable[[np.random.Generator, int], pd.DataFrame],
    *,
    groups: int,
    typical: int,
    spread: float = 0.0,
    runs: int = 300,
    seed: int = 0,
) -> tuple[float, float]:
    """The share of data sets in which a difference is reported at α = 0.05, and the mean number of compared groups.

    Args:
        metric: What is measured.
        rows_of: So many rows of one population.
        groups: How many groups they fall into at random.
        typical: Rows of a typical group.
        spread: Of the logarithm of the sizes.
        runs: How many data sets.
        seed: Of everything random.
    """
    rng = np.random.default_rng(seed)
    sizes = [sizes_of(rng, groups, typical, spread) for _ in range(runs)]
    count = np.array([own.sum() for own in sizes])
    data = rows_of(rng, int(count.sum()))
    data["run"] = np.repeat(np.arange(runs), count)
    data["group"] = np.concatenate([np.repeat(np.arange(groups), own) for own in sizes])
    grouped = read(data, ("run", "group"), [metric], None).grouped[0][0]
    of_run = np.array([key[0] for key in grouped.keys])
    reported, compared = 0, 0
    for run in range(runs):
        places = np.flatnonzero(of_run == run)
        keys = [(i,) for i in range(places.size)]
        part = Grouped(keys, grouped.moments.of_groups(places), {})
        try:
            measured = measurements([part], ("group",), metric, metric.min_size, ("group",))[0]
        except NoGroupsError:  # nothing is reported
            continue
        result = cluster(measured.estimates, guarantee=fl.Calibrated(draws=199), seed=run)
        reported, compared = reported + result.rejected, compared + len(measured.estimates)
    return reported / runs, compared / runs
