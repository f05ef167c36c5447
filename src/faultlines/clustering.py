"""The public face: `fl.cluster`, and the result one looks at."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from faultlines import checks, files, text
from faultlines.decide.certificate import Certificate
from faultlines.decide.confirm import Confirmation
from faultlines.decide.mitigate import Members, thresholds, weighted
from faultlines.decide.unseen import unseen_of
from faultlines.errors import InputError, shorten, to_install
from faultlines.guarantees.choose import guarantee_of
from faultlines.result.decision import harms_of
from faultlines.result.finding import Finding, groups_of, is_rows, measured
from faultlines.result.levels import levels_of
from faultlines.result.multiplicity import adjustments
from faultlines.result.selfcheck import SelfCheck
from faultlines.result.summary import Summary, summarize
from faultlines.result.tables import Columns, Rows, Tabular, columns_of, json_text
from faultlines.rows.attach import attach
from faultlines.show import written

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence
    from os import PathLike

    from faultlines.decide.mitigate import Thresholds
    from faultlines.estimates.labels import Key
    from faultlines.guarantees.base import Guarantee
    from faultlines.metrics.base import Metric
    from faultlines.result.decision import Adverse, Harm
    from faultlines.result.finding import By, Groups
    from faultlines.result.unseen import Unseen
    from faultlines.show.chart import Chart, Charts
    from faultlines.show.geometry import Kind
    from faultlines.show.page import Part
    from faultlines.show.palette import Theme

Frame = TypeVar("Frame")


class Clustering(Finding, Tabular):
    """The clusters that really differ, and how sure that is: what `fl.cluster` returns.

    It prints itself, shows itself in a notebook, and leaves as data, picture or page. See `Finding` for its attributes.

    Attributes:
        judged: What the guarantee says about the groups: a path of partitions, each with its p.
        guarantee: What those p rest on.
        alpha: Level of significance: the chance of a false claim that was accepted.
        refine: Whether groups at a border were moved to the cluster of nearest estimate.
        excluded: Groups left out, each with its reason.
        dropped: Reason → number of rows left out.
        by: What the groups are, for other rows.
        labels: Cluster number of each group, 1 … m from the lowest to the highest effect, in the order of `estimates`.
        clusters: The clusters, in that same order; each a `Cluster`.
        readout: The moments behind the estimates, where rows were given.
        adjustment: How p are adjusted, where this is one of several results that were corrected for their number.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.simulate.onboarding().estimates)
        >>> found.rejected, found.n_clusters, found.pvalue < 1e-10, found.labels[:4].tolist()
        (True, 3, True, [1, 1, 1, 1])
        >>> found.verdict
        '3 clusters of 40 groups by country differ in lift of returning users (p < 1e-10, calibrated, α = 0.05).'
        >>> [round(one.estimate, 3) for one in found.clusters], round(found.overall.observed, 3)
        ([-0.066, 0.019, 0.079], 0.011)
        >>> found.pvalue == found.pvalue_adj, bool(found.log_pvalue == found.log_pvalue_adj < -20)
        (True, True)
        >>> found.tolerance, found.unseen
        (0.0, ())
        >>> len(found.estimates.theta), len(found.groups), len(found.hierarchy.heights), len(found.population.keys)
        (40, 40, 39, 40)
        >>> bool(found.claims.log_pvalue == found.log_pvalue), len(found.fingerprint), found.belief.membership.shape
        (True, 16, (40,))
        >>> found.summary()["alpha"], len(found.to_json()) > 1000, len(found.to_markdown()) > 100
        (0.05, True, True)
    """

    @cached_property
    def _summary(self) -> Summary:
        return summarize(self, lambda: unseen_of(self))

    def __getstate__(self) -> dict[str, Any]:
        """What it is made of; the summary is made again when it is asked for."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        return self._summary.verdict

    @property
    def unseen(self) -> tuple[Unseen, ...]:
        """What is left possible where no difference can be claimed, effect by effect: how far a group may still be.

        Nothing where clusters differ. It takes a moment, and is computed when it is first asked for.
        """
        return self._summary.unseen

    def __str__(self) -> str:
        return written.terminal(self._summary)

    def __repr__(self) -> str:
        p = text.p_is(self.log_pvalue_adj)
        return f"<Clustering: {self.n_clusters} of {len(self.groups)} groups, {p}, α = {self.alpha:g}>"

    def _repr_html_(self) -> str:
        picture = ""
        if not missing_for_report() and self._summary.estimates is not None:
            from faultlines.show.vega import figure

            picture = figure(self._summary)
        return written.notebook(self._summary, picture)

    # ------------------------------------------------------------------------------------------------------- data

    def _columns(self, rows: Rows = "groups") -> Columns:
        return columns_of(self._summary, rows)

    def summary(self) -> dict[str, Any]:
        """The whole result as plain data.

        Returns:
            Dictionaries, lists, numbers and text, as `to_json` writes them.
        """
        return written.plain_data(self._summary)

    def to_json(self, *, indent: int | None = 2) -> str:
        """The whole result: verdict, clusters, groups, what was left out, the path over α, how it was computed.

        Args:
            indent: How many spaces a level is indented by; None for one line.

        Returns:
            The text of the JSON.
        """
        return json_text(self.summary(), indent)

    def to_markdown(self) -> str:
        """Verdict, table of clusters and what was left out, as Markdown.

        Returns:
            The text, for an issue, a wiki or a chat.
        """
        return written.markdown(self._summary)

    # ------------------------------------------------------------------------------------------------ back to rows

    @cached_property
    def _members(self) -> Members:
        return Members.of(self)

    def assign(self, frame: Frame, column: str = "cluster") -> Frame:
        """The frame with the cluster of each row as a new column, in the frame's own type.

        Rows of groups that were left out, or that were not there before, have none. The order of the rows is kept where
        frames have one (pandas, Polars, PyArrow).

        Args:
            frame: A frame with the columns the groups were made of.
            column: The name of the new column.

        Returns:
            The frame with one column more.

        Raises:
            InputError: If none of its groups was clustered, or a key reads like several groups.

        Example:
            >>> import faultlines as fl, polars as pl
            >>> found = fl.cluster(fl.Estimates([0.1, 0.9], [0.01, 0.01], ["a", "b"], attributes=["group"]))
            >>> found.assign(pl.DataFrame({"group": ["b", "a", "new"]}))["cluster"].to_list()
            [2, 1, None]
        """

        def clusters(groups: Sequence[Key], _: Sequence[float]) -> list[float]:
            return [float(c) if c else np.nan for c in self._members.clusters_of(groups).tolist()]

        made: Frame = attach(frame, self._members.by, clusters, column, whole=True)
        return made

    def weights(self, frame: Frame, column: str = "weight", *, label: str | None = None) -> Frame:
        """The frame with training weights as a new column, in the frame's own type.

        With `label`, outcomes are independent of clusters among the weighted rows (reweighing, Kamiran and Calders): a
        row weighs P(cluster) P(label) / P(cluster, label), so that a model learns from each cluster the same share of
        every outcome. Without it only the sizes of clusters are evened out: with N_j of the N rows in m clusters a row
        weighs N/(m N_j). That does not reduce differences between clusters; docs/mitigation.md has figures.

        Rows have an average weight of 1. Rows without a cluster weigh 1, rows without an outcome have no weight.

        Args:
            frame: A frame with the columns the groups were made of.
            column: The name of the new column.
            label: The column of outcomes, with two values or more.

        Returns:
            The frame with one column more.

        Raises:
            InputError: If none of its groups was clustered, a key reads like several groups, or some cluster lacks one
                of the outcomes.

        Example:
            >>> import faultlines as fl, polars as pl
            >>> found = fl.cluster(fl.Estimates([0.1, 0.9], [0.01, 0.01], ["a", "b"], attributes=["group"]))
            >>> rows = pl.DataFrame({"group": ["a", "a", "a", "b"] * 2, "hired": [0, 0, 1, 1, 0, 0, 1, 0]})
            >>> found.weights(rows, label="hired")["weight"].to_list()[:4]
            [0.9375, 0.9375, 1.125, 0.75]
        """
        return weighted(self._members, frame, column, label)

    def thresholds(
        self,
        frame: object,
        *,
        score: str,
        y_true: str | None = None,
        metric: str = "selection_rate",
        target: str | float = "overall",
        threshold: float = 0.5,
        positive: Hashable = None,
    ) -> Thresholds:
        """A threshold for every cluster, so that a metric of the model is the same in all of them.

        Choose them on rows the model was not trained on. A threshold by group may not be allowed where groups are of
        people: ask before using it.

        Args:
            frame: Rows with scores: a frame, or the path, paths or glob of csv or parquet files.
            score: The column of scores; rows at or above the threshold of their cluster are selected.
            y_true: The column of true outcomes: 0/1, booleans, or two labels of which `positive` counts as 1. Not
                needed for the selection rate.
            metric: ``"selection_rate"``, ``"true_positive_rate"``, ``"false_positive_rate"``,
                ``"true_negative_rate"`` or ``"false_negative_rate"``.
            target: The value it shall have in every cluster. ``"overall"``: what it is in all rows with `threshold`.
            threshold: The one threshold that was used so far.
            positive: The label that counts as 1, where outcomes are not 0/1 or booleans.

        Returns:
            The thresholds, with the metric before and after; `apply` makes predictions with them.

        Raises:
            InputError: If a column is missing or holds something else, or a cluster has no rows the metric is about.

        Example:
            >>> import faultlines as fl, polars as pl
            >>> found = fl.cluster(fl.Estimates([0.1, 0.9], [0.01, 0.01], ["a", "b"], attributes=["group"]))
            >>> rows = pl.DataFrame({"group": ["a", "b"] * 4, "score": [0.1, 0.3, 0.2, 0.6, 0.3, 0.8, 0.6, 0.9]})
            >>> chosen = found.thresholds(rows, score="score")
            >>> chosen.gap_before, chosen.gap, [one.threshold for one in chosen.clusters]
            (0.5, 0.0, [0.25, 0.7])
        """
        return thresholds(
            self._members,
            frame,
            score=score,
            y_true=y_true,
            metric=metric,
            target=target,
            threshold=threshold,
            positive=positive,
        )

    # ---------------------------------------------------------------------------------------------------- to look at

    def plot(self, kind: Kind = "groups", *, theme: Theme = "light") -> Chart | Charts:
        """The result as an Altair chart, which `save` writes as SVG, PNG or HTML.

        Args:
            kind: ``"groups"``: groups by effect with their intervals, coloured by cluster, with the lines between them;
                two effects measured together as ellipses in the plane; many groups as densities. ``"tree"``: merges.
            theme: ``"light"`` or ``"dark"``.

        Returns:
            The chart.

        Raises:
            InputError: If the extra ``report`` is not installed, or there is nothing to draw.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> found.plot().save("lifts.svg")
        """
        need_report("plot()")
        from faultlines.show.chart import plot

        return plot(self._summary, kind, theme)

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        also: Sequence[Clustering] = (),
        names: Sequence[str] | None = None,
        note: str | None = None,
        command: str | None = None,
        self_check: SelfCheck | None = None,
        certificate: Certificate | None = None,
        confirmation: Confirmation | None = None,
        adverse: Adverse | Mapping[str, Adverse] | None = None,
    ) -> None:
        """Write one page to hand over: a file that needs no network and nothing beside it.

        Args:
            path: Where to, such as ``"out.html"``.
            title: What stands at its head: the experiment, the model, the date.
            also: Results of other metrics, for tabs and an overview on the same page.
            names: What to call the results there; by default what each of them measures.
            note: How they were corrected for their number, if they were.
            command: What reproduces it, to be said on the page. Default: the call of `fl.cluster`.
            self_check: What `fl.self_check` found in the same rows, to be said beside this result.
            certificate: What `fl.certify` says about the same groups, to stand beside this result.
            confirmation: What `fl.confirm` found on fresh data, to be said beside this result.
            adverse: Where people are worse off: ``"low"`` (a lift, a true positive rate) or ``"high"`` (an error rate).
                The page then begins with them and marks the clusters that are worse off than all people together.
                Several effects have a side each: ``{"true positive rate": "low", "false positive rate": "high"}``, by
                the name of the effect or of the result; those not named have none.

        Raises:
            InputError: If the extra ``report`` is not installed, or the file cannot be written.

        Example:
            >>> import faultlines as fl
            >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
            >>> found.report("lifts.html", title="Onboarding, March", adverse="low")
        """
        need_report("report()")
        if not isinstance(also, list | tuple) or not all(isinstance(one, Clustering) for one in also):
            raise InputError(f"also={shorten(also)}", "is not a list of results", "Give what fl.cluster returns.")
        results = [self, *also]
        called = [one.groups.measure for one in results] if names is None else names
        if not isinstance(called, list | tuple) or len(called) != len(results):
            raise InputError(f"names={shorten(names)}", f"is not a list of {len(results)}", "Give one for each result.")
        for name, value in {"title": title, "note": note, "command": command}.items():
            checks.text(name, value)
        if not all(isinstance(name, str) for name in called):
            raise InputError(f"names={shorten(names)}", "is not a list of text", "Give one name for each result.")
        if self_check is not None and not isinstance(self_check, SelfCheck):
            given = f"self_check={shorten(self_check)}"
            raise InputError(given, "is not a self-check", "Give what fl.self_check returns.")
        if certificate is not None and not isinstance(certificate, Certificate):
            given = f"certificate={shorten(certificate)}"
            raise InputError(given, "is not a certificate", "Give what fl.certify returns.")
        if confirmation is not None and not isinstance(confirmation, Confirmation):
            given = f"confirmation={shorten(confirmation)}"
            raise InputError(given, "is not a confirmation", "Give what fl.confirm returns.")
        write_page(
            results,
            called,
            path,
            title=title,
            note=note,
            command=command,
            self_checks=() if self_check is None else (self_check,),
            certificates=() if certificate is None else (certificate,),
            confirmations=() if confirmation is None else (confirmation,),
            adverse=adverse,
        )


