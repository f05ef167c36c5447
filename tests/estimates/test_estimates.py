"""What may enter, from which frame or file, and what an error says."""

from __future__ import annotations

import datetime
import gzip
import re
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import faultlines as fl

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS: dict[str, list[Any]] = {
    "country": ["DE", "NA", None, "日本", "NO"],
    "device": ["app", "web", "app", "web", "app"],
    "lift": [0.5, -1.0, 2.0, 3.5, 0.25],
    "sd": [1.0, 0.5, 0.25, 2.0, 1.5],
    "users": [10, 20, 30, 40, 50],
    "freedom": [9.0, 19.0, 29.0, 39.0, 49.0],
}
NAMES = ("DE", "NA", "(missing)", "日本", "NO")
MAKERS: dict[str, Any] = {
    "pandas": pd.DataFrame,
    "pandas, nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas, category": lambda columns: pd.DataFrame(columns).astype({"country": "category"}),
    "polars": pl.DataFrame,
    "polars, lazy": lambda columns: pl.DataFrame(columns).lazy(),
    "pyarrow": pa.table,
    "duckdb": lambda columns: duckdb.from_arrow(pa.table(columns)),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_every_frame_reads_alike(maker: str) -> None:
    frame = MAKERS[maker](COLUMNS)
    made = fl.Estimates.from_frame(frame, by="country", estimate="lift", se="sd", n="users", dof="freedom")
    assert tuple(made.labels) == NAMES
    assert made.attributes == ("country",)
    np.testing.assert_array_equal(made.theta, COLUMNS["lift"])
    np.testing.assert_array_equal(made.se, COLUMNS["sd"])
    assert made.n is not None
    np.testing.assert_array_equal(made.n, COLUMNS["users"])
    assert made.dof is not None
    np.testing.assert_array_equal(made.dof, COLUMNS["freedom"])
    several = fl.Estimates.from_frame(frame, by=["country", "device"], estimate="lift", se="sd")
    assert several.labels[2] == ("(missing)", "app")
    assert several.attributes == ("country", "device")


@pytest.mark.parametrize("kind", ["csv", "tsv", "csv.gz", "parquet", "PARQUET"])
def test_every_file_reads_alike(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"it's a table.{kind}"
    text = pd.DataFrame(COLUMNS).to_csv(index=False, sep="\t" if kind == "tsv" else ",")
    if kind.lower() == "parquet":
        pq.write_table(pa.table(COLUMNS), path)
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    made = fl.Estimates.from_frame(path, by="country", estimate="lift", se="sd", n="users", dof="freedom")
    assert tuple(made.labels) == NAMES
    np.testing.assert_array_equal(made.theta, COLUMNS["lift"])


def test_codes_in_a_csv_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "codes.csv"
    path.write_text('zip,"the lift",sd\n01234,1.5,1\n1234,2e-3,1\ntrue,3,1\n2024-01-01,4,1\n')
    made = fl.Estimates.from_frame(path, by="zip", estimate="the lift", se="sd")
    assert list(made.labels) == ["01234", "1234", "true", "2024-01-01"]
    np.testing.assert_array_equal(made.theta, [1.5, 0.002, 3, 4])


def test_keys_of_other_types_become_names() -> None:
    dates = [datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]
    for frame in (pd.DataFrame({"day": pd.to_datetime(dates)}), pl.DataFrame({"day": dates})):
        filled = (
            frame.assign(t=[1.0, 2.0], s=1.0)
            if isinstance(frame, pd.DataFrame)
            else frame.with_columns(t=pl.Series([1.0, 2.0]), s=pl.lit(1.0))
        )
        assert list(fl.Estimates.from_frame(filled, by="day", estimate="t", se="s").labels) == [
            "2024-01-01",
            "2024-01-02",
        ]
    numbers = fl.Estimates.from_frame(pd.DataFrame({"k": [3, 4], "t": [0.0, 1], "s": [1, 1]}), "k", "t", "s")
    assert list(numbers.labels) == [3, 4]


def refused(match: str, **arguments: Any) -> None:
    with pytest.raises(fl.InputError, match=match):
        fl.Estimates(**arguments)


def test_numbers_that_cannot_be_used_are_refused_by_name() -> None:
    three = {"theta": [1.0, 2.0, 3.0], "se": [1.0, 1.0, 1.0], "labels": ["a", "b", "c"]}
    for bad in (float("nan"), float("inf"), float("-inf")):
        refused(r"theta=.* in group 'b': must be finite", **three | {"theta": [1.0, bad, 3.0]})
        refused(r"se=.* in group 'c': must be finite and above zero", **three | {"se": [1.0, 1.0, bad]})
    refused(r"se=0 in group 'a' \(and 1 more\): must be finite and above zero", **three | {"se": [0.0, -1.0, 1.0]})
    refused("se: has 2 values, but theta has 3", **three | {"se": [1.0, 1.0]})
    refused("labels: has 2 names, but theta has 3", **three | {"labels": ["a", "b"]})
    refused("group 'a': occurs more than once", **three | {"labels": ["a", "b", "a"]})
    for labels in ("abc", 5, {"a", "b", "c"}):
        refused("labels=.*is not a sequence of names", **three | {"labels": labels})
    refused("mixes names and tuples", **three | {"labels": [(), "a", "b"]})
    refused("labels: holds NaN", **three | {"labels": ["a", "b", float("nan")]})
    refused("attributes=.*must be distinct names", **three, attributes=["x", "x"])
    refused("mixes names and tuples", **three | {"labels": ["a", ("b", "c"), "d"]})
    refused("unhashable", **three | {"labels": [{}, {}, {}]})
    refused("K = 0", theta=[], se=[])
    refused("theta: has 3 dimensions", theta=[[[1.0, 2.0]]], se=[1.0])
    refused("se: has shape", theta=[[1.0, 2.0]], se=[1.0])
    refused("theta=.*is not numeric", theta=["one", "two"], se=[1.0, 1.0])
    refused("se=.*is not numeric", theta=[1.0, 2.0], se=[True, True])
    refused(r"n=0 in group 'b'", **three, n=[1, 0, 2])
    refused(r"dof=0.5 in group 'a' \(and 2 more\): must be 1 or more", **three, dof=0.5)
    refused("theta=.*is not numeric", **three | {"theta": [1j, 2, 3]})
    refused("theta=.*is not numeric", **three | {"theta": [True, None, 3]})
    refused("theta=.*is not numeric", **three | {"theta": [10**400, 2, 3]})
    refused("theta=nan in group 'b'", **three | {"theta": np.ma.masked_array([1.0, 999.0, 2.0], [False, True, False])})
    refused("beyond the range", **three | {"se": [1e-101, 1e-101, 1e-101], "theta": [0.0, 0.0, 0.0]})
    refused("beyond the range", **three | {"theta": [1.7e308, 1.7e308, 1.7e308]})
    refused(r"attributes=.*has 2 names", **three, attributes=["x", "y"])
    refused("spans too many orders", theta=[0.0, 1.0], se=[1e-200, 1.0])
    refused("lies too far apart", theta=[0.0, 1e200], se=[1.0, 1.0])


def test_sizes_and_freedom_may_be_one_number_for_all() -> None:
    made = fl.Estimates([1, 2], [1, 1], n=100, dof=7)
    assert made.n is not None
    assert made.n.tolist() == [100, 100]
    assert made.dof is not None
    assert made.dof.tolist() == [7, 7]
    assert fl.Estimates([1, 2], [1, 1], dof=np.inf).dof is None
    assert repr(made) == "Estimates(2 groups by group, θ from 1 to 2)"


def test_the_caller_keeps_its_arrays() -> None:
    theta = np.array([2.0, 1.0])
    made = fl.Estimates(theta, np.ones(2))
    theta[0] = 9
    assert made.theta.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"estimate": "lfit"}, "estimate='lfit': no such column. Did you mean 'lift'?"),
        ({"se": "sx"}, "se='sx': no such column"),
        ({"by": "Country"}, "by='Country': no such column. Did you mean 'country'?"),
        ({"by": ["country", "devise"]}, "by[1]='devise': no such column. Did you mean 'device'?"),
        ({"by": []}, "by=[]: names no column"),
        ({"by": None}, "by=None: names no column"),
        ({"by": [5]}, "by=5: is not the name of a column"),
        ({"estimate": None}, "estimate=None: is not the name of a column"),
        ({"by": ["device", "device"]}, "names a column twice"),
        ({"estimate": "country"}, "estimate='country': the column is not numeric"),
        ({"by": "device"}, "group 'app': occurs more than once (5 groups, 2 names)"),
    ],
)
@pytest.mark.parametrize("source", ["pandas", "csv", "parquet"])
def test_columns_that_cannot_be_used(change: dict[str, Any], match: str, source: str, tmp_path: Path) -> None:
    data: Any = pd.DataFrame(COLUMNS)
    if source == "csv":
        data.to_csv(tmp_path / "t.csv", index=False)
        data = tmp_path / "t.csv"
    elif source == "parquet":
        data.to_parquet(tmp_path / "t.parquet")
        data = tmp_path / "t.parquet"
    with pytest.raises(fl.InputError, match=re.escape(match)):
        fl.Estimates.from_frame(data, **({"by": "country", "estimate": "lift", "se": "sd"} | change))


