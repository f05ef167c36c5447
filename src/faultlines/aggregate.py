"""Rows in, moments out: one group-by on the engine the rows are already in; only groups ever leave it.

DuckDB reads files, pandas and PyArrow where they are; Polars runs in its streaming engine; Spark and Ibis run wherever
they run. All get the same narwhals expressions.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines import frames
from faultlines.errors import InputError, shorten
from faultlines.estimates import Estimates, Excluded
from faultlines.metrics import Metric, Moments
from faultlines.progress import working

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import narwhals as nw

    from faultlines.estimates import Label
    from faultlines.metrics import Aggregated, Arms, Input

MIN_SIZE = 20  # rows (units) a group needs in every arm, unless the user says otherwise


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """A group of numbers from `lower` to below `upper`; reads as a range and sorts as a number."""

    lower: float
    upper: float
    whole: bool = False

    def __str__(self) -> str:
        if self.lower == -np.inf:
            return f"below {self.upper:.12g}"
        if self.upper == np.inf:
            return f"{self.lower:.12g} or more"
        if self.whole:
            last = self.upper - 1
            return f"{self.lower:.12g}" if last == self.lower else f"{self.lower:.12g}–{last:.12g}"
        return f"{self.lower:.12g} to {self.upper:.12g}"


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
        quantiles: So many groups of about equal size.
        edges: Groups between these edges, each including its lower one, and one beyond either end.
    """
    if sum(option is not None for option in (width, quantiles, edges)) != 1:
        raise InputError(f"bins({column!r})", "needs one of width, quantiles and edges", "Give exactly one of them.")
    if width is not None and not (isinstance(width, int | float | np.number) and 0 < width < np.inf):
        raise InputError(f"width={shorten(width)}", "must be a number above zero", "Use for example width=5.")
    if quantiles is not None and not (isinstance(quantiles, int | np.integer) and 2 <= quantiles <= 1000):
        raise InputError(f"quantiles={shorten(quantiles)}", "must be from 2 to 1000", "Use for example quantiles=10.")
    if edges is not None:
        listed = [float(edge) for edge in edges]
        if not listed or not np.all(np.isfinite(listed)) or np.any(np.diff(listed) <= 0):
            raise InputError(f"edges={shorten(edges)}", "must be finite and rising", "Use for example edges=[18, 65].")
        return Bins(column, edges=tuple(listed))
    return Bins(column, width=None if width is None else float(width), quantiles=quantiles)


class Measurement(NamedTuple):
    """What came out of the rows: estimates, the groups that could not be used, and the rows that were not."""

    estimates: Estimates
    excluded: tuple[Excluded, ...]
    dropped: Mapping[str, int]
    by: tuple[str | Bins, ...]


def measure(
    data: object, by: str | Bins | Sequence[str | Bins], metric: Metric, *, min_size: float | None = None
) -> Measurement:
    """Estimate a metric in every group of rows.

    Args:
        data: A frame (pandas, Polars, PyArrow, DuckDB, Spark, Ibis), or path, paths or glob of csv or parquet files.
        by: The column, or the columns, whose combinations are the groups; `fl.bins(...)` cuts a numeric one.
        metric: What to measure.
        min_size: Groups with fewer rows (units) in an arm are left out. Default: 20.
    """
    if not isinstance(metric, Metric):
        raise InputError(
            f"metric={shorten(metric)}", "is not a metric", 'Use for example fl.rate("converted") or fl.lift(...).'
        )
    attributes = [by] if isinstance(by, str | Bins) else list(by)
    if not attributes or not all(isinstance(a, str | Bins) for a in attributes):
        raise InputError(
            f"by={shorten(by)}", "names no column", "Name the columns that hold the groups, or fl.bins(...)."
        )
    names = tuple(a.column if isinstance(a, Bins) else a for a in attributes)
    if len(set(names)) < len(names):
        raise InputError(f"by={shorten(list(names))}", "names a column twice", "Name each column once.")
    least = MIN_SIZE if min_size is None else min_size
    if isinstance(least, bool) or not isinstance(least, int | float | np.number) or not least >= 0:
        raise InputError(f"min_size={shorten(min_size)}", "must be a number, 0 or more", "Use for example min_size=30.")
    # In csv files these are names, whatever they look like: 007 stays 007, and yes/no does not become a truth value.
    text = [a for a in attributes if isinstance(a, str)] + ([metric.arms.column] if metric.arms else [])
    text += [wanted.column for wanted in metric.inputs.values() if isinstance(wanted.positive, str)]
    wanted = {f"by[{i}]" if len(names) > 1 else "by": name for i, name in enumerate(names)} | metric.columns()
    with frames.scan(data, wanted, as_text=text) as frame:
        groups = _Attributes(frame, attributes, from_text=isinstance(data, str | Path | list | tuple))
        with working("reading rows"):
            grouped = _Query(frame, groups, metric).run()
    if not grouped.labels:
        raise InputError("data", "has no rows", "Give at least one row for each group.")
    return _estimates(grouped, names, metric, float(least), groups.resolved())


