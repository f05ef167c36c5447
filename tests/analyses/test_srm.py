"""`fl.srm` and `faultlines srm`: where a sample ratio mismatch comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import faultlines as fl

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Warm

SHARES = {"A": 0.5, "B": 0.3, "C": 0.2}


def visits(lost: bool, size: int = 60_000) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    data = pd.DataFrame(
        {
            "country": rng.choice([f"c{i}" for i in range(10)], size),
            "browser": rng.choice(["Chrome", "Safari"], size),
            "arm": rng.choice(["A", "B", "C"], size, p=[0.5, 0.3, 0.2]),
            "user": np.arange(size),
        }
    )
    return data[~((data.country == "c3") & (data.arm == "B") & (data.user % 4 == 0))] if lost else data


@pytest.mark.parametrize("shares", [None, SHARES])
def test_arms_as_they_should_be_are_no_mismatch(shares: Any) -> None:
    data = visits(lost=False)
    result = fl.srm(data, ["country", "browser"], variant="arm", shares=shares)
    assert result.verdict == "no mismatch"
    assert result.clusterings == ()
    assert [(row.arm, row.n) for row in result.arms] == [(arm, (data.arm == arm).sum()) for arm in "ABC"]
    assert ("expected shares" in [note.code for note in result.notes]) == (shares is None)


def test_the_country_that_lost_an_arm_is_a_cluster_of_its_own_in_the_share_of_that_arm() -> None:
    data = visits(lost=True)
    result = fl.srm(data, ["country", "browser"], variant="arm", shares=SHARES, seed=1)
    assert result.verdict == "mismatch"
    assert result.where == {"country": "c3"}
    by_arm = {c.groups.metric: c for c in result.clusterings}
    assert set(by_arm) == {"share of A", "share of B", "share of C"}
    of_b = by_arm["share of B"]
    assert of_b.attributes == ("country",)
    assert {label[0] for label in of_b.clusters[0].members} == {"c3"}  # type: ignore[index]


def test_a_mismatch_that_is_the_same_everywhere_has_no_clusters() -> None:
    data = visits(lost=False)
    result = fl.srm(data, "country", variant="arm", shares={"A": 48, "B": 32, "C": 20})
    assert result.verdict == "mismatch"
    assert result.where == {}
    counts = [row.n for row in result.arms]
    expected = stats.chisquare(counts, np.array([0.48, 0.32, 0.2]) * len(data)).pvalue
    assert result.pvalue == pytest.approx(2 * expected, rel=1e-9)
    assert not any(c.rejected for c in result.clusterings)
    assert "no clusters" in [note.code for note in result.notes]


def test_units_are_counted_and_must_be_in_one_arm() -> None:
    data = visits(lost=False, size=3000)
    twice = pd.concat([data, data[data.arm == "B"]])
    result = fl.srm(twice, "country", variant="arm", shares=SHARES, unit="user")
    assert sum(row.n for row in result.arms) == len(data)
    both = pd.concat([data, data[:5].assign(arm="C")])
    with pytest.raises(fl.InputError) as refused:
        fl.srm(both, "country", variant="arm", unit="user")
    assert refused.value.parameter == "unit"


def test_variants_without_a_planned_share_are_dropped_and_counted() -> None:
    data = visits(lost=False, size=6000)
    result = fl.srm(data, "country", variant="arm", shares={"A": 5, "B": 3})
    assert dict(result.dropped) == {"other variants": (data.arm == "C").sum()}
    assert [row.expected for row in result.arms] == [0.625, 0.375]


def test_numbers_as_variants() -> None:
    data = visits(lost=False, size=4000)
    data = data.assign(arm=(data.arm != "A").astype(int))
    result = fl.srm(data, "country", variant="arm", shares={0: 0.5, 1: 0.5})
    assert result.verdict == "no mismatch"
    assert [row.arm for row in result.arms] == ["0", "1"]


def test_the_gate_of_the_command_line(warm: Warm, tmp_path: Path) -> None:
    visits(lost=True).to_csv(tmp_path / "lost.csv", index=False)
    visits(lost=False, size=20_000).to_csv(tmp_path / "fine.csv", index=False)
    visits(lost=False, size=6).to_csv(tmp_path / "few.csv", index=False)
    words = ["--by", "country", "--by", "browser", "--variant", "arm", "--shares", "A=50,B=30,C=20"]
    for name, code in (("lost", 1), ("fine", 0), ("few", 3)):
        ended = warm("srm", f"{name}.csv", *words, "--fail-on-mismatch", "--json", f"{name}.json", cwd=tmp_path)
        assert ended.returncode == code, ended.stderr
    plain = json.loads((tmp_path / "lost.json").read_text(encoding="utf-8"))
    assert plain["worst"]["where"] == {"country": "c3"}
    assert plain["verdict"] == "mismatch"
    refused = warm("srm", "fine.csv", "--by", "country", "--variant", "arm", "--shares", "A:50", cwd=tmp_path)
    assert refused.returncode == 2
    assert len(refused.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("kept", [1.0, 0.9])
def test_without_groups_all_units_are_tested_against_the_plan(kept: float) -> None:
    data = visits(lost=False)
    data = data[(data.arm != "C") | (np.random.default_rng(2).random(len(data)) < kept)]
    result = fl.srm(data, variant="arm", shares=SHARES)
    counts = data.arm.value_counts().sort_index().to_numpy()
    expected = counts.sum() * np.array(list(SHARES.values()))
    assert result.pvalue == pytest.approx(float(stats.chisquare(counts, expected).pvalue))  # no share for margins
    assert result.verdict == ("no mismatch" if kept == 1 else "mismatch")
    assert (result.where, result.clusterings, [arm.n for arm in result.arms]) == ({}, (), counts.tolist())
    assert [note.code for note in result.notes if note.code != "next"] == []
    assert fl.srm(data, variant="arm", shares=SHARES, unit="user").pvalue == result.pvalue


def test_without_groups_units_are_in_one_arm_and_counted_once() -> None:
    data = visits(lost=False, size=2000)
    twice = pd.concat([data, data.assign(country="elsewhere")])  # in two groups, which is no matter here
    assert fl.srm(twice, variant="arm", shares=SHARES, unit="user").arms[0].n == (data.arm == "A").sum()
    with pytest.raises(fl.InputError) as refused:
        fl.srm(pd.concat([data, data.assign(arm="A")]), variant="arm", shares=SHARES, unit="user")
    assert (refused.value.code, refused.value.parameter) == ("invalid data", "unit")


@pytest.mark.parametrize(
    ("options", "code", "refused"),
    [
        ("--shares A=50,B=30,C=20 --fail-on-mismatch --report page.html", 0, ""),
        ("--shares A=1,B=1,C=1 --fail-on-mismatch", 1, ""),
        ("", 2, "missing: shares"),
        ("--shares A=1,B=1,C=1 --min-size 5", 2, "conflict: min_size"),
    ],
)
def test_the_command_without_groups(warm: Warm, tmp_path: Path, options: str, code: int, refused: str) -> None:
    visits(lost=False).to_parquet(tmp_path / "visits.parquet")
    words = ("srm", "visits.parquet", "--variant", "arm", *options.split(), "--json", "srm.json")
    done = warm(*words, cwd=tmp_path)
    assert (done.returncode, done.refused) == (code, refused)
    if not refused:
        written = json.loads((tmp_path / "srm.json").read_text(encoding="utf-8"))
        assert (written["verdict"], written["clusterings"]) == (["no mismatch", "mismatch"][code], [])


def test_no_groups_and_no_plan_are_refused() -> None:
    with pytest.raises(fl.InputError) as refused:
        fl.srm(visits(lost=False), variant="arm")
    assert (refused.value.code, refused.value.parameter) == ("missing", "shares")
