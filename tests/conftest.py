"""The order of the tests: those with Spark first, so that the other cores have work as long as it takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROWS = Path(__file__).parent / "rows"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ROWS not in item.path.parents)
