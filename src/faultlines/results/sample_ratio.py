"""The result of `fl.srm`: whether arms have the shares they should have, and where they do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from faultlines.estimates.reasons import DropCode
from faultlines.metrics.readout import SampleRatio
from faultlines.results.clustering import Clustering
from faultlines.results.protocol import Result

Verdict = Literal["mismatch", "no mismatch", "not testable"]


@dataclass(frozen=True, slots=True)
class ArmShare:
    """One arm of an experiment.

    Attributes:
        arm: Its name.
        n: Its units.
        share: Its share of all units.
        expected: Its planned share; None where none was given.

    Example:
        >>> import faultlines as fl
        >>> rows = {"country": ["DE", "FR"] * 100, "arm": ["A", "A", "B", "B"] * 50}
        >>> import polars as pl
        >>> fl.srm(pl.DataFrame(rows), "country", variant="arm").arms[0]
        ArmShare(arm='A', n=100.0, share=0.5, expected=None)
    """

    arm: str
    n: float
    share: float
    expected: float | None


@dataclass(frozen=True, slots=True)
class SampleRatios(Result):
    """Whether units are shared out between the arms as they should be: what `fl.srm` returns.

    Attributes:
        ratio: The test and the worst deviation; None where there are too few units.
        alpha: Significance level.
        arms: The arms with their units and shares.
        clusterings: For a mismatch, the clusters of the share of each arm; of two arms, of the second.
        dropped: Reason → number of rows that were not used.
        unit: What was counted.
        attributes: What the groups are; none where all units were tested together.

    Example:
        >>> import faultlines as fl, polars as pl
        >>> rows = pl.DataFrame({"country": ["DE", "FR"] * 100, "arm": ["A", "A", "B", "B"] * 50})
        >>> result = fl.srm(rows, "country", variant="arm", shares={"A": 0.5, "B": 0.5})
        >>> result.verdict, result.pvalue, result.clusterings
        ('no mismatch', 1.0, ())
    """

    wording: ClassVar[str] = "sample_ratio"
    json_keys: ClassVar[str] = "verdict headline pvalue alpha unit arms worst clusterings dropped notes"

    ratio: SampleRatio | None
    alpha: float
    arms: tuple[ArmShare, ...]
    clusterings: tuple[Clustering, ...]
    dropped: Mapping[DropCode, int]
    unit: str
    attributes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """``"mismatch"``, ``"no mismatch"``, or ``"not testable"`` where there are too few units."""
        if self.ratio is None:
            return "not testable"
        return "mismatch" if self.ratio.log_pvalue <= np.log(self.alpha) else "no mismatch"

    @property
    def pvalue(self) -> float:
        """The p of "all arms have the shares that are expected, in every group"."""
        return 1.0 if self.ratio is None else self.ratio.pvalue

    @property
    def where(self) -> dict[str, str]:
        """Attribute → level of the worst deviation; empty for all groups together."""
        return {} if self.ratio is None else {attribute: str(level) for attribute, level in self.ratio.where}

    def _plain_values(self) -> dict[str, Any]:
        worst = None if self.ratio is None else self.ratio.to_dict()
        return {"worst": worst and {key: worst[key] for key in _WORST}}


_WORST = ("where", "arm", "share", "expected", "planned", "n", "arms_there")
