"""Files and folders: what they are called says nothing, none counts twice, and every trouble has a name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import faultlines as fl
from faultlines.engines import duckdb as duck
from tests.refused import refused

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = pd.DataFrame({"g": ["a", "b"] * 40, "x": [i % 7 for i in range(80)], "sd": [1.0] * 80})


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_folders_have_no_say(kind: str, tmp_path: Path) -> None:
    plain, odd = tmp_path / f"rows.{kind}", tmp_path / "g=XX" / "x=5" / f"rows.{kind}"
    odd.parent.mkdir(parents=True)
    for path in (plain, odd):
        ROWS.to_csv(path, index=False) if kind == "csv" else ROWS.to_parquet(path)
    expected = fl.measure(plain, "g", fl.mean("x")).estimates
    for measurement in (fl.measure(odd, "g", fl.mean("x")), fl.measure(str(tmp_path / "g=*/x=5/*"), "g", fl.mean("x"))):
        assert list(measurement.estimates.labels) == ["a", "b"]
        assert measurement.estimates.theta.tolist() == expected.theta.tolist()
    other = tmp_path / "y=1" / odd.name
    other.parent.mkdir()
    other.write_bytes(odd.read_bytes())
    with refused("column not found: by"):
        fl.measure(other, "y", fl.mean("x"))
    table = tmp_path / "sd=0.0001" / f"table.{kind}"
    table.parent.mkdir()
    few = ROWS.head(2)
    few.to_csv(table, index=False) if kind == "csv" else few.to_parquet(table)
    assert fl.Estimates.from_frame(table, by="g", estimate="x", se="sd").se.tolist() == [1.0, 1.0]


def test_a_file_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    ROWS.to_csv(path, index=False)
    (tmp_path / "b.csv").symlink_to(path)
    os.link(path, tmp_path / "c.csv")
    (tmp_path / "folder").mkdir()
    for paths in (
        [path, path],
        [path, tmp_path / "folder" / ".." / "a.csv"],
        [path, tmp_path / "b.csv"],
        [str(path), str(tmp_path / "a*.csv")],
        [path, tmp_path / "c.csv"],
        str(tmp_path / "*.csv"),
    ):
        with refused("duplicate: file"):
            fl.measure(paths, "g", fl.mean("x"))


def test_paths_that_cannot_be_used(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / ("x" * 300 + ".csv"), "unreadable file: file"),
        (tmp_path / ("x" * 300 + ".parquet"), "unreadable file: file"),
        ("rows\0.csv", "file not found: file"),
        (str(tmp_path / ("x" * 300 + "*.csv")), "unreadable file: file"),
        (tmp_path, "unreadable file: file"),
        ("", "empty: file"),
    ):
        with refused(words):
            fl.measure(path, "g", fl.mean("x"))
        if "*" not in str(path):
            with refused(words):
                fl.Estimates.from_frame(path, by="g", estimate="x", se="sd")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="everything is readable to root")
def test_folders_that_may_not_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir()
    ROWS.to_csv(folder / "a.csv", index=False)
    folder.chmod(0)
    try:
        with refused("unreadable file: file"):
            fl.measure(folder / "a.csv", "g", fl.mean("x"))
    finally:
        folder.chmod(0o700)


def test_a_folder_that_the_system_does_not_let_us_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for root, who may read everything: the system says no."""
    path = tmp_path / "a.csv"
    ROWS.to_csv(path, index=False)

    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.stat", closed)
    with refused("unreadable file: file"):
        fl.measure(path, "g", fl.mean("x"))


@pytest.mark.parametrize("by", ["", [], [""], ["g", ""], None, 5])
def test_no_column_is_named(by: object) -> None:
    with refused("empty: by"):
        fl.measure(ROWS, by, fl.mean("x"))  # type: ignore[arg-type]


def test_nothing_is_installed_or_loaded() -> None:
    with duck.connect() as engine:
        query = "SELECT name FROM duckdb_settings() WHERE name LIKE 'auto%known_extensions' AND value = 'false'"
        assert len(engine.sql(query).fetchall()) == 2


def test_out_of_memory_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.parquet"
    duckdb.sql(f"COPY (SELECT 'group ' || i AS g, i AS x FROM range(3000000) t(i)) TO '{path}' (FORMAT parquet)")
    config: dict[str, Any] = {"memory_limit": "30MB", "temp_directory": ""}
    monkeypatch.setattr(duck, "connect", lambda: duckdb.connect(config=config))
    with refused("out of memory: file"):
        fl.measure(path, "g", fl.mean("x"))


