"""Arrays, Series and frames as they are typed in a notebook: the columns of one table, aligned by their index."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.errors import InputError, shorten, to_install

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIBRARIES = ("pandas", "pyarrow", "polars")


class Given(NamedTuple):
    """One column that was given: by which parameter, under which name, and its values."""

    parameter: str
    name: str
    values: Any


def columns_of(parameter: str, given: Any, name: str) -> list[Given]:
    """The columns of an array, a Series, a frame, or a dict of such.

    Args:
        parameter: The parameter, for messages.
        given: What was given.
        name: What a column without a name of its own is called; several are numbered.
    """
    import narwhals as nw

    if isinstance(given, Mapping):
        return [Given(parameter, str(key), _single(parameter, value)) for key, value in given.items()]
    found = nw.from_native(given, eager_only=True, allow_series=True, pass_through=True)
    if isinstance(found, nw.DataFrame):
        return [Given(parameter, str(one.name), one) for one in found.iter_columns()]
    if isinstance(found, nw.Series):
        return [Given(parameter, name if found.name in {None, ""} else str(found.name), found)]
    values = _array(parameter, given)
    if values.ndim == 1:
        return [Given(parameter, name, values)]
    return [Given(parameter, f"{name}_{i}", values[:, i]) for i in range(values.shape[1])]


def _single(parameter: str, given: Any) -> Any:
    found = columns_of(parameter, given, parameter)
    if isinstance(given, Mapping) or len(found) != 1:
        raise InputError(parameter, "has several columns under one name", "Give one column for each name.")
    return found[0].values


def column_of(parameter: str, given: Any) -> Given:
    """A single column under the name of its parameter."""
    found = columns_of(parameter, given, parameter)
    if len(found) == 2 and parameter == "score":
        raise InputError("score", "has two columns", "Give the scores of the positive class: score[:, 1].")
    if len(found) != 1:
        raise InputError(parameter, f"has {len(found)} columns", "Give one value for each row.")
    return found[0]._replace(name=parameter)


def _array(parameter: str, given: Any) -> Any:
    try:
        values = np.asarray(given)
    except ValueError:
        values = np.asarray(None)
    if values.ndim not in (1, 2):
        raise InputError(
            f"{parameter}={shorten(given)}", "is not an array, a Series or a frame", "Give one value for each row."
        )
    return values


def table_of(columns: Sequence[Given]) -> Any:
    """A frame of columns that belong to the same rows, those with an index in the order of the first one's.

    Raises:
        InputError: If they have different lengths or an index of other rows, or two have the same name.
    """
    import narwhals as nw

    for i, one in enumerate(columns):
        if any(one.name == other.name for other in columns[:i]):
            remedy = "Give each column a name of its own."
            raise InputError(f"{one.parameter}: column {shorten(one.name)}", "is there twice", remedy)
        if len(one.values) != len(columns[0].values):
            problem = f"has {len(one.values):,} values, but {columns[0].parameter} has {len(columns[0].values):,}"
            raise InputError(one.parameter, problem, "Give one value for each row.")
    library: Any = next((name for name in _LIBRARIES if find_spec(name)), None)
    if library is None:
        raise InputError("arrays", f"need {' or '.join(_LIBRARIES)}", to_install("frames"))
    made = {one.name: _plain(one.values) for one in _aligned(columns)}
    try:
        return nw.from_dict(made, backend=library).to_native()
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"cannot be put into one table ({shorten(str(error))})"
        raise InputError("arrays", problem, "Give each column values of one type.") from error


def _aligned(columns: Sequence[Given]) -> list[Given]:
    """The same with every index in the order of the first."""
    import narwhals as nw

    first: Any = None
    made = []
    for one in columns:
        if not (isinstance(one.values, nw.Series) and one.values.implementation.is_pandas()):
            made.append(one)
            continue
        index = one.values.to_native().index
        if first is None:
            first, whose = index, one.parameter
        if not first.equals(index):
            if not (first.is_unique and index.is_unique and first.isin(index).all()):
                raise InputError(
                    one.parameter,
                    f"has another index than {whose}, so that rows cannot be matched",
                    "Give both the same index, or match them by place: reset_index(drop=True).",
                )
            made.append(one._replace(values=_reordered(one.values, first)))
        else:
            made.append(one)
    return made


def _reordered(values: Any, index: Any) -> Any:
    import narwhals as nw

    return nw.from_native(values.to_native().reindex(index), series_only=True)


def _plain(values: Any) -> Any:
    """A column as an array of numbers, or a list in which nothing is None."""
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


def distinct(table: Any, column: str) -> set[Any]:
    """The values a column of such a table takes, missing ones left out."""
    import narwhals as nw

    found = nw.from_native(table, eager_only=True).get_column(column).drop_nulls().unique().to_list()
    return {value for value in found if value == value}  # noqa: PLR0124


def parts_of(table: Any, columns: Sequence[str]) -> list[tuple[tuple[Any, ...], Any]]:
    """The rows of such a table with the same values in some columns, for each combination there is; None is missing."""
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True)
    made = []
    for key in sorted(set(frame.select(*columns).iter_rows()), key=lambda key: tuple(map(str, key))):
        here = [_equals(column, value) for column, value in zip(columns, key, strict=True)]
        made.append((key, frame.filter(*here).to_native()))
    return made


def _equals(column: str, value: Any) -> Any:
    import narwhals as nw

    return nw.col(column).is_null() if value is None else nw.col(column) == value
