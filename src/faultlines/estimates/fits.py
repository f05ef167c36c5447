"""Effects of groups out of a fitted regression: their coefficients, with the covariance the fit gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from faultlines import checks
from faultlines.errors import InputError, did_you_mean, shorten
from faultlines.estimates.given import in_order_of
from faultlines.estimates.labels import keys_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from faultlines.estimates.scales import FloatArray

    Terms = Sequence[str] | Mapping[Any, str | Sequence[str]]

_LEVEL = re.compile(r"^(?P<factor>.*?)(?:\[(?P<coded>T\.)?(?P<level>.*)\]|::(?P<plain>.*))$", re.DOTALL)
# Of C(country, Sum)[S.DE] and the like, which are no differences from one group; C(country)[S. Korea] is none of them.
_CONTRAST = re.compile(r"^C\(.*,.*\)\[[SHDR]\.", re.DOTALL)
_BY_TERMS = "Name the coefficients that add up to each group's effect: terms={group: [coefficients]}."
_NAME = re.compile(r"^C\(\s*Q?\(?['\"]?(?P<name>[^,'\")]*)")


class Effects(NamedTuple):
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


def effects_of(
    fit: Any,
    terms: Terms | None,
    treatment: str | None,
    reference: Any,
    dof: float | None,
    clusters: float | None = None,
) -> Effects:
    """The effects that some coefficients of a fit are.

    Args:
        fit: A fitted model.
        terms: Which coefficients; None for all interactions with `treatment`.
        treatment: The coefficient that interacts with the groups.
        reference: The group without a coefficient of its own.
        dof: Degrees of freedom, where the fit's are not to be taken.
        clusters: How many clusters the covariance was estimated from, where the fit does not say it.
    """
    if dof is not None:
        checks.number("dof", dof, "must be a number, 1 or more", "Leave it out.", low=1)
    if clusters is not None:
        checks.number("clusters", clusters, "must be a number, 2 or more", "Leave it out.", low=2)
    names, values, covariance = _read(fit)
    if (terms is None) == (treatment is None):
        remedy = "Name the coefficients of the groups, or the treatment whose interactions with groups they are."
        raise InputError("terms, treatment", "one of the two is needed", f"{remedy} There are: {_shown(names)}.")
    made = _interactions(fit, names, str(treatment), reference) if terms is None else _named(terms)
    places = {name: i for i, name in enumerate(names)}
    for name in {part for parts in made.values() for part in parts if names.count(part) > 1}:
        raise InputError(f"fit: {shorten(name)}", "several coefficients have this name", "Rename their columns.")
    sums = np.zeros((len(made), len(names)))
    for row, parts in zip(sums, made.values(), strict=True):
        for part in parts:
            if part not in places:
                problem = "the fit has no such coefficient"
                raise InputError(f"terms: {shorten(part)}", problem, did_you_mean(part, names))
            row[places[part]] += 1
    several = _clusters(fit) if clusters is None else float(clusters)
    # Of two groups the fit's own test is ours; of more, the errors of a clustered covariance add up.
    whole = several - 1 if several is not None and len(made) > 2 else None
    law = _dof(fit) if dof is None else float(dof)
    return Effects(list(made), sums @ values, sums @ covariance @ sums.T, law, whole)


def _read(fit: Any) -> tuple[list[str], FloatArray, FloatArray]:
    """Names, coefficients and covariance of statsmodels, linearmodels, pyfixest, or anything that is alike."""
    params = getattr(fit, "params", None)
    if params is None and callable(getattr(fit, "coef", None)):
        params = fit.coef()
    covariance = _covariance(fit)
    if params is None or covariance is None:
        remedy = "Give a fit with params and cov_params(), or use fl.Estimates(…, covariance=…)."
        raise InputError(f"fit={type(fit).__name__}", "has no coefficients with a covariance", remedy)
    is_map = isinstance(params, Mapping)
    try:
        values = np.asarray(list(params.values()) if is_map else params, dtype=np.float64)
        names = list(params if is_map else _names(fit, params, values.size))
        matrix = np.asarray(in_order_of(covariance, keys_of(names)), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"fit={type(fit).__name__}", "its coefficients are not numbers", "Check the fit.") from error
    if values.ndim != 1 or matrix.shape != (values.size, values.size) or len(names) != values.size:
        problem = f"has coefficients of shape {values.shape} and a covariance of shape {matrix.shape}"
        raise InputError(f"fit={type(fit).__name__}", problem, "Give a fit of one equation.")
    rank = getattr(getattr(fit, "model", None), "rank", None)
    if isinstance(rank, int | float | np.number) and rank < values.size:
        problem = f"has {values.size} coefficients, of which only {int(rank)} can be told apart"
        raise InputError(f"fit={type(fit).__name__}", problem, "Leave out columns that follow from others.")
    return [str(name) for name in names], values, matrix


def _covariance(fit: Any) -> Any:
    """The covariance of the coefficients, under any of the names that it has."""
    for name in ("cov_params", "cov", "covariance", "vcov_", "_vcov", "vcov"):
        found = getattr(fit, name, None)
        try:
            found = found() if callable(found) else found
        except Exception as error:
            problem = f"has no covariance of its coefficients: {shorten(error)}"
            raise InputError(f"fit={type(fit).__name__}", problem, "Fit it with one.") from error
        if found is not None and np.ndim(found) == 2:
            return found
    return None


def _clusters(fit: Any) -> float | None:
    """How many clusters a covariance was estimated from, if it was and the fit says it."""
    if "clust" in str(getattr(fit, "cov_type", "")).lower():
        groups = (getattr(fit, "cov_kwds", None) or {}).get("groups")
        if groups is not None:
            each = np.asarray(groups)
            each = each[:, None] if each.ndim == 1 else each
            return float(min(np.unique(column).size for column in each.T))
    known = getattr(fit, "_G", None)  # pyfixest
    counts = known if isinstance(known, list | tuple) else [known]
    numbers = [float(one) for one in counts if isinstance(one, int | float | np.number) and one > 1]
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
        listed_parts = [parts] if isinstance(parts, str) else parts
        if not isinstance(listed_parts, list | tuple) or not all(isinstance(part, str) for part in listed_parts):
            problem = f"{shorten(parts)} is not the name of a coefficient"
            raise InputError(f"terms: {shorten(label)}", problem, "Name the coefficients.")
        made[label] = list(listed_parts)
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
    levels = sorted({part for name in names for part in _factors(name) if _is(part, treatment)})
    if len(levels) > 1:
        problem = f"has several levels: {_shown(levels)}"
        raise InputError(f"treatment={shorten(treatment)}", problem, f"Name one of them: treatment={levels[0]!r}.")
    main = next((level for level in levels if level in names), None)
    found: dict[Any, str] = {}
    factors, coded = set(), False
    for name in names:
        parts = _factors(name)
        of_treatment = [_is(part, treatment) for part in parts]
        if not any(of_treatment) or len(parts) == 1:
            continue
        other = parts[1 - of_treatment.index(True)]
        level = _LEVEL.match(other)
        if len(parts) > 2 or _CONTRAST.match(other):
            problem = f"{shorten(name)} is not a difference between two groups"
            raise InputError(f"treatment={shorten(treatment)}", problem, _BY_TERMS)
        if level is not None:
            found[level["level"] if level["plain"] is None else level["plain"]] = name
            factors.add(level["factor"])
            coded = coded or level["coded"] is not None
    if not found:
        problem = "interacts with no group in this fit"
        raise InputError(f"treatment={shorten(treatment)}", problem, f"There are: {_shown(names)}.")
    if len(factors) > 1:
        problem = f"interacts with several columns: {', '.join(sorted(factors))}"
        raise InputError(f"treatment={shorten(treatment)}", problem, _BY_TERMS)
    # Beside a main effect the interactions are differences from the group that has none.
    if main is None:
        if coded:
            problem = "its interactions are differences from a group whose effect is not in the fit"
            raise InputError(f"treatment={shorten(treatment)}", problem, "Fit y ~ C(group) + C(group):treatment.")
        return {label: [name] for label, name in found.items()}
    base = reference if reference is not None else _left_out(fit, factors.pop(), list(found))
    if isinstance(base, list | dict | set) or base in found:
        problem = "is not a name" if isinstance(base, list | dict | set) else "has a coefficient of its own"
        raise InputError(f"reference={shorten(base)}", problem, "Name the group without one.")
    return {base: [main]} | {label: [main, name] for label, name in found.items()}


def _is(name: str, treatment: str) -> bool:
    """Whether a factor of a coefficient is the treatment: by its very name, or as the one level of it that is coded."""
    level = _LEVEL.match(name)
    return name == treatment or (level is not None and level["coded"] is not None and level["factor"] == treatment)


def _left_out(fit: Any, factor: str, known: Sequence[str]) -> str:
    """The group that the others are compared with, from the rows of the fit if it has kept them."""
    column = match["name"].strip() if (match := _NAME.match(factor)) else factor
    frame = getattr(getattr(getattr(fit, "model", None), "data", None), "frame", None)
    try:
        values = {str(value) for value in frame[column].dropna().unique()} - set(known)  # type: ignore[index]
    except (KeyError, TypeError, AttributeError):
        values = set()
    return values.pop() if len(values) == 1 else "(reference)"


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
