"""What an engine must do for the rows it holds, and the columns that it hands over.

DuckDB (files, pandas and PyArrow too), Polars, Spark and Ibis each implement `Engine` in a file of their own. Shared
code asks `frames.engine_of` for the engine of a frame and never which one it is. To add an engine, write its file, name
it in `frames.ENGINES` and add a line to the test matrix.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    import narwhals as nw

Column = npt.NDArray[Any] | list[Any]

PREFIX = "__faultlines_"  # begins the names of columns and tables we add for a while
VALUE = f"{PREFIX}value"
HASH_DIGITS = 7  # hexadecimal digits of a hash that become a number
HASH_BITS = 4 * HASH_DIGITS  # of that number, so that its product with 31 bits fits into 64
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


class Selection(NamedTuple):
    """A column, the name it gets, and whether a time in it becomes text.

    Attributes:
        column: The name of the column.
        name: The name it gets.
        as_text: Whether a point in time becomes text, in one form on every engine.
        place: The place of the column in its frame; filled in by `frames.select_columns`.
        zone: Filled in likewise: ``"UTC"`` for a time with a zone that becomes text, ``""`` for one without, or None.
    """

    column: str
    name: str
    as_text: bool = False
    place: int = -1
    zone: str | None = None


class Engine(ABC):
    """What shared code needs of an engine; frames are the engine's own ("native") lazy ones, unless said otherwise."""

    # The top-level modules of the exceptions it raises.
    error_modules: ClassVar[frozenset[str]]
    # Whether a join of all rows with all draws is held in memory.
    buffers_joins: ClassVar[bool] = False
    # Whether sums of powers take much less time than variance, skewness and kurtosis.
    sums_powers_fast: ClassVar[bool] = False

    @abstractmethod
    def owns(self, implementation: nw.Implementation) -> bool:
        """Whether frames of this implementation are queried by this engine."""

    @property
    def has_exact_shapes(self) -> bool:
        """Whether its skewness and kurtosis are right where the mean is large beside the spread."""
        return True

    @abstractmethod
    def select(self, native: Any, selections: Sequence[Selection], width: int) -> Any:
        """Take columns of a frame of `width` columns under new names, so that no name means anything but itself."""

    @abstractmethod
    def type_names(self, native: Any) -> list[str]:
        """What the engine calls the type of each column; narwhals does not know all of them."""

    @abstractmethod
    def fetch(self, native: Any) -> dict[str, Column]:
        """Run a query and bring its columns here; nulls are masked, or None in a list."""

    @abstractmethod
    def materialize(self, native: Any) -> AbstractContextManager[Any]:
        """Compute a query once and keep its rows for the block, where the engine keeps them best."""

    @abstractmethod
    def create_table(self, native: Any, columns: Mapping[str, IntArray]) -> Any:
        """Make a small table of whole numbers that can be joined to a frame."""

    @abstractmethod
    def join_values(
        self, native: Any, marks: Mapping[str, list[str]], values: FloatArray, column: str, *, integer: bool
    ) -> Any:
        """Add the value of each row's group; see `frames.join_values`."""

    @abstractmethod
    def hash_text(self, native: Any, column: str) -> Any:
        """Replace text by its MD5 in hexadecimal digits: the same units fall into the same parts on every engine."""

    @abstractmethod
    def parse_hash(self, native: Any, column: str) -> Any:
        """Replace hexadecimal digits by the whole number of the first `HASH_DIGITS`; null for null."""

    @abstractmethod
    def number_rows(self, native: Any, name: str) -> Any:
        """Add a whole number of its own for every row: its place from 1 on, where rows have an order."""

    def to_sql(self, native: Any, dialect: str | None) -> str | None:
        """Write a query as SQL; None where the engine has none to show."""
        return None

    def open_eager(
        self, frame: nw.DataFrame[Any], columns: Sequence[str]
    ) -> AbstractContextManager[tuple[Any, dict[str, str]]]:
        """Query some columns of a frame in memory without copying it; and what they are called there."""
        raise NotImplementedError

    def append_column(self, frame: nw.DataFrame[Any], values: FloatArray, column: str, *, integer: bool) -> Any:
        """Add a column to a frame in memory; NaN becomes null where the frame has nulls for numbers."""
        raise NotImplementedError

    def interruptible(self) -> AbstractContextManager[None]:
        """Turn what the engine raises on an interrupt into `KeyboardInterrupt`."""
        return nullcontext()

    def exclusive(self, native: Any) -> AbstractContextManager[Any]:
        """Wait for other threads where the connection of a user's frame serves one call at a time."""
        return nullcontext()

    def is_out_of_memory(self, error: Exception) -> bool:
        """Whether an error of the engine means that memory ran out."""
        return isinstance(error, MemoryError)


