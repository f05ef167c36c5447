"""The paper's fourth and fifth figures: the Gaussian mixture beside ours, on A/A experiments and where clusters are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments import baselines
from experiments.common import Numbers, Run, Study, forest_plot, markdown, of_runs, share
from experiments.false_positives import GROUPS, PROFILES, Nulls, a_a_experiments
from faultlines import simulate

if TYPE_CHECKING:
    from experiments.baselines import Fit

SEED = 45
EFFECTS, SIZES = (-4.0, 0.0, 4.0), (7, 7, 7)


class Planted(NamedTuple):
    """Data sets with three clusters that are there."""

    profile: simulate.Profile
    numbers: range

    def simulated(self) -> list[simulate.Simulated]:
        place = [*PROFILES].index(self.profile)
        return [
            simulate.planted(EFFECTS, SIZES, profile=self.profile, seed=np.random.default_rng([SEED, place, i]))
            for i in self.numbers
        ]


class Found(NamedTuple):
    mixture: list[Fit]
    calibrated: list[Fit]
    interleaved: list[tuple[bool, bool]]  # the mixture's clusters, ours


def found(task: Planted) -> Found:
    estimates = [example.estimates for example in task.simulated()]
    mixed = baselines.mixtures(estimates, ["bic"])["bic"]
    many = fl.cluster_many({f"{i}": groups for i, groups in enumerate(estimates)}, seed=task.numbers.start)
    # Each on its own here, at α: what many experiments together would claim is another question.
    own = [baselines.ours(many[name].at(0.05)) for name in many]
    crossed = [
        (baselines.interleaved(a.labels, groups.theta), baselines.interleaved(b.labels, groups.theta))
        for a, b, groups in zip(mixed, own, estimates, strict=True)
    ]
    return Found(mixed, own, crossed)


def measure(run: Run) -> Numbers:
    sets, step = run.either((1000, 250), (100, 100))
    where = [Planted(profile, range(start, start + step)) for profile in PROFILES for start in range(0, sets, step)]
    rows: dict[str, dict[str, float]] = {}
    results = dict(zip(where, run.each("three clusters", found, where), strict=True))
    example: Numbers = {}
    for profile in PROFILES:
        own = [(task, outcome) for task, outcome in results.items() if task.profile == profile]
        mixed, calibrated, crossed = (
            [value for _, outcome in own for value in getattr(outcome, part)]
            for part in ("mixture", "calibrated", "interleaved")
        )
        several = [pair[0] for pair, fit in zip(crossed, mixed, strict=True) if fit.n_clusters > 1]
        rows[profile] = {
            "mixture_claims": len(several) / sets,
            "mixture_interleaves": float(np.mean(several)) if several else 0.0,
            "mixture_clusters": float(np.mean([fit.n_clusters for fit in mixed])),
            "calibrated_claims": float(np.mean([fit.n_clusters > 1 for fit in calibrated])),
            "calibrated_interleaves": float(np.mean([pair[1] for pair in crossed])),
            "calibrated_clusters": float(np.mean([fit.n_clusters for fit in calibrated])),
        }
        if profile == "lognormal":
            example = first_example(own)
    return {
        "seed": SEED,
        "data_sets": sets,
        "effects": list(EFFECTS),
        "sizes": list(SIZES),
        "interleaving": rows,
        "agreement": {profile: agreement(run, profile) for profile in PROFILES},
        "example": example,
    }


def agreement(run: Run, profile: simulate.Profile) -> Numbers:
    """A/A experiments in which the mixture has clusters, and how many of them ours has at a level as strict."""
    judged = a_a_experiments(run, profile)
    mixed = np.array([fit.n_clusters > 1 for fit in judged.mixtures["bic"]])
    rejected = int(mixed.sum())
    numbers: Numbers = {"experiments": mixed.size, "mixture": rejected}
    for name in ("literal", "calibrated"):
        p = judged.pvalues[name]
        level = float(np.sort(p)[rejected - 1]) if rejected else 0.0
        numbers[name] = {"level": level, "both": int(np.sum(mixed & (p <= level)))}
        numbers[name] |= {"both_at_0.001": int(np.sum(mixed & (p < 0.001))), "at_0.001": int(np.sum(p < 0.001))}
    crossed = [
        baselines.interleaved(fit.labels, estimates.theta)
        for fit, estimates in zip(
            judged.mixtures["bic"], Nulls(GROUPS, profile, range(mixed.size)).estimates(), strict=True
        )
        if fit.n_clusters > 1
    ]
    return numbers | {"interleaved": sum(crossed)}


def first_example(own: list[tuple[Planted, Found]]) -> Numbers:
    """The first data set in which both find all clusters and only the mixture's interleave."""
    for task, outcome in own:
        for example, mixed, ours, crossed in zip(task.simulated(), *outcome, strict=True):
            if crossed == (True, False) and mixed.n_clusters == ours.n_clusters == len(EFFECTS):
                return {
                    "theta": example.estimates.theta,
                    "se": example.estimates.se,
                    "truth": example.truth,
                    "mixture": mixed.labels,
                    "calibrated": ours.labels,
                }
    return {}


