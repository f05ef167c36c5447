"""Certificates: how often one is wrong, how often a "differs" is, and how near the critical value is to the exact one.

Truths sit on the edge, where errors are likeliest: just beyond the gap, just within it, or all equal and no gap at all.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
import pytest

import faultlines as fl
from docs.figures import record_figure
from faultlines.analyses.contrasts import (
    AgainstMean,
    AllPairs,
    against_best,
    at_most_below_best,
    best_tails,
    counted_side,
    critical_value,
    effects_of,
)
from faultlines.metrics.moments import OwnCounts
from tests.statistical.tally import scale_runs

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from faultlines.analyses.contrasts import OneEffect

    Array = npt.NDArray[np.float64]

pytestmark = pytest.mark.statistical
ALPHA, GAP, EDGE = 0.05, 6.0, 1e-6
RUNS = {groups: scale_runs(runs) for groups, runs in ((2, 1000), (5, 1000), (21, 1000), (102, 400), (1000, 150))}


def bound(runs: int) -> float:
    return ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def record(name: str, within: float, differs: float, equal: float | None = None, *, runs: int) -> None:
    """Keep the shares of wrong statements of one kind of data."""
    shares = {"wrong within": within, "wrong differs": differs, "wrong differs, all equal": equal}
    for column, share in shares.items():
        if share is not None:
            record_figure("certify", f"{name}; {column}", share, runs)


class Wrong(NamedTuple):
    """Shares of data sets in which something wrong is said."""

    certificate: float  # the verdict, where some group is too far away
    within: float  # of any group
    differs: float  # of any group

    @classmethod
    def of(cls, makers: Callable[[], Any], too_far: npt.NDArray[np.bool_], runs: int, **asked: Any) -> Wrong:
        counted, far = np.zeros(3), set(np.flatnonzero(too_far).tolist())
        for _ in range(runs):
            certificate = fl.certify(makers(), seed=1, **asked)
            counted += (
                certificate.verdict == "passed" and bool(far),
                bool(far & set(certificate.within)),
                bool(set(certificate.beyond) - far),
            )
        return cls(*(counted / runs))


def truth(groups: int, against: str, factor: float) -> tuple[Array, Array]:
    """Effects whose distances are all `factor` gaps, and sizes with which their overall is zero."""
    side = np.where(np.arange(groups) % 2, 1.0, -1.0)
    sizes: Array = np.where(side > 0, float(np.sum(side < 0) / np.sum(side > 0)), 1.0)
    effects: Array = factor * GAP * (np.maximum(side, 0.0) if against == "all pairs" else side)
    if against == "0":
        effects[0] = 0.0
    return effects, sizes


def study(groups: int, spread: float, dof: int | None, against: str, runs: int) -> tuple[float, float, float]:
    """Wrong certificates of groups beyond the gap; wrong "differs" within it; and where all are equal, with no gap."""
    rng = np.random.default_rng([groups, int(10 * spread), dof or 0])
    se = np.exp(spread * rng.standard_normal(groups))
    se /= se.mean()
    asked: Any = {"against": against}
    rows = []
    for factor, gap in ((1 + EDGE, GAP), (1 - EDGE, GAP), (0.0, 0.0)):
        effects, sizes = truth(groups, against, factor)
        too_far = np.full(groups, factor > 1)

        def one(effects: Array = effects, sizes: Array = sizes) -> fl.Estimates:
            seen = se if dof is None else se * np.sqrt(rng.chisquare(dof, groups) / dof)
            return fl.Estimates(effects + se * rng.standard_normal(groups), seen, n=sizes, dof=dof)

        rows.append(Wrong.of(one, too_far, runs, gap=gap, **asked))
    return max(rows[0].within, rows[0].certificate), rows[1].differs, rows[2].differs


@pytest.mark.parametrize("against", ["overall", "0", "all pairs"])
@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("groups", [2, 5, 21, 102, 1000])
def test_known_standard_errors(groups: int, spread: float, against: str) -> None:
    runs = RUNS[groups]
    within, differs, equal = study(groups, spread, None, against, runs)
    record(f"known se; {groups} groups, lognormal({spread:g}) se, {against}", within, differs, equal, runs=runs)
    assert max(within, differs, equal) <= bound(runs)
    assert equal >= ALPHA - 3.5 * math.sqrt(ALPHA * (1 - ALPHA) / runs)  # the intervals are exact, not cautious


@pytest.mark.parametrize("against", ["overall", "0", "all pairs"])
@pytest.mark.parametrize(("groups", "dof"), [(2, 4), (5, 4), (21, 4), (21, 30), (102, 9), (1000, 9)])
def test_estimated_standard_errors(groups: int, dof: int, against: str) -> None:
    runs = scale_runs(60 if groups == 1000 else 150 if groups == 102 else 300)
    for spread in (0.0, 1.0):
        within, differs, equal = study(groups, spread, dof, against, runs)
        what = f"{groups} groups, dof {dof}, lognormal({spread:g}) se, {against}"
        record(f"estimated se; {what}", within, differs, equal, runs=runs)
        assert max(within, differs, equal) <= bound(runs)


@pytest.mark.parametrize("groups", [2, 21, 102])
def test_one_group_beyond_the_gap(groups: int) -> None:
    """All others are surely within it: the certificate is wrong in α of data sets, whatever the number of groups."""
    rng = np.random.default_rng(groups)
    se = np.append(1.0, np.full(groups - 1, 0.1))
    sizes = np.append(1.0, np.full(groups - 1, 1e6))
    effects = np.append(GAP * (1 + EDGE), np.zeros(groups - 1)) / np.append(1 - 1 / sizes.sum(), np.ones(groups - 1))
    too_far = np.arange(groups) == 0
    runs = scale_runs(2000)
    wrong = Wrong.of(
        lambda: fl.Estimates(effects + se * rng.standard_normal(groups), se, n=sizes), too_far, runs, gap=GAP
    )
    record_figure("certify", f"one group beyond the gap; {groups} groups; passed", wrong.certificate, runs)
    assert 2 * ALPHA - bound(runs) <= wrong.certificate <= bound(runs)
    assert wrong.within <= bound(runs)


RATES = [(0.001, 100, 100, 0.03), (0.02, 50, 100, 0.1), (0.1, 5, 20, 0.4), (0.5, 5, 20, 0.4), (0.5, 50, 500, 0.1)]


@pytest.mark.parametrize("adverse", [None, "low", "high"])
@pytest.mark.parametrize(("share", "fewest", "most", "gap"), RATES)
@pytest.mark.parametrize("groups", [2, 21])
def test_rates_of_few_rows(groups: int, share: float, fewest: int, most: int, gap: float, adverse: Any) -> None:
    """Small groups on the edge beside a very large one, so that nothing but their own few rows is uncertain."""
    if adverse == "low" and share < gap:
        pytest.skip("no rate is so far below")
    _edge_of_rates(groups, share, fewest, most, gap, adverse, is_ratio=False, runs=scale_runs(500))


@pytest.mark.parametrize("adverse", [None, "low", "high"])
@pytest.mark.parametrize(("share", "fewest", "most"), [(0.05, 200, 400), (0.3, 100, 200), (0.5, 20, 60)])
@pytest.mark.parametrize("groups", [2, 21])
def test_ratios_of_rates(groups: int, share: float, fewest: int, most: int, adverse: Any) -> None:
    """The four-fifths rule."""
    _edge_of_rates(groups, share, fewest, most, 0.8, adverse, is_ratio=True, runs=scale_runs(500))


def _edge_of_rates(
    groups: int, share: float, fewest: int, most: int, gap: float, adverse: Any, *, is_ratio: bool, runs: int
) -> None:
    rng = np.random.default_rng([groups, int(1000 * share), fewest])
    trials = np.exp(rng.uniform(math.log(fewest), math.log(most), groups)).round().astype(int)
    trials[0] = 10**9
    said = []
    for factor in (1 + 1e-3, 1 - 1e-3):
        above = share / gap * factor if is_ratio else share + gap * factor
        below = share * gap / factor if is_ratio else share - gap * factor
        low = (np.arange(groups) % 2 == 0) if adverse is None else np.full(groups, adverse == "low")
        rates = np.where(low & (below >= 0), below, above)
        rates[0] = share
        too_far = (np.arange(groups) > 0) & (factor > 1)
        wrong = Wrong.of(
            lambda rates=rates: fl.binomial(rng.binomial(trials, rates), trials),  # type: ignore[misc]
            too_far,
            runs,
            gap=gap,
            ratio=is_ratio,
            adverse=adverse,
            against="overall",  # which is the large group's rate
        )
        said.append(max(wrong.certificate, wrong.within) if factor > 1 else wrong.differs)
    kind = "ratio" if is_ratio else "difference"
    record(f"rates; {kind}, rate {share}, {fewest}–{most} rows, {groups} groups, {adverse}", *said, runs=runs)
    assert max(said) <= bound(runs)


@pytest.mark.parametrize("kind", ["rate", "mean", "difference", "lift"])
def test_small_groups_of_rows(kind: str) -> None:
    """21 groups of 30 to 300 rows that are all alike, by their moments: wrong "differs" with a gap of zero."""
    rng = np.random.default_rng(len(kind))
    runs, groups, metric = scale_runs(400), 21, _metric(kind)

    def one() -> fl.Estimates:
        sizes = np.exp(rng.uniform(math.log(30), math.log(300), groups)).astype(int)
        arms = 2 if metric.arms else 1
        values = [[_values(kind, rng, n) for _ in range(arms)] for n in sizes]
        count = np.array([[len(v) for v in several] for several in values], dtype=float)[..., None]
        mean, variance, skewness, kurtosis = (
            np.array([[moment(v) for v in several] for several in values]) for moment in _MOMENTS
        )
        moments = fl.Moments(
            count, mean[..., None], variance[..., None, None], skewness[..., None], kurtosis[..., None]
        )
        measured = metric.measured(moments)
        return fl.Estimates(
            measured.theta,
            measured.se,
            n=measured.n,
            dof=measured.dof,
            natural=measured.natural,
            scale=metric.scale,
            compared=measured.compared,
        )

    wrong = Wrong.of(one, np.zeros(groups, dtype=bool), runs, gap=0.0)
    record_figure("certify", f"rows; {kind}, 21 equal groups; wrong differs", wrong.differs, runs)
    assert wrong.differs <= (0.09 if kind in {"difference", "lift"} else bound(runs))


_MOMENTS: list[Callable[[Array], float]] = [
    lambda v: float(v.mean()),
    lambda v: float(v.var(ddof=1)),
    lambda v: _standardized(v, 3),
    lambda v: _standardized(v, 4),
]


def _standardized(values: Array, power: int) -> float:
    """The mean of ((v − v̄)/s)^power; NaN where all values are equal, as engines have it."""
    away = values - values.mean()
    spread = float(np.sqrt(np.mean(away**2)))
    return float(np.mean((away / spread) ** power)) if spread > 0 else math.nan


def _metric(kind: str) -> fl.Metric:
    arms = {"variant": "arm", "control": "A"} if kind in {"difference", "lift"} else {}
    metric: fl.Metric = getattr(fl, kind)("x", **arms)
    return metric


def _values(kind: str, rng: np.random.Generator, n: int) -> Array:
    return (rng.random(n) < 0.1).astype(float) if kind == "rate" else rng.gamma(2.0, 1.0, n)


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("groups", [2, 5, 21, 102, 1000])
def test_the_critical_value_is_the_exact_one(groups: int, spread: float, sides: int) -> None:
    """Brute force over normal vectors; within a few per mille, where five per cent are asked."""
    rng = np.random.default_rng([groups, int(spread)])
    variance = np.exp(2 * spread * rng.standard_normal(groups))
    size = np.exp(rng.standard_normal(groups))
    reference = np.arange(groups) == 0
    for share in (size / size.sum(), reference.astype(float)):
        critical = critical_value(AgainstMean(variance[:, None, None], share[:, None]), ALPHA, 0, sides=sides)
        exact = _brute_force(variance, share, sides)
        assert critical == pytest.approx(exact, rel=0.02)
    if sides == 2 and groups <= 102:
        a, b = np.triu_indices(groups, 1)
        noise = np.random.default_rng(9).standard_normal((4000, groups)) * np.sqrt(variance)
        top = np.max(np.abs(noise[:, a] - noise[:, b]) / np.sqrt(variance[a] + variance[b]), axis=1)
        critical = critical_value(AllPairs(variance[:, None, None]), ALPHA, 0)
        assert critical == pytest.approx(float(np.quantile(top, 1 - ALPHA)), rel=0.03)


def _brute_force(variance: Array, share: Array, sides: int) -> float:
    rng, tops = np.random.default_rng(7), []
    spread = np.sqrt(variance * (1 - share) ** 2 + np.sum(share**2 * variance) - share**2 * variance)
    keep = share < 1
    for _ in range(20):
        noise = rng.standard_normal((2000, variance.size)) * np.sqrt(variance)
        away = (noise - (noise @ share)[:, None])[:, keep] / spread[keep]
        tops.append((np.abs(away) if sides == 2 else away).max(axis=1))
    return float(np.quantile(np.concatenate(tops), 1 - ALPHA))


# ------------------------------------------------------------------------------------------------------ the best group

BEST_RUNS = scale_runs(2000)
CASES = [(sides, as_ratio) for sides in (1, 2) for as_ratio in (False, True)]


def arranged(arrangement: str, groups: int, rng: np.random.Generator) -> Array:
    """True effects: all equal, one ahead, or a grid in some order."""
    effects = np.full(groups, 20.0)
    if arrangement == "one ahead":
        effects[0] += 2.5
    elif arrangement == "grid":
        effects = 20.0 + np.linspace(0, 4, groups)[rng.permutation(groups)]
    return effects


def drawn_effect(kind: str, effects: Array, sizes: Array, rng: np.random.Generator) -> tuple[fl.Estimates, OneEffect]:
    """Rates of so many rows, or means with the standard errors that such rows would have."""
    if kind == "rate":
        estimates = fl.binomial(rng.binomial(sizes.astype(int), effects), sizes).estimates
        assert estimates is not None
    else:
        se = 20.0 / np.sqrt(sizes)
        estimates = fl.Estimates(effects + se * rng.standard_normal(sizes.size), se, n=sizes)
    return estimates, effects_of(estimates, np.full((sizes.size, 1), 1 / sizes.size))[0]


@pytest.mark.parametrize("kind", ["mean", "rate"])
@pytest.mark.parametrize("arrangement", ["equal", "one ahead", "grid"])
@pytest.mark.parametrize("groups", [2, 5, 21, 200])
def test_the_best_group_is_covered_though_the_data_choose_it(groups: int, arrangement: str, kind: str) -> None:
    """Intervals of θ_i less, or over, the best of the others hold for all groups at once, one- and two-sided.

    Critical values are those of the first data set: they hardly depend on the data, and take most of the time.
    """
    rng = np.random.default_rng([groups, len(arrangement), len(kind)])
    effects, runs = arranged(arrangement, groups, rng), BEST_RUNS
    spread = np.exp(1.4 * rng.standard_normal(groups))
    sizes = np.maximum((400 * spread / np.exp(1.0)).astype(int), 40).astype(np.float64)
    effects = effects / 40 if kind == "rate" else effects
    best = np.where(np.arange(groups) == effects.argmax(), np.sort(effects)[-2], effects.max())
    first, _ = drawn_effect(kind, effects, sizes, rng)
    tails = {sides: best_tails(first, ALPHA, 1, sides=sides) for sides in (1, 2)}
    missed = {case: np.zeros(2) for case in CASES}
    for run in range(runs):
        sides, as_ratio = case = CASES[run % 4]
        _, effect = drawn_effect(kind, effects, sizes, rng)
        interval = against_best(effect, tails[sides], highest=True, as_ratio=as_ratio).interval
        truth = effects / best if as_ratio else effects - best
        below, above = bool(np.any(interval.lower > truth + 1e-9)), bool(np.any(interval.upper < truth - 1e-9))
        missed[case] += [below, above] if sides == 1 else [below or above, False]
    worst = [float(counts.max()) / (runs / 4) for counts in missed.values()]
    record_figure("certify", f"best group; {groups} groups, {arrangement}, {kind}; not covered", np.mean(worst), runs)
    assert max(worst) <= bound(runs // 4)
    assert np.mean(worst) <= bound(runs)


@pytest.mark.parametrize("is_ratio", [False, True])
@pytest.mark.parametrize("kind", ["mean", "rate"])
@pytest.mark.parametrize("groups", [2, 21, 200])
def test_a_group_at_the_gap_below_the_best(groups: int, kind: str, is_ratio: bool) -> None:
    """One group is just beyond the gap below the best, all others between: wrong certificates, and power beside them.

    Power is that of a group half as far away, against the same with the best group known. The verdict rests on the
    largest of the one-sided bounds alone, which is computed here; `certify` says the same of the first data sets.
    """
    runs = scale_runs(2000)
    rng = np.random.default_rng([groups, len(kind), is_ratio])
    top, gap = (0.5, 0.1) if kind == "rate" else (20.0, 4.0)
    limit = top / (top - gap) if is_ratio else gap
    passed = np.zeros(3)
    for run in range(2 * runs):
        is_beyond = run % 2 == 0
        effects = np.full(groups, top - 0.3 * gap)
        effects[0], effects[1] = top, top - gap * (1 + EDGE if is_beyond else 0.5)
        sizes = np.full(groups, 20_000.0)
        sizes[1] = 400.0
        estimates, effect = drawn_effect(kind, effects, sizes, rng)
        passes = at_most_below_best(effect, ALPHA, highest=True, as_ratio=is_ratio).max() <= limit
        if run < 20:
            asked: Any = {"gap": 1 / limit if is_ratio else gap, "ratio": is_ratio, "adverse": "low"}
            assert (fl.certify(estimates, against="highest", **asked).verdict == "passed") == passes
        lower = effect.against_group(0, ALPHA, as_ratio=is_ratio).lower[1:]
        passes_known = bool(np.all(lower >= 1 / limit if is_ratio else lower >= -limit))
        passed += (passes, 0, 0) if is_beyond else (0, passes, passes_known)
    wrong, power, exact = passed / runs
    what = f"below the best; {groups} groups, {kind}, {'ratio' if is_ratio else 'difference'}"
    record_figure("certify", f"{what}; wrong", wrong, runs)
    record_figure("certify", f"{what}; power", power, runs)
    record_figure("certify", f"{what}; power, best known", exact, runs)
    assert wrong <= bound(runs)
    assert power >= exact - 0.05


# ----------------------------------------------------------------------------------------------- each group's own rows


def of_world(world: str, rng: np.random.Generator, n: int) -> Array:
    if world == "spend":
        return np.where(rng.random(n) < 0.1, rng.lognormal(0.0, 1.0, n), 0.0)
    draw = {"lognormal": partial(rng.lognormal, 0.0, 1.0), "exponential": partial(rng.exponential, 1.0)}
    return np.asarray(draw.get(world, partial(rng.normal, 0.0, 1.0))(n), dtype=np.float64)


OWN_ROWS = [
    ("spend", 200, 0.81),
    ("lognormal", 50, 2.16),
    ("exponential", 30, 1.0),
    ("noisier", 30, 2.0),
    ("normal", 12, 1.0),
]


@pytest.mark.parametrize(("world", "size", "spread"), OWN_ROWS)
def test_a_small_group_just_beyond_the_gap_by_rows(world: str, size: int, spread: float) -> None:
    """One small group beside five of 2,000 rows, exactly beyond the gap on either side; and equal ones, for power."""
    rng, runs, others = np.random.default_rng(size), scale_runs(1000), 5
    share, gap = size / (size + others * 2000), 5 * spread / math.sqrt(size)
    group = np.repeat(np.arange(others + 1), [size] + [2000] * others)
    passed = np.zeros(3)
    for run in range(3 * runs):
        side = run % 3 - 1
        own = of_world(world, rng, size) * (2.0 if world == "noisier" else 1.0)
        own = own + side * gap * (1 + EDGE) / (1 - share)
        values = np.concatenate([own, *(of_world(world, rng, 2000) for _ in range(others))])
        passed[side + 1] += (
            fl.certify(pl.DataFrame({"g": group, "x": values}), "g", fl.mean("x"), gap=gap).verdict == "passed"
        )
    below, equal, above = passed / runs
    print(
        f"{world}, {size} rows: wrong {below:.3f} below, {above:.3f} above; equal ones pass {equal:.3f} ({runs} runs)"
    )
    assert max(below, above) <= bound(runs) + 0.01  # Hall's interval is of second order, not exact


CHANGES = [(10, 0.2, 0.0), (30, 0.05, 0.0), (30, 0.1, 0.0), (100, 0.02, 0.0), (300, 0.01, 0.0), (100, 0.1, 0.1)]


@pytest.mark.parametrize(("size", "gap", "gains"), CHANGES)
def test_a_small_group_that_loses_just_more_than_the_gap_between_two_models(
    size: int, gap: float, gains: float
) -> None:
    """Few rows change, and in a small group often none: what other groups vary must not make it sure."""
    rng, runs = np.random.default_rng(size), scale_runs(20_000)
    shares = [gains, gap * (1 + EDGE) + gains, 1 - gap * (1 + EDGE) - 2 * gains]
    ones, minus_ones, _ = rng.multinomial(size, shares, runs).astype(np.float64).T
    side = counted_side(OwnCounts(ones, minus_ones, np.full(runs, float(size))), ALPHA, signed=True)
    wrong = float(np.mean(side.lower >= -gap))
    record_figure("certify", f"changes; {size} rows, gap {gap:g}, {gains:.0%} gain; wrong", wrong, runs)
    assert wrong <= bound(runs)
