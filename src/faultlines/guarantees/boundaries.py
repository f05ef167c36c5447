"""Looks at all data so far: estimates aligned by label and checked to grow, α spent, boundaries computed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import gammaln, log_ndtr, ndtr, ndtri, ndtri_exp, stdtrit

from faultlines import checks, formats
from faultlines.core.distributions import log_two_sided
from faultlines.errors import InputError, shorten
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import Label, name_of
from faultlines.formats import UNITS, Unit
from faultlines.guarantees.state import check_number, check_type, label_key
from faultlines.types import BoolArray, FloatArray, IntArray

MissingPolicy = Literal["error", "keep", "ignore"]
NewPolicy = Literal["error", "add", "ignore"]
Dependence = Literal["independent", "returning", "any"]
DEPENDENCE = ("independent", "returning", "any")
_ROUNDING = 1e-6
_ESTIMATED = 0.1  # standard errors that are estimates may rise so far without any loss of data
_TINY = 5e-324
_COLUMNS: dict[str, tuple[float, float | None]] = {  # of a look: the least value, and what null stands for
    "theta": (-np.inf, None), "se": (_TINY, None), "n": (_TINY, None), "dof": (1.0, np.inf), "odds": (_TINY, None),
    "shown": (-np.inf, None), "lower": (-np.inf, -np.inf), "upper": (-np.inf, np.inf),
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class LookData:
    """What one look saw of some groups.

    Attributes:
        groups: Their numbers, in the order in which groups were first seen.
        theta: Their estimates, on the scale that is compared on.
        se: Their standard errors.
        n: Their sizes, where known.
        dof: Degrees of freedom behind the standard errors, where those are estimated.
        odds: Of a 0/1 outcome, the odds that it is 1.
        shown: The estimates as people read them.
        lower: Lower ends of intervals that are valid at every look; none before they are computed.
        upper: Upper ends.
        covariance: Covariance of the estimates, where groups share data; it is not kept in a state.
        covariance_dof: Its degrees of freedom, where all of it is estimated.
    """

    groups: IntArray
    theta: FloatArray
    se: FloatArray
    n: FloatArray | None
    dof: FloatArray | None
    odds: FloatArray | None = None
    shown: FloatArray | None = None
    lower: FloatArray | None = None
    upper: FloatArray | None = None
    covariance: FloatArray | None = None
    covariance_dof: float = np.inf

    def estimates(self, labels: Sequence[Label]) -> Estimates:
        """The same as estimates."""
        names = [labels[i] for i in self.groups.tolist()]
        if self.covariance is None:
            return Estimates(self.theta, self.se, names, self.n, self.dof)
        how: dict[str, Any] = {"covariance": self.covariance}
        if np.isfinite(self.covariance_dof):
            how["covariance_dof"] = self.covariance_dof
        return Estimates(self.theta, None, names, self.n, self.dof, **how)

    def is_same_data(self, other: LookData) -> bool:
        """Whether it is another look at the same data: engines that add up rows on several cores differ in digits."""
        if not np.array_equal(self.groups, other.groups):
            return False
        far = np.abs(self.theta - other.theta) > _ROUNDING * self.se
        sized = (self.n is None) == (other.n is None) and (self.n is None or np.array_equal(self.n, other.n))  # type: ignore[arg-type]
        return sized and not far.any() and np.allclose(self.se, other.se, rtol=_ROUNDING, atol=0)

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it; what is infinite is null."""
        plain: dict[str, Any] = {"groups": self.groups.tolist()}
        for name in _COLUMNS:
            column = getattr(self, name)
            plain[name] = None if column is None else [d if np.isfinite(d) else None for d in column.tolist()]
        return plain

    @classmethod
    def from_plain(cls, value: Any, labels: int, *, least: int = 2) -> LookData:
        """From what JSON had, refused if it is not what a look can see of this number of groups."""
        groups = [check_type(i, int) for i in check_type(value["groups"], list)]
        if len(groups) < least or len(set(groups)) < len(groups) or min(groups) < 0 or max(groups) >= labels:
            raise ValueError("groups of a look are not different known ones")
        columns: dict[str, FloatArray | None] = {}
        for name, (low, infinite) in _COLUMNS.items():
            column = value[name]
            if column is None and name not in {"theta", "se"}:
                columns[name] = None
                continue
            numbers = [
                infinite if d is None and infinite is not None else check_number(d, low)
                for d in check_type(column, list)
            ]
            if len(numbers) != len(groups):
                raise ValueError(f"{name} of a look has another length")
            columns[name] = np.array(numbers, dtype=float)
        return cls(np.array(groups, dtype=np.int64), **columns)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class GroupHistory:
    """What is known of all groups seen so far.

    Attributes:
        theta: Their last estimates.
        shown: The same as people read them.
        se: Their last standard errors.
        n: Their last sizes; none where sizes are not given.
        odds: Their last odds, of 0/1 outcomes.
        dof: Degrees of freedom at their last look; infinite where standard errors are known.
        information: How much is known of each: its size, or 1/se²; it never falls.
        clock: The same as the paths see it.
        first_n: Their first sizes.
        first_se: Their first standard errors.
        first_odds: Their first odds, of 0/1 outcomes.
        first_clock: What the paths saw at their first look.
        batch: How many looks before their first one had brought new groups.
    """

    theta: FloatArray
    shown: FloatArray
    se: FloatArray
    n: FloatArray | None
    odds: FloatArray
    dof: FloatArray
    information: FloatArray
    clock: FloatArray
    first_n: FloatArray
    first_se: FloatArray
    first_odds: FloatArray
    first_clock: FloatArray
    batch: FloatArray

    @property
    def growth(self) -> FloatArray:
        """How many times the information of its first look each group has, as the paths see it."""
        return np.asarray(self.clock / self.first_clock)


