"""Rows in, moments out: one group-by on the engine the rows are already in; only groups ever leave it.

DuckDB reads files, pandas and PyArrow where they are; Polars runs in its streaming engine; Spark and Ibis run wherever
they run. All get the same narwhals expressions.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
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

    from faultlines.metrics import Aggregated, Arms, Input

_MOST_BINS = 200
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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)


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
    """
    if not isinstance(column, str) or not column:
        raise InputError(f"bins({shorten(column)})", "is not the name of a column", "Give a column by its name.")
    if sum(option is not None for option in (width, quantiles, edges)) != 1:
        raise InputError(f"bins({column!r})", "needs one of width, quantiles and edges", "Give exactly one of them.")
    if width is not None and not (_is_number(width) and 0 < width < np.inf):
        raise InputError(f"width={shorten(width)}", "must be a number above zero", "Use for example width=5.")
    if quantiles is not None and not (isinstance(quantiles, int | np.integer) and 2 <= quantiles <= _MOST_BINS):
        raise InputError(
            f"quantiles={shorten(quantiles)}", f"must be from 2 to {_MOST_BINS}", "Use for example quantiles=10."
        )
    if edges is not None:
        fit = (
            isinstance(edges, list | tuple | np.ndarray)
            and 0 < len(edges) <= _MOST_BINS
            and all(map(_is_number, edges))
        )
        listed = [float(edge) for edge in edges] if fit else []
        if not listed or not np.all(np.isfinite(listed)) or np.any(np.diff(listed) <= 0):
            raise InputError(
                f"edges={shorten(edges)}",
                f"must be up to {_MOST_BINS} finite, rising numbers",
                "Use for example edges=[18, 65].",
            )
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
        min_size: Groups with fewer than this are left out, counted where the estimate comes from: rows or units in each
            arm, positives for a true positive rate, and so on. Default: 20.
    """
    if not isinstance(metric, Metric):
        raise InputError(
            f"metric={shorten(metric)}", "is not a metric", 'Use for example fl.rate("converted") or fl.lift(...).'
        )
    attributes = [by] if isinstance(by, str | Bins) else list(by) if isinstance(by, list | tuple) else []
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
        groups = _Attributes(frame, attributes, from_text=frames.is_csv(data))
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
    reason[(reason == "") & (sizes < least)] = f"fewer than {least:g} {metric.counted}" + (
        " in an arm" if metric.arms else ""
    )
    for part in (measured.theta, measured.se, measured.natural):
        finite = np.all(np.isfinite(np.reshape(part, (len(reason), -1))), axis=1)
        reason[(reason == "") & ~finite] = "not a finite number"
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
    values: Callable[[Sequence[str], Sequence[int]], Sequence[float]],
    column: str,
    *,
    whole: bool,
) -> Any:
    """Give every row a value that depends on its group, in the frame's own type.

    Args:
        data: The frame.
        by: What its groups are.
        values: From the groups that occur (as `canonical` texts) and their numbers of rows to a value for each; NaN
            leaves a row without one.
        column: The name of the new column.
        whole: Whether the values are whole numbers.
    """
    import narwhals as nw

    frame = frames.opened(data)
    names = [a.column if isinstance(a, Bins) else a for a in by]
    present = frame.collect_schema().names()
    frames.check_columns({f"by[{i}]": name for i, name in enumerate(names)}, present)
    if not isinstance(column, str) or not column or column.casefold() in {name.casefold() for name in present}:
        raise InputError(f"column={shorten(column)}", "is there already", "Choose another name for the new column.")
    kind = nw.Int64 if whole else nw.Float64
    lazy = frame if isinstance(frame, nw.LazyFrame) else frame.lazy()
    groups = _Attributes(lazy, by, from_text=False, prefix="__faultlines_k")
    keys, whose = groups.expressions(), "__faultlines_whose"
    texts = [
        nw.when(nw.col(key).is_null()).then(nw.lit(frames.MISSING)).otherwise(nw.col(key).cast(nw.String))
        for key in groups.keys
    ]
    mark = nw.concat_str(*texts, separator="\x1f").alias(whose)
    counted = lazy.select(*keys).with_columns(mark).group_by(whose, *groups.keys).agg(nw.len().alias("rows"))
    found = frames.fetch(counted)
    if not len(found["rows"]):
        return frame.with_columns(nw.lit(None).cast(kind).alias(column)).to_native()
    parts = [groups.labels(i, found[key]) for i, key in enumerate(groups.keys)]
    marks = frames.labels(found[whose])
    given = values([canonical(label) for label in zip(*parts, strict=True)], frames.floats(found["rows"]).tolist())
    value_of = dict(zip(marks, given, strict=True))
    if isinstance(frame, nw.LazyFrame):
        return frames.joined(frame, keys, mark, value_of, column, kind).to_native()
    blank = [mark for mark, value in value_of.items() if np.isnan(value)]
    filled = [-1 if np.isnan(value) else (int(value) if whole else float(value)) for value in value_of.values()]
    value = nw.col(whose).replace_strict(list(value_of), filled, return_dtype=kind)
    if blank:
        value = nw.when(~nw.col(whose).is_in(blank)).then(value)
    marked = frame.with_columns(*keys).with_columns(mark)
    return marked.with_columns(value.alias(column)).drop(whose, *groups.keys).to_native()


def canonical(label: Sequence[Hashable]) -> str:
    """A group as text that is the same however a frame holds its keys: 1, 1.0 and "1"; a date and its midnight."""
    return "\x1f".join(_canonical(part) for part in label)


def _canonical(part: Hashable) -> str:
    if isinstance(part, Range):
        return f"[{part.lower!r}, {part.upper!r})"
    text = str(part)
    if isinstance(part, bool) or text in {"True", "False"}:
        return text.lower()
    for midnight in (" 00:00:00", "T00:00:00"):
        if midnight in text:
            return text.split(midnight, maxsplit=1)[0]
    try:
        number = float(text)
    except ValueError:
        return text.replace("T", " ") if len(text) >= 19 and text[10:11] == "T" and text[:4].isdigit() else text
    # Leading zeros and the like are part of a name, not of a number.
    is_plain = not text.startswith(("0", "-0")) or "." in text or text == "0"
    if not np.isfinite(number) or not is_plain:
        return text
    return str(int(number)) if number == int(number) else repr(number)


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

    def __init__(
        self, frame: nw.LazyFrame[Any], by: Sequence[str | Bins], *, from_text: bool, prefix: str = "k"
    ) -> None:
        self.frame, self.by, self.from_text = frame, by, from_text
        self.schema = frame.collect_schema()
        self.keys = [f"{prefix}{i}" for i in range(len(by))]
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
            return self.not_nan(attribute)
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
            # 0.3 / 0.1 is a hair below 3: what is that close to an edge stands on it.
            steps = value / cut.width
            nearest = (steps + 0.5).floor().cast(nw.Float64)
            close = (steps - nearest).abs() < 1e-9 * (steps.abs() + 1)
            return nw.when(close).then(nearest).otherwise(steps.floor().cast(nw.Float64))
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
        value = self.not_nan(cut.column)  # beyond the outermost edges there is room for infinity
        number = nw.lit(0.0)
        for edge in edges:
            number = number + nw.when(value >= edge).then(nw.lit(1.0)).otherwise(nw.lit(0.0))
        return nw.when(~value.is_null()).then(number)

    def not_nan(self, column: str) -> Any:
        """A column with NaN as null; integers and text have none."""
        import narwhals as nw

        value = nw.col(column)
        return nw.when(~value.is_nan()).then(value) if self.schema[column].is_float() else value

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
        self.keyed = [*by.keys, *(["arm"] if metric.arms else [])]
        self.checks: list[str] = []

    def run(self) -> _Grouped:
        if self.metric.aggregated is not None:
            return self._from_aggregates(self.metric.aggregated)
        prepared = self._prepare()
        if self.metric.ranking is not None:
            return self._ranked(prepared)
        if not self.metric.unit:
            table = self._aggregated(prepared)
            return self._moments(table, _Places(self, table))
        counted = frames.fetch(prepared.group_by(*self.keyed).agg(*self._counts(), *self._ends()))
        self._check_values(counted)
        places = _Places(self, counted)
        return self._moments(self._aggregated(self._to_units(prepared, places)), places)

    # ------------------------------------------------------------------------------------------------------ columns

    def _prepare(self) -> nw.LazyFrame[Any]:
        """Keys, arm, unit and cleaned inputs under names of our own; `ok` says whether a row can be used."""
        import narwhals as nw

        picked = self.by.expressions()
        needed = [f"i_{role}" for role in self.metric.inputs]
        if self.metric.arms:
            picked.append(self.by.not_nan(self.metric.arms.column).alias("arm"))
            needed.append("arm")
        if self.metric.unit:
            picked.append(self.by.not_nan(self.metric.unit).alias("unit"))
            needed.append("unit")
        for role, wanted in self.metric.inputs.items():
            formed = self._input(role, wanted)
            picked += [expression.alias(name) for name, expression in formed]
            self.checks += [name for name, _ in formed[1:]]
        frame = self.frame.select(*picked)
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
            if wanted.kind == "weight":
                return [(name, value), (f"odd_{role}", nw.when(value < 0).then(value))]
            return [(name, value)]
        raw = self.by.finite(wanted.column) if simple else nw.col(wanted.column).cast(nw.String)
        positive = _coded(wanted, dtype) if simple else str(wanted.positive)
        coded = nw.when(~raw.is_null()).then(nw.when(raw == positive).then(nw.lit(1.0)).otherwise(nw.lit(0.0)))
        other = nw.when(raw != positive).then(raw)
        return [(name, coded), (f"seen_{role}", nw.when(raw == positive).then(raw)), (f"other_{role}", other)]

    def _example(self, column: str) -> str:
        import narwhals as nw

        some = frames.fetch(self.frame.select(nw.col(column).alias("v")).unique().head(4))["v"]
        return " or ".join(
            repr(str(value)) for value in sorted(map(str, frames.labels(some))) if value != frames.MISSING
        )

    # ------------------------------------------------------------------------------------------------------ group-by

    def _counts(self) -> list[Any]:
        import narwhals as nw

        return [nw.len().alias("rows"), nw.col("ok").cast(nw.Int64).sum().alias("ok")]

    def _ends(self) -> list[Any]:
        """Smallest and largest of what inputs should not hold: enough to see it, and to name one."""
        import narwhals as nw

        return [getattr(nw.col(name), end)().alias(f"{end}_{name}") for name in self.checks for end in ("min", "max")]

    def _aggregated(self, frame: nw.LazyFrame[Any]) -> dict[str, Any]:
        """Counts and moments of the variables by group and arm."""
        import narwhals as nw

        names = {role: f"i_{role}" for role in self.metric.inputs}
        ok = nw.col("ok")
        frame = frame.with_columns(*(nw.when(ok).then(nw.col(name)).alias(name) for name in names.values()))
        if self.metric.centred:
            frame = frame.with_columns(nw.col(names[self.metric.centred]).mean().over(*self.keyed).alias("i_centre"))
            names["centre"] = "i_centre"
        try:
            formed = list(self.metric.variables(_Columns(names)).values())
        except KeyError as error:
            raise InputError(
                f"metric {self.metric.name!r}", f"has no input {error.args[0]!r}", f"It has: {', '.join(names)}."
            ) from error
        if not formed:
            raise InputError(f"metric {self.metric.name!r}", "forms no variables", "Return at least one.")
        self.count = len(formed)
        first = nw.col(
            next(iter(names.values()))
        )  # a plain number becomes a column that is null where rows are left out
        columns = (0 * first + e if isinstance(e, int | float) else e for e in formed)
        frame = frame.with_columns(*(column.alias(f"v{i}") for i, column in enumerate(columns)))
        wanted = [*self._counts(), *([] if self.metric.unit else self._ends())]
        for i in range(self.count):
            wanted += [nw.col(f"v{i}").count().alias(f"n{i}"), nw.col(f"v{i}").mean().alias(f"m{i}")]
        if self.metric.second:
            wanted += [nw.col(f"v{i}").var().alias(f"c{i}_{i}") for i in range(self.count)]
            pairs = itertools.combinations(range(self.count), 2)
            wanted += [nw.cov(f"v{i}", f"v{j}").alias(f"c{i}_{j}") for i, j in pairs]
        table = frames.fetch(frame.group_by(*self.keyed).agg(*wanted))
        if not self.metric.unit:
            self._check_values(table)
        return table

    def _to_units(self, frame: nw.LazyFrame[Any], places: _Places) -> nw.LazyFrame[Any]:
        """Rows of the two arms summed to the unit; what describes the unit (covariate, weight) is averaged."""
        import narwhals as nw

        sums = [
            (nw.col(f"i_{role}").mean() if role in {"z", "w"} else nw.col(f"i_{role}").sum()).alias(f"i_{role}")
            for role in self.metric.inputs
        ]
        used = frame.filter(nw.col("ok") & nw.col("arm").is_in(places.compared))
        used = used.group_by(*self.keyed, "unit").agg(*sums)
        split = used.group_by("unit").agg(nw.len().alias("places")).filter(nw.col("places") > 1)
        count = int(frames.floats(frames.fetch(split.select(nw.len().alias("n")))["n"])[0])
        if count:
            raise InputError(
                f"unit={self.metric.unit!r}",
                f"{count:,} units are in more than one variant or group",
                "A unit must be in one of each: leave such units out, or group by what cannot change.",
            )
        return used.with_columns(nw.lit(True).alias("ok"))

    def _moments(self, table: Mapping[str, Any], places: _Places) -> _Grouped:
        groups, arms = places.of(table)
        kept = arms >= 0
        where, shape = (groups[kept], arms[kept]), (len(places.labels), 2 if self.metric.arms else 1)
        n, mean = np.zeros((*shape, self.count)), np.full((*shape, self.count), np.nan)
        cov = np.full((*shape, self.count, self.count), np.nan)
        for i in range(self.count):
            n[(*where, i)] = frames.floats(table[f"n{i}"])[kept]
            mean[(*where, i)] = frames.floats(table[f"m{i}"])[kept]
            for j in range(i, self.count) if self.metric.second else ():
                cov[(*where, i, j)] = cov[(*where, j, i)] = frames.floats(table[f"c{i}_{j}"])[kept]
        return _Grouped(places.labels, Moments(n, mean, cov), places.dropped)

    def _check_values(self, table: Mapping[str, Any]) -> None:
        for check in self.checks:
            ends = (frames.labels(table[f"{end}_{check}"]) for end in ("min", "max"))
            found = {value for values in ends for value in values if value != frames.MISSING}
            kind, role = check.split("_", 1)
            wanted = self.metric.inputs[role]
            shown = f"{wanted.column!r}"
            if kind == "odd" and found:
                value = min(float(str(value)) for value in found)
                if wanted.kind == "probability":
                    raise InputError(shown, f"holds {value:g}, outside [0, 1]", "Give probabilities.")
                if wanted.kind == "weight":
                    raise InputError(shown, f"holds the weight {value:g}", "Weights must not be negative.")
                raise InputError(
                    shown, f"holds {value:g}, not only 0 and 1", "Code it 0/1, or say which value counts: positive=…"
                )
            if kind == "other" and len(found) > 1:
                others = ", ".join(repr(value) for value in sorted(found, key=str)[:3])
                raise InputError(
                    shown, f"holds more than two values: {wanted.positive!r}, {others}", "Give a column of two."
                )
            if kind == "seen" and not found and frames.floats(table["ok"]).sum() > 0:
                raise InputError(
                    f"positive={wanted.positive!r}",
                    f"no row of {shown} has it",
                    f"There are: {self._example(wanted.column)}.",
                )

    # ---------------------------------------------------------------------------------------------------------- AUC

    def _ranked(self, frame: nw.LazyFrame[Any]) -> _Grouped:
        """Placements from distinct scores, counted in the engine (DeLong's variance without sorting rows here)."""
        import narwhals as nw

        totals = frames.fetch(frame.group_by(*self.keys).agg(*self._counts(), *self._ends()))
        self._check_values(totals)
        places = _Places(self, totals)
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
        )
        below, above = nw.col("below_neg") - neg / 2, nw.col("all_pos") - nw.col("below_pos") + pos / 2
        counted = counted.with_columns(
            nw.when(nw.col("all_neg") > 0).then(below / nw.col("all_neg")).alias("a"),
            nw.when(nw.col("all_pos") > 0).then(above / nw.col("all_pos")).alias("b"),
        )
        counted = counted.with_columns(
            (pos * nw.col("a")).alias("pa"),
            (pos * nw.col("a") * nw.col("a")).alias("paa"),
            (neg * nw.col("b") * nw.col("b")).alias("nbb"),
        )
        summed = frames.fetch(
            counted.group_by(*self.keys).agg(*(nw.col(name).sum() for name in ("pos", "neg", "pa", "paa", "nbb")))
        )
        size = len(places.labels)
        at, _ = places.of(summed)
        positives, negatives, pa, paa, nbb = (frames.floats(summed[k]) for k in ("pos", "neg", "pa", "paa", "nbb"))
        n, mean, cov = np.zeros((size, 1, 2)), np.full((size, 1, 2), np.nan), np.full((size, 1, 2, 2), np.nan)
        with np.errstate(all="ignore"):
            area = pa / positives
            n[at, 0, 0], n[at, 0, 1], mean[at, 0, 0] = positives, negatives, area
            cov[at, 0, 0, 0] = np.maximum(paa - positives * area**2, 0) / (positives - 1)
            cov[at, 0, 1, 1] = np.maximum(nbb - negatives * area**2, 0) / (negatives - 1)
        return _Grouped(places.labels, Moments(n, mean, cov), places.dropped)

    # --------------------------------------------------------------------------------------------- aggregated tables

    def _from_aggregates(self, columns: Aggregated) -> _Grouped:
        """Pool a table of counts and moments by group and arm."""
        arms = self.metric.arms
        wanted = {"n": columns.n, "m": columns.mean or columns.sum, "v": columns.variance or columns.sum_squares}
        for name, column in wanted.items():
            if not self.schema[column or ""].is_numeric():
                raise InputError(f"{name}={column!r}", "the column is not numeric", "Name a numeric column.")
        picked = self.by.expressions()
        picked += [self.by.not_nan(arms.column).alias("arm")] if arms else []
        picked += [self.by.finite(str(column)).alias(name) for name, column in wanted.items()]
        table: dict[str, Any] = dict(frames.fetch(self.frame.select(*picked)))
        n, mean, variance = (frames.floats(table[name]) for name in ("n", "m", "v"))
        with np.errstate(all="ignore"):
            mean = mean if columns.mean else mean / n
            rounding = 1e-9 * n * mean**2 if columns.sum_squares else np.zeros(n.size)
            variance = variance if columns.variance else (variance - n * mean**2) / (n - 1)
        good = np.isfinite(n) & (n > 0) & np.isfinite(mean) & (np.isfinite(variance) | (n == 1))
        if np.any(n < 0):
            raise InputError(f"n={columns.n!r}", f"holds {np.nanmin(n):g}", "Counts cannot be negative.")
        if np.any((variance * (n - 1) < -rounding)[good & (n > 1)]):
            named = columns.variance or columns.sum_squares
            raise InputError(f"{named!r}", "gives a variance below zero", "Check that it belongs to n and mean or sum.")
        variance = np.maximum(variance, 0.0)
        table["rows"], table["ok"] = np.ones(n.size), good.astype(float)
        places = _Places(self, table, pooled=True)
        groups, arm = places.of(table)
        shape = (len(places.labels), 2 if arms else 1)
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
        moments = Moments(total[..., None], centre[..., None], spread[..., None, None])
        return _Grouped(places.labels, moments, places.dropped)


