"""Placements by score, for the area under the curve: DeLong's variance without sorting rows here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines.engines.frames import Rows, fetch, materialize
from faultlines.engines.protocol import Column, to_floats
from faultlines.rows import keys as places
from faultlines.rows.inputs import check_input, clean_input
from faultlines.rows.keys import Keys, key_value
from faultlines.rows.query import assign_parts, hash_units, units_in_several_error
from faultlines.rows.request import Grouped, Moments, Request, Split

if TYPE_CHECKING:
    import narwhals as nw


_SCORES = ("s", "s2")  # roles of the scores, of which a pair has two
_SAME_PLACE = 1e-12  # placements are shares of rows: closer ones are equal
_POWERS = (2, 3, 4)
_SIDES = ("pos", "neg")
_SUMMED = ("pos", "neg", "p1", *(f"{side}{power}" for side in "pn" for power in _POWERS))
_WEIGHTED = (*_SUMMED, "rows_p", "rows_n", "squares_p", "squares_n")


def rank_scores(rows: Rows, by: Keys, request: Request, split: Split | None) -> list[Grouped]:
    """Placements of positives among negatives and the other way round, by group; once for each part of the rows.

    The request has the inputs ``t`` (truth, 0 or 1) and ``s`` (score). With a second score, ``s2``, placements are
    those by the second less those by the first, and the area is the difference of both. The moments have two
    variables: n are positives and negatives, the first mean is the area, and the variances are those of the placements.
    With weights, ``w``, they
    are those of w(a − A)/w̄, and two more variables are the weights themselves. With units the first variable has one
    value for each, and the others count positives and negatives.
    """
    frame, checks = prepare_inputs(rows, by, request, split)
    if split is None:
        return _group_placements(rows, by, request, frame, checks, 0)
    with materialize(frame) if split.times > 1 else nullcontext(frame) as base:
        grouped = []
        for repetition in range(split.times):
            parts = assign_parts(base, split, repetition)
            grouped += _group_placements(rows, by, request, parts, checks, len(split.shares))
        return grouped


def _group_placements(
    rows: Rows,
    by: Keys,
    request: Request,
    frame: nw.LazyFrame[Any],
    checks: Mapping[str, tuple[str, str]],
    count: int,
) -> list[Grouped]:
    """The placements of prepared rows, divided into `count` parts or not at all."""
    import narwhals as nw

    keyed = [*by.names, *(["part"] if count else [])]
    largest = [nw.col(name).max().alias(name) for name in by.fractions()]
    present = [nw.col(role).count().alias(f"have_{role}") for role in request.inputs]
    totals = fetch(frame.group_by(*keyed).agg(*count_rows(checks), *present, *largest))
    by.record_fractions(totals)
    check_inputs(rows, request, totals, checks)
    group_places = places.place_groups(by, totals)
    arms = places.place_arms(totals, None, len(group_places.groups))
    counts = to_floats(totals["rows"]), to_floats(totals["ok"])
    dropped = places.count_dropped(*counts, arms, None)
    have = {source.column: to_floats(totals[f"have_{role}"]) for role, source in request.inputs.items()}
    missing = places.count_missing(*counts, arms, group_places, have)
    used = frame.filter(nw.col("ok"))
    if request.unit is not None:
        check_units(used, by, request)
    summed = fetch(sum_request(used, keyed, request))
    is_plain = "w" not in request.inputs and "s2" not in request.inputs
    moments = _unit_moments if request.unit is not None else _moments if is_plain else _weighted_moments
    # The groups of both tables in one order: those of the totals, which are all.
    both = {name: _concatenate(totals[name], summed[name]) for name in by.names}
    groups = places.place_groups(by, both).groups[len(group_places.groups) :]
    parts = places.split_rows(summed, count)
    return [
        Grouped(group_places.keys, moments(summed, groups, part, len(group_places.keys)), dropped, missing=missing)
        for part in parts
    ]


def prepare_inputs(
    rows: Rows, by: Keys, request: Request, split: Split | None = None
) -> tuple[nw.LazyFrame[Any], dict[str, tuple[str, str]]]:
    """Keys, number of the unit, inputs by role, whether a row can be used, and the checks: name → role and kind."""
    import narwhals as nw

    expressions, needed = by.expressions(), [*request.inputs]
    checks: dict[str, tuple[str, str]] = {}
    for role, source in request.inputs.items():
        cleaned = clean_input(rows, source, source.parameter or role)
        expressions.append(cleaned.value.alias(role))
        expressions += [expression.alias(f"{kind}_{role}") for kind, expression in cleaned.checks.items()]
        checks |= {f"{kind}_{role}": (role, kind) for kind in cleaned.checks}
    if split or request.unit:
        unit = rows.keys[split.unit if split else str(request.unit)]
        expressions.append(key_value(unit, by.schema[unit]).alias("unit"))
        needed.append("unit")
    expressions += [expression.alias(name) for name, expression in by.fractions().items()]
    frame = rows.frame.select(*expressions)
    if split:
        frame = hash_units(frame, split)
    usable = ~nw.any_horizontal(*(nw.col(name).is_null() for name in needed), ignore_nulls=False)
    return frame.with_columns(usable.alias("ok")), checks


def count_rows(checks: Mapping[str, tuple[str, str]]) -> list[Any]:
    """Aggregates of prepared rows: how many there are, how many can be used, and the ends of what is checked."""
    import narwhals as nw

    counts = [nw.len().alias("rows"), nw.col("ok").cast(nw.Int64).sum().alias("ok")]
    return counts + [getattr(nw.col(name), end)().alias(f"{end}_{name}") for name in checks for end in ("min", "max")]


def check_inputs(
    rows: Rows, request: Request, totals: Mapping[str, Column], checks: Mapping[str, tuple[str, str]]
) -> None:
    """Refuse inputs that hold what they must not hold, by those aggregates."""
    for role, source in request.inputs.items():
        ends = {
            kind: [totals[f"{end}_{name}"] for end in ("min", "max")]
            for name, (checked, kind) in checks.items()
            if checked == role
        }
        check_input(rows, source, source.parameter or role, ends, float(to_floats(totals["ok"]).sum()))


def sum_request(used: nw.LazyFrame[Any], keyed: list[str], request: Request) -> nw.LazyFrame[Any]:
    """Sums by group that the moments of a request are made of, from prepared rows that can be used."""
    bins, weighted = request.ranking or 0, "w" in request.inputs
    scores = [role for role in _SCORES if role in request.inputs]
    if request.unit is not None:
        return sum_unit_placements(used, keyed, bins, weighted=weighted, scores=scores)
    sums = sum_placements if len(scores) == 1 else sum_paired_placements
    return sums(used, keyed, bins, weighted=weighted)


def sum_placements(
    used: nw.LazyFrame[Any], keyed: list[str], bins: int, *, weighted: bool = False
) -> nw.LazyFrame[Any]:
    """Sums of powers of placements by group, from the counts of positives and negatives at each score.

    With weights they are sums of powers of w(a − A), where A is the area.
    """
    import narwhals as nw

    if bins:
        used = used.with_columns((nw.col("s") * bins).floor().cast(nw.Float64).alias("s"))
    if weighted:
        counted = used.group_by(*keyed, "s").agg(*_sums_of_weights())
    else:
        counted = used.group_by(*keyed, "s").agg(nw.col("t").sum().alias("pos"), nw.len().alias("all"))
        counted = counted.with_columns((nw.col("all").cast(nw.Float64) - nw.col("pos")).alias("neg"))
    pos, neg = nw.col("pos"), nw.col("neg")
    counted = counted.with_columns(
        pos.cum_sum().over(*keyed, order_by="s").alias("below_pos"),
        neg.cum_sum().over(*keyed, order_by="s").alias("below_neg"),
        pos.sum().over(*keyed).alias("all_pos"),
        neg.sum().over(*keyed).alias("all_neg"),
    )
    below, above = nw.col("below_neg") - neg / 2, nw.col("all_pos") - nw.col("below_pos") + pos / 2
    counted = counted.with_columns(
        nw.when(nw.col("all_neg") > 0).then(below / nw.col("all_neg")).alias("a"),
        nw.when(nw.col("all_pos") > 0).then(above / nw.col("all_pos")).alias("b"),
    )
    powers = {"p1": pos * nw.col("a")}
    if weighted:
        counted = counted.with_columns((pos * nw.col("a")).sum().over(*keyed).alias("all_p1"))
        counted = counted.with_columns(
            nw.when(nw.col("all_pos") > 0).then(nw.col("all_p1") / nw.col("all_pos")).alias("area")
        )
    for side, count, place in (("p", pos, nw.col("a")), ("n", neg, nw.col("b"))):
        for power in _POWERS:
            many, away = (nw.col(f"w{side}{power}"), place - nw.col("area")) if weighted else (count, place)
            powers[f"{side}{power}"] = many * away**power
    counted = counted.with_columns(*(expression.alias(name) for name, expression in powers.items()))
    return counted.group_by(*keyed).agg(*(nw.col(name).sum() for name in (_WEIGHTED if weighted else _SUMMED)))


def sum_paired_placements(
    used: nw.LazyFrame[Any], keyed: list[str], bins: int, *, weighted: bool = False
) -> nw.LazyFrame[Any]:
    """Sums of powers of w(d − Δ) by group, where d is a row's placement by the second score less that by the first.

    Δ is the difference of the two areas. DeLong's variance of it, with the covariance of both, is that of d among the
    positives over their number, and likewise among the negatives.
    """
    import narwhals as nw

    placements = _place_rows(used, keyed, _SCORES, bins, weighted=weighted)
    sums = {"pos": nw.col("pos"), "neg": nw.col("neg"), "p1": nw.col("pos") * nw.col("d")}
    for side, total in (("p", "pos"), ("n", "neg")):
        rows, weight = nw.col(f"rows_{side}"), nw.col(total)
        sums |= {f"{side}{power}": rows * (weight * (nw.col("d") - nw.col("area"))) ** power for power in _POWERS}
        sums |= {f"rows_{side}": rows, f"squares_{side}": weight**2}
    placements = placements.select(*keyed, *(expression.alias(name) for name, expression in sums.items()))
    return placements.group_by(*keyed).agg(*(nw.col(name).sum() for name in _WEIGHTED))


def sum_unit_placements(
    used: nw.LazyFrame[Any], keyed: list[str], bins: int, *, weighted: bool = False, scores: Sequence[str] = ("s",)
) -> nw.LazyFrame[Any]:
    """Sums of powers of what each unit adds to the area, or to the difference of two, by group (Obuchowski).

    With placements a of positives, b of negatives and the area A, a unit adds Σ(a − A)/n₊ + Σ(b − A)/n₋ over its own
    rows. Units are independent, so that the sum of the squares of that is the variance of the area.
    """
    import narwhals as nw

    placements = _place_rows(used, keyed, scores, bins, weighted=weighted)
    share = nw.col("pos") / nw.col("all_pos") + nw.col("neg") / nw.col("all_neg")
    placements = placements.with_columns(((nw.col("d") - nw.col("area")) * share).alias("added"))
    units = placements.group_by(*keyed, "unit").agg(
        nw.col("added").sum().alias("d"), nw.col("area").max(), *(nw.col(f"rows_{side}").sum() for side in "pn")
    )
    units = units.with_columns(*((nw.col("d") ** power).alias(f"d{power}") for power in _POWERS))
    powers = [nw.col(f"d{power}").sum() for power in _POWERS]
    totals = [nw.col(name).sum() for name in ("rows_p", "rows_n")]
    return units.group_by(*keyed).agg(nw.len().alias("units"), nw.col("area").max(), *totals, *powers)


def _place_rows(
    used: nw.LazyFrame[Any], keyed: list[str], scores: Sequence[str], bins: int, *, weighted: bool
) -> nw.LazyFrame[Any]:
    """Rows with their placement d, and the area: that of a positive among the negatives, of a negative the other way.

    Of two scores, d is the placement by the second less that by the first, and the area is the difference of both.
    Null where a group lacks positives or negatives.
    """
    import narwhals as nw

    weight = nw.col("w") if weighted else nw.lit(1.0)
    if bins:
        used = used.with_columns(*((nw.col(s) * bins).floor().cast(nw.Float64).alias(s) for s in scores))
    rows = {"rows_p": nw.col("t"), "rows_n": 1 - nw.col("t")}
    sides = {"pos": nw.col("t") * weight, "neg": (1 - nw.col("t")) * weight}
    used = used.with_columns(*(value.alias(name) for name, value in (rows | sides).items()))
    used = used.with_columns(*(nw.col(side).sum().over(*keyed).alias(f"all_{side}") for side in _SIDES))
    both = nw.col("all_pos") * nw.col("all_neg")
    for place, score in enumerate(scores):
        used = used.with_columns(
            *(nw.col(side).cum_sum().over(*keyed, order_by=score).alias(f"below_{side}") for side in _SIDES),
            *(nw.col(side).sum().over(*keyed, score).alias(f"tied_{side}") for side in _SIDES),
        )
        # Rows of one score are in any order: the largest sum is that of all of them.
        used = used.with_columns(*(nw.col(f"below_{s}").max().over(*keyed, score).alias(f"to_{s}") for s in _SIDES))
        below = (nw.col("to_neg") - nw.col("tied_neg") / 2) / nw.col("all_neg")
        above = (nw.col("all_pos") - nw.col("to_pos") + nw.col("tied_pos") / 2) / nw.col("all_pos")
        own = nw.when(nw.col("t") > 0).then(below).otherwise(above)
        used = used.with_columns(nw.when(both > 0).then(own).alias(f"place{place}"))
    placement = nw.col("place0")
    if len(scores) > 1:
        apart = nw.col("place1") - placement
        # Sums of weights in another order differ by rounding where both scores rank a row alike.
        placement = nw.when(apart.abs() > _SAME_PLACE).then(apart).otherwise(apart * 0)
    used = used.with_columns(placement.alias("d"))
    area = (nw.col("pos") * nw.col("d")).sum().over(*keyed) / nw.col("all_pos")
    return used.with_columns(nw.when(both > 0).then(area).alias("area"))


def check_units(used: nw.LazyFrame[Any], by: Keys, request: Request) -> None:
    """Refuse units that are in several groups."""
    import narwhals as nw

    unit = ["unit", *by.names[: by.separate]]
    pairs = used.select(*dict.fromkeys([*by.names, "unit"])).unique()
    several = pairs.group_by(*unit).agg(nw.len().alias("places")).filter(nw.col("places") > 1)
    count = int(to_floats(fetch(several.select(nw.len().alias("n")))["n"])[0])
    if count:
        raise units_in_several_error(request.unit, count, request)


def _sums_of_weights() -> list[Any]:
    """Weights of positives and negatives at a score: their number, their sum, and the sums of their powers."""
    import narwhals as nw

    weights: dict[str, Any] = {}
    for side, total, is_side in (("p", "pos", nw.col("t")), ("n", "neg", 1 - nw.col("t"))):
        weights |= {total: is_side * nw.col("w"), f"rows_{side}": is_side}
        weights |= {f"w{side}{power}": is_side * nw.col("w") ** power for power in _POWERS}
        weights[f"squares_{side}"] = is_side * nw.col("w") ** 2
    return [expression.sum().alias(name) for name, expression in weights.items()]


def _concatenate(first: Column, second: Column) -> Column:
    """Two fetched columns, one after the other."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        masked = isinstance(first, np.ma.MaskedArray) or isinstance(second, np.ma.MaskedArray)
        if not masked:
            return np.concatenate([first, second])
        nulls = np.concatenate([np.ma.getmaskarray(first), np.ma.getmaskarray(second)])
        return np.ma.MaskedArray(np.concatenate([np.ma.getdata(first), np.ma.getdata(second)]), nulls)
    return [*_to_list(first), *_to_list(second)]


