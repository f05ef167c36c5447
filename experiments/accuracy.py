"""How well are planted clusters found? Adjusted Rand index, number of clusters and detection, for all methods."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import numpy as np
from scipy.special import bdtrc, ndtr

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

from experiments import baselines
from experiments.common import Numbers, Run, Study, by_method, chart, markdown, of_runs, share, share_axis
from faultlines import simulate

SEED = 7
ON_A_LINE = ("optimal partition, BIC", "k-means, silhouette", "CHAID-style merging", "fused effects")
METHODS = [
    *("literal", "calibrated", "calibrated, not refined", "top merge", "holdout"),
    *("mixture, BIC", "mixture, AIC"),
    *ON_A_LINE,
    *baselines.RIVALS,
]
OTHERS = [method for method in METHODS if method not in baselines.RIVALS]
SLOW = ("rank sets", baselines.BY_RATIO)
CLOSEST = ("calibrated", "top merge", "mixture, BIC", "Scott–Knott, unequal precision")  # shown kind by kind
ALPHA = 0.05
RIVALS_APART = [0.0, 1.0, 2.0, 4.0]  # at which those that came before are tried
APART = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0]  # typical standard errors between clusters; 0: nothing to find


class Cell(NamedTuple):
    """One kind of truth."""

    groups: int
    profile: simulate.Profile
    clusters: int
    apart: float

    def simulated(self, number: int) -> simulate.Simulated:
        sizes = [len(part) for part in np.array_split(np.arange(self.groups), self.clusters)]
        effects = [self.apart * i for i in range(self.clusters)]
        if self.apart == 0:
            effects, sizes = [0.0], [self.groups]
        kind = ["equal", "lognormal"].index(self.profile)
        rng = np.random.default_rng([SEED, self.groups, kind, self.clusters, round(10 * self.apart), number])
        return simulate.planted(effects, sizes, profile=self.profile, seed=rng)


class Score(NamedTuple):
    rand_index: float
    clusters: int


class Task(NamedTuple):
    cell: Cell
    numbers: range
    methods: tuple[str, ...]


def scores(task: Task) -> dict[str, list[Score]]:
    """All methods on the same data sets of one kind."""
    from sklearn.metrics import adjusted_rand_score

    simulated = [task.cell.simulated(i) for i in task.numbers]
    fits = baselines.fits(task.methods, [example.estimates for example in simulated], task.numbers)
    return {
        method: [
            Score(float(adjusted_rand_score(example.truth, fit.labels)), fit.n_clusters)
            for example, fit in zip(simulated, fits[method], strict=True)
        ]
        for method in task.methods
    }


def measure(run: Run) -> Numbers:
    runs, some, few, step = run.either((200, 60, 20, 20), (4, 2, 2, 2))
    cells = [
        Cell(groups, profile, clusters, apart)
        for groups in (102, 21)
        for profile in ("equal", "lognormal")
        for clusters in (2, 3)
        for apart in run.either(APART, [0.0, 2.0, 4.0])
        if apart or clusters == 2
    ]

    def seen(cell: Cell, method: str) -> int:
        """How many data sets a method sees: rivals some of those with two halves, slow ones few of 21 groups."""
        if method not in baselines.RIVALS:
            return runs
        if cell.clusters == 3 or cell.apart not in RIVALS_APART or (method in SLOW and cell.groups > 21):
            return 0
        return few if method in SLOW else some

    tasks = [
        Task(cell, range(start, start + step), tuple(method for method in METHODS if start < seen(cell, method)))
        for cell in cells
        for start in range(0, runs, step)
    ]
    by_cell: dict[Cell, dict[str, list[Score]]] = {cell: {} for cell in cells}
    for task, part in zip(tasks, run.each("accuracy", scores, tasks), strict=True):
        for method, own in part.items():
            by_cell[task.cell].setdefault(method, []).extend(own)
    rows = [
        cell._asdict() | {"method": method} | compared(own, scored["calibrated"])
        for cell, scored in by_cell.items()
        for method, own in scored.items()
    ]
    return {"seed": SEED, "data_sets": runs, "cells": len(cells), "rows": rows}


def compared(own: list[Score], ours: list[Score]) -> Numbers:
    """What a method reached, and by how much it leads ours on the same data sets, so that the error is small."""
    index = np.array([score.rand_index for score in own])
    lead = index - np.array([score.rand_index for score in ours[: len(own)]])
    return {
        "runs": len(own),
        "rand_index": float(index.mean()),
        "rand_error": float(index.std() / np.sqrt(index.size)),
        "lead": float(lead.mean()),
        "lead_error": float(lead.std() / np.sqrt(lead.size)),
        "n_clusters": float(np.mean([score.clusters for score in own])),
        "detected": float(np.mean([score.clusters > 1 for score in own])),
    }


def comparisons(numbers: Numbers) -> list[Numbers]:
    """All comparisons with ours where there is something to find, each with its p, adjusted for all by Holm."""
    real = [row for row in numbers["rows"] if row["method"] != "calibrated" and row["apart"] > 0]
    p = [2 * ndtr(-abs(row["lead"]) / max(row["lead_error"], 1e-9)) for row in real]
    return [row | {"p": own} for row, own in zip(real, baselines.adjusted(np.array(p), "holm"), strict=True)]


def wins(numbers: Numbers, method: str) -> tuple[list[Numbers], list[Numbers]]:
    """Kinds of truth in which a method is ahead of calibrated, and behind it, all comparisons considered."""
    own = [row for row in comparisons(numbers) if row["method"] == method and row["p"] < ALPHA]
    return [row for row in own if row["lead"] > 0], [row for row in own if row["lead"] < 0]


def false_claims(numbers: Numbers, method: str) -> float:
    """The largest share of data sets with a false positive, over the kinds of standard errors."""
    return max(float(row["detected"]) for row in numbers["rows"] if row["method"] == method and row["apart"] == 0)


def holds(numbers: Numbers, method: str) -> bool:
    """Whether a method's false positives are compatible with α, for all methods and kinds together (Bonferroni)."""
    nothing = [row for row in numbers["rows"] if row["apart"] == 0]
    return all(
        bdtrc(round(row["detected"] * row["runs"]) - 1, row["runs"], ALPHA) * len(nothing) > ALPHA
        for row in nothing
        if row["method"] == method and row["detected"] > 0
    )


