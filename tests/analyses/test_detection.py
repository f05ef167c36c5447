"""What a null result rules out: the largest difference, and the minimum detectable limit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines import simulate
from faultlines.analyses import power
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

    from faultlines.results import Clustering, DetectionLimit, Note

NULL = simulate.null(12, seed=4).estimates


def detection_notes(c: Clustering) -> list[Note]:
    return [note for note in c.notes if note.code in {"largest difference", "minimum detectable"}]


def test_the_farthest_group_is_that_of_the_certificate() -> None:
    result = fl.cluster(NULL)
    assert not result.rejected
    (limit,) = result.detection_limits
    certificate = fl.certify(result, gap=1)
    ends = np.array([[group.lower, group.upper] for group in certificate.groups])
    np.testing.assert_allclose(np.column_stack([limit.lower, limit.upper]), ends)
    assert limit.largest_difference == pytest.approx(certificate.certifiable)
    assert limit.group == certificate.farthest
    decides = next(group for group in certificate.groups if group.label == limit.group)
    assert limit.is_above == (decides.distance > 0)


@pytest.mark.parametrize("groups", [2, 12, 60])
def test_the_minimum_detectable_difference_is_what_power_says(groups: int) -> None:
    result = next(c for seed in range(9) if not (c := fl.cluster(simulate.null(groups, seed=seed).estimates)).rejected)
    (limit,) = result.detection_limits
    assert limit.simulated
    assert limit.half_of_groups == pytest.approx(fl.power(result, runs=400).minimum_detectable, rel=0.12)
    assert limit.one_group == pytest.approx(fl.power(result, runs=400, split=1 / groups).minimum_detectable, rel=0.12)


def test_estimated_standard_errors_are_simulated_too() -> None:
    theta = np.random.default_rng(4).standard_normal(10)  # too few groups to moderate their variances
    few, exact = (fl.cluster(fl.Estimates(theta, np.ones(10), dof=dof)).detection_limits[0] for dof in (4, None))
    assert few.simulated
    assert few.one_group is not None
    assert exact.one_group is not None
    assert few.one_group > 1.15 * exact.one_group
    assert few.largest_difference > exact.largest_difference


def test_it_is_said_in_text_markdown_json_notebook_and_page(tmp_path: Path) -> None:
    result = fl.cluster(NULL)
    notes = detection_notes(result)
    (limit,) = result.detection_limits
    assert [note.code for note in notes] == ["largest difference", "minimum detectable"]
    plain = json.loads(result.to_json())["detection_limits"][0]
    assert plain["largest_difference"] == pytest.approx(limit.largest_difference)
    assert (plain["half_of_groups"], plain["one_group"]) == (limit.half_of_groups, limit.one_group)
    assert plain["power"] == 0.8
    assert len(plain["groups"]) == 12
    certificate = fl.certify(result, gap=9)
    result.report(tmp_path / "page.html", certificate=certificate)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for note in notes:
        assert note.text in result.to_markdown()
        assert note.text in result._repr_html_()
        assert f"<p>{note.text}</p>" in page
    assert certificate.headline in page
    assert "<h2>Certificate</h2>" in page
    with refused("wrong type: certificate"):
        result.report(tmp_path / "page.html", certificate="x")  # type: ignore[arg-type]


def test_nothing_is_said_where_clusters_differ_or_nothing_is_compared() -> None:
    apart = fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]))
    alone = fl.cluster(fl.Estimates([0.0], [1.0]))
    bare = fl.cluster(fl.Similarity([[1.0], [1.0]], lambda a, b: np.ones(len(a))))
    for result in (apart, alone, bare):
        assert result.detection_limits == ()
        assert detection_notes(result) == []
        assert result.to_dict()["detection_limits"] == []


def test_clustering_itself_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Clustering] = []
    compute = power.detection_limits

    def count(c: Clustering) -> tuple[DetectionLimit, ...]:
        calls.append(c)
        return compute(c)

    monkeypatch.setattr("faultlines.analyses.power.detection_limits", count)
    result = fl.cluster(NULL)
    assert result.verdict == "no difference"
    assert len(result.to_dicts()) == len(result.to_dicts("clusters")) * 12
    assert calls == []
    assert len(str(result)) > 100
    result.to_json()
    assert len(calls) == 1


def test_two_effects_and_lifts_in_their_own_words() -> None:
    rng = np.random.default_rng(0)
    columns = {"g": rng.integers(0, 6, 1500), "y": rng.integers(0, 2, 1500), "p": rng.integers(0, 2, 1500)}
    frame = pd.DataFrame(columns | {"arm": rng.choice(["A", "B"], 1500), "x": rng.gamma(9, 1, 1500)})
    odds = fl.cluster(frame, "g", fl.equalized_odds("y", "p"))
    assert [limit.effect for limit in odds.detection_limits] == ["true positive rate", "false positive rate"]
    assert len(detection_notes(odds)) == 4
    lift = fl.cluster(frame, "g", fl.lift("x", variant="arm", control="A"))
    assert not lift.rejected
    assert len(detection_notes(lift)) == 2


def test_what_takes_too_long_is_not_simulated_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power, "_MOST", 11)
    assert not fl.cluster(NULL).detection_limits[0].simulated
    assert len(detection_notes(fl.cluster(NULL))) == 2
    monkeypatch.setattr(power, "_MOST", 100)
    few = fl.cluster(simulate.null(4, seed=1).estimates, guarantee="folds")
    assert few.detection_limits[0].simulated
    assert not fl.cluster(NULL, guarantee="folds").detection_limits[0].simulated
    assert fl.cluster(NULL, guarantee="bonferroni").detection_limits[0].simulated


def test_a_gap_that_no_power_reaches() -> None:
    """Rates of one row: one group would not have been seen, however far apart."""
    result = fl.cluster(fl.binomial([1, 0] * 20, 1), guarantee=fl.Calibrated(draws=99))
    assert result.detection_limits[0].one_group is None
