"""Several requests, one scan: the group-by that brings the moments of all variables of all requests.

Requests share a scan where they have the same column of variants and the same unit. Every distinct input is cleaned
once; every distinct set of inputs that must not be null together is counted once. With units, rows are summed to them
in one table, from which come the moments, the counts, and the check for units in several places.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from faultlines.engines.frames import Rows, engine_of, fetch, hash_column, materialize
from faultlines.engines.protocol import HASH_BITS, Column, to_floats, to_list
from faultlines.errors import InputError
from faultlines.rows import keys as places
from faultlines.rows.inputs import (
    Expressions,
    check_input,
    check_labels,
    clean_input,
    form_variables,
    source_column,
)
from faultlines.rows.keys import Keys, key_value
from faultlines.rows.request import Capped, Grouped, Input, Moments, Request, Split
from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    import narwhals as nw


# ------------------------------------------------------------------- skewness and kurtosis, beside means and variances


_LARGEST = 1e70  # engines stop where a fourth power leaves the range of doubles


def aggregate_shapes(
    frame: nw.LazyFrame[Any], columns: Sequence[str], keys: Sequence[str]
) -> tuple[nw.LazyFrame[Any], dict[str, Any]]:
    """A frame from which shapes can be aggregated, and the aggregates: s_… skewness, k_… kurtosis less 3.

    Args:
        frame: The variables.
        columns: Those whose shape is needed.
        keys: What the aggregates will be grouped by.
    """
    import narwhals as nw

    if not columns:
        return frame, {}
    values = {column: nw.when(nw.col(column).abs() < _LARGEST).then(nw.col(column)) for column in columns}
    aggregates: dict[str, Any] = {}
    if engine_of(frame).has_exact_shapes:
        for column, value in values.items():
            aggregates |= {f"s_{column}": value.skew(), f"k_{column}": value.kurtosis()}
        return frame, aggregates
    # Powers of deviations from the mean of the group, in units of their spread.
    frame = frame.with_columns(*((v - v.mean().over(*keys)).alias(f"d_{c}") for c, v in values.items()))
    spread = {c: (nw.col(f"d_{c}") * nw.col(f"d_{c}")).mean().over(*keys).sqrt() for c in columns}
    frame = frame.with_columns(*(nw.when(s > 0).then(nw.col(f"d_{c}") / s).alias(f"d_{c}") for c, s in spread.items()))
    for column in columns:
        z = nw.col(f"d_{column}")
        aggregates |= {f"s_{column}": (z * z * z).mean(), f"k_{column}": (z * z * z * z).mean() - 3}
    return frame, aggregates


# Sums of powers of x − c, with one c for all groups, cost DuckDB less than its own variance, skewness and kurtosis:
# beyond counts, means and variances 0.04 s in place of 0.14 s (10 M rows, 2,000 groups, one core). They are as exact as
# long as a group's mean is not many of its standard deviations, r, from c: the relative error of the fourth moment is
# about 2e-16 r⁴. Groups farther away than this, where it is 2e-10, are asked for again by the engine's own functions.
_FARTHEST = 32.0
_MAX_REQUERIED_SHARE = 0.2  # of the rows, a guess; above it all groups are asked for again, without a filter
_SAMPLE = 1024  # rows from which c is taken
_POWERS = (1, 2, 3, 4)


def choose_center(values: Column) -> float:
    """The median of some values, in few bits beside their spread: distances of whole numbers from it are exact."""
    finite = to_floats(values)
    finite = finite[np.isfinite(finite) & (np.abs(finite) < _LARGEST)]
    if not finite.size:
        return 0.0
    median = float(np.median(finite))
    spread = float(np.median(np.abs(finite - median))) or float(finite.std())
    step = 2.0 ** np.floor(np.log2(spread)) if spread > 0 else 0.0
    return float(np.round(median / step) * step) if step > 0 else median


def sum_powers(frame: nw.LazyFrame[Any], centers: Mapping[str, float]) -> tuple[nw.LazyFrame[Any], dict[str, Any]]:
    """A frame with distances from the centers, and the sums of their powers: p1_… to p4_…."""
    import narwhals as nw

    frame = frame.with_columns(*((nw.col(column) - c).alias(f"d_{column}") for column, c in centers.items()))
    sums: dict[str, Any] = {}
    for column in centers:
        d = power = nw.col(f"d_{column}")
        for i in _POWERS:
            sums[f"p{i}_{column}"] = power.sum()
            power = power * d
    return frame, sums


def moments_from_powers(
    table: Mapping[str, Column], centers: Mapping[str, float]
) -> tuple[dict[str, Column], npt.NDArray[np.bool_]]:
    """Means, variances and shapes from those sums; and which groups are too far from a center for them."""
    moments = dict(table)
    is_far = np.zeros(len(table["rows"]), dtype=bool)
    for column, center in centers.items():
        n = to_floats(table[f"n_{column}"])
        with np.errstate(all="ignore"):
            first, second, third, fourth = (to_floats(moments.pop(f"p{i}_{column}")) / n for i in _POWERS)
            variance = second - first**2
            # A group of one value, such as 0, has no rounding where the value is short.
            is_constant = (variance == 0) & (np.ldexp(first, 20) == np.round(np.ldexp(first, 20)))
            is_near = (first**2 <= _FARTHEST**2 * variance) & (fourth * n < _LARGEST**4)
            is_far |= ~is_near & ~is_constant & (n > 1)
            skewness = (third - 3 * first * second + 2 * first**3) / variance**1.5
            kurtosis = (fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4) / variance**2
            moments[f"m_{column}"] = center + first
            moments[f"c_{column}"] = np.where(n > 1, variance * n / (n - 1), np.nan)
            moments[f"s_{column}"] = np.where(n == 2, 0.0, np.where(n > 1, skewness, np.nan))  # two have none
            moments[f"k_{column}"] = np.where(n > 1, kurtosis - 3, np.nan)
    return moments, is_far


# ----------------------------------------------------------------------------------------------------------- the query


class _Used(NamedTuple):
    """An input of a request: which cleaned input, and the number of the set of inputs it is used with."""

    place: int
    together: int

    @property
    def name(self) -> str:
        return f"i{self.place}_{self.together}"

    @property
    def over(self) -> str:
        """The column that says whether it was cut."""
        return f"over{self.place}_{self.together}"


class Query:
    """The one group-by behind several requests of the same variants and unit.

    Args:
        rows: The rows.
        by: The groups.
        requests: What is asked.
        split: How rows are divided into parts, if they are.
    """

    def __init__(self, rows: Rows, by: Keys, requests: Sequence[Request], split: Split | None) -> None:
        self.rows, self.by, self.requests, self.split = rows, by, requests, split
        self.variant = requests[0].arms.column if requests[0].arms else None
        self.unit = requests[0].unit
        self.keyed = [*by.names, *(["part"] if split else []), *(["arm"] if self.variant else [])]
        self.inputs: dict[Input, int] = {}
        self.parameters: list[str] = []
        self.together: dict[frozenset[int], int] = {}
        self.used = [self._use(request) for request in requests]
        self.checks: list[tuple[int, str]] = []  # place of an input, kind of check
        self.columns: list[list[str]] = []  # for every request, the columns of its variables
        self.caps: dict[int, float] = {}  # place of an input, where it is cut

    def _use(self, request: Request) -> dict[str, _Used]:
        for role, source in request.inputs.items():
            if source not in self.inputs:
                self.inputs[source] = len(self.inputs)
                self.parameters.append(source.parameter or role)
        joined = frozenset(self.inputs[source] for source in request.inputs.values())
        number = self.together.setdefault(joined, len(self.together))
        return {role: _Used(self.inputs[source], number) for role, source in request.inputs.items()}

    def run(self) -> list[list[Grouped]]:
        """For every request, the groups with their moments; once for each part of the rows."""
        import narwhals as nw

        if self.unit is None and self._repetitions == 1:
            return self._results(self._fetch_rows())
        prepared = self._prepare()
        if self.unit is None:
            with materialize(prepared) as rows:
                return self._repeat(rows, [nw.len().alias("rows"), *self._extremes()])[0]
        with materialize(self._sum_units(prepared)) as units:
            results, table = self._repeat(self._usable_units(units), self._unit_counts())
            self._check_units(units, table)
            return results

    def build(self) -> nw.LazyFrame[Any]:
        """The query itself, of rows that are not divided, before it is run."""
        import narwhals as nw

        prepared = self._prepare()
        if self.unit is None:
            return self._aggregate(prepared, [nw.len().alias("rows"), *self._extremes()])
        return self._aggregate(self._usable_units(self._sum_units(prepared)), self._unit_counts())

    @property
    def _repetitions(self) -> int:
        """How many times rows are divided into parts, or once where they are not."""
        return self.split.times if self.split else 1

    def _repeat(self, frame: nw.LazyFrame[Any], counts: list[Any]) -> tuple[list[list[Grouped]], Mapping[str, Column]]:
        """The results of all divisions of the rows, one after the other, and the table behind the last."""
        results: list[list[Grouped]] = [[] for _ in self.requests]
        table: Mapping[str, Column] = {}
        for repetition in range(self._repetitions):
            divided = self._assign_parts(frame, repetition)
            table = self._fetch_moments(divided, counts)
            for k, (parts, more) in enumerate(zip(results, self._results(table), strict=True)):
                is_shared = self.requests[k].overlap != "error"
                parts.extend(
                    self._add_overlaps(k, divided, self._count_distinct(k, divided, more)) if is_shared else more
                )
        return results, table

    # ------------------------------------------------------------------------------------------------------- columns

    def _prepare(self, unchecked: frozenset[int] = frozenset()) -> nw.LazyFrame[Any]:
        """Keys, arm, unit, part and cleaned inputs under names of our own, null where others they go with are null.

        Args:
            unchecked: Places of inputs whose NaN and infinities are left as they are.
        """
        import narwhals as nw

        schema, rows = self.by.schema, self.rows
        for request in self.requests:
            check_labels(rows, request.inputs)
        expressions = self.by.expressions()
        self.checks = []
        if self.variant:
            expressions.append(key_value(rows.keys[self.variant], schema[rows.keys[self.variant]]).alias("arm"))
        unit = self.unit or (self.split.unit if self.split else None)
        if unit:
            expressions.append(key_value(rows.keys[unit], schema[rows.keys[unit]]).alias("unit"))
        for source, place in self.inputs.items():
            cleaned = clean_input(rows, source, self.parameters[place], is_checked=place not in unchecked)
            expressions.append(cleaned.value.alias(f"i{place}"))
            expressions += [expression.alias(f"{kind}{place}") for kind, expression in cleaned.checks.items()]
            self.checks += [(place, kind) for kind in cleaned.checks]
        expressions += [expression.alias(name) for name, expression in self.by.fractions().items()]
        frame = rows.frame.select(*expressions)
        if self.split and self.unit is None:
            frame = hash_units(frame, self.split)
        nulled = []
        for joined, number in self.together.items():
            for place in joined:
                needed = [other for other in self._needed(joined) if other != place]
                others = [~nw.col(f"i{other}").is_null() for other in needed]
                value = nw.col(f"i{place}")
                value = nw.when(nw.all_horizontal(*others, ignore_nulls=False)).then(value) if others else value
                nulled.append(value.alias(_Used(place, number).name))
        frame = frame.with_columns(*nulled)
        # What rows are summed to is capped, and not they themselves, unless they are all that is asked about.
        in_rows = [used for used in self._capped() if self.unit is None or used not in self._summed_inputs()]
        return self._cut(frame, in_rows) if in_rows else frame

    def _capped(self) -> list[_Used]:
        """The inputs whose largest values are cut."""
        capped = {place for source, place in self.inputs.items() if source.cap is not None}
        return list(dict.fromkeys(used for roles in self.used for used in roles.values() if used.place in capped))

    def _cut(self, frame: nw.LazyFrame[Any], capped: Sequence[_Used]) -> nw.LazyFrame[Any]:
        """Inputs cut where they are capped, beside whether they were; a quantile is that of all groups and arms."""
        import narwhals as nw

        sources = {place: source for source, place in self.inputs.items()}
        for used in capped:
            cap, column = sources[used.place].cap, nw.col(used.name)
            if cap is None or used.place in self.caps:
                continue
            at = np.nan if cap.value is None else cap.value
            if cap.quantile is not None:
                highest = column.quantile(cap.quantile, interpolation="linear").alias("cap")
                at = float(to_floats(fetch(frame.select(highest))["cap"])[0])
            self.caps[used.place] = at if np.isfinite(at) else np.finfo(float).max
        over = {used: nw.col(used.name) > self.caps[used.place] for used in capped}
        frame = frame.with_columns(
            *(nw.when(is_over).then(nw.lit(1)).otherwise(nw.lit(0)).alias(used.over) for used, is_over in over.items())
        )
        return frame.with_columns(
            *(
                nw.when(is_over).then(nw.lit(self.caps[used.place])).otherwise(nw.col(used.name)).alias(used.name)
                for used, is_over in over.items()
            )
        )

    def _assign_parts(self, frame: nw.LazyFrame[Any], repetition: int) -> nw.LazyFrame[Any]:
        """With the number of the part a unit falls into at that repetition."""
        return frame if self.split is None else assign_parts(frame, self.split, repetition)

    def _counted(self, number: int) -> str:
        """An input whose values are the rows in which all inputs of a set have one."""
        joined = next(joined for joined, index in self.together.items() if index == number)
        return _Used(self._needed(joined)[0], number).name

    def _needed(self, joined: frozenset[int]) -> list[int]:
        """The inputs of a set without which a row cannot be used."""
        return [place for source, place in self.inputs.items() if place in joined and not source.optional]

    def _counted_alone(self) -> list[int]:
        """Inputs whose missing values are counted by themselves: those that are used with others, or with units."""
        return sorted({place for joined in self.together if len(joined) > 1 or self.unit for place in joined})

    def _used_alone(self) -> dict[int, int]:
        """Inputs that some request uses without others, and the number of that set: its rows are those with a value."""
        return {place: number for joined, number in self.together.items() if len(joined) == 1 for place in joined}

    # -------------------------------------------------------------------------------------------------------- counts

    def _extremes(self, *, of_units: bool = False) -> list[Any]:
        """Smallest and largest of what inputs should not hold: enough to see it, and to name one.

        Args:
            of_units: Of the extremes by unit, not of the values.
        """
        import narwhals as nw

        prefixes = {end: f"{end}_" if of_units else "" for end in ("min", "max")}
        extremes = [
            getattr(nw.col(f"{prefixes[end]}{kind}{place}"), end)().alias(f"{end}_{kind}{place}")
            for place, kind in self.checks
            for end in ("min", "max")
        ]
        return extremes + [nw.col(name).max().alias(name) for name in self.by.fractions()]

    def _sum_units(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Rows summed to the unit; what describes the unit (covariate, weight) is averaged."""
        import narwhals as nw

        sources = {place: source for source, place in self.inputs.items()}
        keys = [key for key in self.keyed if key != "part"]
        frame, formed = self._form_sums(frame, keys)
        sums = [nw.col(name).sum() for name in formed]
        sums += [nw.col(used.over).sum() for used in self._capped() if used not in self._summed_inputs()]
        for used in self._summed_inputs():
            sums.append(_aggregate_rows(sources[used.place], nw.col(used.name)).alias(used.name))
        counts = [nw.col(self._counted(n)).count().alias(f"ok{n}") for n in self.together.values()]
        counts += [
            nw.col(f"i{place}").count().alias(f"have{place}")
            for place in self._counted_alone()
            if place not in self._used_alone()
        ]
        summed = frame.group_by(*keys, "unit").agg(nw.len().alias("rows"), *counts, *self._extremes(), *sums)
        return hash_units(summed, self.split) if self.split else summed

    def _summed_inputs(self) -> list[_Used]:
        """The inputs that are summed to units as they are."""
        plain = (roles for request, roles in zip(self.requests, self.used, strict=True) if request.sums is None)
        return list(dict.fromkeys(used for roles in plain for used in roles.values()))

    def _form_sums(self, frame: nw.LazyFrame[Any], keys: Sequence[str]) -> tuple[nw.LazyFrame[Any], list[str]]:
        """Rows with what some requests form before rows are summed to units, and the columns that hold it."""
        import narwhals as nw

        centres, formed = [], []
        for k, (request, roles) in enumerate(zip(self.requests, self.used, strict=True)):
            if request.sums is None:
                continue
            names = {role: used.name for role, used in roles.items()}
            for centre, role in request.centred.items():
                # Of the whole group, also where it is split by units later: that shifts a sum to second order only.
                centres.append(nw.col(names[role]).mean().over(*keys).alias(f"centre{k}_{centre}"))
                names[centre] = f"centre{k}_{centre}"
            sums = request.sums(Expressions(names, self._single(request)))
            formed += [value.alias(_sum_name(k, name)) for name, value in sums.items()]
        frame = frame.with_columns(*centres) if centres else frame
        frame = frame.with_columns(*formed) if formed else frame
        return frame, [name for k, request in enumerate(self.requests) for name in _sum_names(k, request).values()]

    def _usable_units(self, units: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Values of units that have some; rows without a unit count for nothing."""
        import narwhals as nw

        has_unit = ~nw.col("unit").is_null()
        frame = units.with_columns(
            *(nw.col(f"ok{n}").alias(f"have{place}") for place, n in self._used_alone().items()),
            *(
                nw.when(has_unit).then(nw.col(f"ok{n}")).otherwise(nw.lit(0)).alias(f"ok{n}")
                for n in self.together.values()
            ),
        )
        columns = [(used.name, used.together) for used in self._summed_inputs()]
        for k, (request, roles) in enumerate(zip(self.requests, self.used, strict=True)):
            together = next(iter(roles.values())).together
            columns += [(name, together) for name in _sum_names(k, request).values()]
        frame = frame.with_columns(
            *(nw.when(nw.col(f"ok{n}") > 0).then(nw.col(name)).alias(name) for name, n in columns)
        )
        of_units = [used for used in self._capped() if used in self._summed_inputs()]
        return self._cut(frame, of_units) if of_units else frame

    def _unit_counts(self) -> list[Any]:
        import narwhals as nw

        counts = [nw.col("rows").sum().alias("rows")]
        counts += [nw.col(f"ok{n}").sum().alias(f"ok{n}") for n in self.together.values()]
        counts += [nw.col(f"have{place}").sum().alias(f"have{place}") for place in self._counted_alone()]
        counts.append(nw.when(~nw.col("unit").is_null()).then(nw.col("rows")).sum().alias("have_unit"))
        return counts + self._extremes(of_units=True)

    # ------------------------------------------------------------------------------------------------------- moments

    def _fetch_rows(self) -> dict[str, Column]:
        """Counts and moments of rows that are read once.

        Whether every value is finite takes DuckDB an eighth of the time, and the sums of powers say it too.
        """
        import narwhals as nw

        fast = self.rows.is_stored and engine_of(self.rows.frame).sums_powers_fast
        unchecked = self._seen_in_sums() if fast else frozenset[int]()
        frame = self._assign_parts(self._prepare(unchecked), 0)
        counts = [nw.len().alias("rows"), *self._extremes()]
        table = self._fetch_from_powers(frame, counts, unchecked) if fast else None
        if table is not None:
            return table
        return fetch(self._aggregate(self._assign_parts(self._prepare(), 0) if unchecked else frame, counts))

    def _seen_in_sums(self) -> frozenset[int]:
        """Inputs that are summed as they are, so that a NaN or an infinity shows in their sums of powers."""
        is_seen = [True] * len(self.inputs)
        for request, roles in zip(self.requests, self.used, strict=True):
            is_plain = len(roles) == 1 and _shaped(request, 1) == (0,)
            is_plain = is_plain and [column for column, _ in form_variables(request)] == list(roles)
            for role, used in roles.items():
                source = request.inputs[role]
                is_seen[used.place] &= is_plain and source.kind == "number" and source.cap is None
        return frozenset(place for place, seen in enumerate(is_seen) if seen)

    def _fetch_moments(self, frame: nw.LazyFrame[Any], counts: list[Any]) -> dict[str, Column]:
        """Counts and moments by group: from sums of powers where a look at some rows first takes no time."""
        table = self._fetch_from_powers(frame, counts) if engine_of(frame).sums_powers_fast else None
        return fetch(self._aggregate(frame, counts)) if table is None else table

    def _fetch_from_powers(
        self, frame: nw.LazyFrame[Any], counts: list[Any], unchecked: frozenset[int] = frozenset()
    ) -> dict[str, Column] | None:
        """The same from sums of powers; None where these would not do.

        Args:
            frame: Rows or units.
            counts: What is counted besides.
            unchecked: Places of inputs that may hold NaN and infinities: where one does, rows are read again.
        """
        import narwhals as nw

        wide = self._with_variables(frame)
        columns = self._shaped_columns()
        if not columns or any(request.centred for request in self.requests):
            return None
        tests = [nw.col(f"i{place}").is_finite().alias(f"finite{place}") for place in unchecked]
        look = fetch(wide.select(*columns, *tests).head(_SAMPLE))
        if any(False in to_list(look[f"finite{place}"]) for place in unchecked):
            return self._fetch_from_powers(self._assign_parts(self._prepare(), 0), counts)
        centers = {name: choose_center(look[name]) for name in columns}
        sums = fetch(self._aggregate(frame, counts, centers))
        if unchecked and not all(np.isfinite(to_floats(sums[f"p4_{name}"])).all() for name in columns):
            return self._fetch_from_powers(self._assign_parts(self._prepare(), 0), counts)
        table, is_far = moments_from_powers(sums, centers)
        rows = to_floats(table["rows"])
        if rows[is_far].sum() > _MAX_REQUERIED_SHARE * rows.sum():
            return None
        if is_far.any():
            self._requery_far_groups(
                frame, counts, table, is_far, [f"{kind}_{column}" for column in centers for kind in "mcsk"]
            )
        return table

    def _requery_far_groups(
        self, frame: nw.LazyFrame[Any], counts: list[Any], table: dict[str, Column], is_far: Any, columns: list[str]
    ) -> None:
        """Replace the moments of some groups by what the engine's own functions say."""
        import narwhals as nw

        keys = {name: to_list(table[name][is_far]) for name in self.keyed}
        for name, values in keys.items():
            present = [value for value in dict.fromkeys(values) if value is not None]
            chosen = nw.col(name).is_in(present)
            frame = frame.filter(chosen | nw.col(name).is_null() if None in values else chosen)
        again = fetch(self._aggregate(frame, counts))
        places_again = {
            key: i for i, key in enumerate(zip(*(to_list(again[name]) for name in self.keyed), strict=True))
        }
        chosen_places = [places_again[key] for key in zip(*keys.values(), strict=True)]
        for name in columns:
            table[name][is_far] = to_floats(again[name])[chosen_places]

    def _shaped_columns(self) -> list[str]:
        """The variables of all requests whose skewness and kurtosis are needed."""
        requests = zip(self.requests, self.columns, strict=True)
        return list(dict.fromkeys(columns[i] for request, columns in requests for i in _shaped(request, len(columns))))

    def _aggregate(
        self, frame: nw.LazyFrame[Any], counts: list[Any], centers: Mapping[str, float] | None = None
    ) -> nw.LazyFrame[Any]:
        """Counts, and the moments of all variables, by group, part and arm; what two requests share is taken once.

        With centers, sums of powers stand for the moments of these variables.
        """
        import narwhals as nw

        aggregates: dict[str, Any] = {}
        frame = self._with_variables(frame)
        for request, columns in zip(self.requests, self.columns, strict=True):
            for column in columns:
                value = nw.col(column)
                aggregates[f"n_{column}"] = value.count()
                if centers is None or column not in centers:
                    aggregates[f"m_{column}"] = value.mean()
                    aggregates |= {f"c_{column}": value.var()} if request.needs_covariance else {}
            for i, j in _pairs(request, len(columns)) if request.needs_covariance else []:
                aggregates[f"c_{columns[i]}_{columns[j]}"] = nw.cov(columns[i], columns[j])
        if centers is None:
            frame, shapes = aggregate_shapes(frame, self._shaped_columns(), self.keyed)
        else:
            frame, shapes = sum_powers(frame, centers)
        aggregates |= shapes
        if self.unit is None:
            aggregates |= {self._usable(n): nw.col(self._counted(n)).count() for n in self.together.values()}
            aggregates |= {f"have{place}": nw.col(f"i{place}").count() for place in self._counted_alone()}
        aggregates |= {used.over: nw.col(used.over).sum() for used in self._capped()}
        named = [expression.alias(name) for name, expression in aggregates.items()]
        return frame.group_by(*self.keyed).agg(*counts, *named)

    def _with_variables(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """With the variables of all requests, each under the name that `columns` has for it."""
        import narwhals as nw

        centres, variables = [], []
        self.columns = []
        for k, (request, roles) in enumerate(zip(self.requests, self.used, strict=True)):
            names = _sum_names(k, request)
            if request.sums is None:
                names = {role: used.name for role, used in roles.items()}
                for centre, role in request.centred.items():
                    centres.append(nw.col(names[role]).mean().over(*self.keyed).alias(f"centre{k}_{centre}"))
                names |= {centre: f"centre{k}_{centre}" for centre in request.centred}
            single = self._single(request) if self.unit is None else frozenset[str]()  # sums over units are not
            columns = []
            for i, (column, variable) in enumerate(form_variables(request, names, single)):
                columns.append(column or f"v{k}_{i}")
                variables += [] if column else [variable.alias(columns[-1])]
            self.columns.append(columns)
        frame = frame.with_columns(*centres) if centres else frame
        return frame.with_columns(*variables) if variables else frame

    def _usable(self, number: int) -> str:
        """The count of rows in which all inputs of a set have a value, among what is fetched."""
        return f"n_{self._counted(number)}" if self.unit is None else f"ok{number}"

    def _add_overlaps(self, k: int, frame: nw.LazyFrame[Any], parts: list[Grouped]) -> list[Grouped]:
        """The groups with what pairs of them have in common: one more scan, of units joined with themselves."""
        import narwhals as nw

        columns, keys = self.columns[k], [*self.by.names, *(["part"] if self.split else [])]
        on = ["unit", *(["part"] if self.split else []), *(["arm"] if self.variant else [])]
        units = self._with_variables(frame).filter(~nw.any_horizontal(*self._absent(), ignore_nulls=True))
        away = [(nw.col(c) - nw.col(c).mean().over(*self.keyed)).alias(f"d{i}") for i, c in enumerate(columns)]
        centered = units.select(*on, *self.by.names, *away).filter(~nw.col("d0").is_null())
        names = {name: f"o_{name}" for name in self.by.names} | {f"d{i}": f"o_d{i}" for i in range(len(columns))}
        other = centered.select(*on, *(nw.col(name).alias(new) for name, new in names.items()))
        pairs = itertools.product(range(len(columns)), repeat=2)
        both = centered.join(other, on=on, how="inner").with_columns(
            *((nw.col(f"d{i}") * nw.col(f"o_d{j}")).alias(f"x{i}_{j}") for i, j in pairs)
        )
        by = [*keys, *(names[name] for name in self.by.names), *(["arm"] if self.variant else [])]
        sums = [nw.col(f"x{i}_{j}").sum() for i, j in itertools.product(range(len(columns)), repeat=2)]
        table = fetch(both.group_by(*by).agg(nw.len().alias("both"), *sums))
        return places.add_overlaps(self.by, table, self.requests[k].arms, parts, len(columns), bool(self.split))

    def _single(self, request: Request) -> frozenset[str]:
        """Roles whose columns are of single precision."""
        import narwhals as nw

        return frozenset(
            role
            for role, source in request.inputs.items()
            if source.kind != "rows" and self.by.schema[source_column(self.rows, source)] == nw.Float32
        )

    # ------------------------------------------------------------------------------------------------------- results

    def _results(self, table: Mapping[str, Column]) -> list[list[Grouped]]:
        rows = to_floats(table["rows"])
        # A row that cannot belong to a part counts as one with a missing value, like a row without a unit.
        divided = np.isnan(to_floats(table["part"])) if self.split else np.zeros(rows.size, dtype=bool)
        self._check_values(table, np.where(divided, 0.0, 1.0))
        self.by.record_fractions(table)
        group_places = places.place_groups(self.by, table)
        results = []
        for k, (request, roles) in enumerate(zip(self.requests, self.used, strict=True)):
            number = next(iter(roles.values())).together
            usable = np.where(divided, 0.0, to_floats(table[self._usable(number)]))
            arm_places = places.place_arms(table, request.arms, rows.size)
            dropped = places.count_dropped(rows, usable, arm_places, request.arms)
            missing = places.count_missing(
                rows, usable, arm_places, group_places, self._present(table, roles), self.variant
            )
            parts = places.split_rows(table, len(self.split.shares) if self.split else 0)
            of_parts = []
            for part in parts:
                grouped = self._group(k, table, group_places, arm_places, part)
                capped = next((used for used in roles.values() if used.place in self.caps), None)
                if capped is not None:
                    count = _sum_by_group(to_floats(table[capped.over]), group_places, arm_places, part)
                    column = next(source.column for source, place in self.inputs.items() if place == capped.place)
                    grouped = replace(grouped, capped=Capped(column, self.caps[capped.place], count))
                every, lost = (_sum_by_group(c, group_places, arm_places, part) for c in (rows, rows - usable))
                of_parts.append(replace(grouped, dropped=dropped, rows=every, lost=lost, missing=missing))
            results.append(of_parts)
        return results

    def _present(self, table: Mapping[str, Column], roles: Mapping[str, _Used]) -> dict[str, Any]:
        """Column → how many rows have a value there."""
        alone, columns = self._counted_alone(), [source.column for source in self.inputs]
        present = {
            columns[used.place]: to_floats(
                table[f"have{used.place}" if used.place in alone else self._usable(used.together)]
            )
            for used in roles.values()
        }
        return present | ({self.unit: to_floats(table["have_unit"])} if self.unit else {})

    def _group(
        self,
        k: int,
        table: Mapping[str, Column],
        group_places: places.GroupPlaces,
        arm_places: places.ArmPlaces,
        part: Any,
    ) -> Grouped:
        """The moments of the k-th request in one part, by group and arm."""
        used = (arm_places.arms >= 0) & part
        at = (group_places.groups[used], arm_places.arms[used])
        request, columns = self.requests[k], self.columns[k]
        count = len(columns)
        shape = (len(group_places.keys), arm_places.number)
        n, mean = np.zeros((*shape, count)), np.full((*shape, count), np.nan)
        cov = np.full((*shape, count, count), np.nan)
        for i, column in enumerate(columns):
            n[(*at, i)] = to_floats(table[f"n_{column}"])[used]
            mean[(*at, i)] = to_floats(table[f"m_{column}"])[used]
        if request.needs_covariance:
            for i, column in enumerate(columns):
                cov[(*at, i, i)] = to_floats(table[f"c_{column}"])[used]
            for i, j in _pairs(request, count):
                cov[(*at, i, j)] = cov[(*at, j, i)] = to_floats(table[f"c_{columns[i]}_{columns[j]}"])[used]
        shapes = []
        for prefix in ("s", "k"):
            shape_of = np.full((*shape, count), np.nan)
            for i in _shaped(request, count):
                shape_of[(*at, i)] = to_floats(table[f"{prefix}_{columns[i]}"])[used]
            shapes.append(shape_of)
        moments = Moments(n, mean, cov, shapes[0], shapes[1] + 3)
        return Grouped(group_places.keys, moments, {}, treatments=arm_places.treatments)

    def _check_values(self, table: Mapping[str, Column], counts: Any) -> None:
        for source, place in self.inputs.items():
            extremes = {
                kind: [table[f"{end}_{kind}{place}"] for end in ("min", "max")]
                for checked, kind in self.checks
                if checked == place
            }
            usable = max(
                float((to_floats(table[self._usable(number)]) * counts).sum())
                for joined, number in self.together.items()
                if place in joined
            )
            check_input(self.rows, source, self.parameters[place], extremes, usable)

    def _check_units(self, units: nw.LazyFrame[Any], table: Mapping[str, Column]) -> None:
        """Refuse units that are in several groups or arms: first all at once, then, if any, for each request."""
        import narwhals as nw

        some = nw.any_horizontal(*(nw.col(f"ok{n}") > 0 for n in self.together.values()), ignore_nulls=True)
        usable = units.filter(some & ~nw.any_horizontal(*self._absent(), ignore_nulls=True))
        unit = ["unit", *self.by.names[: self.by.separate]]
        total = fetch(usable.select(nw.len().alias("all"), nw.col("unit").n_unique().alias("distinct")))
        if to_floats(total["all"])[0] == to_floats(total["distinct"])[0]:
            return
        rows = to_floats(table["rows"]).size
        for request, roles in zip(self.requests, self.used, strict=True):
            if request.overlap != "error" and not request.arms:
                continue
            number = next(iter(roles.values())).together
            used = usable.filter(nw.col(f"ok{number}") > 0)
            if request.arms:
                used = used.filter(nw.col("arm").is_in(list(places.place_arms(table, request.arms, rows).values)))
            arms_of = nw.col("arm" if self.variant else "unit").n_unique()
            each = used.group_by(*unit).agg(nw.len().alias("places"), arms_of.alias("arms"))
            several = (nw.when(nw.col(name) > 1).then(1).otherwise(0).alias(name) for name in ("places", "arms"))
            sums = nw.col("places", "arms").sum()
            counted = fetch(each.with_columns(*several).select(sums, nw.len().alias("units")))
            anywhere, in_arms, distinct = (
                int(np.nan_to_num(to_floats(counted[name])[0])) for name in ("places", "arms", "units")
            )
            if in_arms or (anywhere and request.overlap == "error"):
                raise units_in_several_error(self.unit, anywhere, request, in_arms, distinct)

    def _count_distinct(self, k: int, units: nw.LazyFrame[Any], parts: list[Grouped]) -> list[Grouped]:
        """The groups with the number of different units of every arm in all of them, each counted once."""
        import narwhals as nw

        request, number = self.requests[k], next(iter(self.used[k].values())).together
        used = units.filter((nw.col(f"ok{number}") > 0) & ~nw.any_horizontal(*self._absent(), ignore_nulls=True))
        keys = [*(["part"] if self.split else []), *(["arm"] if self.variant else [])]
        counts = nw.col("unit").n_unique().alias("n")
        table = fetch(used.group_by(*keys).agg(counts) if keys else used.select(counts))
        sizes = to_floats(table["n"])
        arm_places = places.place_arms(table, request.arms, sizes.size)
        counted = []
        for grouped, part in zip(parts, places.split_rows(table, len(parts) if self.split else 0), strict=True):
            chosen = part & (arm_places.arms >= 0)
            distinct = to_floats(np.bincount(arm_places.arms[chosen], sizes[chosen], arm_places.number))
            counted.append(replace(grouped, distinct=distinct))
        return counted

    def _absent(self) -> list[Any]:
        import narwhals as nw

        return [nw.col(name).is_null() for name in ("unit", *(["arm"] if self.variant else []))]


def _aggregate_rows(source: Input, column: Any) -> Any:
    """What a unit has of an input of its rows."""
    import narwhals as nw

    if source.per_unit or source.aggregate == "mean":
        return column.mean()
    if source.aggregate == "any":
        is_some = nw.when(column != 0).then(nw.lit(1.0)).otherwise(nw.lit(0.0))
        return nw.when(~column.is_null()).then(is_some).max()
    return column.sum()


def _sum_name(k: int, name: str) -> str:
    """The column of a sum over units of the k-th request."""
    return f"u{k}_{name}"


def _sum_names(k: int, request: Request) -> dict[str, str]:
    """The sums over units of the k-th request, and their columns; none where its inputs are summed as they are."""
    if request.sums is None:
        return {}
    roles = {role: role for role in (*request.inputs, *request.centred)}
    return {name: _sum_name(k, name) for name in request.sums(Expressions(roles))}


def units_in_several_error(
    unit: str | None, count: int, request: Request, in_arms: int = 0, units: int | None = None
) -> InputError:
    """The error of units in more than one place.

    Args:
        unit: The column of units.
        count: Units in more than one variant or group.
        request: What was asked for.
        in_arms: Those of them that are in more than one variant, which no option allows for.
        units: All units. Where most of them are in several variants, that is the design: paired samples.
    """
    if in_arms:
        count, problem = in_arms, "variant"
        remedy = "They have had several: find out why, and leave them out of all variants."
        if units is not None and 2 * in_arms > units:
            remedy = (
                "These are paired samples: pivot the rows to one column per variant, and measure the change with "
                "fl.paired as in docs/howto/llm-evaluations.md."
            )
    elif request.ranking is not None or request.resampling is not None:
        problem, remedy = "group", "A unit must be in one: leave such units out, or group by what cannot change."
    else:
        problem = "group"
        remedy = (
            "A unit must be in one: leave such units out, group by what cannot change, or allow for units in several "
            "groups with {overlap}."
        )
    return InputError.invalid_data(
        "unit",
        f"{count:,} units are in more than one {problem}",
        remedy,
        unit,
        settings={"overlap": "covariance"},
        form="clause",
    )


def _pairs(request: Request, count: int) -> list[tuple[int, int]]:
    """Pairs of variables whose covariance is needed."""
    return list(itertools.combinations(range(count), 2) if request.pairs is None else request.pairs)


def _sum_by_group(counts: Any, group_places: places.GroupPlaces, arm_places: places.ArmPlaces, part: Any) -> FloatArray:
    """Counts of fetched rows by group and arm."""
    used = (arm_places.arms >= 0) & part
    sums = np.zeros((len(group_places.keys), arm_places.number))
    np.add.at(sums, (group_places.groups[used], arm_places.arms[used]), counts[used])
    return sums


def _shaped(request: Request, count: int) -> tuple[int, ...]:
    """Variables whose skewness and kurtosis are needed."""
    if not request.needs_covariance:
        return ()
    return tuple(range(count)) if request.shaped is None else request.shaped


# ---------------------------------------------------------------------------------------------------- parts of the data
# Random numbers that need no memory: a unit has a number h of its hash, and (a·h + b) mod p is random anew each time.
#
# With a and b drawn anew, units fall anew: into parts of the data, or into shuffled groups. Rows of a unit fall
# together, and into the same part on every engine.

PRIME = 2**31 - 1
HASH = "hashed"  # the column of h
_SPLITTING = 0x5917  # the random stream of the factors of splits


def draw_factors(seed: int, stream: int, count: int) -> tuple[IntArray, IntArray]:
    """Draw factors a and shifts b, in a random stream of their own."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream,)))
    return rng.integers(1, PRIME, count), rng.integers(0, PRIME, count)


def random_number(factor: Any, shift: Any) -> Any:
    """The random number of a row as an expression: a whole number below the prime; null for null."""
    import narwhals as nw

    return (factor * nw.col(HASH) + shift) % PRIME


def hash_units(frame: nw.LazyFrame[Any], split: Split) -> nw.LazyFrame[Any]:
    """Add the number h of each row's unit."""
    return hash_column(frame, "unit", split.seed, HASH)


def assign_parts(frame: nw.LazyFrame[Any], split: Split, repetition: int) -> nw.LazyFrame[Any]:
    """Add the part that each hashed row falls into at a repetition of the split; null for rows without a unit."""
    import narwhals as nw

    factor, shift = 1 << 31 - HASH_BITS, 0  # the first time it is the hash itself
    if repetition:
        factors, shifts = draw_factors(split.seed, _SPLITTING, split.times)
        factor, shift = int(factors[repetition]), int(shifts[repetition])
    number, part, upper = random_number(factor, shift), nw.lit(0), 0.0
    for share in split.shares[:-1]:
        upper += share
        part = part + nw.when(number >= round(upper * PRIME)).then(nw.lit(1)).otherwise(nw.lit(0))
    return frame.with_columns(nw.when(~nw.col(HASH).is_null()).then(part).alias("part")).drop(HASH)
