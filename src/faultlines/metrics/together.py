"""Groups that share data, from rows: treatments with one control, and units that are in several groups.

An estimate is a smooth function of means, so a unit moves it by the slope of that function times the unit's distance
from the mean, over their number (delta method). What two estimates have in common are the units that move both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultlines.errors import InputError
from faultlines.estimates.labels import key_of
from faultlines.rows.request import Moments, Together

if TYPE_CHECKING:
    from faultlines.metrics.base import FloatArray, Metric
    from faultlines.rows.request import Grouped

_STEP = 1e-3  # of the standard error of a mean, by which it is moved to see the slope
_MOST = 5_000  # groups whose covariance is computed


def apart(grouped: Grouped, metric: Metric) -> Grouped:
    """Groups of several treatments as a group for each treatment, all with the control of their own."""
    if metric.arms is None or not metric.arms.several:
        return grouped
    arms = len(grouped.treatments)
    pick = [np.array([0, t]) for t in range(1, arms + 1)]
    keys = [(*key_of(key), name) for key in grouped.keys for name in grouped.treatments]
    moments = Moments(*(None if part is None else _by_arm(part, pick) for part in grouped.moments))  # type: ignore[arg-type]
    rows, lost = (None if part is None else _by_arm(part, pick) for part in (grouped.rows, grouped.lost))
    common = _own(grouped.moments) if grouped.together is None else grouped.together
    return replace(grouped, keys=keys, moments=moments, rows=rows, lost=lost, together=_with_control(common, arms))


def _by_arm(part: FloatArray, pick: list[FloatArray]) -> FloatArray:
    """Something of K groups and all arms as that of K × treatments groups and two arms."""
    made = np.stack([part[:, places] for places in pick], axis=1)
    return np.asarray(made.reshape(-1, *made.shape[2:]))


def _own(moments: Moments) -> Together:
    """Every group with itself alone, in every arm."""
    groups, arms = moments.n.shape[:2]
    place, arm = (grid.reshape(-1) for grid in np.meshgrid(np.arange(groups), np.arange(arms), indexing="ij"))
    n = moments.n[place, arm, 0]
    cross = np.maximum(n - 1, 0)[:, None, None] * np.nan_to_num(moments.cov[place, arm])
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
        raise InputError("groups", problem, f"Use coarser groups, at most {_MOST:,}, or one treatment at a time.")
    slopes = _slopes(metric, moments) / np.maximum(moments.n[:, :, 0], 1)[:, :, None]
    moved = np.einsum("pi,pij,pj->p", slopes[common.first, common.arm], common.cross, slopes[common.second, common.arm])
    whole = np.zeros((len(moments.n), len(moments.n)))
    np.add.at(whole, (common.first, common.second), np.nan_to_num(moved))
    chosen = whole[np.ix_(places, places)]
    spread = np.sqrt(np.diagonal(chosen))
    made = chosen / np.where(spread > 0, spread, 1.0)[:, None] / np.where(spread > 0, spread, 1.0)
    made = (made + made.T) / 2
    np.fill_diagonal(made, 1.0)
    return Shared(np.asarray(made), _units(common, np.nan_to_num(moved), places))


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
        sizes, beside = common.n[alone], with_all[common.first[alone]]
        sizes, beside = sizes[beside > 0], beside[beside > 0]
        units = float(np.sum(sizes**2 / beside))
        of_arm.append((units / (1 + units / max(float(sizes.sum()), 1.0)), float(moved[alone].sum())))
    total = sum(variance for _, variance in of_arm)
    for units, variance in of_arm:
        off += (variance / total) ** 2 / max(units - 1, 1.0) if total > 0 else 0.0
    return 1 / off if off > 0 else np.inf


def _slopes(metric: Metric, moments: Moments) -> FloatArray:
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
