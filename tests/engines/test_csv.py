"""One csv reader: tables of estimates and files of rows agree in labels, numbers and errors."""

from __future__ import annotations

import gzip
import io
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import faultlines as fl
from faultlines.engines.frames import ColumnUse, read_table, scan
from faultlines.errors import InputError
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

ROWS_ONLY = "has no rows"  # a table needs one; of rows this is said later


def as_table(path: Path) -> Any:
    """Groups and numbers as a table of estimates has them, or the error."""
    try:
        table = read_table(path, keys={"by": "g"}, numbers={"value": "x"})
        return sorted(zip(map(repr, table.keys[0]), map(repr, table.numbers["value"].tolist()), strict=True))
    except InputError as error:
        return [] if ROWS_ONLY in str(error) else str(error)


def as_rows(path: Path) -> Any:
    """The same as rows have them."""
    try:
        with scan(path, [ColumnUse("by", "g"), ColumnUse("value", "x", "number")]) as rows:
            fetched = rows.frame.to_native().fetchall()
        return sorted((repr(g), repr(float("nan") if x is None else x)) for g, x in fetched)
    except InputError as error:
        return str(error)


CONTENTS = {
    "plain": b"g,x\na,1\nb,2\n",
    "line ends of Windows": b"g,x\r\na,1\r\nb,2\r\n",
    "line ends of old Macs": b"g,x\ra,1\rb,2\r",
    "several line ends": b"g,x\na,1\r\nb,2\n",
    "mark of byte order": b"\xef\xbb\xbfg,x\na,1\n",
    "empty lines first": b"\n\n\ng,x\na,1\n",
    "empty lines of Windows first": b"\r\n\r\ng,x\r\na,1\r\n",
    "odd empty lines first": b"\n\r\n\ng,x\na,1\n",
    "mark and empty lines": b"\xef\xbb\xbf\n\ng,x\na,1\n",
    "empty lines between": b"g,x\na,1\n\n\nb,2\n",
    "empty lines last": b"g,x\na,1\n\n\n",
    "no last line end": b"g,x\na,1",
    "semicolons": b"g;x\na;1\n",
    "decimal comma": b"g;x\na;1,5\n",
    "tabs": b"g\tx\na\t1\n",
    "bars": b"g|x\na|1\n",
    "commas in a quoted name": b'g;x;"a,b,c,d"\na;1;2\n',
    "quotes": b'g,x\n"a,b",1\n"c""d",2\n"e\nf",3\n',
    "quote within": b'g,x\na"b,1\n',
    "text after a quote": b'g,x\n"a"b,1\n',
    "open quote": b'g,x\n"a,1\n',
    "quote after a space": b'g,x\n "a",1\n',
    "too many fields": b"g,x\na,1\nb,2,3\n",
    "too few fields": b"g,x\na,1\nb\n",
    "empty cells": b'g,x\n,1\n"",2\nc,\n',
    "spaces": b"g,x\n a , 1 \n  ,2\n",
    "no number": b"g,x\na,1\nb,abc\n",
    "per cent": b"g,x\na,1%\n",
    "underscore": b"g,x\na,1_0\n",
    "not finite": b"g,x\na,nan\nb,inf\nc,-Infinity\n",
    "digits of another script": "g,x\na,１\n".encode(),
    "Latin-1": b"g,x\n\xd6,1\n",
    "NUL": b"g,x\na\0b,1\n",
    "header only": b"g,x\n",
    "a name twice": b"g,x,x\na,1,2\n",
    "spaces in the header": b" g , x \na,1\n",
    "line end in the header": b'"g","x\ny",x\na,b,1\n',
    "names that differ in case": b"g,G,x,X\na,b,1,2\n",
    "an empty name": b"g,,x\na,b,1\n",
    "keys like numbers": b"g,x\n1e2,1\n100,2\n1.1,3\n1.10,4\n007,5\n",
    "words for null": b"g,x\nNULL,1\nNA,2\nnull,3\nNone,4\n",
    "backslashes": b"g,x\na\\,1\n",
    "control characters": b"g,x\na\x0bb,1\n\x1b[31m,2\n",
    "numbers": b'g,x\na,+5\nb,.5\nc,5.\nd,"1"\ne,1e400\n',
}


