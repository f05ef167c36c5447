"""The result of `fl.audit`: a comparison for every metric, and the table of every metric in every group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, ClassVar, Literal

import numpy as np

from faultlines.errors import ErrorCode, InputError
from faultlines.estimates.labels import MISSING, Label, key_of, name_of
from faultlines.estimates.reasons import Reason
from faultlines.formats import Unit
from faultlines.metrics.table import Adverse
from faultlines.progress import progress
from faultlines.results.certificate import Certificate, MissingChoice
from faultlines.results.clustering import Clustering
from faultlines.results.collection import Collection
from faultlines.results.multiplicity import Correction
from faultlines.results.protocol import Columns, Rows
from faultlines.results.tables import attribute_columns, whole_number
from faultlines.types import FloatArray

Stratum = tuple[tuple[str, Any], ...]

_CROSSED = " × "
_GROUP_COLUMNS = frozenset(
    "metric effect by group stratum n estimate se lower upper overall difference excluded".split()
)


@dataclass(frozen=True, slots=True)
class AuditedComparison:
    """One comparison of an audit.

    Attributes:
        name: How it is called: ``"false positive rate by sex × race"``.
        metric: What was measured.
        by: The sensitive features whose levels and combinations are compared.
        stratum: Which values the control features have; empty without them.
        result: The clusters, with p adjusted for the number of comparisons.

    Example:
        >>> import faultlines as fl
        >>> truth, sex = [0, 1] * 200, ["f"] * 200 + ["m"] * 200
        >>> predicted = [0, 1] * 100 + [0, 0] * 100
        >>> audit = fl.audit(truth, predicted, sensitive_features={"sex": sex}, metrics=["recall"])
        >>> comparison = audit.comparisons[0]
        >>> comparison.name, comparison.metric, comparison.by, comparison.result.n_clusters
        ('true positive rate by sex', 'true positive rate', ('sex',), 2)
    """

    name: str
    metric: str
    by: tuple[str, ...]
    stratum: Stratum
    result: Clustering


@dataclass(frozen=True, slots=True)
class AuditedGroup:
    """One metric in one group: a level of a feature, or a combination of levels.

    Attributes:
        metric: What was measured.
        effect: Which effect, where a metric has several; None where it has one.
        by: The features whose levels make the group.
        label: The group.
        stratum: Which values the control features have; empty without them.
        n: How many rows (positives, negatives, …) the value comes from.
        estimate: The value; None where there is none.
        se: Its standard error.
        lower: Lower end of its interval at 1 − α, as a statement about this group alone.
        upper: Upper end.
        overall: The value in all rows of the stratum.
        unit: What people read the value in: percent, percentage points, or what the metric is in.
        excluded: Why the group was not compared; None where it was.

    Example:
        >>> import faultlines as fl
        >>> truth, sex = [0, 1] * 200, ["f"] * 200 + ["m"] * 200
        >>> predicted = [0, 1] * 100 + [0, 0] * 50 + [0, 1] * 50
        >>> group = fl.audit(truth, predicted, sensitive_features={"sex": sex}, metrics="recall").groups[1]
        >>> group.label, group.n, group.estimate, group.overall, group.difference
        ('m', 100.0, 0.5, 0.75, -0.25)
    """

    metric: str
    effect: str | None
    by: tuple[str, ...]
    label: Label
    stratum: Stratum
    n: float | None
    estimate: float | None
    se: float | None
    lower: float | None
    upper: float | None
    overall: float | None
    unit: Unit
    excluded: Reason | None = None

    @property
    def difference(self) -> float | None:
        """How far the value is from that in all rows."""
        return None if self.estimate is None or self.overall is None else self.estimate - self.overall


@dataclass(frozen=True, slots=True)
class CutFeature:
    """A numeric feature with many values, cut into ranges with about equally many rows.

    Attributes:
        feature: Its name.
        values: How many values it has; 1,000 stands for more.
        ranges: How many ranges were made of them.

    Example:
        >>> import faultlines as fl
        >>> ages = [20 + i % 50 for i in range(1000)]
        >>> audit = fl.audit([0, 1] * 500, [0, 1] * 500, sensitive_features={"age": ages}, metrics="selection_rate")
        >>> audit.cut
        (CutFeature(feature='age', values=50, ranges=5),)
    """

    feature: str
    values: int
    ranges: int


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Collection):
    """Every comparison of an audit, corrected for their number: what `fl.audit` returns.

    It prints an overview; ``audit["false positive rate by sex"]`` is the `Clustering` of one comparison.

    Attributes:
        comparisons: The comparisons, one for each metric (and stratum), in the order of the metrics.
        skipped: Names of those that could not be made, with the reason; a metric that rows do not allow by its name.
        alpha: The accepted probability of any false positive among them.
        groups: Every metric in every level of each feature and every combination of levels.
        correction: ``"holm"``, or ``"bh"`` for the share of false positives among the findings.
        cut: Numeric features that were cut into ranges.
        skipped_codes: Names of those that could not be made, with the code of the error.

    Example:
        >>> import faultlines as fl
        >>> truth, sex = [0, 1] * 200, ["f"] * 200 + ["m"] * 200
        >>> predicted = [0, 1] * 100 + [0, 0] * 100
        >>> audit = fl.audit(truth, predicted, sensitive_features={"sex": sex}, metrics=["recall", "fpr"])
        >>> audit.names, audit.rejected
        (('true positive rate by sex', 'false positive rate by sex'), ('true positive rate by sex',))
        >>> audit.verdict, audit["true positive rate by sex"].n_clusters, audit.to_dict()["rejected"]
        ('differ', 2, ['true positive rate by sex'])
        >>> [(row["sex"], row["estimate"], row["difference"]) for row in audit.to_dicts("groups")[:2]]
        [('f', 1.0, 0.5), ('m', 0.0, -0.5)]
        >>> audit.report("audit.html")
    """

    row_kinds: ClassVar[tuple[Rows, ...]] = ("comparisons", "groups")
    wording: ClassVar[str] = "audit"
    json_keys: ClassVar[str] = f"{Collection.json_keys} comparisons groups cut skipped skipped_codes results"

    comparisons: tuple[AuditedComparison, ...]
    skipped: Mapping[str, str]
    alpha: float
    groups: tuple[AuditedGroup, ...] = ()
    correction: Correction = "holm"
    cut: tuple[CutFeature, ...] = ()
    skipped_codes: Mapping[str, ErrorCode] = field(default_factory=dict)

    @property
    def noun(self) -> str:  # type: ignore[override]
        """What its results are called: a metric where each has one comparison."""
        metrics = {comparison.metric for comparison in self.comparisons}
        return "metric" if len(metrics) == len(self.comparisons) else "comparison"

    @property
    def names(self) -> tuple[str, ...]:
        """What the comparisons are called."""
        return tuple(comparison.name for comparison in self.comparisons)

    @property
    def log_pvalues(self) -> FloatArray:
        """Natural logarithm of each one's own p of "all groups are equal"."""
        return np.array([comparison.result.log_pvalue for comparison in self.comparisons])

    @property
    def log_pvalues_adj(self) -> FloatArray:
        """The same, adjusted for the number of comparisons."""
        return np.array([comparison.result.log_pvalue_adj for comparison in self.comparisons])

    def result_at(self, place: int) -> Clustering:
        """The result at a place.

        Args:
            place: Its place among the names.

        Returns:
            The result, with adjusted p and the clusters that are reported.
        """
        return self.comparisons[place].result

    @property
    def group_counts(self) -> list[int]:
        """How many groups each comparison has."""
        return [len(comparison.result.groups) for comparison in self.comparisons]

    @property
    def features(self) -> tuple[str, ...]:
        """The sensitive features, in the order in which they were given."""
        return tuple(dict.fromkeys(name for comparison in self.comparisons for name in comparison.by))

    def columns(self, rows: Rows) -> Columns:
        """The columns of its comparisons, or of every metric in every group.

        Args:
            rows: ``"comparisons"`` or ``"groups"``.

        Returns:
            Column → values.
        """
        return self._group_columns() if rows == "groups" else self._comparison_columns()

    def _comparison_columns(self) -> Columns:
        from faultlines.render.audit import contrast_text, exclusion_text

        results = [comparison.result for comparison in self.comparisons]
        effects = [[c.effects[0].estimate for c in r.clusters if len(c.effects) == 1] for r in results]
        overall = [result.overall.effects for result in results]
        return {
            "name": list(self.names),
            "metric": [comparison.metric for comparison in self.comparisons],
            "by": [feature_names(comparison.by) for comparison in self.comparisons],
            "stratum": [stratum_text(comparison.stratum) or None for comparison in self.comparisons],
            "n_groups": self.group_counts,
            "n_clusters": [result.n_clusters for result in results],
            "attributes": [list(result.attributes) for result in results],
            "overall": [several[0].estimate if len(several) == 1 else None for several in overall],
            "lowest": [min(several) if several else None for several in effects],
            "highest": [max(several) if several else None for several in effects],
            "pvalue": [result.pvalue for result in results],
            "pvalue_adj": [result.pvalue_adj for result in results],
            "rejected": [result.rejected for result in results],
            "verdict": [result.verdict for result in results],
            "headline": [contrast_text(result) for result in results],
            "n_excluded": [len(result.excluded) for result in results],
            "n_dropped": [sum(result.dropped.values()) for result in results],
            "excluded": [exclusion_text(result) or None for result in results],
        }

    def _group_columns(self) -> Columns:
        """Every metric in every group; a feature that does not make the group has no value."""
        features = tuple(dict.fromkeys(name for group in self.groups for name in group.by))
        keys = []
        for group in self.groups:
            levels = dict(zip(group.by, key_of(group.label), strict=True))
            keys.append(tuple(levels.get(feature) for feature in features))
        levels_of = attribute_columns(features, keys, _GROUP_COLUMNS)
        # Beside groups of other features a level is text or nothing, so that frames have one type.
        levels_of = {
            name: [None if key[i] is None else value for key, value in zip(keys, values, strict=True)]
            for i, (name, values) in enumerate(levels_of.items())
        }
        return {
            "metric": [group.metric for group in self.groups],
            "effect": [group.effect for group in self.groups],
            "by": [feature_names(group.by) for group in self.groups],
            "group": [name_of(group.label) for group in self.groups],
            **levels_of,
            "stratum": [stratum_text(group.stratum) or None for group in self.groups],
            "n": [whole_number(group.n) for group in self.groups],
            **{
                name: [getattr(group, name) for group in self.groups]
                for name in ("estimate", "se", "lower", "upper", "overall")
            },
            "difference": [group.difference for group in self.groups],
            "excluded": [None if group.excluded is None else str(group.excluded) for group in self.groups],
        }

    def _plain_values(self) -> dict[str, Any]:
        results = {}
        with progress("describing comparisons", len(self.comparisons)) as advance:
            for comparison in self.comparisons:
                results[comparison.name] = comparison.result.to_dict()
                advance(1)
        return {"results": results}

    def certify(
        self,
        *,
        gap: float | Sequence[float],
        against: Label | None = None,
        ratio: bool = False,
        adverse: Adverse | Literal["auto"] | None = "auto",
        missing: MissingChoice = "bounds",
        seed: int = 0,
    ) -> dict[str, Certificate | None]:
        """Certify that no group is farther than a gap away, in every comparison?

        The probability of any wrong certificate among them is α: each is made at α over their number (Bonferroni).

        Args:
            gap: How far is too far; see `fl.certify`.
            against: What groups are compared with; see `fl.certify`.
            ratio: Compare ratios, not differences; see `fl.certify`.
            adverse: The harmful direction, by default that of each metric; see `fl.certify`. One direction for metrics
                that harm in different ones is refused.
            missing: What missing values could be; see `fl.certify`.
            seed: Of the draws behind the simultaneous intervals.

        Returns:
            The certificate of each comparison, by its name; None for what could not be compared (`skipped`), of which
            nothing can be certified.

        Raises:
            InputError: If something given cannot be used for some metric.

        Example:
            >>> import faultlines as fl
            >>> truth, sex = [0, 1] * 2000, ["f"] * 2000 + ["m"] * 2000
            >>> audit = fl.audit(truth, truth, sensitive_features={"sex": sex}, metrics=["recall", "selection_rate"])
            >>> {name: one.verdict for name, one in audit.certify(gap=0.05).items()}
            {'true positive rate by sex': 'passed', 'selection rate by sex': 'passed'}
        """
        from faultlines.analyses.certify import certify, check_shared_direction

        check_shared_direction(adverse, [comparison.result.estimates for comparison in self.comparisons], against)
        options: dict[str, Any] = {"gap": gap, "against": against, "ratio": ratio, "adverse": adverse, "seed": seed}
        options["missing"] = missing
        alpha = self.alpha / len(self)
        certificates: dict[str, Certificate | None] = {}
        for comparison in self.comparisons:
            try:
                certificates[comparison.name] = certify(comparison.result, alpha=alpha, **options)
            except InputError as error:
                raise error.within(comparison.name) from error
        return certificates | dict.fromkeys(self.skipped)

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        command: str | None = None,
        adverse: Adverse | Mapping[str, Adverse] | None = None,
        certificates: Mapping[str, Certificate | None] | None = None,
    ) -> None:
        """Write one page: the findings, every metric in every group, and a part for each finding.

        Args:
            path: Where to, such as ``"audit.html"``.
            title: What stands at its head.
            command: What reproduces it, to be said on the page.
            adverse: The harmful direction, for all or by name; see `Clustering.report`.
            certificates: What `certify` returned, to be on the page as well.

        Raises:
            InputError: If the extra ``report`` is not installed, or the file cannot be written.
        """
        from faultlines.render.page import write_report

        write_report(self, path, title=title, command=command, adverse=adverse, certificates=certificates)


def feature_names(by: Sequence[str]) -> str:
    """Features that are crossed: ``sex × race``; a name that reads like several is put in quotes."""
    return _CROSSED.join(repr(name) if _CROSSED.strip() in name else name for name in by)


def stratum_text(stratum: Sequence[tuple[str, Any]]) -> str:
    """The values of control features: ``region = north``; text that reads like a missing value is put in quotes."""
    return ", ".join(f"{name} = {_value_text(value)}" for name, value in stratum)


def _value_text(value: Any) -> str:
    if value is None:
        return MISSING
    return repr(value) if value == MISSING else str(value)
