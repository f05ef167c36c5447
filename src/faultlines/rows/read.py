"""From rows to the moments of several requests, in as few scans as can be; or to the SQL that would be run."""

from __future__ import annotations

import math
import operator
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from faultlines.engines.frames import ColumnUse, Rows, count_values, engine_of, fetch, first_values, scan
from faultlines.engines.protocol import Column, factorize, to_floats, to_list
from faultlines.errors import Argument, InputError, NoGroupsError, first_line, shorten, to_numbers
from faultlines.estimates.labels import key_of, reading
from faultlines.progress import progress, working
from faultlines.rows import keys as places
from faultlines.rows.inputs import clean_input, is_label, some_values
from faultlines.rows.keys import Bins, By, Keys, finite, key_value
from faultlines.rows.query import Query
from faultlines.rows.ranks import check_units, count_rows, prepare_inputs, rank_scores, sum_request
from faultlines.rows.request import Aggregated, Grouped, Input, Moments, RepeatedColumn, Request, Resampling, Split
from faultlines.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import narwhals as nw


class Read(NamedTuple):
    """For every request, groups and moments of each part of the rows; and the groups as other rows can have them."""

    grouped: list[list[Grouped]]
    by: tuple[str | Bins, ...]


def checked_by(by: By) -> tuple[str | Bins, ...]:
    """Attributes as they can be used."""
    attributes = (by,) if isinstance(by, str | Bins) else tuple(by) if isinstance(by, list | tuple) else ()
    if not attributes or not all(isinstance(a, Bins) or (isinstance(a, str) and a) for a in attributes):
        raise InputError.empty("by", "names no column", "Name the columns that hold the groups, or fl.bins(...).", by)
    names = attribute_names(attributes)
    if len(set(names)) < len(names):
        raise InputError.duplicate("by", "names a column twice", "Name each column once.", list(names))
    return attributes


def attribute_names(by: Sequence[str | Bins]) -> tuple[str, ...]:
    """The columns behind attributes."""
    return tuple(a.column if isinstance(a, Bins) else a for a in by)


def read(
    data: object, by: tuple[str | Bins, ...], requests: Sequence[Request], split: Split | None, *, separate: int = 0
) -> Read:
    """Moments of several requests by group.

    Args:
        data: A frame, or path, paths or glob of files.
        by: What the groups are; see `checked_by`.
        requests: What is asked. Those with the same column of variants and the same unit share one scan.
        split: How rows are divided into parts, if they are.
        separate: So many of the first attributes name experiments: a unit may be in several of them.

    Raises:
        InputError: If the rows cannot be read or do not hold what is asked.
    """
    for request in requests:
        _check_roles(attribute_names(by), request)
    with scan(data, list_uses(by, requests, split)) as rows, working("reading rows"):
        keys = Keys(rows, by, separate=separate)
        try:
            grouped, resolved = _group(rows, keys, requests, split), keys.resolve()
        except InputError as error:
            if error.parameter == "unit" and (column := _find_time(data, rows, by)) is not None:
                raise error.changed(remedy=_use_days(column), settings={}) from error
            raise
    _check_times(attribute_names(by), grouped)
    if any(_takes_rows_as_independent(request) for request in requests):
        used = {use.column for use in list_uses(by, requests, split)}
        repeated = find_repeated_column(data, rows, used) if rows.is_stored else None
        for place, request in enumerate(requests):
            if repeated is not None and _takes_rows_as_independent(request):
                grouped[place] = [replace(part, repeated=repeated) for part in grouped[place]]
    return Read(grouped, resolved)


_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
_MOST_TIMES = 1_000  # groups that are points in time, beyond which nobody means each to be one


def _use_days(column: str) -> str:
    query = f"select *, \"{column}\"::date as day from 'FILE'"
    return f"Make days of {column!r} by a query (--sql, duckdb.sql), and group by day: {query}."


