"""Rows in which nothing differs, of many kinds: how often is a difference reported?

Rows are simulated and summed to moments here, by plain NumPy, for speed; that engines give the same moments is tested
elsewhere. Everything from the moments on is the library's own.
"""

from __future__ import annotations

import zlib
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import faultlines as fl
from faultlines.core.normal import compare_one_effect
from faultlines.estimates.reasons import unmarked
from faultlines.rows.request import Moments
from tests.statistical.tally import is_settled

if TYPE_CHECKING:
    from collections.abc import Callable

ARMS: dict[str, Any] = {"variant": "arm", "control": "A", "treatment": "B"}
MEANS = {"normal": 3.0, "lognormal": float(np.exp(0.5)), "spend": 0.1 * float(np.exp(0.5)), "rare": 0.03}
SHARES = {"one": (1.0,), "50/50": (0.5, 0.5), "10/90": (0.9, 0.1)}


class Cell(NamedTuple):
    """One kind of rows."""

    metric: str
    groups: int
    sizes: str
    rows: str
    arms: str
    spread: str

    @property
    def seed(self) -> int:
        return zlib.crc32("|".join(map(str, self)).encode())

    def describe(self) -> str:
        """The kind in words, as a page shows it."""
        arms = "" if self.arms == "one" else f", arms {self.arms}"
        values = f"{self.metric} of {self.rows} values, {self.spread} spread{arms}"
        return f"{values}, {self.groups} groups of size {self.sizes}"


METRICS: dict[str, Any] = {
    "mean": fl.mean("x"),
    "weighted mean": fl.mean("x", weight="w"),
    "ratio": fl.ratio("x", "y"),
    "difference": fl.difference("x", **ARMS),
    "difference, CUPED": fl.difference("x", covariate="z", **ARMS),
    "ratio_difference": fl.ratio_difference("x", "y", **ARMS),
    "lift": fl.lift("x", **ARMS),
}


def cells() -> list[Cell]:
    """Every kind of rows that is looked at."""
    rows = []
    for name, metric in METRICS.items():
        arms = ("50/50", "10/90") if metric.arms else ("one",)
        # A lift of values that may be negative, or that scatter about a common mean, is no lift.
        spreads = ("equal",) if name == "lift" else ("equal", "unequal")
        for cell in product((10, 40, 100), ("50", "lognormal", "Zipf"), MEANS, arms, spreads):
            rows.append(Cell(name, *cell))
    return rows


def sizes_of(kind: str, groups: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Rows of every group (in each arm of an even split)."""
    if kind == "50":
        return np.full(groups, 50)
    drawn = 100 * rng.lognormal(0, 1, groups) if kind == "lognormal" else 3000 / np.arange(1, groups + 1)
    return np.maximum(20, np.round(drawn)).astype(int)


def values_of(kind: str, rng: np.random.Generator, size: int) -> np.ndarray[Any, Any]:
    """Values without any difference: normal; skewed; one in ten spends something; three in a hundred do."""
    if kind == "normal":
        return 3 + rng.standard_normal(size)
    if kind == "rare":
        return (rng.random(size) < 0.03).astype(float)
    values = rng.lognormal(0, 1, size)
    return np.where(rng.random(size) < 0.1, values, 0.0) if kind == "spend" else values


def moments_of(columns: list[np.ndarray[Any, Any]], sizes: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """n, mean, covariance, skewness and kurtosis of every variable by group; rows of a group stand together."""
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    with np.errstate(all="ignore"):
        mean = np.stack([np.add.reduceat(c, starts) / sizes for c in columns], axis=1)
        apart = [c - np.repeat(mean[:, i], sizes) for i, c in enumerate(columns)]
        cov = np.stack(
            [np.stack([np.add.reduceat(a * b, starts) / (sizes - 1) for b in apart], axis=1) for a in apart], axis=1
        )
        square = np.stack([np.add.reduceat(a**2, starts) / sizes for a in apart], axis=1)
        third, fourth = (np.stack([np.add.reduceat(a**k, starts) / sizes for a in apart], axis=1) for k in (3, 4))
        n = np.repeat(sizes[:, None], len(columns), axis=1).astype(float)
        return [n, mean, cov, third / square**1.5, fourth / square**2]


def variables_of(
    cell: Cell, x: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any], rng: np.random.Generator
) -> list[np.ndarray[Any, Any]]:
    """The variables that the metric forms of a value."""
    if "ratio" in cell.metric:
        return [x, 1.0 + rng.poisson(2, x.size)]
    if cell.metric == "weighted mean":
        weight = rng.lognormal(0, 0.5, x.size)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        centre = np.repeat(np.add.reduceat(x, starts) / sizes, sizes)
        return [weight * (x - centre), weight, centre]
    if "CUPED" in cell.metric:
        return [x, x + values_of(cell.rows, rng, x.size)]
    return [x]


def estimates_of(cell: Cell, rng: np.random.Generator) -> fl.Estimates | None:
    """What the metric makes of one data set; None where fewer than two groups can be used."""
    metric = METRICS[cell.metric]
    base = sizes_of(cell.sizes, cell.groups, rng)
    spread = rng.lognormal(0, 1, cell.groups) if cell.spread == "unequal" else np.ones(cell.groups)
    parts = []
    for share in SHARES[cell.arms]:
        sizes = np.maximum(2, np.round(base * share * len(SHARES[cell.arms]))).astype(int)
        x = values_of(cell.rows, rng, int(sizes.sum()))
        centre = MEANS[cell.rows]
        parts.append(
            moments_of(variables_of(cell, centre + (x - centre) * np.repeat(spread, sizes), sizes, rng), sizes)
        )
    moments = Moments(*(np.stack(part, axis=1) for part in zip(*parts, strict=True)))
    measured = metric.measured(moments)
    good = unmarked(measured.reason) & (moments.n.min(axis=(1, 2)) >= metric.min_size)
    if good.sum() < 2:
        return None
    compared = None if measured.compared is None else measured.compared[good]
    return fl.Estimates(
        measured.theta[good],
        measured.se[good],
        None,
        measured.n[good],
        measured.dof[good],
        scale=metric.scale,
        compared=compared,
    )


def is_reported(estimates: fl.Estimates, seed: int, alpha: float = 0.05) -> bool:
    """Whether a difference is reported."""
    path = fl.Calibrated().find_path(compare_one_effect(estimates, 0.0), seed, refine=True, cores=1)
    return bool(path.log_pvalue < np.log(alpha))


class Reported(NamedTuple):
    """The share of data sets in which a difference is reported, how many could be tested, and how many were drawn."""

    share: float
    tested: int
    drawn: int


def share_reported(cell: Cell, runs: int, test: Callable[[fl.Estimates, int], bool] = is_reported) -> Reported:
    """How often a difference is reported: in all runs, or in as many as settle that it is not .075."""
    rng = np.random.default_rng(cell.seed)
    reported, drawn = list[bool](), 0
    while drawn < runs and not (len(reported) == drawn and is_settled(sum(reported), drawn)):
        if (estimates := estimates_of(cell, rng)) is not None:
            reported.append(test(estimates, drawn))
        drawn += 1
    return Reported(float(np.mean(reported)) if reported else float("nan"), len(reported), drawn)
