"""Arrays, Series and frames as they are typed in a notebook: the columns of one table, aligned by their index."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.errors import InputError, shorten, shorten_text, to_install

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

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
    try:
        found = nw.from_native(given, eager_only=True, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        problem = f"has columns of the same name ({shorten_text(' '.join(str(error).split()))})"
        raise InputError(parameter, problem, "Give each column a name of its own.") from error
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
    indexes = {i: index for i, one in enumerate(columns) if (index := _index(one.values)) is not None}
    if not indexes:
        return list(columns)
    whose, first = next(iter(indexes.items()))
    made = list(columns)
    for i, index in indexes.items():
        if first.equals(index):
            continue
        one, other = columns[i], columns[whose].parameter
        if not (first.is_unique and index.is_unique and first.isin(index).all()):
            raise InputError(
                one.parameter,
                f"has another index than {other}, so that rows cannot be matched",
                "Give both the same index, or match them by place: reset_index(drop=True).",
            )
        if bare := next((columns[place] for place in range(len(columns)) if place not in indexes), None):
            raise InputError(
                bare.parameter,
                f"has no index, and those of {other} and {one.parameter} are in different orders",
                "Give it the index of its rows, as in pd.Series(…, index=…), or put all into one order.",
            )
        made[i] = one._replace(values=_reordered(one.values, first))
    return made


def _index(values: Any) -> Any:
    """The index of a pandas column; None where there is none."""
    import narwhals as nw

    return values.to_native().index if isinstance(values, nw.Series) and values.implementation.is_pandas() else None


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


def holds(table: Any, column: str, label: Hashable) -> bool:
    """Whether a label, or what reads like it, is among the values of a column, if there is such a column."""
    import narwhals as nw

    if column not in nw.from_native(table, eager_only=True).columns:
        return False
    return any(value == label or str(value) == str(label) for value in distinct(table, column))


def parts_of(table: Any, columns: Sequence[str]) -> list[tuple[tuple[Any, ...], Any]]:
    """The rows of such a table with the same values in some columns, for each combination there is; None is missing."""
    import narwhals as nw

    frame = nw.from_native(table, eager_only=True)
    places: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(frame.select(*columns).iter_rows()):
        key = tuple(None if value is None or value != value else value for value in row)  # noqa: PLR0124
        places.setdefault(key, []).append(i)
    return [(key, frame[places[key]].to_native()) for key in sorted(places, key=lambda key: tuple(map(str, key)))]