def write_page(
    results: Sequence[Clustering],
    names: Sequence[str],
    path: str | PathLike[str],
    **options: Any,
) -> None:
    """Write the page of some results; for the options see `page_text`."""
    target = files.target("report", path, (".html", ".htm"))
    files.write("report", target, page_text(results, names, **options))


def page_text(
    results: Sequence[Clustering],
    names: Sequence[str],
    *,
    title: str | None = None,
    note: str | None = None,
    command: str | None = None,
    left: int = 0,
    rejected: int | None = None,
    self_checks: Sequence[SelfCheck] = (),
    certificates: Sequence[Certificate | None] = (),
    confirmations: Sequence[Confirmation] = (),
    adverse: Adverse | Mapping[str, Adverse] | None = None,
) -> str:
    """The page of some results; `left` others are not on it, `rejected` of all of them have clusters."""
    from faultlines.show import page

    harms = harms_of(adverse, [one._summary for one in results[: page.TABS]], names)
    said, signed, confirmed = ([*some, *[None] * len(results)] for some in (self_checks, certificates, confirmations))
    shown = [_part(*one) for one in zip(results[: page.TABS], names, said, signed, confirmed, harms, strict=False)]
    return page.page(
        [result._summary for result in results],
        names,
        shown,
        title=title,
        note=note,
        command=command,
        left=left,
        rejected=rejected,
    )