SCRIPT = """
import sys, faultlines as fl
print("ready", flush=True)
try:
    fl.measure(sys.argv[1], "g", fl.auc("y", "x"))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_interrupt_is_answered_at_once(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.{kind}"
    rows = "SELECT hash(i) % 1000 AS g, hash(i + 1) / 1.8446744073709552e19 AS x, i % 2 AS y FROM range(4000000) t(i)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (FORMAT {kind})")
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.2)
        assert process.poll() is None, "the scan was over before it could be interrupted"
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=20)
        took = time.monotonic() - sent
    assert said == "interrupted\n"
    assert took < 2  # about a tenth of a second; the machine may be busy


def test_a_relation_is_shared_by_threads() -> None:
    """A connection of DuckDB refuses a second call; ours wait for each other."""
    with duckdb.connect() as connection:
        connection.register("rows", ROWS)
        relation = connection.sql("SELECT * FROM rows")
        expected = fl.measure(ROWS, "g", fl.mean("x")).estimates.theta.tolist()
        with ThreadPoolExecutor(6) as pool:
            calls = [pool.submit(fl.measure, relation, "g", fl.mean("x")) for _ in range(24)]
            assert all(call.result().estimates.theta.tolist() == pytest.approx(expected) for call in calls)


def test_short_frames_share_a_database_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Mock(wraps=duck.connect)
    monkeypatch.setattr(duck, "connect", opened)
    duck.SHARED_DATABASE.drop()
    frames = [ROWS.assign(x=ROWS["x"] + i, y=np.arange(len(ROWS)) // 2 % 2) for i in range(12)]
    metrics = [fl.mean("x"), fl.auc("y", "x")]  # the second keeps a temporary table
    expected = [[fl.measure(pl.from_pandas(frame), "g", m).estimates.theta for m in metrics] for frame in frames]
    assert opened.call_count == 0  # Polars reads its own frames
    with ThreadPoolExecutor(6) as pool:
        calls = [[pool.submit(fl.measure, frame, "g", m) for m in metrics] for frame in frames]
        for pair, thetas in zip(calls, expected, strict=True):
            for call, theta in zip(pair, thetas, strict=True):
                np.testing.assert_allclose(call.result().estimates.theta, theta)
    assert opened.call_count == 1
    long = pd.concat([ROWS] * (200_000 // len(ROWS)))
    fl.measure(long, "g", fl.mean("x"))
    assert opened.call_count == 2  # what a long frame needed is given back
    fl.measure(ROWS, "g", fl.mean("x"))
    assert opened.call_count == 2


@pytest.mark.parametrize(
    ("error", "drops"),
    [
        (duckdb.FatalException, True),
        (KeyboardInterrupt, True),
        (partial(fl.InputError, "by", "is b", "Do c."), False),
    ],
)
def test_a_database_that_may_be_broken_is_not_used_again(error: Callable[[], BaseException], drops: bool) -> None:
    kind = type(error())
    with duck.own_connection(shared=True):
        before = duck.SHARED_DATABASE.connection
    assert before is not None
    with pytest.raises(kind), duck.own_connection(shared=True):
        raise error()
    assert (duck.SHARED_DATABASE.connection is not before) == drops


FORKED = """
import os, sys, pandas as pd, faultlines as fl
rows = pd.DataFrame({"g": [0, 1] * 50, "x": range(100)})
before = fl.measure(rows, "g", fl.mean("x")).estimates.theta.tolist()
child = os.fork()
assert fl.measure(rows, "g", fl.mean("x")).estimates.theta.tolist() == before
sys.exit(0 if child == 0 else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks on Windows")
def test_a_fork_reads_frames_and_ends() -> None:
    """A child that inherits an open database ends in a segmentation fault, or not at all."""
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=60)


def test_an_ibis_table_is_shared_by_threads() -> None:
    table = ibis.memtable(pa.Table.from_pandas(ROWS, preserve_index=False))
    expected = fl.measure(ROWS, "g", fl.mean("x")).estimates.theta.tolist()
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(fl.measure, table, "g", fl.mean("x")) for _ in range(24)]
        assert all(call.result().estimates.theta.tolist() == pytest.approx(expected) for call in calls)


def test_many_files_are_opened_by_few_queries(tmp_path: Path) -> None:
    for i in range(300):
        ROWS.to_parquet(tmp_path / f"{i}.parquet")
    started = time.perf_counter()
    measurement = fl.measure(str(tmp_path / "*.parquet"), "g", fl.mean("x"))
    assert measurement.estimates.n is not None
    assert measurement.estimates.n.sum() == 300 * len(ROWS)
    assert time.perf_counter() - started < 10  # 1.6 s on one core, imports included; 3.5 s with a query for each file


