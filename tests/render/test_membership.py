"""Groups whose cluster is sure and groups that could be in another one: drawn, listed, and at every level."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import faultlines as fl
from faultlines import simulate
from faultlines.render import geometry, pictures, vega
from faultlines.render.clustering import contrast

if TYPE_CHECKING:
    from pathlib import Path

    from faultlines.results import Clustering

RIGHT_TO_LEFT = ["ישראל", "السعودية", "مصر", "Deutschland", "إيران", "Pakistan (شمال)"]


@pytest.fixture(scope="module")
def demo() -> Clustering:
    return fl.cluster(simulate.onboarding().estimates)


def plane() -> Clustering:
    rng = np.random.default_rng(3)
    centres = np.array([[0.8, 0.1], [0.7, 0.12], [0.75, 0.3]])[np.arange(24) % 3]
    estimates = fl.Estimates(centres + rng.normal(0, 0.03, (24, 2)), np.full((24, 2), 0.03), parts=["tpr", "fpr"])
    return fl.cluster(estimates)


def unsure(c: Clustering) -> int:
    assert c.posterior is not None
    return int(np.sum(~c.posterior.certain))


def test_unsure_groups_are_hollow_in_pictures(demo: Clustering) -> None:
    for c in (demo, plane()):
        (picture,) = pictures.pictures(c)
        order = geometry.Frame.of(c).order
        hollow = [row["hollow"] for row in picture.layers["points"]]
        assert c.posterior is not None
        assert hollow == (~c.posterior.certain[order]).tolist()
        assert 0 < sum(hollow) < len(hollow)
        drawn = vega.svg(picture)
        points = re.search(r'class="mark-symbol[^"]*points_marks".*?</g>', drawn, re.DOTALL)
        assert points is not None
        assert points[0].count('fill="#ffffff"') == unsure(c)
        assert points[0].count("<path") == len(c.labels)
        assert "○" in vega.caption(c, "groups")
    ellipses = {row["id"]: row["hollow"] for row in picture.layers["ellipses"]}
    assert [ellipses[i] for i in range(24)] == hollow
    sure = fl.cluster(fl.Estimates([0, 0.1, 9, 9.1], [0.3] * 4))
    assert not any(row["hollow"] for row in pictures.pictures(sure)[0].layers["points"])
    assert "○" not in vega.caption(fl.cluster(simulate.null(5).estimates), "groups")
    assert "○ uncertain" in demo._repr_html_()


def test_a_hundred_and_thirteen_rows_have_their_names() -> None:
    names = [f"region {i}" for i in range(113)]
    estimates = simulate.planted([0, 6], [60, 53], seed=2).estimates
    c = fl.cluster(fl.Estimates(estimates.theta, estimates.se, names, attributes=["region"]))
    (picture,) = pictures.pictures(c)
    assert sorted(row["text"] for row in picture.layers["names"]) == sorted(names)
    assert picture.height / 113 >= 9  # pixels for each
    assert [row["text"] for row in picture.layers["notes"]] == ["mean of all", "region"]


def test_hills_count_the_unsure() -> None:
    estimates = simulate.planted([0, 4], [300, 300], seed=2).estimates
    c = fl.cluster(estimates, guarantee="bonferroni")
    (picture,) = pictures.pictures(c)
    words = " ".join(row["text"] for row in picture.layers["sides"])
    assert sum(map(int, re.findall(r"(\d+) uncertain", words))) == unsure(c) > 0


def test_regions_of_clusters_are_about_their_levels() -> None:
    c = plane()
    (picture,) = pictures.pictures(c)
    for i, cluster in enumerate(c.clusters):
        points = np.array([[row["x"], row["y"]] for row in picture.layers["centres"] if row["id"] == i])
        assert points.mean(axis=0) == pytest.approx(cluster.estimate)


def test_the_table_has_memberships_possible_clusters_and_shrunken_estimates(demo: Clustering, tmp_path: Path) -> None:
    demo.report(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    table = re.search(r'data-is="groups">(.*?)</table>', page, re.DOTALL)
    assert table is not None
    header = re.findall(r"<th[^>]*>([^<]+)</th>", table[1])
    assert header == [
        "country", "own estimate", "95% interval", "shrunken", "95% interval", "n", "cluster", "membership",
    ]  # fmt: skip
    shown = {}
    for row in re.findall(r"<tr>(<td.*?)</tr>", table[1]):
        cells = [re.sub(r"<[^>]+>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        shown[cells[0]] = [cell.replace("&gt;", ">") for cell in cells[1:]]
    for row in demo.to_dicts():
        own, _, shrunken, interval, _, cluster, membership = shown[row["country"]]
        assert own == f"{row['estimate']:+.2%}"
        assert shrunken == f"{row['shrunken']:+.2%}"
        assert interval == f"{row['shrunken_lower']:+.2%} … {row['shrunken_upper']:+.2%}"
        assert cluster == str(row["cluster"])
        possible = "" if len(row["possible"]) == 1 else f", possible: {' or '.join(map(str, row['possible']))}"
        percent = (
            "100%" if row["membership"] == 1 else "> 99%" if row["membership"] > 0.995 else f"{row['membership']:.0%}"
        )
        assert membership == f"{percent}{possible}"
    for explained in (
        "Own estimate: from the group alone.",
        "Shrunken: ",
        "Membership: ",
        "Cluster effect: ",
        "Observed: ",
    ):
        assert explained in page


# --------------------------------------------------------------------------------------------- in a real browser


def test_hollow_points_and_memberships_follow_the_slider(demo: Clustering, opened: Any) -> None:
    for c in (demo, plane()):
        page = opened(c)
        levels = json.loads(page.page.locator('[data-is="data"]').text_content())["levels"]
        count = "marks => marks.filter(m => getComputedStyle(m).fill === 'rgb(255, 255, 255)').length"
        assert page.page.eval_on_selector_all(".points_marks path", count) == unsure(c)
        for place in range(0, len(levels), 4):
            page.slide(place)
            cut = c.at(float(levels[place]["alpha"]))
            sure = cut.certain_at(c.alpha)  # what is said of groups keeps the level of the page
            assert page.page.eval_on_selector_all(".points_marks path", count) == int(np.sum(~sure))
            memberships = page.texts('[data-is="groups"] tbody td.membership')
            assert sum("possible" in words for words in memberships) == (int(np.sum(~sure)) if cut.rejected else 0)
            assert ("–" in memberships) == (not cut.rejected)
            open_ones = "marks => marks.filter(m => getComputedStyle(m).fillOpacity === '0').length"
            if c is not demo:
                assert page.page.eval_on_selector_all(".ellipses_pathgroup path", open_ones) == int(np.sum(~sure))


def test_the_head_of_the_page_is_the_decision_and_follows_the_slider(demo: Clustering, opened: Any) -> None:
    page = opened(demo, adverse="low")
    assert page.texts('[data-is="lead"]') == [contrast(demo, ("low",))]
    first = page.page.locator('[data-is="lead"]').bounding_box()["y"]
    assert first < page.page.locator("svg").first.bounding_box()["y"]
    assert len(page.texts("dl.decision dt")) == 3
    before = page.page.locator("dl.decision").inner_text()
    assert before.count("worse off") == 1
    assert before.count("better off") == 2
    page.slide(0)
    assert page.page.locator("dl.decision").inner_text() != before
    page.page.click('[data-is="back"]')
    assert page.page.locator("dl.decision").inner_text() == before  # the script says what the page said without it
    assert page.page.locator('[data-is="clusters"] .standing.worse').count() == 1
    mark = page.page.eval_on_selector(".standing.worse", "e => getComputedStyle(e, '::before').content")
    assert "⚠" in mark  # not by colour alone
    sides = page.page.locator(".live-sides text").all_text_contents()
    assert next(words for words in sides if words.startswith("cluster 1")).endswith(", worse off")


@pytest.mark.parametrize("kind", ["demo", "plane", "long"])
def test_nothing_overflows_a_narrow_screen(kind: str, demo: Clustering, opened: Any) -> None:
    long = [("x" * 60 + str(i), f"{'word ' * 20}{i}") for i in range(12)]
    arguments: dict[str, Any] = {
        "demo": lambda: demo,
        "plane": plane,
        "long": lambda: fl.cluster(
            fl.Estimates([0.0] * 6 + [9.0] * 6, [0.5] * 12, long, 10**9, attributes=["a" * 40, "b"], metric="m" * 90)
        ),
    }
    page = opened(arguments[kind](), (demo,), adverse="low", viewport={"width": 390, "height": 800})
    for tab in range(2):
        page.page.locator("nav.tabs a").nth(tab).click()
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_names_from_right_to_left_are_kept_apart(opened: Any) -> None:
    sizes = [100, 2000, 300, 400, 500, 600]
    estimates = fl.Estimates([0.0, 0.1, 0.05, 3, 0.02, 3.2], [0.3] * 6, RIGHT_TO_LEFT, sizes, attributes=["بلد"])
    page = opened(fl.cluster(estimates))
    names = set(page.texts('[data-is="groups"] td.name bdi'))
    assert names == set(RIGHT_TO_LEFT) - {"Deutschland"}
    lead = page.texts('[data-is="lead"] bdi')
    assert lead == ["شمال", "السعودية", "إيران", "مصر", "ישראל"]
    page.slide(0)
    page.page.click('[data-is="back"]')
    assert page.texts('[data-is="lead"] bdi') == lead
    assert "<bdi>" not in page.page.title()


def test_print_opens_members_and_keeps_to_two_sheets(demo: Clustering, opened: Any) -> None:
    page = opened(demo)
    assert not page.page.locator('[data-is="clusters"] details p').first.is_visible()
    pages = len(re.findall(rb"/Type\s*/Page\b", page.page.pdf(format="A4")))
    assert pages <= 2
    page.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.page.emulate_media(media="print")
    assert page.page.locator('[data-is="clusters"] details p').last.is_visible()
    tall = "c.scrollHeight > 1.9 * parseFloat(getComputedStyle(c).lineHeight)"
    broken = f"cells => cells.filter(c => c.getClientRects().length && {tall}).length"
    page.page.set_viewport_size({"width": 710, "height": 1000})  # what A4 leaves between its margins
    assert page.page.eval_on_selector_all("td.number:not(.membership)", broken) == 0  # no number on two lines
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 710
    page.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    page.page.emulate_media(media="screen")
    assert not page.page.locator('[data-is="clusters"] details p').first.is_visible()
    order = page.page.eval_on_selector_all("#r0 h2", "heads => heads.map(h => h.textContent)")
    assert order.index("Groups") < order.index("How the groups merge")


def test_attributes_stand_before_the_tree(opened: Any) -> None:
    labels = [(a, b) for a in "abcd" for b in "xyz"]
    effect = [5.0 * (a in "ab") for a, _ in labels]
    page = opened(fl.cluster(fl.Estimates(effect, [0.5] * 12, labels, attributes=["one", "two"])))
    order = page.texts("h2")
    assert order.index("Which attributes matter") < order.index("How the groups merge")
