"""The paper's procedure while data come in: every batch takes one step, test all clusters or merge the nearest two.

Each step tests at α/K on data that no earlier step has used, so the probability of ever reporting a difference where
there is none is at most α (the paper's theorem). This is `fl.Folds` in time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from faultlines.core.choose import as_comparison
from faultlines.errors import InputError
from faultlines.estimates.labels import labels_of, name_of
from faultlines.guarantees.state import check_counts, check_number, check_type, label_key, plain_label, read_labels

if TYPE_CHECKING:
    from faultlines.core.comparison import Comparison
    from faultlines.core.custom import Similarity
    from faultlines.estimates.estimates import Estimates, IntArray
    from faultlines.estimates.labels import Label

Treatment = Literal["error", "ignore"]
_SMALLEST = 5e-324  # the smallest p that a double can hold


class FoldStep(NamedTuple):
    """One batch.

    Attributes:
        pvalue: p of "all clusters differ" on it, times the number of groups; at most 1.
        merged: The two clusters that were merged; None where the step rejects.
    """

    pvalue: float
    merged: tuple[tuple[Label, ...], tuple[Label, ...]] | None

    def to_plain(self) -> dict[str, Any]:
        """The step as JSON has it."""
        merged = self.merged and [[plain_label(label) for label in cluster] for cluster in self.merged]
        return {"pvalue": self.pvalue, "merged": merged}

    @classmethod
    def from_plain(cls, value: Any) -> FoldStep:
        """The step from what JSON had."""
        pvalue = check_number(value["pvalue"], _SMALLEST, 1)
        if value["merged"] is None:
            return cls(pvalue, None)
        first, second = (read_labels(cluster) for cluster in check_type(value["merged"], list))
        if not first or not second:
            raise ValueError("a step merges nothing")
        return cls(pvalue, (first, second))


@dataclass(frozen=True, eq=False)
class SequentialFolds:
    """The state of the procedure after some batches; a step gives a new one.

    Attributes:
        alpha: The significance level.
        tolerance: How far apart effects may be and still count as similar.
        labels: The groups of the first batch.
        steps: What every batch did.
        ignored: Groups of the last batch that were not used, by code: ``"missing"``, ``"new"``.
    """

    alpha: float
    tolerance: float = 0.0
    labels: tuple[Label, ...] = ()
    steps: tuple[FoldStep, ...] = ()
    ignored: dict[str, int] = field(default_factory=dict)

    @cached_property
    def assignment(self) -> list[int]:
        """The cluster of each label after the steps, from single groups on.

        Raises:
            ValueError: If the steps do not follow from each other.
        """
        places = {label_key(label): i for i, label in enumerate(self.labels)}
        if len(places) != len(self.labels) or len(places) == 1:
            raise ValueError("labels are not those of different groups")
        assignment = list(range(len(places)))
        members = [[i] for i in assignment]
        for number, step in enumerate(self.steps):
            if (step.merged is None) != (step.pvalue < self.alpha):
                raise ValueError("a step merges although it rejects, or does neither")
            if step.merged is None:
                if number < len(self.steps) - 1 or not assignment:
                    raise ValueError("a step after the end, or without groups")
                continue
            first, second = ([places[label_key(label)] for label in cluster] for cluster in step.merged)
            a, b = assignment[first[0]], assignment[second[0]]
            if not a < b or members[a] != first or members[b] != second:
                raise ValueError("a step merges what are not two clusters")
            members[a] = sorted(members[a] + members.pop(b))
            assignment = [a if c == b else c - (c > b) for c in assignment]
        return assignment

    @property
    def clusters(self) -> tuple[tuple[Label, ...], ...]:
        """The clusters so far."""
        count = max(self.assignment, default=-1) + 1
        pairs = list(zip(self.labels, self.assignment, strict=True))
        return tuple(tuple(label for label, c in pairs if c == cluster) for cluster in range(count))

    @property
    def pvalue(self) -> float:
        """The smallest p of the steps, each times the number of groups."""
        return min([1.0, *(step.pvalue for step in self.steps)])

    @property
    def rejected(self) -> bool:
        """Whether a step has rejected: then the clusters differ."""
        return self.pvalue < self.alpha

    @property
    def finished(self) -> bool:
        """Whether it is over: rejected, or everything merged into one cluster."""
        return self.rejected or (bool(self.steps) and len(self.clusters) == 1)

    def take(
        self, batch: Estimates | Similarity, *, missing: Treatment = "error", new: Treatment = "error"
    ) -> SequentialFolds:
        """The state after one more batch.

        Args:
            batch: The groups, from data that no earlier batch has used.
            missing: What to do where groups of the first batch are missing.
            new: What to do with groups the first batch did not have.

        Returns:
            The next state; the same where the procedure is over.

        Raises:
            InputError: If the groups are not those of the first batch, and nothing was said about it.
        """
        groups = as_comparison(batch, self.tolerance)
        state = self
        if not self.labels:
            if len(groups) < 2:
                raise InputError.too_few("estimates", "has one group", "There is nothing to compare.")
            groups.most_similar_pair(np.arange(len(groups)))  # a batch that cannot be used does not fix the groups
            state = replace(self, labels=tuple(labels_of(groups.keys)))
        if state.finished:
            return state
        groups, assignment, ignored = state._align(groups, missing, new)
        present = np.unique(assignment)
        if present.size < 2:
            raise InputError.too_few(
                "estimates", "has data of one cluster only", "Give a batch with more of the groups."
            )
        pair = groups.most_similar_pair(np.searchsorted(present, assignment))
        # A cluster without data cannot be distinguished from the rest: such a batch cannot reject.
        has_all = present.size == max(state.assignment) + 1
        pvalue = min(1.0, float(np.exp(pair.log_p)) * len(state.labels)) if has_all else 1.0
        a, b = sorted((int(present[pair.a]), int(present[pair.b])))
        merged = (state.clusters[a], state.clusters[b]) if pvalue >= self.alpha else None
        step = FoldStep(max(pvalue, _SMALLEST), merged)
        return replace(state, steps=(*state.steps, step), ignored=ignored)

    def _align(
        self, groups: Comparison, missing: Treatment, new: Treatment
    ) -> tuple[Comparison, IntArray, dict[str, int]]:
        """The batch narrowed to the groups of the first one, the cluster of each, and what was ignored."""
        cluster_of = {label_key(label): cluster for label, cluster in zip(self.labels, self.assignment, strict=True)}
        labels = labels_of(groups.keys)
        keys = [label_key(label) for label in labels]
        present = set(keys)
        unknown = [name_of(label) for label, key in zip(labels, keys, strict=True) if key not in cluster_of]
        absent = [name_of(label) for label in self.labels if label_key(label) not in present]
        for names, treatment, what in ((absent, missing, "missing"), (unknown, new, "new")):
            if names and treatment == "error":
                shown = ", ".join(repr(name) for name in names[:3]) + (", …" if len(names) > 3 else "")
                raise InputError.mismatch(
                    "estimates",
                    "the groups are not those of the first batch",
                    f"Correct the batch, or use {{{what}}}.",
                    settings={what: "ignore"},
                    place=f"with {len(names)} {what} groups: {shown}",
                    form="clause",
                )
        ignored = {code: len(names) for names, code in ((absent, "missing"), (unknown, "new")) if names}
        used = np.array([key in cluster_of for key in keys])
        if not used.any():
            raise InputError.not_found("estimates", "has none of the known groups", "Give a batch of the same groups.")
        assignment = np.array([cluster_of[key] for key in keys if key in cluster_of])
        return groups if used.all() else groups.subset(used), assignment, ignored

    def to_plain(self) -> dict[str, Any]:
        """The state as JSON has it, without level and tolerance."""
        return {
            "labels": [plain_label(label) for label in self.labels],
            "steps": [step.to_plain() for step in self.steps],
            "ignored": self.ignored,
        }

    @classmethod
    def from_plain(cls, value: Any, alpha: float, tolerance: float) -> SequentialFolds:
        """The state from what JSON had, refused where its parts do not follow from each other."""
        steps = tuple(FoldStep.from_plain(step) for step in check_type(value["steps"], list))
        ignored = check_counts(value["ignored"], ("missing", "new"))
        state = cls(alpha, tolerance, read_labels(value["labels"]), steps, ignored)
        if bool(state.labels) != bool(steps) or len(state.assignment) != len(state.labels):
            raise ValueError("steps do not fit the labels")
        return state
