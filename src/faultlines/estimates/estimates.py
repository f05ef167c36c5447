"""Estimates: K groups, what was measured in each, and how precisely.

Inside there is one shape: effects are (K, d) arrays and groups are keys (tuples), also where there is one effect and
one attribute. What users see, `theta`, `se`, `natural` and `labels`, is made of it here and nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from faultlines import checks
from faultlines.errors import InputError
from faultlines.estimates.fits import effects_of
from faultlines.estimates.labels import checked_labels, labels_of, some_of
from faultlines.estimates.scales import IDENTITY, Scale, critical_value, scale_of_each
from faultlines.estimates.validation import (
    between_groups,
    check_meaning,
    check_range,
    check_readable,
    columns,
    covariances,
    errors_of_all,
    freedom,
    freedom_of_all,
    own_variances,
    part_names,
    require,
    standard_errors,
    vector,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    import numpy.typing as npt

    from faultlines.estimates.labels import Key, Label
    from faultlines.estimates.reasons import Reason, ReasonCode
    from faultlines.estimates.scales import FloatArray

    IntArray = npt.NDArray[np.int64]
    BoolArray = npt.NDArray[np.bool_]

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
        labels: K names, or K tuples with one value for each attribute; all different. Default: 0 … K − 1.
        n: Sizes of the groups, for display and for `min_size`. One number holds for all.
        dof: Degrees of freedom behind each standard error, where known; then the guarantee allows for the error in
            the standard errors too, and `fl.cluster` moderates them by those of all groups (12 or more). At least 1,
            and at least d for d effects; infinity means "known exactly". One
            number holds for all; with `covariance` one number is that of the matrix as a whole, as in a regression.
        attributes: What the labels are values of, for instance ``("country", "device")``.
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
    ) -> None:
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
        from faultlines.estimates.tables import EstimateColumns, read_estimates

        return read_estimates(frame, by, EstimateColumns(estimate, se, n, dof))

    @classmethod
    def from_fit(
        cls,
        fit: object,
        terms: Sequence[str] | Mapping[Any, str | Sequence[str]],
        *,
        n: npt.ArrayLike | None = None,
        dof: float | None = None,
        clusters: int | None = None,
        by: str = "group",
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
            by: What the groups are values of.
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
            attributes=(by,),
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
            natural=self.shown[places],
            effect_covariance=None if self.effect_covariance is None else self.effect_covariance[places],
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
        spread_out = {
            "se": self.errors * spread,
            "effect_covariance": None if self.effect_covariance is None else self.effect_covariance * spread**2,
        }
        spread_out["covariance"] = None if self.covariance is None else self.covariance * spread**2
        return self.changed(theta=values, compared=None, natural=self.readable(values), **(spread_out | changes))

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
        arguments |= changes
        if arguments["effect_covariance"] is not None or arguments["covariance"] is not None:
            arguments["se"] = None
        if self.dims == 1:
            arguments["parts"] = None
        return Estimates(**arguments)
