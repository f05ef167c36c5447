"""Weights and thresholds by cluster: against their definitions, brute force, and the same rows held elsewhere."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl

if TYPE_CHECKING:
    from pathlib import Path

RATES = ["selection_rate", "true_positive_rate", "false_negative_rate", "false_positive_rate", "true_negative_rate"]


def clustered(sizes: list[int]) -> fl.Clustering:
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


def cluster_of(found: fl.Clustering, frame: pl.DataFrame) -> np.ndarray[Any, Any]:
    return np.array(found.assign(frame)["cluster"].fill_null(0).to_list())


# ------------------------------------------------------------------------------------------------------------ weights


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 4))
def test_outcomes_are_independent_of_clusters_under_the_weights(seed: int, sizes: list[int], labels: int) -> None:
    found, rng = clustered(sizes), np.random.default_rng(seed)
    # Every outcome occurs in every cluster; three groups more have no cluster.
    known = np.repeat(np.cumsum([0, *sizes[:-1]]), labels)
    g = np.concatenate([known, rng.integers(0, sum(sizes) + 3, 300)])
    y = np.concatenate(
        [np.tile(np.arange(labels), len(sizes)), rng.integers(0, labels, 300) ** 2 // max(labels - 1, 1)]
    )
    frame = pl.DataFrame({"g": g, "y": [f"outcome {i}" for i in y]})
    weight = found.weights(frame, label="y")["weight"].to_numpy()
    cluster = cluster_of(found, frame)
    assert (weight[cluster == 0] == 1).all()
    inside = cluster > 0
    total = inside.sum()
    assert weight[inside].sum() == pytest.approx(total, rel=1e-12)
    for c in np.unique(cluster[inside]):
        assert weight[cluster == c].sum() == pytest.approx((cluster == c).sum(), rel=1e-12)
        for one in np.unique(y[inside]):
            together = weight[(cluster == c) & (y == one)].sum() / total
            apart = (cluster == c).sum() / total * ((y == one) & inside).sum() / total
            assert together == pytest.approx(apart, abs=1e-12)


def test_rows_without_an_outcome_have_no_weight_and_count_for_nothing() -> None:
    found = clustered([1, 1])
    frame = pl.DataFrame({"g": [0, 0, 0, 1, 1, 1, 9], "y": [True, False, None, True, True, False, None]})
    weights = found.weights(frame, label="y")["weight"]
    assert weights.is_null().to_list() == [False, False, True, False, False, False, True]
    without = found.weights(frame.filter(pl.col("y").is_not_null()), label="y")["weight"]
    assert weights.drop_nulls().to_list() == without.to_list()
    assert np.isnan(found.weights(frame.to_pandas(), label="y")["weight"][2])


def test_one_cluster_leaves_everything_as_it_is() -> None:
    found = fl.cluster(fl.Estimates([1.0, 1.1, 0.9], [1.0] * 3, range(3), attributes=["g"]))
    frame = rows(1, 3)
    assert found.n_clusters == 1
    assert set(found.weights(frame, label="y")["weight"].to_list()) == {1.0}
    assert set(found.weights(frame)["weight"].to_list()) == {1.0}
    chosen = found.thresholds(frame, score="s", y_true="y", metric="true_positive_rate")
    assert (chosen.gap, chosen.gap_before, chosen.clusters[0].after) == (0, 0, chosen.target)
    expected = (frame["s"] >= 0.5).cast(pl.Int64).to_list()
    assert chosen.apply(frame)["prediction"].to_list() == expected


def test_keys_in_other_types_find_their_clusters_also_beside_a_label() -> None:
    found = clustered([1, 2])
    frame = rows(3, 3)
    texts = frame.with_columns(pl.col("g").cast(pl.String), y=pl.col("y") == 1)
    expected = found.weights(frame, label="y")["weight"].to_list()
    assert found.weights(texts, label="y")["weight"].to_list() == expected


@pytest.mark.parametrize(
    ("frame", "label", "message"),
    [
        ({"g": [0, 1], "y": [0, 1]}, "z", "label='z'.*no such column"),
        ({"g": [0, 1], "y": [0, 1]}, "g", "label='g'.*the groups are made of"),
        ({"g": [0, 1], "y": [0, 1]}, 3, "label=3.*not the name of a column"),
        ({"g": [0, 0, 1, 1], "y": [0, 1, 0, 0]}, "y", "label='y'.*cluster 2 has no row with the value 1.*merge rare"),
        ({"g": [0, 0, 1], "y": [0.5, 0.7, 0.9]}, "y", "label='y'.*cluster 1 has no row with the value 0.9"),
        ({"g": [0, 1, 5], "y": [None, None, 1]}, "y", "label='y'.*no row of a cluster has an outcome"),
        ({"g": [7, 8], "y": [0, 1]}, "y", "none of its groups was clustered"),
    ],
)
def test_labels_that_cannot_be_balanced_are_refused(frame: dict[str, Any], label: Any, message: str) -> None:
    found = clustered([1, 1])
    for made in (pl.DataFrame(frame), pl.DataFrame(frame).lazy(), pd.DataFrame(frame)):
        with pytest.raises(fl.InputError, match=message):
            found.weights(made, label=label)


# --------------------------------------------------------------------------------------------------------- thresholds


def rate(metric: str, y: np.ndarray[Any, Any], predicted: np.ndarray[Any, Any]) -> float:
    """The definition of a rate, row by row."""
    if metric == "selection_rate":
        return float(predicted.mean())
    of_positives = metric in {"true_positive_rate", "false_negative_rate"}
    share = predicted[y == of_positives].mean()
    return float(share if metric in {"true_positive_rate", "false_positive_rate"} else 1 - share)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.sampled_from(RATES),
    st.one_of(st.just("overall"), st.floats(0, 1)),
    st.sampled_from([2, 7, 400]),
    st.sampled_from([0.0, 0.3, 0.5, 2.0]),
)
def test_thresholds_are_the_best_there_are(
    seed: int, sizes: list[int], metric: str, target: str | float, scores: int, threshold: float
) -> None:
    found = clustered(sizes)
    frame = rows(seed, sum(sizes) + 1, scores=scores)
    chosen = found.thresholds(frame, score="s", y_true="y", metric=metric, target=target, threshold=threshold)
    y, s, cluster = frame["y"].to_numpy(), frame["s"].to_numpy(), cluster_of(found, frame)
    wanted = rate(metric, y, s >= threshold) if isinstance(target, str) else target
    assert chosen.target == pytest.approx(wanted, abs=1e-12)
    predicted = chosen.apply(frame)["prediction"].to_numpy() == 1

    def best(inside: np.ndarray[Any, Any]) -> float:
        tried = (rate(metric, y[inside], s[inside] >= t) for t in [*np.unique(s), np.inf])
        return min(abs(one - wanted) for one in tried)

    for one in chosen.clusters:
        inside = cluster == one.cluster
        assert one.before == pytest.approx(rate(metric, y[inside], s[inside] >= threshold), abs=1e-12)
        assert one.after == pytest.approx(rate(metric, y[inside], predicted[inside]), abs=1e-12)
        assert abs(one.after - wanted) == pytest.approx(best(inside), abs=1e-9)
        assert (
            one.n
            == {"s": inside.sum(), "t": (y[inside] == 1).sum(), "f": (y[inside] == 0).sum()}[
                {"selection_rate": "s", "true_positive_rate": "t", "false_negative_rate": "t"}.get(metric, "f")
            ]
        )
    assert chosen.gap == pytest.approx(np.ptp([one.after for one in chosen.clusters]))
    assert chosen.gap_before == pytest.approx(np.ptp([one.before for one in chosen.clusters]))
    # Groups that no cluster has: the threshold of all rows together.
    assert chosen.unknown == (cluster == 0).sum()
    assert (predicted[cluster == 0] == (s[cluster == 0] >= chosen.overall)).all()
    if isinstance(target, str):
        assert chosen.overall == threshold
    else:
        everyone = np.ones(len(y), dtype=bool)
        assert abs(rate(metric, y, s >= chosen.overall) - wanted) == pytest.approx(best(everyone), abs=1e-9)


def test_many_scores_leave_almost_no_gap_and_few_scores_say_what_is_left() -> None:
    found = clustered([2, 2])
    fine, coarse = rows(5, 4, 20_000, 10_000), rows(5, 4, 20_000, 4)
    frame = pl.concat([fine.with_columns(s=pl.col("s") + 0.2 * pl.col("g")), coarse.clear()])
    chosen = found.thresholds(frame, score="s")
    assert chosen.gap_before > 0.2
    assert chosen.gap < 4 / 10_000
    left = found.thresholds(
        coarse.with_columns(s=pl.col("s") + 0.2 * pl.col("g").cast(pl.Int64)), score="s", target=0.4
    )
    assert 0 < left.gap < 0.25
    assert f"{100 * left.gap:.1f} points after" in str(left)


def test_rounding_of_scores_moves_no_row_and_single_precision_reaches_its_threshold() -> None:
    found = clustered([1, 1])
    frame = rows(6, 2, scores=10)
    chosen = found.thresholds(frame, score="s", target=0.5)
    noise = pl.Series(np.random.default_rng(0).uniform(-1e-6, 1e-6, len(frame)))
    moved = frame.with_columns(s=pl.col("s") + noise)
    assert chosen.apply(moved)["prediction"].to_list() == chosen.apply(frame)["prediction"].to_list()
    single = frame.with_columns(pl.col("s").cast(pl.Float32))
    for threshold in (0.7, 0.3):
        before = [found.thresholds(one, score="s", threshold=threshold).clusters[0].before for one in (frame, single)]
        assert before[0] == before[1]


def test_missing_scores_and_outcomes_are_counted_and_get_no_prediction() -> None:
    found = clustered([1, 1])
    frame = pl.DataFrame(
        {
            "g": [0, 0, 0, 0, 1, 1, 1, 1, 5],
            "y": ["no", "yes", None, "yes", "no", "yes", "yes", "no", "no"],
            "s": [0.1, 0.8, 0.9, None, 0.2, 0.3, float("nan"), 0.4, 0.9],
        }
    )
    given: dict[str, Any] = {"score": "s", "y_true": "y", "metric": "true_positive_rate", "positive": "yes"}
    chosen = found.thresholds(frame, **given)
    assert (chosen.missing, chosen.unknown) == (3, 1)
    assert [(one.n, one.before, one.after) for one in chosen.clusters] == [(1, 1.0, 1.0), (1, 0.0, 1.0)]
    assert chosen.apply(frame)["prediction"].to_list() == [0, 1, 1, None, 0, 1, None, 1, 1]
    assert found.thresholds(frame, score="s").missing == 2
    said = str(chosen)
    assert "Thresholds of s for a true positive rate of 50.0% in every cluster." in said
    assert "Rows in no cluster: 1, with the threshold 0.5." in said
    assert "Rows without a score or an outcome: 3, not used." in said


def test_files_are_read_where_they_are(tmp_path: Path) -> None:
    found, frame = clustered([2, 1]), rows(8, 4)
    given: dict[str, Any] = {"score": "s", "y_true": "y", "metric": "false_positive_rate"}
    expected = found.thresholds(frame, **given).to_dicts()
    pq.write_table(frame.head(100).to_arrow(), tmp_path / "part-1.parquet")
    pq.write_table(frame.slice(100).to_arrow(), tmp_path / "part-2.parquet")
    frame.write_csv(tmp_path / "rows.csv")
    for path in (str(tmp_path / "part-*.parquet"), tmp_path / "rows.csv"):
        assert found.thresholds(path, **given).to_dicts() == expected
    with pytest.raises(fl.InputError, match=r"names files.*duckdb\.read_parquet"):
        found.weights(tmp_path / "part-1.parquet", label="y")


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
    found = fl.cluster(frame, groups, fl.selection_rate(score="s", threshold=0.7))
    assert found.n_clusters == 2
    chosen = found.thresholds(frame, score="s", threshold=0.7)
    after = fl.cluster(chosen.apply(frame.lazy()).collect(), groups, fl.selection_rate("prediction"))
    assert after.n_clusters == 1
    assert chosen.gap < 0.001 < chosen.gap_before
    weight = found.weights(frame, label="y")["weight"]
    assert weight.mean() == pytest.approx(1)


def test_thresholds_are_a_value() -> None:
    found, frame = clustered([1, 1]), rows(4, 2)
    chosen = found.thresholds(frame, score="s")
    with pytest.raises(AttributeError):
        chosen.target = 0.1  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(chosen))
    assert again.apply(frame).equals(chosen.apply(frame))
    assert list(chosen.to_dicts()[0]) == ["cluster", "threshold", "n", "before", "after"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"score": "z"}, "score='z'.*no such column"),
        ({"score": "word"}, "score='word'.*not numeric"),
        ({"score": 4}, "score=4.*not the name of a column"),
        ({"metric": "accuracy"}, "metric='accuracy'.*is not known"),
        ({"metric": None}, "metric=None.*is not known"),
        ({"metric": "true_positive_rate"}, "y_true=None.*is needed for true_positive_rate"),
        ({"metric": "true_positive_rate", "y_true": "z"}, "y_true='z'.*no such column"),
        ({"metric": "true_positive_rate", "y_true": "word"}, "y_true='word'.*Say which label counts"),
        ({"metric": "true_positive_rate", "y_true": "g"}, "y_true='g'.*holds 2"),
        ({"metric": "true_positive_rate", "y_true": "word", "positive": "c"}, "positive='c'.*no row"),
        ({"metric": "true_positive_rate", "y_true": "rare"}, "no row of cluster 2 has a positive outcome"),
        ({"metric": "true_negative_rate", "y_true": "never"}, "no row of cluster 1 has a negative outcome"),
        ({"target": "mean"}, "target='mean'.*must be 'overall' or a number from 0 to 1"),
        ({"target": 1.5}, "target=1.5"),
        ({"target": True}, "target=True"),
        ({"threshold": "half"}, "threshold='half'.*must be a number"),
        ({"threshold": float("nan")}, "threshold=nan"),
    ],
)
def test_bad_requests_are_refused(changed: dict[str, Any], message: str) -> None:
    frame = pl.DataFrame(
        {
            "g": [0, 0, 1, 1, 2],
            "s": [0.1, 0.9, 0.2, 0.8, 0.5],
            "word": ["a", "b", "a", "b", "a"],
            "rare": [0, 1, 0, 0, 1],
            "never": [1, 1, 1, 1, 1],
        }
    )
    with pytest.raises(fl.InputError, match=message):
        clustered([1, 1]).thresholds(frame, **({"score": "s"} | changed))


def test_rows_without_a_cluster_that_has_a_threshold_are_refused() -> None:
    found = clustered([1, 1])
    with pytest.raises(fl.InputError, match=r"no row of cluster 2 has a score.*Give rows of every cluster"):
        found.thresholds(pl.DataFrame({"g": [0, 0], "s": [0.1, 0.2]}), score="s")
    with pytest.raises(fl.InputError, match="none of its groups was clustered"):
        found.thresholds(pl.DataFrame({"g": [8, 9], "s": [0.1, 0.2]}), score="s")
    with pytest.raises(fl.InputError, match="no such column"):
        found.thresholds(pl.DataFrame({"x": [8, 9], "s": [0.1, 0.2]}), score="s")
    chosen = found.thresholds(rows(1, 2), score="s")
    with pytest.raises(fl.InputError, match=r"score='s'.*no such column"):
        chosen.apply(pa.table({"g": [0, 1]}))
    with pytest.raises(fl.InputError, match=r"score='s'.*not numeric"):
        chosen.apply(pa.table({"g": [0, 1], "s": ["a", "b"]}))
    with pytest.raises(fl.InputError, match=r"column='s'.*is there already"):
        chosen.apply(rows(1, 2), column="s")
    assert chosen.apply(rows(1, 2).head(0).lazy()).collect()["prediction"].to_list() == []