def check_one_effect(estimates: Any) -> Estimates:
    """Estimates with one effect per group, or an error."""
    if not isinstance(estimates, Estimates):
        raise InputError.wrong_type("estimates", "is not an Estimates", "Make one with fl.Estimates.", type(estimates))
    if estimates.dims > 1:
        problem = f"has {estimates.dims} effects per group ({estimates.metric})"
        raise InputError.unsupported(
            "estimates", problem, "Monitor each of them on its own, at α divided by their number."
        )
    return estimates


def choose_dependence(estimates: Estimates, dependence: Dependence | None) -> Dependence:
    """What is assumed of how looks depend on each other, where nothing is said.

    Draws follow every group by itself. Groups that share data (several treatments with one control, users in several
    groups) are tested look by look, with levels that add up to α: nothing is assumed of how looks depend on each other.
    """
    if estimates.covariance is None:
        return dependence or ("independent" if estimates.n is None else "returning")
    if dependence not in {None, "any"}:
        raise InputError.unsupported(
            "dependence",
            "does not apply to groups that share data",
            "Use {dependence}, or leave it out.",
            dependence,
            settings={"dependence": "any"},
        )
    return "any"


class MonitorSubject(NamedTuple):
    """What is looked at, which must be the same at every look.

    Attributes:
        metric: What is measured.
        attributes: What the groups are values of.
        scale: The scale of the estimates.
        recipe: How rows were measured; "" where estimates were given.
        unit: What people read the effects in: percent, percentage points, or what the metric is in.
        counted: What sizes of groups count.
    """

    metric: str = "effect"
    attributes: tuple[str, ...] = ("group",)
    scale: str = "identity"
    recipe: str = ""
    unit: Unit = ""
    counted: str = ""

    @classmethod
    def of(cls, estimates: Estimates, counted: str) -> MonitorSubject:
        """That of some estimates."""
        scale = estimates.scales[0]
        return cls(
            estimates.metric,
            estimates.attributes,
            estimates.scale.name,
            estimates.recipe,
            scale.unit,
            counted or scale.counted,
        )

    @classmethod
    def from_plain(cls, value: Any, labels: Sequence[Label]) -> MonitorSubject | None:
        """From what JSON had, refused if it does not fit the labels of the groups."""
        if value is None:
            return None
        if set(check_type(value, dict)) != set(cls._fields):
            raise ValueError("subject has other fields")
        metric, scale, recipe, counted = (
            check_type(value[name], str) for name in ("metric", "scale", "recipe", "counted")
        )
        if value["unit"] not in UNITS:
            raise ValueError("unit is not known")
        attributes = tuple(check_type(name, str) for name in check_type(value["attributes"], list))
        lengths = {len(label) if isinstance(label, tuple) else 1 for label in labels}
        if len(set(attributes)) < len(attributes) or lengths != {len(attributes)}:
            raise ValueError("attributes do not fit the labels")
        return cls(metric, attributes, scale, recipe, value["unit"], counted)

    def check(self, before: MonitorSubject) -> None:
        """Refuse another one than at the looks before."""
        for now, then, what, remedy in (
            (self.metric, before.metric, "of", "Give the same metric at every look."),
            (self.attributes, before.attributes, "by", "Give the same groups at every look."),
            (self.scale, before.scale, "on the scale", "Give the same metric at every look."),
        ):
            if now != then:
                current, earlier = (
                    repr(value if isinstance(value, str) else " × ".join(value)) for value in (now, then)
                )
                raise InputError.mismatch(
                    "estimates", f"the looks before had {earlier}", remedy, place=f"{what} {current}", form="clause"
                )
        if self.recipe != before.recipe:
            problem, remedy = _changed_options(self.recipe, before.recipe)
            raise InputError.mismatch("estimates", problem, remedy, form="sentence")


