"""Clusters along attributes: which are named, what they explain, and that every cell has its cluster through them."""

from __future__ import annotations

import itertools
import math
import pickle
from typing import Any

import numpy as np
import pytest

import faultlines as fl
from faultlines import formats
from tests.refused import refused

COUNTRIES = [f"c{i}" for i in range(20)]
DEVICES, TYPES = ["mobile", "web", "tv"], ["new", "returning"]
KEYS = np.array(list(itertools.product(range(20), range(3), range(2))))
LABELS = [(COUNTRIES[a], DEVICES[b], TYPES[c]) for a, b, c in KEYS]
NAMES = ["country", "device", "type"]


def cells(effects: Any, seed: int = 0, **options: Any) -> fl.Estimates:
    rng = np.random.default_rng(seed)
    se = rng.uniform(0.5, 1.5, len(KEYS))
    theta = np.asarray(effects) + se * rng.standard_normal(len(KEYS))
    return fl.Estimates(theta, se, LABELS, rng.integers(50, 500, len(KEYS)), attributes=NAMES, **options)


def test_one_attribute_is_named_and_cells_follow_it() -> None:
    c = fl.cluster(cells(1.5 * KEYS[:, 2]))
    assert (c.verdict, c.attributes, c.n_clusters) == ("differ", ("type",), 2)
    assert (c.labels == KEYS[:, 2] + 1).all()
    by_type = c.by_attributes
    assert [cluster.members for cluster in by_type.clusters] == [("new",), ("returning",)]
    assert len(by_type.groups) == 2
    assert by_type.pvalue == pytest.approx(c.pvalue, rel=1e-9)
    assert [cluster.estimate for cluster in c.clusters] == [cluster.estimate for cluster in by_type.clusters]
    shares = {row.attribute: row for row in c.explained()}
    assert shares["type"].share > 0.9
    assert shares["type"].pvalue < 1e-10
    assert shares["country"].pvalue > 0.01
    assert [shares[name].levels for name in NAMES] == [20, 3, 2]
    assert {row["cluster"] for row in c.to_dicts() if row["type"] == "new"} == {1}


def test_a_combination_is_named_where_only_it_is_enough() -> None:
    affected = np.isin(KEYS[:, 0], [3, 4]) & (KEYS[:, 1] == 0)
    c = fl.cluster(cells(np.where(affected, -8.0, 0.0)))
    assert c.attributes == ("country", "device")
    assert (np.flatnonzero(c.labels == 1) == np.flatnonzero(affected)).all()
    assert c.clusters[0].rule.condition == "country in {c3, c4} and device = mobile"
    assert {row.attribute: row.pvalue < 0.001 for row in c.explained()}["(combinations)"]


def test_nothing_is_named_where_nothing_differs_and_all_where_margins_are_off() -> None:
    nothing = fl.cluster(cells(np.zeros(len(KEYS)), seed=5))
    assert (nothing.verdict, nothing.attributes, nothing.n_clusters) == ("no difference", (), 1)
    assert nothing.by_attributes is nothing
    off = fl.cluster(cells(3.0 * KEYS[:, 2]), margins=False)
    assert off.attributes == tuple(NAMES)
    assert "margins" in {note.code for note in off.notes}
    with refused("wrong type: margins"):
        fl.cluster(cells(np.zeros(len(KEYS))), margins="yes")  # type: ignore[arg-type]


def test_other_levels_of_significance_follow() -> None:
    c = fl.cluster(cells(0.9 * KEYS[:, 2] + 0.9 * (KEYS[:, 1] == 0)))
    assert set(c.attributes) <= set(NAMES)
    strict = c.at(c.pvalue / 10)
    assert (strict.n_clusters, strict.attributes) == (1, ())
    levels, now, _ = c.slider_levels()
    assert levels[now] is c
    for level in levels:
        assert (level.at(level.alpha).labels == level.labels).all()
        assert level.attributes == c.at(level.alpha).attributes
    steps = c.path()
    assert steps[1].pvalue == pytest.approx(c.pvalue)
    assert (steps[c.n_clusters - 1].labels == c.labels).all()


