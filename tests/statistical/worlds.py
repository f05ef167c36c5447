"""Kinds of rows in which nothing differs ("worlds"), and how often a difference is reported in them.

A world draws rows as NumPy columns. Variables are formed by the metric itself (`Metric.variables` on arrays in which
NaN is null), and summed to moments here: the pass through an engine, which other tests compare with this one, would
take most of the time. From the moments on everything is the library's own.

`python -m tests.statistical.worlds [--runs 200] [--budget 300] [name …]` prints one line per world and
keeps its counts in docs/figures/worlds.json.
"""

from __future__ import annotations

import argparse
import time
import zlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

import faultlines as fl
from faultlines.core.normal import compare_one_effect
from faultlines.errors import NoGroupsError
from faultlines.metrics.measure import measurements
from faultlines.rows.request import Grouped, Moments
from tests.statistical.tally import count_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Array = np.ndarray[Any, Any]
    Rows = dict[str, Any]
    Generator = np.random.Generator

ARMS: dict[str, Any] = {"variant": "arm", "control": 0, "treatment": 1}


# ------------------------------------------------------------------------------------------------- rows to moments


class Nullable(np.ndarray):
    """An array in which NaN is null, with the one method of an expression that metrics use."""

    def is_null(self) -> Any:
        """Whether each value is null."""
        return np.isnan(self)


class ArrayColumns:
    """Input columns as arrays: what `Columns` asks for."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays = {role: np.asarray(array, dtype=float).view(Nullable) for role, array in arrays.items()}

    def __getitem__(self, role: str) -> Any:
        return self._arrays[role]

    def __contains__(self, role: object) -> bool:
        return role in self._arrays

    def where(self, condition: Any, value: Any, otherwise: Any = None) -> Any:
        """`value` where the condition holds, `otherwise` (null) elsewhere."""
        return np.where(condition, value, np.nan if otherwise is None else otherwise).view(Nullable)

    def log(self, value: Any) -> Any:
        """Natural logarithm."""
        return np.log(value)

    def at_least(self, role: str, threshold: float) -> Any:
        """1 where an input reaches a threshold, else 0."""
        return self.where(self[role] >= threshold, 1.0, 0.0)

    def under(self, prefix: str) -> ArrayColumns:
        """The inputs whose roles start with a prefix."""
        return ArrayColumns({r.removeprefix(prefix): a for r, a in self._arrays.items() if r.startswith(prefix)})


def moments_of(metric: fl.Metric, rows: Rows) -> Moments:
    """Moments of a metric's variables by group ("g", numbered from 0) and arm ("arm", 0 or 1)."""
    group = np.asarray(rows["g"])
    groups, arms = int(group.max()) + 1, 2 if metric.arms else 1
    cell = group * arms + (np.asarray(rows["arm"]) if metric.arms else 0)
    if metric.ranking is not None:
        return _placements(rows[metric.inputs["t"].column], rows[metric.inputs["s"].column], group, groups)
    columns = {role: rows[wanted.column] for role, wanted in metric.inputs.items()}
    count = groups * arms
    size = np.bincount(cell, minlength=count)
    with np.errstate(all="ignore"):
        for name, role in metric.centred.items():
            columns[name] = (np.bincount(cell, columns[role], count) / size)[cell]
        variables = [np.asarray(v, dtype=float) for v in metric.variables(ArrayColumns(columns)).values()]
        valid = [~np.isnan(v) for v in variables]
        zeroed = [np.where(ok, v, 0.0) for v, ok in zip(variables, valid, strict=True)]
        n = np.stack([np.bincount(cell, ok, count) for ok in valid], axis=1)
        mean = np.stack([np.bincount(cell, v, count) for v in zeroed], axis=1) / np.where(n > 0, n, np.nan)
        away = [np.where(ok, v - mean[cell, i], 0.0) for i, (v, ok) in enumerate(zip(zeroed, valid, strict=True))]
        places = range(len(variables))
        cov = np.full((count, len(variables), len(variables)), np.nan)
        pairs = [(i, j) for i in places for j in range(i)] if metric.pairs is None else metric.pairs
        for i, j in [*((i, i) for i in places), *pairs] if metric.needs_covariance else ():
            both = np.bincount(cell, valid[i] & valid[j], count)
            cov[:, i, j] = cov[:, j, i] = np.bincount(cell, away[i] * away[j], count) / np.where(
                both > 1, both - 1, np.nan
            )
        skewness, kurtosis = (np.full((count, len(variables)), np.nan) for _ in range(2))
        for i in (places if metric.shaped is None else metric.shaped) if metric.needs_covariance else ():
            square, third, fourth = (np.bincount(cell, away[i] ** k, count) / n[:, i] for k in (2, 3, 4))
            skewness[:, i], kurtosis[:, i] = third / square**1.5, fourth / square**2
    shape = (groups, arms)
    parts: list[Any] = [n, mean, cov, skewness, kurtosis]
    return Moments(*(part.reshape(*shape, *part.shape[1:]) for part in parts))


def _placements(truth: Array, score: Array, group: Array, groups: int) -> Moments:
    """Placements of positives among negatives and the other way round, as `rows.ranks` has them."""
    n, mean = np.zeros((groups, 1, 2)), np.full((groups, 1, 2), np.nan)
    cov, skewness, kurtosis = np.full((groups, 1, 2, 2), np.nan), *(np.full((groups, 1, 2), np.nan) for _ in range(2))
    order = np.argsort(group, kind="stable")
    edges = np.searchsorted(group[order], np.arange(groups + 1))
    for i in range(groups):
        at = order[edges[i] : edges[i + 1]]
        sides = [np.sort(score[at][truth[at] == side]) for side in (1, 0)]
        n[i, 0] = [side.size for side in sides]
        if min(n[i, 0]) < 2:
            continue
        for j, (own, other) in enumerate((sides, sides[::-1])):
            place = (np.searchsorted(other, own) + np.searchsorted(other, own, "right")) / 2 / other.size
            place = place if j == 0 else 1 - place
            mean[i, 0, j], cov[i, 0, j, j], away = place.mean(), place.var(ddof=1), place - place.mean()
            with np.errstate(all="ignore"):
                skewness[i, 0, j] = np.mean(away**3) / np.mean(away**2) ** 1.5
                kurtosis[i, 0, j] = np.mean(away**4) / np.mean(away**2) ** 2
    return Moments(n, mean, cov, skewness, kurtosis)


