"""Rows to clusters: ratios to hand-written SQL, to pandas and to Fairlearn, measured in one run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pandas as pd

import faultlines as fl
from benchmarks.timing import Board, seconds
from faultlines.metrics.measure import measure_all

if TYPE_CHECKING:
    from collections.abc import Callable

ARMS: dict[str, Any] = {"variant": "arm", "control": "A"}
METRIC = fl.lift("revenue", **ARMS)
BY = ["country", "device", "age"]
# What an analyst would write for the same answer under the same rules: NULL, NaN and infinity are left out.
SQL = """
    SELECT country, device, age, arm, count(*) AS rows, count(x) AS n, avg(x) AS mean, var_samp(x) AS variance
    FROM (
        SELECT country, device, age, arm, CASE WHEN isfinite(revenue) THEN revenue END AS x FROM read_parquet('{path}')
    )
    GROUP BY ALL
"""

SQL_THREE = """
    SELECT country, device, age, arm, count(*) AS rows, count(x), avg(x), var_samp(x), count(y), avg(y), var_samp(y),
        count(z), avg(z), var_samp(z)
    FROM (
        SELECT country, device, age, arm, CASE WHEN isfinite(revenue) THEN revenue END AS x,
            CASE WHEN isfinite(visits) THEN visits END AS y, CASE WHEN isfinite(minutes) THEN minutes END AS z
        FROM read_parquet('{path}')
    )
    GROUP BY ALL
"""
# The same with a randomised unit: rows summed to units once, and the check that a unit is in one group and arm.
SQL_UNITS = """
    WITH units AS MATERIALIZED (
        SELECT country, device, age, arm, unit, sum(x) AS x
        FROM (
            SELECT country, device, age, arm, unit, CASE WHEN isfinite(revenue) THEN revenue END AS x
            FROM read_parquet('{path}')
        )
        WHERE x IS NOT NULL AND arm IS NOT NULL AND unit IS NOT NULL
        GROUP BY ALL
    )
    SELECT country, device, age, arm, count(*) AS n, avg(x) AS mean, var_samp(x) AS variance,
        (SELECT count(*) - count(DISTINCT unit) FROM units) AS in_several_places
    FROM units
    GROUP BY ALL
"""
SQL_UNITS_THREE = """
    WITH units AS MATERIALIZED (
        SELECT country, device, age, arm, unit, sum(x) AS x, sum(y) AS y, sum(z) AS z
        FROM (
            SELECT country, device, age, arm, unit, CASE WHEN isfinite(revenue) THEN revenue END AS x,
                CASE WHEN isfinite(visits) THEN visits END AS y, CASE WHEN isfinite(minutes) THEN minutes END AS z
            FROM read_parquet('{path}')
        )
        WHERE arm IS NOT NULL AND unit IS NOT NULL
        GROUP BY ALL
    )
    SELECT country, device, age, arm, count(x), avg(x), var_samp(x), count(y), avg(y), var_samp(y), count(z), avg(z),
        var_samp(z), (SELECT count(*) - count(DISTINCT unit) FROM units) AS in_several_places
    FROM units
    GROUP BY ALL
