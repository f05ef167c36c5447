"""What users may give as estimates: checked, and as arrays of the one shape that there is inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from faultlines import checks
from faultlines.errors import InputError, to_numbers
from faultlines.estimates.labels import Key, labels_of, name_of
from faultlines.estimates.scales import Scale, scale_of_each
from faultlines.types import FloatArray

# Real data is nowhere near these; within them no product of weights and no squared difference leaves a double's range.
_WIDEST_SE = 1e15  # largest standard error over smallest
_FARTHEST_THETA = 1e50  # distance of the outermost estimates in the smallest standard error
_SMALLEST, _LARGEST = 1e-60, 1e60


def numbers(parameter: str, values: npt.ArrayLike) -> FloatArray:
    """A fresh float array of any shape, or an error that says what prevents it."""
    try:
        raw = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan) if np.ma.isMA(values) else np.asarray(values)
        odd = raw.dtype.kind not in "iufO" or (raw.dtype == object and any(isinstance(v, bool) for v in raw.flat))
        if odd and raw.size:
            raise TypeError
        return np.array(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        examples = [value for value in _flat(values)[:1] if isinstance(value, str)]
        remedy = to_numbers(examples, "Give numbers.")
        raise InputError.wrong_type(parameter, "is not numeric", remedy, values) from error


def _flat(values: npt.ArrayLike) -> list[Any]:
    """Values of any shape in a row; none where they have no shape."""
    try:
        return list(np.asarray(values, dtype=object).flat)
    except ValueError:
        return []


def named_by_index(
    named: Mapping[str, object], labels: Any, attributes: Sequence[str] | None
) -> tuple[Any, Sequence[str] | None]:
    """Labels and attributes of groups, which the index of pandas Series names where there are no labels.

    The numbers 0 … K − 1, which an index has by default, name nothing.

    Args:
        named: Parameter → what was given for it.
        labels: The labels that were given, or None.
        attributes: The attributes that were given, or None.

    Raises:
        InputError: If two indexes differ: paired by place, one group would get the standard error of another.
    """
    given: Mapping[str, Any] = {**named, "labels": labels}
    indexes = {
        name: values.index for name, values in given.items() if hasattr(getattr(values, "index", None), "equals")
    }
    if not indexes:
        return labels, attributes
    reference, first = next(iter(indexes.items()))
    for name, index in indexes.items():
        if not first.equals(index):
            problem = f"has another index than {reference}, or the same in another order"
            remedy = f"Put both in one order, {name}.reindex({reference}.index), or give arrays: {name}.to_numpy()."
            raise InputError.mismatch(name, problem, remedy)
    if labels is not None or np.array_equal(first.to_numpy(), np.arange(len(first))):
        return labels, attributes
    names = list(first.names)
    if attributes is None and all(isinstance(name, str) and name for name in names) and len(set(names)) == len(names):
        attributes = names
    return first, attributes


def columns(parameter: str, values: npt.ArrayLike, shape: tuple[int, int] | None = None) -> FloatArray:
    """Numbers as (K, d); one effect may come as (K,)."""
    array = numbers(parameter, values)
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0):
        raise InputError.mismatch(
            parameter, f"has {array.ndim} dimensions", f"Give one number per group: {parameter} of shape (K,)."
        )
    array = array[:, None] if array.ndim == 1 else array
    if shape is not None and len(array) != shape[0]:
        raise InputError.mismatch(
            parameter, f"has {len(array)} values, but theta has {shape[0]}", "Give one value for each group."
        )
    if shape is not None and array.shape != shape:
        raise InputError.mismatch(
            parameter, f"has shape {array.shape}, but theta {shape}", "Give one for each estimate."
        )
    return array


def vector(parameter: str, values: npt.ArrayLike, size: int) -> FloatArray:
    """One number per group; a single one holds for all."""
    array = numbers(parameter, values)
    array = np.full(size, float(array)) if array.ndim == 0 else array
    if array.ndim != 1:
        raise InputError.mismatch(
            parameter, f"has {array.ndim} dimensions", f"Give one number per group: {parameter} of shape (K,)."
        )
    if len(array) != size:
        raise InputError.mismatch(
            parameter, f"has {len(array)} values, but theta has {size}", "Give one value for each group."
        )
    return array


def standard_errors(se: npt.ArrayLike | None, cov: FloatArray | None, values: FloatArray) -> FloatArray:
    """Standard errors as given, or those of the covariance matrices."""
    if cov is None:
        if se is None:
            raise InputError.missing(
                "se",
                "standard errors are needed",
                "Give one for each estimate, or effect_covariance.",
                None,
                form="clause",
            )
        return columns("se", se, values.shape)
    errors = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
    if se is not None and not np.allclose(columns("se", se, values.shape), errors, rtol=1e-6, atol=0):
        raise InputError.conflict(
            "se",
            "is not the square root of the diagonal of effect_covariance",
            "Leave se=None where effect_covariance is given.",
        )
    return np.array(errors)


def between_groups(
    covariance: npt.ArrayLike, cov: FloatArray | None, values: FloatArray, keys: Sequence[Key]
) -> FloatArray:
    """The covariance matrix of one effect of all groups."""
    if values.shape[1] > 1 or cov is not None:
        raise InputError.unsupported(
            "covariance",
            "needs one effect per group",
            "Give theta of shape (K,), or cluster effects one by one.",
        )
    return checked_covariance(numbers("covariance", in_order_of(covariance, keys)), keys)


def in_order_of(matrix: Any, keys: Sequence[Key]) -> Any:
    """A frame whose rows and columns are named by the groups, in their order; an array as it is.

    A frame is matched by its names always: taken by place where they happen to be 0 … K − 1, integer labels in another
    order would be mixed up silently. A frame without an index (Polars) has its rows in the order of its columns.
    """
    index, across = getattr(matrix, "index", None), getattr(matrix, "columns", None)
    if across is None or callable(across):
        return matrix
    columns = list(across)
    rows = columns if index is None or not hasattr(index, "tolist") else index.tolist()
    labels = list(labels_of(keys))
    if rows is columns:  # names of columns are text there
        labels = [name_of(label) for label in labels]
    named = {label: i for i, label in enumerate(rows)}
    if rows != columns or len(named) < len(rows) or set(named) != set(labels):
        problem = "has other names than the groups, or rows in another order than columns"
        remedy = "Name rows and columns by the labels, or give an array in their order, as by to_numpy()."
        raise InputError.mismatch("covariance", problem, remedy)
    order = [named[label] for label in labels]
    return np.asarray(matrix)[np.ix_(order, order)]


def freedom_of_all(dof: float | None, covariance: FloatArray | None) -> float:
    """Degrees of freedom of a covariance matrix all of which is estimated; infinite where that was not said."""
    if dof is None or (isinstance(dof, Real) and dof == np.inf):
        return np.inf
    remedy = "Give the number of independent units or clusters less one."
    if covariance is None:
        raise InputError.conflict("covariance_dof", "needs covariance", "Leave it out, or give both.", dof)
    value = checks.number("covariance_dof", dof, "must be a number, 1 or more", remedy, low=1)
    if value < len(covariance) - 1:
        problem = f"is too small for {len(covariance)} groups: their covariance cannot be told from so few units"
        raise InputError.too_few("covariance_dof", problem, "Use fewer groups, or more units.", value)
    return float(value)


def errors_of_all(se: npt.ArrayLike | None, covariance: FloatArray, values: FloatArray) -> FloatArray:
    """Standard errors of a covariance matrix of all groups; those that were given must be the same."""
    errors = np.sqrt(np.diagonal(covariance))[:, None]
    if se is not None and not np.allclose(columns("se", se, values.shape), errors, rtol=1e-6, atol=0):
        remedy = "Leave se=None where covariance is given, and give both in the order of labels."
        raise InputError.conflict("se", "is not the square root of the diagonal of covariance", remedy)
    return np.array(errors)


def freedom(dof: npt.ArrayLike | None, keys: Sequence[Key], dims: int) -> FloatArray | None:
    """Degrees of freedom; none where all variances are known."""
    if dof is None:
        return None
    degrees = vector("dof", dof, len(keys))
    require(degrees >= 1, "dof", degrees, keys, "must be 1 or more", "Use infinity for a known variance.")
    problem = f"must be at least the number of effects, {dims}"
    require(degrees >= dims, "dof", degrees, keys, problem, "Leave this group out, or cluster the effects one by one.")
    return None if np.all(np.isinf(degrees)) else degrees


def covariances(effect_covariance: npt.ArrayLike, values: FloatArray, keys: Sequence[Key]) -> FloatArray:
    """Covariance matrices as they can be used: one per group, symmetric and positive definite."""
    matrices = numbers("effect_covariance", effect_covariance)
    shape = (*values.shape, values.shape[1])
    if matrices.shape != shape:
        raise InputError.mismatch(
            "effect_covariance", f"has shape {matrices.shape}, theta {values.shape}", f"Give shape {shape}."
        )
    diagonal = np.sqrt(np.maximum(np.diagonal(matrices, axis1=1, axis2=2), 0.0))
    with np.errstate(all="ignore"):
        correlation = matrices / (diagonal[:, :, None] * diagonal[:, None, :])
        good = np.isfinite(correlation).all(axis=(1, 2))
        even = np.abs(correlation - np.swapaxes(correlation, 1, 2)).max(axis=(1, 2)) < 1e-8
    good &= np.nan_to_num(even).astype(bool)
    good[good] = np.linalg.eigvalsh(correlation[good]).min(axis=1) > 1e-10
    if not good.all():
        first = int(np.flatnonzero(~good)[0])
        raise InputError.invalid_data(
            "effect_covariance",
            "is not a covariance matrix (symmetric, positive definite)",
            "Leave out what is determined by the rest, or correct it.",
            place=f"of group {name_of(keys[first])!r}",
        )
    return np.asarray((matrices + np.swapaxes(matrices, 1, 2)) / 2)


def part_names(parts: Sequence[str] | None, dims: int) -> tuple[str, ...]:
    """Names of several effects; one effect is named by `metric`."""
    listed = isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts)
    if dims == 1:
        if parts is not None and not (listed and len(parts) == 1):
            raise InputError.mismatch("parts", "names parts, but theta has one dimension", "Leave it out.", parts)
        return ()
    if parts is None:
        return tuple(f"part {i + 1}" for i in range(dims))
    if not listed or len(parts) != dims or len(set(parts)) < len(parts):
        raise InputError.mismatch(
            "parts", f"must be {dims} distinct names", "Name each of them once.", parts, form="must"
        )
    return tuple(str(part) for part in parts)


def require(
    good: npt.NDArray[np.bool_], parameter: str, values: FloatArray, keys: Sequence[Key], problem: str, remedy: str
) -> None:
    """Raise for the first group whose value is not good, and say how many there are."""
    if good.all():
        return
    good, values = good.reshape(len(keys), -1), values.reshape(len(keys), -1)
    bad = np.flatnonzero(~good.all(axis=1))
    others = f" (and {bad.size - 1} more)" if bad.size > 1 else ""
    worst = values[bad[0]][~good[bad[0]]][0]
    raise InputError.invalid_data(
        parameter, problem, remedy, worst, place=f"in group {name_of(keys[bad[0]])!r}{others}", form="must"
    )


def check_meaning(scale: Scale, metric: str) -> None:
    """Refuse a scale or a name that is none."""
    if not isinstance(scale, Scale):
        raise InputError.wrong_type("scale", "is not a scale", "Leave it out, or use that of a metric.", scale)
    if not isinstance(metric, str):
        raise InputError.wrong_type("metric", "is not text", "Say what was measured.", metric)


def check_readable(scale: Scale, values: FloatArray, errors: FloatArray) -> None:
    """Refuse estimates whose intervals cannot be read on the natural scale, such as a lift of e⁸⁰⁰."""
    with np.errstate(over="ignore", invalid="ignore"):
        for i, own_scale in enumerate(scale_of_each(scale, values.shape[1])):
            ends = own_scale.natural(values[:, i] + 3 * errors[:, i]), own_scale.slope(values[:, i])
            if not all(np.isfinite(end).all() for end in ends):
                largest = float(values[:, i].max())
                raise InputError.out_of_range(
                    "theta",
                    f"is beyond what the {own_scale.name} scale can show",
                    "Check it.",
                    place=f"up to {largest:g}",
                )


def errors_alone(alone: npt.ArrayLike, keys: Sequence[Key]) -> FloatArray:
    """Standard errors and degrees of freedom of groups by their own rows, (K, 2)."""
    array = columns("alone", alone, (len(keys), 2))
    require(array > 0, "alone", array, keys, "must be above zero", "Leave it out.")
    return array


def check_range(theta: FloatArray, se: FloatArray) -> None:
    """Refuse numbers that products of weights or squared differences would carry out of a double's range."""
    with np.errstate(over="ignore"):
        widest, farthest = se.max() / se.min(), (theta.max() / 2 - theta.min() / 2) / se.min() * 2
    if widest > _WIDEST_SE:
        raise InputError.out_of_range(
            "se", "spans too many orders of magnitude", "Check the units.", place=f"from {se.min():g} to {se.max():g}"
        )
    if farthest > _FARTHEST_THETA:
        raise InputError.out_of_range(
            "theta",
            f"lies too far apart for standard errors as small as {se.min():g}",
            "Check the units.",
            place=f"from {theta.min():g} to {theta.max():g}",
        )
    if np.abs(theta).max() > _LARGEST or not _SMALLEST <= se.min() <= se.max() <= _LARGEST:
        raise InputError.out_of_range(
            "theta, se",
            f"lies beyond the range of {_SMALLEST:g} to {_LARGEST:g}",
            "Use other units.",
            place=f"up to {np.abs(theta).max():g}, from {se.min():g} to {se.max():g}",
        )


