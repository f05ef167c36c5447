"""Several results at once: p-values adjusted for their number, and the level at which each is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from faultlines.estimates.scales import FloatArray

Correction = Literal["holm", "bh"]
CORRECTIONS: dict[str, str] = {"holm": "Holm", "bh": "Benjamini–Hochberg"}


def corrected(log_p: FloatArray, alpha: float, correction: Correction) -> tuple[FloatArray, FloatArray]:
    """Adjusted log p, and the level at which each experiment is cut.

    Holm compares the smallest p with α/m, the next with α/(m − 1) and so on; once one fails, the rest are compared
    with the level it failed at. Benjamini and Hochberg compare all with α R/m, where R is the largest number of
    experiments with a p below that.
    """
    m = log_p.size
    order = np.argsort(log_p, kind="stable")
    ranked, adjusted, levels = log_p[order], np.empty(m), np.empty(m)
    if correction == "holm":
        left = np.arange(m, 0, -1)
        adjusted[order] = np.minimum(np.maximum.accumulate(ranked + np.log(left)), 0.0)
        failed = ranked >= np.log(alpha / left)
        first = int(np.argmax(failed)) if failed.any() else m - 1
        levels[order] = alpha / left[np.minimum(np.arange(m), first)]
        return adjusted, levels
    rank = np.arange(1, m + 1)
    adjusted[order] = np.minimum(np.minimum.accumulate((ranked + np.log(m / rank))[::-1])[::-1], 0.0)
    standing = np.flatnonzero(ranked < np.log(alpha * rank / m))
    levels[:] = alpha * (standing[-1] + 1 if standing.size else 1) / m
    return adjusted, levels
