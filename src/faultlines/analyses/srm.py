"""`fl.srm`: are units shared out between the arms as planned, and where does a mismatch come from?"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from faultlines import checks
from faultlines.analyses.cluster import cluster, holm
from faultlines.errors import InputError
from faultlines.estimates.labels import Key, Names, match, part_of
from faultlines.estimates.reasons import DropCode
from faultlines.formats import unit_name
from faultlines.metrics.base import Metric
from faultlines.metrics.experiment import aggregated
from faultlines.metrics.forms import value_variables
from faultlines.metrics.measure import measurements
from faultlines.metrics.moments import of_population
from faultlines.metrics.population import rate
from faultlines.metrics.warnings import compare_arms
from faultlines.results.clustering import Clustering
from faultlines.results.sample_ratio import ArmShare, SampleRatios
from faultlines.rows.keys import Bins, By
from faultlines.rows.read import attribute_names, checked_by, read
from faultlines.rows.request import Grouped, Input, Moments, checked_shares
from faultlines.types import FloatArray

Attributes = tuple[str | Bins, ...]


def srm(
    data: object,
    by: By | None = None,
    *,
    variant: str,
    shares: Mapping[Any, float] | None = None,
    unit: str | None = None,
    alpha: float = 0.001,
    min_size: float = 10,
    seed: int = 0,
) -> SampleRatios:
    """Test the sample ratios of an experiment, and find the groups that a mismatch comes from.

    One p covers all units together and every margin of the groups (by country; by browser; by country × browser).
    Where it is at most α, the share of each arm is clustered over the groups as effects are by `fl.cluster`, with
    Holm's correction over three arms or more.

    Args:
        data: Rows, as for `fl.cluster`.
        by: The attributes of the groups. Without them the units of all arms are tested against `shares` alone.
        variant: The column that says which variant a row had.
        shares: Variant → planned share of units, such as ``{"A": 0.5, "B": 0.5}``; other variants are dropped. Without
            it, shares are compared between groups alone: a mismatch that is the same everywhere cannot be seen.
        unit: The randomised unit, when there are several rows of each: units are counted then.
        alpha: Significance level. Sample ratios are looked at often, so that it is smaller than for effects.
        min_size: Units that a group needs to be clustered; smaller ones count in the margins they belong to.
        seed: Of the random draws of the clusters.

    Returns:
        The test, the shares of all arms, and for a mismatch the clusters of each arm's share.

    Raises:
        InputError: If the rows cannot be read, a variant with a planned share does not occur, there is but one, or
            neither `by` nor `shares` is given.

    Example:
        >>> import faultlines as fl, numpy as np, polars as pl
        >>> rng = np.random.default_rng(0)
        >>> rows = pl.DataFrame({"country": rng.choice(["DE", "FR", "IN"], 9000), "arm": rng.choice(["A", "B"], 9000)})
        >>> kept = rows.filter(~((pl.col("country") == "FR") & (pl.col("arm") == "B") & (pl.int_range(9000) % 3 == 0)))
        >>> result = fl.srm(kept, "country", variant="arm", shares={"A": 0.5, "B": 0.5})
        >>> result.verdict, result.where
        ('mismatch', {'country': 'FR'})
    """
    checks.alpha(alpha)
    checks.seed(seed)
    least = checks.size(min_size)
    planned = None if shares is None else checked_shares(shares)
    if by is None and planned is None:
        remedy = "Give for example {shares}, or groups to compare."
        settings: dict[str, Any] = {"shares": {"A": 0.5, "B": 0.5}}
        raise InputError.missing("shares", "is missing: without groups, shares need a plan", remedy, settings=settings)
    attributes = () if by is None else checked_by(by)
    names = attribute_names(attributes)
    keys, arms, counts, dropped = _count_arms(data, attributes, variant, unit)
    expected = None
    if planned is not None:
        chosen = _find_arms(arms, planned, variant)
        dropped[DropCode.OTHER_VARIANTS] = int(counts.sum() - counts[:, chosen].sum())
        arms, counts = [arms[place] for place in chosen], counts[:, chosen]
        weights = np.array([share for _, share in planned])
        expected = tuple((weights / weights.sum()).tolist())
    if len(arms) < 2:
        raise InputError.too_few("variant", "has one value alone", "An experiment needs two variants.", variant)
    counted = unit_name(unit)
    ratio = compare_arms(counts, arms, keys, names, shares=expected, unit=counted)
    total = counts.sum(axis=0)
    table = tuple(
        ArmShare(str(arm), float(n), float(n / total.sum()), None if expected is None else expected[i])
        for i, (arm, n) in enumerate(zip(arms, total.tolist(), strict=True))
    )
    clusterings: list[Clustering] = []
    if ratio is not None and ratio.log_pvalue <= np.log(alpha) and len(keys) > 1:
        clusterings = _cluster_shares(counts, arms, keys, attributes, counted, least, alpha, seed)
    dropped_rows = {why: count for why, count in dropped.items() if count}
    return SampleRatios(ratio, alpha, table, tuple(clusterings), dropped_rows, counted, names)


def list_variants(data: object, variant: str) -> list[str]:
    """The variants that occur in rows, in the order of their names.

    Args:
        data: Rows, as for `fl.cluster`.
        variant: The column of variants.
    """
    return [str(arm) for arm in _count_arms(data, (), variant, None)[1]]


def _count_arms(
    data: object, attributes: Attributes, variant: str, unit: str | None
) -> tuple[Sequence[Key], list[Hashable], FloatArray, dict[DropCode, int]]:
    """Units of every group and arm."""
    checks.column("variant", variant)
    if unit is not None:
        checks.column("unit", unit)
    # Any label will do: values of this input are not looked at, only counted.
    source = Input(variant, "class", positive="0", per_unit=True, parameter="variant", may_lack=True)
    counted = Metric("units", {"x": source}, value_variables, of_population, unit=unit, needs_covariance=False)
    try:
        scan = read(data, checked_by((*attributes, variant)), [counted], None)
    except InputError as error:
        if error.parameter != "unit" or error.code != "invalid data":
            raise
        raise _units_in_several(data, variant, unit, error) from error
    grouped = scan.grouped[0][0]
    sizes = grouped.moments.n[:, 0, 0]
    places: dict[Any, int] = {}
    columns: dict[Any, int] = {}
    at = [(places.setdefault(key[:-1], len(places)), key[-1]) for key in grouped.keys]
    for (_, arm), size in zip(at, sizes.tolist(), strict=True):
        if size > 0:
            columns.setdefault(arm, len(columns))
    counts = np.zeros((len(places), len(columns)))
    for (place, arm), size in zip(at, sizes.tolist(), strict=True):
        if size > 0:
            counts[place, columns[arm]] += size
    order = sorted(range(len(columns)), key=lambda i: str(list(columns)[i]))
    keys = [key for key in places if counts[places[key]].sum() > 0]
    counts = counts[[places[key] for key in keys]][:, order] if keys else counts
    if not counts.size:
        raise InputError.empty("data", "has no rows with a variant", "Give at least one row for each variant.")
    own = Names([key[0] for key in keys]) if len(attributes) == 1 else keys
    return own, [list(columns)[i] for i in order], counts, dict(grouped.dropped)


def _units_in_several(data: object, variant: str, unit: str | None, error: InputError) -> InputError:
    """The error of units in several groups; where they are in several variants as well, of these."""
    source = Input(variant, "class", positive="0", per_unit=True, parameter="variant", may_lack=True)
    counted = Metric("units", {"x": source}, value_variables, of_population, unit=unit, needs_covariance=False)
    try:
        read(data, checked_by(variant), [counted], None)
    except InputError:
        remedy = "They have had several: find out why, and leave them out of all variants."
        return InputError.invalid_data("unit", "has values that are in more than one variant", remedy, unit)
    return error.changed(remedy="A unit must be in one group: leave such units out, or group by what cannot change.")


def _find_arms(arms: Sequence[Hashable], planned: Sequence[tuple[Hashable, float]], variant: str) -> list[int]:
    places = match([(part_of(arm),) for arm, _ in planned], [(arm,) for arm in arms], "shares")
    for place, (arm, _) in zip(places, planned, strict=True):
        if place < 0:
            names = ", ".join(map(str, arms[:10]))
            problem = f"is in no row of {variant!r}"
            raise InputError.not_found("shares", problem, f"There are: {names}.", arm)
    return places


def _cluster_shares(
    counts: FloatArray,
    arms: Sequence[Hashable],
    keys: Sequence[Key],
    attributes: Attributes,
    counted: str,
    least: float,
    alpha: float,
    seed: int,
) -> list[Clustering]:
    """The clusters of each arm's share; of two arms the share of the second says it all."""
    sizes = counts.sum(axis=1)
    names = attribute_names(attributes)
    if np.count_nonzero(sizes >= least) < 2:
        return []
    results = []
    for place in range(len(arms)) if len(arms) > 2 else [1]:
        shares = rate(aggregated("n", mean="share"))
        metric = Metric(
            f"share of {arms[place]}",
            {},
            shares.variables,
            shares.estimate,
            scale=shares.scale,
            aggregated=shares.aggregated,
            needs_covariance=False,
            size_unit=counted,
        )
        mean = (counts[:, place] / sizes)[:, None, None]
        moments = Moments(sizes[:, None, None], mean, np.zeros((sizes.size, 1, 1, 1)))
        measured = measurements([Grouped(keys, moments, {})], names, metric, least, attributes)[0]
        clustering = cluster(measured.estimates, alpha=alpha, seed=seed)
        results.append(replace(clustering, readout=measured.readout).cut(alpha))
    return holm(results, alpha) if len(results) > 1 else results
