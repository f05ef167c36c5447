"""What may enter, from which frame or file, and what an error says."""

from __future__ import annotations

import datetime
import gzip
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import faultlines as fl
from faultlines.estimates.labels import level_name, named_by
from faultlines.estimates.scales import ANSCOMBE, IDENTITY, LOG_RATIO
from tests.refused import refused

if TYPE_CHECKING:
    from collections.abc import Callable
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
    estimates = fl.Estimates.from_frame(frame, by="country", estimate="lift", se="sd", n="users", dof="freedom")
    assert tuple(estimates.labels) == NAMES
    assert estimates.attributes == ("country",)
    np.testing.assert_array_equal(estimates.theta, COLUMNS["lift"])
    np.testing.assert_array_equal(estimates.se, COLUMNS["sd"])
    assert estimates.n is not None
    np.testing.assert_array_equal(estimates.n, COLUMNS["users"])
    assert estimates.dof is not None
    np.testing.assert_array_equal(estimates.dof, COLUMNS["freedom"])
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
    estimates = fl.Estimates.from_frame(path, by="country", estimate="lift", se="sd", n="users", dof="freedom")
    assert tuple(estimates.labels) == NAMES
    np.testing.assert_array_equal(estimates.theta, COLUMNS["lift"])


def test_codes_in_a_csv_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "codes.csv"
    path.write_text('zip,"the lift",sd\n01234,1.5,1\n1234,2e-3,1\ntrue,3,1\n2024-01-01,4,1\n')
    estimates = fl.Estimates.from_frame(path, by="zip", estimate="the lift", se="sd")
    assert list(estimates.labels) == ["01234", "1234", "true", "2024-01-01"]
    np.testing.assert_array_equal(estimates.theta, [1.5, 0.002, 3, 4])


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


def check_refused(expected: str, **arguments: Any) -> None:
    with refused(expected):
        fl.Estimates(**arguments)


def test_numbers_that_cannot_be_used_are_refused_by_name() -> None:
    three = {"theta": [1.0, 2.0, 3.0], "se": [1.0, 1.0, 1.0], "labels": ["a", "b", "c"]}
    for bad in (float("nan"), float("inf"), float("-inf")):
        check_refused("invalid data: theta", **three | {"theta": [1.0, bad, 3.0]})
        check_refused("invalid data: se", **three | {"se": [1.0, 1.0, bad]})
    check_refused("invalid data: se", **three | {"se": [0.0, -1.0, 1.0]})
    check_refused("mismatch: se", **three | {"se": [1.0, 1.0]})
    check_refused("mismatch: labels", **three | {"labels": ["a", "b"]})
    check_refused("duplicate: labels", **three | {"labels": ["a", "b", "a"]})
    for labels in ("abc", 5, {"a", "b", "c"}):
        check_refused("wrong type: labels", **three | {"labels": labels})
    check_refused("wrong type: labels", **three | {"labels": [(), "a", "b"]})
    check_refused("invalid data: labels", **three | {"labels": ["a", "b", float("nan")]})
    check_refused("duplicate: attributes", **three, attributes=["x", "x"])
    check_refused("wrong type: labels", **three | {"labels": ["a", ("b", "c"), "d"]})
    check_refused("wrong type: labels", **three | {"labels": [{}, {}, {}]})
    check_refused("empty: theta", theta=[], se=[])
    check_refused("mismatch: theta", theta=[[[1.0, 2.0]]], se=[1.0])
    check_refused("mismatch: se", theta=[[1.0, 2.0]], se=[1.0])
    check_refused("wrong type: theta", theta=["one", "two"], se=[1.0, 1.0])
    check_refused("wrong type: se", theta=[1.0, 2.0], se=[True, True])
    check_refused("invalid data: n", **three, n=[1, 0, 2])
    check_refused("invalid data: dof", **three, dof=0.5)
    check_refused("wrong type: theta", **three | {"theta": [1j, 2, 3]})
    check_refused("wrong type: theta", **three | {"theta": [True, None, 3]})
    check_refused("wrong type: theta", **three | {"theta": [10**400, 2, 3]})
    check_refused(
        "invalid data: theta", **three | {"theta": np.ma.masked_array([1.0, 999.0, 2.0], [False, True, False])}
    )
    check_refused("out of range: theta, se", **three | {"se": [1e-101, 1e-101, 1e-101], "theta": [0.0, 0.0, 0.0]})
    check_refused("out of range: theta, se", **three | {"theta": [1.7e308, 1.7e308, 1.7e308]})
    check_refused("mismatch: attributes", **three, attributes=["x", "y"])
    check_refused("out of range: se", theta=[0.0, 1.0], se=[1e-200, 1.0])
    check_refused("out of range: theta", theta=[0.0, 1e200], se=[1.0, 1.0])


