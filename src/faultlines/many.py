"""Thousands of experiments or metrics at once, with one correction over all of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines import checks, text
from faultlines.clustering import Clustering, need_report, write_page
from faultlines.comparison.choose import comparison_of, is_comparison
from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.estimates.estimates import Estimates
from faultlines.guarantees.choose import guarantee_of
from faultlines.guarantees.parallel import in_order
from faultlines.progress import progress
from faultlines.result.finding import probability
from faultlines.result.multiplicity import CORRECTIONS, AdjustedPath, Adjustment, Correction, adjustments, corrected
from faultlines.result.tables import Columns, Rows, Tabular
from faultlines.tree.path import clusters_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from os import PathLike

    from faultlines.comparison.base import Comparison
    from faultlines.comparison.custom import Similarity
    from faultlines.estimates.scales import FloatArray
    from faultlines.guarantees.base import Guarantee, Judged

_ON_A_PAGE = 1_000  # experiments in the overview of a page


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

    Example:
        >>> import faultlines as fl
        >>> button, font = fl.simulate.planted([0, 4], [5, 5]), fl.simulate.null(10)
        >>> many = fl.cluster_many({"button": button.estimates, "font": font.estimates})
        >>> many.rejected, many["button"].n_clusters
        (('button',), 2)
        >>> many.report("experiments.html")
    """

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

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> Clustering:
        """The whole result of one experiment, with its adjusted p and the clusters that stand."""
        if not isinstance(name, str) or name not in self.names:
            raise InputError(f"name={shorten(name)}", "no such experiment", did_you_mean(name, self.names))
        place = self.names.index(name)
        adjustment = self._adjustments[place]
        return Clustering.of(self._judged[place], self.guarantee, self.alpha, self.refine, adjustment=adjustment)

    @property
    def rejected(self) -> tuple[str, ...]:
        """The experiments in which clusters differ, the surest first."""
        found = np.flatnonzero(self.log_adjusted < np.log(self.alpha))
        return tuple(self.names[i] for i in found[np.argsort(self.log_pvalues[found], kind="stable")])

    def report(self, path: str | PathLike[str]) -> None:
        """Write one page over all experiments, with a part for each of the twenty surest; see `Clustering.report`.

        Args:
            path: Where to, such as ``"experiments.html"``.
        """
        need_report("report()")
        first = np.argsort(self.log_pvalues, kind="stable")[:_ON_A_PAGE].tolist()
        names = [self.names[i] for i in first]
        how = CORRECTIONS[self.correction]
        corrected_by = f"{len(self):,} experiments, corrected by {how} at α = {self.alpha:g}"
        note = f"{corrected_by}: clusters differ where the adjusted p is below α."
        write_page(
            [self[name] for name in names],
            names,
            path,
            note=note,
            left=len(self) - len(first),
            rejected=len(self.rejected),
        )

    def _columns(self, rows: Rows = "groups") -> Columns:
        checks.choice("rows", rows, ("groups",), "Results of many experiments have one kind of rows: leave it out.")
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
        if not shown:
            return f"{head} Smallest {text.p_is(float(self.log_pvalues.min()))}."
        rows = [
            [str(r["name"]), text.pvalue(adjusted[r["name"]]), str(r["n_clusters"]), str(r["n_groups"])] for r in shown
        ]
        rows += [[f"… {len(found) - 20:,} more", "", "", ""]] if len(found) > 20 else []
        table = text.table(["experiment", "adjusted p", "clusters", "groups"], rows, {1, 2, 3})
        return f"{head}\n\n{text.printable_lines(table)}"


def cluster_many(
    estimates_by_name: Mapping[str, Estimates | Similarity],
    *,
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
    with a seed of its own, made of `seed` and its name, which its result states.

    Args:
        estimates_by_name: The estimates (or a Similarity) of each.
        alpha: The chance of any false claim (``"holm"``), or the share of false ones among the claims (``"bh"``).
        guarantee: See `fl.cluster`.
        correction: ``"holm"`` or ``"bh"``.
        tolerance: See `fl.cluster`.
        refine: See `fl.cluster`.
        seed: Of everything random.

    Returns:
        The results, corrected for their number; ``many["name"]`` is the `Clustering` of one of them.

    Raises:
        InputError: If something else than names with estimates is given.

    Example:
        >>> import faultlines as fl
        >>> apart, alike = fl.Estimates([0.0, 9.0], [1.0, 1.0]), fl.Estimates([0.0, 0.5], [1.0, 1.0])
        >>> fl.cluster_many({"a": apart, "b": alike}).rejected
        ('a',)
    """
    alpha, refine, seed = checks.alpha(alpha), checks.flag("refine", refine), checks.seed(seed)
    chosen = guarantee_of(guarantee)
    checks.choice("correction", correction, CORRECTIONS, "Use 'holm' or 'bh'.")
    if not isinstance(estimates_by_name, Mapping) or not estimates_by_name:
        raise InputError(
            f"estimates_by_name={shorten(estimates_by_name)}", "is not names with estimates", "Give {name: estimates}."
        )
    comparisons = []
    for name, given in estimates_by_name.items():
        if not isinstance(name, str) or not (isinstance(given, Estimates) or is_comparison(given)):
            raise InputError(
                f"{shorten(name)}: {type(given).__name__}",
                "is not a name with its estimates",
                "Give {name: estimates}.",
            )
        comparisons.append(comparison_of(given, tolerance))
        chosen.check(alpha / len(estimates_by_name), comparisons[-1])
    judged = judged_all(list(estimates_by_name), comparisons, chosen, refine, seed)
    log_p = np.array([one.log_pvalue for one in judged])
    adjusted, levels = corrected(log_p, alpha, correction)
    how = adjustments(log_p, correction)
    return Many(tuple(estimates_by_name), log_p, adjusted, levels, alpha, correction, chosen, refine, judged, how)


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
