"""`fl.Monitor`: ever a false claim, power beside one look at the end, users that come back, real experiments."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.errors import NoGroupsError
from faultlines.estimates.scales import ANSCOMBE
from faultlines.guarantees.boundaries import (
    AnytimeRule,
    LookData,
    Spending,
    align_look,
    extend_history,
    follow,
    pool_look,
)
from faultlines.results.monitor import find_harmed
from tests.statistical.looks import critical, errors, information, monitored, null_of
from tests.statistical.monitoring import keep

pytestmark = pytest.mark.statistical


ONCE = [(0.082, 200, 0), (0.082, 200, 5), (0.01, 1000, 0), (0.01, 1000, 25), (0.003, 5000, 0)]


def within(share: float, runs: int, alpha: float = 0.05, sigmas: float = 3.5) -> bool:
    """Whether a share of runs is at most α, but for chance."""
    return share <= alpha + sigmas * math.sqrt(alpha * (1 - alpha) / runs)


# ------------------------------------------------------------------------------------------------------- false claims


@pytest.mark.parametrize("groups", [5, 21, 102])
@pytest.mark.parametrize("looks", [5, 20, 100])
def test_ever_a_false_claim(groups: int, looks: int) -> None:
    """4,000 runs each: even and uneven looks, equal and lognormal standard errors, every spending function."""
    for even in (True, False):
        for profile in ("equal", "lognormal"):
            clock = information(looks, even=even, seed=groups + looks)
            for spending in ("reserve", "obrien-fleming", "pocock", "haybittle-peto"):
                if spending != "reserve" and (profile == "lognormal" or looks == 100):
                    continue
                seed = 1000 * groups + looks + 2 * even + (profile == "equal")
                outcome = monitored(errors(groups, profile), np.zeros(groups), clock, spending=spending, seed=seed)
                how = f"{'even' if even else 'uneven'}, {profile} se, {spending}"
                keep("ever a false claim", f"K={groups}, {looks} looks, {how}", share=outcome.share, runs=4000)
                assert within(outcome.share, 4000), how


def test_ever_a_false_claim_without_an_end() -> None:
    """200 looks of a monitor without a plan: nearly all of α is spent."""
    for groups in (5, 21):
        numbers = np.arange(1, 201)
        outcome = monitored(
            errors(groups, "equal"),
            np.zeros(groups),
            numbers / 200,
            spending="obrien-fleming",
            fractions=numbers / (numbers + 5),
        )
        keep("ever a false claim without an end", f"K={groups}, 200 looks", share=outcome.share, runs=4000)
        assert within(outcome.share, 4000)


@pytest.mark.parametrize(("looks", "groups", "runs"), [(5, 5, 1000), (5, 21, 1000), (20, 5, 500)])
def test_ever_a_false_claim_of_the_class_itself(looks: int, groups: int, runs: int) -> None:
    """Through `update`, with few draws and groups of unequal size that grow at different speeds."""
    claims = dict.fromkeys(("returning", "any"), 0)
    for run in range(runs):
        rng = np.random.default_rng([run, looks, groups])
        daily = rng.integers(20, 200, groups) * rng.uniform(0.5, 1.5, (looks, groups))
        size = daily.cumsum(axis=0)
        total = (np.sqrt(daily) * rng.standard_normal(daily.shape)).cumsum(axis=0)
        for dependence in claims:
            monitor = fl.Monitor(looks=looks, draws=400, seed=run, dependence=dependence)  # type: ignore[arg-type]
            for day in range(looks):
                estimates = fl.Estimates(total[day] / size[day], size[day] ** -0.5, n=np.round(size[day]))
                claims[dependence] += (look := monitor.update(estimates)).rejected
                if look.finished:
                    break
    shares = {name: count / runs for name, count in claims.items()}
    keep("ever a false claim of the class", f"K={groups}, {looks} looks", **shares, runs=runs)
    assert all(within(share, runs) for share in shares.values())


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5])
def test_ever_a_false_claim_of_rates(rate: float) -> None:
    """4,000 runs each: 50 people a day and group, 20 looks, on Anscombe's scale."""
    for groups in (5, 21, 102):
        rng, looks = np.random.default_rng(groups), 20
        daily = np.sort(rng.integers(20, 100, groups))[::-1]
        clock = information(looks, even=True)
        trials = daily * np.arange(1, looks + 1)[:, None]
        null = null_of(1 / np.sqrt(4 * trials[-1] + 2))
        boundary, _ = critical(null, clock, clock, "reserve")
        events, claimed = np.zeros((4000, groups)), np.zeros(4000, dtype=bool)
        for look in range(looks):
            events += rng.binomial(daily, rate, events.shape)
            theta = ANSCOMBE.forward(events, np.broadcast_to(trials[look], events.shape).astype(float))
            values = null.statistics(theta - theta[:, :1], (1 / np.sqrt(4 * trials[look] + 2))[None])
            claimed |= values > boundary[look]
        keep("ever a false claim of rates", f"rates of {rate}, K={groups}", share=claimed.mean(), runs=4000)
        assert within(claimed.mean(), 4000, 0.055)


