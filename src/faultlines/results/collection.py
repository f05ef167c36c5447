"""Several clusterings with one correction for their number: what `fl.cluster_many` returns, and audits build on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from faultlines.core.tree import count_clusters
from faultlines.errors import InputError, did_you_mean
from faultlines.estimates.estimates import Excluded
from faultlines.estimates.labels import name_of
from faultlines.estimates.reasons import DropCode
from faultlines.guarantees.base import Guarantee, GuaranteedPath
from faultlines.metrics.readout import Readout
from faultlines.metrics.table import Adverse
from faultlines.results.clustering import Clustering
from faultlines.results.multiplicity import AdjustedPath, Adjustment, Correction
from faultlines.results.protocol import Columns, Rows, TabularResult, probability, stack_columns
from faultlines.rows.keys import Bins
from faultlines.types import FloatArray

Verdict = Literal["differ", "no difference", "not testable"]


class Collection(TabularResult):
    """Named clusterings, corrected for their number; ``collection["name"]`` is one of them."""

    wording: ClassVar[str] = "collection"
    json_keys: ClassVar[str] = "verdict headline alpha correction rejected notes"
    noun: ClassVar[str]  # what its results are called
    alpha: float  # the significance level over all of them
    correction: Correction  # how p are adjusted for their number

    if TYPE_CHECKING:  # fields in some collections, properties in others

        @property
        def names(self) -> tuple[str, ...]:
            """What the results are called; no two are called the same."""

        @property
        def log_pvalues(self) -> FloatArray:
            """Natural logarithm of each one's own p of "all groups are equal"."""

        @property
        def log_pvalues_adj(self) -> FloatArray:
            """The same, adjusted for their number."""

    @abstractmethod
    def result_at(self, place: int) -> Clustering:
        """The result at a place.

        Args:
            place: Its place among the names.

        Returns:
            The result, with adjusted p and the clusters that are reported.
        """

    @property
    @abstractmethod
    def group_counts(self) -> list[int]:
        """How many groups each result compares."""

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> Clustering:
        """The whole result of a name."""
        place = self._places.get(name) if isinstance(name, str) else None
        if place is None:
            raise InputError.not_found(
                "name", f"no such {self.noun}", did_you_mean(name, self.names), name, form="clause"
            )
        return self.result_at(place)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def __repr__(self) -> str:
        counts = f"{len(self.rejected)} of {len(self)} {self.noun}s differ"
        return f"<{type(self).__name__}: {counts}, {self.correction}, α = {self.alpha:g}>"

    @property
    def verdict(self) -> Verdict:
        """``"differ"`` where groups differ in one result or more; ``"not testable"`` where none has two groups."""
        if max(self.group_counts) < 2:
            return "not testable"
        return "differ" if self.rejected else "no difference"

    @property
    def rejected(self) -> tuple[str, ...]:
        """The results in which clusters differ, the surest first."""
        names, log_p = self.names, self.log_pvalues_adj  # each is formed of all results
        surest_first = np.argsort(self.log_pvalues, kind="stable").tolist()
        return tuple(names[i] for i in surest_first if log_p[i] < np.log(self.alpha))


def unique_names(names: Sequence[str]) -> list[str]:
    """The names, those that occur again with a number behind them, so that each is a key of its own."""
    originals, unique = set(names), list[str]()
    seen: set[str] = set()
    for name in names:
        candidate, number = name, 1
        while candidate in seen or (number > 1 and candidate in originals):
            number += 1
            candidate = f"{name} ({number})"
        seen.add(candidate)
        unique.append(candidate)
    return unique


# -------------------------------------------------------------------------------------------------- many experiments


