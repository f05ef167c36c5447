"""Does a comparison survive merging? The paper's merge invariance, tried out on simulated groups.

If three clusters are alike, the first must be alike to the merger of the other two. A test that adds up statistics may
say otherwise: the variance of two groups with different means is not that of either. Then every guarantee is void.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from faultlines import checks
from faultlines.comparison.choose import comparison_of, equal_effects
from faultlines.comparison.custom import Similarity
from faultlines.comparison.tails import log_chi_square_tail
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.progress import progress

if TYPE_CHECKING:
    from faultlines.comparison.line import Line
    from faultlines.comparison.plane import Plane
    from faultlines.estimates.scales import FloatArray


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

    Example:
        >>> import faultlines as fl, numpy as np
        >>> checked = fl.check_merge_invariance(fl.binomial([5, 9, 7], [50, 80, 60]), runs=200)
        >>> checked.passed, checked.counterexample
        (True, None)
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
    comparison: Similarity | Estimates,
    *,
    tolerance: float = 0.0,
    alpha: float = 0.05,
    runs: int = 4000,
    seed: int = 0,
) -> Invariance:
    """Try out by simulation whether a comparison survives merging.

    Groups that are all alike are drawn with the comparison's own `null`, some of them are merged, and the test compares
    what it should still find alike. It fails when merging makes it reject clearly more often than it rejects single
    groups. What `null` leaves out cannot be found: let groups that are alike differ in everything else that real
    groups differ in (size, level, share of the treated).

    Args:
        comparison: A `Similarity` that can draw from its null; or `Estimates`.
        tolerance: For estimates: see `fl.cluster`.
        alpha: The level at which rejections are counted.
        runs: How many comparisons of each kind.
        seed: Of the draws.

    Returns:
        What was found; true when the check passed.

    Raises:
        InputError: If the comparison has no null, or there are fewer than three groups.

    Example:
        >>> import faultlines as fl
        >>> bool(fl.check_merge_invariance(fl.binomial([10, 12, 60], 200), runs=400))
        True
    """
    runs, alpha, seed = checks.runs(runs, 100, 4000), checks.alpha(alpha), checks.seed(seed)
    comparison_of(comparison, tolerance)  # says what is wrong with either
    additive = _additive(equal_effects(comparison, tolerance)) if isinstance(comparison, Estimates) else comparison
    return _tried(additive, alpha, runs, seed)


def _tried(similarity: Similarity, alpha: float, runs: int, seed: int) -> Invariance:
    if similarity.null is None:
        raise InputError(
            "null=None",
            "the comparison does not say how groups that are all alike look",
            "Give Similarity(…, null=…).",
        )
    if len(similarity) < 3:
        raise InputError(f"{len(similarity)} groups", "are too few", "Merging needs three groups or more.")
    rng = np.random.default_rng(seed)
    pairs, merged, log_alpha = np.empty(runs), np.empty(runs), np.log(alpha)
    worst, example = 0.0, None
    with progress("merging groups that are alike", runs) as advance:
        for run in range(runs):
            s = similarity.drawn(similarity.statistics, rng)
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


def _additive(comparison: Line | Plane) -> Similarity:
    """Estimates as statistics that add up."""
    return _additive_several(comparison.estimates) if comparison.estimates.dims > 1 else _additive_one(comparison)  # type: ignore[arg-type]


def _additive_one(line: Line) -> Similarity:
    """One effect, as (w, wθ), with effects anywhere within the tolerance as the null."""
    estimates, scale = line.estimates, line.estimates.scales[0]
    weight = estimates.errors[:, 0] ** -2.0
    table = np.column_stack([weight, weight * estimates.values[:, 0]])

    def log_p(a: FloatArray, b: FloatArray) -> FloatArray:
        one, other = a[:, 1] / a[:, 0], b[:, 1] / b[:, 0]
        beyond = line.beyond(np.minimum(one, other), np.maximum(one, other))
        return line.log_pointwise(beyond**2 / (1 / a[:, 0] + 1 / b[:, 0]))

    def null(s: FloatArray, rng: np.random.Generator) -> FloatArray:
        centre = float(s[:, 1].sum() / s[:, 0].sum())
        effect = np.full(len(s), centre)
        if line.distance:
            low = scale.room(float(scale.natural(np.array([centre]))[0]), 0.0, line.distance)
            far = rng.random(len(s)) < 0.5
            if scale.bends:
                effect = scale.place(low + np.where(far, line.distance, 0.0))
            else:
                effect[far] += line.distance
        theta = effect + rng.standard_normal(len(s)) / np.sqrt(s[:, 0])
        return np.column_stack([s[:, 0], s[:, 0] * theta])

    return Similarity(table, log_p, estimates.labels, log=True, null=null)


def _additive_several(estimates: Estimates) -> Similarity:
    """Several effects, as precision matrices and what they make of the effects."""
    dims = estimates.dims
    cov = estimates.cov if estimates.cov is not None else estimates.errors[:, :, None] ** 2 * np.eye(dims)
    precision = np.linalg.inv(cov)
    flat = precision.reshape(len(cov), -1)
    table = np.hstack([flat, np.einsum("kij,kj->ki", precision, estimates.values)])

    def unpacked(s: FloatArray) -> tuple[FloatArray, FloatArray]:
        cov = np.asarray(np.linalg.inv(s[:, : dims**2].reshape(-1, dims, dims)), dtype=np.float64)
        return np.einsum("kij,kj->ki", cov, s[:, dims**2 :]), cov

    def log_p(a: FloatArray, b: FloatArray) -> FloatArray:
        (mean_a, cov_a), (mean_b, cov_b) = unpacked(a), unpacked(b)
        gap = mean_a - mean_b
        solved = np.linalg.solve(cov_a + cov_b, gap[:, :, None])[:, :, 0]
        return log_chi_square_tail(np.maximum(np.sum(gap * solved, axis=1), 0.0), dims)

    def null(s: FloatArray, rng: np.random.Generator) -> FloatArray:
        noise = np.einsum("kij,kj->ki", np.linalg.cholesky(cov), rng.standard_normal((len(s), dims)))
        return np.hstack([s[:, : dims**2], np.einsum("kij,kj->ki", precision, noise)])

    return Similarity(table, log_p, estimates.labels, log=True, null=null)