def _estimates(
    grouped: _Grouped, names: tuple[str, ...], metric: Metric, least: float, by: tuple[str | Bins, ...]
) -> Measurement:
    measured = metric.estimate(grouped.moments)
    sizes = grouped.moments.n.min(axis=(1, 2))
    reason = measured.reason
    reason[(reason == "") & (sizes < least)] = f"fewer than {least:g} rows" + (" in an arm" if metric.arms else "")
    flat = measured.theta.reshape(len(reason), -1)
    reason[(reason == "") & ~np.all(np.isfinite(flat), axis=1)] = "not a finite number"
    keep = reason == ""
    labels = [label[0] if len(names) == 1 else label for label in grouped.labels]
    excluded = tuple(Excluded(label, str(why)) for label, why in zip(labels, reason, strict=True) if why)
    if not keep.any():
        found = {str(why): int((reason == why).sum()) for why in dict.fromkeys(reason.tolist())}
        shown = "; ".join(f"{why} ({count:,})" for why, count in found.items())
        raise InputError(
            f"by={list(names)!r}",
            f"none of {len(labels):,} groups can be used: {shown}",
            "Use coarser groups or min_size.",
        )
    estimates = Estimates(
        measured.theta[keep],
        measured.se[keep],
        [label for label, kept in zip(labels, keep.tolist(), strict=True) if kept],
        measured.n[keep],
        None if measured.dof is None else measured.dof[keep],
        attributes=names,
        natural=measured.natural[keep],
        scale=metric.scale,
        measure=metric.name,
    )
    return Measurement(estimates, excluded, {why: count for why, count in grouped.dropped.items() if count}, by)


