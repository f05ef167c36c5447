"""A comparison of the user's own: statistics that add up when groups merge, and any test of two clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from faultlines import checks
from faultlines.comparison.base import BLOCK, Levels, Merges, Null, Pair, generator, laid_out, largest
from faultlines.comparison.choose import equal_effects
from faultlines.errors import InputError, shorten
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.given import numbers
from faultlines.estimates.labels import labels_of, some_of
from faultlines.progress import progress

if TYPE_CHECKING:
    import numpy.typing as npt

    from faultlines.comparison.line import Line
    from faultlines.comparison.plane import Plane
    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.labels import Key, Label
    from faultlines.estimates.scales import FloatArray

Test = Callable[["FloatArray", "FloatArray"], "FloatArray"]
Draw = Callable[["FloatArray", np.random.Generator], "FloatArray"]
Divide = Callable[["FloatArray", Sequence[float], np.random.Generator], Sequence["FloatArray"]]


class Compiled(NamedTuple):
    """A test that comes along, as compiled functions of its statistics.

    Attributes:
        merges: All merges of statistics, (K, m).
        tops: Top merges of so many draws from the null of statistics.
        default_draws: How many draws are worth their time, from the number of groups.
    """

    merges: Callable[[FloatArray], Merges]
    tops: Callable[[FloatArray, np.random.Generator, int], FloatArray]
    default_draws: Callable[[int], int]


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class Similarity:
    """A comparison of your own: statistics that add up when groups merge, and a test that two clusters are alike.

    Args:
        statistics: (K, m) numbers; those of a merged cluster are the sums over its groups.
        pvalue: The test. Takes two arrays of statistics, (r, m) each, and returns r p-values of "these two are alike".
            Those of clusters have to be right too, not only those of groups: see `fl.check_merge_invariance`.
        labels: K names, or K tuples with one value for each attribute.
        log: Whether `pvalue` returns natural logarithms, which keep apart what lies below the smallest double.
        null: For `calibrated`: takes the statistics and a random generator and returns statistics as groups that are
            all alike would have them.
        divide: For `holdout` and `folds`: takes the statistics, shares that sum to 1 and a random generator, and
            returns the statistics of independent parts, one for each share.
        estimate: From statistics to `Estimates`, for people to read.
        n: Sizes of the groups.
        attributes: What the labels are values of.
        measure: What is compared.

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
    measure: str
    estimates: Estimates | None
    compiled: Compiled | None

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
        measure: str = "effect",
        _compiled: Compiled | None = None,
    ) -> None:
        table = _statistics(statistics)
        for name, given in (("pvalue", pvalue), ("null", null), ("divide", divide), ("estimate", estimate)):
            if not callable(given) and (given is not None or name == "pvalue"):
                raise InputError(f"{name}={shorten(given)}", "is not a function", "Give a function of statistics.")
        # Names and sizes are checked where those of estimates are.
        checked = Estimates(
            np.zeros(len(table)), np.ones(len(table)), labels, n, attributes=attributes, measure=measure
        )
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
            ("measure", measure),
            ("estimates", None if estimate is None else _estimates(estimate, table, checked, measure)),
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
        kept = np.arange(len(self)) if keep is None else np.flatnonzero(keep)
        return Similarity(
            statistics,
            self.pvalue,
            labels_of(some_of(self.keys, kept)),
            log=self.log,
            null=self.null,
            divide=self.divide,
            estimate=self.estimate,
            n=None if self.n is None else self.n[kept],
            attributes=self.attributes,
            measure=self.measure,
            _compiled=self.compiled,
        )

    def subset(self, keep: BoolArray) -> Similarity:
        """The same for some of the groups."""
        return self.with_statistics(self.statistics[keep], keep)

    def weighted_by(self, other: Similarity) -> Similarity:
        """A test weighs its groups itself."""
        return self

    def log_pointwise(self, heights: FloatArray) -> FloatArray:
        """The height of a merge is −log p already."""
        return -heights

    def levels(self, clusters: IntArray) -> Levels | None:
        """Pooled estimates, where the test has some."""
        shown = self._effects()
        return None if shown is None else shown.levels(clusters)

    def refined(self, clusters: IntArray) -> IntArray:
        """Groups moved to the cluster of nearest estimate, where the test has some."""
        shown = self._effects()
        return clusters if shown is None else shown.refined(clusters)

    def _effects(self) -> Line | Plane | None:
        return None if self.estimates is None else equal_effects(self.estimates)

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
            given = self.pvalue(a.copy(), b.copy())
        try:
            raw = np.asarray(given)
        except ValueError:
            raw = np.empty(0)
        if raw.shape != (len(a),) or raw.dtype.kind not in "fiu":
            raise InputError(
                f"pvalue of {len(a)} pairs",
                f"returned {raw.dtype} of shape {raw.shape}",
                f"Return one p-value per pair: floating-point numbers of shape ({len(a)},).",
            )
        values = raw.astype(np.float64)
        # A hair beyond the end is rounding.
        good = values <= 1e-9 if self.log else (values >= 0) & (values <= 1 + 1e-9)
        if not good.all():
            at = int(np.flatnonzero(~good)[0])
            raise InputError(
                f"pvalue={values[at]:g}",
                f"is not a {'log ' if self.log else ''}p-value, for statistics {shorten(a[at].tolist())} and "
                f"{shorten(b[at].tolist())}",
                "Return numbers up to 0 (log=True)."
                if self.log
                else "Return numbers in [0, 1]; check that statistics add.",
            )
        # A p of zero is one below the smallest double.
        return np.clip(values, -1e300, 0.0) if self.log else np.log(np.clip(values, 5e-324, 1.0))

    def most_similar(self, clusters: IntArray) -> Pair:
        """All pairs of clusters are tested."""
        pooled = np.zeros((int(clusters.max()) + 1, self.statistics.shape[1]))
        np.add.at(pooled, clusters, self.statistics)
        return largest(lambda a, b: self.log_pvalues(pooled[a], pooled[b]), len(pooled))

    def merges(self) -> Merges:
        """Algorithm 1: compiled for the tests that come along, with the user's own function for any other."""
        if self.compiled is not None:
            return self.compiled.merges(self.statistics)
        return laid_out(*self._merged(self.statistics, shown=True))

    def _merged(self, statistics: FloatArray, *, shown: bool) -> tuple[IntArray, FloatArray]:
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

        with progress("comparing groups", 2 * size) if shown else nullcontext(lambda _: None) as advance:
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

    def null_draws(self, top: float, draws: int, seed: int) -> Null:
        """Top merges, as −log p, of draws from the null, which are counted."""
        if self.null is None:
            raise InputError(
                "guarantee='calibrated'",
                "this comparison does not say how groups that are all alike look",
                "Give Similarity(…, null=…), or use guarantee='bonferroni'.",
            )
        s = self.statistics[np.lexsort(self.statistics.T)]
        compiled = self.compiled

        def block(number: int, count: int) -> FloatArray:
            rng = generator(seed, number)
            if compiled is not None:
                return compiled.tops(s, rng, count)
            return np.array([self._merged(self.drawn(s, rng), shown=False)[1].max()])

        rows = 1 if compiled is None else max(1, min(256, BLOCK // (3 * len(s))))
        return Null(rows, block, uses_threads=compiled is not None)

    def drawn(self, statistics: FloatArray, rng: np.random.Generator) -> FloatArray:
        """One draw of the null, made from a copy that the user's function may overwrite, checked.

        Args:
            statistics: Statistics of the groups.
            rng: Random numbers.

        Returns:
            Statistics of groups that are all alike.

        Raises:
            InputError: If there is no null to draw from, or it gives something of another shape.

        Example:
            >>> import faultlines as fl, numpy as np
            >>> test = fl.binomial([5, 9, 30], [50, 80, 60])
            >>> test.drawn(test.statistics, np.random.default_rng(0)).shape
            (3, 2)
        """
        given = None if self.null is None else self.null(statistics.copy(), rng)
        made = _as_floats(given)
        if made.shape != statistics.shape or not np.isfinite(made).all():
            raise InputError(
                f"null → {shorten(given)}",
                f"is not finite numbers of shape {statistics.shape}",
                "Return statistics like those it was given.",
            )
        return made

    def divided(self, shares: Sequence[float], rng: np.random.Generator) -> list[Similarity]:
        """As the user says, if he does."""
        if self.divide is None:
            raise InputError(
                "divide=None",
                "this comparison does not say how its statistics fall into independent parts",
                "Give Similarity(…, divide=…), or use guarantee='bonferroni' or 'calibrated'.",
            )
        order = np.lexsort(self.statistics.T)  # so that the order of the groups does not decide which gets which noise
        given = self.divide(self.statistics[order], shares, rng)
        try:
            parts = [_as_floats(part) for part in given]
            good = len(parts) == len(shares) and all(
                part.shape == self.statistics.shape and np.isfinite(part).all() for part in parts
            )
        except (TypeError, ValueError):
            good = False
        if not good:
            raise InputError(
                f"divide → {shorten(given)}",
                f"is not {len(shares)} arrays of finite numbers of shape {self.statistics.shape}",
                "Return one array per share.",
            )
        back = np.argsort(order)
        return [self.with_statistics(part[back]) for part in parts]


def _as_floats(given: object) -> FloatArray:
    """What a user's function returned as floats; nothing where it is not real numbers."""
    try:
        made = np.asarray(given)
        return np.array(made, dtype=np.float64) if made.dtype.kind in "iuf" else np.empty(0)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)


def _statistics(values: npt.ArrayLike) -> FloatArray:
    table = numbers("statistics", values)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError("statistics", f"has shape {table.shape}", "Give one row per group: shape (K, m).")
    with np.errstate(over="ignore"):
        if not np.isfinite(table).all() or not np.isfinite(table.sum(axis=0)).all():
            at = np.argwhere(~np.isfinite(table))
            where = f" (row {at[0][0]} holds {table[tuple(at[0])]:g})" if len(at) else ""
            raise InputError("statistics", f"do not add: their sum is not finite{where}", "Leave such groups out.")
    table.setflags(write=False)
    return table


def _estimates(
    estimate: Callable[[FloatArray], Estimates], table: FloatArray, checked: Estimates, measure: str
) -> Estimates:
    """Estimates for people to read, with the names and sizes of the groups."""
    made = estimate(table)
    if not isinstance(made, Estimates) or len(made) != len(table):
        raise InputError(f"estimate → {shorten(made)}", "is not one Estimates row per group", "Return Estimates.")
    return made.changed(
        labels=checked.labels,
        n=made.n if checked.n is None else checked.n,
        attributes=checked.attributes,
        measure=measure,
    )