class _Places:
    """Where fetched rows belong: the groups in a fixed order, control and treatment, and the rows that fell away."""

    def __init__(self, query: _Query, counted: Mapping[str, Any], *, pooled: bool = False) -> None:
        self.query = query
        rows, ok = frames.floats(counted["rows"]), frames.floats(counted["ok"])
        self.dropped = {"rows with a missing value": int(rows.sum() - ok.sum())}
        arms = query.metric.arms
        self.numbers = _arm_numbers(counted["arm"], arms) if arms and rows.size else {}
        # The values of the two arms as the engine has them.
        self.compared = [v for v in dict.fromkeys(counted["arm"]) if frames.key(v) in self.numbers] if arms else []
        keyed = self._labels(counted)
        if arms:
            other = np.array([frames.key(value) not in self.numbers for value in counted["arm"]], dtype=bool)
            self.dropped["rows of other variants"] = int(ok[other].sum())
        distinct = set(zip(keyed, map(frames.key, counted["arm"]) if arms else keyed, strict=True))
        if len(distinct) < len(keyed) and not pooled:
            raise InputError(
                "by",
                f"two different keys have the same name, such as a null and the text {frames.MISSING!r}",
                "Rename one.",
            )
        plain = len(query.keys) == 1 and all(type(label[0]) is int for label in keyed)
        self.labels = sorted(set(keyed), key=None if plain else lambda label: tuple(map(_rank, label)))
        self._place = {label: i for i, label in enumerate(self.labels)}

    def _labels(self, table: Mapping[str, Any]) -> list[tuple[Hashable, ...]]:
        return list(zip(*(self.query.by.labels(i, table[key]) for i, key in enumerate(self.query.keys)), strict=True))

    def of(self, table: Mapping[str, Any]) -> tuple[Any, Any]:
        """Group and arm of every fetched row; arm −1 is not compared."""
        groups = np.array([self._place[label] for label in self._labels(table)], dtype=np.int64)
        if not self.query.metric.arms:
            return groups, np.zeros(groups.size, dtype=np.int64)
        return groups, np.array([self.numbers.get(frames.key(v), -1) for v in table["arm"]], dtype=np.int64)


