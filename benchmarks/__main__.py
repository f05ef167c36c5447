"""`make bench`: speed and memory as ratios to floors and peers, all measured in one run on one machine.

Figures go to docs/figures/bench.json. Exit 1 when a limit is missed. `python -m benchmarks scan attributes` runs some
of the parts.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import linkage

import faultlines as fl
from benchmarks import rows
from benchmarks.timing import Board, seconds, side_by_side
from faultlines import simulate
from faultlines.core.normal import compare_effects
from faultlines.guarantees.base import available_cores
from faultlines.render.pictures import pictures
from faultlines.render.vega import svg

CORES = available_cores()
# Of drawing and sorting 1,000 × 102 normals: what a test on that many draws costs at least. Where nothing differs most
# tests stop after a tenth of the draws (measured 0.8). Three clusters take a dozen tests, each of other groups and so
# on draws of its own, at most two of these floors each (measured 20).
NO_DIFFERENCE, THREE_CLUSTERS = 1.5, 24.0


def tree(board: Board) -> None:
    rng = np.random.default_rng(0)
    for size in (10**4, 10**5, 10**6, 10**7):
        estimates = fl.Estimates(rng.standard_normal(size), np.exp(0.5 * rng.standard_normal(size)))
        floor = seconds(partial(np.argsort, estimates.theta))
        ours = seconds(partial(fl.agglomerate, estimates))
        good, limit = (ours / floor <= 4, "≤ 4") if size == 10**6 else (None, "")
        board.line(
            f"agglomerate, {size:.0e} groups / np.argsort of the same array",
            ours / floor,
            "×",
            good=good,
            limit=limit,
        )
        board.line(f"    time a group, {size:.0e} groups", ours / size * 1e9, "ns")
    size = 10**6
    worst = {
        "gaps growing 1, 2, 3, …": np.cumsum(np.arange(size, dtype=float)),
        "all θ equal": np.full(size, 0.3),
        "geometric gaps": np.concatenate([[0.0], np.cumsum(1.00001 ** np.arange(size - 1))]),
        "heavy tails": rng.standard_cauchy(size),
    }
    usual = seconds(partial(fl.agglomerate, fl.Estimates(rng.standard_normal(size), np.ones(size))))
    for name, theta in worst.items():
        shuffled = fl.Estimates(rng.permutation(theta), np.ones(size))
        took = seconds(partial(fl.agglomerate, shuffled))
        board.line(
            f"agglomerate, 1e+06 groups, {name} / normal θ",
            took / usual,
            "×",
            good=took / usual <= 2,
            limit="≤ 2",
        )
    theta = rng.standard_normal(5000)
    estimates = fl.Estimates(theta, np.ones(5000))
    ward = seconds(lambda: linkage(theta[:, None], "ward"))
    ours = seconds(lambda: fl.agglomerate(estimates).to_linkage())
    board.line(
        "scipy linkage(ward) / agglomerate, 5,000 groups",
        ward / ours,
        "×",
        good=ward / ours >= 100,
        limit="≥ 100",
    )


def calibration(board: Board) -> None:
    groups, draws = 200, 10_000
    estimates = simulate.planted([0, 3], [100, 100], profile="lognormal").estimates

    def share(seed: int) -> None:
        normal = np.random.Generator(np.random.SFC64(seed)).standard_normal((draws // CORES, groups))
        normal.sort(axis=1)

    def floor() -> None:
        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(share, range(CORES)))

    top_merge = fl.Calibrated(draws, scan=False)
    ours, least = side_by_side(lambda: top_merge.find_path(compare_effects(estimates), 0, refine=False), floor)
    board.line(
        f"top merge, 200 groups, 10,000 draws / drawing and sorting them in NumPy, {CORES} cores",
        ours / least,
        "×",
        good=ours / least <= 5,
        limit="≤ 5",
    )
    board.line("    time", ours * 1e3, "ms")


def scan(board: Board) -> None:
    """The default where nothing differs and where three clusters do, against drawing and sorting its noise in NumPy."""
    rng = np.random.default_rng(1)
    se = rng.lognormal(0, 0.4, 102)
    equal = [fl.Estimates(se * rng.standard_normal(102), se) for _ in range(30)]
    three = [fl.Estimates(np.repeat([0, 4, 8], 34) + se * rng.standard_normal(102), se) for _ in range(30)]

    def floor() -> None:
        for seed in range(30):
            np.random.default_rng(seed).standard_normal((1000, 102)).sort(axis=1)

    def cluster_all(tables: list[fl.Estimates]) -> None:
        for seed, estimates in enumerate(tables):
            fl.cluster(estimates, seed=seed)

    board.line("drawing and sorting 1,000 × 102 normals in NumPy", seconds(floor) / 30 * 1e3, "ms")
    for name, tables, limit in (("no difference", equal, NO_DIFFERENCE), ("three clusters", three, THREE_CLUSTERS)):
        ours, least = side_by_side(partial(cluster_all, tables), floor, rounds=8)
        ratio = ours / least
        board.line(f"    cluster, 102 groups, {name} / that", ratio, "×", good=ratio <= limit, limit=f"≤ {limit:g}")


def large(board: Board) -> None:
    """Many groups in three clusters."""
    rng = np.random.default_rng(2)
    for groups, limit in ((1_000, 1.0), (1_000_000, 8.0)):
        errors = rng.lognormal(0, 0.4, groups)
        estimates = fl.Estimates(np.resize([0.0, 4.0, 8.0], groups) + errors * rng.standard_normal(groups), errors)
        took = seconds(partial(fl.cluster, estimates), most=1)
        board.line(f"cluster, {groups:,} groups, three clusters", took, "s", good=took <= limit, limit=f"≤ {limit:g} s")


def crossed(*sizes: int, seed: int = 0) -> fl.Estimates:
    """Cells of crossed attributes, of which the last makes a difference."""
    rng = np.random.default_rng(seed)
    cells = list(itertools.product(*map(range, sizes)))
    se = rng.lognormal(0, 0.4, len(cells))
    theta = 1.0 * np.array([cell[-1] == 1 for cell in cells]) + se * rng.standard_normal(len(cells))
    return fl.Estimates(theta, se, cells, attributes=[f"a{i}" for i in range(len(sizes))])


def attributes(board: Board) -> None:
    """Crossed attributes: all margins against the cells alone."""
    cells = crossed(60, 3, 2)
    ours, alone = side_by_side(partial(fl.cluster, cells), partial(fl.cluster, cells, margins=False), rounds=5)
    board.line(
        "cluster, 360 cells with 7 margins / the cells alone",
        ours / alone,
        "×",
        good=ours / alone <= 8,
        limit="≤ 8",
    )
    many_cells = crossed(20, 20, 25, 10)
    took = seconds(partial(fl.cluster, many_cells), most=1)
    board.line("cluster, 100,000 cells of four attributes", took, "s", good=took <= 30, limit="≤ 30 s")


def plane(board: Board) -> None:
    """Two effects at once: the tree against Ward's on the same points, and calibration."""
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((1000, 2))
    alike = fl.Estimates(theta, np.ones((1000, 2)))
    ours, ward = side_by_side(lambda: fl.agglomerate(alike), lambda: linkage(theta, "ward"), rounds=15)
    board.line(
        "agglomerate, 1,000 groups in the plane / scipy linkage(ward)",
        ours / ward,
        "×",
        good=ours / ward <= 3,
        limit="≤ 3",
    )
    root = rng.standard_normal((1000, 2, 4))
    correlated = fl.Estimates(theta, None, effect_covariance=root @ np.swapaxes(root, 1, 2))
    took = seconds(lambda: fl.agglomerate(correlated))
    board.line("    the same with a covariance of its own for each group", took / ward, "×", good=took / ward <= 3)
    two_hundred = fl.Estimates(np.repeat([[0.0, 0.0], [2.0, 2.0]], 100, axis=0) + theta[:200], np.ones((200, 2)))
    took = seconds(lambda: fl.cluster(two_hundred), most=3)
    board.line("calibrated, 200 groups in the plane, 10,000 draws", took, "s", good=took < 10, limit="seconds")


