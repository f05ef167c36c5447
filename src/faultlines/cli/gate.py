"""The gate: may this be launched? Yes, no, and "inconclusive", which is not yes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from faultlines import formats
from faultlines.cli import streams
from faultlines.cli.options import name_options
from faultlines.cli.streams import CANNOT_TELL, SPLIT
from faultlines.errors import InputError, NoGroupsError
from faultlines.estimates.labels import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from faultlines.analyses.groups import By
    from faultlines.cli import options as opt
    from faultlines.guarantees.base import Guarantee
    from faultlines.metrics.base import Metric
    from faultlines.results.certificate import Certificate
    from faultlines.results.clustering import Adverse, Clustering
    from faultlines.results.collection import Experiments
    from faultlines.results.confirmation import Confirmation
    from faultlines.results.self_check import SelfCheck

_LISTED = 240  # characters of a list of experiments
_REASONS = {"inconclusive groups", "excluded groups"}  # codes of the notes that say why a certificate is inconclusive


@contextmanager
def gate(asked: bool) -> Iterator[None]:
    """Groups of which none can be used are an error, but where a gate was asked for they are inconclusive."""
    try:
        yield
    except NoGroupsError as error:
        if not asked:
            raise
        raise streams.Inconclusive(error) from error


def end_with_verdicts(
    results: Sequence[Clustering], certificates: Sequence[Certificate | None] = (), *, fail_on_split: bool
) -> None:
    """End with the exit code of the gates that were asked for: 1 when one says no, 3 when one is inconclusive.

    Args:
        results: The results.
        certificates: One for each, if they were asked for; none for a result that has only one group.
        fail_on_split: Whether clusters must not differ.
    """
    several = max(len(results), len(certificates)) > 1
    gated = [c for c in results if fail_on_split or (certificates and c.verdict == "not testable")]
    signed = [certificate for certificate in certificates if certificate is not None]
    if any(c.verdict == "differ" for c in gated) or any(one.verdict == "failed" for one in signed):
        raise typer.Exit(SPLIT)
    reasons = [(c.groups.metric, _reasons(c)) for c in gated]
    reasons += [
        (one.metric, [note.text for note in one.notes if note.code in _REASONS])
        for one in signed
        if one.verdict == "inconclusive"
    ]
    texts = [f"{metric}: {text}" if several else text for metric, of_metric in reasons for text in of_metric]
    if texts:
        _end_inconclusive(texts)


def end_with_experiments(result: Experiments) -> None:
    """End with the gate's exit code over many experiments: 1 when groups differ in one, 3 when one is inconclusive."""
    if result.verdict == "differ":
        raise typer.Exit(SPLIT)
    texts = [f"{name_of(experiment.label)}: {experiment.reason}" for experiment in result.excluded]
    texts += [f"{name}: {' '.join(reasons)}" for name in result if (reasons := _reasons(result[name]))]
    if texts:
        _end_inconclusive([formats.members(texts, str, _LISTED, "; ")])


def end_with_confirmation(result: Confirmation) -> None:
    """End with the gate's exit code: 1 when clusters are not confirmed, 3 when the new data are inconclusive."""
    if result.verdict == "inconclusive":
        _end_inconclusive([result.headline])
    if result.verdict == "not confirmed":
        raise typer.Exit(SPLIT)


def _end_inconclusive(texts: Sequence[str]) -> None:
    streams.tell(f"inconclusive: {' '.join(texts)}")
    raise typer.Exit(CANNOT_TELL)


def _reasons(c: Clustering) -> list[str]:
    """Why a result without clusters does not cover all groups; nothing where it does."""
    from faultlines.render.clustering import exclusion_notes

    texts = [note.text for note in exclusion_notes(c) if note.code == "excluded groups"]
    return [c.headline, *texts] if c.verdict == "not testable" else texts


# ---------- Certificates beside the clusters of a command: asked for with `--certify`, one for each result.


