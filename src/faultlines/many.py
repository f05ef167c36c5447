"""Thousands of experiments or metrics at once, with one correction over all of them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines import text
from faultlines.calibration import MANY_GROUPS, calibrated_many, draws_for, in_order
from faultlines.clustering import (
    Clustering,
    Correction,
    check_resolution,
    checked_alpha,
    checked_refine,
    checked_seed,
    clustered,
    column_library,
    corrected,
    need_report,
)
from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.estimates import Estimates
from faultlines.guarantees import Calibrated, Guarantee, Judged, Judgement, guarantee_of
from faultlines.hierarchy import agglomerate, notion_of
from faultlines.progress import progress
from faultlines.similarity import Gaussian, Similarity

_ON_A_PAGE = 1_000  # experiments in the overview of a page
_HOW = {"holm": "Holm", "bh": "Benjamini–Hochberg"}

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from faultlines.estimates import FloatArray
    from faultlines.similarity import Notion


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Many:
    """Results of many experiments, corrected for their number. ``many["name"]`` is the `Clustering` of one of them.

    Attributes:
        names: The experiments.
        log_pvalues: Natural logarithm of each one's own p of "all groups are alike".
        log_adjusted: The same, adjusted for the number of experiments.
        levels: The level at which each is cut.
        alpha: The level over all of them.
        correction: ``"holm"``: the chance of any false claim is α. ``"bh"``: of the experiments with claims, a share
            of α is false on average (for independent experiments).
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

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> Clustering:
        """The whole result of one experiment, cut at its level."""
        if name not in self.names:
            raise InputError(f"name={shorten(name)}", "no such experiment", did_you_mean(str(name), self.names))
        place = self.names.index(name)
        judged, level = self._judged[place], float(self.levels[place])
        return clustered(judged, self.guarantee, level, self.refine, (), {}, judged.reported.attributes)

    @property
    def rejected(self) -> tuple[str, ...]:
        """The experiments in which clusters differ, the surest first."""
        found = np.flatnonzero(self.log_pvalues < np.log(self.levels))
        return tuple(self.names[i] for i in found[np.argsort(self.log_pvalues[found], kind="stable")])

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary an experiment."""
        columns = self._columns()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_pandas(self) -> pd.DataFrame:
        """One row an experiment, as a pandas frame."""
        made: pd.DataFrame = column_library("pandas").DataFrame(self._columns())
        return made

    def to_polars(self) -> pl.DataFrame:
        """One row an experiment, as a Polars frame."""
        made: pl.DataFrame = column_library("polars").DataFrame(self._columns(), strict=False)
        return made

    def to_arrow(self) -> pa.Table:
        """One row an experiment, as an Arrow table."""
        made: pa.Table = column_library("pyarrow").table(self._columns())
        return made

    def report(self, path: str | PathLike[str]) -> None:
        """Write one page over all experiments, with a part for each of the twenty surest; see `Clustering.report`."""
        need_report("report()")
        from faultlines import report

        first = np.argsort(self.log_pvalues, kind="stable")[:_ON_A_PAGE].tolist()
        names = [self.names[i] for i in first]
        how = _HOW[self.correction]
        note = f"{len(self):,} experiments, corrected by {how} at α = {self.alpha:g}: each has a threshold of its own."
        report.write(
            [self[name] for name in names], names, report.checked(path), note=note, left=len(self) - len(first)
        )

    def _columns(self) -> dict[str, list[Any]]:
        smallest = np.nextafter(0.0, 1.0)
        cut = np.log(self.levels)
        n_clusters = [
            1 + int(np.sum(judged.judgement.log_pvalues < level))
            for judged, level in zip(self._judged, cut, strict=True)
        ]
        return {
            "name": list(self.names),
            "n_groups": [len(judged.reported) for judged in self._judged],
            "pvalue": np.maximum(np.exp(self.log_pvalues), smallest).tolist(),
            "adjusted_pvalue": np.maximum(np.exp(self.log_adjusted), smallest).tolist(),
            "rejected": (self.log_pvalues < cut).tolist(),
            "n_clusters": n_clusters,
            "level": self.levels.tolist(),
        }

    def __repr__(self) -> str:
        return f"<Many: {len(self.rejected)} of {len(self)} experiments differ, {self.correction}, α = {self.alpha:g}>"

    def __str__(self) -> str:
        found = self.rejected
        how = _HOW[self.correction]
        basis = f"{how}, {self.guarantee.name}, α = {self.alpha:g}"
        head = f"Clusters differ in {len(found):,} of {len(self):,} experiments ({basis})."
        by_name = {row["name"]: row for row in self.to_dicts()}
        adjusted = dict(zip(self.names, self.log_adjusted.tolist(), strict=True))
        shown = [by_name[name] for name in found[:20]]
        if not shown:
            return f"{head} Smallest p: {text.pvalue(float(self.log_pvalues.min()))}."
        rows = [
            [str(r["name"]), text.pvalue(adjusted[r["name"]]), str(r["n_clusters"]), str(r["n_groups"])] for r in shown
        ]
        rows += [[f"… {len(found) - 20:,} more", "", "", ""]] if len(found) > 20 else []
        return f"{head}\n\n{text.table(['experiment', 'adjusted p', 'clusters', 'groups'], rows, {1, 2, 3})}"


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
    which of them stand, and at which level each is cut. Guarantees that split data at random do so in each experiment
    with a seed of its own, made of `seed` and its name, which its result states.

    Args:
        estimates_by_name: The estimates (or a Similarity) of each.
        alpha: The chance of any false claim (``"holm"``), or the share of false ones among the claims (``"bh"``).
        guarantee: See `fl.cluster`.
        correction: ``"holm"`` or ``"bh"``.
        tolerance: See `fl.cluster`.
        refine: See `fl.cluster`.
        seed: Of everything random.
    """
    alpha, refine, seed = checked_alpha(alpha), checked_refine(refine), checked_seed(seed)
    chosen = guarantee_of(guarantee)
    chosen.check(alpha)
    if correction not in ("holm", "bh"):
        raise InputError(f"correction={shorten(correction)}", "is not known", "Use 'holm' or 'bh'.")
    if not isinstance(estimates_by_name, Mapping) or not estimates_by_name:
        raise InputError(
            f"estimates_by_name={shorten(estimates_by_name)}", "is not names with estimates", "Give {name: estimates}."
        )
    notions = []
    for name, estimates in estimates_by_name.items():
        if not isinstance(name, str) or not isinstance(estimates, Estimates | Similarity):
            raise InputError(
                f"{shorten(name)}: {type(estimates).__name__}",
                "is not a name with its estimates",
                "Give {name: estimates}.",
            )
        notions.append(notion_of(estimates, tolerance))
        check_resolution(chosen, notions[-1], alpha / len(estimates_by_name))
    judged = _judged(list(estimates_by_name), notions, chosen, refine, seed)
    log_p = np.array([float(one.judgement.log_pvalues.min(initial=0.0)) for one in judged])
    adjusted, levels = corrected(log_p, alpha, correction)
    return Many(tuple(estimates_by_name), log_p, adjusted, levels, alpha, correction, chosen, refine, judged)


