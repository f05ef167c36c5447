"""The two-sample t-test on effects, as a comparison of statistics that add up (the paper, section 5.1.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines.comparison import kernels
from faultlines.comparison.base import MOST_DRAWS, WELCH, Merges
from faultlines.comparison.custom import Compiled, Similarity
from faultlines.comparison.line import Line
from faultlines.comparison.plane import merged
from faultlines.comparison.precision import meier, true_scales, welch_statistics
from faultlines.comparison.tails import log_t_tail
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.scales import FloatArray, Scale


def welch(estimates: Estimates) -> Similarity:
    """The two-sample t-test on effects (the paper's section 5.1.1), with Welch–Satterthwaite degrees of freedom.

    A cluster's effect is the precision-weighted mean of its groups; its degrees of freedom are (Σw)²/Σ(w²/dof). Groups
    whose variance came out too small weigh too much, so its variance is 1/W and a little more: a share of
    4 Σ (w/W)(1 − w/W)/(dof − 3), after Meier (1953), without which the test would not survive merging. Where the
    standard errors of `estimates` have no `dof` they count as known.

    Args:
        estimates: One effect per group.

    Returns:
        A comparison for `fl.cluster`.

    Raises:
        InputError: If there are several effects per group.

    Example:
        >>> import faultlines as fl
        >>> fl.cluster(fl.welch(fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 0.5], dof=30))).n_clusters
        2
    """
    if not isinstance(estimates, Estimates):
        raise InputError(f"estimates={type(estimates).__name__}", "is not an Estimates", "Make one with fl.Estimates.")
    if estimates.dims > 1:
        raise InputError("estimates", f"have {estimates.dims} dimensions", "The t-test compares one effect.")
    theta, se = estimates.values[:, 0], estimates.errors[:, 0]
    centre, unit = float(theta[len(estimates) // 2]), float(np.exp(np.log(se).mean()))
    dof = np.full(len(estimates), np.inf) if estimates.dof is None else estimates.dof
    has_dof = estimates.dof is not None
    return Similarity(
        welch_statistics((unit / se) ** 2, (theta - centre) / unit, se / unit, dof),
        _log_p,
        estimates.labels,
        log=True,
        null=_one_draw,
        divide=_Divided(has_dof),
        estimate=_Effects(centre, unit, has_dof, estimates.scales[0]),
        n=estimates.n,
        attributes=estimates.attributes,
        measure=estimates.measure,
        _compiled=Compiled(_merges, _tops, _default_draws),
    )


def _log_p(a: FloatArray, b: FloatArray) -> FloatArray:
    gap = a[:, 1] / a[:, 0] - b[:, 1] / b[:, 0]
    var_a, var_b = (s[:, 2] / s[:, 0] ** 2 * (1 + meier(s[:, 0], s[:, 4], s[:, 5])) for s in (a, b))
    variance = var_a + var_b
    with np.errstate(divide="ignore"):
        dof = variance**2 / (var_a**2 * a[:, 3] / a[:, 2] ** 2 + var_b**2 * b[:, 3] / b[:, 2] ** 2)
    return np.asarray(np.where(gap == 0, 0.0, log_t_tail(gap / np.sqrt(variance), dof)))


@dataclass(frozen=True, slots=True)
class _Effects:
    """From statistics back to effects."""

    centre: float
    unit: float
    has_dof: bool
    scale: Scale

    def __call__(self, s: FloatArray) -> Estimates:
        theta = self.centre + self.unit * s[:, 1] / s[:, 0]
        return Estimates(
            theta,
            self.unit * np.sqrt(s[:, 2]) / s[:, 0],
            dof=np.maximum(_freedom(s), 1.0) if self.has_dof else None,
            scale=self.scale,
            natural=self.scale.natural(theta),
        )


@dataclass(frozen=True, slots=True)
class _Divided:
    """Statistics of independent parts; each weighs its groups with what the one before it knows of their variances."""

    has_dof: bool

    def __call__(self, s: FloatArray, shares: Sequence[float], rng: np.random.Generator) -> list[FloatArray]:
        dof = _freedom(s) if self.has_dof else None
        parts = Line(Estimates(s[:, 1] / s[:, 0], np.sqrt(s[:, 2]) / s[:, 0], dof=dof)).divided(shares, rng)
        known = np.full(len(s), np.inf)
        made = []
        for b, part in enumerate(parts):
            weights, e = part.weighted_by(parts[b - 1]).weights, part.estimates
            weight = e.se**-2.0 if weights is None else weights
            made.append(welch_statistics(weight, e.theta, e.se, known if e.dof is None else e.dof, weights is not None))
        return made


def _merges(s: FloatArray) -> Merges:
    return merged(WELCH, _state(s))


def _tops(s: FloatArray, rng: np.random.Generator, rows: int) -> FloatArray:
    top = np.empty(rows)
    kernels.top_plane(WELCH, _state(_draws(s, rng, rows)), top)
    return top


def _default_draws(groups: int) -> int:
    return int(np.clip(20_000_000 // groups**2, 199, MOST_DRAWS))


def _state(s: FloatArray) -> FloatArray:
    """Statistics, (…, K, 6), as the kernel takes them: the mean in place of wθ and first, one row per number."""
    rows = np.concatenate([s[..., 1:2] / s[..., :1], s[..., :1], s[..., 2:]], axis=-1)
    return np.ascontiguousarray(np.swapaxes(rows, -1, -2))


def _freedom(s: FloatArray) -> FloatArray:
    """Degrees of freedom behind statistics."""
    return np.asarray(np.divide(s[:, 2] ** 2, s[:, 3], out=np.full(len(s), np.inf), where=s[:, 3] > 0))


def _one_draw(s: FloatArray, rng: np.random.Generator) -> FloatArray:
    return np.asarray(_draws(s, rng, 1)[0])


def _draws(s: FloatArray, rng: np.random.Generator, rows: int) -> FloatArray:
    """Statistics of groups that are all alike, (rows, K, 6): effects around zero, variances estimated anew."""
    dof = _freedom(s)
    scale = true_scales(np.sqrt(s[:, 2]) / s[:, 0], None if np.isinf(dof).all() else np.maximum(dof, 1.0))
    half = np.minimum(dof, 1e12) / 2
    theta = scale * rng.standard_normal((rows, len(s)))
    se = scale * np.sqrt(rng.standard_gamma(half, size=theta.shape) / half)
    return welch_statistics(se**-2.0, theta, se, dof)
