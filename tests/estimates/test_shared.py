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
from faultlines.estimates.fits import effects_of
from faultlines.estimates.shared import is_independent, own_variances


def covariance(groups: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((groups, groups + 3))
    return root @ root.T / groups


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
    for one, other in zip(alone.clusters, shared.clusters, strict=True):
        assert other.estimate == pytest.approx(one.estimate)
        assert other.se == pytest.approx(np.hypot(one.se, np.sqrt(0.7)), rel=1e-6)
    np.testing.assert_allclose(shared.belief.chances, alone.belief.chances)


def test_certificates_of_equal_correlations_are_those_of_smaller_errors() -> None:
    rng = np.random.default_rng(5)
    theta, se = rng.standard_normal(8), rng.uniform(0.5, 2, 8)
    for against in ("overall", "all pairs", 3):
        alone = fl.certify(fl.Estimates(theta, se), gap=3.0, against=against)
        shared = fl.certify(fl.Estimates(theta, None, covariance=np.diag(se**2) + 0.7), gap=3.0, against=against)
        assert shared.smallest == pytest.approx(alone.smallest, rel=1e-9)
        assert shared.critical == pytest.approx(alone.critical, rel=0.02)
        assert [one.status for one in shared.groups] == [one.status for one in alone.groups]


def test_pairs_of_groups_that_go_together_are_told_apart_better() -> None:
    matrix = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    pairs = fl.certify(fl.Estimates([0.0, 1.5, 0.5], None, covariance=matrix), gap=0.1, against="all pairs")
    assert pairs.verdict == "differs"
    assert fl.certify(fl.Estimates([0.0, 1.5, 0.5], [1.0] * 3), gap=0.1, against="all pairs").verdict == "cannot tell"


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.eye(2), r"shape \(2, 2\), but there are 3 groups"),
        (np.diag([1.0, 0.0, 1.0]), "covariance of group '1': must be finite, with variances above zero"),
        (np.full((3, 3), np.nan), "must be finite"),
        (np.array([[1, 0.5, 0], [0.1, 1, 0], [0, 0, 1]]), "that of 0 with 1 is not that of 1 with 0|is not symmetric"),
        (np.ones((3, 3)), "is not positive definite"),
        (np.array([[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]]), "is not positive definite"),
        ("no", "is not numeric"),
    ],
)
def test_a_matrix_that_is_none_is_refused(matrix: Any, words: str) -> None:
    with pytest.raises(fl.InputError, match=words):
        fl.Estimates([0.0, 1.0, 2.0], None, covariance=matrix)


def test_errors_in_another_order_than_the_covariance_are_refused() -> None:
    with pytest.raises(fl.InputError, match="not the square root of the diagonal of covariance"):
        fl.Estimates([0.0, 1.0], [1.0, 2.0], covariance=np.diag([4.0, 1.0]))
    with pytest.raises(fl.InputError, match="goes with one effect per group"):
        fl.Estimates([[0.0, 1.0], [1.0, 0.0]], None, covariance=np.eye(2))
    with pytest.raises(fl.InputError, match="looks at groups that share data"):
        fl.Monitor(looks=2).update(fl.Estimates([0.0, 1.0], None, covariance=np.eye(2)))
    with pytest.raises(fl.InputError, match="goes with a known covariance"):
        fl.cluster(fl.Estimates([0.0, 1.0, 2.0], None, dof=9, covariance=covariance(3, 0)), tolerance=0.1)


def test_every_guarantee_takes_a_covariance() -> None:
    matrix = covariance(6, 1) + 0.5
    effects = fl.Estimates(np.repeat([0.0, 30.0], 3), None, list("abcdef"), covariance=matrix)
    for guarantee in ("calibrated", "holdout", "folds", "bonferroni", fl.Calibrated(scan=False)):
        assert fl.cluster(effects, guarantee=guarantee).n_clusters == 2, guarantee
    assert fl.cluster(effects, tolerance=1.0).n_clusters == 2
    assert 0 < fl.power(effects, runs=40).smallest < 20
    found: Any = fl.cluster(effects)
    assert fl.confirm(found, effects).verdict == "confirmed"
    again = found.groups.estimates.subset(np.arange(6) < 4)
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


FITS: list[dict[str, Any]] = [{}, {"cov_type": "HC1"}, {"cov_type": "cluster"}, {"cov_type": "cluster", "use_t": True}]


