"""A query that is read several times and computed once."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from faultlines.sources import duck
from faultlines.sources.columns import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import narwhals as nw


@contextmanager
def kept(frame: nw.LazyFrame[Any]) -> Iterator[nw.LazyFrame[Any]]:
    """The rows of a query as a table that lasts for the block, where the engine keeps it best.

    DuckDB has it as a temporary table on the connection the rows are on, Spark in its cache, Polars in memory.
    """
    import narwhals as nw

    native, engine = frame.to_native(), frame.implementation
    if engine.is_duckdb():
        name = f"{OURS}{secrets.token_hex(8)}"
        duck.run(lambda: native.query("asked", f"CREATE TEMPORARY TABLE {name} AS SELECT * FROM asked"))
        try:
            yield nw.from_native(native.query("asked", f"SELECT * FROM {name}")).lazy()
        except KeyboardInterrupt:
            raise  # the connection may be busy still
        except BaseException:
            native.query("asked", f"DROP TABLE {name}")
            raise
        else:
            native.query("asked", f"DROP TABLE {name}")
    elif engine.is_polars():
        yield nw.from_native(native.collect(engine="streaming")).lazy()
    elif engine.is_pyspark() or engine.is_pyspark_connect():
        held = native.persist()
        try:
            yield nw.from_native(held)
        finally:
            held.unpersist()
    else:  # a warehouse behind Ibis may not let us keep tables: it computes the query again
        yield frame
