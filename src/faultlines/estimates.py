"""Estimates: K groups, what was measured in each, and how precisely. Everything to the right reads only this."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import ndtri, stdtrit

from faultlines import frames
from faultlines.errors import InputError, shorten

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence
    from typing import Any

    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]
    Label = Hashable  # a name, or a tuple with one value for each attribute

# Real data is nowhere near these; within them no product of weights and no squared difference leaves a double's range.
_WIDEST_SE = 1e40  # largest standard error over smallest
_FARTHEST_THETA = 1e100  # distance of the outermost estimates in the smallest standard error
_SMALLEST, _LARGEST = 1e-280, 1e280
_MOST_PEOPLE = 2.0**53


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale estimates are compared on, and the way back to what people read.

    Attributes:
        is_share: Whether pooled groups are read as events over trials, whatever the scale makes of them.
    """

    name: str
    is_share: ClassVar[bool] = False

    def natural(self, theta: FloatArray) -> FloatArray:
        """From the scale to what people read."""
        return theta

    def slope(self, theta: FloatArray) -> FloatArray:
        """How fast that moves, for standard errors."""
        return np.ones_like(theta)

    def mass(self, se: FloatArray) -> FloatArray:
        """What natural values are weighted with when groups are pooled."""
        return np.asarray((se.min() / se) ** 2)

    def place(self, natural: FloatArray) -> FloatArray:
        """From what people read to the scale, for values that are true and not estimated."""
        return natural


@dataclass(frozen=True, slots=True)
class Anscombe(Scale):
    """asin √((y + 3/8)/(n + 3/4)) for y of n: its variance 1/(4n + 2) does not depend on the rate."""

    name: str = "anscombe"
    is_share: ClassVar[bool] = True

    @staticmethod
    def forward(successes: FloatArray, trials: FloatArray) -> FloatArray:
        """From successes and trials to the scale."""
        return np.asarray(np.arcsin(np.sqrt(np.clip((successes + 3 / 8) / (trials + 3 / 4), 0.0, 1.0))))

    def natural(self, theta: FloatArray) -> FloatArray:
        """The rate."""
        return np.asarray(np.sin(np.clip(theta, 0.0, np.pi / 2)) ** 2)

    def slope(self, theta: FloatArray) -> FloatArray:
        """Derivative of the rate."""
        return np.asarray(np.maximum(np.sin(2 * np.clip(theta, 0.0, np.pi / 2)), 0.0))

    def mass(self, se: FloatArray) -> FloatArray:
        """The number of trials behind the standard error, so that pooled rates are plain shares."""
        return np.asarray(np.maximum((se**-2.0 - 2) / 4, 1e-12))

    def place(self, natural: FloatArray) -> FloatArray:
        """The angle of a rate."""
        return np.asarray(np.arcsin(np.sqrt(np.clip(natural, 0.0, 1.0))))


@dataclass(frozen=True, slots=True)
class Counts(Scale):
    """√((y + 3/8)/t) for y events in an exposure of t: its variance 1/(4t) does not depend on the rate of events."""

    name: str = "square root"
    is_share: ClassVar[bool] = True

    @staticmethod
    def forward(events: FloatArray, exposure: FloatArray) -> FloatArray:
        """From events and exposure to the scale."""
        return np.asarray(np.sqrt((events + 3 / 8) / exposure))

    def natural(self, theta: FloatArray) -> FloatArray:
        """The rate of events."""
        return np.asarray(np.maximum(theta, 0.0) ** 2)

    def slope(self, theta: FloatArray) -> FloatArray:
        """Derivative of the rate."""
        return np.asarray(2 * np.maximum(theta, 0.0))

    def mass(self, se: FloatArray) -> FloatArray:
        """The exposure behind the standard error."""
        return np.asarray(1 / (4 * se**2))

    def place(self, natural: FloatArray) -> FloatArray:
        """The root of a rate."""
        return np.asarray(np.sqrt(np.maximum(natural, 0.0)))


