"""The order of the tests: files that take long first, those with Spark before all, so that no core waits at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

HERE = Path(__file__).parent
# Spark, wheel, site and browser, then what takes long by itself.
FIRST = [
    "rows",
    "test_wheel.py",
    "test_site.py",
    "render",
    "test_docs.py",
    "test_abuse.py",
    "cli",
    "guarantees",
    "test_paper.py",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.path))


def place(path: Path) -> int:
    """Where a file of tests stands."""
    name = path.relative_to(HERE).parts[0] if HERE in path.parents else ""
    return FIRST.index(name) if name in FIRST else len(FIRST)
