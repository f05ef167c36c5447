"""Which attributes matter: how much of the variation between groups goes with each, and its tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines.guarantees.attributes import attribute_codes
from faultlines.guarantees.joint_test import GroupEffects, extract_effects
from faultlines.guarantees.margins import explain_variation
from faultlines.results.multiplicity import corrected
from faultlines.results.protocol import probability

if TYPE_CHECKING:
    from faultlines.core.comparison import Comparison

COMBINATIONS = "(combinations)"


@dataclass(frozen=True, slots=True)
class Explained:
    """How much of the variation between groups goes with an attribute, noise taken off.

    Tests are those of fixed effects: weighted least squares on the groups, with χ² where standard errors are known and
    F with the degrees of freedom behind them where they are estimates.

    Attributes:
        attribute: Its name; or `COMBINATIONS`, for what the attributes do not explain one by one.
        levels: How many it has; the number of groups for combinations.
        share: The share of the variation that its levels account for when nothing else is looked at, 0 … 1.
        lower: Lower end of the 95% interval of that share.
        upper: Upper end.
        share_beside: The share that it adds to the other attributes.
        pvalue: The p of "its levels do not differ, the other attributes held fixed".
        pvalue_adj: The same adjusted for the number of attributes (Holm).
        pvalue_alone: The p of "its levels do not differ", with nothing else looked at.
        dof: Degrees of freedom of the test beside the others.
        part: Which of several effects; empty for a single one.

    Example:
        >>> import faultlines as fl
        >>> labels = [(country, device) for country in ("DE", "FR", "IN") for device in ("app", "web")]
        >>> both = fl.Estimates([0.0, 1.0, 0.1, 1.2, 5.0, 6.1], [0.1] * 6, labels, attributes=["country", "device"])
        >>> for row in fl.cluster(both).explained():
        ...     print(row.attribute, row.levels, round(row.share, 2), row.pvalue < 0.001)
        country 3 0.95 True
        device 2 0.05 True
        (combinations) 6 0.0 False
    """

    attribute: str
    levels: int
    share: float
    lower: float
    upper: float
    share_beside: float
    pvalue: float
    pvalue_adj: float
    pvalue_alone: float
    dof: float
    part: str = ""


def explain_attributes(comparison: Comparison) -> tuple[Explained, ...]:
    """The share of the variation that each attribute accounts for, with its tests; nothing for one attribute.

    Args:
        comparison: The groups.

    Returns:
        A row for each attribute and one for combinations, for each effect.
    """
    estimates, names = comparison.estimates, comparison.attributes
    if estimates is None or len(names) < 2 or len(estimates) < 3:
        return ()
    codes = attribute_codes(comparison.keys, len(names))
    rows: list[Explained] = []
    for part in range(estimates.dims):
        if estimates.dims == 1:
            effects = extract_effects(comparison)
        else:  # one effect at a time, by its own standard errors
            unit = float(estimates.own[:, part].min())
            theta = (estimates.values[:, part] - estimates.values[0, part]) / unit
            effects = GroupEffects(theta, estimates.own[:, part] / unit, estimates.dof)
        shares = explain_variation(effects, codes)
        log_p = np.array([row.beside.log_p for row in shares])
        adjusted = corrected(log_p, 0.05, "holm")[0]
        for row, own, adj in zip(shares, log_p.tolist(), adjusted.tolist(), strict=True):
            rows.append(
                Explained(
                    COMBINATIONS if row.attribute is None else names[row.attribute],
                    row.levels,
                    row.share,
                    *row.interval,
                    row.share_beside,
                    probability(own),
                    probability(adj),
                    probability(row.alone.log_p),
                    float(row.beside.effects),
                    estimates.parts[part] if estimates.parts else "",
                )
            )
    return tuple(rows)