def many(board: Board) -> None:
    """The paper's A/A study in size, 2,218 experiments with 21 groups, against the sum of its parts.

    The parts are what every experiment costs by itself: the calls of `fl.cluster`, one after the other. Bookkeeping and
    the adjustment for the number of experiments must not cost more than a tenth of that. Every experiment has standard
    errors of its own: a loop over equal ones would be answered from a cache.
    """
    rng = np.random.default_rng(0)
    errors = rng.lognormal(0, 0.6, (2218, 21))
    experiments = {f"e{i}": fl.Estimates(se * rng.standard_normal(21), se) for i, se in enumerate(errors)}
    some = dict(list(experiments.items())[:400])
    ours, parts = side_by_side(
        lambda: fl.cluster_many(some), lambda: [fl.cluster(estimates) for estimates in some.values()], rounds=4
    )
    board.line(
        "cluster_many, 400 experiments × 21 groups / the sum of its parts",
        ours / parts,
        "×",
        good=ours / parts <= 1.1,
        limit="≤ 1.1",
    )
    together = seconds(lambda: fl.cluster_many(experiments), most=2)
    board.line(
        "cluster_many, 2,218 experiments × 21 groups / 400 of them",
        together / ours,
        "×",
        good=together / ours <= 1.25 * len(experiments) / len(some),
        limit=f"≤ {1.25 * len(experiments) / len(some):.1f}",
    )
    board.line("    time", together, "s")


