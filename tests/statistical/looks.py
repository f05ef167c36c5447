"""Whole paths of estimates while data come in, for the studies of `fl.Monitor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultlines.analyses.monitor import NullPaths
from faultlines.core.normal import compare_one_effect
from faultlines.estimates.estimates import Estimates
from faultlines.guarantees.boundaries import LookRecord, Spending, compute_boundaries
from faultlines.guarantees.joint_test import JointTest, extract_effects
from faultlines.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from faultlines.guarantees.joint_test import NullDistribution

DRAWS = 10_000


class Seen(NamedTuple):
    """What happened in many runs: whether clusters were claimed, at which information, and what one look would see."""

    claimed: BoolArray
    information: FloatArray
    one_look: BoolArray

    @property
    def share(self) -> float:
        """Runs in which clusters were claimed at some look."""
        return float(self.claimed.mean())


def null_of(se: FloatArray) -> NullDistribution:
    """What the test of a monitor looks at in groups with these standard errors, which rise."""
    return JointTest(
        extract_effects(compare_one_effect(Estimates(np.zeros(se.size), se))), None, 0
    ).null_distribution()[0]


def information(looks: int, *, even: bool, seed: int = 0) -> FloatArray:
    """Shares of the final information at every look."""
    if even:
        return np.arange(1, looks + 1) / looks
    return np.append(np.sort(np.random.default_rng(seed).uniform(0.02, 1, looks - 1)), 1.0)


def errors(groups: int, profile: str) -> FloatArray:
    """Standard errors at the end, in rising order."""
    if profile == "equal":
        return np.ones(groups)
    return np.sort(np.exp(np.random.default_rng(groups).standard_normal(groups)))


def walked(rng: np.random.Generator, runs: int, clock: FloatArray, drift: FloatArray | float) -> Iterator[FloatArray]:
    """z of every group at every look; `drift` is the true effect in standard errors of the end."""
    groups = np.size(drift) if np.size(drift) > 1 else 1
    motion, before = np.zeros((runs, groups)), 0.0
    for now in clock.tolist():
        motion += np.sqrt(now - before) * rng.standard_normal(motion.shape)
        before = now
        yield motion / np.sqrt(now) + np.asarray(drift) * np.sqrt(now)


def critical(
    null: NullDistribution, clock: FloatArray, fractions: FloatArray, spending: str, seed: int = 1
) -> tuple[FloatArray, list[FloatArray]]:
    """The boundary of a monitor with these looks, which does not depend on what it sees; and its draws."""
    paths, drawn = NullPaths(DRAWS, seed), []
    groups = np.arange(null.scale.size)
    for now in clock.tolist():
        paths.advance(np.full(groups.size, now), np.full(groups.size, np.inf))
        drawn.append(null.statistics_of_noise(paths.noise(groups)[0]))
    return compute_boundaries(LookRecord([], [], drawn), Spending.of(spending).spent(0.05, fractions)), drawn


def monitored(
    se: FloatArray,
    drift: FloatArray,
    clock: FloatArray,
    *,
    spending: str = "reserve",
    fractions: FloatArray | None = None,
    runs: int = 4000,
    seed: int = 0,
) -> Seen:
    """Many runs of a monitor of groups with these true effects."""
    null = null_of(se)
    boundary, drawn = critical(null, clock, clock if fractions is None else fractions, spending, seed)
    rng = np.random.default_rng([seed, 99])
    values = np.array([null.statistics_of_noise(z) for z in walked(rng, runs, clock, drift)])
    above = values > boundary[:, None]
    claimed = np.asarray(above.any(axis=0))
    stop = np.where(claimed, above.argmax(axis=0), clock.size - 1)
    return Seen(claimed, clock[stop], values[-1] > np.quantile(drawn[-1], 0.95))
