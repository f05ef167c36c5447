"""The kernels of a wheel for every Python (abi3) / the same built for one version: what the stable interface costs.

Both are built here from the same source, which takes half a minute. Work is what the library asks of the kernels: null
draws, a large tree, a mixture. Calls for some dozens of groups show the price of a call.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from functools import partial
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.timing import Board, side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
LIMIT = 1.1


def main(board: Board) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stable, ordinary = (_built(Path(folder), abi3) for abi3 in ("1", "0"))
        for name, work in _work().items():
            ours, least = side_by_side(partial(work, stable), partial(work, ordinary), rounds=40)
            good = None if name.startswith(" ") else ours / least <= LIMIT
            limit = "" if good is None else f"≤ {LIMIT:g}"
            board.line(f"{name}, abi3 / ordinary", ours / least, "×", good=good, limit=limit)
            if good is None:
                board.line("    a call, ordinary", least / 1000 * 1e6, "µs")


def _built(folder: Path, abi3: str) -> Any:
    """The kernels of a wheel, under a name of their own; from a copy, since setuptools takes up what a build left."""
    place, tree = folder / abi3, folder / f"tree{abi3}"
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.c", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(tree)]
    subprocess.run(command, check=True, env={**os.environ, "FAULTLINES_ABI3": abi3})
    with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
        (compiled,) = (name for name in wheel.namelist() if name.endswith((".so", ".pyd")))
        path = wheel.extract(compiled, place)
    loader = ExtensionFileLoader(f"built_{abi3}.kernels", path)
    spec = spec_from_loader(loader.name, loader)
    if spec is None:
        raise ImportError(path)
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def _work() -> dict[str, Callable[[Any], None]]:
    rng = np.random.default_rng(0)
    normal, scale = rng.standard_normal((1000, 40)), rng.lognormal(0, 0.4, 40)
    top, scores, radius = np.empty(1000), np.empty((1000, 40)), np.empty(1000)
    theta, weight, heights = np.sort(rng.standard_normal(10**6)), np.ones(10**6), np.empty(10**6 - 1)
    wide, errors, squared = rng.standard_normal((200, 1000)), rng.lognormal(0, 0.4, 1000), np.empty(200)
    few, few_heights = np.sort(rng.standard_normal(40)), np.empty(39)
    levels, shares, posterior = np.array([-1.0, 1.0]), np.array([0.5, 0.5]), np.empty((1000, 2))
    thousand, ones = rng.standard_normal(1000), np.ones(1000)

    def draws(kernels: Any) -> None:
        kernels.draw_few_groups(normal, scale, top, scores, radius)

    def learn(kernels: Any) -> None:
        kernels.null_moments_few(normal, scale[None].repeat(3, axis=0), 0.95, np.empty((3, 82)))

    def line(kernels: Any) -> None:
        kernels.merge_line(theta.copy(), weight.copy(), heights)

    def packed(kernels: Any) -> None:
        kernels.pack_draws(wide.copy(), errors, squared)

    def mixture(kernels: Any) -> None:
        kernels.fit_mixture(thousand, ones, levels.copy(), shares.copy(), posterior, 1, 100, 0.0)

    def call(kernels: Any) -> None:
        for _ in range(1000):
            kernels.merge_line(few, scale, few_heights)

    return {
        "1,000 draws of 40 groups": draws,
        "what noise does to 40 groups, three times": learn,
        "tree of 1e+06 groups": line,
        "packing 200 draws of 1,000 groups": packed,
        "mixture of 1,000 groups, 100 rounds": mixture,
        "    one call for 40 groups": call,
    }


if __name__ == "__main__":
    board = Board()
    main(board)
    if board.missed:
        sys.exit(f"{len(board.missed)} limits missed")