@pytest.mark.parametrize("groups", [5, 21])
def test_ever_a_false_claim_with_estimated_errors(groups: int) -> None:
    """600 runs of 8 looks, with 5 people a day and group whose spread is estimated."""
    runs, claims = 600, 0
    for run in range(runs):
        rows = np.random.default_rng([run, groups]).standard_normal((40, groups))
        monitor = fl.Monitor(looks=8, draws=400, seed=run)
        for day in range(1, 9):
            seen = rows[: 5 * day]
            se = seen.std(axis=0, ddof=1) / math.sqrt(5 * day)
            look = monitor.update(fl.Estimates(seen.mean(axis=0), se, n=5 * day, dof=5 * day - 1))
            if look.finished:
                break
        claims += look.rejected
    keep("ever a false claim with estimated errors", f"K={groups}", share=claims / runs, runs=runs)
    assert within(claims / runs, runs, 0.06)


# -------------------------------------------------------------------------------------------------- crossed attributes


def crossed_look(
    shape: tuple[int, ...], effect: float, run: int, *, margins: bool, people: int = 0, looks: int = 5
) -> Any:
    """The last look of a monitor of crossed attributes, cells of unequal size; the first level of the last differs.

    Args:
        shape: Levels of the attributes.
        effect: By how much, in units in which a cell of average size has a standard error of 1 at the end.
        run: Its number.
        margins: Whether attributes are tested.
        people: In each cell at each look, whose spread is estimated; 0 where standard errors are known.
        looks: How many.
    """
    rng = np.random.default_rng([run, len(shape), people])
    labels = [tuple(f"{a}{code}" for a, code in zip("abcd", key, strict=False)) for key in np.ndindex(*shape)]
    shift = effect * np.array([key[-1] == 0 for key in np.ndindex(*shape)])
    monitor = fl.Monitor(looks=looks, draws=1000, seed=run, margins=margins)
    share = rng.uniform(0.3, 1.7, len(labels)) / looks
    score, known = np.zeros(len(labels)), np.zeros(len(labels))
    rows = np.empty((0, len(labels)))
    for _ in range(looks):
        if people:
            rows = np.vstack([rows, shift + rng.standard_normal((people, len(labels)))])
            count = len(rows)
            se = rows.std(axis=0, ddof=1) / math.sqrt(count)
            estimates = fl.Estimates(rows.mean(axis=0), se, labels, n=count, dof=count - 1)
        else:
            known = known + share
            score += share * shift + np.sqrt(share) * rng.standard_normal(len(labels))
            estimates = fl.Estimates(score / known, known**-0.5, labels, n=1000 * known)
        look = monitor.update(estimates)
        if look.finished:
            break
    return look


@pytest.mark.parametrize(
    ("shape", "people"), [((6, 4, 2), 0), ((12, 5), 0), ((6, 4, 2), 6)], ids=["6×4×2", "12×5", "6×4×2 estimated"]
)
def test_ever_a_false_claim_of_crossed_attributes(shape: tuple[int, ...], people: int) -> None:
    """1,000 runs of 5 looks, all margins tested; standard errors known, or estimated from 6 people a look and cell."""
    runs = 1000
    share = sum(crossed_look(shape, 0.0, run, margins=True, people=people).rejected for run in range(runs)) / runs
    how = f"{' × '.join(map(str, shape))}, {f'{people} people a look' if people else 'known se'}"
    keep("ever a false claim of crossed attributes", how, share=share, runs=runs)
    assert within(share, runs, 0.055 if people else 0.05)


def test_a_difference_along_one_attribute_is_found() -> None:
    """200 runs of 5 looks at 216 cells of three attributes, of which the third differs by .4 se of a cell."""
    runs, shape = 200, (12, 6, 3)
    with_margins = [crossed_look(shape, 0.4, run, margins=True) for run in range(runs)]
    cells = [crossed_look(shape, 0.4, run, margins=False) for run in range(runs)]
    named = sum(look.along == ("attribute_3",) for look in with_margins)
    shares = {"share": sum(look.rejected for look in with_margins) / runs, "named": named / runs}
    shares["cells"] = sum(look.rejected for look in cells) / runs
    keep("difference along an attribute", "12 × 6 × 3", **shares, runs=runs)
    assert shares["share"] >= shares["cells"] + 0.2
    assert named >= 0.9 * shares["share"] * runs


