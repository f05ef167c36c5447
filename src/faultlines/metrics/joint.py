"""Metrics made of metrics: several together (groups are equal when all of them are), and bootstrapped ones."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from faultlines.checks import column as checked_column
from faultlines.checks import number, text
from faultlines.checks import seed as checked_seed
from faultlines.errors import InputError
from faultlines.estimates.labels import key_of
from faultlines.estimates.reasons import Reason, ReasonCode, mark, no_reasons, unmarked
from faultlines.estimates.scales import Scale, Scales
from faultlines.formats import unit_name
from faultlines.metrics.base import Measured, Metric, recorded
from faultlines.metrics.moments import of_resampled
from faultlines.rows.inputs import form_variables
from faultlines.rows.request import Columns, Grouped, Input, Moments, Resampling, Together
from faultlines.types import FloatArray

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
    return Metric(
        " and ".join(names),
        {
            f"{k}{_OF}{role}": _numbered(k, role, source)
            for k, m in enumerate(metrics)
            for role, source in m.inputs.items()
        },
        partial(_variables, metrics=metrics, layout=layout),
        partial(_joint, metrics=metrics, layout=layout),
        arms=metrics[0].arms,
        unit=metrics[0].unit,
        sums=None if metrics[0].sums is None else partial(_sums, metrics=metrics),
        centred={f"{k}{_OF}{c}": f"{k}{_OF}{role}" for k, m in enumerate(metrics) for c, role in m.centred.items()},
        scale=_joint_scale([metric.scale for metric in metrics]),
        size_unit=metrics[0].size_unit,
        parts=names,
        pairs=(*layout.within, *layout.copies),
        size_variables=tuple(
            places[i]
            for m, places in zip(metrics, layout.own, strict=True)
            for i in (range(len(places)) if m.size_variables is None else m.size_variables)
        ),
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
        raise InputError.too_few(
            "metrics", "needs two metrics or more", "Use fl.joint(fl.rate(…), fl.mean(…)).", metrics
        )
    for metric in metrics:
        by_rows = metric.ranking is not None or metric.resampling is not None
        if by_rows or metric.aggregated is not None or metric.parts:
            kind = "is measured by ranks" if metric.ranking is not None else "comes from aggregates"
            kind = "is resampled" if metric.resampling is not None else kind
            kind = "is several metrics already" if metric.parts else kind
            raise InputError.unsupported(
                "metric", f"cannot be joined: it {kind}", "Cluster it on its own.", metric.name
            )
        if metric.overlap != "error" or (metric.arms is not None and metric.arms.several):
            problem = "cannot be joined: its groups share data"
            raise InputError.unsupported("metric", problem, "Cluster it on its own.", metric.name)
        same = (metric.sums is None) == (metrics[0].sums is None)
        if (metric.arms, metric.unit) != (metrics[0].arms, metrics[0].unit) or not same:
            raise InputError.mismatch(
                "metrics",
                "differ in their variants or units",
                "Give all the same variant, control, treatment and unit.",
                [metrics[0].name, metric.name],
            )
    if any((a.name, a.inputs) == (b.name, b.inputs) for i, a in enumerate(metrics) for b in metrics[i + 1 :]):
        raise InputError.duplicate("metrics", "has a metric twice", "Give each once.", [m.name for m in metrics])


def _numbered(k: int, role: str, source: Input) -> Input:
    """An input whose parameter says to which of the metrics it belongs."""
    return replace(source, parameter=f"{source.parameter or role}[{k}]")


@dataclass(frozen=True)
class _JointLayout:
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


def _layout(metrics: Sequence[Metric]) -> _JointLayout:
    own, start = [], 0
    for metric in metrics:
        count = len(form_variables(metric))
        own.append(tuple(range(start, start + count)))
        start += count
    return _JointLayout(tuple(own))


def _sums(c: Columns, metrics: tuple[Metric, ...]) -> dict[str, Any]:
    """What is summed over the rows of a unit, of all metrics."""
    parts = [{} if metric.sums is None else metric.sums(c.under(f"{k}{_OF}")) for k, metric in enumerate(metrics)]
    return {f"{k}{_OF}{name}": value for k, part in enumerate(parts) for name, value in part.items()}


def _variables(c: Columns, metrics: tuple[Metric, ...], layout: _JointLayout) -> dict[str, Any]:
    parts = [metric.variables(c.under(f"{k}{_OF}")) for k, metric in enumerate(metrics)]
    variables = {f"{k}{_OF}{name}": value for k, part in enumerate(parts) for name, value in part.items()}
    # Rates of positives and of negatives have values in different rows; what two variables have in common comes from
    # copies that are null wherever the other one is.
    flat = list(variables.values())
    for i, j in layout.between:
        variables[f"both{i}_{j}"], variables[f"and{i}_{j}"] = flat[i] + 0 * flat[j], flat[j] + 0 * flat[i]
    return variables


def _joint(m: Moments, metrics: tuple[Metric, ...], layout: _JointLayout) -> Measured:
    """Each metric from its own variables; their covariance by the delta method.

    Cov(θ_a, θ_b) = Σ over arms and variables of ∂θ_a/∂m_i · Cov(m_i, m_j) · ∂θ_b/∂m_j, where m are the means. The
    derivatives are taken by moving a mean a little, so that any metric has them. The standard errors stay those of the
    metrics.
    """
    own = layout.own
    moments = [m.of_variables(places) for places in own]
    parts = [metric.measured(moment) for metric, moment in zip(metrics, moments, strict=True)]
    reason = no_reasons(len(m.n))
    for metric, part in zip(metrics, parts, strict=True):
        for place in np.flatnonzero(unmarked(reason) & ~unmarked(part.reason)).tolist():
            reason[place] = replace(part.reason[place], metric=metric.name)
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
    mark(reason, least < 1e-6, Reason(ReasonCode.DETERMINED))
    degrees = [part.dof for part in parts if part.dof is not None]
    return Measured(
        theta,
        se,
        np.min(degrees, axis=0) if degrees else None,
        np.max([part.n for part in parts], axis=0),
        natural,
        reason,
        correlation * (se[:, :, None] * se[:, None, :]),
        compared,
        mass=np.stack([part.n if part.mass is None else part.mass for part in parts], axis=1),
        scale=_joint_scale([part.scale or metric.scale for metric, part in zip(metrics, parts, strict=True)]),
    )


def _joint_scale(scales: Sequence[Scale]) -> Scales:
    return Scales(" and ".join(scale.name for scale in scales), parts=tuple(scales))


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


def _covariance_of_means(m: Moments, layout: _JointLayout) -> FloatArray:
    """Covariances of the means of all variables, (K, arms, V, V), also of those that are null in different rows."""
    cov = np.zeros((*m.n.shape[:2], layout.total, layout.total))
    for places in layout.own:
        for i in places:
            for j in places:
                cov[..., i, j] = m.cov[..., i, j] / np.maximum(m.n[..., i], m.n[..., j])
    for (i, j), (a, b) in zip(layout.between, layout.copies, strict=True):
        common = m.n[..., a]
        apart = (m.mean[..., a] - m.mean[..., i]) * (m.mean[..., b] - m.mean[..., j])
        shared = common * (np.nan_to_num(m.cov[..., a, b]) + np.nan_to_num(apart))
        cov[..., i, j] = cov[..., j, i] = np.where(common > 0, shared / (m.n[..., i] * m.n[..., j]), 0.0)
    return cov


# ---------- Groups that share data, from rows: treatments with one control, and units that are in several groups.


_STEP = 1e-3  # of the standard error of a mean, by which it is moved to see the slope
_MOST = 5_000  # groups whose covariance is computed


def split_treatments(grouped: Grouped, metric: Metric) -> Grouped:
    """Groups of several treatments as a group for each treatment, all with the control of their own."""
    if metric.arms is None or not metric.arms.several:
        return grouped
    arms = len(grouped.treatments)
    pick = [np.array([0, t]) for t in range(1, arms + 1)]
    keys = [(*key_of(key), name) for key in grouped.keys for name in grouped.treatments]
    moments = Moments(*(None if part is None else _by_arm(part, pick) for part in grouped.moments))  # type: ignore[arg-type]
    rows, lost = (None if part is None else _by_arm(part, pick) for part in (grouped.rows, grouped.lost))
    capped = grouped.capped
    if capped is not None:
        capped = capped._replace(above=_by_arm(capped.above, pick))
    grouped = replace(grouped, capped=capped)
    common = _own(grouped.moments) if grouped.together is None else grouped.together
    return replace(grouped, keys=keys, moments=moments, rows=rows, lost=lost, together=_with_control(common, arms))


def _by_arm(part: FloatArray, pick: list[FloatArray]) -> FloatArray:
    """Something of K groups and all arms as that of K × treatments groups and two arms."""
    stacked = np.stack([part[:, places] for places in pick], axis=1)
    return np.asarray(stacked.reshape(-1, *stacked.shape[2:]))


def _own(moments: Moments) -> Together:
    """Every group with itself alone, in every arm."""
    groups, arms = moments.n.shape[:2]
    place, arm = (grid.reshape(-1) for grid in np.meshgrid(np.arange(groups), np.arange(arms), indexing="ij"))
    n = moments.n[place, arm, 0]
    each = moments.n[place, arm]
    both = np.minimum(each[:, :, None], each[:, None, :])  # a covariate may be missing where the others are not
    cross = np.maximum(both - 1, 0) * np.nan_to_num(moments.cov[place, arm])
    return Together(place, place, arm, n, cross)


def _with_control(common: Together, arms: int) -> Together:
    """What groups of each treatment have in common: the control with all, a treatment with its like."""
    of_control, of_arm = (np.flatnonzero(which) for which in (common.arm == 0, common.arm > 0))
    first, second = (grid.reshape(-1) for grid in np.meshgrid(np.arange(arms), np.arange(arms), indexing="ij"))
    each = np.repeat(of_control, arms**2)
    firsts = [common.first[each] * arms + np.tile(first, of_control.size)]
    seconds = [common.second[each] * arms + np.tile(second, of_control.size)]
    firsts.append(common.first[of_arm] * arms + common.arm[of_arm] - 1)
    seconds.append(common.second[of_arm] * arms + common.arm[of_arm] - 1)
    arm = np.concatenate([np.zeros(each.size, dtype=np.int64), np.ones(of_arm.size, dtype=np.int64)])
    chosen = np.concatenate([each, of_arm])
    return Together(np.concatenate(firsts), np.concatenate(seconds), arm, common.n[chosen], common.cross[chosen])


class Shared(NamedTuple):
    """How the estimates of groups go together.

    Attributes:
        correlation: Of the estimates, (K, K).
        units: As many independent units as would tell it as well, in both arms together.
    """

    correlation: FloatArray
    units: float


def correlation(metric: Metric, moments: Moments, common: Together, places: FloatArray) -> Shared | None:
    """How the estimates of some groups go together; None where they have nothing in common.

    Args:
        metric: What was measured.
        moments: Moments of all groups.
        common: What pairs of them have in common.
        places: Those that are asked about.
    """
    if not np.any(common.first != common.second):
        return None
    if places.size > _MOST:
        problem = f"have data in common: of {places.size:,} groups that is more than can be followed"
        raise InputError.unsupported(
            "groups", problem, f"Use coarser groups, at most {_MOST:,}, or one treatment at a time."
        )
    moved = _covariances_of_pairs(metric, moments, common)
    own = common.first == common.second
    flat = np.zeros(moments.n.shape[:2], dtype=bool)
    flat[common.first[own], common.arm[own]] = ~(moved[own] > 0)
    flat &= np.isin(np.arange(len(flat)), places)[:, None]
    if flat.any():
        moved = _covariances_of_pairs(metric, *_with_common_variance(moments, common, flat, places))
    covariance = np.zeros((len(moments.n), len(moments.n)))
    np.add.at(covariance, (common.first, common.second), moved)
    chosen = covariance[np.ix_(places, places)]
    spread = np.sqrt(np.diagonal(chosen))
    scaled = chosen / np.where(spread > 0, spread, 1.0)[:, None] / np.where(spread > 0, spread, 1.0)
    scaled = (scaled + scaled.T) / 2
    np.fill_diagonal(scaled, 1.0)
    return Shared(np.asarray(scaled), _units(common, moved, places))


def _covariances_of_pairs(metric: Metric, moments: Moments, common: Together) -> FloatArray:
    """What each pair's common data add to the covariance of its two estimates, (P,)."""
    slopes = _slopes_of_together(metric, moments) / np.maximum(moments.n, 1)
    first, second = slopes[common.first, common.arm], slopes[common.second, common.arm]
    return np.asarray(np.nan_to_num(np.einsum("pi,pij,pj->p", first, common.cross, second)))