def _to_list(column: Column) -> list[Any]:
    return column.tolist() if isinstance(column, np.ndarray) else column


def _moments(summed: Mapping[str, Column], groups: Any, part: Any, size: int) -> Moments:
    at = groups[part]
    sums = {name: to_floats(summed[name])[part] for name in _SUMMED}
    n, mean, cov = np.zeros((size, 1, 2)), np.full((size, 1, 2), np.nan), np.full((size, 1, 2, 2), np.nan)
    skewness, kurtosis = np.full((size, 1, 2), np.nan), np.full((size, 1, 2), np.nan)
    with np.errstate(all="ignore"):
        area = sums["p1"] / sums["pos"]
        mean[at, 0, 0] = area
        for i, (side, count) in enumerate((("p", sums["pos"]), ("n", sums["neg"]))):
            n[at, 0, i] = count
            second, third, fourth = (sums[f"{side}{power}"] / count for power in _POWERS)
            spread = np.maximum(second - area**2, 0)
            cov[at, 0, i, i] = spread * count / (count - 1)
            skewness[at, 0, i] = (third - 3 * area * second + 2 * area**3) / spread**1.5
            kurtosis[at, 0, i] = (fourth - 4 * area * third + 6 * area**2 * second - 3 * area**4) / spread**2
    return Moments(n, mean, cov, skewness, kurtosis)