def test_p_so_far_is_valid_at_every_level() -> None:
    """1,000 runs of 6 looks where nothing differs: p of the end is below u in at most u of the runs."""
    runs, ends = 1000, []
    for run in range(runs):
        total = np.random.default_rng(run).standard_normal((6, 8)).cumsum(axis=0)
        monitor = fl.Monitor(looks=6, draws=400, seed=run, alpha=0.02)
        for day in range(6):
            look = monitor.update(fl.Estimates(total[day] / (day + 1), np.full(8, (day + 1) ** -0.5), n=day + 1))
        ends.append(look.pvalue)
    for level in (0.02, 0.05, 0.1, 0.3):
        share = float(np.mean(np.array(ends) <= level))
        keep("p so far", f"at most {level}", share=share, runs=runs)
        assert within(share, runs, level)


# -------------------------------------------------------------------------------------------------------------- power

TRUTHS = {
    "halves of 21 groups, 2 se": (21, 10, 2.0),
    "halves of 21 groups, 3 se": (21, 10, 3.0),
    "one of 21 groups, 4 se": (21, 1, 4.0),
    "halves of 102 groups, 1 se": (102, 51, 1.0),
    "halves of 102 groups, 1.5 se": (102, 51, 1.5),
    "one of 102 groups, 5 se": (102, 1, 5.0),
}


@pytest.mark.parametrize("looks", [5, 20, 100])
def test_power_beside_one_look(looks: int) -> None:
    """4,000 runs each: at least .93 of what one look at the end detects, with less information where it is clear."""
    for truth, (groups, apart, gap) in TRUTHS.items():
        drift = np.where(np.arange(groups) < apart, gap, 0.0)
        clock = information(looks, even=True)
        for spending in ("reserve", "obrien-fleming", "pocock") if looks < 100 else ("reserve",):
            outcome = monitored(np.ones(groups), drift, clock, spending=spending)
            single, ratio = float(outcome.one_look.mean()), outcome.share / float(outcome.one_look.mean())
            used = float(outcome.information.mean())
            keep("power", f"{truth}, {looks} looks, {spending}", share=outcome.share, one=single, used=used, runs=4000)
            if spending == "reserve":
                assert ratio >= 0.93 - 0.02


def test_power_without_an_end() -> None:
    """Halves of 21 groups 2 se apart by then, 4,000 runs: detected after so many looks, and if they are the last."""
    groups = 21
    drift = np.where(np.arange(groups) < 10, 2.0, 0.0)
    for looks, least, at_end in ((5, 0.42, 0.72), (20, 0.52, 0.69), (60, 0.44, 0.61)):
        numbers = np.arange(1, looks + 1)
        clock, fractions = numbers / looks, numbers / (numbers + 5)
        shares = []
        for last in (fractions[-1], 1.0):
            way = np.append(fractions[:-1], last)
            outcome = monitored(np.ones(groups), drift, clock, spending="obrien-fleming", fractions=way)
            shares.append(outcome.share)
        keep("power without an end", f"{looks} looks", share=shares[0], final=shares[1], runs=4000)
        assert shares[0] >= least
        assert shares[1] >= at_end


def test_power_of_the_robust_form() -> None:
    """300 runs each: what it costs to assume nothing, halves of 21 groups 2 se apart, 20 looks; and the paper's way."""
    runs, looks, groups = 300, 20, 21
    detected, used = dict.fromkeys(("returning", "any"), 0), dict.fromkeys(("returning", "any"), 0.0)
    single = paper = 0
    for run in range(runs):
        rng = np.random.default_rng([run, 7])
        effect = np.where(np.arange(groups) < 10, 2.0, 0.0)
        daily = effect + math.sqrt(looks) * rng.standard_normal((looks, groups))
        total = daily.cumsum(axis=0)
        for dependence in detected:
            monitor = fl.Monitor(looks=looks, draws=1000, seed=run, dependence=dependence)  # type: ignore[arg-type]
            for day in range(1, looks + 1):
                se = np.full(groups, math.sqrt(looks / day))
                look = monitor.update(fl.Estimates(total[day - 1] / day, se, n=day))
                if look.finished:
                    break
            detected[dependence] += look.rejected
            used[dependence] += day / looks / runs
        single += fl.cluster(fl.Estimates(total[-1] / looks, np.ones(groups)), seed=run).rejected
        steps = fl.Monitor(rule="folds")
        for batch in daily:
            if steps.update(fl.Estimates(batch, np.full(groups, math.sqrt(looks)))).finished:
                break
        paper += steps.result.rejected
    keep("power of the robust form", "rule folds", share=paper / runs, one=single / runs, used=None, runs=runs)
    for name, count in detected.items():
        keep("power of the robust form", name, share=count / runs, one=single / runs, used=used[name], runs=runs)
    assert paper <= 0.03 * runs
    assert detected["any"] >= 0.9 * single - 0.03 * runs
    assert detected["returning"] >= 0.93 * single - 0.03 * runs


