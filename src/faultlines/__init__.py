"""faultlines finds where a population splits: the clusters of groups that really differ, and how sure that is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultlines.aggregate import Measurement, measure
    from faultlines.clustering import Cluster, Clustering, Level, cluster, holm
    from faultlines.errors import InputError
    from faultlines.estimates import Estimates, Excluded
    from faultlines.groups import Bins, Range, bins
    from faultlines.guarantees import Bonferroni, Calibrated, Folds, Holdout
    from faultlines.hierarchy import Hierarchy, agglomerate
    from faultlines.invariance import Invariance, check_merge_invariance
    from faultlines.many import Many, cluster_many
    from faultlines.metrics import (
        Aggregated,
        Input,
        Measured,
        Metric,
        Moments,
        accuracy,
        aggregated,
        auc,
        brier,
        calibration_gap,
        difference,
        equalized_odds,
        error_rate,
        false_negative_rate,
        false_positive_rate,
        joint,
        lift,
        log_loss,
        mean,
        mean_absolute_error,
        mean_error,
        mean_squared_error,
        negative_predictive_value,
        precision,
        rate,
        ratio,
        ratio_difference,
        ratio_lift,
        selection_rate,
        true_negative_rate,
        true_positive_rate,
    )
    from faultlines.planning import Power, power
    from faultlines.sequential import Decision, Sequential
    from faultlines.similarity import Similarity, binomial, poisson, welch

__all__ = [
    "Aggregated",
    "Bins",
    "Bonferroni",
    "Calibrated",
    "Cluster",
    "Clustering",
    "Decision",
    "Estimates",
    "Excluded",
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
    "Sequential",
    "Similarity",
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
    "true_negative_rate",
    "true_positive_rate",
    "welch",
]

_ROOMS = (
    "errors",
    "estimates",
    "metrics",
    "groups",
    "aggregate",
    "similarity",
    "hierarchy",
    "guarantees",
    "clustering",
    "invariance",
    "sequential",
    "many",
    "planning",
)  # from left to right


def __getattr__(name: str) -> Any:
    """Public names are brought in when first used, so that `faultlines --help` does not wait for NumPy and SciPy."""
    if name in __all__:
        for room in _ROOMS:
            module = import_module(f"faultlines.{room}")
            if hasattr(module, name):
                globals()[name] = value = getattr(module, name)
                return value
    raise AttributeError(f"module 'faultlines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
