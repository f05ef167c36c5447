"""The order of the tests, long files first so that no core waits at the end; and what runs commands for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.running import Warm, warm_commands

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where no study runs, none is imported."""
    return True if collection_path == HERE / "statistical" and config.option.markexpr == "not statistical" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place(item.path))


def place(path: Path) -> int:
    """Where a file of tests stands."""
    name = path.relative_to(HERE).parts[0] if HERE in path.parents else ""
    return FIRST.index(name) if name in FIRST else len(FIRST)


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Runs commands in forks of one process that has imported everything."""
    with warm_commands(tmp_path_factory.mktemp("warm")) as run_warm:
        yield run_warm