def test_numbers_of_numpy_are_labels_too() -> None:
    labels = list(np.unique([3, 4]))
    assert fl.Estimates([0, 1], [1, 1], labels).labels == (3, 4)
    assert all(type(label) is int for label in fl.binomial([5, 6], [20, 20], labels).keys[0])


def test_sizes_and_freedom_may_be_one_number_for_all() -> None:
    estimates = fl.Estimates([1, 2], [1, 1], n=100, dof=7)
    assert estimates.n is not None
    assert estimates.n.tolist() == [100, 100]
    assert estimates.dof is not None
    assert estimates.dof.tolist() == [7, 7]
    assert fl.Estimates([1, 2], [1, 1], dof=np.inf).dof is None
    assert repr(estimates) == "Estimates(2 groups by group, θ from 1 to 2)"


def test_the_caller_keeps_its_arrays() -> None:
    theta = np.array([2.0, 1.0])
    estimates = fl.Estimates(theta, np.ones(2))
    theta[0] = 9
    assert estimates.theta.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"estimate": "lfit"}, "column not found: estimate"),
        ({"se": "sx"}, "column not found: se"),
        ({"by": "Country"}, "column not found: by"),
        ({"by": ["country", "devise"]}, "column not found: by"),
        ({"by": []}, "empty: by"),
        ({"by": None}, "empty: by"),
        ({"by": [5]}, "wrong type: by"),
        ({"estimate": None}, "wrong type: estimate"),
        ({"by": ["device", "device"]}, "duplicate: by"),
        ({"estimate": "country"}, "wrong type: estimate"),
        ({"by": "device"}, "duplicate: labels"),
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
    with refused(match):
        fl.Estimates.from_frame(data, **({"by": "country", "estimate": "lift", "se": "sd"} | change))