# ---------------------------------------------------------------------------------------------------------- worlds


@dataclass(frozen=True)
class World:
    """One kind of rows.

    Attributes:
        name: How it is called.
        metric: What is measured in it.
        rows: One data set: columns by name, with the group in "g" and the arm (0 or 1) in "arm".
        differs: Whether groups differ (to measure power) or not.
        listed: Whether it is one that an issue lists.
    """

    name: str
    metric: fl.Metric
    rows: Callable[[Generator], Rows]
    differs: bool = False
    listed: bool = False
    seed: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", zlib.crc32(self.name.encode()))


def measure_rows(metric: fl.Metric, rows: Rows) -> Any:
    """The measurement of one data set; None where no group can be used."""
    return measure_moments(metric, moments_of(metric, rows))


def measure_moments(metric: fl.Metric, moments: Moments) -> Any:
    """What users get from rows with these moments; None where no group can be used."""
    keys = [(i,) for i in range(len(moments.n))]
    try:
        return measurements([Grouped(keys, moments, {})], ("g",), metric, metric.min_size, ("g",))[0]
    except NoGroupsError:
        return None


def log_pvalue(estimates: fl.Estimates, seed: int) -> float:
    """Log p of "no difference" by the default test."""
    if len(estimates) < 2:
        return 0.0
    draws = 199 if len(estimates) < 2000 else 99
    path = fl.Calibrated(draws=draws).find_path(compare_one_effect(estimates, 0.0), seed, refine=False, cores=1)
    return float(path.log_pvalue)


def draw_events(world: World, run: int) -> dict[str, bool]:
    """Whether a difference is reported at α = .05 and .001 in one data set, and whether its rows were warned of.

    Args:
        world: The kind of rows.
        run: The number of the data set, which seeds it.
    """
    measured = measure_rows(world.metric, world.rows(np.random.default_rng([world.seed, run])))
    log_p = 0.0 if measured is None else log_pvalue(measured.estimates, run)
    notes = () if measured is None else measured.readout.warnings
    return {
        "reported": log_p < np.log(0.05),
        "reported at .001": log_p < np.log(0.001),
        "warned": any(note.code == "few events" for note in notes),
    }


# ------------------------------------------------------------------------------------------------ parts of a world


def uniform_sizes(low: int, high: int, groups: int) -> Callable[[Generator], Array]:
    """Rows per group, log-uniform."""
    return lambda rng: np.exp(rng.uniform(np.log(low), np.log(high + 1), groups)).astype(int)


def giant_sizes(giant: int, small: int, groups: int, giants: int = 1) -> Callable[[Generator], Array]:
    """A few giant groups and many small ones."""
    return lambda rng: np.r_[np.full(giants, giant), np.full(groups - giants, small)]


def repeat(sizes: Array) -> Array:
    """The group of every row."""
    return np.asarray(np.repeat(np.arange(sizes.size), sizes))


def arms_of(rng: Generator, size: int, share: Any = 0.5) -> Array:
    """Arm 1 with this probability."""
    return np.asarray(rng.random(size) < share).astype(int)


def rows_of(
    sizes: Callable[[Generator], Array],
    value: Callable[[Generator, Array, Array], Array],
    share: float | None = None,
    **parameters: Callable[[Generator, int], Array],
) -> Callable[[Generator], Rows]:
    """Rows with a value "x" of each group's own law, and arms.

    Args:
        sizes: Rows per group.
        value: From the group's parameter (by row) and the group to values.
        share: Of the rows in arm 1; no arms if None.
        parameters: At most one function that draws a parameter for every group.
    """

    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        groups = int(g.max()) + 1
        own = next((make(rng, groups) for make in parameters.values()), np.ones(groups))
        rows = {"g": g, "x": value(rng, own[g], g)}
        return rows if share is None else rows | {"arm": arms_of(rng, g.size, share)}

    return draw


def log_uniform(low: float, high: float) -> Callable[[Generator, int], Array]:
    """A parameter of every group, log-uniform."""
    return lambda rng, groups: np.exp(rng.uniform(np.log(low), np.log(high), groups))


def bernoulli(rng: Generator, p: Array, g: Array) -> Array:
    """Yes/no values."""
    return (rng.random(p.size) < p).astype(float)


def normal(rng: Generator, sd: Array, g: Array) -> Array:
    """Normal values about 3."""
    return 3 + sd * rng.standard_normal(sd.size)


def lognormal(rng: Generator, scale: Array, g: Array) -> Array:
    """Log-normal values in units of each group."""
    return scale * rng.lognormal(0, 1, scale.size)


def revenue(rng: Generator, p: Array, g: Array) -> Array:
    """Something for a share p of users, log-normal."""
    return np.where(rng.random(p.size) < p, rng.lognormal(3, 1, p.size), 0.0)


_RATINGS = np.array(  # five ways to give one to five stars, three on average
    [
        [0.05, 0.1, 0.7, 0.1, 0.05],
        [0.5, 0, 0, 0, 0.5],
        [0.2, 0.2, 0.2, 0.2, 0.2],
        [0.02, 0.02, 0.92, 0.02, 0.02],
        [0.1, 0.3, 0.2, 0.3, 0.1],
    ]
)


def ratings(rng: Generator, _: Array, g: Array, laws: int = 5) -> Array:
    """One to five stars; groups differ in how they are spread and not in their mean."""
    below = np.cumsum(_RATINGS[g % laws], axis=1)
    return np.asarray(1.0 + np.sum(rng.random(g.size)[:, None] > below[:, :-1], axis=1))


def wide_and_narrow(rng: Generator, sd: Array, g: Array) -> Array:
    """0 or 2 in half the groups, about 1 in the others."""
    return np.where(g % 2 == 0, 2.0 * (rng.random(g.size) < 0.5), 1 + 0.3 * rng.standard_normal(g.size))


