"""One effect as people read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect of a cluster as people read it: estimate, standard error, interval.

    Attributes:
        estimate: The effect.
        se: Its standard error.
        lower: Lower end of its interval.
        upper: Upper end.

    Example:
        >>> import faultlines as fl
        >>> found = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> one = found.clusters[1].effects[0]
        >>> one.estimate, one.se, round(one.lower, 2), round(one.upper, 2)
        (5.0, 0.5, 4.02, 5.98)
    """

    estimate: float
    se: float
    lower: float
    upper: float
