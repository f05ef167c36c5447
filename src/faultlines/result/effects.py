"""One effect as people read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect of a cluster as people read it: estimate, standard error, interval."""

    estimate: float
    se: float
    lower: float
    upper: float