def _with_common_variance(
    moments: Moments, common: Together, flat: npt.NDArray[np.bool_], places: FloatArray
) -> tuple[Moments, Together]:
    """The same where arms whose values are all equal have the variance of this arm in all groups.

    At an early look nobody in a small treatment arm may have converted. By its own rows its mean has no error, and two
    treatments would be determined by the control they share; their standard errors come from all groups, too.
    """
    size = np.maximum(moments.n[..., 0] - 1, 0.0)
    size = np.where(np.isin(np.arange(len(size)), places)[:, None] & ~flat, size, 0.0)
    pooled = (
        np.einsum("ka,kaij->aij", size, np.nan_to_num(moments.cov)) / np.maximum(size.sum(axis=0), 1.0)[:, None, None]
    )
    cov = np.where(flat[..., None, None], pooled[None], moments.cov)
    both = flat[common.first, common.arm] & flat[common.second, common.arm]
    cross = np.where(
        both[:, None, None], np.maximum(common.n - 1, 0.0)[:, None, None] * pooled[common.arm], common.cross
    )
    return moments._replace(cov=cov), common._replace(cross=cross)


def _units(common: Together, moved: FloatArray, places: FloatArray) -> float:
    """As many units as would tell the covariance as well if all of them were in all groups.

    Of sets of units with known sizes and overlaps there are at least Σ n_i²/Σ_j n_ij different ones (de Caen). A unit
    that is in m groups tells less of each pair: where every unit is in one, the mean of Cochran's Q is off by twice as
    much as where every unit is in all. The variance of two arms is known as by Welch and Satterthwaite.
    """
    inside = np.isin(common.first, places) & np.isin(common.second, places)
    own = inside & (common.first == common.second)
    of_arm, off = [], 0.0
    for arm in np.unique(common.arm[own]):
        here, alone = inside & (common.arm == arm), own & (common.arm == arm)
        with_all = np.bincount(common.first[here], common.n[here])
        sizes, with_others = common.n[alone], with_all[common.first[alone]]
        sizes, with_others = sizes[with_others > 0], with_others[with_others > 0]
        units = float(np.sum(sizes**2 / with_others))
        of_arm.append((units / (1 + units / max(float(sizes.sum()), 1.0)), float(moved[alone].sum())))
    total = sum(variance for _, variance in of_arm)
    for units, variance in of_arm:
        off += (variance / total) ** 2 / max(units - 1, 1.0) if total > 0 else 0.0
    return 1 / off if off > 0 else np.inf


