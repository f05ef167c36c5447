"""Thousands of experiments or metrics at once, with one correction over all of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from faultlines import checks, text
from faultlines.clustering import Clustering, need_report, write_page
from faultlines.comparison.choose import is_comparison
from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import name_of
from faultlines.guarantees.choose import guarantee_of
from faultlines.guarantees.parallel import in_order
from faultlines.progress import progress
from faultlines.result.experiments import of_mapping, of_rows, of_table
from faultlines.result.finding import probability
from faultlines.result.multiplicity import CORRECTIONS, AdjustedPath, Adjustment, Correction, adjustments, corrected
from faultlines.result.tables import Columns, Rows, Tabular, dicts_of, json_text, stacked
from faultlines.tree.path import clusters_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    from faultlines.comparison.base import Comparison
    from faultlines.comparison.custom import Similarity
    from faultlines.estimates.estimates import Excluded
    from faultlines.estimates.scales import FloatArray
    from faultlines.guarantees.base import Guarantee, Judged
    from faultlines.metrics.base import Metric
    from faultlines.result.experiments import Experiments
    from faultlines.result.finding import By, Groups

_ON_A_PAGE = 1_000  # experiments in the overview of a page
_NAMED = 3  # experiments that are named where they were left out or not compared


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Many(Tabular):
    """Results of many experiments, corrected for their number. ``many["name"]`` is the `Clustering` of one of them.

    Attributes:
        names: The experiments.
        log_pvalues: Natural logarithm of each one's own p of "all groups are alike".
        log_adjusted: The same, adjusted for the number of experiments.
        levels: The level that each one's own p is compared with.
        alpha: The level over all of them, of adjusted p and of intervals.
        correction: ``"holm"``: the chance of any false claim is α. ``"bh"``: of the experiments with claims, a share
            of α is false on average (for independent experiments).
        guarantee: What the p rest on.
        refine: Whether groups at a border were moved to the cluster of nearest estimate.
        excluded: Experiments left out because none of their groups can be used, each with its reason. Groups that
            were left out of the others are in ``many["name"].excluded``.
        dropped: Reason → number of rows left out, of all experiments.

    Example:
        >>> import faultlines as fl
        >>> button, font = fl.simulate.planted([0, 4], [5, 5]), fl.simulate.null(10)
        >>> many = fl.cluster_many({"button": button.estimates, "font": font.estimates})
        >>> many.rejected, many["button"].n_clusters
        (('button',), 2)
        >>> many.summary()["correction"], len(many.to_json()) > 100
        ('holm', True)
        >>> many.report("experiments.html")
    """

    _rows: ClassVar[Rows] = "experiments"

    names: tuple[str, ...]
    log_pvalues: FloatArray
    log_adjusted: FloatArray
    levels: FloatArray
    alpha: float
    correction: Correction
    guarantee: Guarantee
    refine: bool
    _judged: Sequence[Judged]
    _adjustments: Sequence[Adjustment]
    excluded: tuple[Excluded, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    _groups: Sequence[Groups] = ()

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> Clustering:
        """The whole result of one experiment, with its adjusted p and the clusters that stand."""
        if not isinstance(name, str) or name not in self.names:
            raise InputError(f"name={shorten(name)}", "no such experiment", did_you_mean(name, self.names))
        place = self.names.index(name)
        return self._one(place)

    def _one(self, place: int) -> Clustering:
        made = (self._judged[place], self.guarantee, self.alpha, self.refine)
        how = self._adjustments[place]
        if not self._groups:
            return Clustering.of(*made, adjustment=how)
        groups = self._groups[place]
        return Clustering.of(*made, groups.excluded, groups.dropped, groups.by, groups.readout, how)

    @property
    def rejected(self) -> tuple[str, ...]:
        """The experiments in which clusters differ, the surest first."""
        found = np.flatnonzero(self.log_adjusted < np.log(self.alpha))
        return tuple(self.names[i] for i in found[np.argsort(self.log_pvalues[found], kind="stable")])

    def report(self, path: str | PathLike[str], *, title: str | None = None, command: str | None = None) -> None:
        """Write one page over all experiments, with a part for each of the twenty surest; see `Clustering.report`.

        Args:
            path: Where to, such as ``"experiments.html"``.
            title: What stands at its head.
            command: What reproduces it, to be said on the page. Default: the call of `fl.cluster_many`.

        Raises:
            InputError: If the extra ``report`` is not installed, or the file cannot be written.
        """
        need_report("report()")
        for name, value in {"title": title, "command": command}.items():
            checks.text(name, value)
        first = np.argsort(self.log_pvalues, kind="stable")[:_ON_A_PAGE].tolist()
        names = [self.names[i] for i in first]
        how = CORRECTIONS[self.correction]
        corrected_by = f"{len(self):,} experiments, corrected by {how} at α = {self.alpha:g}"
        note = f"{corrected_by}: clusters differ where the adjusted p is below α."
        write_page(
            [self[name] for name in names],
            names,
            path,
            title=title,
            note=note,
            command=command,
            left=len(self) - len(first),
            rejected=len(self.rejected),
        )

    # ----------------------------------------------------------------------------------------------------------- data

    def _columns(self, rows: Rows = "experiments") -> Columns:
        kinds = ("experiments", "groups", "clusters")
        checks.choice("rows", rows, kinds, "Use 'experiments', 'groups' or 'clusters'.")
        if rows == "experiments":
            return self._of_experiments()
        found = ((name, self._one(place)) for place, name in enumerate(self.names))
        return stacked("experiment", [(name, one._columns(rows)) for name, one in found])

    def summary(self) -> dict[str, Any]:
        """The whole result as plain data: experiments, groups with effect and cluster, clusters, what was left out.

        Returns:
            Dictionaries, lists, text and numbers.

        Example:
            >>> import faultlines as fl
            >>> many = fl.cluster_many({"font": fl.Estimates([0.0, 9.0], [1.0, 1.0], ["DE", "IN"])})
            >>> [(row["experiment"], row["group"], row["cluster"]) for row in many.summary()["groups"]]
            [('font', 'DE', 1), ('font', 'IN', 2)]
        """
        return {
            "faultlines": version("faultlines"),
            "alpha": self.alpha,
            "correction": self.correction,
            "guarantee": self.guarantee.name,
            "n_experiments": len(self),
            "rejected": list(self.rejected),
            **{rows: dicts_of(self._columns(rows)) for rows in ("experiments", "groups", "clusters")},
            "excluded": [{"experiment": name_of(left.label), "reason": left.reason} for left in self.excluded],
            "dropped": dict(self.dropped),
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """The whole result as JSON; see `summary`.

        Args:
            indent: Spaces for each level; None for one line.

        Returns:
            JSON.

        Example:
            >>> import json, faultlines as fl
            >>> many = fl.cluster_many({"font": fl.Estimates([0.0, 9.0], [1.0, 1.0])})
            >>> json.loads(many.to_json())["rejected"]
            ['font']
        """
        return json_text(self.summary(), indent)

    def _of_experiments(self) -> Columns:
        level = float(np.log(self.alpha))
        paths = [AdjustedPath(one.path, how) for one, how in zip(self._judged, self._adjustments, strict=True)]
        adjusted = [probability(p) for p in self.log_adjusted]
        return {
            "name": list(self.names),
            "n_groups": [len(judged.reported) for judged in self._judged],
            "pvalue": [probability(p) for p in self.log_pvalues],
            "pvalue_adj": adjusted,
            "adjusted_pvalue": adjusted,
            "rejected": (self.log_adjusted < level).tolist(),
            "n_clusters": [clusters_at(path, level) for path in paths],
            "level": self.levels.tolist(),
        }

    def __repr__(self) -> str:
        return f"<Many: {len(self.rejected)} of {len(self)} experiments differ, {self.correction}, α = {self.alpha:g}>"

    def __str__(self) -> str:
        found = self.rejected
        how = CORRECTIONS[self.correction]
        basis = f"{how}, {self.guarantee.name}, α = {self.alpha:g}"
        head = f"Clusters differ in {len(found):,} of {len(self):,} experiments ({basis})."
        by_name = {row["name"]: row for row in self.to_dicts()}
        adjusted = dict(zip(self.names, self.log_adjusted.tolist(), strict=True))
        shown = [by_name[name] for name in found[:20]]
        left = self._left_out()
        if not shown:
            smallest = f" Smallest {text.p_is(float(self.log_pvalues.min()))}." if len(self._alone) < len(self) else ""
            return text.printable_lines("\n\n".join([head + smallest, *left]))
        rows = [
            [str(r["name"]), text.pvalue(adjusted[r["name"]]), str(r["n_clusters"]), str(r["n_groups"])] for r in shown
        ]
        rows += [[f"… {len(found) - 20:,} more", "", "", ""]] if len(found) > 20 else []
        table = text.table(["experiment", "adjusted p", "clusters", "groups"], rows, {1, 2, 3})
        return text.printable_lines("\n\n".join([head, table, *left]))

    @property
    def _alone(self) -> list[str]:
        """The experiments with one group only, in which nothing was compared."""
        return [name for name, one in zip(self.names, self._judged, strict=True) if len(one.reported) < 2]

    def _left_out(self) -> list[str]:
        """What was not compared and what was left out, in words, if anything was."""
        lines = []
        if alone := self._alone:
            lines.append(
                f"Nothing to compare, only one group: {text.amount(len(alone), 'experiment')}: {_some(alone)}."
            )
        if self.excluded:
            named = [f"{name_of(one.label)} ({one.reason})" for one in self.excluded]
            lines.append(f"Left out: {text.amount(len(self.excluded), 'experiment')}: {_some(named)}.")
        if groups := sum(len(one.excluded) for one in self._groups):
            some = sum(bool(one.excluded) for one in self._groups)
            lines.append(f"Left out: {text.amount(groups, 'group')} of {text.amount(some, 'experiment')}.")
        lines += [f"Left out: {count:,} {why}." for why, count in self.dropped.items()]
        return ["\n".join(lines)] if lines else []


def _some(names: Sequence[str]) -> str:
    """The first few of some names, the others counted."""
    return "; ".join([*names[:_NAMED], *([f"… +{len(names) - _NAMED:,}"] if len(names) > _NAMED else [])])


def cluster_many(
    estimates_by_name: Mapping[str, Estimates | Similarity] | object,
    *,
    experiment: str | None = None,
    by: By | None = None,
    estimate: str | None = None,
    se: str | None = None,
    n: str | None = None,
    dof: str | None = None,
    metric: Metric | None = None,
    min_size: float | None = None,
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    correction: Correction = "holm",
    tolerance: float = 0.0,
    refine: bool = True,
    seed: int = 0,
) -> Many:
    """Cluster many experiments or metrics, each with groups of its own, and correct for their number.

    Every experiment gets the p it would get from `fl.cluster`; then Holm's or Benjamini and Hochberg's procedure says
    which of them stand: those with an adjusted p below α. Guarantees that split data at random do so in each experiment
    with a seed of its own, made of `seed` and its name, which its result states; they split estimates, not rows.

    Args:
        estimates_by_name: The estimates (or a Similarity) of each. Or one frame or file with all of them: a table with
            one row per experiment and group (`estimate`, `se`), or rows (`metric`), which one group-by measures in
            all experiments.
        experiment: For a frame: the column that names the experiment.
        by: For a frame: the column, or the columns, whose combinations are the groups.
        estimate: For a table: the column of estimates.
        se: For a table: the column of standard errors.
        n: For a table: the column of group sizes, if there is one.
        dof: For a table: the column of degrees of freedom, if there is one.
        metric: For rows: what to measure.
        min_size: Leave out groups smaller than this; see `fl.cluster`.
        alpha: The chance of any false claim (``"holm"``), or the share of false ones among the claims (``"bh"``).
        guarantee: See `fl.cluster`.
        correction: ``"holm"`` or ``"bh"``.
        tolerance: See `fl.cluster`.
        refine: See `fl.cluster`.
        seed: Of everything random.

    Returns:
        The results, corrected for their number; ``many["name"]`` is the `Clustering` of one of them.

    Raises:
        InputError: If something else than names with estimates is given, or a frame does not hold what is named.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> apart, alike = fl.Estimates([0.0, 9.0], [1.0, 1.0]), fl.Estimates([0.0, 0.5], [1.0, 1.0])
        >>> fl.cluster_many({"a": apart, "b": alike}).rejected
        ('a',)
        >>> table = pl.DataFrame({"test": ["a", "a"], "land": ["DE", "IN"], "lift": [0.0, 9.0], "se": [1.0, 1.0]})
        >>> fl.cluster_many(table, experiment="test", by="land", estimate="lift", se="se").to_dicts()[0]["n_clusters"]
        2
    """
    alpha, refine, seed = checks.alpha(alpha), checks.flag("refine", refine), checks.seed(seed)
    chosen = guarantee_of(guarantee)
    checks.choice("correction", correction, CORRECTIONS, "Use 'holm' or 'bh'.")
    columns = {"estimate": estimate, "se": se, "n": n, "dof": dof}
    found = _experiments(estimates_by_name, experiment, by, columns, metric, min_size, chosen, tolerance)
    comparisons = [groups.comparison for groups in found.groups.values()]
    for comparison in comparisons:
        chosen.check(alpha / len(comparisons), comparison)
    names = tuple(found.groups)
    judged = judged_all(names, comparisons, chosen, refine, seed)
    log_p = np.array([one.log_pvalue for one in judged])
    adjusted, levels = corrected(log_p, alpha, correction)
    how = adjustments(log_p, correction)
    left = (found.excluded, found.dropped, tuple(found.groups.values()))
    return Many(names, log_p, adjusted, levels, alpha, correction, chosen, refine, judged, how, *left)


def _experiments(
    given: object,
    experiment: str | None,
    by: By | None,
    columns: Mapping[str, str | None],
    metric: Metric | None,
    min_size: float | None,
    guarantee: Guarantee,
    tolerance: float,
) -> Experiments:
    """The groups of every experiment, from estimates by name or from a frame."""
    named = {"experiment": experiment, "by": by, **columns, "metric": metric}
    named = {name: value for name, value in named.items() if value is not None}
    if isinstance(given, Mapping) or not named:
        if not isinstance(given, Mapping) or not given:
            remedy = "Give {name: estimates}, or a frame with experiment= and by=."
            raise InputError(f"estimates_by_name={shorten(given)}", "is not names with estimates", remedy)
        if named:
            raise InputError(
                ", ".join(named), "goes with a frame, but names with estimates were given", "Leave it out."
            )
        for name, one in given.items():
            if not isinstance(name, str) or not (isinstance(one, Estimates) or is_comparison(one)):
                shown = f"{shorten(name)}: {type(one).__name__}"
                raise InputError(shown, "is not a name with its estimates", "Give {name: estimates}.")
        return of_mapping(given, min_size, guarantee, tolerance)
    for parameter, value in (("experiment", experiment), ("by", by)):
        if value is None:
            raise InputError(f"{parameter}=None", "a frame needs experiment= and by=", "Name their columns.")
    how: dict[str, Any] = {"experiment": experiment, "by": by, "min_size": min_size}
    how |= {"guarantee": guarantee, "tolerance": tolerance}
    if metric is not None:
        if of_table_too := [name for name in columns if name in named]:
            raise InputError(", ".join(of_table_too), "goes with a table, but metric= measures rows", "Leave one out.")
        return of_rows(given, metric=metric, **how)
    if "estimate" not in named or "se" not in named:
        remedy = "Name both columns; for rows, give metric=."
        raise InputError("estimate, se", "both are needed for a table", remedy)
    return of_table(given, columns=columns, **how)


def judged_all(
    names: Sequence[str],
    comparisons: Sequence[Comparison],
    guarantee: Guarantee,
    refine: bool,
    seed: int,
    work: str = "clustering experiments",
) -> list[Judged]:
    """Every experiment judged: where it can be, in one compiled pass for each number of groups, else on its own."""
    made: dict[int, Judged] = {}
    with progress(work, len(comparisons)) as advance:
        made |= _together(comparisons, guarantee, refine, seed, advance)
        others = [i for i in range(len(comparisons)) if i not in made]

        def alone(number: int) -> Judged:
            # Guarantees that split data at random do so with a seed of the experiment's own.
            i = others[number]
            own = zlib.crc32(names[i].encode("utf-8", "surrogatepass")) if guarantee.shares(1) else 0
            return guarantee.judge(comparisons[i], seed + own, refine=refine, cores=1)

        for i, one in zip(others, in_order(alone, len(others)) if others else (), strict=True):
            made[i] = one
            advance(1)
    return [made[i] for i in range(len(comparisons))]


def _together(
    comparisons: Sequence[Comparison],
    guarantee: Guarantee,
    refine: bool,
    seed: int,
    advance: Callable[[int], None],
) -> dict[int, Judged]:
    """Plain comparisons with the same number of groups, judged in one pass where the guarantee has one."""
    alike: dict[int, list[int]] = {}
    for i, comparison in enumerate(comparisons):
        if comparison.is_plain:
            alike.setdefault(len(comparison), []).append(i)
    made: dict[int, Judged] = {}
    for places in alike.values():
        found = guarantee.judge_many([comparisons[i] for i in places], seed, refine=refine, advance=advance)
        made |= {} if found is None else dict(zip(places, found, strict=True))
    return made
