"""Estimates: K groups, what was measured in each, and how precisely.

Inside there is one shape: effects are (K, d) arrays and groups are keys (tuples), also where there is one effect and
one attribute. What users see, `theta`, `se`, `natural` and `labels`, is made of it here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from scipy.special import ndtri, stdtrit

from faultlines import checks
from faultlines.errors import InputError, shorten
from faultlines.estimates.fits import effects_of
from faultlines.estimates.labels import checked_labels, labels_of, name_of, part_of, some_of
from faultlines.estimates.scales import IDENTITY, Scale, scale_of_each
from faultlines.estimates.shared import checked_covariance, own_variances
from faultlines.sources.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import numpy.typing as npt

    from faultlines.estimates.labels import Key, Label
    from faultlines.estimates.scales import FloatArray

    IntArray = npt.NDArray[np.int64]
    BoolArray = npt.NDArray[np.bool_]

_T = TypeVar("_T")

# Real data is nowhere near these; within them no product of weights and no squared difference leaves a double's range.
_WIDEST_SE = 1e15  # largest standard error over smallest
_FARTHEST_THETA = 1e50  # distance of the outermost estimates in the smallest standard error
_SMALLEST, _LARGEST = 1e-60, 1e60
_MOST_PEOPLE = 2.0**53


@dataclass(frozen=True, slots=True)
class Excluded:
    """A group that was left out, why, and what was known of it.

    Attributes:
        label: The group.
        reason: Why it was left out.
        estimate: Its estimate as people read it.
        se: Its standard error.
        n: Its size.
        events: Of a rate, how many of `n` it is about.
        lower: Lower end of its 95% interval; of a rate, the exact one of Clopper and Pearson.
        upper: Upper end.

    Example:
        >>> import faultlines as fl
        >>> small = fl.Estimates([0.0, 0.1, 5.0], [0.5, 0.5, 2.5], ["DE", "FR", "IS"], [900, 800, 9])
        >>> left_out = fl.cluster(small, min_size=100).excluded[0]
        >>> left_out.label, left_out.reason
        ('IS', 'fewer than 100 in the group')
    """

    label: Label
    reason: str
    estimate: float | None = None
    se: float | None = None
    n: float | None = None
    events: float | None = None
    lower: float | None = None
    upper: float | None = None


def plain(parts: Sequence[_T]) -> Any:
    """One effect as itself, several as a tuple: the one place where the shape inside becomes that of users."""
    return parts[0] if len(parts) == 1 else tuple(parts)


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class Estimates:
    """What was measured in each of K groups: an estimate θ with its standard error.

    The model everywhere is θ_i ~ N(μ_i, se_i²), independent between groups (the paper, section 5.1.2); or with the
    `covariance` that is given.

    Args:
        theta: The K estimates; or (K, d) of them where d things are measured together.
        se: Their standard errors, all above zero; None where `cov` or `covariance` is given.
        labels: K names, or K tuples with one value for each attribute; all different. Default: 0 … K − 1.
        n: Sizes of the groups, for display and for `min_size`. One number holds for all.
        dof: Degrees of freedom behind each standard error, where known; then the guarantee allows for the error in
            the standard errors too. At least 1, and at least d for d effects; infinity means "known exactly". One
            number holds for all; with `covariance` one number is that of the matrix as a whole, as in a regression.
        attributes: What the labels are values of, for instance ``("country", "device")``.
        natural: The estimates as people read them, where `theta` is on another scale.
        scale: That scale.
        measure: What was measured, for instance ``"lift of revenue"``.
        cov: The covariance matrices of d things measured together, (K, d, d), where they are not independent.
        parts: Names of the d things.
        compared: The estimates as they are compared, in the shape of `theta`, where their noise was made more normal.
        covariance: The covariance matrix of the K estimates, (K, K), where groups share data: a control, users in
            several groups, a regression.

    Raises:
        InputError: If an array has the wrong shape, a standard error is not above zero, a covariance matrix is not
            positive definite, or a label occurs twice.

    Example:
        >>> import faultlines as fl
        >>> lifts = fl.Estimates([0.02, 0.03, -0.1], [0.01, 0.02, 0.01], labels=["DE", "FR", "IN"])
        >>> len(lifts), lifts.dims, lifts.labels, lifts.theta.tolist(), lifts.se.tolist()
        (3, 1, ('DE', 'FR', 'IN'), [0.02, 0.03, -0.1], [0.01, 0.02, 0.01])
        >>> lifts.natural.tolist(), lifts.scales[0].name, lifts.covariances.shape
        ([0.02, 0.03, -0.1], 'identity', (3, 1, 1))
    """

    values: FloatArray  # (K, d), on the scale that is compared on
    errors: FloatArray  # (K, d)
    shown: FloatArray  # (K, d), as people read the values
    keys: Sequence[Key]
    n: FloatArray | None
    dof: FloatArray | None
    attributes: tuple[str, ...]
    scale: Scale
    measure: str
    cov: FloatArray | None  # (K, d, d)
    parts: tuple[str, ...]  # names of several effects, none for one
    given: FloatArray  # (K, d), the values as they were estimated, before skewed noise was straightened
    covariance: FloatArray | None  # (K, K), of one effect
    own: FloatArray  # (K, d), standard errors without what several groups have in common

    def __init__(
        self,
        theta: npt.ArrayLike,
        se: npt.ArrayLike | None,
        labels: Sequence[Label] | npt.NDArray[Any] | None = None,
        n: npt.ArrayLike | None = None,
        dof: npt.ArrayLike | None = None,
        *,
        attributes: Sequence[str] | None = None,
        natural: npt.ArrayLike | None = None,
        scale: Scale = IDENTITY,
        measure: str = "effect",
        cov: npt.ArrayLike | None = None,
        parts: Sequence[str] | None = None,
        compared: npt.ArrayLike | None = None,
        covariance: npt.ArrayLike | None = None,
    ) -> None:
        given = _columns("theta", theta)
        values = given if compared is None else _columns("compared", compared, given.shape)
        size, dims = values.shape
        if size == 0:
            raise InputError("theta", "there is no group at all (K = 0)", "Give at least one estimate.")
        keys, attribute_names = checked_labels(labels, attributes, size)
        matrices = None if cov is None else _covariances(cov, values, keys)
        between = None if covariance is None else _between(covariance, matrices, values, keys)
        errors = _errors(se, matrices, values) if between is None else _errors_of(se, between, values)
        for parameter, array in (("theta", given), ("compared", values)):
            _require(
                np.isfinite(array), parameter, array, keys, "must be finite", "Leave this group out, or correct it."
            )
        _require(
            np.isfinite(errors) & (errors > 0),
            "se",
            errors,
            keys,
            "must be finite and above zero",
            "Leave this group out: without a standard error it cannot be compared.",
        )
        own = errors if between is None else np.sqrt(own_variances(between))[:, None]
        _check_range(values, own)
        _check_meaning(scale, measure)
        shown = given if natural is None else _columns("natural", natural, values.shape)
        _require(np.isfinite(shown), "natural", shown, keys, "must be finite", "Leave this group out, or correct it.")
        _check_readable(scale, values, errors)
        sizes = None if n is None else _vector("n", n, size)
        if sizes is not None:
            fit = (sizes > 0) & (sizes <= _MOST_PEOPLE)
            _require(fit, "n", sizes, keys, "must be above zero and at most 2^53", "Correct the size.")
        for name, value in (
            ("values", values),
            ("errors", errors),
            ("shown", shown),
            ("keys", keys),
            ("n", sizes),
            ("dof", _freedom(dof, keys, dims)),
            ("attributes", attribute_names),
            ("scale", scale),
            ("measure", measure),
            ("cov", matrices if dims > 1 else None),
            ("parts", _part_names(parts, dims)),
            ("given", given),
            ("covariance", between),
            ("own", own),
        ):
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    @classmethod
    def from_frame(
        cls,
        frame: object,
        by: str | Sequence[str],
        estimate: str,
        se: str,
        n: str | None = None,
        dof: str | None = None,
    ) -> Estimates:
        """Read a table with one row per group.

        Args:
            frame: A pandas, Polars, PyArrow or other frame that narwhals knows, or the path of a csv or parquet file.
            by: The column, or the columns, that name the groups. A null becomes the group ``(missing)``.
            estimate: The column of estimates.
            se: The column of standard errors.
            n: The column of group sizes, if there is one.
            dof: The column of degrees of freedom, if there is one.

        Returns:
            The estimates, in the order of the rows.

        Raises:
            InputError: If a column is missing, is not numeric, or a group occurs twice.

        Example:
            >>> import faultlines as fl, polars as pl
            >>> table = pl.DataFrame({"country": ["DE", "IN"], "lift": [0.02, -0.1], "se": [0.01, 0.01]})
            >>> fl.Estimates.from_frame(table, by="country", estimate="lift", se="se").labels
            ('DE', 'IN')
        """
        if not isinstance(by, str | list | tuple) or not by:
            raise InputError(f"by={shorten(by)}", "names no column", "Name the column that holds the groups.")
        attributes = (by,) if isinstance(by, str) else tuple(by)
        for i, column in enumerate(attributes):
            if not isinstance(column, str):
                parameter = f"by[{i}]" if len(attributes) > 1 else "by"
                raise InputError(
                    f"{parameter}={shorten(column)}", "is not the name of a column", "Give its name as text."
                )
        if len(set(attributes)) < len(attributes):
            raise InputError(f"by={list(attributes)!r}", "names a column twice", "Name each column once.")
        asked = {"estimate": estimate, "se": se}
        asked |= {name: column for name, column in (("n", n), ("dof", dof)) if column is not None}
        keys = {f"by[{i}]" if len(attributes) > 1 else "by": column for i, column in enumerate(attributes)}
        table = read_table(frame, keys=keys, numbers=asked)
        named = [[part_of(value) for value in column] for column in table.keys]
        labels = named[0] if len(attributes) == 1 else list(zip(*named, strict=True))
        numbers = table.numbers
        return cls(
            numbers["estimate"], numbers["se"], labels, numbers.get("n"), numbers.get("dof"), attributes=attributes
        )

    @classmethod
    def from_fit(
        cls,
        fit: object,
        terms: Sequence[str] | Mapping[Any, str | Sequence[str]] | None = None,
        *,
        treatment: str | None = None,
        reference: Label | None = None,
        n: npt.ArrayLike | None = None,
        dof: float | None = None,
        by: str = "group",
        measure: str = "effect",
    ) -> Estimates:
        """Take effects of groups from a regression, with their covariance: robust or clustered, as it was fitted.

        Args:
            fit: A result of statsmodels, linearmodels or pyfixest, or any object with `params` and `cov_params()`.
            terms: The coefficients that are the groups' effects, by name; or group → coefficient; or group → several
                that add up.
            treatment: Or the treatment: the groups' effects are its interactions with them. Where it has a main effect
                too, the interactions are differences from one group, and are added to it.
            reference: That group, where the fit does not say it.
            n: Sizes of the groups.
            dof: Degrees of freedom behind the covariance. Default: those by which the fit judges; none where it takes
                the normal law.
            by: What the groups are values of.
            measure: What was measured.

        Returns:
            The estimates, with `covariance`.

        Raises:
            InputError: If the fit has no such coefficients.

        Example:
            >>> import numpy as np, faultlines as fl
            >>> class Fit:
            ...     params = {"C(country)[DE]:treated": 0.1, "C(country)[FR]:treated": 0.4}
            ...     cov = np.array([[0.02, 0.01], [0.01, 0.02]])
            >>> fl.Estimates.from_fit(Fit(), treatment="treated", by="country").labels
            ('DE', 'FR')
        """
        found = effects_of(fit, terms, treatment, reference, dof)
        freedom = found.dof if np.isfinite(found.dof) else None
        return cls(
            found.values,
            None,
            found.labels,
            n,
            freedom,
            attributes=(by,),
            measure=measure,
            covariance=found.covariance,
        )

    # --------------------------------------------------------------------------------------- as users see it

    @property
    def theta(self) -> FloatArray:
        """The estimates: (K,), or (K, d) for several effects."""
        return self._plain(self.given)

    @property
    def se(self) -> FloatArray:
        """Their standard errors, in the same shape."""
        return self._plain(self.errors)

    @property
    def natural(self) -> FloatArray:
        """The estimates as people read them, in the same shape."""
        return self._plain(self.shown)

    @property
    def labels(self) -> Sequence[Label]:
        """Names of the groups; tuples where there are several attributes."""
        return labels_of(self.keys)

    def intervals(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """The ends of every group's own interval at the level 1 − α, as people read them, in the shape of `theta`.

        Args:
            alpha: One less the level of each interval.

        Returns:
            The lower and the upper ends.

        Raises:
            InputError: If `alpha` does not lie between 0 and 1.

        Example:
            >>> import faultlines as fl
            >>> lower, upper = fl.Estimates([0.02, -0.1], [0.01, 0.01], ["DE", "IN"]).intervals(0.05)
            >>> lower.round(3).tolist(), upper.round(3).tolist()
            ([0.0, -0.12], [0.04, -0.08])
        """
        lower, upper = self.interval_ends(checks.alpha(alpha))
        return self._plain(lower), self._plain(upper)

    def _plain(self, array: FloatArray) -> FloatArray:
        return array[:, 0] if array.shape[1] == 1 else array

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        by = " × ".join(self.attributes)
        return f"Estimates({len(self)} groups by {by}, θ from {self.given.min():.4g} to {self.given.max():.4g})"

    # ---------------------------------------------------------------------------------------- for everything inside

    @property
    def dims(self) -> int:
        """How many effects are measured together."""
        return int(self.values.shape[1])

    @property
    def dof_of_all(self) -> float:
        """Degrees of freedom behind the covariance of all groups as a whole; infinite where it is known."""
        if self.covariance is None or self.dof is None or np.ptp(np.minimum(self.dof, _MOST_PEOPLE)) > 0:
            return np.inf
        return float(self.dof[0])

    @property
    def own_dof(self) -> FloatArray | None:
        """Degrees of freedom behind the standard error of each group, where each was estimated by itself."""
        return self.dof if np.isinf(self.dof_of_all) else None

    @property
    def covariances(self) -> FloatArray:
        """The covariance of the effects of every group, (K, d, d); diagonal where they are independent."""
        return np.asarray(self.errors[:, :, None] ** 2 * np.eye(self.dims)) if self.cov is None else self.cov

    @property
    def scales(self) -> tuple[Scale, ...]:
        """The scale of each effect."""
        return scale_of_each(self.scale, self.dims)

    def readable(self, values: FloatArray) -> FloatArray:
        """Values on the scales, (…, d), as people read them.

        Args:
            values: The values.

        Returns:
            The same, on the scales of the metrics.

        Example:
            >>> import faultlines as fl, numpy as np
            >>> fl.Estimates([0.02, -0.1], [0.01, 0.01]).readable(np.array([[0.5]])).tolist()
            [[0.5]]
        """
        return np.stack([scale.natural(values[..., i]) for i, scale in enumerate(self.scales)], axis=-1)

    def readable_errors(self, values: FloatArray, errors: FloatArray) -> FloatArray:
        """Standard errors of values on the scales, (…, d), as people read them (delta method).

        Args:
            values: The values.
            errors: Their standard errors on the scales.

        Returns:
            Standard errors of what people read.

        Example:
            >>> import faultlines as fl, numpy as np
            >>> fl.Estimates([0.02, -0.1], [0.01, 0.01]).readable_errors(np.array([[0.5]]), np.array([[0.1]])).tolist()
            [[0.1]]
        """
        slopes = [scale.slope(values[..., i]) for i, scale in enumerate(self.scales)]
        return np.asarray(errors * np.stack(slopes, axis=-1))

    def interval_ends(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """The same as (K, d) arrays.

        Args:
            alpha: One less the level of each interval.

        Returns:
            The lower and the upper ends.

        Example:
            >>> import faultlines as fl
            >>> lower, upper = fl.Estimates([0.02, -0.1], [0.01, 0.01], ["DE", "IN"]).interval_ends(0.05)
            >>> lower.shape, upper.shape
            ((2, 1), (2, 1))
        """
        reach = np.asarray(-ndtri(alpha / 2) if self.dof is None else -stdtrit(self.dof, alpha / 2)).reshape(-1, 1)
        lower, upper = (self.readable(self.given + side * reach * self.errors) for side in (-1, 1))
        return np.minimum(lower, self.shown), np.maximum(upper, self.shown)

    def subset(self, keep: BoolArray) -> Estimates:
        """The same estimates for the groups where `keep` is true.

        Args:
            keep: K truth values.

        Returns:
            The estimates of those groups.

        Example:
            >>> import faultlines as fl, numpy as np
            >>> lifts = fl.Estimates([0.02, -0.1], [0.01, 0.01], ["DE", "IN"])
            >>> lifts.subset(np.array([False, True])).labels
            ('IN',)
        """
        places = np.flatnonzero(keep)
        return self.changed(
            theta=self.given[places],
            compared=self.values[places],
            se=self.errors[places],
            labels=labels_of(some_of(self.keys, places)),
            n=None if self.n is None else self.n[places],
            dof=None if self.dof is None else self.dof[places],
            natural=self.shown[places],
            cov=None if self.cov is None else self.cov[places],
            covariance=None if self.covariance is None else self.covariance[np.ix_(places, places)],
        )

    def replaced(self, values: FloatArray, *, spread: float = 1.0, **changes: Any) -> Estimates:
        """Other estimates of the same groups, with standard errors `spread` times as large, or other ones.

        Args:
            values: The other estimates, (K, d), on the scale that is compared on.
            spread: How many times as large standard errors are.
            changes: Other arguments of the constructor that change.

        Returns:
            The other estimates.

        Example:
            >>> import faultlines as fl, numpy as np
            >>> lifts = fl.Estimates([0.02, -0.1], [0.01, 0.01], ["DE", "IN"])
            >>> lifts.replaced(np.zeros((2, 1)), spread=2.0).se.tolist()
            [0.02, 0.02]
        """
        spread_out = {"se": self.errors * spread, "cov": None if self.cov is None else self.cov * spread**2}
        spread_out["covariance"] = None if self.covariance is None else self.covariance * spread**2
        return self.changed(theta=values, compared=None, natural=self.readable(values), **(spread_out | changes))

    def changed(self, **changes: Any) -> Estimates:
        """The same with some arguments of the constructor changed; standard errors follow from `cov`, if given.

        Args:
            changes: Arguments of the constructor.

        Returns:
            Estimates with those arguments, and all others as they are here.

        Example:
            >>> import faultlines as fl
            >>> fl.Estimates([0.02, -0.1], [0.01, 0.01]).changed(labels=["DE", "IN"]).labels
            ('DE', 'IN')
        """
        kept = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "own"}
        kept |= {"theta": kept.pop("given"), "compared": kept.pop("values")}
        kept |= {"se": kept.pop("errors"), "natural": kept.pop("shown")}
        kept |= {"labels": labels_of(kept.pop("keys"))}
        if "theta" in changes and "compared" not in changes:
            kept["compared"] = None
        kept |= changes
        if kept["cov"] is not None or kept["covariance"] is not None:
            kept["se"] = None
        if self.dims == 1:
            kept["parts"] = None
        return Estimates(**kept)


# ----------------------------------------------------------------------------------------------- what users may give


def numbers(parameter: str, values: npt.ArrayLike) -> FloatArray:
    """A fresh float array of any shape, or an error that says what prevents it."""
    try:
        raw = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan) if np.ma.isMA(values) else np.asarray(values)
        odd = raw.dtype.kind not in "iufO" or (raw.dtype == object and any(isinstance(v, bool) for v in raw.flat))
        if odd and raw.size:
            raise TypeError
        return np.array(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{parameter}={shorten(values)}", "is not numeric", "Give numbers.") from error


def _columns(parameter: str, values: npt.ArrayLike, shape: tuple[int, int] | None = None) -> FloatArray:
    """Numbers as (K, d); one effect may come as (K,)."""
    array = numbers(parameter, values)
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0):
        raise InputError(
            parameter, f"has {array.ndim} dimensions", f"Give one number per group: {parameter} of shape (K,)."
        )
    array = array[:, None] if array.ndim == 1 else array
    if shape is not None and len(array) != shape[0]:
        raise InputError(
            parameter, f"has {len(array)} values, but theta has {shape[0]}", "Give one value for each group."
        )
    if shape is not None and array.shape != shape:
        raise InputError(parameter, f"has shape {array.shape}, but theta {shape}", "Give one for each estimate.")
    return array


def _vector(parameter: str, values: npt.ArrayLike, size: int) -> FloatArray:
    """One number per group; a single one holds for all."""
    array = numbers(parameter, values)
    array = np.full(size, float(array)) if array.ndim == 0 else array
    if array.ndim != 1:
        raise InputError(
            parameter, f"has {array.ndim} dimensions", f"Give one number per group: {parameter} of shape (K,)."
        )
    if len(array) != size:
        raise InputError(parameter, f"has {len(array)} values, but theta has {size}", "Give one value for each group.")
    return array


def _errors(se: npt.ArrayLike | None, cov: FloatArray | None, values: FloatArray) -> FloatArray:
    """Standard errors as given, or those of the covariance matrices."""
    if cov is None:
        if se is None:
            raise InputError("se=None", "standard errors are needed", "Give one for each estimate, or cov.")
        return _columns("se", se, values.shape)
    errors = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    if se is not None and not np.allclose(_columns("se", se, values.shape), errors, rtol=1e-6, atol=0):
        raise InputError("se", "is not the square root of the diagonal of cov", "Leave se=None where cov is given.")
    return np.array(errors)


def _between(covariance: npt.ArrayLike, cov: FloatArray | None, values: FloatArray, keys: Sequence[Key]) -> FloatArray:
    """The covariance matrix of one effect of all groups."""
    if values.shape[1] > 1 or cov is not None:
        raise InputError(
            "covariance", "goes with one effect per group", "Give theta of shape (K,), or cluster effects one by one."
        )
    return checked_covariance(numbers("covariance", covariance), keys)


def _errors_of(se: npt.ArrayLike | None, covariance: FloatArray, values: FloatArray) -> FloatArray:
    """Standard errors of a covariance matrix of all groups; those that were given must be the same."""
    errors = np.sqrt(np.diagonal(covariance))[:, None]
    if se is not None and not np.allclose(_columns("se", se, values.shape), errors, rtol=1e-6, atol=0):
        remedy = "Leave se=None where covariance is given, and give both in the order of labels."
        raise InputError("se", "is not the square root of the diagonal of covariance", remedy)
    return np.array(errors)


def _freedom(dof: npt.ArrayLike | None, keys: Sequence[Key], dims: int) -> FloatArray | None:
    """Degrees of freedom; none where all variances are known."""
    if dof is None:
        return None
    freedom = _vector("dof", dof, len(keys))
    _require(freedom >= 1, "dof", freedom, keys, "must be 1 or more", "Use infinity for a known variance.")
    problem = f"must be at least the number of effects, {dims}"
    _require(freedom >= dims, "dof", freedom, keys, problem, "Leave this group out, or cluster the effects one by one.")
    return None if np.all(np.isinf(freedom)) else freedom


def _covariances(cov: npt.ArrayLike, values: FloatArray, keys: Sequence[Key]) -> FloatArray:
    """Covariance matrices as they can be used: one per group, symmetric and positive definite."""
    matrices = numbers("cov", cov)
    wanted = (*values.shape, values.shape[1])
    if matrices.shape != wanted:
        raise InputError("cov", f"has shape {matrices.shape}, theta {values.shape}", f"Give cov of shape {wanted}.")
    diagonal = np.sqrt(np.maximum(np.diagonal(matrices, axis1=1, axis2=2), 0.0))
    with np.errstate(all="ignore"):
        correlation = matrices / (diagonal[:, :, None] * diagonal[:, None, :])
        good = np.isfinite(correlation).all(axis=(1, 2))
        even = np.abs(correlation - np.swapaxes(correlation, 1, 2)).max(axis=(1, 2)) < 1e-8
    good &= np.nan_to_num(even).astype(bool)
    good[good] = np.linalg.eigvalsh(correlation[good]).min(axis=1) > 1e-10
    if not good.all():
        first = int(np.flatnonzero(~good)[0])
        raise InputError(
            f"cov of group {name_of(keys[first])!r}",
            "is not a covariance matrix (symmetric, positive definite)",
            "Leave out what is determined by the rest, or correct it.",
        )
    return np.asarray((matrices + np.swapaxes(matrices, 1, 2)) / 2)


def _part_names(parts: Sequence[str] | None, dims: int) -> tuple[str, ...]:
    """Names of several effects; one effect is named by `measure`."""
    listed = isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts)
    if dims == 1:
        if parts is not None and not (listed and len(parts) == 1):
            raise InputError(f"parts={shorten(parts)}", "names parts, but theta has one dimension", "Leave it out.")
        return ()
    if parts is None:
        return tuple(f"part {i + 1}" for i in range(dims))
    if not listed or len(parts) != dims or len(set(parts)) < len(parts):
        raise InputError(f"parts={shorten(parts)}", f"must be {dims} distinct names", "Name each of them once.")
    return tuple(str(part) for part in parts)


def _require(
    good: BoolArray, parameter: str, values: FloatArray, keys: Sequence[Key], problem: str, remedy: str
) -> None:
    """Raise for the first group whose value is not good, and say how many there are."""
    if good.all():
        return
    good, values = good.reshape(len(keys), -1), values.reshape(len(keys), -1)
    bad = np.flatnonzero(~good.all(axis=1))
    others = f" (and {bad.size - 1} more)" if bad.size > 1 else ""
    worst = values[bad[0]][~good[bad[0]]][0]
    raise InputError(f"{parameter}={worst:g} in group {name_of(keys[bad[0]])!r}{others}", problem, remedy)


def _check_meaning(scale: Scale, measure: str) -> None:
    if not isinstance(scale, Scale):
        raise InputError(f"scale={shorten(scale)}", "is not a scale", "Leave it out, or use that of a metric.")
    if not isinstance(measure, str):
        raise InputError(f"measure={shorten(measure)}", "is not text", "Say what was measured.")


def _check_readable(scale: Scale, values: FloatArray, errors: FloatArray) -> None:
    """Refuse estimates whose intervals cannot be read on the natural scale, such as a lift of e⁸⁰⁰."""
    with np.errstate(over="ignore", invalid="ignore"):
        for i, one in enumerate(scale_of_each(scale, values.shape[1])):
            ends = one.natural(values[:, i] + 3 * errors[:, i]), one.slope(values[:, i])
            if not all(np.isfinite(end).all() for end in ends):
                largest = float(values[:, i].max())
                raise InputError(
                    f"theta up to {largest:g}", f"is beyond what the {one.name} scale can show", "Check it."
                )


def _check_range(theta: FloatArray, se: FloatArray) -> None:
    with np.errstate(over="ignore"):
        widest, farthest = se.max() / se.min(), (theta.max() / 2 - theta.min() / 2) / se.min() * 2
    if widest > _WIDEST_SE:
        raise InputError(
            f"se from {se.min():g} to {se.max():g}", "spans too many orders of magnitude", "Check the units."
        )
    if farthest > _FARTHEST_THETA:
        raise InputError(
            f"theta from {theta.min():g} to {theta.max():g}",
            f"lies too far apart for standard errors as small as {se.min():g}",
            "Check the units.",
        )
    if np.abs(theta).max() > _LARGEST or not _SMALLEST <= se.min() <= se.max() <= _LARGEST:
        raise InputError(
            f"theta up to {np.abs(theta).max():g}, se from {se.min():g} to {se.max():g}",
            f"lies beyond the range of {_SMALLEST:g} to {_LARGEST:g}",
            "Use other units.",
        )