@pytest.mark.parametrize("how", FITS, ids=str)
@pytest.mark.parametrize("formula", ["y ~ C(g) + C(g):t", "y ~ C(g) * t", "y ~ t + t:C(g) + C(g)"])
def test_two_groups_have_the_p_of_the_wald_test(formula: str, how: dict[str, Any]) -> None:
    data = rows("ab")
    given = how | ({"cov_kwds": {"groups": data["u"]}} if how.get("cov_type") == "cluster" else {})
    fit = smf.ols(formula, data).fit(**given)
    found = fl.Estimates.from_fit(fit, treatment="t", by="g")
    assert list(found.labels) == ["a", "b"]
    full = smf.ols("y ~ C(g) * t", data).fit(**given)
    assert fl.cluster(found).pvalue == pytest.approx(float(full.pvalues["C(g)[T.b]:t"]), abs=1e-9)


def test_three_groups_have_the_effects_of_the_fit_and_its_covariance() -> None:
    data = rows()
    each = smf.ols("y ~ C(g) + C(g):t", data).fit(cov_type="HC3")
    coded = smf.ols("y ~ C(g) * t", data).fit(cov_type="HC3")
    one: Any = fl.Estimates.from_fit(each, treatment="t")
    other: Any = fl.Estimates.from_fit(coded, treatment="t")
    np.testing.assert_allclose(one.theta, other.theta)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-12)
    names = [f"C(g)[{level}]:t" for level in "abc"]
    listed = fl.Estimates.from_fit(each, names)
    mapped = fl.Estimates.from_fit(coded, {"a": "t", "b": ["t", "C(g)[T.b]:t"], "c": ["t", "C(g)[T.c]:t"]})
    for made in (listed, mapped):
        assert list(made.labels) == list("abc")
        np.testing.assert_allclose(made.theta, one.theta)


def test_names_of_other_libraries_are_understood() -> None:
    def fit(*names: str, **more: Any) -> Any:
        return SimpleNamespace(params=dict.fromkeys(names, 1.0), cov=np.eye(len(names)), **more)

    assert effects_of(fit("g::DE:t", "g::FR:t", _df_t=9.0), None, "t", None, None).labels == ["DE", "FR"]
    assert effects_of(fit("g::DE:t", "g::FR:t", _df_t=9.0), None, "t", None, None).dof == 9
    assert effects_of(fit("t:g[DE]", "t:g[a:b]"), None, "t", None, None).labels == ["DE", "a:b"]
    coded = fit("t", "g[T.FR]:t", debiased=True, df_resid=7)
    assert effects_of(coded, None, "t", "DE", None).dof == 7
    assert effects_of(coded, None, "t", "DE", 5.0).dof == 5
    assert effects_of(coded, None, "t", "DE", None).labels == ["DE", "FR"]
    assert effects_of(coded, None, "t", None, None).labels == ["(reference)", "FR"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "one of the two is needed"),
        ({"treatment": "x"}, "interacts with no group in this fit"),
        ({"terms": ["C(g)[z]:t"]}, "no such coefficient"),
        ({"terms": "C(g)[a]:t"}, "names no coefficients"),
        ({"terms": ["C(g)[a]:t", "C(g)[a]:t"]}, "is there twice"),
        ({"treatment": "t", "reference": "b"}, "has a coefficient of its own"),
    ],
)
def test_what_the_fit_does_not_have_is_named(given: dict[str, Any], words: str) -> None:
    fit = smf.ols("y ~ C(g) * t", rows()).fit()
    with pytest.raises(fl.InputError, match=words):
        fl.Estimates.from_fit(fit, **given)
    with pytest.raises(fl.InputError, match="no coefficients with a covariance"):
        fl.Estimates.from_fit(object(), treatment="t")


