"""Rows that lack a value: counted by group and by input in the scan that measures, in every engine."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from tests.engine_matrix import ENGINES, SPARK, in_engine, rows
from tests.rows.spark import spark_session

if TYPE_CHECKING:
    from pathlib import Path


def by_hand(columns: list[str], group: str = "country") -> dict[str, tuple[int, int]]:
    """Rows of every group, and those of them that lack one of some columns."""
    listed = rows().to_pylist()
    total = Counter(str(row[group]) if row[group] is not None else "(missing)" for row in listed)
    lacking = Counter(
        str(row[group]) if row[group] is not None else "(missing)"
        for row in listed
        if any(row[column] is None or row[column] != row[column] for column in columns)
    )
    return {name: (count, lacking[name]) for name, count in total.items()}


def counted(readout: Any) -> dict[str, tuple[int, int]]:
    missing = readout.missing
    counts = zip(missing.keys, missing.rows.tolist(), missing.dropped.tolist(), strict=True)
    return {str(key[0]): (int(of_group), int(dropped)) for key, of_group, dropped in counts}


@pytest.mark.parametrize("engine", [engine for engine in ENGINES if engine != "spark cluster"])
def test_missing_values_are_counted_by_group_in_every_engine(
    engine: str, tmp_path: Path, sparks: dict[str, Any]
) -> None:
    spark = spark_session("local[2]") if engine in SPARK and sparks else None
    data = in_engine(rows(), engine, tmp_path, spark)
    cases: list[tuple[fl.Metric, list[str]]] = [
        (fl.mean("noisy"), ["noisy"]),
        (fl.accuracy("label", "predicted"), ["label"]),
        (fl.ratio("revenue", "income"), ["revenue", "income"]),
    ]
    for metric, columns in cases:
        measurement = fl.measure(data, "country", metric)
        assert measurement.readout is not None
        assert counted(measurement.readout) == by_hand(columns)


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"g": rng.choice(["a", "b", "c"], 3000), "t": rng.integers(0, 2, 3000).astype(float)})
    frame = frame.assign(p=rng.integers(0, 2, 3000).astype(float), s=rng.random(3000), w=rng.uniform(1, 2, 3000))
    frame = frame.assign(arm=rng.choice(["A", "B", "C"], 3000), user=np.arange(3000).astype(float))
    frame.loc[(frame.g == "a") & (frame.s < 0.5), "t"] = np.nan
    frame.loc[frame.w < 1.05, "p"] = np.nan
    return frame


def test_every_reason_is_counted_by_itself() -> None:
    data = frame()
    missing = fl.measure(data, "g", fl.true_positive_rate("t", "p")).readout.missing  # type: ignore[union-attr]
    assert missing is not None
    for column in ("t", "p"):
        assert missing.by_column[column].sum() == data[column].isna().sum()
    dropped = (data.t.isna() | data.p.isna()).groupby(data.g).mean()
    assert missing.shares == pytest.approx(dropped.to_numpy())
    assert missing.is_large
    assert missing.share == pytest.approx((data.t.isna() | data.p.isna()).mean())


def test_units_and_variants_that_are_missing_count_and_other_variants_do_not() -> None:
    data = frame()
    data.loc[:19, "user"] = np.nan
    data.loc[100:129, "arm"] = None
    metric = fl.difference("s", variant="arm", control="A", treatment="B", unit="user")
    missing = fl.measure(data, "g", metric).readout.missing  # type: ignore[union-attr]
    assert missing is not None
    compared = data.arm.isin(["A", "B"]) | data.arm.isna()
    assert missing.rows.sum() == compared.sum()
    assert missing.dropped.sum() == (compared & (data.arm.isna() | data.user.isna())).sum()
    assert {name: int(counts.sum()) for name, counts in missing.by_column.items()} == {
        "user": int((compared & data.user.isna()).sum()),
        "arm": 30,
    }


@pytest.mark.parametrize(
    "metric",
    [fl.auc("t", "s"), fl.bootstrapped(lambda t, p: float(np.mean(t == p)), "t", "p", draws=20)],
    ids=["ranked", "resampled"],
)
def test_ranked_and_resampled_metrics_count_too(metric: fl.Metric) -> None:
    data = frame()
    missing = fl.measure(data, "g", metric).readout.missing  # type: ignore[union-attr]
    assert missing is not None
    lacking = data.t.isna() if metric.ranking is not None else data.t.isna() | data.p.isna()
    assert missing.dropped.tolist() == lacking.groupby(data.g).sum().tolist()


def test_results_carry_the_shares_and_warn_where_they_are_large() -> None:
    data = frame()
    c = fl.cluster(data, "g", fl.true_positive_rate("t", "p"))
    lacking = (data.t.isna() | data.p.isna()).groupby(data.g).mean()
    assert {row["g"]: row["dropped_share"] for row in c.to_dicts()} == pytest.approx(lacking.to_dict())
    plain = c.to_dict()["missing_values"]
    assert plain["dropped"] == int((data.t.isna() | data.p.isna()).sum())
    assert plain["groups"][0]["share"] == pytest.approx(lacking["a"])
    (note,) = [note for note in c.notes if note.code == "missing values"]
    assert note.severity == "warning"
    assert next(iter(note.fields["groups"])) == "a"
    result = fl.cluster(data, "g", fl.mean("s"))
    assert "missing values" not in [note.code for note in result.notes]
    assert result.to_dict()["missing_values"]["dropped"] == 0


def test_rows_without_an_attribute_are_counted() -> None:
    data = frame()
    data.loc[:99, "g"] = None
    c = fl.cluster(data, "g", fl.mean("s"))
    assert c.to_dict()["missing_values"]["without_group"] == 100


def test_estimates_have_no_rows_to_count() -> None:
    c = fl.cluster(fl.Estimates([0.0, 0.1, 5.0], [0.5] * 3))
    assert c.to_dict()["missing_values"] is None
    assert "dropped_share" not in c.to_dicts()[0]


def test_many_experiments_and_several_treatments_have_the_shares_of_their_groups() -> None:
    data = frame()
    lift = fl.difference("t", variant="arm", control="A", treatment=["B", "C"])
    shares = {(row["g"], row["arm"]): row["dropped_share"] for row in fl.cluster(data, "g", lift).to_dicts()}
    lacking = data.t.isna().groupby(data.g).mean()
    assert shares[("a", "B")] == pytest.approx(lacking["a"])
    several = fl.cluster_many(data, experiment="arm", by="g", metric=fl.rate("t"))
    own = data[data.arm == "B"]
    (row, *_) = several["B"].to_dicts()
    assert row["dropped_share"] == pytest.approx(own.t.isna().groupby(own.g).mean()[row["g"]])
