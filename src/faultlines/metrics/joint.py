"""Several metrics together: groups are similar when they are equal in all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.errors import InputError, shorten
from faultlines.estimates.scales import Scales
from faultlines.metrics.base import Measured, Metric, recorded
from faultlines.metrics.moments import mark, reasons
from faultlines.rows.expressions import formed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.metrics.base import FloatArray
    from faultlines.rows.request import Columns, Input, Moments

_OF = "__"  # stands between a metric's number and its roles


@recorded
def joint(*metrics: Metric) -> Metric:
    """Several metrics together: groups are similar when they are equal in all of them.

    The metrics are measured on the same rows, so their estimates are correlated; the covariance comes from the same
    group-by, by the delta method.

    Args:
        *metrics: Two metrics or more, of the same variants and unit. Not `auc`, which is no mean of rows, and not
            aggregated tables, which do not say how their columns go together.

    Returns:
        A metric with one effect for each of them.

    Raises:
        InputError: If a metric cannot be joined, or is there twice.

    Example:
        >>> import faultlines as fl
        >>> fl.joint(fl.rate("bought"), fl.mean("spend")).parts
        ('rate of bought', 'mean of spend')
    """
    _check(metrics)
    plain = [metric.name for metric in metrics]
    names = tuple(
        f"{name} ({plain[: i + 1].count(name)})" if plain.count(name) > 1 else name for i, name in enumerate(plain)
    )
    layout = _layout(metrics)
    scales = tuple(metric.scale for metric in metrics)
    return Metric(
        " and ".join(names),
        {f"{k}{_OF}{role}": _numbered(k, role, one) for k, m in enumerate(metrics) for role, one in m.inputs.items()},
        partial(_variables, metrics=metrics, layout=layout),
        partial(_joint, metrics=metrics, layout=layout),
        arms=metrics[0].arms,
        unit=metrics[0].unit,
        centred={f"{k}{_OF}{c}": f"{k}{_OF}{role}" for k, m in enumerate(metrics) for c, role in m.centred.items()},
        scale=Scales(" and ".join(scale.name for scale in scales), parts=scales),
        size_unit=metrics[0].size_unit,
        parts=names,
        pairs=(*layout.within, *layout.copies),
        size_variables=tuple(range(layout.total)),
        shaped=tuple(places[i] for m, places in zip(metrics, layout.own, strict=True) for i in _shaped(m, len(places))),
        min_size=max(metric.min_size for metric in metrics),
        products=tuple(
            (own[a], own[b], own[c]) for m, own in zip(metrics, layout.own, strict=True) for a, b, c in m.products
        ),
    )


def _shaped(metric: Metric, count: int) -> tuple[int, ...]:
    if not metric.needs_covariance:
        return ()
    return tuple(range(count)) if metric.shaped is None else metric.shaped


def _check(metrics: tuple[Metric, ...]) -> None:
    if len(metrics) < 2 or not all(isinstance(metric, Metric) for metric in metrics):
        raise InputError(
            f"joint({shorten(metrics)})", "needs two metrics or more", "Use fl.joint(fl.rate(…), fl.mean(…))."
        )
    for metric in metrics:
        by_rows = metric.ranking is not None or metric.resampling is not None
        if by_rows or metric.aggregated is not None or metric.parts:
            kind = "is measured by ranks" if metric.ranking is not None else "comes from aggregates"
            kind = "is resampled" if metric.resampling is not None else kind
            kind = "is several metrics already" if metric.parts else kind
            raise InputError(f"metric {shorten(metric.name)}", f"cannot be joined: it {kind}", "Cluster it on its own.")
        if metric.overlap != "error" or (metric.arms is not None and metric.arms.several):
            problem = "cannot be joined: its groups share data"
            raise InputError(f"metric {shorten(metric.name)}", problem, "Cluster it on its own.")
        if (metric.arms, metric.unit) != (metrics[0].arms, metrics[0].unit):
            raise InputError(
                f"metrics {shorten(metrics[0].name)} and {shorten(metric.name)}",
                "differ in their variants or units",
                "Give all the same variant, control, treatment and unit.",
            )
    if any((a.name, a.inputs) == (b.name, b.inputs) for i, a in enumerate(metrics) for b in metrics[i + 1 :]):
        raise InputError(f"joint({', '.join(m.name for m in metrics)})", "has a metric twice", "Give each once.")


def _numbered(k: int, role: str, wanted: Input) -> Input:
    """An input whose parameter says to which of the metrics it belongs."""
    return replace(wanted, parameter=f"{wanted.parameter or role}[{k}]")


@dataclass(frozen=True)
class _Layout:
    """Where the variables of each metric are among all of them, and how pairs of different metrics are covered."""

    own: tuple[tuple[int, ...], ...]

    @property
    def total(self) -> int:
        """How many variables all metrics have."""
        return self.own[-1][-1] + 1

    @property
    def within(self) -> list[tuple[int, int]]:
        """Pairs of variables of the same metric."""
        return [(i, j) for places in self.own for i in places for j in places if i < j]

    @property
    def between(self) -> list[tuple[int, int]]:
        """Pairs of variables of different metrics."""
        return [
            (i, j) for a, first in enumerate(self.own) for second in self.own[a + 1 :] for i in first for j in second
        ]

    @property
    def copies(self) -> list[tuple[int, int]]:
        """For each of these, the places of two copies that are null wherever the other variable is."""
        return [(self.total + 2 * t, self.total + 2 * t + 1) for t in range(len(self.between))]


def _layout(metrics: Sequence[Metric]) -> _Layout:
    own, start = [], 0
    for metric in metrics:
        count = len(formed(metric))
        own.append(tuple(range(start, start + count)))
        start += count
    return _Layout(tuple(own))


def _variables(c: Columns, metrics: tuple[Metric, ...], layout: _Layout) -> dict[str, Any]:
    parts = [metric.variables(c.under(f"{k}{_OF}")) for k, metric in enumerate(metrics)]
    made = {f"{k}{_OF}{name}": value for k, part in enumerate(parts) for name, value in part.items()}
    # Rates of positives and of negatives have values in different rows; what two variables have in common comes from
    # copies that are null wherever the other one is.
    flat = list(made.values())
    for i, j in layout.between:
        made[f"both{i}_{j}"], made[f"and{i}_{j}"] = flat[i] + 0 * flat[j], flat[j] + 0 * flat[i]
    return made


def _joint(m: Moments, metrics: tuple[Metric, ...], layout: _Layout) -> Measured:
    """Each metric from its own variables; their covariance by the delta method.

    Cov(θ_a, θ_b) = Σ over arms and variables of ∂θ_a/∂m_i · Cov(m_i, m_j) · ∂θ_b/∂m_j, where m are the means. The
    derivatives are taken by moving a mean a little, so that any metric has them. The standard errors stay those of the
    metrics.
    """
    own = layout.own
    moments = [m.of_variables(places) for places in own]
    parts = [metric.measured(moment) for metric, moment in zip(metrics, moments, strict=True)]
    reason = reasons(len(m.n))
    for metric, part in zip(metrics, parts, strict=True):
        for why in dict.fromkeys(part.reason.tolist()):
            mark(reason, part.reason == why, f"{why} ({metric.name})" if why else "")
    theta, se, natural = (
        np.stack([getattr(part, name) for part in parts], axis=1) for name in ("theta", "se", "natural")
    )
    compared = np.stack([part.theta if part.compared is None else part.compared for part in parts], axis=1)
    with np.errstate(all="ignore"):
        slopes = [_slopes(metric, moment) for metric, moment in zip(metrics, moments, strict=True)]
        slope = np.concatenate(slopes, axis=2)  # (K, arms, variables)
        whose = np.concatenate([np.full(len(places), k) for k, places in enumerate(own)])
        of_means = _covariance_of_means(m, layout)
        indicator = (whose[:, None] == np.arange(len(metrics))).astype(float)
        scaled = np.nan_to_num(slope[..., None] * indicator)  # (K, arms, variables, metrics)
        joint_cov = np.einsum("kaim,kaij,kajl->kml", scaled, np.nan_to_num(of_means), scaled)
        spread = np.sqrt(np.diagonal(joint_cov, axis1=1, axis2=2))
        correlation = np.nan_to_num(joint_cov / (spread[:, :, None] * spread[:, None, :]))
    correlation = np.clip(correlation, -1, 1)
    for i in range(len(metrics)):
        correlation[:, i, i] = 1.0
    least = np.linalg.eigvalsh(correlation).min(axis=1)
    mark(reason, least < 1e-6, "one metric determines another")
    known = [part.dof for part in parts if part.dof is not None]
    return Measured(
        theta,
        se,
        np.min(known, axis=0) if known else None,
        np.max([part.n for part in parts], axis=0),
        natural,
        reason,
        correlation * (se[:, :, None] * se[:, None, :]),
        compared,
        mass=np.stack([part.n if part.mass is None else part.mass for part in parts], axis=1),
    )


def _slopes(metric: Metric, m: Moments) -> FloatArray:
    """Derivatives of the estimate with respect to every mean, (K, arms, variables), by moving it a little each way."""
    slopes = np.zeros(m.mean.shape)
    variance = np.diagonal(m.cov, axis1=2, axis2=3)
    # A thousandth of a standard error; for shares, which have no variances here, that of a share of one half.
    step = 1e-3 * np.sqrt(np.where(variance > 0, variance, 0.25) / np.maximum(m.n, 1))
    for place in np.ndindex(m.mean.shape[1:]):
        ends = []
        for side in (1, -1):
            moved = m.mean.copy()
            moved[(slice(None), *place)] += side * step[(slice(None), *place)]
            ends.append(metric.estimate(m._replace(mean=moved)).theta)
        slopes[(slice(None), *place)] = (ends[0] - ends[1]) / (2 * step[(slice(None), *place)])
    return slopes


def _covariance_of_means(m: Moments, layout: _Layout) -> FloatArray:
    """Covariances of the means of all variables, (K, arms, V, V), also of those that are null in different rows."""
    cov = np.zeros((*m.n.shape[:2], layout.total, layout.total))
    for places in layout.own:
        for i in places:
            for j in places:
                cov[..., i, j] = m.cov[..., i, j] / m.n[..., i]
    for (i, j), (a, b) in zip(layout.between, layout.copies, strict=True):
        common = m.n[..., a]
        apart = (m.mean[..., a] - m.mean[..., i]) * (m.mean[..., b] - m.mean[..., j])
        shared = common * (np.nan_to_num(m.cov[..., a, b]) + np.nan_to_num(apart))
        cov[..., i, j] = cov[..., j, i] = np.where(common > 0, shared / (m.n[..., i] * m.n[..., j]), 0.0)
    return cov