# ---------------------------------------------------------------------------------------------------------- intervals


@pytest.mark.parametrize("groups", [5, 21, 180])
def test_intervals_cover_at_all_of_100_looks(groups: int) -> None:
    """4,000 runs each: any interval of any group, or the overall one, ever misses; even and uneven looks."""
    runs, looks = 4000, 100
    for dependence, planned, even in (
        ("independent", True, True),
        ("independent", False, True),
        ("independent", True, False),
        ("any", True, True),
        ("any", False, True),
    ):
        rng = np.random.default_rng([groups, planned, even])
        size = 5000.0 * information(looks, even=even, seed=groups)
        total, before = np.zeros((runs, groups)), 0.0
        missed, missed_overall = np.zeros((2, runs), dtype=bool)
        history, overall = None, list[LookData]()
        for number, n in enumerate(size.tolist(), start=1):
            total += math.sqrt(n - before) * rng.standard_normal(total.shape)
            before = n
            data = LookData(np.arange(groups), np.zeros(groups), np.full(groups, n**-0.5), np.full(groups, n), None)
            overall.append(pool_look(data, np.arange(groups)))
            history = extend_history(history, data, range(groups), dependence, check=False)  # type: ignore[arg-type]
            first = size[0] / size[-1] if planned else None
            rule = AnytimeRule(0.05, dependence, number, looks if planned else None, first)  # type: ignore[arg-type]
            z = total / math.sqrt(n)
            missed |= np.any(np.abs(z) > rule.reach_of_groups(history, data), axis=1)
            growth = np.array([overall[-1].n[0] / overall[0].n[0]])  # type: ignore[index]
            missed_overall |= np.abs(z.sum(axis=1)) > math.sqrt(groups) * rule.reach(np.zeros(1), growth, None)
        how = f"K={groups}, {dependence}, {'planned' if planned else 'no plan'}, {'even' if even else 'uneven'}"
        shares = {"groups": float(missed.mean()), "overall": float(missed_overall.mean())}
        keep("intervals ever miss", how, **shares, runs=runs)
        assert all(within(share, runs) for share in shares.values()), how


@pytest.mark.parametrize("gain", [0.0, 2.0, 4.0])
def test_harm_is_ever_shown_wrongly(gain: float) -> None:
    """300 runs of 8 looks at 12 groups: none is harmed, half of them gain; the spread of values is estimated."""
    runs, groups, looks, daily = 300, 12, 8, 30
    gains = gain / math.sqrt(looks * daily) * (np.arange(groups) % 2)
    shown = dict.fromkeys(("groups", "clusters", "either"), 0)
    for run in range(runs):
        values = gains + np.random.default_rng([run, round(gain)]).standard_normal((looks * daily, groups))
        monitor, wrong = fl.Monitor(looks=looks, draws=400, seed=run), set[str]()
        for n in range(daily, looks * daily + 1, daily):
            seen = values[:n]
            estimates = fl.Estimates(seen.mean(axis=0), seen.std(axis=0, ddof=1) / math.sqrt(n), n=n, dof=n - 1)
            harmed = find_harmed(monitor.update(estimates), "low")
            wrong |= {"groups" if each.cluster is None else "clusters" for each in harmed}
        for kind in wrong | ({"either"} if wrong else set()):
            shown[kind] += 1
    shares = {kind: count / runs for kind, count in shown.items()}
    case = f"half gain {gain:g} standard errors" if gain else "none differs"
    keep("harm ever shown wrongly", case, **shares, runs=runs)
    assert within(shares["groups"], runs)
    assert within(shares["clusters"], runs)
    assert within(shares["either"], runs, 0.10)


