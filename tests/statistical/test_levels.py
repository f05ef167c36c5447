"""At least how many clusters, how far effects spread, moderated variances, and true means of the named groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import faultlines as fl
from docs.figures import record_figure
from faultlines.core.lower_bound import at_least
from faultlines.core.mixture import member_means
from faultlines.core.spread import between_spread, prefers_continuum
from tests.statistical.tally import scale_runs, wider

pytestmark = pytest.mark.statistical

Array = np.ndarray[Any, np.dtype[np.float64]]
LEVEL = 0.05


def monte_carlo_error(rate: float, runs: int) -> float:
    return float(3 * np.sqrt(rate * (1 - rate) / runs))


def errors_of(profile: str, groups: int, rng: np.random.Generator) -> Array:
    if profile == "equal":
        return np.ones(groups)
    if profile == "lognormal":
        return rng.lognormal(0, 0.6, groups)
    return np.asarray(rng.permutation(np.sqrt(np.arange(1, groups + 1.0) / (groups / 2))))


def effects_of(world: str, groups: int, rng: np.random.Generator) -> Array:
    """True effects of a world like "halves 2.5": its name, and its size in standard errors."""
    name, _, size = world.partition(" ")
    place = np.arange(groups)
    effects = {
        "normal": rng.standard_normal(groups),
        "uniform": np.sqrt(12.0) * (rng.random(groups) - 0.5),
        "exponential": rng.exponential(size=groups),
        "gamma": rng.gamma(3.0, size=groups) / np.sqrt(3.0),
        "halves": 1.0 * (place % 2),
        "fifth": 1.0 * (place < groups / 5),
        "thirds": 1.0 * (place % 3),
        "one": 1.0 * (place < 1),
    }[name]
    return np.asarray(effects * float(size))


# ------------------------------------------------------------------------------------------------- at least m clusters


@pytest.mark.parametrize("profile", ["equal", "lognormal"])
@pytest.mark.parametrize(("count", "apart"), [(1, 0.0), (2, 3.0), (2, 5.0), (3, 4.0)])
@pytest.mark.parametrize("groups", [20, 100])
def test_the_bound_is_seldom_above_the_truth(groups: int, count: int, apart: float, profile: str) -> None:
    runs, rng = scale_runs(1000), np.random.default_rng(groups + count)
    bounds = []
    for _ in range(runs):
        se = errors_of(profile, groups, rng)
        bounds.append(at_least(apart * (np.arange(groups) % count) + se * rng.standard_normal(groups), se, LEVEL))
    above, reached = np.mean(np.array(bounds) > count), np.mean(np.array(bounds) >= count)
    where = f"at least m clusters; {groups} groups, {count} clusters {apart} apart, {profile} se"
    record_figure("levels", f"{where}; above the truth", above, runs)
    record_figure("levels", f"{where}; the truth or more", reached, runs)
    assert above < LEVEL + monte_carlo_error(LEVEL, runs)
    assert reached > 0.9 - wider(0.9, runs, 1000)  # DESIGN 2.2 has .925 over 28 cells


@pytest.mark.parametrize("dof", [3.0, 8.0])
@pytest.mark.parametrize(("count", "apart"), [(1, 0.0), (2, 6.0)])
@pytest.mark.parametrize("groups", [20, 100])
def test_the_bound_with_estimated_standard_errors(groups: int, count: int, apart: float, dof: float) -> None:
    runs, rng, above = scale_runs(400), np.random.default_rng(groups), 0
    for _ in range(runs):
        se = np.sqrt(rng.chisquare(dof, groups) / dof)
        theta = apart * (np.arange(groups) % count) + rng.standard_normal(groups)
        above += at_least(theta, se, LEVEL, dof=dof) > count
    where = f"at least m clusters; {groups} groups, {count} clusters {apart} apart, {dof:g} degrees"
    record_figure("levels", f"{where}; above the truth", above / runs, runs)
    assert above / runs < LEVEL + monte_carlo_error(LEVEL, runs)


@pytest.mark.parametrize("shared", ["neighbors", "blocks", "control"])
@pytest.mark.parametrize(("count", "apart"), [(1, 0.0), (2, 6.0)])
def test_the_bound_of_groups_that_share_data(count: int, apart: float, shared: str) -> None:
    runs, groups, rng, above = scale_runs(600), 40, np.random.default_rng(1), 0
    place = np.arange(groups)
    covariance = {
        "neighbors": 0.8 ** np.abs(place[:, None] - place),
        "blocks": 0.3 * np.eye(groups) + 0.7 * np.kron(np.eye(groups // 5), np.ones((5, 5))),
        "control": np.eye(groups) + 2.0,
    }[shared]
    root, se = np.linalg.cholesky(covariance), np.sqrt(np.diagonal(covariance))
    for _ in range(runs):
        theta = apart * (place % count) + root @ rng.standard_normal(groups)
        above += at_least(theta, se, LEVEL, covariance=covariance) > count
    where = f"at least m clusters; {groups} groups, {count} clusters {apart} apart, {shared} share data"
    record_figure("levels", f"{where}; above the truth", above / runs, runs)
    assert above / runs < LEVEL + monte_carlo_error(LEVEL, runs)


# -------------------------------------------------------------------------------------------------------------- spread


@pytest.mark.parametrize("profile", ["equal", "zipf"])
@pytest.mark.parametrize(
    "world", ["normal 0", "normal 0.5", "normal 1", "normal 3", "halves 1", "halves 2", "halves 6"]
)
@pytest.mark.parametrize("groups", [5, 20, 100, 300])
def test_the_interval_covers_the_spread(groups: int, world: str, profile: str) -> None:
    """Both the standard deviation that effects are drawn with and that of the groups that were drawn."""
    runs, rng = scale_runs(600), np.random.default_rng(groups)
    drawn_with = float(world.split()[1]) * (1.0 if world.startswith("normal") else 0.5)
    drawn, law = [], []
    for _ in range(runs):
        se = errors_of(profile, groups, rng)
        effects = effects_of(world, groups, rng)
        spread = between_spread(effects + se * rng.standard_normal(groups), se**2, LEVEL)
        drawn.append(spread.lower - 1e-9 <= effects.std(ddof=1) <= spread.upper + 1e-9)
        law.append(spread.lower - 1e-9 <= drawn_with <= spread.upper + 1e-9)
    where = f"coverage of the spread; {groups} groups, {world}, {profile} se"
    record_figure("levels", f"{where}; of the groups", float(np.mean(drawn)), runs)
    record_figure("levels", f"{where}; of the law", float(np.mean(law)), runs)
    assert min(np.mean(drawn), np.mean(law)) > 0.95 - monte_carlo_error(0.95, runs)


@pytest.mark.parametrize("dof", [5.0, 12.0])
@pytest.mark.parametrize("world", ["normal 0", "normal 1", "halves 2"])
@pytest.mark.parametrize("groups", [10, 40])
def test_the_spread_with_estimated_variances(groups: int, world: str, dof: float) -> None:
    runs, rng, covered = scale_runs(600), np.random.default_rng(groups), 0
    for _ in range(runs):
        effects = effects_of(world, groups, rng)
        theta = effects + rng.standard_normal(groups)
        spread = between_spread(theta, rng.chisquare(dof, groups) / dof, LEVEL, dof=dof)
        covered += spread.lower - 1e-9 <= effects.std(ddof=1) <= spread.upper + 1e-9
    record_figure("levels", f"coverage of the spread; {groups} groups, {world}; {dof:g} degrees", covered / runs, runs)
    assert covered / runs > 0.93 - monte_carlo_error(0.93, runs)


def preferred(world: str, groups: int, profile: str, runs: int) -> tuple[float, int]:
    """The share of data sets with several clusters in which a continuum is preferred, and how many those are."""
    rng = np.random.default_rng(groups)
    votes = []
    for seed in range(runs):
        se = errors_of(profile, groups, rng)
        theta = effects_of(world, groups, rng) + se * rng.standard_normal(groups)
        clusters = fl.cluster(fl.Estimates(theta, se), seed=seed)
        if clusters.n_clusters > 1:
            votes.append(prefers_continuum(theta, se**2, clusters.labels)[0])
    name = f"called a continuum; {world}, {profile} se; {groups} groups"
    record_figure("levels", name, float(np.mean(votes)), len(votes))
    return float(np.mean(votes)), len(votes)


@pytest.mark.parametrize("profile", ["equal", "zipf"])
@pytest.mark.parametrize("groups", [40, 100, 300])
@pytest.mark.parametrize(
    ("world", "least"),
    [
        ("normal 1", 0.9),
        ("normal 2", 0.9),
        ("normal 4", 0.9),
        ("uniform 3", 0.8),
        ("exponential 3", 0.8),
        ("gamma 2", 0.75),
    ],
)
def test_smooth_effects_are_called_a_continuum(world: str, least: float, groups: int, profile: str) -> None:
    share, runs = preferred(world, groups, profile, 60)
    assert share > least - monte_carlo_error(least, runs)


@pytest.mark.parametrize("profile", ["equal", "zipf"])
@pytest.mark.parametrize("groups", [40, 100, 300])
@pytest.mark.parametrize("world", ["halves 4.5", "fifth 5", "thirds 5", "one 10"])
def test_clear_clusters_are_not(world: str, groups: int, profile: str) -> None:
    share, runs = preferred(world, groups, profile, 60)
    assert share < 0.05 + monte_carlo_error(0.05, runs)


# ------------------------------------------------------------------------------------------------- moderated variances

SPREADS = ["equal", "lognormal 0.3", "lognormal 1", "halves", "one large", "few large", "scaled inverse"]


def deviations(name: str, groups: int, rng: np.random.Generator) -> Array:
    place = np.arange(groups)
    return np.asarray(
        {
            "equal": np.ones(groups),
            "lognormal 0.3": rng.lognormal(0, 0.3, groups),
            "lognormal 1": rng.lognormal(0, 1, groups),
            "halves": np.where(place < groups / 2, 1.0, 3.0),
            "one large": np.where(place < 1, 5.0, 1.0),
            "few large": np.where(place < 4, 3.0, 1.0),
            "scaled inverse": np.sqrt(8 / rng.chisquare(8, groups)),
        }[name]
    )


def rejections(world: str, spread: str, runs: int) -> tuple[float, float]:
    """How often a difference is reported with each group's own variance, and with moderated ones: K = 40, 8 degrees."""
    rng, groups, dof = np.random.default_rng(0), 40, 8.0
    own = moderated = 0
    for seed in range(runs):
        deviation = deviations(spread, groups, rng)
        theta = deviation * (effects_of(world, groups, rng) + rng.standard_normal(groups))
        variance = deviation**2 * rng.chisquare(dof, groups) / dof
        estimates = fl.Estimates(theta, np.sqrt(variance), dof=np.full(groups, dof))
        moderated += fl.cluster(estimates, seed=seed).rejected
        own += fl.cluster(estimates.changed(recipe="measured"), seed=seed).rejected  # what is measured stays as it is
    record_figure("levels", f"reported with 8 degrees; {world}, {spread}; own variances", own / runs, runs)
    record_figure("levels", f"reported with 8 degrees; {world}, {spread}; moderated", moderated / runs, runs)
    return own / runs, moderated / runs