def _changed_options(now: str, before: str) -> tuple[str, str]:
    """What is measured otherwise than at the looks before, and what to do: the options that differ, by name."""
    recipes: list[Any] = [json.loads(text) if text else "" for text in (now, before)]
    if not all(isinstance(recipe, dict) for recipe in recipes):
        return "the looks before measured rows in another way", "Give the same metric, with the same arms and unit."
    if recipes[0]["name"] != recipes[1]["name"]:
        names = [recipe["name"] for recipe in recipes]
        return f"the looks before measured {names[1]!r}, not {names[0]!r}", "Give the same metric at every look."
    current, earlier = (recipe["arguments"] for recipe in recipes)
    changed = [name for name in {**earlier, **current} if current.get(name) != earlier.get(name)]
    before_changed = [
        f"{name} {earlier[name]!r}" if earlier.get(name) is not None else f"no {name}" for name in changed
    ]
    remedy = f"Give the same {formats.listed(changed)} at every look."
    return f"the looks before had {formats.listed(before_changed)}", remedy


def check_policies(missing: MissingPolicy, new: NewPolicy) -> None:
    """Refuse words that say nothing about groups that are missing or new."""
    checks.choice("missing", missing, ("error", "keep", "ignore"), "Use 'error', 'keep' or 'ignore'.")
    checks.choice("new", new, ("error", "add", "ignore"), "Use 'error', 'add' or 'ignore'.")


def align_look(
    estimates: Estimates,
    labels: Sequence[Label],
    history: GroupHistory | None,
    missing: MissingPolicy,
    new: NewPolicy,
    odds: FloatArray | None = None,
) -> tuple[LookData, tuple[Label, ...], dict[str, int]]:
    """A look in the order of the known groups, all labels after it, and what was excluded or retained of it."""
    places = {label_key(label): i for i, label in enumerate(labels)}
    keys = [label_key(label) for label in estimates.labels]
    if len(set(keys)) < len(keys):
        raise InputError.duplicate(
            "estimates", "has groups whose labels read the same", "Name every group differently."
        )
    unknown = [label for label, key in zip(estimates.labels, keys, strict=True) if key not in places]
    absent = sorted(set(range(len(labels))) - {places[key] for key in keys if key in places})
    _refuse(unknown if labels and new == "error" else [], "new", "add", "ignore")
    _refuse([labels[i] for i in absent] if missing == "error" else [], "missing", "keep", "ignore")
    ignored: dict[str, int] = {}
    if unknown and labels and new == "ignore":
        ignored["new"] = len(unknown)
        unknown = []
    after = (*labels, *unknown)
    places |= {label_key(label): i for i, label in enumerate(unknown, start=len(labels))}
    used = np.array([key in places for key in keys])
    groups = np.array([places[key] for key in keys if key in places], dtype=np.int64)
    if absent:
        ignored["stopped" if missing == "keep" else "missing"] = len(absent)
    look = _read_columns(estimates, used, groups, odds)
    if absent and missing == "keep" and history is not None:
        look = _with_stopped(look, history, np.array(absent, dtype=np.int64))
    if look.groups.size < 2:
        raise InputError.too_few("estimates", "has one group that can be used", "There is nothing to compare.")
    order = np.argsort(look.groups)
    return _reorder(look, order), after, ignored


def _refuse(names: Sequence[Label], what: str, policy: str, other: str) -> None:
    if names:
        listed = ", ".join(repr(name_of(name)) for name in names[:3]) + (", …" if len(names) > 3 else "")
        problem = "the groups are not those of the looks before"
        raise InputError.mismatch(
            "estimates",
            problem,
            f"Correct them, or use {{{what}}} or {other!r}.",
            settings={what: policy},
            place=f"with {len(names)} {what} groups: {listed}",
            form="clause",
        )


def _read_columns(estimates: Estimates, used: BoolArray, groups: IntArray, odds: FloatArray | None) -> LookData:
    columns = {
        "theta": estimates.values[:, 0],
        "se": estimates.errors[:, 0],
        "n": estimates.n,
        "dof": estimates.dof,
        "odds": odds,
        "shown": estimates.shown[:, 0],
    }
    selected: dict[str, Any] = {name: None if column is None else column[used] for name, column in columns.items()}
    if estimates.covariance is not None:
        selected["covariance"] = estimates.covariance[np.ix_(used, used)]
        selected["covariance_dof"] = estimates.covariance_dof
    return LookData(groups, **selected)


