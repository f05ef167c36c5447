"""Estimates: K groups, what was measured in each, and how precisely.

Inside there is one shape: effects are (K, d) arrays and groups are keys (tuples), also where there is one effect and
one attribute. What users see, `theta`, `se`, `natural` and `labels`, is made of it here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from faultlines import checks
from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.estimates.labels import (
    Key,
    Label,
    checked_labels,
    in_order,
    keys_of,
    labels_of,
    name_of,
    part_of,
    some_of,
)
from faultlines.estimates.reasons import Reason, ReasonCode
from faultlines.estimates.scales import IDENTITY, PERCENT, Scale, critical_value, scale_of_each
from faultlines.estimates.validation import (
    between_groups,
    check_meaning,
    check_range,
    check_readable,
    columns,
    covariances,
    errors_alone,
    errors_of_all,
    freedom,
    freedom_of_all,
    in_order_of,
    named_by_index,
    own_variances,
    part_names,
    require,
    standard_errors,
    vector,
)
from faultlines.types import BoolArray, FloatArray, IntArray

Terms = Sequence[str] | Mapping[Any, str | Sequence[str]]

_T = TypeVar("_T")

_MOST_PEOPLE = 2.0**53


@dataclass(frozen=True, slots=True)
class Excluded:
    """An excluded group, why, and what was known of it.

    Attributes:
        label: The group.
        reason: Why it was excluded.
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
        >>> left_out.label, left_out.code == "too small", left_out.text
        ('IS', True, 'fewer than 100 in the group')
    """

    label: Label
    reason: Reason
    estimate: float | None = None
    se: float | None = None
    n: float | None = None
    events: float | None = None
    lower: float | None = None
    upper: float | None = None

    @property
    def code(self) -> ReasonCode:
        """The kind of reason."""
        return self.reason.code

    @property
    def text(self) -> str:
        """The reason in words."""
        return self.reason.text


def _scale_in_percent(scale: Scale) -> Scale:
    if scale not in (IDENTITY, PERCENT):
        problem = "applies to estimates without a scale of their own"
        raise InputError.conflict("percent", problem, "Leave out percent or the scale.")
    return PERCENT


class Remainder(NamedTuple):
    """Rows of groups that are too small to be compared, pooled over some attributes: they count along the others.

    Attributes:
        estimates: The estimates of what was pooled.
        keys: For each, a value for every attribute, None for those that were pooled over.
        groups: How many groups were pooled.
    """

    estimates: Estimates
    keys: tuple[tuple[Hashable, ...], ...]
    groups: int


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
        se: Their standard errors, all above zero; None where `effect_covariance` or `covariance` is given.
        labels: K names, or K tuples with one value for each attribute; all different. Default: the index of `theta`,
            where it is a pandas Series that has one, or 0 … K − 1. Series must have one index, in one order.
        n: Sizes of the groups, for display and for `min_size`. One number holds for all.
        dof: Degrees of freedom behind each standard error, where known; then the guarantee allows for the error in
            the standard errors too, and `fl.cluster` moderates them by those of all groups (12 or more). At least 1,
            and at least d for d effects; infinity means "known exactly". One
            number holds for all; with `covariance` one number is that of the matrix as a whole, as in a regression.
        attributes: What the labels are values of, for instance ``("country", "device")``. Default: the names of the
            index, where labels are from there.
        natural: The estimates as people read them, where `theta` is on another scale.
        scale: That scale.
        metric: What was measured, for instance ``"lift of revenue"``.
        effect_covariance: The covariance matrices of d things measured together, (K, d, d), where they go together.
        parts: Names of the d things.
        compared: The estimates as they are compared, in the shape of `theta`, where their noise was made more normal.
        covariance: The covariance matrix of the K estimates, (K, K), where groups share data: a control, users in
            several groups, a regression. A frame with the labels as index and columns is put in their order.
        covariance_dof: Degrees of freedom of that matrix where all of it is estimated: users or clusters of users, less
            one. The guarantee then allows for all its errors (Hotelling). `dof` is for one that is known but for a
            factor.
        recipe: How rows were measured, where they were: `fl.Monitor` refuses to go on with another one.
        remainder: Small groups of rows, pooled over some attributes: they count where attributes are tested.
        alone: Standard error and degrees of freedom of each group by its own rows alone, (K, 2), where `se` says what
            groups have in common too: what single groups show must hold by both.
        percent: Whether people read the estimates in percent and their differences in percentage points: lifts.

    Raises:
        InputError: If an array has the wrong shape, a standard error is not above zero, a covariance matrix is not
            positive definite, or a label occurs twice.

    Example:
        >>> import faultlines as fl
        >>> lifts = fl.Estimates([0.02, 0.03, -0.1], [0.01, 0.02, 0.01], labels=["DE", "FR", "IN"])
        >>> len(lifts), lifts.dims, lifts.labels, lifts.theta.tolist(), lifts.se.tolist()
        (3, 1, ('DE', 'FR', 'IN'), [0.02, 0.03, -0.1], [0.01, 0.02, 0.01])
        >>> lifts.natural.tolist(), lifts.scales[0].name, lifts.covariances.shape, lifts.own_dof, lifts.dof_of_all
        ([0.02, 0.03, -0.1], 'identity', (3, 1, 1), None, inf)
    """

    values: FloatArray  # (K, d), on the scale that is compared on
    errors: FloatArray  # (K, d)
    shown: FloatArray  # (K, d), as people read the values
    keys: Sequence[Key]
    n: FloatArray | None
    dof: FloatArray | None
    attributes: tuple[str, ...]
    scale: Scale
    metric: str
    effect_covariance: FloatArray | None  # (K, d, d)
    parts: tuple[str, ...]  # names of several effects, none for one
    given: FloatArray  # (K, d), the values as they were estimated, before skewed noise was straightened
    covariance: FloatArray | None  # (K, K), of one effect
    own: FloatArray  # (K, d), standard errors without what several groups have in common
    covariance_dof: float  # infinite where the covariance is known, or known but for a factor
    recipe: str
    remainder: Remainder | None
    alone: FloatArray | None  # (K, 2)

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
        metric: str = "effect",
        effect_covariance: npt.ArrayLike | None = None,
        parts: Sequence[str] | None = None,
        compared: npt.ArrayLike | None = None,
        covariance: npt.ArrayLike | None = None,
        covariance_dof: float | None = None,
        recipe: str = "",
        remainder: Remainder | None = None,
        alone: FloatArray | None = None,
        percent: bool = False,
    ) -> None:
        scale = _scale_in_percent(scale) if checks.flag("percent", percent) else scale
        named = {"theta": theta, "se": se, "n": n, "dof": dof, "natural": natural, "compared": compared}
        labels, attributes = named_by_index(named, labels, attributes)
        estimated = columns("theta", theta)
        values = estimated if compared is None else columns("compared", compared, estimated.shape)
        size, dims = values.shape
        if size == 0:
            raise InputError.empty(
                "theta", "there is no group at all (K = 0)", "Give at least one estimate.", form="clause"
            )
        keys, attribute_names = checked_labels(labels, attributes, size)
        matrices = None if effect_covariance is None else covariances(effect_covariance, values, keys)
        between = None if covariance is None else between_groups(covariance, matrices, values, keys)
        errors = standard_errors(se, matrices, values) if between is None else errors_of_all(se, between, values)
        for parameter, array in (("theta", estimated), ("compared", values)):
            require(
                np.isfinite(array), parameter, array, keys, "must be finite", "Leave this group out, or correct it."
            )
        require(
            np.isfinite(errors) & (errors > 0),
            "se",
            errors,
            keys,
            "must be finite and above zero",
            "Leave this group out: without a standard error it cannot be compared.",
        )
        own = errors if between is None else np.sqrt(own_variances(between))[:, None]
        check_range(values, own)
        check_meaning(scale, metric)
        shown = estimated if natural is None else columns("natural", natural, values.shape)
        require(np.isfinite(shown), "natural", shown, keys, "must be finite", "Leave this group out, or correct it.")
        check_readable(scale, values, errors)
        whole_dof = freedom_of_all(covariance_dof, between)
        sizes = None if n is None else vector("n", n, size)
        if sizes is not None:
            fit = (sizes > 0) & (sizes <= _MOST_PEOPLE)
            require(fit, "n", sizes, keys, "must be above zero and at most 2^53", "Correct the size.")
        for name, value in (
            ("values", values),
            ("errors", errors),
            ("shown", shown),
            ("keys", keys),
            ("n", sizes),
            ("dof", freedom(whole_dof if dof is None else dof, keys, dims)),
            ("attributes", attribute_names),
            ("scale", scale),
            ("metric", metric),
            ("effect_covariance", matrices if dims > 1 else None),
            ("parts", part_names(parts, dims)),
            ("given", estimated),
            ("covariance", between),
            ("own", own),
            ("covariance_dof", whole_dof),
            ("recipe", recipe),
            ("remainder", remainder),
            ("alone", None if alone is None else errors_alone(alone, keys)),
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
        *,
        percent: bool = False,
    ) -> Estimates:
        """Read a table with one row per group.

        Args:
            frame: A pandas, Polars, PyArrow or other frame that narwhals knows, or the path of a csv or parquet file.
            by: The column, or the columns, that name the groups. A null becomes the group ``(missing)``.
            estimate: The column of estimates.
            se: The column of standard errors.
            n: The column of group sizes, if there is one.
            dof: The column of degrees of freedom, if there is one.
            percent: Whether people read the estimates in percent: lifts.

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
        estimates = read_estimates(frame, by, EstimateColumns(estimate, se, n, dof))
        return estimates.changed(scale=PERCENT) if checks.flag("percent", percent) else estimates

    @classmethod
    def from_fit(
        cls,
        fit: object,
        terms: Sequence[str] | Mapping[Any, str | Sequence[str]],
        *,
        n: npt.ArrayLike | None = None,
        dof: float | None = None,
        clusters: int | None = None,
        by: str | Sequence[str] = "group",
        metric: str = "effect",
    ) -> Estimates:
        """Take effects of groups from a regression, with their covariance: robust or clustered, as it was fitted.

        Args:
            fit: A result of statsmodels, linearmodels or pyfixest, or any object with `params` and `cov_params()`.
            terms: Group → the coefficient that is its effect, or several that add up to it, as where interactions are
                differences from a main effect. Or the coefficients alone, whose names are then those of the groups.
            n: Sizes of the groups.
            dof: Degrees of freedom behind the covariance. Default: those by which the fit judges; none where it takes
                the normal law.
            clusters: How many clusters the covariance was estimated from, where the fit does not say it. A clustered
                covariance of more than two groups is allowed for as a whole (Hotelling): there must be more clusters
                than groups.
            by: What the groups are values of; several names where `terms` maps tuples.
            metric: What was measured.

        Returns:
            The estimates, with `covariance`.

        Raises:
            InputError: If the fit has no such coefficients.

        Example:
            >>> import numpy as np, faultlines as fl
            >>> class Fit:
            ...     params = {"treated": 0.1, "C(country)[T.FR]:treated": 0.3}
            ...     covariance = np.array([[0.02, -0.01], [-0.01, 0.02]])
            >>> terms = {"DE": "treated", "FR": ["treated", "C(country)[T.FR]:treated"]}
            >>> fl.Estimates.from_fit(Fit(), terms, by="country").theta.tolist()
            [0.1, 0.4]
        """
        effects = effects_of(fit, terms, dof, clusters)
        return cls(
            effects.values,
            None,
            effects.labels,
            n,
            effects.dof if np.isfinite(effects.dof) else None,
            attributes=(by,) if isinstance(by, str) else by,
            metric=metric,
            covariance=effects.covariance,
            covariance_dof=effects.covariance_dof,
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
        if np.isfinite(self.covariance_dof):
            return self.covariance_dof
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
        return (
            np.asarray(self.errors[:, :, None] ** 2 * np.eye(self.dims))
            if self.effect_covariance is None
            else self.effect_covariance
        )

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
        reach = critical_value(alpha / 2, self.dof).reshape(-1, 1)
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
            alone=None if self.alone is None else self.alone[places],
            natural=self.shown[places],
            effect_covariance=None if self.effect_covariance is None else self.effect_covariance[places],
            covariance=None if self.covariance is None else self.covariance[np.ix_(places, places)],
        )

    def with_small_groups(self) -> Estimates:
        """With the small groups that were pooled as groups of their own, named by numbers; itself where there are none.

        Returns:
            The groups, then what was pooled.

        Example:
            >>> import faultlines as fl
            >>> len(fl.Estimates([0.02, -0.1], [0.01, 0.01], ["DE", "IN"]).with_small_groups())
            2
        """
        if self.remainder is None:
            return self
        more = self.remainder.estimates

        def both(name: str) -> FloatArray | None:
            first, second = getattr(self, name), getattr(more, name)
            return None if first is None or second is None else np.concatenate((first, second))

        return Estimates(
            both("given"),  # type: ignore[arg-type]
            both("errors"),
            alone=None if self.alone is None else np.concatenate((self.alone, more.alone_or_as_known())),
            n=both("n"),
            dof=both("dof"),
            natural=both("shown"),
            scale=self.scale,
            metric=self.metric,
            compared=both("values"),
            recipe=self.recipe,
        )

    def alone_or_as_known(self) -> FloatArray:
        """Standard errors and degrees of freedom by the rows of each group, or as they are known where these said none.

        Returns:
            Both, (K, 2).

        Example:
            >>> import faultlines as fl
            >>> fl.Estimates([0.02, -0.1], [0.01, 0.01]).alone_or_as_known().tolist()
            [[0.01, inf], [0.01, inf]]
        """
        if self.alone is not None:
            return self.alone
        dof = np.full(len(self), np.inf) if self.dof is None else self.dof
        return np.stack((self.errors[:, 0], dof), axis=1)

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
        spread_out = {
            "se": self.errors * spread,
            "effect_covariance": None if self.effect_covariance is None else self.effect_covariance * spread**2,
        }
        spread_out["covariance"] = None if self.covariance is None else self.covariance * spread**2
        return self.changed(theta=values, compared=None, natural=self.readable(values), **(spread_out | changes))

    def replaced_parts(self, values: FloatArray, spreads: FloatArray) -> list[Estimates]:
        """Several other estimates of the same groups, as `replaced` makes one; checked together.

        Args:
            values: The other estimates, (parts, K, d), on the scale that is compared on.
            spreads: How many times as large standard errors are in each part.

        Returns:
            The estimates of each part.

        Example:
            >>> import faultlines as fl, numpy as np
            >>> lifts = fl.Estimates([0.02, -0.1], [0.01, 0.01], ["DE", "IN"])
            >>> [part.se.tolist() for part in lifts.replaced_parts(np.zeros((2, 2, 1)), np.array([1.0, 2.0]))]
            [[0.01, 0.01], [0.02, 0.02]]
        """
        if self.dof is not None or self.covariance is not None or self.effect_covariance is not None:
            return [self.replaced(part, spread=float(spread)) for part, spread in zip(values, spreads, strict=True)]
        errors, shown = self.errors * spreads[:, None, None], self.readable(values)
        for b in np.flatnonzero(~np.isfinite(values + shown).all(axis=(1, 2))).tolist():
            self.replaced(values[b], spread=float(spreads[b]))  # says what is wrong
        stacked, stacked_errors = (array.reshape(-1, self.dims) for array in (values, errors))
        check_range(stacked, self.errors * spreads.min())
        check_readable(self.scale, stacked, stacked_errors)
        return [
            self._copied(values=values[b], given=values[b], shown=shown[b], errors=errors[b], own=errors[b])
            for b in range(len(spreads))
        ]

    def _copied(self, **arrays: FloatArray) -> Estimates:
        """The same with other arrays, which are not checked."""
        copied = object.__new__(Estimates)
        for array in arrays.values():
            array.setflags(write=False)
        for field in self.__slots__:
            value = None if field in {"remainder", "alone"} else getattr(self, field)
            object.__setattr__(copied, field, arrays.get(field, value))
        return copied

    def changed(self, **changes: Any) -> Estimates:
        """The same with some arguments of the constructor changed; standard errors follow from covariances.

        Args:
            changes: Arguments of the constructor.

        Returns:
            Estimates with those arguments, and all others as they are here.

        Example:
            >>> import faultlines as fl
            >>> fl.Estimates([0.02, -0.1], [0.01, 0.01]).changed(labels=["DE", "IN"]).labels
            ('DE', 'IN')
        """
        arguments = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "own"}
        arguments |= {"theta": arguments.pop("given"), "compared": arguments.pop("values")}
        arguments |= {"se": arguments.pop("errors"), "natural": arguments.pop("shown")}
        arguments |= {"labels": labels_of(arguments.pop("keys"))}
        if "theta" in changes and "compared" not in changes:
            arguments["compared"] = None
        if "theta" in changes:  # what was pooled is of other groups then
            arguments |= {"remainder": None, "alone": None}
        arguments |= changes
        if arguments["effect_covariance"] is not None or arguments["covariance"] is not None:
            arguments["se"] = None
        if self.dims == 1:
            arguments["parts"] = None
        return Estimates(**arguments)


# --------------------------------------------------------------------------------------------- from a fitted regression

# Effects of groups out of a fitted regression: their coefficients, with the covariance the fit gives them.


_LISTED = 8  # coefficients in a remedy


class FittedEffects(NamedTuple):
    """Effects of groups as sums of coefficients.

    Attributes:
        labels: The groups.
        values: Their effects.
        covariance: Of these.
        dof: Degrees of freedom by which the fit judges, infinite where it takes the normal law.
        covariance_dof: Those of the covariance as a whole, where it was estimated from clusters.
    """

    labels: list[Any]
    values: FloatArray
    covariance: FloatArray
    dof: float
    covariance_dof: float | None


def effects_of(fit: Any, terms: Terms, dof: float | None = None, clusters: float | None = None) -> FittedEffects:
    """The effects that some coefficients of a fit are.

    Args:
        fit: A fitted model.
        terms: Which coefficients: group → one, or several that add up; or a list, each the effect of a group.
        dof: Degrees of freedom, where the fit's are not to be taken.
        clusters: How many clusters the covariance was estimated from, where the fit does not say it.

    Returns:
        FittedEffects with their covariance.

    Raises:
        InputError: If the fit has no such coefficients, or no covariance.
    """
    if dof is not None:
        checks.number("dof", dof, "must be a number, 1 or more", "Leave it out.", low=1)
    if clusters is not None:
        checks.number("clusters", clusters, "must be a number, 2 or more", "Leave it out.", low=2)
    names, values, covariance = _read_fit(fit)
    parts_of = _term_parts(terms, names)
    places = {name: i for i, name in enumerate(names)}
    sums = np.zeros((len(parts_of), len(names)))
    for row, (label, parts) in zip(sums, parts_of.items(), strict=True):
        for part in parts:
            if part not in places:
                remedy, place = did_you_mean(part, names), f"of group {shorten(label)}"
                raise InputError.not_found("terms", "is not a coefficient of the fit", remedy, part, place=place)
            if names.count(part) > 1:
                problem = "is the name of several coefficients"
                raise InputError.ambiguous("terms", problem, "Rename their columns.", part)
            row[places[part]] += 1
    cluster_count = _fit_clusters(fit) if clusters is None else float(clusters)
    # Of two groups the fit's own test is ours; of more, the errors of a clustered covariance add up.
    covariance_dof = cluster_count - 1 if cluster_count is not None and len(parts_of) > 2 else None
    own_dof = _fit_dof(fit) if dof is None else float(dof)
    with np.errstate(all="ignore"):  # what is not finite is refused with its group
        effects, shared = sums @ values, sums @ covariance @ sums.T
    return FittedEffects(list(parts_of), effects, shared, own_dof, covariance_dof)


def _read_fit(fit: Any) -> tuple[list[str], FloatArray, FloatArray]:
    """Names, coefficients and covariance of statsmodels, linearmodels, pyfixest, or anything that offers the same."""
    params = getattr(fit, "params", None)
    if params is None and callable(getattr(fit, "coef", None)):
        params = fit.coef()
    covariance = _fit_covariance(fit)
    if params is None or covariance is None:
        remedy = "Give a fit with params and cov_params(), or use fl.Estimates(…, covariance=…)."
        raise InputError.wrong_type("fit", "has no coefficients with a covariance", remedy, type(fit))
    is_map = isinstance(params, Mapping)
    try:
        values = np.asarray(list(params.values()) if is_map else params, dtype=np.float64)
        names = list(params if is_map else _coefficient_names(fit, params, values.size))
        matrix = np.asarray(in_order_of(covariance, keys_of(names)), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError.wrong_type(
            "fit", "its coefficients are not numbers", "Check the fit.", type(fit), form="clause"
        ) from error
    if values.ndim != 1 or matrix.shape != (values.size, values.size) or len(names) != values.size:
        problem = f"has coefficients of shape {values.shape} and a covariance of shape {matrix.shape}"
        raise InputError.mismatch("fit", problem, "Give a fit of one equation.", type(fit))
    rank = getattr(getattr(fit, "model", None), "rank", None)
    if isinstance(rank, int | float | np.number) and rank < values.size:
        problem = f"has {values.size} coefficients, of which only {int(rank)} are identified"
        raise InputError.invalid_data("fit", problem, "Leave out columns that follow from others.", type(fit))
    return [str(name) for name in names], values, matrix


def _fit_covariance(fit: Any) -> Any:
    """The covariance of the coefficients, under any of the names that it has."""
    for name in ("cov_params", "cov", "covariance", "vcov_", "_vcov", "vcov"):
        matrix = getattr(fit, name, None)
        try:
            matrix = matrix() if callable(matrix) else matrix
        except Exception as error:
            problem = f"has no covariance of its coefficients: {shorten(error)}"
            raise InputError.unsupported("fit", problem, "Fit it with one.", type(fit)) from error
        if matrix is not None and np.ndim(matrix) == 2:
            return matrix
    return None


def _fit_clusters(fit: Any) -> float | None:
    """How many clusters a covariance was estimated from, if it was and the fit says it."""
    if "clust" in str(getattr(fit, "cov_type", "")).lower():
        groups = (getattr(fit, "cov_kwds", None) or {}).get("groups")
        if groups is not None:
            each = np.asarray(groups)
            each = each[:, None] if each.ndim == 1 else each
            return float(min(np.unique(column).size for column in each.T))
    reported = getattr(fit, "_G", None)  # pyfixest
    counts = reported if isinstance(reported, list | tuple) else [reported]
    numbers = [float(count) for count in counts if isinstance(count, int | float | np.number) and count > 1]
    return min(numbers) if numbers else None


def _coefficient_names(fit: Any, params: Any, count: int) -> Iterable[Any]:
    """Names of coefficients: those of a Series, or of the model; their numbers where there are none."""
    index = getattr(params, "index", None)
    if index is not None and not callable(index):
        return list(index)
    names: Iterable[Any] = getattr(getattr(fit, "model", None), "exog_names", None) or range(count)
    return names


def _fit_dof(fit: Any) -> float:
    """The degrees of freedom by which a fit judges its coefficients."""
    takes_t = getattr(fit, "use_t", getattr(fit, "debiased", None))
    if takes_t is None:
        return float(getattr(fit, "_df_t", np.inf))
    candidates = [getattr(fit, name, None) for name in ("df_resid_inference", "df_resid")] if takes_t else []
    return next((float(dof) for dof in candidates if dof is not None), np.inf)


def _term_parts(terms: Terms, names: Sequence[str]) -> dict[Any, list[str]]:
    """Groups with the coefficients that add up to the effect of each."""
    if isinstance(terms, str) or not isinstance(terms, Mapping | list | tuple) or not len(terms):
        listed = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
        example = 'terms={"DE": "treated", "FR": ["treated", "C(country)[T.FR]:treated"]}'
        remedy = f"Name the coefficients of each group, as in {example}. There are: {listed}."
        raise InputError.empty("terms", "names no coefficients", remedy, terms)
    pairs = list(terms.items()) if isinstance(terms, Mapping) else [(term, term) for term in terms]
    parts_of: dict[Any, list[str]] = {}
    for label, parts in pairs:
        coefficients = [parts] if isinstance(parts, str) else parts
        if not isinstance(coefficients, list | tuple) or not all(isinstance(part, str) for part in coefficients):
            place = f"of group {shorten(label)}"
            raise InputError.wrong_type("terms", "is not the name of a coefficient", "Give text.", parts, place=place)
        if label in parts_of:
            raise InputError.duplicate("terms", "is there twice", "Name each coefficient once.", label)
        parts_of[label] = list(coefficients)
    return parts_of


# ---------------------------------------------------------------------------------------------------------- from tables

# Tables of estimates: one row per group, or per experiment and group.


# What a number is called where estimates are checked → the parameter that names its column.
_PARAMETERS = {"theta": "estimate", "se": "se", "n": "n", "dof": "dof"}


class EstimateColumns(NamedTuple):
    """The columns of a table of estimates.

    Attributes:
        estimate: The column of estimates.
        se: The column of standard errors.
        n: The column of group sizes, if there is one.
        dof: The column of degrees of freedom, if there is one.
    """

    estimate: str
    se: str
    n: str | None = None
    dof: str | None = None


def checked_attributes(by: Any) -> tuple[str, ...]:
    """The columns that name the groups of a table."""
    if not isinstance(by, str | list | tuple) or not by:
        raise InputError.empty("by", "names no column", "Name the column that holds the groups.", by)
    attributes = (by,) if isinstance(by, str) else tuple(by)
    for column in attributes:
        if not isinstance(column, str):
            raise InputError.wrong_type("by", "is not the name of a column", "Give its name as text.", column)
    if len(set(attributes)) < len(attributes):
        raise InputError.duplicate("by", "names a column twice", "Name each column once.", list(attributes))
    return attributes


@contextmanager
def in_columns(named: Mapping[str, tuple[str, str | None]]) -> Iterator[None]:
    """Report errors about numbers by the parameter that names their column, and the column.

    Args:
        named: What a number is called inside → the parameter that named its column, and the column.
    """
    try:
        yield
    except InputError as error:
        if error.parameter not in named:
            raise
        parameter, column = named[error.parameter]
        place = error.place if column is None else f"(column {shorten(column)}) {error.place}".rstrip()
        raise error.changed(parameter=parameter, place=place) from error


def read_estimates(
    frame: object, by: str | Sequence[str], columns: EstimateColumns, *, metric: str = "effect"
) -> Estimates:
    """The estimates of a table with one row per group.

    Args:
        frame: As for `Estimates.from_frame`.
        by: The column, or the columns, that name the groups.
        columns: The columns of numbers.
        metric: What was measured.

    Returns:
        The estimates, in the order of the rows.

    Raises:
        InputError: If a column is missing, is not numeric, or a group occurs twice.
    """
    attributes = checked_attributes(by)
    keys, numbers = _read_columns(frame, attributes, columns, None)
    return _from_columns(keys, numbers, np.arange(len(keys)), attributes, columns, metric)


def read_experiments(
    frame: object, by: str | Sequence[str], columns: EstimateColumns, *, experiment: str
) -> dict[str, Estimates]:
    """The estimates of a table with one row per experiment and group, by experiment.

    Args:
        frame: As for `Estimates.from_frame`.
        by: The column, or the columns, that name the groups.
        columns: The columns of numbers.
        experiment: The column that says which experiment a row is of.

    Returns:
        Experiment → its estimates, in the order in which experiments first occur.

    Raises:
        InputError: As for `read_estimates`, or if there are no rows.
    """
    attributes = checked_attributes(by)
    keys, numbers = _read_columns(frame, attributes, columns, experiment)
    if not keys:
        raise InputError.empty("data", "has no rows", "Give at least one row for each experiment and group.")
    rows = rows_by_experiment([key[0] for key in keys])
    groups = [key[1:] for key in keys]
    by_experiment = {}
    for name, places in rows.items():
        try:
            by_experiment[name] = _from_columns(groups, numbers, places, attributes, columns, columns.estimate)
        except InputError as error:
            raise error.within(f"experiment {shorten(name)}") from error
    return by_experiment


def rows_by_experiment(names: Sequence[Hashable]) -> dict[str, IntArray]:
    """Where the rows of each experiment are, in the order in which they first occur."""
    typed: dict[Hashable, list[int]] = {}
    for place, name in enumerate(names):
        typed.setdefault((type(name), name), []).append(place)
    rows: dict[str, IntArray] = {}
    for (_, name), places in typed.items():  # type: ignore[misc]
        read_as = name_of(name)
        if read_as in rows:
            raise InputError.ambiguous("experiment", "is the name of several", "Give all names as text.", read_as)
        rows[read_as] = np.array(places, dtype=np.int64)
    return rows


def _read_columns(
    frame: object, attributes: Sequence[str], columns: EstimateColumns, experiment: str | None
) -> tuple[list[tuple[Hashable, ...]], Mapping[str, Any]]:
    """Keys of the rows, that of the experiment first, and the columns of numbers by parameter."""
    keys = {} if experiment is None else {"experiment": experiment}
    keys |= {f"by[{i}]" if len(attributes) > 1 else "by": column for i, column in enumerate(attributes)}
    numbers: dict[str, str] = {"estimate": columns.estimate, "se": columns.se}
    numbers |= {name: column for name, column in (("n", columns.n), ("dof", columns.dof)) if column is not None}
    from faultlines.engines.frames import read_table

    table = read_table(frame, keys=keys, numbers=numbers)
    parts = [in_order(map(part_of, column), levels) for column, levels in zip(table.keys, table.orders, strict=True)]
    return list(zip(*parts, strict=True)), table.numbers


def _from_columns(
    keys: Sequence[tuple[Hashable, ...]],
    numbers: Mapping[str, Any],
    rows: Any,
    attributes: Sequence[str],
    columns: EstimateColumns,
    metric: str,
) -> Estimates:
    labels = labels_of(keys_of([keys[row] for row in rows.tolist()]))
    n, dof = (None if name not in numbers else numbers[name][rows] for name in ("n", "dof"))
    named = {inside: (name, getattr(columns, name)) for inside, name in _PARAMETERS.items()}
    with in_columns(named):
        return Estimates(
            numbers["estimate"][rows], numbers["se"][rows], labels, n, dof, attributes=attributes, metric=metric
        )
