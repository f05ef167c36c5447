"""From rows to the moments of several requests, in as few scans as can be; or to the SQL that would be run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.engines.frames import ColumnUse, engine_of, fetch, scan
from faultlines.engines.protocol import to_floats
from faultlines.errors import Argument, InputError, shorten
from faultlines.progress import working
from faultlines.rows.aggregates import pool_aggregates
from faultlines.rows.inputs import clean_input, is_label
from faultlines.rows.keys import Bins, Keys
from faultlines.rows.query import Query
from faultlines.rows.ranks import count_rows, prepare_inputs, rank_scores, sum_placements
from faultlines.rows.request import Input
from faultlines.rows.resampling import resample

if TYPE_CHECKING:
    from collections.abc import Sequence

    import narwhals as nw

    from faultlines.engines.frames import Rows
    from faultlines.rows.request import Grouped, Request, Split


class Read(NamedTuple):
    """For every request, groups and moments of each part of the rows; and the groups as other rows can have them."""

    grouped: list[list[Grouped]]
    by: tuple[str | Bins, ...]


def checked_by(by: str | Bins | Sequence[str | Bins]) -> tuple[str | Bins, ...]:
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
    with scan(data, list_uses(by, requests, split)) as rows, working("reading rows"):
        keys = Keys(rows, by, separate=separate)
        return Read(_group(rows, keys, requests, split), keys.resolve())


def _group(rows: Rows, keys: Keys, requests: Sequence[Request], split: Split | None) -> list[list[Grouped]]:
    grouped: dict[int, list[Grouped]] = {}
    shared_scans: dict[tuple[str | None, str | None], list[int]] = {}
    for i, request in enumerate(requests):
        if request.aggregated is not None:
            grouped[i] = [pool_aggregates(rows, keys, request, request.aggregated)]
        elif request.ranking is not None:
            grouped[i] = rank_scores(rows, keys, request, split)
        elif request.resampling is not None:
            grouped[i] = [resample(rows, keys, request, request.resampling)]
        else:
            shared_scans.setdefault((request.arms.column if request.arms else None, request.unit), []).append(i)
    for places in shared_scans.values():
        results = Query(rows, keys, [requests[i] for i in places], split).run()
        grouped |= dict(zip(places, results, strict=True))
    return [grouped[i] for i in range(len(requests))]


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


# ---------------------------------------------------------------------------------------------------------------- SQL


_SQL_DATA = 'Give an Ibis table, ibis.table(schema, name="visits") without a connection, or a DuckDB relation.'


def sql(data: object, by: str | Bins | Sequence[str | Bins], metric: Request, *, dialect: str | None = None) -> str:
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
    return [
        totals,
        sum_placements(frame.filter(nw.col("ok")), keys.names, metric.ranking, weighted="w" in metric.inputs),
    ]