def paper(board: Board) -> None:
    estimates = simulate.asia_africa(0.2).estimates
    took = seconds(lambda: fl.cluster(estimates, guarantee="bonferroni", refine=False))
    board.line("the paper's problem, K = 102, bonferroni: its 27 ms (other machine) / ours", 0.027 / took, "×")
    took_calibrated = seconds(lambda: fl.cluster(estimates))
    board.line("    ours, bonferroni", took * 1e3, "ms")
    board.line("    ours, calibrated on 10,000 draws", took_calibrated * 1e3, "ms")


def memory(board: Board) -> None:
    """Highest resident memory during the work less that before it, in a fresh process (Linux keeps the books)."""
    script = """if True:
        import re, numpy as np, faultlines as fl
        from pathlib import Path
        def kilobytes(what):
            return int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
        fl.agglomerate(fl.Estimates(np.arange(9.0), np.ones(9)))
        size = 4_000_000
        estimates = fl.Estimates(np.random.default_rng(0).standard_normal(size), np.ones(size))
        Path("/proc/self/clear_refs").write_text("5")
        before = kilobytes("VmRSS")
        tree = fl.agglomerate(estimates)
        print((kilobytes("VmHWM") - before) * 1024 / size)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        board.line("agglomerate, peak memory a group, beside the estimates", float(done.stdout), "bytes")
    else:
        print("peak memory is not known on this system")


def page(board: Board) -> None:
    """The page of a result / the pictures in it, which the drawing library makes; and whether a browser keeps up."""
    result = fl.cluster(simulate.planted([0, 5, 9], [2_500, 1_500, 1_000]).estimates)
    target = Path(tempfile.mkdtemp()) / "page.html"
    drawn = [picture for kind in ("groups", "tree") for picture in pictures(result, kind)]
    floor = seconds(lambda: [svg(picture) for picture in drawn])
    took = seconds(lambda: result.report(target))
    board.line("page of 5,000 groups / its pictures alone", took / floor, "×", good=took / floor <= 5, limit="≤ 5")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        result.report(path)
        size = path.stat().st_size / 1e6
        board.line("    its size", size, "MB", good=size <= 6, limit="≤ 6 MB")
        chromium = shutil.which("chromium")
        if chromium is None:
            print("    no Chromium to open it in")
            return
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            opened = browser.new_page()

            def look() -> None:
                opened.goto(path.as_uri())
                opened.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")

            took = seconds(look)
            board.line("    opened in Chromium", took, "s", good=took <= 2, limit="≤ 2 s")
            browser.close()


PARTS = {
    part.__name__: part for part in (tree, calibration, scan, large, attributes, plane, many, paper, page, memory)
} | {"rows": rows.main}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[], help="all by default")
    board = Board()
    for name in parser.parse_args().parts or PARTS:
        board.part = name
        PARTS[name](board)
    if board.missed:
        sys.exit(f"{len(board.missed)} limits missed")


if __name__ == "__main__":
    main()
