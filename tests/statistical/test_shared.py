"""Groups that share data: false positives, coverage and certificates with covariances of many kinds, and from rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import faultlines as fl
from docs.figures import record_figure
from faultlines.core.normal import compare_one_effect
from faultlines.guarantees import joint_test as joint
from tests.statistical.tally import scale_runs

pytestmark = pytest.mark.statistical


def covariance(kind: str, groups: int, rng: np.random.Generator) -> Any:
    """Correlations of a kind, with equal or unequal standard errors."""
    name, _, size = kind.partition(" ")
    place, errors = np.arange(groups), np.exp(0.5 * rng.standard_normal(groups))
    if name == "equal":
        value = -0.5 / (groups - 1) if size == "negative" else float(size)
        matrix = np.full((groups, groups), value)
        np.fill_diagonal(matrix, 1.0)
        return matrix
    if name == "uneven":
        matrix = np.full((groups, groups), float(size))
        np.fill_diagonal(matrix, 1.0)
    elif name == "neighbours":
        return float(size) ** np.abs(place[:, None] - place)
    elif name == "blocks":
        block = place // max(2, groups // 4)
        matrix = np.where(block[:, None] == block, float(size), 0.0)
        np.fill_diagonal(matrix, 1.0)
    else:
        root = rng.standard_normal((groups, groups + 5))
        return root @ root.T / groups
    return matrix * errors[:, None] * errors


KINDS = ["equal negative", "equal 0.9", "uneven 0.5", "neighbours 0.9", "neighbours -0.5", "blocks 0.9", "any"]


def within(share: float, runs: int, level: float = 0.05, sigmas: float = 3.5) -> bool:
    return share <= level + sigmas * math.sqrt(level * (1 - level) / runs)


@pytest.mark.parametrize("groups", [5, 21, 102])
@pytest.mark.parametrize("kind", KINDS)
def test_false_positives_with_covariances(kind: str, groups: int) -> None:
    """1,000 null data sets each, 400 with 102 groups; within error of α at .05 and at .1, from both sides."""
    rng, runs = np.random.default_rng([groups, KINDS.index(kind)]), scale_runs(1000 if groups < 100 else 400)
    matrix = covariance(kind, groups, rng)
    root, p = np.linalg.cholesky(matrix), np.empty(runs)
    for i in range(runs):
        estimates = fl.Estimates(root @ rng.standard_normal(groups), None, covariance=matrix)
        p[i] = np.exp(
            joint.JointTest(joint.extract_effects(compare_one_effect(estimates)), None, i).test(np.arange(groups)).log_p
        )
    for level in (0.05, 0.1):
        share, error = float(np.mean(p <= level)), math.sqrt(level * (1 - level) / runs)
        record_figure("shared", f"false positives at {level}; {kind}; {groups} groups", share, runs)
        assert abs(share - level) <= 3.5 * error


def test_false_positives_with_estimated_covariances() -> None:
    """A factor that is estimated on 10 degrees of freedom: F, not χ²; 2,000 runs."""
    rng, runs, groups = np.random.default_rng(4), scale_runs(2000), 8
    matrix = covariance("any", groups, rng)
    root, claims = np.linalg.cholesky(matrix), 0
    for i in range(runs):
        factor = rng.chisquare(10) / 10
        estimates = fl.Estimates(root @ rng.standard_normal(groups), None, dof=10, covariance=factor * matrix)
        claims += joint.JointTest(joint.extract_effects(compare_one_effect(estimates)), None, i).test(
            np.arange(groups)
        ).log_p <= np.log(0.05)
    record_figure("shared", "false positives; a factor on 10 degrees of freedom, 8 groups", claims / runs, runs)
    assert abs(claims / runs - 0.05) <= 3.5 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("kind", ["equal 0.9", "uneven 0.5", "neighbours 0.9", "blocks 0.9"])
def test_coverage_with_covariances(kind: str) -> None:
    """20 groups in two clusters 6 standard errors apart, 300 runs: levels, any cluster, shrunken effects, groups."""
    rng, runs, groups = np.random.default_rng(7), scale_runs(300), 20
    matrix = covariance(kind, groups, rng)
    root = np.linalg.cholesky(matrix)
    truth = np.where(np.arange(groups) < 10, 0.0, 6 * float(np.median(np.sqrt(np.diag(matrix)))))
    hits: dict[str, list[float]] = {"levels": [], "simultaneous": [], "shrunken": [], "certificate": []}
    for i in range(runs):
        result: Any = fl.cluster(
            fl.Estimates(truth + root @ rng.standard_normal(groups), None, covariance=matrix), seed=i
        )
        if result.n_clusters == 2:
            for cluster, level in zip(result.clusters, np.unique(truth), strict=True):
                hits["levels"].append(cluster.ci[0] <= level <= cluster.ci[1])
        of_clusters = []
        for number, cluster in enumerate(result.clusters, start=1):
            mine = result.labels == number
            weight = result.groups.estimates.own[mine, 0] ** -2.0
            mean = float(np.average(truth[mine], weights=weight))
            of_clusters.append(cluster.simultaneous_ci[0] <= mean <= cluster.simultaneous_ci[1])
        hits["simultaneous"].append(all(of_clusters))
        belief = result.posterior
        hits["shrunken"].append(float(np.mean((belief.lower[:, 0] <= truth) & (truth <= belief.upper[:, 0]))))
        signed = fl.certify(result.groups.estimates, gap=1.0, seed=i)
        away = truth - np.average(truth, weights=result.groups.estimates.own[:, 0] ** -2.0)
        ends = [(group.lower, group.upper) for group in signed.groups]
        hits["certificate"].append(all(low <= a <= high for (low, high), a in zip(ends, away, strict=True)))
    for name, several in hits.items():
        share, error = float(np.mean(several)), math.sqrt(0.05 * 0.95 / runs)
        record_figure("shared", f"coverage; {kind}; {name}", share, len(several))
        assert share >= 0.95 - (3.5 * error if name != "shrunken" else 0.06)


def shared_rows(rng: np.random.Generator, users: int, groups: int, spread: float) -> pd.DataFrame:
    """Users with four rows in any of the groups, two arms by user, nothing that differs between groups."""
    user = np.repeat(np.arange(users), 4)
    arm = rng.integers(0, 2, users)[user]
    value = spread * rng.gamma(1.0, 1.0, users)[user] + rng.gamma(1.0, 1.0, user.size)
    return pd.DataFrame({"user": user, "arm": arm, "group": rng.integers(0, groups, user.size), "y": value})


@pytest.mark.parametrize("groups", [3, 8])
def test_false_positives_from_rows_of_users_in_several_groups(groups: int) -> None:
    """Skewed values, 700 runs each."""
    runs, claims = scale_runs(700), 0
    metric = fl.difference("y", variant="arm", control=0, unit="user", overlap="covariance")
    for i in range(runs):
        frame = shared_rows(np.random.default_rng([groups, i]), 600, groups, 3.0)
        claims += fl.cluster(frame, "group", metric, seed=i).n_clusters > 1
    record_figure("shared", f"false positives; rows of users in several of {groups} groups", claims / runs, runs)
    assert within(claims / runs, runs, level=0.06)


@pytest.mark.parametrize(("users", "groups", "share"), [(60, 24, 1.0), (100, 24, 1.0), (200, 24, 0.3)])
def test_false_positives_of_few_users_in_many_groups(users: int, groups: int, share: float) -> None:
    """Taken as known, the covariance of 24 groups from 100 users makes four times as many false claims as α."""
    runs, claims = scale_runs(300), 0
    metric = fl.difference("y", variant="arm", control=0, unit="user", overlap="covariance")
    for i in range(runs):
        rng = np.random.default_rng([users, groups, i])
        user, group = np.repeat(np.arange(users), groups), np.tile(np.arange(groups), users)
        value = rng.standard_normal(users)[user] + rng.standard_normal(user.size)
        frame = pd.DataFrame({"user": user, "arm": user % 2, "group": group, "y": value})
        estimates = fl.measure(frame[rng.random(user.size) < share], "group", metric, min_size=2).estimates
        claims += fl.cluster(estimates, seed=i).n_clusters > 1
    record_figure("shared", f"false positives; {users} users in {share:.0%} of {groups} groups", claims / runs, runs)
    assert within(claims / runs, runs)


def test_false_positives_of_a_clustered_regression() -> None:
    """Forty shops, twelve groups."""
    runs, claims, shops, groups, rows = scale_runs(200), 0, 40, 12, 2400
    names = [f"{kind}{k}" for kind in "at" for k in range(groups)]
    for i in range(runs):
        rng = np.random.default_rng([9, i])
        shop, group = np.repeat(np.arange(shops), rows // shops), rng.integers(0, groups, rows)
        level = 0.5 * rng.standard_normal((shops, groups)) + rng.standard_normal((shops, 1))
        design = np.zeros((rows, 2 * groups))
        design[np.arange(rows), group] = 1
        design[np.arange(rows), groups + group] = shop % 2
        model = sm.OLS(level[shop, group] + rng.standard_normal(rows), pd.DataFrame(design, columns=names))
        fit = model.fit(cov_type="cluster", cov_kwds={"groups": shop})
        claims += fl.cluster(fl.Estimates.from_fit(fit, names[groups:]), seed=i).n_clusters > 1
    record_figure("shared", "false positives; a clustered regression, 40 shops, 12 groups", claims / runs, runs)
    assert within(claims / runs, runs)


def test_false_positives_of_several_treatments() -> None:
    """Four treatments with one control in each of five groups, 400 runs; one against χ² as if independent."""
    rng, runs, claims, naive = np.random.default_rng(3), scale_runs(400), 0, 0
    metric = fl.difference("y", variant="arm", control=0, treatment="*")
    for i in range(runs):
        frame = pd.DataFrame({
            "arm": rng.choice(5, 3000, p=[0.2, 0.2, 0.2, 0.2, 0.2]),
            "group": rng.integers(0, 5, 3000),
            "y": rng.gamma(1.0, 1.0, 3000),
        })  # fmt: skip
        result: Any = fl.cluster(frame, "group", metric, seed=i)
        claims += result.n_clusters > 1
        estimates = result.groups.estimates
        alone = fl.Estimates(estimates.values[:, 0], estimates.se, estimates.labels, dof=estimates.dof)
        naive += fl.cluster(alone, seed=i).n_clusters > 1
    record_figure("shared", "false positives; four treatments and one control", claims / runs, runs)
    record_figure("shared", "false positives; four treatments and one control, as if independent", naive / runs, runs)
    assert within(claims / runs, runs)
