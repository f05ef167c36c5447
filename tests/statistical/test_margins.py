"""Crossed attributes: detection and names in the worlds of DESIGN.md 2.1, and more attributes than needed."""

from __future__ import annotations

from functools import partial
from itertools import permutations, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from docs.figures import record_figure, share_error
from experiments.baselines import ALONG_ATTRIBUTES, Crossed
from faultlines.estimates.labels import cross_levels, margins_of, refines
from faultlines.estimates.validation import own_variances
from faultlines.guarantees.attributes import AttributeChoice, explain_variation
from faultlines.guarantees.joint_test import GroupEffects
from faultlines.guarantees.margins import compare_margins
from faultlines.types import FloatArray, IntArray
from tests.statistical.tally import Tally, count_events, level_bound, scale_runs

if TYPE_CHECKING:
    from collections.abc import Sequence


pytestmark = pytest.mark.statistical
ALPHA = 0.05
RUNS, NULL_RUNS = scale_runs(400), scale_runs(700)


class World(NamedTuple):
    """Cells with true effects.

    Attributes:
        codes: Levels of the attributes, (K, A).
        se: Standard errors.
        effects: True effects.
        truth: The attributes that describe them.
    """

    codes: IntArray
    se: FloatArray
    effects: FloatArray
    truth: tuple[int, ...]


def crossing(*sizes: int) -> IntArray:
    return np.array(list(product(*map(range, sizes))))


