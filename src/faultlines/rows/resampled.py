"""Statistics of whole columns by group, with the variance they have when rows are drawn anew (Poisson bootstrap).

Rows are fetched once. In every draw each of them counts as often as a Poisson variable of mean 1 says, whatever the
others do, so that draws do not depend on which other groups there are or where the rows were stored.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.errors import InputError, NoGroupsError, first_line, shorten
from faultlines.estimates.labels import key_of, reading
from faultlines.progress import progress
from faultlines.rows import places
from faultlines.rows.ranks import prepared
from faultlines.rows.request import Grouped, Moments
from faultlines.sources.fetch import fetch, floats, plain_list

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from faultlines.rows.keys import Keys
    from faultlines.rows.request import FloatArray, Request, Resampling
    from faultlines.sources.fetch import Column
    from faultlines.sources.frames import Rows

_FAILED = 0.1  # share of draws that may have no value


def resampled(rows: Rows, by: Keys, request: Request, how: Resampling) -> Grouped:
    """The statistic in every group, as a mean whose variance over the number of rows is that of the draws."""
    frame, _ = prepared(rows, by, request)
    table = fetch(frame)
    by.settle(table)
    where = places.placed(by, table)
    usable = np.nan_to_num(floats(table["ok"])) > 0
    size = len(where.keys)
    count = np.bincount(where.groups[usable], minlength=size)
    columns = [_array(table[role])[usable] for role in request.inputs]
    # In the order of their values, for engines return rows in any order.
    order = np.lexsort((*reversed(columns), where.groups[usable]))
    ends = np.cumsum(count)
    value, variance, failed = np.full(size, np.nan), np.full(size, np.nan), None
    with progress("drawing rows anew", size) as advance:
        for i, key in enumerate(where.keys):
            own = [column[order[ends[i] - count[i] : ends[i]]] for column in columns]
            try:
                value[i], variance[i] = _drawn(own, how, zlib.crc32(reading(key_of(key)).encode("utf-8", "replace")))
            except _FailedError as error:
                failed = failed or error
            except _GrowsError as error:
                problem = "grows with the number of rows, as counts and sums do, so that groups of any size differ"
                remedy = "Use one that is about a typical row: a mean, a share, a quantile."
                raise InputError(f"statistic {shorten(request.name)}", problem, remedy) from error
            advance(1)
    if failed is not None and not np.isfinite(value).any():
        problem = f"has a value in no group ({first_line(failed)})"
        raise NoGroupsError(f"statistic {shorten(request.name)}", problem, "Try it on the arrays of one group.")
    gone = {places.MISSING_VALUE: int(usable.size - usable.sum())}
    n = count.astype(np.float64)
    return Grouped(
        where.keys, Moments(n[:, None, None], value[:, None, None], (n * variance)[:, None, None, None]), gone
    )


class _FailedError(Exception):
    """The user's statistic raised something."""


class _GrowsError(Exception):
    """The user's statistic is twice as large where every row is there twice."""


def _array(column: Column) -> npt.NDArray[Any]:
    """A fetched column as numbers, or as text."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "iufb":
        return floats(column)
    values = plain_list(column)
    if any(isinstance(one, str) for one in values):
        return np.array(["" if one is None else str(one) for one in values])
    return floats(values)


def _drawn(columns: Sequence[npt.NDArray[Any]], how: Resampling, group: int) -> tuple[float, float]:
    """The statistic of some rows, and the variance of the statistic of rows drawn anew."""
    rows = columns[0].size
    if not rows:
        return np.nan, np.nan
    once = np.ones(rows, dtype=np.int64)
    value = _value(columns, once, how)
    if not np.isfinite(value):
        return np.nan, np.nan
    if value and np.isclose(_value(columns, 2 * once, how), 2 * value, rtol=1e-9, atol=0.0):
        raise _GrowsError
    random = np.random.default_rng([how.seed, group])
    draws: FloatArray = np.full(how.draws, np.nan)
    for i in range(how.draws):
        times = random.poisson(1.0, rows)
        try:
            draws[i] = _value(columns, times, how) if times.any() else np.nan
        except _FailedError:  # a draw without any positives, say
            continue
    known = draws[np.isfinite(draws)]
    if known.size < max((1 - _FAILED) * how.draws, 2):
        return value, np.nan
    return value, float(known.var(ddof=1))


def _value(columns: Sequence[npt.NDArray[Any]], times: npt.NDArray[np.int64], how: Resampling) -> float:
    """The statistic where each row counts so many times."""
    try:
        if how.weighted:
            kept = times > 0  # a row of weight zero may still change a statistic that looks at distinct values
            return float(how.statistic(*(c[kept] for c in columns), sample_weight=times[kept].astype(np.float64)))
        return float(how.statistic(*(np.repeat(column, times) for column in columns)))
    except Exception as error:
        raise _FailedError(first_line(error)) from error
