"""The page: what it says, and what it does in a real browser without a network."""

from __future__ import annotations

import html
import itertools
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import faultlines as fl
from faultlines import formats, simulate
from faultlines.estimates.labels import name_of
from faultlines.render.clustering import contrast
from faultlines.results import Clustering
from tests.refused import refused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOSTILE = [
    "<script>document.title='taken'</script>",
    "</script><script>document.title='taken'</script>",
    '"><img src=x onerror="document.title=1">',
    "{{ 7 * 7 }}",
    "a&amp;b",
    "<!--",
    "日本 · \u202ex",
]


CHIPS = '[data-is="groups"] tbody .chip'


@cache
def hostile() -> Clustering:
    effects = [0.0, 9.0, 9.4, 0.3, 9.1, 0.2, 0.1]
    return fl.cluster(fl.Estimates(effects, [0.5] * 7, HOSTILE, attributes=["<b>country</b>"], metric="<i>lift</i>"))


@cache
def cells() -> Clustering:
    """Three attributes with three clusters in them, and some groups left out."""
    ages = [fl.Range(low, low + 15, True) for low in (20, 35, 50)]
    labels = list(itertools.product(["IN", "PK", "US", "DE"], ["mobile", "web"], ages))
    effects = [0.3 * (c in {"IN", "PK"} and d == "mobile") - 0.3 * (d == "web" and a.lower == 50) for c, d, a in labels]
    noise = np.random.default_rng(0).normal(0, 0.02, len(labels))
    sizes = np.where(np.arange(len(labels)) == 3, 5, 400)
    estimates = fl.Estimates(
        effects + noise, [0.02] * len(labels), labels, sizes, attributes=["country", "device", "age"]
    )
    return fl.cluster(estimates, min_size=20)


@cache
def plane() -> Clustering:
    rng = np.random.default_rng(1)
    centres = np.array([[0.8, 0.1], [0.6, 0.12], [0.75, 0.3]])[np.arange(18) % 3]
    theta = centres + rng.normal(0, 0.02, (18, 2))
    estimates = fl.Estimates(theta, np.full((18, 2), 0.02), parts=["tpr", "fpr"])
    return fl.cluster(estimates, guarantee="bonferroni")


