"""Impact ratios as regulators print them: rates by category over the highest one, with what the data support.

Rows are counted once, by all attributes crossed; the tables are sums of these counts. Ratios have simultaneous
intervals that hold although the data choose the highest category (multiple comparisons with the best), over all
categories of all tables together.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from faultlines import checks
from faultlines.analyses.certify import checked_missing
from faultlines.analyses.contrasts import at_most_below_best, compare_with_best, effects_of
from faultlines.analyses.groups import columns_of, cut_numbers, refuse_probabilities
from faultlines.analyses.missing import farthest_from_groups, rates_of_counts, unknown_keys
from faultlines.core.counts import rate_estimates
from faultlines.errors import InputError
from faultlines.estimates.labels import MISSING, UNKNOWN_LEVELS, Key, Label, find_unknown, levels_by_attribute
from faultlines.metrics.base import Metric
from faultlines.metrics.forms import rate_of
from faultlines.metrics.population import rate
from faultlines.results.audit import CutFeature
from faultlines.results.certificate import MissingChoice, UnknownChoice
from faultlines.results.impact import CategoryStatus, ImpactCategory, ImpactRatios, ImpactTable, ImpactVerdict
from faultlines.rows.keys import Bins, By
from faultlines.rows.possible import PossibleCounts
from faultlines.rows.read import attribute_names, checked_by, median_of, read, summarize_columns
from faultlines.rows.request import Columns, Input, RepeatedColumn
from faultlines.types import FloatArray

_MOST = 2_000  # categories in a table: every one is compared with every other


def impact_ratios(
    data: object,
    by: By,
    *,
    selected: str | None = None,
    score: str | None = None,
    positive: Hashable = None,
    least: float = 0.8,
    min_share: float = 0.02,
    unknown: UnknownChoice = "bounds",
    unknown_levels: Sequence[str] | None = None,
    missing: MissingChoice = "bounds",
    alpha: float = 0.05,
    seed: int = 0,
) -> ImpactRatios:
    """Selection rates by category and their ratios to the highest one: for each attribute, and for their crossing.

    The tables have the layout of New York City's rules on automated employment decision tools (6 RCNY 5-300 ff.):
    applicants, selected, rate and impact ratio. To these come an interval of each ratio, which holds for all categories
    of all tables together and although the data choose the highest category, and what follows about the ratio `least`.
    It is a computation, not a legal opinion.

    Args:
        data: Rows, one for each applicant: a frame (pandas, Polars, PyArrow, DuckDB, Spark, Ibis), or path, paths or
            glob of csv or parquet files.
        by: The attribute, or the attributes, of the categories; `fl.bins(...)` cuts a numeric one, and one with more
            than 20 values is cut into five ranges of about equal size.
        selected: The column of outcomes: 0/1, booleans, or two labels of which `positive` counts as selected.
        score: The column of scores, where there are no outcomes: the scoring rate is the share above the median of all.
        positive: The label that counts as selected.
        least: The ratio that categories are compared with: 0.8 is the four-fifths rule.
        min_share: Categories with a smaller share of all rows are shown, but have no ratio and are no reference.
        unknown: What becomes of rows with a missing attribute. ``"bounds"``: they are counted apart, may belong to any
            category, and nothing passes that they could overturn. ``"exclude"``: they are counted apart and change
            nothing. ``"category"``: they are a category of their own.
        unknown_levels: Names of levels that say that the attribute is not known, whatever their case and surrounding
            spaces: rows with one of them lack the attribute. By default such as ``"unknown"``, ``"n/a"``, ``"?"`` and
            ``"prefer not to say"``; an empty list for none. `levels` of the result has those that occurred.
        missing: What becomes of rows with a missing outcome. ``"bounds"``: nothing passes that they could overturn.
            ``"ignore"``: they are taken to be like the others.
        alpha: The accepted probability of passing wrongly, and that of failing wrongly.
        seed: Of the draws behind the simultaneous intervals.

    Returns:
        The tables, each with a verdict, and that of all together.

    Raises:
        InputError: If something given cannot be used; the message names the parameter, the value and the remedy.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"sex": ["f", "m"] * 500, "hired": [0, 1, 1, 1] * 250})
        >>> result = fl.impact_ratios(rows, "sex", selected="hired")
        >>> print(result.headline)
        FAILED  By sex, f is below 0.8 × the highest selection rate: ratio 0.50 (simultaneous 95% interval 0.46 … 0.54).
    """
    settings = _Settings(
        checked_least(least),
        checked_min_share(min_share),
        _checked_unknown(unknown),
        checked_missing(missing),
        checks.alpha(alpha),
        checks.seed(seed),
    )
    unknown_names = _checked_levels(unknown_levels)
    attributes, cut = _attributes(data, checked_by(by))
    if (selected is None) == (score is None):
        remedy = "Name the column of outcomes, or the column of scores."
        raise InputError.missing("selected, score", "one of the two is needed", remedy, form="clause")
    median, metric = None, rate(selected, positive=positive) if selected is not None else None
    if metric is None:
        if positive is not None:
            raise InputError.conflict("positive", "applies to selected only, not to score", "Leave it out.", positive)
        median = median_of(data, checks.column("score", score))
        metric = scoring_rate(str(score), median)
    cells, repeated = _count(data, attributes, metric)
    names = attribute_names(attributes)
    cells, levels = _without_names(cells, names, unknown_names)
    margins = [(i,) for i in range(len(names))] + ([tuple(range(len(names)))] if len(names) > 1 else [])
    tables = tuple(
        _table(cells.margin(margin), [names[i] for i in margin], settings, len(margins)) for margin in margins
    )
    return ImpactRatios(
        tables=tables,
        kind="selection rate" if median is None else "scoring rate",
        column=str(selected if selected is not None else score),
        median=median,
        least=settings.least,
        min_share=settings.min_share,
        unknown=settings.unknown,
        missing=settings.missing,
        alpha=settings.alpha,
        applicants=int(cells.applicants.sum()),
        missing_rows=int(cells.missing.sum()),
        seed=settings.seed,
        unknown_levels=levels,
        cut=cut,
        repeated=repeated,
    )


class _Settings(NamedTuple):
    """What was asked, checked."""

    least: float
    min_share: float
    unknown: UnknownChoice
    missing: MissingChoice
    alpha: float
    seed: int


def checked_least(least: Any) -> float:
    """The ratio that categories are compared with."""
    remedy = "0.8 is the four-fifths rule."
    return checks.number("least", least, "must be a ratio between 0 and 1", remedy, low=0, high=1, ends="()")


def checked_min_share(min_share: Any) -> float:
    """The share of all rows from which on a category is compared."""
    return checks.number("min_share", min_share, "must be a share below 1", "0.02 is 2%.", low=0, high=1, ends="[)")


def _checked_unknown(unknown: Any) -> UnknownChoice:
    remedy = "Use 'exclude', 'category' or 'bounds'."
    return cast("UnknownChoice", checks.choice("unknown", unknown, ("exclude", "category", "bounds"), remedy))


def _checked_levels(levels: Any) -> Container[str]:
    """The names of unknown levels, as they are compared."""
    if levels is None:
        return UNKNOWN_LEVELS
    if not isinstance(levels, list | tuple) or not all(isinstance(level, str) for level in levels):
        raise InputError.wrong_type("unknown_levels", "is not a list of names", "Use for example ['unknown'].", levels)
    return frozenset(level.strip().casefold() for level in levels)


def _attributes(data: object, by: tuple[str | Bins, ...]) -> tuple[tuple[str | Bins, ...], tuple[CutFeature, ...]]:
    """The attributes, numeric ones with many values cut; probabilities of groups are refused."""
    summaries = summarize_columns(data, dict.fromkeys(columns_of(by), "by"))
    refuse_probabilities(data, "by", summaries)
    return cut_numbers(by, summaries)


# ------------------------------------------------------------------------------------------------------------- counts


def scoring_rate(score: str, median: float) -> Metric:
    """The share of rows that score above a median."""
    return rate_of("scoring rate", {"s": Input(score, parameter="score")}, partial(_above, median=median), None)


def _above(c: Columns, median: float) -> Any:
    return c.where(c["s"] > median, 1.0, 0.0)


class _Cells(NamedTuple):
    """Applicants, selected, and rows without an outcome, of every combination of attributes."""

    keys: Sequence[Key]
    applicants: FloatArray
    selected: FloatArray
    missing: FloatArray

    def margin(self, columns: tuple[int, ...]) -> _Cells:
        """The same for the combinations of some attributes, in the order of their levels in the rows."""
        places: dict[Key, int] = {}
        levels = [list(dict.fromkeys(sorted_levels(self.keys, i))) for i in columns]
        order = {tuple(key[i] for i in columns) for key in self.keys}
        ranks = [{level: place for place, level in enumerate(own)} for own in levels]
        for key in sorted(order, key=lambda key: tuple(rank[part] for rank, part in zip(ranks, key, strict=True))):
            places[key] = len(places)
        at = np.array([places[tuple(key[i] for i in columns)] for key in self.keys], dtype=np.int64)
        sums = (np.bincount(at, counts, minlength=len(places)).astype(np.float64) for counts in self[1:])
        return _Cells(list(places), *sums)


def sorted_levels(keys: Sequence[Key], place: int) -> list[Hashable]:
    """The levels of an attribute in their order: numbers, ranges, text, and what is missing last."""
    from faultlines.estimates.labels import rank

    return sorted({key[place] for key in keys}, key=rank)


def _without_names(
    cells: _Cells, names: Sequence[str], unknown: Container[str]
) -> tuple[_Cells, dict[str, tuple[str, ...]]]:
    """The same with levels of these names as missing, and those that occurred, by attribute."""
    several = levels_by_attribute(cells.keys, names)
    found = {name: tuple(levels) for name, own in several.items() if (levels := find_unknown(own, unknown))}
    places = [set(found.get(name, ())) for name in names]
    keys = [
        tuple(MISSING if part in own else part for part, own in zip(key, places, strict=True)) for key in cells.keys
    ]
    return cells._replace(keys=keys), found


def _count(data: object, attributes: tuple[Any, ...], metric: Metric) -> tuple[_Cells, RepeatedColumn | None]:
    """Every combination of the attributes, and a column that looks like one of people with several rows each."""
    grouped = read(data, attributes, [metric], None).grouped[0][0]
    if not len(grouped.keys) or grouped.missing is None:
        raise InputError.empty("data", "has no rows", "Give at least one row for each applicant.")
    n = grouped.moments.n[:, 0, 0]
    ones = np.round(np.nan_to_num(grouped.moments.mean[:, 0, 0]) * n)
    if not n.sum():
        column = next(iter(metric.inputs.values())).column
        raise InputError.invalid_data("data", "no row has an outcome", "Name another column.", column, form="clause")
    return _Cells(list(grouped.keys), n, ones, grouped.missing.dropped), grouped.repeated


# ------------------------------------------------------------------------------------------------------------- tables


class _Compared(NamedTuple):
    """Ratios of the categories that are compared."""

    ratio: FloatArray
    lower: FloatArray
    upper: FloatArray
    bound: FloatArray
    possible: tuple[FloatArray, FloatArray] | None  # the ends of each, whatever is missing
    together: FloatArray | None  # how low each may be then, as a statement about all
    highest: int


def _table(cells: _Cells, names: Sequence[str], settings: _Settings, tables: int) -> ImpactTable:
    """One table: which categories are compared, their ratios, and what follows."""
    unknown = unknown_keys(cells.keys) & (settings.unknown != "category")
    rows = cells.applicants + cells.missing
    share = rows / max(rows.sum(), 1.0)
    large = ~unknown & (share >= settings.min_share)
    used = np.flatnonzero(large & (cells.applicants > 0))
    blank = large & (cells.applicants == 0)  # of which no outcome is known, so that the rate can be anything
    if used.size > _MOST:
        problem = f"makes {used.size:,} categories to be compared"
        raise InputError.unsupported("by", problem, "Use fewer levels, or a larger min_share.", list(names))
    compared = _compare(cells, used, unknown, settings, tables) if used.size > 1 else None
    status = np.where(unknown, "unknown", np.where(blank, "inconclusive", "too small")).astype(object)
    status[used] = "alone"
    verdict: ImpactVerdict = "not testable"
    if compared is not None:
        certain = bool(compared.bound.min() >= settings.least) and not blank.any()
        within = (certain | (compared.lower >= settings.least)) & (not blank.any())
        if compared.together is not None and not certain:
            within &= compared.together >= settings.least
        own = np.where(compared.upper < settings.least, "failed", np.where(within, "passed", "inconclusive"))
        status[used] = own
        verdict = "failed" if "failed" in own else "passed" if certain else "inconclusive"
    place = {category: i for i, category in enumerate(used.tolist())}
    categories = tuple(
        _category(cells, i, float(share[i]), cast("CategoryStatus", str(status[i])), compared, place.get(i))
        for i in [*np.flatnonzero(~unknown).tolist(), *np.flatnonzero(unknown).tolist()]
    )
    return ImpactTable(
        tuple(names),
        categories,
        None if compared is None else _label(cells.keys[used[compared.highest]]),
        None if compared is None else 0.0 if blank.any() else float(compared.bound.min()),
        verdict,
    )


def _compare(
    cells: _Cells, used: npt.NDArray[np.int64], unknown: npt.NDArray[np.bool_], settings: _Settings, tables: int
) -> _Compared:
    """Ratios to the highest category, with simultaneous intervals and bounds, and what missing rows could make."""
    counted = np.column_stack([cells.selected[used], cells.applicants[used]])
    estimates = rate_estimates(counted, [_label(cells.keys[i]) for i in used.tolist()])
    (with_best,) = compare_with_best(estimates, settings.alpha / tables, settings.seed, highest=True, as_ratio=True)
    (effect,) = effects_of(estimates, np.full((used.size, 1), 1 / used.size))
    far = at_most_below_best(effect, settings.alpha, highest=True, as_ratio=True)
    bound, possible, together = 1 / np.maximum(far, 1.0), None, None
    counts = _possible(cells, settings)
    outside = counts.of(np.flatnonzero(unknown)) if settings.unknown == "bounds" and unknown.any() else None
    if outside is not None or (counts.one > counts.only_one)[used].any():
        rates = rates_of_counts(counts.of(used), outside)
        others = np.arange(used.size)
        alone, of_all = (
            1 / np.maximum(farthest_from_groups(rates, 0, tail, "low", others, as_ratio=True), 1.0)
            for tail in (settings.alpha, settings.alpha / tables / used.size)  # Bonferroni
        )
        bound, together = np.minimum(bound, alone), of_all
        possible = possible_ratios(*(ends[:, 0] for ends in rates.rates))
    highest = int(effect.shown.argmax())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(effect.shown.max() > 0, effect.shown / effect.shown.max(), np.nan)
    return _Compared(ratio, with_best.to_best.lower, with_best.to_best.upper, bound, possible, together, highest)


def _possible(cells: _Cells, settings: _Settings) -> PossibleCounts:
    """What the rows of every category can be: those without an outcome anything, unless they are ignored."""
    lost = cells.missing if settings.missing == "bounds" else np.zeros(cells.missing.shape)
    ones, zeros = cells.selected[:, None], (cells.applicants - cells.selected)[:, None]
    more, trials = lost[:, None], cells.applicants[:, None]
    return PossibleCounts(cells.keys, ones + more, ones, zeros + more, zeros, trials + more, trials + more)


def possible_ratios(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The lowest and the highest ratio to the highest rate, of rates between these ends."""

    def best_other(rates: FloatArray) -> FloatArray:
        order = np.argsort(-rates)
        return np.asarray(np.where(np.arange(rates.size) == order[0], rates[order[1]], rates[order[0]]))

    with np.errstate(divide="ignore", invalid="ignore"):
        lower, upper = low / np.maximum(best_other(high), low), high / np.maximum(best_other(low), high)
    return np.nan_to_num(lower, nan=1.0), np.nan_to_num(upper, nan=1.0)


def _category(
    cells: _Cells, i: int, share: float, status: CategoryStatus, compared: _Compared | None, place: int | None
) -> ImpactCategory:
    """One row of a table."""
    ratio = lower = upper = possible_lower = possible_upper = None
    if compared is not None and place is not None:
        ratio, lower, upper = (_finite(part[place]) for part in (compared.ratio, compared.lower, compared.upper))
        if compared.possible is not None:
            possible_lower, possible_upper = (_finite(end[place]) for end in compared.possible)
    applicants = float(cells.applicants[i])
    return ImpactCategory(
        label=_label(cells.keys[i]),
        applicants=int(applicants),
        selected=int(cells.selected[i]),
        missing=int(cells.missing[i]),
        share=share,
        rate=float(cells.selected[i]) / applicants if applicants else None,
        ratio=ratio,
        lower=lower,
        upper=upper,
        possible_lower=possible_lower,
        possible_upper=possible_upper,
        status=status,
    )


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


def _label(key: Key) -> Label:
    return key[0] if len(key) == 1 else tuple(key)