# ---------- Groups that share data


_LEAST = 0.05  # of the variance against all others: no group's own variance is taken for less
_NOTHING = 1e-9  # of the own variances: what is left beside them counts as rounding
_WIDEST = 1e7  # times the smallest standard error: beyond it, variances of differences have lost their digits
_DEFINITE = 1e-10  # of a correlation matrix: the smallest eigenvalue with which differences have a variance


def checked_covariance(covariance: FloatArray, keys: Sequence[Key]) -> FloatArray:
    """A covariance matrix of K groups as it can be used: symmetric and positive definite."""
    size, remedy = len(keys), "Leave out what is determined by the rest, or correct it."
    if covariance.shape != (size, size):
        raise InputError.mismatch(
            "covariance", f"has shape {covariance.shape}, but there are {size} groups", f"Give ({size}, {size})."
        )
    variance = np.diagonal(covariance)
    if not np.isfinite(covariance).all() or variance.min() <= 0:
        worst = int(np.argmin(np.where(np.isfinite(covariance).all(axis=1), variance, -np.inf)))
        problem = "must be finite, with variances above zero"
        raise InputError.invalid_data(
            "covariance", problem, remedy, place=f"of group {name_of(keys[worst])!r}", form="must"
        )
    scale = np.sqrt(variance)
    if scale.max() > _WIDEST * scale.min():
        problem = f"has standard errors from {scale.min():g} to {scale.max():g}, too many orders of magnitude"
        raise InputError.out_of_range("covariance", problem, "Check the units.")
    correlation = covariance / scale[:, None] / scale
    uneven = np.abs(correlation - correlation.T)
    if uneven.max() > 1e-8:
        first, second = (name_of(keys[int(i)]) for i in np.unravel_index(int(uneven.argmax()), uneven.shape))
        problem = f"is not symmetric: that of {first!r} with {second!r} is not that of {second!r} with {first!r}"
        raise InputError.invalid_data(
            "covariance", problem, "Give the covariance matrix of the estimates, in the order of labels."
        )
    if float(np.linalg.eigvalsh((correlation + correlation.T) / 2)[0]) < _DEFINITE:
        problem = "is not positive definite: some groups are determined by the others"
        raise InputError.invalid_data("covariance", problem, remedy)
    return np.asarray((covariance + covariance.T) / 2)