@cache
def many(groups: int) -> Clustering:
    simulated = simulate.planted([0, 6, 12], [groups // 2, groups // 4, groups - groups // 2 - groups // 4], seed=1)
    return fl.cluster(simulated.estimates, guarantee=fl.Calibrated(draws=30))


@pytest.fixture(scope="module")
def demo() -> Clustering:
    return fl.cluster(simulate.onboarding().estimates)


def page_of(c: Clustering, tmp_path: Path, **options: Any) -> str:
    path = tmp_path / "page.html"
    c.report(path, **options)
    return path.read_text(encoding="utf-8")


def words_of(page: str) -> str:
    import html

    page = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


# ------------------------------------------------------------------------------------------------- what it says


def test_the_page_has_all_its_parts(demo: Clustering, tmp_path: Path) -> None:
    words = words_of(page_of(demo, tmp_path))
    for cluster in demo.clusters:
        assert ", ".join(map(str, cluster.members)) in words
    texts = [note.text for note in demo.notes if note.code not in ("evidence", "next")]
    for part in (
        demo.headline, contrast(demo), *texts, demo.fingerprint,
        "fl.cluster(…, alpha=0.05, guarantee=fl.Calibrated(draws=None, scan=True), refine=True",
    ):  # fmt: skip
        assert part in words, part


def test_what_was_left_out_is_listed_with_its_reason(tmp_path: Path) -> None:
    result = cells()
    words = words_of(page_of(result, tmp_path, command="faultlines estimates x.csv --by a"))
    assert "IN · web · 20–34 fewer than 20 in the group" in words
    assert "country in {IN, PK} and device = mobile" in words
    assert "faultlines estimates x.csv --by a" in words
    assert "Which attributes matter" in words
    for row in result.explained():
        p = formats.pvalue(float(np.log(row.pvalue)))
        assert f"{row.attribute} {row.share:.0%} {p} {row.lower:.0%} … {row.upper:.0%}" in words
    top = words.partition("Clusters Level:")[0]
    shown = {"excluded groups", "explained", "intervals", "membership"}
    for text in (contrast(result), *(note.text for note in result.notes if note.code in shown)):
        assert text in top


def test_nothing_found_is_not_called_equal(tmp_path: Path) -> None:
    words = words_of(page_of(fl.cluster(simulate.null(8).estimates), tmp_path))
    assert "That there is no difference." in words


@pytest.mark.parametrize("guarantee", ["holdout", "folds", "bonferroni", fl.Calibrated(scan=False)])
def test_every_guarantee_has_a_page(guarantee: Any, tmp_path: Path) -> None:
    c = fl.cluster(simulate.planted([0, 9], [6, 6], seed=3).estimates.changed(n=50), guarantee=guarantee)
    words = words_of(page_of(c, tmp_path))
    assert ("did not choose the cluster" in words) == (guarantee == "holdout")
    assert ("exaggerates the difference" in words) == (c.rejected and guarantee != "holdout")
    assert ("does not control the error" in words) == (guarantee == "bonferroni")


def test_other_comparisons_have_a_page(tmp_path: Path) -> None:
    page_of(fl.cluster(fl.binomial([5, 10, 90, 95], [100] * 4)), tmp_path)
    page_of(fl.cluster(fl.poisson([5, 10, 90, 95], [10.0] * 4)), tmp_path)
    page_of(fl.cluster(fl.Estimates([1.0], [1.0])), tmp_path)
    plain = fl.Similarity(np.array([[1.0], [9.0]]), lambda a, b: np.full(len(b), 1e-9), null=lambda s, r: s)
    assert "How the groups merge" in page_of(fl.cluster(plain, guarantee="bonferroni"), tmp_path)


def test_rates_differ_in_points(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = {"g": np.repeat(["a", "b", "c"], 2000), "y": rng.random(6000) < np.repeat([0.1, 0.1, 0.31], 2000)}
    import polars as pl

    result = fl.cluster(pl.DataFrame(frame), by="g", metric=fl.rate("y"))
    assert re.search(r" (19|2[0-9])(\.\d)? points ", contrast(result))
    assert contrast(result) in words_of(page_of(result, tmp_path))


def test_experiments_beyond_the_page_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from faultlines.render import collection as module

    monkeypatch.setattr(module, "_ON_A_PAGE", 3)
    fl.cluster_many({f"e{i}": simulate.null(3, seed=i).estimates for i in range(5)}).report(tmp_path / "x.html")
    assert "2 more are not on this page" in words_of((tmp_path / "x.html").read_text(encoding="utf-8"))


def test_effects_may_have_any_name(tmp_path: Path) -> None:
    theta = np.array([[0.0, 5], [0.1, 5], [9, 5], [9.1, 5.1]])
    c = fl.cluster(fl.Estimates(theta, np.full((4, 2), 0.2), n=77, parts=["n", "cluster"]))
    page = page_of(c, tmp_path)
    header = re.search(r'data-is="groups">\s*<thead>(.*?)</thead>', page, re.DOTALL)
    assert header is not None
    names = re.findall(r">([^<>]+)</th>", header[1])
    own = [
        h
        for name in ("n", "cluster")
        for h in (f"{name}: own estimate", "95% interval", f"{name}: shrunken", "95% interval")
    ]
    assert names == ["group", *own, "n", "cluster", "membership"]


def test_what_cannot_be_encoded_is_replaced(tmp_path: Path) -> None:
    c = fl.cluster(fl.Estimates([0, 9.0, 9.1], [1.0] * 3, ["a\ud800", "b", "c"], metric="m\udfff"))
    page = page_of(c, tmp_path, title="t\ud800", command="x\udcff")
    assert "a�" in page
    assert c._repr_html_()


def test_regions_allow_for_few_degrees_of_freedom() -> None:
    from scipy import stats

    from faultlines.render.geometry import _reach

    assert _reach(0.05, np.inf) ** 2 == pytest.approx(stats.chi2.ppf(0.95, 2))
    for dof in (3, 9, 50):  # Hotelling's T² by F
        assert _reach(0.05, dof) ** 2 == pytest.approx(2 * dof / (dof - 1) * stats.f.ppf(0.95, 2, dof - 1))


def test_the_same_result_is_the_same_page_to_the_byte(tmp_path: Path) -> None:
    pages = {page_of(cells.__wrapped__(), tmp_path) for _ in range(2)}  # each from a result of its own
    assert len(pages) == 1
    assert not re.search(r"https?://|//[a-z]+\.[a-z]|<link|src=|@import|url\(", pages.pop())


def test_every_level_of_a_page_is_cut_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    c = fl.cluster(simulate.planted([0, 5], [4, 4], seed=1).estimates)
    cut, levels = Clustering.cut, list[float]()

    def counted(self: Clustering, alpha: float) -> Clustering:
        levels.append(alpha)
        return cut(self, alpha)

    monkeypatch.setattr(Clustering, "cut", counted)
    page = page_of(c, tmp_path)
    levels_of_page = json.loads(html.unescape(re.search(r'data-is="data">(.*?)</script>', page)[1]))["levels"]  # type: ignore[index]
    assert len(levels) == len({level["partition"] for level in levels_of_page}) - 1  # the result itself was cut before


def test_a_fingerprint_follows_the_data() -> None:
    plain = fl.Estimates([0.0, 9.0, 9.5], [1, 1, 1], ["a", "b", "c"])
    changes: list[dict[str, Any]] = [
        {}, {"labels": ["a", "b", "d"]}, {"theta": [0.0, 9.0, 9.6]}, {"se": [1, 1, 2]}, {"n": 5}, {"dof": 5},
    ]  # fmt: skip
    kinds = [plain.changed(**change) for change in changes]
    prints = [fl.cluster(kind).fingerprint for kind in kinds]
    assert len(set(prints)) == len(kinds)
    assert fl.cluster(plain).fingerprint == prints[0]
    noise = fl.Estimates(np.array([0.0, 9.0, 9.5]) * (1 + 1e-14), [1, 1, 1], ["a", "b", "c"])
    assert fl.cluster(noise).fingerprint == prints[0]  # engines differ in the last digits
    settings: list[dict[str, Any]] = [
        {"alpha": 0.01}, {"guarantee": "bonferroni"}, {"tolerance": 0.5}, {"refine": False}, {"seed": 1},
    ]  # fmt: skip
    assert len({prints[0], *(fl.cluster(plain, **setting).fingerprint for setting in settings)}) == 6


def test_names_from_the_data_cannot_become_anything_else(tmp_path: Path) -> None:
    page = page_of(hostile(), tmp_path)
    assert len(re.findall(r"<script\b", page)) == 2  # the data and ours
    assert "<img" not in page
    assert "{{ 7 * 7 }}" in page
    data = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert sorted(json.loads(data[1])["names"]) == sorted(name.replace("\u202e", "�") for name in HOSTILE)


def test_five_thousand_groups_are_all_listed(written: Callable[..., Path]) -> None:
    page = written(many(5_000), (), None).read_text(encoding="utf-8")
    assert len(page.encode()) < 6_000_000
    assert page.count("<tr>") > 5_000


@pytest.mark.parametrize("groups", [6_000, pytest.param(100_000, marks=pytest.mark.statistical)])
def test_of_more_groups_a_thousand_are_listed(groups: int, written: Callable[..., Path]) -> None:
    page = written(many(groups), (), None).read_text(encoding="utf-8")
    assert len(page.encode()) < 6_000_000
    body = re.search(r'data-is="groups">.*?<tbody>(.*?)</tbody>', page, re.DOTALL)
    assert body is not None
    assert body[1].count("<tr") == 1_000


def test_several_results_get_an_overview(demo: Clustering, tmp_path: Path) -> None:
    null = fl.cluster(simulate.null(8).estimates)
    words = words_of(page_of(demo, tmp_path, also=[null], names=["lift", "clicks"]))
    assert "2 results, 1 of them with clusters that differ" in words
    assert "Group by group" in words
    assert demo.headline in words
    assert null.headline in words
    with refused("wrong type: also"):
        demo.report(tmp_path / "x.html", also=["x"])  # type: ignore[list-item]
    for names in (["a", "b"], "x"):
        with refused("mismatch: names"):
            demo.report(tmp_path / "x.html", names=names)
    together = fl.cluster_many({f"e{i:02}": simulate.planted([0, 9], [3, 3], seed=i).estimates for i in range(25)})
    together.report(tmp_path / "many.html")
    words = words_of((tmp_path / "many.html").read_text(encoding="utf-8"))
    assert "25 experiments, corrected by Holm at α = 0.05" in words
    assert "25 results, 25 of them" in words
    assert "adjusted p" in words
    assert "threshold" not in words
    assert "5 results are in this table only" in words


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("none/x.html", "unwritable file: report"),
        ("x.pdf", "unwritable file: report"),
        (5, "wrong type: report"),
        ("a\0b.html", "wrong type: report"),
    ],
)
def test_a_page_that_cannot_be_written_is_said(path: Any, problem: str, demo: Clustering) -> None:
    with refused(problem):
        demo.report(path)


def test_what_fresh_data_say_stands_on_the_page(demo: Clustering, tmp_path: Path) -> None:
    again = fl.confirm(demo, simulate.onboarding(seed=5).estimates)
    words = words_of(page_of(demo, tmp_path, confirmation=again))
    pairs = [note.text for note in again.notes if note.code == "pair"]
    assert len(pairs) == demo.n_clusters - 1
    for text in (again.headline, *pairs):
        assert text in words
    with refused("wrong type: confirmation"):
        demo.report(tmp_path / "x.html", confirmation="yes")  # type: ignore[arg-type]


def test_a_title_stands_at_the_head(demo: Clustering, tmp_path: Path) -> None:
    page = page_of(demo, tmp_path, title="New <onboarding>")
    assert "<title>faultlines: New &lt;onboarding&gt;</title>" in page
    assert "<strong>New &lt;onboarding&gt;</strong>" in page


def test_all_groups_together_stand_below_the_clusters(demo: Clustering, tmp_path: Path) -> None:
    assert demo.estimates.n is not None
    share = demo.estimates.n / demo.estimates.n.sum()
    pooled = float(np.sum(share * demo.estimates.theta))
    assert demo.overall.estimate == pytest.approx(pooled)
    assert demo.overall.se == pytest.approx(np.sqrt(np.sum((share * demo.estimates.se) ** 2)))
    assert f"all {demo.number_formats[0](pooled)} " in words_of(page_of(demo, tmp_path))


def test_without_the_extra_the_remedy_is_named(
    demo: Clustering, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("faultlines.checks.find_spec", lambda name: None)
    calls: dict[str, Callable[[], Any]] = {"plot()": demo.plot, "report()": lambda: demo.report(tmp_path / "x.html")}
    for parameter, call in calls.items():
        with refused(f"not installed: {parameter}") as caught:
            call()
        assert "'.[report]'" in caught.value.remedy
    assert "<svg" not in demo._repr_html_()


def test_notebooks_show_verdict_picture_and_clusters(demo: Clustering) -> None:
    shown = demo._repr_html_()
    assert html.escape(demo.headline) in shown
    assert shown.count("<svg") == 1
    assert "<table" in shown
    assert "<script" not in hostile()._repr_html_()


# --------------------------------------------------------------------------------------------- in a real browser


@pytest.mark.parametrize("kind", ["demo", "cells", "plane", "hostile"])
def test_the_slider_cuts_as_at_does(kind: str, demo: Clustering, opened: Any) -> None:
    c = demo if kind == "demo" else {"cells": cells, "plane": plane, "hostile": hostile}[kind]()
    page = opened(c)
    levels = json.loads(page.page.locator('[data-is="data"]').text_content())["levels"]
    names = [formats.printable(name_of(label)) for label in c.estimates.labels]
    seen = set()
    for place, level in enumerate(levels):
        page.slide(place)
        cut = c.at(float(level["alpha"]))
        seen.add(cut.n_clusters)
        assert page.texts('[data-is="level"]') == [
            f"α = {level['alpha']}: {cut.n_clusters} cluster{'s' * cut.rejected}"
        ]
        assert " ".join(cut.headline.split()) in page.texts('[data-is="lead"], [data-is="evidence"] p')
        assert page.page.locator('[data-is="clusters"] tr.who').count() == cut.n_clusters
        if place % 5 == 0:
            chips = page.texts(CHIPS)
            read = "rows => rows.map(r => [...r.querySelectorAll('td.name')].map(c => c.textContent).join(' · '))"
            shown = page.page.eval_on_selector_all('[data-is="groups"] tbody tr', read)
            number = dict(zip(names, cut.labels.tolist(), strict=True))
            assert [number[name] for name in shown] == list(map(int, chips))
            members = page.page.locator('[data-is="clusters"] details p').all_text_contents()
            assert {m for words in members for m in words.split(", ")} == {
                m for name in names for m in name.split(", ")
            }
    assert len(seen) > 1


def test_the_picture_follows_the_slider(demo: Clustering, opened: Any) -> None:
    page = opened(demo)
    levels = json.loads(page.page.locator('[data-is="data"]').text_content())["levels"]
    two = next(i for i, level in enumerate(levels) if len(level["rows"]) == 2)
    page.slide(two)
    picture = page.page.locator('[data-is="picture"]').first
    assert picture.locator(".live-bands rect").count() == 2
    assert picture.locator(".live-faults line").count() == 1
    colours = page.page.eval_on_selector_all(".points_marks path", "marks => marks.map(m => m.style.stroke)")
    order = demo.hierarchy.order
    cut = demo.at(float(levels[two]["alpha"]))
    assert colours == [f"var(--c{cluster})" for cluster in cut.labels[order]]
    page.slide(0)
    assert picture.locator(".live-faults line").count() == (len(levels[0]["rows"]) > 1)


def test_search_and_sorting(demo: Clustering, opened: Any) -> None:
    page = opened(demo)
    page.page.fill('[data-is="search"]', "bd")
    assert page.texts('[data-is="groups"] tbody tr:visible td.name') == ["BD"]
    assert page.texts('[data-is="found"]') == ["1 of 40"]
    page.page.fill('[data-is="search"]', "0")  # numbers are not names
    assert page.texts('[data-is="found"]') == ["0 of 40"]
    page.page.fill('[data-is="search"]', "")
    rows = demo.to_dicts()
    for column, key in (("n", "n"), ("lift of returning users", "estimate"), ("country", "country")):
        header = "own estimate" if key == "estimate" else column
        button = page.page.locator('[data-is="groups"] th button', has_text=re.compile(f"^{header}$"))
        for falling in (False, True):
            button.click()
            expected = [row["country"] for row in sorted(rows, key=lambda row: row[key], reverse=falling)]
            assert page.texts('[data-is="groups"] tbody td.name') == expected


def by_sex(alike: float = 0.0) -> Clustering:
    """Only sex matters, of sex and ten regions, unless one region is different for women."""
    labels = [(sex, f"region {i}") for sex in ("male", "female") for i in range(10)]
    theta = [float(sex == "male") * (not alike) + alike * (sex == "female" and r == "region 3") for sex, r in labels]
    noise = np.random.default_rng(1).normal(0, 0.02, 20)
    return fl.cluster(fl.Estimates(theta + noise, [0.02] * 20, labels, [1000] * 20, attributes=["sex", "region"]))


def test_a_click_on_a_level_shows_its_groups_only(opened: Any) -> None:
    page = opened(by_sex())
    assert page.texts('[data-is="levels"] tbody td.name') == ["1 sex female", "2 sex male"]
    male = page.page.locator("button.level", has_text=re.compile("^sex male$"))
    male.click()
    shown = page.texts('[data-is="groups"] tbody tr:visible td.name')
    assert len(shown) == 20
    assert "female" not in shown  # which contains "male"
    assert page.texts('[data-is="found"]') == ["male: 10 of 20"]
    page.page.fill('[data-is="search"]', "region 3")
    assert page.texts('[data-is="groups"] tbody tr:visible td.name') == ["male", "region 3"]
    male.click()
    assert page.texts('[data-is="found"]') == ["2 of 20"]


def test_two_attributes_are_a_table_of_cells(opened: Any) -> None:
    c = by_sex(alike=1.0)
    assert c.attributes == ("sex", "region")
    page = opened(c)
    assert page.texts("table.heat thead th") == ["region \\ sex", "female", "male"]  # the longer one down the page
    values = dict(zip(c.estimates.labels, c.estimates.theta, strict=True))
    for i in range(10):
        cells = page.texts(f"table.heat tbody tr:nth-child({i + 1}) td")
        expected = [c.number_formats[0](values[sex, f"region {i}"]) for sex in ("female", "male")]
        assert [cell.split()[-1] for cell in cells] == expected
    page.page.locator("table.heat button.level", has_text="region 3").click()
    assert page.texts('[data-is="found"]') == ["region 3: 2 of 20"]


def test_effects_that_add_up_have_a_plot_for_each_attribute(opened: Any) -> None:
    labels = [(f"region {a}", f"type {b}") for a in range(6) for b in range(3)]
    theta = [5.0 * (i // 3 == 2) + 3.0 * (i % 3 == 1) + 0.1 * (i % 5) for i in range(18)]
    c = fl.cluster(fl.Estimates(theta, [0.4] * 18, labels, 100, attributes=["region", "type"]))
    assert [term.groups.attributes for term in c.additive] == [("region",), ("type",)]
    page = opened(c)
    heads = page.texts('table[data-is="levels"] thead th:first-child')
    assert heads == ["region", "type"]
    first = page.page.locator('table[data-is="levels"]').first
    shown = [row.split("\t")[0].strip() for row in first.locator("tbody tr").all_inner_texts()]
    by_effect = sorted(zip(c.additive[0].estimates.natural.tolist(), c.additive[0].group_labels, strict=True))
    assert shown == [f"region {label}" for _, label in by_effect]
    assert page.texts("table.heat tbody th") == [f"region {a}" for a in range(6)]
    page.page.locator('table[data-is="levels"] button.level', has_text="type 1").click()
    rows = page.page.locator('[data-is="groups"] tbody tr:visible')
    assert rows.count() == 6
    page.slide(0)
    assert "stale" in (page.page.locator('[data-is="along"]').get_attribute("class") or "")


@pytest.mark.parametrize("columns", [3, 5])
def test_long_names_do_not_widen_a_table_of_cells(columns: int, opened: Any) -> None:
    down = [f"Private-sector employee of a large company with 1,000 or more people, kind {a}" for a in range(6)]
    across = [f"Education, legal, community service, arts and media, kind {b}" for b in range(columns)]
    labels = [(a, b) for a in down for b in across]
    theta = [9.0 * (a == down[1] and b == across[1]) for a, b in labels]
    c = fl.cluster(fl.Estimates(theta, [0.4] * len(labels), labels, attributes=["class of worker", "occupation"]))
    for width in (390, 1100):
        page = opened(c, viewport={"width": width, "height": 844})
        box = page.page.locator(".scroll:has(> table.heat)")
        assert box.evaluate("e => e.scrollWidth - e.clientWidth") <= 1
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_telephone_shows_charts_and_tables_whole(demo: Clustering, opened: Any) -> None:
    page = opened(demo, color_scheme="dark", viewport={"width": 390, "height": 844})
    assert not page.page.locator(".wider").first.is_visible()
    rows = page.page.locator('[data-is="phone"] tr[data-place]')
    assert rows.count() == 40
    inside = "e => [e.getBoundingClientRect().left, e.getBoundingClientRect().right]"
    for selector in ('[data-is="phone"]', '[data-is="clusters"]'):
        left, right = page.page.locator(selector).evaluate(inside)
        assert left >= 0
        assert right <= 390
    levels = json.loads(page.page.locator('[data-is="data"]').text_content())["levels"]
    page.slide(0)
    cut = demo.at(float(levels[0]["alpha"]))
    read = "rows => rows.map(r => [Number(r.dataset.place), r.querySelector('.point').className])"
    for place, look in page.page.eval_on_selector_all('[data-is="phone"] tr[data-place]', read):
        assert look == f"point k{(int(cut.labels[demo.hierarchy.order[place]]) - 1) % 5 + 1}"


def test_words_are_searched_one_by_one(opened: Any) -> None:
    page = opened(cells())
    for words in ("IN · mobile · 20", "mobile in 20–34"):
        page.page.fill('[data-is="search"]', words)
        assert page.texts('[data-is="groups"] tbody tr:visible td.name') == ["IN", "mobile", "20–34"]


def test_exploring_is_said_and_print_shows_the_claim(demo: Clustering, opened: Any) -> None:
    page = opened(demo)
    assert not page.page.locator('[data-is="exploring"]').is_visible()
    page.slide(0)
    assert page.page.locator('[data-is="exploring"]').is_visible()
    page.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert demo.headline in page.texts('[data-is="evidence"] p')
    page.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert demo.headline not in page.texts('[data-is="evidence"] p')
    page.page.click('[data-is="back"]')
    assert demo.headline in page.texts('[data-is="evidence"] p')
    assert page.page.locator(".points_marks path title").first.text_content() == "CH"


def test_hostile_names_stay_text(opened: Any) -> None:
    page = opened(hostile())
    for place in range(0, 20, 4):
        page.slide(place)
    assert page.page.title().startswith("faultlines: ")
    assert page.page.locator("img").count() == 0
    assert "<script>document.title='taken'</script>" in page.page.locator('[data-is="groups"]').inner_text()


def test_without_javascript_everything_is_there(demo: Clustering, opened: Any) -> None:
    page = opened(demo, (plane(),), java_script_enabled=False)
    assert page.page.locator("section.result:visible").count() == 2
    assert not page.page.locator('[data-is="slider"]').first.is_visible()
    assert page.page.locator("#r0 svg").first.is_visible()
    assert page.page.locator("#r0 [data-is=groups] tbody tr").count() == 40
    page.page.locator("#r0 [data-is=clusters] summary").first.click()
    assert "CH, SE, AT" in page.page.locator("#r0 [data-is=clusters] tr.who").first.inner_text()


def test_tabs(demo: Clustering, opened: Any) -> None:
    page = opened(demo, (plane(),))
    assert page.page.locator("section.result:visible").count() == 1
    page.page.locator("nav.tabs a").nth(1).click()
    page.page.locator("#r1").wait_for(state="visible")  # the page follows the address, which changes after the click
    assert not page.page.locator("#r0").is_visible()


def test_it_prints_all_of_it(demo: Clustering, opened: Any, tmp_path: Path) -> None:
    page = opened(demo, (plane(),))
    page.page.emulate_media(media="print", color_scheme="dark")
    assert page.page.locator("section.result:visible").count() == 2
    assert not page.page.locator('[data-is="slider"]').first.is_visible()
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    table = page.page.locator("#r0 .tall").last
    assert table.evaluate("e => e.scrollHeight <= e.clientHeight + 2")  # nothing is hidden behind a scroll bar
    assert page.page.pdf().startswith(b"%PDF")


def test_dark_mode_and_narrow_screens(demo: Clustering, opened: Any) -> None:
    page = opened(demo, color_scheme="dark", viewport={"width": 420, "height": 800})
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    ink = page.page.eval_on_selector(".names_marks text", "e => getComputedStyle(e).fill")
    assert ink == "rgb(217, 222, 228)"
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 420


def test_of_very_many_groups_those_listed_follow_the_slider(opened: Any) -> None:
    c = many(6_000)
    page = opened(c)
    assert set(page.page.locator(CHIPS).all_text_contents()) == {"1", "3"}
    levels = json.loads(page.page.locator('[data-is="data"]').text_content())["levels"]
    assert page.page.locator(".live-ridges polygon").count() == 0
    page.slide(len(levels) - 1)
    cut = c.at(float(levels[-1]["alpha"]))
    outer = cut.labels[c.hierarchy.order[[0, -1]]].tolist()
    shown = page.page.locator(CHIPS).all_text_contents()
    assert [int(shown[0]), int(shown[-1])] == outer
    box = page.page.locator('[data-is="picture"] svg').first.bounding_box()
    hills = page.page.locator(".live-ridges polygon").last.bounding_box()
    assert hills["y"] + hills["height"] < box["y"] + box["height"]


def test_sorting_follows_the_slider(demo: Clustering, opened: Any) -> None:
    page = opened(demo)
    page.slide(0)
    button = page.page.locator('[data-is="groups"] th button', has_text=re.compile("^cluster$"))
    button.click()
    button.click()
    page.page.click('[data-is="back"]')
    assert page.texts(CHIPS) == sorted(map(str, demo.labels), reverse=True)


def test_five_thousand_groups_open_and_slide(opened: Any) -> None:
    page = opened(many(5_000))
    assert page.page.locator('[data-is="groups"] tbody tr').count() == 5_000
    page.slide(0)
    assert page.page.locator(".live-ridges polygon").count() >= 2
