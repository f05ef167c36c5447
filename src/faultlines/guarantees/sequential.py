"""The paper's procedure while data still come in: every batch takes one step; between them the state is in a file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from faultlines import checks, text
from faultlines.comparison.choose import comparison_of
from faultlines.errors import InputError, shorten
from faultlines.estimates.labels import labels_of, name_of
from faultlines.guarantees import saved

if TYPE_CHECKING:
    from os import PathLike

    from faultlines.comparison.base import Comparison
    from faultlines.comparison.custom import Similarity
    from faultlines.estimates.estimates import Estimates
    from faultlines.estimates.labels import Label

_FORMAT = 1
Treatment = Literal["error", "ignore"]


@dataclass(frozen=True, slots=True)
class Step:
    """One batch: the adjusted p of "all clusters differ" on it, and the two clusters that were merged, if any.

    Attributes:
        pvalue: The adjusted p.
        merged: The two clusters; None where none were merged.

    Example:
        >>> import faultlines as fl
        >>> now = fl.Sequential().update(fl.Estimates([0.0, 0.1, 9.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> round(now.steps[0].pvalue, 2), now.steps[0].merged
        (1.0, (('DE',), ('FR',)))
    """

    pvalue: float
    merged: tuple[tuple[Label, ...], tuple[Label, ...]] | None


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a sequential procedure stands.

    Attributes:
        rejected: Whether "all groups are alike" has been rejected; then `clusters` differ.
        finished: Whether it is over: rejected, or everything merged into one.
        pvalue: Adjusted p so far: the number of groups times the least p of the steps taken, at most 1.
        clusters: The clusters so far, as labels.
        steps: What every batch did.
        ignored: What of the last batch was not used, and how many groups of it.
        alpha: The level.

    Example:
        >>> import faultlines as fl
        >>> daily = fl.Sequential()
        >>> now = daily.update(fl.Estimates([0.0, 9.0], [0.5, 0.5], ["DE", "IN"]))
        >>> now.rejected, now.finished, now.n_clusters, now.clusters
        (True, True, 2, (('DE',), ('IN',)))
    """

    rejected: bool
    finished: bool
    pvalue: float
    alpha: float
    clusters: tuple[tuple[Label, ...], ...]
    steps: tuple[Step, ...]
    ignored: dict[str, int]

    @property
    def n_clusters(self) -> int:
        """How many clusters there are so far; they are known to differ only once `rejected`."""
        return len(self.clusters)

    def __str__(self) -> str:
        groups = sum(map(len, self.clusters))
        basis = f"{text.p_is(float(np.log(self.pvalue)))}, sequential, α = {self.alpha:g}"
        lines = [f"Batch {len(self.steps)}: no decision yet, {self.n_clusters} clusters of {groups} groups ({basis})."]
        if self.rejected:
            lines = [
                f"{self.n_clusters} clusters of {groups} groups differ ({basis}), after {len(self.steps)} batches."
            ]
        elif self.finished:
            lines = [f"No difference between {groups} groups can be claimed ({basis}); all are merged."]
        for i, cluster in enumerate(self.clusters if self.rejected else ()):
            lines.append(f"  {i + 1}: {text.members(cluster, name_of, 90)}")
        lines += [f"  Left out of this batch: {count} {why}." for why, count in self.ignored.items()]
        return "\n".join(lines)


@dataclass(slots=True)
class Sequential:
    """Algorithm 1 fed by batches as they arrive, each used for one step: test all clusters, or merge the nearest two.

    A batch is one day's estimates of all groups, independent of the batches before. Each step tests at α/K, so the
    chance of ever claiming clusters where there are none is α (the paper's theorem). This is `fl.Folds` in time. It
    pays with nearly all of its power: it detects 1% of the splits of which one look at all the data detects 80%.
    `fl.Monitor` looks at all data so far every day, and detects nearly as many as that one look.

    Args:
        alpha: The accepted chance of claiming a difference where there is none.
        tolerance: For estimates: see `fl.cluster`.

    Example:
        >>> import faultlines as fl
        >>> daily = fl.Sequential()
        >>> for _ in range(2):
        ...     now = daily.update(fl.Estimates([0.0, 0.1, 9.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> daily.decision.rejected, daily.decision.clusters
        (True, (('DE', 'FR'), ('IN',)))
        >>> daily.save("state.json")
        >>> fl.Sequential.load("state.json").decision == fl.Sequential.from_json(daily.to_json()).decision
        True
    """

    alpha: float = 0.05
    tolerance: float = 0.0
    _labels: tuple[Label, ...] = ()
    _clusters: list[int] = field(default_factory=list)
    _steps: list[Step] = field(default_factory=list)
    _ignored: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.alpha = checks.alpha(self.alpha)
        problem = "must be a number, 0 or more"
        self.tolerance = checks.number("tolerance", self.tolerance, problem, "Use for example 0.01.", low=0)

    @property
    def decision(self) -> Decision:
        """Where the procedure stands."""
        pvalue = min([1.0, *(step.pvalue for step in self._steps)])
        count = max(self._clusters, default=-1) + 1
        clusters = tuple(
            tuple(label for label, c in zip(self._labels, self._clusters, strict=True) if c == cluster)
            for cluster in range(count)
        )
        rejected = pvalue < self.alpha
        finished = rejected or (bool(self._steps) and count == 1)
        return Decision(rejected, finished, pvalue, self.alpha, clusters, tuple(self._steps), dict(self._ignored))

    def update(
        self, batch: Estimates | Similarity, *, missing: Treatment = "error", new: Treatment = "error"
    ) -> Decision:
        """Take one step with one batch. Once there is a decision, further batches change nothing.

        Args:
            batch: Estimates (or a Similarity) of the groups, from data that no earlier batch has seen.
            missing: When groups of the first batch are missing: ``"error"``, or ``"ignore"`` to use the others. A
                cluster without any data in the batch cannot be told from the rest, so such a batch cannot reject.
            new: When there are groups the first batch did not have: ``"error"``, or ``"ignore"`` to leave them out.

        Returns:
            Where the procedure stands after the batch.

        Raises:
            InputError: If the groups are not those of the first batch, and nothing was said about it.
        """
        for name, value in (("missing", missing), ("new", new)):
            checks.choice(name, value, ("error", "ignore"), "Use 'error' or 'ignore'.")
        groups = comparison_of(batch, self.tolerance)
        if not self._labels:
            if len(groups) < 2:
                raise InputError("batch", "has one group", "There is nothing to compare.")
            groups.most_similar(np.arange(len(groups)))  # a batch that cannot be used does not fix the groups
            self._labels, self._clusters = tuple(labels_of(groups.keys)), list(range(len(groups)))
        if self.decision.finished:
            return self.decision
        groups, clusters = self._aligned(groups, missing, new)
        present = np.unique(clusters)
        if present.size < 2:
            raise InputError("batch", "has data of one cluster only", "Give a batch with more of the groups.")
        pair = groups.most_similar(np.searchsorted(present, clusters))
        whole = present.size == max(self._clusters) + 1
        p = min(1.0, float(np.exp(pair.log_p)) * len(self._labels)) if whole else 1.0
        a, b = sorted((int(present[pair.a]), int(present[pair.b])))
        merged = None
        if p >= self.alpha:
            members = self.decision.clusters
            merged = (members[a], members[b])
            self._clusters = [a if c == b else c - (c > b) for c in self._clusters]
        self._steps.append(Step(max(p, 5e-324), merged))
        return self.decision

    def _aligned(self, groups: Comparison, missing: Treatment, new: Treatment) -> tuple[Comparison, Any]:
        """The batch narrowed to the groups that are known, and the cluster of each."""
        known = {saved.key(label): cluster for label, cluster in zip(self._labels, self._clusters, strict=True)}
        labels = labels_of(groups.keys)
        keys = [saved.key(label) for label in labels]
        present = set(keys)
        fresh = [name_of(label) for label, key in zip(labels, keys, strict=True) if key not in known]
        absent = [name_of(label) for label in self._labels if saved.key(label) not in present]
        for names, treatment, what in ((absent, missing, "missing"), (fresh, new, "new")):
            if names and treatment == "error":
                shown = ", ".join(repr(name) for name in names[:3]) + (", …" if len(names) > 3 else "")
                raise InputError(
                    f"batch: {len(names)} {what} groups ({shown})",
                    "the groups are not those of the first batch",
                    f"Correct the batch, or say {what}='ignore'.",
                )
        self._ignored = {f"{what} groups": len(n) for n, what in ((absent, "missing"), (fresh, "new")) if n}
        keep = np.array([key in known for key in keys])
        if not keep.any():
            raise InputError("batch", "has none of the known groups", "Give a batch of the same groups.")
        return groups if keep.all() else groups.subset(keep), np.array([known[key] for key in keys if key in known])

    # ----------------------------------------------------------------------------------------------------- between runs

    def to_json(self) -> str:
        """The state as text.

        Returns:
            JSON, for `from_json`.
        """
        return json.dumps(
            {
                "faultlines_sequential": _FORMAT,
                "alpha": self.alpha,
                "tolerance": self.tolerance,
                "labels": [saved.plain(label) for label in self._labels],
                "clusters": self._clusters,
                "steps": [
                    {
                        "pvalue": step.pvalue,
                        "merged": step.merged and [[saved.plain(g) for g in c] for c in step.merged],
                    }
                    for step in self._steps
                ],
                "ignored": self._ignored,
            },
            indent=1,
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, state: str) -> Sequential:
        """The procedure from its state.

        Args:
            state: What `to_json` gave.

        Returns:
            A procedure that goes on from there.

        Raises:
            InputError: If it is no such state.
        """
        with saved.reading("Sequential"):
            read = json.loads(state)
            saved.version(read["faultlines_sequential"], _FORMAT)
            made = cls(alpha=read["alpha"], tolerance=read["tolerance"])
            made._labels = saved.labels(read["labels"])
            made._steps = [_step(step) for step in saved.typed(read["steps"], list)]
            made._clusters = made._replayed()
            clusters = [saved.typed(c, int) for c in saved.typed(read["clusters"], list)]
            if clusters != made._clusters:
                raise ValueError("clusters do not fit the labels and steps")
            made._ignored = {why: saved.typed(count, int) for why, count in saved.typed(read["ignored"], dict).items()}
            if min(made._ignored.values(), default=0) < 0:
                raise ValueError("less than no groups ignored")
        return made

    def _replayed(self) -> list[int]:
        """The cluster of each label after the steps, from single groups on."""
        places = {saved.key(label): i for i, label in enumerate(self._labels)}
        if len(places) != len(self._labels) or len(places) == 1:
            raise ValueError("labels are not those of different groups")
        clusters = list(range(len(places)))
        members = [[i] for i in clusters]
        for i, step in enumerate(self._steps):
            if (step.merged is None) != (step.pvalue < self.alpha):
                raise ValueError("a step merges although it rejects, or does neither")
            if step.merged is None:
                if i < len(self._steps) - 1 or not clusters:
                    raise ValueError("a step after the decision, or without groups")
                continue
            first, second = ([places[saved.key(label)] for label in cluster] for cluster in step.merged)
            a, b = clusters[first[0]], clusters[second[0]]
            if not a < b or members[a] != first or members[b] != second:
                raise ValueError("a step merges what are not two clusters")
            members[a] = sorted(members[a] + members.pop(b))
            clusters = [a if c == b else c - (c > b) for c in clusters]
        return clusters

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a file, whole or not at all: an interrupted write leaves the old one as it was.

        Args:
            path: Where to.

        Raises:
            InputError: If it cannot be written.
        """
        saved.write(path, self.to_json())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Sequential:
        """Go on from a file.

        Args:
            path: A file that `save` wrote.

        Returns:
            A procedure that goes on from there.

        Raises:
            InputError: If it cannot be read, or is no such file.
        """
        return cls.from_json(saved.read(path))


def _step(read: Any) -> Step:
    pvalue, merged = read["pvalue"], read["merged"]
    if type(pvalue) not in (int, float) or not 0 < pvalue <= 1:
        raise ValueError(f"a p-value is none: {shorten(pvalue)}")
    if merged is None:
        return Step(float(pvalue), None)
    first, second = (saved.labels(cluster) for cluster in saved.typed(merged, list))
    if not first or not second:
        raise ValueError("a step merges nothing")
    return Step(float(pvalue), (first, second))