def _reorder(look: LookData, order: IntArray) -> LookData:
    columns = {name: getattr(look, name) for name in ("groups", *_COLUMNS)}
    ordered: dict[str, Any] = {name: None if column is None else column[order] for name, column in columns.items()}
    if look.covariance is not None:
        ordered["covariance"] = look.covariance[np.ix_(order, order)]
    return replace(look, **ordered)


def _with_stopped(look: LookData, history: GroupHistory, absent: IntArray) -> LookData:
    """A look together with groups that have stopped, as they were last seen."""
    if look.covariance is not None:
        problem = "their last estimates have no covariance with those of the others"
        raise InputError.unsupported(
            "missing", problem, "Use {missing}.", "keep", settings={"missing": "ignore"}, form="clause"
        )
    n = None if look.n is None or history.n is None else np.append(look.n, history.n[absent])
    freedom = np.append(np.full(look.groups.size, np.inf) if look.dof is None else look.dof, history.dof[absent])
    return LookData(
        np.append(look.groups, absent),
        np.append(look.theta, history.theta[absent]),
        np.append(look.se, history.se[absent]),
        n,
        freedom if np.isfinite(freedom).any() else None,
        None if look.odds is None else np.append(look.odds, history.odds[absent]),
        None if look.shown is None else np.append(look.shown, history.shown[absent]),
    )


# -------------------------------------------------------------------------------------------------- growing information


def extend_history(
    history: GroupHistory | None, look: LookData, labels: Sequence[Label], dependence: Dependence, *, check: bool = True
) -> GroupHistory:
    """What is known after a look, refused where it does not grow out of what was known before.

    Args:
        history: What was known before.
        look: The look.
        labels: All groups, those that the look is first to see included.
        dependence: What is assumed of new data.
        check: Whether to refuse anything; what was saved has been checked before.
    """
    if check:
        _check_sizes(history, look, dependence)
    before, after = (_with_room(history, len(labels), sized=look.n is not None) for _ in range(2))
    at = look.groups
    for name in ("theta", "shown", "se", "n", "odds"):
        array, column = getattr(after, name), getattr(look, name)
        if array is not None and column is not None:
            array[at] = column
    after.dof[at] = np.inf if look.dof is None else look.dof
    first = np.isnan(after.first_se[at])
    after.first_se[at[first]] = look.se[first]
    after.batch[at[first]] = 0.0 if history is None else float(history.batch.max()) + 1
    information = look.se**-2.0 if look.n is None else look.n
    if look.n is not None:
        after.first_n[at[first]] = look.n[first]
    if look.odds is not None:
        after.first_odds[at[first]] = look.odds[first]
    if check:
        _check_growth(before, look, labels, information, dependence)
    after.information[at] = np.maximum(after.information[at], information)
    after.clock[at] = np.maximum(after.clock[at], _clock(after, look, information, dependence))
    after.first_clock[at[first]] = after.clock[at[first]]
    return after


def _clock(after: GroupHistory, look: LookData, information: FloatArray, dependence: Dependence) -> FloatArray:
    """How far the paths of the groups have come.

    Where users return, sizes say too little: the same people bring new data. If what a day adds to the total n·θ is
    unrelated to the past, (n·se)² is the clock; of relative effects it is 1/se². Of an outcome that happens once
    ("has bought by now") the past is related to what is added: who has bought cannot buy for the first time again.
    With X_t = 1{T ≤ t}, Cov(X_s, X_t) = p_s (1 − p_t) for s < t, so that Corr² is odds_s/odds_t: the clock of the same
    users is their odds p/(1 − p), and n times that where users join. Which of the clocks has run fastest since the
    first look makes looks depend least on each other, and the boundary strictest.
    """
    if dependence != "returning" or look.n is None:
        return information
    at = look.groups
    n, se = look.n / after.first_n[at], look.se / after.first_se[at]
    clocks = [n, (n * se) ** 2, se**-2.0]
    if look.odds is not None:
        clocks.append(n * look.odds / after.first_odds[at])
    return np.asarray(after.first_n[at] * np.max(clocks, axis=0))


def _with_room(history: GroupHistory | None, total: int, *, sized: bool) -> GroupHistory:
    """A copy with room for groups that are seen for the first time."""

    def room(name: str, filled: float) -> FloatArray:
        array = np.empty(0) if history is None else getattr(history, name)
        return np.append(array, np.full(total - array.size, filled))

    return GroupHistory(
        theta=room("theta", np.nan),
        shown=room("shown", np.nan),
        se=room("se", np.nan),
        n=room("n", 0.0) if sized else None,
        odds=room("odds", np.nan),
        dof=room("dof", np.inf),
        information=room("information", 0.0),
        clock=room("clock", 0.0),
        first_n=room("first_n", np.nan),
        first_se=room("first_se", np.nan),
        first_odds=room("first_odds", np.nan),
        first_clock=room("first_clock", np.nan),
        batch=room("batch", np.nan),
    )


