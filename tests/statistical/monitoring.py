"""What the studies of `fl.Monitor` measured, kept in docs/monitoring.json, and the tables of docs/monitoring.md.

`FAULTLINES_KEEP=1 pytest -m statistical tests/statistical/test_monitor.py` measures and keeps; `python -m
tests.statistical.monitoring` fills the page from what is kept.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from experiments.common import filled, markdown, rounded

FILE = Path(__file__).parents[2] / "docs" / "monitoring.json"
PAGE = FILE.with_suffix(".md")


def keep(study: str, cell: str, **numbers: Any) -> None:
    """Tell what one cell of a study measured; write it down where that was asked for."""
    print(f"{study}, {cell}: {numbers}")
    if os.environ.get("FAULTLINES_KEEP"):
        kept = read() if FILE.exists() else {}
        kept.setdefault(study, {})[cell] = rounded(numbers)
        parts = [
            f"{json.dumps(name)}: {{\n" + ",\n".join(f"{json.dumps(c)}: {json.dumps(n)}" for c, n in cells.items()) + "\n}"
            for name, cells in sorted(kept.items())
        ]
        FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def read() -> dict[str, dict[str, Any]]:
    """Numbers by study and cell."""
    kept: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return kept
