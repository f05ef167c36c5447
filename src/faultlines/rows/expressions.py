"""Input columns as narwhals expressions: what a metric forms its variables of."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.errors import InputError, shorten

if TYPE_CHECKING:
    from faultlines.rows.request import Request


class Expressions:
    """Input columns by role.

    Args:
        names: Role → name in the frame.
        single: Roles whose columns hold numbers of single precision.
    """

    def __init__(self, names: Mapping[str, str], single: frozenset[str] = frozenset()) -> None:
        self._names, self._single = names, single
        self.given: dict[str, Any] = {}  # the columns that were asked for, by name

    def __getitem__(self, role: str) -> Any:
        import narwhals as nw

        name = self._names[role]
        return self.given.setdefault(name, nw.col(name))

    def __contains__(self, role: object) -> bool:
        return role in self._names

    def where(self, condition: Any, value: Any, otherwise: Any = None) -> Any:
        """`value` in rows where the condition holds, `otherwise` (null) in the rest."""
        import narwhals as nw

        value, otherwise = (nw.lit(v) if isinstance(v, int | float) else v for v in (value, otherwise))
        chosen = nw.when(condition).then(value)
        if otherwise is None:
            return chosen
        # A null condition is neither: it must not fall into the other branch.
        return nw.when(~condition.is_null()).then(chosen.otherwise(otherwise))

    def log(self, value: Any) -> Any:
        """Natural logarithm."""
        return value.log()

    def at_least(self, role: str, threshold: float) -> Any:
        """1 in rows where an input reaches a threshold, 0 in the rest.

        A single-precision 0.7 is a little less than 0.7; it is meant to reach it, so the threshold is rounded likewise.
        """
        edge = float(np.float32(threshold)) if role in self._single else float(threshold)
        return self.where(self[role] >= edge, 1.0, 0.0)

    def under(self, prefix: str) -> Expressions:
        """The inputs whose roles start with a prefix, by the rest of their roles."""
        names = {role.removeprefix(prefix): name for role, name in self._names.items() if role.startswith(prefix)}
        part = Expressions(names, frozenset(r.removeprefix(prefix) for r in self._single if r.startswith(prefix)))
        part.given = self.given
        return part


def formed(
    request: Request, names: Mapping[str, str] | None = None, single: frozenset[str] = frozenset()
) -> list[tuple[str | None, Any]]:
    """The variables of a request, as expressions; and which column one is, where it is a column as it stands.

    Args:
        request: What is asked.
        names: Role → name in the frame; by default the roles themselves, to learn which variables there are.
        single: Roles of single precision.

    Raises:
        InputError: If it uses an input it does not have, or forms nothing.
    """
    import narwhals as nw

    names = {role: role for role in (*request.inputs, *request.centred)} if names is None else names
    columns = Expressions(names, single)
    try:
        given = request.variables(columns)
    except KeyError as error:
        raise InputError(
            f"metric {shorten(request.name)}", f"has no input {error.args[0]!r}", f"It has: {', '.join(names)}."
        ) from error
    if not isinstance(given, Mapping):
        problem = f"its variables are {shorten(given)}, not a dict"
        raise InputError(f"metric {shorten(request.name)}", problem, 'Return for example {"x": c["x"]}.')
    for name, variable in given.items():
        if not isinstance(variable, nw.Expr | Real):
            problem = f"its variable {shorten(name)} is {shorten(variable)}, which is not formed of columns"
            raise InputError(f"metric {shorten(request.name)}", problem, 'Return for example {"x": c["x"]}.')
    variables = list(given.values())
    if not variables:
        raise InputError(f"metric {shorten(request.name)}", "forms no variables", "Return at least one.")
    # A plain number becomes a column that is null where rows are left out.
    first = nw.col(next(iter(names.values())))
    made = [0 * first + float(e) if isinstance(e, Real) else e for e in variables]
    which = [next((name for name, column in columns.given.items() if column is e), None) for e in made]
    return list(zip(which, made, strict=True))
