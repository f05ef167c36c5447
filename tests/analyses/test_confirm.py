"""Clusters on fresh data: plain tests and intervals, what came back, and what cannot be told."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import faultlines as fl
from faultlines import simulate
from faultlines.render.confirmation import document
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

LABELS = ["DE", "FR", "IT", "ES", "PT", "NO"]
OLD = fl.Estimates([0.0, 0.1, -0.1, 4.0, 4.2, 3.9], [0.3] * 6, LABELS, [100.0] * 6)
FOUND = fl.cluster(OLD)


def fresh(values: Any, se: float = 0.3, labels: Any = LABELS, **more: Any) -> fl.Estimates:
    return fl.Estimates(values, np.full(len(values), se), labels, **more)


def test_effects_and_p_are_the_plain_ones() -> None:
    rng = np.random.default_rng(0)
    se, theta = rng.uniform(0.2, 0.6, 6), rng.standard_normal(6) + np.repeat([0, 2], 3)
    sizes = rng.integers(50, 500, 6).astype(float)
    confirmation = fl.confirm(FOUND, fl.Estimates(theta, se, LABELS, sizes), alpha=0.1)
    means, variances = [], []
    for cluster, places in zip(confirmation.clusters, (slice(0, 3), slice(3, 6)), strict=True):
        weight = se[places] ** -2.0
        mean, error = np.average(theta[places], weights=weight), weight.sum() ** -0.5
        assert cluster.estimate == pytest.approx(mean)
        assert cluster.ci == pytest.approx((mean - 1.6449 * error, mean + 1.6449 * error), abs=1e-4)
        share = sizes[places] / sizes[places].sum()
        assert cluster.observed_effects[0].estimate == pytest.approx(np.sum(share * theta[places]))
        q = np.sum(weight * (theta[places] - mean) ** 2)
        assert cluster.pvalue_equal == pytest.approx(stats.chi2.sf(q, 2))
        assert cluster.n == sizes[places].sum()
        means.append(mean)
        variances.append(error**2)
    gap, error = means[1] - means[0], math.sqrt(sum(variances))
    assert confirmation.pvalue == pytest.approx(2 * stats.norm.sf(abs(gap) / error))
    pair = confirmation.pairs[0]
    assert pair.pvalue == pytest.approx(confirmation.pvalue)
    assert pair.difference == pytest.approx(gap)
    assert pair.ci == pytest.approx((gap - 1.6449 * error, gap + 1.6449 * error), abs=1e-4)
    assert pair.retained == pytest.approx(gap / (FOUND.clusters[1].estimate - FOUND.clusters[0].estimate))  # type: ignore[operator]
    old = FOUND.clusters[1].estimate - FOUND.clusters[0].estimate  # type: ignore[operator]
    z = 1.6449
    power = stats.norm.sf(z - old / 2 / error) + stats.norm.cdf(-z - old / 2 / error)
    assert pair.power == pytest.approx(power, abs=1e-4)


@pytest.mark.parametrize(
    ("values", "se", "verdict"),
    [
        ([0, 0, 0, 4, 4, 4], 0.3, "confirmed"),
        ([0, 0, 0, 1, 1, 1], 0.3, "confirmed"),  # a quarter of it came back, and can be seen
        ([0, 0, 0, 0, 0, 0], 0.3, "not confirmed"),
        ([4, 4, 4, 0, 0, 0], 0.3, "not confirmed"),  # the other way round
        ([0, 0, 0, 4, 4, 4], 9.0, "inconclusive"),
        ([4, 4, 4, 0, 0, 0], 9.0, "inconclusive"),
        ([9, 9, 9, 0, 0, 0], 2.0, "not confirmed"),  # few data, but they say the opposite
    ],
)
def test_verdicts(values: list[float], se: float, verdict: str) -> None:
    confirmation = fl.confirm(FOUND, fresh(values, se))
    assert confirmation.verdict == confirmation.pairs[0].verdict == verdict
    assert confirmation.confirmed == (verdict == "confirmed")


def test_three_clusters_are_confirmed_pair_by_pair() -> None:
    old = fl.cluster(fresh([0, 0.1, 4, 4.1, 8, 8.1]))
    assert old.n_clusters == 3
    confirmation = fl.confirm(old, fresh([0, 0, 3, 3, 6, 6]))
    assert confirmation.verdict == "confirmed"
    assert [pair.retained for pair in confirmation.pairs] == pytest.approx([0.75, 0.75], abs=0.02)
    half = fl.confirm(old, fresh([0, 0, 4, 4, 4, 4]))
    assert [pair.verdict for pair in half.pairs] == ["confirmed", "not confirmed"]
    assert half.verdict == "not confirmed"
    assert half.pvalue < 1e-6  # that something differs is another question
    q = stats.chi2.sf(sum(2 * (v - 8 / 3) ** 2 for v in (0, 4, 4)) / 0.3**2, 2)
    assert half.pvalue == pytest.approx(q)
    few = fl.confirm(old, fresh([0, 0, 4, 4], labels=LABELS[:4]))
    assert [pair.verdict for pair in few.pairs] == ["confirmed", "inconclusive"]
    assert few.verdict == "inconclusive"
    assert few.clusters[2].estimate is None
    assert few.pairs[1].difference is few.pairs[1].retained is few.pairs[1].ci is None
    json.loads(few.to_json())


def test_new_and_missing_groups_are_counted_and_listed() -> None:
    confirmation = fl.confirm(FOUND, fresh([0, 0, 4, 1, 2], labels=["DE", "FR", "PT", "XX", "YY"]))
    assert confirmation.new == ("XX", "YY")
    assert [(group.label, group.cluster, group.reason.code) for group in confirmation.missing] == [
        ("IT", 1, "not in the data"),
        ("ES", 2, "not in the data"),
        ("NO", 2, "not in the data"),
    ]
    assert [len(cluster.members) for cluster in confirmation.clusters] == [2, 1]
    fields = {note.code: dict(note.fields) for note in confirmation.notes}
    assert (fields["new groups"], fields["missing groups"]) == ({"groups": 2}, {"groups": 3})
    rows = confirmation.to_dicts("groups")
    assert [row["group"] for row in rows] == ["DE", "FR", "PT", "XX", "YY", "IT", "ES", "NO"]
    assert [row["cluster"] for row in rows] == [1, 1, 2, None, None, 1, 2, 2]
    assert confirmation.to_dicts("clusters")[1]["missing"] == 2


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 5), st.floats(-3, 3), st.floats(0.2, 5), st.integers(0, 10**6))
def test_units_and_order_do_not_matter(clusters: int, shift: float, scale: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = 3 * clusters
    levels = np.repeat(np.arange(clusters) * 20.0, 3)
    old = fl.Estimates(levels + rng.standard_normal(groups), np.ones(groups))
    again, se = levels / 2 + rng.standard_normal(groups), rng.uniform(0.5, 2, groups)
    first = fl.confirm(fl.cluster(old), fl.Estimates(again, se))
    moved = fl.cluster(fl.Estimates(shift + scale * old.theta, scale * old.se))
    order = rng.permutation(groups)
    data = fl.Estimates((shift + scale * again)[order], scale * se[order], order.tolist())
    second = fl.confirm(moved, data)
    assert second.log_pvalue == pytest.approx(first.log_pvalue, rel=1e-6)
    assert second.verdict == first.verdict
    assert [p.retained for p in second.pairs] == pytest.approx([p.retained for p in first.pairs], rel=1e-6)
    alike = [[cluster.pvalue_equal for cluster in confirmation.clusters] for confirmation in (first, second)]
    assert alike[0] == pytest.approx(alike[1], rel=1e-6)


def test_a_tolerance_is_asked_again() -> None:
    old = fl.cluster(OLD, tolerance=1.0)
    assert old.n_clusters == 2
    near, far = fl.confirm(old, fresh([0, 0, 0, 1.2, 1.2, 1.2])), fl.confirm(old, fresh([0, 0, 0, 3, 3, 3]))
    assert near.verdict == "not confirmed"
    assert near.pvalue == near.pairs[0].pvalue > 0.3  # they differ, but not by more than 1
    assert far.verdict == "confirmed"
    error = 0.3 * math.sqrt(2 / 3)
    assert far.pvalue == far.pairs[0].pvalue == pytest.approx(2 * stats.norm.sf(2 / error))
    three = fl.confirm(fl.cluster(fresh([0, 0.1, 4, 4.1, 8, 8.1]), tolerance=1.0), fresh([0, 0, 4, 4, 5.2, 5.2]))
    assert three.pvalue == max(pair.pvalue for pair in three.pairs)
    assert fl.confirm(old.to_json(), fresh([0, 0, 0, 3, 3, 3])).tolerance == 1.0


def test_two_effects() -> None:
    rng = np.random.default_rng(1)
    levels = np.repeat([[0.0, 0.0], [5.0, -5.0]], 4, axis=0)
    parts = ["hits", "false alarms"]
    old = fl.cluster(fl.Estimates(levels + rng.standard_normal((8, 2)), np.ones((8, 2)), parts=parts))
    assert old.n_clusters == 2
    data = fl.Estimates(levels / 2 + rng.standard_normal((8, 2)), np.ones((8, 2)), parts=parts)
    for clusters in (old, old.to_json()):
        confirmation = fl.confirm(clusters, data)
        assert confirmation.verdict == "confirmed"
        gap = np.array(confirmation.pairs[0].difference)
        assert confirmation.pvalue == pytest.approx(stats.chi2.sf(np.sum(gap**2) / 0.5, 2))
        assert len(confirmation.to_dicts("pairs")[0]) == 2 + 6 * 2 + 3
    back = fl.Estimates(-levels + rng.standard_normal((8, 2)), np.ones((8, 2)), parts=parts)
    assert fl.confirm(old, back).verdict == "not confirmed"
    with refused("mismatch: data"):
        fl.confirm(old, fl.Estimates(np.zeros(8), np.ones(8)))


def test_few_degrees_of_freedom() -> None:
    data = fresh([0, 0.4, -0.4, 2.4, 2, 1.6], dof=4.0)
    estimated = fl.confirm(FOUND, data)
    exact = fl.confirm(FOUND, fresh([0, 0.4, -0.4, 2.4, 2, 1.6]))
    assert estimated.pvalue > exact.pvalue
    assert estimated.pairs[0].ci[0] < exact.pairs[0].ci[0]  # type: ignore[index, operator]


# ---------------------------------------------------------------------------------------------------------- rows, JSON


def visits(seed: int, users: int = 4000) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "user": np.arange(users),
            "country": rng.choice(["DE", "FR", "IT"], users),
            "age": rng.integers(20, 60, users),
            "arm": rng.choice(["A", "B"], users),
        }
    )
    effect = (frame.arm == "B") * np.where(frame.country == "DE", 1.5, 0.0)
    frame["spend"] = 10 + effect + rng.standard_normal(users) * 2
    frame["bought"] = rng.random(users) < np.where(frame.country == "DE", 0.5, 0.3)
    return frame


DIFFERENCE = fl.difference("spend", variant="arm", control="A", unit="user")
BY = ["country", fl.bins("age", quantiles=2)]


@pytest.mark.parametrize(
    ("metric", "by"),
    [
        (DIFFERENCE, BY),
        (fl.lift("spend", variant="arm", control="A", treatment="B"), "country"),
        (fl.rate("bought"), [fl.bins("age", width=20), "country"]),
        (fl.joint(fl.rate("bought"), fl.mean("spend")), "country"),
    ],
    ids=["difference", "lift", "rate", "joint"],
)
def test_a_saved_result_says_how_fresh_rows_are_measured(metric: fl.Metric, by: Any, tmp_path: Path) -> None:
    old = fl.cluster(visits(1), by=by, metric=metric)
    assert old.rejected
    path = tmp_path / "clusters.json"
    path.write_text(old.to_json(), encoding="utf-8")
    rows = visits(2)
    expected = fl.confirm(old, rows, by=old.by, metric=metric)
    saved = old.to_json(indent=None)
    for confirmation in (fl.confirm(old, rows), fl.confirm(path, rows), fl.confirm(saved, rows)):
        for kind in ("clusters", "pairs", "groups"):
            for row, other in zip(confirmation.to_dicts(kind), expected.to_dicts(kind), strict=True):
                assert row == {
                    name: pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
                    for name, value in other.items()
                }
    assert expected.verdict == "confirmed"
    assert not expected.missing
    assert not expected.new


def test_the_effect_on_people_is_that_of_their_rows() -> None:
    old = fl.cluster(visits(1), by="country", metric=DIFFERENCE)
    rows = visits(2)
    confirmation = fl.confirm(old, rows)
    for cluster in confirmation.clusters:
        mine = rows[rows.country.isin(cluster.members)]
        means = mine.groupby("arm").spend.mean()
        assert cluster.observed_effects[0].estimate == pytest.approx(means["B"] - means["A"])


def test_groups_too_small_in_the_fresh_rows_are_missing_with_their_reason() -> None:
    old = fl.cluster(visits(1), by="country", metric=DIFFERENCE)
    rows = visits(2)
    rows = rows[(rows.country != "FR") | (rows.user < 40)]
    confirmation = fl.confirm(old, rows)
    assert [(group.label, group.reason.text) for group in confirmation.missing] == [
        ("FR", "fewer than 10 users in an arm")
    ]
    smaller = fl.confirm(old, rows, min_size=2)
    assert not smaller.missing


def test_types_of_keys_do_not_matter(tmp_path: Path) -> None:
    old = fl.cluster(fl.Estimates([0.0, 9.0, 9.1], [1.0] * 3, [1, 2, 3]))
    for labels in ([1.0, 2.0, 3.0], ["1", "2", "3"], [1, 2, 3]):
        assert fl.confirm(old.to_json(), fl.Estimates([0.0, 5.0, 5.0], [1.0] * 3, labels)).new == ()
    cells = [("a", 1), ("a", 2), ("b", 2)]
    pairs = fl.cluster(fl.Estimates([0.0, 9.0, 0.0], [1.0] * 3, cells, attributes=["cluster", "n"]))
    data = fl.Estimates([0.0, 5.0, 1.0], [1.0] * 3, [("a", 1), ("a", 2), ("b", 1)], attributes=["cluster", "n"])
    confirmation = fl.confirm(pairs.to_json(), data)
    assert confirmation.new == (("b", 1),)


def test_one_of_several_metrics() -> None:
    rows = visits(1)
    results = fl.holm([fl.cluster(rows, by="country", metric=m) for m in (DIFFERENCE, fl.rate("bought"))], 0.05)
    saved = {"correction": "holm", "alpha": 0.05, "metrics": [result.to_dict() for result in results]}
    confirmation = fl.confirm(json.dumps(saved), visits(2), metric="rate of bought")
    assert confirmation.metric == "rate of bought"
    assert fl.confirm(saved, visits(2), metric=fl.rate("bought")).to_dict() == confirmation.to_dict()
    assert fl.confirm(saved, visits(2), metric="difference:spend").metric == "difference of spend per user"
    with refused("not found: clusters"):
        fl.confirm(saved, visits(2))
    with refused("not found: clusters"):
        fl.confirm(saved, visits(2), metric=fl.mean("spend"))


@pytest.mark.parametrize(
    ("clusters", "words"),
    [
        ("no/such/file.json", "unreadable file: clusters"),
        (".", "unreadable file: clusters"),
        ("a\0b", "unreadable file: clusters"),
        ("", "unreadable file: clusters"),
        ('{"verdict": ', "unreadable file: clusters"),
        ("[1, 2]", "unreadable file: clusters"),
        ('{"a": 1}', "unreadable file: clusters"),
        ('{"groups": 5, "clusters": 3}', "unreadable file: clusters"),
        ({"groups": [], "clusters": [], "metric": "x", "attributes": []}, "unreadable file: clusters"),
        (None, "wrong type: clusters"),
        (OLD, "wrong type: clusters"),
        (fl.cluster(fresh([0.0] * 6)), "too few: clusters"),
        (fl.cluster(fresh([0.0] * 6)).to_json(), "too few: clusters"),
    ],
)
def test_clusters_that_cannot_be_used(clusters: Any, words: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with refused(words):
        fl.confirm(clusters, OLD)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clusters": FOUND.to_dict()["clusters"][:1]}, "unreadable file: clusters"),
        ({"groups": FOUND.to_dict()["groups"][:3]}, "unreadable file: clusters"),
        ({"recipe": {"name": "magic", "arguments": {}}}, "unknown: metric"),
        ({"recipe": {"name": "rate", "arguments": {"values": "x"}}}, "invalid: metric"),
        ({"recipe": 5}, "missing: metric"),
        ({"by": [5]}, "missing: by"),
        ({"by": [{"width": 5}]}, "missing: by"),
        ({"attributes": [{"name": "group"}]}, "unreadable file: clusters"),
        ({"groups": [{**row, "cluster": "x"} for row in FOUND.to_dict()["groups"]]}, "unreadable file: clusters"),
        ({"clusters": [{**row, "estimate": None} for row in FOUND.to_dict()["clusters"]]}, "unreadable file: clusters"),
    ],
)
def test_damaged_results(change: dict[str, Any], words: str) -> None:
    with refused(words):
        fl.confirm(FOUND.to_dict() | change, OLD)


def test_data_that_do_not_go_with_the_clusters() -> None:
    with refused("no groups: data"):
        fl.confirm(FOUND, fresh([0.0, 1.0], labels=["X", "Y"]))
    with refused("conflict: by, metric"):
        fl.confirm(FOUND, OLD, by="country")
    with refused("missing: metric"):
        fl.confirm(FOUND, visits(1))
    old = fl.cluster(visits(1), by="country", metric=DIFFERENCE)
    with refused("mismatch: metric"):
        fl.confirm(old, visits(2), metric=fl.mean("spend"))
    other = fl.Estimates([0.0, 1.0], [1.0, 1.0], ["DE", "FR"], metric="lift of clicks")
    with refused("mismatch: metric"):
        fl.confirm(old, other)
    # An effect without a name is taken for the same one.
    named = fl.confirm(old, fl.Estimates([1.4, 0.1, 0.0], [0.1] * 3, ["DE", "FR", "IT"]))
    assert named.metric == "difference of spend per user"
    with refused("wrong type: metric"):
        fl.confirm(old, visits(2), metric=5)  # type: ignore[arg-type]
    with refused("not found: clusters"):
        fl.confirm(old, visits(2), metric="clicks")
    with refused("unknown: rows"):
        fl.confirm(FOUND, OLD).to_dicts("people")  # type: ignore[arg-type]


def test_counts_can_be_confirmed() -> None:
    old = fl.cluster(fl.binomial([10, 12, 60, 66], [100] * 4, ["a", "b", "c", "d"]))
    confirmation = fl.confirm(old, fl.binomial([9, 14, 50, 52], [100] * 4, ["a", "b", "c", "d"]))
    assert confirmation.verdict == "confirmed"
    assert confirmation.clusters[0].estimate == pytest.approx(23 / 200)
    expected = stats.chi2_contingency([[23, 177], [102, 98]], correction=False).pvalue
    assert math.log(confirmation.pvalue) == pytest.approx(math.log(expected), rel=0.1)


def test_the_words_of_a_confirmation() -> None:
    old = fl.cluster(simulate.onboarding(seed=1).estimates)
    confirmation = fl.confirm(old, simulate.onboarding(seed=2).estimates)
    assert repr(confirmation).startswith("<Confirmation: confirmed, p ")
    assert [note.code for note in confirmation.notes].count("pair") == len(confirmation.pairs) == 2
    assert confirmation.to_pandas("clusters").shape[0] == confirmation.to_polars("clusters").shape[0] == 3
    assert json.loads(confirmation.to_json())["headline"] == confirmation.headline
    mixed = fl.confirm(FOUND, fresh([0.0, 3.0, -3.0, 4, 4, 4]))
    (note,) = [note for note in mixed.notes if note.code == "differences within"]
    assert note.fields == {"cluster": 1}


@pytest.mark.parametrize("from_json", [False, True])
def test_new_combinations_are_in_the_cluster_of_their_levels(from_json: bool) -> None:
    keys = [(a, b) for a in "xyz" for b in range(4)]
    noise = np.random.default_rng(1).normal(size=len(keys))
    effects = np.array([6.0 * (a == "y") for a, _ in keys]) + noise
    found = fl.cluster(fl.Estimates(effects, np.ones(len(keys)), keys, attributes=["a", "b"]))
    assert found.attributes == ("a",)
    new = [("x", 7), ("y", 7), ("y", 0), ("w", 0)]
    again = fl.Estimates([0.1, 6.2, 5.8, 3.0], np.ones(4), new, attributes=["a", "b"])
    confirmation = fl.confirm(found.to_json() if from_json else found, again)
    assert [set(cluster.members) for cluster in confirmation.clusters] == [{("x", 7)}, {("y", 7), ("y", 0)}]
    assert confirmation.new == (("w", 0),)
    assert confirmation.verdict == "confirmed"


def test_effects_far_beyond_their_errors() -> None:
    """The noncentral χ² distribution has no value there: the power is 1, not NaN, which JSON does not have."""
    estimates = fl.Estimates([-2.5e10, 6.7e10, 1.6e11], [1.3, 1.4, 0.06], list("abc"))
    confirmation = fl.confirm(fl.cluster(estimates), estimates)
    assert [pair["power"] for pair in json.loads(confirmation.to_json())["pairs"]] == [1.0, 1.0]


def test_clusters_along_an_attribute_are_named_by_its_levels() -> None:
    labels = [(country, kind) for country in "ABCDEF" for kind in ("new", "returning")]
    effects = np.tile([0.0, 5.0], 6)
    old, new = (fl.Estimates(effects + shift, [0.5] * 12, labels, attributes=["country", "type"]) for shift in (0, 0.1))
    confirmation = fl.confirm(fl.cluster(old), new)
    table = document(confirmation).tables[0]
    assert [row[-1] for row in table.rows] == ["type new", "type returning"]
    assert [len(cluster.members) for cluster in confirmation.clusters] == [6, 6]
