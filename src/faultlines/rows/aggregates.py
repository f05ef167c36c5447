"""Tables that hold counts and moments instead of rows, pooled by group and arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultlines.errors import InputError, shorten, to_numbers
from faultlines.rows import places
from faultlines.rows.inputs import some_values
from faultlines.rows.keys import finite, not_nan
from faultlines.rows.request import Grouped, Moments
from faultlines.sources.fetch import fetch, floats

if TYPE_CHECKING:
    import numpy.typing as npt

    from faultlines.rows.keys import Keys
    from faultlines.rows.request import Aggregated, Request
    from faultlines.sources.fetch import Column, FloatArray
    from faultlines.sources.frames import Rows

    BoolArray = npt.NDArray[np.bool_]


def from_aggregates(rows: Rows, by: Keys, request: Request, columns: Aggregated) -> Grouped:
    """Counts, means and variances of a table, pooled by group and arm."""
    arms, schema = request.arms, by.schema
    wanted = {"n": columns.n, "m": columns.mean or columns.sum, "v": columns.variance or columns.sum_squares}
    wanted |= {"s": columns.skewness, "k": columns.kurtosis}
    picked = by.expressions()
    if arms:
        picked.append(not_nan(rows.keys[arms.column], schema[rows.keys[arms.column]]).alias("arm"))
    named = {column: parameter for parameter, column in columns.columns().items()}
    for name, column in wanted.items():
        if column is None:
            continue
        dtype = schema[rows.numbers[column]]
        if not dtype.is_numeric():
            remedy = to_numbers(some_values(rows, rows.numbers[column]), "Name a numeric column.")
            raise InputError(f"{named[column]}={shorten(column)}", "the column is not numeric", remedy)
        picked.append(finite(rows.numbers[column], dtype).alias(name))
    picked += [expression.alias(name) for name, expression in by.fractions().items()]
    table: dict[str, Column] = fetch(rows.frame.select(*picked))
    by.settle(table)
    n, mean, variance = _moments(table, columns)
    # Where nothing but shares are needed, there are no variances to miss.
    spread_known = np.isfinite(variance) | (n == 1) | (wanted["v"] is None)
    good = np.isfinite(n) & (n > 0) & np.isfinite(mean) & spread_known
    _check(n, mean, variance, good, columns)
    where = places.placed(by, table)
    found = places.compared(table, arms, n.size)
    gone = places.dropped(np.ones(n.size), good.astype(float), found, arms)
    used = good & (found.arms >= 0)
    at = (where.groups[used], found.arms[used])
    shape = (len(where.keys), found.number)
    spread = np.maximum(variance[used], 0.0)
    moments = _pooled(n[used], mean[used], spread, at, shape)
    if "s" in table:
        given = floats(table["s"])[used], floats(table["k"])[used]
        moments = _with_shape(moments, n[used], mean[used], spread, given, at)
    return Grouped(where.keys, moments, gone, treatments=found.treatments)


def _moments(table: dict[str, Column], columns: Aggregated) -> tuple[FloatArray, FloatArray, FloatArray]:
    n, mean = floats(table["n"]), floats(table["m"])
    variance = floats(table["v"]) if "v" in table else np.full(n.size, np.nan)
    with np.errstate(all="ignore"):
        mean = mean if columns.mean else mean / n
        if columns.sum_squares:
            variance = (variance - n * mean**2) / (n - 1)
    return n, mean, variance


def _check(n: FloatArray, mean: FloatArray, variance: FloatArray, good: BoolArray, columns: Aggregated) -> None:
    if np.any(n < 0):
        raise InputError(f"n={columns.n!r}", f"holds {np.nanmin(n):g}", "Counts cannot be negative.")
    with np.errstate(all="ignore"):
        rounding = 1e-9 * n * mean**2 if columns.sum_squares else np.zeros(n.size)
        below = (variance * (n - 1) < -rounding) & good & (n > 1)
    if np.any(below):
        parameter = "variance" if columns.variance else "sum_squares"
        named = columns.variance or columns.sum_squares
        raise InputError(
            f"{parameter}={named!r}", "gives a variance below zero", "Check that it belongs to n and mean or sum."
        )


def _pooled(
    n: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    at: tuple[places.IntArray, places.IntArray],
    shape: tuple[int, int],
) -> Moments:
    """Moments of groups from those of their rows; deviations from the common mean, not differences of squares."""
    total, centre, spread = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    np.add.at(total, at, n)
    np.add.at(centre, at, n * mean)
    with np.errstate(all="ignore"):
        centre = centre / total
        within = np.where(n > 1, (n - 1) * variance, 0.0)
        np.add.at(spread, at, within + n * (mean - centre[at]) ** 2)
        spread = spread / (total - 1)
    return Moments(total[..., None], centre[..., None], spread[..., None, None])


def _with_shape(
    pooled: Moments,
    n: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    shape: tuple[FloatArray, FloatArray],
    at: tuple[places.IntArray, places.IntArray],
) -> Moments:
    """Pooled moments with skewness and kurtosis, from those of their rows about the common mean."""
    third, fourth = np.zeros(pooled.n.shape[:2]), np.zeros(pooled.n.shape[:2])
    with np.errstate(all="ignore"):
        within = np.where(n > 1, variance * (n - 1) / n, 0.0)
        own = [np.where(within > 0, part * within**power, 0.0) for part, power in zip(shape, (1.5, 2.0), strict=True)]
        away = mean - pooled.mean[..., 0][at]
        np.add.at(third, at, n * (own[0] + 3 * away * within + away**3))
        np.add.at(fourth, at, n * (own[1] + 4 * away * own[0] + 6 * away**2 * within + away**4))
        total = pooled.n[..., 0]
        spread = pooled.cov[..., 0, 0] * (total - 1) / total
        skewness, kurtosis = third / total / spread**1.5, fourth / total / spread**2
    return pooled._replace(skewness=skewness[..., None], kurtosis=kurtosis[..., None])
