"""Where a monitor stands: what every look showed, what it needed, and the clusters once they are claimed."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from faultlines import text
from faultlines.estimates.labels import name_of
from faultlines.guarantees import saved

if TYPE_CHECKING:
    from faultlines.estimates.labels import Label
    from faultlines.guarantees.looks import Dependence

ASSUMED: dict[Dependence, str] = {
    "independent": "Assumes that what new data add does not depend on the data before: new users, not the same again.",
    "returning": "Users may come back: assumes that what they add is not negatively related to what they did before.",
    "any": "Nothing is assumed of how looks depend on each other.",
}


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all data so far.

    Attributes:
        number: Which look it is, from 1.
        information: How much is known: the sizes of all groups, or the sum of 1/se² where sizes are not given.
        fraction: How far it is on the way: of the planned looks or information; t/(t + 5) at look t without a plan.
        spent: How much of α may be spent by now.
        statistic: The largest of top merge, scan and heterogeneity, in units of what noise does to them.
        boundary: What it must exceed; None where draws are too few to say, or p alone decides.
        pvalue: p of this look as if it were the only one.
        level: What that p must be below.
        adjusted: p so far: the smallest α at which clusters would be claimed by now.

    Example:
        >>> import faultlines as fl
        >>> now = fl.Monitor(looks=5).update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, ["DE", "FR", "IN"], [90, 80, 85]))
        >>> now.look.number, now.look.fraction, now.look.pvalue < now.look.level
        (1, 0.2, True)
    """

    number: int
    information: float
    fraction: float
    spent: float
    statistic: float
    boundary: float | None
    pvalue: float
    level: float
    adjusted: float

    @classmethod
    def read(cls, found: Any) -> Look:
        """From what JSON had.

        Args:
            found: A dictionary of its fields.

        Returns:
            The look.

        Example:
            >>> import faultlines as fl
            >>> names = "number information fraction spent statistic boundary pvalue level adjusted"
            >>> fl.Look.read(dict.fromkeys(names.split(), 1)).number
            1
        """
        one = {name: saved.number(found[name], 0, 1) for name in ("fraction", "spent", "pvalue", "level", "adjusted")}
        boundary = None if found["boundary"] is None else saved.number(found["boundary"])
        return cls(
            number=saved.typed(found["number"], int),
            information=saved.number(found["information"], 0),
            statistic=saved.number(found["statistic"]),
            boundary=boundary,
            **one,
        )


@dataclass(frozen=True, slots=True)
class Monitored:
    """Where a monitor stands: what `fl.Monitor.update` returns.

    Attributes:
        rejected: Whether "all groups are alike" has been rejected; then `clusters` differ.
        finished: Whether it is over: rejected, or all of α is spent.
        pvalue: p so far: the smallest α at which clusters would have been claimed by now.
        alpha: The accepted chance of ever claiming clusters where there are none.
        clusters: The clusters as labels, from the lowest to the highest effect; all groups in one until `rejected`.
        looks: What every look showed and needed.
        planned: The planned number of looks, if that is how it was planned.
        dependence: What is assumed of how looks depend on each other.
        ignored: What of the last look was not used, or kept from before, and how many groups.

    Example:
        >>> import faultlines as fl
        >>> monitor = fl.Monitor(looks=4)
        >>> found = monitor.update(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> found.rejected, found.n_clusters, found.clusters, found.look.number
        (True, 2, (('DE', 'FR'), ('IN',)), 1)
        >>> print(found.verdict)
        2 clusters of 3 groups differ (p = 0.00032 so far, α = 0.05), claimed at look 1 of 4.
    """

    rejected: bool
    finished: bool
    pvalue: float
    alpha: float
    clusters: tuple[tuple[Label, ...], ...]
    looks: tuple[Look, ...]
    planned: int | None
    dependence: Dependence
    ignored: dict[str, int]

    @property
    def n_clusters(self) -> int:
        """How many clusters differ; 1 until a difference can be claimed."""
        return max(len(self.clusters), 1)

    @property
    def look(self) -> Look | None:
        """The last look; None before the first."""
        return self.looks[-1] if self.looks else None

    @property
    def verdict(self) -> str:
        """Where it stands, in one sentence."""
        if not self.looks:
            return "No look yet."
        last = self.looks[-1]
        groups = sum(map(len, self.clusters))
        basis = f"{text.p_is(math.log(self.pvalue))} so far, α = {self.alpha:g}"
        where = f"look {last.number}" + (f" of {self.planned}" if self.planned else "")
        if self.rejected:
            return f"{self.n_clusters} clusters of {groups} groups differ ({basis}), claimed at {where}."
        if self.finished:
            return f"No difference between {groups} groups can be claimed ({basis}); {where} was the last."
        return f"{where.capitalize()}: no difference between {groups} groups can be claimed yet ({basis})."

    def __str__(self) -> str:
        lines = [self.verdict]
        for i, cluster in enumerate(self.clusters if self.rejected else ()):
            lines.append(f"  {i + 1}: {text.members(cluster, name_of, 90)}")
        if self.looks:
            last = self.looks[-1]
            spent = text.share(last.spent / self.alpha, 1)
            needed = "none would do" if last.level == 0 else f"{text.pvalue(math.log(last.level))} was needed"
            lines.append(f"  This look: {text.p_is(math.log(last.pvalue))}, {needed}; {spent} of α spent.")
            lines += [f"  Of this look: {count} {why}." for why, count in self.ignored.items()]
            lines.append(f"  {ASSUMED[self.dependence]}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON.

        Returns:
            Plain data.

        Example:
            >>> import faultlines as fl
            >>> monitor = fl.Monitor(looks=4)
            >>> monitor.update(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"])).to_dict()["rejected"]
            True
        """
        return {
            "faultlines": version("faultlines"),
            "verdict": self.verdict,
            "rejected": self.rejected,
            "finished": self.finished,
            "pvalue": self.pvalue,
            "alpha": self.alpha,
            "clusters": [[saved.plain(label) for label in cluster] for cluster in self.clusters],
            "looks": [asdict(look) for look in self.looks],
            "planned": self.planned,
            "dependence": self.dependence,
            "assumes": ASSUMED[self.dependence],
            "ignored": dict(self.ignored),
        }
