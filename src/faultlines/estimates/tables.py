"""Tables of estimates: one row per group, or per experiment and group."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from faultlines.errors import InputError, shorten
from faultlines.estimates.labels import part_of
from faultlines.sources.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from faultlines.sources.tables import Table


def checked_attributes(by: Any) -> tuple[str, ...]:
    """The columns that name the groups of a table."""
    if not isinstance(by, str | list | tuple) or not by:
        raise InputError(f"by={shorten(by)}", "names no column", "Name the column that holds the groups.")
    attributes = (by,) if isinstance(by, str) else tuple(by)
    for i, column in enumerate(attributes):
        if not isinstance(column, str):
            parameter = f"by[{i}]" if len(attributes) > 1 else "by"
            raise InputError(f"{parameter}={shorten(column)}", "is not the name of a column", "Give its name as text.")
    if len(set(attributes)) < len(attributes):
        raise InputError(f"by={list(attributes)!r}", "names a column twice", "Name each column once.")
    return attributes


@contextmanager
def in_columns(named: Mapping[str, tuple[str, str | None]]) -> Iterator[None]:
    """Errors about numbers in the words of who named their columns.

    Args:
        named: What a number is called inside → the parameter that named its column, and the column.
    """
    try:
        yield
    except InputError as error:
        words = error.parameter
        for inside, (parameter, column) in named.items():
            if found := re.match(rf"{inside}=(?=\S+ in group )", words):
                words = f"{parameter}={shorten(column)}, {words[found.end() :]}"
                break
            if re.match(rf"{inside}\b", words):
                words = parameter + words.removeprefix(inside)
                break
        raise type(error)(words, error.problem, error.remedy) from error


def read_estimates(
    frame: object,
    attributes: Sequence[str],
    estimate: str,
    se: str,
    n: str | None = None,
    dof: str | None = None,
    *,
    experiment: str | None = None,
) -> Table:
    """The columns of a table of estimates; values of the columns that name groups are parts of keys.

    Args:
        frame: As for `Estimates.from_frame`.
        attributes: The columns that name the groups; see `checked_attributes`.
        estimate: The column of estimates.
        se: The column of standard errors.
        n: The column of group sizes, if there is one.
        dof: The column of degrees of freedom, if there is one.
        experiment: The column that says which experiment a row is of, if there are several; its keys come first.
    """
    asked = {"estimate": estimate, "se": se}
    asked |= {name: column for name, column in (("n", n), ("dof", dof)) if column is not None}
    keys = {} if experiment is None else {"experiment": experiment}
    keys |= {f"by[{i}]" if len(attributes) > 1 else "by": column for i, column in enumerate(attributes)}
    table = read_table(frame, keys=keys, numbers=asked)
    return table._replace(keys=[[part_of(value) for value in column] for column in table.keys])
