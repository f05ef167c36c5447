"""A certificate: whether all groups are within a gap, where each of them stands, and that in words."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from faultlines import text
from faultlines.estimates.labels import key_of, name_of
from faultlines.result.tables import attribute_columns, dicts_of, json_text, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faultlines.decide.contrasts import Adverse
    from faultlines.estimates.estimates import Excluded
    from faultlines.estimates.labels import Label

Status = Literal["within", "differs", "cannot tell"]
Verdict = Literal["certified", "differs", "cannot tell"]

OVERALL, ALL_PAIRS = "overall", "all pairs"
_ROWS = 40  # groups in a table of text output
_NAMED = 56  # characters of a list of groups
_ORDER: dict[Status, int] = {"differs": 0, "cannot tell": 1, "within": 2}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one group stands; of several effects measured together, numbers are tuples.

    Attributes:
        label: The group.
        estimate: Its effect.
        distance: Its effect less that of what it is compared with; with ``ratio=True``, over it.
        lower: Lower end of the interval of that, at the level 1 − α for all groups together; with `adverse`, as a bound
            of its own.
        upper: Upper end.
        bound: How far from it the group may be at most, as a claim about this group alone (one-sided, at 1 − α): the
            largest of all groups is `Certificate.smallest`.
        status: ``"within"`` the gap, ``"differs"`` by more than the gap, or ``"cannot tell"``.
        other: Of all pairs, the group it is compared with here: one it differs from, else the one it may be farthest
            from; None otherwise.

    Example:
        >>> import faultlines as fl
        >>> rates = fl.Estimates([0.10, 0.11, 0.19], [0.005, 0.005, 0.005], ["DE", "FR", "IN"], [3600, 3900, 6100])
        >>> worst = fl.certify(rates, gap=0.03).groups[2]
        >>> worst.label, worst.status, round(worst.distance, 3)
        ('IN', 'differs', 0.047)
    """

    label: Label
    estimate: Any
    distance: Any
    lower: Any
    upper: Any
    bound: Any
    status: Status
    other: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """Whether all groups are within a gap, and where each of them stands: what `fl.certify` returns.

    Attributes:
        verdict: ``"certified"``: no group is farther away than the gap. ``"differs"``: some group is. ``"cannot
            tell"``: neither can be said with confidence 1 − α, or groups were left out.
        gap: The gap; a tuple for several effects.
        smallest: The gap that can be certified for the groups that were measured: with confidence 1 − α none is farther
            away. With ``ratio=True`` the ratio that can be: certified is every `gap` up to it.
        farthest: The group that decides about `smallest`; a tuple for several effects.
        against: ``"overall"``, ``"all pairs"`` or the name of the reference group.
        compared_with: The effect of the overall or the reference; None for all pairs.
        ratio: Whether ratios are compared, and not differences.
        adverse: The harmful direction, if only one counts.
        alpha: One less the confidence.
        critical: How many standard errors the simultaneous intervals reach: the critical value of the largest of all
            comparisons.
        groups: Where every group stands, in the order of the estimates; without the reference.
        excluded: Groups left out, each with its reason.
        notes: What a reader must know beside it.
        measure: What was measured.
        attributes: What the labels are values of.
        parts: Names of several effects; none for one.
        percent: Which of the effects people read in per cent.
        seed: Of the draws behind `critical`.

    Example:
        >>> import faultlines as fl
        >>> rates = fl.Estimates([0.10, 0.11, 0.19], [0.005, 0.005, 0.005], ["DE", "FR", "IN"], [3600, 3900, 6100])
        >>> signed = fl.certify(rates, gap=0.03)
        >>> signed.verdict, signed.certified, signed.differs, signed.undecided, signed.doubt
        ('differs', (), ('DE', 'IN'), ('FR',), '')
        >>> signed.sentence
        'Differs: 2 of 3 groups are more than 0.03 from the overall, with 95% confidence: DE, IN.'
        >>> signed.to_dict()["verdict"], len(signed.to_json()) > 100, signed.to_dicts()[0]["status"]
        ('differs', True, 'differs')
        >>> header, rows, right_aligned = signed.table()
        >>> header
        ['group', 'effect', 'difference', '95% interval', '']
    """

    verdict: Verdict
    gap: Any
    smallest: Any
    farthest: Any
    against: str
    compared_with: Any
    ratio: bool
    adverse: Adverse | None
    alpha: float
    critical: float
    groups: tuple[Standing, ...]
    excluded: tuple[Excluded, ...]
    notes: tuple[str, ...]
    measure: str
    attributes: tuple[str, ...]
    parts: tuple[str, ...]
    percent: tuple[bool, ...]
    seed: int

    @property
    def certified(self) -> tuple[Label, ...]:
        """Groups that are within the gap."""
        return self._with("within")

    @property
    def differs(self) -> tuple[Label, ...]:
        """Groups that are farther away than the gap."""
        return self._with("differs")

    @property
    def undecided(self) -> tuple[Label, ...]:
        """Groups of which neither can be said."""
        return self._with("cannot tell")

    def _with(self, status: Status) -> tuple[Label, ...]:
        return tuple(one.label for one in self.groups if one.status == status)

    # ------------------------------------------------------------------------------------------------------ as data

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary per group; those left out have no status, and their reason beside them.

        Returns:
            The fields of a `Standing`, for every group.
        """
        out, blank = self.excluded, [None] * len(self.excluded)
        made: dict[str, list[Any]] = {}
        for name, field in self._columns.items():
            made |= spread(self.parts, name, [getattr(one, field) for one in self.groups] + blank)
        made["status"] = [one.status for one in self.groups] + blank
        if self.against == ALL_PAIRS:
            made |= spread(self.parts, "other", [one.other for one in self.groups] + blank)
        made["excluded"] = [None] * len(self.groups) + [left.reason for left in out]
        keys = [key_of(label) for label in (*(one.label for one in self.groups), *(left.label for left in out))]
        return dicts_of(attribute_columns(self.attributes, keys, set(made)) | made)

    @property
    def _columns(self) -> dict[str, str]:
        distance = "ratio" if self.ratio else "difference"
        return {"estimate": "estimate", distance: "distance", "lower": "lower", "upper": "upper", "bound": "bound"}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; an end that is not bounded is None.

        Returns:
            Plain data, with the groups under ``"groups"``.
        """
        rows = [{name: _finite(value) for name, value in row.items()} for row in self.to_dicts()]
        return {
            "faultlines": version("faultlines"),
            "sentence": self.sentence,
            "verdict": self.verdict,
            "gap": _finite(self.gap),
            "smallest": _finite(self.smallest),
            "farthest": _named(self.farthest, bool(self.parts)),
            "against": self.against,
            "compared_with": _finite(self.compared_with),
            "ratio": self.ratio,
            "adverse": self.adverse,
            "alpha": self.alpha,
            "critical": self.critical,
            "seed": self.seed,
            "measure": self.measure,
            "parts": list(self.parts),
            "certified": [name_of(label) for label in self.certified],
            "differs": [name_of(label) for label in self.differs],
            "undecided": [name_of(label) for label in self.undecided],
            "left_out": [{"group": name_of(left.label), "reason": left.reason} for left in self.excluded],
            "notes": list(self.notes),
            "groups": rows,
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """The same as JSON text.

        Args:
            indent: How many spaces a level is indented by; None for one line.

        Returns:
            The text of the JSON.
        """
        return json_text(self.to_dict(), indent)

    # ----------------------------------------------------------------------------------------------------- in words

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        return text.printable(self._sentence())

    def _sentence(self) -> str:
        groups, sure = self._groups_named(), f"with {text.level(self.alpha)} confidence"
        what = "" if self.measure == "effect" else f" in {self.measure}"
        if self.verdict == "differs":
            is_are = "is" if len(self.differs) == 1 else "are"
            names = text.members(self.differs, name_of, _NAMED)
            some = f"{text.count(len(self.differs))} of {groups} {is_are}"
            return f"Differs: {some} {self._beyond(self.gap)}{what}, {sure}: {names}."
        if self.verdict == "certified":
            return f"Certified: none of {groups} is {self._beyond(self.gap)}{what}, {sure}."
        so_far = f"Of those measured, none is {self._beyond(self.smallest)}{what}, {sure}."
        if not self.undecided:
            left = len(self.excluded)
            return f"Cannot tell: {text.count(left)} {'group was' if left == 1 else 'groups were'} left out. {so_far}"
        return f"Cannot tell whether any of {groups} is {self._beyond(self.gap)}{what}. {so_far}"

    @property
    def doubt(self) -> str:
        """Why it cannot be told, in few words; "" where it can."""
        if self.verdict != "cannot tell":
            return ""
        said = []
        if self.undecided:
            may = f"{text.count(len(self.undecided))} of {text.count(len(self.groups))} groups may be"
            said.append(f"{may} {self._beyond(self.gap)}: {text.members(self.undecided, name_of, _NAMED)}")
        if left := len(self.excluded):
            names = text.members([one.label for one in self.excluded], name_of, _NAMED)
            said.append(f"{text.count(left)} {'group was' if left == 1 else 'groups were'} left out: {names}")
        return "; ".join(said)

    def _groups_named(self) -> str:
        by = " × ".join(self.attributes)
        return f"{text.count(len(self.groups))} groups" + ("" if by == "group" else f" by {by}")

    def _beyond(self, gap: Any) -> str:
        """Farther away than a gap, in words."""
        from_what = {OVERALL: "the overall", ALL_PAIRS: "another"}.get(self.against, self.against)
        gaps = gap if self.parts else (gap,)
        if self.ratio:
            low, high = (self._several([f"{one:.3g}" for one in some]) for some in (gaps, map(_over, gaps)))
            if self.adverse == "high":
                return f"above {high} times {from_what}"
            return f"below {low} {'' if self.adverse else f'or above {high} '}times {from_what}"
        size = self._several([self._size(one, i) for i, one in enumerate(gaps)])
        where = {None: "from", "low": "below", "high": "above"}[self.adverse]
        return f"more than {size} {where} {from_what}"

    def _several(self, words: Sequence[str]) -> str:
        """One for all effects, or one for each."""
        if len(set(words)) == 1:
            return words[0]
        return " and ".join(f"{word} ({part})" for word, part in zip(words, self.parts, strict=True))

    def _size(self, gap: float, part: int) -> str:
        """A gap with its unit."""
        if not self.percent[part]:
            return f"{gap:.3g}"
        return f"{100 * gap:.3g} point" + ("" if f"{100 * gap:.3g}" == "1" else "s")

    def __str__(self) -> str:
        table = text.table(*self.table())
        return text.printable_lines("\n\n".join([self._sentence(), table, "\n".join(self.notes)]))

    def __repr__(self) -> str:
        counts = f"{len(self.certified)} within, {len(self.differs)} differ, {len(self.undecided)} undecided"
        return f"<Certificate: {self.verdict}, gap={self.gap}, smallest={self.smallest}, {counts}, α = {self.alpha:g}>"

    def table(self) -> tuple[list[str], list[list[str]], set[int]]:
        """Header, rows and right-aligned columns: groups from the one that differs most to the surest to be within.

        Returns:
            The header, the rows as text, and the places of columns of numbers.
        """
        ranked = sorted(self.groups, key=lambda one: (_ORDER[one.status], -self._reach(one)))
        shown = ranked[:_ROWS]
        header, columns = ["group"], [[text.members([one.label], name_of, 30) for one in shown]]
        for i in range(len(self.percent)):
            for name, cells in self._cells(shown, i):
                header.append(name)
                columns.append(cells)
        header.append("")
        columns.append([one.status for one in shown])
        rows = [list(row) for row in zip(*columns, strict=True)]
        if len(ranked) > len(shown):
            rows.append(["…", *[""] * (len(header) - 2), f"{text.count(len(ranked) - len(shown))} more groups"])
        return header, rows, set(range(1, len(header) - 1)) - {i for i, name in enumerate(header) if name == "against"}

    def _reach(self, one: Standing) -> float:
        """How far a group may be away, for the order of the table: of several effects, the farthest beside its gap."""
        bounds, gaps = (value if self.parts else (value,) for value in (one.bound, self.gap))
        if self.ratio:
            return float(max(_over(bound) for bound in bounds))
        return float(max(bound / gap if gap else bound for bound, gap in zip(bounds, gaps, strict=True)))

    def _cells(self, shown: Sequence[Standing], i: int) -> list[tuple[str, list[str]]]:
        """Columns of one effect: estimate, distance, its interval, and the other group of a pair."""

        def numbers(field: str) -> list[float]:
            return [getattr(one, field)[i] if self.parts else getattr(one, field) for one in shown]

        values, away, lower, upper = (numbers(field) for field in ("estimate", "distance", "lower", "upper"))
        widths = [high - low for low, high in zip(lower, upper, strict=True) if 0 < high - low < np.inf] or [1.0]
        points = self.percent[i] and not self.ratio
        number = _number(widths, [*away, *lower, *upper], 100.0 if points else 1.0, signed=not self.ratio)
        estimate = text.decimals([min(widths) / 4], values, any(value < 0 for value in values), self.percent[i])
        made = [
            (self.parts[i] if self.parts else "effect", [estimate(value) for value in values]),
            ("ratio" if self.ratio else "difference", [number(value) for value in away]),
            (
                f"{text.level(self.alpha)} {'bounds' if self.adverse else 'interval'}" + (", points" if points else ""),
                [f"{number(low)} … {number(high)}" for low, high in zip(lower, upper, strict=True)],
            ),
        ]
        if self.against == ALL_PAIRS:
            others = [one.other[i] if self.parts else one.other for one in shown]
            made.append(("against", [text.members([other], name_of, 30) for other in others]))
        return made


def _number(widths: Sequence[float], values: Sequence[float], factor: float, *, signed: bool) -> Callable[[float], str]:
    """A format for distances; infinite ones are shown as such."""
    known = [factor * value for value in values if np.isfinite(value)] or [1.0]
    number = text.decimals([factor * min(widths) / 4], known, signed)
    return lambda value: number(factor * value) if np.isfinite(value) else ("∞" if value > 0 else "−∞")


def _over(ratio: float) -> float:
    return 1 / ratio if ratio > 0 else np.inf


def _finite(value: Any) -> Any:
    """A number, or a tuple of them, without infinities, which JSON has none of."""
    if isinstance(value, tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _named(label: Any, several: bool) -> Any:
    return [name_of(one) for one in label] if several else name_of(label)
