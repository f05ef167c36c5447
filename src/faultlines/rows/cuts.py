"""Where to cut scores, so that a wanted share of the rows of every cluster reaches the cut.

Rows are counted at every score of every cluster where they are. What comes back is a line for each cluster: the two
neighbouring cuts between which the wanted share lies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.progress import working
from faultlines.rows.attach import fetch_groups, with_marks, with_values
from faultlines.rows.inputs import source
from faultlines.rows.keys import Keys
from faultlines.rows.places import placed
from faultlines.rows.ranks import check_values, counts_of, prepared
from faultlines.rows.read import wanted_columns
from faultlines.sources.fetch import fetch, floats
from faultlines.sources.frames import scan
from faultlines.sources.kept import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import narwhals as nw

    from faultlines.estimates.labels import Key
    from faultlines.rows.bins import Bins
    from faultlines.rows.places import IntArray
    from faultlines.rows.request import Request

_WHOLE = 0  # rows without a cluster; and all rows together, where they are cut as one


class Cut(NamedTuple):
    """One way to cut the scores of a cluster, and how many of its rows reach the cut."""

    at: float
    reaching: float


class Cuts(NamedTuple):
    """The two neighbouring cuts around a wanted share of the rows of one cluster.

    Attributes:
        rows: How many rows the share is of.
        before: How many of them reach the threshold that was used so far.
        lower: The cut that at least the wanted share reaches.
        upper: The next one, which fewer reach.
    """

    rows: float
    before: float
    lower: Cut
    upper: Cut


class Found(NamedTuple):
    """What was found in the rows of a frame.

    Attributes:
        clusters: The cuts of every cluster that has rows, by its number.
        together: Those of all rows as if they were one cluster, without regard to what cluster they are in.
        threshold: The threshold that was used so far, as it compares with these scores.
        unknown: How many rows have no cluster.
        missing: How many rows have no score, or no outcome where one is needed.
    """

    clusters: dict[int, Cuts]
    together: Cuts | None
    threshold: float
    unknown: int
    missing: int


def find_cuts(
    data: object,
    by: tuple[str | Bins, ...],
    request: Request,
    clusters: Callable[[Sequence[Key]], IntArray],
    *,
    outcome: float | None,
    threshold: float,
    share: float | None,
) -> Found:
    """Cut the scores of every cluster at a share of its rows.

    Args:
        data: A frame, or path, paths or glob of files.
        by: What the groups are.
        request: What names the columns: scores in the role ``s``, outcomes, where they are needed, in the role ``t``.
        clusters: From groups to the numbers of their clusters; 0 for none.
        outcome: The outcome of the rows the share is of; None for all rows.
        threshold: The threshold that was used so far.
        share: The wanted share. None: that of all rows which reach the threshold.

    Returns:
        Cuts by cluster; `together` is None where no row has the outcome.

    Raises:
        InputError: If the rows cannot be read or do not hold what is asked.
    """
    import narwhals as nw

    with scan(data, wanted_columns(by, [request], None)) as rows, working("reading rows"):
        keys = Keys(rows, by)
        frame, checks = prepared(rows, keys, request)
        marked = with_marks(frame, keys)
        groups = fetch_groups(marked, keys, counts_of(checks))
        check_values(rows, request, groups, checks)
        where = placed(keys, groups)
        whose = clusters(where.keys)
        used = marked.filter(nw.col("ok") if outcome is None else nw.col("ok") & (nw.col("t") == outcome))
        used = with_values(used, keys, groups, where, whose.astype(float), whole=True)
        # A single-precision 0.7 is a little less than 0.7 and meant to reach it, as in `Expressions.at_least`.
        single = keys.schema[source(rows, request.inputs["s"])] == nw.Float32
        edge = float(np.float32(threshold)) if single else float(threshold)
        count = nw.len().cast(nw.Float64).alias("n")
        with kept(used.group_by(nw.col("value").alias("cluster"), "s").agg(count)) as counted:
            found, together = _by_cluster(counted, edge, share)
    every, good = floats(groups["rows"]), floats(groups["ok"])
    unknown = every[whose[where.groups] == _WHOLE].sum()
    return Found(found, together, edge, int(unknown), int(every.sum() - good.sum()))


def _by_cluster(
    counted: nw.LazyFrame[Any], threshold: float, share: float | None
) -> tuple[dict[int, Cuts], Cuts | None]:
    """The cuts of every cluster and of all rows together, from the number of rows at every score."""
    import narwhals as nw

    all_scores = counted.group_by("s").agg(nw.col("n").sum()).with_columns(nw.lit(_WHOLE).alias("cluster"))
    reached = nw.when(nw.col("s") >= threshold).then(nw.col("n")).otherwise(nw.lit(0.0)).sum().alias("reached")
    totals = fetch(counted.select(nw.col("n").sum().alias("n"), reached))
    rows = float(np.nansum(floats(totals["n"])))
    if not rows:
        return {}, None
    wanted = float(floats(totals["reached"]).sum()) / rows if share is None else share
    known = counted.filter(nw.col("cluster") != _WHOLE)
    return _around(known, threshold, wanted), _around(all_scores, threshold, wanted)[_WHOLE]


def _around(counted: nw.LazyFrame[Any], threshold: float, share: float) -> dict[int, Cuts]:
    """By cluster, the scores on both sides of a share."""
    import narwhals as nw

    n, s = nw.col("n"), nw.col("s")
    steps = counted.with_columns(
        n.sum().over("cluster").alias("all"),
        n.cum_sum().over("cluster", order_by="s").alias("through"),
        s.shift(1).over("cluster", order_by="s").alias("below"),
    )
    steps = steps.with_columns((nw.col("all") - nw.col("through") + n).alias("reaching"))
    # The lowest score is reached by all, so that there always is one that enough rows reach.
    enough = nw.col("reaching") >= nw.col("all") * share
    steps = steps.with_columns(
        nw.when(s >= threshold).then(n).otherwise(nw.lit(0.0)).alias("before"),
        nw.when(enough).then(s).alias("low"),
        nw.when(enough).then(nw.col("below")).alias("lower"),
        nw.when(enough).then(nw.col("reaching")).alias("low_reaching"),
        nw.when(~enough).then(s).alias("high"),
        nw.when(~enough).then(nw.col("reaching")).alias("high_reaching"),
    )
    ends = {"n": "sum", "before": "sum", "low": "max", "lower": "max", "low_reaching": "min"}
    ends |= {"high": "min", "high_reaching": "max"}
    table = fetch(steps.group_by("cluster").agg(*(getattr(nw.col(name), end)() for name, end in ends.items())))
    columns = [floats(table["cluster"]), *(floats(table[name]) for name in ends)]
    return {int(cluster): _cuts(*numbers) for cluster, *numbers in zip(*(c.tolist() for c in columns), strict=True)}


def _cuts(
    rows: float, before: float, low: float, lower: float, low_reaching: float, high: float, high_reaching: float
) -> Cuts:
    """Cuts half-way between neighbouring scores, so that rounding of scores moves no row across them."""
    if np.isnan(high):  # every score is reached by enough: above the highest, none is
        return Cuts(rows, before, Cut(_between(lower, low), low_reaching), Cut(float(np.nextafter(low, np.inf)), 0.0))
    return Cuts(rows, before, Cut(_between(lower, low), low_reaching), Cut(_between(low, high), high_reaching))


def _between(below: float, score: float) -> float:
    """A cut that a score reaches and the next lower one, if there is one, does not."""
    middle = (below + score) / 2
    return middle if below < middle <= score else score
