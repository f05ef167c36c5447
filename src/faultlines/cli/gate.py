"""The gate: may this be launched? Yes, no, and "inconclusive", which is not yes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import typer

from faultlines import checks, formats
from faultlines.cli import options as opt
from faultlines.cli import streams
from faultlines.cli.options import name_options
from faultlines.cli.outputs import complete_command
from faultlines.cli.streams import CANNOT_TELL, SPLIT
from faultlines.errors import InputError, NoGroupsError
from faultlines.estimates.labels import name_of

if TYPE_CHECKING:
    from faultlines.guarantees.base import Guarantee
    from faultlines.metrics.base import Metric
    from faultlines.metrics.table import Adverse
    from faultlines.results.certificate import Certificate, MismatchChoice, MissingChoice, UnknownChoice
    from faultlines.results.clustering import Clustering
    from faultlines.results.collection import Experiments
    from faultlines.results.confirmation import Confirmation
    from faultlines.results.impact import ImpactRatios
    from faultlines.results.monitor import MonitorResult
    from faultlines.results.sample_ratio import SampleRatios
    from faultlines.results.self_check import SelfCheck
    from faultlines.rows.keys import By

_LISTED = 240  # characters of a list of experiments
# Codes of the notes that say why a certificate is inconclusive.
_REASONS = {"inconclusive groups", "excluded groups", "missing bounds", "missing share", "unknown attributes"}
_MISSING = {"missing values", "missing attributes"}  # codes of the notes on rows that lack something


@contextmanager
def gate(gated: bool) -> Iterator[None]:
    """Groups of which none can be used are an error, but where a gate was asked for they are inconclusive."""
    try:
        yield
    except NoGroupsError as error:
        if not gated:
            raise
        raise streams.Inconclusive(error) from error


def end_with_verdicts(
    results: Sequence[Clustering],
    certificates: Sequence[Certificate | None] = (),
    *,
    fail_on_split: bool,
    missing: str = "bounds",
    mismatch: str = "inconclusive",
    skipped: Mapping[str, str] | None = None,
    names: Sequence[str] = (),
) -> None:
    """End with the exit code of the gates that were asked for: 1 when one says no, 3 when one is inconclusive.

    Args:
        results: The results.
        certificates: One for each, if they were asked for; none for a result that has only one group.
        fail_on_split: Whether clusters must not differ.
        missing: ``"bounds"``: a large share of rows that lack a value is inconclusive; ``"ignore"``: it is not.
        mismatch: ``"inconclusive"``: nothing passes beside a sample ratio mismatch; ``"ignore"``: it may.
        skipped: What could not be compared, with the reason: inconclusive where a gate was asked for.
        names: What each result is called; without them it is called by its metric.
    """
    several = max(len(results), len(certificates)) > 1
    names = names or [c.groups.metric for c in results]
    unsigned = [bool(certificates) and certificate is None for certificate in certificates] or [False] * len(results)
    gated = [(name, c) for name, c, without in zip(names, results, unsigned, strict=True) if fail_on_split or without]
    signed = [(name, each) for name, each in zip(names, certificates, strict=False) if each is not None]
    if any(c.verdict == "differ" for _, c in gated) or any(each.verdict == "failed" for _, each in signed):
        raise typer.Exit(SPLIT)
    ratios = _ratio_texts(results) if (fail_on_split or certificates) and mismatch == "inconclusive" else []
    reasons = [(name, _reasons(c, missing)) for name, c in gated]
    reasons += [
        (name, _reasons_of_certificate(certificate, has_ratios=bool(ratios)))
        for name, certificate in signed
        if certificate.verdict == "inconclusive"
    ]
    if fail_on_split or certificates:
        reasons += [(name, [f"not compared ({reason})."]) for name, reason in (skipped or {}).items()]
        several = several or bool(skipped)
    texts = [f"{metric}: {text}" if several else text for metric, of_metric in reasons for text in of_metric]
    _end_inconclusive([*ratios, *texts])


def end_with_experiments(result: Experiments, missing: str = "bounds", mismatch: str = "inconclusive") -> None:
    """End with the gate's exit code over many experiments: 1 when groups differ in one, 3 when one is inconclusive.

    Args:
        result: The experiments.
        missing: As for `end_with_verdicts`.
        mismatch: Likewise.
    """
    if result.verdict == "differ":
        raise typer.Exit(SPLIT)
    texts = [f"{name_of(experiment.label)}: {experiment.reason}" for experiment in result.excluded]
    for name in result:
        reasons = _ratio_texts([result[name]]) if mismatch == "inconclusive" else []
        reasons += _reasons(result[name], missing)
        texts += [f"{name}: {' '.join(reasons)}"] if reasons else []
    if texts:
        _end_inconclusive([formats.members(texts, str, _LISTED, "; ")])


@dataclass(frozen=True, slots=True)
class LookGate:
    """What ends a look with an exit code; made by `of`."""

    split: bool = False
    harm: Adverse | None = None
    mismatch: str = "inconclusive"

    @classmethod
    def of(cls, options: opt.LookGates, metric: Metric | None) -> LookGate:
        """What was asked for, refused before a look is taken if it cannot be answered.

        Args:
            options: What was asked for on the command line.
            metric: What is measured in rows; None for a table of estimates.
        """
        from faultlines.analyses.certify import checked_mismatch
        from faultlines.metrics.names import recipe_of, traits_of

        mismatch = checked_mismatch(options.mismatch)
        checks.choice("adverse", options.adverse, ("auto", "low", "high"), "Use low or high.")
        if options.fail_on is None:
            if options.adverse != "auto":
                raise InputError.conflict("adverse", "needs --fail-on harm", "Add --fail-on harm.", options.adverse)
            return cls(options.fail_on_split, None, mismatch)
        checks.choice("fail_on", options.fail_on, ("harm",), "Use --fail-on harm, or --fail-on-split.")
        if metric is not None and metric.arms is None:
            problem = f"compares effects with zero, and {metric.name} is not the effect of an experiment"
            raise InputError.conflict("fail_on", problem, "Use --fail-on-split.", options.fail_on)
        _check_directions(options.adverse, [] if metric is None else [metric], harm=True)
        side: Any = options.adverse
        if side == "auto" and metric is not None:
            side = traits_of(recipe_of(metric))[0].adverse
        return cls(options.fail_on_split, side, mismatch)

    @property
    def asked(self) -> bool:
        """Whether there is a gate."""
        return self.split or self.harm is not None

    def end(self, result: MonitorResult) -> None:
        """End with the gate's exit code: 1 for a reported difference or a harm, 3 beside a sample ratio mismatch.

        Args:
            result: The monitor after its last look.
        """
        from faultlines.render.clustering import RATIO
        from faultlines.render.monitor import describe_harm
        from faultlines.results.monitor import find_harmed

        if not self.asked:
            return
        harmed = () if self.harm is None else find_harmed(result, self.harm)
        if harmed:
            streams.tell(describe_harm(result, harmed))
        if harmed or (self.split and result.rejected):
            raise typer.Exit(SPLIT)
        texts = [note.text for note in result.warnings if note.code == RATIO]
        if self.mismatch == "inconclusive":
            _end_inconclusive(texts)


def end_with_confirmation(
    result: Confirmation, mismatch: str = "inconclusive", missing: MissingChoice = "bounds"
) -> None:
    """End with the gate's exit code: 1 when clusters are not confirmed, 3 when the new data are inconclusive.

    Args:
        result: The confirmation.
        mismatch: As for `end_with_verdicts`.
        missing: Likewise.
    """
    from faultlines.render.clustering import mismatch_notes

    end_with_verdict(result)
    texts = [note.text for note in mismatch_notes(result.warnings)] if mismatch == "inconclusive" else []
    if missing == "bounds":
        texts += [note.text for note in result.notes if note.code in _MISSING and note.severity == "warning"]
    _end_inconclusive(texts)


def end_with_verdict(result: Confirmation | ImpactRatios | SampleRatios) -> None:
    """End with the gate's exit code: 1 when the verdict says no, 3 when the data cannot show it."""
    if result.verdict in ("failed", "mismatch", "not confirmed"):
        raise typer.Exit(SPLIT)
    if result.verdict in ("inconclusive", "not testable"):
        _end_inconclusive([result.headline])


