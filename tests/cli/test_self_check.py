"""`--self-check`: the promise tried out on the rows of a command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import faultlines as fl
from faultlines.cli.gate import SelfChecks
from faultlines.cli.options import SelfCheckOptions
from tests.cli.running import without_next
from tests.refused import refused

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm

ROWS = "rows.csv --by country --variant arm --control A --draws 200".split()


def test_it_is_said_in_text_json_and_page(warm: Warm, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    columns = {
        "country": rng.integers(0, 8, 2000),
        "arm": rng.choice(["A", "B"], 2000),
        "bought": rng.integers(0, 2, 2000),
    }
    pd.DataFrame(columns).to_csv(tmp_path / "rows.csv", index=False)
    metrics = "--metric difference:bought --metric lift:bought".split()
    plain = warm("experiment", *ROWS, *metrics, cwd=tmp_path)
    assert "shuffles" not in plain.stdout
    asked = "--self-check 12 --json out.json --report out.html".split()
    done = warm("experiment", *ROWS, *metrics, *asked, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert without_next(done.stdout).startswith(without_next(plain.stdout))
    for metric in json.loads((tmp_path / "out.json").read_text())["metrics"]:
        said = metric["self_check"]["headline"]
        assert (metric["self_check"]["runs"], metric["self_check"]["shuffled"]) == (12, "arms")
        assert f"{metric['self_check']['metric']}: {said}" in done.stdout
        assert f"<dt>Self-check</dt><dd>{said}</dd>" in (tmp_path / "out.html").read_text()
    model = warm("model", *ROWS[:3], *"--metric selection_rate --y-pred bought --self-check 5".split(), cwd=tmp_path)
    assert "\n\nIn 5 shuffles " in model.stdout


def test_it_is_refused_before_anything_is_read(warm: Warm, tmp_path: Path) -> None:
    done = warm("experiment", *ROWS, "--metric", "lift:x", "--self-check-groups", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr == "faultlines: error: --self-check-groups needs --self-check. Add for example --self-check 200.\n"
    )
    with refused("out of range: self_check"):
        SelfChecks.of(SelfCheckOptions(self_check=0), [fl.rate("x")], fl.Calibrated())
    metric = fl.lift("x", variant="arm", control="A", unit="user")
    with refused("unsupported: guarantee"):
        SelfChecks.of(SelfCheckOptions(self_check=9), [metric], fl.Holdout())
