"""Weights by cluster: against their definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

    from faultlines.results import Clustering


def clustered(sizes: list[int]) -> Clustering:
    """Groups 0, 1, … in clusters of these sizes."""
    level = np.repeat(np.arange(len(sizes)) * 100.0, sizes)
    return fl.cluster(fl.Estimates(level, np.ones(level.size), range(level.size), attributes=["g"]))


def rows(seed: int, groups: int, size: int = 400, scores: int = 12) -> pl.DataFrame:
    """Rows with few scores, so that there are ties, and outcomes that go with group and score."""
    rng = np.random.default_rng(seed)
    g, s = rng.integers(0, groups, size), rng.integers(0, scores, size)
    y = (rng.random(size) < (s + 2 + 2 * g / groups) / (scores + 6)).astype(int)
    y[:2], g[:2] = (0, 1), 0
    return pl.DataFrame({"g": g, "y": y, "s": s / scores})


def cluster_of(result: Clustering, frame: pl.DataFrame) -> np.ndarray[Any, Any]:
    return np.array(result.assign(frame)["cluster"].fill_null(0).to_list())


# ------------------------------------------------------------------------------------------------------------ weights


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 4))
def test_outcomes_are_independent_of_clusters_under_the_weights(seed: int, sizes: list[int], labels: int) -> None:
    result, rng = clustered(sizes), np.random.default_rng(seed)
    # Every outcome occurs in every cluster; three groups more have no cluster.
    starts = np.repeat(np.cumsum([0, *sizes[:-1]]), labels)
    g = np.concatenate([starts, rng.integers(0, sum(sizes) + 3, 300)])
    y = np.concatenate(
        [np.tile(np.arange(labels), len(sizes)), rng.integers(0, labels, 300) ** 2 // max(labels - 1, 1)]
    )
    frame = pl.DataFrame({"g": g, "y": [f"outcome {i}" for i in y]})
    weight = result.weights(frame, label="y")["weight"].to_numpy()
    cluster = cluster_of(result, frame)
    assert (weight[cluster == 0] == 1).all()
    inside = cluster > 0
    total = inside.sum()
    assert weight[inside].sum() == pytest.approx(total, rel=1e-12)
    for c in np.unique(cluster[inside]):
        assert weight[cluster == c].sum() == pytest.approx((cluster == c).sum(), rel=1e-12)
        for outcome in np.unique(y[inside]):
            together = weight[(cluster == c) & (y == outcome)].sum() / total
            apart = (cluster == c).sum() / total * ((y == outcome) & inside).sum() / total
            assert together == pytest.approx(apart, abs=1e-12)


def test_rows_without_an_outcome_have_no_weight_and_count_for_nothing() -> None:
    result = clustered([1, 1])
    frame = pl.DataFrame({"g": [0, 0, 0, 1, 1, 1, 9], "y": [True, False, None, True, True, False, None]})
    weights = result.weights(frame, label="y")["weight"]
    assert weights.is_null().to_list() == [False, False, True, False, False, False, True]
    without = result.weights(frame.filter(pl.col("y").is_not_null()), label="y")["weight"]
    assert weights.drop_nulls().to_list() == without.to_list()
    assert np.isnan(result.weights(frame.to_pandas(), label="y")["weight"][2])


def test_one_cluster_leaves_everything_as_it_is() -> None:
    result = fl.cluster(fl.Estimates([1.0, 1.1, 0.9], [1.0] * 3, range(3), attributes=["g"]))
    frame = rows(1, 3)
    assert result.n_clusters == 1
    assert set(result.weights(frame, label="y")["weight"].to_list()) == {1.0}
    assert set(result.weights(frame)["weight"].to_list()) == {1.0}


def test_keys_in_other_types_find_their_clusters_also_beside_a_label() -> None:
    result = clustered([1, 2])
    frame = rows(3, 3)
    texts = frame.with_columns(pl.col("g").cast(pl.String), y=pl.col("y") == 1)
    expected = result.weights(frame, label="y")["weight"].to_list()
    assert result.weights(texts, label="y")["weight"].to_list() == expected


@pytest.mark.parametrize(
    ("frame", "label", "message"),
    [
        ({"g": [0, 1], "y": [0, 1]}, "z", "column not found: label"),
        ({"g": [0, 1], "y": [0, 1]}, "g", "conflict: label"),
        ({"g": [0, 1], "y": [0, 1]}, 3, "wrong type: label"),
        ({"g": [0, 0, 1, 1], "y": [0, 1, 0, 0]}, "y", "invalid data: label"),
        ({"g": [0, 0, 1], "y": [0.5, 0.7, 0.9]}, "y", "invalid data: label"),
        ({"g": [0, 1, 5], "y": [None, None, 1]}, "y", "invalid data: label"),
        ({"g": [7, 8], "y": [0, 1]}, "y", "not found: frame"),
    ],
)
def test_labels_that_cannot_be_balanced_are_refused(frame: dict[str, Any], label: Any, message: str) -> None:
    result = clustered([1, 1])
    for table in (pl.DataFrame(frame), pl.DataFrame(frame).lazy(), pd.DataFrame(frame)):
        with refused(message):
            result.weights(table, label=label)


def test_files_are_refused(tmp_path: Path) -> None:
    with refused("wrong type: frame"):
        clustered([2, 1]).weights(tmp_path / "part-1.parquet", label="y")


def test_bins_and_several_attributes_reach_the_rows() -> None:
    rng = np.random.default_rng(2)
    frame = pl.DataFrame(
        {
            "age": rng.uniform(20, 60, 4000),
            "sex": rng.choice(["f", "m"], 4000),
            "y": rng.integers(0, 2, 4000),
        }
    )
    frame = frame.with_columns(s=pl.Series(rng.random(4000)) + 0.3 * (pl.col("age") >= 40) * (pl.col("sex") == "m"))
    groups: list[str | fl.Bins] = [fl.bins("age", width=10), "sex"]
    result = fl.cluster(frame, groups, fl.selection_rate(score="s", threshold=0.7))
    assert result.n_clusters == 2
    weight = result.weights(frame, label="y")["weight"]
    assert weight.mean() == pytest.approx(1)