def _check_sizes(history: GroupHistory | None, look: LookData, dependence: Dependence) -> None:
    """Sizes are given at every look or at none."""
    if history is not None and (history.n is None) != (look.n is None):
        at_first, now = ("without", "with") if history.n is None else ("with", "without")
        raise InputError.mismatch(
            "estimates",
            f"the looks before were {at_first} sizes",
            "Give sizes at every look, or at none.",
            place=f"{now} n",
            form="clause",
        )
    if dependence == "returning" and look.n is None:
        remedy = "Give n, the number of units in every group so far."
        raise InputError.missing("dependence", "needs the sizes of the groups", remedy, "returning")


def _check_growth(
    before: GroupHistory, look: LookData, labels: Sequence[Label], information: FloatArray, dependence: Dependence
) -> None:
    """Data so far hold those of the looks before, and more."""
    earlier = before.information[look.groups]
    slack = 0.0 if look.n is not None else _ROUNDING if look.dof is None else _ESTIMATED
    fallen = np.flatnonzero(information < earlier * (1 - slack))
    if fallen.size and (look.n is not None or dependence == "independent"):
        at = int(fallen[0])
        what = "n" if look.n is not None else "information 1/se²"
        raise InputError.mismatch(
            "estimates",
            f"has fallen from {earlier[at]:.6g} to {information[at]:.6g}",
            "Give estimates from all data so far, not from the last day alone."
            + ("" if look.n is not None else " If it is all data: give n too, or use {dependence}."),
            settings={"dependence": "any"},
            place=f"{what} of group {name_of(labels[look.groups[at]])!r}",
        )
    if dependence == "any" or np.any(information > earlier * (1 + _ROUNDING)):
        return
    if dependence == "returning" and not np.allclose(before.se[look.groups], look.se, rtol=_ROUNDING, atol=0):
        return
    if dependence == "returning" and look.odds is not None and np.any(look.odds != before.odds[look.groups]):
        return
    raise InputError.mismatch(
        "estimates",
        "no group has more data than at the look before, but estimates differ",
        "Give data that have grown. If the same users bring more data: {dependence} or 'any'.",
        settings={"dependence": "returning"},
        form="clause",
    )


# ---------- How α is spent over looks, and what a look must show to report a difference.


# Of what a look may spend, the share that goes by its own p alone: it reaches far below 1 / draws.
BY_ITSELF = 0.01
CUSTOM = "custom"
_ROUNDS = 40
_LEAST = -690.0  # log of the smallest level above zero


def _obrien_fleming(alpha: float, fraction: float) -> float:
    """Little early on, most of it at the end: the last look is nearly as sharp as a single one."""
    if fraction >= 1:
        return alpha
    return float(2 * ndtr(ndtri(alpha / 2) / np.sqrt(fraction))) if fraction > 0 else 0.0


def _pocock(alpha: float, fraction: float) -> float:
    """About as much at every look: early ones are sharper, the last one is blunter."""
    return float(alpha * np.log1p((np.e - 1) * fraction))


def _with_reserve(reserve: float) -> Callable[[float, float], float]:
    """A share of α is reserved for the end, the rest spent as by O'Brien and Fleming.

    The more groups there are, the less what two looks show depends on each other, and the more early looks cost.
    """
    return lambda alpha, fraction: alpha if fraction >= 1 else (1 - reserve) * _obrien_fleming(alpha, fraction)


SPENDING: dict[str, Callable[[float, float], float]] = {
    "reserve": _with_reserve(0.3),
    "obrien-fleming": _obrien_fleming,
    "pocock": _pocock,
    "haybittle-peto": _with_reserve(0.8),
}


def default_spending(*, has_end: bool, any_dependence: bool) -> str:
    """What is spent where nothing is said: without an end there is nothing to keep for it."""
    return "obrien-fleming" if not has_end else "haybittle-peto" if any_dependence else "reserve"