def _find_time(data: object, rows: Rows, by: Sequence[str | Bins]) -> str | None:
    """The first attribute that holds points in time, by its type or, in csv, by what it reads like."""
    plain = [attribute for attribute in by if isinstance(attribute, str)]
    typed = [column for column in plain if rows.keys[column] in rows.times]
    if typed or not rows.from_text or not plain:
        return next(iter(typed), None)
    first = first_values(data, plain, 1)
    return next((column for column in plain if any(_TIME.match(str(v)) for v in to_list(first[column]))), None)


def _check_times(names: Sequence[str], grouped: Sequence[Sequence[Grouped]]) -> None:
    """Refuse groups of single seconds; days, which have no time, may be as many as there are."""
    keys = grouped[0][0].keys if grouped else ()
    for place, column in enumerate(names if len(keys) > _MOST_TIMES else ()):
        if not _TIME.match(str(key_of(keys[0])[place])):
            continue
        times = len({key_of(key)[place] for key in keys})
        if times > _MOST_TIMES:
            problem = f"holds {times:,} points in time, and each would be a group"
            raise InputError.unsupported("by", problem, _use_days(column), column)


def _check_roles(attributes: Sequence[str], request: Request) -> None:
    """Refuse groups that hold one variant, or one unit, each."""
    if request.arms is not None and request.arms.column in attributes:
        remedy = "Leave it out: variants are compared within every group."
        raise InputError.conflict("by", "names the column of variants", remedy, request.arms.column)
    if request.unit is not None and request.unit in attributes:
        remedy = "Leave it out: every unit would be a group of its own."
        raise InputError.conflict("by", "names the column of units", remedy, request.unit)


def _takes_rows_as_independent(request: Request) -> bool:
    return request.unit is None and request.aggregated is None


_UNITS = (
    "user customer client person people patient student pupil member account subscriber visitor household employee "
    "applicant subject session prompt question query document conversation thread item"
)
_LOOKS_LIKE_UNITS = re.compile(rf"(.*[_\W])?(u|uu|gu)?id|.*[a-z]Id|({'|'.join(_UNITS.split())})s?", re.IGNORECASE)
_LOOKED_AT = 8_192  # of the first rows
_COUNTED = 1_000_000  # of the first rows, in which values are counted that few of those looked at share
_FEWEST = 30  # distinct values from which on a column is one of units and not an attribute
_FEWEST_SORTED = 5  # the same where the first rows are sorted by it, and hold but some of its values
_EACH = 1.05  # rows that each of them has on average, at the least


def find_repeated_column(data: object, rows: Rows, used: set[str]) -> RepeatedColumn | None:
    """The column that looks most like one of units with several rows each, by its name and the first rows.

    Args:
        data: The rows as they were given.
        rows: The same, opened.
        used: The columns that have a part in the analysis.
    """
    texts = [name for name in rows.present if isinstance(name, str)]  # of pandas, names may be numbers
    present = [name for name in texts if name not in used and _LOOKS_LIKE_UNITS.fullmatch(name)]
    names = [name for name in present if rows.present.count(name) == 1]
    found, unsure = [], []
    for name, values in (first_values(data, names, _LOOKED_AT) if names else {}).items():
        words = [str(value) for value in to_list(values) if value is not None]
        distinct, runs = len(set(words)), 1 + sum(map(operator.ne, words, words[1:]))
        is_cut = len(words) == _LOOKED_AT and runs == distinct
        if distinct >= (_FEWEST_SORTED if is_cut else _FEWEST):
            if len(words) > _EACH * distinct:
                found.append(RepeatedColumn(name, len(words) / distinct))
            elif len(words) > distinct:  # rows of a unit may stand far apart, in the order of time or in none
                unsure.append(name)
    for name, (all_of, different) in (count_values(data, unsure, _COUNTED) if unsure else {}).items():
        if all_of > _EACH * different:
            found.append(RepeatedColumn(name, all_of / different))
    return max(found, key=lambda each: each.rows_each, default=None)


