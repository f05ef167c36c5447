"""What a query returns, brought here by the engine's own way: few rows, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.sources import duck

if TYPE_CHECKING:
    import narwhals as nw
    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]
    Column = npt.NDArray[Any] | list[Any]


def fetch(frame: nw.LazyFrame[Any]) -> dict[str, Column]:
    """The columns of a query; DuckDB hands over arrays, Polars streams. Nulls are masked, or None in a list."""
    native, engine = frame.to_native(), frame.implementation
    if engine.is_duckdb():
        arrays: dict[str, Column] = duck.run(native.fetchnumpy)
        return arrays
    if engine.is_polars():
        made = native.collect(engine="streaming").get_columns()
        return {c.name: c.to_list() if c.null_count() or not c.dtype.is_numeric() else c.to_numpy() for c in made}
    if engine.is_pyspark() or engine.is_pyspark_connect():
        rows = native.collect()
        return {name: [row[i] for row in rows] for i, name in enumerate(native.columns)}
    collected = frame.collect("pyarrow")
    return {name: collected.get_column(name).to_list() for name in collected.columns}


def floats(values: Column) -> FloatArray:
    """A fetched column as floats; null is NaN."""
    if isinstance(values, np.ma.MaskedArray):
        if values.dtype == object:
            return floats(
                [None if gone else v for v, gone in zip(values.data, np.ma.getmaskarray(values), strict=True)]
            )
        return np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.astype(np.float64)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def plain_list(values: Column) -> list[Any]:
    """A fetched column as Python values; null and NaN are None, days are dates."""
    codes, distinct = factorised(values)
    return [distinct[code] for code in codes.tolist()]


def factorised(values: Column) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """The place of each value among the distinct ones, and those as Python values; null and NaN are None."""
    if isinstance(values, np.ma.MaskedArray):
        gone = np.ma.getmaskarray(values)
        codes, distinct = factorised(values.data[~gone])
        if not gone.any():
            return codes, distinct
        all_codes = np.full(gone.size, len(distinct), dtype=np.int64)
        all_codes[~gone] = codes
        return (all_codes, [*distinct, None]) if None not in distinct else _merged(all_codes, distinct)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufbM":
        if values.dtype.kind == "M":
            values = values.astype("datetime64[D]")
        found, codes = np.unique(values, return_inverse=True)
        listed = [None if v is None or v != v else v for v in found.tolist()]  # noqa: PLR0124
        return codes.astype(np.int64).reshape(-1), listed
    places: dict[Any, int] = {}
    seen = places.setdefault
    listed_values = values.tolist() if isinstance(values, np.ndarray) else values
    if listed_values and isinstance(listed_values[0], float):
        listed_values = [None if v is None or v != v else v for v in listed_values]  # noqa: PLR0124
    codes = np.fromiter((seen(value, len(places)) for value in listed_values), np.int64, len(listed_values))
    return codes, list(places)


def _merged(codes: npt.NDArray[np.int64], distinct: list[Any]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Nulls and NaN under one code."""
    return np.where(codes == len(distinct), distinct.index(None), codes), distinct