@pytest.mark.parametrize("spread", SPREADS)
def test_moderated_variances_hold_the_level(spread: str) -> None:
    runs = scale_runs(600)
    # Four of 40 groups with three times the spread: own variances exceed the level as well, as docs/guarantees.md says.
    most = 0.065 if spread == "few large" else LEVEL
    assert rejections("one 0", spread, runs)[1] < most + monte_carlo_error(most, runs)


@pytest.mark.parametrize(("world", "least"), [("one 6", 0.95), ("halves 2", 0.85)])
def test_moderated_variances_find_more(world: str, least: float) -> None:
    runs = scale_runs(300)
    own, moderated = rejections(world, "equal", runs)
    assert moderated > least - monte_carlo_error(least, runs)
    # DESIGN 2.2 has .10 and .20 more; of the data sets about one in eight is found by one of the two alone.
    assert moderated > own + 0.1 - 3 * np.sqrt(0.12 / runs)


# -------------------------------------------------------------------------------------------------------- named groups


@pytest.mark.parametrize("profile", ["equal", "zipf"])
@pytest.mark.parametrize(
    ("groups", "world", "most"),
    [
        (20, "normal 1", 1.2),
        (100, "normal 1", 1.2),
        (300, "normal 1", 1.2),
        (20, "halves 2.5", 1.05),
        (100, "halves 2.5", 1.05),
        (300, "halves 2.5", 1.05),
        # What is reported in one data set of four is what noise helped to find: 4 times too far by cluster effects.
        (20, "halves 1", 2.0),
        (100, "halves 1", 1.2),
        (300, "halves 0.7", 1.2),
        (20, "one 6", 1.05),
        (100, "one 6", 1.05),
        (300, "one 6", 1.05),
    ],
)
def test_the_mean_of_named_groups_is_covered_and_not_exaggerated(
    groups: int, world: str, most: float, profile: str
) -> None:
    runs, rng = 150 if groups < 300 else 60, np.random.default_rng(groups)
    covered, gaps, true_gaps = [], [], []
    for seed in range(runs):
        se = errors_of(profile, groups, rng)
        effects = effects_of(world, groups, rng)
        theta = effects + se * rng.standard_normal(groups)
        clusters = fl.cluster(fl.Estimates(theta, se), seed=seed)
        if clusters.n_clusters == 1:
            continue
        labels = clusters.labels - 1
        means = member_means(theta, se**2, labels, LEVEL)
        true = np.bincount(labels, effects / se**2) / np.bincount(labels, se**-2.0)
        covered.append(np.mean((means.lower <= true) & (true <= means.upper)))
        gaps.append(means.gap)
        true_gaps.append(true[np.argmax(means.estimate)] - true[np.argmin(means.estimate)])
    ratio, reported = np.mean(gaps) / np.mean(true_gaps), len(covered)
    error = 3 * np.std(np.array(gaps) - ratio * np.array(true_gaps)) / np.mean(true_gaps) / np.sqrt(reported)
    where = f"means of named groups; {groups} groups, {world}, {profile} se"
    record_figure("levels", f"{where}; covered", float(np.mean(covered)), reported)
    record_figure("levels", f"{where}; gap to the true one", float(ratio), reported, error=error / 3, unit="×")
    assert np.mean(covered) > 0.93 - monte_carlo_error(0.93, reported)
    assert ratio < most + error