def _end_inconclusive(texts: Sequence[str]) -> None:
    """End with 3 where there are reasons to."""
    if texts:
        streams.tell_inconclusive(" ".join(texts))
        raise typer.Exit(CANNOT_TELL)


def _ratio_texts(results: Sequence[Clustering]) -> list[str]:
    """The sample ratio mismatches of some results, each said once: metrics of the same rows share them."""
    from faultlines.render.clustering import ratio_notes

    return list(dict.fromkeys(note.text for c in results for note in ratio_notes(c)))


def _reasons_of_certificate(certificate: Certificate, *, has_ratios: bool) -> list[str]:
    """Why a certificate is inconclusive; nothing where a sample ratio mismatch, which is said beside it, is all."""
    texts = [note.text for note in certificate.notes if note.code in _REASONS]
    return texts or ([] if certificate.mismatch and has_ratios else [certificate.headline])


def _reasons(c: Clustering, missing: str = "bounds") -> list[str]:
    """Why a result without clusters does not cover all groups, or all rows; nothing where it does."""
    from faultlines.render.clustering import exclusion_notes

    codes = {"excluded groups"} | (_MISSING if missing == "bounds" else set())
    texts = [note.text for note in exclusion_notes(c) if note.code in codes and note.severity == "warning"]
    return [c.headline, *texts] if c.verdict == "not testable" else texts


