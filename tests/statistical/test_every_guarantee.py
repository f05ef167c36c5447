"""Every guarantee with every comparison: false positives and splits, coverage, power. Run by `make stats`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import faultlines as fl
from docs.figures import record_figure, share_error
from faultlines import simulate
from faultlines.estimates.scales import ANSCOMBE
from tests.statistical.tally import scale_runs

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.statistical
Rng = np.random.Generator
GUARANTEES: dict[str, Any] = {
    "calibrated": fl.Calibrated(draws=99),
    "holdout": fl.Holdout(splits=1),  # several are studied in test_holdout.py
    "folds": fl.Folds(),
    "bonferroni": fl.Bonferroni(),
}
VALID = [name for name in GUARANTEES if name != "bonferroni"]


def plane(effects: Any, rng: Rng, correlation: float = 0.0) -> fl.Estimates:
    """Two effects at once, of unequal precision."""
    groups = len(effects)
    se = rng.lognormal(0, 0.5, (groups, 2))
    cov = se[:, :, None] * se[:, None, :] * np.array([[1, correlation], [correlation, 1]])
    noise = np.einsum("kij,kj->ki", np.linalg.cholesky(cov), rng.standard_normal((groups, 2)))
    return fl.Estimates(
        np.asarray(effects) + noise, None if correlation else se, effect_covariance=cov if correlation else None
    )


def line(effects: Any, rng: Rng, dof: float | None = None) -> fl.Estimates:
    groups = len(effects)
    sigma = rng.lognormal(0, 0.5, groups)
    se = sigma if dof is None else sigma * np.sqrt(rng.chisquare(dof, groups) / dof)
    return fl.Estimates(effects + sigma * rng.standard_normal(groups), se, dof=dof)


def rates(effects: Any, rng: Rng) -> fl.Similarity:
    trials = rng.integers(200, 1200, len(effects))
    return fl.binomial(rng.binomial(trials, 0.2 + 0.02 * np.asarray(effects)), trials)


def counts(effects: Any, rng: Rng) -> fl.Similarity:
    exposure = rng.uniform(200, 1200, len(effects))
    return fl.poisson(rng.poisson(exposure * (0.3 + 0.025 * np.asarray(effects))), exposure)


# From effects, in units of about one standard error, to data; the last has a tolerance of 1 and effects 1 apart.
KINDS: dict[str, Callable[[Any, Rng], tuple[Any, float]]] = {
    "one": lambda effects, rng: (line(effects, rng), 0.0),
    "two": lambda effects, rng: (plane(np.column_stack([effects, effects]) / math.sqrt(2), rng), 0.0),
    "correlated": lambda effects, rng: (plane(np.column_stack([effects, effects]) / math.sqrt(2), rng, 0.7), 0.0),
    "t": lambda effects, rng: (fl.welch(line(effects, rng, dof=max(10, 3 * len(effects)))), 0.0),
    "binomial": lambda effects, rng: (rates(effects, rng), 0.0),
    "poisson": lambda effects, rng: (counts(effects, rng), 0.0),
    "tolerance": lambda effects, rng: (line(effects + (np.arange(len(effects)) % 2), rng), 1.0),
}


def share(runs: int, kind: str, guarantee: str, effects: np.ndarray, seed: int) -> float:
    """Share of data sets in which a pair of clusters is reported that are alike.

    Clusters are alike when their groups have the same mean effect. One that holds groups of two kinds by mistake is not
    like a pure one, and to say so is no error; calibrated is held to a stricter measure in `more_than_there_are`.
    """
    rng = np.random.default_rng(seed)
    false = 0
    for i in range(runs):
        data, tolerance = KINDS[kind](effects, rng)
        result = fl.cluster(data, guarantee=GUARANTEES[guarantee], tolerance=tolerance, seed=i)
        means = [round(float(effects[result.labels == c].mean()), 9) for c in range(1, result.n_clusters + 1)]
        false += len(set(means)) < len(means)
    return false / runs


def more_than_there_are(runs: int, kind: str, guarantee: str, effects: np.ndarray, seed: int) -> float:
    """Share of data sets in which more clusters are reported than there are."""
    rng = np.random.default_rng(seed)
    more = 0
    for i in range(runs):
        data, tolerance = KINDS[kind](effects, rng)
        result = fl.cluster(data, guarantee=GUARANTEES[guarantee], tolerance=tolerance, seed=i)
        more += result.n_clusters > np.unique(effects).size
    return more / runs


def runs_for(kind: str, guarantee: str, groups: int) -> int:
    """As many as a few seconds allow: draws of t-tests and folds of many groups are slow."""
    if groups < 100:
        return scale_runs(1000 if guarantee != "folds" else 400)
    slow = {("t", "calibrated"): 100}
    return scale_runs(slow.get((kind, guarantee), 100 if guarantee == "folds" else 400))


@pytest.mark.parametrize("groups", [5, 21, 102])
@pytest.mark.parametrize("kind", KINDS)
def test_false_positives(kind: str, groups: int) -> None:
    """At most α and Monte Carlo error, for all but the paper's α/K², which is printed beside them."""
    for guarantee in GUARANTEES:
        runs = runs_for(kind, guarantee, groups)
        rate = share(runs, kind, guarantee, np.zeros(groups), seed=groups)
        record_figure("every_guarantee", f"false positives; {kind}, {groups} groups; {guarantee}", rate, runs)
        if guarantee in VALID:
            assert rate <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / runs), (kind, groups, guarantee)


