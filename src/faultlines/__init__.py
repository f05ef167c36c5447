"""faultlines finds where a population splits: the clusters of groups that really differ, and how sure that is."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faultlines.clustering import Cluster, Clustering, Excluded, Level, cluster
    from faultlines.errors import InputError
    from faultlines.estimates import Estimates
    from faultlines.guarantees import Bonferroni, Calibrated
    from faultlines.hierarchy import Hierarchy, agglomerate

__all__ = [
    "Bonferroni",
    "Calibrated",
    "Cluster",
    "Clustering",
    "Estimates",
    "Excluded",
    "Hierarchy",
    "InputError",
    "Level",
    "agglomerate",
    "cluster",
]

_HOMES = {
    "clustering": ("Cluster", "Clustering", "Excluded", "Level", "cluster"),
    "errors": ("InputError",),
    "estimates": ("Estimates",),
    "guarantees": ("Bonferroni", "Calibrated"),
    "hierarchy": ("Hierarchy", "agglomerate"),
}


def __getattr__(name: str) -> Any:
    """Public names are brought in when first used, so that `faultlines --help` does not wait for NumPy and SciPy."""
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(f"faultlines.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'faultlines' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
