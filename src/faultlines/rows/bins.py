"""Numeric attributes cut into groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines.errors import InputError, shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_BINS = 200


@dataclass(frozen=True, slots=True)
class Bins:
    """How to cut a numeric attribute into groups; made by `fl.bins`."""

    column: str
    width: float | None = None
    quantiles: int | None = None
    edges: tuple[float, ...] | None = None


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
    if not isinstance(column, str) or not column:
        raise InputError(f"bins({shorten(column)})", "is not the name of a column", "Give a column by its name.")
    if sum(option is not None for option in (width, quantiles, edges)) != 1:
        raise InputError(f"bins({column!r})", "needs one of width, quantiles and edges", "Give exactly one of them.")
    if width is not None and not (_is_number(width) and 0 < width < np.inf):
        raise InputError(f"width={shorten(width)}", "must be a number above zero", "Use for example width=5.")
    whole = isinstance(quantiles, int | np.integer) and not isinstance(quantiles, bool)
    if quantiles is not None and not (whole and 2 <= quantiles <= _MOST_BINS):
        raise InputError(
            f"quantiles={shorten(quantiles)}", f"must be from 2 to {_MOST_BINS}", "Use for example quantiles=10."
        )
    if edges is not None:
        return Bins(column, edges=_checked_edges(edges))
    return Bins(column, width=None if width is None else float(width), quantiles=quantiles)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)


def _checked_edges(edges: Sequence[float]) -> tuple[float, ...]:
    fit = isinstance(edges, list | tuple | np.ndarray) and 0 < len(edges) <= _MOST_BINS and all(map(_is_number, edges))
    listed = [float(edge) for edge in edges] if fit else []
    if not listed or not np.all(np.isfinite(listed)) or np.any(np.diff(listed) <= 0):
        raise InputError(
            f"edges={shorten(edges)}",
            f"must be up to {_MOST_BINS} finite, rising numbers",
            "Use for example edges=[18, 65].",
        )
    return tuple(listed)
