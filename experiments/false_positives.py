"""The paper's third figure: false positives in A/A experiments along α, and the one it lacks: along K."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np

from faultlines.types import FloatArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments import baselines
from experiments.common import (
    GREY,
    Numbers,
    Run,
    Study,
    by_method,
    chart,
    logarithmic,
    markdown,
    of_runs,
    share,
    share_axis,
)
from faultlines import simulate

if TYPE_CHECKING:
    from experiments.baselines import Fit

SEED = 2218
EXPERIMENTS, GROUPS = 2218, 21  # as many as in the paper
LEVELS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5]
SIZES = [2, 5, 10, 21, 50, 102, 200, 500]
PROFILES: dict[simulate.Profile, str] = {
    "lognormal": "sizes as unequal as countries' (lognormal)",
    "zipf": "sizes that fall like 1/rank",
    "equal": "equal sizes",
}
GUARANTEES: dict[str, fl.Bonferroni | fl.Calibrated | fl.Holdout] = {
    "literal": fl.Bonferroni(),
    "calibrated": fl.Calibrated(),
    "top merge": baselines.TOP_MERGE,
    "holdout": fl.Holdout(splits=1),
}
METHODS = [*GUARANTEES, "mixture, BIC", "mixture, AIC"]


class Nulls(NamedTuple):
    """Experiments in which nothing differs."""

    groups: int
    profile: simulate.Profile
    numbers: range

    def estimates(self) -> list[fl.Estimates]:
        def one(i: int) -> fl.Estimates:
            return simulate.null(
                self.groups,
                profile=self.profile,
                seed=np.random.default_rng([SEED, self.groups, [*PROFILES].index(self.profile), i]),
            ).estimates

        return [one(i) for i in self.numbers]


class Judged(NamedTuple):
    """The p of every experiment by each guarantee, what the mixtures make of it, and which rivals reject."""

    pvalues: dict[str, FloatArray]
    mixtures: dict[baselines.Criterion, list[Fit]]
    claims: dict[str, list[bool]]


def judged(task: tuple[Nulls, bool, tuple[str, ...]]) -> Judged:
    """All methods on the same experiments; mixtures only when asked, for they take long where there are many groups."""
    nulls, with_mixtures, rivals = task
    estimates = nulls.estimates()
    named = {f"{i}": groups for i, groups in zip(nulls.numbers, estimates, strict=True)}
    # Experiments of one task share their draws; another seed for every task, so that not all of them do.
    seed = nulls.numbers.start
    pvalues = {
        name: np.exp(fl.cluster_many(named, guarantee=guarantee, seed=seed).log_pvalues)
        for name, guarantee in GUARANTEES.items()
    }
    fits = baselines.fits(rivals, estimates, nulls.numbers)
    claims = {name: [fit.n_clusters > 1 for fit in fits] for name, fits in fits.items()}
    return Judged(pvalues, baselines.mixtures(estimates) if with_mixtures else {}, claims)


def rivals_on(nulls: Nulls, some: int, most: int = 720) -> tuple[str, ...]:
    """Rivals that see these experiments: not all of them, and the slow ones only some, and none of very many groups."""
    if nulls.numbers.stop > most:
        return ()
    slow = (baselines.BY_RATIO,) if nulls.groups <= GROUPS else ("rank sets", baselines.BY_RATIO)
    left_out = () if nulls.numbers.stop <= some and nulls.groups <= 102 else slow
    return tuple(rival for rival in baselines.RIVALS if rival not in left_out)


def chunks(groups: int, profile: simulate.Profile, runs: int, size: int) -> list[Nulls]:
    return [Nulls(groups, profile, range(start, min(start + size, runs))) for start in range(0, runs, size)]


@cache
def a_a_experiments(run: Run, profile: simulate.Profile) -> Judged:
    """The paper's 2,218 A/A experiments; the mixture study reads the same ones."""
    tasks = [
        (nulls, True, rivals_on(nulls, run.either(120, 60)))
        for nulls in chunks(GROUPS, profile, run.either(EXPERIMENTS, 120), run.either(120, 60))
    ]
    return joined(run.each(f"A/A experiments, {profile}", judged, tasks))


def joined(parts: list[Judged]) -> Judged:
    pvalues = {name: np.concatenate([part.pvalues[name] for part in parts]) for name in parts[0].pvalues}
    criteria = {criterion for part in parts for criterion in part.mixtures}
    mixtures = {c: [fit for part in parts for fit in part.mixtures.get(c, [])] for c in sorted(criteria)}
    rivals = {name for part in parts for name in part.claims}
    claims = {name: [claim for part in parts for claim in part.claims.get(name, [])] for name in sorted(rivals)}
    return Judged(pvalues, mixtures, claims)


