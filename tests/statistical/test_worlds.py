"""Kinds of rows in which nothing differs: how often is a difference reported at α = .05 and .001?

Each world is counted up to `RUNS` data sets, or until fewer show that its rate is not .075, as far as the budget goes;
a later session continues. Power is counted
and kept, and compared from release to release by docs/figures/worlds.json.
"""

from __future__ import annotations

import math
from functools import partial

import pytest

from docs.figures import record_figure
from tests.statistical.tally import Tally, cell_seconds, count_events, is_settled, level_bound, scale_runs
from tests.statistical.worlds import WORLDS, draw_events

pytestmark = pytest.mark.statistical
RUNS = scale_runs(700)  # three Monte Carlo errors of .05 are .025: .05 is told from .075
LEAST = 20
SHARE = 0.35  # of the session
NULL = [name for name, world in WORLDS.items() if not world.differs]
POWER = [name for name, world in WORLDS.items() if world.differs]
# Worlds that cannot be held, with what was measured and why; a rate above it is a failure too.
KNOWN: dict[str, tuple[float, str]] = {
    "calibration slope, skewed scores, 34 small groups": (0.085, "few events in a group"),
    "giant and 24 of 30, Pareto, mean": (0.085, "variances of infinite fourth moments"),
    "normal, sd 1 or 10, 12 rows, mean, 40": (0.08, "two kinds of spread in groups of 12 rows"),
    "Atkinson near 1e6, 20": (0.085, "an index near its bound"),
    "balanced accuracy, rates differ, 60": (0.07, "two shares with few events"),
    "0 or 2 beside normal, 12–60 rows, 60": (0.07, "a mean far out has a small variance at the ends of a scale"),
    "graded answers, 20–60 rows, 60": (0.07, "a mean far out has a small variance at the ends of a scale"),
}


def count_reports(name: str) -> Tally:
    """Data sets of a world in which a difference is reported, as far as the budget goes."""
    draw, seconds = partial(draw_events, WORLDS[name]), cell_seconds(len(WORLDS), SHARE)
    decides = "" if WORLDS[name].differs else "reported"
    tally = count_events("worlds", name, draw, RUNS, seconds=seconds, least=LEAST, decides=decides)
    table = "power" if WORLDS[name].differs else "false positives"
    for event in tally.events:
        record_figure("worlds", f"{table}; {name}; {event}", tally.share(event), tally.runs)
    return tally


def require_all_runs(tally: Tally) -> None:
    """A world that its budget stopped has not passed: it is skipped, so that the next session continues it."""
    if tally.runs < RUNS and not is_settled(tally.events.get("reported", 0), tally.runs):
        pytest.skip(f"{tally.runs} of {RUNS} runs so far; run again to continue")


def describe(tally: Tally) -> str:
    rates = f"{tally.share('reported'):.3f} ± {tally.error('reported'):.3f} at .05"
    small = f"{tally.share('reported at .001'):.4f} at .001"
    return f"{rates}, {small}, warned of {tally.share('warned'):.2f}; {tally.runs} runs"


@pytest.mark.parametrize("name", NULL)
def test_false_positives(name: str) -> None:
    tally = count_reports(name)
    rate, _ = KNOWN.get(name, (0.05, ""))
    print(describe(tally))
    assert tally.share("reported") <= level_bound(rate, tally.runs)
    if name not in KNOWN:
        # One event in few runs proves nothing: as many as have a probability of about one in a thousand under α.
        assert tally.events["reported at .001"] <= math.ceil(level_bound(0.001, tally.runs) * tally.runs)
    require_all_runs(tally)


@pytest.mark.parametrize("name", POWER)
def test_power_is_kept(name: str) -> None:
    tally = count_reports(name)
    print(describe(tally))
    assert tally.share("reported") > 0.2 - 3 * tally.error("reported")
    require_all_runs(tally)


def test_there_are_enough_worlds() -> None:
    assert sum(not world.listed and not world.differs for world in WORLDS.values()) >= 60