def _coded(wanted: Input, dtype: Any) -> float:
    """The label that counts, as a number or truth value of its column; from the command line it comes as text."""
    value = {"true": 1.0, "false": 0.0}.get(str(wanted.positive).lower(), wanted.positive)
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"positive={wanted.positive!r}", f"but {wanted.column!r} holds {dtype}", "Give a value of the column."
        ) from error


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


def _arm_numbers(values: Sequence[Any], arms: Arms) -> dict[Hashable, int]:
    """Which value is the control (0) and which the treatment (1); refuses what leaves it open."""
    found = [value for value in dict.fromkeys(map(frames.key, values)) if value != frames.MISSING]
    shown = ", ".join(repr(value) for value in sorted(found, key=str)[:10])

    def known(parameter: str, wanted: Any) -> Hashable:
        for value in found:
            if value == wanted or _canonical(value) == _canonical(wanted):
                return value
        raise InputError(f"{parameter}={wanted!r}", f"no row of {arms.column!r} has it", f"There are: {shown}.")

    control = known("control", arms.control)
    others = [value for value in found if value != control]
    if arms.treatment is not None:
        treatment = known("treatment", arms.treatment)
        if treatment == control:
            raise InputError(f"treatment={arms.treatment!r}", "is the control as well", "Name two different variants.")
    elif len(others) == 1:
        treatment = others[0]
    elif not others:
        raise InputError(f"variant={arms.column!r}", f"holds {control!r} alone", "An experiment needs two variants.")
    else:
        rest = ", ".join(repr(value) for value in sorted(others, key=str)[:10])
        raise InputError(
            f"variant={arms.column!r}",
            f"has {len(others)} variants beside {control!r}",
            f"Say which is the treatment: {rest}.",
        )
    return {control: 0, treatment: 1}
