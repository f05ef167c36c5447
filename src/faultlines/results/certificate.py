"""The result of `fl.certify`: whether all groups are within a gap, and where each of them is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from faultlines.core.comparison import Comparison
from faultlines.estimates.estimates import Excluded
from faultlines.estimates.labels import Label, key_of, name_of
from faultlines.estimates.reasons import DropCode, RowWarning
from faultlines.formats import Unit
from faultlines.metrics.readout import SampleRatio
from faultlines.metrics.table import Adverse
from faultlines.results.protocol import Columns, Note, Rows, TabularResult, plain_data
from faultlines.results.tables import attribute_columns, dropped_share_column, missing_data, spread
from faultlines.rows.request import MissingRows

Status = Literal["within", "beyond", "inconclusive"]
Verdict = Literal["passed", "failed", "inconclusive"]
MissingChoice = Literal["bounds", "ignore"]
MismatchChoice = Literal["inconclusive", "ignore"]
MissingTreatment = Literal["none", "bounds", "range", "share", "ignore"]
UnknownChoice = Literal["exclude", "category", "bounds"]

OVERALL, ALL_PAIRS, HIGHEST, LOWEST = "overall", "all pairs", "highest", "lowest"
ANY = "any"  # stands for all levels of an attribute that a margin does not have
DIRECTIONS: dict[str, Adverse] = {HIGHEST: "low", LOWEST: "high"}  # the side of the best group that others are on


@dataclass(frozen=True, slots=True)
class CertifiedGroup:
    """Where one group is; of several effects measured together, numbers are tuples.

    Attributes:
        label: The group.
        estimate: Its effect.
        distance: Its effect less that of what it is compared with; with ``ratio=True``, over it.
        lower: Lower end of the interval of that, at the level 1 − α for all groups together; with `adverse`, as a bound
            of its own.
        upper: Upper end.
        bound: How far from it the group may be at most, as a statement about this group alone (one-sided, at 1 − α):
            the largest of all groups is `Certificate.certifiable`.
        status: ``"within"`` the gap, ``"beyond"`` it, or ``"inconclusive"``.
        other: Of all pairs, the group it is compared with here: one it differs from, else the one it may be farthest
            from. Of ``"highest"`` (``"lowest"``), the highest of the other groups in these data. None otherwise.

    Example:
        >>> import faultlines as fl
        >>> rates = fl.Estimates([0.10, 0.11, 0.19], [0.005, 0.005, 0.005], ["DE", "FR", "IN"], [3600, 3900, 6100])
        >>> worst = fl.certify(rates, gap=0.03).groups[2]
        >>> worst.label, worst.status, round(worst.distance, 3)
        ('IN', 'beyond', 0.047)
    """

    label: Label
    estimate: Any
    distance: Any
    lower: Any
    upper: Any
    bound: Any
    status: Status
    other: Any = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Certificate(TabularResult):
    """Whether all groups are within a gap, and where each of them is: what `fl.certify` returns.

    Attributes:
        verdict: ``"passed"``: no group is farther away than the gap. ``"failed"``: some group is. ``"inconclusive"``:
            neither can be said with confidence 1 − α, or groups were excluded.
        gap: The gap; a tuple for several effects.
        certifiable: The gap that can be certified for the groups that were measured: with confidence 1 − α none is
            farther away. With ``ratio=True`` the ratio that can be: every `gap` up to it passes.
        farthest: The group that decides about `certifiable`; a tuple for several effects.
        against: ``"overall"``, ``"highest"``, ``"lowest"``, ``"all pairs"``, the name of the reference group, or
            a fixed value.
        reference_value: The effect of the overall, of the reference, or the highest (lowest) in these data; the fixed
            value; None for all pairs.
        ratio: Whether ratios are compared, and not differences.
        adverse: The harmful direction, if only one counts; a tuple for several effects.
        alpha: One less the confidence.
        critical: How many standard errors the simultaneous intervals reach: the critical value of the largest of all
            comparisons.
        groups: Where every group is, in the order of the estimates; without the reference.
        comparison: The groups that were measured.
        excluded: Excluded groups, each with its reason.
        dropped: Reason → number of dropped rows.
        warnings: What was noticed in the rows.
        counted: What the sizes of groups count.
        missing_values: How many rows of every group lack a value; None where no rows were counted.
        missing: What was done about them. ``"none"``: no row lacks a value. ``"bounds"``: they could be anything.
            ``"range"``: they are taken to lie within the values at hand, and nothing passes where they are many.
            ``"share"``: it cannot be bounded what they change, and nothing passes where they are many. ``"ignore"``:
            they are taken to be like the others.
        unknown: What was done about rows with a missing attribute; None where there are none.
        certifiable_ignoring: The gap that could be certified if missing values and unknown attributes were ignored.
        mismatch: Whether a sample ratio mismatch keeps the certificate from passing.
        possible: The lowest and the highest rate that every group of `comparison` could have in these rows; None where
            nothing is missing or it cannot be bounded.
        missing_range: With ``missing="range"``, the lowest and the highest value at hand.
        needs_rows: Whether missing values could be bounded if the rows were given, which a result does not hold.
        by_precision: Whether the overall weighs groups by their precision, for want of sizes.
        averaged: Whether the overall is the mean of the groups' values, which the value in all rows is not: that of a
            ranking compares people of different groups, too.
        in_all_rows: The metric in all rows at once, where `averaged` says that this is another value; None elsewhere,
            and where no rows were given.
        margins: The margins that were certified, if that was asked: "sex", "race", "sex × race". The label of a level
            has "any" for the attributes that its margin does not have.
        units: What each effect is read in: percent, percentage points, or what the metric is in.
        seed: Of the draws behind `critical`.

    Example:
        >>> import faultlines as fl
        >>> rates = fl.Estimates([0.10, 0.11, 0.19], [0.005, 0.005, 0.005], ["DE", "FR", "IN"], [3600, 3900, 6100])
        >>> certificate = fl.certify(rates, gap=0.03)
        >>> certificate.verdict, certificate.within, certificate.beyond, certificate.inconclusive
        ('failed', (), ('DE', 'IN'), ('FR',))
        >>> certificate.metric, certificate.attributes, certificate.parts, [note.code for note in certificate.notes]
        ('effect', ('group',), (), ['reference', 'inconclusive groups', 'method', 'next'])
        >>> print(certificate.headline)
        FAILED  2 of 3 groups are more than 0.03 from the overall effect (95% confidence): DE, IN.
        >>> certificate.to_dict()["verdict"], certificate.to_dicts()[0]["status"]
        ('failed', 'beyond')
    """

    row_kinds: ClassVar[tuple[Rows, ...]] = ("groups",)
    wording: ClassVar[str] = "certificate"
    json_keys: ClassVar[str] = (
        "verdict headline gap certifiable farthest against reference_value in_all_rows ratio adverse alpha critical "
        "seed metric parts margins within beyond inconclusive excluded dropped missing_values missing unknown "
        "certifiable_ignoring mismatch notes groups"
    )

    verdict: Verdict
    gap: Any
    certifiable: Any
    farthest: Any
    against: str | float
    reference_value: Any
    ratio: bool
    adverse: Any
    alpha: float
    critical: float
    groups: tuple[CertifiedGroup, ...]
    comparison: Comparison
    excluded: tuple[Excluded, ...]
    units: tuple[Unit, ...]
    seed: int
    dropped: Mapping[DropCode, int] = field(default_factory=dict)
    warnings: tuple[Note | SampleRatio | RowWarning, ...] = ()
    counted: str = "rows"
    by_precision: bool = False
    missing_values: MissingRows | None = None
    missing: MissingTreatment = "none"
    unknown: UnknownChoice | None = None
    certifiable_ignoring: Any = None
    mismatch: bool = False
    possible: tuple[tuple[Any, Any], ...] | None = None
    missing_range: tuple[float, float] | None = None
    needs_rows: bool = False
    averaged: bool = False
    in_all_rows: Any = None
    margins: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = f"{len(self.within)} within, {len(self.beyond)} beyond, {len(self.inconclusive)} inconclusive"
        gaps = f"gap={self.gap}, certifiable={self.certifiable}"
        return f"<Certificate: {self.verdict}, {gaps}, {counts}, α = {self.alpha:g}>"

    @property
    def directions(self) -> tuple[Adverse | None, ...]:
        """For each effect, the side on which groups can be too far away; None: either."""
        if isinstance(self.against, str) and self.against in DIRECTIONS:
            return (DIRECTIONS[self.against],) * len(self.units)
        return self.adverse if self.parts else (self.adverse,)

    @property
    def metric(self) -> str:
        """What was measured."""
        return self.comparison.metric

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes of the groups."""
        return tuple(self.comparison.attributes)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of several effects; none for one."""
        return () if self.comparison.estimates is None else self.comparison.estimates.parts

    @property
    def has_others(self) -> bool:
        """Whether each group is compared with another one of its own: all pairs, the highest or the lowest."""
        return self.against in (ALL_PAIRS, HIGHEST, LOWEST)

    @property
    def within(self) -> tuple[Label, ...]:
        """Groups that are within the gap."""
        return self._labels("within")

    @property
    def beyond(self) -> tuple[Label, ...]:
        """Groups that are farther away than the gap."""
        return self._labels("beyond")

    @property
    def inconclusive(self) -> tuple[Label, ...]:
        """Groups of which neither can be said."""
        return self._labels("inconclusive")

    def _labels(self, status: Status) -> tuple[Label, ...]:
        return tuple(group.label for group in self.groups if group.status == status)

    # ------------------------------------------------------------------------------------------------------ as data

    def columns(self, rows: Rows) -> Columns:
        """The columns of its groups; excluded ones have no status, and the reason beside them.

        Args:
            rows: ``"groups"``.

        Returns:
            Column → values.
        """
        blank: list[Any] = [None] * len(self.excluded)
        columns: Columns = {}
        distance = "ratio" if self.ratio else "difference"
        for name in ("estimate", "distance", "lower", "upper", "bound"):
            values = [getattr(group, name) for group in self.groups]
            columns |= spread(self.parts, distance if name == "distance" else name, values + blank)
        columns |= self._possible_columns(blank)
        columns["status"] = [group.status for group in self.groups] + blank
        if self.has_others:
            others = [_name(group.other, several=bool(self.parts)) for group in self.groups]
            columns |= spread(self.parts, "other", others + blank)
        labels = [*(group.label for group in self.groups), *(group.label for group in self.excluded)]
        keys = [key_of(label) for label in labels]
        for name, shares in dropped_share_column(self.missing_values, keys).items():  # counted for cells alone
            is_margin = [bool(self.margins) and ANY in key for key in keys]
            columns[name] = [None if no else share for no, share in zip(is_margin, shares, strict=True)]
        columns["excluded"] = [None] * len(self.groups) + [str(group.reason) for group in self.excluded]
        return attribute_columns(self.attributes, keys, set(columns)) | columns

    def _possible_columns(self, blank: list[Any]) -> Columns:
        """The lowest and the highest rate that groups could have, where that is known."""
        if self.possible is None:
            return {}
        ends = dict(zip(self.comparison.keys, self.possible, strict=True))
        columns: Columns = {}
        for i, name in enumerate(("possible_lower", "possible_upper")):
            values = [ends.get(key_of(group.label), (None, None))[i] for group in self.groups]  # margins have none
            columns |= spread(self.parts, name, values + blank)
        return columns

    def _plain_values(self) -> dict[str, Any]:
        statuses: tuple[Status, ...] = ("within", "beyond", "inconclusive")
        return {
            "farthest": plain_data(_name(self.farthest, several=bool(self.parts))),
            **{status: [name_of(label) for label in self._labels(status)] for status in statuses},
            "excluded": [{"group": name_of(group.label), "reason": str(group.reason)} for group in self.excluded],
            "missing_values": missing_data(self.missing_values),
            "groups": plain_data(self.to_dicts()),
        }


def _name(label: Any, *, several: bool) -> Any:
    """The name of a group, or one for each of several effects."""
    return tuple(name_of(part) for part in label) if several else name_of(label)
