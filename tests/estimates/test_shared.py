"""Groups that share data: what is each one's own, what is refused, and effects out of regressions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from hypothesis import given, settings

import faultlines as fl
from faultlines.estimates.estimates import effects_of
from faultlines.estimates.validation import is_independent, own_variances
from tests.refused import refused


def covariance(groups: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((groups, groups + 3))
    return root @ root.T / groups


@settings(deadline=None)
@given(groups=st.integers(2, 8), seed=st.integers(0, 99))
def test_what_all_have_in_common_changes_no_difference(groups: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    own, common = rng.uniform(0.5, 2, groups), rng.uniform(0, 1, groups)
    matrix = np.diag(own) + common[:, None] + common
    np.testing.assert_allclose(np.sum(own_variances(matrix)) if groups == 2 else own_variances(matrix),
                               np.sum(own) if groups == 2 else own)  # fmt: skip
    assert is_independent(matrix, own_variances(matrix))


def test_own_variances_are_above_zero_whatever_the_matrix() -> None:
    for seed in range(200):
        matrix = covariance(int(np.random.default_rng(seed).integers(2, 9)), seed)
        assert own_variances(matrix).min() > 0


@settings(deadline=None, max_examples=25)
@given(groups=st.integers(2, 9), seed=st.integers(0, 999), scale=st.floats(1e-3, 1e3), shift=st.floats(-1e3, 1e3))
def test_order_shift_scale_and_what_is_common_do_not_change_p(
    groups: int, seed: int, scale: float, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    theta, matrix, common = 2 * rng.standard_normal(groups), covariance(groups, seed), rng.uniform(0, 2)
    p = fl.cluster(fl.Estimates(theta, None, covariance=matrix)).pvalue
    order = rng.permutation(groups)
    others = (
        fl.Estimates(theta[order], None, covariance=matrix[np.ix_(order, order)]),
        fl.Estimates(scale * theta + shift, None, covariance=scale**2 * matrix),
        fl.Estimates(theta, None, covariance=matrix + common),
    )
    for other in others:
        assert fl.cluster(other).pvalue == pytest.approx(p, rel=1e-4)


def test_equal_correlations_are_independent_groups_with_smaller_errors() -> None:
    rng = np.random.default_rng(3)
    theta, se = rng.standard_normal(12) * 3, rng.uniform(0.5, 2, 12)
    alone: Any = fl.cluster(fl.Estimates(theta, se))
    shared: Any = fl.cluster(fl.Estimates(theta, None, covariance=np.diag(se**2) + 0.7))
    assert shared.pvalue == pytest.approx(alone.pvalue, rel=1e-9)
    assert shared.labels.tolist() == alone.labels.tolist()
    for cluster, other in zip(alone.clusters, shared.clusters, strict=True):
        assert other.estimate == pytest.approx(cluster.estimate)
        assert other.se == pytest.approx(np.hypot(cluster.se, np.sqrt(0.7)), rel=1e-6)
    np.testing.assert_allclose(shared.posterior.probabilities, alone.posterior.probabilities)


def test_certificates_of_equal_correlations_are_those_of_smaller_errors() -> None:
    rng = np.random.default_rng(5)
    theta, se = rng.standard_normal(8), rng.uniform(0.5, 2, 8)
    for against in ("overall", "all pairs", "3"):
        alone = fl.certify(fl.Estimates(theta, se), gap=3.0, against=against)
        shared = fl.certify(fl.Estimates(theta, None, covariance=np.diag(se**2) + 0.7), gap=3.0, against=against)
        assert shared.certifiable == pytest.approx(alone.certifiable, rel=1e-9)
        assert shared.critical == pytest.approx(alone.critical, rel=0.02)
        assert [group.status for group in shared.groups] == [group.status for group in alone.groups]


def test_pairs_of_groups_that_go_together_are_told_apart_better() -> None:
    matrix = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    pairs = fl.certify(fl.Estimates([0.0, 1.5, 0.5], None, covariance=matrix), gap=0.1, against="all pairs")
    assert pairs.verdict == "failed"
    assert fl.certify(fl.Estimates([0.0, 1.5, 0.5], [1.0] * 3), gap=0.1, against="all pairs").verdict == "inconclusive"


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.eye(2), "mismatch: covariance"),
        (np.diag([1.0, 0.0, 1.0]), "invalid data: covariance"),
        (np.full((3, 3), np.nan), "invalid data: covariance"),
        (np.array([[1, 0.5, 0], [0.1, 1, 0], [0, 0, 1]]), "invalid data: covariance"),
        (np.ones((3, 3)), "invalid data: covariance"),
        (np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]), "invalid data: covariance"),
        ("no", "wrong type: covariance"),
    ],
)
def test_a_matrix_that_is_none_is_refused(matrix: Any, words: str) -> None:
    with refused(words):
        fl.Estimates([0.0, 1.0, 2.0], None, covariance=matrix)


def test_errors_in_another_order_than_the_covariance_are_refused() -> None:
    with refused("conflict: se"):
        fl.Estimates([0.0, 1.0], [1.0, 2.0], covariance=np.diag([4.0, 1.0]))
    with refused("unsupported: covariance"):
        fl.Estimates([[0.0, 1.0], [1.0, 0.0]], None, covariance=np.eye(2))
    with refused("unsupported: dependence"):
        fl.Monitor(looks=2, dependence="independent").update(fl.Estimates([0.0, 1.0], None, covariance=np.eye(2)))
    with refused("unsupported: dof"):
        fl.cluster(fl.Estimates([0.0, 1.0, 2.0], None, dof=9, covariance=covariance(3, 0)), tolerance=0.1)


def test_every_guarantee_takes_a_covariance() -> None:
    matrix = covariance(6, 1) + 0.5
    effects = fl.Estimates(np.repeat([0.0, 30.0], 3), None, list("abcdef"), covariance=matrix)
    for guarantee in ("calibrated", "holdout", "folds", "bonferroni", fl.Calibrated(scan=False)):
        assert fl.cluster(effects, guarantee=guarantee).n_clusters == 2, guarantee
    assert fl.cluster(effects, tolerance=1.0).n_clusters == 2
    assert 0 < fl.power(effects, runs=40).minimum_detectable < 20
    result: Any = fl.cluster(effects)
    assert fl.confirm(result, effects).verdict == "confirmed"
    again = result.groups.estimates.subset(np.arange(6) < 4)
    np.testing.assert_array_equal(again.covariance, matrix[:4, :4])


# -------------------------------------------------------------------------------------------------------- regressions


def rows(groups: str = "abc") -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "y": rng.standard_normal(400) + rng.standard_normal(60)[np.arange(400) % 60],
            "t": rng.integers(0, 2, 400),
            "g": rng.choice(list(groups), 400),
            "u": np.arange(400) % 60,
        }
    )


def terms_of(fit: Any, groups: str) -> dict[str, list[str]]:
    """The coefficients that add up to the effect of t in each group: the interaction, and the main effect if any."""
    main = ["t"] if "t" in fit.params.index else []
    return {g: main + [name for name in fit.params.index if f"{g}]" in name and "t" in name.split(":")] for g in groups}


FITS: list[dict[str, Any]] = [{}, {"cov_type": "HC1"}, {"cov_type": "cluster"}, {"cov_type": "cluster", "use_t": True}]


@pytest.mark.parametrize("how", FITS, ids=str)
@pytest.mark.parametrize("formula", ["y ~ C(g) + C(g):t", "y ~ C(g) * t", "y ~ t + t:C(g) + C(g)"])
def test_two_groups_have_the_p_of_the_wald_test(formula: str, how: dict[str, Any]) -> None:
    data = rows("ab")
    options = how | ({"cov_kwds": {"groups": data["u"]}} if how.get("cov_type") == "cluster" else {})
    fit = smf.ols(formula, data).fit(**options)
    estimates = fl.Estimates.from_fit(fit, terms_of(fit, "ab"), by="g")
    assert list(estimates.labels) == ["a", "b"]
    full = smf.ols("y ~ C(g) * t", data).fit(**options)
    assert fl.cluster(estimates).pvalue == pytest.approx(float(full.pvalues["C(g)[T.b]:t"]), abs=1e-9)


def test_three_groups_have_the_effects_of_the_fit_and_its_covariance() -> None:
    data = rows()
    each = smf.ols("y ~ C(g) + C(g):t", data).fit(cov_type="HC3")
    coded = smf.ols("y ~ C(g) * t", data).fit(cov_type="HC3")
    names = [f"C(g)[{level}]:t" for level in "abc"]
    listed: Any = fl.Estimates.from_fit(each, names)
    mapped: Any = fl.Estimates.from_fit(coded, {"a": "t", "b": ["t", "C(g)[T.b]:t"], "c": ["t", "C(g)[T.c]:t"]})
    np.testing.assert_allclose(listed.theta, mapped.theta)
    np.testing.assert_allclose(listed.covariance, mapped.covariance, atol=1e-12)
    assert list(listed.labels) == names
    assert list(mapped.labels) == list("abc")
    terms = {("left", "a"): names[0], ("left", "b"): names[1], ("right", "a"): names[2]}
    crossed: Any = fl.Estimates.from_fit(each, terms, by=["side", "g"])
    assert (crossed.attributes, list(crossed.labels)) == (("side", "g"), list(terms))
    np.testing.assert_array_equal(crossed.covariance, listed.covariance)


def test_fits_of_other_libraries_are_read() -> None:
    def fit(*names: str, **more: Any) -> Any:
        return SimpleNamespace(params=dict.fromkeys(names, 1.0), cov=np.eye(len(names)), **more)

    plain = effects_of(fit("g::DE:t", "g::FR:t", _df_t=9.0), {"DE": "g::DE:t", "FR": "g::FR:t"})
    assert (plain.labels, plain.dof) == (["DE", "FR"], 9)
    coded = fit("t", "g[T.FR]:t", debiased=True, df_resid=7)
    terms = {"DE": "t", "FR": ["t", "g[T.FR]:t"]}
    assert effects_of(coded, terms).dof == 7
    assert effects_of(coded, terms, 5.0).dof == 5
    assert effects_of(coded, terms).values.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (None, "empty: terms"),
        ("C(g)[T.b]:t", "empty: terms"),
        (["C(g)[z]:t"], "not found: terms"),
        (["t", "t"], "duplicate: terms"),
        ({"a": 3}, "wrong type: terms"),
    ],
)
def test_coefficients_that_the_fit_does_not_have_are_refused(terms: Any, expected: str) -> None:
    fit = smf.ols("y ~ C(g) * t", rows()).fit()
    with refused(expected):
        fl.Estimates.from_fit(fit, terms)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_covariance_that_is_not_finite_is_refused_without_a_warning(value: float) -> None:
    matrix = np.eye(3)
    matrix[0, 0] = value
    fit = SimpleNamespace(params=pd.Series([1.0, 2.0, 3.0], index=list("abc")), df_resid=50, cov_params=lambda: matrix)
    with pytest.raises(fl.InputError):
        fl.Estimates.from_fit(fit, {"x": ["a", "b"], "y": ["a", "c"]})


@pytest.mark.filterwarnings("ignore")
def test_fits_without_effects_are_refused() -> None:
    with refused("wrong type: fit"):
        fl.Estimates.from_fit(object(), ["t"])
    data = rows().assign(again=lambda d: d["t"])
    with refused("invalid data: fit"):
        fl.Estimates.from_fit(smf.ols("y ~ C(g) * t + again", data).fit(), ["t"])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"dof": "a"}, "wrong type: dof"),
        ({"dof": np.nan}, "wrong type: dof"),
        ({"clusters": 1}, "out of range: clusters"),
    ],
)
def test_wrong_arguments_beside_a_fit_are_named(change: dict[str, Any], expected: str) -> None:
    fit = smf.ols("y ~ C(g) * t", rows()).fit()
    with refused(expected):
        fl.Estimates.from_fit(fit, ["t"], **change)


def test_a_frame_with_integer_names_is_matched_by_them_too() -> None:
    matrix = pd.DataFrame(np.diag([1.0, 4.0, 9.0]), [0, 1, 2], [0, 1, 2])
    np.testing.assert_array_equal(fl.Estimates([0, 1, 2], None, [2, 1, 0], covariance=matrix).se, [3, 2, 1])
    with refused("mismatch: covariance"):
        fl.Estimates([0, 1, 2], None, ["a", "b", "c"], covariance=matrix)


def test_names_of_a_covariance_put_it_in_order() -> None:
    labels, matrix = ["a", "b", "c"], np.diag([1.0, 4.0, 9.0])
    named = pd.DataFrame(matrix, labels, labels).loc[["c", "a", "b"], ["c", "a", "b"]]
    np.testing.assert_array_equal(fl.Estimates([0, 1, 2], None, labels, covariance=named).se, [1, 2, 3])
    for wrong in (named.rename(index={"c": "d"}), named[["a", "b", "c"]]):
        with refused("mismatch: covariance"):
            fl.Estimates([0, 1, 2], None, labels, covariance=wrong)

    class Fit:
        params = pd.Series([0.0, 1.0, 2.0], labels)
        covariance = named

    np.testing.assert_array_equal(fl.Estimates.from_fit(Fit(), labels).se, [1, 2, 3])
    Fit.params = pd.Series([0.0, 1.0, 2.0], ["a", "a", "c"])
    Fit.covariance = matrix
    with refused("ambiguous: terms"):
        fl.Estimates.from_fit(Fit(), {"x": "a", "y": "c"})


def test_a_covariance_that_is_estimated_as_a_whole_has_hotellings_law() -> None:
    data = rows()
    fit = smf.ols("y ~ C(g) + C(g):t", data).fit(cov_type="cluster", cov_kwds={"groups": data["u"]})
    terms = terms_of(fit, "abc")
    estimates: Any = fl.Estimates.from_fit(fit, terms)
    assert estimates.covariance_dof == 59
    assert fl.Estimates.from_fit(fit, terms, clusters=9).covariance_dof == 8
    p = [fl.cluster(estimates.changed(covariance_dof=dof, dof=None)).pvalue for dof in (2, 8, 59, np.inf)]
    assert p == sorted(p, reverse=True)
    assert p[0] > p[-1]
    for dof, words in ((1, "too few: covariance_dof"), ("x", "wrong type: covariance_dof")):
        with refused(words):
            estimates.changed(covariance_dof=dof)
    with refused("conflict: covariance_dof"):
        fl.Estimates([0, 1], [1, 1], covariance_dof=5)
