"""The promise tried out on the rows of a command: labels shuffled, false claims counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faultlines.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faultlines.cli import options as opt
    from faultlines.guarantees.base import Guarantee
    from faultlines.metrics.base import Metric
    from faultlines.result.finding import By
    from faultlines.result.selfcheck import SelfCheck


@dataclass(frozen=True, slots=True)
class SelfChecks:
    """The self-checks that were asked for: one for each metric, or none; made by `of`."""

    metrics: Sequence[Metric]
    guarantee: Guarantee
    runs: int
    arms: bool

    @classmethod
    def of(cls, asked: opt.SelfCheck, metrics: Sequence[Metric], guarantee: Guarantee) -> SelfChecks:
        """What was asked for, refused before any work is done if it cannot be answered."""
        if asked.self_check is None:
            if asked.self_check_arms:
                raise InputError("--self-check-arms", "goes with --self-check", "Add for example --self-check 200.")
            return cls((), guarantee, 0, False)
        from faultlines.shuffling import checked_runs, kept_together

        runs = checked_runs("self_check", asked.self_check)
        for metric in metrics:
            kept_together(metric, guarantee, arms=asked.self_check_arms)
        return cls(metrics, guarantee, runs, asked.self_check_arms)

    def run(self, files: Sequence[str], by: By, how: dict[str, Any]) -> list[SelfCheck]:
        """Every metric checked on the rows, with the settings of its result."""
        if not self.metrics:
            return []
        from faultlines.shuffling import self_check

        settings = {name: how[name] for name in ("alpha", "tolerance", "seed", "min_size")}
        return [
            self_check(files, by, metric, runs=self.runs, arms=self.arms, guarantee=self.guarantee, **settings)
            for metric in self.metrics
        ]

    def lines(self, results: Sequence[SelfCheck]) -> list[str]:
        """What to say about each; several are told apart by what they measure."""
        return [f"{one.measure}: {one}" if len(results) > 1 else str(one) for one in results]
