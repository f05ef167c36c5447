"""The paper's first figure: how often is Asia recovered exactly, along the size μ of the effect?"""

from __future__ import annotations

import math
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np
from scipy.special import ndtr

from faultlines.types import FloatArray, IntArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments import baselines
from experiments.common import Numbers, Run, Study, by_method, chart, markdown, share, share_axis
from faultlines import simulate

if TYPE_CHECKING:
    from experiments.baselines import Fit

SEED = 2020
PAPER_GRID = [float(mu) for mu in np.linspace(0, 1, 20)]  # the paper's 20 values
FINE_GRID = [float(mu) for mu in np.linspace(0, 0.25, 21)]  # where everything happens
PEOPLE, SD = 100, 0.1**0.5

ON_ESTIMATES = (
    *("literal", "calibrated", "calibrated, not refined", "top merge", "holdout"),
    *("mixture, BIC", "mixture, AIC"),
)
# All that are fast enough; the causal trees are from another world.
RIVALS = tuple(method for method in baselines.RIVALS if method != baselines.BY_RATIO)
METHODS = [*ON_ESTIMATES, *RIVALS, *baselines.TREES]
OTHER_COLOURS = {
    "causal tree, encoded": "#F0E442",
    "causal tree, encoded, pruned": "#B8A800",
    "honest forest, one-hot": "#BBBBBB",
    "honest forest, encoded": "#000000",
}


class Experiment(NamedTuple):
    """One simulated experiment: rows for those who need them, and the estimates of the same rows."""

    rows: baselines.Rows
    estimates: fl.Estimates
    truth: IntArray
    effects: FloatArray