def graded(rng: Generator, _: Array, g: Array) -> Array:
    """Grades of answers: right or wrong in half the groups, in between in the others."""
    return np.where(g % 2 == 0, (rng.random(g.size) < 0.5).astype(float), rng.beta(8, 8, g.size))


def pareto(rng: Generator, scale: Array, g: Array, tail: float = 2.2) -> Array:
    """Pareto values; their fourth moment is infinite."""
    return scale * (1 + rng.pareto(tail, scale.size))


def scores(
    sizes: Callable[[Generator], Array],
    base: Callable[[Generator, int], Array],
    spread: float = 1.0,
    shift: float = 0.0,
    factor: float = 1.0,
) -> Callable[[Generator], Rows]:
    """Scores s about base rates that differ, and outcomes with probability expit(factor · logit(s) + shift)."""

    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        level = base(rng, int(g.max()) + 1)[g]
        logit = np.log(level / (1 - level)) + spread * rng.standard_normal(g.size)
        s = 1 / (1 + np.exp(-logit))
        p = 1 / (1 + np.exp(-(factor * logit + shift)))
        return {"g": g, "s": s, "y": (rng.random(g.size) < p).astype(float)}

    return draw


def shifted_scores(sizes: Callable[[Generator], Array], base: Callable[[Generator, int], Array], gap: float) -> Any:
    """Scores that promise too much by the same gap in every group."""

    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        level = base(rng, int(g.max()) + 1)[g]
        s = np.clip(level + gap + 0.3 * level * rng.uniform(-1, 1, g.size), gap, 1)
        return {"g": g, "s": s, "y": (rng.random(g.size) < s - gap).astype(float)}

    return draw


def areas(
    sizes: Callable[[Generator], Array],
    area: float,
    spread: float,
    share: Callable[[Generator, int], Array] | float = 0.5,
    ties: int = 0,
) -> Callable[[Generator], Rows]:
    """Binormal scores: the spread of positives differs by group (log sd `spread`), the area does not."""

    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        groups = int(g.max()) + 1
        ratio = rng.lognormal(0, spread, groups)
        positives = share(rng, groups) if callable(share) else np.full(groups, share)
        y = (rng.random(g.size) < positives[g]).astype(float)
        apart = ndtri(area) * np.sqrt(1 + ratio**2)
        s = np.where(y == 1, apart[g] + ratio[g] * rng.standard_normal(g.size), rng.standard_normal(g.size))
        return {"g": g, "y": y, "s": np.round(s * ties) / ties if ties else s}

    return draw


def two_models(
    sizes: Callable[[Generator], Array],
    accuracy: Callable[[Generator, int], Array],
    discordance: Callable[[Generator, int], Array],
) -> Callable[[Generator], Rows]:
    """Two models that are right equally often; how often they disagree differs by group."""

    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        groups = int(g.max()) + 1
        right, apart = accuracy(rng, groups)[g], discordance(rng, groups)[g]
        y = (rng.random(g.size) < 0.4).astype(float)
        disagree, first = rng.random(g.size) < apart, rng.random(g.size) < 0.5
        both = rng.random(g.size) < right
        a = np.where(disagree, np.where(first, y, 1 - y), np.where(both, y, 1 - y))
        b = np.where(disagree, np.where(first, 1 - y, y), np.where(both, y, 1 - y))
        return {"g": g, "y": y, "a": a, "b": b}

    return draw


def classifier(
    sizes: Callable[[Generator], Array],
    f1: float,
    prevalence: Callable[[Generator, int], Array],
    recall: tuple[float, float],
) -> Callable[[Generator], Rows]:
    """Predictions with the same F1 in every group, whose prevalence and recall differ."""

    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        groups = int(g.max()) + 1
        share = prevalence(rng, groups)
        sensitivity = rng.uniform(*recall, groups)
        false = np.clip(share * (2 * sensitivity / f1 - 1 - sensitivity) / (1 - share), 0, 1)
        y = (rng.random(g.size) < share[g]).astype(float)
        p = (rng.random(g.size) < np.where(y == 1, sensitivity[g], false[g])).astype(float)
        return {"g": g, "y": y, "p": p}

    return draw


def constant(value: float) -> Callable[[Generator, int], Array]:
    """The same parameter in every group."""
    return lambda rng, groups: np.full(groups, value)


def one_noisy(factor: float, quiet: float = 1.0) -> Callable[[Generator, int], Array]:
    """The last group varies more."""
    return lambda rng, groups: np.r_[np.full(groups - 1, quiet), factor]


def two_levels(low: float, high: float) -> Callable[[Generator, int], Array]:
    """Half of the groups has one parameter, half another."""
    return lambda rng, groups: np.where(np.arange(groups) % 2 == 0, low, high)


def with_covariate(draw: Callable[[Generator], Rows], noise: Callable[[Generator, int], Array]) -> Any:
    """The same with a covariate "z" that goes with the value."""

    def more(rng: Generator) -> Rows:
        rows = draw(rng)
        return rows | {"z": rows["x"] + noise(rng, rows["x"].size)}

    return more


def with_denominator(draw: Callable[[Generator], Rows]) -> Any:
    """The same with a denominator "d"."""

    def more(rng: Generator) -> Rows:
        rows = draw(rng)
        return rows | {"d": 1.0 + rng.poisson(2, rows["x"].size)}

    return more


def with_weight(draw: Callable[[Generator], Rows], spread: float = 0.7) -> Any:
    """The same with weights "w"."""

    def more(rng: Generator) -> Rows:
        rows = draw(rng)
        return rows | {"w": rng.lognormal(0, spread, rows["g"].size)}

    return more


def seasonal(sizes: Callable[[Generator], Array], share: float) -> Callable[[Generator], Rows]:
    """Sales that follow the season, seasons of which every group has its own share; no effect in any of them."""

    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        winter = rng.beta(1, 2, int(g.max()) + 1)[g]
        high = rng.random(g.size) < winter
        x = np.where(high, rng.gamma(2, 5, g.size), rng.gamma(1, 1, g.size))
        return {"g": g, "x": x, "arm": arms_of(rng, g.size, share)}

    return draw


