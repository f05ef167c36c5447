"""The paper's procedure while data still come in: every batch takes one step; between them the state is in a file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from faultlines import checks, files, text
from faultlines.comparison.choose import comparison_of
from faultlines.errors import InputError, shorten
from faultlines.estimates.labels import key_of, labels_of, name_of

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
    """One batch: the adjusted p of "all clusters differ" on it, and the two clusters that were merged, if any."""

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
    chance of ever claiming clusters where there are none is α (the paper's theorem). This is `fl.Folds` in time.

    Args:
        alpha: The accepted chance of claiming a difference where there is none.
        tolerance: For estimates: see `fl.cluster`.
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
        known = {_key(label): cluster for label, cluster in zip(self._labels, self._clusters, strict=True)}
        labels = labels_of(groups.keys)
        keys = [_key(label) for label in labels]
        present = set(keys)
        fresh = [name_of(label) for label, key in zip(labels, keys, strict=True) if key not in known]
        absent = [name_of(label) for label in self._labels if _key(label) not in present]
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
        """The state as text."""
        return json.dumps(
            {
                "faultlines_sequential": _FORMAT,
                "alpha": self.alpha,
                "tolerance": self.tolerance,
                "labels": [_plain(label) for label in self._labels],
                "clusters": self._clusters,
                "steps": [
                    {"pvalue": step.pvalue, "merged": step.merged and [[_plain(g) for g in c] for c in step.merged]}
                    for step in self._steps
                ],
                "ignored": self._ignored,
            },
            indent=1,
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, state: str) -> Sequential:
        """The procedure from its state."""
        try:
            read = json.loads(state)
            if read["faultlines_sequential"] != _FORMAT:
                raise InputError(
                    f"state of format {read['faultlines_sequential']!r}", "is of another version", "Use that version."
                )
            made = cls(alpha=read["alpha"], tolerance=read["tolerance"])
            made._labels = tuple(_label(label) for label in read["labels"])
            made._clusters = [int(c) for c in read["clusters"]]
            made._steps = [
                Step(
                    float(step["pvalue"]),
                    step["merged"] and tuple(tuple(_label(g) for g in c) for c in step["merged"]),
                )
                for step in read["steps"]
            ]
            made._ignored = {str(why): int(count) for why, count in read["ignored"].items()}
            size = len(made._labels)
            sound = size == len(made._clusters) == len(set(map(_key, made._labels))) and len(made._steps) < max(size, 1)
            distinct = set(made._clusters)
            if not sound or (size and (min(distinct) != 0 or max(distinct) != len(distinct) - 1)):
                raise ValueError("clusters do not fit the labels")
            if not all(0 < step.pvalue <= 1 for step in made._steps):
                raise ValueError("a p-value is none")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("state", f"is not a saved Sequential ({error})", "Give what save() wrote.") from error
        return made

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a file, whole or not at all: an interrupted write leaves the old one as it was."""
        files.write("path", files.target("path", path), self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Sequential:
        """Go on from a file."""
        try:
            state = Path(path).read_text(encoding="utf-8")
        except (OSError, TypeError, ValueError) as error:
            shown = getattr(error, "strerror", None) or "not text"
            raise InputError(f"path={shorten(path)}", f"cannot be read ({shown})", "Give what save() wrote.") from error
        return cls.from_json(state)


def _key(label: Label) -> str:
    """A label as text that is the same before and after a file, and not that of any other label."""
    return json.dumps(_plain(label), ensure_ascii=False)


def _plain(label: Label) -> Any:
    parts = [part if isinstance(part, str | int | float | bool) else str(part) for part in key_of(label)]
    return parts if isinstance(label, tuple) else parts[0]


def _label(read: Any) -> Label:
    made: Label = tuple(read) if isinstance(read, list) else read
    return made
