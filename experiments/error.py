"""The paper's second figure: mean squared error of the treatment effect of one country, along μ."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import altair as alt

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

from experiments import baselines
from experiments.common import GREY, Numbers, Run, Study, by_method, chart, logarithmic, markdown, times
from experiments.power import (
    METHODS,
    OTHER_COLOURS,
    PEOPLE,
    SD,
    SHOWN,
    ahead,
    at,
    compared,
    curves,
    drawn_methods,
    said,
)

ALONE = 2 * SD**2 / PEOPLE  # the error of a country that is estimated by itself
KNOWN = ALONE / 48  # and of one whose continent is known
FAINT = 0.025  # half detected
TREES = ("causal tree, one-hot", "causal tree, encoded", "causal tree, encoded, pruned")


def measure(run: Run) -> Numbers:
    """The scores of the power study, with what each tree gains and loses at its best and its worst μ."""
    numbers = curves(run)
    ratios = []
    for rival in TREES:
        for method in ("literal", "calibrated"):
            # What the tree loses, as a ratio of errors, at each μ; below 1 it gains.
            losses = [
                (point["mse"] / at(numbers, method, point["mu"], "mse"), point["mu"])
                for point in numbers["points"]
                if point["method"] == rival
            ]
            if losses:
                (least, best_mu), (most, worst_mu) = min(losses), max(losses)
                ratios.append(
                    {
                        "rival": rival,
                        "method": method,
                        "rival_better": 1 / least,
                        "at_mu": best_mu,
                        "rival_worse": most,
                        "at_mu_worse": worst_mu,
                    }
                )
    dropped = ("recovered", "told", "clusters")
    points = [{key: value for key, value in p.items() if key not in dropped} for p in numbers["points"]]
    reference = {"alone": ALONE, "known": KNOWN}
    return {**numbers, "reference": reference, "ratios": ratios, "points": points}


def tables(numbers: Numbers) -> dict[str, str]:
    reference = numbers["reference"]["known"]
    header = ["mean squared error × 1,000, ± one standard error", *(f"μ = {mu:.2g}" for mu in SHOWN), "runs"]
    rows = [
        ["continents known", *[f"{1000 * reference:.3f}"] * len(SHOWN), "formula"],
        ["each country alone", *[f"{1000 * numbers['reference']['alone']:.3f}"] * len(SHOWN), "formula"],
    ]
    for method in [*METHODS, *baselines.EFFECTS]:
        cells = [(at(numbers, method, mu, "mse"), at(numbers, method, mu, "mse_error")) for mu in SHOWN]
        shown = [
            "–" if cell is None else f"{1000 * cell:.3f}" + (f" ± {1000 * error:.3f}" if error is not None else "")
            for cell, error in cells
        ]
        rows.append([method, *shown, str(at(numbers, method, 1.0, "replicates") or "not installed")])
    against = [
        [
            f"{pair['rival']} against {pair['method']}",
            f"{times(pair['rival_better'])} at μ = {pair['at_mu']:.2g}" if pair["rival_better"] > 1 else "never better",
            f"{times(pair['rival_worse'])} at μ = {pair['at_mu_worse']:.2g}",
        ]
        for pair in numbers["ratios"]
    ]
    return {
        "": markdown(header, rows),
        "-ratios": markdown(["", "the tree is better by at most", "and worse by at most"], against),
    }


def one_mean(mu: float) -> float:
    """The error of one country of Asia if all countries are given their common mean."""
    return float((mu * (1 + (54 - 48) / 102)) ** 2 + ALONE / 102)


def gain_from(numbers: Numbers) -> float:
    """The μ from which on ours is better than one mean for all."""
    own = [point for point in numbers["points"] if point["method"] == "calibrated"]
    worse = max(point["mu"] for point in own if point["mse"] > one_mean(point["mu"]))
    return float(min(point["mu"] for point in own if point["mu"] > worse))


def facts(numbers: Numbers) -> dict[str, str]:
    by_pair = {(pair["rival"], pair["method"]): pair for pair in numbers["ratios"]}
    at_zero = {
        f"at_zero_{method.replace(', ', '_').replace(' ', '_')}": f"{1000 * at(numbers, method, 0.0, 'mse'):.2f}"
        for method in ("literal", "calibrated", "mixture, BIC", *baselines.EFFECTS)
    }
    at_zero |= {
        "comparisons": str(len(compared(numbers))),
        "ahead": said(ahead(numbers, "mse_lead"), "mse_lead", 1000),
        "faint": f"{FAINT:g}",
        "faint_calibrated": f"{1000 * at(numbers, 'calibrated', FAINT, 'mse'):.2f}",
        "faint_one_mean": f"{1000 * one_mean(FAINT):.2f}",
        "faint_no_more": f"{gain_from(numbers):.2g}",
    }
    return at_zero | {
        f"{key}_{method}_{short}": times(by_pair[rival, method][key])
        if (rival, method) in by_pair
        else "(not installed)"
        for short, rival in zip(("one_hot", "encoded", "pruned"), TREES, strict=True)
        for method in ("literal", "calibrated")
        for key in ("rival_better", "rival_worse")
    }


def figure(numbers: Numbers) -> Any:
    drawn = [*drawn_methods(numbers), baselines.SHRUNKEN, "NPMLE"]
    lines = (
        chart(point for point in numbers["points"] if point["method"] in drawn)
        .mark_line(point=alt.OverlayMarkDef(size=22))
        .encode(
            x=alt.X("mu:Q", title="μ"),
            y=alt.Y(**logarithmic("mse", "mean squared error, log scale", [1e-5, 1e-4, 1e-3, 0.01, 0.1, 2])),
            **by_method(drawn, {**OTHER_COLOURS, baselines.SHRUNKEN: "#332288", "NPMLE": "#882255"}),
        )
    )
    names = {"alone": "each country alone", "known": "continents known"}
    marks = [{"mse": value, "name": names[key], "mu": 1} for key, value in numbers["reference"].items()]
    floor = chart(marks).encode(y="mse:Q")
    rule = floor.mark_rule(color=GREY, strokeDash=[4, 3])
    name = floor.mark_text(align="right", dy=13, color=GREY, fontSize=11).encode(x="mu:Q", text="name:N")
    return (rule + lines + name).properties(width=560, height=340)


STUDY = Study("error", measure, tables, facts, figure)

if __name__ == "__main__":
    STUDY.main()