@dataclass(frozen=True, slots=True)
class LogRatio(Scale):
    """log(T/C), for a lift T/C − 1, whose own standard error grows with it, so that pooling would favour low ones."""

    name: str = "log ratio"

    def natural(self, theta: FloatArray) -> FloatArray:
        """The lift."""
        return np.asarray(np.expm1(theta))

    def slope(self, theta: FloatArray) -> FloatArray:
        """Derivative of the lift."""
        return np.asarray(np.exp(theta))

    def place(self, natural: FloatArray) -> FloatArray:
        """The logarithm of the ratio behind a lift."""
        return np.asarray(np.log1p(np.maximum(natural, -1 + 1e-12)))


@dataclass(frozen=True, slots=True)
class Scales(Scale):
    """A scale of its own for each of several things that are measured together; arrays are (K, d)."""

    parts: tuple[Scale, ...] = ()

    def _each(self, method: str, values: FloatArray) -> FloatArray:
        return np.stack([getattr(part, method)(values[:, i]) for i, part in enumerate(self.parts)], axis=1)

    def natural(self, theta: FloatArray) -> FloatArray:
        """Each on its own way back."""
        return self._each("natural", theta)

    def slope(self, theta: FloatArray) -> FloatArray:
        """Each with its own slope."""
        return self._each("slope", theta)

    def mass(self, se: FloatArray) -> FloatArray:
        """Each with its own mass."""
        return self._each("mass", se)


IDENTITY = Scale("identity")
ANSCOMBE = Anscombe()
COUNTS = Counts()
LOG_RATIO = LogRatio()


@dataclass(frozen=True, slots=True)
class Excluded:
    """A group that was left out, why, and what was known of it."""

    label: Label
    reason: str
    estimate: float | None = None
    se: float | None = None
    n: float | None = None