def own_variances(covariance: FloatArray) -> FloatArray:
    """The variance of each group that it shares with no other, (K,).

    The sums a_i + a_j that come nearest to the covariances of all pairs are taken off. Of two groups only the variance
    of their difference is known, and each gets its part.
    """
    size, variance = len(covariance), np.array(np.diagonal(covariance))
    if size == 1:
        return variance
    if size == 2:
        apart = variance.sum() - 2 * covariance[0, 1]
        return np.asarray(variance * (apart / variance.sum()))
    with_others = covariance.sum(axis=1) - variance
    common = (with_others - with_others.sum() / (2 * (size - 1))) / (size - 2)
    total = covariance.sum()
    rest = (total - 2 * covariance.sum(axis=1) + variance) / (size - 1) ** 2
    against_rest = variance + rest - 2 * with_others / (size - 1)
    return np.asarray(np.maximum(variance - 2 * common, _LEAST * against_rest))


def is_independent(covariance: FloatArray, own: FloatArray) -> bool:
    """Whether the groups' own variances say all of how they differ."""
    if len(own) <= 2:
        return True
    left = covariance - np.diag(own)
    # Sums a_i + a_j have a_i = left_ii / 2.
    half = np.diagonal(left) / 2
    return bool(np.abs(left - half[:, None] - half).max() <= _NOTHING * own.min())
