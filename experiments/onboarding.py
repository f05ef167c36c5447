"""The paper's last figure: an onboarding experiment with a binary metric across markets, and three planted lifts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

from experiments import baselines
from experiments.common import Numbers, Run, Study, forest_plot, markdown, of_runs, share
from faultlines import simulate

if TYPE_CHECKING:
    from experiments.baselines import Fit

SEED = 0  # of the experiment in the figure; the others follow
METHODS = ["literal", "calibrated", "top merge", "holdout", "mixture, BIC", "mixture, AIC"]


def fits(seeds: range) -> dict[str, list[Fit]]:
    """All methods on the same experiments: users with a session after an email, as relative lift."""
    return baselines.fits(METHODS, [simulate.onboarding(seed).estimates for seed in seeds], seeds)


def measure(run: Run) -> Numbers:
    from sklearn.metrics import adjusted_rand_score

    seeds, step = run.either((400, 50), (20, 20))
    tasks = [range(start, start + step) for start in range(SEED, SEED + seeds, step)]
    parts = run.each("onboarding", fits, tasks)
    simulated = [simulate.onboarding(seed) for task in tasks for seed in task]
    rows = {}
    for method in METHODS:
        own = [fit for part in parts for fit in part[method]]
        pairs = list(zip(simulated, own, strict=True))
        rows[method] = {
            "clusters": float(np.mean([fit.n_clusters for fit in own])),
            "three": float(np.mean([fit.n_clusters == 3 for fit in own])),
            "rand_index": float(np.mean([adjusted_rand_score(example.truth, fit.labels) for example, fit in pairs])),
            "error": float(np.mean([np.mean((fit.effects - example.effects) ** 2) for example, fit in pairs]) ** 0.5),
            "interleaved": float(
                np.mean([baselines.interleaved(fit.labels, example.estimates.theta) for example, fit in pairs])
            ),
        }
    first = simulated[0]
    return {
        "seed": SEED,
        "experiments": seeds,
        "methods": rows,
        "example": {
            "country": list(first.estimates.labels),
            "lift": first.estimates.theta,
            "se": first.estimates.se,
            "truth": first.truth,
            "calibrated": parts[0]["calibrated"][0].labels,
            "mixture": parts[0]["mixture, BIC"][0].labels,
        },
    }


def tables(numbers: Numbers) -> dict[str, str]:
    runs = of_runs(numbers["experiments"], "experiments")
    header = [runs, "clusters", "exactly three", "adjusted Rand index", "error of a market's lift", "interleaved"]
    rows = [
        [
            method,
            f"{row['clusters']:.2f}",
            share(row["three"]),
            share(row["rand_index"]),
            f"{100 * row['error']:.2f}%",
            share(row["interleaved"]),
        ]
        for method, row in numbers["methods"].items()
    ]
    return {"": markdown(header, rows)}


def right(example: Numbers, who: str) -> int:
    """Markets in their true cluster, counted where there are as many clusters as in truth."""
    return int(np.sum(np.array(example[who]) == np.array(example["truth"])))


def facts(numbers: Numbers) -> dict[str, str]:
    example = numbers["example"]
    return {
        "experiments": f"{numbers['experiments']:,}",
        **{f"clusters_{who}": str(len(set(example[who]))) for who in ("calibrated", "mixture")},
        **{f"right_{who}": f"{right(example, who)} of {len(example['truth'])}" for who in ("calibrated", "mixture")},
        "interleaved_bic": f"{numbers['methods']['mixture, BIC']['interleaved']:.0%}",
        "interleaved_calibrated": f"{numbers['methods']['calibrated']['interleaved']:.0%}",
        **{
            f"error_{name}": f"{100 * numbers['methods'][method]['error']:.2f}"
            for name, method in (("calibrated", "calibrated"), ("bic", "mixture, BIC"))
        },
        **{
            f"rand_{name}": share(numbers["methods"][method]["rand_index"])
            for name, method in (("literal", "literal"), ("calibrated", "calibrated"), ("bic", "mixture, BIC"))
        },
    }


def figure(numbers: Numbers) -> Any:
    example = numbers["example"]

    def panel(who: str, title: str) -> Any:
        columns = (example[key] for key in ("country", "lift", "se", who))
        rows = [
            {"group": c, "estimate": x, "low": x - 1.96 * s, "high": x + 1.96 * s, "cluster": label}
            for c, x, s, label in zip(*columns, strict=True)
        ]
        return forest_plot(rows, title, "lift in users with a session, 95% interval", height=520)

    return panel("calibrated", "Ours") | panel("mixture", "Mixture, BIC")


STUDY = Study("onboarding", measure, tables, facts, figure)

if __name__ == "__main__":
    STUDY.main()
