"""Where textbooks end: small clusters, heavy-tailed sizes, estimated errors, skewed rows and uneven arms."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np
import pandas as pd
from scipy.special import bdtrc, ndtr

from faultlines.types import FloatArray, IntArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments import baselines
from experiments.common import GREY, Numbers, Run, Study, chart, markdown, of_runs, share

if TYPE_CHECKING:
    from collections.abc import Callable

    from experiments.baselines import Fit

SEED = 102
ALPHA = 0.05
# Rank sets overlap all along the line with so many groups, and likelihood ratios of mixtures take too long.
METHODS = ["calibrated", *(rival for rival in baselines.RIVALS if rival not in ("rank sets", baselines.BY_RATIO))]
OURS = ("calibrated",)  # sees rows through the library, the others each group's own mean and error


class Drawn(NamedTuple):
    """One data set: what ours is given, what the others are given, and the true cluster of each group."""

    ours: fl.Estimates
    theirs: fl.Estimates
    truth: IntArray

    def score(self, method: str, fit: Fit) -> Score:
        from sklearn.metrics import adjusted_rand_score

        seen = self.ours if method in OURS else self.theirs
        truth = self.truth[[int(str(label)) for label in seen.labels]]
        too_many = fit.n_clusters > np.unique(truth).size
        return Score(fit.n_clusters > 1, too_many, float(adjusted_rand_score(truth, fit.labels)))


class Score(NamedTuple):
    claims: bool
    too_many: bool  # more clusters than there are
    rand_index: float


class Setting(NamedTuple):
    """A kind of data, and what differs in it; those of one kind share the one in which nothing does."""

    kind: str
    differs: str  # "" for nothing
    draw: Callable[[np.random.Generator], Drawn]


def planted(
    groups: int, errors: str, apart: int, distance: float, rng: np.random.Generator, dof: float | None = None
) -> Drawn:
    """Some groups stand apart by so many typical standard errors; where errors differ, theirs are typical."""
    if errors == "heavy":
        # Sizes of a Pareto law whose mean hardly exists: a few groups have nearly all the people.
        se = (rng.pareto(1.1, groups) + 1) ** -0.5 * 2 ** (0.5 / 1.1)
    else:
        se = np.ones(groups) if errors == "equal" else rng.lognormal(0.0, 1.0, groups)
    where = np.arange(groups) < apart
    if errors != "equal":
        se[where] = 1.0
    theta = np.where(where, distance, 0.0) + se * rng.standard_normal(groups)
    if dof is not None:
        se = se * np.sqrt(rng.chisquare(dof, groups) / dof)
    seen = fl.Estimates(theta, se, [str(i) for i in range(groups)], dof=dof)
    return Drawn(seen, seen, where.astype(np.int64))


def spending(apart: int, factor: float, rng: np.random.Generator) -> Drawn:
    """Rows of 60 groups: one person in ten buys, for a lognormal sum; in some groups all spend so much more."""
    sizes = np.maximum(rng.lognormal(np.log(400), 0.7, 60).astype(int), 100)
    group = np.repeat(np.arange(60), sizes)
    variance = np.zeros(60)
    while not variance.all():  # a group in which nobody buys, one in 40,000 of the smallest, has no error of its own
        spent = (rng.random(group.size) < 0.1) * rng.lognormal(3.0, 1.0, group.size)
        spent *= np.where(group < apart, factor, 1.0)
        number, mean, variance = _of_rows(group, spent, 60)
    estimates = fl.measure(pd.DataFrame({"group": group, "spent": spent}), "group", fl.mean("spent")).estimates
    theirs = fl.Estimates(mean, np.sqrt(variance / number), [str(i) for i in range(60)], dof=number - 1)
    return Drawn(estimates, theirs, (np.arange(60) < apart).astype(np.int64))


def uneven_arms(apart: int, extra: float, rng: np.random.Generator) -> Drawn:
    """Rows of 40 groups of 1,000, one in ten of them treated, two in a hundred with an event; in some groups more."""
    group = np.repeat(np.arange(40), 1000)
    treated = np.tile(np.arange(1000) < 100, 40)
    event = (rng.random(group.size) < 0.02 + extra * (treated & (group < apart))).astype(float)
    rows = pd.DataFrame({"group": group, "arm": np.where(treated, "B", "A"), "event": event})
    estimates = fl.measure(rows, "group", fl.difference("event", variant="arm", control="A")).estimates
    arms = [_of_rows(group[arm], event[arm], 40) for arm in (treated, ~treated)]
    (n1, mean1, var1), (n0, mean0, var0) = arms
    own, other = var1 / n1, var0 / n0
    dof = (own + other) ** 2 / (own**2 / (n1 - 1) + other**2 / (n0 - 1))  # Welch
    theirs = fl.Estimates(mean1 - mean0, np.sqrt(own + other), [str(i) for i in range(40)], dof=dof)
    return Drawn(estimates, theirs, (np.arange(40) < apart).astype(np.int64))


def _of_rows(group: IntArray, value: FloatArray, groups: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    number = np.bincount(group, minlength=groups).astype(float)
    mean = np.bincount(group, value, groups) / number
    return number, mean, np.bincount(group, (value - mean[group]) ** 2, groups) / (number - 1)


def _settings() -> list[Setting]:
    """All settings; another kind of data is a few more lines here, and one function that draws it."""
    settings = []
    for groups, errors, kind, cases in (
        (102, "equal", "K = 102, equal se", [(0, 0.0), (1, 5.0), (3, 4.0), (10, 2.5)]),
        (102, "lognormal", "K = 102, lognormal se", [(0, 0.0), (1, 5.0), (3, 4.0)]),
        (300, "equal", "K = 300, equal se", [(0, 0.0), (1, 5.0)]),
        (102, "heavy", "K = 102, heavy-tailed sizes", [(0, 0.0), (1, 5.0), (10, 2.5)]),
    ):
        for apart, distance in cases:
            differs = f"{apart} apart by {distance:g} se" if apart else ""
            settings.append(Setting(kind, differs, partial(planted, groups, errors, apart, distance)))
    for apart, distance in [(0, 0.0), (1, 6.0), (20, 2.0)]:
        differs = f"{apart} apart by {distance:g} se" if apart else ""
        draw = partial(planted, 40, "equal", apart, distance, dof=8)
        settings.append(Setting("K = 40, se estimated with 8 degrees of freedom", differs, draw))
    for apart, factor in [(0, 1.0), (6, 2.0)]:
        differs = f"{apart} spend {factor:g} times as much" if apart else ""
        settings.append(Setting("rows of skewed spend, K = 60", differs, partial(spending, apart, factor)))
    for apart, extra in [(0, 0.0), (20, 0.04)]:
        differs = f"{apart} with {100 * extra:g} points more" if apart else ""
        settings.append(Setting("rows, arms 10/90, rare events, K = 40", differs, partial(uneven_arms, apart, extra)))
    return settings


SETTINGS = _settings()
SHORT = dict(
    zip(
        dict.fromkeys(setting.kind for setting in SETTINGS),
        ("equal", "lognormal", "many", "heavy", "estimated", "spend", "arms"),
        strict=True,
    )
)


class Task(NamedTuple):
    setting: int
    numbers: range


def scores(task: Task) -> dict[str, list[Score]]:
    """All methods on the same data sets of one setting."""
    draw = SETTINGS[task.setting].draw
    drawn = [draw(np.random.default_rng([SEED, task.setting, i])) for i in task.numbers]
    others = [method for method in METHODS if method not in OURS]
    fits = baselines.fits(OURS, [draw.ours for draw in drawn], task.numbers)
    fits |= baselines.fits(others, [draw.theirs for draw in drawn], task.numbers)
    return {
        method: [draw.score(method, fit) for draw, fit in zip(drawn, fits[method], strict=True)] for method in METHODS
    }


def measure(run: Run) -> Numbers:
    """More data sets where nothing differs: whether a method holds its level is asked more sharply."""
    runs, null_runs, step = run.either((100, 400, 10), (2, 2, 2))
    tasks = [
        Task(place, range(start, start + step))
        for place, setting in enumerate(SETTINGS)
        for start in range(0, runs if setting.differs else null_runs, step)
    ]
    tasks.sort(key=lambda task: -("300" in SETTINGS[task.setting].kind))  # the longest first
    scores_of: dict[tuple[int, str], list[Score]] = {}
    for task, part in zip(tasks, run.each("settings", scores, tasks), strict=True):
        for method, own in part.items():
            scores_of.setdefault((task.setting, method), []).extend(own)
    rows = [
        {"kind": setting.kind, "differs": setting.differs, "method": method}
        | compared(scores_of[place, method], scores_of[place, "calibrated"])
        for place, setting in enumerate(SETTINGS)
        for method in METHODS
    ]
    return {"seed": SEED, "runs": runs, "runs_of_nothing": null_runs, "rows": rows}


def compared(own: list[Score], ours: list[Score]) -> Numbers:
    """What a method reached, and by how much it leads ours on the same data sets."""
    numbers: Numbers = {"runs": len(own), "too_many": float(np.mean([score.too_many for score in own]))}
    for what in ("claims", "rand_index"):
        reached = np.array([float(getattr(score, what)) for score in own])
        lead = reached - [float(getattr(score, what)) for score in ours[: len(own)]]
        numbers |= {what: float(reached.mean()), f"{what}_error": float(reached.std() / len(own) ** 0.5)}
        numbers |= {f"{what}_lead": float(lead.mean()), f"{what}_lead_error": float(lead.std() / len(own) ** 0.5)}
    return numbers


def levels(numbers: Numbers) -> dict[tuple[str, str], Numbers]:
    """By kind and method: false positives, and whether they are compatible with α, all kinds and methods considered."""
    nothing = [row for row in numbers["rows"] if not row["differs"]]

    def holds(row: Numbers) -> bool:
        claims = round(row["claims"] * row["runs"])
        return claims == 0 or float(bdtrc(claims - 1, row["runs"], ALPHA)) * len(nothing) > ALPHA

    return {(row["kind"], row["method"]): {"claims": row["claims"], "holds": holds(row)} for row in nothing}


def comparisons(numbers: Numbers) -> list[Numbers]:
    """Reported differences and Rand index against ours wherever something differs, p adjusted by Holm."""
    rows = [
        {"what": what, "lead": row[f"{what}_lead"], "lead_error": row[f"{what}_lead_error"], **row}
        for row in numbers["rows"]
        if row["differs"] and row["method"] != "calibrated"
        for what in ("claims", "rand_index")
    ]
    p = np.array([2 * ndtr(-abs(row["lead"]) / max(row["lead_error"], 1e-9)) for row in rows])
    return [row | {"p": own} for row, own in zip(rows, baselines.adjusted(p, "holm"), strict=True)]


def lost(numbers: Numbers) -> list[Numbers]:
    """Where a rival that holds its level in that kind of data is ahead of ours by two standard errors."""
    level = levels(numbers)
    ahead = [row for row in comparisons(numbers) if row["lead"] > 2 * row["lead_error"] + 1e-9]
    return [row for row in ahead if level[row["kind"], row["method"]]["holds"]]


def won(numbers: Numbers) -> list[Numbers]:
    """Where ours is ahead of a rival, whether or not that holds its level."""
    return [row for row in comparisons(numbers) if row["p"] < ALPHA and row["lead"] < 0]


def tables(numbers: Numbers) -> dict[str, str]:
    kinds = list(dict.fromkeys(row["kind"] for row in numbers["rows"]))
    level = levels(numbers)
    false = [
        [
            method,
            *(
                f"{share(level[kind, method]['claims'])}{'' if level[kind, method]['holds'] else ' **above**'}"
                for kind in kinds
            ),
        ]
        for method in METHODS
    ]
    nothing = f"false positives, {of_runs(numbers['runs_of_nothing'])}"
    losses = [
        [
            row["method"],
            f"{row['kind']}, {row['differs']}",
            "detected" if row["what"] == "claims" else "Rand index",
            f"{row[row['what']]:.2f}",
            f"{row[row['what']] - row['lead']:.2f}",
            f"{row['lead']:.2f} ± {row['lead_error']:.2f}",
            "stands" if row["p"] < ALPHA else "does not stand",
        ]
        for row in lost(numbers)
    ]
    header = [
        "ahead of ours by two standard errors, and holds α there",
        "setting",
        "in",
        "its",
        "ours",
        "lead",
        "after Holm",
    ]
    return {
        "-levels": markdown([nothing, *kinds], false),
        "": reached(numbers, kinds[:3]),
        "-data": reached(numbers, kinds[3:]),
        "-losses": markdown(header, losses),
    }


def reached(numbers: Numbers, kinds: list[str]) -> str:
    """Reported differences and Rand index of every method in all settings of some kinds."""
    places = list(
        dict.fromkeys(
            (row["kind"], row["differs"]) for row in numbers["rows"] if row["kind"] in kinds and row["differs"]
        )
    )
    by_place = {(row["kind"], row["differs"], row["method"]): row for row in numbers["rows"]}
    rows = [
        [
            method,
            *(
                f"{share(row['claims'])} ({share(row['rand_index'])})"
                for row in (by_place[*place, method] for place in places)
            ),
        ]
        for method in METHODS
    ]
    error = max(row["rand_index_error"] for row in numbers["rows"])
    header = f"share with a reported difference (adjusted Rand index), {of_runs(numbers['runs'])} (± {error:.3f})"
    return markdown([header, *(f"{kind}: {differs}" for kind, differs in places)], rows)


def facts(numbers: Numbers) -> dict[str, str]:
    level = levels(numbers)
    ours = {kind: entry for (kind, method), entry in level.items() if method == "calibrated"}
    worst = max(ours.values(), key=lambda entry: entry["claims"])["claims"] * numbers["runs_of_nothing"]
    chance = float(bdtrc(round(worst) - 1, numbers["runs_of_nothing"], ALPHA))
    broken = [key for key, entry in level.items() if not entry["holds"]]
    others = [method for method in METHODS if method != "calibrated"]
    texts = {}
    for row in numbers["rows"]:
        method, differs = (re.sub(r"\W+", "_", row[what]).lower() for what in ("method", "differs"))
        key = f"{SHORT[row['kind']]}.{differs}.{method}" if differs else f"{SHORT[row['kind']]}.{method}"
        texts[f"claims.{key}"] = share(row["claims"])
        if differs:
            texts[f"index.{key}"] = share(row["rand_index"])
    return texts | {
        "runs": str(numbers["runs"]),
        "runs_of_nothing": str(numbers["runs_of_nothing"]),
        "comparisons": str(len(comparisons(numbers))),
        "losses": str(sum(row["p"] < ALPHA for row in lost(numbers))),
        "losses_one_by_one": str(len(lost(numbers))),
        "by_chance": f"{len(comparisons(numbers)) * ndtr(-2):.0f}",
        "wins": str(len(won(numbers))),
        "level": f"{min(e['claims'] for e in ours.values()):.2f}–{max(e['claims'] for e in ours.values()):.2f}",
        "worst": f"{worst:.0f} of {numbers['runs_of_nothing']}",
        "worst_by_chance": share(chance, 3),
        "kinds": str(len(ours)),
        "hold_everywhere": ", ".join(m for m in others if not any(method == m for _, method in broken)),
        "broken_in_rows": str(sum(kind.startswith("rows") for kind, _ in broken)),
        "too_many": f"{max(row['too_many'] for row in numbers['rows'] if row['method'] == 'calibrated'):.2f}",
    }


def figure(numbers: Numbers) -> Any:
    """Ours beside the best rival that holds its level, in every setting, and the best of all others."""
    level = levels(numbers)
    values = []
    for row in numbers["rows"]:
        if row["differs"]:
            holds = level[row["kind"], row["method"]]["holds"]
            who = "ours" if row["method"] == "calibrated" else "holds its level" if holds else "does not"
            place = f"{row['kind']}: {row['differs']}"
            values.append({"setting": place, "rand_index": row["rand_index"], "who": who, "method": row["method"]})
    order = list(dict.fromkeys(value["setting"] for value in values))
    return (
        chart(values)
        .mark_point(filled=True, size=70, opacity=0.85)
        .encode(
            y=alt.Y("setting:N", sort=order, title=None, axis=alt.Axis(labelLimit=420)),
            x=alt.X("rand_index:Q", title="adjusted Rand index", scale=alt.Scale(domain=[-0.05, 1.0], nice=False)),
            color=alt.Color(
                "who:N",
                scale=alt.Scale(domain=["ours", "holds its level", "does not"], range=["#0072B2", "#E69F00", GREY]),
                legend=alt.Legend(title=None),
            ),
            shape=alt.Shape("who:N", legend=None),
        )
        .properties(width=460)
    )


STUDY = Study("settings", measure, tables, facts, figure)

if __name__ == "__main__":
    STUDY.main()
