"""Fairlearn's MetricFrame, in and out.

A MetricFrame keeps one number per metric and group, and no rows. How sure such a number is follows from a count beside
it where it is a rate, or from the bootstrap the frame was made with; otherwise nobody can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from scipy.special import ndtri

from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import key_of, keys_of, labels_of, part_of
from faultlines.estimates.scales import ANSCOMBE
from faultlines.results.audit import Audit
from faultlines.results.clustering import Clustering
from faultlines.results.tables import named_attributes
from faultlines.types import BoolArray, FloatArray

_PARTS = ("by_group", "overall", "sensitive_levels")  # by which a MetricFrame is known
# What is known by its name to be a share of all rows. A recall of 40 of 50 positives among 100 rows is a whole number
# of these too, with a standard error too small by √2: what is under any other name may be such a share.
_OF_ALL_ROWS = frozenset(
    "accuracy error_rate misclassification_rate zero_one_loss selection_rate positive_rate acceptance_rate prevalence "
    "base_rate".split()
)
_ERROR = "standard_error"
_WHOLE = 1e-9  # of a count, that a number of events may be off by rounding


def from_metric_frame(
    frame: Any, metric: str | None = None, *, count: str | None = None, stratum: Any = None
) -> Estimates:
    """Estimates of the groups of a MetricFrame of Fairlearn, for `fl.cluster` and `fl.certify`.

    A MetricFrame does not say how sure its numbers are. Of a rate, a count beside it does: add Fairlearn's `count` to
    its metrics, and for shares of other rows than all, such as recall, a metric that counts those. Of any other metric,
    the bootstrap of the frame does (``n_boot=``, ``ci_quantiles=``), or a metric ``"standard_error"`` beside it, as
    `fl.to_metric_frame` adds. Combinations of features without rows, which a MetricFrame lists too, are no groups.
    Control features make none either: groups are compared within one stratum of them.

    Args:
        frame: The MetricFrame.
        metric: Which of its metrics; may be omitted where there is one beside the count.
        count: The metric that counts the rows the other is a share of. Default: the one called ``"count"``, for a
            metric whose name says that it is a share of all rows: accuracy, error rate, selection rate.
        stratum: The value of the control feature whose groups are compared; of several features a tuple. `fl.audit`
            with ``control_features=`` looks at all strata under one correction.

    Returns:
        The estimates, one per group of the sensitive features.

    Raises:
        InputError: If nothing says how sure the metric is, the metric is not a proportion of what is counted, or the
            frame has control features and no stratum is named.

    Example:
        >>> import faultlines as fl
        >>> from fairlearn.metrics import MetricFrame, count, selection_rate
        >>> sex, chosen = ["f", "m"] * 50, [0, 1, 0, 1, 1, 1, 0, 1, 0, 0] * 10
        >>> both = {"selection_rate": selection_rate, "count": count}
        >>> frame = MetricFrame(metrics=both, y_true=chosen, y_pred=chosen, sensitive_features={"sex": sex})
        >>> fl.from_metric_frame(frame).natural.tolist()
        [0.2, 0.8]
    """
    if not all(hasattr(frame, name) for name in _PARTS):
        raise InputError.wrong_type("frame", "is not a MetricFrame", "Give one of fairlearn.metrics.", frame)
    table = frame.by_group.to_frame() if frame.by_group.ndim == 1 else frame.by_group
    names = [str(name) for name in table.columns]
    counted = _counted(names, metric, count)
    chosen = _chosen(names, metric, counted)
    values = _column(table, names, chosen)
    sizes = None if counted is None else _column(table, names, counted)
    errors = _errors(table, names, chosen)
    there = np.isfinite(values) if sizes is None else np.nan_to_num(sizes) > 0
    there &= True if errors is None else np.isfinite(values) & np.isfinite(errors)
    keys = [key if isinstance(key, tuple) else (key,) for key in table.index.tolist()]
    controls = len(frame.control_levels or ())
    there &= _within(keys, controls, table.index.names, stratum)
    if not there.any():
        raise InputError.invalid_data("metric", "is not a number in any group", "Check the frame.", chosen)
    kept_keys = [tuple(map(part_of, key[controls:])) for key, good in zip(keys, there, strict=True) if good]
    fields: dict[str, Any] = {"attributes": [str(name) for name in table.index.names][controls:], "metric": chosen}
    n = None if sizes is None else sizes[there]
    of_counted = count is not None or _is_of_all_rows(chosen)
    events = None if n is None or not of_counted else _events(values[there], n)
    if n is not None and events is not None:
        theta, se = ANSCOMBE.forward(events, n), 1 / np.sqrt(4 * n + 2)
        return Estimates(theta, se, labels_of(keys_of(kept_keys)), n, scale=ANSCOMBE, natural=events / n, **fields)
    if count is not None or (errors is None and frame.n_boot is None):
        raise _unknown(chosen, counted, is_named=count is not None)
    se, dof = (errors, None) if errors is not None else _bootstrapped(frame, names, chosen)
    return Estimates(values[there], se[there], labels_of(keys_of(kept_keys)), n, dof, **fields)


def _within(keys: Sequence[tuple[Any, ...]], controls: int, names: Sequence[Any], stratum: Any) -> BoolArray:
    """Which groups are in a stratum of the control features, which come first in their keys."""
    wanted = stratum if isinstance(stratum, tuple) else (stratum,)
    if not controls:
        if stratum is not None:
            raise InputError.conflict(
                "stratum", "the frame has no control features", "Leave it out.", stratum, form="clause"
            )
        return np.ones(len(keys), dtype=bool)
    strata = list(dict.fromkeys(key[:controls] for key in keys))
    if wanted not in strata:
        some = " or ".join(f"stratum={shorten(key[0] if controls == 1 else key)}" for key in strata[:3])
        problem = f"the frame has control features ({', '.join(map(str, names[:controls]))}), and this is no stratum"
        remedy = f"Name one: {some}. All under one correction: fl.audit(…, control_features=…)."
        raise InputError.not_found("stratum", problem, remedy, stratum, form="clause")
    return np.array([key[:controls] == wanted for key in keys])


def _is_of_all_rows(metric: str) -> bool:
    """Whether a metric is a share of all rows, by its name: ``accuracy_score``, ``selection rate of hired``."""
    return metric.lower().replace(" ", "_").split("_of_")[0].removesuffix("_score") in _OF_ALL_ROWS


def _unknown(metric: str, counted: str | None, *, is_named: bool) -> InputError:
    """Why nobody can tell how sure a metric is."""
    if counted is not None and not is_named and not _is_of_all_rows(metric):
        problem = f"the frame does not say which rows it is a share of: all that {counted!r} counts, or some of them"
        remedy = (
            "Name the metric that counts them: {count} if it is all rows, a count of positives for recall; or make "
            "the frame with n_boot=."
        )
        return InputError.ambiguous("metric", problem, remedy, metric, settings={"count": counted}, form="clause")
    if counted is None:
        problem = "the frame has neither a count nor a bootstrap: it does not say how sure its numbers are"
        remedy = 'Make it with metrics={…, "count": fairlearn.metrics.count}, or with n_boot= and ci_quantiles=.'
    else:
        problem = f"is not a proportion of {counted!r}"
        remedy = (
            "Name the metric that counts its rows (positives for recall) as count=, or make the frame with n_boot=."
        )
    return InputError.invalid_data("metric", problem, remedy, metric)


def _errors(table: Any, names: Sequence[str], metric: str) -> FloatArray | None:
    """Standard errors of a metric, where the frame has them as a metric, as those of `to_metric_frame` do."""
    named = (f"{_ERROR} of {metric}", _ERROR)
    column = next((name for name in named if name in names and name != metric), None)
    return None if column is None else _column(table, names, column)


def _counted(names: Sequence[str], metric: str | None, count: str | None) -> str | None:
    """The metric that counts."""
    if count is None:
        return "count" if "count" in names and metric != "count" else None
    if count not in names:
        raise InputError.not_found(
            "count", "the frame has no such metric", did_you_mean(count, names), count, form="clause"
        )
    return count


def _chosen(names: Sequence[str], metric: str | None, counted: str | None) -> str:
    """The metric that is compared."""
    others = [name for name in names if name != counted]
    if metric is None:
        # Of our own frames, errors and clusters are about a metric and none themselves.
        own_columns = {"cluster"} if any(name.startswith(_ERROR) for name in others) else set()
        several = [name for name in others if name not in own_columns and not name.startswith(_ERROR)]
        if len(several) != 1:
            raise InputError.ambiguous(
                "metric", f"the frame has several: {', '.join(several[:8])}", "Name one.", None, form="clause"
            )
        return several[0]
    if metric not in others:
        raise InputError.not_found(
            "metric", "the frame has no such metric", did_you_mean(metric, others), metric, form="clause"
        )
    return metric


def _column(table: Any, names: Sequence[str], name: str) -> FloatArray:
    try:
        return np.asarray(table.iloc[:, names.index(name)], dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError.invalid_data("metric", "is not one number per group", "Name another metric.", name) from error


def _events(values: FloatArray, n: FloatArray) -> FloatArray | None:
    """How many rows a rate is about; None where that is not a whole number everywhere, so that it is no such rate."""
    events = np.round(values * n)
    good = (np.abs(values * n - events) <= _WHOLE * np.maximum(n, 1.0)) & (events >= 0) & (events <= n)
    return events if good.all() else None


def _bootstrapped(frame: Any, names: Sequence[str], metric: str) -> tuple[FloatArray, float]:
    """Standard errors by the outermost quantiles of the frame's bootstrap, and the degrees of freedom behind them.

    A quantile of B draws has the variance p(1 − p)/(B φ²), so a distance of two of them is known that well.
    """
    quantiles = np.asarray(frame.ci_quantiles, dtype=np.float64)
    low, high = int(np.argmin(quantiles)), int(np.argmax(quantiles))
    p, q = float(quantiles[low]), float(quantiles[high])
    if not 0 < p < 0.5 < q < 1:
        problem = "do not lie on either side of the middle"
        raise InputError.out_of_range("ci_quantiles", problem, "Use for example [0.025, 0.975].", quantiles.tolist())
    ends = [frame.by_group_ci[i] for i in (low, high)]
    lower, upper = (_column(end.to_frame() if end.ndim == 1 else end, names, metric) for end in ends)
    z = ndtri([p, q])
    heights = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    spread = p * (1 - p) / heights[0] ** 2 + q * (1 - q) / heights[1] ** 2 - 2 * p * (1 - q) / (heights[0] * heights[1])
    width = z[1] - z[0]
    return (upper - lower) / width, max(1.0, float(frame.n_boot * width**2 / (2 * spread)))


# ----------------------------------------------------------------------------------------------------------------- out


def to_metric_frame(result: Clustering | Audit, by: str | Sequence[str] | None = None) -> Any:
    """A result as a MetricFrame of Fairlearn, for code that expects one.

    Of a clustering its metrics are what was measured (several effects are several metrics), ``standard_error``,
    ``count`` where it is known, and ``cluster``, which excluded groups have not. Of an audit they are all its metrics
    with a ``standard_error of`` each; control features are those of the audit. `overall` is the observed value in all
    rows.

    Args:
        result: What `fl.cluster` or `fl.audit` returns.
        by: Of an audit: the feature, or the features, whose groups are wanted. Default: all features crossed.

    Returns:
        A ``fairlearn.metrics.MetricFrame``: `by_group`, `overall`, `difference()`, `ratio()`, `group_min()` and so on.

    Raises:
        InputError: If Fairlearn or pandas is not installed, the groups have no estimates, or an audit has no groups by
            such features.

    Example:
        >>> import faultlines as fl
        >>> c = fl.cluster(fl.Estimates([0.1, 0.9], [0.01, 0.01], ["a", "b"], attributes=["sex"], metric="rate"))
        >>> fl.to_metric_frame(c).by_group["cluster"].to_dict()
        {'a': 1.0, 'b': 2.0}
        >>> truth, sex = [0, 1] * 200, ["f"] * 200 + ["m"] * 200
        >>> predicted = [0, 1] * 100 + [0, 0] * 50 + [0, 1] * 50
        >>> audit = fl.audit(truth, predicted, sensitive_features={"sex": sex}, metrics=["recall", "fpr"])
        >>> float(fl.to_metric_frame(audit).difference()["true positive rate"])
        0.5
    """
    if isinstance(result, Audit):
        return _frame_of_audit(result, by)
    if not isinstance(result, Clustering):
        raise InputError.wrong_type("result", "is not a result", "Give what fl.cluster or fl.audit returns.", result)
    if by is not None:
        raise InputError.conflict("by", "applies to an audit only, and a clustering was given", "Leave it out.", by)
    groups = result.groups
    if groups.estimates is None:
        raise InputError.unsupported(
            "result", "its groups have no estimates", "Give Similarity(…, estimate=…).", form="clause"
        )
    columns, attributes = result.columns("groups"), named_attributes(result)
    overall = [effect.estimate for effect in result.overall.effects]
    parts = groups.estimates.parts or (groups.metric,)
    estimates = [name for name in columns if name == "estimate" or name.startswith("estimate_")]
    errors = [name for name in columns if name == "se" or name.startswith("se_")]
    metrics: dict[str, Any] = {}
    for i, (part, estimate, error_column) in enumerate(zip(parts, estimates, errors, strict=True)):
        metrics[part] = partial(_look_up, columns[estimate], overall[i] if i < len(overall) else np.nan)
        suffix = f" of {part}" if len(parts) > 1 else ""
        metrics[f"{_ERROR}{suffix}"] = partial(_look_up, columns[error_column], np.nan)
    if any(size is not None for size in columns["n"]):
        metrics["count"] = partial(_look_up, columns["n"], float(sum(size or 0 for size in columns["n"])))
    metrics["cluster"] = partial(_look_up, columns["cluster"], np.nan)
    return _metric_frame(metrics, {name: columns[name] for name in attributes}, len(columns["cluster"]))


def _frame_of_audit(audit: Audit, by: str | Sequence[str] | None) -> Any:
    """Every metric of an audit in the groups of some features, stratum by stratum."""
    ways = list(dict.fromkeys(group.by for group in audit.groups))
    wanted = max(ways, key=len) if by is None else (by,) if isinstance(by, str) else tuple(by)
    if wanted not in ways or (by is None and len([way for way in ways if len(way) == len(wanted)]) > 1):
        way_names = [" × ".join(way) for way in ways]
        raise InputError.not_found("by", "no groups by such features", did_you_mean(by, way_names), by, form="clause")
    several: dict[tuple[Any, ...], dict[str, Any]] = {}
    overall: dict[tuple[Any, str], float] = {}
    for group in (group for group in audit.groups if group.by == wanted):
        name = group.metric if group.effect is None else f"{group.metric}: {group.effect}"
        of_group = several.setdefault((group.stratum, key_of(group.label)), {})
        of_group[name], of_group[f"{_ERROR} of {name}"] = group.estimate, group.se
        overall[group.stratum, name] = np.nan if group.overall is None else group.overall
    strata = [stratum for stratum, _ in several]
    metrics = {}
    for name in dict.fromkeys(name for values in several.values() for name in values):
        values = [of_group.get(name) for of_group in several.values()]
        of_all = [overall.get((stratum, name), np.nan) for stratum in strata]
        metrics[name] = partial(_look_up, values, of_all)
    features = {name: [str(label[i]) for _, label in several] for i, name in enumerate(wanted)}
    controls = {name: [str(stratum[i][1]) for stratum in strata] for i, (name, _) in enumerate(strata[0])}
    return _metric_frame(metrics, features, len(several), controls or None)


def _metric_frame(
    metrics: dict[str, Any], features: dict[str, Any], size: int, controls: dict[str, Any] | None = None
) -> Any:
    """A MetricFrame over one row per group, whose metrics look up the group."""
    try:
        fairlearn, pandas = import_module("fairlearn.metrics"), import_module("pandas")
    except ImportError as error:
        raise InputError.not_installed(
            "to_metric_frame", f"needs {error.name}", "Run: pip install fairlearn"
        ) from error
    places = np.arange(size)
    options = {} if controls is None else {"control_features": pandas.DataFrame(controls)}
    return fairlearn.MetricFrame(
        metrics=metrics, y_true=places, y_pred=places, sensitive_features=pandas.DataFrame(features), **options
    )


def _look_up(values: Sequence[Any], overall: float | Sequence[float], y_true: Any, _y_pred: Any) -> float:
    """A metric that looks up the group it is asked about, by its place; asked about several, the overall value."""
    place = int(np.asarray(y_true)[0])
    if len(y_true) > 1:
        return overall if isinstance(overall, float) else float(overall[place])
    value = values[place]
    return float(np.nan if value is None else value)
