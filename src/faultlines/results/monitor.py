"""The result of a monitor: what every look showed and needed, and the clusters once a difference is reported."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from faultlines import formats
from faultlines.estimates.labels import name_of
from faultlines.guarantees.state import check_number, check_type, plain_label, read_labels
from faultlines.results.protocol import Note

if TYPE_CHECKING:
    from faultlines.estimates.labels import Label
    from faultlines.guarantees.boundaries import Dependence

Rule = Literal["boundary", "folds"]
Verdict = Literal["differ", "continue", "ended"]

ASSUMPTIONS: dict[Dependence | None, str] = {
    "independent": "Assumes that new data do not depend on the data before: new users, not the same again.",
    "returning": "Users may come back: assumes that what they add is not negatively related to what they did before.",
    "any": "Nothing is assumed of how looks depend on each other.",
    None: "Assumes that every batch holds new data: no batch was used before.",
}
IGNORED = {  # codes of groups that a look did not use as they came
    "missing": "missing groups left out",
    "stopped": "missing groups kept as they were",
    "new": "new groups left out",
}
_SMALLEST = 5e-324


@dataclass(frozen=True, slots=True)
class Look:
    """One look: at all data so far, or, by the rule ``"folds"``, at one batch.

    Attributes:
        number: Which look it is, from 1.
        pvalue: p of this look as if it were the only one.
        level: What that p must be below.
        adjusted: p so far: the smallest α at which a difference would be reported by now.
        information: How much is known: the sizes of all groups, or the sum of 1/se² where sizes are not given.
        fraction: How far it is on the way: of the planned looks or information; t/(t + 5) at look t without a plan.
        spent: How much of α may be spent by now.
        statistic: The joint statistic: the largest of top merge, scan and Cochran's Q, each standardized.
        boundary: What it must exceed; None where draws are too few to say, or p alone decides.
        merged: By the rule ``"folds"``: the two clusters that were merged.

    Example:
        >>> import faultlines as fl
        >>> now = fl.Monitor(looks=5).update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, ["DE", "FR", "IN"], [90, 80, 85]))
        >>> now.look.number, now.look.fraction, now.look.pvalue < now.look.level
        (1, 0.2, True)
    """

    number: int
    pvalue: float
    level: float
    adjusted: float
    information: float | None = None
    fraction: float | None = None
    spent: float | None = None
    statistic: float | None = None
    boundary: float | None = None
    merged: tuple[tuple[Label, ...], tuple[Label, ...]] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The look as plain data, for JSON.

        Returns:
            Its fields.
        """
        merged = self.merged and [[plain_label(label) for label in cluster] for cluster in self.merged]
        return asdict(self) | {"merged": merged}

    @classmethod
    def from_dict(cls, value: Any) -> Look:
        """The look from plain data.

        Args:
            value: What `to_dict` gave.

        Returns:
            The look.

        Raises:
            ValueError: If it is none.
        """
        if set(check_type(value, dict)) != {field.name for field in fields(cls)}:
            raise ValueError("a look has other fields")

        def optional(name: str, low: float = -math.inf, high: float = math.inf) -> float | None:
            return None if value[name] is None else check_number(value[name], low, high)

        merged = None
        if value["merged"] is not None:
            first, second = (read_labels(cluster) for cluster in check_type(value["merged"], list))
            merged = (first, second)
        return cls(
            number=check_type(value["number"], int),
            pvalue=check_number(value["pvalue"], _SMALLEST, 1),
            level=check_number(value["level"], 0, 1),
            adjusted=check_number(value["adjusted"], _SMALLEST, 1),
            information=optional("information", 0),
            fraction=optional("fraction", 0, 1),
            spent=optional("spent", 0, 1),
            statistic=optional("statistic"),
            boundary=optional("boundary"),
            merged=merged,
        )