def test_missing_numbers_are_refused_with_the_group() -> None:
    frame = pl.DataFrame({"g": ["a", "b"], "t": [1.0, None], "s": [1.0, 1.0]})
    with pytest.raises(fl.InputError, match="estimate='t', nan in group 'b'"):
        fl.Estimates.from_frame(frame, by="g", estimate="t", se="s")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("absent.csv", None, "no such file"),
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"country,lift,sd\n", "has no rows"),
        ("broken.parquet", b"PAR1 this is not parquet", "cannot be read"),
        ("binary.csv", bytes(range(256)) * 20, "is not UTF-8 text (byte 129 is 0x80)"),
        ("latin.csv", "country,lift,sd\nÖ,1,1\n".encode("latin-1"), "is not UTF-8 text"),
        ("ragged.csv", b"country,lift,sd\nDE,1,1\nFR,1,1,9\n", "line 3 has 4 fields, the header 3"),
        ("quote.csv", b'country,lift,sd\n"DE,1,1\n', "Check the quotes"),
        ("twice.csv", b"country,lift,sd,sd\nDE,1,1,2\n", "se='sd': two columns have this name"),
        ("comma.csv", b"country;lift;sd\nDE;1,5;1\n", "row 1 holds '1,5'"),
        ("thousand.csv", b"country,lift,sd\nDE,1_000,1\n", "row 1 holds '1_000'"),
        ("broken.csv.gz", b"not gzip", "cannot be read"),
        ("table.xlsx", b"x", "neither csv nor parquet"),
        ("cell.csv", b"country,lift,sd\nDE,1.2%,1\n", "row 1 holds '1.2%'"),
    ],
)
def test_files_that_cannot_be_used(name: str, content: bytes | None, match: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(fl.InputError, match=re.escape(match)):
        fl.Estimates.from_frame(path, by="country", estimate="lift", se="sd")


def test_a_folder_and_a_stranger_are_refused(tmp_path: Path) -> None:
    with pytest.raises(fl.InputError, match="is a folder"):
        fl.Estimates.from_frame(tmp_path, by="a", estimate="b", se="c")
    doubled = pd.DataFrame([[1, 2, 3]], columns=["a", "a", "b"])
    with pytest.raises(fl.InputError, match="is not a frame narwhals can read"):
        fl.Estimates.from_frame(doubled, by="a", estimate="b", se="b")
    with pytest.raises(fl.InputError, match="no such column"):
        fl.Estimates.from_frame(pd.DataFrame([[1, 2, 3]]), by="a", estimate="b", se="b")
    with pytest.raises(fl.InputError, match="frame=dict: is not a frame"):
        fl.Estimates.from_frame({"a": [1]}, by="a", estimate="b", se="c")
