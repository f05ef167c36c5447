"""What can be asked of rows: columns, variables formed of them, arms and units; and the moments that come back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np

from faultlines.checks import choice, flag, text
from faultlines.checks import column as checked_column
from faultlines.errors import InputError
from faultlines.estimates.labels import MISSING, Key
from faultlines.estimates.reasons import DropCode
from faultlines.types import FloatArray, IntArray

Kind = Literal[
    "number", "binary", "probability", "score", "points", "weight", "amount", "class", "label", "any", "rows"
]
AGGREGATES = ("sum", "mean", "any")
EVERY = "*"  # all variants beside the control
LARGE_SHARE, LARGE_SHARE_OF_GROUP, FEWEST_DROPPED = 0.05, 0.2, 5  # see MissingRows.is_large
KINDS: tuple[Kind, ...] = get_args(Kind)


class Columns(Protocol):
    """The input columns by role, as expressions of whatever engine holds the rows: they add, multiply and compare."""

    def __getitem__(self, role: str) -> Any: ...

    def __contains__(self, role: object) -> bool: ...

    def where(self, condition: Any, value: Any, otherwise: Any = None) -> Any:
        """`value` in rows where the condition holds, `otherwise` (null) in the rest."""

    def log(self, value: Any) -> Any:
        """Natural logarithm."""

    def at_least(self, role: str, threshold: float) -> Any:
        """1 in rows where an input reaches a threshold, 0 in the rest; compared in the precision of the column."""

    def under(self, prefix: str) -> Columns:
        """The inputs whose roles start with a prefix, by the rest of their roles."""


class Moments(NamedTuple):
    """Moments of a metric's variables: K groups × A arms (control first; one arm for a population) × V variables.

    Attributes:
        n: Numbers of values.
        mean: Their means.
        cov: Their sample covariances, (K, A, V, V).
        skewness: Mean of ((x − x̄)/s)³ with the population's s; None where no shape is known, NaN for single variables.
        kurtosis: Mean of ((x − x̄)/s)⁴ likewise: 3 for normal values.

    Example:
        >>> import faultlines as fl, numpy as np
        >>> moments = fl.Moments(np.array([[[9.0]], [[8.0]]]), np.array([[[0.1]], [[0.3]]]), np.ones((2, 1, 1, 1)))
        >>> moments.of_groups(np.array([1])).mean.tolist(), moments.of_variables([0]).n.tolist()
        ([[[0.3]]], [[[9.0]], [[8.0]]])
    """

    n: FloatArray
    mean: FloatArray
    cov: FloatArray
    skewness: FloatArray | None = None
    kurtosis: FloatArray | None = None

    def of_variables(self, places: Sequence[int]) -> Moments:
        """Those of some of the variables.

        Args:
            places: Which variables, by their places.

        Returns:
            The same for those variables, in that order.
        """
        chosen = list(places)
        shapes = [None if shape is None else shape[..., chosen] for shape in (self.skewness, self.kurtosis)]
        cov = self.cov[..., chosen, :][..., chosen]
        return Moments(self.n[..., chosen], self.mean[..., chosen], cov, *shapes)

    def of_groups(self, places: IntArray) -> Moments:
        """Those of some of the groups.

        Args:
            places: Which groups, by their places.

        Returns:
            The same for those groups, in that order.
        """
        return Moments(*(None if part is None else part[places] for part in self))  # type: ignore[arg-type]


class Cap(NamedTuple):
    """The largest value that counts as it is: a number, or a quantile of all values."""

    value: float | None = None
    quantile: float | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """One input column and what it must hold.

    Args:
        column: The column.
        kind: ``"number"``, ``"binary"`` (0/1, booleans, or two labels of which `positive` counts), ``"probability"``
            (in [0, 1]), ``"score"`` (compared with a probability: in [0, 1], or log odds, of which some are negative),
            ``"points"`` (compared with a number above 1: not all in [0, 1]), ``"weight"`` and ``"amount"`` (not
            negative), ``"class"`` (labels of which `positive` counts and all others do not), ``"label"`` (whole numbers
            or text, to be compared with another such column), ``"any"`` (numbers or text) or ``"rows"`` (no column: 1
            in every row, so that its sum counts them).
        positive: The label that counts as 1 in a binary column.
        per_unit: Whether it describes the randomised unit, as a covariate or a weight does: where rows are summed to
            units, it is averaged over the rows of a unit instead.
        parameter: The parameter that named the column, for messages. Default: its role.
        may_lack: Whether it may be that no row has the label `positive`, as in a part of the rows it was looked for in.
        optional: Whether rows without it are kept: it is null in these, and the other inputs are not.
        cap: Where larger values are cut: of rows, or of the units that rows are summed to.
        aggregate: What a unit has of its rows: their ``"sum"``, their ``"mean"``, or ``"any"``: 1 where one is not
            zero.

    Example:
        >>> import faultlines as fl
        >>> fl.Input("clicked", "binary").column
        'clicked'
    """

    column: str
    kind: Kind = "number"
    positive: Hashable = None
    per_unit: bool = False
    parameter: str | None = None
    may_lack: bool = False
    optional: bool = False
    cap: Cap | None = None
    aggregate: str = "sum"

    def __post_init__(self) -> None:
        text("parameter", self.parameter)
        checked_column(self.parameter or "column", self.column)
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            raise InputError.unknown("kind", "is not known", f"Use one of {', '.join(KINDS)}.", self.kind)
        flag("per_unit", self.per_unit)
        flag("may_lack", self.may_lack)
        flag("optional", self.optional)
        choice("aggregate", self.aggregate, AGGREGATES)
        _check_value("positive", self.positive)


@dataclass(frozen=True, slots=True)
class Arms:
    """The column that says who had what, and which of its values are compared.

    Args:
        column: The column of variants.
        control: Its value for the control.
        treatment: Its value for the treatment; None where there are just two. A list of several, or ``"*"`` for all
            others: each is compared with the control, as a group of its own.
        shares: Variant → the share of units that was planned for it; kept as pairs. None: not known.

    Example:
        >>> import faultlines as fl
        >>> fl.lift("spend", variant="arm", control="A").arms
        Arms(column='arm', control='A', treatment=None, shares=None)
        >>> two = fl.lift("spend", variant="arm", control="A", treatment=["B", "C"]).arms
        >>> two.several, two.treatments
        (True, ('B', 'C'))
    """

    column: str
    control: Hashable
    treatment: Any = None
    shares: Any = None

    def __post_init__(self) -> None:
        checked_column("variant", self.column)
        if self.control is None:
            raise InputError.missing(
                "control", "the control variant is needed", "Name the value of the control.", None, form="clause"
            )
        _check_value("control", self.control)
        if isinstance(self.treatment, list):
            object.__setattr__(self, "treatment", tuple(self.treatment))
        if isinstance(self.treatment, tuple) and not self.treatment:
            raise InputError.empty("treatment", "names no variant", "Name the treatments, or leave it out.", [])
        for variant in self.treatments:
            _check_value("treatment", variant)
            if variant is None or variant == self.control:
                problem = "is not a variant" if variant is None else "is the control as well"
                raise InputError.invalid("treatment", problem, "Name two different variants.", variant)
        if len(set(self.treatments)) < len(self.treatments):
            raise InputError.duplicate("treatment", "names a variant twice", "Name each once.", self.treatment)
        if self.shares is not None:
            object.__setattr__(self, "shares", checked_shares(self.shares))

    @property
    def treatments(self) -> tuple[Any, ...]:
        """The treatments that were named."""
        if isinstance(self.treatment, tuple):
            return self.treatment
        return () if self.treatment is None else (self.treatment,)

    @property
    def several(self) -> bool:
        """Whether each of several treatments is compared with the control."""
        return isinstance(self.treatment, tuple) or (isinstance(self.treatment, str) and self.treatment == EVERY)


def checked_shares(shares: Any) -> tuple[tuple[Hashable, float], ...]:
    """Planned shares of variants as pairs, in any unit: 50, 30 and 20 are as good as 0.5, 0.3 and 0.2."""
    remedy = 'Use for example shares={"A": 0.5, "B": 0.5}.'
    pairs = tuple(shares.items()) if isinstance(shares, Mapping) else shares
    is_pairs = isinstance(pairs, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs)
    if not is_pairs:
        raise InputError.wrong_type("shares", "is not a dict of shares by variant", remedy, shares)
    if len(pairs) < 2:
        raise InputError.too_few("shares", "needs two variants or more", remedy, shares)
    for variant, share in pairs:
        _check_value("shares", variant)
        is_number = isinstance(share, Real) and not isinstance(share, bool)
        if not is_number or not 0 < float(share) < float("inf"):
            problem = f"the share of {variant!r} is not a positive number"
            raise InputError.invalid("shares", problem, remedy, share, form="clause")
    return tuple((variant, float(share)) for variant, share in pairs)


def _check_value(parameter: str, value: object) -> None:
    """Refuse what cannot be a value of a column."""
    if isinstance(value, list | dict | set | tuple) or type(value).__hash__ is None:
        raise InputError.wrong_type(parameter, "is not a single value", "Give one value of the column.", value)
    try:
        str(value)
    except Exception as error:
        problem = "cannot be written as text"
        raise InputError.wrong_type(parameter, problem, "Give one value of the column.", value) from error
    if _is_missing(value):
        raise InputError.invalid(parameter, "is a missing value", "Give one value of the column.", value)


def _is_missing(value: object) -> bool:
    """Whether it is a null of NumPy or pandas, or NaN; None is not."""
    if type(value).__name__ in {"NAType", "NaTType"}:
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, Real | np.datetime64 | np.timedelta64) and bool(value != value)  # noqa: PLR0124


@dataclass(frozen=True, slots=True)
class Aggregated:
    """Columns of a table that is already aggregated: one row per group (and arm), or several that are pooled.

    Attributes:
        n: The column of counts.
        mean: The column of means, if not of sums.
        sum: The column of sums, if not of means.
        variance: The column of sample variances.
        sum_squares: The column of sums of squares.
        skewness: The column of skewnesses.
        kurtosis: The column of kurtoses.
        denom_sum: The column of sums of the denominator, for ratios.
        denom_sum_squares: The column of its sums of squares.
        denom_product: The column of sums of its products with the value.
        covariate_sum: The column of sums of a covariate, for CUPED.
        covariate_sum_squares: The column of its sums of squares.
        covariate_product: The column of sums of its products with the value.
        denom_covariate_product: The column of sums of products of both.

    Example:
        >>> import faultlines as fl
        >>> table = fl.aggregated("users", mean="spend", variance="spend_variance")
        >>> table.mean, table.columns()
        ('spend', {'n': 'users', 'mean': 'spend', 'variance': 'spend_variance'})
    """

    n: str
    mean: str | None
    sum: str | None
    variance: str | None
    sum_squares: str | None
    skewness: str | None = None
    kurtosis: str | None = None
    denom_sum: str | None = None
    denom_sum_squares: str | None = None
    denom_product: str | None = None
    covariate_sum: str | None = None
    covariate_sum_squares: str | None = None
    covariate_product: str | None = None
    denom_covariate_product: str | None = None

    @property
    def others(self) -> tuple[str, ...]:
        """The variables beside the value: a denominator, a covariate."""
        return tuple(name for name in ("denom", "covariate") if getattr(self, f"{name}_sum") is not None)

    def columns(self) -> dict[str, str]:
        """Every column it names, by parameter.

        Returns:
            Parameter → column, of those that are given.
        """
        return {field.name: column for field in fields(self) if (column := getattr(self, field.name))}


@dataclass(frozen=True, slots=True)
class Resampling:
    """A statistic of whole columns, and how often rows are drawn anew to see how much it varies.

    Args:
        statistic: From arrays, one for each input in their order, to a number.
        weighted: Whether it takes weights of the rows, as ``sample_weight``.
        draws: How often rows are drawn anew.
        seed: Of the draws.
    """

    statistic: Callable[..., Any]
    weighted: bool
    draws: int
    seed: int


class Request(Protocol):
    """What is asked of rows; a metric is one."""

    @property
    def name(self) -> str:
        """How it is called, for messages."""

    @property
    def inputs(self) -> Mapping[str, Input]:
        """Role → input column."""

    @property
    def arms(self) -> Arms | None:
        """Variants, control and treatment."""

    @property
    def unit(self) -> str | None:
        """The column of units that rows are summed to."""

    @property
    def overlap(self) -> str:
        """What to do with units in several groups: ``"error"``, or ``"covariance"``."""

    @property
    def centred(self) -> Mapping[str, str]:
        """Name → role of an input whose mean by group and arm is a further input of that name."""

    @property
    def ranking(self) -> int | None:
        """For placements by score instead of moments: the number of score bins, 0 for none."""

    @property
    def resampling(self) -> Resampling | None:
        """For a statistic of whole columns instead of moments."""

    @property
    def aggregated(self) -> Aggregated | None:
        """Columns of a table that holds moments already."""

    @property
    def needs_covariance(self) -> bool:
        """Whether variances and covariances are needed."""

    @property
    def pairs(self) -> tuple[tuple[int, int], ...] | None:
        """Pairs of variables whose covariance is needed; None for all."""

    @property
    def shaped(self) -> tuple[int, ...] | None:
        """Variables whose skewness and kurtosis are needed; None for all, where covariances are."""

    @property
    def sums(self) -> Callable[[Columns], Mapping[str, Any]] | None:
        """From input columns to what is summed over the rows of a unit; None: the inputs themselves are."""

    def variables(self, columns: Columns, /) -> Mapping[str, Any]:
        """From input columns, or from these sums, to variables."""

    def columns(self) -> dict[str, str]:
        """Every column, by the parameter that named it."""


@dataclass(frozen=True, slots=True)
class Split:
    """How rows are divided into independent parts: by a hash of which column, into which shares, under which seed.

    Args:
        unit: The column whose values stay together.
        shares: The share of each part; they add up to 1.
        seed: The seed of the hash.
        times: How many times they are divided anew; the parts of the first come first.
    """

    unit: str
    shares: Sequence[float]
    seed: int = 0
    times: int = 1


class Together(NamedTuple):
    """What pairs of groups have in common: units that are in both, or a control; every group is one with itself.

    Attributes:
        first: The first group of each pair, (P,).
        second: The second, (P,).
        arm: The arm in which they have it, (P,).
        n: How many units.
        cross: Sums over these of the products of the variables' distances from the means of either group, (P, V, V).
    """

    first: IntArray
    second: IntArray
    arm: IntArray
    n: FloatArray
    cross: FloatArray


class Capped(NamedTuple):
    """A column whose largest values were cut: where, and how many of every group and arm, (K, A)."""

    column: str
    at: float
    above: FloatArray


class RepeatedColumn(NamedTuple):
    """A column that looks like one of units, and how many rows each of its values has among the first."""

    column: str
    rows_each: float


@dataclass(frozen=True, slots=True, eq=False)
class MissingRows:
    """How many rows of every group were dropped because they lack a value, in all groups that occur.

    Attributes:
        keys: The groups, excluded ones too.
        rows: The rows of each, (K,), without those of variants that are not compared.
        dropped: Those of them that lack some value, (K,).
        by_column: Column → rows that lack this value, (K,); a row may lack several.
    """

    keys: Sequence[Key]
    rows: FloatArray
    dropped: FloatArray
    by_column: Mapping[str, FloatArray]

    @property
    def shares(self) -> FloatArray:
        """The share of each group that was dropped, (K,)."""
        return np.divide(self.dropped, self.rows, out=np.zeros(self.rows.shape), where=self.rows > 0)

    @property
    def share(self) -> float:
        """The share of all rows that was dropped."""
        return float(self.dropped.sum() / max(self.rows.sum(), 1.0))

    @property
    def without_group(self) -> float:
        """Rows with a missing attribute: whose group is not known."""
        unknown = [any(part == MISSING for part in key) for key in self.keys]
        return float(self.rows[unknown].sum())

    @property
    def lacks_many_groups(self) -> bool:
        """Whether more than 5% of all rows lack an attribute: one of the groups they belong to may be far away."""
        return self.without_group > LARGE_SHARE * max(float(self.rows.sum()), 1.0)

    @property
    def is_large(self) -> bool:
        """Whether so much is missing that a result about the other rows may mislead.

        More than 5% of all rows, or more than 20% of the rows of a group and at least five: below 5% little depends on
        what is missing, above 20% everything may (Schulz and Grimes, Lancet 2002).
        """
        some = self.dropped >= FEWEST_DROPPED
        return self.share > LARGE_SHARE or bool(np.any(some & (self.shares > LARGE_SHARE_OF_GROUP)))

    def of(self, keys: Sequence[Key]) -> list[MissingOfGroup]:
        """What is missing in some groups, which may have the treatment as a further part of their keys."""
        places = {tuple(key): place for place, key in enumerate(self.keys)}
        width = len(self.keys[0]) if len(self.keys) else 0
        shares, missing = self.shares, []
        for key in keys:
            place = places.get(tuple(key[:width]))
            known = place is not None
            missing.append(
                MissingOfGroup(float(self.rows[place]), float(self.dropped[place]), float(shares[place]))
                if known
                else MissingOfGroup(0.0, 0.0, 0.0)
            )
        return missing

    def of_places(self, places: IntArray, keys: Sequence[Key]) -> MissingRows:
        """Those of some of the groups, under these keys."""
        by_column = {name: counts[places] for name, counts in self.by_column.items()}
        return MissingRows(keys, self.rows[places], self.dropped[places], by_column)


class MissingOfGroup(NamedTuple):
    """Rows of one group, those of them that were dropped, and their share."""

    rows: float
    dropped: float
    share: float


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """The groups that occur, the moments of each, and how many rows were not used, by reason."""

    keys: Sequence[Key]
    moments: Moments
    dropped: dict[DropCode, int]
    rows: FloatArray | None = None  # of every group and arm, (K, A), where they were counted
    lost: FloatArray | None = None  # those of them without some input
    treatments: tuple[Any, ...] = ()  # the arms beside the control, where there are several
    together: Together | None = None  # what groups have in common
    missing: MissingRows | None = None  # rows that lack a value, where they were counted
    distinct: FloatArray | None = None  # units of every arm in all groups, (A,), where some are in several
    capped: Capped | None = None
    repeated: RepeatedColumn | None = None  # a column that looks like one of units, where none was named