def claimed(fits: list[Fit]) -> float:
    return float(np.mean([fit.n_clusters > 1 for fit in fits]))


def measure(run: Run) -> Numbers:
    along_alpha, mixture_rates, rival_rates = [], {}, {}
    for profile in PROFILES:
        outcomes = a_a_experiments(run, profile)
        along_alpha += [
            {"profile": profile, "method": name, "alpha": alpha, "rate": float(np.mean(p < alpha))}
            for name, p in outcomes.pvalues.items()
            for alpha in LEVELS
        ]
        mixture_rates[profile] = {f"mixture, {c.upper()}": claimed(fits) for c, fits in outcomes.mixtures.items()}
        rival_rates[profile] = {
            m: {"rate": float(np.mean(own)), "runs": len(own)} for m, own in outcomes.claims.items()
        }
    runs, some, slow = run.either((1000, 200, 50), (30, 30, 30))
    tasks = [
        (nulls, nulls.numbers.stop <= some, rivals_on(nulls, slow, some))
        for groups in run.either(SIZES, [2, 10, 50])
        for profile in ("equal", "lognormal")
        for nulls in chunks(groups, profile, runs, run.either(50, 30))
    ]
    tasks.sort(key=lambda task: -task[0].groups)
    parts: dict[tuple[int, str], list[Judged]] = {}
    for (nulls, *_), part in zip(tasks, run.each("from 2 to 500 groups", judged, tasks), strict=True):
        parts.setdefault((nulls.groups, nulls.profile), []).append(part)
    along_groups = []
    for (groups, kind), own in sorted(parts.items()):
        outcome = joined(own)
        rates = {name: float(np.mean(p < 0.05)) for name, p in outcome.pvalues.items()}
        rates |= {f"mixture, {c.upper()}": claimed(fits) for c, fits in outcome.mixtures.items()}
        rates |= {rival: float(np.mean(own)) for rival, own in outcome.claims.items()}
        along_groups += [{"groups": groups, "profile": kind, "method": m, "rate": r} for m, r in rates.items()]
    return {
        "seed": SEED,
        "experiments": run.either(EXPERIMENTS, 120),
        "groups": GROUPS,
        "along_alpha": along_alpha,
        "mixture": mixture_rates,
        "rivals": rival_rates,
        "runs_along_groups": runs,
        "runs_of_the_mixture": some,
        "runs_of_slow": slow,
        "along_groups": along_groups,
    }


def rate(numbers: Numbers, profile: str, method: str, alpha: float) -> float:
    return next(
        float(point["rate"])
        for point in numbers["along_alpha"]
        if (point["profile"], point["method"], point["alpha"]) == (profile, method, alpha)
    )


def error(row: Numbers) -> float:
    """The standard error of a share, with one event more and one less than seen, so that it is never zero."""
    claims, runs = row["rate"] * row["runs"] + 1, row["runs"] + 2
    return float((claims / runs * (1 - claims / runs) / runs) ** 0.5)


def tables(numbers: Numbers) -> dict[str, str]:
    shown = [0.001, 0.01, 0.05, 0.1, 0.2, 0.5]
    rows = [
        [f"{method}, {name}", *(share(rate(numbers, profile, method, alpha), 3) for alpha in shown)]
        for profile, name in PROFILES.items()
        for method in GUARANTEES
    ]
    fixed = [
        [f"{method}, {PROFILES[profile]}", share(value, 3)]
        for profile, rates in numbers["mixture"].items()
        for method, value in rates.items()
    ]
    sizes = sorted({point["groups"] for point in numbers["along_groups"]})
    by_place = {(p["groups"], p["profile"], p["method"]): p["rate"] for p in numbers["along_groups"]}
    along = [
        [f"{method}, {PROFILES[profile]}", *(share(by_place.get((k, profile, method))) for k in sizes)]
        for profile in ("equal", "lognormal")
        for method in [*METHODS, *baselines.RIVALS]
    ]
    others = [
        [
            rival,
            *(
                f"{share(own['rate'], 3)} ± {error(own):.3f}"
                for own in (numbers["rivals"][profile][rival] for profile in PROFILES)
            ),
        ]
        for rival in baselines.RIVALS
    ]
    return {
        "": markdown(
            [
                f"share with a reported difference, {of_runs(numbers['experiments'], 'A/A experiments')}",
                *(f"α = {alpha:g}" for alpha in shown),
            ],
            rows,
        ),
        "-mixture": markdown([f"whatever α, {of_runs(numbers['experiments'], 'A/A experiments')}", "reported"], fixed),
        "-rivals": markdown(["false positives at α = 0.05, ± one standard error", *PROFILES.values()], others),
        "-groups": markdown(
            [f"α = 0.05, {of_runs(numbers['runs_along_groups'])}", *(f"K = {k}" for k in sizes)], along
        ),
    }


