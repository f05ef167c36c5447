"""The reach of a result without clusters: computed when it is asked for, in a second or so at most."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from faultlines.comparison.choose import equal_effects
from faultlines.decide.certify import shares_of
from faultlines.decide.contrasts import critical_of, effects_of
from faultlines.decide.power import Trial
from faultlines.errors import InputError
from faultlines.estimates.labels import labels_of
from faultlines.result.unseen import Unseen

if TYPE_CHECKING:
    from faultlines.estimates.estimates import Estimates
    from faultlines.result.finding import Finding

_TARGET = 0.8
_MOST = 2_000  # groups of which experiments are simulated
_MOST_FOLLOWED = 120  # groups in all parts of the data, where every experiment is followed to its clusters
_WORK, _RUNS, _FEWEST = 100_000, 200, 60  # groups in all simulated experiments; experiments
_RUNS_FOLLOWED = 40
_DRAWS = 2**18  # numbers in the draws behind a threshold
_MOST_DRAWS = 500


def unseen_of(found: Finding) -> tuple[Unseen, ...]:
    """What a result leaves possible, effect by effect; nothing where clusters differ or there is nothing to compare."""
    estimates = found.groups.estimates
    if found.rejected or estimates is None or len(estimates) < 2:
        return ()
    share = shares_of(estimates, found.readout)[0]
    tail = float(ndtr(-critical_of(estimates, share, found.alpha, _seed(found), sides=2)))
    try:
        seen = _seen(found, estimates)
    except InputError:  # gaps that would be seen lie beyond what estimates can be
        seen = None
    halves, one = ([None] * estimates.dims,) * 2 if seen is None else seen
    made = []
    for i, effect in enumerate(effects_of(estimates, share)):
        interval = effect.against_overall(tail, as_ratio=False)
        alone = effect.against_overall(found.alpha, as_ratio=False)
        ends = np.maximum(-alone.lower, alone.upper)
        place = int(np.argmax(ends))
        made.append(
            Unseen(
                estimates.parts[i] if estimates.parts else "",
                labels_of(estimates.keys)[place],
                float(ends[place]),
                bool(alone.upper[place] >= -alone.lower[place]),
                interval.lower,
                interval.upper,
                halves[i],
                one[i],
                _TARGET,
                found.alpha,
                seen is not None,
            )
        )
    return tuple(made)


def _seed(found: Finding) -> int:
    return int(found.judged.facts.get("seed", 0))


def _seen(found: Finding, estimates: Estimates) -> tuple[list[float | None], list[float | None]] | None:
    """The smallest gaps of each effect that would have been seen, of halves and of one group; None if not simulated."""
    groups = len(estimates)
    if groups > _MOST:
        return None
    # A threshold needs fewer draws than a p-value.
    guarantee = found.guarantee
    if not found.groups.can_scan and getattr(guarantee, "scan", False):  # counts have no scan; normal estimates would
        guarantee = replace(guarantee, scan=False)  # type: ignore[type-var]
    if getattr(guarantee, "draws", 0) is None:
        guarantee = replace(guarantee, draws=int(np.clip(_DRAWS // groups, 50, _MOST_DRAWS)))  # type: ignore[type-var]
    compared = equal_effects(estimates, found.tolerance)
    trial = Trial(compared, lambda _: np.zeros(groups), guarantee, found.alpha, found.tolerance, _seed(found))
    followed = groups * max(len(guarantee.shares(groups)), 1) * guarantee.splits
    if trial.detects is None and (followed > _MOST_FOLLOWED or estimates.dims > 1):
        return None  # to follow every experiment to its clusters would take longer than the result itself
    runs = _RUNS_FOLLOWED if trial.detects is None else int(np.clip(_WORK // groups, _FEWEST, _RUNS))
    halves, one = (
        [trial.with_share(share).smallest(part, runs, _TARGET) for part in range(estimates.dims)]
        for share in (0.5, 1 / groups)
    )
    return halves, one
