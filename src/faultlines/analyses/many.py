"""`fl.cluster_many`: thousands of experiments or metrics at once, with one correction over all of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from faultlines import checks
from faultlines.analyses.groups import Groups, groups_from
from faultlines.core.comparison import Comparison
from faultlines.core.custom import Similarity
from faultlines.core.normal import as_comparison, is_comparison
from faultlines.errors import InputError, NoGroupsError, shorten
from faultlines.estimates.estimates import EstimateColumns, Estimates, Excluded, checked_attributes, read_experiments
from faultlines.estimates.labels import Key, keys_of, name_of
from faultlines.estimates.reasons import DropCode, Reason, ReasonCode
from faultlines.guarantees import resolve_guarantee
from faultlines.guarantees.base import Guarantee, GuaranteedPath, run_in_order
from faultlines.metrics.base import Metric
from faultlines.metrics.measure import measurements
from faultlines.progress import progress
from faultlines.results.collection import Experiment, Experiments
from faultlines.results.multiplicity import CORRECTIONS, Correction, adjustments, corrected
from faultlines.rows.keys import ALL_ROWS, MISSING_VALUE, By
from faultlines.rows.read import attribute_names, checked_by, read
from faultlines.rows.request import Grouped
from faultlines.types import IntArray

# ------------------------------------------ one table, or one scan of rows, divided into the experiments that are in it


class GroupsByExperiment(NamedTuple):
    """The groups of every experiment; experiments none of whose groups can be used; dropped rows."""

    groups: dict[str, Groups]
    excluded: tuple[Excluded, ...]
    dropped: Mapping[DropCode, int]


def _from_mapping(
    data: Mapping[str, Any], min_size: float | None, guarantee: Guarantee, tolerance: float
) -> GroupsByExperiment:
    """Experiments that were given as estimates by name."""

    def groups(estimates: object) -> Groups:
        return groups_from(
            estimates, None, [], min_size=min_size, tolerance=tolerance, guarantee=guarantee, moderated=True
        )[0]

    return _collect(data, groups, {})


def _from_table(
    frame: object,
    *,
    experiment: str,
    by: Any,
    columns: Mapping[str, Any],
    min_size: float | None,
    guarantee: Guarantee,
    tolerance: float,
) -> GroupsByExperiment:
    """Experiments of a table with one row per experiment and group.

    Args:
        frame: A frame, or the path of a csv or parquet file.
        experiment: The column that names the experiment.
        by: The columns that name its groups.
        columns: The columns of estimate, se, n and dof, by these names.
        min_size: Exclude smaller groups.
        guarantee: The error control.
        tolerance: Effects at most so far apart are similar.
    """
    _check_column(experiment, checked_attributes(by))
    estimates = read_experiments(frame, by, EstimateColumns(**columns), experiment=experiment)
    return _from_mapping(estimates, min_size, guarantee, tolerance)


def _from_rows(
    data: object,
    *,
    experiment: str,
    by: By,
    metric: Any,
    min_size: float | None,
    guarantee: Guarantee,
    tolerance: float,
) -> GroupsByExperiment:
    """Experiments of rows, in one group-by for all of them.

    Every experiment is measured by itself: how far variances are taken to be common is decided among its own groups.

    Args:
        data: A frame, or path, paths or glob of files.
        experiment: The column that says which experiment a row is of.
        by: The groups.
        metric: What to measure.
        min_size: Exclude groups with fewer rows.
        guarantee: The error control.
        tolerance: Effects at most so far apart are similar.
    """
    if not isinstance(metric, Metric):
        remedy = 'Use for example fl.rate("converted") or fl.lift(...).'
        raise InputError.wrong_type("metric", "is not a metric", remedy, metric)
    if guarantee.unit is not None:
        problem = "rows of many experiments are not split by unit"
        raise InputError.unsupported(
            "unit", problem, "Leave it out: their estimates are split.", guarantee.unit, form="clause"
        )
    attributes = checked_by(by)
    names = attribute_names(attributes)
    _check_column(experiment, names)
    least = metric.min_size if min_size is None else checks.size(min_size)
    if metric.overlap != "error":
        problem = "units in several groups are followed in one experiment at a time"
        raise InputError.unsupported(
            "overlap", problem, "Cluster the experiments one by one.", metric.overlap, form="clause"
        )
    scan = read(data, (experiment, *attributes), [metric], None, separate=1)
    grouped = scan.grouped[0][0]
    if not len(grouped.keys):
        raise InputError.empty("data", "has no rows", "Give at least one row for each group.")
    parts = {name: _part(grouped, places) for name, places in _places([key[0] for key in grouped.keys]).items()}

    def groups(part: Grouped) -> Groups:
        measured = measurements([part], names, metric, least, scan.by[1:])[0]
        comparison = as_comparison(measured.estimates, tolerance)
        return Groups(comparison, (), measured.excluded, measured.dropped, measured.by, measured.readout)

    return _collect(parts, groups, {why: count for why, count in grouped.dropped.items() if count})


def _check_column(experiment: Any, attributes: Sequence[str]) -> None:
    if checks.column("experiment", experiment) in attributes:
        raise InputError.duplicate("experiment", "names the groups as well", "Name two different columns.", experiment)


def _places(names: Sequence[Hashable]) -> dict[str, IntArray]:
    """Where the rows of each experiment are, in the order in which they first occur."""
    rows: dict[Hashable, list[int]] = {}
    for place, name in enumerate(names):
        rows.setdefault((type(name), name), []).append(place)
    places_by_name: dict[str, IntArray] = {}
    for (_, name), places in rows.items():  # type: ignore[misc]
        text = name_of(name)
        if text in places_by_name:
            raise InputError.ambiguous(
                "experiment",
                f"{shorten(text)} is the name of several experiments",
                "Give all names as text.",
                form="column",
            )
        places_by_name[text] = np.array(places, dtype=np.int64)
    return places_by_name


def part_of_stratum(grouped: Grouped, separate: int) -> Iterator[tuple[Key, Grouped]]:
    """The groups of each combination of the first attributes, named without these."""
    places: dict[Key, list[int]] = {}
    for place, key in enumerate(grouped.keys):
        places.setdefault(tuple(key[:separate]), []).append(place)
    for stratum, several in places.items():
        yield stratum, _part(grouped, np.array(several, dtype=np.int64), separate)


def _part(grouped: Grouped, places: IntArray, separate: int = 1) -> Grouped:
    """Some of the groups, named without the first attributes, with the rows of theirs that were not used."""
    rest = [tuple(grouped.keys[i][separate:]) or (ALL_ROWS,) for i in places.tolist()]
    keys: Sequence[Key] = keys_of(rest)
    rows, lost = (None if counts is None else counts[places] for counts in (grouped.rows, grouped.lost))
    dropped = {} if lost is None else {MISSING_VALUE: int(lost.sum())}
    moments = grouped.moments.of_groups(places)
    missing = None if grouped.missing is None else grouped.missing.of_places(places, keys)
    return replace(grouped, keys=keys, moments=moments, dropped=dropped, rows=rows, lost=lost, missing=missing)


def _collect(
    data: Mapping[str, Any], measure: Callable[[Any], Groups], dropped: Mapping[DropCode, int]
) -> GroupsByExperiment:
    """Groups by experiment; an experiment without any that can be used is excluded, with its reason."""
    groups: dict[str, Groups] = {}
    excluded: list[Excluded] = []
    errors: list[NoGroupsError] = []
    for name, part in data.items():
        try:
            groups[name] = measure(part)
        except NoGroupsError as error:
            excluded.append(Excluded(name, Reason(ReasonCode.NO_GROUPS, detail=error.problem)))
            errors.append(error)
    if not groups:
        first = errors[0]
        count = f" (and likewise {len(excluded) - 1} more experiments)" if len(excluded) > 1 else ""
        raise first.changed(problem=first.problem + count).within(f"experiment {shorten(excluded[0].label)}")
    return GroupsByExperiment(groups, tuple(excluded), dropped)


# -------------------------------------------------------------------------------------------------------- cluster them


def cluster_many(
    estimates_by_name: Mapping[str, Estimates | Similarity] | object,
    *,
    experiment: str | None = None,
    by: By | None = None,
    estimate: str | None = None,
    se: str | None = None,
    n: str | None = None,
    dof: str | None = None,
    metric: Metric | None = None,
    min_size: float | None = None,
    alpha: float = 0.05,
    guarantee: str | Guarantee = "calibrated",
    correction: Correction = "holm",
    margins: bool = True,
    tolerance: float = 0.0,
    refine: bool = True,
    seed: int = 0,
) -> Experiments:
    """Cluster many experiments or metrics, each with groups of its own, and correct for their number.

    Every experiment gets the p it would get from `fl.cluster`; then Holm's or Benjamini and Hochberg's procedure says
    in which of them a difference is reported: those with an adjusted p below α. Error controls that divide data at
    random do so in each experiment with a seed of its own, made of `seed` and its name, which its result states; they
    divide estimates, not rows.

    Args:
        estimates_by_name: The estimates (or a Similarity) of each. Or one frame or file with all of them: a table with
            one row per experiment and group (`estimate`, `se`), or rows (`metric`), which one group-by measures in
            all experiments.
        experiment: For a frame: the column that names the experiment.
        by: For a frame: the column, or the columns, whose combinations are the groups.
        estimate: For a table: the column of estimates.
        se: For a table: the column of standard errors.
        n: For a table: the column of group sizes, if there is one.
        dof: For a table: the column of degrees of freedom, if there is one.
        metric: For rows: what to measure.
        min_size: Exclude groups smaller than this; see `fl.cluster`.
        alpha: The accepted probability of any false positive (``"holm"``), or share of false positives among the
            reported differences (``"bh"``).
        guarantee: See `fl.cluster`.
        correction: ``"holm"`` or ``"bh"``.
        margins: See `fl.cluster`.
        tolerance: See `fl.cluster`.
        refine: See `fl.cluster`.
        seed: Of everything random.

    Returns:
        The results, corrected for their number; ``experiments["name"]`` is the `Clustering` of one of them.

    Raises:
        InputError: If something else than names with estimates is given, or a frame does not hold what is named.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> apart, equal = fl.Estimates([0.0, 9.0], [1.0, 1.0]), fl.Estimates([0.0, 0.5], [1.0, 1.0])
        >>> fl.cluster_many({"a": apart, "b": equal}).rejected
        ('a',)
        >>> table = pl.DataFrame({"test": ["a", "a"], "land": ["DE", "IN"], "lift": [0.0, 9.0], "se": [1.0, 1.0]})
        >>> fl.cluster_many(table, experiment="test", by="land", estimate="lift", se="se").to_dicts()[0]["n_clusters"]
        2
    """
    alpha, refine, seed = checks.alpha(alpha), checks.flag("refine", refine), checks.seed(seed)
    control = resolve_guarantee(guarantee)
    checks.choice("correction", correction, CORRECTIONS, "Use 'holm' or 'bh'.")
    columns = {"estimate": estimate, "se": se, "n": n, "dof": dof}
    data = _groups_by_experiment(estimates_by_name, experiment, by, columns, metric, min_size, control, tolerance)
    comparisons = [groups.comparison for groups in data.groups.values()]
    for comparison in comparisons:
        control.check(alpha / len(comparisons), comparison)
    names = tuple(data.groups)
    judged = judge_all(names, comparisons, control, refine, seed, margins=checks.flag("margins", margins))
    log_p = np.array([each.log_pvalue for each in judged])
    log_p_adj, levels = corrected(log_p, alpha, correction)
    parts = zip(judged, adjustments(log_p, correction), data.groups.values(), strict=True)
    return Experiments(
        names=names,
        log_pvalues=log_p,
        log_pvalues_adj=log_p_adj,
        levels=levels,
        alpha=alpha,
        correction=correction,
        guarantee=control,
        refine=refine,
        experiments=tuple(Experiment(j, a, g.excluded, g.dropped, g.by, g.readout) for j, a, g in parts),
        excluded=data.excluded,
        dropped=data.dropped,
    )


def _groups_by_experiment(
    data: object,
    experiment: str | None,
    by: By | None,
    columns: Mapping[str, str | None],
    metric: Metric | None,
    min_size: float | None,
    guarantee: Guarantee,
    tolerance: float,
) -> GroupsByExperiment:
    """The groups of every experiment, from estimates by name or from a frame."""
    named = {"experiment": experiment, "by": by, **columns, "metric": metric}
    named = {name: value for name, value in named.items() if value is not None}
    if isinstance(data, Mapping) or not named:
        if not isinstance(data, Mapping) or not data:
            remedy = "Give {name: estimates}, or a frame with {experiment} and {by}."
            raise InputError.wrong_type(
                "estimates_by_name",
                "is not names with estimates",
                remedy,
                data,
                settings={"experiment": ..., "by": ...},
            )
        if named:
            raise InputError.conflict(
                ", ".join(named), "applies to frames, not to names with estimates", "Leave it out."
            )
        for name, estimates in data.items():
            if not isinstance(name, str) or not (isinstance(estimates, Estimates) or is_comparison(estimates)):
                item = f"{shorten(name)}: {type(estimates).__name__}"
                raise InputError.wrong_type(
                    "estimates_by_name",
                    f"{item} is not a name with its estimates",
                    "Give {name: estimates}.",
                    form="column",
                )
        return _from_mapping(data, min_size, guarantee, tolerance)
    for parameter, value in (("experiment", experiment), ("by", by)):
        if value is None:
            raise InputError.missing(
                parameter,
                "a frame needs both experiment and groups",
                "Give {experiment} and {by}.",
                settings={"experiment": ..., "by": ...},
                form="clause",
            )
    options: dict[str, Any] = {"experiment": experiment, "by": by, "min_size": min_size}
    options |= {"guarantee": guarantee, "tolerance": tolerance}
    if metric is not None:
        if of_table := [name for name in columns if name in named]:
            raise InputError.conflict(
                ", ".join(of_table),
                "applies to tables of estimates, not to rows",
                "Leave it out, or leave out {metric}.",
                settings={"metric": ...},
            )
        return _from_rows(data, metric=metric, **options)
    if "estimate" not in named or "se" not in named:
        remedy = "Name both columns; for rows, give {metric}."
        raise InputError.missing(
            "estimate, se", "both are needed for a table", remedy, settings={"metric": ...}, form="clause"
        )
    return _from_table(data, columns=columns, **options)


def judge_all(
    names: Sequence[str],
    comparisons: Sequence[Comparison],
    guarantee: Guarantee,
    refine: bool,
    seed: int,
    work: str = "clustering experiments",
    *,
    margins: bool = False,
) -> list[GuaranteedPath]:
    """Every experiment judged: where it can be, in one compiled pass for each number of groups, else on its own."""
    judged: dict[int, GuaranteedPath] = {}
    with progress(work, len(comparisons)) as advance:
        judged |= _judge_together(comparisons, guarantee, refine, seed, advance, margins=margins)
        others = [i for i in range(len(comparisons)) if i not in judged]

        def judge_alone(number: int) -> GuaranteedPath:
            # Error controls that divide data at random do so with a seed of the experiment's own.
            i = others[number]
            own = zlib.crc32(names[i].encode("utf-8", "surrogatepass")) if guarantee.shares(1) else 0
            return guarantee.find_path(comparisons[i], seed + own, refine=refine, cores=1, margins=margins)

        for i, alone in zip(others, run_in_order(judge_alone, len(others)) if others else (), strict=True):
            judged[i] = alone
            advance(1)
    return [judged[i] for i in range(len(comparisons))]


def _judge_together(
    comparisons: Sequence[Comparison],
    guarantee: Guarantee,
    refine: bool,
    seed: int,
    advance: Callable[[int], None],
    *,
    margins: bool,
) -> dict[int, GuaranteedPath]:
    """Plain comparisons with the same number of groups, judged in one pass where the error control has one."""
    by_size: dict[int, list[int]] = {}
    for i, comparison in enumerate(comparisons):
        if comparison.is_plain and not (margins and len(comparison.attributes) > 1):
            by_size.setdefault(len(comparison), []).append(i)
    judged: dict[int, GuaranteedPath] = {}
    for places in by_size.values():
        several = guarantee.find_paths([comparisons[i] for i in places], seed, refine=refine, advance=advance)
        judged |= {} if several is None else dict(zip(places, several, strict=True))
    return judged