def same_partition(codes: IntArray, first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether two sets of attributes divide the cells in the same way; a state says its region, too."""
    partitions = [cross_levels([codes[:, attribute] for attribute in chosen]) for chosen in (first, second) if chosen]
    return len(partitions) == 2 and refines(*partitions) and refines(*partitions[::-1])


def is_more(named: Sequence[int], truth: tuple[int, ...], codes: IntArray) -> bool:
    """Whether more attributes are named than needed; in a hierarchy, a finer level."""
    if named and truth and any(refines(codes[:, a], codes[:, b]) for a, b in permutations(range(codes.shape[1]), 2)):
        levels = [int(cross_levels([codes[:, a] for a in chosen]).max()) for chosen in (named, truth)]
        return levels[0] > levels[1]
    return len(named) > len(truth)


def draw_events(world: World, rivals: Crossed | None, run: int, alpha: float = ALPHA) -> dict[str, bool]:
    """What is found in one data set: by margins, by the cells alone, and by rivals."""
    rng = np.random.default_rng(1000 + run)
    theta = world.effects + world.se * rng.normal(size=world.se.size)
    effects = GroupEffects(theta, world.se, None)
    margins = margins_of(world.codes)
    test = compare_margins(effects, margins)
    named: tuple[int, ...] = ()
    if test.log_p <= np.log(alpha):
        named = AttributeChoice.of([effects], world.codes, margins, test).at(alpha)
    events = {"cells alone": bool(test.log_p_of_margins[-1] <= np.log(alpha))}
    by_method = {"margins": named}
    if rivals is not None:
        by_method |= {name: rival(rivals, theta) for name, rival in ALONG_ATTRIBUTES.items()}
    for name, attributes in by_method.items():
        events[name] = bool(attributes) or (name == "margins" and bool(test.log_p <= np.log(alpha)))
        events[f"{name}, right"] = same_partition(world.codes, attributes, world.truth)
        events[f"{name}, more"] = is_more(attributes, world.truth, world.codes)
    return events


def count(table: str, name: str, world: World, runs: int, *, rivals: bool = False) -> Tally:
    """Counts of one world, as far as they are made by now."""
    crossed = Crossed(world.codes, world.se) if rivals else None
    return count_events("margins", f"{table}; {name}", partial(draw_events, world, crossed), runs)


# ------------------------------------------------------------------------------------- the table of DESIGN.md 2.1


def worlds() -> dict[str, World]:
    """The worlds of the prototype, with the same standard errors and, run by run, the same noise."""
    codes = crossing(60, 3, 2)
    country, device, kind = codes.T
    size = np.random.default_rng(5).lognormal(0, 1, 60)[country]
    size = size * np.array([0.6, 0.3, 0.1])[device] * np.array([0.4, 0.6])[kind]
    se = 1 / np.sqrt(size / size.mean())
    two = np.isin(country, [3, 4]) & (device == 0)
    plain = {
        "country × device × type: nothing": (np.zeros(360), ()),
        "type .25": (0.25 * kind, (2,)),
        "type .35": (0.35 * kind, (2,)),
        "device + type .4": (0.4 * kind + 0.4 * (device == 0), (1, 2)),
        "device + type .7": (0.7 * kind + 0.7 * (device == 0), (1, 2)),
        "two countries on one device": (np.where(two, -4 * se[two].mean(), 0.0), (0, 1)),
        "ten countries .8": (0.8 * (country < 10), (0,)),
        "one cell 6 se": (np.where(np.arange(360) == 77, 6 * se[77], 0.0), (0, 1, 2)),
    }
    table = {name: World(codes, se, effects, truth) for name, (effects, truth) in plain.items()}
    codes = crossing(5, 2, 6)
    race, sex, age = codes.T
    size = np.array([0.7, 0.12, 0.1, 0.05, 0.03])[race] * np.random.default_rng(6).lognormal(0, 0.4, 60)
    se = 1 / np.sqrt(size / size.mean())
    plain = {
        "race × sex × age: nothing": (np.zeros(60), ()),
        "sex": (0.7 * sex, (1,)),
        "race": (1.0 * np.isin(race, [1, 3]), (0,)),
        "age slope": (0.3 * age, (2,)),
        "sex × race": (2.0 * ((sex == 1) & (race == 1)), (0, 1)),
        "sex + age": (0.7 * sex + 0.3 * age, (1, 2)),
    }
    table |= {name: World(codes, se, effects, truth) for name, (effects, truth) in plain.items()}
    zips = np.arange(400)
    codes = np.stack([zips // 80, zips // 10, zips], axis=1)
    plain = {
        "region > state > zip: nothing": (np.zeros(400), ()),
        "one state": (1.6 * (codes[:, 1] == 7), (1,)),
        "one region": (0.5 * (codes[:, 0] == 2), (0,)),
        "one zip": (5.0 * (zips == 123), (2,)),
    }
    return table | {name: World(codes, np.ones(400), effects, truth) for name, (effects, truth) in plain.items()}


# Detection by margins and share of the named sets that are the right ones: the prototype's figures (60 runs; where
# DESIGN.md names several sets, the right one).
PROTOTYPE = {
    "type .25": (0.37, 19 / 22),
    "type .35": (0.73, 41 / 44),
    "device + type .4": (0.98, 41 / 59),
    "device + type .7": (1.00, 59 / 60),
    "two countries on one device": (1.00, 38 / 60),
    "ten countries .8": (0.77, 41 / 46),
    "one cell 6 se": (0.93, 29 / 56),
    "sex": (0.58, 30 / 35),
    "race": (0.40, 23 / 24),
    "age slope": (0.82, 1.0),
    "sex × race": (0.37, 3 / 22),
    "sex + age": (0.92, 27 / 55),
    "one state": (0.87, 46 / 52),
    "one region": (0.82, 45 / 49),
    "one zip": (0.65, 38 / 39),
}


FOUND = ("margins", "cells alone", *ALONG_ATTRIBUTES)


@pytest.mark.parametrize("name", PROTOTYPE)
def test_detection_and_names_reach_the_prototype(name: str) -> None:
    tally = count("detection", name, worlds()[name], RUNS, rivals=True)
    for column in FOUND:
        record_figure("margins", f"detection; {name}; {column}", tally.share(column), tally.runs)
        if column != "cells alone":
            record_figure("margins", f"right attributes; {name}; {column}", tally.share(f"{column}, right"), tally.runs)
    detection, right = PROTOTYPE[name]
    reported = tally.events["margins"]
    of_reported = tally.events["margins, right"] / max(reported, 1)
    record_figure("margins", f"named; {name}; right attributes where a difference is reported", of_reported, reported)
    assert tally.share("margins") >= detection - 3 * np.hypot(
        share_error(detection, 60), share_error(detection, tally.runs)
    )
    assert of_reported >= right - 3 * np.hypot(share_error(right, 60 * detection), share_error(right, reported))
    if name in {"one cell 6 se", "one zip"}:  # what the other margins cost
        assert tally.share("margins") >= tally.share("cells alone") - 0.05 - 3 * share_error(0.05, tally.runs)


@pytest.mark.parametrize("name", [name for name, world in worlds().items() if not world.truth])
def test_level_without_a_difference(name: str) -> None:
    tally = count("false positives", name, worlds()[name], NULL_RUNS, rivals=True)
    for column in FOUND:
        record_figure("margins", f"false positives; {name}; {column}", tally.share(column), tally.runs)
    assert tally.share("margins") <= level_bound(ALPHA, tally.runs)


# ------------------------------------------------------------------------------------- other standard errors


def draw_null(kind: str, codes: IntArray, rng: np.random.Generator) -> GroupEffects:
    """Cells without a difference whose standard errors are known, or not, in one of several ways."""
    size = len(codes)
    sigma = np.exp(np.random.default_rng(1).normal(0, 0.5, size))
    if "covariance" in kind:
        shared = 0.5 * (codes[:, :1] == codes[:, 0]) + 0.3 * (codes[:, 1:2] == codes[:, 1])
        covariance = np.diag(sigma**2) + shared
        root = np.linalg.cholesky(covariance)
        theta = root @ rng.normal(size=size)
        if kind == "estimated covariance":
            rows = rng.normal(size=(150, size)) @ root.T
            covariance = rows.T @ rows / 150
            return GroupEffects(
                theta, np.sqrt(own_variances(covariance)), None, covariance, 150.0, full_covariance=True
            )
        return GroupEffects(theta, np.sqrt(own_variances(covariance)), None, covariance)
    theta = sigma * rng.normal(size=size)
    if kind == "one factor":
        return GroupEffects(theta, sigma * np.sqrt(rng.chisquare(10) / 10), None, None, 10.0)
    dof = float(kind.removeprefix("dof "))
    return GroupEffects(theta, sigma * np.sqrt(rng.chisquare(dof, size) / dof), np.full(size, dof))


@pytest.mark.parametrize("kind", ["dof 8", "dof 20", "one factor", "covariance", "estimated covariance"])
def test_level_of_other_standard_errors(kind: str) -> None:
    codes = crossing(6, 4, 2)
    margins = margins_of(codes)

    def draw(run: int) -> dict[str, bool]:
        effects = draw_null(kind, codes, np.random.default_rng(run))
        rows = explain_variation(effects, codes)
        explained = {f"explained, {i}": bool(row.beside.log_p <= np.log(ALPHA)) for i, row in enumerate(rows)}
        return explained | {"margins": bool(compare_margins(effects, margins).log_p <= np.log(ALPHA))}

    tally = count_events("margins", f"false positives; 6 × 4 × 2, {kind}", draw, NULL_RUNS)
    worst = max(tally.share(event) for event in tally.events if event.startswith("explained"))
    for column, share in (("margins", tally.share("margins")), ("explained(), worst attribute", worst)):
        record_figure("margins", f"false positives; 6 × 4 × 2, {kind}; {column}", share, tally.runs)
        assert share <= level_bound(ALPHA, tally.runs)


def draw_rows(kind: str, rng: np.random.Generator) -> tuple[pd.DataFrame, fl.Metric]:
    """Rows of 6 × 4 × 2 cells of unequal size in which nothing differs, and the metric to compare them by."""
    size = 6000
    frame = pd.DataFrame({
        "country": np.minimum(rng.geometric(0.35, size), 6),
        "device": rng.choice(4, size, p=[0.4, 0.3, 0.2, 0.1]),
        "type": rng.integers(0, 2, size),
        "arm": rng.choice(["A", "B"], size),
    })  # fmt: skip
    if kind == "rate":
        return frame.assign(x=(rng.random(size) < 0.2).astype(int)), fl.rate("x")
    if kind == "equalized odds":
        true = rng.random(size) < 0.4
        return frame.assign(y=true, x=rng.random(size) < np.where(true, 0.7, 0.2)), fl.equalized_odds("y", "x")
    frame["x"] = rng.gamma(2.0, 1.0, size)
    return frame, fl.mean("x") if kind == "mean" else fl.difference("x", variant="arm", control="A")


@pytest.mark.parametrize("kind", ["rate", "mean", "difference", "equalized odds"])
def test_level_from_rows_to_result(kind: str) -> None:
    runs = scale_runs(300) if kind == "equalized odds" else NULL_RUNS

    def draw(run: int) -> dict[str, bool]:
        frame, metric = draw_rows(kind, np.random.default_rng(run))
        return {"margins": fl.cluster(frame, ["country", "device", "type"], metric, seed=run).rejected}

    tally = count_events("margins", f"false positives; rows of 6 × 4 × 2 cells, {kind}", draw, runs)
    record_figure(
        "margins", f"false positives; rows of 6 × 4 × 2 cells, {kind}; margins", tally.share("margins"), tally.runs
    )
    assert tally.share("margins") <= level_bound(ALPHA, tally.runs)


SMALL = {
    "rate": (3000, (30, 5, 4, 2), 0.08),
    "lognormal": (4000, (60, 3, 2), 0.25),
    "difference": (6000, (40, 3, 2), 0.2),
}


def draw_small_cells(kind: str, effect: float, rng: np.random.Generator) -> tuple[pd.DataFrame, list[str], fl.Metric]:
    """Rows of so many combinations that most are too small to be compared; the last attribute makes a difference."""
    size, levels, largest = SMALL[kind]
    shares = 1.0 / np.arange(1, levels[0] + 1)
    columns = {"country": rng.choice(levels[0], size, p=shares / shares.sum())}
    columns |= {f"a{i}": rng.integers(0, count, size) for i, count in enumerate(levels[1:])}
    frame, by = pd.DataFrame(columns), list(columns)
    shift = effect * largest * (frame[by[-1]] == 1)
    if kind == "rate":
        return frame.assign(x=(rng.random(size) < 0.3 + shift).astype(int)), by, fl.rate("x")
    if kind == "lognormal":
        return frame.assign(x=rng.lognormal(0, 1, size) + shift), by, fl.mean("x")
    arm = rng.choice(["A", "B"], size)
    frame = frame.assign(arm=arm, x=rng.normal(size=size) + np.sin(frame["country"]) + shift * (arm == "B"))
    return frame, by, fl.difference("x", variant="arm", control="A")


@pytest.mark.parametrize("kind", SMALL)
def test_small_combinations_count_where_attributes_are_tested(kind: str) -> None:
    def draw(effect: float, run: int) -> dict[str, bool]:
        frame, by, metric = draw_small_cells(kind, effect, np.random.default_rng([run, 3]))
        result = fl.cluster(frame, by, metric, seed=run)
        alone = fl.cluster(frame, by[-1], metric, seed=run)
        return {"margins": result.rejected, "right": result.attributes == (by[-1],), "alone": alone.rejected}

    runs = {"level": scale_runs(300), "power": scale_runs(100)}
    for what, effect in (("level", 0.0), ("power", 1.0)):
        tally = count_events("margins", f"small combinations; {kind}, {what}", partial(draw, effect), runs[what])
        for column, event in (("crossed", "margins"), ("right attributes", "right"), ("that attribute alone", "alone")):
            record_figure("margins", f"small combinations; {kind}, {what}; {column}", tally.share(event), tally.runs)
        if what == "level":
            assert tally.share("margins") <= level_bound(ALPHA, tally.runs)
        else:
            assert tally.share("margins") >= 0.6 * tally.share("alone")
            assert tally.share("right") >= 0.8 * tally.share("margins")


def test_intervals_of_shares_cover() -> None:
    codes = crossing(8, 5, 2)
    effects = 0.6 * codes[:, 1] + 0.25 * codes[:, 0] + np.random.default_rng(3).normal(0, 0.7, 80)
    rows = explain_variation(GroupEffects(effects * 1e4, np.ones(80), None), codes)
    true = [row.share for row in rows]
    covered = np.zeros(4)
    for run in range(RUNS):
        theta = effects + np.random.default_rng(run).normal(size=80)
        intervals = [row.interval for row in explain_variation(GroupEffects(theta, np.ones(80), None), codes)]
        covered += [low <= share <= high for (low, high), share in zip(intervals, true, strict=True)]
    for row, share in zip(rows, covered / RUNS, strict=True):
        record_figure("margins", f"coverage of shares; share of {row.share:.0%}", share, RUNS)
    assert (covered / RUNS).min() >= 0.95 - 3 * share_error(0.05, RUNS)


# ------------------------------------------------------------------------------------- more attributes than needed


def arrangements() -> dict[str, World]:
    """2–4 attributes, balanced and Zipf sizes, differences along one, two or three attributes, and hierarchies."""
    worlds: dict[str, World] = {}
    for sizes in ((6, 4), (12, 2), (6, 4, 2), (20, 3, 2), (4, 3, 3, 2)):
        codes = crossing(*sizes)
        last, before = len(sizes) - 1, len(sizes) - 2
        first = codes[:, 0]
        few: FloatArray = np.where(first < 2, 2.0, 0.0)
        patterns: dict[str, tuple[FloatArray, tuple[int, ...]]] = {
            "one attribute": (1.5 * (codes[:, last] == 1), (last,)),
            "few levels of the first": (few, (0,)),
            "additive": (1.5 * (codes[:, last] == 1) + 1.5 * (codes[:, before] == 0), (before, last)),
            "interaction": (3.0 * ((codes[:, last] == 1) & (codes[:, before] == 0)), (before, last)),
        }
        for law in ("balanced", "Zipf"):
            size = np.ones(len(codes))
            if law == "Zipf":
                size = np.prod([1.0 / (1 + codes[:, a]) for a in range(len(sizes))], axis=0)
            se = 1 / np.sqrt(size / size.mean())
            for name, (effects, truth) in patterns.items():
                label = f"{' × '.join(map(str, sizes))}, {law}, {name}"
                worlds[label] = World(codes, se, effects * np.median(se), truth)
    codes = crossing(3, 3, 2, 3, 2)
    of_four = codes[:, :4] == 1
    for name, four in (("additive", 1.0 * of_four.sum(axis=1)), ("one combination", 4.0 * of_four.all(axis=1))):
        worlds[f"3 × 3 × 2 × 3 × 2, four of five, {name}"] = World(codes, np.ones(len(codes)), four, (0, 1, 2, 3))
    for states, zips in ((4, 5), (6, 3)):
        place = np.arange(5 * states * zips)
        codes = np.stack([place // (states * zips), place // zips, place], axis=1)
        for law, size in (("balanced", np.ones(place.size)), ("Zipf", 1.0 / (1 + place % 7))):
            se = 1 / np.sqrt(size / size.mean())
            worlds[f"hierarchy 5 > {states} > {zips}, {law}, region"] = World(codes, se, 1.5 * (codes[:, 0] == 1), (0,))
            worlds[f"hierarchy 5 > {states} > {zips}, {law}, state"] = World(codes, se, 4.0 * (codes[:, 1] == 3), (1,))
    return worlds


@pytest.mark.parametrize("name", arrangements())
def test_no_more_attributes_than_needed(name: str) -> None:
    tally = count("more attributes", name, arrangements()[name], RUNS)
    for column, event in (("margins", "margins"), ("right attributes", "margins, right"), ("more", "margins, more")):
        record_figure("margins", f"more attributes; {name}; {column}", tally.share(event), tally.runs)
    assert tally.share("margins, more") <= level_bound(ALPHA, tally.runs)


SKEWED = {"rate of 0.3": 0.2, "rate of 0.05": 0.06, "normal": 1.0, "lognormal": 1.0}


@pytest.mark.parametrize("kind", SKEWED)
def test_no_more_attributes_than_needed_from_rows(kind: str) -> None:
    """40,000 rows of 12 countries, of which a few have most rows, and 60 ages, which alone make a difference."""
    size, shares = 40_000, np.arange(1, 13) ** -1.1

    def draw(run: int) -> dict[str, bool]:
        rng = np.random.default_rng([run, 60])
        country, age = rng.choice(12, size, p=shares / shares.sum()), rng.integers(0, 60, size)
        shift = SKEWED[kind] * (age >= 30)
        if kind.startswith("rate"):
            values = (rng.random(size) < float(kind.rpartition(" ")[2]) + shift).astype(float)
        else:
            values = shift + (rng.normal(size=size) if kind == "normal" else rng.lognormal(0, 1, size))
        frame = pd.DataFrame({"country": country, "age": age, "x": values})
        result = fl.cluster(frame, ["country", "age"], fl.rate("x") if "rate" in kind else fl.mean("x"), seed=run)
        return {"right": result.attributes == ("age",), "more": "country" in result.attributes}

    runs = scale_runs(1000) if "rate" in kind else RUNS
    tally = count_events("margins", f"more attributes from rows; {kind}", draw, runs)
    for column, event in (("named rightly", "right"), ("more than needed", "more")):
        record_figure("margins", f"more attributes from rows; {kind}; {column}", tally.share(event), tally.runs)
    assert tally.share("more") <= level_bound(ALPHA, tally.runs)


def test_there_are_enough_arrangements() -> None:
    assert len(arrangements()) >= 40