def test_nested_attributes_report_the_highest_level_that_explains() -> None:
    zips = np.arange(240)
    labels = [(f"r{z // 60}", f"s{z // 12}", f"z{z}") for z in zips]
    rng = np.random.default_rng(3)
    theta = 3.0 * (zips // 12 == 7) + rng.standard_normal(240)
    c = fl.cluster(fl.Estimates(theta, np.ones(240), labels, attributes=["region", "state", "zip"]))
    assert c.attributes == ("state",)
    assert c.clusters[1].rule.condition == "state = s7"
    nested = {(note.fields["finer"], note.fields["coarser"]) for note in c.notes if note.code == "nested attributes"}
    assert nested == {("state", "region"), ("zip", "region"), ("zip", "state")}


def test_attributes_that_divide_the_groups_in_the_same_way_are_said() -> None:
    labels = [(f"r{i}", f"code {i}", device) for i in range(8) for device in "xyz"]
    theta = 6.0 * (np.arange(24) // 3 == 5) + np.random.default_rng(5).standard_normal(24)
    c = fl.cluster(fl.Estimates(theta, np.ones(24), labels, attributes=["region", "code", "device"]))
    assert c.attributes == ("region",)
    assert [note.fields for note in c.notes if note.code == "equal attributes"] == [{"attributes": ["region", "code"]}]


def test_combinations_that_are_needed_have_their_share_however_small() -> None:
    """Effects of age are large, and differ a little by sex."""
    labels = list(itertools.product(range(5), "fm", "xy"))
    age, sex = np.array([label[0] for label in labels]), np.array([label[1] == "f" for label in labels])
    theta = 10.0 * age + 1.0 * sex * (age - 2) + 0.1 * np.random.default_rng(0).standard_normal(20)
    c = fl.cluster(fl.Estimates(theta, [0.1] * 20, labels, attributes=["age", "sex", "place"]))
    combinations = c.explained()[-1]
    assert c.attributes == ("age", "sex")
    assert 0 < combinations.share < 0.05
    assert ["combinations" in note.text for note in c.notes if note.code == "explained"] == [True]


def test_a_single_attribute_is_as_without_margins() -> None:
    estimates = fl.simulate.planted([0, 3], [15, 15]).estimates
    with_margins, without = fl.cluster(estimates), fl.cluster(estimates, margins=False)
    assert with_margins.pvalue == without.pvalue
    assert with_margins.to_dicts() == without.to_dicts()


@pytest.mark.parametrize("options", [{"dof": 12.0}, {"dof": np.inf}], ids=["few degrees of freedom", "known"])
def test_degrees_of_freedom_reach_the_margins(options: dict[str, Any]) -> None:
    c = fl.cluster(cells(2.0 * KEYS[:, 2], **options))
    assert c.attributes == ("type",)


def test_a_covariance_reaches_the_margins() -> None:
    estimates = cells(2.0 * KEYS[:, 2])
    shared = np.diag(estimates.se**2) + 0.3
    c = fl.cluster(fl.Estimates(estimates.theta, None, LABELS, attributes=NAMES, covariance=shared))
    assert c.attributes == ("type",)
    assert {row.attribute for row in c.explained()} == {*NAMES, "(combinations)"}


def test_rows_are_measured_once_and_clustered_along_attributes() -> None:
    pl = pytest.importorskip("polars")
    rng = np.random.default_rng(1)
    rows = 24_000
    frame = pl.DataFrame(
        {
            "country": rng.choice(["DE", "FR", "IN", "US"], rows),
            "device": rng.choice(["app", "web"], rows),
            "type": rng.choice(TYPES, rows),
        }
    )
    frame = frame.with_columns(
        bought=pl.Series(rng.random(rows) < np.where(frame["type"].to_numpy() == "new", 0.10, 0.15))
    )
    c = fl.cluster(frame, ["country", "device", "type"], fl.rate("bought"))
    assert c.attributes == ("type",)
    assert c.clusters[1].observed == pytest.approx(0.15, abs=0.01)
    assert c.assign(frame)["cluster"].to_list() == [1 + (t == "returning") for t in frame["type"].to_list()]


def test_the_spread_and_the_bound_are_in_every_result() -> None:
    c = fl.cluster(fl.simulate.planted([0, 4, 8], [20, 20, 20]).estimates)
    assert c.n_clusters == 3
    assert 2 <= c.at_least <= 3
    assert c.spread is not None
    assert c.spread.lower < c.spread.estimate < c.spread.upper
    assert not c.is_continuum
    rng = np.random.default_rng(2)
    smooth = fl.cluster(fl.Estimates(3 * rng.standard_normal(80) + rng.standard_normal(80), np.ones(80)))
    assert smooth.is_continuum
    assert "continuum" in {note.code for note in smooth.notes}
    means = smooth.member_means
    assert means is not None
    assert 0 < means.gap < smooth.clusters[-1].estimate - smooth.clusters[0].estimate  # type: ignore[operator]


ADDITIVE = 2.5 * (KEYS[:, 0] < 5) + 2.0 * (KEYS[:, 2] == 1)


def test_effects_that_add_up_are_described_by_attribute() -> None:
    c = fl.cluster(cells(ADDITIVE))
    assert c.attributes == ("country", "type")
    assert [term.groups.attributes for term in c.additive] == [("country",), ("type",)]
    country, kind = c.additive
    assert [set(cluster.members) for cluster in country.clusters] == [set(COUNTRIES[5:]), set(COUNTRIES[:5])]
    assert [cluster.members for cluster in kind.clusters] == [("new",), ("returning",)]
    gaps = [term.clusters[1].effects[0].estimate - term.clusters[0].effects[0].estimate for term in c.additive]
    assert gaps == pytest.approx([2.5, 2.0], abs=0.4)
    terms = c.to_dict()["additive"]
    assert [term["attributes"] for term in terms] == [["country"], ["type"]]
    estimates = [level["estimate"] for level in terms[0]["levels"]]
    assert estimates == pytest.approx(country.estimates.natural.tolist())
    assert [level["cluster"] for level in terms[1]["levels"]] == kind.labels.tolist()
    sizes = [level["n"] for level in terms[1]["levels"]]
    assert sum(sizes) == c.groups.n.sum()  # type: ignore[union-attr]
    assert next(note for note in c.notes if note.code == "additive").fields["terms"] == [["country"], ["type"]]
    again = pickle.loads(pickle.dumps(c))
    assert [term.pvalue for term in again.additive] == [term.pvalue for term in c.additive]
    assert c.at(c.pvalue / 10).additive == ()


def test_attributes_that_matter_in_combination_are_one_term() -> None:
    together = 6.0 * (np.isin(KEYS[:, 0], [3, 4]) & (KEYS[:, 1] == 0))
    both = fl.cluster(cells(together + 2.0 * (KEYS[:, 2] == 1)))
    assert [term.groups.attributes for term in both.additive] == [("country", "device"), ("type",)]
    assert set(both.additive[0].clusters[1].members) == {("c3", "mobile"), ("c4", "mobile")}
    assert fl.cluster(cells(together)).additive == ()
    assert fl.cluster(cells(1.5 * KEYS[:, 2])).additive == ()
    assert fl.cluster(cells(ADDITIVE), margins=False).additive == ()


@pytest.mark.parametrize("kind", ["dof", "covariance", "covariance and dof", "holm"])
def test_effects_that_add_up_follow_standard_errors_and_corrections(kind: str) -> None:
    estimates = cells(2 * ADDITIVE)
    options: dict[str, Any] = {"dof": 9.0} if kind == "dof" else {}
    if kind.startswith("covariance"):
        options = {"se": None, "covariance": np.diag(estimates.se**2) + 0.2}
        options |= {"covariance_dof": 900.0} if "dof" in kind else {}
    c = fl.cluster(estimates.changed(**options))
    if kind == "holm":
        c = fl.holm([c, fl.cluster(cells(np.zeros(len(KEYS))))], 0.05)[0]
    assert [term.groups.attributes for term in c.additive] == [("country",), ("type",)]
    gaps = [term.clusters[1].effects[0].estimate - term.clusters[0].effects[0].estimate for term in c.additive]
    assert gaps == pytest.approx([5.0, 4.0], abs=0.4)


def test_the_attribute_that_accounts_for_most_comes_first() -> None:
    c = fl.cluster(cells(1.5 * (KEYS[:, 0] < 6) + 6.0 * KEYS[:, 2]))
    shares = {row.attribute: row.share for row in c.explained()}
    assert shares["type"] > 2 * shares["country"] > 0
    assert c.attributes == ("country", "type")
    assert [term.groups.attributes for term in c.additive] == [("type",), ("country",)]
    assert [term["attributes"] for term in c.to_dict()["additive"]] == [["type"], ["country"]]


def test_combinations_that_show_beside_the_named_attributes_are_in_the_headline() -> None:
    """The fewest attributes pass one test of all that is left; combinations have a test of their own."""
    labels = [(a, b, c) for a in range(5) for b in range(2) for c in range(6)]
    effects = np.array([1.2 * (a == 1 and b == 1) for a, b, _ in labels])
    theta = effects + np.random.default_rng(26).standard_normal(60)
    result = fl.cluster(fl.Estimates(theta, [1.0] * 60, labels, attributes=["a", "b", "c"]))
    combinations = result.explained()[-1]
    assert (result.attributes, combinations.pvalue_adj <= result.alpha) == (("b",), True)
    assert formats.p_is(math.log(combinations.pvalue)) in result.headline
    strict = result.at(0.001 * combinations.pvalue)
    assert formats.p_is(math.log(combinations.pvalue)) not in strict.headline


def test_an_attribute_of_one_level_is_not_said_to_add_nothing() -> None:
    labels = [(a, "x", b) for a in range(6) for b in range(2)]
    theta = np.array([6.0 * b for _, _, b in labels])
    c = fl.cluster(fl.Estimates(theta, np.ones(12), labels, attributes=["country", "plan", "type"]))
    assert c.attributes == ("type",)
    assert "plan" not in c.headline.partition("detectable")[0]
    assert "plan" in c.headline
    (note,) = [note for note in c.notes if note.code == "explained"]
    assert "plan" not in note.text


def test_nested_attributes_are_named_by_the_finest_that_is_needed() -> None:
    labels = [(f"r{i // 20}", f"s{i // 4}", f"z{i}") for i in range(60)]
    theta = np.random.default_rng(1).normal(size=60) + 9.0 * (np.arange(60) == 7)
    c = fl.cluster(fl.Estimates(theta, np.ones(60), labels, attributes=["region", "state", "zip"]))
    assert (c.attributes, c.additive) == (("zip",), ())
    assert "region" not in c.headline
    assert "z7" in c.headline


def test_what_keeps_attributes_from_being_tested_is_said() -> None:
    labels = [(a, b) for a in "abc" for b in "de"]
    estimates = fl.Estimates([0.0] * 6, [0.1] * 6, labels)
    cases = {
        "tolerance": fl.cluster(estimates, tolerance=0.1),
        "counts": fl.cluster(fl.binomial([5] * 6, 10, labels)),
        "error control": fl.cluster(estimates, guarantee="bonferroni"),
        "margins off": fl.cluster(estimates, margins=False),
        "comparison": fl.cluster(
            fl.Similarity(np.ones((6, 1)), lambda a, b: np.ones(len(a)), labels), guarantee="bonferroni"
        ),
    }
    for reason, c in cases.items():
        assert [note.fields["reason"] for note in c.notes if note.code == "margins"] == [reason]
    assert "margins" not in {note.code for note in fl.cluster(estimates).notes}


@pytest.mark.parametrize("correlation", [0.0, 0.6])
@pytest.mark.parametrize("dof", [None, 30.0])
def test_several_effects_are_tested_along_attributes(correlation: float, dof: float | None) -> None:
    """One of two effects differs by type; shrunken estimates and the page have both."""
    rng = np.random.default_rng(5)
    labels = [(f"c{i}", f"d{j}", f"t{k}") for i in range(4) for j in range(3) for k in range(2)]
    se = np.exp(0.2 * rng.standard_normal((24, 2)))
    covariance = se[:, :, None] * se[:, None, :] * (np.eye(2) * (1 - correlation) + correlation)
    theta = np.einsum("kij,kj->ki", np.linalg.cholesky(covariance), rng.standard_normal((24, 2)))
    theta[:, 1] += 2.5 * np.array([label[2] == "t1" for label in labels])
    how: dict[str, Any] = {"attributes": ["country", "device", "type"], "parts": ["tpr", "fpr"], "dof": dof}
    if correlation:
        both = fl.Estimates(theta, None, labels, effect_covariance=covariance, **how)
    else:
        both = fl.Estimates(theta, se, labels, **how)
    c = fl.cluster(both)
    assert c.attributes == ("type",)
    assert c.additive == ()
    assert list(c.by_attributes.group_labels) == ["t0", "t1"]
    assert [len(cluster.members) for cluster in c.clusters] == [12, 12]
    assert c.pvalue < fl.cluster(both, margins=False).pvalue
    if not correlation and dof is None:
        weight = (se**-2.0).reshape(12, 2, 2)
        means = np.sum(weight * theta.reshape(12, 2, 2), axis=0) / weight.sum(axis=0)
        assert c.by_attributes.estimates.values == pytest.approx(means)
        assert c.by_attributes.estimates.errors == pytest.approx(weight.sum(axis=0) ** -0.5)
    assert c.posterior is not None
    assert c.posterior.shrunken.shape == (24, 2)
    assert "no difference is detectable in tpr" in str(c)  # of the two, fpr alone differs
    assert c.to_markdown()


def test_an_attribute_with_a_single_level_is_in_no_term() -> None:
    labels = [("only", f"a{i}", f"b{j}") for i in range(6) for j in range(3)]
    theta = [4.0 * (i == 0) + 3.0 * (j == 0) + 0.1 * ((i + j) % 2) for i in range(6) for j in range(3)]
    c = fl.cluster(fl.Estimates(theta, [0.3] * 18, labels, attributes=["same", "first", "second"]))
    assert c.attributes == ("first", "second")
    assert [term.groups.attributes for term in c.additive] == [("first",), ("second",)]
    crossed = np.asarray(theta) + 5.0 * (np.arange(18) % 5 == 0)
    both = fl.cluster(fl.Estimates(crossed, [0.3] * 18, labels, attributes=["same", "first", "second"]))
    assert (both.attributes, both.additive) == (("first", "second"), ())
    assert "same ×" not in both.headline


def test_shares_are_in_the_headline_where_clusters_are_many() -> None:
    c = fl.cluster(cells(3.0 * (KEYS[:, 1] == 1) + 4.0 * (KEYS[:, 0] % 4) * (KEYS[:, 2] == 0)))
    assert c.additive == () or any(len(term.groups.attributes) > 1 for term in c.additive)
    result = fl.cluster(cells(4.0 * (KEYS[:, 0] % 4) * (KEYS[:, 2] == 0)))
    assert result.additive == ()
    assert result.n_clusters > 3
    shares = {row.attribute: row.share for row in result.explained()}
    assert f"{shares['type']:.0%}" in result.headline
    assert f"{shares['(combinations)']:.0%}" in result.headline


@pytest.mark.parametrize(("seed", "level"), [(4, 0.1), (37, 0.01)])
def test_the_same_clusters_along_other_attributes_have_memberships_of_their_own(seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    cells = list(itertools.product("ABCDEF", "xy", "uv"))
    theta = np.array([3.0 if country == "A" else 0.0 for country, _, _ in cells]) + rng.standard_normal(24)
    estimates = fl.Estimates(theta, np.ones(24), cells, attributes=["country", "device", "type"])
    c, alone = fl.cluster(estimates), fl.cluster(estimates, alpha=level)
    there = c.at(level)
    assert there.attributes != c.attributes
    assert there.labels.tolist() == c.labels.tolist()
    assert there.certain_at(level).tolist() == alone.certain_at(level).tolist()
    assert there.to_dicts("groups") == alone.to_dicts("groups")