def _slopes_of_together(metric: Metric, moments: Moments) -> FloatArray:
    """How each estimate moves with the mean of every variable of every arm, (K, A, V)."""
    mean, variance = moments.mean, np.diagonal(moments.cov, axis1=2, axis2=3)
    with np.errstate(all="ignore"):
        step = np.nan_to_num(_STEP * np.sqrt(variance / np.maximum(moments.n, 1)))
        slopes = np.zeros(mean.shape)
        for arm in range(mean.shape[1]):
            for variable in range(mean.shape[2]):
                ends = []
                for side in (-1, 1):
                    moved = mean.copy()
                    moved[:, arm, variable] += side * step[:, arm, variable]
                    ends.append(metric.estimate(moments._replace(mean=moved)).theta)
                slopes[:, arm, variable] = (ends[1] - ends[0]) / (2 * step[:, arm, variable])
    return np.asarray(np.nan_to_num(slopes, posinf=0.0, neginf=0.0))


_ENOUGH = 50  # rows from which on a bootstrap knows how much a statistic varies


def bootstrapped(
    statistic: Callable[..., Any],
    *columns: str,
    draws: int = 200,
    seed: int = 0,
    name: str | None = None,
    unit: str | None = None,
) -> Metric:
    """Any statistic of columns in each group, with the standard error it has when rows are drawn anew.

    Rows are read once and brought here, unlike those of other metrics: it is for what no sums make, such as a median,
    a quantile or a metric of another library. Every draw counts each row as often as a Poisson variable of mean 1 says
    (Poisson bootstrap). The statistic must be about a typical row, as a mean is, and not grow with their number, as a
    sum does.

    Args:
        statistic: A function of arrays, one for each column, that returns a number. If it takes ``sample_weight``, it
            is given counts there; otherwise rows are repeated.
        *columns: The columns, in the order of its arguments.
        draws: How often rows are drawn anew.
        seed: Of the draws. Each group has its own, so that results do not depend on the other groups.
        name: How it is called in a result. Default: the name of the function and its columns.
        unit: The column of units, such as people or prompts, where each has several rows: whole units are drawn then.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`. It cannot be joined, split by unit or self-checked.

    Raises:
        InputError: If `statistic` is not a function, or there are no columns.

    Example:
        >>> import duckdb, faultlines as fl, numpy as np
        >>> rows = duckdb.sql("SELECT i % 3 AS g, i % 7 AS x FROM range(300) t(i)")
        >>> fl.measure(rows, "g", fl.bootstrapped(np.median, "x")).estimates
        Estimates(3 groups by g, θ from 3 to 3)
    """
    if not callable(statistic):
        problem = "is not a function"
        raise InputError.wrong_type("statistic", problem, 'Use for example bootstrapped(np.median, "x").', statistic)
    if not columns:
        raise InputError.empty(
            "columns", "none is named", 'Name those it takes, as in bootstrapped(np.median, "x").', form="clause"
        )
    problem = "must be a whole number from 20 on"
    drawn = int(number("draws", draws, problem, "Use {draws}.", low=20, whole=True, settings={"draws": 200}))
    inputs = {
        f"x{i}": Input(checked_column("columns", column), "any", parameter="columns")
        for i, column in enumerate(columns)
    }
    metric_name = text("name", name) or f"{getattr(statistic, '__name__', 'statistic')} of {', '.join(columns)}"
    how = Resampling(statistic, _takes_weights(statistic), drawn, checked_seed(seed))
    return Metric(
        metric_name,
        inputs,
        _as_they_are,
        of_resampled,
        unit=unit,
        resampling=how,
        size_unit=unit_name(unit),
        shaped=(),
        min_size=_ENOUGH,
    )


def _takes_weights(statistic: Callable[..., Any]) -> bool:
    try:
        return "sample_weight" in inspect.signature(statistic).parameters
    except (TypeError, ValueError):  # a function of C that does not say what it takes
        return False


def _as_they_are(c: Columns) -> dict[str, Any]:
    return {"x": c["x0"]}