def own_shares(sizes: Callable[[Generator], Array], value: Any, parameter: Any) -> Callable[[Generator], Rows]:
    """Shares of the arms differ by group: 10% to 90%."""

    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        groups = int(g.max()) + 1
        share = rng.uniform(0.1, 0.9, groups)
        return {"g": g, "x": value(rng, parameter(rng, groups)[g], g), "arm": arms_of(rng, g.size, share[g])}

    return draw


def capped(draw: Callable[[Generator], Rows], cap: float) -> Callable[[Generator], Rows]:
    """Values cut at a cap."""

    def more(rng: Generator) -> Rows:
        rows = draw(rng)
        return rows | {"x": np.minimum(rows["x"], cap)}

    return more


def standardized(
    draw: Callable[[Generator, Array, Array], Array], mean: float
) -> Callable[[Generator, Array, Array], Array]:
    """Deviations from a mean that all groups share, in a unit of each group."""
    return lambda rng, scale, g: mean + scale * (draw(rng, np.ones(scale.size), g) - mean)


def with_effect(
    draw: Callable[[Generator], Rows], effect: Callable[[Array, int], Array]
) -> Callable[[Generator], Rows]:
    """The same with something added in groups, in arm 1 where there are arms."""

    def more(rng: Generator) -> Rows:
        rows = draw(rng)
        g = rows["g"]
        added = effect(g, int(g.max()) + 1) * rows.get("arm", 1)
        return rows | {"x": rows["x"] + added}

    return more


def halves(size: float) -> Callable[[Array, int], Array]:
    """Every other group is higher."""
    return lambda g, groups: size * (g % 2)


def outlier(size: float, place: int = 0) -> Callable[[Array, int], Array]:
    """One group is higher."""
    return lambda g, groups: size * (g == place)


# -------------------------------------------------------------------------------------------------------- catalogue

_DIFFERENCE, _LIFT, _MEAN, _RATE = fl.difference("x", **ARMS), fl.lift("x", **ARMS), fl.mean("x"), fl.rate("x")
_GAP, _SLOPE, _AUC = fl.calibration_gap("y", "s"), fl.calibration_slope("y", "s"), fl.auc("y", "s")
_PAIRED = fl.paired(fl.accuracy("y", "a"), fl.accuracy("y", "b"))
_PAIRED_RECALL = fl.paired(fl.true_positive_rate("y", "a"), fl.true_positive_rate("y", "b"))
_PAIRED_PRECISION = fl.paired(fl.precision("y", "a"), fl.precision("y", "b"))
_F1, _CUPED = fl.f1("y", "p"), fl.difference("x", covariate="z", **ARMS)
_RATIO, _RATIO_DIFFERENCE = fl.ratio("x", "d"), fl.ratio_difference("x", "d", **ARMS)


def _t3(rng: Generator, sd: Array, g: Array) -> Array:
    return sd * rng.standard_t(3, sd.size)


def _exponential(rng: Generator, scale: Array, g: Array) -> Array:
    return scale * rng.exponential(1, scale.size)


def _poisson(rng: Generator, level: Array, g: Array) -> Array:
    return rng.poisson(level).astype(float)


def _negative_binomial(rng: Generator, level: Array, g: Array) -> Array:
    return rng.poisson(level * rng.gamma(0.5, 2, level.size)).astype(float)


def _sessions(rng: Generator, level: Array, g: Array) -> Array:
    return np.floor(rng.lognormal(0, 1, level.size) * level)


def _beta(low: float, high: float) -> Callable[[Generator, Array, Array], Array]:
    return lambda rng, unit, g: unit * rng.beta(low, high, unit.size)


def _listed() -> Iterable[World]:
    sizes = uniform_sizes
    yield World(
        "calibration slope, skewed scores, 34 small groups",
        _SLOPE,
        scores(sizes(30, 150, 34), log_uniform(0.02, 0.5), 1.5),
    )
    yield World(
        "calibration gap, base rates 1–60%, 60–300 rows, 100", _GAP, scores(sizes(60, 300, 100), log_uniform(0.01, 0.6))
    )
    yield World(
        "conversion 0.5–50%, 10/90, 200–4,000 rows, 25",
        _DIFFERENCE,
        rows_of(sizes(200, 4000, 25), bernoulli, 0.1, p=log_uniform(0.005, 0.5)),
    )
    yield World(
        "conversion 2–30%, 10/90, 500–2,000 rows, 40",
        _DIFFERENCE,
        rows_of(sizes(500, 2000, 40), bernoulli, 0.1, p=log_uniform(0.02, 0.3)),
    )
    yield World(
        "revenue, conversion 1–20%, 50/50, 25",
        _DIFFERENCE,
        rows_of(sizes(200, 4000, 25), revenue, 0.5, p=log_uniform(0.01, 0.2)),
    )
    yield World("giant and 24 of 30, Pareto, mean", _MEAN, rows_of(giant_sizes(20_000, 30, 25), pareto))
    yield World("Pareto, 40–400 rows, difference, 200", _DIFFERENCE, rows_of(sizes(40, 400, 200), pareto, 0.5))
    yield World("AUC .75, spreads differ, 40–80 rows, 99", _AUC, areas(sizes(40, 80, 99), 0.75, 0.7))
    yield World("AUC .99, 40", _AUC, areas(sizes(60, 200, 40), 0.99, 0.3))
    yield World(
        "paired accuracy, discordance differs, 120",
        _PAIRED,
        two_models(sizes(50, 400, 120), constant(0.8), log_uniform(0.005, 0.3)),
    )
    yield World("lift, 20,000 + 99 × 100 lognormal", _LIFT, rows_of(giant_sizes(20_000, 100, 100), lognormal, 0.5))
    yield World(
        "F1 .6, prevalence differs, 25", _F1, classifier(sizes(100, 1000, 25), 0.6, log_uniform(0.03, 0.4), (0.45, 0.9))
    )
    yield World(
        "one small group 1.5 × noisier, mean",
        _MEAN,
        rows_of(lambda rng: np.r_[np.full(24, 1000), 30], normal, sd=one_noisy(1.5)),
    )
    yield World(
        "one small group 2 × noisier, mean",
        _MEAN,
        rows_of(lambda rng: np.r_[np.full(24, 1000), 30], normal, sd=one_noisy(2.0)),
    )
    yield World("rate 90%, 40 rows, 300", _RATE, rows_of(sizes(36, 44, 300), bernoulli, p=constant(0.9)))
    yield World("rate 90%, 40 rows, 1,000", _RATE, rows_of(sizes(36, 44, 1000), bernoulli, p=constant(0.9)))
    yield World("rate 90%, 40 rows, 3,000", _RATE, rows_of(sizes(36, 44, 3000), bernoulli, p=constant(0.9)))
    yield World("rate 5%, 100 rows, 3,000", _RATE, rows_of(sizes(90, 110, 3000), bernoulli, p=constant(0.05)))
    yield World("lognormal difference, 40 rows, 300", _DIFFERENCE, rows_of(sizes(36, 44, 300), lognormal, 0.5))
    yield World("lognormal difference, 40 rows, 1,000", _DIFFERENCE, rows_of(sizes(36, 44, 1000), lognormal, 0.5))
    yield World("normal mean, 12 rows, 20,000", _MEAN, rows_of(lambda rng: np.full(20_000, 12), normal))


