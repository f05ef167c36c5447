"""A comparison of the user's own: statistics that add up when groups merge, and any test of two clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from faultlines import checks
from faultlines.core.comparison import (
    BLOCK,
    Merges,
    NullDraws,
    Pair,
    PooledEffects,
    find_largest_pair,
    generator,
    lay_out,
)
from faultlines.core.distributions import log_chi_square_tail
from faultlines.core.normal import Line, Plane, as_comparison, compare_effects
from faultlines.errors import InputError, shorten
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import Key, Label, labels_of, some_of
from faultlines.estimates.validation import numbers
from faultlines.progress import progress
from faultlines.types import BoolArray, FloatArray, IntArray

Test = Callable[["FloatArray", "FloatArray"], "FloatArray"]
Draw = Callable[["FloatArray", np.random.Generator], "FloatArray"]
Divide = Callable[["FloatArray", Sequence[float], np.random.Generator], Sequence["FloatArray"]]


class CompiledTest(NamedTuple):
    """A test that comes along, as compiled functions of its statistics.

    Attributes:
        merges: All merges of statistics, (K, m).
        tops: Top merges of draws from the null of statistics.
        default_draws: How many draws are worth their time, from the number of groups.
    """

    merges: Callable[[FloatArray], Merges]
    tops: Callable[[FloatArray, np.random.Generator, int], FloatArray]
    default_draws: Callable[[int], int]


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class Similarity:
    """A comparison of your own: statistics that add up when groups merge, and a test that two clusters are equal.

    Args:
        statistics: (K, m) numbers; those of a merged cluster are the sums over its groups.
        pvalue: The test. Takes two arrays of statistics, (r, m) each, and returns r p-values of "these two are
            equal". Those of clusters have to be right too, not only those of groups: see `fl.check_merge_invariance`.
        labels: K names, or K tuples with one value for each attribute.
        log: Whether `pvalue` returns natural logarithms, which keep apart what lies below the smallest double.
        null: For `calibrated`: takes the statistics and a random generator and returns statistics as groups that are
            all equal would have them.
        divide: For `holdout` and `folds`: takes the statistics, shares that sum to 1 and a random generator, and
            returns the statistics of independent parts, one for each share.
        estimate: From statistics to `Estimates`, for people to read.
        n: Sizes of the groups.
        attributes: What the labels are values of.
        metric: What is compared.

    Raises:
        InputError: If statistics do not add up to finite numbers, or a function is none.

    Example:
        >>> import faultlines as fl
        >>> counts = fl.binomial([30, 34, 90], [400, 400, 400], ["a", "b", "c"])
        >>> counts.labels, fl.cluster(counts).n_clusters
        (('a', 'b', 'c'), 2)
    """

    statistics: FloatArray
    pvalue: Test
    keys: Sequence[Key]
    log: bool
    null: Draw | None
    divide: Divide | None
    estimate: Callable[[FloatArray], Estimates] | None
    n: FloatArray | None
    attributes: tuple[str, ...]
    metric: str
    estimates: Estimates | None
    compiled: CompiledTest | None

    def __init__(
        self,
        statistics: npt.ArrayLike,
        pvalue: Test,
        labels: Sequence[Label] | None = None,
        *,
        log: bool = False,
        null: Draw | None = None,
        divide: Divide | None = None,
        estimate: Callable[[FloatArray], Estimates] | None = None,
        n: npt.ArrayLike | None = None,
        attributes: Sequence[str] | None = None,
        metric: str = "effect",
        _compiled: CompiledTest | None = None,
    ) -> None:
        table = _statistics(statistics)
        for name, function in (("pvalue", pvalue), ("null", null), ("divide", divide), ("estimate", estimate)):
            if not callable(function) and (function is not None or name == "pvalue"):
                raise InputError.wrong_type(name, "is not a function", "Give a function of statistics.", function)
        # Names and sizes are checked where those of estimates are.
        checked = Estimates(np.zeros(len(table)), np.ones(len(table)), labels, n, attributes=attributes, metric=metric)
        for name, value in (
            ("statistics", table),
            ("pvalue", pvalue),
            ("keys", checked.keys),
            ("log", checks.flag("log", log)),
            ("null", null),
            ("divide", divide),
            ("estimate", estimate),
            ("n", checked.n),
            ("attributes", checked.attributes),
            ("metric", metric),
            ("estimates", None if estimate is None else _estimates(estimate, table, checked, metric)),
            ("compiled", _compiled),
        ):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.statistics)

    def __repr__(self) -> str:
        return f"Similarity({len(self)} groups by {' × '.join(self.attributes)}, {self.statistics.shape[1]} statistics)"

    @property
    def labels(self) -> Sequence[Label]:
        """Names of the groups; tuples where there are several attributes."""
        return labels_of(self.keys)

    @property
    def tolerance(self) -> float:
        """None: what is similar is up to the test."""
        return 0.0

    @property
    def height_name(self) -> str:
        """Heights are −log p."""
        return "root of −log p of the two merged clusters"

    @property
    def default_draws(self) -> int:
        """As many as a compiled test is good for; 999 otherwise."""
        return 999 if self.compiled is None else self.compiled.default_draws(len(self))

    @property
    def draws_are_counted(self) -> bool:
        """Whatever a test says, draws of it are counted."""
        return True

    @property
    def can_scan(self) -> bool:
        """A test of one's own has no order to scan along."""
        return False

    @property
    def is_plain(self) -> bool:
        """Never: a test is judged one experiment at a time."""
        return False

    @property
    def data(self) -> Sequence[FloatArray | None]:
        """The numbers behind it."""
        return (self.statistics, self.n)

    def with_statistics(self, statistics: FloatArray, keep: BoolArray | None = None) -> Similarity:
        """The same test on other statistics of the same groups, or of some of them.

        Args:
            statistics: The other statistics.
            keep: Which of the groups they are of; all, if None.

        Returns:
            The same test on those.

        Example:
            >>> import faultlines as fl
            >>> test = fl.binomial([5, 9, 30], [50, 80, 60])
            >>> len(test.with_statistics(test.statistics * 2))
            3
        """
        places = np.arange(len(self)) if keep is None else np.flatnonzero(keep)
        return Similarity(
            statistics,
            self.pvalue,
            labels_of(some_of(self.keys, places)),
            log=self.log,
            null=self.null,
            divide=self.divide,
            estimate=self.estimate,
            n=None if self.n is None else self.n[places],
            attributes=self.attributes,
            metric=self.metric,
            _compiled=self.compiled,
        )

    def subset(self, keep: BoolArray) -> Similarity:
        """The same for some of the groups."""
        return self.with_statistics(self.statistics[keep], keep)

    def with_weights_of(self, other: Similarity) -> Similarity:
        """A test weighs its groups itself."""
        return self

    def log_pointwise(self, heights: FloatArray) -> FloatArray:
        """The height of a merge is −log p already."""
        return -heights

    def pool(self, clusters: IntArray) -> PooledEffects | None:
        """Pooled estimates, where the test has some."""
        effects = self._effects()
        return None if effects is None else effects.pool(clusters)

    def refine(self, clusters: IntArray) -> IntArray:
        """Groups moved to the cluster of nearest estimate, where the test has some."""
        effects = self._effects()
        return clusters if effects is None else effects.refine(clusters)

    def _effects(self) -> Line | Plane | None:
        return None if self.estimates is None else compare_effects(self.estimates)

    # ----------------------------------------------------------------------------------------------------- the test

    def log_pvalues(self, a: FloatArray, b: FloatArray) -> FloatArray:
        """Log p of pairs of rows of statistics, once they are known to be p-values.

        Args:
            a: Statistics of the first cluster of each pair, one row per pair.
            b: Those of the second.

        Returns:
            Log p, one per pair.

        Raises:
            InputError: If the test gives something that is not a p-value.

        Example:
            >>> import faultlines as fl, numpy as np
            >>> test = fl.binomial([5, 9, 30], [50, 80, 60], ["DE", "FR", "IN"])
            >>> np.exp(test.log_pvalues(test.statistics[:1], test.statistics[2:])).round(5).tolist(), test.labels
            ([0.0], ('DE', 'FR', 'IN'))
        """
        a, b = np.broadcast_arrays(np.atleast_2d(a), np.atleast_2d(b))
        with np.errstate(divide="ignore"):
            returned = self.pvalue(a.copy(), b.copy())
        try:
            raw = np.asarray(returned)
        except ValueError:
            raw = np.empty(0)
        if raw.shape != (len(a),) or raw.dtype.kind not in "fiu":
            raise InputError.wrong_return(
                "pvalue",
                f"returned {raw.dtype} of shape {raw.shape}",
                f"Return one p-value per pair: floating-point numbers of shape ({len(a)},).",
                place=f"of {len(a)} pairs",
            )
        values = raw.astype(np.float64)
        # A hair beyond the end is rounding.
        good = values <= 1e-9 if self.log else (values >= 0) & (values <= 1 + 1e-9)
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            raise InputError.wrong_return(
                "pvalue",
                f"is not a {'log ' if self.log else ''}p-value, for statistics {shorten(a[at].tolist())} and "
                f"{shorten(b[at].tolist())}",
                "Return numbers up to 0 (log=True)."
                if self.log
                else "Return numbers in [0, 1]; check that statistics add.",
                float(values[at]),
            )
        # A p of zero is one below the smallest double.
        return np.clip(values, -1e300, 0.0) if self.log else np.log(np.clip(values, 5e-324, 1.0))

    def most_similar_pair(self, clusters: IntArray) -> Pair:
        """All pairs of clusters are tested."""
        pooled = np.zeros((int(clusters.max()) + 1, self.statistics.shape[1]))
        np.add.at(pooled, clusters, self.statistics)
        return find_largest_pair(lambda a, b: self.log_pvalues(pooled[a], pooled[b]), len(pooled))

    def merges(self) -> Merges:
        """Algorithm 1: compiled for the tests that come along, with the user's own function for any other."""
        if self.compiled is not None:
            return self.compiled.merges(self.statistics)
        return lay_out(*self._agglomerate(self.statistics, with_progress=True))

    def _agglomerate(self, statistics: FloatArray, *, with_progress: bool) -> tuple[IntArray, FloatArray]:
        """Merges, in scipy's numbering, and −log p of each: every cluster remembers the most similar one after it.

        A memory goes stale when what it points at is merged away; its p stays an upper bound, because every new cluster
        is compared with it, so it is looked up again only when it comes up as the largest of all.
        """
        size = len(statistics)
        s = np.array(statistics)
        number, near, nearest = np.arange(size), np.full(size, -np.inf), np.full(size, -1)
        alive = np.ones(size, dtype=bool)
        merges, heights = np.empty((size - 1, 2), dtype=np.int64), np.empty(size - 1)

        def look(i: int) -> None:
            others = i + 1 + np.flatnonzero(alive[i + 1 :])
            near[i], nearest[i] = -np.inf, -1
            if others.size:
                log_p = self.log_pvalues(s[i], s[others])
                best = int(np.argmax(log_p))
                near[i], nearest[i] = log_p[best], others[best]

        with progress("comparing groups", 2 * size) if with_progress else nullcontext(lambda _: None) as advance:
            for i in range(size):
                look(i)
                advance(1)
            for step in range(size - 1):
                while nearest[a := int(np.argmax(near))] < 0:
                    look(a)
                b = int(nearest[a])
                merges[step], heights[step] = sorted((number[a], number[b])), -near[a]
                s[b] += s[a]
                alive[a], near[a], number[b] = False, -np.inf, size + step
                others = np.flatnonzero(alive)
                others = others[others != b]
                near[b], nearest[b] = -np.inf, -1
                if others.size:
                    log_p = self.log_pvalues(s[b], s[others])
                    before = others < b
                    closer = before & (log_p > near[others])
                    near[others[closer]], nearest[others[closer]] = log_p[closer], b
                    stale = others[before & ~closer & np.isin(nearest[others], (a, b))]
                    nearest[stale] = -1
                    if (~before).any():
                        best = int(np.argmax(np.where(before, -np.inf, log_p)))
                        near[b], nearest[b] = log_p[best], others[best]
                advance(1)
        return merges, heights

    # --------------------------------------------------------------------------------------------- draws and parts

    def null_draws(self, top: float, draws: int, seed: int) -> NullDraws:
        """Top merges, as −log p, of draws from the null, which are counted."""
        if self.null is None:
            raise InputError.unsupported(
                "guarantee",
                "this comparison does not say how groups with equal effects look",
                "Give Similarity(…, null=…), or use {guarantee}.",
                "calibrated",
                settings={"guarantee": "bonferroni"},
                form="clause",
            )
        s = self.statistics[np.lexsort(self.statistics.T)]
        compiled = self.compiled

        def block(number: int, count: int) -> FloatArray:
            rng = generator(seed, number)
            if compiled is not None:
                return compiled.tops(s, rng, count)
            return np.array([self._agglomerate(self.draw_null(s, rng), with_progress=False)[1].max()])

        rows = 1 if compiled is None else max(1, min(256, BLOCK // (3 * len(s))))
        return NullDraws(rows, block, uses_threads=compiled is not None)

    def draw_null(self, statistics: FloatArray, rng: np.random.Generator) -> FloatArray:
        """One draw of the null, made from a copy that the user's function may overwrite, checked.

        Args:
            statistics: Statistics of the groups.
            rng: Random numbers.

        Returns:
            Statistics of groups with equal effects.

        Raises:
            InputError: If there is no null to draw from, or it gives something of another shape.

        Example:
            >>> import faultlines as fl, numpy as np
            >>> test = fl.binomial([5, 9, 30], [50, 80, 60])
            >>> test.draw_null(test.statistics, np.random.default_rng(0)).shape
            (3, 2)
        """
        returned = None if self.null is None else self.null(statistics.copy(), rng)
        array = _as_floats(returned)
        if array.shape != statistics.shape or not np.isfinite(array).all():
            raise InputError.wrong_return(
                "null",
                f"is not finite numbers of shape {statistics.shape}",
                "Return statistics like those it was given.",
                returned,
            )
        return array

    def split(self, shares: Sequence[float], rng: np.random.Generator) -> list[Similarity]:
        """As the user says, if he does."""
        if self.divide is None:
            raise InputError.unsupported(
                "divide",
                "this comparison does not say how its statistics fall into independent parts",
                "Give Similarity(…, divide=…), or use {guarantee} or 'calibrated'.",
                None,
                settings={"guarantee": "bonferroni"},
                form="clause",
            )
        order = np.lexsort(self.statistics.T)  # so that the order of the groups does not decide which gets which noise
        returned = self.divide(self.statistics[order], shares, rng)
        try:
            parts = [_as_floats(part) for part in returned]
            good = len(parts) == len(shares) and all(
                part.shape == self.statistics.shape and np.isfinite(part).all() for part in parts
            )
        except (TypeError, ValueError):
            good = False
        if not good:
            raise InputError.wrong_return(
                "divide",
                f"is not {len(shares)} arrays of finite numbers of shape {self.statistics.shape}",
                "Return one array per share.",
                returned,
            )
        back = np.argsort(order)
        return [self.with_statistics(part[back]) for part in parts]


def _as_floats(value: object) -> FloatArray:
    """What a user's function returned as floats; nothing where it is not real numbers."""
    try:
        array = np.asarray(value)
        return np.array(array, dtype=np.float64) if array.dtype.kind in "iuf" else np.empty(0)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)


def _statistics(values: npt.ArrayLike) -> FloatArray:
    table = numbers("statistics", values)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError.mismatch("statistics", f"has shape {table.shape}", "Give one row per group: shape (K, m).")
    with np.errstate(over="ignore"):
        if not np.isfinite(table).all() or not np.isfinite(table.sum(axis=0)).all():
            at = np.argwhere(~np.isfinite(table))
            where = f" (row {at[0][0]} holds {table[tuple(at[0])]:g})" if len(at) else ""
            raise InputError.invalid_data(
                "statistics", f"do not add: their sum is not finite{where}", "Leave such groups out."
            )
    table.setflags(write=False)
    return table


def _estimates(
    estimate: Callable[[FloatArray], Estimates], table: FloatArray, checked: Estimates, metric: str
) -> Estimates:
    """Estimates for people to read, with the names and sizes of the groups."""
    estimates = estimate(table)
    if not isinstance(estimates, Estimates) or len(estimates) != len(table):
        raise InputError.wrong_return("estimate", "is not one Estimates row per group", "Return Estimates.", estimates)
    return estimates.changed(
        labels=checked.labels,
        n=estimates.n if checked.n is None else checked.n,
        attributes=checked.attributes,
        metric=metric,
    )


# ---------- Does a comparison survive merging? The paper's merge invariance, tried out on simulated groups.


@dataclass(frozen=True, slots=True)
class Invariance:
    """What a check of merge invariance found.

    Attributes:
        passed: Whether merged clusters were rejected no more often than single ones.
        of_pairs: Share of pairs of single groups, equal, that the test calls different at `alpha`.
        of_merged: The same for a group, or several merged, against several merged.
        alpha: The level tried.
        runs: How many comparisons of each kind.
        counterexample: Three clusters that are equal in pairs, of which one differs from the merger of the others:
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
            f"at α = {self.alpha:g} the test rejects {self.of_pairs:.1%} of pairs of groups that are equal and "
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

    Groups that are all equal are drawn with the comparison's own `null`, some of them are merged, and the test compares
    what it should still find equal. It fails when merging makes it reject clearly more often than it rejects single
    groups. What `null` does not draw cannot be found: let groups that are equal differ in everything else that real
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
    as_comparison(comparison, tolerance)  # says what is wrong with either
    additive = _additive(compare_effects(comparison, tolerance)) if isinstance(comparison, Estimates) else comparison
    return _simulate_merging(additive, alpha, runs, seed)


def _simulate_merging(similarity: Similarity, alpha: float, runs: int, seed: int) -> Invariance:
    if similarity.null is None:
        raise InputError.unsupported(
            "null",
            "the comparison does not say how groups with equal effects look",
            "Give Similarity(…, null=…).",
            None,
            form="clause",
        )
    if len(similarity) < 3:
        raise InputError.too_few("comparison", f"has {len(similarity)} groups", "Merging needs three groups or more.")
    rng = np.random.default_rng(seed)
    pairs, merged, log_alpha = np.empty(runs), np.empty(runs), np.log(alpha)
    worst, example = 0.0, None
    with progress("merging groups that are equal", runs) as advance:
        for run in range(runs):
            s = similarity.draw_null(similarity.statistics, rng)
            order = rng.permutation(len(s))
            first, second, third = s[order[:3]]
            # Two of three; or, so that what adds up shows, any number against any number.
            cut = int(rng.integers(1, len(s))) if run % 2 else 1
            left, right = (
                (first, second + third) if run % 2 == 0 else (s[order[:cut]].sum(axis=0), s[order[cut:]].sum(axis=0))
            )
            log_p = similarity.log_pvalues(
                np.stack([first, first, second, left]), np.stack([second, third, third, right])
            )
            pairs[run], merged[run] = log_p[0], log_p[3]
            if run % 2 == 0 and log_p[:3].min() > log_alpha and log_p[3] < worst:
                worst, example = float(log_p[3]), (s[order[:3]], np.exp(log_p))
            advance(1)
    of_pairs, of_merged = float(np.mean(pairs < log_alpha)), float(np.mean(merged < log_alpha))
    allowed = max(of_pairs, alpha)
    passed = bool(of_merged <= allowed + 4 * np.sqrt(allowed * (1 - allowed) / runs))
    return Invariance(passed, of_pairs, of_merged, alpha, runs, None if passed else _describe_counterexample(example))


def _describe_counterexample(example: tuple[FloatArray, FloatArray] | None) -> str:
    if example is None:
        return "No three clusters show it by themselves; it takes more merging."
    (first, second, third), p = example
    listed = ", ".join(f"[{', '.join(f'{value:.4g}' for value in row)}]" for row in (first, second, third))
    return (
        f"Counterexample: clusters with statistics {listed} are equal in pairs "
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
        first, second = a[:, 1] / a[:, 0], b[:, 1] / b[:, 0]
        beyond = line.beyond(np.minimum(first, second), np.maximum(first, second))
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
    cov = (
        estimates.effect_covariance
        if estimates.effect_covariance is not None
        else estimates.errors[:, :, None] ** 2 * np.eye(dims)
    )
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
