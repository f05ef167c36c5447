"""How often clusters are claimed in rows where nothing differs: what `fl.self_check` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from scipy.special import betaincinv

Shuffled = Literal["groups", "arms"]

_WORDS: dict[Shuffled, str] = {
    "groups": "shuffles of the group labels, where nothing differs",
    "arms": "shuffles of the arms, where nothing has an effect",
}


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """How often clusters were claimed in rows whose labels were shuffled, so that every claim is a false one.

    Attributes:
        runs: How many times labels were shuffled.
        claims: In how many of them clusters were claimed.
        alpha: The level they were claimed at, and so the share that was promised.
        shuffled: ``"groups"`` or ``"arms"``: which labels were shuffled.
        unit: The column whose rows stayed together; None where every row was shuffled on its own.
        measure: What was measured.
        guarantee: The guarantee that was checked.
        seed: The seed of the shuffles.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"country": ["DE", "FR", "IN"] * 40, "spend": [3.0, 5.0, 4.0, 9.0] * 30})
        >>> checked = fl.self_check(rows, "country", fl.mean("spend"), runs=20)
        >>> checked.runs, checked.claims, checked.rate, checked.holds, checked.to_dict()["rate"]
        (20, 1, 0.05, True, 0.05)
        >>> round(checked.lower, 3), round(checked.upper, 2)
        (0.001, 0.25)
        >>> print(checked.verdict.partition(",")[0])
        In 20 shuffles of the group labels
    """

    runs: int
    claims: int
    alpha: float
    shuffled: Shuffled
    unit: str | None
    measure: str
    guarantee: str
    seed: int

    @property
    def rate(self) -> float:
        """The share of shuffles in which clusters were claimed."""
        return self.claims / self.runs

    @property
    def lower(self) -> float:
        """Lower end of the 95% interval of that share (Clopper and Pearson)."""
        return 0.0 if self.claims == 0 else float(betaincinv(self.claims, self.runs - self.claims + 1, 0.025))

    @property
    def upper(self) -> float:
        """Upper end of that interval."""
        return 1.0 if self.claims == self.runs else float(betaincinv(self.claims + 1, self.runs - self.claims, 0.975))

    @property
    def holds(self) -> bool | None:
        """Whether the promise holds on rows like these: the share is at most α.

        None where it is above α by no more than chance explains: more shuffles would tell.
        """
        if self.lower > self.alpha:
            return False
        return True if self.rate <= self.alpha else None

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        share = f"{self.rate:.1%}, 95% interval {self.lower:.1%} … {self.upper:.1%}"
        level = f"α = {self.alpha:g}"
        said = {
            True: f"consistent with {level}.",
            None: f"more than {level}, but the interval includes it; more shuffles would tell.",
            False: f"above {level}, so the promise does not hold on rows like these.",
        }[self.holds]
        return f"In {self.runs:,} {_WORDS[self.shuffled]}, clusters were claimed in {self.claims:,} ({share}): {said}"

    def __str__(self) -> str:
        return self.verdict

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data.

        Returns:
            Plain data.
        """
        return {
            "verdict": self.verdict,
            "holds": self.holds,
            "runs": self.runs,
            "claims": self.claims,
            "rate": self.rate,
            "lower": self.lower,
            "upper": self.upper,
            "alpha": self.alpha,
            "shuffled": self.shuffled,
            "unit": self.unit,
            "measure": self.measure,
            "guarantee": self.guarantee,
            "seed": self.seed,
        }