def _group(rows: Rows, keys: Keys, requests: Sequence[Request], split: Split | None) -> list[list[Grouped]]:
    grouped: dict[int, list[Grouped]] = {}
    shared_scans: dict[tuple[str | None, str | None], list[int]] = {}
    for i, request in enumerate(requests):
        if request.aggregated is not None:
            grouped[i] = [_pool_aggregates(rows, keys, request, request.aggregated)]
        elif request.ranking is not None:
            grouped[i] = rank_scores(rows, keys, request, split)
        elif request.resampling is not None:
            grouped[i] = [resample(rows, keys, request, request.resampling)]
        else:
            shared_scans.setdefault((request.arms.column if request.arms else None, request.unit), []).append(i)
    for indices in shared_scans.values():
        results = _run_query(rows, keys, [requests[i] for i in indices], split)
        grouped |= dict(zip(indices, results, strict=True))
    return [grouped[i] for i in range(len(requests))]


def _run_query(rows: Rows, keys: Keys, requests: Sequence[Request], split: Split | None) -> list[list[Grouped]]:
    """The groups of several requests; empty text is no key.

    To look at every row for it takes a quarter of the time of a scan of Parquet files, and it is rare: rows are read
    again where it turns up among the groups.
    """
    keys.keeps_empty, keys.has_empty = rows.is_stored, False
    try:
        results = Query(rows, keys, requests, split).run()
    finally:
        keys.keeps_empty = False
    return Query(rows, keys, requests, split).run() if keys.has_empty and rows.is_stored else results


def list_uses(by: tuple[str | Bins, ...], requests: Sequence[Request], split: Split | None) -> list[ColumnUse]:
    """Every column that is read, with what it is read as."""
    uses = []
    for i, attribute in enumerate(by):
        parameter = f"by[{i}]" if len(by) > 1 else "by"
        if isinstance(attribute, Bins):
            uses.append(ColumnUse(parameter, attribute.column, "number"))
        else:
            uses.append(ColumnUse(parameter, attribute))
    for request in requests:
        uses += _uses_of_request(request)
        if split is not None:
            _check_split(split, request)
    if split is not None:
        uses.append(ColumnUse("unit", split.unit))
    return uses


def _uses_of_request(request: Request) -> list[ColumnUse]:
    uses = []
    for role, source in request.inputs.items():
        parameter = source.parameter or role
        if source.kind == "rows":
            continue
        if is_label(source):
            uses.append(ColumnUse(parameter, source.column))
        else:
            uses.append(ColumnUse(parameter, source.column, "binary" if source.kind == "binary" else "number"))
    if request.arms:
        uses.append(ColumnUse("variant", request.arms.column))
    if request.unit:
        uses.append(ColumnUse("unit", request.unit))
    if request.aggregated:
        uses += [ColumnUse(name, column, "number") for name, column in request.aggregated.columns().items()]
    return uses


def _check_split(split: Split, request: Request) -> None:
    if request.resampling is not None:
        problem = "splits rows, which is not done with a statistic that is resampled"
        raise InputError.unsupported("unit", problem, "Leave it out: estimates are split then.", split.unit)
    if request.aggregated is not None:
        raise InputError.unsupported(
            "unit", "needs rows, not aggregates", "Leave it out, or give the rows.", split.unit
        )
    if request.unit is not None and split.unit != request.unit:
        raise InputError.conflict(
            "unit",
            f"the metric has the unit {shorten(request.unit)}",
            "Split by the randomised unit: leave unit out of the guarantee.",
            split.unit,
            form="clause",
        )


def median_of(data: object, column: str) -> float:
    """The median of a numeric column over all rows that have a value.

    Args:
        data: A frame, or path, paths or glob of files.
        column: The column, named by the parameter `score`.

    Raises:
        InputError: If the rows cannot be read, or the column has no numbers.
    """
    import narwhals as nw

    source = Input(column, parameter="score")
    with scan(data, [ColumnUse("score", column, "number")]) as rows, working("reading rows"):
        value = clean_input(rows, source, "score").value.alias("v")
        median = nw.col("v").quantile(0.5, interpolation="linear").alias("median")
        number = float(to_floats(fetch(rows.frame.select(value).select(median))["median"])[0])
    if not np.isfinite(number):
        raise InputError.invalid_data(Argument("score", column), "holds no numbers", "Name a column of scores.")
    return number


