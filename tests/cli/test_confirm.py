"""`faultlines confirm`: measured as before or as said, and the gate: 0 confirmed, 1 not confirmed, 3 cannot tell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from faultlines import simulate
from tests.cli.running import BY, Warm, is_one_line, without_next

if TYPE_CHECKING:
    from pathlib import Path

LIFT = ("--by", "country", "--metric", "lift:revenue", "--variant", "arm", "--control", "A")
MODEL = ("--by", "country", "--y-true", "label", "--positive", "yes", "--y-pred", "pred")
GATE = "--fail-unless-confirmed"


def estimates_of(path: Path, seed: int, spread: float = 1.0, shuffled: bool = False) -> Path:
    """Another onboarding experiment, with standard errors `spread` times as large."""
    estimates = simulate.onboarding(seed).estimates
    rng = np.random.default_rng(seed)
    theta = estimates.theta + rng.standard_normal(len(estimates)) * estimates.se * np.sqrt(spread**2 - 1)
    if shuffled:
        theta = 0.02 + rng.standard_normal(len(estimates)) * estimates.se
    frame = pd.DataFrame(
        {"country": estimates.labels, "lift": theta, "sd": spread * estimates.se, "users": estimates.n}
    )
    frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("spread", "shuffled", "code", "verdict"),
    [(1.0, False, 0, "confirmed"), (1.0, True, 1, "not confirmed"), (30.0, False, 3, "inconclusive")],
)
def test_the_gate(warm: Warm, table: Path, spread: float, shuffled: bool, code: int, verdict: str) -> None:
    here = table.parent
    assert warm("estimates", table, *BY, "--json", "c.json", cwd=here).returncode == 0
    estimates_of(here / "fresh.csv", 5, spread, shuffled)
    asked = ("confirm", "c.json", "fresh.csv", "--by", "country", "--estimate", "lift", "--se", "sd", "--n", "users")
    done = warm(*asked, GATE, "--json", "out.json", cwd=here)
    assert done.returncode == code, done.stderr
    assert is_one_line(done.stderr) if code == 3 else done.stderr == ""
    written = json.loads((here / "out.json").read_text(encoding="utf-8"))
    assert written["verdict"] == verdict
    assert done.stdout.startswith(written["headline"])
    without = warm(*asked, cwd=here)
    assert (without.returncode, without.stderr) == (0, "")
    assert without_next(without.stdout) == without_next(done.stdout)
    piped = warm(*asked, "--json", "-", cwd=here)
    assert json.loads(piped.stdout) == written


@pytest.mark.parametrize(("lost", "code"), [("label", 3), ("country", 3), ("", 0)])
def test_missing_values_may_be_what_confirms(warm: Warm, tmp_path: Path, lost: str, code: int) -> None:
    """B is called back as often as the others, and half of those who were are lost."""
    rng = np.random.default_rng(0)
    size = 6000
    old = pd.DataFrame({"country": rng.choice(list("ABC"), size)})
    old["label"] = (rng.random(size) < np.where(old.country == "B", 0.3, 0.5)).astype(float)
    old.to_csv(tmp_path / "old.csv", index=False)
    words = "--by country --metric selection_rate --y-pred label --json c.json".split()
    assert warm("model", "old.csv", *words, cwd=tmp_path).returncode == 0
    new = old.assign(label=(rng.random(size) < 0.5).astype(float)) if lost else old
    if lost:
        new.loc[(new.country == "B") & (new.label == 1) & (rng.random(size) < 0.5), lost] = np.nan
    new.to_csv(tmp_path / "new.csv", index=False)
    done = warm("confirm", "c.json", "new.csv", GATE, cwd=tmp_path)
    assert (done.returncode, done.stdout.startswith("Confirmed: ")) == (code, True), done.stderr
    assert is_one_line(done.stderr) if code == 3 else done.stderr == ""
    assert warm("confirm", "c.json", "new.csv", GATE, "--missing", "ignore", cwd=tmp_path).returncode == 0


def test_fresh_rows_are_measured_as_before(warm: Warm, shop: Path) -> None:
    here = shop.parent
    assert warm("experiment", shop, *LIFT, "--unit", "user_id", "--json", "c.json", cwd=here).returncode == 0
    before = warm("confirm", "c.json", "shop.csv", GATE, cwd=here)
    assert (before.returncode, before.stderr) == (0, "")
    assert before.stdout.startswith("Confirmed: the 2 clusters ")
    said = warm("confirm", "c.json", "sho?.csv", *LIFT, "--unit", "user_id", cwd=here)
    assert without_next(said.stdout) == without_next(before.stdout)


def test_one_of_several_metrics(warm: Warm, shop: Path) -> None:
    here = shop.parent
    metrics = ("--metric", "true_positive_rate", "--metric", "accuracy")
    assert warm("model", shop, *MODEL, *metrics, "--json", "c.json", cwd=here).returncode == 0
    done = warm("confirm", "c.json", "shop.csv", "--metric", "accuracy", cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    assert "accuracy" in done.stdout
    full = warm("confirm", "c.json", "shop.csv", *MODEL, "--metric", "accuracy", cwd=here)
    assert without_next(full.stdout) == without_next(done.stdout)
    several = warm("confirm", "c.json", "shop.csv", cwd=here)
    assert several.returncode == 2
    assert several.refused == "not found: clusters"


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("none.json", "lifts.csv"), "unreadable file: clusters"),
        (("lifts.csv", "lifts.csv"), "unreadable file: clusters"),
        (("half.json", "lifts.csv"), "unreadable file: clusters"),
        (("other.json", "lifts.csv"), "unreadable file: clusters"),
        (("one.json", "lifts.csv"), "too few: clusters"),
        (("c.json", "none.csv", *BY), "file not found: file"),
        (("c.json", "lifts.csv"), "missing: metric"),
        (("c.json", "lifts.csv", "--by", "country", "--estimate", "lift"), "missing: estimate, se"),
        (("c.json", "lifts.csv", "--estimate", "lift", "--se", "sd"), "missing: estimate, se"),
        (("c.json", "lifts.csv", "--by", "country", "--n", "users"), "conflict: n, dof"),
        (("c.json", "lifts.csv", "--variant", "arm"), "conflict: variant"),
        (("c.json", "lifts.csv", "--metric", "lift:x", "--y-true", "arm"), "conflict: y_true"),
        (("c.json", "lifts.csv", "--metric", "lift:x", "--variant", "arm"), "missing: metric"),
        (("c.json", "lifts.csv", "--metric", "clicks"), "not found: clusters"),
        (("c.json", "-"), "unsupported: files"),
        (("c.json", "lifts.csv", "--alpha", "2"), "out of range: alpha"),
        (("c.json", "lifts.csv", "--json", "c.json"), "conflict: json"),
        (("c.json",), "missing: files"),
        (("c.json", "unknown.csv", *BY), "no groups: data"),
    ],
)
def test_what_cannot_be_confirmed(warm: Warm, table: Path, words: tuple[str, ...], refused: str) -> None:
    here = table.parent
    assert warm("estimates", table, *BY, "--json", "c.json", cwd=here).returncode == 0
    saved = (here / "c.json").read_text(encoding="utf-8")
    (here / "half.json").write_text(saved[: len(saved) // 2], encoding="utf-8")
    (here / "other.json").write_text('{"name": "left-pad"}', encoding="utf-8")
    alike = table.read_text(encoding="utf-8").splitlines()[:2]
    (here / "alone.csv").write_text("\n".join(alike), encoding="utf-8")
    assert warm("estimates", "alone.csv", *BY, "--json", "one.json", cwd=here).returncode == 0
    (here / "unknown.csv").write_text("country,lift,sd\nXX,1,1\nYY,2,1\n", encoding="utf-8")
    done = warm("confirm", *words, cwd=here)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.refused == refused
    assert is_one_line(done.stderr)


def test_no_common_group_cannot_tell(warm: Warm, table: Path) -> None:
    here = table.parent
    assert warm("estimates", table, *BY, "--json", "c.json", cwd=here).returncode == 0
    (here / "unknown.csv").write_text("country,lift,sd\nXX,1,1\nYY,2,1\n", encoding="utf-8")
    done = warm("confirm", "c.json", "unknown.csv", *BY, GATE, cwd=here)
    assert done.returncode == 3
    assert done.stderr.startswith("faultlines: inconclusive: ")


def test_nothing_is_confirmed_beside_a_sample_ratio_mismatch(warm: Warm, tmp_path: Path) -> None:
    """A third of one arm is lost in one group of the new rows: exit 3, unless that is known to be harmless."""
    rng = np.random.default_rng(1)
    size = 12_000
    rows = pd.DataFrame({"country": rng.choice(["DE", "FR", "IN"], size), "arm": rng.choice(["A", "B"], size)})
    rows["x"] = rng.normal(1.0, 1.0, size) + 0.5 * ((rows.country == "IN") & (rows.arm == "B"))
    rows[: size // 2].to_csv(tmp_path / "old.csv", index=False)
    fresh = rows[size // 2 :]
    fresh[~((fresh.country == "DE") & (fresh.arm == "B") & (rng.random(len(fresh)) < 0.35))].to_csv(
        tmp_path / "new.csv", index=False
    )
    asked = ("--by", "country", "--metric", "difference:x", "--variant", "arm", "--control", "A")
    assert warm("experiment", "old.csv", *asked, "--json", "c.json", cwd=tmp_path).returncode == 0
    done = warm("confirm", "c.json", "new.csv", GATE, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert is_one_line(done.stderr)
    assert warm("confirm", "c.json", "new.csv", GATE, "--mismatch", "ignore", cwd=tmp_path).returncode == 0
    assert warm("confirm", "c.json", "new.csv", cwd=tmp_path).returncode == 0
    assert warm("confirm", "c.json", "new.csv", GATE, "--mismatch", "nope", cwd=tmp_path).returncode == 2