@pytest.mark.parametrize("name", CONTENTS)
def test_tables_and_rows_agree(name: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(CONTENTS[name])
    assert as_table(path) == as_rows(path)


def test_what_they_agree_on(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"

    def read(content: str | bytes) -> Any:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return as_rows(path)

    assert read(CONTENTS["keys like numbers"]) == [
        ("'007'", "5.0"),
        ("'1.1'", "3.0"),
        ("'1.10'", "4.0"),
        ("'100'", "2.0"),
        ("'1e2'", "1.0"),
    ]
    for name in ("empty lines first", "empty lines of Windows first", "mark and empty lines", "mark of byte order"):
        assert read(CONTENTS[name]) == [("'a'", "1.0")]
    assert "mixes several kinds of line ends" in read(CONTENTS["several line ends"])
    assert "line 3 has 3 fields, the header 2" in read(CONTENTS["too many fields"])
    assert "value='x' is not numeric (row 2 holds 'abc')" in read(CONTENTS["no number"])
    assert "is not UTF-8 text (byte 5 is 0xd6)" in read(CONTENTS["Latin-1"])
    assert "Check the quotes" in read(CONTENTS["open quote"])
    assert "\x1b" not in read("g,x\n\x1b[31m,\x1b[2J\n")


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='ab",;\n 1.\\é', max_size=14), st.sampled_from([",1\n", "\n", ""]))
def test_tables_and_rows_agree_on_any_text(tmp_path_factory: pytest.TempPathFactory, cells: str, end: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_text(f"g,x\n{cells}{end}", encoding="utf-8", newline="")
    table, rows = as_table(path), as_rows(path)
    # Where two things are wrong, either may be found first.
    assert table == rows or (isinstance(table, str) and isinstance(rows, str))


@pytest.mark.parametrize("name", ["T.CSV", "t.Csv.Gz", "t.CSV.GZ", "t.TSV.gz"])
def test_endings_in_any_case(name: str, tmp_path: Path) -> None:
    content = b"\ng,x,se\n" + b"".join(b"%c,%d,1\n" % (97 + i % 2, i) for i in range(80))
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.lower().endswith("gz") else content)
    assert len(read_table(path, keys={"by": "g"}, numbers={"value": "x"}).keys[0]) == 80
    assert list(fl.measure(path, "g", fl.mean("x")).estimates.labels) == ["a", "b"]


