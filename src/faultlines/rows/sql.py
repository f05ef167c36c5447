"""The SQL that rows in a database are asked, to be read before it is run, or run by someone else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from faultlines.errors import InputError, did_you_mean, first_line, shorten
from faultlines.rows.bins import Bins
from faultlines.rows.keys import Keys
from faultlines.rows.query import Query
from faultlines.rows.ranks import counts_of, placements, prepared
from faultlines.rows.read import checked_by, wanted_columns
from faultlines.sources.frames import scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import narwhals as nw

    from faultlines.rows.request import Request
    from faultlines.sources.frames import Rows

_REMEDY = 'Give an Ibis table, ibis.table(schema, name="visits") without a connection, or a DuckDB relation.'


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
        raise InputError(f"metric={shorten(metric)}", "is not a metric", 'Use for example fl.rate("converted").')
    if metric.aggregated is not None:
        problem = "is read from aggregates: nothing is computed in the database"
        raise InputError(f"metric={shorten(metric.name)}", problem, "Give a metric of rows.")
    if metric.resampling is not None:
        problem = "is a statistic of rows that are brought here: nothing but these is asked of the database"
        raise InputError(f"metric={shorten(metric.name)}", problem, "Give a metric that is made of sums.")
    for one in attributes:
        if isinstance(one, Bins) and one.quantiles is not None:
            problem = "quantiles are looked up in the rows first"
            raise InputError(f"bins({shorten(one.column)})", problem, "Cut by width= or edges=.")
    with scan(data, wanted_columns(attributes, [metric], None)) as rows:
        queries = _queries(rows, Keys(rows, attributes), metric)
        return ";\n\n".join(_text(query, data, dialect) for query in queries)


def _queries(rows: Rows, keys: Keys, metric: Request) -> list[nw.LazyFrame[Any]]:
    import narwhals as nw

    if metric.ranking is None:
        return [Query(rows, keys, [metric], None).asked()]
    frame, checks = prepared(rows, keys, metric)
    largest = [nw.col(name).max().alias(name) for name in keys.fractions()]
    totals = frame.group_by(*keys.names).agg(*counts_of(checks), *largest)
    return [totals, placements(frame.filter(nw.col("ok")), keys.names, metric.ranking, weighted="w" in metric.inputs)]


def _text(query: nw.LazyFrame[Any], data: object, dialect: str | None) -> str:
    """A query as the engine writes it."""
    if query.implementation.is_ibis():
        return _of_ibis(query.to_native(), dialect)
    if query.implementation.is_duckdb() and type(data).__name__ == "DuckDBPyRelation":
        if dialect not in {None, "duckdb"}:
            problem = "a DuckDB relation is written in DuckDB's SQL"
            raise InputError(f"dialect={shorten(dialect)}", problem, 'Give ibis.table(schema, name="visits").')
        return str(query.to_native().sql_query())
    raise InputError(f"data={type(data).__name__}", "is not queried by SQL that could be shown", _REMEDY)


def _of_ibis(table: Any, dialect: str | None) -> str:
    import ibis
    import ibis.backends.sql.compilers as known
    from ibis.common.exceptions import IbisError

    names = [name for name in dir(known) if hasattr(getattr(known, name), "compiler")]
    if dialect is not None and (not isinstance(dialect, str) or dialect not in names):
        raise InputError(
            f"dialect={shorten(dialect)}", "is not a dialect that Ibis writes", did_you_mean(dialect, names)
        )
    try:
        return str(ibis.to_sql(table, dialect=dialect))
    except (IbisError, NotImplementedError) as error:  # the latter of databases that have no NaN, such as MySQL
        problem = f"cannot be written ({first_line(error)})"
        raise InputError(f"dialect={shorten(dialect)}", problem, "Use another metric or database.") from error