@pytest.mark.parametrize("dependence", ["independent", "any"])
def test_overall_p_is_valid_at_all_looks(dependence: str) -> None:
    """4,000 runs each without any effect: the p of the overall effect is ever at most α, over 100 looks."""
    runs, looks = 4000, 100
    for planned, even in ((True, True), (False, True), (True, False)):
        rng = np.random.default_rng([planned, even])
        size = 5000.0 * information(looks, even=even, seed=3)
        total, before, smallest = np.zeros(runs), 0.0, np.zeros(runs)
        for number, n in enumerate(size.tolist(), start=1):
            total += math.sqrt(n - before) * rng.standard_normal(runs)
            before = n
            first = size[0] / size[-1] if planned else None
            rule = AnytimeRule(0.05, dependence, number, looks if planned else None, first)  # type: ignore[arg-type]
            log_p = rule.log_pvalue(total / math.sqrt(n), np.full(runs, n / size[0]), None)
            smallest = np.minimum(smallest, log_p)
        how = f"{dependence}, {'planned' if planned else 'no plan'}, {'even' if even else 'uneven'}"
        shares = {alpha: float(np.mean(smallest <= math.log(alpha))) for alpha in (0.01, 0.05, 0.2)}
        keep("overall p ever significant", how, **{f"at {alpha}": share for alpha, share in shares.items()}, runs=runs)
        assert all(within(share, runs, alpha) for alpha, share in shares.items()), how


@pytest.mark.parametrize("effect", [0.0, 0.1])
def test_overall_p_from_rows(effect: float) -> None:
    """200 runs each, 3 groups, 5 looks, skewed values: what `fl.Monitor` says without an effect, and with one."""
    runs, looks, daily = 200, 5, 200
    columns = fl.aggregated("n", sum="total", sum_squares="squares")
    metric = fl.difference(columns, variant="arm", control="A")
    smallest = np.ones(runs)
    for run in range(runs):
        values = np.random.default_rng([run, 7]).lognormal(0.0, 0.7, (3, 2, daily * looks))
        values[:, 1] += effect
        monitor = fl.Monitor(looks=looks, draws=100, seed=run)
        for look in range(1, looks + 1):
            part = values[:, :, : daily * look]
            table = {"g": np.repeat(list("abc"), 2), "arm": ["A", "B"] * 3, "n": np.full(6, daily * look)}
            sums = {"total": part.sum(axis=2).ravel(), "squares": (part**2).sum(axis=2).ravel()}
            seen = monitor.update(pd.DataFrame(table | sums), "g", metric)
            if seen.look is not None and seen.look.number == look:
                smallest[run] = min(smallest[run], seen.look.arm_effects[0].pvalue)
    share = float(np.mean(smallest <= 0.05))
    keep("overall p from rows", f"effect {effect:g}", share=share, runs=runs)
    assert within(share, runs) if not effect else share > 0.5


SPARSE = {
    "rate of 2%": ("rate", 0.02, 40),
    "rate of 10%": ("rate", 0.1, 40),
    "difference, conversion of 5%": ("difference", 0.05, 100),
    "lift, conversion of 5%": ("lift", 0.05, 400),
    "difference, lognormal (σ = 1.2)": ("difference", None, 40),
}


