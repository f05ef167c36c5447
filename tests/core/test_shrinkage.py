"""Shrunken estimates along attributes: against dense oracles, under transformations, and at the extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from faultlines.core import shrinkage
from faultlines.core.shrinkage import (
    Block,
    Crossing,
    Expert,
    Sample,
    fit_variances,
    list_blocks,
    predict,
    rank_blocks,
    select_blocks,
    shrink,
    stack_experts,
)

Array = np.ndarray[Any, Any]


def draw(shape: tuple[int, ...], seed: int, share: float = 1.0) -> tuple[Array, Array, Array, Array]:
    """Estimates, variances, levels and true effects of a crossing with main effects and a few outlier groups."""
    rng = np.random.default_rng(seed)
    codes = np.array(list(np.ndindex(*shape)))
    codes = codes[rng.random(len(codes)) < share]
    truth = sum((rng.normal(0, 1, size)[codes[:, j]] for j, size in enumerate(shape)), np.zeros(len(codes)))
    truth = truth + 5 * (rng.random(len(codes)) < 0.05)
    se = rng.lognormal(0, 0.5, len(codes))
    return truth + se * rng.standard_normal(len(codes)), se**2, codes, truth


def cover(crossing: Crossing, noise: Array, variances: Array) -> Array:
    """Dense covariance of the estimates, (K, K)."""
    total = np.diag(noise)
    for block, variance in zip(crossing.blocks, variances, strict=True):
        total += variance * (block.codes[:, None] == block.codes)
    return total


def restricted(y: Array, covariance: Array) -> float:
    """Restricted log-likelihood with one mean, without its constant."""
    inverse = np.linalg.inv(covariance)
    total = inverse.sum()
    centered = y - inverse.sum(axis=0) @ y / total
    return float(-0.5 * (np.linalg.slogdet(covariance)[1] + np.log(total) + centered @ inverse @ centered))


CROSSINGS = [((4, 3), 1.0, 1), ((4, 3, 2), 0.8, 2), ((5, 4, 3), 0.7, 2), ((6,), 1.0, 1)]


@pytest.mark.parametrize(("shape", "share", "order"), CROSSINGS)
def test_leaving_one_out_is_a_refit_without_it(shape: tuple[int, ...], share: float, order: int) -> None:
    theta, variance, codes, _ = draw(shape, 3, share)
    mains, pairs = list_blocks(codes)
    crossing = Crossing.of(mains + (pairs if order == 2 else []), len(theta))
    variances, tau2 = np.linspace(0.2, 2.0, len(crossing.blocks)), 0.3
    prediction = predict(crossing, theta, variance + tau2, variances, tau2)
    total = cover(crossing, variance + tau2, variances)
    for i in range(len(theta)):
        others = np.arange(len(theta)) != i
        inverse = np.linalg.inv(total[np.ix_(others, others)])
        ones, shared = np.ones(others.sum()), total[i, others]
        precision = ones @ inverse @ ones
        center = ones @ inverse @ theta[others] / precision
        mean = center + shared @ inverse @ (theta[others] - center)
        own = float(np.sum(variances)) - shared @ inverse @ shared + (1 - ones @ inverse @ shared) ** 2 / precision
        assert prediction.mean[i] == pytest.approx(mean, abs=1e-9)
        assert prediction.variance[i] == pytest.approx(own, rel=1e-8)


@pytest.mark.parametrize(("shape", "share", "order"), CROSSINGS)
def test_restricted_likelihood_and_its_slope_are_those_of_dense_matrices(
    shape: tuple[int, ...], share: float, order: int
) -> None:
    theta, variance, codes, _ = draw(shape, 4, share)
    mains, pairs = list_blocks(codes)
    crossing = Crossing.of(mains + (pairs if order == 2 else []), len(theta))
    logs = np.linspace(-1.0, 0.5, len(crossing.blocks) + 1)

    def value(at: Array) -> float:
        return restricted(theta, cover(crossing, variance + np.exp(at[-1]), np.exp(at[:-1])))

    variances = np.exp(logs)
    prediction = predict(crossing, theta, variance + variances[-1], variances[:-1], float(variances[-1]))
    assert prediction.value == pytest.approx(value(logs), abs=1e-9)
    for j, slope in enumerate(prediction.gradient):
        step = 1e-5 * np.eye(len(logs))[j]
        assert slope == pytest.approx((value(logs + step) - value(logs - step)) / 2e-5, abs=1e-6)


def test_the_search_reaches_the_highest_point() -> None:
    theta, variance, codes, _ = draw((5, 4, 3), 5)
    mains, pairs = list_blocks(codes)
    crossing, sample = Crossing.of([*mains, *pairs], len(theta)), Sample.of(theta, variance)
    fit = fit_variances(crossing, sample)

    def penalized(logs: Array) -> float:
        values = np.exp(logs)
        prior = 0.125 * logs - 0.625 * np.log1p(values / sample.total)
        covariance = cover(crossing, sample.noise + values[-1], values[:-1])
        return restricted(theta, covariance) + float(prior.sum())

    logs = np.log(np.append(fit.variances, fit.tau2))
    top = penalized(logs)
    rng = np.random.default_rng(0)
    assert all(penalized(logs + rng.normal(0, 0.5, len(logs))) <= top + 1e-4 for _ in range(100))


def test_blocks_leave_out_what_divides_nothing_or_the_same() -> None:
    region = np.repeat(np.arange(4), 6)
    state = np.repeat(np.arange(8), 3)
    codes = np.column_stack((region, state, np.arange(24), np.zeros(24, int), region[::-1]))
    mains, pairs = list_blocks(codes)
    assert [(block.attributes, block.size) for block in mains] == [((0,), 4), ((1,), 8)]
    assert pairs == []


def test_blocks_beyond_what_can_be_computed_are_taken_by_their_score() -> None:
    rng = np.random.default_rng(1)
    codes = np.array(list(np.ndindex(8, 6, 5)))
    theta = rng.normal(0, 3, (6, 5))[codes[:, 1], codes[:, 2]] + rng.standard_normal(240)
    mains, pairs = list_blocks(codes)
    sample = Sample.of(theta, np.ones(240))
    ranked = rank_blocks(pairs, fit_variances(Crossing.of(mains, 240), sample), sample)
    assert ranked[0].attributes == (1, 2)
    wide = [Block((i,), np.arange(240), size) for i, size in enumerate((900, 1000, 40_000))]
    assert [block.size for block in select_blocks(wide, 240)] == [900]
    assert select_blocks(pairs, 10**8) == []


def test_weights_are_those_at_the_highest_predictive_density() -> None:
    rng = np.random.default_rng(2)
    y, noise = rng.normal(0, 2, 400), np.full(400, 1.0)
    experts = {
        name: Expert(np.zeros((400, 1)), np.zeros((400, 1)), np.full((400, 1), variance))
        for name, variance in (("narrow", 0.1), ("right", 3.0), ("wide", 60.0))
    }
    weights, _ = stack_experts(y, noise, experts)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[1] > 0.8


def test_quantiles_of_mixtures_have_their_share_below() -> None:
    rng = np.random.default_rng(3)
    probabilities = rng.dirichlet(np.ones(5), 50)
    centers, spreads = rng.normal(0, 5, (50, 5)), rng.lognormal(0, 2, (50, 5))
    for share in (1e-6, 0.025, 0.4):
        at = shrinkage._invert_mixture(probabilities, centers, spreads, share)
        below = np.sum(probabilities * ndtr((at[:, None] - centers) / spreads), axis=1)
        np.testing.assert_allclose(below, share, rtol=1e-5)


def test_structure_and_outliers_are_used() -> None:
    theta, variance, codes, truth = draw((6, 5, 3), 1)
    shrunken = shrink(theta, variance, codes, (theta > np.median(theta)).astype(int))
    assert np.mean((shrunken.mean - truth) ** 2) < 0.2 * np.mean((theta - truth) ** 2)
    assert np.mean((shrunken.lower <= truth) & (truth <= shrunken.upper)) > 0.9
    assert list(shrunken.weights) == ["clusters", "mean", "attributes", "pairs", "few far off", "two clusters"]
    assert sum(shrunken.weights.values()) == pytest.approx(1.0)
    assert set(shrunken.variances) == {(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)}


def test_attribute_that_matters_has_the_variance() -> None:
    rng = np.random.default_rng(0)
    codes = np.array(list(np.ndindex(10, 4, 3)))
    theta = rng.normal(0, 3, 10)[codes[:, 0]] + rng.normal(0, 0.5, 120)
    variances = shrink(theta, np.full(120, 0.25), codes).variances
    assert variances[0,] > 3.0
    assert max(value for block, value in variances.items() if block != (0,)) < 0.2


@settings(max_examples=6, deadline=None)
@given(
    st.integers(0, 10**6),
    st.floats(-1e4, 1e4),
    st.floats(1e-5, 1e5),
    st.sampled_from([(4, 3), (4, 3, 2), (9,)]),
)
def test_shift_scale_and_order_do_not_matter(seed: int, shift: float, factor: float, shape: tuple[int, ...]) -> None:
    theta, variance, codes, _ = draw(shape, seed)
    labels = (theta > np.median(theta)).astype(int)
    rng = np.random.default_rng(seed)
    first = shrink(theta, variance, codes, labels)
    order = rng.permutation(len(theta))
    renamed = np.column_stack([rng.permutation(100)[column] for column in codes.T])[:, ::-1]
    second = shrink((factor * (theta + shift))[order], (factor**2 * variance)[order], renamed[order], labels[order])
    for name in ("mean", "lower", "upper"):
        back = getattr(second, name) / factor - shift
        np.testing.assert_allclose(back, getattr(first, name)[order], atol=0.02 * np.sqrt(np.median(variance)))
    mirrored = shrink(-theta, variance, codes, 1 - labels)
    if len(theta) >= 12:  # the two clusters start from quantiles that are not symmetric
        assert np.corrcoef(-mirrored.mean, first.mean)[0, 1] > 0.99


def test_equal_input_gives_equal_output() -> None:
    theta, variance, codes, _ = draw((5, 4), 0)
    first, second = shrink(theta, variance, codes), shrink(theta, variance, codes)
    assert np.array_equal(first.mean, second.mean)
    assert np.array_equal(first.upper, second.upper)


def profiles(groups: int) -> dict[str, Array]:
    rng = np.random.default_rng(groups)
    return {
        "equal": np.ones(groups),
        "15 orders": 10 ** rng.uniform(-15, 0, groups),
        "one precise": np.r_[1e-15, np.ones(groups - 1)],
        "one vague": np.r_[1e15, np.ones(groups - 1)],
        "half precise": np.where(np.arange(groups) % 2, 1e-15, 1.0),
        "tiny": np.full(groups, 1e-30),
    }


def effects(groups: int, codes: Array, variance: Array) -> dict[str, Array]:
    rng = np.random.default_rng(groups)
    return {
        "identical": np.full(groups, 7.0),
        "noise": rng.standard_normal(groups) * np.sqrt(variance),
        "far": rng.standard_normal(groups) * 1e8,
        "additive": codes.sum(axis=1).astype(float),
    }


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("groups", [2, 3, 5, 12])
def test_extremes_have_finite_estimates_within_the_data(groups: int) -> None:
    rng = np.random.default_rng(groups)
    for levels in (3, groups):
        codes = rng.integers(0, levels, (groups, 2))
        for profile, variance in profiles(groups).items():
            for kind, theta in effects(groups, codes, variance).items():
                shrunken = shrink(theta, variance, codes, np.arange(groups) % 2)
                case = (groups, levels, profile, kind)
                assert np.all(np.isfinite([shrunken.mean, shrunken.lower, shrunken.upper])), case
                assert np.all(shrunken.lower <= shrunken.mean), case
                assert np.all(shrunken.mean <= shrunken.upper), case
                slack = 0.1 * np.ptp(theta) + 1e-9 * np.sqrt(np.median(variance))
                assert shrunken.mean.min() >= theta.min() - slack, case
                assert shrunken.mean.max() <= theta.max() + slack, case
                precise = variance < 1e-9 * np.median(variance)
                assert np.all(np.abs(shrunken.mean - theta)[precise] <= 5 * np.sqrt(variance[precise])), case


def test_one_group_is_its_estimate() -> None:
    shrunken = shrink(np.array([3.0]), np.array([4.0]), np.zeros((1, 2), dtype=int))
    assert shrunken.mean == [3.0]
    assert shrunken.lower[0] == pytest.approx(3 - 1.959964 * 2)
    assert shrunken.weights == {}


def test_models_that_cannot_be_fitted_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    original = shrinkage.predict

    def fail(crossing: Crossing, *rest: Any) -> Any:
        if crossing.blocks:
            raise np.linalg.LinAlgError
        return original(crossing, *rest)

    monkeypatch.setattr(shrinkage, "predict", fail)
    theta, variance, codes, _ = draw((5, 4, 3), 0)
    shrunken = shrink(theta, variance, codes)
    assert list(shrunken.weights) == ["mean", "few far off", "two clusters"]
    assert set(shrunken.variances) == {()}


@pytest.mark.parametrize(
    ("theta", "variance"),
    [([0.0, np.nan], [1.0, 1.0]), ([0.0, 1.0], [1.0, 0.0]), ([0.0, 1.0], [1.0, np.inf]), ([0.0, 1.0], [1.0])],
)
def test_invalid_input_is_refused(theta: list[float], variance: list[float]) -> None:
    with pytest.raises(ValueError, match="variance"):
        shrink(np.array(theta), np.array(variance), np.zeros((2, 1), dtype=int))
