"""`faultlines monitor`: a daily job that keeps its state, tells what it sees, and refuses the same day twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import faultlines as fl
from faultlines.render.monitor import describe_harm
from faultlines.render.text import to_text
from faultlines.results.monitor import find_harmed
from tests.cli.running import Done, Warm, is_one_line, without_next

LIFT = ("--metric", "lift:revenue", "--variant", "arm", "--control", "A", "--unit", "user_id")
TABLE = ("--by", "country", "--estimate", "lift", "--se", "sd", "--n", "users")


def days(shop: Path) -> list[Path]:
    """All rows until the end of each of four days."""
    frame = pd.read_parquet(shop)
    paths = []
    for day in range(1, 5):
        path = shop.parent / f"until-{day}.parquet"
        frame[: 200 * day].to_parquet(path)
        paths.append(path)
    return paths


def test_a_daily_job(warm: Warm, shop: Path) -> None:
    here = shop.parent

    def look(path: Path, *more: str) -> Done:
        return warm("monitor", "state.json", path, "--by", "country", *LIFT, *more, cwd=here)

    paths = days(shop)
    first = look(paths[0], "--looks", "4", "--draws", "500", "--spending", "obrien-fleming")
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith("Look 1 of 4: ")
    before = (here / "state.json").read_bytes()
    again = look(paths[0])
    assert (again.returncode, again.stdout) == (2, "")
    assert is_one_line(again.stderr)
    assert "were analyzed at look 1" in again.stderr
    assert (here / "state.json").read_bytes() == before
    late = look(paths[0], "--report", "late.html", "--json", "late.json")  # a page that was forgotten spends no look
    assert (late.returncode, late.stderr) == (0, "")
    assert (here / "state.json").read_bytes() == before
    forgotten = json.loads((here / "late.json").read_text(encoding="utf-8"))
    assert len(forgotten["looks"]) == 1
    assert forgotten["headline"] in (here / "late.html").read_text(encoding="utf-8")
    assert look(paths[0], "--report", "late.html", "--final").returncode == 2
    codes = []
    for path in paths[1:]:
        done = look(path, "--fail-on-split", "--report", "m.html", "--json", "m.json")
        codes.append(done.returncode)
        assert done.stderr == ""
    assert codes[-1] == 1
    assert codes == sorted(codes)
    written = json.loads((here / "m.json").read_text(encoding="utf-8"))
    assert written["verdict"] == "differ"
    assert written["clusters"] == [["ES", "FR", "IT"], ["DE"]]
    assert written["looks"][0]["number"] == 1
    assert written["headline"] in done.stdout
    assert written["metric"].startswith("lift of revenue")
    assert [cluster["lower"] < cluster["estimate"] < cluster["upper"] for cluster in written["cluster_effects"]] == [
        True
    ] * 2
    assert written["headline"] in (here / "m.html").read_text(encoding="utf-8")
    # Decided is decided: without new data nothing is written, and the gate stays shut.
    decided = (here / "state.json").read_bytes()
    late = look(paths[-1], "--fail-on-split")
    assert (late.returncode, late.stderr) == (1, "")
    assert (here / "state.json").read_bytes() == decided
    assert fl.Monitor.load(here / "state.json").result.rejected


def test_what_the_command_does_is_what_python_does(warm: Warm, shop: Path) -> None:
    here = shop.parent
    monitor = fl.Monitor(information=12_000, draws=500, alpha=0.01, seed=3, dependence="any")
    metric = fl.lift("before", variant="arm", control="A", unit="user_id")
    how = ("--information", "12000", "--draws", "500", "--alpha", "0.01", "--seed", "3", "--dependence", "any")
    for path in days(shop)[:2]:
        done = warm("monitor", "s.json", path, "--by", "country", "--metric", "lift:before", *LIFT[2:], *how, cwd=here)
        look = monitor.update(str(path), "country", metric)
        assert without_next(done.stdout) == to_text(look, spelling="omit")
    assert fl.Monitor.load(here / "s.json").result.looks[-1].number == 2


def test_tables_and_groups_that_change(warm: Warm, table: Path) -> None:
    here = table.parent
    frame = pd.read_csv(table)
    frame["lift"] = 0.02 + frame.sd * np.random.default_rng(0).standard_normal(len(frame))
    gone, fresh = frame.country[0], frame.country[3]
    frame[frame.country != fresh].to_csv(here / "one.csv", index=False)
    frame.assign(users=2 * frame.users, sd=frame.sd / np.sqrt(2))[1:].to_csv(here / "two.csv", index=False)
    assert warm("monitor", "s.json", "one.csv", *TABLE, "--draws", "200", cwd=here).returncode == 0
    done = warm("monitor", "s.json", "two.csv", *TABLE, "--new", "error", cwd=here)
    assert is_one_line(done.stderr)
    assert done.refused == "mismatch: estimates"
    assert f"'{fresh}'" in done.stderr
    done = warm("monitor", "s.json", "two.csv", *TABLE, cwd=here)
    assert done.refused == "mismatch: estimates"
    assert f"'{gone}'" in done.stderr
    done = warm("monitor", "s.json", "two.csv", *TABLE, "--missing", "keep", "--final", cwd=here)
    assert (done.returncode, done.stderr) == (0, "")
    result = fl.Monitor.load(here / "s.json").result
    assert (result.verdict, len(result.looks)) == ("ended", 2)
    assert [group.label for group in result.groups if group.status == "stopped"] == [gone]


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        (("--looks", "9"), "conflict: looks"),
        (("--alpha", "0.01"), "conflict: alpha"),
        (("--information", "9"), "conflict: information"),
        (("--spending", "pocock"), "conflict: spending"),
        (("--looks", "5", "--seed", "0", "--dependence", "returning"), "duplicate: estimates"),
        (("--report", "s.json.html", "--json", "s.json"), "conflict: json"),
    ],
)
def test_settings_are_kept(warm: Warm, table: Path, more: tuple[str, ...], refused: str) -> None:
    here = table.parent
    frame = pd.read_csv(table).assign(lift=0.0)
    frame.to_csv(here / "one.csv", index=False)
    asked = ("monitor", "s.json", "one.csv", *TABLE)
    assert warm(*asked, "--looks", "5", "--draws", "200", cwd=here).returncode == 0
    done = warm(*asked, *more, cwd=here)
    assert (done.returncode, done.stdout) == (2, "")
    assert is_one_line(done.stderr)
    assert done.refused == refused


def test_data_in_the_place_of_the_state_are_told_apart(warm: Warm, shop: Path) -> None:
    here = shop.parent
    (here / "other.json").write_text("{}", encoding="utf-8")
    for state in (shop.name, "other.json"):
        done = warm("monitor", state, shop, "--by", "country", *LIFT, cwd=here)
        assert (done.returncode, done.stdout) == (2, "")
        assert is_one_line(done.stderr)
        assert done.stderr.startswith(f"faultlines: error: state '{state}' ")
        assert done.refused == "unreadable file: state"
    done = warm("monitor", "s.json", shop, "--by", "country", "--metric", "mean:revenue", cwd=here)
    assert done.refused == "unsupported: metric"


@pytest.mark.parametrize("option", ["--json", "--report"])
def test_no_look_is_shown_that_is_not_kept(warm: Warm, table: Path, option: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no disk that is always full")
    frame = pd.read_csv(table)
    frame.assign(lift=0.02).to_csv(table.parent / "one.csv", index=False)
    done = warm("monitor", "s.json", "one.csv", *TABLE, "--draws", "200", option, "/dev/full", cwd=table.parent)
    assert (done.returncode, done.stdout) == (2, "")
    assert not (table.parent / "s.json").exists()


def test_left_out_groups_are_named(warm: Warm, shop: Path) -> None:
    here = shop.parent
    frame = pd.read_parquet(shop)
    frame.loc[:5, "country"] = "XX"
    frame.to_parquet(here / "rows.parquet")
    words = ("--by", "country", "--metric", "accuracy", "--y-true", "label", "--y-pred", "pred", "--positive", "yes")
    done = warm(
        "monitor", "s.json", "rows.parquet", *words, "--draws", "200", "--min-size", "20", "--json", "-", cwd=here
    )
    written = json.loads(done.stdout)
    assert [row["country"] for row in written["groups"] if row["status"] == "too small"] == ["XX"]
    fresh = warm("monitor", "t.json", "rows.parquet", *words, "--draws", "200", "--min-size", "20", cwd=here)
    assert "Too small so far (1, fewer than 20" in fresh.stdout


def harm_table(path: Path, effects: dict[str, tuple[float, float]]) -> Path:
    lines = [f"{group},{effect},{error},9000" for group, (effect, error) in effects.items()]
    path.write_text("\n".join(["country,lift,sd,users", *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("effects", "adverse", "code", "harmed"),
    [
        ({"DE": (0.04, 0.004), "FR": (0.001, 0.004)}, "low", 0, ""),  # they differ, and nobody is harmed
        ({"DE": (0.04, 0.004), "FR": (-0.03, 0.004)}, "low", 1, "FR"),
        ({"DE": (0.04, 0.004), "FR": (-0.03, 0.004)}, "high", 1, "DE"),
        ({"DE": (-0.005, 0.004), "FR": (-0.006, 0.004)}, "low", 0, ""),  # intervals reach zero: nothing is shown
        ({"DE": (-0.04, 0.004), "FR": (-0.04, 0.004)}, "low", 1, "DE"),  # all of them, without a difference
    ],
)
def test_harm_ends_a_look(
    warm: Warm, tmp_path: Path, effects: dict[str, tuple[float, float]], adverse: str, code: int, harmed: str
) -> None:
    path = harm_table(tmp_path / "lifts.csv", effects)
    gate = ("--fail-on", "harm", "--adverse", adverse)
    done = warm("monitor", "a.json", path, *TABLE, "--draws", "200", *gate, "--json", "gated.json", cwd=tmp_path)
    assert done.returncode == code
    assert warm("monitor", "b.json", path, *TABLE, "--draws", "200", "--json", "free.json", cwd=tmp_path).stderr == ""
    gated, free = (json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("gated.json", "free.json"))
    assert gated | {"notes": []} == free | {"notes": []}
    assert (done.stderr == "") if code == 0 else is_one_line(done.stderr)
    assert harmed in done.stderr
    again = warm("monitor", "a.json", path, *TABLE, *gate, "--json", "again.json", cwd=tmp_path)
    assert again.returncode == code  # no look is taken: the exit code is that of the last one


def test_a_harmed_cluster_is_named_before_its_groups() -> None:
    theta, errors = np.r_[np.full(12, 0.03), np.full(12, -0.01)], np.full(24, 0.004)
    result = fl.Monitor(looks=4, draws=200).update(fl.Estimates(theta, errors, list("ABCDEFGHIJKLMNOPQRSTUVWX")))
    harmed = find_harmed(result, "low")
    assert [(each.cluster, each.label) for each in harmed] == [(0, None)]  # no group is shown to be, by itself
    assert harmed[0].effect.upper < 0
    assert find_harmed(result, "high")[0].cluster == 1
    assert "cluster 1 (M, " in describe_harm(result, harmed)


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ("--fail-on split", "unknown: fail_on"),
        ("--fail-on harm", "missing: adverse"),
        ("--fail-on harm --adverse both", "unknown: adverse"),
        ("--adverse low", "conflict: adverse"),
        ("--fail-on harm --adverse low --mismatch no", "unknown: mismatch"),
    ],
)
def test_harm_options_are_refused_before_a_look(warm: Warm, table: Path, options: str, refused: str) -> None:
    done = warm("monitor", "s.json", table, *TABLE, *options.split(), cwd=table.parent)
    assert (done.returncode, done.stdout, done.refused) == (2, "", refused)
    assert is_one_line(done.stderr)
    assert not (table.parent / "s.json").exists()


def test_levels_of_a_model_are_not_compared_with_zero(warm: Warm, shop: Path) -> None:
    words = ("--by", "country", "--metric", "accuracy", "--y-true", "label", "--y-pred", "pred", "--positive", "yes")
    done = warm("monitor", "s.json", shop, *words, "--fail-on", "harm", cwd=shop.parent)
    assert (done.returncode, done.refused) == (2, "conflict: fail_on")
