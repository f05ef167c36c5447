"""Crossed groups too small to be compared: pooled over some attributes, their rows still count along the others.

Small combinations are pooled over the attribute with the most levels first (of country × device × type, over country),
those that are still too small over the next one too, until one attribute is left. Sizes alone decide what is pooled:
what the rows hold has no say, so that groups with equal effects have equal effects pooled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultlines.estimates.estimates import Estimates, Remainder
from faultlines.estimates.reasons import unmarked
from faultlines.metrics.readout import sum_moments
from faultlines.rows.request import Moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.labels import Key
    from faultlines.estimates.scales import FloatArray
    from faultlines.metrics.base import Metric
    from faultlines.metrics.warnings import SampleRatio

_LEAST = 2.0  # times the smallest size of a group: what is pooled is a mixture, so that its shape is known less well


def pool_small_groups(
    metric: Metric,
    moments: Moments,
    keys: Sequence[Key],
    sizes: FloatArray,
    is_used: BoolArray,
    least: float,
    ratio: SampleRatio | None,
) -> Remainder | None:
    """The rows of small groups by the attributes that pooling leaves; None where there are none, or they do not add up.

    Args:
        metric: What is measured.
        moments: Moments of all groups.
        keys: All groups.
        sizes: What is compared with the smallest size, by group.
        is_used: Which groups are compared by themselves.
        least: The smallest size.
        ratio: Of the arms: where their shares differ, pooled arms are not comparable.
    """
    adds_up = metric.adds_up and not metric.products and not metric.parts and metric.aggregated is None
    is_plain = metric.overlap == "error" and not (metric.arms is not None and metric.arms.several)
    if not adds_up or not is_plain or (ratio is not None and ratio.is_mismatch):
        return None
    small = np.flatnonzero((sizes < least) & (sizes > 0))
    if np.count_nonzero(is_used) < 2 or small.size < 2 or len(keys[0]) < 2:
        return None
    pooled_keys, codes = _pool_keys([keys[i] for i in small.tolist()], sizes[small], _LEAST * least)
    count = len(pooled_keys)
    if not count:
        return None
    inside = codes >= 0
    pooled = sum_moments(moments.of_groups(small[inside]), codes[inside], count)
    used = moments.of_groups(np.flatnonzero(is_used))
    both = Moments(*(_stack(*pair) for pair in zip(used, pooled, strict=True)))  # type: ignore[arg-type]
    measured = metric.measured(both)  # together, so that they share what is known about variances
    rest = slice(len(used.n), None)
    parts = (measured.theta[rest], measured.se[rest], measured.natural[rest])
    is_good = np.all([np.isfinite(part) for part in parts], axis=0) & (measured.se[rest] > 0)
    is_good &= unmarked(measured.reason[rest])
    if not is_good.any():
        return None
    theta, se, natural = (part[is_good] for part in parts)
    estimates = Estimates(
        theta,
        se,
        n=measured.n[rest][is_good],
        dof=None if measured.dof is None else measured.dof[rest][is_good],
        natural=natural,
        scale=measured.scale or metric.scale,
        metric=metric.name,
        compared=None if measured.compared is None else measured.compared[rest][is_good],
    )
    good_places = np.flatnonzero(is_good).tolist()
    groups = int(np.count_nonzero(np.isin(codes, good_places)))
    return Remainder(estimates, tuple(pooled_keys[i] for i in good_places), groups)


def large_attributes(keys: Sequence[Key], sizes: FloatArray, least: float) -> list[int]:
    """Places of the attributes two or more of whose levels are large enough by themselves, fewest levels first.

    Args:
        keys: All groups, of which none is large enough.
        sizes: What is compared with the smallest size, by group.
        least: The smallest size.
    """
    found = []
    for a in range(len(keys[0])):
        totals: dict[object, float] = {}
        for key, size in zip(keys, sizes.tolist(), strict=True):
            totals[key[a]] = totals.get(key[a], 0.0) + size
        if sum(total >= least for total in totals.values()) > 1:
            found.append((len(totals), a))
    return [a for _, a in sorted(found)]


def _pool_keys(keys: Sequence[Key], sizes: FloatArray, least: float) -> tuple[list[tuple[object, ...]], IntArray]:
    """Pooled keys, None for attributes that were pooled over, and which of them each group belongs to; −1 for none."""
    count = len(keys[0])
    by_levels = sorted(range(count), key=lambda a: -len({key[a] for key in keys}))
    codes, pooled = np.full(len(keys), -1, dtype=np.int64), list[tuple[object, ...]]()
    for over in range(1, count):
        dropped, places = set(by_levels[:over]), dict[tuple[object, ...], list[int]]()
        for i in np.flatnonzero(codes < 0).tolist():
            key = tuple(None if a in dropped else part for a, part in enumerate(keys[i]))
            places.setdefault(key, []).append(i)
        for key, members in places.items():
            if len(members) > 1 and float(sizes[members].sum()) >= least:
                codes[members] = len(pooled)
                pooled.append(key)
    return pooled, codes


def _stack(first: FloatArray | None, second: FloatArray | None) -> FloatArray | None:
    return None if first is None or second is None else np.concatenate((first, second))
