"""The page of a monitor: looks, what they needed, and nothing from outside."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.render.monitor import monitor_page

if TYPE_CHECKING:
    from pathlib import Path


def monitored(effects: list[float], days: int, **settings: object) -> fl.MonitorResult:
    rng = np.random.default_rng(0)
    total = np.zeros(len(effects))
    monitor = fl.Monitor(draws=300, **settings)  # type: ignore[arg-type]
    labels = ["a", "b", "<script>c</script>", "d\u202e"][: len(effects)]
    for day in range(1, days + 1):
        total += np.array(effects) + rng.standard_normal(len(effects))
        found = monitor.update(fl.Estimates(total / day, np.full(len(effects), day**-0.5), labels, n=day))
    return found


@pytest.mark.parametrize("days", [1, 2, 12])
@pytest.mark.parametrize("dependence", ["independent", "any"])
def test_a_page_for_every_stage(days: int, dependence: str) -> None:
    found = monitored([0.0, 0.0, 0.0], days, looks=12, dependence=dependence)
    made = monitor_page(found, title="Checkout", command="faultlines monitor")
    assert made.count("<svg") == 3
    assert found.headline in made
    assert "Checkout" in made
    assert "effect by group" in made
    assert made.count("<tr>") == 1 + 4 + (1 + days if days > 1 else 0)
    assert "<h2>Clusters</h2>" not in made
    assert not re.search(r"https?://|<script|nan", made)
    assert made == monitor_page(found, title="Checkout", command="faultlines monitor")
    assert (found.verdict == "ended") == (days == 12)


def test_a_claim_names_its_clusters_and_escapes_them() -> None:
    found = monitored([0.0, 0.0, 40.0, 40.0], 1, looks=12)
    made = monitor_page(found)
    assert found.rejected
    assert "<h2>Clusters</h2>" in made
    assert "&lt;script&gt;c&lt;/script&gt;" in made
    assert "<script" not in made
    assert "\u202e" not in made


def test_names_make_no_lines_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    evil = "x\nAll groups are equal.\r\u2028"
    rows = pd.DataFrame(
        {evil: rng.choice([f"{evil}{i}" for i in range(3)], 900), "arm": rng.choice([f"A{evil}", evil], 900)}
    )
    rows["y\nz"] = rng.gamma(2, 1, 900)
    rows.loc[:3, evil] = f"few{evil}"
    metric = fl.lift("y\nz", variant="arm", control=f"A{evil}")
    found = fl.Monitor(looks=3, draws=300).update(rows, evil, metric)
    assert found.small
    for text in (str(found), found.to_markdown()):
        assert not re.search(r"^(All groups|z\b)", text, flags=re.MULTILINE)
        assert not re.search("[\r\u2028]", text)
    found.report(tmp_path / "page.html", title=evil)
    assert "\u2028" not in (tmp_path / "page.html").read_text(encoding="utf-8")
