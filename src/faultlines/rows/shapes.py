"""Skewness and kurtosis of variables, from the same group-by as their variances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import narwhals as nw

_LARGEST = 1e70  # engines stop where a fourth power leaves the range of doubles


def with_shapes(
    frame: nw.LazyFrame[Any], columns: list[str], keyed: list[str]
) -> tuple[nw.LazyFrame[Any], dict[str, Any]]:
    """A frame from which shapes can be aggregated, and the aggregates: s_… skewness, k_… kurtosis less 3.

    Args:
        frame: The variables.
        columns: Those whose shape is wanted.
        keyed: What the aggregates will be grouped by.
    """
    import narwhals as nw

    if not columns:
        return frame, {}
    if frame.implementation.is_ibis() or (frame.implementation.is_duckdb() and _cancels()):
        return _by_deviations(frame, columns, keyed)
    wanted: dict[str, Any] = {}
    for column in columns:
        value = nw.when(nw.col(column).abs() < _LARGEST).then(nw.col(column))
        wanted |= {f"s_{column}": value.skew(), f"k_{column}": value.kurtosis()}
    return frame, wanted


def _cancels() -> bool:
    """Whether DuckDB takes shapes from powers of the values as they are, as it did before 2.0.

    A mean that is large beside the spread cancels there: of values about a million, skewed by 2.2, it said 3,518.
    """
    import duckdb

    return int(duckdb.__version__.partition(".")[0]) < 2


def _by_deviations(
    frame: nw.LazyFrame[Any], columns: list[str], keyed: list[str]
) -> tuple[nw.LazyFrame[Any], dict[str, Any]]:
    """Powers of deviations from the mean of the group, in units of their spread: where there is nothing better."""
    import narwhals as nw

    value = {column: nw.when(nw.col(column).abs() < _LARGEST).then(nw.col(column)) for column in columns}
    frame = frame.with_columns(*((v - v.mean().over(*keyed)).alias(f"d_{c}") for c, v in value.items()))
    spread = {c: (nw.col(f"d_{c}") * nw.col(f"d_{c}")).mean().over(*keyed).sqrt() for c in columns}
    frame = frame.with_columns(*(nw.when(s > 0).then(nw.col(f"d_{c}") / s).alias(f"d_{c}") for c, s in spread.items()))
    wanted: dict[str, Any] = {}
    for column in columns:
        unit = nw.col(f"d_{column}")
        wanted |= {f"s_{column}": (unit * unit * unit).mean(), f"k_{column}": (unit * unit * unit * unit).mean() - 3}
    return frame, wanted
