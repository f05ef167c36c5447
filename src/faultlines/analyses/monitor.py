"""Looks over time: a boundary from null paths for all data so far, or the paper's procedure batch by batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from os import PathLike
from threading import RLock
from typing import Any

import numpy as np

from faultlines import checks
from faultlines.analyses.looking import LookRows, measure_look
from faultlines.core.comparison import AS_GOOD_AS_KNOWN, generator
from faultlines.core.custom import Similarity
from faultlines.core.normal import compare_one_effect
from faultlines.core.tree import PartitionPath, build_tree, count_clusters
from faultlines.errors import InputError, NoGroupsError
from faultlines.estimates.estimates import Estimates
from faultlines.estimates.labels import Label, Margin, key_of, margins_of, name_of
from faultlines.guarantees.attributes import attribute_paths
from faultlines.guarantees.boundaries import (
    CUSTOM,
    DEPENDENCE,
    AnytimeRule,
    ClusterChoice,
    Dependence,
    GroupHistory,
    LookData,
    LookRecord,
    MissingPolicy,
    MonitorSubject,
    NewPolicy,
    Spending,
    align_look,
    check_one_effect,
    check_policies,
    choose_dependence,
    compute_boundaries,
    default_spending,
    extend_history,
    follow,
    levels_alone,
    pool_look,
    pvalue_so_far,
)
from faultlines.guarantees.joint_test import JointTest, extract_effects
from faultlines.guarantees.margins import MarginStatistic, MarginTest, attribute_codes, compare_margins
from faultlines.guarantees.paper import SequentialFolds
from faultlines.guarantees.partitions import PartitionSearch
from faultlines.guarantees.state import (
    check_counts,
    check_type,
    dump_state,
    label_key,
    lock_state,
    parse_state,
    plain_label,
    read_labels,
    read_state,
    refuse_unreadable,
    write_state,
)
from faultlines.metrics.base import Metric
from faultlines.progress import progress
from faultlines.results.monitor import (
    IGNORED,
    AnytimeEffect,
    Look,
    LookChanges,
    MonitoredArm,
    MonitoredGroup,
    MonitorResult,
    Rule,
    SmallGroup,
    Verdict,
)
from faultlines.results.protocol import Note, probability
from faultlines.rows.keys import By
from faultlines.types import FloatArray, IntArray

_VERSION = 6  # of the state
_RULES = ("boundary", "folds")
_KEPT = ("alpha", "looks", "information", "dependence", "draws", "seed", "margins")  # settings in the state
_FIRST_STREAM = 1 << 21  # number of the random stream of the first look: apart from those of tests
_SMALLEST = 5e-324  # the smallest p that a double can hold
_WELL_KNOWN = 1e4  # degrees of freedom from which on a standard error counts as known, as in the joint test
_USUAL_DRAWS = 10_000
_FEWEST_DRAWS = 1_000
_NUMBERS = 20_000_000  # of all paths together at one look: 160 MB
_MOST_NUMBERS = 2**28
_ENOUGH = 5  # draws that α must leave to stop
_PACE = 5  # without a plan look t is t/(t + 5) of the way: about even-handed to ends after 5 and after 200 looks


# --------------------------------------------------------------------------------------------------------- null paths


class NullPaths:
    """Draws of whole paths, kept at the last look.

    Args:
        draws: How many.
        seed: Of the draws.
    """

    def __init__(self, draws: int, seed: int) -> None:
        self.draws, self.seed, self.looks = draws, seed, 0
        self._clock, self._dof = np.empty(0), np.empty(0)
        self._score, self._squares = np.empty((draws, 0)), np.empty((draws, 0))

    def advance(self, clock: FloatArray, dof: FloatArray) -> None:
        """Go on to the next look.

        Args:
            clock: Information of every group seen so far, not falling; those that are new come last.
            dof: Degrees of freedom behind their standard errors; infinite where they are known.
        """
        rng = generator(self.seed, _FIRST_STREAM + self.looks)
        self.looks += 1
        new_groups = clock.size - self._clock.size
        before, dof = np.append(self._clock, np.zeros(new_groups)), np.where(dof < _WELL_KNOWN, dof, AS_GOOD_AS_KNOWN)
        added = dof - np.append(self._dof, np.zeros(new_groups))
        if new_groups:
            room = np.zeros((self.draws, new_groups))
            self._score, self._squares = np.hstack([self._score, room]), np.hstack([self._squares, room])
        self._score += np.sqrt(clock - before) * rng.standard_normal(self._score.shape)
        # Sums of squares add up in the same way, χ² with the degrees of freedom that are new; fewer are all new.
        estimated = np.flatnonzero((dof < AS_GOOD_AS_KNOWN) & (added != 0))
        fewer = added[estimated] < 0
        self._squares[:, estimated[fewer]] = 0.0
        half = np.where(fewer, dof[estimated], added[estimated]) / 2
        self._squares[:, estimated] += 2 * rng.standard_gamma(half, (self.draws, estimated.size))
        self._clock, self._dof = clock, dof

    def noise(self, groups: IntArray) -> tuple[FloatArray, FloatArray | None]:
        """The noise of some groups in every path.

        Args:
            groups: Which.

        Returns:
            Standard normals, a row for each path; where standard errors are estimated, each estimated variance as a
            multiple of the true one.
        """
        normal = self._score[:, groups] / np.sqrt(self._clock[groups])
        known = self._dof[groups] >= AS_GOOD_AS_KNOWN
        if known.all():
            return normal, None
        return normal, np.where(known, 1.0, self._squares[:, groups] / self._dof[groups])


class LookHistory:
    """What looks showed, and the paths at the last of them."""

    __slots__ = ("paths", "record")

    def __init__(self, record: LookRecord, paths: NullPaths | None) -> None:
        self.record, self.paths = record, paths

    @property
    def looks(self) -> int:
        """How many looks it holds, all of them wholly; −1 where an interrupt left one behind."""
        counts = {len(self.record.own), len(self.record.log_p)}
        if self.paths is not None:
            counts |= {len(self.record.null), self.paths.looks}
        return counts.pop() if len(counts) == 1 else -1

    def take(self, history: GroupHistory, data: LookData, test: LookTest) -> None:
        """Add a look."""
        # As a file will have it, so that it is the same after one.
        log_p = float(np.log(max(np.exp(test.tested.log_p), _SMALLEST)))
        own = -test.tested.log_bonferroni
        if self.paths is not None:
            self.paths.advance(history.clock, history.dof)
            own, drawn = test.statistic.compute(*self.paths.noise(data.groups))
            self.record.null.append(drawn)
        self.record.own.append(own)
        self.record.log_p.append(log_p)


class LookTest:
    """What one look tests: that its groups have the same effect, along every attribute and combination.

    Args:
        data: The look.
        labels: The groups.
        seed: Of the draws.
        margins: Whether attributes are tested beside their combinations.
    """

    def __init__(self, data: LookData, labels: tuple[Label, ...], seed: int, *, margins: bool) -> None:
        self.comparison = compare_one_effect(data.estimates(labels))
        self.effects, self.seed = extract_effects(self.comparison), seed
        keys = self.comparison.keys
        codes = attribute_codes(keys, len(keys[0])) if margins else np.arange(len(keys))[:, None]
        self.margins = margins_of(codes)

    @cached_property
    def tested(self) -> MarginTest:
        """The look as if it were the only one."""
        return compare_margins(self.effects, self.margins, None, self.seed)

    @cached_property
    def statistic(self) -> MarginStatistic:
        """What is followed from look to look."""
        return MarginStatistic(self.effects, self.margins, self.seed)

    def find_clusters(self, alpha: float) -> tuple[IntArray, Margin]:
        """Numbers of the clusters at a level, at least two of them, and the margin whose levels they join."""
        alpha = max(alpha, float(np.exp(self.tested.log_p)))
        hierarchy, along = build_tree(self.comparison), None
        if len(self.margins) > 1:
            along = attribute_paths(
                self.comparison, hierarchy, draws=None, seed=self.seed, cores=None, refine=True, tested=self.tested
            )
        if along is None:
            joint_test = JointTest(self.effects, None, self.seed)
            path: PartitionPath = PartitionSearch(self.effects, hierarchy, joint_test, self.tested.log_p, True)
        else:
            path = along.path_at(alpha)
        numbers = path.labels(max(2, count_clusters(path, float(np.log(alpha)))))
        margin = None if along is None else along.choice.margin_at(alpha)
        return numbers, self.margins[-1] if margin is None else margin


# ------------------------------------------------------------------------------------------------------- the monitor


class Monitor:
    """Look as often as you like: the probability of ever reporting a difference where there is none is at most α.

    By the rule ``"boundary"`` every look is given estimates from all data so far. Its test is that of `fl.Calibrated`.
    What it must show comes from draws of groups with equal effects, followed from look to look; α is spent little by
    little on the way. Looks may come at any time that does not depend on the effects seen so far. Every look also has
    the overall effect and that of every group, with intervals that are valid at all looks.

    By the rule ``"folds"``, the paper's sequential form, every look is given a batch of new data and takes one step:
    test all clusters at α/K, or merge the nearest two. It pays with nearly all of its power: it detects 1% of the
    differences of which one look at all the data detects 80%; the rule ``"boundary"`` detects nearly as many as that
    one look.

    One monitor may be updated from several threads; `Monitor.open` keeps two processes from updating one file at once.

    Args:
        rule: ``"boundary"`` or ``"folds"``.
        alpha: The significance level: the probability of ever reporting a difference where there is none.
        looks: The planned number of looks.
        information: Or the planned amount of information at the end: users in all groups together where estimates
            have sizes `n`, else the sum of 1/se². Without either it never ends: look t is t/(t + 5) of the way.
        spending: How α is spent on the way: ``"obrien-fleming"``, ``"pocock"``, ``"reserve"`` (O'Brien and Fleming's
            with three tenths reserved for the end), ``"haybittle-peto"`` (with eight tenths), or a function from the
            fraction of the way to the share of α that is spent by then. Default: ``"reserve"``; for
            ``dependence="any"`` ``"haybittle-peto"``; without a planned end ``"obrien-fleming"``.
        dependence: ``"independent"``: new data do not depend on the data before. ``"returning"``: users come back, and
            what they add is not negatively related to what they did before, or it is a 0/1 outcome that happens once.
            ``"any"``: nothing is assumed, at a price (docs/monitoring.md). Default: ``"returning"`` where estimates
            have sizes, which costs nothing where all users are new; ``"independent"`` where they have none; ``"any"``
            where groups share data (several treatments with one control, users in several groups).
        draws: How many paths are drawn. Default: 10,000, fewer for more than 2,000 groups.
        seed: Of the draws. The same seed gives the same result on any number of cores.
        tolerance: For the rule ``"folds"``: see `fl.cluster`.
        margins: Whether groups by two attributes or more are compared along every attribute and combination, as in
            `fl.cluster`, or as unordered combinations only. By the rule ``"boundary"``.

    Raises:
        InputError: If an argument cannot be used.

    Example:
        >>> import faultlines as fl
        >>> monitor = fl.Monitor(looks=2, draws=1000)
        >>> monitor.update(fl.Estimates([0.0, 1.0], [1.0, 1.0], ["DE", "IN"], n=[100, 100])).verdict
        'continue'
        >>> monitor.update(fl.Estimates([0.0, 1.0], [0.2, 0.2], ["DE", "IN"], n=[2500, 2500])).verdict
        'differ'
        >>> monitor.result.clusters, monitor.spending
        ((('DE',), ('IN',)), 'reserve')
        >>> daily = fl.Monitor(rule="folds")
        >>> for _ in range(2):
        ...     now = daily.update(fl.Estimates([0.0, 0.1, 9.0], [0.5, 0.5, 0.5], ["DE", "FR", "IN"]))
        >>> now.verdict, now.clusters
        ('differ', (('DE', 'FR'), ('IN',)))
    """

    __slots__ = (
        "_along", "_arms", "_clusters", "_data", "_effects", "_folds", "_groups", "_history", "_ignored", "_labels",
        "_lock", "_looks", "_overall", "_rows", "_spending", "_subject", "alpha", "dependence", "draws", "information",
        "looks", "margins", "rule", "seed", "tolerance",
    )  # fmt: skip

    def __init__(
        self,
        *,
        rule: Rule = "boundary",
        alpha: float = 0.05,
        looks: int | None = None,
        information: float | None = None,
        spending: str | Callable[[float], float] | None = None,
        dependence: Dependence | None = None,
        draws: int | None = None,
        seed: int = 0,
        tolerance: float = 0.0,
        margins: bool = True,
    ) -> None:
        checks.choice("rule", rule, _RULES)
        self.rule: Rule = rule
        self.alpha = checks.alpha(alpha)
        problem = "must be a number, 0 or more"
        self.tolerance = checks.number(
            "tolerance", tolerance, problem, "Use for example {tolerance}.", low=0, settings={"tolerance": 0.01}
        )
        settings = {"looks": looks, "information": information, "spending": spending, "dependence": dependence}
        _check_settings_of_rule(rule, settings | {"draws": draws}, self.tolerance)
        if looks is not None and information is not None:
            raise InputError.conflict(
                "looks, information", "both set where it ends", "Give only one of them.", form="clause"
            )
        problem, remedy = "must be a whole number from 1 to 100,000", "Use for example {looks}."
        self.looks: int | None = None
        if looks is not None:
            example = {"looks": 20}
            self.looks = int(
                checks.number("looks", looks, problem, remedy, low=1, high=100_000, whole=True, settings=example)
            )
        self.information: float | None = None
        if information is not None:
            remedy = "Give the users, or the sum of 1/se², that the end will have."
            self.information = checks.number("information", information, "must be above 0", remedy, low=0, ends="(]")
        if dependence is not None:
            checks.choice("dependence", dependence, DEPENDENCE)
        self.dependence: Dependence | None = dependence
        has_end = looks is not None or information is not None
        usual = default_spending(has_end=has_end, any_dependence=dependence == "any")
        self._spending = Spending.of(usual if spending is None else spending)
        self.draws = None if draws is None else self._check_draws(draws)
        self.seed = checks.seed(seed)
        self.margins = checks.flag("margins", margins)
        self._lock = RLock()
        self._folds = SequentialFolds(self.alpha, self.tolerance)
        self._labels: tuple[Label, ...] = ()
        self._subject: MonitorSubject | None = None
        self._groups: GroupHistory | None = None
        self._data, self._looks = list[LookData](), list[Look]()
        self._clusters: tuple[tuple[Label, ...], ...] = ()
        self._along: tuple[str, ...] = ()
        self._effects: tuple[AnytimeEffect, ...] = ()
        self._overall, self._arms = list[LookData](), dict[str, list[LookData]]()
        self._rows = LookRows()
        self._ignored: dict[str, int] = {}
        self._history: LookHistory | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Its settings and data; draws come back from the seed."""
        with self._lock:
            return {name: getattr(self, name) for name in self.__slots__ if name != "_lock"} | {"_history": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._lock = RLock()
        for name, value in state.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"<Monitor: {self.result.headline}>"

    def _check_draws(self, draws: Any) -> int:
        problem = "must be a whole number from 1 to 100 million"
        example = {"draws": 10_000}
        count = int(
            checks.number(
                "draws", draws, problem, "Use {draws}.", low=1, high=100_000_000, whole=True, settings=example
            )
        )
        if self.dependence != "any" and self.alpha * (count + 1) < _ENOUGH:
            least = int(np.ceil(2 * _ENOUGH / self.alpha))
            problem = f"are too few for α = {self.alpha:.3g}"
            raise InputError.too_few(
                "draws",
                problem,
                "Use {draws} or more, or {dependence}.",
                count,
                settings={"draws": least, "dependence": "any"},
            )
        return count

    @property
    def spending(self) -> str:
        """How α is spent: the name of the function, ``"custom"`` for one's own."""
        return self._spending.name

    @property
    def result(self) -> MonitorResult:
        """The result after the last look."""
        with self._lock:
            return self._folds_result() if self.rule == "folds" else self._boundary_result()

    def _verdict(self) -> Verdict:
        """The verdict by the rule ``"boundary"``."""
        if self._looks and self._looks[-1].adjusted <= self.alpha:
            return "differ"
        return "ended" if self._looks and (self._looks[-1].fraction or 0) >= 1 else "continue"

    def _boundary_result(self) -> MonitorResult:
        verdict = self._verdict()
        all_groups = tuple(self._labels[i] for i in self._data[-1].groups.tolist()) if self._data else ()
        subject = MonitorSubject() if self._subject is None else self._subject
        return MonitorResult(
            verdict=verdict,
            rule=self.rule,
            pvalue=self._looks[-1].adjusted if self._looks else 1.0,
            alpha=self.alpha,
            clusters=self._clusters if verdict == "differ" else (all_groups,) if all_groups else (),
            looks=tuple(self._looks),
            planned=self.looks,
            dependence=self.dependence or "independent",
            ignored=dict(self._ignored),
            metric=subject.metric,
            attributes=subject.attributes,
            unit=subject.unit,
            counted=subject.counted,
            groups=self._monitored_groups(),
            cluster_effects=self._effects,
            small=self._rows.small,
            dropped=self._rows.dropped,
            warnings=self._rows.warnings,
            changes=self._changes(),
            margins=self.margins,
            along=self._along,
        )

    def _monitored_groups(self) -> tuple[MonitoredGroup, ...]:
        """Every group at the last look, beside the look before."""
        if not self._data:
            return ()
        now, earlier = self._data[-1], set[int]()
        for data in self._data[:-1]:
            earlier |= set(data.groups.tolist())
        before = dict(_shown_by_group(self._data[-2])) if len(self._data) > 1 else {}
        stopped = set(self._stopped())
        groups = []
        for i, effect in _effects_by_group(now):
            change = effect.estimate - before[i] if i in before else None
            status = "stopped" if i in stopped else "new" if earlier and i not in earlier else "measured"
            groups.append(MonitoredGroup(self._labels[i], effect, change, status))  # type: ignore[arg-type]
        return tuple(groups)

    def _stopped(self) -> list[int]:
        """Groups of the last look that are as they were at the look before."""
        if "stopped" not in self._ignored or len(self._data) < 2:
            return []
        now, before = self._data[-1], self._data[-2]
        then = dict(
            zip(before.groups.tolist(), zip(before.theta.tolist(), before.se.tolist(), strict=True), strict=True)
        )
        pairs = zip(now.groups.tolist(), now.theta.tolist(), now.se.tolist(), strict=True)
        return [i for i, theta, se in pairs if then.get(i) == (theta, se)]

    def _changes(self) -> LookChanges | None:
        """What changed since the look before."""
        if len(self._looks) < 2:
            return None
        before, now = self._looks[-2:]
        sized = self._groups is not None and self._groups.n is not None
        added = (now.information or 0.0) - (before.information or 0.0)
        if before.arms and now.arms:  # with several treatments, groups have a control in common
            added = sum(now.arms.values()) - sum(before.arms.values())
        overall = None
        if before.overall is not None and now.overall is not None:
            overall = now.overall.estimate - before.overall.estimate
        groups = self._monitored_groups()
        new, stopped = (tuple(g.label for g in groups if g.status == status) for status in ("new", "stopped"))
        return LookChanges(before.number, added if sized else None, overall, before.adjusted, new, stopped)

    def _folds_result(self) -> MonitorResult:
        folds, looks = self._folds, []
        groups = max(len(folds.labels), 1)
        adjusted = 1.0
        for number, step in enumerate(folds.steps, start=1):
            adjusted = min(adjusted, step.pvalue)
            own = max(step.pvalue / groups, _SMALLEST) if step.pvalue < 1 else 1.0
            looks.append(Look(number, own, self.alpha / groups, adjusted, merged=step.merged))
        return MonitorResult(
            verdict="differ" if folds.rejected else "ended" if folds.finished else "continue",
            rule=self.rule,
            pvalue=folds.pvalue,
            alpha=self.alpha,
            clusters=folds.clusters,
            looks=tuple(looks),
            planned=None,
            dependence=None,
            ignored=dict(folds.ignored),
        )

    def update(
        self,
        data: Estimates | Similarity | object,
        by: By | None = None,
        metric: Metric | None = None,
        *,
        min_size: float | None = None,
        missing: MissingPolicy = "error",
        new: NewPolicy | None = None,
        final: bool = False,
    ) -> MonitorResult:
        """Take a look. Once the verdict is not ``"continue"``, further looks update effects, not the verdict and its p.

        Args:
            data: By the rule ``"boundary"``: all data so far. Rows, with `by` and `metric`, as for `fl.cluster`; or
                estimates of one effect per group, in any order. With sizes `n` a look knows how much of its data the
                looks before had; without them it takes 1/se². By the rule ``"folds"``: estimates (or a `Similarity`)
                from data that no look before has used.
            by: For rows: the attributes. Quantiles move while data come in and are refused.
            metric: For rows: what to measure.
            min_size: For rows: groups smaller than this wait until they are larger.
            missing: When groups of the looks before are missing: ``"error"``; ``"keep"`` for groups that have stopped,
                whose last estimates stay in use; ``"ignore"`` to look at the others only. Groups of rows that can no
                longer be measured are kept. Batches cannot keep any.
            new: When there are groups the looks before did not have: ``"add"`` (default) to take them in; ``"ignore"``
                to leave them out; ``"error"``. Batches cannot add any: ``"error"`` (default) or ``"ignore"``.
            final: Whether this is the last look, sooner than planned: all that is left of α is spent on it. To be
                decided without regard to the effects seen so far. Only by the rule ``"boundary"``.

        Returns:
            The result after the look. Where fewer than two groups of rows can be compared yet, no look is taken, and
            the result says so.

        Raises:
            InputError: If the data cannot be used, or do not grow out of those of the look before.

        Example:
            >>> import faultlines as fl
            >>> daily = fl.Monitor(looks=5)
            >>> now = daily.update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, ["DE", "FR", "IN"], [90, 80, 85]))
            >>> now.verdict, daily.result.clusters
            ('differ', (('DE', 'FR'), ('IN',)))
        """
        checks.flag("final", final)
        with self._lock:
            if self.rule == "boundary":
                policies = (missing, "add" if new is None else new)
                return self._take_look(data, by, metric, min_size=min_size, policies=policies, final=final)
            new = "error" if new is None else new
            for name, value in (("missing", missing), ("new", new)):
                checks.choice(name, value, ("error", "ignore"), "Use 'error' or 'ignore'.")
            if final:
                raise InputError.conflict("final", "applies to the rule 'boundary' only", "Leave it out.", True)
            if by is not None or metric is not None:
                raise InputError.conflict("by, metric", "apply to the rule 'boundary' only", "Use fl.measure.")
            self._folds = self._folds.take(data, missing=missing, new=new)  # type: ignore[arg-type]
            return self.result

    # ------------------------------------------------------------------------------------------------------ one look

    def _take_look(
        self,
        data: Any,
        by: By | None,
        metric: Metric | None,
        *,
        min_size: float | None,
        policies: tuple[MissingPolicy, NewPolicy],
        final: bool,
    ) -> MonitorResult:
        check_policies(*policies)
        finished = self._verdict() != "continue"
        if finished and not self._has_intervals_left():
            return self.result
        try:
            current, rows = measure_look(data, by, metric, min_size, self._interval_rule(1.0))
        except NoGroupsError as error:
            return replace(self.result, waiting=dict(error.reasons))
        check_one_effect(current)
        if len(current) < 2 and rows.small:
            return replace(self.result, waiting=rows.count_reasons())
        subject = MonitorSubject.of(current, rows.counted)
        if self._subject is not None:
            subject.check(self._subject)
        look_data, labels, ignored = self._align(current, rows, *policies)
        if self._data and look_data.is_same_data(self._data[-1]):
            if finished:
                return self.result
            problem = f"were analyzed at look {len(self._data)}"
            raise InputError.duplicate("estimates", problem, "Run again when there are new data.")
        dependence = choose_dependence(current, self.dependence)
        groups = extend_history(self._groups, look_data, labels, dependence)
        draws = self._limit_draws(len(labels), dependence)
        test = self._test(look_data, labels)
        history = self._so_far(draws, dependence)
        history.take(groups, look_data, test)
        look = self._describe_look(groups, history.record, test, final=final)
        if finished:  # α was spent on the verdict: it stands as it was reported, with its p
            look = replace(look, adjusted=self._looks[-1].adjusted)
        rule = self._interval_rule(look.fraction or 1.0, dependence)
        look_data = _with_intervals(look_data, current, rule.reach_of_groups(groups, look_data))
        overall, effect = self._look_at_all(look_data, current, rows, rule)
        of_arms, arm_effects = self._look_at_arms(look_data, current, rows, rule)
        look = replace(
            look,
            overall=effect,
            groups=int(look_data.groups.size),
            small=len(rows.small),
            arms=dict(rows.arms),
            arm_effects=arm_effects,
        )
        places, margin = self._find_clusters(look_data, test, look)
        clusters = tuple(tuple(labels[g] for g in look_data.groups[at].tolist()) for at in places)
        choices = margin if margin.share > 0 else test.margins[-1]  # what is not tested has no part of α of its own
        effects = self._cluster_effects(places, choices, look_data, current, groups, rule)
        effects = tuple(
            effect if units is None else replace(effect, n=units)
            for effect, units in zip(effects, rows.count_units(current.labels, clusters), strict=True)
        )
        self._subject, self._labels, self._groups, self._ignored = subject, labels, groups, ignored
        self.draws, self.dependence, self._history, self._clusters = draws, dependence, history, clusters
        self._data, self._looks = [*self._data, look_data], [*self._looks, look]
        self._overall, self._rows, self._effects = [*self._overall, overall], rows, effects
        along = margin.attributes if places and len(test.margins) > 1 else ()
        self._arms, self._along = of_arms, tuple(subject.attributes[a] for a in along)
        return self.result

    def _has_intervals_left(self) -> bool:
        """Whether intervals are valid at one more look: not where α was divided over planned looks, and all were taken.

        Confidence sequences hold at any number of looks.
        """
        return self.dependence != "any" or self.looks is None or len(self._looks) < self.looks

    def _align(
        self, current: Estimates, rows: LookRows, missing: MissingPolicy, new: NewPolicy
    ) -> tuple[LookData, tuple[Label, ...], dict[str, int]]:
        """A look in the order of the known groups; groups of rows that can no longer be measured are kept."""
        if missing == "error" and rows.small and current.covariance is None:
            measured = {label_key(label) for label in current.labels}
            too_small = {label_key(small.label) for small in rows.small}
            absent = {label_key(label) for label in self._labels} - measured
            if absent and absent <= too_small:
                missing = "keep"
        return align_look(current, self._labels, self._groups, missing, new, rows.odds)

    def _interval_rule(self, fraction: float, dependence: Dependence | None = None) -> AnytimeRule:
        """How far intervals reach at the next look."""
        planned = self.looks is not None or self.information is not None
        first = float(self._looks[0].fraction or 1.0) if self._looks else fraction
        used: Dependence = dependence or self.dependence or "any"
        return AnytimeRule(self.alpha, used, len(self._looks) + 1, self.looks, first if planned else None)

    def _look_at_all(
        self, look_data: LookData, current: Estimates, rows: LookRows, rule: AnytimeRule
    ) -> tuple[LookData, AnytimeEffect]:
        """All groups together, as a group of its own that is followed from look to look."""
        pooled = rows.overall
        if pooled is None:
            estimated = replace(look_data, theta=_given(look_data, current))
            pooled = pool_look(estimated, np.arange(look_data.groups.size))
            if rows.readout is not None and rows.readout.distinct is not None:
                pooled = replace(pooled, n=np.array([rows.readout.distinct]))
        growth = follow([*self._overall, pooled], rule.dependence).growth
        reach = rule.reach(np.zeros(1), growth, pooled.dof)
        return pooled, _effect_of(pooled, current, float(reach[0]))

    def _look_at_arms(
        self, look_data: LookData, current: Estimates, rows: LookRows, rule: AnytimeRule
    ) -> tuple[dict[str, list[LookData]], tuple[MonitoredArm, ...]]:
        """Every treatment in all groups together, each as a group of its own that is followed from look to look."""
        of_arms, effects = dict(self._arms), []
        estimated = replace(look_data, theta=_given(look_data, current))
        names = [name_of(key_of(label)[-1]) for label in current.labels]
        for treatment, measured in rows.by_treatment.items():
            pooled = measured
            if pooled is None:  # groups share units: their mean weighted by precision
                is_there = np.array([len(rows.by_treatment) == 1 or name == treatment for name in names])
                pooled = pool_look(estimated, np.flatnonzero(is_there))
            looks = of_arms[treatment] = [*of_arms.get(treatment, []), pooled]
            growth = follow(looks, rule.dependence).growth
            effect = _effect_of(pooled, current, float(rule.reach(np.zeros(1), growth, pooled.dof)[0]))
            log_p = float(rule.log_pvalue(pooled.theta / pooled.se, growth, pooled.dof)[0])
            effects.append(MonitoredArm(rows.control, treatment, effect, probability(log_p)))
        return of_arms, tuple(effects)

    def _cluster_effects(
        self,
        clusters: tuple[IntArray, ...],
        margin: Margin,
        look_data: LookData,
        current: Estimates,
        groups: GroupHistory,
        rule: AnytimeRule,
    ) -> tuple[AnytimeEffect, ...]:
        """The effects of the clusters, each followed over the looks as a group of its own."""
        estimated = replace(look_data, theta=_given(look_data, current))
        effects = []
        for cluster in clusters:
            members = look_data.groups[cluster]
            places = [np.flatnonzero(np.isin(data.groups, members)) for data in (*self._data, estimated)]
            looks = [pool_look(d, at) for d, at in zip((*self._data, estimated), places, strict=True) if at.size]
            path, pooled = follow(looks, rule.dependence), looks[-1]
            dof = np.inf if pooled.dof is None else float(pooled.dof[0])
            choices = ClusterChoice(margin.share, margin.levels, int(np.unique(margin.codes[cluster]).size))
            reach = rule.reach_of_cluster(choices, float(groups.batch[members].max()), path, dof)
            effects.append(_effect_of(pooled, current, reach))
        return tuple(effects)

    def _test(self, data: LookData, labels: tuple[Label, ...]) -> LookTest:
        return LookTest(data, labels, self.seed, margins=self.margins)

    def _limit_draws(self, groups: int, dependence: Dependence) -> int:
        """How many paths there are; more than memory should hold are refused."""
        draws = self.draws
        if draws is None:
            draws = self._check_draws(int(np.clip(_NUMBERS // groups, _FEWEST_DRAWS, _USUAL_DRAWS)))
        if dependence != "any" and draws * groups > _MOST_NUMBERS:
            problem = f"of {groups:,} groups are too many to keep in memory"
            raise InputError.out_of_range(
                "draws",
                problem,
                "Use {draws} or fewer.",
                draws,
                settings={"draws": max(_MOST_NUMBERS // groups, 1)},
                form="clause",
            )
        return draws

    def _describe_look(self, groups: GroupHistory, record: LookRecord, test: LookTest, *, final: bool) -> Look:
        """What the last look of a record showed, and what it needed."""
        fractions = np.append(self._fractions(), self._next_fraction(groups, final=final))
        spent = self._spending.spent(self.alpha, fractions)
        alone = float(levels_alone(record, spent)[-1])
        log_p, boundary, level = record.log_p[-1], np.inf, alone
        if record.null:
            boundary, drawn = float(compute_boundaries(record, spent)[-1]), record.null[-1]
            if np.isfinite(boundary):
                level = max(alone, float(np.exp(test.statistic.log_pvalue(boundary, drawn))))
            if alone <= 0 or log_p > np.log(alone):
                log_p = test.statistic.log_pvalue(record.own[-1], drawn)
        adjusted = pvalue_so_far(record, self._spending, fractions, self.alpha)
        if self._looks:
            adjusted = min(adjusted, self._looks[-1].adjusted)
        return Look(
            number=len(self._looks) + 1,
            pvalue=max(float(np.exp(log_p)), _SMALLEST),
            level=level,
            adjusted=max(adjusted, _SMALLEST),
            information=float(groups.information.sum()),
            fraction=float(fractions[-1]),
            spent=float(spent[-1]),
            statistic=record.own[-1],
            boundary=boundary if np.isfinite(boundary) else None,
        )

    def _fractions(self) -> FloatArray:
        """How far every look was on the way."""
        return np.array([look.fraction for look in self._looks], dtype=float)

    def _next_fraction(self, groups: GroupHistory, *, final: bool) -> float:
        """How far the next look is on the way; never back."""
        number = len(self._looks) + 1
        fraction = number / (number + _PACE)
        if self.looks is not None:
            fraction = number / self.looks
        elif self.information is not None:
            fraction = float(groups.information.sum()) / self.information
        return float(max([1.0 if final else min(fraction, 1.0), *self._fractions()[-1:]]))

    def _find_clusters(self, data: LookData, test: LookTest, look: Look) -> tuple[tuple[IntArray, ...], Margin]:
        """Places of the groups of every cluster, from the lowest to the highest effect; and the margin they join.

        They are the clusters at the level of the look; none where nothing is reported.
        """
        if look.adjusted > self.alpha:
            return (), test.margins[-1]
        numbers, margin = test.find_clusters(max(look.level, look.pvalue))
        clusters = [np.flatnonzero(numbers == i) for i in range(1, int(numbers.max()) + 1)]
        weight = data.se**-2.0
        means = [float(np.average(data.theta[at], weights=weight[at])) for at in clusters]
        return tuple(clusters[i] for i in np.argsort(means, kind="stable")), margin

    def _so_far(self, draws: int, dependence: Dependence) -> LookHistory:
        """What the looks so far showed, and the paths at the last of them; drawn again where not in memory."""
        if self._history is not None and self._history.looks == len(self._data):
            return self._history
        if dependence == "any":
            statistics = [look.statistic or 0.0 for look in self._looks]
            return LookHistory(LookRecord(statistics, [float(np.log(look.pvalue)) for look in self._looks], []), None)
        history, groups = LookHistory(LookRecord([], [], []), NullPaths(draws, self.seed)), None
        with progress("drawing the looks so far again", len(self._data)) as advance:
            for data in self._data:
                labels = self._labels_after(groups, data)
                groups = extend_history(groups, data, labels, dependence, check=False)
                history.take(groups, data, self._test(data, labels))
                advance(1)
        again = compute_boundaries(history.record, self._spending.spent(self.alpha, self._fractions()))
        again = np.nan_to_num(again, posinf=0.0, neginf=0.0)
        for own, boundary, look in zip(history.record.own, again, self._looks, strict=True):
            if not np.allclose((own, boundary), (look.statistic or 0.0, look.boundary or 0.0), rtol=1e-9):
                problem = f"draws of look {look.number} do not come back: it was changed, or saved by another release"
                raise InputError.invalid_data(
                    "state", problem, "Go on with that release, or give all looks to a new fl.Monitor.", form="clause"
                )
        return history

    def _labels_after(self, groups: GroupHistory | None, data: LookData) -> tuple[Label, ...]:
        """All groups that were seen by the end of a look."""
        return self._labels[: max(int(data.groups.max()) + 1, 0 if groups is None else groups.se.size)]

    # --------------------------------------------------------------------------------------------------- between runs

    def to_json(self) -> str:
        """The state as text: settings and data. Draws come back from the seed.

        Returns:
            JSON, for `from_json`.

        Example:
            >>> import faultlines as fl
            >>> len(fl.Monitor(looks=5).to_json()) > 50
            True
        """
        with self._lock:
            state: dict[str, Any] = {"faultlines_monitor": _VERSION, "rule": self.rule, "alpha": self.alpha}
            if self.rule == "folds":
                return dump_state(state | {"tolerance": self.tolerance} | self._folds.to_plain())
            return dump_state(
                state
                | {
                    "looks": self.looks,
                    "information": self.information,
                    "spending": self._spending.name,
                    "dependence": self.dependence,
                    "draws": self.draws,
                    "seed": self.seed,
                    "margins": self.margins,
                    "subject": None if self._subject is None else self._subject._asdict(),
                    "labels": [plain_label(label) for label in self._labels],
                    "data": [data.to_plain() for data in self._data],
                    "results": [look.to_dict() for look in self._looks],
                    "clusters": [[plain_label(label) for label in cluster] for cluster in self._clusters],
                    "along": list(self._along),
                    "cluster_effects": [effect.to_dict() for effect in self._effects],
                    "overall": [data.to_plain() for data in self._overall],
                    "arms": {name: [data.to_plain() for data in looks] for name, looks in self._arms.items()},
                    "small": [small.to_dict() for small in self._rows.small],
                    "dropped": dict(self._rows.dropped),
                    "warnings": [{**note.to_dict(), "fields": dict(note.fields)} for note in self._rows.warnings],
                    "ignored": self._ignored,
                }
            )

    @classmethod
    def from_json(cls, state: str, *, spending: Callable[[float], float] | None = None) -> Monitor:
        """The monitor from its state.

        Args:
            state: What `to_json` gave.
            spending: The function by which α is spent, if it was one of your own: a file does not hold it.

        Returns:
            A monitor that goes on from there.

        Raises:
            InputError: If it is no such state, or was changed.

        Example:
            >>> import faultlines as fl
            >>> daily = fl.Monitor(looks=5)
            >>> fl.Monitor.from_json(daily.to_json()).result.verdict
            'continue'
        """
        with refuse_unreadable("Monitor"):
            saved = parse_state(state, "faultlines_monitor", _VERSION)
            if saved["rule"] == "folds":
                monitor = cls(rule="folds", alpha=saved["alpha"], tolerance=saved["tolerance"])
                monitor._folds = SequentialFolds.from_plain(saved, monitor.alpha, monitor.tolerance)
                return monitor
            monitor = cls(
                rule=saved["rule"],
                spending=_saved_spending(check_type(saved["spending"], str), spending),
                **{
                    name: saved[name]
                    for name in ("alpha", "looks", "information", "dependence", "draws", "seed", "margins")
                },
            )
            labels = monitor._labels = read_labels(saved["labels"])
            monitor._subject = MonitorSubject.from_plain(saved["subject"], labels)
            monitor._data = [LookData.from_plain(data, len(labels)) for data in check_type(saved["data"], list)]
            monitor._looks = [Look.from_dict(look) for look in check_type(saved["results"], list)]
            monitor._clusters = tuple(read_labels(cluster) for cluster in check_type(saved["clusters"], list))
            monitor._along = tuple(check_type(name, str) for name in check_type(saved["along"], list))
            monitor._effects = tuple(
                AnytimeEffect.from_dict(effect) for effect in check_type(saved["cluster_effects"], list)
            )
            monitor._overall = [LookData.from_plain(d, 1, least=1) for d in check_type(saved["overall"], list)]
            monitor._arms = {
                name: [LookData.from_plain(d, 1, least=1) for d in check_type(looks, list)]
                for name, looks in check_type(saved["arms"], dict).items()
            }
            monitor._rows = LookRows(
                small=tuple(SmallGroup.from_dict(small) for small in check_type(saved["small"], list)),
                dropped=check_type(saved["dropped"], dict),
                warnings=tuple(Note(**check_type(note, dict)) for note in check_type(saved["warnings"], list)),
            )
            monitor._ignored = check_counts(saved["ignored"], IGNORED)
            monitor._check_parts()
        return monitor

    def _check_parts(self) -> None:
        """Refuse a state whose parts do not fit each other; fill in what follows from them."""
        keys = [label_key(label) for label in self._labels]
        looks = self._looks
        if len(set(keys)) < len(keys):
            raise ValueError("labels are not those of different groups")
        if (
            not len(looks) == len(self._data) == len(self._overall)
            or len(self._effects) != len(self._clusters)
            or any(data.shown is None or data.lower is None or data.upper is None for data in self._data)
            or (bool(looks) != bool(keys))
            or (bool(looks) != (self._subject is not None))
            or (looks and None in (self.draws, self.dependence))
            or any(None in (look.information, look.fraction, look.spent, look.statistic) for look in looks)
        ):
            raise ValueError("results do not fit the data")
        dependence, self._looks = self.dependence or "independent", []
        for i, (data, look) in enumerate(zip(self._data, looks, strict=True)):
            after = looks[min(i + 1, len(looks) - 1)].adjusted
            try:
                self._groups = extend_history(self._groups, data, self._labels_after(self._groups, data), dependence)
            except InputError as error:
                raise ValueError(str(error)) from error
            fraction = self._next_fraction(self._groups, final=look.fraction == 1)
            stated = np.array([look.number, look.information, look.fraction], dtype=float)
            fits = np.allclose(stated, (i + 1, self._groups.information.sum(), fraction), rtol=1e-9, atol=0)
            if not fits or look.groups != data.groups.size:
                raise ValueError(f"look {i + 1} does not fit the data")
            ends = look.adjusted <= self.alpha or stated[2] >= 1
            if look.adjusted != after if ends else look.adjusted < after:
                raise ValueError("p that rises, or changes after the end")
            self._looks.append(look)
        if self._groups is not None and self._groups.se.size < len(keys):
            raise ValueError("groups that no look has seen")
        spent = self._spending.spent(self.alpha, self._fractions())
        if not np.allclose(spent, np.array([look.spent for look in looks], dtype=float), rtol=1e-9, atol=0):
            raise ValueError("what is spent does not follow from the spending function")
        clustered = sorted(label_key(label) for cluster in self._clusters for label in cluster)
        rejected = bool(looks) and looks[-1].adjusted <= self.alpha
        all_groups = sorted(keys[g] for g in self._data[-1].groups.tolist()) if rejected else []
        if clustered != all_groups or (len(self._clusters) >= 2) != rejected or not all(self._clusters):
            raise ValueError("clusters do not fit the groups")
        if not set(self._along) <= set(() if self._subject is None or not rejected else self._subject.attributes):
            raise ValueError("clusters run along attributes that the groups do not have")

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
        write_state(path, self.to_json())

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
        return cls.from_json(read_state(path), spending=spending)

    @classmethod
    @contextmanager
    def open(cls, path: str | PathLike[str], **settings: Any) -> Iterator[Monitor]:
        """Hold the file of a monitor, go on from it or begin, and save at the end: for jobs that may overlap.

        Args:
            path: The file; a new monitor begins where there is none.
            settings: Those of a new monitor. They may be repeated later, but not changed.

        Yields:
            The monitor. It is saved when the block ends without an error.

        Raises:
            InputError: If another run holds the file, it cannot be read or written, or settings differ.

        Example:
            >>> import faultlines as fl
            >>> with fl.Monitor.open("daily.json", looks=5) as monitor:
            ...     now = monitor.update(fl.Estimates([0.0, 0.1, 9.0], [0.5] * 3, ["DE", "FR", "IN"], [90, 80, 85]))
            >>> fl.Monitor.load("daily.json").result.verdict
            'differ'
        """
        with lock_state(path) as target:
            if os.path.lexists(target):
                own = settings.get("spending")
                monitor = cls.load(target, spending=own if callable(own) else None)
                monitor.check_settings(str(path), settings)
            else:
                monitor = cls(**settings)
            monitor.save(target)  # that it can be written is known before the look
            yield monitor
            monitor.save(target)

    def check_settings(self, path: str, settings: dict[str, Any]) -> None:
        """Refuse settings other than those the monitor was begun with.

        Args:
            path: Its file, for the message.
            settings: Settings by name; None for those that were not given.

        Raises:
            InputError: If one of them differs.
        """
        for name, value in settings.items():
            before = getattr(self, name)
            if value is not None and before != (CUSTOM if callable(value) else value):
                setting = "without" if before is None else f"with {before}"
                raise InputError.conflict(
                    name, f"{path!r} was begun {setting}", "Leave it out, or begin another.", value, form="clause"
                )


def _check_settings_of_rule(rule: Rule, settings: dict[str, Any], tolerance: float) -> None:
    """Refuse settings that go with the other rule."""
    given = settings if rule == "folds" else {"tolerance": tolerance or None}
    for name, value in given.items():
        if value is not None:
            other: Rule = "boundary" if rule == "folds" else "folds"
            problem, remedy = f"applies to the rule {other!r} only", "Leave it out, or use {rule}."
            raise InputError.conflict(name, problem, remedy, value, settings={"rule": other})


def _given(look_data: LookData, current: Estimates) -> FloatArray:
    """The estimates of a look as they were measured, before skewed noise was straightened for the test."""
    moved = current.given[:, 0] - current.values[:, 0]
    if not moved.any() or look_data.shown is None:
        return look_data.theta
    return np.asarray(current.scales[0].place(look_data.shown))


def _with_intervals(look_data: LookData, current: Estimates, reach: FloatArray) -> LookData:
    """A look with the ends of intervals, as people read them."""
    natural = look_data.theta if look_data.shown is None else look_data.shown
    lower, upper = _ends(_given(look_data, current), look_data.se, reach, natural, current)
    return replace(look_data, shown=natural, lower=lower, upper=upper)


def _ends(
    theta: FloatArray, se: FloatArray, reach: FloatArray | float, natural: FloatArray, current: Estimates
) -> tuple[FloatArray, FloatArray]:
    scale = current.scales[0]
    with np.errstate(over="ignore"):
        lower, upper = (scale.natural(theta + side * reach * se) for side in (-1, 1))
    return np.minimum(lower, natural), np.maximum(upper, natural)


def _effect_of(pooled: LookData, current: Estimates, reach: float) -> AnytimeEffect:
    """Groups that were pooled to one, as people read it."""
    natural = current.scales[0].natural(pooled.theta) if pooled.shown is None else pooled.shown
    lower, upper = _ends(pooled.theta, pooled.se, reach, natural, current)
    return AnytimeEffect(
        float(natural[0]), float(lower[0]), float(upper[0]), None if pooled.n is None else float(pooled.n[0])
    )


def _shown_by_group(data: LookData) -> list[tuple[int, float]]:
    return [(i, effect.estimate) for i, effect in _effects_by_group(data)]


def _effects_by_group(data: LookData) -> list[tuple[int, AnytimeEffect]]:
    """The effect of every group of a look that has its intervals."""
    columns = [np.asarray(column).tolist() for column in (data.groups, data.shown, data.lower, data.upper)]
    sizes = [None] * data.groups.size if data.n is None else data.n.tolist()
    return [(i, AnytimeEffect(*values)) for i, *values in zip(*columns, sizes, strict=True)]


def _saved_spending(name: str, function: Callable[[float], float] | None) -> str | Callable[[float], float]:
    """How a saved monitor spends α."""
    if name == CUSTOM and function is None:
        raise InputError.missing(
            "spending", "was a function of your own, which no file holds", "Give it: load(path, spending=…)."
        )
    if name != CUSTOM and function is not None:
        raise InputError.conflict(
            "spending", f"the saved monitor spends by {name!r}", "Leave it out.", function, form="clause"
        )
    return name if function is None else function