def _further() -> Iterable[World]:
    sizes = uniform_sizes
    rates = log_uniform(0.01, 0.5)
    # Base rates that differ by group.
    for share, name in ((0.5, "50/50"), (0.1, "10/90"), (0.9, "90/10"), (0.02, "2/98")):
        yield World(
            f"conversion 1–50%, {name}, 300–3,000 rows, 60",
            _DIFFERENCE,
            rows_of(sizes(300, 3000, 60), bernoulli, share, p=rates),
        )
    yield World(
        "conversion 3% everywhere, 10/90, 100",
        _DIFFERENCE,
        rows_of(sizes(300, 3000, 100), bernoulli, 0.1, p=constant(0.03)),
    )
    yield World(
        "conversion 80–99%, 30/70, 50",
        _DIFFERENCE,
        rows_of(sizes(100, 1000, 50), lambda r, p, g: 1 - bernoulli(r, p, g), 0.3, p=log_uniform(0.01, 0.2)),
    )
    yield World(
        "conversion 1–30%, shares differ, 50",
        _DIFFERENCE,
        own_shares(sizes(200, 2000, 50), bernoulli, log_uniform(0.01, 0.3)),
    )
    yield World(
        "conversion 1–30%, lift, 50/50, 50",
        _LIFT,
        rows_of(sizes(1000, 6000, 50), bernoulli, 0.5, p=log_uniform(0.02, 0.3)),
    )
    yield World(
        "conversion 2–30%, lift, 10/90, 40",
        _LIFT,
        rows_of(sizes(1000, 6000, 40), bernoulli, 0.1, p=log_uniform(0.03, 0.3)),
    )
    yield World(
        "conversion 1–50%, CUPED, 10/90, 40",
        _CUPED,
        with_covariate(rows_of(sizes(300, 3000, 40), bernoulli, 0.1, p=rates), lambda r, n: r.standard_normal(n)),
    )
    yield World(
        "conversion 0.2%, 1,000 rows, 50/50, 200",
        _DIFFERENCE,
        rows_of(sizes(800, 1200, 200), bernoulli, 0.5, p=constant(0.002)),
    )
    yield World(
        "counts Poisson 0.02–2, 20/80, 50",
        _DIFFERENCE,
        rows_of(sizes(200, 2000, 50), _poisson, 0.2, level=log_uniform(0.02, 2)),
    )
    yield World(
        "counts negative binomial 0.05–2, 20/80, 50",
        _DIFFERENCE,
        rows_of(sizes(200, 2000, 50), _negative_binomial, 0.2, level=log_uniform(0.05, 2)),
    )
    yield World(
        "sessions, levels differ, lift, 50",
        _LIFT,
        rows_of(sizes(300, 3000, 50), _sessions, 0.5, level=log_uniform(2, 50)),
    )
    yield World(
        "revenue, conversion 1–20%, 10/90, 25",
        _DIFFERENCE,
        rows_of(sizes(500, 5000, 25), revenue, 0.1, p=log_uniform(0.01, 0.2)),
    )
    yield World(
        "revenue, conversion 1–20%, lift, 40",
        _LIFT,
        rows_of(sizes(1000, 8000, 40), revenue, 0.5, p=log_uniform(0.02, 0.2)),
    )
    yield World(
        "revenue, conversion 5%, 100", _DIFFERENCE, rows_of(sizes(200, 1000, 100), revenue, 0.5, p=constant(0.05))
    )
    yield World(
        "revenue, shares differ, 50", _DIFFERENCE, own_shares(sizes(400, 4000, 50), revenue, log_uniform(0.02, 0.3))
    )
    yield World(
        "revenue capped, conversion 1–20%, 40",
        _DIFFERENCE,
        capped(rows_of(sizes(300, 3000, 40), revenue, 0.5, p=log_uniform(0.01, 0.2)), 60.0),
    )
    # Spreads that differ by group.
    yield World(
        "normal, sd 0.2–5, 12 rows, mean, 50", _MEAN, rows_of(sizes(12, 12, 50), normal, sd=log_uniform(0.2, 5))
    )
    yield World(
        "normal, sd 1 or 10, 12 rows, mean, 40", _MEAN, rows_of(sizes(12, 12, 40), normal, sd=two_levels(1, 10))
    )
    yield World(
        "normal, sd 1 or 2, 15 rows, mean, 100", _MEAN, rows_of(sizes(15, 15, 100), normal, sd=two_levels(1, 2))
    )
    yield World(
        "normal, sd 0.5–2, sizes 12–5,000, mean, 50",
        _MEAN,
        rows_of(sizes(12, 5000, 50), normal, sd=log_uniform(0.5, 2)),
    )
    yield World("normal, sd equal, 12 rows, mean, 500", _MEAN, rows_of(sizes(12, 12, 500), normal))
    yield World("normal, sd equal, 12 rows, mean, 5", _MEAN, rows_of(sizes(12, 12, 5), normal))
    yield World(
        "lognormal, scales 0.2–5, mean about common, 50",
        _MEAN,
        rows_of(sizes(50, 500, 50), standardized(lognormal, float(np.exp(0.5))), s=log_uniform(0.2, 5)),
    )
    yield World(
        "lognormal, scales 0.2–5, difference, 50",
        _DIFFERENCE,
        rows_of(sizes(100, 1000, 50), lognormal, 0.5, s=log_uniform(0.2, 5)),
    )
    yield World(
        "lognormal, scales 0.2–5, lift, 50", _LIFT, rows_of(sizes(300, 3000, 50), lognormal, 0.5, s=log_uniform(0.2, 5))
    )
    yield World("lognormal, 10/90, difference, 60", _DIFFERENCE, rows_of(sizes(200, 2000, 60), lognormal, 0.1))
    yield World(
        "lognormal CUPED, 10/90, 40",
        _CUPED,
        with_covariate(rows_of(sizes(300, 3000, 40), lognormal, 0.1), lambda r, n: r.lognormal(0, 1, n)),
    )
    yield World("t(3), sd 0.3–3, mean, 60", _MEAN, rows_of(sizes(20, 200, 60), _t3, sd=log_uniform(0.3, 3)))
    yield World("exponential, 15 rows, mean, 200", _MEAN, rows_of(sizes(15, 15, 200), _exponential))
    yield World(
        "exponential, 20–2,000 rows, difference, 30/70, 80",
        _DIFFERENCE,
        rows_of(sizes(40, 2000, 80), _exponential, 0.3),
    )
    yield World(
        "small group of 30, 5 × noisier, mean",
        _MEAN,
        rows_of(lambda rng: np.r_[np.full(24, 1000), 30], normal, sd=one_noisy(5.0)),
    )
    yield World(
        "five small groups 2 × noisier, mean",
        _MEAN,
        rows_of(
            lambda rng: np.r_[np.full(20, 2000), np.full(5, 30)],
            normal,
            sd=lambda rng, k: np.r_[np.ones(k - 5), np.full(5, 2.0)],
        ),
    )
    yield World(
        "small quiet groups beside noisy giants",
        _MEAN,
        rows_of(
            lambda rng: np.r_[np.full(10, 2000), np.full(15, 30)],
            normal,
            sd=lambda rng, k: np.r_[np.full(10, 2.0), np.ones(k - 10)],
        ),
    )
    yield World("giant and 40 of 50, exponential, mean", _MEAN, rows_of(giant_sizes(50_000, 50, 41), _exponential))
    yield World(
        "giant and 40 of 60, lognormal, difference", _DIFFERENCE, rows_of(giant_sizes(50_000, 120, 41), lognormal, 0.5)
    )
    yield World(
        "giant and 40 of 200, conversion 10%, lift",
        _LIFT,
        rows_of(giant_sizes(50_000, 800, 41), bernoulli, 0.5, p=constant(0.1)),
    )
    yield World("uniform values, 12 rows, mean, 100", _MEAN, rows_of(sizes(12, 12, 100), _beta(1, 1)))
    yield World("U-shaped values, 20 rows, mean, 100", _MEAN, rows_of(sizes(20, 20, 100), _beta(0.2, 0.2)))
    yield World("seasonal sales, 30/70, 50", _DIFFERENCE, seasonal(sizes(200, 2000, 50), 0.3))
    yield World("seasonal sales, lift, 50", _LIFT, seasonal(sizes(300, 3000, 50), 0.5))
    yield World("ratio lognormal/Poisson, 50", _RATIO, with_denominator(rows_of(sizes(100, 1000, 50), lognormal)))
    yield World(
        "ratio conversion 1–30%, difference 10/90, 40",
        _RATIO_DIFFERENCE,
        with_denominator(rows_of(sizes(300, 3000, 40), bernoulli, 0.1, p=log_uniform(0.01, 0.3))),
    )
    yield World(
        "weighted lognormal mean, 50", fl.mean("x", weight="w"), with_weight(rows_of(sizes(100, 1000, 50), lognormal))
    )
    yield World(
        "weighted rate 10%, 50",
        fl.rate("x", weight="w"),
        with_weight(rows_of(sizes(100, 1000, 50), bernoulli, p=constant(0.1))),
    )
    yield World(
        "weighted conversion 1–30%, difference, 40",
        fl.difference("x", weight="w", **ARMS),
        with_weight(rows_of(sizes(300, 3000, 40), bernoulli, 0.3, p=log_uniform(0.01, 0.3))),
    )
    yield World("lognormal, 400 rows, difference, 40", _DIFFERENCE, rows_of(sizes(400, 400, 40), lognormal, 0.5))
    yield World("lognormal, 400 rows, lift, 40", _LIFT, rows_of(sizes(400, 400, 40), lognormal, 0.5))
    yield World("F1 .6, 300 rows, 40", _F1, classifier(sizes(300, 300, 40), 0.64, constant(0.3), (0.6, 0.6)))
    # Rates.
    for share, rows, groups in (
        (0.5, 20, 1000),
        (0.02, 100, 500),
        (0.1, 50, 100),
        (0.995, 200, 200),
        (0.3, 8, 2000),
        (0.001, 400, 300),
    ):
        yield World(
            f"rate {100 * share:g}%, {rows} rows, {groups}",
            _RATE,
            rows_of(sizes(int(0.9 * rows), int(1.1 * rows), groups), bernoulli, p=constant(share)),
        )
    yield World("rate 10%, sizes 10–5,000, 1,000", _RATE, rows_of(sizes(10, 5000, 1000), bernoulli, p=constant(0.1)))
    two_ratings = partial(ratings, laws=2)
    yield World("ratings, two laws, 12–60 rows, 60", _MEAN, rows_of(sizes(12, 60, 60), two_ratings))
    yield World("ratings, two laws, 30–300 rows, 60", _MEAN, rows_of(sizes(30, 300, 60), two_ratings))
    yield World("ratings, five laws, 12–60 rows, 60", _MEAN, rows_of(sizes(12, 60, 60), ratings))
    yield World("0 or 2 beside normal, 12–60 rows, 60", _MEAN, rows_of(sizes(12, 60, 60), wide_and_narrow))
    yield World("graded answers, 20–60 rows, 60", _MEAN, rows_of(sizes(20, 60, 60), graded))
    yield World("0/1 as a mean, 10%, 50 rows, 200", _MEAN, rows_of(sizes(45, 55, 200), bernoulli, p=constant(0.1)))
    yield World(
        "0/1 as a mean, 3%, sizes 30–3,000, 100", _MEAN, rows_of(sizes(30, 3000, 100), bernoulli, p=constant(0.03))
    )
    # Models.
    yield World(
        "calibration gap, equal gaps of 5 points, 80",
        _GAP,
        shifted_scores(sizes(60, 400, 80), log_uniform(0.02, 0.6), 0.05),
    )
    yield World("calibration gap, base rate 2%, 40–200 rows, 60", _GAP, scores(sizes(40, 200, 60), constant(0.02)))
    yield World(
        "calibration gap, base rates 5–50%, 1,000 groups", _GAP, scores(sizes(50, 100, 1000), log_uniform(0.05, 0.5))
    )
    yield World(
        "calibration gap weighted, base rates 2–60%, 60",
        fl.calibration_gap("y", "s", weight="w"),
        with_weight(scores(sizes(60, 400, 60), log_uniform(0.02, 0.6)), 0.5),
    )
    yield World(
        "calibration slope, base rates 5–50%, 60", _SLOPE, scores(sizes(60, 500, 60), log_uniform(0.05, 0.5), 1.0)
    )
    yield World("calibration slope, base rate 2%, 40", _SLOPE, scores(sizes(100, 400, 40), constant(0.02), 1.2))
    yield World(
        "calibration slope, large groups, 30", _SLOPE, scores(sizes(500, 4000, 30), log_uniform(0.05, 0.5), 1.5)
    )
    yield World("Brier, equal laws, 40–80 rows, 100", fl.brier("y", "s"), scores(sizes(40, 80, 100), constant(0.2)))
    yield World(
        "log loss, equal laws, 40–80 rows, 100", fl.log_loss("y", "s"), scores(sizes(40, 80, 100), constant(0.1))
    )
    yield World("AUC .75, equal spreads, 40–80 rows, 100", _AUC, areas(sizes(40, 80, 100), 0.75, 0.0))
    yield World("AUC .9, spreads differ, 60–300 rows, 60", _AUC, areas(sizes(60, 300, 60), 0.9, 0.7))
    yield World(
        "AUC .75, shares of positives 15–85%, 60",
        _AUC,
        areas(sizes(80, 300, 60), 0.75, 0.5, lambda rng, k: rng.uniform(0.15, 0.85, k)),
    )
    yield World("AUC .8 with ties, 60", _AUC, areas(sizes(60, 200, 60), 0.8, 0.5, ties=1))
    yield World("AUC .97, large groups, 40", _AUC, areas(sizes(500, 2000, 40), 0.97, 0.5))
    yield World(
        "paired accuracy, discordance 0.5–5%, 60",
        _PAIRED,
        two_models(sizes(100, 1000, 60), constant(0.9), log_uniform(0.005, 0.05)),
    )
    yield World(
        "paired recall, discordance differs, 60",
        _PAIRED_RECALL,
        two_models(sizes(100, 1000, 60), constant(0.8), log_uniform(0.01, 0.3)),
    )
    yield World(
        "paired precision, discordance differs, 40",
        _PAIRED_PRECISION,
        two_models(sizes(200, 1500, 40), constant(0.8), log_uniform(0.01, 0.3)),
    )
    yield World(
        "F1 .8, prevalence differs, 100",
        _F1,
        classifier(sizes(100, 500, 100), 0.8, log_uniform(0.05, 0.4), (0.7, 0.95)),
    )
    yield World("balanced accuracy, rates differ, 60", fl.balanced_accuracy("y", "p"), _balanced(sizes(100, 600, 60)))
    yield World("TPR 80%, 8–100 positives, 300", fl.true_positive_rate("y", "p"), _recall(sizes(16, 200, 300)))
    yield World(
        "Atkinson, lognormal, scales differ, 50",
        fl.atkinson("x"),
        rows_of(sizes(60, 600, 50), lognormal, s=log_uniform(0.5, 5)),
    )
    yield World(
        "values near 1e12, mean, 20",
        _MEAN,
        rows_of(sizes(100, 200, 20), lambda rng, sd, g: 1e12 + rng.standard_normal(sd.size)),
    )
    yield World(
        "Atkinson near 1e6, 20",
        fl.atkinson("x"),
        rows_of(sizes(100, 200, 20), lambda rng, sd, g: 1e6 + rng.standard_normal(sd.size)),
    )


