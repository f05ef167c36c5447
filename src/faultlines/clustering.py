"""The straight line itself: estimates → tree → guarantee → clusters, and the result one looks at."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from scipy.special import ndtri, stdtrit

from faultlines import text
from faultlines.aggregate import Measurement, checked_size, measure
from faultlines.errors import InputError, shorten
from faultlines.estimates import IDENTITY, Estimates, Excluded, name_of
from faultlines.groups import Bins, attach, canonical
from faultlines.guarantees import Bonferroni, Calibrated, Guarantee, Judgement, guarantee_of, true_scales
from faultlines.hierarchy import Hierarchy, agglomerate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from faultlines.estimates import FloatArray, Label
    from faultlines.hierarchy import IntArray
    from faultlines.metrics import Metric

Rows = Literal["groups", "clusters"]
_LINE = 112  # characters in a line of text output
_ROWS = 40  # clusters in a table of text output


@dataclass(frozen=True, slots=True)
class Cluster:
    """Groups that may be taken as alike.

    Attributes:
        members: Labels of its groups, by rising estimate.
        estimate: Their precision-weighted mean.
        se: Its standard error; where `dof` is known, with allowance for weights that are estimated.
        ci: Interval at the level 1 − α. Descriptive: the same data chose the members, so two clusters' intervals are
            farther apart than fresh data would put them.
        n: Total size, when the sizes of the groups are known.
    """

    members: tuple[Label, ...]
    estimate: float
    se: float
    ci: tuple[float, float]
    n: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One partition on the way from a single cluster to K.

    Attributes:
        n_clusters: How many clusters it has.
        pvalue: The smallest α above which at least so many clusters are reported: the adjusted p of its faintest
            split. Zero for the single cluster, which needs no evidence.
    """

    n_clusters: int
    pvalue: float
    _of: Clustering = field(repr=False)
    _ranked: IntArray = field(repr=False)

    @property
    def labels(self) -> IntArray:
        """Cluster numbers of the groups in this partition."""
        is_open = np.zeros(self._ranked.size, dtype=bool)
        is_open[self._ranked[: self.n_clusters - 1]] = True
        return self._of._partition(is_open)[0]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Clustering:
    """The clusters that really differ, and how sure that is.

    Attributes:
        estimates: The groups that were clustered.
        hierarchy: Their tree of merges.
        judgement: The adjusted p of every merge.
        guarantee: What those p rest on.
        alpha: Level of significance: the chance of a false split that was accepted.
        refine: Whether border groups were moved to the cluster of nearest estimate.
        excluded: Groups left out, each with its reason.
        dropped: Reason → number of rows left out.
        by: What the groups are, for other rows.
        labels: Cluster number of each group, 1 … m from the lowest to the highest effect, in the order of `estimates`.
        clusters: The clusters, in that same order.
    """

    estimates: Estimates
    hierarchy: Hierarchy
    judgement: Judgement
    guarantee: Guarantee
    alpha: float
    refine: bool
    excluded: tuple[Excluded, ...]
    dropped: Mapping[str, int]
    by: tuple[str | Bins, ...]
    labels: IntArray
    clusters: tuple[Cluster, ...]

    @property
    def n_clusters(self) -> int:
        """How many clusters differ; 1 when no difference can be claimed."""
        return len(self.clusters)

    @property
    def rejected(self) -> bool:
        """Whether "all groups are alike" is rejected."""
        return self.n_clusters > 1

    @property
    def log_pvalue(self) -> float:
        """Natural logarithm of `pvalue`, right also where that is below the smallest double."""
        return float(self.judgement.log_pvalues.min(initial=0.0))

    @property
    def pvalue(self) -> float:
        """Adjusted p of "all groups are alike"; never zero."""
        return _probability(self.log_pvalue)

    def at(self, alpha: float) -> Clustering:
        """The clusters at another level of significance, without computing anything again: O(K)."""
        alpha = _checked_alpha(alpha)
        self.guarantee.check(alpha)
        labels, clusters = self._cut(alpha)
        return replace(self, alpha=alpha, labels=labels, clusters=clusters)

    def path(self) -> tuple[Level, ...]:
        """Every partition from one cluster to K, each with the p at which it appears."""
        log_p = self.judgement.log_pvalues
        # Equal p are told apart by height, so that every level is a partition of the tree.
        ranked = np.lexsort((-self.hierarchy.gap_heights, log_p))
        reached = [0.0, *(_probability(value) for value in np.maximum.accumulate(log_p[ranked]))]
        return tuple(Level(i + 1, p, self, ranked) for i, p in enumerate(reached))

    def _cut(self, alpha: float) -> tuple[IntArray, tuple[Cluster, ...]]:
        labels, starts = self._partition(self.judgement.log_pvalues < np.log(alpha))
        labels.setflags(write=False)
        return labels, _clusters(self.estimates, self.hierarchy.order, starts, alpha)

    def _partition(self, is_open: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[IntArray, IntArray]:
        starts = self.hierarchy.places(is_open)
        if self.refine:
            starts = refined(self.estimates, self.hierarchy.order, starts)
        return self.hierarchy.labels(starts), starts

    def assign(self, frame: Any, column: str = "cluster") -> Any:
        """The frame with the cluster of each row as a new column, in the frame's own type.

        Rows of groups that were left out, or that were not there before, have none. The order of the rows is kept where
        frames have one (pandas, Polars, PyArrow).
        """
        number = self._numbers()

        def clusters(groups: Sequence[str], _: Sequence[int]) -> list[float]:
            return [number.get(group, np.nan) for group in _known(groups, number)]

        return attach(frame, self.by, clusters, column, whole=True)

    def weights(self, frame: Any, column: str = "weight") -> Any:
        """The frame with training weights that even out the clusters as a new column.

        Every cluster gets the same total weight and the rows an average of 1: a row of a cluster with N_j of the N rows
        in m clusters weighs N/(m N_j). Rows without a cluster weigh 1.
        """
        number = self._numbers()

        def even(groups: Sequence[str], rows: Sequence[int]) -> list[float]:
            whose = np.array([number.get(group, 0) for group in _known(groups, number)])
            sizes = np.bincount(whose, weights=np.asarray(rows), minlength=self.n_clusters + 1)
            present = np.count_nonzero(sizes[1:])
            share = np.divide(sizes[1:].sum() / max(present, 1), sizes, out=np.ones_like(sizes), where=sizes > 0)
            share[0] = 1.0
            return [float(weight) for weight in share[whose]]

        return attach(frame, self.by, even, column, whole=False)

    def _numbers(self) -> dict[str, int]:
        """Cluster by group, as text that does not depend on how a frame holds its keys."""
        labels = (label if isinstance(label, tuple) else (label,) for label in self.estimates.labels)
        return dict(zip(map(canonical, labels), self.labels.tolist(), strict=True))

    # ------------------------------------------------------------------------------------------------------- output

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        by = " × ".join(self.estimates.attributes)
        groups = f"{text.count(len(self.estimates))} groups" + ("" if by == "group" else f" by {by}")
        what = "" if self.estimates.measure == "effect" else f" in {self.estimates.measure}"
        basis = f"p = {text.pvalue(self.log_pvalue)}, {self.guarantee.name}, α = {self.alpha:g}"
        if len(self.estimates) == 1:
            return f"There is only one group, so there is nothing to compare (p = 1, α = {self.alpha:g})."
        if self.rejected:
            return f"{self.n_clusters} clusters of {groups} differ{what} ({basis})."
        return f"No difference{what} between {groups} can be claimed ({basis})."

    def summary(self) -> dict[str, Any]:
        """The whole result as plain data; JSON, text, Markdown and HTML are made from it."""
        log_p = self.log_pvalue
        levels = [
            {"n_clusters": level.n_clusters, "pvalue": level.pvalue}
            for level in self.path()
            if level.pvalue < 1 or level.n_clusters == 1
        ]
        return {
            "faultlines": version("faultlines"),
            "verdict": self.verdict,
            "rejected": self.rejected,
            "pvalue": _probability(log_p),
            "log10_pvalue": log_p / np.log(10),
            "alpha": self.alpha,
            "n_clusters": self.n_clusters,
            "n_groups": len(self.estimates),
            "measure": self.estimates.measure,
            "scale": self.estimates.scale.name,
            "guarantee": {"name": self.guarantee.name, **self.judgement.facts},
            "refine": self.refine,
            "clusters": [
                {**row, "members": [name_of(label) for label in cluster.members]}
                for row, cluster in zip(self.to_dicts("clusters"), self.clusters, strict=True)
            ],
            "groups": self.to_dicts("groups"),
            "excluded": [{"group": name_of(left.label), "reason": left.reason} for left in self.excluded],
            "dropped": dict(self.dropped),
            "path": levels,
        }

    def to_dicts(self, rows: Rows = "groups") -> list[dict[str, Any]]:
        """One dictionary a group (or a cluster). Groups left out have no cluster, and their reason beside them."""
        columns = self._columns(rows)
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def to_pandas(self, rows: Rows = "groups") -> pd.DataFrame:
        """One row a group (or a cluster) as a pandas frame."""
        frame: pd.DataFrame = _library("pandas").DataFrame(self._columns(rows))
        if rows == "groups":
            frame["cluster"] = frame["cluster"].astype("Int64")
        return frame

    def to_polars(self, rows: Rows = "groups") -> pl.DataFrame:
        """One row a group (or a cluster) as a Polars frame."""
        frame: pl.DataFrame = _library("polars").DataFrame(self._columns(rows), strict=False)
        return frame

    def to_arrow(self, rows: Rows = "groups") -> pa.Table:
        """One row a group (or a cluster) as an Arrow table."""
        made: pa.Table = _library("pyarrow").table(self._columns(rows))
        return made

    def to_json(self, *, indent: int | None = 2) -> str:
        """The whole result: verdict, clusters, groups, what was left out, the path over α, how it was computed."""
        return json.dumps(self.summary(), indent=indent, ensure_ascii=False, allow_nan=False, default=str)

    def to_markdown(self) -> str:
        """Verdict, table of clusters and what was left out, as Markdown."""
        return "\n\n".join([self.verdict, text.markdown_table(*self._table(whole=True)), *self._notes()]) + "\n"

    def __str__(self) -> str:
        return "\n\n".join([self.verdict, text.table(*self._table()), *self._notes()])

    def __repr__(self) -> str:
        p = text.pvalue(self.log_pvalue)
        return f"<Clustering: {self.n_clusters} of {len(self.estimates)} groups, p = {p}, α = {self.alpha:g}>"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return f"<p><strong>{html.escape(self.verdict)}</strong></p>{text.html_table(*self._table())}{notes}"

    def _columns(self, rows: Rows) -> dict[str, list[Any]]:
        if rows == "clusters":
            return {
                "cluster": list(range(1, self.n_clusters + 1)),
                "estimate": [c.estimate for c in self.clusters],
                "se": [c.se for c in self.clusters],
                "ci_lower": [c.ci[0] for c in self.clusters],
                "ci_upper": [c.ci[1] for c in self.clusters],
                "groups": [len(c.members) for c in self.clusters],
                "n": [_whole(c.n) for c in self.clusters],
            }
        if rows != "groups":
            raise InputError(f"rows={rows!r}", "is not known", "Use 'groups' or 'clusters'.")
        kept, out = self.estimates, self.excluded
        blank: list[Any] = [None] * len(out)
        named: dict[str, list[Any]] = {}
        for i, attribute in enumerate(kept.attributes):
            column = attribute
            while column in _GROUP_COLUMNS or column in named:
                column += "_"
            labels = [*kept.labels, *(excluded.label for excluded in out)]
            named[column] = _one_type([label[i] if isinstance(label, tuple) else label for label in labels])
        sizes = kept.n.tolist() if kept.n is not None else [None] * len(kept)
        return {
            **named,
            "estimate": kept.natural.tolist() + [excluded.estimate for excluded in out],
            "se": (kept.se * kept.scale.slope(kept.theta)).tolist() + [excluded.se for excluded in out],
            "n": [_whole(n) for n in [*sizes, *(excluded.n for excluded in out)]],
            "cluster": self.labels.tolist() + blank,
            "cluster_estimate": [self.clusters[i - 1].estimate for i in self.labels.tolist()] + blank,
            "excluded": [None] * len(kept) + [excluded.reason for excluded in out],
        }

    def _table(self, *, whole: bool = False) -> tuple[list[str], list[list[str]], set[int]]:
        """Header, rows and right-aligned columns of the table of clusters; `whole` is without bars but all members."""
        ends = [end for cluster in self.clusters for end in cluster.ci]
        scale = (min(ends), max(ends))
        signed = self.estimates.scale is IDENTITY
        number = text.decimals([cluster.se for cluster in self.clusters if cluster.se > 0] or [1.0], ends, signed)
        sized = self.estimates.n is not None
        header = ["cluster", "effect", f"{100 * (1 - self.alpha):.12g}% interval"]
        header += [*([] if whole else [""]), "groups", *(["n"] if sized else [])]
        rows = []
        shown = list(enumerate(self.clusters))
        if len(shown) > _ROWS and not whole:
            shown = [*shown[: _ROWS // 2], *shown[-_ROWS // 2 :]]
        for i, cluster in shown:
            low, high = cluster.ci
            row = [str(i + 1), number(cluster.estimate), f"{number(low)} … {number(high)}"]
            row += [] if whole else [text.bar(low, cluster.estimate, high, scale)]
            row += [text.count(len(cluster.members)), *([text.count(cluster.n or 0)] if sized else [])]
            rows.append(row)
        used = sum(max(len(row[i]) for row in [header, *rows]) + 2 for i in range(len(header)))
        for row, (_, cluster) in zip(rows, shown, strict=True):
            row.append(text.members(cluster.members, name_of, 10**9 if whole else max(_LINE - used, 30)))
        if len(rows) < self.n_clusters:
            rows.insert(_ROWS // 2, ["…", *[""] * (len(header) - 1), f"{self.n_clusters - len(rows):,} more clusters"])
        right = set(range(len(header))) - (set() if whole else {3})
        return [*header, "members"], rows, right

    def _notes(self) -> list[str]:
        """What a reader must know beside the table."""
        notes = []
        facts = self.judgement.facts
        if isinstance(self.guarantee, Calibrated) and facts["draws"]:
            notes.append(f"Calibrated on {facts['draws']:,} draws, seed {facts['seed']}.")
        if isinstance(self.guarantee, Bonferroni) and len(self.estimates) > 20:  # measured from 21 groups on
            notes.append("The α/K² rule claims clusters in pure noise far more often than α; see docs/guarantees.md.")
        if isinstance(self.guarantee, Bonferroni) and self.estimates.dof is not None:
            notes.append("The α/K² rule takes standard errors as known; dof is not used.")
        if self.rejected:
            notes.append("Intervals are descriptive: the same data chose the clusters.")
        notes += [f"Left out: {count:,} {reason}." for reason, count in self.dropped.items()]
        if self.excluded:
            reasons: dict[str, list[Label]] = {}
            for left in self.excluded:
                reasons.setdefault(left.reason, []).append(left.label)
            notes += [
                f"Left out, {reason}: {text.members(labels, name_of, _LINE // 2)} ({text.count(len(labels))})."
                for reason, labels in reasons.items()
            ]
        return ["\n".join(notes)] if notes else []


_GROUP_COLUMNS = {"estimate", "se", "n", "cluster", "cluster_estimate", "excluded"}


def cluster(
    data: object,
    by: str | Bins | Sequence[str | Bins] | None = None,
    metric: Metric | None = None,
    *,
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    refine: bool = True,
    min_size: float | None = None,
    seed: int = 0,
) -> Clustering:
    """Find the clusters of groups that really differ.

    Args:
        data: Estimates of the groups; or rows, with `by` and `metric`: a pandas, Polars, PyArrow, DuckDB, Spark or Ibis
            frame, or the path, paths or glob of csv or parquet files.
        by: For rows: the column, or the columns, whose combinations are the groups; `fl.bins(...)` cuts a numeric one.
        metric: For rows: what to measure, such as ``fl.lift("revenue", variant="arm", control="A")``.
        alpha: The accepted chance of claiming a difference where there is none.
        guarantee: ``"calibrated"`` (default), ``"bonferroni"`` (the paper's α/K²), or one of the values they stand for,
            such as ``fl.Calibrated(draws=50_000)``.
        refine: Move groups at a border to the cluster of nearest estimate; the number of clusters stays. Without
            it the clusters are exactly those of the paper's algorithm.
        min_size: Leave out groups smaller than this; they are listed in `excluded`. Of rows, 20 in every arm by
            default; of estimates, none by default, and sizes `n` are needed.
        seed: Of the random draws. The same seed gives the same result on any number of cores.
    """
    alpha = _checked_alpha(alpha)
    chosen = guarantee_of(guarantee)
    chosen.check(alpha)
    if not isinstance(refine, bool | np.bool_):
        raise InputError(f"refine={shorten(refine)}", "must be true or false", "Use refine=True or refine=False.")
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed={shorten(seed)}", "must be a whole number, 0 or more", "Use for example seed=0.")
    estimates, excluded, dropped, groups = _measured(data, by, metric, min_size)
    hierarchy = agglomerate(estimates)
    judgement = chosen.judge(estimates, hierarchy, int(seed))
    blank = Clustering(
        estimates,
        hierarchy,
        judgement,
        chosen,
        alpha,
        bool(refine),
        excluded,
        dropped,
        groups,
        np.empty(0, dtype=np.int64),
        (),
    )
    return blank.at(alpha)


def holm(found: Sequence[Clustering], alpha: float) -> list[Clustering]:
    """Cut several results so that the chance of any false claim among them is α (Holm's step-down over their p).

    The smallest p is held against α/m, the next against α/(m − 1), and so on; once one fails, all after it fail too.
    """
    alpha = _checked_alpha(alpha)
    ranked = sorted(range(len(found)), key=lambda i: found[i].log_pvalue)
    out = list(found)
    level, standing = 0.0, True
    for rank, i in enumerate(ranked):
        level = alpha / (len(found) - rank) if standing else level
        out[i] = found[i].at(level)
        standing = standing and out[i].rejected
    return out


def _measured(
    data: object, by: str | Bins | Sequence[str | Bins] | None, metric: Metric | None, min_size: float | None
) -> Measurement:
    """Estimates as given, or measured in rows; with what was left out."""
    if isinstance(data, Estimates):
        if by is not None or metric is not None:
            raise InputError("by, metric", "go with rows, but estimates were given", "Leave them out.")
        return Measurement(*_large_enough(data, 0 if min_size is None else min_size), {}, data.attributes)
    if by is None or metric is None:
        raise InputError(
            f"data={type(data).__name__}",
            "rows need by= and metric=",
            "Name them, or make estimates with fl.Estimates(theta, se) or fl.Estimates.from_frame.",
        )
    return measure(data, by, metric, min_size=min_size)


def refined(estimates: Estimates, order: IntArray, starts: IntArray) -> IntArray:
    """Move each group to the cluster of nearest estimate, recompute the estimates, repeat until nothing moves.

    Clusters stay runs of neighbouring places, so only their starts move. Each round brings the groups' weighted squared
    distance to their clusters down, so it ends; a round that would empty a cluster is not taken.
    """
    if starts.size < 2:
        return starts
    _, theta, weight = _along(estimates, order)
    for _ in range(theta.size):
        mass = np.add.reduceat(weight, starts)
        means = np.add.reduceat(weight * theta, starts) / mass
        moved = np.concatenate(([0], np.searchsorted(theta, (means[1:] + means[:-1]) / 2)))
        if np.array_equal(moved, starts) or np.any(np.diff(moved, append=theta.size) <= 0):
            break
        starts = moved
    return starts


def _along(estimates: Estimates, order: IntArray) -> tuple[float, FloatArray, FloatArray]:
    """A middle estimate; the estimates along the line less that one, for their digits; weights of at most 1."""
    theta = estimates.theta[order]
    middle = float(theta[theta.size // 2])
    return middle, theta - middle, (estimates.se.min() / estimates.se[order]) ** 2


def _clusters(estimates: Estimates, order: IntArray, starts: IntArray, alpha: float) -> tuple[Cluster, ...]:
    middle, theta, weight = _along(estimates, order)
    mass = np.add.reduceat(weight, starts)
    means = middle + np.add.reduceat(weight * theta, starts) / mass
    errors = estimates.se.min() / np.sqrt(mass)
    reach = np.full(starts.size, -float(ndtri(alpha / 2)))
    if estimates.dof is not None:
        # Groups whose variance came out too small weigh too much, and 1/√Σw would take their word for it: the variance
        # of the weighted mean is that of its terms with the scales behind the estimates. Then Welch–Satterthwaite.
        spread = np.add.reduceat((weight * true_scales(estimates)[order]) ** 2, starts)
        errors = np.maximum(errors, np.sqrt(spread) / mass)
        freedom = mass**2 / np.add.reduceat(weight**2 / np.minimum(estimates.dof[order], 1e12), starts)
        reach = -np.asarray(stdtrit(freedom, alpha / 2), dtype=np.float64)
    scale = estimates.scale
    natural, lower, upper, natural_errors = means, means - reach * errors, means + reach * errors, errors
    if scale is not IDENTITY:  # compared on one scale, reported on another
        trials = scale.mass(estimates.se)[order]
        natural = np.add.reduceat(trials * estimates.natural[order], starts) / np.add.reduceat(trials, starts)
        lower, upper, natural_errors = scale.natural(lower), scale.natural(upper), errors * scale.slope(means)
    sizes = None if estimates.n is None else np.add.reduceat(estimates.n[order], starts)
    labels, ordered = estimates.labels, order.tolist()
    ends = [*starts[1:].tolist(), theta.size]
    return tuple(
        Cluster(
            tuple(labels[place] for place in ordered[start:end]),
            float(natural[i]),
            float(natural_errors[i]),
            (float(lower[i]), float(upper[i])),
            None if sizes is None else float(sizes[i]),
        )
        for i, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True))
    )


def _large_enough(estimates: Estimates, min_size: float) -> tuple[Estimates, tuple[Excluded, ...]]:
    min_size = checked_size(min_size)
    if min_size == 0:
        return estimates, ()
    if estimates.n is None:
        raise InputError(f"min_size={min_size:g}", "the sizes of the groups are not known", "Give n as well.")
    keep = estimates.n >= min_size
    if keep.all():
        return estimates, ()
    if not keep.any():
        raise InputError(
            f"min_size={min_size:g}",
            f"all {len(estimates)} groups are smaller",
            f"Use at most {estimates.n.max():g}.",
        )
    reason = f"fewer than {min_size:g} in the group"
    left = tuple(
        Excluded(estimates.labels[i], reason, float(estimates.theta[i]), float(estimates.se[i]), float(estimates.n[i]))
        for i in np.flatnonzero(~keep).tolist()
    )
    return estimates.subset(keep), left


def _checked_alpha(alpha: float) -> float:
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.number) or not 1e-305 < alpha < 1:
        raise InputError(f"alpha={shorten(alpha)}", "must lie strictly between 0 and 1", "Use for example alpha=0.05.")
    return float(alpha)


def _probability(log_p: float) -> float:
    """A probability from its logarithm, at least the smallest positive double."""
    return float(max(np.exp(log_p), np.nextafter(0.0, 1.0)))


def _known(groups: Sequence[str], number: Mapping[str, int]) -> Sequence[str]:
    """The groups of a frame, unless not one of them was clustered."""
    if not any(group in number for group in groups):
        few = ", ".join(repr(group.replace("\x1f", " · ")) for group in list(groups)[:3])
        raise InputError("frame", f"none of its groups was clustered ({few}, …)", "Give a frame with the same groups.")
    return groups


def _one_type(values: list[Any]) -> list[Any]:
    """A column as frames want it: all text, or all numbers of one kind that fits their integers."""
    kinds = {type(value) for value in values}
    if kinds in ({str}, {float}) or (kinds == {int} and all(abs(value) < 2**63 for value in values)):
        return values
    return [str(value) for value in values]


def _whole(size: float | None) -> float | int | None:
    """A size as a whole number, where it is one."""
    return int(size) if size is not None and size == int(size) else size


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"to_{'arrow' if name == 'pyarrow' else name}()",
            f"{name} is not installed",
            f"Run: pip install {name}",
        ) from error
