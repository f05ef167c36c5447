"""Spark, in one process, on a cluster, or through Spark Connect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.engines.protocol import HASH_DIGITS, PREFIX, VALUE, Column, Engine, Selection
from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    import narwhals as nw


class Spark(Engine):
    """Spark frames."""

    error_modules = frozenset({"pyspark", "py4j"})

    def owns(self, implementation: nw.Implementation) -> bool:
        """Spark and Spark Connect."""
        return implementation.is_pyspark() or implementation.is_pyspark_connect()

    def select(self, native: Any, selections: Sequence[Selection], width: int) -> Any:
        """By place, on the way in and out: Spark cannot distinguish names that differ in case only."""
        functions = _functions()
        columns = []
        for selection in selections:
            column = functions.col(f"{PREFIX}{selection.place}")
            if selection.zone is not None:  # Spark shows every time in the zone of the session
                column = functions.date_format(column, "yyyy-MM-dd HH:mm:ss.SSSSSS")
            columns.append(column)
        numbered = native.toDF(*(f"{PREFIX}{place}" for place in range(width)))
        return numbered.select(*columns).toDF(*(selection.name for selection in selections))

    def type_names(self, native: Any) -> list[str]:
        """As Spark writes them."""
        return [field.dataType.simpleString() for field in native.schema.fields]

    def fetch(self, native: Any) -> dict[str, Column]:
        """Lists of the cells of collected rows."""
        rows = native.collect()
        return {name: [row[i] for row in rows] for i, name in enumerate(native.columns)}

    @contextmanager
    def materialize(self, native: Any) -> Iterator[Any]:
        """In Spark's cache."""
        cached = native.persist()
        try:
            yield cached
        finally:
            cached.unpersist()

    def create_table(self, native: Any, columns: Mapping[str, IntArray]) -> Any:
        """Rows sent to the session."""
        rows = list(zip(*(values.tolist() for values in columns.values()), strict=True))
        return native.sparkSession.createDataFrame(rows, ", ".join(f"{name} bigint" for name in columns))

    def join_values(
        self, native: Any, marks: Mapping[str, list[str]], values: FloatArray, column: str, *, integer: bool
    ) -> Any:
        """By a left join."""
        numbers = [None if np.isnan(value) else float(value) for value in values]
        fields = ", ".join([*(f"{name} string" for name in marks), f"{VALUE} double"])
        groups = native.sparkSession.createDataFrame(list(zip(*marks.values(), numbers, strict=True)), fields)
        joined = native.join(groups, on=list(marks), how="left")
        return joined.withColumn(column, _functions().col(VALUE).cast("bigint" if integer else "double")).drop(VALUE)

    def hash_text(self, native: Any, column: str) -> Any:
        """Spark's own MD5."""
        return native.withColumn(column, _functions().md5(_functions().col(column)))

    def parse_hash(self, native: Any, column: str) -> Any:
        """As a number in base 16."""
        functions = _functions()
        digits = functions.substring(functions.col(column), 1, HASH_DIGITS)
        return native.withColumn(column, functions.conv(digits, 16, 10).cast("bigint"))

    def number_rows(self, native: Any, name: str) -> Any:
        """Distinct, but not without gaps: rows have no order."""
        return native.withColumn(name, _functions().monotonically_increasing_id() + 1)


def _functions() -> Any:
    return import_module("pyspark.sql.functions")
