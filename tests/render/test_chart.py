from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import faultlines as fl
from faultlines import formats, simulate
from faultlines.render import chart, geometry, pictures
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

    from faultlines.results import Clustering


def plane(groups: int = 24, seed: int = 1) -> Clustering:
    rng = np.random.default_rng(seed)
    centres = np.array([[0.8, 0.1], [0.6, 0.12], [0.75, 0.3]])[np.arange(groups) % 3]
    labels = [f"country {i}" for i in range(groups)]
    theta = centres + rng.normal(0, 0.02, (groups, 2))
    estimates = fl.Estimates(theta, np.full((groups, 2), 0.02), labels, parts=["tpr", "fpr"])
    return fl.cluster(estimates, guarantee="bonferroni")  # the quickest


@pytest.fixture(scope="module")
def demo() -> Clustering:
    return fl.cluster(simulate.onboarding().estimates)


def layers(c: Clustering, kind: geometry.Kind = "groups") -> Any:
    (picture,) = pictures.pictures(c, kind)
    return picture.layers


def test_the_picture_holds_groups_clusters_lines_and_mean(demo: Clustering) -> None:
    drawn = layers(demo)
    by_name = {row["name"]: row for row in drawn["points"]}
    assert len(by_name) == 40
    for row, cluster in zip(demo.to_dicts(), demo.labels, strict=True):
        assert by_name[row["country"]]["x"] == row["estimate"]
        assert by_name[row["country"]]["cluster"] == cluster
    assert [row["x"] for row in drawn["points"]] == sorted(demo.estimates.theta)
    assert [(band["x"], band["x2"]) for band in drawn["bands"]] == [cluster.ci for cluster in demo.clusters]
    sizes = [band["y2"] - band["y"] for band in drawn["bands"]]
    assert sizes == [len(cluster.members) for cluster in demo.clusters]
    # The lines run where the clusters meet, each with the p of its own split; the smallest is the verdict's.
    assert [line["y"] for line in drawn["faults"]] == [8, 28]
    pvalues = [row["text"] for row in drawn["sides"] if row["text"].startswith("p ")]
    assert formats.p_is(demo.log_pvalue) in pvalues
    assert len(pvalues) == 2
    assert drawn["overall"][0]["x"] == pytest.approx(np.average(demo.estimates.theta, weights=demo.estimates.n))


def test_intervals_of_groups_are_normal_or_t() -> None:
    from scipy import stats

    estimates = fl.Estimates([1.0, 2.0], [0.5, 0.25])
    lower, upper = estimates.intervals(0.1)
    assert lower == pytest.approx(stats.norm.ppf(0.05, [1, 2], [0.5, 0.25]))
    assert upper == pytest.approx(stats.norm.ppf(0.95, [1, 2], [0.5, 0.25]))
    lower, _ = fl.Estimates([1.0, 2.0], [0.5, 0.25], dof=[3, 9]).intervals(0.1)
    assert lower == pytest.approx(stats.t.ppf(0.05, [3, 9], [1, 2], [0.5, 0.25]))
    both, _ = fl.Estimates([[1.0, 2.0]], [[0.5, 0.25]], dof=[3]).intervals(0.1)
    assert both == pytest.approx(stats.t.ppf(0.05, 3, [[1, 2]], [[0.5, 0.25]]))