def test_broken_archives_say_so(tmp_path: Path) -> None:
    for name, content in (
        (
            "cut.csv.gz",
            gzip.compress(b"g,x\n" + bytes(np.random.default_rng(0).integers(97, 122, 9000).tolist()))[:-900],
        ),
        ("plain.csv.gz", b"g,x\na,1\n"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        for read in (as_table, as_rows):
            assert "cannot be read" in read(path)


def test_decimals_after_many_whole_numbers_stay_decimals(tmp_path: Path) -> None:
    """A type that is guessed from the first rows rounds the others."""
    path = tmp_path / "t.csv"
    integers, rest = 25_000, 5_000
    path.write_text("g,p,y\n" + "a,1,1\nb,0,0\n" * integers + "a,0.4,1\nb,0.6,0\n" * rest)
    estimates = fl.measure(path, "g", fl.brier("y", "p")).estimates
    np.testing.assert_allclose(estimates.theta, rest / (integers + rest) * 0.36, rtol=1e-12)


def test_keys_units_and_arms_are_text(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rng = np.random.default_rng(0)
    keys, arms = ["1.1", "1.10", "1e2", "100", "true"], ["1", "1.0"]
    lines = [f"{keys[i % 5]},{arms[i // 5 % 2]},u{i // 10}.{i % 10}0,{rng.random()}" for i in range(1000)]
    path.write_text("g,arm,user,x\n" + "\n".join(lines) + "\n")
    metric = fl.difference("x", variant="arm", control="1", unit="user")
    estimates = fl.measure(path, "g", metric).estimates
    assert sorted(map(str, estimates.labels)) == sorted(keys)
    assert all(isinstance(label, str) for label in estimates.labels)
    assert estimates.n is not None
    assert estimates.n.sum() == 1000  # u1.10 and u1.1 would be one unit
    other = fl.measure(path, "g", fl.difference("x", variant="arm", control="1.0", unit="user")).estimates
    np.testing.assert_allclose(other.theta, -estimates.theta)


def test_whole_numbers_as_text_are_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("g,x\n" + "".join(f"{g},{i}\n" for i in range(40) for g in (10, 9, "", -2, 100)))
    assert list(fl.measure(path, "g", fl.mean("x")).estimates.labels) == ["-2", "9", "10", "100", "(missing)"]


def test_one_column_as_key_and_as_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    path = tmp_path / "t.csv"
    rows = [(i % 3, "AB"[i // 3 % 2], rng.random()) for i in range(600)]
    path.write_text("age,arm,x\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    metric = fl.difference("x", variant="arm", control="A", covariate="age")
    assert list(fl.measure(path, "age", metric).estimates.labels) == ["0", "1", "2"]
    cut = fl.measure(path, fl.bins("age", width=2), fl.mean("age"), min_size=1)
    assert [str(label) for label in cut.estimates.labels] == ["0–1", "2–3"]
    assert fl.measure(path, "arm", fl.rate("arm", positive="A"), min_size=1).estimates.natural.tolist() == [1, 0]


def test_truth_values_of_csv_are_numbers_where_numbers_are_wanted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("g,y\n" + "a,true\na,False\nb,TRUE\nb,true\n" * 20)
    assert fl.measure(path, "g", fl.rate("y")).estimates.natural.tolist() == [0.5, 1.0]
    assert fl.measure(path, "g", fl.mean("y"), min_size=1).estimates.natural.tolist() == [0.5, 1.0]
    path.write_text("g,y\n" + "a,yes\na,no\nb,Y\n" * 20)
    assert fl.measure(path, "g", fl.rate("y")).estimates.natural.tolist() == [0.5, 1.0]
    with refused("wrong type: value"):
        fl.measure(path, "g", fl.mean("y"))
    path.write_text("g,y\n" + "a,good\na,bad\n" * 20)
    with refused("wrong type: value"):
        fl.measure(path, "g", fl.rate("y"))


def test_every_file_has_its_own_header(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("g,x\n" + "a,1\na,2\n" * 15)
    (tmp_path / "2.csv").write_text("\nx;other;g\n" + "3;z;a\n5;z;a\n" * 15)
    estimates = fl.measure(str(tmp_path / "*.csv"), "g", fl.mean("x")).estimates
    assert estimates.theta[0] == pytest.approx((1 + 2 + 3 + 5) / 4)
    (tmp_path / "3.csv").write_text("g,y\na,1\n")
    with refused("column not found: value"):
        fl.measure(str(tmp_path / "*.csv"), "g", fl.mean("x"))
    (tmp_path / "3.csv").write_text("g,x\na,1\nb,what\n")
    with refused("wrong type: value"):
        fl.measure(str(tmp_path / "*.csv"), "g", fl.mean("x"))


class Stdin:
    """Standard input with these bytes."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> fl.Estimates:
        return fl.Estimates.from_frame("-", by="g", estimate="t", se="s")

    monkeypatch.setattr(sys, "stdin", Stdin(b"g,t,s\na,1,1\nb,2,1\n"))
    assert list(read().labels) == ["a", "b"]
    for broken, words in (
        (Stdin(b""), "empty: file"),
        (Stdin(b"g,t,s\na,1\n"), "unreadable file: file"),
        (Stdin(b"g,t,s\n\xff,1,1\n"), "unreadable file: file"),
        (None, "unreadable file: file"),
    ):
        monkeypatch.setattr(sys, "stdin", broken)
        with refused(words):
            read()
    closed = Stdin(b"")
    closed.buffer.close()
    monkeypatch.setattr(sys, "stdin", closed)
    with refused("unreadable file: file"):
        read()


@pytest.mark.parametrize("flip", range(12))
def test_a_damaged_archive_is_refused(flip: int, tmp_path: Path) -> None:
    """DuckDB compares no checksum: a flipped bit may change numbers, or rows."""
    content = bytearray(gzip.compress(b"g,x,se\n" + b"".join(b"%c,%d,1\n" % (97 + i % 2, i % 10) for i in range(400))))
    place = int(np.random.default_rng(flip).integers(12, len(content) - 4))
    content[place] ^= 1 << flip % 8
    path = tmp_path / "t.csv.gz"
    path.write_bytes(content)
    with refused("unreadable file: file"):
        fl.measure(path, "g", fl.mean("x"))
    with refused("unreadable file: file"):
        read_table(path, keys={"by": "g"}, numbers={"value": "x"})


def test_the_home_folder_is_expanded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked is what is read, also beside a folder that is called ``~``."""
    home, here = tmp_path / "home", tmp_path / "here"
    (here / "~").mkdir(parents=True)
    home.mkdir()
    (home / "t.csv").write_text("g,x,se\n" + "a,0,1\na,2,1\n" * 40)
    (here / "~" / "t.csv").write_text("g,x,se\n" + "a,1,1\na,3,1\n" * 40)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    for path, mean in (("~/t.csv", 1.0), ("~/*.csv", 1.0), ("./~/t.csv", 2.0), (here / "~" / "t.csv", 2.0)):
        assert fl.measure(path, "g", fl.mean("x")).estimates.theta.tolist() == [mean]
    assert read_table("~/t.csv", keys={"by": "g"}, numbers={"value": "x"}).numbers["value"][0] == 0.0
    assert read_table("./~/t.csv", keys={"by": "g"}, numbers={"value": "x"}).numbers["value"][0] == 1.0
    with refused("file not found: file"):
        fl.measure("~/other.csv", "g", fl.mean("x"))


@pytest.mark.parametrize("zeros", [1, 512, 100_000])
@pytest.mark.parametrize("members", [1, 2])
def test_zeros_after_an_archive_are_named(zeros: int, members: int, tmp_path: Path) -> None:
    """Python skips them, DuckDB takes them for a broken stream."""
    content = gzip.compress(b"g,x,se\n" + b"".join(b"%c,%d,1\n" % (97 + i % 2, i % 10) for i in range(400)))
    path = tmp_path / "t.csv.gz"
    path.write_bytes(content + gzip.compress(b"a,1,1\n") * (members - 1) + bytes(zeros))
    for read in (as_table, as_rows):
        answer = read(path)
        assert isinstance(answer, str)
        assert "zeros" in answer
