"""From estimates to the result one acts on."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl
from faultlines import simulate
from faultlines.core.normal import refine_starts
from faultlines.estimates.estimates import Excluded
from faultlines.estimates.reasons import Reason, ReasonCode
from tests.refused import refused

QUICK = fl.Calibrated(draws=300)


def three_clusters(seed: int = 0) -> fl.Estimates:
    return simulate.planted([-5, 0, 6], [10, 20, 11], profile="lognormal", seed=seed).estimates


def test_one_group_is_a_valid_answer() -> None:
    result = fl.cluster(fl.Estimates([3.0], [0.5], ["only"]))
    assert (result.n_clusters, result.pvalue, result.rejected) == (1, 1.0, False)
    assert result.labels.tolist() == [1]
    assert result.clusters[0].members == ("only",)
    assert result.clusters[0].ci == pytest.approx((3 - 0.98, 3 + 0.98), abs=1e-3)
    assert result.verdict == "not testable"
    assert len(result.path()) == 1
    assert json.loads(result.to_json())["pvalue"] == 1.0


def test_labels_rise_with_the_effect_and_clusters_are_theta_intervals() -> None:
    result = fl.cluster(three_clusters())
    assert result.rejected
    assert result.n_clusters == 3
    theta = result.estimates.theta
    highest = [theta[result.labels == i].max() for i in (1, 2)]
    lowest = [theta[result.labels == i].min() for i in (2, 3)]
    assert np.all(np.array(highest) < lowest)
    estimates = [cluster.effects[0].estimate for cluster in result.clusters]
    assert estimates == sorted(estimates)
    assert sum(len(cluster.members) for cluster in result.clusters) == 41


def test_clusters_that_are_beyond_doubt_are_pooled_by_inverse_variance() -> None:
    estimates = three_clusters()
    result = fl.cluster(estimates.replaced(estimates.values + 40 * np.sign(np.round(estimates.values / 5))), alpha=0.1)
    assert result.n_clusters == 3
    for i, cluster in enumerate(result.clusters):
        inside = result.labels == i + 1
        theta, weight = result.estimates.theta[inside], result.estimates.se[inside] ** -2.0
        assert cluster.estimate == pytest.approx(np.average(theta, weights=weight))
        assert cluster.se == pytest.approx(weight.sum() ** -0.5)
        effect = cluster.effects[0]
        assert (effect.estimate, effect.se) == (cluster.estimate, cluster.se)
        assert cluster.ci == pytest.approx(
            (effect.estimate - 1.6449 * effect.se, effect.estimate + 1.6449 * effect.se), rel=1e-3
        )
        assert [result.estimates.labels.index(member) for member in cluster.members] == sorted(
            np.flatnonzero(inside), key=lambda place: result.estimates.theta[place]
        )


def test_intervals_allow_for_degrees_of_freedom() -> None:
    wide = fl.cluster(fl.Estimates([1.0], [1.0], dof=3)).clusters[0].ci
    assert wide == pytest.approx((1 - 3.182, 1 + 3.182), abs=1e-3)  # t table, 3 degrees of freedom


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-9, 0.6), st.booleans(), st.sampled_from(["calibrated", "bonferroni"]))
def test_another_level_equals_a_refit(seed: int, alpha: float, refine: bool, guarantee: str) -> None:
    estimates = simulate.planted([0, 3, 5], [6, 9, 4], profile="lognormal", seed=seed).estimates
    recut = fl.cluster(estimates, alpha=0.05, guarantee=guarantee, refine=refine).at(alpha)
    refit = fl.cluster(estimates, alpha=alpha, guarantee=guarantee, refine=refine)
    np.testing.assert_array_equal(recut.labels, refit.labels)
    assert recut.clusters == refit.clusters
    assert recut.to_dict() == refit.to_dict()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_order_shift_and_scale_do_not_matter(seed: int) -> None:
    estimates = simulate.planted([0, 4], [12, 9], profile="lognormal", seed=seed).estimates
    result = fl.cluster(estimates, guarantee="bonferroni", alpha=0.2)
    shuffle = np.random.default_rng(seed).permutation(21)
    moved = fl.Estimates(estimates.theta[shuffle] * 8 + 512, estimates.se[shuffle] * 8, shuffle.tolist())
    other = fl.cluster(moved, guarantee="bonferroni", alpha=0.2)
    np.testing.assert_array_equal(other.labels, result.labels[shuffle])
    assert other.log_pvalue == pytest.approx(result.log_pvalue, rel=1e-6, abs=1e-9)
    for before, after in zip(result.clusters, other.clusters, strict=True):
        assert after.members == before.members
        assert after.estimate == pytest.approx(before.effects[0].estimate * 8 + 512)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_more_alpha_never_means_fewer_clusters(seed: int) -> None:
    result = fl.cluster(simulate.planted([0, 2, 4], [8, 8, 8], seed=seed).estimates, refine=False)
    counts = [result.at(alpha).n_clusters for alpha in (1e-6, 0.01, 0.05, 0.3, 0.9)]
    assert counts == sorted(counts)


def test_path_lists_every_partition_with_its_p() -> None:
    result = fl.cluster(three_clusters(), refine=False)
    path = result.path()
    assert [level.n_clusters for level in path] == list(range(1, 42))
    assert path[0].pvalue == 0.0
    assert path[1].pvalue == result.pvalue
    p = [level.pvalue for level in path]
    assert p == sorted(p)
    for level, finer in itertools.pairwise(path[:7]):
        assert len(set(level.labels.tolist())) == level.n_clusters
        if 1e-150 < level.pvalue < finer.pvalue:
            between = math.sqrt(level.pvalue * finer.pvalue)
            np.testing.assert_array_equal(result.at(between).labels, level.labels)
    assert len(set(path[-1].labels.tolist())) == 41


def test_refinement_moves_border_groups_and_keeps_the_number() -> None:
    estimates = fl.Estimates([0.0, 0.1, 0.8, 2.0, 2.1], [0.5] * 5)
    order = np.argsort(estimates.theta)
    starts = refine_starts(estimates.theta[order], estimates.se[order], np.array([0, 2]))
    assert starts.tolist() == [0, 3]  # means 0.05 and 1.63 meet at 0.84, so 0.8 goes to the low ones


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6))
def test_refined_groups_are_nearest_to_their_own_cluster(seed: int, clusters: int) -> None:
    rng = np.random.default_rng(seed)
    estimates = fl.Estimates(rng.standard_normal(40), np.exp(rng.standard_normal(40)))
    order = np.argsort(estimates.theta)
    before = np.concatenate(([0], np.sort(rng.choice(np.arange(1, 40), clusters - 1, replace=False))))
    starts = refine_starts(estimates.theta[order], estimates.se[order], before)
    assert starts.size == clusters
    assert starts[0] == 0
    assert np.all(np.diff(starts, append=40) > 0)
    if spread(estimates, order, starts) < spread(estimates, order, before):
        assert not np.array_equal(starts, before)
    assert spread(estimates, order, starts) <= spread(estimates, order, before) * (1 + 1e-12)


def spread(estimates: fl.Estimates, order: np.ndarray, starts: np.ndarray) -> float:
    total = 0.0
    for start, end in zip(starts, [*starts[1:], len(estimates)], strict=True):
        theta, weight = estimates.theta[order[start:end]], estimates.se[order[start:end]] ** -2.0
        total += float(np.sum(weight * (theta - np.average(theta, weights=weight)) ** 2))
    return total


def test_groups_too_small_are_excluded_and_listed_everywhere() -> None:
    base = three_clusters()
    n = np.where(np.arange(41) < 3, 10, 1000)
    sized = fl.Estimates(base.theta, base.se, [f"g{i}" for i in range(41)], n=n, attributes=["country"])
    result = fl.cluster(sized, min_size=30)
    assert [left.label for left in result.excluded] == ["g0", "g1", "g2"]
    assert len(result.estimates) == len(result.labels) == 38
    assert sum(cluster.n or 0 for cluster in result.clusters) == 38_000
    reason = "fewer than 30 in the group"
    (note,) = [note for note in result.notes if note.code == "excluded groups" and reason in note.text]
    assert note.fields == {"groups": 3}
    for text in (str(result), result.to_markdown(), result._repr_html_()):
        assert note.text in text
    assert json.loads(result.to_json())["excluded"][0] == {
        "group": "g0",
        "reason": reason,
        "n": 10,
        "estimate": base.theta[0],
        "events": None,
        "lower": None,
        "upper": None,
    }
    rows = result.to_dicts()
    assert len(rows) == 41
    assert (rows[-1]["country"], rows[-1]["cluster"], rows[-1]["excluded"]) == ("g2", None, reason)


def test_min_size_must_make_sense() -> None:
    with refused("missing: min_size"):
        fl.cluster(three_clusters(), min_size=10)
    sized = fl.Estimates([0.0, 1.0], [1.0, 1.0], n=[5, 7])
    with refused("no groups: min_size"):
        fl.cluster(sized, min_size=10)
    with refused("out of range: min_size"):
        fl.cluster(sized, min_size=-1)


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.5, float("nan"), "0.05", None, True])
def test_alpha_must_lie_between_zero_and_one(alpha: float) -> None:
    result = fl.cluster(three_clusters(), guarantee=QUICK)
    is_number = isinstance(alpha, int | float) and not isinstance(alpha, bool) and alpha == alpha  # noqa: PLR0124
    with refused(f"{'out of range' if is_number else 'wrong type'}: alpha"):
        fl.cluster(three_clusters(), alpha=alpha)
    with refused(f"{'out of range' if is_number else 'wrong type'}: alpha"):
        result.at(alpha)


@pytest.mark.parametrize(
    ("seed", "expected"),
    [(-1, "out of range: seed"), (0.5, "out of range: seed"), (None, "wrong type: seed"), (True, "wrong type: seed")],
)
def test_seed_must_be_a_whole_number(seed: object, expected: str) -> None:
    with refused(expected):
        fl.cluster(three_clusters(), seed=seed)  # type: ignore[arg-type]


def test_data_must_be_estimates() -> None:
    with refused("missing: data"):
        fl.cluster([1, 2, 3])


def test_wild_standard_errors_and_tiny_p_keep_the_answer() -> None:
    rng = np.random.default_rng(4)
    se = 10 ** rng.uniform(-6, 6, 30)
    theta = np.where(np.arange(30) < 15, 0.0, 1e8) + se * rng.standard_normal(30)
    result = fl.cluster(fl.Estimates(theta, se))
    assert result.n_clusters == 2
    np.testing.assert_array_equal(result.labels, np.repeat([1, 2], 15))
    assert result.log_pvalue < -1e6
    assert result.pvalue > 0
    assert result.at(1e-300).n_clusters == 2


def test_a_shift_of_a_billion_keeps_the_clusters() -> None:
    estimates = three_clusters()
    theta = np.round(estimates.theta * 2**20) / 2**20
    near, far = (fl.cluster(fl.Estimates(theta + shift, estimates.se)) for shift in (0.0, 1e9))
    np.testing.assert_array_equal(near.labels, far.labels)
    assert far.pvalue == pytest.approx(near.pvalue, rel=1e-6)


def test_text_says_verdict_clusters_and_basis() -> None:
    result = fl.cluster(simulate.onboarding().estimates)
    lines = str(result).splitlines()
    assert lines[0] == result.headline
    assert lines[3].split() == ["cluster", "effect", "95%", "interval", "groups", "n", "members"]
    assert all("●" in line for line in lines[4:7])
    assert "… +" in lines[5]
    assert max(map(len, lines[2:])) <= 116
    assert [note.code for note in result.notes] == [
        "intervals", "contrast", "membership", "evidence", "spread", "method", "next"
    ]  # fmt: skip
    assert result.notes[2].fields == {"uncertain": 18}
    assert lines[8:] == [note.text for note in result.notes]
    assert repr(result).startswith("<Clustering: 3 of 40 groups, p < 1e-10")


def test_nothing_found_reads_as_nothing_found() -> None:
    result = fl.cluster(simulate.null(12, seed=1).estimates)
    assert result.verdict == "no difference"
    assert "intervals" not in {note.code for note in result.notes}
    assert {"largest difference", "minimum detectable"} <= {note.code for note in result.notes}


def test_json_markdown_and_frames_agree() -> None:
    result = fl.cluster(simulate.onboarding(seed=2).estimates)
    data = json.loads(result.to_json())
    assert data["n_clusters"] == result.n_clusters == len(data["clusters"])
    assert data["guarantee"] == {"name": "calibrated", "draws": 64, "seed": 0, "scan": 1}
    assert [row["cluster"] for row in data["groups"]] == result.labels.tolist()
    assert data["path"][0] == {"n_clusters": 1, "pvalue": 0.0, "pvalue_adj": 0.0}
    assert data["log10_pvalue"] == pytest.approx(result.log_pvalue / math.log(10))
    assert result.to_markdown().count("\n| ") == 1 + result.n_clusters
    frames = result.to_pandas(), result.to_polars().to_pandas(), result.to_arrow().to_pandas()
    for frame in frames:
        assert list(frame.columns) == [
            *("country", "estimate", "se", "n", "pvalue_rest", "rest_difference", "rest_lower", "rest_upper"),
            *("cluster", "cluster_estimate", "membership", "possible"),
            *("shrunken", "shrunken_lower", "shrunken_upper", "excluded"),
        ]
        assert frame["cluster"].tolist() == result.labels.tolist()
        assert frame["country"].tolist() == list(result.estimates.labels)
    assert result.to_pandas("clusters")["groups"].sum() == 40
    with refused("unknown: rows"):
        result.to_dicts("both")  # type: ignore[arg-type]


def test_several_attributes_become_several_columns() -> None:
    labels = [(country, device) for country in ("DE", "FR") for device in ("app", "web")]
    result = fl.cluster(fl.Estimates([0, 0.1, 5, 5.1], [0.2] * 4, labels, attributes=["country", "n"]))
    row = result.to_dicts()[1]
    expected = pytest.approx(
        {
            "country": "DE",
            "n_": "web",
            "estimate": 0.1,
            "se": 0.2,
            "n": None,
            "cluster": 1,
            "cluster_estimate": 0.05,
            "excluded": None,
        }
    )
    believed = {name: row.pop(name) for name in ("membership", "possible", "shrunken_lower", "shrunken_upper")}
    assert believed["membership"] == pytest.approx(1.0)
    assert believed["possible"] == [1]
    assert believed["shrunken_lower"] < row.pop("shrunken") < believed["shrunken_upper"]
    assert {name: value for name, value in row.items() if "rest" not in name} == expected
    assert {"pvalue_rest", "rest_difference", "rest_lower", "rest_upper"} < set(row)
    assert "country = DE" in str(result)


def test_very_many_clusters_make_a_short_table() -> None:
    result = fl.cluster(fl.Estimates(np.arange(150.0) * 100, np.ones(150)))
    assert result.n_clusters == 150
    assert len(str(result).splitlines()) < 60
    assert result.to_markdown().count("\n| ") == 151


def test_numbers_show_the_digits_their_errors_allow() -> None:
    far = fl.cluster(fl.Estimates([1e9 + 1, 1e9 + 2, 1e9 + 90, 1e9 + 91], [1.0] * 4))
    assert " 1,000,000,001.50" in str(far)
    tiny = fl.cluster(fl.Estimates([1e-12, 2e-12, 9e-11], [1e-12] * 3))
    assert "+1.50e-12" in str(tiny) or "+1.5e-12" in str(tiny)
    assert "2.5" in str(fl.cluster(fl.Estimates([1.0], [1.0], n=2.5)))


@pytest.mark.parametrize("refine", ["no", 1, None])
def test_refine_must_be_a_truth_value(refine: object) -> None:
    with refused("wrong type: refine"):
        fl.cluster(three_clusters(), refine=refine)  # type: ignore[arg-type]


def test_known_and_estimated_variances_mix() -> None:
    result = fl.cluster(fl.Estimates([0, 1, 50], [1, 1, 1], dof=[5, 5, np.inf]))
    assert result.n_clusters == 2
    assert all(np.isfinite([e.lower, e.upper, e.se]).all() for cluster in result.clusters for e in cluster.effects)


def test_excluded_groups_keep_their_numbers() -> None:
    result = fl.cluster(fl.Estimates([1.0, 2.0], [0.5, 0.6], ["a", "b"], n=[5, 50]), min_size=10)
    assert result.excluded == (Excluded("a", Reason(ReasonCode.TOO_SMALL, 10.0), 1.0, 0.5, 5.0),)
    assert result.to_dicts()[1]["estimate"] == 1.0


@pytest.mark.parametrize("labels", [[2**70, 1], [frozenset([1]), "x"], [1, "x"], [True, False], [0.5, 2]])
def test_frames_take_any_labels(labels: list[object]) -> None:
    result = fl.cluster(fl.Estimates([0.0, 1.0], [1.0, 1.0], labels))
    for frame in (result.to_pandas(), result.to_polars(), result.to_arrow().to_pandas()):
        assert len(frame) == 2
    assert json.loads(result.to_json())["groups"][0]["estimate"] == 0.0


def test_hostile_names_stay_text() -> None:
    names = ["<script>alert(1)</script>", "a|b", "new\nline", "c\x1b[31m"]
    result = fl.cluster(fl.Estimates([0, 1, 2, 50], [0.5] * 4, names))
    assert "<script>" not in result._repr_html_()
    assert "&lt;script&gt;" in result._repr_html_()
    assert "a\\|b" in result.to_markdown()
    assert "\x1b" not in str(result)
    assert "new\n" not in str(result)
    assert len(result.to_markdown().split("\n\n")[2].splitlines()) == 2 + result.n_clusters


def test_results_cannot_be_changed() -> None:
    result = fl.cluster(three_clusters())
    with pytest.raises(AttributeError):
        result.alpha = 0.1  # type: ignore[misc]
    for array in (result.labels, result.estimates.theta, result.estimates.se, result.hierarchy.gap_heights):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9


def test_missing_frame_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    with refused("not installed: to_polars()"):
        fl.cluster(three_clusters()).to_polars()
