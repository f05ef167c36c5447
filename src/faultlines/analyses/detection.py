"""Detection limits of a result without clusters: computed when asked for, in a second or so at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from faultlines.analyses.certify import shares_of
from faultlines.analyses.contrasts import critical_of, effects_of
from faultlines.analyses.power import Trial
from faultlines.core.choose import compare_effects
from faultlines.errors import InputError
from faultlines.estimates.labels import labels_of
from faultlines.results.detection import DetectionLimit

if TYPE_CHECKING:
    from faultlines.estimates.estimates import Estimates
    from faultlines.results.clustering import Clustering

_TARGET = 0.8
_MOST = 2_000  # groups of which experiments are simulated
_MOST_FOLLOWED = 120  # groups in all parts of the data, where every experiment is followed to its clusters
_WORK, _RUNS, _FEWEST = 100_000, 200, 60  # groups in all simulated experiments; experiments
_RUNS_FOLLOWED = 40
_DRAWS = 2**18  # numbers in the draws behind a threshold
_MOST_DRAWS = 500


def detection_limits(c: Clustering) -> tuple[DetectionLimit, ...]:
    """What a result leaves possible, effect by effect; nothing where clusters differ or there is nothing to compare."""
    estimates = c.groups.estimates
    if c.rejected or estimates is None or len(estimates) < 2:
        return ()
    share = shares_of(estimates, c.readout)[0]
    tail = float(ndtr(-critical_of(estimates, share, c.alpha, _seed(c), sides=2)))
    try:
        simulated = _simulate(c, estimates)
    except InputError:  # gaps that would be detected lie beyond what estimates can be
        simulated = None
    halves, one = ([None] * estimates.dims,) * 2 if simulated is None else simulated
    limits = []
    for i, effect in enumerate(effects_of(estimates, share, c.readout)):
        interval = effect.against_overall(tail, as_ratio=False)
        alone = effect.against_overall(c.alpha, as_ratio=False)
        ends = np.maximum(-alone.lower, alone.upper)
        place = int(np.argmax(ends))
        limits.append(
            DetectionLimit(
                estimates.parts[i] if estimates.parts else "",
                labels_of(estimates.keys)[place],
                float(ends[place]),
                bool(alone.upper[place] >= -alone.lower[place]),
                interval.lower,
                interval.upper,
                halves[i],
                one[i],
                _TARGET,
                c.alpha,
                simulated is not None,
            )
        )
    return tuple(limits)


def _seed(c: Clustering) -> int:
    return int(c.judged.facts.get("seed", 0))


def _simulate(c: Clustering, estimates: Estimates) -> tuple[list[float | None], list[float | None]] | None:
    """The smallest gaps of each effect that would have been seen, of halves and of one group; None if not simulated."""
    groups = len(estimates)
    if groups > _MOST:
        return None
    # A threshold needs fewer draws than a p-value.
    guarantee = c.guarantee.for_power(c.groups, int(np.clip(_DRAWS // groups, 50, _MOST_DRAWS)))
    compared = compare_effects(estimates, c.tolerance)
    trial = Trial(compared, lambda _: np.zeros(groups), guarantee, c.alpha, c.tolerance, _seed(c))
    followed = groups * max(len(guarantee.shares(groups)), 1) * guarantee.splits
    if trial.detects is None and (followed > _MOST_FOLLOWED or estimates.dims > 1):
        return None  # to follow every experiment to its clusters would take longer than the result itself
    runs = _RUNS_FOLLOWED if trial.detects is None else int(np.clip(_WORK // groups, _FEWEST, _RUNS))
    halves, one = (
        [trial.with_share(share).smallest(part, runs, _TARGET) for part in range(estimates.dims)]
        for share in (0.5, 1 / groups)
    )
    return halves, one