@pytest.mark.parametrize("kind", SPARSE)
def test_intervals_cover_from_rows(kind: str) -> None:
    """200 runs each, 21 groups, 8 looks in 20 days, few rows a day and group: standard errors are estimated."""
    name, rate, daily = SPARSE[kind]
    runs, looks, groups = 200, 20, 21
    missed = missed_overall = 0
    columns = fl.aggregated("n", sum="total", **({} if name == "rate" else {"sum_squares": "squares"}))
    arms: dict[str, Any] = {} if name == "rate" else {"variant": "arm", "control": "A"}
    metric = getattr(fl, name)(columns, **arms)
    labels, arm = np.tile(np.arange(groups), 2), np.repeat(["A", "B"], groups)
    for run in range(runs):
        rng = np.random.default_rng([run, daily])
        count = rng.poisson(daily, (looks, 2 * groups)) + 1
        sums = np.zeros((2, looks, 2 * groups))
        for day in range(looks):
            if rate is not None:
                sums[:, day] = rng.binomial(count[day], rate)
            else:
                place = np.repeat(np.arange(2 * groups), count[day])
                drawn = rng.lognormal(0.0, 1.2, place.size)
                for power in (1, 2):
                    sums[power - 1, day] = np.bincount(place, drawn**power, 2 * groups)
        count, sums = count.cumsum(axis=0), sums.cumsum(axis=1)
        history, any_missed, any_overall, overall = None, False, False, list[LookData]()
        seen: list[Any] = []
        for day in (0, 1, 2, 4, 7, 11, 15, 19):
            table = {"g": labels, "arm": arm, "n": count[day], "total": sums[0, day], "squares": sums[1, day]}
            frame = pd.DataFrame(table)[: groups if name == "rate" else 2 * groups]
            try:
                current = fl.measure(frame, "g", metric).estimates
            except NoGroupsError:
                continue
            if len(current) < 2:
                continue
            data, seen_labels, _ = align_look(current, seen, history, "keep", "add")
            seen = list(seen_labels)
            history = extend_history(history, data, seen, "returning", check=False)
            rule = AnytimeRule(0.05, "returning", day + 1, looks, 1 / looks)
            truth = current.scales[0].place(np.array([rate if name == "rate" else 0.0]))[0]
            fresh = np.isin(data.groups, [seen.index(label) for label in current.labels])
            reach = rule.reach_of_groups(history, data)
            shifted = data.theta.copy()
            shifted[fresh] = current.given[np.argsort([seen.index(label) for label in current.labels]), 0]
            any_missed |= bool(np.any((np.abs(shifted - truth) > reach * data.se)[fresh]))
            overall.append(pool_look(replace(data, theta=shifted), np.arange(data.groups.size)))
            wide = rule.reach(np.zeros(1), follow(overall, "returning").growth, overall[-1].dof)
            any_overall |= bool(np.any(np.abs(overall[-1].theta - truth) > wide * overall[-1].se))
        missed += any_missed
        missed_overall += any_overall
    shares = {"groups": missed / runs, "overall": missed_overall / runs}
    keep("intervals of rows ever miss", f"{kind}, {daily} rows a day", **shares, runs=runs)
    assert all(within(share, runs, 0.06) for share in shares.values())


# --------------------------------------------------------------------------------------------------------- planted bug


