"""The result of a monitor: effects with intervals valid at every look, what each look needed, and the clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

from faultlines.estimates.labels import Label, key_of, name_of
from faultlines.estimates.reasons import Reason, ReasonCode
from faultlines.formats import UNITS, Unit
from faultlines.guarantees.boundaries import Dependence
from faultlines.guarantees.state import check_number, check_type, plain_label, read_labels
from faultlines.metrics.table import Adverse
from faultlines.results.protocol import Columns, Note, Rows, TabularResult, plain_data
from faultlines.results.tables import attribute_columns

Rule = Literal["boundary", "folds"]
Verdict = Literal["differ", "continue", "ended"]
Status = Literal["measured", "new", "stopped"]

IGNORED = ("missing", "stopped", "new")  # codes of groups that a look did not use as they came
_MOST_COUNTED = 2.0**53  # units or groups: beyond it doubles do not count
_SMALLEST = 5e-324
_OF_ARM = ("control", "treatment", "pvalue")  # what an arm has beside an effect


@dataclass(frozen=True, slots=True)
class AnytimeEffect:
    """An effect with an interval that is valid at every look.

    Attributes:
        estimate: The effect so far.
        lower: Lower end of its interval; −∞ where it has none.
        upper: Upper end.
        n: How many users or rows it is from, where sizes are known.

    Example:
        >>> import faultlines as fl
        >>> now = fl.Monitor(looks=5).update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, ["DE", "FR", "IN"], [90, 80, 85]))
        >>> overall = now.look.overall
        >>> round(overall.estimate, 2), overall.lower < 3 < overall.upper, overall.n
        (3.03, True, 255.0)
    """

    estimate: float
    lower: float
    upper: float
    n: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The effect as plain data; an end that is not bounded is None.

        Returns:
            Its fields.
        """
        return {name: plain_data(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, value: Any) -> AnytimeEffect:
        """The effect from plain data.

        Args:
            value: What `to_dict` gave.

        Returns:
            The effect.

        Raises:
            ValueError: If it is none.
        """
        _check_fields(cls, value)
        ends = [
            infinite if value[name] is None else check_number(value[name])
            for name, infinite in (("lower", -math.inf), ("upper", math.inf))
        ]
        n = None if value["n"] is None else check_number(value["n"], _SMALLEST)
        return cls(check_number(value["estimate"]), ends[0], ends[1], n)


@dataclass(frozen=True, slots=True)
class MonitoredArm:
    """What one treatment did so far in all groups together, against the control.

    Attributes:
        control: The control.
        treatment: The treatment.
        effect: The effect in the rows of all groups that are compared, with an interval that is valid at every look;
            of groups that share units, their mean weighted by precision.
        pvalue: p of "this effect is zero", two-sided; valid at every look. It is below α where the interval excludes
            zero.

    Example:
        >>> import faultlines as fl, pandas as pd
        >>> visits = pd.DataFrame(fl.simulate.experiment_rows())
        >>> metric = fl.lift("spend", variant="arm", control="A", unit="user")
        >>> arm = fl.Monitor(looks=14).update(visits, "country", metric).look.arm_effects[0]
        >>> arm.treatment, arm.control, round(arm.effect.estimate, 3), arm.effect.lower < 0, arm.pvalue > 0.05
        ('B', 'A', -0.02, True, True)
    """

    control: str
    treatment: str
    effect: AnytimeEffect
    pvalue: float

    def to_dict(self) -> dict[str, Any]:
        """The arm as plain data.

        Returns:
            Its fields; those of the effect among them.
        """
        return {"control": self.control, "treatment": self.treatment, **self.effect.to_dict(), "pvalue": self.pvalue}

    @classmethod
    def from_dict(cls, value: Any) -> MonitoredArm:
        """The arm from plain data.

        Args:
            value: What `to_dict` gave.

        Returns:
            The arm.

        Raises:
            ValueError: If it is none.
        """
        rest = {name: part for name, part in check_type(value, dict).items() if name not in _OF_ARM}
        names = (check_type(value["control"], str), check_type(value["treatment"], str))
        return cls(*names, AnytimeEffect.from_dict(rest), check_number(value["pvalue"], _SMALLEST, 1))


@dataclass(frozen=True, slots=True)
class MonitoredGroup:
    """One group at the last look.

    Attributes:
        label: The group.
        effect: Its effect; intervals are simultaneous for all groups and all looks.
        change: Its estimate less that of the look before; None where it was not there.
        status: ``"measured"``, ``"new"`` at this look, or ``"stopped"``: kept as it was.

    Example:
        >>> import faultlines as fl
        >>> now = fl.Monitor(looks=5).update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, ["DE", "FR", "IN"], [90, 80, 85]))
        >>> group = now.groups[2]
        >>> group.label, group.effect.estimate, group.effect.lower > 5, group.change, group.status
        ('IN', 9.0, True, None, 'measured')
    """

    label: Label
    effect: AnytimeEffect
    change: float | None = None
    status: Status = "measured"


@dataclass(frozen=True, slots=True)
class SmallGroup:
    """A group that has too few data so far to be compared.

    Attributes:
        label: The group.
        reason: Why it cannot be compared yet.
        n: How many users or rows it has.
        metric: What `effect` is: of a lift that cannot be had yet, the difference.
        effect: Its effect so far, where there is one; intervals are simultaneous for all such groups and all looks.
        unit: What people read that effect in: percentage points, or what the metric is in.

    Example:
        >>> import faultlines as fl, numpy as np, polars as pl
        >>> bought = np.arange(900) % 3 == 0
        >>> rows = pl.DataFrame({"country": ["DE", "FR"] * 440 + ["IS"] * 20, "arm": list("AABB") * 225, "y": bought})
        >>> now = fl.Monitor(looks=5).update(rows, "country", fl.lift("y", variant="arm", control="A"))
        >>> [(small.label, str(small.reason.code), small.n, small.metric) for small in now.small]
        [('IS', 'mean near zero', 20.0, 'difference of y')]
    """

    label: Label
    reason: Reason
    n: float | None = None
    metric: str = ""
    effect: AnytimeEffect | None = None
    unit: Unit = ""

    def to_dict(self) -> dict[str, Any]:
        """The group as plain data.

        Returns:
            Its fields; the reason by its own.
        """
        effect = None if self.effect is None else self.effect.to_dict()
        reason = asdict(self.reason) | {"code": str(self.reason.code)}
        return {
            "label": plain_label(self.label), "reason": reason, "n": self.n, "metric": self.metric, "effect": effect,
            "unit": self.unit,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, value: Any) -> SmallGroup:
        """The group from plain data.

        Args:
            value: What `to_dict` gave.

        Returns:
            The group.

        Raises:
            ValueError: If it is none.
        """
        _check_fields(cls, value)
        _check_fields(Reason, value["reason"])
        reason = Reason(**value["reason"] | {"code": ReasonCode(value["reason"]["code"])})
        n = None if value["n"] is None else check_number(value["n"], 0)
        effect = None if value["effect"] is None else AnytimeEffect.from_dict(value["effect"])
        if value["unit"] not in UNITS:
            raise ValueError("unit is not known")
        label, metric = read_labels([value["label"]])[0], check_type(value["metric"], str)
        return cls(label, reason, n, metric, effect, value["unit"])


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
        statistic: What is followed from look to look. Of groups by one attribute the joint statistic: the largest of
            top merge, scan and Cochran's Q, each standardized. Of crossed attributes the largest −log(p/share) of a
            margin, p by the draws of this look.
        boundary: What it must exceed; None where draws are too few to say, or p alone decides.
        merged: By the rule ``"folds"``: the two clusters that were merged.
        overall: The effect in all groups together, with an interval that is valid at every look: from rows, that of all
            their rows; else their mean weighted by precision.
        groups: How many groups were compared.
        small: How many had too few data.
        arms: From rows of an experiment: users or rows by arm, the control first.
        arm_effects: From rows of an experiment: what each treatment did in all groups together.

    Example:
        >>> import faultlines as fl
        >>> now = fl.Monitor(looks=5).update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, ["DE", "FR", "IN"], [90, 80, 85]))
        >>> now.look.number, now.look.fraction, now.look.pvalue < now.look.level, now.look.groups
        (1, 0.2, True, 3)
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
    overall: AnytimeEffect | None = None
    groups: int = 0
    small: int = 0
    arms: dict[str, float] = field(default_factory=dict)
    arm_effects: tuple[MonitoredArm, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The look as plain data, for JSON.

        Returns:
            Its fields.
        """
        merged = self.merged and [[plain_label(label) for label in cluster] for cluster in self.merged]
        arm_effects = [arm.to_dict() for arm in self.arm_effects]
        overall = self.overall and self.overall.to_dict()
        return asdict(self) | {"merged": merged, "overall": overall, "arm_effects": arm_effects}

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
        _check_fields(cls, value)

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
            overall=None if value["overall"] is None else AnytimeEffect.from_dict(value["overall"]),
            groups=int(check_number(check_type(value["groups"], int), 0, _MOST_COUNTED)),
            small=int(check_number(check_type(value["small"], int), 0, _MOST_COUNTED)),
            arms={
                name: check_number(units, 0, _MOST_COUNTED) for name, units in check_type(value["arms"], dict).items()
            },
            arm_effects=tuple(MonitoredArm.from_dict(arm) for arm in check_type(value["arm_effects"], list)),
        )


@dataclass(frozen=True, slots=True)
class LookChanges:
    """What changed since the look before.

    Attributes:
        since: The number of the look before.
        n: How many users or rows were added; None where sizes are not known.
        overall: The overall effect less that of the look before; None where there is none.
        pvalue: p so far, at the look before.
        new: Groups that were not compared before.
        stopped: Groups that have no new data and are kept as they were.

    Example:
        >>> import faultlines as fl
        >>> monitor = fl.Monitor(looks=5)
        >>> first = monitor.update(fl.Estimates([0.0, 0.1], [0.5] * 2, ["DE", "FR"], [90, 80]))
        >>> second = monitor.update(fl.Estimates([0.0, 0.1, 0.5], [0.4] * 3, ["DE", "FR", "IN"], [140, 130, 85]))
        >>> first.changes, second.changes.since, second.changes.n, second.changes.new
        (None, 1, 185.0, ('IN',))
    """

    since: int
    n: float | None
    overall: float | None
    pvalue: float
    new: tuple[Label, ...]
    stopped: tuple[Label, ...]

    def to_dict(self) -> dict[str, Any]:
        """The changes as plain data.

        Returns:
            Its fields.
        """
        labels = {name: [plain_label(label) for label in getattr(self, name)] for name in ("new", "stopped")}
        return asdict(self) | labels


@dataclass(frozen=True, slots=True, repr=False)
class MonitorResult(TabularResult):
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
        metric: What is measured.
        attributes: What the groups are values of.
        unit: What people read the effects in: percent, percentage points, or what the metric is in.
        counted: What sizes of groups count.
        groups: Every group at the last look, with its effect.
        cluster_effects: The effects of the clusters, once they differ: of each, the precision-weighted mean of its
            groups. Intervals are simultaneous for all clusters that could have been chosen and all looks.
        small: Groups that have too few data so far.
        dropped: Reason → number of dropped rows.
        warnings: What was noticed in the rows: sample ratios, few events.
        changes: What changed since the look before; None at the first look.
        margins: Whether single attributes were tested beside their combinations.
        along: Once they differ: the fewest attributes that are enough to describe the differences; none for groups by
            one attribute, or where only combinations were compared.
        waiting: Where no look could be taken because too few groups can be compared yet: how many of them, by reason.

    Example:
        >>> import faultlines as fl
        >>> monitor = fl.Monitor(looks=4)
        >>> result = monitor.update(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> result.verdict, result.n_clusters, result.clusters, result.look.number
        ('differ', 2, (('DE', 'FR'), ('IN',)), 1)
        >>> [round(effect.estimate, 2) for effect in result.cluster_effects], result.to_dicts()[2]["estimate"]
        ([0.05, 5.0], 5.0)
        >>> print(result.headline)
        The effect differs between 3 groups (p = 0.00032 so far, α = 0.05), reported at look 1 of 4. Best ...
    """

    row_kinds: ClassVar[tuple[Rows, ...]] = ("groups", "clusters", "looks")
    wording: ClassVar[str] = "monitor"
    json_keys: ClassVar[str] = (
        "verdict headline notes rule pvalue alpha metric attributes along clusters cluster_effects groups looks "
        "changes planned dependence ignored dropped"
    )

    verdict: Verdict
    rule: Rule
    pvalue: float
    alpha: float
    clusters: tuple[tuple[Label, ...], ...]
    looks: tuple[Look, ...]
    planned: int | None
    dependence: Dependence | None
    ignored: dict[str, int]
    metric: str = "effect"
    attributes: tuple[str, ...] = ("group",)
    unit: Unit = ""
    counted: str = "users"
    groups: tuple[MonitoredGroup, ...] = ()
    cluster_effects: tuple[AnytimeEffect, ...] = ()
    small: tuple[SmallGroup, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[Note, ...] = ()
    changes: LookChanges | None = None
    margins: bool = False
    along: tuple[str, ...] = ()
    waiting: Mapping[Reason, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<MonitorResult: {self.headline}>"

    @property
    def rejected(self) -> bool:
        """Whether a difference is reported; then `clusters` differ."""
        return self.verdict == "differ"

    @property
    def finished(self) -> bool:
        """Whether the verdict is final: further looks update effects and intervals, and nothing else."""
        return self.verdict != "continue"

    @property
    def decided(self) -> Look | None:
        """The look that ended it: where the difference was reported, or the last that could; None before."""
        at_end = (look for look in self.looks if look.adjusted <= self.alpha or (look.fraction or 0.0) >= 1)
        return next(at_end, self.look) if self.finished else None

    @property
    def n_clusters(self) -> int:
        """How many clusters there are; they are known to differ only once the verdict is ``"differ"``."""
        return max(len(self.clusters), 1)

    @property
    def look(self) -> Look | None:
        """The last look; None before the first."""
        return self.looks[-1] if self.looks else None

    # ------------------------------------------------------------------------------------------------------ as data

    def columns(self, rows: Rows) -> Columns:
        """The columns of its groups, clusters or looks; groups with too few data have the reason beside them.

        Args:
            rows: ``"groups"``, ``"clusters"`` or ``"looks"``.

        Returns:
            Column → values.
        """
        if rows == "looks":
            plain = [look.to_dict() for look in self.looks]
            names = [
                each.name for each in fields(Look) if each.name not in {"overall", "arms", "arm_effects", "merged"}
            ]
            columns: Columns = {name: [look[name] for look in plain] for name in names}
            for name in ("estimate", "lower", "upper"):
                columns[name] = [None if look["overall"] is None else look["overall"][name] for look in plain]
            return columns
        if rows == "clusters":
            numbers = list(range(1, len(self.clusters) + 1))
            effects = self.cluster_effects or [None] * len(self.clusters)
            members = [[name_of(label) for label in cluster] for cluster in self.clusters]
            return {"cluster": numbers, **_effect_columns(effects), "members": members}
        cluster_of = {label: i + 1 for i, cluster in enumerate(self.clusters) for label in cluster}
        labels = [*(group.label for group in self.groups), *(small.label for small in self.small)]
        blank: list[Any] = [None] * len(self.small)
        columns = {"cluster": [cluster_of.get(group.label) for group in self.groups] + blank}
        columns |= _effect_columns([*(group.effect for group in self.groups), *(small.effect for small in self.small)])
        columns["n"] = [*(group.effect.n for group in self.groups), *(small.n for small in self.small)]
        columns["change"] = [group.change for group in self.groups] + blank
        columns["metric"] = [self.metric] * len(self.groups) + [small.metric or None for small in self.small]
        columns["status"] = [group.status for group in self.groups] + ["too small"] * len(self.small)
        columns["excluded"] = [None] * len(self.groups) + [str(small.reason) for small in self.small]
        keys = [key_of(label) for label in labels]
        return attribute_columns(self.attributes, keys, set(columns)) | columns

    def _plain_values(self) -> dict[str, Any]:
        return {
            "clusters": [[plain_label(label) for label in cluster] for cluster in self.clusters],
            # The mean effect of several treatments is the effect of none: `arm_effects` has them.
            "looks": [look.to_dict() | ({"overall": None} if len(look.arm_effects) > 1 else {}) for look in self.looks],
        }


@dataclass(frozen=True, slots=True)
class HarmedGroup:
    """A group or cluster whose interval lies wholly on the harmful side of zero.

    Attributes:
        effect: Its effect.
        label: The group; None for a cluster.
        cluster: The place of the cluster among `MonitorResult.clusters`; None for a group.
    """

    effect: AnytimeEffect
    label: Label | None = None
    cluster: int | None = None


def find_harmed(result: MonitorResult, adverse: Adverse) -> tuple[HarmedGroup, ...]:
    """Clusters, then groups, that are shown to be harmed at the last look, each kind from the worst estimate on.

    Args:
        result: The monitor after its last look.
        adverse: Whether low effects are harmful, or high ones.
    """
    sign = 1.0 if adverse == "low" else -1.0

    def is_harmed(effect: AnytimeEffect) -> bool:
        return effect.upper < 0 if adverse == "low" else effect.lower > 0

    clusters = [HarmedGroup(effect, cluster=i) for i, effect in enumerate(result.cluster_effects)]
    groups = [HarmedGroup(group.effect, label=group.label) for group in result.groups]
    return tuple(
        each
        for kind in (clusters, groups)
        for each in sorted(kind, key=lambda harmed: sign * harmed.effect.estimate)
        if is_harmed(each.effect)
    )


def _effect_columns(effects: Any) -> Columns:
    plain = [None if effect is None else effect.to_dict() for effect in effects]
    return {
        name: [None if effect is None else effect[name] for effect in plain]
        for name in ("estimate", "lower", "upper", "n")
    }


def _check_fields(cls: Any, value: Any) -> None:
    if set(check_type(value, dict)) != {each.name for each in fields(cls)}:
        raise ValueError(f"{cls.__name__} has other fields")
