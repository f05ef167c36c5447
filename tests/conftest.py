"""The order of the tests: those with Spark first, then the wheel, so that other cores have work meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROWS, WHEEL = (Path(__file__).parent / name for name in ("rows", "test_wheel.py"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (ROWS not in item.path.parents, item.path != WHEEL))
