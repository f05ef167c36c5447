"""Planted clusters, found and described: are effects, memberships and shrunken estimates right?"""

from __future__ import annotations

import zlib
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import faultlines as fl

Array = np.ndarray[Any, Any]


class Cell(NamedTuple):
    """Clusters at these levels, in typical standard errors, with these shares of the groups."""

    levels: tuple[float, ...]
    shares: tuple[float, ...]
    groups: int
    profile: str
    dof: float | None = None

    @property
    def seed(self) -> int:
        return zlib.crc32(repr(tuple(self)).encode())

    def describe_levels(self) -> str:
        """Levels and shares, as a page shows them."""
        levels = ", ".join(f"{level:g}" for level in self.levels)
        return f"{levels} ({', '.join(f'{share:.0%}' for share in self.shares)})"

    def describe_errors(self) -> str:
        """Groups and their standard errors, as a page shows them."""
        return f"{self.groups} groups, {'10 degrees' if self.dof else f'{self.profile} se'}"

    def drawn(self, rng: np.random.Generator) -> tuple[fl.Estimates, Array]:
        """Estimates, and the true effects."""
        ends = np.round(np.cumsum(self.shares) * self.groups).astype(int)
        truth = np.array(self.levels)[np.searchsorted(ends, np.arange(self.groups), side="right")]
        spread = {"equal": 0.0, "mild": 0.4, "lognormal": 1.0}[self.profile]
        sigma = rng.lognormal(0, spread, self.groups)
        theta = truth + sigma * rng.standard_normal(self.groups)
        se = sigma if self.dof is None else sigma * np.sqrt(rng.chisquare(self.dof, self.groups) / self.dof)
        return fl.Estimates(theta, se, dof=self.dof), truth


ARRANGED = (
    ((0.0, 2.0), (0.5, 0.5)),
    ((0.0, 2.0), (0.8, 0.2)),
    ((0.0, 3.0), (0.5, 0.5)),
    ((0.0, 3.0), (0.8, 0.2)),
    ((0.0, 4.0), (0.9, 0.1)),
    ((0.0, 6.0), (0.9, 0.1)),
    ((0.0, 3.0, 6.0), (1 / 3, 1 / 3, 1 / 3)),
    ((0.0, 4.0, 8.0), (0.2, 0.6, 0.2)),
    ((0.0, 6.0, 12.0), (0.1, 0.6, 0.3)),
    ((0.0, 4.0, 8.0, 12.0), (0.25, 0.25, 0.25, 0.25)),
)


def cells() -> list[Cell]:
    """Two to four clusters 2 to 6 standard errors apart, equal and unequal shares and standard errors."""
    rows = [
        Cell(levels, shares, groups, profile)
        for (levels, shares), groups, profile in product(ARRANGED, (20, 40, 102), _PROFILES)
    ]
    return rows + [Cell(levels, shares, 40, "equal", 10.0) for levels, shares in ARRANGED[2:]]


_PROFILES = ("equal", "mild")


class Seen(NamedTuple):
    """What one data set shows, given that the number of clusters was found."""

    off: Array  # levels less the true ones, in standard errors
    covered: Array  # of the levels
    hard: Array  # whether plain means with their usual intervals would have covered
    chance: Array  # of the cluster each group is shown in
    right: Array  # whether that is its own
    in_set: Array
    set_size: Array
    any_covered: Array  # whether simultaneous intervals cover the mean effect of their groups


def seen(cell: Cell, estimates: fl.Estimates, truth: Array, seed: int) -> Seen | None:
    """One data set; None where another number of clusters was found."""
    result = fl.cluster(estimates, seed=seed)
    posterior, levels = result.posterior, np.array(cell.levels)
    if result.n_clusters != levels.size or posterior is None:
        return None
    effects = [cluster.effects[0] for cluster in result.clusters]
    estimate, se = np.array([e.estimate for e in effects]), np.array([e.se for e in effects])
    ends = np.array([(e.lower, e.upper) for e in effects])
    true_cluster = np.searchsorted(levels, truth)
    weight = estimates.se**-2.0
    inside = [result.labels == i + 1 for i in range(levels.size)]
    means = np.array([np.average(estimates.theta[i], weights=weight[i]) for i in inside])
    widths = np.array([weight[i].sum() ** -0.5 for i in inside])
    aims = np.array([np.average(truth[i], weights=weight[i]) for i in inside])
    wide = np.array([cluster.simultaneous_ci for cluster in result.clusters])
    return Seen(
        (estimate - levels) / se,
        (ends[:, 0] <= levels) & (levels <= ends[:, 1]),
        np.abs(means - levels) <= 1.96 * widths,
        posterior.membership,
        result.labels - 1 == true_cluster,
        posterior.possible[np.arange(len(truth)), true_cluster],
        posterior.possible.sum(axis=1),
        (wide[:, 0] <= aims) & (aims <= wide[:, 1]),
    )


