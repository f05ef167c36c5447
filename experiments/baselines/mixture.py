"""Microsoft's Gaussian mixture, as the paper has it: variances known, the number of components by BIC or AIC."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from experiments.baselines.fit import MOST, Fit
from experiments.baselines.line import optimal_partitions
from faultlines.types import FloatArray, IntArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    import faultlines as fl

Criterion = Literal["bic", "aic"]
_SQRT_2PI = math.sqrt(2 * math.pi)


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
        """The probability that a group belongs to a component, and the log-likelihood of each data set."""
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
            stepped, reached = now.step()
            going = reached - likelihood[active] > gain
            likelihood[active], mean[active], share[active] = reached, now.mean, now.share
            if not going.any():
                break
            if not going.all():
                active, now, stepped = active[going], now.some(going), stepped.some(going)
            two, first = stepped.step()
            far, jumped = now.extrapolated(stepped, two).step()
            taken = (jumped >= first)[:, None]
            now = Mixture(now.theta, now.se, np.where(taken, far.mean, two.mean), np.where(taken, far.share, two.share))
        return Mixture(self.theta, self.se, mean, share), likelihood

    def some(self, which: npt.NDArray[np.bool_]) -> Mixture:
        """Some of the data sets."""
        return Mixture(self.theta[which], self.se[which], self.mean[which], self.share[which])

    def extrapolated(self, stepped: Mixture, two: Mixture) -> Mixture:
        """Where the path from here through one step and two is heading."""
        unit = self.se.min(axis=1, keepdims=True)  # so that means and shares weigh alike

        def parameters(mixture: Mixture) -> FloatArray:
            return np.concatenate([mixture.mean / unit, mixture.share], axis=1)

        start, middle = parameters(self), parameters(stepped)
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
    theta, se = np.array([groups.theta for groups in estimates]), np.array([groups.se for groups in estimates])
    sets, groups = theta.shape
    best = {criterion: np.full(sets, np.inf) for criterion in criteria}
    fits: dict[Criterion, list[Fit]] = {criterion: [Fit.single(groups)] * sets for criterion in criteria}
    partitions = [optimal_partitions(t, 1 / s**2, most)[0] for t, s in zip(theta, se, strict=True)]
    helped = np.zeros(sets, dtype=int)  # the last number of components that did
    for components in range(1, min(most, groups) + 1):
        going = np.flatnonzero(helped >= components - 2)
        if going.size == 0:
            break
        chosen = better_end(theta[going], se[going], [partitions[i][components - 1] for i in going], components)
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


def better_end(
    theta: FloatArray, se: FloatArray, partitions: Sequence[IntArray], components: int, *, gain: float = 1e-6
) -> Mixture:
    """The likelier of two mixtures: EM from quantiles, and from the means of the given partitions."""
    quantiles = np.quantile(theta, (np.arange(components) + 0.5) / components, axis=1).T
    is_in = np.stack([labels[:, None] == np.arange(components) for labels in partitions])
    weight = is_in / (se**2)[:, :, None]
    means = (weight * theta[:, :, None]).sum(axis=1) / weight.sum(axis=1)
    starts = ((quantiles, np.full(quantiles.shape, 1 / components)), (means, is_in.mean(axis=1)))
    (first, reached), (second, higher) = (Mixture(theta, se, *start).fitted(gain=gain) for start in starts)
    better = (higher > reached)[:, None]
    return Mixture(theta, se, np.where(better, second.mean, first.mean), np.where(better, second.share, first.share))