def test_a_planted_bug_is_reported_soon() -> None:
    """60 launches: 14 daily looks, 30 countries × 6 browsers, conversion of 5%, −30% in two of 180 groups.

    Beside it a test that knows the two groups and pools their rows, and the same corrected for all pairs of groups.
    """
    runs, days = 60, 14
    metric = fl.lift(fl.aggregated("n", sum="y", sum_squares="y"), variant="arm", control="A")
    levels = np.diff(Spending.of("reserve").spent(0.05, np.arange(1, days + 1) / days), prepend=0.0)
    ends: dict[str, list[int]] = {"monitor": [], "pooled": [], "pooled, all pairs": []}
    exact = 0
    for run in range(runs):
        rng = np.random.default_rng(run)
        weight = np.outer(rng.lognormal(0, 0.8, 30), rng.lognormal(0, 0.6, 6)).ravel()
        weight /= weight.sum()
        rate = 0.05 * np.exp(0.3 * rng.standard_normal(180))
        is_bug = np.isin(np.arange(180), rng.choice(np.argsort(-weight)[10:60], 2, replace=False))
        of_arms = np.stack([rate, rate * np.where(is_bug, 0.7, 1.0)], axis=1)
        n, y = np.zeros((2, 180, 2))
        monitors = {name: fl.Monitor(looks=days, draws=2000, seed=run) for name in ("monitor", "pooled")}
        days_until = dict.fromkeys(ends, days + 1)
        for day in range(1, days + 1):
            more = rng.poisson(164_000 * weight[:, None] / 2, (180, 2))
            n, y = n + more, y + rng.binomial(more, of_arms)
            cells, two = _table(n, y, np.arange(180)), _table(n, y, np.where(is_bug, 0, 1))
            if days_until["monitor"] > days and (now := monitors["monitor"].update(cells, ["c", "b"], metric)).rejected:
                days_until["monitor"] = day
                bugs = {(place // 6, place % 6) for place in np.flatnonzero(is_bug).tolist()}
                exact += bugs <= set(now.clusters[0])
            if days_until["pooled"] > days and monitors["pooled"].update(two, ["c", "b"], metric).rejected:
                days_until["pooled"] = day
            if days_until["pooled, all pairs"] > days:
                pvalue = fl.cluster(two, ["c", "b"], metric).pvalue
                days_until["pooled, all pairs"] = day if pvalue < levels[day - 1] / math.comb(180, 2) else days + 1
        for name, day in days_until.items():
            ends[name].append(day)
    for name, seen in ends.items():
        days_of = np.array(seen)
        keep("planted bug", name, found=float(np.mean(days_of <= days)), day=float(np.median(days_of)), runs=runs)
    keep("planted bug", "both groups named", share=exact / runs, runs=runs)
    delay = np.array(ends["monitor"]) - np.array(ends["pooled, all pairs"])
    assert np.mean(np.array(ends["monitor"]) <= days) >= 0.9
    assert np.median(delay) <= 2  # attributes have half of α


def _table(n: Any, y: Any, place: Any) -> pd.DataFrame:
    """Counts of groups and arms; groups with the same place are added up."""
    size = int(place.max()) + 1
    sums = [np.concatenate([np.bincount(place, part[:, arm], size) for arm in (0, 1)]) for part in (n, y)]
    number = np.tile(np.arange(size), 2)
    table = {"c": number // 6, "b": number % 6, "arm": np.repeat(["A", "B"], size), "n": sums[0], "y": sums[1]}
    return pd.DataFrame(table)[sums[0] > 0]


# ---------------------------------------------------------------------------------------------------- returning users


@pytest.mark.parametrize(("daily", "start", "joining"), ONCE)
def test_outcomes_that_happen_once(daily: float, start: int, joining: int) -> None:
    """4,000 runs each, 21 groups, 20 looks: whether users have bought by now, by clocks of users and of their odds."""
    runs, looks, groups = 4000, 20, 21
    rng = np.random.default_rng(3)
    left, bought, statistics, shares = list[Any](), np.zeros((runs, groups)), [], []
    users = start + joining * np.arange(looks)
    null = null_of(np.ones(groups))
    for day in range(looks):
        left.append(np.full((runs, groups), joining if day else start))
        for place, cohort in enumerate(left):
            buying = rng.binomial(cohort, daily)
            left[place], bought = cohort - buying, bought + buying
        size = float(users[day])
        theta = ANSCOMBE.forward(bought, np.full(bought.shape, size)) * math.sqrt(4 * size + 2)
        statistics.append(null.statistics(theta - theta[:, :1], np.ones((1, groups))))
        shares.append(bought.mean() / size)
    p, fractions = np.array(shares), np.arange(1, looks + 1) / looks
    clocks = {"users": users / users[0], "odds": users / users[0] * np.maximum(p / (1 - p) * (1 - p[0]) / p[0], 1.0)}
    for spending in ("reserve", "pocock"):
        claims = {}
        for name, clock in clocks.items():
            boundary, _ = critical(null, clock, fractions, spending)
            claims[name] = float(np.any(np.array(statistics) > boundary[:, None], axis=0).mean())
        levels = np.diff(Spending.of(spending).spent(0.05, fractions), prepend=0.0)
        alone = np.array([null.critical_value(max(level, 1e-12)) for level in levels])
        claims["any"] = float(np.any(np.array(statistics) > alone[:, None], axis=0).mean())
        where = f"{daily:.1%} a day, {start:,} users, {joining} join a day, {spending}"
        keep("outcomes that happen once", where, **claims, by_now=float(p[-1]), runs=runs)
        assert within(claims["odds"], runs)
        assert within(claims["any"], runs)


def coming_back(kind: str, days: int, groups: int, rng: np.random.Generator) -> Any:
    """Per look: mean, standard error and number of users of every group, of users of whom most come back every day.

    295 users in each group, of whom two thirds are there from the start. Each arrives by chance: were the arrivals the
    same in all groups, standard errors would count differences between early and late users that are no noise.
    ``"days"``: what a user spends on a day is independent of other days, and added up. ``"users"``: it follows the
    user. ``"week"``: the last seven days only, which are not all data so far.
    """
    users = 295
    arrival = np.where(rng.random((groups, 1, users)) < 200 / users, 0, rng.integers(1, days, (groups, 1, users)))
    here = np.arange(days)[:, None] >= arrival
    spent = rng.exponential(1.0, (groups, days, users)) * here
    if kind == "users":
        spent = rng.exponential(1.0, (groups, 1, users)) * rng.uniform(0.5, 1.5, spent.shape) * here
    total = spent.cumsum(axis=1)
    if kind == "week":
        total[:, 7:] -= spent.cumsum(axis=1)[:, :-7]
    for day in range(days):
        n = here[:, day].sum(axis=1)
        mean = total[:, day].sum(axis=1) / n
        spread = ((total[:, day] - mean[:, None]) ** 2 * here[:, day]).sum(axis=1) / (n - 1)
        yield mean, np.sqrt(spread / n), n


KINDS = ("days", "users", "week")


@pytest.mark.parametrize("spending", ["reserve", "pocock"])
def test_users_that_come_back(spending: str) -> None:
    """200 runs each, 21 groups, 20 daily looks, no difference: plain claims too much, the robust forms hold."""
    runs = 200
    for kind in KINDS:
        claims = dict.fromkeys(("independent", "returning", "any"), 0)
        for run in range(runs):
            seen = list(
                coming_back(kind, 20, 21, np.random.default_rng([run, {"days": 0, "users": 1, "week": 3}[kind]]))
            )
            for dependence in claims:
                how: dict[str, Any] = {"dependence": dependence, "draws": 400, "seed": run, "spending": spending}
                monitor = fl.Monitor(looks=20, **how)
                for mean, se, n in seen:
                    if (look := monitor.update(fl.Estimates(mean, se, n=n))).finished:
                        break
                claims[dependence] += look.rejected
        shares = {name: count / runs for name, count in claims.items()}
        keep("users that come back", f"{kind}, {spending}", **shares, runs=runs)
        assert within(shares["any"], runs)
        if kind in {"days", "users"}:
            assert within(shares["returning"], runs)
        if spending == "pocock" and kind in {"days", "week"}:
            assert not within(shares["independent"], runs)


# ------------------------------------------------------------------------------------------------------------- ASOS


def asos() -> Any:
    """Looks at lifts: experiments as groups, by metric; every second day for four weeks (public data of ASOS)."""
    import polars as pl

    folder = os.environ.get("FAULTLINES_DATA", "")
    path = Path(folder) / "asos_experiments.parquet"
    if not folder or not path.exists():
        pytest.skip("asos_experiments.parquet is not in the folder that FAULTLINES_DATA names")
    rows = (
        pl.read_parquet(path)
        .drop_nulls()
        .filter(
            (pl.col("count_c") > 500)
            & (pl.col("count_t") > 500)
            & (pl.col("variance_c") > 0)
            & (pl.col("variance_t") > 0)
        )
    )
    return rows.sort("time_since_start")


def looks_of(rows: Any, metric: int) -> dict[str, FloatRows]:
    """For each experiment with four weeks of data: users, lift and its standard error every second day."""
    looks = {}
    for key, part in rows.filter(rows["metric_id"] == metric).group_by(["experiment_id", "variant_id"]):
        time = part["time_since_start"].to_numpy()
        if time.min() > 2 or time.max() < 28:
            continue
        at = [int(np.flatnonzero(time <= day).max()) for day in range(2, 29, 2)]
        if len(set(at)) < len(at):
            continue
        c, t = ({k: part[f"{k}_{arm}"].to_numpy()[at] for k in ("count", "mean", "variance")} for arm in "ct")
        lift = t["mean"] / c["mean"] - 1
        relative = (t["mean"] / c["mean"]) ** 2
        variance = (t["variance"] / t["count"] + relative * c["variance"] / c["count"]) / c["mean"] ** 2
        looks["-".join(map(str, key))] = np.array([c["count"] + t["count"], lift, np.sqrt(variance)])
    return looks


FloatRows = Any


def test_asos_experiments() -> None:
    """What the robust forms cost on real paths: 50 sets of 12 experiments for each of four metrics, 14 looks."""
    rows = asos()
    stops: dict[str, list[tuple[bool, int]]] = {name: [] for name in ("independent", "returning", "any")}
    single = []
    for metric in (1, 2, 3, 4):
        experiments = looks_of(rows, metric)
        print(f"metric {metric}: {len(experiments)} experiments with four weeks of data")
        rng = np.random.default_rng(metric)
        for run in range(50):
            chosen = rng.choice(sorted(experiments), min(12, len(experiments)), replace=False)
            paths = np.array([experiments[name] for name in chosen])
            for dependence, stopped in stops.items():
                monitor = fl.Monitor(looks=14, draws=1000, seed=run, dependence=dependence)  # type: ignore[arg-type]
                for day in range(14):
                    n, lift, se = paths[:, :, day].T
                    if (look := monitor.update(fl.Estimates(lift, se, list(chosen), n=np.maximum(n, 1)))).finished:
                        break
                stopped.append((look.rejected, look.looks[-1].number))
            single.append(fl.cluster(fl.Estimates(paths[:, 1, -1], paths[:, 2, -1]), seed=run).rejected)
    for name, stopped in stops.items():
        agree = np.mean([rejected == stops["independent"][i][0] for i, (rejected, _) in enumerate(stopped)])
        days = np.mean([2 * day for rejected, day in stopped if rejected])
        share = np.mean([rejected for rejected, _ in stopped])
        keep("ASOS", name, share=share, agree=agree, day=days, one=np.mean(single), runs=len(single))
        assert agree >= 0.9
