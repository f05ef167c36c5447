"""From the paper's survey: Cochran's Q, the χ² test of homogeneity, beside ours; and penalised fixed effects."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np
from scipy.special import chdtrc

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments import baselines
from experiments.common import GREY, Numbers, Run, Study, by_method, chart, markdown, share, share_axis
from faultlines import simulate

if TYPE_CHECKING:
    from experiments.baselines import FloatArray

SEED = 1954
ALPHA = 0.05
TRUTHS = {
    "nothing differs": [0.0],
    "two halves": [0.5, 1.0, 1.5, 2.0],
    "one group apart": [2.0, 3.0, 4.0, 5.0],
    "one in ten apart": [1.0, 2.0, 3.0, 4.0],
    "every group its own effect": [0.3, 0.5, 0.7, 1.0],
}
TESTS = {"calibrated": "#0072B2", "Cochran's Q": "#D55E00"}


class Task(NamedTuple):
    groups: int
    profile: simulate.Profile
    truth: str
    size: float  # in typical standard errors
    runs: int
    fused: int  # how many of them also get penalised fixed effects

    def estimates(self, number: int) -> fl.Estimates:
        kind = [*TRUTHS].index(self.truth), ["equal", "lognormal"].index(self.profile)
        rng = np.random.default_rng([SEED, self.groups, *kind, round(10 * self.size), number])
        se = simulate.standard_errors(self.groups, self.profile, rng)
        return fl.Estimates(self.effects(rng) + se * rng.standard_normal(self.groups), se)

    def effects(self, rng: np.random.Generator) -> FloatArray:
        if self.truth == "every group its own effect":
            return self.size * rng.standard_normal(self.groups)
        shares = {"two halves": self.groups // 2, "one group apart": 1, "one in ten apart": round(self.groups / 10)}
        return np.where(np.arange(self.groups) < shares.get(self.truth, 0), self.size, 0.0)


def tested(task: Task) -> Numbers:
    estimates = [task.estimates(i) for i in range(task.runs)]
    many = fl.cluster_many(
        {f"{i}": one for i, one in enumerate(estimates)}, guarantee=fl.Calibrated(draws=499, scan=False), seed=SEED
    )
    weighted = [(one.theta, 1 / one.se**2) for one in estimates]
    q = [np.sum(w * (t - np.average(t, weights=w)) ** 2) for t, w in weighted]
    fits = [baselines.fused_effects(one.theta, one.se) for one in estimates[: task.fused]]
    plain = [baselines.fused_effects(one.theta, one.se, adaptive=False) for one in estimates[: task.fused]]
    return {
        "groups": task.groups,
        "profile": task.profile,
        "truth": task.truth,
        "size": task.size,
        "calibrated": float(np.mean(many.log_pvalues < np.log(ALPHA))),
        "Cochran's Q": float(np.mean(chdtrc(task.groups - 1, q) < ALPHA)),
        "fused": float(np.mean([fit.n_clusters > 1 for fit in fits])),
        "fused_clusters": float(np.mean([fit.n_clusters for fit in fits])),
        "fused_plain": float(np.mean([fit.n_clusters > 1 for fit in plain])),
        "fused_plain_clusters": float(np.mean([fit.n_clusters for fit in plain])),
    }


def measure(run: Run) -> Numbers:
    runs, fused = run.either((1000, 100), (60, 10))
    tasks = [
        Task(groups, profile, truth, size, runs, fused)
        for groups in (102, 21)
        for profile in ("equal", "lognormal")
        for truth, sizes in TRUTHS.items()
        for size in (sizes if not run.quick else sizes[:2])
    ]
    rows = run.each("homogeneity", tested, tasks)
    return {"seed": SEED, "runs": runs, "runs_of_fused": fused, "alpha": ALPHA, "rows": rows}


def tables(numbers: Numbers) -> dict[str, str]:
    def name(row: Numbers) -> str:
        return str(row["truth"]) + (f", {row['size']:g} se" if row["size"] else "")

    kinds = [(k, profile) for k in (21, 102) for profile in ("equal", "lognormal")]
    by_place = {(row["groups"], row["profile"], name(row)): row for row in numbers["rows"]}
    names = list(dict.fromkeys(name(row) for row in numbers["rows"]))
    power = [
        [what, *(f"{by_place[*kind, what]['calibrated']:.2f} / {by_place[*kind, what][_Q]:.2f}" for kind in kinds)]
        for what in names
    ]
    fused = [
        [
            what,
            *(
                f"{share(by_place[*kind, what][key])} ({by_place[*kind, what][f'{key}_clusters']:.1f})"
                for key in ("fused", "fused_plain")
                for kind in kinds
                if kind[1] == "equal"
            ),
        ]
        for what in names
    ]
    return {
        "": markdown(["ours / Cochran's Q", *(f"K = {k}, {profile} se" for k, profile in kinds)], power),
        "-fused": markdown(
            ["share with clusters (how many)", "adaptive, K = 21", "K = 102", "plain, K = 21", "K = 102"], fused
        ),
    }


_Q = "Cochran's Q"


def facts(numbers: Numbers) -> dict[str, str]:
    made = {"runs": f"{numbers['runs']:,}", "runs_of_fused": str(numbers["runs_of_fused"])}
    for truth in TRUTHS:
        own = [row for row in numbers["rows"] if row["truth"] == truth]
        lead = [row["calibrated"] - row[_Q] for row in own]
        key = truth.replace(" ", "_")
        made |= {f"most_ahead_{key}": f"{max(lead):.2f}", f"most_behind_{key}": f"{-min(lead):.2f}"}
    level = [row for row in numbers["rows"] if row["truth"] == "nothing differs"]
    for test in TESTS:
        rates = [row[test] for row in level]
        made[f"level_{'ours' if test == 'calibrated' else 'q'}"] = f"{min(rates):.3f}–{max(rates):.3f}"
    for key in ("fused", "fused_plain"):
        made[f"{key}_null"] = " and ".join(share(r[key]) for r in reversed(level) if r["profile"] == "equal")
    return made


def figure(numbers: Numbers) -> Any:
    def panel(truth: str) -> Any:
        values = [
            {"size": row["size"], "rejected": row[test], "method": test, "K": f"K = {row['groups']}"}
            for row in numbers["rows"]
            if row["truth"] == truth and row["profile"] == "equal"
            for test in TESTS
        ]
        lines = (
            chart(values)
            .mark_line(point=alt.OverlayMarkDef(size=28))
            .encode(
                x=alt.X("size:Q", title="standard errors", axis=alt.Axis(values=TRUTHS[truth])),
                y=share_axis("rejected", "share rejected, α = 0.05"),
                color=by_method(list(TESTS), TESTS)["color"],
                strokeDash=alt.StrokeDash("K:N", legend=alt.Legend(title=None), sort=["K = 21", "K = 102"]),
            )
        )
        rule = chart([{"rejected": ALPHA}]).mark_rule(color=GREY, strokeDash=[2, 3]).encode(y="rejected:Q")
        return (rule + lines).properties(width=300, height=200, title=truth)

    first, second, third, fourth = (panel(truth) for truth in [*TRUTHS][1:])
    return (first | second) & (third | fourth)


STUDY = Study("homogeneity", measure, tables, facts, figure)

if __name__ == "__main__":
    STUDY.main()