@pytest.mark.parametrize("kind", ["one", "two", "correlated", "t", "binomial", "poisson"])
def test_over_splitting(kind: str) -> None:
    """Two clusters that are there, near and far, even and uneven: three or more in no more than α of the runs."""
    for low, high in ((10, 11), (18, 3)):
        for apart in (2.0, 4.0, 8.0):
            effects = np.repeat([0.0, apart], [low, high])
            for guarantee in VALID:
                runs = scale_runs({"folds": 150}.get(guarantee, 400))
                # In the plane, groups known well in one direction only can form a cluster of their own between two.
                stricter = guarantee == "calibrated" and kind not in {"two", "correlated"}
                rate = (more_than_there_are if stricter else share)(runs, kind, guarantee, effects, seed=int(apart))
                name = f"equal clusters; {kind}, {low} + {high} groups {apart} apart; {guarantee}"
                record_figure("every_guarantee", name, rate, runs)
                assert rate <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / runs), (kind, guarantee, low, apart)


@pytest.mark.parametrize("profile", ["equal", "lognormal"])
def test_clusters_tested_on_their_own_make_no_more_false_splits(profile: simulate.Profile) -> None:
    """The place where it could: true splits of all sizes, after which each side gets a null of its own."""
    for sizes in ([50, 52], [97, 3], [10, 10], [34, 34, 34], [80, 10, 10], [4, 92, 4], [3, 60, 3], [20] * 5):
        for apart in (2.0, 3.0, 4.0, 5.0, 6.0):
            runs, more = scale_runs(250), 0
            effects = (apart * np.arange(len(sizes))).tolist()
            for seed in range(runs):
                data = simulate.planted(effects, sizes, profile=profile, seed=10_000 + seed).estimates
                more += fl.cluster(data, guarantee=GUARANTEES["calibrated"], seed=seed).n_clusters > len(sizes)
            name = f"more clusters than true; {sizes} {apart} apart; {profile} se"
            record_figure("every_guarantee", name, more / runs, runs)
            assert more / runs <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / runs), (sizes, apart)


def test_judging_each_side_of_a_split_by_itself_would_not_hold() -> None:
    """Why step-down is not done in the simple way: 4, 92 and 4 groups, 5 standard errors apart."""

    def clusters(estimates: fl.Estimates, groups: int, seed: int) -> int:
        size = len(estimates)
        if size < 2:
            return 1
        result = fl.cluster(estimates, guarantee=GUARANTEES["calibrated"], refine=False, seed=seed)
        if result.pvalue * (groups - 1) / (size - 1) >= 0.05:
            return 1
        lower = result.path()[1].labels == 1
        return sum(clusters(estimates.subset(side), groups, seed) for side in (lower, ~lower))

    runs = scale_runs(150)
    drawn = [simulate.planted([0, 5, 10], [4, 92, 4], seed=seed).estimates for seed in range(runs)]
    more = sum(clusters(estimates, 100, seed) > 3 for seed, estimates in enumerate(drawn)) / runs
    record_figure("every_guarantee", "each side by itself; 4 + 92 + 4 groups 5 apart; more clusters", more, runs)
    assert abs(more - 0.4) <= 3 * share_error(0.4, runs)


