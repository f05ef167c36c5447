"""The Gaussian mixture, its number of components by likelihood ratio tests that draws calibrate (McLachlan)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.baselines.fit import MOST, Fit
from experiments.baselines.line import optimal_partitions
from experiments.baselines.mixture import Mixture, better_end
from faultlines.types import FloatArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    import faultlines as fl

COARSE = 1e-3  # EM's last gain in a test, in the data as in the draws, so that p is exact for a simple null


def mixture_by_ratio(
    estimates: Sequence[fl.Estimates], *, alpha: float = 0.05, draws: int = 39, most: int = MOST, seed: int = 0
) -> list[Fit]:
    """m components are enough unless m + 1 are likelier than in all but α of draws from the fitted m; m = 1, 2, …"""
    theta, se = np.array([groups.theta for groups in estimates]), np.array([groups.se for groups in estimates])
    sets = len(theta)
    chosen = np.ones(sets, dtype=int)
    going, rng = np.arange(sets), np.random.default_rng(seed)
    for components in range(1, min(most, theta.shape[1])):
        if going.size == 0:
            break
        p = ratio_pvalues(theta[going], se[going], components, draws, rng)
        going = going[p <= alpha]
        chosen[going] = components + 1
    fits = [Fit.single(theta.shape[1])] * sets
    for components in np.unique(chosen).tolist():
        own = np.flatnonzero(chosen == components)
        ended = _ended(theta[own], se[own], components, 1e-6)
        chance = ended.responsibilities()[0]
        for place, i in enumerate(own):
            rank = np.argsort(np.argsort(ended.mean[place]))[chance[place].argmax(axis=1)]
            labels = np.unique(rank, return_inverse=True)[1].astype(np.int64) + 1
            fits[i] = Fit(labels, chance[place] @ ended.mean[place])
    return fits


def ratio_pvalues(
    theta: FloatArray, se: FloatArray, components: int, draws: int, rng: np.random.Generator
) -> FloatArray:
    """p of "so many components are enough", for each data set."""
    sets, groups = theta.shape
    null = _ended(theta, se, components, COARSE)
    seen = _ended(theta, se, components + 1, COARSE).responsibilities()[1] - null.responsibilities()[1]
    member = (rng.random((sets, draws, groups, 1)) > np.cumsum(null.share, axis=1)[:, None, None, :-1]).sum(axis=-1)
    mean = np.take_along_axis(null.mean[:, None, :], member.reshape(sets, 1, -1), axis=2).reshape(member.shape)
    noise = np.repeat(se[:, None, :], draws, axis=1)
    drawn = (mean + noise * rng.standard_normal(member.shape)).reshape(-1, groups)
    noise = noise.reshape(-1, groups)
    simple, richer = (_ended(drawn, noise, m, COARSE).responsibilities()[1] for m in (components, components + 1))
    ratio = (richer - simple).reshape(sets, draws)
    return np.asarray((1 + (ratio >= seen[:, None]).sum(axis=1)) / (draws + 1))


def _ended(theta: FloatArray, se: FloatArray, components: int, gain: float) -> Mixture:
    """The likeliest mixture that EM finds from two starts."""
    if components == 1:
        mean = np.average(theta, axis=1, weights=1 / se**2)
        return Mixture(theta, se, mean[:, None], np.ones((len(theta), 1)))
    labels = [optimal_partitions(t, 1 / s**2, components)[0][-1] for t, s in zip(theta, se, strict=True)]
    return better_end(theta, se, labels, components, gain=gain)
