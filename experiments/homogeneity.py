"""From the paper's survey: Cochran's Q, and each group against the rest, beside ours; and penalised fixed effects."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np
from scipy.special import bdtrc, ndtr

from faultlines.types import FloatArray

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that the script also runs by its path

import faultlines as fl
from experiments import baselines
from experiments.common import (
    COLOURS,
    GREY,
    Numbers,
    Run,
    Study,
    by_method,
    chart,
    markdown,
    of_runs,
    share,
    share_axis,
)
from faultlines import simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from experiments.baselines import Fit

SEED = 1954
ALPHA = 0.05
TRUTHS = {
    "nothing differs": [0.0],
    "two halves": [0.5, 1.0, 1.5, 2.0],
    "one group apart": [2.0, 3.0, 4.0, 5.0, 8.0],
    "one in ten apart": [1.0, 2.0, 3.0, 4.0],
    "every group its own effect": [0.3, 0.5, 0.7, 1.0],
}
TESTS = {
    "calibrated": COLOURS["calibrated"],
    "top merge": COLOURS["top merge"],
    "Cochran's Q": "#D55E00",
    "one against the rest": "#009E73",
}
_SHORT = {"calibrated": "ours", "top merge": "top_merge", "Cochran's Q": "q", "one against the rest": "rest"}
BATCH = 100  # data sets that share their draws
MARGIN = 0.07  # by which ours may be behind the best of the others, as a price for power against every kind


class Task(NamedTuple):
    groups: int
    profile: simulate.Profile
    truth: str
    size: float  # in typical standard errors
    runs: int
    fused: int  # how many of them also get penalised fixed effects
    some: int  # and how many the rivals

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


def judged(estimates: list[fl.Estimates], guarantee: fl.Calibrated) -> FloatArray:
    """p of "all groups are equal" in each data set."""
    named = [(f"{i}", groups) for i, groups in enumerate(estimates)]
    log_p = [
        fl.cluster_many(dict(named[start : start + BATCH]), guarantee=guarantee, seed=start).log_pvalues
        for start in range(0, len(named), BATCH)
    ]
    return np.exp(np.concatenate(log_p))


def _each(test: Callable[[FloatArray, FloatArray], float], theta: FloatArray, se: FloatArray) -> FloatArray:
    return np.array([test(*row) for row in zip(theta, se, strict=True)])


def _scott_knott(theta: FloatArray, se: FloatArray) -> float:
    return baselines.scott_knott_pvalue(theta, float(np.mean(se**2)))


def _joined(method: Callable[[FloatArray, FloatArray], Fit]) -> Callable[[FloatArray, FloatArray], float]:
    """A method that has no p of its own: 0 where it makes clusters, 1 where it does not."""
    return lambda theta, se: float(method(theta, se).n_clusters == 1)


def _ranked(theta: FloatArray, se: FloatArray) -> float:
    """0 where any pair differs, so that some rank is not possible."""
    return float(baselines.rank_sets(theta, se)[0].max() == 1)


def _by_ratio(theta: FloatArray, se: FloatArray) -> FloatArray:
    return baselines.ratio_pvalues(theta, se, 1, 39, np.random.default_rng(SEED))


# Beside those four, the rivals as tests that anything differs. (Bautista's begins with Cochran's Q, and is no other.)
RIVALS: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "Cochran's Q": baselines.cochran_q,
    "one against the rest": baselines.one_against_the_rest,
    "one against the rest, BH": lambda theta, se: baselines.one_against_the_rest(theta, se, "bh"),
    "Scott–Knott": lambda theta, se: _each(_scott_knott, theta, se),
    "Scott–Knott, unequal precision": lambda theta, se: _each(baselines.ratio_pvalue, theta, se),
    "DGC": lambda theta, se: _each(baselines.dgc_pvalue, theta, se),
    "Jolliffe": lambda theta, se: _each(_joined(baselines.jolliffe), theta, se),
    "Clusters-of-Centres": lambda theta, se: _each(_joined(baselines.clusters_of_centres), theta, se),
    "rank sets": lambda theta, se: _each(_ranked, theta, se),
    baselines.BY_RATIO: _by_ratio,
}
FEW = {"rank sets": 0.5, baselines.BY_RATIO: 0.25}  # the slow ones see only a share of what the others see


def beside(theta: FloatArray, se: FloatArray, ours: npt.NDArray[np.bool_]) -> Numbers:
    """All rivals on some data sets, against what ours says of the same."""
    by_test = {}
    for rival, test in RIVALS.items():
        seen = round(FEW.get(rival, 1.0) * len(ours))
        # Draws are counted, so that their p can be α itself.
        by_test[rival] = compared(np.asarray(test(theta[:seen], se[:seen])) <= ALPHA + 1e-12, ours[:seen])
    return by_test


def compared(own: npt.NDArray[np.bool_], ours: npt.NDArray[np.bool_]) -> Numbers:
    """How often a test rejects, and how much oftener than ours on the same data sets."""
    lead = own.astype(float) - ours
    return {
        "rejected": float(own.mean()),
        "runs": own.size,
        "lead": float(lead.mean()),
        "lead_error": float(lead.std() / np.sqrt(own.size)),
    }


def tested(task: Task) -> Numbers:
    estimates = [task.estimates(i) for i in range(task.runs)]
    theta, se = (np.array([getattr(groups, what) for groups in estimates]) for what in ("theta", "se"))
    rejected = {
        "calibrated": judged(estimates, fl.Calibrated()) < ALPHA,
        "top merge": judged(estimates, baselines.TOP_MERGE) < ALPHA,
        "Cochran's Q": baselines.cochran_q(theta, se) < ALPHA,
        "one against the rest": baselines.one_against_the_rest(theta, se) < ALPHA,
    }
    best = max(TESTS, key=lambda test: rejected[test].mean())
    behind = rejected[best].astype(float) - rejected["calibrated"]  # on the same data sets, so that its error is small
    fits = [baselines.fused_effects(groups.theta, groups.se) for groups in estimates[: task.fused]]
    plain = [baselines.fused_effects(groups.theta, groups.se, adaptive=False) for groups in estimates[: task.fused]]
    return {
        "groups": task.groups,
        "profile": task.profile,
        "truth": task.truth,
        "size": task.size,
        **{test: float(np.mean(rejected[test])) for test in TESTS},
        "others": beside(theta[: task.some], se[: task.some], rejected["calibrated"][: task.some]),
        "deficit_error": float(behind.std() / np.sqrt(task.runs)),
        "fused": float(np.mean([fit.n_clusters > 1 for fit in fits])),
        "fused_clusters": float(np.mean([fit.n_clusters for fit in fits])),
        "fused_plain": float(np.mean([fit.n_clusters > 1 for fit in plain])),
        "fused_plain_clusters": float(np.mean([fit.n_clusters for fit in plain])),
    }


def measure(run: Run) -> Numbers:
    runs, fused, some = run.either((1000, 100, 80), (20, 2, 20))
    tasks = [
        Task(groups, profile, truth, size, runs, fused, some)
        for groups in (102, 21)
        for profile in ("equal", "lognormal")
        for truth, sizes in TRUTHS.items()
        for size in (sizes if not run.quick else sizes[:2])
    ]
    rows = run.each("homogeneity", tested, tasks)
    return {"seed": SEED, "runs": runs, "runs_of_fused": fused, "alpha": ALPHA, "rows": rows}


def name(row: Numbers) -> str:
    return str(row["truth"]) + (f", {row['size']:g} se" if row["size"] else "")


def tables(numbers: Numbers) -> dict[str, str]:
    kinds = [(k, profile) for k in (21, 102) for profile in ("equal", "lognormal")]
    by_place = {(row["groups"], row["profile"], name(row)): row for row in numbers["rows"]}
    names = list(dict.fromkeys(name(row) for row in numbers["rows"]))
    power = [
        [what, *(" / ".join(share(by_place[*kind, what][test]) for test in TESTS) for kind in kinds)] for what in names
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
    header = f"{' / '.join(TESTS)}, {of_runs(numbers['runs'])}"
    return {
        "": markdown([header, *(f"K = {k}, {profile} se" for k, profile in kinds)], power),
        "-rivals": as_tests(numbers),
        "-fused": markdown(
            [
                f"share with clusters (how many), {of_runs(numbers['runs_of_fused'])}",
                "adaptive, K = 21",
                "K = 102",
                "plain, K = 21",
                "K = 102",
            ],
            fused,
        ),
    }


SHOWN = {  # of the sizes of each kind, one at which tests differ
    "equal": {"nothing differs": 0.0, "two halves": 1.0, "one group apart": 4.0, "one in ten apart": 2.0},
    "lognormal": {"nothing differs": 0.0, "two halves": 0.5, "one group apart": 4.0, "one in ten apart": 1.0},
}


def as_tests(numbers: Numbers) -> str:
    """All tests at one size of each kind, K = 102."""
    places = [
        row
        for profile, sizes in SHOWN.items()
        for truth, size in sizes.items()
        for row in numbers["rows"]
        if (row["groups"], row["profile"], row["truth"], row["size"]) == (102, profile, truth, size)
    ]
    rows = [["calibrated", *(share(row["calibrated"]) for row in places), f"{numbers['runs']:,}"]]
    for test in places[0]["others"]:
        own = [row["others"][test] for row in places]
        rows.append([test, *(share(row["rejected"]) for row in own), str(own[0]["runs"])])
    header = [f"{row['profile']} se: {name(row)}" for row in places]
    return markdown(["share rejected, K = 102, ± at most 0.5/√runs", *header, "runs"], rows)


def comparisons(numbers: Numbers) -> list[Numbers]:
    """Every test against ours wherever something differs, p adjusted for all of them by Holm."""
    rows = [
        {"test": test, "place": f"{name(row)}, K = {row['groups']}, {row['profile']} se", "truth": row["truth"], **own}
        for row in numbers["rows"]
        if row["truth"] != "nothing differs"
        for test, own in row["others"].items()
    ]
    p = np.array([2 * ndtr(-abs(row["lead"]) / max(row["lead_error"], 1e-9)) for row in rows])
    return [row | {"p": own} for row, own in zip(rows, baselines.adjusted(p, "holm"), strict=True)]


def holds(numbers: Numbers, test: str) -> bool:
    """Whether a test's rejections where nothing differs are compatible with α, all tests and kinds considered."""
    level = [row["others"] for row in numbers["rows"] if row["truth"] == "nothing differs"]
    count = sum(len(others) for others in level)
    seen = [(round(others[test]["rejected"] * others[test]["runs"]), others[test]["runs"]) for others in level]
    return all(claims == 0 or float(bdtrc(claims - 1, runs, ALPHA)) * count > ALPHA for claims, runs in seen)


