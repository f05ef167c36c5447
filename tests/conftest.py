"""The order of the tests, long files first so that no core waits at the end; and what runs commands for all of them."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.running import Ended, Forks, Warm, run_here

if TYPE_CHECKING:
    from collections.abc import Iterator

# Tests start some two hundred processes, which need not compile what the first has: 0.15 s each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

HERE = Path(__file__).parent
# What takes a core more than six seconds, longest first; Spark and the browsers wait as well.
FIRST = [
    "render/test_page.py",
    "test_wheel.py",
    "test_site.py",
    "cli/test_exits.py",
    "test_docs.py",
    "test_abuse.py",
    "rows/test_measure.py",
    "analyses/test_audit.py",
    "cli/test_commands.py",
    "rows/test_roles.py",
    "cli/test_outputs.py",
    "rows/test_engines.py",
    "metrics/test_metrics.py",
    "rows/test_several.py",
    "metrics/test_known_laws.py",
    "metrics/test_readout.py",
    "test_hostile.py",
    "engines/test_files.py",
    "rows/test_units.py",
    "analyses/test_many.py",
    "render/test_chart.py",
    "render/test_membership.py",
    "analyses/test_self_check.py",
    "analyses/test_power.py",
    "test_paper.py",
]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where no study runs, none is imported."""
    return True if collection_path == HERE / "statistical" and config.option.markexpr == "not statistical" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (not needs_spark(item.nodeid), place(item.path)))


def pytest_collection_finish() -> None:
    """What has been imported stays: to look for garbage in it again and again takes a twentieth of all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_unconfigure() -> None:
    gc.unfreeze()


def place(path: Path) -> int:
    """Where a file of tests stands."""
    name = path.relative_to(HERE).as_posix() if HERE in path.parents else ""
    return FIRST.index(name) if name in FIRST else len(FIRST)


def needs_spark(nodeid: str) -> bool:
    """Whether a test runs on Spark, by its parameter."""
    return "[spark" in nodeid or "-spark" in nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file at a time, but all tests on Spark together: it starts in one process alone."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class SparkTogether(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if needs_spark(nodeid) else str(super()._split_scope(nodeid))

    return SparkTogether(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    """Runs commands in this process, where everything is imported; in a folder of their own unless another is given."""
    folder = tmp_path_factory.mktemp("warm")

    def run(*arguments: str | Path, cwd: Path | None = None) -> Ended:
        return run_here(*arguments, cwd=cwd or folder)

    return run


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Runs scripts that change modules or streams in forks of one process."""
    server = Forks(tmp_path_factory.mktemp("forks"))
    yield server
    server.close()
