"""The page of a monitor: looks, what they needed, and nothing from outside."""

from __future__ import annotations

import re

import numpy as np
import pytest

import faultlines as fl
from faultlines.render.monitor import monitor_page


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