def test_clusters_tested_on_their_own_find_finer_structure() -> None:
    """Five clusters 3 se apart, 102 groups: beside the top merge with one threshold for the whole tree."""
    counts: dict[str, list[int]] = {"top merge": [], "calibrated": []}
    for seed in range(150):
        data = simulate.planted([0, 3, 6, 9, 12], [20, 20, 21, 21, 20], seed=seed).estimates
        for name, clusters in counts.items():
            guarantee = GUARANTEES.get(name, fl.Calibrated(draws=99, scan=False))
            clusters.append(fl.cluster(data, guarantee=guarantee, seed=seed).n_clusters)
    means = {name: float(np.mean(clusters)) for name, clusters in counts.items()}
    for name, clusters in counts.items():
        error = float(np.std(clusters)) / math.sqrt(len(clusters))
        where = f"clusters reported; five clusters 3 se apart; {name}"
        record_figure("every_guarantee", where, means[name], len(clusters), error=error, unit="number")
    assert means["calibrated"] > means["top merge"] + 0.3
    assert means["calibrated"] == pytest.approx(4.5, abs=0.25)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_tolerance_holds_wherever_groups_lie_within_it(epsilon: float) -> None:
    for groups in (5, 21, 102):
        patterns = {
            "both ends": np.where(np.arange(groups) % 2, epsilon, 0.0),
            "one at the end": np.where(np.arange(groups) == 0, epsilon, 0.0),
            "spread out": np.linspace(0, epsilon, groups),
        }
        for name, effects in patterns.items():
            rng = np.random.default_rng(groups)
            claims = dict.fromkeys(VALID, 0)
            runs = scale_runs(400)
            for i in range(runs):
                estimates = fl.Estimates(effects + rng.standard_normal(groups), np.ones(groups))
                for guarantee in ("calibrated", "holdout"):
                    result = fl.cluster(estimates, guarantee=GUARANTEES[guarantee], tolerance=epsilon, seed=i)
                    claims[guarantee] += result.rejected
            shown = {g: claims[g] / runs for g in ("calibrated", "holdout")}
            for guarantee, rate in shown.items():
                where = f"tolerance; {epsilon} se, {groups} groups, {name}; {guarantee}"
                record_figure("every_guarantee", where, rate, runs)
            assert max(shown.values()) <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / runs)


def test_tolerance_of_rates_holds() -> None:
    """Rates five points apart where five are allowed, at levels where Anscombe's scale bends."""
    for rate in (0.02, 0.1, 0.4):
        for groups in (5, 21, 102):
            rng, claims, runs = np.random.default_rng(groups), 0, scale_runs(400)
            trials = rng.integers(200, 3000, groups).astype(float)
            truth = rate + np.where(np.arange(groups) % 2, 0.05, 0.0)
            for i in range(runs):
                y = rng.binomial(trials.astype(int), truth).astype(float)
                estimates = fl.Estimates(ANSCOMBE.forward(y, trials), 1 / np.sqrt(4 * trials + 2), scale=ANSCOMBE)
                claims += fl.cluster(estimates, guarantee=GUARANTEES["calibrated"], tolerance=0.05, seed=i).rejected
            where = f"tolerance; rates {rate} and {rate + 0.05:.2f}, {groups} groups; calibrated"
            record_figure("every_guarantee", where, claims / runs, runs)
            assert claims / runs <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("dof", [5, 10])
def test_holdout_with_few_degrees_of_freedom(dof: int) -> None:
    for groups in (5, 21, 102):
        rng, runs = np.random.default_rng(groups), scale_runs(1000)
        claims = sum(
            fl.cluster(line(np.zeros(groups), rng, dof), guarantee=GUARANTEES["holdout"], seed=i).rejected
            for i in range(runs)
        )
        record_figure("every_guarantee", f"holdout, few degrees; dof {dof}, {groups} groups", claims / runs, runs)
        assert claims / runs <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("kind", ["known", "dof 12", "rates", "two"])