def described(cell: Cell, runs: int) -> dict[str, Any]:
    """Bias, coverage and calibration over data sets in which the right number of clusters was found."""
    rng = np.random.default_rng(cell.seed)
    several = [outcome for run in range(runs) if (outcome := seen(cell, *cell.drawn(rng), run)) is not None]
    together = Seen(*(np.stack(part) for part in zip(*several, strict=True)))
    return {
        "levels": list(cell.levels),
        "shares": [round(share, 3) for share in cell.shares],
        "groups": cell.groups,
        "profile": cell.profile,
        "dof": cell.dof,
        "runs": runs,
        "found": len(several),
        "bias": [round(float(b), 3) for b in together.off.mean(axis=0)],
        "covered": round(float(together.covered.mean()), 4),
        "hard_covered": round(float(together.hard.mean()), 4),
        "calibration_error": round(calibration_error(together.chance.ravel(), together.right.ravel()), 4),
        "in_set": round(float(together.in_set.mean()), 4),
        "set_size": round(float(together.set_size.mean()), 3),
        "any_covered": round(float(together.any_covered.all(axis=1).mean()), 4),
    }


def calibration_error(chance: Array, right: Array) -> float:
    """Mean distance between chances and how often they come true, over ten bins of chances."""
    bins = np.clip((chance * 10).astype(int), 0, 9)
    parts = [(bins == b) for b in np.unique(bins)]
    return float(sum(abs(chance[part].mean() - right[part].mean()) * part.mean() for part in parts))


# ------------------------------------------------------------------------------------------------- shrunken effects


def rivals(theta: Array, se: Array, labels: Array) -> dict[str, Array]:
    """Other estimates of every group's effect."""
    weight = se**-2.0
    means = np.bincount(labels, weight * theta) / np.bincount(labels, weight)
    return {
        "alone": theta,
        "one mean": np.full(theta.size, np.average(theta, weights=weight)),
        "cluster means": means[labels],
        "mixture, BIC": mixture_by_bic(theta, se),
        "normal empirical Bayes": normal_bayes(theta, se),
        "NPMLE": npmle(theta, se),
    }


def normal_bayes(theta: Array, se: Array) -> Array:
    """A normal law of effects, by restricted maximum likelihood."""
    between = float(np.var(theta))
    for _ in range(100):
        weight = 1 / (between + se**2)
        centre = np.sum(weight * theta) / weight.sum()
        between = max(0.0, np.sum(weight**2 * ((theta - centre) ** 2 - se**2)) / np.sum(weight**2) + 1 / weight.sum())
    return np.asarray(centre + between / (between + se**2) * (theta - centre))


def npmle(theta: Array, se: Array) -> Array:
    """Any law of effects on 150 points, by maximum likelihood (Kiefer and Wolfowitz)."""
    points = np.linspace(theta.min(), theta.max(), 150)
    likelihood = np.exp(-0.5 * ((theta[:, None] - points) / se[:, None]) ** 2) + 1e-300
    law = np.full(150, 1 / 150)
    for _ in range(300):
        posterior = likelihood * law
        posterior /= posterior.sum(axis=1, keepdims=True)
        law = posterior.mean(axis=0)
    return np.asarray(posterior @ points)


def mixture_by_bic(theta: Array, se: Array) -> Array:
    """A mixture of points, their number by BIC, from quantiles as starts."""
    best = (np.inf, theta)
    for count in range(1, 7):
        levels = np.quantile(theta, (np.arange(count) + 0.5) / count)
        shares = np.full(count, 1 / count)
        for _ in range(150):
            log = np.log(shares) - 0.5 * ((theta[:, None] - levels) / se[:, None]) ** 2
            most = log.max(axis=1, keepdims=True)
            density = np.exp(log - most).sum(axis=1)
            posterior = np.exp(log - most) / density[:, None]
            weight = posterior / se[:, None] ** 2
            levels = (weight * theta[:, None]).sum(axis=0) / np.maximum(weight.sum(axis=0), 1e-300)
            shares = np.maximum(posterior.mean(axis=0), 1e-12)
        score = -2 * float(np.sum(most[:, 0] + np.log(density))) + (2 * count - 1) * np.log(theta.size)
        if score < best[0]:
            best = (score, posterior @ levels)
    return np.asarray(best[1])


def shrinkage(cell: Cell, runs: int) -> dict[str, Any]:
    """Mean squared errors of shrunken effects and of rivals, and how often their intervals cover, on average."""
    rng = np.random.default_rng(cell.seed)
    errors: dict[str, list[float]] = {}
    covered, widths = [], []
    for run in range(runs):
        estimates, truth = cell.drawn(rng)
        result = fl.cluster(estimates, seed=run)
        posterior = result.posterior
        if posterior is None:
            raise TypeError("estimates have a posterior")
        estimates_by_method = rivals(estimates.theta, estimates.se, result.labels - 1) | {
            "shrunken": posterior.shrunken[:, 0]
        }
        for name, values in estimates_by_method.items():
            errors.setdefault(name, []).append(float(np.mean((values - truth) ** 2)))
        covered.append(np.mean((posterior.lower[:, 0] <= truth) & (truth <= posterior.upper[:, 0])))
        widths.append(np.mean((posterior.upper - posterior.lower)[:, 0] / (3.92 * estimates.se)))
    means = {name: float(np.mean(values)) for name, values in errors.items()}
    best = min((name for name in means if name != "shrunken"), key=means.__getitem__)
    return {
        **cell._asdict(),
        "runs": runs,
        "errors": {name: round(value, 5) for name, value in means.items()},
        "best": best,
        "ratio": round(means["shrunken"] / means[best], 3),
        "covered": round(float(np.mean(covered)), 4),
        "width": round(float(np.mean(widths)), 3),
    }
