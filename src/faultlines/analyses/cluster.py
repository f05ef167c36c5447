"""`fl.cluster`: from data to clusters, and `fl.holm` for several of them."""

from __future__ import annotations

from collections.abc import Sequence

from faultlines import checks
from faultlines.analyses.groups import Groups, groups_from, with_value_in_all_rows
from faultlines.errors import InputError
from faultlines.guarantees import resolve_guarantee
from faultlines.guarantees.base import Guarantee
from faultlines.metrics.base import Metric
from faultlines.results.clustering import Clustering, adjust_for_number
from faultlines.rows.keys import By


def cluster(
    data: object,
    by: By | None = None,
    metric: Metric | None = None,
    *,
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    margins: bool = True,
    tolerance: float = 0.0,
    refine: bool = True,
    min_size: float | None = None,
    seed: int = 0,
) -> Clustering:
    """Find the clusters of groups that differ.

    Args:
        data: Estimates of the groups; a `Similarity`; or rows, with `by` and `metric`: a pandas, Polars, PyArrow,
            DuckDB, Spark or Ibis frame, or the path, paths or glob of csv or parquet files.
        by: For rows: the column, or the columns, whose combinations are the groups; `fl.bins(...)` cuts a numeric one.
        metric: For rows: what to measure, such as ``fl.lift("revenue", variant="arm", control="A")``.
        alpha: Significance level: the accepted probability of reporting a difference where there is none.
        guarantee: The error control: ``"calibrated"`` (default), ``"holdout"``, ``"folds"`` or ``"bonferroni"`` (the
            paper's α/K²), or one of the values they stand for, such as ``fl.Calibrated(draws=50_000)``.
        margins: With two or more attributes, test every margin (by country; by country × device; …) and the cells with
            one p, and report clusters along the fewest attributes that are enough. False: compare the cells alone. It
            goes with the calibrated error control and no tolerance.
        tolerance: Take effects as similar that are at most so far apart, in the units of the metric: 0.01 asks for
            groups more than one point of a rate apart.
        refine: Move groups at a border to the cluster of nearest estimate; the number of clusters stays. Without
            it the clusters are exactly those of the paper's algorithm.
        min_size: Exclude groups smaller than this; they are listed in `excluded`. Of rows, by default what the metric
            needs in every arm: 10, for rates 5; of estimates, none by default, and sizes `n` are needed.
        seed: Of the random draws. The same seed gives the same result on any number of cores.

    Returns:
        The clusters, with verdict, p and everything that was excluded.

    Raises:
        InputError: If something given cannot be used; the message names the parameter, the value and the remedy.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> c.n_clusters, c.clusters[1].members
        (2, ('IN',))
    """
    return cluster_metrics(
        data,
        by,
        [] if metric is None else [metric],
        alpha=alpha,
        guarantee=guarantee,
        margins=margins,
        tolerance=tolerance,
        refine=refine,
        min_size=min_size,
        seed=seed,
    )[0]


def cluster_metrics(
    data: object,
    by: By | None,
    metrics: Sequence[Metric],
    *,
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    margins: bool = True,
    tolerance: float = 0.0,
    refine: bool = True,
    min_size: float | None = None,
    seed: int = 0,
) -> list[Clustering]:
    """The same for several metrics of the same rows, which are read once."""
    alpha, refine, seed = checks.alpha(alpha), checks.flag("refine", refine), checks.seed(seed)
    checks.flag("margins", margins)
    control = resolve_guarantee(guarantee)
    measured = groups_from(
        data, by, metrics, min_size=min_size, tolerance=tolerance, guarantee=control, seed=seed, moderated=True
    )
    if metrics:
        measured = [
            with_value_in_all_rows(groups, data, metric) for groups, metric in zip(measured, metrics, strict=True)
        ]
    return [_cluster_groups(groups, control, alpha, refine, seed, margins=margins) for groups in measured]


def _cluster_groups(
    groups: Groups, guarantee: Guarantee, alpha: float, refine: bool, seed: int, *, margins: bool
) -> Clustering:
    guarantee.check(alpha, groups.comparison)
    judged = guarantee.find_path(groups.comparison, seed, refine=refine, parts=groups.parts, margins=margins)
    reported = groups.reported(judged)
    return Clustering.of(
        judged, guarantee, alpha, refine, reported.excluded, reported.dropped, reported.by, reported.readout
    )


def holm(results: Sequence[Clustering], alpha: float = 0.05) -> list[Clustering]:
    """Correct several results for their number: the probability of any false positive is α (Holm's step-down).

    Their own p stay as they are; `pvalue_adj` is adjusted, and below α where clusters differ. Intervals keep the level
    1 − α.

    Args:
        results: Results of `fl.cluster`.
        alpha: The accepted probability of any false positive.

    Returns:
        The same results with adjusted p, each with the clusters that are reported at α.

    Raises:
        InputError: If `alpha` does not lie between 0 and 1.

    Example:
        >>> import faultlines as fl
        >>> first, second = fl.simulate.planted([0, 4], [5, 5]).estimates, fl.simulate.null(10).estimates
        >>> [c.n_clusters for c in fl.holm([fl.cluster(first), fl.cluster(second)], 0.05)]
        [2, 1]
    """
    if not isinstance(results, list | tuple) or not results or not all(isinstance(c, Clustering) for c in results):
        raise InputError.wrong_type("results", "is not a list of results", "Give what fl.cluster returns.", results)
    return adjust_for_number(results, checks.alpha(alpha), "holm")
