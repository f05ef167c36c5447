"""The result of `fl.impact_ratios`: selection rates by category, and their ratios to the highest one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from faultlines.estimates.labels import Key, Label, key_of, name_of
from faultlines.results.audit import CutFeature
from faultlines.results.certificate import MissingChoice, UnknownChoice
from faultlines.results.protocol import Columns, Rows, TabularResult
from faultlines.results.tables import attribute_columns
from faultlines.rows.request import RepeatedColumn

CategoryStatus = Literal["passed", "failed", "inconclusive", "too small", "alone", "unknown"]
ImpactVerdict = Literal["passed", "failed", "inconclusive", "not testable"]
RateKind = Literal["selection rate", "scoring rate"]

_FIELDS = ("applicants", "selected", "missing", "share", "rate", "ratio", "lower", "upper")
_BOUNDS = ("possible_lower", "possible_upper")


@dataclass(frozen=True, slots=True)
class ImpactCategory:
    """One row of a table of impact ratios.

    Attributes:
        label: The category; a tuple where attributes are crossed.
        applicants: Its rows whose outcome is known.
        selected: Those of them that were selected, or scored above the median.
        missing: Its rows whose outcome is missing.
        share: Its share of all rows.
        rate: Selected over applicants; None without applicants.
        ratio: The rate over that of the category with the highest rate; None where it is not compared.
        lower: Lower end of the simultaneous interval of the ratio, valid although the data choose the highest.
        upper: Upper end.
        possible_lower: The lowest the ratio could be in these rows, whatever is missing or unknown; None where nothing
            is, or that was not asked.
        possible_upper: The highest it could be.
        status: ``"passed"``, ``"failed"`` or ``"inconclusive"``; ``"too small"``, ``"alone"`` (no other category is
            large enough) and ``"unknown"`` where the category is not compared.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"sex": ["f", "m"] * 500, "hired": [0, 1, 1, 1] * 250})
        >>> category = fl.impact_ratios(rows, "sex", selected="hired").tables[0].categories[0]
        >>> category.label, category.applicants, category.selected, category.ratio, category.status
        ('f', 500, 250, 0.5, 'failed')
    """

    label: Label
    applicants: int
    selected: int
    missing: int
    share: float
    rate: float | None
    ratio: float | None
    lower: float | None
    upper: float | None
    possible_lower: float | None
    possible_upper: float | None
    status: CategoryStatus


@dataclass(frozen=True, slots=True)
class ImpactTable:
    """The categories of one attribute, or of several crossed.

    Attributes:
        attributes: The attributes.
        categories: One row for each category; unknown ones last.
        highest: The category with the highest rate, which the others are compared with; None without any.
        certifiable: The ratio that every category has at least, with confidence 1 − α; None where none are compared.
        verdict: ``"passed"``: every category that is compared has a ratio of at least the limit, with confidence 1 − α.
            ``"failed"``: some category is below it. ``"inconclusive"``: neither can be said. ``"not testable"``: fewer
            than two categories are compared.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"sex": ["f", "m"] * 500, "hired": [0, 1, 1, 1] * 250})
        >>> table = fl.impact_ratios(rows, "sex", selected="hired").tables[0]
        >>> table.name, table.highest, table.verdict
        ('sex', 'm', 'failed')
    """

    attributes: tuple[str, ...]
    categories: tuple[ImpactCategory, ...]
    highest: Label | None
    certifiable: float | None
    verdict: ImpactVerdict

    @property
    def name(self) -> str:
        """The attributes in words: ``sex × race``."""
        return " × ".join(self.attributes)

    @property
    def compared(self) -> tuple[ImpactCategory, ...]:
        """Categories that are compared."""
        return tuple(
            category for category in self.categories if category.status not in ("too small", "alone", "unknown")
        )

    @property
    def is_divided(self) -> bool:
        """Whether there are two known categories or more, compared or not."""
        return sum(category.status != "unknown" for category in self.categories) > 1

    @property
    def unknown(self) -> int:
        """Applicants whose category is unknown, where these are counted apart."""
        return sum(category.applicants for category in self.categories if category.status == "unknown")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ImpactRatios(TabularResult):
    """Impact ratios by attribute and for their crossing: what `fl.impact_ratios` returns.

    Attributes:
        tables: One for each attribute, then one for their crossing.
        kind: ``"selection rate"``, or ``"scoring rate"``: the share that scores above the median of all.
        column: The column of outcomes, or of scores.
        median: The median score of all rows; None for selections.
        least: The ratio that categories are compared with.
        min_share: Categories with a smaller share of all rows are not compared.
        unknown: What became of rows with a missing attribute.
        missing: What became of rows with a missing outcome.
        alpha: One less the confidence.
        applicants: Rows whose outcome is known.
        missing_rows: Rows whose outcome is missing.
        seed: Of the draws behind the intervals.
        unknown_levels: Attribute → levels whose names say that it is not known; their rows lack the attribute.
        cut: Numeric attributes that were cut into ranges.
        repeated: A column that looks like one of people with several rows each; None where none does.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"sex": ["f", "m"] * 500, "hired": [0, 1, 1, 1] * 250})
        >>> result = fl.impact_ratios(rows, "sex", selected="hired")
        >>> result.verdict, len(result.tables), result.applicants
        ('failed', 1, 1000)
        >>> [(row["sex"], row["ratio"]) for row in result.to_dicts()]
        [('f', 0.5), ('m', 1.0)]
    """

    row_kinds: ClassVar[tuple[Rows, ...]] = ("groups",)
    wording: ClassVar[str] = "impact"
    json_keys: ClassVar[str] = (
        "verdict headline kind column median least min_share unknown missing alpha applicants missing_rows seed "
        "unknown_levels cut repeated notes tables groups"
    )

    tables: tuple[ImpactTable, ...]
    kind: RateKind
    column: str
    median: float | None
    least: float
    min_share: float
    unknown: UnknownChoice
    missing: MissingChoice
    alpha: float
    applicants: int
    missing_rows: int
    seed: int
    unknown_levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cut: tuple[CutFeature, ...] = ()
    repeated: RepeatedColumn | None = None

    def __repr__(self) -> str:
        return f"<ImpactRatios: {self.verdict}, {', '.join(f'{table.name}: {table.verdict}' for table in self.tables)}>"

    @property
    def verdict(self) -> ImpactVerdict:
        """That of all tables: failed where one is, passed where every table with two categories or more is."""
        verdicts = {table.verdict for table in self.tables if table.verdict != "not testable" or table.is_divided}
        if verdicts == {"passed"}:
            return "passed"
        if "failed" in verdicts:
            return "failed"
        return "inconclusive" if verdicts - {"not testable"} else "not testable"

    def columns(self, rows: Rows) -> Columns:
        """One row for each category of each table.

        Args:
            rows: ``"groups"``.

        Returns:
            Column → values.
        """
        names = list(dict.fromkeys(name for table in self.tables for name in table.attributes))
        listed = [(table, category) for table in self.tables for category in table.categories]
        columns: Columns = {name: [getattr(category, name) for _, category in listed] for name in (*_FIELDS, *_BOUNDS)}
        columns["status"] = [category.status for _, category in listed]
        levels: list[Key] = []
        for table, category in listed:
            own = dict(zip(table.attributes, key_of(category.label), strict=True))
            levels.append(tuple("" if name not in own else str(own[name]) for name in names))
        by = attribute_columns(names, levels, {"table", *columns})
        return {"table": [table.name for table, _ in listed], **by, **columns}

    def _plain_values(self) -> dict[str, Any]:
        return {
            "tables": [
                {
                    "attributes": list(table.attributes),
                    "verdict": table.verdict,
                    "highest": None if table.highest is None else name_of(table.highest),
                    "certifiable": table.certifiable,
                    "unknown": table.unknown,
                }
                for table in self.tables
            ]
        }
