"""No verdict without its reach: what a result without clusters leaves possible, and what would have been seen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines import simulate
from faultlines.decide import unseen

if TYPE_CHECKING:
    from pathlib import Path

NULL = simulate.null(12, seed=4).estimates


def reach_lines(found: fl.Clustering) -> list[str]:
    return [
        line for line in str(found).split("\n") if line.startswith(("Not excluded", "Would have been", "What diff"))
    ]


def test_the_farthest_group_is_that_of_the_certificate() -> None:
    found = fl.cluster(NULL)
    assert not found.rejected
    (one,) = found.unseen
    certificate = fl.certify(found, gap=1)
    ends = np.array([[group.lower, group.upper] for group in certificate.groups])
    np.testing.assert_allclose(np.column_stack([one.lower, one.upper]), ends)
    assert one.largest == pytest.approx(certificate.smallest)
    assert one.group == certificate.farthest
    decides = next(group for group in certificate.groups if group.label == one.group)
    assert one.is_above == (decides.distance > 0)


@pytest.mark.parametrize("groups", [2, 12, 60])
def test_what_would_have_been_seen_is_what_power_says(groups: int) -> None:
    found = next(c for seed in range(9) if not (c := fl.cluster(simulate.null(groups, seed=seed).estimates)).rejected)
    (one,) = found.unseen
    assert one.simulated
    assert one.halves == pytest.approx(fl.power(found, runs=400).smallest, rel=0.12)
    assert one.one == pytest.approx(fl.power(found, runs=400, split=1 / groups).smallest, rel=0.12)


def test_estimated_standard_errors_are_simulated_too() -> None:
    theta = np.random.default_rng(4).standard_normal(15)
    few, known = (fl.cluster(fl.Estimates(theta, np.ones(15), dof=dof)).unseen[0] for dof in (4, None))
    assert few.simulated
    assert few.one is not None
    assert known.one is not None
    assert few.one > 1.15 * known.one
    assert few.largest > known.largest


def test_it_is_said_in_text_markdown_json_notebook_and_page(tmp_path: Path) -> None:
    found = fl.cluster(NULL)
    lines = reach_lines(found)
    (one,) = found.unseen
    assert lines[0].startswith(f"Not excluded: that {one.group} is up to {one.largest:.2f} ")
    assert lines[1].startswith(
        "Would have been seen with 80% power: if half of the groups differ from the others, a gap"
    )
    plain = json.loads(found.to_json())["reach"][0]
    assert plain["largest"] == pytest.approx(one.largest)
    assert (plain["half_of_the_groups"], plain["one_group"], plain["target"]) == (one.halves, one.one, 0.8)
    assert len(plain["groups"]) == 12
    found.report(tmp_path / "page.html", certificate=fl.certify(found, gap=9))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for line in lines:
        assert line in found.to_markdown()
        assert line in found._repr_html_()
        assert f"<p>{line}</p>" in page
    assert "Certified: none of 12 groups is more than 9 from the overall" in page
    assert "<h2>Certificate</h2>" in page
    with pytest.raises(fl.InputError, match="certificate='x': is not a certificate"):
        found.report(tmp_path / "page.html", certificate="x")  # type: ignore[arg-type]


def test_nothing_is_said_where_clusters_differ_or_nothing_is_compared() -> None:
    apart = fl.cluster(fl.Estimates([0.0, 9.0], [1.0, 1.0]))
    alone = fl.cluster(fl.Estimates([0.0], [1.0]))
    bare = fl.cluster(fl.Similarity([[1.0], [1.0]], lambda a, b: np.ones(len(a))))
    for found in (apart, alone, bare):
        assert found.unseen == ()
        assert reach_lines(found) == []
        assert found.summary()["reach"] == []


def test_clustering_itself_does_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    made = unseen.unseen_of

    def counted(found: Any) -> tuple[fl.Unseen, ...]:
        asked.append(found)
        return made(found)

    monkeypatch.setattr("faultlines.clustering.unseen_of", counted)
    found = fl.cluster(NULL)
    assert found.verdict.startswith("No difference")
    assert len(found.to_dicts()) == len(found.to_dicts("clusters")) * 12
    assert asked == []
    assert "Not excluded" in str(found)
    found.to_json()
    assert len(asked) == 1


def test_two_effects_and_lifts_in_their_own_words() -> None:
    rng = np.random.default_rng(0)
    columns = {"g": rng.integers(0, 6, 1500), "y": rng.integers(0, 2, 1500), "p": rng.integers(0, 2, 1500)}
    frame = pd.DataFrame(columns | {"arm": rng.choice(["A", "B"], 1500), "x": rng.gamma(9, 1, 1500)})
    odds = fl.cluster(frame, "g", fl.equalized_odds("y", "p"))
    assert [one.part for one in odds.unseen] == ["true positive rate", "false positive rate"]
    lines = reach_lines(odds)
    assert len(lines) == 4
    assert lines[2].startswith("Not excluded in false positive rate: that ")
    assert "points" in lines[3]
    lift = fl.cluster(frame, "g", fl.lift("x", variant="arm", control="A"))
    assert not lift.rejected
    assert all("points" in line for line in reach_lines(lift))


def test_what_takes_too_long_is_not_simulated_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen, "_MOST", 11)
    assert reach_lines(fl.cluster(NULL))[1] == (
        "What differences would have been seen was not simulated here; fl.power does it."
    )
    monkeypatch.setattr(unseen, "_MOST", 100)
    few = fl.cluster(simulate.null(4, seed=1).estimates, guarantee="folds")
    assert few.unseen[0].simulated
    assert not fl.cluster(NULL, guarantee="folds").unseen[0].simulated
    assert fl.cluster(NULL, guarantee="bonferroni").unseen[0].simulated


def test_a_gap_that_no_power_reaches() -> None:
    """Rates of one row: one group would not have been seen, however far apart."""
    found = fl.cluster(fl.binomial([1, 0] * 20, 1), guarantee=fl.Calibrated(draws=99))
    assert found.unseen[0].one is None
    assert "if one group differs, no gap." in reach_lines(found)[1]
