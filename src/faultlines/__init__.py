"""faultlines finds where a population splits: the clusters of groups that really differ, and how sure that is."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from faultlines.metrics.table import METRICS

if TYPE_CHECKING:
    from faultlines import simulate
    from faultlines.clustering import Clustering, cluster, holm
    from faultlines.comparison.counts import binomial, poisson
    from faultlines.comparison.custom import Similarity
    from faultlines.comparison.invariance import Invariance, check_merge_invariance
    from faultlines.comparison.welch import welch
    from faultlines.decide.power import Power, Reach, power
    from faultlines.errors import InputError
    from faultlines.estimates.estimates import Estimates, Excluded
    from faultlines.estimates.labels import Range
    from faultlines.estimates.scales import Scale
    from faultlines.guarantees.bonferroni import Bonferroni
    from faultlines.guarantees.calibrated import Calibrated
    from faultlines.guarantees.folds import Folds
    from faultlines.guarantees.holdout import Holdout
    from faultlines.guarantees.sequential import Decision, Sequential, Step
    from faultlines.many import Many, cluster_many
    from faultlines.metrics.base import Measured, Metric
    from faultlines.metrics.experiment import aggregated, difference, lift, ratio_difference, ratio_lift
    from faultlines.metrics.joint import joint
    from faultlines.metrics.measure import Measurement, measure
    from faultlines.metrics.model import (
        accuracy,
        auc,
        brier,
        calibration_gap,
        equalized_odds,
        error_rate,
        false_negative_rate,
        false_positive_rate,
        log_loss,
        mean_absolute_error,
        mean_error,
        mean_squared_error,
        negative_predictive_value,
        precision,
        selection_rate,
        true_negative_rate,
        true_positive_rate,
    )
    from faultlines.metrics.population import mean, rate, ratio
    from faultlines.result.clusters import Cluster, Effect
    from faultlines.result.explained import Explained
    from faultlines.result.finding import Level
    from faultlines.result.rules import Rule
    from faultlines.rows.bins import Bins, bins
    from faultlines.rows.request import Aggregated, Arms, Input, Moments
    from faultlines.tree.hierarchy import Hierarchy, agglomerate

__version__ = version("faultlines")

__all__ = [
    "Aggregated",
    "Arms",
    "Bins",
    "Bonferroni",
    "Calibrated",
    "Cluster",
    "Clustering",
    "Decision",
    "Effect",
    "Estimates",
    "Excluded",
    "Explained",
    "Folds",
    "Hierarchy",
    "Holdout",
    "Input",
    "InputError",
    "Invariance",
    "Level",
    "Many",
    "Measured",
    "Measurement",
    "Metric",
    "Moments",
    "Power",
    "Range",
    "Reach",
    "Rule",
    "Scale",
    "Sequential",
    "Similarity",
    "Step",
    "__version__",
    "accuracy",
    "agglomerate",
    "aggregated",
    "auc",
    "binomial",
    "bins",
    "brier",
    "calibration_gap",
    "check_merge_invariance",
    "cluster",
    "cluster_many",
    "difference",
    "equalized_odds",
    "error_rate",
    "false_negative_rate",
    "false_positive_rate",
    "holm",
    "joint",
    "lift",
    "log_loss",
    "mean",
    "mean_absolute_error",
    "mean_error",
    "mean_squared_error",
    "measure",
    "negative_predictive_value",
    "poisson",
    "power",
    "precision",
    "rate",
    "ratio",
    "ratio_difference",
    "ratio_lift",
    "selection_rate",
    "simulate",
    "true_negative_rate",
    "true_positive_rate",
    "welch",
]

# Where public names are defined; those of metrics are in the table of metrics.
_HOMES = {
    "errors": "InputError",
    "estimates.estimates": "Estimates Excluded",
    "estimates.labels": "Range",
    "estimates.scales": "Scale",
    "rows.bins": "Bins bins",
    "rows.request": "Aggregated Arms Input Moments",
    "metrics.base": "Measured Metric",
    "metrics.experiment": "aggregated",
    "metrics.joint": "joint",
    "metrics.measure": "Measurement measure",
    "comparison.custom": "Similarity",
    "comparison.counts": "binomial poisson",
    "comparison.welch": "welch",
    "comparison.invariance": "Invariance check_merge_invariance",
    "tree.hierarchy": "Hierarchy agglomerate",
    "guarantees.calibrated": "Calibrated",
    "guarantees.bonferroni": "Bonferroni",
    "guarantees.holdout": "Holdout",
    "guarantees.folds": "Folds",
    "guarantees.sequential": "Decision Sequential Step",
    "result.clusters": "Cluster Effect",
    "result.explained": "Explained",
    "result.finding": "Level",
    "result.rules": "Rule",
    "decide.power": "Power Reach power",
    "clustering": "Clustering cluster holm",
    "many": "Many cluster_many",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_HOME_OF |= {name: entry.module.removeprefix("faultlines.") for name, entry in METRICS.items()}


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `faultlines --help` does not wait for NumPy and SciPy."""
    if name == "simulate":
        return import_module("faultlines.simulate")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'faultlines' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"faultlines.{_HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