class Experiment(NamedTuple):
    """What is kept of one of many experiments; its clustering follows from it.

    Attributes:
        judged: What the error control says about its groups.
        adjustment: How its p are adjusted for the number of experiments.
        excluded: Its excluded groups.
        dropped: Reason → number of its dropped rows.
        by: The attributes.
        readout: The moments behind its estimates, where rows were given.
    """

    judged: GuaranteedPath
    adjustment: Adjustment
    excluded: tuple[Excluded, ...] = ()
    dropped: Mapping[DropCode, int] | None = None
    by: tuple[str | Bins, ...] | None = None
    readout: Readout | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Experiments(Collection):
    """Results of many experiments, corrected for their number: what `fl.cluster_many` returns.

    ``experiments["name"]`` is the `Clustering` of one of them, computed when it is asked for.

    Attributes:
        names: The experiments.
        log_pvalues: Natural logarithm of each one's own p of "all groups are equal".
        log_pvalues_adj: The same, adjusted for the number of experiments.
        levels: The significance level that each one's own p is compared with.
        alpha: The significance level over all of them, of adjusted p and of intervals.
        correction: ``"holm"``: the probability of any false positive is α. ``"bh"``: of the experiments with reported
            differences, a share of α is false on average (for independent experiments).
        guarantee: The error control.
        refine: Whether groups at a border were moved to the cluster of nearest estimate.
        experiments: What is kept of each of them.
        excluded: Experiments excluded because none of their groups can be used, each with its reason. Excluded groups
            of the others are in ``experiments["name"].excluded``.
        dropped: Reason → number of dropped rows, of all experiments.

    Example:
        >>> import faultlines as fl
        >>> button, font = fl.simulate.planted([0, 4], [5, 5]), fl.simulate.null(10)
        >>> experiments = fl.cluster_many({"button": button.estimates, "font": font.estimates})
        >>> experiments.verdict, experiments.rejected, experiments["button"].n_clusters
        ('differ', ('button',), 2)
        >>> [(row["name"], row["n_groups"], row["rejected"]) for row in experiments.to_dicts()]
        [('button', 10, True), ('font', 10, False)]
        >>> experiments.report("experiments.html")
    """

    row_kinds: ClassVar[tuple[Rows, ...]] = ("experiments", "groups", "clusters")
    json_keys: ClassVar[str] = (
        f"{Collection.json_keys} guarantee n_experiments experiments groups clusters excluded dropped"
    )
    noun: ClassVar[str] = "experiment"

    names: tuple[str, ...]
    log_pvalues: FloatArray
    log_pvalues_adj: FloatArray
    levels: FloatArray
    alpha: float
    correction: Correction
    guarantee: Guarantee
    refine: bool
    experiments: tuple[Experiment, ...]
    excluded: tuple[Excluded, ...] = ()
    dropped: Mapping[DropCode, int] = field(default_factory=dict)

    def result_at(self, place: int) -> Clustering:
        """The result at a place.

        Args:
            place: Its place among the names.

        Returns:
            The result, with adjusted p and the clusters that are reported.
        """
        experiment = self.experiments[place]._asdict()
        return Clustering.of(guarantee=self.guarantee, alpha=self.alpha, refine=self.refine, **experiment)

    @property
    def group_counts(self) -> list[int]:
        """How many groups each experiment compares."""
        return [len(experiment.judged.reported) for experiment in self.experiments]

    def columns(self, rows: Rows) -> Columns:
        """The columns of its experiments, or of the groups or clusters of all of them.

        Args:
            rows: ``"experiments"``, ``"groups"`` or ``"clusters"``.

        Returns:
            Column → values.
        """
        if rows != "experiments":
            return stack_columns(
                "experiment", [(name, self.result_at(i).columns(rows)) for i, name in enumerate(self.names)]
            )
        log_alpha = float(np.log(self.alpha))
        paths = [
            AdjustedPath(experiment.judged.path_at(self.alpha), experiment.adjustment)
            for experiment in self.experiments
        ]
        return {
            "name": list(self.names),
            "n_groups": self.group_counts,
            "pvalue": [probability(p) for p in self.log_pvalues],
            "pvalue_adj": [probability(p) for p in self.log_pvalues_adj],
            "rejected": (self.log_pvalues_adj < log_alpha).tolist(),
            "n_clusters": [count_clusters(path, log_alpha) for path in paths],
            "level": self.levels.tolist(),
            **self._spreads,
        }

    @cached_property
    def _spreads(self) -> Columns:
        """How far the groups of each experiment spread, and the clusters it has at least; with rows alone, not text."""
        results = [self.result_at(i) for i in range(len(self))]
        spreads = [result.spread for result in results]
        return {
            "spread": [None if spread is None else spread.estimate for spread in spreads],
            "spread_lower": [None if spread is None else spread.lower for spread in spreads],
            "spread_upper": [None if spread is None else spread.upper for spread in spreads],
            "at_least": [result.at_least for result in results],
        }

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        command: str | None = None,
        adverse: Adverse | Mapping[str, Adverse] | None = None,
    ) -> None:
        """Write one page over all results, with a part for each of the twenty surest; see `Clustering.report`.

        Args:
            path: Where to, such as ``"audit.html"``.
            title: What stands at its head.
            command: What reproduces it, to be said on the page.
            adverse: The harmful direction, for all or by name; see `Clustering.report`.

        Raises:
            InputError: If the extra ``report`` is not installed, or the file cannot be written.
        """
        from faultlines.render.page import write_report

        write_report(self, path, title=title, command=command, adverse=adverse)

    def _plain_values(self) -> dict[str, Any]:
        from faultlines.render.data import overall_effect

        return {
            "guarantee": self.guarantee.name,
            "n_experiments": len(self),
            "experiments": [
                row | {"overall": overall_effect(self.result_at(i))}
                for i, row in enumerate(self.to_dicts("experiments"))
            ],
            "excluded": [
                {"experiment": name_of(experiment.label), "reason": str(experiment.reason)}
                for experiment in self.excluded
            ],
        }
