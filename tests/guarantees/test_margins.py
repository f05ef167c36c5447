"""One p over all margins, the fewest attributes that are enough, and what each explains."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl
from faultlines.estimates.labels import margins_of
from faultlines.guarantees import joint_test
from faultlines.guarantees.attributes import AttributeChoice, explain_variation
from faultlines.guarantees.joint_test import GroupEffects
from faultlines.guarantees.margins import MarginTest, aggregate_effects, compare_margins


def crossing(*sizes: int) -> np.ndarray:
    return np.array(list(product(*map(range, sizes))))


def noise(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size)


def chosen(effects: GroupEffects, codes: np.ndarray, alpha: float = 0.05) -> tuple[int, ...]:
    margins = margins_of(codes)
    return AttributeChoice.of([effects], codes, margins, compare_margins(effects, margins)).at(alpha)


# ----------------------------------------------------------------------------------------------------------- one p


def test_one_attribute_is_tested_as_before() -> None:
    theta = np.arange(8) * 0.5 + noise(8)
    effects = GroupEffects(theta, np.linspace(0.8, 1.3, 8), None)
    test = compare_margins(effects, margins_of(np.arange(8)[:, None]))
    assert test.log_p == joint_test.JointTest(effects, None, 0).test(np.arange(8)).log_p


def test_the_p_of_each_margin_is_that_of_its_own_levels() -> None:
    codes = crossing(5, 3)
    effects = GroupEffects(noise(15), np.exp(noise(15, 1) / 3), None)
    margins = margins_of(codes)
    test = compare_margins(effects, margins)
    for margin, log_p in zip(margins, test.log_p_of_margins, strict=True):
        levels = aggregate_effects(effects, margin.codes)
        weight = effects.se**-2
        for level in range(margin.levels):
            mine = margin.codes == level
            center = effects.theta[7]
            assert levels.theta[level] + (0 if margin.is_cells else center) == pytest.approx(
                np.average(effects.theta[mine], weights=weight[mine])
            )
            assert levels.se[level] == pytest.approx(weight[mine].sum() ** -0.5)
        assert joint_test.JointTest(levels, None, 0).test(np.arange(margin.levels)).log_p == log_p


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000), st.floats(0, 1.5))
def test_p_lies_between_the_smallest_of_a_margin_and_bonferroni(seed: int, effect: float) -> None:
    codes = crossing(4, 3, 2)
    effects = GroupEffects(noise(24, seed) + effect * codes[:, 2], np.ones(24), None)
    margins = margins_of(codes)
    test = compare_margins(effects, margins)
    assert test.log_p <= test.log_bonferroni <= 0
    assert test.log_p >= test.log_bonferroni - np.log(len(margins)) - 1e-9
    shares = np.array([margin.share for margin in margins])
    assert test.log_bonferroni == pytest.approx(min(0.0, np.min(test.log_p_of_margins - np.log(shares))))


def test_p_is_the_probability_that_noise_gets_so_far() -> None:
    """The factor against brute force: how often the smallest weighted p of noise is below a value."""
    codes = crossing(4, 3)
    margins, se = margins_of(codes), np.exp(noise(12, 3) / 3)
    smallest = []
    for seed in range(400):
        effects = GroupEffects(se * noise(12, seed), se, None)
        levels = [aggregate_effects(effects, margin.codes) for margin in margins]
        log_p = [joint_test.JointTest(each, 100, 0).test(np.arange(each.theta.size)).log_p for each in levels]
        smallest.append(min(p - np.log(margin.share) for p, margin in zip(log_p, margins, strict=True)))
    value = np.log(0.15)
    theta = se * noise(12, 5)
    low, high = 0.0, 20.0  # noise stretched until Bonferroni's p is .15
    for _ in range(14):
        middle = (low + high) / 2
        test = compare_margins(GroupEffects(middle * theta, se, None), margins, draws=100)
        low, high = (middle, high) if test.log_bonferroni > value else (low, middle)
    rate = np.mean(np.array(smallest) <= value)
    assert np.exp(test.log_p) == pytest.approx(rate, abs=3 * np.sqrt(0.15 * 0.85 / 400))
    assert np.exp(test.log_p) < 0.149


def test_far_differences_have_a_p_far_below_the_draws() -> None:
    codes = crossing(6, 4, 2)
    effects = GroupEffects(noise(48) + 4.0 * codes[:, 2], np.ones(48), None)
    test = compare_margins(effects, margins_of(codes))
    assert np.log(1e-60) < test.log_p < np.log(1e-30)


@pytest.mark.parametrize("kind", ["known", "dof", "common_dof", "covariance", "hotelling"])
def test_every_kind_of_standard_error_goes_through(kind: str) -> None:
    codes = crossing(5, 3, 2)
    size = len(codes)
    same = codes[:, 0][:, None] == codes[:, 0]
    covariance = np.eye(size) + 0.4 * same if kind in {"covariance", "hotelling"} else None
    dof = np.full(size, 8.0) if kind == "dof" else None
    factor = {"common_dof": 12.0, "hotelling": 80.0}.get(kind, np.inf)
    effects = GroupEffects(noise(size, 1), np.ones(size), dof, covariance, factor, kind == "hotelling")
    margins = margins_of(codes)
    assert compare_margins(effects, margins).log_p > np.log(0.05)
    apart = effects._replace(theta=effects.theta + 2.0 * codes[:, 2])
    test = compare_margins(apart, margins)
    assert test.log_p < np.log(1e-3)
    choice = AttributeChoice.of([apart], codes, margins, test)
    assert choice.at(0.01) == (2,)
    rows = explain_variation(apart, codes)
    assert [row.beside.log_p < np.log(0.01) for row in rows] == [False, False, True, False]
    assert rows[2].interval[0] <= rows[2].share <= rows[2].interval[1]


def test_the_order_of_cells_and_a_unit_do_not_matter() -> None:
    codes = crossing(4, 3, 2)
    theta = noise(24) + 0.8 * codes[:, 1]
    effects = GroupEffects(theta, np.exp(noise(24, 1) / 4), None)
    order = np.random.default_rng(2).permutation(24)
    moved = GroupEffects(effects.theta[order] * 8 + 100, effects.se[order] * 8, None)
    test, other = compare_margins(effects, margins_of(codes)), compare_margins(moved, margins_of(codes[order]))
    assert test.log_p_of_margins == pytest.approx(other.log_p_of_margins, rel=1e-6)
    assert test.log_p == pytest.approx(other.log_p, abs=0.15)  # other conditional draws of the same noise
    assert chosen(effects, codes) == chosen(moved, codes[order])


# ------------------------------------------------------------------------------------------------- attributes


@pytest.mark.parametrize(
    ("name", "expected"),
    [("none", ()), ("type", (2,)), ("additive", (1, 2)), ("interaction", (0, 1)), ("cell", (0, 1, 2))],
)
def test_the_attributes_that_matter_are_named(name: str, expected: tuple[int, ...]) -> None:
    codes = crossing(6, 3, 2)
    country, device, kind = codes.T
    theta = {
        "none": np.zeros(36),
        "type": 3.0 * kind,
        "additive": 3.0 * kind + 3.0 * (device == 1),
        "interaction": 8.0 * ((country == 2) & (device == 0)),
        "cell": 12.0 * ((country == 2) & (device == 0) & (kind == 1)),
    }[name]
    assert chosen(GroupEffects(theta + noise(36, 7), np.ones(36), None), codes) == expected


@pytest.mark.parametrize(("name", "expected"), [("region", (0,)), ("state", (1,)), ("zip", (2,))])
def test_the_highest_level_of_a_hierarchy_is_named(name: str, expected: tuple[int, ...]) -> None:
    zips = np.arange(120)
    codes = np.stack([zips // 30, zips // 5, zips], axis=1)
    theta = {"region": 1.5 * (codes[:, 0] == 1), "state": 4.0 * (codes[:, 1] == 3), "zip": 9.0 * (zips == 40)}[name]
    assert chosen(GroupEffects(theta + noise(120, 4), np.ones(120), None), codes) == expected


def test_any_level_can_be_asked_for_without_new_tests() -> None:
    codes = crossing(6, 3, 2)
    effects = GroupEffects(noise(36, 3) + 3.0 * codes[:, 2] + 0.9 * codes[:, 1], np.ones(36), None)
    margins = margins_of(codes)
    choice = AttributeChoice.of([effects], codes, margins, compare_margins(effects, margins))
    named = [choice.at(alpha) for alpha in (1e-300, 1e-12, 1e-4, 0.05, 0.2)]
    assert named[0] == ()
    assert named[1] == (2,)
    assert named[3] == (1, 2)
    assert all(choice.log_p_enough(margin) <= 0 for margin in margins)
    assert choice.log_p_enough(margins[-1]) == 0


def test_more_attributes_than_are_tested_can_be_enough() -> None:
    codes = crossing(3, 2, 3, 2, 3)
    four = sum(3.0 * (codes[:, a] == 1) for a in range(4))
    effects = GroupEffects(noise(len(codes), 11) + four, np.ones(len(codes)), None)
    assert chosen(effects, codes) == (0, 1, 2, 3)
    crossed = 9.0 * ((codes[:, :4] == [1, 0, 2, 1]).all(axis=1))
    assert chosen(effects._replace(theta=noise(len(codes), 12) + crossed), codes) == (0, 1, 2, 3)
    five = four + 3.0 * (codes[:, 4] == 1)
    assert chosen(effects._replace(theta=noise(len(codes), 13) + five), codes) == (0, 1, 2, 3, 4)


def test_nothing_is_named_where_nothing_differs() -> None:
    margins = margins_of(crossing(3, 2))
    tested = MarginTest(0.0, 0.0, np.zeros(len(margins)), 0)
    choice = AttributeChoice.of([GroupEffects(np.zeros(6), np.ones(6), None)], crossing(3, 2), margins, tested)
    assert choice.margin_at(0.05) is None
    assert choice.at(0.05) == ()


# -------------------------------------------------------------------------------------------------- explained


def rows_of(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    size = 600
    frame = pd.DataFrame(
        {"a": rng.choice(4, size, p=[0.4, 0.3, 0.2, 0.1]), "b": rng.choice(3, size), "c": rng.choice(2, size)}
    )
    frame["y"] = 0.15 * frame["a"] + 0.2 * (frame["b"] == 1) * (frame["c"] == 1) + rng.normal(size=size)
    return frame


def test_tests_agree_with_anova_of_the_rows() -> None:
    """The residual variance of all cells, known but for its degrees of freedom: exactly type II sums of squares."""
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    frame = rows_of(1)
    cells = frame.groupby(["a", "b", "c"])["y"].agg(["mean", "size", "var"]).reset_index()
    dof = float((cells["size"] - 1).sum())
    sigma = np.sqrt(float(((cells["size"] - 1) * cells["var"]).sum()) / dof)
    se = sigma / np.sqrt(cells["size"].to_numpy(dtype=float))
    effects = GroupEffects(cells["mean"].to_numpy(), se, None, None, dof)
    rows = explain_variation(effects, cells[["a", "b", "c"]].to_numpy())
    full = smf.ols("y ~ C(a) * C(b) * C(c)", frame).fit()
    additive = smf.ols("y ~ C(a) + C(b) + C(c)", frame).fit()
    for row, name in zip(rows, "abc", strict=False):
        others = " + ".join(f"C({other})" for other in "abc" if other != name)
        without = smf.ols(f"y ~ {others}", frame).fit()
        gained = (without.ssr - additive.ssr) / full.mse_resid
        assert row.beside.square == pytest.approx(gained)
        assert row.beside.effects == without.df_resid - additive.df_resid
        assert row.beside.errors == full.df_resid
        alone = smf.ols(f"y ~ C({name})", frame).fit()
        assert row.alone.square == pytest.approx(alone.ess / full.mse_resid)
    compared = anova_lm(additive, full)
    assert np.exp(rows[-1].beside.log_p) == pytest.approx(float(compared["Pr(>F)"].iloc[1]))


def test_tests_agree_with_anova_of_cell_means() -> None:
    import statsmodels.formula.api as smf
    from statsmodels.stats.anova import anova_lm

    codes = crossing(5, 3)
    se = np.exp(noise(15, 8) / 3)
    theta = noise(15, 9) + 0.5 * codes[:, 0]
    frame = pd.DataFrame({"a": codes[:, 0], "b": codes[:, 1], "y": theta})
    table = anova_lm(smf.wls("y ~ C(a) + C(b)", frame, weights=se**-2).fit(), typ=2)
    rows = explain_variation(GroupEffects(theta, se, None), codes)
    assert [row.beside.square for row in rows] == pytest.approx(table["sum_sq"].tolist())
    assert [row.beside.effects for row in rows] == table["df"].tolist()


def test_tests_agree_with_a_logistic_regression() -> None:
    import statsmodels.api as sm
    from scipy.stats import chi2

    rng = np.random.default_rng(11)
    codes = crossing(3, 2)
    size = np.full(6, 4000)
    events = rng.binomial(size, 0.2 + 0.02 * codes[:, 1] + 0.01 * codes[:, 0])
    rate = events / size
    # Anscombe's scale, on which the standard error does not depend on the rate.
    rows = explain_variation(GroupEffects(np.arcsin(np.sqrt(rate)), 1 / (2 * np.sqrt(size)), None), codes)

    def deviance(*columns: int) -> float:
        parts = [np.ones((6, 1)), *(np.eye(3)[codes[:, a]][:, 1 : codes[:, a].max() + 1] for a in columns)]
        model = sm.GLM(np.column_stack([events, size - events]), np.hstack(parts), family=sm.families.Binomial())
        return float(model.fit().deviance)

    for row, (with_it, without, freedom) in zip(
        rows, [((0, 1), (1,), 2), ((0, 1), (0,), 1), ((), (0, 1), 2)], strict=True
    ):
        gained = deviance(*without) - (deviance(*with_it) if with_it else 0.0)
        assert row.beside.effects == freedom
        assert np.exp(row.beside.log_p) == pytest.approx(chi2.sf(gained, freedom), rel=0.1, abs=0.01)


def test_shares_add_up_in_a_balanced_design() -> None:
    codes = crossing(5, 4)
    theta = 20.0 * codes[:, 0] + 10.0 * (codes[:, 1] == 0)
    rows = explain_variation(GroupEffects(theta, np.ones(20), None), codes)
    between = [np.var(20.0 * np.arange(5)), np.var([10.0, 0, 0, 0])]
    assert [row.share for row in rows[:2]] == pytest.approx(np.array(between) / sum(between), abs=0.002)
    assert rows[2].share == pytest.approx(0)
    assert all(row.interval[0] <= row.share <= row.interval[1] for row in rows)
    assert [row.attribute for row in rows] == [0, 1, None]


def test_noise_explains_nothing() -> None:
    codes = crossing(5, 4)
    rows = explain_variation(GroupEffects(noise(20, 12), np.ones(20), None), codes)
    assert min(row.beside.log_p for row in rows) > np.log(0.05)
    assert [row.share for row in rows] == [0.0, 0.0, 0.0]
    assert all(row.interval[1] > 0.3 for row in rows)


def test_nested_attributes_are_tested_beside_what_does_not_refine_them() -> None:
    states = np.arange(12)
    codes = np.stack([np.repeat(states // 4, 2), np.repeat(states, 2), np.tile([0, 1], 12)], axis=1)
    effects = GroupEffects(2.0 * (codes[:, 0] == 1) + noise(24, 13), np.ones(24), None)
    region, state, device, combinations = explain_variation(effects, codes)
    assert (region.beside.effects, state.beside.effects, device.beside.effects) == (2, 9, 1)
    assert region.beside.log_p < np.log(0.01) < state.beside.log_p
    assert combinations.beside.effects == 11


def test_fewer_than_two_cells_explain_nothing() -> None:
    assert explain_variation(GroupEffects(np.zeros(1), np.ones(1), None), np.zeros((1, 2), dtype=int)) == ()
    assert compare_margins(GroupEffects(np.zeros(1), np.ones(1), None), ()).log_p == 0


# ----------------------------------------------------------------------------- rules, new groups, constant attributes


def test_rules_speak_of_the_attributes_that_clusters_run_along() -> None:
    zips = np.arange(120)
    keys = [(int(i // 30), int(i // 5), int(i)) for i in zips]
    effects = 4.0 * (zips // 5 == 3) + noise(120, 4)
    result = fl.cluster(fl.Estimates(effects, np.ones(120), keys, attributes=["region", "state", "zip"]))
    assert [cluster.rule for cluster in result.clusters] == ["state ≠ 3", "state = 3"]


def test_new_combinations_have_the_cluster_of_their_levels() -> None:
    keys = [(a, b) for a in "xyz" for b in range(4)]
    effects = [6.0 * (a == "y") for a, _ in keys] + noise(12, 1)
    result = fl.cluster(fl.Estimates(effects, np.ones(12), keys, attributes=["a", "b"]))
    assert result.attributes == ("a",)
    rows = pd.DataFrame({"a": ["x", "y", "y", "w"], "b": [1, 2, 9, 1]})
    assert result.assign(rows)["cluster"].fillna(0).tolist() == [1, 2, 2, 0]


@pytest.mark.parametrize("first", [["same"] * 4, ["n1", "n2", "n3", "n4"]])
def test_attributes_that_add_nothing_by_themselves_are_not_named(first: list[str]) -> None:
    keys = list(zip("abcd", first, strict=True))
    result = fl.cluster(fl.Estimates([0.0, 0.1, 9.0, 0.0], np.ones(4), keys, attributes=["letter", "other"]))
    assert result.attributes == ("letter",)
    assert result.clusters[1].rule == "letter = c"


def test_what_matters_has_its_share_beside_attributes_that_do_not() -> None:
    for seed in range(40):
        codes = crossing(60, 3, 2)
        effects = GroupEffects(noise(len(codes), seed) + 0.5 * codes[:, 2], np.ones(len(codes)), None)
        kind = explain_variation(effects, codes)[2]
        assert kind.share > 0 or kind.alone.log_p > np.log(0.05)
