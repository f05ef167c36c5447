"""Run time on the paper's example, all methods one after the other in one run. Times differ from machine to machine."""

from __future__ import annotations

import sys
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from benchmarks.timing import seconds
from experiments import baselines
from experiments.common import COLOURS, GREY, Numbers, Run, Study, chart, logarithmic, markdown, show_progress, times
from experiments.power import experiment

if TYPE_CHECKING:
    from collections.abc import Callable

    from faultlines.results import Clustering

SEED = 27
MU = 0.2


def measure(run: Run) -> Numbers:
    """The shortest of several runs of each method, on the same rows or on their estimates."""
    example = experiment(MU, [SEED])
    theta, se = example.estimates.theta, example.estimates.se
    seeds = count()  # another one every time: draws that are kept from the last time are not what is measured

    def anew(guarantee: fl.Calibrated | fl.Holdout) -> Clustering:
        return fl.cluster(example.estimates, guarantee=guarantee, seed=next(seeds))

    def rival(method: str) -> dict[str, list[baselines.Fit]]:
        return baselines.fits([method], [example.estimates], [next(seeds)])

    work: dict[str, Callable[[], object]] = {
        "literal": partial(fl.cluster, example.estimates, guarantee="bonferroni", refine=False),
        "calibrated": partial(anew, fl.Calibrated()),
        "top merge": partial(anew, fl.Calibrated(scan=False)),
        "holdout": partial(anew, fl.Holdout(splits=1)),
        "mixture, BIC": partial(baselines.mixtures, [example.estimates], ["bic"]),
        "optimal partition, BIC": partial(baselines.optimal_partition, theta, se),
        "k-means, silhouette": partial(baselines.kmeans, theta, se),
        "CHAID-style merging": partial(baselines.chaid, theta, se),
        "fused effects": partial(baselines.fused_effects, theta, se),
    }
    for method in (*baselines.RIVALS, *baselines.EFFECTS[1:]):
        work[method] = partial(rival, method)
    for method, tree in baselines.TREES.items():
        if baselines.is_installed(tree.package):
            work[method] = partial(baselines.tree, method, example.rows, theta, 0)
    took = {}
    for method, fit in work.items():
        fit()  # imports and caches are not what is measured
        took[method] = seconds(fit, least=run.either(1.0, 0.1))
        show_progress("run time", len(took), len(work))
    missing = [method for method in baselines.TREES if method not in took]
    return {"seed": SEED, "mu": MU, "not_installed": missing, "seconds": took}


def tables(numbers: Numbers) -> dict[str, str]:
    took = numbers["seconds"]
    rows = [
        [method, f"{1000 * own:,.2f}", times(own / took["literal"]), times(own / took["calibrated"])]
        for method, own in took.items()
    ]
    rows += [[method, "not installed", "", ""] for method in numbers["not_installed"]]
    return {"": markdown(["", "milliseconds", "to literal", "to calibrated"], rows)}


def facts(numbers: Numbers) -> dict[str, str]:
    took = numbers["seconds"]
    return {
        "literal": f"{1000 * took['literal']:.2f} ms",
        "calibrated": f"{1000 * took['calibrated']:.0f} ms",
        "top_merge": f"{1000 * took['top merge']:.0f} ms",
    } | {
        f"{name}_to_{base}": times(took[method] / took[base]) if method in took else "(not installed)"
        for name, method in (("tree", "causal tree, one-hot"), ("forest", "honest forest, encoded"))
        for base in ("literal", "calibrated")
    }


def figure(numbers: Numbers) -> Any:
    values = [
        {
            "method": method,
            "ms": 1000 * own,
            "label": f"{1000 * own:,.2g} ms" if own < 0.1 else f"{1000 * own:,.0f} ms",
            "colour": COLOURS.get(method, GREY),
        }
        for method, own in numbers["seconds"].items()
    ]
    base = chart(values).encode(
        y=alt.Y("method:N", sort=[value["method"] for value in values], title=None, axis=alt.Axis(labelLimit=300)),
        x=alt.X(**logarithmic("ms", "milliseconds, log scale", [0.1, 1, 10, 100, 1000, 10_000])),
    )
    dots = base.mark_point(filled=True, size=90, opacity=1).encode(color=alt.Color("colour:N", scale=None))
    return (dots + base.mark_text(align="left", dx=9, fontSize=11).encode(text="label:N")).properties(width=480)


STUDY = Study("runtime", measure, tables, facts, figure)

if __name__ == "__main__":
    STUDY.main()