@dataclass(frozen=True, slots=True, eq=False, init=False, repr=False)
class Estimates:
    """What was measured in each of K groups: an estimate θ with its standard error.

    The model everywhere is θ_i ~ N(μ_i, se_i²), independent between groups (the paper, section 5.1.2).

    Args:
        theta: The K estimates; or (K, d) of them where d things are measured together.
        se: Their standard errors, all above zero; None where `cov` is given.
        labels: K names, or K tuples with one value for each attribute; all different. Default: 0 … K − 1.
        n: Sizes of the groups, for display and for `min_size`. One number holds for all.
        dof: Degrees of freedom behind each standard error, where known; then the guarantee allows for the error in
            the standard errors too. At least 1; infinity means "known exactly". One number holds for all.
        attributes: What the labels are values of, for instance ``("country", "device")``.
        natural: The estimates as people read them, where `theta` is on another scale.
        scale: That scale.
        measure: What was measured, for instance ``"lift of revenue"``.
        cov: The covariance matrices of d things measured together, (K, d, d), where they are not independent.
        parts: Names of the d things.
    """

    theta: FloatArray
    se: FloatArray
    labels: Sequence[Label]
    n: FloatArray | None
    dof: FloatArray | None
    attributes: tuple[str, ...]
    natural: FloatArray
    scale: Scale
    measure: str
    cov: FloatArray | None
    parts: tuple[str, ...]

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
    ) -> None:
        thetas = _vector("theta", theta, several=True)
        if thetas.ndim == 2 and thetas.shape[1] == 1:  # a single column is one thing, not several
            thetas, parts = thetas[:, 0], None
            se = se if se is None or np.ndim(se) < 2 else np.asarray(se)[:, 0]
            if cov is not None and np.shape(cov) == (len(thetas), 1, 1):
                se, cov = np.sqrt(np.asarray(cov, dtype=float)[:, 0, 0]), None
            natural = None if natural is None else np.asarray(natural).reshape(-1)
        size = len(thetas)
        if size == 0:
            raise InputError("theta", "there is no group at all (K = 0)", "Give at least one estimate.")
        names, attribute_names = _checked_labels(labels, attributes, size)
        matrices = None if cov is None else _covariances(cov, thetas, names)
        if se is None and matrices is None:
            raise InputError("se=None", "standard errors are needed", "Give one for each estimate, or cov.")
        given = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2)) if matrices is not None else se
        errors = _vector("se", given, size, several=thetas.ndim == 2)  # type: ignore[arg-type]
        if (
            matrices is not None
            and se is not None
            and not np.allclose(_vector("se", se, size, several=True), errors, rtol=1e-6, atol=0)
        ):
            raise InputError("se", "is not the square root of the diagonal of cov", "Leave se=None where cov is given.")
        named = _part_names(parts, thetas)
        if errors.shape != thetas.shape:
            raise InputError("se", f"has shape {errors.shape}, but theta {thetas.shape}", "Give one for each estimate.")
        _require(np.isfinite(thetas), "theta", thetas, names, "must be finite", "Leave this group out, or mend it.")
        _require(
            np.isfinite(errors) & (errors > 0),
            "se",
            errors,
            names,
            "must be finite and above zero",
            "Leave this group out: without a standard error it cannot be compared.",
        )
        _check_range(thetas, errors)
        sizes = None if n is None else _vector("n", n, size, one_for_all=True)
        if sizes is not None:
            fit = (sizes > 0) & (sizes <= _MOST_PEOPLE)
            _require(fit, "n", sizes, names, "must be above zero and at most 2^53", "Mend the size.")
        freedom = None if dof is None else _vector("dof", dof, size, one_for_all=True)
        if freedom is not None:
            _require(freedom >= 1, "dof", freedom, names, "must be 1 or more", "Use infinity for a known variance.")
            if np.all(np.isinf(freedom)):
                freedom = None
        for name, value in (
            ("theta", thetas),
            ("se", errors),
            ("labels", names),
            ("n", sizes),
            ("dof", freedom),
            ("attributes", attribute_names),
            ("natural", thetas if natural is None else _like("natural", natural, thetas)),
            ("scale", scale),
            ("measure", measure),
            ("cov", matrices),
            ("parts", named),
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
        """Read a table with one row a group.

        Args:
            frame: A pandas, Polars, PyArrow or other frame that narwhals knows, or the path of a csv or parquet file.
            by: The column, or the columns, that name the groups. A null becomes the group ``(missing)``.
            estimate: The column of estimates.
            se: The column of standard errors.
            n: The column of group sizes, if there is one.
            dof: The column of degrees of freedom, if there is one.
        """
        if not isinstance(by, str | list | tuple) or not by:
            raise InputError(f"by={shorten(by)}", "names no column", "Name the column that holds the groups.")
        attributes = (by,) if isinstance(by, str) else tuple(by)
        if len(set(attributes)) < len(attributes):
            raise InputError(f"by={list(attributes)!r}", "names a column twice", "Name each column once.")
        asked = {"estimate": estimate, "se": se, **({"n": n} if n is not None else {})}
        asked |= {"dof": dof} if dof is not None else {}
        keys = {f"by[{i}]" if len(attributes) > 1 else "by": column for i, column in enumerate(attributes)}
        columns = frames.read(frame, keys=keys, numbers=asked)
        labels = columns.keys[0] if len(attributes) == 1 else list(zip(*columns.keys, strict=True))
        numbers = columns.numbers
        return cls(
            numbers["estimate"],
            numbers["se"],
            labels,
            numbers.get("n"),
            numbers.get("dof"),
            attributes=attributes,
        )

    def __len__(self) -> int:
        return len(self.theta)

    @property
    def dims(self) -> int:
        """How many things are measured together."""
        return 1 if self.theta.ndim == 1 else int(self.theta.shape[1])

    def __repr__(self) -> str:
        by = " × ".join(self.attributes)
        return f"Estimates({len(self)} groups by {by}, θ from {self.theta.min():.4g} to {self.theta.max():.4g})"

    def intervals(self, alpha: float) -> tuple[FloatArray, FloatArray]:
        """The ends of every group's own interval at the level 1 − α, as people read them."""
        reach = np.asarray(-ndtri(alpha / 2) if self.dof is None else -stdtrit(self.dof, alpha / 2))
        reach = reach[:, None] if reach.ndim and self.dims > 1 else reach
        lower, upper = (self.scale.natural(self.theta + side * reach * self.se) for side in (-1, 1))
        return np.minimum(lower, self.natural), np.maximum(upper, self.natural)

    def subset(self, keep: npt.NDArray[np.bool_]) -> Estimates:
        """The same estimates for the groups where `keep` is true."""
        return self.changed(
            theta=self.theta[keep],
            se=self.se[keep],
            labels=[self.labels[i] for i in np.flatnonzero(keep).tolist()],
            n=None if self.n is None else self.n[keep],
            dof=None if self.dof is None else self.dof[keep],
            natural=self.natural[keep],
            cov=None if self.cov is None else self.cov[keep],
        )

    def replaced(self, theta: FloatArray, *, spread: float = 1.0, **changes: Any) -> Estimates:
        """Other estimates of the same groups, with standard errors `spread` times as large, or other ones."""
        spread_out = {"se": self.se * spread, "cov": None if self.cov is None else self.cov * spread**2}
        return self.changed(theta=theta, natural=self.scale.natural(theta), **(spread_out | changes))

    def changed(self, **changes: Any) -> Estimates:
        """The same with some of the attributes changed; standard errors follow from `cov`, if there is one."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)} | changes
        if kept["cov"] is not None:
            kept["se"] = None
        if self.dims == 1:
            kept["parts"] = None
        return Estimates(**kept)


def name_of(label: Label) -> str:
    """A label as people read it."""
    return " · ".join(str(part) for part in label) if isinstance(label, tuple) else str(label)


def _vector(
    parameter: str,
    values: npt.ArrayLike,
    size: int | None = None,
    *,
    one_for_all: bool = False,
    several: bool = False,
) -> FloatArray:
    """A fresh float array, one number a group (or several), or an error that says what stands in the way."""
    try:
        raw = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan) if np.ma.isMA(values) else np.asarray(values)
        odd = raw.dtype.kind not in "iufO" or (raw.dtype == object and any(isinstance(v, bool) for v in raw.flat))
        if odd and raw.size:
            raise TypeError
        vector = np.array(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{parameter}={shorten(values)}", "is not numeric", "Give numbers.") from error
    if vector.ndim == 0 and one_for_all and size is not None:
        vector = np.full(size, float(vector))
    if vector.ndim != 1 and not (several and vector.ndim == 2 and vector.shape[1] > 0):
        raise InputError(
            parameter, f"has {vector.ndim} dimensions", f"Give one number a group: {parameter} of shape (K,)."
        )
    if size is not None and len(vector) != size:
        raise InputError(parameter, f"has {len(vector)} values, but theta has {size}", "Give one value for each group.")
    return vector


def _like(parameter: str, values: npt.ArrayLike, theta: FloatArray) -> FloatArray:
    """Numbers in the shape of the estimates."""
    made = _vector(parameter, values, len(theta), several=True)
    if made.shape != theta.shape:
        raise InputError(parameter, f"has shape {made.shape}, but theta {theta.shape}", "Give one for each estimate.")
    return made


def _covariances(cov: npt.ArrayLike, theta: FloatArray, labels: Sequence[Label]) -> FloatArray:
    """Covariance matrices as they can be used: one a group, symmetric and positive definite."""
    try:
        matrices = np.array(cov, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("cov", "is not numeric", "Give an array of shape (K, d, d).") from error
    if theta.ndim != 2 or matrices.shape != (*theta.shape, theta.shape[1]):
        wanted = "(K, d, d)" if theta.ndim != 2 else str((*theta.shape, theta.shape[1]))
        raise InputError("cov", f"has shape {matrices.shape}, theta {theta.shape}", f"Give cov of shape {wanted}.")
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
            f"cov of group {name_of(labels[first])!r}",
            "is not a covariance matrix (symmetric, positive definite)",
            "Leave out what is determined by the rest, or mend it.",
        )
    return np.asarray((matrices + np.swapaxes(matrices, 1, 2)) / 2)


def _part_names(parts: Sequence[str] | None, theta: FloatArray) -> tuple[str, ...]:
    if theta.ndim == 1:
        if parts is not None:
            raise InputError(f"parts={shorten(parts)}", "names parts, but theta has one dimension", "Leave it out.")
        return ()
    if parts is None:
        return tuple(f"part {i + 1}" for i in range(theta.shape[1]))
    listed = isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts)
    if not listed or len(parts) != theta.shape[1] or len(set(parts)) < len(parts):
        raise InputError(
            f"parts={shorten(parts)}", f"must be {theta.shape[1]} distinct names", "Name each of them once."
        )
    return tuple(str(part) for part in parts)


def _require(
    good: npt.NDArray[np.bool_],
    parameter: str,
    values: FloatArray,
    labels: Sequence[Label],
    problem: str,
    remedy: str,
) -> None:
    """Raise for the first group whose value is not good, and say how many there are."""
    if good.all():
        return
    bad = np.flatnonzero(~good.reshape(len(good), -1).all(axis=1))
    others = f" (and {bad.size - 1} more)" if bad.size > 1 else ""
    worst = values[bad[0]] if values.ndim == 1 else values[bad[0]][~good[bad[0]]][0]
    raise InputError(f"{parameter}={worst:g} in group {name_of(labels[bad[0]])!r}{others}", problem, remedy)


def _check_range(theta: FloatArray, se: FloatArray) -> None:
    if np.abs(theta).max() > _LARGEST or not _SMALLEST <= se.min() <= se.max() <= _LARGEST:
        raise InputError(
            f"theta up to {np.abs(theta).max():g}, se from {se.min():g} to {se.max():g}",
            "lies at the edge of what numbers can hold",
            "Use other units.",
        )
    with np.errstate(over="ignore"):
        widest = float(se.max() / se.min())
        farthest = float((theta.max() / 2 - theta.min() / 2) / se.min()) * 2
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


def _checked_labels(
    labels: Sequence[Label] | npt.NDArray[Any] | None, attributes: Sequence[str] | None, size: int
) -> tuple[Sequence[Label], tuple[str, ...]]:
    if labels is None:
        names: Sequence[Label] = range(size)
    elif isinstance(labels, str | set | frozenset | dict) or not hasattr(labels, "__iter__"):
        raise InputError(
            f"labels={shorten(labels)}", "is not a sequence of names", "Give a list with one name a group."
        )
    else:
        listed = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
        names = tuple(tuple(name) if isinstance(name, list) else name for name in listed)
    if len(names) != size:
        raise InputError("labels", f"has {len(names)} names, but theta has {size}", "Give one name for each group.")
    lengths = {len(name) if isinstance(name, tuple) else 0 for name in names} if labels is not None else {0}
    if len(lengths) > 1 or any(isinstance(name, tuple) and not name for name in names):
        raise InputError(
            f"labels={shorten(names)}",
            "mixes names and tuples, or tuples of different lengths",
            "Give all names, or all tuples with one value for each attribute.",
        )
    parts = itertools.chain.from_iterable(name if isinstance(name, tuple) else (name,) for name in names)
    if labels is not None and any(isinstance(part, float) and not math.isfinite(part) for part in parts):
        raise InputError("labels", "holds NaN or infinity", "Name that group.")
    width = lengths.pop() or 1
    if attributes is None:
        attributes = ["group"] if width == 1 else [f"attribute_{i + 1}" for i in range(width)]
    if isinstance(attributes, str) or len({str(attribute) for attribute in attributes}) < len(attributes):
        raise InputError(f"attributes={shorten(attributes)}", "must be distinct names", "Name each attribute once.")
    if len(attributes) != width:
        raise InputError(
            f"attributes={shorten(tuple(attributes))}",
            f"has {len(attributes)} names, but the labels have {width} values each",
            "Name each attribute of the labels once.",
        )
    try:
        distinct = len(set(names)) if labels is not None else size
    except TypeError as error:
        raise InputError(
            f"labels={shorten(names)}", "holds unhashable values", "Use text, numbers or tuples."
        ) from error
    if distinct < size:
        seen: set[Label] = set()
        repeated = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(
            f"labels: group {name_of(repeated)!r}",
            f"stands more than once ({size} groups, {distinct} names)",
            "Give one row a group: pool the repeated ones, or name a further attribute that tells them apart.",
        )
    return names, tuple(str(attribute) for attribute in attributes)
