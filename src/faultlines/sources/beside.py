"""A small table of whole numbers in the engine that holds some rows, to be joined to them there."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import narwhals as nw
    import numpy.typing as npt


def beside(frame: nw.LazyFrame[Any], columns: Mapping[str, npt.NDArray[np.int64]]) -> nw.LazyFrame[Any]:
    """Columns of whole numbers as a table that can be joined to a frame.

    Args:
        frame: The rows it shall stand beside.
        columns: The numbers, by names of our own.
    """
    import narwhals as nw

    native, engine = frame.to_native(), frame.implementation
    made: Any
    if engine.is_duckdb():
        faultlines_table = {name: np.ascontiguousarray(values, dtype=np.int64) for name, values in columns.items()}
        made = native.query("faultlines_rows", "SELECT * FROM faultlines_table")  # on the connection of the rows
        del faultlines_table
    elif engine.is_polars():
        made = import_module("polars").LazyFrame(dict(columns))
    elif engine.is_pyspark() or engine.is_pyspark_connect():
        rows = list(zip(*(values.tolist() for values in columns.values()), strict=True))
        made = native.sparkSession.createDataFrame(rows, ", ".join(f"{name} bigint" for name in columns))
    else:
        made = import_module("ibis").memtable({name: values.tolist() for name, values in columns.items()})
    table: nw.LazyFrame[Any] = nw.from_native(made).lazy()
    return table
