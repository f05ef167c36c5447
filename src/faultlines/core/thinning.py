"""Estimates divided into independent parts: noise is added to one part and taken away from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faultlines.core.distributions import draw_wishart
from faultlines.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import Estimates, IntArray
    from faultlines.estimates.scales import FloatArray


def thin_estimates(estimates: Estimates, shares: Sequence[float], rng: np.random.Generator) -> list[Estimates]:
    """Gaussian thinning: θ_b = θ + se·(z_b/√q_b − Σ √q_c z_c) has variance se²/q_b, and the parts are independent.

    Where the standard errors are estimates, with `dof`, their information is divided along.
    """
    # In an order of their own, so that the order of the groups does not decide which group gets which noise.
    order = np.lexsort((*estimates.errors.T, *estimates.values.T)).astype(np.int64)
    between = estimates.covariance
    if estimates.dof is not None and between is None:
        return _with_estimated_errors(estimates, order, shares, rng)
    root = np.sqrt(np.asarray(shares, dtype=float))
    normal = np.empty((len(root), *estimates.values.shape))
    normal[:, order] = rng.standard_normal(normal.shape)
    if between is not None:
        noise = np.einsum("ij,bjd->bid", _root(between, order), normal)
    elif estimates.effect_covariance is None:
        noise = normal * estimates.errors
    else:
        noise = np.einsum("kij,bkj->bki", np.linalg.cholesky(estimates.effect_covariance), normal)
    common = np.tensordot(root, noise, axes=1)
    # What was estimated one by one is known less well from a part of the data.
    freedom = [
        {} if estimates.own_dof is None else {"dof": np.maximum(q**2 * (estimates.own_dof + 1) - 1, 1)} for q in root
    ]
    return [
        estimates.replaced(estimates.values + noise[b] / root[b] - common, spread=1 / root[b], **freedom[b])
        for b in range(len(root))
    ]


def _root(covariance: FloatArray, order: IntArray) -> FloatArray:
    """A root of a covariance matrix that follows the groups when these come in another order."""
    root = np.empty_like(covariance)
    root[np.ix_(order, order)] = np.linalg.cholesky(covariance[np.ix_(order, order)])
    return root


def _with_estimated_errors(
    estimates: Estimates, order: IntArray, shares: Sequence[float], rng: np.random.Generator
) -> list[Estimates]:
    """Parts of estimates that are independent although the variances are not known.

    Mean and covariance of normal observations say all there is to know of their law, so observations drawn given both
    are as good as the real ones; and those can be divided. Of the squared deviations a share falls between the parts,
    which moves their means apart, and the rest within them, which gives each part a covariance of its own. Written for
    d × d matrices; with independent effects (no `cov`) each effect is a case of its own with d = 1.
    """
    size = len(estimates)
    # (K, effects, 1, 1) or (K, 1, d, d)
    cases = (
        estimates.errors[:, :, None, None] ** 2
        if estimates.effect_covariance is None
        else estimates.effect_covariance[:, None]
    )
    effects, dims = cases.shape[1], cases.shape[2]
    q = np.asarray(shares, dtype=float)[:, None]
    finite_dof = np.minimum(np.asarray(estimates.dof), 1e9)[order]
    left = q * (finite_dof + 1) - 1
    _check_left(left, finite_dof, dims, len(shares))
    share = q[:, :, None, None]
    normal = rng.standard_normal((len(q), size, effects, dims))
    between = normal / np.sqrt(share) - np.sum(np.sqrt(share) * normal, axis=0)
    within = draw_wishart(np.broadcast_to(left[:, :, None], (len(q), size, effects)), dims, rng)
    total = np.sum(share[..., None] * between[..., :, None] * between[..., None, :], axis=0) + np.sum(within, axis=0)
    scaled = np.linalg.cholesky(cases[order] * finite_dof[:, None, None, None]) @ np.linalg.inv(
        np.linalg.cholesky(total)
    )
    moved = np.einsum("keij,bkej->bkei", scaled, between).reshape(len(q), size, -1)
    spread = scaled @ within @ np.swapaxes(scaled, -1, -2) / (left[:, :, None, None, None] * share[..., None])
    back = np.argsort(order)
    parts = []
    for b in range(len(q)):
        cov: FloatArray = spread[b][back]
        errors = (
            {"se": np.sqrt(cov[:, :, 0, 0]), "effect_covariance": None}
            if estimates.effect_covariance is None
            else {"effect_covariance": cov[:, 0]}
        )
        parts.append(estimates.replaced(estimates.values + moved[b][back], dof=left[b][back], **errors))
    return parts


def _check_left(left: FloatArray, dof: FloatArray, dims: int, parts: int) -> None:
    """Every part must keep enough degrees of freedom for a covariance."""
    if left.min() >= dims:
        return
    least = float(dof.min())
    most = int((least + 1) // (dims + 1))
    raise InputError.too_few(
        "parts",
        f"leave too little to estimate a standard error from: some rest on {least:g} degrees of freedom",
        f"Use at most {most} parts, or leave such groups out." if most > 1 else "Leave such groups out.",
        parts,
    )