# ------------------------------------------------------------------- what columns hold, before anything is measured


_ROUNDED = 0.02  # how far probabilities that were written with two digits may be from 1 together
_FETCHED = 1_000  # distinct values that are fetched: more are "many" to everyone who asks


class ColumnSummary(NamedTuple):
    """What a column holds.

    Attributes:
        is_number: Whether all of its values are numbers, in csv files as text that reads so.
        values: Its values without missing ones, 1,000 at most.
        low: The smallest finite number; NaN where there is none.
        high: The largest.
    """

    is_number: bool
    values: frozenset[Any]
    low: float
    high: float


def summarize_columns(data: object, columns: Mapping[str, str]) -> dict[str, ColumnSummary]:
    """What some columns of rows hold.

    Args:
        data: A frame, or path, paths or glob of files.
        columns: Column → the parameter that named it.

    Returns:
        Column → what it holds.
    """
    with scan(data, [ColumnUse(parameter, column) for column, parameter in columns.items()]) as rows:
        return {column: _summarize(rows, rows.keys[column]) for column in columns}


def _summarize(rows: Rows, name: str) -> ColumnSummary:
    import narwhals as nw

    dtype = rows.frame.collect_schema()[name]
    if dtype.is_nested():
        return ColumnSummary(False, frozenset(), math.nan, math.nan)
    if dtype.is_numeric():
        value = finite(name, dtype)
        ends = rows.frame.select(value.min().alias("low"), value.max().alias("high"))
        low, high = (float(to_floats(column)[0]) for column in fetch(ends).values())
        distinct = rows.frame.select(value.alias("v")).unique().head(_FETCHED + 1)
        values = {number for number in to_floats(fetch(distinct)["v"]).tolist() if not math.isnan(number)}
        return ColumnSummary(True, frozenset(values), low, high)
    column = nw.col(name) if dtype in (nw.String, nw.Boolean) else nw.col(name).cast(nw.String)
    distinct = rows.frame.select(column.alias("v")).unique().head(_FETCHED + 1)
    values = {value for value in factorize(fetch(distinct)["v"])[1] if value is not None}
    numbers = [_to_number(str(value)) for value in values] if rows.from_text else [None]
    finite_numbers = [number for number in numbers if number is not None and math.isfinite(number)]
    if numbers and len(finite_numbers) == len(numbers):
        return ColumnSummary(True, frozenset(finite_numbers), min(finite_numbers), max(finite_numbers))
    return ColumnSummary(False, frozenset(values), math.nan, math.nan)


def sum_to_one(data: object, columns: Mapping[str, str]) -> bool:
    """Whether some columns of numbers add up to 1 in every row that has all of them, but for rounding.

    Args:
        data: A frame, or path, paths or glob of files.
        columns: Column → the parameter that named it.
    """
    with scan(data, [ColumnUse(parameter, column, "number") for column, parameter in columns.items()]) as rows:
        schema = rows.frame.collect_schema()
        total: Any = 0.0
        for column in columns:
            total = total + finite(rows.numbers[column], schema[rows.numbers[column]])
        off = fetch(rows.frame.select((total - 1.0).abs().max().alias("off")))["off"]
        return float(to_floats(off)[0]) < _ROUNDED


def _to_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


# ---------------------------------------------------------------------------------------------------------------- SQL


_SQL_DATA = 'Give an Ibis table, ibis.table(schema, name="visits") without a connection, or a DuckDB relation.'