def attach(
    data: object,
    by: Sequence[str | Bins],
    values: Callable[[Sequence[Label], Sequence[int]], Sequence[float]],
    column: str,
    *,
    whole: bool,
) -> Any:
    """Give every row a value that depends on its group, in the frame's own type.

    Args:
        data: The frame.
        by: What its groups are.
        values: From the groups that occur and their numbers of rows to a value for each; NaN leaves a row without one.
        column: The name of the new column.
        whole: Whether the values are whole numbers.
    """
    import narwhals as nw

    try:
        frame = nw.from_native(data)  # type: ignore[call-overload]
    except TypeError as error:
        raise InputError(
            f"frame={type(data).__name__}", "is not a frame", "Give a frame, not a path or a list."
        ) from error
    names = [a.column if isinstance(a, Bins) else a for a in by]
    present = frame.collect_schema().names()
    frames.check_columns({f"by[{i}]": name for i, name in enumerate(names)}, present)
    if column in present:
        raise InputError(f"column={column!r}", "is there already", "Choose another name for the new column.")
    lazy = frame if isinstance(frame, nw.LazyFrame) else frame.lazy()
    groups = _Attributes(lazy, by, from_text=False)
    keys = groups.expressions()
    texts = [
        nw.when(nw.col(k).is_null()).then(nw.lit(frames.MISSING)).otherwise(nw.col(k).cast(nw.String))
        for k in groups.keys
    ]
    whose = nw.concat_str(*texts, separator="\x1f").alias("whose")
    found = frames.fetch(
        lazy.select(*keys).with_columns(whose).group_by("whose", *groups.keys).agg(nw.len().alias("rows"))
    )
    parts = [groups.labels(i, found[k]) for i, k in enumerate(groups.keys)]
    labels = parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))
    given = np.asarray(values(labels, frames.floats(found["rows"]).astype(int).tolist()), dtype=float)
    kind = nw.Int64 if whole else nw.Float64
    whose_list, blank = frames.labels(found["whose"]), np.isnan(given)
    filled = [(int(v) if whole else float(v)) if v == v else -1 for v in given.tolist()]  # noqa: PLR0124
    if isinstance(frame, nw.LazyFrame):
        return frames.joined(
            frame, keys, whose, dict(zip(whose_list, given.tolist(), strict=True)), column, kind
        ).to_native()
    marked = frame.with_columns(*keys).with_columns(whose)
    value = nw.col("whose").replace_strict(whose_list, filled, return_dtype=kind)
    if blank.any():
        value = nw.when(~nw.col("whose").is_in([w for w, b in zip(whose_list, blank.tolist(), strict=True) if b])).then(
            value
        )
    return marked.with_columns(value.alias(column)).drop("whose", *groups.keys).to_native()


@dataclass(frozen=True, slots=True, eq=False)
class _Grouped:
    labels: list[tuple[Hashable, ...]]
    moments: Moments
    dropped: dict[str, int]