# ---------------------------------------------------------------------------------------------------- points in time


def time_zone(dtype: Any, native: str = "") -> str | None:
    """Empty for times without a zone, UTC for those that have one, None for everything else.

    Args:
        dtype: The type of a column.
        native: What its engine calls that type; narwhals does not know DuckDB's nanoseconds with a zone.
    """
    import narwhals as nw

    if native == "TIMESTAMPTZ_NS":
        return "UTC"
    if dtype != nw.Datetime:
        return None
    return "" if getattr(dtype, "time_zone", None) is None else "UTC"


def has_no_type(name: str) -> bool:
    """Whether an engine calls a column's type "null": every row of it is."""
    return name.strip('"').lower() in {"null", "void", "na"}


def is_not_nan(value: Any) -> Any:
    """Whether a float is a number or infinite, as an expression.

    DuckDB takes ``isnan`` to be false in Parquet files: their smallest and largest values, which it goes by, leave NaN
    out. ``isfinite`` is computed.
    """
    return value.is_finite() | (value.abs() == float("inf"))


def is_time(dtype: Any, native: str = "") -> bool:
    """Whether a column holds points in time, which become text as keys: they must read the same on every engine."""
    return time_zone(dtype, native) is not None


def format_time(text: str) -> str:
    """Such text as people read a time: no empty fraction of a second, and midnight without a zone is a day."""
    head, _, zone = text.partition("+")
    seconds, _, fraction = head.partition(".")
    fraction = fraction[:6] + (fraction[6:].ljust(3, "0") if fraction[6:].strip("0") else "")
    if not fraction.strip("0"):
        if not zone and seconds.endswith(" 00:00:00"):
            return seconds.removesuffix(" 00:00:00")
        return seconds + (f"+{zone}" if zone else "")
    return f"{seconds}.{fraction}" + (f"+{zone}" if zone else "")


# --------------------------------------------------------------------------------------------------- fetched columns


def to_floats(values: Column) -> FloatArray:
    """A fetched column as floats; null is NaN."""
    if isinstance(values, np.ma.MaskedArray):
        if values.dtype == object:
            nulls = np.ma.getmaskarray(values)
            return to_floats([None if null else v for v, null in zip(values.data, nulls, strict=True)])
        return np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.astype(np.float64)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def to_list(values: Column) -> list[Any]:
    """A fetched column as Python values; null and NaN are None, days are dates."""
    codes, distinct = factorize(values)
    return [distinct[code] for code in codes.tolist()]


def factorize(values: Column) -> tuple[IntArray, list[Any]]:
    """The place of each value among the distinct ones, and those as Python values; null and NaN are None."""
    if isinstance(values, np.ma.MaskedArray):
        nulls = np.ma.getmaskarray(values)
        codes, distinct = factorize(values.data[~nulls])
        if not nulls.any():
            return codes, distinct
        if None not in distinct:
            distinct.append(None)
        all_codes = np.full(nulls.size, distinct.index(None), dtype=np.int64)
        all_codes[~nulls] = codes
        return all_codes, distinct
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufbM":
        if values.dtype.kind == "M":
            values = values.astype("datetime64[D]")
        sorted_values, codes = np.unique(values, return_inverse=True)
        return codes.astype(np.int64).reshape(-1), [_none_if_nan(value) for value in sorted_values.tolist()]
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    if listed and isinstance(listed[0], float):
        listed = [_none_if_nan(value) for value in listed]
    places: dict[Any, int] = {}
    place_of = places.setdefault
    try:
        codes = np.fromiter((place_of(value, len(places)) for value in listed), np.int64, len(listed))
    except TypeError:  # lists, records, bytearrays: by what they read as
        return factorize([value if value is None else str(value) for value in listed])
    return codes, list(places)


def _none_if_nan(value: Any) -> Any:
    return None if value is None or value != value else value  # noqa: PLR0124
