"""ASOS's experiments, looked at every second day: false positives over time, and do early decisions last?

An experiment is a group, its lift the effect: the question is whether experiments of one metric differ in what they do.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments.common import FIELD, GREY, Numbers, Run, Study, chart, markdown
from experiments.field_data import ASOS, ASOS_DAYS, Paths, asos_paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.results import Clustering


ALPHA = 0.05
DAYS = ASOS_DAYS
GROUPS, METRICS = 12, (1, 2, 3, 4)
DRAWS = 1000
DEPENDENCE = ("independent", "returning", "any")
UNCORRECTED = "p < 0.05 at any look"
METHODS = (*(f'fl.Monitor, "{name}"' for name in DEPENDENCE), UNCORRECTED)
ONE = "one look after four weeks"
REAL = "as they were"
# How a group's estimate moves where nothing differs: by what the next look adds to it.
ALIKE = {
    "precision": "equal, each look adds independent precision",
    "totals": "equal, each look adds an independent amount to the totals",
}


def chosen(metric: int, seed: int) -> Paths:
    paths = asos_paths(metric)
    at = np.random.default_rng([metric, seed]).choice(len(paths.names), min(GROUPS, len(paths.names)), replace=False)
    return Paths(tuple(paths.names[i] for i in at), paths.n[at], paths.lift[at], paths.se[at])


def alike(paths: Paths, how: str, rng: np.random.Generator) -> Paths:
    """The same sizes and standard errors, with lifts in which nothing differs."""
    clock = paths.se**-2.0 if how == "precision" else (paths.n * paths.se) ** 2
    clock = np.maximum.accumulate(clock, axis=1)
    steps = np.sqrt(np.diff(clock, axis=1, prepend=0.0)) * rng.standard_normal(clock.shape)
    return paths._replace(lift=steps.cumsum(axis=1) / np.sqrt(clock) * paths.se)


# --------------------------------------------------------------------------------------------------------------- looks


def estimates(paths: Paths, look: int) -> fl.Estimates:
    return fl.Estimates(paths.lift[:, look], paths.se[:, look], list(paths.names), n=np.maximum(paths.n[:, look], 1))


def one_set(task: tuple[int, int, str]) -> dict[str, Any]:
    """When each way of looking reports clusters in one set of experiments, and what is left of it at the end."""
    metric, seed, how = task
    paths = chosen(metric, seed)
    if how != REAL:
        paths = alike(paths, how, np.random.default_rng([seed, metric, list(ALIKE).index(how)]))
    looks = [estimates(paths, look) for look in range(len(DAYS))]
    alone = fl.cluster_many({str(i): look for i, look in enumerate(looks)}, alpha=ALPHA)
    below = [i for i in range(len(looks)) if alone[str(i)].pvalue <= ALPHA]
    last = fl.cluster(looks[-1], alpha=ALPHA, seed=seed)
    stops: dict[str, tuple[int, list[int]] | None] = {}
    for dependence, method in zip(DEPENDENCE, METHODS, strict=False):
        stops[method] = monitored(paths.names, looks, dependence, seed)
    stops[UNCORRECTED] = None
    if below:
        first = fl.cluster(looks[below[0]], alpha=ALPHA, seed=seed)
        stops[UNCORRECTED] = below[0], first.labels.tolist()
    return {"last": last.rejected, "found": {name: claim(stop, last) for name, stop in stops.items()}}


def monitored(
    names: Sequence[str], looks: Sequence[fl.Estimates], dependence: Any, seed: int
) -> tuple[int, list[int]] | None:
    """The look at which a monitor reports clusters, and the cluster of each group."""
    monitor = fl.Monitor(looks=len(looks), draws=DRAWS, seed=seed, alpha=ALPHA, dependence=dependence)
    for i, look in enumerate(looks):
        now = monitor.update(look)
        if now.rejected:
            whose = {label: k for k, cluster in enumerate(now.clusters) for label in cluster}
            return i, [whose[name] for name in names]
    return None


def claim(stop: tuple[int, list[int]] | None, last: Clustering) -> Numbers | None:
    from sklearn.metrics import adjusted_rand_score

    if stop is None:
        return None
    agreement = float(adjusted_rand_score(last.labels, stop[1]))
    return {"day": DAYS[stop[0]], "upheld": last.rejected, "agreement": agreement}


# ------------------------------------------------------------------------------------------------------------- numbers


def measure(run: Run) -> Numbers:
    sets = run.either(50, 2)
    kinds = [REAL, *ALIKE]
    tasks = [(metric, seed, how) for how in kinds for metric in METRICS for seed in range(sets)]
    results = run.each("asos", one_set, tasks)
    by_kind = {how: [result for result, task in zip(results, tasks, strict=True) if task[2] == how] for how in kinds}
    return {
        "sets": sets * len(METRICS),
        "experiments": [len(asos_paths(metric).names) for metric in METRICS],
        "kinds": {how: of_kind(own) for how, own in by_kind.items()},
    }


def of_kind(results: Sequence[dict[str, Any]]) -> Numbers:
    """Over the sets of one kind: how often and when each way of looking reports, and what is left at the end."""
    numbers: Numbers = {ONE: {"share": float(np.mean([result["last"] for result in results]))}}
    for method in METHODS:
        claims = [result["found"][method] for result in results if result["found"][method] is not None]
        early = [claim for claim in claims if claim["day"] < DAYS[-1]]
        numbers[method] = {
            "share": len(claims) / len(results),
            "by_day": [sum(claim["day"] <= day for claim in claims) / len(results) for day in DAYS],
            "day": float(np.mean([claim["day"] for claim in claims])) if claims else None,
            "early": len(early),
            "upheld": float(np.mean([claim["upheld"] for claim in early])) if early else None,
            "agreement": float(np.mean([claim["agreement"] for claim in early if claim["upheld"]] or [np.nan])),
        }
    return numbers


def tables(numbers: Numbers) -> dict[str, str]:
    kinds, sets = numbers["kinds"], numbers["sets"]
    rows = [[ONE, *(f"{kinds[how][ONE]['share']:.3f}" for how in kinds), "28", "–", "–"]]
    for method in METHODS:
        real = kinds[REAL][method]
        cells = [f"{kinds[how][method]['share']:.3f}" for how in kinds]
        upheld = "–" if real["upheld"] is None else f"{real['upheld']:.3f} of {real['early']}"
        agreement = "–" if real["agreement"] is None else f"{real['agreement']:.2f}"
        rows.append([method.replace("fl.Monitor, ", "`fl.Monitor`, "), *cells, f"{real['day']:.1f}", upheld, agreement])
    header = [f"share of {sets} sets with a reported difference", REAL, *ALIKE.values(), "mean day of a report"]
    return {"": markdown([*header, "early reports upheld at the end", "agreement of clusters"], rows)}


def facts(numbers: Numbers) -> dict[str, str]:
    kinds, worst = numbers["kinds"], "precision"
    texts = {
        "sets": str(numbers["sets"]),
        "experiments": " to ".join(map(str, sorted({min(numbers["experiments"]), max(numbers["experiments"])}))),
        "error": f"{np.sqrt(ALPHA * (1 - ALPHA) / numbers['sets']):.3f}",
        "uncorrected": f"{max(kinds[how][UNCORRECTED]['share'] for how in ALIKE):.2f}",
        "one": f"{kinds[REAL][ONE]['share']:.3f}",
    }
    for name, method in zip(DEPENDENCE, METHODS, strict=False):
        texts[f"{name}.false"] = f"{kinds[worst][method]['share']:.3f}"
        texts[f"{name}.share"] = f"{kinds[REAL][method]['share']:.3f}"
        texts[f"{name}.day"] = f"{kinds[REAL][method]['day']:.1f}"
    return texts


def figure(numbers: Numbers) -> Any:
    """Reported differences by day, where nothing differs and in the experiments as they were."""
    panels = []
    colours = ["#56B4E9", "#0072B2", "#009E73", "#D55E00"]
    for how, title in {"totals": "nothing differs", REAL: "the experiments as they were"}.items():
        rows = [
            {"day": day, "share": share, "method": method}
            for method in METHODS
            for day, share in zip(DAYS, numbers["kinds"][how][method]["by_day"], strict=True)
        ]
        lines = chart(rows, title).mark_line(point=True).encode(
            x=alt.X("day:Q", title="day"),
            y=alt.Y("share:Q", title="sets with a reported difference by then"),
            color=alt.Color("method:N", scale=alt.Scale(domain=list(METHODS), range=colours), title=None),
        )  # fmt: skip
        level = chart([{"alpha": ALPHA}]).mark_rule(color=GREY, strokeDash=[4, 3]).encode(y="alpha:Q")
        layers = [lines] if how == REAL else [lines, level]
        panels.append(alt.layer(*layers).properties(width=300, height=220))
    return alt.hconcat(*panels).resolve_scale(y="independent")


STUDY = Study("asos", measure, tables, facts, figure, FIELD, (ASOS,))

if __name__ == "__main__":
    STUDY.main()
