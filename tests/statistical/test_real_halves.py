"""Crossed attributes of real rows: what margins find in one part, beside what cells alone find, is it in the other?

Public data that are not ours to pass on: FAULTLINES_DATA names the folder that has them (docs/field.md).
"""

from __future__ import annotations

from functools import partial

import pytest

import faultlines as fl
from docs.figures import record_figure, share_error
from experiments.common import data_file
from experiments.field_data import ACS, CASES, COMPAS, HILLSTROM, RATES, Case, acs_case, halved
from tests.statistical.tally import count_events, scale_runs

pytestmark = pytest.mark.statistical
RUNS = scale_runs(100)
# The share of the rows to find in, so few that not everything is found; the rest is to confirm.
SHARES = {"ACS": 0.002, "COMPAS": 0.05, "Hillstrom": 0.5}
FILES = {"ACS": ACS, "COMPAS": COMPAS, "Hillstrom": HILLSTROM}
QUESTIONS: dict[str, Case] = {
    f"{case.data}, {SHARES[case.data]:.1%} of the rows, {case.name}": case
    for case in (
        *(acs_case(0, "race × sex × age", rate) for rate in RATES),
        *(case for case in CASES if case.data in {"COMPAS", "Hillstrom"} and "spend" not in case.name),
    )
}


def draw_events(case: Case, split: int) -> dict[str, bool]:
    """What is reported in one part, and whether the other confirms it: by margins, and by the cells alone."""
    parts = halved(case.rows(), SHARES[case.data], split)
    first, second = (fl.measure(rows, list(case.by), case.metric).estimates for rows in parts)
    events: dict[str, bool] = {}
    for name, margins in (("margins", True), ("cells alone", False)):
        result = fl.cluster(first, margins=margins, seed=split)
        again = fl.confirm(result, second) if result.rejected else None
        events[name] = result.rejected
        events[f"{name}, confirmed"] = again is not None and again.verdict == "confirmed"
        events[f"{name}, refuted"] = again is not None and again.verdict == "not confirmed"
    return events


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_margins_find_is_confirmed_in_other_rows(name: str) -> None:
    case = QUESTIONS[name]
    if data_file(FILES[case.data]) is None:
        pytest.skip(f"{FILES[case.data]} is not in the folder that FAULTLINES_DATA names")
    tally = count_events("real_halves", name, partial(draw_events, case), RUNS)
    confirmed: dict[str, float] = {}
    for column in ("margins", "cells alone"):
        record_figure("real_halves", f"halves; {name}; {column}: reported", tally.share(column), tally.runs)
        record_figure(
            "real_halves", f"halves; {name}; {column}: confirmed", tally.share(f"{column}, confirmed"), tally.runs
        )
    confirmed = {column: tally.share(f"{column}, confirmed") for column in ("margins", "cells alone")}
    assert confirmed["margins"] >= confirmed["cells alone"] - 3 * share_error(0.5, tally.runs)
    # A report that the other part refutes is a false positive, or nearly one.
    assert tally.share("margins, refuted") <= 0.05 + 3 * share_error(0.05, tally.runs)
