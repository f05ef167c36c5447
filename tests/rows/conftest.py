"""Spark for the tests of rows."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def sparks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Real Spark, in one process and as a cluster of two executor processes; skipped without Java, never in CI."""
    if shutil.which("java") is None:
        if os.environ.get("CI"):
            pytest.fail("CI needs Java for the Spark tests")
        yield {}
        return
    yield {"folder": tmp_path_factory.mktemp("spark")}