@pytest.mark.parametrize(
    ("formula", "treatment", "words"),
    [
        ("y ~ C(g) * t + C(h) * t", "t", r"several columns: C\(g\), C\(h\)"),
        ("y ~ C(g) * C(h) * t", "t", "not a difference between two groups"),
        ("y ~ C(g, Sum) * t", "t", "not a difference between two groups"),
        ("y ~ C(g, Helmert) * t", "t", "not a difference between two groups"),
        ("y ~ C(g) * t + again", "t", "only 6 can be told apart"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_coefficients_that_are_no_effects_of_groups_are_refused(formula: str, treatment: str, words: str) -> None:
    data = rows().assign(h=lambda d: d["u"] % 2, again=lambda d: d["t"])
    with pytest.raises(fl.InputError, match=words):
        fl.Estimates.from_fit(smf.ols(formula, data).fit(), treatment=treatment)


def test_a_level_of_the_treatment_must_be_named_and_labels_may_look_like_contrasts() -> None:
    data = rows().assign(arm=lambda d: np.array(list("ABC"))[d["u"] % 3])
    fit = smf.ols("y ~ C(g) * arm", data).fit()
    with pytest.raises(fl.InputError, match=r"several levels: arm\[T.B\], arm\[T.C\]"):
        fl.Estimates.from_fit(fit, treatment="arm")
    one = fl.Estimates.from_fit(fit, treatment="arm[T.C]", by="g")
    assert list(one.labels) == ["a", "b", "c"]
    assert one.theta[0] == pytest.approx(fit.params["arm[T.C]"])
    named = rows().assign(g=lambda d: d["g"].map({"a": "S. Korea", "b": "D.C.", "c": "R. Congo"}))
    found = fl.Estimates.from_fit(smf.ols("y ~ 0 + C(g) + C(g):t", named).fit(), treatment="t")
    assert sorted(map(str, found.labels)) == ["D.C.", "R. Congo", "S. Korea"]


def test_a_treatment_of_two_words_and_missing_groups_are_understood() -> None:
    data = rows().assign(arm=lambda d: d["t"] == 1)
    data.loc[:3, "g"] = None
    found = fl.Estimates.from_fit(smf.ols("y ~ C(g) * arm", data).fit(), treatment="arm", by="g")
    assert list(found.labels) == ["a", "b", "c"]
    np.testing.assert_allclose(
        found.theta, fl.Estimates.from_fit(smf.ols("y ~ C(g) * t", data).fit(), treatment="t").theta
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dof": "a"}, "dof='a'"),
        ({"dof": np.nan}, "dof=nan"),
        ({"clusters": 1}, "clusters=1"),
        ({"terms": {"a": 3}}, "not the name of a coefficient"),
        ({"reference": ["a"]}, "is not a name"),
    ],
)
def test_wrong_arguments_beside_a_fit_are_named(change: dict[str, Any], words: str) -> None:
    fit = smf.ols("y ~ C(g) * t", rows()).fit()
    with pytest.raises(fl.InputError, match=words):
        fl.Estimates.from_fit(fit, **({"treatment": "t"} | change if "terms" not in change else change))


def test_names_of_a_covariance_put_it_in_order() -> None:
    labels, matrix = ["a", "b", "c"], np.diag([1.0, 4.0, 9.0])
    named = pd.DataFrame(matrix, labels, labels).loc[["c", "a", "b"], ["c", "a", "b"]]
    np.testing.assert_array_equal(fl.Estimates([0, 1, 2], None, labels, covariance=named).se, [1, 2, 3])
    for wrong in (named.rename(index={"c": "d"}), named[["a", "b", "c"]]):
        with pytest.raises(fl.InputError, match="other names than the groups"):
            fl.Estimates([0, 1, 2], None, labels, covariance=wrong)

    class Fit:
        params = pd.Series([0.0, 1.0, 2.0], labels)
        covariance = named

    np.testing.assert_array_equal(fl.Estimates.from_fit(Fit(), labels).se, [1, 2, 3])
    Fit.params = pd.Series([0.0, 1.0, 2.0], ["a", "a", "c"])
    Fit.covariance = matrix
    with pytest.raises(fl.InputError, match="several coefficients have this name"):
        fl.Estimates.from_fit(Fit(), {"x": "a", "y": "c"})


def test_a_covariance_that_is_estimated_as_a_whole_has_hotellings_law() -> None:
    data = rows()
    fit = smf.ols("y ~ C(g) + C(g):t", data).fit(cov_type="cluster", cov_kwds={"groups": data["u"]})
    found: Any = fl.Estimates.from_fit(fit, treatment="t")
    assert found.covariance_dof == 59
    assert fl.Estimates.from_fit(fit, treatment="t", clusters=9).covariance_dof == 8
    p = [fl.cluster(found.changed(covariance_dof=dof, dof=None)).pvalue for dof in (2, 8, 59, np.inf)]
    assert p == sorted(p, reverse=True)
    assert p[0] > p[-1]
    for dof, words in ((1, "too small for 3 groups"), ("x", "must be a number")):
        with pytest.raises(fl.InputError, match=words):
            found.changed(covariance_dof=dof)
    with pytest.raises(fl.InputError, match="goes with covariance"):
        fl.Estimates([0, 1], [1, 1], covariance_dof=5)
