"""The rules of the architecture that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import faultlines as fl
from faultlines import formats, simulate
from tests.refused import refused

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "faultlines"
# The line data walks, from left to right: a folder or file may import only what stands to its left.
LINE = [
    *"types formats errors checks progress files engines estimates rows metrics core guarantees".split(),
    *"results render analyses integrations simulate cli __main__".split(),
]
# The one exception: a result has methods that lead to its outputs and to what can be done with it. They import modules
# when they are called, never when their module is imported.
DOORS = {"results": {"render", "analyses"}}
# Functions that import, when they are called, what is built on their module: a chart.
LAZY = {"faultlines.render.text": {"faultlines.render.vega"}}
# Modules below 60 lines of code with a single importer, which usually belong to it, and why these do not.
SMALL = {
    "faultlines.engines.spark": "an engine",
}
MOST_MODULES = 120  # without `__init__` and `__main__`; a ratchet: it may fall, and the aim is 115
# Inside a folder, files may import each other as long as there is no circle.
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a module, which is not to be changed."""
    return ast.parse(path.read_text(encoding="utf-8"))


def place(path: Path) -> str:
    """The folder or file of the line that a module belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def imported(path: Path, *, types: bool = True, functions: bool = True) -> frozenset[str]:
    """Modules of ours that a file imports, those for type checking and those inside functions too."""

    def visit(node: ast.AST) -> Iterator[str]:
        is_for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if (is_for_types and not types) or (isinstance(node, ast.FunctionDef) and not functions):
            return
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "faultlines":
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from (name if is_module(name) else node.module for name in below)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "faultlines")
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    return frozenset(visit(parse(path))) - {"faultlines"}


@cache
def is_module(name: str) -> bool:
    path = ROOT / "src" / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists() or path.with_suffix(".pyx").exists()


def test_every_folder_has_its_place() -> None:
    modules = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert modules - {"__init__"} == set(LINE)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_to_the_left(path: Path) -> None:
    own = place(path)
    left = {*LINE[: LINE.index(own)], own}
    assert {name for name in imported(path, types=False, functions=False) if name.split(".")[1] not in left} == set()
    left |= DOORS.get(own, set())
    assert {name for name in imported(path) if name.split(".")[1] not in left} == set()


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(["faultlines", *(parts[:-1] if parts[-1] == "__init__" else parts)])


def test_no_circles() -> None:
    """Of all imports but those for types, and doors."""
    graph = {}
    for path in MODULES:
        name, doors = module_name(path), DOORS.get(place(path), set())
        others = imported(path, types=False) - LAZY.get(name, set())
        graph[name] = {other for other in others if other.split(".")[1] not in doors}
    assert find_circle(graph) is None


def find_circle(graph: dict[str, set[str]]) -> str | None:
    """The first circle of imports, as words."""
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> str | None:
        if name in above:
            return " → ".join([*above, name])
        if name not in done:
            for other in sorted(graph.get(name, set()) - {name}):
                if circle := visit(other, (*above, name)):
                    return circle
            done.add(name)
        return None

    return next((circle for name in graph if (circle := visit(name, ()))), None)


def test_no_class_name_is_defined_twice() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(module_name(path))
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_tests_mirror_the_folders() -> None:
    tested = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert tested - {"statistical", "golden", "fuzz"} == folders


def test_only_engines_and_rows_know_engines() -> None:
    for path in MODULES:
        if place(path) not in {"engines", "rows"}:
            assert not re.search(r"^\s*(import|from) (narwhals|duckdb)\b", path.read_text(encoding="utf-8"), re.M), path


def test_nothing_outside_engines_asks_which_engine_it_has() -> None:
    asked = re.compile(r"\bis_(duckdb|ibis|narwhals|pandas|polars|pyarrow|pyspark|spark)\w*\(")
    for path in MODULES:
        if place(path) != "engines":
            assert asked.search(path.read_text(encoding="utf-8")) is None, path


def test_modules_are_few_and_none_is_a_fragment() -> None:
    importers: dict[str, set[str]] = {}
    for path in MODULES:
        for name in imported(path):
            importers.setdefault(name, set()).add(module_name(path))
    ours = [path for path in MODULES if path.name not in {"__init__.py", "__main__.py"}]
    small = [module_name(path) for path in ours if code_lines(path) < 60]
    assert {name for name in small if len(importers.get(name, ())) == 1} <= SMALL.keys()
    assert len(ours) <= MOST_MODULES


@cache
def code_lines(path: Path) -> int:
    """Lines that are neither blank nor comment nor documentation."""
    documented: set[int] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    return sum(1 for i, line in lines if line.strip() and not line.strip().startswith("#") and i not in documented)


def test_functions_are_short_and_files_hold_one_idea() -> None:
    """Sixty lines without the documentation in a function; eight hundred lines of code in a file."""
    for path in MODULES:
        assert code_lines(path) <= 800, path
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef):
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
                assert (node.end_lineno or 0) - first.lineno < 60, (path, node.name)


def test_public_names_exist_and_importing_is_light() -> None:
    assert {name for name in fl.__all__ if not hasattr(fl, name)} == set()
    assert set(fl.__all__) <= set(dir(fl))
    # A module of the same name as something public would hide it once it is imported.
    assert set(fl.__all__) & {path.stem for path in SOURCE.iterdir()} == {"simulate"}
    assert fl.__version__ == version("faultlines")
    with pytest.raises(AttributeError, match="no attribute 'clusters'"):
        _ = fl.clusters
    probe = "import sys, faultlines; print('numpy' in sys.modules, 'scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"


def test_no_machine_paths_and_no_hosts_in_the_repo() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split(
        "\n"
    )
    if not any(tracked):
        pytest.skip("not a git checkout")
    for name in filter(None, tracked):
        if (ROOT / name).exists() and name != "LICENSE":
            # Pictures name the standard they are written in; a page to open offline names nothing else.
            named = r"(?<![\w.])/(work|root|home|farm)/\w+|https?://(?!www\.w3\.org/(2000/svg|1999/xlink)\b)"
            match = re.search(named, (ROOT / name).read_text(encoding="utf-8", errors="replace"))
            assert match is None, (name, match)


def test_p_values_are_shown_with_two_digits_and_never_as_zero() -> None:
    import math

    for p, shown in ((1.0, "1"), (0.9999, "1"), (0.996, "0.99"), (0.312, "0.31"), (0.05, "0.05"), (0.00012, "0.00012")):
        assert formats.pvalue(math.log(p)) == shown
    for log10, shown in (
        (-4.5, "3.2e-5"),
        (-10_000.0, "< 1e-10"),
        (-10.01, "< 1e-10"),
        (-7 + math.log10(9.99), "1e-6"),
    ):
        assert formats.pvalue(log10 * math.log(10)) == shown


def test_bars_share_a_scale() -> None:
    assert formats.bar(0, 5, 10, (0, 10)) == "├" + "─" * 9 + "●" + "─" * 8 + "┤"
    assert formats.bar(-10, -9, -8, (-10, 10)).startswith("├●┤")
    assert formats.bar(-10, -9, -8, (-10, 10))[10] == "┊"
    assert formats.bar(3, 3, 3, (3, 3)).strip() == "●"
    assert len({len(formats.bar(i, i + 1, i + 2, (0, 30))) for i in range(28)}) == 1


def test_member_lists_are_shortened_and_counted() -> None:
    assert formats.members(["a", "b"], str, 30) == "a, b"
    assert formats.members([f"g{i}" for i in range(100)], str, 20) == "g0, g1, g2, … +97"
    assert formats.members(["x" * 50], str, 10) == "x" * 9 + "…"


def test_simulations_are_seeded_and_as_described() -> None:
    first, again = simulate.asia_africa(0.3, seed=5), simulate.asia_africa(0.3, seed=5)
    assert first.estimates.theta.tolist() == again.estimates.theta.tolist()
    assert (first.truth == 1).sum() == 48
    assert (first.truth == 2).sum() == 54
    assert first.estimates.se.mean() == pytest.approx((0.2 / 100) ** 0.5, rel=0.02)
    assert first.estimates.theta[:48].mean() == pytest.approx(-0.3, abs=0.03)
    assert len(simulate.onboarding().truth) == 40
    backwards = simulate.planted([3, 0], [2, 3])
    assert backwards.truth.tolist() == [2, 2, 1, 1, 1]
    with refused("unknown: profile"):
        simulate.null(5, profile="flat")  # type: ignore[arg-type]
