"""The result of `fl.self_check`: how often differences are reported in rows where nothing differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from scipy.special import betaincinv

from faultlines.results.protocol import Result
from faultlines.rows.shuffling import Shuffled

Verdict = Literal["holds", "inconclusive", "violated"]


@dataclass(frozen=True, slots=True)
class SelfCheck(Result):
    """How often differences were reported in rows made so that nothing differs: each is a false positive.

    Attributes:
        runs: How many times such rows were made.
        false_positives: In how many of them a difference was reported.
        alpha: The significance level, and so the largest share that is expected.
        shuffled: How: ``"arms"`` or ``"groups"``, whose labels were shuffled, or ``"resampled"``: rows drawn anew
            within their groups, whose effects were then moved to a common value.
        unit: The column whose rows stayed together; None where every row was taken on its own.
        metric: What was measured.
        guarantee: The error control that was checked.
        seed: The seed of shuffles and draws.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"country": ["DE", "FR", "IN"] * 40, "spend": [3.0, 5.0, 4.0, 9.0] * 30})
        >>> check = fl.self_check(rows, "country", fl.mean("spend"), runs=20, arms=False)
        >>> check.runs, check.false_positives, check.rate, check.verdict, check.to_dict()["rate"]
        (20, 0, 0.0, 'holds', 0.0)
        >>> round(check.lower, 3), round(check.upper, 2)
        (0.0, 0.17)
    """

    wording: ClassVar[str] = "self_check"
    json_keys: ClassVar[str] = (
        "verdict headline runs false_positives rate lower upper alpha shuffled unit metric guarantee seed notes"
    )

    runs: int
    false_positives: int
    alpha: float
    shuffled: Shuffled
    unit: str | None
    metric: str
    guarantee: str
    seed: int

    @property
    def rate(self) -> float:
        """The share of runs in which a difference was reported."""
        return self.false_positives / self.runs

    @property
    def lower(self) -> float:
        """Lower end of the 95% interval of that share (Clopper and Pearson)."""
        count = self.false_positives
        return 0.0 if count == 0 else float(betaincinv(count, self.runs - count + 1, 0.025))

    @property
    def upper(self) -> float:
        """Upper end of that interval."""
        count = self.false_positives
        return 1.0 if count == self.runs else float(betaincinv(count + 1, self.runs - count, 0.975))

    @property
    def verdict(self) -> Verdict:
        """``"holds"``: the share is at most α; ``"violated"``: above it; ``"inconclusive"``: by no more than noise."""
        if self.lower > self.alpha:
            return "violated"
        return "holds" if self.rate <= self.alpha else "inconclusive"
