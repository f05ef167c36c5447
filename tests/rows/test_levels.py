"""Levels of attributes: ordered categories keep their order, ranges merge in rules, and no level has two spellings."""

from __future__ import annotations

import json
import pickle
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import faultlines as fl
from faultlines.estimates.labels import find_alike
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

SIZES = ["XS", "S", "M", "L", "XL"]
CUTS = [17, 25, 35, 45, 55, 70]


@pytest.fixture(scope="module")
def people() -> pd.DataFrame:
    """The rate is higher in the middle sizes, and between 25 and 45 years."""
    rng = np.random.default_rng(0)
    size, age = rng.choice(SIZES, 4_000), rng.integers(18, 71, 4_000)
    high = np.isin(size, ["S", "M", "L"])
    return pd.DataFrame(
        {
            "size": size,
            "age": age,
            "y": rng.random(4_000) < np.where(high, 0.6, 0.3),
            "z": rng.random(4_000) < np.where((age > 25) & (age <= 45), 0.6, 0.3),
        }
    )


def ways_in(people: pd.DataFrame, folder: Path | None = None) -> dict[str, Any]:
    ordered = people.assign(size=pd.Categorical(people["size"], SIZES, ordered=True))
    in_polars = pl.from_pandas(people).with_columns(pl.col("size").cast(pl.Enum(SIZES)))
    connection = duckdb.connect()
    connection.register("people", people)
    connection.execute(f"CREATE TYPE sizes AS ENUM ({', '.join(map(repr, SIZES))})")
    arrow = pa.Table.from_pandas(ordered)
    files = {}
    if folder is not None:
        files = {f"parquet of {name}": folder / f"{name}.parquet" for name in ("pandas", "polars", "pyarrow")}
        ordered.to_parquet(files["parquet of pandas"], row_group_size=500)
        in_polars.write_parquet(files["parquet of polars"])
        pq.write_table(arrow.replace_schema_metadata(None), files["parquet of pyarrow"])
    return files | {
        "pandas": ordered,
        "polars": in_polars,
        "polars lazy": in_polars.lazy(),
        "pyarrow": pa.concat_tables([arrow.slice(0, 100), arrow.slice(100)]),
        "duckdb": connection.sql("SELECT * REPLACE (size::sizes AS size) FROM people"),
    }


IN_MEMORY = ["pandas", "polars", "polars lazy", "pyarrow", "duckdb"]


@pytest.mark.parametrize("way", [*IN_MEMORY, "parquet of pandas", "parquet of polars", "parquet of pyarrow"])
def test_ordered_categories_keep_their_order(way: str, people: pd.DataFrame, tmp_path: Path) -> None:
    data = ways_in(people, tmp_path)[way]
    c = fl.cluster(data, "size", fl.rate("y"), guarantee=fl.Calibrated(draws=200))
    assert list(c.estimates.labels) == SIZES
    assert c.rules == ("size XS or XL", "size S to L")
    assert [row["size"] for row in c.to_dicts("groups")] == SIZES
    assert json.loads(c.to_json())["groups"][1]["size"] == "S"
    assert pickle.loads(pickle.dumps(c)).rules == c.rules
    assert fl.certify(c, gap=0.5, against="S").against == "S"


def test_files_that_do_not_agree_have_no_order(people: pd.DataFrame, tmp_path: Path) -> None:
    for name, levels in (("a", SIZES), ("b", SIZES[::-1])):
        ordered = people.assign(size=pd.Categorical(people["size"], levels, ordered=True))
        ordered.to_parquet(tmp_path / f"{name}.parquet")
    assert list(fl.measure(tmp_path / "b.parquet", "size", fl.rate("y")).estimates.labels) == SIZES[::-1]
    assert list(fl.measure(tmp_path / "?.parquet", "size", fl.rate("y")).estimates.labels) == sorted(SIZES)


def test_estimates_in_parquet_keep_the_order(tmp_path: Path) -> None:
    table = pd.DataFrame({"size": pd.Categorical(SIZES, SIZES, ordered=True), "effect": 0.1, "se": 0.1})
    table.to_parquet(tmp_path / "estimates.parquet")
    labels = fl.Estimates.from_frame(tmp_path / "estimates.parquet", "size", "effect", "se").labels
    assert list(labels) == SIZES
    assert [getattr(label, "place", None) for label in labels] == list(range(len(SIZES)))


def test_ordered_categories_with_gaps_and_levels_that_do_not_occur(people: pd.DataFrame) -> None:
    size = people["size"].where(people.index % 10 > 0)
    data = people.assign(size=pd.Categorical(size, ["XXS", *SIZES], ordered=True))
    labels = fl.measure(data, "size", fl.rate("y")).estimates.labels
    assert list(labels) == [*SIZES, "(missing)"]
    unordered = people.assign(size=pd.Categorical(people["size"], SIZES))
    assert list(fl.measure(unordered, "size", fl.rate("y")).estimates.labels) == sorted(SIZES)


def test_assigned_to_frames_that_do_not_know_the_order(people: pd.DataFrame) -> None:
    ordered = ways_in(people)["pandas"]
    c = fl.cluster(ordered, "size", fl.rate("y"), guarantee=fl.Calibrated(draws=200))
    assert c.assign(people)["cluster"].tolist() == c.assign(ordered)["cluster"].tolist()
    assert fl.confirm(c, people).verdict == "confirmed"