@dataclass(frozen=True, slots=True)
class Spending:
    """A spending function.

    Attributes:
        name: Which one; ``"custom"`` for a user's own.
        share: The user's own: from a fraction of the way to the share of α spent by then.
    """

    name: str
    share: Callable[[float], float] | None = None

    @classmethod
    def of(cls, spending_of: Any) -> Spending:
        """What was asked for."""
        if callable(spending_of):
            spending = cls(CUSTOM, spending_of)
            spending._check()
            return spending
        words = ", ".join(map(repr, SPENDING))
        remedy = f"Use {words}, or a function from the fraction of the way to the share of α."
        return cls(checks.choice("spending", spending_of, SPENDING, remedy))

    def spent(self, alpha: float, fractions: FloatArray) -> FloatArray:
        """What of α is spent by each look, never falling."""
        if self.share is None:
            spent = [SPENDING[self.name](alpha, fraction) for fraction in fractions.tolist()]
        else:
            spent = [alpha * self._own(fraction) for fraction in fractions.tolist()]
        return np.maximum.accumulate(np.minimum(spent, alpha)) if spent else np.empty(0)

    def _check(self) -> None:
        """Refuse a function that falls, or does not spend everything in the end: α would be spent early, or wasted."""
        shares = [self._own(fraction) for fraction in np.linspace(0.02, 1.0, 50).tolist()]
        falls = int(np.argmin(np.diff(shares)))
        if np.diff(shares)[falls] < -1e-9:
            problem = f"falls from {shares[falls]:.3g} to {shares[falls + 1]:.3g} on the way"
            raise InputError.wrong_return(
                "spending", problem, "Return the share of α that is spent by then, not falling."
            )
        if shares[-1] < 1 - 1e-9:
            problem = f"gives {shares[-1]:.3g} at 1, the end, where all of α is spent"
            raise InputError.wrong_return("spending", problem, "Return 1 at 1.")

    def _own(self, fraction: float) -> float:
        try:
            share = self.share(fraction)  # type: ignore[misc]
        except TypeError as error:
            problem = f"cannot be called with a fraction of the way ({shorten(str(error))})"
            raise InputError.wrong_return(
                "spending", problem, "Use a function of one number, such as lambda t: t**2."
            ) from error
        problem = f"gives {shorten(share)} at {fraction:.3g}, which is not between 0 and 1"
        remedy = "Return a number from 0 to 1, not falling."
        try:
            return checks.number("spending", share, problem, remedy, low=0, high=1)
        except InputError as error:
            raise InputError.wrong_return("spending", problem, remedy) from error


class LookRecord(NamedTuple):
    """What the looks so far showed.

    Attributes:
        own: The statistic of the data at every look.
        log_p: Log p of every look, as if it had been the only one.
        null: The statistics of draws of groups with equal effects, an array of one number per draw for every look;
            none where nothing is assumed of how looks depend on each other.
    """

    own: list[float]
    log_p: list[float]
    null: list[FloatArray]


def compute_boundaries(record: LookRecord, spent: FloatArray) -> FloatArray:
    """What the statistic must exceed at every look to report a difference; infinite where draws are too few to say."""
    boundary = np.full(len(record.null), np.inf)
    if not record.null:
        return boundary
    draws, stopped = record.null[0].size, 0
    going = np.arange(draws)
    for look, values in enumerate(record.null):
        allowed = int((1 - BY_ITSELF) * spent[look] * (draws + 1)) - stopped
        if allowed <= 0:
            continue
        left = values[going]
        if allowed > left.size:
            boundary[look:] = -np.inf
            return boundary
        boundary[look] = np.partition(left, left.size - allowed)[left.size - allowed]
        going = going[left < boundary[look]]
        stopped = draws - going.size
    return boundary


def is_rejected(record: LookRecord, spent: FloatArray) -> bool:
    """Whether a difference is reported at one of the looks."""
    alone = levels_alone(record, spent)
    with np.errstate(divide="ignore"):
        if np.any((alone > 0) & (np.array(record.log_p) <= np.log(alone))):
            return True
    return bool(np.any(np.array(record.own)[: len(record.null)] > compute_boundaries(record, spent)))


def levels_alone(record: LookRecord, spent: FloatArray) -> FloatArray:
    """Levels that the looks' own p are compared with; they add up to the share of α that p alone may spend.

    Where nothing is drawn that is everything.
    """
    return np.diff(spent, prepend=0.0) * (BY_ITSELF if record.null else 1.0)


def pvalue_so_far(record: LookRecord, spending: Spending, fractions: FloatArray, alpha: float) -> float:
    """The smallest level at which a difference would be reported by now; above α exactly where they are not at α."""

    def rejects(log_alpha: float) -> bool:
        return is_rejected(record, spending.spent(float(np.exp(log_alpha)), fractions))

    low, high = (_LEAST, float(np.log(alpha))) if rejects(float(np.log(alpha))) else (float(np.log(alpha)), 0.0)
    if high == 0 and not rejects(np.log1p(-1e-9)):
        return 1.0
    for _ in range(_ROUNDS):
        if high - low < 1e-4:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if rejects(middle) else (middle, high)
    return float(min(np.exp(high), 1.0))