def _balanced(sizes: Callable[[Generator], Array]) -> Callable[[Generator], Rows]:
    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        groups = int(g.max()) + 1
        sensitivity = rng.uniform(0.65, 0.95, groups)
        spared = 1.6 - sensitivity  # the mean of both is .8
        y = (rng.random(g.size) < 0.4).astype(float)
        p = (rng.random(g.size) < np.where(y == 1, sensitivity[g], 1 - spared[g])).astype(float)
        return {"g": g, "y": y, "p": p}

    return draw


def _recall(sizes: Callable[[Generator], Array]) -> Callable[[Generator], Rows]:
    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        y = (rng.random(g.size) < 0.5).astype(float)
        return {"g": g, "y": y, "p": np.where(rng.random(g.size) < 0.8, y, 1 - y)}

    return draw


def _powerful() -> Iterable[World]:
    sizes = uniform_sizes
    yield World(
        "power: normal, 12 rows, halves", _MEAN, with_effect(rows_of(sizes(12, 12, 40), normal), halves(0.36)), True
    )
    yield World(
        "power: normal, 12 rows, sd × 10, halves",
        _MEAN,
        with_effect(
            rows_of(sizes(12, 12, 40), normal, sd=lambda rng, k: np.where(np.arange(k) % 4 < 2, 1.0, 10.0)), halves(1.0)
        ),
        True,
    )
    yield World(
        "power: normal, 200 rows, outlier",
        _DIFFERENCE,
        with_effect(rows_of(sizes(200, 200, 40), normal, 0.5), outlier(0.62)),
        True,
    )
    yield World(
        "power: lognormal, difference, halves",
        _DIFFERENCE,
        with_effect(rows_of(sizes(400, 400, 40), lognormal, 0.5), halves(0.38)),
        True,
    )
    yield World(
        "power: lognormal, 1,000 rows, outlier",
        _DIFFERENCE,
        with_effect(rows_of(sizes(1000, 1000, 40), lognormal, 0.5), outlier(0.6)),
        True,
    )
    yield World(
        "power: rate 20/30%, 100 rows", _RATE, rows_of(sizes(100, 100, 40), bernoulli, p=two_levels(0.2, 0.26)), True
    )
    yield World(
        "power: rate 5/10%, 100 rows, 300",
        _RATE,
        rows_of(sizes(100, 100, 300), bernoulli, p=two_levels(0.05, 0.075)),
        True,
    )
    yield World(
        "power: conversion difference 50/50, halves", _DIFFERENCE, _conversions(sizes(1000, 1000, 40), 0.5, 0.04), True
    )
    yield World(
        "power: conversion difference 10/90, halves", _DIFFERENCE, _conversions(sizes(2000, 2000, 40), 0.1, 0.045), True
    )
    yield World("power: conversion lift, halves", _LIFT, _conversions(sizes(3000, 3000, 40), 0.5, 0.022), True)
    yield World("power: lognormal lift, halves", _LIFT, _lifted(sizes(400, 400, 40), 0.2), True)
    yield World("power: AUC .7/.8", _AUC, _two_areas(sizes(100, 100, 40)), True)
    yield World("power: paired accuracy", _PAIRED, _better_model(sizes(300, 300, 40)), True)
    yield World("power: calibration gap", _GAP, _worse_gap(sizes(200, 200, 40)), True)
    yield World("power: calibration slope", _SLOPE, _worse_slope(sizes(400, 400, 40)), True)
    yield World("power: F1", _F1, _worse_f1(sizes(300, 300, 40)), True)