@pytest.mark.parametrize("mark", [b"ARROW:schema", b"PAR1"])
def test_a_parquet_file_with_damaged_metadata_is_refused(mark: bytes, tmp_path: Path) -> None:
    """PyArrow reads some of what DuckDB does not."""
    path = tmp_path / "x.parquet"
    ROWS.to_parquet(path)
    data = bytearray(path.read_bytes())
    place = data.rindex(mark) + len(mark) + 20 if mark != b"PAR1" else len(data) - 1
    data[place : place + 1] = b"\x01"
    path.write_bytes(bytes(data))
    with pytest.raises(fl.InputError) as error:
        fl.measure(path, "g", fl.mean("x"))
    assert error.value.code == "unreadable file"


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_are_compared_with_their_checksums(version: Any, compression: str, tmp_path: Path) -> None:
    """Where a file has them; DuckDB does not look at them, and most flipped bits change what it reads."""
    rng = np.random.default_rng(0)
    table = pa.table({"g": [f"g{i % 4}" for i in range(2000)], "x": rng.normal(size=2000), "note": ["unused"] * 2000})
    path = tmp_path / "x.parquet"
    parquet.write_table(
        table, path, write_page_checksum=True, data_page_version=version, compression=compression, row_group_size=700
    )
    duck_rows = duckdb.execute(f"SELECT path_in_schema, data_page_offset FROM parquet_metadata('{path}')").fetchall()
    last = {column: max(place for name, place in duck_rows if name == column) for column, _ in duck_rows}
    content = path.read_bytes()
    assert len(fl.measure(path, "g", fl.mean("x")).estimates) == 4
    for column, is_read in (("x", True), ("note", False)):
        damaged = bytearray(content)
        damaged[last[column] + (200 if is_read else 30)] ^= 4
        path.write_bytes(damaged)
        if is_read:
            with refused("unreadable file: file"):
                fl.measure(path, "g", fl.mean("x"))
        else:
            assert len(fl.measure(path, "g", fl.mean("x")).estimates) == 4


def test_every_engine_is_chosen_in_one_place() -> None:
    asked = re.compile(r"\.is_(duckdb|polars|pyspark|pyspark_connect|ibis)\(")
    folder = Path(fl.__file__).parent
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if asked.search(path.read_text())}
    assert files == {f"engines/{name}.py" for name in ("duckdb", "polars", "spark", "ibis")}


@pytest.mark.parametrize("data", ["", " ", [""], ["x.csv", ""]])
def test_an_empty_path_is_not_the_current_folder(
    data: str | list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ROWS.to_csv(tmp_path / "x.csv", index=False)
    monkeypatch.chdir(tmp_path)
    with refused("empty: file"):
        fl.measure(data, "g", fl.mean("x"))
    sizes = fl.measure(".", "g", fl.mean("x")).estimates.n
    assert sizes is not None
    assert sizes.sum() == len(ROWS)


@pytest.mark.parametrize(
    "data", ["http:" + "//a.org/x.csv", "s3://b/x.parquet", "gs://b/*.parquet", Path("s3://b/x.csv")]
)
def test_a_url_is_not_a_missing_file(data: str | Path) -> None:
    with refused("unsupported: file"):
        fl.measure(data, "g", fl.mean("x"))


def test_folders_named_like_files(tmp_path: Path) -> None:
    """As Spark writes them; one without files is named once, not by an error within an error."""
    folder = tmp_path / "all" / "x.parquet"
    folder.mkdir(parents=True)
    with refused("unreadable file: file") as caught:
        fl.measure(folder, "g", fl.mean("x"))
    assert str(caught.value).count("file=") == 1
    ROWS.to_parquet(folder / "part-0.parquet")
    sizes = fl.measure(tmp_path / "all", "g", fl.mean("x")).estimates.n
    assert sizes is not None
    assert sizes.sum() == len(ROWS)


WIDE = {
    "half": pa.array(np.arange(30, dtype=np.float16)),
    "decimal256": pa.array([Decimal(i) for i in range(30)], pa.decimal256(50, 6)),
    "decimal256 of few digits": pa.array([Decimal(i) for i in range(30)], pa.decimal256(20, 6)),
}


@pytest.mark.parametrize("values", WIDE.values(), ids=WIDE)
@pytest.mark.parametrize("is_used", [True, False])
def test_half_floats_and_wide_decimals_of_ibis_answer_or_are_refused(values: pa.Array, is_used: bool) -> None:
    table = pa.table({"g": ["a", "b", "c"] * 10, "x": values, "y": np.arange(30.0)})
    metric = fl.mean("x" if is_used else "y")
    for ask in (
        lambda: fl.measure(ibis.memtable(table), "g", metric),
        lambda: fl.Estimates.from_frame(ibis.memtable(table[1:4]), by="g", estimate="x" if is_used else "y", se="y"),
    ):
        with suppress(fl.InputError):  # any other error is a defect; whether there is an answer is up to DuckDB
            ask()


def test_decimals_of_a_warehouse_that_are_too_wide_are_refused_by_name() -> None:
    table = ibis.table({"g": "string", "x": "decimal(76, 38)"}, name="t")
    with pytest.raises(fl.InputError) as refused:
        fl.cluster(table, "g", fl.mean("x"))
    assert (refused.value.code, refused.value.parameter) == ("wrong type", "data")
    assert fl.sql(table.cast({"x": "float64"}), "g", fl.mean("x"), dialect="bigquery")
