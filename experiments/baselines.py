"""The methods that ours is compared with, each on estimates and standard errors, or on rows where it needs them.

They are written out here, or wrapped, so that all see the same data; the library knows none of them. Labels are 1 … m
by rising mean, and effects are what the method would tell a user of each group.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster
from scipy.optimize import isotonic_regression
from scipy.special import chdtrc, chdtri, stirling2

import faultlines as fl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]
    IntArray = npt.NDArray[np.int64]

Criterion = Literal["bic", "aic"]
MOST = 6  # clusters that a method which chooses their number may choose
_SQRT_2PI = math.sqrt(2 * math.pi)


class Fit(NamedTuple):
    """The cluster of each group, and its effect as the method sees it."""

    labels: IntArray
    effects: FloatArray

    @staticmethod
    def single(groups: int) -> Fit:
        """All groups in one cluster, before anything is known of them."""
        return Fit(np.ones(groups, dtype=np.int64), np.full(groups, np.nan))

    @property
    def n_clusters(self) -> int:
        """How many clusters have members."""
        return int(np.unique(self.labels).size)


def pooled(labels: npt.ArrayLike, theta: FloatArray, se: FloatArray) -> Fit:
    """Clusters numbered by rising precision-weighted mean, and that mean as the effect of each member."""
    _, which = np.unique(labels, return_inverse=True)
    weight = 1 / se**2
    mean = np.bincount(which, weight * theta) / np.bincount(which, weight)
    number = np.argsort(np.argsort(mean, kind="stable"), kind="stable") + 1
    return Fit(number[which].astype(np.int64), mean[which])


def ours(found: fl.Clustering) -> Fit:
    """A result of the library in the form of the others."""
    return Fit(found.labels, np.array([found.clusters[i - 1].estimate for i in found.labels.tolist()]))


# --------------------------------------------------------------------------------------------------- Gaussian mixture


@dataclass(frozen=True, slots=True)
class Mixture:
    """Gaussian mixtures of several data sets at once, every group's variance known: Microsoft's, as the paper has it.

    Group i of a data set has θ_i ~ Σ_c share_c N(mean_c, se_i²). Only shares and means are estimated.
    """

    theta: FloatArray  # (data sets, groups)
    se: FloatArray
    mean: FloatArray  # (data sets, components)
    share: FloatArray

    def responsibilities(self) -> tuple[FloatArray, FloatArray]:
        """The chance that a group belongs to a component, and the log-likelihood of each data set."""
        z = (self.theta[:, :, None] - self.mean[:, None, :]) / self.se[:, :, None]
        joint = np.log(self.share)[:, None, :] - 0.5 * z * z
        top = joint.max(axis=2, keepdims=True)
        joint = np.exp(joint - top)
        total = joint.sum(axis=2, keepdims=True)
        likelihood = (np.log(total[:, :, 0]) + top[:, :, 0] - np.log(_SQRT_2PI * self.se)).sum(axis=1)
        return joint / total, likelihood

    def step(self) -> tuple[Mixture, FloatArray]:
        """One step of EM, and the log-likelihoods before it."""
        chance, likelihood = self.responsibilities()
        weight = chance / (self.se**2)[:, :, None]
        # A component that nobody belongs to keeps its mean; its share is as good as zero.
        held = np.maximum(weight.sum(axis=1), 1e-300)
        mean = np.where(held > 1e-200, (weight * self.theta[:, :, None]).sum(axis=1) / held, self.mean)
        return Mixture(self.theta, self.se, mean, np.maximum(chance.mean(axis=1), 1e-12)), likelihood

    def fitted(self, *, cycles: int = 300, gain: float = 1e-6) -> tuple[Mixture, FloatArray]:
        """EM until no data set gains more than `gain` in log-likelihood; data sets that have arrived drop out.

        Where EM creeps, two steps tell where it is going: Varadhan and Roland's extrapolation goes there at once. It is
        taken only where it is likelier than the first step.
        """
        mean, share = self.mean.copy(), self.share.copy()
        likelihood = np.full(len(mean), -np.inf)
        active, now = np.arange(len(mean)), self
        for _ in range(cycles):
            one, reached = now.step()
            going = reached - likelihood[active] > gain
            likelihood[active], mean[active], share[active] = reached, now.mean, now.share
            if not going.any():
                break
            if not going.all():
                active, now, one = active[going], now.some(going), one.some(going)
            two, first = one.step()
            far, jumped = now.extrapolated(one, two).step()
            taken = (jumped >= first)[:, None]
            now = Mixture(now.theta, now.se, np.where(taken, far.mean, two.mean), np.where(taken, far.share, two.share))
        return Mixture(self.theta, self.se, mean, share), likelihood

    def some(self, which: npt.NDArray[np.bool_]) -> Mixture:
        """Some of the data sets."""
        return Mixture(self.theta[which], self.se[which], self.mean[which], self.share[which])

    def extrapolated(self, one: Mixture, two: Mixture) -> Mixture:
        """Where the path from here through one step and two is heading."""
        unit = self.se.min(axis=1, keepdims=True)  # so that means and shares weigh alike

        def parameters(mixture: Mixture) -> FloatArray:
            return np.concatenate([mixture.mean / unit, mixture.share], axis=1)

        start, middle = parameters(self), parameters(one)
        first = middle - start
        change = parameters(two) - middle - first
        length = np.linalg.norm(first, axis=1) / np.maximum(np.linalg.norm(change, axis=1), 1e-300)
        length = np.clip(length, 1.0, 1e4)[:, None]
        mean, share = np.split(start + 2 * length * first + length**2 * change, 2, axis=1)
        share = np.maximum(share, 1e-12)
        return Mixture(self.theta, self.se, mean * unit, share / share.sum(axis=1, keepdims=True))


def mixtures(
    estimates: Sequence[fl.Estimates], criteria: Sequence[Criterion] = ("bic", "aic"), most: int = MOST
) -> dict[Criterion, list[Fit]]:
    """Mixtures of many data sets with the same number of groups, the number of components by each criterion.

    EM starts twice, from quantiles and from the means of the optimal partition, and the better end counts. A data set
    is left when two more components have helped none of the criteria.
    """
    theta, se = np.array([one.theta for one in estimates]), np.array([one.se for one in estimates])
    sets, groups = theta.shape
    best = {criterion: np.full(sets, np.inf) for criterion in criteria}
    fits: dict[Criterion, list[Fit]] = {criterion: [Fit.single(groups)] * sets for criterion in criteria}
    partitions = [optimal_partitions(t, 1 / s**2, most)[0] for t, s in zip(theta, se, strict=True)]
    helped = np.zeros(sets, dtype=int)  # the last number of components that did
    for components in range(1, min(most, groups) + 1):
        going = np.flatnonzero(helped >= components - 2)
        if going.size == 0:
            break
        chosen = _better_end(theta[going], se[going], [partitions[i][components - 1] for i in going], components)
        chance, likelihood = chosen.responsibilities()
        for criterion in criteria:
            price = math.log(groups) if criterion == "bic" else 2.0
            score = -2 * likelihood + price * (2 * components - 1)
            for place in np.flatnonzero(score < best[criterion][going]):
                i, mean = going[place], chosen.mean[place]
                best[criterion][i], helped[i] = score[place], components
                rank = np.argsort(np.argsort(mean))[chance[place].argmax(axis=1)]
                # A component may be nobody's likeliest; clusters are numbered without it.
                labels = np.unique(rank, return_inverse=True)[1].astype(np.int64) + 1
                fits[criterion][i] = Fit(labels, chance[place] @ mean)
    return fits


def _better_end(theta: FloatArray, se: FloatArray, partitions: Sequence[IntArray], components: int) -> Mixture:
    """The likelier of two mixtures: EM from quantiles, and from the means of the given partitions."""
    quantiles = np.quantile(theta, (np.arange(components) + 0.5) / components, axis=1).T
    is_in = np.stack([labels[:, None] == np.arange(components) for labels in partitions])
    weight = is_in / (se**2)[:, :, None]
    means = (weight * theta[:, :, None]).sum(axis=1) / weight.sum(axis=1)
    starts = ((quantiles, np.full(quantiles.shape, 1 / components)), (means, is_in.mean(axis=1)))
    (first, reached), (second, higher) = (Mixture(theta, se, *start).fitted() for start in starts)
    better = (higher > reached)[:, None]
    return Mixture(theta, se, np.where(better, second.mean, first.mean), np.where(better, second.share, first.share))


def interleaved(labels: IntArray, theta: FloatArray) -> bool:
    """Whether some cluster, read along rising estimates, has members of another between its own."""
    along = labels[np.argsort(theta, kind="stable")]
    return bool(np.count_nonzero(np.diff(along)) + 1 > np.unique(labels).size)


# ------------------------------------------------------------------------------------ partitions of a line, and merging


def optimal_partitions(theta: FloatArray, weight: FloatArray, most: int = MOST) -> tuple[list[IntArray], FloatArray]:
    """The least weighted sum of squares with 1, 2, … clusters, exactly: dynamic programming over the sorted line.

    Returns the labels (0 … m − 1 by rising estimate) and the cost of each number of clusters.
    """
    order = np.argsort(theta, kind="stable")
    x, w = theta[order] - np.average(theta, weights=weight), weight[order]
    sums = np.concatenate([np.zeros((3, 1)), np.cumsum([w, w * x, w * x * x], axis=1)], axis=1)
    total, first, second = sums[:, None, :] - sums[:, :, None]  # [start, end): of every run of neighbours
    groups = x.size
    runs = np.tri(groups + 1, k=-1, dtype=bool).T
    cost = np.full((groups + 1, groups + 1), np.inf)
    cost[runs] = np.maximum(second[runs] - first[runs] ** 2 / total[runs], 0.0)
    reached, starts = cost[0], []
    costs = [float(reached[groups])]
    for _ in range(2, min(most, groups) + 1):
        through = reached[:, None] + cost
        starts.append(through.argmin(axis=0))
        reached = through.min(axis=0)
        costs.append(float(reached[groups]))
    made = []
    for clusters in range(1, len(costs) + 1):
        labels, end = np.empty(groups, dtype=np.int64), groups
        for number in range(clusters - 1, -1, -1):
            start = int(starts[number - 1][end]) if number else 0
            labels[order[start:end]] = number
            end = start
        made.append(labels)
    return made, np.array(costs)


def optimal_partition(theta: FloatArray, se: FloatArray) -> Fit:
    """The best partition of the line, the number of clusters by BIC with a mean and a border for each."""
    labels, costs = optimal_partitions(theta, 1 / se**2)
    price = math.log(theta.size) * (2 * np.arange(1, costs.size + 1) - 1)
    return pooled(labels[int(np.argmin(costs + price))], theta, se)


def kmeans(theta: FloatArray, se: FloatArray) -> Fit:
    """k-means on the estimates alone, solved exactly, k by the silhouette, which knows no k = 1."""
    from sklearn.metrics import silhouette_score

    labels, _ = optimal_partitions(theta, np.ones(theta.size))
    candidates = [one for one in labels[1:] if np.unique(one).size < theta.size]
    scores = [silhouette_score(theta[:, None], one) for one in candidates]
    return pooled(candidates[int(np.argmax(scores))], theta, se)


def chaid(theta: FloatArray, se: FloatArray, alpha: float = 0.05) -> Fit:
    """CHAID's handling of one nominal predictor: merge while p > α, then one χ² test of what is left.

    That test pays, as CHAID does, for the number of ways to merge K categories into m (Stirling's number).
    """
    heights = fl.agglomerate(fl.Estimates(theta, se)).to_linkage()
    merged = pooled(fcluster(heights, float(chdtri(1, alpha)), criterion="distance"), theta, se)
    left = merged.n_clusters
    weight = 1 / se**2
    between = float(np.sum(weight * (merged.effects - np.average(theta, weights=weight)) ** 2))
    p = float(chdtrc(left - 1, between)) if left > 1 else 1.0
    ways = stirling2(theta.size, left, exact=True)
    stands = p == 0 or math.log(p) + math.log(ways) < math.log(alpha)
    return merged if stands else pooled(np.ones(theta.size), theta, se)


# ----------------------------------------------------------------------------------------- penalised fixed effects


def fused(theta: FloatArray, weight: FloatArray, penalty: float, *, adaptive: bool = True) -> FloatArray:
    """Effects β that minimise ½ Σ w_i (θ_i − β_i)² + λ Σ_{i<j} a_ij |β_i − β_j| and keep the order of the estimates.

    All pairs are drawn together, as in CAS-ANOVA; a_ij = 1/|θ_i − θ_j| when adaptive, else 1. While the order stands,
    the penalty is linear in β, so that the minimum is an isotonic regression of shifted estimates. (Drawing together
    only neighbours on the sorted line would penalise nothing but the range: it clips both ends and merges nothing.)
    """
    order = np.argsort(theta, kind="stable")
    x, w = theta[order], weight[order]
    fitted = np.empty_like(x)
    fitted[order] = isotonic_regression(x - penalty * _pull(x, adaptive) / w, weights=w).x
    return fitted


def _pull(x: FloatArray, adaptive: bool) -> FloatArray:
    """Derivative of the penalty with respect to each effect while they are in the order of x."""
    apart = x[:, None] - x
    near = np.maximum(np.abs(apart), 1e-9 * max(float(np.ptp(x)), 1e-300))
    signs = np.tri(x.size, k=-1) - np.tri(x.size, k=-1).T
    return np.asarray((signs / near if adaptive else signs).sum(axis=1))


def fused_effects(theta: FloatArray, se: FloatArray, *, adaptive: bool = True, penalties: int = 60) -> Fit:
    """Penalised fixed effects, λ by BIC of the clusters it makes, their means estimated anew."""
    weight = 1 / se**2
    # The penalty at which the two halves of any cut of the line are drawn together: beyond it, all is one.
    order = np.argsort(theta, kind="stable")
    moment = np.cumsum(weight[order] * (np.average(theta, weights=weight) - theta[order]))[:-1]
    highest = float(np.max(moment / -np.cumsum(_pull(theta[order], adaptive))[:-1]))
    best, chosen = math.inf, pooled(np.ones(theta.size), theta, se)
    for penalty in highest * np.geomspace(1.0, 1e-4, penalties):
        fit = pooled(np.round(fused(theta, weight, penalty, adaptive=adaptive), 12), theta, se)
        score = float(np.sum(weight * (theta - fit.effects) ** 2)) + math.log(theta.size) * (2 * fit.n_clusters - 1)
        if score < best:
            best, chosen = score, fit
    return chosen


# ---------------------------------------------------------------------------------------------- trees and forests


class Rows(NamedTuple):
    """People of an experiment: outcome, arm (0 or 1) and group (0 … K − 1)."""

    outcome: FloatArray
    arm: IntArray
    group: IntArray


def _causal_tree(features: FloatArray, rows: Rows, of_groups: FloatArray, seed: int, pruned: bool) -> FloatArray:
    from causalml.inference.tree import CausalTreeRegressor

    # With its default penalty for arms of unequal size, the tree cuts where the arms happen to be even, and not where
    # effects differ; without it and pruned by cross-validation it does best here.
    options = {"ccp_alpha": "cv", "groups_penalty": 0.0} if pruned else {}
    grown = CausalTreeRegressor(random_state=seed, **options).fit(features, rows.arm, rows.outcome)
    return np.asarray(grown.predict(of_groups), dtype=float).ravel()


def _causal_forest(features: FloatArray, rows: Rows, of_groups: FloatArray, seed: int, _: bool) -> FloatArray:
    from econml.grf import CausalForest

    forest = CausalForest(random_state=seed, n_jobs=1).fit(features, rows.arm, rows.outcome)
    return np.asarray(forest.predict(of_groups), dtype=float).ravel()


class _Tree(NamedTuple):
    package: str
    effects: Callable[[FloatArray, Rows, FloatArray, int, bool], FloatArray]
    encoded: bool = False
    pruned: bool = False


TREES = {
    "causal tree, one-hot": _Tree("causalml", _causal_tree),
    "causal tree, encoded": _Tree("causalml", _causal_tree, encoded=True),
    "causal tree, encoded, pruned": _Tree("causalml", _causal_tree, encoded=True, pruned=True),
    "honest forest, one-hot": _Tree("econml", _causal_forest),
    "honest forest, encoded": _Tree("econml", _causal_forest, encoded=True),
}


@cache
def is_installed(package: str) -> bool:
    """Whether a baseline's package is here; studies go on without it and say so."""
    return find_spec(package) is not None


def tree(method: str, rows: Rows, theta: FloatArray, seed: int) -> Fit:
    """CausalML's causal tree or EconML's honest forest (as in grf); clusters are groups of one predicted effect.

    Groups are given as indicators, or encoded as one number: the group's own estimate from these same rows. That tells
    the method the order of the groups, which is the best chance it can have. Settings are the packages' own, but for
    the tree that is pruned.
    """
    kind = TREES[method]
    of_groups = theta[:, None] if kind.encoded else np.eye(theta.size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        effects = kind.effects(of_groups[rows.group], rows, of_groups, seed, kind.pruned)
    _, labels = np.unique(np.round(effects, 12), return_inverse=True)
    return Fit(labels.astype(np.int64) + 1, effects)


# ------------------------------------------------------------------------------------------------ all methods by name

_CALIBRATED = fl.Calibrated(draws=999, scan=False)
_GUARANTEED: dict[str, Callable[[fl.Estimates, int], fl.Clustering]] = {
    "literal": lambda estimates, _: fl.cluster(estimates, guarantee="bonferroni", refine=False),
    "calibrated": lambda estimates, seed: fl.cluster(estimates, guarantee=_CALIBRATED, seed=seed),
    "calibrated, not refined": lambda estimates, seed: fl.cluster(
        estimates, guarantee=_CALIBRATED, refine=False, seed=seed
    ),
    "calibrated, step-down": lambda estimates, seed: fl.cluster(
        estimates, guarantee=fl.Calibrated(draws=999, stepdown=True), seed=seed
    ),
    "holdout": lambda estimates, seed: fl.cluster(estimates, guarantee=fl.Holdout(splits=1), seed=seed),
}
_ALONE: dict[str, Callable[[FloatArray, FloatArray], Fit]] = {
    "optimal partition, BIC": optimal_partition,
    "k-means, silhouette": kmeans,
    "CHAID-style merging": chaid,
    "fused effects": fused_effects,
}
_MIXTURES: dict[str, Criterion] = {"mixture, BIC": "bic", "mixture, AIC": "aic"}


def fits(methods: Sequence[str], estimates: Sequence[fl.Estimates], seeds: Sequence[int]) -> dict[str, list[Fit]]:
    """What each method makes of each data set; every method sees the same ones."""
    made: dict[str, list[Fit]] = {}
    criteria = [_MIXTURES[method] for method in methods if method in _MIXTURES]
    mixed = mixtures(estimates, criteria) if criteria else {}
    for method in methods:
        if method in _GUARANTEED:
            judge = _GUARANTEED[method]
            made[method] = [ours(judge(one, seed)) for one, seed in zip(estimates, seeds, strict=True)]
        elif method in _ALONE:
            made[method] = [_ALONE[method](one.theta, one.se) for one in estimates]
        else:
            made[method] = mixed[_MIXTURES[method]]
    return made
