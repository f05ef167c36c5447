"""Any statistic of columns as a metric, with a standard error from rows drawn anew."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from faultlines.checks import column as checked_column
from faultlines.checks import number, text
from faultlines.checks import seed as checked_seed
from faultlines.errors import InputError
from faultlines.metrics.base import Metric
from faultlines.metrics.moments import of_resampled
from faultlines.rows.request import Input, Resampling

if TYPE_CHECKING:
    from collections.abc import Callable

    from faultlines.rows.request import Columns

_ENOUGH = 50  # rows from which on a bootstrap knows how much a statistic varies


def bootstrapped(
    statistic: Callable[..., Any],
    *columns: str,
    draws: int = 200,
    seed: int = 0,
    name: str | None = None,
    unit: str | None = None,
) -> Metric:
    """Any statistic of columns in each group, with the standard error it has when rows are drawn anew.

    Rows are read once and brought here, unlike those of other metrics: it is for what no sums make, such as a median,
    a quantile or a metric of another library. Every draw counts each row as often as a Poisson variable of mean 1 says
    (Poisson bootstrap). The statistic must be about a typical row, as a mean is, and not grow with their number, as a
    sum does.

    Args:
        statistic: A function of arrays, one for each column, that returns a number. If it takes ``sample_weight``, it
            is given counts there; otherwise rows are repeated.
        *columns: The columns, in the order of its arguments.
        draws: How often rows are drawn anew.
        seed: Of the draws. Each group has its own, so that results do not depend on the other groups.
        name: How it is called in a result. Default: the name of the function and its columns.
        unit: The column of units, such as people or prompts, where each has several rows: whole units are drawn then.

    Returns:
        The metric, for `fl.cluster` and `fl.measure`. It cannot be joined, split by unit or self-checked.

    Raises:
        InputError: If `statistic` is not a function, or there are no columns.

    Example:
        >>> import duckdb, faultlines as fl, numpy as np
        >>> rows = duckdb.sql("SELECT i % 3 AS g, i % 7 AS x FROM range(300) t(i)")
        >>> fl.measure(rows, "g", fl.bootstrapped(np.median, "x")).estimates
        Estimates(3 groups by g, θ from 3 to 3)
    """
    if not callable(statistic):
        problem = "is not a function"
        raise InputError.wrong_type("statistic", problem, 'Use for example bootstrapped(np.median, "x").', statistic)
    if not columns:
        raise InputError.empty(
            "columns", "none is named", 'Name those it takes, as in bootstrapped(np.median, "x").', form="clause"
        )
    problem = "must be a whole number from 20 on"
    drawn = int(number("draws", draws, problem, "Use {draws}.", low=20, whole=True, settings={"draws": 200}))
    inputs = {
        f"x{i}": Input(checked_column("columns", column), "any", parameter="columns")
        for i, column in enumerate(columns)
    }
    metric_name = text("name", name) or f"{getattr(statistic, '__name__', 'statistic')} of {', '.join(columns)}"
    how = Resampling(statistic, _takes_weights(statistic), drawn, checked_seed(seed))
    return Metric(
        metric_name,
        inputs,
        _as_they_are,
        of_resampled,
        unit=unit,
        resampling=how,
        size_unit="units" if unit else "rows",
        shaped=(),
        min_size=_ENOUGH,
    )


def _takes_weights(statistic: Callable[..., Any]) -> bool:
    try:
        return "sample_weight" in inspect.signature(statistic).parameters
    except (TypeError, ValueError):  # a function of C that does not say what it takes
        return False


def _as_they_are(c: Columns) -> dict[str, Any]:
    return {"x": c["x0"]}
