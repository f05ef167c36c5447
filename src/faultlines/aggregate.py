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
from faultlines.groups import Attributes, Bins, canonical_part, rank
from faultlines.metrics import Measured, Metric, Moments
from faultlines.progress import working

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import narwhals as nw

    from faultlines.metrics import Aggregated, Arms, Input

_BUCKET, _UNIT = f"{frames.OURS}bucket", f"{frames.OURS}unit"
MIN_SIZE = 20  # rows (units) a group needs in every arm, unless the user says otherwise


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
    return _measured(data, by, metric, min_size, None)[0]


class _Split(NamedTuple):
    """How rows are divided: by which column, into which shares, under which seed."""

    unit: str
    shares: Sequence[float]
    seed: int


def measure_parts(
    data: object,
    by: str | Bins | Sequence[str | Bins],
    metric: Metric,
    shares: Sequence[float],
    *,
    unit: str,
    min_size: float | None = None,
    seed: int = 0,
) -> tuple[Measurement, ...]:
    """Estimate a metric in every group of rows, in independent parts: a unit is in one of them, by a hash of its name.

    Only groups that can be used in every part are kept; `min_size` is asked of each.
    """
    return _measured(data, by, metric, min_size, _Split(unit, shares, seed))


def _measured(
    data: object,
    by: str | Bins | Sequence[str | Bins],
    metric: Metric,
    min_size: float | None,
    split: _Split | None,
) -> tuple[Measurement, ...]:
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
    least = checked_size(MIN_SIZE if min_size is None else min_size)
    # In csv files these are names, whatever they look like: 007 stays 007, and yes/no does not become a truth value.
    text = [a for a in attributes if isinstance(a, str)] + ([metric.arms.column] if metric.arms else [])
    text += [wanted.column for wanted in metric.inputs.values() if isinstance(wanted.positive, str)]
    wanted = {f"by[{i}]" if len(names) > 1 else "by": name for i, name in enumerate(names)} | metric.columns()
    if split is not None:
        if metric.aggregated is not None:
            raise InputError(f"unit={split.unit!r}", "needs rows, not aggregates", "Leave it out, or give the rows.")
        if metric.unit is not None and split.unit != metric.unit:
            raise InputError(
                f"unit={split.unit!r}",
                f"but the metric has the unit {metric.unit!r}",
                "Split by the randomised unit: leave unit out of the guarantee.",
            )
        wanted = {**wanted, "unit": split.unit}
        used = {wanted_input.column for wanted_input in metric.inputs.values()}
        text += [split.unit] if split.unit not in used else []
    text = list(dict.fromkeys(text))
    with frames.scan(data, wanted, as_text=text) as rows:
        frame = rows
        if split is not None:
            named = Attributes(rows, [], from_text=False).not_nan(split.unit).alias(_UNIT)
            frame = frames.hashed(rows.with_columns(named), _UNIT, split.seed, _BUCKET)
        groups = Attributes(frame, attributes, from_text=frames.is_csv(data))
        with working("reading rows"):
            parts = _Query(frame, groups, metric, split).run()
    if not parts[0].labels:
        raise InputError("data", "has no rows", "Give at least one row for each group.")
    return _estimates(parts, names, metric, least, groups.resolved())


def checked_size(min_size: float) -> float:
    """A smallest size as it can be used."""
    if isinstance(min_size, bool) or not isinstance(min_size, int | float | np.number) or not min_size >= 0:
        raise InputError(f"min_size={shorten(min_size)}", "must be a number, 0 or more", "Use for example min_size=30.")
    return float(min_size)


def _estimates(
    parts: Sequence[_Grouped], names: tuple[str, ...], metric: Metric, least: float, by: tuple[str | Bins, ...]
) -> tuple[Measurement, ...]:
    measured = [metric.estimate(part.moments) for part in parts]
    reason = np.full(len(parts[0].labels), "", dtype=object)
    for part, grouped in zip(measured, parts, strict=True):
        why = _unusable(part, grouped.moments, metric, least)
        if len(parts) > 1:
            why[why != ""] += " in a part of the data"
        reason = np.where(reason == "", why, reason)
    keep = reason == ""
    labels = [label[0] if len(names) == 1 else label for label in parts[0].labels]
    excluded = tuple(Excluded(label, str(why)) for label, why in zip(labels, reason, strict=True) if why)
    if not keep.any():
        found = {str(why): int((reason == why).sum()) for why in dict.fromkeys(reason.tolist())}
        shown = "; ".join(f"{why} ({count:,})" for why, count in found.items())
        raise InputError(
            f"by={list(names)!r}",
            f"none of {len(labels):,} groups can be used: {shown}",
            "Use coarser groups or min_size.",
        )
    dropped = {why: count for why, count in parts[0].dropped.items() if count}
    kept = [label for label, is_kept in zip(labels, keep.tolist(), strict=True) if is_kept]

    def estimates(part: Measured) -> Estimates:
        several = part.theta.ndim > 1
        return Estimates(
            part.theta[keep],
            part.se[keep] if part.cov is None else None,
            kept,
            part.n[keep],
            None if part.dof is None else part.dof[keep],
            attributes=names,
            natural=part.natural[keep],
            scale=metric.scale,
            measure=metric.name,
            cov=None if part.cov is None else part.cov[keep],
            parts=metric.parts if several else None,
        )

    return tuple(Measurement(estimates(part), excluded, dropped, by) for part in measured)


