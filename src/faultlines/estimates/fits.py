"""Effects of groups out of a fitted regression: their coefficients, with the covariance the fit gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines.errors import InputError, did_you_mean, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from faultlines.estimates.scales import FloatArray

    Terms = Sequence[str] | Mapping[Any, str | Sequence[str]]

_LEVEL = re.compile(r"^(?P<factor>.*?)(?:\[(?P<coded>T\.)?(?P<level>.*)\]|::(?P<plain>.*))$", re.DOTALL)
_NAME = re.compile(r"^C\(\s*Q?\(?['\"]?(?P<name>[^,'\")]*)")


class Effects(NamedTuple):
    """Effects of groups as sums of coefficients.

    Attributes:
        labels: The groups.
        values: Their effects.
        covariance: Of these.
        dof: Degrees of freedom by which the fit judges, infinite where it takes the normal law.
    """

    labels: list[Any]
    values: FloatArray
    covariance: FloatArray
    dof: float


def effects_of(fit: Any, terms: Terms | None, treatment: str | None, reference: Any, dof: float | None) -> Effects:
    """The effects that some coefficients of a fit are.

    Args:
        fit: A fitted model.
        terms: Which coefficients; None for all interactions with `treatment`.
        treatment: The coefficient that interacts with the groups.
        reference: The group without a coefficient of its own.
        dof: Degrees of freedom, where the fit's are not to be taken.
    """
    names, values, covariance = _read(fit)
    if (terms is None) == (treatment is None):
        remedy = "Name the coefficients of the groups, or the treatment whose interactions with groups they are."
        raise InputError("terms, treatment", "one of the two is needed", f"{remedy} There are: {_shown(names)}.")
    made = _interactions(fit, names, str(treatment), reference) if terms is None else _named(terms)
    places = {name: i for i, name in enumerate(names)}
    sums = np.zeros((len(made), len(names)))
    for row, parts in zip(sums, made.values(), strict=True):
        for part in parts:
            if part not in places:
                problem = "the fit has no such coefficient"
                raise InputError(f"terms: {shorten(part)}", problem, did_you_mean(part, names))
            row[places[part]] += 1
    return Effects(list(made), sums @ values, sums @ covariance @ sums.T, _dof(fit) if dof is None else dof)


def _read(fit: Any) -> tuple[list[str], FloatArray, FloatArray]:
    """Names, coefficients and covariance of statsmodels, linearmodels, pyfixest, or anything that is alike."""
    params = getattr(fit, "params", None)
    if params is None and callable(getattr(fit, "coef", None)):
        params = fit.coef()
    found = next((getattr(fit, name) for name in ("cov_params", "cov", "vcov_", "_vcov") if hasattr(fit, name)), None)
    covariance = found() if callable(found) else found
    if params is None or covariance is None:
        remedy = "Give a fit with params and cov_params(), or use fl.Estimates(…, covariance=…)."
        raise InputError(f"fit={type(fit).__name__}", "has no coefficients with a covariance", remedy)
    is_map = isinstance(params, Mapping)
    try:
        values = np.asarray(list(params.values()) if is_map else params, dtype=np.float64).reshape(-1)
        matrix = np.asarray(covariance, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"fit={type(fit).__name__}", "its coefficients are not numbers", "Check the fit.") from error
    if matrix.shape != (values.size, values.size):
        problem = f"has {values.size} coefficients, but a covariance of shape {matrix.shape}"
        raise InputError(f"fit={type(fit).__name__}", problem, "Check the fit.")
    return [str(name) for name in (params if is_map else _names(fit, params, values.size))], values, matrix


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
    known = [getattr(fit, name, None) for name in ("df_resid_inference", "df_resid")] if takes_t else []
    return next((float(dof) for dof in known if dof is not None), np.inf)


def _named(terms: Terms) -> dict[Any, list[str]]:
    """Labels with the coefficients that add up to each."""
    if isinstance(terms, str) or not isinstance(terms, Mapping | list | tuple) or not len(terms):
        remedy = 'Use terms=["C(country)[DE]:treated", …], or {"DE": "C(country)[DE]:treated", …}.'
        raise InputError(f"terms={shorten(terms)}", "names no coefficients", remedy)
    listed = terms.items() if isinstance(terms, Mapping) else ((_level(str(term)), term) for term in terms)
    made: dict[Any, list[str]] = {}
    for label, parts in listed:
        if label in made:
            raise InputError(f"terms: {shorten(label)}", "is there twice", "Name the groups: {label: coefficient}.")
        made[label] = [str(parts)] if isinstance(parts, str) else [str(part) for part in parts]
    return made


def _level(name: str) -> str:
    """The group in the name of a coefficient: DE in "C(country)[DE]:treated"; the name itself where there is none."""
    parts = [found["level"] or found["plain"] for part in _factors(name) if (found := _LEVEL.match(part))]
    return parts[0] if len(parts) == 1 else name


def _factors(name: str) -> list[str]:
    """What a coefficient is a product of; colons in brackets, and double ones, divide nothing."""
    return re.split(r"(?<!:):(?!:)(?![^\[]*\])", name)


def _interactions(fit: Any, names: Sequence[str], treatment: str, reference: Any) -> dict[Any, list[str]]:
    """Groups with the coefficients that make up their effect: interactions, and the main effect where it is coded."""
    found: dict[Any, str] = {}
    factor, coded = "", False
    for name in names:
        parts = _factors(name)
        if len(parts) != 2 or treatment not in parts:
            continue
        level = _LEVEL.match(parts[1 - parts.index(treatment)])
        if level is not None:
            found[level["level"] if level["plain"] is None else level["plain"]] = name
            factor, coded = level["factor"], coded or level["coded"] is not None
    if not found:
        problem = "interacts with no group in this fit"
        raise InputError(f"treatment={shorten(treatment)}", problem, f"There are: {_shown(names)}.")
    # Beside a main effect the interactions are differences from the group that has none.
    if treatment not in names:
        if coded:
            problem = "its interactions are differences from a group whose effect is not in the fit"
            raise InputError(f"treatment={shorten(treatment)}", problem, "Fit y ~ C(group) + C(group):treatment.")
        return {label: [name] for label, name in found.items()}
    base = reference if reference is not None else _left_out(fit, factor, list(found))
    if base in found:
        problem = "has a coefficient of its own"
        raise InputError(f"reference={shorten(base)}", problem, "Name the group without one.")
    return {base: [treatment]} | {label: [treatment, name] for label, name in found.items()}


def _left_out(fit: Any, factor: str, known: Sequence[str]) -> str:
    """The group that the others are compared with, from the rows of the fit if it has kept them."""
    column = match["name"].strip() if (match := _NAME.match(factor)) else factor
    frame = getattr(getattr(getattr(fit, "model", None), "data", None), "frame", None)
    try:
        values = {str(value) for value in frame[column].unique()} - set(known)  # type: ignore[index]
    except (KeyError, TypeError, AttributeError):
        values = set()
    return values.pop() if len(values) == 1 else "(reference)"


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