class _Columns:
    """Input columns by role, as narwhals expressions; what a metric forms its variables of."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __getitem__(self, role: str) -> Any:
        import narwhals as nw

        return nw.col(self._names[role])

    def __contains__(self, role: object) -> bool:
        return role in self._names

    def where(self, condition: Any, value: Any, otherwise: Any = None) -> Any:
        import narwhals as nw

        value, otherwise = (nw.lit(v) if isinstance(v, int | float) else v for v in (value, otherwise))
        chosen = nw.when(condition).then(value)
        if otherwise is None:
            return chosen
        # A null condition is neither: it must not fall into the other branch.
        return nw.when(~condition.is_null()).then(chosen.otherwise(otherwise))

    def log(self, value: Any) -> Any:
        return value.log()


class _Attributes:
    """What the groups are: key expressions for the engine, and the way back from fetched keys to labels."""

    def __init__(self, frame: nw.LazyFrame[Any], by: Sequence[str | Bins], *, from_text: bool) -> None:
        self.frame, self.by, self.from_text = frame, by, from_text
        self.schema = frame.collect_schema()
        self.keys = [f"k{i}" for i in range(len(by))]
        self.ranges: dict[int, list[Range]] = {}
        self.widths: dict[int, tuple[float, bool]] = {}

    def expressions(self) -> list[Any]:
        """All keys under names of our own."""
        return [self.expression(i).alias(key) for i, key in enumerate(self.keys)]

    def expression(self, place: int) -> Any:
        """The key of the place-th attribute, null where it is missing."""
        import narwhals as nw

        attribute = self.by[place]
        if isinstance(attribute, Bins):
            return self._binned(place, attribute)
        column, dtype = nw.col(attribute), self.schema[attribute]
        if dtype.is_float():
            return nw.when(~column.is_nan()).then(column)
        if dtype.is_integer() or dtype in (nw.String, nw.Boolean, nw.Date):
            return column
        return column.cast(nw.String)

    def _binned(self, place: int, cut: Bins) -> Any:
        """The number of a row's bin; what range that is, is kept for the labels."""
        import narwhals as nw

        dtype = self.schema[cut.column]
        if not dtype.is_numeric():
            raise InputError(
                f"bins({cut.column!r})", f"the column is not numeric ({dtype})", "Cut numeric columns only."
            )
        value = self.finite(cut.column)
        if cut.width is not None:
            whole = cut.width == int(cut.width)
            if whole and not dtype.is_integer():  # frames without null integers hold them as floats
                part = self.frame.select(value.alias("v")).select(
                    (nw.col("v") - nw.col("v").floor()).max().alias("part")
                )
                whole = not frames.floats(frames.fetch(part)["part"])[0] > 0
            self.widths[place] = (cut.width, whole)
            return (value / cut.width).floor().cast(nw.Float64)
        edges = list(cut.edges or ())
        if cut.quantiles is not None:
            at = [i / cut.quantiles for i in range(1, cut.quantiles)]
            found = frames.fetch(
                self.frame.select(value.alias("v")).select(
                    *(nw.col("v").quantile(q, interpolation="linear").alias(f"q{i}") for i, q in enumerate(at))
                )
            )
            known = np.array([frames.floats(column)[0] for column in found.values()])
            edges = sorted(set(known[np.isfinite(known)].tolist()))
        outer = [-np.inf, *edges, np.inf]
        self.ranges[place] = [Range(low, high) for low, high in itertools.pairwise(outer)]
        number = nw.lit(0.0)
        for edge in edges:
            number = number + nw.when(value >= edge).then(nw.lit(1.0)).otherwise(nw.lit(0.0))
        return nw.when(~value.is_null()).then(number)

    def finite(self, column: str) -> Any:
        """A numeric or boolean column as doubles, with NaN and infinity as null. Cast first: integers overflow."""
        import narwhals as nw

        value = nw.col(column).cast(nw.Float64)
        dtype = self.schema[column]
        return nw.when(value.is_finite()).then(value) if dtype.is_float() or dtype.is_decimal() else value

    def labels(self, place: int, values: Sequence[Any]) -> list[Hashable]:
        """Fetched keys of the place-th attribute as group names."""
        if place in self.widths:
            width, whole = self.widths[place]
            return [
                frames.MISSING if missing else Range(number * width, (number + 1) * width, whole)
                for number, missing in _numbers(values)
            ]
        if place in self.ranges:
            return [
                frames.MISSING if missing else self.ranges[place][int(number)] for number, missing in _numbers(values)
            ]
        return frames.labels(values, from_text=self.from_text)

    def resolved(self) -> tuple[str | Bins, ...]:
        """The same groups for other rows: quantiles have become the edges they were."""
        return tuple(
            Bins(a.column, edges=tuple(r.upper for r in self.ranges[i][:-1]))
            if isinstance(a, Bins) and a.quantiles is not None and len(self.ranges[i]) > 1
            else a
            for i, a in enumerate(self.by)
        )


