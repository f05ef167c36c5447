"""How far groups could be apart if missing values could be anything: bounds which hold at 1 − α.

What a group's rate could be at most, and at least, are shares of its rows as the rate itself is (`rows.possible`), so
each has an interval of its own. A group is farthest from what it is compared with where its missing values are all of
one kind, and those of the other all of the other. If the bound of that distance is within a gap, then so is the bound
of the distance that the values would have shown. Other metrics that have a lowest and a highest value, such as F1, AUC
or the change of a rate, are bounded by how far rows that lack a value can move them (`PossibleShifts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from faultlines.analyses.contrasts import Interval, Side, difference, rate_side, ratio
from faultlines.analyses.groups import Groups
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates, plain
from faultlines.estimates.labels import MISSING, Key
from faultlines.estimates.scales import Anscombe, LogRatio
from faultlines.metrics.base import Metric
from faultlines.metrics.names import Traits, traits_by_effect
from faultlines.metrics.readout import Readout
from faultlines.metrics.table import METRICS, Adverse
from faultlines.results.effects import of_others
from faultlines.rows.possible import PossibleCounts, can_be_filled, count_possible, range_values
from faultlines.types import FloatArray

Reference = int | Literal["overall", "any group"] | None

_AT_ONCE = 2**20  # pairs that are compared in one go
_NO_ROWS = 1e-9  # trials that stand for none
_MEANS = ("mean", "mean_error", "mean_absolute_error", "mean_squared_error", "log_loss", "brier", "calibration_gap")
_OF_ARMS = ("difference", "lift")


# ----------------------------------------------------------------------------------------------- what rates could be


class PossibleRates(NamedTuple):
    """For every group, ones and trials where its rate is highest and where it is lowest, (K, d), in effective rows.

    Attributes:
        high: Ones and trials where the rate is highest.
        low: Ones and trials where it is lowest.
        known_high: The same of rows whose attributes are known.
        known_low: The same of rows whose attributes are known.
        fewest: Trials that there are in any case.
        most: Trials that there can be.
        outside: Ones and zeros among rows whose attributes are unknown, (2, d).
    """

    high: tuple[FloatArray, FloatArray]
    low: tuple[FloatArray, FloatArray]
    known_high: tuple[FloatArray, FloatArray]
    known_low: tuple[FloatArray, FloatArray]
    fewest: FloatArray
    most: FloatArray
    outside: FloatArray

    @property
    def rates(self) -> tuple[FloatArray, FloatArray]:
        """The lowest and the highest rate of every group, in the rows at hand."""
        low, high = (np.divide(y, n, out=np.full(n.shape, np.nan), where=n > 0) for y, n in (self.low, self.high))
        return low, high

    def overall(self, part: int) -> tuple[float, float]:
        """The lowest and the highest rate of all rows together."""
        more_ones, more_zeros = self.outside[:, part]
        ends = []
        for (ones, trials), more, count in ((self.known_low, more_zeros, 0.0), (self.known_high, more_ones, 1.0)):
            total = float(trials[:, part].sum() + more)
            ends.append(float(ones[:, part].sum() + count * more) / max(total, _NO_ROWS))
        return ends[0], ends[1]

    def side(self, tail: float, part: int, *, highest: bool) -> Side:
        """The groups where their rates are highest (lowest), with the probability `tail` beyond each end."""
        ones, trials = self.high if highest else self.low
        return rate_side(ones[:, part], trials[:, part], tail)

    def rest(self, tail: float, part: int, *, highest: bool) -> Side:
        """For each group, all others together, and the unknown, where their rate is highest (lowest)."""
        ones, trials = self.known_high if highest else self.known_low
        more_ones, more_zeros = self.outside[:, part]
        ones, trials = of_others(ones[:, part]), of_others(trials[:, part])
        return rate_side(ones + more_ones * highest, trials + (more_ones if highest else more_zeros), tail)

    def smallest_share(self, part: int) -> FloatArray:
        """The smallest share of all trials that each group can have."""
        own = self.fewest[:, part]
        return np.asarray(own / np.maximum(own + of_others(self.most[:, part]) + self.outside[:, part].sum(), _NO_ROWS))


def is_boundable(estimates: Estimates) -> bool:
    """Whether effects are rates, which missing values can move only so far."""
    return all(isinstance(scale, Anscombe) for scale in estimates.scales)


def unknown_keys(keys: Sequence[Key]) -> npt.NDArray[np.bool_]:
    """Which groups lack an attribute."""
    return np.array([any(part == MISSING for part in key) for key in keys], dtype=bool)


def unknown_counts(
    groups: Groups, data: object, metric: Metric | None, is_unknown: npt.NDArray[np.bool_]
) -> PossibleCounts:
    """Rows whose attributes are unknown, by what they can be; of groups that were excluded too where rows are given."""
    estimates, readout = measured_rows(groups)
    if data is not None and metric is not None and can_be_filled(metric):
        counts = count_possible(data, groups.by, metric)
        return counts.of(np.flatnonzero(unknown_keys(counts.keys)), estimates.dims)
    return counts_without_rows(estimates, readout).of(np.flatnonzero(is_unknown), estimates.dims)


def measured_rows(groups: Groups) -> tuple[Estimates, Readout]:
    """Estimates of rows, and what was measured in them.

    Raises:
        InputError: If the groups are not of rows.
    """
    estimates, readout = groups.comparison.estimates, groups.readout
    if estimates is None or readout is None:
        raise InputError.unsupported("data", "holds no rows, of which some could be missing", "Give the rows.")
    return estimates, readout


def possible_by_group(rates: PossibleRates) -> tuple[tuple[Any, Any], ...]:
    """The lowest and the highest rate of every group, tuples where there are several effects."""
    low, high = rates.rates
    return tuple((plain(lower), plain(upper)) for lower, upper in zip(low.tolist(), high.tolist(), strict=True))


def possible_rates(
    groups: Groups, data: object, metric: Metric | None, unknown: PossibleCounts | None, *, lacking: bool
) -> PossibleRates | None:
    """What the rates of groups could be; None where missing values cannot be bounded.

    Args:
        groups: The groups that are compared.
        data: The rows; None where they are not at hand: a row that lacks a value could then be anything.
        metric: What is measured in them.
        unknown: Rows whose attributes are unknown, which may belong to any group that has their other attributes.
        lacking: Whether missing values count, or rows that lack one are dropped.
    """
    estimates, readout = groups.comparison.estimates, groups.readout
    if estimates is None or readout is None or readout.missing is None or not is_boundable(estimates):
        return None
    weight = readout.metric.inputs.get("w")
    if weight is not None and weight.column in readout.missing.by_column:
        return None
    if not lacking:
        counts = counts_without_rows(estimates, readout, lacking=False)
    elif data is not None and metric is not None and can_be_filled(metric):
        counts = _of_groups(count_possible(data, groups.by, metric), estimates)
    elif weight is None:
        counts = counts_without_rows(estimates, readout)
    else:
        return None
    trials = estimates.scales[0].mass(estimates.errors)  # of rows that were used, each as good as an independent one
    mass = trials if readout.mass is None else readout.mass.reshape(trials.shape)
    design = np.maximum(mass / trials, _NO_ROWS)
    return rates_of_counts(counts, unknown, design)


class PossibleShifts(NamedTuple):
    """How far missing values can move the effect of every group, (K, d), and the overall, (d,).

    Attributes:
        down: How far below the effect at hand that of complete rows can be.
        up: How far above.
        down_overall: The same of the overall.
        up_overall: The same of the overall.
        complete: Whether that holds for all effects; otherwise some can be anything, or lost rows have weights.
        values: The lowest and the highest value at hand, which are taken to hold for missing values too; None where
            the metric itself has such ends.
    """

    down: FloatArray
    up: FloatArray
    down_overall: FloatArray
    up_overall: FloatArray
    complete: bool
    values: tuple[float, float] | None = None

    def widen(self, distance: FloatArray, part: int, adverse: Adverse | None, reference: Reference) -> FloatArray:
        """Distances of an effect of all groups, with what missing values can add to each.

        Args:
            distance: How far each group is from what it is compared with.
            part: The effect.
            adverse: The harmful direction; None: either.
            reference: A group by its place, ``"overall"``, ``"any group"``; None: a fixed value.
        """
        down, up = self.down[:, part], self.up[:, part]
        if reference == "overall":
            falls, rises = self.down_overall[part], self.up_overall[part]
        elif reference == "any group":
            falls, rises = down.max(), up.max()
        else:
            falls, rises = (0.0, 0.0) if reference is None else (down[reference], up[reference])
        added = {"low": down + rises, "high": up + falls, None: np.maximum(down + rises, up + falls)}
        return np.asarray(distance + added[adverse])


def possible_shifts(groups: Groups, data: object, metric: Metric | None) -> PossibleShifts | None:
    """How far rows that lack a value can move effects between a lowest and a highest value; None without rows.

    A mean of values between l and h, v in n rows, is (n v + m l) / (n + m) at least with m more rows. Of what is no
    mean (F1, balanced accuracy, AUC), m rows change at most the share 2m / (n + 2m), with n the rows of the smaller
    class: of F1 one row adds up to two to numerator and denominator, of AUC it adds the share 1 / (n + 1) of all pairs.
    Where a metric has no lowest and highest value, means have those of the values at hand.
    """
    estimates, readout = groups.comparison.estimates, groups.readout
    if estimates is None or readout is None or readout.missing is None:
        return None
    lost = np.array([group.dropped for group in readout.missing.of(estimates.keys)])
    traits = traits_by_effect(estimates.recipe, estimates.dims)
    is_bounded, values = all(np.isfinite(of_effect.span) for of_effect in traits), None
    weight = readout.metric.inputs.get("w")
    knows_weights = weight is None or weight.column not in readout.missing.by_column
    mean = None if is_bounded else plain_mean(readout.metric)
    is_needed = mean is not None or (is_bounded and weight is not None)
    if data is not None and metric is not None and knows_weights and is_needed:
        values = range_values(data, groups.by, metric, mean)
        place = {tuple(key): i for i, key in enumerate(values.keys)}
        width = len(values.keys[0])
        lost = values.lost[[place[tuple(key[:width])] for key in estimates.keys]]
    extents = [of_effect.extent for of_effect in traits]
    if not is_bounded and values is not None:
        high = values.high if readout.capped is None else min(values.high, readout.capped.at)
        extents = [(min(values.low, high), high)]
    down, up = np.stack(
        [_moved(readout, estimates, part, lost, traits[part], extents[part]) for part in range(estimates.dims)], axis=-1
    )
    sizes = readout.moments.n.min(axis=(1, 2))
    share, replaced = sizes / sizes.sum(), lost.sum() / (sizes.sum() + lost.sum())
    # The overall has other shares of groups then, too.
    spread = (estimates.shown + up).max(axis=0) - (estimates.shown - down).min(axis=0)
    complete = values is not None if not is_bounded else weight is None or values is not None
    return PossibleShifts(
        down,
        up,
        share @ down + replaced * spread,
        share @ up + replaced * spread,
        complete,
        extents[0] if complete and not is_bounded else None,
    )


def plain_mean(metric: Metric) -> Metric | None:
    """A mean, or a difference or lift of means, without weights and units; None for what is no mean of rows' values."""
    name = "" if metric.recipe is None else metric.recipe.name
    in_arms = name in _OF_ARMS and metric.unit is None and "z" not in metric.inputs
    if metric.recipe is None or metric.aggregated or not (in_arms or name in _MEANS):
        return None
    arguments = {key: value for key, value in metric.recipe.arguments if key not in ("weight", "unit", "overlap")}
    return METRICS[name].function(**arguments)


