"""Arrays, Series and frames as they are typed in a notebook: the columns of one table, aligned by their index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from faultlines.engines.frames import ordered_levels
from faultlines.errors import InputError, shorten, shorten_text, to_install

_LIBRARIES = ("pandas", "pyarrow", "polars")


class NamedColumn(NamedTuple):
    """One column that was given: by which parameter, under which name, and its values."""

    parameter: str
    name: str
    values: Any


def read_columns(parameter: str, data: Any, name: str) -> list[NamedColumn]:
    """The columns of an array, a Series, a frame, or a dict of such.

    Args:
        parameter: The parameter, for messages.
        data: What was given.
        name: What a column without a name of its own is called; several are numbered.
    """
    import narwhals as nw

    if type(data).__name__ == "Categorical":  # of pandas, as pd.cut makes them of arrays
        data = import_module("pandas").Series(data)
    if isinstance(data, Mapping):
        return [NamedColumn(parameter, str(key), _read_single(parameter, value)) for key, value in data.items()]
    try:
        frame = nw.from_native(data, eager_only=True, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        problem = f"has columns of the same name ({shorten_text(' '.join(str(error).split()))})"
        raise InputError.duplicate(parameter, problem, "Give each column a name of its own.") from error
    if isinstance(frame, nw.DataFrame):
        return [NamedColumn(parameter, str(series.name), series) for series in frame.iter_columns()]
    if isinstance(frame, nw.Series):
        return [NamedColumn(parameter, name if frame.name in {None, ""} else str(frame.name), frame)]
    values = _to_array(parameter, data)
    if values.ndim == 1:
        return [NamedColumn(parameter, name, values)]
    return [NamedColumn(parameter, f"{name}_{i}", values[:, i]) for i in range(values.shape[1])]


def _read_single(parameter: str, data: Any) -> Any:
    columns = read_columns(parameter, data, parameter)
    if isinstance(data, Mapping) or len(columns) != 1:
        raise InputError.duplicate(parameter, "has several columns under one name", "Give one column for each name.")
    return columns[0].values


def read_column(parameter: str, data: Any) -> NamedColumn:
    """A single column under the name of its parameter."""
    columns = read_columns(parameter, data, parameter)
    if len(columns) == 2 and parameter == "score":
        raise InputError.mismatch("score", "has two columns", "Give the scores of the positive class: score[:, 1].")
    if len(columns) != 1:
        raise InputError.mismatch(parameter, f"has {len(columns)} columns", "Give one value for each row.")
    return columns[0]._replace(name=parameter)


def _to_array(parameter: str, data: Any) -> Any:
    try:
        values = np.asarray(data)
        if values.dtype.kind == "U" and isinstance(data, list | tuple) and not all(isinstance(v, str) for v in data):
            values = np.asarray(data, dtype=object)  # NumPy would write 1.0 beside "1" as other text
    except ValueError:
        values = np.asarray(None)
    if values.ndim not in (1, 2):
        raise InputError.wrong_type(
            parameter, "is not an array, a Series or a frame", "Give one value for each row.", data
        )
    return values


def build_table(columns: Sequence[NamedColumn]) -> Any:
    """A frame of columns that belong to the same rows, those with an index in the order of the first one's.

    Raises:
        InputError: If they have different lengths or an index of other rows, or two have the same name.
    """
    import narwhals as nw

    for i, column in enumerate(columns):
        if any(column.name == other.name for other in columns[:i]):
            remedy = "Give each column a name of its own."
            raise InputError.duplicate(
                column.parameter, "is there twice", remedy, place=f"column {shorten(column.name)}"
            )
        if len(column.values) != len(columns[0].values):
            problem = f"has {len(column.values):,} values, but {columns[0].parameter} has {len(columns[0].values):,}"
            raise InputError.mismatch(column.parameter, problem, "Give one value for each row.")
    library: Any = next((name for name in _LIBRARIES if find_spec(name)), None)
    if library is None:
        raise InputError.not_installed("arrays", f"need {' or '.join(_LIBRARIES)}", to_install("frames"))
    aligned = _align(columns)
    values = {column.name: _to_plain(column.values) for column in aligned}
    orders = {column.name: levels for column in aligned if (levels := _levels(column.values))}
    try:
        frame = nw.from_dict(values, backend=library)
        if library != "pyarrow":  # which has no such cast
            frame = frame.with_columns(nw.col(name).cast(nw.Enum(levels)) for name, levels in orders.items())
        return frame.to_native()
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"cannot be put into one table ({shorten(str(error))})"
        raise InputError.wrong_type("arrays", problem, "Give each column values of one type.") from error


def _align(columns: Sequence[NamedColumn]) -> list[NamedColumn]:
    """The same with every index in the order of the first."""
    indexes = {i: index for i, column in enumerate(columns) if (index := _index_of(column.values)) is not None}
    if not indexes:
        return list(columns)
    reference, first = next(iter(indexes.items()))
    aligned = list(columns)
    for i, index in indexes.items():
        if first.equals(index):
            continue
        column, other = columns[i], columns[reference].parameter
        if not (first.is_unique and index.is_unique and first.isin(index).all()):
            raise InputError.mismatch(
                column.parameter,
                f"has another index than {other}, so that rows cannot be matched",
                "Give both the same index, or match them by place: reset_index(drop=True).",
            )
        if bare := next((columns[place] for place in range(len(columns)) if place not in indexes), None):
            raise InputError.mismatch(
                bare.parameter,
                f"has no index, and those of {other} and {column.parameter} are in different orders",
                "Give it the index of its rows, as in pd.Series(…, index=…), or put all into one order.",
            )
        aligned[i] = column._replace(values=_reorder(column.values, first))
    return aligned


def _levels(values: Any) -> tuple[str, ...]:
    """The levels of an ordered category of text, in their order; none of other columns."""
    import narwhals as nw

    is_series = isinstance(values, nw.Series)
    return ordered_levels(values.alias("v").to_frame(), "v") if is_series else ()


def _index_of(values: Any) -> Any:
    """The index of a pandas column; None where there is none."""
    import narwhals as nw

    return values.to_native().index if isinstance(values, nw.Series) and values.implementation.is_pandas() else None


def _reorder(values: Any, index: Any) -> Any:
    import narwhals as nw

    return nw.from_native(values.to_native().reindex(index), series_only=True)


def _to_plain(values: Any) -> Any:
    """A column as an array of numbers, or a list in which what is missing is None."""
    import narwhals as nw

    if isinstance(values, np.ndarray):
        if values.dtype.kind != "O":
            return values
        values = values.tolist()
        return [None if value is None or value != value else value for value in values]  # noqa: PLR0124
    if values.dtype.is_numeric():
        return (
            values.cast(nw.Float64).to_numpy() if values.null_count() or values.dtype.is_float() else values.to_numpy()
        )
    return [None if null else value for value, null in zip(values.to_list(), values.is_null().to_list(), strict=True)]