"""


def write_rows(path: Path, rows: int) -> None:
    """About a thousand groups (50 × 4 × 5) in two arms, made by DuckDB itself."""
    duckdb.sql(f"""
        COPY (
            SELECT 'c' || (hash(i) % 50) AS country, 'd' || (hash(i + 1) % 4) AS device, hash(i + 2) % 5 AS age,
                CASE WHEN hash(i + 3) % 2 = 0 THEN 'A' ELSE 'B' END AS arm,
                CASE WHEN hash(i + 4) % 100 = 0 THEN NULL ELSE 5 + (hash(i + 5) % 100000) / 1e5 END AS revenue
            FROM range({rows}) t(i)
        ) TO '{path}' (FORMAT parquet)
    """)


def files(board: Board, folder: Path, sizes: tuple[int, ...]) -> None:
    per_row = {}
    for rows in sizes:
        path = folder / f"{rows}.parquet"
        write_rows(path, rows)
        sql = partial(_by_hand, path)
        most = 3 if rows > 10**7 else 8
        floor = seconds(sql, least=3, most=most)
        ours = seconds(partial(fl.measure, path, BY, METRIC), least=3, most=most)
        with_files = seconds(partial(fl.cluster, path, by=BY, metric=METRIC), least=3, most=most)
        per_row[rows] = ours / rows
        largest = rows == sizes[-1]
        good = ours / floor <= 1.25 if largest else None
        board.line(
            f"{rows:,} rows, file to estimates / hand-written SQL",
            ours / floor,
            "×",
            good=good,
            limit="≤ 1.25" if largest else "",
        )
        board.line("    file to clusters / hand-written SQL", with_files / floor, "×")
        board.line("    file to clusters", with_files, "s")
    first, last = sizes[0], sizes[-1]
    growth = per_row[last] / per_row[first]
    board.line(f"time per row, {last:,} rows / {first:,} rows", growth, "×", good=growth <= 1.5, limit="≤ 1.5")
    script = (
        "import resource, faultlines as fl; from benchmarks.rows import BY, METRIC;"
        f"fl.cluster({str(folder / f'{last}.parquet')!r}, by=BY, metric=METRIC);"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    board.line(
        f"    peak memory, {last:,} rows", float(done.stdout), "GB", good=float(done.stdout) <= 1, limit="≤ 1 GB"
    )


def _by_hand(path: Path, query: str = SQL) -> Any:
    with duckdb.connect() as engine:
        return engine.sql(query.format(path=path)).fetchnumpy()


def write_units(path: Path, rows: int, units: int) -> None:
    """The same groups; what they are by depends on the unit, and every unit has several rows."""
    duckdb.sql(f"""
        COPY (
            SELECT 'u' || u AS unit, 'c' || (hash(u) % 50) AS country, 'd' || (hash(u + 1) % 4) AS device,
                hash(u + 2) % 5 AS age, CASE WHEN hash(u + 3) % 2 = 0 THEN 'A' ELSE 'B' END AS arm,
                CASE WHEN hash(i + 4) % 100 = 0 THEN NULL ELSE 5 + (hash(i + 5) % 100000) / 1e5 END AS revenue,
                (hash(i + 6) % 100)::DOUBLE AS visits, (hash(i + 7) % 1000) / 10 AS minutes
            FROM (SELECT i, hash(i) % {units} AS u FROM range({rows}) t(i))
        ) TO '{path}' (FORMAT parquet)
    """)


def several(board: Board, folder: Path, rows: int, units: int) -> None:
    """Three metrics in one scan against one, and hand-written SQL's own ratio; with and without a randomized unit."""
    path = folder / "units.parquet"
    write_units(path, rows, units)
    cases = (
        ("", ARMS, (SQL, SQL_THREE)),
        (f", {units:,} units", {**ARMS, "unit": "unit"}, (SQL_UNITS, SQL_UNITS_THREE)),
    )
    for what, options, queries in cases:
        metric = fl.lift("revenue", **options)
        three = [metric, fl.difference("visits", **options), fl.lift("minutes", **options)]
        alone, together = partial(fl.measure, path, BY, metric), partial(measure_all, path, BY, three)
        rounds = 5 if what else 15
        ratio = _paired(alone, together, rounds)
        by_hand = _paired(partial(_by_hand, path, queries[0]), partial(_by_hand, path, queries[1]), rounds)
        limit = 1.1 * by_hand
        name = f"{rows:,} rows{what}, three metrics / one"
        board.line(name, ratio, "×", good=ratio <= limit, limit=f"≤ {limit:.2f}")
        board.line("    the same in hand-written SQL", by_hand, "×")
        if what:
            ratio = _paired(partial(_by_hand, path, SQL_UNITS), alone, rounds)
            name = f"{rows:,} rows{what}, file to estimates / hand-written SQL"
            board.line(name, ratio, "×", good=ratio <= 1.4, limit="≤ 1.4")


