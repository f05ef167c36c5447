"""What is measured in a group: the columns a metric needs, and how their moments become an estimate.

The modules of this package define all metrics; `table` lists them. Names are brought in when first used; `joint` and
`measure` are in the modules of these names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from faultlines.metrics.table import METRICS

if TYPE_CHECKING:
    from faultlines.metrics.base import Measured as Measured
    from faultlines.metrics.base import Metric as Metric
    from faultlines.metrics.experiment import aggregated as aggregated
    from faultlines.metrics.measure import Measurement as Measurement
    from faultlines.metrics.measure import measure_all as measure_all
    from faultlines.metrics.measure import measure_parts as measure_parts
    from faultlines.rows.request import Aggregated as Aggregated
    from faultlines.rows.request import Arms as Arms
    from faultlines.rows.request import Columns as Columns
    from faultlines.rows.request import Input as Input
    from faultlines.rows.request import Moments as Moments

_BESIDE = {
    "Aggregated": "faultlines.rows.request",
    "Arms": "faultlines.rows.request",
    "Columns": "faultlines.rows.request",
    "Input": "faultlines.rows.request",
    "Moments": "faultlines.rows.request",
    "Split": "faultlines.rows.request",
    "Measured": "faultlines.metrics.base",
    "Metric": "faultlines.metrics.base",
    "aggregated": "faultlines.metrics.experiment",
    "Measurement": "faultlines.metrics.measure",
    "measure_all": "faultlines.metrics.measure",
    "measure_parts": "faultlines.metrics.measure",
}


def __getattr__(name: str) -> Any:
    if name in METRICS:
        return METRICS[name].function
    if name in _BESIDE:
        return getattr(import_module(_BESIDE[name]), name)
    raise AttributeError(f"module 'faultlines.metrics' has no attribute {name!r}")