# ---------- Certificates beside the clusters of a command: asked for with `--certify`, one for each result.


@dataclass(frozen=True, slots=True)
class Certificates:
    """What is to be certified, if anything; made by `of`."""

    gap: float | None = None
    reference: str | None = None
    margins: bool = False
    ratio: bool = False
    adverse: Adverse | Literal["auto"] | None = "auto"
    to_zero: bool = False
    missing: MissingChoice = "bounds"
    unknown: UnknownChoice | None = None
    mismatch: MismatchChoice = "inconclusive"

    @classmethod
    def of_change(cls, options: opt.Certify, metrics: Sequence[Metric]) -> Certificates:
        """What was asked for about changes from a baseline: compared with zero, if not with something else.

        Args:
            options: What was asked for on the command line.
            metrics: The changes, each of which knows its harmful direction.
        """
        if options.ratio:
            raise InputError.conflict("ratio", "does not apply to the change from a baseline", "Leave it out.")
        if options.certify is None or options.reference not in (None, "0"):
            return cls.of(options, metrics)
        return replace(cls.of(replace(options, reference=None), metrics), to_zero=True)

    @classmethod
    def of(cls, options: opt.Certify, metrics: Sequence[Metric] = (), mismatch: str = "inconclusive") -> Certificates:
        """What was asked for, refused before any work is done if it cannot be answered.

        Args:
            options: What was asked for on the command line.
            metrics: What is measured, where rows are; each may know its harmful direction.
            mismatch: What becomes of a pass beside a sample ratio mismatch.
        """
        from faultlines.analyses.certify import checked_gap, checked_mismatch, checked_missing, checked_unknown

        missing, unknown = checked_missing(options.missing), checked_unknown(options.unknown)
        ratios = checked_mismatch(mismatch)
        harm = options.fail_on is not None
        if harm:
            checks.choice("fail_on", options.fail_on, ("harm",), "Use --fail-on harm, or --fail-on-split.")
            if options.reference is not None or options.ratio:
                problem = "asks for harm against zero"
                raise InputError.conflict("fail_on", problem, "Leave --reference and --ratio out.", options.fail_on)
        if options.certify is None and not harm:
            direction = options.adverse if options.adverse != "auto" else None
            for option, value in (
                ("reference", options.reference),
                ("certify_margins", options.certify_margins or None),
                ("ratio", options.ratio or None),
                ("adverse", direction),
                ("unknown", unknown),
            ):
                if value is not None:
                    raise InputError.conflict(option, "needs --certify", "Add for example --certify 0.02.")
            return cls(missing=missing, mismatch=ratios)

        gap = 0.0 if options.certify is None else checked_gap("certify", options.certify, ratio=options.ratio)
        remedy = "Use low where low values are harmful, high, both, or auto for what the metric says."
        checks.choice("adverse", options.adverse, ("auto", "low", "high", "both"), remedy)
        adverse = None if options.adverse == "both" else cast("Adverse", options.adverse)
        _check_directions(adverse, metrics, harm=harm)
        choices = (adverse, harm, missing, unknown, ratios)
        return cls(gap, options.reference, options.certify_margins, options.ratio, *choices)

    @property
    def asked(self) -> bool:
        """Whether anything is."""
        return self.gap is not None

    def texts(self, certificates: Sequence[Certificate | None], names: Sequence[str] = ()) -> list[str]:
        """What to print of them, several below their names if they have any."""
        from faultlines.render.text import to_text

        several = f"{len(certificates)} certificates, at α/{len(certificates)} each (Bonferroni)."
        first = [several] if len(certificates) > 1 else []
        headings = [f"{name}\n" if first else "" for name in names] or [""] * len(certificates)
        return first + [
            heading + to_text(certificate, spelling=complete_command)
            for heading, certificate in zip(headings, certificates, strict=False)
            if certificate is not None
        ]

    def run(
        self,
        results: Sequence[Clustering],
        alpha: float,
        seed: int,
        rows: Sequence[MeasuredRows] = (),
        names: Sequence[str] = (),
    ) -> list[Certificate | None]:
        """A certificate for each result, but for one of a single group that has nothing to be compared with.

        The probability of a wrong one among several is α altogether (Bonferroni).

        Args:
            results: The results.
            alpha: The significance level of all.
            seed: Of the draws.
            rows: For each result what it was measured in: read again where values are missing, for what they could be.
            names: What errors call each of several results; without them by its metric.
        """
        if self.gap is None:
            return []
        from faultlines.analyses.certify import certify, check_shared_direction
        from faultlines.metrics.readout import SampleRatio

        certificates: list[Certificate | None] = []
        names = names or [c.groups.metric for c in results]
        with name_options({"gap": "certify", "against": "reference", "margins": "certify_margins"}):
            check_shared_direction(self.adverse, [c.estimates for c in results], self.reference)
            for i, c in enumerate(results):
                against = 0.0 if self.to_zero else _reference(self.reference, c)
                if c.verdict == "not testable" and not isinstance(against, float):
                    certificates.append(None)
                    continue
                lacking = c.missing_values is not None and bool(c.missing_values.dropped.any())
                data = rows[i] if rows and lacking and self.missing == "bounds" else MeasuredRows(c)
                try:
                    certificate = certify(
                        data.data,
                        data.by,
                        data.metric,
                        min_size=data.min_size,
                        gap=self.gap,
                        against=against,
                        margins=self.margins,
                        ratio=self.ratio,
                        adverse=self.adverse,
                        alpha=alpha / len(results),
                        missing=self.missing,
                        unknown=self.unknown,
                        mismatch=self.mismatch,
                        seed=seed,
                    )
                except InputError as error:
                    raise (error.within(names[i]) if len(results) > 1 else error) from error
                # The result beside it says a sample ratio mismatch already.
                warnings = tuple(warning for warning in certificate.warnings if not isinstance(warning, SampleRatio))
                certificates.append(replace(certificate, warnings=warnings))
        return certificates


