"""Does a notion of similarity survive merging? The paper's merge invariance, tried out on simulated groups.

If three clusters are alike, the first must be alike to the merger of the other two. A test that adds up statistics may
say otherwise: the variance of two groups with different means is not that of either. Then every guarantee is void.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines.clustering import checked_alpha, checked_seed
from faultlines.errors import InputError, shorten
from faultlines.estimates import ANSCOMBE, Estimates
from faultlines.hierarchy import notion_of
from faultlines.progress import progress
from faultlines.similarity import Gaussian, Similarity, drawn_from

if TYPE_CHECKING:
    from faultlines.estimates import FloatArray


@dataclass(frozen=True, slots=True)
class Invariance:
    """What a check of merge invariance found.

    Attributes:
        passed: Whether merged clusters were rejected no more often than single ones.
        of_pairs: Share of pairs of single groups, alike, that the test calls different at `alpha`.
        of_merged: The same for a group, or several merged, against several merged.
        alpha: The level tried.
        runs: How many comparisons of each kind.
        counterexample: Three clusters that are alike in pairs, of which one differs from the merger of the others:
            their statistics and p-values in words. None when the check passed.
    """

    passed: bool
    of_pairs: float
    of_merged: float
    alpha: float
    runs: int
    counterexample: str | None

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        rates = (
            f"at α = {self.alpha:g} the test rejects {self.of_pairs:.1%} of pairs of groups that are alike and "
            f"{self.of_merged:.1%} once groups are merged ({self.runs:,} of each)"
        )
        if self.passed:
            return f"Merge-invariant as far as simulation shows: {rates}."
        return f"Not merge-invariant: {rates}. {self.counterexample}"


def check_merge_invariance(
    notion: Similarity | Estimates, *, tolerance: float = 0.0, alpha: float = 0.05, runs: int = 4000, seed: int = 0
) -> Invariance:
    """Try out by simulation whether a notion of similarity survives merging.

    Groups that are all alike are drawn with the notion's own `null`, some of them are merged, and the test compares
    what it should still find alike. It fails when merging makes it reject clearly more often than it rejects single
    groups. What `null` leaves out cannot be found: let groups that are alike differ in everything else that real
    groups differ in (size, level, share of the treated).

    Args:
        notion: A `Similarity` that can draw from its null; or `Estimates`.
        tolerance: For estimates: see `fl.cluster`.
        alpha: The level at which rejections are counted.
        runs: How many comparisons of each kind.
        seed: Of the draws.
    """
    if isinstance(runs, bool) or not isinstance(runs, int | np.integer) or runs < 100:
        raise InputError(f"runs={shorten(runs)}", "must be a whole number from 100 on", "Use runs=4000.")
    alpha, seed = checked_alpha(alpha), checked_seed(seed)
    checked = notion_of(notion, tolerance)
    similarity = _additive(checked) if isinstance(checked, Gaussian) else checked
    if not isinstance(similarity, Similarity) or similarity.null is None:
        raise InputError(
            "null=None", "the notion does not say how groups that are all alike look", "Give Similarity(…, null=…)."
        )
    if len(similarity) < 3:
        raise InputError(f"{len(similarity)} groups", "are too few", "Merging needs three groups or more.")
    rng = np.random.default_rng(seed)
    pairs, merged, log_alpha = np.empty(runs), np.empty(runs), np.log(alpha)
    worst, example = 0.0, None
    with progress("merging groups that are alike", runs) as advance:
        for run in range(runs):
            s = drawn_from(similarity.null, similarity.statistics, rng)
            order = rng.permutation(len(s))
            one, two, three = s[order[:3]]
            # Two of three; or, so that what adds up shows, any number against any number.
            cut = int(rng.integers(1, len(s))) if run % 2 else 1
            left, right = (
                (one, two + three) if run % 2 == 0 else (s[order[:cut]].sum(axis=0), s[order[cut:]].sum(axis=0))
            )
            found = similarity.log_pvalues(np.stack([one, one, two, left]), np.stack([two, three, three, right]))
            pairs[run], merged[run] = found[0], found[3]
            if run % 2 == 0 and found[:3].min() > log_alpha and found[3] < worst:
                worst, example = float(found[3]), (s[order[:3]], np.exp(found))
            advance(1)
    of_pairs, of_merged = float(np.mean(pairs < log_alpha)), float(np.mean(merged < log_alpha))
    allowed = max(of_pairs, alpha)
    passed = bool(of_merged <= allowed + 4 * np.sqrt(allowed * (1 - allowed) / runs))
    return Invariance(passed, of_pairs, of_merged, alpha, runs, None if passed else _told(example))


def _told(example: tuple[FloatArray, FloatArray] | None) -> str:
    if example is None:
        return "No three clusters show it by themselves; it takes more merging."
    (one, two, three), p = example
    listed = ", ".join(f"[{', '.join(f'{value:.4g}' for value in row)}]" for row in (one, two, three))
    return (
        f"Counterexample: clusters with statistics {listed} are alike in pairs "
        f"(p = {p[0]:.2g}, {p[1]:.2g}, {p[2]:.2g}), "
        f"but the first differs from the merger of the other two (p = {p[3]:.2g})."
    )


def _additive(notion: Gaussian) -> Similarity:
    """Estimates as statistics that add up, (w, wθ), with effects anywhere within the tolerance as their null."""
    estimates = notion.estimates
    if estimates.dims > 1:
        return _additive_several(notion)
    weight = estimates.se**-2.0
    table = np.column_stack([weight, weight * estimates.theta])

    def log_p(a: FloatArray, b: FloatArray) -> FloatArray:
        one, other = a[:, 1] / a[:, 0], b[:, 1] / b[:, 0]
        beyond = notion.beyond(np.minimum(one, other), np.maximum(one, other))
        return notion.log_pointwise(beyond**2 / (1 / a[:, 0] + 1 / b[:, 0]))

    def null(s: FloatArray, rng: np.random.Generator) -> FloatArray:
        centre = float(s[:, 1].sum() / s[:, 0].sum())
        effect = np.full(len(s), centre)
        if notion.tolerance:
            far = rng.random(len(s)) < 0.5
            if estimates.scale is not ANSCOMBE:
                effect[far] += notion.tolerance
            else:
                rate = min(float(estimates.scale.natural(np.array([centre]))[0]), 1 - notion.tolerance)
                effect[~far], effect[far] = (np.arcsin(np.sqrt(r)) for r in (rate, rate + notion.tolerance))
        theta = effect + rng.standard_normal(len(s)) / np.sqrt(s[:, 0])
        return np.column_stack([s[:, 0], s[:, 0] * theta])

    return Similarity(table, log_p, estimates.labels, log=True, null=null)


def _additive_several(notion: Gaussian) -> Similarity:
    """The same for several effects at once: precision matrices and what they make of the effects."""
    estimates, dims = notion.estimates, notion.estimates.dims
    cov = estimates.cov if estimates.cov is not None else estimates.se[:, :, None] ** 2 * np.eye(dims)
    precision = np.linalg.inv(cov)
    flat = precision.reshape(len(cov), -1)
    table = np.hstack([flat, np.einsum("kij,kj->ki", precision, estimates.theta)])

    def unpacked(s: FloatArray) -> tuple[FloatArray, FloatArray]:
        cov = np.asarray(np.linalg.inv(s[:, : dims**2].reshape(-1, dims, dims)), dtype=np.float64)
        return np.einsum("kij,kj->ki", cov, s[:, dims**2 :]), cov

    def log_p(a: FloatArray, b: FloatArray) -> FloatArray:
        (mean_a, cov_a), (mean_b, cov_b) = unpacked(a), unpacked(b)
        gap = mean_a - mean_b
        solved = np.linalg.solve(cov_a + cov_b, gap[:, :, None])[:, :, 0]
        return notion.log_pointwise(np.maximum(np.sum(gap * solved, axis=1), 0.0))

    def null(s: FloatArray, rng: np.random.Generator) -> FloatArray:
        noise = np.einsum("kij,kj->ki", np.linalg.cholesky(cov), rng.standard_normal((len(s), dims)))
        return np.hstack([s[:, : dims**2], np.einsum("kij,kj->ki", precision, noise)])

    return Similarity(table, log_p, estimates.labels, log=True, null=null)
