"""From what users give to the comparison it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faultlines import checks
from faultlines.core.line import Line
from faultlines.core.plane import Plane
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates

if TYPE_CHECKING:
    from faultlines.core.comparison import Comparison


def compare_effects(estimates: Estimates, tolerance: float = 0.0) -> Line | Plane:
    """Estimates as groups that are similar when their effects are equal, or at most a tolerance apart."""
    tolerance = _checked(tolerance)
    if estimates.dims == 1:
        return compare_one_effect(estimates, tolerance)
    if tolerance:
        raise InputError.unsupported(
            "tolerance",
            f"has no meaning for {estimates.dims} effects at once ({estimates.metric})",
            "Cluster each of them on its own.",
            tolerance,
        )
    return Plane(estimates)


def compare_one_effect(estimates: Estimates, tolerance: float = 0.0) -> Line:
    """The same for estimates that are known to have one effect per group."""
    tolerance = _checked(tolerance)
    return Line(estimates, estimates.scales[0].distance(tolerance) if tolerance else 0.0)


def _checked(tolerance: float) -> float:
    remedy = "Give it in the units of the metric: 0.01 is one point of a rate."
    return checks.number("tolerance", tolerance, "must be a number, 0 or more", remedy, low=0)


def as_comparison(data: Any, tolerance: float = 0.0) -> Comparison:
    """The comparison behind estimates, or a comparison as it is."""
    if isinstance(data, Estimates):
        return compare_effects(data, tolerance)
    if not is_comparison(data):
        raise InputError.wrong_type("estimates", "is not an Estimates", "Make one with fl.Estimates.", type(data))
    if _checked(tolerance):
        raise InputError.unsupported(
            "tolerance", "goes with estimates", "Let the test of the Similarity allow for it.", tolerance
        )
    comparison: Comparison = data
    return comparison


def is_comparison(data: object) -> bool:
    """Whether something offers what `Comparison` asks for."""
    return all(hasattr(data, name) for name in ("merges", "null_draws", "most_similar_pair", "pool", "split"))
