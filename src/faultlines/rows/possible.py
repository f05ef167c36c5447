"""What rates could be if missing values could be anything: a scan of its own, which is made where values are missing.

A rate is the mean of something that is 1, 0 or null (does not count) in every row. For a row that lacks a value, all
values that it could have are tried: the row could be 1, 0 or null, or two of these. The highest rate of a group counts
as 1 what can be 1 and drops what can be null; the lowest rate likewise. No choice of the missing values leads
to a rate outside (Horowitz and Manski, 2000).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from faultlines.engines.frames import Rows, fetch, scan
from faultlines.engines.protocol import to_floats
from faultlines.estimates.labels import MISSING, Key
from faultlines.progress import working
from faultlines.rows import keys as places
from faultlines.rows.inputs import Expressions, clean_input, form_variables, source_column
from faultlines.rows.keys import By, Keys
from faultlines.rows.read import checked_by, list_uses
from faultlines.rows.request import Input, Request
from faultlines.types import FloatArray

if TYPE_CHECKING:
    import narwhals as nw


_FILLS = {"binary": (0.0, 1.0), "class": (0.0, 1.0)} | dict.fromkeys(("number", "score", "points"), (-1e300, 1e300))
# A missing number is a score below or above any threshold.
_MOST_INPUTS = 4  # whose values are all tried together
_COUNTS = ("one", "only_one", "zero", "only_zero", "certain", "any")


class PossibleCounts(NamedTuple):
    """Rows (sums of weights) of every group by what they can be, each (K, d) for d rates.

    Attributes:
        keys: The groups, excluded ones too.
        one: Those that can be 1.
        only_one: Those that cannot be anything else.
        zero: Those that can be 0.
        only_zero: Those that cannot be anything else.
        certain: Those that count in any case.
        any: Those that can count.
    """

    keys: Sequence[Key]
    one: FloatArray
    only_one: FloatArray
    zero: FloatArray
    only_zero: FloatArray
    certain: FloatArray
    any: FloatArray

    def of(self, chosen: npt.NDArray[np.int64], rates: int | None = None) -> PossibleCounts:
        """Those of some groups, and of the first rates where variables beyond those are for covariances."""
        return PossibleCounts([self.keys[i] for i in chosen.tolist()], *(part[chosen, :rates] for part in self[1:]))

    @property
    def is_unknown(self) -> npt.NDArray[np.bool_]:
        """Which groups lack an attribute."""
        return np.array([any(part == MISSING for part in key) for key in self.keys], dtype=bool)


def can_be_filled(metric: Request) -> bool:
    """Whether all values that inputs of a rate may have are known."""
    inputs = _filled(metric)
    if metric.sums is not None and set(metric.sums(Expressions({role: role for role in metric.inputs}))) != {"x", "y"}:
        return False
    return 0 < len(inputs) <= _MOST_INPUTS and all(source.kind in _FILLS for source in inputs.values())


def _filled(metric: Request) -> dict[str, Input]:
    return {role: source for role, source in metric.inputs.items() if role != "w"}


def count_possible(data: object, by: By, metric: Request) -> PossibleCounts:
    """Rows of every group by what they can be, where missing values can be anything.

    Args:
        data: A frame, or path, paths or glob of files.
        by: What the groups are.
        metric: A rate (or several) of rows; rows without a weight do not count.

    Raises:
        InputError: If the rows cannot be read.
    """
    attributes = checked_by(by)
    with scan(data, list_uses(attributes, [metric], None)) as rows, working("reading rows"):
        keys = Keys(rows, attributes)
        frame, count = _with_outcomes(rows, keys, metric)
        fractions = [_column(name).max().alias(name) for name in keys.fractions()]
        table = fetch(frame.group_by(*keys.names).agg(*_sums(count), *fractions))
        keys.record_fractions(table)
        group_places = places.place_groups(keys, table)
        counts = np.zeros((len(_COUNTS), len(group_places.keys), count))
        for i, name in enumerate(_COUNTS):
            for part in range(count):
                np.add.at(counts[i, :, part], group_places.groups, np.nan_to_num(to_floats(table[f"{name}{part}"])))
        return PossibleCounts(group_places.keys, *counts)


class PossibleValues(NamedTuple):
    """Values at hand, and how much is missing.

    Attributes:
        keys: The groups, excluded ones too.
        lost: The rows of each that lack a value, (K,), as many of its average weight as they weigh.
        low: The lowest value at hand in all groups.
        high: The highest.
    """

    keys: Sequence[Key]
    lost: FloatArray
    low: float
    high: float


def range_values(data: object, by: By, metric: Request, plain: Request | None) -> PossibleValues:
    """The lowest and the highest value that a metric is the mean of, and what rows without one weigh in every group.

    Args:
        data: A frame, or path, paths or glob of files.
        by: What the groups are.
        metric: A metric of rows; rows without a weight do not count.
        plain: The same without weights and units, where its first variable is what it is the mean of; None: values do
            not matter.

    Raises:
        InputError: If the rows cannot be read.
    """
    import narwhals as nw

    attributes = checked_by(by)
    with scan(data, list_uses(attributes, [metric], None)) as rows, working("reading rows"):
        keys = Keys(rows, attributes)
        frame = _cleaned(rows, keys, metric)
        value = nw.lit(0.0)
        if plain is not None:
            value = form_variables(plain, {role: f"i_{role}" for role in plain.inputs})[0][1]
        is_lost = nw.any_horizontal(*(nw.col(f"i_{role}").is_null() for role in _filled(metric)), ignore_nulls=False)
        frame = frame.with_columns(value.alias("value"), is_lost.alias("lost"))
        lost, weight = _as_number(nw.col("lost")), nw.col("weight")
        sums = {"lost": weight * lost, "kept": weight * (1 - lost), "rows": 1 - lost}
        fractions = [_column(name).max().alias(name) for name in keys.fractions()]
        ends = [nw.col("value").min().alias("low"), nw.col("value").max().alias("high")]
        table = fetch(
            frame.group_by(*keys.names).agg(*(e.sum().alias(f"sum_{n}") for n, e in sums.items()), *ends, *fractions)
        )
        keys.record_fractions(table)
        group_places = places.place_groups(keys, table)
        total = np.zeros((3, len(group_places.keys)))
        for i, name in enumerate(sums):
            np.add.at(total[i], group_places.groups, np.nan_to_num(to_floats(table[f"sum_{name}"])))
        of_row = np.divide(total[1], total[2], out=np.ones(total.shape[1]), where=(total[1] > 0) & (total[2] > 0))
        low, high = (to_floats(table[name]) for name in ("low", "high"))
        return PossibleValues(group_places.keys, total[0] / of_row, float(np.nanmin(low)), float(np.nanmax(high)))


def _column(name: str) -> Any:
    import narwhals as nw

    return nw.col(name)


def _cleaned(rows: Rows, keys: Keys, metric: Request) -> nw.LazyFrame[Any]:
    """Rows with their groups, what a metric reads (i_{role}, null where it is missing), and their weights."""
    import narwhals as nw

    expressions = [*keys.expressions(), *(value.alias(name) for name, value in keys.fractions().items())]
    expressions += [
        clean_input(rows, source, source.parameter or role).value.alias(f"i_{role}")
        for role, source in _filled(metric).items()
    ]
    weight = metric.inputs.get("w")
    expressions.append(
        nw.lit(1.0).alias("weight") if weight is None else clean_input(rows, weight, "weight").value.alias("weight")
    )
    return rows.frame.select(*expressions).with_columns(nw.lit(1.0).alias("unit_weight"))


def _with_outcomes(rows: Rows, keys: Keys, metric: Request) -> tuple[nw.LazyFrame[Any], int]:
    """Rows with what each can be, 1 where it can: one{part}, zero{part}, null{part}; and the number of parts."""
    import narwhals as nw

    inputs, weight = _filled(metric), metric.inputs.get("w")
    frame = _cleaned(rows, keys, metric)
    frame = frame.with_columns(
        *(
            nw.when(nw.col(f"i_{role}").is_null())
            .then(nw.lit(fill))
            .otherwise(nw.col(f"i_{role}"))
            .alias(f"{role}_{i}")
            for role, source in inputs.items()
            for i, fill in enumerate(_FILLS[source.kind])
        )
    )
    single = frozenset(
        role for role, source in inputs.items() if keys.schema[source_column(rows, source)] == nw.Float32
    )
    parts: list[list[Any]] = []
    for choice in itertools.product((0, 1), repeat=len(inputs)):
        names = {role: f"{role}_{i}" for role, i in zip(inputs, choice, strict=True)}
        names |= {} if weight is None else {"w": "unit_weight"}
        parts.append(_form_outcomes(metric, names, single))
    outcomes = [
        nw.max_horizontal(*(_as_number(test(tried[part])) for tried in parts)).alias(f"{name}{part}")
        for part in range(len(parts[0]))
        for name, test in (("one", _is_one), ("zero", _is_zero), ("null", _is_null))
    ]
    return frame.with_columns(*outcomes), len(parts[0])


def _form_outcomes(metric: Request, names: Mapping[str, str], single: frozenset[str]) -> list[Any]:
    """What the rates are means of, row by row, where every weight is 1."""
    if metric.sums is not None:  # numerator and denominator of a row, which are summed to units
        return [metric.sums(Expressions(names, single))["x"]]
    variables = [variable for _, variable in form_variables(metric, names, single)]
    return variables[:: 2 if "w" in names else 1]  # with weights, every second is the weight itself


def _is_one(outcome: Any) -> Any:
    return ~outcome.is_null() & (outcome == 1)


def _is_zero(outcome: Any) -> Any:
    return ~outcome.is_null() & (outcome == 0)


def _is_null(outcome: Any) -> Any:
    return outcome.is_null()


def _as_number(condition: Any) -> Any:
    import narwhals as nw

    return nw.when(condition).then(nw.lit(1.0)).otherwise(nw.lit(0.0))


def _sums(count: int) -> list[Any]:
    """Sums of weights over the rows of a group, by what they can be."""
    weight, sums = _column("weight"), []
    for part in range(count):
        one, zero, null = (_column(f"{name}{part}") for name in ("one", "zero", "null"))
        kinds = {
            "one": one,
            "only_one": one * (1 - zero) * (1 - null),
            "zero": zero,
            "only_zero": zero * (1 - one) * (1 - null),
            "certain": 1 - null,
            "any": one + zero - one * zero,
        }
        sums += [(weight * kinds[name]).sum().alias(f"{name}{part}") for name in _COUNTS]
    return sums
