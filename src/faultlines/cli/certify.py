"""Certificates beside the clusters of a command: asked for with `--certify`, one for each result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from faultlines.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.cli import options as opt
    from faultlines.clustering import Clustering
    from faultlines.decide.certificate import Certificate
    from faultlines.decide.contrasts import Adverse


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
            for option, given in (
                ("--reference", asked.reference),
                ("--ratio", asked.ratio or None),
                ("--adverse", asked.adverse),
            ):
                if given is not None:
                    raise InputError(option, "goes with --certify", "Add for example --certify 0.02.")
            return cls(None, None, False, None)
        from faultlines.decide.certify import checked_adverse, checked_gap

        checked_gap("certify", asked.certify, ratio=asked.ratio)
        return cls(asked.certify, asked.reference, asked.ratio, checked_adverse(asked.adverse))

    @property
    def asked(self) -> bool:
        """Whether anything is."""
        return self.gap is not None

    def lines(self, certificates: Sequence[Certificate | None]) -> list[str]:
        """What to say about them."""
        several = f"{len(certificates)} certificates, at α/{len(certificates)} each (Bonferroni)."
        return [*([several] if len(certificates) > 1 else []), *(str(one) for one in certificates if one is not None)]

    def run(self, found: Sequence[Clustering], alpha: float, seed: int) -> list[Certificate | None]:
        """A certificate for each result, but for one of a single group, which has nothing to be compared with.

        The chance of a wrong one among several is α altogether (Bonferroni).
        """
        if self.gap is None:
            return []
        from faultlines.decide.certify import certify

        return [
            None
            if len(one.groups) < 2
            else certify(
                one,
                gap=self.gap,
                against="overall" if self.reference is None else self.reference,
                ratio=self.ratio,
                adverse=self.adverse,
                alpha=alpha / len(found),
                seed=seed,
            )
            for one in found
        ]
