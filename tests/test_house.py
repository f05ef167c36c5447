"""The house rules that a machine can hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import faultlines as fl
from faultlines import simulate, text

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "faultlines"
# From left to right as data walks; a room may only know rooms to its left.
ROOMS = [
    *"errors progress text frames estimates tails metrics groups aggregate".split(),
    *"_walk similarity hierarchy calibration guarantees clustering".split(),
    *"invariance sequential many planning simulate cli".split(),
]


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "faultlines":
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return names


def test_every_room_has_its_place() -> None:
    assert {path.stem for path in SOURCE.glob("*.py*")} - {"__init__"} - {"py"} == set(ROOMS)


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "_walk"])
def test_imports_point_to_the_left(room: str) -> None:
    assert imported(SOURCE / f"{room}.py") <= set(ROOMS[: ROOMS.index(room)])


def test_only_the_reading_room_knows_engines() -> None:
    for path in SOURCE.glob("*.py"):
        if path.stem not in {"frames", "groups", "aggregate"}:
            assert not re.search(r"^\s*(import|from) (narwhals|duckdb)\b", path.read_text(encoding="utf-8"), re.M)


def test_public_names_exist_and_importing_is_light() -> None:
    assert {name for name in fl.__all__ if not hasattr(fl, name)} == set()
    assert set(fl.__all__) <= set(dir(fl))
    # A room of the same name as something in it would hide it once it is opened.
    assert not set(fl.__all__) & {path.stem for path in SOURCE.glob("*.py")}
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
            # Figures name the two namespaces without which they would not be SVG.
            found = re.search(
                r"(?<![\w.])/(work|root|home|farm)/\w+|https?://(?!www\.w3\.org/(?:2000/svg|1999/xlink)\")",
                (ROOT / name).read_text(encoding="utf-8"),
            )
            assert found is None, (name, found)


def test_p_values_are_shown_with_two_digits_and_never_as_zero() -> None:
    import math

    for p, shown in ((1.0, "1"), (0.9999, "1"), (0.996, "0.99"), (0.312, "0.31"), (0.05, "0.05"), (0.00012, "0.00012")):
        assert text.pvalue(math.log(p)) == shown
    for log10, shown in ((-4.5, "3.2e-5"), (-10_000.0, "1e-10000"), (-7 + math.log10(9.99), "1e-6")):
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
