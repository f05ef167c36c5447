"""faultlines finds where a population splits: the clusters of groups that really differ, and how sure that is."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from faultlines.metrics.table import METRICS

if TYPE_CHECKING:
    from faultlines import simulate as simulate
    from faultlines.auditing import Audit as Audit
    from faultlines.auditing import Audited as Audited
    from faultlines.auditing import audit as audit
    from faultlines.clustering import Clustering as Clustering
    from faultlines.clustering import cluster as cluster
    from faultlines.clustering import holm as holm
    from faultlines.comparison.counts import binomial as binomial
    from faultlines.comparison.counts import poisson as poisson
    from faultlines.comparison.custom import Similarity as Similarity
    from faultlines.comparison.invariance import Invariance as Invariance
    from faultlines.comparison.invariance import check_merge_invariance as check_merge_invariance
    from faultlines.comparison.welch import welch as welch
    from faultlines.decide.certificate import Certificate as Certificate
    from faultlines.decide.certificate import Standing as Standing
    from faultlines.decide.certify import certify as certify
    from faultlines.decide.confirm import Confirmation as Confirmation
    from faultlines.decide.confirm import ConfirmedCluster as ConfirmedCluster
    from faultlines.decide.confirm import ConfirmedPair as ConfirmedPair
    from faultlines.decide.confirm import confirm as confirm
    from faultlines.decide.mitigate import Threshold as Threshold
    from faultlines.decide.mitigate import Thresholds as Thresholds
    from faultlines.decide.power import Power as Power
    from faultlines.decide.power import Reach as Reach
    from faultlines.decide.power import power as power
    from faultlines.errors import InputError as InputError
    from faultlines.estimates.estimates import Estimates as Estimates
    from faultlines.estimates.estimates import Excluded as Excluded
    from faultlines.estimates.labels import Range as Range
    from faultlines.estimates.scales import Scale as Scale
    from faultlines.evaluation.cards import model_card as model_card
    from faultlines.evaluation.metricframes import from_metric_frame as from_metric_frame
    from faultlines.evaluation.metricframes import to_metric_frame as to_metric_frame
    from faultlines.evaluation.predicted import predictions as predictions
    from faultlines.guarantees.bonferroni import Bonferroni as Bonferroni
    from faultlines.guarantees.calibrated import Calibrated as Calibrated
    from faultlines.guarantees.folds import Folds as Folds
    from faultlines.guarantees.holdout import Holdout as Holdout
    from faultlines.guarantees.monitor import Monitor as Monitor
    from faultlines.guarantees.monitored import Look as Look
    from faultlines.guarantees.monitored import Monitored as Monitored
    from faultlines.guarantees.sequential import Decision as Decision
    from faultlines.guarantees.sequential import Sequential as Sequential
    from faultlines.guarantees.sequential import Step as Step
    from faultlines.many import Many as Many
    from faultlines.many import cluster_many as cluster_many
    from faultlines.metrics.base import Measured as Measured
    from faultlines.metrics.base import Metric as Metric
    from faultlines.metrics.combined import *
    from faultlines.metrics.experiment import *
    from faultlines.metrics.inequality import *
    from faultlines.metrics.joint import joint as joint
    from faultlines.metrics.measure import Measurement as Measurement
    from faultlines.metrics.measure import measure as measure
    from faultlines.metrics.model import *
    from faultlines.metrics.paired import paired as paired
    from faultlines.metrics.population import *
    from faultlines.metrics.resampling import bootstrapped as bootstrapped
    from faultlines.result.clusters import Cluster as Cluster
    from faultlines.result.effects import Effect as Effect
    from faultlines.result.explained import Explained as Explained
    from faultlines.result.finding import Level as Level
    from faultlines.result.rest import AgainstRest as AgainstRest
    from faultlines.result.rules import Rule as Rule
    from faultlines.result.selfcheck import SelfCheck as SelfCheck
    from faultlines.result.unseen import Unseen as Unseen
    from faultlines.rows.bins import Bins as Bins
    from faultlines.rows.bins import bins as bins
    from faultlines.rows.request import Aggregated as Aggregated
    from faultlines.rows.request import Arms as Arms
    from faultlines.rows.request import Input as Input
    from faultlines.rows.request import Moments as Moments
    from faultlines.rows.sql import sql as sql
    from faultlines.shuffling import self_check as self_check
    from faultlines.tree.hierarchy import Hierarchy as Hierarchy
    from faultlines.tree.hierarchy import agglomerate as agglomerate

__version__ = version("faultlines")

# Where public names are defined; those of metrics are in the table of metrics.
_HOMES = {
    "errors": "InputError",
    "estimates.estimates": "Estimates Excluded",
    "estimates.labels": "Range",
    "estimates.scales": "Scale",
    "rows.bins": "Bins bins",
    "rows.request": "Aggregated Arms Input Moments",
    "rows.sql": "sql",
    "metrics.base": "Measured Metric",
    "metrics.experiment": "aggregated",
    "metrics.joint": "joint",
    "metrics.measure": "Measurement measure",
    "metrics.paired": "paired",
    "metrics.resampling": "bootstrapped",
    "comparison.custom": "Similarity",
    "comparison.counts": "binomial poisson",
    "comparison.welch": "welch",
    "comparison.invariance": "Invariance check_merge_invariance",
    "tree.hierarchy": "Hierarchy agglomerate",
    "guarantees.calibrated": "Calibrated",
    "guarantees.bonferroni": "Bonferroni",
    "guarantees.holdout": "Holdout",
    "guarantees.folds": "Folds",
    "guarantees.monitor": "Monitor",
    "guarantees.monitored": "Look Monitored",
    "guarantees.sequential": "Decision Sequential Step",
    "result.clusters": "Cluster",
    "result.effects": "Effect",
    "result.rest": "AgainstRest",
    "result.explained": "Explained",
    "result.finding": "Level",
    "result.rules": "Rule",
    "result.selfcheck": "SelfCheck",
    "result.unseen": "Unseen",
    "decide.certificate": "Certificate Standing",
    "decide.certify": "certify",
    "decide.confirm": "Confirmation ConfirmedCluster ConfirmedPair confirm",
    "decide.mitigate": "Threshold Thresholds",
    "decide.power": "Power Reach power",
    "clustering": "Clustering cluster holm",
    "many": "Many cluster_many",
    "evaluation.cards": "model_card",
    "evaluation.metricframes": "from_metric_frame to_metric_frame",
    "evaluation.predicted": "predictions",
    "auditing": "Audit Audited audit",
    "shuffling": "self_check",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_HOME_OF |= {name: entry.module.removeprefix("faultlines.") for name, entry in METRICS.items()}

__all__ = sorted([*_HOME_OF, "__version__", "simulate"])  # noqa: PLE0605 - a list, though not a literal one


def __getattr__(name: str) -> Any:
    """Public names are imported when first used, so that `faultlines --help` does not wait for NumPy and SciPy."""
    if name == "simulate":
        return import_module("faultlines.simulate")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'faultlines' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"faultlines.{_HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
