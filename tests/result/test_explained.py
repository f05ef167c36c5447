"""How much attributes explain, whether it is more than chance, and what readers are told of it."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl
from faultlines.estimates.labels import keys_of
from faultlines.result.explained import explained
from faultlines.result.rules import Population


def additive(noise: float, seed: int = 0) -> tuple[fl.Estimates, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = list(itertools.product(range(8), range(5), range(4)))
    rng.shuffle(labels)
    labels = labels[:120]  # some cells are missing, so the attributes overlap a little
    a, b, c = np.array(labels).T
    se = rng.uniform(0.5, 2.0, len(labels)) * noise
    theta = 3 * rng.normal(size=8)[a] + rng.normal(size=5)[b] + se * rng.normal(size=len(labels))
    return fl.Estimates(theta, se, labels, attributes=["a", "b", "c"]), np.column_stack([a, b, c])


def test_shares_of_variation_are_those_of_weighted_regressions() -> None:
    statsmodels = pytest.importorskip("statsmodels.api")
    estimates, codes = additive(0.1)
    weight = 1 / estimates.se**2

    def left(columns: list[int]) -> float:
        parts = [np.ones((len(estimates), 1))] + [np.eye(codes[:, i].max() + 1)[codes[:, i]][:, 1:] for i in columns]
        return float(statsmodels.WLS(estimates.theta, np.hstack(parts), weights=weight).fit().ssr)

    found = explained(estimates, Population(keys_of(estimates.labels), estimates.attributes))
    real = left([]) - (len(estimates) - 1)
    assert found[3].alone == pytest.approx(1 - (left([]) - left([0, 1, 2]) - 7 - 4 - 3) / real, abs=1e-6)
    for i, row in enumerate(found[:3]):
        others = [j for j in range(3) if j != i]
        size = row.values - 1
        assert row.alone == pytest.approx(np.clip((left([]) - left([i]) - size) / real, 0, 1), abs=1e-6)
        assert row.beyond == pytest.approx(np.clip((left(others) - left([0, 1, 2]) - size) / real, 0, 1), abs=1e-6)
    assert found[0].alone > 0.7
    assert found[2].beyond < 0.01


def test_an_attribute_of_many_values_gains_nothing_from_noise() -> None:
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        labels = list(itertools.product(range(40), range(3)))
        theta = np.array([3.0 * b for _, b in labels]) + rng.normal(size=len(labels))
        estimates = fl.Estimates(theta, np.ones(len(labels)), labels, attributes=["many", "few"])
        shares.append([row.alone for row in explained(estimates, Population(keys_of(labels), ["many", "few"]))[:2]])
    many, few = np.mean(shares, axis=0)
    assert many < 0.05  # without the correction it would be a third of the noise, 0.1
    assert few > 0.9


def test_nested_attributes_lose_no_more_than_they_have() -> None:
    """Forty cities in eight countries: once the country is known, a city has 32 effects left, not 39."""
    rng = np.random.default_rng(3)
    labels = [(f"c{city % 8}", f"t{city}", device) for city in range(40) for device in range(2)]
    theta = np.repeat(rng.normal(0, 3, 40), 2) + rng.normal(size=80)
    estimates = fl.Estimates(theta, np.ones(80), labels, attributes=["country", "city", "device"])
    city = explained(estimates, Population(keys_of(labels), estimates.attributes))[1]

    def left(codes: list[int]) -> float:
        means = np.bincount(codes, theta) / np.bincount(codes)
        return float(np.sum((theta - means[codes]) ** 2))

    # Devices are balanced, so they take the same off either side.
    gained = left([i // 2 % 8 for i in range(80)]) - left([i // 2 for i in range(80)]) - 32
    assert city.beyond == pytest.approx(gained / (left([0] * 80) - 79), abs=1e-6)


def test_noise_is_not_shared_out() -> None:
    labels = list(itertools.product(range(4), range(6)))
    shares = [
        row.alone
        for seed in range(100)
        for row in fl.cluster(
            fl.Estimates(np.random.default_rng(seed).normal(size=24), np.ones(24), labels, attributes=["a", "b"]),
            guarantee="bonferroni",
        ).explained()
    ]
    assert sum(share > 0 for share in shares) <= 3 * 10  # Cochran's Q finds something in about 5 of 100


def test_one_attribute_or_no_estimates_explain_nothing() -> None:
    assert fl.cluster(fl.Estimates([0.0, 9.0, 9.1], [1, 1, 1])).explained() == ()
    plain = fl.Similarity(np.array([[1.0], [9.0]]), lambda a, b: np.ones(len(b)), null=lambda s, r: s)
    assert fl.cluster(plain, guarantee="bonferroni").explained() == ()


# ------------------------------------------------------------------------------------------------------------- tests


def crossed(theta: list[float] | np.ndarray, shape: tuple[int, ...], se: float = 1.0) -> fl.Estimates:
    """Estimates of all combinations of values: d0 × c0, d0 × c1, …"""
    names = ["device", "country", "age"][: len(shape)]
    labels = list(
        itertools.product(*([f"{name[0]}{i}" for i in range(k)] for name, k in zip(names, shape, strict=True)))
    )
    return fl.Estimates(theta, np.full(len(labels), se), labels, attributes=names)


def test_p_values_of_equal_errors_are_those_of_analysis_of_variance() -> None:
    """With equal standard errors, weights do not matter: the test is the F test of a two-way layout."""
    statsmodels = pytest.importorskip("statsmodels.api")
    smf = pytest.importorskip("statsmodels.formula.api")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(7)
    device, country = np.repeat(np.arange(5), 6), np.tile(np.arange(6), 5)
    theta = rng.normal(0, 1.5, 30) + 0.8 * device
    frame = pandas.DataFrame({"y": theta, "d": device, "c": country})
    table = statsmodels.stats.anova_lm(smf.ols("y ~ C(d) + C(c)", frame).fit(), typ=2)
    usual = table["PR(>F)"].to_numpy()[:2]
    found = fl.cluster(crossed(theta, (5, 6)), guarantee="bonferroni").explained()
    first, second = sorted(usual)
    holm = {first: 2 * first, second: max(2 * first, second)}
    assert [row.pvalue for row in found[:2]] == pytest.approx([min(1.0, holm[p]) for p in usual], rel=1e-6)
    assert found[2].pvalue is None


def test_a_country_is_compared_with_its_cities() -> None:
    rng = np.random.default_rng(0)
    labels = [(f"c{city % 4}", f"t{city}", device) for city in range(24) for device in range(3)]
    by_city = rng.normal(0, 5, 24)
    theta = np.repeat(by_city, 3) + np.tile([0.0, 50.0, 90.0], 24) + rng.normal(0, 0.1, 72)
    country = np.arange(24) % 4
    means = np.bincount(country, by_city) / 6
    between = 6 * np.sum((means - by_city.mean()) ** 2) / 3
    within = np.sum((by_city - means[country]) ** 2) / 20
    rows = explained(
        fl.Estimates(theta, np.ones(72), labels), Population(keys_of(labels), ["country", "city", "device"])
    )
    from scipy.special import fdtrc

    # Holm: it is the last of the three.
    assert rows[0].pvalue == pytest.approx(fdtrc(3, 20, between / within), rel=0.05)
    assert rows[1].pvalue is not None
    assert rows[1].pvalue < 1e-6


def test_where_nothing_is_left_to_compare_with_there_is_no_p() -> None:
    """Each city has one group, so nothing tells its effect from chance; neither do names that mean the same."""
    labels = [(f"c{i % 3}", f"t{i}") for i in range(9)]
    rows = fl.cluster(fl.Estimates(np.arange(9.0) * 5, np.ones(9), labels, attributes=["country", "city"])).explained()
    assert [row.pvalue for row in rows] == [None, None, None]
    assert "city 100% (not testable)" in str(
        fl.cluster(fl.Estimates(np.arange(9.0) * 5, np.ones(9), labels, attributes=["country", "city"]))
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([(2, 3), (4, 4), (3, 2, 4)]), st.integers(-30, 30))
def test_p_values_do_not_depend_on_the_unit_or_the_order(seed: int, shape: tuple[int, ...], shift: int) -> None:
    rng = np.random.default_rng(seed)
    labels = list(itertools.product(*map(range, shape)))
    names = ["x", "y", "z"][: len(shape)]
    theta, se = rng.normal(0, 2, len(labels)), np.exp(rng.normal(0, 0.5, len(labels)))
    first = explained(fl.Estimates(theta, se, labels), Population(keys_of(labels), names))
    order = rng.permutation(len(labels))
    mixed = [labels[i] for i in order]
    factor = 2.0**shift
    second = explained(
        fl.Estimates(factor * theta[order], factor * se[order], mixed), Population(keys_of(mixed), names)
    )
    for a, b in zip(first, second, strict=True):
        assert a.alone == pytest.approx(b.alone, abs=1e-6)
        assert a.pvalue == (None if b.pvalue is None else pytest.approx(b.pvalue, rel=1e-4))
        assert a.pvalue is None or 0 < a.pvalue <= 1


# ------------------------------------------------------------------------------------------------ what readers are told


def by_device(seed: int = 0) -> fl.Clustering:
    theta = np.repeat([0.0, 0.0, 8.0], 12) + np.random.default_rng(seed).normal(size=36)
    return fl.cluster(crossed(theta, (3, 12)))


def test_what_attributes_explain_is_in_every_output() -> None:
    found = by_device()
    line = next(line for line in str(found).split("\n") if line.startswith("Explained: "))
    assert line.startswith("Explained: device 9") or line.startswith("Explained: device 100%")
    assert "(p < 1e-10), country " in line
    assert line in found.to_markdown().replace("&lt;", "<")
    data = json.loads(found.to_json())["explained"]
    assert [row["attribute"] for row in data] == ["device", "country", "(combinations)"]
    assert data[0]["share"] > 0.9
    assert data[0]["pvalue"] < 1e-6 < data[1]["pvalue"]
    one = fl.cluster(fl.Estimates([0, 0.1, 9, 9.2], [1.0] * 4))
    assert "Explained" not in str(one)
    assert json.loads(one.to_json())["explained"] == []


def test_a_result_says_when_fewer_attributes_explain_it_all() -> None:
    words = str(by_device())
    assert "device alone explains 9" in words or "device alone explains 100%" in words
    assert "Read no difference by country into the clusters; run it by device alone." in words


def test_fewer_attributes_are_not_enough_where_a_single_group_differs() -> None:
    """Among thousands of groups, one that stands out is invisible in the sum of squares."""
    rng = np.random.default_rng(1)
    theta = np.repeat([0.0, 1.0], 2000) + rng.normal(size=4000)
    theta[7] = 12.0
    words = str(fl.cluster(crossed(theta, (2, 2000)), guarantee="bonferroni"))
    assert "alone explains" not in words


def test_two_attributes_of_three_can_be_enough() -> None:
    rng = np.random.default_rng(2)
    effect = np.array([9.0 * ((d == 1) ^ (c == 2)) for d, c, _ in itertools.product(range(3), range(4), range(5))])
    words = str(fl.cluster(crossed(effect + rng.normal(size=60), (3, 4, 5))))
    assert "device × country alone explains" in words
    assert "Read no difference by age into the clusters" in words
    assert "only their combinations" in words


def test_an_attribute_alone_may_see_what_crossed_groups_do_not() -> None:
    rng = np.random.default_rng(5)
    theta = np.repeat([0.0, 0.35], 300) + rng.normal(size=600)
    found = fl.cluster(crossed(theta, (2, 300)))
    assert not found.rejected
    assert "By device alone there may be a difference (p = " in str(found)
    assert "second test of the same data" in str(found)
    assert "Explained" not in str(found)