def _part(
    result: Clustering,
    name: str,
    self_check: SelfCheck | None,
    certificate: Certificate | None,
    confirmation: Confirmation | None,
    harm: Harm,
) -> Part:
    """What the page needs of a result: the summary of every level its slider stops at, each cut once."""
    from faultlines.show.page import Part

    levels, now, skipped = levels_of(result)
    said = "" if self_check is None else self_check.verdict
    told = () if confirmation is None else tuple(confirmation.sentences)
    return Part(name, [level._summary for level in levels], now, skipped, said, certificate, told, harm)


def cluster(
    data: object,
    by: By | None = None,
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
        min_size: Leave out groups smaller than this; they are listed in `excluded`. Of rows, by default what the metric
            needs in every arm: 10, for rates 5; of estimates, none by default, and sizes `n` are needed.
        seed: Of the random draws. The same seed gives the same result on any number of cores.

    Returns:
        The clusters, with verdict, p and everything that was left out.

    Raises:
        InputError: If something given cannot be used; the message names the parameter, the value and the remedy.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> found.n_clusters, found.clusters[1].members
        (2, ('IN',))
    """
    return cluster_metrics(
        data,
        by,
        [] if metric is None else [metric],
        alpha=alpha,
        guarantee=guarantee,
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
    tolerance: float = 0.0,
    refine: bool = True,
    min_size: float | None = None,
    seed: int = 0,
) -> list[Clustering]:
    """The same for several metrics of the same rows, which are read once."""
    alpha, refine, seed = checks.alpha(alpha), checks.flag("refine", refine), checks.seed(seed)
    chosen = guarantee_of(guarantee)
    if is_rows(data):
        found = measured(data, by, metrics, min_size, chosen, tolerance, seed)
    else:
        found = [groups_of(data, by, metrics[0] if metrics else None, min_size, chosen, tolerance)]
    return [_clustered(groups, chosen, alpha, refine, seed) for groups in found]


def _clustered(groups: Groups, guarantee: Guarantee, alpha: float, refine: bool, seed: int) -> Clustering:
    guarantee.check(alpha, groups.comparison)
    judged = guarantee.judge(groups.comparison, seed, refine=refine, parts=groups.parts)
    shown = groups.reported(judged)
    return Clustering.of(judged, guarantee, alpha, refine, shown.excluded, shown.dropped, shown.by, shown.readout)


def holm(found: Sequence[Clustering], alpha: float) -> list[Clustering]:
    """Correct several results for their number: the chance of any false claim among them is α (Holm's step-down).

    Their own p stay as they are; `pvalue_adj` is adjusted, and below α where clusters differ. Intervals keep the level
    1 − α.

    Args:
        found: Results of `fl.cluster`.
        alpha: The chance of any false claim.

    Returns:
        The same results with adjusted p, each with the clusters that stand at α.

    Raises:
        InputError: If `alpha` does not lie between 0 and 1.

    Example:
        >>> import faultlines as fl
        >>> first, second = fl.simulate.planted([0, 4], [5, 5]).estimates, fl.simulate.null(10).estimates
        >>> [one.n_clusters for one in fl.holm([fl.cluster(first), fl.cluster(second)], 0.05)]
        [2, 1]
    """
    if not isinstance(found, list | tuple) or not all(isinstance(one, Clustering) for one in found) or not found:
        raise InputError(f"found={shorten(found)}", "is not a list of results", "Give what fl.cluster returns.")
    alpha = checks.alpha(alpha)
    how = adjustments(np.array([one.log_pvalue for one in found]), "holm")
    return [replace(one, adjustment=adjustment).cut(alpha) for one, adjustment in zip(found, how, strict=True)]


def missing_for_report() -> list[str]:
    """Libraries of the extra `report` that are not there."""
    return [name for name in ("altair", "vl_convert", "jinja2") if find_spec(name) is None]


def need_report(what: str) -> None:
    """Say which libraries are missing for pictures and pages, if some are."""
    if missing := missing_for_report():
        raise InputError(what, f"needs {', '.join(missing)}", to_install("report"))
