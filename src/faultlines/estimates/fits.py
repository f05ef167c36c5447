"""FittedEffects of groups out of a fitted regression: their coefficients, with the covariance the fit gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines import checks
from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.estimates.labels import keys_of
from faultlines.estimates.validation import in_order_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from faultlines.estimates.scales import FloatArray

    Terms = Sequence[str] | Mapping[Any, str | Sequence[str]]

_LISTED = 8  # coefficients in a remedy


class FittedEffects(NamedTuple):
    """FittedEffects of groups as sums of coefficients.

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
    names, values, covariance = _read(fit)
    parts_of = _parts(terms, names)
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
    cluster_count = _clusters(fit) if clusters is None else float(clusters)
    # Of two groups the fit's own test is ours; of more, the errors of a clustered covariance add up.
    covariance_dof = cluster_count - 1 if cluster_count is not None and len(parts_of) > 2 else None
    own_dof = _dof(fit) if dof is None else float(dof)
    return FittedEffects(list(parts_of), sums @ values, sums @ covariance @ sums.T, own_dof, covariance_dof)


def _read(fit: Any) -> tuple[list[str], FloatArray, FloatArray]:
    """Names, coefficients and covariance of statsmodels, linearmodels, pyfixest, or anything that is alike."""
    params = getattr(fit, "params", None)
    if params is None and callable(getattr(fit, "coef", None)):
        params = fit.coef()
    covariance = _covariance(fit)
    if params is None or covariance is None:
        remedy = "Give a fit with params and cov_params(), or use fl.Estimates(…, covariance=…)."
        raise InputError.wrong_type("fit", "has no coefficients with a covariance", remedy, type(fit))
    is_map = isinstance(params, Mapping)
    try:
        values = np.asarray(list(params.values()) if is_map else params, dtype=np.float64)
        names = list(params if is_map else _names(fit, params, values.size))
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
        problem = f"has {values.size} coefficients, of which only {int(rank)} can be distinguished"
        raise InputError.invalid_data("fit", problem, "Leave out columns that follow from others.", type(fit))
    return [str(name) for name in names], values, matrix


def _covariance(fit: Any) -> Any:
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


def _clusters(fit: Any) -> float | None:
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


def _names(fit: Any, params: Any, count: int) -> Iterable[Any]:
    """Names of coefficients: those of a Series, or of the model; their numbers where there are none."""
    index = getattr(params, "index", None)
    if index is not None and not callable(index):
        return list(index)
    names: Iterable[Any] = getattr(getattr(fit, "model", None), "exog_names", None) or range(count)
    return names


def _dof(fit: Any) -> float:
    """The degrees of freedom by which a fit judges its coefficients."""
    takes_t = getattr(fit, "use_t", getattr(fit, "debiased", None))
    if takes_t is None:
        return float(getattr(fit, "_df_t", np.inf))
    candidates = [getattr(fit, name, None) for name in ("df_resid_inference", "df_resid")] if takes_t else []
    return next((float(dof) for dof in candidates if dof is not None), np.inf)


def _parts(terms: Terms, names: Sequence[str]) -> dict[Any, list[str]]:
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
