"""Empirical Bayes for estimates with standard errors: an effect for each group, and no clusters."""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from experiments.baselines.fit import Fit
from faultlines.types import FloatArray


def likeliest_weights(likelihood: FloatArray, prior: FloatArray | None = None, *, gain: float = 1e-6) -> FloatArray:
    """Weights π ≥ 0 that sum to one and maximise Σ log(L π) + Σ prior · log π, by Wang's constrained Newton steps.

    Each step is a least squares problem with non-negative unknowns, followed by a search along the line.
    """
    groups, points = likelihood.shape
    scaled = likelihood / likelihood.max(axis=1, keepdims=True)
    held = np.zeros(points) if prior is None else prior
    # A penalty counts as groups that can only be of one kind.
    scaled = np.concatenate([scaled, np.eye(points)[held > 0]])
    count = np.concatenate([np.ones(groups), held[held > 0]])
    root = np.sqrt(count)
    weights = np.full(points, 1 / points)
    reached = float(count @ np.log(scaled @ weights))
    firm = 1e4  # how firmly the sum is held at one within a step
    for _ in range(200):
        ratio = scaled / (scaled @ weights)[:, None]
        system = np.concatenate([root[:, None] * ratio, np.full((1, points), firm)])
        target = np.concatenate([2 * root, [firm]])
        goal = nnls(system, target, maxiter=50 * points)[0]
        goal /= goal.sum()
        step = 1.0
        while step > 1e-6:
            tried = (1 - step) * weights + step * goal
            value = float(count @ np.log(np.maximum(scaled @ tried, 1e-300)))
            if value > reached:
                break
            step /= 2
        if step <= 1e-6 or value - reached < gain:
            break
        weights, reached = tried, value
    return weights


def _alone(effects: FloatArray) -> Fit:
    """Effects of groups that are in no cluster together, but for those whose effects are the same number."""
    return Fit(np.unique(np.round(effects, 12), return_inverse=True)[1].astype(np.int64) + 1, effects)


def npmle(theta: FloatArray, se: FloatArray, *, points: int = 150) -> Fit:
    """The posterior mean under the likeliest law of effects whatsoever, on a grid (Kiefer and Wolfowitz; REBayes)."""
    grid = np.linspace(theta.min(), theta.max(), points)
    density = np.exp(-0.5 * ((theta[:, None] - grid) / se[:, None]) ** 2) + 1e-300
    posterior = density * likeliest_weights(density)
    return _alone(np.asarray(posterior @ grid / posterior.sum(axis=1)))


def shrunken(theta: FloatArray, se: FloatArray) -> Fit:
    """Adaptive shrinkage as in ash (Stephens): effects from a mixture of normal laws around one centre, or at it.

    The centre is the weighted mean; variances are on a grid of factors √2; the share of groups at the centre is held
    up by a penalty of 10 − 1 pseudo-counts, as ash has it.
    """
    centre = float(np.average(theta, weights=1 / se**2))
    apart = theta - centre
    smallest = float(se.min()) / 10
    largest = 2 * float(np.sqrt(max(np.max(apart**2 - se**2), 0.0))) or 8 * smallest
    spread = [smallest]
    while spread[-1] < largest:
        spread.append(spread[-1] * np.sqrt(2))
    variance = np.concatenate([[0.0], np.square(spread)])
    both = variance + (se**2)[:, None]
    density = np.exp(-0.5 * apart[:, None] ** 2 / both) / np.sqrt(both)
    weights = likeliest_weights(density, np.concatenate([[9.0], np.zeros(len(spread))]))
    posterior = density * weights
    return _alone(centre + apart * (posterior * (variance / both)).sum(axis=1) / posterior.sum(axis=1))


def normal_bayes(theta: FloatArray, se: FloatArray) -> Fit:
    """One normal law of effects, its mean and variance by maximum likelihood (Newton's steps, from moments)."""
    between = max(float(np.var(theta) - np.mean(se**2)), 0.0)
    for _ in range(200):
        weight = 1 / (between + se**2)
        centre = float(np.average(theta, weights=weight))
        score = float(np.sum(weight**2 * (theta - centre) ** 2 - weight))
        now = max(between + score / float(np.sum(weight**2)), 0.0)
        if abs(now - between) < 1e-10 * float(np.mean(se**2)):
            break
        between = now
    return _alone(np.asarray(centre + between / (between + se**2) * (theta - centre)))