def _paired(first: Callable[[], object], second: Callable[[], object], rounds: int) -> float:
    """How many times as long the second takes: the median over runs that take turns, as other work slows both."""
    ratios = []
    for _ in range(rounds):
        took = []
        for work in (first, second):
            started = time.perf_counter()
            work()
            took.append(time.perf_counter() - started)
        ratios.append(took[1] / took[0])
    return float(np.median(ratios))


def daily_look(board: Board, folder: Path, rows: int) -> None:
    """A look of `fl.Monitor` at all rows so far, the fourteenth of a launch, against the SQL that reads them."""
    path = folder / f"{rows}.parquet"
    if not path.exists():
        write_rows(path, rows)
    by = ["country", "device"]
    monitor = fl.Monitor(looks=20)
    so_far = fl.measure(path, by, METRIC).estimates
    for day in range(1, 14):  # what the looks before saw: fewer users, the same groups
        users = np.ceil(so_far.n * day / 14)  # type: ignore[operator]
        monitor.update(so_far.changed(n=users, se=so_far.se * np.sqrt(so_far.n / users)))
    state = monitor.to_json()
    floor = partial(_by_hand, path, SQL.replace("country, device, age, arm", "country, device, arm"))
    rounds = 3 if rows > 10**7 else 8
    ratio = _paired(floor, lambda: fl.Monitor.from_json(state).update(path, by, METRIC), rounds)
    # Beside the rows a job that resumes from its file draws the looks before again, which takes no more with more rows.
    board.line(f"{rows:,} rows, 200 groups, look 14 from its state / hand-written SQL", ratio, "×")


def in_memory(board: Board, rows: int) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "country": rng.integers(0, 50, rows),
            "device": rng.integers(0, 4, rows),
            "age": rng.integers(0, 5, rows),
            "arm": rng.choice(["A", "B"], rows),
            "revenue": rng.lognormal(1, 0.5, rows),
        }
    )
    theirs = seconds(lambda: frame.groupby([*BY, "arm"])["revenue"].agg(["count", "mean", "var"]), most=2)
    ours = seconds(partial(fl.measure, frame, BY, METRIC), most=3)
    board.line(f"pandas group-by / ours, {rows:,} rows in pandas", theirs / ours, "×", good=theirs > ours, limit="> 1")


def fairness(board: Board) -> None:
    from fairlearn.metrics import MetricFrame, false_positive_rate, selection_rate, true_positive_rate

    rows = 1_000_000
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"group": rng.integers(0, 21, rows), "y": rng.integers(0, 2, rows), "p": rng.integers(0, 2, rows)}
    )
    theirs = seconds(
        lambda: MetricFrame(
            metrics={"tpr": true_positive_rate, "fpr": false_positive_rate, "rate": selection_rate},
            y_true=frame.y,
            y_pred=frame.p,
            sensitive_features=frame.group,
        ),
        most=1,
    )
    wanted = [fl.true_positive_rate("y", "p"), fl.false_positive_rate("y", "p"), fl.selection_rate("p")]
    ours = seconds(partial(measure_all, frame, "group", wanted))
    board.line(
        "Fairlearn MetricFrame / ours, three metrics, 1,000,000 rows, 21 groups",
        theirs / ours,
        "×",
        good=theirs / ours >= 50,
        limit="≥ 50",
    )


def main(board: Board) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files(board, Path(folder), (1_000_000, 10_000_000, 50_000_000))
        daily_look(board, Path(folder), 50_000_000)
        several(board, Path(folder), 20_000_000, 2_000_000)
    in_memory(board, 10_000_000)
    fairness(board)


if __name__ == "__main__":
    main(Board())
