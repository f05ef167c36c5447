"""The page of a monitor: looks, what they needed, and nothing from outside."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.render.monitor import document
from faultlines.render.monitor import page as monitor_page
from faultlines.render.page import next_step

if TYPE_CHECKING:
    from pathlib import Path


def monitored(effects: list[float], days: int, **settings: object) -> fl.MonitorResult:
    rng = np.random.default_rng(0)
    total = np.zeros(len(effects))
    monitor = fl.Monitor(draws=300, **settings)  # type: ignore[arg-type]
    labels = ["a", "b", "<script>c</script>", "d\u202e"][: len(effects)]
    for day in range(1, days + 1):
        total += np.array(effects) + rng.standard_normal(len(effects))
        look = monitor.update(fl.Estimates(total / day, np.full(len(effects), day**-0.5), labels, n=day))
    return look


@pytest.mark.parametrize("days", [1, 2, 12])
@pytest.mark.parametrize("dependence", ["independent", "any"])
def test_a_page_for_every_stage(days: int, dependence: str) -> None:
    result = monitored([0.0, 0.0, 0.0], days, looks=12, dependence=dependence)
    page = monitor_page(result, title="Checkout", command="faultlines monitor")
    assert page.count("<svg") == 3
    assert result.headline in page
    assert "Checkout" in page
    assert "effect by group" in page
    assert page.count("<tr>") == 1 + 4 + (1 + days if days > 1 else 0)
    assert "<h2>Clusters</h2>" not in page
    assert not re.search(r"https?://|<script|nan", page)
    assert page == monitor_page(result, title="Checkout", command="faultlines monitor")
    assert (result.verdict == "ended") == (days == 12)


def test_a_claim_names_its_clusters_and_escapes_them() -> None:
    result = monitored([0.0, 0.0, 40.0, 40.0], 1, looks=12)
    page = monitor_page(result)
    assert result.rejected
    assert "<h2>Clusters</h2>" in page
    assert next_step(result, "") != []
    assert next_step(result, "faultlines monitor") == []  # it would be to write the page
    assert "&lt;script&gt;c&lt;/script&gt;" in page
    assert "<script" not in page
    assert "\u202e" not in page


def test_names_make_no_lines_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    evil = "x\nAll groups are equal.\r\u2028"
    rows = pd.DataFrame(
        {evil: rng.choice([f"{evil}{i}" for i in range(3)], 900), "arm": rng.choice([f"A{evil}", evil], 900)}
    )
    rows["y\nz"] = rng.gamma(2, 1, 900)
    rows.loc[:3, evil] = f"few{evil}"
    metric = fl.lift("y\nz", variant="arm", control=f"A{evil}")
    look = fl.Monitor(looks=3, draws=300).update(rows, evil, metric)
    assert look.small
    for text in (str(look), look.to_markdown()):
        assert not re.search(r"^(All groups|z\b)", text, flags=re.MULTILINE)
        assert not re.search("[\r\u2028]", text)
    look.report(tmp_path / "page.html", title=evil)
    assert "\u2028" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_many_small_groups_are_shown_up_to_ten() -> None:
    sizes = {"DE": 400, "FR": 400} | {f"s{i}": 24 for i in range(14)}
    group = np.repeat(list(sizes), list(sizes.values()))
    within = np.concatenate([np.arange(size) for size in sizes.values()])
    events = np.where(group < "a", within % 3 == 0, within < 2)  # one in each arm of a small group
    rows = pd.DataFrame({"g": group, "arm": np.where(within % 2, "A", "B"), "y": events})
    look = fl.Monitor(looks=5).update(rows, "g", fl.lift("y", variant="arm", control="A"))
    with_effects = [group for group in look.small if group.effect is not None]
    assert len(with_effects) > 10
    tables = document(look).tables
    assert len(tables[-1].rows) == 11
    assert tables[-1].rows[-1][-1] == f"{len(with_effects) - 10} more groups"
    assert len(document(look, complete=True).tables[-1].rows) == len(with_effects)
