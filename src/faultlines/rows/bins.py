"""Numeric attributes cut into groups."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING

import numpy as np

from faultlines.errors import InputError, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_BINS = 200


@dataclass(frozen=True, slots=True)
class Bins:
    """How to cut a numeric attribute into groups; made by `fl.bins`.

    Attributes:
        column: The numeric column.
        width: The width of every group.
        quantiles: The number of groups with equally many rows.
        edges: Where groups begin and end.

    Raises:
        InputError: Unless exactly one way to cut is given, and makes sense.

    Example:
        >>> import faultlines as fl
        >>> fl.bins("age", width=10)
        Bins(column='age', width=10.0, quantiles=None, edges=None)
    """

    column: str
    width: float | None = None
    quantiles: int | None = None
    edges: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        column = self.column
        if not isinstance(column, str) or not column:
            raise InputError(f"bins({shorten(column)})", "is not the name of a column", "Give a column by its name.")
        if sum(option is not None for option in (self.width, self.quantiles, self.edges)) != 1:
            raise InputError(
                f"bins({shorten(column)})", "needs one of width, quantiles and edges", "Give exactly one of them."
            )
        if self.width is not None:
            object.__setattr__(self, "width", _checked_width(self.width))
        if self.quantiles is not None:
            object.__setattr__(self, "quantiles", _checked_quantiles(self.quantiles))
        if self.edges is not None:
            object.__setattr__(self, "edges", _checked_edges(self.edges))


def bins(
    column: str, *, width: float | None = None, quantiles: int | None = None, edges: Sequence[float] | None = None
) -> Bins:
    """Cut a numeric column into groups, inside the engine.

    Args:
        column: The column.
        width: Groups of equal width, from multiples of it: ``width=5`` gives 20–24, 25–29, …
        quantiles: So many groups of about equal size; fewer where many rows have the same value.
        edges: Groups between these edges, each including its lower one, and one beyond either end.

    Returns:
        What to give as `by`, alone or among other attributes.

    Raises:
        InputError: Unless exactly one way to cut is given, and makes sense.

    Example:
        >>> import faultlines as fl
        >>> fl.bins("age", edges=[18, 65])
        Bins(column='age', width=None, quantiles=None, edges=(18.0, 65.0))
    """
    return Bins(column, width, quantiles, edges)  # type: ignore[arg-type]  # it makes a tuple of the edges


def _as_float(value: object) -> float | None:
    """A finite number as a double; None for everything else, and for integers beyond a double."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        made = float(value)
    except OverflowError:
        return None
    return made if math.isfinite(made) else None


def _checked_width(width: object) -> float:
    made = _as_float(width)
    if made is None or made <= 0:
        raise InputError(f"width={shorten(width)}", "must be a number above zero", "Use for example width=5.")
    return made


def _checked_quantiles(quantiles: object) -> int:
    whole = isinstance(quantiles, Integral) and not isinstance(quantiles, bool)
    if not (whole and 2 <= quantiles <= _MOST_BINS):  # type: ignore[operator]
        raise InputError(
            f"quantiles={shorten(quantiles)}", f"must be from 2 to {_MOST_BINS}", "Use for example quantiles=10."
        )
    return int(quantiles)  # type: ignore[call-overload, no-any-return]


def _checked_edges(edges: object) -> tuple[float, ...]:
    several = isinstance(edges, list | tuple) or (isinstance(edges, np.ndarray) and edges.ndim == 1)
    made = [_as_float(edge) for edge in edges] if several and len(edges) <= _MOST_BINS else []  # type: ignore
    listed = [edge for edge in made if edge is not None]
    if not listed or len(listed) < len(made) or any(low >= high for low, high in itertools.pairwise(listed)):
        raise InputError(
            f"edges={shorten(edges)}",
            f"must be up to {_MOST_BINS} finite, rising numbers",
            "Use for example edges=[18, 65].",
        )
    return tuple(listed)