# ---------------------------------------------------------------------------------------------- intervals at every look
# Intervals that are valid at every look: of every group, of all groups together, and of any cluster.
#
# Which rule, and why. A monitor may be stopped at any look, and looks may come at any time, so that an interval must
# hold at all looks at once. Repeated confidence intervals from the boundary of the test would be infinite at early
# looks, where O'Brien and Fleming's boundary spends next to nothing; and they end with the plan. The normal mixture of
# Robbins (a confidence sequence; Howard et al. 2021, section 3) needs no plan, holds over infinitely many looks, and is
# at every look about 1.5 times as wide as the interval of a single one. With information V (the clock of the null
# paths) and a mixing variance ρ²,
#
#     M = (1 + ρ²V)^(−1/2) exp(z² ρ²V / (2 (1 + ρ²V)))
#
# is a martingale for Brownian motion, and by Ville's inequality P(M ever ≥ 1/a) ≤ a. So z² may be at most
# (1 + 1/r)(2 log(1/a) + log(1 + r)) with r = ρ²V. Where looks depend on each other more than Brownian motion with that
# clock does, both tails are crossed less often (Slepian). Where nothing is assumed of the dependence, or groups share
# data, a is divided over the looks: a/L each of L planned ones, a/(t(t + 1)) at look t without a plan.
#
# Simultaneous statements divide a: groups that are there at the first look share 0.8 of it, those that a later look
# adds share 0.2/(j(j + 1)) for the j-th such look, as nobody knows beforehand how many will come. A cluster is chosen
# by the data, so its interval is simultaneous over all subsets of m of K groups, for every m: a/(K · C(K, m)). Of
# crossed attributes clusters join levels of a margin: a is then that margin's share of it, and K its levels.
#
# What holds: exactly so for normal estimates with known standard errors. From rows, standard errors are estimated and
# early looks have few events: ends are then those of Student's t with the degrees of freedom of the look, at the same
# tail probability. How often that covers is measured in tests/statistical/test_monitor.py.

_FIRST = 0.8  # of α for the groups of the first look; the rest is for those that come later
_MIDDLE = 10.0  # growth since the first look at which intervals are narrowest: half of a planned way, at most this
_STEPS = 60


def mixture_reach(log_level: FloatArray, ratio: FloatArray) -> FloatArray:
    """How many standard errors a confidence sequence reaches.

    Args:
        log_level: Log of one less the level.
        ratio: Information as a multiple of 1/ρ², the precision of the mixing distribution.
    """
    return np.asarray(np.sqrt((1 + 1 / ratio) * (np.log1p(ratio) - 2 * log_level)))


def best_ratio(log_level: FloatArray) -> FloatArray:
    """The ratio at which a confidence sequence reaches least: r = 2 log(1/a) + log(1 + r)."""
    ratio = np.full(np.shape(log_level), 10.0)
    for _ in range(_STEPS):
        ratio = np.log1p(ratio) - 2 * log_level
    return ratio


class ClusterChoice(NamedTuple):
    """What a cluster was chosen from: some of the levels of a margin.

    Attributes:
        share: The share of α that the margin has.
        levels: How many levels it has.
        chosen: How many of them the cluster has.
    """

    share: float
    levels: int
    chosen: int

    @property
    def log_share(self) -> float:
        """Log of the share of α that every such cluster has, where each number of levels has as much as any other."""
        subsets = gammaln(self.levels + 1) - gammaln(self.chosen + 1) - gammaln(self.levels - self.chosen + 1)
        return float(np.log(self.share) - subsets - np.log(self.levels))