class _Query:
    """The one group-by behind a metric."""

    def __init__(self, frame: nw.LazyFrame[Any], by: _Attributes, metric: Metric) -> None:
        self.frame, self.by, self.metric = frame, by, metric
        self.schema, self.keys = by.schema, by.keys

    def run(self) -> _Grouped:
        if self.metric.aggregated is not None:
            return self._from_aggregates(self.metric.aggregated)
        prepared = self._prepare()
        if self.metric.ranking is not None:
            return self._ranked(prepared)
        by = [*self.keys, *(["arm"] if self.metric.arms else [])]
        if self.metric.unit:
            prepared = self._to_units(prepared, by)
        return self._collect(self._with_variables(prepared, by), by)

    # ------------------------------------------------------------------------------------------------------ columns

    def _prepare(self) -> nw.LazyFrame[Any]:
        """Keys, arm, unit and cleaned inputs under names of our own; `ok` says whether a row can be used."""
        import narwhals as nw

        picked = self.by.expressions()
        if self.metric.arms:
            picked.append(nw.col(self.metric.arms.column).alias("arm"))
        if self.metric.unit:
            picked.append(nw.col(self.metric.unit).alias("unit"))
        for role, wanted in self.metric.inputs.items():
            picked += [expression.alias(name) for name, expression in self._input(role, wanted)]
        frame = self.frame.select(*picked)
        needed = [f"i_{role}" for role in self.metric.inputs]
        needed += [
            name
            for name in ("arm", "unit")
            if (name == "arm" and self.metric.arms) or (name == "unit" and self.metric.unit)
        ]
        usable = ~nw.any_horizontal(*(nw.col(name).is_null() for name in needed), ignore_nulls=False)
        return frame.with_columns(usable.alias("ok"))

    def _input(self, role: str, wanted: Input) -> list[tuple[str, Any]]:
        """A cleaned input, and beside it what is needed to see whether it held what it must hold."""
        import narwhals as nw

        dtype, name = self.schema[wanted.column], f"i_{role}"
        simple = dtype.is_numeric() or dtype == nw.Boolean
        if wanted.kind != "binary" or wanted.positive is None:
            if not simple and wanted.kind == "binary":
                raise InputError(
                    f"{wanted.column!r}",
                    f"holds {dtype}, not 0/1 or booleans",
                    f"Say which label counts: positive={self._example(wanted.column)}.",
                )
            if not simple:
                raise InputError(
                    f"{wanted.column!r}",
                    f"the column is not numeric ({dtype})",
                    "Name a numeric column.",
                )
            value = self.by.finite(wanted.column)
            if wanted.kind == "binary":
                odd = nw.when((value != 0) & (value != 1)).then(value)
                return [(name, value), (f"odd_{role}", odd)]
            if wanted.kind == "probability":
                return [(name, value), (f"odd_{role}", nw.when((value < 0) | (value > 1)).then(value))]
            return [(name, value)]
        if simple and isinstance(wanted.positive, str):
            raise InputError(
                f"positive={wanted.positive!r}", f"but {wanted.column!r} holds {dtype}", "Give a value of the column."
            )
        raw = self.by.finite(wanted.column) if simple else nw.col(wanted.column).cast(nw.String)
        positive = float(wanted.positive) if simple else str(wanted.positive)
        coded = nw.when(~raw.is_null()).then(nw.when(raw == positive).then(nw.lit(1.0)).otherwise(nw.lit(0.0)))
        return [(name, coded), (f"other_{role}", nw.when(raw != positive).then(raw))]

    def _example(self, column: str) -> str:
        import narwhals as nw

        values = frames.labels(frames.fetch(self.frame.select(nw.col(column).alias("v")).unique().head(3))["v"])
        return " or ".join(repr(value) for value in sorted(map(str, values)))

    def _with_variables(self, frame: nw.LazyFrame[Any], by: Sequence[str]) -> nw.LazyFrame[Any]:
        import narwhals as nw

        names = {role: f"i_{role}" for role in self.metric.inputs}
        ok = nw.col("ok")
        frame = frame.with_columns(*(nw.when(ok).then(nw.col(name)).alias(name) for name in names.values()))
        if self.metric.centred:
            frame = frame.with_columns(nw.col(names[self.metric.centred]).mean().over(*by).alias("i_centre"))
            names["centre"] = "i_centre"
        formed = self.metric.variables(_Columns(names))
        variables = {f"v{i}": expression for i, expression in enumerate(formed.values())}
        return frame.with_columns(*(expression.alias(name) for name, expression in variables.items()))

    # ------------------------------------------------------------------------------------------------------ group-by

    def _to_units(self, frame: nw.LazyFrame[Any], by: Sequence[str]) -> nw.LazyFrame[Any]:
        """Rows summed to the randomised unit; what describes the unit itself (covariate, weight) is averaged."""
        import narwhals as nw

        roles = self.metric.inputs
        sums = [
            (nw.col(f"i_{role}").mean() if role in {"z", "w"} else nw.col(f"i_{role}").sum()).alias(f"i_{role}")
            for role in roles
        ]
        used = frame.filter(nw.col("ok")).group_by(*by, "unit").agg(*sums)
        split = used.group_by("unit").agg(nw.len().alias("places")).filter(nw.col("places") > 1)
        count = int(frames.fetch(split.select(nw.len().alias("n")))["n"][0])
        if count:
            raise InputError(
                f"unit={self.metric.unit!r}",
                f"{count:,} units are in more than one variant or group",
                "A unit must be in one of each: leave such units out, or group by what cannot change.",
            )
        self.left_out = frames.fetch(frame.filter(~nw.col("ok")).select(nw.len().alias("n")))["n"][0]
        return used.with_columns(nw.lit(True).alias("ok"))

    left_out: int = 0

    def _collect(self, frame: nw.LazyFrame[Any], by: Sequence[str]) -> _Grouped:
        import narwhals as nw

        count = sum(name.startswith("v") for name in frame.collect_schema().names())
        aggregations = [nw.len().alias("rows"), nw.col("ok").cast(nw.Int64).sum().alias("ok")]
        for i in range(count):
            aggregations += [nw.col(f"v{i}").count().alias(f"n{i}"), nw.col(f"v{i}").mean().alias(f"m{i}")]
        if self.metric.second:
            aggregations += [nw.col(f"v{i}").var().alias(f"c{i}_{i}") for i in range(count)]
            pairs = itertools.combinations(range(count), 2)
            aggregations += [nw.cov(f"v{i}", f"v{j}").alias(f"c{i}_{j}") for i, j in pairs]
        present = frame.collect_schema().names()
        checks = [name for name in present if name.startswith(("odd_", "other_"))]
        aggregations += [nw.col(name).min().alias(f"min_{name}") for name in checks]
        aggregations += [nw.col(name).max().alias(f"max_{name}") for name in checks]
        table = frames.fetch(frame.group_by(*by).agg(*aggregations))
        self._check_values(table, checks)
        groups, arms, dropped = self._places(table)
        shape = (max(groups.max(initial=-1) + 1, 0), 2 if self.metric.arms else 1)
        n, mean = np.zeros((*shape, count)), np.full((*shape, count), np.nan)
        cov = np.full((*shape, count, count), np.nan)
        kept = arms >= 0
        where = (groups[kept], arms[kept])
        for i in range(count):
            n[(*where, i)] = frames.floats(table[f"n{i}"])[kept]
            mean[(*where, i)] = frames.floats(table[f"m{i}"])[kept]
            for j in range(i, count) if self.metric.second else ():
                cov[(*where, i, j)] = cov[(*where, j, i)] = frames.floats(table[f"c{i}_{j}"])[kept]
        return _Grouped(self.labels, Moments(n, mean, cov), dropped)

    labels: list[tuple[Hashable, ...]]

    def _places(self, table: Mapping[str, Sequence[Any]]) -> tuple[Any, Any, dict[str, int]]:
        """Group and arm of every fetched row (arm −1: not compared); labels in a fixed order; rows that fell away."""
        rows, ok = frames.floats(table["rows"]), frames.floats(table["ok"])
        dropped = {"rows with a missing value": int(rows.sum() - ok.sum()) + int(self.left_out)}
        arms = np.zeros(rows.size, dtype=np.int64)
        if self.metric.arms:
            arms = _arm_numbers(table["arm"], self.metric.arms)
            dropped["rows of other variants"] = int(ok[arms < 0].sum())
        keyed = list(zip(*(self.by.labels(i, table[key]) for i, key in enumerate(self.keys)), strict=True))
        kept = {label for label, arm in zip(keyed, arms.tolist(), strict=True) if arm >= 0}
        plain = len(self.keys) == 1 and all(type(label[0]) is int for label in kept)
        self.labels = sorted(kept, key=None if plain else lambda label: tuple(map(_rank, label)))
        place = {label: i for i, label in enumerate(self.labels)}
        return np.array([place.get(label, -1) for label in keyed], dtype=np.int64), arms, dropped

    def _check_values(self, table: Mapping[str, Sequence[Any]], checks: Sequence[str]) -> None:
        for check in checks:
            ends = (frames.labels(table[f"{end}_{check}"]) for end in ("min", "max"))
            found = {value for values in ends for value in values if value != frames.MISSING}
            kind, role = check.split("_", 1)
            wanted = self.metric.inputs[role]
            if kind == "odd" and found:
                shown = min(float(str(value)) for value in found)
                if wanted.kind == "probability":
                    raise InputError(f"{wanted.column!r}", f"holds {shown:g}, outside [0, 1]", "Give probabilities.")
                raise InputError(
                    f"{wanted.column!r}",
                    f"holds {shown:g}, not only 0 and 1",
                    "Code it 0/1, or say which value counts: positive=…",
                )
            if kind == "other" and len(found) > 1:
                others = ", ".join(repr(value) for value in sorted(found, key=str)[:3])
                raise InputError(
                    f"{wanted.column!r}",
                    f"holds more than two values: {wanted.positive!r}, {others}",
                    "Give a column of two.",
                )

    # ---------------------------------------------------------------------------------------------------------- AUC

    def _ranked(self, frame: nw.LazyFrame[Any]) -> _Grouped:
        """Placements from distinct scores, counted in the engine (DeLong's variance without sorting rows here)."""
        import narwhals as nw

        checks = [name for name in frame.collect_schema().names() if name.startswith(("odd_", "other_"))]
        ends = [getattr(nw.col(name), end)().alias(f"{end}_{name}") for name in checks for end in ("min", "max")]
        totals = frames.fetch(
            frame.group_by(*self.keys).agg(nw.len().alias("rows"), nw.col("ok").cast(nw.Int64).sum().alias("ok"), *ends)
        )
        self._check_values(totals, checks)
        _, _, dropped = self._places(totals)
        used = frame.filter(nw.col("ok"))
        if self.metric.ranking:
            used = used.with_columns((nw.col("i_s") * self.metric.ranking).floor().cast(nw.Float64).alias("i_s"))
        counted = used.group_by(*self.keys, "i_s").agg(nw.col("i_t").sum().alias("pos"), nw.len().alias("all"))
        counted = counted.with_columns((nw.col("all").cast(nw.Float64) - nw.col("pos")).alias("neg"))
        pos, neg = nw.col("pos"), nw.col("neg")
        counted = counted.with_columns(
            pos.cum_sum().over(*self.keys, order_by="i_s").alias("below_pos"),
            neg.cum_sum().over(*self.keys, order_by="i_s").alias("below_neg"),
            pos.sum().over(*self.keys).alias("all_pos"),
            neg.sum().over(*self.keys).alias("all_neg"),
        ).filter((nw.col("all_pos") > 0) & (nw.col("all_neg") > 0))
        counted = counted.with_columns(
            ((nw.col("below_neg") - neg / 2) / nw.col("all_neg")).alias("a"),
            ((nw.col("all_pos") - nw.col("below_pos") + pos / 2) / nw.col("all_pos")).alias("b"),
        )
        counted = counted.with_columns(
            (pos * nw.col("a")).alias("pa"),
            (pos * nw.col("a") * nw.col("a")).alias("paa"),
            (neg * nw.col("b") * nw.col("b")).alias("nbb"),
        )
        summed = frames.fetch(
            counted.group_by(*self.keys).agg(*(nw.col(name).sum() for name in ("pos", "neg", "pa", "paa", "nbb")))
        )
        size = len(self.labels)
        place = {label: i for i, label in enumerate(self.labels)}
        keyed = zip(*(self.by.labels(i, summed[key]) for i, key in enumerate(self.keys)), strict=True)
        at = np.array([place[label] for label in keyed], dtype=np.int64)
        positives, negatives, pa, paa, nbb = (frames.floats(summed[k]) for k in ("pos", "neg", "pa", "paa", "nbb"))
        n, mean, cov = np.zeros((size, 1, 2)), np.full((size, 1, 2), np.nan), np.full((size, 1, 2, 2), np.nan)
        area = pa / positives
        n[at, 0, 0], n[at, 0, 1], mean[at, 0, 0] = positives, negatives, area
        with np.errstate(all="ignore"):
            cov[at, 0, 0, 0] = np.maximum(paa - positives * area**2, 0) / (positives - 1)
            cov[at, 0, 1, 1] = np.maximum(nbb - negatives * area**2, 0) / (negatives - 1)
        return _Grouped(self.labels, Moments(n, mean, cov), dropped)

    # --------------------------------------------------------------------------------------------- aggregated tables

    def _from_aggregates(self, columns: Aggregated) -> _Grouped:
        """Pool a table of counts and moments by group and arm."""
        import narwhals as nw

        arms = self.metric.arms
        wanted = {"n": columns.n, "m": columns.mean or columns.sum, "v": columns.variance or columns.sum_squares}
        for name, column in wanted.items():
            if not self.schema[column or ""].is_numeric():
                raise InputError(f"{name}={column!r}", "the column is not numeric", "Name a numeric column.")
        picked = self.by.expressions()
        picked += [nw.col(arms.column).alias("arm")] if arms else []
        picked += [self.by.finite(str(column)).alias(name) for name, column in wanted.items()]
        table: dict[str, Any] = dict(frames.fetch(self.frame.select(*picked)))
        n, mean, variance = (frames.floats(table[name]) for name in ("n", "m", "v"))
        with np.errstate(all="ignore"):
            mean = mean if columns.mean else mean / n
            variance = variance if columns.variance else np.maximum(variance - n * mean**2, 0) / (n - 1)
        good = np.isfinite(n) & (n > 0) & np.isfinite(mean) & (np.isfinite(variance) | (n == 1))
        if np.any(variance[good & (n > 1)] < 0):
            raise InputError(f"variance={columns.variance!r}", "is below zero", "Give sample variances.")
        table["rows"], table["ok"] = np.ones(n.size), good.astype(float)
        groups, arm, dropped = self._places(table)
        shape = (len(self.labels), 2 if arms else 1)
        used = good & (arm >= 0)
        at = (groups[used], arm[used])
        total, centre, spread = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        np.add.at(total, at, n[used])
        np.add.at(centre, at, n[used] * mean[used])
        with np.errstate(all="ignore"):
            centre = centre / total
            within = np.where(n > 1, (n - 1) * variance, 0.0)
            np.add.at(spread, at, within[used] + n[used] * (mean[used] - centre[at]) ** 2)
            spread = spread / (total - 1)
        return _Grouped(self.labels, Moments(total[..., None], centre[..., None], spread[..., None, None]), dropped)


