"""Looking every day: estimates from all data so far, a boundary from whole paths of groups that are all alike."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from faultlines import checks
from faultlines.comparison.choose import one_effect
from faultlines.errors import InputError, shorten
from faultlines.guarantees import saved
from faultlines.guarantees.joint import Tests, effects_of
from faultlines.guarantees.looks import DEPENDENCE, Known, Observed, Subject, aligned, grown, one_effect_of
from faultlines.guarantees.monitored import Look, Monitored
from faultlines.guarantees.paths import History, Paths
from faultlines.guarantees.search import Partitions
from faultlines.guarantees.spending import (
    CUSTOM,
    Record,
    Spending,
    boundaries,
    levels_alone,
    pvalue_so_far,
    usual_spending,
)
from faultlines.progress import progress
from faultlines.tree.hierarchy import tree_of
from faultlines.tree.path import clusters_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from faultlines.estimates.estimates import Estimates
    from faultlines.estimates.labels import Label
    from faultlines.guarantees.looks import Dependence, Missing, New

_FORMAT = 2
_USUAL_DRAWS = 10_000
_FEWEST_DRAWS = 1_000
_NUMBERS = 20_000_000  # of all paths together at one look
_MOST = 2**28
_ENOUGH = 5  # draws that α must leave to stop
_SMALLEST = 5e-324
_PACE = 5  # without a plan look t is t/(t + 5) of the way: about even-handed to ends after 5 and after 200 looks


class Monitor:
    """Look as often as you like: the chance of ever claiming clusters where there are none stays at α.

    Every look is given estimates from all data so far. Their test is that of `fl.Calibrated`: halves, lone groups and
    heterogeneity. What it must show comes from draws of groups that are all alike, followed from look to look; α is
    spent little by little on the way. Looks may come at any time that does not depend on the effects seen so far.

    Args:
        alpha: The accepted chance of ever claiming clusters where there are none.
        looks: The planned number of looks.
        information: Or the planned amount of information at the end: people in all groups together where estimates
            have sizes `n`, else the sum of 1/se². Without either it never ends: look t is t/(t + 5) of the way.
        spending: How α is spent on the way: ``"obrien-fleming"``, ``"pocock"``, ``"reserve"`` (O'Brien and Fleming's
            with three tenths kept for the end), ``"haybittle-peto"`` (with eight tenths), or a function from the
            fraction of the way to the share of α that is spent by then. Default: ``"reserve"``; for
            ``dependence="any"`` ``"haybittle-peto"``; without a planned end ``"obrien-fleming"``.
        dependence: ``"independent"``: what new data add does not depend on the data before. ``"returning"``: users come
            back, and what they add is not negatively related to what they did before. ``"any"``: nothing is assumed,
            at a price (docs/monitoring.md). Default: ``"returning"`` where estimates have sizes, which costs nothing
            where all users are new; ``"independent"`` where they have none.
        draws: How many paths are drawn. Default: 10,000, fewer for more than 2,000 groups.
        seed: Of the draws. The same seed gives the same result on any number of cores.

    Raises:
        InputError: If something given cannot be used.

    Example:
        >>> import faultlines as fl
        >>> monitor = fl.Monitor(looks=2, draws=1000)
        >>> monitor.update(fl.Estimates([0.0, 1.0], [1.0, 1.0], ["DE", "IN"], n=[100, 100])).rejected
        False
        >>> monitor.update(fl.Estimates([0.0, 1.0], [0.2, 0.2], ["DE", "IN"], n=[2500, 2500])).rejected
        True
        >>> monitor.decision.clusters, monitor.spending
        ((('DE',), ('IN',)), 'reserve')
    """

    __slots__ = (
        "_clusters", "_history", "_ignored", "_known", "_labels", "_made", "_observed", "_spending", "_subject",
        "alpha", "dependence", "draws", "information", "looks", "seed",
    )  # fmt: skip

    def __init__(
        self,
        *,
        alpha: float = 0.05,
        looks: int | None = None,
        information: float | None = None,
        spending: str | Callable[[float], float] | None = None,
        dependence: Dependence | None = None,
        draws: int | None = None,
        seed: int = 0,
    ) -> None:
        self.alpha = checks.alpha(alpha)
        if looks is not None and information is not None:
            raise InputError("looks, information", "both say where it ends", "Leave one of them out.")
        problem, remedy = "must be a whole number from 1 to 100,000", "Use for example looks=20."
        self.looks: int | None = None
        if looks is not None:
            self.looks = int(checks.number("looks", looks, problem, remedy, low=1, high=100_000, whole=True))
        self.information: float | None = None
        if information is not None:
            remedy = "Give the people, or the sum of 1/se², that the end will have."
            self.information = checks.number("information", information, "must be above 0", remedy, low=0, ends="(]")
        if dependence is not None:
            checks.choice("dependence", dependence, DEPENDENCE)
        self.dependence: Dependence | None = dependence
        has_end = looks is not None or information is not None
        usual = usual_spending(has_end=has_end, any_dependence=dependence == "any")
        self._spending = Spending.of(usual if spending is None else spending)
        self.draws = None if draws is None else self._checked_draws(draws)
        self.seed = checks.seed(seed)
        self._labels: tuple[Label, ...] = ()
        self._subject: Subject | None = None
        self._known: Known | None = None
        self._observed: list[Observed] = []
        self._made: list[Look] = []
        self._clusters: tuple[tuple[Label, ...], ...] = ()
        self._ignored: dict[str, int] = {}
        self._history: History | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What it is made of; draws come back from the seed."""
        return {name: getattr(self, name) for name in self.__slots__} | {"_history": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"<Monitor: {self.decision.verdict}>"

    def _checked_draws(self, draws: Any) -> int:
        problem = "must be a whole number from 1 to 100 million"
        made = int(checks.number("draws", draws, problem, "Use draws=10_000.", low=1, high=100_000_000, whole=True))
        if self.dependence != "any" and self.alpha * (made + 1) < _ENOUGH:
            least = int(np.ceil(2 * _ENOUGH / self.alpha))
            problem = f"are too few for α = {self.alpha:.3g}"
            raise InputError(f"draws={made}", problem, f"Use draws={least} or more, or dependence='any'.")
        return made

    @property
    def spending(self) -> str:
        """How α is spent: the name of the function, ``"custom"`` for one's own."""
        return self._spending.name

    @property
    def decision(self) -> Monitored:
        """Where it stands."""
        pvalue = self._made[-1].adjusted if self._made else 1.0
        rejected = bool(self._made) and pvalue <= self.alpha
        finished = rejected or (bool(self._made) and self._made[-1].fraction >= 1)
        everyone = tuple(self._labels[i] for i in self._observed[-1].groups.tolist()) if self._observed else ()
        return Monitored(
            rejected=rejected,
            finished=finished,
            pvalue=pvalue,
            alpha=self.alpha,
            clusters=self._clusters if rejected else (everyone,) if everyone else (),
            looks=tuple(self._made),
            planned=self.looks,
            dependence=self.dependence or "independent",
            ignored=dict(self._ignored),
        )

    def update(
        self, estimates: Estimates, *, missing: Missing = "error", new: New = "error", final: bool = False
    ) -> Monitored:
        """Look at the estimates from all data so far. Once there is a decision, further looks change nothing.

        Args:
            estimates: One effect per group, from all data so far; groups in any order. With sizes `n` a look knows how
                much of its data the looks before had; without them it takes 1/se².
            missing: When groups of the looks before are missing: ``"error"``; ``"keep"`` for groups that have stopped,
                whose last estimates stay in use; ``"ignore"`` to look at the others only.
            new: When there are groups the looks before did not have: ``"error"``; ``"add"`` to take them in;
                ``"ignore"`` to leave them out.
            final: Whether this is the last look, sooner than planned: all that is left of α is spent on it. To be
                decided without regard to the effects seen so far.

        Returns:
            Where the monitor stands.

        Raises:
            InputError: If the estimates cannot be used, or do not grow out of those of the look before.

        Example:
            >>> import faultlines as fl
            >>> daily = fl.Monitor(looks=5)
            >>> now = daily.update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, ["DE", "FR", "IN"], [90, 80, 85]))
            >>> now.rejected, daily.decision.clusters
            (True, (('DE', 'FR'), ('IN',)))
        """
        checks.flag("final", final)
        given = one_effect_of(estimates)
        if self.decision.finished:
            return self.decision
        subject = Subject.of(given)
        if self._subject is not None:
            subject.check(self._subject)
        seen, labels, ignored = aligned(given, self._labels, self._known, missing, new)
        if self._observed and seen.same(self._observed[-1]):
            problem = f"are those of look {len(self._observed)}, which has been taken"
            raise InputError("estimates", problem, "Come back with more data: the same look twice is one look.")
        dependence = self.dependence or ("independent" if given.n is None else "returning")
        known = grown(self._known, seen, labels, dependence)
        self._limit_draws(len(labels))
        tests = Tests(effects_of(one_effect(seen.estimates(labels))), None, self.seed)
        history = self._so_far()
        history.take(known, seen, tests)
        look = self._judged(known, history.record, tests, final=final)
        clusters = self._claimed(seen, labels, tests, look) if look.adjusted <= self.alpha else ()
        self._subject, self._labels, self._known, self._ignored = subject, labels, known, ignored
        self.dependence, self._history, self._clusters = dependence, history, clusters
        self._observed, self._made = [*self._observed, seen], [*self._made, look]
        return self.decision

    # ------------------------------------------------------------------------------------------------------ one look

    def _limit_draws(self, groups: int) -> None:
        """Settle how many paths there are, and refuse more than memory should hold."""
        if self.draws is None:
            self.draws = self._checked_draws(int(np.clip(_NUMBERS // groups, _FEWEST_DRAWS, _USUAL_DRAWS)))
        if self.dependence != "any" and self.draws * groups > _MOST:
            problem = f"of {groups:,} groups are too many to keep in memory"
            raise InputError(f"draws={self.draws}", problem, f"Use draws={max(_MOST // groups, 1)} or fewer.")

    def _judged(self, known: Known, record: Record, tests: Tests, *, final: bool) -> Look:
        """What the last look of a record showed, and what it needed."""
        fractions = np.array([*(look.fraction for look in self._made), self._fraction(known, final=final)])
        spent = self._spending.spent(self.alpha, fractions)
        alone = float(levels_alone(record, spent)[-1])
        log_p, boundary, level = record.log_p[-1], np.inf, alone
        if record.null:
            boundary = float(boundaries(record, spent)[-1])
            null = tests.everyone()[0]
            if np.isfinite(boundary):
                level = max(alone, float(np.exp(null.log_chance(boundary))))
            if alone <= 0 or log_p > np.log(alone):
                log_p = null.log_chance(record.own[-1])
        adjusted = pvalue_so_far(record, self._spending, fractions, self.alpha)
        if self._made:
            adjusted = min(adjusted, self._made[-1].adjusted)
        return Look(
            number=len(self._made) + 1,
            information=float(known.information.sum()),
            fraction=float(fractions[-1]),
            spent=float(spent[-1]),
            statistic=record.own[-1],
            boundary=_or_none(boundary),
            pvalue=max(float(np.exp(log_p)), _SMALLEST),
            level=level,
            adjusted=max(adjusted, _SMALLEST),
        )

    def _fraction(self, known: Known, *, final: bool) -> float:
        """How far the next look is on the way; never back."""
        number = len(self._made) + 1
        made = number / (number + _PACE)
        if self.looks is not None:
            made = number / self.looks
        elif self.information is not None:
            made = float(known.information.sum()) / self.information
        made = 1.0 if final else min(made, 1.0)
        return max(made, self._made[-1].fraction) if self._made else made

    def _claimed(
        self, seen: Observed, labels: tuple[Label, ...], tests: Tests, look: Look
    ) -> tuple[tuple[Label, ...], ...]:
        """The clusters at the level of a look, from the lowest to the highest effect: at least two."""
        comparison = one_effect(seen.estimates(labels))
        everyone = tests.of(np.arange(len(comparison)))
        path = Partitions(tests.effects, tree_of(comparison), tests, everyone.log_p, True)
        count = max(2, clusters_at(path, float(np.log(max(look.level, look.pvalue)))))
        numbers = path.labels(count)
        weight = seen.se**-2.0
        means = [float(np.average(seen.theta[numbers == i], weights=weight[numbers == i])) for i in range(1, count + 1)]
        return tuple(
            tuple(labels[g] for g in seen.groups[numbers == i + 1].tolist()) for i in np.argsort(means, kind="stable")
        )

    def _so_far(self) -> History:
        """What the looks so far showed, and the paths at the last of them; drawn again where not in memory."""
        if self._history is not None and self._history.looks == len(self._observed):
            return self._history
        if self.dependence == "any":
            showed = [(look.statistic, float(np.log(look.pvalue))) for look in self._made]
            return History(Record([own for own, _ in showed], [log_p for _, log_p in showed], []), None)
        made, known = History(Record([], [], []), Paths(self.draws or _USUAL_DRAWS, self.seed)), None
        with progress("drawing the looks so far again", len(self._observed)) as advance:
            for seen in self._observed:
                labels = self._labels_after(known, seen)
                known = grown(known, seen, labels, self.dependence or "independent", check=False)
                made.take(known, seen, Tests(effects_of(one_effect(seen.estimates(labels))), None, self.seed))
                advance(1)
        fractions = np.array([look.fraction for look in self._made])
        again = boundaries(made.record, self._spending.spent(self.alpha, fractions))
        drawn = [(own, np.nan_to_num(c, posinf=0.0, neginf=0.0)) for own, c in zip(made.record.own, again, strict=True)]
        for pair, look in zip(drawn, self._made, strict=True):
            if not np.allclose(pair, (look.statistic, look.boundary or 0.0), rtol=1e-9):
                problem = f"draws of look {look.number} do not come back: it was changed, or saved by another release"
                raise InputError("state", problem, "Go on with that release, or give all looks to a new fl.Monitor.")
        return made

    def _labels_after(self, known: Known | None, seen: Observed) -> tuple[Label, ...]:
        """All groups that were seen by the end of a look."""
        return self._labels[: max(int(seen.groups.max()) + 1, 0 if known is None else known.se.size)]

    # --------------------------------------------------------------------------------------------------- between runs

    def to_json(self) -> str:
        """The state as text: settings and what was observed. Draws come back from the seed.

        Returns:
            JSON, for `from_json`.

        Example:
            >>> import faultlines as fl
            >>> len(fl.Monitor(looks=5).to_json()) > 50
            True
        """
        plain = {
            "faultlines_monitor": _FORMAT,
            "alpha": self.alpha,
            "looks": self.looks,
            "information": self.information,
            "spending": self._spending.name,
            "dependence": self.dependence,
            "draws": self.draws,
            "seed": self.seed,
            "subject": None if self._subject is None else self._subject._asdict(),
            "labels": [saved.plain(label) for label in self._labels],
            "observed": [seen.plain() for seen in self._observed],
            "results": [asdict(look) for look in self._made],
            "clusters": [[saved.plain(label) for label in cluster] for cluster in self._clusters],
            "ignored": self._ignored,
        }
        return json.dumps(plain, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, state: str, *, spending: Callable[[float], float] | None = None) -> Monitor:
        """The monitor from its state.

        Args:
            state: What `to_json` gave.
            spending: The function by which α is spent, if it was one of your own: a file does not hold it.

        Returns:
            A monitor that goes on from there.

        Raises:
            InputError: If it is no such state.

        Example:
            >>> import faultlines as fl
            >>> daily = fl.Monitor(looks=5)
            >>> fl.Monitor.from_json(daily.to_json()).decision.finished
            False
        """
        with saved.reading("Monitor"):
            read = json.loads(state)
            saved.version(read["faultlines_monitor"], _FORMAT)
            made = cls(
                spending=_spending_of(saved.typed(read["spending"], str), spending),
                **{name: read[name] for name in ("alpha", "looks", "information", "dependence", "draws", "seed")},
            )
            made._subject, made._labels = Subject.read(read["subject"]), saved.labels(read["labels"])
            made._observed = [Observed.read(seen, len(made._labels)) for seen in saved.typed(read["observed"], list)]
            made._made = [Look.read(look) for look in saved.typed(read["results"], list)]
            made._clusters = tuple(saved.labels(cluster) for cluster in saved.typed(read["clusters"], list))
            made._ignored = {why: saved.typed(count, int) for why, count in saved.typed(read["ignored"], dict).items()}
            made._checked()
        return made

    def _checked(self) -> None:
        """Refuse a state whose parts do not fit each other; fill in what follows from them."""
        keys = [saved.key(label) for label in self._labels]
        looks = self._made
        if len(set(keys)) < len(keys) or min(self._ignored.values(), default=1) < 1:
            raise ValueError("labels are not those of different groups, or less than no groups ignored")
        if (
            len(looks) != len(self._observed)
            or (bool(looks) != bool(keys))
            or (bool(looks) != (self._subject is not None))
            or (looks and None in (self.draws, self.dependence))
        ):
            raise ValueError("results do not fit what was observed")
        results, dependence, self._made = looks, self.dependence or "independent", []
        for i, (seen, look) in enumerate(zip(self._observed, results, strict=True)):
            last = i == len(results) - 1
            try:
                self._known = grown(self._known, seen, self._labels_after(self._known, seen), dependence)
            except InputError as error:
                raise ValueError(str(error)) from error
            computed = self._fraction(self._known, final=last and look.fraction == 1)
            told = (look.number, look.information, look.fraction)
            if not np.allclose(told, (i + 1, self._known.information.sum(), computed), rtol=1e-9, atol=0):
                raise ValueError(f"look {i + 1} does not fit what was observed")
            if not last and (
                look.adjusted <= self.alpha or look.fraction >= 1 or look.adjusted < results[i + 1].adjusted
            ):
                raise ValueError("a look after the end, or p that rises")
            self._made.append(look)
        if self._known is not None and self._known.se.size < len(keys):
            raise ValueError("groups that no look has seen")
        spent = self._spending.spent(self.alpha, np.array([look.fraction for look in looks]))
        if not np.allclose(spent, [look.spent for look in looks], rtol=1e-9, atol=0):
            raise ValueError("what is spent does not follow from the spending function")
        claimed = sorted(saved.key(label) for cluster in self._clusters for label in cluster)
        rejected = bool(looks) and looks[-1].adjusted <= self.alpha
        everyone = sorted(keys[g] for g in self._observed[-1].groups.tolist()) if rejected else []
        if claimed != everyone or (len(self._clusters) >= 2) != rejected or not all(self._clusters):
            raise ValueError("clusters do not fit the groups")

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state to a file, whole or not at all: an interrupted write leaves the old one as it was.

        Args:
            path: Where to.

        Raises:
            InputError: If it cannot be written.

        Example:
            >>> import faultlines as fl
            >>> fl.Monitor(looks=5).save("state.json")
        """
        saved.write(path, self.to_json())

    @classmethod
    def load(cls, path: str | PathLike[str], *, spending: Callable[[float], float] | None = None) -> Monitor:
        """Go on from a file; `spending` as in `from_json`.

        Args:
            path: A file that `save` wrote.
            spending: See `from_json`.

        Returns:
            A monitor that goes on from there.

        Raises:
            InputError: If it cannot be read, or is no such file.

        Example:
            >>> import faultlines as fl
            >>> fl.Monitor(looks=5).save("state.json")
            >>> fl.Monitor.load("state.json").spending
            'reserve'
        """
        return cls.from_json(saved.read(path), spending=spending)


def _or_none(boundary: float) -> float | None:
    return boundary if np.isfinite(boundary) else None


def _spending_of(name: str, given: Callable[[float], float] | None) -> str | Callable[[float], float]:
    """How a saved monitor spends α."""
    if name == CUSTOM and given is None:
        raise InputError(
            "spending", "was a function of your own, which no file holds", "Give it: load(path, spending=…)."
        )
    if name != CUSTOM and given is not None:
        raise InputError(f"spending={shorten(given)}", f"the saved monitor spends by {name!r}", "Leave it out.")
    return name if given is None else given