def mean_of(numbers: Numbers, what: str, method: str, **kind: Any) -> float:
    own = [
        row[what]
        for row in numbers["rows"]
        if row["method"] == method and all(row[key] == value for key, value in kind.items())
    ]
    return float(np.mean(own)) if own else math.nan


def described(row: Numbers) -> str:
    return f"K = {row['groups']}, {row['clusters']} clusters {row['apart']:g} se apart, {row['profile']} se"


def tables(numbers: Numbers) -> dict[str, str]:
    apart = sorted({row["apart"] for row in numbers["rows"]})
    places, faint = ([(k, gap) for k in (21, 102) for gap in gaps] for gaps in (apart[1:], apart[:3]))
    by_gap = [
        [method, *(share(mean_of(numbers, "rand_index", method, groups=k, apart=gap)) for k, gap in places)]
        for method in OTHERS
    ]
    counts = [
        [
            method,
            *(share(mean_of(numbers, "detected", method, groups=k, apart=gap)) for k, gap in faint),
            *(
                f"{mean_of(numbers, 'n_clusters', method, groups=k, apart=apart[-1], clusters=3):.1f}"
                for k in (21, 102)
            ),
        ]
        for method in OTHERS
    ]
    kinds = sorted({(row["groups"], row["profile"], row["clusters"]) for row in numbers["rows"] if row["apart"] > 0})
    by_kind = [
        [
            f"K = {k}, {profile} se, {clusters} clusters",
            *(
                " / ".join(share(mean_of(numbers, "rand_index", method, **place, apart=gap)) for method in CLOSEST)
                for gap in apart[1:]
            ),
        ]
        for k, profile, clusters in kinds
        for place in [{"groups": k, "profile": profile, "clusters": clusters}]
    ]
    gaps, seen = (
        [f"K = {k}: {gap:g} se" if gap == own[0][1] else f"{gap:g} se" for k, gap in own] for own in (places, faint)
    )
    most_apart = f"clusters found of 3, {apart[-1]:g} se"
    index_error = max(row.get("rand_error", 0.0) for row in numbers["rows"] if row["method"] == "calibrated")
    of_each = f"adjusted Rand index, {numbers['data_sets']} data sets of each kind, ours ± {index_error:.3f} at most"
    return {
        "": markdown([of_each, *gaps], by_gap),
        "-kinds": markdown(
            [f"{' / '.join(CLOSEST)}, ours ± {index_error:.3f} at most", *(f"{gap:g} se" for gap in apart[1:])], by_kind
        ),
        "-detection": markdown(
            [
                f"share with a reported difference, {of_runs(numbers['data_sets'])} in each kind",
                *seen,
                f"{most_apart}, K = 21",
                f"{most_apart}, K = 102",
            ],
            counts,
        ),
        "-rivals": before(numbers),
        "-wins": against_ours(numbers),
    }