def _numbers(values: Sequence[Any]) -> list[tuple[float, bool]]:
    floats = frames.floats(values)
    return list(zip(floats.tolist(), np.isnan(floats).tolist(), strict=True))


def _rank(part: Hashable) -> tuple[Any, ...]:
    """An order over labels of any type: numbers, ranges, text, and what is missing last."""
    if part == frames.MISSING:
        return (3, "")
    if isinstance(part, Range):
        return (1, part.lower, part.upper)
    return (0, part) if isinstance(part, int | float) else (2, str(part))


def _arm_numbers(values: Sequence[Any], arms: Arms) -> Any:
    """0 for control, 1 for treatment, −1 for the rest; refuses what leaves it open which is which."""
    found = [value for value in dict.fromkeys(frames.labels(values)) if value != frames.MISSING]
    shown = ", ".join(repr(value) for value in sorted(found, key=str)[:10])

    def known(parameter: str, wanted: Any) -> Hashable:
        for value in found:
            if value == wanted or str(value) == str(wanted):
                return value
        raise InputError(f"{parameter}={wanted!r}", f"no row of {arms.column!r} has it", f"There are: {shown}.")

    control = known("control", arms.control)
    others = [value for value in found if value != control]
    if arms.treatment is not None:
        treatment = known("treatment", arms.treatment)
    elif len(others) == 1:
        treatment = others[0]
    elif not others:
        raise InputError(f"variant={arms.column!r}", f"holds {control!r} alone", "An experiment needs two variants.")
    else:
        rest = ", ".join(repr(value) for value in sorted(others, key=str)[:10])
        raise InputError(
            f"variant={arms.column!r}",
            f"has {len(others)} variants beside {control!r}",
            f"Say which: treatment={rest}.",
        )
    number = {control: 0, treatment: 1}
    return np.array([number.get(value, -1) for value in frames.labels(values)], dtype=np.int64)