class MeasuredRows(NamedTuple):
    """What a result was measured in."""

    data: Any
    by: By | None = None
    metric: Metric | None = None
    min_size: float | None = None


def _check_directions(adverse: str | None, metrics: Sequence[Metric], *, harm: bool) -> None:
    """Refuse one direction for metrics that harm in different ones, and harm where no direction is known."""
    from faultlines.metrics.names import recipe_of, traits_of

    sides = [(metric.name, [traits.adverse for traits in traits_of(recipe_of(metric))]) for metric in metrics]
    for metric, directions in sides or [("the effect", [])]:
        if harm and (adverse is None or (adverse == "auto" and not (directions and all(directions)))):
            problem = f"must be given: {metric} is not known to harm when low or when high"
            raise InputError.missing("adverse", problem, "Use --adverse low or --adverse high.")
        if len(sides) > 1 and adverse in ("low", "high") and any(side not in (None, adverse) for side in directions):
            remedy = "Leave it out, and each metric has its own."
            raise InputError.conflict("adverse", f"is not the harmful direction of {metric}", remedy, adverse)


def _reference(reference: str | None, c: Clustering) -> str | float | None:
    """What groups are compared with: text that is a number, and no group, is a fixed value."""
    if reference is None or reference in {name_of(key) for key in c.groups.keys}:
        return reference
    try:
        return float(reference)
    except ValueError:
        return reference


# ---------- The error control tried out on the rows of a command: labels shuffled, false positives counted.


@dataclass(frozen=True, slots=True)
class SelfChecks:
    """The self-checks that were asked for: one for each metric, or none; made by `of`."""

    metrics: Sequence[Metric]
    guarantee: Guarantee
    runs: int
    arms: bool | None

    @classmethod
    def of(cls, options: opt.SelfCheckOptions, metrics: Sequence[Metric], guarantee: Guarantee) -> SelfChecks:
        """What was asked for, refused before any work is done if it cannot be answered."""
        if options.self_check is None:
            if options.self_check_groups:
                raise InputError.conflict(
                    "self_check_groups", "needs --self-check", "Add for example --self-check 200."
                )
            return cls((), guarantee, 0, None)
        from faultlines.analyses.self_check import checked_runs, unit_of_shuffles

        runs = checked_runs("self_check", options.self_check)
        arms = False if options.self_check_groups else None
        for metric in metrics:
            unit_of_shuffles(metric, guarantee, arms=arms)
        return cls(metrics, guarantee, runs, arms)

    def run(self, data: object, by: By, settings: dict[str, Any]) -> list[SelfCheck]:
        """Every metric checked on the rows, with the settings of its result."""
        if not self.metrics:
            return []
        from faultlines.analyses.self_check import self_check

        shared = {name: settings[name] for name in ("alpha", "tolerance", "seed", "min_size", "margins")}
        return [
            self_check(data, by, metric, runs=self.runs, arms=self.arms, guarantee=self.guarantee, **shared)
            for metric in self.metrics
        ]

    def texts(self, results: Sequence[SelfCheck]) -> list[str]:
        """What to print of each; several are named by their metrics."""
        from faultlines.render.text import to_text

        texts = [to_text(result, spelling=complete_command) for result in results]
        return [
            f"{result.metric}: {text}" if len(results) > 1 else text
            for result, text in zip(results, texts, strict=True)
        ]
