"""Real rows in which nothing differs any more, as their groups or arms were drawn anew: are clusters reported?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np
from scipy.special import betaincinv

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments.common import FIELD, GREY, Numbers, Run, Study, chart, markdown
from experiments.field_data import ACS, ACS_GROUPS, CASES, COMPAS, HILLSTROM, RATES, TABLES, acs_case

if TYPE_CHECKING:
    from experiments.field_data import Case

ALPHA = 0.05


def cases() -> list[Case]:
    """One model of ACS stands for all: shuffled, they differ in the share of positives only."""
    return [acs_case(4, groups, rate) for groups in ACS_GROUPS for rate in RATES] + CASES


def shuffled(task: tuple[int, int]) -> Numbers:
    """How often clusters are reported in one case."""
    number, runs = task
    case = cases()[number]
    rows = case.rows()
    if case.data == "ACS":
        rows = rows.sample(min(40_000, len(rows)), seed=0)
    check = fl.self_check(rows, list(case.by), case.metric, runs=runs, alpha=ALPHA, arms=case.arms is not None)
    return {"claims": check.false_positives, "runs": check.runs}


def measure(run: Run) -> Numbers:
    runs = run.either(200, 20)
    every = cases()
    checks = run.each("relabelled", shuffled, [(i, runs) for i in range(len(every))])
    return {
        "cases": {
            f"{case.data}, {case.name}": check | {"drawn": "groups" if case.arms is None else "arms"}
            for case, check in zip(every, checks, strict=True)
        }
    }


def ends(claims: int, runs: int) -> tuple[float, float]:
    """The exact 95% interval of a share (Clopper and Pearson)."""
    low = 0.0 if claims == 0 else float(betaincinv(claims, runs - claims + 1, 0.025))
    high = 1.0 if claims == runs else float(betaincinv(claims + 1, runs - claims, 0.975))
    return low, high


def tables(numbers: Numbers) -> dict[str, str]:
    rows = []
    for name, case in numbers["cases"].items():
        low, high = ends(case["claims"], case["runs"])
        share = case["claims"] / case["runs"]
        rows.append([name, case["drawn"], str(case["runs"]), f"{share:.3f}", f"{low:.3f} … {high:.3f}"])
    return {"": markdown(["", "drawn anew", "times", "false positives", "95% interval"], rows)}


def facts(numbers: Numbers) -> dict[str, str]:
    shares = [case["claims"] / case["runs"] for case in numbers["cases"].values()]
    runs = sum(case["runs"] for case in numbers["cases"].values())
    above = sum(ends(case["claims"], case["runs"])[0] > ALPHA for case in numbers["cases"].values())
    return {
        "lowest": f"{min(shares):.3f}",
        "highest": f"{max(shares):.3f}",
        "mean": f"{np.mean(shares):.3f}",
        "cases": str(len(shares)),
        "runs": f"{runs:,}",
        "above": str(above),
    }


def figure(numbers: Numbers) -> Any:
    """Shares with their intervals, beside α."""
    rows = []
    for name, case in numbers["cases"].items():
        low, high = ends(case["claims"], case["runs"])
        rows.append({"case": name, "share": case["claims"] / case["runs"], "low": low, "high": high})
    base = chart(rows, "share of relabelled data sets with a false positive, 95% intervals; dashed: α").encode(
        y=alt.Y("case:N", title=None, sort=list(numbers["cases"]), axis=alt.Axis(labelLimit=400))
    )
    level = chart([{"alpha": ALPHA}]).mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="alpha:Q")
    interval = base.mark_rule().encode(x=alt.X("low:Q", title=None, scale=alt.Scale(domain=[0, 0.12])), x2="high:Q")
    return alt.layer(level, interval, base.mark_point(filled=True, size=40, opacity=1).encode(x="share:Q")).properties(
        width=360, height={"step": 15}
    )


STUDY = Study("relabelled", measure, tables, facts, figure, FIELD, (ACS, COMPAS, HILLSTROM, TABLES))

if __name__ == "__main__":
    STUDY.main()
