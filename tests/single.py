"""Groups measured one at a time: alone, a group has the variance of its own rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import faultlines as fl


class Own(NamedTuple):
    """Standard errors, degrees of freedom and covariances of groups, each from its own rows."""

    se: Any
    dof: Any
    effect_covariance: Any


def own_errors(data: Any, metric: fl.Metric, by: str = "g") -> Own:
    """Of every group of a pandas frame, by the order of their names; together they would share their variances."""
    alone = [fl.measure(part, by, metric).estimates for _, part in data.groupby(by)]
    return Own(*(_stacked([getattr(estimates, field) for estimates in alone]) for field in Own._fields))


def _stacked(parts: list[Any]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)