def facts(numbers: Numbers) -> dict[str, str]:
    def crossing(profile: str) -> str:
        """The largest α up to which the literal rule rejects more than α."""
        above = [alpha for alpha in LEVELS if rate(numbers, profile, "literal", alpha) > alpha]
        return f"{max(above, default=0):g}"

    off = [
        abs(rate(numbers, profile, "calibrated", alpha) - alpha) / (alpha * (1 - alpha) / numbers["experiments"]) ** 0.5
        for profile in PROFILES
        for alpha in LEVELS
    ]
    last = {
        (point["method"], point["profile"]): point["rate"]
        for point in numbers["along_groups"]
        if point["groups"] == max(other["groups"] for other in numbers["along_groups"])
    }
    return {
        "experiments": f"{numbers['experiments']:,}",
        **{f"crossing_{profile}": crossing(profile) for profile in PROFILES},
        **{
            f"literal_{profile}_{alpha:g}": share(rate(numbers, profile, "literal", alpha), 3)
            for profile in PROFILES
            for alpha in (0.001, 0.01, 0.05, 0.2, 0.5)
        },
        "runs_of_slow": str(numbers["runs_of_slow"]),
        "rivals_above": "; ".join(
            f"{rival} ({min(rates):.2f}–{max(rates):.2f})"
            for rival in baselines.RIVALS
            for rates in [[numbers["rivals"][profile][rival]["rate"] for profile in PROFILES]]
            if any(
                own["rate"] > 0.05 + 3 * (0.05 * 0.95 / own["runs"]) ** 0.5
                for own in (numbers["rivals"][profile][rival] for profile in PROFILES)
            )
        ),
        "calibrated_most_off": f"{max(off):.1f}",
        "calibrated_500": share(last["calibrated", "equal"]),
        "runs": f"{numbers['runs_along_groups']:,}",
        "runs_of_the_mixture": f"{numbers['runs_of_the_mixture']:,}",
    }


def figure(numbers: Numbers) -> Any:
    diagonal = [{"alpha": LEVELS[0], "rate": LEVELS[0]}, {"alpha": LEVELS[-1], "rate": LEVELS[-1]}]
    ticks = [0.0003, 0.001, 0.01, 0.05, 0.2, 1]

    def panel(profile: simulate.Profile) -> Any:
        # A share of nothing has no place on a log axis.
        own = [point for point in numbers["along_alpha"] if point["profile"] == profile and point["rate"] > 0]
        lines = (
            chart(own)
            .mark_line(point=alt.OverlayMarkDef(size=25))
            .encode(
                x=alt.X(**logarithmic("alpha", "α", ticks[1:])),
                y=alt.Y(**logarithmic("rate", "share with a reported difference", ticks)),
                **by_method(METHODS),
            )
        )
        flat = [{"method": method, "rate": value} for method, value in numbers["mixture"][profile].items() if value > 0]
        rules = chart(flat).mark_rule(strokeWidth=2).encode(y="rate:Q", **by_method(METHODS))
        ideal = chart(diagonal).mark_line(color=GREY, strokeDash=[4, 3]).encode(x="alpha:Q", y="rate:Q")
        return (ideal + rules + lines).properties(width=240, height=230, title=f"K = 21, {PROFILES[profile]}")

    def sizes(profile: simulate.Profile) -> Any:
        own = [
            point
            for point in numbers["along_groups"]
            if (point["profile"], point["method"] in METHODS) == (profile, True)
        ]
        lines = (
            chart(own)
            .mark_line(point=alt.OverlayMarkDef(size=25))
            .encode(
                x=alt.X(**logarithmic("groups", "number of groups K", SIZES)),
                y=share_axis("rate", "false positives, α = 0.05"),
                **by_method(METHODS),
            )
        )
        rule = chart([{"rate": 0.05}]).mark_rule(color=GREY, strokeDash=[4, 3]).encode(y="rate:Q")
        return (rule + lines).properties(width=380, height=230, title=PROFILES[profile])

    above = alt.hconcat(*(panel(profile) for profile in PROFILES))
    return above & (sizes("lognormal") | sizes("equal"))


STUDY = Study("false_positives", measure, tables, facts, figure)

if __name__ == "__main__":
    STUDY.main()