def before(numbers: Numbers) -> str:
    """Ours and the rivals on the same data sets, two halves of the groups."""
    rivals = {(row["method"], row["groups"], row["profile"], row["apart"]): row for row in numbers["rows"]}
    fast = [method for method in baselines.RIVALS if method not in SLOW]
    measured = {row["apart"] for row in numbers["rows"]}  # a sketch has fewer
    gaps = [gap for gap in RIVALS_APART[1:] if gap in measured]
    places = [(k, profile, gap) for k in (21, 102) for profile in ("equal", "lognormal") for gap in gaps]
    rivals = {key: row for key, row in rivals.items() if key[0] in baselines.RIVALS}
    some = rivals[fast[0], *places[0]]["runs"]
    ours = [rivals[fast[0], *place]["rand_index"] - rivals[fast[0], *place]["lead"] for place in places]
    rows = [["calibrated", *(share(value) for value in ours), str(some)]]
    for method in baselines.RIVALS:
        cells = [rivals.get((method, *place)) for place in places]
        runs = next(str(cell["runs"]) for cell in cells if cell)
        rows.append([method, *(share(cell["rand_index"]) if cell else "–" for cell in cells), runs])
    error = max(row["rand_error"] for (method, *_), row in rivals.items() if method in fast)
    header = [f"K = {k}, {profile} se: {gap:g} se" for k, profile, gap in places]
    return markdown([f"adjusted Rand index, two halves, ± {error:.2f} at most", *header, "data sets"], rows)


def against_ours(numbers: Numbers) -> str:
    """Who is ahead of ours and behind it, and who controls the error rate."""
    rows = []
    for method in METHODS:
        if method == "calibrated":
            continue
        ahead, behind = wins(numbers, method)
        best = max(ahead, key=lambda row: row["lead"], default=None)
        most = f"{best['lead']:.2f} ± {best['lead_error']:.2f}: {described(best)}" if best else "–"
        runs = next(row["runs"] for row in numbers["rows"] if row["method"] == method)
        kinds = sum(row["method"] == method and row["apart"] > 0 for row in numbers["rows"])
        claims = f"{share(false_claims(numbers, method))}{'' if holds(numbers, method) else ', **above α**'}"
        rows.append([method, f"{kinds} of {runs}", claims, str(len(ahead)), str(len(behind)), most])
    header = [
        f"against calibrated, p < {ALPHA:g} after Holm over {len(comparisons(numbers))} comparisons",
        *("kinds of data sets", "false positives, at most", "ahead", "behind", "largest lead"),
    ]
    return markdown(header, rows)