@dataclass(frozen=True, slots=True)
class Certificates:
    """What is to be certified, if anything; made by `of`."""

    gap: float | None
    reference: str | None
    ratio: bool
    adverse: Adverse | None

    @classmethod
    def of(cls, asked: opt.Certify) -> Certificates:
        """What was asked for, refused before any work is done if it cannot be answered."""
        if asked.certify is None:
            for option, value in (
                ("reference", asked.reference),
                ("ratio", asked.ratio or None),
                ("adverse", asked.adverse),
            ):
                if value is not None:
                    raise InputError.conflict(option, "goes with --certify", "Add for example --certify 0.02.")
            return cls(None, None, False, None)
        from faultlines.analyses.certify import checked_adverse, checked_gap

        checked_gap("certify", asked.certify, ratio=asked.ratio)
        return cls(asked.certify, asked.reference, asked.ratio, checked_adverse(asked.adverse))

    @property
    def asked(self) -> bool:
        """Whether anything is."""
        return self.gap is not None

    def texts(self, certificates: Sequence[Certificate | None]) -> list[str]:
        """What to print of them."""
        several = f"{len(certificates)} certificates, at α/{len(certificates)} each (Bonferroni)."
        first = [several] if len(certificates) > 1 else []
        return first + [str(certificate) for certificate in certificates if certificate is not None]

    def run(self, results: Sequence[Clustering], alpha: float, seed: int) -> list[Certificate | None]:
        """A certificate for each result, but for one of a single group, which has nothing to be compared with.

        The probability of a wrong one among several is α altogether (Bonferroni).
        """
        if self.gap is None:
            return []
        from faultlines.analyses.certify import certify

        with name_options({"gap": "certify", "against": "reference"}):
            return [
                None
                if c.verdict == "not testable"
                else certify(
                    c,
                    gap=self.gap,
                    against="overall" if self.reference is None else self.reference,
                    ratio=self.ratio,
                    adverse=self.adverse,
                    alpha=alpha / len(results),
                    seed=seed,
                )
                for c in results
            ]


# ---------- The error control tried out on the rows of a command: labels shuffled, false positives counted.


@dataclass(frozen=True, slots=True)
class SelfChecks:
    """The self-checks that were asked for: one for each metric, or none; made by `of`."""

    metrics: Sequence[Metric]
    guarantee: Guarantee
    runs: int
    arms: bool | None

    @classmethod
    def of(cls, asked: opt.SelfCheckOptions, metrics: Sequence[Metric], guarantee: Guarantee) -> SelfChecks:
        """What was asked for, refused before any work is done if it cannot be answered."""
        if asked.self_check is None:
            if asked.self_check_groups:
                raise InputError.conflict(
                    "self_check_groups", "goes with --self-check", "Add for example --self-check 200."
                )
            return cls((), guarantee, 0, None)
        from faultlines.analyses.self_check import checked_runs, unit_of_shuffles

        runs = checked_runs("self_check", asked.self_check)
        arms = False if asked.self_check_groups else None
        for metric in metrics:
            unit_of_shuffles(metric, guarantee, arms=arms)
        return cls(metrics, guarantee, runs, arms)

    def run(self, files: Sequence[str], by: By, settings: dict[str, Any]) -> list[SelfCheck]:
        """Every metric checked on the rows, with the settings of its result."""
        if not self.metrics:
            return []
        from faultlines.analyses.self_check import self_check

        shared = {name: settings[name] for name in ("alpha", "tolerance", "seed", "min_size", "margins")}
        return [
            self_check(files, by, metric, runs=self.runs, arms=self.arms, guarantee=self.guarantee, **shared)
            for metric in self.metrics
        ]

    def texts(self, results: Sequence[SelfCheck]) -> list[str]:
        """What to print of each; several are named by their metrics."""
        return [f"{result.metric}: {result}" if len(results) > 1 else str(result) for result in results]