def _judged(
    names: Sequence[str], notions: Sequence[Notion], guarantee: Guarantee, refine: bool, seed: int
) -> list[Judged]:
    """Every experiment judged: where it can be, in one compiled pass for each number of groups, else on its own."""
    made: dict[int, Judged] = {}
    with progress("clustering experiments", len(notions)) as advance:
        together: dict[int, list[int]] = {}
        if isinstance(guarantee, Calibrated) and not guarantee.stepdown:
            for i, notion in enumerate(notions):
                if _is_plain(notion):
                    together.setdefault(len(notion), []).append(i)
        for places in together.values():
            alike = [notion for notion in (notions[i] for i in places) if isinstance(notion, Gaussian)]
            trees = [agglomerate(notion) for notion in alike]
            draws = guarantee.draws or draws_for(alike[0])  # type: ignore[union-attr]
            found = calibrated_many(alike, [tree.gap_heights for tree in trees], draws, seed, advance)
            for i, notion, tree, (log_p, drawn) in zip(places, alike, trees, found, strict=True):
                made[i] = Judged(tree, Judgement(log_p, {"draws": drawn, "seed": seed}), notion, notion)
        others = [i for i in range(len(notions)) if i not in made]

        def alone(number: int) -> Judged:
            i = others[number]
            if isinstance(guarantee, Calibrated):
                return guarantee.judge(notions[i], seed, refine=refine, cores=1)
            own = zlib.crc32(names[i].encode("utf-8", "surrogatepass"))
            return guarantee.judge(notions[i], seed + own, refine=refine)

        for i, one in zip(others, in_order(alone, len(others)) if others else (), strict=True):
            made[i] = one
            advance(1)
    return [made[i] for i in range(len(notions))]


def _is_plain(notion: Notion) -> bool:
    """Whether the compiled pass can take it: one effect, known standard errors, no tolerance, a few dozen groups."""
    return (
        isinstance(notion, Gaussian)
        and notion.estimates.dims == 1
        and notion.estimates.dof is None
        and notion.tolerance == 0
        and 2 <= len(notion) <= MANY_GROUPS
    )
