"""Shrunken estimates along attributes: close to the best of their rivals in every world, and intervals that cover."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np
import pytest

import faultlines as fl
from docs.figures import record_figure
from faultlines.core.shrinkage import Crossing, RandomEffects, Sample, fit_variances, list_blocks, predict, shrink

pytestmark = pytest.mark.statistical
Array = np.ndarray[Any, Any]
SHAPES = ((4, 3), (5, 4, 3), (5, 4, 3, 2))
WORLDS = (
    *"equal spread main mains pairs interactions halves outliers".split(),
    *"mains+outliers mains+halves pairs+outliers clusters nested".split(),
)
RUNS = 40


class World(NamedTuple):
    """Effects of the cells of a crossing, in typical standard errors."""

    kind: str
    shape: tuple[int, ...]

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
        """Estimates, variances, levels of the attributes and true effects."""
        codes = np.array(list(np.ndindex(*self.shape)))
        groups = len(codes)
        truth = np.zeros(groups)
        for part in self.kind.split("+"):
            truth += self._effects(part, codes, rng)
        if self.kind == "nested":
            codes = np.column_stack((codes[:, 0], codes[:, 0] * self.shape[1] + codes[:, 1], np.arange(groups)))
        se = rng.lognormal(0, 0.5, groups)
        return truth + se * rng.standard_normal(groups), se**2, codes, truth

    def _effects(self, part: str, codes: Array, rng: np.random.Generator) -> Array:
        groups, shape = len(codes), self.shape
        mains = [rng.normal(0, 1, size)[codes[:, j]] for j, size in enumerate(shape)]
        pair = rng.normal(0, 1, shape[:2])[codes[:, 0], codes[:, 1]]
        effects: dict[str, Array] = {
            "equal": np.zeros(groups),
            "spread": rng.normal(0, 1, groups),
            "main": 1.5 * mains[0],
            "mains": np.sum(mains, axis=0),
            "pairs": np.sum(mains, axis=0) + pair,
            "interactions": np.sum(mains, axis=0) + 0.7 * rng.normal(0, 1, groups),
            "halves": 4.0 * (rng.random(groups) < 0.5),
            "outliers": 6.0 * (rng.random(groups) < 0.06),
            "clusters": np.array([0.0, 4.0, 8.0])[rng.integers(0, 3, groups)],
            "nested": mains[0] + pair,
        }
        return effects[part]


def predict_fit(fit: RandomEffects, unit: float, sample: Sample) -> Array:
    """Posterior means of a mixed model with its variances plugged in."""
    own = (fit.prediction.variance + fit.tau2) / (fit.prediction.variance + fit.tau2 + sample.noise)
    return np.asarray(unit * (fit.prediction.mean + own * (sample.y - fit.prediction.mean)))


def compare(world: World, runs: int) -> dict[str, Any]:
    """Mean squared errors of the rivals, and the share of intervals that cover."""
    rng = np.random.default_rng(zlib.crc32(repr(tuple(world)).encode()))
    errors: dict[str, list[float]] = {}
    covered = []
    for _ in range(runs):
        theta, variance, codes, truth = world.draw(rng)
        clusters = fl.cluster(fl.Estimates(theta, np.sqrt(variance)), guarantee=fl.Calibrated(draws=200))
        rows = sorted(clusters.to_dicts("groups"), key=lambda row: int(row["group"]))
        shrunken = shrink(theta, variance, codes, np.asarray(clusters.labels) - 1)
        unit = float(np.sqrt(np.median(variance)))
        sample = Sample.of(theta / unit, variance / unit**2)
        mains, pairs = list_blocks(codes)
        estimates = {"new": shrunken.mean, "clusters": np.array([row["shrunken"] for row in rows])}
        for name, blocks in (("mean", []), ("mains", mains), ("pairs", [*mains, *pairs])):
            estimates[name] = predict_fit(fit_variances(Crossing.of(blocks, len(theta)), sample), unit, sample)
        for name, estimate in estimates.items():
            errors.setdefault(name, []).append(float(np.mean((estimate - truth) ** 2)))
        covered.append(float(np.mean((shrunken.lower <= truth) & (truth <= shrunken.upper))))
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    best = min((name for name in means if name != "new"), key=lambda name: means[name])
    excess = np.array(errors["new"]) - np.array(errors[best])
    return {
        "errors": means,
        "best": best,
        "ratio": means["new"] / max(means[best], 1e-12),
        "ratio_error": float(np.std(excess)) / np.sqrt(runs) / max(means[best], 1e-12),
        "to_clusters": means["new"] / means["clusters"],
        "to_pairs": means["new"] / means["pairs"],
        "covered": float(np.mean(covered)),
        "covered_error": float(np.std(covered)) / np.sqrt(runs),
    }


def test_variances_are_those_of_a_mixed_model() -> None:
    """With equal noise and one attribute the restricted likelihood is highest where statsmodels finds it."""
    mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(12), 8)
    theta = rng.normal(0, 1.5, 12)[codes] + rng.normal(0, 1.3, 96)
    reference = mixed.MixedLM(theta, np.ones((96, 1)), codes).fit(reml=True)
    crossing = Crossing.of(list_blocks(codes[:, None])[0], 96)
    spread, noise = float(reference.cov_re[0, 0]), float(reference.scale)
    prediction = predict(crossing, theta, np.full(96, noise), np.array([spread]), noise - 0.1)
    assert np.abs(prediction.gradient).max() < 1e-3


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shrunken_estimates_are_near_the_best_rival_in_every_world(shape: tuple[int, ...]) -> None:
    """Rivals: clusters alone, one mean, the mixed model with main effects, and the one with pairs."""
    results = {kind: compare(World(kind, shape), RUNS) for kind in WORLDS if kind != "nested" or len(shape) > 2}
    for kind, result in results.items():
        where = f"shrunken estimates, {' × '.join(map(str, shape))}; {kind}"
        ratio_error, covered_error = result["ratio_error"], result["covered_error"]
        record_figure("shrinkage", f"{where}; to the best rival", result["ratio"], RUNS, error=ratio_error, unit="×")
        record_figure("shrinkage", f"{where}; covered", result["covered"], RUNS, error=covered_error)
        error = 3 * result["ratio_error"]
        if kind == "equal":  # all errors are within 0.05 of a typical squared standard error, but for K = 12
            assert result["errors"]["new"] <= (0.05 if shape != SHAPES[0] else 0.13), kind
        else:
            assert result["ratio"] <= 1.3 + error, (kind, result)
        assert result["covered"] >= 0.93 - 3 * result["covered_error"], (kind, result)
    ratios = np.array([result["ratio"] for result in results.values()])
    assert np.median(ratios) <= 1.12
    assert np.mean([result["covered"] for result in results.values()]) >= 0.94