def sql(data: object, by: By, metric: Request, *, dialect: str | None = None) -> str:
    """The SQL that `fl.measure` and `fl.cluster` run for a metric: one group-by, of which only the groups come back.

    Args:
        data: An Ibis table, connected to a database or not (``ibis.table(schema, name=…)``); or a DuckDB relation.
        by: The column, or the columns, whose combinations are the groups; `fl.bins(...)` cuts a numeric one.
        metric: What to measure.
        dialect: The SQL of another database than that of the table, as Ibis calls it: ``"postgres"``, ``"bigquery"``,
            ``"snowflake"``, … Default: that of the table, or DuckDB's.

    Returns:
        The query as text. An area under the curve takes two, with a semicolon between.

    Raises:
        InputError: If there is no SQL for such data or such a metric, or no such dialect.

    Example:
        >>> import faultlines as fl, ibis
        >>> visits = ibis.table({"country": "string", "bought": "boolean"}, name="visits")
        >>> print(fl.sql(visits, "country", fl.rate("bought"), dialect="postgres")[:6])
        SELECT
    """
    attributes = checked_by(by)
    if not hasattr(metric, "inputs") or not hasattr(metric, "variables"):
        raise InputError.wrong_type("metric", "is not a metric", 'Use for example fl.rate("converted").', metric)
    if metric.aggregated is not None:
        problem = "is read from aggregates: nothing is computed in the database"
        raise InputError.unsupported("metric", problem, "Give a metric of rows.", metric.name)
    if metric.resampling is not None:
        problem = "is a statistic of rows that are brought here: nothing but these is asked of the database"
        raise InputError.unsupported("metric", problem, "Give a metric that is made of sums.", metric.name)
    if any(source.cap is not None and source.cap.quantile is not None for source in metric.inputs.values()):
        problem = "is a quantile, which is looked up in the rows first"
        raise InputError.unsupported("cap", problem, "Give the value to cap at.", metric.name)
    for attribute in attributes:
        if isinstance(attribute, Bins) and attribute.quantiles is not None:
            problem = "quantiles are looked up in the rows first"
            raise InputError.unsupported(
                "bins",
                problem,
                "Cut by {width} or {edges}.",
                attribute.column,
                settings={"width": ..., "edges": ...},
                form="clause",
            )
    with scan(data, list_uses(attributes, [metric], None)) as rows:
        queries = _build_queries(rows, Keys(rows, attributes), metric)
        texts = [None if rows.is_stored else engine_of(query).to_sql(query.to_native(), dialect) for query in queries]
    if None in texts:
        raise InputError.unsupported("data", "is not queried by SQL that could be shown", _SQL_DATA, type(data))
    return ";\n\n".join(map(str, texts))


def _build_queries(rows: Rows, keys: Keys, metric: Request) -> list[nw.LazyFrame[Any]]:
    import narwhals as nw

    if metric.ranking is None:
        return [Query(rows, keys, [metric], None).build()]
    frame, checks = prepare_inputs(rows, keys, metric)
    largest = [nw.col(name).max().alias(name) for name in keys.fractions()]
    totals = frame.group_by(*keys.names).agg(*count_rows(checks), *largest)
    return [totals, sum_request(frame.filter(nw.col("ok")), keys.names, metric)]


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
            own_key = key_of(key)[by.separate :]  # a group has the draws that it has where its experiment is alone
            try:
                value[i], variance[i] = _bootstrap(
                    own_columns, how, zlib.crc32(reading(own_key).encode("utf-8", "replace")), of_unit
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
    """The statistic where each row counts as often as `times` says."""
    try:
        if how.weighted:
            drawn = times > 0  # a row of weight zero may still change a statistic that looks at distinct values
            return float(how.statistic(*(c[drawn] for c in columns), sample_weight=times[drawn].astype(np.float64)))
        return float(how.statistic(*(np.repeat(column, times) for column in columns)))
    except Exception as error:
        raise _FailedError(first_line(error)) from error


# ------------------------------------------------------------------------- tables of counts and moments instead of rows


def _pool_aggregates(rows: Rows, by: Keys, request: Request, columns: Aggregated) -> Grouped:
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
