"""The straight line itself: estimates → tree → guarantee → clusters, and the result one looks at."""

from __future__ import annotations

import hashlib
import html
import json
import re
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from faultlines import text
from faultlines.aggregate import checked_size, measure, measure_parts
from faultlines.calibration import draws_for
from faultlines.describe import Explained, Population, explained
from faultlines.errors import InputError, shorten
from faultlines.estimates import IDENTITY, LOG_RATIO, Estimates, Excluded, Scales, name_of
from faultlines.groups import Bins, attach, canonical
from faultlines.guarantees import Bonferroni, Calibrated, Folds, Guarantee, Holdout, Judged, Judgement, guarantee_of
from faultlines.hierarchy import Hierarchy, notion_of, partition
from faultlines.similarity import Gaussian, Similarity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from faultlines.describe import Rule
    from faultlines.estimates import FloatArray, Label
    from faultlines.metrics import Metric
    from faultlines.plot import Chart, Charts, Kind, Theme
    from faultlines.similarity import IntArray, Notion

Rows = Literal["groups", "clusters"]
Correction = Literal["holm", "bh"]
_LINE = 112  # characters in a line of text output
_ROWS = 40  # clusters in a table of text output


@dataclass(frozen=True, slots=True)
class Cluster:
    """Groups that may be taken as alike.

    Attributes:
        members: Labels of its groups, by rising estimate.
        estimate: Their precision-weighted mean. A tuple where several things are measured together; None for a
            notion of similarity that has no estimates.
        se: Its standard error; where `dof` is known, with allowance for weights that are estimated.
        ci: Interval at the level 1 − α. Descriptive unless the guarantee is a holdout: the same data chose the
            members, so two clusters' intervals are farther apart than fresh data would put them.
        n: Total size, when the sizes of the groups are known.
        population: All groups, which its rule tells it from.
    """

    members: tuple[Label, ...]
    estimate: Any
    se: Any
    ci: Any
    n: float | None
    population: Population = field(repr=False, compare=False)

    @property
    def rule(self) -> Rule:
        """What its groups have in common: the shortest exact rule over their attributes, or the best short one.

        It is text, and knows its `precision` and `recall`.
        """
        return self.population.rule(self.members)


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
        return numbered(self._of.groups, self._of._partition(is_open))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Clustering:
    """The clusters that really differ, and how sure that is.

    Attributes:
        groups: The groups that were clustered, with what makes them similar; those held out, if some were.
        explored: The groups the tree was built from; the same, unless some data were held out.
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

    groups: Notion
    explored: Notion
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
    def estimates(self) -> Estimates:
        """The estimates of the groups; those of the held-out part, if there is one."""
        if self.groups.estimates is None:
            raise InputError("estimates", "this notion of similarity has none", "Give Similarity(…, estimate=…).")
        return self.groups.estimates

    @property
    def overall(self) -> Cluster:
        """All groups as one cluster: their pooled effect with its interval."""
        return summarised(self.groups, np.ones_like(self.labels), self.alpha, self.population)[1][0]

    @property
    def population(self) -> Population:
        """The groups by the values of their attributes."""
        return self.clusters[0].population

    @property
    def tolerance(self) -> float:
        """How far apart effects may be and still count as similar."""
        if not isinstance(self.groups, Gaussian):
            return 0.0
        of_ratios = self.groups.estimates.scale is LOG_RATIO
        return float(np.expm1(self.groups.tolerance)) if of_ratios else self.groups.tolerance

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
        alpha = checked_alpha(alpha)
        self.guarantee.check(alpha)
        return self.cut(alpha)

    def cut(self, alpha: float) -> Clustering:
        """The same for a level that follows from another one, as those of many experiments do."""
        is_open = self.judgement.log_pvalues < np.log(alpha)
        known = self.population if self.clusters else None
        labels, clusters = summarised(self.groups, self._partition(is_open), alpha, known)
        return replace(self, alpha=alpha, labels=labels, clusters=clusters)

    def path(self) -> tuple[Level, ...]:
        """Every partition from one cluster to K, each with the p at which it appears."""
        log_p = self.judgement.log_pvalues
        # Equal p are told apart by height, so that every level is a partition of the tree.
        ranked = np.lexsort((-self.hierarchy.closes(), log_p))
        reached = [0.0, *(_probability(value) for value in np.maximum.accumulate(log_p[ranked]))]
        return tuple(Level(i + 1, p, self, ranked) for i, p in enumerate(reached))

    def _partition(self, is_open: np.ndarray[Any, np.dtype[np.bool_]]) -> IntArray:
        return partition(self.explored, self.hierarchy, is_open, refine=self.refine)

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
        labels = (label if isinstance(label, tuple) else (label,) for label in self.groups.labels)
        return dict(zip(map(canonical, labels), self.labels.tolist(), strict=True))

    def explained(self) -> tuple[Explained, ...]:
        """How much of the variation between groups each attribute explains; nothing where there is only one."""
        if self.groups.estimates is None:
            return ()
        return explained(self.groups.estimates, self.population)

    # ------------------------------------------------------------------------------------------------------- output

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        by = " × ".join(self.groups.attributes)
        groups = f"{text.count(len(self.groups))} groups" + ("" if by == "group" else f" by {by}")
        what = "" if self.groups.measure == "effect" else f" in {self.groups.measure}"
        what += f" by more than {self.tolerance:g}" if self.tolerance else ""
        basis = f"p = {text.pvalue(self.log_pvalue)}, {self.guarantee.name}, α = {self.alpha:.3g}"
        if len(self.groups) == 1:
            return f"There is only one group, so there is nothing to compare (p = 1, α = {self.alpha:.3g})."
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
            "n_groups": len(self.groups),
            "measure": self.groups.measure,
            "parts": list(self._parts()),
            "tolerance": self.tolerance,
            "scale": self.estimates.scale.name if self.groups.estimates is not None else None,
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
        frame: pd.DataFrame = column_library("pandas").DataFrame(self._columns(rows))
        if rows == "groups":
            frame["cluster"] = frame["cluster"].astype("Int64")
        return frame

    def to_polars(self, rows: Rows = "groups") -> pl.DataFrame:
        """One row a group (or a cluster) as a Polars frame."""
        frame: pl.DataFrame = column_library("polars").DataFrame(self._columns(rows), strict=False)
        return frame

    def to_arrow(self, rows: Rows = "groups") -> pa.Table:
        """One row a group (or a cluster) as an Arrow table."""
        made: pa.Table = column_library("pyarrow").table(self._columns(rows))
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
        return f"<Clustering: {self.n_clusters} of {len(self.groups)} groups, p = {p}, α = {self.alpha:g}>"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        picture = ""
        if not missing_for_report() and self.groups.estimates is not None:
            from faultlines import report

            picture = report.figure(self)
        verdict = f"<p><strong>{html.escape(self.verdict)}</strong></p>"
        return f"<div>{verdict}{picture}{text.html_table(*self._table())}{notes}</div>"

    def plot(self, kind: Kind = "groups", *, theme: Theme = "light") -> Chart | Charts:
        """The result as an Altair chart, which `save` writes as SVG, PNG or HTML.

        Args:
            kind: ``"groups"``: groups by effect with their intervals, coloured by cluster, with the lines between them;
                two things measured together as ellipses in the plane; many groups as densities. ``"tree"``: the merges.
            theme: ``"light"`` or ``"dark"``.
        """
        need_report("plot()")
        from faultlines import plot

        return plot.plot(self, kind, theme)

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        also: Sequence[Clustering] = (),
        names: Sequence[str] | None = None,
        note: str | None = None,
        command: str | None = None,
    ) -> None:
        """Write one page to hand over: a file that needs no network and nothing beside it.

        Args:
            path: Where to, such as ``"out.html"``.
            title: What stands at its head: the experiment, the model, the date.
            also: Results of other metrics, for tabs and an overview on the same page.
            names: What to call the results there; by default what each of them measures.
            note: How they were corrected for their number, if they were.
            command: What reproduces it, to be said on the page. Default: the call of `fl.cluster`.
        """
        need_report("report()")
        from faultlines import report

        if not isinstance(also, list | tuple) or not all(isinstance(one, Clustering) for one in also):
            raise InputError(f"also={shorten(also)}", "is not a list of results", "Give what fl.cluster returns.")
        results = [self, *also]
        named = [one.groups.measure for one in results] if names is None else names
        if not isinstance(named, list | tuple) or len(named) != len(results):
            raise InputError(f"names={shorten(names)}", f"is not a list of {len(results)}", "Give one for each result.")
        for name, value in {"title": title, "note": note, "command": command}.items():
            if value is not None and not isinstance(value, str):
                raise InputError(f"{name}={shorten(value)}", "is not text", "Give a string.")
        target, called = report.checked(path), [str(name) for name in named]
        report.write(results, called, target, title=title, note=note, command=command)

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change when anything does that the result was computed from."""
        made = hashlib.sha256()
        for notion in [self.groups] + [self.explored] * (self.explored is not self.groups):
            labels = (label if isinstance(label, tuple) else (label,) for label in notion.labels)
            made.update("\x1e".join(map(canonical, labels)).encode("utf-8", "surrogatepass"))
            held = notion.statistics if isinstance(notion, Similarity) else None
            known = notion.estimates
            arrays = (held, notion.n) if known is None else (held, known.theta, known.se, known.cov, known.n, known.dof)
            for array in arrays:
                made.update(b"-" if array is None else np.ascontiguousarray(array, dtype="<f8").tobytes())
        return made.hexdigest()[:16]

    def _parts(self) -> tuple[str, ...]:
        """Names of the things that were measured together; none for a single one."""
        return self.groups.estimates.parts if self.groups.estimates is not None else ()

    def _columns(self, rows: Rows) -> dict[str, list[Any]]:
        if rows == "clusters":
            ends = {"ci_lower": 0, "ci_upper": 1}
            return {
                "cluster": list(range(1, self.n_clusters + 1)),
                **self._spread("estimate", [c.estimate for c in self.clusters]),
                **self._spread("se", [c.se for c in self.clusters]),
                **{
                    name: column
                    for key, end in ends.items()
                    for name, column in self._spread(key, [_end(c.ci, end) for c in self.clusters]).items()
                },
                "groups": [len(c.members) for c in self.clusters],
                "n": [_whole(c.n) for c in self.clusters],
                "rule": [str(c.rule) for c in self.clusters],
                "rule_precision": [c.rule.precision for c in self.clusters],
                "rule_recall": [c.rule.recall for c in self.clusters],
            }
        if rows != "groups":
            raise InputError(f"rows={rows!r}", "is not known", "Use 'groups' or 'clusters'.")
        kept, out = self.groups, self.excluded
        blank: list[Any] = [None] * len(out)
        named: dict[str, list[Any]] = {}
        taken = {name for column in _GROUP_COLUMNS for name in (column, *self._spread(column, []))}
        for i, attribute in enumerate(kept.attributes):
            column = attribute
            while column in taken or column in named:
                column += "_"
            labels = [*kept.labels, *(excluded.label for excluded in out)]
            named[column] = _one_type([label[i] if isinstance(label, tuple) else label for label in labels])
        sizes = kept.n.tolist() if kept.n is not None else [None] * len(kept)
        values, errors = [None] * len(kept), [None] * len(kept)
        if kept.estimates is not None:
            values = kept.estimates.natural.tolist()
            errors = (kept.estimates.se * kept.estimates.scale.slope(kept.estimates.theta)).tolist()
        return {
            **named,
            **self._spread("estimate", values + [excluded.estimate for excluded in out]),
            **self._spread("se", errors + [excluded.se for excluded in out]),
            "n": [_whole(n) for n in [*sizes, *(excluded.n for excluded in out)]],
            "cluster": self.labels.tolist() + blank,
            **self._spread("cluster_estimate", [self.clusters[i - 1].estimate for i in self.labels.tolist()] + blank),
            "excluded": [None] * len(kept) + [excluded.reason for excluded in out],
        }

    def _spread(self, name: str, values: list[Any]) -> dict[str, list[Any]]:
        """One column, or one for each of several things measured together: ``estimate_true_positive_rate``."""
        if not (parts := self._parts()):
            return {name: values}
        slugs = [re.sub(r"\W+", "_", part).strip("_") or "part" for part in parts]
        slugs = [slug if slugs.count(slug) == 1 else f"{slug}_{i + 1}" for i, slug in enumerate(slugs)]
        return {
            f"{name}_{slug}": [None if value is None else value[i] for value in values] for i, slug in enumerate(slugs)
        }

    def _table(self, *, whole: bool = False) -> tuple[list[str], list[list[str]], set[int]]:
        """Header, rows and right-aligned columns of the table of clusters; `whole` is without bars but all members."""
        level = f"{text.level(self.alpha)} interval"
        header, columns, bars = ["cluster"], [[str(i + 1) for i in range(self.n_clusters)]], None
        for i, part in enumerate(self._parts() or (["effect"] if self.groups.estimates is not None else [])):
            several = bool(self._parts())
            values, intervals = (
                [getattr(c, name)[i] if several else getattr(c, name) for c in self.clusters]
                for name in ("estimate", "ci")
            )
            ends = [end for interval in intervals for end in interval]
            number = self.number(i)
            header += [part, level]
            columns.append([number(value) for value in values])
            columns.append([" … ".join(map(number, interval)) for interval in intervals])
            if not whole and not several:
                scale, bars = (min(ends), max(ends)), len(header)
                header.append("")
                columns.append([text.bar(c.ci[0], c.estimate, c.ci[1], scale) for c in self.clusters])
        header.append("groups")
        columns.append([text.count(len(cluster.members)) for cluster in self.clusters])
        if self.groups.n is not None:
            header.append("n")
            columns.append([text.count(cluster.n or 0) for cluster in self.clusters])
        rows = [list(row) for row in zip(*columns, strict=True)]
        shown = list(range(self.n_clusters))
        if len(shown) > _ROWS and not whole:
            shown = [*shown[: _ROWS // 2], *shown[-_ROWS // 2 :]]
        rows = [rows[i] for i in shown]
        used = sum(max(len(row[i]) for row in [header, *rows]) + 2 for i in range(len(header)))
        told = ["rule"] if self.rejected and self._has_rules() else []
        told += ["members"] if whole or not told else []
        for row, i in zip(rows, shown, strict=True):
            room = 10**9 if whole else max(_LINE - used, 30)
            if "rule" in told:
                row.append(str(self.clusters[i].rule))
            if "members" in told:
                row.append(text.members(self.clusters[i].members, name_of, room))
        right = set(range(len(header))) - {bars}
        if len(rows) < self.n_clusters:
            rows.insert(_ROWS // 2, ["…", *[""] * (len(header) - 1), f"{self.n_clusters - len(rows):,} more clusters"])
        return [*header, *told], rows, right

    def _has_rules(self) -> bool:
        return self.population.reads_better_as_rules([cluster.members for cluster in self.clusters])

    def number(self, part: int = 0) -> Callable[[float], str]:
        """How estimates of the clusters are written: with two digits of the smallest standard error."""
        several = bool(self._parts())
        errors = [c.se[part] if several else c.se for c in self.clusters]
        ends = [end for c in self.clusters for end in (c.ci[part] if several else c.ci)]
        return text.decimals([e for e in errors if e > 0] or [1.0], ends, self._is_signed(part))

    def _is_signed(self, part: int) -> bool:
        """Whether a plus sign says something: where some are negative."""
        values = self.estimates.natural
        return bool(np.any((values if values.ndim == 1 else values[:, part]) < 0))

    def _notes(self) -> list[str]:
        """What a reader must know beside the table."""
        facts, notes = self.judgement.facts, []
        if isinstance(self.guarantee, Calibrated) and facts["draws"]:
            each = "; each cluster against its own groups" if self.guarantee.stepdown else ""
            notes.append(f"Calibrated on {facts['draws']:,} draws, seed {facts['seed']}{each}.")
        if isinstance(self.guarantee, Bonferroni) and len(self.groups) > 20:  # measured from 21 groups on
            notes.append("The α/K² rule claims clusters in pure noise far more often than α; see docs/guarantees.md.")
        known = self.groups.estimates is None or self.groups.estimates.dof is None
        if isinstance(self.guarantee, Bonferroni) and isinstance(self.groups, Gaussian) and not known:
            notes.append("The α/K² rule takes standard errors as known; dof is not used.")
        how = "a hash of the units" if facts.get("split") == "units" else "Gaussian thinning"
        how = "thinning" if facts.get("split") == "thinning" and isinstance(self.groups, Similarity) else how
        if isinstance(self.guarantee, Holdout):
            notes.append(f"Clusters from {1 - facts['fraction']:.0%} of the data, judged and estimated on the")  # type: ignore[operator]
            notes[-1] += f" other {facts['fraction']:.0%}; split by {how}, seed {facts['seed']}."
        if isinstance(self.guarantee, Folds):
            notes.append(f"Every step on one of {facts['folds']} folds, made by {how}, seed {facts['seed']}.")
        if self.rejected and not isinstance(self.guarantee, Holdout) and self.groups.estimates is not None:
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
    tolerance: float = 0.0,
    refine: bool = True,
    min_size: float | None = None,
    seed: int = 0,
) -> Clustering:
    """Find the clusters of groups that really differ.

    Args:
        data: Estimates of the groups; a `Similarity`; or rows, with `by` and `metric`: a pandas, Polars, PyArrow,
            DuckDB, Spark or Ibis frame, or the path, paths or glob of csv or parquet files.
        by: For rows: the column, or the columns, whose combinations are the groups; `fl.bins(...)` cuts a numeric one.
        metric: For rows: what to measure, such as ``fl.lift("revenue", variant="arm", control="A")``.
        alpha: The accepted chance of claiming a difference where there is none.
        guarantee: ``"calibrated"`` (default), ``"holdout"``, ``"folds"`` or ``"bonferroni"`` (the paper's α/K²), or one
            of the values they stand for, such as ``fl.Calibrated(draws=50_000)``.
        tolerance: Take effects as alike that are at most so far apart, in the units of the metric: 0.01 asks for
            groups more than one point of a rate apart.
        refine: Move groups at a border to the cluster of nearest estimate; the number of clusters stays. Without
            it the clusters are exactly those of the paper's algorithm.
        min_size: Leave out groups smaller than this; they are listed in `excluded`. Of rows, 20 in every arm by
            default; of estimates, none by default, and sizes `n` are needed.
        seed: Of the random draws. The same seed gives the same result on any number of cores.
    """
    alpha = checked_alpha(alpha)
    chosen = guarantee_of(guarantee)
    chosen.check(alpha)
    refine, seed = checked_refine(refine), checked_seed(seed)
    measured = _measured(data, by, metric, min_size, chosen, tolerance, seed)
    check_resolution(chosen, measured.notion, alpha)
    judged = chosen.judge(measured.notion, seed, refine=refine, parts=measured.parts)
    return clustered(judged, chosen, alpha, refine, measured.excluded, measured.dropped, measured.by)


def clustered(
    judged: Judged,
    guarantee: Guarantee,
    alpha: float,
    refine: bool,
    excluded: tuple[Excluded, ...],
    dropped: Mapping[str, int],
    by: tuple[str | Bins, ...],
) -> Clustering:
    """The result that follows from judged groups, cut at a level."""
    uncut = Clustering(
        judged.reported,
        judged.explored,
        judged.hierarchy,
        judged.judgement,
        guarantee,
        alpha,
        refine,
        excluded,
        dropped,
        by,
        np.empty(0, dtype=np.int64),
        (),
    )
    return uncut.cut(alpha)


def check_resolution(guarantee: Guarantee, notion: Notion, alpha: float) -> None:
    """Refuse counted p-values that cannot get below alpha."""
    if isinstance(guarantee, Calibrated) and isinstance(notion, Similarity) and len(notion) > 1:
        draws = guarantee.draws or draws_for(notion)
        if (draws + 1) * alpha <= 1:
            raise InputError(
                f"alpha={alpha:.3g}",
                f"is out of reach of {draws} draws, which count no p below 1/{draws + 1}",
                f"Use fl.Calibrated(draws={int(np.ceil(2 / alpha))}) or more.",
            )


def holm(found: Sequence[Clustering], alpha: float) -> list[Clustering]:
    """Cut several results so that the chance of any false claim among them is α (Holm's step-down over their p)."""
    levels = corrected(np.array([one.log_pvalue for one in found]), checked_alpha(alpha), "holm")[1]
    return [one.at(float(level)) for one, level in zip(found, levels, strict=True)]


def corrected(log_p: FloatArray, alpha: float, correction: Correction) -> tuple[FloatArray, FloatArray]:
    """Adjusted log p, and the level at which each experiment is cut.

    Holm holds the smallest p against α/m, the next against α/(m − 1) and so on; once one fails, the rest are held
    against the level it failed at. Benjamini and Hochberg hold all against α R/m, where R is the largest number of
    experiments with a p below that.
    """
    m = log_p.size
    order = np.argsort(log_p, kind="stable")
    ranked, adjusted, levels = log_p[order], np.empty(m), np.empty(m)
    if correction == "holm":
        left = np.arange(m, 0, -1)
        adjusted[order] = np.minimum(np.maximum.accumulate(ranked + np.log(left)), 0.0)
        failed = ranked >= np.log(alpha / left)
        first = int(np.argmax(failed)) if failed.any() else m - 1
        levels[order] = alpha / left[np.minimum(np.arange(m), first)]
        return adjusted, levels
    rank = np.arange(1, m + 1)
    adjusted[order] = np.minimum(np.minimum.accumulate((ranked + np.log(m / rank))[::-1])[::-1], 0.0)
    standing = np.flatnonzero(ranked < np.log(alpha * rank / m))
    levels[:] = alpha * (standing[-1] + 1 if standing.size else 1) / m
    return adjusted, levels


class _Measured(NamedTuple):
    """Groups to be clustered, in parts if rows were split, with what was left out."""

    notion: Notion
    parts: tuple[Notion, ...]
    excluded: tuple[Excluded, ...]
    dropped: Mapping[str, int]
    by: tuple[str | Bins, ...]


def _measured(
    data: object,
    by: str | Bins | Sequence[str | Bins] | None,
    metric: Metric | None,
    min_size: float | None,
    guarantee: Guarantee,
    tolerance: float,
    seed: int,
) -> _Measured:
    """Groups as given, or measured in rows; in several parts where the guarantee wants them and a unit is known."""
    if isinstance(data, Estimates | Similarity):
        if by is not None or metric is not None:
            raise InputError("by, metric", "go with rows, but estimates were given", "Leave them out.")
        if getattr(guarantee, "unit", None) is not None:
            raise InputError(f"unit={guarantee.unit!r}", "goes with rows, but estimates were given", "Leave it out.")  # type: ignore[union-attr]
        notion, excluded = _large_enough(notion_of(data, tolerance), 0 if min_size is None else min_size)
        return _Measured(notion, (), excluded, {}, data.attributes)
    if by is None or metric is None:
        raise InputError(
            f"data={type(data).__name__}",
            "rows need by= and metric=",
            "Name them, or make estimates with fl.Estimates(theta, se) or fl.Estimates.from_frame.",
        )
    unit = getattr(guarantee, "unit", None) or getattr(metric, "unit", None)
    if not isinstance(guarantee, Holdout | Folds) or unit is None:
        found = measure(data, by, metric, min_size=min_size)
        return _Measured(notion_of(found.estimates, tolerance), (), found.excluded, found.dropped, found.by)
    whole = None
    if isinstance(guarantee, Folds):  # their number can depend on that of the groups
        whole = measure(data, by, metric, min_size=min_size)
    shares = guarantee.shares(0 if whole is None else len(whole.estimates))
    several = measure_parts(data, by, metric, shares, unit=unit, min_size=min_size, seed=seed)
    found = several[0]
    parts = tuple(notion_of(part.estimates, tolerance) for part in several)
    notion = parts[0]
    if whole is not None:
        known = set(found.estimates.labels)
        notion = notion_of(whole.estimates, tolerance).subset(np.array([g in known for g in whole.estimates.labels]))
    return _Measured(notion, parts, found.excluded, found.dropped, found.by)


def numbered(groups: Notion, labels: IntArray) -> IntArray:
    """Cluster numbers 1 … m from the lowest to the highest effect; of several effects, the first."""
    if groups.estimates is None:
        return labels
    rank = np.empty(int(labels.max()), dtype=np.int64)
    means = _pooling(groups).pooled(labels - 1)[0]
    rank[np.argsort(means if means.ndim == 1 else means[:, 0], kind="stable")] = np.arange(1, len(means) + 1)
    return np.asarray(rank[labels - 1])


def _pooling(groups: Notion) -> Gaussian:
    """How the estimates of groups pool."""
    if isinstance(groups, Gaussian):
        return groups
    return Gaussian(groups.estimates)  # type: ignore[arg-type]


def summarised(
    groups: Notion, labels: IntArray, alpha: float, population: Population | None = None
) -> tuple[IntArray, tuple[Cluster, ...]]:
    """Clusters of a partition with their estimates and intervals, numbered from the lowest to the highest."""
    labels = numbered(groups, labels)
    labels.setflags(write=False)
    estimates = groups.estimates
    count = int(labels.max())
    summary: Sequence[tuple[Any, Any, Any]] = [(None, None, None)] * count
    if estimates is None:
        order = np.arange(len(groups))
    elif estimates.dims == 1:
        order, summary = np.argsort(estimates.theta, kind="stable"), _one_effect(_pooling(groups), labels - 1, alpha)
    else:
        order, summary = (
            np.argsort(estimates.theta[:, 0], kind="stable"),
            _several_effects(_pooling(groups), labels - 1, alpha),
        )
    order = order[np.argsort(labels[order], kind="stable")]
    ends = np.cumsum(np.bincount(labels, minlength=count + 1)[1:]).tolist()
    sizes = None if groups.n is None else np.bincount(labels - 1, groups.n, count).tolist()
    names, ordered = groups.labels, order.tolist()
    population = population or Population(names, groups.attributes)
    return labels, tuple(
        Cluster(
            tuple(names[i] for i in ordered[start:end]), *summary[c], None if sizes is None else sizes[c], population
        )
        for c, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
    )


def _one_effect(notion: Gaussian, clusters: IntArray, alpha: float) -> list[tuple[float, float, tuple[float, float]]]:
    """Estimate, standard error and interval of every cluster."""
    estimates, count = notion.estimates, int(clusters.max()) + 1
    centred, variance = notion.pooled(clusters)
    freedom, variance = notion.freedom(clusters, variance)
    means, errors = centred + estimates.theta[len(estimates) // 2], np.sqrt(variance)
    reach = -ndtri(alpha / 2) if freedom is None else -np.asarray(stdtrit(freedom, alpha / 2), dtype=np.float64)
    scale = estimates.scale
    natural, lower, upper, natural_errors = means, means - reach * errors, means + reach * errors, errors
    if scale is not IDENTITY:  # compared on one scale, reported on another
        natural = scale.natural(means)
        if scale.is_share:
            trials = scale.mass(estimates.se)
            natural = np.bincount(clusters, trials * estimates.natural, count) / np.bincount(clusters, trials, count)
        # Where there are no events at all, the interval of the scale begins a little above their share of zero.
        lower, upper = np.minimum(scale.natural(lower), natural), np.maximum(scale.natural(upper), natural)
        natural_errors = errors * scale.slope(means)
    ends = zip(lower.tolist(), upper.tolist(), strict=True)
    return list(zip(natural.tolist(), natural_errors.tolist(), ends, strict=True))


def _several_effects(
    notion: Gaussian, clusters: IntArray, alpha: float
) -> list[tuple[tuple[float, ...], tuple[float, ...], tuple[tuple[float, float], ...]]]:
    """The same for several effects at once; every interval has the level on its own."""
    estimates, count = notion.estimates, int(clusters.max()) + 1
    centred, cov = notion.pooled(clusters)
    means = centred + estimates.theta[len(estimates) // 2]
    errors = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    reach = np.full((count, 1), -float(ndtri(alpha / 2)))
    if estimates.dof is not None:
        reach = -np.asarray(stdtrit(notion.freedom_of_several(clusters), alpha / 2))[:, None]
    natural = np.array(means)
    scales = estimates.scale.parts if isinstance(estimates.scale, Scales) else (estimates.scale,) * estimates.dims
    for i, scale in enumerate(scales):
        natural[:, i] = scale.natural(means[:, i])
        if scale.is_share:
            trials = scale.mass(estimates.se[:, i])
            total = np.bincount(clusters, trials * estimates.natural[:, i], count)
            natural[:, i] = total / np.bincount(clusters, trials, count)
    lower, upper = (estimates.scale.natural(means + side * reach * errors) for side in (-1, 1))
    lower, upper = np.minimum(lower, natural), np.maximum(upper, natural)
    shown_errors = errors * estimates.scale.slope(means)
    return [
        (
            tuple(natural[c].tolist()),
            tuple(shown_errors[c].tolist()),
            tuple(zip(lower[c].tolist(), upper[c].tolist(), strict=True)),
        )
        for c in range(count)
    ]


def _large_enough(notion: Notion, min_size: float) -> tuple[Notion, tuple[Excluded, ...]]:
    min_size = checked_size(min_size)
    if min_size == 0:
        return notion, ()
    if notion.n is None:
        raise InputError(f"min_size={min_size:g}", "the sizes of the groups are not known", "Give n as well.")
    keep = notion.n >= min_size
    if keep.all():
        return notion, ()
    if not keep.any():
        raise InputError(
            f"min_size={min_size:g}",
            f"all {len(notion)} groups are smaller",
            f"Use at most {notion.n.max():g}.",
        )
    reason = f"fewer than {min_size:g} in the group"
    known = notion.estimates if notion.estimates is not None and notion.estimates.dims == 1 else None
    left = tuple(
        Excluded(
            notion.labels[i],
            reason,
            None if known is None else float(known.natural[i]),
            None if known is None else float((known.se * known.scale.slope(known.theta))[i]),
            float(notion.n[i]),
        )
        for i in np.flatnonzero(~keep).tolist()
    )
    return notion.subset(keep), left


def checked_alpha(alpha: float) -> float:
    """A level of significance as it can be used."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.number) or not 1e-305 < alpha < 1:
        raise InputError(f"alpha={shorten(alpha)}", "must lie strictly between 0 and 1", "Use for example alpha=0.05.")
    return float(alpha)


def checked_refine(refine: bool) -> bool:
    """Whether to refine, once that is known to be a yes or a no."""
    if not isinstance(refine, bool | np.bool_):
        raise InputError(f"refine={shorten(refine)}", "must be true or false", "Use refine=True or refine=False.")
    return bool(refine)


def checked_seed(seed: int) -> int:
    """A seed as it can be used."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed={shorten(seed)}", "must be a whole number, 0 or more", "Use for example seed=0.")
    return int(seed)


def _probability(log_p: float) -> float:
    """A probability from its logarithm, at least the smallest positive double."""
    return float(max(np.exp(log_p), np.nextafter(0.0, 1.0)))


def _known(groups: Sequence[str], number: Mapping[str, int]) -> Sequence[str]:
    """The groups of a frame, unless not one of them was clustered."""
    if not any(group in number for group in groups):
        few = ", ".join(repr(group.replace("\x1f", " · ")) for group in list(groups)[:3])
        raise InputError("frame", f"none of its groups was clustered ({few}, …)", "Give a frame with the same groups.")
    return groups


def _end(interval: Any, end: int) -> Any:
    """One end of an interval, or of each of several."""
    if interval is None or not isinstance(interval[0], tuple):
        return None if interval is None else interval[end]
    return tuple(part[end] for part in interval)


def _one_type(values: list[Any]) -> list[Any]:
    """A column as frames want it: all text, or all numbers of one kind that fits their integers."""
    kinds = {type(value) for value in values}
    if kinds in ({str}, {float}) or (kinds == {int} and all(abs(value) < 2**63 for value in values)):
        return values
    return [str(value) for value in values]


def _whole(size: float | None) -> float | int | None:
    """A size as a whole number, where it is one."""
    return int(size) if size is not None and size == int(size) else size


def missing_for_report() -> list[str]:
    """Libraries of the extra `report` that are not there."""
    return [name for name in ("altair", "vl_convert", "jinja2") if find_spec(name) is None]


def need_report(what: str) -> None:
    """Say which libraries are missing for pictures and pages, if some are."""
    if missing := missing_for_report():
        raise InputError(what, f"needs {', '.join(missing)}", "Run: pip install 'faultlines[report]'")


def column_library(name: str) -> Any:
    """A library of frames, if it is there."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"to_{'arrow' if name == 'pyarrow' else name}()",
            f"{name} is not installed",
            f"Run: pip install {name}",
        ) from error
