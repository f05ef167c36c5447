"""Find the groups that an experiment or a model treats differently, with one p-value that accounts for the search."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from faultlines.metrics.table import METRICS

if TYPE_CHECKING:
    from faultlines import simulate as simulate
    from faultlines.analyses.audit import audit as audit
    from faultlines.analyses.audit import model_card as model_card
    from faultlines.analyses.certify import certify as certify
    from faultlines.analyses.cluster import cluster as cluster
    from faultlines.analyses.cluster import holm as holm
    from faultlines.analyses.confirm import confirm as confirm
    from faultlines.analyses.impact import impact_ratios as impact_ratios
    from faultlines.analyses.many import cluster_many as cluster_many
    from faultlines.analyses.monitor import Monitor as Monitor
    from faultlines.analyses.power import power as power
    from faultlines.analyses.self_check import self_check as self_check
    from faultlines.analyses.srm import srm as srm
    from faultlines.core.counts import binomial as binomial
    from faultlines.core.counts import poisson as poisson
    from faultlines.core.counts import welch as welch
    from faultlines.core.custom import Similarity as Similarity
    from faultlines.core.custom import check_merge_invariance as check_merge_invariance
    from faultlines.core.tree import agglomerate as agglomerate
    from faultlines.errors import InputError as InputError
    from faultlines.estimates.estimates import Estimates as Estimates
    from faultlines.estimates.labels import Range as Range
    from faultlines.estimates.scales import Scale as Scale
    from faultlines.guarantees.calibrated import Calibrated as Calibrated
    from faultlines.guarantees.paper import Bonferroni as Bonferroni
    from faultlines.guarantees.paper import Folds as Folds
    from faultlines.guarantees.paper import Holdout as Holdout
    from faultlines.integrations import from_metric_frame as from_metric_frame
    from faultlines.integrations import to_metric_frame as to_metric_frame
    from faultlines.metrics.base import Measured as Measured
    from faultlines.metrics.base import Metric as Metric
    from faultlines.metrics.experiment import *
    from faultlines.metrics.joint import bootstrapped as bootstrapped
    from faultlines.metrics.joint import joint as joint
    from faultlines.metrics.measure import measure as measure
    from faultlines.metrics.model import *
    from faultlines.metrics.pairs import paired as paired
    from faultlines.metrics.population import *
    from faultlines.rows.keys import Bins as Bins
    from faultlines.rows.keys import bins as bins
    from faultlines.rows.read import sql as sql
    from faultlines.rows.request import Aggregated as Aggregated
    from faultlines.rows.request import Arms as Arms
    from faultlines.rows.request import Input as Input
    from faultlines.rows.request import Moments as Moments

__version__ = version("faultlines")

# Where public names are defined; those of metrics are in the table of metrics.
_HOMES = {
    "errors": "InputError",
    "estimates.estimates": "Estimates",
    "estimates.labels": "Range",
    "estimates.scales": "Scale",
    "rows.keys": "Bins bins",
    "rows.request": "Aggregated Arms Input Moments",
    "rows.read": "sql",
    "metrics.base": "Measured Metric",
    "metrics.experiment": "aggregated",
    "metrics.joint": "bootstrapped joint",
    "metrics.measure": "measure",
    "metrics.pairs": "paired",
    "core.custom": "Similarity check_merge_invariance",
    "core.counts": "binomial poisson welch",
    "core.tree": "agglomerate",
    "guarantees.calibrated": "Calibrated",
    "guarantees.paper": "Bonferroni Folds Holdout",
    "analyses.monitor": "Monitor",
    "analyses.certify": "certify",
    "analyses.confirm": "confirm",
    "analyses.power": "power",
    "analyses.cluster": "cluster holm",
    "analyses.impact": "impact_ratios",
    "analyses.many": "cluster_many",
    "integrations": "from_metric_frame to_metric_frame",
    "analyses.audit": "audit model_card",
    "analyses.self_check": "self_check",
    "analyses.srm": "srm",
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