def experiment(mu: float, seed: list[int]) -> Experiment:
    """The paper's example with its rows: the same draws as in `simulate.asia_africa`."""
    seen = simulate.asia_africa(mu, seed=np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    countries = len(seen.truth)
    control = rng.normal(0.0, SD, (countries, PEOPLE))
    treated = rng.normal(seen.effects[:, None], SD, (countries, PEOPLE))
    outcome = np.concatenate([control, treated], axis=1).ravel()
    arm = np.tile(np.repeat([0, 1], PEOPLE), countries)
    rows = baselines.Rows(outcome, arm, np.repeat(np.arange(countries), 2 * PEOPLE))
    return Experiment(rows, seen.estimates, seen.truth, seen.effects)


class Scores(NamedTuple):
    """What a method made of one experiment."""

    recovered: bool
    told: bool  # whether Asia comes out when told that there are two clusters: the effects cut at their largest gap
    clusters: int
    squared_error: float  # of the effect of one country of Asia, each of the 48 in turn


def scored(fit: Fit, truth: IntArray, effects: FloatArray) -> Scores:
    asia = truth == 1
    recovered = any(np.array_equal(fit.labels == i, asia) for i in np.unique(fit.labels))
    order = np.argsort(fit.effects, kind="stable")
    lower = order[: int(np.argmax(np.diff(fit.effects[order]))) + 1]
    recovered_by_gap = np.array_equal(np.sort(lower), np.flatnonzero(asia))
    return Scores(recovered, recovered_by_gap, fit.n_clusters, float(np.mean((fit.effects - effects)[asia] ** 2)))


class Task(NamedTuple):
    mu: float
    place: int  # of μ in the grid, for the seed
    methods: tuple[str, ...]
    replicates: range


def scores(task: Task) -> dict[str, list[Scores]]:
    """All methods of a task on the same experiments."""
    examples = [experiment(task.mu, [SEED, task.place, i]) for i in task.replicates]
    if not set(task.methods) & set(baselines.TREES):
        fits = baselines.fits(task.methods, [example.estimates for example in examples], task.replicates)
    else:
        fits = {
            method: [
                baselines.tree(method, example.rows, example.estimates.theta, i)
                for i, example in zip(task.replicates, examples, strict=True)
            ]
            for method in task.methods
        }
    return {
        method: [
            scored(fit, example.truth, example.effects) for fit, example in zip(fits[method], examples, strict=True)
        ]
        for method in fits
    }


def led(own: list[Scores], ours: list[Scores]) -> Numbers:
    """How much oftener a method recovers Asia than ours, and by how much less it errs, on the same experiments."""
    pairs = list(zip(own, ours[: len(own)], strict=True))
    recovered = np.array([float(rival.recovered) - float(reference.recovered) for rival, reference in pairs])
    error = np.array([reference.squared_error - rival.squared_error for rival, reference in pairs])
    return {
        "lead": float(recovered.mean()),
        "lead_error": float(recovered.std() / len(own) ** 0.5),
        "mse_error": float(np.std([score.squared_error for score in own]) / len(own) ** 0.5),
        "mse_lead": float(error.mean()),
        "mse_lead_error": float(error.std() / len(own) ** 0.5),
    }


def compared(numbers: Numbers) -> list[Numbers]:
    """Points that were compared with ours on the same experiments."""
    return [point for point in numbers["points"] if "lead" in point and point["method"] != baselines.SHRUNKEN]


def ahead(numbers: Numbers, lead: str = "lead") -> dict[str, list[Numbers]]:
    """Where a method that came before is ahead of ours, p < 0.05 after Holm over all of them and all μ."""
    others = compared(numbers)
    z = np.array([point[lead] / max(point[f"{lead}_error"], 1e-12) for point in others])
    p = baselines.adjusted(2 * ndtr(-np.abs(z)), "holm")
    by_method: dict[str, list[Numbers]] = {}
    for point, own, size in zip(others, p, z, strict=True):
        if own < 0.05 and size > 0:
            by_method.setdefault(point["method"], []).append(point)
    return by_method


def said(leads: dict[str, list[Numbers]], lead: str = "lead", factor: float = 1.0, digits: int = 2) -> str:
    """Methods that are ahead, where, and by how much at most."""
    return (
        "; ".join(
            f"{method} at {len(own)} of the μ, by {factor * max(point[lead] for point in own):.{digits}f} at most"
            f" (μ from {min(point['mu'] for point in own):.2g} to {max(point['mu'] for point in own):.2g})"
            for method, own in leads.items()
        )
        or "none"
    )


@cache
def curves(run: Run) -> Numbers:
    """Scores of all methods along μ; the power and the error study read the same ones."""
    here = {method: tree for method, tree in baselines.TREES.items() if baselines.is_installed(tree.package)}
    others = (*RIVALS, *baselines.EFFECTS)
    replicates = {method: run.either(100, 6) for method in ON_ESTIMATES}
    replicates |= {method: run.either(50, 3) for method in others}
    replicates |= {method: run.either(10, 1) if "forest" in method else run.either(50, 1) for method in here}
    values = run.either(sorted({*PAPER_GRID, *FINE_GRID}), [0.0, PAPER_GRID[1], PAPER_GRID[2], PAPER_GRID[4], 1.0])
    tasks = []
    for place, mu in enumerate(values):
        tasks.append(Task(mu, place, ON_ESTIMATES, range(replicates["literal"])))
        if mu in PAPER_GRID:
            tasks.append(Task(mu, place, others, range(replicates["NPMLE"])))
            tasks += [Task(mu, place, (method,), range(replicates[method])) for method in here]
    # The longest first, so that no core waits for another at the end.
    tasks.sort(key=lambda task: task.methods[0] not in here)
    scores_at: dict[tuple[str, float], list[Scores]] = {}
    for task, scores_by_method in zip(tasks, run.each("Asia and Africa", scores, tasks), strict=True):
        scores_at |= {(method, task.mu): each for method, each in scores_by_method.items()}
    points = [
        {
            "method": method,
            "mu": mu,
            "replicates": replicates[method],
            "recovered": float(np.mean([score.recovered for score in scores_at[method, mu]])),
            "told": float(np.mean([score.told for score in scores_at[method, mu]])),
            "clusters": float(np.mean([score.clusters for score in scores_at[method, mu]])),
            "mse": float(np.mean([score.squared_error for score in scores_at[method, mu]])),
            **(led(scores_at[method, mu], scores_at["calibrated", mu]) if method in others else {}),
        }
        for method in replicates
        for mu in values
        if (method, mu) in scores_at
    ]
    missing = sorted({tree.package for method, tree in baselines.TREES.items() if method not in here})
    return {"seed": SEED, "not_installed": missing, "points": points}


def at(numbers: Numbers, method: str, mu: float, what: str) -> Any:
    """One number of one method at the grid value nearest to μ; None where it was not run."""
    own = [point for point in numbers["points"] if point["method"] == method]
    nearest = min(own, key=lambda point: abs(point["mu"] - mu), default=None)
    return nearest.get(what) if nearest and abs(nearest["mu"] - mu) < 0.03 else None


SHOWN = [0.0, PAPER_GRID[1], PAPER_GRID[2], PAPER_GRID[3], PAPER_GRID[4], PAPER_GRID[10], 1.0]


def measure(run: Run) -> Numbers:
    return curves(run)


def tables(numbers: Numbers) -> dict[str, str]:
    header = [
        "share of runs with exactly Asia, ± 0.05 at most in 100 runs",
        *(f"μ = {mu:.2g}" for mu in SHOWN[1:]),
        "clusters at μ = 1",
        "told there are two, μ = 1",
        "runs",
    ]
    rows = []
    for method in METHODS:
        if at(numbers, method, 1.0, "recovered") is None:
            rows.append([method, "not installed", *[""] * (len(header) - 2)])
            continue
        cells = [share(at(numbers, method, mu, "recovered")) for mu in SHOWN[1:]]
        last = [f"{at(numbers, method, 1.0, 'clusters'):.1f}", share(at(numbers, method, 1.0, "told"))]
        rows.append([method, *cells, *last, str(at(numbers, method, 1.0, "replicates"))])
    return {"": markdown(header, rows)}


def facts(numbers: Numbers) -> dict[str, str]:
    def peak(method: str) -> str:
        own = [point["recovered"] for point in numbers["points"] if point["method"] == method]
        return share(max(own)) if own else "(not installed)"

    def reliable(method: str) -> str:
        """The first μ from which on Asia is found in at least 99 of 100 runs."""
        own = [point for point in numbers["points"] if point["method"] == method]
        missed = max((point["mu"] for point in own if point["recovered"] < 0.99), default=-1.0)
        return f"{min((point['mu'] for point in own if point['mu'] > missed), default=math.nan):.2f}"

    short = {method: re.sub(r"\W+", "_", method) for method in METHODS}
    texts = {f"peak_{short[method]}": peak(method) for method in METHODS}
    texts |= {f"a_fifth_{short[method]}": share(at(numbers, method, 0.2, "recovered")) for method in METHODS}
    texts |= {f"reliable_{short[method]}": reliable(method) for method in ("calibrated", "holdout", "mixture, BIC")}
    return texts | {
        "clusters_literal": f"{at(numbers, 'literal', 1.0, 'clusters'):.1f}",
        "comparisons": str(len(compared(numbers))),
        "ahead": said(ahead(numbers)),
        "before_runs": str(at(numbers, RIVALS[0], 1.0, "replicates")),
    }


def drawn_methods(numbers: Numbers) -> list[str]:
    """Methods that were run, but for a variant whose line would lie on another's."""
    ran = {point["method"] for point in numbers["points"]} - {"calibrated, not refined"}
    return [method for method in METHODS if method in ran and method not in RIVALS]


def figure(numbers: Numbers) -> Any:
    drawn = drawn_methods(numbers)

    def panel(title: str, most: float, methods: list[str], width: int) -> Any:
        values = [p for p in numbers["points"] if p["method"] in methods and p["mu"] <= most]
        return (
            chart(values, title)
            .mark_line(point=alt.OverlayMarkDef(size=22))
            .encode(
                x=alt.X("mu:Q", title="μ", scale=alt.Scale(domain=[0, most])),
                y=share_axis("recovered", "share of runs with exactly Asia"),
                **by_method(drawn, OTHER_COLOURS),
            )
            .properties(width=width, height=260)
        )

    near = [method for method in drawn if method in ON_ESTIMATES]
    return panel("All methods", 1.0, drawn, 330) | panel("Where it happens", 0.25, near, 330)


STUDY = Study("power", measure, tables, facts, figure)

if __name__ == "__main__":
    STUDY.main()