def _moved(
    readout: Readout, estimates: Estimates, part: int, lost: FloatArray, traits: Traits, extent: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """How far that number of further rows could move an effect down and up; nothing where it has no ends."""
    low, high = extent
    value, n = estimates.shown[:, part], readout.moments.n
    if not np.isfinite(high - low):
        return np.zeros(value.shape), np.zeros(value.shape)
    if readout.by_arm is None or not readout.metric.arms:
        rows = n.min(axis=(1, 2))
        share = lost / (rows + lost) if traits.averages else 2 * lost / (rows + 2 * lost)
        return share * (value - low), share * (high - value)
    # All rows that lack a value may be in either arm.
    share = lost[:, None] / (n[:, :, 0] + lost[:, None])
    least, most = ((1 - share) * readout.by_arm + share * end for end in (low, high))
    if isinstance(estimates.scales[part], LogRatio):
        with np.errstate(divide="ignore", invalid="ignore"):
            lowest = np.where(most[:, 0] > 0, least[:, 1] / most[:, 0] - 1, -np.inf)
            highest = np.where(least[:, 0] > 0, most[:, 1] / least[:, 0] - 1, np.inf)
    else:
        lowest, highest = least[:, 1] - most[:, 0], most[:, 1] - least[:, 0]
    return np.maximum(value - lowest, 0.0), np.maximum(highest - value, 0.0)


def _of_groups(counts: PossibleCounts, estimates: Estimates) -> PossibleCounts:
    """The counts of the groups and rates of estimates, in their order."""
    place = {tuple(key): i for i, key in enumerate(counts.keys)}
    return counts.of(np.array([place[tuple(key)] for key in estimates.keys], dtype=np.int64), estimates.dims)


def counts_without_rows(estimates: Estimates, readout: Readout, *, lacking: bool = True) -> PossibleCounts:
    """Rows by what they can be, where only their number is known: each that lacks a value can be anything.

    Args:
        estimates: Rates of the groups.
        readout: What was measured in their rows.
        lacking: Whether rows that lack a value count.
    """
    trials = estimates.scales[0].mass(estimates.errors)
    trials = trials if readout.mass is None else readout.mass.reshape(trials.shape)
    ones = estimates.shown * trials
    lost = np.zeros(len(estimates))
    if lacking and readout.missing is not None:
        lost = np.array([group.dropped for group in readout.missing.of(estimates.keys)])
    more = lost[:, None]
    zeros = trials - ones
    return PossibleCounts(list(estimates.keys), ones + more, ones, zeros + more, zeros, trials, trials + more)


def rates_of_counts(
    counts: PossibleCounts, unknown: PossibleCounts | None, design: FloatArray | float = 1.0
) -> PossibleRates:
    """Highest and lowest rates, with rows of unknown attributes where these would move a rate most.

    Args:
        counts: Rows of the groups that are compared, by what they can be.
        unknown: Rows whose attributes are unknown, which may belong to any group that has their other attributes.
        design: How many rows are as good as an independent one, (K, d).
    """
    keys = counts.keys
    one, zero = counts.one, counts.zero
    outside = np.zeros((2, one.shape[1]))
    if unknown is not None and len(unknown.keys):
        fits = np.array(
            [[_fits(key, other) for other in unknown.keys] for key in keys], dtype=np.float64
        )  # (K, U): whether a row of unknown attributes may belong to the group
        one, zero = one + fits @ unknown.one, zero + fits @ unknown.zero
        outside = np.stack([unknown.one.sum(axis=0), unknown.zero.sum(axis=0)])
    typical = float(np.median(design))
    return PossibleRates(
        (one / design, (one + counts.only_zero) / design),
        (counts.only_one / design, (zero + counts.only_one) / design),
        (counts.one / design, (counts.one + counts.only_zero) / design),
        (counts.only_one / design, (counts.zero + counts.only_one) / design),
        counts.certain / design,
        counts.any / design,
        outside / typical,
    )


def _fits(key: Key, unknown: Key) -> bool:
    """Whether a row with these attributes, some unknown, may belong to a group."""
    return all(part in (MISSING, own) for own, part in zip(key, unknown, strict=True))


# -------------------------------------------------------------------------------------------------- how far apart


def farthest_from_overall(
    rates: PossibleRates, part: int, tail: float, adverse: Adverse | None, *, as_ratio: bool
) -> FloatArray:
    """How far every group may be from the overall at most: bounds at level `tail` each."""
    own = rates.smallest_share(part)
    left = 1 - own

    def away(*, up: bool) -> FloatArray:
        group, rest = rates.side(tail, part, highest=up), rates.rest(tail, part, highest=not up)
        if not as_ratio:
            apart = difference(group, rest)
            return np.asarray(left * (apart.upper if up else -apart.lower))
        with np.errstate(divide="ignore"):
            apart = ratio(group, rest)
            over = 1 / (own + left / (apart.upper if up else apart.lower))
            return np.asarray(over if up else np.divide(1.0, over))

    return _worse(away, adverse)


def farthest_from_value(
    rates: PossibleRates, part: int, tail: float, adverse: Adverse | None, value: float, *, as_ratio: bool
) -> FloatArray:
    """How far every group may be from a fixed value at most: bounds at level `tail` each."""

    def away(*, up: bool) -> FloatArray:
        side = rates.side(tail, part, highest=up)
        end = side.upper if up else side.lower
        if not as_ratio:
            return np.asarray(end - value if up else value - end)
        with np.errstate(divide="ignore"):
            return np.asarray(end / value if up else np.divide(value, end))

    return _worse(away, adverse)


def farthest_from_groups(
    rates: PossibleRates,
    part: int,
    tail: float,
    adverse: Adverse | None,
    others: npt.NDArray[np.int64],
    *,
    as_ratio: bool,
) -> FloatArray:
    """How far every group may be from the farthest of some groups at most: bounds at level `tail` for each pair."""

    def away(*, up: bool) -> FloatArray:
        groups, partners = rates.side(tail, part, highest=up), rates.side(tail, part, highest=not up)
        partners = Side(*(array[others] for array in partners))
        count = groups.value.size
        far = np.full(count, -np.inf)
        some = max(1, _AT_ONCE // max(others.size, 1))
        for start in range(0, count, some):
            places = np.arange(start, min(start + some, count))
            apart: Interval = (ratio if as_ratio else difference)(groups.of(places), partners)
            ends = apart.upper if up else -apart.lower
            if as_ratio and not up:
                ends = np.divide(1.0, apart.lower, out=np.full(apart.lower.shape, np.inf), where=apart.lower > 0)
            far[places] = np.where(places[:, None] == others, -np.inf, ends).max(axis=1)
        return far

    return _worse(away, adverse)


def _worse(away: Any, adverse: Adverse | None) -> FloatArray:
    """The farther of both directions, or the one that is harmful."""
    if adverse is not None:
        return np.asarray(away(up=adverse == "high"))
    return np.asarray(np.maximum(away(up=True), away(up=False)))
