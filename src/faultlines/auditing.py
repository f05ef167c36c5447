"""A model audited from arrays: several metrics, every sensitive feature and their combinations, one correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faultlines import checks, text
from faultlines.clustering import cluster_metrics, holm, need_report, page_text, write_page
from faultlines.errors import InputError, NoGroupsError, did_you_mean, shorten
from faultlines.metrics.named import metrics_of
from faultlines.metrics.remedies import remedy_for
from faultlines.result.decision import contrast
from faultlines.result.tables import Columns, Rows, Tabular
from faultlines.sources.arrays import column_of, columns_of, parts_of, table_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from os import PathLike

    from faultlines.clustering import Clustering
    from faultlines.guarantees.base import Guarantee
    from faultlines.metrics.base import Metric
    from faultlines.metrics.named import Wanted
    from faultlines.result.decision import Adverse
    from faultlines.sources.arrays import Given

_OVERVIEW = 40  # comparisons that are printed


@dataclass(frozen=True, slots=True)
class Audited:
    """One result of an audit, and what it is about.

    Attributes:
        name: How it is called: ``"false positive rate by sex × race"``.
        metric: What was measured.
        by: The sensitive features whose combinations are the groups.
        stratum: Which values the control features have; empty without them.
        found: The clusters, with p adjusted for the number of comparisons.

    Example:
        >>> import faultlines as fl
        >>> truth, sex = [0, 1] * 200, ["f"] * 200 + ["m"] * 200
        >>> predicted = [0, 1] * 100 + [0, 0] * 100
        >>> one = fl.audit(truth, predicted, sensitive_features={"sex": sex}, metrics=["recall"]).comparisons[0]
        >>> one.name, one.metric, one.by, one.found.n_clusters
        ('true positive rate by sex', 'true positive rate', ('sex',), 2)
    """

    name: str
    metric: str
    by: tuple[str, ...]
    stratum: tuple[tuple[str, Any], ...]
    found: Clustering


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Audit(Tabular):
    """Every comparison of an audit, corrected for their number: what `fl.audit` returns.

    It prints an overview; ``audit["false positive rate by sex"]`` is the `Clustering` of one comparison.

    Attributes:
        comparisons: The comparisons, in the order of features and metrics.
        skipped: Names of those that could not be made, with the reason.
        alpha: The chance of any false claim among them.

    Example:
        >>> import faultlines as fl
        >>> truth, sex = [0, 1] * 200, ["f"] * 200 + ["m"] * 200
        >>> predicted = [0, 1] * 100 + [0, 0] * 100
        >>> audit = fl.audit(truth, predicted, sensitive_features={"sex": sex}, metrics=["recall", "fpr"])
        >>> audit.names, audit.rejected
        (('true positive rate by sex', 'false positive rate by sex'), ('true positive rate by sex',))
        >>> audit["true positive rate by sex"].n_clusters, len(audit.html) > 1000
        (2, True)
        >>> audit.report("audit.html")
    """

    comparisons: tuple[Audited, ...]
    skipped: Mapping[str, str]
    alpha: float

    def __len__(self) -> int:
        return len(self.comparisons)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __getitem__(self, name: str) -> Clustering:
        """The whole result of one comparison."""
        for one in self.comparisons:
            if one.name == name:
                return one.found
        raise InputError(f"name={shorten(name)}", "no such comparison", did_you_mean(name, self.names))

    @property
    def names(self) -> tuple[str, ...]:
        """What the comparisons are called."""
        return tuple(one.name for one in self.comparisons)

    @property
    def rejected(self) -> tuple[str, ...]:
        """The comparisons in which clusters differ, the surest first."""
        found = sorted((one for one in self.comparisons if one.found.rejected), key=lambda one: one.found.log_pvalue)
        return tuple(one.name for one in found)

    def _columns(self, rows: Rows = "groups") -> Columns:
        checks.choice("rows", rows, ("groups",), "An audit has one row per comparison: leave it out.")
        found = [one.found for one in self.comparisons]
        levels = [[c.effects[0].estimate for c in one.clusters if len(c.effects) == 1] for one in found]
        overall = [one.overall.effects for one in found]
        return {
            "name": list(self.names),
            "metric": [one.metric for one in self.comparisons],
            "by": [" × ".join(one.by) for one in self.comparisons],
            "stratum": [_told(one.stratum) or None for one in self.comparisons],
            "n_groups": [len(one.groups) for one in found],
            "n_clusters": [one.n_clusters for one in found],
            "overall": [effects[0].estimate if len(effects) == 1 else None for effects in overall],
            "lowest": [min(several) if several else None for several in levels],
            "highest": [max(several) if several else None for several in levels],
            "pvalue": [one.pvalue for one in found],
            "pvalue_adj": [one.pvalue_adj for one in found],
            "rejected": [one.rejected for one in found],
            "finding": [contrast(one._summary) or "No difference can be claimed." for one in found],
        }

    def _finding(self, name: str) -> str:
        """Which clusters differ in one comparison, with the stratum where there are several."""
        one = next(one for one in self.comparisons if one.name == name)
        said = contrast(one.found._summary)
        return f"{_told(one.stratum)}: {said}" if one.stratum else said

    @property
    def _note(self) -> str:
        how = f"{len(self):,} comparisons, corrected by Holm at α = {self.alpha:g}"
        return f"{how}: clusters differ where the adjusted p is below α."

    @property
    def html(self) -> str:
        """One page over all comparisons, to hand over or to show in a notebook."""
        need_report("html")
        return page_text([one.found for one in self.comparisons], self.names, note=self._note)

    def report(
        self,
        path: str | PathLike[str],
        *,
        title: str | None = None,
        adverse: Adverse | Mapping[str, Adverse] | None = None,
    ) -> None:
        """Write one page over all comparisons, with a part for each of the first twenty; see `Clustering.report`.

        Args:
            path: Where to, such as ``"audit.html"``.
            title: What stands at its head.
            adverse: Where people are worse off, by name of the comparison; see `Clustering.report`.

        Raises:
            InputError: If the extra ``report`` is not installed, or the file cannot be written.
        """
        need_report("report()")
        found = [one.found for one in self.comparisons]
        write_page(found, self.names, path, title=checks.text("title", title), note=self._note, adverse=adverse)

    def __repr__(self) -> str:
        return f"<Audit: clusters differ in {len(self.rejected)} of {len(self)} comparisons, α = {self.alpha:g}>"

    def __str__(self) -> str:
        head = f"Clusters differ in {len(self.rejected):,} of {len(self):,} comparisons (Holm, α = {self.alpha:g})."
        rows = [
            [one.name, text.pvalue(one.found.log_pvalue_adj), str(one.found.n_clusters), str(len(one.found.groups))]
            for one in self.comparisons[:_OVERVIEW]
        ]
        lines = [head, "", text.table(["comparison", "adjusted p", "clusters", "groups"], rows, {1, 2, 3})]
        lines += [f"… {len(self) - _OVERVIEW:,} more: to_pandas() has all."] if len(self) > _OVERVIEW else []
        lines += ["", *(self._finding(name) for name in self.rejected[:_OVERVIEW])] if self.rejected else []
        lines += ["", *(f"Not compared: {name} ({why})" for name, why in self.skipped.items())] if self.skipped else []
        return text.printable_lines("\n".join(lines))


def audit(
    y_true: Any,
    y_pred: Any = None,
    *,
    score: Any = None,
    threshold: float | None = None,
    sensitive_features: Any,
    control_features: Any = None,
    metrics: Wanted | Sequence[Wanted] | Mapping[str, Wanted] | None = None,
    sample_weight: Any = None,
    positive: Hashable = None,
    intersections: bool = True,
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    min_size: float | None = None,
    seed: int = 0,
) -> Audit:
    """Audit a model from arrays: which groups of which sensitive features it treats differently, by several metrics.

    Every sensitive feature is looked at by itself, and all of them together in their combinations. All comparisons are
    corrected for their number (Holm): the chance of any false claim among them is α. With control features groups are
    compared with others of the same stratum only (conditional parity), each stratum a comparison of its own.

    Args:
        y_true: The true outcomes: an array, a list or a Series.
        y_pred: The predicted outcomes; or give `score`.
        score: The scores, with `threshold` to make predictions of them; metrics of scores need no threshold.
        threshold: A score at or above it predicts 1.
        sensitive_features: What the groups are: an array, a Series, a frame of several, or a dict of columns.
        control_features: What groups have to have in common to be compared: likewise.
        metrics: Names of metrics, such as ``"false_positive_rate"`` (``"fpr"`` and other libraries' names are known),
            metrics of this library over the columns ``y_true``, ``y_pred``, ``score`` and ``sample_weight``, or
            functions of `y_true` and `y_pred`, whose standard errors come from a bootstrap; one, several, or a dict.
            Default: selection rate, true and false positive rate and accuracy; of scores without a threshold area under
            the curve, calibration gap and Brier score.
        sample_weight: Weights of the rows.
        positive: The label that counts as 1, where outcomes are not 0/1 or booleans. Where there are more than two, all
            others count as 0, and only accuracy and error rate can do without it.
        intersections: Whether to look at combinations of sensitive features as well.
        alpha: The chance of any false claim.
        guarantee: See `fl.cluster`.
        min_size: See `fl.cluster`.
        seed: Of the random draws.

    Returns:
        The overview, which prints itself, with the `Clustering` of every comparison; `report` writes one page.

    Raises:
        InputError: If arrays do not belong together, a metric is not known, or nothing can be compared.

    Example:
        >>> import faultlines as fl
        >>> truth, sex = [0, 1] * 200, ["f"] * 200 + ["m"] * 200
        >>> predicted = [0, 1] * 100 + [0, 0] * 100
        >>> fl.audit(truth, predicted, sensitive_features={"sex": sex}, metrics=["recall", "fpr"]).rejected
        ('true positive rate by sex',)
    """
    features = columns_of("sensitive_features", sensitive_features, "sensitive_feature")
    controls = [] if control_features is None else columns_of("control_features", control_features, "control_feature")
    given = {"y_true": y_true, "y_pred": y_pred, "score": score, "sample_weight": sample_weight}
    if y_pred is None and score is None:
        raise InputError("y_pred=None, score=None", "one of the two is needed", "Give the predictions, or the scores.")
    columns = [column_of(name, values) for name, values in given.items() if values is not None]
    table = table_of([*columns, *features, *controls])
    options = {
        "threshold": threshold,
        "positive": positive,
        "weight": None if sample_weight is None else "sample_weight",
    }
    measured = metrics_of(metrics, {one.name for one in columns}, options, table)
    names = [one.name for one in features]
    groups = [(name,) for name in names] + [tuple(names)] * (
        checks.flag("intersections", intersections) and len(names) > 1
    )
    settings = {"guarantee": guarantee, "min_size": min_size, "seed": seed, "alpha": checks.alpha(alpha)}
    made, skipped = list[Audited](), dict[str, str]()
    for stratum, part in _strata(table, controls):
        for by in groups:
            _compare(part, by, stratum, measured, settings, made, skipped)
    if not made:
        shown = "; ".join(f"{name}: {why}" for name, why in list(skipped.items())[:3])
        raise NoGroupsError(
            "sensitive_features", f"nothing can be compared ({shown})", remedy_for(list(skipped.values()))
        )
    corrected = holm([one.found for one in made], alpha)
    final = (Audited(o.name, o.metric, o.by, o.stratum, c) for o, c in zip(made, corrected, strict=True))
    return Audit(tuple(final), skipped, checks.alpha(alpha))


def _strata(table: Any, controls: Sequence[Given]) -> list[tuple[tuple[tuple[str, Any], ...], Any]]:
    """The rows of each combination of control features, with what these are."""
    if not controls:
        return [((), table)]
    names = [one.name for one in controls]
    return [(tuple(zip(names, key, strict=True)), part) for key, part in parts_of(table, names)]


def _told(stratum: tuple[tuple[str, Any], ...]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in stratum)


def _compare(
    table: Any,
    by: tuple[str, ...],
    stratum: tuple[tuple[str, Any], ...],
    measured: Mapping[str, Metric],
    settings: Mapping[str, Any],
    made: list[Audited],
    skipped: dict[str, str],
) -> None:
    """Every metric by some features in some rows, added to what was made, or to what was skipped with the reason."""

    def found_of(metrics: Sequence[Metric]) -> list[Clustering | str]:
        try:
            return [*cluster_metrics(table, by, metrics, **settings)]
        except NoGroupsError as error:
            return [error.problem] if len(metrics) == 1 else [found_of([metric])[0] for metric in metrics]

    where = f" by {' × '.join(by)}" + (f" ({_told(stratum)})" if stratum else "")
    for called, found in zip(measured, found_of(list(measured.values())), strict=True):
        if isinstance(found, str) or len(found.groups) < 2:
            skipped[called + where] = found if isinstance(found, str) else "fewer than two groups can be compared"
        else:
            made.append(Audited(called + where, called, by, stratum, found))
