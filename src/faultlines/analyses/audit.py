"""`fl.audit`: a model audited from arrays by several metrics, every sensitive feature and their combinations."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from faultlines import checks
from faultlines.analyses.cluster import cluster_metrics
from faultlines.engines.arrays import build_table, read_column, read_columns, split_table
from faultlines.errors import InputError, NoGroupsError
from faultlines.metrics.names import metrics_of
from faultlines.results.clustering import adjust_for_number
from faultlines.results.collection import Audit, AuditedComparison, feature_names, stratum_text, unique_names

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from faultlines.engines.arrays import NamedColumn
    from faultlines.guarantees.base import Guarantee
    from faultlines.metrics.base import Metric
    from faultlines.metrics.names import Wanted
    from faultlines.results.clustering import Clustering

    Stratum = tuple[tuple[str, Any], ...]


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
    unit: Any = None,
    positive: Hashable = None,
    intersections: bool | int = True,
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    min_size: float | None = None,
    seed: int = 0,
) -> Audit:
    """Audit a model from arrays: which groups of which sensitive features it treats differently, by several metrics.

    Every sensitive feature is looked at by itself, and all of them crossed: of A, B and C the groups of A, of B, of C
    and of A × B × C, but pairs such as A × B only with ``intersections=2``. All comparisons are corrected for their
    number (Holm): the probability of any false positive among them is α. With control features groups are compared with
    others of the same stratum only (conditional parity), each stratum a comparison of its own.

    Args:
        y_true: The true outcomes: an array, a list or a Series.
        y_pred: The predicted outcomes; or give `score`.
        score: The scores, with `threshold` to make predictions of them; metrics of scores need no threshold.
        threshold: A score at or above it predicts 1.
        sensitive_features: What the groups are: an array, a Series, a frame of several, or a dict of columns.
        control_features: What groups have to have in common to be compared: likewise.
        metrics: Names of metrics, such as ``"false_positive_rate"`` (``"fpr"`` and other libraries' names are known),
            metrics of this library over the columns ``y_true``, ``y_pred``, ``score``, ``sample_weight`` and
            ``unit``, or functions of `y_true` and `y_pred`, whose standard errors come from a bootstrap; one, a list,
            or a dict. Default: selection rate, true and false positive rate and accuracy; of scores without a threshold
            area under the curve, calibration gap and Brier score.
        sample_weight: Weights of the rows.
        unit: What rows belong to, such as a person or a prompt, where each has several: an array. Standard errors then
            allow for what rows of a unit have in common. A unit must be in one group of every comparison.
        positive: The label that counts as 1, where outcomes are not 0/1 or booleans. Where there are more than two, all
            others count as 0, and only accuracy and error rate can do without it.
        intersections: Which features are crossed, beside each by itself. True: all of them at once. False: none. A
            number: every combination of up to so many, 2 for all pairs, 3 for pairs and triples.
        alpha: The accepted probability of any false positive.
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
    features = read_columns("sensitive_features", sensitive_features, "sensitive_feature")
    controls = [] if control_features is None else read_columns("control_features", control_features, "control_feature")
    arrays = {"y_true": y_true, "y_pred": y_pred, "score": score, "sample_weight": sample_weight}
    arrays["unit"] = unit
    if y_pred is None and score is None:
        raise InputError.missing(
            "y_pred, score", "one of the two is needed", "Give the predictions, or the scores.", form="clause"
        )
    columns = [read_column(name, values) for name, values in arrays.items() if values is not None]
    table = build_table([*columns, *features, *controls])
    options = {
        "threshold": threshold,
        "positive": positive,
        "weight": None if sample_weight is None else "sample_weight",
        "unit": None if unit is None else "unit",
    }
    wanted = metrics_of(metrics, {column.name for column in columns}, options, table)
    attributes = _crossed([feature.name for feature in features], intersections)
    settings = {"guarantee": guarantee, "min_size": min_size, "seed": seed, "alpha": checks.alpha(alpha)}
    comparisons, errors = list[AuditedComparison](), list[tuple[str, NoGroupsError]]()
    for stratum, part in _strata(table, controls):
        for by in attributes:
            for name, metric, result in _compare(part, by, stratum, wanted, settings):
                if isinstance(result, NoGroupsError):
                    errors.append((name, result))
                else:
                    comparisons.append(AuditedComparison(name, metric, by, stratum, result))
    if not comparisons:
        reasons = "; ".join(f"{name}: {error.problem}" for name, error in errors[:3])
        problem = f"nothing can be compared ({reasons})"
        raise errors[0][1].changed(parameter="sensitive_features", value=None, place="", problem=problem, form="clause")
    # A feature called "a × b" and features "a" and "b" crossed must not share a name: results are looked up by it.
    names = unique_names([*(comparison.name for comparison in comparisons), *(name for name, _ in errors)])
    corrected = adjust_for_number([comparison.result for comparison in comparisons], checks.alpha(alpha), "holm")
    final = [
        replace(comparison, name=name, result=result)
        for comparison, name, result in zip(comparisons, names, corrected, strict=False)
    ]
    skipped = {name: error.problem for name, (_, error) in zip(names[len(final) :], errors, strict=True)}
    return Audit(tuple(final), skipped, checks.alpha(alpha))


def _crossed(names: Sequence[str], intersections: Any) -> list[tuple[str, ...]]:
    """Each feature by itself; and all of them at once, or every combination of up to so many."""
    if type(intersections).__name__ in {"bool", "bool_"}:
        alone: list[tuple[str, ...]] = [(name,) for name in names]
        return [*alone, tuple(names)] if intersections and len(names) > 1 else alone
    problem = "must be true or false, or how many features are crossed"
    remedy, settings = "Use {intersections} for all pairs.", {"intersections": 2}
    depth = checks.number("intersections", intersections, problem, remedy, low=2, whole=True, settings=settings)
    sizes = range(1, min(int(depth), len(names)) + 1)
    return [some for size in sizes for some in combinations(names, size)]


def _strata(table: Any, controls: Sequence[NamedColumn]) -> list[tuple[Stratum, Any]]:
    """The rows of each combination of control features, with what these are."""
    if not controls:
        return [((), table)]
    names = [control.name for control in controls]
    return [(tuple(zip(names, key, strict=True)), part) for key, part in split_table(table, names)]


def _compare(
    table: Any, by: tuple[str, ...], stratum: Stratum, metrics: Mapping[str, Metric], settings: Mapping[str, Any]
) -> Iterator[tuple[str, str, Clustering | NoGroupsError]]:
    """Every metric by some features in some rows: its name, the metric, and the result or why there is none."""

    def clusters(several: Sequence[Metric]) -> list[Clustering | NoGroupsError]:
        try:
            return [*cluster_metrics(table, by, several, **settings)]
        except NoGroupsError as error:
            return [error] if len(several) == 1 else [clusters([metric])[0] for metric in several]

    where = f" by {feature_names(by)}" + (f" ({stratum_text(stratum)})" if stratum else "")
    for metric, result in zip(metrics, clusters(list(metrics.values())), strict=True):
        if not isinstance(result, NoGroupsError) and len(result.groups) < 2:
            remedy = "Give a feature with two groups or more that are large enough."
            error = NoGroupsError("data", "fewer than two groups can be compared", remedy, form="clause")
            yield metric + where, metric, error
        else:
            yield metric + where, metric, result