@dataclass(frozen=True, slots=True)
class MonitorResult:
    """The result of a monitor after its last look.

    Attributes:
        verdict: ``"differ"``, ``"continue"`` (no difference can be reported yet) or ``"ended"`` (without one).
        rule: ``"boundary"``, or ``"folds"`` for the paper's sequential form.
        pvalue: p so far: the smallest α at which a difference would have been reported by now.
        alpha: The significance level: the probability of ever reporting a difference where there is none.
        clusters: The clusters as labels. By the rule ``"boundary"`` from the lowest to the highest effect, all groups
            in one until they differ; by the rule ``"folds"`` those that are left after its merges.
        looks: What every look showed and needed.
        planned: The planned number of looks, if there is one.
        dependence: What is assumed of how looks depend on each other; None by the rule ``"folds"``.
        ignored: Groups that the last look did not use as they came, by code: missing, stopped, new.

    Example:
        >>> import faultlines as fl
        >>> monitor = fl.Monitor(looks=4)
        >>> result = monitor.update(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> result.verdict, result.n_clusters, result.clusters, result.look.number
        ('differ', 2, (('DE', 'FR'), ('IN',)), 1)
        >>> print(result.headline)
        2 clusters of 3 groups differ (p = 0.00032 so far, α = 0.05), reported at look 1 of 4.
    """

    verdict: Verdict
    rule: Rule
    pvalue: float
    alpha: float
    clusters: tuple[tuple[Label, ...], ...]
    looks: tuple[Look, ...]
    planned: int | None
    dependence: Dependence | None
    ignored: dict[str, int]

    @property
    def rejected(self) -> bool:
        """Whether a difference is reported; then `clusters` differ."""
        return self.verdict == "differ"

    @property
    def finished(self) -> bool:
        """Whether it is over: further looks change nothing."""
        return self.verdict != "continue"

    @property
    def n_clusters(self) -> int:
        """How many clusters there are; they are known to differ only once the verdict is ``"differ"``."""
        return max(len(self.clusters), 1)

    @property
    def look(self) -> Look | None:
        """The last look; None before the first."""
        return self.looks[-1] if self.looks else None

    @property
    def headline(self) -> str:
        """The result in one sentence."""
        if not self.looks:
            return "No look yet."
        groups = sum(map(len, self.clusters))
        basis = f"{formats.p_is(math.log(self.pvalue))} so far, α = {self.alpha:g}"
        where = f"look {self.looks[-1].number}" + (f" of {self.planned}" if self.planned else "")
        if self.verdict == "differ":
            return f"{self.n_clusters} clusters of {groups} groups differ ({basis}), reported at {where}."
        if self.verdict == "ended":
            return f"No difference found between {groups} groups ({basis}); {where} was the last."
        return f"{where.capitalize()}: no difference between {groups} groups can be reported yet ({basis})."

    @property
    def notes(self) -> tuple[Note, ...]:
        """The last look, what of it was not used, and what is assumed."""
        if not self.looks:
            return ()
        last = self.looks[-1]
        level = "no p would suffice" if last.level == 0 else f"{formats.pvalue(math.log(last.level))} was needed"
        spent = "" if last.spent is None else f"; {formats.share(last.spent / self.alpha, 1)} of α spent"
        text = f"This look: {formats.p_is(math.log(last.pvalue))}, {level}{spent}."
        notes = [Note("look", text)]
        notes += [Note("ignored", f"{text}.", "warning") for text in self.ignored_groups]
        return (*notes, Note("assumption", ASSUMPTIONS[self.dependence]))

    @property
    def ignored_groups(self) -> tuple[str, ...]:
        """Groups that the last look did not use as they came, in words."""
        return tuple(f"{count} {IGNORED[code]}" for code, count in self.ignored.items())

    def __str__(self) -> str:
        lines = [self.headline]
        for i, cluster in enumerate(self.clusters if self.rejected else ()):
            lines.append(f"  {i + 1}: {formats.members(cluster, name_of, 90)}")
        return "\n".join([*lines, *(f"  {note.text}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON.

        Returns:
            Plain data.

        Example:
            >>> import faultlines as fl
            >>> monitor = fl.Monitor(looks=4)
            >>> monitor.update(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"])).to_dict()["verdict"]
            'differ'
        """
        return {
            "faultlines": version("faultlines"),
            "verdict": self.verdict,
            "headline": self.headline,
            "notes": [note.to_dict() for note in self.notes],
            "rule": self.rule,
            "pvalue": self.pvalue,
            "alpha": self.alpha,
            "clusters": [[plain_label(label) for label in cluster] for cluster in self.clusters],
            "looks": [look.to_dict() for look in self.looks],
            "planned": self.planned,
            "dependence": self.dependence,
            "ignored": dict(self.ignored),
        }

    def to_json(self) -> str:
        """Everything as JSON.

        Returns:
            The text of `to_dict`.
        """
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)