def _conversions(sizes: Callable[[Generator], Array], share: float, effect: float) -> Callable[[Generator], Rows]:
    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        level = np.exp(rng.uniform(np.log(0.1), np.log(0.3), int(g.max()) + 1))
        arm = arms_of(rng, g.size, share)
        return {"g": g, "arm": arm, "x": bernoulli(rng, level[g] + effect * arm * (g % 2), g)}

    return draw


def _lifted(sizes: Callable[[Generator], Array], effect: float) -> Callable[[Generator], Rows]:
    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        arm = arms_of(rng, g.size)
        return {"g": g, "arm": arm, "x": rng.lognormal(0, 1, g.size) * (1 + effect * arm * (g % 2))}

    return draw


def _two_areas(sizes: Callable[[Generator], Array]) -> Callable[[Generator], Rows]:
    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        y = arms_of(rng, g.size).astype(float)
        apart = np.sqrt(2) * ndtri(np.where(g % 2, 0.77, 0.7))
        return {"g": g, "y": y, "s": y * apart + rng.standard_normal(g.size)}

    return draw


def _better_model(sizes: Callable[[Generator], Array]) -> Callable[[Generator], Rows]:
    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        y = arms_of(rng, g.size).astype(float)
        a, b = (np.where(rng.random(g.size) < p, y, 1 - y) for p in (0.8, np.where(g % 2, 0.85, 0.8)))
        return {"g": g, "y": y, "a": a, "b": b}

    return draw


