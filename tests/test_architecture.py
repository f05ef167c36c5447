"""The rules of the architecture that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import faultlines as fl
from faultlines import simulate, text

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "faultlines"
# The line data walks, from left to right: a folder or file may import only what stands to its left.
LINE = [
    *"text errors checks progress files sources estimates rows metrics comparison tree guarantees".split(),
    *"result decide show clustering many auditing evaluation shuffling simulate cli".split(),
]
# Inside a folder, files may import each other as long as there is no circle.
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def place(path: Path) -> str:
    """The folder or file of the line that a module belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Modules of ours that a file imports: anywhere in it, in functions and for type checking too."""
    return imports_of(ast.parse(path.read_text(encoding="utf-8")))


def imports_of(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "faultlines":
            below = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if is_module(name) else node.module for name in below}
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.split(".")[0] == "faultlines"}
    return names - {"faultlines"}


def is_module(name: str) -> bool:
    path = ROOT / "src" / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists() or path.with_suffix(".pyx").exists()


def test_every_folder_has_its_place() -> None:
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found - {"__init__"} == set(LINE)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_to_the_left(path: Path) -> None:
    own = place(path)
    known = {*LINE[: LINE.index(own)], own}
    assert {name for name in imported(path) if name.split(".")[1] not in known} == set()


def test_no_circles_inside_a_folder() -> None:
    graph = {
        ".".join(["faultlines", *path.relative_to(SOURCE).with_suffix("").parts]): imported(path) for path in MODULES
    }
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " → ".join([*above, name])
        if name in done or name not in graph:
            return
        for other in graph[name] - {name}:
            visit(other, (*above, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def run_imports(path: Path) -> set[str]:
    """The same without what is imported for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    return imports_of(tree)


def test_tests_mirror_the_folders() -> None:
    tested = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert tested - {"statistical"} == folders


def test_only_sources_and_rows_know_engines() -> None:
    for path in MODULES:
        if place(path) not in {"sources", "rows"}:
            assert not re.search(r"^\s*(import|from) (narwhals|duckdb)\b", path.read_text(encoding="utf-8"), re.M), path


def test_functions_are_short_and_files_hold_one_idea() -> None:
    """Sixty lines without the documentation; six hundred in a file."""
    for path in MODULES:
        source = path.read_text(encoding="utf-8")
        assert source.count("\n") <= 600, path
        for node in ast.walk(ast.parse(source)):
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
            found = re.search(named, (ROOT / name).read_text(encoding="utf-8", errors="replace"))
            assert found is None, (name, found)


def test_p_values_are_shown_with_two_digits_and_never_as_zero() -> None:
    import math

    for p, shown in ((1.0, "1"), (0.9999, "1"), (0.996, "0.99"), (0.312, "0.31"), (0.05, "0.05"), (0.00012, "0.00012")):
        assert text.pvalue(math.log(p)) == shown
    for log10, shown in (
        (-4.5, "3.2e-5"),
        (-10_000.0, "< 1e-10"),
        (-10.01, "< 1e-10"),
        (-7 + math.log10(9.99), "1e-6"),
    ):
        assert text.pvalue(log10 * math.log(10)) == shown


def test_bars_share_a_scale() -> None:
    assert text.bar(0, 5, 10, (0, 10)) == "├" + "─" * 9 + "●" + "─" * 8 + "┤"
    assert text.bar(-10, -9, -8, (-10, 10)).startswith("├●┤")
    assert text.bar(-10, -9, -8, (-10, 10))[10] == "┊"
    assert text.bar(3, 3, 3, (3, 3)).strip() == "●"
    assert len({len(text.bar(i, i + 1, i + 2, (0, 30))) for i in range(28)}) == 1


def test_member_lists_are_shortened_and_counted() -> None:
    assert text.members(["a", "b"], str, 30) == "a, b"
    assert text.members([f"g{i}" for i in range(100)], str, 20) == "g0, g1, g2, … +97"
    assert text.members(["x" * 50], str, 10) == "x" * 9 + "…"


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
    with pytest.raises(fl.InputError, match="profile='flat'"):
        simulate.null(5, profile="flat")  # type: ignore[arg-type]