def tables(numbers: Numbers) -> dict[str, str]:
    interleaving = [
        [
            PROFILES[profile],
            *(share(row[f"{who}_{what}"]) for what in ("claims", "interleaves") for who in ("mixture", "calibrated")),
            *(f"{row[f'{who}_clusters']:.2f}" for who in ("mixture", "calibrated")),
        ]
        for profile, row in numbers["interleaving"].items()
    ]
    agreeing = [
        [
            PROFILES[profile],
            f"{row['mixture']} of {row['experiments']:,}",
            *(f"{row[who]['both']}, at α = {row[who]['level']:.2g}" for who in ("literal", "calibrated")),
            str(row["interleaved"]),
        ]
        for profile, row in numbers["agreement"].items()
    ]
    runs = f"three clusters, {of_runs(numbers['data_sets'])}"
    header = [runs, "mixture: reported", "ours", "mixture interleaves", "ours", "mixture's clusters", "ours"]
    return {
        "": markdown(header, interleaving),
        "-agreement": markdown(
            [
                "A/A experiments",
                "mixture: reported",
                "of these also literal",
                "also calibrated",
                "interleaved",
            ],
            agreeing,
        ),
    }


def facts(numbers: Numbers) -> dict[str, str]:
    lognormal = numbers["agreement"]["lognormal"]
    return {
        "claims": f"{lognormal['mixture']} of {lognormal['experiments']:,}",
        "both": f"{lognormal['calibrated']['both']}",
        "interleaved_alike": f"{lognormal['interleaved']}",
        "level_literal": f"{lognormal['literal']['level']:.2g}",
        "level": f"{lognormal['calibrated']['level']:.2g}",
        "data_sets": f"{numbers['data_sets']:,}",
        **{
            f"interleaves_{profile}": f"{row['mixture_interleaves']:.0%}"
            for profile, row in numbers["interleaving"].items()
        },
        **{
            f"ours_interleave_{profile}": f"{row['calibrated_interleaves']:.1%}"
            for profile, row in numbers["interleaving"].items()
        },
    }


def figure(numbers: Numbers) -> Any:
    example = numbers["example"]

    def panel(who: str, title: str) -> Any:
        rows = [
            {"group": f"group {i + 1}", "estimate": t, "low": t - 1.96 * s, "high": t + 1.96 * s, "cluster": label}
            for i, (t, s, label) in enumerate(zip(example["theta"], example["se"], example[who], strict=True))
        ]
        return forest_plot(rows, title, "effect, with 95% interval", height=330)

    return panel("calibrated", "Ours: two cut-offs") | panel("mixture", "Mixture: clusters that interleave")


STUDY = Study("mixture", measure, tables, facts, figure)

if __name__ == "__main__":
    STUDY.main()