def _unit_moments(summed: Mapping[str, Column], groups: Any, part: Any, size: int) -> Moments:
    """Moments of what units add to the area, times their number, about the area; and counts of either side."""
    at = groups[part]
    names = ("units", "area", "rows_p", "rows_n", *(f"d{power}" for power in _POWERS))
    sums = {name: to_floats(summed[name])[part] for name in names}
    n, mean, cov = np.zeros((size, 1, 3)), np.full((size, 1, 3), np.nan), np.full((size, 1, 3, 3), np.nan)
    skewness, kurtosis = np.full((size, 1, 3), np.nan), np.full((size, 1, 3), np.nan)
    units = sums["units"]
    for i, name in enumerate(("units", "rows_p", "rows_n")):
        n[at, 0, i] = sums[name]
    with np.errstate(all="ignore"):
        second, third, fourth = (sums[f"d{power}"] * units ** (power - 1) for power in _POWERS)
        mean[at, 0, 0] = sums["area"]
        cov[at, 0, 0, 0] = second * units / (units - 1)
        skewness[at, 0, 0], kurtosis[at, 0, 0] = third / second**1.5, fourth / second**2
    return Moments(n, mean, cov, skewness, kurtosis)


def _weighted_moments(summed: Mapping[str, Column], groups: Any, part: Any, size: int) -> Moments:
    """The same of weighted placements: variances and shapes of w(a − A)/w̄, then mean and variance of w."""
    at = groups[part]
    sums = {name: to_floats(summed[name])[part] for name in _WEIGHTED}
    n, mean, cov = np.zeros((size, 1, 4)), np.full((size, 1, 4), np.nan), np.full((size, 1, 4, 4), np.nan)
    skewness, kurtosis = np.full((size, 1, 4), np.nan), np.full((size, 1, 4), np.nan)
    with np.errstate(all="ignore"):
        mean[at, 0, 0] = sums["p1"] / sums["pos"]
        for i, (side, total) in enumerate((("p", sums["pos"]), ("n", sums["neg"]))):
            count = sums[f"rows_{side}"]
            weight = total / count
            second, third, fourth = (sums[f"{side}{power}"] / count / weight**power for power in _POWERS)
            n[at, 0, i], cov[at, 0, i, i] = count, second * count / (count - 1)
            skewness[at, 0, i], kurtosis[at, 0, i] = third / second**1.5, fourth / second**2
            n[at, 0, 2 + i], mean[at, 0, 2 + i] = count, weight
            cov[at, 0, 2 + i, 2 + i] = (sums[f"squares_{side}"] / count - weight**2) * count / (count - 1)
    return Moments(n, mean, cov, skewness, kurtosis)