def test_ordered_categories_of_an_audit(people: pd.DataFrame) -> None:
    levels = pd.Categorical(people["size"], SIZES, ordered=True)
    for sizes in (levels, pd.Series(levels), pl.Series(people["size"]).cast(pl.Enum(SIZES))):
        result = fl.audit(people.y, people.y, sensitive_features={"size": sizes}, metrics="selection_rate")
        assert [group.label for group in result.groups] == SIZES
        assert result.comparisons[0].result.rules[1] == "size S to L"


def test_ordered_labels_of_estimates() -> None:
    levels = pd.Categorical(["low", "mid", "high"], ["low", "mid", "high"], ordered=True)
    frame = pd.DataFrame({"level": levels, "effect": [0.0, 0.1, 5.0], "se": [0.1] * 3})
    for estimates in (
        fl.Estimates.from_frame(frame, by="level", estimate="effect", se="se"),
        fl.Estimates(frame.effect, frame.se, frame.level, attributes=["level"]),
    ):
        assert fl.cluster(estimates, guarantee=fl.Calibrated(draws=200)).rules == ("level low to mid", "level = high")


def test_ranges_of_pandas_and_polars_merge_in_rules(people: pd.DataFrame) -> None:
    cut = pd.cut(people.age, CUTS)
    lines = [f"{low}, {high}" for low, high in pairwise(CUTS)]
    for ages in (cut, cut.astype(str)):
        c = fl.cluster(people.assign(age=ages), "age", fl.rate("z"), guarantee=fl.Calibrated(draws=200))
        assert list(c.estimates.labels) == [f"({line}]" for line in lines]
        assert c.rules == ("age 17 to 25 or 45 to 70", "age 25 to 45")
    left = fl.cluster(
        people.assign(age=pd.cut(people.age - 1, CUTS, right=False)),
        "age",
        fl.rate("z"),
        guarantee=fl.Calibrated(draws=200),
    )
    assert left.rules[1] == "age 25 to 45"
    levels = ["(-inf, 25]", "(25, 45]", "(45, inf]"]  # as Polars writes them
    places = np.searchsorted([25, 45], people.age)
    open_ends = pl.from_pandas(people).with_columns(age=pl.Series([levels[i] for i in places]).cast(pl.Enum(levels)))
    rules = fl.cluster(open_ends, "age", fl.rate("z"), guarantee=fl.Calibrated(draws=200)).rules
    assert rules == ("age up to 25 or above 45", "age 25 to 45")
    quarters = fl.measure(people.assign(age=pd.qcut(people.age, 4)), "age", fl.rate("z")).estimates.labels
    assert [str(label).partition(",")[0] for label in quarters] == ["(17.999", "(30.75", "(43.0", "(57.0"]


# ------------------------------------------------------------------------------------------- levels that read as one


@pytest.mark.parametrize(
    ("levels", "pair"),
    [
        (["1", 1.0], ("1", 1.0)),
        (["1", "2", "1.0"], ("1", "1.0")),
        ([1, "1.00"], (1, "1.00")),
        ([True, "true"], (True, "true")),
        (["True", "1"], ("True", "1")),
        (["-3.0", "-3"], ("-3.0", "-3")),
        (["1.0", "1.1", "2.0"], None),
        (["007", "7"], None),
        (["1.10", "1.1"], None),
        ([1, 2, "(missing)"], None),
        (["true", "false"], None),
        (["a", "b"], None),
    ],
)
def test_levels_that_read_as_one(levels: list[Any], pair: tuple[Any, Any] | None) -> None:
    assert find_alike(levels) == pair


def test_no_level_has_two_spellings_in_estimates() -> None:
    for labels in (["1", 1.0], ["1", "1.0"], [("1", "a"), (1.0, "b")]):
        with refused("ambiguous: labels"):
            fl.Estimates([1, 2], [1, 1], labels)


def test_no_level_has_two_spellings_in_rows(tmp_path: Path) -> None:
    values = np.arange(80.0)
    frames = {
        "text": pd.DataFrame({"g": ["1", "1.0"] * 40, "x": values}),
        "text and truth": pd.DataFrame({"g": pd.Series([True, "1"] * 40, dtype=object), "x": values}),
        "polars": pl.DataFrame({"g": ["1", "1.0"] * 40, "x": values}),
        "pyarrow": pa.table({"g": ["True", "1"] * 40, "x": values}),
    }
    pd.DataFrame({"g": [1] * 40, "x": values[:40]}).to_csv(tmp_path / "january.csv", index=False)
    pd.DataFrame({"g": [1.0] * 40 + [None], "x": values[:41]}).to_csv(tmp_path / "february.csv", index=False)
    for data in (*frames.values(), f"{tmp_path}/*.csv"):
        with refused("ambiguous: by"):
            fl.measure(data, "g", fl.mean("x"))
    with refused("ambiguous: data"):
        fl.measure(pd.DataFrame({"g": pd.Series([True, 1] * 40, dtype=object), "x": values}), "g", fl.mean("x"))


def test_text_and_numbers_of_one_column_are_one_group() -> None:
    mixed = pd.DataFrame({"g": pd.Series(["1", 1.0, 1, 2] * 20, dtype=object), "x": np.arange(80.0)})
    estimates = fl.measure(mixed, "g", fl.mean("x")).estimates
    assert estimates.n is not None
    assert dict(zip(estimates.labels, estimates.n.tolist(), strict=True)) == {"1": 60, "2": 20}
