"""The paper's A/A study as a tool: does the promise hold on a user's own rows? Labels are shuffled, claims counted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from faultlines import checks
from faultlines.comparison.choose import comparison_of
from faultlines.errors import InputError, NoGroupsError, shorten
from faultlines.guarantees.choose import guarantee_of
from faultlines.many import judged_all
from faultlines.metrics.base import Metric
from faultlines.metrics.measure import measure, measurements
from faultlines.progress import progress
from faultlines.result.finding import is_rows
from faultlines.result.selfcheck import SelfCheck
from faultlines.rows.read import checked_by
from faultlines.rows.request import Grouped
from faultlines.rows.shuffled import Shuffles, shuffled
from faultlines.tree.path import clusters_at

if TYPE_CHECKING:
    from faultlines.comparison.base import Comparison
    from faultlines.guarantees.base import Guarantee
    from faultlines.result.finding import By

_MOST_RUNS = 100_000


def self_check(
    data: object,
    by: By,
    metric: Metric,
    *,
    runs: int = 200,
    arms: bool = False,
    unit: str | None = None,
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    tolerance: float = 0.0,
    min_size: float | None = None,
    seed: int = 0,
) -> SelfCheck:
    """How often would clusters be claimed in these very rows if nothing differed? It should be at most α.

    Labels of groups (or arms) are given to the units anew by chance, many times over, inside the engine that holds the
    rows; sizes of groups and shares of arms stay about as they are, and so does everything else: skewed values, rare
    events, weights, ties. Whatever is claimed then is a false claim. The rows are read twice, whatever the number of
    shuffles.

    Shuffled groups are all of one kind. Where spread differs from group to group, shuffling the groups does not show
    it; shuffling the arms leaves groups as they are.

    Args:
        data: Rows, as for `fl.cluster`. Estimates and tables of aggregates have no labels that could be shuffled.
        by: As for `fl.cluster`.
        metric: As for `fl.cluster`.
        runs: How many times labels are shuffled.
        arms: Shuffle control and treatment within the groups, instead of the groups: nothing has an effect then.
        unit: The column whose rows stay together. Default: the unit of the metric; without one every row is shuffled on
            its own, by its place: engines whose rows have no order (Spark, Ibis) may shuffle otherwise each time.
        alpha: As for `fl.cluster`.
        guarantee: As for `fl.cluster`. Those that split rows by unit are refused; without a unit they split estimates.
        tolerance: As for `fl.cluster`.
        min_size: As for `fl.cluster`.
        seed: Of shuffles and draws.

    Returns:
        The share of false claims with its interval, and what that says about the promise.

    Raises:
        InputError: If something given cannot be used, or fewer than two groups can be compared.

    Example:
        >>> import duckdb, faultlines as fl
        >>> rows = duckdb.sql("SELECT i % 5 AS g, hash(i) % 2 AS x FROM range(2000) t(i)")
        >>> fl.self_check(rows, "g", fl.rate("x"), runs=40).holds
        True
    """
    alpha, seed, runs = checks.alpha(alpha), checks.seed(seed), checked_runs("runs", runs)
    arms, chosen = checks.flag("arms", arms), guarantee_of(guarantee)
    if not is_rows(data):
        problem = "has no rows whose labels could be shuffled"
        raise InputError(f"data={type(data).__name__}", problem, "Give the rows that the estimates come from.")
    together = kept_together(metric, chosen, arms=arms, unit=unit)
    real = measure(data, by, metric, min_size=min_size)
    if len(real.estimates) < 2:
        raise InputError(
            f"by={shorten(by)}", "only one group can be used, and nothing to compare it with", "Name finer groups."
        )
    chosen.check(alpha, comparison_of(real.estimates, tolerance))
    how = Shuffles(runs, arms, together if metric.unit is None else None, seed)
    comparisons = _shuffled(data, by, metric, how, min_size, tolerance)
    names = [f"shuffle {i}" for i in range(len(comparisons))]
    found = judged_all(names, comparisons, chosen, False, seed, "clustering shuffled groups")
    claims = sum(clusters_at(one.path, float(np.log(alpha))) > 1 for one in found)
    return SelfCheck(runs, claims, alpha, "arms" if arms else "groups", together, metric.name, chosen.name, seed)


def checked_runs(name: str, runs: int) -> int:
    """A number of shuffles."""
    problem = f"must be a whole number from 1 to {_MOST_RUNS:,}"
    return int(checks.number(name, runs, problem, f"Use {name}=200.", low=1, high=_MOST_RUNS, whole=True))


def kept_together(metric: Metric, guarantee: Guarantee, *, arms: bool, unit: str | None = None) -> str | None:
    """The column whose rows stay together; refuses what cannot be checked by shuffling."""
    if not isinstance(metric, Metric):
        raise InputError(
            f"metric={shorten(metric)}", "is not a metric", 'Use for example fl.rate("converted") or fl.lift(...).'
        )
    if metric.aggregated is not None:
        problem = "is measured in a table of aggregates, whose labels cannot be shuffled"
        raise InputError(f"metric {shorten(metric.name)}", problem, "Give the rows that were aggregated.")
    if metric.overlap != "error" or (metric.arms is not None and metric.arms.several):
        problem = "has groups that share data, whose labels cannot be shuffled one by one"
        raise InputError(f"metric {shorten(metric.name)}", problem, "Check one treatment, and units of one group.")
    if metric.resampling is not None:
        problem = "is resampled in every group, which is not repeated for every shuffle"
        raise InputError(f"metric {shorten(metric.name)}", problem, "Check a metric that is a mean of rows instead.")
    if arms and metric.arms is None:
        problem = f"but the metric {shorten(metric.name)} has no arms"
        raise InputError("arms=True", problem, "Leave it out: the groups are shuffled then.")
    if unit is not None:
        checks.column("unit", unit)
    if unit is not None and metric.unit is not None and unit != metric.unit:
        problem = f"but the metric has the unit {shorten(metric.unit)}"
        raise InputError(f"unit={shorten(unit)}", problem, "Leave it out.")
    if guarantee.shares(1) and (guarantee.unit or metric.unit):
        problem = "splits rows by unit, which is not done with shuffled rows"
        raise InputError(f"guarantee={guarantee.name!r}", problem, "Use guarantee='calibrated'.")
    return unit or metric.unit


def _shuffled(
    data: object, by: By, metric: Metric, how: Shuffles, min_size: float | None, tolerance: float
) -> list[Comparison]:
    """The groups of every shuffle that has some to compare, each measured on its own as the real ones are."""
    relabelled = metric
    if how.arms and metric.arms is not None:
        relabelled = replace(metric, arms=replace(metric.arms, control=0, treatment=1))
    least = metric.min_size if min_size is None else checks.size(min_size)
    made = []
    with (
        shuffled(data, checked_by(by), metric, relabelled, how) as several,
        progress("shuffling labels", how.runs) as advance,
    ):
        for moments in several:
            keys = [(i,) for i in range(len(moments.n))]
            try:
                found = measurements([Grouped(keys, moments, {})], ("group",), relabelled, least, ("group",))
                made.append(comparison_of(found[0].estimates, tolerance))
            except NoGroupsError:  # nothing is claimed of too few rows
                pass
            advance(1)
    return made
