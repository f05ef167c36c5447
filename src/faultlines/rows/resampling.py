"""Statistics of whole columns by group, with the variance they have when rows are drawn anew (Poisson bootstrap).

Rows are fetched once. In every draw each of them counts as often as a Poisson variable of mean 1 says, whatever the
others do, so that draws do not depend on which other groups there are or where the rows were stored.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.engines.frames import fetch
from faultlines.engines.protocol import to_floats, to_list
from faultlines.errors import InputError, NoGroupsError, first_line
from faultlines.estimates.labels import key_of, reading
from faultlines.progress import progress
from faultlines.rows import keys as places
from faultlines.rows.ranks import check_units, prepare_inputs
from faultlines.rows.request import Grouped, Moments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from faultlines.engines.frames import Rows
    from faultlines.engines.protocol import Column
    from faultlines.rows.keys import Keys
    from faultlines.rows.request import FloatArray, Request, Resampling

_FAILED = 0.1  # share of draws that may have no value


def resample(rows: Rows, by: Keys, request: Request, how: Resampling) -> Grouped:
    """The statistic in every group, as a mean whose variance over the number of rows is that of the draws.

    Of units, whose rows are drawn together, it is their number.
    """
    import narwhals as nw

    frame, _ = prepare_inputs(rows, by, request)
    if request.unit is not None:
        check_units(frame.filter(nw.col("ok")), by, request)
    table = fetch(frame)
    by.record_fractions(table)
    group_places = places.place_groups(by, table)
    usable = np.nan_to_num(to_floats(table["ok"])) > 0
    size = len(group_places.keys)
    count = np.bincount(group_places.groups[usable], minlength=size)
    columns = [_to_array(table[role])[usable] for role in request.inputs]
    # In the order of their values, for engines return rows in any order.
    units = np.arange(len(columns[0])) if request.unit is None else _to_array(table["unit"])[usable]
    order = np.lexsort((*reversed(columns), *([] if request.unit is None else [units]), group_places.groups[usable]))
    ends = np.cumsum(count)
    value, variance, failed = np.full(size, np.nan), np.full(size, np.nan), None
    sizes = np.zeros(size)
    with progress("drawing rows anew", size) as advance:
        for i, key in enumerate(group_places.keys):
            own = order[ends[i] - count[i] : ends[i]]
            own_columns = [column[own] for column in columns]
            of_unit = None if request.unit is None else np.unique(units[own], return_inverse=True)[1]
            sizes[i] = count[i] if of_unit is None else of_unit.max(initial=-1) + 1
            try:
                value[i], variance[i] = _bootstrap(
                    own_columns, how, zlib.crc32(reading(key_of(key)).encode("utf-8", "replace")), of_unit
                )
            except _FailedError as error:
                failed = failed or error
            except _ExtensiveError as error:
                problem = "grows with the number of rows, as counts and sums do, so that groups of any size differ"
                remedy = "Use one that is about a typical row: a mean, a share, a quantile."
                raise InputError.unsupported("statistic", problem, remedy, request.name) from error
            advance(1)
    if failed is not None and not np.isfinite(value).any():
        problem = f"has a value in no group ({first_line(failed)})"
        remedy = "Try it on the arrays of one group."
        raise NoGroupsError("statistic", problem, remedy, value=request.name)
    dropped = {places.MISSING_VALUE: int(usable.size - usable.sum())}
    n = sizes
    moments = Moments(n[:, None, None], value[:, None, None], (n * variance)[:, None, None, None])
    return Grouped(group_places.keys, moments, dropped, missing=_missing(request, table, usable, group_places))


def _missing(request: Request, table: Mapping[str, Column], usable: Any, group_places: places.GroupPlaces) -> Any:
    """How many rows of every group lack a value."""
    have = {source.column: _present(table[role]) for role, source in request.inputs.items()}
    arms = places.place_arms(table, None, usable.size)
    return places.count_missing(np.ones(usable.size), usable.astype(np.float64), arms, group_places, have)


def _present(column: Column) -> FloatArray:
    """1 where a fetched column has a value, else 0."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iufb":
        return np.isfinite(to_floats(column)).astype(np.float64)
    return np.array([value is not None for value in to_list(column)], dtype=np.float64)


class _FailedError(Exception):
    """The user's statistic raised something."""


class _ExtensiveError(Exception):
    """The user's statistic is twice as large where every row is there twice."""


def _to_array(column: Column) -> npt.NDArray[Any]:
    """A fetched column as numbers, or as text."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iufb":
        return to_floats(column)
    values = to_list(column)
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    return to_floats(values)


def _bootstrap(
    columns: Sequence[npt.NDArray[Any]], how: Resampling, group: int, units: npt.NDArray[np.int64] | None
) -> tuple[float, float]:
    """The statistic of some rows, and the variance of the statistic of rows, or of whole units, drawn anew."""
    rows = columns[0].size
    if not rows:
        return np.nan, np.nan
    once = np.ones(rows, dtype=np.int64)
    value = _evaluate(columns, once, how)
    if not np.isfinite(value):
        return np.nan, np.nan
    if value and np.isclose(_evaluate(columns, 2 * once, how), 2 * value, rtol=1e-9, atol=0.0):
        raise _ExtensiveError
    random = np.random.default_rng([how.seed, group])
    draws: FloatArray = np.full(how.draws, np.nan)
    for i in range(how.draws):
        times = random.poisson(1.0, rows) if units is None else random.poisson(1.0, units.max() + 1)[units]
        try:
            draws[i] = _evaluate(columns, times, how) if times.any() else np.nan
        except _FailedError:  # a draw without any positives, say
            continue
    finite = draws[np.isfinite(draws)]
    if finite.size < max((1 - _FAILED) * how.draws, 2):
        return value, np.nan
    return value, float(finite.var(ddof=1))


def _evaluate(columns: Sequence[npt.NDArray[Any]], times: npt.NDArray[np.int64], how: Resampling) -> float:
    """The statistic where each row counts so many times."""
    try:
        if how.weighted:
            drawn = times > 0  # a row of weight zero may still change a statistic that looks at distinct values
            return float(how.statistic(*(c[drawn] for c in columns), sample_weight=times[drawn].astype(np.float64)))
        return float(how.statistic(*(np.repeat(column, times) for column in columns)))
    except Exception as error:
        raise _FailedError(first_line(error)) from error