def test_missing_numbers_are_refused_with_the_group() -> None:
    frame = pl.DataFrame({"g": ["a", "b"], "t": [1.0, None], "s": [1.0, 1.0]})
    with refused("invalid data: estimate"):
        fl.Estimates.from_frame(frame, by="g", estimate="t", se="s")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("absent.csv", None, "file not found: file"),
        ("empty.csv", b"", "empty: file"),
        ("header.csv", b"country,lift,sd\n", "empty: file"),
        ("broken.parquet", b"PAR1 this is not parquet", "unreadable file: file"),
        ("binary.csv", bytes(range(256)) * 20, "unreadable file: file"),
        ("latin.csv", "country,lift,sd\nÖ,1,1\n".encode("latin-1"), "unreadable file: file"),
        ("ragged.csv", b"country,lift,sd\nDE,1,1\nFR,1,1,9\n", "unreadable file: file"),
        ("quote.csv", b'country,lift,sd\n"DE,1,1\n', "unreadable file: file"),
        ("twice.csv", b"country,lift,sd,sd\nDE,1,1,2\n", "duplicate: se"),
        ("comma.csv", b"country;lift;sd\nDE;1,5;1\n", "wrong type: estimate"),
        ("thousand.csv", b"country,lift,sd\nDE,1_000,1\n", "wrong type: estimate"),
        ("broken.csv.gz", b"not gzip", "unreadable file: file"),
        ("table.xlsx", b"x", "unreadable file: file"),
        ("cell.csv", b"country,lift,sd\nDE,1.2%,1\n", "wrong type: estimate"),
    ],
)
def test_files_that_cannot_be_used(name: str, content: bytes | None, match: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with refused(match):
        fl.Estimates.from_frame(path, by="country", estimate="lift", se="sd")


def test_a_folder_and_a_stranger_are_refused(tmp_path: Path) -> None:
    with refused("unreadable file: file"):
        fl.Estimates.from_frame(tmp_path, by="a", estimate="b", se="c")
    doubled = pd.DataFrame([[1, 2, 3]], columns=["a", "a", "b"])
    with refused("wrong type: frame"):
        fl.Estimates.from_frame(doubled, by="a", estimate="b", se="b")
    with refused("column not found: by"):
        fl.Estimates.from_frame(pd.DataFrame([[1, 2, 3]]), by="a", estimate="b", se="b")
    with refused("wrong type: frame"):
        fl.Estimates.from_frame({"a": [1]}, by="a", estimate="b", se="c")


def test_a_level_that_is_missing_is_named_with_its_attribute() -> None:
    assert level_name("(missing)", ["race"]) == "race missing"
    assert level_name(("female", "(missing)"), ["sex", "race"]) == "female · race missing"
    assert level_name(("unknown", "b"), ["sex", "race"]) == "sex unknown · b"
    assert named_by("Unknown", ["sex"]) == "sex Unknown"
    groups = fl.Estimates([0.48, 0.52, 0.70], [0.016] * 3, ["female", "male", "unknown"], attributes=["sex"])
    assert "sex unknown" in fl.certify(groups, gap=0.05).headline
    assert "sex unknown" in str(fl.cluster(groups))


@pytest.mark.parametrize("scale", [IDENTITY, LOG_RATIO, ANSCOMBE])
def test_parts_are_what_replacing_one_at_a_time_gives(scale: Any) -> None:
    estimates = fl.Estimates([0.3, 0.4, 0.5], [0.1, 0.2, 0.1], ["a", "b", "c"], [5, 6, 7], scale=scale, metric="m")
    values = np.random.default_rng(0).normal(0.5, 0.1, size=(4, 3, 1))
    spreads = np.array([1.0, 2.0, 3.0, 0.5])
    for b, part in enumerate(estimates.replaced_parts(values, spreads)):
        alone = estimates.replaced(values[b], spread=float(spreads[b]))
        assert part.labels == alone.labels
        assert (part.metric, part.scale, part.attributes) == (alone.metric, alone.scale, alone.attributes)
        for name in ("theta", "se", "natural", "own", "n"):
            np.testing.assert_array_equal(getattr(part, name), getattr(alone, name))
    values[2, 1] = np.nan
    with refused("invalid data: theta"):
        estimates.replaced_parts(values, spreads)


THETA = pd.Series([0.0, 5.0, 10.0], index=pd.Index(list("cba"), name="country"))


@pytest.mark.parametrize("parameter", ["se", "n", "dof", "labels", "natural"])
def test_series_in_different_orders_are_refused(parameter: str) -> None:
    """Paired by place, one group would get the standard error of another."""
    given = {"theta": THETA, "se": [1.0, 1.0, 3.0], parameter: pd.Series([1.0, 2.0, 3.0], index=list("abc"))}
    with refused(f"mismatch: {parameter}"):
        fl.Estimates(**given)


@pytest.mark.parametrize("compare", [fl.binomial, fl.poisson])
def test_series_of_counts_in_different_orders_are_refused(compare: Callable[..., Any]) -> None:
    sizes = pd.Series([30, 30, 30], index=list("abc"))
    with refused(f"mismatch: {'trials' if compare is fl.binomial else 'exposure'}"):
        compare(THETA.round(), sizes)
    assert list(compare(THETA.round(), sizes.reindex(THETA.index)).keys) == [("c",), ("b",), ("a",)]


def test_the_index_names_the_groups() -> None:
    estimates = fl.Estimates(THETA, THETA + 1)
    assert estimates.labels == ("c", "b", "a")
    assert estimates.attributes == ("country",)
    crossed = THETA.set_axis(pd.MultiIndex.from_tuples([("DE", 1), ("DE", 2), ("FR", 1)], names=["country", "arm"]))
    assert fl.Estimates(crossed, 1.0 + crossed).labels == (("DE", 1), ("DE", 2), ("FR", 1))
    assert fl.Estimates(crossed, 1.0 + crossed).attributes == ("country", "arm")
    assert fl.Estimates(THETA, [1.0] * 3, ["x", "y", "z"]).labels == ("x", "y", "z")
    assert list(fl.Estimates(THETA.reset_index(drop=True), [1.0] * 3).labels) == [0, 1, 2]
    assert fl.Estimates(THETA.set_axis([3, 1, 7]), [1.0] * 3).labels == (3, 1, 7)


def test_errors_by_own_rows_are_checked() -> None:
    with refused("mismatch: alone"):
        fl.Estimates([0.0, 1.0], [1.0, 1.0], alone=np.ones((3, 2)))
    with refused("invalid data: alone"):
        fl.Estimates([0.0, 1.0], [1.0, 1.0], alone=np.array([[1.0, 5.0], [0.0, 5.0]]))
    known = fl.Estimates([0.0, 1.0], [1.0, 2.0], alone=np.array([[1.0, 5.0], [3.0, np.inf]]))
    assert known.subset(np.array([False, True])).alone_or_as_known().tolist() == [[3.0, np.inf]]
    assert known.changed(theta=[1.0, 2.0]).alone is None