def _worse_gap(sizes: Callable[[Generator], Array]) -> Callable[[Generator], Rows]:
    def draw(rng: Generator) -> Rows:
        rows = scores(sizes, log_uniform(0.1, 0.5))(rng)
        flip = (rng.random(rows["s"].size) < 0.06) & (rows["g"] % 2 == 1)
        return rows | {"y": np.where(flip, 1.0, rows["y"])}

    return draw


def _worse_slope(sizes: Callable[[Generator], Array]) -> Callable[[Generator], Rows]:
    def draw(rng: Generator) -> Rows:
        rows = scores(sizes, log_uniform(0.1, 0.5), 1.5)(rng)
        flip = (rng.random(rows["s"].size) < 0.16) & (rows["g"] % 2 == 1)
        return rows | {"y": np.where(flip, arms_of(rng, flip.size, 0.3), rows["y"])}

    return draw


def _worse_f1(sizes: Callable[[Generator], Array]) -> Callable[[Generator], Rows]:
    def draw(rng: Generator) -> Rows:
        g = repeat(sizes(rng))
        y = arms_of(rng, g.size, 0.3).astype(float)
        sensitivity = np.where(g % 2, 0.68, 0.6)
        p = (rng.random(g.size) < np.where(y == 1, sensitivity, 0.12)).astype(float)
        return {"g": g, "y": y, "p": p}

    return draw


def _marked(worlds: Iterable[World]) -> Iterable[World]:
    for world in worlds:
        object.__setattr__(world, "listed", True)
        yield world


WORLDS: dict[str, World] = {world.name: world for world in (*_marked(_listed()), *_further(), *_powerful())}


def main() -> None:
    """Print the share of data sets in which a difference is reported, world by world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="data sets of each world, earlier ones included")
    parser.add_argument("--budget", type=float, default=np.inf, help="seconds for all chosen worlds together")
    parser.add_argument("names", nargs="*", help="listed, further, power, or parts of names; all by default")
    options = parser.parse_args()
    kinds = {name: "listed" if w.listed else "power" if w.differs else "further" for name, w in WORLDS.items()}
    chosen = [
        name
        for name, kind in kinds.items()
        if not options.names or kind in options.names or any(part in name for part in options.names)
    ]
    end = time.monotonic() + options.budget
    for i, name in enumerate(chosen):
        world, seconds = WORLDS[name], (end - time.monotonic()) / (len(chosen) - i)
        tally = count_events("worlds", name, partial(draw_events, world), options.runs, seconds=seconds)
        print(
            f"{name:58s} {tally.share('reported'):.3f} ± {tally.error('reported'):.3f} ({tally.runs} runs) "
            f".001: {tally.share('reported at .001'):.3f} warned {tally.share('warned'):.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