@pytest.mark.parametrize("groups", [1, 2, 5, 40, 300, 5_000])
def test_every_number_of_groups_is_readable(groups: int) -> None:
    estimates = simulate.planted([0, 6], [groups - groups // 3, groups // 3], seed=2).estimates
    c = fl.cluster(estimates, guarantee="bonferroni")
    (picture,) = pictures.pictures(c)
    assert picture.height <= 1000
    named = [row["text"] for row in picture.layers["names"]] + [row["text"] for row in picture.layers["notes"]]
    by_effect = np.argsort(c.estimates.theta)
    if groups <= 40:
        assert len(picture.layers["names"]) == groups
    else:  # the outermost are named
        assert any(words.startswith(f"lowest: {by_effect[0]}, {by_effect[1]}") for words in named)
        assert any(words.startswith(f"highest: {by_effect[-1]}, {by_effect[-2]}") for words in named)
    if groups > 400:  # hills hold as many groups as the cluster does
        assert not picture.layers["points"]
        assert len({row["id"] for row in picture.layers["ridges"]}) == c.n_clusters
    else:
        assert len(picture.layers["points"]) == groups
    svg = plot_svg(c)
    assert svg.count("<text") > 3


def plot_svg(c: Clustering, kind: geometry.Kind = "groups", theme: geometry.Theme = "light") -> str:
    import io

    svg = io.StringIO()
    c.plot(kind, theme=theme).save(svg, format="svg")
    return svg.getvalue()


def test_names_stay_text_and_long_ones_are_cut() -> None:
    hostile = '<script>alert("x")</script>&amp;'
    c = fl.cluster(fl.Estimates([0.0, 9.0, 9.5], [1, 1, 1], [hostile, "b" * 80, "c\x1b[31m"]))
    svg = plot_svg(c)
    assert "<script" not in svg
    assert "&lt;script&gt;" in svg
    assert "b" * 39 + "…" in svg
    assert "\x1b" not in svg


def test_two_effects_are_ellipses_of_the_right_size() -> None:
    c = plane()
    drawn = layers(c)
    points = np.array([[row["x"], row["y"]] for row in drawn["ellipses"] if row["id"] == 0])
    place = int(geometry.Frame.of(c).order[0])
    distance = (points - c.estimates.theta[place]) / c.estimates.se[place]
    assert np.sum(distance**2, axis=1) == pytest.approx(np.full(48, 5.991), rel=1e-3)  # χ² on 2 at 5%
    assert len(drawn["points"]) == 24
    assert [row["text"] for row in drawn["labels"]] == ["cluster 1", "cluster 2", "cluster 3"]
    assert len(layers(plane(200))["points"]) == 200
    assert layers(plane(200))["ellipses"] == []


def test_very_small_units_can_be_drawn_in_the_plane() -> None:
    theta = np.array([[1.0, 2], [1.1, 2], [8, 2], [8, 2.2]]) * 1e-55
    assert layers(fl.cluster(fl.Estimates(theta, np.full((4, 2), 1e-56)), guarantee="bonferroni"))["ellipses"]


def test_three_effects_are_three_pictures() -> None:
    theta = np.random.default_rng(0).normal(size=(6, 3)) + 9 * (np.arange(6) > 2)[:, None]
    c = fl.cluster(fl.Estimates(theta, np.ones((6, 3)), parts=["a", "b", "c"]))
    assert [picture.x.title for picture in pictures.pictures(c)] == ["a", "b", "c"]
    assert plot_svg(c).count("cluster 2: ") == 3


@pytest.mark.parametrize("groups", [2, 40, 900])
def test_the_tree_has_every_merge_at_its_height(groups: int) -> None:
    c = fl.cluster(simulate.planted([0, 6], [groups // 2, groups - groups // 2], seed=1).estimates)
    drawn = layers(c, "tree")["branches"]
    heights = sorted({row["x2"] for row in drawn if row["x"] == row["x2"]})
    expected = np.sqrt(np.sort(c.hierarchy.gap_heights))[-min(groups - 1, 59) :]
    assert heights == pytest.approx(expected)
    ink = {row["x2"] for row in drawn if row["cluster"] == 0 and row["x"] == row["x2"]}
    assert len(ink) == c.n_clusters - 1  # what joins beyond the cut has no colour
    (cut,) = layers(c, "tree")["faults"]
    assert np.sum(np.sqrt(c.hierarchy.gap_heights) > cut["x"]) == c.n_clusters - 1


@pytest.mark.parametrize("guarantee", ["holdout", "folds", "bonferroni", fl.Calibrated(scan=False)])
def test_every_guarantee_can_be_drawn(guarantee: Any) -> None:
    c = fl.cluster(simulate.planted([0, 8], [12, 12], seed=3).estimates, guarantee=guarantee)
    assert len(layers(c)["points"]) == 24
    assert {row["cluster"] for row in layers(c)["points"]} == set(c.labels.tolist())
    assert layers(c, "tree")["branches"]
    assert "<svg" in plot_svg(c, "tree")


def test_rates_are_drawn_as_rates() -> None:
    c = fl.cluster(fl.binomial([5, 10, 90, 95], [100, 100, 100, 100]))
    assert all(0 <= row["x"] <= 1 for layer in ("points", "intervals", "bands") for row in layers(c)[layer])


def test_what_cannot_be_drawn_is_said(demo: Clustering, tmp_path: Path) -> None:
    with refused("unknown: kind"):
        demo.plot("treee")  # type: ignore[arg-type]
    with refused("unknown: theme"):
        demo.plot(theme="blue")  # type: ignore[arg-type]
    with refused("unsupported: kind"):
        fl.cluster(fl.Estimates([1.0], [1.0])).plot("tree")
    plain = fl.Similarity(np.array([[1.0], [9.0]]), lambda a, b: np.ones(len(b)), null=lambda s, r: s)
    with refused("unsupported: kind"):
        fl.cluster(plain, guarantee="bonferroni").plot()
    with refused("unwritable file: plot"):
        chart.target(tmp_path / "x.bmp")
    with refused("unwritable file: plot"):
        chart.target(tmp_path / "none" / "x.svg")


def test_charts_save_without_a_network(demo: Clustering, tmp_path: Path) -> None:
    drawn = demo.plot()
    for kind in ("svg", "png", "html"):
        drawn.save(str(tmp_path / f"x.{kind}"))
    chart.save(demo, tmp_path / "y.SVG")
    assert (tmp_path / "y.SVG").read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert not re.search(r"<script[^>]+src=|<link", page)
    assert drawn.properties(width=300).to_dict()["width"] == 300
    assert "#14181d" in plot_svg(demo, theme="dark")


# ----------------------------------------------------------------------------------------------------------- colours

# Machado, Oliveira and Fernandes (2009), at full strength, on linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.asarray(np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4))


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.0888])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("kind", BLINDNESS)
def test_neighbouring_clusters_look_different_to_everyone(kind: str) -> None:
    for color, other in itertools.pairwise([*geometry.PALETTE, geometry.PALETTE[0]]):
        apart = lab(BLINDNESS[kind] @ linear(color)) - lab(BLINDNESS[kind] @ linear(other))
        assert np.linalg.norm(apart) > 20, (color, other)


@pytest.mark.parametrize("paper", geometry.PAPER.values())
def test_colours_stand_out_from_the_paper(paper: str) -> None:
    def brightness(colour: str) -> float:
        return float(linear(colour) @ [0.2126, 0.7152, 0.0722]) + 0.05

    for colour in geometry.PALETTE:
        low, high = sorted((brightness(colour), brightness(paper)))
        assert high / low > 3  # what WCAG asks of graphics
