"""Tables that hold counts and moments instead of rows, pooled by group and arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultlines.engines.frames import fetch
from faultlines.engines.protocol import to_floats
from faultlines.errors import InputError, to_numbers
from faultlines.rows import keys as places
from faultlines.rows.inputs import some_values
from faultlines.rows.keys import finite, key_value
from faultlines.rows.request import Grouped, Moments

if TYPE_CHECKING:
    import numpy.typing as npt

    from faultlines.engines.frames import Rows
    from faultlines.engines.protocol import Column, FloatArray, IntArray
    from faultlines.rows.keys import Keys
    from faultlines.rows.request import Aggregated, Request

    BoolArray = npt.NDArray[np.bool_]


def pool_aggregates(rows: Rows, by: Keys, request: Request, columns: Aggregated) -> Grouped:
    """Counts, means and variances of a table, pooled by group and arm."""
    arms, schema = request.arms, by.schema
    sources = {"n": columns.n, "m": columns.mean or columns.sum, "v": columns.variance or columns.sum_squares}
    sources |= {"s": columns.skewness, "k": columns.kurtosis}
    sources |= {name: getattr(columns, name) for other in columns.others for name in _parts_of(other, columns)}
    expressions = by.expressions()
    if arms:
        expressions.append(key_value(rows.keys[arms.column], schema[rows.keys[arms.column]]).alias("arm"))
    parameters = {column: parameter for parameter, column in columns.columns().items()}
    for name, column in sources.items():
        if column is None:
            continue
        dtype = schema[rows.numbers[column]]
        if not dtype.is_numeric():
            remedy = to_numbers(some_values(rows, rows.numbers[column]), "Name a numeric column.")
            raise InputError.wrong_type(parameters[column], "is not numeric", remedy, column)
        expressions.append(finite(rows.numbers[column], dtype).alias(name))
    expressions += [expression.alias(name) for name, expression in by.fractions().items()]
    table: dict[str, Column] = fetch(rows.frame.select(*expressions))
    by.record_fractions(table)
    n, mean, variance = _read_moments(table, columns)
    # Where nothing but shares are needed, there are no variances to miss.
    spread_known = np.isfinite(variance) | (n == 1) | (sources["v"] is None)
    usable = np.isfinite(n) & (n > 0) & np.isfinite(mean) & spread_known
    means, covariances = _read_others(table, n, mean, variance, columns)
    usable &= np.isfinite(means).all(axis=1) & (
        np.isfinite(covariances).all(axis=(1, 2)) | (n == 1) | (means.shape[1] == 1)
    )
    _check_moments(n, mean, variance, usable, columns)
    group_places = places.place_groups(by, table)
    arm_places = places.place_arms(table, arms, n.size)
    dropped = places.count_dropped(np.ones(n.size), usable.astype(float), arm_places, arms)
    used = usable & (arm_places.arms >= 0)
    at = (group_places.groups[used], arm_places.arms[used])
    shape = (len(group_places.keys), arm_places.number)
    spread = np.maximum(variance[used], 0.0)
    covariances = np.where(n[:, None, None] > 1, covariances, 0.0)
    covariances[:, 0, 0] = np.maximum(covariances[:, 0, 0], 0.0)
    moments = _pool(n[used], means[used], covariances[used], at, shape)
    if "s" in table:
        shape_columns = to_floats(table["s"])[used], to_floats(table["k"])[used]
        moments = _pool_shapes(moments, n[used], mean[used], spread, shape_columns, at)
    return Grouped(group_places.keys, moments, dropped, treatments=arm_places.treatments)


def _read_moments(table: dict[str, Column], columns: Aggregated) -> tuple[FloatArray, FloatArray, FloatArray]:
    n, mean = to_floats(table["n"]), to_floats(table["m"])
    variance = to_floats(table["v"]) if "v" in table else np.full(n.size, np.nan)
    with np.errstate(all="ignore"):
        mean = mean if columns.mean else mean / n
        if columns.sum_squares:
            variance = (variance - n * mean**2) / (n - 1)
    return n, mean, variance


def _check_moments(
    n: FloatArray, mean: FloatArray, variance: FloatArray, usable: BoolArray, columns: Aggregated
) -> None:
    if np.any(n < 0):
        raise InputError.invalid_data("n", f"holds {np.nanmin(n):g}", "Counts cannot be negative.", columns.n)
    with np.errstate(all="ignore"):
        rounding = 1e-9 * n * mean**2 if columns.sum_squares else np.zeros(n.size)
        below = (variance * (n - 1) < -rounding) & usable & (n > 1)
    if np.any(below):
        parameter = "variance" if columns.variance else "sum_squares"
        named = columns.variance or columns.sum_squares
        problem = "gives a variance below zero"
        raise InputError.invalid_data(parameter, problem, "Check that it belongs to n and mean or sum.", named)


def _parts_of(other: str, columns: Aggregated) -> list[str]:
    """The columns that a denominator or a covariate has."""
    parts = [f"{other}_sum", f"{other}_sum_squares", f"{other}_product"]
    both = other == "covariate" and "denom" in columns.others
    return [*parts, "denom_covariate_product"] if both else parts


def _read_others(
    table: dict[str, Column], n: FloatArray, mean: FloatArray, variance: FloatArray, columns: Aggregated
) -> tuple[FloatArray, FloatArray]:
    """Means and sample covariances of the value and what is beside it, (R, V) and (R, V, V)."""
    others = columns.others
    sums = {name: to_floats(table[name]) for other in others for name in _parts_of(other, columns)}
    with np.errstate(all="ignore"):
        means = np.stack([mean, *(sums[f"{other}_sum"] / n for other in others)], axis=1)
        products = np.empty((n.size, 1 + len(others), 1 + len(others)))
        for i, other in enumerate(others, start=1):
            products[:, i, i] = sums[f"{other}_sum_squares"]
            products[:, 0, i] = products[:, i, 0] = sums[f"{other}_product"]
        if len(others) > 1:
            products[:, 1, 2] = products[:, 2, 1] = sums["denom_covariate_product"]
        covariances = (products - n[:, None, None] * means[:, :, None] * means[:, None, :]) / (n - 1)[:, None, None]
    covariances[:, 0, 0] = variance
    return means, covariances


def _pool(
    n: FloatArray, mean: FloatArray, cov: FloatArray, at: tuple[IntArray, IntArray], shape: tuple[int, int]
) -> Moments:
    """Moments of groups from those of their rows; deviations from the common mean, not differences of squares."""
    count = mean.shape[1]
    total, centre, spread = np.zeros(shape), np.zeros((*shape, count)), np.zeros((*shape, count, count))
    np.add.at(total, at, n)
    np.add.at(centre, at, n[:, None] * mean)
    with np.errstate(all="ignore"):
        centre = centre / total[..., None]
        within = np.where(n[:, None, None] > 1, (n - 1)[:, None, None] * cov, 0.0)
        away = mean - centre[at]
        np.add.at(spread, at, within + n[:, None, None] * away[:, :, None] * away[:, None, :])
        spread = spread / (total - 1)[..., None, None]
    return Moments(np.repeat(total[..., None], count, axis=2), centre, spread)


def _pool_shapes(
    pooled: Moments,
    n: FloatArray,
    mean: FloatArray,
    variance: FloatArray,
    shape: tuple[FloatArray, FloatArray],
    at: tuple[IntArray, IntArray],
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
