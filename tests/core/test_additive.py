"""Linear hypotheses about cells, against plain matrices and statsmodels."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from faultlines.core import additive
from faultlines.core.additive import WeightedCells, compare, compare_within, fit_additive
from faultlines.core.spread import compare_means
from faultlines.estimates.labels import number_levels


def dummies(partitions: list[np.ndarray], size: int) -> np.ndarray:
    return np.column_stack([np.ones(size), *(np.eye(int(codes.max()) + 1)[codes] for codes in partitions)])


def squares(theta: np.ndarray, inverse: np.ndarray, design: np.ndarray) -> float:
    """What generalized least squares leaves."""
    root = np.linalg.cholesky(inverse).T
    white, columns = root @ theta, root @ design
    fitted = columns @ np.linalg.lstsq(columns, white, rcond=None)[0]
    return float(np.sum((white - fitted) ** 2))


def table(seed: int, sizes: tuple[int, ...], missing: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    codes = np.array([cell for cell in product(*map(range, sizes)) if rng.random() > missing])
    columns = np.stack([number_levels(column) for column in codes.T])
    return columns, rng.normal(size=len(codes)), np.exp(rng.normal(size=len(codes)))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([(3, 4), (2, 3, 4), (6, 2, 2)]), st.sampled_from([np.inf, 7.0]))
def test_squares_are_those_of_plain_least_squares(seed: int, sizes: tuple[int, ...], dof: float) -> None:
    columns, theta, se = table(seed, sizes)
    base, larger = list(columns[1:]), list(columns)
    test = compare(WeightedCells.of(theta, se, dof_of_all=dof), base, larger)
    designs = [dummies(model, theta.size) for model in (base, larger)]
    gained = squares(theta, np.diag(se**-2), designs[0]) - squares(theta, np.diag(se**-2), designs[1])
    ranks = [int(np.linalg.matrix_rank(design)) for design in designs]
    assert test.effects == ranks[1] - ranks[0]
    if test.effects:
        assert test.square == pytest.approx(max(gained, 0.0), abs=1e-7)
        expected = stats.f.sf(gained / test.effects, test.effects, 1e9 if dof == np.inf else dof)
        assert np.exp(test.log_p) == pytest.approx(expected, rel=1e-4)


def test_tables_that_are_too_large_are_fitted_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, theta, se = table(3, (5, 4, 3), missing=0.1)
    cells = WeightedCells.of(theta, se)
    exact = compare(cells, list(columns[1:]), list(columns))
    monkeypatch.setattr(additive, "_DENSE", 0)
    assert compare(cells, list(columns[1:]), list(columns)) == pytest.approx(exact, rel=1e-6)


def test_a_covariance_means_generalized_least_squares() -> None:
    columns, theta, se = table(5, (4, 3, 2), missing=0.1)
    size = theta.size
    shared = np.random.default_rng(1).normal(size=(size, 3))
    covariance = np.diag(se**2) + shared @ shared.T
    test = compare(WeightedCells.of(theta, se, covariance=covariance), list(columns[1:]), list(columns))
    inverse = np.linalg.inv(covariance)
    gained = squares(theta, inverse, dummies(list(columns[1:]), size)) - squares(
        theta, inverse, dummies(list(columns), size)
    )
    assert test.square == pytest.approx(gained)
    assert test.effects == 3
    diagonal = compare(WeightedCells.of(theta, se, covariance=np.diag(se**2)), list(columns[1:]), list(columns))
    assert diagonal == pytest.approx(compare(WeightedCells.of(theta, se), list(columns[1:]), list(columns)))


def test_an_estimated_covariance_means_hotelling() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(30, 4)) @ rng.normal(size=(4, 4))
    theta, covariance = rows.mean(axis=0), np.cov(rows.T) / 30
    cells = WeightedCells.of(theta, np.sqrt(np.diagonal(covariance)), None, covariance, 29, whole=True)
    test = compare(cells, [], [np.arange(4)])
    contrast = np.eye(4)[1:] - np.eye(4)[0]
    value = contrast @ theta
    squared = value @ np.linalg.solve(contrast @ covariance @ contrast.T, value)
    assert np.exp(test.log_p) == pytest.approx(stats.f.sf(squared * 27 / (29 * 3), 3, 27))


def test_two_levels_with_degrees_of_freedom_are_welchs_t() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(size=8), rng.normal(0.5, 3, size=5)
    theta = np.array([a.mean(), b.mean()])
    se = np.array([a.std(ddof=1) / np.sqrt(8), b.std(ddof=1) / np.sqrt(5)])
    dof = np.array([7.0, 4.0])
    expected = stats.ttest_ind(a, b, equal_var=False).pvalue
    cells = WeightedCells.of(theta, se, dof)
    assert np.exp(compare(cells, [], [np.arange(2)]).log_p) == pytest.approx(expected)
    within = compare_within(cells, np.zeros(2, dtype=np.int64), np.arange(2))
    assert np.exp(within.log_p_child) == pytest.approx(expected)
    assert within.log_p_parent == 0  # of two children it would be the same test


def test_several_children_together() -> None:
    """Two parents with a deviating child each: as rare as two of so many p below the larger one."""
    theta = np.zeros(60)
    theta[[0, 3]] = 4.0
    within = compare_within(WeightedCells.of(theta, np.ones(60)), np.arange(60) // 3, np.arange(60))
    of_parent = 3 * 2 * stats.norm.sf(4 * np.sqrt(2 / 3))
    assert np.exp(within.log_p_child) == pytest.approx(stats.binom.sf(1, 20, of_parent) / 0.25)


def test_a_single_cell_is_judged_by_its_own_rows_too() -> None:
    """One far cell: by the variance that cells share it is a finding, by that of its own rows it is noise."""
    theta, se, parents = np.zeros(12), np.ones(12), np.arange(12) // 4
    theta[5] = 8.0
    alone = np.stack((np.ones(12), np.full(12, 20.0)), axis=1)
    by_all = compare_within(WeightedCells.of(theta, se, np.full(12, 500.0), alone=alone), parents, np.arange(12))
    alone[5, 0] = 6.0
    by_own = compare_within(WeightedCells.of(theta, se, np.full(12, 500.0), alone=alone), parents, np.arange(12))
    assert by_all.log_p_child < np.log(1e-4)
    assert by_all.log_p_parent < np.log(1e-4)
    assert by_own.log_p_child > np.log(0.5)
    assert by_own.log_p_parent > np.log(0.1)
    levels = WeightedCells.of(theta, se, np.full(12, 500.0), alone=alone).aggregate(np.arange(12) // 2)
    assert levels.alone is not None
    assert levels.alone[2].tolist() == pytest.approx([(1 + 36) / 4, (1 + 36) ** 2 / ((1 + 36**2) / 20)])


def test_many_degrees_of_freedom_are_as_good_as_known() -> None:
    columns, theta, se = table(6, (5, 4), missing=0.0)
    exact, estimated = WeightedCells.of(theta, se), WeightedCells.of(theta, se, np.full(theta.size, 1e9))
    for base, larger in (([], list(columns)), ([columns[0]], list(columns)), ([columns[0]], [np.arange(20)])):
        assert compare(estimated, base, larger).log_p == pytest.approx(compare(exact, base, larger).log_p, rel=1e-4)


def test_few_groups_agree_with_welchs_anova() -> None:
    theta, se, dof = np.array([0.0, 2.0, 3.0]), np.array([0.5, 1.0, 1.5]), np.array([30.0, 40.0, 50.0])
    ours = compare(WeightedCells.of(theta, se, dof), [], [np.arange(3)])
    assert ours.log_p == pytest.approx(compare_means(theta[:, None], se[:, None, None] ** 2, dof).log_pvalue, rel=0.1)


def test_means_of_levels_have_satterthwaites_degrees_of_freedom() -> None:
    cells = WeightedCells.of(np.array([1.0, 3.0, 7.0]), np.ones(3), np.array([6.0, 6.0, 6.0]))
    levels = cells.aggregate(np.array([0, 0, 1]))
    assert levels.theta - levels.theta[0] == pytest.approx([0.0, 5.0])
    assert levels.dof == pytest.approx([12.0, 6.0])
    assert levels.excess is not None
    assert levels.excess / levels.weight == pytest.approx([0.5, 1.0], rel=1e-6)


def test_one_child_stands_out_within_its_parent() -> None:
    theta = np.array([0.0, 0.0, 0.0, 5.0, 1.0, 1.0])
    parents, children = np.array([0, 0, 0, 0, 1, 1]), np.arange(6)
    within = compare_within(WeightedCells.of(theta, np.ones(6)), parents, children)
    gap, variance = 5 - 5 / 4, 3 / 4
    of_parent = 4 * 2 * stats.norm.sf(gap / np.sqrt(variance))
    assert np.exp(within.log_p_child) == pytest.approx((1 - (1 - of_parent) ** 2) * 0.85 / 0.6)
    assert np.exp(within.log_p_parent) == pytest.approx(4 / 3 * stats.chi2.sf(25 * 3 / 4, 3))
    covariance = np.eye(6)
    same = compare_within(WeightedCells.of(theta, np.ones(6), covariance=covariance), parents, children)
    assert np.exp(same.log_p_child) == pytest.approx(1 - (1 - of_parent) ** 2)  # parents may depend on each other
    assert same.log_p_parent == pytest.approx(within.log_p_parent)
    assert compare_within(WeightedCells.of(theta, np.ones(6)), children, children) == (0.0, 0.0)


def test_nothing_is_added_by_a_model_that_is_the_same() -> None:
    codes = np.array([0, 0, 1, 1])
    cells = WeightedCells.of(np.arange(4.0), np.ones(4))
    assert compare(cells, [codes], [codes]).log_p == 0
    assert compare(cells, [np.arange(4)], [codes, np.arange(4)]).effects == 0


@pytest.mark.parametrize("dof", [np.full(3, 6.0), np.array([6.0, 6.0, np.inf])])
def test_an_only_child_says_nothing(dof: np.ndarray) -> None:
    cells = WeightedCells.of(np.array([0.0, 4.0, 9.0]), np.ones(3), dof)
    within = compare_within(cells, np.array([0, 0, 1]), np.arange(3))
    alone = compare_within(WeightedCells.of(np.array([0.0, 4.0]), np.ones(2), dof[:2]), np.zeros(2, int), np.arange(2))
    assert within.log_p_child == pytest.approx(alone.log_p_child, rel=1e-6)


@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("sizes", [(3, 4), (2, 3, 4)])
def test_effects_that_add_up_are_those_of_least_squares_at_the_average_mix(
    sizes: tuple[int, ...], correlated: bool
) -> None:
    columns, theta, se = table(5, sizes, missing=0.1)
    rng = np.random.default_rng(2)
    covariance = np.diag(se**2)
    if correlated:
        shared = rng.normal(size=(theta.size, 2)) * se.min()
        covariance = covariance + shared @ shared.T
    mix = rng.uniform(1, 9, theta.size)
    fit = fit_additive(WeightedCells.of(theta, se, None, covariance if correlated else None), list(columns), mix)
    assert fit is not None
    # Independently: coefficients by least squares, and fitted cells averaged over the mix of the other terms.
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    design = dummies(list(columns), theta.size)
    mapping = np.linalg.pinv(root @ design) @ root
    base = np.zeros(theta.size)
    start = 1
    for term, codes in zip(fit.terms, columns, strict=True):
        levels = int(codes.max()) + 1
        for level in range(levels):
            place = design.copy()
            place[:, start : start + levels] = np.eye(levels)[level]
            weights = mix @ place / mix.sum() @ mapping
            if correlated:  # what all cells have in common says nothing about differences between levels
                base = weights - term.coefficients[0] if level == 0 else base
            assert (term.coefficients[level] + base) @ theta == pytest.approx(weights @ theta, abs=1e-8)
            own = term.coefficients[level] @ covariance @ term.coefficients[level]
            assert term.covariance[level, level] == pytest.approx(own)
            if not correlated:
                assert own == pytest.approx(weights @ covariance @ weights)
        assert term.coefficients.sum(axis=1) == pytest.approx(np.ones(levels))
        assert term.theta - term.theta[0] == pytest.approx((term.coefficients - term.coefficients[0]) @ theta)
        start += levels


def test_an_additive_model_is_rejected_by_all_it_leaves_or_by_one_cell() -> None:
    rng = np.random.default_rng(4)
    columns = [codes.ravel() for codes in np.indices((20, 3))]
    mean = 3.0 * rng.normal(size=20)[columns[0]] + 2.0 * columns[1]
    noise = rng.normal(size=60)
    everyone = np.ones(60)

    def log_p(effects: np.ndarray, dof: float | None = None) -> float:
        freedom = None if dof is None else np.full(60, dof)
        fit = fit_additive(WeightedCells.of(effects, everyone, freedom), columns, everyone)
        assert fit is not None
        return fit.log_p

    assert log_p(mean + noise) > np.log(0.05)
    assert log_p(mean + noise + 5.0 * (columns[1] == 1) * (columns[0] < 10)) < np.log(1e-6)
    alone = mean + noise + 7.0 * ((columns[0] == 4) & (columns[1] == 2))
    assert log_p(alone) < np.log(1e-4) < log_p(alone, 4.0)
    all_cells = compare(WeightedCells.of(alone, everyone), columns, [np.arange(60)])
    assert log_p(alone) < all_cells.log_p


def test_an_additive_model_needs_levels_that_cells_connect() -> None:
    cells = WeightedCells.of(np.array([0.0, 1.0, 2.0, 3.0]), np.ones(4))
    apart = [np.array([0, 0, 1, 1]), np.array([0, 1, 2, 3])]
    assert fit_additive(cells, apart, np.ones(4)) is None
