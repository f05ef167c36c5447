"""Several requests, one scan: the group-by that brings the moments of all variables of all requests.

Requests share a scan where they have the same column of variants and the same unit. Every distinct input is cleaned
once; every distinct set of inputs that must not be null together is counted once. With units, rows are summed to them
in one table, from which come the moments, the counts, and the check for units in several places.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.errors import InputError, shorten
from faultlines.rows import chance, places
from faultlines.rows.expressions import formed
from faultlines.rows.inputs import check, check_labels, cleaned, source
from faultlines.rows.keys import not_nan
from faultlines.rows.request import Grouped, Moments
from faultlines.rows.shapes import with_shapes
from faultlines.sources.fetch import fetch, floats
from faultlines.sources.kept import kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import narwhals as nw

    from faultlines.rows.keys import Keys
    from faultlines.rows.request import Input, Request, Split
    from faultlines.sources.fetch import Column
    from faultlines.sources.frames import Rows


class _Used(NamedTuple):
    """An input of a request: which cleaned input, and the number of the set of inputs it is used with."""

    place: int
    together: int

    @property
    def name(self) -> str:
        return f"i{self.place}_{self.together}"


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

    def _use(self, request: Request) -> dict[str, _Used]:
        for role, wanted in request.inputs.items():
            if wanted not in self.inputs:
                self.inputs[wanted] = len(self.inputs)
                self.parameters.append(wanted.parameter or role)
        joined = frozenset(self.inputs[wanted] for wanted in request.inputs.values())
        number = self.together.setdefault(joined, len(self.together))
        return {role: _Used(self.inputs[wanted], number) for role, wanted in request.inputs.items()}

    def run(self) -> list[list[Grouped]]:
        """For every request, the groups with their moments; once for each part of the rows."""
        import narwhals as nw

        prepared = self._prepared()
        if self.unit is None:
            counts = [nw.len().alias("rows"), *self._ends()]
            if self._times == 1:
                return self._results(self._moments(self._divided(prepared, 0), counts))
            with kept(prepared) as rows:
                return self._every_time(rows, counts)[0]
        with kept(self._by_unit(prepared)) as units:
            found, table = self._every_time(self._usable_units(units), self._unit_counts())
            self._check_units(units, table)
            return found

    def asked(self) -> nw.LazyFrame[Any]:
        """The query itself, of rows that are not divided, before it is run."""
        import narwhals as nw

        prepared = self._prepared()
        if self.unit is None:
            return self._summed(prepared, [nw.len().alias("rows"), *self._ends()])
        return self._summed(self._usable_units(self._by_unit(prepared)), self._unit_counts())

    @property
    def _times(self) -> int:
        """How many times rows are divided into parts, or once where they are not."""
        return self.split.times if self.split else 1

    def _every_time(
        self, frame: nw.LazyFrame[Any], counts: list[Any]
    ) -> tuple[list[list[Grouped]], Mapping[str, Column]]:
        """The results of all times that rows are divided, one after the other, and the table behind the last."""
        found: list[list[Grouped]] = [[] for _ in self.requests]
        table: Mapping[str, Column] = {}
        for time in range(self._times):
            divided = self._divided(frame, time)
            table = self._moments(divided, counts)
            for k, (parts, more) in enumerate(zip(found, self._results(table), strict=True)):
                parts.extend(more if self.requests[k].overlap == "error" else self._overlapping(k, divided, more))
        return found, table

    # ------------------------------------------------------------------------------------------------------- columns

    def _prepared(self) -> nw.LazyFrame[Any]:
        """Keys, arm, unit, part and cleaned inputs under names of our own, null where others they go with are null."""
        import narwhals as nw

        schema, rows = self.by.schema, self.rows
        for request in self.requests:
            check_labels(rows, request.inputs)
        picked = self.by.expressions()
        if self.variant:
            picked.append(not_nan(rows.keys[self.variant], schema[rows.keys[self.variant]]).alias("arm"))
        unit = self.unit or (self.split.unit if self.split else None)
        if unit:
            picked.append(not_nan(rows.keys[unit], schema[rows.keys[unit]]).alias("unit"))
        for wanted, place in self.inputs.items():
            made = cleaned(rows, wanted, self.parameters[place])
            picked.append(made.value.alias(f"i{place}"))
            picked += [expression.alias(f"{kind}{place}") for kind, expression in made.checks.items()]
            self.checks += [(place, kind) for kind in made.checks]
        picked += [expression.alias(name) for name, expression in self.by.fractions().items()]
        frame = rows.frame.select(*picked)
        if self.split and self.unit is None:
            frame = chance.numbered(frame, self.split)
        nulled = []
        for joined, number in self.together.items():
            for place in joined:
                others = [~nw.col(f"i{other}").is_null() for other in sorted(joined) if other != place]
                value = nw.col(f"i{place}")
                value = nw.when(nw.all_horizontal(*others, ignore_nulls=False)).then(value) if others else value
                nulled.append(value.alias(_Used(place, number).name))
        return frame.with_columns(*nulled)

    def _divided(self, frame: nw.LazyFrame[Any], time: int) -> nw.LazyFrame[Any]:
        """With the number of the part a unit falls into that time."""
        return frame if self.split is None else chance.divided(frame, self.split, time)

    def _counted(self, number: int) -> str:
        """An input whose values are the rows in which all inputs of a set have one."""
        joined = next(joined for joined, known in self.together.items() if known == number)
        return _Used(min(joined), number).name

    # -------------------------------------------------------------------------------------------------------- counts

    def _ends(self, *, again: bool = False) -> list[Any]:
        """Smallest and largest of what inputs should not hold: enough to see it, and to name one.

        Args:
            again: Of the ends by unit, not of the values.
        """
        import narwhals as nw

        made = [
            getattr(nw.col(f"{end}_{kind}{place}" if again else f"{kind}{place}"), end)().alias(f"{end}_{kind}{place}")
            for place, kind in self.checks
            for end in ("min", "max")
        ]
        return made + [nw.col(name).max().alias(name) for name in self.by.fractions()]

    def _by_unit(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Rows summed to the unit; what describes the unit (covariate, weight) is averaged."""
        import narwhals as nw

        kinds = {place: wanted for wanted, place in self.inputs.items()}
        sums = []
        for used in dict.fromkeys(used for roles in self.used for used in roles.values()):
            column = nw.col(used.name)
            sums.append((column.mean() if kinds[used.place].per_unit else column.sum()).alias(used.name))
        keys = [key for key in self.keyed if key != "part"]
        counts = [nw.col(self._counted(n)).count().alias(f"ok{n}") for n in self.together.values()]
        summed = frame.group_by(*keys, "unit").agg(nw.len().alias("rows"), *counts, *self._ends(), *sums)
        return chance.numbered(summed, self.split) if self.split else summed

    def _usable_units(self, units: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """Values of units that have some; rows without a unit count for nothing."""
        import narwhals as nw

        known = ~nw.col("unit").is_null()
        frame = units.with_columns(
            *(
                nw.when(known).then(nw.col(f"ok{n}")).otherwise(nw.lit(0)).alias(f"ok{n}")
                for n in self.together.values()
            )
        )
        return frame.with_columns(
            *(
                nw.when(nw.col(f"ok{used.together}") > 0).then(nw.col(used.name)).alias(used.name)
                for used in dict.fromkeys(used for roles in self.used for used in roles.values())
            )
        )

    def _unit_counts(self) -> list[Any]:
        import narwhals as nw

        counts = [nw.col("rows").sum().alias("rows")]
        counts += [nw.col(f"ok{n}").sum().alias(f"ok{n}") for n in self.together.values()]
        return counts + self._ends(again=True)

    # ------------------------------------------------------------------------------------------------------- moments

    def _moments(self, frame: nw.LazyFrame[Any], counts: list[Any]) -> dict[str, Column]:
        return fetch(self._summed(frame, counts))

    def _summed(self, frame: nw.LazyFrame[Any], counts: list[Any]) -> nw.LazyFrame[Any]:
        """Counts, and the moments of all variables, by group, part and arm; what two requests share is taken once."""
        import narwhals as nw

        wanted, shaped = dict[str, Any](), dict[str, None]()
        frame = self._with_variables(frame)
        for request, columns in zip(self.requests, self.columns, strict=True):
            for column in columns:
                value = nw.col(column)
                wanted |= {f"n_{column}": value.count(), f"m_{column}": value.mean()}
                wanted |= {f"c_{column}": value.var()} if request.needs_covariance else {}
            for i, j in _pairs(request, len(columns)) if request.needs_covariance else []:
                wanted[f"c_{columns[i]}_{columns[j]}"] = nw.cov(columns[i], columns[j])
            shaped |= dict.fromkeys(columns[i] for i in _shaped(request, len(columns)))
        frame, shapes = with_shapes(frame, list(shaped), self.keyed)
        wanted |= shapes
        if self.unit is None:
            wanted |= {self._usable(n): nw.col(self._counted(n)).count() for n in self.together.values()}
        aggregates = [expression.alias(name) for name, expression in wanted.items()]
        return frame.group_by(*self.keyed).agg(*counts, *aggregates)

    def _with_variables(self, frame: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
        """With the variables of all requests, each under the name that `columns` has for it."""
        import narwhals as nw

        centres, variables = [], []
        self.columns = []
        for k, (request, roles) in enumerate(zip(self.requests, self.used, strict=True)):
            names = {role: used.name for role, used in roles.items()}
            for centre, role in request.centred.items():
                centres.append(nw.col(names[role]).mean().over(*self.keyed).alias(f"centre{k}_{centre}"))
            names |= {centre: f"centre{k}_{centre}" for centre in request.centred}
            columns = []
            for i, (column, variable) in enumerate(formed(request, names, self._single(request))):
                columns.append(column or f"v{k}_{i}")
                variables += [] if column else [variable.alias(columns[-1])]
            self.columns.append(columns)
        frame = frame.with_columns(*centres) if centres else frame
        return frame.with_columns(*variables) if variables else frame

    def _usable(self, number: int) -> str:
        """The count of rows in which all inputs of a set have a value, among what is fetched."""
        return f"n_{self._counted(number)}" if self.unit is None else f"ok{number}"

    def _overlapping(self, k: int, frame: nw.LazyFrame[Any], parts: list[Grouped]) -> list[Grouped]:
        """The groups with what pairs of them have in common: one more scan, of units joined with themselves."""
        import narwhals as nw

        columns, keys = self.columns[k], [*self.by.names, *(["part"] if self.split else [])]
        on = ["unit", *(["part"] if self.split else []), *(["arm"] if self.variant else [])]
        known = self._with_variables(frame).filter(~nw.any_horizontal(*self._absent(), ignore_nulls=True))
        away = [(nw.col(c) - nw.col(c).mean().over(*self.keyed)).alias(f"d{i}") for i, c in enumerate(columns)]
        moved = known.select(*on, *self.by.names, *away).filter(~nw.col("d0").is_null())
        names = {name: f"o_{name}" for name in self.by.names} | {f"d{i}": f"o_d{i}" for i in range(len(columns))}
        other = moved.select(*on, *(nw.col(name).alias(new) for name, new in names.items()))
        pairs = itertools.product(range(len(columns)), repeat=2)
        both = moved.join(other, on=on, how="inner").with_columns(
            *((nw.col(f"d{i}") * nw.col(f"o_d{j}")).alias(f"x{i}_{j}") for i, j in pairs)
        )
        by = [*keys, *(names[name] for name in self.by.names), *(["arm"] if self.variant else [])]
        sums = [nw.col(f"x{i}_{j}").sum() for i, j in itertools.product(range(len(columns)), repeat=2)]
        table = fetch(both.group_by(*by).agg(nw.len().alias("both"), *sums))
        return places.together(self.by, table, self.requests[k].arms, parts, len(columns), bool(self.split))

    def _single(self, request: Request) -> frozenset[str]:
        """Roles whose columns are of single precision; sums over units are not."""
        import narwhals as nw

        if self.unit is not None:
            return frozenset()
        return frozenset(
            role for role, wanted in request.inputs.items() if self.by.schema[source(self.rows, wanted)] == nw.Float32
        )

    # ------------------------------------------------------------------------------------------------------- results

    def _results(self, table: Mapping[str, Column]) -> list[list[Grouped]]:
        rows = floats(table["rows"])
        # A row that cannot belong to a part counts as one with a missing value, like a row without a unit.
        divided = np.isnan(floats(table["part"])) if self.split else np.zeros(rows.size, dtype=bool)
        self._check_values(table, np.where(divided, 0.0, 1.0))
        self.by.settle(table)
        where = places.placed(self.by, table)
        found = []
        for k, (request, roles) in enumerate(zip(self.requests, self.used, strict=True)):
            number = next(iter(roles.values())).together
            usable = np.where(divided, 0.0, floats(table[self._usable(number)]))
            arms = places.compared(table, request.arms, rows.size)
            gone = places.dropped(rows, usable, arms, request.arms)
            parts = places.in_part(table, len(self.split.shares) if self.split else 0)
            of_parts = [self._grouped(k, request, table, where, arms, part, gone) for part in parts]
            lost = [_placed(rows - usable, where, arms, part) for part in parts]
            every = [_placed(rows, where, arms, part) for part in parts]
            found.append([replace(o, rows=n, lost=m) for o, n, m in zip(of_parts, every, lost, strict=True)])
        return found

    def _grouped(
        self,
        k: int,
        request: Request,
        table: Mapping[str, Column],
        where: places.Placed,
        found: places.Compared,
        part: Any,
        gone: dict[str, int],
    ) -> Grouped:
        kept_rows = (found.arms >= 0) & part
        at = (where.groups[kept_rows], found.arms[kept_rows])
        columns = self.columns[k]
        count = len(columns)
        shape = (len(where.keys), found.number)
        n, mean = np.zeros((*shape, count)), np.full((*shape, count), np.nan)
        cov = np.full((*shape, count, count), np.nan)
        for i, column in enumerate(columns):
            n[(*at, i)] = floats(table[f"n_{column}"])[kept_rows]
            mean[(*at, i)] = floats(table[f"m_{column}"])[kept_rows]
        if request.needs_covariance:
            for i, column in enumerate(columns):
                cov[(*at, i, i)] = floats(table[f"c_{column}"])[kept_rows]
            for i, j in _pairs(request, count):
                cov[(*at, i, j)] = cov[(*at, j, i)] = floats(table[f"c_{columns[i]}_{columns[j]}"])[kept_rows]
        shapes = []
        for prefix in ("s", "k"):
            shape_of = np.full((*shape, count), np.nan)
            for i in _shaped(request, count):
                shape_of[(*at, i)] = floats(table[f"{prefix}_{columns[i]}"])[kept_rows]
            shapes.append(shape_of)
        moments = Moments(n, mean, cov, shapes[0], shapes[1] + 3)
        return Grouped(where.keys, moments, gone, treatments=found.treatments)

    def _check_values(self, table: Mapping[str, Column], counts: Any) -> None:
        for wanted, place in self.inputs.items():
            ends = {
                kind: [table[f"{end}_{kind}{place}"] for end in ("min", "max")]
                for checked, kind in self.checks
                if checked == place
            }
            usable = max(
                float((floats(table[self._usable(number)]) * counts).sum())
                for joined, number in self.together.items()
                if place in joined
            )
            check(self.rows, wanted, self.parameters[place], ends, usable)

    def _check_units(self, units: nw.LazyFrame[Any], table: Mapping[str, Column]) -> None:
        """Refuse units that are in several groups or arms: first all at once, then, if any, for each request."""
        import narwhals as nw

        some = nw.any_horizontal(*(nw.col(f"ok{n}") > 0 for n in self.together.values()), ignore_nulls=True)
        known = units.filter(some & ~nw.any_horizontal(*self._absent(), ignore_nulls=True))
        one = ["unit", *self.by.names[: self.by.separate]]
        total = fetch(known.select(nw.len().alias("all"), nw.col("unit").n_unique().alias("distinct")))
        if floats(total["all"])[0] == floats(total["distinct"])[0]:
            return
        rows = floats(table["rows"]).size
        for request, roles in zip(self.requests, self.used, strict=True):
            if request.overlap != "error" and not request.arms:
                continue
            number = next(iter(roles.values())).together
            used = known.filter(nw.col(f"ok{number}") > 0)
            if request.arms:
                used = used.filter(nw.col("arm").is_in(list(places.compared(table, request.arms, rows).values)))
            places_of = nw.len() if request.overlap == "error" or not self.variant else nw.col("arm").n_unique()
            several = used.group_by(*one).agg(places_of.alias("places")).filter(nw.col("places") > 1)
            count = int(floats(fetch(several.select(nw.len().alias("n")))["n"])[0])
            if count:
                raise _in_several(self.unit, count, request)

    def _absent(self) -> list[Any]:
        import narwhals as nw

        return [nw.col(name).is_null() for name in ("unit", *(["arm"] if self.variant else []))]


def _in_several(unit: str | None, count: int, request: Request) -> InputError:
    """The error of units in more than one place."""
    if request.overlap != "error":
        problem, remedy = "variant", "Leave such units out: they have had both."
    else:
        problem = "variant or group" if request.arms else "group"
        remedy = (
            "A unit must be in one of each: leave such units out, group by what cannot change, or allow for units in "
            "several groups with overlap='covariance'."
        )
    return InputError(f"unit={shorten(unit)}", f"{count:,} units are in more than one {problem}", remedy)


def _pairs(request: Request, count: int) -> list[tuple[int, int]]:
    """Pairs of variables whose covariance is needed."""
    return list(itertools.combinations(range(count), 2) if request.pairs is None else request.pairs)


def _placed(counts: Any, where: places.Placed, found: places.Compared, part: Any) -> Any:
    """Counts of fetched rows by group and arm."""
    kept_rows = (found.arms >= 0) & part
    made = np.zeros((len(where.keys), found.number))
    np.add.at(made, (where.groups[kept_rows], found.arms[kept_rows]), counts[kept_rows])
    return made


def _shaped(request: Request, count: int) -> tuple[int, ...]:
    """Variables whose skewness and kurtosis are needed."""
    if not request.needs_covariance:
        return ()
    return tuple(range(count)) if request.shaped is None else request.shaped
