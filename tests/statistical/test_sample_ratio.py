"""Sample ratios: false alarms of planned and of pooled shares, and how often a loss in one country is found."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from docs.figures import record_figure
from faultlines.metrics.warnings import compare_arms
from tests.statistical.tally import level_bound, scale_runs

pytestmark = pytest.mark.statistical
RUNS = scale_runs(2000)


def cells(levels: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(product(*map(range, levels)))


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.34, 0.33, 0.33), (0.5, 0.3, 0.2), (0.9, 0.05, 0.05)])
@pytest.mark.parametrize(("levels", "size"), [((20,), 200), ((30, 4), 40), ((5, 2, 6), 15)])
@pytest.mark.parametrize("planned", [True, False])
def test_false_alarms_stay_within_alpha(
    shares: tuple[float, ...], levels: tuple[int, ...], size: float, planned: bool
) -> None:
    rng = np.random.default_rng(sum(levels) + len(shares))
    keys, names = cells(levels), ["a", "b", "c"][: len(levels)]
    sizes = rng.lognormal(np.log(size), 1.0, len(keys))
    alarms = dict.fromkeys((0.05, 0.01, 0.001), 0)
    for _ in range(RUNS):
        counts = rng.multinomial(rng.poisson(sizes), shares).astype(float)
        check = compare_arms(
            counts, "ABC"[: len(shares)], keys, names, shares=shares if planned else None, unit="units"
        )
        for alpha in alarms:
            alarms[alpha] += check is not None and check.pvalue <= alpha
    plan = "/".join(f"{100 * share:.0f}" for share in shares)
    how = f"{plan}, {' × '.join(map(str, levels))} groups, {'planned shares' if planned else 'shares not given'}"
    for alpha, count in alarms.items():
        record_figure("sample_ratio", f"false alarms; {how}; α = {alpha:g}", count / RUNS, RUNS)
        assert count / RUNS <= level_bound(alpha, RUNS)


def test_a_loss_in_one_country_is_found_in_the_crossing_nearly_as_often_as_by_country() -> None:
    rng = np.random.default_rng(3)
    by_country = by_cell = named = 0
    runs = 300
    keys = cells((20, 6))
    for _ in range(runs):
        counts = rng.multinomial(rng.poisson(450, len(keys)), (0.5, 0.5)).astype(float)
        first = np.array([key[0] == 0 for key in keys])
        counts[first, 1] = rng.binomial(counts[first, 1].astype(int), 0.8)
        crossed = compare_arms(counts, "AB", keys, ["country", "browser"], shares=None, unit="units")
        countries = counts.reshape(20, 6, 2).sum(axis=1)
        plain = compare_arms(countries, "AB", cells((20,)), ["country"], shares=None, unit="units")
        assert crossed is not None
        assert plain is not None
        by_country += plain.pvalue <= 1e-3
        by_cell += crossed.pvalue <= 1e-3
        named += crossed.pvalue <= 1e-3 and crossed.where == (("country", 0),)
    name = "a fifth of one arm lost in one of 20 countries"
    for column, count in (("by country", by_country), ("by country × browser", by_cell), ("country named", named)):
        record_figure("sample_ratio", f"power; {name}; {column}", count / runs, runs)
    assert by_cell / runs > by_country / runs - 0.1, (by_country, by_cell)
    assert by_cell / runs > 0.7
    assert named > 0.9 * by_cell
