"""What was found: one class for each kind of result, for annotations; functions of `faultlines` return them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultlines.core.custom import Invariance as Invariance
    from faultlines.core.tree import Hierarchy as Hierarchy
    from faultlines.estimates.estimates import Excluded as Excluded
    from faultlines.metrics.measure import Measurement as Measurement
    from faultlines.results.audit import Audit as Audit
    from faultlines.results.audit import AuditedComparison as AuditedComparison
    from faultlines.results.audit import AuditedGroup as AuditedGroup
    from faultlines.results.audit import CutFeature as CutFeature
    from faultlines.results.certificate import Certificate as Certificate
    from faultlines.results.certificate import CertifiedGroup as CertifiedGroup
    from faultlines.results.clustering import ArmEffect as ArmEffect
    from faultlines.results.clustering import Cluster as Cluster
    from faultlines.results.clustering import Clustering as Clustering
    from faultlines.results.clustering import PathStep as PathStep
    from faultlines.results.collection import Experiments as Experiments
    from faultlines.results.confirmation import Confirmation as Confirmation
    from faultlines.results.confirmation import ConfirmedCluster as ConfirmedCluster
    from faultlines.results.confirmation import ConfirmedPair as ConfirmedPair
    from faultlines.results.effects import AgainstRest as AgainstRest
    from faultlines.results.effects import Effect as Effect
    from faultlines.results.effects import Explained as Explained
    from faultlines.results.effects import GroupPosterior as GroupPosterior
    from faultlines.results.impact import ImpactCategory as ImpactCategory
    from faultlines.results.impact import ImpactRatios as ImpactRatios
    from faultlines.results.impact import ImpactTable as ImpactTable
    from faultlines.results.monitor import AnytimeEffect as AnytimeEffect
    from faultlines.results.monitor import Look as Look
    from faultlines.results.monitor import LookChanges as LookChanges
    from faultlines.results.monitor import MonitoredArm as MonitoredArm
    from faultlines.results.monitor import MonitoredGroup as MonitoredGroup
    from faultlines.results.monitor import MonitorResult as MonitorResult
    from faultlines.results.monitor import SmallGroup as SmallGroup
    from faultlines.results.power import DetectableDifference as DetectableDifference
    from faultlines.results.power import DetectionLimit as DetectionLimit
    from faultlines.results.power import Power as Power
    from faultlines.results.protocol import Note as Note
    from faultlines.results.protocol import Result as Result
    from faultlines.results.rules import Rule as Rule
    from faultlines.results.sample_ratio import ArmShare as ArmShare
    from faultlines.results.sample_ratio import SampleRatios as SampleRatios
    from faultlines.results.self_check import SelfCheck as SelfCheck

# Imported when first used: a result should not bring in all the others.
_HOMES = {
    "core.custom": "Invariance",
    "core.tree": "Hierarchy",
    "estimates.estimates": "Excluded",
    "metrics.measure": "Measurement",
    "results.audit": "Audit AuditedComparison AuditedGroup CutFeature",
    "results.certificate": "Certificate CertifiedGroup",
    "results.clustering": "ArmEffect Cluster Clustering PathStep",
    "results.collection": "Experiments",
    "results.confirmation": "Confirmation ConfirmedCluster ConfirmedPair",
    "results.effects": "AgainstRest Effect Explained GroupPosterior",
    "results.impact": "ImpactCategory ImpactRatios ImpactTable",
    "results.monitor": "AnytimeEffect Look LookChanges MonitorResult MonitoredArm MonitoredGroup SmallGroup",
    "results.power": "DetectableDifference DetectionLimit Power",
    "results.protocol": "Note Result",
    "results.rules": "Rule",
    "results.sample_ratio": "ArmShare SampleRatios",
    "results.self_check": "SelfCheck",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - a list, though not a literal one


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'faultlines.results' has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(f"faultlines.{_HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