def _unusable(measured: Measured, moments: Moments, metric: Metric, least: float) -> Any:
    """Why each group cannot be used; "" where it can."""
    reason = measured.reason
    sizes = moments.n.min(axis=(1, 2)) if metric.sized is None else moments.n[:, :, list(metric.sized)].min(axis=(1, 2))
    reason[(reason == "") & (sizes < least)] = f"fewer than {least:g} {metric.counted}" + (
        " in an arm" if metric.arms else ""
    )
    for part in (measured.theta, measured.se, measured.natural):
        finite = np.all(np.isfinite(np.reshape(part, (len(reason), -1))), axis=1)
        reason[(reason == "") & ~finite] = "not a finite number"
    return reason


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


class _Query:
    """The one group-by behind a metric."""

    def __init__(self, frame: nw.LazyFrame[Any], by: Attributes, metric: Metric, split: _Split | None) -> None:
        self.frame, self.by, self.metric, self.split = frame, by, metric, split
        self.schema, self.keys = by.schema, by.keys
        self.keyed = [*by.keys, *(["part"] if split else []), *(["arm"] if metric.arms else [])]
        self.checks: list[str] = []

    def run(self) -> list[_Grouped]:
        """Groups with their moments; once for each part of the rows."""
        if self.metric.aggregated is not None:
            return [self._from_aggregates(self.metric.aggregated)]
        prepared = self._prepare()
        if self.metric.ranking is not None:
            return self._ranked(prepared)
        if not self.metric.unit:
            table, count = self._aggregated(prepared)
            return self._moments(table, count, _Places(self, table))
        counted = frames.fetch(prepared.group_by(*self.keyed).agg(*self._counts(), *self._ends()))
        self._check_values(counted)
        places = _Places(self, counted)
        return self._moments(*self._aggregated(self._to_units(prepared, places)), places)

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
        if self.split:
            number = nw.lit(0)
            for edge in np.cumsum(self.split.shares)[:-1].tolist():
                number = number + nw.when(nw.col(_BUCKET) >= edge).then(nw.lit(1)).otherwise(nw.lit(0))
            picked.append(nw.when(~nw.col(_BUCKET).is_null()).then(number).alias("part"))
            needed.append("part")
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

    def _aggregated(self, frame: nw.LazyFrame[Any]) -> tuple[dict[str, Any], int]:
        """Counts and moments of the variables by group and arm, and how many variables there are."""
        import narwhals as nw

        names = {role: f"i_{role}" for role in self.metric.inputs}
        ok = nw.col("ok")
        frame = frame.with_columns(*(nw.when(ok).then(nw.col(name)).alias(name) for name in names.values()))
        for centre, role in self.metric.centred.items():
            frame = frame.with_columns(nw.col(names[role]).mean().over(*self.keyed).alias(f"i_{centre}"))
        names |= {centre: f"i_{centre}" for centre in self.metric.centred}
        try:
            formed = list(self.metric.variables(_Columns(names)).values())
        except KeyError as error:
            raise InputError(
                f"metric {self.metric.name!r}", f"has no input {error.args[0]!r}", f"It has: {', '.join(names)}."
            ) from error
        if not formed:
            raise InputError(f"metric {self.metric.name!r}", "forms no variables", "Return at least one.")
        count = len(formed)
        # A plain number becomes a column that is null where rows are left out.
        first = nw.col(next(iter(names.values())))
        columns = (0 * first + e if isinstance(e, int | float) else e for e in formed)
        frame = frame.with_columns(*(column.alias(f"v{i}") for i, column in enumerate(columns)))
        wanted = [*self._counts(), *([] if self.metric.unit else self._ends())]
        for i in range(count):
            wanted += [nw.col(f"v{i}").count().alias(f"n{i}"), nw.col(f"v{i}").mean().alias(f"m{i}")]
        if self.metric.second:
            wanted += [nw.col(f"v{i}").var().alias(f"c{i}_{i}") for i in range(count)]
            wanted += [nw.cov(f"v{i}", f"v{j}").alias(f"c{i}_{j}") for i, j in self._pairs(count)]
        table = frames.fetch(frame.group_by(*self.keyed).agg(*wanted))
        if not self.metric.unit:
            self._check_values(table)
        return table, count

    def _pairs(self, count: int) -> list[tuple[int, int]]:
        """Pairs of variables whose covariance is needed."""
        return list(itertools.combinations(range(count), 2) if self.metric.pairs is None else self.metric.pairs)

    def _to_units(self, frame: nw.LazyFrame[Any], places: _Places) -> nw.LazyFrame[Any]:
        """Rows of the two arms summed to the unit; what describes the unit (covariate, weight) is averaged."""
        import narwhals as nw

        sums = [
            (nw.col(f"i_{role}").mean() if self.metric.averaged(role) else nw.col(f"i_{role}").sum()).alias(f"i_{role}")
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

    def _moments(self, table: Mapping[str, Any], count: int, places: _Places) -> list[_Grouped]:
        return [self._moments_of(table, count, places, in_part) for in_part in self._parts(table)]

    def _parts(self, table: Mapping[str, Any]) -> list[Any]:
        """For each part of the rows, which of the fetched rows belong to it."""
        if self.split is None:
            return [np.True_]
        part = frames.floats(table["part"])
        return [part == number for number in range(len(self.split.shares))]

    def _moments_of(self, table: Mapping[str, Any], count: int, places: _Places, in_part: Any) -> _Grouped:
        groups, arms = places.of(table)
        kept = (arms >= 0) & in_part
        where, shape = (groups[kept], arms[kept]), (len(places.labels), 2 if self.metric.arms else 1)
        n, mean = np.zeros((*shape, count)), np.full((*shape, count), np.nan)
        cov = np.full((*shape, count, count), np.nan)
        for i in range(count):
            n[(*where, i)] = frames.floats(table[f"n{i}"])[kept]
            mean[(*where, i)] = frames.floats(table[f"m{i}"])[kept]
        for i, j in [*((i, i) for i in range(count)), *self._pairs(count)] if self.metric.second else []:
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

    def _ranked(self, frame: nw.LazyFrame[Any]) -> list[_Grouped]:
        """Placements from distinct scores, counted in the engine (DeLong's variance without sorting rows here)."""
        import narwhals as nw

        totals = frames.fetch(frame.group_by(*self.keyed).agg(*self._counts(), *self._ends()))
        self._check_values(totals)
        places = _Places(self, totals)
        used = frame.filter(nw.col("ok"))
        if self.metric.ranking:
            used = used.with_columns((nw.col("i_s") * self.metric.ranking).floor().cast(nw.Float64).alias("i_s"))
        counted = used.group_by(*self.keyed, "i_s").agg(nw.col("i_t").sum().alias("pos"), nw.len().alias("all"))
        counted = counted.with_columns((nw.col("all").cast(nw.Float64) - nw.col("pos")).alias("neg"))
        pos, neg = nw.col("pos"), nw.col("neg")
        counted = counted.with_columns(
            pos.cum_sum().over(*self.keyed, order_by="i_s").alias("below_pos"),
            neg.cum_sum().over(*self.keyed, order_by="i_s").alias("below_neg"),
            pos.sum().over(*self.keyed).alias("all_pos"),
            neg.sum().over(*self.keyed).alias("all_neg"),
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
            counted.group_by(*self.keyed).agg(*(nw.col(name).sum() for name in ("pos", "neg", "pa", "paa", "nbb")))
        )
        return [self._placements(summed, places, in_part) for in_part in self._parts(summed)]

    def _placements(self, summed: Mapping[str, Any], places: _Places, in_part: Any) -> _Grouped:
        size = len(places.labels)
        at = np.where(in_part, places.of(summed)[0], size)  # rows of another part go beyond the end
        columns = (frames.floats(summed[k]) for k in ("pos", "neg", "pa", "paa", "nbb"))
        positives, negatives, pa, paa, nbb = (column[at < size] for column in columns)
        at = at[at < size]
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
        beside = [map(frames.key, counted[name]) for name in ("part", "arm") if name in query.keyed]
        distinct = set(zip(keyed, *beside, strict=True))
        if len(distinct) < len(keyed) and not pooled:
            raise InputError(
                "by",
                f"two different keys have the same name, such as a null and the text {frames.MISSING!r}",
                "Rename one.",
            )
        plain = len(query.keys) == 1 and all(type(label[0]) is int for label in keyed)
        self.labels = sorted(set(keyed), key=None if plain else lambda label: tuple(map(rank, label)))
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


def _arm_numbers(values: Sequence[Any], arms: Arms) -> dict[Hashable, int]:
    """Which value is the control (0) and which the treatment (1); refuses what leaves it open."""
    found = [value for value in dict.fromkeys(map(frames.key, values)) if value != frames.MISSING]
    shown = ", ".join(repr(value) for value in sorted(found, key=str)[:10])

    def known(parameter: str, wanted: Any) -> Hashable:
        for value in found:
            if value == wanted or canonical_part(value) == canonical_part(wanted):
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
