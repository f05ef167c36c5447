"""From words to attributes: a column, or a column to be cut."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faultlines.rows.bins import Bins


def attribute(given: str) -> str | Bins:
    """A column, or a column to be cut: age:5 by width, income:q10 by quantiles."""
    from faultlines.rows.bins import bins

    cut = re.fullmatch(r"(.+):(q[0-9]+|[0-9]+(?:\.[0-9]+)?)", given, flags=re.DOTALL)
    if cut is None:
        return given
    column, size = cut.groups()
    return bins(column, quantiles=int(size[1:])) if size.startswith("q") else bins(column, width=float(size))