def lost(numbers: Numbers) -> list[Numbers]:
    """Where a rival that holds its level is ahead of ours."""
    rivals = [method for method in METHODS if not method.startswith("calibrated") and holds(numbers, method)]
    return [row for method in rivals for row in wins(numbers, method)[0]]


def facts(numbers: Numbers) -> dict[str, str]:
    real = len({(r["groups"], r["profile"], r["clusters"], r["apart"]) for r in numbers["rows"] if r["apart"] > 0})
    texts = {
        "data_sets": str(numbers["data_sets"]),
        "cells": str(real),
        "by_chance": f"{real * ndtr(-2):.1f}",
        "comparisons": str(len(comparisons(numbers))),
        "losses": str(len(lost(numbers))),
        "lost": "; ".join(f"{row['method']} by {row['lead']:.2f} ({described(row)})" for row in lost(numbers))
        or "nowhere",
        "hold": ", ".join(method for method in METHODS if holds(numbers, method)),
        "do_not_hold": ", ".join(method for method in METHODS if not holds(numbers, method)),
    }
    far = max(row["apart"] for row in numbers["rows"])
    for method in ("calibrated", "top merge"):
        extra = [r["n_clusters"] - r["clusters"] for r in numbers["rows"] if (r["method"], r["apart"]) == (method, far)]
        texts[f"extra_{method.replace(' ', '_')}"] = f"{np.mean(extra):.3f}"
    for key, method in (
        ("bic", "mixture, BIC"),
        ("aic", "mixture, AIC"),
        ("not_refined", "calibrated, not refined"),
        ("top_merge", "top merge"),
        ("holdout", "holdout"),
        ("kmeans", "k-means, silhouette"),
        ("optimal", "optimal partition, BIC"),
        ("chaid", "CHAID-style merging"),
        ("fused", "fused effects"),
        ("literal", "literal"),
        *((re.sub(r"\W+", "_", method).lower(), method) for method in baselines.RIVALS),
    ):
        ahead, behind = wins(numbers, method)
        texts |= {f"{key}_ahead": str(len(ahead)), f"{key}_behind": str(len(behind))}
        one_by_one = [
            row["lead"]
            for row in comparisons(numbers)
            if row["method"] == method and row["lead"] > 2 * row["lead_error"] + 1e-9
        ]
        texts[f"{key}_ahead_one_by_one"] = str(len(one_by_one))
        texts[f"{key}_lead_one_by_one"] = f"{max(one_by_one, default=0):.2f}"
        texts[f"{key}_lead"] = f"{max((row['lead'] for row in ahead), default=0):.2f}"
        texts[f"{key}_null_102"] = share(mean_of(numbers, "detected", method, groups=102, apart=0.0))
        texts[f"{key}_null_21"] = share(mean_of(numbers, "detected", method, groups=21, apart=0.0))
    return texts


def figure(numbers: Numbers) -> Any:
    drawn = ["calibrated", "top merge", "literal", "holdout", "mixture, BIC", *ON_A_LINE]
    others = dict(zip(ON_A_LINE, ("#000000", "#E69F00", "#8A8A8A", "#CC79A7"), strict=True))

    def panel(groups: int, profile: str, width: int = 330) -> Any:
        own = [
            row
            for row in numbers["rows"]
            if (row["groups"], row["profile"], row["clusters"]) == (groups, profile, 2)
            and row["method"] in drawn
            and row["apart"] > 0
        ]
        return (
            chart(own, f"K = {groups}, {profile} standard errors")
            .mark_line(point=alt.OverlayMarkDef(size=25))
            .encode(
                x=alt.X("apart:Q", title="standard errors between two halves", axis=alt.Axis(values=APART[1:])),
                y=share_axis("rand_index", "adjusted Rand index"),
                **by_method(drawn, others),
            )
            .properties(width=width, height=220)
        )

    return (panel(21, "equal") | panel(21, "lognormal")) & (panel(102, "equal") | panel(102, "lognormal"))


STUDY = Study("accuracy", measure, tables, facts, figure)

if __name__ == "__main__":
    STUDY.main()