def lost(numbers: Numbers) -> dict[str, list[Numbers]]:
    """Where tests that hold their level reject oftener than ours."""
    by_test: dict[str, list[Numbers]] = {}
    for row in comparisons(numbers):
        if row["p"] < ALPHA and row["lead"] > 0 and holds(numbers, row["test"]):
            by_test.setdefault(row["test"], []).append(row)
    return by_test


def deficit(row: Numbers, test: str = "calibrated") -> float:
    """By how much a test is behind the best of the four."""
    return float(max(row[other] for other in TESTS) - row[test])


def facts(numbers: Numbers) -> dict[str, str]:
    texts = {"runs": f"{numbers['runs']:,}", "runs_of_fused": str(numbers["runs_of_fused"])}
    for truth in TRUTHS:
        own = [row for row in numbers["rows"] if row["truth"] == truth]
        for test in [*TESTS][1:]:
            lead = [row["calibrated"] - row[test] for row in own]
            key = f"{_SHORT[test]}_{truth.replace(' ', '_')}"
            texts |= {f"most_ahead_{key}": f"{max(lead):.2f}", f"most_behind_{key}": f"{-min(lead):.2f}"}
    level = [row for row in numbers["rows"] if row["truth"] == "nothing differs"]
    for test in TESTS:
        rates = [row[test] for row in level]
        texts[f"level_{_SHORT[test]}"] = f"{min(rates):.3f}–{max(rates):.3f}"
    for key in ("fused", "fused_plain"):
        texts[f"{key}_null"] = " and ".join(share(r[key]) for r in reversed(level) if r["profile"] == "equal")
    place = (102, "equal", "one group apart, 5 se")
    lone = next((row for row in numbers["rows"] if (row["groups"], row["profile"], name(row)) == place), None)
    texts |= {f"lone.{short}": share(lone[test] if lone else None) for test, short in _SHORT.items()}
    differing = [row for row in numbers["rows"] if row["truth"] != "nothing differs"]
    outside = [row for row in differing if deficit(row) > MARGIN]
    tests = list(differing[0]["others"])
    won = [row for row in comparisons(numbers) if row["p"] < ALPHA and row["lead"] < 0]
    texts |= {
        "comparisons": str(len(comparisons(numbers))),
        "wins": str(len(won)),
        "losses": str(sum(len(own) for own in lost(numbers).values())),
        "lost": "; ".join(
            f"{test} in {len(own)}, by {max(row['lead'] for row in own):.2f} at most"
            f" ({max(own, key=lambda row: row['lead'])['place']})"
            for test, own in lost(numbers).items()
        )
        or "none",
        "above": ", ".join(test for test in tests if not holds(numbers, test)) or "none",
    }
    return texts | {
        "kinds": str(len(differing)),
        "margin": share(MARGIN),
        "within_margin": str(len(differing) - len(outside)),
        "outside": "; ".join(f"{name(row)}, K = {row['groups']}, {row['profile']} se" for row in outside),
        **{f"deficit_{_SHORT[test]}": share(max(deficit(row, test) for row in differing)) for test in TESTS},
    }


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