def test_holdout_intervals_cover(kind: str) -> None:
    """The true mean of each reported cluster, weighted as its estimate is; all reported intervals of all runs.

    Members are chosen by other data, but how many clusters are reported is decided on these. Where nothing differs, a
    claim is false with chance α and its intervals with it; where clusters are there, the level is the one stated.
    """
    rng = np.random.default_rng(0)
    for apart in (0.0, 1.5, 3.0, 6.0):
        inside = total = 0
        for i in range(scale_runs(200)):
            effects = np.repeat([0.0, apart], [15, 10])
            data: Any
            if kind == "rates":
                data, truth = rates(effects, rng), 0.2 + 0.02 * effects
            elif kind == "two":
                data, truth = plane(np.column_stack([effects, -effects]), rng), effects
            else:
                data, truth = line(effects, rng, 12.0 if kind == "dof 12" else None), effects
            result = fl.cluster(data, guarantee="holdout", seed=i)
            for number, cluster in enumerate(result.clusters, start=1):
                mine = result.labels == number
                if kind == "rates":
                    weight = result.estimates.scale.mass(result.estimates.se)[mine]
                elif kind == "two":
                    weight = result.estimates.se[mine, 0] ** -2.0
                else:
                    fixed = getattr(result.groups, "weights", None)
                    weight = (result.estimates.se**-2.0 if fixed is None else fixed)[mine]
                target = float(np.average(truth[mine], weights=weight))
                inside += cluster.effects[0].lower <= target <= cluster.effects[0].upper
                total += 1
        record_figure("every_guarantee", f"coverage of holdout; {kind}; {apart} se apart", inside / total, total)
        least = 0.945 if apart >= 3 else 0.90
        assert inside / total >= least - 3 * math.sqrt(0.05 * 0.95 / total)


def test_power_side_by_side() -> None:
    """The table of docs/guarantees.md: two halves of 21 and of 102 groups, 1 to 4 standard errors apart."""
    expected = {
        ("calibrated", 21): (0.18, 0.76, 0.99, 1.0),
        ("holdout", 21): (0.09, 0.39, 0.85, 0.99),
        ("folds", 21): (0.01, 0.0, 0.01, 0.01),
        ("calibrated", 102): (0.43, 1.0, 1.0, 1.0),
        ("holdout", 102): (0.18, 0.92, 1.0, 1.0),
        ("folds", 102): (0.0, 0.0, 0.0, 0.0),
    }
    for (guarantee, groups), figures in expected.items():
        # The calibrated test with its usual number of draws, as users have it: 99 find .37 where it finds .43.
        chosen = "calibrated" if guarantee == "calibrated" else GUARANTEES[guarantee]
        runs = scale_runs(100 if guarantee == "folds" and groups > 50 else 400)
        for apart, figure in zip((1.0, 2.0, 3.0, 4.0), figures, strict=True):
            detected = 0
            for seed in range(runs):
                data = simulate.planted([0, apart], [groups // 2, groups - groups // 2], seed=seed).estimates
                detected += fl.cluster(data, guarantee=chosen, seed=seed).rejected
            name = f"power, halves; {guarantee}, {groups} groups; {apart} se apart"
            record_figure("every_guarantee", name, detected / runs, runs)
            # Figures of 400 runs: both sides have a Monte Carlo error.
            error = math.hypot(share_error(figure, runs), share_error(figure, 400))
            assert abs(detected / runs - figure) <= 3 * error, (guarantee, groups, apart)


def test_many_experiments_keep_their_promises() -> None:
    """2,218 A/A experiments with 21 groups: Holm makes any claim in α of such studies; then a tenth really differ."""
    rng = np.random.default_rng(0)
    many = fl.cluster_many({f"e{i}": simulate.null(21, profile="zipf", seed=rng).estimates for i in range(2218)})
    p = np.exp(many.log_pvalues)
    record_figure("every_guarantee", "many experiments; 2,218 without a difference; p < .05", np.mean(p < 0.05), 2218)
    assert abs(np.mean(p < 0.05) - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 2218)
    false = total = 0
    for study in range(10):
        shares = {}
        for i in range(200):
            effects = [0.0, 4.0] if i < 20 else [0.0, 0.0]
            shares[f"{i}"] = simulate.planted(effects, [10, 11], seed=np.random.default_rng([study, i])).estimates
        claims = fl.cluster_many(shares, correction="bh", guarantee=GUARANTEES["calibrated"]).rejected
        false += sum(int(name) >= 20 for name in claims)
        total += len(claims)
    name = "many experiments; a tenth differ, Benjamini–Hochberg; false"
    record_figure("every_guarantee", name, false / total, total)
    assert false / total <= 0.05 + 3.5 * math.sqrt(0.05 * 0.95 / total)