@dataclass(frozen=True, slots=True)
class AnytimeRule:
    """How far intervals reach at one look.

    Attributes:
        alpha: One less the level of each statement.
        dependence: What is assumed of how looks depend on each other.
        number: Which look it is, from 1.
        planned: The planned number of looks.
        first_fraction: How far the first look was on a planned way; None without a plan.
    """

    alpha: float
    dependence: Dependence
    number: int
    planned: int | None
    first_fraction: float | None

    def reach(self, log_share: FloatArray, growth: FloatArray, dof: FloatArray | None) -> FloatArray:
        """Standard errors from the estimate to the ends.

        Args:
            log_share: Log of the share of α that each interval has.
            growth: Information as a multiple of that of the first look.
            dof: Degrees of freedom of the standard errors; None where they are known.
        """
        if self.dependence == "any":
            return self.reach_once(log_share, dof)
        log_level = np.log(self.alpha) + log_share
        return _with_dof(mixture_reach(log_level, self._ratio(log_level, growth)), dof)

    def _ratio(self, log_level: FloatArray, growth: FloatArray) -> FloatArray:
        """Information as a multiple of the precision of the mixing distribution, which is chosen at the first look."""
        middle = _MIDDLE if self.first_fraction is None else min(max(0.5 / self.first_fraction, 1.0), _MIDDLE)
        return np.asarray(best_ratio(log_level) * growth / middle)

    def log_pvalue(self, distance: FloatArray, growth: FloatArray, dof: FloatArray | None) -> FloatArray:
        """Log p of "the effect is zero" that is valid at every look: below log α where the interval excludes zero.

        It is one over the mixture martingale behind the interval (Ville's inequality), with the mixing distribution
        that is best at α, so that intervals at all levels are nested.

        Args:
            distance: Standard errors from the estimate to zero.
            growth: Information as a multiple of that of the first look.
            dof: Degrees of freedom of the standard errors; None where they are known.
        """
        log_tail = log_two_sided(distance, dof)
        if self.dependence == "any":
            return np.asarray(np.minimum(log_tail + self._log_looks, 0.0))
        ratio = self._ratio(np.log(np.full(np.shape(distance), self.alpha)), growth)
        normal = ndtri_exp(log_tail - np.log(2))
        return np.asarray(np.minimum((np.log1p(ratio) - normal**2 * ratio / (1 + ratio)) / 2, 0.0))

    @property
    def _log_looks(self) -> float:
        """Log of what α is divided by at this look, where nothing is assumed of how looks depend on each other."""
        return float(np.log(self.planned) if self.planned else np.log(self.number) + np.log1p(self.number))

    def reach_once(self, log_share: FloatArray, dof: FloatArray | None) -> FloatArray:
        """The same where nothing is assumed of how looks depend on each other: α is divided over the looks."""
        return _with_dof(-ndtri_exp(np.log(self.alpha) + log_share - self._log_looks - np.log(2)), dof)

    def reach_of_groups(self, history: GroupHistory, look: LookData) -> FloatArray:
        """How far the interval of every group of a look reaches; simultaneous for all groups and looks."""
        return self.reach(_log_shares(history)[look.groups], history.growth[look.groups], look.dof)

    def reach_of_cluster(self, choice: ClusterChoice, batch: float, path: GroupHistory, dof: float) -> float:
        """How far the interval of a cluster reaches; simultaneous for all that could have been chosen and all looks.

        Args:
            choice: What it was chosen from.
            batch: The last look that added one of its groups, counted among the looks that added any.
            path: What is known of the cluster, as a group of its own.
            dof: Degrees of freedom of its standard error.
        """
        log_share = _log_batch(np.array([batch])) + choice.log_share
        return float(self.reach(log_share, path.growth, np.array([dof]))[0])


def _with_dof(reach: FloatArray, dof: FloatArray | None) -> FloatArray:
    """Student's t with the same tail probability, where standard errors are estimated."""
    if dof is None:
        return np.asarray(reach)
    return np.asarray(np.where(np.isinf(dof), reach, -stdtrit(np.minimum(dof, 1e12), np.exp(log_ndtr(-reach)))))


def _log_batch(batch: FloatArray) -> FloatArray:
    """Log of the share of α that the groups of the j-th look with new groups have together; the first is 0."""
    later = np.maximum(batch, 1.0)
    return np.asarray(np.log(np.where(batch == 0, _FIRST, (1 - _FIRST) / (later * (later + 1)))))


def _log_shares(history: GroupHistory) -> FloatArray:
    """Log of the share of α of every group."""
    _, place, count = np.unique(history.batch, return_inverse=True, return_counts=True)
    return np.asarray(_log_batch(history.batch) - np.log(count[place]))


def pool_look(look: LookData, places: IntArray) -> LookData:
    """Some of the groups of a look as one, weighted by precision.

    With weights 1/se² the score of the pool is the sum of the groups' scores: it is Brownian motion again, about the
    precision-weighted mean of the true effects of that look, also where weights change from look to look.

    Args:
        look: The look.
        places: Which of its groups, by their places.
    """
    weight = look.se[places] ** -2.0
    share = weight / weight.sum()
    variance = 1 / weight.sum()
    if look.covariance is not None:
        variance = float(share @ look.covariance[np.ix_(places, places)] @ share)
    dof = None
    if look.dof is not None:  # Satterthwaite
        dof = np.array([1 / np.sum(share**2 / look.dof[places])])
    n, odds = look.n, look.odds
    return LookData(
        groups=np.zeros(1, dtype=np.int64),
        theta=np.array([share @ look.theta[places]]),
        se=np.array([np.sqrt(variance)]),
        n=None if n is None else np.array([n[places].sum()]),
        dof=dof,
        odds=None if odds is None or n is None else np.array([np.average(odds[places], weights=n[places])]),
    )


def follow(looks: Sequence[LookData], dependence: Dependence) -> GroupHistory:
    """What is known after looks at one group."""
    history = extend_history(None, looks[0], ("",), dependence, check=False)
    for look in looks[1:]:
        history = extend_history(history, look, ("",), dependence, check=False)
    return history
