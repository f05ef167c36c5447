"""Estimates from all data so far, look after look: aligned by label, and checked to grow out of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from faultlines import checks
from faultlines.errors import InputError
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import name_of
from faultlines.guarantees import saved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.estimates.estimates import BoolArray, IntArray
    from faultlines.estimates.labels import Label
    from faultlines.estimates.scales import FloatArray

Missing = Literal["error", "keep", "ignore"]
New = Literal["error", "add", "ignore"]
Dependence = Literal["independent", "returning", "any"]
DEPENDENCE = ("independent", "returning", "any")
_ROUNDING = 1e-6
_ESTIMATED = 0.1  # standard errors that are estimates may rise so far without any loss of data


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What one look saw of some groups.

    Attributes:
        groups: Their numbers, in the order in which groups were first seen.
        theta: Their estimates, on the scale that is compared on.
        se: Their standard errors.
        n: Their sizes, where known.
        dof: Degrees of freedom behind the standard errors, where those are estimated.
    """

    groups: IntArray
    theta: FloatArray
    se: FloatArray
    n: FloatArray | None
    dof: FloatArray | None

    def estimates(self, labels: Sequence[Label]) -> Estimates:
        """The same as estimates."""
        return Estimates(self.theta, self.se, [labels[i] for i in self.groups.tolist()], self.n, self.dof)

    def same(self, other: Observed) -> bool:
        """Whether it is another look at the same data: engines that add up rows on several cores differ in digits."""
        if not np.array_equal(self.groups, other.groups):
            return False
        far = np.abs(self.theta - other.theta) > _ROUNDING * self.se
        sized = (self.n is None) == (other.n is None) and (self.n is None or np.array_equal(self.n, other.n))  # type: ignore[arg-type]
        return sized and not far.any() and np.allclose(self.se, other.se, rtol=_ROUNDING, atol=0)

    def plain(self) -> dict[str, Any]:
        """As JSON has it; infinite degrees of freedom are null."""
        freedom = None if self.dof is None else [d if np.isfinite(d) else None for d in self.dof.tolist()]
        sizes = None if self.n is None else self.n.tolist()
        groups, theta, se = (array.tolist() for array in (self.groups, self.theta, self.se))
        return {"groups": groups, "theta": theta, "se": se, "n": sizes, "dof": freedom}

    @classmethod
    def read(cls, found: Any, labels: int) -> Observed:
        """From what JSON had, refused if it is not what a look can see of so many groups."""
        groups = [saved.typed(i, int) for i in saved.typed(found["groups"], list)]
        if len(groups) < 2 or len(set(groups)) < len(groups) or min(groups) < 0 or max(groups) >= labels:
            raise ValueError("groups of a look are not different known ones")
        columns: dict[str, FloatArray | None] = {}
        for name, low in (("theta", -np.inf), ("se", 5e-324), ("n", 5e-324), ("dof", 1.0)):
            given = found[name]
            if given is None and name in {"n", "dof"}:
                columns[name] = None
                continue
            numbers = [
                np.inf if d is None and name == "dof" else saved.number(d, low) for d in saved.typed(given, list)
            ]
            if len(numbers) != len(groups):
                raise ValueError(f"{name} of a look has another length")
            columns[name] = np.array(numbers, dtype=float)
        return cls(np.array(groups, dtype=np.int64), **columns)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What is known of all groups seen so far.

    Attributes:
        theta: Their last estimates.
        se: Their last standard errors.
        n: Their last sizes; none where sizes are not given.
        dof: Degrees of freedom at their last look; infinite where standard errors are known.
        information: How much is known of each: its size, or 1/se²; it never falls.
        clock: The same as the paths see it.
        first_n: Their first sizes.
        first_se: Their first standard errors.
    """

    theta: FloatArray
    se: FloatArray
    n: FloatArray | None
    dof: FloatArray
    information: FloatArray
    clock: FloatArray
    first_n: FloatArray
    first_se: FloatArray


def one_effect_of(estimates: Any) -> Estimates:
    """Estimates with one effect per group, or an error."""
    if not isinstance(estimates, Estimates):
        raise InputError(f"estimates={type(estimates).__name__}", "is not an Estimates", "Make one with fl.Estimates.")
    if estimates.dims > 1:
        problem = f"has {estimates.dims} effects per group ({estimates.measure})"
        raise InputError("estimates", problem, "Monitor each of them on its own, at α divided by their number.")
    if estimates.covariance is not None:
        problem = "has a covariance: looks at groups that share data are not followed"
        remedy = "Look once, with fl.cluster; or monitor one treatment at a time, with every user in one group."
        raise InputError("estimates", problem, remedy)
    return estimates


class Subject(NamedTuple):
    """What is looked at, which must be the same at every look.

    Attributes:
        measure: What is measured.
        attributes: What the groups are values of.
        scale: The scale of the estimates.
        metric: How rows were measured; "" where estimates were given.
    """

    measure: str
    attributes: tuple[str, ...]
    scale: str
    metric: str

    @classmethod
    def of(cls, estimates: Estimates) -> Subject:
        """That of some estimates."""
        return cls(estimates.measure, estimates.attributes, estimates.scale.name, estimates.metric)

    @classmethod
    def read(cls, found: Any) -> Subject | None:
        """From what JSON had."""
        if found is None:
            return None
        words = [saved.typed(found[name], str) for name in ("measure", "scale", "metric")]
        by = tuple(saved.typed(one, str) for one in saved.typed(found["attributes"], list))
        return cls(words[0], by, *words[1:])

    def check(self, before: Subject) -> None:
        """Refuse another one than at the looks before."""
        for now, then, what, remedy in (
            (self.measure, before.measure, "estimates of", "Give the same metric at every look."),
            (self.attributes, before.attributes, "groups by", "Give the same groups at every look."),
            (self.scale, before.scale, "estimates on the scale", "Give the same metric at every look."),
            (self.metric, before.metric, "estimates by", "Give the same metric, with the same arms and unit."),
        ):
            if now != then:
                shown, earlier = (repr(one if isinstance(one, str) else " × ".join(one)) for one in (now, then))
                raise InputError(f"{what} {shown}", f"the looks before had {earlier}", remedy)


def aligned(
    estimates: Estimates, labels: Sequence[Label], known: Known | None, missing: Missing, new: New
) -> tuple[Observed, tuple[Label, ...], dict[str, int]]:
    """A look in the order of the known groups, all labels after it, and what was left out or kept of it."""
    checks.choice("missing", missing, ("error", "keep", "ignore"), "Use 'error', 'keep' or 'ignore'.")
    checks.choice("new", new, ("error", "add", "ignore"), "Use 'error', 'add' or 'ignore'.")
    places = {saved.key(label): i for i, label in enumerate(labels)}
    keys = [saved.key(label) for label in estimates.labels]
    if len(set(keys)) < len(keys):
        raise InputError("estimates", "has groups whose labels read the same", "Name every group differently.")
    fresh = [label for label, key in zip(estimates.labels, keys, strict=True) if key not in places]
    gone = sorted(set(range(len(labels))) - {places[key] for key in keys if key in places})
    _refuse(fresh if labels and new == "error" else [], "new", "new='add' or new='ignore'")
    _refuse([labels[i] for i in gone] if missing == "error" else [], "missing", "missing='keep' or missing='ignore'")
    ignored: dict[str, int] = {}
    if fresh and labels and new == "ignore":
        ignored["new groups left out"] = len(fresh)
        fresh = []
    after = (*labels, *fresh)
    places |= {saved.key(label): i for i, label in enumerate(fresh, start=len(labels))}
    used = np.array([key in places for key in keys])
    groups = np.array([places[key] for key in keys if key in places], dtype=np.int64)
    if gone:
        ignored["missing groups kept as they were" if missing == "keep" else "missing groups left out"] = len(gone)
    seen = _rows(estimates, used, groups)
    if gone and missing == "keep" and known is not None:
        seen = _kept(seen, known, np.array(gone, dtype=np.int64))
    if seen.groups.size < 2:
        raise InputError("estimates", "has one group that can be used", "There is nothing to compare.")
    order = np.argsort(seen.groups)
    return _some(seen, order), after, ignored


def _refuse(names: Sequence[Label], what: str, remedy: str) -> None:
    if names:
        shown = ", ".join(repr(name_of(name)) for name in names[:3]) + (", …" if len(names) > 3 else "")
        problem = "the groups are not those of the looks before"
        raise InputError(f"estimates: {len(names)} {what} groups ({shown})", problem, f"Correct them, or say {remedy}.")


def _rows(estimates: Estimates, used: BoolArray, groups: IntArray) -> Observed:
    columns = (estimates.values[:, 0], estimates.errors[:, 0], estimates.n, estimates.dof)
    theta, se, n, dof = (None if column is None else np.array(column[used]) for column in columns)
    return Observed(groups, theta, se, n, dof)  # type: ignore[arg-type]


def _some(seen: Observed, order: IntArray) -> Observed:
    n, dof = (None if column is None else column[order] for column in (seen.n, seen.dof))
    return Observed(seen.groups[order], seen.theta[order], seen.se[order], n, dof)


def _kept(seen: Observed, known: Known, gone: IntArray) -> Observed:
    """A look together with groups that have stopped, as they were last seen."""
    n = None if seen.n is None or known.n is None else np.append(seen.n, known.n[gone])
    freedom = np.append(np.full(seen.groups.size, np.inf) if seen.dof is None else seen.dof, known.dof[gone])
    return Observed(
        np.append(seen.groups, gone),
        np.append(seen.theta, known.theta[gone]),
        np.append(seen.se, known.se[gone]),
        n,
        freedom if np.isfinite(freedom).any() else None,
    )


# -------------------------------------------------------------------------------------------------- growing information


def grown(
    known: Known | None, seen: Observed, labels: Sequence[Label], dependence: Dependence, *, check: bool = True
) -> Known:
    """What is known after a look, refused where it does not grow out of what was known before.

    Args:
        known: What was known before.
        seen: The look.
        labels: All groups, those that the look is first to see included.
        dependence: What is assumed of new data.
        check: Whether to refuse anything; what was saved has been checked before.
    """
    if check:
        _check_sizes(known, seen, dependence)
    before, after = (_with_room(known, len(labels), sized=seen.n is not None) for _ in range(2))
    at = seen.groups
    for name, column in (("theta", seen.theta), ("se", seen.se), ("n", seen.n)):
        array = getattr(after, name)
        if array is not None and column is not None:
            array[at] = column
    after.dof[at] = np.inf if seen.dof is None else seen.dof
    first = np.isnan(after.first_se[at])
    after.first_se[at[first]] = seen.se[first]
    information = seen.se**-2.0 if seen.n is None else seen.n
    if seen.n is not None:
        after.first_n[at[first]] = seen.n[first]
    if check:
        _check_growth(before, seen, labels, information, dependence)
    after.information[at] = np.maximum(after.information[at], information)
    after.clock[at] = np.maximum(after.clock[at], _clock(after, seen, information, dependence))
    return after


def _clock(after: Known, seen: Observed, information: FloatArray, dependence: Dependence) -> FloatArray:
    """How far the paths of the groups have come.

    Where users return, sizes say too little: the same people bring new data. If what a day adds to the total n·θ is
    unrelated to the past, (n·se)² is the clock; of relative effects it is 1/se². Which of the clocks has run fastest
    since the first look makes looks depend least on each other, and the boundary strictest.
    """
    if dependence != "returning" or seen.n is None:
        return information
    n, se = seen.n / after.first_n[seen.groups], seen.se / after.first_se[seen.groups]
    return np.asarray(after.first_n[seen.groups] * np.max([n, (n * se) ** 2, se**-2.0], axis=0))


def _with_room(known: Known | None, total: int, *, sized: bool) -> Known:
    """A copy with room for groups that are seen for the first time."""

    def room(name: str, filled: float) -> FloatArray:
        array = np.empty(0) if known is None else getattr(known, name)
        return np.append(array, np.full(total - array.size, filled))

    return Known(
        room("theta", np.nan),
        room("se", np.nan),
        room("n", 0.0) if sized else None,
        room("dof", np.inf),
        room("information", 0.0),
        room("clock", 0.0),
        room("first_n", np.nan),
        room("first_se", np.nan),
    )


def _check_sizes(known: Known | None, seen: Observed, dependence: Dependence) -> None:
    """Sizes are given at every look or at none."""
    if known is not None and (known.n is None) != (seen.n is None):
        at_first, now = ("without", "with") if known.n is None else ("with", "without")
        raise InputError(
            f"estimates {now} n", f"the looks before were {at_first}", "Give sizes at every look, or at none."
        )
    if dependence == "returning" and seen.n is None:
        remedy = "Give n, the people in every group so far."
        raise InputError("dependence='returning'", "needs the sizes of the groups", remedy)


def _check_growth(
    before: Known, seen: Observed, labels: Sequence[Label], information: FloatArray, dependence: Dependence
) -> None:
    """Data so far hold those of the looks before, and more."""
    earlier = before.information[seen.groups]
    slack = 0.0 if seen.n is not None else _ROUNDING if seen.dof is None else _ESTIMATED
    fallen = np.flatnonzero(information < earlier * (1 - slack))
    if fallen.size and (seen.n is not None or dependence == "independent"):
        at = int(fallen[0])
        what = "n" if seen.n is not None else "information 1/se²"
        raise InputError(
            f"estimates: {what} of group {name_of(labels[seen.groups[at]])!r}",
            f"has fallen from {earlier[at]:.6g} to {information[at]:.6g}",
            "Give estimates from all data so far, not from the last day alone."
            + ("" if seen.n is not None else " If it is all data: give n too, or use dependence='any'."),
        )
    if dependence == "any" or np.any(information > earlier * (1 + _ROUNDING)):
        return
    if dependence == "returning" and not np.allclose(before.se[seen.groups], seen.se, rtol=_ROUNDING, atol=0):
        return
    raise InputError(
        "estimates",
        "no group has more data than at the look before, but estimates differ",
        "Give data that have grown. If the same users bring more data: dependence='returning' or 'any'.",
    )
